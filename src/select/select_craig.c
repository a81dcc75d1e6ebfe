/* CRAIG (Mirzasoleiman, Bilmes and Leskovec, "Coresets for Data-efficient Training of Machine Learning Models", ICML 2020;
 * docs/method.md, section 11). It maximises the facility location function F(S) = sum_i max_{j in S} (d_max - |g_i - g_j|) on
 * last-layer gradients with the lazy greedy algorithm. The weight of a chosen sample is the number of samples that are nearest to
 * it, including itself. Draws no random number.
 *
 * Cost: one prompted pass over the batch. Then two blocked passes over all pairs, or about (2 + ln c) if the pairs do not fit in
 * memory, with n^2*(C + D) multiplications each. facility.h states the memory.
 *
 * Difference from the authors: they select within one class at a time. Here a batch is one ground set. (In the code of StreamFP's
 * authors the ground set consists of batches, each of which chooses one, so that everything is chosen.) */
#include "select/facility.h"

/* Chooses `want` points greedily. Writes their weights: cluster sizes. */
static sfp_status choose(const sfp__select_env *env, const sfp__metric *m, const int *id, int want, int *picked, double *weight,
                         sfp_error *err)
{
    const int group[] = {0, m->n};
    const sfp__facility f = {.env = env, .metric = m, .groups = 1, .group = group, .id = id, .max_pairs = SFP__FACILITY_PAIRS};
    int *size;
    const sfp__want list[] = {{&size, (size_t)want, sizeof *size}};
    TRY(sfp__arena_list(env->arena, SFP__LIST(list), err));
    TRY(sfp__facility_greedy(&f, want, picked, err));
    TRY(sfp__facility_clusters(&f, want, picked, size, err));
    for (int i = 0; i < want; i++)
        weight[i] = size[i];
    return SFP_OK;
}

static sfp_status pick(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    return sfp__lastlayer_pick(&sfp__selector_craig, choose, batch, opt, env, out, weight, count, err);
}

const sfp__selector sfp__selector_craig = {
    .name = "craig",
    .summary = "cover of the last-layer gradients; weights are cluster sizes",
    .needs = SFP__NEED_FEATURES | SFP__NEED_PROBS,
    .weighs = true,
    .pick = pick,
};
