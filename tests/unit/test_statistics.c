#include "results/statistics.h"

#include "test.h"

static void near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fmax(1, fabs(want))))
        fail_msg("got %.17g, expected %.17g", got, want);
}

TEST(incomplete_beta_matches_known_values)
{
    assert_true(sfp__incomplete_beta(2, 3, 0) == 0 && sfp__incomplete_beta(2, 3, 1) == 1);
    near(sfp__incomplete_beta(1, 1, 0.3), 0.3, 1e-14);
    near(sfp__incomplete_beta(2, 3, 0.4), 0.5248, 1e-13); /* a polynomial: 6x^2 - 8x^3 + 3x^4 */
    near(sfp__incomplete_beta(3, 2, 0.6), 1 - 0.5248, 1e-13);
    near(sfp__incomplete_beta(0.5, 0.5, 0.25), 2 / acos(-1) * asin(0.5), 1e-13); /* the arcsine law */
}

TEST(student_quantiles_match_tables)
{
    const double pi = acos(-1);
    near(sfp__student_t(0.975, 1), tan(pi * 0.475), 1e-12);                    /* one degree: Cauchy */
    near(sfp__student_t(0.975, 2), 0.95 * sqrt(2 / (1 - 0.95 * 0.95)), 1e-12); /* two: closed form */
    /* computed by mpmath with 40 digits */
    const double table[][2] = {{3, 3.1824463052837095927},
                               {4, 2.7764451051977943578},
                               {9, 2.2621571627982055426},
                               {29, 2.0452296421327042982},
                               {120, 1.9799304050824408467}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        near(sfp__student_t(0.975, table[i][0]), table[i][1], 1e-13);
    near(sfp__student_t(0.995, 5), 4.0321429835552280784, 1e-13);
    near(sfp__student_t(0.975, 1e7), 1.959964, 1e-6); /* the normal distribution */
    near(sfp__student_t(0.025, 4), -sfp__student_t(0.975, 4), 1e-14);
    assert_true(sfp__student_t(0.5, 3) == 0);
    assert_true(isnan(sfp__student_t(0, 3)) && isnan(sfp__student_t(1, 3)) && isnan(sfp__student_t(0.9, 0)));
}

TEST(an_interval_needs_two_numbers)
{
    double mean, half;
    sfp__mean_interval(0, NULL, &mean, &half);
    assert_true(isnan(mean) && isnan(half));
    sfp__mean_interval(1, (double[]){0.5}, &mean, &half);
    assert_true(mean == 0.5 && isnan(half));
    sfp__mean_interval(3, (double[]){0.70, 0.72, 0.77}, &mean, &half);
    near(mean, 0.73, 1e-14);
    near(half, 4.3026527297494638523 * sqrt(0.0013 / 3), 1e-13); /* s^2 = (0.0009 + 0.0001 + 0.0016)/2 */
    sfp__mean_interval(2, (double[]){1, 1}, &mean, &half);
    assert_true(mean == 1 && half == 0);
}

static void check_tau(int n, const double *a, const double *b, double tau, double p)
{
    sfp__kendall k = sfp__kendall_tau(n, a, b), reversed = sfp__kendall_tau(n, b, a);
    near(k.tau, tau, 1e-12);
    near(k.p, p, 1e-9);
    near(reversed.tau, tau, 1e-12);
    near(reversed.p, p, 1e-9);
}

TEST(tau_of_permutations_is_exact)
{
    const double a[] = {1, 2, 3, 4, 5};
    check_tau(5, a, a, 1, 2.0 / 120); /* one of 120 orders has no inversion, and one has all */
    check_tau(5, a, (double[]){5, 4, 3, 2, 1}, -1, 2.0 / 120);
    check_tau(4, a, (double[]){1, 2, 4, 3}, 4.0 / 6, 8.0 / 24);       /* at most one inversion: 1 + 3 orders of 24 */
    check_tau(5, a, (double[]){3, 1, 2, 5, 4}, 4.0 / 10, 58.0 / 120); /* at most three inversions: 1 + 4 + 9 + 15 of 120 */
    check_tau(3, a, (double[]){2, 1, 3}, 1.0 / 3, 1);
    check_tau(2, a, a, 1, 1);
}

TEST(tau_counts_ties)
{
    /* seven pairs are concordant, none is discordant; a has one tied pair, b has two: 7/sqrt((10 - 1)(10 - 2)) */
    const double a[] = {1, 2, 2, 3, 4}, b[] = {1, 1, 2, 3, 3};
    /* variance (20 * 15 - 18 - 2 * 18)/18 + 2 * 1 * 2/20 */
    check_tau(5, a, b, 7 / sqrt(72), erfc(7 / sqrt(2 * (246 / 18.0 + 0.2))));
    /* nine pairs are concordant, and each vector has a group of three equal values: 3 * 2 * 1 = 6, 3 * 2 * 11 = 66 */
    /* variance (30 * 17 - 2 * 66)/18 + 2 * 3 * 3/30 + 6 * 6/(9 * 30 * 4) */
    const double c[] = {0, 0, 0, 1, 2, 3}, d[] = {1, 2, 3, 3, 3, 4};
    check_tau(6, c, d, 9.0 / 12, erfc(9 / sqrt(2 * (378 / 18.0 + 0.6 + 36.0 / 1080))));
}

TEST(tau_skips_pairs_with_nan)
{
    const double a[] = {NAN, 1, 2, 9, 3, 4}, b[] = {7, 1, 2, NAN, 4, 3};
    sfp__kendall k = sfp__kendall_tau(6, a, b);
    assert_int_equal(k.n, 4);
    near(k.tau, 4.0 / 6, 1e-14);
    near(k.p, 8.0 / 24, 1e-12);
}

TEST(tau_is_not_defined_without_an_order)
{
    const double a[] = {1, 2, 3}, same[] = {5, 5, 5}, none[] = {NAN, 1, NAN};
    assert_true(isnan(sfp__kendall_tau(3, a, same).tau) && isnan(sfp__kendall_tau(3, a, same).p));
    assert_true(isnan(sfp__kendall_tau(3, a, none).tau) && sfp__kendall_tau(3, a, none).n == 1);
    assert_int_equal(sfp__kendall_tau(0, NULL, NULL).n, 0);
}

TEST(exact_and_normal_p_of_tau_agree_for_many_values)
{
    double a[51], b[51];
    for (int i = 0; i < 51; i++) {
        a[i] = i;
        b[i] = i * 7 % 51 + i / 3.0;
    }
    sfp__kendall exact = sfp__kendall_tau(50, a, b), normal = sfp__kendall_tau(51, a, b);
    assert_true(exact.p > 1e-4 && exact.p < 0.9);
    near(normal.p, exact.p, 0.02);
}

TEST(sign_test_is_the_binomial_law)
{
    near(sfp__sign_test(9, 1), 22.0 / 1024, 1e-13); /* 0.0215 */
    near(sfp__sign_test(1, 9), 22.0 / 1024, 1e-13);
    near(sfp__sign_test(10, 0), 2.0 / 1024, 1e-13);
    near(sfp__sign_test(5, 0), 0.0625, 1e-13);
    near(sfp__sign_test(6, 5), 1, 1e-13);
    assert_true(sfp__sign_test(4, 4) == 1 && sfp__sign_test(0, 0) == 1);
}

TEST(paired_differences_skip_nan_and_count_signs)
{
    const double a[] = {0.72, 0.75, NAN, 0.80, 0.70}, b[] = {0.70, 0.70, 0.5, 0.75, 0.70};
    sfp__paired d = sfp__paired_differences(5, a, b); /* 0.02, 0.05, 0.05, 0 */
    assert_int_equal(d.n, 4);
    assert_int_equal(d.positive, 3);
    assert_int_equal(d.negative, 0);
    near(d.mean, 0.03, 1e-13);
    near(d.half, 3.1824463052837095927 * sqrt(0.0018 / 3 / 4), 1e-12);
    near(d.sign_p, 0.25, 1e-13);
    d = sfp__paired_differences(1, a, b);
    near(d.mean, 0.02, 1e-13);
    assert_true(isnan(d.half));
    d = sfp__paired_differences(0, a, b);
    assert_true(d.n == 0 && isnan(d.mean) && d.sign_p == 1);
}

TEST(verdict_compares_with_the_published_figure)
{
    static const struct {
        double mean, half, paper, spread;
        const char *want;
    } cases[] = {{0.75, 0.02, 0.765, 0, "same"},     {0.75, 0.02, 0.775, 0, "below"},   {0.75, 0.02, 0.775, 0.006, "same"},
                 {0.75, 0.02, 0.72, 0.005, "above"}, {0.75, NAN, 0.76, NAN, "same"},    {0.75, NAN, 0.7399, NAN, "above"},
                 {0.75, NAN, 0.7601, NAN, "below"},  {0.75, 0.005, 0.765, NAN, "same"}, {NAN, NAN, 0.7, NAN, "not run"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(sfp__verdict(cases[i].mean, cases[i].half, cases[i].paper, cases[i].spread), cases[i].want);
    assert_null(sfp__verdict(0.5, 0.1, NAN, NAN));
}
