#include "results/result.h"

#include "test.h"

static void near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fmax(1, fabs(want))))
        fail_msg("got %.17g, expected %.17g", got, want);
}

/* Three tasks; the second one rises before it falls, so that the maximum matters. */
static const double a[9] = {0.9, NAN, NAN, 0.7, 0.6, NAN, 0.5, 0.8, 0.95};

TEST(average_accuracy_is_the_mean_of_the_last_row)
{
    near(sfp__average_accuracy(3, 3, a), (0.5 + 0.8 + 0.95) / 3, 1e-15);
    near(sfp__average_accuracy(3, 2, a), (0.7 + 0.6) / 2, 1e-15);
    near(sfp__average_accuracy(3, 1, a), 0.9, 1e-15);
    assert_true(isnan(sfp__average_accuracy(3, 0, a)));
}

TEST(forgetting_is_the_best_earlier_minus_the_last_accuracy)
{
    /* task 1: the best of 0.9 and 0.7; task 2: only 0.6, because the last row is not an earlier one */
    near(sfp__forgetting(3, 3, a), ((0.9 - 0.5) + (0.6 - 0.8)) / 2, 1e-15);
    near(sfp__forgetting(3, 2, a), 0.2, 1e-15);
    assert_true(isnan(sfp__forgetting(3, 1, a)));
    const double b[9] = {0.5, NAN, NAN, 0.9, 0.6, NAN, 0.4, 0.6, 0.9};
    near(sfp__forgetting(3, 3, b), ((0.9 - 0.4) + 0) / 2, 1e-15);
}

TEST(backward_transfer_compares_with_the_diagonal)
{
    near(sfp__backward_transfer(3, 3, a), ((0.5 - 0.9) + (0.8 - 0.6)) / 2, 1e-15);
    assert_true(isnan(sfp__backward_transfer(3, 1, a)));
}

TEST(a_task_without_test_samples_is_excluded)
{
    const double b[9] = {NAN, NAN, NAN, NAN, 0.6, NAN, NAN, 0.5, 0.9};
    near(sfp__average_accuracy(3, 3, b), 0.7, 1e-15);
    near(sfp__forgetting(3, 3, b), 0.1, 1e-14);
    near(sfp__backward_transfer(3, 3, b), -0.1, 1e-14);
}

TEST(summarise_sets_the_metrics_of_a_result)
{
    OWNED_BY(sfp__result_done) sfp_result r = {0};
    MUST(sfp__result_init(&r, 3, 0, NULL));
    for (int i = 0; i < 9; i++)
        r.accuracy[i] = a[i];
    sfp__result_summarise(&r);
    assert_true(isnan(r.average_accuracy));
    r.tasks_done = 3;
    sfp__result_summarise(&r);
    near(r.average_accuracy, 0.75, 1e-15);
    near(r.forgetting, 0.1, 1e-14);
    near(r.backward_transfer, -0.1, 1e-14);
}

TEST(confusions_are_sorted_by_count)
{
    const uint64_t confusion[] = {9, 2, 0, 5, 0, 2, 1, 7, 30};
    static const struct {
        int truth, answer, count;
    } want[] = {{2, 1, 7}, {1, 0, 5}, {0, 1, 2}, {1, 2, 2}, {2, 0, 1}};
    for (int max_pairs = 1; max_pairs <= 6; max_pairs++) {
        sfp__confusion_pair got[6];
        int n = sfp__top_confusions(3, confusion, max_pairs, got);
        assert_int_equal(n, max_pairs < 5 ? max_pairs : 5);
        for (int i = 0; i < n; i++) {
            assert_int_equal(got[i].truth, want[i].truth);
            assert_int_equal(got[i].answer, want[i].answer);
            assert_int_equal(got[i].count, want[i].count);
        }
    }
    assert_int_equal(sfp__top_confusions(3, NULL, 5, NULL), 0);
}

TEST(a_number_that_rounds_to_zero_has_no_sign)
{
    static const struct {
        double x;
        int decimals;
        const char *want;
    } cases[] = {{-1e-17, 4, "0.0000"}, {-0.0, 4, "0.0000"}, {-0.00004, 4, "0.0000"}, {-0.00006, 4, "-0.0001"},
                 {-0.04, 1, "0.0"},     {-0.06, 1, "-0.1"},  {0.00004, 4, "0.0000"},  {-0.25, 2, "-0.25"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(kept_print("%.*f", cases[i].decimals, sfp__no_minus_zero(cases[i].x, cases[i].decimals)),
                            cases[i].want);
    assert_true(isnan(sfp__no_minus_zero(NAN, 4)));
}

TEST(calibration_error_is_the_weighted_gap_between_confidence_and_accuracy)
{
    sfp__reliability r = {0};
    assert_true(isnan(sfp__reliability_error(&r)));
    sfp__reliability_add(&r, NAN, true); /* no class was predicted */
    assert_true(isnan(sfp__reliability_error(&r)));
    for (int i = 0; i < 10; i++)
        sfp__reliability_add(&r, 0.9, i < 6);
    near(sfp__reliability_error(&r), 0.3, 1e-12);
    for (int i = 0; i < 30; i++)
        sfp__reliability_add(&r, i % 2 ? 0.41 : 0.45, i < 12); /* one bin, whose mean confidence is 0.43 */
    near(sfp__reliability_error(&r), (10 * 0.3 + 30 * 0.03) / 40, 1e-12);
    sfp__reliability_add(&r, 1, true);
    sfp__reliability_add(&r, 0, false);
    assert_true(r.count[0] == 1 && r.count[6] == 30 && r.count[13] == 10 && r.count[14] == 1);
    near(sfp__reliability_error(&r), (10 * 0.3 + 30 * 0.03) / 42, 1e-12);
}
