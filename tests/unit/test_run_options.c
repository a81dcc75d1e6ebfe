/* The table of the settings of a run: what files record of renamed options, and which settings have no effect. */
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

TEST(reports_have_the_names_of_the_table)
{
    int renamed = 0;
    for (size_t i = 0; i < sfp__run_table_count; i++) {
        const sfp__opt *o = &sfp__run_table[i];
        char saved[64], word[64];
        renamed += o->saved || o->saved_values;
        assert_string_equal(sfp__result_option_name(sfp__opt_saved_name(o)), o->name);
        for (int k = 0; o->saved_values && *sfp__word_at(o->saved_values, k, saved, sizeof saved) && k < 4; k++)
            assert_string_equal(sfp__result_option_value(sfp__opt_saved_name(o), saved),
                                sfp__word_at(o->arg, k, word, sizeof word));
    }
    assert_int_equal(renamed, 6);
}

TEST(a_result_records_earlier_names_and_reads_them)
{
    OWNED_BY(sfp__args_done) sfp__args a = make_args();
    OWNED_BY(sfp__result_done) sfp_result r = {0};
    MUST(sfp__result_init(&r, 1, 1, &err));
    MUST(sfp__args_set(&a, "query-pass", "shared", SFP_RANK_COMMAND_LINE, "query-pass", &err));
    MUST(sfp__args_set(&a, "pending", "7", SFP_RANK_COMMAND_LINE, "pending", &err));
    MUST(sfp__args_set(&a, "data", "dir:in", SFP_RANK_COMMAND_LINE, "data", &err));
    MUST(sfp__settings_record(&a, &r, &err));
    assert_string_equal(sfp__result_value(&r, "query"), "one");
    assert_string_equal(sfp__result_value(&r, "pending"), "7");
    assert_string_equal(sfp__result_value(&r, "normalise"), "checkpoint");
    assert_string_equal(sfp__result_value(&r, "keep"), "pixels");
    assert_null(sfp__result_value(&r, "query-pass"));
    assert_null(sfp__result_value(&r, "classes"));
    MUST(sfp__settings_same(&a, "run/checkpoint", &r, false, &err));
    MUST(sfp__args_set(&a, "data", "watch:in", SFP_RANK_COMMAND_LINE, "data", &err));
    MUST(sfp__settings_same(&a, "run/checkpoint", &r, false, &err));
    MUST(sfp__args_set(&a, "query-pass", "separate", SFP_RANK_COMMAND_LINE, "query-pass", &err));
    REFUSED(sfp__settings_same(&a, "run/checkpoint", &r, false, &err), SFP_EINVAL, "query-pass");
    HOLDS(err.message, "shared", "separate");
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
