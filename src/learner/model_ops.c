/* Model callbacks: gradients of the learnable parameters (select/select.h) and features (buffer/model_ops.h) of given samples or
 * images, for selectors and buffer methods. The parameters do not change.
 *
 * The number of samples of a call is not limited. They are processed in passes of the size of a step, with at most
 * SFP__MODEL_OPS_SLOTS images of slots, so memory does not grow with the number of samples. Known queries are used; others are
 * computed in the same pass and stored. */
#include "learner/learner_internal.h"

#include "base/mem.h"
#include "compute/pixels.h"
#include "compute/vec.h"

#include <string.h>

/* The samples of one call: either indices or images. */
typedef struct call_samples {
    int n;
    const int *sample;            /* (n) i < b: sample of the batch, b + s: slot s; NULL: images */
    const sfp__image_list *image; /* the n images, if `sample` is NULL */
} call_samples;

static int batch_size(const sfp__learner *l)
{
    return l->batch.selected.b;
}

static sfp_status check_samples(const char *subject, int n, const int *sample, int max_samples, sfp_error *err)
{
    if (n < 1)
        return sfp__fail(err, SFP_EINVAL, "%s: number of samples is %d, expected at least 1", subject, n);
    for (int i = 0; i < n && sample; i++)
        if (sample[i] < 0 || sample[i] >= max_samples)
            return sfp__fail(err, SFP_EINVAL, "%s: sample is %d, expected 0 to %d", subject, sample[i], max_samples - 1);
    return SFP_OK;
}

static sfp__item item_of(const sfp__learner *l, const call_samples *a, int row)
{
    int b = batch_size(l), k = a->sample ? a->sample[row] : -1;
    return (sfp__item){.index = k < b ? k : k - b, .replay = k >= b, .row = row};
}

/* Returns how many of the samples from `first` on are processed in one pass of at most `max_samples`. */
static int count_for_pass(const sfp__learner *l, const call_samples *a, int first, int max_samples)
{
    int n = 0;
    for (int slots = 0; n < max_samples && first + n < a->n; n++) {
        slots += item_of(l, a, first + n).replay;
        if (slots > SFP__MODEL_OPS_SLOTS)
            break;
    }
    return n;
}

/* Copies an image into sample `at` of the pass; it may belong to any task. */
static void fill_image(sfp__learner *l, const sfp__image_list *p, int at)
{
    int row = l->pass.items[at].row;
    l->pass.xs[at] = p->x[row];
    l->pass.label[at] = p->label[row];
    l->pass.masked[at] = false;
    l->pass.replayed[at] = true;
    if (p->query)
        memcpy(l->pass.query + (size_t)at * (size_t)l->D, p->query[row], (size_t)l->D * sizeof *l->pass.query);
}

static bool query_known(const sfp__learner *l, const call_samples *a, const sfp__item *item)
{
    return sfp__learner_query_known(l, item) || (item->index < 0 && a->image && a->image->query && a->image->known[item->row]);
}

/* Stores the first `unknown` queries of a pass with the samples or images they belong to. */
static void keep_queries(sfp__learner *l, const call_samples *a, int unknown)
{
    sfp__learner_keep_queries(l, unknown);
    for (int i = 0; i < unknown && a->image && a->image->query; i++) {
        int row = l->pass.items[i].row;
        memcpy(a->image->query[row], l->pass.query + (size_t)i * (size_t)l->D, (size_t)l->D * sizeof *l->pass.query);
        a->image->known[row] = true;
    }
}

/* Copies samples [first, first + n) into the arrays of a step, those with unknown queries first. Returns the number of these. */
static int fill(sfp__learner *l, const call_samples *a, int first, int n)
{
    int at = 0, slots = 0, unknown = 0;
    for (int known = 0; known < 2; known++) {
        for (int i = first; i < first + n; i++) {
            sfp__item item = item_of(l, a, i);
            if (query_known(l, a, &item) != (known == 1))
                continue;
            l->pass.items[at] = item;
            if (a->image)
                fill_image(l, a->image, at);
            else
                sfp__learner_fill_item(l, at, item.replay ? l->model.x + (size_t)slots++ * l->pixels : NULL);
            at++;
        }
        unknown = known ? unknown : at;
    }
    return unknown;
}

/* ---------------------------------------------------------------- gradients */

size_t sfp__learner_gradient_length(const sfp__learner *l)
{
    int count = 0;
    size_t n = 0;
    sfp__param **params = sfp__fp_params(l->fp, &count);
    for (int i = 0; i < count; i++)
        n += (size_t)(params[i]->hi - params[i]->lo) * params[i]->width;
    return n;
}

/* Copies the gradients of the trained rows to `out`, or adds them to it. */
static void copy_gradients(const sfp__learner *l, bool add, float *out)
{
    int count = 0;
    sfp__param **params = sfp__fp_params(l->fp, &count);
    for (int i = 0; i < count; i++) {
        const sfp__param *p = params[i];
        size_t n = (size_t)(p->hi - p->lo) * p->width;
        const float *from = p->grad + (size_t)p->lo * p->width;
        for (size_t k = 0; k < n && add; k++)
            out[k] += from[k];
        if (!add)
            memcpy(out, from, n * sizeof *out);
        out += n;
    }
}

/* Copies the rows (n, D) of a pass to the positions of their samples in `out`. */
static void scatter_rows(const sfp__learner *l, int n, const float *rows, float *out)
{
    size_t D = (size_t)l->D;
    for (int i = 0; i < n; i++)
        memcpy(out + (size_t)l->pass.items[i].row * D, rows + (size_t)i * D, D * sizeof *out);
}

/* Runs a pass over the samples of a call from `first` on, and writes their number to *n. The losses are means over groups of
 * `size`. in_order: keeps the order of the samples instead of placing those with unknown queries first. */
static sfp_status run_pass(sfp__learner *l, const call_samples *a, int first, int size, bool in_order, int *n,
                           sfp__train_result *result, sfp_error *err)
{
    int unknown = 0;
    *n = count_for_pass(l, a, first, l->capacity);
    unknown = fill(l, a, first, *n);
    if (in_order && unknown > 0) {
        TRY(sfp__trainer_queries(l->trainer, unknown, l->pass.xs, l->pass.query, err));
        keep_queries(l, a, unknown);
        unknown = fill(l, a, first, *n);
    }
    for (int i = 0; i < *n; i++) {
        int remaining = a->n - l->pass.items[i].row / size * size; /* the last group may be smaller */
        l->pass.weight[i] = 1.0f / (float)(remaining < size ? remaining : size);
    }
    l->model.batch = sfp__learner_batch(l, *n, unknown);
    TRY(sfp__trainer_pass(l->trainer, &l->model.batch, result, err));
    keep_queries(l, a, unknown);
    return SFP_OK;
}

/* Computes the gradient of the mean loss. terms: how often the ortho penalty is part of the loss. feature (n, D): receives the
 * features, or NULL. */
static sfp_status compute_gradient(sfp__learner *l, const call_samples *a, int terms, float *out, float *feature, sfp_error *err)
{
    for (int first = 0, n; first < a->n; first += n) {
        sfp__train_result result;
        double loss;
        TRY(run_pass(l, a, first, a->n, false, &n, &result, err));
        TRY(sfp__trainer_collect(l->trainer, 0, n, first == 0 ? terms : 0, &loss, err));
        copy_gradients(l, first > 0, out);
        if (feature)
            scatter_rows(l, n, result.feature, feature);
    }
    return SFP_OK;
}

/* Computes the gradient of each group of samples. The samples of a group are consecutive, but a pass may end within a group. */
static sfp_status compute_group_gradients(sfp__learner *l, const call_samples *a, int size, float *scratch, sfp__gradient_fn take,
                                          void *user, sfp_error *err)
{
    for (int first = 0, n; first < a->n; first += n) {
        sfp__train_result result;
        TRY(run_pass(l, a, first, size, size > 1, &n, &result, err));
        for (int i = 0, count; i < n; i += count) {
            double loss;
            int row = l->pass.items[i].row, group_offset = row % size;
            count = n - i < size - group_offset ? n - i : size - group_offset;
            TRY(sfp__trainer_collect(l->trainer, i, count, 0, &loss, err));
            copy_gradients(l, group_offset > 0, scratch);
            if (group_offset + count == size || row + count == a->n)
                take(user, row / size, scratch);
        }
    }
    return SFP_OK;
}

sfp_status sfp__learner_gradient(void *learner, int n, const int *index, float *out, sfp_error *err)
{
    sfp__learner *l = learner;
    TRY(check_samples("gradient", n, index, batch_size(l), err));
    return compute_gradient(l, &(call_samples){.n = n, .sample = index}, 1, out, NULL, err);
}

static sfp_status gradient(void *learner, int n, const int *sample, float *out, sfp_error *err)
{
    sfp__learner *l = learner;
    TRY(check_samples("gradient", n, sample, batch_size(l) + l->buffer->filled, err));
    return compute_gradient(l, &(call_samples){.n = n, .sample = sample}, 0, out, NULL, err);
}

static sfp_status gradient_each(void *learner, int n, const int *sample, int size, float *scratch, sfp__gradient_fn take,
                                void *user, sfp_error *err)
{
    sfp__learner *l = learner;
    TRY(check_samples("gradient", n < size ? n : size, NULL, 0, err));
    TRY(check_samples("gradient", n, sample, batch_size(l) + l->buffer->filled, err));
    return compute_group_gradients(l, &(call_samples){.n = n, .sample = sample}, size, scratch, take, user, err);
}

static sfp_status gradient_at(void *learner, const sfp__image_list *p, float *out, float *feature, sfp_error *err)
{
    sfp__learner *l = learner;
    TRY(check_samples("gradient", p->n, NULL, 0, err));
    bool paused = sfp__vit_memo_set_paused(l->opt.memo, true); /* images that a method has created do not occur again */
    sfp_status status = compute_gradient(l, &(call_samples){.n = p->n, .image = p}, 0, out, feature, err);
    (void)sfp__vit_memo_set_paused(l->opt.memo, paused);
    return status;
}

/* ----------------------------------------------------------------- features */

static sfp_status compute_features(sfp__learner *l, const call_samples *a, float *out, sfp_error *err)
{
    for (int first = 0, n; first < a->n; first += n) {
        int unknown = 0;
        n = count_for_pass(l, a, first, l->model.inputs.max_batch);
        unknown = fill(l, a, first, n);
        TRY(sfp__method_inputs_features(&l->model.inputs, n, l->pass.xs, unknown, l->pass.replayed, l->pass.query, err));
        keep_queries(l, a, unknown);
        scatter_rows(l, n, l->model.inputs.features, out);
    }
    return SFP_OK;
}

static sfp_status features(void *learner, int n, const int *sample, float *out, sfp_error *err)
{
    sfp__learner *l = learner;
    TRY(check_samples("features", n, sample, batch_size(l) + l->buffer->filled, err));
    return compute_features(l, &(call_samples){.n = n, .sample = sample}, out, err);
}

/* ------------------------------------------------------------------ pixels */

/* The callbacks for images that a buffer method has created. They compute gradients of the loss and of features with respect to
 * pixels, and the mean embeddings with which slots are scored.
 *
 * To evaluate at theta + h*v the parameters are changed in place and restored from a copy, because theta + h*v - h*v is not theta
 * in floating point. Rows that are not trained stay unchanged, so cached results for them (the maps of attunement) are not
 * recomputed. The parameters are changed once per call, for all passes of the call.
 *
 * Queries are constants (docs/method.md, section 2), even if they belong to the image that is differentiated. This is the
 * convention of all such systems, whose query pass runs without a graph. */

/* Copies the trained values, one parameter after another, to `saved`, and changes them to saved + h*v. */
static void move_parameters(sfp__learner *l, const float *v, float h, float *saved)
{
    int count = 0;
    sfp__param **params = sfp__fp_params(l->fp, &count);
    for (int i = 0; i < count; i++) {
        size_t n = (size_t)(params[i]->hi - params[i]->lo) * params[i]->width;
        float *at = params[i]->data + (size_t)params[i]->lo * params[i]->width;
        memcpy(saved, at, n * sizeof *at);
        for (size_t k = 0; k < n; k++)
            at[k] += h * v[k];
        saved += n;
        v += n;
    }
    sfp__fp_moved(l->fp);
}

static void restore_parameters(sfp__learner *l, const float *saved)
{
    int count = 0;
    sfp__param **params = sfp__fp_params(l->fp, &count);
    for (int i = 0; i < count; i++) {
        size_t n = (size_t)(params[i]->hi - params[i]->lo) * params[i]->width;
        memcpy(params[i]->data + (size_t)params[i]->lo * params[i]->width, saved, n * sizeof *saved);
        saved += n;
    }
    sfp__fp_moved(l->fp);
}

/* Returns the number of images in the next pass, whose gradients must fit in model_x. */
static int pass_size(const sfp__learner *l, int remaining)
{
    int max_samples = l->capacity < SFP__MODEL_OPS_SLOTS ? l->capacity : SFP__MODEL_OPS_SLOTS;
    return remaining < max_samples ? remaining : max_samples;
}

static bool all_known(const sfp__image_list *p)
{
    for (int i = 0; i < p->n && p->query; i++)
        if (!p->known[i])
            return false;
    return p->query;
}

/* Returns images [first, first + n) as samples of a step with equal weights, of any task. */
static sfp__train_batch make_batch(sfp__learner *l, const sfp__image_list *p, int first, int n)
{
    bool known = all_known(p);
    for (int i = 0; i < n; i++) {
        l->pass.weight[i] = 1.0f / (float)p->n;
        l->pass.masked[i] = false;
        l->pass.replayed[i] = true;
        if (known)
            memcpy(l->pass.query + (size_t)i * (size_t)l->D, p->query[first + i], (size_t)l->D * sizeof *l->pass.query);
    }
    sfp__train_batch batch = sfp__learner_batch(l, n, known ? 0 : n);
    batch.x = p->x + first;
    batch.label = p->label ? p->label + first : NULL;
    batch.terms = 1;
    return batch;
}

static sfp_status check_count(int n, sfp_error *err)
{
    return n < 1 ? sfp__fail(err, SFP_EINVAL, "number of images is %d, expected at least 1", n) : SFP_OK;
}

/* Adds scale * the pixel gradients at the current parameters to dx. dfeature NULL: the gradients of the loss. */
static sfp_status add_gradients(sfp__learner *l, const sfp__image_list *p, const float *dfeature, float scale, float *const *dx,
                                sfp_error *err)
{
    for (int first = 0, n; first < p->n; first += n) {
        n = pass_size(l, p->n - first);
        const sfp__train_batch batch = make_batch(l, p, first, n);
        const float *of = dfeature ? dfeature + (size_t)first * (size_t)l->D : NULL;
        TRY(of ? sfp__trainer_feature_pixels(l->trainer, &batch, of, l->model.x, err)
               : sfp__trainer_pixels(l->trainer, &batch, l->model.x, err));
        for (int i = 0; i < n; i++)
            sfp__axpy((int)l->pixels, scale, l->model.x + (size_t)i * l->pixels, dx[first + i]);
    }
    return SFP_OK;
}

static sfp_status loss_pixels(void *learner, const sfp__image_list *p, const float *v, float h, float scale, float *const *dx,
                              sfp_error *err)
{
    sfp__learner *l = learner;
    TRY(check_count(p->n, err));
    float *saved = NULL;
    if (v) {
        size_t count = sfp__learner_gradient_length(l);
        sfp__arena_reset(&l->model.arena);
        TRY(sfp__check_memory((saved = sfp__arena_take(&l->model.arena, count, sizeof *saved)), err));
        move_parameters(l, v, h, saved);
    }
    sfp_status status = add_gradients(l, p, NULL, scale, dx, err);
    if (v)
        restore_parameters(l, saved);
    return status;
}

static sfp_status feature_pixels(void *learner, const sfp__image_list *p, const float *dfeature, float *const *dx, sfp_error *err)
{
    TRY(check_count(p->n, err));
    return add_gradients(learner, p, dfeature, 1, dx, err);
}

static sfp_status embed_at(void *learner, int n, const float *const *x, float *out, sfp_error *err)
{
    sfp__learner *l = learner;
    sfp_status status = SFP_OK;
    TRY(check_count(n, err));
    bool paused = sfp__vit_memo_set_paused(l->opt.memo, true);
    for (int first = 0, count; first < n && !status; first += count) {
        count = pass_size(l, n - first);
        status = sfp__trainer_embed(l->trainer, count, x + first, out + (size_t)first * (size_t)l->D, err);
    }
    (void)sfp__vit_memo_set_paused(l->opt.memo, paused);
    return status;
}

/* ------------------------------------------------------------------ the buffer */

unsigned sfp__learner_buffer_needs(const sfp__learner *l)
{
    return l->buffer ? l->buffer->method->needs : 0;
}

sfp_status sfp__learner_model_ops_init(sfp__learner *l, sfp_error *err)
{
    unsigned needs = sfp__learner_buffer_needs(l) & (SFP__NEED_FEATURES | SFP__NEED_GRADIENTS | SFP__NEED_PIXELS);
    if (!needs)
        return SFP_OK;
    int chunk = l->capacity < SFP__MODEL_OPS_SLOTS ? l->capacity : SFP__MODEL_OPS_SLOTS;
    TRY(sfp__alloc(&l->model.x, SFP__MODEL_OPS_SLOTS * l->pixels, sizeof *l->model.x, err));
    if (needs & SFP__NEED_PIXELS)
        TRY(sfp__trainer_prepare_pixels(l->trainer, err));
    l->model.ops = (sfp__model_ops){.ctx = l,
                                    .dim = l->D,
                                    .side = l->S,
                                    .gradient = gradient,
                                    .gradient_each = gradient_each,
                                    .gradient_at = gradient_at,
                                    .pixels = loss_pixels,
                                    .feature_pixels = feature_pixels,
                                    .embed_at = embed_at};
    if (!(needs & SFP__NEED_FEATURES))
        return SFP_OK;
    l->model.ops.features = features;
    TRY(sfp__method_inputs_init(&l->model.inputs, l->vit, l->threads, l->fp, SFP__NEED_FEATURES, chunk, err));
    l->model.inputs.memo = l->opt.memo;
    return SFP_OK;
}

void sfp__learner_model_ops_done(sfp__learner *l)
{
    sfp__method_inputs_done(&l->model.inputs);
    sfp__free(l->model.x);
    sfp__arena_done(&l->model.arena);
}

const sfp__model_ops *sfp__learner_model_ops(sfp__learner *l)
{
    if (!l->model.ops.ctx)
        return NULL;
    l->model.ops.classes = sfp__learner_classes(l);
    l->model.ops.params = sfp__learner_gradient_length(l);
    return &l->model.ops;
}
