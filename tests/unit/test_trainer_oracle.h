/* The learner's mathematics once more, in double, as direct loops over the formulas (SPEC sections 1-3 and 6): the
 * oracle of test_trainer_gradient.c and test_fingerprint.c. Include after <cmocka.h>.
 *
 * It shares nothing with the engine but the values of weights and parameters. Every learnable tensor has its value here in
 * double, in the order of sfp__fp_params, to be moved by central differences. */
#ifndef SFP_TESTS_TRAINER_ORACLE_H
#define SFP_TESTS_TRAINER_ORACLE_H

#include "fingerprint/fingerprint.h"
#include "model/vit.h"

#include "numeric.h"

enum { ORACLE_DEPTH = 6, ORACLE_PARAMS = 3 * ORACLE_DEPTH + 4 };

typedef struct oracle_block {
#define FIELD(field, ...) double *field;
    SFP_VIT_BLOCK_LIST(FIELD)
} oracle_block;

typedef struct oracle {
    sfp_vit_config c;
    SFP_VIT_GLOBAL_LIST(FIELD)
#undef FIELD
    oracle_block blocks[ORACLE_DEPTH];
    sfp_fp_options fp;
    int layers, start, open, classes, params;
    double *value[ORACLE_PARAMS]; /* as sfp__fp_params orders them */
    size_t count[ORACLE_PARAMS];
    double *frozen_gate_w, *frozen_gate_b; /* when set, components [0, start) are attuned with these instead */
    /* the batch */
    int n;
    const float *const *x;  /* (n) images */
    const int32_t *label;   /* (n) */
    const float *weight;    /* (n) */
    const bool *masked;     /* (n) or NULL */
    const uint8_t *allowed; /* (classes) */
    int terms;
    /* queries are constants of the loss. Two: (n, D), the unprompted features. One: (layers, n, D), the class tokens that
     * enter the prompted layers; `live` computes them anew and keeps them, else they stay as they are */
    double *query, *token;
    bool live;
    /* out */
    double *feature;               /* (n, D) */
    double *attuned[ORACLE_DEPTH]; /* (open, Lp, D) of the last loss */
} oracle;

static double *doubles(size_t n)
{
    double *p = calloc(n ? n : 1, sizeof *p);
    assert_non_null(p);
    return p;
}

static double *to_doubles(const float *x, size_t n)
{
    double *p = doubles(n);
    for (size_t i = 0; i < n; i++)
        p[i] = (double)x[i];
    return p;
}

static inline size_t oracle_product(int ndim, const int *dims)
{
    size_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= (size_t)dims[i];
    return n;
}

static double oracle_gelu(double x)
{
    return x * 0.5 * erfc(-x / sqrt(2.0));
}

static void oracle_norm(int d, double eps, const double *x, const double *gamma, const double *beta, double *y)
{
    double mean = 0, var = 0;
    for (int i = 0; i < d; i++)
        mean += x[i] / d;
    for (int i = 0; i < d; i++)
        var += (x[i] - mean) * (x[i] - mean) / d;
    for (int i = 0; i < d; i++)
        y[i] = (x[i] - mean) / sqrt(var + eps) * gamma[i] + beta[i];
}

/* y (n) = W (n, k) x + b; b may be NULL */
static void oracle_linear(int n, int k, const double *w, const double *b, const double *x, double *y)
{
    for (int i = 0; i < n; i++) {
        double s = b ? b[i] : 0;
        for (int j = 0; j < k; j++)
            s += w[i * k + j] * x[j];
        y[i] = s;
    }
}

/* ------------------------------------------------------------- fingerprints */

static const double *oracle_p(const oracle *o, int l)
{
    return o->value[3 * l];
}

static const double *oracle_k(const oracle *o, int l)
{
    return o->value[3 * l + 1];
}

static const double *oracle_a(const oracle *o, int l)
{
    return o->value[3 * l + 2];
}

/* SPEC section 3 of one row p (D): out = sum_r g_r (W_Vr gelu(W_Kr p + b_Kr) + b_Vr) [+ p] */
static UNUSED void oracle_attune_row(const oracle *o, const double *gate_w, const double *gate_b, const double *p, double *out)
{
    int D = o->c.dim, kept[3] = {0};
    double z[3], sum = 0, *h = doubles((size_t)D), *y = doubles((size_t)D);
    oracle_linear(3, D, gate_w, gate_b, p, z);
    for (int r = 0; r < 3; r++) { /* kept: fewer than topk others come before it */
        int before = 0;
        for (int q = 0; q < 3; q++)
            before += z[q] > z[r] || (z[q] == z[r] && q < r);
        kept[r] = before < o->fp.attune_topk;
        sum += kept[r] ? exp(z[r]) : 0;
    }
    for (int i = 0; i < D; i++)
        out[i] = o->fp.attune_residual ? p[i] : 0;
    for (int r = 0; r < 3; r++) {
        const oracle_block *b = &o->blocks[o->c.depth - 3 + r];
        oracle_linear(D, D, b->qkv_w + D * D, b->qkv_b + D, p, h);
        for (int i = 0; i < D; i++)
            h[i] = oracle_gelu(h[i]);
        oracle_linear(D, D, b->qkv_w + 2 * D * D, b->qkv_b + 2 * D, h, y);
        for (int i = 0; kept[r] && i < D; i++)
            out[i] += exp(z[r]) / sum * y[i];
    }
    free(h), free(y);
}

static UNUSED void oracle_attune(oracle *o)
{
    int D = o->c.dim, Lp = o->fp.length;
    for (int l = 0; l < o->layers; l++) {
        free(o->attuned[l]);
        o->attuned[l] = doubles((size_t)(o->open * Lp * D));
        for (int row = 0; row < o->open * Lp; row++) {
            const double *p = oracle_p(o, l) + row * D;
            bool frozen = o->frozen_gate_w && row / Lp < o->start;
            if (o->fp.attune)
                oracle_attune_row(o, frozen ? o->frozen_gate_w : o->value[3 * o->layers],
                                  frozen ? o->frozen_gate_b : o->value[3 * o->layers + 1], p, o->attuned[l] + row * D);
            else
                memcpy(o->attuned[l] + row * D, p, (size_t)D * sizeof *p);
        }
    }
}

/* alpha = cos(q * A, K) of one component */
static UNUSED double oracle_alpha(const oracle *o, int l, int k, const double *q)
{
    int D = o->c.dim;
    const double *K = oracle_k(o, l) + k * D, *A = oracle_a(o, l) + k * D;
    double qk = 0, qq = 0, kk = 0;
    for (int i = 0; i < D; i++) {
        qk += q[i] * A[i] * K[i];
        qq += q[i] * A[i] * q[i] * A[i];
        kk += K[i] * K[i];
    }
    return qk / fmax(sqrt(qq), 1e-12) / fmax(sqrt(kk), 1e-12);
}

/* E (Lp, D) of prompted layer number l from a query (D), as it enters attention. */
static UNUSED void oracle_compose(const oracle *o, int l, const double *q, double *e)
{
    int D = o->c.dim, Lp = o->fp.length;
    memset(e, 0, (size_t)(Lp * D) * sizeof *e);
    for (int k = 0; k < o->open; k++) {
        double alpha = oracle_alpha(o, l, k, q);
        for (int i = 0; i < Lp * D; i++)
            e[i] += alpha * o->attuned[l][k * Lp * D + i];
    }
    if (o->fp.prefix != SFP_PREFIX_RAW)
        return;
    const oracle_block *b = &o->blocks[o->fp.first_layer + l];
    double *y = doubles((size_t)D);
    for (int r = 0; r < Lp; r++) { /* the paper's formula: rows are projected as tokens are */
        int part = r < Lp / 2 ? 1 : 2;
        oracle_linear(D, D, b->qkv_w + part * D * D, b->qkv_b + part * D, e + r * D, y);
        memcpy(e + r * D, y, (size_t)D * sizeof *y);
    }
    free(y);
}

/* mu * mean((T T^t - I)^2) of T (n, w) */
static double oracle_ortho(double mu, int n, int w, const double *t)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double g = i == j ? -1 : 0;
            for (int k = 0; k < w; k++)
                g += t[i * w + k] * t[j * w + k];
            sum += g * g;
        }
    return mu * sum / ((double)n * n);
}

/* ---------------------------------------------------------------------- vit */

static void oracle_attention(const oracle *o, int T, const double *qkv, int P, const double *prefix, double *out)
{
    int D = o->c.dim, H = o->c.heads, d = D / H;
    double *p = doubles((size_t)(P + T));
    for (int h = 0; h < H; h++)
        for (int i = 0; i < T; i++) {
            double max = -INFINITY, sum = 0;
            for (int j = 0; j < P + T; j++) {
                const double *key = j < P ? prefix + j * D + h * d : qkv + (j - P) * 3 * D + D + h * d;
                p[j] = 0;
                for (int c = 0; c < d; c++)
                    p[j] += qkv[i * 3 * D + h * d + c] * key[c] / sqrt((double)d);
                max = fmax(max, p[j]);
            }
            for (int j = 0; j < P + T; j++)
                sum += p[j] = exp(p[j] - max);
            for (int c = 0; c < d; c++)
                out[i * D + h * d + c] = 0;
            for (int j = 0; j < P + T; j++) {
                const double *value = j < P ? prefix + (P + j) * D + h * d : qkv + (j - P) * 3 * D + 2 * D + h * d;
                for (int c = 0; c < d; c++)
                    out[i * D + h * d + c] += p[j] / sum * value[c];
            }
        }
    free(p);
}

/* Feature (D) of image x, prompted or not; `sample` finds its queries. embed (L, D) when not NULL: the patch embeddings. */
static UNUSED void oracle_forward(oracle *o, const float *pixels, int sample, bool prompted, double *feature, double *embed)
{
    const sfp_vit_config *c = &o->c;
    int S = c->img_size, P = c->patch_size, side = S / P, T = side * side + 1, D = c->dim, F = c->hidden, Lp = o->fp.length;
    double *x = doubles((size_t)(T * D)), *y = doubles((size_t)(T * D)), *qkv = doubles((size_t)(T * 3 * D)),
           *h = doubles((size_t)F);
    double *out = doubles((size_t)D), *a = doubles((size_t)D), *prefix = doubles((size_t)(Lp * D));
    for (int i = 0; i < D; i++)
        x[i] = o->cls[i] + o->pos[i];
    for (int t = 0; t < T - 1; t++)
        for (int i = 0; i < D; i++) {
            double s = o->patch_b[i];
            for (int ch = 0; ch < 3; ch++)
                for (int v = 0; v < P; v++)
                    for (int u = 0; u < P; u++)
                        s += o->patch_w[((i * 3 + ch) * P + v) * P + u] *
                             (double)pixels[(ch * S + t / side * P + v) * S + t % side * P + u];
            if (embed)
                embed[t * D + i] = s;
            x[(t + 1) * D + i] = s + o->pos[(t + 1) * D + i];
        }
    for (int l = 0; l < c->depth; l++) {
        const oracle_block *b = &o->blocks[l];
        int at = l - o->fp.first_layer, rows = prompted && at >= 0 && l <= o->fp.last_layer ? Lp / 2 : 0;
        if (rows) {
            double *q = o->query + sample * D;
            if (o->fp.query_one) {
                q = o->token + (at * o->n + sample) * D;
                if (o->live)
                    memcpy(q, x, (size_t)D * sizeof *q);
            }
            oracle_compose(o, at, q, prefix);
        }
        for (int t = 0; t < T; t++) {
            oracle_norm(D, (double)c->ln_eps, x + t * D, b->norm1_w, b->norm1_b, a);
            oracle_linear(3 * D, D, b->qkv_w, b->qkv_b, a, qkv + t * 3 * D);
        }
        oracle_attention(o, T, qkv, rows, prefix, y);
        for (int t = 0; t < T; t++) {
            oracle_linear(D, D, b->proj_w, b->proj_b, y + t * D, out);
            for (int i = 0; i < D; i++)
                x[t * D + i] += out[i];
            oracle_norm(D, (double)c->ln_eps, x + t * D, b->norm2_w, b->norm2_b, a);
            oracle_linear(F, D, b->fc1_w, b->fc1_b, a, h);
            for (int i = 0; i < F; i++)
                h[i] = oracle_gelu(h[i]);
            oracle_linear(D, F, b->fc2_w, b->fc2_b, h, out);
            for (int i = 0; i < D; i++)
                x[t * D + i] += out[i];
        }
    }
    oracle_norm(D, (double)c->ln_eps, x, o->norm_w, o->norm_b, feature);
    free(x), free(y), free(qkv), free(h), free(out), free(a), free(prefix);
}

/* -------------------------------------------------------------------- loss */

/* Cross-entropy of the features as they are, each with its weight, and the penalty once a term. */
static UNUSED double oracle_head_loss(const oracle *o)
{
    int D = o->c.dim, C = o->classes;
    const double *w = o->value[o->params - 2], *bias = o->value[o->params - 1];
    double loss = 0, *z = doubles((size_t)C);
    for (int i = 0; i < o->n; i++) {
        double sum = 0;
        oracle_linear(C, D, w, bias, o->feature + i * D, z);
        for (int c = 0; c < C; c++)
            sum += o->masked && o->masked[i] && !o->allowed[c] ? 0 : exp(z[c]);
        loss += (double)o->weight[i] * (log(sum) - z[o->label[i]]);
    }
    free(z);
    for (int l = 0; o->fp.ortho_mu > 0 && l < o->layers; l++) {
        double mu = (double)o->fp.ortho_mu * o->terms;
        loss += oracle_ortho(mu, o->open, D, oracle_k(o, l)) + oracle_ortho(mu, o->open, D, oracle_a(o, l)) +
                oracle_ortho(mu, o->open, o->fp.length * D, o->attuned[l]);
    }
    return loss;
}

static UNUSED double oracle_loss(oracle *o)
{
    oracle_attune(o);
    for (int i = 0; i < o->n; i++)
        oracle_forward(o, o->x[i], i, true, o->feature + i * o->c.dim, NULL);
    return oracle_head_loss(o);
}

/* ----------------------------------------------------------- making, freeing */

/* The parameters' values as the engine has them now. */
static UNUSED void oracle_take(oracle *o, sfp_fp *fp)
{
    sfp_param **params = sfp__fp_params(fp, &o->params);
    assert_true(o->params <= ORACLE_PARAMS);
    o->start = sfp__fp_start(fp);
    o->open = sfp__fp_open(fp);
    o->classes = params[o->params - 1]->rows;
    for (int i = 0; i < o->params; i++) {
        free(o->value[i]);
        o->count[i] = (size_t)params[i]->rows * params[i]->width;
        o->value[i] = to_doubles(params[i]->data, o->count[i]);
    }
}

static UNUSED void oracle_init(oracle *o, const sfp_vit *vit, sfp_fp *fp)
{
    const sfp_vit_config *c = sfp__vit_config(vit);
    const sfp_vit_weights *w = sfp__vit_weights(vit);
    assert_true(c->depth <= ORACLE_DEPTH);
    *o = (oracle){.c = *c, .fp = *sfp__fp_options(fp)};
    o->layers = o->fp.last_layer - o->fp.first_layer + 1;
#define TAKE(field, name, ndim, ...) o->field = to_doubles(w->field, oracle_product(ndim, (const int[]){__VA_ARGS__}));
    SFP_VIT_GLOBAL_LIST(TAKE)
#undef TAKE
    for (int l = 0; l < c->depth; l++) {
#define TAKE(field, name, ndim, ...) \
    o->blocks[l].field = to_doubles(w->blocks[l].field, oracle_product(ndim, (const int[]){__VA_ARGS__}));
        SFP_VIT_BLOCK_LIST(TAKE)
#undef TAKE
    }
    oracle_take(o, fp);
}

/* The batch's arrays stay the caller's; queries (two) are computed. */
static UNUSED void oracle_batch(oracle *o, int n, const float *const *x)
{
    size_t floats_ = (size_t)n * (size_t)o->c.dim;
    o->n = n;
    o->x = x;
    free(o->feature), free(o->query), free(o->token);
    o->feature = doubles(floats_);
    o->query = doubles(floats_);
    o->token = doubles((size_t)o->layers * floats_);
    for (int i = 0; i < n; i++)
        oracle_forward(o, x[i], i, false, o->query + i * o->c.dim, NULL);
}

static UNUSED void oracle_done(oracle *o)
{
#define DROP(field, ...) free(o->field);
    SFP_VIT_GLOBAL_LIST(DROP)
#undef DROP
    for (int l = 0; l < o->c.depth; l++) {
#define DROP(field, ...) free(o->blocks[l].field);
        SFP_VIT_BLOCK_LIST(DROP)
#undef DROP
        free(o->attuned[l]);
    }
    for (int i = 0; i < o->params; i++)
        free(o->value[i]);
    free(o->feature), free(o->query), free(o->token);
}

#endif
