/* Memory: every heap block of the library comes from here, so that tests can
 * count allocations (none in a pass) and make each one fail in turn. */
#ifndef SFP_BASE_MEM_H
#define SFP_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

#define SFP_ALIGN 64

/* 64-byte aligned, not cleared; NULL when out of memory or size is 0. */
void *sfp__malloc(size_t size);

/* count * size bytes, cleared; NULL also when the product overflows. */
void *sfp__calloc(size_t count, size_t size);

/* As realloc for blocks of sfp__malloc; `old` is what was asked for before. */
void *sfp__realloc(void *p, size_t old, size_t size);

/* Room for `wanted` elements of `size` bytes in a growing array, whose first `used` are kept; `array` is the address of its
 * pointer (NULL at first), *room how many it has room for. It at least doubles. False: no memory, and nothing has changed. */
bool sfp__grow(void *array, size_t size, size_t used, size_t wanted, size_t *room);

char *sfp__strdup(const char *s);
void sfp__free(void *p);

/* a*b and a+b with overflow told: true when the result fits. */
static inline bool sfp__mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool sfp__add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Tests only. The k-th allocation from now on fails (k = 0: the next); a
 * negative k ends it. Counting is process-wide and costs one atomic add. */
void sfp__mem_fail_at(long k);
unsigned long sfp__mem_count(void);

#endif
