/* A learner with a closed-form head (method). */
#include "base/rng.h"
#include "learner/predictor.h"
#include "learner/state/saved_sums.h"
#include "run/run.h"

#include "failing_alloc.h"
#include "run_world.h"

enum { S = 16, D = 32, CLASSES = 3, N = 12, BATCH = 5, BYTES = 3 * S * S };

static uint8_t pixels[N][BYTES];
static sfp__sample samples[N];
static const uint8_t *rgb[N];
static const char *const methods[] = {"ncm", "slda", "ridge", "ranpac"};

static void make_samples(void)
{
    sfp__rng rng = sfp__rng_init(5, 1);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < BYTES; k++)
            pixels[i][k] = (uint8_t)(70 * (i % CLASSES) + (int)sfp__rng_below(&rng, 40));
        rgb[i] = pixels[i];
        samples[i] = (sfp__sample){.rgb = pixels[i], .label = i % CLASSES, .id = (uint64_t)i};
    }
    make_run_world();
}

AROUND_ALL(make_samples, end_run_world)

static sfp__learner *make_growing(const char *method)
{
    sfp__learner_options o = sfp__learner_options_defaults(small.vit);
    o.method = method;
    o.batch = BATCH;
    return make_learner(&small, &o);
}

TEST(a_correction_without_memory_changes_neither_classes_nor_names)
{
    enum { FAR = 40 }; /* beyond the classes that a new learner has memory for */
    for (int m = 0; m < 3; m++) {
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_growing(methods[m]), *other = make_growing(methods[m]);
        sfp__sample far_sample = samples[1], near_sample = samples[0];
        sfp__timestamp_details t;
        far_sample.label = FAR;
        MUST(sfp__learner_offer(l, 1, &near_sample, &t, &err));
        MUST(sfp__learner_offer(other, 1, &far_sample, &t, &err));
        MUST(sfp__learner_name_class(other, 0, "near", &err));
        MUST(sfp__learner_name_class(other, FAR, "far", &err));
        MUST(sfp__learner_checkpoint(other, in_directory("other"), "", &err));
        assert_true(FAIL_EACH_ALLOCATION(sfp__learner_merge(l, &(sfp__saved_file){.path = in_directory("other")}, alloc_err),
                                         sfp__learner_classes(l) == 1 && !sfp__learner_class_name(l, 0)) > 5);
        assert_string_equal(sfp__learner_class_name(l, 0), "near");
        assert_string_equal(sfp__learner_class_name(l, FAR), "far");
        assert_int_equal(sfp__learner_classes(l), FAR + 1);
        assert_true(FAIL_EACH_ALLOCATION(sfp__learner_relabel(l, &near_sample, 3 * FAR, alloc_err),
                                         sfp__learner_classes(l) == FAR + 1 && sfp__learner_seen(l, 0)) > 1);
        assert_int_equal(sfp__learner_classes(l), 3 * FAR + 1);
    }
}

TEST(without_memory_no_sums_are_subtracted_or_loaded)
{
    for (int m = 0; m < 3; m++) {
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_growing(methods[m]), *other = make_growing(methods[m]);
        sfp__timestamp_details t;
        MUST(sfp__learner_offer(l, BATCH, samples, &t, &err));
        MUST(sfp__learner_offer(other, 2, samples, &t, &err));
        MUST(sfp__learner_name_class(other, 1, "one", &err));
        MUST(sfp__learner_save(other, in_directory("other"), &err));
        const sfp__saved_file file = {.path = in_directory("other")};
        assert_true(FAIL_EACH_ALLOCATION(sfp__learner_subtract(l, &file, alloc_err),
                                         sfp__learner_class_samples(l, 0) == 2 && sfp__learner_classes(l) == 3) > 5);
        assert_int_equal(sfp__learner_class_samples(l, 0), 1);
        assert_true(FAIL_EACH_ALLOCATION(sfp__learner_load(l, in_directory("other"), alloc_err),
                                         sfp__learner_seen(l, 2) && !sfp__learner_class_name(l, 1)) > 5);
        assert_false(sfp__learner_seen(l, 2));
        assert_string_equal(sfp__learner_class_name(l, 1), "one");
    }
}

TEST(without_memory_no_state_is_written)
{
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_growing("ridge"), *other = make_growing("ridge");
    OWNED_BY(sfp__saved_sums_done) sfp__saved_sums sum = {0}, next = {0};
    sfp__timestamp_details t;
    MUST(sfp__learner_offer(l, BATCH, samples, &t, &err));
    MUST(sfp__learner_offer(other, 2, samples + 1, &t, &err));
    MUST(sfp__learner_name_class(other, 1, "one", &err));
    MUST(sfp__learner_save(l, in_directory("a"), &err));
    MUST(sfp__learner_checkpoint(other, in_directory("b"), "", &err));
    MUST(sfp__saved_sums_read(&(sfp__saved_file){.path = in_directory("a")}, NULL, NULL, small.pool, &sum, &err));
    MUST(sfp__saved_sums_read(&(sfp__saved_file){.path = in_directory("b")}, &sum.metadata, "a", small.pool, &next, &err));
    assert_true(FAIL_EACH_ALLOCATION(sfp__saved_sums_add(&sum, &next, alloc_err), sfp__saved_sums_samples(&sum) == BATCH) > 5);
    assert_int_equal(sfp__saved_sums_samples(&sum), BATCH + 2);
    assert_int_equal(sfp__saved_sums_classes(&sum), CLASSES);
    const char *path = in_directory("written");
    assert_true(FAIL_EACH_ALLOCATION(sfp__saved_sums_write(&sum, path, alloc_err), access(path, F_OK) != 0) > 5);
}

/* The sums of 4,224 values have 68 MiB. */
TEST(sums_that_are_too_large_are_only_in_the_checkpoint)
{
    const sfp__vit_config c = VIT(S, 8, 1408, 2, 2, 64, 0.5f, 0.25f);
    OWNED_PTR(sfp__vit_free) sfp__vit *wide = NULL;
    OWNED_PTR(sfp__learner_free) sfp__learner *l = NULL, *after = NULL;
    sfp__timestamp_details t;
    MUST(sfp__vit_random(&c, 1, 0.08f, &wide, &err));
    sfp__learner_options o = sfp__learner_options_defaults(wide);
    o.method = "ridge";
    o.taps = 2;
    o.tap_mean = true;
    o.batch = BATCH;
    MUST(sfp__learner_create(wide, small.pool, &o, &l, &err));
    MUST(sfp__learner_create(wide, small.pool, &o, &after, &err));
    MUST(sfp__learner_offer(l, 1, samples, &t, &err));
    MUST(sfp__learner_save(l, in_directory("s"), &err));
    MUST(sfp__learner_checkpoint(l, in_directory("c"), "", &err));
    REFUSED(sfp__learner_load(after, in_directory("s"), &err), SFP_EUNSUPPORTED,
            "the file has no sums: they exceed 64 MiB; use the checkpoint of the run");
    MUST(sfp__learner_load(after, in_directory("c"), &err));
    assert_int_equal(sfp__learner_class_samples(after, 0), 1);
}
