/* watch:PATH - a watched directory into which others put images (dir.h describes order and end of the stream).
 *
 * PATH/CLASS/file has the label CLASS, PATH/file is unlabelled; deeper files are ignored. A directory whose name cannot be that
 * of a class (not UTF-8) causes a warning, and its images are unlabelled.
 *
 * Classes are those in PATH/classes.txt, one per line, in its order, then the directories that exist at the beginning. A
 * directory that appears later under another name becomes a class with its first image.
 *
 * A label may arrive after its image, or before it: a line NAME,LABEL in PATH/labels.csv (dir.h) labels PATH/NAME. An unlabelled
 * image that is moved or linked into the directory of a class is delivered again, with that label and the same file key.
 *
 * A file that cannot be read in its turn (removed, empty, or still open for writing at the end) is skipped. Changes by other
 * programs in the directory must not end a run. If memory, descriptors or the disk fail, the file is read again. After several
 * attempts sfp__source_settle decides: the file is skipped, or the source fails. */
#include "stream/sources/dir.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LABELLED_KEYS_KEPT = 1 << 16 };

typedef struct dir_source {
    sfp_source base;
    sfp__source_live live;
    sfp__dir_watch watch;
    sfp__names classes; /* with reserved memory, because other threads read the list */
    sfp__dir_labels labels;
    sfp__dir_item last; /* the last item */
    int failed; /* attempts at reading it that failed because of memory, descriptors or the disk; above 0: it is the next item, too */
} dir_source;

/* ------------------------------------------------------------------- delivering */

static sfp_status late_label(void *ctx, const char *name, int32_t label, sfp_error *err)
{
    OWNED char *path = sfp__strdup(name);
    TRY(sfp__check_memory(path, err));
    TRY(sfp__dir_queue_put(ctx, (sfp__dir_item){.path = path, .label = label}, err));
    path = NULL;
    return SFP_OK;
}

/* Reads new lines of labels.csv and warns about the first one that is skipped. */
static sfp_status read_labels(dir_source *s, sfp__dir_label_fn fn, sfp_error *err)
{
    bool good = s->labels.skipped == 0;
    sfp_status status = sfp__dir_labels_read(&s->labels, &s->classes, fn, &s->watch.queue, err);
    if (good && s->labels.skipped)
        sfp__source_warn_live(&s->base, "%.400s:%llu: line was skipped, expected NAME,LABEL; further such lines are skipped too",
                              s->labels.path, (unsigned long long)s->labels.first_skipped);
    return status;
}

/* Finds the class of the file at `path`: that of its directory, or its label in labels.csv; -1: none, also if the directory
 * cannot name a class. */
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
    if (status != SFP_OK)
        sfp__source_warn_live(&s->base, "%.200s: images of a directory are not labelled: %.200s", s->base.path, why.message);
    s->base.classes = s->classes.count;
    return SFP_OK;
}

/* Reads the image of s->last. */
static sfp_status read_given(dir_source *s, sfp_record *record, sfp__raw_image *out, sfp_error *err)
{
    OWNED_BY(sfp__raw_image_done) sfp__raw_image p = {0};
    OWNED char *path = NULL;
    TRY(sfp__path_make(s->base.path, s->last.path, &path, err));
    if (s->last.unfinished)
        return sfp__fail(err, SFP_EFORMAT, "%s: file was still open for writing when the stream ended", path);
    TRY(sfp__raw_image_read(path, &p, err));
    TRY(class_of(s, s->last.path, &record->label, err));
    *out = p;
    p.bytes = NULL;
    return SFP_OK;
}

static sfp_status deliver(dir_source *s, sfp_record *record, sfp__raw_image *out, sfp_error *err)
{
    *record = sfp__record_none();
    record->label = s->last.label;
    if (s->last.label >= 0) {
        *out = (sfp__raw_image){0};
        return SFP_OK;
    }
    sfp_status status = read_given(s, record, out, err);
    if (!sfp__is_machine_error(status) || ++s->failed >= SFP_READ_ATTEMPTS)
        status = sfp__source_settle(&s->base, status, err);
    s->failed = sfp__is_machine_error(status) ? s->failed : 0;
    s->live.lost = status != SFP_OK && !s->failed;
    if (s->failed)
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    return status;
}

static sfp_status next(sfp_source *base, sfp_record *record, sfp__raw_image *out, bool *end, sfp_error *err)
{
    dir_source *s = (dir_source *)base;
    s->live.lost = false;
    for (bool over = false;;) { /* one more round at the end: only then the last line of labels.csv counts without its end */
        *end = s->live.stop && atomic_load(s->live.stop);
        if (*end)
            return SFP_OK;
        if (s->failed)
            return deliver(s, record, out, err);
        s->labels.ended = over;
        sfp_status status = read_labels(s, late_label, err);
        base->classes = s->classes.count;
        TRY(status);
        sfp__dir_item item;
        bool some;
        TRY(sfp__dir_queue_take(&s->watch.queue, &item, &some, err));
        if (some) {
            sfp__free(s->last.path);
            s->last = item;
            return deliver(s, record, out, err);
        }
        if (over && s->watch.removed) /* a share that was unmounted is not the end of its stream */
            return sfp__fail(err, SFP_ENOTFOUND, "%s: the directory was removed, moved or unmounted", base->path);
        *end = over;
        if (*end)
            return SFP_OK;
        over = sfp__dir_watch_over(&s->watch);
        if (!over)
            TRY(sfp__dir_watch_wait(&s->watch, err));
    }
}

static const char *origin(const sfp_source *base, sfp__origin *out)
{
    const dir_source *s = (const dir_source *)base;
    *out = s->last.origin;
    return s->last.path;
}

static sfp_status set_resume_filter(sfp_source *base, const sfp__resume_filter *what, sfp_error *err)
{
    return sfp__dir_queue_set_resume_filter(&((dir_source *)base)->watch.queue, what, err);
}

static const char *name_of(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    const sfp__dir_item *last = &((const dir_source *)s)->last;
    (void)i; /* a live source has no numbers: the last item */
    return sfp__printable(last->path ? last->path : s->path, buf, size);
}

static const char *display_name_of(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    const sfp__dir_item *last = &((const dir_source *)s)->last;
    OWNED char *path = NULL;
    if (!last->path || sfp__path_make(s->path, last->path, &path, NULL))
        return name_of(s, i, buf, size);
    return sfp__printable(path, buf, size);
}

/* -------------------------------------------------------------- opening, closing */

static void close_dir(sfp_source *base)
{
    dir_source *s = (dir_source *)base;
    sfp__dir_watch_done(&s->watch);
    sfp__free(s->last.path);
    sfp__dir_labels_done(&s->labels);
    base->class_names = NULL; /* the list belongs to s->classes */
    base->classes = 0;
    sfp__names_done(&s->classes);
}

static const sfp__source_ops dir_ops = {
    .name = name_of,
    .display_name = display_name_of,
    .next = next,
    .origin = origin,
    .set_resume_filter = set_resume_filter,
    .labelled_keys = LABELLED_KEYS_KEPT,
    .pause = 1,
    .close = close_dir,
};

/* Reads classes.txt if it exists, then adds the watched directories. */
static sfp_status find_classes(dir_source *s, sfp_error *err)
{
    OWNED_BY(sfp__names_done) sfp__names found = {0};
    OWNED int32_t *new_of = NULL;
    OWNED char *path = NULL;
    int32_t number;
    sfp_error why = {0};
    TRY(sfp__path_make(s->base.path, "classes.txt", &path, err));
    sfp_status status = sfp__names_read(path, &s->classes, &why);
    if (status != SFP_OK && status != SFP_ENOTFOUND)
        return sfp__fail(err, status, "%s", why.message);
    TRY(sfp__dir_watch_names(&s->watch, &found, err));
    TRY(sfp__names_sort(&found, &new_of, err));
    for (int i = 0; i < found.count; i++)
        TRY(sfp__names_add(&s->classes, found.name[i], strlen(found.name[i]), &number, err));
    TRY(sfp__names_reserve(&s->classes, err));
    s->base.class_names = s->classes.name;
    s->base.classes = s->classes.count;
    return SFP_OK;
}

static sfp_status open_dir(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    (void)opt;
    OWNED_PTR(sfp__source_close) sfp_source *base = NULL;
    TRY(sfp__source_create(sizeof(dir_source), &sfp__source_dir, &dir_ops, path, &base, err));
    dir_source *s = (dir_source *)base;
    base->live = &s->live;
    base->keeps_order = true;
    bool directory = false;
    TRY(sfp__path_is_dir(path, &directory, err));
    if (!directory)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: %s, expected a directory to watch", path,
                         access(path, F_OK) == 0 ? "not a directory" : strerror(errno));
    TRY(sfp__dir_watch_open(&s->watch, base, err));
    TRY(find_classes(s, err));
    TRY(sfp__dir_labels_init(&s->labels, path, err));
    TRY(read_labels(s, NULL, err)); /* these labels are not late: no image was delivered yet */
    *out = TAKE(base);
    return SFP_OK;
}

const sfp__source_kind sfp__source_dir = {
    .name = "watch",
    .alias = "dir",
    .summary = "a watched directory: images as they are put into it",
    .live = true,
    .walks = true,
    .open = open_dir,
};
