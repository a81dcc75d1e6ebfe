#include "stream/names.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/text.h"
#include "io/file.h"

#include <stdlib.h>
#include <string.h>

/* The slot of the name, or the free one where it belongs; slots > 0. */
static size_t find_slot(const sfp_names *t, const char *s, size_t n)
{
    size_t at = (size_t)sfp__hash(SFP_HASH_START, s, n) & (t->slots - 1);
    while (t->slot[at]) {
        const char *name = t->name[t->slot[at] - 1];
        if (strlen(name) == n && memcmp(name, s, n) == 0)
            break;
        at = (at + 1) & (t->slots - 1);
    }
    return at;
}

int32_t sfp__names_find(const sfp_names *t, const char *s, size_t n)
{
    return t->slots ? t->slot[find_slot(t, s, n)] - 1 : -1;
}

static void fill_slots(sfp_names *t)
{
    memset(t->slot, 0, t->slots * sizeof *t->slot);
    for (int i = 0; i < t->count; i++)
        t->slot[find_slot(t, t->name[i], strlen(t->name[i]))] = i + 1;
}

/* Room for one more name, the table at most half full. */
static bool grow_names(sfp_names *t)
{
    size_t wanted = (size_t)t->count + 1, slots = t->slots ? 2 * t->slots : 32;
    if (!sfp__grow(&t->name, sizeof *t->name, (size_t)t->count, wanted, &t->room))
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

sfp_status sfp__names_reserve(sfp_names *t, sfp_error *err)
{
    if (sfp__grow(&t->name, sizeof *t->name, (size_t)t->count, SFP_CLASSES_MAX, &t->room))
        return SFP_OK;
    return sfp__fail_nomem(err);
}

sfp_status sfp__names_add(sfp_names *t, const char *s, size_t n, int32_t *out, sfp_error *err)
{
    if (n == 0)
        return sfp__fail(err, SFP_EFORMAT, "a name is empty");
    if (n > SFP_CLASS_NAME_MAX)
        return sfp__fail(err, SFP_ELIMIT, "a name has %zu bytes, expected at most %d", n, SFP_CLASS_NAME_MAX);
    if (memchr(s, 0, n))
        return sfp__fail(err, SFP_EFORMAT, "a name has a NUL byte");
    int32_t found = sfp__names_find(t, s, n);
    if (found >= 0) {
        *out = found;
        return SFP_OK;
    }
    if (t->count >= SFP_CLASSES_MAX)
        return sfp__fail(err, SFP_ELIMIT, "more than %d different names", SFP_CLASSES_MAX);
    char *name = grow_names(t) ? sfp__malloc(n + 1) : NULL;
    if (!name)
        return sfp__fail_nomem(err);
    memcpy(name, s, n);
    name[n] = '\0';
    if (!sfp__utf8_valid(name)) { /* it goes to JSON files */
        char text[SFP_NAME_MAX];
        sfp_status status = sfp__fail(err, SFP_EFORMAT, "the name '%s' is not UTF-8", sfp__printable(name, text, sizeof text));
        sfp__free(name);
        return status;
    }
    t->slot[find_slot(t, s, n)] = t->count + 1;
    t->name[t->count] = name;
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

sfp_status sfp__names_sort(sfp_names *t, int32_t **new_of, sfp_error *err)
{
    size_t n = (size_t)t->count;
    if (n == 0) {
        *new_of = NULL;
        return SFP_OK;
    }
    numbered *list = sfp__malloc(n * sizeof *list);
    int32_t *map = sfp__malloc(n * sizeof *map);
    if (!list || !map) {
        sfp__free(list);
        sfp__free(map);
        return sfp__fail_nomem(err);
    }
    for (size_t i = 0; i < n; i++)
        list[i] = (numbered){t->name[i], (int32_t)i};
    qsort(list, n, sizeof *list, compare_numbered);
    for (size_t i = 0; i < n; i++) {
        t->name[i] = list[i].name;
        map[list[i].number] = (int32_t)i;
    }
    fill_slots(t);
    sfp__free(list);
    *new_of = map;
    return SFP_OK;
}

void sfp__names_give(sfp_names *t, char ***names, int *count)
{
    *names = t->name;
    *count = t->count;
    sfp__free(t->slot);
    *t = (sfp_names){0};
}

void sfp__name_list_free(char **name, int count)
{
    for (int i = 0; i < count; i++)
        sfp__free(name[i]);
    sfp__free(name);
}

void sfp__names_done(sfp_names *t)
{
    sfp__name_list_free(t->name, t->count);
    sfp__free(t->slot);
    *t = (sfp_names){0};
}

sfp_status sfp__names_read(const char *path, sfp_names *out, sfp_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    sfp_names names = {0};
    sfp_status status = sfp__file_read(path, (size_t)SFP_CLASSES_MAX * SFP_CLASS_NAME_MAX, &bytes, &size, err);
    if (status != SFP_OK)
        return status;
    const char *at = (const char *)bytes, *end = at + size;
    at += sfp__text_mark(at, size);
    for (size_t line = 1; at < end && status == SFP_OK; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const char *next = stop ? stop + 1 : end;
        stop = stop ? stop : end;
        while (stop > at && (stop[-1] == '\r' || stop[-1] == ' ' || stop[-1] == '\t'))
            stop--;
        size_t n = (size_t)(stop - at);
        int32_t id = 0;
        if (n > 0 && sfp__names_find(&names, at, n) >= 0)
            status = sfp__fail(err, SFP_EFORMAT, "%s:%zu: this name comes twice", path, line);
        else if (n > 0 && (status = sfp__names_add(&names, at, n, &id, err)) != SFP_OK)
            status = sfp__fail_prefix(err, status, "%s:%zu", path, line);
        at = next;
    }
    sfp__free(bytes);
    if (status != SFP_OK) {
        sfp__names_done(&names);
        return status;
    }
    *out = names;
    return SFP_OK;
}
