/* The order of things in a run, and its loop. Learning is timed by the learner itself; decoding runs ahead on threads of its own;
 * evaluation stops the clock. */
#include "run/run.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "compute/gemm.h"
#include "compute/kernels.h"
#include "io/directory.h"
#include "results/result.h"
#include "run/run_internal.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { CHECKPOINT_PART = 50 }; /* the time between checkpoints is at least so many times what one takes */
_Static_assert((int)SFP_RESULT_HEADS == (int)SFP_HEAD_MEMBERS, "a result has the accuracy of every expert of a mixed head");

sfp__run_options sfp__run_options_defaults(sfp__vit *vit, sfp__thread_pool *pool)
{
    return (sfp__run_options){.vit = vit,
                              .pool = pool,
                              .learner = sfp__learner_options_defaults(vit),
                              .clock = SFP_CLOCK_OFF,
                              .calibrate = 20,
                              .pending = 1000,
                              .checkpoint_seconds = 2};
}

/* The folder is made ready when there is something to write: what is broken from the start changes nothing. */
static sfp_status begin(sfp__run_context *run, sfp_error *err)
{
    if (!run->begun && run->plan.opt->out) {
        TRY(sfp__files_clear(&run->plan, run->resumed, err));
        TRY(sfp__journal_open(&run->journal, &run->plan, run->at.timestamps, run->arrivals, err));
    }
    run->begun = true;
    return SFP_OK;
}

/* ----------------------------------------------------------------- evaluation */

/* What each head of a mixed one would have said alone. */
static sfp_status record_heads(sfp__run_context *run, int row, sfp_error *err)
{
    sfp_result *r = run->journal.r;
    for (int h = 0; h < SFP_RESULT_HEADS; h++)
        for (int j = 0; j <= row; j++) {
            double member_accuracy = run->evaluator->member_accuracy[h * run->plan.test_tasks.count + j];
            if (isnan(member_accuracy)) /* not mixed, or no image of this task could be read */
                continue;
            double *a = sfp__result_head(r, h);
            TRY(sfp__check_memory(a, err));
            a[(size_t)row * (size_t)r->tasks + (size_t)j] = member_accuracy;
        }
    return SFP_OK;
}

static void tell_evaluation(void *ctx, uint64_t done)
{
    const sfp__run_context *run = ctx;
    const sfp__run_hooks *hooks = run->plan.hooks;
    if (hooks->evaluating)
        hooks->evaluating(hooks->ctx, run->at.task, done, sfp__evaluator_images(run->evaluator, run->at.task));
}

static sfp_status ask_and_note(sfp__run_context *run, sfp_error *err)
{
    sfp_result *r = run->journal.r;
    int row = run->at.task;
    double *accuracy = r->accuracy + (size_t)row * (size_t)r->tasks;
    if (run->plan.live)
        TRY(sfp__classes_match(&run->classes, &run->plan, err));
    TRY(sfp__evaluator_run(run->evaluator, run->predictor, row, accuracy, r->classes, r->confusion, err));
    TRY(record_heads(run, row, err));
    TRY(sfp__result_evaluated(r, (uint64_t)run->at.arrived, row, accuracy, err));
    run->at.evaluated.timestamps = run->at.timestamps;
    run->at.evaluated.task = row;
    return SFP_OK;
}

/* SFP__STOPPED: the run was, and nothing is noted. */
static sfp_status evaluate(sfp__run_context *run, sfp_error *err)
{
    if (!run->evaluator)
        return SFP_OK;
    double from = sfp__monotonic_seconds();
    tell_evaluation(run, 0);
    sfp_status status = ask_and_note(run, err);
    double took = sfp__monotonic_seconds() - from;
    run->journal.r->seconds.evaluate += took;
    if (run->arrivals->clock)
        run->arrivals->clock->began += took; /* the real one: what arrives meanwhile is not lost to a test */
    return status;
}

/* After a timestamp; stays due when it is stopped. */
static sfp_status evaluate_if_due(sfp__run_context *run, sfp_error *err)
{
    if (run->at.evaluation_due)
        TRY(evaluate(run, err));
    run->at.evaluation_due = false;
    return SFP_OK;
}

/* --------------------------------------------------------------------- saving */

/* Images come when they come: training seconds may be few and far between. */
static bool takes_its_time(const sfp__plan *p)
{
    return p->live || p->clock == SFP_CLOCK_REAL;
}

/* When a live stream, which may rest for long, is to be saved meanwhile. */
static double save_at(const sfp__run_context *run)
{
    const sfp__pace *pace = &run->pace;
    const sfp__run_options *o = run->plan.opt;
    return pace->unsaved && run->begun && o->out
               ? pace->saved_at + fmax(o->checkpoint_seconds, CHECKPOINT_PART * pace->save_seconds)
               : INFINITY;
}

static sfp_status save_if_due(sfp__run_context *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    sfp__pace *pace = &run->pace;
    double train_seconds = takes_its_time(p) ? sfp__monotonic_seconds() - pace->saved_at : pace->train_seconds;
    bool something = run->begun && (p->live || run->at.timestamps > 0); /* to go on from */
    if (!p->opt->out || !pace->unsaved || !something || train_seconds < p->opt->checkpoint_seconds)
        return SFP_OK;
    if (train_seconds >= CHECKPOINT_PART * pace->save_seconds) {
        sfp__journal_times(&run->journal, run->arrivals);
        return sfp__files_checkpoint(run, err);
    }
    if (!pace->reported)
        sfp__plan_info(p, "a checkpoint takes %.2g s: one is written every %.0f s%s, to cost no more than 2 %%",
                       pace->save_seconds, CHECKPOINT_PART * pace->save_seconds, takes_its_time(p) ? "" : " of training");
    pace->reported = true;
    return SFP_OK;
}

/* ---------------------------------------------------------------------- tasks */

static sfp_status set_classes(sfp__run_context *run, sfp_error *err)
{
    const sfp__task *task = &run->plan.tasks.task[run->at.task];
    if (run->plan.tasks.free)
        return SFP_OK;
    return sfp__learner_set_classes(run->learner, task->classes, task->class_of, err);
}

/* The task at hand has ended: evaluation, state. */
static sfp_status end_task(sfp__run_context *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    sfp__position *at = &run->at;
    if (at->evaluated.timestamps != at->timestamps ||
        at->evaluated.task != at->task) /* --eval-every fell on its last timestamp */
        TRY(evaluate(run, err));
    run->journal.r->tasks_done = at->task + 1;
    sfp__result_summarise(run->journal.r);
    if (p->opt->out) {
        char name[64], path[PATH_MAX];
        (void)snprintf(name, sizeof name, "state-task-%d.safetensors", at->task + 1);
        TRY(sfp__plan_path(p, name, path, sizeof path, err));
        TRY(sfp__learner_save(run->learner, path, err));
    }
    return SFP_OK;
}

/* Ends the tasks before `task`. All of them has arrived then, also what the clock dropped. */
static sfp_status reach_task(sfp__run_context *run, int task, sfp_error *err)
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

/* Predicts what came without a label; *seconds: what that took. */
static sfp_status answer(sfp__run_context *run, const sfp__delivery *d, double *seconds, sfp_error *err)
{
    const uint8_t *rgb[SFP__GROUP];
    bool has_query[SFP__GROUP] = {false};
    int32_t label[SFP__GROUP];
    float probability[SFP__GROUP];
    int n = d->predict_count;
    if (n == 0)
        return SFP_OK;
    for (int i = 0; i < n; i++)
        rgb[i] = d->predict[i].rgb;
    double from = sfp__monotonic_seconds();
    TRY(sfp__predictor_ask(run->predictor, n, rgb, run->query, has_query, label, probability, err));
    *seconds = run->plan.cost_count ? 0 : sfp__monotonic_seconds() - from;
    return sfp__journal_predict(&run->journal, run->at.timestamps, d, label, probability, err);
}

/* The controller (ours): what a batch may cost is the time in which it arrives, less what the images without a label that came
 * with it took; how many samples that buys follows from what they cost lately. Given costs are taken whole: they do not say what
 * part scoring has. */
static void control(sfp__run_context *run, double time, const sfp__timestamp_details *t, double cost)
{
    const sfp__learner_options *o = &run->plan.opt->learner;
    int trained = 0;
    for (int k = 0; k < t->steps; k++)
        trained += t->coreset_count + t->replay_count[k];
    if (trained == 0)
        return;
    double fixed = run->plan.cost_count ? 0 : t->seconds.select + t->seconds.buffer, each = (cost - fixed) / trained;
    double budget = time - fixed - 0.5 * run->arrivals->lag->last; /* a part of the lag is worked off with every batch */
    int replayed = sfp__learner_buffer(run->learner) ? o->replay : 0;
    int full = sfp__coreset_size(o->batch, o->coreset.sigma), most = (full + replayed) * o->steps;
    int samples = each > 0 && budget / each < most ? (int)fmax(budget / each, 0) : most;
    samples = samples < 2 ? 2 : samples;
    int replay = samples / 2 < replayed ? samples / 2 : replayed, coreset = samples - replay;
    int steps = coreset > full && o->steps > 1 ? coreset / full : 1;
    sfp__learner_set_limits(run->learner, coreset < full ? coreset : full, replay < 1 ? 1 : replay,
                            steps < o->steps ? steps : o->steps);
}

/* One timestamp; *seconds: what the clock is to count for it. */
static sfp_status learn(sfp__run_context *run, const sfp__delivery *d, double *seconds, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    sfp__position *at = &run->at;
    sfp__timestamp_details t;
    if (d->arrived >= 0)
        at->arrived = d->arrived;
    if (d->count == 0)
        return SFP_OK;
    TRY(sfp__learner_offer(run->learner, d->count, d->samples, &t, err));
    at->prequential_total += (uint64_t)t.prequential_total;
    at->prequential_correct += (uint64_t)t.prequential_correct;
    run->pace.train_seconds += t.seconds.total;
    *seconds = p->cost_count ? p->costs[at->timestamps % p->cost_count] : t.seconds.total;
    TRY(sfp__journal_write(run, d, &t, err));
    at->timestamps++;
    at->evaluation_due = !d->more && p->opt->eval_every > 0 && at->timestamps % p->opt->eval_every == 0;
    if (!p->opt->method && p->opt->controller && run->arrivals->lag && isfinite(d->time))
        control(run, d->time, &t, *seconds);
    sfp__learner_update_slack(run->learner, d->time, *seconds);
    return SFP_OK;
}

/* ------------------------------------------------------------------------ run */

/* Until the stream ends or the run is stopped. */
static sfp_status loop(sfp__run_context *run, sfp_error *err)
{
    sfp__arrivals *arrivals = run->arrivals;
    sfp__delivery d = {0};
    TRY(arrivals->kind->start(arrivals, err));
    TRY(evaluate_if_due(run, err)); /* of a run that was stopped within it */
    while (d.more || !sfp__plan_stopped(&run->plan)) {
        double seconds = 0;
        TRY(sfp__arrivals_next(arrivals, save_at(run), &d, err));
        if (d.end)
            break;
        if (d.count || d.predict_count)
            TRY(begin(run, err));
        TRY(reach_task(run, d.task, err));
        TRY(answer(run, &d, &seconds, err));
        TRY(learn(run, &d, &seconds, err));
        sfp__arrivals_commit(arrivals, seconds);
        run->pace.unsaved |= d.changed;
        if (d.more)
            continue;
        TRY(evaluate_if_due(run, err));
        TRY(save_if_due(run, err));
    }
    return SFP_OK;
}

/* The stream has ended, or was stopped, which is how a live one ends. */
static sfp_status end_stream(sfp__run_context *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    sfp_result *r = run->journal.r;
    sfp__arrivals_stats stats = run->arrivals->kind->stats(run->arrivals);
    uint64_t unreadable = r->samples.skipped - stats.unread; /* of those that the clock kept */
    bool stopped = sfp__plan_stopped(p);
    if (!p->live && stopped)
        return SFP__STOPPED;
    if (run->at.timestamps == 0 && unreadable > 0 && !(p->live && r->labels.unlabelled))
        return sfp__plan_none_readable(p, unreadable, stats.first_error, err);
    if (!p->live)
        return reach_task(run, p->tasks.count, err);
    if (stats.status) { /* what an earlier process evaluated is not what is there now */
        r->tasks_done = 0;
        r->average_accuracy = r->forgetting = r->backward_transfer = NAN;
        return run->begun ? SFP__STOPPED : sfp__fail(err, stats.status, "%s", stats.last_error);
    }
    if (!run->begun && !run->resumed && !stopped)
        return sfp__fail(err, SFP_EFORMAT, "%s: ended before an image came", p->opt->data);
    TRY(begin(run, err));
    return end_task(run, err);
}

static sfp_status start_result(sfp__run_context *run, sfp_error *err)
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
    return sfp__settings_record(p->opt->given, r, err);
}

static sfp_status load_init_state(sfp__run_context *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    sfp__learner *l = run->learner;
    TRY(sfp__learner_load(l, p->opt->init_state, err));
    if (!p->tasks.free && sfp__learner_task(l) > 0) /* its components are frozen: there is no way back */
        return sfp__fail(err, SFP_EINVAL, "%s: is of task %d of %d, expected one of the first, with which a run begins",
                         p->opt->init_state, sfp__learner_task(l) + 1, p->tasks.count);
    return sfp__classes_take_names(&run->classes, p, err);
}

static sfp_status make_evaluator(sfp__run_context *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    if (!p->test)
        return SFP_OK;
    TRY(sfp__evaluator_create(p->test, &p->test_tasks, p->size, p->opt->learner.resize, p->dim, SFP_EVALUATOR_MEMORY,
                              &run->evaluator, err));
    run->evaluator->on_progress = tell_evaluation;
    run->evaluator->progress_ctx = run;
    run->evaluator->stop = p->live ? NULL : p->hooks->stop; /* a live one ends by being stopped, and is judged then */
    return SFP_OK;
}

static sfp_status prepare(sfp__run_context *run, sfp_error *err)
{
    sfp__plan *p = &run->plan;
    const sfp__run_options *o = p->opt;
    sfp_result *r = run->journal.r;
    TRY(sfp__plan_open_source(p, err));
    if (o->resume)
        TRY(sfp__files_may_resume(p, err));
    TRY(sfp__plan_split_tasks(p, err));
    if (!o->resume) /* whoever goes on gives what was given then, idle or not */
        TRY(sfp__run_check_no_effect(o, &(sfp__run_stream){.live = p->live, .tasks = !p->tasks.free}, err));
    TRY(start_result(run, err));
    TRY(sfp__plan_make_learner(p, &run->learner, err));
    TRY(sfp__predictor_create(run->learner, o->pool, 0, &run->predictor, err));
    sfp__predictor_on_demand(run->predictor); /* one thread offers and asks in turn */
    TRY(sfp__classes_init(&run->classes, p->tasks.classes, run->learner, r, err));
    if (o->init_state && !o->method)
        TRY(load_init_state(run, err));
    TRY(set_classes(run, err));
    TRY(sfp__journal_init(&run->journal, p, err));
    TRY(sfp__alloc(&run->query, SFP__GROUP * (size_t)p->dim, sizeof *run->query, err));
    if (p->live)
        TRY(sfp__classes_take(&run->classes, p, err));
    TRY(sfp__plan_clock(p, err));
    r->lambda = o->rate > 0 ? o->rate : NAN;
    TRY(p->live ? sfp__arrivals_live(p, r, &run->classes, &run->arrivals, err)
                : sfp__arrivals_indexed(p, r, &run->arrivals, err));
    return make_evaluator(run, err);
}

/* Nothing was begun until this returns: what is in the folder stays. *ready false: there is nothing to do. */
static sfp_status find_start(sfp__run_context *run, bool *ready, sfp_error *err)
{
    sfp__plan *p = &run->plan;
    bool finished = false;
    *ready = false;
    if (p->opt->resume)
        TRY(sfp__files_resume(run, &finished, err));
    if (finished && !p->live)
        return SFP_OK;
    if (run->resumed)
        TRY(set_classes(run, err));
    run->journal.r->finished = false;
    if (!p->test && !p->live) /* a live one is judged by what comes */
        sfp__plan_info(p, "no test set: accuracy is not measured; give --test KIND:PATH");
    if (!p->live && !run->resumed)
        TRY(sfp__plan_find_readable(p, run->journal.shown.rgb, err));
    if (p->clock == SFP_CLOCK_PAPER && !run->resumed) {
        TRY(sfp__plan_keep_batches(p, &run->at.cs, err));
        run->journal.r->cs = run->at.cs;
    }
    *ready = run->resumed || !sfp__plan_stopped(p);
    return SFP_OK;
}

static void say_skipped(const sfp__run_context *run)
{
    uint64_t skipped = run->journal.r->samples.skipped, tests = run->evaluator ? run->evaluator->skipped : 0;
    sfp__arrivals_stats stats = run->arrivals->kind->stats(run->arrivals);
    const char *first = stats.first_error[0] ? stats.first_error : stats.first_unread;
    if (skipped)
        sfp__plan_info(&run->plan, "%llu image%s could not be read and %s left out%s%s", (unsigned long long)skipped,
                       skipped == 1 ? "" : "s", skipped == 1 ? "was" : "were", *first ? "; the first: " : "", first);
    if (tests)
        sfp__plan_info(&run->plan, "%llu test image%s could not be read and %s left out; the first: %s",
                       (unsigned long long)tests, tests == 1 ? "" : "s", tests == 1 ? "was" : "were",
                       run->evaluator->first_error);
}

/* A live stream broke off: what was learned is there to go on from. */
static sfp_status break_off(const sfp__run_context *run, sfp_error *err)
{
    sfp__arrivals_stats stats = run->arrivals->kind->stats(run->arrivals);
    uint64_t n = sfp__learner_get_counts(run->learner).offered;
    if (run->plan.opt->out)
        sfp__plan_info(&run->plan,
                       "the stream broke off; what was learned from %llu image%s is kept: go on with --resume --out %s",
                       (unsigned long long)n, n == 1 ? "" : "s", run->plan.opt->out);
    return sfp__fail(err, stats.status, "%s", stats.last_error);
}

static sfp_status run_all(sfp__run_context *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    bool ready;
    if (p->opt->out)
        TRY(sfp__files_take(p, &run->lock, err));
    TRY(prepare(run, err));
    TRY(find_start(run, &ready, err));
    if (!ready)
        return SFP_OK;
    if (!p->live) /* which begins when something comes */
        TRY(begin(run, err));
    run->journal.from = run->at.arrived;
    sfp_status status = loop(run, err);
    if (!status)
        status = end_stream(run, err);
    if (status && status != SFP__STOPPED)
        return status;
    run->journal.r->finished = status == SFP_OK;
    sfp__journal_finish(run);
    if (status && !p->live) /* before the first timestamp there is nothing to go on from */
        return p->opt->out && run->at.timestamps > 0 ? sfp__files_leave(run, err) : SFP_OK;
    say_skipped(run);
    if (p->opt->out)
        TRY(sfp__files_outputs(run, err));
    return status ? break_off(run, err) : SFP_OK;
}

sfp_status sfp__run(const sfp__run_options *opt, const sfp__run_hooks *hooks, sfp_result *result, sfp_error *err)
{
    double now = sfp__monotonic_seconds();
    sfp__run_context run = {.plan = {.opt = opt, .hooks = hooks},
                            .at = {.evaluated.timestamps = -1, .cs = NAN},
                            .journal = {.r = result, .began = now},
                            .pace.saved_at = now,
                            .lock = -1};
    memset(result, 0, sizeof *result);
    sfp_status status = run_all(&run, err);
    sfp__journal_done(&run.journal);
    sfp__arrivals_free(run.arrivals);
    sfp__evaluator_free(run.evaluator);
    sfp__classes_done(&run.classes);
    sfp__predictor_free(run.predictor);
    sfp__learner_free(run.learner);
    sfp__plan_done(&run.plan);
    sfp__free(run.query);
    sfp__directory_unlock(run.lock);
    return status;
}
