/* Runs on live streams: they learn from arriving images, end when stopped, resume where they were, and count every image once.
 * Also the real clock under overload. (Threads: sfp__thread_pool_create is in run_world.h.) */
#include "model/vit.h"

#include "run_world.h"
#include "test.h"

#include <pthread.h>
#include <sched.h>

AROUND_ALL(make_world, end_world)

/* Each sample of a stream has one standing. Each one that is learned was scored, by methods that do so. */
static void check_sums(const sfp_result *r)
{
    assert_true(r->finished);
    if (r->standings.learned) /* a live stream */
        assert_int_equal(r->standings.learned + r->samples.dropped + r->standings.waiting + r->samples.skipped +
                             r->standings.forgotten,
                         r->samples.offered);
    if (r->samples.scored)
        assert_int_equal(r->samples.scored + r->samples.dropped + r->samples.skipped + r->standings.waiting, r->samples.offered);
    assert_true(isnan(r->lag.mean) || r->lag.mean <= r->lag.max);
}

/* --------------------------------------------------------------------- synthetic:0 */

TEST(an_endless_stream_resumes_as_if_never_stopped)
{
    static const char *const methods[] = {NULL, "ncm", "slda"};
    for (int m = 0; m < 3; m++) {
        char last_message[SFP_ERROR_MAX];
        const char *whole = kept_print("endless%d", m), *cut = kept_print("endless_cut%d", m);
        sfp__run_options o = options("synthetic:0", m ? NULL : "free");
        o.method = methods[m];
        sfp_result want = run_once(&o, whole, 12, NULL);
        assert_true(want.finished);
        check_sums(&want);
        assert_int_equal(want.standings.learned, 120);
        assert_int_equal(want.classes, 10);
        assert_true(want.coverage == 1);
        assert_true(want.average_accuracy >= 0); /* it has its own test set */
        assert_int_equal(run_once(&o, cut, 5, NULL).standings.learned, 50);
        o.resume = true;
        sfp_result r = run_once(&o, cut, 7, last_message);
        assert_non_null(strstr(last_message, "from its last checkpoint (timestamp "));
        assert_int_equal(r.standings.learned, 120);
        check_sums(&r);
        assert_int_equal(r.classes, 10);
        for (int c = 0; c < 10; c++)
            assert_string_equal(r.class_names[c], want.class_names[c]);
        want.samples.offered = r.samples.offered = 120; /* some more were in the inbox when the run was stopped */
        want.standings.waiting = r.standings.waiting = 0;
        same_result(&want, &r);
        same_state(whole, cut);
    }
}

/* ------------------------------------------------------------------ a watched directory */

static sfp__run_options watch(const char *name)
{
    const char *data = kept_print("dir:%s", in_directory(name));
    sfp__run_options o = options(data, NULL);
    o.learner.batch = 5;
    return o;
}

static int lines_of(const char *name, const char *with)
{
    int n = 0;
    for (char *text = file_text(in_directory(name)), *line; (line = strsep(&text, "\n"));)
        n += (text || *line) && strstr(line, with);
    return n;
}

static void check_samples(const sfp_result *r, uint64_t offered, uint64_t scored, uint64_t skipped, uint64_t dropped)
{
    assert_int_equal(r->samples.offered, offered);
    assert_int_equal(r->samples.scored, scored);
    assert_int_equal(r->samples.skipped, skipped);
    assert_int_equal(r->samples.dropped, dropped);
    check_sums(r);
}

static void check_labels(sfp_result r, uint64_t unlabelled, uint64_t late, uint64_t expired, uint64_t waiting)
{
    assert_int_equal(r.labels.unlabelled, unlabelled);
    assert_int_equal(r.labels.late, late);
    assert_int_equal(r.labels.expired, expired);
    assert_int_equal(r.labels.waiting, waiting);
    assert_int_equal(late + expired + waiting, unlabelled);
    check_sums(&r);
}

TEST(a_resumed_run_learns_only_from_new_files_of_a_directory)
{
    for (int i = 0; i < 12; i++)
        put_image(kept_print("in/c%d/%d.png", i % 2, i), 100 * (i % 2) + i);
    PUT_TEXTS({"in/c0/broken.png", "no image"}, {"in/c0/empty.png", ""}, {"in/c1/empty.png", ""}, {"in/.end", ""});
    sfp__run_options o = watch("in");
    sfp_result r = run_once(&o, "watched", 0, NULL);
    assert_true(r.finished);
    check_samples(&r, 15, 12, 3, 0);
    assert_int_equal(r.classes, 2);
    check_labels(r, 0, 0, 0, 0);
    assert_int_equal(lines_of("watched/events.jsonl", "{\"t\":"), 3); /* 5, 5 and 2 samples */
    put_image("in/a/new.png", 50); /* sorts before the known classes, whose labels must not change */
    put_image("in/c1/12.png", 112);
    o.resume = true;
    r = run_once(&o, "watched", 0, NULL);
    check_samples(&r, 17, 14, 3, 0);
    assert_int_equal(r.classes, 3);
    assert_string_equal(r.class_names[0], "c0");
    assert_string_equal(r.class_names[2], "a");
    assert_int_equal(lines_of("watched/events.jsonl", "{\"t\":"), 4);
    assert_int_equal(run_once(&o, "watched", 0, NULL).samples.offered, 17); /* no new image */
    assert_int_equal(lines_of("watched/events.jsonl", "{\"t\":"), 4);
}

/* Checks that the file has one line per prediction, with these ids and names, and no other lines. */
static void check_predictions(const char *name, int n, const char *const *begin, const char *const *image)
{
    assert_int_equal(lines_of(name, ""), n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(lines_of(name, begin[i]), 1);
        assert_int_equal(lines_of(name, kept_print("\"name\":\"%s.png\"", image[i])), 1);
    }
}

TEST(a_waiting_image_is_predicted_once_after_any_number_of_resumes)
{
    static const char *const begin[] = {"{\"id\":5,", "{\"id\":6,", "{\"id\":7,", "{\"id\":8,", "{\"id\":9,", "{\"id\":10,"};
    static const char *const image[] = {"u1", "u2", "u3", "u4", "u5", "u6"};
    for (int i = 0; i < 10; i++)
        put_image(i < 5 ? kept_print("again/cat/%d.png", i) : kept_print("again/u%d.png", i - 4), 20 * i);
    put_text("again/.end", "");
    sfp__run_options o = watch("again");
    check_labels(run_once(&o, "again_out", 0, NULL), 5, 0, 0, 5);
    check_predictions("again_out/predictions.jsonl", 5, begin, image);
    /* as if killed after the checkpoint; then three images get their label in different ways, one is removed, one is new */
    append_text("again_out/predictions.jsonl", "{\"id\":10,\"t\":1,\"name\":\"lost.png\"}\n{\"id\":1");
    move("again/u2.png", "again/cat/moved.png");
    put_text("again/labels.csv", "u3.png,cat\n");
    assert_int_equal(link(in_directory("again/u4.png"), in_directory("again/cat/linked.png")), 0);
    assert_int_equal(unlink(in_directory("again/u5.png")), 0);
    put_image("again/u6.png", 230);
    o.resume = true;
    for (int times = 0; times < 2; times++) { /* the second run finds no new image */
        sfp_result r = run_once(&o, "again_out", 0, NULL);
        check_labels(r, 6, 3, 0, 3);
        assert_int_equal(r.samples.offered, 11);
        assert_int_equal(r.standings.learned, 8);
        check_predictions("again_out/predictions.jsonl", 6, begin, image);
        assert_int_equal(lines_of("again_out/events.jsonl", "\"offered\":[7,8,6]"), 1); /* recognised: they keep their ids */
    }
    put_image("again/a.png", 240);
    check_labels(run_once(&o, "again_out", 0, NULL), 7, 3, 0, 4);
    assert_int_equal(lines_of("again_out/predictions.jsonl", "{\"id\":11,"), 1);
    assert_int_equal(lines_of("again_out/predictions.jsonl", ""), 7);
}

TEST(the_test_set_is_matched_by_name)
{
    char last_message[SFP_ERROR_MAX];
    for (int i = 0; i < 6; i++) {
        put_image(kept_print("in2/zebra/%d.png", i), 10 + i);
        put_image(kept_print("test2/zebra/%d.png", i), 12 + i);
        put_image(kept_print("test2/ant/%d.png", i), 12 + i); /* never arrives */
    }
    put_text("in2/.end", "");
    sfp__run_options o = watch("in2");
    o.test = kept_print("folder:%s", in_directory("test2"));
    o.eval_limit = 0;
    o.eval_every = 1;
    sfp_result r = run_once(&o, "by_name", 0, last_message);
    assert_non_null(strstr(last_message, "1 of the 2 classes of the test set have not appeared yet"));
    assert_true(r.average_accuracy == 0.5); /* all zebras, no ant */
    assert_int_equal(r.classes, 1);
    assert_int_equal(r.confusion[0], 6);
    uint64_t tested;
    assert_int_equal(sfp__result_unseen(&r, &tested), 6);
    assert_int_equal(tested, 12);
    assert_int_equal(r.evaluation_count, 2);
}

/* ------------------------------------------------------------------------ overload */

/* Samples arrive three times as fast as the learner can process them; processing times are given, so that nothing depends on the
 * machine. */
TEST(lag_is_bounded_and_counts_add_up_at_three_times_the_load)
{
    enum { SAMPLES = 600 };
    static const double cost = 0.2;
    put_text("overload_costs", "0.2\n");
    for (int adaptive = 0; adaptive < 2; adaptive++) {
        sfp__run_options o = options(kept_print("synthetic:%d", SAMPLES), NULL);
        o.clock = SFP__CLOCK_VIRTUAL;
        o.costs = in_directory("overload_costs");
        o.rate = 3 * o.learner.batch / cost;
        o.queue = 2;
        o.method = adaptive ? "ncm" : NULL;
        o.allocate = adaptive ? SFP__ALLOCATE_ADAPTIVE : SFP__ALLOCATE_FIXED;
        sfp_result r = run_once(&o, kept_print("overload_%d", adaptive), 0, NULL);
        check_sums(&r);
        assert_int_equal(r.samples.offered, SAMPLES);
        /* a third of the samples is processed; at most `queue` batches wait, or those that arrive during a timestamp */
        uint64_t processed = adaptive ? r.samples.trained : r.samples.scored; /* a closed-form head learns from what it queries */
        assert_true(processed >= SAMPLES / 3 && processed <= SAMPLES / 3 + 3 * (uint64_t)o.learner.batch);
        assert_true(r.lag.max <= (adaptive ? 1 : o.queue) * cost + 1e-9);
    }
}

/* Processes each timestamp more slowly than samples arrive, and stops the run when samples were dropped. */
typedef struct slow_learner {
    atomic_int stop;
    double seconds; /* per timestamp */
    const sfp_result *r;
} slow_learner;

static void process_slowly(void *ctx, const sfp_run_progress *p)
{
    slow_learner *s = ctx;
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)(s->seconds * 1e9)}, NULL);
    assert_true(p->lag >= 0);
    if (s->r->samples.dropped > 0)
        s->stop = 1;
}

/* On the real clock only the sums are certain. Samples must be dropped at this load, so the run continues until they are. */
TEST(a_slow_learner_drops_samples_of_a_live_stream)
{
    sfp__run_options o = options("synthetic:0", NULL);
    o.clock = SFP__CLOCK_REAL;
    o.rate = 1000;
    o.queue = 2;
    sfp_result *r = kept_malloc(sizeof *r);
    slow_learner s = {.seconds = 6 * o.learner.batch / o.rate, .r = r};
    const sfp__run_hooks hooks = {.ctx = &s, .progress = process_slowly, .stop = &s.stop};
    o.out = in_directory("slow");
    MUST(run_all(&o, &hooks, r));
    (void)keep_result(r);
    check_sums(r);
    assert_true(r->samples.dropped > 0);
}

/* A source that delivers one batch, and all other images while the learner processes it. */
typedef struct burst {
    int batch, count, sent;
    const char *(*class_name)(int i); /* of image i behind the first batch */
    atomic_bool released, ended;
} burst;

static sfp_status burst_next(void *ctx, sfp_live_item *item, int *got, int *end, sfp_error *why)
{
    static const uint8_t grey[12] = {90, 90, 90, 90, 90, 90, 90, 90, 90, 90, 90, 90};
    burst *b = ctx;
    (void)why;
    if (b->sent == b->batch && !b->released)
        return SFP_OK; /* nothing has arrived */
    *got = b->sent < b->batch + b->count;
    *end = !*got;
    b->ended = *end != 0; /* all images are in the inbox */
    if (*end)
        return SFP_OK;
    *item = (sfp_live_item){.image = {.format = SFP_IMAGE_RGB, .width = 2, .height = 2, .data = grey},
                            .class_name = b->sent < b->batch ? "0" : b->class_name(b->sent - b->batch)};
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

static sfp_result run_burst(burst *b, const char *name)
{
    sfp_source_definition d = SFP_SOURCE_DEFINITION_INIT;
    const sfp__run_hooks hooks = {.ctx = b, .progress = wait_for_burst};
    sfp__run_options o = options(NULL, NULL);
    d.name = "burst";
    d.ctx = b;
    d.next = burst_next;
    MUST(sfp_source_create(&d, &o.source, &err));
    b->batch = o.learner.batch;
    o.method = "ncm";
    o.clock = SFP__CLOCK_REAL;
    o.allocate = SFP__ALLOCATE_ADAPTIVE;
    sfp_result r = run_with(&o, name, &hooks);
    assert_int_equal(r.samples.offered, b->batch + b->count);
    assert_int_equal(r.samples.trained + r.samples.dropped, r.samples.offered);
    return r;
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
    burst many = {.count = 300, .class_name = class_by_thirty};
    sfp_result r = run_burst(&many, "burst_many");
    assert_int_equal(r.samples.trained, 20);
    assert_int_equal(r.samples.dropped, 290);
    assert_int_equal(r.classes, 10); /* one sample of each thirty */
    assert_true(r.coverage == 1);
    burst few = {.count = 40, .class_name = class_by_thirty}; /* a short backlog is processed in turn */
    r = run_burst(&few, "burst_few");
    assert_int_equal(r.samples.trained, 50);
    assert_int_equal(r.samples.dropped, 0);
    burst rare = {.count = 50, .class_name = rare_first}; /* one sample of a class that was never learned */
    r = run_burst(&rare, "burst_rare");
    assert_int_equal(r.samples.trained, 20);
    assert_int_equal(r.classes, 2);
}

TEST(options_that_a_live_stream_cannot_have_are_refused)
{
    refused(options("synthetic:0", "5"), "tasks is '5', expected free: synthetic:0 is a live stream and has no tasks");
    sfp__run_options o = options("synthetic:0", NULL);
    o.clock = SFP__CLOCK_PAPER;
    o.rate = 10;
    refused(o, "clock is paper, expected real or off");
    o.clock = SFP__CLOCK_VIRTUAL;
    refused(o, "clock is virtual, expected real or off");
    o.clock = SFP__CLOCK_REAL;
    o.rate = 0;
    refused(o, "this clock needs an arrival rate");
    o = options("synthetic:60", NULL);
    (void)mkdir(in_directory("empty"), 0777);
    o.test = watch("empty").data;
    refused(o, "a live source cannot be a test set, expected a dataset");
    o = watch("empty");
    o.rate = 5;
    o.clock = SFP__CLOCK_DEFAULT;
    refused(o, "have their own arrival rate");
}
