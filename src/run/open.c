/* Opens a run: checks the settings, opens the stream, makes all parts (run_internal.h) and finds the place to start from. Nothing in
 * the directory changes before the first step. */
#include "run/run.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "compute/gemm.h"
#include "io/directory.h"
#include "learner/state/state.h"
#include "run/run_internal.h"
#include "stream/log.h"
#include "stream/submitted.h"

#include <math.h>
#include <string.h>

sfp__run_options sfp__run_options_defaults(sfp__vit *vit, sfp__thread_pool *pool)
{
    return (sfp__run_options){.vit = vit,
                              .pool = pool,
                              .learner = sfp__learner_options_defaults(vit),
                              .clock = SFP__CLOCK_OFF,
                              .calibrate = 20,
                              .pending = 1000,
                              .max_skipped = 0.01,
                              .cache_mebibytes = 4096,
                              .checkpoint_seconds = NAN,
                              .max_wait = NAN,
                              .image_mebibytes = 1024,
                              .claim_seconds = 60,
                              .log_bytes = 64 << 20,
                              .log_files = 4};
}

sfp_status sfp__run_set_classes(sfp__run *run, sfp_error *err)
{
    const sfp__task *task = &run->plan.tasks.task[run->at.task];
    if (run->plan.tasks.free)
        return SFP_OK;
    return sfp__learner_set_classes(run->learner, task->classes, task->class_of, err);
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
    if (format ? strcmp(format, SFP__STATE_FORMAT) == 0 || strcmp(format, SFP__CHECKPOINT_FORMAT) == 0
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
    if (!p->tasks.free && sfp__learner_task(l) > 0) /* the components of its earlier tasks would stay frozen */
        return sfp__fail(err, SFP_EINVAL,
                         "%s: the state is of task %d of %d, expected one of the first task or of a stream without tasks "
                         "(--tasks free), because each task has its own fingerprints",
                         run->init_state, sfp__learner_task(l) + 1, p->tasks.count);
    return sfp__classes_check_state(&run->classes, p, run->init_state, err);
}

static sfp_status make_evaluator(sfp__run *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    TRY(sfp__evaluator_create(p->test, &p->test_tasks, p->size, sfp__learner_resize(&p->opt->learner), run->predictor->tap_dim,
                              SFP__EVALUATOR_MEMORY, &run->evaluator, err));
    run->evaluator->on_progress = sfp__run_report_evaluation;
    run->evaluator->progress_ctx = run;
    run->evaluator->max_skipped = sfp__plan_max_skipped(p, (uint64_t)run->evaluator->total);
    run->evaluator->stop = p->live ? NULL : p->hooks->stop; /* stopping a live stream ends it, and it is evaluated afterwards */
    return SFP_OK;
}

/* Opens the stream and makes all parts. */
static sfp_status make_parts(sfp__run *run, sfp_error *err)
{
    sfp__plan *p = &run->plan;
    const sfp__run_options *o = p->opt;
    TRY(sfp__plan_open_source(p, err));
    TRY(sfp__files_check_apart(p, err));
    if (o->resume)
        TRY(sfp__files_check_resume(p, err));
    TRY(sfp__plan_split_tasks(p, err));
    if (!o->resume) /* a run that resumes must repeat its settings, with or without effect */
        TRY(sfp__run_check_no_effect(o, &(sfp__run_stream){.live = p->live, .tasks = !p->tasks.free}, err));
    TRY(sfp__journal_init(&run->journal, p, err));
    TRY(sfp__plan_open_cache(p, err));
    TRY(sfp__plan_make_learner(p, &run->learner, err));
    if (o->diagnostics && !o->method)
        TRY(sfp__learner_start_diagnostics(run->learner, err));
    TRY(sfp__predictor_create(run->learner, o->pool, 0, &run->predictor, err));
    sfp__predictor_set_memo(run->predictor, p->memo);
    sfp__predictor_on_demand(run->predictor); /* one thread offers and predicts in turn */
    TRY(sfp__classes_init(&run->classes, p, run->learner, &run->journal, err));
    if (run->init_state[0])
        TRY(load_init_state(run, err));
    TRY(sfp__run_set_classes(run, err));
    if (p->live)
        TRY(sfp__classes_restore(&run->classes, p, err));
    TRY(sfp__plan_clock(p, err));
    TRY(sfp__source_log(p->source) ? sfp__arrivals_log(p, &run->at, run->learner, &run->classes, &run->arrivals, err)
        : p->live                  ? sfp__arrivals_live(p, &run->at, run->learner, &run->classes, &run->arrivals, err)
                                   : sfp__arrivals_indexed(p, &run->at, run->learner, &run->arrivals, err));
    return p->test ? make_evaluator(run, err) : SFP_OK;
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
        TRY(sfp__run_set_classes(run, err));
    TRY(sfp__classes_check_strict(&run->classes, err));
    if (!p->test && !p->live) /* a live stream has a prequential accuracy */
        sfp__plan_info(p, "no test set: accuracy is not measured; use --test KIND:PATH");
    return p->live || run->resumed ? SFP_OK : sfp__plan_find_readable(p, run->journal.shown.rgb, err);
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
    TRY(find_init_state(run, err));
    if (opt->out)
        TRY(sfp__files_lock(run, err));
    TRY(make_parts(run, err));
    TRY(find_start(run, err));
    *out = TAKE(run);
    return SFP_OK;
}

void sfp__run_close(sfp__run *run)
{
    if (!run)
        return;
    const char *out = run->plan.opt->out;
    if (!run->begun && !run->resumed && run->arrivals && run->arrivals->store && !run->plan.source->ops->image)
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

bool sfp__run_takes_samples(const sfp__run *run)
{
    return sfp__is_submitted(run->plan.source);
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
