/* The steps of a run after it was opened (open.c), and its end. The learner measures its processing time itself. Decoding runs on background
 * threads; an evaluation pauses the clock. */
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
enum { STATE_SECONDS = 60 };            /* minimum time between two states of a live run, which are as large as its checkpoints */
enum { NOTICE_SECONDS = 10 };           /* live streams: minimum time between messages about what was skipped and evaluated */
enum { WAIT_SECONDS = 5 };              /* live streams: time without an arrival until a message says that the run waits */
static const double MEMORY = 0.9;       /* weight of earlier measurements in the mean processing time per sample */

/* Prepares the directory after the first batch was processed, not before. So a run that fails in its first step changes no file, and a finished
 * run in the directory is kept. */
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

/* Evaluation is not part of the processing time: meanwhile no time passes on the clock of the run, and values of the feature cache are
 * not charged. SFP__STOPPED: the run was stopped, and nothing is recorded. */
static sfp_status evaluate(sfp__run *run, sfp_error *err)
{
    sfp__position *at = &run->at;
    if (!run->evaluator)
        return SFP_OK;
    if (run->plan.live)
        sfp__classes_match(&run->classes, &run->plan);
    double from = sfp__monotonic_seconds();
    run->plan.time.paused = true;
    sfp__run_report_evaluation(run, 0);
    sfp_status status = sfp__evaluator_run(run->evaluator, run->predictor, at->task, run->journal.r->classes, err);
    double took = sfp__monotonic_seconds() - from;
    run->plan.time.paused = false;
    if (run->arrivals->clock)
        sfp__clock_exclude(run->arrivals->clock, took);
    TRY(status);
    TRY(sfp__gemm_check(run->failures, err));
    TRY(sfp__journal_evaluated(run, took, err));
    at->evaluated.timestamps = at->timestamps;
    at->evaluated.task = at->task;
    return SFP_OK;
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

/* The time between checkpoints. A watched directory and the store of submitted samples deliver again what was not saved, so their
 * checkpoints may be rare, except the first: it gives the directory a state. Large ones are rarer, for the sake of flash memory. */
static double checkpoint_seconds(const sfp__run *run)
{
    const sfp__plan *p = &run->plan;
    if (!isnan(p->opt->checkpoint_seconds))
        return p->opt->checkpoint_seconds;
    bool watched = p->live && (p->source->kind->walks || p->source->ops->image);
    return !p->live ? 2 : watched && run->pace.save_bytes > 0 ? fmax(300, run->pace.save_bytes / SAVE_BYTES_PER_SECOND) : 10;
}

/* The time at which a checkpoint is due, even if the stream delivers nothing until then. */
static double checkpoint_time(const sfp__run *run)
{
    const sfp__pace *pace = &run->pace;
    return pace->unsaved && run->begun && run->plan.opt->out
               ? pace->saved_at + fmax(checkpoint_seconds(run), CHECKPOINT_RATIO * pace->save_seconds)
               : INFINITY;
}

/* Writes a checkpoint, and of a live stream what others read while it runs. forgets: a sample was forgotten, and no file may keep
 * anything of it. */
static sfp_status save(sfp__run *run, bool forgets, sfp_error *err)
{
    sfp__pace *pace = &run->pace;
    double begin = sfp__monotonic_seconds();
    bool all = forgets || begin - pace->state_at >= STATE_SECONDS;
    if (forgets) {
        TRY(sfp__files_forget(run, &pace->save_bytes, err));
    } else if (run->plan.live) {
        TRY(sfp__files_save_running(run, all, &pace->save_bytes, err));
    } else {
        sfp__journal_times(&run->journal, run->arrivals);
        TRY(sfp__files_checkpoint(run, err));
    }
    pace->state_at = all ? begin : pace->state_at;
    pace->saved_at = sfp__monotonic_seconds();
    pace->save_seconds = pace->saved_at - begin;
    pace->train_seconds = 0;
    pace->unsaved = false;
    return SFP_OK;
}

static sfp_status checkpoint_if_due(sfp__run *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    sfp__pace *pace = &run->pace;
    double train_seconds = uses_wall_time(p) ? sfp__monotonic_seconds() - pace->saved_at : pace->train_seconds;
    bool something = run->begun && (p->live || run->at.timestamps > 0); /* there is something to resume */
    if (!p->opt->out || !pace->unsaved || !something || train_seconds < checkpoint_seconds(run))
        return SFP_OK;
    if (train_seconds >= CHECKPOINT_RATIO * pace->save_seconds)
        return save(run, false, err);
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
    sfp__journal_end_task(run);
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
    double from = sfp__time_now(&run->plan.time);
    TRY(sfp__predictor_run(run->predictor, n, rgb, NULL, run->plan.live ? SFP__WANT_UNKNOWN : 0, &found, err));
    *seconds = run->plan.costs.count ? 0 : sfp__time_now(&run->plan.time) - from;
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
            sfp__classes_trained(&run->classes, r->label);
    }
    return d->revision_count || d->save || d->asked ? begin(run, err) : SFP_OK;
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
    double saved = p->time.saved;
    TRY(sfp__learner_offer(run->learner, d->count, d->samples, &t, err));
    saved = p->time.saved - saved;
    at->prequential_total += (uint64_t)t.prequential_total;
    at->prequential_correct += (uint64_t)t.prequential_correct;
    run->pace.train_seconds += t.seconds.total - saved; /* only real time counts here, not the time that the cache has saved */
    if (run->arrivals->clock)
        sfp__clock_exclude(run->arrivals->clock, t.seconds.diagnostics); /* nothing is dropped because of diagnostics */
    const sfp__costs *costs = &p->costs;
    *seconds = costs->count           ? costs->seconds[at->timestamps % costs->count]
               : !isnan(costs->query) ? d->count * costs->query
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
    if (p->clock == SFP__CLOCK_PAPER && !run->resumed)
        TRY(sfp__plan_keep_batches(p, &run->at.cs, err));
    *ready = run->resumed || !sfp__plan_stopped(p);
    if (!*ready)
        return SFP_OK;
    if (!p->live && run->resumed)
        TRY(begin(run, err));
    run->journal.from = run->at.arrived;
    TRY(run->arrivals->kind->start(run->arrivals, err));
    sfp__journal_count(&run->journal, run->arrivals);
    if (p->live) {
        run->pace.notices_at = sfp__monotonic_seconds();
        run->pace.skipped = run->journal.r->samples.skipped;
        run->pace.dropped = run->journal.r->samples.dropped;
        run->pace.evaluations = run->journal.r->evaluation_count;
    }
    return SFP_OK;
}

/* Warns if more images were skipped than the `told` ones of the last warning. */
static void warn_skipped(const sfp__run *run, const sfp__skipped *skipped, const char *what, uint64_t told)
{
    char text[SFP_ERROR_MAX + 100];
    if (skipped->count <= told)
        return;
    sfp__skipped_text(skipped, what, text, sizeof text);
    sfp__plan_warn(&run->plan, "%s", text);
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

/* The time of the next message about skipped images and evaluations. A live stream may run for weeks, so it does not report them only at its end. */
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
    warn_skipped(run, &run->arrivals->counts.skipped, "image", pace->skipped);
    pace->skipped = r->samples.skipped;
    warn_dropped(run);
    if (r->evaluation_count > pace->evaluations)
        sfp__plan_info(&run->plan, "accuracy %.4f on the test set after %lld samples", r->accuracy[0],
                       (long long)run->at.arrived);
    pace->evaluations = r->evaluation_count;
    pace->notices_at = sfp__monotonic_seconds();
}

/* Live streams: prints that the run waits for images, if none has arrived until `due`. */
static void print_waiting_if_due(sfp__run *run, const sfp__delivery *d, double due)
{
    const sfp__plan *p = &run->plan;
    run->pace.arrived |= d->changed;
    if (run->pace.arrived || sfp__monotonic_seconds() < due)
        return;
    bool watched = p->source->kind->walks;
    sfp__plan_info(p, "waiting for images %s %s", watched ? "in" : "of", watched ? p->source->path : p->data);
    run->pace.arrived = true;
}

/* Processes one delivery. *end: there is none, or the run is stopped. */
static sfp_status process_delivery(sfp__run *run, bool *end, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    const uint64_t samples = (uint64_t)(p->batches.samples + p->unlabelled.count);
    sfp__arrivals *arrivals = run->arrivals;
    sfp__delivery d = {0};
    double seconds = 0;
    *end = !run->more_follows && sfp__plan_stopped(p) && !(arrivals->kind->has_work && arrivals->kind->has_work(arrivals));
    if (*end)
        return SFP_OK;
    double silent = p->live && !run->pace.arrived ? run->pace.notices_at + WAIT_SECONDS : INFINITY;
    double until = fmin(checkpoint_time(run), fmin(notice_time(run), silent));
    sfp_status status = sfp__arrivals_next(arrivals, until, &d, err);
    if (status) { /* the learned state is saved, if it is one that --resume can continue */
        bool something = p->opt->out && run->begun && run->at.timestamps > 0 && !run->more_follows;
        if (something && (!run->pace.unsaved || sfp__files_checkpoint(run, NULL) == SFP_OK))
            sfp__plan_info(p, "the learned state is kept; continue with the same command and --resume --out %s", p->opt->out);
        return status;
    }
    *end = d.end;
    if (d.end)
        return SFP_OK;
    print_waiting_if_due(run, &d, silent);
    TRY(reach_task(run, d.task, err));
    TRY(predict(run, &d, &seconds, err));
    TRY(revise(run, &d, err));
    TRY(train(run, &d, &seconds, err));
    TRY(sfp__gemm_check(run->failures, err)); /* before a checkpoint contains other bits */
    TRY(sfp__arrivals_commit(arrivals, seconds, err));
    sfp__journal_count(&run->journal, arrivals);
    unsigned asked = atomic_load(&arrivals->checkpoints_asked);
    if (d.asked)
        run->pace.state_at = -INFINITY;
    if (d.save || d.asked) {
        TRY(save(run, d.save, err));
        atomic_store(&arrivals->checkpoints_done, asked);
    }
    run->pace.unsaved |= d.changed;
    run->more_follows = d.more;
    if (!p->live) /* a live stream continues after any number of unreadable images: its length is unknown */
        TRY(sfp__skipped_check(&arrivals->counts.skipped, p->data, sfp__plan_max_skipped(p, samples), samples, err));
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
    const sfp__arrivals_counts *counts = &run->arrivals->counts;
    bool stopped = sfp__plan_stopped(p);
    if (!p->live && stopped)
        return SFP__STOPPED;
    if (run->at.timestamps == 0 && counts->skipped.count > counts->unread && !(p->live && counts->labels.unlabelled))
        return sfp__skipped_all(&counts->skipped, p->data, err);
    if (!p->live)
        return reach_task(run, p->tasks.count, err);
    sfp__arrivals_stats stats = run->arrivals->kind->stats(run->arrivals);
    if (stats.status)
        return run->begun ? SFP__STOPPED : sfp__fail(err, stats.status, "%s", stats.last_error);
    if (!run->begun && !run->resumed && !stopped)
        return sfp__fail(err, SFP_EFORMAT, "%s: the stream ended before an image arrived", p->data);
    return end_task(run, err);
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
    sfp__journal_finish(run, status == SFP_OK);
    if (status && !p->live) /* before the first timestamp there is nothing to resume */
        return p->opt->out && run->at.timestamps > 0 ? sfp__files_save_stopped(run, err) : SFP_OK;
    warn_skipped(run, &run->arrivals->counts.skipped, "image", run->pace.skipped);
    warn_dropped(run);
    if (run->evaluator)
        warn_skipped(run, &run->evaluator->skipped, "test image", 0);
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
