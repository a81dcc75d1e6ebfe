/* The kernels no library has: layer norm, GELU and softmax attention with
 * prefix keys and values, each with its backward.
 *
 * One table per instruction set, chosen once at start; the plain-C table
 * of kernels_ref.c is the oracle of all others.
 *
 * Layouts. "dense" is (m, n) row-major. "panels of w" is how a packed matrix
 * product leaves its result (gemm.h): columns cut in panels of w, panel after
 * panel, each (m, w) row-major; w = n is dense. Element (r, c) of a panelled
 * matrix lies at (c / w) * m * w + r * w + c % w. */
#ifndef SFP_COMPUTE_KERNELS_H
#define SFP_COMPUTE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

/* Softmax attention of one head of one sample: rows of q attend to np prefix
 * rows followed by nk token rows. */
typedef struct sfp__attn {
    int nq, nk, np, d;
    float scale;
    const float *q; /* (nq, d), row stride ldq */
    int ldq;
    const float *k, *v; /* (nk, d), row stride ldkv */
    int ldkv;
    const float *pk, *pv; /* (np, d), row stride ldp */
    int ldp;
    float *out; /* forward: (nq, d), row stride ldo */
    int ldo;
    float *prob0; /* forward: probabilities of row 0 over the nk tokens (prefix left out), or NULL */
    /* backward */
    const float *dout; /* (nq, d), row stride lddo */
    int lddo;
    float *dq, *dk, *dv; /* (nq|nk, d), row stride ldd, overwritten; all NULL: only the prefix gradients are wanted */
    int ldd;
    float *dpk, *dpv; /* (np, d), row stride lddp, overwritten; NULL: not wanted */
    int lddp;
    float *scratch; /* attn_scratch(...) floats, 64-byte aligned */
} sfp__attn;

typedef struct sfp__kernels {
    const char *isa;

    /* y = (x - mean) * rstd * gamma + beta; stats (m, 2) = mean, rstd. */
    void (*norm_fwd)(int m, int d, const float *x, const float *gamma, const float *beta, float eps, float *y, float *stats);

    /* xo = x + r (panels of w), then y = norm(xo): residual and norm in one pass. xo may be x. y NULL: only the sum. */
    void (*add_norm_fwd)(int m, int d, const float *x, const float *r, int w, const float *gamma, const float *beta, float eps,
                         float *xo, float *y, float *stats);

    /* dx += norm's backward of dy (panels of w). dgamma, dbeta += when not NULL. */
    void (*norm_bwd)(int m, int d, const float *dy, int w, const float *x, const float *stats, const float *gamma, float *dx,
                     float *dgamma, float *dbeta);

    /* y (dense) = gelu(h), h in panels of w; with `save` h becomes the derivative, ready for gelu_bwd. */
    void (*gelu_fwd)(int m, int n, float *h, int w, bool save, float *y);

    /* The same with QuickGELU, h * sigmoid(1.702 h). */
    void (*quick_gelu_fwd)(int m, int n, float *h, int w, bool save, float *y);

    /* dh (dense) = dy * derivative, both in panels of w. */
    void (*gelu_bwd)(int m, int n, const float *dy, const float *derivative, int w, float *dh);

    /* Floats of scratch that attn_fwd and attn_bwd need for sizes up to these. */
    size_t (*attn_scratch)(int nq, int nk_with_prefix, int d);
    void (*attn_fwd)(const sfp__attn *a);
    void (*attn_bwd)(const sfp__attn *a);
} sfp__kernels;

/* The best table for this CPU. The environment variable STREAMFP_ISA = ref | generic | avx2 | avx512 chooses another
 * one that the CPU can run. */
const sfp__kernels *sfp__kernels_get(void);

/* By name; NULL when it is unknown or this CPU cannot run it. */
const sfp__kernels *sfp__kernels_named(const char *isa);

extern const sfp__kernels sfp__kernels_ref, sfp__kernels_generic, sfp__kernels_avx2, sfp__kernels_avx512;

/* What this CPU can run. */
typedef struct sfp__cpu {
    bool avx2;   /* AVX2 and FMA */
    bool avx512; /* F, BW, VL, DQ */
    bool bf16;   /* AVX512_BF16 */
} sfp__cpu;

sfp__cpu sfp__cpu_detect(void);

/* The processor's name, e.g. from /proc/cpuinfo; never NULL. */
const char *sfp__cpu_name(void);

#endif
