#include "learner/predictor.h"

#include "base/mem.h"
#include "compute/pixels.h"
#include "learner/learner_internal.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------- creating */

/* Allocates the arrays of a pass of `n` images. */
static sfp_status reserve_pass(sfp_predictor *p, int n, sfp_error *err)
{
    const sfp__fp_options *o = &p->opt.fp;
    size_t b = (size_t)n, D = (size_t)p->D, prompted = p->rows ? b : 0, pool = prompted * (size_t)o->pool;
    sfp__predictor_pass w = {.capacity = n};
    if (n <= p->pass.capacity)
        return SFP_OK;
    sfp__want list[13 + SFP__FP_MAX_LAYERS] = {{&w.x, b * p->pixels, sizeof *w.x},
                                               {&w.xs, b, sizeof *w.xs},
                                               {&w.rgb, b, sizeof *w.rgb},
                                               {&w.place, b, sizeof *w.place},
                                               {&w.label, b, sizeof *w.label},
                                               {&w.unknown, b, sizeof *w.unknown},
                                               {&w.query, b * D, sizeof *w.query},
                                               {&w.feature, prompted * D, sizeof *w.feature},
                                               {&w.alpha, pool, sizeof *w.alpha},
                                               {&w.norm, pool, sizeof *w.norm},
                                               {&w.square, prompted * D, sizeof *w.square},
                                               {&w.tap, p->tap_dim > p->D ? b * (size_t)p->tap_dim : 0, sizeof *w.tap},
                                               {&p->work, D, sizeof *p->work}};
    size_t count = 13;
    for (int i = 0; prompted && i < o->last_layer - o->first_layer + 1; i++)
        list[count++] = (sfp__want){&w.prefix[i], b * 2 * (size_t)p->rows * D, sizeof *w.prefix[i]};
    TRY(sfp__block(&w.block, count, list, err));
    if (p->tap_dim == p->D)
        w.tap = w.query;
    for (int i = 0; i < n; i++)
        w.xs[i] = w.x + (size_t)i * p->pixels;
    sfp__free(p->pass.block);
    p->pass = w;
    return SFP_OK;
}

static sfp_status alloc_predictor(sfp__vit *vit, sfp__thread_pool *threads, const sfp__learner_options *opt, bool prompted,
                                  sfp_predictor **out, sfp_error *err)
{
    sfp_predictor *p = NULL;
    const sfp__vit_config *c = &vit->config;
    TRY(sfp__alloc(&p, 1, sizeof *p, err));
    *out = p;
    p->vit = vit;
    p->threads = threads;
    p->opt = *opt;
    p->D = c->dim;
    p->S = c->img_size;
    p->pixels = 3 * (size_t)p->S * (size_t)p->S;
    p->rows = prompted ? sfp__fp_prefix_rows(&opt->fp) : 0;
    p->taps = sfp__learner_taps(opt, c);
    p->tap_dim = sfp__learner_tap_dim(opt, c);
    p->count = -1;
    const sfp__vit_plan_options plan = {
        .mode = SFP__VIT_FORWARD, .prefix_rows = p->rows, .queries = prompted, .merge_tokens = opt->merge_tokens};
    return sfp__vit_plan_create(vit, threads, &plan, &p->plan, err);
}

int sfp__predictor_batch(const sfp_predictor *p)
{
    int batch = p->opt.batch;
    return batch < SFP__PREDICT_BATCH_MIN   ? SFP__PREDICT_BATCH_MIN
           : batch > SFP__PREDICT_BATCH_MAX ? SFP__PREDICT_BATCH_MAX
                                            : batch;
}

sfp_status sfp__predictor_create(sfp__learner *l, sfp__thread_pool *threads, int max_batch, sfp_predictor **out, sfp_error *err)
{
    OWNED_PTR(sfp__predictor_free) sfp_predictor *p = NULL;
    TRY(alloc_predictor(l->vit, threads, &l->opt, !l->head, &p, err));
    int batch = sfp__predictor_batch(p);
    if (l->head &&
        l->opt.batch < batch) /* with a closed-form head, a pass has at most the maximum batch size of the learner (--batch) */
        batch = l->opt.batch;
    p->max_batch = max_batch ? max_batch : batch;
    if (p->max_batch < 1 || p->max_batch > 100000)
        return sfp__fail(err, SFP_EINVAL, "predictor: batch size is %d, expected 1 to 100000", p->max_batch);
    TRY(reserve_pass(p, p->max_batch, err));
    TRY(sfp__vit_plan_prepare(p->plan, p->max_batch, err));
    p->head = l->head;
    p->on_demand = l->opt.method;
    if (!p->on_demand)
        TRY(sfp__learner_add_predictor(l, err));
    p->learner = l; /* from here on sfp__predictor_free also updates the learner */
    *out = TAKE(p);
    return SFP_OK;
}

sfp_status sfp__predictor_open(sfp__vit *vit, sfp__thread_pool *threads, const char *path, int max_batch, sfp_predictor **out,
                               sfp_error *err)
{
    OWNED_PTR(sfp__learner_free) sfp__learner *l = NULL;
    TRY(sfp__learner_open(vit, threads, path, &l, err));
    TRY(sfp__predictor_create(l, threads, max_batch, out, err));
    (*out)->owns_learner = true;
    (void)TAKE(l);
    return SFP_OK;
}

sfp_status sfp__predictor_of_backbone(sfp__vit *vit, sfp__thread_pool *threads, const sfp__learner_options *opt, int max_batch,
                                      sfp_predictor **out, sfp_error *err)
{
    OWNED_PTR(sfp__predictor_free) sfp_predictor *p = NULL;
    const sfp__vit_config *c = &vit->config;
    size_t classes = (size_t)c->classes;
    TRY(alloc_predictor(vit, threads, opt, false, &p, err));
    p->max_batch = max_batch;
    sfp__snapshot *s = &p->own;
    TRY(sfp__check_memory(sfp__grow(&s->seen, 1, 0, classes ? classes : 1, &s->seen_capacity), err));
    TRY(sfp__snapshot_copy_names(s, c->class_names ? c->classes : 0, c->class_names, 1, err));
    memset(s->seen, 1, classes);
    s->classes = c->classes;
    s->linear_w = vit->weights.head_w;
    s->linear_b = vit->weights.head_b;
    p->snapshot = s;
    *out = TAKE(p);
    return SFP_OK;
}

sfp_status sfp__predictor_load_sums(sfp_predictor *p, const char *path, sfp_error *err)
{
    return sfp__learner_load_sums(p->learner, path, err);
}

static void release_snapshot(sfp_predictor *p)
{
    if (p->held)
        sfp__snapshots_release(&p->learner->snapshots, TAKE(p->held));
}

void sfp__predictor_free(sfp_predictor *p)
{
    if (!p)
        return;
    release_snapshot(p);
    if (p->learner && !p->on_demand)
        sfp__learner_remove_predictor(p->learner);
    if (p->owns_learner)
        sfp__learner_free(p->learner);
    sfp__vit_plan_free(p->plan);
    sfp__vit_memo_free(p->own_memo);
    if (p->owns_threads)
        sfp__thread_pool_free(p->threads);
    sfp__free(p->pass.block);
    sfp__free(p->logits);
    sfp__free(p->found.scores);
    sfp__free(p->images);
    sfp__free(p->query);
    sfp__free(p->input_block);
    sfp__free(p->own.seen);
    sfp__free(p->own.names);
    sfp__free(p);
}

sfp_status sfp__predictor_reserve_input(sfp_predictor *p, int n, sfp_error *err)
{
    OWNED void *block = NULL;
    uint8_t *input = NULL;
    const uint8_t **readable = NULL;
    sfp_error *error = NULL;
    if (p->input && n <= p->input_capacity)
        return SFP_OK;
    size_t capacity = (size_t)(n > 2 * p->input_capacity ? n : 2 * p->input_capacity);
    const sfp__want list[] = {
        {&input, capacity, p->pixels}, {&readable, capacity, sizeof *readable}, {&error, capacity, sizeof *error}};
    TRY(sfp__block(&block, SFP__LIST(list), err));
    sfp__free(p->input_block);
    p->input_block = TAKE(block);
    p->input = input;
    p->readable = readable;
    p->error = error;
    p->input_capacity = (int)capacity;
    return SFP_OK;
}

void sfp__predictor_on_demand(sfp_predictor *p)
{
    if (p->on_demand)
        return;
    p->on_demand = true;
    sfp__learner_remove_predictor(p->learner);
}

void sfp__predictor_set_memo(sfp_predictor *p, sfp__vit_memo *memo)
{
    p->memo = memo;
}

int sfp__predictor_classes(const sfp_predictor *p)
{
    return sfp__learner_classes(p->learner);
}

const char *sfp__predictor_class_name(const sfp_predictor *p, int label)
{
    return sfp__learner_class_name(p->learner, label);
}

bool sfp__predictor_seen(const sfp_predictor *p, int label)
{
    return sfp__learner_seen(p->learner, label);
}

bool sfp__predictor_needs_queries_only(const sfp_predictor *p)
{
    return p->rows == 0;
}

/* ------------------------------------------------------------------- snapshots */

/* Copies the classes and names of a closed-form head. The head must be locked. */
static sfp_status copy_head_facts(sfp_predictor *p, sfp_error *err)
{
    const sfp__learner *l = p->learner;
    sfp__snapshot *to = &p->own;
    int classes = l->classes.learned;
    p->head = l->head; /* a resume replaces the head */
    TRY(sfp__check_memory(sfp__grow(&to->seen, 1, 0, (size_t)classes, &to->seen_capacity), err));
    TRY(sfp__snapshot_copy_names(to, l->classes.capacity, l->classes.names, l->classes.names_version, err));
    if (classes > 0)
        memcpy(to->seen, l->classes.seen, (size_t)classes);
    to->classes = classes;
    to->t = l->counts.timestamps;
    p->snapshot = to;
    return SFP_OK;
}

sfp_status sfp__predictor_refresh(sfp_predictor *p, sfp_error *err)
{
    sfp__learner *l = p->learner;
    if (!l)
        return SFP_OK;
    if (p->head) {
        pthread_mutex_lock(&l->head_lock);
        sfp_status status = copy_head_facts(p, err);
        pthread_mutex_unlock(&l->head_lock);
        return status;
    }
    if (p->on_demand)
        TRY(sfp__learner_publish_if_stale(l, err));
    sfp__snapshot *newest = sfp__snapshots_hold(&l->snapshots);
    if (!newest)
        return sfp__fail(err, SFP_ENOTFOUND, "predictor: the learner has no snapshot yet");
    release_snapshot(p);
    p->snapshot = p->held = newest;
    return SFP_OK;
}

/* --------------------------------------------------------------------- passes */

static void compose_one(sfp_predictor *p, int layer, int first, int n, const float *query)
{
    sfp__predictor_pass *w = &p->pass;
    int ld = p->opt.fp.pool;
    size_t at = (size_t)first, pool = (size_t)ld, D = (size_t)p->D;
    sfp__fp_compose(&p->snapshot->view, layer, n, query, ld, w->alpha + at * pool, w->norm + at * pool, w->square + at * D,
                    w->prefix[layer] + at * 2 * (size_t)p->rows * D);
}

static void compose(void *ctx, int first, int n, const float *query)
{
    sfp_predictor *p = ctx;
    for (int l = 0; l < p->snapshot->view.layers; l++)
        compose_one(p, l, first, n, query);
}

static void normalise_piece(void *ctx, int i, int worker)
{
    const sfp_predictor *p = ctx;
    (void)worker;
    sfp__pixels_normalise(p->pass.rgb[i], p->S, p->opt.mean, p->opt.std, p->pass.x + (size_t)i * p->pixels);
}

/* Copies the known taps of an image to row i of the pass. */
static void put_taps(sfp_predictor *p, int i, const float *taps)
{
    size_t D = (size_t)p->D, count = (size_t)p->tap_dim;
    memcpy(p->pass.tap + (size_t)i * count, taps, count * sizeof *taps);
    memmove(p->pass.query + (size_t)i * D, taps + count - D, D * sizeof *taps); /* the last tap is the query */
}

/* Runs the query pass over the images of the run that are at place (n) and whose queries are not known. Stores these. */
static sfp_status run_queries(sfp_predictor *p, int n, const int *place, const uint8_t *const *rgb,
                              const sfp__known_queries *known, sfp_error *err)
{
    sfp__predictor_pass *w = &p->pass;
    size_t taps = (size_t)p->tap_dim;
    int unknown = 0;
    for (int i = 0; i < n; i++)
        if (!known->known || !known->known[place[i]]) {
            w->rgb[unknown] = rgb[place[i]];
            w->place[unknown++] = place[i];
        }
    if (unknown == 0)
        return SFP_OK;
    sfp__thread_pool_run(p->threads, unknown, normalise_piece, p);
    const sfp__vit_pass pass = {.b = unknown,
                                .xs = w->xs,
                                .feature = w->query,
                                .tap = p->tap_dim > p->D ? w->tap : NULL,
                                .taps = p->taps,
                                .tap_mean = p->opt.tap_mean,
                                .memo = p->memo};
    TRY(sfp__vit_run(p->plan, &pass, err));
    for (int i = 0; i < unknown; i++) {
        memcpy(known->query + (size_t)w->place[i] * taps, w->tap + (size_t)i * taps, taps * sizeof *w->tap);
        if (known->known)
            known->known[w->place[i]] = true;
    }
    return SFP_OK;
}

/* Computes the scores of images whose queries are known: of a closed-form head, from all its samples, or of the backbone's own. */
static sfp_status score_queries(sfp_predictor *p, int n, const int *place, const sfp__known_queries *known, sfp_error *err)
{
    const sfp__snapshot *s = p->snapshot;
    for (int i = 0; i < n; i++) {
        p->pass.place[i] = place[i];
        p->pass.label[i] = known->left_out ? known->left_out[place[i]] : -1;
        put_taps(p, i, known->query + (size_t)place[i] * (size_t)p->tap_dim);
    }
    if (known->left_out)
        return sfp__head_judge(p->head, n, p->pass.tap, p->pass.label, s->classes, p->logits, p->pass.unknown, err);
    if (!p->head)
        sfp__logits(n, s->classes, p->D, p->pass.query, s->linear_w, s->linear_b, p->logits);
    else if (s->classes > 0)
        TRY(sfp__head_scores(p->head, n, p->pass.tap, true, s->classes, p->logits, err));
    return SFP_OK;
}

/* Runs the prompted pass and computes the logits of the linear head. Queries are computed in the same pass and stored. */
static sfp_status run_prompted(sfp_predictor *p, int n, const int *place, const uint8_t *const *rgb,
                               const sfp__known_queries *known, sfp_error *err)
{
    const sfp__snapshot *s = p->snapshot;
    sfp__predictor_pass *w = &p->pass;
    int D = p->D, unknown = 0, at = 0;
    for (int want = 0; want < 2; want++) {
        for (int i = 0; i < n; i++)
            if ((known && known->known[place[i]]) == (want == 1))
                w->place[at++] = place[i];
        unknown = want == 0 ? at : unknown;
    }
    for (int i = 0; i < n; i++) {
        w->rgb[i] = rgb[w->place[i]];
        if (i >= unknown)
            put_taps(p, i, known->query + (size_t)w->place[i] * (size_t)p->tap_dim);
    }
    sfp__thread_pool_run(p->threads, n, normalise_piece, p);
    sfp__vit_prompt prompts[SFP__VIT_MAX_DEPTH] = {0};
    sfp__vit_pass pass = {.b = n,
                          .xs = w->xs,
                          .feature = w->feature,
                          .prompts = prompts,
                          .prefix_stride = 2 * (size_t)p->rows * (size_t)D,
                          .query = w->query,
                          .queries = unknown,
                          .compose = compose,
                          .compose_ctx = p,
                          .memo = p->memo};
    for (int l = 0; l < s->view.layers; l++) {
        const float *keys = w->prefix[l];
        prompts[s->view.layer[l]] = (sfp__vit_prompt){.rows = p->rows, .k = keys, .v = keys + (size_t)p->rows * (size_t)D};
    }
    TRY(sfp__vit_run(p->plan, &pass, err));
    sfp__logits(n, s->classes, D, w->feature, s->linear_w, s->linear_b, p->logits);
    for (int i = 0; known && i < unknown; i++) {
        memcpy(known->query + (size_t)w->place[i] * (size_t)D, w->query + (size_t)i * (size_t)D, (size_t)D * sizeof(float));
        known->known[w->place[i]] = true;
    }
    return SFP_OK;
}

/* -------------------------------------------------------------------- results */

sfp_status sfp__check_scores(int n, int width, const float *x, bool logs, sfp_error *err)
{
    for (size_t i = 0; i < (size_t)n * (size_t)width; i++)
        if (!isfinite(x[i]) && !(logs && x[i] < 0))
            return sfp__fail(err, SFP_EINVAL,
                             "a score of an image is not a finite number; check the weights of the backbone and of the state");
    return SFP_OK;
}

/* Returns the probability of class `best` if the scores (classes) are divided by `scale`; NAN: there is no class or no scale. */
static float probability(int classes, const float *score, int best, double scale)
{
    double sum = 0;
    for (int c = 0; c < classes && best >= 0; c++)
        sum += exp(((double)score[c] - (double)score[best]) / scale);
    return best >= 0 ? (float)(1 / sum) : NAN;
}

/* Writes the results of row i of the pass. */
static void put_result(sfp_predictor *p, int i, const sfp__known_queries *known, unsigned wants, sfp__predictions *out)
{
    int to = p->pass.place[i], C = p->snapshot->classes;
    float *z = p->logits + (size_t)i * (size_t)C, *score = wants & SFP__WANT_SCORES ? out->scores + (size_t)to * (size_t)C : z;
    if (p->rows)
        sfp__log_softmax(C, p->snapshot->seen, z, score);
    else if (C > 0 && score != z) /* the scores of a head are log-probabilities */
        memcpy(score, z, (size_t)C * sizeof *score);
    int32_t best = sfp__best_class(C, p->snapshot->seen, score);
    if (known && known->left_out && best >= 0 && score[best] == -INFINITY) /* no other class has samples */
        best = -1;
    out->label[to] = best;
    if (p->learner)
        out->probability[to] = best < 0 ? NAN : expf(score[best]);
    else
        out->probability[to] = probability(C, score, best, 1);
    if (wants & SFP__WANT_UNSCALED)
        out->unscaled[to] = probability(C, score, best, p->head ? sfp__head_scale(p->head, true) : NAN);
    if (known && known->left_out)
        out->unknown[to] = p->pass.unknown[i];
    else if ((wants & SFP__WANT_UNKNOWN) && p->head)
        out->unknown[to] = sfp__head_unknown(p->head, p->pass.tap + (size_t)i * (size_t)p->tap_dim, p->work);
}

/* Predicts `count` images at `place` in passes. The head of a method must be locked, and the queries of its images known. */
static sfp_status run_passes(sfp_predictor *p, int count, const int *place, const uint8_t *const *rgb,
                             const sfp__known_queries *known, unsigned wants, sfp__predictions *out, sfp_error *err)
{
    size_t classes = (size_t)p->snapshot->classes, C = classes ? classes : 1; /* rows have an address also without classes */
    TRY(sfp__check_memory(sfp__grow(&p->logits, sizeof *p->logits, 0, (size_t)p->pass.capacity * C, &p->logits_capacity) &&
                              (!(wants & SFP__WANT_SCORES) ||
                               sfp__grow(&out->scores, sizeof *out->scores, 0, (size_t)p->count * C, &p->scores_capacity)),
                          err));
    out->t = p->snapshot->t;
    out->classes = p->snapshot->classes;
    for (int i = 0; i < count; i += p->max_batch) {
        int n = count - i < p->max_batch ? count - i : p->max_batch;
        TRY(p->rows ? run_prompted(p, n, place + i, rgb, known, err) : score_queries(p, n, place + i, known, err));
        TRY(sfp__check_scores(n, (int)classes, p->logits, p->head != NULL, err));
        /* a head takes a score that is not a number for that of an unseen class */
        TRY(sfp__check_scores(n, p->tap_dim, p->pass.tap, false, err));
        for (int k = 0; k < n; k++)
            put_result(p, k, known, wants, out);
    }
    return SFP_OK;
}

/* -------------------------------------------------------------------------- a run */

/* Reserves memory for the results of n images, and lists those that are not skipped. Returns their number in *count. */
static sfp_status begin_run(sfp_predictor *p, int n, const uint8_t *const *rgb, const sfp__known_queries *known, int *count,
                            sfp_error *err)
{
    size_t images = (size_t)n, taps = (size_t)p->tap_dim;
    sfp__predictions *f = &p->found;
    p->count = -1;
    if (!p->images || images > p->image_capacity) {
        int *place = NULL;
        sfp__predictions more = {.scores = f->scores};
        void *block = NULL;
        size_t capacity = images > 2 * p->image_capacity ? images : 2 * p->image_capacity;
        const sfp__want list[] = {{&place, capacity, sizeof *place},
                                  {&more.label, capacity, sizeof *more.label},
                                  {&more.probability, capacity, sizeof *more.probability},
                                  {&more.unscaled, capacity, sizeof *more.unscaled},
                                  {&more.unknown, capacity, sizeof *more.unknown}};
        TRY(sfp__block(&block, SFP__LIST(list), err));
        sfp__free(p->images);
        p->images = block;
        p->image_capacity = capacity;
        p->place = place;
        *f = more;
    }
    TRY(reserve_pass(p, n < p->max_batch ? n : p->max_batch, err));
    if (!p->rows && !known)
        TRY(sfp__check_memory(sfp__grow(&p->query, sizeof *p->query, 0, images * taps, &p->query_capacity), err));
    *count = 0;
    for (int i = 0; i < n; i++) {
        f->label[i] = -1;
        f->probability[i] = f->unscaled[i] = f->unknown[i] = NAN;
        if (rgb[i] || (known && known->known[i]))
            p->place[(*count)++] = i;
    }
    p->count = n;
    return SFP_OK;
}

/* A prediction from queries: all passes are done before the head is locked, and the head then scores all images at once. */
static sfp_status run_on_queries(sfp_predictor *p, int count, const uint8_t *const *rgb, const sfp__known_queries *known,
                                 unsigned wants, sfp_error *err)
{
    const sfp__known_queries queries = known ? *known : (sfp__known_queries){.query = p->query};
    for (int i = 0; i < count; i += p->max_batch)
        TRY(run_queries(p, count - i < p->max_batch ? count - i : p->max_batch, p->place + i, rgb, &queries, err));
    if (!p->learner)
        return run_passes(p, count, p->place, rgb, &queries, wants, &p->found, err);
    pthread_mutex_lock(&p->learner->head_lock);
    sfp_status status = copy_head_facts(p, err);
    if (!status)
        status = run_passes(p, count, p->place, rgb, &queries, wants, &p->found, err);
    pthread_mutex_unlock(&p->learner->head_lock);
    return status;
}

static sfp_status run_on_snapshot(sfp_predictor *p, int count, const uint8_t *const *rgb, const sfp__known_queries *known,
                                  unsigned wants, sfp_error *err)
{
    TRY(sfp__predictor_refresh(p, err));
    sfp_status status = run_passes(p, count, p->place, rgb, known, wants, &p->found, err);
    if (p->on_demand) { /* nobody reads the classes of such a predictor between runs */
        release_snapshot(p);
        p->snapshot = NULL;
    }
    return status;
}

sfp_status sfp__predictor_run(sfp_predictor *p, int n, const uint8_t *const *rgb, const sfp__known_queries *known, unsigned wants,
                              sfp__predictions *out, sfp_error *err)
{
    int count = 0;
    TRY(begin_run(p, n, rgb, known, &count, err));
    sfp_status status = (p->rows ? run_on_snapshot : run_on_queries)(p, count, rgb, known, wants, err);
    if (status) {
        p->count = -1;
        return status;
    }
    *out = p->found;
    out->unscaled = wants & SFP__WANT_UNSCALED ? out->unscaled : NULL;
    out->unknown = wants & SFP__WANT_UNKNOWN ? out->unknown : NULL;
    out->scores = wants & SFP__WANT_SCORES ? out->scores : NULL;
    return SFP_OK;
}
