/* The learner's mathematics once more, in double, as direct loops over the formulas (SPEC sections 1-3 and 6): the
 * oracle of test_trainer_gradient.c and test_fingerprint.c. Include after <cmocka.h>.
 *
 * It shares nothing with the engine but the values of weights and parameters. Every learnable tensor has its value here in
 * double, in the order of sfp__fp_params, to be moved by central differences. */
#ifndef SFP_TESTS_TRAINER_ORACLE_H
#define SFP_TESTS_TRAINER_ORACLE_H

#include "fingerprint/fingerprint.h"

#include "vit_oracle.h"

enum { ORACLE_PARAMS = 3 * VIT_ORACLE_DEPTH + 4 };

typedef struct oracle {
    vit_oracle vit;
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
    double *attuned[VIT_ORACLE_DEPTH]; /* (open, Lp, D) of the last loss */
} oracle;

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
    int D = o->vit.c.dim, kept[3] = {0};
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
        const vit_oracle_block *b = &o->vit.blocks[o->vit.c.depth - 3 + r];
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
    int D = o->vit.c.dim, Lp = o->fp.length;
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
    int D = o->vit.c.dim;
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
    int D = o->vit.c.dim, Lp = o->fp.length;
    memset(e, 0, (size_t)(Lp * D) * sizeof *e);
    for (int k = 0; k < o->open; k++) {
        double alpha = oracle_alpha(o, l, k, q);
        for (int i = 0; i < Lp * D; i++)
            e[i] += alpha * o->attuned[l][k * Lp * D + i];
    }
    if (o->fp.prefix != SFP_PREFIX_RAW)
        return;
    const vit_oracle_block *b = &o->vit.blocks[o->fp.first_layer + l];
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

/* The pass of one image. */
typedef struct oracle_image {
    oracle *o;
    int sample;
    double *prefix; /* (Lp, D) */
} oracle_image;

static UNUSED int oracle_prefix(void *ctx, int l, const double *tokens, const double **k, const double **v)
{
    const oracle_image *image = ctx;
    oracle *o = image->o;
    int D = o->vit.c.dim, at = l - o->fp.first_layer, rows = o->fp.length / 2;
    if (at < 0 || l > o->fp.last_layer)
        return 0;
    double *q = o->query + image->sample * D;
    if (o->fp.query_one) {
        q = o->token + (at * o->n + image->sample) * D;
        if (o->live)
            memcpy(q, tokens, (size_t)D * sizeof *q);
    }
    oracle_compose(o, at, q, image->prefix);
    *k = image->prefix;
    *v = image->prefix + rows * D;
    return rows;
}

/* Feature (D) of image x, prompted or not; `sample` finds its queries. embed (L, D) when not NULL: the patch embeddings. */
static UNUSED void oracle_forward(oracle *o, const float *pixels, int sample, bool prompted, double *feature, double *embed)
{
    const sfp_vit_config *c = &o->vit.c;
    oracle_image image = {o, sample, doubles((size_t)(o->fp.length * c->dim))};
    double *x = to_doubles(pixels, 3 * (size_t)c->img_size * (size_t)c->img_size);
    const vit_oracle_pass pass = {.x = x, .prefix = prompted ? oracle_prefix : NULL, .ctx = &image, .feature = feature, .embed = embed};
    vit_oracle_forward(&o->vit, &pass);
    free(x), free(image.prefix);
}

/* -------------------------------------------------------------------- loss */

/* Cross-entropy of the features as they are, each with its weight, and the penalty once a term. */
static UNUSED double oracle_head_loss(const oracle *o)
{
    int D = o->vit.c.dim, C = o->classes;
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
        oracle_forward(o, o->x[i], i, true, o->feature + i * o->vit.c.dim, NULL);
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
    assert_true(c->depth <= VIT_ORACLE_DEPTH);
    *o = (oracle){.vit = {.c = *c}, .fp = *sfp__fp_options(fp)};
    o->layers = o->fp.last_layer - o->fp.first_layer + 1;
#define TAKE(field, name, ndim, ...) o->vit.field = to_doubles(w->field, oracle_product(ndim, (const int[]){__VA_ARGS__}));
    SFP_VIT_GLOBAL_LIST(TAKE)
#undef TAKE
    for (int l = 0; l < c->depth; l++) {
#define TAKE(field, name, ndim, ...) \
    o->vit.blocks[l].field = to_doubles(w->blocks[l].field, oracle_product(ndim, (const int[]){__VA_ARGS__}));
        SFP_VIT_BLOCK_LIST(TAKE)
#undef TAKE
    }
    oracle_take(o, fp);
}

/* The batch's arrays stay the caller's; queries (two) are computed. */
static UNUSED void oracle_batch(oracle *o, int n, const float *const *x)
{
    size_t floats_ = (size_t)n * (size_t)o->vit.c.dim;
    o->n = n;
    o->x = x;
    free(o->feature), free(o->query), free(o->token);
    o->feature = doubles(floats_);
    o->query = doubles(floats_);
    o->token = doubles((size_t)o->layers * floats_);
    for (int i = 0; i < n; i++)
        oracle_forward(o, x[i], i, false, o->query + i * o->vit.c.dim, NULL);
}

static UNUSED void oracle_done(oracle *o)
{
#define DROP(field, ...) free(o->vit.field);
    SFP_VIT_GLOBAL_LIST(DROP)
#undef DROP
    for (int l = 0; l < o->vit.c.depth; l++) {
#define DROP(field, ...) free(o->vit.blocks[l].field);
        SFP_VIT_BLOCK_LIST(DROP)
#undef DROP
        free(o->attuned[l]);
    }
    for (int i = 0; i < o->params; i++)
        free(o->value[i]);
    free(o->feature), free(o->query), free(o->token);
}

#endif
