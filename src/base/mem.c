#include "base/mem.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static atomic_ulong allocations;
static atomic_long fail_in = -1;

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

void *sfp__malloc(size_t size)
{
    if (size == 0 || size > PTRDIFF_MAX - SFP_ALIGN || must_fail())
        return NULL;
    return aligned_alloc(SFP_ALIGN, (size + SFP_ALIGN - 1) & ~(size_t)(SFP_ALIGN - 1));
}

void *sfp__calloc(size_t count, size_t size)
{
    size_t bytes;
    if (!sfp__mul_size(count, size, &bytes))
        return NULL;
    void *p = sfp__malloc(bytes);
    if (p)
        memset(p, 0, bytes);
    return p;
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

bool sfp__grow(void *array, size_t size, size_t used, size_t wanted, size_t *room)
{
    if (wanted <= *room)
        return true;
    size_t more = *room < 8 ? 16 : *room * 2, bytes; /* rooms are far below SIZE_MAX / 2: they were allocated */
    if (more < wanted)
        more = wanted;
    void *p;
    memcpy(&p, array, sizeof p); /* a pointer of whatever type */
    if (!sfp__mul_size(more, size, &bytes) || !(p = sfp__realloc(p, used * size, bytes)))
        return false;
    memcpy(array, &p, sizeof p);
    *room = more;
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
