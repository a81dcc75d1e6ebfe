#include "base/arena.h"

#include "base/mem.h"

struct sfp_arena_block {
    sfp_arena_block *below;
    size_t room, used; /* bytes after the header */
};

enum { HEADER = SFP_ALIGN };
_Static_assert(sizeof(sfp_arena_block) <= HEADER, "the header fits before the first aligned byte");

static sfp_arena_block *add_block(sfp_arena *a, size_t room)
{
    size_t bytes;
    sfp_arena_block *b = sfp__add_size(room, HEADER, &bytes) ? sfp__malloc(bytes) : NULL;
    if (!b)
        return NULL;
    *b = (sfp_arena_block){.below = a->top, .room = room};
    a->top = b;
    a->total += room;
    return b;
}

void *sfp__arena_take(sfp_arena *a, size_t count, size_t size)
{
    size_t bytes;
    if (!sfp__mul_size(count ? count : 1, size, &bytes) || !sfp__add_size(bytes, SFP_ALIGN - 1, &bytes))
        return NULL;
    bytes &= ~(size_t)(SFP_ALIGN - 1);
    sfp_arena_block *b = a->top;
    if (!b || b->room - b->used < bytes)
        b = add_block(a, bytes);
    if (!b)
        return NULL;
    void *p = (char *)b + HEADER + b->used;
    b->used += bytes;
    return p;
}

void sfp__arena_reset(sfp_arena *a)
{
    if (a->top && !a->top->below) {
        a->top->used = 0;
        return;
    }
    size_t room = a->total;
    sfp__arena_done(a);
    if (room)
        (void)add_block(a, room); /* when this fails, the next take tries again */
}

void sfp__arena_done(sfp_arena *a)
{
    for (sfp_arena_block *b = a->top; b;) {
        sfp_arena_block *below = b->below;
        sfp__free(b);
        b = below;
    }
    *a = (sfp_arena){0};
}
