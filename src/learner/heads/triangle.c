/* A left-looking blocked Cholesky factorisation: a block of rows is finished by products with all blocks above it, divided by
 * columns among the threads. */
#include "learner/heads/triangle.h"

#include "compute/kernels.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { B = SFP__TRIANGLE_BLOCK, STRIP = 128 }; /* columns per piece of work */

static int min(int a, int b)
{
    return a < b ? a : b;
}

size_t sfp__triangle_count(int n)
{
    size_t count = 0;
    for (int i = 0; i < n; i += B)
        count += (size_t)min(B, n - i) * (size_t)(n - i);
    return count;
}

/* Returns the block of rows that begins with row i; its first column is column i, its row stride n - i. */
static double *block_at(double *t, int n, int i)
{
    return sfp__triangle_row(t, n, i) + i;
}

static const double *const_block_at(const double *t, int n, int i)
{
    return block_at((double *)(uintptr_t)t, n, i);
}

static void run(sfp__thread_pool *threads, int pieces, sfp__thread_pool_fn fn, void *ctx)
{
    if (threads && pieces > 1)
        sfp__thread_pool_run(threads, pieces, fn, ctx);
    else
        for (int i = 0; i < pieces; i++)
            fn(ctx, i, 0);
}

/* ------------------------------------------------------------------------ sums */

typedef struct add_job {
    int n, k;
    double sign, *t;
    const double *x;
} add_job;

static void add_block(void *ctx, int piece, int worker)
{
    const add_job *j = ctx;
    (void)worker;
    int i = piece * B, width = j->n - i;
    sfp__kernels_get()->product_f64(min(B, width), width, j->k, j->sign, j->x + i, j->n, 1, j->x + i, j->n,
                                    block_at(j->t, j->n, i), width);
}

void sfp__triangle_add(int n, double *t, int k, double sign, const double *x, sfp__thread_pool *threads)
{
    add_job j = {n, k, sign, t, x};
    run(threads, (n + B - 1) / B, add_block, &j);
}

double sfp__triangle_shrink(int n, double *a, double samples, double share, double extra)
{
    double trace = 0, squares = 0, target = 1;
    for (int i = 0; i < n; i++) {
        const double *row = sfp__triangle_row(a, n, i);
        trace += row[i];
        squares += row[i] * row[i];
        for (int j = i + 1; j < n; j++)
            squares += 2 * row[j] * row[j];
    }
    if (share < 0) {
        double spread = squares - trace * trace / n, top = (1 - 2.0 / n) * squares + trace * trace;
        share = spread > 0 ? fmin(1, top / ((samples + 1 - 2.0 / n) * spread)) : 1;
        target = trace / n;
    }
    if (!(trace > 0)) { /* all samples of each class are equal */
        share = 1;
        target = 1;
    }
    for (int i = 0; i < n; i++) {
        double *row = sfp__triangle_row(a, n, i);
        for (int j = i; j < n; j++)
            row[j] *= 1 - share;
        row[i] += share * target + extra * trace / n;
    }
    return share;
}

/* ---------------------------------------------------------------------- factor */

typedef struct factor_job {
    int n, i, from; /* size; first row of the block; first column of the strips */
    double *a;
} factor_job;

/* Subtracts the products of the blocks above from columns [c, c + width) of the block. */
static void subtract_above(const factor_job *j, int c, int width)
{
    int rows = min(B, j->n - j->i);
    double *to = block_at(j->a, j->n, j->i) + (c - j->i);
    for (int k = 0; k < j->i; k += B) {
        const double *above = block_at(j->a, j->n, k);
        sfp__kernels_get()->product_f64(rows, width, B, -1, above + (j->i - k), j->n - k, 1, above + (c - k), j->n - k, to,
                                        j->n - j->i);
    }
}

/* Finishes a strip of the block: U_block = L^-1 (A - ...), L the transposed factor of the diagonal. */
static void finish_strip(void *ctx, int piece, int worker)
{
    const factor_job *j = ctx;
    (void)worker;
    int c = j->from + piece * STRIP, width = min(STRIP, j->n - c), rows = min(B, j->n - j->i), ld = j->n - j->i;
    double *u = block_at(j->a, j->n, j->i), *x = u + (c - j->i);
    subtract_above(j, c, width);
    for (int k = 0; k < rows; k++) {
        double *row = x + (ptrdiff_t)k * ld, scale = 1 / u[(ptrdiff_t)k * ld + k];
        for (int r = 0; r < width; r++)
            row[r] *= scale;
        sfp__kernels_get()->product_f64(rows - k - 1, width, 1, -1, u + (ptrdiff_t)k * ld + k + 1, ld, 1, row, ld, row + ld, ld);
    }
}

/* Factors the diagonal block. `diagonal` is that of A before any subtraction. */
static bool factor_diagonal(int rows, double *u, int ld, const double *diagonal)
{
    for (int k = 0; k < rows; k++) {
        double *row = u + (ptrdiff_t)k * ld, pivot = row[k];
        if (!(pivot > 4 * DBL_EPSILON * diagonal[k]) || !isfinite(pivot))
            return false;
        double scale = 1 / sqrt(pivot);
        for (int j = k; j < rows; j++)
            row[j] *= scale;
        for (int i = k + 1; i < rows; i++)
            for (int j = i; j < rows; j++)
                u[(ptrdiff_t)i * ld + j] -= row[i] * row[j];
    }
    return true;
}

bool sfp__triangle_factor(int n, double *a, sfp__thread_pool *threads)
{
    double diagonal[B];
    for (int i = 0; i < n; i += B) {
        int rows = min(B, n - i), ld = n - i;
        factor_job j = {n, i, i + rows, a};
        double *u = block_at(a, n, i);
        for (int k = 0; k < rows; k++)
            diagonal[k] = u[(ptrdiff_t)k * ld + k];
        subtract_above(&j, i, rows);
        if (!factor_diagonal(rows, u, ld, diagonal))
            return false;
        run(threads, (n - j.from + STRIP - 1) / STRIP, finish_strip, &j);
    }
    return true;
}

/* ----------------------------------------------------------------------- solve */

typedef struct solve_job {
    int n, columns;
    bool half;
    const double *u;
    double *x;
} solve_job;

static void solve_columns(void *ctx, int piece, int worker)
{
    const solve_job *j = ctx;
    (void)worker;
    int c = piece * B, width = min(B, j->columns - c), ldx = j->columns, n = j->n;
    double *x = j->x + c;
    const sfp__kernels *kernels = sfp__kernels_get();
    for (int i = 0; i < n; i += B) { /* U^T y = x */
        int rows = min(B, n - i), ld = n - i;
        const double *u = const_block_at(j->u, n, i);
        for (int k = 0; k < i; k += B)
            kernels->product_f64(rows, width, B, -1, const_block_at(j->u, n, k) + (i - k), n - k, 1, x + (ptrdiff_t)k * ldx, ldx,
                                 x + (ptrdiff_t)i * ldx, ldx);
        for (int k = 0; k < rows; k++) {
            double *row = x + (ptrdiff_t)(i + k) * ldx, scale = 1 / u[(ptrdiff_t)k * ld + k];
            for (int r = 0; r < width; r++)
                row[r] *= scale;
            kernels->product_f64(rows - k - 1, width, 1, -1, u + (ptrdiff_t)k * ld + k + 1, ld, 1, row, ldx, row + ldx, ldx);
        }
    }
    for (int i = (n - 1) / B * B; !j->half && i >= 0; i -= B) { /* U x = y */
        int rows = min(B, n - i), ld = n - i;
        const double *u = const_block_at(j->u, n, i);
        kernels->product_f64(rows, width, n - i - rows, -1, u + rows, 1, ld, x + (ptrdiff_t)(i + rows) * ldx, ldx,
                             x + (ptrdiff_t)i * ldx, ldx);
        for (int k = rows - 1; k >= 0; k--) {
            double *row = x + (ptrdiff_t)(i + k) * ldx, scale = 1 / u[(ptrdiff_t)k * ld + k];
            for (int r = 0; r < width; r++)
                row[r] *= scale;
            kernels->product_f64(k, width, 1, -1, u + k, ld, ld, row, ldx, x + (ptrdiff_t)i * ldx, ldx);
        }
    }
}

void sfp__triangle_solve(int n, const double *u, int columns, double *x, sfp__thread_pool *threads)
{
    solve_job j = {n, columns, false, u, x};
    run(threads, (columns + B - 1) / B, solve_columns, &j);
}

void sfp__triangle_half_solve(int n, const double *u, int columns, double *x, sfp__thread_pool *threads)
{
    solve_job j = {n, columns, true, u, x};
    run(threads, (columns + B - 1) / B, solve_columns, &j);
}

/* The columns of block j of A^-1 from row j on depend only on the part of the factor from row j on, which is a triangle, too. */
void sfp__triangle_invert(int n, const double *u, double *inverse, double *work, sfp__thread_pool *threads)
{
    for (int j = 0; j < n; j += B) {
        int rows = min(B, n - j), left = n - j;
        double *to = block_at(inverse, n, j);
        memset(work, 0, (size_t)left * (size_t)rows * sizeof *work);
        for (int k = 0; k < rows; k++)
            work[(ptrdiff_t)k * rows + k] = 1;
        sfp__triangle_solve(left, const_block_at(u, n, j), rows, work, threads);
        for (int k = 0; k < rows; k++)
            for (int c = 0; c < left; c++)
                to[(ptrdiff_t)k * left + c] = work[(ptrdiff_t)c * rows + k];
    }
}

void sfp__triangle_multiply(int n, const double *a, int columns, const double *x, double *y)
{
    const sfp__kernels *kernels = sfp__kernels_get();
    memset(y, 0, (size_t)n * (size_t)columns * sizeof *y);
    for (int i = 0; i < n; i += B) {
        int rows = min(B, n - i), ld = n - i;
        const double *block = const_block_at(a, n, i), *from = x + (ptrdiff_t)i * columns;
        double *to = y + (ptrdiff_t)i * columns;
        kernels->product_f64(rows, columns, ld, 1, block, 1, ld, from, columns, to, columns);
        kernels->product_f64(ld - rows, columns, rows, 1, block + rows, ld, 1, from, columns, to + (ptrdiff_t)rows * columns,
                             columns);
    }
}
