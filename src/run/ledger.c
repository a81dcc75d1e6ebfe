#include "run/ledger.h"

#include "stream/source.h"

#include <pthread.h>
#include <stdlib.h>

enum { NUMBERS = 4, WAITING_MAX = 1000000 }; /* numbers per image in a checkpoint; maximum number of images in it */

/* Images in order of age. */
typedef struct queue {
    sfp__arrival *oldest, *newest;
    size_t count;
} queue;

struct sfp__ledger {
    size_t capacity, absent;
    queue waiting;          /* the label queue: first the absent images by id, then the others in order of arrival */
    queue labelled;         /* owned by the inbox */
    sfp__arrival **bucket;  /* (buckets) hash table by file key: WAITING, ABSENT and ENDED images, oldest first */
    size_t buckets;         /* a power of 2 */
    pthread_mutex_t lock;   /* guards the buckets, which the thread of the inbox reads */
    sfp__arrival *restored; /* (restored_count) images of the checkpoint; freed with the ledger */
    size_t restored_count;
    uint64_t next_id, predicted;
    struct {
        uint64_t *key;    /* (capacity) */
        int64_t *changed; /* (capacity) */
        size_t capacity, count, next;
        int64_t until; /* latest time of change among overwritten entries */
    } done;            /* labelled keys of processed images: a ring */
};

/* ---------------------------------------------------------------------- lists */

void sfp__arrival_free(sfp__arrival *a)
{
    if (!a)
        return;
    sfp__free(a->name);
    sfp__free(a->rgb);
    sfp__raw_image_done(&a->kept);
    sfp__free(a);
}

void sfp__arrival_list_put(sfp__arrival_list *l, sfp__arrival *a)
{
    a->next = NULL;
    if (l->last)
        l->last->next = a;
    else
        l->first = a;
    l->last = a;
    l->count++;
}

sfp__arrival *sfp__arrival_list_take(sfp__arrival_list *l)
{
    sfp__arrival *a = l->first;
    if (!a)
        return NULL;
    l->first = a->next;
    if (!l->first)
        l->last = NULL;
    l->count--;
    a->next = NULL;
    return a;
}

void sfp__arrival_list_done(sfp__arrival_list *l)
{
    for (sfp__arrival *a; (a = sfp__arrival_list_take(l));)
        sfp__arrival_free(a);
}

/* --------------------------------------------------------------------- making */

sfp_status sfp__ledger_create(int capacity, size_t keys, sfp__ledger **out, sfp_error *err)
{
    OWNED_PTR(sfp__ledger_free) sfp__ledger *l = NULL;
    TRY(sfp__alloc(&l, 1, sizeof *l, err));
    l->capacity = (size_t)capacity;
    l->done.capacity = keys;
    l->done.until = INT64_MIN;
    l->buckets = 1024;
    while (l->buckets < l->capacity)
        l->buckets *= 2;
    pthread_mutex_init(&l->lock, NULL);
    TRY(sfp__alloc(&l->bucket, l->buckets, sizeof *l->bucket, err));
    TRY(sfp__alloc(&l->done.key, keys, sizeof *l->done.key, err));
    TRY(sfp__alloc(&l->done.changed, keys, sizeof *l->done.changed, err));
    *out = TAKE(l);
    return SFP_OK;
}

void sfp__ledger_free(sfp__ledger *l)
{
    if (!l)
        return;
    for (sfp__arrival *a = l->waiting.oldest, *newer; a; a = newer) {
        newer = a->newer;
        if (a->standing == SFP_ARRIVAL_WAITING) /* absent images are part of `restored` */
            sfp__arrival_free(a);
    }
    pthread_mutex_destroy(&l->lock);
    sfp__free(l->restored);
    sfp__free(l->bucket);
    sfp__free(l->done.key);
    sfp__free(l->done.changed);
    sfp__free(l);
}

/* -------------------------------------------------------------- the label queue */

static sfp__arrival **bucket_of(const sfp__ledger *l, uint64_t file_key)
{
    return &l->bucket[(file_key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (l->buckets - 1)];
}

static void append(queue *q, sfp__arrival *a)
{
    a->newer = NULL;
    a->older = q->newest;
    *(q->newest ? &q->newest->newer : &q->oldest) = a;
    q->newest = a;
    q->count++;
}

static void unlink_from(queue *q, sfp__arrival *a)
{
    *(a->older ? &a->older->newer : &q->oldest) = a->newer;
    *(a->newer ? &a->newer->older : &q->newest) = a->older;
    q->count--;
}

/* Adds an image as the newest one in the queue. */
static void enter(sfp__ledger *l, sfp__arrival *a, sfp__arrival_status standing)
{
    sfp__arrival **place = bucket_of(l, a->origin.file_key);
    append(&l->waiting, a);
    l->absent += standing == SFP_ARRIVAL_ABSENT;
    a->standing = standing;
    a->same = NULL;
    pthread_mutex_lock(&l->lock);
    while (*place)
        place = &(*place)->same;
    *place = a;
    pthread_mutex_unlock(&l->lock);
}

/* Removes an image from the queue. An absent image stays in the hash table as ENDED. */
static void leave(sfp__ledger *l, sfp__arrival *a)
{
    unlink_from(&l->waiting, a);
    if (a->standing == SFP_ARRIVAL_ABSENT) {
        l->absent--;
        a->standing = SFP_ARRIVAL_ENDED;
        return;
    }
    a->standing = SFP_ARRIVAL_NEW;
    pthread_mutex_lock(&l->lock);
    sfp__arrival **place = bucket_of(l, a->origin.file_key);
    while (*place != a)
        place = &(*place)->same;
    *place = a->same;
    pthread_mutex_unlock(&l->lock);
}

/* Finds the oldest image with this file key and status; NULL: none. */
static sfp__arrival *find(const sfp__ledger *l, uint64_t file_key, sfp__arrival_status standing)
{
    sfp__arrival *a = file_key ? *bucket_of(l, file_key) : NULL;
    while (a && (a->origin.file_key != file_key || a->standing != standing))
        a = a->same;
    return a;
}

bool sfp__ledger_id(sfp__ledger *l, uint64_t file_key, uint64_t *id)
{
    pthread_mutex_lock(&l->lock);
    const sfp__arrival *a = file_key ? *bucket_of(l, file_key) : NULL,
                       *end = l->restored ? l->restored + l->restored_count : NULL;
    while (a && (a->origin.file_key != file_key || a < l->restored || a >= end))
        a = a->same;
    if (a)
        *id = a->origin.id;
    pthread_mutex_unlock(&l->lock);
    return a != NULL;
}

/* ------------------------------------------------------------- processed images */

static void record_key(sfp__ledger *l, const sfp__arrival *a)
{
    if (!l->done.capacity || !a->origin.labelled_key)
        return;
    size_t at = l->done.next;
    if (l->done.count == l->done.capacity && l->done.changed[at] > l->done.until)
        l->done.until = l->done.changed[at];
    l->done.key[at] = a->origin.labelled_key;
    l->done.changed[at] = a->origin.changed;
    l->done.next = (at + 1) % l->done.capacity;
    l->done.count += l->done.count < l->done.capacity;
}

void sfp__ledger_finish(sfp__ledger *l, sfp__arrival *a)
{
    if ((a->rgb || a->fate != SFP_DISCARD_NONE) && a->origin.id >= l->next_id)
        l->next_id = a->origin.id + 1;
    record_key(l, a);
    sfp__arrival_free(a);
}

/* Removes an image from the queue and records its key. */
static void end(sfp__ledger *l, sfp__arrival *a)
{
    bool here = a->standing == SFP_ARRIVAL_WAITING;
    leave(l, a);
    if (here)
        sfp__ledger_finish(l, a);
    else
        record_key(l, a);
}

/* ---------------------------------------------------------------------- labels */

sfp__arrival_status sfp__ledger_meet(sfp__ledger *l, const sfp__arrival *a)
{
    sfp__arrival *absent = find(l, a->origin.file_key, SFP_ARRIVAL_ABSENT);
    if (!absent)
        return find(l, a->origin.file_key, SFP_ARRIVAL_ENDED) ? SFP_ARRIVAL_ENDED : SFP_ARRIVAL_NEW;
    leave(l, absent);
    return SFP_ARRIVAL_ABSENT;
}

uint64_t sfp__ledger_wait(sfp__ledger *l, sfp__arrival *a)
{
    uint64_t expired = 0;
    enter(l, a, SFP_ARRIVAL_WAITING);
    for (; l->waiting.count > l->capacity; expired++)
        end(l, l->waiting.oldest);
    return expired;
}

sfp__arrival *sfp__ledger_label(sfp__ledger *l, const char *name)
{
    sfp__arrival *a = l->waiting.oldest;
    while (a && (a->standing == SFP_ARRIVAL_ABSENT || strcmp(a->name, name) != 0))
        a = a->newer;
    if (!a)
        return NULL;
    leave(l, a);
    append(&l->labelled, a);
    a->standing = SFP_ARRIVAL_LABELLED;
    return a;
}

bool sfp__ledger_end_waiting(sfp__ledger *l, sfp__arrival *a)
{
    if (a->standing == SFP_ARRIVAL_LABELLED) {
        unlink_from(&l->labelled, a);
        return true;
    }
    sfp__arrival *same = find(l, a->origin.file_key, SFP_ARRIVAL_WAITING);
    if (!same && !(same = find(l, a->origin.file_key, SFP_ARRIVAL_ABSENT)))
        return false;
    a->origin.id = same->origin.id;
    end(l, same);
    return true;
}

void sfp__ledger_predicted(sfp__ledger *l, uint64_t id)
{
    l->predicted = id + 1;
    l->next_id = l->predicted > l->next_id ? l->predicted : l->next_id;
}

uint64_t sfp__ledger_waiting(const sfp__ledger *l)
{
    return l->waiting.count + l->labelled.count;
}

uint64_t sfp__ledger_next_id(const sfp__ledger *l)
{
    return l->next_id;
}

uint64_t sfp__ledger_predicted_end(const sfp__ledger *l)
{
    return l->predicted;
}

/* ------------------------------------------------------------------ checkpoints */

static bool add(json_t *list, json_int_t number)
{
    return json_array_append_new(list, json_integer(number)) == 0;
}

json_t *sfp__ledger_json(const sfp__ledger *l)
{
    json_t *waiting = json_array(), *keys = json_array();
    bool all = waiting && keys;
    const queue *const queues[] = {&l->waiting, &l->labelled};
    for (int k = 0; k < 2; k++)
        for (const sfp__arrival *a = queues[k]->oldest; a && all; a = a->newer)
            all = add(waiting, (json_int_t)a->origin.id) && add(waiting, (json_int_t)a->origin.file_key) &&
                  add(waiting, (json_int_t)a->origin.labelled_key) && add(waiting, a->origin.changed);
    for (size_t i = 0; i < l->done.count && all; i++) { /* oldest first */
        size_t at = (l->done.next + l->done.capacity - l->done.count + i) % l->done.capacity;
        all = add(keys, (json_int_t)l->done.key[at]) && add(keys, l->done.changed[at]);
    }
    if (!all) {
        json_decref(waiting);
        json_decref(keys);
        return NULL;
    }
    return json_pack("{s:I,s:I,s:o,s:o,s:I}", "next_id", (json_int_t)l->next_id, "predicted", (json_int_t)l->predicted, "waiting",
                     waiting, "marks", keys, "until", (json_int_t)l->done.until);
}

/* Is this a list of integers, `each` per entry? *count: the number of entries. */
static bool whole_numbers(const json_t *list, size_t each, size_t max, size_t *count)
{
    *count = json_array_size(list) / each;
    if (!json_is_array(list) || json_array_size(list) % each != 0 || *count > max)
        return false;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_integer(json_array_get(list, i)))
            return false;
    return true;
}

static json_int_t number_at(const json_t *list, size_t i)
{
    return json_integer_value(json_array_get(list, i));
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const sfp__arrival *)a)->origin.id, y = ((const sfp__arrival *)b)->origin.id;
    return (x > y) - (x < y);
}

bool sfp__ledger_read(sfp__ledger *l, json_t *j)
{
    json_int_t next_id, predicted, until;
    json_t *waiting, *keys;
    size_t n, done;
    if (json_unpack(j, "{s:I,s:I,s:o,s:o,s:I}", "next_id", &next_id, "predicted", &predicted, "waiting", &waiting, "marks", &keys,
                    "until", &until) != 0 ||
        next_id < 0 || predicted < 0 || predicted > next_id || !whole_numbers(waiting, NUMBERS, WAITING_MAX, &n) ||
        !whole_numbers(keys, 2, l->done.capacity, &done))
        return false;
    for (size_t i = 0; i < n; i++)
        if ((uint64_t)number_at(waiting, NUMBERS * i) >= (uint64_t)next_id)
            return false;
    if (!(l->restored = sfp__calloc(n + 1, sizeof *l->restored)))
        return false;
    l->restored_count = n;
    for (size_t i = 0; i < n; i++)
        l->restored[i].origin = (sfp__origin){.id = (uint64_t)number_at(waiting, NUMBERS * i),
                                              .file_key = (uint64_t)number_at(waiting, NUMBERS * i + 1),
                                              .labelled_key = (uint64_t)number_at(waiting, NUMBERS * i + 2),
                                              .changed = number_at(waiting, NUMBERS * i + 3)};
    qsort(l->restored, n, sizeof *l->restored, by_id);
    for (size_t i = 0; i < n; i++)
        enter(l, &l->restored[i], SFP_ARRIVAL_ABSENT);
    for (size_t i = 0; i < done; i++) {
        l->done.key[i] = (uint64_t)number_at(keys, 2 * i);
        l->done.changed[i] = number_at(keys, 2 * i + 1);
    }
    l->done.count = done;
    l->done.next = l->done.capacity ? done % l->done.capacity : 0;
    l->done.until = until;
    l->next_id = (uint64_t)next_id;
    l->predicted = (uint64_t)predicted;
    return true;
}

uint64_t sfp__ledger_expire(sfp__ledger *l, size_t max)
{
    uint64_t expired = 0;
    for (; l->absent > max; expired++)
        end(l, l->waiting.oldest);
    return expired;
}

sfp_status sfp__ledger_set_resume_filter(const sfp__ledger *l, sfp_source *s, sfp_error *err)
{
    OWNED uint64_t *waiting = NULL;
    if (!l->done.count || !s->ops->set_resume_filter)
        return SFP_OK;
    TRY(sfp__alloc(&waiting, l->absent, sizeof *waiting, err));
    sfp__resume_filter what = {.n = l->done.count, .labelled_keys = l->done.key, .until = l->done.until, .waiting_keys = waiting};
    for (const sfp__arrival *a = l->waiting.oldest; a && a->standing == SFP_ARRIVAL_ABSENT; a = a->newer)
        waiting[what.waiting++] = a->origin.labelled_key;
    return sfp__source_set_resume_filter(s, &what, err);
}
