/* The kernels that no library provides: layer norm, GELU and softmax attention with prefix keys and values, each with its
 * backward pass, and a matrix product in double, which oneDNN does not have.
 *
 * There is one table per instruction set; one is chosen at first use. All others are tested against the plain-C table of
 * kernels_ref.c.
 *
 * Layouts. "dense" is (m, n) row-major. "panels of w" is the layout of a packed matrix product (gemm.h): the columns are divided
 * into panels of w, stored one after another, each (m, w) row-major; w = n is dense. Element (r, c) of a matrix in panels is at
 * (c / w) * m * w + r * w + c % w. */
#ifndef SFP_COMPUTE_KERNELS_H
#define SFP_COMPUTE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Softmax attention of one head of one sample: the rows of q attend to np prefix rows followed by nk token rows. */
typedef struct sfp__attn {
    int nq, nk, np, d;
    float scale;
    const float *q; /* (nq, d), row stride ldq */
    int ldq;
    const float *k, *v; /* (nk, d), row stride ldkv */
    int ldkv;
    const float *pk, *pv; /* (np, d), row stride ldp */
    int ldp;
    const float
        *weight; /* forward: (nk) factors of the exponentials of the token keys, such as the sizes of merged tokens; NULL: 1 */
    float *out;  /* forward: (nq, d), row stride ldo */
    int ldo;
    float *prob0; /* forward: probabilities of row 0 over the nk tokens, without the prefix; NULL: not computed */
    /* backward */
    const float *dout; /* (nq, d), row stride lddo */
    int lddo;
    float *dq, *dk, *dv; /* (nq|nk, d), row stride ldd, overwritten; all NULL: only the prefix gradients are computed */
    int ldd;
    float *dpk, *dpv; /* (np, d), row stride lddp, overwritten; NULL: not computed */
    int lddp;
    float *scratch; /* attn_scratch(...) floats, 64-byte aligned */
} sfp__attn;

typedef struct sfp__kernels {
    const char *isa;

    /* y = (x - mean) * rstd * gamma + beta; stats (m, 2) = mean, rstd. */
    void (*norm_fwd)(int m, int d, const float *x, const float *gamma, const float *beta, float eps, float *y, float *stats);

    /* xo = x + r (panels of w), then y = norm(xo): residual and norm in one pass. xo may equal x. y NULL: only the sum. */
    void (*add_norm_fwd)(int m, int d, const float *x, const float *r, int w, const float *gamma, const float *beta, float eps,
                         float *xo, float *y, float *stats);

    /* Adds the gradient of the norm for dy (panels of w) to dx, and to dgamma and dbeta if these are not NULL. */
    void (*norm_bwd)(int m, int d, const float *dy, int w, const float *x, const float *stats, const float *gamma, float *dx,
                     float *dgamma, float *dbeta);

    /* y (dense) = gelu(h), h in panels of w; if `save`, h is replaced by the derivative, for gelu_bwd. */
    void (*gelu_fwd)(int m, int n, float *h, int w, bool save, float *y);

    /* Like gelu_fwd, with QuickGELU: h * sigmoid(1.702 h). */
    void (*quick_gelu_fwd)(int m, int n, float *h, int w, bool save, float *y);

    /* dh (dense) = dy * derivative, both in panels of w. */
    void (*gelu_bwd)(int m, int n, const float *dy, const float *derivative, int w, float *dh);

    /* Returns the number of floats of scratch that attn_fwd and attn_bwd need for sizes up to these. */
    size_t (*attn_scratch)(int nq, int nk_with_prefix, int d);
    void (*attn_fwd)(const sfp__attn *a);
    void (*attn_bwd)(const sfp__attn *a);

    /* y = x, rounded to the nearest bf16, ties to even; a NaN remains one. */
    void (*to_bf16)(size_t n, const float *x, uint16_t *y);

    /* Rounds each row of x (m, k) to whole numbers from 0 to `levels`, so that x is about step * y + low; rows (m, 2) = step, low. If
     * a row has a NaN or an infinity, low is a NaN. */
    void (*to_u8)(int m, int k, int levels, const float *x, uint8_t *y, float *rows);

    /* y (m, n) = y * step(row) * step(column) + low(row) * sum(column) + bias(column), with rows of to_u8: the product of numbers before
     * they were rounded, from that of rounded ones. */
    void (*scale_product)(int m, int n, const float *rows, const float *step, const float *sum, const float *bias, float *y);

    /* Finds for each row of a (m, d) the row of b (n, d) with the largest dot product (ties: the first one), and writes its index and this
     * product. scratch: attn_scratch(m, n, d) floats. */
    void (*nearest_rows)(int m, int n, int d, const float *a, const float *b, int *index, float *product, float *scratch);

    /* c (m, n) += sign * the sum over r < k of a(r, i) b(r, j), in double; a(r, i) is a[r * a_k + i * a_m]. The sum runs from 0 to
     * k, so that the result does not depend on how m and n are divided. */
    void (*product_f64)(int m, int n, int k, double sign, const double *a, ptrdiff_t a_k, ptrdiff_t a_m, const double *b, int ldb,
                        double *c, int ldc);
} sfp__kernels;

/* Returns the fastest table for this CPU. The environment variable STREAMFP_ISA = ref | generic | avx2 | avx512 chooses another
 * one, if the CPU supports it. */
const sfp__kernels *sfp__kernels_get(void);

/* Returns the table with this name; NULL: unknown, or not supported by this CPU. */
const sfp__kernels *sfp__kernels_named(const char *isa);

extern const sfp__kernels sfp__kernels_ref, sfp__kernels_generic, sfp__kernels_avx2, sfp__kernels_avx512;

/* The instruction sets that this CPU supports. */
typedef struct sfp__cpu {
    bool avx2;   /* AVX2 and FMA */
    bool avx512; /* F, BW, VL, DQ */
    bool bf16;   /* AVX512_BF16 */
} sfp__cpu;

sfp__cpu sfp__cpu_detect(void);

/* Returns the name of the processor; never NULL. */
const char *sfp__cpu_name(void);

#endif
