/* Merging of tokens (docs/method.md, section 18): after the attention of a block, pairs of similar tokens become one, so that all later
 * products have fewer rows.
 *
 * Patch tokens are divided alternately into a first and a second set: tokens 1, 3, 5, ... and 2, 4, 6, ... The similarity of two tokens is
 * the cosine of their keys, averaged over the heads. Each token of the first set has a partner, the most similar of the second, and the R
 * most similar pairs are merged. Ties are decided by the lower index. Tokens that remain keep their order, so neighbours in the image stay
 * in different sets. Everything is computed on one lane, in a fixed order. */
#include "compute/vec.h"
#include "model/vit_internal.h"

#include <math.h>
#include <string.h>

/* Returns the index of token t in the array of keys, in which those of the first set come first. */
static int place_of(int t, int first)
{
    return t % 2 ? t / 2 : first + t / 2 - 1;
}

/* Writes the unit keys of the tokens of sample i, averaged over heads: those of the first set, then those of the second. */
static void unit_keys(const sfp__vit_microbatch *u, int l, int i, float *out)
{
    const sfp__vit *v = u->plan->v;
    int T = u->plan->tokens[l], D = v->config.dim, d = v->head_dim, w = sfp__gemm_panel(v->packed[l].qkv), first = T / 2;
    memset(out, 0, (size_t)(T - 1) * (size_t)d * sizeof *out);
    for (int h = 0; h < v->config.heads; h++) {
        const float *key = sfp__vit_panel_at(u->lane->saved[l].qkv, u->n * T, w, i * T, D + h * d); /* of the class token */
        for (int t = 1; t < T; t++)
            sfp__axpy(d, 1, key + (size_t)t * (size_t)w, out + (size_t)place_of(t, first) * (size_t)d);
    }
    for (int t = 0; t < T - 1; t++, out += d) {
        float length = sqrtf(sfp__dot(d, out, out)), f = length > 0 ? 1 / length : 0;
        for (int c = 0; c < d; c++)
            out[c] *= f;
    }
}

/* Writes the `count` tokens of the first set with the most similar partners to lane->best. */
static void choose_pairs(const sfp__vit_lane *lane, int first, int count)
{
    int chosen = 0;
    for (int a = 0; a < first; a++) {
        int at = chosen < count ? chosen++ : count;
        for (; at > 0 && lane->cosine[a] > lane->cosine[lane->best[at - 1]]; at--)
            if (at < count)
                lane->best[at] = lane->best[at - 1];
        if (at < count)
            lane->best[at] = a;
    }
}

void sfp__vit_merge(const sfp__vit_microbatch *u, int l, float *x)
{
    const sfp__vit_lane *lane = u->lane;
    int T = u->plan->tokens[l], left = u->plan->tokens[l + 1], d = u->plan->v->head_dim, first = T / 2, second = T - 1 - first;
    size_t D = (size_t)u->plan->v->config.dim;
    float *to = x, *size_to = lane->size;
    for (int i = 0; i < u->n; i++) {
        float *from = x + (size_t)i * (size_t)T * D, *size = lane->size + (size_t)i * (size_t)T;
        unit_keys(u, l, i, lane->keys);
        u->plan->kernels->nearest_rows(first, second, d, lane->keys, lane->keys + (size_t)first * (size_t)d, lane->partner,
                                       lane->cosine, u->scratch);
        *u->flops += 2.0 * first * second * d;
        choose_pairs(lane, first, T - left);
        for (int k = 0; k < T - left; k++) {
            int a = 1 + 2 * lane->best[k], b = 2 + 2 * lane->partner[lane->best[k]];
            float sum = size[a] + size[b], fa = size[a] / sum, fb = size[b] / sum;
            float *xa = from + (size_t)a * D, *xb = from + (size_t)b * D;
            for (size_t c = 0; c < D; c++)
                xb[c] = xa[c] * fa + xb[c] * fb;
            size[b] = sum;
            size[a] = 0; /* merged: the token is removed below */
        }
        for (int t = 0, end; t < T; t = end + 1) { /* moves the tokens between two removed ones */
            for (end = t; end < T && size[end] > 0; end++)
                *size_to++ = size[end];
            if (to != from + (size_t)t * D)
                memmove(to, from + (size_t)t * D, (size_t)(end - t) * D * sizeof *to);
            to += (size_t)(end - t) * D;
        }
    }
}
