/* Ridge regression and linear discriminant analysis, both solved from sums over samples (sums.h; docs/method.md, section 18).
 *
 * With n samples, mean m, G = sum x x^T, H_c the sum of x over class c, n_c its number of samples and pi_c = n_c / n:
 *
 *     ridge   Z = diag(1 / deviation), A = Z (G/n - m m^T) Z + lambda I, scores pi + (x - m)^T Z A^-1 Z (H/n - m pi^T)
 *     balanced ridge: scores_c (x - m)^T (..) / sqrt(C pi_c) without pi, C the number of classes
 *     slda    mu_c = H_c / n_c, S = (G - sum_c n_c mu_c mu_c^T) / n, shrunk towards a multiple of I,
 *             scores (x - m)^T S^-1 (mu_c - m) - (mu_c - m)^T S^-1 (mu_c - m) / 2
 *
 * Log-probabilities are log softmax(scale * scores). The scale is fitted on held-out samples that are kept, with the solution of
 * the samples that are not held out. So is lambda, by the squared error of all held-out samples, which only needs their sums.
 *
 * There are two solutions, each with its own lambda and scale. The learner's own predicts samples before they are learned from. It
 * is computed again when the number of samples has grown by 5 % and the passes since then have cost a hundred times as much as
 * solving; at the latest when the samples have doubled. Its lambda and scale are chosen again when there are four times as many. In
 * between, a class that is new or whose share of the samples has grown by half gets its weights from the new sums and the old
 * factor: a stream that brings one class after the other does not wait. This solution is saved with its factor, so that a run
 * that resumes continues with the same bytes. The exact one, of all samples, is computed when it is needed. */
#include "base/mem.h"
#include "learner/heads/head_kind.h"
#include "learner/heads/novelty.h"
#include "learner/heads/sums.h"
#include "learner/heads/triangle.h"

#include <math.h>
#include <string.h>

enum { DECADES = 10, LOWEST = -7 }; /* lambda is one of 10^-7 .. 10^2 */
enum { FIRST_CHOICE = 40, HELD_MIN = 4 };
enum { ALL = 1 << SFP_REST | 1 << SFP_HELD };
/* indices of `counter`, which is saved: members of the own solution */
enum { SOLVED, SOLVED_ROWS, CHOSEN, COUNTERS };
enum { LAMBDA, SCALE, STRENGTHS }; /* indices of `strength` */

static const double never = -1e30; /* bias of a class all of whose samples were taken out */

typedef struct solution {
    int64_t n;      /* number of samples; 0: none */
    int64_t chosen; /* number of samples when lambda and scale were chosen; 0: not yet */
    int rows;
    double strength[STRENGTHS];
    double *weight; /* (D, rows) memory for (capacity, D) */
    double *bias;   /* (capacity) */
    double *centre; /* (D) */
} solution;

typedef struct ridge {
    sfp__head base;
    sfp__sums sums;
    int64_t counter[COUNTERS];
    solution own, exact;
    /* Of the own solution: the factor and 1 / deviation of its solve, and the share of each class when its weights were computed. */
    double *own_factor, *own_deviation, *own_share; /* triangle, (D), (capacity) */
    sfp__novelty novelty;                           /* of the exact solution */
    double lambda;                                  /* of the solve in progress */
    /* Workspace of a solve. */
    double *matrix;                   /* triangle */
    double *deviation, *product;      /* (D) */
    double *prior, *scores, *class_x; /* (capacity), (SFP_SUMS_KEPT, capacity), (SFP_SUMS_GROUP, D) */
} ridge;

static bool is_slda(const ridge *m)
{
    return m->base.kind == &sfp__head_slda;
}

/* Returns the scale before there are held-out samples to fit it. */
static double first_scale(const ridge *m)
{
    return is_slda(m) ? 0.5 : 10;
}

static void reset_strength(const ridge *m, solution *s)
{
    s->strength[LAMBDA] = 1;
    s->strength[SCALE] = first_scale(m);
}

static sfp_status alloc_solution(solution *s, size_t d, sfp_error *err)
{
    return sfp__alloc(&s->centre, d, sizeof *s->centre, err);
}

static sfp_status ridge_init(sfp__head *h, sfp_error *err)
{
    ridge *m = (ridge *)h;
    size_t d = (size_t)h->opt.dim;
    reset_strength(m, &m->own);
    reset_strength(m, &m->exact);
    TRY(sfp__sums_init(&m->sums, h->opt.dim, true, err));
    TRY(sfp__novelty_init(&m->novelty, h->opt.tap_dim, err));
    TRY(alloc_solution(&m->own, d, err));
    TRY(alloc_solution(&m->exact, d, err));
    TRY(sfp__alloc(&m->matrix, sfp__triangle_count(h->opt.dim), sizeof *m->matrix, err));
    TRY(sfp__alloc(&m->own_factor, sfp__triangle_count(h->opt.dim), sizeof *m->own_factor, err));
    TRY(sfp__alloc(&m->own_deviation, d, sizeof *m->own_deviation, err));
    TRY(sfp__alloc(&m->deviation, d, sizeof *m->deviation, err));
    TRY(sfp__alloc(&m->product, d, sizeof *m->product, err));
    return sfp__alloc(&m->class_x, SFP_SUMS_GROUP * d, sizeof *m->class_x, err);
}

static void ridge_done(sfp__head *h)
{
    ridge *m = (ridge *)h;
    void *blocks[] = {m->own.weight,   m->own.bias,   m->own.centre,    m->exact.weight, m->exact.bias,
                      m->exact.centre, m->own_factor, m->own_deviation, m->own_share,    m->matrix,
                      m->deviation,    m->product,    m->prior,         m->scores,       m->class_x};
    sfp__sums_done(&m->sums);
    sfp__novelty_done(&m->novelty);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        sfp__free(blocks[i]);
}

static bool grow_solution(solution *s, size_t d, size_t old, size_t count)
{
    return sfp__head_extend(&s->weight, d * sizeof *s->weight, old, count) &&
           sfp__head_extend(&s->bias, sizeof *s->bias, old, count);
}

static sfp_status ridge_grow(sfp__head *h, int capacity, sfp_error *err)
{
    ridge *m = (ridge *)h;
    size_t d = (size_t)h->opt.dim, old = (size_t)h->capacity, count = (size_t)capacity;
    return sfp__check_memory(sfp__sums_grow(&m->sums, h->capacity, capacity) &&
                                 sfp__novelty_grow(&m->novelty, h->capacity, capacity) && grow_solution(&m->own, d, old, count) &&
                                 grow_solution(&m->exact, d, old, count) &&
                                 sfp__head_extend(&m->prior, sizeof *m->prior, old, count) &&
                                 sfp__head_extend(&m->own_share, sizeof *m->own_share, old, count) &&
                                 sfp__head_extend(&m->scores, SFP_SUMS_KEPT * sizeof *m->scores, old, count),
                             err);
}

/* ------------------------------------------------------------------- learn */

static void ridge_learn(sfp__head *h, const float *x, int row, uint64_t key)
{
    sfp__sums_add(&((ridge *)h)->sums, x, row, key, h->opt.threads);
}

static void discard(const ridge *m, solution *s)
{
    size_t d = (size_t)m->base.opt.dim;
    memset(s->weight, 0, d * (size_t)s->rows * sizeof *s->weight);
    memset(s->bias, 0, (size_t)s->rows * sizeof *s->bias);
    memset(s->centre, 0, d * sizeof *s->centre);
    s->n = s->chosen = s->rows = 0;
    reset_strength(m, s);
}

/* Discards the solutions, which have other samples than the sums now. Values are cleared, because a state may contain them. */
static void discard_all(ridge *m)
{
    memset(m->own_share, 0, (size_t)m->own.rows * sizeof *m->own_share);
    memset(m->own_factor, 0, sfp__triangle_count(m->base.opt.dim) * sizeof *m->own_factor);
    memset(m->own_deviation, 0, (size_t)m->base.opt.dim * sizeof *m->own_deviation);
    discard(m, &m->own);
    discard(m, &m->exact);
}

static bool ridge_forget(sfp__head *h, const float *x, int row, uint64_t key)
{
    ridge *m = (ridge *)h;
    if (!sfp__sums_remove(&m->sums, x, row, key))
        return false;
    discard_all(m);
    return true;
}

static void ridge_merge(sfp__head *h, const sfp__head *from, const int *row)
{
    ridge *m = (ridge *)h;
    sfp__sums_merge(&m->sums, &((const ridge *)from)->sums, from->rows, row);
    discard_all(m);
}

/* ------------------------------------------------------------------- solve */

static double class_count(const ridge *m, unsigned folds, int row)
{
    int64_t n = 0;
    for (int f = 0; f < SFP_FOLDS; f++)
        n += folds & 1u << f ? m->sums.count[f][row] : 0;
    return (double)n;
}

static double class_sum(const ridge *m, unsigned folds, int row, int i)
{
    double s = 0;
    for (int f = 0; f < SFP_FOLDS; f++)
        s += folds & 1u << f ? m->sums.class_sum[f][(size_t)row * (size_t)m->base.opt.dim + (size_t)i] : 0;
    return s;
}

/* Writes the mean and the priors; returns the number of samples. */
static double summarise(ridge *m, unsigned folds, double *mean)
{
    int d = m->base.opt.dim, rows = m->base.rows;
    double n = 0;
    for (int r = 0; r < rows; r++)
        n += m->prior[r] = class_count(m, folds, r);
    for (int r = 0; r < rows; r++)
        m->prior[r] = n > 0 ? m->prior[r] / n : 0;
    for (int i = 0; i < d; i++) {
        double s = 0;
        for (int r = 0; r < rows; r++)
            s += class_sum(m, folds, r, i);
        mean[i] = n > 0 ? s / n : 0;
    }
    return n;
}

/* Fills the matrix A and the right side of ridge. m->deviation gets 1 / deviation; 0: the feature is constant. */
static void fill_ridge(ridge *m, unsigned folds, double n, const solution *s)
{
    int d = m->base.opt.dim, rows = m->base.rows;
    double *z = m->deviation, largest = 0;
    sfp__sums_product(&m->sums, folds, m->matrix, m->base.opt.threads);
    for (int i = 0; i < d; i++) {
        z[i] = sfp__triangle_row(m->matrix, d, i)[i] / n - s->centre[i] * s->centre[i];
        largest = fmax(largest, z[i]);
    }
    for (int i = 0; i < d; i++)
        z[i] = z[i] > 1e-10 * largest ? 1 / sqrt(z[i]) : 0;
    for (int i = 0; i < d; i++) {
        double *row = sfp__triangle_row(m->matrix, d, i);
        for (int j = i; j < d; j++)
            row[j] = z[i] * z[j] * (row[j] / n - s->centre[i] * s->centre[j]);
        row[i] += m->lambda;
        for (int r = 0; r < rows; r++)
            s->weight[(size_t)i * (size_t)rows + (size_t)r] = z[i] * (class_sum(m, folds, r, i) / n - s->centre[i] * m->prior[r]);
    }
}

/* Fills the covariance within classes, without shrinkage, and the right side of slda. */
static void fill_slda(ridge *m, unsigned folds, double n, const solution *s)
{
    int d = m->base.opt.dim, rows = m->base.rows, k = 0;
    sfp__sums_product(&m->sums, folds, m->matrix, m->base.opt.threads);
    for (int r = 0; r < rows; r++) {
        double count = class_count(m, folds, r), scale = count > 0 ? 1 / sqrt(count) : 0;
        for (int i = 0; i < d; i++) {
            double sum = class_sum(m, folds, r, i);
            m->class_x[(size_t)k * (size_t)d + (size_t)i] = scale * sum;
            s->weight[(size_t)i * (size_t)rows + (size_t)r] = count > 0 ? sum / count - s->centre[i] : 0;
        }
        if (++k == SFP_SUMS_GROUP || r + 1 == rows) {
            sfp__triangle_add(d, m->matrix, k, -1, m->class_x, m->base.opt.threads);
            k = 0;
        }
    }
    for (int i = 0; i < d; i++) {
        double *row = sfp__triangle_row(m->matrix, d, i);
        for (int j = i; j < d; j++)
            row[j] /= n;
    }
}

/* Finishes a solution: its weights for x - mean, and its bias. */
static void finish(const ridge *m, unsigned folds, solution *s)
{
    int d = m->base.opt.dim;
    for (int r = 0; r < s->rows; r++) {
        double count = class_count(m, folds, r), sum = 0, *w = s->weight + r;
        for (int i = 0; i < d; i++, w += s->rows) {
            if (!is_slda(m))
                *w *= m->deviation[i];
            else if (count > 0)
                sum += (class_sum(m, folds, r, i) / count - s->centre[i]) * *w;
        }
        s->bias[r] = count == 0 ? never : is_slda(m) ? -0.5 * sum : m->prior[r];
    }
}

/* Solves from the sums of the chosen folds. A matrix that is singular within rounding gets a larger diagonal. */
static void solve(ridge *m, double lambda, unsigned folds, solution *s)
{
    int d = m->base.opt.dim, tries = 0;
    double n = summarise(m, folds, s->centre);
    s->rows = m->base.rows;
    for (m->lambda = lambda;; tries++, m->lambda *= 10) {
        (is_slda(m) ? fill_slda : fill_ridge)(m, folds, n > 0 ? n : 1, s);
        if (is_slda(m))
            sfp__triangle_shrink(d, m->matrix, n, m->base.opt.shrinkage_oas ? -1 : (double)m->base.opt.slda_shrink,
                                 tries ? 1e-14 * pow(10, tries) : 0);
        if (sfp__triangle_factor(d, m->matrix, m->base.opt.threads))
            break;
        if (tries == 40) { /* not a covariance (a forged state): use the identity, so that no NaN results */
            memset(m->matrix, 0, sfp__triangle_count(d) * sizeof *m->matrix);
            for (int i = 0; i < d; i++)
                sfp__triangle_row(m->matrix, d, i)[i] = 1;
            break;
        }
    }
    sfp__triangle_solve(d, m->matrix, s->rows, s->weight, m->base.opt.threads);
    finish(m, folds, s);
}

/* Returns by how much the weights of a class with this share of the samples are multiplied: 1 on average if all are equal. */
static double balance_of(int classes, double share)
{
    return share > 0 ? 1 / sqrt(classes * share) : 0;
}

/* Removes the preference of a solution for frequent classes, unless the head is plain or slda. m->prior has their shares. */
static void balance(const ridge *m, solution *s)
{
    if (is_slda(m) || !m->base.opt.ridge_balanced)
        return;
    int classes = 0;
    for (int r = 0; r < s->rows; r++)
        classes += m->prior[r] > 0;
    for (int r = 0; r < s->rows; r++) {
        double factor = balance_of(classes, m->prior[r]);
        for (int i = 0; i < m->base.opt.dim; i++)
            s->weight[(size_t)i * (size_t)s->rows + (size_t)r] *= factor;
        s->bias[r] = s->bias[r] == never ? never : 0;
    }
}

/* ------------------------------------------------------- lambda and scale */

static void score_one(const ridge *m, const solution *s, const float *x, double *out)
{
    size_t rows = (size_t)s->rows;
    memcpy(out, s->bias, rows * sizeof *out);
    for (int i = 0; i < m->base.opt.dim; i++) {
        double f = (double)x[i] - s->centre[i];
        const double *w = s->weight + (size_t)i * rows;
        for (size_t r = 0; r < rows; r++)
            out[r] += f * w[r];
    }
}

/* Returns the squared error of the held-out fold under a plain solution of the rest. If the head is balanced, it is that of the best
 * multiple of the scores without the prior: their scale is fitted later, and small scores are not an advantage. Uses
 * m->matrix. */
static double held_error(ridge *m, const solution *s)
{
    const sfp__sums *u = &m->sums;
    size_t d = (size_t)m->base.opt.dim, rows = (size_t)s->rows;
    double n = (double)u->total[SFP_HELD], target = 0, on_target = 0, square = 0, *w = m->class_x, *sum = m->class_x + d;
    sfp__sums_product(u, 1 << SFP_HELD, m->matrix, m->base.opt.threads);
    memset(sum, 0, d * sizeof *sum);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < d; i++)
            sum[i] += u->class_sum[SFP_HELD][r * d + i];
    for (size_t r = 0; r < rows; r++) { /* scores without the prior are b + x.w, the target is 1 or 0 minus the prior */
        const double *own = u->class_sum[SFP_HELD] + r * d;
        double b = 0, on_own = 0, on_all = 0, count = (double)u->count[SFP_HELD][r], prior = m->prior[r];
        for (size_t i = 0; i < d; i++) {
            w[i] = s->weight[i * rows + r];
            b -= s->centre[i] * w[i];
            on_own += w[i] * own[i];
            on_all += w[i] * sum[i];
        }
        square += sfp__triangle_square((int)d, m->matrix, w, m->product) + b * b * n + 2 * b * on_all;
        target += count - 2 * count * prior + n * prior * prior;
        on_target += b * count + on_own - prior * (b * n + on_all);
    }
    double error = target - 2 * on_target + square;
    if (m->base.opt.ridge_balanced)
        error = on_target > 0 && square > 0 ? target - on_target * on_target / square : target;
    return isfinite(error) ? error : INFINITY;
}

/* Tries lambda number `index`, once. */
static double error_at(ridge *m, int index, solution *s, double *error)
{
    if (isnan(error[index])) {
        solve(m, pow(10, LOWEST + index), 1 << SFP_REST, s);
        error[index] = held_error(m, s);
    }
    return error[index];
}

/* Goes downhill from 1. The search always starts there, so that the result depends on the sums only. Unless the head is balanced, a
 * step must lower the error by more than one part in the number of held-out samples: a few of them do not lead far away. */
static double choose_lambda(ridge *m, solution *s)
{
    double error[DECADES], enough = m->base.opt.ridge_balanced ? 1 : 1 - 1 / (double)m->sums.total[SFP_HELD];
    int best = -LOWEST, from = best;
    for (int i = 0; i < DECADES; i++)
        error[i] = NAN;
    while (best + 1 < DECADES && error_at(m, best + 1, s, error) < enough * error_at(m, best, s, error))
        best++;
    while (best == from && best > 0 && error_at(m, best - 1, s, error) < enough * error_at(m, best, s, error))
        from = --best;
    return pow(10, LOWEST + best);
}

/* Chooses lambda and the scale of a solution, with the samples that are not held out. The solution is not valid afterwards. */
static void choose(ridge *m, solution *s)
{
    size_t d = (size_t)m->base.opt.dim, rows = (size_t)m->base.rows;
    reset_strength(m, s);
    if (m->base.n < FIRST_CHOICE || m->sums.total[SFP_HELD] < HELD_MIN || m->sums.total[SFP_REST] < HELD_MIN)
        return;
    s->chosen = m->base.n;
    if (!is_slda(m))
        s->strength[LAMBDA] = choose_lambda(m, s);
    solve(m, s->strength[LAMBDA], 1 << SFP_REST, s);
    balance(m, s);
    for (int i = 0; i < m->sums.kept; i++)
        score_one(m, s, m->sums.kept_x + (size_t)i * d, m->scores + (size_t)i * rows);
    s->strength[SCALE] = sfp__head_fit_scale(m->sums.kept, (int)rows, m->scores, m->sums.kept_row, first_scale(m));
}

/* ------------------------------------------------------------------ refresh */

/* Returns the folds of the own solution: all, or if the held-out samples test it, the others. */
static unsigned own_folds(const ridge *m)
{
    return m->base.opt.test_on_held && m->sums.total[SFP_REST] >= HELD_MIN ? 1 << SFP_REST : ALL;
}

/* Returns whether the own solution is to be computed again. The first samples do not wait until their passes pay for it. */
static bool is_due(const ridge *m)
{
    int64_t grown = m->base.n - m->own.n, gap = m->own.n < m->base.opt.solve_gap ? m->own.n : m->base.opt.solve_gap;
    return m->own.n == 0 || (grown >= gap && grown >= m->own.n / 20);
}

static void solve_own(ridge *m)
{
    if (m->base.n >= 4 * m->own.chosen)
        choose(m, &m->own);
    solve(m, m->own.strength[LAMBDA], own_folds(m), &m->own);
    balance(m, &m->own);
    m->own.n = m->base.n;
    memcpy(m->own_factor, m->matrix, sfp__triangle_count(m->base.opt.dim) * sizeof *m->own_factor);
    memcpy(m->own_deviation, m->deviation, (size_t)m->base.opt.dim * sizeof *m->own_deviation);
    memcpy(m->own_share, m->prior, (size_t)m->own.rows * sizeof *m->own_share);
}

/* Adds rows of new classes to the own solution, without weights. */
static void add_rows(ridge *m)
{
    solution *s = &m->own;
    size_t old = (size_t)s->rows, rows = (size_t)m->base.rows;
    for (size_t i = (size_t)m->base.opt.dim; i-- > 0;) {
        memmove(s->weight + i * rows, s->weight + i * old, old * sizeof *s->weight);
        memset(s->weight + i * rows + old, 0, (rows - old) * sizeof *s->weight);
    }
    for (size_t r = old; r < rows; r++) {
        s->bias[r] = never;
        m->own_share[r] = 0;
    }
    s->rows = (int)rows;
}

/* Computes the weights of class `row` of the own solution from the sums of n samples of `classes` classes and the factor of the last
 * solve. */
static void update_class(ridge *m, unsigned folds, double n, int classes, int row)
{
    solution *s = &m->own;
    size_t d = (size_t)m->base.opt.dim, rows = (size_t)s->rows;
    double count = class_count(m, folds, row), share = count / n, bias = 0, *right = m->class_x, *x = m->class_x + d;
    bool balanced = m->base.opt.ridge_balanced;
    double factor = balanced ? balance_of(classes, share) : 1;
    for (size_t i = 0; i < d; i++) {
        double sum = class_sum(m, folds, row, (int)i);
        right[i] = is_slda(m) ? sum / count - s->centre[i] : m->own_deviation[i] * (sum / n - s->centre[i] * share);
    }
    memcpy(x, right, d * sizeof *x);
    sfp__triangle_solve((int)d, m->own_factor, 1, x, m->base.opt.threads);
    for (size_t i = 0; i < d; i++) {
        s->weight[i * rows + (size_t)row] = is_slda(m) ? x[i] : factor * m->own_deviation[i] * x[i];
        bias -= 0.5 * right[i] * x[i];
    }
    s->bias[row] = is_slda(m) ? bias : balanced ? 0 : share;
    m->own_share[row] = share;
}

/* Multiplies the weights of a balanced solution of `before` classes, so that they are those of `now` classes. */
static void rescale(ridge *m, int before, int now)
{
    size_t count = (size_t)m->base.opt.dim * (size_t)m->own.rows;
    double factor = sqrt((double)before / now);
    for (size_t i = 0; i < count; i++)
        m->own.weight[i] *= factor;
}

/* Updates the classes whose share of the samples has grown by half since their weights were computed. */
static void update_classes(ridge *m)
{
    const unsigned folds = own_folds(m);
    double n = 0;
    int before = 0, classes = 0;
    if (m->base.rows > m->own.rows)
        add_rows(m);
    for (int r = 0; r < m->own.rows; r++) {
        double count = class_count(m, folds, r);
        n += count;
        before += m->own_share[r] > 0;
        classes += count > 0 || m->own_share[r] > 0;
    }
    if (m->base.opt.ridge_balanced && !is_slda(m) && before > 0 && classes > before)
        rescale(m, before, classes);
    for (int r = 0; r < m->own.rows; r++) {
        double count = class_count(m, folds, r);
        if (count > 0 && count >= 1.5 * n * m->own_share[r])
            update_class(m, folds, n, classes, r);
    }
}

static sfp_status ridge_refresh(sfp__head *h, bool exact, sfp_error *err)
{
    (void)err;
    ridge *m = (ridge *)h;
    if (!exact) {
        if (is_due(m))
            solve_own(m);
        else
            update_classes(m);
        return SFP_OK;
    }
    if (m->exact.n == h->n)
        return SFP_OK;
    if (m->own.chosen == h->n)
        memcpy(m->exact.strength, m->own.strength, sizeof m->own.strength);
    else
        choose(m, &m->exact);
    solve(m, m->exact.strength[LAMBDA], ALL, &m->exact);
    balance(m, &m->exact);
    m->exact.n = h->n;
    sfp__novelty_fit(&m->novelty, &m->sums, h->rows, h->opt.threads);
    return SFP_OK;
}

static void ridge_score(sfp__head *h, int n, const float *q, bool exact, double *out)
{
    const ridge *m = (const ridge *)h;
    const solution *s = exact ? &m->exact : &m->own;
    for (int k = 0; k < n; k++, q += h->opt.dim, out += h->rows) {
        score_one(m, s, q, out);
        for (int r = 0; r < h->rows; r++)
            out[r] = r < s->rows && s->bias[r] != never ? out[r] * s->strength[SCALE] : -INFINITY;
    }
}

static void ridge_linear_map(const sfp__head *h, bool exact, sfp__head_linear_map *f)
{
    const ridge *m = (const ridge *)h;
    const solution *s = exact ? &m->exact : &m->own;
    size_t d = (size_t)h->opt.dim, rows = (size_t)s->rows;
    f->rows = s->rows;
    if (!f->weight)
        return;
    for (size_t i = 0; i < d * rows; i++)
        f->weight[i] = s->strength[SCALE] * s->weight[i];
    for (size_t r = 0; r < rows; r++)
        f->bias[r] = s->bias[r] == never ? -INFINITY : s->strength[SCALE] * s->bias[r];
    memcpy(f->centre, s->centre, d * sizeof *f->centre);
}

static double ridge_scale(const sfp__head *h, bool exact)
{
    const ridge *m = (const ridge *)h;
    return (exact ? m->exact : m->own).strength[SCALE];
}

static const sfp__novelty *ridge_novelty(const sfp__head *h)
{
    return &((const ridge *)h)->novelty;
}

/* --------------------------------------------------------------- save, load */

static sfp_status visit_solution(ridge *m, solution *s, const sfp__visitor *v, sfp_error *err)
{
    const int64_t weight[] = {m->base.opt.dim, s->rows}, strengths = STRENGTHS;
    TRY(sfp__visit(v, "strength", SFP_DTYPE_F64, 1, &strengths, s->strength, err));
    TRY(sfp__visit(v, "weight", SFP_DTYPE_F64, 2, weight, s->weight, err));
    TRY(sfp__visit(v, "bias", SFP_DTYPE_F64, 1, weight + 1, s->bias, err));
    TRY(sfp__visit(v, "centre", SFP_DTYPE_F64, 1, weight, s->centre, err));
    for (int p = 0; p < STRENGTHS; p++)
        if (!v->put && !(s->strength[p] >= 1e-9 && s->strength[p] < 1e6))
            return sfp__fail(err, SFP_EFORMAT, "%s: '%s.strength': value %d is %g, expected a number from 1e-9 to 1e6", v->file,
                             v->prefix, p, s->strength[p]);
    return SFP_OK;
}

static sfp_status ridge_visit(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    ridge *m = (ridge *)h;
    const int64_t counters = COUNTERS, dim = h->opt.dim, factor = (int64_t)sfp__triangle_count(h->opt.dim);
    m->counter[SOLVED] = m->own.n;
    m->counter[SOLVED_ROWS] = m->own.rows;
    m->counter[CHOSEN] = m->own.chosen;
    TRY(sfp__visit(v, "counter", SFP_DTYPE_I64, 1, &counters, m->counter, err));
    if (m->counter[SOLVED] < 0 || m->counter[SOLVED] > h->n || m->counter[SOLVED_ROWS] < 0 || m->counter[SOLVED_ROWS] > h->rows ||
        m->counter[CHOSEN] < 0 || m->counter[CHOSEN] > h->n)
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s': counters are inconsistent", v->file, v->prefix);
    if (!v->put) { /* a predictor may read them during a write */
        m->own.n = m->counter[SOLVED];
        m->own.rows = (int)m->counter[SOLVED_ROWS];
        m->own.chosen = m->counter[CHOSEN];
    }
    TRY(sfp__visit(v, "share", SFP_DTYPE_F64, 1, &m->counter[SOLVED_ROWS], m->own_share, err));
    TRY(sfp__visit(v, "deviation", SFP_DTYPE_F64, 1, &dim, m->own_deviation, err));
    TRY(sfp__visit(v, "factor", SFP_DTYPE_F64, 1, &factor, m->own_factor, err));
    for (int i = 0; i < h->opt.dim && m->own.n > 0; i++)
        if (!(sfp__triangle_row(m->own_factor, h->opt.dim, i)[i] > 0))
            return sfp__fail(err, SFP_EFORMAT, "%s: '%s.factor': value %d of the diagonal is %g, expected a positive number",
                             v->file, v->prefix, i, sfp__triangle_row(m->own_factor, h->opt.dim, i)[i]);
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
        .forget = ridge_forget, .merge = ridge_merge, .refresh = ridge_refresh, .score = ridge_score,                          \
        .linear_map = ridge_linear_map, .scale = ridge_scale, .novelty = ridge_novelty, .visit = ridge_visit,                  \
        .visit_inference = ridge_visit_inference                                                                               \
    }
const sfp__head_kind sfp__head_ridge = KIND("ridge"), sfp__head_slda = KIND("slda");
