#include "learner/predictor.h"

#include "base/mem.h"
#include "compute/pixels.h"
#include "learner/learner_internal.h"
#include "learner/state/state.h"

#include <math.h>
#include <string.h>

struct sfp__predictor {
    /* Source of predictions: a learner or a saved state. */
    sfp__learner *learner;       /* NULL: a saved state */
    sfp__inference_state *state; /* owned by the predictor; NULL: a learner */
    sfp__head *head;             /* closed-form head of a method; else NULL */
    const sfp__learner_options *opt;
    bool on_demand;                /* not counted in snapshots.predictors: publishes snapshots itself */
    const sfp__snapshot *snapshot; /* snapshot of the current run or of the last refresh; NULL: none */
    sfp__snapshot *held;           /* the same snapshot, if it belongs to the learner and must be released */
    sfp__snapshot method_snapshot; /* classes and names of a closed-form head; the head belongs to the learner */
    /* Workspace; a pass has at most `max_batch` images. */
    sfp__thread_pool *threads;
    int max_batch, D, S, pool, rows; /* components; rows of the prefix keys of a layer */
    int taps, tap_dim;               /* K; number of values of a sample's taps */
    size_t pixels;
    sfp__vit_plan *plan;
    sfp__vit_memo *memo;              /* feature cache; NULL: none */
    void *block;                      /* memory of the following arrays */
    float *x;                         /* (max_batch, 3, S, S) */
    const float **xs;                 /* (max_batch) */
    const uint8_t **rgb;              /* (max_batch) in the order of the pass */
    int *order;                       /* (max_batch) order of the pass: images with unknown queries first */
    float *query, *feature;           /* (max_batch, D) */
    float *tap;                       /* (max_batch, tap_dim); with one tap the same array as `query` */
    float *alpha, *norm, *square;     /* (max_batch, pool) twice, (max_batch, D) */
    float *prefix[SFP_FP_MAX_LAYERS]; /* (max_batch, 2*rows*D) */
    /* Workspace that grows with the classes or the number of images. */
    size_t logits_capacity, logp_capacity, unscaled_capacity, unknown_capacity;
    float *logits;                      /* (max_batch, classes) */
    double *work;                       /* (D) */
    bool wants_unscaled, wants_unknown; /* whether a run computes: */
    float *unscaled, *unknown;          /* (n) by image */
    float *logp;                        /* (rows, classes) result of sfp__predictor_predict and sfp__predictor_answer */
    size_t all_query_capacity, all_known_capacity;
    float *all_query; /* (n, tap_dim) result of compute_queries */
    bool *all_known;  /* (n) */
};

static sfp_status publish(sfp__learner *l, sfp_error *err)
{
    TRY(sfp__fp_prepare(l->fp, err));
    const sfp__snapshot_source from = {.t = l->counts.timestamps,
                                       .view = &l->fp->view,
                                       .linear_w = &l->fp->linear_w,
                                       .linear_b = &l->fp->linear_b,
                                       .seen = l->classes.seen,
                                       .names = l->classes.names,
                                       .name_count = l->classes.capacity,
                                       .names_version = l->classes.names_version};
    return sfp__snapshots_publish(&l->snapshots, &from, err);
}

sfp_status sfp__learner_publish(sfp__learner *l, sfp_error *err)
{
    if (l->opt.method) /* a closed-form head is not copied */
        return SFP_OK;
    pthread_mutex_lock(&l->snapshots.lock);
    bool has_predictors = l->snapshots.predictors > 0;
    pthread_mutex_unlock(&l->snapshots.lock);
    l->snapshots.stale = true;
    return has_predictors ? publish(l, err) : SFP_OK;
}

/* Allocates the workspace and the plan for `max_batch` images. p->opt, p->head, D and S must be set. */
static sfp_status init_workspace(sfp__predictor *p, sfp__vit *vit, const sfp__fp_options *o, int max_batch, sfp_error *err)
{
    if (max_batch < 1 || max_batch > 100000)
        return sfp__fail(err, SFP_EINVAL, "predictor: batch size is %d, expected 1 to 100000", max_batch);
    bool prompted = !p->head;
    p->max_batch = max_batch;
    p->pool = o->pool;
    p->rows = prompted ? sfp__fp_prefix_rows(o) : 0;
    p->pixels = 3 * (size_t)p->S * (size_t)p->S;
    size_t n = (size_t)max_batch, D = (size_t)p->D, prompted_rows = prompted ? n : 0, pool = prompted_rows * (size_t)o->pool;
    p->taps = sfp__learner_taps(p->opt, &vit->config);
    p->tap_dim = sfp__learner_tap_dim(p->opt, &vit->config);
    sfp__want list[11 + SFP_FP_MAX_LAYERS] = {{&p->x, n * p->pixels, sizeof *p->x},
                                              {&p->xs, n, sizeof *p->xs},
                                              {&p->rgb, n, sizeof *p->rgb},
                                              {&p->order, n, sizeof *p->order},
                                              {&p->query, n * D, sizeof *p->query},
                                              {&p->feature, prompted_rows * D, sizeof *p->feature},
                                              {&p->alpha, pool, sizeof *p->alpha},
                                              {&p->norm, pool, sizeof *p->norm},
                                              {&p->square, prompted_rows * D, sizeof *p->square},
                                              {&p->tap, p->tap_dim > p->D ? n * (size_t)p->tap_dim : 0, sizeof *p->tap},
                                              {&p->work, D, sizeof *p->work}};
    size_t count = 11;
    for (int i = 0; prompted && i < o->last_layer - o->first_layer + 1; i++)
        list[count++] = (sfp__want){&p->prefix[i], n * 2 * (size_t)p->rows * D, sizeof *p->prefix[i]};
    TRY(sfp__block(&p->block, count, list, err));
    if (p->tap_dim == p->D)
        p->tap = p->query;
    const sfp__vit_plan_options plan = {.mode = SFP_VIT_FORWARD, .prefix_rows = p->rows, .queries = prompted && !o->query_one};
    TRY(sfp__vit_plan_create(vit, p->threads, &plan, &p->plan, err));
    return sfp__vit_plan_prepare(p->plan, max_batch, err);
}

int sfp__predictor_batch(const sfp__predictor *p)
{
    int batch = p->opt->batch;
    return batch < SFP_PREDICT_BATCH_MIN ? SFP_PREDICT_BATCH_MIN : batch > SFP_PREDICT_BATCH_MAX ? SFP_PREDICT_BATCH_MAX : batch;
}

/* Returns the number of images per pass. With a closed-form head it is at most its batch size. */
static int pass_size(const sfp__predictor *p, int max_batch)
{
    int default_size = sfp__predictor_batch(p);
    return max_batch ? max_batch : p->head && p->opt->batch < default_size ? p->opt->batch : default_size;
}

static sfp_status alloc_predictor(sfp__vit *vit, sfp__thread_pool *threads, sfp__predictor **out, sfp_error *err)
{
    sfp__predictor *p = NULL;
    TRY(sfp__alloc(&p, 1, sizeof *p, err));
    const sfp__vit_config *c = &vit->config;
    p->threads = threads;
    p->D = c->dim;
    p->S = c->img_size;
    *out = p;
    return SFP_OK;
}

sfp_status sfp__predictor_create(sfp__learner *l, sfp__thread_pool *threads, int max_batch, sfp__predictor **out, sfp_error *err)
{
    OWNED_PTR(sfp__predictor_free) sfp__predictor *p = NULL;
    TRY(alloc_predictor(l->vit, threads, &p, err));
    p->opt = &l->opt;
    p->head = l->head;
    TRY(init_workspace(p, l->vit, &l->opt.fp, pass_size(p, max_batch), err));
    p->on_demand = l->opt.method;
    p->learner = l;
    if (!p->on_demand) {
        pthread_mutex_lock(&l->snapshots.lock);
        bool first = l->snapshots.predictors++ == 0;
        pthread_mutex_unlock(&l->snapshots.lock);
        if (first)
            TRY(publish(l, err));
    }
    *out = TAKE(p);
    return SFP_OK;
}

sfp_status sfp__predictor_open(sfp__vit *vit, sfp__thread_pool *threads, const char *path, int max_batch, sfp__predictor **out,
                               sfp_error *err)
{
    OWNED_PTR(sfp__predictor_free) sfp__predictor *p = NULL;
    TRY(alloc_predictor(vit, threads, &p, err));
    TRY(sfp__inference_state_load(vit, threads, path, &p->state, err));
    p->opt = &p->state->opt;
    p->head = p->state->head;
    TRY(init_workspace(p, vit, &p->opt->fp, pass_size(p, max_batch), err));
    *out = TAKE(p);
    return SFP_OK;
}

void sfp__predictor_free(sfp__predictor *p)
{
    if (!p)
        return;
    if (p->held)
        sfp__snapshots_release(&p->learner->snapshots, p->held);
    if (p->learner && !p->on_demand) {
        pthread_mutex_lock(&p->learner->snapshots.lock);
        p->learner->snapshots.predictors--;
        pthread_mutex_unlock(&p->learner->snapshots.lock);
    }
    sfp__vit_plan_free(p->plan);
    sfp__free(p->block);
    sfp__free(p->logits);
    sfp__free(p->logp);
    sfp__free(p->unscaled);
    sfp__free(p->unknown);
    sfp__free(p->all_query);
    sfp__free(p->all_known);
    sfp__free(p->method_snapshot.seen);
    sfp__free(p->method_snapshot.names);
    sfp__inference_state_free(p->state);
    sfp__free(p);
}

void sfp__predictor_on_demand(sfp__predictor *p)
{
    if (!p->learner || p->on_demand)
        return;
    p->on_demand = true;
    pthread_mutex_lock(&p->learner->snapshots.lock);
    p->learner->snapshots.predictors--;
    pthread_mutex_unlock(&p->learner->snapshots.lock);
}

void sfp__predictor_set_memo(sfp__predictor *p, sfp__vit_memo *memo)
{
    p->memo = memo;
}

int sfp__predictor_classes(const sfp__predictor *p)
{
    return p->state ? p->state->snapshot.classes : sfp__learner_classes(p->learner);
}

const char *sfp__predictor_class_name(const sfp__predictor *p, int label)
{
    if (!p->state)
        return sfp__learner_class_name(p->learner, label);
    return label >= 0 && label < p->state->names.count ? p->state->names.name[label] : NULL;
}

bool sfp__predictor_seen(const sfp__predictor *p, int label)
{
    if (!p->state)
        return sfp__learner_seen(p->learner, label);
    return label >= 0 && label < p->state->snapshot.classes && p->state->snapshot.seen[label];
}

int sfp__predictor_query_size(const sfp__predictor *p)
{
    return p->tap_dim;
}

const sfp__learner_options *sfp__predictor_options(const sfp__predictor *p)
{
    return p->opt;
}

/* ---------------------------------------------------------------------- passes */

static void compose_one(sfp__predictor *p, int layer, int first, int n, const float *query)
{
    size_t at = (size_t)first, pool = (size_t)p->pool, D = (size_t)p->D;
    sfp__fp_compose(&p->snapshot->view, layer, n, query, p->pool, p->alpha + at * pool, p->norm + at * pool, p->square + at * D,
                    p->prefix[layer] + at * 2 * (size_t)p->rows * D);
}

static void compose(void *ctx, int first, int n, const float *query)
{
    sfp__predictor *p = ctx;
    for (int l = 0; l < p->snapshot->view.layers; l++)
        compose_one(p, l, first, n, query);
}

static void compose_layer(void *ctx, int layer, int first, int n, const float *token)
{
    sfp__predictor *p = ctx;
    compose_one(p, layer - p->snapshot->view.layer[0], first, n, token);
}

static void normalise_piece(void *ctx, int i, int worker)
{
    const sfp__predictor *p = ctx;
    (void)worker;
    sfp__pixels_normalise(p->rgb[i], p->S, p->opt->mean, p->opt->std, p->x + (size_t)i * p->pixels);
}

/* The classes that may be predicted; NULL: all. */
static const uint8_t *candidates(const sfp__predictor *p)
{
    return p->opt->answer_all && !p->head ? NULL : p->snapshot->seen;
}

/* Returns the probability of class `best` without the fitted scale of a closed-form head; NAN: there is no such scale. */
static float unscaled_probability(const sfp__predictor *p, const float *logp, int best)
{
    double sum = 0, scale = p->head ? sfp__head_scale(p->head, true) : NAN;
    for (int c = 0; c < p->snapshot->classes && best >= 0; c++)
        sum += exp(((double)logp[c] - (double)logp[best]) / scale);
    return best >= 0 ? (float)(1 / sum) : NAN;
}

/* Writes the log-probabilities over these classes for row i of the pass, which is image `to` of the run. Returns the best
 * class. */
static int32_t predict_row(sfp__predictor *p, int i, int to, float *out)
{
    const sfp__snapshot *s = p->snapshot;
    int C = s->classes;
    const float *z = p->logits + (size_t)i * (size_t)C, *tap = p->tap + (size_t)i * (size_t)p->tap_dim;
    if (!p->head)
        sfp__log_softmax(C, candidates(p), z, out);
    else if (C > 0 && out != z) /* the scores of a head are log-probabilities */
        memcpy(out, z, (size_t)C * sizeof *out);
    int32_t best = sfp__best_class(C, candidates(p), out);
    if (p->wants_unscaled)
        p->unscaled[to] = unscaled_probability(p, out, best);
    if (p->wants_unknown)
        p->unknown[to] = p->head ? sfp__head_unknown(p->head, tap, p->work) : NAN;
    return best;
}

/* Arranges the images in the order of the pass, images with unknown queries first. Returns the number of images with unknown
 * queries. */
static int order_images(sfp__predictor *p, int n, const uint8_t *const *rgb, const float *query, const bool *has_query)
{
    int unknown = 0, at = 0;
    size_t D = (size_t)p->D, taps = (size_t)p->tap_dim;
    for (int known = 0; known < 2; known++) {
        for (int i = 0; i < n; i++)
            if ((has_query && has_query[i]) == (known == 1))
                p->order[at++] = i;
        unknown = known == 0 ? at : unknown;
    }
    for (int i = 0; i < n; i++) {
        p->rgb[i] = rgb[p->order[i]];
        p->xs[i] = p->x + (size_t)i * p->pixels;
        if (i < unknown)
            continue;
        const float *row = query + (size_t)p->order[i] * taps;
        memcpy(p->tap + (size_t)i * taps, row, taps * sizeof *row);
        memmove(p->query + (size_t)i * D, row + taps - D, D * sizeof *row); /* the last tap is the query */
    }
    return unknown;
}

/* Runs the prompted pass and computes the logits of the linear head. */
static sfp_status run_prompted(sfp__predictor *p, int n, int unknown, sfp_error *err)
{
    const sfp__snapshot *s = p->snapshot;
    int D = p->D, C = s->classes;
    sfp__thread_pool_run(p->threads, n, normalise_piece, p);
    sfp__vit_prompt prompts[SFP_VIT_MAX_DEPTH] = {0};
    sfp__vit_pass pass = {.b = n,
                          .xs = p->xs,
                          .feature = p->feature,
                          .prompts = prompts,
                          .prefix_stride = 2 * (size_t)p->rows * (size_t)D,
                          .compose_ctx = p,
                          .memo = p->memo};
    if (p->opt->fp.query_one) {
        pass.compose_layer = compose_layer;
    } else {
        pass.query = p->query;
        pass.queries = unknown;
        pass.compose = compose;
    }
    for (int l = 0; l < s->view.layers; l++) {
        const float *keys = p->prefix[l];
        prompts[s->view.layer[l]] = (sfp__vit_prompt){.rows = p->rows, .k = keys, .v = keys + (size_t)p->rows * (size_t)D};
    }
    TRY(sfp__vit_run(p->plan, &pass, err));
    sfp__logits(n, C, D, p->feature, s->linear_w, s->linear_b, p->logits);
    return SFP_OK;
}

/* Computes the queries and taps of the first `unknown` images. */
static sfp_status run_queries(sfp__predictor *p, int unknown, sfp_error *err)
{
    if (unknown == 0)
        return SFP_OK;
    sfp__thread_pool_run(p->threads, unknown, normalise_piece, p);
    const sfp__vit_pass pass = {.b = unknown,
                                .xs = p->xs,
                                .feature = p->query,
                                .tap = p->tap_dim > p->D ? p->tap : NULL,
                                .taps = p->taps,
                                .tap_mean = p->opt->tap_mean,
                                .memo = p->memo};
    return sfp__vit_run(p->plan, &pass, err);
}

/* Runs a closed-form head: computes missing queries, then its log-probabilities as logits, from all samples. */
static sfp_status run_head(sfp__predictor *p, int n, int unknown, sfp_error *err)
{
    TRY(run_queries(p, unknown, err));
    if (p->snapshot->classes == 0)
        return SFP_OK;
    return sfp__head_scores(p->head, n, p->tap, true, p->snapshot->classes, p->logits, err);
}

sfp_status sfp__check_scores(int n, int width, const float *x, bool logs, sfp_error *err)
{
    for (size_t i = 0; i < (size_t)n * (size_t)width; i++)
        if (!isfinite(x[i]) && !(logs && x[i] < 0))
            return sfp__fail(err, SFP_EINVAL,
                             "a score of an image is not a finite number; check the weights of the backbone and of the state");
    return SFP_OK;
}

/* Predicts at most max_batch images: those of the run from `first` on. */
static sfp_status run_pass(sfp__predictor *p, int first, int n, const uint8_t *const *rgb, float *query, bool *has_query,
                           int32_t *label, float *logp, int ld, sfp_error *err)
{
    bool has_queries = p->head || !p->opt->fp.query_one;
    size_t taps = (size_t)p->tap_dim, C = (size_t)p->snapshot->classes;
    int unknown = order_images(p, n, rgb, query, has_query);
    TRY(p->head ? run_head(p, n, unknown, err) : run_prompted(p, n, unknown, err));
    TRY(sfp__check_scores(n, (int)C, p->logits, p->head != NULL, err));
    if (has_queries) /* heads are computed from them, and take a score that is not a number for that of an unseen class */
        TRY(sfp__check_scores(n, p->tap_dim, p->tap, false, err));
    for (int i = 0; i < n; i++) {
        int to = p->order[i];
        label[to] =
            predict_row(p, i, first + to, logp ? logp + (size_t)to * (size_t)ld : p->logits + (size_t)i * C /* in place */);
        if (query && has_query && !has_query[to] && has_queries) {
            memcpy(query + (size_t)to * taps, p->tap + (size_t)i * taps, taps * sizeof *query);
            has_query[to] = true;
        }
    }
    return SFP_OK;
}

/* ------------------------------------------------------------------- snapshots */

/* Copies the classes and names of a closed-form head. The head must be locked. */
static sfp_status copy_head_facts(sfp__predictor *p, sfp_error *err)
{
    const sfp__learner *l = p->learner;
    sfp__snapshot *to = &p->method_snapshot;
    int classes = l->classes.learned;
    p->head = l->head; /* a resume replaces the head */
    TRY(sfp__check_memory(sfp__grow(&to->seen, 1, 0, (size_t)classes, &to->seen_capacity), err));
    TRY(sfp__snapshot_copy_names(to, l->classes.capacity, l->classes.names, l->classes.names_version, err));
    if (classes > 0)
        memcpy(to->seen, l->classes.seen, (size_t)classes);
    to->classes = classes;
    to->t = l->counts.timestamps;
    return SFP_OK;
}

static void release_snapshot(sfp__predictor *p)
{
    if (p->held)
        sfp__snapshots_release(&p->learner->snapshots, TAKE(p->held));
    p->snapshot = NULL;
}

sfp_status sfp__predictor_refresh(sfp__predictor *p, sfp_error *err)
{
    sfp__learner *l = p->learner;
    sfp__snapshot *newest = p->state ? &p->state->snapshot : &p->method_snapshot;
    if (l && p->head) {
        pthread_mutex_lock(&l->head_lock);
        sfp_status status = copy_head_facts(p, err);
        pthread_mutex_unlock(&l->head_lock);
        TRY(status);
    } else if (l) {
        if (p->on_demand && l->snapshots.stale)
            TRY(publish(l, err));
        if (!(newest = sfp__snapshots_hold(&l->snapshots)))
            return sfp__fail(err, SFP_ENOTFOUND, "predictor: the learner has no snapshot yet");
        release_snapshot(p);
        p->held = newest;
    }
    p->snapshot = newest;
    return SFP_OK;
}

const sfp__snapshot *sfp__predictor_snapshot(const sfp__predictor *p)
{
    return p->snapshot;
}

/* ---------------------------------------------------------------------- a run */

static sfp_status run_passes(sfp__predictor *p, int n, const uint8_t *const *rgb, float *query, bool *has_query, int32_t *label,
                             float *logp, int ld, sfp_error *err)
{
    for (int i = 0; i < n; i += p->max_batch) {
        int part = n - i < p->max_batch ? n - i : p->max_batch;
        size_t at = (size_t)i * (size_t)p->tap_dim;
        TRY(run_pass(p, i, part, rgb + i, query ? query + at : NULL, has_query ? has_query + i : NULL, label + i,
                     logp ? logp + (size_t)i * (size_t)ld : NULL, ld, err));
    }
    return SFP_OK;
}

/* Reserves memory for the classes of the snapshot and for n images. */
static sfp_status reserve(sfp__predictor *p, int n, sfp_error *err)
{
    size_t classes = p->snapshot->classes > 0 ? (size_t)p->snapshot->classes : 1; /* rows have an address also without classes */
    size_t count = (size_t)n, logits = (size_t)p->max_batch * classes;
    return sfp__check_memory(
        sfp__grow(&p->logits, sizeof *p->logits, 0, logits, &p->logits_capacity) &&
            (!p->wants_unscaled || sfp__grow(&p->unscaled, sizeof *p->unscaled, 0, count, &p->unscaled_capacity)) &&
            (!p->wants_unknown || sfp__grow(&p->unknown, sizeof *p->unknown, 0, count, &p->unknown_capacity)),
        err);
}

static sfp_status run_once(sfp__predictor *p, int n, const uint8_t *const *rgb, float *query, bool *has_query, int32_t *label,
                           float *logp, int ld, sfp__prediction *answer, sfp_error *err)
{
    TRY(sfp__predictor_refresh(p, err));
    if (answer)
        *answer = (sfp__prediction){.t = p->snapshot->t, .classes = p->snapshot->classes};
    TRY(reserve(p, n, err));
    if (logp && ld < p->snapshot->classes)
        return sfp__fail(err, SFP_ELIMIT, "predictor: row stride is %d, expected at least %d: the number of classes", ld,
                         p->snapshot->classes);
    return run_passes(p, n, rgb, query, has_query, label, logp, ld, err);
}

sfp_status sfp__predictor_run_known(sfp__predictor *p, int n, const uint8_t *const *rgb, float *query, bool *has_query,
                                    int32_t *label, float *logp, int ld, sfp__prediction *answer, sfp_error *err)
{
    sfp_status status = run_once(p, n, rgb, query, has_query, label, logp, ld, answer, err);
    release_snapshot(p);
    return status;
}

static sfp_status reserve_scores(sfp__predictor *p, int rows, sfp_error *err)
{
    size_t classes = (size_t)p->snapshot->classes, need = (size_t)rows * (classes ? classes : 1);
    return sfp__check_memory(sfp__grow(&p->logp, sizeof *p->logp, 0, need, &p->logp_capacity), err);
}

/* Computes the queries of n images. The learner may change the head at the same time. */
static sfp_status compute_queries(sfp__predictor *p, int n, const uint8_t *const *rgb, sfp_error *err)
{
    size_t taps = (size_t)p->tap_dim;
    TRY(sfp__check_memory(sfp__grow(&p->all_query, sizeof *p->all_query, 0, (size_t)n * taps, &p->all_query_capacity) &&
                              sfp__grow(&p->all_known, sizeof *p->all_known, 0, (size_t)n, &p->all_known_capacity),
                          err));
    for (int i = 0; i < n; i += p->max_batch) {
        int part = n - i < p->max_batch ? n - i : p->max_batch;
        (void)order_images(p, part, rgb + i, NULL, NULL);
        TRY(run_queries(p, part, err));
        memcpy(p->all_query + (size_t)i * taps, p->tap, (size_t)part * taps * sizeof *p->tap);
    }
    for (int i = 0; i < n; i++) /* there may be no image and no array */
        p->all_known[i] = true;
    return SFP_OK;
}

static sfp_status run_locked(sfp__predictor *p, int n, int rows, const uint8_t *const *rgb, int32_t *label, sfp_error *err)
{
    TRY(copy_head_facts(p, err));
    p->snapshot = &p->method_snapshot;
    TRY(reserve(p, n, err));
    TRY(reserve_scores(p, rows, err));
    return run_passes(p, n, rgb, p->all_query, p->all_known, label, p->logp, p->snapshot->classes, err);
}

sfp_status sfp__predictor_answer(sfp__predictor *p, int n, int rows, const uint8_t *const *rgb, int32_t *label, float **logp,
                                 sfp_error *err)
{
    p->wants_unknown = true;
    if (p->learner && p->head) { /* all passes are done before the head is locked; the head then scores all images at once */
        TRY(compute_queries(p, n, rgb, err));
        pthread_mutex_lock(&p->learner->head_lock);
        sfp_status status = run_locked(p, n, rows, rgb, label, err);
        pthread_mutex_unlock(&p->learner->head_lock);
        TRY(status);
    } else {
        TRY(sfp__predictor_refresh(p, err));
        TRY(reserve(p, n, err));
        TRY(reserve_scores(p, rows, err));
        TRY(run_passes(p, n, rgb, NULL, NULL, label, p->logp, p->snapshot->classes, err));
    }
    *logp = p->logp;
    return SFP_OK;
}

sfp_status sfp__predictor_predict(sfp__predictor *p, int n, const uint8_t *const *rgb, float *query, bool *has_query,
                                  int32_t *label, float *probability, sfp_error *err)
{
    int classes = sfp__predictor_classes(p);
    size_t need = (size_t)n * (size_t)(classes ? classes : 1);
    TRY(sfp__check_memory(!probability || sfp__grow(&p->logp, sizeof *p->logp, 0, need, &p->logp_capacity), err));
    p->wants_unscaled = probability != NULL;
    TRY(sfp__predictor_run_known(p, n, rgb, query, has_query, label, probability ? p->logp : NULL, classes, NULL, err));
    p->wants_unscaled = false;
    for (int i = 0; probability && i < n; i++)
        probability[i] = label[i] < 0 ? NAN : expf(p->logp[(size_t)i * (size_t)classes + (size_t)label[i]]);
    return SFP_OK;
}

const float *sfp__predictor_unscaled(const sfp__predictor *p)
{
    return p->unscaled;
}

void sfp__predictor_want_unknown(sfp__predictor *p, bool wants)
{
    p->wants_unknown = wants;
}

const float *sfp__predictor_unknown(const sfp__predictor *p)
{
    return p->unknown;
}

bool sfp__predictor_needs_queries_only(const sfp__predictor *p)
{
    return p->head;
}

sfp_status sfp__predictor_run(sfp__predictor *p, int n, const uint8_t *const *rgb, int32_t *label, float *logp, int ld,
                              sfp__prediction *answer, sfp_error *err)
{
    return sfp__predictor_run_known(p, n, rgb, NULL, NULL, label, logp, ld, answer, err);
}
