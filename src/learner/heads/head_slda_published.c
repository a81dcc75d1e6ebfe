/* Streaming linear discriminant analysis as published (Hayes & Kanan, CVPR-W 2020); the weight t/(t+1) makes it depend on the order
 * of the samples. head_ridge.c has the exact form.
 *
 * With t samples seen, x of class y:
 *     Sigma <- (t Sigma + t/(t+1) d d^T) / (t+1),  d = x - mu_y
 *     mu_y  <- mu_y + d / (count_y + 1)
 * Sigma is stored as the sum S = t Sigma, to which the recursion only adds. The first sample of a class has no mean to differ
 * from, so d = 0. (The authors' code uses mu = 0, which adds x x^T, a direction between classes, not within a class.)
 *
 *     Lambda = ((1-e) Sigma + e I)^-1, W_c = Lambda mu_c, b_c = -mu_c . Lambda mu_c / 2
 * The scores are W x + b. Here x and mu are relative to the mean of all samples. This changes the scores of all classes by the
 * same amount, and large features do not cancel. The log-probabilities are those of Gaussians with this covariance and equal
 * priors.
 *
 * All numbers are double, because e = 1e-4 may be six or more decades below the largest eigenvalue of Sigma. Cost: D^2 operations
 * per sample to learn; D^3/3 + 2 D^2 classes to solve, deferred until scores are needed; D classes to score. Memory: two (D, D)
 * matrices of double. */
#include "base/mem.h"
#include "learner/heads/head_kind.h"
#include "learner/heads/triangle.h"

#include <string.h>

typedef struct slda {
    sfp__head base;
    double *mean;    /* (capacity, D) */
    double *scatter; /* (D, D) S, upper triangle */
    /* Derived by refresh from `solved` samples. */
    int64_t solved;
    double *factor; /* triangle */
    double *grand;  /* (D) */
    double *weight; /* (D, rows) memory for (capacity, D) */
    double *bias;   /* (capacity) */
    double *x;      /* (D) difference of one sample from its class mean */
} slda;

static sfp_status slda_init(sfp__head *h, sfp_error *err)
{
    slda *m = (slda *)h;
    size_t d = (size_t)h->opt.dim, square;
    TRY(sfp__check_memory(sfp__mul_size(d, d, &square) && (m->scatter = sfp__calloc(square, sizeof *m->scatter)) &&
                              (m->factor = sfp__calloc(sfp__triangle_count(h->opt.dim), sizeof *m->factor)) &&
                              (m->grand = sfp__calloc(d, sizeof *m->grand)) && (m->x = sfp__calloc(d, sizeof *m->x)),
                          err));
    return SFP_OK;
}

static void slda_done(sfp__head *h)
{
    slda *m = (slda *)h;
    sfp__free(m->mean);
    sfp__free(m->scatter);
    sfp__free(m->factor);
    sfp__free(m->grand);
    sfp__free(m->weight);
    sfp__free(m->bias);
    sfp__free(m->x);
}

static sfp_status slda_grow(sfp__head *h, int capacity, sfp_error *err)
{
    slda *m = (slda *)h;
    size_t row = (size_t)h->opt.dim * sizeof *m->mean, old = (size_t)h->capacity, count = (size_t)capacity;
    TRY(sfp__check_memory(sfp__head_extend(&m->mean, row, old, count) && sfp__head_extend(&m->weight, row, old, count) &&
                              sfp__head_extend(&m->bias, sizeof *m->bias, old, count),
                          err));
    return SFP_OK;
}

static void slda_learn(sfp__head *h, const float *q, int row, uint64_t key)
{
    (void)key;
    slda *m = (slda *)h;
    size_t d = (size_t)h->opt.dim;
    double *mean = m->mean + (size_t)row * d, t = (double)h->n, share = 1 / (double)(h->count[row] + 1);
    for (size_t i = 0; i < d; i++) {
        m->x[i] = (double)q[i] - mean[i];
        mean[i] += m->x[i] * share;
    }
    if (h->count[row] == 0)
        return;
    for (size_t i = 0; i < d; i++) {
        double f = t / (t + 1) * m->x[i], *s = m->scatter + i * d;
        for (size_t j = i; j < d; j++)
            s[j] += f * m->x[j];
    }
}

/* Factors (1-e) Sigma + e I. Rounding can make it singular only if e is 0 or negligible compared with the features. Then the
 * smallest sufficient multiple of their mean variance is added. */
static void factor(slda *m)
{
    size_t d = (size_t)m->base.opt.dim;
    double e = (double)m->base.opt.slda_shrink, f = (1 - e) / (double)m->base.n, trace = 0;
    for (size_t i = 0; i < d; i++)
        trace += f * m->scatter[i * d + i];
    double unit = trace > 0 ? trace / (double)d : 1;
    double extra = 0;
    for (int tries = 0; tries<40; tries++, extra = extra> 0 ? extra * 10 : 1e-14 * unit) {
        for (size_t i = 0; i < d; i++) {
            double *row = sfp__triangle_row(m->factor, (int)d, (int)i);
            for (size_t j = i; j < d; j++)
                row[j] = f * m->scatter[i * d + j];
            row[i] += e + extra;
        }
        if (sfp__triangle_factor((int)d, m->factor, m->base.opt.threads))
            return;
    }
    /* not a covariance (a forged state): use the identity, so that no NaN results */
    memset(m->factor, 0, sfp__triangle_count((int)d) * sizeof *m->factor);
    for (size_t i = 0; i < d; i++)
        sfp__triangle_row(m->factor, (int)d, (int)i)[i] = 1;
}

static sfp_status slda_refresh(sfp__head *h, bool exact, sfp_error *err)
{
    (void)exact;
    (void)err;
    slda *m = (slda *)h;
    size_t d = (size_t)h->opt.dim, rows = (size_t)h->rows;
    if (m->solved == h->n)
        return SFP_OK;
    factor(m);
    memset(m->grand, 0, d * sizeof *m->grand);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < d; i++)
            m->grand[i] += m->mean[r * d + i] * ((double)h->count[r] / (double)h->n);
    for (size_t i = 0; i < d; i++)
        for (size_t r = 0; r < rows; r++)
            m->weight[i * rows + r] = m->mean[r * d + i] - m->grand[i];
    sfp__triangle_solve((int)d, m->factor, (int)rows, m->weight, m->base.opt.threads);
    memset(m->bias, 0, rows * sizeof *m->bias);
    for (size_t i = 0; i < d; i++)
        for (size_t r = 0; r < rows; r++)
            m->bias[r] -= 0.5 * m->weight[i * rows + r] * (m->mean[r * d + i] - m->grand[i]);
    m->solved = h->n;
    return SFP_OK;
}

static void slda_score(sfp__head *h, int n, const float *q, bool exact, double *out)
{
    (void)exact;
    const slda *m = (const slda *)h;
    size_t d = (size_t)h->opt.dim, rows = (size_t)h->rows;
    for (int s = 0; s < n; s++, q += d, out += rows) {
        memcpy(out, m->bias, rows * sizeof *out);
        for (size_t i = 0; i < d; i++) {
            double x = (double)q[i] - m->grand[i];
            const double *w = m->weight + i * rows;
            for (size_t r = 0; r < rows; r++)
                out[r] += x * w[r];
        }
    }
}

static sfp_status slda_visit(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    slda *m = (slda *)h;
    const int64_t means[] = {h->rows, h->opt.dim}, square[] = {h->opt.dim, h->opt.dim};
    TRY(sfp__visit(v, "means", SFP__DTYPE_F64, 2, means, m->mean, err));
    return sfp__visit(v, "scatter", SFP__DTYPE_F64, 2, square, m->scatter, err);
}

static sfp_status slda_visit_inference(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    slda *m = (slda *)h;
    const int64_t weight[] = {h->opt.dim, h->rows};
    TRY(sfp__visit(v, "weight", SFP__DTYPE_F64, 2, weight, m->weight, err));
    TRY(sfp__visit(v, "bias", SFP__DTYPE_F64, 1, weight + 1, m->bias, err));
    m->solved = h->n;
    return sfp__visit(v, "centre", SFP__DTYPE_F64, 1, weight, m->grand, err);
}

const sfp__head_kind sfp__head_slda_published = {
    .name = "slda",
    .size = sizeof(slda),
    .init = slda_init,
    .done = slda_done,
    .grow = slda_grow,
    .learn = slda_learn,
    .refresh = slda_refresh,
    .score = slda_score,
    .visit = slda_visit,
    .visit_inference = slda_visit_inference,
};
