#include "cli/engine.h"

#include "base/error.h"
#include "base/mem.h"
#include "cli/ui.h"
#include "io/directory.h"
#include "learner/state/state.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

sfp_status sfp__cli_engine_open(const sfp__args *a, const char *state, sfp_engine **out, sfp_error *err)
{
    sfp_engine_options o = SFP_ENGINE_OPTIONS_INIT;
    o.threads = (int32_t)sfp__args_int(a, "threads");
    o.image_size = (int32_t)sfp__args_int(a, "img-size");
    o.precision =
        state && !sfp__args_given(a, "precision") ? SFP_PRECISION_AUTO : (sfp_precision)sfp__args_choice(a, "precision");
    o.state = state;
    o.log = sfp__print_log;
    /* without --backbone, the engine finds the backbone that the state names */
    return sfp_engine_open(state && !sfp__args_given(a, "backbone") ? NULL : sfp__args_string(a, "backbone"), &o, out, err);
}

/* Counts the tasks whose states a run has written. */
static sfp_status count_task_states(const char *directory, int *count, sfp_error *err)
{
    char name[64];
    for (bool has = true; has; *count += has) {
        (void)snprintf(name, sizeof name, "state-task-%d.safetensors", *count + 1);
        TRY(sfp__directory_has(directory, name, &has, err));
    }
    return SFP_OK;
}

sfp_status sfp__cli_check_state(const char *given, sfp_error *err)
{
    static const char resume[] = "continue it with the same command and --resume";
    static const char *const checkpoints[] = {"checkpoint", "checkpoint.old"};
    bool state, checkpoint;
    int tasks = 0;
    TRY(sfp__directory_has(given, "state.safetensors", &state, err));
    TRY(sfp__directory_has_any(given, SFP__LIST(checkpoints), &checkpoint, err));
    if (state || !checkpoint)
        return SFP_OK;
    TRY(count_task_states(given, &tasks, err));
    if (tasks == 0)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: the run has not finished a task, so it has no state; %s", given, resume);
    return sfp__fail(err, SFP_ENOTFOUND, "%s: the run has not finished; %s, or use %s/state-task-%d.safetensors", given, resume,
                     given, tasks);
}

void sfp__cli_report_no_scores(const char *state)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    char path[PATH_MAX];
    if (sfp__state_path(state, path, sizeof path, NULL) || sfp__safetensors_open(path, &st, NULL))
        return;
    const char *method = sfp__tensor_file_meta(st, "method");
    bool has = method && (strcmp(method, "ridge") == 0 || strcmp(method, "slda") == 0);
    sfp__info("%s: images have no score for \"none of these?\": %s", state,
              has ? "fewer than 20 samples could be held out while learning" : "only states of ridge and slda have one");
}
