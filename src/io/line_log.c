/* The files of a line log.
 *
 * Every line begins with {"KEY":N, and a resumed run needs only this to find the place from which lines are written again. Files
 * that were rotated after the checkpoint are renamed back first, so that a run that was killed and resumed leaves the same files
 * as an uninterrupted one.
 *
 * A file always ends with a complete line: the bytes of a write that failed part-way are removed.
 *
 * Other programs may rename, remove or truncate the file at any time, as logrotate does. Lines are therefore appended to the file that
 * has the name of the log when they are written. */
#include "io/line_log.h"

#include "base/mem.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PENDING_MAX ((size_t)256 << 10) /* maximum bytes of collected lines; more are flushed */

struct sfp__line_log {
    void *paths;
    char *path, *old, *older; /* path: of the log; old, older: memory for two names PATH.N */
    const char *key;
    int fd;
    int keep;
    size_t size, max_bytes; /* bytes in the file; their maximum */
    sfp__text pending;      /* complete lines that are not written yet */
    sfp__text line;
    bool any;      /* a line remained after opening */
    uint64_t last; /* number of the last remaining line */
};

static const char *old_name(const sfp__line_log *e, int i, char *to)
{
    if (i == 0)
        return e->path;
    (void)snprintf(to, strlen(e->path) + 16, "%s.%d", e->path, i);
    return to;
}

static sfp_status open_file(const char *path, int flags, int *out, sfp_error *err)
{
    struct stat st;
    OWNED_BY(sfp__fd_close) int fd = (int)TEMP_FAILURE_RETRY(open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666));
    if (fd < 0 && errno == ELOOP)
        return sfp__fail(err, SFP_EINVAL, "%s: symbolic link, expected a regular file", path);
    if (fd < 0)
        return sfp__fail_errno(err, errno == ENOENT || errno == ENOTDIR ? SFP_ENOTFOUND : SFP_EIO, "%s: cannot open", path);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return sfp__fail(err, SFP_EINVAL, "%s: not a regular file", path);
    *out = fd;
    fd = -1;
    return SFP_OK;
}

/* The place in a file at which lines numbered `from` or more begin, or an incomplete line, or the end of the file. */
typedef struct place {
    size_t offset, size;
    bool found;    /* a line numbered `from` or more exists */
    uint64_t last; /* number of the line that ends at offset; valid if offset > 0 */
} place;

/* The parts of a line that are checked: its first bytes and its last one. */
typedef struct line_scan {
    char head[32];
    size_t length;
    char last;
} line_scan;

static bool parse_head(const line_scan *l, const char *key, uint64_t *number)
{
    char begin[sizeof l->head];
    size_t n = l->length < sizeof l->head ? l->length : sizeof l->head;
    size_t i = (size_t)snprintf(begin, sizeof begin, "{\"%s\":", key);
    uint64_t x = 0;
    if (n <= i || memcmp(l->head, begin, i) != 0 || l->last != '}')
        return false;
    i += i < n && l->head[i] == ' ';
    size_t first = i;
    for (; i < n && l->head[i] >= '0' && l->head[i] <= '9'; i++)
        if (__builtin_mul_overflow(x, 10u, &x) || __builtin_add_overflow(x, (unsigned)(l->head[i] - '0'), &x))
            return false;
    *number = x;
    return i > first && i < n && l->head[i] == ',';
}

static sfp_status scan_file(const char *path, int fd, const char *key, uint64_t from, place *out, sfp_error *err)
{
    char block[16384];
    line_scan line = {0};
    place p = {0};
    size_t lines = 0;
    for (;;) {
        int64_t n = sfp__fd_read_at(fd, block, sizeof block, (int64_t)p.size);
        if (n < 0)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", path);
        if (n == 0)
            break;
        for (int64_t i = 0; i < n; i++) {
            p.size++;
            if (block[i] != '\n') {
                if (line.length < sizeof line.head)
                    line.head[line.length] = block[i];
                line.length++;
                line.last = block[i];
                continue;
            }
            uint64_t t;
            lines++;
            if (!parse_head(&line, key, &t))
                return sfp__fail(err, SFP_EFORMAT, "%s:%zu: not a line of a run, expected {\"%s\":N,...}", path, lines, key);
            if (t >= from) {
                p.found = true;
                *out = p;
                return SFP_OK;
            }
            line = (line_scan){0};
            p.offset = p.size;
            p.last = t;
        }
    }
    *out = p;
    return SFP_OK;
}

sfp_status sfp__line_log_check(const char *path, const char *key, sfp_error *err)
{
    OWNED_BY(sfp__fd_close) int fd = -1;
    char begin[32], head[sizeof begin] = {0};
    int n = snprintf(begin, sizeof begin, "{\"%s\":", key);
    TRY(open_file(path, O_RDONLY, &fd, err));
    int64_t got = sfp__fd_read_at(fd, head, (size_t)n, 0);
    if (got < 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", path);
    bool torn = head[0] == '\0'; /* empty, or its bytes did not reach the disk before a power failure */
    return torn || strncmp(head, begin, (size_t)got) == 0
               ? SFP_OK
               : sfp__fail(err, SFP_EFORMAT, "%s: not a log of a run, expected {\"%s\":N,...}", path, key);
}

/* Scans one file; a missing file counts as empty. */
static sfp_status scan_path(const char *path, const char *key, uint64_t from, place *out, sfp_error *err)
{
    OWNED_BY(sfp__fd_close) int fd = -1;
    sfp_error why;
    sfp_status status = open_file(path, O_RDONLY, &fd, &why);
    *out = (place){0};
    if (status == SFP_ENOTFOUND)
        return SFP_OK;
    return status ? sfp__fail(err, status, "%s", why.message) : scan_file(path, fd, key, from, out, err);
}

static sfp_status rename_if_exists(const char *from, const char *to, sfp_error *err)
{
    if (TEMP_FAILURE_RETRY(rename(from, to)) != 0 && errno != ENOENT)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot rename to %s", from, to);
    return SFP_OK;
}

/* Renames .1 to the file itself, .2 to .1, ... */
static sfp_status unrotate(sfp__line_log *e, sfp_error *err)
{
    for (int i = 1;; i++) {
        if (access(old_name(e, i, e->old), F_OK) != 0)
            return SFP_OK;
        TRY(rename_if_exists(e->old, old_name(e, i - 1, e->older), err));
    }
}

static sfp_status remove_all_old(sfp__line_log *e, sfp_error *err)
{
    for (int i = 1; i <= e->keep || access(old_name(e, i, e->old), F_OK) == 0; i++)
        if (unlink(old_name(e, i, e->old)) != 0 && errno != ENOENT)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot remove", e->old);
    return SFP_OK;
}

/* Scans NAME.1. One that is not a log was left by another program and counts as empty. */
static sfp_status scan_previous(sfp__line_log *e, uint64_t from, place *out, sfp_error *err)
{
    sfp_error why;
    sfp_status status = scan_path(old_name(e, 1, e->old), e->key, from, out, &why);
    if (status != SFP_EFORMAT)
        return status ? sfp__fail(err, status, "%s", why.message) : SFP_OK;
    *out = (place){0};
    return SFP_OK;
}

/* Finds the number of bytes of the file to keep, so that it and the rotated files contain only lines before `from`. Renames
 * rotated files back if needed. */
static sfp_status find_cut(sfp__line_log *e, uint64_t from, size_t *keep_bytes, sfp_error *err)
{
    place current, previous = {0};
    if (from == 0) {
        *keep_bytes = 0;
        return remove_all_old(e, err);
    }
    for (;;) {
        TRY(scan_path(e->path, e->key, from, &current, err));
        if (current.offset == 0) /* no line remains in this file, so lines of the previous file may have to be removed, too */
            TRY(scan_previous(e, from, &previous, err));
        if (current.offset > 0 || !previous.found) {
            *keep_bytes = current.offset;
            e->any = current.offset > 0 || previous.offset > 0;
            e->last = current.offset > 0 ? current.last : previous.last;
            return SFP_OK;
        }
        TRY(unrotate(e, err));
    }
}

/* A file that has other names, as in a backup of hard links, is replaced by an empty one: its old lines stay under these names. */
static sfp_status leave_other_names(sfp__line_log *e, sfp_error *err)
{
    struct stat st;
    if (fstat(e->fd, &st) != 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot stat", e->path);
    if (st.st_nlink < 2)
        return SFP_OK;
    TRY(sfp__file_write(e->path, NULL, 0, err));
    sfp__fd_close(&e->fd);
    e->fd = -1;
    return open_file(e->path, O_RDWR | O_APPEND, &e->fd, err);
}

sfp_status sfp__line_log_open(const char *dir, const char *name, const char *key, uint64_t from, size_t max_bytes, int keep,
                              sfp__line_log **out, sfp_error *err)
{
    size_t capacity = strlen(dir) + strlen(name) + 64, keep_bytes = 0;
    OWNED_PTR(sfp__line_log_close) sfp__line_log *e = NULL;
    if (keep < 0 || keep > 1000)
        return sfp__fail(err, SFP_EINVAL, "number of old logs is %d, expected 0 to 1000", keep);
    TRY(sfp__alloc(&e, 1, sizeof *e, err));
    *e = (sfp__line_log){.fd = -1, .key = key, .keep = keep, .max_bytes = max_bytes};
    const sfp__want paths[] = {{&e->path, capacity, 1}, {&e->old, capacity, 1}, {&e->older, capacity, 1}};
    TRY(sfp__block(&e->paths, SFP__LIST(paths), err));
    (void)snprintf(e->path, capacity, "%s/%s", dir, name);
    TRY(find_cut(e, from, &keep_bytes, err));
    TRY(open_file(e->path, O_RDWR | O_APPEND | O_CREAT, &e->fd, err));
    if (from == 0)
        TRY(leave_other_names(e, err));
    if (ftruncate(e->fd, (off_t)keep_bytes) != 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot truncate to %zu bytes", e->path, keep_bytes);
    e->size = keep_bytes;
    *out = TAKE(e);
    return SFP_OK;
}

/* Continues in the file that has the name of the log; creates it if there is none. flags: of open. */
static sfp_status open_again(sfp__line_log *e, int flags, sfp_error *err)
{
    int fd = -1;
    TRY(open_file(e->path, O_RDWR | O_APPEND | O_CREAT | flags, &fd, err));
    (void)TEMP_FAILURE_RETRY(
        fdatasync(e->fd)); /* later syncs do not reach this file; a failure is detected when the run is resumed */
    (void)close(e->fd);
    e->fd = fd;
    return SFP_OK;
}

static sfp_status rotate(sfp__line_log *e, sfp_error *err)
{
    for (int i = e->keep; i >= 1; i--) /* the oldest is overwritten */
        TRY(rename_if_exists(old_name(e, i - 1, e->old), old_name(e, i, e->older), err));
    TRY(open_again(e, O_TRUNC, err));
    e->size = 0;
    return SFP_OK;
}

/* Another program may have renamed, removed or truncated the file. */
static sfp_status find_file(sfp__line_log *e, sfp_error *err)
{
    struct stat ours, named;
    bool there = lstat(e->path, &named) == 0;
    if (fstat(e->fd, &ours) != 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot stat", e->path);
    if (!there || named.st_dev != ours.st_dev || named.st_ino != ours.st_ino) {
        TRY(open_again(e, 0, err));
        if (fstat(e->fd, &ours) != 0)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot stat", e->path);
    }
    e->size = (size_t)ours.st_size;
    return SFP_OK;
}

sfp_status sfp__line_log_flush(sfp__line_log *e, sfp_error *err)
{
    if (e->pending.length)
        TRY(find_file(e, err));
    for (size_t done = 0; done < e->pending.length;) {
        ssize_t n = write(e->fd, e->pending.s + done, e->pending.length - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            sfp_status status = sfp__fail_errno(err, SFP_EIO, "%s: cannot write", e->path);
            (void)!ftruncate(e->fd, (off_t)e->size); /* to the last complete line */
            return status;
        }
        done += (size_t)n;
    }
    e->size += e->pending.length;
    e->pending.length = 0;
    return SFP_OK;
}

sfp_status sfp__line_log_sync(sfp__line_log *e, sfp_error *err)
{
    TRY(sfp__line_log_flush(e, err));
    if (TEMP_FAILURE_RETRY(fdatasync(e->fd)) != 0 && errno != EINVAL &&
        errno != ENOTSUP) /* some file systems do not support it */
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot write", e->path);
    return SFP_OK;
}

bool sfp__line_log_last(const sfp__line_log *e, uint64_t *t)
{
    if (e->any)
        *t = e->last;
    return e->any;
}

sfp__text *sfp__line_log_begin(sfp__line_log *e)
{
    e->line.length = 0;
    return &e->line;
}

sfp_status sfp__line_log_add(sfp__line_log *e, sfp_error *err)
{
    if (e->line.failed) {
        sfp__text_done(&e->line);
        return sfp__fail_nomem(err);
    }
    size_t held = e->size + e->pending.length;
    if (e->max_bytes && held > 0 && held + e->line.length > e->max_bytes) {
        TRY(sfp__line_log_flush(e, err));
        TRY(rotate(e, err));
    } else if (e->pending.length > 0 && e->pending.length + e->line.length > PENDING_MAX) {
        TRY(sfp__line_log_flush(e, err));
    }
    sfp__text_putn(&e->pending, e->line.s, e->line.length);
    if (e->pending.failed) {
        e->pending.failed = false; /* the earlier lines are intact */
        return sfp__fail_nomem(err);
    }
    return SFP_OK;
}

void sfp__line_log_close(sfp__line_log *e)
{
    if (!e)
        return;
    if (e->fd >= 0) {
        (void)sfp__line_log_flush(e, NULL);
        (void)close(e->fd);
    }
    sfp__text_done(&e->pending);
    sfp__text_done(&e->line);
    sfp__free(e->paths);
    sfp__free(e);
}
