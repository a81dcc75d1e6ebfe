#include "stream/source_internal.h"

#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

/* Returns the slot of the name, or the free slot for it; slots > 0. */
static size_t find_slot(const sfp__names *t, const char *s, size_t n)
{
    size_t at = (size_t)sfp__hash(SFP__HASH_START, s, n) & (t->slots - 1);
    while (t->slot[at]) {
        const char *name = t->name[t->slot[at] - 1];
        if (strlen(name) == n && memcmp(name, s, n) == 0)
            break;
        at = (at + 1) & (t->slots - 1);
    }
    return at;
}

int32_t sfp__names_find(const sfp__names *t, const char *s, size_t n)
{
    return t->slots ? t->slot[find_slot(t, s, n)] - 1 : -1;
}

static void fill_slots(sfp__names *t)
{
    memset(t->slot, 0, t->slots * sizeof *t->slot);
    for (int i = 0; i < t->count; i++)
        t->slot[find_slot(t, t->name[i], strlen(t->name[i]))] = i + 1;
}

/* Reserves memory for one more name and keeps the table at most half full. */
static bool grow_names(sfp__names *t)
{
    size_t wanted = (size_t)t->count + 1, slots = t->slots ? 2 * t->slots : 32;
    if (!sfp__grow(&t->name, sizeof *t->name, (size_t)t->count, wanted, &t->capacity))
        return false;
    if (2 * wanted <= t->slots)
        return true;
    int32_t *slot = sfp__calloc(slots, sizeof *slot);
    if (!slot)
        return false;
    sfp__free(t->slot);
    t->slot = slot;
    t->slots = slots;
    fill_slots(t);
    return true;
}

sfp_status sfp__names_reserve(sfp__names *t, sfp_error *err)
{
    if (sfp__grow(&t->name, sizeof *t->name, (size_t)t->count, SFP__CLASSES_MAX, &t->capacity))
        return SFP_OK;
    return sfp__fail_nomem(err);
}

sfp_status sfp__names_add(sfp__names *t, const char *s, size_t n, int32_t *out, sfp_error *err)
{
    if (n == 0)
        return sfp__fail(err, SFP_EFORMAT, "a name is empty");
    if (n > SFP__CLASS_NAME_MAX)
        return sfp__fail(err, SFP_ELIMIT, "a name has %zu bytes, expected at most %d", n, SFP__CLASS_NAME_MAX);
    if (memchr(s, 0, n))
        return sfp__fail(err, SFP_EFORMAT, "a name has a NUL byte");
    int32_t found = sfp__names_find(t, s, n);
    if (found >= 0) {
        *out = found;
        return SFP_OK;
    }
    if (t->count >= SFP__CLASSES_MAX)
        return sfp__fail(err, SFP_ELIMIT, "more than %d different names", SFP__CLASSES_MAX);
    OWNED char *name = grow_names(t) ? sfp__malloc(n + 1) : NULL;
    char text[SFP__NAME_MAX];
    TRY(sfp__check_memory(name, err));
    memcpy(name, s, n);
    name[n] = '\0';
    if (!sfp__utf8_valid(name)) /* names are written to JSON files */
        return sfp__fail(err, SFP_EFORMAT, "the name '%s' is not UTF-8", sfp__printable(name, text, sizeof text));
    t->slot[find_slot(t, s, n)] = t->count + 1;
    t->name[t->count] = TAKE(name);
    *out = t->count++;
    return SFP_OK;
}

typedef struct numbered {
    char *name;
    int32_t number;
} numbered;

static int compare_numbered(const void *a, const void *b)
{
    return sfp__name_compare(((const numbered *)a)->name, ((const numbered *)b)->name);
}

sfp_status sfp__names_sort(sfp__names *t, int32_t **new_of, sfp_error *err)
{
    size_t n = (size_t)t->count;
    if (n == 0) {
        *new_of = NULL;
        return SFP_OK;
    }
    OWNED numbered *list = NULL;
    OWNED int32_t *map = NULL;
    TRY(sfp__alloc(&list, n, sizeof *list, err));
    TRY(sfp__alloc(&map, n, sizeof *map, err));
    for (size_t i = 0; i < n; i++)
        list[i] = (numbered){t->name[i], (int32_t)i};
    qsort(list, n, sizeof *list, compare_numbered);
    for (size_t i = 0; i < n; i++) {
        t->name[i] = list[i].name;
        map[list[i].number] = (int32_t)i;
    }
    fill_slots(t);
    *new_of = TAKE(map);
    return SFP_OK;
}

void sfp__names_give(sfp__names *t, char ***names, int *count)
{
    *names = t->name;
    *count = t->count;
    sfp__free(t->slot);
    *t = (sfp__names){0};
}

void sfp__name_list_free(char **name, int count)
{
    for (int i = 0; i < count; i++)
        sfp__free(name[i]);
    sfp__free(name);
}

void sfp__names_done(sfp__names *t)
{
    sfp__name_list_free(t->name, t->count);
    sfp__free(t->slot);
    *t = (sfp__names){0};
}

sfp_status sfp__names_read(const char *path, sfp__names *out, sfp_error *err)
{
    OWNED_BY(sfp__lines_done) sfp__lines l = {0};
    OWNED_BY(sfp__names_done) sfp__names names = {0};
    TRY(sfp__lines_open(path, "one name per line", &l, err));
    for (char *line;;) {
        int32_t id = 0;
        TRY(sfp__lines_next(&l, &line, err));
        if (!line)
            break;
        size_t n = strlen(line);
        while (n > 0 && strchr(" \t\r", line[n - 1]))
            n--;
        if (n > 0 && sfp__names_find(&names, line, n) >= 0)
            return sfp__fail(err, SFP_EFORMAT, "%s:%llu: name is listed twice, expected different names", path,
                             (unsigned long long)l.number);
        sfp_status status = n > 0 ? sfp__names_add(&names, line, n, &id, err) : SFP_OK;
        if (status)
            return sfp__fail_prefix(err, status, "%s:%llu", path, (unsigned long long)l.number);
    }
    if (l.number == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: file is empty", path);
    *out = TAKE(names);
    return SFP_OK;
}
