/* The table of the settings of a run: what results record, and which settings have no effect. */
#include "run/options.h"

#include "results/result.h"
#include "run/run_internal.h"
#include "test.h"

static sfp__args make_args(void)
{
    sfp__args a;
    MUST(sfp__args_init(&a, "run", sfp__run_table, sfp__run_table_count, &err));
    return a;
}

TEST(a_result_records_settings_and_compares_them)
{
    OWNED_BY(sfp__args_done) sfp__args a = make_args();
    OWNED_BY(sfp__result_done) sfp_result r = {0};
    MUST(sfp__result_init(&r, 1, 1, &err));
    MUST(sfp__args_set(&a, "prefix", "raw", SFP_RANK_COMMAND_LINE, "prefix", &err));
    MUST(sfp__args_set(&a, "data", "dir:in", SFP_RANK_COMMAND_LINE, "data", &err));
    MUST(sfp__settings_record(&a, &r, &err));
    assert_string_equal(sfp__result_value(&r, "prefix"), "raw");
    assert_null(sfp__result_value(&r, "classes"));
    MUST(sfp__settings_same(&a, "run/checkpoint", &r, false, &err));
    MUST(sfp__args_set(&a, "data", "watch:in", SFP_RANK_COMMAND_LINE, "data", &err));
    MUST(sfp__settings_same(&a, "run/checkpoint", &r, false, &err));
    MUST(sfp__args_set(&a, "prefix", "projected", SFP_RANK_COMMAND_LINE, "prefix", &err));
    REFUSED(sfp__settings_same(&a, "run/checkpoint", &r, false, &err), SFP_EINVAL, "prefix");
    HOLDS(err.message, "raw", "projected");
}

TEST(a_copy_has_the_same_values_and_origins)
{
    OWNED_BY(sfp__args_done) sfp__args a = make_args(), copy = {0};
    MUST(sfp__args_set(&a, "sigma", "0.25", SFP_RANK_FILE, "run.yaml:1: sigma", &err));
    MUST(sfp__args_copy(&a, &copy, &err));
    for (size_t i = 0; i < a.count; i++) {
        const sfp__opt *o = &a.opts[i];
        if (o->type == SFP_OPT_GROUP)
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
    MUST(sfp__run_set(&a, "method", "ncm", SFP_RANK_COMMAND_LINE, "method", &err));
    MUST(sfp__run_set(&a, "buffer-size", "5", SFP_RANK_COMMAND_LINE, "buffer-size", &err));
    MUST(sfp__run_set(&a, "batch", "5", SFP_RANK_COMMAND_LINE, "batch", &err));
    assert_true(sfp__run_has_no_effect(&a, "buffer-size", beside, sizeof beside));
    assert_string_equal(beside, "method");
    assert_false(sfp__run_has_no_effect(&a, "batch", beside, sizeof beside));
    assert_false(sfp__run_has_no_effect(&a, "sigma", beside, sizeof beside)); /* not given */
}
