/* A set of 64-bit marks, of what was taken once. It is bounded: at SFP_MARK_SET_MAX it forgets all of them at once. */
#ifndef SFP_STREAM_MARK_SET_H
#define SFP_STREAM_MARK_SET_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SFP_MARK_SET_MAX ((size_t)1 << 20)

typedef struct sfp_mark_set {
    uint64_t *slot; /* (room, a power of two) 0: free */
    size_t count, room;
} sfp_mark_set;

/* mark is not 0. *fresh: it was not there yet. */
sfp_status sfp__mark_set_add(sfp_mark_set *s, uint64_t mark, bool *fresh, sfp_error *err);
void sfp__mark_set_done(sfp_mark_set *s);

#endif
