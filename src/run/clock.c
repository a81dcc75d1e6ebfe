#include "run/clock.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "io/json_read.h"

#include <math.h>
#include <string.h>
#include <time.h>

static const double poll_seconds = 0.1; /* between checks of stop */

const char *sfp__clock_name(sfp__clock_kind kind)
{
    static const char *const names[] = {"paper", "virtual", "real", "off"};
    return names[kind];
}

double sfp__clock_cs(double cost, int64_t batches, int64_t samples, double lambda)
{
    return cost * (double)batches / ((double)samples / lambda);
}

int64_t sfp__clock_keep(int64_t n, double cs)
{
    if (n == 0 || !(cs > 1))
        return n;
    int64_t keep = (int64_t)floor((double)n / cs);
    return keep < 1 ? 1 : keep;
}

int64_t sfp__clock_kept_at(int64_t i, int64_t n, int64_t keep)
{
    return (int64_t)((__int128)i * n / keep);
}

sfp_status sfp__clock_init(sfp__clock *c, const sfp__clock_options *opt, int64_t batches, const int64_t *arrived, sfp_error *err)
{
    bool timed = opt->kind == SFP_CLOCK_VIRTUAL || opt->kind == SFP_CLOCK_REAL;
    if (timed && (!(opt->lambda > 0) || !isfinite(opt->lambda)))
        return sfp__fail_key(err, "rate", SFP_EINVAL, "rate is %g samples per second, expected more than 0", opt->lambda);
    int capacity = !timed ? 1 : opt->pool ? opt->pool : opt->queue + 1;
    if (capacity < 1 || capacity > 1 << 20)
        return sfp__fail(err, SFP_EINVAL, "queue is %d, expected 0 to %d batches", capacity - 1, (1 << 20) - 1);
    *c = (sfp__clock){.opt = *opt,
                      .timed = timed,
                      .batches = batches,
                      .arrived = arrived,
                      .capacity = capacity,
                      .began = sfp__monotonic_seconds()};
    c->queue = sfp__calloc((size_t)capacity, sizeof *c->queue);
    c->delivered = sfp__calloc((size_t)capacity, sizeof *c->delivered);
    if (!c->queue || !c->delivered) {
        sfp__clock_done(c);
        return sfp__fail_nomem(err);
    }
    return SFP_OK;
}

void sfp__clock_done(sfp__clock *c)
{
    sfp__free(c->queue);
    sfp__free(c->delivered);
    c->queue = NULL;
    c->delivered = NULL;
}

/* The time at which batch i is complete. */
static double arrival(const sfp__clock *c, int64_t i)
{
    return (double)c->arrived[i] / c->opt.lambda + c->blocked;
}

static void pop(sfp__clock *c, int n)
{
    memmove(c->queue, c->queue + n, (size_t)(c->waiting - n) * sizeof *c->queue);
    c->waiting -= n;
}

void sfp__lag_add(sfp__lag *l, double seconds)
{
    l->last = seconds > 0 ? seconds : 0;
    l->sum += l->last;
    l->max = fmax(l->max, l->last);
    l->served++;
}

void sfp__lag_join(sfp__lag *l, const sfp__lag *more)
{
    l->last = more->last;
    l->sum += more->sum;
    l->max = fmax(l->max, more->max);
    l->served += more->served;
}

/* Puts the batches that have arrived by now into the queue. idle: the learner is free, so one batch needs no place in the queue.
 * A batch that is complete within a nanosecond of the time when the learner becomes free waits for that time: rounding must not
 * drop it. */
static void enqueue_arrived(sfp__clock *c, bool idle)
{
    while (c->next < c->batches && arrival(c, c->next) <= c->now - (idle ? 0 : 1e-9)) {
        int capacity = c->opt.pool ? c->opt.pool : c->opt.queue + (idle && c->waiting == 0);
        if (c->waiting >= capacity && c->opt.policy == SFP_QUEUE_BLOCK && !c->opt.pool) {
            c->held = true;
            return;
        }
        if (c->held) { /* there is space again: the blocked batch arrives now, and all later ones are delayed as much */
            c->blocked += c->now - arrival(c, c->next);
            c->held = false;
        }
        if (c->waiting >= capacity && capacity > 0 && (c->opt.pool || c->opt.policy == SFP_QUEUE_DROP_OLDEST))
            pop(c, 1);
        if (c->waiting < capacity)
            c->queue[c->waiting++] = (sfp__queued_batch){c->next, arrival(c, c->next)};
        c->next++;
    }
}

static bool stopped(const sfp__clock *c)
{
    return c->opt.kind == SFP_CLOCK_REAL && c->opt.stop && atomic_load(c->opt.stop);
}

static void wait_until(sfp__clock *c, double at)
{
    if (c->opt.kind != SFP_CLOCK_REAL) {
        c->now = fmax(c->now, at);
        return;
    }
    while (c->now < at && !stopped(c)) { /* in pieces: a signal just before a sleep does not interrupt it */
        double wait = fmin(at - c->now, poll_seconds);
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)(wait * 1e9)}, NULL);
        c->now = sfp__monotonic_seconds() - c->began;
    }
}

/* Delivers the oldest batch. Its place is free for a batch that is complete at this moment. */
static int take_one(sfp__clock *c)
{
    c->delivered[0] = c->queue[0].batch;
    sfp__lag_add(&c->lag, c->now - c->queue[0].arrived_at);
    pop(c, 1);
    enqueue_arrived(c, false);
    return 1;
}

static int take_all(sfp__clock *c)
{
    int n = c->waiting;
    for (int i = n - 1; i >= 0; i--) {
        c->delivered[i] = c->queue[i].batch;
        sfp__lag_add(&c->lag, c->now - c->queue[i].arrived_at);
    }
    pop(c, n);
    return n;
}

static int take(sfp__clock *c)
{
    if (!c->timed) {
        c->delivered[0] = c->next;
        return c->next < c->batches ? (c->next++, 1) : 0;
    }
    if (c->opt.kind == SFP_CLOCK_REAL)
        c->now = sfp__monotonic_seconds() - c->began;
    if (c->waiting == 0 || c->opt.pool)
        enqueue_arrived(c, true);
    while (c->waiting == 0) {
        if (c->next >= c->batches || stopped(c))
            return 0;
        wait_until(c, arrival(c, c->next));
        enqueue_arrived(c, true);
    }
    return c->opt.pool ? take_all(c) : take_one(c);
}

const int64_t *sfp__clock_next(sfp__clock *c, int *count)
{
    if (c->delivered_count == 0)
        c->delivered_count = take(c);
    *count = c->delivered_count;
    return c->delivered_count ? c->delivered : NULL;
}

void sfp__clock_advance(sfp__clock *c, int n, double seconds)
{
    c->spent += seconds;
    c->delivered_count -= n;
    memmove(c->delivered, c->delivered + n, (size_t)c->delivered_count * sizeof *c->delivered);
    if (n == 0 || c->delivered_count > 0)
        return;
    if (c->timed) {
        c->now = c->opt.kind == SFP_CLOCK_REAL ? sfp__monotonic_seconds() - c->began : c->now + c->spent;
        enqueue_arrived(c, false);
    }
    c->spent = 0;
}

void sfp__clock_leave_out(sfp__clock *c, double seconds)
{
    c->began += seconds;
}

int64_t sfp__clock_first(const sfp__clock *c)
{
    return c->delivered_count ? c->delivered[0] : c->waiting ? c->queue[0].batch : c->next;
}

/* ---------------------------------------------------------------- checkpoints */

json_t *sfp__lag_json(const sfp__lag *l)
{
    return json_pack("{s:f,s:f,s:f,s:I}", "sum", l->sum, "max", l->max, "last", l->last, "served", (json_int_t)l->served);
}

bool sfp__lag_read(sfp__lag *l, json_t *j)
{
    int64_t served;
    sfp__lag now = {0};
    if (!sfp__json_whole(j, "served", 0, INT64_MAX, &served) ||
        json_unpack(j, "{s:F,s:F,s:F}", "sum", &now.sum, "max", &now.max, "last", &now.last) != 0)
        return false;
    now.served = (uint64_t)served;
    *l = now;
    return true;
}

json_t *sfp__clock_json(const sfp__clock *c)
{
    json_t *queue = json_array(), *delivered = json_array();
    for (int i = 0; i < c->waiting; i++)
        (void)json_array_append_new(queue, json_pack("[I,f]", (json_int_t)c->queue[i].batch, c->queue[i].arrived_at));
    for (int i = 0; i < c->delivered_count; i++)
        (void)json_array_append_new(delivered, json_integer(c->delivered[i]));
    if ((int)json_array_size(queue) != c->waiting || (int)json_array_size(delivered) != c->delivered_count) {
        json_decref(queue); /* an incomplete list would lose a batch */
        json_decref(delivered);
        return NULL;
    }
    return json_pack("{s:f,s:f,s:b,s:I,s:o,s:o,s:f,s:o}", "now", c->now, "blocked", c->blocked, "held", c->held, "next",
                     (json_int_t)c->next, "queue", queue, "taken", delivered, "spent", c->spent, "lag", sfp__lag_json(&c->lag));
}

bool sfp__clock_read(sfp__clock *c, json_t *j)
{
    int64_t next;
    int held;
    double now, blocked, spent;
    json_t *queue, *delivered;
    if (!sfp__json_whole(j, "next", 0, c->batches, &next) || !sfp__lag_read(&c->lag, json_object_get(j, "lag")) ||
        json_unpack(j, "{s:F,s:F,s:b,s:o,s:o,s:F}", "now", &now, "blocked", &blocked, "held", &held, "queue", &queue, "taken",
                    &delivered, "spent", &spent) != 0 ||
        !json_is_array(queue) || !json_is_array(delivered) || json_array_size(queue) > (size_t)c->capacity ||
        json_array_size(delivered) > (size_t)c->capacity || !(spent >= 0))
        return false;
    for (size_t i = 0; i < json_array_size(queue); i++) {
        json_int_t batch;
        if (json_unpack(json_array_get(queue, i), "[I,F]", &batch, &c->queue[i].arrived_at) != 0 || batch < 0 || batch >= next)
            return false;
        c->queue[i].batch = batch;
    }
    for (size_t i = 0; i < json_array_size(delivered); i++) {
        c->delivered[i] = json_integer_value(json_array_get(delivered, i));
        if (c->delivered[i] < 0 || c->delivered[i] >= next || (i > 0 && c->delivered[i] <= c->delivered[i - 1]))
            return false;
    }
    c->waiting = (int)json_array_size(queue);
    c->delivered_count = (int)json_array_size(delivered);
    c->next = next;
    c->now = now;
    c->blocked = blocked;
    c->spent = spent;
    c->held = held != 0;
    c->began = sfp__monotonic_seconds() - c->now;
    return true;
}
