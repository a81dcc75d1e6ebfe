/* Streaming LDA against its recursion written out in double, with the inverse by elimination. */
#include "learner/heads/head.h"

#include "test.h"
#include "test_head_common.h"

enum { N = 250, D = 10, K = 5 };

/* inv = a^-1 by Gauss-Jordan with pivoting. */
static void invert(double a[D][D], double inv[D][D])
{
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++)
            inv[i][j] = i == j;
    for (int k = 0; k < D; k++) {
        int p = k;
        for (int i = k; i < D; i++)
            p = fabs(a[i][k]) > fabs(a[p][k]) ? i : p;
        for (int j = 0; j < D; j++) {
            double x = a[k][j], y = inv[k][j];
            a[k][j] = a[p][j];
            a[p][j] = x;
            inv[k][j] = inv[p][j];
            inv[p][j] = y;
        }
        double f = 1 / a[k][k];
        for (int j = 0; j < D; j++) {
            a[k][j] *= f;
            inv[k][j] *= f;
        }
        for (int i = 0; i < D; i++) {
            double g = a[i][k];
            for (int j = 0; j < D && i != k; j++) {
                a[i][j] -= g * a[k][j];
                inv[i][j] -= g * inv[k][j];
            }
        }
    }
}

/* Log-probabilities (N, K) after the whole stream, exactly as Hayes & Kanan write it; the first sample of a class only sets
 * its mean. */
static float *definition(const stream *s, double shrink)
{
    double sigma[D][D] = {{0}}, lambda[D][D], mean[K][D] = {{0}};
    int count[K] = {0};
    for (int t = 0; t < s->n; t++) {
        int y = s->label[t];
        const float *x = s->x + t * D;
        double d[D];
        for (int i = 0; i < D; i++)
            d[i] = count[y] ? (double)x[i] - mean[y][i] : 0;
        for (int i = 0; i < D; i++)
            for (int j = 0; j < D; j++)
                sigma[i][j] = (t * sigma[i][j] + t * d[i] * d[j] / (t + 1)) / (t + 1);
        for (int i = 0; i < D; i++)
            mean[y][i] += ((double)x[i] - mean[y][i]) / (count[y] + 1);
        count[y]++;
    }
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++)
            sigma[i][j] = (1 - shrink) * sigma[i][j] + (i == j ? shrink : 0);
    invert(sigma, lambda);
    float *out = floats((size_t)s->n * K);
    for (int t = 0; t < s->n; t++) {
        double z[K], top = -INFINITY, sum = 0;
        for (int c = 0; c < K; c++) {
            z[c] = 0;
            for (int i = 0; i < D; i++) {
                double w = 0;
                for (int j = 0; j < D; j++)
                    w += lambda[i][j] * mean[c][j];
                z[c] += w * ((double)s->x[t * D + i] - 0.5 * mean[c][i]);
            }
            top = fmax(top, z[c]);
        }
        for (int c = 0; c < K; c++)
            sum += exp(z[c] - top);
        for (int c = 0; c < K; c++)
            out[t * K + c] = (float)(z[c] - top - log(sum));
    }
    return out;
}

TEST(scores_are_those_of_the_recursion)
{
    const double offsets[] = {0, 5, 100}; /* far from the origin the plain formula cancels; the head's does not */
    for (int k = 0; k < 3; k++) {
        stream s = make_stream((uint64_t)k, N, D, K, NULL, 1.2, offsets[k]);
        OWNED_PTR(sfp__head_free) sfp_head *h = make_head("slda", D, 8);
        learn(h, &s, 0, N);
        float *got = score(h, &s, N, K), *want = definition(&s, (double)1e-4f);
        check_near("log-probabilities", got, want, (size_t)N * K, 1e-6);
        check_distributions(got, N, K, s.label, N);
    }
}

TEST(a_rank_deficient_covariance_is_shrunk)
{
    stream s = make_stream(5, 12, D, K, NULL, 1.2, 0); /* fewer samples than dimensions */
    for (int c = 0; c < K; c++)
        s.label[c] = c;
    OWNED_PTR(sfp__head_free) sfp_head *h = make_head("slda", D, 8);
    learn(h, &s, 0, s.n);
    float *got = score(h, &s, s.n, K), *want = definition(&s, (double)1e-4f);
    check_near("log-probabilities", got, want, (size_t)s.n * K, 1e-5);
}

TEST(without_shrinkage_singular_is_still_a_number)
{
    stream s = make_stream(6, 8, D, 2, NULL, 1, 0);
    sfp_head_options opt = sfp__head_options_defaults(D, 2);
    opt.slda_shrink = 0;
    OWNED_PTR(sfp__head_free) sfp_head *h = NULL;
    MUST(sfp__head_create("slda", &opt, &h, NULL));
    learn(h, &s, 0, s.n);
    float *p = score(h, &s, s.n, 2);
    check_distributions(p, s.n, 2, s.label, s.n);
}

TEST(cuts_in_batches_leave_no_trace)
{
    stream s = make_stream(2, N, D, K, NULL, 1.5, 3);
    check_cuts("slda", 8, &s, K);
}

TEST(a_loaded_head_goes_on_to_the_same_bytes)
{
    const int32_t label[] = {0, 12, 5, 33, 1, 2, 3, 4, 6, 7, 8, 9};
    stream s = make_stream(3, N, D, 12, label, 1.5, 3);
    check_resume("slda", 8, &s, 20, 34);
    check_resume("slda", 8, &s, 113, 34);
    check_bad_states("slda", 8, &s);
    check_answers("slda", 8, &s, 34);
}

TEST(degenerate_streams_give_numbers)
{
    check_degenerate("slda", 8);
}

TEST(each_failing_allocation_is_survived)
{
    stream s = make_stream(4, 60, D, 20, NULL, 1, 0);
    check_torture("slda", 8, &s, 20);
}
