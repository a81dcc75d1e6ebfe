/* Two selectors without inputs.
 *
 * random: draws c of b samples uniformly without replacement: the first c cards of a shuffled deck, one bounded draw each. If
 * sigma >= 1, it chooses the whole batch in its own order and draws nothing.
 *
 * none: chooses the whole batch, regardless of sigma. */
#include "select/select_internal.h"

static sfp_status pick(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    sfp__candidates all;
    bool whole = false;
    TRY(sfp__select_begin(&sfp__selector_random, batch, opt, env, 0, NULL, &all, &whole, out, weight, count, err));
    if (whole)
        return SFP_OK;
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

const sfp__selector sfp__selector_random = {.name = "random", .summary = "uniformly at random", .pick = pick};

static sfp_status pick_all(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                           float *weight, int *count, sfp_error *err)
{
    (void)opt;
    (void)env;
    TRY(sfp__select_check(&sfp__selector_none, batch, err));
    sfp__select_whole(batch->b, out, weight, count);
    return SFP_OK;
}

const sfp__selector sfp__selector_none = {.name = "none", .summary = "the whole batch", .pick = pick_all};
