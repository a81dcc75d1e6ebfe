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

typedef struct watcher {
    sfp_run *run;
    int timestamps, evaluations; /* calls so far */
    int cancel_after;            /* timestamps; 0: never */
    bool in_evaluation;          /* cancel in the next evaluation */
    uint64_t offered;
    int messages[2]; /* by level */
    char last[256];
} watcher;

static void on_progress(void *ctx, const sfp_run_progress *p)
{
    watcher *w = ctx;
    assert_int_equal(p->size, sizeof *p);
    assert_true(p->task >= 0 && p->task < p->tasks && p->task_name && p->seconds >= 0);
    assert_true(p->offered >= p->offered_before && (p->total == 0 || p->offered <= p->total));
    if (p->to_evaluate) {
        w->evaluations++;
        assert_true(p->evaluated <= p->to_evaluate);
        if (w->in_evaluation)
            sfp_run_cancel(w->run);
        return;
    }
    assert_true(p->evaluated == 0 && p->offered >= w->offered);
    w->offered = p->offered;
    if (++w->timestamps == w->cancel_after)
        sfp_run_cancel(w->run);
}

static void on_log(void *ctx, sfp_log_level level, const char *message)
{
    watcher *w = ctx;
    w->messages[level]++;
    (void)snprintf(w->last, sizeof w->last, "%s", message);
}

/* Runs until it ends or is cancelled; 1: it has ended. */
static bool run_watched(sfp_engine *e, const sfp_settings *s, watcher *w)
{
    sfp_run_options o = SFP_RUN_OPTIONS_INIT;
    o.progress = on_progress;
    o.log = on_log;
    o.ctx = w;
    w->run = open_run(e, s, &o);
    MUST(sfp_run_finish(w->run, &err));
    bool finished = sfp_result_number(sfp_run_result(w->run), "finished") != 0;
    sfp_run_close(w->run);
    return finished;
}

TEST(progress_is_reported_after_timestamps_and_in_evaluations)
{
    watcher w = {0};
    assert_true(run_watched(random_engine(), run_settings("out"), &w));
    assert_true(w.timestamps >= 5 && w.evaluations >= 4); /* two evaluations begin, and both answer images */
}

TEST(messages_go_to_the_engine_unless_the_run_has_a_callback)
{
    sfp_engine_options o = one_thread;
    watcher engine = {0}, run = {0};
    sfp_engine *e = NULL;
    o.log = on_log;
    o.log_ctx = &engine;
    MUST(sfp_engine_open_random(1, &o, &e, &err));
    (void)keep_engine(e);
    const sfp_settings *s = SETTINGS("data", "synthetic:20", "tasks", "free", "out", in_directory("out"));
    run_all(e, s);
    run_all(e, s);
    assert_non_null(strstr(engine.last, "the finished run in this directory is replaced"));
    assert_int_equal(engine.messages[SFP_LOG_WARNING], 0);
    int before = engine.messages[SFP_LOG_INFO];
    (void)run_watched(e, s, &run);
    assert_true(run.messages[SFP_LOG_INFO] > 0);
    assert_int_equal(engine.messages[SFP_LOG_INFO], before);
}

/* ------------------------------------------------------------------------------------------------- cancel and resume */

static sfp_settings *resumed(const char *out)
{
    sfp_settings *s = run_settings(out);
    MUST(sfp_settings_set(s, "resume", "on", &err));
    return s;
}

TEST(a_cancelled_run_resumes_to_the_same_bytes)
{
    sfp_engine *e = random_engine();
    run_all(e, run_settings("whole"));
    watcher w = {.cancel_after = 3};
    assert_false(run_watched(e, run_settings("parts"), &w));
    assert_int_equal(w.timestamps, 3);
    w = (watcher){.in_evaluation = true};
    assert_false(run_watched(e, resumed("parts"), &w));
    assert_non_null(strstr(w.last, "resuming"));
    assert_true(run_watched(e, resumed("parts"), &(watcher){0}));
    check_same_state("whole", "parts");
    w = (watcher){0}; /* a finished run is not changed */
    assert_true(run_watched(e, resumed("parts"), &w));
    assert_int_equal(w.timestamps, 0);
    check_same_state("whole", "parts");
}

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
    sfp_engine *e = random_engine();
    int more;
    run_all(e, run_settings("whole"));
    for (int with_checkpoint = 0; with_checkpoint < 2; with_checkpoint++) {
        const char *out = with_checkpoint ? "checkpoint" : "none";
        if (with_checkpoint)
            (void)run_watched(e, run_settings(out), &(watcher){.cancel_after = 2});
        sfp_run *run = open_run(e, with_checkpoint ? resumed(out) : run_settings(out), NULL);
        for (int i = 0; i < 2; i++)
            MUST(sfp_run_step(run, &more, &err));
        sfp_run_close(run);
        assert_true(run_watched(e, resumed(out), &(watcher){0}));
        check_same_state("whole", out);
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
        o.progress = on_progress;
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

/* Images with different bytes: what follows the end of a PNG file is ignored. */
static void put_images(const char *const *names)
{
    FILE *f = fopen("docs/report.png", "rb");
    assert_non_null(f);
    char *bytes = kept_malloc(1 << 20);
    size_t size = fread(bytes, 1, (1 << 20) - 1, f);
    (void)fclose(f);
    for (int i = 0; names[i]; i++) {
        bytes[size] = (char)i;
        put_bytes(names[i], bytes, size + 1);
    }
}

/* Checks the counts in the result of a directory: corrected and forgotten samples, and those that are learned. */
static void check_standings(const char *dir, int corrected, int forgotten, int learned)
{
    sfp_result *r = NULL;
    MUST(sfp_result_read(dir, &r, &err));
    double found[] = {sfp_result_number(r, "standings.corrected"), sfp_result_number(r, "standings.forgotten"),
                      sfp_result_number(r, "standings.learned"), sfp_result_number(r, "samples.offered")};
    if (found[0] != corrected || found[1] != forgotten || found[2] != learned || found[3] != 4)
        fail_msg("%g corrected, %g forgotten, %g learned, %g offered; expected %d, %d, %d, 4", found[0], found[1], found[2], found[3],
                 corrected, forgotten, learned);
    sfp_result_free(r);
}

TEST(samples_of_a_live_run_are_corrected_and_forgotten)
{
    const char *out = in_directory("live");
    put_images(STRINGS("w/cat/1.png", "w/cat/2.png", "w/dog/3.png", "w/4.png"));
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
