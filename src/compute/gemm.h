/* Matrix products: all calls to the library that does them, behind a handful
 * of functions. One file a backend (gemm_onednn2.c, gemm_onednn3.c,
 * gemm_cblas.c), chosen at configure time.
 *
 * Frozen weights are packed once into the layout the library prefers:
 *
 *     weight (may fail) -> op for m rows (may fail) -> run (cannot)
 *
 * y = x W^T + bias with x (m, k) dense and y (m, n) in panels of
 * sfp__gemm_panel(weight) columns (kernels.h says how panels lie). A panelled
 * result lets a backend work on pieces of W that stay in the cache.
 *
 * Threads: the library below runs single-threaded; the pool above runs many
 * products at once, each on its own lane. Between sfp__gemm_enter and _leave
 * the calling thread's OpenMP team is one; the caller's setting is restored. */
#ifndef SFP_COMPUTE_GEMM_H
#define SFP_COMPUTE_GEMM_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct sfp__gemm_weight sfp__gemm_weight;
typedef struct sfp__gemm_op sfp__gemm_op;

typedef struct sfp__gemm_weight_desc {
    int n, k;
    const float *w; /* (n, k) row-major; with `transposed` (k, n): y = x w */
    bool transposed;
    const float *bias; /* (n) or NULL; copied */
    int align;         /* panels must be multiples of this (the head width), 0: any */
    sfp_precision precision;
} sfp__gemm_weight_desc;

sfp_status sfp__gemm_weight_create(const sfp__gemm_weight_desc *desc, sfp__gemm_weight **out, sfp_error *err);
/* New numbers for a weight made from a description of the same sizes: packed in place. No run may read it meanwhile. */
sfp_status sfp__gemm_weight_update(sfp__gemm_weight *w, const sfp__gemm_weight_desc *desc, sfp_error *err);
void sfp__gemm_weight_free(sfp__gemm_weight *w);
int sfp__gemm_panel(const sfp__gemm_weight *w);

/* Ready to run m rows through any weight made with the same n, k, align, bias or not, precision. */
sfp_status sfp__gemm_op_create(const sfp__gemm_weight *like, int m, int lanes, sfp__gemm_op **out, sfp_error *err);
void sfp__gemm_op_free(sfp__gemm_op *op);
/* lane < lanes; one run at a time a lane. */
void sfp__gemm_run(const sfp__gemm_op *op, int lane, const sfp__gemm_weight *w, const float *x, float *y);

/* C (m, n) = A B + beta C, row-major, A (m, k) or with ta (k, m), B (k, n) or with tb (n, k). For products of two
 * changing matrices. */
void sfp__gemm_plain(bool ta, bool tb, int m, int n, int k, const float *a, int lda, const float *b, int ldb, float beta,
                     float *c, int ldc);

int sfp__gemm_enter(void);
void sfp__gemm_leave(int token);

/* "oneDNN 2.6.3", "CBLAS (OpenBLAS 0.3.21)" */
const char *sfp__gemm_backend(void);

/* For backends: the widest panel of n columns that is a multiple of `align`, divides n and keeps a (k, panel) piece of W
 * below `bytes`; n itself when there is none. */
int sfp__gemm_choose_panel(int n, int k, int align, size_t bytes);

#endif
