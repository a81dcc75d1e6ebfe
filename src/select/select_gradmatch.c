/* GradMatch (Killamsetty et al., "GRAD-MATCH: Gradient Matching based Data Subset Selection", ICML 2021; docs/method.md, section
 * 11). It finds weights w >= 0 for few samples whose weighted last-layer gradients approximate the sum over all samples, by
 * orthogonal matching pursuit (omp.h).
 *
 * Cost: one prompted pass over the batch, then omp.h. If no correlation is positive before c samples are chosen, the rest is
 * drawn uniformly with weight 1: one bounded draw per sample. Otherwise nothing is drawn.
 *
 * Difference from the authors: they match batches, each of which is one column, and in their code every batch is chosen. Here a
 * column is a sample. Their fit clips negative weights; here it is the exact non-negative minimum. */
#include "select/omp.h"

/* Appends positions drawn uniformly from those of [0, n) that are not in picked[0..got), until there are `want`. */
static void fill_at_random(sfp__rng *rng, int n, int got, int want, int *picked, int *unpicked)
{
    int remaining = 0;
    for (int i = 0; i < n; i++)
        unpicked[i] = 1;
    for (int i = 0; i < got; i++)
        unpicked[picked[i]] = 0;
    for (int i = 0; i < n; i++)
        if (unpicked[i])
            unpicked[remaining++] = i;
    for (; got < want; got++) {
        int k = (int)sfp__rng_below(rng, (uint32_t)remaining);
        picked[got] = unpicked[k];
        unpicked[k] = unpicked[--remaining];
    }
}

static sfp_status choose(const sfp__select_env *env, const sfp__metric *m, const int *id, int want, int *picked, double *weight,
                         sfp_error *err)
{
    int got = 0, *unpicked;
    const sfp__want list[] = {{&unpicked, (size_t)m->n, sizeof *unpicked}};
    (void)id; /* candidates are in batch order, so a lower position is a lower index */
    TRY(sfp__arena_list(env->arena, SFP__LIST(list), err));
    TRY(sfp__omp(env, m, SFP__OMP_GRAM, want, picked, weight, &got, err));
    for (int i = got; i < want; i++)
        weight[i] = 1;
    fill_at_random(env->rng, m->n, got, want, picked, unpicked);
    return SFP_OK;
}

static sfp_status pick(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    return sfp__lastlayer_pick(&sfp__selector_gradmatch, choose, batch, opt, env, out, weight, count, err);
}

const sfp__selector sfp__selector_gradmatch = {
    .name = "gradmatch",
    .summary = "few weighted last-layer gradients that match the sum of all",
    .needs = SFP__NEED_FEATURES | SFP__NEED_PROBS,
    .weighs = true,
    .pick = pick,
};
