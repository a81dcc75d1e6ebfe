/* Matrix products: all calls to the library that computes them, behind a few functions. A backend is chosen at configure
 * time: gemm_cblas.c, or gemm_onednn.c with the part for its version of oneDNN (gemm_onednn2.c, gemm_onednn3.c).
 *
 * Frozen weights are packed once into the layout that the library prefers:
 *
 *     weight (may fail) -> op for m rows (may fail) -> run (counts failures)
 *
 * y = x W^T + bias with x (m, k) dense and y (m, n) in panels of sfp__gemm_panel(weight) columns (kernels.h defines the layout of
 * panels). A result in panels lets a backend work on pieces of W that fit the cache.
 *
 * Precision. bf16 rounds weights and inputs to bf16. int8 rounds each row of W to 255 levels, and each row of x, when it is
 * multiplied, to 256 (128 on CPUs without VNNI), equally far apart from the least to the largest number of the row; y is f32. A row
 * of y is a function of the same row of x only.
 *
 * Threads: the library runs single-threaded; the thread pool of the caller runs many products at once, each on its own lane.
 * Between sfp__gemm_enter and _leave the OpenMP team of the calling thread has one thread; _leave restores the caller's
 * setting. */
#ifndef SFP_COMPUTE_GEMM_H
#define SFP_COMPUTE_GEMM_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct sfp__gemm_weight sfp__gemm_weight;
typedef struct sfp__gemm_op sfp__gemm_op;

/* Returns its word in the settings, as in SFP__PRECISIONS. */
const char *sfp__precision_name(sfp_precision precision);
/* Returns bf16 if the processor has instructions for its products, else f32. */
sfp_precision sfp__gemm_native_precision(void);

typedef struct sfp__gemm_weight_desc {
    int n, k;
    const float *w; /* (n, k) row-major; if `transposed` (k, n): y = x w */
    bool transposed;
    const float *bias; /* (n) or NULL; copied */
    int align;         /* panels must be multiples of this (the head width); 0: any */
    sfp_precision precision;
} sfp__gemm_weight_desc;

sfp_status sfp__gemm_weight_create(const sfp__gemm_weight_desc *desc, sfp__gemm_weight **out, sfp_error *err);
/* Packs new numbers into a weight, in place; the description must have the same sizes. No run may read the weight meanwhile. */
sfp_status sfp__gemm_weight_update(sfp__gemm_weight *w, const sfp__gemm_weight_desc *desc, sfp_error *err);
/* Writes the weights as they were before packing, with the same bytes. Only for f32. */
sfp_status sfp__gemm_weight_unpack(const sfp__gemm_weight *w, float *out, sfp_error *err);
void sfp__gemm_weight_free(sfp__gemm_weight *w);
int sfp__gemm_panel(const sfp__gemm_weight *w);

/* Prepares products of m rows with any weight that has the same n, k, align, precision and presence of a bias. */
sfp_status sfp__gemm_op_create(const sfp__gemm_weight *like, int m, int lanes, sfp__gemm_op **out, sfp_error *err);
void sfp__gemm_op_free(sfp__gemm_op *op);
/* lane < lanes; a lane does one run at a time. If the library has no memory, y is undefined and the run counts as a failure. */
void sfp__gemm_run(const sfp__gemm_op *op, int lane, const sfp__gemm_weight *w, const float *x, float *y);
/* sfp__gemm_run for some rows of a larger result: y points to the first of them in a matrix of `rows` rows in panels. */
void sfp__gemm_run_rows(const sfp__gemm_op *op, int lane, const sfp__gemm_weight *w, const float *x, float *y, int rows);
/* Returns the number of failures of this process. Functions with many products compare it before and after them; a failure on
 * another thread makes them fail, too, which is safe. There is a counter instead of a status per product, because nearly all products run
 * in pieces of the thread pool, which return nothing. One comparison per pass replaces a status in every piece. */
unsigned sfp__gemm_failures(void);
/* Fails if there were failures since `before`. */
sfp_status sfp__gemm_check(unsigned before, sfp_error *err);

/* Computes C (m, n) = A B + beta C, row-major, with A (m, k), or (k, m) if ta, and B (k, n), or (n, k) if tb. For products of two
 * changing matrices. If the library has no memory, the last bits differ and the product counts as a failure. */
void sfp__gemm_plain(bool ta, bool tb, int m, int n, int k, const float *a, int lda, const float *b, int ldb, float beta,
                     float *c, int ldc);

int sfp__gemm_enter(void);
void sfp__gemm_leave(int token);

/* Returns the name for messages: "oneDNN 2.6.3", "CBLAS (OpenBLAS 0.3.21)". */
const char *sfp__gemm_backend(void);
/* Returns a number for the instruction set, on which the last bits of products depend and which the user can limit (ONEDNN_MAX_CPU_ISA);
 * 0: the name of the backend contains it. */
int sfp__gemm_isa(void);
/* Starts the backend: compiles its kernels and allocates its memory, so that a failure occurs when an engine is opened. */
sfp_status sfp__gemm_prepare(sfp_error *err);

/* For backends: returns the largest panel width that is a multiple of `align`, divides n and keeps a (k, panel) piece of W
 * within `bytes`. If there is none, returns n. */
int sfp__gemm_choose_panel(int n, int k, int align, size_t bytes);

#endif
