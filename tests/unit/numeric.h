/* Helpers of the numeric tests: random data, comparisons that report the place of a difference, the panel layout. Include
 * after <cmocka.h>.
 *
 * Arrays are allocated with their exact size, so that a sanitizer detects an access beyond them. */
#ifndef SFP_TESTS_NUMERIC_H
#define SFP_TESTS_NUMERIC_H

#include "base/rng.h"

#include "test.h"

/* With the address sanitizer, slow tests do a sample of their cases: plain builds do all of them (cblas_test_*). */
#ifdef __SANITIZE_ADDRESS__
enum { SAMPLE_EVERY = 5 };
#else
enum { SAMPLE_EVERY = 1 };
#endif

static inline float *floats(size_t n)
{
    return kept_malloc(n * sizeof(float));
}

/* Returns n normal values with this standard deviation. */
static UNUSED float *normals(sfp__rng *rng, size_t n, double sd)
{
    float *p = floats(n);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(sd * sfp__rng_normal(rng));
    return p;
}

static UNUSED float *filled(size_t n, float value)
{
    float *p = floats(n);
    for (size_t i = 0; i < n; i++)
        p[i] = value;
    return p;
}

static UNUSED float *copied(const float *x, size_t n)
{
    float *p = floats(n);
    memcpy(p, x, n * sizeof *p);
    return p;
}

/* Checks |got - want| <= tolerance * max(1e-3, the largest |want|). Fails for NaN, too. */
static UNUSED void check_near(const char *what, const float *got, const float *want, size_t n, double tolerance)
{
    double largest = 1e-3;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance * largest))
            fail_msg("%s: element %zu of %zu is %.9g, expected %.9g within %.2g * %.3g", what, i, n, (double)got[i],
                     (double)want[i], tolerance, largest);
}

static UNUSED void check_same(const char *what, const void *got, const void *want, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)got)[i] != ((const unsigned char *)want)[i])
            fail_msg("%s: byte %zu of %zu differs (element %zu of a float array)", what, i, bytes, i / sizeof(float));
}

static UNUSED double dot(const float *a, const float *b, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += (double)a[i] * (double)b[i];
    return s;
}

/* Solves a x = b in place by elimination in double. a (n, n) is positive definite, so that no pivoting is needed. b has m columns;
 * element i of column c is b[i * row + c * column]. */
static UNUSED void solve_dense(int n, double *a, int m, double *b, int row, int column)
{
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++) {
            double f = i == k ? 0 : a[i * n + k] / a[k * n + k];
            for (int j = k; j < n && f != 0; j++)
                a[i * n + j] -= f * a[k * n + j];
            for (int c = 0; c < m && f != 0; c++)
                b[i * row + c * column] -= f * b[k * row + c * column];
        }
    for (int i = 0; i < n; i++)
        for (int c = 0; c < m; c++)
            b[i * row + c * column] /= a[i * n + i];
}

static UNUSED int best_of(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* Index of element (r, c) of an (m, n) matrix in panels of width w (kernels.h). */
static inline size_t panel_at(int m, int w, int r, int c)
{
    return (size_t)(c / w) * (size_t)m * (size_t)w + (size_t)r * (size_t)w + (size_t)(c % w);
}

static UNUSED float *to_panels(const float *dense, int m, int n, int w)
{
    float *p = floats((size_t)m * (size_t)n);
    for (int r = 0; r < m; r++)
        for (int c = 0; c < n; c++)
            p[panel_at(m, w, r, c)] = dense[(size_t)r * (size_t)n + (size_t)c];
    return p;
}

static UNUSED float *from_panels(const float *panels, int m, int n, int w)
{
    float *p = floats((size_t)m * (size_t)n);
    for (int r = 0; r < m; r++)
        for (int c = 0; c < n; c++)
            p[(size_t)r * (size_t)n + (size_t)c] = panels[panel_at(m, w, r, c)];
    return p;
}

#endif
