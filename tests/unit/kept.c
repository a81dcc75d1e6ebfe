#include "kept.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct kept_thing {
    void *p;
    void (*done)(void *);
} kept_thing;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kept_thing *kept;
static size_t kept_now, kept_size;

/* Registers p. If old is not 0, p replaces the entry of that address, which realloc may have freed: it must not be
 * dereferenced. */
static void *register_thing(uintptr_t old, void *p, void (*done)(void *))
{
    pthread_mutex_lock(&lock);
    size_t at = old ? kept_now - 1 : kept_now;
    while (old && (uintptr_t)kept[at].p != old)
        at--;
    if (at == kept_size) {
        kept_size = 2 * kept_size + 1024;
        kept = realloc(kept, kept_size * sizeof *kept);
        if (!kept)
            abort();
    }
    kept[at] = (kept_thing){p, done};
    kept_now += !old;
    pthread_mutex_unlock(&lock);
    return p;
}

void *kept_realloc(void *old, size_t size)
{
    uintptr_t before = (uintptr_t)old;
    void *p = realloc(old, size ? size : 1);
    if (!p)
        abort();
    return register_thing(before, p, free);
}

void *kept_malloc(size_t size)
{
    return kept_realloc(NULL, size);
}

void *kept_calloc(size_t count, size_t size)
{
    return memset(kept_malloc(count * size), 0, count * size);
}

char *kept_print(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        abort();
    va_end(args);
    return register_thing(0, text, free);
}

void kept_until(void *thing, void (*done)(void *))
{
    (void)register_thing(0, thing, done);
}

size_t kept_count(void)
{
    return kept_now;
}

void kept_free_to(const size_t *count)
{
    while (kept_now > *count) {
        kept_thing last = kept[--kept_now];
        last.done(last.p);
    }
    if (kept_now == 0) {
        free(kept);
        kept = NULL;
        kept_size = 0;
    }
}
