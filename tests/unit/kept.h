/* Memory of tests, without a line that frees it. */
#ifndef SFP_TESTS_KEPT_H
#define SFP_TESTS_KEPT_H

#include <stddef.h>


#define UNUSED __attribute__((unused))

/* Memory to the byte, so that a sanitizer sees an access beyond it; it goes when the test ends (or the file's tests, when it was
 * made before them). */
void *kept_malloc(size_t size);
void *kept_calloc(size_t count, size_t size);
void *kept_realloc(void *old, size_t size);
size_t kept_count(void);
void kept_free_to(const size_t *count);

/* What is made from here to the end of the block goes there: for loops that make much. */
#define KEPT_IN_BLOCK __attribute__((cleanup(kept_free_to))) UNUSED const size_t kept_here = kept_count()

#endif
