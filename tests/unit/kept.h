/* Memory and other things of tests, without a line that frees them. */
#ifndef SFP_TESTS_KEPT_H
#define SFP_TESTS_KEPT_H

#include <stddef.h>

#define UNUSED __attribute__((unused))

/* Memory to the byte, so that a sanitizer sees an access beyond it; it goes when the test ends (or the file's tests, when it was
 * made before them). */
void *kept_malloc(size_t size);
void *kept_calloc(size_t count, size_t size);
void *kept_realloc(void *old, size_t size);
__attribute__((format(printf, 1, 2))) char *kept_print(const char *format, ...);
size_t kept_count(void);
void kept_free_to(const size_t *count);

/* Then done(thing) is called instead; what was kept last goes first. */
void kept_until(void *thing, void (*done)(void *));

/* type *name(type *p): p, which is done with by that function when the test ends. */
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

/* What is made from here to the end of the block goes there: for loops that make much. */
#define KEPT_IN_BLOCK __attribute__((cleanup(kept_free_to))) UNUSED const size_t kept_here = kept_count()

#endif
