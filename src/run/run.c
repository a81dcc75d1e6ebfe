/* The order of events in a run after it was opened (open.c): steps, end. The learner measures its own time; decoding runs on
 * background threads; evaluation pauses the clock. */
#include "run/run.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "compute/gemm.h"
#include "results/result.h"
#include "run/run_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHECKPOINT_RATIO = 50 };         /* minimum time between checkpoints, as a multiple of the time that one takes */
enum { SAVE_BYTES_PER_SECOND = 10000 }; /* watched directories: maximum for checkpoints, 0.9 GB per day */
enum { NOTICE_SECONDS = 10 };           /* live streams: minimum time between messages about what was skipped and evaluated */
enum { WAIT_SECONDS = 5 };              /* live streams: time without an arrival until a message says that the run waits */
static const double MEMORY = 0.9;       /* weight of earlier measurements in the mean processing time per sample */

/* Prepares the directory when there is something to write: after the first batch was processed, not before. A run that fails in its
 * first step changes no file, and the finished run that it was to replace stays. */
static sfp_status begin(sfp__run *run, sfp_error *err)
{
    if (!run->begun && run->plan.opt->out) {
        TRY(sfp__files_clear(run, err));
        TRY(sfp__journal_open(&run->journal, &run->plan, run->at.timestamps, run->arrivals, err));
    }
    run->begun = true;
    return SFP_OK;
}

/* ----------------------------------------------------------------- evaluation */

void sfp__run_report_evaluation(void *ctx, uint64_t done)
{
    const sfp__run *run = ctx;
    sfp__journal_progress(run, NULL, done, sfp__evaluator_images(run->evaluator, run->at.task));
}

static sfp_status evaluate_and_record(sfp__run *run, sfp_error *err)
{
    sfp_result *r = run->journal.r;
    int row = run->at.task;
    double *accuracy = r->accuracy + (size_t)row * (size_t)r->tasks;
    if (run->plan.live)
        TRY(sfp__classes_match(&run->classes, &run->plan, err));
    TRY(sfp__evaluator_run(run->evaluator, run->predictor, row, accuracy, r->classes, r->confusion, err));
    r->calibration.bins = run->evaluator->calibration[0];
    r->calibration.error = sfp__reliability_error(&run->evaluator->calibration[0]);
    r->calibration.before = sfp__reliability_error(&run->evaluator->calibration[1]);
    TRY(sfp__result_evaluated(r, (uint64_t)run->at.arrived, row, accuracy, err));
    run->at.evaluated.timestamps = run->at.timestamps;
    run->at.evaluated.task = row;
    return SFP_OK;
}

/* Until continue_clock no time passes on the clock of the run, and values of the feature cache are not charged. Returns the time for
 * continue_clock. */
static double pause_clock(const sfp__run *run)
{
    sfp__vit_memo_set_charging(run->plan.memo, false);
    return sfp__monotonic_seconds();
}

/* Returns the seconds since the pause began. */
static double continue_clock(const sfp__run *run, double from)
{
    double took = sfp__monotonic_seconds() - from;
    sfp__vit_memo_set_charging(run->plan.memo, true);
    if (run->arrivals->clock)
        sfp__clock_leave_out(run->arrivals->clock, took);
    return took;
}

/* SFP__STOPPED: the run was stopped, and nothing is recorded. */
static sfp_status evaluate(sfp__run *run, sfp_error *err)
{
    if (!run->evaluator)
        return SFP_OK;
    double from = pause_clock(run); /* evaluation is not part of the processing time, and nothing is dropped because of it */
    sfp__run_report_evaluation(run, 0);
    sfp_status status = evaluate_and_record(run, err);
    if (!status)
        status = sfp__gemm_check(run->failures, err);
    run->journal.r->seconds.evaluate += continue_clock(run, from);
    return status;
}

/* Called after a timestamp. An evaluation that is cancelled stays due. */
static sfp_status evaluate_if_due(sfp__run *run, sfp_error *err)
{
    if (run->at.evaluation_due)
        TRY(evaluate(run, err));
    run->at.evaluation_due = false;
    return SFP_OK;
}

/* --------------------------------------------------------------------- saving */

/* Returns whether checkpoints are due by wall time instead of training time: on live streams and with clock real, data arrives while nothing
 * is trained. */
static bool uses_wall_time(const sfp__plan *p)
{
    return p->live || p->clock == SFP__CLOCK_REAL;
}

/* The time between checkpoints. A watched directory delivers again what was not saved, so its checkpoints may be rare, except the
 * first: it gives the directory a state. Large ones are rarer, for the sake of flash memory. */
static double checkpoint_seconds(const sfp__run *run)
{
    const sfp__plan *p = &run->plan;
    if (!isnan(p->opt->checkpoint_seconds))
        return p->opt->checkpoint_seconds;
    bool watched = p->live && p->source->kind && p->source->kind->walks;
    return !p->live ? 2 : watched && run->pace.saved ? fmax(300, run->pace.save_bytes / SAVE_BYTES_PER_SECOND) : 10;
}

/* The time at which a checkpoint is due, even if the stream delivers nothing until then. */
static double checkpoint_time(const sfp__run *run)
{
    const sfp__pace *pace = &run->pace;
    return pace->unsaved && run->begun && run->plan.opt->out
               ? pace->saved_at + fmax(checkpoint_seconds(run), CHECKPOINT_RATIO * pace->save_seconds)
               : INFINITY;
}

static sfp_status checkpoint_if_due(sfp__run *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    sfp__pace *pace = &run->pace;
    double train_seconds = uses_wall_time(p) ? sfp__monotonic_seconds() - pace->saved_at : pace->train_seconds;
    bool something = run->begun && (p->live || run->at.timestamps > 0); /* to resume */
    if (!p->opt->out || !pace->unsaved || !something || train_seconds < checkpoint_seconds(run))
        return SFP_OK;
    if (train_seconds >= CHECKPOINT_RATIO * pace->save_seconds) {
        if (p->live)
            return sfp__files_save_running(run, err);
        sfp__journal_times(&run->journal, run->arrivals);
        return sfp__files_checkpoint(run, err);
    }
    if (!pace->reported)
        sfp__plan_info(
            p, "a checkpoint takes %.2g s: one is written every %.0f s%s, so that checkpoints take at most 2 %% of the time",
            pace->save_seconds, CHECKPOINT_RATIO * pace->save_seconds, uses_wall_time(p) ? "" : " of training");
    pace->reported = true;
    return SFP_OK;
}

/* ---------------------------------------------------------------------- tasks */

/* Ends the current task: evaluates and saves the state. */
static sfp_status end_task(sfp__run *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    sfp__position *at = &run->at;
    if (at->evaluated.timestamps != at->timestamps ||
        at->evaluated.task != at->task) /* else eval-every was due at the last timestamp of the task */
        TRY(evaluate(run, err));
    run->journal.r->tasks_done = at->task + 1;
    sfp__result_summarise(run->journal.r);
    TRY(begin(run, err)); /* a task may end before a batch was processed, because the clock dropped all of them */
    if (p->opt->out) {
        char name[64], path[PATH_MAX];
        (void)snprintf(name, sizeof name, "state-task-%d.safetensors", at->task + 1);
        TRY(sfp__plan_path(p, name, path, sizeof path, err));
        TRY(sfp__learner_save(run->learner, path, err));
    }
    return SFP_OK;
}

/* Ends the tasks before `task`. All their samples have arrived by then, including those that the clock dropped. */
static sfp_status reach_task(sfp__run *run, int task, sfp_error *err)
{
    const sfp__tasks *tasks = &run->plan.tasks;
    while (run->at.task < task && run->journal.r->tasks_done < tasks->count) {
        run->at.arrived = 0;
        for (int t = 0; t <= run->at.task; t++)
            run->at.arrived += tasks->task[t].count;
        TRY(end_task(run, err));
        if (run->at.task + 1 < tasks->count) {
            run->at.task++;
            TRY(sfp__learner_next_task(run->learner, err));
            TRY(sfp__run_set_classes(run, err));
        }
    }
    return SFP_OK;
}

/* ------------------------------------------------------------------- one delivery */

/* Predicts the unlabelled images of a delivery; *seconds: the processing time. */
static sfp_status predict(sfp__run *run, const sfp__delivery *d, double *seconds, sfp_error *err)
{
    const uint8_t *rgb[SFP__GROUP];
    sfp__predictions found;
    int n = d->predict_count;
    if (n == 0)
        return SFP_OK;
    for (int i = 0; i < n; i++)
        rgb[i] = d->predict[i].rgb;
    double from = sfp__vit_memo_now(run->plan.memo);
    TRY(sfp__predictor_run(run->predictor, n, rgb, NULL, run->plan.live ? SFP__WANT_UNKNOWN : 0, &found, err));
    *seconds = run->plan.cost_count ? 0 : sfp__vit_memo_now(run->plan.memo) - from;
    TRY(begin(run, err));
    return sfp__journal_predict(&run->journal, run->at.timestamps, d, found.label, found.probability, found.unknown,
                                run->arrivals, err);
}

/* Corrects the learner: samples get another label, or are forgotten. */
static sfp_status revise(sfp__run *run, const sfp__delivery *d, sfp_error *err)
{
    for (int i = 0; i < d->revision_count; i++) {
        const sfp__revision *r = &d->revisions[i];
        TRY(r->label < 0 ? sfp__learner_forget(run->learner, 1, &r->sample, err)
                         : sfp__learner_relabel(run->learner, &r->sample, r->label, err));
        if (r->label >= 0)
            run->classes.trained[r->label] = 1;
    }
    return d->revision_count || d->save ? begin(run, err) : SFP_OK;
}

/* Trains on the samples of a delivery: one timestamp. *seconds: the processing time for the clock. */
static sfp_status train(sfp__run *run, const sfp__delivery *d, double *seconds, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    sfp__position *at = &run->at;
    sfp__timestamp_details t;
    if (d->arrived >= 0)
        at->arrived = d->arrived;
    if (d->count == 0)
        return SFP_OK;
    double charged = sfp__vit_memo_charged(p->memo);
    TRY(sfp__learner_offer(run->learner, d->count, d->samples, &t, err));
    charged = sfp__vit_memo_charged(p->memo) - charged;
    at->prequential_total += (uint64_t)t.prequential_total;
    at->prequential_correct += (uint64_t)t.prequential_correct;
    run->pace.train_seconds += t.seconds.total - charged; /* a checkpoint saves work that was really done */
    if (run->arrivals->clock)
        sfp__clock_leave_out(run->arrivals->clock, t.seconds.diagnostics); /* nothing is dropped because of diagnostics */
    *seconds = p->cost_count             ? p->costs[at->timestamps % p->cost_count]
               : isfinite(p->query_cost) ? d->count * p->query_cost
                                         : t.seconds.total;
    double each = *seconds / d->count;
    at->query_seconds = at->query_seconds > 0 ? MEMORY * at->query_seconds + (1 - MEMORY) * each : each;
    TRY(begin(run, err));
    TRY(sfp__journal_write(run, d, &t, err));
    at->timestamps++;
    at->evaluation_due = !d->more && p->opt->eval_every > 0 && at->timestamps % p->opt->eval_every == 0;
    return SFP_OK;
}

/* ------------------------------------------------------------------------- steps */

/* Prepares the run for its first delivery. *ready false: there is nothing to do. */
static sfp_status start(sfp__run *run, bool *ready, sfp_error *err)
{
    sfp__plan *p = &run->plan;
    *ready = false;
    if (run->ended_before)
        return sfp__files_complete(run, err);
    if (p->clock == SFP__CLOCK_PAPER && !run->resumed) {
        TRY(sfp__plan_keep_batches(p, run->journal.r, &run->at.cs, err));
    }
    *ready = run->resumed || !sfp__plan_stopped(p);
    if (!*ready)
        return SFP_OK;
    if (!p->live && run->resumed)
        TRY(begin(run, err));
    run->journal.from = run->at.arrived;
    TRY(run->arrivals->kind->start(run->arrivals, err));
    if (p->live) {
        run->pace.notices_at = sfp__monotonic_seconds();
        run->pace.skipped = run->journal.r->samples.skipped;
        run->pace.dropped = run->journal.r->samples.dropped;
        run->pace.evaluations = run->journal.r->evaluation_count;
    }
    return SFP_OK;
}

/* A live stream continues after any number of unreadable images; its length is unknown. */
static sfp_status check_skipped(const sfp__run *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    uint64_t skipped = run->journal.r->samples.skipped, count = (uint64_t)(p->batches.samples + p->unlabelled.count);
    if (p->live || skipped <= sfp__run_max_skipped(p, count))
        return SFP_OK;
    sfp__arrivals_stats stats = run->arrivals->kind->stats(run->arrivals);
    return sfp__skipped_too_many(p->data, skipped, sfp__run_max_skipped(p, count), count,
                                 *stats.first_error ? stats.first_error : stats.first_unread, err);
}

/* The next delivery cannot be read. The learned state is saved, if it is one that --resume can continue. */
static sfp_status fail_delivery(sfp__run *run, sfp_status status)
{
    const char *out = run->plan.opt->out;
    bool something = out && run->begun && run->at.timestamps > 0 && !run->more_follows;
    if (something && (!run->pace.unsaved || sfp__files_checkpoint(run, NULL) == SFP_OK))
        sfp__plan_info(&run->plan, "the learned state is kept; continue with the same command and --resume --out %s", out);
    return status;
}

/* Warns if images were skipped since the last message. */
static void warn_skipped(sfp__run *run)
{
    uint64_t skipped = run->journal.r->samples.skipped;
    sfp__arrivals_stats stats = run->arrivals->kind->stats(run->arrivals);
    const char *refusal = run->classes.refusal;
    const char *first = *stats.first_error ? stats.first_error : *refusal ? refusal : stats.first_unread;
    if (skipped > run->pace.skipped)
        sfp__plan_warn(&run->plan, "%llu image%s could not be %s and %s skipped%s%s%s", (unsigned long long)skipped,
                       skipped == 1 ? "" : "s", *refusal ? "used" : "read", skipped == 1 ? "was" : "were",
                       *first ? " (first: " : "", first, *first ? ")" : "");
    run->pace.skipped = skipped;
}

/* Live streams: warns if samples were dropped since the last message. */
static void warn_dropped(sfp__run *run)
{
    const sfp_result *r = run->journal.r;
    if (run->plan.live && r->samples.dropped > run->pace.dropped)
        sfp__plan_warn(
            &run->plan,
            "%llu samples were dropped, because the learner was busy or no label arrived in time (%llu of %llu in all)",
            (unsigned long long)(r->samples.dropped - run->pace.dropped), (unsigned long long)r->samples.dropped,
            (unsigned long long)r->samples.offered);
    run->pace.dropped = r->samples.dropped;
}

/* A live stream may run for weeks: it does not wait for its end to say what it has skipped and evaluated. */
static double notice_time(const sfp__run *run)
{
    const sfp__pace *pace = &run->pace;
    const sfp_result *r = run->journal.r;
    bool news =
        r->samples.skipped > pace->skipped || r->samples.dropped > pace->dropped || r->evaluation_count > pace->evaluations;
    return run->plan.live && news ? pace->notices_at + fmin(NOTICE_SECONDS, checkpoint_seconds(run)) : INFINITY;
}

static void print_notices_if_due(sfp__run *run)
{
    sfp__pace *pace = &run->pace;
    const sfp_result *r = run->journal.r;
    double due = notice_time(run);
    if (due == INFINITY || sfp__monotonic_seconds() < due)
        return;
    warn_skipped(run);
    warn_dropped(run);
    if (r->evaluation_count > pace->evaluations)
        sfp__plan_info(&run->plan, "accuracy %.4f on the test set after %lld samples", r->accuracy[0],
                       (long long)run->at.arrived);
    pace->evaluations = r->evaluation_count;
    pace->notices_at = sfp__monotonic_seconds();
}

/* The time until which a live stream may be silent before a message says that the run waits for it. */
static double waiting_time(const sfp__run *run)
{
    return run->plan.live && !run->pace.arrived ? run->pace.notices_at + WAIT_SECONDS : INFINITY;
}

static void print_waiting_if_due(sfp__run *run, const sfp__delivery *d)
{
    const sfp__plan *p = &run->plan;
    run->pace.arrived |= d->changed;
    double due = waiting_time(run);
    if (due == INFINITY || sfp__monotonic_seconds() < due)
        return;
    bool watched = p->source->kind && p->source->kind->walks;
    sfp__plan_info(p, "waiting for images %s %s", watched ? "in" : "of", watched ? p->source->path : p->data);
    run->pace.arrived = true;
}

/* Processes one delivery. *end: there is none, or the run is stopped. */
static sfp_status process_delivery(sfp__run *run, bool *end, sfp_error *err)
{
    sfp__arrivals *arrivals = run->arrivals;
    sfp__delivery d = {0};
    double seconds = 0;
    *end =
        !run->more_follows && sfp__plan_stopped(&run->plan) && !(arrivals->kind->has_work && arrivals->kind->has_work(arrivals));
    if (*end)
        return SFP_OK;
    double until = fmin(checkpoint_time(run), fmin(notice_time(run), waiting_time(run)));
    sfp_status status = sfp__arrivals_next(arrivals, until, &d, err);
    if (status)
        return fail_delivery(run, status);
    *end = d.end;
    if (d.end)
        return SFP_OK;
    print_waiting_if_due(run, &d);
    TRY(reach_task(run, d.task, err));
    TRY(predict(run, &d, &seconds, err));
    TRY(revise(run, &d, err));
    TRY(train(run, &d, &seconds, err));
    TRY(sfp__gemm_check(run->failures, err)); /* before a checkpoint contains other bits */
    TRY(sfp__arrivals_commit(arrivals, seconds, err));
    if (d.save) /* nothing of a forgotten sample stays in a file */
        TRY(sfp__files_forget(run, err));
    run->pace.unsaved |= d.changed;
    run->more_follows = d.more;
    TRY(check_skipped(run, err));
    if (d.more)
        return SFP_OK;
    TRY(evaluate_if_due(run, err));
    print_notices_if_due(run);
    return checkpoint_if_due(run, err);
}

/* The stream has ended or was stopped. A live stream ends by being stopped. SFP__STOPPED: the run is not finished. */
static sfp_status end_stream(sfp__run *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    sfp_result *r = run->journal.r;
    sfp__arrivals_stats stats = run->arrivals->kind->stats(run->arrivals);
    uint64_t unreadable = r->samples.skipped - stats.unread; /* of the images that the clock kept */
    bool stopped = sfp__plan_stopped(p);
    if (!p->live && stopped)
        return SFP__STOPPED;
    if (run->at.timestamps == 0 && unreadable > 0 && !(p->live && r->labels.unlabelled))
        return *run->classes.refusal ? sfp__fail(err, SFP_EFORMAT, "%s: none of the %llu images could be used (first: %s)",
                                                 p->data, (unsigned long long)unreadable, run->classes.refusal)
                                     : sfp__plan_none_readable(p, unreadable, stats.first_error, err);
    if (!p->live)
        return reach_task(run, p->tasks.count, err);
    if (stats.status)
        return run->begun ? SFP__STOPPED : sfp__fail(err, stats.status, "%s", stats.last_error);
    if (!run->begun && !run->resumed && !stopped)
        return sfp__fail(err, SFP_EFORMAT, "%s: the stream ended before an image arrived", p->data);
    return end_task(run, err);
}

static void warn_skipped_tests(const sfp__run *run)
{
    uint64_t tests = run->evaluator ? run->evaluator->skipped : 0;
    if (tests)
        sfp__plan_warn(&run->plan, "%llu test image%s could not be read and %s skipped (first: %s)", (unsigned long long)tests,
                       tests == 1 ? "" : "s", tests == 1 ? "was" : "were", run->evaluator->first_error);
}

/* The source of a live stream failed. The learned state is saved, and resume continues it. */
static sfp_status fail_source(const sfp__run *run, sfp_error *err)
{
    sfp__arrivals_stats stats = run->arrivals->kind->stats(run->arrivals);
    uint64_t n = sfp__learner_get_counts(run->learner).offered;
    if (run->plan.opt->out)
        sfp__plan_info(&run->plan,
                       "the source failed after %llu image%s; the learned state is kept; continue with the same command and "
                       "--resume --out %s",
                       (unsigned long long)n, n == 1 ? "" : "s", run->plan.opt->out);
    return sfp__fail(err, stats.status, "%s", stats.last_error);
}

/* Ends a run after its last delivery; `status` is SFP_OK, or SFP__STOPPED if an evaluation was cancelled. */
static sfp_status end_run(sfp__run *run, sfp_status status, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    if (!status)
        status = end_stream(run, err);
    if (status && status != SFP__STOPPED)
        return status;
    run->journal.r->finished = status == SFP_OK;
    sfp__journal_finish(run);
    if (status && !p->live) /* before the first timestamp there is nothing to resume */
        return p->opt->out && run->at.timestamps > 0 ? sfp__files_save_stopped(run, err) : SFP_OK;
    warn_skipped(run);
    warn_dropped(run);
    warn_skipped_tests(run);
    TRY(sfp__journal_diagnose(run, err));
    sfp__plan_warn_cache(p);
    if (p->opt->out)
        TRY(sfp__files_save_outputs(run, err));
    return status ? fail_source(run, err) : SFP_OK;
}

static sfp_status step(sfp__run *run, sfp_error *err)
{
    bool ready = true, end = false;
    sfp_status status = SFP_OK;
    if (run->phase == SFP__RUN_OPENED) {
        TRY(start(run, &ready, err));
        run->phase = ready ? SFP__RUN_STARTED : SFP__RUN_ENDED;
        if (ready)
            status = evaluate_if_due(run, err); /* of a run that was stopped in it */
    }
    if (!ready)
        return SFP_OK;
    if (!status)
        status = process_delivery(run, &end, err);
    if (!status && !end)
        return SFP_OK;
    run->phase = SFP__RUN_ENDED;
    return !status || status == SFP__STOPPED ? end_run(run, status, err) : status;
}

sfp_status sfp__run_step(sfp__run *run, bool *more, sfp_error *err)
{
    if (run->phase == SFP__RUN_FAILED)
        return sfp__fail(err, SFP_EINVAL, "the run has failed, expected no further step");
    if (run->phase != SFP__RUN_ENDED) {
        sfp_status status = step(run, err);
        if (status) {
            run->phase = SFP__RUN_FAILED;
            return status;
        }
    }
    *more = run->phase != SFP__RUN_ENDED;
    return SFP_OK;
}
