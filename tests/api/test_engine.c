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

/* ------------------------------------------------------------------------------- the input size for an arrival rate */

static void keep_message(void *ctx, sfp_log_level level, const char *message)
{
    assert_int_equal(level, SFP_LOG_INFO);
    (void)snprintf(ctx, SFP_ERROR_MAX, "%s", message);
}

/* The size of the built-in backbone (64 pixels, 8 x 8 patches) for this rate. */
static int size_at(double rate, double query_seconds, char *message)
{
    sfp_engine_options o = one_thread;
    sfp_engine *e = NULL;
    o.image_size = SFP_IMAGE_SIZE_AUTO;
    o.rate = rate;
    o.query_seconds = query_seconds;
    o.log = message ? keep_message : NULL;
    o.log_ctx = message;
    MUST(sfp_engine_open("models/builtin.safetensors", &o, &e, &err));
    return sfp_engine_image_size(keep_engine(e));
}

TEST(an_engine_has_the_input_size_of_a_state)
{
    const char *path = in_directory("state.safetensors");
    char message[SFP_ERROR_MAX] = "";
    sfp_engine_options o = one_thread;
    sfp_engine *learned = NULL, *e = NULL;
    o.image_size = SIDE;
    MUST(sfp_engine_open("models/builtin.safetensors", &o, &learned, &err));
    MUST(sfp_learner_save(learner_of(keep_engine(learned), settings_of(NULL)), path, &err));
    o.image_size = 0;
    o.state = path;
    o.log = keep_message;
    o.log_ctx = message;
    MUST(sfp_engine_open("models/builtin.safetensors", &o, &e, &err));
    assert_int_equal(sfp_engine_image_size(keep_engine(e)), SIDE);
    assert_non_null(strstr(message, "state.safetensors; the size of the backbone is 64"));
    o.image_size = 48; /* the size that is asked for */
    MUST(sfp_engine_open("models/builtin.safetensors", &o, &e, &err));
    assert_int_equal(sfp_engine_image_size(keep_engine(e)), 48);
    o.image_size = 0;
    o.state = in_directory("none");
    REFUSED(sfp_engine_open("models/builtin.safetensors", &o, &e, &err), SFP_ENOTFOUND, "none");
}

TEST(the_input_size_is_smaller_if_images_arrive_too_fast)
{
    char message[SFP_ERROR_MAX] = "";
    sfp_engine_options o = one_thread;
    sfp_engine *e = NULL;
    assert_int_equal(size_at(0, 0, message), 64);
    assert_int_equal(size_at(0, 1, message), 64);
    assert_int_equal(size_at(1e-9, 0, message), 64); /* measured */
    assert_int_equal(size_at(5, 1, message), 64);
    assert_string_equal(message, "");
    assert_int_equal(size_at(1e9, 0, NULL), 48); /* measured */
    assert_int_equal(size_at(400, 0.02, message), 48);
    assert_non_null(strstr(message, "input size is 48 instead of 64: at 400 images per second"));
    o.image_size = SFP_IMAGE_SIZE_AUTO;
    o.rate = -1;
    REFUSED(sfp_engine_open("builtin", &o, &e, &err), SFP_EINVAL, "rate is -1");
    o.rate = NAN;
    REFUSED(sfp_engine_open("builtin", &o, &e, &err), SFP_EINVAL, "expected finite numbers");
    o.rate = 1;
    o.query_seconds = INFINITY;
    REFUSED(sfp_engine_open("builtin", &o, &e, &err), SFP_EINVAL, "expected finite numbers");
    assert_null(e);
}

static int size_for(const sfp_settings *s)
{
    sfp_engine *e = NULL;
    MUST(sfp_engine_open_for(s, NULL, NULL, &e, &err));
    return sfp_engine_image_size(keep_engine(e));
}

static const char *costs_of(const char *text)
{
    const char *path = in_directory("costs");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
    return path;
}

TEST(an_engine_is_opened_for_the_settings_of_a_run)
{
#define RUN "backbone", "models/builtin.safetensors", "threads", "1", "rate", "400"
    sfp_engine *e = NULL;
    sfp_settings *pretraining = NULL;
    const char *fast = costs_of("query 0.001\n");
    assert_int_equal(size_for(SETTINGS(RUN, "preset", "best", "costs", fast)), 64);
    (void)costs_of("query 0.02\n");
    assert_int_equal(size_for(SETTINGS(RUN, "preset", "best", "costs", fast)), 48);
    assert_int_equal(size_for(SETTINGS(RUN, "img-size", "auto", "costs", fast)), 48);
    assert_int_equal(size_for(SETTINGS(RUN, "img-size", "auto", "rate", "max", "costs", fast)), 64);
    assert_int_equal(size_for(SETTINGS(RUN, "preset", "best", "img-size", "0", "costs", fast)), 64);
    assert_int_equal(size_for(SETTINGS(RUN, "preset", "best", "img-size", "32", "costs", fast)), 32);
    assert_int_equal(size_for(SETTINGS(RUN, "preset", "paper", "costs", fast)), 64);
    assert_int_equal(size_for(SETTINGS(RUN, "costs", fast)), 48);
    (void)costs_of("100\n"); /* of whole timestamps: nothing is known about queries, and nothing is measured */
    assert_int_equal(size_for(SETTINGS(RUN, "preset", "best", "costs", fast)), 64);
    assert_int_equal(size_for(SETTINGS(RUN, "preset", "best", "costs", in_directory("none"))), 64); /* the run reports it */
    MUST(sfp_pretrain_settings_create(&pretraining, &err));
    REFUSED(sfp_engine_open_for(pretraining, NULL, NULL, &e, &err), SFP_EINVAL, "sfp_settings_create");
    sfp_settings_free(pretraining);
    REFUSED(sfp_engine_open_for(NULL, NULL, NULL, &e, &err), SFP_EINVAL, "sfp_settings_create");
    REFUSED(sfp_engine_open_for(SETTINGS(RUN), NULL, NULL, NULL, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_engine_open_for(SETTINGS("backbone", "none.pth"), NULL, NULL, &e, &err), SFP_ENOTFOUND, "none.pth");
    assert_null(e);
#undef RUN
}

/* Makes a run, of which it processes two timestamps and then, unless `stop`, the rest; returns its input size. */
static int run_at(const sfp_settings *s, bool stop)
{
    sfp_engine *e = NULL;
    sfp_run *r = NULL;
    int more = 1;
    MUST(sfp_engine_open_for(s, NULL, NULL, &e, &err));
    MUST(sfp_run_open(keep_engine(e), s, NULL, &r, &err));
    for (int i = 0; i < 2; i++)
        MUST(sfp_run_step(r, &more, &err));
    if (stop)
        sfp_run_cancel(r);
    MUST(sfp_run_finish(r, &err));
    assert_int_equal(sfp_result_number(sfp_run_result(r), "finished"), !stop);
    sfp_run_close(r);
    return sfp_engine_image_size(e);
}

TEST(a_resumed_run_keeps_its_input_size)
{
    sfp_settings *s =
        SETTINGS("backbone", "models/builtin.safetensors", "threads", "1", "rate", "400", "costs", costs_of("query 0.02\n"),
                 "data", "synthetic:200", "tasks", "2", "batch", "10", "eval-limit", "2", "out", in_directory("out"));
    assert_int_equal(setenv("STREAMFP_REGISTRY", in_directory("runs.db"), 1), 0);
    assert_int_equal(run_at(s, true), 48);
    (void)costs_of("query 0.001\n"); /* a new run would have 64 */
    assert_int_equal(size_for(s), 64);
    MUST(sfp_settings_set(s, "resume", "on", &err));
    assert_int_equal(run_at(s, false), 48);
    MUST(sfp_settings_set(s, "out", in_directory("new"), &err)); /* nothing to resume */
    assert_int_equal(size_for(s), 64);
}

/* The preset says how to open an engine, but a learner accepts any. */
TEST(the_preset_s_choice_of_the_input_size_does_not_refuse_an_engine)
{
    sfp_learner *l = NULL;
    MUST(sfp_learner_create(random_engine(), SETTINGS("preset", "best"), &l, &err));
    sfp_learner_free(l);
    MUST(sfp_learner_create(random_engine(), SETTINGS("img-size", "auto"), &l, &err));
    sfp_learner_free(l);
}
