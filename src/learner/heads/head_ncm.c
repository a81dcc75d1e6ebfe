/* Nearest class mean of the queries, with the Euclidean distance.
 *
 * log p(c|q) = log softmax(-|q - mu_c|^2 / (2 tau)) is the posterior of Gaussians with the same variance tau in every direction.
 * tau is the mean squared distance of a sample to its class mean, per dimension (divided by the n - classes degrees of freedom).
 * While every class has only one sample, this distance is undefined. The variance around the mean of all samples is used instead,
 * or 1 if that is zero too. tau is the same for all classes, so the best class is always that of the nearest mean.
 *
 * All of it follows from sums (sums.h): the sum of squared distances to the class means is sum |x|^2 - sum_c |H_c|^2 / n_c.
 *
 * Cost: D operations per sample to learn, classes * D to score; no equations to solve. */
#include "base/mem.h"
#include "learner/heads/head_kind.h"
#include "learner/heads/sums.h"

#include <math.h>
#include <string.h>

typedef struct ncm {
    sfp__head base;
    sfp__sums sums;
    /* The members below are computed from the sums by ncm_refresh, when the head had learned `solved` samples. */
    int64_t solved;
    double *mean;      /* (capacity, D) */
    double *grand;     /* (D) mean of all samples */
    double scatter[2]; /* sums of squared distances to the class means and to the mean of all samples */
} ncm;

static sfp_status ncm_init(sfp__head *h, sfp_error *err)
{
    ncm *m = (ncm *)h;
    TRY(sfp__alloc(&m->grand, (size_t)h->opt.dim, sizeof *m->grand, err));
    return sfp__sums_init(&m->sums, h->opt.dim, false, h->opt.half_life, err);
}

static void ncm_done(sfp__head *h)
{
    ncm *m = (ncm *)h;
    sfp__free(m->mean);
    sfp__free(m->grand);
    sfp__sums_done(&m->sums);
}

static sfp_status ncm_grow(sfp__head *h, int capacity, sfp_error *err)
{
    ncm *m = (ncm *)h;
    size_t row = (size_t)h->opt.dim * sizeof *m->mean;
    return sfp__check_memory(sfp__head_extend(&m->mean, row, (size_t)h->capacity, (size_t)capacity) &&
                                 sfp__sums_grow(&m->sums, h->capacity, capacity),
                             err);
}

static void ncm_learn(sfp__head *h, const float *q, int row, uint64_t key)
{
    sfp__sums_add(&((ncm *)h)->sums, q, row, h->rows, key, h->n, NULL);
}

static void clear_solution(ncm *m)
{
    size_t d = (size_t)m->base.opt.dim;
    memset(m->mean, 0, (size_t)m->base.rows * d * sizeof *m->mean);
    memset(m->grand, 0, d * sizeof *m->grand);
    m->scatter[0] = m->scatter[1] = 0;
}

static void ncm_sums_changed(sfp__head *h)
{
    ncm *m = (ncm *)h;
    m->solved = 0;
    if (m->sums.total == 0) /* refresh does not compute them from nothing */
        clear_solution(m);
}

static sfp__sums *ncm_sums(sfp__head *h)
{
    return &((ncm *)h)->sums;
}

static void ncm_drop_samples(sfp__head *h)
{
    sfp__sums_drop_samples(ncm_sums(h), NULL);
}

static sfp_status ncm_refresh(sfp__head *h, bool exact, sfp_error *err)
{
    (void)exact;
    (void)err;
    ncm *m = (ncm *)h;
    const sfp__sums *s = &m->sums;
    size_t d = (size_t)h->opt.dim;
    double n = s->total, all = s->square, within = all, total = all;
    if (m->solved == h->n)
        return SFP_OK;
    for (size_t i = 0; i < d; i++)
        m->grand[i] = 0;
    for (int r = 0; r < h->rows; r++) {
        double mass = s->mass[r];
        for (size_t i = 0; i < d; i++) {
            size_t at = (size_t)r * d + i;
            double sum = s->class_sum[at];
            m->mean[at] = mass > 0 ? sum / mass : 0;
            m->grand[i] += sum / n;
            within -= sum * m->mean[at];
        }
    }
    for (size_t i = 0; i < d; i++)
        total -= n * m->grand[i] * m->grand[i];
    m->scatter[0] = within > 1e-14 * all ? within * (double)h->n / n : 0; /* smaller values are rounding errors */
    m->scatter[1] = total > 1e-14 * all ? total * (double)h->n / n : 0;
    m->solved = h->n;
    return SFP_OK;
}

static int count_seen(const sfp__head *h)
{
    int seen = 0;
    for (int r = 0; r < h->rows; r++)
        seen += h->count[r] > 0;
    return seen;
}

/* Returns tau of n samples of `seen` classes. */
static double variance(int64_t n, int seen, int dim, const double scatter[2])
{
    double within = n > seen ? scatter[0] / ((double)(n - seen) * dim) : 0;
    double total = scatter[1] / ((double)n * dim);
    if (within > 1e-30) /* a division by a smaller value would only amplify rounding errors */
        return within;
    return total > 1e-30 ? total : 1;
}

/* Returns the squared distance of a query to a mean. */
static double distance(size_t d, const float *q, const double *mean)
{
    double sum = 0;
    for (size_t j = 0; j < d; j++) {
        double x = (double)q[j] - mean[j];
        sum += x * x;
    }
    return sum;
}

static void ncm_score(sfp__head *h, int n, const float *q, bool exact, double *out)
{
    const ncm *m = (const ncm *)h;
    size_t d = (size_t)h->opt.dim;
    double scale = -0.5 / variance(h->n, count_seen(h), h->opt.dim, m->scatter);
    (void)exact;
    for (int i = 0; i < n; i++, q += d)
        for (int r = 0; r < h->rows; r++)
            *out++ = h->count[r] > 0 ? scale * distance(d, q, m->mean + (size_t)r * d) : -INFINITY;
}

/* Without the sample, the mean of its class moves away from it, and both scatters lose its part. */
static sfp_status ncm_judge(sfp__head *h, int n, const float *x, const int *row, double *out, float *unknown, sfp_error *err)
{
    const ncm *m = (const ncm *)h;
    const double all = (double)h->n, square = 1e-14 * m->sums.square;
    size_t d = (size_t)h->opt.dim;
    (void)err;
    for (int i = 0; i < n; i++, x += d, out += h->rows) {
        double ny = (double)h->count[row[i]], farther = ny > 1 ? ny / (ny - 1) : 1;
        double own = distance(d, x, m->mean + (size_t)row[i] * d), total = distance(d, x, m->grand);
        double scatter[2] = {m->scatter[0] - farther * own, h->n > 1 ? m->scatter[1] - all / (all - 1) * total : 0};
        for (int k = 0; k < 2; k++)
            scatter[k] = scatter[k] > square ? scatter[k] : 0; /* smaller values are rounding errors */
        double scale = -0.5 / variance(h->n - 1, count_seen(h) - (ny == 1), h->opt.dim, scatter);
        for (int r = 0; r < h->rows; r++)
            out[r] = h->count[r] > (r == row[i]) ? scale * distance(d, x, m->mean + (size_t)r * d) : -INFINITY;
        if (ny > 1)
            out[row[i]] *= farther * farther;
        unknown[i] = NAN;
    }
    return SFP_OK;
}

static sfp_status ncm_visit(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    return sfp__sums_visit(&((ncm *)h)->sums, h->rows, h->count, v, err);
}

static sfp_status ncm_visit_inference(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    ncm *m = (ncm *)h;
    const int64_t shape[] = {h->rows, h->opt.dim}, two = 2;
    TRY(sfp__visit(v, "means", SFP__DTYPE_F64, 2, shape, m->mean, err));
    TRY(sfp__visit(v, "grand", SFP__DTYPE_F64, 1, shape + 1, m->grand, err));
    m->solved = h->n;
    return sfp__visit(v, "scatter", SFP__DTYPE_F64, 1, &two, m->scatter, err);
}

const sfp__head_kind sfp__head_ncm = {
    .name = "ncm",
    .size = sizeof(ncm),
    .init = ncm_init,
    .done = ncm_done,
    .grow = ncm_grow,
    .learn = ncm_learn,
    .sums = ncm_sums,
    .sums_changed = ncm_sums_changed,
    .drop_samples = ncm_drop_samples,
    .refresh = ncm_refresh,
    .score = ncm_score,
    .judge = ncm_judge,
    .visit = ncm_visit,
    .visit_inference = ncm_visit_inference,
};
