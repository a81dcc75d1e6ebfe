/* GradMatch (Killamsetty et al., "GRAD-MATCH: Gradient Matching based Data Subset Selection", ICML 2021; SPEC section 11):
 * weights w >= 0 on few samples whose last-layer gradients add up to those of all, by orthogonal matching pursuit (omp.h).
 *
 * Cost: one prompted pass over the batch; then omp.h. When no correlation is positive before c are chosen the rest is drawn
 * uniformly: one bounded draw each, weight 1; nothing is drawn otherwise.
 *
 * From the authors: they match over batches, of which each is one column, and in the code this is compared with every batch is
 * chosen; here a column is a sample. Their fit clips what comes out negative; here it is the exact non-negative minimum. */
#include "select/lastlayer.h"
#include "select/omp.h"

/* The deck of candidates not in picked[0..got), then draws until c. */
static int fill_up(const sfp_candidates *from, sfp_rng *rng, int got, int want, int *picked, int *deck)
{
    int left = 0;
    for (int i = 0; i < from->n; i++)
        deck[i] = 1;
    for (int i = 0; i < got; i++)
        deck[picked[i]] = 0;
    for (int i = 0; i < from->n; i++)
        if (deck[i])
            deck[left++] = i;
    for (; got < want; got++) {
        int k = (int)sfp__rng_below(rng, (uint32_t)left);
        picked[got] = deck[k];
        deck[k] = deck[--left];
    }
    return got;
}

static sfp_status pick(const sfp_select_batch *batch, const sfp_select_options *opt, const sfp_select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    sfp_candidates from;
    sfp_metric metric;
    bool whole = false;
    sfp_status status =
        sfp__lastlayer_begin(&sfp__selector_gradmatch, batch, opt, env, &from, &metric, &whole, out, weight, count, err);
    if (status != SFP_OK || whole)
        return status;
    int want = from.c < from.n ? from.c : from.n, got = 0, *picked, *deck;
    double *w;
    const sfp_want list[] = {
        {&picked, (size_t)from.n, sizeof *picked}, {&deck, (size_t)from.n, sizeof *deck}, {&w, (size_t)from.n, sizeof *w}};
    if ((status = SFP_SELECT_TAKE(env, list, err)) || (status = sfp__omp(env, &metric, SFP_OMP_GRAM, want, picked, w, &got, err)))
        return status;
    for (int i = 0; weight && i < want; i++)
        weight[i] = i < got ? (float)w[i] : 1;
    got = fill_up(&from, env->rng, got, want, picked, deck);
    sfp__select_end(&from, got, picked, out, weight, count);
    return SFP_OK;
}

const sfp_selector sfp__selector_gradmatch = {
    .name = "gradmatch",
    .summary = "few weighted gradients of the last layer that add up to all",
    .needs = SFP_NEED_FEATURES | SFP_NEED_PROBS,
    .pick = pick,
};
