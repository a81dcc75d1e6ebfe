/* The output of a run: the same numbers in every file, one line of events per timestamp for every method, and the images of
 * the report. */
#include "model/vit.h"
#include "results/registry.h"

#include "run_world.h"
#include "test.h"

#include "run_result.h"

#include <jansson.h>

AROUND_ALL(make_world, end_world)

static char *text_in(const char *run_name, const char *name)
{
    return file_text(in_directory(kept_print("%s/%s", run_name, name)));
}

/* ------------------------------------------------------------------- numbers */

TEST(every_file_has_the_same_numbers)
{
    sfp__run_options o = options("synthetic:60", "2");
    sfp_result r = run_once(&o, "numbers", 0, NULL);
    OWNED_BY(sfp__result_done) sfp_result file = {0};
    MUST(sfp__result_read(in_directory("numbers/result.json"), &file, NULL));
    OWNED_PTR(sfp__registry_close) sfp__registry *registry = NULL;
    OWNED char *registered = NULL;
    MUST(sfp__registry_open_readonly(&registry, NULL));
    MUST(sfp__registry_json(registry, o.out, &registered, NULL));
    assert_string_equal(result_text(&r), result_text(&file));
    assert_string_equal(result_text(&r), registered);
}

TEST(lag_is_null_where_nothing_can_be_late)
{
    const sfp__clock_kind clocks[] = {SFP__CLOCK_OFF, SFP__CLOCK_PAPER, SFP__CLOCK_VIRTUAL};
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        sfp__run_options o = clocked("synthetic:60", "2", clocks[i], 100);
        sfp_result r = run_once(&o, "lag", 0, NULL);
        bool late = clocks[i] == SFP__CLOCK_VIRTUAL;
        char *json = text_in("lag", "result.json"), *page = text_in("lag", "report.html");
        assert_int_equal(isfinite(r.lag.mean) && isfinite(r.lag.max) && isfinite(r.lag.last), late);
        check_parts(json, !late, STRINGS("\"lag\": {\"mean\":null, \"max\":null, \"last\":null}"));
        check_parts(page, late, STRINGS("Largest lag"));
    }
}

/* -------------------------------------------------------------------- events */

KEEP_BY(keep_json, json_t, json_decref)

/* Returns the lines of a log without their times. */
static json_t *events_of(const char *name)
{
    char *text = text_in(name, "events.jsonl");
    json_t *list = json_array();
    for (char *line = text; *line; line += strcspn(line, "\n") + 1) {
        json_t *one = json_loadb(line, strcspn(line, "\n"), JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(one);
        assert_true(json_number_value(json_object_get(json_object_get(one, "seconds"), "total")) > 0);
        assert_int_equal(json_object_del(one, "seconds"), 0);
        (void)json_array_append_new(list, one);
    }
    return keep_json(list);
}

/* Checks that a line has the samples of timestamp t in order, all of them in the coreset, as for methods without a selector. */
static void check_head_line(const json_t *line, size_t t, int task)
{
    static const char *const empty[] = {"replay", "loss", "retained", "replaced"};
    const json_t *offered = json_object_get(line, "offered"), *coreset = json_object_get(line, "coreset");
    assert_int_equal(json_integer_value(json_object_get(line, "t")), t);
    assert_int_equal(json_integer_value(json_object_get(line, "task")), task);
    assert_int_equal(json_array_size(offered), 10);
    assert_int_equal(json_array_size(coreset), 10);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(json_integer_value(json_array_get(coreset, i)), i);
    assert_true(json_is_null(json_object_get(line, "similarity")));
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
        assert_true(json_is_array(json_object_get(line, empty[i])) && json_array_size(json_object_get(line, empty[i])) == 0);
}

TEST(heads_write_one_line_per_timestamp_after_any_number_of_stops)
{
    for (const char *const *method = STRINGS("ncm", "slda", "ridge", "ranpac"); *method; method++) {
        const char *whole = kept_print("whole_%s", *method), *cut = kept_print("cut_%s", *method);
        sfp__run_options o = options("synthetic:120", "2");
        o.method = *method;
        sfp_result uninterrupted = run_once(&o, whole, 0, NULL), r;
        o.resume = true;
        while (!(r = run_once(&o, cut, 5, NULL)).finished) /* as after a kill: lines beyond the checkpoint, and a torn one */
            append_text(kept_print("%s/events.jsonl", cut), "{\"t\":10,\"task\":1,\"offered\":[3]}\n{\"t\":11,\"ta");
        json_t *want = events_of(whole), *got = events_of(cut);
        assert_int_equal(json_array_size(want), 12);
        for (size_t t = 0; t < 12; t++)
            check_head_line(json_array_get(want, t), t, t < 6 ? 0 : 1);
        assert_true(json_equal(want, got));
        same_result(&uninterrupted, &r);
        same_state(whole, cut);
    }
}

/* ------------------------------------------------------------------- images */

static size_t last_count(const json_t *events, const char *key)
{
    return json_array_size(json_object_get(json_array_get(events, json_array_size(events) - 1), key));
}

static void check_heading(const char *page, const char *title, size_t all, size_t shown)
{
    const char *text =
        shown < all ? kept_print("<h3>%s: %zu, %zu shown</h3>", title, all, shown) : kept_print("<h3>%s: %zu</h3>", title, all);
    HOLDS(page, text);
    const char *list = strstr(page, text) + strlen(text), *end = strstr(list, "</ul>");
    size_t count = 0;
    for (const char *p = list; (p = strstr(p, "<li")) && p < end; p++)
        count++;
    assert_int_equal(count, shown);
}

/* Checks that both sides are shown for a batch of any size, with the counts of the events. */
static void check_sides(sfp__run_options *o, const char *name, size_t shown_coreset, size_t shown_rest)
{
    (void)run_once(o, name, 0, NULL);
    json_t *events = events_of(name);
    char *page = text_in(name, "report.html");
    size_t offered = last_count(events, "offered"), coreset = last_count(events, "coreset");
    assert_true(offered >= shown_coreset + shown_rest);
    check_heading(page, "Trained on", coreset, shown_coreset);
    check_heading(page, "Not trained on", offered - coreset, shown_rest);
}

TEST(a_report_shows_the_coreset_and_the_rest)
{
    sfp__run_options o = options("synthetic:100", "1");
    check_sides(&o, "small", 5, 5);
    o.learner.batch = 100;
    check_sides(&o, "large", 20, 20);
    o.learner.coreset.sigma = 0.03;
    check_sides(&o, "few_taken", 3, 37);
    o.learner.coreset.sigma = 1;
    check_sides(&o, "all_taken", 40, 0);
}

TEST(a_run_resumed_at_its_end_explains_the_missing_coreset)
{
    sfp__run_options o = options("synthetic:60", "1");
    assert_false(run_once(&o, "at_the_end", 6, NULL).finished);
    o.resume = true;
    assert_true(run_once(&o, "at_the_end", 0, NULL).finished);
    char *page = text_in("at_the_end", "report.html");
    HOLDS(page, "Coreset of the last timestamp", "No batch was trained on since the run was last started or resumed");
    o = options("synthetic:60", "1");
    o.method = "ncm"; /* has no coreset */
    (void)run_once(&o, "no_coreset", 0, NULL);
    page = text_in("no_coreset", "report.html");
    LACKS(page, "Coreset of the last timestamp");
}
