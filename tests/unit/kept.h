/* Memory and other resources of tests that are released automatically. */
#ifndef SFP_TESTS_KEPT_H
#define SFP_TESTS_KEPT_H

#include <stddef.h>

#define UNUSED __attribute__((unused))

/* Memory of exactly this size, so that a sanitizer detects an access beyond it. It is freed when the test ends, or after all
 * tests of the file if it was allocated before them. */
void *kept_malloc(size_t size);
void *kept_calloc(size_t count, size_t size);
void *kept_realloc(void *old, size_t size);
__attribute__((format(printf, 1, 2))) char *kept_print(const char *format, ...);
size_t kept_count(void);
void kept_free_to(const size_t *count);

/* Registers an object: done(thing) is called when the test ends. Objects are released in reverse order. */
void kept_until(void *thing, void (*done)(void *));

/* Defines type *name(type *p), which registers p for release by `done` and returns p. */
#define KEEP_BY(name, type, done)          \
    static UNUSED void name##_end(void *p) \
    {                                      \
        done(p);                           \
    }                                      \
    static UNUSED type *name(type *p)      \
    {                                      \
        kept_until(p, name##_end);         \
        return p;                          \
    }

/* Everything that is allocated from here to the end of the block is released there. For loops that allocate much. */
#define KEPT_IN_BLOCK __attribute__((cleanup(kept_free_to))) UNUSED const size_t kept_here = kept_count()

#endif
