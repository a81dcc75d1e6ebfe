/* WebDataset shards: a tar, a directory of them, or a range shard-{000..003}.tar.
 *
 * One scan with libarchive finds the positions of the images, from which they are read on request; therefore a compressed tar is
 * refused. libarchive reports only the positions of headers, so the position of an image is computed from the next header. A file
 * classes.txt beside the shards names the classes. */
#include "base/rank.h"
#include "stream/sources/tar_sample.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BLOCK 512
#define SHARDS_MAX 100000

typedef struct tar_source {
    sfp__file_source files; /* of an entry, place is the offset of its bytes */
    sfp__strings shards;
    int64_t *first; /* (shards.count) first image of each shard */
    sfp__tar_labels labels;
    uint64_t further; /* number of further images of samples that already have one */
} tar_source;

static int shard_of(const tar_source *s, int64_t i)
{
    return (int)sfp__lower_bound(s->first, s->shards.count, i + 1) - 1;
}

static sfp_status add_shard(tar_source *s, const char *path, sfp_error *err)
{
    if (s->shards.count == SHARDS_MAX)
        return sfp__fail(err, SFP_ELIMIT, "%s: number of shards exceeds %d", s->files.base.path, SHARDS_MAX);
    return sfp__strings_add(&s->shards, path, err);
}

static bool begins_with(const char *path, const char *word)
{
    const char *slash = strrchr(path, '/');
    return strncmp(slash ? slash + 1 : path, word, strlen(word)) == 0;
}

/* Keeps the shards of one part: if some are named train-*, the test part is val-* or test-*. */
static sfp_status keep_part(tar_source *s, bool test, sfp_error *err)
{
    bool parts = false;
    int kept = 0, others = 0;
    for (int i = 0; i < s->shards.count; i++)
        parts |= begins_with(s->shards.s[i], "train");
    if (!parts)
        return SFP_OK;
    s->files.base.test_part = test;
    for (int i = 0; i < s->shards.count; i++) {
        char *shard = s->shards.s[i];
        bool train = begins_with(shard, "train"), tests = begins_with(shard, "val") || begins_with(shard, "test");
        others += !train && !tests;
        if (test ? tests : train)
            s->shards.s[kept++] = shard;
        else
            sfp__free(shard);
    }
    s->shards.count = kept;
    if (others)
        TRY(sfp__source_warn(&s->files.base, err, "excluded: %d tar files that are named neither train, val nor test", others));
    return kept ? SFP_OK
                : sfp__fail(err, SFP_ENOTFOUND, "%s: directory has train*.tar but no val*.tar or test*.tar", s->files.base.path);
}

static bool is_compressed(const char *name)
{
    static const char *const endings[] = {".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (n > strlen(endings[i]) && strcasecmp(name + n - strlen(endings[i]), endings[i]) == 0)
            return true;
    return false;
}

static sfp_status list_directory(tar_source *s, const char *path, bool test, sfp_error *err)
{
    OWNED_BY(sfp__strings_done) sfp__strings names = {0};
    int compressed = 0;
    TRY(sfp__directory_names(path, &names, err));
    for (int i = 0; i < names.count; i++) {
        const char *name = names.s[i], *dot = strrchr(name, '.');
        OWNED char *shard = NULL;
        compressed += *name != '.' && is_compressed(name);
        if (*name == '.' || !dot || strcasecmp(dot, ".tar") != 0)
            continue;
        TRY(sfp__path_make(path, name, &shard, err));
        TRY(add_shard(s, shard, err));
    }
    if (compressed)
        TRY(sfp__source_warn(&s->files.base, err, "excluded: %d compressed tar files, expected plain ones", compressed));
    if (s->shards.count == 0)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: directory has no *.tar", path);
    return keep_part(s, test, err);
}

/* Adds the shards of a range such as shard-{008..012}.tar; the width of the first number is kept. */
static sfp_status list_range(tar_source *s, const char *path, const char *open, sfp_error *err)
{
    const char *close = strchr(open, '}');
    unsigned long from = 0, to = 0;
    int width = (int)strspn(open + 1, "0123456789"), length = 0;
    if (!close || width == 0 || width > 9 || sscanf(open, "{%9lu..%9lu}%n", &from, &to, &length) != 2 ||
        open + length != close + 1 || from > to || to - from >= SHARDS_MAX)
        return sfp__fail(err, SFP_EINVAL, "%s: not a range, expected {FIRST..LAST} such as shard-{000..003}.tar", path);
    for (unsigned long k = from; k <= to; k++) {
        OWNED char *shard = NULL;
        TRY(sfp__text_new(&shard, err, "%.*s%0*lu%s", (int)(open - path), path, width, k, close + 1));
        TRY(add_shard(s, shard, err));
    }
    return SFP_OK;
}

static sfp_status list_shards(tar_source *s, const char *path, bool test, sfp_error *err)
{
    const char *open = strchr(path, '{');
    bool directory = false, found = false;
    TRY(sfp__path_is_dir(path, &directory, err));
    if (directory)
        return list_directory(s, path, test, err);
    TRY(sfp__path_exists(path, &found, err));
    if (open && !found)
        return list_range(s, path, open, err);
    return add_shard(s, path, err);
}

/* ----------------------------------------------------------------- indexing */

static sfp_status end_sample(tar_source *s, const char *file, sfp__tar_sample *now, sfp_error *err)
{
    sfp__entry e = {.record = sfp__record_none(), .place = (uint64_t)now->offset, .size = (uint64_t)now->size};
    char text[SFP__NAME_MAX];
    sfp_status status = SFP_OK;
    if (now->has_image) {
        status = sfp__tar_class_of(&s->labels, now->label, &e.record.label, err);
        if (status == SFP_OK)
            status = sfp__entries_add(&s->files.entries, e, now->name, strlen(now->name), err);
        if (status != SFP_OK)
            status = sfp__fail_prefix(err, status, "%s: %s", file, sfp__printable(now->name, text, sizeof text));
    } else if (now->key[0]) {
        s->files.base.skipped++; /* a label without an image */
    }
    sfp__tar_sample_clear(now);
    return status;
}

/* Checks that nothing follows the end mark: another archive there would be ignored silently. */
static sfp_status check_rest(int fd, const char *file, int64_t at, sfp_error *err)
{
    uint8_t block[16 * BLOCK];
    int64_t n;
    for (; (n = sfp__fd_read_at(fd, block, sizeof block, at)) > 0; at += n)
        for (int64_t i = 0; i < n; i++)
            if (block[i])
                return sfp__fail(err, SFP_EFORMAT,
                                 "%s: archive continues at byte %lld, after its end mark, expected one archive; use a directory "
                                 "of tar files, or "
                                 "'cat' and stdin:",
                                 file, (long long)(at + i));
    return n < 0 ? sfp__fail_errno(err, SFP_EIO, "%s: cannot read", file) : SFP_OK;
}

/* A shard during its scan. */
typedef struct scan {
    tar_source *s;
    const char *file;
    int fd;
    int64_t size;
    struct archive *a;
    sfp__tar_sample *now;
    bool unplaced; /* the previous entry was the image of `now`, which ends where the next header begins */
} scan;

static void close_scan(scan *c)
{
    if (c->a)
        (void)archive_read_free(c->a);
    sfp__fd_close(&c->fd);
}

/* Reads the next header; *e is NULL after the last one. Reports errors of the archive. */
static sfp_status next_header(scan *c, struct archive_entry **e, sfp_error *err)
{
    int code = archive_read_next_header(c->a, e);
    int64_t here = archive_read_header_position(c->a);
    if (code != ARCHIVE_OK && code != ARCHIVE_WARN && code != ARCHIVE_EOF)
        return sfp__tar_fail(c->a, c->file, err);
    sfp__tar_sample *now = c->now;
    char text[SFP__NAME_MAX];
    if (c->unplaced) /* the bytes of the image end where this header begins, padded to whole blocks */
        now->offset = here - (now->size + BLOCK - 1) / BLOCK * BLOCK;
    if (c->unplaced && now->offset + now->size > c->size)
        return sfp__fail(err, SFP_EFORMAT, "%s: archive ends at byte %lld inside %s, expected %lld bytes from byte %lld", c->file,
                         (long long)c->size, sfp__printable(now->name, text, sizeof text), (long long)now->size,
                         (long long)now->offset);
    c->unplaced = false;
    if (archive_filter_code(c->a, 0) != ARCHIVE_FILTER_NONE)
        return sfp__fail(err, SFP_EUNSUPPORTED,
                         "%s: archive is compressed (%s), expected a plain tar; unpack it, or use stdin:", c->file,
                         archive_filter_name(c->a, 0));
    if (code != ARCHIVE_EOF)
        return SFP_OK;
    *e = NULL;
    if (here + BLOCK > c->size)
        return sfp__fail(err, SFP_EFORMAT,
                         "%s: archive ends at byte %lld without an end mark, expected blocks of zeros; it is incomplete", c->file,
                         (long long)c->size);
    return check_rest(c->fd, c->file, here, err);
}

/* Adds an image to the sample `now`; n bytes of its name are the key. KEY.jpg has priority over KEY.depth.png, in any order. */
static void add_image(scan *c, const char *name, size_t n, int64_t size)
{
    sfp__tar_sample *now = c->now;
    bool plain = !strchr(name + n + 1, '.');
    c->s->further += now->has_image;
    if (now->has_image && (now->plain || !plain))
        return;
    now->has_image = c->unplaced = true;
    now->plain = plain;
    now->size = size;
    memcpy(now->name, name, strlen(name) + 1);
}

static sfp_status scan_entries(scan *c, sfp_error *err)
{
    for (struct archive_entry *e;;) {
        TRY(next_header(c, &e, err));
        if (!e)
            return end_sample(c->s, c->file, c->now, err);
        const char *name = sfp__tar_entry_name(e);
        if (!name)
            continue;
        size_t n = sfp__tar_key_length(name);
        if (strlen(c->now->key) != n || memcmp(c->now->key, name, n) != 0) {
            TRY(end_sample(c->s, c->file, c->now, err));
            memcpy(c->now->key, name, n);
            c->now->key[n] = '\0';
        }
        int64_t size = archive_entry_size(e);
        if (!sfp__image_name(name)) {
            TRY(sfp__tar_read_label(c->a, c->file, name, size, c->now, err));
        } else {
            TRY(sfp__tar_check_image(c->file, name, size, err));
            add_image(c, name, n, size);
        }
    }
}

static sfp_status scan_shard(tar_source *s, const char *file, sfp__tar_sample *now, sfp_error *err)
{
    OWNED_BY(close_scan) scan c = {.s = s, .file = file, .now = now, .fd = -1};
    size_t size = 0;
    TRY(sfp__fd_open(file, &c.fd, &size, err));
    if (size == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: file is empty", file);
    c.size = (int64_t)size;
    TRY(sfp__check_memory((c.a = sfp__tar_new_archive()), err));
    if (archive_read_open_fd(c.a, c.fd, SFP__TAR_READ_BYTES) != ARCHIVE_OK)
        return sfp__tar_fail(c.a, file, err);
    return scan_entries(&c, err);
}

static sfp_status scan_shards(tar_source *s, sfp_error *err)
{
    OWNED sfp__tar_sample *now = NULL;
    TRY(sfp__alloc(&now, 1, sizeof *now, err));
    TRY(sfp__alloc(&s->first, (size_t)s->shards.count, sizeof *s->first, err));
    for (int i = 0; i < s->shards.count; i++) {
        s->first[i] = s->files.entries.count;
        sfp__tar_sample_clear(now);
        TRY(scan_shard(s, s->shards.s[i], now, err));
    }
    sfp_source *base = &s->files.base;
    if (s->files.entries.count == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: archive has no images, expected KEY.jpg and KEY.cls", base->path);
    if (base->skipped)
        TRY(sfp__source_warn(base, err, "excluded: %llu samples without an image", (unsigned long long)base->skipped));
    if (s->further)
        TRY(sfp__source_warn(base, err, "excluded: %llu further images of a sample (same name up to the first '.')",
                             (unsigned long long)s->further));
    return SFP_OK;
}

/* ------------------------------------------------------------------- source */

static const char *display_tar(const sfp_source *base, int64_t i, char *buf, size_t size)
{
    const tar_source *s = (const tar_source *)base;
    char name[SFP__NAME_MAX];
    (void)sfp__file_source_name(base, i, name, sizeof name);
    (void)snprintf(buf, size, "%s: %s", s->shards.s[shard_of(s, i)], name);
    return buf;
}

static sfp_status load_tar(const sfp_source *base, int64_t i, sfp__raw_image *out, sfp_error *err)
{
    const tar_source *s = (const tar_source *)base;
    char where[512];
    const char *file = s->shards.s[shard_of(s, i)];
    const sfp__entry *e = &s->files.entries.at[i];
    (void)display_tar(base, i, where, sizeof where);
    if (e->size == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: image is empty", where);
    OWNED uint8_t *bytes = NULL;
    TRY(sfp__alloc(&bytes, e->size, 1, err));
    OWNED_BY(sfp__fd_close) int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot open", file);
    int64_t got = sfp__fd_read_at(fd, bytes, e->size, (int64_t)e->place);
    if (got < 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", where);
    if (got < (int64_t)e->size)
        return sfp__fail(err, SFP_EIO, "%s: file ends inside the image", where);
    *out = (sfp__raw_image){.kind = SFP__RAW_IMAGE_ENCODED, .size = e->size, .bytes = TAKE(bytes)};
    return SFP_OK;
}

static void close_tar(sfp_source *base)
{
    tar_source *s = (tar_source *)base;
    sfp__strings_done(&s->shards);
    sfp__free(s->first);
    sfp__tar_labels_done(&s->labels);
    sfp__file_source_close(base);
}

static const sfp__source_ops tar_ops = {
    .record = sfp__file_source_record,
    .load = load_tar,
    .name = sfp__file_source_name,
    .display_name = display_tar,
    .close = close_tar,
};

static sfp_status open_tar(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    OWNED_PTR(sfp__file_source_free) sfp__file_source *files = NULL;
    OWNED char *dir = NULL;
    sfp__names none = {0};
    TRY(sfp__path_directory(path, &dir, err));
    TRY(sfp__file_source_create(sizeof(tar_source), &sfp__source_tar, &tar_ops, path, dir, &files, err));
    tar_source *s = (tar_source *)files;
    TRY(sfp__path_make(dir, "classes.txt", &s->labels.path, err));
    TRY(sfp__tar_labels_read(&s->labels, false, err));
    TRY(list_shards(s, path, opt->test, err));
    TRY(scan_shards(s, err));
    if (!s->labels.listed)
        TRY(sfp__entries_sort_names(&files->entries, &s->labels.names, &none, err));
    files->base.keeps_order = true;
    *out = sfp__file_source_finish(TAKE(files), &s->labels.names, NULL);
    return SFP_OK;
}

const sfp__source_kind sfp__source_tar = {
    .name = "tar",
    .summary = "WebDataset shards: a tar, a directory of them, a range {000..003}",
    .open = open_tar,
};
