/* A second implementation of the learner's mathematics in double, as direct loops over the formulas (docs/method.md, sections
 * 1-3, 6 and 13): the oracle of test_trainer_gradient.c and test_fingerprint.c. Include after <cmocka.h>.
 *
 * It shares only the values of weights and parameters with the engine. It has a copy of every learnable tensor in double, in the
 * order of sfp__fp_params, which central differences change. */
#ifndef SFP_TESTS_TRAINER_ORACLE_H
#define SFP_TESTS_TRAINER_ORACLE_H

#include "fingerprint/fingerprint.h"

#include "test.h"
#include "vit_oracle.h"

enum { ORACLE_PARAMS = 3 * VIT_ORACLE_DEPTH + 4, ORACLE_PARTS = 5 };

typedef struct oracle {
    vit_oracle vit;
    sfp__fp_options fp;
    int layers, start, open, classes, params;
    double *value[ORACLE_PARAMS]; /* in the order of sfp__fp_params */
    size_t count[ORACLE_PARAMS];
    int p[VIT_ORACLE_DEPTH], k[VIT_ORACLE_DEPTH], a[VIT_ORACLE_DEPTH], gate; /* indices of the parameters of a layer; -1: none */
    bool shared[VIT_ORACLE_DEPTH];                                           /* one component for all tasks */
    double *frozen_gate_w, *frozen_gate_b; /* if set, components [0, start) are attuned with these instead */
    /* The batch. */
    int n;
    const float *const *x;  /* (n) images */
    const int32_t *label;   /* (n) */
    const float *weight;    /* (n) */
    const bool *masked;     /* (n) or NULL */
    const bool *replayed;   /* (n) or NULL */
    const uint8_t *allowed; /* (classes) */
    int terms;
    double *query; /* (n, D) the features of the query pass, constants of the loss */
    /* Results. */
    double *feature;                   /* (n, D) */
    double *attuned[VIT_ORACLE_DEPTH]; /* (open, Lp, D) from the last loss */
} oracle;

/* ------------------------------------------------------------- fingerprints */

static const double *oracle_p(const oracle *o, int l)
{
    return o->value[o->p[l]];
}

static const double *oracle_k(const oracle *o, int l)
{
    return o->value[o->k[l]];
}

static const double *oracle_a(const oracle *o, int l)
{
    return o->value[o->a[l]];
}

static int oracle_open(const oracle *o, int l)
{
    return o->shared[l] ? 1 : o->open;
}

/* Returns the number of components in a prefix. */
static int oracle_parts(const oracle *o)
{
    return o->fp.kind != SFP__FP_L2P ? 1 : o->fp.pool < ORACLE_PARTS ? o->fp.pool : ORACLE_PARTS;
}

/* Computes docs/method.md, section 3 for one row p (D): out = sum_r g_r (W_Vr gelu(W_Kr p + b_Kr) + b_Vr) [+ p] */
static UNUSED void oracle_attune_row(const oracle *o, const double *gate_w, const double *gate_b, const double *p, double *out)
{
    int D = o->vit.c.dim, kept[3] = {0};
    double z[3], sum = 0, *h = doubles((size_t)D), *y = doubles((size_t)D);
    oracle_linear(3, D, gate_w, gate_b, p, z);
    for (int r = 0; r < 3; r++) { /* kept if fewer than topk others precede it */
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
}

static UNUSED void oracle_attune(oracle *o)
{
    int D = o->vit.c.dim, Lp = o->fp.length;
    for (int l = 0; l < o->layers; l++) {
        o->attuned[l] = doubles((size_t)(oracle_open(o, l) * Lp * D));
        for (int row = 0; row < oracle_open(o, l) * Lp; row++) {
            const double *p = oracle_p(o, l) + row * D;
            bool frozen = o->frozen_gate_w && row / Lp < o->start;
            if (o->fp.attune)
                oracle_attune_row(o, frozen ? o->frozen_gate_w : o->value[o->gate],
                                  frozen ? o->frozen_gate_b : o->value[o->gate + 1], p, o->attuned[l] + row * D);
            else
                memcpy(o->attuned[l] + row * D, p, (size_t)D * sizeof *p);
        }
    }
}

/* Returns alpha = cos(q * A, K) of one component. */
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

/* Returns cos(q, K) of one component. */
static double oracle_cosine(const oracle *o, int l, int k, const double *q)
{
    int D = o->vit.c.dim;
    const double *K = oracle_k(o, l) + k * D;
    double qk = 0, qq = 0, kk = 0;
    for (int i = 0; i < D; i++) {
        qk += q[i] * K[i];
        qq += q[i] * q[i];
        kk += K[i] * K[i];
    }
    return qk / sqrt(qq * kk);
}

/* Returns the components that sample i uses in prompted layer l: as many as a prefix has, those that fewer others precede. */
static UNUSED void oracle_pick(const oracle *o, int l, int i, const double *q, int *pick)
{
    int from = o->replayed && o->replayed[i] ? 0 : o->start;
    pick[0] = 0;
    for (int k = from; k < o->open && !o->shared[l]; k++) {
        int before = 0;
        double cosine = oracle_cosine(o, l, k, q);
        for (int j = from; j < o->open; j++) {
            double other = oracle_cosine(o, l, j, q);
            before += other > cosine || (other == cosine && j < k);
        }
        if (before < oracle_parts(o))
            pick[before] = k;
    }
}

/* The paper's formula: projects the rows of E (rows, D) like tokens, the first half as keys. */
static void oracle_project(const oracle *o, int l, int rows, double *e)
{
    int D = o->vit.c.dim;
    const vit_oracle_block *b = &o->vit.blocks[o->fp.first_layer + l];
    double *y = doubles((size_t)D);
    for (int r = 0; r < rows && o->fp.prefix == SFP__PREFIX_RAW; r++) {
        int part = r < rows / 2 ? 1 : 2;
        oracle_linear(D, D, b->qkv_w + part * D * D, b->qkv_b + part * D, e + r * D, y);
        memcpy(e + r * D, y, (size_t)D * sizeof *y);
    }
}

/* The same for kinds that choose components: keys of all components, then their values. */
static UNUSED void oracle_concatenate(const oracle *o, int l, int i, const double *q, double *e)
{
    int half = o->fp.length / 2 * o->vit.c.dim, pick[ORACLE_PARTS], parts = oracle_parts(o);
    oracle_pick(o, l, i, q, pick);
    for (int j = 0; j < parts; j++)
        for (int h = 0; h < 2; h++)
            memcpy(e + (h * parts + j) * half, o->attuned[l] + (2 * pick[j] + h) * half, (size_t)half * sizeof *e);
    oracle_project(o, l, parts * o->fp.length, e);
}

/* Computes E (Lp, D) of prompted layer l from a query (D), as it enters attention. */
static UNUSED void oracle_compose(const oracle *o, int l, const double *q, double *e)
{
    int D = o->vit.c.dim, Lp = o->fp.length;
    memset(e, 0, (size_t)(Lp * D) * sizeof *e);
    for (int k = 0; k < o->open; k++) {
        double alpha = oracle_alpha(o, l, k, q);
        for (int i = 0; i < Lp * D; i++)
            e[i] += alpha * o->attuned[l][k * Lp * D + i];
    }
    oracle_project(o, l, Lp, e);
}

/* Returns mu * mean((T T^t - I)^2) of T (n, w). */
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
    double *prefix; /* (parts*Lp, D) */
} oracle_image;

/* Returns the query of a sample. */
static double *oracle_query(const oracle *o, int sample)
{
    return o->query + sample * o->vit.c.dim;
}

static UNUSED int oracle_prefix(void *ctx, int l, const double *tokens, const double **k, const double **v)
{
    (void)tokens;
    const oracle_image *image = ctx;
    oracle *o = image->o;
    int D = o->vit.c.dim, at = l - o->fp.first_layer, rows = oracle_parts(o) * (o->fp.length / 2);
    if (at < 0 || l > o->fp.last_layer)
        return 0;
    double *q = oracle_query(o, image->sample);
    if (o->fp.kind == SFP__FP_CODA)
        oracle_compose(o, at, q, image->prefix);
    else
        oracle_concatenate(o, at, image->sample, q, image->prefix);
    *k = image->prefix;
    *v = image->prefix + rows * D;
    return rows;
}

/* Computes the feature (D) of image x, prompted or not; `sample` is the index of its queries. embed (L, D), if not NULL: receives
 * the patch embeddings. */
static UNUSED void oracle_forward(oracle *o, const float *pixels, int sample, bool prompted, double *feature, double *embed)
{
    const sfp__vit_config *c = &o->vit.c;
    oracle_image image = {o, sample, doubles((size_t)(ORACLE_PARTS * o->fp.length * c->dim))};
    double *x = to_doubles(pixels, 3 * (size_t)c->img_size * (size_t)c->img_size);
    const vit_oracle_pass pass = {
        .x = x, .prefix = prompted ? oracle_prefix : NULL, .ctx = &image, .feature = feature, .embed = embed};
    vit_oracle_forward(&o->vit, &pass);
}

/* -------------------------------------------------------------------- loss */

/* Returns mean(1 - cos) of the components that the samples choose, each with its weight. */
static double oracle_key_loss(const oracle *o)
{
    int parts = oracle_parts(o), pick[ORACLE_PARTS], keyed = 0;
    double loss = 0;
    for (int l = 0; l < o->layers; l++)
        keyed += !o->shared[l];
    for (int l = 0; l < o->layers; l++)
        for (int i = 0; i < o->n && !o->shared[l]; i++) {
            const double *q = oracle_query(o, i);
            oracle_pick(o, l, i, q, pick);
            for (int j = 0; j < parts; j++)
                loss += (double)o->weight[i] * (1 - oracle_cosine(o, l, pick[j], q)) / (parts * keyed);
        }
    return loss;
}

/* Returns the cross-entropy of the current features, each with its weight, and the penalty once per term. */
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
    for (int l = 0; o->fp.ortho_mu > 0 && l < o->layers; l++) {
        double mu = (double)o->fp.ortho_mu * o->terms;
        loss += oracle_ortho(mu, oracle_open(o, l), o->fp.length * D, o->attuned[l]);
        loss += o->k[l] < 0 ? 0 : oracle_ortho(mu, o->open, D, oracle_k(o, l));
        loss += o->a[l] < 0 ? 0 : oracle_ortho(mu, o->open, D, oracle_a(o, l));
    }
    return loss + (o->fp.kind == SFP__FP_CODA ? 0 : oracle_key_loss(o));
}

static UNUSED double oracle_loss(oracle *o)
{
    oracle_attune(o);
    for (int i = 0; i < o->n; i++)
        oracle_forward(o, o->x[i], i, true, o->feature + i * o->vit.c.dim, NULL);
    return oracle_head_loss(o);
}

/* ----------------------------------------------------------- create, free */

/* Copies the current values of the parameters from the engine. */
static UNUSED void oracle_take(oracle *o, sfp__fp *fp)
{
    sfp__param **params = sfp__fp_params(fp, &o->params);
    assert_true(o->params <= ORACLE_PARAMS);
    o->start = fp->frozen_end;
    o->open = fp->active_end;
    o->classes = params[o->params - 1]->rows;
    for (int l = 0; l < o->layers; l++)
        o->p[l] = o->k[l] = o->a[l] = -1;
    for (int i = 0; i < o->params; i++) {
        char whose, what;
        int layer;
        if (sscanf(params[i]->name, "prompt.%c_%c_%d", &whose, &what, &layer) == 3) {
            int *at = what == 'p' ? o->p : what == 'k' ? o->k : o->a;
            at[layer - o->fp.first_layer] = i;
            o->shared[layer - o->fp.first_layer] = whose == 'g';
        }
        if (strcmp(params[i]->name, "prompt.attune.gate.weight") == 0)
            o->gate = i;
        o->count[i] = (size_t)params[i]->rows * params[i]->width;
        o->value[i] = to_doubles(params[i]->data, o->count[i]);
    }
}

static UNUSED void oracle_init(oracle *o, const sfp__vit *vit, sfp__fp *fp)
{
    const sfp__vit_config *c = &vit->config;
    const sfp__vit_weights *w = &vit->weights;
    assert_true(c->depth <= VIT_ORACLE_DEPTH);
    *o = (oracle){.vit = {.c = *c}, .fp = fp->opt};
    o->layers = o->fp.last_layer - o->fp.first_layer + 1;
#define COPY(field, name, ndim, ...) o->vit.field = to_doubles(w->field, oracle_product(ndim, (const int[]){__VA_ARGS__}));
    SFP__VIT_GLOBAL_LIST(COPY)
#undef COPY
    for (int l = 0; l < c->depth; l++) {
#define COPY(field, name, ndim, ...) \
    o->vit.blocks[l].field = to_doubles(w->blocks[l].field, oracle_product(ndim, (const int[]){__VA_ARGS__}));
        SFP__VIT_BLOCK_LIST(COPY)
#undef COPY
    }
    oracle_take(o, fp);
}

/* The arrays of the batch belong to the caller; queries (two passes) are computed. */
static UNUSED void oracle_batch(oracle *o, int n, const float *const *x)
{
    size_t floats_ = (size_t)n * (size_t)o->vit.c.dim;
    o->n = n;
    o->x = x;
    o->feature = doubles(floats_);
    o->query = doubles(floats_);
    for (int i = 0; i < n; i++)
        oracle_forward(o, x[i], i, false, o->query + i * o->vit.c.dim, NULL);
}

#endif
