/* The allocation of time: which samples are queried under overload, and when a timestamp trains. */
#include "run/run_internal.h"

#include "test.h"

enum { MANY = 640, BATCH = 20 };

static sfp__sample samples[MANY];
static sfp__candidate candidates[MANY];
static int order[MANY];

/* Makes n samples with ids 0 .. n-1; the label is `label(i)`, and `learned(label)` samples of the class were learned before. */
static void make(int n, int (*label)(int i), int64_t (*learned)(int label))
{
    memset(candidates, 0xaa, sizeof candidates); /* scratch has any content */
    memset(order, 0xaa, sizeof order);
    for (int i = 0; i < n; i++) {
        samples[i] = (sfp__sample){.id = (uint64_t)i, .label = label(i)};
        candidates[i].learned = learned(label(i));
    }
}

/* Chooses `want` of the n samples that were made. They must be in the order of their arrival. */
static void choose(int n, int want)
{
    assert_int_equal(sfp__allocate_samples(n, samples, want, candidates, order), want);
    for (int i = 1; i < want; i++)
        assert_true(samples[i].id > samples[i - 1].id);
}

static int count_of(int n, int label)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += samples[i].label == label;
    return count;
}

static int one_class(int i)
{
    (void)i;
    return 7;
}

static int forty_in_turn(int i)
{
    return i / 40;
}

static int two_in_turn(int i)
{
    return i % 2;
}

/* As in a shuffled stream; neighbours differ, and the first samples of classes are not in the order of their labels. */
static int two_hundred(int i)
{
    return i * 77 % 200;
}

static int mostly_zero(int i)
{
    return i % 40 == 39 ? 1 + i / 40 : 0;
}

static int64_t nothing(int label)
{
    (void)label;
    return 0;
}

TEST(all_samples_are_kept_if_there_is_time)
{
    make(BATCH, forty_in_turn, nothing);
    choose(BATCH, BATCH);
    assert_int_equal(samples[19].id, 19);
    assert_int_equal(sfp__allocate_samples(3, samples, BATCH, candidates, order), 3);
}

TEST(the_samples_of_a_class_are_evenly_spaced_over_its_arrivals)
{
    for (int n = BATCH + 1; n <= MANY; n++) {
        make(n, one_class, nothing);
        choose(n, BATCH);
        for (int i = 0; i < BATCH; i++) /* one in each twentieth */
            assert_true((int)samples[i].id >= i * n / BATCH && (int)samples[i].id < (i + 1) * n / BATCH + 1);
    }
    make(MANY, two_in_turn, nothing);
    choose(MANY, BATCH); /* 10 of 320 samples each, so 32 samples of the class apart */
    for (int i = 0; i < BATCH - 2; i++)
        assert_int_equal(samples[i + 2].id - samples[i].id, 64);
}

/* The rule, place by place: the class with the fewest samples, learned and chosen, gets the next one. A class with half of the places waits
 * until the others have all they can. */
static void check_places(int n, int classes, int (*label)(int i), int64_t (*learned)(int label))
{
    int waiting[200] = {0}, places[200] = {0};
    for (int i = 0; i < n; i++)
        waiting[label(i)]++;
    for (int k = 0; k < BATCH; k++) {
        int fewest = -1;
        for (int i = 0; i < n; i++) { /* ties: the class that arrived first */
            int c = label(i);
            bool half = places[c] >= BATCH / 2, fewest_half = fewest >= 0 && places[fewest] >= BATCH / 2;
            if (places[c] < waiting[c] &&
                (fewest < 0 || (half == fewest_half ? learned(c) + places[c] < learned(fewest) + places[fewest] : fewest_half)))
                fewest = c;
        }
        places[fewest]++;
    }
    make(n, label, learned);
    choose(n, BATCH);
    for (int c = 0; c < classes; c++)
        assert_int_equal(count_of(BATCH, c), places[c]);
}

static int64_t different(int label)
{
    return label * 13 % 7;
}

TEST(the_class_with_the_fewest_samples_gets_the_next_place)
{
    for (int n = BATCH + 1; n <= MANY; n += n < 100 ? 1 : 30) {
        check_places(n, 16, forty_in_turn, nothing);
        check_places(n, 16, forty_in_turn, different);
        check_places(n, 2, two_in_turn, different);
        check_places(n, 17, mostly_zero, nothing);
        check_places(n, 200, two_hundred, nothing);
        check_places(n, 200, two_hundred, different);
    }
    make(160, mostly_zero, nothing); /* classes 1 to 4 have one sample each */
    choose(160, BATCH);
    for (int c = 1; c <= 4; c++)
        assert_int_equal(count_of(BATCH, c), 1);
    assert_int_equal(count_of(BATCH, 0), 16);
}

TEST(of_more_classes_than_places_those_that_arrived_first_get_one)
{
    make(MANY, two_hundred, nothing);
    choose(MANY, BATCH);
    for (int i = 0; i < BATCH; i++)
        assert_int_equal(count_of(BATCH, two_hundred(i)), 1);
    make(160, forty_in_turn, nothing);
    choose(160, 3);
    assert_int_equal(count_of(3, 0) + count_of(3, 1) + count_of(3, 2), 3);
}

static int64_t more_of_early_classes(int label)
{
    static const int64_t learned[] = {INT64_MAX / 65536, 1000, 12, 2};
    return learned[label];
}

TEST(a_class_of_which_little_was_learned_is_preferred)
{
    make(160, forty_in_turn, more_of_early_classes);
    choose(160, 24);
    assert_int_equal(count_of(24, 3), 12); /* half */
    assert_int_equal(count_of(24, 2), 12);
    make(120, forty_in_turn, more_of_early_classes);
    choose(120, 41);
    assert_int_equal(count_of(41, 2), 21);
    assert_int_equal(count_of(41, 1), 20);
}

static int last_twenty(int i)
{
    return i >= 300;
}

static int last_five(int i)
{
    return i >= 315;
}

static int64_t the_first_only(int label)
{
    return label == 0 ? 40 : 0;
}

TEST(a_class_that_begins_at_the_end_gets_half_of_the_places)
{
    make(320, last_twenty, the_first_only);
    choose(320, BATCH);
    assert_int_equal(count_of(BATCH, 1), 10);
    make(320, last_five, the_first_only);
    choose(320, BATCH); /* the other class gets what is left */
    assert_int_equal(count_of(BATCH, 1), 5);
    assert_int_equal(count_of(BATCH, 0), 15);
}

static int64_t known_unless_two(int label)
{
    return label == 2 ? 0 : 1000000;
}

static int two_appears_once(int i)
{
    return i == 333 ? 2 : i % 2;
}

TEST(the_first_sample_of_a_class_is_always_kept)
{
    make(MANY, two_appears_once, known_unless_two);
    choose(MANY, 1);
    assert_int_equal(samples[0].id, 333);
}

/* Windows of 30 classes in the same order: no class falls behind, although each window has only 20 places. */
static int64_t learned_before[30];

static int thirty_in_turn(int i)
{
    return i % 30;
}

static int64_t learned_of(int label)
{
    return learned_before[label];
}

TEST(classes_stay_balanced_over_many_windows)
{
    memset(learned_before, 0, sizeof learned_before);
    for (int window = 0; window < 300; window++) {
        make(120, thirty_in_turn, learned_of);
        choose(120, BATCH);
        for (int i = 0; i < BATCH; i++)
            learned_before[samples[i].label]++;
    }
    for (int c = 0; c < 30; c++)
        assert_int_equal(learned_before[c], 200);
}
