/* What selectors and buffer methods ask for while they decide: gradients of the learnable parameters (select/need.h) and features
 * (buffer/ask.h) of samples they name, or of pictures. The parameters stay as they are.
 *
 * Any number of samples, some at a time: as many as a step takes, of which at most SFP_ASK_SLOTS are pictures of slots, so that
 * memory does not grow with the question. Queries that are known are used, others computed in the same pass and kept. */
#include "learner/learner_internal.h"

#include "base/mem.h"

#include <string.h>

/* The samples of one question. */
typedef struct asked {
    int n;
    const int *sample;           /* (n) i < b: of the batch, b + s: slot s; or NULL and */
    const sfp_pictures *picture; /* these n */
} asked;

static int batch_size(const sfp_learner *l)
{
    return l->select_batch.b;
}

static sfp_status check(const char *what, int n, const int *sample, int most, sfp_error *err)
{
    if (n < 1)
        return sfp__fail(err, SFP_EINVAL, "%s of %d samples, expected at least 1", what, n);
    for (int i = 0; i < n && sample; i++)
        if (sample[i] < 0 || sample[i] >= most)
            return sfp__fail(err, SFP_EINVAL, "%s of sample %d, expected 0 to %d", what, sample[i], most - 1);
    return SFP_OK;
}

static sfp__item item_of(const sfp_learner *l, const asked *a, int row)
{
    int b = batch_size(l), k = a->sample ? a->sample[row] : -1;
    return (sfp__item){.index = k < b ? k : k - b, .replay = k >= b, .row = row};
}

/* How many of the samples from `first` on go into one pass of at most `most`. */
static int count_of(const sfp_learner *l, const asked *a, int first, int most)
{
    int n = 0;
    for (int slots = 0; n < most && first + n < a->n; n++) {
        slots += item_of(l, a, first + n).replay;
        if (slots > SFP_ASK_SLOTS)
            break;
    }
    return n;
}

/* A picture as sample `at` of the pass; it can be of any task. */
static void fill_picture(sfp_learner *l, const sfp_pictures *p, int at)
{
    int row = l->items[at].row;
    l->xs[at] = p->x[row];
    l->step_label[at] = p->label[row];
    l->step_masked[at] = false;
    l->step_rehearsed[at] = true;
    if (p->query)
        memcpy(l->step_query + (size_t)at * (size_t)l->D, p->query[row], (size_t)l->D * sizeof *l->step_query);
}

static bool query_known(const sfp_learner *l, const asked *a, const sfp__item *item)
{
    return sfp__learner_query_known(l, item) || (item->index < 0 && a->picture->query && a->picture->known[item->row]);
}

/* The first `unknown` queries of a pass to where its samples come from. */
static void keep_queries(sfp_learner *l, const asked *a, int unknown)
{
    sfp__learner_keep_queries(l, unknown);
    for (int i = 0; i < unknown && a->picture && a->picture->query; i++) {
        int row = l->items[i].row;
        memcpy(a->picture->query[row], l->step_query + (size_t)i * (size_t)l->D, (size_t)l->D * sizeof *l->step_query);
        a->picture->known[row] = true;
    }
}

/* Samples [first, first + n) into the arrays of a step, those with unknown queries first; how many of these to *unknown. */
static sfp_status fill(sfp_learner *l, const asked *a, int first, int n, int *unknown, sfp_error *err)
{
    int at = 0, slots = 0;
    for (int known = 0; known < 2; known++) {
        for (int i = first; i < first + n; i++) {
            sfp__item item = item_of(l, a, i);
            if (query_known(l, a, &item) != (known == 1))
                continue;
            l->items[at] = item;
            sfp_status s = SFP_OK;
            if (a->picture)
                fill_picture(l, a->picture, at);
            else
                s = sfp__learner_fill_item(l, at, item.replay ? l->ask_x + (size_t)slots++ * l->pixels : NULL, err);
            if (s)
                return s;
            at++;
        }
        *unknown = known ? *unknown : at;
    }
    return SFP_OK;
}

/* ---------------------------------------------------------------- gradients */

size_t sfp__learner_gradient_length(const sfp_learner *l)
{
    int count = 0;
    size_t n = 0;
    sfp_param **params = sfp__fp_params(l->fp, &count);
    for (int i = 0; i < count; i++)
        n += (size_t)(params[i]->hi - params[i]->lo) * params[i]->width;
    return n;
}

/* The gradients of rows that learn to `out`, or added to it. */
static void collect(const sfp_learner *l, bool add, float *out)
{
    int count = 0;
    sfp_param **params = sfp__fp_params(l->fp, &count);
    for (int i = 0; i < count; i++) {
        const sfp_param *p = params[i];
        size_t n = (size_t)(p->hi - p->lo) * p->width;
        const float *from = p->grad + (size_t)p->lo * p->width;
        for (size_t k = 0; k < n && add; k++)
            out[k] += from[k];
        if (!add)
            memcpy(out, from, n * sizeof *out);
        out += n;
    }
}

/* Rows (n, D) of a pass to the samples they belong to. */
static void place(const sfp_learner *l, int n, const float *rows, float *out)
{
    size_t D = (size_t)l->D;
    for (int i = 0; i < n; i++)
        memcpy(out + (size_t)l->items[i].row * D, rows + (size_t)i * D, D * sizeof *out);
}

/* A pass over some samples of a question from `first` on, whose losses are means over groups of `size`; how many to *n.
 * in_order: not those with unknown queries first. */
static sfp_status pass_over(sfp_learner *l, const asked *a, int first, int size, bool in_order, int *n, sfp_train_result *result,
                            sfp_error *err)
{
    int unknown = 0;
    *n = count_of(l, a, first, l->room);
    sfp_status s = fill(l, a, first, *n, &unknown, err);
    if (!s && in_order && unknown > 0 && (s = sfp__trainer_queries(l->trainer, unknown, l->xs, l->step_query, err)) == SFP_OK) {
        keep_queries(l, a, unknown);
        s = fill(l, a, first, *n, &unknown, err);
    }
    if (s)
        return s;
    for (int i = 0; i < *n; i++) {
        int left = a->n - l->items[i].row / size * size; /* the last group may be smaller */
        l->step_weight[i] = 1.0f / (float)(left < size ? left : size);
    }
    l->ask_batch = (sfp_train_batch){.n = *n,
                                     .x = l->xs,
                                     .label = l->step_label,
                                     .weight = l->step_weight,
                                     .masked = l->step_masked,
                                     .allowed = l->allowed,
                                     .rehearsed = l->step_rehearsed,
                                     .query = l->step_query,
                                     .queries = unknown};
    if ((s = sfp__trainer_pass(l->trainer, &l->ask_batch, result, err)) == SFP_OK)
        keep_queries(l, a, unknown);
    return s;
}

/* terms: how often the ortho penalty is part of the loss. feature (n, D): what the pass saw, or NULL. */
static sfp_status gradient_of(sfp_learner *l, const asked *a, int terms, float *out, float *feature, sfp_error *err)
{
    sfp_status s = SFP_OK;
    for (int first = 0, n; !s && first < a->n; first += n) {
        sfp_train_result result;
        double loss;
        if ((s = pass_over(l, a, first, a->n, false, &n, &result, err)) ||
            (s = sfp__trainer_collect(l->trainer, 0, n, first == 0 ? terms : 0, &loss, err)))
            return s;
        collect(l, first > 0, out);
        if (feature)
            place(l, n, result.feature, feature);
    }
    return s;
}

/* Samples that are known by their numbers: a group is in a row, be it cut by the end of a pass. */
static sfp_status gradient_each_of(sfp_learner *l, const asked *a, int size, float *room, sfp_ask_take take, void *user,
                                   sfp_error *err)
{
    for (int first = 0, n; first < a->n; first += n) {
        sfp_train_result result;
        sfp_status s = pass_over(l, a, first, size, size > 1, &n, &result, err);
        for (int i = 0, some; !s && i < n; i += some) {
            double loss;
            int row = l->items[i].row, of_group = row % size;
            some = n - i < size - of_group ? n - i : size - of_group;
            if ((s = sfp__trainer_collect(l->trainer, i, some, 0, &loss, err)))
                break;
            collect(l, of_group > 0, room);
            if (of_group + some == size || row + some == a->n)
                take(user, row / size, room);
        }
        if (s)
            return s;
    }
    return SFP_OK;
}

sfp_status sfp__learner_gradient(void *learner, int n, const int *index, float *out, sfp_error *err)
{
    sfp_learner *l = learner;
    sfp_status s = check("a gradient", n, index, batch_size(l), err);
    if (!s)
        s = gradient_of(l, &(asked){.n = n, .sample = index}, 1, out, NULL, err);
    for (int i = 0; i < batch_size(l); i++) /* as selection left them */
        l->xs[i] = l->x + (size_t)i * l->pixels;
    return s;
}

static sfp_status gradient(void *learner, int n, const int *sample, float *out, sfp_error *err)
{
    sfp_learner *l = learner;
    sfp_status s = check("a gradient", n, sample, batch_size(l) + l->buffer->filled, err);
    return s ? s : gradient_of(l, &(asked){.n = n, .sample = sample}, 0, out, NULL, err);
}

static sfp_status gradient_each(void *learner, int n, const int *sample, int size, float *room, sfp_ask_take take, void *user,
                                sfp_error *err)
{
    sfp_learner *l = learner;
    sfp_status s = check("a gradient", n < size ? n : size, NULL, 0, err);
    if (!s)
        s = check("a gradient", n, sample, batch_size(l) + l->buffer->filled, err);
    return s ? s : gradient_each_of(l, &(asked){.n = n, .sample = sample}, size, room, take, user, err);
}

static sfp_status gradient_at(void *learner, const sfp_pictures *p, float *out, float *feature, sfp_error *err)
{
    sfp_status s = check("a gradient", p->n, NULL, 0, err);
    return s ? s : gradient_of(learner, &(asked){.n = p->n, .picture = p}, 0, out, feature, err);
}

/* ----------------------------------------------------------------- features */

static sfp_status features_of(sfp_learner *l, const asked *a, float *out, sfp_error *err)
{
    sfp_status s = SFP_OK;
    for (int first = 0, n; !s && first < a->n; first += n) {
        int unknown = 0;
        n = count_of(l, a, first, l->ask_look.max_batch);
        if ((s = fill(l, a, first, n, &unknown, err)) ||
            (s = sfp__look_features(&l->ask_look, n, l->xs, unknown, l->step_rehearsed, l->step_query, err)))
            return s;
        keep_queries(l, a, unknown);
        place(l, n, l->ask_look.features, out);
    }
    return s;
}

static sfp_status features(void *learner, int n, const int *sample, float *out, sfp_error *err)
{
    sfp_learner *l = learner;
    sfp_status s = check("features", n, sample, batch_size(l) + l->buffer->filled, err);
    return s ? s : features_of(l, &(asked){.n = n, .sample = sample}, out, err);
}

/* ------------------------------------------------------------------ the buffer */

unsigned sfp__learner_buffer_needs(const sfp_learner *l)
{
    return l->buffer ? l->buffer->method->needs : 0;
}

sfp_status sfp__learner_ask_init(sfp_learner *l, sfp_error *err)
{
    unsigned needs = sfp__learner_buffer_needs(l) & (SFP_NEED_FEATURES | SFP_NEED_GRADIENTS | SFP_NEED_PIXELS);
    if (!needs)
        return SFP_OK;
    int most = l->room, chunk = most < SFP_ASK_SLOTS ? most : SFP_ASK_SLOTS;
    sfp_status s = SFP_OK;
    size_t bytes = SFP_ASK_SLOTS * l->pixels * sizeof *l->ask_x;
    if (!(l->ask_x = sfp__malloc(bytes)))
        return sfp__fail_nomem(err);
    if ((needs & SFP_NEED_PIXELS) && (s = sfp__trainer_prepare_pixels(l->trainer, err)))
        return s;
    l->ask = (sfp_ask){.ctx = l,
                       .dim = l->D,
                       .side = l->S,
                       .gradient = gradient,
                       .gradient_each = gradient_each,
                       .gradient_at = gradient_at,
                       .pixels = sfp__ask_pixels,
                       .feature_pixels = sfp__ask_feature_pixels,
                       .embed_at = sfp__ask_embed_at};
    if (!(needs & SFP_NEED_FEATURES))
        return SFP_OK;
    l->ask.features = features;
    return sfp__look_init(&l->ask_look, l->vit, l->threads, l->fp, SFP_NEED_FEATURES, chunk, err);
}

void sfp__learner_ask_done(sfp_learner *l)
{
    sfp__look_done(&l->ask_look);
    sfp__free(l->ask_x);
}

const sfp_ask *sfp__learner_ask(sfp_learner *l)
{
    if (!l->ask.ctx)
        return NULL;
    l->ask.classes = sfp__learner_classes(l);
    l->ask.params = sfp__learner_gradient_length(l);
    return &l->ask;
}
