/* Numbers have a decimal point whatever locale the host program has set. */
#include "world.h"

#include <locale.h>

enum { PLAIN, COMMA, LOCALES };
static const char *const locale_names[LOCALES] = {"C", "de_DE.UTF-8"}; /* the second writes 0,5 and groups thousands by points */

static bool has_locale;

/* One directory for all tests of the file: making the locale in it takes seconds. None need be installed. */
static void make_locale(void)
{
    make_directory();
    has_locale = system(kept_print("localedef -i de_DE -f UTF-8 %s/%s >/dev/null 2>&1", directory, locale_names[COMMA])) ==
                 0; /* NOLINT(cert-env33-c) */
    assert_int_equal(setenv("LOCPATH", directory, 1), 0);
}

static void remove_locale(void)
{
    (void)setlocale(LC_ALL, "C");
    (void)unsetenv("LOCPATH");
    remove_directory();
}

AROUND_ALL(make_locale, remove_locale)

static void need_locale(void)
{
    if (has_locale)
        return;
    print_message("[   NOTE   ] localedef cannot make %s: package locales\n", locale_names[COMMA]);
    skip();
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

/* A learner with fractions among its settings. */
static sfp_learner *fraction_learner(sfp_engine *e, const char *sigma)
{
    return learner_of(e, TRAINED("buffer-size", "6", "lr", "0.00125", "sigma", sigma));
}

TEST(a_setting_has_a_decimal_point_in_every_locale)
{
    need_locale();
    for (int i = 0; i < LOCALES; i++) {
        KEPT_IN_BLOCK;
        use_locale(i);
        sfp_settings *s = settings_of(NULL);
        MUST(sfp_settings_set(s, "sigma", "0.5", &err));
        REFUSED(sfp_settings_set(s, "sigma", "0,5", &err), SFP_EINVAL, "'0,5'");
        check_locale(i);
    }
}

TEST(states_and_checkpoints_do_not_depend_on_the_locale)
{
    const char *checkpoint[LOCALES] = {in_directory("checkpoint-plain"), in_directory("checkpoint-comma")};
    const char *state[LOCALES] = {in_directory("state-plain"), in_directory("state-comma")};
    need_locale();
    for (int i = 0; i < LOCALES; i++) {
        KEPT_IN_BLOCK;
        use_locale(i);
        sfp_engine *e = random_engine();
        sfp_learner *l = fraction_learner(e, "0.5");
        offer_batches(l, 0, 2);
        MUST(sfp_learner_checkpoint(l, checkpoint[i], "", &err));
        MUST(sfp_learner_save(l, state[i], &err));
        check_locale(i);
    }
    check_same_bytes(checkpoint[PLAIN], checkpoint[COMMA]);
    check_same_bytes(state[PLAIN], state[COMMA]);
    for (int i = 0; i < LOCALES; i++) {
        KEPT_IN_BLOCK;
        use_locale(i);
        sfp_engine *e = random_engine();
        sfp_learner *l = fraction_learner(e, "0.5");
        MUST(sfp_learner_resume(l, checkpoint[PLAIN], NULL, &err));
        MUST(sfp_learner_load(l, state[PLAIN], &err));
        sfp_predictor *p = NULL;
        MUST(sfp_predictor_open(e, state[PLAIN], &small_predictor, &p, &err));
        (void)keep_predictor(p);
        sfp_learner *other = fraction_learner(e, "0.25");
        REFUSED(sfp_learner_resume(other, checkpoint[PLAIN], NULL, &err), SFP_EINVAL, "sigma is 0.5, expected 0.25");
        check_locale(i);
    }
}

TEST(a_backbone_is_read_in_every_locale)
{
    const char *state[LOCALES] = {in_directory("state-plain"), in_directory("state-comma")};
    need_locale();
    for (int i = 0; i < LOCALES; i++) {
        KEPT_IN_BLOCK;
        use_locale(i);
        sfp_engine *e = NULL;
        MUST(sfp_engine_open("models/builtin.safetensors", &one_thread, &e, &err));
        (void)keep_engine(e);
        sfp_learner *l = fraction_learner(e, "0.5");
        MUST(sfp_learner_save(l, state[i], &err)); /* it holds the mean and the deviation of colours in the backbone's file */
        check_locale(i);
    }
    check_same_bytes(state[PLAIN], state[COMMA]);
}
