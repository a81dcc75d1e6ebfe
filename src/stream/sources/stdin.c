/* WebDataset samples from standard input, as they arrive: a live source.
 *
 * The tar may be compressed (gzip, bzip2, xz, zstd), and others may follow it. A sample is delivered as soon as it has an image
 * and a label. An image whose label does not follow is delivered without one; if KEY.cls (.txt, .json) arrives later, alone, it
 * is delivered as the label of that image. Classes are those of the list in stdin:FILE, and labels are its numbers or names;
 * without a list each new label is a new class: `classes` grows with next, and class_names never moves.
 *
 * A compressed tar must be followed by data compressed in the same way, or by zeros. Anything else is an error after everything
 * before it was delivered. (After xz and zstd the library itself fails and loses the data that it unpacked last; zstd accepts no
 * zeros.)
 *
 * A sample whose image is empty or too large, or whose label is malformed, is skipped. If the archive itself is damaged, the
 * stream fails. */
#include "stream/sources/tar_sample.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define POLL_MS 100
#define END_MARK 512 /* bytes of 0; an archive ends with two such blocks, and one is accepted */

typedef struct tar_stream {
    sfp_source base;
    sfp__source_live live;
    int fd;
    struct archive *archive;
    sfp__tar_labels labels;
    sfp__tar_sample now;
    char last_key[SFP__PATH_BYTES_MAX + 1];  /* key of the last sample, ... */
    char last_name[SFP__PATH_BYTES_MAX + 1]; /* ... and name of its image */
    bool last_labelled;                      /* it had a label, so that further entries of it are skipped */
    bool opened;                             /* opened by the first next, because opening reads, and `stop` is set by then */
    bool stopped, ended;
    bool empty;                  /* the input ended before the first byte */
    int64_t bytes_read;          /* bytes that were read */
    size_t zeros;                /* number of zero bytes at their end */
    bool incomplete;             /* the input ended without an end mark */
    bool broken;                 /* data after the end could not be read */
    int64_t compressed_end;      /* end of the compressed data if something else follows it; 0: nothing does */
    struct archive_entry *entry; /* read but not processed yet */
    uint8_t buffer[SFP__TAR_READ_BYTES];
} tar_stream;

/* Read callback of libarchive, which checks `stop` while it waits. */
static la_ssize_t read_stream(struct archive *a, void *data, const void **bytes)
{
    tar_stream *s = data;
    *bytes = s->buffer;
    for (;;) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        if (s->live.stop && atomic_load(s->live.stop)) {
            s->stopped = true;
            archive_set_error(a, EINTR, "stopped");
            return -1;
        }
        int ready = poll(&p, 1, POLL_MS);
        if (ready == 0 || (ready < 0 && errno == EINTR))
            continue;
        ssize_t n = read(s->fd, s->buffer, sizeof s->buffer);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            archive_set_error(a, errno, "cannot read");
        size_t got = n > 0 ? (size_t)n : 0, last = got;
        while (last > 0 && s->buffer[last - 1] == 0)
            last--;
        s->zeros = last ? got - last : s->zeros + got;
        s->bytes_read += (int64_t)got;
        s->empty = n == 0 && s->bytes_read == 0;
        return n;
    }
}

static sfp_status fail_reading(const tar_stream *s, sfp_error *err)
{
    return s->empty ? sfp__fail(err, SFP_EFORMAT, "%s: input is empty, expected a tar", s->base.path)
                    : sfp__tar_fail(s->archive, s->base.path, err);
}

/* Finds the end of the input. libarchive stops at the end of compressed data and ignores the bytes after it; they are read
 * here. */
static void find_end(tar_stream *s)
{
    int64_t compressed_end = archive_filter_bytes(s->archive, -1);
    la_ssize_t n = 1;
    const void *bytes;
    if (archive_filter_code(s->archive, 0) == ARCHIVE_FILTER_NONE) {
        s->incomplete = s->zeros < END_MARK;
    } else {
        while (n > 0 && s->bytes_read - compressed_end <= (int64_t)s->zeros)
            n = read_stream(s->archive, s, &bytes);
        s->compressed_end = s->bytes_read - compressed_end > (int64_t)s->zeros ? compressed_end : 0;
    }
    s->ended = true;
    s->broken = n < 0;
}

static bool is_started(const sfp__tar_sample *s)
{
    return s->has_image || s->label_kind != SFP__TAR_UNLABELLED;
}

/* Reads one entry; *found if the sample now has an image and a label. */
static sfp_status stream_entry(tar_stream *s, const char *name, int64_t size, bool *found, sfp_error *err)
{
    if (!sfp__image_name(name)) {
        TRY(sfp__tar_read_label(s->archive, s->base.path, name, size, &s->now, err));
    } else if (!s->now.has_image) {
        s->now.has_image = true;
        memcpy(s->now.name, name, strlen(name) + 1);
        TRY(sfp__tar_check_image(s->base.path, name, size, err));
        if (size > 0 && !(s->now.bytes = sfp__malloc((size_t)size)))
            return sfp__fail_nomem(err);
        s->now.size = size;
        TRY(sfp__tar_read_entry(s->archive, s->base.path, name, size, s->now.bytes, err));
    }
    *found = s->now.has_image && s->now.label_kind != SFP__TAR_UNLABELLED;
    return SFP_OK;
}

/* Reads entries until a sample is complete: it has an image and a label, or one of them and another sample begins, or the stream
 * ends. */
static sfp_status read_sample(tar_stream *s, bool *found, sfp_error *err)
{
    *found = false;
    if (!s->opened) /* several shards may follow each other: cat *.tar */
        (void)archive_read_set_option(s->archive, "tar", "read_concatenated_archives", "1");
    if (!s->opened && archive_read_open(s->archive, s, NULL, read_stream, NULL) != ARCHIVE_OK)
        return fail_reading(s, err);
    s->opened = true;
    while (!*found && !s->ended) {
        if (!s->entry) {
            int code = archive_read_next_header(s->archive, &s->entry);
            if (code != ARCHIVE_OK && code != ARCHIVE_WARN && code != ARCHIVE_EOF)
                return fail_reading(s, err);
            if (code == ARCHIVE_EOF) {
                s->entry = NULL;
                find_end(s);
                break;
            }
            archive_clear_error(s->archive); /* of a warning: an error that is set later means that the archive is damaged */
        }
        const char *name = sfp__tar_entry_name(s->entry);
        size_t n = name ? sfp__tar_key_length(name) : 0;
        bool skipped = !name || (s->last_labelled && strlen(s->last_key) == n && memcmp(s->last_key, name, n) == 0);
        if (!skipped && (strlen(s->now.key) != n || memcmp(s->now.key, name, n) != 0)) {
            if (is_started(&s->now))
                break; /* the entry stays for the next sample */
            sfp__tar_sample_clear(&s->now);
            memcpy(s->now.key, name, n);
            s->now.key[n] = '\0';
        }
        sfp_status status = skipped ? SFP_OK : stream_entry(s, name, archive_entry_size(s->entry), found, err);
        s->entry = NULL;
        if (status != SFP_OK)
            return status;
    }
    *found = is_started(&s->now);
    return SFP_OK;
}

/* Ends the stream after everything was delivered. A stream that is incomplete, or continues with other data, fails now and in
 * every later call. */
static sfp_status end_stream(const tar_stream *s, bool *end, sfp_error *err)
{
    if (s->broken)
        return fail_reading(s, err);
    if (s->incomplete)
        return sfp__fail(err, SFP_EFORMAT, "%s: archive ends without an end mark, expected blocks of zeros; it is incomplete",
                         s->base.path);
    if (s->compressed_end)
        return sfp__fail(err, SFP_EFORMAT, "%s: input after byte %lld is not %s, expected more %s data, zeros or the end",
                         s->base.path, (long long)s->compressed_end, archive_filter_name(s->archive, 0),
                         archive_filter_name(s->archive, 0));
    *end = true;
    return SFP_OK;
}

static sfp_status next_stream(sfp_source *base, sfp_record *record, sfp__raw_image *out, bool *end, sfp_error *err)
{
    tar_stream *s = (tar_stream *)base;
    bool found = false;
    char text[SFP__NAME_MAX];
    s->live.lost = *end = false;
    if (s->ended && !is_started(&s->now))
        return end_stream(s, end, err);
    sfp_status status = read_sample(s, &found, err);
    if (s->stopped) {
        s->ended = true;
        sfp__tar_sample_clear(&s->now);
        *end = true;
        return SFP_OK;
    }
    if (status == SFP_OK && !found)
        return end_stream(s, end, err);
    int32_t label = -1;
    const char *name = sfp__printable(s->now.has_image ? s->now.name : s->now.key, text, sizeof text);
    if (status == SFP_OK && s->now.has_image && s->now.size == 0)
        status = sfp__fail(err, SFP_EFORMAT, "%s: %s: image is empty", base->path, name);
    if (status == SFP_OK && (status = sfp__tar_class_of(&s->labels, s->now.label, &label, err)) != SFP_OK)
        status = sfp__fail_prefix(err, status, "%s: %s", base->path, name);
    if (!s->labels.listed) /* the list never moves: see sfp__tar_stream_open */
        base->classes = s->labels.names.count;
    s->live.lost = status != SFP_OK && status != SFP_ENOMEM && s->now.has_image && archive_errno(s->archive) == 0;
    memcpy(s->last_key, s->now.key, sizeof s->last_key);
    memcpy(s->last_name, s->now.name, sizeof s->last_name);
    s->last_labelled = s->now.label_kind != SFP__TAR_UNLABELLED;
    if (status == SFP_OK) {
        *record = sfp__record_none();
        record->label = label;
        *out = (sfp__raw_image){
            .kind = SFP__RAW_IMAGE_ENCODED, .bytes = s->now.bytes, .size = (size_t)s->now.size}; /* bytes are NULL for a label */
        s->now.bytes = NULL;
    }
    sfp__tar_sample_clear(&s->now);
    return status;
}

static void close_stream(sfp_source *base)
{
    tar_stream *s = (tar_stream *)base;
    if (s->archive)
        (void)archive_read_free(s->archive);
    sfp__tar_sample_clear(&s->now);
    base->class_names = NULL; /* the list belongs to s->labels */
    base->classes = 0;
    sfp__tar_labels_done(&s->labels);
}

static const char *name_stream(const sfp_source *base, int64_t i, char *buf, size_t size)
{
    (void)i; /* a live source has no numbers: the last sample */
    return sfp__printable(((const tar_stream *)base)->last_key, buf, size);
}

static const char *display_stream(const sfp_source *base, int64_t i, char *buf, size_t size)
{
    const tar_stream *s = (const tar_stream *)base;
    char name[SFP__NAME_MAX];
    (void)i;
    (void)snprintf(buf, size, "%s: %s", base->path, sfp__printable(s->last_name, name, sizeof name));
    return buf;
}

static void origin_stream(const sfp_source *base, sfp__origin *out)
{
    *out = (sfp__origin){.name = ((const tar_stream *)base)->last_key};
}

static const sfp__source_ops stdin_ops = {
    .name = name_stream, .display_name = display_stream, .next = next_stream, .origin = origin_stream, .close = close_stream};

sfp_status sfp__tar_stream_open(int fd, const char *classes, sfp_source **out, sfp_error *err)
{
    OWNED_PTR(sfp__source_close) sfp_source *base = NULL;
    TRY(sfp__source_create(sizeof(tar_stream), &sfp__source_stdin, &stdin_ops, "stdin", &base, err));
    tar_stream *s = (tar_stream *)base;
    s->fd = fd;
    sfp__tar_sample_clear(&s->now);
    TRY(sfp__check_memory(!*classes || (s->labels.path = sfp__strdup(classes)), err));
    if (*classes)
        TRY(sfp__tar_labels_read(&s->labels, true, err));
    TRY(sfp__names_reserve(&s->labels.names, err));
    TRY(sfp__check_memory((s->archive = sfp__tar_new_archive()), err));
    base->live = &s->live;
    base->keeps_order = true;
    base->class_names = s->labels.names.name;
    base->classes = s->labels.names.count;
    *out = TAKE(base);
    return SFP_OK;
}

static sfp_status open_stdin(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    (void)opt;
    return sfp__tar_stream_open(STDIN_FILENO, strcmp(path, "-") == 0 ? "" : path, out, err);
}

const sfp__source_kind sfp__source_stdin = {
    .name = "stdin",
    .summary = "WebDataset tar from standard input; stdin:classes.txt names the classes",
    .live = true,
    .open = open_stdin,
};
