/* No selection: the whole batch, whatever sigma is. */
#include "select/select_internal.h"

static sfp_status pick(const sfp_select_batch *batch, const sfp_select_options *opt, const sfp_select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    (void)opt;
    (void)env;
    sfp_status status = sfp__select_check(&sfp__selector_none, batch, err);
    if (status == SFP_OK)
        sfp__select_whole(batch->b, out, weight, count);
    return status;
}

const sfp_selector sfp__selector_none = {.name = "none", .summary = "the whole batch", .pick = pick};
