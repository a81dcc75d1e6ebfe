/* Clock paper: measures the processing time of a batch and keeps the batches for which it leaves time (docs/method.md, section 8).
 *
 * The measurement is made on a copy of the learner, which is discarded. A timestamp becomes slower while the buffer fills: there is
 * more to replay and to compare with. The buffer method ssd is slower still once its window of recent batches is full. So the copy
 * first processes batches of the first task until this steady state is reached. It also depends on the task: components of earlier
 * tasks are attuned, but not trained. So the batches that are measured are divided among the tasks. After the last batch of a task
 * the copy begins with its first one again. */
#include "base/monotonic.h"
#include "run/run_internal.h"

#include <math.h>

enum {
    WARM_UP = 3, /* batches between the steady state and the first batch that is measured */
    CHANGE = 1   /* the same at the begin of a later task */
};

/* ------------------------------------------------------------------ the steady state */

/* Returns the number of recent batches that ssd compares with; other methods have none. */
static int window_of(const sfp__buffer *b)
{
    return b->method->needs & SFP__NEED_PIXELS ? b->opt.ssd.window : 0;
}

/* Returns the number of batches after which the filling ends at the latest. Some batches may be short: the buffer gets twice the
 * number of batches that fill it. */
static int64_t max_filling(const sfp__buffer *b)
{
    return b && b->opt.slots > 0 ? 2 * (((int64_t)b->opt.slots - 1) / b->max_batch + 1) + window_of(b) : 0;
}

bool sfp__calibration_fills(const sfp__buffer *b, int64_t batches)
{
    return batches < max_filling(b) && (b->filled < b->opt.slots || batches < window_of(b));
}

/* -------------------------------------------------------------------- the measurement */

/* Processes batch k; *seconds: its processing time, NAN if no image of it can be read. */
static sfp_status process(sfp__learner *copy, sfp__batch_loader *loader, int64_t k, double *seconds, sfp_error *err)
{
    const sfp__loaded_batch *batch;
    sfp__timestamp_details t;
    *seconds = NAN;
    TRY(sfp__batch_loader_take(loader, k, &batch, err));
    if (batch->count > 0) {
        TRY(sfp__learner_offer(copy, batch->count, batch->samples, &t, err));
        *seconds = t.seconds.total;
    }
    sfp__batch_loader_release(loader, k + 1);
    return SFP_OK;
}

typedef struct calibrator {
    const sfp__plan *plan;
    sfp__learner *copy;
    sfp__calibration *out;
    double sum, start;
    int64_t done, total; /* batches; the total is an upper bound */
} calibrator;

/* Reports the batches that are done; a caller may stop the run here. */
static void report(calibrator *c)
{
    const sfp_run_progress now = {.size = sizeof now,
                                  .task_name = "",
                                  .offered = (uint64_t)++c->done,
                                  .total = (uint64_t)c->total,
                                  .rate = NAN,
                                  .lag = NAN,
                                  .loss = NAN,
                                  .accuracy = NAN,
                                  .seconds = sfp__monotonic_seconds() - c->start};
    if (c->plan->hooks->progress)
        c->plan->hooks->progress(c->plan->hooks->ctx, &now);
}

/* Measures `wanted` batches of task t, which begins at batch `begin`; in the first task the buffer is filled before. */
static sfp_status measure_task(calibrator *c, int t, int64_t begin, int64_t wanted, sfp_error *err)
{
    const sfp__plan *p = c->plan;
    const sfp__batches *all = &p->batches;
    const sfp__buffer *buffer = sfp__learner_buffer(c->copy);
    OWNED_PTR(sfp__batch_loader_free) sfp__batch_loader *loader = NULL;
    sfp__batches own = *all; /* the arrays belong to the plan */
    double seconds;
    int64_t k = 0;
    own.first += begin;
    own.task += begin;
    own.arrived += begin;
    for (own.count = 0; begin + own.count < all->count && own.task[own.count] == t;)
        own.count++;
    if (!own.count)
        return SFP_OK;
    const sfp__batch_loader_options lo = {.size = p->size,
                                          .resize = sfp__learner_resize(&p->opt->learner),
                                          .depth = SFP__RUN_PREFETCH,
                                          .count = (t ? 0 : max_filling(buffer)) + WARM_UP + wanted}; /* at most */
    TRY(sfp__batch_loader_create(p->source, &p->tasks, &own, &lo, 0, &loader, err));
    for (; t == 0 && sfp__calibration_fills(buffer, k) && !sfp__plan_stopped(p); k++) {
        TRY(process(c->copy, loader, k, &seconds, err));
        report(c);
        c->out->filling++;
    }
    const int64_t from = k + (t ? CHANGE : WARM_UP);
    c->out->tasks += wanted > 0;
    for (; k < from + wanted && !sfp__plan_stopped(p); k++) {
        TRY(process(c->copy, loader, k, &seconds, err));
        report(c);
        if (k < from || isnan(seconds))
            continue;
        c->sum += seconds;
        c->out->measured++;
    }
    return SFP_OK;
}

/* Returns how many of the measured batches belong to the tasks before t. They are spread evenly, and one is of the middle task. */
static int64_t share_before(const sfp__plan *p, int t)
{
    const int64_t tasks = p->tasks.count;
    return (2 * (int64_t)p->opt->calibrate * t + tasks) / (2 * tasks);
}

sfp_status sfp__calibrate(const sfp__plan *p, sfp__calibration *out, sfp_error *err)
{
    OWNED_PTR(sfp__learner_free) sfp__learner *copy = NULL;
    TRY(sfp__plan_make_learner(p, &copy, err));
    calibrator c = {.plan = p, .copy = copy, .out = out, .start = sfp__monotonic_seconds()};
    c.total = max_filling(sfp__learner_buffer(copy)) + WARM_UP + p->tasks.count + p->opt->calibrate;
    *out = (sfp__calibration){0};
    int64_t begin = 0;
    for (int t = 0; t < p->tasks.count; t++) {
        const sfp__task *task = &p->tasks.task[t];
        const int64_t wanted = share_before(p, t + 1) - share_before(p, t);
        if (t)
            TRY(sfp__learner_next_task(copy, err));
        if (!p->tasks.free) /* without a buffer the loss is over the classes of the task only */
            TRY(sfp__learner_set_classes(copy, task->classes, task->class_of, err));
        while (begin < p->batches.count && p->batches.task[begin] < t)
            begin++;
        if (!t || wanted)
            TRY(measure_task(&c, t, begin, wanted, err));
    }
    out->seconds = out->measured ? c.sum / (double)out->measured : 0;
    return SFP_OK;
}

/* ----------------------------------------------------------------------- the batches */

sfp_status sfp__plan_measure(const sfp__plan *p, double *seconds, sfp_error *err)
{
    sfp__calibration c = {0};
    *seconds = 0;
    for (int64_t i = 0; i < p->costs.count; i++)
        *seconds += p->costs.seconds[i] / (double)p->costs.count;
    if (p->costs.count)
        return SFP_OK;
    sfp__plan_info(p,
                   "measuring the processing time of %d batches (--calibrate %d), with a full buffer, on a copy of the learner",
                   p->opt->calibrate, p->opt->calibrate);
    TRY(sfp__calibrate(p, &c, err));
    *seconds = c.seconds;
    return SFP_OK;
}

sfp_status sfp__plan_keep_batches(sfp__plan *p, double *cs, sfp_error *err)
{
    sfp__batches *b = &p->batches;
    int64_t all = b->count;
    double cost = 0;
    *cs = NAN;
    TRY(sfp__plan_measure(p, &cost, err));
    if (sfp__plan_stopped(p)) /* the measurement is incomplete */
        return SFP_OK;
    *cs = sfp__clock_cs(cost, all, b->samples + p->unlabelled.count, p->opt->rate);
    p->starved_tasks = sfp__batches_keep(b, *cs);
    sfp__plan_info(p, "clock paper: %.4f s per batch, C_S %.2f: %lld of %lld batches are kept", cost, *cs, (long long)b->count,
                   (long long)all);
    return SFP_OK;
}
