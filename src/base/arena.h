/* Scratch memory that is used again: taken piece by piece, given back all at once.
 *
 * The first round may allocate as often as it likes; a reset joins what it took into one block, so that every later round that
 * takes no more allocates nothing. */
#ifndef SFP_BASE_ARENA_H
#define SFP_BASE_ARENA_H

#include <stddef.h>

typedef struct sfp_arena_block sfp_arena_block;

typedef struct sfp_arena {
    sfp_arena_block *top; /* NULL: nothing yet */
    size_t total;         /* bytes of all blocks */
} sfp_arena;

/* count * size bytes, 64-byte aligned, not cleared; count 0 is taken as 1. NULL: out of memory. */
void *sfp__arena_take(sfp_arena *a, size_t count, size_t size);
void sfp__arena_reset(sfp_arena *a);
void sfp__arena_done(sfp_arena *a);

#endif
