/* Blocked left-looking Cholesky factorisation and triangular solves.
 *
 * Left-looking, because a block is then finished by one long product, and because sfp__gemm_plain has no minus sign: beta = -1
 * produces the negated block T = sum - A, and the small inverse that it is multiplied with next includes the sign. No workspace
 * is needed.
 *
 * Diagonal blocks are factored and inverted in double and applied as products: substitution inside a block would be as slow as
 * all other operations together. */
#include "learner/heads/cholesky.h"

#include "compute/gemm.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

enum { NB = 64 };

typedef struct block {
    double v[NB][NB]; /* lower triangle */
} block;

static float *at(float *a, int lda, int r, int c)
{
    return a + (size_t)r * (size_t)lda + c;
}

static const float *at_const(const float *a, int lda, int r, int c)
{
    return a + (size_t)r * (size_t)lda + c;
}

static int min(int a, int b)
{
    return a < b ? a : b;
}

/* Computes inv (nb, NB) = sign * (lower triangle of l)^-1, zero above the diagonal. It combines rows, so that the inner loop runs
 * along a row. */
static void invert(int nb, const float *l, int ldl, float sign, float *inv)
{
    block b;
    for (int i = 0; i < nb; i++) {
        double *row = b.v[i], scale = 1 / (double)*at_const(l, ldl, i, i);
        memset(row, 0, sizeof b.v[i]);
        for (int k = 0; k < i; k++) {
            double f = (double)*at_const(l, ldl, i, k);
            for (int j = 0; j <= k; j++)
                row[j] -= f * b.v[k][j];
        }
        for (int j = 0; j < i; j++)
            row[j] *= scale;
        row[i] = scale;
        for (int j = 0; j < NB; j++)
            inv[i * NB + j] = sign * (float)row[j];
    }
}

/* Computes X (rows, nb) <- X inv^T, or X inv. */
static void apply(int rows, int nb, const float *inv, bool transposed, float *x, int ldx)
{
    float piece[NB * NB];
    for (int r = 0; r < rows; r += NB) {
        int m = min(NB, rows - r);
        sfp__gemm_plain(false, transposed, m, nb, nb, at(x, ldx, r, 0), ldx, inv, NB, 0.0f, piece, NB);
        for (int i = 0; i < m; i++)
            memcpy(at(x, ldx, r + i, 0), piece + i * NB, (size_t)nb * sizeof *x);
    }
}

/* Replaces the diagonal block a (nb, nb), which contains sign * A, by L with zeros above the diagonal. `diagonal` is that of A
 * before any subtraction: a pivot of a few units in its last place is rounding noise. */
static bool factor_block(int nb, float *a, int lda, float sign, const float *diagonal)
{
    block b;
    for (int i = 0; i < nb; i++)
        for (int j = 0; j <= i; j++) {
            double s = (double)(sign * *at(a, lda, i, j));
            for (int k = 0; k < j; k++)
                s -= b.v[i][k] * b.v[j][k];
            if (i > j)
                b.v[i][j] = s / b.v[j][j];
            else if (s > 4 * (double)FLT_EPSILON * (double)diagonal[i] && isfinite(s))
                b.v[i][i] = sqrt(s);
            else
                return false;
        }
    for (int i = 0; i < nb; i++)
        for (int j = 0; j < nb; j++)
            *at(a, lda, i, j) = j <= i ? (float)b.v[i][j] : 0.0f;
    return true;
}

bool sfp__cholesky(int n, float *a, int lda)
{
    float inv[NB * NB], diagonal[NB];
    for (int j = 0; j < n; j += NB) {
        int nb = min(NB, n - j), below = n - j - nb;
        float sign = j > 0 ? -1.0f : 1.0f;
        for (int i = 0; i < nb; i++)
            diagonal[i] = *at(a, lda, j + i, j + i);
        if (j > 0)
            sfp__gemm_plain(false, true, n - j, nb, j, at(a, lda, j, 0), lda, at(a, lda, j, 0), lda, -1.0f, at(a, lda, j, j),
                            lda);
        if (!factor_block(nb, at(a, lda, j, j), lda, sign, diagonal))
            return false;
        if (below > 0) {
            invert(nb, at(a, lda, j, j), lda, sign, inv);
            apply(below, nb, inv, true, at(a, lda, j + nb, j), lda);
        }
    }
    return true;
}

bool sfp__cholesky_append(int n, int rows, float *a, int lda)
{
    if (n == 0)
        return sfp__cholesky(rows, a, lda);
    float diagonal[NB];
    for (int j = 0; j < rows; j += NB) {
        int nb = min(NB, rows - j), r = n + j;
        for (int i = 0; i < nb; i++)
            diagonal[i] = *at(a, lda, r + i, r + i);
        sfp__cholesky_forward(nb, r, a, lda, at(a, lda, r, 0), lda);
        sfp__gemm_plain(false, true, nb, nb, r, at(a, lda, r, 0), lda, at(a, lda, r, 0), lda, -1.0f, at(a, lda, r, r), lda);
        if (!factor_block(nb, at(a, lda, r, r), lda, -1.0f, diagonal))
            return false;
    }
    return true;
}

void sfp__cholesky_forward(int rows, int n, const float *l, int ldl, float *x, int ldx)
{
    float inv[NB * NB];
    for (int j = 0; j < n; j += NB) {
        int nb = min(NB, n - j);
        if (j > 0)
            sfp__gemm_plain(false, true, rows, nb, j, x, ldx, at_const(l, ldl, j, 0), ldl, -1.0f, x + j, ldx);
        invert(nb, at_const(l, ldl, j, j), ldl, j > 0 ? -1.0f : 1.0f, inv);
        apply(rows, nb, inv, true, x + j, ldx);
    }
}

void sfp__cholesky_backward(int rows, int n, const float *l, int ldl, float *x, int ldx)
{
    float inv[NB * NB];
    for (int j = (n - 1) / NB * NB; j >= 0; j -= NB) {
        int nb = min(NB, n - j), after = j + nb;
        if (after < n)
            sfp__gemm_plain(false, false, rows, nb, n - after, x + after, ldx, at_const(l, ldl, after, j), ldl, -1.0f, x + j,
                            ldx);
        invert(nb, at_const(l, ldl, j, j), ldl, after < n ? -1.0f : 1.0f, inv);
        apply(rows, nb, inv, false, x + j, ldx);
    }
}
