/* Nearest class mean of the queries, with the Euclidean distance.
 *
 * log p(c|q) = log softmax(-|q - mu_c|^2 / (2 tau)) is the posterior of Gaussians with the same variance tau in every direction.
 * tau is estimated online as the mean squared distance of a sample to its class mean, per dimension (divided by the n - classes
 * degrees of freedom). While every class has only one sample, this distance is undefined. The variance around the mean of all
 * samples is used instead, or 1 if that is zero too. tau is the same for all classes, so the best class is always that of the
 * nearest mean.
 *
 * Cost: D operations per sample to learn, classes * D to score; no equations to solve. Sums are in double, one sample after
 * another, so that the result does not depend on the division into batches. */
#include "base/mem.h"
#include "learner/heads/head_kind.h"

typedef struct ncm {
    sfp__head base;
    double *mean;      /* (capacity, D) */
    double *grand;     /* (D) mean of all samples */
    double scatter[2]; /* sums of squared distances to the class means and to the mean of all samples */
} ncm;

static sfp_status ncm_init(sfp__head *h, sfp_error *err)
{
    ncm *m = (ncm *)h;
    m->grand = sfp__calloc((size_t)h->opt.dim, sizeof *m->grand);
    return m->grand ? SFP_OK : sfp__fail_nomem(err);
}

static void ncm_done(sfp__head *h)
{
    ncm *m = (ncm *)h;
    sfp__free(m->mean);
    sfp__free(m->grand);
}

static sfp_status ncm_grow(sfp__head *h, int capacity, sfp_error *err)
{
    ncm *m = (ncm *)h;
    size_t row = (size_t)h->opt.dim * sizeof *m->mean;
    return sfp__head_extend(&m->mean, row, (size_t)h->capacity, (size_t)capacity) ? SFP_OK : sfp__fail_nomem(err);
}

/* Welford's step: updates the mean with a further sample and returns the increase of the sum of squared distances. */
static double welford_step(int d, const float *q, int64_t count, double *mean)
{
    double sum = 0, weight = 1 / (double)(count + 1);
    for (int i = 0; i < d; i++) {
        double before = (double)q[i] - mean[i];
        mean[i] += before * weight;
        sum += before * ((double)q[i] - mean[i]);
    }
    return sum;
}

static void ncm_learn(sfp__head *h, const float *q, int row)
{
    ncm *m = (ncm *)h;
    int d = h->opt.dim;
    m->scatter[0] += welford_step(d, q, h->count[row], m->mean + (size_t)row * (size_t)d);
    m->scatter[1] += welford_step(d, q, h->n, m->grand);
}

static sfp_status ncm_refresh(sfp__head *h, sfp_error *err)
{
    (void)h;
    (void)err;
    return SFP_OK;
}

static double variance(const ncm *m)
{
    const sfp__head *h = &m->base;
    double within = h->n > h->rows ? m->scatter[0] / ((double)(h->n - h->rows) * h->opt.dim) : 0;
    double total = m->scatter[1] / ((double)h->n * h->opt.dim);
    if (within > 1e-30) /* a division by a smaller value would only amplify rounding errors */
        return within;
    return total > 1e-30 ? total : 1;
}

static void ncm_score(sfp__head *h, int n, const float *q, double *out)
{
    const ncm *m = (const ncm *)h;
    size_t d = (size_t)h->opt.dim;
    double scale = -0.5 / variance(m);
    for (int i = 0; i < n; i++, q += d)
        for (int r = 0; r < h->rows; r++) {
            const double *mean = m->mean + (size_t)r * d;
            double sum = 0;
            for (size_t j = 0; j < d; j++) {
                double x = (double)q[j] - mean[j];
                sum += x * x;
            }
            *out++ = scale * sum;
        }
}

/* Computes -|q - mu|^2 / (2 tau) without the part that all classes share, relative to the mean of all samples. */
static void ncm_linear_map(const sfp__head *h, sfp__head_linear_map *f)
{
    const ncm *m = (const ncm *)h;
    size_t d = (size_t)h->opt.dim, rows = (size_t)h->rows;
    f->width = h->opt.dim;
    if (!f->weight)
        return;
    double inverse = 1 / variance(m);
    for (size_t i = 0; i < d; i++) {
        f->centre[i] = m->grand[i];
        for (size_t r = 0; r < rows; r++) {
            double mu = m->mean[r * d + i] - m->grand[i];
            f->weight[i * rows + r] = mu * inverse;
            f->bias[r] -= 0.5 * mu * mu * inverse;
        }
    }
}

static sfp_status ncm_visit(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    ncm *m = (ncm *)h;
    const int64_t shape[] = {h->rows, h->opt.dim}, two = 2;
    TRY(sfp__visit(v, "means", SFP_DTYPE_F64, 2, shape, m->mean, err));
    TRY(sfp__visit(v, "grand", SFP_DTYPE_F64, 1, shape + 1, m->grand, err));
    return sfp__visit(v, "scatter", SFP_DTYPE_F64, 1, &two, m->scatter, err);
}

const sfp__head_kind sfp__head_ncm = {
    .name = "ncm",
    .size = sizeof(ncm),
    .init = ncm_init,
    .done = ncm_done,
    .grow = ncm_grow,
    .learn = ncm_learn,
    .refresh = ncm_refresh,
    .score = ncm_score,
    .linear_map = ncm_linear_map,
    .visit = ncm_visit,
};
