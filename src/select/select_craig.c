/* CRAIG (Mirzasoleiman, Bilmes and Leskovec, "Coresets for Data-efficient Training of Machine Learning Models", ICML 2020; SPEC
 * section 11): facility location F(S) = sum_i max_{j in S} (d_max - |g_i - g_j|) on last-layer gradients, lazy greedy; the weight
 * of a chosen sample is how many are nearest to it (itself too). Draws no random number.
 *
 * Cost: one prompted pass over the batch; then about (2 + ln c) blocked passes over all pairs, n^2*(C + D) multiplications each,
 * when the pairs do not fit memory, else two (facility.h). Memory as facility.h says.
 *
 * From the authors: they select a class at a time and, in the code this is compared with, over batches of which each chooses one,
 * so that everything is chosen; here a batch is one ground set. */
#include "select/facility.h"
#include "select/lastlayer.h"

static sfp_status pick(const sfp_select_batch *batch, const sfp_select_options *opt, const sfp_select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    sfp_candidates from;
    sfp_metric metric;
    bool whole = false;
    sfp_status status =
        sfp__lastlayer_begin(&sfp__selector_craig, batch, opt, env, &from, &metric, &whole, out, weight, count, err);
    if (status != SFP_OK || whole)
        return status;
    int got = from.c < from.n ? from.c : from.n, *picked, *size;
    const int group[] = {0, from.n};
    const sfp_want list[] = {{&picked, (size_t)from.n, sizeof *picked}, {&size, (size_t)from.n, sizeof *size}};
    const sfp_facility f = {
        .env = env, .metric = &metric, .groups = from.n > 0, .group = group, .id = from.id, .pairs = SFP_FACILITY_PAIRS};
    if ((status = SFP_SELECT_TAKE(env, list, err)) || (status = sfp__facility_greedy(&f, got, picked, err)) ||
        (got > 0 && (status = sfp__facility_clusters(&f, got, picked, size, err))))
        return status;
    for (int i = 0; weight && i < got; i++)
        weight[i] = (float)size[i];
    sfp__select_end(&from, got, picked, out, weight, count);
    return SFP_OK;
}

const sfp_selector sfp__selector_craig = {
    .name = "craig",
    .summary = "covers the gradients of the last layer; weights are cluster sizes",
    .needs = SFP_NEED_FEATURES | SFP_NEED_PROBS,
    .pick = pick,
};
