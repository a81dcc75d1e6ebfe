/* Memory: all heap blocks of the library are allocated here, so that tests can count allocations (a pass makes none) and make
 * each one fail in turn. */
#ifndef SFP_BASE_MEM_H
#define SFP_BASE_MEM_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define SFP__ALIGN 64

/* ----------------------------------------------------------------- ownership
 *
 * A variable declared with one of these macros is released at the end of its scope:
 *
 *     OWNED float *x = NULL;                               a pointer, released with sfp__free
 *     OWNED_BY(sfp__text_done) sfp__text t = {0};           a value; the function is called with its address
 *     OWNED_PTR(sfp__source_close) sfp_source *s = NULL;   a pointer; the header of its type must contain
 *                                                          DEFINE_OWNED_PTR(sfp_source, sfp__source_close)
 *     *out = TAKE(x);                                      moves the value out: x is then NULL, or all zero */
#define OWNED __attribute__((cleanup(sfp__free_at)))
#define OWNED_BY(fn) __attribute__((cleanup(fn)))
#define OWNED_PTR(fn) __attribute__((cleanup(fn##_at)))
#define DEFINE_OWNED_PTR(type, fn)       \
    static inline void fn##_at(type **p) \
    {                                    \
        fn(*p);                          \
    }
#define TAKE(p)                   \
    __extension__({               \
        __auto_type taken_ = (p); \
        (p) = (__typeof__(p)){0}; \
        taken_;                   \
    })

/* ---------------------------------------------------------------- allocating */

/* Allocates count * size bytes, 64-byte aligned and cleared, and stores the address in the pointer at `to`. A count of 0 is
 * treated as 1. */
sfp_status sfp__alloc(void *to, size_t count, size_t size, sfp_error *err);

/* Allocates several arrays in one block, which is freed as a whole. Each array is 64-byte aligned and not cleared; a count of 0
 * is treated as 1.
 *
 *     const sfp__want list[] = {{&l->score, b, sizeof *l->score}, {&l->order, b, sizeof *l->order}};
 *     TRY(sfp__block(&l->block, SFP__LIST(list), err)); */
typedef struct sfp__want {
    void *to; /* the address of a pointer */
    size_t count, size;
} sfp__want;
#define SFP__LIST(list) sizeof(list) / sizeof *(list), list
sfp_status sfp__block(void *to, size_t n, const sfp__want *list, sfp_error *err);
/* Like sfp__block, with cleared arrays. */
sfp_status sfp__block_cleared(void *to, size_t n, const sfp__want *list, sfp_error *err);

/* Returns `size` bytes, 64-byte aligned and not cleared; NULL if memory is exhausted or size is 0. */
void *sfp__malloc(size_t size);

/* Returns count * size bytes, cleared; NULL if memory is exhausted or the product overflows. */
void *sfp__calloc(size_t count, size_t size);

/* Like realloc, for blocks of sfp__malloc; `old` is the previous size. */
void *sfp__realloc(void *p, size_t old, size_t size);

/* Ensures that a growing array has memory for `wanted` elements of `size` bytes; its first `used` elements are kept. `array` is
 * the address of its pointer (initially NULL), *capacity the number of elements that fit. The capacity at least doubles. Returns
 * false if memory is exhausted; then nothing has changed. */
bool sfp__grow(void *array, size_t size, size_t used, size_t wanted, size_t *capacity);

char *sfp__strdup(const char *s);
void sfp__free(void *p);
/* Returns freed memory to the system, also that between other blocks, which the C library would keep. */
void sfp__mem_trim(void);

static inline void sfp__free_at(void *address)
{
    void *p;
    memcpy(&p, address, sizeof p); /* memcpy, because `address` may point to a pointer of any type */
    sfp__free(p);
}

/* Returns the size of the last allocation that failed on this thread. */
size_t sfp__mem_failed(void);

/* --------------------------------------------------------------------- arena
 *
 * Reusable scratch memory: pieces are allocated one by one and released together by a reset. The first round may allocate several
 * blocks. The reset replaces them by one block of the same total size: later rounds that need no more do not allocate. */
typedef struct sfp__arena_block sfp__arena_block;

typedef struct sfp__arena {
    sfp__arena_block *top; /* NULL: no block */
    size_t total;          /* sum of the block capacities in bytes */
} sfp__arena;

/* Returns count * size bytes, 64-byte aligned and not cleared; NULL if memory is exhausted. A count of 0 is treated as 1. */
void *sfp__arena_take(sfp__arena *a, size_t count, size_t size);
/* Like sfp__block, with memory from the arena. */
sfp_status sfp__arena_list(sfp__arena *a, size_t n, const sfp__want *list, sfp_error *err);
void sfp__arena_reset(sfp__arena *a);
void sfp__arena_done(sfp__arena *a);

/* --------------------------------------------------------------------- sizes */

/* Compute a*b and a+b; they return false if the result overflows. */
static inline bool sfp__mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool sfp__add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* For tests only: makes the k-th allocation from now on fail (k = 0: the next one); a negative k disables this. The count covers
 * all threads and costs one atomic addition per allocation. */
void sfp__mem_fail_at(long k);
unsigned long sfp__mem_count(void);

#endif
