/* Reads labels.csv of a watched directory (dir.h). */
#include "stream/sources/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 65536 };

sfp_status sfp__dir_labels_init(sfp__dir_labels *l, const char *dir, sfp_error *err)
{
    *l = (sfp__dir_labels){0};
    TRY(sfp__path_make(dir, "labels.csv", &l->path, err));
    return sfp__alloc(&l->label, SFP_CLASSES_MAX, sizeof *l->label, err);
}

void sfp__dir_labels_done(sfp__dir_labels *l)
{
    sfp__free(l->path);
    sfp__free(l->label);
    sfp__names_done(&l->images);
    *l = (sfp__dir_labels){0};
}

int32_t sfp__dir_labels_find(const sfp__dir_labels *l, const char *name)
{
    int32_t i = sfp__names_find(&l->images, name, strlen(name));
    return i < 0 ? -1 : l->label[i];
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
        l->first_skipped = l->line + 1;
}

/* Reads one line. A malformed line is not an error; only missing memory is. */
static sfp_status read_line(sfp__dir_labels *l, char *line, char *end, bool first, sfp__names *classes, sfp__dir_label_fn fn,
                            void *ctx, sfp_error *err)
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
    int32_t class = -1, image = -1;
    sfp_error why;
    if (l->images.count >= SFP_CLASSES_MAX && sfp__names_find(&l->images, name.s, name.n) < 0)
        sfp__names_done(&l->images);
    sfp_status status = sfp__names_add(classes, label.s, label.n, &class, &why);
    if (status == SFP_OK)
        status = sfp__names_add(&l->images, name.s, name.n, &image, &why);
    if (status == SFP_ENOMEM)
        return sfp__fail(err, status, "%s", why.message);
    if (status != SFP_OK) {
        skip_line(l);
        return SFP_OK;
    }
    l->label[image] = class;
    return fn ? fn(ctx, l->images.name[image], class, err) : SFP_OK;
}

/* Skips the rest of a line that is too long, whose beginning was counted. Returns the number of bytes. */
static size_t skip_rest(sfp__dir_labels *l, const char *bytes, size_t n)
{
    const char *stop = memchr(bytes, '\n', n);
    l->in_long_line = !stop;
    l->line += stop != NULL;
    return stop ? (size_t)(stop + 1 - bytes) : n;
}

/* Reads the complete lines among n bytes; *used is their length. */
static sfp_status read_lines(sfp__dir_labels *l, char *bytes, size_t n, sfp__names *classes, sfp__dir_label_fn fn, void *ctx,
                             size_t *used, sfp_error *err)
{
    sfp_status status = SFP_OK;
    char *at = bytes + (l->offset == 0 ? sfp__text_bom_length(bytes, n) : 0), *begin = at, *stop;
    while (status == SFP_OK && (stop = memchr(at, '\n', n - (size_t)(at - bytes)))) {
        status = read_line(l, at, stop, l->offset == 0 && at == begin, classes, fn, ctx, err);
        at = stop + 1;
        l->line++;
    }
    *used = at == begin ? 0 : (size_t)(at - bytes); /* a byte order mark alone is not a line yet */
    if (*used == 0 && n == PIECE) {                 /* a line that is too long */
        skip_line(l);
        l->in_long_line = true;
        *used = n;
    } else if (*used == 0 && l->ended) {
        status = read_line(l, at, bytes + n, l->offset == 0, classes, fn, ctx, err);
        l->line++;
        *used = n;
    }
    return status;
}

sfp_status sfp__dir_labels_read(sfp__dir_labels *l, sfp__names *classes, sfp__dir_label_fn fn, void *ctx, sfp_error *err)
{
    struct stat st;
    if (stat(l->path, &st) != 0)
        return sfp__dir_is_file_error(errno) ? SFP_OK : sfp__fail_errno(err, SFP_EIO, "%s: cannot read", l->path);
    if (!S_ISREG(st.st_mode))
        return SFP_OK;
    if (l->device != (uint64_t)st.st_dev || l->inode != (uint64_t)st.st_ino || (uint64_t)st.st_size < l->offset) {
        l->device = (uint64_t)st.st_dev;
        l->inode = (uint64_t)st.st_ino;
        l->offset = l->line = 0;
        l->in_long_line = false;
    }
    if ((uint64_t)st.st_size == l->offset)
        return SFP_OK;
    OWNED char *bytes = NULL;
    TRY(sfp__alloc(&bytes, PIECE, 1, err));
    OWNED_BY(sfp__fd_close) int fd = open(l->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return sfp__dir_is_file_error(errno) ? SFP_OK : sfp__fail_errno(err, SFP_EIO, "%s: cannot read", l->path);
    for (;;) {
        size_t used = 0;
        int64_t n = sfp__fd_read_at(fd, bytes, PIECE, (int64_t)l->offset);
        if (n <= 0)
            return n == 0 ? SFP_OK : sfp__fail_errno(err, SFP_EIO, "%s: cannot read", l->path);
        sfp_status status = SFP_OK;
        if (l->in_long_line)
            used = skip_rest(l, bytes, (size_t)n);
        else
            status = read_lines(l, bytes, (size_t)n, classes, fn, ctx, &used, err);
        l->offset += used; /* also after a failure, so that no line is read twice */
        if (status || used == 0)
            return status;
    }
}
