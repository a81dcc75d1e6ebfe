/* Solvers of symmetric positive definite systems for the closed-form heads.
 *
 * There are two precisions for two purposes:
 *   float, blocked, with sfp__gemm_plain: thousands of unknowns (ranpac);
 *   double, simple loops: hundreds of unknowns that may be ill-conditioned (slda).
 *
 * Float matrices are row-major and use the lower triangle, A = L L^T. Right-hand sides are rows: the solves act on X (rows, n)
 * from the right, so that one class or one sample is one contiguous row. The float functions must be called between
 * sfp__gemm_enter and sfp__gemm_leave. No function allocates memory; the same input gives the same bytes. */
#ifndef SFP_LEARNER_CHOLESKY_H
#define SFP_LEARNER_CHOLESKY_H

#include <stdbool.h>

/* Factors A (n, n) into L in place, n^3 / 3 FLOP. Reads the lower triangle; afterwards the values above the diagonal are
 * unspecified. Returns false if a pivot is not above the rounding noise of its diagonal element; A is then partly overwritten. */
bool sfp__cholesky(int n, float *a, int lda);

/* Appends `rows` rows to L: a has L in its first n rows, then rows n .. n+rows of A. Costs rows * n^2 FLOP, so that appending
 * rows one after another costs no more than factoring all at once. */
bool sfp__cholesky_append(int n, int rows, float *a, int lda);

/* Computes X <- X L^-T (forward substitution) and X <- X L^-1 (backward); both in sequence give X <- X (L L^T)^-1. X (rows,
 * n). */
void sfp__cholesky_forward(int rows, int n, const float *l, int ldl, float *x, int ldx);
void sfp__cholesky_backward(int rows, int n, const float *l, int ldl, float *x, int ldx);

/* Factors A = U^T U in double, upper triangle, dense (n, n), in place. Returns false under the same condition as above. */
bool sfp__cholesky_f64(int n, double *a);
/* Computes X <- A^-1 X, X (n, columns) row-major. */
void sfp__cholesky_solve_f64(int n, const double *u, int columns, double *x);

#endif
