/* Ridge regression and linear discriminant analysis, both solved from sums over samples (sums.h; docs/method.md, section 18).
 *
 * With n samples, mean m, G = sum x x^T, H_c the sum of x over class c, n_c its number of samples and pi_c = n_c / n:
 *
 *     ridge   A = Z (G/n - m m^T) Z + lambda I, scores pi + (x - m)^T Z A^-1 Z (H/n - m pi^T)
 *     balanced ridge: scores_c (x - m)^T (..) / sqrt(C pi_c) without pi, C the number of classes
 *     slda    mu_c = H_c / n_c, S = (G - sum_c n_c mu_c mu_c^T) / n, shrunk towards a multiple of I,
 *             scores (x - m)^T S^-1 (mu_c - m) - (mu_c - m)^T S^-1 (mu_c - m) / 2
 *
 * Log-probabilities are log softmax(scale * scores). The scaling Z and lambda are those with the least squared error of kept samples, each
 * of which is predicted by the solution without it; so is the scale, by cross-entropy. The solution without a sample follows from that
 * with it, in closed form.
 *
 * There are two solutions, each with its own strengths. The learner's own predicts samples before they are learned from. It follows
 * the samples: each one changes the matrix by a product of one vector, so the inverse and the weights follow in closed form, too
 * (recursive least squares). Only Z and n lambda stay; when there are GROWTH times as many samples, they are chosen again and it is solved
 * from the sums. So choosing, which takes several factors, stays a small part of the time of a stream. While all samples are kept, and few,
 * it is solved from their products with each other instead, which is fast, so it is solved at each doubling. This solution is saved with its
 * inverse, so that a run that resumes continues with the same bytes. The exact one is a function of the sums alone and is computed when
 * it is needed. */
#include "base/mem.h"
#include "compute/kernels.h"
#include "learner/heads/head_kind.h"
#include "learner/heads/novelty.h"
#include "learner/heads/sums.h"
#include "learner/heads/triangle.h"

#include <math.h>
#include <string.h>

enum { DECADES = 8, LOWEST = -5 };         /* lambda is one of 10^-5 .. 10^2 */
enum { STANDARD, SOFT, SOFTER, SCALINGS }; /* values of strength[SFP__SCALING] */
enum { LEFT_OUT_MIN = 10 };                /* minimum number of left-out samples with which strengths are chosen */
enum { LEFT_OUT_MIN_OWN = 64 };            /* LEFT_OUT_MIN for the own solution of ridge, where choosing is slow */
/* The own solution is computed again when the number of samples has grown by this factor; FAST: for slda, and for few samples. */
enum { GROWTH = 8, GROWTH_FAST = 2 };
enum { COUNTERS = 5 };
enum { PENDING = 32 }; /* samples that the own solution takes in at a time, at most */
enum { BEHIND = 64 };  /* it may lack one of this many samples */

static const double never = -1e30;    /* bias of a class without samples */
static const double soft_lambda = 10; /* balanced ridge, before there are samples to leave out */

/* A value is multiplied by a power of its variance, and by a weight of its tap relative to that of the next block. */
static const double exponent[SCALINGS] = {[STANDARD] = -0.5, [SOFT] = -0.375, [SOFTER] = -0.25};
static const double tap_weight[SCALINGS] = {[STANDARD] = 1, [SOFT] = 0.85, [SOFTER] = 0.4};

typedef struct solution {
    int64_t n;      /* number of samples; 0: none */
    int64_t chosen; /* number of samples when the strengths were chosen; 0: not yet */
    int rows;
    double strength[SFP__STRENGTHS];
    double *weight; /* (D, rows) memory for (capacity, D) */
    double *gain;   /* (capacity) factor of the weights of a class */
    double *bias;   /* (capacity) */
    double *centre; /* (D) */
} solution;

/* What the own solution needs to take in further samples: with K = n A in the coordinates of x (slda: n times the shrunk S), weight =
 * K^-1 M, where M_c is n_c (mu_c - m) for ridge, and mu_c - centre for slda. A sample changes K by kappa s u u^T and M by u c^T. */
typedef struct follow {
    int64_t solved;  /* number of samples when it was solved */
    double weight;   /* sfp__sums.weight at that time */
    double kappa;    /* 1 (ridge), 1 - shrinkage (slda) */
    double *inverse; /* triangle: K^-1 */
    int pending;     /* samples that are in the sums but not in the solution yet: */
    double *u;       /* (PENDING, D), 0 after those pending */
    double *s;       /* (PENDING), likewise */
    double *c;       /* (capacity, PENDING) */
} follow;

typedef struct ridge {
    sfp__head base;
    sfp__sums sums;
    int64_t counter[COUNTERS]; /* of the own solution, for files */
    solution own, exact;
    follow follow;
    sfp__novelty novelty; /* of the exact solution */
    double lambda, share; /* of the solve in progress; share: that of the shrinkage of slda */
    int64_t factored;     /* number of samples whose exact solution `matrix` factors; 0: it has no factor */
    /* Workspace of a solve. */
    double *matrix;          /* triangle */
    double *z, *norm;        /* (D), (SFP__SUMS_KEPT) */
    double *prior, *scores;  /* (capacity), (SFP__SUMS_KEPT, capacity) */
    double *block, *product; /* (SFP__TRIANGLE_BLOCK, D) each */
    /* Workspace of a solve if all samples are kept: `matrix` then contains T = Z (x - m), (n, D). */
    bool few;
    int gram_scaling;     /* scaling of T and `gram`; -1: they are not computed */
    double *gram;         /* triangle: T T^t / n */
    double *gram_factor;  /* triangle: of gram + lambda I */
    double *gram_inverse; /* (n, n): its inverse */
} ridge;

static bool is_slda(const ridge *m)
{
    return m->base.kind == &sfp__head_slda;
}

static bool is_balanced(const ridge *m)
{
    return !is_slda(m) && m->base.opt.ridge_balanced;
}

/* Sets the strengths before there are samples to leave out: those of samples that were dropped, or fixed ones. */
static void reset_strength(const ridge *m, solution *s)
{
    s->strength[SFP__LAMBDA] = is_balanced(m) ? soft_lambda : 1;
    s->strength[SFP__SCALE] = is_slda(m) ? 0.5 : 10;
    s->strength[SFP__SCALING] = is_balanced(m) ? SOFT : STANDARD;
    (void)sfp__sums_dropped_strength(&m->sums, s->strength);
    s->strength[SFP__SCALING] = fmax(STANDARD, fmin(s->strength[SFP__SCALING], SOFTER)); /* a file may have any number */
}

static sfp_status ridge_init(sfp__head *h, sfp_error *err)
{
    ridge *m = (ridge *)h;
    size_t d = (size_t)h->opt.dim, triangle = sfp__triangle_count(h->opt.dim);
    TRY(sfp__sums_init(&m->sums, h->opt.dim, true, h->opt.half_life, err));
    reset_strength(m, &m->own);
    reset_strength(m, &m->exact);
    TRY(sfp__novelty_init(&m->novelty, h->opt.tap_dim, err));
    TRY(sfp__alloc(&m->own.centre, d, sizeof *m->own.centre, err));
    TRY(sfp__alloc(&m->exact.centre, d, sizeof *m->exact.centre, err));
    TRY(sfp__alloc(&m->follow.inverse, triangle, sizeof *m->follow.inverse, err));
    TRY(sfp__alloc(&m->follow.u, PENDING * d, sizeof *m->follow.u, err));
    TRY(sfp__alloc(&m->follow.s, PENDING, sizeof *m->follow.s, err));
    TRY(sfp__alloc(&m->matrix, triangle, sizeof *m->matrix, err));
    TRY(sfp__alloc(&m->z, d, sizeof *m->z, err));
    TRY(sfp__alloc(&m->norm, SFP__SUMS_KEPT, sizeof *m->norm, err));
    TRY(sfp__alloc(&m->block, SFP__TRIANGLE_BLOCK * d, sizeof *m->block, err));
    if (!is_slda(m)) {
        TRY(sfp__alloc(&m->gram, sfp__triangle_count(SFP__SUMS_KEPT), sizeof *m->gram, err));
        TRY(sfp__alloc(&m->gram_factor, sfp__triangle_count(SFP__SUMS_KEPT), sizeof *m->gram_factor, err));
        TRY(sfp__alloc(&m->gram_inverse, SFP__SUMS_KEPT * SFP__SUMS_KEPT, sizeof *m->gram_inverse, err));
    }
    return sfp__alloc(&m->product, SFP__TRIANGLE_BLOCK * d, sizeof *m->product, err);
}

static void ridge_done(sfp__head *h)
{
    ridge *m = (ridge *)h;
    void *blocks[] = {m->own.weight, m->own.gain,     m->own.bias,       m->own.centre,  m->exact.weight, m->exact.gain,
                      m->exact.bias, m->exact.centre, m->follow.u,       m->follow.s,    m->follow.c,     m->matrix,
                      m->z,          m->norm,         m->follow.inverse, m->prior,       m->scores,       m->block,
                      m->product,    m->gram,         m->gram_factor,    m->gram_inverse};
    sfp__sums_done(&m->sums);
    sfp__novelty_done(&m->novelty);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        sfp__free(blocks[i]);
}

static bool grow_solution(solution *s, size_t d, size_t old, size_t count)
{
    return sfp__head_extend(&s->weight, d * sizeof *s->weight, old, count) &&
           sfp__head_extend(&s->gain, sizeof *s->gain, old, count) && sfp__head_extend(&s->bias, sizeof *s->bias, old, count);
}

static sfp_status ridge_grow(sfp__head *h, int capacity, sfp_error *err)
{
    ridge *m = (ridge *)h;
    size_t d = (size_t)h->opt.dim, old = (size_t)h->capacity, count = (size_t)capacity;
    return sfp__check_memory(sfp__sums_grow(&m->sums, h->capacity, capacity) &&
                                 sfp__novelty_grow(&m->novelty, h->capacity, capacity) && grow_solution(&m->own, d, old, count) &&
                                 grow_solution(&m->exact, d, old, count) &&
                                 sfp__head_extend(&m->follow.c, PENDING * sizeof *m->follow.c, old, count) &&
                                 sfp__head_extend(&m->prior, sizeof *m->prior, old, count) &&
                                 sfp__head_extend(&m->scores, SFP__SUMS_KEPT * sizeof *m->scores, old, count),
                             err);
}

/* ---------------------------------------------------------------- matrices */

/* Writes the mean (NULL: not) and the shares of the classes. */
static void summarise(ridge *m, double *mean)
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
static void scale_values(const ridge *m, int scaling, double *z)
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
    for (int i = 0; scaling != STANDARD && sum > 0 && i < d; i++)
        z[i] *= sqrt(d / sum);
}

/* Fills the matrix A and the right side of ridge. */
static void fill_ridge(ridge *m, const solution *s)
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
static void fill_slda(ridge *m, const solution *s, double extra)
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
static double mean_score(const ridge *m, const solution *s, int r)
{
    const double *sum = m->sums.class_sum + (size_t)r * (size_t)m->base.opt.dim, *w = s->weight + r;
    double total = 0;
    for (int i = 0; i < m->base.opt.dim; i++, w += s->rows)
        total += (sum[i] / m->sums.mass[r] - s->centre[i]) * *w;
    return total;
}

/* Sets gains and biases from the shares of the classes (m->prior) and the weights; `factor` multiplies the weights of slda. */
static void finish(const ridge *m, solution *s, double factor)
{
    int classes = 0;
    for (int r = 0; r < s->rows; r++)
        classes += m->prior[r] > 0;
    for (int r = 0; r < s->rows; r++) {
        double share = m->prior[r];
        if (!(share > 0)) {
            s->gain[r] = 0;
            s->bias[r] = never;
        } else if (is_slda(m)) {
            s->gain[r] = factor;
            s->bias[r] = -0.5 * factor * mean_score(m, s, r);
        } else {
            s->gain[r] = is_balanced(m) ? 1 / sqrt(classes * share) : 1;
            s->bias[r] = is_balanced(m) ? 0 : share;
        }
    }
}

/* -------------------------------------------------------------- few samples */

/* Returns whether all samples are kept, and too few to need a matrix of the size of x. Their products with each other then take the place of
 * those of the values, so that solving is fast where it happens often. */
static bool keeps_all(const ridge *m)
{
    const sfp__sums *u = &m->sums;
    return !is_slda(m) && u->half_life == 0 && u->kept == u->total && 2 * u->kept <= u->dim;
}

/* The kept samples must be those of the sums: sums without single samples may have been added and others been subtracted. */
static bool is_few(const ridge *m)
{
    const sfp__sums *u = &m->sums;
    double square = 0;
    if (!keeps_all(m))
        return false;
    for (size_t i = 0; i < (size_t)u->kept * (size_t)u->dim; i++)
        square += (double)u->kept_x[i] * (double)u->kept_x[i];
    return fabs(square - u->square) <= 1e-9 * u->square;
}

static void fill_gram(ridge *m, const solution *s)
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

/* Inverts T T^t / n + lambda I. Returns false if it is singular within rounding. */
static bool invert_gram(ridge *m, const solution *s)
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

/* Writes row i of the inverse times the targets (1(y = c) - pi_c) to out (rows). */
static void invert_targets(const ridge *m, int i, double *out)
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
static void weigh_few(ridge *m, const solution *s)
{
    int d = m->base.opt.dim, n = m->sums.kept;
    memset(s->weight, 0, (size_t)d * (size_t)s->rows * sizeof *s->weight);
    for (int i = 0; i < n; i++)
        invert_targets(m, i, m->scores + (size_t)i * (size_t)s->rows);
    sfp__kernels_get()->product_f64(d, s->rows, n, 1.0 / n, m->matrix, d, 1, m->scores, s->rows, s->weight, s->rows);
}

/* Writes A^-1 in the coordinates of x, divided by n, to the inverse of the own solution: with the Cholesky factor U of the inverted matrix,
 * A^-1 = (I - Q^t Q / n) / lambda, Q = U^-T T. This replaces T. */
static void invert_few(ridge *m)
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

/* Solves from the sums with the strengths of s. A matrix that is singular within rounding gets a larger diagonal. */
static void solve(ridge *m, solution *s)
{
    int d = m->base.opt.dim, tries = 0;
    summarise(m, s->centre);
    s->rows = m->base.rows;
    m->factored = 0;
    for (m->lambda = s->strength[SFP__LAMBDA];; tries++, m->lambda *= 10) {
        if (m->few && invert_gram(m, s))
            break;
        m->few = false;
        if (is_slda(m))
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
    finish(m, s, 1);
}

/* ------------------------------------------------- strengths, by samples left out */

/* Writes the products x^T w_c of a centred sample, without gain and bias. */
static void project(const ridge *m, const solution *s, const double *x, double *out)
{
    size_t rows = (size_t)s->rows;
    memset(out, 0, rows * sizeof *out);
    for (int i = 0; i < m->base.opt.dim; i++) {
        const double *w = s->weight + (size_t)i * rows;
        for (size_t r = 0; r < rows; r++)
            out[r] += x[i] * w[r];
    }
}

/* Returns x - centre, in the workspace. */
static const double *centred(const ridge *m, const solution *s, const float *x)
{
    for (int i = 0; i < m->base.opt.dim; i++)
        m->block[i] = (double)x[i] - s->centre[i];
    return m->block;
}

/* Writes t^T A^-1 t / n of up to SFP__TRIANGLE_BLOCK samples x (count, D) to `norm`, t = Z (x - centre), with the factor of the last
 * solve. */
static void measure(ridge *m, const solution *s, int count, const float *x, double *norm)
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
static void measure_kept(ridge *m, const solution *s)
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

static left_out kept_sample(const ridge *m, int i)
{
    return (left_out){m->sums.kept_x + (size_t)i * (size_t)m->sums.dim, m->sums.kept_row[i], m->norm[i], i};
}

/* Returns whether the class of a kept sample has others. */
static bool has_others(const ridge *m, int kept)
{
    return m->sums.mass[m->sums.kept_row[kept]] > 1.5 * m->sums.weight || m->sums.half_life > 0;
}

static int count_left_out(const ridge *m)
{
    int n = 0;
    for (int i = 0; i < m->sums.kept; i++)
        n += has_others(m, i);
    return n;
}

/* Writes the scores of ridge for a learned sample by the solution without it, plain, to `out`; returns their squared error. The residual of
 * a sample that is left out is that of the sample divided by one minus its leverage. */
static double leave_out_ridge(const ridge *m, const solution *s, left_out o, double *out)
{
    const sfp__sums *u = &m->sums;
    double share = u->weight / u->total, error = 0; /* of the sample */
    double rest = m->few ? m->lambda * m->gram_inverse[(size_t)o.kept * (size_t)(u->kept + 1)] - share : 1 - o.norm - share;
    if (m->few)
        invert_targets(m, o.kept, out);
    else
        project(m, s, centred(m, s, o.x), out);
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
static void leave_out_slda(const ridge *m, const solution *s, left_out o, double *out)
{
    const sfp__sums *u = &m->sums;
    size_t d = (size_t)u->dim, y = (size_t)o.row;
    double n = u->total / u->weight, ny = fmax(u->mass[y] / u->weight, 1.5), whole = n * o.norm;
    double *mean = m->block, *of_mean = m->product; /* mu_y, and its scores */
    project(m, s, centred(m, s, o.x), out);
    for (size_t j = 0; j < d; j++)
        mean[j] = u->class_sum[y * d + j] / u->mass[y] - s->centre[j];
    project(m, s, mean, of_mean);
    double own = out[y], q = fmax(whole - 2 * own + of_mean[y], 0), rho = (1 - m->share) * ny / ((ny - 1) * n);
    double change = rho / fmax(1 - rho * q, 1e-9), farther = ny / (ny - 1);
    for (size_t r = 0; r < (size_t)s->rows; r++) {
        double across = whole - out[r] - own + of_mean[r], distance = whole - 2 * out[r] - 2 * s->bias[r];
        out[r] = -0.5 * (r == y ? farther * farther * q * (1 + change * q) : distance + change * across * across);
    }
}

/* Solves as far as leave_out_ridge needs it. */
static void prepare(ridge *m, solution *s)
{
    m->lambda = s->strength[SFP__LAMBDA];
    if (m->few && invert_gram(m, s))
        return;
    m->few = false;
    solve(m, s);
    measure_kept(m, s);
}

/* Returns the mean squared error of the kept samples, left out, with scaling and lambda number `index`. */
static double error_at(ridge *m, solution *s, int scaling, int index, double error[SCALINGS][DECADES])
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
static int descend(ridge *m, solution *s, int scaling, int from, double error[SCALINGS][DECADES])
{
    int best = from;
    while (best > 0 && error_at(m, s, scaling, best - 1, error) < error_at(m, s, scaling, best, error))
        best--;
    while (best >= from && best + 1 < DECADES && error_at(m, s, scaling, best + 1, error) < error_at(m, s, scaling, best, error))
        best++;
    return best;
}

/* Chooses scaling and lambda, going downhill from those of s. */
static void choose_lambda(ridge *m, solution *s)
{
    double error[SCALINGS][DECADES];
    for (int i = 0; i < SCALINGS; i++)
        for (int j = 0; j < DECADES; j++)
            error[i][j] = NAN;
    int scaling = (int)s->strength[SFP__SCALING], decade = (int)lround(log10(s->strength[SFP__LAMBDA])) - LOWEST;
    int best = descend(m, s, scaling, decade < 0 ? 0 : decade < DECADES ? decade : DECADES - 1, error);
    for (int step = 1; is_balanced(m) && step >= -1; step -= 2)
        while (scaling + step >= 0 && scaling + step < SCALINGS &&
               error_at(m, s, scaling + step, best, error) < error_at(m, s, scaling, best, error)) {
            scaling += step;
            best = descend(m, s, scaling, best, error);
        }
    s->strength[SFP__SCALING] = scaling;
    s->strength[SFP__LAMBDA] = pow(10, LOWEST + best);
}

/* Chooses the strengths of a solution and solves it. The own solution continues with those it has; the exact one always starts with the same, so
 * that it is a function of the sums. */
static void choose_and_solve(ridge *m, solution *s)
{
    if (s == &m->exact || is_slda(m))
        reset_strength(m, s);
    summarise(m, s->centre);
    s->rows = m->base.rows;
    m->few = is_few(m);
    m->gram_scaling = -1;
    bool slow = s == &m->own && !is_slda(m) && !m->few, enough = count_left_out(m) >= (slow ? LEFT_OUT_MIN_OWN : LEFT_OUT_MIN);
    if (enough && !is_slda(m))
        choose_lambda(m, s);
    solve(m, s);
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
        if (is_slda(m))
            leave_out_slda(m, s, kept_sample(m, i), out);
        else
            (void)leave_out_ridge(m, s, kept_sample(m, i), out);
        for (size_t r = 0; r < rows; r++)
            out[r] = m->prior[r] > 0 ? (is_balanced(m) ? s->gain[r] * (out[r] - m->prior[r]) : out[r]) : never;
        row[n++] = m->sums.kept_row[i];
    }
    s->strength[SFP__SCALE] = sfp__head_fit_scale(n, (int)rows, m->scores, row, is_slda(m) ? 0.5 : 10);
}

/* ------------------------------------------------------------- the own solution */

/* Stores how a sample will change the own solution; called before the sums contain it. */
static void push(ridge *m, const float *x, int row)
{
    follow *f = &m->follow;
    const sfp__sums *u = &m->sums;
    size_t d = (size_t)m->base.opt.dim;
    double w = u->weight, n = u->total, ny = u->mass[row], *to = f->u + (size_t)f->pending * d;
    const double *sum = u->class_sum + (size_t)row * d;
    bool slda = is_slda(m);
    for (size_t i = 0; i < d; i++) {
        to[i] = (double)x[i] - (slda && ny > 0 ? sum[i] / ny : m->own.centre[i]);
        if (!slda)
            m->own.centre[i] += w / (n + w) * to[i];
    }
    f->s[f->pending] = slda ? w * ny / (ny + w) : w * n / (n + w);
    for (int r = 0; r < m->base.rows; r++) {
        double *c = &f->c[(size_t)r * PENDING + (size_t)f->pending];
        if (slda)
            *c = r == row ? w / (ny + w) : 0;
        else
            *c = r == row ? w * (n - ny) / (n + w) : -u->mass[r] * w / (n + w);
    }
    f->pending++;
}

static void clear_pending(ridge *m)
{
    follow *f = &m->follow;
    memset(f->u, 0, PENDING * (size_t)m->base.opt.dim * sizeof *f->u);
    memset(f->s, 0, PENDING * sizeof *f->s);
    memset(f->c, 0, (size_t)m->base.rows * PENDING * sizeof *f->c);
    f->pending = 0;
}

/* Adds rows of new classes to the own solution, without weights. */
static void add_rows(ridge *m)
{
    solution *s = &m->own;
    size_t old = (size_t)s->rows, rows = (size_t)m->base.rows;
    for (size_t i = (size_t)m->base.opt.dim; rows > old && i-- > 0;) {
        memmove(s->weight + i * rows, s->weight + i * old, old * sizeof *s->weight);
        memset(s->weight + i * rows + old, 0, (rows - old) * sizeof *s->weight);
    }
    s->rows = (int)rows;
}

/* Factors the (k, k) matrix a = L L^T in place; its diagonal is at least 1, because a is the identity plus a covariance. */
static void factor_small(int k, double *a)
{
    for (int j = 0; j < k; j++)
        for (int i = j; i < k; i++) {
            double sum = a[i * PENDING + j];
            for (int t = 0; t < j; t++)
                sum -= a[i * PENDING + t] * a[j * PENDING + t];
            a[i * PENDING + j] = i == j ? sqrt(fmax(sum, 1e-12)) : sum / a[j * PENDING + j];
        }
}

/* Computes x <- L^-1 x; x (k, columns) with row stride ld. */
static void solve_small(int k, const double *l, int columns, double *x, int ld)
{
    for (int i = 0; i < k; i++) {
        double *row = x + (ptrdiff_t)i * ld;
        for (int t = 0; t < i; t++)
            for (int c = 0; c < columns; c++)
                row[c] -= l[i * PENDING + t] * x[(ptrdiff_t)t * ld + c];
        for (int c = 0; c < columns; c++)
            row[c] /= l[i * PENDING + i];
    }
}

static void transpose(int rows, int columns, const double *x, double *y)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            y[(ptrdiff_t)j * rows + i] = x[(ptrdiff_t)i * columns + j];
}

/* Takes the pending samples into the own solution; zeros make them k, a whole number of vectors, because products of other widths are
 * slow. With U (k, D), s and c of `push`, V = diag(sqrt s) U, Y = K^-1 U^T and
 * L L^T = I / kappa + V K^-1 V^T (Woodbury):
 *
 *     Q = K^-1 V^T L^-T, K'^-1 = K^-1 - Q Q^T, weight' = weight - Q L^-1 V weight + (Y - Q Q^T U^T) c */
static void take_pending(ridge *m)
{
    follow *f = &m->follow;
    solution *s = &m->own;
    const sfp__kernels *kernels = sfp__kernels_get();
    int d = m->base.opt.dim, k = (f->pending + 15) / 16 * 16, rows;
    double small[PENDING * PENDING], across[PENDING * PENDING], *y = m->product, *work = m->block,
                                                                *q = work + (ptrdiff_t)PENDING * d;
    double *vw = m->scores; /* (PENDING, rows) */
    add_rows(m);
    rows = s->rows;
    if (k == 0)
        return;
    transpose(k, d, f->u, work);
    sfp__triangle_multiply(d, f->inverse, k, work, y); /* Y (D, k) */
    memset(across, 0, sizeof across);
    kernels->product_f64(k, k, d, 1, work, k, 1, y, k, across, PENDING); /* U K^-1 U^T */
    for (int i = 0; i < k; i++)
        for (int j = 0; j < k; j++)
            small[i * PENDING + j] = sqrt(f->s[i] * f->s[j]) * across[i * PENDING + j] + (i == j ? 1 / f->kappa : 0);
    factor_small(k, small);
    /* rows of q: L^-1 V K^-1; of vw: L^-1 V weight; of across: L^-1 V K^-1 U^T = Q^T U^T */
    transpose(d, k, y, q);
    memset(vw, 0, (size_t)k * (size_t)rows * sizeof *vw);
    kernels->product_f64(k, rows, d, 1, work, k, 1, s->weight, rows, vw, rows);
    for (int i = 0; i < k; i++) {
        double root = sqrt(f->s[i]);
        for (int j = 0; j < d; j++)
            q[(ptrdiff_t)i * d + j] *= root;
        for (int r = 0; r < rows; r++)
            vw[(ptrdiff_t)i * rows + r] *= root;
        for (int j = 0; j < k; j++)
            across[i * PENDING + j] *= root;
    }
    solve_small(k, small, d, q, d);
    solve_small(k, small, rows, vw, rows);
    solve_small(k, small, k, across, PENDING);
    sfp__triangle_add(d, f->inverse, k, -1, q, m->base.opt.threads);
    /* weight += Q^T-rows times -(vw + across c) + Y c */
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < k; i++)
            for (int j = 0; j < k; j++)
                vw[(ptrdiff_t)i * rows + r] += across[i * PENDING + j] * f->c[(size_t)r * PENDING + (size_t)j];
    kernels->product_f64(d, rows, k, -1, q, d, 1, vw, rows, s->weight, rows);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < k; i++)
            vw[(ptrdiff_t)i * rows + r] = f->c[(size_t)r * PENDING + (size_t)i];
    kernels->product_f64(d, rows, k, 1, y, 1, k, vw, rows, s->weight, rows);
    clear_pending(m);
}

/* Brings the own solution up to date with the sums. */
static void catch_up(ridge *m)
{
    take_pending(m);
    for (int r = 0; r < m->base.rows; r++)
        m->prior[r] = m->sums.mass[r] / m->sums.total;
    finish(m, &m->own, m->sums.total);
}

static void ridge_learn(sfp__head *h, const float *x, int row, uint64_t key)
{
    ridge *m = (ridge *)h;
    if (m->own.n > 0) {
        if (m->follow.pending == PENDING)
            catch_up(m);
        push(m, x, row);
    }
    sfp__sums_add(&m->sums, x, row, h->rows, key, h->n, h->opt.threads);
}

/* Returns whether the own solution is solved again from the sums: lambda is a share of the samples, and old ones fade. */
static bool is_due(const ridge *m)
{
    const follow *f = &m->follow;
    return m->own.n == 0 || m->base.n >= (is_slda(m) || keeps_all(m) ? GROWTH_FAST : GROWTH) * f->solved ||
           m->sums.weight >= 2 * f->weight || m->sums.weight < f->weight;
}

/* Returns whether the own solution is out of date: it lacks a class, or so many recent samples that it predicts worse. */
static bool is_behind(const ridge *m)
{
    return m->own.rows < m->base.rows || m->follow.pending * m->sums.weight * BEHIND >= m->sums.total;
}

/* Writes the inverse of the factored matrix, in the coordinates of x and divided by n, to that of the own solution. */
static void invert_matrix(ridge *m)
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

/* Solves the own solution and inverts its matrix. */
static void solve_own(ridge *m)
{
    follow *f = &m->follow;
    solution *s = &m->own;
    int d = m->base.opt.dim;
    double n = m->sums.total;
    if (m->base.n >= 4 * s->chosen || keeps_all(m)) {
        choose_and_solve(m, s);
    } else {
        m->few = false;
        solve(m, s);
    }
    if (m->few)
        invert_few(m);
    else
        invert_matrix(m);
    for (int i = 0; is_slda(m) && i < d * s->rows; i++)
        s->weight[i] /= n;
    if (is_slda(m))
        finish(m, s, n);
    f->solved = s->n = m->base.n;
    f->weight = m->sums.weight;
    f->kappa = is_slda(m) ? 1 - m->share : 1;
    clear_pending(m);
}

static void discard(const ridge *m, solution *s)
{
    size_t d = (size_t)m->base.opt.dim, rows = (size_t)s->rows;
    memset(s->weight, 0, d * rows * sizeof *s->weight);
    memset(s->gain, 0, rows * sizeof *s->gain);
    memset(s->bias, 0, rows * sizeof *s->bias);
    memset(s->centre, 0, d * sizeof *s->centre);
    s->n = s->chosen = s->rows = 0;
    reset_strength(m, s);
}

static void discard_own(ridge *m)
{
    follow *f = &m->follow;
    discard(m, &m->own);
    memset(f->inverse, 0, sfp__triangle_count(m->base.opt.dim) * sizeof *f->inverse);
    f->solved = 0;
    clear_pending(m);
}

/* Discards the solutions, which have other samples than the sums now. Values are cleared, because a state may contain them. */
static void ridge_sums_changed(sfp__head *h)
{
    ridge *m = (ridge *)h;
    discard_own(m);
    discard(m, &m->exact);
    m->factored = 0;
    sfp__novelty_clear(&m->novelty);
}

static sfp__sums *ridge_sums(sfp__head *h)
{
    return &((ridge *)h)->sums;
}

static void ridge_drop_samples(sfp__head *h)
{
    ridge *m = (ridge *)h;
    sfp__sums_drop_samples(&m->sums, m->exact.strength);
    discard_own(m);
}

static sfp_status ridge_refresh(sfp__head *h, bool exact, sfp_error *err)
{
    (void)err;
    ridge *m = (ridge *)h;
    if (exact && m->exact.n != h->n) {
        choose_and_solve(m, &m->exact);
        m->exact.n = h->n;
        sfp__novelty_fit(&m->novelty, &m->sums, h->rows, h->opt.threads);
    }
    if (exact || m->own.n == h->n)
        return SFP_OK;
    if (is_due(m)) {
        solve_own(m);
    } else if (is_behind(m)) {
        catch_up(m);
        m->own.n = h->n;
    }
    return SFP_OK;
}

static void ridge_score(sfp__head *h, int n, const float *q, bool exact, double *out)
{
    const ridge *m = (const ridge *)h;
    const solution *s = exact ? &m->exact : &m->own;
    for (int k = 0; k < n; k++, q += h->opt.dim, out += h->rows) {
        project(m, s, centred(m, s, q), out);
        for (int r = 0; r < h->rows; r++)
            out[r] =
                r < s->rows && s->bias[r] != never ? (s->gain[r] * out[r] + s->bias[r]) * s->strength[SFP__SCALE] : -INFINITY;
    }
}

static double ridge_scale(const sfp__head *h, bool exact)
{
    const ridge *m = (const ridge *)h;
    return (exact ? m->exact : m->own).strength[SFP__SCALE];
}

/* Solves the exact solution again if its factor is gone, or never was because there are few samples. The solution itself stays: another
 * thread may be writing it to a file. */
static sfp_status factor_exact(ridge *m, sfp_error *err)
{
    OWNED double *memory = NULL;
    solution s = m->exact;
    size_t d = (size_t)m->base.opt.dim, rows = (size_t)m->base.rows;
    if (m->factored == m->base.n)
        return SFP_OK;
    TRY(sfp__alloc(&memory, (d + 2) * rows + d, sizeof *memory, err));
    s.weight = memory;
    s.gain = memory + d * rows;
    s.bias = s.gain + rows;
    s.centre = s.bias + rows;
    m->few = false;
    solve(m, &s);
    m->factored = m->base.n;
    return SFP_OK;
}

/* The scaling Z and n lambda stay those with the sample; of slda the shrinkage. So each sample is left out in closed form. */
static sfp_status ridge_judge(sfp__head *h, int n, const float *x, const int *row, double *out, float *unknown, sfp_error *err)
{
    ridge *m = (ridge *)h;
    const solution *s = &m->exact;
    double norm[SFP__HEAD_GRAIN], all = (double)h->n;
    TRY(factor_exact(m, err));
    m->few = false;
    summarise(m, NULL);
    measure(m, s, n, x, norm);
    for (int k = 0; k < n; k++, x += h->opt.dim, out += h->rows) {
        const left_out o = {x, row[k], norm[k], -1};
        int classes = 0;
        if (is_slda(m))
            leave_out_slda(m, s, o, out);
        else
            (void)leave_out_ridge(m, s, o, out);
        for (int r = 0; r < h->rows; r++)
            classes += m->sums.mass[r] > (r == row[k]);
        for (int r = 0; r < h->rows; r++) {
            double others = m->sums.mass[r] - (r == row[k]), share = others / (all - 1);
            if (is_slda(m))
                out[r] *= (all - 1) / all;
            else if (is_balanced(m))
                out[r] = (out[r] - share) / sqrt(classes * share);
            out[r] = others > 0 ? out[r] * s->strength[SFP__SCALE] : -INFINITY;
        }
        unknown[k] = sfp__novelty_score_left_out(&m->novelty, &m->sums, x + h->opt.dim - m->novelty.dim, row[k]);
    }
    return SFP_OK;
}

static const sfp__novelty *ridge_novelty(const sfp__head *h)
{
    return &((const ridge *)h)->novelty;
}

/* --------------------------------------------------------------- save, load */

static sfp_status visit_solution(ridge *m, solution *s, const sfp__visitor *v, sfp_error *err)
{
    const int64_t weight[] = {m->base.opt.dim, s->rows}, strengths = SFP__STRENGTHS;
    TRY(sfp__visit(v, "strength", SFP__DTYPE_F64, 1, &strengths, s->strength, err));
    TRY(sfp__visit(v, "weight", SFP__DTYPE_F64, 2, weight, s->weight, err));
    TRY(sfp__visit(v, "gain", SFP__DTYPE_F64, 1, weight + 1, s->gain, err));
    TRY(sfp__visit(v, "bias", SFP__DTYPE_F64, 1, weight + 1, s->bias, err));
    TRY(sfp__visit(v, "centre", SFP__DTYPE_F64, 1, weight, s->centre, err));
    double scaling = s->strength[SFP__SCALING];
    for (int p = SFP__LAMBDA; p <= SFP__SCALE; p++)
        if (!v->put && !(s->strength[p] >= 1e-9 && s->strength[p] < 1e9))
            return sfp__fail(err, SFP_EFORMAT, "%s: '%s.strength': value %d is %g, expected a number from 1e-9 to 1e9", v->file,
                             v->prefix, p, s->strength[p]);
    if (!v->put && scaling != STANDARD && scaling != SOFT && scaling != SOFTER)
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s.strength': the scaling is %g, expected %d to %d", v->file, v->prefix, scaling,
                         STANDARD, SOFTER);
    return SFP_OK;
}

/* Visits what the own solution needs to continue. */
static sfp_status visit_follow(ridge *m, const sfp__visitor *v, sfp_error *err)
{
    follow *f = &m->follow;
    const sfp__head *h = &m->base;
    const int64_t counters = COUNTERS, one = 1;
    int64_t *counter = m->counter;
    counter[0] = m->own.n;
    counter[1] = m->own.rows;
    counter[2] = m->own.chosen;
    counter[3] = f->solved;
    counter[4] = f->pending;
    TRY(sfp__visit(v, "counter", SFP__DTYPE_I64, 1, &counters, counter, err));
    TRY(sfp__visit(v, "solved_weight", SFP__DTYPE_F64, 1, &one, &f->weight, err));
    TRY(sfp__visit(v, "kappa", SFP__DTYPE_F64, 1, &one, &f->kappa, err));
    bool valid = counter[1] >= 0 && counter[1] <= h->rows && counter[4] >= 0 && counter[4] <= PENDING;
    for (int i = 0; i < COUNTERS; i++)
        valid = valid && counter[i] >= 0 && (i == 1 || counter[i] <= h->n);
    if (!valid || !(f->weight >= 0 && f->kappa >= 0 && f->kappa <= 1))
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s': counters are inconsistent", v->file, v->prefix);
    if (!v->put) { /* a predictor may read them during a write */
        m->own.n = counter[0];
        m->own.rows = (int)counter[1];
        m->own.chosen = counter[2];
        f->solved = counter[3];
        f->pending = (int)counter[4];
    }
    const int64_t inverse = (int64_t)sfp__triangle_count(h->opt.dim), u[] = {f->pending, h->opt.dim}, c[] = {h->rows, PENDING};
    TRY(sfp__visit(v, "inverse", SFP__DTYPE_F64, 1, &inverse, f->inverse, err));
    TRY(sfp__visit(v, "pending", SFP__DTYPE_F64, 2, u, f->u, err));
    TRY(sfp__visit(v, "pending_factor", SFP__DTYPE_F64, 1, u, f->s, err));
    TRY(sfp__visit(v, "pending_change", SFP__DTYPE_F64, 2, c, f->c, err));
    for (int i = 0; !v->put && i < f->pending; i++)
        if (!(f->s[i] >= 0))
            return sfp__fail(err, SFP_EFORMAT, "%s: '%s.pending_factor': value %d is %g, expected at least 0", v->file, v->prefix,
                             i, f->s[i]);
    return SFP_OK;
}

static sfp_status ridge_visit(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    ridge *m = (ridge *)h;
    TRY(visit_follow(m, v, err));
    TRY(visit_solution(m, &m->own, v, err));
    return sfp__sums_visit(&m->sums, h->rows, h->count, v, err);
}

static sfp_status ridge_visit_inference(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    ridge *m = (ridge *)h;
    if (!v->put) {
        m->exact.rows = h->rows;
        m->exact.n = h->n;
    }
    TRY(visit_solution(m, &m->exact, v, err));
    return sfp__novelty_visit(&m->novelty, h->rows, v, err);
}

#define KIND(word)                                                                                                             \
    {                                                                                                                          \
        .name = word, .size = sizeof(ridge), .init = ridge_init, .done = ridge_done, .grow = ridge_grow, .learn = ridge_learn, \
        .sums = ridge_sums, .sums_changed = ridge_sums_changed, .drop_samples = ridge_drop_samples, .refresh = ridge_refresh,  \
        .score = ridge_score, .judge = ridge_judge, .scale = ridge_scale, .novelty = ridge_novelty, .visit = ridge_visit,      \
        .visit_inference = ridge_visit_inference                                                                               \
    }
const sfp__head_kind sfp__head_ridge = KIND("ridge"), sfp__head_slda = KIND("slda");
