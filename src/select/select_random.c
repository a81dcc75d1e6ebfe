/* c of b uniformly without replacement: the first c cards of a shuffled deck, one bounded draw each. The whole batch
 * (sigma >= 1) is taken in its own order and draws nothing. */
#include "select/select_internal.h"

static sfp_status pick(const sfp_select_batch *batch, const sfp_select_options *opt, const sfp_select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    sfp_candidates all;
    bool whole = false;
    sfp_status status = sfp__select_begin(&sfp__selector_random, batch, opt, env, 0, NULL, &all, &whole, out, weight, count, err);
    if (status != SFP_OK || whole)
        return status;
    int *deck = all.id;
    for (int i = 0; i < all.c; i++) {
        int k = i + (int)sfp__rng_below(env->rng, (uint32_t)(all.b - i));
        out[i] = deck[k];
        deck[k] = deck[i];
    }
    sfp__select_equal_weights(all.c, weight);
    *count = all.c;
    return SFP_OK;
}

const sfp_selector sfp__selector_random = {.name = "random", .summary = "uniformly at random", .pick = pick};
