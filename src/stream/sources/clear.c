/* clear10:PATH, clear100:PATH - CLEAR (Lin et al. 2021) as published.
 *
 *   train/, test/  class_names.txt         one name per line
 *                  labeled_metadata.json   {bucket: {class: file}}
 *                  file                    {id: {"IMG_PATH": path, ...}}
 *
 * Paths are relative to train/ or test/. Buckets are years in order; bucket 0 of CLEAR-10 is for pretraining and is excluded.
 * Training order: class by class (in class order), buckets ascending, images of a bucket shuffled by the seed. Tasks: 11 classes
 * as 3 + 2 x 4, 100 classes as 10 x 10. The time of a record is its bucket, so that tasks by time follow the years. */
#include "stream/source_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define META_FILE "labeled_metadata.json"
#define NAMES_FILE "class_names.txt"
#define BUCKETS_MAX 4096

typedef struct layout {
    const sfp__source_kind *kind;
    bool skip_first; /* bucket 0 */
    int first, each; /* number of classes of the first task and of every other */
} layout;

typedef struct bucket {
    int64_t number;
    const sfp__json_value *files; /* {class: file} */
} bucket;

typedef struct reader {
    sfp__file_source *s;
    const sfp__source_options *opt;
    char *root; /* PATH/train */
    char *meta; /* PATH/train/labeled_metadata.json, for messages */
    sfp__names classes;
    bucket *buckets;
    size_t count;
    uint64_t absent; /* lists of a class in a bucket that do not exist */
    sfp_error *err;
} reader;

static const char *shown(const char *s, char buf[SFP__NAME_MAX])
{
    return sfp__printable(s, buf, SFP__NAME_MAX);
}
#define SHOWN(s) shown(s, (char[SFP__NAME_MAX]){0})

/* --------------------------------------------------------------------- buckets */

static int compare_buckets(const void *a, const void *b)
{
    const bucket *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Checks that every class of a bucket is known. */
static sfp_status check_bucket(const reader *r, const char *name, const sfp__json_value *files)
{
    if (!sfp__json_is(files, SFP__JSON_OBJECT))
        return sfp__fail(r->err, SFP_EFORMAT, "%s: bucket '%s' is %s, expected an object {class: file}", r->meta, SHOWN(name),
                         sfp__json_type_name(files));
    for (size_t i = 0; i < sfp__json_size(files); i++) {
        const sfp__json_value *file = sfp__json_at(files, i);
        const char *class = file->key;
        if (sfp__names_find(&r->classes, class, strlen(class)) < 0)
            return sfp__fail(r->err, SFP_EFORMAT, "%s: bucket '%s' has class '%s', which is not in " NAMES_FILE, r->meta,
                             SHOWN(name), SHOWN(class));
        if (!sfp__json_is(file, SFP__JSON_STRING) || file->count == 0 || file->count > SFP__PATH_BYTES_MAX)
            return sfp__fail(r->err, SFP_EFORMAT, "%s: bucket '%s', class '%s' is %s, expected the name of a file", r->meta,
                             SHOWN(name), SHOWN(class), sfp__json_type_name(file));
    }
    return SFP_OK;
}

static sfp_status find_buckets(reader *r, const sfp__json_value *meta, bool skip_first)
{
    if (!sfp__json_is(meta, SFP__JSON_OBJECT))
        return sfp__fail(r->err, SFP_EFORMAT, "%s: file contains %s, expected an object {bucket: {class: file}}", r->meta,
                         sfp__json_type_name(meta));
    size_t n = sfp__json_size(meta);
    if (n > BUCKETS_MAX)
        return sfp__fail(r->err, SFP_ELIMIT, "%s: file has %zu buckets, expected at most %d", r->meta, n, BUCKETS_MAX);
    TRY(sfp__alloc(&r->buckets, n, sizeof *r->buckets, r->err));
    for (size_t i = 0; i < n; i++) {
        const sfp__json_value *files = sfp__json_at(meta, i);
        const char *name = files->key;
        size_t digits = strspn(name, "0123456789");
        if (digits == 0 || digits > 9 || name[digits])
            return sfp__fail(r->err, SFP_EFORMAT, "%s: bucket '%s' is not a number", r->meta, SHOWN(name));
        int64_t number = strtol(name, NULL, 10);
        TRY(check_bucket(r, name, files));
        if (number > 0 || !skip_first)
            r->buckets[r->count++] = (bucket){number, files};
    }
    qsort(r->buckets, r->count, sizeof *r->buckets, compare_buckets);
    for (size_t i = 1; i < r->count; i++)
        if (r->buckets[i].number == r->buckets[i - 1].number)
            return sfp__fail(r->err, SFP_EFORMAT, "%s: bucket %lld is listed twice", r->meta, (long long)r->buckets[i].number);
    return SFP_OK;
}

/* -------------------------------------------------------------------- images */

/* Adds the images of one class in one bucket, in the order of their file. */
static sfp_status add_file(reader *r, const char *path, const sfp__json_value *list, sfp_record record)
{
    if (!sfp__json_is(list, SFP__JSON_OBJECT))
        return sfp__fail(r->err, SFP_EFORMAT, "%s: file contains %s, expected an object {id: {\"IMG_PATH\": path}}", path,
                         sfp__json_type_name(list));
    for (size_t i = 0; i < sfp__json_size(list); i++) {
        const char *id = sfp__json_at(list, i)->key;
        const sfp__json_value *image = sfp__json_get(sfp__json_at(list, i), "IMG_PATH");
        size_t n = image ? image->count : 0;
        if (!sfp__json_is(image, SFP__JSON_STRING) || n == 0 || n > SFP__PATH_BYTES_MAX)
            return sfp__fail(r->err, SFP_EFORMAT, "%s: image '%s': IMG_PATH is %s, expected a path", path, SHOWN(id),
                             sfp__json_is(image, SFP__JSON_STRING) ? "empty or too long" : sfp__json_type_name(image));
        sfp_status status = sfp__entries_add(&r->s->entries, (sfp__entry){.record = record}, sfp__json_text(image), n, r->err);
        if (status != SFP_OK)
            return sfp__fail_prefix(r->err, status, "%s", path);
    }
    return SFP_OK;
}

/* Shuffles the entries from `first` on. */
static sfp_status shuffle_entries(sfp__entries *l, int64_t first, uint64_t seed, uint64_t stream, sfp_error *err)
{
    int64_t n = l->count - first;
    OWNED int64_t *turn = NULL;
    OWNED sfp__entry *copy = NULL;
    TRY(sfp__shuffled(n, seed, stream, &turn, err));
    TRY(sfp__alloc(&copy, (size_t)n, sizeof *copy, err));
    memcpy(copy, l->at + first, (size_t)n * sizeof *copy);
    for (int64_t i = 0; i < n; i++)
        l->at[first + i] = copy[turn[i]];
    return SFP_OK;
}

static sfp_status add_class_bucket(reader *r, const bucket *b, sfp_record record)
{
    const char *file = sfp__json_text(sfp__json_get(b->files, r->classes.name[record.label]));
    int64_t first = r->s->entries.count;
    OWNED char *path = NULL;
    OWNED sfp__json_value *list = NULL;
    if (!file) {
        r->absent++;
        return SFP_OK;
    }
    TRY(sfp__path_make(r->root, file, &path, r->err));
    TRY(sfp__json_read(path, SFP__JSON_BYTES_MAX, &list, r->err));
    TRY(add_file(r, path, list, record));
    if (r->opt->test || r->s->entries.count == first)
        return SFP_OK;
    return shuffle_entries(&r->s->entries, first, r->opt->seed, (uint64_t)record.label << 32 | (uint64_t)b->number, r->err);
}

static sfp_status add_all(reader *r, const layout *l)
{
    OWNED int64_t *class_at = NULL;
    TRY(sfp__class_order(r->classes.count, r->opt->order, &class_at, r->err));
    for (int place = 0; place < r->classes.count; place++) {
        sfp_record record = sfp__record_none();
        record.label = (int32_t)class_at[place];
        record.task = sfp__task_of_place(place, l->first, l->each);
        for (size_t b = 0; b < r->count; b++) {
            record.time = (double)r->buckets[b].number;
            TRY(add_class_bucket(r, &r->buckets[b], record));
        }
    }
    if (r->s->entries.count == 0)
        return sfp__fail(r->err, SFP_EFORMAT, "%s: file lists no images", r->meta);
    return SFP_OK;
}

/* --------------------------------------------------------------------- opening */

/* Reads the names from the directory of the images; older copies have the file in the directory above. */
static sfp_status read_names(reader *r, const char *path)
{
    OWNED char *file = NULL, *above = NULL;
    sfp_error why = {0}, ignored = {0};
    TRY(sfp__path_make(r->root, NAMES_FILE, &file, r->err));
    TRY(sfp__path_make(path, NAMES_FILE, &above, r->err));
    sfp_status status = sfp__names_read(file, &r->classes, &why);
    if (status == SFP_ENOTFOUND) {
        sfp_status second = sfp__names_read(above, &r->classes, &ignored);
        if (second != SFP_ENOTFOUND) {
            status = second;
            why = ignored;
        }
    }
    if (status == SFP_OK && r->classes.count == 0)
        status = sfp__fail(&why, SFP_EFORMAT, "%s: file has no names", file);
    if (status != SFP_OK && r->err)
        *r->err = why;
    return status;
}

static void done(reader *r)
{
    sfp__file_source_free(r->s);
    sfp__names_done(&r->classes);
    sfp__free(r->buckets);
    sfp__free(r->meta);
    sfp__free(r->root);
}

static sfp_status open_clear(const layout *l, const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    OWNED_BY(done) reader r = {.opt = opt, .err = err};
    OWNED sfp__json_value *meta = NULL;
    TRY(sfp__path_make(path, opt->test ? "test" : "train", &r.root, err));
    TRY(sfp__path_make(r.root, META_FILE, &r.meta, err));
    TRY(sfp__file_source_create(sizeof *r.s, l->kind, &sfp__file_source_ops, path, r.root, &r.s, err));
    TRY(sfp__json_read(r.meta, SFP__JSON_BYTES_MAX, &meta, err));
    sfp_status status = read_names(&r, path);
    status = status ? status : find_buckets(&r, meta, l->skip_first);
    status = status ? status : add_all(&r, l);
    if (status == SFP_ENOTFOUND) /* a part that lacks some of its files is damaged, not missing */
        return sfp__fail_prefix(err, SFP_EFORMAT, "%s", r.meta);
    TRY(status);
    if (r.count < sfp__json_size(meta))
        TRY(sfp__source_warn(&r.s->base, err, "excluded: bucket 0 (published protocol)"));
    if (r.absent)
        TRY(sfp__source_warn(&r.s->base, err, "%llu lists of images do not exist (one per bucket and class)",
                             (unsigned long long)r.absent));
    r.s->base.keeps_order = true;
    r.s->base.seeded = !opt->test;
    r.s->base.test_part = opt->test;
    *out = sfp__file_source_finish(TAKE(r.s), &r.classes, NULL);
    return SFP_OK;
}

static sfp_status open_clear10(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    return open_clear(&(layout){&sfp__source_clear10, true, 3, 2}, path, opt, out, err);
}

static sfp_status open_clear100(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    return open_clear(&(layout){&sfp__source_clear100, false, 10, 10}, path, opt, out, err);
}

const sfp__source_kind sfp__source_clear10 = {
    .name = "clear10",
    .summary = "CLEAR-10: eleven classes over ten years",
    .open = open_clear10,
};

const sfp__source_kind sfp__source_clear100 = {
    .name = "clear100",
    .summary = "CLEAR-100: a hundred classes over ten years",
    .open = open_clear100,
};
