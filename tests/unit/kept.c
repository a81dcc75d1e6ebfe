#include "kept.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void **kept;
static size_t kept_now, kept_size;

void *kept_realloc(void *old, size_t size)
{
    void *p = realloc(old, size ? size : 1);
    if (!p)
        abort();
    pthread_mutex_lock(&lock);
    size_t at = old ? kept_now - 1 : kept_now;
    while (old && kept[at] != old)
        at--;
    if (at == kept_size) {
        kept_size = 2 * kept_size + 1024;
        kept = realloc(kept, kept_size * sizeof *kept);
        if (!kept)
            abort();
    }
    kept[at] = p;
    kept_now += !old;
    pthread_mutex_unlock(&lock);
    return p;
}

void *kept_malloc(size_t size)
{
    return kept_realloc(NULL, size);
}

void *kept_calloc(size_t count, size_t size)
{
    return memset(kept_malloc(count * size), 0, count * size);
}

size_t kept_count(void)
{
    return kept_now;
}

void kept_free_to(const size_t *count)
{
    while (kept_now > *count)
        free(kept[--kept_now]);
    if (kept_now == 0) {
        free(kept);
        kept = NULL;
        kept_size = 0;
    }
}
