/* Runs that are stopped and resumed, and directories that have files already (streamfp.h, part 8).
 *
 * No thread sanitizer: test_run.c stops and resumes runs on the same threads. */
#include "run_world.h"

#include <sys/stat.h>

AROUND_EACH(make_run_world, remove_directory)

/* -------------------------------------------------------------- a stopped run ends in the bytes of an uninterrupted one */

/* Stops a run after every few timestamps. The log then has lines beyond the checkpoint, and a torn one, as after a kill. */
static void stop_between_timestamps(const char *const *pairs, int every, const sfp_result *whole)
{
    const char *log = "between/events.jsonl";
    const sfp_result *r = NULL;
    for (int stops = 0; !r || !is_finished(r); stops++) {
        assert_true(stops < 200);
        r = run_watched(run_into("between", true, pairs), &(watcher){.cancel_after = every});
        if (!is_finished(r) && file_exists(log))
            append_text(log, "{\"t\":90,\"task\":1,\"offered\":[3]}\n{\"t\":91,\"ta");
    }
    check_same_runs("whole", whole, "between", r);
}

/* Stops a run in its evaluations: every process repeats the evaluation that the one before cancelled, and is stopped in the next. */
static void stop_in_evaluations(const char *const *pairs, const sfp_result *whole, int evaluations)
{
    const sfp_result *r = NULL;
    int processes = 0;
    for (; !r || !is_finished(r); processes++) {
        watcher w = {.cancel_in = 1 + (processes > 0), .when = processes % WAYS};
        assert_true(processes < 100);
        r = run_watched(run_into("within", true, pairs), &w);
        assert_true(is_finished(r) || w.cancelled);
        assert_int_equal(w.answered_later, 0);
        double seen = number_of(r, "samples.closed_form") + number_of(r, "samples.scored");
        assert_true(seen > 0); /* the counts add up, also of a stopped run */
        check_numbers(r, "samples.offered", seen + number_of(r, "samples.dropped") + number_of(r, "samples.skipped"));
        if (processes == 0) {
            check_numbers(r, "tasks_done", 0);
            assert_true(isnan(number_of(r, "average_accuracy")) && isnan(sfp_result_accuracy(r, 0, 0)));
            HOLDS(json_of(r), "\"evaluations\":[]");
        }
    }
    assert_true(processes > evaluations / 2);
    check_same_runs("whole", whole, "within", r);
}

static void check_stops(const char *const *pairs, int every)
{
    watcher w = {0};
    const sfp_result *whole = run_watched(run_into("whole", false, pairs), &w);
    assert_true(is_finished(whole));
    stop_between_timestamps(pairs, every, whole);
    stop_in_evaluations(pairs, whole, w.evaluations);
    remove_directory();
    make_run_world();
}

#define SYNTHETIC(n) "eval-limit", "4", "data", "synthetic:" #n
#define COSTS "clock", "virtual", "costs", in_directory("costs")

TEST(a_stopped_run_of_the_trained_learner_ends_in_the_same_bytes)
{
    check_stops(STRINGS(PAPER, SYNTHETIC(130), "tasks", "5"), 2);
    check_stops(STRINGS(PAPER, SYNTHETIC(130), "tasks", "3,3,4", "diagnostics", "on"), 4);
    check_stops(STRINGS(PAPER, SYNTHETIC(130), "tasks", "free", "eval-every", "2"), 3);
    check_stops(STRINGS(PAPER, SYNTHETIC(130), "tasks", "2", "eval-every", "3"), 5);
}

TEST(a_stopped_run_of_a_head_ends_in_the_same_bytes)
{
    for (const char *const *method = STRINGS("ncm", "slda", "ridge", "ranpac"); *method; method++)
        check_stops(STRINGS("method", *method, "allocate", "fixed", SYNTHETIC(120), "tasks", "2", "eval-every", "2"), 5);
}

TEST(a_stopped_run_on_a_clock_ends_in_the_same_bytes)
{
    for (const char *const *policy = STRINGS("drop-oldest", "drop-newest", "block"); *policy; policy++)
        check_stops(STRINGS(PAPER, SYNTHETIC(250), "tasks", "5", COSTS, "rate", "100", "queue", "2", "queue-policy", *policy), 7);
    check_stops(STRINGS(PAPER, SYNTHETIC(200), "tasks", "3", COSTS, "rate", "80", "queue", "2", "eval-every", "1"), 7);
    check_stops(STRINGS(PAPER, SYNTHETIC(300), "tasks", "3", "clock", "paper", "costs", in_directory("costs"), "rate", "400"), 1);
    check_stops(STRINGS("method", "ncm", SYNTHETIC(250), "tasks", "5", COSTS, "rate", "300", "allocate", "adaptive"), 1);
}

/* The current batch is read again: its broken images are counted once. */
TEST(broken_images_are_counted_once_after_any_number_of_resumes)
{
    for (int tested = 0; tested < 2; tested++) {
        put_images("images", 4, true);
        const char *data = kept_print("folder:%s", in_directory("images"));
        const char *const pairs[] = {
            PAPER, "batch", "4", "data", data, "tasks", "2", "max-skipped", "0.25", tested ? "test" : NULL, data, NULL};
        watcher w = {0};
        const sfp_result *r = run_watched(run_into("whole", false, pairs), &w);
        check_numbers(r, "samples.offered", 48);
        check_numbers(r, "samples.skipped", 12);
        assert_int_equal(isnan(number_of(r, "average_accuracy")), !tested);
        HOLDS(w.last, tested ? "12 test images could not be read" : "12 images could not be read", " and were skipped (first: ");
        stop_between_timestamps(pairs, 1, r);
        if (tested)
            stop_in_evaluations(pairs, r, w.evaluations);
        remove_directory();
        make_run_world();
    }
}

TEST(a_resumed_run_reads_replaced_images_as_they_are_then)
{
    put_images("images", 2, false);
    const char *data = kept_print("folder:%s", in_directory("images"));
    const char *const pairs[] = {PAPER, "batch", "4", "data", data, "tasks", "2", "max-skipped", "1", NULL};
    assert_false(is_finished(run_watched(run_into("out", false, pairs), &(watcher){.cancel_after = 1})));
    for (int i = 0; i < 24; i++)
        put_text(kept_print("images/c%d/%02d.png", i / 12, i % 12), "not an image any more");
    const sfp_result *r = run_once(run_into("out", true, pairs));
    assert_true(is_finished(r));
    check_numbers(r, "samples.skipped", 24 - 4); /* all but those of the first timestamp */
}

TEST(progress_reports_where_this_process_started)
{
    watcher w = {.cancel_after = 3}, after = {0};
    (void)run_watched(INTO("out", PAPER, SYNTHETIC(130), "tasks", "2"), &w);
    (void)run_watched(RESUME("out", PAPER, SYNTHETIC(130), "tasks", "2"), &after);
    assert_int_equal(after.from, 30);
    assert_int_equal(after.first, 40);
}

TEST(missing_events_before_the_checkpoint_are_reported)
{
    const char *const pairs[] = {PAPER, SYNTHETIC(130), "tasks", "2", NULL};
    watcher w = {.cancel_after = 4}, again = {.expect = "missing", .cancel_in = 1};
    (void)run_watched(run_into("out", false, pairs), &w);
    (void)run_watched(run_into("out", true, pairs), &again);
    assert_false(again.found); /* complete */
    const char *events = in_directory("out/events.jsonl"), *text = file_text(events);
    int lines = lines_of("out/events.jsonl", "");
    assert_int_equal(truncate(events, strchr(strchr(text, '\n') + 1, '\n') + 1 - text), 0); /* two remain */
    watcher last = {.expect = kept_print("events.jsonl: the last %d timestamps before the checkpoint are missing", lines - 2)};
    assert_true(is_finished(run_watched(run_into("out", true, pairs), &last)) && last.found);
}

/* ------------------------------------------------------------------------------------------------ directories */

TEST(a_new_run_in_an_old_directory_removes_its_checkpoint)
{
    const char *const pairs[] = {PAPER, SYNTHETIC(60), "tasks", "2", NULL};
    watcher w = {.expect = "the finished run in this directory is replaced", .cancel_after = 2};
    (void)run_once(run_into("out", false, pairs));
    assert_true(file_exists("out/checkpoint"));
    assert_false(is_finished(run_watched(run_into("out", false, pairs), &w))); /* restarted and stopped */
    assert_true(w.found);
    assert_false(file_exists("out/checkpoint.old"));
    w = (watcher){.expect = "from its last checkpoint (timestamp "};
    assert_true(is_finished(run_watched(run_into("out", true, pairs), &w)) && w.found);
    (void)run_watched(run_into("out", true, pairs), &w);
    HOLDS(w.last, "this run has already ended: nothing to do");
}

TEST(stopping_during_clock_calibration_keeps_the_earlier_run)
{
    watcher w = {.expect = "batches are kept"}, again = {.expect = "has already ended"};
    (void)run_once(INTO("out", PAPER, SYNTHETIC(60), "tasks", "2"));
    sfp_run_options o = SFP_RUN_OPTIONS_INIT;
    o.log = watch_log;
    o.ctx = &w;
    sfp_run *run = open_run(any_engine(), INTO("out", PAPER, SYNTHETIC(60), "tasks", "2", "clock", "paper", "rate", "100"), &o);
    sfp_run_cancel(run);
    MUST(sfp_run_finish(run, &err));
    check_numbers(sfp_run_result(run), "samples.offered", 0);
    sfp_run_close(run);
    assert_false(w.found);
    for (const char *const *name = STRINGS("checkpoint", "result.json", "report.html", "events.jsonl", "state.safetensors");
         *name; name++)
        assert_true(file_exists(kept_print("out/%s", *name)));
    (void)run_watched(RESUME("out", PAPER, SYNTHETIC(60), "tasks", "2"), &again);
    assert_true(again.found);
}

TEST(a_finished_run_without_checkpoint_is_not_changed)
{
    watcher w = {.expect = "has already ended"};
    const sfp_result *want = run_once(INTO("out", PAPER, SYNTHETIC(60), "tasks", "2"));
    assert_int_equal(remove(in_directory("out/checkpoint")), 0);
    (void)remove(in_directory("out/checkpoint.old"));
    const sfp_result *r = run_watched(RESUME("out", PAPER, SYNTHETIC(60), "tasks", "2"), &w);
    assert_true(w.found);
    check_same_runs("out", want, "out", r);
    run_refused(RESUME("out", PAPER, "data", "synthetic:0"), /* a live stream, which cannot have ended */
                "out: directory contains a result but no checkpoint to resume from");
}

TEST(files_that_are_not_of_a_run_are_kept)
{
    static const char *const theirs[] = {"{\"score\": 7}\n", "[]", "", "not JSON"};
    for (int resume = 0; resume < 2; resume++) {
        for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) {
            put_text("theirs/result.json", theirs[i]);
            run_refused(run_into("theirs", resume, STRINGS(SYNTHETIC(60), "tasks", "2")),
                        "it is not the result of a run: choose another --out");
            assert_string_equal(file_text(in_directory("theirs/result.json")), theirs[i]);
        }
        for (const char *const *name = STRINGS("report.html", "state.safetensors", "state-task-3.safetensors",
                                               "predictions.jsonl", "predictions.jsonl.1", "events.jsonl");
             *name; name++) {
            const char *out = kept_print("own_%s", *name), *file = kept_print("%s/%s", out, *name);
            put_text(file, "written by hand");
            run_refused(run_into(out, resume, STRINGS(SYNTHETIC(60), "tasks", "2")),
                        kept_print("%s: directory contains %s, which is not of a run; choose another --out", out, *name));
            assert_string_equal(file_text(in_directory(file)), "written by hand");
        }
    }
}

TEST(logs_are_not_written_through_symbolic_links)
{
    const char *precious = "{\"t\":0,\"precious\":1}\n";
    put_text("target", precious);
    for (const char *const *name = STRINGS("events.jsonl", "predictions.jsonl"); *name; name++) {
        const char *out = kept_print("linked_%s", *name);
        assert_int_equal(symlink(in_directory("target"), make_parents(kept_print("%s/%s", out, *name))), 0);
        run_refused(INTO(out, SYNTHETIC(60), "tasks", "2"),
                    kept_print("%s/%s: symbolic link, expected a regular file", out, *name));
    }
    (void)run_once(INTO("linked", SYNTHETIC(60), "tasks", "2")); /* the same in the directory of a finished run */
    assert_int_equal(remove(in_directory("linked/events.jsonl")), 0);
    assert_int_equal(symlink(in_directory("target"), in_directory("linked/events.jsonl")), 0);
    run_refused(INTO("linked", SYNTHETIC(60), "tasks", "2"), "linked/events.jsonl: symbolic link, expected a regular file");
    assert_true(file_exists("linked/result.json"));
    assert_string_equal(file_text(in_directory("target")), precious);
}

TEST(a_rerun_keeps_logs_that_have_another_name)
{
    (void)run_once(INTO("out", SYNTHETIC(24), "tasks", "2"));
    const char *backup = in_directory("backup"), *before = file_text(in_directory("out/events.jsonl"));
    assert_int_equal(link(in_directory("out/events.jsonl"), backup), 0);
    (void)run_once(INTO("out", SYNTHETIC(24), "tasks", "2", "seed", "5"));
    assert_string_equal(file_text(backup), before);
    assert_string_not_equal(file_text(in_directory("out/events.jsonl")), before);
}

/* Such states are written by learners of a program. */
TEST(a_state_without_names_gets_those_of_the_stream)
{
    sfp_learner *l = learner_of(
        any_engine(), TRAINED("buffer-size", "20", "batch", "10", "pool", "10", "prompt-length", "4", "prompt-layers", "0-1"));
    MUST(sfp_learner_save(l, in_directory("unnamed"), &err));
    const sfp_result *r = run_once(INTO("out", PAPER, SYNTHETIC(60), "tasks", "free", "init-state", in_directory("unnamed")));
    const char *header = (const char *)bytes_of(in_directory("out/state.safetensors"), &(size_t){0}) + 8;
    const char *names = strstr(header, "\"class_names\"");
    assert_non_null(names);
    for (int c = 0; c < sfp_result_classes(r); c++)
        assert_non_null(strstr(names, sfp_result_class_name(r, c)));
}
