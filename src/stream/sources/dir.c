/* watch:PATH - a directory that others put images into, watched (dir.h says what comes when, and how it ends).
 *
 * PATH/CLASS/file is labelled by its folder, PATH/file is not labelled; what lies
 * deeper does not come. A folder whose name cannot be a class's (no UTF-8) is
 * remarked upon, and its images are not labelled.
 *
 * Classes: those named in PATH/classes.txt, a line each, in its order, then the
 * folders there at the beginning; a folder that appears later under another name
 * becomes a class with its first image.
 *
 * A label may come after its image (or before it): a line NAME,LABEL in
 * PATH/labels.csv (dir.h) labels PATH/NAME; and an unlabelled image that
 * is moved or linked into the folder of a class comes again, with that label and
 * the same identity.
 *
 * A file that cannot be read when its turn comes (taken away again, empty, found
 * while it was being written and not done at the end) is told as lost: what
 * others do in the folder must not end a run. */
#include "stream/sources/dir.h"

enum { LABELLED_KEYS_KEPT = 1 << 16 };

typedef struct dir_source {
    sfp_source base;
    sfp__source_live live;
    sfp__dir_watch watch;
    sfp__names classes; /* reserved: other threads read the list */
    sfp__dir_labels labels;
    sfp__dir_item given; /* what came last */
} dir_source;

/* -------------------------------------------------------------------- what comes */

static sfp_status late_label(void *ctx, const char *name, int32_t label, sfp_error *err)
{
    OWNED char *path = sfp__strdup(name);
    TRY(sfp__check_memory(path, err));
    TRY(sfp__dir_queue_put(ctx, (sfp__dir_item){.path = path, .label = label}, err));
    path = NULL;
    return SFP_OK;
}

/* What is new in labels.csv. The first line that is none is remarked upon. */
static sfp_status read_labels(dir_source *s, sfp__dir_label_fn fn, sfp_error *err)
{
    bool good = s->labels.skipped == 0;
    sfp_status status = sfp__dir_labels_read(&s->labels, &s->classes, fn, &s->watch.queue, err);
    if (good && s->labels.skipped)
        sfp__source_warn_live(&s->base, "%.400s:%llu: is passed over, expected NAME,LABEL; so are others like it", s->labels.path,
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
        sfp__source_warn_live(&s->base, "%.200s: a folder whose images are not labelled: %.200s", s->base.path, why.message);
    s->base.classes = s->classes.count;
    return SFP_OK;
}

/* What is in s->given. */
static sfp_status read_given(dir_source *s, sfp_record *record, sfp__raw_image *out, sfp_error *err)
{
    OWNED_BY(sfp__raw_image_done) sfp__raw_image p = {0};
    OWNED char *path = NULL;
    TRY(sfp__path_make(s->base.path, s->given.path, &path, err));
    if (s->given.unfinished)
        return sfp__fail(err, SFP_EIO, "%s: was still being written when the stream ended", path);
    TRY(sfp__raw_image_read(path, &p, err));
    TRY(class_of(s, s->given.path, &record->label, err));
    *out = p;
    p.bytes = NULL;
    return SFP_OK;
}

static sfp_status give(dir_source *s, sfp_record *record, sfp__raw_image *out, sfp_error *err)
{
    *record = sfp__record_none();
    record->label = s->given.label;
    if (s->given.label >= 0) {
        *out = (sfp__raw_image){0};
        return SFP_OK;
    }
    sfp_status status = read_given(s, record, out, err);
    s->live.lost = status != SFP_OK && status != SFP_ENOMEM;
    return status;
}

static sfp_status next(sfp_source *base, sfp_record *record, sfp__raw_image *out, bool *end, sfp_error *err)
{
    dir_source *s = (dir_source *)base;
    s->live.lost = false;
    for (bool over = false;;) { /* once more when it is: a last line of labels.csv counts only then */
        *end = s->live.stop && atomic_load(s->live.stop);
        if (*end)
            return SFP_OK;
        s->labels.ended = over;
        sfp_status status = read_labels(s, late_label, err);
        base->classes = s->classes.count;
        TRY(status);
        sfp__dir_item item;
        bool some;
        TRY(sfp__dir_queue_take(&s->watch.queue, &item, &some, err));
        if (some) {
            sfp__free(s->given.path);
            s->given = item;
            return give(s, record, out, err);
        }
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
    *out = s->given.origin;
    return s->given.path;
}

static sfp_status set_resume_filter(sfp_source *base, const sfp__resume_filter *what, sfp_error *err)
{
    return sfp__dir_queue_set_resume_filter(&((dir_source *)base)->watch.queue, what, err);
}

static const char *name_of(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    const sfp__dir_item *given = &((const dir_source *)s)->given;
    (void)i; /* a stream has no numbers: the one given last */
    return sfp__printable(given->path ? given->path : s->path, buf, size);
}

static const char *where_of(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    const sfp__dir_item *given = &((const dir_source *)s)->given;
    OWNED char *path = NULL;
    if (!given->path || sfp__path_make(s->path, given->path, &path, NULL))
        return name_of(s, i, buf, size);
    return sfp__printable(path, buf, size);
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
}

static const sfp__source_ops dir_ops = {
    .name = name_of,
    .display_name = where_of,
    .next = next,
    .origin = origin,
    .set_resume_filter = set_resume_filter,
    .labelled_keys = LABELLED_KEYS_KEPT,
    .pause = 1,
    .close = close_dir,
};

/* classes.txt, or else nothing; then the folders that are watched. */
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
    if (!sfp__path_is_dir(path))
        return sfp__fail(err, SFP_ENOTFOUND, "%s: is no folder, expected one to watch", path);
    TRY(sfp__dir_watch_open(&s->watch, base, err));
    TRY(find_classes(s, err));
    TRY(sfp__dir_labels_init(&s->labels, path, err));
    TRY(read_labels(s, NULL, err)); /* nothing came yet that these would be late for */
    *out = TAKE(base);
    return SFP_OK;
}

const sfp__source_kind sfp__source_dir = {
    .name = "watch",
    .alias = "dir",
    .summary = "a watched directory: images as they are put into it",
    .live = true,
    .open = open_dir,
};
