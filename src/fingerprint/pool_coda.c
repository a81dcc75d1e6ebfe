/* CODA-Prompt (Smith et al. 2023, section 4.1; docs/method.md, section 2): a prefix is the sum of all components that are not
 * unused. Each is weighted by the cosine of its key and the query, where the query is multiplied by the component's attention
 * vector A:
 *
 *     E = sum_k alpha_k P'_k,  alpha_k = cos(q * A_k, K_k)
 *
 * This is computed by matrix products, since <q * A_k, K_k> = <q, A_k * K_k> and |q * A_k|^2 = <q^2, A_k^2>. With Kh = K / |K|, u
 * = |q * A| and d = the gradient of alpha:
 *
 *     dK_k = (A_k * sum_b (d/u) q_b - Kh_k sum_b d alpha) / |K_k|
 *     dA_k = Kh_k * sum_b (d/u) q_b - A_k * sum_b (d alpha / u^2) q_b^2
 *
 * so the backward pass consists of matrix products too.
 *
 * Cost per layer: 2 b N (2 D + Lp D) operations in the forward pass, about three times as many in the backward pass. The authors'
 * code passes frozen components through detach; here they have no gradient. */
#include "compute/gemm.h"
#include "compute/vec.h"
#include "fingerprint/pool_kind.h"

#include <math.h>
#include <string.h>

static void prepare(sfp__fp *f, int l)
{
    const sfp__fp_layer *y = &f->layer[l];
    int D = f->D;
    for (int k = 0; k < f->active_end; k++) {
        const float *K = y->k.data + (size_t)k * (size_t)D, *A = y->a.data + (size_t)k * (size_t)D;
        float *ak = y->ak + (size_t)k * (size_t)D, *a2 = y->a2 + (size_t)k * (size_t)D;
        float length = fmaxf(sqrtf(sfp__dot(D, K, K)), SFP__FP_TINY), inv = 1 / length;
        y->knorm[k] = length;
        for (int c = 0; c < D; c++) {
            ak[c] = A[c] * K[c] * inv;
            a2[c] = A[c] * A[c];
        }
    }
}

static void compose(const sfp__fp_view *v, int l, const sfp__composing *c)
{
    int D = v->dim, N = v->active_end[l], n = c->n, ld = c->ld, comp = v->length * D;
    for (int i = 0; i < n * D; i++)
        c->work[i] = c->query[i] * c->query[i];
    sfp__gemm_plain(false, true, n, N, D, c->query, D, v->ak[l], D, 0, c->alpha, ld);
    sfp__gemm_plain(false, true, n, N, D, c->work, D, v->a2[l], D, 0, c->norm, ld);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < N; k++) {
            float *u = &c->norm[i * ld + k];
            *u = fmaxf(sqrtf(*u), SFP__FP_TINY);
            c->alpha[i * ld + k] /= *u;
        }
    for (int i = 0; i < n && v->bias[l]; i++)
        for (int r = 0; r < v->length; r++)
            memcpy(c->prefix + (size_t)i * (size_t)comp + (size_t)r * (size_t)D, v->bias[l] + (r < v->length / 2 ? 0 : D),
                   (size_t)D * sizeof *c->prefix);
    sfp__gemm_plain(false, false, n, comp, N, c->alpha, ld, v->prefix[l], comp, v->bias[l] ? 1 : 0, c->prefix, comp);
}

/* Adds dK and dA of the active components, from the gradient of alpha of b samples from `first` on. */
static void cosine_backward(sfp__fp *f, int l, int first, int b, const float *dalpha, float *c, float *cq, float *eq)
{
    const sfp__fp_layer *y = &f->layer[l];
    int D = f->D, s = f->frozen_end, n = f->active_end - s, ld = f->opt.pool;
    const float *alpha = y->alpha + (size_t)first * (size_t)ld, *norm = y->norm + (size_t)first * (size_t)ld;
    size_t row = (size_t)first * (size_t)D;
    /* c = d / u; cq = c^T q (n, D) */
    for (int i = 0; i < b; i++)
        for (int k = 0; k < n; k++)
            c[i * n + k] = dalpha[i * ld + s + k] / norm[i * ld + s + k];
    sfp__gemm_plain(true, false, n, D, b, c, n, y->query + row, D, 0, cq, D);
    /* c = d alpha / u^2; eq = c^T q^2 (n, D) */
    for (int i = 0; i < b; i++)
        for (int k = 0; k < n; k++)
            c[i * n + k] *= alpha[i * ld + s + k] / norm[i * ld + s + k];
    sfp__gemm_plain(true, false, n, D, b, c, n, f->squares + row, D, 0, eq, D);
    for (int k = 0; k < n; k++) {
        size_t at = (size_t)(s + k) * (size_t)D;
        const float *K = y->k.data + at, *A = y->a.data + at, *q1 = cq + (size_t)k * (size_t)D, *q2 = eq + (size_t)k * (size_t)D;
        float *dk = y->k.grad + at, *da = y->a.grad + at, inv = 1 / y->knorm[s + k], sum = 0;
        for (int i = 0; i < b; i++)
            sum += dalpha[i * ld + s + k] * alpha[i * ld + s + k];
        for (int j = 0; j < D; j++) {
            float kh = K[j] * inv;
            dk[j] += (A[j] * q1[j] - kh * sum) * inv;
            da[j] += kh * q1[j] - A[j] * q2[j];
        }
    }
}

static double backward(sfp__fp *f, int l, int first, int n, float *dprefix)
{
    int D = f->D, N = f->active_end, comp = f->opt.length * D, ld = f->opt.pool;
    size_t pool = (size_t)f->opt.pool;
    float *dalpha = f->grad[l].work, *c = dalpha + (size_t)f->max_batch * pool, *cq = c + (size_t)f->max_batch * pool,
          *eq = cq + pool * (size_t)D;
    const float *de = f->grad[l].e + (size_t)first * (size_t)comp;
    sfp__gemm_plain(false, true, n, N, comp, de, comp, f->view.prefix[l], comp, 0, dalpha, ld);
    cosine_backward(f, l, first, n, dalpha, c, cq, eq);
    /* frozen components have no gradient themselves, but the gate of the attunement depends on them */
    sfp__gemm_plain(true, false, N, comp, n, f->layer[l].alpha + (size_t)first * pool, ld, de, comp, 0, dprefix, comp);
    return 0;
}

const sfp__pool_kind sfp__pool_coda = {
    .name = "coda", .parts = 1, .attention = true, .prepare = prepare, .compose = compose, .backward = backward};
