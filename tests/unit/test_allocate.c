/* The allocation of time: which samples are queried under overload, and when a timestamp trains. */
#include "run/run_internal.h"

#include "test.h"

enum { MANY = 640 };

static sfp__sample samples[MANY];
static int work[3 * MANY];
static bool marked[MANY];

/* Makes n samples with ids 0 .. n-1; the label is `label(i)`. */
static void make(int n, int (*label)(int i))
{
    for (int i = 0; i < n; i++)
        samples[i] = (sfp__sample){.id = (uint64_t)i, .label = label(i)};
    memset(work, 0, sizeof work);
}

static int by_quarter(int i)
{
    return i / 40;
}

static int mostly_zero(int i)
{
    return i % 40 == 0 ? 1 + i / 40 : 0;
}

static int count_of(int n, int label)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += samples[i].label == label;
    return count;
}

TEST(all_samples_are_kept_if_there_is_time)
{
    make(20, by_quarter);
    assert_int_equal(sfp__allocate_samples(20, samples, 20, work, marked), 20);
    assert_int_equal(samples[19].id, 19);
}

TEST(under_overload_the_samples_are_spread_evenly_and_keep_their_order)
{
    for (int n = 21; n < 160; n++) {
        make(n, by_quarter);
        assert_int_equal(sfp__allocate_samples(n, samples, 20, work, marked), 20);
        for (int i = 0; i < 20; i++) { /* one in each twentieth of the arrivals */
            assert_true((int)samples[i].id >= i * n / 20 && (int)samples[i].id < (i + 1) * n / 20 + 1);
            assert_true(i == 0 || samples[i].id > samples[i - 1].id);
        }
    }
}

TEST(a_high_load_balances_classes)
{
    make(160, mostly_zero); /* classes 1 to 4 have one sample each */
    assert_int_equal(sfp__allocate_samples(160, samples, 20, work, marked), 20);
    for (int c = 1; c <= 4; c++)
        assert_int_equal(count_of(20, c), 1);
    assert_int_equal(count_of(20, 0), 16);
    make(640, by_quarter); /* 16 classes of 40 */
    assert_int_equal(sfp__allocate_samples(640, samples, 20, work, marked), 20);
    for (int c = 0; c < 16; c++)
        assert_true(count_of(20, c) >= 1 && count_of(20, c) <= 2);
    assert_int_equal(sfp__allocate_samples(160, samples, 3, work, marked), 3); /* fewer than classes */
}

TEST(a_class_of_which_little_was_learned_is_preferred)
{
    make(160, by_quarter);
    for (int i = 0; i < 160; i++)
        work[i] = i / 40 == 3 ? 2 : i / 40 == 2 ? 12 : 1000;
    assert_int_equal(sfp__allocate_samples(160, samples, 20, work, marked), 20);
    assert_int_equal(count_of(20, 3), 15); /* 17 of both classes are then known, */
    assert_int_equal(count_of(20, 2), 5);
    assert_int_equal(count_of(20, 0) + count_of(20, 1), 0); /* less than a batch */
}

TEST(training_uses_the_time_that_queries_leave)
{
    sfp__allocation a = {0};
    int trained = 0;
    assert_true(sfp__allocate_training(&a, 20, NAN, 0));
    assert_false(sfp__allocate_training(&a, 20, 4.0, 1)); /* not measured yet */
    sfp__allocate_measured(&a, 20, false, 1.0);
    assert_true(sfp__allocate_training(&a, 20, 4.0, 1)); /* the time of training is not known yet */
    sfp__allocate_measured(&a, 20, true, 3.0);           /* training adds 2 s */
    for (int i = 0; i < 100; i++)
        trained += sfp__allocate_training(&a, 20, 2.0, 1); /* 1 s is left per timestamp */
    assert_true(trained >= 49 && trained <= 52);
    for (int i = trained = 0; i < 400; i++)
        trained += sfp__allocate_training(&a, 20, 2.0, 0); /* the probe: 5 % of 1 s */
    assert_true(trained >= 9 && trained <= 12);
    for (int i = trained = 0; i < 100; i++)
        trained += sfp__allocate_training(&a, 20, 0.5, 1); /* overload */
    sfp__allocate_measured(&a, 20, true, 1000.0);
    for (int i = 0; i < 100; i++)
        trained += sfp__allocate_training(&a, 20, 2.0, 1); /* training would take so long that samples are dropped */
    assert_int_equal(trained, 0);
}

TEST(after_a_long_overload_training_soon_begins_again)
{
    sfp__allocation a = {.query = 0.05, .train = 2};
    int waited = 0;
    for (int i = 0; i < 1000; i++) /* samples were dropped: no time is left */
        assert_false(sfp__allocate_training(&a, 20, 0, 1));
    assert_true(a.credit == -a.train);
    while (waited < 1000 && !sfp__allocate_training(&a, 20, 2.0, 1)) /* 1 s is left per timestamp */
        waited++;
    assert_int_equal(waited, 3); /* -2 s to 2 s */
}
