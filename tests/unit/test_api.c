/* The library as its users see it: streamfp.h and nothing else of it. */
#include "streamfp.h"

#include <locale.h>
#include <pthread.h>
#include <stdatomic.h>

#include "temp_directory.h"
#include "test.h"

AROUND_EACH(make_directory, remove_directory)

enum { SIDE = 32, BATCH = 4, CLASSES = 3 };

static const sfp_engine_options one_thread = {.size = sizeof one_thread, .threads = 1};
static const sfp_predictor_options one_batch = {.size = sizeof one_batch, .threads = 1, .max_batch = BATCH};

static void close_engine(sfp_engine **e)
{
    sfp_engine_close(*e);
}

static void free_settings(sfp_settings **s)
{
    sfp_settings_free(*s);
}

static void free_learner(sfp_learner **l)
{
    sfp_learner_free(*l);
}

static void free_predictor(sfp_predictor **p)
{
    sfp_predictor_free(*p);
}

TEST(a_refused_setting_names_its_key)
{
    __attribute__((cleanup(free_settings))) sfp_settings *s = NULL;
    sfp_error wrong = {0};
    MUST(sfp_settings_create(&s, &err));
    assert_int_equal(sfp_settings_set(s, "sigma", "wide", &wrong), SFP_EINVAL);
    assert_string_equal(wrong.key, "sigma");
    assert_non_null(strstr(wrong.message, "'wide'"));
    assert_int_equal(sfp_settings_set(s, "sigmas", "0.5", &wrong), SFP_EINVAL);
    assert_non_null(strstr(wrong.message, "sigmas"));
}

/* Offers batches first .. end - 1, each of flat images whose shade follows from its number. */
static void offer(sfp_learner *l, int first, int end)
{
    static uint8_t rgb[BATCH][SIDE * SIDE * 3];
    for (int k = first; k < end; k++) {
        sfp_sample samples[BATCH] = {0};
        sfp_timestamp_report report = SFP_TIMESTAMP_REPORT_INIT;
        for (int i = 0; i < BATCH; i++) {
            memset(rgb[i], 20 + 70 * (i % CLASSES) + k, sizeof rgb[i]);
            samples[i] = (sfp_sample){
                .image = {.width = SIDE, .height = SIDE, .data = rgb[i]}, .label = i % CLASSES, .id = (uint64_t)(k * BATCH + i)};
        }
        MUST(sfp_learner_offer(l, BATCH, samples, &report, &err));
        assert_int_equal(report.timestamp, k);
        assert_int_equal(report.offered, BATCH);
    }
}

/* All bytes of a file, until the test ends. */
static uint8_t *bytes_of(const char *path, size_t *size)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    uint8_t *bytes = kept_malloc((size_t)st.st_size);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(bytes, 1, (size_t)st.st_size, f), st.st_size);
    (void)fclose(f);
    *size = (size_t)st.st_size;
    return bytes;
}

static void check_same_bytes(const char *first, const char *second)
{
    size_t size[2];
    uint8_t *a = bytes_of(first, &size[0]), *b = bytes_of(second, &size[1]);
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(a, b, size[0]);
}

TEST(a_learner_that_goes_on_from_a_checkpoint_ends_in_the_same_bytes)
{
    __attribute__((cleanup(close_engine))) sfp_engine *e = NULL;
    __attribute__((cleanup(free_settings))) sfp_settings *s = NULL;
    MUST(sfp_engine_open_random(1, &one_thread, &e, &err));
    assert_int_equal(sfp_engine_image_size(e), SIDE);
    MUST(sfp_settings_create(&s, &err));
    MUST(sfp_settings_set(s, "batch", "4", &err));
    MUST(sfp_settings_set(s, "buffer-size", "6", &err));
    const char *checkpoint = in_directory("checkpoint"), *whole = in_directory("whole"), *resumed = in_directory("resumed");
    __attribute__((cleanup(free_learner))) sfp_learner *l = NULL, *after = NULL;
    MUST(sfp_learner_create(e, s, &l, &err));
    offer(l, 0, 3);
    MUST(sfp_learner_checkpoint(l, checkpoint, "batch 3", &err));
    offer(l, 3, 6);
    MUST(sfp_learner_save(l, whole, &err));

    char *position = NULL;
    MUST(sfp_learner_create(e, s, &after, &err));
    MUST(sfp_learner_resume(after, checkpoint, &position, &err));
    assert_string_equal(position, "batch 3");
    sfp_free(position);
    offer(after, 3, 6);
    MUST(sfp_learner_save(after, resumed, &err));
    assert_int_equal(sfp_learner_classes(after), CLASSES);
    check_same_bytes(whole, resumed);
    assert_int_equal(sfp_learner_resume(after, in_directory("none"), NULL, &err), SFP_ENOTFOUND);
}

/* A thread that predicts the same images until it is stopped. */
typedef struct asker {
    sfp_predictor *predictor;
    float expected[BATCH][CLASSES]; /* answers of the only state there is */
    atomic_bool stopped;
    int wrong;
} asker;

static sfp_status predict(sfp_predictor *p, float logp[BATCH][CLASSES])
{
    static const uint8_t black[SIDE * SIDE * 3];
    sfp_image images[BATCH];
    sfp_prediction answers[BATCH];
    for (int i = 0; i < BATCH; i++)
        images[i] = (sfp_image){.width = SIDE, .height = SIDE, .data = black};
    sfp_status status = sfp_predictor_run(p, BATCH, images, answers, NULL);
    if (!status)
        memcpy(logp, sfp_predictor_scores(p), sizeof(float[BATCH][CLASSES]));
    return status;
}

static void *predict_often(void *ctx)
{
    asker *a = ctx;
    float logp[BATCH][CLASSES];
    do {
        if (predict(a->predictor, logp) || memcmp(logp, a->expected, sizeof logp) != 0)
            a->wrong++;
    } while (!atomic_load(&a->stopped));
    return NULL;
}

TEST(a_predictor_answers_while_its_learner_resumes_and_loads)
{
    __attribute__((cleanup(close_engine))) sfp_engine *e = NULL;
    __attribute__((cleanup(free_settings))) sfp_settings *s = NULL;
    MUST(sfp_engine_open_random(1, &one_thread, &e, &err));
    MUST(sfp_settings_create(&s, &err));
    MUST(sfp_settings_set(s, "batch", "4", &err));
    MUST(sfp_settings_set(s, "buffer-size", "6", &err));
    MUST(sfp_settings_set(s, "head", "mix", &err));
    const char *checkpoint = in_directory("checkpoint"), *state = in_directory("state");
    __attribute__((cleanup(free_learner))) sfp_learner *l = NULL;
    __attribute__((cleanup(free_predictor))) sfp_predictor *p = NULL;
    MUST(sfp_learner_create(e, s, &l, &err));
    offer(l, 0, 3);
    MUST(sfp_predictor_create(l, &one_batch, &p, &err));
    asker a = {.predictor = p};
    MUST(predict(p, a.expected));
    MUST(sfp_learner_save(l, state, &err));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, predict_often, &a), 0);
    sfp_status status = SFP_OK;
    for (int i = 0; !status && i < 12; i++) { /* all of these leave the state as it is */
        status = sfp_learner_checkpoint(l, checkpoint, "", &err);
        status = status ? status : sfp_learner_resume(l, checkpoint, NULL, &err);
        status = status ? status : sfp_learner_load(l, state, &err);
    }
    atomic_store(&a.stopped, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    MUST(status);
    assert_int_equal(a.wrong, 0);
}

/* ------------------------------------------------------------------- locales */

enum { PLAIN, COMMA, LOCALES };
static const char *const locale_names[LOCALES] = {"C", "de_DE.UTF-8"}; /* the second writes 0,5 and groups thousands by points */

/* Makes the locale in the test's folder, as none need be installed. */
static void make_locale(void)
{
    const char *command = kept_print("localedef -i de_DE -f UTF-8 %s/%s >/dev/null 2>&1", directory, locale_names[COMMA]);
    if (system(command) != 0) { /* NOLINT(cert-env33-c): paths of our own making */
        print_message("[   NOTE   ] localedef cannot make %s: package locales\n", locale_names[COMMA]);
        skip();
    }
    assert_int_equal(setenv("LOCPATH", directory, 1), 0);
}

static void use_locale(int i)
{
    char text[8];
    assert_non_null(setlocale(LC_ALL, locale_names[i]));
    (void)snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, i == COMMA ? "0,5" : "0.5");
}

/* The host program's locale is still the one it has set. */
static void check_locale(int i)
{
    assert_string_equal(setlocale(LC_ALL, NULL), locale_names[i]);
    assert_true(uselocale((locale_t)0) == LC_GLOBAL_LOCALE);
}

static void leave_locale(void)
{
    (void)setlocale(LC_ALL, "C");
    (void)unsetenv("LOCPATH");
    remove_directory();
}

/* A learner with fractions among its settings. */
static void make_learner(sfp_engine *e, const char *sigma, sfp_learner **out)
{
    __attribute__((cleanup(free_settings))) sfp_settings *s = NULL;
    MUST(sfp_settings_create(&s, &err));
    MUST(sfp_settings_set(s, "batch", "4", &err));
    MUST(sfp_settings_set(s, "buffer-size", "6", &err));
    MUST(sfp_settings_set(s, "lr", "0.00125", &err));
    MUST(sfp_settings_set(s, "sigma", sigma, &err));
    MUST(sfp_learner_create(e, s, out, &err));
}

TEST_AROUND(a_setting_has_a_decimal_point_in_every_locale, make_directory, leave_locale)
{
    make_locale();
    for (int i = 0; i < LOCALES; i++) {
        __attribute__((cleanup(free_settings))) sfp_settings *s = NULL;
        use_locale(i);
        MUST(sfp_settings_create(&s, &err));
        MUST(sfp_settings_set(s, "sigma", "0.5", &err));
        REFUSED(sfp_settings_set(s, "sigma", "0,5", &err), SFP_EINVAL, "'0,5'");
        check_locale(i);
    }
}

TEST_AROUND(states_and_checkpoints_do_not_depend_on_the_locale, make_directory, leave_locale)
{
    const char *checkpoint[LOCALES], *state[LOCALES];
    make_locale();
    for (int i = 0; i < LOCALES; i++) {
        __attribute__((cleanup(close_engine))) sfp_engine *e = NULL;
        __attribute__((cleanup(free_learner))) sfp_learner *l = NULL;
        checkpoint[i] = in_directory(i == COMMA ? "checkpoint-comma" : "checkpoint-plain");
        state[i] = in_directory(i == COMMA ? "state-comma" : "state-plain");
        use_locale(i);
        MUST(sfp_engine_open_random(1, &one_thread, &e, &err));
        make_learner(e, "0.5", &l);
        offer(l, 0, 2);
        MUST(sfp_learner_checkpoint(l, checkpoint[i], "", &err));
        MUST(sfp_learner_save(l, state[i], &err));
        check_locale(i);
    }
    check_same_bytes(checkpoint[PLAIN], checkpoint[COMMA]);
    check_same_bytes(state[PLAIN], state[COMMA]);
    for (int i = 0; i < LOCALES; i++) {
        __attribute__((cleanup(close_engine))) sfp_engine *e = NULL;
        __attribute__((cleanup(free_learner))) sfp_learner *l = NULL, *other = NULL;
        __attribute__((cleanup(free_predictor))) sfp_predictor *p = NULL;
        use_locale(i);
        MUST(sfp_engine_open_random(1, &one_thread, &e, &err));
        make_learner(e, "0.5", &l);
        MUST(sfp_learner_resume(l, checkpoint[PLAIN], NULL, &err));
        MUST(sfp_learner_load(l, state[PLAIN], &err));
        MUST(sfp_predictor_open(e, state[PLAIN], &one_batch, &p, &err));
        make_learner(e, "0.25", &other);
        REFUSED(sfp_learner_resume(other, checkpoint[PLAIN], NULL, &err), SFP_EINVAL, "sigma 0.5, now it is 0.25");
        check_locale(i);
    }
}

TEST_AROUND(a_backbone_is_read_in_every_locale, make_directory, leave_locale)
{
    const char *state[LOCALES];
    make_locale();
    for (int i = 0; i < LOCALES; i++) {
        __attribute__((cleanup(close_engine))) sfp_engine *e = NULL;
        __attribute__((cleanup(free_learner))) sfp_learner *l = NULL;
        state[i] = in_directory(i == COMMA ? "state-comma" : "state-plain");
        use_locale(i);
        MUST(sfp_engine_open("models/builtin.safetensors", &one_thread, &e, &err));
        make_learner(e, "0.5", &l);
        MUST(sfp_learner_save(l, state[i], &err)); /* it holds the mean and the deviation of colours in the backbone's file */
        check_locale(i);
    }
    check_same_bytes(state[PLAIN], state[COMMA]);
}
