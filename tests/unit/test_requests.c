/* Requests to correct samples, and samples that wait to be learned, take turns. */
#include "run/run_internal.h"

#include "io/image/image.h"
#include "run_world.h"
#include "stream/submitted.h"
#include "test.h"

#include <sched.h>

AROUND_EACH(make_run_world, end_run_world)

enum { SIDE = 16, REQUESTS = 12 };

typedef struct live_run {
    atomic_int stop;
    sfp__run_options opt;
    sfp__run_hooks hooks;
    sfp_result result;
    sfp__run *run;
} live_run;

static void begin_run(live_run *r)
{
    bool more;
    *r = (live_run){.opt = options("submitted", NULL), .hooks = {.stop = &r->stop}};
    r->opt.method = r->opt.learner.method = "ncm";
    r->opt.out = in_directory("out");
    r->opt.max_wait = 0;
    MUST(sfp__run_open(&r->opt, &r->hooks, &r->result, &r->run, &err));
    MUST(sfp__run_step(r->run, &more, &err));
}

static sfp__store *store_of(const live_run *r)
{
    return r->run->arrivals->store;
}

static uint64_t submit(const live_run *r, int shade, const char *label)
{
    static uint8_t rgb[3 * SIDE * SIDE];
    OWNED_BY(sfp__text_done) sfp__text png = {0};
    uint64_t id = 0;
    bool again;
    memset(rgb, shade, sizeof rgb);
    MUST(sfp__image_encode_png("image", &(sfp__image){.width = SIDE, .height = SIDE, .rgb = rgb}, &png, &err));
    MUST(sfp__store_submit(store_of(r), &(sfp__submission){.bytes = png.s, .size = png.length, .label = label}, &id, &again,
                           &err));
    MUST(sfp__submitted_offer(r->run->plan.source, id, &err));
    return id;
}

/* Seconds in which images were decoded; it changes when one has arrived in the inbox. */
static double decode_seconds(const live_run *r)
{
    return r->run->arrivals->kind->stats(r->run->arrivals).decode;
}

static sfp__standing standing_of(const live_run *r, uint64_t id)
{
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    MUST(sfp__store_get(store_of(r), id, &row, &err));
    return row.standing;
}

static void step_until_learned(live_run *r, uint64_t id)
{
    bool more = true;
    for (int i = 0; i < 400 && standing_of(r, id) != SFP__LEARNED; i++)
        MUST(sfp__run_step(r->run, &more, &err));
    assert_int_equal(standing_of(r, id), SFP__LEARNED);
}

/* Steps a stopped run to its end. */
static void end_run(live_run *r)
{
    bool more = true;
    atomic_store(&r->stop, 1);
    for (int i = 0; i < 100 && more; i++)
        MUST(sfp__run_step(r->run, &more, &err));
    assert_false(more);
    sfp__run_close(r->run);
    sfp__result_done(&r->result);
}

TEST(a_sample_is_learned_while_many_requests_wait)
{
    live_run r;
    int64_t number[REQUESTS];
    int answered = 0;
    begin_run(&r);
    step_until_learned(&r, submit(&r, 50, "cat"));
    double before = decode_seconds(&r);
    uint64_t next = submit(&r, 100, "dog");
    while (decode_seconds(&r) == before)
        (void)sched_yield();
    for (int i = 0; i < REQUESTS; i++)
        MUST(sfp__store_request(store_of(&r), "#0", NULL, i % 2 ? "cat" : "dog", &number[i], &err));
    step_until_learned(&r, next);
    for (int i = 0; i < REQUESTS; i++) {
        bool done;
        MUST(sfp__store_read_answer(store_of(&r), number[i], &done, &err));
        answered += done;
    }
    assert_in_range(answered, 0, REQUESTS / 2);
    end_run(&r);
}

/* What is to be learned again waits in the store with its image. */
TEST(a_stopped_run_does_not_wait_for_a_renamed_class_that_is_not_delivered)
{
    live_run r;
    int64_t number;
    bool more, done = false;
    begin_run(&r);
    step_until_learned(&r, submit(&r, 50, "cat"));
    sfp__submitted_pause(r.run->plan.source, true);
    MUST(sfp__store_request(store_of(&r), NULL, "cat", "lion", &number, &err));
    for (int i = 0; i < 100 && !done; i++) {
        MUST(sfp__run_step(r.run, &more, &err));
        MUST(sfp__store_read_answer(store_of(&r), number, &done, &err));
    }
    assert_true(done);
    assert_int_equal(standing_of(&r, 0), SFP__WAITING);
    end_run(&r);
}
