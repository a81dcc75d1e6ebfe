/* The order of events in a run: open, steps, end. The learner measures its own time; decoding runs on background threads;
 * evaluation stops the clock. */
#include "run/run.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "compute/gemm.h"
#include "compute/kernels.h"
#include "io/directory.h"
#include "learner/state/state.h"
#include "results/result.h"
#include "run/options.h"
#include "run/run_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { CHECKPOINT_RATIO = 50 };         /* minimum time between checkpoints, as a multiple of the time that one takes */
enum { SAVE_BYTES_PER_SECOND = 20000 }; /* watched directories: maximum for checkpoints, 1.7 GB per day */
enum { NOTICE_SECONDS = 10 };           /* live streams: minimum time between messages about what was skipped and evaluated */
enum { WAIT_SECONDS = 5 };              /* live streams: time without an arrival until a message says that the run waits */
static const double MEMORY = 0.9;       /* weight of earlier measurements in the mean processing time per sample */

sfp__run_options sfp__run_options_defaults(sfp__vit *vit, sfp__thread_pool *pool)
{
    return (sfp__run_options){.vit = vit,
                              .pool = pool,
                              .learner = sfp__learner_options_defaults(vit),
                              .clock = SFP_CLOCK_OFF,
                              .calibrate = 20,
                              .pending = 1000,
                              .max_skipped = 0.01,
                              .cache_mebibytes = 4096,
                              .checkpoint_seconds = NAN,
                              .max_wait = NAN,
                              .log_bytes = 64 << 20,
                              .log_files = 4};
}

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

static void report_evaluation(void *ctx, uint64_t done)
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

/* SFP__STOPPED: the run was stopped, and nothing is recorded. */
static sfp_status evaluate(sfp__run *run, sfp_error *err)
{
    if (!run->evaluator)
        return SFP_OK;
    double from = sfp__monotonic_seconds();
    report_evaluation(run, 0);
    sfp__vit_memo_set_charging(run->plan.memo, false); /* evaluation is not part of the processing time */
    sfp_status status = evaluate_and_record(run, err);
    if (!status)
        status = sfp__gemm_check(run->failures, err);
    sfp__vit_memo_set_charging(run->plan.memo, true);
    double took = sfp__monotonic_seconds() - from;
    run->journal.r->seconds.evaluate += took;
    if (run->arrivals->clock)
        run->arrivals->clock->began += took; /* clock real: nothing is dropped because of an evaluation */
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

/* Does the stream have its own pace, so that seconds of training say little about when a checkpoint is due? */
static bool uses_wall_time(const sfp__plan *p)
{
    return p->live || p->clock == SFP_CLOCK_REAL;
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

static sfp_status set_classes(sfp__run *run, sfp_error *err)
{
    const sfp__task *task = &run->plan.tasks.task[run->at.task];
    if (run->plan.tasks.free)
        return SFP_OK;
    return sfp__learner_set_classes(run->learner, task->classes, task->class_of, err);
}

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
            TRY(set_classes(run, err));
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
        run->arrivals->clock->began += t.seconds.diagnostics; /* clock real: nothing is dropped because of diagnostics */
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

/* ----------------------------------------------------------------------- opening */

static sfp_status start_result(sfp__run *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    sfp_result *r = run->journal.r;
    TRY(sfp__result_init(r, p->tasks.count, p->tasks.classes, err));
    for (int t = 0; t < p->tasks.count; t++)
        TRY(sfp__check_memory((r->task_names[t] = sfp__strdup(p->tasks.task[t].name)), err));
    for (int c = 0; c < p->tasks.classes; c++)
        TRY(sfp__check_memory((r->class_names[c] = sfp__strdup(p->source->class_names[p->tasks.source_label[c]])), err));
    r->seed = p->opt->learner.seed;
    r->machine.threads = sfp__thread_pool_size(p->opt->pool);
    (void)snprintf(r->machine.cpu, sizeof r->machine.cpu, "%s", sfp__cpu_name());
    (void)snprintf(r->machine.kernels, sizeof r->machine.kernels, "%s", sfp__kernels_get()->isa);
    (void)snprintf(r->machine.gemm, sizeof r->machine.gemm, "%s", sfp__gemm_backend());
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        (void)strftime(r->started, sizeof r->started, "%Y-%m-%dT%H:%M:%SZ", &utc);
    TRY(sfp__settings_record(p->opt->given, r, err));
    TRY(sfp__run_record_preset(p->opt->given, r, err));
    if (!p->opt->clock_of_preset)
        return SFP_OK;
    TRY(sfp__result_config(r, "clock", sfp__clock_name(p->clock), err));
    return sfp__result_preset(r, "clock", sfp__clock_name(p->clock), err);
}

/* Without a clock nothing else is dropped, so the user is told why not all samples are processed. */
static void report_excluded(const sfp__plan *p)
{
    bool excludes = !p->live && p->opt->drop_short && p->clock == SFP_CLOCK_OFF;
    int64_t n = excludes ? sfp__batches_excluded(&p->tasks, p->opt->learner.batch, p->tasks.count) : 0;
    if (n > 0)
        sfp__plan_info(p, "%lld sample%s in short last batches of tasks %s excluded, as in the paper", (long long)n,
                       n == 1 ? "" : "s", n == 1 ? "is" : "are");
}

/* Finds the file of --init-state and refuses files of other kinds before anything is read from the stream. A run that resumes may not
 * need the file any more. */
static sfp_status find_init_state(sfp__run *run, sfp_error *err)
{
    const sfp__run_options *o = run->plan.opt;
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    sfp__state_pool pool;
    if (!o->init_state)
        return SFP_OK;
    TRY(sfp__state_path(o->init_state, run->init_state, sizeof run->init_state, err));
    if (o->resume)
        return SFP_OK;
    TRY(sfp__safetensors_open(run->init_state, &st, err));
    const char *format = sfp__tensor_file_meta(st, "format");
    if (format ? strcmp(format, SFP_STATE_FORMAT) == 0 || strcmp(format, SFP_CHECKPOINT_FORMAT) == 0
               : sfp__state_pool_read(st, &pool) && sfp__tensor_file_find(st, "last.weight"))
        return SFP_OK;
    return sfp__fail(err, SFP_EFORMAT, "%s: not a state or a checkpoint, expected one of them or a run directory",
                     run->init_state);
}

static sfp_status load_init_state(sfp__run *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    sfp__learner *l = run->learner;
    TRY(sfp__learner_load(l, run->init_state, err));
    if (!p->tasks.free && sfp__learner_task(l) > 0) /* its components are frozen for good */
        return sfp__fail(err, SFP_EINVAL,
                         "%s: the state is of task %d of %d, expected one of the first task or of a stream without tasks "
                         "(--tasks free), because each task has its own fingerprints",
                         run->init_state, sfp__learner_task(l) + 1, p->tasks.count);
    return sfp__classes_check_state(&run->classes, p, run->init_state, err);
}

/* The number of `count` images that may be unreadable. */
static uint64_t max_skipped(const sfp__plan *p, uint64_t count)
{
    return (uint64_t)ceil(p->opt->max_skipped * (double)count);
}

static sfp_status make_evaluator(sfp__run *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    if (!p->test)
        return SFP_OK;
    TRY(sfp__evaluator_create(p->test, &p->test_tasks, p->size, p->opt->learner.resize, run->predictor->tap_dim,
                              SFP_EVALUATOR_MEMORY, &run->evaluator, err));
    run->evaluator->on_progress = report_evaluation;
    run->evaluator->progress_ctx = run;
    run->evaluator->max_skipped = max_skipped(p, (uint64_t)run->evaluator->total);
    run->evaluator->stop = p->live ? NULL : p->hooks->stop; /* a live stream ends by being stopped and is evaluated then */
    return SFP_OK;
}

static sfp_status prepare(sfp__run *run, sfp_error *err)
{
    sfp__plan *p = &run->plan;
    const sfp__run_options *o = p->opt;
    sfp_result *r = run->journal.r;
    TRY(sfp__plan_open_source(p, err));
    TRY(sfp__files_check_apart(p, err));
    if (o->resume)
        TRY(sfp__files_check_resume(p, err));
    TRY(sfp__plan_split_tasks(p, err));
    if (!o->resume) /* a run that resumes must repeat its settings, with or without effect */
        TRY(sfp__run_check_no_effect(o, &(sfp__run_stream){.live = p->live, .tasks = !p->tasks.free}, err));
    TRY(start_result(run, err));
    TRY(sfp__plan_open_cache(p, err));
    TRY(sfp__plan_make_learner(p, &run->learner, err));
    if (o->diagnostics && !o->method)
        TRY(sfp__learner_start_diagnostics(run->learner, err));
    TRY(sfp__predictor_create(run->learner, o->pool, 0, &run->predictor, err));
    sfp__predictor_set_memo(run->predictor, p->memo);
    sfp__predictor_on_demand(run->predictor); /* one thread offers and predicts in turn */
    TRY(sfp__classes_init(&run->classes, p, run->learner, r, err));
    if (run->init_state[0])
        TRY(load_init_state(run, err));
    TRY(set_classes(run, err));
    TRY(sfp__journal_init(&run->journal, p, err));
    if (p->live)
        TRY(sfp__classes_restore(&run->classes, p, err));
    TRY(sfp__plan_clock(p, err));
    report_excluded(p);
    r->lambda = o->rate > 0 ? o->rate : NAN;
    TRY(p->live ? sfp__arrivals_live(p, r, &run->classes, &run->arrivals, err)
                : sfp__arrivals_indexed(p, r, &run->arrivals, err));
    run->arrivals->query_seconds = &run->at.query_seconds;
    run->arrivals->arrived = &run->at.arrived;
    run->arrivals->learner = run->learner;
    return make_evaluator(run, err);
}

/* Finds the place in the stream to start from. Changes nothing in the directory. */
static sfp_status find_start(sfp__run *run, sfp_error *err)
{
    sfp__plan *p = &run->plan;
    bool finished = false;
    if (p->opt->resume)
        TRY(sfp__files_resume(run, &finished, err));
    run->ended_before = finished && !p->live;
    if (run->ended_before)
        return SFP_OK;
    if (run->resumed)
        TRY(set_classes(run, err));
    run->journal.r->finished = false;
    TRY(sfp__classes_check_strict(&run->classes, err));
    if (p->live) { /* an evaluation of an earlier process does not describe the present state */
        run->journal.r->tasks_done = 0;
        run->journal.r->average_accuracy = run->journal.r->forgetting = run->journal.r->backward_transfer = NAN;
    }
    if (!p->test && !p->live) /* a live stream has a prequential accuracy */
        sfp__plan_info(p, "no test set: accuracy is not measured; use --test KIND:PATH");
    return p->live || run->resumed ? SFP_OK : sfp__plan_find_readable(p, run->journal.shown.rgb, err);
}

static sfp_status open_run(sfp__run *run, sfp_error *err)
{
    TRY(find_init_state(run, err));
    if (run->plan.opt->out)
        TRY(sfp__files_lock(run, err));
    TRY(prepare(run, err));
    return find_start(run, err);
}

sfp_status sfp__run_open(const sfp__run_options *opt, const sfp__run_hooks *hooks, sfp_result *result, sfp__run **out,
                         sfp_error *err)
{
    double now = sfp__monotonic_seconds();
    OWNED_PTR(sfp__run_close) sfp__run *run = sfp__calloc(1, sizeof *run);
    memset(result, 0, sizeof *result);
    if (!run) {
        sfp__source_close(opt->source);
        sfp__source_close(opt->test_source);
        return sfp__fail_nomem(err);
    }
    run->plan = (sfp__plan){.opt = opt, .hooks = hooks, .source = opt->source, .test = opt->test_source};
    run->at = (sfp__position){.evaluated.timestamps = -1, .cs = NAN};
    run->journal = (sfp__journal){.r = result, .began = now};
    run->pace = (sfp__pace){.saved_at = now, .state_at = -INFINITY, .notices_at = now};
    run->lock = -1;
    run->failures = sfp__gemm_failures();
    TRY(open_run(run, err));
    *out = TAKE(run);
    return SFP_OK;
}

void sfp__run_close(sfp__run *run)
{
    if (!run)
        return;
    const char *out = run->plan.opt->out;
    if (!run->begun && !run->resumed && run->arrivals && run->arrivals->store)
        sfp__store_discard(run->arrivals->store);
    sfp__journal_done(&run->journal);
    sfp__arrivals_free(run->arrivals);
    sfp__evaluator_free(run->evaluator);
    sfp__classes_done(&run->classes);
    sfp__predictor_free(run->predictor);
    sfp__learner_free(run->learner);
    sfp__plan_done(&run->plan);
    sfp__directory_leave(out, run->created, run->lock);
    sfp__free(run);
}

int64_t sfp__run_batches(const sfp__run *run, int task, int64_t *samples)
{
    const sfp__plan *p = &run->plan;
    int64_t count = 0, n = 0;
    for (int64_t k = 0; k < p->batches.count; k++)
        count += task == -1 || p->batches.task[k] == task;
    for (int t = 0; t < p->tasks.count && !p->live; t++)
        n += task == -1 || t == task ? p->tasks.task[t].count : 0;
    if (samples)
        *samples = n;
    return count;
}

sfp_status sfp__run_measure(const sfp__run *run, double *seconds, sfp_error *err)
{
    if (run->plan.live || run->phase != SFP__RUN_OPENED)
        return sfp__fail(err, SFP_EINVAL, "the processing time can be measured on a dataset only, before the first step");
    return sfp__plan_measure(&run->plan, seconds, err);
}

/* ------------------------------------------------------------------------- steps */

/* Prepares the run for its first delivery. *ready false: there is nothing to do. */
static sfp_status start(sfp__run *run, bool *ready, sfp_error *err)
{
    sfp__plan *p = &run->plan;
    *ready = false;
    if (run->ended_before)
        return sfp__files_complete(run, err);
    if (p->clock == SFP_CLOCK_PAPER && !run->resumed) {
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
    if (p->live || skipped <= max_skipped(p, count))
        return SFP_OK;
    sfp__arrivals_stats stats = run->arrivals->kind->stats(run->arrivals);
    return sfp__skipped_too_many(p->data, skipped, max_skipped(p, count), count,
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
