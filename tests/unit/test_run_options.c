/* The table of the settings of a run: what results record, where values are stored, and which settings have no effect. */
#include "run/options.h"

#include "results/result.h"
#include "run/run_internal.h"
#include "test.h"

#include <math.h>

static sfp__args make_args(void)
{
    sfp__args a;
    MUST(sfp__args_init(&a, "run", sfp__run_table, sfp__run_table_count, &err));
    return a;
}

TEST(a_result_records_settings_and_a_resumed_run_has_the_same)
{
    OWNED_BY(sfp__args_done) sfp__args a = make_args();
    OWNED_BY(sfp__result_done) sfp_result r = {0};
    MUST(sfp__result_init(&r, 1, 1, &err));
    MUST(sfp__args_set(&a, "sigma", "0.25", SFP__RANK_COMMAND_LINE, "sigma", &err));
    MUST(sfp__args_set(&a, "data", "dir:in", SFP__RANK_COMMAND_LINE, "data", &err));
    MUST(sfp__settings_record(&a, &r, &err));
    assert_string_equal(sfp__result_value(&r, "sigma"), "0.25");
    assert_string_equal(sfp__result_value(&r, "normalise"), "backbone");
    assert_null(sfp__result_value(&r, "classes")); /* which is not saved */
    MUST(sfp__settings_same(&a, "run/checkpoint", &r, false, &err));
    MUST(sfp__args_set(&a, "data", "watch:in", SFP__RANK_COMMAND_LINE, "data", &err)); /* the same kind */
    MUST(sfp__args_set(&a, "sigma", ".25", SFP__RANK_COMMAND_LINE, "sigma", &err));
    MUST(sfp__settings_same(&a, "run/checkpoint", &r, false, &err));
    MUST(sfp__args_set(&a, "sigma", "0.5", SFP__RANK_COMMAND_LINE, "sigma", &err));
    REFUSED(sfp__settings_same(&a, "run/checkpoint", &r, false, &err), SFP_EINVAL, "sigma");
    HOLDS(err.message, "0.25", "0.5");
}

/* Every row whose place is in the options of a run: what is stored is printed as it was set. */
TEST(values_are_stored_in_their_place_and_printed_from_there)
{
    static const struct {
        const char *key, *text, *printed;
    } list[] = {{"sigma", "0.25", "0.25"},
                {"lr", "1e-2", "0.00999999978"},
                {"batch", "1e2", "100"},
                {"attune", "no", "off"},
                {"drop-rule", "eq8", "eq8"},
                {"ridge", "balanced", "balanced"},
                {"half-life", "off", "off"},
                {"half-life", "5e3", "5000"},
                {"prompt-layers", "1-3", "1-3"},
                {"select", "craig", "craig"},
                {"rate", "max", "max"},
                {"eval-every", "task", "task"},
                {"seed", "9223372036854775807", "9223372036854775807"},
                {"queue-policy", "block", "block"}};
    OWNED_BY(sfp__args_done) sfp__args a = make_args();
    sfp__run_options o = {0};
    char text[64];
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        MUST(sfp__args_set(&a, list[i].key, list[i].text, SFP__RANK_COMMAND_LINE, list[i].key, &err));
        sfp__args_store(&a, &o);
        assert_string_equal(sfp__opt_print(sfp__args_find(&a, list[i].key), &o, text, sizeof text), list[i].printed);
    }
    assert_true(isnan(o.max_wait)); /* was not set */
}

TEST(a_copy_has_the_same_values_and_origins)
{
    OWNED_BY(sfp__args_done) sfp__args a = make_args(), copy = {0};
    MUST(sfp__args_set(&a, "sigma", "0.25", SFP__RANK_FILE, "run.yaml:1: sigma", &err));
    MUST(sfp__args_copy(&a, &copy, &err));
    for (size_t i = 0; i < a.count; i++) {
        const sfp__opt *o = &a.opts[i];
        if (o->type == SFP__OPT_GROUP)
            continue;
        const char *x = sfp__args_value(&a, o->name), *y = sfp__args_value(&copy, o->name);
        assert_true(x == y || strcmp(x, y) == 0);
        assert_int_equal(sfp__args_rank(&a, o->name), sfp__args_rank(&copy, o->name));
    }
    (void)sfp__fail_key(&err, "sigma", SFP_EINVAL, "sigma is bad");
    assert_true(sfp__args_add_origin(&copy, &err));
    assert_string_equal(err.message, "run.yaml:1: sigma is bad");
}

TEST(a_setting_without_effect_names_the_one_that_takes_it_away)
{
    OWNED_BY(sfp__args_done) sfp__args a = make_args();
    char beside[32];
    MUST(sfp__run_set(&a, "method", "ncm", SFP__RANK_COMMAND_LINE, "method", &err));
    MUST(sfp__run_set(&a, "buffer-size", "5", SFP__RANK_COMMAND_LINE, "buffer-size", &err));
    MUST(sfp__run_set(&a, "batch", "5", SFP__RANK_COMMAND_LINE, "batch", &err));
    assert_true(sfp__run_has_no_effect(&a, "buffer-size", beside, sizeof beside));
    assert_string_equal(beside, "method");
    assert_false(sfp__run_has_no_effect(&a, "batch", beside, sizeof beside));
    assert_true(sfp__run_has_no_effect(&a, "sigma", beside, sizeof beside)); /* also if it was not given */
}
