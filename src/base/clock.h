/* Seconds of a clock that never goes back. */
#ifndef SFP_BASE_CLOCK_H
#define SFP_BASE_CLOCK_H

#include <time.h>

static inline double sfp__now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
