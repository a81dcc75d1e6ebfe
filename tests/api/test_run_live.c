/* Runs on live streams: they learn from arriving images, end when stopped, resume where they were, and count every image once.
 * Also clocks under overload. */
#include "run_world.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

AROUND_EACH(make_run_world, remove_directory)

/* Each sample of a stream has one standing. Each one that is learned was scored, by methods that do so. */
static void check_sums(const sfp_result *r)
{
    double offered = number_of(r, "samples.offered"), skipped = number_of(r, "samples.skipped");
    double dropped = number_of(r, "samples.dropped"), waiting = number_of(r, "standings.waiting");
    double learned = number_of(r, "standings.learned"), scored = number_of(r, "samples.scored");
    assert_true(is_finished(r));
    if (learned > 0)
        assert_true(learned + dropped + waiting + skipped + number_of(r, "standings.forgotten") == offered);
    if (scored > 0)
        assert_true(scored + dropped + skipped + (waiting > 0 ? waiting : 0) == offered);
    assert_true(isnan(number_of(r, "lag.mean")) || number_of(r, "lag.mean") <= number_of(r, "lag.max"));
}

/* --------------------------------------------------------------------- synthetic:0 */

TEST(an_endless_stream_resumes_as_if_never_stopped)
{
    for (const char *const *method = STRINGS("preset", "paper", "method", "ncm", "method", "slda"); *method; method += 2) {
        const char *const pairs[] = {"data", "synthetic:0", "eval-limit", "4", method[0], method[1], NULL};
        const char *whole = kept_print("whole_%s", method[1]), *cut = kept_print("cut_%s", method[1]);
        watcher w = {.cancel_after = 5};
        const sfp_result *want = run_watched(run_into(whole, false, pairs), &(watcher){.cancel_after = 12});
        check_sums(want);
        check_numbers(want, "standings.learned", 120);
        check_numbers(want, "coverage", 1);
        assert_int_equal(sfp_result_classes(want), 10);
        assert_true(number_of(want, "average_accuracy") >= 0); /* it has its own test set */
        check_numbers(run_watched(run_into(cut, false, pairs), &w), "standings.learned", 50);
        w = (watcher){.expect = "from its last checkpoint (timestamp ", .cancel_after = 7};
        const sfp_result *r = run_watched(run_into(cut, true, pairs), &w);
        assert_true(w.found);
        check_sums(r);
        for (const char *const *key = STRINGS("standings.learned", "samples.scored", "samples.trained", "average_accuracy",
                                              "prequential_accuracy", "coverage");
             *key; key++)
            check_numbers(r, *key, number_of(want, *key));
        for (int c = 0; c < 10; c++)
            assert_string_equal(sfp_result_class_name(r, c), sfp_result_class_name(want, c));
        check_same_state(whole, cut);
    }
}

/* ------------------------------------------------------------------ a watched directory */

static const char *watch_of(const char *name)
{
    return kept_print("watch:%s", in_directory(name));
}

static void check_samples(const sfp_result *r, int offered, int learned, int skipped, int dropped)
{
    check_numbers(r, "samples.offered", offered);
    check_numbers(r, "standings.learned", learned);
    check_numbers(r, "samples.skipped", skipped);
    check_numbers(r, "samples.dropped", dropped);
    check_sums(r);
}

static void check_labels(const sfp_result *r, int unlabelled, int late, int expired, int waiting)
{
    check_numbers(r, "labels.unlabelled", unlabelled);
    check_numbers(r, "labels.late", late);
    check_numbers(r, "labels.expired", expired);
    check_numbers(r, "labels.waiting", waiting);
    assert_int_equal(late + expired + waiting, unlabelled);
    check_sums(r);
}

TEST(a_resumed_run_learns_only_from_new_files_of_a_directory)
{
    for (int i = 0; i < 12; i++)
        put_image(kept_print("in/c%d/%d.png", i % 2, i), 100 * (i % 2) + i);
    PUT_TEXTS({"in/c0/broken.png", "no image"}, {"in/c0/empty.png", ""}, {"in/c1/empty.png", ""}, {"in/.end", ""});
    const char *const pairs[] = {PAPER, "data", watch_of("in"), "batch", "5", NULL};
    const sfp_result *r = run_once(run_into("out", false, pairs));
    check_samples(r, 15, 12, 3, 0);
    assert_int_equal(sfp_result_classes(r), 2);
    check_labels(r, 0, 0, 0, 0);
    assert_int_equal(lines_of("out/events.jsonl", "{\"t\":"), 3); /* 5, 5 and 2 samples */
    put_image("in/a/new.png", 50); /* sorts before the known classes, whose labels must not change */
    put_image("in/c1/12.png", 112);
    for (int times = 0; times < 2; times++) { /* the second time there is no new image */
        r = run_once(run_into("out", true, pairs));
        check_samples(r, 17, 14, 3, 0);
        assert_int_equal(sfp_result_classes(r), 3);
        assert_string_equal(sfp_result_class_name(r, 0), "c0");
        assert_string_equal(sfp_result_class_name(r, 2), "a");
        assert_int_equal(lines_of("out/events.jsonl", "{\"t\":"), 4);
    }
}

/* Checks that there is one line per prediction, with ids from 5 and these names, and no other line. */
static void check_predictions(const char *const *image)
{
    int n = 0;
    for (; image[n]; n++) {
        assert_int_equal(lines_of("out/predictions.jsonl", kept_print("{\"id\":%d,", 5 + n)), 1);
        assert_int_equal(lines_of("out/predictions.jsonl", kept_print("\"name\":\"%s.png\"", image[n])), 1);
    }
    assert_int_equal(lines_of("out/predictions.jsonl", ""), n);
}

TEST(a_waiting_image_is_predicted_once_after_any_number_of_resumes)
{
    for (int i = 0; i < 10; i++)
        put_image(i < 5 ? kept_print("in/cat/%d.png", i) : kept_print("in/u%d.png", i - 4), 20 * i);
    put_text("in/.end", "");
    const char *const pairs[] = {PAPER, "data", watch_of("in"), "batch", "5", NULL};
    check_labels(run_once(run_into("out", false, pairs)), 5, 0, 0, 5);
    check_predictions(STRINGS("u1", "u2", "u3", "u4", "u5"));
    /* as if killed after the checkpoint; then three images get their label in different ways, one is removed, one is new */
    append_text("out/predictions.jsonl", "{\"id\":10,\"t\":1,\"name\":\"lost.png\"}\n{\"id\":1");
    move("in/u2.png", "in/cat/moved.png");
    put_text("in/labels.csv", "u3.png,cat\n");
    assert_int_equal(link(in_directory("in/u4.png"), in_directory("in/cat/linked.png")), 0);
    assert_int_equal(unlink(in_directory("in/u5.png")), 0);
    put_image("in/u6.png", 230);
    for (int times = 0; times < 2; times++) { /* the second run finds no new image */
        const sfp_result *r = run_once(run_into("out", true, pairs));
        check_labels(r, 6, 3, 0, 3);
        check_samples(r, 11, 8, 0, 0);
        check_predictions(STRINGS("u1", "u2", "u3", "u4", "u5", "u6"));
        assert_int_equal(lines_of("out/events.jsonl", "\"offered\":[7,8,6]"), 1); /* recognised: they keep their ids */
    }
    put_image("in/a.png", 240);
    check_labels(run_once(run_into("out", true, pairs)), 7, 3, 0, 4);
    check_predictions(STRINGS("u1", "u2", "u3", "u4", "u5", "u6", "a"));
}

TEST(the_test_set_is_matched_by_name)
{
    watcher w = {.expect = "1 of the 2 classes of the test set have not appeared yet"};
    for (int i = 0; i < 6; i++) {
        put_image(kept_print("in/zebra/%d.png", i), 10 + i);
        put_image(kept_print("test/zebra/%d.png", i), 12 + i);
        put_image(kept_print("test/ant/%d.png", i), 12 + i); /* never arrives */
    }
    put_text("in/.end", "");
    const char *test = kept_print("folder:%s", in_directory("test"));
    const sfp_result *r =
        run_watched(INTO("out", PAPER, "data", watch_of("in"), "batch", "5", "test", test, "eval-every", "1"), &w);
    assert_true(w.found);
    check_numbers(r, "average_accuracy", 0.5); /* all zebras, no ant */
    assert_int_equal(sfp_result_classes(r), 1);
    assert_int_equal(w.tested, 12);
    assert_int_equal(w.evaluations, 2);
    HOLDS(json_of(r), "\"confusion\":[[6]]");
}

/* ------------------------------------------------------------------------ overload */

/* Samples arrive three times as fast as the learner can process them; processing times are given, so that nothing depends on the
 * machine. */
TEST(lag_is_bounded_and_counts_add_up_at_three_times_the_load)
{
    put_text("costs", "0.2\n");
    for (int adaptive = 0; adaptive < 2; adaptive++) {
        const char *out = adaptive ? "adaptive" : "fixed";
        sfp_settings *s = INTO(out, "data", "synthetic:600", "tasks", "free", "eval-limit", "4", "clock", "virtual", "costs",
                               in_directory("costs"), "rate", "150", adaptive ? "method" : "preset", adaptive ? "ncm" : "paper",
                               adaptive ? "allocate" : "queue", adaptive ? "adaptive" : "2");
        const sfp_result *r = run_once(s);
        check_sums(r);
        check_numbers(r, "samples.offered", 600);
        /* a third of the samples is processed; at most `queue` batches wait, or those that arrive during a timestamp */
        double processed = number_of(r, adaptive ? "samples.closed_form" : "samples.scored");
        assert_true(processed >= 200 && processed <= 230);
        assert_true(number_of(r, "lag.max") <= (adaptive ? 1 : 2) * 0.2 + 1e-9);
    }
}

TEST(lag_is_measured_where_samples_can_be_late)
{
    for (const char *const *clock = STRINGS("off", "paper", "virtual"); *clock; clock++) {
        const char *rate = strcmp(*clock, "off") == 0 ? NULL : "rate";
        const sfp_result *r = run_once(INTO(*clock, PAPER, "data", "synthetic:60", "tasks", "2", "eval-limit", "4", "clock",
                                            *clock, rate, "100", "costs", in_directory("costs")));
        bool late = strcmp(*clock, "virtual") == 0;
        const char *page = file_text(in_directory(kept_print("%s/report.html", *clock)));
        for (const char *const *key = STRINGS("lag.mean", "lag.max", "lag.last"); *key; key++)
            assert_int_equal(isfinite(number_of(r, *key)), late);
        assert_int_equal(strstr(page, "Largest lag") != NULL, late);
    }
}

/* Processes each timestamp more slowly than samples arrive, and stops the run when samples were dropped. */
static void process_slowly(void *ctx, const sfp_run_progress *p)
{
    sfp_run **run = ctx;
    (void)nanosleep(&(struct timespec){.tv_nsec = 60000000}, NULL);
    assert_true(p->lag >= 0);
    if (number_of(sfp_run_result(*run), "samples.dropped") > 0)
        sfp_run_cancel(*run);
}

/* On the real clock only the sums are certain. Samples must be dropped at this load, so the run continues until they are. */
TEST(a_slow_learner_drops_samples_of_a_live_stream)
{
    sfp_run_options o = SFP_RUN_OPTIONS_INIT;
    sfp_run *run = NULL;
    o.progress = process_slowly;
    o.ctx = &run;
    run =
        open_run(any_engine(),
                 INTO("out", PAPER, "data", "synthetic:0", "eval-limit", "4", "clock", "real", "rate", "1000", "queue", "2"), &o);
    MUST(sfp_run_finish(run, &err));
    check_sums(sfp_run_result(run));
    assert_true(number_of(sfp_run_result(run), "samples.dropped") > 0);
    sfp_run_close(run);
}

/* A source that delivers one batch, and all other images while the learner processes it. */
typedef struct burst {
    int count, sent;
    const char *(*class_name)(int i); /* of image i behind the first batch */
    atomic_bool released, ended;
} burst;

static sfp_status burst_next(void *ctx, sfp_live_item *item, int *got, int *end, sfp_error *why)
{
    static const uint8_t grey[12] = {90, 90, 90, 90, 90, 90, 90, 90, 90, 90, 90, 90};
    burst *b = ctx;
    (void)why;
    if (b->sent == 10 && !b->released)
        return SFP_OK; /* nothing has arrived */
    *got = b->sent < 10 + b->count;
    *end = !*got;
    b->ended = *end != 0; /* all images are in the inbox */
    if (*end)
        return SFP_OK;
    *item = (sfp_live_item){.image = {.format = SFP_IMAGE_RGB, .width = 2, .height = 2, .data = grey},
                            .class_name = b->sent < 10 ? "0" : b->class_name(b->sent - 10)};
    b->sent++;
    return SFP_OK;
}

static void wait_for_burst(void *ctx, const sfp_run_progress *p)
{
    burst *b = ctx;
    (void)p;
    b->released = true;
    while (!b->ended)
        (void)sched_yield();
}

static const char *class_by_thirty(int i)
{
    static const char *const names[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    return names[i / 30];
}

static const char *rare_first(int i)
{
    return i == 0 ? "rare" : "0";
}

TEST(adaptive_allocation_chooses_among_all_waiting_samples_of_a_live_stream)
{
    static const struct {
        int count;
        const char *(*class_name)(int i);
        int trained, classes;
    } cases[] = {{300, class_by_thirty, 20, 10}, /* one sample of each thirty */
                 {40, class_by_thirty, 50, 2},   /* a short backlog is processed in turn */
                 {50, rare_first, 20, 2}};       /* one sample of a class that was never learned */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        burst b = {.count = cases[i].count, .class_name = cases[i].class_name};
        sfp_source_definition d = SFP_SOURCE_DEFINITION_INIT;
        sfp_run_options o = SFP_RUN_OPTIONS_INIT;
        d.name = "burst";
        d.ctx = &b;
        d.next = burst_next;
        MUST(sfp_source_create(&d, &o.source, &err));
        o.progress = wait_for_burst;
        o.ctx = &b;
        sfp_run *run = open_run(any_engine(), INTO("out", "method", "ncm", "clock", "real", "allocate", "adaptive"), &o);
        MUST(sfp_run_finish(run, &err));
        const sfp_result *r = sfp_run_result(run);
        check_numbers(r, "samples.offered", 10 + b.count);
        check_numbers(r, "samples.closed_form", cases[i].trained);
        check_numbers(r, "samples.dropped", 10 + b.count - cases[i].trained);
        assert_int_equal(sfp_result_classes(r), cases[i].classes);
        check_numbers(r, "coverage", 1);
        sfp_run_close(run);
        remove_directory();
        make_run_world();
    }
}

TEST(options_that_a_live_stream_cannot_have_are_refused)
{
    run_refused(INTO("out", "data", "synthetic:0", "tasks", "5"),
                "tasks is '5', expected free: synthetic:0 is a live stream and has no tasks");
    for (const char *const *clock = STRINGS("paper", "virtual"); *clock; clock++)
        run_refused(INTO("out", "data", "synthetic:0", "clock", *clock, "rate", "10"),
                    kept_print("clock is %s, expected real or off", *clock));
    put_text("w/.end", "");
    run_refused(INTO("out", "data", watch_of("w"), "rate", "5"), "have their own arrival rate");
}
