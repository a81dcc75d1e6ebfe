/* Watches a directory and those below it with inotify, and puts their images into the queue (dir.h). */
#include "stream/sources/dir.h"

#include "base/monotonic.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { POLL_MS = 50 };
static const double check_seconds = 1, rescan_seconds = 10;

#define END_NAME ".end"
#define FILE_EVENTS (IN_CLOSE_WRITE | IN_MOVED_TO)
#define GONE_EVENTS (IN_DELETE | IN_MOVED_FROM)
#define TOP_EVENTS (IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF) /* IN_ATTRIB: a directory may become readable */

/* A watched directory; the top directory has the name "". */
struct sfp__watched_directory {
    int id;
    char *name;
};

/* ------------------------------------------------------------------ directories */

static bool is_readable(const char *path)
{
    return faccessat(AT_FDCWD, path, R_OK | X_OK, AT_EACCESS) == 0;
}

/* Offers the files of a directory to the queue; one that was removed has none. */
static sfp_status scan(sfp__dir_watch *w, const char *directory, sfp_error *err)
{
    OWNED_BY(sfp__strings_done) sfp__strings names = {0};
    OWNED char *path = NULL;
    sfp_error why = {0};
    TRY(sfp__path_make(w->path, directory, &path, err));
    sfp_status status = sfp__directory_names(path, &names, &why);
    if (status == SFP_ENOTFOUND || (status == SFP_EIO && !is_readable(path) && errno == EACCES))
        return SFP_OK;
    if (status != SFP_OK)
        return sfp__fail(err, status, "%s", why.message);
    for (int i = 0; i < names.count; i++)
        TRY(sfp__dir_queue_offer(&w->queue, directory, names.s[i], true, err));
    return SFP_OK;
}

static sfp__watched_directory *find_directory(const sfp__dir_watch *w, int id)
{
    for (int i = 0; i < w->directory_count; i++)
        if (w->directories[i].id == id)
            return &w->directories[i];
    return NULL;
}

/* Watches directory `name`; events that are already watched stay. *id is negative if a directory below the top does not exist any
 * more. */
static sfp_status add_watch(const sfp__dir_watch *w, const char *name, int *id, sfp_error *err)
{
    uint32_t mask = FILE_EVENTS | IN_CREATE | IN_ONLYDIR | IN_MASK_ADD | (*name ? 0 : TOP_EVENTS) | (w->sync ? GONE_EVENTS : 0);
    OWNED char *path = NULL;
    TRY(sfp__path_make(w->path, name, &path, err));
    *id = is_readable(path) ? inotify_add_watch(w->fd, path, mask) : -1; /* inotify itself does not require X_OK */
    if (*id >= 0 || (*name && (errno == ENOENT || errno == ENOTDIR)))
        return SFP_OK;
    return sfp__fail_errno(err,
                           errno == ENOENT                 ? SFP_ENOTFOUND
                           : errno == ENOSPC               ? SFP_ELIMIT
                           : sfp__dir_is_file_error(errno) ? SFP_EINVAL
                                                           : SFP_EIO,
                           "%s: cannot watch the directory", path);
}

/* Checks whether directory `a`, which is watched, is also at `b`, and then warns. */
static sfp_status is_twice(const sfp__dir_watch *w, const char *a, const char *b, bool *out, sfp_error *err)
{
    struct stat at_a, at_b;
    OWNED char *path_a = NULL, *path_b = NULL;
    TRY(sfp__path_make(w->path, a, &path_a, err));
    TRY(sfp__path_make(w->path, b, &path_b, err));
    *out = stat(path_a, &at_a) == 0 && stat(path_b, &at_b) == 0 && at_a.st_dev == at_b.st_dev && at_a.st_ino == at_b.st_ino;
    if (*out)
        sfp__source_warn_live(w->source, "%.200s: ignored, because it is %.200s under another name", path_b, path_a);
    return SFP_OK;
}

/* Watches directory `name` ("": the top), then scans it: in this order no file is missed. */
static sfp_status watch_directory(sfp__dir_watch *w, const char *name, sfp_error *err)
{
    int id = -1;
    size_t n = (size_t)w->directory_count;
    if (n == SFP__CLASSES_MAX)
        return sfp__fail(err, SFP_ELIMIT, "%s: more than %d directories", w->path, SFP__CLASSES_MAX);
    TRY(sfp__check_memory(sfp__grow(&w->directories, sizeof *w->directories, n, n + 1, &w->directory_capacity), err));
    TRY(add_watch(w, name, &id, err));
    if (id < 0)
        return SFP_OK;
    sfp__watched_directory *f = find_directory(w, id);
    bool twice = false;
    if (f && strcmp(f->name, name) == 0) /* found by a scan and by an event, or moved back */
        return scan(w, f->name, err);
    if (f)
        TRY(is_twice(w, f->name, name, &twice, err));
    if (twice)
        return SFP_OK;
    char *copy = sfp__strdup(name);
    TRY(sfp__check_memory(copy, err));
    if (f) /* the same directory has a new name */
        sfp__free(f->name);
    else
        f = &w->directories[w->directory_count++];
    *f = (sfp__watched_directory){.id = id, .name = copy};
    return scan(w, copy, err);
}

/* Watches a directory. A directory that must not be read causes a warning. Too many directories at the beginning are an error. */
static sfp_status try_directory(sfp__dir_watch *w, const char *name, sfp_error *err)
{
    sfp_error why = {0};
    sfp_status status = watch_directory(w, name, &why);
    if (status == SFP_EINVAL || (status == SFP_ELIMIT && w->opened)) {
        sfp__source_warn_live(w->source, "%.400s; its images are not delivered", why.message);
        return SFP_OK;
    }
    return status ? sfp__fail(err, status, "%s", why.message) : SFP_OK;
}

/* Watches `name` if it is a directory, and is a link or not as `links` says. */
static sfp_status try_name(sfp__dir_watch *w, const char *name, bool links, sfp_error *err)
{
    struct stat st;
    OWNED char *path = NULL;
    if (name[0] == '.')
        return SFP_OK;
    TRY(sfp__path_make(w->path, name, &path, err));
    int failed = lstat(path, &st);
    if (!failed && S_ISLNK(st.st_mode) != links)
        return SFP_OK;
    if (!failed && links)
        failed = stat(path, &st);
    if (failed)
        return sfp__dir_is_file_error(errno) ? SFP_OK : sfp__fail_errno(err, SFP_EIO, "%s: cannot read", path);
    return S_ISDIR(st.st_mode) ? try_directory(w, name, err) : SFP_OK;
}

/* Watches every directory below the top that is not watched yet; also finds .end. */
static sfp_status watch_all(sfp__dir_watch *w, sfp_error *err)
{
    OWNED_BY(sfp__strings_done) sfp__strings names = {0};
    TRY(sfp__directory_names(w->path, &names, err));
    w->ended |= sfp__strings_find(&names, END_NAME) >= 0;
    for (int links = 0; links < 2; links++)
        for (int i = 0; i < names.count; i++)
            TRY(try_name(w, names.s[i], links, err));
    return SFP_OK;
}

sfp_status sfp__dir_watch_names(const sfp__dir_watch *w, sfp__names *names, sfp_error *err)
{
    int32_t number;
    sfp_error why = {0};
    sfp_status status = SFP_OK;
    for (int i = 0; i < w->directory_count && status != SFP_ENOMEM; i++)
        if (w->directories[i].name[0])
            status = sfp__names_add(names, w->directories[i].name, strlen(w->directories[i].name), &number, &why);
    return status == SFP_ENOMEM ? sfp__fail(err, status, "%s: %s", w->path, why.message)
                                : SFP_OK; /* names that are not valid are not classes */
}

/* Scans everything again after events were lost. */
static sfp_status rescan(sfp__dir_watch *w, sfp_error *err)
{
    w->missed = true;
    w->scanned_at = sfp__monotonic_seconds();
    TRY(watch_all(w, err));
    for (int i = 0; i < w->directory_count; i++)
        TRY(scan(w, w->directories[i].name, err));
    w->missed = false;
    return SFP_OK;
}

/* ----------------------------------------------------------------------- events */

/* Finds whether the file is a second name of another one: a symbolic or hard link. */
static sfp_status is_link(const sfp__dir_watch *w, const char *directory, const char *name, bool *out, sfp_error *err)
{
    struct stat st = {0};
    OWNED char *below = NULL, *path = NULL;
    TRY(sfp__path_make(directory, name, &below, err));
    TRY(sfp__path_make(w->path, below, &path, err));
    if (lstat(path, &st) != 0 && !sfp__dir_is_file_error(errno))
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", path);
    *out = S_ISLNK(st.st_mode) || (S_ISREG(st.st_mode) && st.st_nlink > 1);
    return SFP_OK;
}

static sfp_status handle(sfp__dir_watch *w, const struct inotify_event *e, sfp_error *err)
{
    if (e->mask & IN_Q_OVERFLOW) {
        w->deleted = true;
        return rescan(w, err);
    }
    sfp__watched_directory *f = find_directory(w, e->wd);
    if (!f)
        return SFP_OK;
    bool top = f->name[0] == '\0';
    if (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)) {
        w->ended |= top;
        w->removed |= top;
        if (e->mask & IN_IGNORED) {
            sfp__free(f->name);
            *f = w->directories[--w->directory_count];
        }
        return SFP_OK;
    }
    if (e->len == 0)
        return SFP_OK;
    w->deleted |= (e->mask & GONE_EVENTS) != 0;
    if (e->mask & GONE_EVENTS)
        return SFP_OK;
    if (e->mask & IN_ISDIR)
        return top && e->name[0] != '.' ? try_directory(w, e->name, err) : SFP_OK;
    if (e->mask & IN_ATTRIB)
        return SFP_OK;
    if (top && strcmp(e->name, END_NAME) == 0) {
        w->ended = true;
        return SFP_OK;
    }
    const char *directory = f->name; /* does not move when the list grows */
    bool link = false;
    if (e->mask & IN_CREATE)
        TRY(is_link(w, directory, e->name, &link, err));
    if (link) /* a link causes no event when a file is closed, so it is offered now */
        TRY(sfp__dir_queue_offer(&w->queue, directory, e->name, true, err));
    if (top && (e->mask & (IN_CREATE | IN_MOVED_TO)))
        TRY(try_name(w, e->name, true, err));
    return e->mask & FILE_EVENTS ? sfp__dir_queue_offer(&w->queue, directory, e->name, false, err) : SFP_OK;
}

/* Handles the events that have arrived; those after .end are ignored. After a failure the others are still handled, the first
 * failure is reported, and everything is scanned again. */
static sfp_status read_events(sfp__dir_watch *w, sfp_error *err)
{
    _Alignas(struct inotify_event) char buf[16 * (sizeof(struct inotify_event) + NAME_MAX + 1)];
    ssize_t got = read(w->fd, buf, sizeof buf);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? SFP_OK
                                                 : sfp__fail_errno(err, SFP_EIO, "%s: cannot watch the directory", w->path);
    sfp_status status = SFP_OK;
    for (const char *at = buf; at < buf + got && !w->ended;) {
        const struct inotify_event *e = (const void *)at;
        sfp_status failed = handle(w, e, status ? NULL : err);
        status = status ? status : failed;
        at += sizeof *e + e->len;
    }
    w->missed = w->missed || sfp__is_machine_error(status);
    return status;
}

/* Checks whether the path still leads to the watched directory: a parent may have been renamed, or a link may have a new target. */
static void check_path(sfp__dir_watch *w)
{
    struct stat st;
    double now = sfp__monotonic_seconds();
    if (now - w->checked_at < check_seconds)
        return;
    w->checked_at = now;
    if (stat(w->path, &st) == 0 ? (uint64_t)st.st_dev != w->device || (uint64_t)st.st_ino != w->inode
                                : errno == ENOENT || errno == ENOTDIR)
        w->ended = w->removed = true;
}

sfp_status sfp__dir_watch_wait(sfp__dir_watch *w, sfp_error *err)
{
    check_path(w);
    if (w->remote && !w->ended && sfp__monotonic_seconds() - w->scanned_at >= rescan_seconds) {
        w->deleted = true;
        TRY(rescan(w, err));
    }
    struct pollfd wait = {.fd = w->fd, .events = POLLIN};
    int ready = poll(&wait, w->ended ? 0 : 1, POLL_MS);
    if (ready < 0 && errno != EINTR)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot watch the directory", w->path);
    sfp__dir_queue_retry(&w->queue, w->ended);
    if (w->missed)
        TRY(rescan(w, err));
    return ready > 0 ? read_events(w, err) : SFP_OK;
}

bool sfp__dir_watch_over(const sfp__dir_watch *w)
{
    return w->ended && !w->missed && w->queue.busy.first == w->queue.busy.last;
}

/* ------------------------------------------------------------------------ opening */

/* inotify reports no changes that other machines make in a network file system. */
static bool is_remote(const char *path)
{
    static const unsigned long kinds[] = {0x6969 /* NFS */, 0xff534d42 /* CIFS */, 0xfe534d42 /* SMB2 */,
                                          0x517b /* SMB */, 0x00c36400 /* Ceph */, 0x65735546 /* FUSE */,
                                          0x01021997 /* 9P */};
    struct statfs fs;
    if (statfs(path, &fs) != 0)
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (((unsigned long)fs.f_type & 0xffffffff) == kinds[i])
            return true;
    return false;
}

sfp_status sfp__dir_watch_open(sfp__dir_watch *w, sfp_source *source, bool sync, sfp_error *err)
{
    struct stat st;
    *w = (sfp__dir_watch){
        .source = source, .path = source->path, .sync = sync, .deleted = sync, .fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
    w->queue = (sfp__dir_queue){.path = w->path, .now = sfp__monotonic_seconds};
    if (w->fd < 0)
        return sfp__fail_errno(err, errno == EMFILE ? SFP_ELIMIT : SFP_EIO, "%s: cannot watch the directory", w->path);
    if (stat(w->path, &st) != 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", w->path);
    w->device = (uint64_t)st.st_dev;
    w->inode = (uint64_t)st.st_ino;
    TRY(watch_directory(w, "", err));
    TRY(watch_all(w, err));
    w->opened = true;
    w->checked_at = w->scanned_at = sfp__monotonic_seconds();
    w->remote = is_remote(w->path);
    if (w->remote)
        sfp__source_warn_live(source, "%.400s: a network file system: it is scanned every %.0f s for changes of other machines",
                              w->path, rescan_seconds);
    sfp__dir_queue_sort(&w->queue);
    return SFP_OK;
}

void sfp__dir_watch_done(sfp__dir_watch *w)
{
    if (!w->path) /* never opened */
        return;
    if (w->fd >= 0)
        (void)close(w->fd);
    for (int i = 0; i < w->directory_count; i++)
        sfp__free(w->directories[i].name);
    sfp__free(w->directories);
    sfp__dir_queue_done(&w->queue);
    *w = (sfp__dir_watch){0};
}
