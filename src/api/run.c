/* Runs (streamfp.h, part 8). */
#include "api/api.h"

#include "base/c_locale.h"
#include "base/mem.h"
#include "run/run.h"

struct sfp_run {
    sfp__run *core;
    sfp__run_options opt;
    sfp__run_hooks hooks;
    sfp_result result;
    atomic_int stop;
};

sfp_status sfp_run_step(sfp_run *run, int *more, sfp_error *err)
{
    IN_C_LOCALE;
    bool follows = false;
    if (!run || !more)
        return sfp__fail(err, SFP_EINVAL, "run and more must not be NULL");
    TRY(sfp__run_step(run->core, &follows, err));
    *more = follows;
    return SFP_OK;
}

sfp_status sfp_run_finish(sfp_run *run, sfp_error *err)
{
    IN_C_LOCALE;
    if (!run)
        return sfp__fail(err, SFP_EINVAL, "run must not be NULL");
    for (bool more = true; more;)
        TRY(sfp__run_step(run->core, &more, err));
    return SFP_OK;
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
    if (!run)
        return;
    sfp__run_close(run->core);
    sfp__result_done(&run->result);
    sfp__free(run);
}
