#include "base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static atomic_ulong allocations;
static atomic_long fail_in = -1;
static _Thread_local size_t failed_bytes;

void sfp__mem_fail_at(long k)
{
    atomic_store(&fail_in, k);
}

unsigned long sfp__mem_count(void)
{
    return atomic_load(&allocations);
}

static bool must_fail(void)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    if (atomic_load_explicit(&fail_in, memory_order_relaxed) < 0)
        return false;
    return atomic_fetch_sub(&fail_in, 1) == 0;
}

size_t sfp__mem_failed(void)
{
    return failed_bytes;
}

void *sfp__malloc(size_t size)
{
    void *p = NULL;
    if (size > 0 && size <= PTRDIFF_MAX - SFP__ALIGN && !must_fail())
        p = aligned_alloc(SFP__ALIGN, (size + SFP__ALIGN - 1) & ~(size_t)(SFP__ALIGN - 1));
    if (!p)
        failed_bytes = size;
    return p;
}

void *sfp__calloc(size_t count, size_t size)
{
    size_t bytes;
    if (!sfp__mul_size(count, size, &bytes))
        bytes = SIZE_MAX;
    void *p = sfp__malloc(bytes);
    if (p)
        memset(p, 0, bytes);
    return p;
}

static void store_pointer(void *to, void *p)
{
    memcpy(to, &p, sizeof p); /* `to` may be the address of a pointer of any type */
}

sfp_status sfp__alloc(void *to, size_t count, size_t size, sfp_error *err)
{
    void *p = sfp__calloc(count ? count : 1, size);
    if (!p)
        return sfp__fail_nomem(err);
    store_pointer(to, p);
    return SFP_OK;
}

/* Computes the bytes of an array, rounded up to the alignment. Returns false on overflow. */
static bool array_bytes(size_t count, size_t size, size_t *out)
{
    if (!sfp__mul_size(count ? count : 1, size, out) || !sfp__add_size(*out, SFP__ALIGN - 1, out))
        return false;
    *out &= ~(size_t)(SFP__ALIGN - 1);
    return true;
}

sfp_status sfp__block(void *to, size_t n, const sfp__want *list, sfp_error *err)
{
    size_t total = 0, bytes;
    for (size_t i = 0; i < n; i++)
        if (!array_bytes(list[i].count, list[i].size, &bytes) || !sfp__add_size(total, bytes, &total)) {
            total = SIZE_MAX; /* makes the allocation fail */
            break;
        }
    char *p = sfp__malloc(total);
    if (!p)
        return sfp__fail_nomem(err);
    store_pointer(to, p);
    for (size_t i = 0; i < n; i++) {
        store_pointer(list[i].to, p);
        (void)array_bytes(list[i].count, list[i].size, &bytes);
        p += bytes;
    }
    return SFP_OK;
}

sfp_status sfp__block_cleared(void *to, size_t n, const sfp__want *list, sfp_error *err)
{
    TRY(sfp__block(to, n, list, err));
    for (size_t i = 0; i < n; i++) {
        void *p;
        memcpy(&p, list[i].to, sizeof p);
        memset(p, 0, (list[i].count ? list[i].count : 1) * list[i].size);
    }
    return SFP_OK;
}

void *sfp__realloc(void *p, size_t old, size_t size)
{
    void *q = sfp__malloc(size);
    if (!q)
        return NULL;
    if (p)
        memcpy(q, p, old < size ? old : size);
    sfp__free(p);
    return q;
}

bool sfp__grow(void *array, size_t size, size_t used, size_t wanted, size_t *capacity)
{
    if (wanted <= *capacity)
        return true;
    size_t more = *capacity < 8 ? 16 : *capacity * 2, bytes; /* an allocated capacity is far below SIZE_MAX / 2 */
    if (more < wanted)
        more = wanted;
    void *p;
    memcpy(&p, array, sizeof p); /* `array` may be the address of a pointer of any type */
    if (!sfp__mul_size(more, size, &bytes))
        bytes = SIZE_MAX;
    if (!(p = sfp__realloc(p, used * size, bytes)))
        return false;
    store_pointer(array, p);
    *capacity = more;
    return true;
}

char *sfp__strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = sfp__malloc(n);
    if (p)
        memcpy(p, s, n);
    return p;
}

void sfp__free(void *p)
{
    free(p);
}

void sfp__mem_trim(void)
{
    (void)malloc_trim(0);
}

/* ---------------------------------------------------------------------- arena */

struct sfp__arena_block {
    sfp__arena_block *below;
    size_t capacity, used; /* bytes after the header */
};

enum { HEADER = SFP__ALIGN };
_Static_assert(sizeof(sfp__arena_block) <= HEADER, "the header fits before the first aligned byte");

static sfp__arena_block *add_block(sfp__arena *a, size_t capacity)
{
    size_t bytes;
    sfp__arena_block *b = sfp__malloc(sfp__add_size(capacity, HEADER, &bytes) ? bytes : SIZE_MAX);
    if (!b)
        return NULL;
    *b = (sfp__arena_block){.below = a->top, .capacity = capacity};
    a->top = b;
    a->total += capacity;
    return b;
}

void *sfp__arena_take(sfp__arena *a, size_t count, size_t size)
{
    size_t bytes;
    if (!array_bytes(count, size, &bytes)) {
        failed_bytes = SIZE_MAX;
        return NULL;
    }
    sfp__arena_block *b = a->top;
    if (!b || b->capacity - b->used < bytes)
        b = add_block(a, bytes);
    if (!b)
        return NULL;
    void *p = (char *)b + HEADER + b->used;
    b->used += bytes;
    return p;
}

sfp_status sfp__arena_list(sfp__arena *a, size_t n, const sfp__want *list, sfp_error *err)
{
    for (size_t i = 0; i < n; i++) {
        void *p = sfp__arena_take(a, list[i].count, list[i].size);
        if (!p)
            return sfp__fail_nomem(err);
        store_pointer(list[i].to, p);
    }
    return SFP_OK;
}

void sfp__arena_reset(sfp__arena *a)
{
    if (a->top && !a->top->below) {
        a->top->used = 0;
        return;
    }
    size_t capacity = a->total;
    sfp__arena_done(a);
    if (capacity)
        (void)add_block(a, capacity); /* if this fails, the next sfp__arena_take tries again */
}

void sfp__arena_done(sfp__arena *a)
{
    for (sfp__arena_block *b = a->top; b;) {
        sfp__arena_block *below = b->below;
        sfp__free(b);
        b = below;
    }
    *a = (sfp__arena){0};
}
