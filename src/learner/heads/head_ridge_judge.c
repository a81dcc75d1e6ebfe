/* Samples left out of a solution of ridge or slda: strengths are chosen by them, and learned samples are judged by them. */
#include "base/mem.h"
#include "learner/heads/head_ridge.h"

#include <math.h>
#include <string.h>

enum { DECADES = 8, LOWEST = -5 }; /* lambda is one of 10^-5 .. 10^2 */
enum { LEFT_OUT_MIN = 10 };        /* minimum number of left-out samples with which strengths are chosen */
enum { LEFT_OUT_MIN_OWN = 64 };    /* LEFT_OUT_MIN for the own solution of ridge, where choosing is slow */

static const double soft_lambda = 10; /* balanced ridge, before there are samples to leave out */

void sfp__ridge_reset_strength(const sfp__ridge *m, sfp__ridge_solution *s)
{
    s->strength[SFP__LAMBDA] = sfp__ridge_is_balanced(m) ? soft_lambda : 1;
    s->strength[SFP__SCALE] = sfp__ridge_is_slda(m) ? 0.5 : 10;
    s->strength[SFP__SCALING] = sfp__ridge_is_balanced(m) ? SFP__RIDGE_SOFT : SFP__RIDGE_STANDARD;
    (void)sfp__sums_dropped_strength(&m->sums, s->strength);
    s->strength[SFP__SCALING] =
        fmax(SFP__RIDGE_STANDARD, fmin(s->strength[SFP__SCALING], SFP__RIDGE_SOFTER)); /* a file may have any number */
}

/* Writes t^T A^-1 t / n of up to SFP__TRIANGLE_BLOCK samples x (count, D) to `norm`, t = Z (x - centre), with the factor of the last
 * solve. */
static void measure(sfp__ridge *m, const sfp__ridge_solution *s, int count, const float *x, double *norm)
{
    const sfp__sums *u = &m->sums;
    int d = m->base.opt.dim;
    for (int i = 0; i < d; i++)
        for (int k = 0; k < count; k++)
            m->block[(size_t)i * (size_t)count + (size_t)k] =
                m->z[i] * ((double)x[(size_t)k * (size_t)d + (size_t)i] - s->centre[i]);
    sfp__triangle_half_solve(d, m->matrix, count, m->block, m->base.opt.threads);
    for (int k = 0; k < count; k++) {
        double sum = 0;
        for (int i = 0; i < d; i++)
            sum += m->block[(size_t)i * (size_t)count + (size_t)k] * m->block[(size_t)i * (size_t)count + (size_t)k];
        norm[k] = sum * u->weight / u->total;
    }
}

/* Measures the kept samples; writes to m->norm. */
static void measure_kept(sfp__ridge *m, const sfp__ridge_solution *s)
{
    const sfp__sums *u = &m->sums;
    for (int from = 0; from < u->kept; from += SFP__TRIANGLE_BLOCK) {
        int count = u->kept - from < SFP__TRIANGLE_BLOCK ? u->kept - from : SFP__TRIANGLE_BLOCK;
        measure(m, s, count, u->kept_x + (size_t)from * (size_t)u->dim, m->norm + from);
    }
}

/* A sample that is left out: its values, class and `measure`. */
typedef struct left_out {
    const float *x;
    int64_t row;
    double norm;
    int kept; /* its number among the kept samples, if there are few; else not used */
} left_out;

static left_out kept_sample(const sfp__ridge *m, int i)
{
    return (left_out){m->sums.kept_x + (size_t)i * (size_t)m->sums.dim, m->sums.kept_row[i], m->norm[i], i};
}

/* Returns whether the class of a kept sample has others. */
static bool has_others(const sfp__ridge *m, int kept)
{
    return m->sums.mass[m->sums.kept_row[kept]] > 1.5 * m->sums.weight || m->sums.half_life > 0;
}

static int count_left_out(const sfp__ridge *m)
{
    int n = 0;
    for (int i = 0; i < m->sums.kept; i++)
        n += has_others(m, i);
    return n;
}

/* Writes the scores of ridge for a learned sample by the solution without it, plain, to `out`; returns their squared error. The residual of
 * a sample that is left out is that of the sample divided by one minus its leverage. */
static double leave_out_ridge(const sfp__ridge *m, const sfp__ridge_solution *s, left_out o, double *out)
{
    const sfp__sums *u = &m->sums;
    double share = u->weight / u->total, error = 0; /* of the sample */
    double rest = m->few ? m->lambda * m->gram_inverse[(size_t)o.kept * (size_t)(u->kept + 1)] - share : 1 - o.norm - share;
    if (m->few)
        sfp__ridge_invert_targets(m, o.kept, out);
    else
        sfp__ridge_project(m, s, sfp__ridge_centred(m, s, o.x), out);
    for (int r = 0; r < s->rows; r++) {
        double target = r == o.row, error_with = m->few ? m->lambda * out[r] : target - m->prior[r] - out[r];
        double residual = error_with / fmax(rest, 1e-9);
        out[r] = target - residual;
        error += residual * residual;
    }
    return error;
}

/* Writes the scores of slda for a left-out sample to `out`. The sample is u away from the mean mu_y of its class; without it, the
 * covariance changes by a multiple of u u^T, and mu_y moves away from it. Scores are half of the negative squared distances to
 * the means. */
static void leave_out_slda(const sfp__ridge *m, const sfp__ridge_solution *s, left_out o, double *out)
{
    const sfp__sums *u = &m->sums;
    size_t d = (size_t)u->dim, y = (size_t)o.row;
    double n = u->total / u->weight, ny = fmax(u->mass[y] / u->weight, 1.5), whole = n * o.norm;
    double *mean = m->block, *of_mean = m->product; /* mu_y, and its scores */
    sfp__ridge_project(m, s, sfp__ridge_centred(m, s, o.x), out);
    for (size_t j = 0; j < d; j++)
        mean[j] = u->class_sum[y * d + j] / u->mass[y] - s->centre[j];
    sfp__ridge_project(m, s, mean, of_mean);
    double own = out[y], q = fmax(whole - 2 * own + of_mean[y], 0), rho = (1 - m->share) * ny / ((ny - 1) * n);
    double change = rho / fmax(1 - rho * q, 1e-9), farther = ny / (ny - 1);
    for (size_t r = 0; r < (size_t)s->rows; r++) {
        double across = whole - out[r] - own + of_mean[r], distance = whole - 2 * out[r] - 2 * s->bias[r];
        out[r] = -0.5 * (r == y ? farther * farther * q * (1 + change * q) : distance + change * across * across);
    }
}

/* Solves as far as leave_out_ridge needs it. */
static void prepare(sfp__ridge *m, sfp__ridge_solution *s)
{
    m->lambda = s->strength[SFP__LAMBDA];
    if (m->few && sfp__ridge_invert_gram(m, s))
        return;
    m->few = false;
    sfp__ridge_solve(m, s);
    measure_kept(m, s);
}

/* Returns the mean squared error of the kept samples, left out, with scaling and lambda number `index`. */
static double error_at(sfp__ridge *m, sfp__ridge_solution *s, int scaling, int index, double error[SFP__RIDGE_SCALINGS][DECADES])
{
    double *e = &error[scaling][index];
    if (!isnan(*e))
        return *e;
    s->strength[SFP__SCALING] = scaling;
    s->strength[SFP__LAMBDA] = pow(10, LOWEST + index);
    prepare(m, s);
    *e = 0;
    for (int i = 0; i < m->sums.kept; i++)
        *e += has_others(m, i) ? leave_out_ridge(m, s, kept_sample(m, i), m->scores) : 0;
    if (!isfinite(*e))
        *e = INFINITY;
    return *e;
}

/* Goes downhill from lambda number `from`; returns the best. */
static int descend(sfp__ridge *m, sfp__ridge_solution *s, int scaling, int from, double error[SFP__RIDGE_SCALINGS][DECADES])
{
    int best = from;
    while (best > 0 && error_at(m, s, scaling, best - 1, error) < error_at(m, s, scaling, best, error))
        best--;
    while (best >= from && best + 1 < DECADES && error_at(m, s, scaling, best + 1, error) < error_at(m, s, scaling, best, error))
        best++;
    return best;
}

/* Chooses scaling and lambda, going downhill from those of s. */
static void choose_lambda(sfp__ridge *m, sfp__ridge_solution *s)
{
    double error[SFP__RIDGE_SCALINGS][DECADES];
    for (int i = 0; i < SFP__RIDGE_SCALINGS; i++)
        for (int j = 0; j < DECADES; j++)
            error[i][j] = NAN;
    int scaling = (int)s->strength[SFP__SCALING], decade = (int)lround(log10(s->strength[SFP__LAMBDA])) - LOWEST;
    int best = descend(m, s, scaling, decade < 0 ? 0 : decade < DECADES ? decade : DECADES - 1, error);
    for (int step = 1; sfp__ridge_is_balanced(m) && step >= -1; step -= 2)
        while (scaling + step >= 0 && scaling + step < SFP__RIDGE_SCALINGS &&
               error_at(m, s, scaling + step, best, error) < error_at(m, s, scaling, best, error)) {
            scaling += step;
            best = descend(m, s, scaling, best, error);
        }
    s->strength[SFP__SCALING] = scaling;
    s->strength[SFP__LAMBDA] = pow(10, LOWEST + best);
}

void sfp__ridge_choose_and_solve(sfp__ridge *m, sfp__ridge_solution *s)
{
    if (s == &m->exact || sfp__ridge_is_slda(m))
        sfp__ridge_reset_strength(m, s);
    sfp__ridge_summarise(m, s->centre);
    s->rows = m->base.rows;
    m->few = sfp__ridge_is_few(m);
    m->gram_scaling = -1;
    bool slow = s == &m->own && !sfp__ridge_is_slda(m) && !m->few,
         enough = count_left_out(m) >= (slow ? LEFT_OUT_MIN_OWN : LEFT_OUT_MIN);
    if (enough && !sfp__ridge_is_slda(m))
        choose_lambda(m, s);
    sfp__ridge_solve(m, s);
    if (!enough)
        return;
    s->chosen = m->base.n;
    if (!m->few)
        measure_kept(m, s);
    size_t rows = (size_t)s->rows;
    int64_t row[SFP__SUMS_KEPT];
    int n = 0;
    for (int i = 0; i < m->sums.kept; i++) {
        double *out = m->scores + (size_t)n * rows;
        if (!has_others(m, i))
            continue;
        if (sfp__ridge_is_slda(m))
            leave_out_slda(m, s, kept_sample(m, i), out);
        else
            (void)leave_out_ridge(m, s, kept_sample(m, i), out);
        for (size_t r = 0; r < rows; r++)
            out[r] =
                m->prior[r] > 0 ? (sfp__ridge_is_balanced(m) ? s->gain[r] * (out[r] - m->prior[r]) : out[r]) : sfp__ridge_never;
        row[n++] = m->sums.kept_row[i];
    }
    s->strength[SFP__SCALE] = sfp__head_fit_scale(n, (int)rows, m->scores, row, sfp__ridge_is_slda(m) ? 0.5 : 10);
}

/* ----------------------------------------------------------------------- judgements */

/* Solves the exact solution again if its factor is gone, or never was because there are few samples. The solution itself stays: another
 * thread may be writing it to a file. */
static sfp_status factor_exact(sfp__ridge *m, sfp_error *err)
{
    OWNED double *memory = NULL;
    sfp__ridge_solution s = m->exact;
    size_t d = (size_t)m->base.opt.dim, rows = (size_t)m->base.rows;
    if (m->factored == m->base.n)
        return SFP_OK;
    TRY(sfp__alloc(&memory, (d + 2) * rows + d, sizeof *memory, err));
    s.weight = memory;
    s.gain = memory + d * rows;
    s.bias = s.gain + rows;
    s.centre = s.bias + rows;
    m->few = false;
    sfp__ridge_solve(m, &s);
    m->factored = m->base.n;
    return SFP_OK;
}

sfp_status sfp__ridge_judge(sfp__head *h, int n, const float *x, const int *row, double *out, float *unknown, sfp_error *err)
{
    sfp__ridge *m = (sfp__ridge *)h;
    const sfp__ridge_solution *s = &m->exact;
    double norm[SFP__HEAD_GRAIN], all = (double)h->n;
    TRY(factor_exact(m, err));
    m->few = false;
    sfp__ridge_summarise(m, NULL);
    measure(m, s, n, x, norm);
    for (int k = 0; k < n; k++, x += h->opt.dim, out += h->rows) {
        const left_out o = {x, row[k], norm[k], -1};
        int classes = 0;
        if (sfp__ridge_is_slda(m))
            leave_out_slda(m, s, o, out);
        else
            (void)leave_out_ridge(m, s, o, out);
        for (int r = 0; r < h->rows; r++)
            classes += m->sums.mass[r] > (r == row[k]);
        for (int r = 0; r < h->rows; r++) {
            double others = m->sums.mass[r] - (r == row[k]), share = others / (all - 1);
            if (sfp__ridge_is_slda(m))
                out[r] *= (all - 1) / all;
            else if (sfp__ridge_is_balanced(m))
                out[r] = (out[r] - share) / sqrt(classes * share);
            out[r] = others > 0 ? out[r] * s->strength[SFP__SCALE] : -INFINITY;
        }
        unknown[k] = sfp__novelty_score_left_out(&m->novelty, &m->sums, x + h->opt.dim - m->novelty.dim, row[k]);
    }
    return SFP_OK;
}
