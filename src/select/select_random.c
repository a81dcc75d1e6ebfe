/* c of b uniformly without replacement: the first c cards of a shuffled deck, one bounded draw each. The whole batch
 * (sigma >= 1) is taken in its own order and draws nothing. */
#include "select/select_internal.h"

static sfp_status pick(const sfp_select_batch *batch, const sfp_select_options *opt, sfp_rng *rng, int *work, int *out,
                       float *weight, int *count, sfp_error *err)
{
    sfp_status status = sfp__select_check(&sfp__selector_random, batch, err);
    if (status != SFP_OK)
        return status;
    int b = batch->b, c = sfp__coreset_size(b, opt->sigma);
    if (opt->sigma >= 1) {
        sfp__select_whole(b, out, weight, count);
        return SFP_OK;
    }
    for (int i = 0; i < b; i++)
        work[i] = i;
    for (int i = 0; i < c; i++) {
        int k = i + (int)sfp__rng_below(rng, (uint32_t)(b - i));
        out[i] = work[k];
        work[k] = work[i];
    }
    sfp__select_equal_weights(c, weight);
    *count = c;
    return SFP_OK;
}

const sfp_selector sfp__selector_random = {.name = "random", .summary = "uniformly at random", .pick = pick};
