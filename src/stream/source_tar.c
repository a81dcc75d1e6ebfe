/* WebDataset shards: a tar, a folder of them, or a range shard-{000..003}.tar.
 *
 * One scan by libarchive notes where pictures lie; they are read from there when
 * asked for, so a compressed tar is refused. Where the bytes of an entry begin
 * is found from where the next header is: libarchive tells only that. A file
 * classes.txt beside the shards names the classes. */
#include "base/mem.h"
#include "base/rank.h"
#include "io/image.h"
#include "stream/tar_sample.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK 512
#define SHARDS_MAX 100000

typedef struct tar_source {
    sfp_file_source files; /* entries: place = where the bytes begin, size */
    int shards;
    char **shard;   /* (shards) */
    int64_t *first; /* (shards) its first picture */
    size_t room;
    sfp_tar_labels labels;
    uint64_t further; /* pictures of samples that have one already */
} tar_source;

static int shard_of(const tar_source *s, int64_t i)
{
    return (int)sfp__lower_bound(s->first, s->shards, i + 1) - 1;
}

/* Takes path over. */
static sfp_status add_shard(tar_source *s, char *path, sfp_error *err)
{
    if (!path)
        return sfp__fail_nomem(err);
    if (s->shards == SHARDS_MAX) {
        sfp__free(path);
        return sfp__fail(err, SFP_ELIMIT, "%s: more than %d shards", s->files.base.path, SHARDS_MAX);
    }
    if (!sfp__grow(&s->shard, sizeof *s->shard, (size_t)s->shards, (size_t)s->shards + 1, &s->room)) {
        sfp__free(path);
        return sfp__fail_nomem(err);
    }
    s->shard[s->shards++] = path;
    return SFP_OK;
}

static int compare_paths(const void *a, const void *b)
{
    return sfp__natural_compare(*(char *const *)a, *(char *const *)b);
}

static bool begins_with(const char *path, const char *word)
{
    const char *slash = strrchr(path, '/');
    return strncmp(slash ? slash + 1 : path, word, strlen(word)) == 0;
}

/* When shards are called train-*, the others are another part: val-* or test-*. */
static sfp_status pick_part(tar_source *s, bool test, sfp_error *err)
{
    bool parts = false;
    int kept = 0, others = 0;
    for (int i = 0; i < s->shards; i++)
        parts |= begins_with(s->shard[i], "train");
    if (!parts)
        return SFP_OK;
    s->files.base.test_part = test;
    for (int i = 0; i < s->shards; i++) {
        if (test ? begins_with(s->shard[i], "val") || begins_with(s->shard[i], "test") : begins_with(s->shard[i], "train"))
            s->shard[kept++] = s->shard[i];
        else {
            others += !begins_with(s->shard[i], "train") && !begins_with(s->shard[i], "val") && !begins_with(s->shard[i], "test");
            sfp__free(s->shard[i]);
        }
    }
    s->shards = kept;
    sfp_status status =
        others ? sfp__source_note(&s->files.base, err, "left out: %d tar files called neither train, val nor test", others)
               : SFP_OK;
    if (status != SFP_OK)
        return status;
    return kept ? SFP_OK : sfp__fail(err, SFP_ENOTFOUND, "%s: has train*.tar but no val*.tar or test*.tar", s->files.base.path);
}

static bool is_packed(const char *name)
{
    static const char *const endings[] = {".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (n > strlen(endings[i]) && strcasecmp(name + n - strlen(endings[i]), endings[i]) == 0)
            return true;
    return false;
}

static sfp_status list_folder(tar_source *s, const char *path, bool test, sfp_error *err)
{
    DIR *dir = opendir(path);
    if (!dir)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot open the folder", path);
    sfp_status status = SFP_OK;
    int packed = 0;
    for (const struct dirent *e; status == SFP_OK && (e = readdir(dir));) {
        const char *dot = strrchr(e->d_name, '.');
        if (e->d_name[0] != '.' && dot && strcasecmp(dot, ".tar") == 0)
            status = add_shard(s, sfp__path_join(path, e->d_name), err);
        else
            packed += e->d_name[0] != '.' && is_packed(e->d_name);
    }
    (void)closedir(dir);
    if (status == SFP_OK && packed)
        status = sfp__source_note(&s->files.base, err, "left out: %d packed tar files, expected plain ones", packed);
    if (status == SFP_OK && s->shards == 0)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: has no *.tar", path);
    if (status != SFP_OK)
        return status;
    qsort(s->shard, (size_t)s->shards, sizeof *s->shard, compare_paths);
    return pick_part(s, test, err);
}

/* shard-{008..012}.tar; the width of the first number is kept. */
static sfp_status list_range(tar_source *s, const char *path, const char *open, sfp_error *err)
{
    const char *close = strchr(open, '}');
    unsigned long from = 0, to = 0;
    int width = (int)strspn(open + 1, "0123456789"), length = 0;
    size_t room = strlen(path) + 32;
    if (!close || width == 0 || width > 9 || sscanf(open, "{%9lu..%9lu}%n", &from, &to, &length) != 2 ||
        open + length != close + 1 || from > to || to - from >= SHARDS_MAX)
        return sfp__fail(err, SFP_EINVAL, "%s: is not a range, expected {FIRST..LAST}, e.g. shard-{000..003}.tar", path);
    sfp_status status = SFP_OK;
    for (unsigned long k = from; k <= to && status == SFP_OK; k++) {
        char *shard = sfp__malloc(room);
        if (shard)
            (void)snprintf(shard, room, "%.*s%0*lu%s", (int)(open - path), path, width, k, close + 1);
        status = add_shard(s, shard, err);
    }
    return status;
}

static sfp_status list_shards(tar_source *s, const char *path, bool test, sfp_error *err)
{
    const char *open = strchr(path, '{');
    if (sfp__path_is_dir(path))
        return list_folder(s, path, test, err);
    if (open && access(path, F_OK) != 0)
        return list_range(s, path, open, err);
    return add_shard(s, sfp__strdup(path), err);
}

/* ----------------------------------------------------------------- indexing */

static sfp_status end_sample(tar_source *s, const char *file, sfp_tar_sample *now, sfp_error *err)
{
    sfp_entry e = {.record = sfp__record_none(), .place = (uint64_t)now->offset, .size = (uint64_t)now->size};
    char text[SFP_NAME_MAX];
    sfp_status status = SFP_OK;
    if (now->has_picture) {
        status = sfp__tar_class_of(&s->labels, now->label, &e.record.label, err);
        if (status == SFP_OK)
            status = sfp__entries_add(&s->files.entries, e, now->name, strlen(now->name), err);
        if (status != SFP_OK)
            status = sfp__fail_prefix(err, status, "%s: %s", file, sfp__printable(now->name, text, sizeof text));
    } else if (now->key[0]) {
        s->files.base.skipped++; /* a label without a picture */
    }
    sfp__tar_sample_clear(now);
    return status;
}

/* The picture of the entry before this place: its bytes end where the next header begins, on a whole block. */
static sfp_status place_picture(const char *file, sfp_tar_sample *now, int64_t next_header, int64_t file_size, sfp_error *err)
{
    char text[SFP_NAME_MAX];
    now->offset = next_header - (now->size + BLOCK - 1) / BLOCK * BLOCK;
    if (now->offset + now->size > file_size)
        return sfp__fail(err, SFP_EFORMAT, "%s: ends at byte %lld inside %s, expected %lld bytes from byte %lld", file,
                         (long long)file_size, sfp__printable(now->name, text, sizeof text), (long long)now->size,
                         (long long)now->offset);
    return SFP_OK;
}

/* Behind the end mark there is nothing: another archive there would be passed over without a word. */
static sfp_status check_rest(int fd, const char *file, int64_t at, sfp_error *err)
{
    uint8_t block[16 * BLOCK];
    ssize_t n;
    for (; (n = pread(fd, block, sizeof block, (off_t)at)) > 0; at += n)
        for (ssize_t i = 0; i < n; i++)
            if (block[i])
                return sfp__fail(
                    err, SFP_EFORMAT,
                    "%s: goes on at byte %lld, behind its end mark, expected one archive: give several as files of a folder, "
                    "or by 'cat' to stdin:",
                    file, (long long)(at + i));
    return n < 0 ? sfp__fail_errno(err, SFP_EIO, "%s: cannot read", file) : SFP_OK;
}

static sfp_status scan_entries(tar_source *s, struct archive *a, int fd, const char *file, int64_t file_size, sfp_tar_sample *now,
                               sfp_error *err)
{
    bool unplaced = false; /* the entry before was this sample's picture */
    for (;;) {
        struct archive_entry *e;
        int code = archive_read_next_header(a, &e);
        int64_t here = archive_read_header_position(a);
        sfp_status status = SFP_OK;
        bool broken = code != ARCHIVE_OK && code != ARCHIVE_WARN && code != ARCHIVE_EOF;
        if (unplaced && !broken)
            status = place_picture(file, now, here, file_size, err);
        unplaced = false;
        if (status == SFP_OK && !broken && archive_filter_code(a, 0) != ARCHIVE_FILTER_NONE)
            status =
                sfp__fail(err, SFP_EUNSUPPORTED, "%s: is compressed (%s), expected a plain tar: unpack it, or use stdin:", file,
                          archive_filter_name(a, 0));
        if (status == SFP_OK && code == ARCHIVE_EOF) {
            if (here + BLOCK > file_size)
                return sfp__fail(err, SFP_EFORMAT,
                                 "%s: ends at byte %lld without an end mark, expected blocks of zeros: it is cut", file,
                                 (long long)file_size);
            status = check_rest(fd, file, here, err);
            return status == SFP_OK ? end_sample(s, file, now, err) : status;
        }
        if (status == SFP_OK && broken)
            status = sfp__tar_fail(a, file, err);
        const char *name = status == SFP_OK ? sfp__tar_entry_name(e) : NULL;
        if (status != SFP_OK)
            return status;
        if (!name)
            continue;
        size_t n = sfp__tar_key_length(name);
        int64_t size = archive_entry_size(e);
        if (strlen(now->key) != n || memcmp(now->key, name, n) != 0) {
            status = end_sample(s, file, now, err);
            memcpy(now->key, name, n);
            now->key[n] = '\0';
        }
        if (status == SFP_OK && !sfp__image_name(name))
            status = sfp__tar_read_label(a, file, name, size, now, err);
        else if (status == SFP_OK && (status = sfp__tar_check_picture(file, name, size, err)) == SFP_OK) {
            bool plain = !strchr(name + n + 1, '.'); /* KEY.jpg goes before KEY.depth.png, wherever it stands */
            s->further += now->has_picture;
            if (now->has_picture && (now->plain || !plain))
                continue;
            now->has_picture = unplaced = true;
            now->plain = plain;
            now->size = size;
            memcpy(now->name, name, strlen(name) + 1);
        }
        if (status != SFP_OK)
            return status;
    }
}

static sfp_status scan_shard(tar_source *s, const char *file, sfp_tar_sample *now, sfp_error *err)
{
    struct stat st;
    struct archive *a = NULL;
    int fd = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    sfp_status status = SFP_OK;
    if (fd < 0 || fstat(fd, &st) != 0)
        status = sfp__fail_errno(err, errno == ENOENT ? SFP_ENOTFOUND : SFP_EIO, "%s: cannot open", file);
    else if (!S_ISREG(st.st_mode))
        status = sfp__fail(err, SFP_EINVAL, "%s: is not a regular file", file);
    else if (st.st_size == 0)
        status = sfp__fail(err, SFP_EFORMAT, "%s: is empty", file);
    else if (!(a = sfp__tar_new_archive()))
        status = sfp__fail_nomem(err);
    else if (archive_read_open_fd(a, fd, SFP_TAR_READ_BYTES) != ARCHIVE_OK)
        status = sfp__tar_fail(a, file, err);
    else
        status = scan_entries(s, a, fd, file, st.st_size, now, err);
    if (a)
        (void)archive_read_free(a);
    if (fd >= 0)
        (void)close(fd);
    return status;
}

static sfp_status scan_shards(tar_source *s, sfp_error *err)
{
    sfp_tar_sample *now = sfp__calloc(1, sizeof *now);
    s->first = sfp__calloc((size_t)s->shards, sizeof *s->first);
    sfp_status status = now && s->first ? SFP_OK : sfp__fail_nomem(err);
    for (int i = 0; i < s->shards && status == SFP_OK; i++) {
        s->first[i] = s->files.entries.count;
        sfp__tar_sample_clear(now);
        status = scan_shard(s, s->shard[i], now, err);
    }
    sfp__free(now);
    if (status == SFP_OK && s->files.entries.count == 0)
        status = sfp__fail(err, SFP_EFORMAT, "%s: has no pictures, expected KEY.jpg and KEY.cls", s->files.base.path);
    if (status == SFP_OK && s->files.base.skipped)
        status = sfp__source_note(&s->files.base, err, "left out: %llu samples without a picture",
                                  (unsigned long long)s->files.base.skipped);
    if (status == SFP_OK && s->further)
        status =
            sfp__source_note(&s->files.base, err, "left out: %llu further pictures of a sample (names alike up to the first '.')",
                             (unsigned long long)s->further);
    return status;
}

/* ------------------------------------------------------------------- source */

static const char *where_tar(const sfp_source *base, int64_t i, char *buf, size_t size)
{
    const tar_source *s = (const tar_source *)base;
    char name[SFP_NAME_MAX];
    (void)sfp__file_source_name(base, i, name, sizeof name);
    (void)snprintf(buf, size, "%s: %s", s->shard[shard_of(s, i)], name);
    return buf;
}

static sfp_status load_tar(const sfp_source *base, int64_t i, sfp_picture *out, sfp_error *err)
{
    const tar_source *s = (const tar_source *)base;
    sfp_status status = sfp__source_check_index(base, i, err);
    if (status != SFP_OK)
        return status;
    char where[512];
    const char *file = s->shard[shard_of(s, i)];
    const sfp_entry *e = &s->files.entries.at[i];
    (void)where_tar(base, i, where, sizeof where);
    if (e->size == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: is empty", where);
    sfp_picture p = {.kind = SFP_PICTURE_ENCODED, .size = e->size, .bytes = sfp__malloc(e->size)};
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (!p.bytes)
        status = sfp__fail_nomem(err);
    else if (fd < 0)
        status = sfp__fail_errno(err, SFP_EIO, "%s: cannot open", file);
    for (size_t done = 0; done < p.size && status == SFP_OK;) {
        ssize_t n = pread(fd, p.bytes + done, p.size - done, (off_t)(e->place + done));
        if (n < 0 && errno != EINTR)
            status = sfp__fail_errno(err, SFP_EIO, "%s: cannot read", where);
        else if (n == 0)
            status = sfp__fail(err, SFP_EIO, "%s: the file ends inside it", where);
        else if (n > 0)
            done += (size_t)n;
    }
    if (fd >= 0)
        (void)close(fd);
    if (status == SFP_OK)
        *out = p;
    else
        sfp__free(p.bytes);
    return status;
}

static void close_tar(sfp_source *base)
{
    tar_source *s = (tar_source *)base;
    for (int i = 0; i < s->shards; i++)
        sfp__free(s->shard[i]);
    sfp__free(s->shard);
    sfp__free(s->first);
    sfp__tar_labels_done(&s->labels);
    sfp__file_source_close(base);
}

static sfp_status open_tar(const char *path, const sfp_source_options *opt, sfp_source **out, sfp_error *err)
{
    sfp_file_source *files = NULL;
    sfp_names none = {0};
    int32_t *new_of = NULL;
    char *dir = sfp__path_is_dir(path) ? sfp__strdup(path) : sfp__path_dir(path),
         *list = dir ? sfp__path_join(dir, "classes.txt") : NULL;
    sfp_status status =
        list ? sfp__file_source_create(sizeof(tar_source), &sfp__source_tar, path, dir, &files, err) : sfp__fail_nomem(err);
    sfp__free(dir);
    if (status != SFP_OK) {
        sfp__free(list);
        return status;
    }
    tar_source *s = (tar_source *)files;
    s->files.base.load = load_tar;
    s->files.base.where = where_tar;
    s->files.base.close = close_tar;
    s->files.base.keeps_order = true;
    status = sfp__tar_labels_read(&s->labels, list, false, err);
    if (status == SFP_OK)
        status = list_shards(s, path, opt->test, err);
    if (status == SFP_OK)
        status = scan_shards(s, err);
    if (status == SFP_OK && !s->labels.listed && (status = sfp__names_sort(&s->labels.names, &new_of, err)) == SFP_OK)
        sfp__entries_relabel(&s->files.entries, new_of);
    sfp__free(new_of);
    if (status != SFP_OK) {
        close_tar(&s->files.base);
        return status;
    }
    sfp__file_source_finish(files, &s->labels.names, &none);
    *out = &s->files.base;
    return SFP_OK;
}

const sfp_source_kind sfp__source_tar = {
    .name = "tar",
    .summary = "WebDataset shards: a tar, a folder of them, a range {000..003}",
    .open = open_tar,
};
