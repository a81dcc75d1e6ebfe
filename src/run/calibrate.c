/* Clock paper: measures the processing time of a batch and keeps the batches for which it leaves time (docs/method.md, section 8).
 *
 * The measurement is made on a copy of the learner, which is discarded. A timestamp becomes slower while the buffer fills: there is
 * more to replay and to compare with. The buffer method ssd is slower still once its window of recent batches is full. So the copy
 * first processes batches until this steady state is reached, and then those that are measured. It processes the batches of the
 * first task, whose classes the copy has; after the last one it begins with the first one again. */
#include "base/monotonic.h"
#include "run/run_internal.h"

#include <math.h>

enum { WARM_UP = 3 }; /* batches between the steady state and the first batch that is measured */

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

/* Reports `done` of `total` batches since `start`; a caller may stop the run here. */
static void report(const sfp__plan *p, int64_t done, int64_t total, double start)
{
    const sfp_run_progress now = {.size = sizeof now,
                                  .task_name = "",
                                  .offered = (uint64_t)done,
                                  .total = (uint64_t)total,
                                  .rate = NAN,
                                  .lag = NAN,
                                  .loss = NAN,
                                  .accuracy = NAN,
                                  .seconds = sfp__monotonic_seconds() - start};
    if (p->hooks->progress)
        p->hooks->progress(p->hooks->ctx, &now);
}

sfp_status sfp__calibrate(const sfp__plan *p, sfp__calibration *out, sfp_error *err)
{
    sfp__batches first = p->batches; /* the arrays belong to the plan */
    OWNED_PTR(sfp__batch_loader_free) sfp__batch_loader *loader = NULL;
    OWNED_PTR(sfp__learner_free) sfp__learner *copy = NULL;
    double seconds, sum = 0, start = sfp__monotonic_seconds();
    int64_t k = 0, measured = 0;
    TRY(sfp__plan_make_learner(p, &copy, err));
    const sfp__buffer *buffer = sfp__learner_buffer(copy);
    const sfp__task *task = &p->tasks.task[first.task[0]];
    if (!p->tasks.free) /* without a buffer the loss is over the classes of the task only */
        TRY(sfp__learner_set_classes(copy, task->classes, task->class_of, err));
    for (first.count = 1; first.count < p->batches.count && first.task[first.count] == first.task[0];)
        first.count++;
    const int64_t total = max_filling(buffer) + WARM_UP + p->opt->calibrate; /* at most */
    const sfp__batch_loader_options lo = {
        .size = p->size, .resize = sfp__learner_resize(&p->opt->learner), .depth = SFP__RUN_PREFETCH, .count = total};
    TRY(sfp__batch_loader_create(p->source, &p->tasks, &first, &lo, 0, &loader, err));
    for (; sfp__calibration_fills(buffer, k) && !sfp__plan_stopped(p); k++) {
        TRY(process(copy, loader, k, &seconds, err));
        report(p, k + 1, total, start);
    }
    *out = (sfp__calibration){.filling = k};
    for (int64_t end = k + WARM_UP + p->opt->calibrate; k < end && !sfp__plan_stopped(p); k++) {
        TRY(process(copy, loader, k, &seconds, err));
        report(p, k + 1, end, start);
        if (k < out->filling + WARM_UP || isnan(seconds))
            continue;
        sum += seconds;
        measured++;
    }
    out->measured = measured;
    out->seconds = measured ? sum / (double)measured : 0;
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
