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
    int merge;                        /* pairs of tokens that each block but the last merges; without prefixes */
    double *class_tokens;             /* (depth, D) after each block */
    double *mean;                     /* (D) over patches of the normed tokens that enter the last block */
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

/* Computes out (T, D) from qkv (T, 3, D) with a prefix pk, pv (P, D). size (T): number of patches of each token. class_row (H, T): attention of the class token; NULL:
 * not wanted. */
static UNUSED void oracle_attention(const sfp__vit_config *config, int T, const double *qkv, int P, const double *pk,
                                    const double *pv, const double *size, double *out, double *class_row)
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
                p[j] += j < P ? 0 : log(size[j - P]);
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

/* Merges pairs of tokens by the means over heads of their keys. Returns the number of tokens that are left. */
static UNUSED int oracle_merge(const sfp__vit_config *config, int T, int pairs, const double *qkv, double *x, double *size)
{
    int D = config->dim, H = config->heads, d = D / H;
    double *key = doubles((size_t)(T * d));
    for (int t = 0; t < T; t++) {
        double length = 0;
        for (int c = 0; c < d; c++) {
            for (int h = 0; h < H; h++)
                key[t * d + c] += qkv[t * 3 * D + D + h * d + c] / H;
            length += key[t * d + c] * key[t * d + c];
        }
        for (int c = 0; c < d; c++)
            key[t * d + c] /= sqrt(length);
    }
    int *partner = kept_calloc((size_t)T, sizeof *partner), left = T;
    bool *gone = kept_calloc((size_t)T, sizeof *gone);
    double *cosine = doubles((size_t)T), *sum = doubles((size_t)(T * D)), *weight = doubles((size_t)T);
    for (int a = 1; a < T; a += 2) {
        cosine[a] = -2;
        for (int b = 2; b < T; b += 2) {
            double s = 0;
            for (int c = 0; c < d; c++)
                s += key[a * d + c] * key[b * d + c];
            if (s > cosine[a]) {
                cosine[a] = s;
                partner[a] = b;
            }
        }
    }
    for (int t = 0; t < T; t++)
        for (int c = 0; c < D; c++)
            sum[t * D + c] = x[t * D + c] * (weight[t] = size[t]);
    for (int k = 0; k < pairs && k < (T - 1) / 2; k++, left--) {
        int a = 0;
        for (int t = 1; t < T; t += 2)
            if (!gone[t] && (a == 0 || cosine[t] > cosine[a]))
                a = t;
        gone[a] = true;
        weight[partner[a]] += size[a];
        for (int c = 0; c < D; c++)
            sum[partner[a] * D + c] += x[a * D + c] * size[a];
    }
    for (int t = 0, to = 0; t < T; t++)
        if (!gone[t]) {
            size[to] = weight[t];
            for (int c = 0; c < D; c++)
                x[to * D + c] = sum[t * D + c] / weight[t];
            to++;
        }
    return left;
}

static UNUSED void vit_oracle_forward(const vit_oracle *o, const vit_oracle_pass *pass)
{
    const sfp__vit_config *c = &o->c;
    int side = c->img_size / c->patch_size, T = side * side + 1, D = c->dim, F = c->hidden;
    double eps = (double)c->ln_eps;
    double *x = doubles((size_t)(T * D)), *y = doubles((size_t)(T * D)), *qkv = doubles((size_t)(T * 3 * D)),
           *h = doubles((size_t)F);
    double *out = doubles((size_t)D), *a = doubles((size_t)D), *size = doubles((size_t)T);
    for (int t = 0; t < T; t++)
        size[t] = 1;
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
        for (int t = 1; pass->mean && l == c->depth - 1 && t < T; t++) {
            oracle_norm(D, eps, x + t * D, o->norm_w, o->norm_b, a);
            for (int i = 0; i < D; i++)
                pass->mean[i] += a[i] * size[t] / (side * side);
        }
        oracle_attention(c, T, qkv, rows, pk, pv, size, y, l == c->depth - 1 ? pass->class_attention : NULL);
        for (int t = 0; t < T; t++) {
            oracle_linear(D, D, b->proj_w, b->proj_b, y + t * D, out);
            for (int i = 0; i < D; i++)
                x[t * D + i] += out[i];
        }
        if (pass->merge && l < c->depth - 1)
            T = oracle_merge(c, T, pass->merge, qkv, x, size);
        for (int t = 0; t < T; t++) {
            oracle_norm(D, eps, x + t * D, b->norm2_w, b->norm2_b, a);
            oracle_linear(F, D, b->fc1_w, b->fc1_b, a, h);
            for (int i = 0; i < F; i++)
                h[i] = c->quick_gelu ? h[i] / (1 + exp(-1.702 * h[i])) : oracle_gelu(h[i]);
            oracle_linear(D, F, b->fc2_w, b->fc2_b, h, out);
            for (int i = 0; i < D; i++)
                x[t * D + i] += out[i];
        }
        if (pass->class_tokens)
            memcpy(pass->class_tokens + l * D, x, (size_t)D * sizeof *x);
        if (pass->tokens[l])
            memcpy(pass->tokens[l], x, (size_t)(T * D) * sizeof *x);
    }
    if (pass->feature)
        oracle_norm(D, eps, x, o->norm_w, o->norm_b, pass->feature);
    for (int t = 0; pass->normed && t < T; t++)
        oracle_norm(D, eps, x + t * D, o->norm_w, o->norm_b, pass->normed + t * D);
}

#endif
