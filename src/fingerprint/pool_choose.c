/* Pools that a sample chooses from: the components whose keys have the largest
 * cosine with its query (ties: lower index) make its prefix, one after another,
 * their key halves first, then their value halves. The choice itself has no
 * gradient; keys learn from a term of their own,
 *
 *     sum_b w_b mean over layers with keys and components chosen of (1 - cos(q_b, K_k)),
 *
 * w_b the weight of the sample's cross-entropy: with the means of coreset and
 * replay it is a mean in each. dK_k = -w (qh - cos Kh) / |K|, qh and Kh of unit
 * length.
 *
 * A sample of the present task has only the components that learn to choose
 * from; rehearsed samples, and all in a test, have every one in use: a slot of
 * the buffer does not tell the task it came with, its key does. A layer without
 * keys has one component, which all take.
 *
 * Cost a layer: 2 b N D operations for the cosines, parts * N comparisons and a
 * copy a sample; the backward is as many additions. */
#include "compute/gemm.h"
#include "compute/vec.h"
#include "fingerprint/pool_kind.h"

#include <math.h>
#include <string.h>

enum { MOST_PARTS = 8 };

void sfp__choose_prepare(sfp_fp *f, int l)
{
    int D = f->D;
    for (int k = 0; f->k[l].data && k < f->open; k++) {
        const float *K = f->k[l].data + (size_t)k * (size_t)D;
        float length = fmaxf(sqrtf(sfp__dot(D, K, K)), SFP_FP_TINY), *unit = f->ak[l] + (size_t)k * (size_t)D;
        f->knorm[l][k] = length;
        for (int c = 0; c < D; c++)
            unit[c] = K[c] / length;
    }
}

/* The `parts` components of [from, open) with the largest cosines, in that order. NaN comes last. */
static void choose(int from, int open, int parts, const float *cosine, int *pick)
{
    for (int j = 0; j < parts; j++) {
        int best = -1;
        for (int k = from; k < open; k++) {
            bool taken = false;
            for (int i = 0; i < j; i++)
                taken = taken || pick[i] == k;
            if (!taken && (best < 0 || cosine[k] > cosine[best] || (isnan(cosine[best]) && !isnan(cosine[k]))))
                best = k;
        }
        pick[j] = best < 0 ? 0 : best;
    }
}

static void pick_of(const sfp_fp_view *v, int l, bool any_task, const float *cosine, int *pick)
{
    if (v->ak[l])
        choose(any_task ? 0 : v->start, v->open[l], v->parts, cosine, pick);
    else
        pick[0] = 0;
}

/* Where half `h` of part j of a prefix begins, in floats; a component's halves lie together. */
static size_t half_at(int parts, int j, int h, size_t half)
{
    return (size_t)(h * parts + j) * half;
}

void sfp__choose_compose(const sfp_fp_view *v, int l, const sfp__composing *c)
{
    int D = v->dim, N = v->open[l], pick[MOST_PARTS];
    size_t half = (size_t)(v->length / 2) * (size_t)D;
    for (int i = 0; i < c->n && v->ak[l]; i++) {
        const float *q = c->query + (size_t)i * (size_t)D;
        float *unit = c->work + (size_t)i * (size_t)D, length = fmaxf(sqrtf(sfp__dot(D, q, q)), SFP_FP_TINY);
        for (int k = 0; k < D; k++)
            unit[k] = q[k] / length;
    }
    if (v->ak[l])
        sfp__gemm_plain(false, true, c->n, N, D, c->work, D, v->ak[l], D, 0, c->alpha, c->ld);
    for (int i = 0; i < c->n; i++) {
        float *prefix = c->prefix + (size_t)i * 2 * half * (size_t)v->parts;
        pick_of(v, l, c->test || (c->rehearsed && c->rehearsed[i]), c->alpha + (size_t)i * (size_t)c->ld, pick);
        for (int j = 0; j < v->parts; j++)
            for (int h = 0; h < 2; h++) {
                float *to = prefix + half_at(v->parts, j, h, half);
                memcpy(to, v->prefix[l] + (size_t)(2 * pick[j] + h) * half, half * sizeof *to);
                for (int r = 0; v->bias[l] && r < v->length / 2; r++)
                    sfp__axpy(D, 1, v->bias[l] + h * D, to + (size_t)r * (size_t)D);
            }
    }
}

/* The term of one sample and one of its choices; `scale` is its weight over the number of choices. */
static double key_backward(sfp_fp *f, int l, int i, int k, float scale)
{
    size_t D = (size_t)f->D, at = (size_t)k * D;
    float cosine = f->alpha[l][(size_t)i * (size_t)f->opt.pool + (size_t)k], by = -scale / f->knorm[l][k];
    if (k >= f->start) {
        sfp__axpy(f->D, by, f->square[l] + (size_t)i * D, f->k[l].grad + at);
        sfp__axpy(f->D, -by * cosine, f->ak[l] + at, f->k[l].grad + at);
    }
    return (double)scale * (1 - (double)cosine);
}

double sfp__choose_backward(sfp_fp *f, int l, int first, int n, float *dprefix)
{
    const sfp_fp_view *v = &f->view;
    int pick[MOST_PARTS], half = v->length / 2 * v->dim, choices = v->parts * (f->layers - f->kind->shared_layers);
    double loss = 0;
    memset(dprefix, 0, (size_t)v->open[l] * 2 * (size_t)half * sizeof *dprefix);
    for (int i = first; i < first + n; i++) {
        const float *de = f->de[l] + (size_t)i * 2 * (size_t)half * (size_t)v->parts;
        pick_of(v, l, f->samples.rehearsed && f->samples.rehearsed[i], f->alpha[l] + (size_t)i * (size_t)f->opt.pool, pick);
        for (int j = 0; j < v->parts; j++) {
            for (int h = 0; h < 2; h++)
                sfp__axpy(half, 1, de + half_at(v->parts, j, h, (size_t)half),
                          dprefix + (size_t)(2 * pick[j] + h) * (size_t)half);
            if (v->ak[l])
                loss += key_backward(f, l, i, pick[j], f->samples.weight[i] / (float)choices);
        }
    }
    return loss;
}
