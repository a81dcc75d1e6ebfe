/* The score for none of the classes, against its definition in plain C. */
#include "learner/heads/head.h"
#include "learner/heads/novelty.h"

#include "numeric.h"
#include "test.h"

enum { TAP = 5, DIM = 2 * TAP, CLASSES = 4, SAMPLES = 700 };

typedef struct sample {
    float x[DIM];
    int row;
    uint64_t key;
} sample;

/* Classes 0 to 3 around different means, whose last TAP values have different variances. */
static sample draw(sfp__rng *rng, int row)
{
    sample s = {.row = row, .key = sfp__rng_u32(rng)};
    for (int i = 0; i < DIM; i++)
        s.x[i] = (float)(3 + 4 * (row == i % TAP) + (0.2 + 0.3 * (i % TAP)) * sfp__rng_normal(rng) +
                         (i % TAP == 2 ? 0.5 * (double)s.x[i - 1] : 0));
    return s;
}

static sample *make_samples(uint64_t seed, int n)
{
    sfp__rng rng = sfp__rng_init(seed, 1);
    sample *s = kept_malloc((size_t)n * sizeof *s);
    for (int i = 0; i < n; i++)
        s[i] = draw(&rng, i % 100 == 99 ? 3 : (int)sfp__rng_below(&rng, 3));
    return s;
}

/* ------------------------------------------------------------------- definition */

typedef struct model {
    double mean[CLASSES][TAP], inverse[TAP][TAP], distance[SFP__SUMS_KEPT];
    int left_out;
} model;

static void invert(double a[TAP][TAP], double out[TAP][TAP])
{
    for (int i = 0; i < TAP; i++)
        for (int j = 0; j < TAP; j++)
            out[i][j] = i == j;
    solve_dense(TAP, a[0], TAP, out[0], TAP, 1);
}

static double distance_of(const model *m, const float *x)
{
    double nearest = INFINITY;
    for (int c = 0; c < CLASSES; c++) {
        double sum = 0;
        for (int i = 0; i < TAP; i++)
            for (int j = 0; j < TAP; j++)
                sum += ((double)x[TAP + i] - m->mean[c][i]) * m->inverse[i][j] * ((double)x[TAP + j] - m->mean[c][j]);
        nearest = fmin(nearest, sum);
    }
    return nearest;
}

static int by_value(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void fit_means(const sample *s, int n, model *m, double *count)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < TAP; j++) {
            m->mean[s[i].row][j] += (double)s[i].x[TAP + j];
            count[s[i].row] += j == 0;
        }
    for (int c = 0; c < CLASSES; c++)
        for (int j = 0; j < TAP; j++)
            m->mean[c][j] /= count[c];
}

/* Returns the distance of a sample to the nearest mean, when its class has another mean and its distance from the mean is taken out of
 * the shrunk covariance. */
static double distance_without(const model *m, const sample *s, double count, double total, double share, double cov[TAP][TAP])
{
    model without = *m;
    double c[TAP][TAP], u[TAP];
    for (int j = 0; j < TAP; j++) {
        u[j] = (double)s->x[TAP + j] - m->mean[s->row][j];
        without.mean[s->row][j] -= u[j] / (count - 1);
    }
    for (int j = 0; j < TAP; j++)
        for (int k = 0; k < TAP; k++)
            c[j][k] = cov[j][k] - (1 - share) * count / ((count - 1) * total) * u[j] * u[k];
    invert(c, without.inverse);
    return distance_of(&without, s->x);
}

static model fit_plainly(const sample *s, int n)
{
    model m = {0};
    double count[CLASSES] = {0}, cov[TAP][TAP] = {{0}}, trace = 0, squares = 0;
    fit_means(s, n, &m, count);
    double total = n;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < TAP; j++)
            for (int k = 0; k < TAP; k++)
                cov[j][k] +=
                    ((double)s[i].x[TAP + j] - m.mean[s[i].row][j]) * ((double)s[i].x[TAP + k] - m.mean[s[i].row][k]) / total;
    for (int j = 0; j < TAP; j++)
        for (int k = 0; k < TAP; k++) {
            trace += j == k ? cov[j][k] : 0;
            squares += cov[j][k] * cov[j][k];
        }
    double share = ((1 - 2.0 / TAP) * squares + trace * trace) / ((total + 1 - 2.0 / TAP) * (squares - trace * trace / TAP));
    for (int j = 0; j < TAP; j++)
        for (int k = 0; k < TAP; k++)
            cov[j][k] = (1 - share) * cov[j][k] + (j == k ? share * trace / TAP : 0);
    for (int i = 0; i < n; i++) { /* the samples with the lowest keys are left out */
        int lower = 0;
        for (int j = 0; j < n; j++)
            lower += s[j].key < s[i].key;
        if (lower < SFP__SUMS_KEPT)
            m.distance[m.left_out++] = distance_without(&m, &s[i], count[s[i].row], total, share, cov);
    }
    qsort(m.distance, (size_t)m.left_out, sizeof *m.distance, by_value);
    invert(cov, m.inverse);
    return m;
}

/* ------------------------------------------------------------------------ tests */

static sfp__head *make_head(const char *kind, const sample *s, int n)
{
    sfp__head_options o = sfp__head_options_defaults(DIM, 2);
    sfp__head *h = NULL;
    o.tap_dim = TAP;
    MUST(sfp__head_create(kind, &o, &h, &err));
    for (int i = 0; i < n; i++)
        MUST(sfp__head_update(h, 1, s[i].x, &(int32_t){s[i].row}, &s[i].key, &err));
    MUST(sfp__head_refresh(h, true, &err));
    return h;
}

TEST(the_score_is_the_quantile_of_the_distance_to_the_nearest_class)
{
    const sample *s = make_samples(1, SAMPLES), *other = make_samples(2, 100);
    const model m = fit_plainly(s, SAMPLES);
    double work[TAP];
    assert_int_equal(m.left_out, SFP__SUMS_KEPT);
    for (int k = 0; k < 2; k++) {
        OWNED_PTR(sfp__head_free) sfp__head *h = make_head(k ? "slda" : "ridge", s, SAMPLES);
        for (int i = 0; i < 100; i++) {
            double d = distance_of(&m, other[i].x), score = (double)sfp__head_unknown(h, other[i].x, work), nearer = 0;
            for (int j = 0; j < m.left_out; j++)
                nearer += m.distance[j] < d;
            if (d > m.distance[m.left_out - 1])
                assert_true(fabs(score - (1 - m.distance[m.left_out - 1] / d / 101)) < 1e-5);
            else if (!(fabs(score - nearer / m.left_out) < 1.5 / m.left_out + 0.02))
                fail_msg("image %d: score %g, %g of %d samples are nearer", i, score, nearer, m.left_out);
        }
    }
}

TEST(without_enough_samples_to_leave_out_there_is_no_score)
{
    const sample *s = make_samples(4, SAMPLES);
    double work[TAP];
    OWNED_PTR(sfp__head_free)
    sfp__head *few = make_head("ridge", s, 15), *ncm = make_head("ncm", s, SAMPLES), *enough = make_head("ridge", s, SAMPLES);
    assert_true(isnan(sfp__head_unknown(few, s[0].x, work)));
    assert_true(isnan(sfp__head_unknown(ncm, s[0].x, work)));
    assert_true(isfinite(sfp__head_unknown(enough, s[0].x, work)));
}
