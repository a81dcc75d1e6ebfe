/* The drift detector: the number of series for which it fires, among 200 seeded series with a shift and 200 without. */
#include "learner/learner_internal.h"

#include "base/rng.h"

#include "test.h"

enum { SERIES = 200, STATIONARY = 300, AFTER = 60 };

/* Generates SERIES series with this mean and deviation, which shift by `shift` deviations at STATIONARY. Counts the series
 * that fire before the shift, and those that fire within AFTER values after it. */
static void rates(double mean, double deviation, double shift, int *before, int *after)
{
    *before = *after = 0;
    for (uint64_t s = 0; s < SERIES; s++) {
        sfp__rng rng = sfp__rng_init(1000, s);
        sfp__drift_detector d = {0};
        bool early = false, late = false;
        for (int t = 0; t < STATIONARY + AFTER; t++) {
            double x = mean + deviation * (sfp__rng_normal(&rng) + (t >= STATIONARY ? shift : 0));
            bool fired = sfp__drift_next(&d, x);
            early = early || (fired && t < STATIONARY);
            late = late || (fired && t >= STATIONARY);
        }
        *before += early;
        *after += late;
    }
}

TEST(a_stationary_series_rarely_fires)
{
    int before, after;
    rates(0.02, 0.003, 0, &before, &after);
    print_message("stationary: %d of %d series fire within %d values\n", before, SERIES, STATIONARY);
    assert_true(before <= SERIES / 20);
    assert_true(after <= SERIES / 20);
}

TEST(a_shift_fires_in_either_direction)
{
    for (int sign = -1; sign <= 1; sign += 2) {
        int before, after;
        rates(-0.4, 0.01, 2 * sign, &before, &after);
        print_message("shift by %+d deviations: %d of %d fire within %d values\n", 2 * sign, after, SERIES, AFTER);
        assert_true(before <= SERIES / 20);
        assert_true(after >= SERIES - SERIES / 20);
    }
}

/* Units do not matter: the same series, scaled and shifted, fires at the same indices. */
TEST(scale_and_offset_make_no_difference)
{
    int fired = 0;
    for (uint64_t s = 0; s < 20; s++) {
        sfp__rng rng = sfp__rng_init(1001, s);
        sfp__drift_detector a = {0}, b = {0};
        for (int t = 0; t < 400; t++) {
            double x = sfp__rng_normal(&rng) + (t > 200 ? 1.5 : 0);
            bool fa = sfp__drift_next(&a, x), fb = sfp__drift_next(&b, 1e-4 * x + 3);
            assert_int_equal(fa, fb);
            fired += fa;
        }
    }
    assert_true(fired >= 20);
}

TEST(it_restarts_after_firing)
{
    sfp__rng rng = sfp__rng_init(1002, 0);
    sfp__drift_detector d = {0};
    int first = -1, second = -1;
    for (int t = 0; t < 300; t++) {
        double x = sfp__rng_normal(&rng) + (t >= 100 ? 5 : 0) + (t >= 200 ? 5 : 0);
        if (!sfp__drift_next(&d, x))
            continue;
        if (first < 0)
            first = t;
        else if (second < 0)
            second = t;
        else
            fail_msg("fires a third time, at %d", t);
    }
    assert_in_range(first, 100, 115);
    assert_in_range(second, 200, 215);
}

TEST(it_fires_neither_during_warm_up_nor_on_nan)
{
    sfp__drift_detector d = {0};
    for (int t = 0; t < 30; t++)
        assert_false(sfp__drift_next(&d, t % 2 ? 1e6 : -1e6));
    sfp__drift_detector constant = {0};
    for (int t = 0; t < 200; t++)
        assert_false(sfp__drift_next(&constant, 0.25));
    sfp__rng rng = sfp__rng_init(1003, 0);
    sfp__drift_detector with = {0}, without = {0};
    for (int t = 0; t < 300; t++) {
        double x = sfp__rng_normal(&rng) + (t > 150 ? 3 : 0);
        if (t % 7 == 0)
            assert_false(sfp__drift_next(&with, t % 2 ? (double)NAN : (double)INFINITY));
        assert_int_equal(sfp__drift_next(&with, x), sfp__drift_next(&without, x));
    }
}
