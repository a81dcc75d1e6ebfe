/* IDX files (MNIST, Fashion-MNIST), gzipped or not: grey pictures in one file,
 * their labels in another.
 *
 * PATH is their folder, then opt->test picks t10k-* instead of train-*; or the
 * file of pictures, whose labels are beside it. Everything is read into memory
 * when it is opened: the sets are small, and gzip knows no other way. A header
 * is not believed: memory grows with the bytes that are there. */
#include "base/mem.h"
#include "stream/source_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define SIDE_MAX 16384
#define BYTES_MAX ((size_t)8 << 30) /* of one file, unpacked */
#define FIRST_ROOM ((size_t)1 << 20)

typedef struct idx_source {
    sfp_source base;
    int64_t height, width;
    uint8_t *pixels;    /* (count, height, width) */
    uint8_t *digits;    /* (count) as in the file */
    int32_t label[256]; /* class of a digit */
    char *name;         /* "train-images" */
} idx_source;

static const char *const fashion[] = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                      "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

/* ------------------------------------------------------------------ reading */

/* FIFOs and the like are refused before zlib waits for them. */
static sfp_status open_gz(const char *path, gzFile *out, sfp_error *err)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return sfp__fail_errno(err, errno == ENOENT || errno == ENOTDIR ? SFP_ENOTFOUND : SFP_EIO, "%s: cannot open", path);
    struct stat st;
    sfp_status status = SFP_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        status = sfp__fail(err, SFP_EINVAL, "%s: is not a regular file", path);
    else if (st.st_size == 0)
        status = sfp__fail(err, SFP_EFORMAT, "%s: is empty", path);
    else if (!(*out = gzdopen(fd, "rb")))
        status = sfp__fail_nomem(err);
    if (status != SFP_OK)
        (void)close(fd);
    return status;
}

/* Up to n bytes; *got says how many there were. */
static sfp_status read_gz(const char *path, gzFile f, void *bytes, size_t n, size_t *got, sfp_error *err)
{
    size_t done = 0;
    while (done < n) {
        unsigned want = n - done < (1u << 30) ? (unsigned)(n - done) : 1u << 30;
        int have = gzread(f, (uint8_t *)bytes + done, want);
        int code = Z_OK;
        if (have < 0) {
            const char *text = gzerror(f, &code);
            return sfp__fail(err, code == Z_ERRNO ? SFP_EIO : SFP_EFORMAT, "%s: cannot read behind byte %zu: %s", path, done,
                             text);
        }
        done += (size_t)have;
        if (have == 0)
            break;
    }
    *got = done;
    return SFP_OK;
}

/* The header's sizes: 0 0 8 NDIM, then NDIM big-endian numbers. */
static sfp_status read_header(const char *path, gzFile f, int ndim, int64_t *dims, size_t *size, sfp_error *err)
{
    uint8_t h[4 + 4 * 4];
    size_t n = 4 + 4 * (size_t)ndim, got = 0;
    sfp_status status = read_gz(path, f, h, n, &got, err);
    if (status != SFP_OK)
        return status;
    if (got < 4 || h[0] != 0 || h[1] != 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: is not an IDX file, expected bytes 0 0 8 %d", path, ndim);
    if (h[2] != 8 || h[3] != ndim)
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s: has type %d and %d dimensions, expected type 8 (bytes) and %d", path, h[2],
                         h[3], ndim);
    if (got < n)
        return sfp__fail(err, SFP_EFORMAT, "%s: ends after %zu bytes, expected a header of %zu", path, got, n);
    *size = 1;
    for (int i = 0; i < ndim; i++) {
        const uint8_t *p = h + 4 + 4 * i;
        dims[i] = (int64_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
        if (dims[i] < 1 || (i > 0 && dims[i] > SIDE_MAX) || dims[i] > SFP_RECORDS_MAX)
            return sfp__fail(err, SFP_EFORMAT, "%s: dimension %d is %lld, expected 1..%lld", path, i, (long long)dims[i],
                             i > 0 ? (long long)SIDE_MAX : (long long)SFP_RECORDS_MAX);
        if (!sfp__mul_size(*size, (size_t)dims[i], size) || *size > BYTES_MAX)
            return sfp__fail(err, SFP_ELIMIT, "%s: says it has more than %zu bytes", path, BYTES_MAX);
    }
    return SFP_OK;
}

static sfp_status read_body(const char *path, gzFile f, size_t size, uint8_t **bytes, sfp_error *err)
{
    uint8_t *block = NULL, extra;
    size_t have = 0, room = 0, got = 0;
    sfp_status status = SFP_OK;
    while (have < size && status == SFP_OK) {
        size_t more = room == 0 ? FIRST_ROOM : 4 * room;
        more = more < size ? more : size;
        uint8_t *grown = sfp__realloc(block, have, more);
        if (!grown) {
            status = sfp__fail_nomem(err);
            break;
        }
        block = grown;
        room = more;
        status = read_gz(path, f, block + have, room - have, &got, err);
        if (status == SFP_OK && got < room - have)
            status =
                sfp__fail(err, SFP_EFORMAT, "%s: ends after %zu of the %zu bytes that its header says", path, have + got, size);
        have = room;
    }
    if (status == SFP_OK)
        status = read_gz(path, f, &extra, 1, &got, err);
    if (status == SFP_OK && got > 0)
        status = sfp__fail(err, SFP_EFORMAT, "%s: goes on behind the %zu bytes that its header says", path, size);
    if (status != SFP_OK) {
        sfp__free(block);
        return status;
    }
    *bytes = block;
    return SFP_OK;
}

sfp_status sfp__idx_read(const char *path, int ndim, int64_t *dims, uint8_t **bytes, sfp_error *err)
{
    gzFile f = NULL;
    size_t size = 0;
    int64_t sizes[4];
    sfp_status status = open_gz(path, &f, err);
    if (status != SFP_OK)
        return status;
    status = read_header(path, f, ndim, sizes, &size, err);
    uint8_t *body = NULL;
    if (status == SFP_OK)
        status = read_body(path, f, size, &body, err);
    if (gzclose_r(f) == Z_BUF_ERROR && status == SFP_OK)
        status = sfp__fail(err, SFP_EFORMAT, "%s: ends before its checksum", path);
    if (status != SFP_OK) {
        sfp__free(body);
        return status;
    }
    memcpy(dims, sizes, (size_t)ndim * sizeof *dims);
    *bytes = body;
    return SFP_OK;
}

/* ------------------------------------------------------------------- finding */

/* DIR/PART-images-idx3-ubyte, with '.' for '-' before idx, with .gz; the first that is there. */
static sfp_status find_in_folder(const char *dir, const char *part, const char *what, int ndim, char **out, sfp_error *err)
{
    char name[64];
    for (int way = 0; way < 4; way++) {
        (void)snprintf(name, sizeof name, "%s-%s%cidx%d-ubyte%s", part, what, way & 1 ? '.' : '-', ndim, way & 2 ? ".gz" : "");
        char *path = sfp__path_join(dir, name);
        if (!path)
            return sfp__fail_nomem(err);
        if (access(path, F_OK) == 0) {
            *out = path;
            return SFP_OK;
        }
        sfp__free(path);
    }
    return sfp__fail(err, SFP_ENOTFOUND, "%s: has no %s-%s-idx%d-ubyte or %s-%s-idx%d-ubyte.gz", dir, part, what, ndim, part,
                     what, ndim);
}

/* A copy of `path` with the last `from` in its file name replaced; *out is NULL when it has none. */
static sfp_status replaced(const char *path, const char *from, const char *to, char **out, sfp_error *err)
{
    const char *slash = strrchr(path, '/'), *at = NULL;
    for (const char *p = slash ? slash : path; (p = strstr(p, from)); p++)
        at = p;
    *out = NULL;
    if (!at)
        return SFP_OK;
    size_t room = strlen(path) + strlen(to) + 1;
    char *copy = sfp__malloc(room);
    if (!copy)
        return sfp__fail_nomem(err);
    (void)snprintf(copy, room, "%.*s%s%s", (int)(at - path), path, to, at + strlen(from));
    *out = copy;
    return SFP_OK;
}

/* `path` with .gz at its end, or without it; NULL: no memory. */
static char *other_packing(const char *path)
{
    size_t n = strlen(path), room = n + 4;
    bool packed = n > 3 && strcmp(path + n - 3, ".gz") == 0;
    char *other = sfp__malloc(room);
    if (other)
        (void)snprintf(other, room, "%.*s%s", (int)(packed ? n - 3 : n), path, packed ? "" : ".gz");
    return other;
}

/* The labels of a file of pictures; one of the two may be gzipped and the other not. */
static sfp_status find_labels(const char *images, char **out, sfp_error *err)
{
    char *renamed = NULL, *path = NULL, *other = NULL;
    sfp_status status = replaced(images, "images", "labels", &renamed, err);
    if (status == SFP_OK && !renamed)
        status = sfp__fail(err, SFP_EINVAL, "%s: expected a name with 'images', beside it the one with 'labels'", images);
    if (status == SFP_OK)
        status = replaced(renamed, "idx3", "idx1", &path, err);
    if (status == SFP_OK && !path) { /* a name without idx3 */
        path = renamed;
        renamed = NULL;
    }
    if (status == SFP_OK && !(other = other_packing(path)))
        status = sfp__fail_nomem(err);
    if (status == SFP_OK && access(path, F_OK) == 0) {
        *out = path;
        path = NULL;
    } else if (status == SFP_OK && access(other, F_OK) == 0) {
        *out = other;
        other = NULL;
    } else if (status == SFP_OK) {
        status = sfp__fail(err, SFP_ENOTFOUND, "%s: its labels are not there, expected %s", images, path);
    }
    sfp__free(renamed);
    sfp__free(path);
    sfp__free(other);
    return status;
}

static sfp_status find_files(const char *path, bool test, char **images, char **labels, sfp_error *err)
{
    if (sfp__path_is_dir(path)) {
        const char *part = test ? "t10k" : "train";
        sfp_status status = find_in_folder(path, part, "images", 3, images, err);
        return status == SFP_OK ? find_in_folder(path, part, "labels", 1, labels, err) : status;
    }
    if (access(path, F_OK) != 0)
        return sfp__fail_errno(err, SFP_ENOTFOUND, "%s: cannot open", path);
    sfp_status status = test ? replaced(path, "train-", "t10k-", images, err) : SFP_OK;
    if (status == SFP_OK && !*images && !(*images = sfp__strdup(path)))
        status = sfp__fail_nomem(err);
    return status == SFP_OK ? find_labels(*images, labels, err) : status;
}

/* ------------------------------------------------------------------- source */

static void close_idx(sfp_source *base)
{
    idx_source *s = (idx_source *)base;
    sfp__free(s->pixels);
    sfp__free(s->digits);
    sfp__free(s->name);
    sfp__source_done(base);
    sfp__free(s);
}

static sfp_status record_idx(const sfp_source *base, int64_t i, sfp_record *out, sfp_error *err)
{
    sfp_status status = sfp__source_check_index(base, i, err);
    if (status == SFP_OK) {
        const idx_source *s = (const idx_source *)base;
        *out = sfp__record_none();
        out->label = s->label[s->digits[i]];
    }
    return status;
}

static sfp_status load_idx(const sfp_source *base, int64_t i, sfp_picture *out, sfp_error *err)
{
    const idx_source *s = (const idx_source *)base;
    sfp_status status = sfp__source_check_index(base, i, err);
    if (status != SFP_OK)
        return status;
    size_t n = (size_t)(s->height * s->width);
    sfp_picture p = {
        .kind = SFP_PICTURE_GREY, .width = (int)s->width, .height = (int)s->height, .size = n, .bytes = sfp__malloc(n)};
    if (!p.bytes)
        return sfp__fail_nomem(err);
    memcpy(p.bytes, s->pixels + (size_t)i * n, n);
    *out = p;
    return SFP_OK;
}

static const char *name_idx(const sfp_source *base, int64_t i, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s[%lld]", ((const idx_source *)base)->name, (long long)i);
    return buf;
}

/* By the folder's own name, as many a path has such a word in it; torchvision keeps the files in FashionMNIST/raw. */
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

/* Names of the digits: those of Fashion-MNIST, a file classes.txt beside the pictures, else the digits that occur. */
static sfp_status name_classes(idx_source *s, const char *images, const char *labels, sfp_error *err)
{
    sfp_names names = {0};
    char *dir = sfp__path_dir(images), *list = dir ? sfp__path_join(dir, "classes.txt") : NULL;
    bool known = list && access(list, F_OK) == 0;
    sfp_status status = !list ? sfp__fail_nomem(err) : known ? sfp__names_read(list, &names, err) : SFP_OK;
    if (status == SFP_OK && !known && is_fashion(dir)) {
        known = true;
        for (size_t i = 0; i < sizeof fashion / sizeof *fashion && status == SFP_OK; i++)
            status = sfp__names_add(&names, fashion[i], strlen(fashion[i]), &s->label[i], err);
    }
    bool seen[256] = {false};
    for (int64_t i = 0; i < s->base.count && status == SFP_OK; i++) {
        seen[s->digits[i]] = true;
        if (known && s->digits[i] >= names.count)
            status = sfp__fail(err, SFP_EFORMAT, "%s: label %lld is %d, expected one of %d classes", labels, (long long)i,
                               s->digits[i], names.count);
    }
    for (int d = 0; d < 256 && status == SFP_OK; d++) {
        char digit[12];
        (void)snprintf(digit, sizeof digit, "%d", d);
        s->label[d] = known && d < names.count ? d : -1;
        if (!known && seen[d])
            status = sfp__names_add(&names, digit, strlen(digit), &s->label[d], err);
    }
    if (status == SFP_OK)
        sfp__names_give(&names, &s->base.class_names, &s->base.classes);
    sfp__names_done(&names);
    sfp__free(list);
    sfp__free(dir);
    return status;
}

/* "train-images" of ".../train-images-idx3-ubyte.gz" */
static char *short_name(const char *images)
{
    const char *slash = strrchr(images, '/');
    char *name = sfp__strdup(slash ? slash + 1 : images), *at = name ? strstr(name, "idx3") : NULL;
    if (at && at > name + 1)
        at[-1] = '\0';
    return name;
}

static sfp_status read_files(idx_source *s, const char *images, const char *labels, sfp_error *err)
{
    int64_t size[3], count = 0;
    sfp_status status = sfp__idx_read(images, 3, size, &s->pixels, err);
    if (status == SFP_OK)
        status = sfp__idx_read(labels, 1, &count, &s->digits, err);
    if (status != SFP_OK)
        return status;
    if (count != size[0])
        return sfp__fail(err, SFP_EFORMAT, "%s: has %lld labels, expected %lld as %s has pictures", labels, (long long)count,
                         (long long)size[0], images);
    s->base.count = count;
    s->height = size[1];
    s->width = size[2];
    s->name = short_name(images);
    return s->name ? name_classes(s, images, labels, err) : sfp__fail_nomem(err);
}

static sfp_status open_idx(const char *path, const sfp_source_options *opt, sfp_source **out, sfp_error *err)
{
    char *images = NULL, *labels = NULL;
    idx_source *s = sfp__calloc(1, sizeof *s);
    if (!s)
        return sfp__fail_nomem(err);
    sfp_status status = sfp__source_init(&s->base, &sfp__source_idx, path, err);
    s->base.record = record_idx;
    s->base.load = load_idx;
    s->base.name = name_idx;
    s->base.close = close_idx;
    if (status == SFP_OK)
        status = find_files(path, opt->test, &images, &labels, err);
    if (status == SFP_OK)
        status = read_files(s, images, labels, err);
    s->base.test_part = status == SFP_OK && opt->test && strcmp(images, path) != 0;
    if (status == SFP_OK)
        *out = &s->base;
    else
        close_idx(&s->base);
    sfp__free(images);
    sfp__free(labels);
    return status;
}

const sfp_source_kind sfp__source_idx = {
    .name = "idx",
    .summary = "MNIST-type IDX files, gzipped or not",
    .open = open_idx,
};
