/* The lock is on the directory itself (flock): there is no lock file that could be left behind, and the kernel releases the lock
 * however a process ends. */
#include "io/directory.h"

#include "base/text.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_TRIES = 5 };

/* Returns the length of the path without its last name; 0: it has only one name. */
static size_t parent_length(const char *path)
{
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 0 && path[n - 1] == '/')
        n--;
    return n;
}

static void remove_directories(char *path, int made)
{
    for (size_t n = strlen(path); n > 0 && made > 0 && rmdir(path) == 0; made--) {
        n = parent_length(path);
        path[n] = '\0';
    }
}

void sfp__directory_sync_parent(const char *path)
{
    size_t n = parent_length(path);
    OWNED char *parent = sfp__strdup(n ? path : path[0] == '/' ? "/" : ".");
    if (!parent)
        return;
    if (n)
        parent[n] = '\0';
    OWNED_BY(sfp__fd_close) int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        (void)TEMP_FAILURE_RETRY(fsync(fd));
}

enum { TRIES = 1000 }; /* to create a directory that other processes remove at the same time */

/* Creates a directory. Creates its parent only if that is missing: a parent may exist and yet be inaccessible. On failure returns
 * false and sets errno. */
static bool create_directory(char *path, int *made)
{
    bool good = mkdir(path, 0777) == 0;
    size_t parent = parent_length(path);
    int before = *made;
    for (int tries = 0; !good && errno == ENOENT && parent > 0 && tries < TRIES; tries++) {
        char cut = path[parent];
        path[parent] = '\0';
        *made = before;
        good = create_directory(path, made);
        path[parent] = cut;
        if (!good)
            return false;
        good = mkdir(path, 0777) == 0;
        if (!good && errno == ENOENT && tries + 1 < TRIES) /* another process, which had created the parent, has removed it */
            continue;
        if (!good && errno != EEXIST) {
            int why = errno;
            path[parent] = '\0';
            remove_directories(path, *made);
            errno = why;
            return false;
        }
    }
    *made += good;
    if (good)
        sfp__directory_sync_parent(path);
    return good || errno == EEXIST;
}

sfp_status sfp__directory_create(const char *path, int *made, sfp_error *err)
{
    int n = 0;
    OWNED char *copy = sfp__strdup(path);
    TRY(sfp__check_memory(copy, err));
    if (!create_directory(copy, &n))
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot create the directory", path);
    *made = n;
    return SFP_OK;
}

sfp_status sfp__directory_create_for(const char *file, sfp_error *err)
{
    size_t n = parent_length(file);
    int made;
    if (n == 0)
        return SFP_OK;
    OWNED char *parent = sfp__strdup(file);
    TRY(sfp__check_memory(parent, err));
    parent[n] = '\0';
    return sfp__directory_create(parent, &made, err);
}

void sfp__directory_remove_created(const char *path, int made)
{
    OWNED char *copy = made > 0 ? sfp__strdup(path) : NULL;
    if (copy)
        remove_directories(copy, made);
}

static sfp_status open_directory(const char *path, int *fd, sfp_error *err)
{
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd >= 0)
        return SFP_OK;
    struct stat st;
    if (errno == ENOTDIR && stat(path, &st) == 0)
        return sfp__fail(err, SFP_EINVAL, "%s: not a directory", path);
    return sfp__fail_errno(err, errno == ENOENT || errno == ENOTDIR ? SFP_ENOTFOUND : SFP_EIO, "%s: cannot open the directory",
                           path);
}

sfp_status sfp__directory_lock(const char *path, int *lock, sfp_error *err)
{
    OWNED_BY(sfp__fd_close) int fd = -1;
    TRY(open_directory(path, &fd, err));
    bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
    /* tries several times, because sfp__directory_is_locked of another process may hold the lock for a moment */
    for (int i = 0; !locked && errno == EWOULDBLOCK && i < LOCK_TRIES; i++) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
    }
    if (!locked && errno == EWOULDBLOCK)
        return sfp__fail(err, SFP_EINVAL, "%s: directory is in use by another run", path);
    *lock = locked ? fd : -1; /* some network file systems lock only files open for writing, which a directory never is */
    fd = locked ? -1 : fd;
    return SFP_OK;
}

void sfp__directory_unlock(int lock)
{
    sfp__fd_close(&lock);
}

/* Takes the lock and releases it immediately, because there is no other way to find out whether it is held. */
bool sfp__directory_is_locked(const char *path)
{
    OWNED_BY(sfp__fd_close) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

/* Returns whether the path still leads to the locked directory; true if there is no lock, so that this is unknown. */
static bool is_at(const char *path, int lock)
{
    struct stat here, locked;
    return lock < 0 ||
           (fstat(lock, &locked) == 0 && stat(path, &here) == 0 && here.st_dev == locked.st_dev && here.st_ino == locked.st_ino);
}

sfp_status sfp__directory_take(const char *path, int *made, int *lock, sfp_error *err)
{
    for (int i = 0; i < TRIES; i++) {
        int n, fd = -1;
        TRY(sfp__directory_create(path, &n, err));
        sfp_status status = sfp__directory_lock(path, &fd, err);
        if (!status && is_at(path, fd)) {
            *made = n;
            *lock = fd;
            return SFP_OK;
        }
        sfp__directory_unlock(fd);
        if (status && status != SFP_ENOTFOUND) /* SFP_EINVAL: it belongs to the process that has locked it */
            return status;
    } /* another process had locked it first, failed, and removed it */
    return sfp__fail(err, SFP_EIO, "%s: another process removes the directory again and again", path);
}

void sfp__directory_leave(const char *path, int made, int lock)
{
    sfp__directory_remove_created(path, made);
    sfp__directory_unlock(lock);
}

sfp_status sfp__directory_has_any(const char *path, size_t count, const char *const *names, bool *has, sfp_error *err)
{
    OWNED_BY(sfp__fd_close) int fd = -1;
    struct stat st;
    *has = false;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? SFP_OK
                                                   : sfp__fail_errno(err, SFP_EIO, "%s: cannot open the directory", path);
    for (size_t i = 0; i < count && !*has; i++) {
        *has = fstatat(fd, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (!*has && errno != ENOENT)
            return sfp__fail_errno(err, SFP_EIO, "%s/%s: cannot stat", path, names[i]);
    }
    return SFP_OK;
}

sfp_status sfp__directory_has(const char *path, const char *name, bool *has, sfp_error *err)
{
    return sfp__directory_has_any(path, 1, &name, has, err);
}

static bool matches(const char *name, const char *pattern)
{
    size_t before = strcspn(pattern, "#"), digits;
    if (*pattern == '*')
        return matches(name, pattern + 1) || (*name && matches(name + 1, pattern));
    if (!pattern[before])
        return strcmp(name, pattern) == 0;
    if (strncmp(name, pattern, before) != 0)
        return false;
    digits = strspn(name + before, "0123456789");
    return digits > 0 && matches(name + before + digits, pattern + before + 1);
}

static bool is_one_of(int fd, const char *name, size_t count, const char *const *paths)
{
    struct stat it, other;
    if (fstatat(fd, name, &it, 0) != 0)
        return false;
    for (size_t i = 0; i < count; i++)
        if (paths[i] && stat(paths[i], &other) == 0 && other.st_dev == it.st_dev && other.st_ino == it.st_ino)
            return true;
    return false;
}

static void close_dir(DIR *d)
{
    if (d)
        (void)closedir(d);
}
DEFINE_OWNED_PTR(DIR, close_dir)

sfp_status sfp__directory_find(const char *path, size_t count, const char *const *names, char *found, size_t size, sfp_error *err)
{
    OWNED_PTR(close_dir) DIR *d = opendir(path);
    *found = '\0';
    if (!d)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot read the directory", path);
    for (const struct dirent *e; (errno = 0, e = readdir(d));)
        for (size_t i = 0; i < count; i++)
            if (matches(e->d_name, names[i])) {
                (void)snprintf(found, size, "%s", e->d_name);
                return SFP_OK;
            }
    return errno ? sfp__fail_errno(err, SFP_EIO, "%s: cannot read the directory", path) : SFP_OK;
}

sfp_status sfp__directory_remove_files(const char *path, size_t count, const char *const *names, size_t kept,
                                       const char *const *keep, sfp_error *err)
{
    OWNED_PTR(close_dir) DIR *d = NULL;
    int fd = -1;
    TRY(open_directory(path, &fd, err));
    if (!(d = fdopendir(fd))) { /* owns fd from here on */
        (void)sfp__fail_errno(err, SFP_EIO, "%s: cannot read the directory", path);
        (void)close(fd);
        return SFP_EIO;
    }
    for (size_t i = 0; i < count; i++) {
        rewinddir(d);
        for (const struct dirent *e; (errno = 0, e = readdir(d));)
            if (matches(e->d_name, names[i]) && !is_one_of(fd, e->d_name, kept, keep) && unlinkat(fd, e->d_name, 0) != 0)
                return sfp__fail_errno(err, SFP_EIO, "%s/%s: cannot remove", path, e->d_name);
        if (errno)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot read the directory", path);
    }
    return SFP_OK;
}

/* ---------------------------------------------------------------------- walk */

enum { DEPTH_MAX = 64, DIRECTORIES_MAX = 1000000 };

typedef struct directory_id {
    dev_t device;
    ino_t inode;
} directory_id;

typedef struct walk {
    const char *root;
    sfp__walk_fn fn;
    void *ctx;
    sfp__text path; /* of the directory being read, relative to the root: "" or ending in '/' */
    directory_id ancestors[DEPTH_MAX];
    int directories;
} walk;

static sfp_status walk_directory(walk *w, int fd, int depth, sfp_error *err);

/* Fails with a message about the directory being read, and errno. */
static sfp_status fail_here(const walk *w, sfp_status status, const char *problem, sfp_error *err)
{
    char text[SFP__NAME_MAX * 2];
    if (w->path.length == 0)
        return sfp__fail_errno(err, status, "%s: %s", w->root, problem);
    return sfp__fail_errno(err, status, "%s: %s: %s", w->root, sfp__printable(w->path.s, text, sizeof text), problem);
}

/* Finds the kind of an entry. A link is broken if its target does not exist or this user may not examine it. It is an error if memory or the disk
 * fail, because the link may then lead to an image. */
static sfp_status find_kind(const walk *w, int fd, const struct dirent *e, sfp__walk_kind *out, sfp_error *err)
{
    struct stat st;
    *out = SFP__WALK_OTHER;
    if (e->d_type == DT_DIR || e->d_type == DT_REG)
        *out = e->d_type == DT_DIR ? SFP__WALK_DIRECTORY : SFP__WALK_FILE;
    if (e->d_type != DT_LNK && e->d_type != DT_UNKNOWN)
        return SFP_OK;
    if (fstatat(fd, e->d_name, &st, 0) == 0)
        *out = S_ISDIR(st.st_mode) ? SFP__WALK_DIRECTORY : S_ISREG(st.st_mode) ? SFP__WALK_FILE : SFP__WALK_OTHER;
    else if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EACCES || errno == ENAMETOOLONG)
        *out = SFP__WALK_BROKEN;
    else
        return fail_here(w, SFP_EIO, "cannot examine an entry", err);
    return SFP_OK;
}

/* Visits one entry of the directory being read. */
static sfp_status walk_entry(walk *w, int fd, const struct dirent *e, int depth, sfp_error *err)
{
    size_t length = w->path.length;
    sfp__walk_kind kind;
    sfp_status status = SFP_OK;
    TRY(find_kind(w, fd, e, &kind, err));
    sfp__text_put(&w->path, e->d_name);
    sfp__text_put(&w->path, kind == SFP__WALK_DIRECTORY ? "/" : "");
    TRY(sfp__check_memory(!w->path.failed, err));
    if (kind == SFP__WALK_DIRECTORY) {
        int child = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        status = child < 0 ? fail_here(w, SFP_EIO, "cannot open the directory", err) : walk_directory(w, child, depth + 1, err);
    } else {
        status = w->fn(w->ctx, kind, w->path.s, depth, err);
    }
    w->path.length = length;
    w->path.s[length] = '\0';
    return status;
}

static bool is_ancestor(const walk *w, const struct stat *st, int depth)
{
    for (int i = 0; i < depth; i++)
        if (w->ancestors[i].device == st->st_dev && w->ancestors[i].inode == st->st_ino)
            return true;
    return false;
}

static sfp_status walk_entries(walk *w, DIR *dir, int fd, int depth, sfp_error *err)
{
    sfp_status status = SFP_OK;
    const struct dirent *e = NULL;
    while (status == SFP_OK && (errno = 0, e = readdir(dir)))
        if (e->d_name[0] != '.')
            status = walk_entry(w, fd, e, depth, err);
    if (status == SFP_OK && errno != 0)
        return fail_here(w, SFP_EIO, "cannot read the directory", err);
    return status || depth == 0 ? status : w->fn(w->ctx, SFP__WALK_DIRECTORY, w->path.s, depth - 1, err);
}

/* Owns fd, also after a failure. */
static sfp_status walk_directory(walk *w, int fd, int depth, sfp_error *err)
{
    struct stat st;
    sfp_status status = SFP_OK;
    DIR *dir = NULL;
    if (depth >= DEPTH_MAX) {
        errno = ELOOP;
        status = fail_here(w, SFP_ELIMIT, "directories are nested too deeply", err);
    } else if (++w->directories > DIRECTORIES_MAX) {
        status = sfp__fail(err, SFP_ELIMIT, "%s: more than %d directories, counted once per path", w->root, DIRECTORIES_MAX);
    } else if (fstat(fd, &st) != 0 || !(dir = fdopendir(fd))) {
        status = fail_here(w, SFP_EIO, "cannot open the directory", err);
    } else if (!is_ancestor(w, &st, depth)) {
        w->ancestors[depth] = (directory_id){st.st_dev, st.st_ino};
        status = walk_entries(w, dir, fd, depth, err);
    }
    if (dir)
        (void)closedir(dir);
    else
        (void)close(fd);
    return status;
}

sfp_status sfp__walk(const char *root, sfp__walk_fn fn, void *ctx, sfp_error *err)
{
    walk w = {.root = root, .fn = fn, .ctx = ctx};
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return sfp__fail_errno(err, errno == ENOENT ? SFP_ENOTFOUND : SFP_EIO, "%s: cannot open the directory", root);
    sfp_status status = walk_directory(&w, fd, 0, err);
    sfp__text_done(&w.path);
    return status;
}
