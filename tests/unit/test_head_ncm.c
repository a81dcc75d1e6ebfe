/* Nearest class mean against its definition over the whole stream. */
#include "learner/heads/head.h"

#include "test.h"
#include "test_head_common.h"

enum { N = 200, D = 9, K = 4 };

/* Squared distance of sample i to the mean of class c, in double. */
static double distance(const stream *s, int i, int c)
{
    double sum = 0;
    for (int j = 0; j < s->d; j++) {
        double mean = 0;
        int count = 0;
        for (int k = 0; k < s->n; k++)
            if (s->label[k] == c) {
                mean += (double)s->x[k * s->d + j];
                count++;
            }
        double e = (double)s->x[i * s->d + j] - mean / count;
        sum += e * e;
    }
    return sum;
}

TEST(scores_are_those_of_the_class_means)
{
    stream s = make_stream(1, N, D, K, NULL, 1.5, 3);
    OWNED_PTR(sfp__head_free) sfp_head *h = make_head("ncm", D, 8);
    assert_string_equal(sfp__head_kind(h), "ncm");
    learn(h, &s, 0, N);
    float *got = score(h, &s, N, K), *want = floats(N * K);
    double within = 0;
    for (int i = 0; i < N; i++)
        within += distance(&s, i, s.label[i]);
    double tau = within / ((N - K) * D);
    for (int i = 0; i < N; i++) {
        double z[K], sum = 0;
        int nearest = 0;
        for (int c = 0; c < K; c++) {
            double d = distance(&s, i, c);
            z[c] = -d / (2 * tau);
            sum += exp(z[c]);
            nearest = z[c] > z[nearest] ? c : nearest;
        }
        for (int c = 0; c < K; c++)
            want[i * K + c] = (float)(z[c] - log(sum));
        assert_int_equal(best_of(got + i * K, K), nearest);
    }
    check_near("log-probabilities", got, want, N * K, 1e-6);
    check_distributions(got, N, K, s.label, N);
}

TEST(cuts_in_batches_leave_no_trace)
{
    stream s = make_stream(2, N, D, K, NULL, 1.5, 3);
    check_cuts("ncm", 8, &s, K);
}

TEST(a_loaded_head_goes_on_to_the_same_bytes)
{
    const int32_t label[] = {0, 12, 5, 33, 1, 2, 3, 4, 6, 7, 8, 9};
    stream s = make_stream(3, N, D, 12, label, 1.5, 3);
    check_resume("ncm", 8, &s, 20, 34);
    check_resume("ncm", 8, &s, 113, 34);
    check_bad_states("ncm", 8, &s);
    check_answers("ncm", 8, &s, 34);
}

TEST(degenerate_streams_give_numbers)
{
    check_degenerate("ncm", 8);
}

TEST(each_failing_allocation_is_survived)
{
    stream s = make_stream(4, 60, D, 20, NULL, 1, 0);
    check_torture("ncm", 8, &s, 20);
}

TEST(unknown_kinds_and_wrong_options_are_told)
{
    sfp_head *h = NULL;
    sfp_head_options opt = sfp__head_options_defaults(4, 2);
    REFUSED(sfp__head_create("knn", &opt, &h, &err), SFP_EINVAL, "unknown head 'knn'");
    opt.dim = 0;
    assert_int_equal(sfp__head_create("ncm", &opt, &h, &err), SFP_EINVAL);
    opt = sfp__head_options_defaults(4, 2);
    opt.slda_shrink = NAN;
    assert_int_equal(sfp__head_create("slda", &opt, &h, &err), SFP_EINVAL);
    assert_null(h);
    sfp__head_free(NULL);
}
