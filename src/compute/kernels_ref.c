/* The plain-C kernels: each formula as written in the literature, with sums in double. They are slow; the fast kernels are tested
 * against them. */
#include "compute/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t panel_index(int m, int w, int r, int c)
{
    return (size_t)(c / w) * (size_t)m * (size_t)w + (size_t)r * (size_t)w + (size_t)(c % w);
}

static void norm_fwd(int m, int d, const float *x, const float *gamma, const float *beta, float eps, float *y, float *stats)
{
    for (int r = 0; r < m; r++) {
        const float *row = x + (size_t)r * (size_t)d;
        double mean = 0, var = 0;
        for (int c = 0; c < d; c++)
            mean += row[c];
        mean /= d;
        for (int c = 0; c < d; c++)
            var += (row[c] - mean) * (row[c] - mean);
        double rstd = 1 / sqrt(var / d + (double)eps);
        stats[2 * r] = (float)mean;
        stats[2 * r + 1] = (float)rstd;
        for (int c = 0; c < d; c++)
            y[(size_t)r * (size_t)d + (size_t)c] = (float)((row[c] - mean) * rstd * (double)gamma[c] + (double)beta[c]);
    }
}

static void add_norm_fwd(int m, int d, const float *x, const float *res, int w, const float *gamma, const float *beta, float eps,
                         float *xo, float *y, float *stats)
{
    for (int r = 0; r < m; r++)
        for (int c = 0; c < d; c++)
            xo[(size_t)r * (size_t)d + (size_t)c] = x[(size_t)r * (size_t)d + (size_t)c] + res[panel_index(m, w, r, c)];
    if (y)
        norm_fwd(m, d, xo, gamma, beta, eps, y, stats);
}

static void norm_bwd(int m, int d, const float *dy, int w, const float *x, const float *stats, const float *gamma, float *dx,
                     float *dgamma, float *dbeta)
{
    for (int r = 0; r < m; r++) {
        double mean = (double)stats[2 * r], rstd = (double)stats[2 * r + 1], m1 = 0, m2 = 0;
        for (int c = 0; c < d; c++) {
            double g = (double)dy[panel_index(m, w, r, c)], xhat = ((double)x[(size_t)r * (size_t)d + (size_t)c] - mean) * rstd;
            m1 += g * (double)gamma[c] / d;
            m2 += g * (double)gamma[c] * xhat / d;
        }
        for (int c = 0; c < d; c++) {
            double g = (double)dy[panel_index(m, w, r, c)], xhat = ((double)x[(size_t)r * (size_t)d + (size_t)c] - mean) * rstd;
            dx[(size_t)r * (size_t)d + (size_t)c] += (float)(rstd * (g * (double)gamma[c] - m1 - xhat * m2));
            if (dgamma) {
                dgamma[c] += (float)(g * xhat);
                dbeta[c] += (float)g;
            }
        }
    }
}

static void gelu_fwd(int m, int n, float *h, int w, bool save, float *y)
{
    for (int r = 0; r < m; r++)
        for (int c = 0; c < n; c++) {
            double x = (double)h[panel_index(m, w, r, c)];
            double cdf = 0.5 * (1 + erf(x / sqrt(2.0)));
            y[(size_t)r * (size_t)n + (size_t)c] = (float)(x * cdf);
            if (save)
                h[panel_index(m, w, r, c)] = (float)(cdf + x * exp(-x * x / 2) / sqrt(2 * acos(-1.0)));
        }
}

static void quick_gelu_fwd(int m, int n, float *h, int w, bool save, float *y)
{
    for (int r = 0; r < m; r++)
        for (int c = 0; c < n; c++) {
            double x = (double)h[panel_index(m, w, r, c)], s = 1 / (1 + exp(-1.702 * x));
            y[(size_t)r * (size_t)n + (size_t)c] = (float)(x * s);
            if (save)
                h[panel_index(m, w, r, c)] = (float)(s + 1.702 * x * s * (1 - s));
        }
}

static void gelu_bwd(int m, int n, const float *dy, const float *derivative, int w, float *dh)
{
    for (int r = 0; r < m; r++)
        for (int c = 0; c < n; c++)
            dh[(size_t)r * (size_t)n + (size_t)c] = dy[panel_index(m, w, r, c)] * derivative[panel_index(m, w, r, c)];
}

static size_t attn_scratch(int nq, int nk, int d)
{
    (void)nq;
    return 2 * (size_t)nk + 2 * (size_t)nk * (size_t)d;
}

static const float *row_of(const sfp__attn *a, const float *prefix, const float *tokens, int j)
{
    return j < a->np ? prefix + (ptrdiff_t)j * a->ldp : tokens + (ptrdiff_t)(j - a->np) * a->ldkv;
}

/* Computes the probabilities of query row i into p (np + nk). */
static void compute_probabilities(const sfp__attn *a, int i, float *p)
{
    int n = a->np + a->nk;
    double max = -INFINITY, sum = 0;
    for (int j = 0; j < n; j++) {
        double s = 0;
        for (int c = 0; c < a->d; c++)
            s += (double)a->q[(ptrdiff_t)i * a->ldq + c] * (double)row_of(a, a->pk, a->k, j)[c];
        p[j] = (float)(s * (double)a->scale);
        max = (double)p[j] > max ? (double)p[j] : max;
    }
    for (int j = 0; j < n; j++)
        sum += exp((double)p[j] - max) * (a->weight && j >= a->np ? (double)a->weight[j - a->np] : 1);
    for (int j = 0; j < n; j++)
        p[j] = (float)(exp((double)p[j] - max) * (a->weight && j >= a->np ? (double)a->weight[j - a->np] : 1) / sum);
}

static void attn_fwd(const sfp__attn *a)
{
    float *p = a->scratch;
    for (int i = 0; i < a->nq; i++) {
        compute_probabilities(a, i, p);
        for (int c = 0; c < a->d; c++) {
            double s = 0;
            for (int j = 0; j < a->np + a->nk; j++)
                s += (double)p[j] * (double)row_of(a, a->pv, a->v, j)[c];
            a->out[(ptrdiff_t)i * a->ldo + c] = (float)s;
        }
        for (int j = 0; i == 0 && a->prob0 && j < a->nk; j++)
            a->prob0[j] = p[a->np + j];
    }
}

static void attn_bwd(const sfp__attn *a)
{
    int n = a->np + a->nk, d = a->d;
    float *p = a->scratch, *ds = p + n, *gk = ds + n, *gv = gk + (size_t)n * (size_t)d;
    for (int j = 0; j < n * d; j++)
        gk[j] = gv[j] = 0;
    for (int i = 0; i < a->nq; i++) {
        const float *q = a->q + (ptrdiff_t)i * a->ldq, *g = a->dout + (ptrdiff_t)i * a->lddo;
        double delta = 0;
        compute_probabilities(a, i, p);
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int c = 0; c < d; c++)
                s += (double)g[c] * (double)row_of(a, a->pv, a->v, j)[c];
            ds[j] = (float)s;
            delta += s * (double)p[j];
        }
        for (int j = 0; j < n; j++) {
            ds[j] = (float)((double)p[j] * ((double)ds[j] - delta) * (double)a->scale);
            for (int c = 0; c < d; c++) {
                gk[j * d + c] += ds[j] * q[c];
                gv[j * d + c] += p[j] * g[c];
            }
        }
        for (int c = 0; a->dq && c < d; c++) {
            double s = 0;
            for (int j = 0; j < n; j++)
                s += (double)ds[j] * (double)row_of(a, a->pk, a->k, j)[c];
            a->dq[(ptrdiff_t)i * a->ldd + c] = (float)s;
        }
    }
    for (int j = 0; j < n; j++)
        for (int c = 0; c < d; c++) {
            if (j < a->np && a->dpk) {
                a->dpk[(ptrdiff_t)j * a->lddp + c] = gk[j * d + c];
                a->dpv[(ptrdiff_t)j * a->lddp + c] = gv[j * d + c];
            } else if (j >= a->np && a->dk) {
                a->dk[(ptrdiff_t)(j - a->np) * a->ldd + c] = gk[j * d + c];
                a->dv[(ptrdiff_t)(j - a->np) * a->ldd + c] = gv[j * d + c];
            }
        }
}

static void to_bf16(size_t n, const float *x, uint16_t *y)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        bool nan = (u & 0x7fffffffu) > 0x7f800000u; /* rounding could turn it into infinity */
        y[i] = (uint16_t)((nan ? u | 0x400000u : u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
}

static void to_u8(int m, int k, int levels, const float *x, uint8_t *y, float *rows)
{
    for (int r = 0; r < m; r++, x += k, y += k, rows += 2) {
        float low = x[0], high = x[0];
        bool finite = true;
        for (int c = 0; c < k; c++) {
            finite = finite && isfinite(x[c]);
            low = low < x[c] ? low : x[c];
            high = high > x[c] ? high : x[c];
        }
        rows[0] = (high - low) / (float)levels;
        rows[1] = finite ? low : NAN;
        float factor = rows[0] > 0 ? 1 / rows[0] : 0;
        for (int c = 0; c < k; c++) {
            float t = (x[c] - low) * factor;
            t = t > 0 ? t : 0; /* also a NaN */
            y[c] = (uint8_t)rintf(t < (float)levels ? t : (float)levels);
        }
    }
}

static void scale_product(int m, int n, const float *rows, const float *step, const float *sum, const float *bias, float *y)
{
    for (int r = 0; r < m; r++)
        for (int c = 0; c < n; c++) {
            float *to = &y[(size_t)r * (size_t)n + (size_t)c];
            *to = (float)((double)*to * (double)rows[2 * r] * (double)step[c] + (double)rows[2 * r + 1] * (double)sum[c] +
                          (double)bias[c]);
        }
}

static void nearest_rows(int m, int n, int d, const float *a, const float *b, int *index, float *product, float *scratch)
{
    (void)scratch;
    for (int i = 0; i < m; i++) {
        product[i] = -INFINITY;
        index[i] = 0;
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int c = 0; c < d; c++)
                s += (double)a[i * d + c] * (double)b[j * d + c];
            if ((float)s > product[i]) {
                product[i] = (float)s;
                index[i] = j;
            }
        }
    }
}

static void product_f64(int m, int n, int k, double sign, const double *a, ptrdiff_t a_k, ptrdiff_t a_m, const double *b, int ldb,
                        double *c, int ldc)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int r = 0; r < k; r++)
                s += a[r * a_k + i * a_m] * b[(ptrdiff_t)r * ldb + j];
            c[(ptrdiff_t)i * ldc + j] += sign * s;
        }
}

const sfp__kernels sfp__kernels_ref = {
    .isa = "ref",
    .norm_fwd = norm_fwd,
    .add_norm_fwd = add_norm_fwd,
    .norm_bwd = norm_bwd,
    .gelu_fwd = gelu_fwd,
    .quick_gelu_fwd = quick_gelu_fwd,
    .gelu_bwd = gelu_bwd,
    .attn_scratch = attn_scratch,
    .attn_fwd = attn_fwd,
    .attn_bwd = attn_bwd,
    .to_bf16 = to_bf16,
    .to_u8 = to_u8,
    .scale_product = scale_product,
    .nearest_rows = nearest_rows,
    .product_f64 = product_f64,
};
