/* dir:PATH - a folder that others put pictures into, watched by inotify.
 *
 * PATH/CLASS/file is labelled by its folder, PATH/file is not labelled. What is
 * there already comes first, in natural order of its path; then every file as
 * it is closed after writing, or moved in. Names that are no picture's (also
 * .hidden ones, as programs write before they rename) are passed over. It ends
 * when a file named .end appears in PATH, or PATH goes away.
 *
 * Classes: those named in PATH/classes.txt, a line each, in its order, then the
 * folders there at the beginning; a folder that appears later under another name
 * becomes a class with its first picture.
 *
 * A label may come after its picture (or before it): a line NAME,LABEL in
 * PATH/labels.csv (dir_labels.h) labels PATH/NAME; and an unlabelled picture that
 * is moved or linked into the folder of a class comes again, with that label and
 * the same identity (device, inode, time, size).
 *
 * A file that cannot be read when its turn comes (taken away again, empty) is
 * passed over and counted in `skipped`: what others do in the folder must not
 * end a run.
 *
 * What was taken is remembered by a 64-bit mark of its folder and identity, so
 * that looking through a folder again (a new one, or after the kernel dropped
 * events) takes nothing twice (mark_set.h). The same marks serve to go on after a
 * break. */
#include "base/mem.h"
#include "io/image.h"
#include "stream/dir_labels.h"
#include "stream/mark_set.h"
#include "stream/source_internal.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MARKS_KEPT = 1 << 16, POLL_MS = 50, PENDING_MAX = 1 << 24 };

#define END_NAME ".end"
#define FILE_EVENTS (IN_CLOSE_WRITE | IN_MOVED_TO)

/* A watched folder: PATH itself has name "". */
typedef struct watch {
    int id;
    char *name;
} watch;

/* A file, or the label of one, waiting for its turn. */
typedef struct pending {
    char *path;    /* below PATH */
    int32_t label; /* >= 0: a label alone */
    uint64_t identity, mark;
    int64_t changed;
} pending;

typedef struct dir_source {
    sfp_source base;
    int fd;
    watch *watches;
    int watch_count, watch_room;
    pending *queue; /* [first, last) */
    size_t first, last, room;
    sfp_mark_set seen;
    bool ended;        /* nothing comes behind what is in the queue */
    sfp_names classes; /* reserved: other threads read the list */
    sfp_dir_labels labels;
    pending given; /* what came last */
} dir_source;

/* --------------------------------------------------------------- what was taken */

static uint64_t identity_of(const struct stat *st)
{
    uint64_t h = UINT64_C(14695981039346656037);
    uint64_t parts[] = {(uint64_t)st->st_dev, (uint64_t)st->st_ino, (uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec,
                        (uint64_t)st->st_size};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        h = (h ^ parts[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return h ? h : 1;
}

static uint64_t mark_of(const char *folder, uint64_t identity)
{
    uint64_t h = identity;
    for (const char *p = folder; *p; p++) {
        h = (h ^ (unsigned char)*p) * UINT64_C(1099511628211); /* FNV-1a */
        h ^= h >> 31;
    }
    return h ? h : 1;
}

/* ------------------------------------------------------------------- the queue */

/* Takes p.path over when there is room. */
static sfp_status queue_put(dir_source *s, pending p, sfp_error *err)
{
    if (s->first == s->last)
        s->first = s->last = 0;
    if (s->last == s->room) {
        size_t room = s->room ? 2 * s->room : 256;
        if (room > PENDING_MAX)
            return sfp__fail(err, SFP_ELIMIT, "%s: more than %d pictures wait", s->base.path, PENDING_MAX);
        pending *queue = sfp__realloc(s->queue, s->room * sizeof *queue, room * sizeof *queue);
        if (!queue)
            return sfp__fail_nomem(err, room * sizeof *queue);
        s->queue = queue;
        s->room = room;
    }
    s->queue[s->last++] = p;
    return SFP_OK;
}

/* A file that is complete, as far as one can know: into the queue if it is a picture that was not taken yet. */
static sfp_status offer(dir_source *s, const watch *w, const char *name, sfp_error *err)
{
    struct stat st;
    bool fresh = false;
    if (name[0] == '.' || !sfp__image_name(name))
        return SFP_OK;
    char *path = sfp__path_join(w->name, name), *full = path ? sfp__path_join(s->base.path, path) : NULL;
    sfp_status status = full ? SFP_OK : sfp__fail_nomem(err, strlen(name));
    pending p = {.path = path, .label = -1};
    if (status == SFP_OK && stat(full, &st) == 0 && S_ISREG(st.st_mode)) {
        p.identity = identity_of(&st);
        p.mark = mark_of(w->name, p.identity);
        p.changed = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec;
        status = sfp__mark_set_add(&s->seen, p.mark, &fresh, err);
    }
    if (status == SFP_OK && fresh)
        status = queue_put(s, p, err);
    if (status != SFP_OK || !fresh)
        sfp__free(path);
    sfp__free(full);
    return status;
}

/* ------------------------------------------------------------------ the folders */

static int compare_strings(const void *a, const void *b)
{
    return sfp__natural_compare(*(char *const *)a, *(char *const *)b);
}

/* The names in a folder, in natural order; each and the list sfp__malloc'ed. */
static sfp_status list_folder(const char *path, char ***out, size_t *count, sfp_error *err)
{
    char **names = NULL;
    size_t n = 0, room = 0;
    sfp_status status = SFP_OK;
    DIR *dir = opendir(path);
    if (!dir)
        return sfp__fail_errno(err, errno == ENOENT ? SFP_ENOTFOUND : SFP_EIO, "%s: cannot open the folder", path);
    for (struct dirent *entry; status == SFP_OK && (entry = readdir(dir));) {
        if (n == room) {
            size_t more = room ? 2 * room : 256;
            char **grown = sfp__realloc(names, room * sizeof *names, more * sizeof *names);
            if (!grown) {
                status = sfp__fail_nomem(err, more * sizeof *names);
                break;
            }
            names = grown;
            room = more;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        names[n] = sfp__strdup(entry->d_name);
        if (names[n])
            n++;
        else
            status = sfp__fail_nomem(err, strlen(entry->d_name) + 1);
    }
    (void)closedir(dir);
    if (n)
        qsort(names, n, sizeof *names, compare_strings);
    *out = names; /* also on failure: the caller frees what there is */
    *count = n;
    return status;
}

static void free_list(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sfp__free(names[i]);
    sfp__free(names);
}

static sfp_status scan(dir_source *s, const watch *w, sfp_error *err)
{
    char **names = NULL, *path = sfp__path_join(s->base.path, w->name);
    size_t n = 0;
    if (!path)
        return sfp__fail_nomem(err, strlen(w->name));
    sfp_error why = {0};
    sfp_status status = list_folder(path, &names, &n, &why);
    if (status == SFP_ENOTFOUND || status == SFP_EIO) /* taken away again */
        status = SFP_OK;
    else if (status != SFP_OK && err)
        *err = why;
    for (size_t i = 0; i < n && status == SFP_OK; i++)
        status = offer(s, w, names[i], err);
    free_list(names, n);
    sfp__free(path);
    return status;
}

static watch *find_watch(const dir_source *s, int id)
{
    for (int i = 0; i < s->watch_count; i++)
        if (s->watches[i].id == id)
            return &s->watches[i];
    return NULL;
}

static void drop_watch(dir_source *s, int id)
{
    for (int i = 0; i < s->watch_count; i++) {
        if (s->watches[i].id == id) {
            sfp__free(s->watches[i].name);
            s->watches[i] = s->watches[--s->watch_count];
            return;
        }
    }
}

/* Watches folder `name` below PATH ("" for itself), then takes what is in it: in this order nothing is missed. */
static sfp_status watch_folder(dir_source *s, const char *name, sfp_error *err)
{
    uint32_t mask = FILE_EVENTS | IN_ONLYDIR | (*name ? 0 : IN_CREATE | IN_DELETE_SELF | IN_MOVE_SELF);
    if (s->watch_count == s->watch_room) {
        int room = s->watch_room ? 2 * s->watch_room : 16;
        watch *grown = room > SFP_CLASSES_MAX
                           ? NULL
                           : sfp__realloc(s->watches, (size_t)s->watch_room * sizeof *grown, (size_t)room * sizeof *grown);
        if (!grown)
            return room > SFP_CLASSES_MAX ? sfp__fail(err, SFP_ELIMIT, "%s: more than %d folders", s->base.path, SFP_CLASSES_MAX)
                                          : sfp__fail_nomem(err, (size_t)room * sizeof *grown);
        s->watches = grown;
        s->watch_room = room;
    }
    char *path = sfp__path_join(s->base.path, name);
    if (!path)
        return sfp__fail_nomem(err, strlen(name));
    int id = inotify_add_watch(s->fd, path, mask);
    sfp_status status = SFP_OK;
    if (id < 0 && (!*name || (errno != ENOENT && errno != ENOTDIR))) /* a folder inside may be gone already */
        status = sfp__fail_errno(err,
                                 errno == ENOENT   ? SFP_ENOTFOUND
                                 : errno == ENOSPC ? SFP_ELIMIT
                                                   : SFP_EIO,
                                 "%s: cannot watch the folder", path);
    sfp__free(path);
    if (id < 0)
        return status;
    watch *w = find_watch(s, id);
    if (w && strcmp(w->name, name) == 0) /* it came both by looking and by an event */
        return SFP_OK;
    char *copy = sfp__strdup(name);
    if (!copy)
        return sfp__fail_nomem(err, strlen(name) + 1);
    if (w) /* the same folder under a new name */
        sfp__free(w->name);
    else
        w = &s->watches[s->watch_count++];
    *w = (watch){.id = id, .name = copy};
    return scan(s, w, err);
}

/* Watches every folder below PATH that is not watched yet; also finds .end. */
static sfp_status watch_all(dir_source *s, sfp_error *err)
{
    char **names = NULL;
    size_t n = 0;
    sfp_status status = list_folder(s->base.path, &names, &n, err);
    for (size_t i = 0; i < n && status == SFP_OK; i++) {
        char *path = sfp__path_join(s->base.path, names[i]);
        if (!path)
            status = sfp__fail_nomem(err, strlen(names[i]));
        else if (names[i][0] != '.' && sfp__path_is_dir(path))
            status = watch_folder(s, names[i], err);
        s->ended |= strcmp(names[i], END_NAME) == 0;
        sfp__free(path);
    }
    free_list(names, n);
    return status;
}

/* Looks at everything again: events were lost. */
static sfp_status rescan(dir_source *s, sfp_error *err)
{
    sfp_status status = watch_all(s, err);
    for (int i = 0; i < s->watch_count && status == SFP_OK; i++)
        status = scan(s, &s->watches[i], err);
    return status;
}

/* ------------------------------------------------------------------- the events */

static sfp_status handle(dir_source *s, const struct inotify_event *e, sfp_error *err)
{
    if (e->mask & IN_Q_OVERFLOW)
        return rescan(s, err);
    const watch *w = find_watch(s, e->wd);
    if (!w)
        return SFP_OK;
    bool top = w->name[0] == '\0';
    if (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)) {
        s->ended |= top;
        if (e->mask & IN_IGNORED)
            drop_watch(s, e->wd);
        return SFP_OK;
    }
    if (e->len == 0)
        return SFP_OK;
    if (e->mask & IN_ISDIR)
        return top && e->name[0] != '.' ? watch_folder(s, e->name, err) : SFP_OK;
    if (top && strcmp(e->name, END_NAME) == 0) {
        s->ended = true;
        return SFP_OK;
    }
    return e->mask & FILE_EVENTS ? offer(s, w, e->name, err) : SFP_OK;
}

/* What the kernel has for us now; what comes behind .end is not looked at. */
static sfp_status read_events(dir_source *s, sfp_error *err)
{
    _Alignas(struct inotify_event) char buf[16 * (sizeof(struct inotify_event) + NAME_MAX + 1)];
    ssize_t got = read(s->fd, buf, sizeof buf);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? SFP_OK
                                                 : sfp__fail_errno(err, SFP_EIO, "%s: cannot watch the folder", s->base.path);
    sfp_status status = SFP_OK;
    for (const char *at = buf; at < buf + got && status == SFP_OK && !s->ended;) {
        const struct inotify_event *e = (const void *)at;
        status = handle(s, e, err);
        at += sizeof *e + e->len;
    }
    return status;
}

static sfp_status late_label(void *ctx, const char *name, int32_t label, sfp_error *err)
{
    char *path = sfp__strdup(name);
    sfp_status status =
        path ? queue_put(ctx, (pending){.path = path, .label = label}, err) : sfp__fail_nomem(err, strlen(name) + 1);
    if (status != SFP_OK)
        sfp__free(path);
    return status;
}

/* The class of the file at `path`: its folder, or what labels.csv says; -1: none, also when its folder cannot name one. */
static sfp_status class_of(dir_source *s, const char *path, int32_t *out, sfp_error *err)
{
    const char *slash = strchr(path, '/');
    sfp_error why;
    *out = -1;
    if (!slash) {
        *out = sfp__dir_labels_find(&s->labels, path);
        return SFP_OK;
    }
    sfp_status status = sfp__names_add(&s->classes, path, (size_t)(slash - path), out, &why);
    if (status == SFP_ENOMEM)
        return sfp__fail(err, status, "%s", why.message);
    s->base.classes = s->classes.count;
    return SFP_OK;
}

/* The next of the queue; *found is false when it was a file that is not there any more. */
static sfp_status take(dir_source *s, sfp_record *record, sfp_picture *out, bool *found, sfp_error *err)
{
    sfp__free(s->given.path);
    s->given = s->queue[s->first++];
    *found = true;
    *record = sfp__record_none();
    record->label = s->given.label;
    if (s->given.label >= 0) {
        *out = (sfp_picture){0};
        return SFP_OK;
    }
    char *path = sfp__path_join(s->base.path, s->given.path);
    sfp_status status = path ? sfp__picture_read(path, out, err) : sfp__fail_nomem(err, strlen(s->given.path));
    sfp__free(path);
    if (status == SFP_OK && (status = class_of(s, s->given.path, &record->label, err)) != SFP_OK)
        sfp__picture_done(out);
    if (status == SFP_OK || status == SFP_ENOMEM)
        return status;
    *found = false;
    s->base.skipped++;
    return SFP_OK;
}

static sfp_status next(sfp_source *base, sfp_record *record, sfp_picture *out, bool *end, sfp_error *err)
{
    dir_source *s = (dir_source *)base;
    for (;;) {
        *end = base->stop && atomic_load(base->stop);
        if (*end)
            return SFP_OK;
        sfp_status status = sfp__dir_labels_read(&s->labels, &s->classes, late_label, s, err);
        base->classes = s->classes.count;
        bool found = false;
        if (status == SFP_OK && s->first < s->last)
            status = take(s, record, out, &found, err);
        if (status != SFP_OK || found)
            return status;
        if (s->first < s->last)
            continue;
        if (s->ended) {
            *end = true;
            return SFP_OK;
        }
        struct pollfd wait = {.fd = s->fd, .events = POLLIN};
        int ready = poll(&wait, 1, POLL_MS);
        if (ready < 0 && errno != EINTR)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot watch the folder", base->path);
        status = ready > 0 ? read_events(s, err) : SFP_OK;
        if (status != SFP_OK)
            return status;
    }
}

static void origin(const sfp_source *base, sfp_origin *out)
{
    const pending *p = &((const dir_source *)base)->given;
    *out = (sfp_origin){.name = p->path, .identity = p->identity, .mark = p->mark, .changed = p->changed};
}

static int compare_marks(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static sfp_status leave_out(sfp_source *base, size_t n, const uint64_t *marks, int64_t until, sfp_error *err)
{
    dir_source *s = (dir_source *)base;
    size_t kept = s->first;
    uint64_t *sorted = sfp__malloc((n + 1) * sizeof *sorted);
    if (!sorted)
        return sfp__fail_nomem(err, (n + 1) * sizeof *sorted);
    if (n)
        memcpy(sorted, marks, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_marks);
    for (size_t i = s->first; i < s->last; i++) {
        pending *p = &s->queue[i];
        if (p->changed <= until || bsearch(&p->mark, sorted, n, sizeof *sorted, compare_marks))
            sfp__free(p->path);
        else
            s->queue[kept++] = *p;
    }
    s->last = kept;
    sfp__free(sorted);
    return SFP_OK;
}

static const char *name_of(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    const pending *given = &((const dir_source *)s)->given;
    (void)i; /* a stream has no numbers: the one given last */
    return sfp__printable(given->path ? given->path : s->path, buf, size);
}

/* -------------------------------------------------------------- opening, closing */

static void close_dir(sfp_source *base)
{
    dir_source *s = (dir_source *)base;
    if (s->fd >= 0)
        (void)close(s->fd);
    for (int i = 0; i < s->watch_count; i++)
        sfp__free(s->watches[i].name);
    sfp__free(s->watches);
    for (size_t i = s->first; i < s->last; i++)
        sfp__free(s->queue[i].path);
    sfp__free(s->queue);
    sfp__mark_set_done(&s->seen);
    sfp__free(s->given.path);
    sfp__dir_labels_done(&s->labels);
    base->class_names = NULL; /* they are those of s->classes */
    base->classes = 0;
    sfp__names_done(&s->classes);
    sfp__source_done(base);
    sfp__free(s);
}

/* classes.txt, or else nothing; then the folders that are there. */
static sfp_status find_classes(dir_source *s, sfp_error *err)
{
    sfp_names names = {0}, found = {0};
    char **list = NULL, *path = sfp__path_join(s->base.path, "classes.txt");
    size_t n = 0;
    int32_t number, *new_of = NULL;
    sfp_error why = {0};
    sfp_status status = path ? sfp__names_read(path, &names, &why) : sfp__fail_nomem(&why, 1);
    sfp__free(path);
    if (status == SFP_ENOTFOUND)
        status = SFP_OK;
    else if (status != SFP_OK && err)
        *err = why;
    if (status == SFP_OK)
        status = list_folder(s->base.path, &list, &n, err);
    for (size_t i = 0; i < n && status == SFP_OK; i++) {
        path = sfp__path_join(s->base.path, list[i]);
        if (!path)
            status = sfp__fail_nomem(err, strlen(list[i]));
        else if (list[i][0] != '.' && sfp__path_is_dir(path))
            status = sfp__names_add(&found, list[i], strlen(list[i]), &number, err);
        if (status != SFP_OK)
            (void)sfp__fail_prefix(err, status, "%s", s->base.path);
        sfp__free(path);
    }
    if (status == SFP_OK)
        status = sfp__names_sort(&found, &new_of, err);
    for (int i = 0; i < found.count && status == SFP_OK; i++)
        status = sfp__names_add(&names, found.name[i], strlen(found.name[i]), &number, err);
    if (status == SFP_OK)
        status = sfp__names_reserve(&names, err);
    if (status == SFP_OK) {
        s->classes = names;
        names = (sfp_names){0};
        s->base.class_names = s->classes.name;
        s->base.classes = s->classes.count;
    }
    sfp__free(new_of);
    sfp__names_done(&names);
    sfp__names_done(&found);
    free_list(list, n);
    return status;
}

static int compare_pending(const void *a, const void *b)
{
    return sfp__natural_compare(((const pending *)a)->path, ((const pending *)b)->path);
}

static sfp_status open_dir(const char *path, const sfp_source_options *opt, sfp_source **out, sfp_error *err)
{
    (void)opt;
    dir_source *s = sfp__calloc(1, sizeof *s);
    if (!s)
        return sfp__fail_nomem(err, sizeof *s);
    s->fd = -1;
    sfp_status status = sfp__source_init(&s->base, &sfp__source_dir, path, err);
    if (status == SFP_OK && !sfp__path_is_dir(path))
        status = sfp__fail(err, SFP_ENOTFOUND, "%s: is no folder, expected one to watch", path);
    if (status == SFP_OK)
        status = find_classes(s, err);
    if (status == SFP_OK)
        status = sfp__dir_labels_init(&s->labels, path, err);
    if (status == SFP_OK) /* nothing came yet that these would be late for */
        status = sfp__dir_labels_read(&s->labels, &s->classes, NULL, NULL, err);
    if (status == SFP_OK && (s->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) < 0)
        status = sfp__fail_errno(err, errno == EMFILE ? SFP_ELIMIT : SFP_EIO, "%s: cannot watch the folder", path);
    if (status == SFP_OK)
        status = watch_folder(s, "", err);
    if (status == SFP_OK)
        status = watch_all(s, err);
    if (status != SFP_OK) {
        close_dir(&s->base);
        return status;
    }
    if (s->last)
        qsort(s->queue, s->last, sizeof *s->queue, compare_pending);
    s->base.keeps_order = true;
    s->base.name = name_of;
    s->base.next = next;
    s->base.origin = origin;
    s->base.leave_out = leave_out;
    s->base.marks = MARKS_KEPT;
    s->base.pause = 1;
    s->base.close = close_dir;
    *out = &s->base;
    return SFP_OK;
}

const sfp_source_kind sfp__source_dir = {
    .name = "dir",
    .summary = "a folder that is watched: pictures as they are put into it",
    .live = true,
    .open = open_dir,
};
