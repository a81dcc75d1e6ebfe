/* stream51:PATH - Stream-51 (Roady et al. 2020) as published.
 *
 *   Stream-51_meta_train.json  rows [class, clip, video, frame, [w, h], [x2, x1, y2, y1], path]
 *   Stream-51_meta_test.json   rows [class, [w, h], [x2, x1, y2, y1], path]
 *
 * An image is cropped to the box of its object, enlarged 1.10 times around its centre, as in the loader of the dataset. The
 * centre and each side are truncated to integers; then the box is clipped to the image.
 *
 * Training order: class by class (in class order), within a class the videos shuffled by the seed, the frames of a video in their
 * order. A video begins at frame 0, as in the loader of the dataset, or where clip or video change. Tasks: 11 classes, then 10
 * each. Test rows of classes from 51 on are for novelty detection: they are excluded and counted. */
#include "stream/source_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES = 51, FIRST_TASK = 11, EACH_TASK = 10, TRAIN_FIELDS = 7, TEST_FIELDS = 4, SIDE_MAX = 1 << 20 };

#define RATIO 1.10
#define VIDEO_STREAM UINT64_C(0x766964656f000000) /* sequence of random numbers; one per class from here on */

/* One row, checked and converted. */
typedef struct row {
    int64_t label, clip, video, frame;
    int box[4]; /* left, top, right, bottom */
    const char *path;
} row;

typedef struct reader {
    const char *file;
    const sfp__json_value *rows;
    bool test;
    sfp_error *err;
} reader;

/* ----------------------------------------------------------------------- rows */

static sfp_status row_error(const reader *r, size_t i, const char *what, const char *expected, const sfp__json_value *found)
{
    return sfp__fail(r->err, SFP_EFORMAT, "%s: row %zu: %s is %s, expected %s", r->file, i, what, sfp__json_type_name(found),
                     expected);
}

static sfp_status get_int(const reader *r, size_t i, const sfp__json_value *v, const char *what, int64_t *out)
{
    if (!sfp__json_is(v, SFP__JSON_INTEGER))
        return row_error(r, i, what, "an integer", v);
    *out = sfp__json_integer(v);
    return SFP_OK;
}

/* Reads n finite numbers. */
static sfp_status get_numbers(const reader *r, size_t i, const sfp__json_value *v, const char *what, size_t n, double *out)
{
    if (!sfp__json_is(v, SFP__JSON_ARRAY) || sfp__json_size(v) < n)
        return row_error(r, i, what, n == 2 ? "[width, height]" : "[x2, x1, y2, y1]", v);
    for (size_t k = 0; k < n; k++) {
        const sfp__json_value *x = sfp__json_at(v, k);
        if (!sfp__json_is_number(x))
            return row_error(r, i, what, "numbers", x);
        out[k] = sfp__json_number(x);
        if (!(fabs(out[k]) <= SIDE_MAX))
            return sfp__fail(r->err, SFP_EFORMAT, "%s: row %zu: %s contains %g, expected numbers within +-%d", r->file, i, what,
                             out[k], SIDE_MAX);
    }
    return SFP_OK;
}

/* Enlarges, truncates and clips the box, in this order. */
static void crop(const double b[4], const double size[2], int out[4])
{
    double w = b[0] - b[1], h = b[2] - b[3];
    int x = (int)(b[1] + w / 2), y = (int)(b[3] + h / 2);
    int left = (int)(x - w * RATIO / 2), top = (int)(y - h * RATIO / 2);
    int right = (int)(x + w * RATIO / 2), bottom = (int)(y + h * RATIO / 2);
    out[0] = left > 0 ? left : 0;
    out[1] = top > 0 ? top : 0;
    out[2] = right < (int)size[0] ? right : (int)size[0];
    out[3] = bottom < (int)size[1] ? bottom : (int)size[1];
}

static sfp_status get_row(const reader *r, size_t i, row *out)
{
    const sfp__json_value *v = sfp__json_at(r->rows, i), *path;
    size_t fields = r->test ? TEST_FIELDS : TRAIN_FIELDS;
    double size[2] = {0}, box[4] = {0};
    *out = (row){0};
    if (!sfp__json_is(v, SFP__JSON_ARRAY))
        return row_error(r, i, "value", "an array", v);
    if (sfp__json_size(v) != fields)
        return sfp__fail(r->err, SFP_EFORMAT, "%s: row %zu has %zu fields, expected %zu", r->file, i, sfp__json_size(v), fields);
    TRY(get_int(r, i, sfp__json_at(v, 0), "class", &out->label));
    if (out->label < 0 || (!r->test && out->label >= CLASSES))
        return sfp__fail(r->err, SFP_EFORMAT, "%s: row %zu: class is %lld, expected 0 to %d", r->file, i, (long long)out->label,
                         CLASSES - 1);
    if (!r->test) {
        TRY(get_int(r, i, sfp__json_at(v, 1), "clip", &out->clip));
        TRY(get_int(r, i, sfp__json_at(v, 2), "video", &out->video));
        TRY(get_int(r, i, sfp__json_at(v, 3), "frame", &out->frame));
    }
    TRY(get_numbers(r, i, sfp__json_at(v, fields - 3), "size", 2, size));
    TRY(get_numbers(r, i, sfp__json_at(v, fields - 2), "box", 4, box));
    path = sfp__json_at(v, fields - 1);
    out->path = sfp__json_text(path);
    if (!out->path)
        return row_error(r, i, "path", "a string", path);
    if (!*out->path || path->count > SFP__PATH_BYTES_MAX)
        return sfp__fail(r->err, SFP_EFORMAT, "%s: row %zu: path has %zu bytes, expected 1 to %d", r->file, i, path->count,
                         SFP__PATH_BYTES_MAX);
    crop(box, size, out->box);
    return SFP_OK;
}

/* ---------------------------------------------------------------------- names */

/* Returns directory k of a path, *n bytes long; NULL: none (the last part is the file). */
static const char *directory_at(const char *path, int k, size_t *n)
{
    for (;; k--) {
        const char *slash = strchr(path, '/');
        if (!slash)
            return NULL;
        if (k == 0) {
            *n = (size_t)(slash - path);
            return path;
        }
        path = slash + 1;
    }
}

/* Checks whether directory k of the paths distinguishes the classes: one name per class, all different. If *found, names has them
 * in order. */
static sfp_status names_at(const sfp__json_value *rows, int k, sfp__names *names, bool *found, sfp_error *err)
{
    const char *of[CLASSES] = {0};
    size_t length[CLASSES] = {0}, n = 0;
    *found = false;
    for (size_t i = 0; i < sfp__json_size(rows); i++) {
        const sfp__json_value *v = sfp__json_at(rows, i);
        int64_t label = sfp__json_integer(sfp__json_at(v, 0));
        const char *path = sfp__json_text(sfp__json_at(v, TRAIN_FIELDS - 1)), *name = path ? directory_at(path, k, &n) : NULL;
        if (!name || n == 0 || n > SFP__CLASS_NAME_MAX || label < 0 || label >= CLASSES)
            return SFP_OK;
        if (of[label] && (length[label] != n || memcmp(of[label], name, n) != 0))
            return SFP_OK;
        of[label] = name;
        length[label] = n;
    }
    for (int32_t i = 0, number = 0; i < CLASSES; i++) {
        if (!of[i])
            return SFP_OK;
        TRY(sfp__names_add(names, of[i], length[i], &number, err));
        if (number != i)
            return SFP_OK;
    }
    *found = true;
    return SFP_OK;
}

/* Names the classes. The rows have numbers only, but the training paths usually contain the name. Both parts use the training
 * paths, so that they agree; without them classes are named after their numbers. */
static sfp_status name_classes(sfp_source *s, const sfp__json_value *train, sfp__names *names, sfp_error *err)
{
    for (int k = 0; train && k < 4; k++) {
        bool found = false;
        TRY(names_at(train, k, names, &found, err));
        if (found)
            return SFP_OK;
        sfp__names_done(names);
    }
    if (train)
        TRY(sfp__source_warn(s, err, "classes are named after their numbers: the paths do not name all %d in the same way",
                             CLASSES));
    for (int32_t i = 0, number; i < CLASSES; i++) {
        char text[16];
        TRY(sfp__names_add(names, text, (size_t)snprintf(text, sizeof text, "%d", i), &number, err));
    }
    return SFP_OK;
}

/* ---------------------------------------------------------------------- order */

/* The position of an entry in the stream: place of its class, turn of its video, place in the file. */
typedef struct key {
    int32_t place;
    int64_t turn, entry;
} key;

static int compare_keys(const void *a, const void *b)
{
    const key *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    if (x->turn != y->turn)
        return x->turn < y->turn ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

/* Draws the turn (count) of each video of a class. */
static sfp_status draw_turns(int64_t count, int label, uint64_t seed, int64_t **out, sfp_error *err)
{
    OWNED int64_t *list = NULL, *turn = NULL;
    TRY(sfp__shuffled(count, seed, VIDEO_STREAM + (uint64_t)label, &list, err));
    TRY(sfp__alloc(&turn, (size_t)count, sizeof *turn, err));
    for (int64_t i = 0; i < count; i++)
        turn[list[i]] = i;
    *out = TAKE(turn);
    return SFP_OK;
}

static void free_turns(int64_t *(*turn)[CLASSES])
{
    for (int c = 0; c < CLASSES; c++)
        sfp__free((*turn)[c]);
}

/* Sorts the entries from file order into stream order; `video` (entries.count) is the number of the video within its class. */
static sfp_status order_entries(sfp__file_source *s, const int32_t place[CLASSES], const int64_t *video,
                                const int64_t videos[CLASSES], uint64_t seed, sfp_error *err)
{
    size_t n = (size_t)s->entries.count;
    OWNED_BY(free_turns) int64_t *turn[CLASSES] = {0};
    OWNED key *keys = NULL;
    OWNED sfp__entry *sorted = NULL;
    TRY(sfp__alloc(&keys, n, sizeof *keys, err));
    TRY(sfp__alloc(&sorted, n, sizeof *sorted, err));
    for (int c = 0; c < CLASSES; c++)
        TRY(draw_turns(videos[c], c, seed, &turn[c], err));
    for (size_t i = 0; i < n; i++) {
        int32_t label = s->entries.at[i].record.label;
        keys[i] = (key){.place = place[label], .turn = turn[label][video[i]], .entry = (int64_t)i};
    }
    qsort(keys, n, sizeof *keys, compare_keys);
    for (size_t i = 0; i < n; i++)
        sorted[i] = s->entries.at[keys[i].entry];
    memcpy(s->entries.at, sorted, n * sizeof *sorted);
    return SFP_OK;
}

/* -------------------------------------------------------------------- opening */

/* The box is in the two unused words of an entry. */
static sfp_status load(const sfp_source *s, int64_t i, sfp__raw_image *out, sfp_error *err)
{
    TRY(sfp__file_source_load(s, i, out, err));
    const sfp__entry *e = &((const sfp__file_source *)s)->entries.at[i];
    out->has_box = true;
    out->box[0] = (int)(e->place >> 32);
    out->box[1] = (int)(uint32_t)e->place;
    out->box[2] = (int)(e->size >> 32);
    out->box[3] = (int)(uint32_t)e->size;
    return SFP_OK;
}

static const sfp__source_ops stream51_ops = {
    .record = sfp__file_source_record,
    .load = load,
    .name = sfp__file_source_name,
    .display_name = sfp__file_source_display_name,
    .close = sfp__file_source_close,
};

static sfp_status read_rows(sfp__file_source *s, const reader *r, const int32_t place[CLASSES], uint64_t seed)
{
    size_t n = sfp__json_size(r->rows);
    OWNED int64_t *video = NULL;
    int64_t videos[CLASSES] = {0};
    row last[CLASSES] = {0}, now;
    uint64_t novel = 0, empty = 0;
    TRY(sfp__alloc(&video, n, sizeof *video, r->err));
    for (size_t i = 0; i < n; i++) {
        TRY(get_row(r, i, &now));
        bool is_novel = now.label >= CLASSES, is_empty = now.box[0] >= now.box[2] || now.box[1] >= now.box[3];
        novel += is_novel;
        empty += !is_novel && is_empty;
        if (is_novel || is_empty)
            continue;
        const row *before = &last[now.label];
        if (videos[now.label] == 0 || now.frame == 0 || before->clip != now.clip || before->video != now.video)
            videos[now.label]++;
        last[now.label] = now;
        video[s->entries.count] = videos[now.label] - 1;
        sfp__entry e = {.record = sfp__record_none(),
                        .place = (uint64_t)(uint32_t)now.box[0] << 32 | (uint32_t)now.box[1],
                        .size = (uint64_t)(uint32_t)now.box[2] << 32 | (uint32_t)now.box[3]};
        e.record.label = (int32_t)now.label;
        e.record.task = sfp__task_of_place(place[now.label], FIRST_TASK, EACH_TASK);
        sfp_status status = sfp__entries_add(&s->entries, e, now.path, strlen(now.path), r->err);
        if (status != SFP_OK)
            return sfp__fail_prefix(r->err, status, "%s", r->file);
    }
    if (s->entries.count == 0)
        return sfp__fail(r->err, SFP_EFORMAT, "%s: file lists no images", r->file);
    if (!r->test)
        TRY(order_entries(s, place, video, videos, seed, r->err));
    s->base.skipped = empty;
    if (novel || empty)
        TRY(sfp__source_warn(&s->base, r->err, "excluded: %llu images of novelty classes, %llu with an empty box",
                             (unsigned long long)novel, (unsigned long long)empty));
    return SFP_OK;
}

/* The caller owns *out, also on failure. */
static sfp_status read_list(const char *path, sfp__json_value **out, sfp_error *err)
{
    TRY(sfp__json_read(path, SFP__JSON_BYTES_MAX, out, err));
    if (sfp__json_is(*out, SFP__JSON_ARRAY))
        return SFP_OK;
    return sfp__fail(err, SFP_EFORMAT, "%s: file contains %s, expected an array of rows", path, sfp__json_type_name(*out));
}

static sfp_status open_stream51(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    OWNED_PTR(sfp__file_source_free) sfp__file_source *s = NULL;
    OWNED_BY(sfp__names_done) sfp__names classes = {0};
    OWNED char *train_file = NULL, *test_file = NULL;
    OWNED int64_t *class_at = NULL;
    OWNED sfp__json_value *train = NULL, *test = NULL;
    int32_t place[CLASSES];
    TRY(sfp__path_make(path, "Stream-51_meta_train.json", &train_file, err));
    TRY(sfp__path_make(path, "Stream-51_meta_test.json", &test_file, err));
    TRY(sfp__file_source_create(sizeof *s, &sfp__source_stream51, &stream51_ops, path, path, &s, err));
    if (opt->test)
        TRY(read_list(test_file, &test, err));
    sfp_error why = {0};
    sfp_status status = read_list(train_file, &train, &why);
    if (status != SFP_OK && !(status == SFP_ENOTFOUND && opt->test)) /* the test part uses only the names of the training list */
        return sfp__fail(err, status, "%s", why.message);
    TRY(sfp__class_order(CLASSES, opt->order, &class_at, err));
    for (int i = 0; i < CLASSES; i++)
        place[class_at[i]] = i;
    const reader r = {
        .file = opt->test ? test_file : train_file, .rows = opt->test ? test : train, .test = opt->test, .err = err};
    TRY(read_rows(s, &r, place, opt->seed));
    TRY(name_classes(&s->base, train, &classes, err));
    s->base.keeps_order = true;
    s->base.seeded = !opt->test;
    s->base.test_part = opt->test;
    *out = sfp__file_source_finish(TAKE(s), &classes, NULL);
    return SFP_OK;
}

const sfp__source_kind sfp__source_stream51 = {
    .name = "stream51",
    .summary = "Stream-51: videos of 51 classes, cut to the object",
    .open = open_stream51,
};
