/* dir:PATH - a folder that others put pictures into, watched (dir_watch.h says what comes when, and how it ends).
 *
 * PATH/CLASS/file is labelled by its folder, PATH/file is not labelled; what lies
 * deeper does not come. A folder whose name cannot be a class's (no UTF-8) is
 * remarked upon, and its pictures are not labelled.
 *
 * Classes: those named in PATH/classes.txt, a line each, in its order, then the
 * folders there at the beginning; a folder that appears later under another name
 * becomes a class with its first picture.
 *
 * A label may come after its picture (or before it): a line NAME,LABEL in
 * PATH/labels.csv (dir_labels.h) labels PATH/NAME; and an unlabelled picture that
 * is moved or linked into the folder of a class comes again, with that label and
 * the same identity.
 *
 * A file that cannot be read when its turn comes (taken away again, empty, found
 * while it was being written and not done at the end) is told as lost: what
 * others do in the folder must not end a run. */
#include "base/mem.h"
#include "stream/dir_labels.h"
#include "stream/dir_watch.h"
#include "stream/source_internal.h"

#include <string.h>

enum { MARKS_KEPT = 1 << 16 };

typedef struct dir_source {
    sfp_source base;
    sfp_dir_watch watch;
    sfp_names classes; /* reserved: other threads read the list */
    sfp_dir_labels labels;
    sfp_dir_item given; /* what came last */
} dir_source;

/* -------------------------------------------------------------------- what comes */

static sfp_status late_label(void *ctx, const char *name, int32_t label, sfp_error *err)
{
    char *path = sfp__strdup(name);
    sfp_status status = path ? sfp__dir_watch_put(ctx, (sfp_dir_item){.path = path, .label = label}, err) : sfp__fail_nomem(err);
    if (status != SFP_OK)
        sfp__free(path);
    return status;
}

/* What is new in labels.csv. The first line that is none is remarked upon. */
static sfp_status read_labels(dir_source *s, sfp_dir_label_fn fn, sfp_error *err)
{
    bool good = s->labels.skipped == 0;
    sfp_status status = sfp__dir_labels_read(&s->labels, &s->classes, fn, &s->watch, err);
    if (good && s->labels.skipped)
        sfp__source_remark(&s->base, "%.400s:%llu: is passed over, expected NAME,LABEL; so are others like it", s->labels.path,
                           (unsigned long long)s->labels.first_skipped);
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
    if (status != SFP_OK)
        sfp__source_remark(&s->base, "%.200s: a folder whose pictures are not labelled: %.200s", s->base.path, why.message);
    s->base.classes = s->classes.count;
    return SFP_OK;
}

/* What is in s->given. */
static sfp_status give(dir_source *s, sfp_record *record, sfp_picture *out, sfp_error *err)
{
    *record = sfp__record_none();
    record->label = s->given.label;
    if (s->given.label >= 0) {
        *out = (sfp_picture){0};
        return SFP_OK;
    }
    char *path = sfp__path_join(s->base.path, s->given.path);
    sfp_status status = !path                 ? sfp__fail_nomem(err)
                        : s->given.unfinished ? sfp__fail(err, SFP_EIO, "%s: was still being written when the stream ended", path)
                                              : sfp__picture_read(path, out, err);
    sfp__free(path);
    if (status == SFP_OK && (status = class_of(s, s->given.path, &record->label, err)) != SFP_OK)
        sfp__picture_done(out);
    s->base.lost = status != SFP_OK && status != SFP_ENOMEM;
    return status;
}

static sfp_status next(sfp_source *base, sfp_record *record, sfp_picture *out, bool *end, sfp_error *err)
{
    dir_source *s = (dir_source *)base;
    base->lost = false;
    for (bool over = false;;) { /* once more when it is: a last line of labels.csv counts only then */
        *end = base->stop && atomic_load(base->stop);
        if (*end)
            return SFP_OK;
        s->labels.ended = over;
        sfp_status status = read_labels(s, late_label, err);
        base->classes = s->classes.count;
        if (status != SFP_OK)
            return status;
        sfp_dir_item item;
        bool some;
        if ((status = sfp__dir_watch_take(&s->watch, &item, &some, err)) != SFP_OK)
            return status;
        if (some) {
            sfp__free(s->given.path);
            s->given = item;
            return give(s, record, out, err);
        }
        *end = over;
        over = sfp__dir_watch_over(&s->watch);
        if (*end || (!over && (status = sfp__dir_watch_wait(&s->watch, err)) != SFP_OK))
            return status;
    }
}

static void origin(const sfp_source *base, sfp_origin *out)
{
    const sfp_dir_item *p = &((const dir_source *)base)->given;
    *out = (sfp_origin){.name = p->path, .identity = p->identity, .mark = p->mark, .changed = p->changed};
}

static sfp_status leave_out(sfp_source *base, const sfp_left_out *what, sfp_error *err)
{
    return sfp__dir_watch_leave_out(&((dir_source *)base)->watch, what, err);
}

static const char *name_of(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    const sfp_dir_item *given = &((const dir_source *)s)->given;
    (void)i; /* a stream has no numbers: the one given last */
    return sfp__printable(given->path ? given->path : s->path, buf, size);
}

static const char *where_of(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    const sfp_dir_item *given = &((const dir_source *)s)->given;
    char *path = given->path ? sfp__path_join(s->path, given->path) : NULL;
    const char *where = path ? sfp__printable(path, buf, size) : name_of(s, i, buf, size);
    sfp__free(path);
    return where;
}

/* -------------------------------------------------------------- opening, closing */

static void close_dir(sfp_source *base)
{
    dir_source *s = (dir_source *)base;
    sfp__dir_watch_done(&s->watch);
    sfp__free(s->given.path);
    sfp__dir_labels_done(&s->labels);
    base->class_names = NULL; /* they are those of s->classes */
    base->classes = 0;
    sfp__names_done(&s->classes);
    sfp__source_done(base);
    sfp__free(s);
}

/* classes.txt, or else nothing; then the folders that are watched. */
static sfp_status find_classes(dir_source *s, sfp_error *err)
{
    sfp_names names = {0}, found = {0};
    char *path = sfp__path_join(s->base.path, "classes.txt");
    int32_t number, *new_of = NULL;
    sfp_error why = {0};
    sfp_status status = path ? sfp__names_read(path, &names, &why) : sfp__fail_nomem(&why);
    sfp__free(path);
    if (status == SFP_ENOTFOUND)
        status = SFP_OK;
    else if (status != SFP_OK && err)
        *err = why;
    if (status == SFP_OK)
        status = sfp__dir_watch_names(&s->watch, &found, err);
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
    return status;
}

static sfp_status open_dir(const char *path, const sfp_source_options *opt, sfp_source **out, sfp_error *err)
{
    (void)opt;
    dir_source *s = sfp__calloc(1, sizeof *s);
    if (!s)
        return sfp__fail_nomem(err);
    sfp_status status = sfp__source_init(&s->base, &sfp__source_dir, path, err);
    if (status == SFP_OK && !sfp__path_is_dir(path))
        status = sfp__fail(err, SFP_ENOTFOUND, "%s: is no folder, expected one to watch", path);
    if (status == SFP_OK)
        status = sfp__dir_watch_open(&s->watch, &s->base, err);
    if (status == SFP_OK)
        status = find_classes(s, err);
    if (status == SFP_OK)
        status = sfp__dir_labels_init(&s->labels, path, err);
    if (status == SFP_OK) /* nothing came yet that these would be late for */
        status = read_labels(s, NULL, err);
    if (status != SFP_OK) {
        close_dir(&s->base);
        return status;
    }
    s->base.keeps_order = true;
    s->base.name = name_of;
    s->base.where = where_of;
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
