/* The arrival clock: kept and dropped batches and their lag, against cases computed on paper and an independent simulation. */
#include "base/rng.h"
#include "run/clock.h"

#include <signal.h>
#include <time.h>

#include "test.h"

enum { MAX_BATCHES = 200 };

TEST(paper_keeps_the_batches_of_the_formula)
{
    /* 0.5 s per batch of 20 at 100 samples/s: C_S = 0.5 * 10 / (200 / 100) = 2.5; of 10 batches 4 are kept: 0, 2, 5, 7 */
    double cs = sfp__clock_cs(0.5, 10, 200, 100);
    assert_true(fabs(cs - 2.5) < 1e-12);
    int64_t keep = sfp__clock_keep(10, cs);
    assert_int_equal(keep, 4);
    const int64_t want[] = {0, 2, 5, 7};
    for (int64_t i = 0; i < keep; i++)
        assert_int_equal(sfp__clock_kept_at(i, 10, keep), want[i]);
    assert_int_equal(sfp__clock_keep(10, 0.7), 10);
    assert_int_equal(sfp__clock_keep(10, 1.0), 10);
    assert_int_equal(sfp__clock_keep(3, 100), 1);
    assert_int_equal(sfp__clock_keep(0, 2), 0);
}

typedef struct outcome {
    int served[MAX_BATCHES], count;
    uint64_t dropped;
    double lag_max, lag_sum;
} outcome;

/* Starts a clock for n batches of b samples. */
static sfp__clock start(const sfp__clock_options *o, int n, int b)
{
    static int64_t arrived[MAX_BATCHES];
    sfp__clock c;
    for (int i = 0; i < n; i++)
        arrived[i] = (int64_t)(i + 1) * b;
    MUST(sfp__clock_init(&c, o, n, arrived, &err));
    return c;
}

/* Runs the clock over n batches of b samples; the k-th processed batch takes cost[k] seconds. */
static outcome drive(const sfp__clock_options *o, int n, int b, const double *cost)
{
    OWNED_BY(sfp__clock_done) sfp__clock c = start(o, n, b);
    outcome r = {0};
    int count;
    const int64_t *batch;
    while ((batch = sfp__clock_next(&c, &count))) {
        for (int i = 0; i < count; i++)
            r.served[r.count++] = (int)batch[i];
        sfp__clock_advance(&c, count, cost[r.count % MAX_BATCHES]);
    }
    r.dropped = (uint64_t)n - c.lag.served;
    r.lag_max = c.lag.max;
    r.lag_sum = c.lag.sum;
    assert_int_equal(r.count, c.lag.served);
    return r;
}

static outcome drive_steadily(const sfp__clock_options *o, int n, int b, double each)
{
    double cost[MAX_BATCHES];
    for (int i = 0; i < MAX_BATCHES; i++)
        cost[i] = each;
    return drive(o, n, b, cost);
}

TEST(a_batch_complete_just_when_the_learner_is_free_is_taken)
{
    /* a batch of 20 arrives every 0.2 s and takes 0.2 s: rounding makes some times a little early and some a little late */
    const sfp__clock_options o = {.kind = SFP__CLOCK_VIRTUAL, .lambda = 100};
    outcome r = drive_steadily(&o, 150, 20, 0.2);
    assert_int_equal(r.count, 150);
    assert_int_equal(r.dropped, 0);
}

TEST(blocking_drops_nothing_and_a_pool_takes_all_waiting_batches)
{
    const sfp__clock_options block = {.kind = SFP__CLOCK_VIRTUAL, .lambda = 10, .queue = 2, .policy = SFP__QUEUE_BLOCK};
    outcome r = drive_steadily(&block, 40, 10, 3.5);
    assert_int_equal(r.count, 40);
    for (int i = 0; i < 40; i++)
        assert_int_equal(r.served[i], i);
    const sfp__clock_options pool = {.kind = SFP__CLOCK_VIRTUAL, .lambda = 10, .pool = 16};
    r = drive_steadily(&pool, 40, 10, 3.5);
    assert_int_equal(r.count, 40); /* every batch is processed, several at a time */
    assert_int_equal(r.dropped, 0);
}

/* An independent simulation in whole ticks, one event after the other. A learner that finishes when a batch arrives is free
 * for it. each: ticks between arrivals; the k-th processed batch takes cost[k] ticks. */
static outcome simulate(const sfp__clock_options *o, int n, int each, const int *cost)
{
    outcome r = {0};
    int queue[MAX_BATCHES], waiting = 0, next = 0, arrived_at[MAX_BATCHES] = {0};
    long shift = 0, done = 0, lag = 0;
    bool busy = false, held = false;
    while (busy || next < n) {
        long arrival = (next + 1L) * each + shift;
        int serve = -1;
        if (busy && (held || next >= n || done <= arrival)) {
            busy = false;
            if (waiting) {
                serve = queue[0];
                memmove(queue, queue + 1, (size_t)--waiting * sizeof *queue);
            }
            if (held) { /* a place is free: the held batch arrives now, and all later ones are delayed by the same time */
                shift += done - arrival;
                arrived_at[next] = (int)done;
                if (serve < 0)
                    serve = next;
                else
                    queue[waiting++] = next;
                held = false;
                next++;
            }
            if (serve < 0)
                continue;
        } else {
            arrived_at[next] = (int)arrival;
            if (!busy) {
                done = arrival;
                serve = next++;
            } else if (waiting < o->queue) {
                queue[waiting++] = next++;
            } else if (o->policy == SFP__QUEUE_BLOCK) {
                held = true;
            } else {
                r.dropped++;
                if (o->policy == SFP__QUEUE_DROP_OLDEST && waiting > 0) {
                    memmove(queue, queue + 1, (size_t)(waiting - 1) * sizeof *queue);
                    queue[waiting - 1] = next;
                }
                next++;
            }
        }
        if (serve >= 0) {
            lag += done - arrived_at[serve];
            r.lag_max = fmax(r.lag_max, (double)(done - arrived_at[serve]));
            r.served[r.count++] = serve;
            done += cost[r.count % MAX_BATCHES];
            busy = true;
        }
    }
    r.lag_sum = (double)lag;
    return r;
}

/* A tick is 0.1 s, which no double represents exactly. With few ticks per batch many events coincide. */
TEST(served_batches_and_lag_equal_an_independent_simulation)
{
    static const sfp__queue_policy policies[] = {SFP__QUEUE_DROP_OLDEST, SFP__QUEUE_DROP_NEWEST, SFP__QUEUE_BLOCK};
    sfp__rng rng = sfp__rng_init(5, 0);
    for (int round = 0; round < 3000; round++) {
        int n = 1 + (int)sfp__rng_below(&rng, 100), b = 1 + (int)sfp__rng_below(&rng, 30), ticks[MAX_BATCHES];
        int each = 1 + (int)sfp__rng_below(&rng, round % 2 ? 5 : 1000),
            max_ticks = 1 + (int)sfp__rng_below(&rng, 5 * (uint32_t)each);
        double cost[MAX_BATCHES];
        bool steady = sfp__rng_below(&rng, 2);
        for (int i = 0; i < MAX_BATCHES; i++) {
            ticks[i] = steady && i ? ticks[0] : 1 + (int)sfp__rng_below(&rng, (uint32_t)max_ticks);
            cost[i] = 0.1 * ticks[i];
        }
        const sfp__clock_options o = {.kind = SFP__CLOCK_VIRTUAL,
                                      .lambda = b / (0.1 * each),
                                      .queue = (int)sfp__rng_below(&rng, 5),
                                      .policy = policies[sfp__rng_below(&rng, 3)]};
        outcome a = drive(&o, n, b, cost), w = simulate(&o, n, each, ticks);
        assert_int_equal(a.count, w.count);
        assert_int_equal(a.dropped, w.dropped);
        assert_memory_equal(a.served, w.served, (size_t)a.count * sizeof *a.served);
        assert_true(fabs(a.lag_sum - 0.1 * w.lag_sum) < 1e-5 && fabs(a.lag_max - 0.1 * w.lag_max) < 1e-6);
    }
}

static sfp__clock clock_of_four(bool pool)
{
    const sfp__clock_options o = {
        .kind = SFP__CLOCK_VIRTUAL, .lambda = 10, .queue = 2, .policy = SFP__QUEUE_DROP_OLDEST, .pool = pool ? 8 : 0};
    return start(&o, 4, 10);
}

/* Returns a clock that resumes from the saved form of *c, and frees *c. */
static sfp__clock read_back(sfp__clock *c)
{
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    OWNED sfp__json_value *root = NULL;
    sfp__json j = {.text = &t};
    sfp__json_object(&j, NULL);
    sfp__clock_write(c, &j);
    sfp__json_end(&j);
    MUST(sfp__json_parse("clock", t.s, t.length, &root, NULL));
    sfp__clock out = clock_of_four(c->opt.pool);
    assert_true(sfp__clock_read(&out, sfp__json_get(root, "clock")));
    sfp__clock_done(c);
    return out;
}

/* A run that is stopped before it has learned from its batches gets the same batches again, and the clock has not advanced. */
TEST(a_batch_is_delivered_again_until_it_is_committed)
{
    int count;
    OWNED_BY(sfp__clock_done) sfp__clock c = clock_of_four(true);
    assert_non_null(sfp__clock_next(&c, &count));
    sfp__clock_advance(&c, 1, 2.5);
    const int64_t *batch = sfp__clock_next(&c, &count);
    assert_int_equal(count, 2);
    assert_int_equal(batch[0], 1);
    sfp__clock_advance(&c, 0, 0.25); /* the prediction of an unlabelled image */
    sfp__clock_advance(&c, 1, 0.25);
    assert_true(c.now == 3.5);
    c = read_back(&c);
    batch = sfp__clock_next(&c, &count);
    assert_int_equal(count, 1);
    assert_int_equal(batch[0], 2);
    assert_int_equal(sfp__clock_first(&c), 2);
    sfp__clock_advance(&c, 1, 0.5);
    assert_true(c.now == 4.5);
    c = read_back(&c);
    assert_int_equal(sfp__clock_first(&c), 3);
    assert_int_equal(c.lag.served, 3);
    batch = sfp__clock_next(&c, &count);
    assert_int_equal(batch[0], 3);
    sfp__clock_advance(&c, 1, 0);
    assert_null(sfp__clock_next(&c, &count));
}

TEST(an_inconsistent_saved_clock_is_refused)
{
    static const char *const wrong[] = {
        "{}",
        "{'now':0,'blocked':0,'held':false,'next':5,'queue':[],'taken':[],'spent':0,'lag':LAG}",
        "{'now':0,'blocked':0,'held':false,'next':2,'queue':[[2,0]],'taken':[],'spent':0,'lag':LAG}",
        "{'now':0,'blocked':0,'held':false,'next':2,'queue':[1],'taken':[],'spent':0,'lag':LAG}",
        "{'now':0,'blocked':0,'held':false,'next':2,'queue':[],'taken':[2],'spent':0,'lag':LAG}",
        "{'now':0,'blocked':0,'held':false,'next':2,'queue':[],'taken':[1,1],'spent':0,'lag':LAG}",
        "{'now':0,'blocked':0,'held':false,'next':2,'queue':[],'taken':[],'spent':-1,'lag':LAG}",
        "{'now':0,'blocked':0,'held':false,'next':2,'queue':[],'taken':[],'spent':0,'lag':{}}",
        "{'now':0,'blocked':0,'held':false,'next':2,'queue':[[0,0],[0,0],[0,0],[0,0]],'taken':[],'spent':0,'lag':LAG}",
    };
    OWNED_BY(sfp__clock_done) sfp__clock c = clock_of_four(false);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[512], *at;
        (void)snprintf(text, sizeof text, "%s", wrong[i]);
        if ((at = strstr(text, "LAG")))
            (void)snprintf(at, sizeof text - (size_t)(at - text), "{'sum':0,'max':0,'last':0,'served':0}}");
        for (at = text; *at; at++)
            *at = *at == '\'' ? '"' : *at;
        OWNED sfp__json_value *j = NULL;
        MUST(sfp__json_parse("clock", text, strlen(text), &j, NULL));
        if (sfp__clock_read(&c, j))
            fail_msg("%s was read", text);
    }
}

/* Without an arrival rate no batch is late: every batch is delivered in order. */
TEST(without_a_rate_every_batch_is_delivered)
{
    int count;
    OWNED_BY(sfp__clock_done) sfp__clock c = start(&(sfp__clock_options){.kind = SFP__CLOCK_OFF}, 2, 10);
    for (int64_t k = 0; k < 2; k++) {
        assert_int_equal(*sfp__clock_next(&c, &count), k);
        assert_int_equal(*sfp__clock_next(&c, &count), k);
        assert_int_equal(count, 1);
        sfp__clock_advance(&c, 1, 100);
    }
    assert_null(sfp__clock_next(&c, &count));
    assert_int_equal(c.lag.served, 0);
}

TEST(each_batch_of_a_pool_has_its_own_lag)
{
    /* a batch per second; processing the first takes 3.5 s, and then three wait with a lag of 2.5, 1.5 and 0.5 s */
    const sfp__clock_options o = {.kind = SFP__CLOCK_VIRTUAL, .lambda = 10, .pool = 8};
    OWNED_BY(sfp__clock_done) sfp__clock c = start(&o, 4, 10);
    int count;
    assert_non_null(sfp__clock_next(&c, &count));
    sfp__clock_advance(&c, count, 3.5);
    assert_non_null(sfp__clock_next(&c, &count));
    assert_int_equal(count, 3);
    assert_int_equal(c.lag.served, 4);
    assert_true(fabs(c.lag.sum - 4.5) < 1e-9 && fabs(c.lag.last - 2.5) < 1e-9 && fabs(c.lag.max - 2.5) < 1e-9);
}

static atomic_int stop;

static void set_stop(int number)
{
    (void)number;
    stop = 1;
}

TEST(waiting_for_a_real_batch_ends_when_stopped)
{
    /* the batch would arrive after 1,000 s */
    const sfp__clock_options o = {.kind = SFP__CLOCK_REAL, .lambda = 1e-3, .stop = &stop};
    OWNED_BY(sfp__clock_done) sfp__clock c = start(&o, 1, 1);
    int count;
    const struct sigaction action = {.sa_handler = set_stop};
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    (void)alarm(1);
    assert_null(sfp__clock_next(&c, &count));
    assert_int_equal(stop, 1);
    assert_int_equal(c.next, 0); /* no batch was skipped */
}
