/* Reads labels.csv of a watched directory (dir.h). */
#include "stream/sources/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

enum { PIECE = 65536 };

sfp_status sfp__dir_labels_init(sfp__dir_labels *l, const char *dir, sfp_error *err)
{
    *l = (sfp__dir_labels){0};
    return sfp__path_make(dir, "labels.csv", &l->path, err);
}

void sfp__dir_labels_done(sfp__dir_labels *l)
{
    sfp__free(l->path);
    *l = (sfp__dir_labels){0};
}

typedef struct piece {
    const char *s;
    size_t n;
} piece;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && is_blank(*at))
        at++;
    return at;
}

static piece trimmed(const char *at, const char *end)
{
    at = skip_blanks(at, end);
    while (end > at && is_blank(end[-1]))
        end--;
    return (piece){at, (size_t)(end - at)};
}

/* Reads the quoted field at *at, removes its quotes in place, and moves *at behind it and the following blanks; false: it does
 * not end. */
static bool read_quoted(char **at, char *end, piece *out)
{
    char *text = *at + 1;
    const char *stop = sfp__csv_quoted(text, end, text, &out->n);
    if (!stop)
        return false;
    out->s = text;
    *at += skip_blanks(stop, end) - *at;
    return true;
}

/* Finds the comma between an unquoted name and its label: the first one that a quote follows, else the last. */
static char *label_comma(char *at, char *end)
{
    char *last = NULL;
    for (; (at = memchr(at, ',', (size_t)(end - at))); at++) {
        const char *label = skip_blanks(at + 1, end);
        last = at;
        if (label < end && *label == '"')
            break;
    }
    return last;
}

/* Splits NAME,LABEL and removes quotes in place. false: the line has another form. */
static bool split(char *line, char *end, piece *name, piece *label)
{
    line += skip_blanks(line, end) - line;
    bool quoted = line < end && *line == '"';
    char *comma = quoted ? line : label_comma(line, end);
    if (!comma || (quoted && (!read_quoted(&comma, end, name) || comma == end || *comma != ',')))
        return false;
    if (!quoted)
        *name = trimmed(line, comma);
    *label = trimmed(comma + 1, end);
    if (label->n == 0 || *label->s != '"')
        return !quoted || !memchr(label->s, ',', label->n);
    char *at = comma + (label->s - comma);
    return read_quoted(&at, end, label) && at == end;
}

static bool is_header(piece name, piece label)
{
    return name.n == 4 && (memcmp(name.s, "name", 4) == 0 || memcmp(name.s, "path", 4) == 0) && label.n == 5 &&
           memcmp(label.s, "label", 5) == 0;
}

/* Counts the next line as skipped. */
static void skip_line(sfp__dir_labels *l)
{
    if (l->skipped++ == 0)
        l->first_skipped = l->at.line + 1;
}

/* Reads one line. A malformed line is not an error; only missing memory is. */
static sfp_status read_line(sfp__dir_labels *l, char *line, char *end, bool first, sfp__dir_label_fn fn, void *ctx,
                            sfp_error *err)
{
    piece name, label;
    if (trimmed(line, end).n == 0)
        return SFP_OK;
    if (!split(line, end, &name, &label) || name.n == 0) {
        skip_line(l);
        return SFP_OK;
    }
    if (first && is_header(name, label))
        return SFP_OK;
    char name_text[SFP__PATH_BYTES_MAX + 1], label_text[SFP__CLASS_NAME_MAX + 1];
    bool fits = name.n <= SFP__PATH_BYTES_MAX && label.n > 0 && label.n <= SFP__CLASS_NAME_MAX && !memchr(name.s, 0, name.n) &&
                !memchr(label.s, 0, label.n);
    if (fits) {
        memcpy(name_text, name.s, name.n);
        memcpy(label_text, label.s, label.n);
        name_text[name.n] = label_text[label.n] = '\0';
        fits = sfp__utf8_valid(name_text) && sfp__utf8_valid(label_text);
    }
    if (!fits) {
        skip_line(l);
        return SFP_OK;
    }
    return fn(ctx, name_text, label_text, err);
}

/* Reads the complete lines among n bytes; *used is their length. */
static sfp_status read_lines(sfp__dir_labels *l, char *bytes, size_t n, sfp__dir_label_fn fn, void *ctx, size_t *used,
                             sfp_error *err)
{
    sfp_status status = SFP_OK;
    char *at = bytes + (l->at.offset == 0 ? sfp__text_bom_length(bytes, n) : 0), *begin = at, *stop;
    while (status == SFP_OK && (stop = memchr(at, '\n', n - (size_t)(at - bytes)))) {
        l->line_offset = l->at.offset + (uint64_t)(at - bytes);
        status = read_line(l, at, stop, l->at.offset == 0 && at == begin, fn, ctx, err);
        at = stop + 1;
        l->at.line++;
    }
    *used = at == begin ? 0 : (size_t)(at - bytes); /* a byte order mark alone is not a line yet */
    if (*used == 0 && n == PIECE) {                 /* a line that is too long */
        skip_line(l);
        l->in_long_line = true;
        *used = n;
    } else if (*used == 0 &&
               l->ended) { /* used now but not marked as read: another program may complete the line before the run resumes */
        l->line_offset = l->at.offset + (uint64_t)(at - bytes);
        status = read_line(l, at, bytes + n, l->at.offset == 0, fn, ctx, err);
    }
    return status;
}

/* Checks whether the part of the file that was read has changed. If so, the file is read again from the beginning. */
static sfp_status check_beginning(sfp__dir_labels *l, int fd, char *bytes, sfp_error *err)
{
    uLong crc = crc32(0, NULL, 0);
    uint64_t done = 0;
    while (done < l->at.offset) {
        uint64_t left = l->at.offset - done;
        int64_t n = sfp__fd_read_at(fd, bytes, left < PIECE ? (size_t)left : PIECE, (int64_t)done);
        if (n < 0)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", l->path);
        if (n == 0)
            break;
        crc = crc32(crc, (const Bytef *)bytes, (uInt)n);
        done += (uint64_t)n;
    }
    if (done < l->at.offset || (uint32_t)crc != l->at.crc) {
        l->at = (sfp__labels_position){0};
        l->again = true;
        l->in_long_line = false;
    }
    return SFP_OK;
}

sfp_status sfp__dir_labels_read(sfp__dir_labels *l, sfp__dir_label_fn fn, void *ctx, sfp_error *err)
{
    struct stat st;
    if (stat(l->path, &st) != 0)
        return sfp__dir_is_file_error(errno) ? SFP_OK : sfp__fail_errno(err, SFP_EIO, "%s: cannot read", l->path);
    if (!S_ISREG(st.st_mode))
        return SFP_OK;
    sfp__file_stamp stamp = sfp__dir_stamp(&st);
    bool same = l->device == (uint64_t)st.st_dev && l->inode == (uint64_t)st.st_ino && sfp__dir_same_stamp(&l->stamp, &stamp);
    /* A file that has just changed may change again without a new time. The beginning of a large one is not read that often. */
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    bool settled = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - stamp.changed > 100000000;
    if (!l->ended && (same || (!settled && l->at.offset > 1 << 20)))
        return SFP_OK;
    OWNED char *bytes = NULL;
    TRY(sfp__alloc(&bytes, 2 * PIECE, 1, err));
    char *copy = bytes + PIECE;
    OWNED_BY(sfp__fd_close) int fd = open(l->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return sfp__dir_is_file_error(errno) ? SFP_OK : sfp__fail_errno(err, SFP_EIO, "%s: cannot read", l->path);
    TRY(check_beginning(l, fd, bytes, err));
    for (;;) {
        size_t used = 0;
        int64_t n = sfp__fd_read_at(fd, bytes, PIECE, (int64_t)l->at.offset);
        if (n < 0)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", l->path);
        if (n == 0)
            break;
        memcpy(copy, bytes, (size_t)n); /* reading a line removes its quotes in place */
        sfp_status status = SFP_OK;
        if (l->in_long_line) { /* its beginning was counted */
            const char *stop = memchr(bytes, '\n', (size_t)n);
            l->in_long_line = !stop;
            l->at.line += stop != NULL;
            used = stop ? (size_t)(stop + 1 - bytes) : (size_t)n;
        } else {
            status = read_lines(l, bytes, (size_t)n, fn, ctx, &used, err);
        }
        TRY(status); /* the lines are read again */
        l->at.crc = (uint32_t)crc32(l->at.crc, (const Bytef *)copy, (uInt)used);
        l->at.offset += used;
        if (used == 0)
            break;
    }
    if (settled) {
        l->device = (uint64_t)st.st_dev;
        l->inode = (uint64_t)st.st_ino;
        l->stamp = stamp;
    }
    return SFP_OK;
}
