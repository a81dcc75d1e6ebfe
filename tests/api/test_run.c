/* Runs (streamfp.h, part 8): a run ends in the same bytes whether it is stepped, cancelled and resumed, or closed early. */
#include "run_world.h"

#include <signal.h>

AROUND_EACH(make_run_world, remove_directory)

/* -------------------------------------------------------------------------------------------------------------- steps */

TEST(steps_end_in_the_bytes_of_one_go)
{
    sfp_engine *e = random_engine();
    run_all(e, run_settings("whole"));
    sfp_run *run = open_run(e, run_settings("steps"), NULL);
    int more = 1, steps = 0;
    for (; more; steps++) {
        assert_true(sfp_result_number(sfp_run_result(run), "finished") == 0);
        MUST(sfp_run_step(run, &more, &err));
    }
    assert_true(steps >= 7); /* at most one timestamp each */
    assert_true(sfp_result_number(sfp_run_result(run), "finished") == 1);
    MUST(sfp_run_step(run, &more, &err)); /* after the end, a step does nothing */
    assert_int_equal(more, 0);
    sfp_run_close(run);
    check_same_state("whole", "steps");
    check_same_bytes(in_directory("whole/state-task-1.safetensors"), in_directory("steps/state-task-1.safetensors"));
}

TEST(a_run_without_directory_writes_no_files)
{
    sfp_run *run = open_run(random_engine(), SETTINGS("data", "synthetic:20", "tasks", "free"), NULL);
    MUST(sfp_run_finish(run, &err));
    assert_true(sfp_result_number(sfp_run_result(run), "samples.offered") == 20);
    sfp_run_close(run);
    assert_false(file_exists("runs.db"));
    sfp_run_close(NULL);
}

/* ----------------------------------------------------------------------------------------------------------- progress */

TEST(progress_is_reported_after_timestamps_and_in_evaluations)
{
    watcher w = {0};
    assert_true(is_finished(run_watched(run_settings("out"), &w)));
    assert_true(w.timestamps >= 5);
    assert_int_equal(w.evaluations, 2);
}

TEST(messages_go_to_the_engine_unless_the_run_has_a_callback)
{
    sfp_engine_options o = one_thread;
    watcher engine = {0}, own = {0};
    sfp_run_options ro = SFP_RUN_OPTIONS_INIT;
    sfp_engine *e = NULL;
    o.log = watch_log;
    o.log_ctx = &engine;
    MUST(sfp_engine_open_random(1, &o, &e, &err));
    (void)keep_engine(e);
    const sfp_settings *s = INTO("out", "data", "synthetic:20", "tasks", "free");
    run_all(e, s);
    run_all(e, s);
    HOLDS(engine.last, "out: the finished run in this directory is replaced");
    assert_int_equal(engine.messages[SFP_LOG_WARNING], 0);
    int before = engine.messages[SFP_LOG_INFO];
    ro.log = watch_log;
    ro.ctx = &own;
    sfp_run *run = open_run(e, s, &ro);
    MUST(sfp_run_finish(run, &err));
    sfp_run_close(run);
    assert_true(own.messages[SFP_LOG_INFO] > 0);
    assert_int_equal(engine.messages[SFP_LOG_INFO], before);
}

/* ------------------------------------------------------------------------------------------------- cancel and resume */

static sfp_run *signalled;

static void on_signal(int number)
{
    (void)number;
    sfp_run_cancel(signalled);
}

static void raise_signal(void *ctx, const sfp_run_progress *p)
{
    (void)ctx;
    (void)p;
    assert_int_equal(raise(SIGUSR1), 0);
}

TEST(a_signal_handler_may_cancel)
{
    struct sigaction before;
    const struct sigaction action = {.sa_handler = on_signal};
    sfp_run_options o = SFP_RUN_OPTIONS_INIT;
    o.progress = raise_signal;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    signalled = open_run(random_engine(), run_settings("out"), &o);
    MUST(sfp_run_finish(signalled, &err));
    assert_true(sfp_result_number(sfp_run_result(signalled), "finished") == 0);
    assert_true(sfp_result_number(sfp_run_result(signalled), "samples.offered") > 0);
    sfp_run_close(signalled);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
}

TEST(a_run_that_is_closed_early_can_be_resumed)
{
    const char *const pairs[] = {PAPER, "data", "synthetic:130", "tasks", "2", "eval-limit", "4", NULL};
    const sfp_result *whole = run_once(run_into("whole", false, pairs));
    for (int with_checkpoint = 0; with_checkpoint < 2; with_checkpoint++) {
        const char *out = with_checkpoint ? "checkpoint" : "none";
        int more;
        if (with_checkpoint)
            (void)run_watched(run_into(out, false, pairs), &(watcher){.cancel_after = 2});
        sfp_run *run = open_run(any_engine(), run_into(out, with_checkpoint, pairs), NULL);
        for (int i = 0; i < 2; i++)
            MUST(sfp_run_step(run, &more, &err));
        sfp_run_close(run);
        check_same_runs("whole", whole, out, run_once(run_into(out, true, pairs)));
    }
}

TEST(nothing_changes_before_the_first_sample)
{
    sfp_engine *e = random_engine();
    sfp_run_close(open_run(e, run_settings("a/b/new"), NULL));
    assert_false(file_exists("a")); /* the directories that it created are removed */
    run_all(e, run_settings("done"));
    size_t before, after;
    const uint8_t *old = bytes_of(in_directory("done/result.json"), &before);
    sfp_run *run = open_run(e, run_settings("done"), NULL);
    sfp_run_cancel(run);
    MUST(sfp_run_finish(run, &err));
    sfp_run_close(run);
    const uint8_t *new = bytes_of(in_directory("done/result.json"), &after);
    assert_int_equal(before, after);
    assert_memory_equal(old, new, before);
}

/* ------------------------------------------------------------------------------------------------------- own sources */

static const char *const two_names[] = {"dark", "bright"};

TEST(a_run_learns_from_sources_of_the_program)
{
    flat_dataset *stream = make_flat(60, two_names), *test = make_flat(20, two_names);
    for (int resume = 0; resume < 2; resume++) {
        sfp_run_options o = SFP_RUN_OPTIONS_INIT;
        watcher w = {.cancel_after = resume ? 0 : 2};
        o.source = source_of(stream, "camera");
        o.test = source_of(test, "held-out");
        o.progress = watch_progress;
        o.ctx = &w;
        sfp_settings *s = SETTINGS("tasks", "free", "out", in_directory("own"), "resume", resume ? "on" : "off");
        w.run = open_run(random_engine(), s, &o);
        MUST(sfp_run_finish(w.run, &err));
        const sfp_result *r = sfp_run_result(w.run);
        assert_true(sfp_result_number(r, "finished") == resume);
        assert_string_equal(sfp_result_string(r, "config.data"), "camera");
        assert_string_equal(sfp_result_string(r, "config.test"), "held-out");
        if (resume) {
            assert_true(sfp_result_number(r, "samples.offered") == 60);
            assert_true(sfp_result_number(r, "average_accuracy") >= 0.5);
            assert_string_equal(sfp_result_class_name(r, 1), "bright");
        }
        sfp_run_close(w.run);
        assert_int_equal(stream->closes, resume + 1);
        assert_int_equal(test->closes, resume + 1);
    }
}

/* ------------------------------------------------------------------------------------------------------- numbers */

#define SYNTHETIC(n) PAPER, "eval-limit", "4", "data", "synthetic:" #n

TEST(evaluations_are_recorded_and_change_nothing)
{
    static const char *const places[] = {
        "[{\"offered\":30,\"task\":0,", ",{\"offered\":60,\"task\":0,", ",{\"offered\":95,\"task\":1,",
        ",{\"offered\":125,\"task\":1,"}; /* 6 batches per task, whose last 5 samples are excluded */
    watcher w = {0};
    const sfp_result *r = run_watched(INTO("out", SYNTHETIC(130), "tasks", "2", "eval-every", "3"), &w);
    const char *at = strstr(json_of(r), "\"evaluations\":[");
    for (int i = 0; i < 4; i++) {
        at = strstr(at, places[i]);
        assert_non_null(at);
    }
    assert_null(strstr(at + 2, ",{\"offered\":"));
    double average = number_of(r, "average_accuracy");
    assert_true(strtod(strstr(at, "\"average\":") + strlen("\"average\":"), NULL) == average);
    assert_int_equal(w.evaluations, 4); /* the same state is not evaluated twice */
    check_numbers(run_once(INTO("without", SYNTHETIC(130), "tasks", "2")), "average_accuracy", average);
    check_same_state("out", "without");
}

TEST(paper_clock_measures_a_first_task_of_few_batches)
{
    const sfp_result *r = run_once(INTO("out", SYNTHETIC(100), "tasks", "5", "clock", "paper", "rate", "1e9"));
    assert_true(number_of(r, "cs") > 1); /* 0 if nothing was measured */
    check_numbers(r, "samples.dropped", 50);
}

TEST(one_class_and_a_batch_larger_than_the_data)
{
    put_images("images", 1, false);
    const char *data = kept_print("folder:%s", in_directory("images"));
    for (const char *const *method =
             STRINGS("preset", "paper", "method", "ncm", "method", "slda", "method", "ridge", "method", "ranpac");
         *method; method += 2) {
        const sfp_result *r =
            run_once(INTO(method[1], "data", data, "test", data, "tasks", "1", "batch", "64", method[0], method[1]));
        check_numbers(r, "samples.offered", 12);
        check_numbers(r, "samples.dropped", 0);
        check_numbers(r, "average_accuracy", 1);
        check_numbers(r, "coverage", 1);
    }
}

TEST(few_timestamps_have_no_mean_time)
{
    for (int five = 0; five < 2; five++) {
        const char *data = five ? "synthetic:50" : "synthetic:30";
        const sfp_result *r = run_once(INTO(five ? "five" : "three", PAPER, "data", data, "tasks", "free"));
        check_numbers(r, "timestamps", five ? 5 : 3);
        assert_int_equal(number_of(r, "batch_seconds") > 0, five);
    }
}

/* ------------------------------------------------------------------------------------------------------- reports */

/* Checks a heading and the number of images below it. */
static void check_sheet(const char *page, const char *title, int all, int shown)
{
    const char *text =
        shown < all ? kept_print("<h3>%s: %d, %d shown</h3>", title, all, shown) : kept_print("<h3>%s: %d</h3>", title, all);
    HOLDS(page, text);
    const char *list = strstr(page, text) + strlen(text), *end = strstr(list, "</ul>");
    int count = 0;
    for (const char *p = list; (p = strstr(p, "<li")) && p < end; p++)
        count++;
    assert_int_equal(count, shown);
}

TEST(a_report_shows_the_coreset_and_the_rest)
{
    static const struct {
        const char *batch, *sigma;
        int coreset, rest, shown_coreset, shown_rest;
    } cases[] = {
        {"10", "0.5", 5, 5, 5, 5}, {"100", "0.5", 50, 50, 20, 20}, {"100", "0.03", 3, 97, 3, 37}, {"100", "1", 100, 0, 40, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        (void)run_once(INTO("out", SYNTHETIC(100), "tasks", "1", "batch", cases[i].batch, "sigma", cases[i].sigma));
        const char *page = file_text(in_directory("out/report.html"));
        check_sheet(page, "Trained on", cases[i].coreset, cases[i].shown_coreset);
        check_sheet(page, "Not trained on", cases[i].rest, cases[i].shown_rest);
    }
}

TEST(a_run_resumed_at_its_end_explains_the_missing_coreset)
{
    watcher w = {.cancel_after = 6};
    assert_false(is_finished(run_watched(INTO("out", SYNTHETIC(60), "tasks", "1"), &w)));
    (void)run_once(RESUME("out", SYNTHETIC(60), "tasks", "1"));
    HOLDS(file_text(in_directory("out/report.html")), "Coreset of the last timestamp",
          "No batch was trained on since the run was last started or resumed");
    (void)run_once(INTO("ncm", "data", "synthetic:60", "tasks", "1", "method", "ncm")); /* has no coreset */
    LACKS(file_text(in_directory("ncm/report.html")), "Coreset of the last timestamp");
}

/* ------------------------------------------------------------------------------- the default learner */

enum { LEARNED = 90, ASKED = 40 };

/* Offers the first LEARNED images of the source, in batches of the default size. */
static void offer_source(sfp_learner *l, const sfp_source *s)
{
    for (int64_t from = 0; from < LEARNED; from += 20) {
        sfp_sample samples[20] = {0};
        int n = 0;
        for (; n < 20 && from + n < LEARNED; n++) {
            sfp_record record;
            MUST(sfp_source_read(s, from + n, &record, &samples[n].image, &err));
            samples[n].label = record.label;
            samples[n].id = (uint64_t)(from + n);
        }
        MUST(sfp_learner_offer(l, n, samples, NULL, &err));
        for (int i = 0; i < n; i++)
            sfp_source_release(s, &samples[i].image);
    }
}

TEST(the_default_learner_predicts_as_a_run_on_the_same_samples)
{
    sfp_engine *e = random_engine();
    sfp_settings *s = NULL;
    sfp_source *source = NULL, *asked = NULL;
    sfp_predictor *p[2] = {NULL};
    MUST(sfp_settings_create(&s, &err));
    (void)keep_settings(s);
    for (const char *const *pair =
             STRINGS("data", kept_print("synthetic:%d", LEARNED), "tasks", "free", "within", "given", "out", in_directory("run"));
         *pair; pair += 2)
        MUST(sfp_settings_set(s, pair[0], pair[1], &err));
    run_all(e, s);
    MUST(sfp_source_open(kept_print("synthetic:%d", LEARNED), NULL, &source, &err));
    MUST(sfp_source_open("synthetic:200", NULL, &asked, &err));
    sfp_learner *l = learner_of(e, NULL);
    offer_source(l, source);
    MUST(sfp_predictor_create(l, NULL, &p[0], &err));
    MUST(sfp_predictor_open(e, in_directory("run"), NULL, &p[1], &err));
    sfp_prediction answer[2][ASKED];
    for (int64_t i = 0; i < ASKED; i++) {
        sfp_record record;
        sfp_image image;
        MUST(sfp_source_read(asked, 160 + i, &record, &image, &err));
        for (int k = 0; k < 2; k++)
            MUST(sfp_predictor_run(p[k], 1, &image, &answer[k][i], &err));
        sfp_source_release(asked, &image);
        assert_int_equal(answer[0][i].label, answer[1][i].label);
        assert_true(answer[0][i].probability == answer[1][i].probability);
        assert_memory_equal(sfp_predictor_scores(p[0]), sfp_predictor_scores(p[1]),
                            (size_t)sfp_predictor_classes(p[0]) * sizeof(float));
    }
    for (int k = 0; k < 2; k++)
        sfp_predictor_free(p[k]);
    sfp_source_close(source);
    sfp_source_close(asked);
}

static sfp_status live_next(void *ctx, sfp_live_item *item, int *got, int *end, sfp_error *why)
{
    static uint8_t rgb[3 * 8 * 8];
    int *n = ctx;
    (void)why;
    *end = *n == 25;
    *got = !*end;
    if (*end)
        return SFP_OK;
    memset(rgb, *n % 2 ? 180 : 20, sizeof rgb);
    *item = (sfp_live_item){.image = {.format = SFP_IMAGE_RGB, .width = 8, .height = 8, .data = rgb},
                            .class_name = *n % 5 == 4 ? NULL : two_names[*n % 2]};
    ++*n;
    return SFP_OK;
}

TEST(a_run_learns_from_a_live_source_of_the_program)
{
    int n = 0;
    sfp_source_definition d = SFP_SOURCE_DEFINITION_INIT;
    sfp_run_options o = SFP_RUN_OPTIONS_INIT;
    d.name = "feed";
    d.ctx = &n;
    d.count = -1;
    d.next = live_next;
    MUST(sfp_source_create(&d, &o.source, &err));
    sfp_run *run = open_run(random_engine(), SETTINGS("out", in_directory("live")), &o);
    MUST(sfp_run_finish(run, &err));
    const sfp_result *r = sfp_run_result(run);
    assert_true(sfp_result_number(r, "samples.offered") == 25);
    assert_true(sfp_result_number(r, "standings.learned") == 20);
    assert_true(sfp_result_number(r, "labels.unlabelled") == 5);
    assert_int_equal(sfp_result_classes(r), 2);
    sfp_run_close(run);
    assert_true(file_exists("live/predictions.jsonl"));
}

/* Checks the counts in the result of a directory: corrected and forgotten samples, and those that are learned. */
static void check_standings(const char *dir, int corrected, int forgotten, int learned)
{
    sfp_result *r = NULL;
    MUST(sfp_result_read(dir, &r, &err));
    double found[] = {sfp_result_number(r, "standings.corrected"), sfp_result_number(r, "standings.forgotten"),
                      sfp_result_number(r, "standings.learned"), sfp_result_number(r, "samples.offered")};
    if (found[0] != corrected || found[1] != forgotten || found[2] != learned || found[3] != 4)
        fail_msg("%g corrected, %g forgotten, %g learned, %g offered; expected %d, %d, %d, 4", found[0], found[1], found[2],
                 found[3], corrected, forgotten, learned);
    sfp_result_free(r);
}

TEST(samples_of_a_live_run_are_corrected_and_forgotten)
{
    const char *out = in_directory("live");
    for (const char *const *name = STRINGS("w/cat/1.png", "w/cat/2.png", "w/dog/3.png", "w/4.png"); *name; name++)
        put_image(*name, (*name)[strlen(*name) - 5]);
    put_text("w/.end", "");
    sfp_settings *s = SETTINGS("data", kept_print("watch:%s", in_directory("w")), "out", out);
    sfp_engine *e = NULL;
    MUST(sfp_engine_open_for(s, NULL, NULL, &e, &err)); /* a later process opens the same one */
    run_all(e, s);
    sfp_engine_close(e);
    check_standings(out, 0, 0, 3);
    MUST(sfp_run_correct(out, "cat/1.png", "dog", &err));
    check_standings(out, 1, 0, 3);
    MUST(sfp_run_correct(out, in_directory("w/4.png"), "cat", &err)); /* a late label, by the path of the image */
    check_standings(out, 1, 0, 4);
    MUST(sfp_run_forget(out, "cat/2.png", &err));
    check_standings(out, 1, 1, 3);
    REFUSED(sfp_run_forget(out, "cat/2.png", &err), SFP_ENOTFOUND, "cat/2.png: not a sample of");
    REFUSED(sfp_run_correct(out, "nobody.png", "cat", &err), SFP_ENOTFOUND, "nobody.png: not a sample of");
    REFUSED(sfp_run_correct(directory, "cat/1.png", "cat", &err), SFP_ENOTFOUND, "no samples of a live run");
    REFUSED(sfp_run_correct(out, "cat/1.png", "", &err), SFP_EINVAL, "label is empty");
    REFUSED(sfp_run_correct(out, NULL, "cat", &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_run_forget(NULL, "cat/1.png", &err), SFP_EINVAL, "must not be NULL");
    check_standings(out, 1, 1, 3);
    MUST(sfp_run_rename_class(out, "dog", "hound", 0, &err));
    check_standings(out, 2, 1, 3);
    REFUSED(sfp_run_rename_class(out, "dog", "wolf", 0, &err), SFP_ENOTFOUND, "class 'dog' has no samples");
    REFUSED(sfp_run_rename_class(out, "cat", "hound", 0, &err), SFP_EINVAL, "class 'hound' exists");
    REFUSED(sfp_run_rename_class(out, "cat", "owl", 1, &err), SFP_EINVAL, "class 'owl' has no samples");
    REFUSED(sfp_run_rename_class(NULL, "cat", "owl", 1, &err), SFP_EINVAL, "must not be NULL");
    MUST(sfp_run_remove_class(out, "hound", &err));
    check_standings(out, 0, 3, 1);
    REFUSED(sfp_run_remove_class(out, "hound", &err), SFP_ENOTFOUND, "class 'hound' has no samples");
}

/* -------------------------------------------------------------------------------------------------------------- errors */

TEST(a_run_that_cannot_start_is_refused_and_its_sources_are_closed)
{
    sfp_engine *e = random_engine();
    flat_dataset *d = make_flat(20, two_names);
    sfp_run *run = NULL;
    sfp_run_options o = SFP_RUN_OPTIONS_INIT;
    o.source = source_of(d, "camera");
    REFUSED(sfp_run_open(NULL, NULL, &o, &run, &err), SFP_EINVAL, "must not be NULL");
    assert_int_equal(d->closes, 1);
    o.source = source_of(d, "camera");
    REFUSED(sfp_run_open(e, SETTINGS("threads", "7"), &o, &run, &err), SFP_EINVAL, "threads is '7'");
    assert_string_equal(err.key, "threads");
    assert_int_equal(d->closes, 2);
    o.source = source_of(d, "camera");
    REFUSED(sfp_run_open(e, SETTINGS("tasks", "7"), &o, &run, &err), SFP_EINVAL, "tasks");
    assert_int_equal(d->closes, 3);
    o.source = o.test = source_of(d, "camera");
    REFUSED(sfp_run_open(e, NULL, &o, &run, &err), SFP_EINVAL, "source and test are the same object");
    assert_int_equal(d->closes, 4);
    o.source = o.test = NULL;
    REFUSED(sfp_run_open(e, SETTINGS("data", "synthetic:20", "resume", "on"), &o, &run, &err), SFP_EINVAL, "resume");
    REFUSED(sfp_run_open(e, SETTINGS("data", "folder:missing", "out", in_directory("new")), &o, &run, &err), SFP_ENOTFOUND,
            "missing");
    assert_false(file_exists("new"));
    assert_null(run);
    o.size = 0;
    REFUSED(sfp_run_open(e, NULL, &o, &run, &err), SFP_EINVAL, "sfp_run_options");
    REFUSED(sfp_run_step(NULL, NULL, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_run_finish(NULL, &err), SFP_EINVAL, "must not be NULL");
}

/* -------------------------------------------------------------------------------------------- batches and their time */

TEST(a_run_knows_its_batches)
{
    int64_t samples = -1, sum = 0;
    sfp_run *run = open_run(random_engine(), SETTINGS("data", "synthetic:50", "tasks", "2", "batch", "8"), NULL);
    for (int t = 0; t < 2; t++) {
        assert_true(sfp_run_batches(run, t, &samples) > 0);
        assert_int_equal(sfp_run_batches(run, t, NULL), (samples + 7) / 8);
        sum += samples;
    }
    int64_t all = sfp_run_batches(run, -1, &samples);
    assert_int_equal(samples, sum);
    assert_int_equal(all, sfp_run_batches(run, 0, NULL) + sfp_run_batches(run, 1, NULL));
    assert_int_equal(sfp_run_batches(run, 2, &samples), 0);
    assert_int_equal(samples, 0);
    assert_int_equal(sfp_run_batches(run, -2, NULL), 0);
    sfp_run_close(run);
}

TEST(measuring_does_not_change_the_run)
{
    sfp_engine *e = random_engine();
    double seconds = 0;
    run_all(e, run_settings("plain"));
    sfp_run *run = open_run(e, run_settings("measured"), NULL);
    MUST(sfp_run_measure(run, &seconds, &err));
    assert_true(seconds > 0 && seconds < 60);
    MUST(sfp_run_finish(run, &err));
    sfp_run_close(run);
    check_same_state("plain", "measured");
}

TEST(measuring_after_the_first_step_is_refused)
{
    sfp_run *run = open_run(random_engine(), run_settings("run"), NULL);
    double seconds;
    int more;
    MUST(sfp_run_step(run, &more, &err));
    REFUSED(sfp_run_measure(run, &seconds, &err), SFP_EINVAL, "before the first step");
    sfp_run_close(run);
}
