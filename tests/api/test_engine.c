/* Errors, versions and engines (streamfp.h, parts 1 and 3). */
#include "world.h"

AROUND_EACH(make_directory, remove_directory)

TEST(the_version_is_that_of_the_header)
{
    assert_string_equal(sfp_version(), kept_print("%d.%d.%d", SFP_VERSION_MAJOR, SFP_VERSION_MINOR, SFP_VERSION_PATCH));
}

TEST(every_status_has_a_text)
{
#define CHECK(name, value, text)         \
    assert_int_equal(SFP_##name, value); \
    assert_string_equal(sfp_status_text((sfp_status)value), text);
    SFP_STATUS_LIST(CHECK)
#undef CHECK
    assert_non_null(sfp_status_text((sfp_status)1000));
}

TEST(a_callback_reports_an_error_with_sfp_error_set)
{
    sfp_error e = {.key = "old"};
    char big[2 * SFP_ERROR_MAX];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    assert_int_equal(sfp_error_set(&e, SFP_EIO, "camera lost"), SFP_EIO);
    assert_int_equal(e.status, SFP_EIO);
    assert_string_equal(e.message, "camera lost");
    assert_string_equal(e.key, "");
    assert_int_equal(sfp_error_set(NULL, SFP_EFORMAT, "nobody reads this"), SFP_EFORMAT);
    assert_int_equal(sfp_error_set(&e, SFP_EIO, big), SFP_EIO);
    assert_int_equal(strlen(e.message), SFP_ERROR_MAX - 1);
    assert_int_equal(sfp_error_set(&e, SFP_EIO, NULL), SFP_EIO);
}

TEST(an_engine_has_sizes)
{
    sfp_engine *random = random_engine(), *builtin = NULL, *large = NULL;
    sfp_engine_options o = SFP_ENGINE_OPTIONS_INIT;
    o.image_size = 96;
    MUST(sfp_engine_open("models/builtin.safetensors", &one_thread, &builtin, &err));
    (void)keep_engine(builtin);
    MUST(sfp_engine_open("models/builtin.safetensors", &o, &large, &err));
    (void)keep_engine(large);
    assert_int_equal(sfp_engine_image_size(random), SIDE);
    assert_int_equal(sfp_engine_dim(random), 64);
    assert_int_equal(sfp_engine_classes(random), 0);
    assert_int_equal(sfp_engine_image_size(builtin), 64);
    assert_int_equal(sfp_engine_dim(builtin), 192);
    assert_int_equal(sfp_engine_image_size(large), 96);
    sfp_engine_close(NULL);
    sfp_free(NULL);
}

TEST(errors_of_opening_an_engine_are_reported)
{
    sfp_engine *e = NULL;
    sfp_engine_options o = SFP_ENGINE_OPTIONS_INIT;
    REFUSED(sfp_engine_open("none.safetensors", NULL, &e, &err), SFP_ENOTFOUND, "none.safetensors");
    REFUSED(sfp_engine_open("README.md", NULL, &e, &err), SFP_EFORMAT, "README.md");
    REFUSED(sfp_engine_open(NULL, NULL, &e, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_engine_open("builtin", NULL, NULL, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_engine_open_random(1, NULL, NULL, &err), SFP_EINVAL, "must not be NULL");
    o.threads = -1;
    REFUSED(sfp_engine_open("builtin", &o, &e, &err), SFP_EINVAL, "threads is -1, expected 0 to 1024");
    assert_string_equal(err.key, "threads");
    o.threads = 1;
    o.image_size = 17;
    REFUSED(sfp_engine_open("models/builtin.safetensors", &o, &e, &err), SFP_EINVAL, "17");
    REFUSED(sfp_engine_open_random(1, &o, &e, &err), SFP_EINVAL, "expected 0 for both");
    o.image_size = -5;
    REFUSED(sfp_engine_open("builtin", &o, &e, &err), SFP_EINVAL, "img-size is -5");
    o.image_size = 0;
    o.precision = (sfp_precision)7;
    REFUSED(sfp_engine_open("builtin", &o, &e, &err), SFP_EINVAL, "precision is 7");
    const sfp_engine_options empty = {0};
    REFUSED(sfp_engine_open("builtin", &empty, &e, &err), SFP_EINVAL, "size is 0, expected sizeof(sfp_engine_options)");
    assert_null(e);
}

/* A program that was compiled with an earlier version has a smaller struct: what it does not have is 0. */
TEST(a_smaller_struct_of_options_is_accepted)
{
    struct {
        size_t size;
        int32_t threads;
        int32_t garbage;
    } earlier = {offsetof(sfp_engine_options, image_size), 1, 12345};
    sfp_engine *e = NULL;
    MUST(sfp_engine_open_random(1, (const sfp_engine_options *)(const void *)&earlier, &e, &err));
    (void)keep_engine(e);
}

TEST(the_input_size_of_a_state_is_known)
{
    const char *path = in_directory("state.safetensors");
    sfp_learner *l = learner_of(random_engine(), settings_of(NULL));
    int size = 0;
    offer_batches(l, 0, 1);
    MUST(sfp_learner_save(l, path, &err));
    MUST(sfp_state_image_size(path, &size, &err));
    assert_int_equal(size, SIDE);
    size = 0;
    MUST(sfp_state_image_size(directory, &size, &err)); /* as a run directory */
    assert_int_equal(size, SIDE);
    REFUSED(sfp_state_image_size(in_directory("none"), &size, &err), SFP_ENOTFOUND, "none");
    REFUSED(sfp_state_image_size("README.md", &size, &err), SFP_EFORMAT, "README.md");
    REFUSED(sfp_state_image_size(NULL, &size, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_state_image_size(path, NULL, &err), SFP_EINVAL, "must not be NULL");
}
