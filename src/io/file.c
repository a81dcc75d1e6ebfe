/* Reading and replacing files.
 *
 * Paths are supplied by users: a directory, a FIFO or a device must cause an error and must not block. So every path is opened
 * with O_NONBLOCK and examined first. A writer does not touch the old file until the new one is on the disk. */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PENDING_MAX = 64 << 10 }; /* bytes of small pieces that a writer collects */

/* the maximum that pread() and write() transfer in one call on Linux */
#define IO_CHUNK ((size_t)1 << 30)

sfp_status sfp__path_print(char *to, size_t size, sfp_error *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(to, size, fmt, ap);
    va_end(ap);
    return n >= 0 && (size_t)n < size ? SFP_OK : sfp__fail(err, SFP_ELIMIT, "%s: the path is too long", to);
}

static sfp_status check_regular(const char *path, const struct stat *st, sfp_error *err)
{
    if (S_ISDIR(st->st_mode))
        return sfp__fail(err, SFP_EINVAL, "%s: path is a directory, expected a file", path);
    if (!S_ISREG(st->st_mode))
        return sfp__fail(err, SFP_EINVAL, "%s: not a regular file", path);
    return SFP_OK;
}

/* Returns SFP_EIO for errors that may be temporary. A missing file, or one without read permission, is not: another attempt fails, too. */
static sfp_status status_of_open(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return SFP_ENOTFOUND;
    case EACCES:
    case EPERM:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO: /* a socket */
        return SFP_EINVAL;
    default:
        return SFP_EIO;
    }
}

sfp_status sfp__fd_open(const char *path, int *out, size_t *size, sfp_error *err)
{
    struct stat st;
    /* O_NONBLOCK: opening a FIFO without a writer must not block */
    OWNED_BY(sfp__fd_close) int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return sfp__fail_errno(err, status_of_open(errno), "%s: cannot open", path);
    if (fstat(fd, &st) != 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot stat", path);
    TRY(check_regular(path, &st, err));
    *size = (size_t)st.st_size;
    *out = fd;
    fd = -1;
    return SFP_OK;
}

int64_t sfp__fd_read_at(int fd, void *bytes, size_t n, int64_t offset)
{
    size_t done = 0;
    for (ssize_t got = 1; done < n && got != 0; done += got > 0 ? (size_t)got : 0) {
        got = pread(fd, (uint8_t *)bytes + done, n - done < IO_CHUNK ? n - done : IO_CHUNK, (off_t)(offset + (int64_t)done));
        if (got < 0 && errno != EINTR)
            return -1;
    }
    return (int64_t)done;
}

/* Opens a regular file that is not empty. */
static sfp_status open_nonempty(const char *path, int *out, size_t *size, sfp_error *err)
{
    OWNED_BY(sfp__fd_close) int fd = -1;
    TRY(sfp__fd_open(path, &fd, size, err));
    if (*size == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: file is empty", path);
    *out = fd;
    fd = -1;
    return SFP_OK;
}

/* Returns whether the path is a pipe passed by a shell, <(...): it has a writer, so opening it does not block. */
static bool is_shell_pipe(const char *path)
{
    struct stat st;
    bool named = strncmp(path, "/dev/fd/", 8) == 0 || strncmp(path, "/proc/self/fd/", 14) == 0 || strcmp(path, "/dev/stdin") == 0;
    return named && stat(path, &st) == 0 && S_ISFIFO(st.st_mode);
}

sfp_status sfp__file_open(const char *path, FILE **out, sfp_error *err)
{
    OWNED_BY(sfp__fd_close) int fd = -1;
    size_t size = 0;
    if (!is_shell_pipe(path))
        TRY(sfp__fd_open(path, &fd, &size, err));
    else if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot open", path);
    FILE *f = fdopen(fd, "r");
    if (!f)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot open", path);
    fd = -1; /* now owned by the stream */
    *out = f;
    return SFP_OK;
}

sfp_status sfp__map_open(const char *path, sfp__map *out, sfp_error *err)
{
    OWNED_BY(sfp__fd_close) int fd = -1; /* the mapping remains after close */
    size_t size = 0;
    TRY(open_nonempty(path, &fd, &size, err));
    void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot map %zu bytes", path, size);
    *out = (sfp__map){p, size};
    return SFP_OK;
}

/* Reads n bytes, or fails. */
static sfp_status read_whole(const char *path, int fd, void *bytes, size_t n, sfp_error *err)
{
    int64_t got = sfp__fd_read_at(fd, bytes, n, 0);
    if (got < 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", path);
    if ((size_t)got < n)
        return sfp__fail(err, SFP_EIO, "%s: file ends after %lld bytes, expected %zu", path, (long long)got, n);
    return SFP_OK;
}

sfp_status sfp__map_read(const char *path, sfp__map *out, sfp_error *err)
{
    OWNED_BY(sfp__fd_close) int fd = -1;
    OWNED_BY(sfp__map_close) sfp__map m = {0};
    size_t size = 0;
    TRY(open_nonempty(path, &fd, &size, err));
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return sfp__fail_errno(err, SFP_ENOMEM, "%s: cannot allocate %zu bytes", path, size);
    m = (sfp__map){p, size};
    (void)madvise(p, size, MADV_HUGEPAGE); /* fewer page faults */
    TRY(read_whole(path, fd, p, size, err));
    (void)mprotect(p, size, PROT_READ); /* a defect must not change the weights */
    *out = TAKE(m);
    return SFP_OK;
}

void sfp__map_close(sfp__map *m)
{
    if (m->bytes)
        (void)munmap((void *)(uintptr_t)m->bytes, m->size);
    *m = (sfp__map){0};
}

sfp_status sfp__file_read(const char *path, size_t max_bytes, uint8_t **bytes, size_t *size, sfp_error *err)
{
    OWNED_BY(sfp__fd_close) int fd = -1;
    OWNED uint8_t *block = NULL;
    size_t n = 0;
    TRY(open_nonempty(path, &fd, &n, err));
    if (n > max_bytes)
        return sfp__fail(err, SFP_ELIMIT, "%s: file has %zu bytes, expected at most %zu", path, n, max_bytes);
    block = sfp__malloc(n);
    if (!block)
        return sfp__fail(err, SFP_ENOMEM, "%s: cannot allocate %zu bytes", path, n);
    TRY(read_whole(path, fd, block, n, err));
    *bytes = TAKE(block);
    *size = n;
    return SFP_OK;
}

/* Creates a new temporary file beside PATH. If a killed process with the same PID left one, another name is used. */
static sfp_status open_tmp(const char *path, char *tmp, size_t capacity, int *out_fd, sfp_error *err)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        if (attempt == 0)
            (void)snprintf(tmp, capacity, "%s.tmp.%ld", path, (long)getpid());
        else
            (void)snprintf(tmp, capacity, "%s.tmp.%ld.%d", path, (long)getpid(), attempt);
        int fd = (int)TEMP_FAILURE_RETRY(open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
        if (fd >= 0) {
            *out_fd = fd;
            return SFP_OK;
        }
        if (errno != EEXIST)
            break;
    }
    return sfp__fail_errno(err, errno == ENOENT ? SFP_ENOTFOUND : SFP_EIO, "%s: cannot create", path);
}

sfp_status sfp__writer_open(const char *path, sfp__writer *out, sfp_error *err)
{
    /* a rename must not replace a device or a directory */
    struct stat st;
    if (stat(path, &st) == 0)
        TRY(check_regular(path, &st, err));
    OWNED char *tmp = NULL;
    uint8_t *pending;
    const sfp__want list[] = {{&tmp, strlen(path) + 40, 1}, {&pending, PENDING_MAX, 1}};
    TRY(sfp__block(&tmp, SFP__LIST(list), err));
    int fd = -1;
    TRY(open_tmp(path, tmp, list[0].count, &fd, err));
    *out = (sfp__writer){path, TAKE(tmp), fd, pending, 0};
    return SFP_OK;
}

static sfp_status write_bytes(const sfp__writer *w, const void *bytes, size_t size, sfp_error *err)
{
    const uint8_t *p = bytes;
    while (size > 0) {
        ssize_t n = write(w->fd, p, size < IO_CHUNK ? size : IO_CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot write", w->path);
        p += n;
        size -= (size_t)n;
    }
    return SFP_OK;
}

sfp_status sfp__writer_flush(sfp__writer *w, sfp_error *err)
{
    size_t size = w->pending_bytes;
    w->pending_bytes = 0;
    return write_bytes(w, w->pending, size, err);
}

sfp_status sfp__writer_put(sfp__writer *w, const void *bytes, size_t size, sfp_error *err)
{
    if (size == 0) /* bytes may be NULL */
        return SFP_OK;
    if (w->pending_bytes + size > PENDING_MAX)
        TRY(sfp__writer_flush(w, err));
    if (!w->pending || size > PENDING_MAX)
        return write_bytes(w, bytes, size, err);
    memcpy(w->pending + w->pending_bytes, bytes, size);
    w->pending_bytes += size;
    return SFP_OK;
}

/* Makes the rename durable. A directory that cannot be opened or synced (some network file systems) is ignored: the file is
 * complete in either case. */
static sfp_status sync_directory(const char *path, char *scratch, sfp_error *err)
{
    const char *slash = strrchr(path, '/');
    const char *dir = ".";
    if (slash) {
        size_t n = slash == path ? 1 : (size_t)(slash - path);
        memcpy(scratch, path, n);
        scratch[n] = '\0';
        dir = scratch;
    }
    OWNED_BY(sfp__fd_close) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && TEMP_FAILURE_RETRY(fsync(fd)) != 0 && errno == EIO)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot sync its directory", path);
    return SFP_OK;
}

sfp_status sfp__writer_commit(sfp__writer *out, sfp_error *err)
{
    OWNED_BY(sfp__writer_abort) sfp__writer w = *out;
    *out = (sfp__writer){.fd = -1};
    TRY(sfp__writer_flush(&w, err));
    if (TEMP_FAILURE_RETRY(fsync(w.fd)) != 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot sync", w.path);
    int fd = w.fd;
    w.fd = -1;
    bool closed = close(fd) == 0 || errno == EINTR; /* on Linux, the descriptor is closed in either case */
    if (!closed || TEMP_FAILURE_RETRY(rename(w.tmp, w.path)) != 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot replace", w.path);
    OWNED char *scratch = TAKE(w.tmp); /* large enough for any part of path */
    return sync_directory(w.path, scratch, err);
}

void sfp__writer_abort(sfp__writer *w)
{
    if (!w->tmp)
        return;
    if (w->fd >= 0)
        (void)close(w->fd);
    (void)unlink(w->tmp);
    sfp__free(w->tmp);
    *w = (sfp__writer){.fd = -1};
}

/* Links PATH to a temporary name and renames that to BACKUP, so that an existing BACKUP is never missing. */
static sfp_status back_up_by_link(const char *path, const char *backup, const char *temporary, sfp_error *err)
{
    (void)unlink(temporary); /* may exist if a process was killed at this point */
    if (link(path, temporary) == 0) {
        int failed = (int)TEMP_FAILURE_RETRY(rename(temporary, backup)), why = errno;
        (void)unlink(temporary); /* rename does not remove it if BACKUP is already this file */
        errno = why;
        return failed ? sfp__fail_errno(err, SFP_EIO, "%s: cannot replace", backup) : SFP_OK;
    }
    bool no_links = errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK;
    if (!no_links || TEMP_FAILURE_RETRY(rename(path, backup)) != 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot back up as %s", path, backup);
    return SFP_OK;
}

sfp_status sfp__file_backup(const char *path, const char *backup, sfp_error *err)
{
    size_t capacity = strlen(backup) + sizeof ".tmp";
    if (access(path, F_OK) != 0)
        return SFP_OK;
    OWNED char *temporary = sfp__malloc(capacity);
    TRY(sfp__check_memory(temporary, err));
    (void)snprintf(temporary, capacity, "%s.tmp", backup);
    return back_up_by_link(path, backup, temporary, err);
}

static bool is_damage(sfp_status s)
{
    return s == SFP_ENOTFOUND || s == SFP_EFORMAT || s == SFP_EIO || s == SFP_ELIMIT;
}

sfp_status sfp__file_read_or_backup(const char *path, const char *backup, sfp__file_reader read, void *ctx, bool *used_backup,
                                    sfp_error *err)
{
    sfp_error first = {0}, second = {0};
    sfp_status why = read(ctx, path, &first), s;
    *used_backup = is_damage(why);
    if (!*used_backup)
        return why ? sfp__fail(err, why, "%s", first.message) : SFP_OK;
    s = read(ctx, backup, &second);
    if (s == SFP_OK)
        return SFP_OK;
    if (why == SFP_ENOTFOUND && s == SFP_ENOTFOUND)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: checkpoint does not exist", path);
    if (!is_damage(s))
        return sfp__fail(err, s, "%s", second.message);
    sfp_status worse = why == SFP_EIO || s == SFP_EIO ? SFP_EIO : SFP_EFORMAT;
    if (s == SFP_ENOTFOUND)
        return sfp__fail(err, worse, "%s", first.message);
    return sfp__fail(err, worse, "%.*s; %.*s", SFP_ERROR_MAX / 2 - 2, first.message, SFP_ERROR_MAX / 2 - 2, second.message);
}

sfp_status sfp__file_write(const char *path, const void *bytes, size_t size, sfp_error *err)
{
    OWNED_BY(sfp__writer_abort) sfp__writer w = {.fd = -1};
    TRY(sfp__writer_open(path, &w, err));
    TRY(sfp__writer_put(&w, bytes, size, err));
    return sfp__writer_commit(&w, err);
}
