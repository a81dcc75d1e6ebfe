#include "learner/heads/novelty.h"

#include "base/mem.h"
#include "learner/heads/head_kind.h"
#include "learner/heads/triangle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

sfp_status sfp__novelty_init(sfp__novelty *y, int dim, sfp_error *err)
{
    *y = (sfp__novelty){.dim = dim};
    TRY(sfp__alloc(&y->centre, (size_t)dim, sizeof *y->centre, err));
    TRY(sfp__alloc(&y->work, (size_t)dim, sizeof *y->work, err));
    return sfp__alloc(&y->factor, sfp__triangle_count(dim), sizeof *y->factor, err);
}

void sfp__novelty_done(sfp__novelty *y)
{
    sfp__free(y->centre);
    sfp__free(y->factor);
    sfp__free(y->work);
    sfp__free(y->mean);
}

bool sfp__novelty_grow(sfp__novelty *y, int old, int capacity)
{
    return sfp__head_extend(&y->mean, (size_t)y->dim * sizeof *y->mean, (size_t)old, (size_t)capacity);
}

/* --------------------------------------------------------------------- distance */

/* Computes x <- U^-T x. */
static void whiten(const sfp__novelty *y, double *x)
{
    for (int i = 0; i < y->dim; i++) {
        const double *row = sfp__triangle_row(y->factor, y->dim, i);
        x[i] /= row[i];
        for (int j = i + 1; j < y->dim; j++)
            x[j] -= row[j] * x[i];
    }
}

/* Returns the squared distance to the nearest class mean. */
static double distance(const sfp__novelty *y, const float *x, double *work)
{
    double nearest = INFINITY;
    for (int i = 0; i < y->dim; i++)
        work[i] = (double)x[i] - y->centre[i];
    whiten(y, work);
    for (int r = 0; r < y->rows; r++) {
        const double *mean = y->mean + (size_t)r * (size_t)y->dim;
        double sum = 0;
        for (int i = 0; i < y->dim; i++)
            sum += (work[i] - mean[i]) * (work[i] - mean[i]);
        nearest = fmin(nearest, sum);
    }
    return nearest;
}

/* Returns the share of the samples that were left out whose squared distance is smaller than d. */
static float quantile_of(const sfp__novelty *y, double d)
{
    enum { LAST = SFP__NOVELTY_QUANTILES - 1 };
    const double *q = y->quantile;
    if (!(d > q[0]))
        return 0;
    if (d >= q[LAST]) /* approaches 1, so that images that are farther than all samples are still ordered */
        return (float)(1 - q[LAST] / d / SFP__NOVELTY_QUANTILES);
    int low = 0, high = LAST; /* q[low] < d <= q[high] */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (q[middle] < d)
            low = middle;
        else
            high = middle;
    }
    return (float)((low + (d - q[low]) / (q[high] - q[low])) / SFP__NOVELTY_QUANTILES);
}

float sfp__novelty_score(const sfp__novelty *y, const float *x, double *work)
{
    return y->rows > 0 ? quantile_of(y, distance(y, x, work)) : NAN;
}

/* -------------------------------------------------------------------------- fit */

/* Writes the sum of products of the last D values. */
static void sum_products(sfp__novelty *y, const sfp__sums *s)
{
    int d = y->dim, first = s->dim - d;
    memset(y->factor, 0, sfp__triangle_count(d) * sizeof *y->factor); /* no old values below the diagonal */
    for (int i = 0; i < d; i++) {
        const double *from = sfp__triangle_row(s->product, s->dim, first + i) + first;
        double *row = sfp__triangle_row(y->factor, d, i);
        memcpy(row + i, from + i, (size_t)(d - i) * sizeof *row);
        for (int k = 0; k < s->recent; k++) {
            const double *x = s->recent_x + (size_t)k * (size_t)s->dim + first;
            for (int j = i; j < d; j++)
                row[j] += x[i] * x[j];
        }
    }
}

/* Writes the sums of the classes that have samples, divided by the root of their weight; returns the number of these classes. */
static int collect_classes(sfp__novelty *y, const sfp__sums *s, int rows)
{
    int used = 0, d = y->dim;
    for (int r = 0; r < rows; r++) {
        double n = s->mass[r], *to = y->mean + (size_t)used * (size_t)d;
        const double *from = s->class_sum + (size_t)(r + 1) * (size_t)s->dim - d;
        for (int i = 0; n > 0 && i < d; i++)
            to[i] = from[i] / sqrt(n);
        used += n > 0;
    }
    return used;
}

/* Replaces the rows of collect_classes by whitened means. */
static void whiten_means(sfp__novelty *y, const sfp__sums *s, int rows)
{
    int d = y->dim;
    double *mean = y->mean;
    for (int r = 0; r < rows; r++) {
        double n = s->mass[r];
        if (!(n > 0))
            continue;
        for (int i = 0; i < d; i++)
            mean[i] = mean[i] / sqrt(n) - y->centre[i];
        whiten(y, mean);
        mean += d;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the squared distance of a sample of class `row`, which has others, to the nearest mean, without the sample: it is u away from its
 * own mean, which then moves away from it, and the covariance changes by a multiple of u u^T. */
static double distance_left_out(sfp__novelty *y, const sfp__sums *s, const float *from, int64_t row)
{
    int own = 0;
    size_t d = (size_t)y->dim;
    double n = s->total / s->weight, ny = s->mass[row] / s->weight, q = 0, *x = y->work;
    for (int r = 0; r < row; r++)
        own += s->mass[r] > 0;
    const double *mean = y->mean + (size_t)own * d;
    for (size_t k = 0; k < d; k++)
        x[k] = (double)from[k] - y->centre[k];
    whiten(y, x);
    for (size_t k = 0; k < d; k++)
        q += (x[k] - mean[k]) * (x[k] - mean[k]);
    double rho = (1 - y->share) * ny / ((ny - 1) * n), change = rho / fmax(1 - rho * q, 1e-9), farther = ny / (ny - 1);
    double nearest = farther * farther * q * (1 + change * q);
    for (int r = 0; r < y->rows; r++) {
        const double *other = y->mean + (size_t)r * d;
        double distance = 0, across = 0;
        for (size_t k = 0; r != own && k < d; k++) {
            distance += (x[k] - other[k]) * (x[k] - other[k]);
            across += (x[k] - mean[k]) * (x[k] - other[k]);
        }
        if (r != own)
            nearest = fmin(nearest, distance + change * across * across);
    }
    return nearest;
}

/* Writes the quantiles of the distances of kept samples, whose classes have other samples; false: too few. */
static bool fit_quantiles(sfp__novelty *y, const sfp__sums *s)
{
    double found[SFP__SUMS_KEPT];
    int n = 0;
    for (int i = 0; i < s->kept; i++)
        if (s->mass[s->kept_row[i]] > 1.5 * s->weight)
            found[n++] = distance_left_out(y, s, s->kept_x + (size_t)(i + 1) * (size_t)s->dim - y->dim, s->kept_row[i]);
    if (n < SFP__NOVELTY_KEPT_MIN)
        return false;
    qsort(found, (size_t)n, sizeof *found, compare);
    for (int i = 0; i < SFP__NOVELTY_QUANTILES; i++) {
        double at = (double)i * (n - 1) / (SFP__NOVELTY_QUANTILES - 1);
        int low = (int)at, high = low + 1 < n ? low + 1 : low;
        y->quantile[i] = found[low] + (at - low) * (found[high] - found[low]);
    }
    return isfinite(found[n - 1]);
}

/* Writes the factor of the covariance within classes and the whitened means; false: it cannot be factored. */
static bool fit_classes(sfp__novelty *y, const sfp__sums *s, int rows, int used, sfp__thread_pool *threads)
{
    int d = y->dim;
    double n = s->total;
    sum_products(y, s);
    sfp__triangle_add(d, y->factor, used, -1, y->mean, threads);
    for (int i = 0; i < d; i++) {
        double *row = sfp__triangle_row(y->factor, d, i), sum = 0;
        for (int j = i; j < d; j++)
            row[j] /= n;
        for (int r = 0; r < rows; r++)
            sum += s->class_sum[(size_t)(r + 1) * (size_t)s->dim - (size_t)(d - i)];
        y->centre[i] = sum / n;
    }
    y->share = sfp__triangle_shrink(d, y->factor, n / s->weight, -1, 0);
    if (!sfp__triangle_factor(d, y->factor, threads))
        return false;
    whiten_means(y, s, rows);
    return true;
}

void sfp__novelty_fit(sfp__novelty *y, const sfp__sums *s, int rows, sfp__thread_pool *threads)
{
    y->rows = 0;
    if (s->kept < SFP__NOVELTY_KEPT_MIN)
        return;
    int used = collect_classes(y, s, rows);
    if (used == 0 || !fit_classes(y, s, rows, used, threads))
        return;
    y->rows = used;
    if (!fit_quantiles(y, s))
        y->rows = 0;
}

/* If the sample is the only one of its class, it is compared with the means of the other classes. */
float sfp__novelty_score_left_out(sfp__novelty *y, const sfp__sums *s, const float *x, int64_t row)
{
    if (y->rows == 0)
        return NAN;
    if (s->mass[row] > 1)
        return quantile_of(y, distance_left_out(y, s, x, row));
    double nearest = INFINITY, *to = y->work;
    size_t d = (size_t)y->dim;
    int own = 0;
    for (int r = 0; r < row; r++)
        own += s->mass[r] > 0;
    for (size_t k = 0; k < d; k++)
        to[k] = (double)x[k] - y->centre[k];
    whiten(y, to);
    for (int r = 0; r < y->rows; r++) {
        double sum = 0;
        for (size_t k = 0; k < d; k++)
            sum += (to[k] - y->mean[(size_t)r * d + k]) * (to[k] - y->mean[(size_t)r * d + k]);
        if (r != own)
            nearest = fmin(nearest, sum);
    }
    return quantile_of(y, nearest);
}

void sfp__novelty_clear(sfp__novelty *y)
{
    size_t d = (size_t)y->dim;
    memset(y->mean, 0, (size_t)y->rows * d * sizeof *y->mean);
    memset(y->centre, 0, d * sizeof *y->centre);
    memset(y->factor, 0, sfp__triangle_count(y->dim) * sizeof *y->factor);
    memset(y->quantile, 0, sizeof y->quantile);
    y->rows = 0;
}

/* ------------------------------------------------------------------- save, load */

static bool plausible(const sfp__novelty *y)
{
    for (int i = 0; i < y->dim; i++)
        if (!(sfp__triangle_row(y->factor, y->dim, i)[i] > 0))
            return false;
    for (int i = 0; i < SFP__NOVELTY_QUANTILES; i++)
        if (y->quantile[i] < (i > 0 ? y->quantile[i - 1] : 0))
            return false;
    return true;
}

sfp_status sfp__novelty_visit(sfp__novelty *y, int rows, const sfp__visitor *v, sfp_error *err)
{
    const sfp__tensor *t = NULL;
    if (!v->put) {
        y->rows = 0;
        if (sfp__visit_find(v, "unknown.mean", SFP__DTYPE_F64, &t, NULL) == SFP_ENOTFOUND)
            return SFP_OK; /* images have no score */
        TRY(sfp__visit_find(v, "unknown.mean", SFP__DTYPE_F64, &t, err));
        if (t->ndim != 2 || t->shape[0] < 1 || t->shape[0] > rows)
            return sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s.unknown.mean' has another number of rows, expected 1 to %d",
                             v->file, v->prefix, rows);
        y->rows = (int)t->shape[0];
    }
    if (y->rows == 0)
        return SFP_OK;
    const int64_t mean[] = {y->rows, y->dim}, factor = (int64_t)sfp__triangle_count(y->dim), quantiles = SFP__NOVELTY_QUANTILES;
    TRY(sfp__visit(v, "unknown.mean", SFP__DTYPE_F64, 2, mean, y->mean, err));
    TRY(sfp__visit(v, "unknown.centre", SFP__DTYPE_F64, 1, mean + 1, y->centre, err));
    TRY(sfp__visit(v, "unknown.factor", SFP__DTYPE_F64, 1, &factor, y->factor, err));
    TRY(sfp__visit(v, "unknown.quantile", SFP__DTYPE_F64, 1, &quantiles, y->quantile, err));
    if (!v->put && !plausible(y))
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s.unknown': factor or quantiles are out of range", v->file, v->prefix);
    return SFP_OK;
}
