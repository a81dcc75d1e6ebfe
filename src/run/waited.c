#include "run/waited.h"

#include "base/mem.h"

#include <stdlib.h>

enum { NUMBERS = 4, WAITED_MAX = 1000000 }; /* of one; as many as may wait */

void sfp__waited_done(sfp_waited *w)
{
    sfp__free(w->list);
    sfp__free(w->by_identity);
    *w = (sfp_waited){0};
}

/* The first whose identity is not smaller. */
static size_t lower(const sfp_waited *w, uint64_t identity)
{
    size_t from = 0, to = w->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (w->by_identity[middle]->identity < identity)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

bool sfp__waited_id(const sfp_waited *w, uint64_t identity, uint64_t *id)
{
    size_t i = identity ? lower(w, identity) : w->count;
    if (i == w->count || w->by_identity[i]->identity != identity)
        return false;
    *id = w->by_identity[i]->id;
    return true;
}

sfp_waited_one *sfp__waited_find(const sfp_waited *w, uint64_t identity)
{
    sfp_waited_one *found = NULL;
    for (size_t i = identity ? lower(w, identity) : w->count; i < w->count && w->by_identity[i]->identity == identity; i++)
        if (!found || found->over)
            found = w->by_identity[i];
    return found;
}

sfp_waited_one *sfp__waited_oldest(sfp_waited *w)
{
    while (w->first < w->count && w->list[w->first].over)
        w->first++;
    return w->first < w->count ? &w->list[w->first] : NULL;
}

void sfp__waited_over(sfp_waited *w, sfp_waited_one *one)
{
    w->missing -= !one->over;
    one->over = true;
}

bool sfp__waited_put_json(json_t *list, const sfp_waited_one *one)
{
    return json_array_append_new(list, json_integer((json_int_t)one->id)) == 0 &&
           json_array_append_new(list, json_integer((json_int_t)one->identity)) == 0 &&
           json_array_append_new(list, json_integer((json_int_t)one->mark)) == 0 &&
           json_array_append_new(list, json_integer(one->changed)) == 0;
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const sfp_waited_one *)a)->id, y = ((const sfp_waited_one *)b)->id;
    return (x > y) - (x < y);
}

static int by_identity(const void *a, const void *b)
{
    const sfp_waited_one *x = *(sfp_waited_one *const *)a, *y = *(sfp_waited_one *const *)b;
    int order = (x->identity > y->identity) - (x->identity < y->identity);
    return order ? order : by_id(x, y);
}

bool sfp__waited_read(sfp_waited *w, const json_t *list, uint64_t ids)
{
    size_t n = json_array_size(list) / NUMBERS;
    if (!json_is_array(list) || json_array_size(list) % NUMBERS != 0 || n > WAITED_MAX)
        return false;
    for (size_t i = 0; i < NUMBERS * n; i++) {
        const json_t *x = json_array_get(list, i);
        if (!json_is_integer(x) || (i % NUMBERS == 0 && (uint64_t)json_integer_value(x) >= ids))
            return false;
    }
    sfp_waited now = {.list = sfp__calloc(n + 1, sizeof *now.list),
                      .by_identity = sfp__calloc(n + 1, sizeof *now.by_identity),
                      .count = n,
                      .missing = n};
    if (!now.list || !now.by_identity) {
        sfp__waited_done(&now);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        now.list[i] = (sfp_waited_one){.id = (uint64_t)json_integer_value(json_array_get(list, NUMBERS * i)),
                                       .identity = (uint64_t)json_integer_value(json_array_get(list, NUMBERS * i + 1)),
                                       .mark = (uint64_t)json_integer_value(json_array_get(list, NUMBERS * i + 2)),
                                       .changed = json_integer_value(json_array_get(list, NUMBERS * i + 3))};
    qsort(now.list, n, sizeof *now.list, by_id);
    for (size_t i = 0; i < n; i++)
        now.by_identity[i] = &now.list[i];
    qsort(now.by_identity, n, sizeof *now.by_identity, by_identity);
    sfp__waited_done(w);
    *w = now;
    return true;
}
