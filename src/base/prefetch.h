/* Prefetching: a background thread makes items 0, 1, 2, ... before they are needed. The caller owns a ring of `depth` slots; item
 * k is stored in slot k mod depth, as soon as item k - depth is released. Items that are released before their turn are never
 * made. */
#ifndef SFP_BASE_PREFETCH_H
#define SFP_BASE_PREFETCH_H

#include "base/error.h"

#include <stdint.h>

typedef struct sfp__prefetcher sfp__prefetcher;

typedef struct sfp__prefetcher_options {
    const char *item_name;                 /* "batch": the name of an item in messages; must be a constant string */
    int64_t first, end;                    /* range [first, end) of the items */
    int depth;                             /* number of slots */
    void (*make)(void *ctx, int64_t item); /* called on the thread, one item at a time, in ascending order */
    void *ctx;
} sfp__prefetcher_options;

sfp_status sfp__prefetcher_create(const sfp__prefetcher_options *o, sfp__prefetcher **out, sfp_error *err);
/* Stops the thread after the item that it is making, and frees the prefetcher. */
void sfp__prefetcher_free(sfp__prefetcher *a);

/* Waits until the item is made and adds the seconds of waiting to *wait_seconds. The slot then belongs to the caller until the
 * item is released. SFP_EINVAL: the item is not one of the `depth` items from the lowest unreleased one on. */
sfp_status sfp__prefetcher_take(sfp__prefetcher *a, int64_t item, double *wait_seconds, sfp_error *err);
/* Releases all items below this one. */
void sfp__prefetcher_release(sfp__prefetcher *a, int64_t item);

#endif
