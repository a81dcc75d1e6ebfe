/* watch:PATH - a watched directory into which other programs put images (dir.h describes order and end of the stream).
 *
 * PATH/CLASS/file has the label CLASS, PATH/file is unlabelled; deeper files are ignored. A directory whose name cannot be that
 * of a class (not UTF-8) causes a warning, and its images are unlabelled.
 *
 * Classes are those in PATH/classes.txt, one per line, in its order, then the directories that exist at the beginning. A
 * directory that appears later under another name becomes a class with its first image.
 *
 * The store of samples identifies a sample by its path and its bytes. A file whose path, size and times are stored is not read again. If a file
 * has the bytes of a sample whose own file does not exist any more, it was moved: the sample gets the label of its new place, which corrects the
 * label with which it was learned. A line NAME,LABEL in PATH/labels.csv (dir.h) also sets or corrects the label, before or after the image arrives.
 * An unlabelled image that is linked or copied into the directory of a class gets this label.
 *
 * watch:PATH,sync: the learned samples follow the directory, also after deletions (dir_sync.c). The store keeps images, because a deleted image is
 * needed to forget its sample. Samples may be submitted, too.
 *
 * A file that cannot be read when it is its turn (empty, or still open for writing at the end) is skipped. A file that was removed before is not a
 * sample. Changes by other programs in the directory must not end a run. If memory, descriptors or the disk fail, the file is read again. After
 * several attempts sfp__source_settle decides whether the file is skipped or the source fails. */
#include "stream/sources/dir.h"

#include "stream/submitted.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SAME_BYTES_MAX = 64 }; /* samples with the same bytes among which a moved file is searched */

typedef struct dir_source {
    sfp_source base;
    sfp__source_live live;
    sfp__dir_watch watch;
    sfp__names classes; /* with reserved memory, because other threads read the list */
    sfp__dir_labels labels;
    sfp__store *store, *own_store; /* own_store: created by a source that is used without a run; else NULL */
    int64_t pending;       /* waiting samples of an earlier process up to this id were delivered; INT64_MAX: all of them */
    uint64_t redeliveries; /* counter of the store when waiting samples were last searched */
    sfp__dir_item last;    /* the last item */
    uint64_t last_id;      /* its sample, if last_stored */
    bool last_stored;
    bool gone;           /* a warning about a file that was removed before it was read has been given */
    sfp__source_ops ops; /* sync: dir_ops, with images */
    sfp__offers offers;  /* likewise: submitted samples */
    sfp__dir_sync *sync; /* NULL: not in sync */
    int failed; /* attempts at reading it that failed because of memory, descriptors or the disk; above 0: it is the next item, too */
} dir_source;

/* ----------------------------------------------------------------------- labels */

/* Finds the number of a class. -1: the name is not valid for a class; there is a warning. */
static sfp_status number_of(dir_source *s, const char *name, size_t n, int32_t *out, sfp_error *err)
{
    sfp_error why;
    OWNED char *given = NULL, *class = NULL;
    *out = -1;
    TRY(sfp__text_new(&given, err, "%.*s", (int)n, name));
    TRY(sfp__store_class(s->store, given, &class, err));
    sfp_status status = sfp__names_add(&s->classes, class ? class : name, class ? strlen(class) : n, out, &why);
    if (status == SFP_ENOMEM)
        return sfp__fail(err, status, "%s", why.message);
    if (status != SFP_OK)
        sfp__source_warn_live(&s->base, "%.200s: images of a directory are not labelled: %.200s", s->base.path, why.message);
    s->base.classes = s->classes.count;
    return SFP_OK;
}

/* Finds the class of a file: that of its line in labels.csv, else that of its directory; -1: none. */
static sfp_status class_of(dir_source *s, const char *path, int32_t *out, sfp_error *err)
{
    const char *slash = strchr(path, '/');
    OWNED char *line = NULL;
    *out = -1;
    TRY(sfp__store_line(s->store, path, &line, err));
    if (line)
        return number_of(s, line, strlen(line), out, err);
    return slash ? number_of(s, path, (size_t)(slash - path), out, err) : SFP_OK;
}

/* Processes a line of labels.csv. If the sample has arrived, its label and the position in the file are stored in one transaction, so that neither is
 * lost. */
static sfp_status take_line(void *ctx, const char *name, const char *label, sfp_error *err)
{
    dir_source *s = ctx;
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    bool changed, found, moved;
    uint64_t older;
    int32_t class;
    TRY(number_of(s, label, strlen(label), &class, err));
    label = class >= 0 ? s->classes.name[class] : label;
    TRY(sfp__store_set_line(s->store, name, label, &changed, err));
    if (class < 0 || (s->labels.again && !changed))
        return SFP_OK;
    TRY(sfp__store_find(s->store, name, &row, &found, err));
    if (!found || sfp__digest_equal(&row.digest, &(sfp__digest){0}) || /* the image was never read */
        (row.label && strcmp(row.label, label) == 0))
        return SFP_OK;
    TRY(sfp__store_decision(s->store, row.id, &older, &moved, err));
    if (!s->labels.again && s->labels.line_offset < older)
        return SFP_OK;
    OWNED char *path = sfp__strdup(name);
    TRY(sfp__check_memory(path, err));
    TRY(sfp__store_label(s->store, row.id, label, err));
    if (s->pending < (int64_t)row.id && row.id < sfp__store_first_new_id(s->store))
        return SFP_OK; /* the image is delivered later, with this label */
    TRY(sfp__dir_queue_put(&s->watch.queue, (sfp__dir_item){.path = path, .at = s->watch.queue.now(), .labelled = true}, err));
    path = NULL;
    return SFP_OK;
}

/* Reads new lines of labels.csv and warns about the first one that is skipped. */
static sfp_status read_labels(dir_source *s, sfp_error *err)
{
    bool good = s->labels.skipped == 0;
    uint64_t before = s->labels.at.offset;
    uint32_t crc = s->labels.at.crc;
    sfp_status status = sfp__dir_labels_read(&s->labels, take_line, s, err);
    if (good && s->labels.skipped)
        sfp__source_warn_live(&s->base, "%.400s:%llu: line was skipped, expected NAME,LABEL; further such lines are skipped too",
                              s->labels.path, (unsigned long long)s->labels.first_skipped);
    TRY(status);
    if (s->labels.in_long_line || (s->labels.at.offset == before && s->labels.at.crc == crc))
        return SFP_OK; /* a position inside a line must not be stored: a resumed run could not continue there */
    TRY(sfp__store_set_labels_position(s->store, &s->labels.at, s->labels.again, err));
    s->labels.again = false;
    return SFP_OK;
}

/* ------------------------------------------------------------------- delivering */

sfp__file_stamp sfp__dir_stamp(const struct stat *st)
{
    return (sfp__file_stamp){.size = st->st_size,
                             .modified = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
                             .changed = (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec};
}

bool sfp__dir_same_stamp(const sfp__file_stamp *a, const sfp__file_stamp *b)
{
    return a->size == b->size && a->modified == b->modified && a->changed == b->changed;
}

/* *out: there is no file any more at the path of the sample. */
static sfp_status is_gone(const dir_source *s, const char *name, bool *out, sfp_error *err)
{
    struct stat st;
    OWNED char *path = NULL;
    TRY(sfp__path_make(s->base.path, name, &path, err));
    *out = lstat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
    return SFP_OK;
}

/* Finds the sample to which a file with these bytes belongs: one whose own file does not exist any more (it was moved here) or, if the file has a
 * label, one without a label. If very many samples have the same bytes, such as black frames, only the newest are examined. */
static sfp_status find_moved(const dir_source *s, const sfp__digest *digest, bool labelled, sfp__stored *out, bool *found,
                             bool *gone, sfp_error *err)
{
    uint64_t before = UINT64_MAX;
    for (int i = 0;; i++) {
        OWNED_BY(sfp__stored_done) sfp__stored row = {0};
        TRY(sfp__store_find_bytes(s->store, digest, before, &row, found, err));
        *found = *found && i < SAME_BYTES_MAX;
        if (!*found)
            return SFP_OK;
        TRY(is_gone(s, row.name, gone, err));
        if (*gone || (labelled && !row.label && row.standing == SFP__WAITING)) {
            *out = row;
            row = (sfp__stored){0};
            return SFP_OK;
        }
        before = row.id;
    }
}

/* Decides what a file that was read is: a new sample, a correction of a sample, or nothing new (*skip). */
static sfp_status identify(dir_source *s, const sfp__file_stamp *stamp, const sfp__digest *digest, int32_t *label, bool *skip,
                           sfp_error *err)
{
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    const char *path = s->last.path, *class;
    bool found, forgotten, gone = false, older = false;
    uint64_t lines;
    *skip = true;
    TRY(sfp__store_was_forgotten(s->store, digest, &forgotten, err));
    if (forgotten)
        return SFP_OK;
    TRY(class_of(s, path, label, err));
    class = *label >= 0 ? s->classes.name[*label] : NULL;
    TRY(sfp__store_find(s->store, path, &row, &found, err));
    bool stays = found && sfp__digest_equal(&row.digest, digest); /* the same image: only the times of the file have changed */
    if (found && !stays && s->sync)
        TRY(sfp__dir_sync_replaced(s->sync, s->store, &row, err));
    if (!stays) {
        sfp__stored_done(&row);
        TRY(find_moved(s, digest, class != NULL, &row, &found, &gone, err));
    }
    if (found && !stays)
        TRY(sfp__store_decision(s->store, row.id, &lines, &older, err));
    bool changes = found && !stays && !older && class && !(row.label && strcmp(row.label, class) == 0);
    /* the sample may have been delivered when its file was being moved, so that it was not read */
    bool open = found && !stays &&
                (row.standing == SFP__UNREADABLE || row.standing == SFP__DROPPED ||
                 (row.standing == SFP__WAITING && (row.label || !row.predicted)));
    *skip = found && !changes && !open;
    if (found && (!class || older) && row.label)
        TRY(number_of(s, row.label, strlen(row.label), label, err));
    if (found) {
        if (gone || s->sync || strcmp(row.name, path) == 0)
            TRY(sfp__store_moved(s->store, row.id, path, stamp, changes ? class : NULL, err));
        else if (!stays)
            TRY(sfp__store_add_name(s->store, row.id, path, changes ? class : NULL, err));
        s->last_id = row.id;
        s->last.labelled = true;
    } else {
        TRY(sfp__store_add(s->store, path, stamp, digest, class, &s->last_id, err));
    }
    s->last_stored = true;
    return SFP_OK;
}

/* Reads an image that the store keeps; *found false: it does not. */
static sfp_status read_kept(const dir_source *s, uint64_t id, sfp__raw_image *out, bool *found, sfp_error *err)
{
    sfp_status status = sfp__store_image(s->store, id, &out->bytes, &out->size, err);
    out->kind = SFP__RAW_IMAGE_ENCODED;
    *found = !status;
    return status == SFP_ENOTFOUND ? SFP_OK : status;
}

/* Fails if the file of a sample that is delivered again has other bytes than before. */
static sfp_status check_bytes(dir_source *s, const char *path, const sfp__digest *digest, int32_t *label, bool *skip,
                              sfp_error *err)
{
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    TRY(sfp__store_get(s->store, s->last_id, &row, err));
    if (row.label)
        TRY(number_of(s, row.label, strlen(row.label), label, err));
    *skip = row.standing != SFP__WAITING || !row.name;
    if (*skip || sfp__digest_equal(&row.digest, digest))
        return SFP_OK;
    return sfp__fail(err, SFP_EFORMAT, "%s: the file was replaced before its sample was learned", path);
}

/* Reads the image of s->last. *skip: the file contains nothing new. */
static sfp_status read_given(dir_source *s, sfp_record *record, sfp__raw_image *out, bool *skip, sfp_error *err)
{
    OWNED_BY(sfp__raw_image_done) sfp__raw_image p = {0};
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    OWNED char *path = NULL;
    struct stat st = {0};
    bool found = false;
    TRY(sfp__path_make(s->base.path, s->last.path, &path, err));
    bool there = stat(path, &st) == 0;
    sfp__file_stamp stamp = sfp__dir_stamp(&st);
    if (!s->last_stored) {
        TRY(sfp__store_find(s->store, s->last.path, &row, &found, err));
        bool gone = false;
        if (!there)
            TRY(is_gone(s, s->last.path, &gone, err));
        if (gone && !found && !s->gone) /* not an error: if the file was moved, it is delivered under its new name */
            sfp__source_warn_live(&s->base, "%.400s: removed or moved before it was read; further such files are not reported",
                                  path);
        s->gone |= gone && !found;
        *skip = gone || (found && there && sfp__dir_same_stamp(&row.stamp, &stamp));
        if (*skip)
            return SFP_OK;
    }
    bool kept = false;
    if (s->sync && s->last_stored)
        TRY(read_kept(s, s->last_id, &p, &kept, err));
    sfp_status status = kept ? SFP_OK
                        : s->last.unfinished
                            ? sfp__fail(err, SFP_EFORMAT, "%s: file was still open for writing when the stream ended", path)
                            : sfp__raw_image_read(path, &p, err);
    if (sfp__is_machine_error(status))
        return status;
    if (status) { /* it is counted once; a correction of it cannot be made */
        *skip = !s->last_stored && found && row.standing == SFP__UNREADABLE && sfp__dir_same_stamp(&row.stamp, &stamp);
        return status;
    }
    sfp__digest digest = sfp__digest_bytes((sfp__digest){0}, p.bytes, p.size);
    TRY(s->last_stored ? check_bytes(s, path, &digest, &record->label, skip, err)
                       : identify(s, &stamp, &digest, &record->label, skip, err));
    if (s->sync && !kept && s->last_stored)
        TRY(sfp__store_keep_image(s->store, s->last_id, p.bytes, p.size, err));
    *out = p;
    p.bytes = NULL;
    return SFP_OK;
}

/* Adds a sample to the store for an image that could not be read. */
static sfp_status store_lost(dir_source *s, sfp_error *err)
{
    struct stat st = {0};
    OWNED char *path = NULL;
    if (s->last_stored)
        return SFP_OK;
    TRY(sfp__path_make(s->base.path, s->last.path, &path, err));
    (void)stat(path, &st);
    sfp__file_stamp stamp = sfp__dir_stamp(&st);
    TRY(sfp__store_add(s->store, s->last.path, &stamp, NULL, NULL, &s->last_id, err));
    s->last_stored = true;
    return SFP_OK;
}

/* Reads the last item and fills the record. *skip: there is nothing to deliver. */
static sfp_status deliver(dir_source *s, sfp_record *record, sfp__raw_image *out, bool *skip, sfp_error *err)
{
    *record = sfp__record_none();
    *skip = false;
    sfp_status status = read_given(s, record, out, skip, err);
    if (!sfp__is_machine_error(status) || ++s->failed >= SFP__READ_ATTEMPTS)
        status = sfp__source_settle(&s->base, status, err);
    s->failed = sfp__is_machine_error(status) ? s->failed : 0;
    if (status && *skip)
        return SFP_OK;
    s->live.lost = status != SFP_OK && !s->failed;
    if (s->live.lost && s->last_stored && s->last.labelled)
        sfp__source_warn_live(&s->base, "%.400s; the new label of its sample is not learned", err->message);
    if (s->live.lost)
        TRY(store_lost(s, NULL));
    if (s->failed)
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    return status;
}

/* Takes the next item: a sample that an earlier process has left, or a file of the queue. */
static sfp_status take_item(dir_source *s, bool *some, sfp_error *err)
{
    sfp__dir_item item = {0};
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    uint64_t redeliveries = sfp__store_redeliveries(s->store);
    if (redeliveries != s->redeliveries)
        s->pending = -1;
    s->redeliveries = redeliveries;
    if (s->pending < INT64_MAX) {
        TRY(sfp__store_next_pending(s->store, s->pending, &row, some, err));
        s->pending = *some ? (int64_t)row.id : INT64_MAX;
        if (*some)
            item = (sfp__dir_item){.path = TAKE(row.name), .labelled = row.predicted || row.learned};
    }
    for (uint64_t id; !item.path && s->sync && sfp__offers_take(&s->offers, false, &id);) {
        sfp__stored_done(&row);
        TRY(sfp__store_get(s->store, id, &row, err));
        item = (sfp__dir_item){.path = TAKE(row.name), .labelled = true};
        *some = true;
    }
    bool left = item.path != NULL;
    if (!left)
        TRY(sfp__dir_queue_take(&s->watch.queue, &item, some, err));
    if (!*some)
        return SFP_OK;
    sfp__free(s->last.path);
    s->last = item;
    s->last_stored = left;
    s->last_id = row.id;
    if (item.labelled && !left) {
        TRY(sfp__store_find(s->store, item.path, &row, &s->last_stored, err));
        s->last_id = row.id;
    }
    return SFP_OK;
}

static sfp_status next(sfp_source *base, sfp_record *record, sfp__raw_image *out, bool *end, sfp_error *err)
{
    dir_source *s = (dir_source *)base;
    bool some, skip;
    s->live.lost = false;
    if (!s->store) {
        TRY(sfp__store_open(NULL, &s->own_store, err));
        s->store = s->own_store;
    }
    for (bool over = false;;) { /* one more round at the end, in which a last line of labels.csv without line end is accepted */
        *end = s->live.stop && atomic_load(s->live.stop);
        if (*end)
            return SFP_OK;
        s->labels.ended = over;
        TRY(read_labels(s, err));
        some = s->failed > 0;
        bool paused = s->sync && sfp__offers_paused(&s->offers);
        if (!some && !paused)
            TRY(take_item(s, &some, err));
        if (some) {
            sfp_status status = deliver(s, record, out, &skip, err);
            if (status || !skip)
                return status;
            sfp__raw_image_done(out);
            continue;
        }
        if (over && s->watch.removed) /* a directory that was unmounted is a failure, not the end of the stream */
            return sfp__fail(err, SFP_ENOTFOUND, "%s: the directory was removed, moved or unmounted", base->path);
        if (s->sync && !paused)
            TRY(sfp__dir_sync_deletions(s->sync, s->store, &s->watch, over, err));
        *end = over && !paused;
        if (*end)
            return SFP_OK;
        over = sfp__dir_watch_over(&s->watch);
        if (!over)
            TRY(sfp__dir_watch_wait(&s->watch, err));
    }
}

static void origin(const sfp_source *base, sfp__origin *out)
{
    const dir_source *s = (const dir_source *)base;
    *out = (sfp__origin){
        .name = s->last.path, .stored = s->last_stored, .id = s->last_id, .urgent = s->last.labelled, .at = s->last.at};
}

static sfp_status set_store(sfp_source *base, sfp__store *store, sfp_error *err)
{
    dir_source *s = (dir_source *)base;
    s->store = store;
    s->pending = -1;
    return sfp__store_labels_position(store, &s->labels.at, err);
}

static sfp_status decided(sfp_source *base, uint64_t id, const char *name, sfp_error *err)
{
    const dir_source *s = (const dir_source *)base;
    struct stat st;
    bool moved;
    TRY(is_gone(s, name, &moved, err));
    return sfp__store_decide(s->store, id, stat(s->labels.path, &st) == 0 ? (uint64_t)st.st_size : 0, moved, err);
}

/* Reads the image of a sample that may have been deleted. */
static sfp_status image_of(sfp_source *base, const sfp__stored *row, sfp__raw_image *out, sfp_error *err)
{
    OWNED char *path = NULL;
    bool kept;
    TRY(read_kept((const dir_source *)base, row->id, out, &kept, err));
    if (kept)
        return SFP_OK;
    TRY(sfp__path_make(base->path, row->name, &path, err));
    if (access(path, F_OK) != 0)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: deleted, and its image is not kept any more (--keep-images)", path);
    TRY(sfp__raw_image_read(path, out, err));
    sfp__digest digest = sfp__digest_bytes((sfp__digest){0}, out->bytes, out->size);
    return sfp__digest_equal(&digest, &row->digest)
               ? SFP_OK
               : sfp__fail(err, SFP_EINVAL, "%s: the file has other bytes than the sample, expected the same image", path);
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
    sfp__store_close(s->own_store);
    if (s->sync)
        sfp__offers_done(&s->offers);
    sfp__free(s->sync);
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
    .set_store = set_store,
    .decided = decided,
    .pauses = true,
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
    OWNED char *watched = NULL;
    bool directory = false, sync = false;
    TRY(sfp__dir_sync_parse(path, &watched, &sync, err));
    path = watched;
    TRY(sfp__source_create(sizeof(dir_source), &sfp__source_dir, &dir_ops, path, &base, err));
    dir_source *s = (dir_source *)base;
    base->live = &s->live;
    base->keeps_order = true;
    if (sync) {
        TRY(sfp__dir_sync_create(base, &s->sync, err));
        sfp__offers_init(&s->offers);
        s->live.offers = &s->offers;
        s->ops = dir_ops;
        s->ops.image = image_of;
        base->ops = &s->ops;
    }
    TRY(sfp__path_is_dir(path, &directory, err));
    if (!directory)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: %s, expected a directory to watch", path,
                         access(path, F_OK) == 0 ? "not a directory" : strerror(errno));
    TRY(sfp__dir_watch_open(&s->watch, base, sync, err));
    TRY(find_classes(s, err));
    s->pending = INT64_MAX;
    TRY(sfp__dir_labels_init(&s->labels, path, err));
    *out = TAKE(base);
    return SFP_OK;
}

const sfp__source_kind sfp__source_dir = {
    .name = "watch",
    .alias = "dir",
    .summary = "a watched directory; watch:PATH,sync forgets what is deleted",
    .live = true,
    .walks = true,
    .open = open_dir,
};
