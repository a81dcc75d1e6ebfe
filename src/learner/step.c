/* The processing of one timestamp. This file does not know how a selector or a buffer method decides: it computes the inputs that
 * they declare and passes them on. Its times include those that values of the feature cache would have taken. */
#include "learner/learner.h"

#include "base/digest.h"
#include "compute/pixels.h"
#include "compute/vec.h"
#include "learner/heads/sums.h"
#include "learner/learner_internal.h"

#include <math.h>
#include <string.h>

typedef struct normalise_job {
    const sfp__learner *l;
    const sfp__sample *samples;
} normalise_job;

static void normalise_piece(void *ctx, int i, int worker)
{
    const normalise_job *j = ctx;
    (void)worker;
    sfp__pixels_normalise(j->samples[i].rgb, j->l->S, j->l->opt.mean, j->l->opt.std, j->l->batch.x + (size_t)i * j->l->pixels);
}

sfp_status sfp__learner_check_label(const sfp__learner *l, uint64_t id, int32_t label, sfp_error *err)
{
    int end = sfp__learner_label_end(l);
    if (label < 0 || label >= end)
        return sfp__fail(err, SFP_EINVAL, "sample %llu has label %d, expected 0 to %d", (unsigned long long)id, label, end - 1);
    return SFP_OK;
}

static sfp_status load_batch(sfp__learner *l, int b, const sfp__sample *samples, bool *new_class, sfp_error *err)
{
    int classes = sfp__learner_classes(l), highest = -1;
    if (b < 1 || b > l->opt.batch)
        return sfp__fail(err, SFP_EINVAL, "batch size is %d, expected 1 to %d", b, l->opt.batch);
    for (int i = 0; i < b; i++) {
        TRY(sfp__learner_check_label(l, samples[i].id, samples[i].label, err));
        highest = samples[i].label > highest ? samples[i].label : highest;
    }
    if (highest >= classes)
        TRY(sfp__learner_add_classes(l, highest + 1, err));
    bool needs_pixels = sfp__learner_buffer_needs(l) & SFP_NEED_PIXELS, heads = l->heads[0] || l->heads[1];
    *new_class = false;
    for (int i = 0; i < b; i++) {
        const sfp__sample *s = &samples[i];
        l->batch.label[i] = s->label;
        l->batch.id[i] = s->id;
        bool compressed = l->opt.keep_compressed && !needs_pixels && s->encoded && s->encoded_size < l->rgb_bytes;
        l->batch.image[i] = compressed ? s->encoded : s->rgb;
        l->batch.image_size[i] = compressed ? s->encoded_size : l->rgb_bytes;
        l->batch.has_query[i] = l->batch.has_tap[i] = l->batch.has_embeds = false;
        if (heads)
            l->batch.key[i] = sfp__digest_bytes((sfp__digest){{0}}, s->rgb, l->rgb_bytes).word[0];
        l->step.xs[i] = l->batch.x + (size_t)i * l->pixels;
        *new_class = *new_class || !l->classes.seen[s->label];
    }
    normalise_job j = {l, samples};
    sfp__thread_pool_run(l->threads, b, normalise_piece, &j);
    return SFP_OK;
}

static void compute_scores(const sfp__learner *l, int b, float *out)
{
    sfp__fp_mean_unit(l->fp, l->batch.fingerprint);
    for (int i = 0; i < b; i++)
        out[i] = sfp__dot(l->D, l->batch.mean_embed + (size_t)i * (size_t)l->D, l->batch.fingerprint);
}

/* --------------------------------------------------------------------- drift */

static const double DRIFT_SLACK = 0.5, DRIFT_LIMIT = 20;
static const double DRIFT_WARM_UP = 30; /* number of values before the detector can fire */

bool sfp__drift_next(sfp__drift_detector *d, double value)
{
    if (!isfinite(value))
        return false;
    double deviation = d->count > 1 ? sqrt(d->m2 / (d->count - 1)) : 0;
    if (d->count >= DRIFT_WARM_UP && deviation > 0) {
        double z = (value - d->mean) / deviation;
        d->up += z - DRIFT_SLACK;
        d->down += z + DRIFT_SLACK;
        d->up_min = fmin(d->up_min, d->up);
        d->down_max = fmax(d->down_max, d->down);
        if (d->up - d->up_min > DRIFT_LIMIT || d->down_max - d->down > DRIFT_LIMIT) {
            *d = (sfp__drift_detector){0};
            return true;
        }
    }
    d->count++;
    double delta = value - d->mean;
    d->mean += delta / d->count;
    d->m2 += delta * (value - d->mean);
    return false;
}

/* ------------------------------------------------------------------- selection */

/* Computes the inputs of the selector other than scores. This also computes queries, so a step does not compute them again. */
static sfp_status compute_method_inputs(sfp__learner *l, int b, sfp_error *err)
{
    if (!l->method_inputs.needs)
        return SFP_OK;
    TRY(sfp__method_inputs_compute(&l->method_inputs, b, l->step.xs, sfp__learner_masked(l) ? l->classes.allowed : NULL,
                                   l->batch.query, err));
    if (l->method_inputs.query_plan || !l->opt.fp.query_one)
        memset(l->batch.has_query, true, (size_t)b * sizeof *l->batch.has_query);
    return SFP_OK;
}

/* The first components belong to the first classes, so they are not activated again for them. A loaded state may already have
 * classes. */
static bool has_seen_a_class(const sfp__learner *l)
{
    return memchr(l->classes.seen, 1, (size_t)sfp__learner_classes(l)) != NULL;
}

/* Returns whether held-out samples test the members of head mix. */
static bool tests_on_held(const sfp__learner *l)
{
    return l->opt.head == SFP_HEAD_MIX && !l->opt.mix_by_arrivals;
}

/* Removes held-out samples from the coreset: they test the heads, so they are not trained on. Returns its size. */
static int exclude_held(sfp__learner *l, int c)
{
    int kept = 0;
    for (int i = 0; i < c; i++) {
        if (sfp__sums_fold_of(l->batch.key[l->batch.coreset[i]]) == SFP_HELD)
            continue;
        l->batch.select_weight[kept] = l->batch.select_weight[i];
        l->batch.coreset[kept++] = l->batch.coreset[i];
    }
    return kept;
}

/* Computes the mean patch embeddings of the batch, unless its query pass did. */
static sfp_status embed_batch(sfp__learner *l, int b, sfp_error *err)
{
    if (!l->batch.has_embeds)
        TRY(sfp__trainer_embed(l->trainer, b, l->step.xs, l->batch.mean_embed, err));
    l->batch.has_embeds = true;
    return SFP_OK;
}

/* Scores the batch, detects drift and chooses the coreset. */
static sfp_status select_coreset(sfp__learner *l, int b, bool new_class, sfp__timestamp_details *r, sfp_error *err)
{
    TRY(embed_batch(l, b, err));
    compute_scores(l, b, l->batch.score);
    bool grow = l->opt.drift == SFP_DRIFT_NEW_CLASS && new_class && has_seen_a_class(l);
    if (l->opt.drift == SFP_DRIFT_PH) {
        double mean = 0;
        for (int i = 0; i < b; i++)
            mean += (double)l->batch.score[i] / b;
        grow = sfp__drift_next(&l->detector, mean);
    }
    if (!sfp__learner_known_tasks(l) && grow) {
        int open = l->fp->active_end;
        TRY(sfp__fp_activate_components(l->fp, err));
        r->grew = l->fp->active_end > open; /* if the pool is full, all components become trainable and none is activated */
        compute_scores(l, b, l->batch.score);
    }
    sfp__select_options coreset = l->opt.coreset;
    int max_coreset = l->max_step_samples - l->opt.replay, c = sfp__coreset_size(b, coreset.sigma);
    if (l->limits.coreset > 0 && l->limits.coreset < max_coreset)
        max_coreset = l->limits.coreset;
    if (c > max_coreset) /* the same window with fewer samples */
        coreset.sigma = (double)max_coreset / b;
    TRY(compute_method_inputs(l, b, err));
    const sfp__gradients gradients = {sfp__learner_gradient_length(l), sfp__learner_gradient, l};
    l->batch.selected = (sfp__select_batch){.b = b,
                                            .label = l->batch.label,
                                            .score = l->batch.score,
                                            .dim = l->D,
                                            .query = l->batch.query,
                                            .features = l->method_inputs.features,
                                            .classes = sfp__learner_classes(l),
                                            .logits = l->method_inputs.logits,
                                            .probs = l->method_inputs.probs,
                                            .pooled = l->method_inputs.pooled,
                                            .taps = l->method_inputs.taps};
    sfp__select_batch batch = l->batch.selected;
    batch.gradients = &gradients;
    const sfp__select_env env = {.rng = &l->select_rng,
                                 .arena = &l->select_arena,
                                 .threads = l->threads,
                                 .state = l->select_state,
                                 .ctx = l->selector->ctx};
    TRY(l->selector->pick(&batch, &coreset, &env, l->batch.coreset, l->batch.select_weight, &r->coreset_count, err));
    if (r->coreset_count > max_coreset) /* a selector may choose the whole batch regardless of sigma */
        r->coreset_count = max_coreset;
    if (tests_on_held(l))
        r->coreset_count = exclude_held(l, r->coreset_count);
    r->similarity = l->batch.score;
    r->coreset = l->batch.coreset;
    return SFP_OK;
}

/* Orders the samples of a step, those with unknown queries first. Returns the number of these. */
static int order_items(sfp__learner *l, int c, const int *slots, int r)
{
    int n = 0, unknown = 0;
    for (int want = 0; want < 2; want++) {
        for (int i = 0; i < c + r; i++) {
            sfp__item item = {.index = i < c ? l->batch.coreset[i] : slots[i - c], .replay = i >= c};
            if (sfp__learner_query_known(l, &item) == (want == 1))
                l->step.items[n++] = item;
        }
        unknown = want == 0 ? n : unknown;
    }
    return unknown;
}

static sfp_status fill_step(sfp__learner *l, int c, const int *slots, int r, sfp_error *err)
{
    float weight_sum = 0;
    for (int i = 0; i < c; i++)
        weight_sum += l->batch.select_weight[i];
    for (int i = 0; i < c + r; i++) {
        const sfp__item *item = &l->step.items[i];
        const int *indices = item->replay ? slots : l->batch.coreset;
        int k = 0;
        while (indices[k] != item->index)
            k++;
        TRY(sfp__learner_fill_item(l, i, l->step.rx + (size_t)(item->replay ? k : 0) * l->pixels, err));
        if (item->replay)
            l->step.weight[i] = 1.0f / (float)r;
        else
            l->step.weight[i] = l->opt.weighted && weight_sum > 0 ? l->batch.select_weight[k] / weight_sum : 1.0f / (float)c;
    }
    return SFP_OK;
}

/* ------------------------------------------------------------------ head mix */

/* Computes the queries and taps of those samples of the batch for which `known` is false. If these are all, the pass also gives
 * the mean patch embeddings; the feature cache has them on their own. */
static sfp_status compute_missing(sfp__learner *l, int b, const bool *known, sfp_error *err)
{
    size_t D = (size_t)l->D, taps = (size_t)l->tap_dim;
    int n = 0;
    for (int i = 0; i < b; i++)
        if (!known[i])
            l->step.xs[n++] = l->batch.x + (size_t)i * l->pixels;
    bool embeds = n == b && !l->opt.memo && !l->batch.has_embeds;
    if (n > 0)
        TRY(sfp__trainer_queries(l->trainer, n, l->step.xs, l->step.query, l->tap_dim > l->D ? l->step.tap : NULL,
                                 embeds ? l->batch.mean_embed : NULL, err));
    l->batch.has_embeds = l->batch.has_embeds || embeds;
    for (int i = 0, k = 0; i < b; i++) {
        if (known[i])
            continue;
        memcpy(l->batch.query + (size_t)i * D, l->step.query + (size_t)k * D, D * sizeof(float));
        if (l->tap_dim > l->D)
            memcpy(l->batch.tap + (size_t)i * taps, l->step.tap + (size_t)k * taps, taps * sizeof(float));
        l->batch.has_query[i] = l->batch.has_tap[i] = true;
        k++;
    }
    for (int i = 0; i < b; i++)
        l->step.xs[i] = l->batch.x + (size_t)i * l->pixels;
    return SFP_OK;
}

static void count_prediction(const sfp__learner *l, int classes, const float *compute_scores, int32_t true_label,
                             sfp__timestamp_details *r)
{
    const uint8_t *candidates = l->opt.answer_all && l->opt.head == SFP_HEAD_LINEAR && !l->opt.method ? NULL : l->classes.seen;
    r->prequential_total++;
    r->prequential_correct += sfp__best_class(classes, candidates, compute_scores) == true_label;
}

/* Test-then-train: counts the predictions of the linear head for the coreset, made before the step. */
static void count_linear_predictions(const sfp__learner *l, int n, const float *logits, sfp__timestamp_details *r)
{
    int classes = sfp__learner_classes(l);
    for (int i = 0; i < n; i++)
        if (!l->step.items[i].replay)
            count_prediction(l, classes, logits + (size_t)i * (size_t)classes, l->step.label[i], r);
}

/* Counts the predictions of head mix for n samples whose log-probabilities by the closed-form member are in step.member[1]. Those
 * by the linear head are in step.member[0], unless the timestamp does not train. */
static void count_mixed_predictions(const sfp__learner *l, int n, bool trained, sfp__timestamp_details *r)
{
    int classes = sfp__learner_classes(l);
    for (int i = 0; i < n; i++) {
        const float *row[SFP_HEAD_MEMBERS];
        for (int e = 0; e < SFP_HEAD_MEMBERS; e++)
            row[e] = l->step.member[e] + (size_t)i * (size_t)classes;
        if (trained)
            sfp__mix_combine(&l->mix, 1, classes, row, l->step.mixed);
        count_prediction(l, classes, trained ? l->step.mixed : row[1], l->step.label[i], r);
    }
}

/* Moves the labels of the coreset to the front of the arrays of a step with n samples, and writes their taps and the
 * log-probabilities of the linear head. Returns the size of the coreset. */
static int gather_coreset(sfp__learner *l, int n, const float *logits)
{
    size_t classes = (size_t)sfp__learner_classes(l), taps = (size_t)l->tap_dim;
    int c = 0;
    for (int i = 0; i < n; i++) {
        const sfp__item *item = &l->step.items[i];
        if (item->replay)
            continue;
        sfp__log_softmax((int)classes, l->classes.seen, logits + (size_t)i * classes, l->step.member[0] + (size_t)c * classes);
        memcpy(l->step.tap + (size_t)c * taps, l->batch.tap + (size_t)item->index * taps, taps * sizeof *l->step.tap);
        l->step.label[c++] = l->step.label[i];
    }
    return c;
}

/* Collects the samples of the batch whose taps are known at the front of the arrays of a step. Returns their number. */
static int gather_known(sfp__learner *l, int b)
{
    size_t taps = (size_t)l->tap_dim;
    int n = 0;
    for (int i = 0; i < b; i++) {
        if (!l->batch.has_tap[i])
            continue;
        memcpy(l->step.tap + (size_t)n * taps, l->batch.tap + (size_t)i * taps, taps * sizeof *l->step.tap);
        l->step.label[n++] = l->batch.label[i];
    }
    return n;
}

/* Returns whether the closed-form member learns from the whole batch. */
static bool feeds_batch(const sfp__learner *l)
{
    return l->opt.feed == SFP_FEED_BATCH || l->limits.no_training || (l->opt.feed == SFP_FEED_AUTO && !l->limits.no_slack);
}

/* Appends some validation images to the n samples of a step, with weight 0. Returns their number. */
static int add_validation(sfp__learner *l, int n)
{
    sfp__validation *v = &l->validation;
    size_t D = (size_t)l->D;
    int count = v->count < SFP_VALIDATION_STEP ? (int)v->count : SFP_VALIDATION_STEP;
    for (int i = 0; i < count; i++) {
        size_t from = (size_t)((v->next + i) % v->count), to = (size_t)n + (size_t)i;
        float *x = l->step.rx + (size_t)(l->opt.replay + i) * l->pixels;
        sfp__pixels_normalise(v->rgb + from * v->image_bytes, l->S, l->opt.mean, l->opt.std, x);
        l->step.xs[to] = x;
        l->step.label[to] = v->label[from];
        l->step.weight[to] = 0;
        l->step.masked[to] = false;
        l->step.replayed[to] = true;
        memcpy(l->step.query + to * D, v->tap + (from + 1) * v->tap_dim - D, D * sizeof *l->step.query); /* the last tap */
    }
    return count;
}

/* The mixture observes how well the members predict the validation images, which are samples [n, n + count) of the step. */
static sfp_status observe_validation(sfp__learner *l, int n, int count, const float *logits, sfp_error *err)
{
    sfp__validation *v = &l->validation;
    size_t classes = (size_t)sfp__learner_classes(l);
    for (int i = 0; i < count; i++) {
        const float *tap = v->tap + (size_t)((v->next + i) % v->count) * v->tap_dim;
        sfp__log_softmax((int)classes, l->classes.seen, logits + (size_t)(n + i) * classes, l->step.member[0]);
        TRY(sfp__head_scores(l->heads[1], 1, tap, false, (int)classes, l->step.member[1], err));
        sfp__mix_observe(&l->mix, 1, (int)classes, (const float *const *)l->step.member, l->step.label + n + i);
    }
    v->next = v->count > 0 ? (v->next + count) % v->count : 0;
    return SFP_OK;
}

/* Before the first step: the mixture observes how well the members predict the validation images, and the predictions of the
 * coreset are counted. `step` is the number of samples of the step, after which `tested` validation images follow. */
static sfp_status observe_members(sfp__learner *l, int step, int tested, const float *logits, sfp__timestamp_details *r,
                                  sfp_error *err)
{
    int classes = sfp__learner_classes(l);
    TRY(observe_validation(l, step, tested, logits, err));
    int c = gather_coreset(l, step, logits);
    TRY(sfp__head_scores(l->heads[1], c, l->step.tap, false, classes, l->step.member[1], err));
    count_mixed_predictions(l, c, true, r);
    if (l->opt.mix_by_arrivals)
        sfp__mix_observe(&l->mix, c, classes, (const float *const *)l->step.member, l->step.label);
    return SFP_OK;
}

/* The closed-form member learns from all known taps. */
static sfp_status update_closed_form(sfp__learner *l, int b, sfp_error *err)
{
    int n = gather_known(l, b);
    for (int i = 0, k = 0; i < b; i++)
        if (l->batch.has_tap[i])
            l->batch.key[k++] = l->batch.key[i];
    return sfp__head_update(l->heads[1], n, l->step.tap, l->step.label, l->batch.key, err);
}

/* ------------------------------------------------------------------- training */

float sfp__learner_cross_entropy(const sfp__learner *l, const float *z, int label)
{
    int classes = sfp__learner_classes(l);
    const uint8_t *allowed = sfp__learner_masked(l) ? l->classes.allowed : NULL;
    float max = -INFINITY;
    double sum = 0;
    for (int c = 0; c < classes; c++)
        max = !allowed || allowed[c] ? fmaxf(max, z[c]) : max;
    for (int c = 0; c < classes; c++)
        sum += !allowed || allowed[c] ? exp((double)z[c] - (double)max) : 0;
    return (float)(log(sum) + (double)max - (double)z[label]);
}

/* Passes the losses of the coreset before the step to a selector that learns. */
static void teach_selector(sfp__learner *l, int n, int c, const float *logits)
{
    if (!l->selector->learn)
        return;
    int classes = sfp__learner_classes(l);
    float *by_index = l->step.sample_loss, *by_choice = l->step.sample_loss + l->opt.batch;
    for (int i = 0; i < n; i++)
        if (!l->step.items[i].replay)
            by_index[l->step.items[i].index] =
                sfp__learner_cross_entropy(l, logits + (size_t)i * (size_t)classes, l->step.label[i]);
    for (int i = 0; i < c; i++)
        by_choice[i] = by_index[l->batch.coreset[i]];
    l->selector->learn(l->select_state, &l->batch.selected, c, l->batch.coreset, by_choice);
}

/* Returns whether the sample of a slot is held out. An image that is stored as a file has no key and may be
 * replayed. */
static bool slot_is_held(const sfp__learner *l, const sfp__slot *slot)
{
    return slot->image_size == l->rgb_bytes &&
           sfp__sums_fold_of(sfp__digest_bytes((sfp__digest){{0}}, slot->image, slot->image_size).word[0]) == SFP_HELD;
}

/* Chooses the slots that the next step replays. The time is part of that of the buffer. */
static sfp_status draw_replay(sfp__learner *l, int b, int want, int *slots, int *drawn, sfp__timestamp_details *r, sfp_error *err)
{
    *drawn = 0;
    if (!l->buffer)
        return SFP_OK;
    double start = sfp__vit_memo_now(l->opt.memo);
    const sfp__buffer_batch batch = {
        .b = b, .label = l->batch.label, .id = l->batch.id, .model = sfp__learner_model_ops(l), .threads = l->threads};
    TRY(sfp__buffer_retrieve(l->buffer, &batch, want, &l->replay_rng, slots, drawn, err));
    int kept = 0;
    for (int i = 0; i < *drawn; i++)
        if (!tests_on_held(l) || !slot_is_held(l, &l->buffer->slot[slots[i]]))
            slots[kept++] = slots[i];
    *drawn = kept;
    r->seconds.buffer += sfp__vit_memo_now(l->opt.memo) - start;
    return SFP_OK;
}

static sfp_status train(sfp__learner *l, int b, sfp__timestamp_details *r, sfp_error *err)
{
    int c = r->coreset_count, capacity = l->opt.replay ? l->opt.replay : 1;
    int want = l->limits.replay > 0 && l->limits.replay < l->opt.replay ? l->limits.replay : l->opt.replay;
    for (int k = 0; k < r->steps; k++) {
        int *slots = l->step.replay + k * capacity, drawn;
        TRY(draw_replay(l, b, want, slots, &drawn, r, err));
        int unknown = order_items(l, c, slots, drawn);
        TRY(fill_step(l, c, slots, drawn, err));
        int tested = k == 0 && tests_on_held(l) ? add_validation(l, c + drawn) : 0;
        sfp__train_batch batch = sfp__learner_batch(l, c + drawn + tested, unknown);
        batch.terms = drawn ? 2 : 1;
        sfp__train_result result = {0};
        TRY(sfp__trainer_step(l->trainer, &batch, &result, err));
        sfp__learner_keep_queries(l, l->opt.fp.query_one ? 0 : unknown);
        teach_selector(l, c + drawn, c, result.logits);
        l->step.loss[k] = result.loss;
        l->step.replay_count[k] = drawn;
        l->counts.trained += (uint64_t)c;
        l->counts.replayed += (uint64_t)drawn;
        r->seconds.attune += result.attune_seconds;
        r->seconds.query += result.query_seconds;
        r->seconds.forward += result.forward_seconds;
        r->seconds.backward += result.backward_seconds;
        r->seconds.update += result.update_seconds;
        if (k == 0 && l->opt.head == SFP_HEAD_LINEAR)
            count_linear_predictions(l, c + drawn, result.logits, r);
        if (k == 0 && l->opt.head == SFP_HEAD_MIX)
            TRY(observe_members(l, c + drawn, tested, result.logits, r, err));
    }
    return SFP_OK;
}

static sfp_status update_buffer(sfp__learner *l, int b, sfp__timestamp_details *r, sfp_error *err)
{
    if (!l->buffer)
        return SFP_OK;
    TRY(sfp__learner_buffer_needs(l) & SFP_NEED_QUERY ? compute_missing(l, b, l->batch.has_query, err) : SFP_OK);
    compute_scores(l, b, l->batch.score_after);
    const sfp__buffer_batch batch = {.b = b,
                                     .now = l->counts.timestamps,
                                     .label = l->batch.label,
                                     .id = l->batch.id,
                                     .image = l->batch.image,
                                     .image_size = l->batch.image_size,
                                     .mean_embed = l->batch.mean_embed,
                                     .query = l->batch.query,
                                     .has_query = l->batch.has_query,
                                     .score = l->batch.score_after,
                                     .fingerprint = l->batch.fingerprint,
                                     .model = sfp__learner_model_ops(l),
                                     .threads = l->threads};
    return sfp__buffer_update(l->buffer, &batch, &l->buffer_rng, &r->buffer, err);
}

/* The second half of a timestamp of a closed-form head, called with the head locked: solve its equations if that is due, predict,
 * which is not part of the processing time, and learn. */
static sfp_status test_and_update_head(sfp__learner *l, int b, sfp__timestamp_details *r, sfp_error *err)
{
    int classes = sfp__learner_classes(l);
    double start = sfp__vit_memo_now(l->opt.memo);
    TRY(sfp__head_refresh(l->heads[0], false, err));
    double solved = sfp__vit_memo_now(l->opt.memo);
    TRY(sfp__head_scores(l->heads[0], b, l->batch.tap, false, classes, l->step.member[0], err));
    for (int i = 0; i < b; i++)
        count_prediction(l, classes, l->step.member[0] + (size_t)i * (size_t)classes, l->batch.label[i], r);
    double tested = sfp__vit_memo_now(l->opt.memo);
    TRY(sfp__head_update(l->heads[0], b, l->batch.tap, l->batch.label, l->batch.key, err));
    for (int i = 0; i < b; i++)
        l->classes.seen[l->batch.label[i]] = 1;
    l->counts.timestamps++;
    l->counts.offered += (uint64_t)b;
    l->counts.trained += (uint64_t)b;
    l->classes.learned = classes;
    r->seconds.head = solved - start + sfp__vit_memo_now(l->opt.memo) - tested;
    return SFP_OK;
}

/* Processes a timestamp of a closed-form head: one query pass over the batch, then the head. Predictors on other threads read the
 * head and the classes under the lock, which is not held during the pass. */
sfp_status sfp__learner_query_batch(sfp__learner *l, int b, const sfp__sample *samples, sfp_error *err)
{
    bool new_class;
    pthread_mutex_lock(&l->head_lock);
    sfp_status status = load_batch(l, b, samples, &new_class, err);
    pthread_mutex_unlock(&l->head_lock);
    TRY(status);
    const sfp__vit_pass pass = {.b = b,
                                .xs = l->step.xs,
                                .feature = l->batch.query,
                                .tap = l->tap_dim > l->D ? l->batch.tap : NULL,
                                .taps = l->taps,
                                .tap_mean = l->opt.tap_mean,
                                .memo = l->opt.memo};
    return sfp__vit_run(l->plan, &pass, err);
}

static sfp_status offer_to_method(sfp__learner *l, int b, const sfp__sample *samples, sfp__timestamp_details *report,
                                  sfp_error *err)
{
    sfp__timestamp_details r = {.t = l->counts.timestamps, .offered = b, .coreset_count = b};
    double start = sfp__vit_memo_now(l->opt.memo);
    TRY(sfp__learner_query_batch(l, b, samples, err));
    r.seconds.query = sfp__vit_memo_now(l->opt.memo) - start;
    pthread_mutex_lock(&l->head_lock);
    sfp_status status = test_and_update_head(l, b, &r, err);
    pthread_mutex_unlock(&l->head_lock);
    TRY(status);
    r.seconds.total = r.seconds.query + r.seconds.head;
    if (report)
        *report = r;
    return SFP_OK;
}

/* Counts the predictions of the closed-form member for the known samples, at a timestamp without training. */
static sfp_status test_closed_form(sfp__learner *l, int b, sfp__timestamp_details *r, sfp_error *err)
{
    int classes = sfp__learner_classes(l), n = gather_known(l, b);
    TRY(sfp__head_scores(l->heads[1], n, l->step.tap, false, classes, l->step.member[1], err));
    count_mixed_predictions(l, n, false, r);
    return SFP_OK;
}

/* Queries the samples that the closed-form member of head mix learns from, and without training tests it on them. */
static sfp_status query_batch(sfp__learner *l, int b, bool train, sfp__timestamp_details *r, sfp_error *err)
{
    double start = sfp__vit_memo_now(l->opt.memo);
    if (feeds_batch(l))
        TRY(compute_missing(l, b, l->batch.has_tap, err));
    if (!train)
        TRY(test_closed_form(l, b, r, err));
    r->seconds.query += sfp__vit_memo_now(l->opt.memo) - start;
    return SFP_OK;
}

/* Selects and trains; without training, only computes what the buffer needs. */
static sfp_status select_and_train(sfp__learner *l, int b, bool new_class, bool training, sfp__timestamp_details *r,
                                   sfp_error *err)
{
    double start = sfp__vit_memo_now(l->opt.memo);
    if (training)
        TRY(select_coreset(l, b, new_class, r, err));
    else if (l->buffer)
        TRY(embed_batch(l, b, err));
    double selected = sfp__vit_memo_now(l->opt.memo);
    r->seconds.select = selected - start;
    if (l->diagnostics && training) {
        TRY(sfp__diagnostics_measure(l, b, err));
        r->seconds.diagnostics = sfp__vit_memo_now(l->opt.memo) - selected;
    }
    if (training && r->coreset_count == 0) { /* all were held out */
        r->steps = 0;
        return test_closed_form(l, b, r, err);
    }
    return training ? train(l, b, r, err) : SFP_OK;
}

sfp_status sfp__learner_offer(sfp__learner *l, int b, const sfp__sample *samples, sfp__timestamp_details *report, sfp_error *err)
{
    if (l->opt.method)
        return offer_to_method(l, b, samples, report, err);
    bool mix = l->opt.head == SFP_HEAD_MIX, training = !(mix && l->limits.no_training);
    sfp__timestamp_details r = {
        .t = l->counts.timestamps, .task = l->fp->task, .offered = b, .steps = training ? l->opt.steps : 0};
    if (l->limits.steps > 0 && l->limits.steps < r.steps)
        r.steps = l->limits.steps;
    bool new_class = false;
    double start = sfp__vit_memo_now(l->opt.memo);
    TRY(load_batch(l, b, samples, &new_class, err));
    double loaded = sfp__vit_memo_now(l->opt.memo);
    if (mix)
        TRY(query_batch(l, b, training, &r, err));
    TRY(select_and_train(l, b, new_class, training, &r, err));
    r.seconds.select += loaded - start;
    /* after training, because predictions made before the step cannot include a class that is new in this batch */
    for (int i = 0; i < b; i++)
        l->classes.seen[l->batch.label[i]] = 1;
    double trained = sfp__vit_memo_now(l->opt.memo);
    TRY(update_buffer(l, b, &r, err));
    double buffered = sfp__vit_memo_now(l->opt.memo);
    for (int i = 0; tests_on_held(l) && i < b; i++)
        if (l->batch.has_tap[i])
            sfp__validation_add(&l->validation, samples[i].rgb, l->batch.tap + (size_t)i * (size_t)l->tap_dim, samples[i].label,
                                l->batch.key[i]);
    if (mix)
        TRY(update_closed_form(l, b, err));
    r.seconds.head = sfp__vit_memo_now(l->opt.memo) - buffered;
    l->counts.timestamps++;
    l->counts.offered += (uint64_t)b;
    l->counts.scored += training || l->buffer ? (uint64_t)b : 0;
    r.learned = mix ? l->batch.has_tap : NULL;
    r.replay = l->step.replay;
    r.replay_count = l->step.replay_count;
    r.loss = l->step.loss;
    r.seconds.buffer += buffered - trained;
    sfp_status published = sfp__learner_publish(l, err);
    double end = sfp__vit_memo_now(l->opt.memo);
    r.seconds.total = end - start - r.seconds.diagnostics;
    if (l->diagnostics && training) {
        sfp__diagnostics_add(l, samples, &r);
        r.seconds.diagnostics += sfp__vit_memo_now(l->opt.memo) - end;
    }
    if (report)
        *report = r;
    return published;
}
