/* The monotonic clock, in seconds, and the time of day. */
#ifndef SFP_BASE_MONOTONIC_H
#define SFP_BASE_MONOTONIC_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static inline double sfp__monotonic_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The time of day in ms since 1970; 0: unknown. */
static inline int64_t sfp__time_of_day(void)
{
    struct timespec now;
    return clock_gettime(CLOCK_REALTIME, &now) == 0 ? (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 : 0;
}

/* The clock by which processing times are measured. It adds the seconds that a feature cache has saved, because a cache must not change what a run
 * learns or drops (model/vit_memo.h). Without a cache it is the monotonic clock. */
typedef struct sfp__time_source {
    double saved;
    bool paused; /* passes are not measured now, so the time that the cache saves is not added */
} sfp__time_source;

/* Returns the seconds that the cache has saved so far; 0 if s is NULL. */
static inline double sfp__time_saved(const sfp__time_source *s)
{
    return s ? s->saved : 0;
}

static inline double sfp__time_now(const sfp__time_source *s)
{
    return sfp__monotonic_seconds() + sfp__time_saved(s);
}

#endif
