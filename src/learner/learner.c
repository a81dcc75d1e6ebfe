/* One timestamp, step by step. Nothing here knows how a selector or a buffer
 * method decides: it computes what they declare to need and hands it over. */
#include "learner/learner.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/pixels.h"
#include "compute/vec.h"
#include "learner/learner_internal.h"

#include <math.h>
#include <string.h>

sfp_learner_options sfp__learner_options_defaults(const sfp_vit *vit)
{
    const sfp_vit_config *c = sfp__vit_config(vit);
    sfp_learner_options o = {.fp = sfp__fp_options_defaults(),
                             .adam = sfp__adam_defaults(),
                             .select = "streamfp",
                             .coreset = sfp__select_options_defaults(),
                             .buffer = sfp__buffer_options_defaults(),
                             .resize = SFP_RESIZE_SQUASH,
                             .batch = 20,
                             .steps = 1,
                             .replay = 10,
                             .feed = SFP_FEED_AUTO,
                             .drift = SFP_DRIFT_NEW_CLASS};
    if (o.fp.last_layer >= c->depth)
        o.fp.last_layer = c->depth - 1;
    memcpy(o.mean, c->mean, sizeof o.mean);
    memcpy(o.std, c->std, sizeof o.std);
    return o;
}

/* ------------------------------------------------------------ making, freeing */

static sfp_status check(const sfp_learner_options *o, sfp_error *err)
{
    const struct {
        const char *what;
        long value, min, max;
    } list[] = {{"batch", o->batch, 1, 100000}, {"steps", o->steps, 1, 1000}, {"replay", o->replay, 0, 100000}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].value < list[i].min || list[i].value > list[i].max)
            return sfp__fail(err, SFP_EINVAL, "%s is %ld, expected %ld to %ld", list[i].what, list[i].value, list[i].min, list[i].max);
    if (o->head == SFP_HEAD_MIX && o->fp.query_one)
        return sfp__fail(err, SFP_EINVAL, "head mix learns from queries, which query one does not compute");
    if (!(o->coreset.sigma > 0))
        return sfp__fail(err, SFP_EINVAL, "sigma is %g, expected more than 0", o->coreset.sigma);
    if (!(o->adam.lr >= 0) || !isfinite(o->adam.lr))
        return sfp__fail(err, SFP_EINVAL, "lr is %g, expected a number from 0", (double)o->adam.lr);
    return SFP_OK;
}

static sfp_status make_workspace(sfp_learner *l, sfp_error *err)
{
    size_t b = (size_t)l->opt.batch, n = (size_t)l->room, D = (size_t)l->D, k = (size_t)l->opt.steps;
    size_t r = (size_t)(l->opt.replay ? l->opt.replay : 1);
    const struct {
        void **to;
        size_t bytes;
    } list[] = {{(void **)&l->x, b * l->pixels * sizeof(float)},
                {(void **)&l->rx, r * l->pixels * sizeof(float)},
                {(void **)&l->xs, n * sizeof *l->xs},
                {(void **)&l->mean_embed, b * D * sizeof(float)},
                {(void **)&l->fingerprint, D * sizeof(float)},
                {(void **)&l->score, b * sizeof(float)},
                {(void **)&l->score_after, b * sizeof(float)},
                {(void **)&l->query, b * D * sizeof(float)},
                {(void **)&l->has_query, b * sizeof(bool)},
                {(void **)&l->label, b * sizeof *l->label},
                {(void **)&l->id, b * sizeof *l->id},
                {(void **)&l->image, b * sizeof *l->image},
                {(void **)&l->image_size, b * sizeof *l->image_size},
                {(void **)&l->coreset, b * sizeof(int)},
                {(void **)&l->select_weight, b * sizeof(float)},
                {(void **)&l->sample_loss, 2 * b * sizeof(float)},
                {(void **)&l->items, n * sizeof *l->items},
                {(void **)&l->step_label, n * sizeof *l->step_label},
                {(void **)&l->step_weight, n * sizeof(float)},
                {(void **)&l->step_masked, n * sizeof(bool)},
                {(void **)&l->step_rehearsed, n * sizeof(bool)},
                {(void **)&l->step_query, n * D * sizeof(float)},
                {(void **)&l->replay, k * r * sizeof(int)},
                {(void **)&l->replay_count, k * sizeof(int)},
                {(void **)&l->loss, k * sizeof(double)}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!(*list[i].to = sfp__calloc(1, list[i].bytes)))
            return sfp__fail_nomem(err, list[i].bytes);
    return SFP_OK;
}

const char *const sfp__learner_experts[SFP_HEAD_EXPERTS] = {NULL, "slda", "ranpac"};

sfp_status sfp__learner_make_heads(const sfp_learner *l, sfp_head *heads[SFP_HEAD_EXPERTS], sfp_error *err)
{
    sfp_head_options o = sfp__head_options_defaults(l->D, l->opt.fp.classes > 16 ? l->opt.fp.classes : 16);
    o.seed = l->opt.seed;
    sfp_status s = SFP_OK;
    for (int i = 1; !s && i < SFP_HEAD_EXPERTS; i++)
        s = sfp__head_create(sfp__learner_experts[i], &o, &heads[i], err);
    return s;
}

sfp_status sfp__learner_class_room(sfp_learner *l, int classes, sfp_error *err)
{
    if (classes <= l->class_room)
        return SFP_OK;
    int room = classes > 2 * l->class_room ? classes : 2 * l->class_room;
    size_t old = (size_t)l->class_room, n = (size_t)room, b = (size_t)l->opt.batch;
    char **names = sfp__calloc(n, sizeof *names);
    uint8_t *seen = sfp__calloc(n, 1), *allowed = sfp__calloc(n, 1);
    float *expert[SFP_HEAD_EXPERTS] = {NULL}, *mixed = NULL;
    bool ok = names && seen && allowed;
    for (int i = 0; i < SFP_HEAD_EXPERTS && l->opt.head == SFP_HEAD_MIX; i++)
        ok = (expert[i] = sfp__malloc(b * n * sizeof(float))) && ok;
    if (l->opt.head == SFP_HEAD_MIX)
        ok = (mixed = sfp__malloc(n * sizeof(float))) && ok;
    if (!ok) {
        sfp__free(names);
        sfp__free(seen);
        sfp__free(allowed);
        for (int i = 0; i < SFP_HEAD_EXPERTS; i++)
            sfp__free(expert[i]);
        sfp__free(mixed);
        return sfp__fail_nomem(err, b * n * sizeof(float));
    }
    if (old) {
        memcpy(names, l->names, old * sizeof *names);
        memcpy(seen, l->seen, old);
        memcpy(allowed, l->allowed, old);
    }
    sfp__free(l->names);
    sfp__free(l->seen);
    sfp__free(l->allowed);
    l->names = names;
    l->seen = seen;
    l->allowed = allowed;
    for (int i = 0; i < SFP_HEAD_EXPERTS; i++) {
        sfp__free(l->expert[i]);
        l->expert[i] = expert[i];
    }
    sfp__free(l->mixed);
    l->mixed = mixed;
    l->class_room = room;
    return SFP_OK;
}

sfp_status sfp__learner_add_classes(sfp_learner *l, int classes, sfp_error *err)
{
    sfp_status s = sfp__learner_class_room(l, classes, err);
    return s ? s : sfp__trainer_add_classes(l->trainer, classes, err);
}

static sfp_status make(sfp_learner *l, sfp_error *err)
{
    sfp_learner_options *o = &l->opt;
    if (!(l->selector = sfp__selector_find(o->select)))
        return sfp__fail(err, SFP_EINVAL, "there is no selector '%s'", o->select);
    int c = sfp__coreset_size(o->batch, o->coreset.sigma);
    if (o->coreset.sigma >= 1 || strcmp(o->select, "none") == 0)
        c = o->batch;
    if (o->coreset_most > 0 && c > o->coreset_most)
        c = o->coreset_most;
    l->most = c + o->replay;
    l->room = l->most > o->batch ? l->most : o->batch;
    o->fp.seed = o->seed;
    sfp_trainer_options t = {.fp = o->fp, .adam = o->adam, .max_batch = l->room};
    sfp_status s = sfp__trainer_create(l->vit, l->threads, &t, &l->trainer, err);
    if (s)
        return s;
    l->fp = sfp__trainer_fp(l->trainer);
    o->fp = *sfp__fp_options(l->fp);
    o->buffer.dim = l->D;
    o->buffer.image_bytes = l->rgb_bytes;
    memcpy(o->buffer.mean, o->mean, sizeof o->mean);
    memcpy(o->buffer.std, o->std, sizeof o->std);
    if (strcmp(o->buffer.method, "none") != 0 && (s = sfp__buffer_create(&o->buffer, o->batch, &l->buffer, err)))
        return s;
    if ((s = sfp__look_init(&l->look, l->vit, l->threads, l->fp, l->selector->needs, o->batch, err)) ||
        (l->selector->open && (s = l->selector->open(l->D, o->batch, o->seed, &l->select_state, err))))
        return s;
    if ((s = sfp__learner_ask_init(l, err)) || (s = make_workspace(l, err)) ||
        (s = sfp__learner_class_room(l, o->fp.classes > 16 ? o->fp.classes : 16, err)))
        return s;
    if (o->head != SFP_HEAD_MIX)
        return SFP_OK;
    sfp__mix_init(&l->mix, SFP_HEAD_EXPERTS, (double)sfp__head_options_defaults(l->D, 1).mix_rate);
    return sfp__learner_make_heads(l, l->heads, err);
}

sfp_status sfp__learner_create(sfp_vit *vit, sfp_pool *threads, const sfp_learner_options *opt, sfp_learner **out, sfp_error *err)
{
    sfp_status s = check(opt, err);
    if (s)
        return s;
    sfp_learner *l = sfp__calloc(1, sizeof *l);
    if (!l)
        return sfp__fail_nomem(err, sizeof *l);
    const sfp_vit_config *c = sfp__vit_config(vit);
    l->opt = *opt;
    l->vit = vit;
    l->threads = threads;
    l->D = c->dim;
    l->S = c->img_size;
    l->rgb_bytes = 3 * (size_t)l->S * (size_t)l->S;
    l->pixels = l->rgb_bytes;
    l->select_rng = sfp__rng_init(opt->seed, 2);
    l->replay_rng = sfp__rng_init(opt->seed, 3);
    l->buffer_rng = sfp__rng_init(opt->seed, 4);
    sfp__snapshots_init(&l->snapshots);
    s = make(l, err);
    if (s)
        sfp__learner_free(l);
    else
        *out = l;
    return s;
}

void sfp__learner_free(sfp_learner *l)
{
    if (!l)
        return;
    sfp__snapshots_done(&l->snapshots);
    for (int i = 0; i < SFP_HEAD_EXPERTS; i++) {
        sfp__head_free(l->heads[i]);
        sfp__free(l->expert[i]);
    }
    sfp__buffer_free(l->buffer);
    if (l->selector && l->selector->close)
        l->selector->close(l->select_state);
    sfp__arena_done(&l->select_arena);
    sfp__learner_ask_done(l);
    sfp__arena_done(&l->pixels_arena);
    sfp__look_done(&l->look);
    sfp__trainer_free(l->trainer);
    for (int i = 0; i < l->class_room; i++)
        sfp__free(l->names[i]);
    void *all[] = {l->x,          l->rx,         (void *)l->xs, l->mean_embed,    l->fingerprint, l->score,       l->score_after,
                   l->query,      l->has_query,  l->label,      l->id,            (void *)l->image, l->image_size,
                   l->coreset,    l->select_weight, l->sample_loss, l->items,   l->step_label,    l->step_weight, l->step_masked, l->step_rehearsed, l->step_query,
                   l->mixed,      l->replay,     l->replay_count, l->loss,     (void *)l->names, l->seen,        l->allowed};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sfp__free(all[i]);
    sfp__free(l);
}

/* ------------------------------------------------------------------- classes */

const sfp_learner_options *sfp__learner_options(const sfp_learner *l)
{
    return &l->opt;
}

sfp_learner_counts sfp__learner_counts(const sfp_learner *l)
{
    return l->counts;
}

sfp_buffer *sfp__learner_buffer(sfp_learner *l)
{
    return l->buffer;
}

int sfp__learner_classes(const sfp_learner *l)
{
    return sfp__fp_last_w(l->fp)->rows;
}

bool sfp__learner_seen(const sfp_learner *l, int label)
{
    return label >= 0 && label < l->class_room && l->seen[label];
}

const char *sfp__learner_class_name(const sfp_learner *l, int label)
{
    return label >= 0 && label < l->class_room ? l->names[label] : NULL;
}

static bool known_tasks(const sfp_learner *l)
{
    return l->opt.fp.tasks > 0;
}

sfp_status sfp__learner_name_class(sfp_learner *l, int label, const char *name, sfp_error *err)
{
    if (label < 0 || label >= (known_tasks(l) ? sfp__learner_classes(l) : SFP_LEARNER_MAX_CLASSES))
        return sfp__fail(err, SFP_EINVAL, "class %d to be named '%s' is out of range", label, name ? name : "");
    sfp_status s = sfp__learner_class_room(l, label + 1, err);
    if (s)
        return s;
    char *copy = name ? sfp__strdup(name) : NULL;
    if (name && !copy)
        return sfp__fail_nomem(err, strlen(name) + 1);
    sfp__free(l->names[label]);
    l->names[label] = copy;
    return SFP_OK;
}

sfp_status sfp__learner_set_classes(sfp_learner *l, int n, const int32_t *labels, sfp_error *err)
{
    int classes = sfp__learner_classes(l);
    for (int i = 0; i < n; i++)
        if (labels[i] < 0 || labels[i] >= classes)
            return sfp__fail(err, SFP_EINVAL, "class %d of the task, expected 0 to %d", labels[i], classes - 1);
    memset(l->allowed, 0, (size_t)l->class_room);
    for (int i = 0; i < n; i++)
        l->allowed[labels[i]] = 1;
    return SFP_OK;
}

void sfp__learner_slack(sfp_learner *l, bool slack)
{
    l->no_slack = !slack;
}

void sfp__learner_limit(sfp_learner *l, int coreset, int replay, int steps)
{
    l->limit_coreset = coreset;
    l->limit_replay = replay;
    l->limit_steps = steps;
}

int sfp__learner_task(const sfp_learner *l)
{
    return sfp__fp_task(l->fp);
}

sfp_status sfp__learner_next_task(sfp_learner *l, sfp_error *err)
{
    return sfp__fp_next_task(l->fp, err);
}

/* ----------------------------------------------------------------- a timestamp */

typedef struct normalise_job {
    const sfp_learner *l;
    const sfp_sample *samples;
} normalise_job;

static void normalise_piece(void *ctx, int i, int worker)
{
    const normalise_job *j = ctx;
    (void)worker;
    sfp__pixels_normalise(j->samples[i].rgb, j->l->S, j->l->opt.mean, j->l->opt.std, j->l->x + (size_t)i * j->l->pixels);
}

static sfp_status take_batch(sfp_learner *l, int b, const sfp_sample *samples, bool *new_class, sfp_error *err)
{
    int classes = sfp__learner_classes(l), highest = -1;
    if (b < 1 || b > l->opt.batch)
        return sfp__fail(err, SFP_EINVAL, "a batch of %d samples, expected 1 to %d", b, l->opt.batch);
    for (int i = 0; i < b; i++) {
        int y = samples[i].label, most = known_tasks(l) ? classes : SFP_LEARNER_MAX_CLASSES;
        if (y < 0 || y >= most)
            return sfp__fail(err, SFP_EINVAL, "sample %llu has label %d, expected 0 to %d", (unsigned long long)samples[i].id, y, most - 1);
        highest = y > highest ? y : highest;
    }
    if (highest >= classes) {
        sfp_status s = sfp__learner_add_classes(l, highest + 1, err);
        if (s)
            return s;
    }
    bool needs_pixels = sfp__learner_buffer_needs(l) & SFP_NEED_PIXELS;
    *new_class = false;
    for (int i = 0; i < b; i++) {
        const sfp_sample *s = &samples[i];
        l->label[i] = s->label;
        l->id[i] = s->id;
        bool compressed = l->opt.keep_compressed && !needs_pixels && s->encoded && s->encoded_size < l->rgb_bytes;
        l->image[i] = compressed ? s->encoded : s->rgb;
        l->image_size[i] = compressed ? s->encoded_size : l->rgb_bytes;
        l->has_query[i] = false;
        l->xs[i] = l->x + (size_t)i * l->pixels;
        *new_class = *new_class || !l->seen[s->label];
    }
    normalise_job j = {l, samples};
    sfp__pool_run(l->threads, b, normalise_piece, &j);
    return SFP_OK;
}

static void score(const sfp_learner *l, int b, float *out)
{
    sfp__fp_mean_unit(l->fp, l->fingerprint);
    for (int i = 0; i < b; i++)
        out[i] = sfp__dot(l->D, l->mean_embed + (size_t)i * (size_t)l->D, l->fingerprint);
}

/* What the selector asked for beside scores. Queries come with it, and the step need not compute them. */
static sfp_status look(sfp_learner *l, int b, sfp_error *err)
{
    if (!l->look.needs)
        return SFP_OK;
    sfp_status s = sfp__look(&l->look, b, l->xs, sfp__learner_masked(l) ? l->allowed : NULL, l->query, err);
    bool queries = l->look.plain || !l->opt.fp.query_one;
    for (int i = 0; !s && i < b && queries; i++)
        l->has_query[i] = true;
    return s;
}

/* The first span is for those that come first; a state may bring some. */
static bool knows_a_class(const sfp_learner *l)
{
    return memchr(l->seen, 1, (size_t)sfp__learner_classes(l)) != NULL;
}

/* Scores, drift, coreset. */
static sfp_status select_coreset(sfp_learner *l, int b, bool new_class, sfp_timestamp *r, sfp_error *err)
{
    sfp_status s = sfp__trainer_embed(l->trainer, b, l->xs, l->mean_embed, err);
    if (s)
        return s;
    score(l, b, l->score);
    bool grow = l->opt.drift == SFP_DRIFT_NEW_CLASS && new_class && knows_a_class(l);
    if (l->opt.drift == SFP_DRIFT_PH) {
        double mean = 0;
        for (int i = 0; i < b; i++)
            mean += (double)l->score[i] / b;
        grow = sfp__drift_next(&l->detector, mean);
    }
    if (!known_tasks(l) && grow) {
        int open = sfp__fp_open(l->fp);
        if ((s = sfp__fp_grow(l->fp, err)))
            return s;
        r->grew = sfp__fp_open(l->fp) > open; /* a full pool learns as a whole, but opens nothing */
        score(l, b, l->score);
    }
    sfp_select_options coreset = l->opt.coreset;
    int most = l->most - l->opt.replay, c = sfp__coreset_size(b, coreset.sigma);
    if (l->limit_coreset > 0 && l->limit_coreset < most)
        most = l->limit_coreset;
    if (c > most) /* the same window, narrower */
        coreset.sigma = (double)most / b;
    if ((s = look(l, b, err)))
        return s;
    const sfp_gradients gradients = {sfp__learner_gradient_length(l), sfp__learner_gradient, l};
    l->select_batch = (sfp_select_batch){.b = b,
                                         .label = l->label,
                                         .score = l->score,
                                         .dim = l->D,
                                         .query = l->query,
                                         .features = l->look.features,
                                         .classes = sfp__learner_classes(l),
                                         .logits = l->look.logits,
                                         .probs = l->look.probs,
                                         .pooled = l->look.pooled,
                                         .taps = l->look.taps};
    sfp_select_batch batch = l->select_batch;
    batch.gradients = &gradients;
    const sfp_select_env env = {.rng = &l->select_rng, .arena = &l->select_arena, .threads = l->threads, .state = l->select_state};
    s = l->selector->pick(&batch, &coreset, &env, l->coreset, l->select_weight, &r->coreset_count, err);
    if (!s && r->coreset_count > most) /* a selector that takes all, whatever sigma is */
        r->coreset_count = most;
    r->similarity = l->score;
    r->coreset = l->coreset;
    return s;
}

/* Puts the samples of a step in order, unknown queries first; returns how many of these. */
static int order_items(sfp_learner *l, int c, const int *slots, int r)
{
    int n = 0, unknown = 0;
    for (int want = 0; want < 2; want++) {
        for (int i = 0; i < c + r; i++) {
            sfp__item item = {.index = i < c ? l->coreset[i] : slots[i - c], .replay = i >= c};
            if (sfp__learner_query_known(l, &item) == (want == 1))
                l->items[n++] = item;
        }
        unknown = want == 0 ? n : unknown;
    }
    return unknown;
}

static sfp_status fill_step(sfp_learner *l, int c, const int *slots, int r, sfp_error *err)
{
    float weight_sum = 0;
    for (int i = 0; i < c; i++)
        weight_sum += l->select_weight[i];
    for (int i = 0; i < c + r; i++) {
        const sfp__item *item = &l->items[i];
        const int *among = item->replay ? slots : l->coreset;
        int k = 0;
        while (among[k] != item->index)
            k++;
        sfp_status s = sfp__learner_fill_item(l, i, l->rx + (size_t)(item->replay ? k : 0) * l->pixels, err);
        if (s)
            return s;
        if (item->replay)
            l->step_weight[i] = 1.0f / (float)r;
        else
            l->step_weight[i] = l->opt.weighted && weight_sum > 0 ? l->select_weight[k] / weight_sum : 1.0f / (float)c;
    }
    return SFP_OK;
}

/* ---------------------------------------------------------------- mixed heads */

/* log-softmax over the classes seen of one row of logits. */
static void log_softmax(const sfp_learner *l, int classes, const float *z, float *out)
{
    float max = -INFINITY;
    double sum = 0;
    for (int c = 0; c < classes; c++)
        if (l->seen[c])
            max = fmaxf(max, z[c]);
    for (int c = 0; c < classes; c++)
        sum += l->seen[c] ? exp((double)z[c] - (double)max) : 0;
    for (int c = 0; c < classes; c++)
        out[c] = l->seen[c] ? (float)((double)z[c] - (double)max - log(sum)) : -INFINITY;
}

/* Queries of the samples that the coreset left out. */
static sfp_status missing_queries(sfp_learner *l, int b, sfp_error *err)
{
    int n = 0;
    for (int i = 0; i < b; i++)
        if (!l->has_query[i])
            l->xs[n++] = l->x + (size_t)i * l->pixels;
    sfp_status s = n ? sfp__trainer_queries(l->trainer, n, l->xs, l->step_query, err) : SFP_OK;
    for (int i = 0, k = 0; !s && i < b; i++) {
        if (l->has_query[i])
            continue;
        memcpy(l->query + (size_t)i * (size_t)l->D, l->step_query + (size_t)k++ * (size_t)l->D, (size_t)l->D * sizeof(float));
        l->has_query[i] = true;
    }
    return s;
}

static void count_answer(const sfp_learner *l, int classes, const float *score, int32_t truth, sfp_timestamp *r)
{
    int best = -1;
    for (int c = 0; c < classes; c++)
        if (l->seen[c] && (best < 0 || score[c] > score[best]))
            best = c;
    r->judged++;
    r->right += best == truth;
}

/* Test, then train: the answers of before the step to the coreset's samples, by the linear head. */
static void judge(const sfp_learner *l, int n, const float *logits, sfp_timestamp *r)
{
    int classes = sfp__learner_classes(l);
    for (int i = 0; i < n; i++)
        if (!l->items[i].replay)
            count_answer(l, classes, logits + (size_t)i * (size_t)classes, l->step_label[i], r);
}

/* The same by the mixed heads, from the experts' log-probabilities of c samples. */
static void judge_mixed(const sfp_learner *l, int c, sfp_timestamp *r)
{
    int classes = sfp__learner_classes(l);
    for (int i = 0; i < c; i++) {
        const float *row[SFP_HEAD_EXPERTS];
        for (int e = 0; e < SFP_HEAD_EXPERTS; e++)
            row[e] = l->expert[e] + (size_t)i * (size_t)classes;
        sfp__mix_combine(&l->mix, 1, classes, row, l->mixed);
        count_answer(l, classes, l->mixed, l->step_label[i], r);
    }
}

/* Of the n samples of a step only those of the coreset, in front: labels, queries, the linear head's log-probabilities. */
static int keep_coreset(sfp_learner *l, int n, const float *logits)
{
    size_t classes = (size_t)sfp__learner_classes(l), D = (size_t)l->D;
    int c = 0;
    for (int i = 0; i < n; i++) {
        if (l->items[i].replay)
            continue;
        log_softmax(l, (int)classes, logits + (size_t)i * classes, l->expert[0] + (size_t)c * classes);
        memmove(l->step_query + (size_t)c * D, l->step_query + (size_t)i * D, D * sizeof *l->step_query);
        l->step_label[c++] = l->step_label[i];
    }
    return c;
}

/* Test, then train: the experts are judged on the coreset's samples among the `step` of a step, with the logits of before the first
 * step, then learn from every query at hand. */
static sfp_status feed_heads(sfp_learner *l, int b, int step, const float *logits, sfp_timestamp *r, sfp_error *err)
{
    int classes = sfp__learner_classes(l), c = keep_coreset(l, step, logits), n = 0;
    sfp_status s = SFP_OK;
    for (int e = 1; !s && e < SFP_HEAD_EXPERTS; e++)
        s = sfp__head_scores(l->heads[e], c, l->step_query, NULL, classes, l->expert[e], err);
    if (s)
        return s;
    judge_mixed(l, c, r);
    sfp__mix_observe(&l->mix, c, classes, (const float *const *)l->expert, l->step_label);
    if ((l->opt.feed == SFP_FEED_BATCH || (l->opt.feed == SFP_FEED_AUTO && !l->no_slack)) && (s = missing_queries(l, b, err)))
        return s;
    for (int i = 0; i < b; i++) {
        if (!l->has_query[i])
            continue;
        memcpy(l->step_query + (size_t)n * (size_t)l->D, l->query + (size_t)i * (size_t)l->D, (size_t)l->D * sizeof(float));
        l->step_label[n++] = l->label[i];
    }
    for (int e = 1; !s && e < SFP_HEAD_EXPERTS; e++)
        s = sfp__head_update(l->heads[e], n, l->step_query, NULL, l->step_label, err);
    return s;
}

/* ------------------------------------------------------------------- the steps */

static float cross_entropy(const sfp_learner *l, int classes, const float *z, int label)
{
    const uint8_t *allowed = sfp__learner_masked(l) ? l->allowed : NULL;
    float max = -INFINITY;
    double sum = 0;
    for (int c = 0; c < classes; c++)
        max = !allowed || allowed[c] ? fmaxf(max, z[c]) : max;
    for (int c = 0; c < classes; c++)
        sum += !allowed || allowed[c] ? exp((double)z[c] - (double)max) : 0;
    return (float)(log(sum) + (double)max - (double)z[label]);
}

/* A selector that learns sees the losses of the coreset before the step. */
static void teach_selector(sfp_learner *l, int n, int c, const float *logits)
{
    if (!l->selector->learn)
        return;
    int classes = sfp__learner_classes(l);
    float *by_index = l->sample_loss, *by_choice = l->sample_loss + l->opt.batch;
    for (int i = 0; i < n; i++)
        if (!l->items[i].replay)
            by_index[l->items[i].index] = cross_entropy(l, classes, logits + (size_t)i * (size_t)classes, l->step_label[i]);
    for (int i = 0; i < c; i++)
        by_choice[i] = by_index[l->coreset[i]];
    l->selector->learn(l->select_state, &l->select_batch, c, l->coreset, by_choice);
}

static sfp_status train(sfp_learner *l, int b, sfp_timestamp *r, sfp_error *err)
{
    int c = r->coreset_count, room = l->opt.replay ? l->opt.replay : 1;
    int want = l->limit_replay > 0 && l->limit_replay < l->opt.replay ? l->limit_replay : l->opt.replay;
    for (int k = 0; k < r->steps; k++) {
        int *slots = l->replay + k * room;
        int drawn = l->buffer ? sfp__buffer_draw(l->buffer, want, &l->replay_rng, slots) : 0;
        int unknown = order_items(l, c, slots, drawn);
        sfp_status s = fill_step(l, c, slots, drawn, err);
        if (s)
            return s;
        const sfp_train_batch batch = {.n = c + drawn, .x = l->xs, .label = l->step_label, .weight = l->step_weight,
                                       .masked = l->step_masked, .allowed = l->allowed, .rehearsed = l->step_rehearsed,
                                       .query = l->step_query, .queries = unknown, .terms = drawn ? 2 : 1};
        sfp_train_result result = {0};
        if ((s = sfp__trainer_step(l->trainer, &batch, &result, err)))
            return s;
        sfp__learner_keep_queries(l, l->opt.fp.query_one ? 0 : unknown);
        teach_selector(l, c + drawn, c, result.logits);
        l->loss[k] = result.loss;
        l->replay_count[k] = drawn;
        l->counts.trained += (uint64_t)c;
        l->counts.replayed += (uint64_t)drawn;
        r->seconds.attune += result.attune_seconds;
        r->seconds.query += result.query_seconds;
        r->seconds.forward += result.forward_seconds;
        r->seconds.backward += result.backward_seconds;
        r->seconds.update += result.update_seconds;
        if (k == 0 && l->opt.head == SFP_HEAD_LINEAR)
            judge(l, c + drawn, result.logits, r);
        if (k == 0 && l->opt.head == SFP_HEAD_MIX) {
            double begin = sfp__now();
            if ((s = feed_heads(l, b, c + drawn, result.logits, r, err)))
                return s;
            r->seconds.head = sfp__now() - begin;
        }
    }
    return SFP_OK;
}

static sfp_status update_buffer(sfp_learner *l, int b, sfp_timestamp *r, sfp_error *err)
{
    if (!l->buffer)
        return SFP_OK;
    sfp_status s = sfp__learner_buffer_needs(l) & SFP_NEED_QUERY ? missing_queries(l, b, err) : SFP_OK;
    if (s)
        return s;
    score(l, b, l->score_after);
    const sfp_buffer_batch batch = {.b = b,
                                    .now = l->counts.timestamps,
                                    .label = l->label,
                                    .id = l->id,
                                    .image = l->image,
                                    .image_size = l->image_size,
                                    .mean_embed = l->mean_embed,
                                    .query = l->query,
                                    .has_query = l->has_query,
                                    .score = l->score_after,
                                    .fingerprint = l->fingerprint,
                                    .ask = sfp__learner_ask(l),
                                    .threads = l->threads};
    return sfp__buffer_update(l->buffer, &batch, &l->buffer_rng, &r->buffer, err);
}

sfp_status sfp__learner_offer(sfp_learner *l, int b, const sfp_sample *samples, sfp_timestamp *report, sfp_error *err)
{
    sfp_timestamp r = {.t = l->counts.timestamps, .task = sfp__fp_task(l->fp), .offered = b, .steps = l->opt.steps};
    if (l->limit_steps > 0 && l->limit_steps < r.steps)
        r.steps = l->limit_steps;
    bool new_class = false;
    double begin = sfp__now();
    sfp_status s = take_batch(l, b, samples, &new_class, err);
    if (!s)
        s = select_coreset(l, b, new_class, &r, err);
    if (s)
        return s;
    double selected = sfp__now();
    if ((s = train(l, b, &r, err)))
        return s;
    for (int i = 0; i < b; i++) /* only now: answers of before the step cannot name a class that is new in it */
        l->seen[l->label[i]] = 1;
    double trained = sfp__now();
    if ((s = update_buffer(l, b, &r, err)))
        return s;
    double buffered = sfp__now();
    l->counts.timestamps++;
    l->counts.offered += (uint64_t)b;
    l->counts.scored += (uint64_t)b;
    r.replay = l->replay;
    r.replay_count = l->replay_count;
    r.loss = l->loss;
    r.seconds.select = selected - begin;
    r.seconds.buffer = buffered - trained;
    s = sfp__learner_publish(l, err);
    r.seconds.total = sfp__now() - begin;
    if (report)
        *report = r;
    return s;
}
