/* Things made ahead: a thread of its own makes thing 0, 1, 2, ... so that whoever needs thing k finds it there. They go into a
 * ring that the user owns, thing k into slot k mod depth, as soon as thing k - depth is released; things that were released
 * before their turn are never made. */
#ifndef SFP_BASE_PREFETCH_H
#define SFP_BASE_PREFETCH_H

#include "base/error.h"

#include <stdint.h>

typedef struct sfp__prefetcher sfp__prefetcher;

typedef struct sfp__prefetcher_options {
    const char *what;                       /* "batch": what a thing is called in messages; a constant */
    int64_t first, end;                     /* things [first, end) */
    int depth;                              /* slots */
    void (*make)(void *ctx, int64_t thing); /* on the thread, one at a time, in ascending order */
    void *ctx;
} sfp__prefetcher_options;

sfp_status sfp__prefetcher_create(const sfp__prefetcher_options *o, sfp__prefetcher **out, sfp_error *err);
/* Ends the thread when the thing at hand is made. */
void sfp__prefetcher_free(sfp__prefetcher *a);

/* Waits until the thing is made, and adds the seconds that took to *waited; then its slot is the caller's until it is released.
 * SFP_EINVAL: it is not one of the `depth` things from the lowest that is not released. */
sfp_status sfp__prefetcher_take(sfp__prefetcher *a, int64_t thing, double *wait_seconds, sfp_error *err);
/* Things below this one are not needed any more. */
void sfp__prefetcher_release(sfp__prefetcher *a, int64_t thing);

#endif
