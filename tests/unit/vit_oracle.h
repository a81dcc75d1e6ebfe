/* A second implementation of the ViT in double, as direct loops over the formulas (docs/method.md, section 1). It is the
 * oracle of test_vit_gradient.c and, extended by the learner's formulas, of test_trainer_oracle.h. Include after <cmocka.h>.
 *
 * It shares only the values of the weights with the engine. */
#ifndef SFP_TESTS_VIT_ORACLE_H
#define SFP_TESTS_VIT_ORACLE_H

#include "model/vit.h"

#include "numeric.h"
#include "test.h"

/* The oracle runs on one thread and is slow if every access is instrumented: a build with the thread sanitizer runs only the
 * engine. */
#ifdef __SANITIZE_THREAD__
enum { RACES_ONLY = 1 };
#else
enum { RACES_ONLY = 0 };
#endif

/* With the address sanitizer a sample of the tensors is compared with central differences: plain builds compare all. */
#ifdef __SANITIZE_ADDRESS__
enum { COMPARE_EVERY = 4 };
#else
enum { COMPARE_EVERY = 1 };
#endif

enum { VIT_ORACLE_DEPTH = 6 };

typedef struct vit_oracle_block {
#define FIELD(field, ...) double *field;
    SFP__VIT_BLOCK_LIST(FIELD)
} vit_oracle_block;

typedef struct vit_oracle {
    sfp__vit_config c;
    SFP__VIT_GLOBAL_LIST(FIELD) /* patch_b is not read with no_patch_bias */
    SFP__VIT_PRE_LIST(FIELD)    /* not read without pre_norm */
#undef FIELD
    vit_oracle_block blocks[VIT_ORACLE_DEPTH];
} vit_oracle;

/* A pass over one image. Outputs that are NULL are not computed. */
typedef struct vit_oracle_pass {
    const double *x; /* (3, S, S) */
    /* Called before layer l with its input tokens (T, D). Returns the number of prefix rows and sets k and v (rows, D). NULL:
     * no prefixes. */
    int (*prefix)(void *ctx, int l, const double *tokens, const double **k, const double **v);
    void *ctx;
    double *feature;                  /* (D) */
    double *embed;                    /* (L, D) */
    double *tokens[VIT_ORACLE_DEPTH]; /* (T, D) after block l */
    double *class_attention;          /* (H, T) of the last block */
    double *normed;                   /* (T, D) */
} vit_oracle_pass;

static UNUSED double *doubles(size_t n)
{
    return kept_calloc(n ? n : 1, sizeof(double));
}

static UNUSED double *to_doubles(const float *x, size_t n)
{
    double *p = doubles(n);
    for (size_t i = 0; i < n; i++)
        p[i] = (double)x[i];
    return p;
}

/* Number of elements of a tensor in the weight lists. */
static UNUSED size_t oracle_product(int ndim, const int *dims)
{
    size_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= (size_t)dims[i];
    return n;
}

static UNUSED double oracle_gelu(double x)
{
    return x * 0.5 * erfc(-x / sqrt(2.0));
}

static UNUSED void oracle_norm(int d, double eps, const double *x, const double *gamma, const double *beta, double *y)
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
static UNUSED void oracle_linear(int n, int k, const double *w, const double *b, const double *x, double *y)
{
    for (int i = 0; i < n; i++) {
        double s = b ? b[i] : 0;
        for (int j = 0; j < k; j++)
            s += w[(size_t)i * (size_t)k + (size_t)j] * x[j];
        y[i] = s;
    }
}

/* Computes out (T, D) from qkv (T, 3, D) with a prefix pk, pv (P, D). class_row (H, T): attention of the class token; NULL:
 * not wanted. */
static UNUSED void oracle_attention(const sfp__vit_config *config, int T, const double *qkv, int P, const double *pk,
                                    const double *pv, double *out, double *class_row)
{
    int D = config->dim, H = config->heads, d = D / H;
    double *p = doubles((size_t)(P + T));
    for (int h = 0; h < H; h++)
        for (int i = 0; i < T; i++) {
            double max = -INFINITY, sum = 0;
            for (int j = 0; j < P + T; j++) {
                const double *key = j < P ? pk + j * D + h * d : qkv + (j - P) * 3 * D + D + h * d;
                p[j] = 0;
                for (int c = 0; c < d; c++)
                    p[j] += qkv[i * 3 * D + h * d + c] * key[c] / sqrt((double)d);
                max = fmax(max, p[j]);
            }
            for (int j = 0; j < P + T; j++)
                sum += p[j] = exp(p[j] - max);
            for (int c = 0; c < d; c++) {
                double s = 0;
                for (int j = 0; j < P + T; j++)
                    s += p[j] / sum * (j < P ? pv + j * D + h * d : qkv + (j - P) * 3 * D + 2 * D + h * d)[c];
                out[i * D + h * d + c] = s;
            }
            for (int j = 0; i == 0 && class_row && j < T; j++)
                class_row[h * T + j] = p[P + j] / sum;
        }
}

/* Computes x (T, D): the class token and the patch embeddings, with positions added. */
static UNUSED void oracle_embed(const vit_oracle *o, const vit_oracle_pass *pass, double *x)
{
    int S = o->c.img_size, P = o->c.patch_size, side = S / P, D = o->c.dim;
    for (int i = 0; i < D; i++)
        x[i] = o->cls[i] + o->pos[i];
    for (int t = 0; t < side * side; t++)
        for (int i = 0; i < D; i++) {
            double s = o->c.no_patch_bias ? 0 : o->patch_b[i];
            for (int ch = 0; ch < 3; ch++)
                for (int v = 0; v < P; v++)
                    for (int u = 0; u < P; u++)
                        s += o->patch_w[((i * 3 + ch) * P + v) * P + u] *
                             pass->x[(ch * S + t / side * P + v) * S + t % side * P + u];
            if (pass->embed)
                pass->embed[t * D + i] = s;
            x[(t + 1) * D + i] = s + o->pos[(t + 1) * D + i];
        }
}

static UNUSED void vit_oracle_forward(const vit_oracle *o, const vit_oracle_pass *pass)
{
    const sfp__vit_config *c = &o->c;
    int side = c->img_size / c->patch_size, T = side * side + 1, D = c->dim, F = c->hidden;
    double eps = (double)c->ln_eps;
    double *x = doubles((size_t)(T * D)), *y = doubles((size_t)(T * D)), *qkv = doubles((size_t)(T * 3 * D)),
           *h = doubles((size_t)F);
    double *out = doubles((size_t)D), *a = doubles((size_t)D);
    oracle_embed(o, pass, x);
    for (int t = 0; c->pre_norm && t < T; t++) {
        oracle_norm(D, eps, x + t * D, o->pre_w, o->pre_b, a);
        memcpy(x + t * D, a, (size_t)D * sizeof *x);
    }
    for (int l = 0; l < c->depth; l++) {
        const vit_oracle_block *b = &o->blocks[l];
        const double *pk = NULL, *pv = NULL;
        int rows = pass->prefix ? pass->prefix(pass->ctx, l, x, &pk, &pv) : 0;
        for (int t = 0; t < T; t++) {
            oracle_norm(D, eps, x + t * D, b->norm1_w, b->norm1_b, a);
            oracle_linear(3 * D, D, b->qkv_w, b->qkv_b, a, qkv + t * 3 * D);
        }
        oracle_attention(c, T, qkv, rows, pk, pv, y, l == c->depth - 1 ? pass->class_attention : NULL);
        for (int t = 0; t < T; t++) {
            oracle_linear(D, D, b->proj_w, b->proj_b, y + t * D, out);
            for (int i = 0; i < D; i++)
                x[t * D + i] += out[i];
            oracle_norm(D, eps, x + t * D, b->norm2_w, b->norm2_b, a);
            oracle_linear(F, D, b->fc1_w, b->fc1_b, a, h);
            for (int i = 0; i < F; i++)
                h[i] = c->quick_gelu ? h[i] / (1 + exp(-1.702 * h[i])) : oracle_gelu(h[i]);
            oracle_linear(D, F, b->fc2_w, b->fc2_b, h, out);
            for (int i = 0; i < D; i++)
                x[t * D + i] += out[i];
        }
        if (pass->tokens[l])
            memcpy(pass->tokens[l], x, (size_t)(T * D) * sizeof *x);
    }
    if (pass->feature)
        oracle_norm(D, eps, x, o->norm_w, o->norm_b, pass->feature);
    for (int t = 0; pass->normed && t < T; t++)
        oracle_norm(D, eps, x + t * D, o->norm_w, o->norm_b, pass->normed + t * D);
}

#endif
