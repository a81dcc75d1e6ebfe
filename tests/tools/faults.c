/* A library for LD_PRELOAD that kills a program before its k-th call that changes a file, or makes this call fail.
 *
 *     SFP_FAULT_COUNT=FILE      at the end, writes the number of calls to FILE
 *     SFP_FAULT_PATHS=FILE      at the end, writes the first K of every path to an allocation, that is, chain of calling functions
 *     SFP_FAULT_AT=K            the call, from 1
 *     SFP_FAULT_MODE=kill       the process is killed before the call
 *                    lose       the same; bytes that were written but not synced are lost, as after a power failure
 *                    fail       the call fails once with SFP_FAULT_ERRNO (a number; default: EMFILE for open, ENOMEM for memory,
 *                               EAGAIN for threads, else EIO)
 *                    full       from this call on all fail that need space (open, write, sync, mkdir, link), with ENOSPC
 *                    interrupt  every second fsync, fdatasync, rename, write and open for writing fails with EINTR
 *     SFP_FAULT_TRACE=FILE      writes "mkdir PATH" and "sync PATH" for each directory that is created, and each file that is synced
 *     SFP_FAULT_CALLS=files     counts calls that change files: open for writing, write, pwrite, pwritev, fsync, fdatasync, ftruncate,
 *                               rename, link, unlink, unlinkat and mkdir; standard streams are not counted (default)
 *                     io        counts also calls that open, examine and read files and directories, standard input, and new threads
 *                     log       counts also each command of Redis, each commit and each look for committed values of Kafka twice: before
 *                               the request, and after it, when its reply is lost. Writes to pipes and sockets are not counted
 *                     memory    counts only allocations, by the program and its libraries. Not counted are those of the C++ libraries,
 *                               of libarchive and of the loader, which end a process without memory
 *     SFP_FAULT_CLOCK=N         the clock jumps 3 seconds ahead at every N-th time that the main thread reads it. A short run then
 *                               writes several checkpoints. The time of the day jumps too: backwards and forwards by a day */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 256 };

/* A file with bytes that are not synced. The descriptor is a copy, so that the file can be truncated after it was closed. */
typedef struct unsynced {
    int copy;
    dev_t device;
    ino_t inode;
    off_t size; /* bytes that are synced */
} unsynced;

typedef enum fault_mode { NONE, KILL, LOSE, FAIL, FULL, INTERRUPT } fault_mode;
typedef enum counted_calls { FILE_CALLS, IO_CALLS, MEMORY_CALLS, LOG_CALLS } counted_calls;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_long calls;
static unsynced files[FILES];
static int file_count;

/* the environment; before `configured` nothing is counted */
static bool configured;
static fault_mode mode;
static counted_calls counted;
static long fault_at, clock_period;
static int fault_errno;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int index_of(const char *name, int n, const char *const *names)
{
    const char *given = getenv(name);
    for (int i = 0; given && i < n; i++)
        if (strcmp(given, names[i]) == 0)
            return i;
    return 0;
}

static long number_of(const char *name)
{
    const char *given = getenv(name);
    return given ? atol(given) : 0;
}

static void lose_unsynced(void)
{
    for (int i = 0; i < file_count; i++)
        (void)REAL(ftruncate)(files[i].copy, files[i].size);
}

/* Counts a call; true: it must fail, and errno is set. */
static bool fails(int code)
{
    long k = atomic_fetch_add(&calls, 1) + 1;
    bool full = mode == FULL && k >= fault_at;
    if (!fault_at || (k != fault_at && !full))
        return false;
    if (mode == LOSE) {
        pthread_mutex_lock(&lock);
        lose_unsynced();
    }
    if (mode == KILL || mode == LOSE)
        (void)kill(getpid(), SIGKILL);
    errno = full ? ENOSPC : fault_errno ? fault_errno : code;
    return true;
}

static bool changes_fail(void)
{
    return configured && counted != MEMORY_CALLS && fails(EIO);
}

/* For calls that a full disk does not prevent. */
static bool removals_fail(void)
{
    return mode != FULL && changes_fail();
}

static bool reads_fail(int code)
{
    return configured && counted == IO_CALLS && mode != FULL && fails(code);
}

static void write_paths(void);

__attribute__((destructor)) static void write_count(void)
{
    const char *path = getenv("SFP_FAULT_COUNT");
    configured = false;
    FILE *f = path ? fopen(path, "w") : NULL;
    if (f) {
        (void)fprintf(f, "%ld\n", atomic_load(&calls));
        (void)fclose(f);
    }
    write_paths();
}

static int find(const struct stat *st)
{
    for (int i = 0; i < file_count; i++)
        if (files[i].device == st->st_dev && files[i].inode == st->st_ino)
            return i;
    return -1;
}

static bool is_database(int fd)
{
    char link[64], path[4096];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = '\0';
    return strstr(path, ".db");
}

/* Called before bytes are written. SQLite overwrites pages, and its own tests lose them; its files are not truncated here. */
static void begin_write(int fd)
{
    struct stat st;
    if (mode != LOSE || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || is_database(fd))
        return;
    pthread_mutex_lock(&lock);
    if (find(&st) < 0 && file_count < FILES)
        files[file_count++] = (unsynced){fcntl(fd, F_DUPFD_CLOEXEC, 200), st.st_dev, st.st_ino, st.st_size};
    pthread_mutex_unlock(&lock);
}

static void end_sync(int fd)
{
    struct stat st;
    if (mode != LOSE || fstat(fd, &st) != 0)
        return;
    pthread_mutex_lock(&lock);
    int i = find(&st);
    if (i >= 0) {
        (void)close(files[i].copy);
        files[i] = files[--file_count];
    }
    pthread_mutex_unlock(&lock);
}

/* Returns whether this call is one that a signal interrupts. SQLite repeats all interrupted calls but syncs. */
static bool is_interrupted(void)
{
    static atomic_int odd;
    if (mode != INTERRUPT || atomic_fetch_xor(&odd, 1))
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

static bool open_fails(int flags)
{
    bool changes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
    return changes ? is_interrupted() || changes_fail() : reads_fail(EMFILE);
}

#define MODE_ARGUMENT                                              \
    va_list ap;                                                    \
    va_start(ap, flags);                                           \
    mode_t permissions = flags & O_CREAT ? va_arg(ap, mode_t) : 0; \
    va_end(ap);                                                    \
    if (open_fails(flags))                                         \
    return -1

int open(const char *path, int flags, ...)
{
    MODE_ARGUMENT;
    return REAL(open)(path, flags, permissions);
}

int open64(const char *path, int flags, ...)
{
    MODE_ARGUMENT;
    return REAL(open64)(path, flags, permissions);
}

int openat(int directory, const char *path, int flags, ...)
{
    MODE_ARGUMENT;
    return REAL(openat)(directory, path, flags, permissions);
}

int openat64(int directory, const char *path, int flags, ...)
{
    MODE_ARGUMENT;
    return REAL(openat64)(directory, path, flags, permissions);
}

/* librdkafka wakes its threads through pipes, as often as time decides. */
static bool is_counted(int fd)
{
    struct stat st;
    return fd > 2 && (counted != LOG_CALLS || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)));
}

#define WRITER(name, parameters, arguments)                         \
    ssize_t name parameters                                         \
    {                                                               \
        if (is_counted(fd) && (is_interrupted() || changes_fail())) \
            return -1;                                              \
        begin_write(fd);                                            \
        return REAL(name) arguments;                                \
    }
WRITER(write, (int fd, const void *bytes, size_t n), (fd, bytes, n))
WRITER(pwrite, (int fd, const void *bytes, size_t n, off_t at), (fd, bytes, n, at))
WRITER(pwrite64, (int fd, const void *bytes, size_t n, off64_t at), (fd, bytes, n, at))
WRITER(pwritev, (int fd, const struct iovec *parts, int n, off_t at), (fd, parts, n, at))
WRITER(pwritev64, (int fd, const struct iovec *parts, int n, off64_t at), (fd, parts, n, at))

#define READER(type, failed, code, name, parameters, arguments)          \
    type name parameters                                                 \
    {                                                                    \
        return reads_fail(code) ? (type)(failed) : REAL(name) arguments; \
    }
READER(ssize_t, -1, EIO, read, (int fd, void *bytes, size_t n), (fd, bytes, n))
READER(ssize_t, -1, EIO, pread, (int fd, void *bytes, size_t n, off_t at), (fd, bytes, n, at))
READER(ssize_t, -1, EIO, pread64, (int fd, void *bytes, size_t n, off64_t at), (fd, bytes, n, at))
READER(ssize_t, -1, EIO, preadv, (int fd, const struct iovec *parts, int n, off_t at), (fd, parts, n, at))
READER(DIR *, NULL, EMFILE, opendir, (const char *path), (path))
READER(DIR *, NULL, ENOMEM, fdopendir, (int fd), (fd))
READER(struct dirent *, NULL, EIO, readdir, (DIR * d), (d))
READER(int, -1, EIO, stat, (const char *restrict path, struct stat *restrict st), (path, st))
READER(int, -1, EIO, lstat, (const char *restrict path, struct stat *restrict st), (path, st))
READER(int, -1, EIO, fstat, (int fd, struct stat *st), (fd, st))
READER(int, -1, EIO, fstatat, (int fd, const char *restrict path, struct stat *restrict st, int flags), (fd, path, st, flags))
READER(int, -1, EIO, access, (const char *path, int how), (path, how))
READER(int, EAGAIN, EAGAIN, pthread_create,
       (pthread_t *restrict thread, const pthread_attr_t *restrict attributes, void *(*start)(void *), void *restrict argument),
       (thread, attributes, start, argument))

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return fd >= 0 && reads_fail(ENOMEM) ? MAP_FAILED : REAL(mmap)(at, size, protection, flags, fd, offset);
}

#define SYNC(name)                                                    \
    int name(int fd)                                                  \
    {                                                                 \
        if ((!is_database(fd) && is_interrupted()) || changes_fail()) \
            return -1;                                                \
        int status = REAL(name)(fd);                                  \
        trace_sync(fd);                                               \
        end_sync(fd);                                                 \
        return status;                                                \
    }
SYNC(fsync)
SYNC(fdatasync)

#define CALL(name, parameters, arguments, failing)  \
    int name parameters                             \
    {                                               \
        return failing ? -1 : REAL(name) arguments; \
    }
CALL(ftruncate, (int fd, off_t size), (fd, size), removals_fail())
CALL(ftruncate64, (int fd, off64_t size), (fd, size), removals_fail())
CALL(rename, (const char *from, const char *to), (from, to), is_interrupted() || removals_fail())
CALL(link, (const char *from, const char *to), (from, to), changes_fail())
CALL(unlink, (const char *path), (path), removals_fail())
CALL(unlinkat, (int directory, const char *path, int flags), (directory, path, flags), removals_fail())
int mkdir(const char *path, mode_t permissions)
{
    int status = changes_fail() ? -1 : REAL(mkdir)(path, permissions);
    if (status == 0)
        trace("mkdir", path);
    return status;
}

/* ----------------------------------------------------------------------- logs */

static bool log_fails(void)
{
    return configured && counted == LOG_CALLS && mode != FULL && fails(EIO);
}

/* Of hiredis and librdkafka, without their headers. */
void freeReplyObject(void *reply);
void *redisCommandArgv(void *context, int count, const char **words, const size_t *sizes);
int rd_kafka_commit(void *rk, const void *offsets, int async);
int rd_kafka_committed(void *rk, void *partitions, int ms);
enum { TIMED_OUT = -185 };

void *redisCommandArgv(void *context, int count, const char **words, const size_t *sizes)
{
    void *reply = log_fails() ? NULL : REAL(redisCommandArgv)(context, count, words, sizes);
    if (reply && log_fails()) {
        REAL(freeReplyObject)(reply);
        reply = NULL;
    }
    return reply;
}

int rd_kafka_commit(void *rk, const void *offsets, int async)
{
    int code = log_fails() ? TIMED_OUT : REAL(rd_kafka_commit)(rk, offsets, async);
    return !code && log_fails() ? TIMED_OUT : code;
}

int rd_kafka_committed(void *rk, void *partitions, int ms)
{
    int code = log_fails() ? TIMED_OUT : REAL(rd_kafka_committed)(rk, partitions, ms);
    return !code && log_fails() ? TIMED_OUT : code;
}

/* --------------------------------------------------------------------- memory */

/* the code of the program and of the libraries whose allocations are counted */
enum { RANGES = 32 };
static struct {
    uintptr_t first, last;
} ranges[RANGES];
static int range_count;

static int add_ranges(struct dl_phdr_info *library, size_t size, void *unused)
{
    static const char *const excluded[] = {"ld-linux",  "libdnnl", "libstdc++",  "libgomp",
                                           "libOpenCL", "libgcc",  "libarchive", "faults"};
    (void)size;
    (void)unused;
    for (size_t i = 0; i < sizeof excluded / sizeof *excluded; i++)
        if (strstr(library->dlpi_name, excluded[i]))
            return 0;
    for (int i = 0; i < library->dlpi_phnum && range_count < RANGES; i++) {
        const ElfW(Phdr) *part = &library->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        ranges[range_count].first = library->dlpi_addr + part->p_vaddr;
        ranges[range_count].last = ranges[range_count].first + part->p_memsz;
        range_count++;
    }
    return 0;
}

/* Hashes of the call paths that were seen, and the number of the allocation at which each was first seen. */
enum { PATHS = 1 << 16, FRAMES = 48 };
static struct {
    uint64_t hash;
    long first;
} paths[PATHS];
static bool notes_paths;

static void note_path(long k)
{
    static _Thread_local bool inside; /* the unwinder may allocate */
    void *frames[FRAMES];
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    if (inside)
        return;
    inside = true;
    int n = backtrace(frames, FRAMES);
    inside = false;
    for (int i = 2; i < n; i++) /* after this function and memory_fails */
        hash = (hash ^ (uintptr_t)frames[i]) * 1099511628211u;
    pthread_mutex_lock(&lock);
    size_t at = hash % PATHS;
    for (int tries = 0; tries < PATHS && paths[at].first && paths[at].hash != hash; tries++)
        at = (at + 1) % PATHS;
    if (!paths[at].first) {
        paths[at].hash = hash;
        paths[at].first = k;
    }
    pthread_mutex_unlock(&lock);
}

static void write_paths(void)
{
    const char *path = getenv("SFP_FAULT_PATHS");
    FILE *f = path ? fopen(path, "w") : NULL;
    for (int i = 0; f && i < PATHS; i++)
        if (paths[i].first)
            (void)fprintf(f, "%ld\n", paths[i].first);
    if (f)
        (void)fclose(f);
}

static bool memory_fails(const void *caller)
{
    if (!configured || counted != MEMORY_CALLS)
        return false;
    for (int i = 0; i < range_count; i++)
        if ((uintptr_t)caller >= ranges[i].first && (uintptr_t)caller < ranges[i].last) {
            if (notes_paths)
                note_path(atomic_load(&calls) + 1);
            return fails(ENOMEM);
        }
    return false;
}

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

#define MEMORY(name, parameters, real)                                           \
    void *name parameters                                                        \
    {                                                                            \
        return memory_fails(__builtin_return_address(0)) ? NULL : __libc_##real; \
    }
MEMORY(malloc, (size_t size), malloc(size))
MEMORY(calloc, (size_t n, size_t size), calloc(n, size))
MEMORY(realloc, (void *p, size_t size), realloc(p, size))
MEMORY(aligned_alloc, (size_t alignment, size_t size), memalign(alignment, size))
int posix_memalign(void **out, size_t alignment, size_t size)
{
    void *p = memory_fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, size);
    *out = p ? p : *out;
    return p ? 0 : ENOMEM;
}

/* ---------------------------------------------------------------------- clocks */

static atomic_long ahead, days; /* seconds */

int clock_gettime(clockid_t id, struct timespec *out)
{
    static long readings;
    int status = REAL(clock_gettime)(id, out);
    if (!configured || !clock_period || status != 0)
        return status;
    if (id == CLOCK_REALTIME)
        out->tv_sec += atomic_load(&days);
    if (id != CLOCK_MONOTONIC)
        return 0;
    if (gettid() == getpid() && ++readings % clock_period == 0) {
        atomic_fetch_add(&ahead, 3);
        atomic_store(&days, (readings / clock_period % 3 - 1) * 86400);
    }
    out->tv_sec += atomic_load(&ahead);
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

/* The time is one of the clock above. */
int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    struct timespec real = *until;
    real.tv_sec -= atomic_load(&ahead);
    return REAL(pthread_cond_timedwait)(condition, mutex, &real);
}

/* ----------------------------------------------------------------- environment */

__attribute__((constructor)) static void configure(void)
{
    mode = (fault_mode)index_of("SFP_FAULT_MODE", 6, (const char *const[]){"", "kill", "lose", "fail", "full", "interrupt"});
    counted = (counted_calls)index_of("SFP_FAULT_CALLS", 4, (const char *const[]){"files", "io", "memory", "log"});
    fault_at = number_of("SFP_FAULT_AT");
    fault_errno = (int)number_of("SFP_FAULT_ERRNO");
    clock_period = number_of("SFP_FAULT_CLOCK");
    (void)dl_iterate_phdr(add_ranges, NULL);
    notes_paths = getenv("SFP_FAULT_PATHS");
    if (notes_paths)
        note_path(0); /* loads the unwinder */
    configured = true;
}
