/* The processing of one timestamp. This file does not know how a selector or a buffer method decides: it computes the inputs that
 * they declare and passes them on. */
#include "learner/learner.h"

#include "base/digest.h"
#include "compute/pixels.h"
#include "learner/learner_internal.h"

#include <math.h>
#include <string.h>

/* Measures stages one after another. */
typedef struct timer {
    const sfp__learner *l;
    double from;
} timer;

static timer start_timer(const sfp__learner *l)
{
    return (timer){l, sfp__time_now(l->opt.time)};
}

/* Returns the seconds since the last lap, or the start. */
static double lap(timer *t)
{
    double before = t->from;
    t->from = sfp__time_now(t->l->opt.time);
    return t->from - before;
}

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
    *new_class = false;
    for (int i = 0; i < b; i++) {
        const sfp__sample *s = &samples[i];
        l->batch.label[i] = s->label;
        l->batch.id[i] = s->id;
        l->batch.image[i] = s->rgb;
        l->batch.has_query[i] = false;
        if (l->head)
            l->batch.key[i] = sfp__digest_bytes((sfp__digest){{0}}, s->rgb, l->rgb_bytes).word[0];
        *new_class = *new_class || !l->classes.seen[s->label];
    }
    normalise_job j = {l, samples};
    sfp__thread_pool_run(l->threads, b, normalise_piece, &j);
    return SFP_OK;
}

/* -------------------------------------------------------------------- a step */

/* Orders the samples of a step, those with unknown queries first. Returns the number of these. */
static int order_items(sfp__learner *l, int c, const int *slots, int r)
{
    int n = 0, unknown = 0;
    for (int want = 0; want < 2; want++) {
        for (int i = 0; i < c + r; i++) {
            sfp__item item = {.index = i < c ? l->batch.coreset[i] : slots[i - c], .replay = i >= c};
            if (sfp__learner_query_known(l, &item) == (want == 1))
                l->pass.items[n++] = item;
        }
        unknown = want == 0 ? n : unknown;
    }
    return unknown;
}

static void fill_step(sfp__learner *l, int c, const int *slots, int r)
{
    float weight_sum = 0;
    for (int i = 0; i < c; i++)
        weight_sum += l->batch.select_weight[i];
    for (int i = 0; i < c + r; i++) {
        const sfp__item *item = &l->pass.items[i];
        const int *indices = item->replay ? slots : l->batch.coreset;
        int k = 0;
        while (indices[k] != item->index)
            k++;
        sfp__learner_fill_item(l, i, l->step.rx + (size_t)(item->replay ? k : 0) * l->pixels);
        if (item->replay)
            l->pass.weight[i] = 1.0f / (float)r;
        else
            l->pass.weight[i] = l->opt.weighted && weight_sum > 0 ? l->batch.select_weight[k] / weight_sum : 1.0f / (float)c;
    }
}

static void count_prediction(const sfp__learner *l, int classes, const float *scores, int32_t true_label,
                             sfp__timestamp_details *r)
{
    r->prequential_total++;
    r->prequential_correct += sfp__best_class(classes, l->classes.seen, scores) == true_label;
}

/* Test-then-train: counts the predictions of the linear head for the coreset, made before the step. */
static void count_linear_predictions(const sfp__learner *l, int n, const float *logits, sfp__timestamp_details *r)
{
    int classes = sfp__learner_classes(l);
    for (int i = 0; i < n; i++)
        if (!l->pass.items[i].replay)
            count_prediction(l, classes, logits + (size_t)i * (size_t)classes, l->pass.label[i], r);
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
        if (!l->pass.items[i].replay)
            by_index[l->pass.items[i].index] =
                sfp__learner_cross_entropy(l, logits + (size_t)i * (size_t)classes, l->pass.label[i]);
    for (int i = 0; i < c; i++)
        by_choice[i] = by_index[l->batch.coreset[i]];
    l->selector->learn(l->select_state, &l->batch.selected, c, l->batch.coreset, by_choice);
}

/* Chooses the slots that the next step replays. The time is part of that of the buffer. */
static sfp_status draw_replay(sfp__learner *l, int b, int want, int *slots, int *drawn, sfp__timestamp_details *r, sfp_error *err)
{
    *drawn = 0;
    if (!l->buffer)
        return SFP_OK;
    timer t = start_timer(l);
    const sfp__buffer_batch batch = {
        .b = b, .label = l->batch.label, .id = l->batch.id, .model = sfp__learner_model_ops(l), .threads = l->threads};
    TRY(sfp__buffer_retrieve(l->buffer, &batch, want, &l->replay_rng, slots, drawn, err));
    r->seconds.buffer += lap(&t);
    return SFP_OK;
}

static sfp_status train(sfp__learner *l, int b, sfp__timestamp_details *r, sfp_error *err)
{
    int c = r->coreset_count, capacity = l->opt.replay ? l->opt.replay : 1;
    for (int k = 0; k < r->steps; k++) {
        int *slots = l->step.replay + k * capacity, drawn;
        TRY(draw_replay(l, b, l->opt.replay, slots, &drawn, r, err));
        int unknown = order_items(l, c, slots, drawn);
        fill_step(l, c, slots, drawn);
        sfp__train_batch batch = sfp__learner_batch(l, c + drawn, unknown);
        batch.terms = drawn ? 2 : 1;
        sfp__train_result result = {0};
        TRY(sfp__trainer_step(l->trainer, &batch, &result, err));
        sfp__learner_keep_queries(l, unknown);
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
        if (k == 0)
            count_linear_predictions(l, c + drawn, result.logits, r);
    }
    return SFP_OK;
}

static sfp_status update_buffer(sfp__learner *l, int b, sfp__timestamp_details *r, sfp_error *err)
{
    if (!l->buffer)
        return SFP_OK;
    if (sfp__learner_buffer_needs(l) & SFP__NEED_QUERY)
        TRY(sfp__learner_compute_queries(l, b, err));
    sfp__learner_score(l, b, l->batch.score_after);
    const sfp__buffer_batch batch = {.b = b,
                                     .now = l->counts.timestamps,
                                     .label = l->batch.label,
                                     .id = l->batch.id,
                                     .image = l->batch.image,
                                     .mean_embed = l->batch.mean_embed,
                                     .query = l->batch.query,
                                     .has_query = l->batch.has_query,
                                     .score = l->batch.score_after,
                                     .fingerprint = l->batch.fingerprint,
                                     .model = sfp__learner_model_ops(l),
                                     .threads = l->threads};
    return sfp__buffer_update(l->buffer, &batch, &l->buffer_rng, &r->buffer, err);
}

/* The second half of a timestamp of a closed-form head, which must be locked: solves its equations if this is due, predicts the batch (not part of the
 * processing time), and learns from it. */
static sfp_status test_and_update_head(sfp__learner *l, int b, sfp__timestamp_details *r, sfp_error *err)
{
    int classes = sfp__learner_classes(l);
    timer t = start_timer(l);
    TRY(sfp__head_refresh(l->head, false, err));
    r->seconds.head = lap(&t);
    TRY(sfp__head_scores(l->head, b, l->batch.tap, false, classes, l->batch.head_scores, err));
    for (int i = 0; i < b; i++)
        count_prediction(l, classes, l->batch.head_scores + (size_t)i * (size_t)classes, l->batch.label[i], r);
    (void)lap(&t);
    TRY(sfp__head_update(l->head, b, l->batch.tap, l->batch.label, l->batch.key, err));
    for (int i = 0; i < b; i++)
        l->classes.seen[l->batch.label[i]] = 1;
    l->counts.timestamps++;
    l->counts.offered += (uint64_t)b;
    l->counts.trained += (uint64_t)b;
    l->classes.learned = classes;
    r->seconds.head += lap(&t);
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
                                .xs = l->batch.xs,
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
    timer t = start_timer(l);
    TRY(sfp__learner_query_batch(l, b, samples, err));
    r.seconds.query = lap(&t);
    pthread_mutex_lock(&l->head_lock);
    sfp_status status = test_and_update_head(l, b, &r, err);
    pthread_mutex_unlock(&l->head_lock);
    TRY(status);
    r.seconds.total = r.seconds.query + r.seconds.head;
    if (report)
        *report = r;
    return SFP_OK;
}

sfp_status sfp__learner_offer(sfp__learner *l, int b, const sfp__sample *samples, sfp__timestamp_details *report, sfp_error *err)
{
    if (l->opt.method)
        return offer_to_method(l, b, samples, report, err);
    sfp__timestamp_details r = {.t = l->counts.timestamps, .task = l->fp->task, .offered = b, .steps = l->opt.steps};
    bool new_class = false;
    timer t = start_timer(l), whole = t;
    TRY(load_batch(l, b, samples, &new_class, err));
    TRY(sfp__learner_select(l, b, new_class, &r, err));
    r.seconds.select = lap(&t);
    if (l->diagnostics) {
        TRY(sfp__diagnostics_measure(l, b, err));
        r.seconds.diagnostics = lap(&t);
    }
    TRY(train(l, b, &r, err));
    /* after training, because predictions made before the step cannot include a class that is new in this batch */
    for (int i = 0; i < b; i++)
        l->classes.seen[l->batch.label[i]] = 1;
    (void)lap(&t);
    TRY(update_buffer(l, b, &r, err));
    l->counts.timestamps++;
    l->counts.offered += (uint64_t)b;
    l->counts.scored += (uint64_t)b;
    r.replay = l->step.replay;
    r.replay_count = l->step.replay_count;
    r.loss = l->step.loss;
    r.seconds.buffer += lap(&t);
    sfp_status published = sfp__learner_publish(l, err);
    r.seconds.total = lap(&whole) - r.seconds.diagnostics;
    if (l->diagnostics) {
        sfp__diagnostics_add(l, samples, &r);
        r.seconds.diagnostics += lap(&whole);
    }
    if (report)
        *report = r;
    return published;
}
