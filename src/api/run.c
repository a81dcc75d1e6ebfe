/* Runs (streamfp.h, part 8). */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "run/run.h"
#include "stream/source.h"

#include <unistd.h>

struct sfp_run {
    pid_t process; /* the process that opened the run; a child cannot use it, because it has no copy of the threads */
    sfp__run *core;
    sfp__args args; /* the settings; opt points to its texts */
    sfp__run_options opt;
    sfp__run_hooks hooks;
    sfp_result result;
    atomic_int stop;
    atomic_bool steps; /* true from the end of the first step until the last one: samples can be submitted */
};
DEFINE_OWNED_PTR(sfp_run, sfp_run_close)

/* Records the name of a caller's source as the value of a setting, which accepts only KIND:PATH from users. */
static sfp_status record_source(sfp__args *a, const char *key, const sfp_source *s, sfp_error *err)
{
    sfp__value *v = &a->values[sfp__args_find(a, key) - a->opts];
    char *name = sfp__strdup(s->path);
    TRY(sfp__check_memory(name, err));
    sfp__free(v->text);
    v->text = name;
    v->rank = SFP__RANK_COMMAND_LINE;
    return SFP_OK;
}

static sfp_status read_options(sfp_run *run, const sfp_engine *e, const sfp_settings *settings, const sfp_run_options *o,
                               sfp_error *err)
{
    char note[SFP_ERROR_MAX];
    TRY(sfp__api_run_options(e, settings, o->source != NULL, &run->args, &run->opt, note, err));
    if (o->source) {
        TRY(record_source(&run->args, "data", o->source, err));
        run->opt.data = NULL;
    }
    if (o->test) {
        TRY(record_source(&run->args, "test", o->test, err));
        run->opt.test = NULL;
    }
    if (*note && run->hooks.log)
        run->hooks.log(run->hooks.log_ctx, SFP_LOG_INFO, note);
    return SFP_OK;
}

/* Takes the sources of *o, which are NULL from then on. */
static sfp_status open_run(sfp_engine *e, const sfp_settings *settings, sfp_run_options *o, sfp_run **out, sfp_error *err)
{
    OWNED_PTR(sfp_run_close) sfp_run *run = NULL;
    SFP__REQUIRE(e && out, "engine and out");
    TRY(sfp__thread_pool_check(e->pool, "the engine", err));
    TRY(sfp__alloc(&run, 1, sizeof *run, err));
    run->process = getpid();
    run->hooks = (sfp__run_hooks){.ctx = o->ctx,
                                  .log_ctx = o->log ? o->ctx : e->opt.log_ctx,
                                  .progress = o->progress,
                                  .log = o->log ? o->log : e->opt.log,
                                  .stop = &run->stop};
    TRY(read_options(run, e, settings, o, err));
    run->opt.source = TAKE(o->source);
    run->opt.test_source = TAKE(o->test);
    TRY(sfp__run_open(&run->opt, &run->hooks, &run->result, &run->core, err));
    *out = TAKE(run);
    return SFP_OK;
}

sfp_status sfp_run_open(sfp_engine *e, const sfp_settings *settings, const sfp_run_options *options, sfp_run **out,
                        sfp_error *err)
{
    IN_LIBRARY;
    sfp_run_options o;
    TRY(sfp__api_options(options, &o, sizeof o, "sfp_run_options", err));
    if (o.source && o.source == o.test) {
        sfp__source_close(o.source);
        return sfp__fail(err, SFP_EINVAL, "source and test are the same object, expected two sources");
    }
    sfp_status status = open_run(e, settings, &o, out, err);
    sfp__source_close(o.source);
    sfp__source_close(o.test);
    return status;
}

static sfp_status check_process(const sfp_run *run, sfp_error *err)
{
    if (run->process != getpid())
        return sfp__fail(err, SFP_EUNSUPPORTED,
                         "the run was opened by another process, which has its threads; open it after fork");
    return SFP_OK;
}

sfp_status sfp_run_step(sfp_run *run, int *more, sfp_error *err)
{
    IN_LIBRARY;
    bool follows = false;
    SFP__REQUIRE(run && more, "run and more");
    TRY(check_process(run, err));
    sfp_status status = sfp__run_step(run->core, &follows, err);
    atomic_store(&run->steps, follows); /* false also after a failure */
    TRY(status);
    *more = follows;
    return SFP_OK;
}

sfp_status sfp_run_finish(sfp_run *run, sfp_error *err)
{
    IN_LIBRARY;
    SFP__REQUIRE(run, "run");
    TRY(check_process(run, err));
    for (bool more = true; more;)
        TRY(sfp__run_step(run->core, &more, err));
    return SFP_OK;
}

sfp__run *sfp__api_run(sfp_run *run)
{
    return run->core;
}

sfp_status sfp__api_takes_samples(sfp_run *run, sfp_error *err)
{
    SFP__REQUIRE(run, "run");
    TRY(check_process(run, err));
    if (!sfp__run_takes_samples(run->core))
        return sfp__fail_key(err, "data", SFP_EINVAL,
                             "data is '%s', expected submitted or watch:DIR,sync: other sources do not accept samples",
                             sfp__args_text(&run->args, "data"));
    if (!atomic_load(&run->steps))
        return sfp__fail(err, SFP_ECANCELLED,
                         "the run has not begun, or has ended or failed, expected samples between its first and its last step");
    return SFP_OK;
}

int64_t sfp_run_batches(const sfp_run *run, int task, int64_t *samples)
{
    return sfp__run_batches(run->core, task, samples);
}

sfp_status sfp_run_measure(sfp_run *run, double *seconds, sfp_error *err)
{
    IN_LIBRARY;
    SFP__REQUIRE(run && seconds, "run and seconds");
    TRY(check_process(run, err));
    return sfp__run_measure(run->core, seconds, err);
}

_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "sfp_run_cancel is called from signal handlers");

void sfp_run_cancel(sfp_run *run)
{
    atomic_store(&run->stop, 1);
}

const sfp_result *sfp_run_result(const sfp_run *run)
{
    return &run->result;
}

void sfp_run_close(sfp_run *run)
{
    if (!run || run->process != getpid())
        return;
    sfp__run_close(run->core);
    sfp__result_done(&run->result);
    sfp__args_done(&run->args);
    sfp__free(run);
}
