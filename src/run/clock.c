#include "run/clock.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "io/json_read.h"

#include <math.h>
#include <string.h>
#include <time.h>

static const double poll_seconds = 0.1; /* seconds between checks of stop */

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
    bool timed = opt->kind == SFP__CLOCK_VIRTUAL || opt->kind == SFP__CLOCK_REAL;
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

/* Puts the batches that have arrived by now into the queue. idle: the learner is free, so one batch is processed at once and does
 * not count towards the capacity. While the learner is busy, the last nanosecond does not count: a batch that is complete exactly
 * when the learner becomes free must not be dropped because of rounding. */
static void enqueue_arrived(sfp__clock *c, bool idle)
{
    while (c->next < c->batches && arrival(c, c->next) <= c->now - (idle ? 0 : 1e-9)) {
        int capacity = c->opt.pool ? c->opt.pool : c->opt.queue + (idle && c->waiting == 0);
        if (c->waiting >= capacity && c->opt.policy == SFP__QUEUE_BLOCK && !c->opt.pool) {
            c->held = true;
            return;
        }
        if (c->held) { /* the queue has space again: the blocked batch arrives now, and all later ones are delayed by the same time */
            c->blocked += c->now - arrival(c, c->next);
            c->held = false;
        }
        if (c->waiting >= capacity && capacity > 0 && (c->opt.pool || c->opt.policy == SFP__QUEUE_DROP_OLDEST))
            pop(c, 1);
        if (c->waiting < capacity)
            c->queue[c->waiting++] = (sfp__queued_batch){c->next, arrival(c, c->next)};
        c->next++;
    }
}

static bool stopped(const sfp__clock *c)
{
    return c->opt.kind == SFP__CLOCK_REAL && c->opt.stop && atomic_load(c->opt.stop);
}

static void wait_until(sfp__clock *c, double at)
{
    if (c->opt.kind != SFP__CLOCK_REAL) {
        c->now = fmax(c->now, at);
        return;
    }
    while (c->now < at &&
           !stopped(c)) { /* Sleeps in short pieces, because a signal that arrives just before a sleep does not interrupt it. */
        double wait = fmin(at - c->now, poll_seconds);
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)(wait * 1e9)}, NULL);
        c->now = sfp__monotonic_seconds() - c->began;
    }
}

static int take(sfp__clock *c)
{
    if (!c->timed) {
        c->delivered[0] = c->next;
        return c->next < c->batches ? (c->next++, 1) : 0;
    }
    if (c->opt.kind == SFP__CLOCK_REAL)
        c->now = sfp__monotonic_seconds() - c->began;
    if (c->waiting == 0 || c->opt.pool)
        enqueue_arrived(c, true);
    while (c->waiting == 0) {
        if (c->next >= c->batches || stopped(c))
            return 0;
        wait_until(c, arrival(c, c->next));
        enqueue_arrived(c, true);
    }
    int n = c->opt.pool ? c->waiting : 1;
    for (int i = n - 1; i >= 0; i--) {
        c->delivered[i] = c->queue[i].batch;
        sfp__lag_add(&c->lag, c->now - c->queue[i].arrived_at);
    }
    pop(c, n);
    if (!c->opt.pool) /* The place of the processed batch is free for a batch that is complete at this moment. */
        enqueue_arrived(c, false);
    return n;
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
        c->now = c->opt.kind == SFP__CLOCK_REAL ? sfp__monotonic_seconds() - c->began : c->now + c->spent;
        enqueue_arrived(c, false);
    }
    c->spent = 0;
}

void sfp__clock_exclude(sfp__clock *c, double seconds)
{
    c->began += seconds;
}

int64_t sfp__clock_first(const sfp__clock *c)
{
    return c->delivered_count ? c->delivered[0] : c->waiting ? c->queue[0].batch : c->next;
}

/* ---------------------------------------------------------------- checkpoints */

void sfp__lag_write(const sfp__lag *l, sfp__json *j)
{
    sfp__json_object(j, "lag");
    sfp__json_exact(j, "sum", l->sum);
    sfp__json_exact(j, "max", l->max);
    sfp__json_exact(j, "last", l->last);
    sfp__json_uint(j, "served", l->served);
    sfp__json_end(j);
}

bool sfp__lag_read(sfp__lag *l, const sfp__json_value *j)
{
    int64_t served;
    sfp__lag now = {0};
    if (!sfp__json_whole(j, "served", 0, INT64_MAX, &served) || !sfp__json_real_at(j, "sum", &now.sum) ||
        !sfp__json_real_at(j, "max", &now.max) || !sfp__json_real_at(j, "last", &now.last))
        return false;
    now.served = (uint64_t)served;
    *l = now;
    return true;
}

void sfp__clock_write(const sfp__clock *c, sfp__json *j)
{
    sfp__json_object(j, "clock");
    sfp__json_exact(j, "now", c->now);
    sfp__json_exact(j, "blocked", c->blocked);
    sfp__json_bool(j, "held", c->held);
    sfp__json_int(j, "next", c->next);
    sfp__json_array(j, "queue");
    for (int i = 0; i < c->waiting; i++) {
        sfp__json_array(j, NULL);
        sfp__json_int(j, NULL, c->queue[i].batch);
        sfp__json_exact(j, NULL, c->queue[i].arrived_at);
        sfp__json_end(j);
    }
    sfp__json_end(j);
    sfp__json_array(j, "taken");
    for (int i = 0; i < c->delivered_count; i++)
        sfp__json_int(j, NULL, c->delivered[i]);
    sfp__json_end(j);
    sfp__json_exact(j, "spent", c->spent);
    sfp__lag_write(&c->lag, j);
    sfp__json_end(j);
}

bool sfp__clock_read(sfp__clock *c, const sfp__json_value *j)
{
    int64_t next;
    double now, blocked, spent;
    const sfp__json_value *queue = sfp__json_get(j, "queue"), *delivered = sfp__json_get(j, "taken");
    if (!sfp__json_whole(j, "next", 0, c->batches, &next) || !sfp__lag_read(&c->lag, sfp__json_get(j, "lag")) ||
        !sfp__json_real_at(j, "now", &now) || !sfp__json_real_at(j, "blocked", &blocked) ||
        !sfp__json_real_at(j, "spent", &spent) || !sfp__json_is(queue, SFP__JSON_ARRAY) ||
        !sfp__json_is(delivered, SFP__JSON_ARRAY) || sfp__json_size(queue) > (size_t)c->capacity ||
        sfp__json_size(delivered) > (size_t)c->capacity || !(spent >= 0))
        return false;
    for (size_t i = 0; i < sfp__json_size(queue); i++) {
        const sfp__json_value *entry = sfp__json_at(queue, i), *batch = sfp__json_at(entry, 0), *at = sfp__json_at(entry, 1);
        if (!sfp__json_is(batch, SFP__JSON_INTEGER) || batch->integer < 0 || batch->integer >= next || !sfp__json_is_number(at))
            return false;
        c->queue[i].batch = batch->integer;
        c->queue[i].arrived_at = sfp__json_number(at);
    }
    for (size_t i = 0; i < sfp__json_size(delivered); i++) {
        c->delivered[i] = sfp__json_integer(sfp__json_at(delivered, i));
        if (c->delivered[i] < 0 || c->delivered[i] >= next || (i > 0 && c->delivered[i] <= c->delivered[i - 1]))
            return false;
    }
    c->waiting = (int)sfp__json_size(queue);
    c->delivered_count = (int)sfp__json_size(delivered);
    c->next = next;
    c->now = now;
    c->blocked = blocked;
    c->spent = spent;
    c->held = sfp__json_is(sfp__json_get(j, "held"), SFP__JSON_TRUE);
    c->began = sfp__monotonic_seconds() - c->now;
    return true;
}
