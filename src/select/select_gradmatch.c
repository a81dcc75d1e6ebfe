/* GradMatch (Killamsetty et al., "GRAD-MATCH: Gradient Matching based Data Subset Selection", ICML 2021;
 * docs/method.md, section 11): weights w >= 0 on few samples whose last-layer gradients add up to those of all, by orthogonal
 * matching pursuit (omp.h).
 *
 * Cost: one prompted pass over the batch; then omp.h. When no correlation is positive before c are chosen the rest is drawn
 * uniformly: one bounded draw each, weight 1; nothing is drawn otherwise.
 *
 * From the authors: they match over batches, of which each is one column, and in the code this is compared with every batch is
 * chosen; here a column is a sample. Their fit clips what comes out negative; here it is the exact non-negative minimum. */
#include "select/omp.h"

/* The deck of those of n that are not in picked[0..got), then draws until there are `want`. */
static void fill_up(sfp__rng *rng, int n, int got, int want, int *picked, int *deck)
{
    int left = 0;
    for (int i = 0; i < n; i++)
        deck[i] = 1;
    for (int i = 0; i < got; i++)
        deck[picked[i]] = 0;
    for (int i = 0; i < n; i++)
        if (deck[i])
            deck[left++] = i;
    for (; got < want; got++) {
        int k = (int)sfp__rng_below(rng, (uint32_t)left);
        picked[got] = deck[k];
        deck[k] = deck[--left];
    }
}

static sfp_status choose(const sfp__select_env *env, const sfp__metric *m, const int *id, int want, int *picked, double *weight,
                         sfp_error *err)
{
    int got = 0, *deck;
    const sfp__want list[] = {{&deck, (size_t)m->n, sizeof *deck}};
    (void)id; /* candidates are in the order of the batch: a lower position is a lower index */
    TRY(sfp__arena_list(env->arena, SFP_LIST(list), err));
    TRY(sfp__omp(env, m, SFP_OMP_GRAM, want, picked, weight, &got, err));
    for (int i = got; i < want; i++)
        weight[i] = 1;
    fill_up(env->rng, m->n, got, want, picked, deck);
    return SFP_OK;
}

static sfp_status pick(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    return sfp__lastlayer_pick(&sfp__selector_gradmatch, choose, batch, opt, env, out, weight, count, err);
}

const sfp__selector sfp__selector_gradmatch = {
    .name = "gradmatch",
    .summary = "few weighted gradients of the last layer that add up to all",
    .needs = SFP_NEED_FEATURES | SFP_NEED_PROBS,
    .weighs = true,
    .pick = pick,
};
