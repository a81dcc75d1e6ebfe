/* Settings (streamfp.h, part 4). */
#include "world.h"

static sfp_settings *defaults(void)
{
    sfp_settings *s = NULL;
    MUST(sfp_settings_create(&s, &err));
    return keep_settings(s);
}

static const sfp_setting_info *info_of(const char *key)
{
    const sfp_setting_info *info;
    for (int i = 0; (info = sfp_settings_info(i)); i++)
        if (strcmp(info->key, key) == 0)
            return info;
    fail_msg("no setting '%s'", key);
    return NULL;
}

TEST(every_setting_is_described)
{
    const sfp_setting_info *info;
    int count = 0;
    for (; (info = sfp_settings_info(count)); count++) {
        sfp_settings *s = defaults();
        assert_true(info->key[0] && strspn(info->key, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(info->key));
        assert_true(info->help[0] && info->help[strlen(info->help) - 1] == '.');
        assert_true(info->values[0]);
        assert_true(info->group);
        assert_in_range(info->type, SFP_TYPE_FLAG, SFP_TYPE_TEXT);
        assert_in_range(info->scope, SFP_SCOPE_LEARNER, SFP_SCOPE_ENGINE);
        if (info->type == SFP_TYPE_INT || info->type == SFP_TYPE_REAL)
            assert_true(info->min < info->max);
        if (info->default_value) {
            MUST(sfp_settings_set(s, info->key, info->default_value, &err));
            assert_string_equal(sfp_settings_get(s, info->key), info->default_value);
        }
        for (int i = 0; info->name && info->name(i); i++)
            MUST(sfp_settings_set(s, info->key, info->name(i), &err));
    }
    assert_true(count > 50);
    assert_null(sfp_settings_info(count));
    assert_null(sfp_settings_info(-1));
}

TEST(scopes_name_the_users_of_a_setting)
{
    for (const char *const *key = STRINGS("sigma", "buffer", "tasks", "classes", "label-queue", "method", "preset", "seed"); *key;
         key++)
        assert_int_equal(info_of(*key)->scope, SFP_SCOPE_LEARNER);
    for (const char *const *key = STRINGS("data", "test", "order", "rate", "clock", "out", "resume", "init-state"); *key; key++)
        assert_int_equal(info_of(*key)->scope, SFP_SCOPE_RUN);
    for (const char *const *key = STRINGS("backbone", "img-size", "precision", "threads"); *key; key++)
        assert_int_equal(info_of(*key)->scope, SFP_SCOPE_ENGINE);
}

TEST(underscores_equal_hyphens)
{
    sfp_settings *s = defaults();
    MUST(sfp_settings_set(s, "buffer_size", "5", &err));
    assert_string_equal(sfp_settings_get(s, "buffer-size"), "5");
}

TEST(settings_say_what_they_change)
{
    assert_int_equal(info_of("sigma")->changes, SFP_CHANGES_RESULT | SFP_CHANGES_COST);
    assert_int_equal(info_of("order")->changes, SFP_CHANGES_RESULT);
    assert_int_equal(info_of("threads")->changes, SFP_CHANGES_COST);
    assert_int_equal(info_of("out")->changes, 0);
    assert_string_equal(info_of("half-life")->word, "off");
}

TEST(a_setting_without_effect_is_found)
{
    sfp_settings *s = defaults();
    assert_int_equal(sfp_settings_has_effect(s, "taps"), 1);
    assert_int_equal(sfp_settings_has_effect(s, "sigma"), 0); /* preset best trains nothing */
    assert_int_equal(sfp_settings_has_effect(s, "label-queue"), 0);
    assert_int_equal(sfp_settings_has_effect(s, "unknown"), 0);
    MUST(sfp_settings_set(s, "preset", "paper", &err));
    assert_int_equal(sfp_settings_has_effect(s, "taps"), 0);
    assert_int_equal(sfp_settings_has_effect(s, "sigma"), 1);
    MUST(sfp_settings_set(s, "select", "none", &err));
    assert_int_equal(sfp_settings_has_effect(s, "sigma"), 0);
    MUST(sfp_settings_set(s, "data", "stdin:", &err));
    assert_int_equal(sfp_settings_has_effect(s, "label-queue"), 1);
    assert_int_equal(sfp_settings_has_effect(s, "order"), 0);
}

TEST(wrong_values_are_refused_at_once_and_change_nothing)
{
    static const struct {
        const char *key, *value, *words;
    } list[] = {
        {"batch", "0", "batch is '0', expected a whole number from 1 to 100000"},
        {"sigma", "half", "sigma is 'half', expected a number"},
        {"lr", "-1", "lr is '-1', expected a number from 0"},
        {"seed", "18446744073709551616", "seed is"},
        {"select", "best", "select is 'best', expected one of streamfp"},
        {"buffer", "best", "buffer is 'best', expected one of streamfp"},
        {"method", "knn", "method is 'knn', expected one of ncm, slda, ridge, ranpac"},
        {"drop-rule", "alg3", "drop-rule is 'alg3', expected one of alg2|eq8"},
        {"normalise", "some", "normalise is 'some', expected one of backbone|none"},
        {"attune", "maybe", "attune is 'maybe', expected on or off"},
        {"prompt-layers", "4", "prompt-layers is '4', expected two numbers from 0 to "},
        {"prompt-layers", "4-0", "prompt-layers is '4-0', expected two numbers from 0 to "},
        {"tasks", "many", "'many', expected a number"},
        {"tasks", "3,0", "'3,0'"},
        {"rate", "fast", "rate is 'fast', expected a number from 1e-09, or max"},
        {"rate", "0", "rate is '0'"},
        {"eval-every", "0", "eval-every is '0', expected a whole number from 1 to 2147483647, or task"},
        {"queue", "-1", "queue is '-1', expected a whole number from 0 to 100000"},
        {"label-queue", "1000001", "label-queue is '1000001', expected a whole number from 0 to 1000000"},
        {"threads", "1025", "threads is '1025', expected a whole number from 0 to 1024"},
        {"data", "nowhere", "expected KIND:PATH"},
        {"data", "folder:", "folder:PATH"},
        {"test", "camera:0", "expected KIND:PATH"},
        {"classes", "-1", "classes is '-1', expected open or strict; for a learner, a whole number"},
        {"preset", "worst", "preset is 'worst', expected one of best|paper"},
        {"preset", "default", "preset is 'default', which was removed in version 0.9; use best, or paper to train fingerprints"},
        {"preset", "fast", "preset is 'fast', which was removed in version 0.9; use best, which has the same settings"},
        {"preset", "authors", "preset is 'authors', which was removed in version 0.9; use paper with drop-rule eq8"},
        {"drift", "ph", "drift is 'ph', which was removed in version 0.11; use new-class"},
        {"allocate", "queries", "allocate is 'queries', which was removed in version 0.9; use adaptive, which never trains"},
    };
    sfp_settings *s = defaults();
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const char *key = list[i].key, *before = sfp_settings_get(s, key);
        char *copy = kept_print("%s", before ? before : "");
        REFUSED_AS(list[i].words, sfp_settings_set(s, list[i].key, list[i].value, &err), SFP_EINVAL, list[i].words);
        assert_string_equal(err.key, key);
        assert_string_equal(sfp_settings_get(s, key) ? sfp_settings_get(s, key) : "", copy);
    }
}

TEST(unknown_keys_are_refused_with_a_suggestion)
{
    sfp_settings *s = defaults();
    REFUSED(sfp_settings_set(s, "sigm", "1", &err), SFP_EINVAL, "unknown setting 'sigm', did you mean 'sigma'?");
    assert_string_equal(err.key, "sigm");
    REFUSED(sfp_settings_set(s, "json", "on", &err), SFP_EINVAL, "unknown setting 'json'");
    REFUSED(sfp_settings_set(s, "", "1", &err), SFP_EINVAL, "unknown setting");
    REFUSED(sfp_settings_set(s, NULL, "1", &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_settings_set(s, "sigma", NULL, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_settings_set(s, "head", "mix", &err), SFP_EINVAL,
            "setting 'head' was removed in version 0.9; use preset paper for the trained linear head, or method NAME");
    assert_string_equal(err.key, "head");
    REFUSED(sfp_settings_set(s, "head_feed", "batch", &err), SFP_EINVAL, "was removed in version 0.9; use preset best");
    REFUSED(sfp_settings_set(s, "mix-by", "arrivals", &err), SFP_EINVAL, "was removed in version 0.9; use preset best");
    assert_null(sfp_settings_get(s, "head"));
    assert_null(sfp_settings_get(s, "json"));
    assert_null(sfp_settings_get(s, "test"));
    assert_int_equal(sfp_settings_set(s, "sigma", "x", NULL), SFP_EINVAL);
}

TEST(settings_begin_with_preset_best)
{
    static const char *const pairs[][2] = {{"preset", "best"},      {"method", "ridge"},   {"taps", "0"},
                                           {"tap-mean", "on"},      {"ridge", "balanced"}, {"img-size", "auto"},
                                           {"allocate", "adaptive"}};
    sfp_settings *s = defaults();
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_string_equal(sfp_settings_get(s, pairs[i][0]), pairs[i][1]);
}

TEST(a_preset_sets_only_unset_options)
{
    sfp_settings *s = defaults();
    MUST(sfp_settings_set(s, "ridge", "plain", &err));
    MUST(sfp_settings_set(s, "normalise", "half", &err));
    assert_string_equal(sfp_settings_get(s, "tap-mean"), "on");
    assert_string_equal(sfp_settings_get(s, "ridge"), "plain");
    MUST(sfp_settings_set(s, "preset", "paper", &err));
    assert_null(sfp_settings_get(s, "method")); /* of the preset before */
    assert_string_equal(sfp_settings_get(s, "tap-mean"), "off");
    assert_string_equal(sfp_settings_get(s, "allocate"), "fixed");
    assert_string_equal(sfp_settings_get(s, "normalise"), "half");
    MUST(sfp_settings_set(s, "preset", "best", &err));
}

TEST(preset_paper_normalises_as_the_backbone_does)
{
    assert_string_equal(sfp_settings_get(SETTINGS("preset", "paper"), "normalise"), "backbone");
}

TEST(a_preset_allocates_time_unless_the_user_divides_it)
{
    sfp_settings *s = defaults();
    for (const char *const *key = STRINGS("queue", "2", "0", "clock", "paper", "real"); *key; key += 3) {
        MUST(sfp_settings_set(s, key[0], key[1], &err));
        assert_string_equal(sfp_settings_get(s, "allocate"), "fixed");
        MUST(sfp_settings_set(s, key[0], key[2], &err));
        assert_string_equal(sfp_settings_get(s, "allocate"), "adaptive");
    }
    MUST(sfp_settings_set(s, "method", "slda", &err));
    assert_string_equal(sfp_settings_get(s, "taps"), "0");
    assert_string_equal(sfp_settings_get(s, "tap-mean"), "off"); /* only ridge has it */
}

TEST(the_clock_of_a_preset_needs_an_arrival_rate)
{
    sfp_settings *s = defaults();
    MUST(sfp_settings_set(s, "preset", "paper", &err));
    assert_null(sfp_settings_get(s, "clock"));
    assert_string_equal(sfp_settings_get(s, "calibrate"), "20");
    MUST(sfp_settings_set(s, "rate", "6028", &err)); /* in any order */
    assert_string_equal(sfp_settings_get(s, "clock"), "paper");
    assert_string_equal(sfp_settings_get(s, "calibrate"), "500");
    assert_string_equal(sfp_settings_get(s, "drop-rule"), "alg2");
    MUST(sfp_settings_set(s, "rate", "max", &err));
    assert_null(sfp_settings_get(s, "clock"));
    MUST(sfp_settings_set(s, "clock", "virtual", &err));
    MUST(sfp_settings_set(s, "rate", "300", &err));
    assert_string_equal(sfp_settings_get(s, "clock"), "virtual");
}

TEST(a_learner_refuses_settings_of_the_trained_learner_without_preset_paper)
{
    sfp_engine *e = random_engine();
    sfp_learner *l = NULL;
    REFUSED(sfp_learner_create(e, SETTINGS("select", "camel"), &l, &err), SFP_EINVAL,
            "select has no effect with method ridge: a closed-form head has no coreset, buffer, steps or fingerprints; to train "
            "fingerprints, use --preset paper without --method");
    assert_string_equal(err.key, "select");
    (void)learner_of(e, TRAINED("select", "camel"));
}

TEST(a_learner_refuses_settings_of_a_run)
{
    sfp_engine *e = random_engine();
    sfp_learner *l = NULL;
    REFUSED(sfp_learner_create(e, SETTINGS("rate", "10"), &l, &err), SFP_EINVAL,
            "rate has no effect on a learner: it is a setting of a run");
    assert_string_equal(err.key, "rate");
    REFUSED(sfp_learner_create(e, SETTINGS("tasks", "3,2", "classes", "5"), &l, &err), SFP_EINVAL,
            "tasks is '3,2', expected a whole number from 1 to 65536, or free");
    REFUSED(sfp_learner_create(e, SETTINGS("threads", "3"), &l, &err), SFP_EINVAL,
            "threads is '3', expected '1', with which the engine was opened");
    REFUSED(sfp_learner_create(e, TRAINED("prompt-layers", "0-6"), &l, &err), SFP_EINVAL,
            "prompt-layers is '0-6', expected layers up to 5");
    REFUSED(sfp_learner_create(e, SETTINGS("taps", "7"), &l, &err), SFP_EINVAL,
            "taps is 7, expected at most 6: the number of blocks of the backbone");
    assert_null(l);
    (void)learner_of(e, TRAINED("threads", "1", "tasks", "2", "classes", "4", "buffer-size", "4"));
}
