/* The time of a clock that never runs backwards, in seconds. */
#ifndef SFP_BASE_MONOTONIC_H
#define SFP_BASE_MONOTONIC_H

#include <time.h>

static inline double sfp__monotonic_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
