/* Class k of a state or a checkpoint is label k of an indexed stream: labels are numbers everywhere. So where both have a name
 * for it, the names must be the same, or what was learned would answer with the names of others. Live streams number their
 * classes by name (run_live.c) and need none of this. */
#include "base/text.h"
#include "learner/learner.h"
#include "run/run_internal.h"

#include <string.h>

/* Refuses class c of `path` when it has another name than label c of the stream; `wanted`: what is to be given instead. A
 * stream's names are UTF-8 (sfp__names_add): states and results hold them as they are. */
static sfp_status check_name(const char *path, int c, const char *then, const char *now, const char *wanted, sfp_error *err)
{
    char a[SFP_NAME_MAX], b[SFP_NAME_MAX];
    if (strcmp(then, now) == 0)
        return SFP_OK;
    return sfp__fail(err, SFP_EINVAL, "%s: class %d is '%s' there and '%s' in the stream, expected %s", path, c,
                     sfp__printable(then, a, sizeof a), sfp__printable(now, b, sizeof b), wanted);
}

sfp_status sfp__run_take_names(sfp__run_state *s, sfp_error *err)
{
    const char *wanted = s->tasks.free
                             ? "the data and --order that it was made with, or a live stream (dir:), which goes by names"
                             : "the data and --order that it was made with";
    sfp_status status = SFP_OK;
    for (int c = 0; !status && c < s->r->classes; c++) {
        const char *then = sfp__learner_class_name(s->learner, c), *now = s->r->class_names[c];
        status =
            then ? check_name(s->opt->init_state, c, then, now, wanted, err) : sfp__learner_name_class(s->learner, c, now, err);
    }
    return status;
}

sfp_status sfp__run_same_names(const sfp__run_state *s, const char *path, const sfp_result *then, sfp_error *err)
{
    sfp_status status = SFP_OK;
    for (int c = 0; !status && !s->live && c < s->r->classes && c < then->classes; c++)
        if (then->class_names[c])
            status = check_name(path, c, then->class_names[c], s->r->class_names[c], "the data that it was made with", err);
    return status;
}
