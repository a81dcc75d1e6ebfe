/* Creation of a learner, its options, classes and tasks. step.c processes batches. */
#include "learner/learner.h"

#include "base/mem.h"
#include "learner/learner_internal.h"

#include <math.h>
#include <string.h>

sfp__learner_options sfp__learner_options_defaults(const sfp__vit *vit)
{
    const sfp__vit_config *c = &vit->config;
    sfp__learner_options o = {.fp = sfp__fp_options_defaults(),
                              .adam = sfp__adam_defaults(),
                              .select = "streamfp",
                              .coreset = sfp__select_options_defaults(),
                              .buffer = sfp__buffer_options_defaults(),
                              .resize = SFP__RESIZE_SQUASH,
                              .batch = 20,
                              .steps = 1,
                              .replay = 10,
                              .taps = 1,
                              .ranpac_width = SFP__RANPAC_WIDTH_DEFAULT,
                              .drift = SFP__DRIFT_NEW_CLASS};
    if (o.fp.last_layer >= c->depth)
        o.fp.last_layer = c->depth - 1;
    memcpy(o.mean, c->mean, sizeof o.mean);
    memcpy(o.std, c->std, sizeof o.std);
    return o;
}

/* ------------------------------------------------------------ create, free */

static sfp_status check_options(const sfp__learner_options *o, sfp_error *err)
{
    const struct {
        const char *key;
        long value, min, max;
    } list[] = {{"batch", o->batch, 1, 100000}, {"steps", o->steps, 1, 1000}, {"replay", o->replay, 0, 100000}};
    for (size_t i = 0; i < (o->method ? 1 : sizeof list / sizeof *list); i++)
        if (list[i].value < list[i].min || list[i].value > list[i].max)
            return sfp__fail_key(err, list[i].key, SFP_EINVAL, "%s is %ld, expected %ld to %ld", list[i].key, list[i].value,
                                 list[i].min, list[i].max);
    if (o->method)
        return SFP_OK;
    if (!(o->coreset.sigma > 0))
        return sfp__fail_key(err, "sigma", SFP_EINVAL, "sigma is %g, expected a number above 0", o->coreset.sigma);
    if (!(o->adam.lr >= 0) || !isfinite(o->adam.lr))
        return sfp__fail_key(err, "lr", SFP_EINVAL, "lr is %g, expected 0 or a finite number above 0", (double)o->adam.lr);
    return SFP_OK;
}

/* Allocates the arrays that every batch needs. */
static sfp_status make_batch_work(sfp__learner *l, sfp_error *err)
{
    size_t b = (size_t)l->opt.batch, D = (size_t)l->D, taps = l->tap_dim > l->D ? b * (size_t)l->tap_dim : 0;
    const sfp__want list[] = {
        {&l->batch.x, b * l->pixels, sizeof *l->batch.x}, {&l->batch.xs, b, sizeof *l->batch.xs},
        {&l->batch.query, b * D, sizeof *l->batch.query}, {&l->batch.has_query, b, sizeof *l->batch.has_query},
        {&l->batch.label, b, sizeof *l->batch.label},     {&l->batch.id, b, sizeof *l->batch.id},
        {&l->batch.image, b, sizeof *l->batch.image},     {&l->batch.key, b, sizeof *l->batch.key},
        {&l->batch.tap, taps, sizeof *l->batch.tap}};
    TRY(sfp__block(&l->batch.block, SFP__LIST(list), err));
    if (l->tap_dim == l->D)
        l->batch.tap = l->batch.query;
    for (size_t i = 0; i < b; i++)
        l->batch.xs[i] = l->batch.x + i * l->pixels;
    memset(l->batch.query, 0, b * D * sizeof *l->batch.query); /* slots copy the query even if has_query is false */
    return SFP_OK;
}

/* Allocates the arrays that fingerprints need in addition: scores, coreset, steps. */
static sfp_status make_step_work(sfp__learner *l, sfp_error *err)
{
    size_t b = (size_t)l->opt.batch, n = (size_t)l->capacity, D = (size_t)l->D, k = (size_t)l->opt.steps;
    size_t r = (size_t)(l->opt.replay ? l->opt.replay : 1);
    const sfp__want list[] = {{&l->step.rx, r * l->pixels, sizeof *l->step.rx},
                              {&l->batch.mean_embed, b * D, sizeof *l->batch.mean_embed},
                              {&l->batch.fingerprint, D, sizeof *l->batch.fingerprint},
                              {&l->batch.score, b, sizeof *l->batch.score},
                              {&l->batch.score_after, b, sizeof *l->batch.score_after},
                              {&l->batch.coreset, b, sizeof *l->batch.coreset},
                              {&l->batch.select_weight, b, sizeof *l->batch.select_weight},
                              {&l->step.sample_loss, 2 * b, sizeof *l->step.sample_loss},
                              {&l->pass.xs, n, sizeof *l->pass.xs},
                              {&l->pass.items, n, sizeof *l->pass.items},
                              {&l->pass.label, n, sizeof *l->pass.label},
                              {&l->pass.weight, n, sizeof *l->pass.weight},
                              {&l->pass.masked, n, sizeof *l->pass.masked},
                              {&l->pass.replayed, n, sizeof *l->pass.replayed},
                              {&l->pass.query, n * D, sizeof *l->pass.query},
                              {&l->step.replay, k * r, sizeof *l->step.replay},
                              {&l->step.replay_count, k, sizeof *l->step.replay_count},
                              {&l->step.loss, k, sizeof *l->step.loss}};
    TRY(sfp__block(&l->step.block, SFP__LIST(list), err));
    memset(l->batch.select_weight, 0, b * sizeof *l->batch.select_weight);
    return SFP_OK;
}

sfp__head_options sfp__learner_head_options(const sfp__learner_options *o, const sfp__vit_config *vit, int classes)
{
    sfp__head_options h = sfp__head_options_defaults(sfp__learner_tap_dim(o, vit), classes);
    h.tap_dim = vit->dim;
    h.seed = o->seed;
    h.ridge_balanced = o->ridge_balanced;
    h.half_life = o->half_life;
    h.tap_mean = o->tap_mean;
    h.ranpac_width = o->ranpac_width;
    return h;
}

sfp_status sfp__learner_make_head(const sfp__learner *l, sfp__head **out, sfp_error *err)
{
    const sfp__learner_options *o = &l->opt;
    sfp__head_options h = sfp__learner_head_options(o, &l->vit->config, o->fp.classes);
    h.threads = l->threads;
    *out = NULL;
    return o->method ? sfp__head_create(o->method, &h, out, err) : SFP_OK;
}

sfp_status sfp__learner_reserve_classes(sfp__learner *l, int classes, sfp_error *err)
{
    if (classes <= l->classes.capacity)
        return SFP_OK;
    int capacity = classes > 2 * l->classes.capacity ? classes : 2 * l->classes.capacity;
    size_t old = (size_t)l->classes.capacity, n = (size_t)capacity, b = (size_t)l->opt.batch;
    char **names;
    uint8_t *seen, *allowed;
    float *scores;
    OWNED void *block = NULL;
    const sfp__want list[] = {{&names, n, sizeof *names},
                              {&seen, n, 1},
                              {&allowed, n, 1},
                              {&scores, l->opt.method && !l->fixed ? b * n : 0, sizeof *scores}};
    TRY(sfp__block_cleared(&block, SFP__LIST(list), err));
    if (old) {
        memcpy(names, l->classes.names, old * sizeof *names);
        memcpy(seen, l->classes.seen, old);
        memcpy(allowed, l->classes.allowed, old);
    }
    sfp__free(l->classes.block);
    l->classes.block = TAKE(block);
    l->classes.names = names;
    l->classes.seen = seen;
    l->classes.allowed = allowed;
    l->batch.head_scores = scores;
    l->classes.capacity = capacity;
    return SFP_OK;
}

sfp_status sfp__learner_add_classes(sfp__learner *l, int classes, sfp_error *err)
{
    TRY(sfp__learner_reserve_classes(l, classes, err));
    if (l->trainer)
        return sfp__trainer_add_classes(l->trainer, classes, err);
    l->classes.count = classes > l->classes.count ? classes : l->classes.count;
    return SFP_OK;
}

static sfp_status init_method(sfp__learner *l, sfp_error *err)
{
    const sfp__vit_plan_options plan = {.mode = SFP__VIT_FORWARD, .merge_tokens = l->opt.merge_tokens};
    TRY(sfp__learner_make_head(l, &l->head, err));
    TRY(sfp__vit_plan_create(l->vit, l->threads, &plan, &l->plan, err));
    l->capacity = l->opt.batch;
    TRY(make_batch_work(l, err));
    TRY(sfp__learner_reserve_classes(l, l->opt.fp.classes > 16 ? l->opt.fp.classes : 16, err));
    l->classes.count = l->classes.learned = l->opt.fp.classes;
    return SFP_OK;
}

static sfp_status init_fingerprints(sfp__learner *l, sfp_error *err)
{
    sfp__learner_options *o = &l->opt;
    if (!(l->selector = sfp__selector_find(o->select)))
        return sfp__fail(err, SFP_EINVAL, "selector '%s' is unknown", o->select);
    int c = sfp__coreset_size(o->batch, o->coreset.sigma);
    if (o->coreset.sigma >= 1 || strcmp(o->select, "none") == 0)
        c = o->batch;
    l->max_step_samples = c + o->replay;
    l->capacity = l->max_step_samples > o->batch ? l->max_step_samples : o->batch;
    o->fp.seed = o->seed;
    sfp__trainer_options t = {.fp = o->fp, .adam = o->adam, .max_batch = l->capacity, .memo = o->memo, .time = o->time};
    TRY(sfp__trainer_create(l->vit, l->threads, &t, &l->trainer, err));
    l->fp = sfp__trainer_fp(l->trainer);
    o->fp = l->fp->opt;
    o->buffer.dim = l->D;
    o->buffer.image_bytes = l->rgb_bytes;
    memcpy(o->buffer.mean, o->mean, sizeof o->mean);
    memcpy(o->buffer.std, o->std, sizeof o->std);
    if (strcmp(o->buffer.method, "none") != 0)
        TRY(sfp__buffer_create(&o->buffer, o->batch, &l->buffer, err));
    TRY(sfp__method_inputs_init(&l->method_inputs, l->vit, l->threads, l->fp, l->selector->needs, o->batch, err));
    l->method_inputs.memo = o->memo;
    if (l->selector->open)
        TRY(l->selector->open(l->D, o->batch, o->seed, &l->select_state, err));
    TRY(sfp__learner_model_ops_init(l, err));
    TRY(make_batch_work(l, err));
    TRY(make_step_work(l, err));
    return sfp__learner_reserve_classes(l, o->fp.classes > 16 ? o->fp.classes : 16, err);
}

sfp_status sfp__learner_check_taps(const sfp__learner_options *o, const sfp__vit_config *vit, sfp_error *err)
{
    int taps = sfp__learner_taps(o, vit), depth = vit->depth;
    if (taps > depth)
        return sfp__fail_key(err, "taps", SFP_EINVAL, "taps is %d, expected at most %d: the number of blocks of the backbone",
                             taps, depth);
    if (o->tap_mean && depth < 2)
        return sfp__fail_key(err, "tap-mean", SFP_EINVAL,
                             "tap-mean is on, but the backbone has only one block; use tap-mean off");
    int side = vit->patch_size > 0 ? vit->img_size / vit->patch_size : 0, most = depth < 2 ? 0 : side * side / 2;
    if (o->merge_tokens > most)
        return sfp__fail_key(
            err, "merge-tokens", SFP_EINVAL,
            "merge-tokens is %d, expected at most %d: half of the patches of an image if there is a second block",
            o->merge_tokens, most);
    return SFP_OK;
}

/* Allocates a learner and sets what does not depend on whether it learns. */
static sfp_status alloc_learner(sfp__vit *vit, sfp__thread_pool *threads, const sfp__learner_options *opt, sfp__learner **out,
                                sfp_error *err)
{
    sfp__learner *l = NULL;
    TRY(sfp__alloc(&l, 1, sizeof *l, err));
    *out = l;
    l->opt = *opt;
    if (!opt->method) { /* fingerprints have no taps */
        l->opt.taps = 1;
        l->opt.tap_mean = false;
        l->opt.merge_tokens = 0;
    }
    l->vit = vit;
    l->threads = threads;
    l->D = vit->config.dim;
    l->S = vit->config.img_size;
    l->taps = sfp__learner_taps(&l->opt, &vit->config);
    l->tap_dim = sfp__learner_tap_dim(&l->opt, &vit->config);
    l->pixels = 3 * (size_t)l->S * (size_t)l->S;
    l->rgb_bytes = vit->config.rows ? (size_t)l->D * sizeof(float) : l->pixels; /* rows have the same keys as in sfp_head_learn */
    l->select_rng = sfp__rng_init(opt->seed, 2);
    l->replay_rng = sfp__rng_init(opt->seed, 3);
    l->buffer_rng = sfp__rng_init(opt->seed, 4);
    sfp__snapshots_init(&l->snapshots);
    pthread_mutex_init(&l->head_lock, NULL);
    l->classes.names_version = 1;
    return SFP_OK;
}

sfp_status sfp__learner_create(sfp__vit *vit, sfp__thread_pool *threads, const sfp__learner_options *opt, sfp__learner **out,
                               sfp_error *err)
{
    OWNED_PTR(sfp__learner_free) sfp__learner *l = NULL;
    TRY(check_options(opt, err));
    TRY(alloc_learner(vit, threads, opt, &l, err));
    TRY(sfp__learner_check_taps(&l->opt, &vit->config, err));
    TRY(opt->method ? init_method(l, err) : init_fingerprints(l, err));
    *out = TAKE(l);
    return SFP_OK;
}

sfp_status sfp__learner_create_fixed(sfp__vit *vit, sfp__thread_pool *threads, const sfp__learner_options *opt,
                                     sfp__learner **out, sfp_error *err)
{
    OWNED_PTR(sfp__learner_free) sfp__learner *l = NULL;
    TRY(alloc_learner(vit, threads, opt, &l, err));
    l->fixed = true;
    if (opt->method) {
        TRY(sfp__learner_make_head(l, &l->head, err));
    } else {
        TRY(sfp__fp_create(vit, threads, &l->opt.fp, 1, &l->fp, err));
        l->opt.fp = l->fp->opt;
    }
    *out = TAKE(l);
    return SFP_OK;
}

void sfp__learner_free(sfp__learner *l)
{
    if (!l)
        return;
    sfp__snapshots_done(&l->snapshots);
    pthread_mutex_destroy(&l->head_lock);
    sfp__head_free(l->head);
    sfp__buffer_free(l->buffer);
    sfp__diagnostics_free(l->diagnostics);
    if (l->selector && l->selector->close)
        l->selector->close(l->select_state);
    sfp__arena_done(&l->select_arena);
    sfp__learner_model_ops_done(l);
    sfp__method_inputs_done(&l->method_inputs);
    if (l->fixed)
        sfp__fp_free(l->fp);
    sfp__trainer_free(l->trainer);
    for (int i = 0; i < l->classes.capacity; i++)
        sfp__free(l->classes.names[i]);
    sfp__vit_plan_free(l->plan);
    sfp__free(l->batch.block);
    sfp__free(l->step.block);
    sfp__free(l->classes.block);
    sfp__free(l);
}

/* ------------------------------------------------------------------- classes */

const sfp__learner_options *sfp__learner_get_options(const sfp__learner *l)
{
    return &l->opt;
}

sfp__learner_counts sfp__learner_get_counts(const sfp__learner *l)
{
    return l->counts;
}

sfp__buffer *sfp__learner_buffer(sfp__learner *l)
{
    return l->buffer;
}

int sfp__learner_classes(const sfp__learner *l)
{
    return l->fp ? l->fp->linear_w.rows : l->classes.count;
}

bool sfp__learner_seen(const sfp__learner *l, int label)
{
    return label >= 0 && label < l->classes.capacity && l->classes.seen[label];
}

const char *sfp__learner_class_name(const sfp__learner *l, int label)
{
    return label >= 0 && label < l->classes.capacity ? l->classes.names[label] : NULL;
}

int sfp__learner_name_end(const sfp__learner *l)
{
    return l->classes.capacity;
}

bool sfp__learner_known_tasks(const sfp__learner *l)
{
    return l->fp && l->opt.fp.tasks > 0;
}

int sfp__learner_label_end(const sfp__learner *l)
{
    bool known = l->opt.method ? l->opt.fp.classes > 0 : l->opt.fp.tasks > 0;
    return known ? sfp__learner_classes(l) : SFP__LEARNER_MAX_CLASSES;
}

static sfp_status set_name(sfp__learner *l, int label, const char *name, sfp_error *err)
{
    OWNED char *copy = name ? sfp__strdup(name) : NULL;
    TRY(sfp__check_memory(copy || !name, err));
    TRY(sfp__learner_reserve_classes(l, label + 1, err));
    sfp__free(l->classes.names[label]);
    l->classes.names[label] = TAKE(copy);
    l->classes.names_version++;
    return SFP_OK;
}

sfp_status sfp__learner_name_class(sfp__learner *l, int label, const char *name, sfp_error *err)
{
    if (label < 0 || label >= sfp__learner_label_end(l))
        return sfp__fail(err, SFP_EINVAL, "class label is %d, expected 0 to %d", label, sfp__learner_label_end(l) - 1);
    pthread_mutex_lock(&l->head_lock);
    sfp_status status = set_name(l, label, name, err);
    pthread_mutex_unlock(&l->head_lock);
    return status ? status : sfp__learner_publish(l, err);
}

sfp_status sfp__learner_set_classes(sfp__learner *l, int n, const int32_t *labels, sfp_error *err)
{
    int classes = sfp__learner_classes(l);
    for (int i = 0; i < n; i++)
        if (labels[i] < 0 || labels[i] >= classes)
            return sfp__fail(err, SFP_EINVAL, "class label of the task is %d, expected 0 to %d", labels[i], classes - 1);
    memset(l->classes.allowed, 0, (size_t)l->classes.capacity);
    for (int i = 0; i < n; i++)
        l->classes.allowed[labels[i]] = 1;
    return SFP_OK;
}

int64_t sfp__learner_class_samples(const sfp__learner *l, int32_t label)
{
    return l->head ? sfp__head_label_samples(l->head, label) : 0;
}

int sfp__learner_task(const sfp__learner *l)
{
    return l->fp ? l->fp->task : 0;
}

sfp_status sfp__learner_next_task(sfp__learner *l, sfp_error *err)
{
    if (l->fp)
        TRY(sfp__fp_next_task(l->fp, err));
    if (l->buffer)
        sfp__buffer_next_task(l->buffer);
    return SFP_OK;
}
