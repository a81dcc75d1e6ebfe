#include "run/clock.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>
#include <time.h>

static const double look = 0.1; /* seconds between looks at stop */

const char *sfp__clock_name(sfp_clock_kind kind)
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

sfp_status sfp__clock_init(sfp_clock *c, const sfp_clock_options *opt, int64_t batches, const int64_t *arrived, sfp_error *err)
{
    if (!(opt->lambda > 0) || !isfinite(opt->lambda))
        return sfp__fail_key(err, "rate", SFP_EINVAL, "rate is %g samples a second, expected more than 0", opt->lambda);
    int room = opt->pool ? opt->pool_most : opt->queue + 1;
    if (room < 1 || room > 1 << 20)
        return sfp__fail(err, SFP_EINVAL, "a queue of %d batches, expected 0 to %d", room - 1, (1 << 20) - 1);
    *c = (sfp_clock){.opt = *opt, .batches = batches, .arrived = arrived, .room = room, .began = sfp__now()};
    c->queue = sfp__calloc((size_t)room, sizeof *c->queue);
    c->taken = sfp__calloc((size_t)room, sizeof *c->taken);
    if (!c->queue || !c->taken) {
        sfp__clock_done(c);
        return sfp__fail_nomem(err);
    }
    return SFP_OK;
}

void sfp__clock_done(sfp_clock *c)
{
    sfp__free(c->queue);
    sfp__free(c->taken);
    c->queue = NULL;
    c->taken = NULL;
}

void sfp__clock_restart(sfp_clock *c)
{
    c->began = sfp__now() - c->now;
}

/* When batch i is complete. */
static double arrival(const sfp_clock *c, int64_t i)
{
    return (double)c->arrived[i] / c->opt.lambda + c->blocked;
}

static void pop(sfp_clock *c, int n)
{
    memmove(c->queue, c->queue + n, (size_t)(c->waiting - n) * sizeof *c->queue);
    c->waiting -= n;
}

void sfp__lag_add(sfp_lag *l, double seconds)
{
    l->last = seconds > 0 ? seconds : 0;
    l->sum += l->last;
    l->max = fmax(l->max, l->last);
    l->served++;
}

void sfp__lag_join(sfp_lag *l, const sfp_lag *more)
{
    l->last = more->last;
    l->sum += more->sum;
    l->max = fmax(l->max, more->max);
    l->served += more->served;
}

/* Takes in what has arrived up to now. `idle`: the learner is free, so one batch needs no place in the queue; a batch that is
 * complete just when it becomes free is left to that moment, within a nanosecond: rounding must not drop it. */
static void take_in(sfp_clock *c, bool idle)
{
    while (c->next < c->batches && arrival(c, c->next) <= c->now - (idle ? 0 : 1e-9)) {
        int room = c->opt.pool ? c->opt.pool_most : c->opt.queue + (idle && c->waiting == 0);
        if (c->waiting >= room && c->opt.policy == SFP_QUEUE_BLOCK && !c->opt.pool) {
            c->held = true;
            return;
        }
        if (c->held) { /* there is room again: what was held back arrives now, and all that follows as much later */
            c->blocked += c->now - arrival(c, c->next);
            c->held = false;
        }
        if (c->waiting >= room && room > 0 && (c->opt.pool || c->opt.policy == SFP_QUEUE_DROP_OLDEST)) {
            pop(c, 1);
            c->dropped++;
        }
        if (c->waiting < room)
            c->queue[c->waiting++] = (sfp_waiting){c->next, arrival(c, c->next)};
        else
            c->dropped++;
        c->next++;
    }
}

static bool stopped(const sfp_clock *c)
{
    return c->opt.kind == SFP_CLOCK_REAL && c->opt.stop && *c->opt.stop;
}

static void wait_until(sfp_clock *c, double at)
{
    if (c->opt.kind != SFP_CLOCK_REAL) {
        c->now = fmax(c->now, at);
        return;
    }
    while (c->now < at && !stopped(c)) { /* in pieces: a signal that comes just before a sleep does not end it */
        double wait = fmin(at - c->now, look);
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)(wait * 1e9)}, NULL);
        c->now = sfp__now() - c->began;
    }
}

/* The one that waits longest, in its own right: what is complete at this very moment finds its place free. */
static int take_one(sfp_clock *c)
{
    c->taken[0] = c->queue[0].batch;
    sfp__lag_add(&c->lag, c->now - c->queue[0].since);
    pop(c, 1);
    take_in(c, false);
    return 1;
}

static int take_all(sfp_clock *c)
{
    int n = c->waiting;
    for (int i = n - 1; i >= 0; i--) {
        c->taken[i] = c->queue[i].batch;
        sfp__lag_add(&c->lag, c->now - c->queue[i].since);
    }
    pop(c, n);
    return n;
}

const int64_t *sfp__clock_next(sfp_clock *c, int *count)
{
    if (c->opt.kind == SFP_CLOCK_REAL)
        c->now = sfp__now() - c->began;
    if (c->waiting == 0 || c->opt.pool)
        take_in(c, true);
    while (c->waiting == 0) {
        if (c->next >= c->batches || stopped(c))
            return NULL;
        wait_until(c, arrival(c, c->next));
        take_in(c, true);
    }
    *count = c->opt.pool ? take_all(c) : take_one(c);
    return c->taken;
}

void sfp__clock_spent(sfp_clock *c, double seconds)
{
    c->now = c->opt.kind == SFP_CLOCK_REAL ? sfp__now() - c->began : c->now + seconds;
    take_in(c, false);
}
