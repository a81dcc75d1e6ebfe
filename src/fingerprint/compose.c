/* From queries to prefixes and from their gradients back (SPEC section 2).
 *
 * alpha_k = cos(q * A_k, K_k) is written as two matrix products, since
 * <q * A_k, K_k> = <q, A_k * K_k> and |q * A_k|^2 = <q^2, A_k^2>. With
 * Kh = K / |K|, u = |q * A| and d = the gradient of alpha:
 *
 *     dK_k = (A_k * sum_b (d/u) q_b - Kh_k sum_b d alpha) / |K_k|
 *     dA_k = Kh_k * sum_b (d/u) q_b - A_k * sum_b (d alpha / u^2) q_b^2
 *
 * so the backward is matrix products too. */
#include "base/mem.h"
#include "compute/gemm.h"
#include "compute/vec.h"
#include "fingerprint/fp_internal.h"

#include <math.h>
#include <string.h>

#define TINY 1e-12f /* the least length a vector is divided by, as in PyTorch's normalize */

/* --------------------------------------------------------------------- buffers */

sfp_status sfp__fp_buffers_create(sfp_fp *f, sfp_error *err)
{
    const sfp_fp_options *o = &f->opt;
    size_t pool = (size_t)o->pool, comp = (size_t)o->length * (size_t)f->D, D = (size_t)f->D, b = (size_t)f->max_batch;
    bool ok = (f->row = sfp__malloc(D * sizeof(float))) && (f->squares = sfp__malloc(b * D * sizeof(float) * (o->query_one ? (size_t)f->layers : 1))) &&
              (!o->query_one || (f->token = sfp__malloc(b * D * sizeof(float) * (size_t)f->layers)));
    for (int l = 0; l < f->layers; l++) {
        const struct {
            bool wanted;
            float **to;
            size_t floats;
        } list[] = {{o->attune, &f->attuned[l], pool * comp},
                    {o->prefix == SFP_PREFIX_RAW, &f->projected[l], pool * comp},
                    {true, &f->dprefix[l], pool * comp},
                    {true, &f->ak[l], pool * D},
                    {true, &f->a2[l], pool * D},
                    {true, &f->knorm[l], pool},
                    {true, &f->alpha[l], b * pool},
                    {true, &f->norm[l], b * pool},
                    {true, &f->e[l], b * comp},
                    {true, &f->de[l], b * comp},
                    {true, &f->work[l], 2 * b * pool + 2 * pool * D + (o->prefix == SFP_PREFIX_RAW ? pool * comp : 0)},
                    {o->ortho_mu > 0, &f->gram[l], pool * pool}};
        for (size_t i = 0; i < sizeof list / sizeof *list; i++)
            ok = ok && (!list[i].wanted || (*list[i].to = sfp__calloc(list[i].floats, sizeof(float))));
    }
    if (!ok)
        return sfp__fail_nomem(err, (pool + b) * comp * sizeof(float));
    f->learning_most = o->tasks ? o->pool / o->tasks : o->pool;
    if (!o->attune)
        return SFP_OK;
    const sfp_attune_options a = {.layers = f->layers, .pool = o->pool, .learning = f->learning_most, .length = o->length,
                                  .topk = o->attune_topk, .residual = o->attune_residual};
    return sfp__attune_create(f->vit, f->threads, &a, &f->attune, err);
}

void sfp__fp_buffers_free(sfp_fp *f)
{
    sfp__attune_free(f->attune);
    sfp__free(f->row);
    sfp__free(f->squares);
    sfp__free(f->token);
    for (int l = 0; l < f->layers; l++) {
        float *all[] = {f->attuned[l], f->projected[l], f->dprefix[l], f->ak[l], f->a2[l],   f->knorm[l],
                        f->alpha[l],   f->norm[l],      f->e[l],       f->de[l], f->work[l], f->gram[l]};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            sfp__free(all[i]);
    }
}

/* The pool that prefixes are made of before the raw projection. */
static float *pool_of(const sfp_fp *f, int l)
{
    return f->opt.attune ? f->attuned[l] : f->p[l].data;
}

static float *prefix_of(const sfp_fp *f, int l)
{
    return f->opt.prefix == SFP_PREFIX_RAW ? f->projected[l] : pool_of(f, l);
}

/* out (n, Lp*D) (+)= in W^T (or in W, backwards), the first half of a component's rows by the key map, the rest by the
 * value map of layer l. */
static void project(const sfp_fp *f, int l, int n, const float *in, bool backwards, float *out)
{
    const float *w = sfp__vit_weights(f->vit)->blocks[f->layer[l]].qkv_w;
    int D = f->D, half = f->opt.length / 2;
    size_t comp = (size_t)f->opt.length * (size_t)D;
    for (int k = 0; k < n; k++)
        for (int part = 0; part < 2; part++) {
            size_t at = (size_t)k * comp + (size_t)(part * half) * (size_t)D;
            sfp__gemm_plain(false, !backwards, half, D, D, in + at, D, w + (size_t)(part + 1) * (size_t)D * (size_t)D, D, 0, out + at, D);
        }
}

/* --------------------------------------------------------------------- forward */

typedef struct layer_job {
    sfp_fp *f;
    int b, terms;
} layer_job;

static void prepare_layer(void *ctx, int l, int worker)
{
    sfp_fp *f = ((layer_job *)ctx)->f;
    (void)worker;
    int D = f->D;
    for (int k = 0; k < f->open; k++) {
        const float *K = f->k[l].data + (size_t)k * (size_t)D, *A = f->a[l].data + (size_t)k * (size_t)D;
        float *ak = f->ak[l] + (size_t)k * (size_t)D, *a2 = f->a2[l] + (size_t)k * (size_t)D;
        float length = fmaxf(sqrtf(sfp__dot(D, K, K)), TINY), inv = 1 / length;
        f->knorm[l][k] = length;
        for (int c = 0; c < D; c++) {
            ak[c] = A[c] * K[c] * inv;
            a2[c] = A[c] * A[c];
        }
    }
    if (f->opt.prefix == SFP_PREFIX_RAW) {
        int token = sfp__gemm_enter();
        project(f, l, f->open, pool_of(f, l), false, f->projected[l]);
        sfp__gemm_leave(token);
    }
}

sfp_status sfp__fp_prepare(sfp_fp *f, sfp_error *err)
{
    if (f->prepared)
        return SFP_OK;
    if (f->attune) {
        const float *p[SFP_FP_MAX_LAYERS];
        for (int l = 0; l < f->layers; l++)
            p[l] = f->p[l].data;
        sfp_status s = sfp__attune_fwd(f->attune, f->start, f->open, p, &f->gate_w, &f->gate_b, f->attuned, err);
        if (s)
            return s;
    }
    layer_job j = {.f = f};
    sfp__pool_run(f->threads, f->layers, prepare_layer, &j);
    f->view = (sfp_fp_view){.layers = f->layers, .open = f->open, .length = f->opt.length, .dim = f->D};
    for (int l = 0; l < f->layers; l++) {
        f->view.layer[l] = f->layer[l];
        f->view.ak[l] = f->ak[l];
        f->view.a2[l] = f->a2[l];
        f->view.prefix[l] = prefix_of(f, l);
        if (f->opt.prefix == SFP_PREFIX_RAW)
            f->view.bias[l] = sfp__vit_weights(f->vit)->blocks[f->layer[l]].qkv_b + f->D;
    }
    f->prepared = true;
    return SFP_OK;
}

const sfp_fp_view *sfp__fp_view(const sfp_fp *f)
{
    return &f->view;
}

void sfp__fp_compose(const sfp_fp_view *v, int l, int n, const float *query, int ld, float *alpha, float *norm, float *work,
                     float *prefix)
{
    int D = v->dim, N = v->open, comp = v->length * D;
    for (int i = 0; i < n * D; i++)
        work[i] = query[i] * query[i];
    sfp__gemm_plain(false, true, n, N, D, query, D, v->ak[l], D, 0, alpha, ld);
    sfp__gemm_plain(false, true, n, N, D, work, D, v->a2[l], D, 0, norm, ld);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < N; k++) {
            float *u = &norm[i * ld + k];
            *u = fmaxf(sqrtf(*u), TINY);
            alpha[i * ld + k] /= *u;
        }
    for (int i = 0; i < n && v->bias[l]; i++)
        for (int r = 0; r < v->length; r++)
            memcpy(prefix + (size_t)i * (size_t)comp + (size_t)r * (size_t)D, v->bias[l] + (r < v->length / 2 ? 0 : D), (size_t)D * sizeof *prefix);
    sfp__gemm_plain(false, false, n, comp, N, alpha, ld, v->prefix[l], comp, v->bias[l] ? 1 : 0, prefix, comp);
}

static void compose_at(sfp_fp *f, int l, int first, int n, const float *query, float *square)
{
    size_t at = (size_t)first, comp = (size_t)f->opt.length * (size_t)f->D, pool = (size_t)f->opt.pool;
    sfp__fp_compose(&f->view, l, n, query, f->opt.pool, f->alpha[l] + at * pool, f->norm[l] + at * pool, square + at * (size_t)f->D,
                    f->e[l] + at * comp);
}

static void compose(void *ctx, int first, int n, const float *query)
{
    sfp_fp *f = ctx;
    for (int l = 0; l < f->layers; l++)
        compose_at(f, l, first, n, query, f->squares);
}

static void compose_layer(void *ctx, int layer, int first, int n, const float *token)
{
    sfp_fp *f = ctx;
    int l = layer - f->layer[0];
    size_t room = (size_t)f->max_batch * (size_t)f->D, at = (size_t)first * (size_t)f->D;
    float *kept = f->token + (size_t)l * room + at;
    memcpy(kept, token, (size_t)n * (size_t)f->D * sizeof *kept);
    compose_at(f, l, first, n, kept, f->squares + (size_t)l * room);
}

void sfp__fp_attach(sfp_fp *f, sfp_vit_pass *pass, bool gradients)
{
    int half = f->opt.length / 2;
    size_t values = (size_t)half * (size_t)f->D, room = (size_t)f->max_batch * (size_t)f->D;
    pass->compose = f->opt.query_one ? NULL : compose;
    pass->compose_layer = f->opt.query_one ? compose_layer : NULL;
    pass->compose_ctx = f;
    pass->prefix_stride = 2 * values;
    for (int l = 0; l < f->layers; l++) {
        int at = f->layer[l];
        f->query[l] = f->opt.query_one ? f->token + (size_t)l * room : pass->query;
        f->square[l] = f->opt.query_one ? f->squares + (size_t)l * room : f->squares;
        pass->prefix_rows[at] = half;
        pass->prefix_k[at] = f->e[l];
        pass->prefix_v[at] = f->e[l] + values;
        pass->grad_prefix_k[at] = gradients ? f->de[l] : NULL;
        pass->grad_prefix_v[at] = gradients ? f->de[l] + values : NULL;
    }
}

/* -------------------------------------------------------------------- backward */

/* mu * mean((T T^t - I)^2) of T (n, w); with `grad` its gradient times `times` is added for rows [first, n). */
static double ortho(int n, int w, const float *t, float mu, float *gram, int first, double times, float *grad)
{
    sfp__gemm_plain(false, true, n, n, w, t, w, t, w, 0, gram, n);
    double sum = 0;
    for (int i = 0; i < n; i++)
        gram[i * n + i] -= 1;
    for (int i = 0; i < n * n; i++)
        sum += (double)gram[i] * (double)gram[i];
    double mean = 1.0 / ((double)n * n);
    float scale = (float)(4 * (double)mu * mean * times);
    for (int i = 0; i < n * n; i++)
        gram[i] *= scale;
    if (n > first)
        sfp__gemm_plain(false, false, n - first, w, n, gram + (size_t)first * (size_t)n, n, t, w, 1, grad + (size_t)first * (size_t)w, w);
    return (double)mu * sum * mean;
}

/* dK and dA of the learning components from the gradient of alpha. */
static void cosine_backward(sfp_fp *f, int l, int b, const float *dalpha, float *c, float *cq, float *eq)
{
    int D = f->D, s = f->start, n = f->open - s, ld = f->opt.pool;
    const float *alpha = f->alpha[l], *norm = f->norm[l];
    /* c = d / u; cq = c^T q (n, D) */
    for (int i = 0; i < b; i++)
        for (int k = 0; k < n; k++)
            c[i * n + k] = dalpha[i * ld + s + k] / norm[i * ld + s + k];
    sfp__gemm_plain(true, false, n, D, b, c, n, f->query[l], D, 0, cq, D);
    /* c = d alpha / u^2; eq = c^T q^2 (n, D) */
    for (int i = 0; i < b; i++)
        for (int k = 0; k < n; k++)
            c[i * n + k] *= alpha[i * ld + s + k] / norm[i * ld + s + k];
    sfp__gemm_plain(true, false, n, D, b, c, n, f->square[l], D, 0, eq, D);
    for (int k = 0; k < n; k++) {
        size_t at = (size_t)(s + k) * (size_t)D;
        const float *K = f->k[l].data + at, *A = f->a[l].data + at, *q1 = cq + (size_t)k * (size_t)D, *q2 = eq + (size_t)k * (size_t)D;
        float *dk = f->k[l].grad + at, *da = f->a[l].grad + at, inv = 1 / f->knorm[l][s + k], sum = 0;
        for (int i = 0; i < b; i++)
            sum += dalpha[i * ld + s + k] * alpha[i * ld + s + k];
        for (int j = 0; j < D; j++) {
            float kh = K[j] * inv;
            dk[j] += (A[j] * q1[j] - kh * sum) * inv;
            da[j] += kh * q1[j] - A[j] * q2[j];
        }
    }
}

static void gradients_layer(void *ctx, int l, int worker)
{
    layer_job *j = ctx;
    sfp_fp *f = j->f;
    (void)worker;
    int D = f->D, N = f->open, b = j->b, comp = f->opt.length * D, ld = f->opt.pool;
    size_t pool = (size_t)f->opt.pool;
    float *dalpha = f->work[l], *c = dalpha + (size_t)f->max_batch * pool, *cq = c + (size_t)f->max_batch * pool, *eq = cq + pool * (size_t)D;
    int token = sfp__gemm_enter();
    sfp__gemm_plain(false, true, b, N, comp, f->de[l], comp, f->view.prefix[l], comp, 0, dalpha, ld);
    cosine_backward(f, l, b, dalpha, c, cq, eq);
    /* frozen components have no gradient of their own, but attunement's gate sees them */
    float *to = f->opt.prefix == SFP_PREFIX_RAW ? eq + pool * (size_t)D : f->dprefix[l];
    sfp__gemm_plain(true, false, N, comp, b, f->alpha[l], ld, f->de[l], comp, 0, to, comp);
    if (f->opt.prefix == SFP_PREFIX_RAW)
        project(f, l, N, to, true, f->dprefix[l]);
    f->penalty[l] = 0;
    if (f->opt.ortho_mu > 0) {
        float mu = f->opt.ortho_mu;
        f->penalty[l] += ortho(N, D, f->k[l].data, mu, f->gram[l], f->start, j->terms, f->k[l].grad);
        f->penalty[l] += ortho(N, D, f->a[l].data, mu, f->gram[l], f->start, j->terms, f->a[l].grad);
        f->penalty[l] += ortho(N, comp, pool_of(f, l), mu, f->gram[l], 0, j->terms, f->dprefix[l]);
    }
    if (!f->opt.attune) {
        size_t at = (size_t)f->start * (size_t)comp, n = (size_t)(N - f->start) * (size_t)comp;
        for (size_t i = at; i < at + n; i++)
            f->p[l].grad[i] += f->dprefix[l][i];
    }
    sfp__gemm_leave(token);
}

sfp_status sfp__fp_gradients(sfp_fp *f, int b, int terms, double *penalty, sfp_error *err)
{
    if (b < 1 || b > f->max_batch)
        return sfp__fail(err, SFP_EINVAL, "gradients of %d samples, expected 1 to %d", b, f->max_batch);
    layer_job j = {.f = f, .b = b, .terms = terms};
    sfp__pool_run(f->threads, f->layers, gradients_layer, &j);
    *penalty = 0;
    for (int l = 0; l < f->layers; l++)
        *penalty += f->penalty[l];
    if (f->attune) {
        const float *p[SFP_FP_MAX_LAYERS], *dout[SFP_FP_MAX_LAYERS];
        float *dp[SFP_FP_MAX_LAYERS];
        for (int l = 0; l < f->layers; l++) {
            p[l] = f->p[l].data;
            dout[l] = f->dprefix[l];
            dp[l] = f->p[l].grad;
        }
        sfp__attune_bwd(f->attune, f->start, f->open, p, dout, dp, &f->gate_w, &f->gate_b);
    }
    return SFP_OK;
}
