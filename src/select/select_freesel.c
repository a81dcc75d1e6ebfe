/* FreeSel (Xie et al., "Towards Free Data Selection with General-Purpose Models", NeurIPS 2023; docs/method.md, section 11). It
 * computes one vector per image from the patch tokens with the highest attention of the class token, then applies D^2 sampling on
 * the cosine distance.
 *
 * Cost: one query pass, whose queries are kept for training; then n*c*D multiplications in matrix products (cover.h). cover.h
 * lists the random numbers.
 *
 * Difference from the authors: they divide the kept tokens of an image into several patterns by spectral clustering and sample
 * patterns. Here an image has one pattern, the mean of its kept tokens. Attention is summed over heads. The kept tokens are the
 * smallest set, by descending attention, whose sum is at least half of the attention to all patches. */
#include "select/cover.h"

#include "compute/vec.h"

#include <string.h>

void sfp__freesel_pool(int T, int D, int H, const float *tokens, const float *attention, int *order, float *mass, float *out)
{
    int L = T - 1, kept = 0;
    double total = 0, sum = 0;
    memset(mass, 0, (size_t)T * sizeof *mass);
    for (int h = 0; h < H; h++)
        sfp__axpy(L, 1, attention + (size_t)h * (size_t)T + 1, mass);
    for (int t = 0; t < L; t++)
        total += (double)mass[t];
    sfp__rank_descending(L, mass, order);
    memset(out, 0, (size_t)D * sizeof *out);
    while (kept < L && (kept == 0 || sum < 0.5 * total)) {
        sum += (double)mass[order[kept]];
        sfp__axpy(D, 1, tokens + (size_t)(order[kept++] + 1) * (size_t)D, out);
    }
    for (int k = 0; k < D; k++)
        out[k] /= (float)(kept ? kept : 1);
}

static sfp_status pick(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    const sfp__matrix pooled = {batch->pooled, batch->dim};
    sfp__candidates from;
    bool whole = false;
    TRY(sfp__select_begin(&sfp__selector_freesel, batch, opt, env, 1, &pooled, &from, &whole, out, weight, count, err));
    if (whole)
        return SFP_OK;
    int got = from.c < from.n ? from.c : from.n;
    float *x;
    int *picked;
    const sfp__want list[] = {{&x, (size_t)from.n * (size_t)pooled.width, sizeof *x}, {&picked, (size_t)from.n, sizeof *picked}};
    TRY(sfp__arena_list(env->arena, SFP__LIST(list), err));
    sfp__select_gather(&from, &pooled, x);
    if (!opt->euclidean)
        sfp__unit_rows(from.n, pooled.width, x);
    TRY(sfp__d2_sample(env, from.n, pooled.width, x, !opt->euclidean, got, picked, err));
    sfp__select_equal_weights(got, weight);
    sfp__select_end(&from, got, picked, out, weight, count);
    return SFP_OK;
}

const sfp__selector sfp__selector_freesel = {
    .name = "freesel",
    .summary = "D^2 sampling on the patch tokens that the class token attends to",
    .needs = SFP__NEED_ATTENTION,
    .pick = pick,
};
