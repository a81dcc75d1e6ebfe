/* Predictors (streamfp.h, part 6): images of any kind to the input size, around the predictor of src/learner or the backbone's own
 * head. An unreadable image fails alone: readable ones are packed together for the pass, and their rows are moved apart afterwards. */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "compute/pixels.h"
#include "learner/state/state.h"
#include "model/vit.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { BACKBONE_BATCH = 128, IMAGES_MAX = 1 << 20 };

struct sfp_predictor {
    sfp__thread_pool *pool; /* its own */
    sfp__predictor *core;   /* NULL: the backbone's own head */
    sfp__vit *vit;
    sfp__vit_plan *plan; /* of the backbone's own head */
    float mean[3], std[3];
    sfp__resize resize;
    int side, dim;
    int taps, feature_dim; /* of the backbone alone: class tokens of a feature; its values */
    bool tap_mean;
    size_t bytes;  /* of an image at the input size */
    int max_batch; /* of the backbone's own head */
    /* of the last run */
    int count;
    bool has_run;
    /* arrays that grow with it */
    size_t rgb_capacity, image_capacity, error_capacity, index_capacity, label_capacity, score_capacity, feature_capacity,
        x_capacity, unknown_capacity, query_capacity;
    uint8_t *rgb;          /* (count, S, S, 3) */
    const uint8_t **image; /* (readable) */
    sfp_error *errors;     /* (count) */
    int *index;            /* (readable) place in the run */
    int32_t *label;        /* (readable) */
    float *own_scores;     /* (count, classes) of the backbone */
    float *scores;         /* (count, classes): own_scores, or those of the core */
    float *unknown;        /* (count) of the core */
    float *features;       /* (count, feature_dim) of the backbone */
    float *query;          /* (max_batch, D) of the backbone, with several taps */
    float *x;              /* (max_batch, 3, S, S) of the backbone */
};

DEFINE_OWNED_PTR(sfp_predictor, sfp_predictor_free)

/* -------------------------------------------------------------------------------------------------------------- opening */

static sfp_status begin(const sfp_engine *e, const sfp_predictor_options *given, sfp_predictor_options *o, sfp_predictor **out,
                        sfp_error *err)
{
    OWNED_PTR(sfp_predictor_free) sfp_predictor *p = NULL;
    TRY(sfp__api_options(given, o, sizeof *o, "sfp_predictor_options", err));
    if (o->threads < 0 || o->threads > 1024)
        return sfp__fail_key(err, "threads", SFP_EINVAL, "threads is %d, expected 0 to 1024", o->threads);
    if (o->max_batch < 0 || o->max_batch > 100000)
        return sfp__fail(err, SFP_EINVAL, "max_batch is %d, expected 0 to 100000", o->max_batch);
    TRY(sfp__alloc(&p, 1, sizeof *p, err));
    p->vit = e->vit;
    p->side = sfp_engine_image_size(e);
    p->dim = sfp_engine_dim(e);
    p->bytes = 3 * (size_t)p->side * (size_t)p->side;
    TRY(sfp__thread_pool_create(o->threads, &p->pool, err));
    *out = TAKE(p);
    return SFP_OK;
}

sfp_status sfp_predictor_create(sfp_learner *l, const sfp_predictor_options *options, sfp_predictor **out, sfp_error *err)
{
    IN_LIBRARY;
    OWNED_PTR(sfp_predictor_free) sfp_predictor *p = NULL;
    sfp_predictor_options o;
    if (!l || !out)
        return sfp__fail(err, SFP_EINVAL, "learner and out must not be NULL");
    TRY(sfp__thread_pool_check(sfp__api_engine(l)->pool, "the engine", err));
    TRY(begin(sfp__api_engine(l), options, &o, &p, err));
    TRY(sfp__predictor_create(sfp__api_core(l), p->pool, o.max_batch, &p->core, err));
    p->resize = sfp__predictor_options(p->core)->resize;
    TRY(sfp__predictor_refresh(p->core, err));
    *out = TAKE(p);
    return SFP_OK;
}

sfp_status sfp_predictor_open(sfp_engine *e, const char *state, const sfp_predictor_options *options, sfp_predictor **out,
                              sfp_error *err)
{
    IN_LIBRARY;
    OWNED_PTR(sfp_predictor_free) sfp_predictor *p = NULL;
    sfp_predictor_options o;
    char path[PATH_MAX];
    if (!e || !state || !out)
        return sfp__fail(err, SFP_EINVAL, "engine, state and out must not be NULL");
    TRY(sfp__state_path(state, path, sizeof path, err));
    TRY(begin(e, options, &o, &p, err));
    TRY(sfp__predictor_open(e->vit, p->pool, path, o.max_batch, &p->core, err));
    p->resize = sfp__predictor_options(p->core)->resize;
    TRY(sfp__predictor_refresh(p->core, err));
    *out = TAKE(p);
    return SFP_OK;
}

sfp_status sfp_predictor_open_backbone(sfp_engine *e, const sfp_settings *settings, const sfp_predictor_options *options,
                                       sfp_predictor **out, sfp_error *err)
{
    IN_LIBRARY;
    const sfp__vit_plan_options plan = {.mode = SFP_VIT_FORWARD};
    OWNED_PTR(sfp_predictor_free) sfp_predictor *p = NULL;
    sfp_predictor_options o;
    sfp__learner_options how;
    if (!e || !out)
        return sfp__fail(err, SFP_EINVAL, "engine and out must not be NULL");
    TRY(begin(e, options, &o, &p, err));
    TRY(sfp__api_learner_options(e, settings, &how, NULL, err));
    p->resize = how.resize;
    memcpy(p->mean, how.mean, sizeof p->mean);
    memcpy(p->std, how.std, sizeof p->std);
    if (!settings)
        how.taps = 1, how.tap_mean = false;
    TRY(sfp__learner_check_taps(&how, &e->vit->config, err));
    p->taps = sfp__learner_taps(&how, &e->vit->config);
    p->tap_mean = how.tap_mean;
    p->feature_dim = sfp__learner_tap_dim(&how, &e->vit->config);
    p->max_batch = o.max_batch ? o.max_batch : BACKBONE_BATCH;
    TRY(sfp__vit_plan_create(e->vit, p->pool, &plan, &p->plan, err));
    *out = TAKE(p);
    return SFP_OK;
}

void sfp_predictor_free(sfp_predictor *p)
{
    if (!p || (p->pool && sfp__thread_pool_is_foreign(p->pool)))
        return;
    sfp__predictor_free(p->core);
    sfp__vit_plan_free(p->plan);
    sfp__thread_pool_free(p->pool);
    sfp__free(p->rgb);
    sfp__free(p->image);
    sfp__free(p->errors);
    sfp__free(p->index);
    sfp__free(p->label);
    sfp__free(p->own_scores);
    sfp__free(p->unknown);
    sfp__free(p->features);
    sfp__free(p->query);
    sfp__free(p->x);
    sfp__free(p);
}

/* -------------------------------------------------------------------------------------------------------------- a run */

static sfp_status reserve(sfp_predictor *p, size_t n, sfp_error *err)
{
    size_t classes = (size_t)p->vit->config.classes, pass = n < (size_t)p->max_batch ? n : (size_t)p->max_batch;
    bool there = sfp__grow(&p->rgb, p->bytes, 0, n, &p->rgb_capacity) &&
                 sfp__grow(&p->image, sizeof *p->image, 0, n, &p->image_capacity) &&
                 sfp__grow(&p->errors, sizeof *p->errors, 0, n, &p->error_capacity) &&
                 sfp__grow(&p->index, sizeof *p->index, 0, n, &p->index_capacity) &&
                 sfp__grow(&p->label, sizeof *p->label, 0, n, &p->label_capacity);
    if (there && p->core)
        there = sfp__grow(&p->unknown, sizeof *p->unknown, 0, n, &p->unknown_capacity);
    if (there && !p->core)
        there = sfp__grow(&p->own_scores, sizeof *p->own_scores, 0, n * (classes ? classes : 1), &p->score_capacity) &&
                sfp__grow(&p->features, sizeof *p->features, 0, n * (size_t)p->feature_dim, &p->feature_capacity) &&
                sfp__grow(&p->query, sizeof *p->query, 0, pass * (size_t)p->dim, &p->query_capacity) &&
                sfp__grow(&p->x, sizeof *p->x, 0, pass * p->bytes, &p->x_capacity);
    return sfp__check_memory(there, err);
}

typedef struct piece {
    sfp_predictor *p;
    int first;
} piece;

static void normalise_one(void *ctx, int i, int worker)
{
    const piece *q = ctx;
    (void)worker;
    sfp__pixels_normalise(q->p->image[q->first + i], q->p->side, q->p->mean, q->p->std, q->p->x + (size_t)i * q->p->bytes);
}

static int32_t best_of(int classes, const float *z)
{
    int32_t best = -1;
    for (int32_t k = 0; k < classes; k++)
        if (isfinite(z[k]) && (best < 0 || z[k] > z[best]))
            best = k;
    return best;
}

/* Features of `n` readable images, as a learner with these settings computes them, and the logits of the backbone's own head. */
static sfp_status run_backbone(sfp_predictor *p, int n, sfp_error *err)
{
    size_t D = (size_t)p->feature_dim, C = (size_t)p->vit->config.classes;
    bool tapped = p->feature_dim > p->dim;
    p->scores = p->own_scores;
    for (int i = 0; i < n; i += p->max_batch) {
        piece q = {p, i};
        int part = n - i < p->max_batch ? n - i : p->max_batch;
        sfp__thread_pool_run(p->pool, part, normalise_one, &q);
        float *feature = p->features + (size_t)i * D, *query = tapped ? p->query : feature;
        const sfp__vit_pass pass = {
            .b = part, .x = p->x, .feature = query, .tap = tapped ? feature : NULL, .taps = p->taps, .tap_mean = p->tap_mean};
        TRY(sfp__vit_run(p->plan, &pass, err));
        if (C > 0)
            TRY(sfp__vit_head(p->vit, part, query, p->scores + (size_t)i * C, err));
    }
    TRY(sfp__check_scores(n, p->feature_dim, p->features, false, err));
    TRY(sfp__check_scores(n, (int)C, p->scores, false, err));
    for (int i = 0; i < n; i++)
        p->label[i] = best_of((int)C, p->scores + (size_t)i * C);
    return SFP_OK;
}

/* Probability of the best class; the scores of a row are log-probabilities, or logits. */
static float probability_of(const sfp_predictor *p, const float *z, int32_t label)
{
    double sum = 0;
    if (label < 0)
        return NAN;
    if (p->core)
        return expf(z[label]);
    for (int k = 0; k < p->vit->config.classes; k++)
        sum += exp((double)z[k] - (double)z[label]);
    return (float)(1 / sum);
}

static void write_predictions(sfp_predictor *p, int count, int readable, sfp_prediction *out)
{
    size_t C = (size_t)sfp_predictor_classes(p), D = (size_t)p->feature_dim;
    for (int i = 0; i < count; i++) {
        out[i] = (sfp_prediction){.label = -1, .status = p->errors[i].status, .probability = NAN};
        if (p->core)
            p->unknown[i] = NAN;
    }
    for (int r = readable - 1; r >= 0; r--) { /* from the end: a row never lies behind its place */
        size_t to = (size_t)p->index[r], from = (size_t)r;
        out[to].label = p->label[r];
        if (C > 0)
            memmove(p->scores + to * C, p->scores + from * C, C * sizeof *p->scores);
        if (p->core)
            p->unknown[to] = sfp__predictor_unknown(p->core)[r];
        else
            memmove(p->features + to * D, p->features + from * D, D * sizeof *p->features);
        out[to].probability = probability_of(p, p->scores + to * C, out[to].label);
    }
}

sfp_status sfp_predictor_run(sfp_predictor *p, int count, const sfp_image *images, sfp_prediction *predictions, sfp_error *err)
{
    IN_LIBRARY;
    TRY(sfp__api_check(p, "predictor", err));
    TRY(sfp__thread_pool_check(p->pool, "the predictor", err));
    int n = 0;
    if (count < 0 || count > IMAGES_MAX)
        return sfp__fail(err, SFP_EINVAL, "count is %d, expected 0 to %d", count, IMAGES_MAX);
    if (count > 0 && (!images || !predictions))
        return sfp__fail(err, SFP_EINVAL, "images and predictions must not be NULL");
    p->has_run = false;
    TRY(reserve(p, (size_t)count, err));
    sfp__api_fit_all(p->pool, count, images, sizeof *images, &p->vit->config, p->resize, p->rgb, p->errors);
    for (int i = 0; i < count; i++)
        if (!p->errors[i].status) {
            p->index[n] = i;
            p->image[n++] = p->rgb + (size_t)i * p->bytes;
        }
    TRY(p->core ? sfp__predictor_answer(p->core, n, count, p->image, p->label, &p->scores, err) : run_backbone(p, n, err));
    write_predictions(p, count, n, predictions);
    p->count = count;
    p->has_run = true;
    return SFP_OK;
}

/* ---------------------------------------------------------------------------------------------- what belongs to a run */

sfp_status sfp_predictor_refresh(sfp_predictor *p, sfp_error *err)
{
    IN_LIBRARY;
    TRY(sfp__api_check(p, "predictor", err));
    TRY(sfp__thread_pool_check(p->pool, "the predictor", err));
    if (!p->core)
        return SFP_OK;
    p->has_run = false; /* its scores may be of other classes */
    return sfp__predictor_refresh(p->core, err);
}

const char *sfp_predictor_image_error(const sfp_predictor *p, int i)
{
    return p->has_run && i >= 0 && i < p->count ? p->errors[i].message : "";
}

int sfp_predictor_classes(const sfp_predictor *p)
{
    return p->core ? sfp__predictor_snapshot(p->core)->classes : p->vit->config.classes;
}

const char *sfp_predictor_class_name(const sfp_predictor *p, int32_t label)
{
    if (label < 0 || label >= sfp_predictor_classes(p))
        return NULL;
    if (p->core)
        return sfp__snapshot_class_name(sfp__predictor_snapshot(p->core), label);
    return p->vit->config.class_names ? p->vit->config.class_names[label] : NULL;
}

int sfp_predictor_class_seen(const sfp_predictor *p, int32_t label)
{
    if (label < 0 || label >= sfp_predictor_classes(p))
        return 0;
    return p->core ? sfp__predictor_snapshot(p->core)->seen[label] != 0 : 1;
}

uint64_t sfp_predictor_timestamps(const sfp_predictor *p)
{
    return p->core ? sfp__predictor_snapshot(p->core)->t : 0;
}

const float *sfp_predictor_scores(const sfp_predictor *p)
{
    return p->has_run && sfp_predictor_classes(p) > 0 ? p->scores : NULL;
}

const float *sfp_predictor_features(const sfp_predictor *p)
{
    return p->has_run && !p->core ? p->features : NULL;
}

int sfp_predictor_feature_dim(const sfp_predictor *p)
{
    return p->feature_dim;
}

const float *sfp_predictor_unknown(const sfp_predictor *p)
{
    return p->has_run && p->core ? p->unknown : NULL;
}
