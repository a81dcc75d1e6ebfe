/* Results (streamfp.h, part 8): numbers and texts by their keys in result.json. */
#include "run_world.h"

AROUND_EACH(make_run_world, remove_directory)

static sfp_result *read_result(const char *name)
{
    sfp_result *r = NULL;
    MUST(sfp_result_read(in_directory(name), &r, &err));
    return keep_result(r);
}

/* The number behind "KEY": in a text; NaN: null. */
static double number_in(const char *text, const char *key)
{
    const char *at = strstr(text, kept_print("\"%s\":", key));
    assert_non_null(at);
    at += strlen(key) + 3;
    return strncmp(at, "null", 4) == 0 ? NAN : strtod(at, NULL);
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

TEST(numbers_are_those_of_result_json)
{
    static const char *const keys[] = {"seed",
                                       "tasks_done",
                                       "average_accuracy",
                                       "forgetting",
                                       "backward_transfer",
                                       "prequential_accuracy",
                                       "lambda",
                                       "cs",
                                       "coverage",
                                       "samples_per_second",
                                       "timestamps",
                                       "batch_seconds",
                                       "peak_rss_bytes",
                                       "machine.threads",
                                       "samples.offered",
                                       "samples.scored",
                                       "samples.trained",
                                       "samples.replayed",
                                       "samples.dropped",
                                       "samples.skipped",
                                       "labels.unlabelled",
                                       "lag.mean",
                                       "lag.max",
                                       "seconds.total",
                                       "seconds.waited",
                                       NULL};
    sfp_engine *e = random_engine();
    sfp_run *run = open_run(e, run_settings("out"), NULL);
    MUST(sfp_run_finish(run, &err));
    const sfp_result *own = sfp_run_result(run), *read = read_result("out"), *file = read_result("out/result.json");
    const char *text = file_text(in_directory("out/result.json")), *line = json_of(own);
    for (const char *const *key = keys; *key; key++) {
        const char *dot = strchr(*key, '.'), *member = dot ? dot + 1 : *key;
        const char *from = dot ? strstr(line, kept_print("\"%.*s\":", (int)(dot - *key), *key)) : line;
        assert_non_null(from);
        double x = sfp_result_number(own, *key);
        assert_true(same(x, number_in(from, member)));
        assert_true(same(x, sfp_result_number(read, *key)) && same(x, sfp_result_number(file, *key)));
    }
    char *pretty = NULL;
    MUST(sfp_result_json(read, 0, &pretty, &err));
    assert_string_equal(keep_text(pretty), text);
    assert_null(strchr(line, '\n'));
    assert_true(sfp_result_number(own, "finished") == 1);
    assert_true(sfp_result_number(own, "samples.offered") == 130);
    assert_true(sfp_result_number(own, "samples.dropped") > 0);
    sfp_run_close(run);
}

TEST(diagnostics_are_numbers_of_a_result)
{
    static const char *const keys[] = {"diagnostics.coreset_cost_ratio",
                                       "diagnostics.coreset_cost_deviation",
                                       "diagnostics.coreset_cost_within",
                                       "diagnostics.coreset_cost_random_deviation",
                                       "diagnostics.coreset_angle_ratio",
                                       "diagnostics.buffer_mmd",
                                       "diagnostics.buffer_mmd_mean",
                                       "diagnostics.stream_score_deviation",
                                       "diagnostics.gradient_cosine_fingerprints",
                                       "diagnostics.gradient_cosine_head",
                                       NULL};
    sfp_engine *e = random_engine();
    sfp_settings *s = run_settings("on");
    run_all(e, run_settings("off"));
    MUST(sfp_settings_set(s, "diagnostics", "on", &err));
    run_all(e, s);
    const sfp_result *on = read_result("on"), *off = read_result("off");
    for (const char *const *key = keys; *key; key++) {
        double x = sfp_result_number(on, *key);
        const char *from = strstr(strstr(json_of(on), "\"diagnostics\":{"), *key + strlen("diagnostics.")) - 1;
        assert_true(x > 0 && x == number_in(from, *key + strlen("diagnostics.")));
        assert_true(isnan(sfp_result_number(off, *key)));
    }
    assert_null(strstr(json_of(off), "\"diagnostics\":{"));
    assert_true(isnan(sfp_result_number(on, "diagnostics")) && isnan(sfp_result_number(on, "diagnostics.nothing")));
    assert_true(sfp_result_number(on, "timestamps") == sfp_result_number(off, "timestamps"));
    check_same_state("on", "off");
}

TEST(unknown_keys_have_no_value)
{
    sfp_engine *e = random_engine();
    run_all(e, run_settings("out"));
    const sfp_result *r = read_result("out");
    for (const char *const *key = STRINGS("", ".", "samples", "samples.", "samples.offered.x", "offered", "config",
                                          "config.sigma", "curves", "heads.linear", "heads.linear.average_accuracy", "started");
         *key; key++)
        assert_true(isnan(sfp_result_number(r, *key)));
    for (const char *const *key = STRINGS("", "config.nothing", "config", "samples.offered", "machine", "task_names"); *key;
         key++)
        assert_null(sfp_result_string(r, *key));
    assert_true(isnan(sfp_result_number(NULL, "seed")) && isnan(sfp_result_number(r, NULL)));
    assert_null(sfp_result_string(r, NULL));
}

TEST(texts_tasks_classes_and_accuracies)
{
    sfp_engine *e = random_engine();
    sfp_settings *s = run_settings("out");
    run_all(e, s);
    const sfp_result *r = read_result("out");
    assert_string_equal(sfp_result_string(r, "version"), sfp_version());
    assert_string_equal(sfp_result_string(r, "config.batch"), "10");
    assert_string_equal(sfp_result_string(r, "config.backbone"), "random");
    assert_string_equal(sfp_result_string(r, "config.threads"), "1");
    assert_int_equal(strlen(sfp_result_string(r, "started")), strlen("2025-01-02T03:04:05Z"));
    assert_non_null(sfp_result_string(r, "machine.cpu"));
    assert_int_equal(sfp_result_tasks(r), 2);
    assert_int_equal(sfp_result_classes(r), 10);
    assert_string_equal(sfp_result_task_name(r, 1), "classes 5-9");
    assert_non_null(sfp_result_class_name(r, 9));
    assert_null(sfp_result_task_name(r, 2));
    assert_null(sfp_result_task_name(r, -1));
    assert_null(sfp_result_class_name(r, 10));
    double mean = (sfp_result_accuracy(r, 1, 0) + sfp_result_accuracy(r, 1, 1)) / 2;
    assert_true(fabs(mean - sfp_result_number(r, "average_accuracy")) < 1e-12);
    assert_true(isnan(sfp_result_accuracy(r, 0, 1))); /* a task that had not begun */
    assert_true(isnan(sfp_result_accuracy(r, 2, 0)) && isnan(sfp_result_accuracy(r, 0, -1)));
}

TEST(files_that_are_not_results_are_refused)
{
    sfp_result *r = NULL;
    put_text("bad.json", "{\"score\": 7}\n");
    REFUSED(sfp_result_read(in_directory("bad.json"), &r, &err), SFP_EFORMAT, "bad.json");
    REFUSED(sfp_result_read(in_directory("missing"), &r, &err), SFP_ENOTFOUND, "missing");
    REFUSED(sfp_result_read(directory, &r, &err), SFP_ENOTFOUND, "result.json");
    REFUSED(sfp_result_read(NULL, &r, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_result_json(NULL, 0, NULL, &err), SFP_EINVAL, "must not be NULL");
    assert_null(r);
    sfp_result_free(NULL);
}

static const char *listed_runs(int limit)
{
    char *text = NULL;
    MUST(sfp_registry_list(limit, &text, &err));
    return keep_text(text);
}

/* How often `text` contains `word`. */
static int count_in(const char *text, const char *word)
{
    int n = 0;
    while ((text = strstr(text, word)) != NULL) {
        text++;
        n++;
    }
    return n;
}

TEST(the_registry_shows_and_forgets_runs_whose_directory_is_gone)
{
    sfp_engine *e = random_engine();
    int count = -1;
    char *none = NULL;
    assert_int_equal(sfp_registry_list(0, &none, &err), SFP_ENOTFOUND); /* no registry yet */
    assert_int_equal(sfp_registry_forget(NULL, NULL, &err), SFP_ENOTFOUND);
    for (const char *const *name = STRINGS("a", "b", "c"); *name; name++)
        run_all(e, SETTINGS("data", "synthetic:40", "tasks", "2", "method", "ncm", "out", in_directory(*name)));
    assert_int_equal(count_in(listed_runs(0), "\"gone\":false"), 3);
    assert_int_equal(count_in(listed_runs(2), "\"id\":"), 2);
    assert_int_equal(rename(in_directory("a"), in_directory("elsewhere")), 0);
    assert_int_equal(count_in(listed_runs(0), "\"gone\":true"), 1);
    MUST(sfp_registry_forget(NULL, &count, &err));
    assert_int_equal(count, 1);
    assert_int_equal(count_in(listed_runs(0), "\"id\":"), 2);
    MUST(sfp_registry_forget(NULL, &count, &err)); /* none is gone now */
    assert_int_equal(count, 0);
    MUST(sfp_registry_forget(in_directory("b"), &count, &err));
    assert_int_equal(count, 1);
    MUST(sfp_registry_forget("3", NULL, &err));
    assert_int_equal(count_in(listed_runs(0), "\"id\":"), 0);
    REFUSED(sfp_registry_forget("3", &count, &err), SFP_ENOTFOUND, "run 3: not in the registry");
    assert_int_equal(count, 1); /* unchanged on failure */
    (void)read_result("b");     /* files are not removed */
    assert_int_equal(sfp_registry_list(-1, &none, &err), SFP_EINVAL);
    assert_int_equal(sfp_registry_list(0, NULL, &err), SFP_EINVAL);
    assert_null(none);
}
