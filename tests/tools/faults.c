/* A library for LD_PRELOAD that kills a program before its k-th call that changes a file, or makes this call fail.
 *
 *     SFP_FAULT_COUNT=FILE      at the end, writes the number of calls to FILE
 *     SFP_FAULT_AT=K            the call, from 1
 *     SFP_FAULT_MODE=kill       the process is killed before the call
 *                    lose       the same; bytes that were written but not synced are lost, as after a power failure
 *                    fail       the call fails once with SFP_FAULT_ERRNO (a number)
 *                    interrupt  every second fsync, fdatasync, rename, write and open for writing fails with EINTR
 *     SFP_FAULT_TRACE=FILE      writes "mkdir PATH" and "sync PATH" for each directory that is created, and each file that is synced
 *     SFP_FAULT_READS=1         also counts calls that open and read files
 *
 * Counted are: open for writing, write, pwrite, pwritev, fsync, fdatasync, ftruncate, rename, link, unlink, unlinkat and mkdir. Standard
 * streams are not counted. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILES = 256 };

/* A file with bytes that are not synced. The descriptor is a copy, so that the file can be truncated after it was closed. */
typedef struct unsynced {
    int copy;
    dev_t device;
    ino_t inode;
    off_t size; /* bytes that are synced */
} unsynced;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long calls;
static unsynced files[FILES];
static int file_count;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static bool is_mode(const char *mode)
{
    const char *given = getenv("SFP_FAULT_MODE");
    return given && strcmp(given, mode) == 0;
}

static void lose_unsynced(void)
{
    for (int i = 0; i < file_count; i++)
        (void)REAL(ftruncate)(files[i].copy, files[i].size);
}

/* Counts a call; true: it must fail, and errno is set. */
static bool fails(void)
{
    const char *at = getenv("SFP_FAULT_AT"), *code = getenv("SFP_FAULT_ERRNO");
    bool now;
    pthread_mutex_lock(&lock);
    now = ++calls == (at ? atol(at) : -1);
    if (now && is_mode("lose"))
        lose_unsynced();
    if (now && !is_mode("fail"))
        (void)kill(getpid(), SIGKILL);
    pthread_mutex_unlock(&lock);
    if (now)
        errno = code ? atoi(code) : EIO;
    return now;
}

__attribute__((destructor)) static void write_count(void)
{
    const char *path = getenv("SFP_FAULT_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (f) {
        (void)fprintf(f, "%ld\n", calls);
        (void)fclose(f);
    }
}

static int find(const struct stat *st)
{
    for (int i = 0; i < file_count; i++)
        if (files[i].device == st->st_dev && files[i].inode == st->st_ino)
            return i;
    return -1;
}

/* Called before bytes are written. SQLite overwrites pages, and its own tests lose them; its files are not truncated here. */
static void begin_write(int fd)
{
    struct stat st;
    char link[64], path[4096];
    if (!is_mode("lose") || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = '\0';
    if (strstr(path, ".db"))
        return;
    pthread_mutex_lock(&lock);
    if (find(&st) < 0 && file_count < FILES)
        files[file_count++] = (unsynced){fcntl(fd, F_DUPFD_CLOEXEC, 200), st.st_dev, st.st_ino, st.st_size};
    pthread_mutex_unlock(&lock);
}

static void end_sync(int fd)
{
    struct stat st;
    if (!is_mode("lose") || fstat(fd, &st) != 0)
        return;
    pthread_mutex_lock(&lock);
    int i = find(&st);
    if (i >= 0) {
        (void)close(files[i].copy);
        files[i] = files[--file_count];
    }
    pthread_mutex_unlock(&lock);
}

/* Returns whether this call is one that a signal interrupts. */
static bool is_interrupted(void)
{
    static atomic_int odd;
    if (!is_mode("interrupt") || atomic_fetch_xor(&odd, 1))
        return false;
    errno = EINTR;
    return true;
}

static void trace(const char *what, const char *path)
{
    const char *to = getenv("SFP_FAULT_TRACE");
    FILE *f = to ? fopen(to, "a") : NULL;
    if (f) {
        (void)fprintf(f, "%s %s\n", what, path);
        (void)fclose(f);
    }
}

static void trace_sync(int fd)
{
    char link[64], path[4096] = "";
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (getenv("SFP_FAULT_TRACE") && readlink(link, path, sizeof path - 1) > 0)
        trace("sync", path);
}

static bool counts_open(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) || getenv("SFP_FAULT_READS");
}

#define MODE_ARGUMENT                                        \
    va_list ap;                                              \
    va_start(ap, flags);                                     \
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;  \
    va_end(ap);                                              \
    if (counts_open(flags) && (is_interrupted() || fails())) \
    return -1

int open(const char *path, int flags, ...)
{
    MODE_ARGUMENT;
    return REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE_ARGUMENT;
    return REAL(open64)(path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...)
{
    MODE_ARGUMENT;
    return REAL(openat)(directory, path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...)
{
    MODE_ARGUMENT;
    return REAL(openat64)(directory, path, flags, mode);
}

#define WRITER(name, parameters, arguments)          \
    ssize_t name parameters                          \
    {                                                \
        if (fd > 2 && (is_interrupted() || fails())) \
            return -1;                               \
        begin_write(fd);                             \
        return REAL(name) arguments;                 \
    }
WRITER(write, (int fd, const void *bytes, size_t n), (fd, bytes, n))
WRITER(pwrite, (int fd, const void *bytes, size_t n, off_t at), (fd, bytes, n, at))
WRITER(pwrite64, (int fd, const void *bytes, size_t n, off64_t at), (fd, bytes, n, at))
WRITER(pwritev, (int fd, const struct iovec *parts, int n, off_t at), (fd, parts, n, at))
WRITER(pwritev64, (int fd, const struct iovec *parts, int n, off64_t at), (fd, parts, n, at))

#define READER(name, parameters, arguments)                 \
    ssize_t name parameters                                 \
    {                                                       \
        if (fd > 2 && getenv("SFP_FAULT_READS") && fails()) \
            return -1;                                      \
        return REAL(name) arguments;                        \
    }
READER(read, (int fd, void *bytes, size_t n), (fd, bytes, n))
READER(pread, (int fd, void *bytes, size_t n, off_t at), (fd, bytes, n, at))
READER(pread64, (int fd, void *bytes, size_t n, off64_t at), (fd, bytes, n, at))

#define SYNC(name)                       \
    int name(int fd)                     \
    {                                    \
        if (is_interrupted() || fails()) \
            return -1;                   \
        int status = REAL(name)(fd);     \
        trace_sync(fd);                  \
        end_sync(fd);                    \
        return status;                   \
    }
SYNC(fsync)
SYNC(fdatasync)

#define CALL(name, parameters, arguments)           \
    int name parameters                             \
    {                                               \
        return fails() ? -1 : REAL(name) arguments; \
    }
CALL(ftruncate, (int fd, off_t size), (fd, size))
CALL(ftruncate64, (int fd, off64_t size), (fd, size))
int rename(const char *from, const char *to)
{
    return is_interrupted() || fails() ? -1 : REAL(rename)(from, to);
}
CALL(link, (const char *from, const char *to), (from, to))
CALL(unlink, (const char *path), (path))
CALL(unlinkat, (int directory, const char *path, int flags), (directory, path, flags))
int mkdir(const char *path, mode_t mode)
{
    int status = fails() ? -1 : REAL(mkdir)(path, mode);
    if (status == 0)
        trace("mkdir", path);
    return status;
}
