/* Solvers of symmetric positive definite systems in float, for thousands of unknowns (ranpac). triangle.h has them in double.
 *
 * Matrices are row-major and use the lower triangle, A = L L^T. Right-hand sides are rows: the solves act on X (rows, n)
 * from the right, so that one class or one sample is one contiguous row. The functions must be called between
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

#endif
