#include "cli/engine.h"

#include "base/error.h"
#include "cli/ui.h"
#include "io/directory.h"

#include <stdio.h>

sfp_status sfp__cli_engine_open(const sfp__args *a, const char *state, sfp_engine **out, sfp_error *err)
{
    sfp_engine_options o = SFP_ENGINE_OPTIONS_INIT;
    o.threads = (int32_t)sfp__args_int(a, "threads");
    o.image_size = (int32_t)sfp__args_int(a, "img-size");
    o.precision = sfp__args_choice(a, "precision") == 1 ? SFP_PRECISION_BF16 : SFP_PRECISION_F32;
    o.state = state;
    o.log = sfp__print_log;
    return sfp_engine_open(sfp__args_string(a, "backbone"), &o, out, err);
}

/* The number of tasks whose states a run has written. */
static int count_task_states(const char *directory)
{
    char name[64];
    for (int i = 1;; i++) {
        (void)snprintf(name, sizeof name, "state-task-%d.safetensors", i);
        if (!sfp__directory_has(directory, name))
            return i - 1;
    }
}

sfp_status sfp__cli_check_state(const char *given, sfp_error *err)
{
    static const char resume[] = "continue it with the same command and --resume";
    if (sfp__directory_has(given, "state.safetensors") ||
        !(sfp__directory_has(given, "checkpoint") || sfp__directory_has(given, "checkpoint.old")))
        return SFP_OK;
    int tasks = count_task_states(given);
    if (tasks == 0)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: the run has not finished a task, so it has no state; %s", given, resume);
    return sfp__fail(err, SFP_ENOTFOUND, "%s: the run has not finished; %s, or use %s/state-task-%d.safetensors", given, resume,
                     given, tasks);
}
