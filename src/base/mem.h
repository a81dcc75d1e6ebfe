/* Memory: every heap block of the library comes from here, so that tests can
 * count allocations (none in a pass) and make each one fail in turn. */
#ifndef SFP_BASE_MEM_H
#define SFP_BASE_MEM_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define SFP_ALIGN 64

/* ------------------------------------------------------------ who frees what
 *
 *     OWNED float *x = NULL;                               freed by sfp__free at the end of its scope
 *     OWNED_BY(sfp__text_done) sfp__text t = {0};           a value whose function takes its address
 *     OWNED_PTR(sfp__source_close) sfp_source *s = NULL;   a pointer; its header says
 *                                                          DEFINE_OWNED_PTR(sfp_source, sfp__source_close)
 *     *out = TAKE(x);                                      handed over: x is NULL, or all of it 0, from here on */
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

/* count * size bytes, 64-byte aligned and cleared, to the pointer whose address is `to`; count 0 is taken as 1. */
sfp_status sfp__alloc(void *to, size_t count, size_t size, sfp_error *err);

/* Several arrays at once, in one block with one free; each is 64-byte aligned and not cleared, count 0 is taken as 1.
 *
 *     const sfp__want list[] = {{&l->score, b, sizeof *l->score}, {&l->order, b, sizeof *l->order}};
 *     TRY(sfp__block(&l->block, SFP_LIST(list), err)); */
typedef struct sfp__want {
    void *to; /* the address of a pointer */
    size_t count, size;
} sfp__want;
#define SFP_LIST(list) sizeof(list) / sizeof *(list), list
sfp_status sfp__block(void *to, size_t n, const sfp__want *list, sfp_error *err);
/* The same, cleared. */
sfp_status sfp__block_cleared(void *to, size_t n, const sfp__want *list, sfp_error *err);

/* 64-byte aligned, not cleared; NULL when out of memory or size is 0. */
void *sfp__malloc(size_t size);

/* count * size bytes, cleared; NULL also when the product overflows. */
void *sfp__calloc(size_t count, size_t size);

/* As realloc for blocks of sfp__malloc; `old` is what was asked for before. */
void *sfp__realloc(void *p, size_t old, size_t size);

/* Space for `wanted` elements of `size` bytes in a growing array, whose first `used` are kept; `array` is the address of its
 * pointer (NULL at first), *capacity how many fit. It at least doubles. False: no memory, and nothing has changed. */
bool sfp__grow(void *array, size_t size, size_t used, size_t wanted, size_t *capacity);

char *sfp__strdup(const char *s);
void sfp__free(void *p);

static inline void sfp__free_at(void *address)
{
    void *p;
    memcpy(&p, address, sizeof p); /* a pointer of whatever type */
    sfp__free(p);
}

/* Bytes of the last allocation that failed on this thread. */
size_t sfp__mem_failed(void);

/* --------------------------------------------------------------------- arena
 *
 * Scratch memory that is used again: taken piece by piece, given back all at once. The first round may allocate as often as it
 * likes; a reset joins what it took into one block, so that every later round that takes no more allocates nothing. */
typedef struct sfp__arena_block sfp__arena_block;

typedef struct sfp__arena {
    sfp__arena_block *top; /* NULL: nothing yet */
    size_t total;          /* bytes of all blocks */
} sfp__arena;

/* count * size bytes, 64-byte aligned, not cleared; count 0 is taken as 1. NULL: out of memory. */
void *sfp__arena_take(sfp__arena *a, size_t count, size_t size);
/* As sfp__block, from the arena. */
sfp_status sfp__arena_list(sfp__arena *a, size_t n, const sfp__want *list, sfp_error *err);
void sfp__arena_reset(sfp__arena *a);
void sfp__arena_done(sfp__arena *a);

/* --------------------------------------------------------------------- sizes */

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
