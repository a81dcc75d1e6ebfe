#include "stream/dir_watch.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "io/image.h"
#include "stream/source_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum { POLL_MS = 50, QUEUE_MAX = 1 << 24, NAMES_MAX = 1 << 24 };

#define STEADY_SECONDS 2.0
#define LAST_CALL_SECONDS (STEADY_SECONDS + 0.5)
#define END_NAME ".end"
#define FILE_EVENTS (IN_CLOSE_WRITE | IN_MOVED_TO)
#define TOP_EVENTS (IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF) /* IN_ATTRIB: a folder may become readable */

/* A watched folder: the one at the top has name "". */
struct sfp_dir_folder {
    int id;
    char *name;
};

/* ---------------------------------------------------------------- what was found */

static uint64_t identity_of(const struct stat *st)
{
    uint64_t parts[] = {(uint64_t)st->st_dev, (uint64_t)st->st_ino, (uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec,
                        (uint64_t)st->st_size};
    uint64_t h = sfp__hash(SFP_HASH_START, parts, sizeof parts);
    return h ? h : 1;
}

/* Of what is at `path`: of its identity and the name of its folder. */
static uint64_t mark_of(const char *path, uint64_t identity)
{
    const char *slash = strchr(path, '/');
    uint64_t h = sfp__hash(identity, path, slash ? (size_t)(slash - path) : 0);
    return h ? h : 1;
}

/* Whether somebody has the file open for writing: the kernel grants a read lease only when nobody has. It grants none at all on a
 * file of another owner or on some file systems; false then, as nothing is known. (Network file systems may say true of any.) */
static bool is_being_written(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return false;
    (void)fcntl(fd, F_SETSIG, SIGURG); /* for who opens it just now; SIGIO, which it would be else, ends a process */
    bool busy = fcntl(fd, F_SETLEASE, F_RDLCK) != 0 && errno == EAGAIN;
    (void)close(fd); /* and gives the lease back */
    return busy;
}

typedef enum finding {
    GONE, /* no file is there */
    BUSY, /* is being written */
    SEEN, /* was found before, as it is */
    FRESH,
} finding;

/* A busy file that has not changed for so long is taken as complete: its writer forgot to close it, or there is none. */
static bool is_steady(sfp_dir_item *item, const struct stat *st)
{
    uint64_t now = identity_of(st);
    if (now != item->was) {
        item->was = now;
        item->since = sfp__now();
    }
    return sfp__now() - item->since >= STEADY_SECONDS;
}

/* Looks at the file; FRESH: the item identifies it as it is now. Only with `careful` it can be BUSY; the lease is asked for
 * before the look that counts, and what a writer does between both is told by an event. */
static sfp_status look(sfp_dir_watch *w, bool careful, sfp_dir_item *item, finding *out, sfp_error *err)
{
    struct stat st;
    char *full = sfp__path_join(w->path, item->path);
    if (!full)
        return sfp__fail_nomem(err);
    bool there = stat(full, &st) == 0 && S_ISREG(st.st_mode), busy = there && careful && is_being_written(full);
    if (careful && !busy)
        there = there && stat(full, &st) == 0;
    sfp__free(full);
    *out = !there ? GONE : busy && !is_steady(item, &st) ? BUSY : FRESH;
    if (*out != FRESH)
        return SFP_OK;
    uint64_t identity = identity_of(&st), mark = mark_of(item->path, identity);
    bool fresh = false;
    if (mark == item->mark)
        return SFP_OK;
    sfp_status status = sfp__mark_set_add(&w->seen, mark, &fresh, err);
    if (status != SFP_OK || !fresh) {
        *out = SEEN;
        return status;
    }
    item->identity = identity;
    item->mark = mark;
    item->changed = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec;
    return SFP_OK;
}

/* ------------------------------------------------------------------- the queue */

sfp_status sfp__dir_watch_put(sfp_dir_watch *w, sfp_dir_item item, sfp_error *err)
{
    if (w->first == w->last)
        w->first = w->last = 0;
    if (w->last == QUEUE_MAX)
        return sfp__fail(err, SFP_ELIMIT, "%s: more than %d pictures wait", w->path, QUEUE_MAX);
    if (!sfp__grow(&w->queue, sizeof *w->queue, w->last, w->last + 1, &w->room))
        return sfp__fail_nomem(err);
    w->queue[w->last] = w->queue[w->last - w->busy]; /* among those, order is of no matter */
    w->queue[w->last++ - w->busy] = item;
    return SFP_OK;
}

/* A file that a folder has (found: by looking through it) or that was closed: into the queue if it is a picture that was not
 * found yet. */
static sfp_status offer(sfp_dir_watch *w, const char *folder, const char *name, bool found, sfp_error *err)
{
    finding f = GONE;
    if (name[0] == '.' || !sfp__image_name(name))
        return SFP_OK;
    sfp_dir_item item = {.path = sfp__path_join(folder, name), .label = -1, .found = found};
    if (!item.path)
        return sfp__fail_nomem(err);
    sfp_status status = look(w, false, &item, &f, err);
    if (status == SFP_OK && f == FRESH)
        status = sfp__dir_watch_put(w, item, err);
    if (status != SFP_OK || f != FRESH)
        sfp__free(item.path);
    return status;
}

/* What was only found may be in the making: it is looked at again when its turn comes, and comes as it is then; the event of its
 * writer finds nothing new. */
sfp_status sfp__dir_watch_take(sfp_dir_watch *w, sfp_dir_item *out, bool *some, sfp_error *err)
{
    sfp_status status = SFP_OK;
    bool late = w->last_call > 0 && sfp__now() > w->last_call;
    for (*some = false; w->last - w->first > w->busy && status == SFP_OK && !*some;) {
        sfp_dir_item item = w->queue[w->first];
        finding f = FRESH;
        if (item.found && (status = look(w, true, &item, &f, err)) != SFP_OK)
            break;
        w->first++;
        item.unfinished = f == BUSY && late;
        *some = f == FRESH || f == GONE || item.unfinished; /* who reads it tells of what is gone, or never got done */
        if (*some)
            *out = item;
        else if (f == BUSY && (status = sfp__dir_watch_put(w, item, err)) == SFP_OK)
            w->busy++;
        else
            sfp__free(item.path);
    }
    return status;
}

/* Those that were being written have their turn again. */
static void retry_busy(sfp_dir_watch *w)
{
    w->last -= w->first;
    if (w->last)
        memmove(w->queue, w->queue + w->first, w->last * sizeof *w->queue);
    w->first = w->busy = 0;
}

bool sfp__dir_watch_over(const sfp_dir_watch *w)
{
    return w->ended && w->busy == 0;
}

/* ------------------------------------------------------------------ the folders */

static int compare_strings(const void *a, const void *b)
{
    return sfp__natural_compare(*(char *const *)a, *(char *const *)b);
}

/* The names in a folder but . and .., in natural order; the list is to be freed by sfp__name_list_free, also after a failure. */
static sfp_status list_folder(const char *path, char ***names, int *count, sfp_error *err)
{
    char **list = NULL;
    int n = 0;
    size_t room = 0;
    sfp_status status = SFP_OK;
    DIR *dir = opendir(path);
    if (!dir)
        return sfp__fail_errno(err, errno == ENOENT ? SFP_ENOTFOUND : SFP_EIO, "%s: cannot open the folder", path);
    for (struct dirent *entry; status == SFP_OK && (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (n == NAMES_MAX)
            status = sfp__fail(err, SFP_ELIMIT, "%s: more than %d names in the folder", path, NAMES_MAX);
        else if (!sfp__grow(&list, sizeof *list, (size_t)n, (size_t)n + 1, &room))
            status = sfp__fail_nomem(err);
        else if (!(list[n] = sfp__strdup(entry->d_name)))
            status = sfp__fail_nomem(err);
        else
            n++;
    }
    (void)closedir(dir);
    if (n)
        qsort(list, (size_t)n, sizeof *list, compare_strings);
    *names = list;
    *count = n;
    return status;
}

static sfp_status scan(sfp_dir_watch *w, const char *folder, sfp_error *err)
{
    char **names = NULL, *path = sfp__path_join(w->path, folder);
    int n = 0;
    if (!path)
        return sfp__fail_nomem(err);
    sfp_error why = {0};
    sfp_status status = list_folder(path, &names, &n, &why);
    if (status == SFP_ENOTFOUND || status == SFP_EIO) /* taken away again */
        status = SFP_OK;
    else if (status != SFP_OK && err)
        *err = why;
    for (int i = 0; i < n && status == SFP_OK; i++)
        status = offer(w, folder, names[i], true, err);
    sfp__name_list_free(names, n);
    sfp__free(path);
    return status;
}

static sfp_dir_folder *find_folder(const sfp_dir_watch *w, int id)
{
    for (int i = 0; i < w->folder_count; i++)
        if (w->folders[i].id == id)
            return &w->folders[i];
    return NULL;
}

static void drop_folder(sfp_dir_watch *w, sfp_dir_folder *f)
{
    sfp__free(f->name);
    *f = w->folders[--w->folder_count];
}

static sfp_status room_for_folder(sfp_dir_watch *w, sfp_error *err)
{
    size_t n = (size_t)w->folder_count;
    if (n == SFP_CLASSES_MAX)
        return sfp__fail(err, SFP_ELIMIT, "%s: more than %d folders", w->path, SFP_CLASSES_MAX);
    if (!sfp__grow(&w->folders, sizeof *w->folders, n, n + 1, &w->folder_room))
        return sfp__fail_nomem(err);
    return SFP_OK;
}

/* Asks the kernel to tell about folder `name`, and of one that it tells about already nothing less; *id is negative when one
 * inside is gone already. */
static sfp_status add_watch(const sfp_dir_watch *w, const char *name, int *id, sfp_error *err)
{
    uint32_t mask = FILE_EVENTS | IN_CREATE | IN_ONLYDIR | IN_MASK_ADD | (*name ? 0 : TOP_EVENTS);
    char *path = sfp__path_join(w->path, name);
    if (!path)
        return sfp__fail_nomem(err);
    bool readable = faccessat(AT_FDCWD, path, R_OK | X_OK, AT_EACCESS) == 0; /* watching alone takes no X_OK */
    *id = readable ? inotify_add_watch(w->fd, path, mask) : -1;
    sfp_status status = SFP_OK;
    if (*id < 0 && (!*name || (errno != ENOENT && errno != ENOTDIR)))
        status = sfp__fail_errno(err,
                                 errno == ENOENT   ? SFP_ENOTFOUND
                                 : errno == ENOSPC ? SFP_ELIMIT
                                                   : SFP_EIO,
                                 "%s: cannot watch the folder", path);
    sfp__free(path);
    return status;
}

/* Whether folder `a`, watched under that name, is at `b` too: remarks upon it then. */
static sfp_status is_twice(const sfp_dir_watch *w, const char *a, const char *b, bool *out, sfp_error *err)
{
    struct stat at_a, at_b;
    char *path_a = sfp__path_join(w->path, a), *path_b = sfp__path_join(w->path, b);
    sfp_status status = path_a && path_b ? SFP_OK : sfp__fail_nomem(err);
    if (status == SFP_OK) {
        *out = stat(path_a, &at_a) == 0 && stat(path_b, &at_b) == 0 && at_a.st_dev == at_b.st_dev && at_a.st_ino == at_b.st_ino;
        if (*out)
            sfp__source_remark(w->source, "%.200s: is passed over, as it is %.200s under another name", path_b, path_a);
    }
    sfp__free(path_a);
    sfp__free(path_b);
    return status;
}

/* Watches folder `name` ("" for the one at the top), then takes what is in it: in this order nothing is missed. */
static sfp_status watch_folder(sfp_dir_watch *w, const char *name, sfp_error *err)
{
    int id = -1;
    sfp_status status = room_for_folder(w, err);
    if (status == SFP_OK)
        status = add_watch(w, name, &id, err);
    if (status != SFP_OK || id < 0)
        return status;
    sfp_dir_folder *f = find_folder(w, id);
    bool twice = false;
    if (f && strcmp(f->name, name) == 0) /* both by looking and by an event, or it is back from elsewhere */
        return scan(w, f->name, err);
    if (f && ((status = is_twice(w, f->name, name, &twice, err)) != SFP_OK || twice))
        return status;
    char *copy = sfp__strdup(name);
    if (!copy)
        return sfp__fail_nomem(err);
    if (f) /* the same folder under a new name */
        sfp__free(f->name);
    else
        f = &w->folders[w->folder_count++];
    *f = (sfp_dir_folder){.id = id, .name = copy};
    return scan(w, copy, err);
}

/* What others put there must not end a run: one that cannot be watched is remarked upon. Too many at the beginning are an error.
 */
static sfp_status try_folder(sfp_dir_watch *w, const char *name, sfp_error *err)
{
    sfp_error why = {0};
    sfp_status status = watch_folder(w, name, &why);
    if (status == SFP_EIO || (status == SFP_ELIMIT && w->opened)) {
        sfp__source_remark(w->source, "%.400s; what is in it does not come", why.message);
        return SFP_OK;
    }
    return status ? sfp__fail(err, status, "%s", why.message) : SFP_OK;
}

/* Tries `name` when it is a folder, and a link to one or not. */
static sfp_status try_name(sfp_dir_watch *w, const char *name, bool links, sfp_error *err)
{
    struct stat st;
    char *path = sfp__path_join(w->path, name);
    if (!path)
        return sfp__fail_nomem(err);
    bool wanted = name[0] != '.' && lstat(path, &st) == 0 && S_ISLNK(st.st_mode) == links && sfp__path_is_dir(path);
    sfp__free(path);
    return wanted ? try_folder(w, name, err) : SFP_OK;
}

/* Watches every folder inside that is not watched yet; also finds .end. */
static sfp_status watch_all(sfp_dir_watch *w, sfp_error *err)
{
    char **names = NULL;
    int n = 0;
    sfp_status status = list_folder(w->path, &names, &n, err);
    for (int i = 0; i < 2 * n && status == SFP_OK; i++)
        status = try_name(w, names[i % n], i >= n, err);
    for (int i = 0; i < n; i++)
        w->ended |= strcmp(names[i], END_NAME) == 0;
    sfp__name_list_free(names, n);
    return status;
}

sfp_status sfp__dir_watch_names(const sfp_dir_watch *w, sfp_names *names, sfp_error *err)
{
    int32_t number;
    sfp_error why = {0};
    sfp_status status = SFP_OK;
    for (int i = 0; i < w->folder_count && status != SFP_ENOMEM; i++)
        if (w->folders[i].name[0])
            status = sfp__names_add(names, w->folders[i].name, strlen(w->folders[i].name), &number, &why);
    return status == SFP_ENOMEM ? sfp__fail(err, status, "%s: %s", w->path, why.message) : SFP_OK; /* others are no class */
}

/* Looks at everything again: events were lost. */
static sfp_status rescan(sfp_dir_watch *w, sfp_error *err)
{
    sfp_status status = watch_all(w, err);
    for (int i = 0; i < w->folder_count && status == SFP_OK; i++)
        status = scan(w, w->folders[i].name, err);
    return status;
}

/* ------------------------------------------------------------------- the events */

/* A second name of a file: by a link, or a hard one. */
static bool is_link(const sfp_dir_watch *w, const char *folder, const char *name)
{
    struct stat st;
    char *below = sfp__path_join(folder, name), *path = below ? sfp__path_join(w->path, below) : NULL;
    bool link = path && lstat(path, &st) == 0 && (S_ISLNK(st.st_mode) || (S_ISREG(st.st_mode) && st.st_nlink > 1));
    sfp__free(below);
    sfp__free(path);
    return link;
}

static sfp_status handle(sfp_dir_watch *w, const struct inotify_event *e, sfp_error *err)
{
    if (e->mask & IN_Q_OVERFLOW)
        return rescan(w, err);
    sfp_dir_folder *f = find_folder(w, e->wd);
    if (!f)
        return SFP_OK;
    bool top = f->name[0] == '\0';
    if (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)) {
        w->ended |= top;
        if (e->mask & IN_IGNORED)
            drop_folder(w, f);
        return SFP_OK;
    }
    if (e->len == 0)
        return SFP_OK;
    if (e->mask & IN_ISDIR)
        return top && e->name[0] != '.' ? try_folder(w, e->name, err) : SFP_OK;
    if (e->mask & IN_ATTRIB)
        return SFP_OK;
    if (top && strcmp(e->name, END_NAME) == 0) {
        w->ended = true;
        return SFP_OK;
    }
    const char *folder = f->name; /* which stays where it is, while the list may move */
    if ((e->mask & IN_CREATE) && is_link(w, folder, e->name)) {
        sfp_status linked = offer(w, folder, e->name, true, err); /* nobody writes to it and closes it */
        if (linked != SFP_OK)
            return linked;
    }
    sfp_status status = top && (e->mask & (IN_CREATE | IN_MOVED_TO)) ? try_name(w, e->name, true, err) : SFP_OK;
    return status == SFP_OK && (e->mask & FILE_EVENTS) ? offer(w, folder, e->name, false, err) : status;
}

/* What the kernel has for us now; what comes behind .end is not looked at. What fails does so alone, and the first is told. */
static sfp_status read_events(sfp_dir_watch *w, sfp_error *err)
{
    _Alignas(struct inotify_event) char buf[16 * (sizeof(struct inotify_event) + NAME_MAX + 1)];
    ssize_t got = read(w->fd, buf, sizeof buf);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? SFP_OK : sfp__fail_errno(err, SFP_EIO, "%s: cannot watch the folder", w->path);
    sfp_status status = SFP_OK;
    for (const char *at = buf; at < buf + got && !w->ended;) {
        const struct inotify_event *e = (const void *)at;
        sfp_status failed = handle(w, e, status ? NULL : err);
        status = status ? status : failed;
        at += sizeof *e + e->len;
    }
    return status;
}

sfp_status sfp__dir_watch_wait(sfp_dir_watch *w, sfp_error *err)
{
    struct pollfd wait = {.fd = w->fd, .events = POLLIN};
    int ready = poll(&wait, w->ended ? 0 : 1, POLL_MS);
    if (ready < 0 && errno != EINTR)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot watch the folder", w->path);
    retry_busy(w);
    if (w->ended && w->last_call == 0)
        w->last_call = sfp__now() + LAST_CALL_SECONDS;
    return ready > 0 ? read_events(w, err) : SFP_OK;
}

/* --------------------------------------------------------------- going on, opening */

static int compare_marks(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sorted, newly allocated; NULL: no memory. */
static uint64_t *sorted(size_t n, const uint64_t *marks)
{
    uint64_t *copy = sfp__malloc((n + 1) * sizeof *copy);
    if (copy && n) {
        memcpy(copy, marks, n * sizeof *copy);
        qsort(copy, n, sizeof *copy, compare_marks);
    }
    return copy;
}

static bool is_in(uint64_t mark, size_t n, const uint64_t *marks)
{
    return n && bsearch(&mark, marks, n, sizeof *marks, compare_marks);
}

sfp_status sfp__dir_watch_leave_out(sfp_dir_watch *w, const sfp_left_out *what, sfp_error *err)
{
    size_t kept = w->first;
    uint64_t *done = sorted(what->n, what->marks), *waiting = sorted(what->waiting, what->waiting_marks);
    sfp_status status = done && waiting ? SFP_OK : sfp__fail_nomem(err);
    for (size_t i = w->first; i < w->last && status == SFP_OK; i++) {
        const sfp_dir_item *item = &w->queue[i];
        bool old = item->changed <= what->until && !is_in(item->mark, what->waiting, waiting);
        if (old || is_in(item->mark, what->n, done))
            sfp__free(item->path);
        else
            w->queue[kept++] = *item;
    }
    if (status == SFP_OK)
        w->last = kept;
    sfp__free(done);
    sfp__free(waiting);
    return status;
}

static int compare_items(const void *a, const void *b)
{
    return sfp__natural_compare(((const sfp_dir_item *)a)->path, ((const sfp_dir_item *)b)->path);
}

sfp_status sfp__dir_watch_open(sfp_dir_watch *w, sfp_source *source, sfp_error *err)
{
    *w = (sfp_dir_watch){.source = source, .path = source->path, .fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
    if (w->fd < 0)
        return sfp__fail_errno(err, errno == EMFILE ? SFP_ELIMIT : SFP_EIO, "%s: cannot watch the folder", w->path);
    sfp_status status = watch_folder(w, "", err);
    if (status == SFP_OK)
        status = watch_all(w, err);
    w->opened = true;
    if (status != SFP_OK)
        sfp__dir_watch_done(w);
    else if (w->last)
        qsort(w->queue, w->last, sizeof *w->queue, compare_items);
    return status;
}

void sfp__dir_watch_done(sfp_dir_watch *w)
{
    if (!w->path) /* was never opened */
        return;
    if (w->fd >= 0)
        (void)close(w->fd);
    for (int i = 0; i < w->folder_count; i++)
        sfp__free(w->folders[i].name);
    sfp__free(w->folders);
    for (size_t i = w->first; i < w->last; i++)
        sfp__free(w->queue[i].path);
    sfp__free(w->queue);
    sfp__mark_set_done(&w->seen);
    *w = (sfp_dir_watch){0};
}
