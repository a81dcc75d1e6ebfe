/* StreamFP's coreset (paper Eq. 5, docs/method.md, section 5): the samples in the middle of the ranking by score. It excludes
 * both the samples that the fingerprints represent best and those that are far from all components. Draws no random number. */
#include "select/select_internal.h"

static sfp_status pick(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    int *order;
    const sfp__want want = {&order, (size_t)batch->b, sizeof *order};
    TRY(sfp__select_check(&sfp__selector_streamfp, batch, err));
    sfp__arena_reset(env->arena);
    TRY(sfp__arena_list(env->arena, 1, &want, err));
    sfp__rank_descending(batch->b, batch->score, order);
    *count = sfp__coreset_window(batch->b, order, opt, out);
    sfp__select_equal_weights(*count, weight);
    return SFP_OK;
}

const sfp__selector sfp__selector_streamfp = {
    .name = "streamfp",
    .summary = "middle of the ranking by similarity to the fingerprints",
    .needs = SFP__NEED_SCORE,
    .pick = pick,
};
