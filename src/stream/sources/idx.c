/* IDX files (MNIST, Fashion-MNIST), gzipped or not: grey images in one file, their labels in another.
 *
 * PATH is their directory, where opt->test chooses t10k-* instead of train-*; or the file of images, with its labels beside it.
 * Everything is read into memory when the source is opened, because the datasets are small and gzip allows no random access. A
 * header is not trusted: memory grows with the bytes that are read. */
#include "stream/source_internal.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#define SIDE_MAX 16384
#define BYTES_MAX ((size_t)8 << 30) /* bytes of one file, unpacked */
#define FIRST_CAPACITY ((size_t)1 << 20)
#define UNPACKED_FREE ((size_t)64 << 20) /* files up to this unpacked size may have any compression ratio */
enum { RATIO_MAX = 100 };                /* maximum compression ratio of larger files */

typedef struct idx_source {
    sfp_source base;
    int64_t height, width;
    uint8_t *pixels;    /* (count, height, width) */
    uint8_t *digits;    /* (count) as in the file */
    int32_t label[256]; /* class number of each digit */
    char *name;         /* "train-images" */
} idx_source;

static const char *const fashion[] = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                      "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

/* ------------------------------------------------------------------ reading */

static void close_gz(gzFile *f)
{
    if (*f)
        (void)gzclose_r(*f);
}

/* Reads up to n bytes; *got is their number. */
static sfp_status read_gz(const char *path, gzFile f, void *bytes, size_t n, size_t *got, sfp_error *err)
{
    size_t done = 0;
    while (done < n) {
        unsigned want = n - done < (1u << 30) ? (unsigned)(n - done) : 1u << 30;
        int have = gzread(f, (uint8_t *)bytes + done, want);
        int code = Z_OK;
        if (have < 0) {
            const char *text = gzerror(f, &code);
            sfp_status status = code == Z_ERRNO ? SFP_EIO : code == Z_MEM_ERROR ? SFP_ENOMEM : SFP_EFORMAT;
            return sfp__fail(err, status, "%s: cannot read after byte %zu: %s", path, done, text);
        }
        done += (size_t)have;
        if (have == 0)
            break;
    }
    *got = done;
    return SFP_OK;
}

/* Reads the sizes in the header: 0 0 8 NDIM, then NDIM big-endian numbers. */
static sfp_status read_header(const char *path, gzFile f, int ndim, int64_t *dims, size_t *size, sfp_error *err)
{
    uint8_t h[4 + 4 * 4];
    size_t n = 4 + 4 * (size_t)ndim, got = 0;
    TRY(read_gz(path, f, h, n, &got, err));
    if (got < 4 || h[0] != 0 || h[1] != 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: not an IDX file, expected bytes 0 0 8 %d", path, ndim);
    if (h[2] != 8 || h[3] != ndim)
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s: array has type %d and %d dimensions, expected type 8 (bytes) and %d", path,
                         h[2], h[3], ndim);
    if (got < n)
        return sfp__fail(err, SFP_EFORMAT, "%s: file ends after %zu bytes, expected a header of %zu", path, got, n);
    *size = 1;
    for (int i = 0; i < ndim; i++) {
        const uint8_t *p = h + 4 + 4 * i;
        dims[i] = (int64_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
        if (dims[i] < 1 || (i > 0 && dims[i] > SIDE_MAX) || dims[i] > SFP__RECORDS_MAX)
            return sfp__fail(err, SFP_EFORMAT, "%s: dimension %d is %lld, expected 1..%lld", path, i, (long long)dims[i],
                             i > 0 ? (long long)SIDE_MAX : (long long)SFP__RECORDS_MAX);
        if (!sfp__mul_size(*size, (size_t)dims[i], size) || *size > BYTES_MAX)
            return sfp__fail(err, SFP_ELIMIT, "%s: size in the header exceeds %zu bytes", path, BYTES_MAX);
    }
    return SFP_OK;
}

static sfp_status read_body(const char *path, gzFile f, size_t size, uint8_t **bytes, sfp_error *err)
{
    OWNED uint8_t *block = NULL;
    uint8_t extra;
    size_t have = 0, capacity = 0, got = 0;
    while (have < size) {
        capacity = capacity == 0 ? FIRST_CAPACITY : 4 * capacity;
        capacity = capacity < size ? capacity : size;
        uint8_t *grown = sfp__realloc(block, have, capacity);
        TRY(sfp__check_memory(grown, err));
        block = grown;
        TRY(read_gz(path, f, block + have, capacity - have, &got, err));
        if (got < capacity - have)
            return sfp__fail(err, SFP_EFORMAT, "%s: file ends after %zu of the %zu bytes in its header", path, have + got, size);
        have = capacity;
    }
    TRY(read_gz(path, f, &extra, 1, &got, err));
    if (got > 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: file continues after the %zu bytes in its header", path, size);
    *bytes = TAKE(block);
    return SFP_OK;
}

sfp_status sfp__idx_read(const char *path, int ndim, int64_t *dims, uint8_t **bytes, sfp_error *err)
{
    OWNED_BY(close_gz) gzFile f = NULL;
    OWNED uint8_t *body = NULL;
    size_t size = 0, packed = 0;
    int64_t sizes[4];
    OWNED_BY(sfp__fd_close) int fd = -1;
    TRY(sfp__fd_open(path, &fd, &packed, err));
    if (packed == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: file is empty", path);
    TRY(sfp__check_memory((f = gzdopen(fd, "rb")), err));
    fd = -1; /* gzclose closes it */
    TRY(read_header(path, f, ndim, sizes, &size, err));
    /* Images of real datasets are packed to a half or a tenth of their size. */
    if (!gzdirect(f) && size > UNPACKED_FREE && size / RATIO_MAX > packed)
        return sfp__fail(err, SFP_ELIMIT,
                         "%s: file of %zu bytes unpacks to %zu, expected at most %d times its size; unpack it first", path,
                         packed, size, RATIO_MAX);
    TRY(read_body(path, f, size, &body, err));
    if (gzclose_r(TAKE(f)) == Z_BUF_ERROR)
        return sfp__fail(err, SFP_EFORMAT, "%s: file ends before its checksum", path);
    memcpy(dims, sizes, (size_t)ndim * sizeof *dims);
    *bytes = TAKE(body);
    return SFP_OK;
}

/* ------------------------------------------------------------------- finding */

/* Finds DIR/PART-images-idx3-ubyte, with '.' instead of '-' before idx, or with .gz; the first that exists. *out NULL: none does. */
static sfp_status find_in_directory(const char *dir, const char *part, const char *what, int ndim, char **out, sfp_error *err)
{
    char name[64];
    for (int way = 0; way < 4; way++) {
        bool found = false;
        (void)snprintf(name, sizeof name, "%s-%s%cidx%d-ubyte%s", part, what, way & 1 ? '.' : '-', ndim, way & 2 ? ".gz" : "");
        OWNED char *path = NULL;
        TRY(sfp__path_make(dir, name, &path, err));
        TRY(sfp__path_exists(path, &found, err));
        if (found) {
            *out = TAKE(path);
            return SFP_OK;
        }
    }
    return SFP_OK;
}

/* Finds both files of a part. SFP_ENOTFOUND: both are missing, so the dataset does not have this part. SFP_EFORMAT: only one is missing, so it is
 * damaged. */
static sfp_status find_part(const char *dir, const char *part, char **images, char **labels, sfp_error *err)
{
    TRY(find_in_directory(dir, part, "images", 3, images, err));
    TRY(find_in_directory(dir, part, "labels", 1, labels, err));
    if (*images && *labels)
        return SFP_OK;
    const char *what = *images ? "labels-idx1" : "images-idx3";
    return sfp__fail(err, *images || *labels ? SFP_EFORMAT : SFP_ENOTFOUND, "%s: directory has no %s-%s-ubyte or %s-%s-ubyte.gz",
                     dir, part, what, part, what);
}

/* Returns a copy of `path` in which the last `from` of the file name is replaced; *out is NULL if there is none. */
static sfp_status replaced(const char *path, const char *from, const char *to, char **out, sfp_error *err)
{
    const char *slash = strrchr(path, '/'), *at = NULL;
    for (const char *p = slash ? slash : path; (p = strstr(p, from)); p++)
        at = p;
    *out = NULL;
    if (!at)
        return SFP_OK;
    return sfp__text_new(out, err, "%.*s%s%s", (int)(at - path), path, to, at + strlen(from));
}

/* Finds the labels of a file of images; one of the two files may be gzipped and the other not. */
static sfp_status find_labels(const char *images, char **out, sfp_error *err)
{
    OWNED char *renamed = NULL, *path = NULL, *other = NULL;
    TRY(replaced(images, "images", "labels", &renamed, err));
    if (!renamed)
        return sfp__fail(err, SFP_EINVAL,
                         "%s: not a file of images, expected a name with 'images' and, beside it, one with 'labels'", images);
    TRY(replaced(renamed, "idx3", "idx1", &path, err));
    if (!path) /* a name without idx3 */
        path = TAKE(renamed);
    size_t n = strlen(path);
    bool packed = n > 3 && strcmp(path + n - 3, ".gz") == 0;
    TRY(sfp__text_new(&other, err, "%.*s%s", (int)(packed ? n - 3 : n), path, packed ? "" : ".gz"));
    bool same = false, found = false, have_images = false;
    TRY(sfp__path_exists(path, &same, err));
    TRY(sfp__path_exists(other, &found, err));
    TRY(sfp__path_exists(images, &have_images, err));
    if (!same && !found)
        return sfp__fail(err, have_images ? SFP_EFORMAT : SFP_ENOTFOUND, "%s: file of labels is missing, expected %s", images,
                         path);
    if (!have_images)
        return sfp__fail(err, SFP_EFORMAT, "%s: file of images is missing, but not its labels", images);
    *out = same ? TAKE(path) : TAKE(other);
    return SFP_OK;
}

static sfp_status find_files(const char *path, bool test, char **images, char **labels, sfp_error *err)
{
    bool directory = false, found = false;
    TRY(sfp__path_is_dir(path, &directory, err));
    if (directory)
        return find_part(path, test ? "t10k" : "train", images, labels, err);
    TRY(sfp__path_exists(path, &found, err));
    if (!found)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: cannot open: No such file or directory", path);
    if (test)
        TRY(replaced(path, "train-", "t10k-", images, err));
    TRY(sfp__check_memory(*images || (*images = sfp__strdup(path)), err));
    return find_labels(*images, labels, err);
}

/* ------------------------------------------------------------------- source */

static void close_idx(sfp_source *base)
{
    idx_source *s = (idx_source *)base;
    sfp__free(s->pixels);
    sfp__free(s->digits);
    sfp__free(s->name);
}

static sfp_status record_idx(const sfp_source *base, int64_t i, sfp_record *out, sfp_error *err)
{
    const idx_source *s = (const idx_source *)base;
    (void)err;
    *out = sfp__record_none();
    out->label = s->label[s->digits[i]];
    return SFP_OK;
}

static sfp_status load_idx(const sfp_source *base, int64_t i, sfp__raw_image *out, sfp_error *err)
{
    const idx_source *s = (const idx_source *)base;
    size_t n = (size_t)(s->height * s->width);
    sfp__raw_image p = {.kind = SFP__RAW_IMAGE_GREY, .width = (int)s->width, .height = (int)s->height, .size = n};
    TRY(sfp__alloc(&p.bytes, n, 1, err));
    memcpy(p.bytes, s->pixels + (size_t)i * n, n);
    *out = p;
    return SFP_OK;
}

static const char *name_idx(const sfp_source *base, int64_t i, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s[%lld]", ((const idx_source *)base)->name, (long long)i);
    return buf;
}

static const sfp__source_ops idx_ops = {.record = record_idx, .load = load_idx, .name = name_idx, .close = close_idx};

/* Recognises Fashion-MNIST by the name of the directory itself, not of those above it; torchvision keeps the files in
 * FashionMNIST/raw. */
static bool is_fashion(const char *dir)
{
    size_t n = strlen(dir);
    for (;;) {
        while (n > 0 && dir[n - 1] == '/')
            n--;
        size_t end = n;
        while (n > 0 && dir[n - 1] != '/')
            n--;
        if (end - n == 3 && memcmp(dir + n, "raw", 3) == 0)
            continue;
        for (size_t i = n; i + 7 <= end; i++)
            if (strncasecmp(dir + i, "fashion", 7) == 0)
                return true;
        return false;
    }
}

/* Names the classes: from a file classes.txt beside the images, else those of Fashion-MNIST, else the digits that occur. */
static sfp_status name_classes(idx_source *s, const char *images, const char *labels, sfp_error *err)
{
    OWNED_BY(sfp__names_done) sfp__names names = {0};
    OWNED char *dir = NULL, *list = NULL;
    TRY(sfp__path_directory(images, &dir, err));
    TRY(sfp__path_make(dir, "classes.txt", &list, err));
    bool listed = false, seen[256] = {false};
    TRY(sfp__path_exists(list, &listed, err));
    bool known = listed || is_fashion(dir);
    if (listed)
        TRY(sfp__names_read(list, &names, err));
    else if (known)
        for (size_t i = 0; i < sizeof fashion / sizeof *fashion; i++)
            TRY(sfp__names_add(&names, fashion[i], strlen(fashion[i]), &s->label[i], err));
    for (int64_t i = 0; i < s->base.count; i++) {
        seen[s->digits[i]] = true;
        if (known && s->digits[i] >= names.count)
            return sfp__fail(err, SFP_EFORMAT, "%s: label %lld is %d, expected one of %d classes", labels, (long long)i,
                             s->digits[i], names.count);
    }
    for (int d = 0; d < 256; d++) {
        char digit[12];
        (void)snprintf(digit, sizeof digit, "%d", d);
        s->label[d] = known && d < names.count ? d : -1;
        if (!known && seen[d])
            TRY(sfp__names_add(&names, digit, strlen(digit), &s->label[d], err));
    }
    sfp__names_give(&names, &s->base.class_names, &s->base.classes);
    return SFP_OK;
}

static sfp_status read_files(idx_source *s, const char *images, const char *labels, sfp_error *err)
{
    int64_t size[3], count = 0;
    TRY(sfp__idx_read(images, 3, size, &s->pixels, err));
    TRY(sfp__idx_read(labels, 1, &count, &s->digits, err));
    if (count != size[0])
        return sfp__fail(err, SFP_EFORMAT, "%s: file has %lld labels, expected %lld, the number of images in %s", labels,
                         (long long)count, (long long)size[0], images);
    s->base.count = count;
    s->height = size[1];
    s->width = size[2];
    const char *slash = strrchr(images, '/');
    TRY(sfp__check_memory((s->name = sfp__strdup(slash ? slash + 1 : images)), err));
    char *at = strstr(s->name, "idx3"); /* "train-images" of ".../train-images-idx3-ubyte.gz" */
    if (at && at > s->name + 1)
        at[-1] = '\0';
    return name_classes(s, images, labels, err);
}

static sfp_status open_idx(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    OWNED char *images = NULL, *labels = NULL;
    OWNED_PTR(sfp__source_close) sfp_source *s = NULL;
    TRY(sfp__source_create(sizeof(idx_source), &sfp__source_idx, &idx_ops, path, &s, err));
    TRY(find_files(path, opt->test, &images, &labels, err));
    TRY(read_files((idx_source *)s, images, labels, err));
    s->test_part = opt->test && strcmp(images, path) != 0;
    *out = TAKE(s);
    return SFP_OK;
}

const sfp__source_kind sfp__source_idx = {
    .name = "idx",
    .summary = "MNIST-type IDX files, gzipped or not",
    .open = open_idx,
};
