/* Solves ridge and slda from the sums (head_ridge.c has the equations). */
#include "compute/kernels.h"
#include "learner/heads/head_ridge.h"

#include <math.h>
#include <string.h>

/* A value is multiplied by a power of its variance, and by a weight of its tap relative to that of the next block. */
static const double exponent[SFP__RIDGE_SCALINGS] = {
    [SFP__RIDGE_STANDARD] = -0.5, [SFP__RIDGE_SOFT] = -0.375, [SFP__RIDGE_SOFTER] = -0.25};
static const double tap_weight[SFP__RIDGE_SCALINGS] = {
    [SFP__RIDGE_STANDARD] = 1, [SFP__RIDGE_SOFT] = 0.85, [SFP__RIDGE_SOFTER] = 0.4};

/* ---------------------------------------------------------------- matrices */

void sfp__ridge_summarise(sfp__ridge *m, double *mean)
{
    const sfp__sums *u = &m->sums;
    size_t d = (size_t)m->base.opt.dim;
    if (mean)
        memset(mean, 0, d * sizeof *mean);
    for (int r = 0; r < m->base.rows; r++) {
        m->prior[r] = u->mass[r] / u->total;
        for (size_t i = 0; mean && i < d; i++)
            mean[i] += u->class_sum[(size_t)r * d + i] / u->total;
    }
}

/* Writes Z for variances `z` (D): STANDARD gives every value variance 1. With SOFT values that vary more keep a part of their weight, and taps of later
 * blocks are preferred: what the backbone itself finds important guides the first samples. SOFTER goes farther. A value that is constant gets 0. */
static void scale_values(const sfp__ridge *m, int scaling, double *z)
{
    int d = m->base.opt.dim, tap = m->base.opt.tap_dim, taps = d / tap;
    double largest = 0, sum = 0;
    for (int i = 0; i < d; i++)
        largest = fmax(largest, z[i]);
    for (int i = 0; i < d; i++) {
        int behind = taps - 1 - i / tap; /* blocks after that of the tap; the mean tap is first, but of the last block but one */
        double variance = z[i], weight = pow(tap_weight[scaling], m->base.opt.tap_mean && i < tap ? 1 : behind);
        z[i] = variance > 1e-10 * largest ? weight * pow(variance, exponent[scaling]) : 0;
        sum += z[i] * z[i] * variance;
    }
    for (int i = 0; scaling != SFP__RIDGE_STANDARD && sum > 0 && i < d; i++)
        z[i] *= sqrt(d / sum);
}

/* Fills the matrix A and the right side of ridge. */
static void fill_ridge(sfp__ridge *m, const sfp__ridge_solution *s)
{
    const sfp__sums *u = &m->sums;
    int d = m->base.opt.dim, rows = m->base.rows;
    double *z = m->z, n = u->total;
    sfp__sums_product(u, m->matrix, m->base.opt.threads);
    for (int i = 0; i < d; i++)
        z[i] = sfp__triangle_row(m->matrix, d, i)[i] / n - s->centre[i] * s->centre[i];
    scale_values(m, (int)s->strength[SFP__SCALING], z);
    for (int i = 0; i < d; i++) {
        double *row = sfp__triangle_row(m->matrix, d, i);
        for (int j = i; j < d; j++)
            row[j] = z[i] * z[j] * (row[j] / n - s->centre[i] * s->centre[j]);
        row[i] += m->lambda;
        for (int r = 0; r < rows; r++)
            s->weight[(size_t)i * (size_t)rows + (size_t)r] =
                z[i] * (u->class_sum[(size_t)r * (size_t)d + (size_t)i] / n - s->centre[i] * m->prior[r]);
    }
}

/* Fills the covariance within classes, shrunk, and the right side of slda. */
static void fill_slda(sfp__ridge *m, const sfp__ridge_solution *s, double extra)
{
    const sfp__sums *u = &m->sums;
    int d = m->base.opt.dim, rows = m->base.rows, k = 0;
    sfp__sums_product(u, m->matrix, m->base.opt.threads);
    for (int r = 0; r < rows; r++) {
        double mass = u->mass[r], root = mass > 0 ? 1 / sqrt(mass) : 0;
        for (int i = 0; i < d; i++) {
            double sum = u->class_sum[(size_t)r * (size_t)d + (size_t)i];
            m->block[(size_t)k * (size_t)d + (size_t)i] = root * sum;
            s->weight[(size_t)i * (size_t)rows + (size_t)r] = mass > 0 ? sum / mass - s->centre[i] : 0;
        }
        if (++k == SFP__TRIANGLE_BLOCK || r + 1 == rows) {
            sfp__triangle_add(d, m->matrix, k, -1, m->block, m->base.opt.threads);
            k = 0;
        }
    }
    for (int i = 0; i < d; i++) {
        double *row = sfp__triangle_row(m->matrix, d, i);
        for (int j = i; j < d; j++)
            row[j] /= u->total;
        m->z[i] = 1;
    }
    m->share = sfp__triangle_shrink(d, m->matrix, u->total / u->weight,
                                    m->base.opt.shrinkage_oas ? -1 : (double)m->base.opt.slda_shrink, extra);
}

/* Returns (mu_c - centre)^T w_c of class r. */
static double mean_score(const sfp__ridge *m, const sfp__ridge_solution *s, int r)
{
    const double *sum = m->sums.class_sum + (size_t)r * (size_t)m->base.opt.dim, *w = s->weight + r;
    double total = 0;
    for (int i = 0; i < m->base.opt.dim; i++, w += s->rows)
        total += (sum[i] / m->sums.mass[r] - s->centre[i]) * *w;
    return total;
}

void sfp__ridge_finish(const sfp__ridge *m, sfp__ridge_solution *s, double factor)
{
    int classes = 0;
    for (int r = 0; r < s->rows; r++)
        classes += m->prior[r] > 0;
    for (int r = 0; r < s->rows; r++) {
        double share = m->prior[r];
        if (!(share > 0)) {
            s->gain[r] = 0;
            s->bias[r] = sfp__ridge_never;
        } else if (sfp__ridge_is_slda(m)) {
            s->gain[r] = factor;
            s->bias[r] = -0.5 * factor * mean_score(m, s, r);
        } else {
            s->gain[r] = sfp__ridge_is_balanced(m) ? 1 / sqrt(classes * share) : 1;
            s->bias[r] = sfp__ridge_is_balanced(m) ? 0 : share;
        }
    }
}

/* -------------------------------------------------------------- few samples */

bool sfp__ridge_keeps_all(const sfp__ridge *m)
{
    const sfp__sums *u = &m->sums;
    return !sfp__ridge_is_slda(m) && u->half_life == 0 && u->kept == u->total && 2 * u->kept <= u->dim;
}

bool sfp__ridge_is_few(const sfp__ridge *m)
{
    const sfp__sums *u = &m->sums;
    double square = 0;
    if (!sfp__ridge_keeps_all(m))
        return false;
    for (size_t i = 0; i < (size_t)u->kept * (size_t)u->dim; i++)
        square += (double)u->kept_x[i] * (double)u->kept_x[i];
    return fabs(square - u->square) <= 1e-9 * u->square;
}

static void fill_gram(sfp__ridge *m, const sfp__ridge_solution *s)
{
    const sfp__sums *u = &m->sums;
    size_t d = (size_t)u->dim, n = (size_t)u->kept;
    double *t = m->matrix;
    m->factored = 0;
    m->gram_scaling = (int)s->strength[SFP__SCALING];
    memset(m->z, 0, d * sizeof *m->z);
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < d; i++) {
            double x = (double)u->kept_x[k * d + i] - s->centre[i];
            t[k * d + i] = x;
            m->z[i] += x * x / (double)n;
        }
    scale_values(m, m->gram_scaling, m->z);
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < d; i++)
            t[k * d + i] *= m->z[i];
    memset(m->gram, 0, sfp__triangle_count((int)n) * sizeof *m->gram);
    for (size_t from = 0; from < d; from += SFP__TRIANGLE_BLOCK) {
        size_t count = d - from < SFP__TRIANGLE_BLOCK ? d - from : SFP__TRIANGLE_BLOCK;
        for (size_t i = 0; i < count; i++)
            for (size_t k = 0; k < n; k++)
                m->block[i * n + k] = t[k * d + from + i];
        sfp__triangle_add((int)n, m->gram, (int)count, 1 / (double)n, m->block, m->base.opt.threads);
    }
}

bool sfp__ridge_invert_gram(sfp__ridge *m, const sfp__ridge_solution *s)
{
    int n = m->sums.kept;
    if (m->gram_scaling != (int)s->strength[SFP__SCALING])
        fill_gram(m, s);
    memcpy(m->gram_factor, m->gram, sfp__triangle_count(n) * sizeof *m->gram);
    memset(m->gram_inverse, 0, (size_t)n * (size_t)n * sizeof *m->gram_inverse);
    for (int i = 0; i < n; i++) {
        sfp__triangle_row(m->gram_factor, n, i)[i] += m->lambda;
        m->gram_inverse[(size_t)i * (size_t)n + (size_t)i] = 1;
    }
    if (!sfp__triangle_factor(n, m->gram_factor, m->base.opt.threads))
        return false;
    sfp__triangle_solve(n, m->gram_factor, n, m->gram_inverse, m->base.opt.threads);
    return true;
}

void sfp__ridge_invert_targets(const sfp__ridge *m, int i, double *out)
{
    const double *row = m->gram_inverse + (size_t)i * (size_t)m->sums.kept;
    double total = 0;
    memset(out, 0, (size_t)m->base.rows * sizeof *out);
    for (int k = 0; k < m->sums.kept; k++) {
        out[m->sums.kept_row[k]] += row[k];
        total += row[k];
    }
    for (int r = 0; r < m->base.rows; r++)
        out[r] -= m->prior[r] * total;
}

/* Computes the weights A^-1 Z (H/n - m pi^T) = T^t (T T^t / n + lambda I)^-1 (1(y = c) - pi_c) / n, without the factor Z. */
static void weigh_few(sfp__ridge *m, const sfp__ridge_solution *s)
{
    int d = m->base.opt.dim, n = m->sums.kept;
    memset(s->weight, 0, (size_t)d * (size_t)s->rows * sizeof *s->weight);
    for (int i = 0; i < n; i++)
        sfp__ridge_invert_targets(m, i, m->scores + (size_t)i * (size_t)s->rows);
    sfp__kernels_get()->product_f64(d, s->rows, n, 1.0 / n, m->matrix, d, 1, m->scores, s->rows, s->weight, s->rows);
}

/* Writes A^-1 in the coordinates of x, divided by n, to the inverse of the own solution: with the Cholesky factor U of the inverted matrix,
 * A^-1 = (I - Q^t Q / n) / lambda, Q = U^-T T. This replaces T. */
static void invert_few(sfp__ridge *m)
{
    int d = m->base.opt.dim, n = m->sums.kept;
    double *inverse = m->follow.inverse, *q = m->matrix, factor = 1 / (n * sqrt(m->lambda));
    m->gram_scaling = -1;
    m->factored = 0;
    sfp__triangle_half_solve(n, m->gram_factor, d, q, m->base.opt.threads);
    for (int k = 0; k < n; k++)
        for (int i = 0; i < d; i++)
            q[(size_t)k * (size_t)d + (size_t)i] *= m->z[i] * factor;
    memset(inverse, 0, sfp__triangle_count(d) * sizeof *inverse);
    sfp__triangle_add(d, inverse, n, -1, q, m->base.opt.threads);
    for (int i = 0; i < d; i++)
        sfp__triangle_row(inverse, d, i)[i] += m->z[i] * m->z[i] / (n * m->lambda);
}

/* ------------------------------------------------------------------ solve */

void sfp__ridge_solve(sfp__ridge *m, sfp__ridge_solution *s)
{
    int d = m->base.opt.dim, tries = 0;
    sfp__ridge_summarise(m, s->centre);
    s->rows = m->base.rows;
    m->factored = 0;
    for (m->lambda = s->strength[SFP__LAMBDA];; tries++, m->lambda *= 10) {
        if (m->few && sfp__ridge_invert_gram(m, s))
            break;
        m->few = false;
        if (sfp__ridge_is_slda(m))
            fill_slda(m, s, tries ? 1e-14 * pow(10, tries) : 0);
        else
            fill_ridge(m, s);
        if (sfp__triangle_factor(d, m->matrix, m->base.opt.threads))
            break;
        if (tries == 40) { /* not a covariance (a forged state): use the identity, so that no NaN results */
            memset(m->matrix, 0, sfp__triangle_count(d) * sizeof *m->matrix);
            for (int i = 0; i < d; i++)
                sfp__triangle_row(m->matrix, d, i)[i] = 1;
            break;
        }
    }
    if (m->few) {
        weigh_few(m, s);
    } else {
        sfp__triangle_solve(d, m->matrix, s->rows, s->weight, m->base.opt.threads);
        m->factored = s == &m->exact ? m->base.n : 0;
    }
    for (int i = 0; i < d; i++)
        for (int r = 0; r < s->rows; r++)
            s->weight[(size_t)i * (size_t)s->rows + (size_t)r] *= m->z[i];
    sfp__ridge_finish(m, s, 1);
}

/* Writes the inverse of the factored matrix, in the coordinates of x and divided by n, to that of the own solution. */
static void invert_matrix(sfp__ridge *m)
{
    int d = m->base.opt.dim;
    double *inverse = m->follow.inverse;
    sfp__triangle_invert(d, m->matrix, inverse, m->block, m->base.opt.threads);
    for (int i = 0; i < d; i++) {
        double *row = sfp__triangle_row(inverse, d, i);
        for (int j = i / SFP__TRIANGLE_BLOCK * SFP__TRIANGLE_BLOCK; j < d; j++)
            row[j] *= m->z[i] * m->z[j] / m->sums.total;
    }
}

void sfp__ridge_invert_solved(sfp__ridge *m)
{
    if (m->few)
        invert_few(m);
    else
        invert_matrix(m);
}

void sfp__ridge_project(const sfp__ridge *m, const sfp__ridge_solution *s, const double *x, double *out)
{
    size_t rows = (size_t)s->rows;
    memset(out, 0, rows * sizeof *out);
    for (int i = 0; i < m->base.opt.dim; i++) {
        const double *w = s->weight + (size_t)i * rows;
        for (size_t r = 0; r < rows; r++)
            out[r] += x[i] * w[r];
    }
}

const double *sfp__ridge_centred(const sfp__ridge *m, const sfp__ridge_solution *s, const float *x)
{
    for (int i = 0; i < m->base.opt.dim; i++)
        m->block[i] = (double)x[i] - s->centre[i];
    return m->block;
}
