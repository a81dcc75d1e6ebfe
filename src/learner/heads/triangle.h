/* Symmetric matrices of doubles for the closed-form heads: sums of products of samples, their Cholesky factors and solves.
 *
 * Only the upper triangle is stored, in blocks of 64 rows: block i has the columns from 64 i on, row-major. So a matrix takes
 * little more than half the memory, and each block is a dense matrix. The functions divide the work by columns: the result does
 * not depend on the number of threads. They allocate no memory. */
#ifndef SFP_LEARNER_TRIANGLE_H
#define SFP_LEARNER_TRIANGLE_H

#include "base/thread_pool.h"

#include <stdbool.h>
#include <stddef.h>

enum { SFP__TRIANGLE_BLOCK = 64 };

/* Returns the number of doubles of an (n, n) matrix. */
size_t sfp__triangle_count(int n);

/* Returns row i: element (i, j) is at [j], for j >= i. */
static inline double *sfp__triangle_row(double *t, int n, int i)
{
    size_t b = SFP__TRIANGLE_BLOCK, block = (size_t)i / b, width = (size_t)n - block * b;
    return t + block * b * (size_t)n - b * b * block * (block - 1) / 2 + ((size_t)i - block * b) * width - block * b;
}

/* Adds sign * the sum over r < k of x_r x_r^T; x (k, n). `threads` may be NULL here and below. */
void sfp__triangle_add(int n, double *t, int k, double sign, const double *x, sfp__thread_pool *threads);

/* Shrinks a covariance of `samples` samples: to (1 - share) A + share I, or if share is negative towards the mean of its diagonal by the
 * oracle approximating estimator (Chen et al., 2010). `extra` times this mean is added to the diagonal. Returns the share. */
double sfp__triangle_shrink(int n, double *a, double samples, double share, double extra);

/* Factors A = U^T U in place. Returns false if a pivot is not above the rounding error of its diagonal element. */
bool sfp__triangle_factor(int n, double *a, sfp__thread_pool *threads);

/* Computes X <- A^-1 X from the factor; X (n, columns) row-major. */
void sfp__triangle_solve(int n, const double *u, int columns, double *x, sfp__thread_pool *threads);

/* Computes X <- U^-T X from the factor, so that X^T X becomes X^T A^-1 X. */
void sfp__triangle_half_solve(int n, const double *u, int columns, double *x, sfp__thread_pool *threads);

/* Writes A^-1 to `inverse`, from the factor. work (n, SFP__TRIANGLE_BLOCK). */
void sfp__triangle_invert(int n, const double *u, double *inverse, double *work, sfp__thread_pool *threads);

/* Computes Y = A X; X and Y (n, columns) row-major. The elements below the diagonal of the diagonal blocks must be set, too, as
 * sfp__triangle_add and sfp__triangle_invert do. */
void sfp__triangle_multiply(int n, const double *a, int columns, const double *x, double *y);

#endif
