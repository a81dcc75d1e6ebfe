/* watch:PATH,sync: deletions (dir.h). Moved files and renamed directories do not need this file, because dir.c recognises images by their bytes.
 *
 * After a file was deleted or moved away, and once no file waits to be delivered, every sample that came from a file is compared with the directory.
 * This also finds files that were deleted while no run was watching. A moved file is no longer missing then, because its sample already has its
 * new path. To forget a sample, a request is sent to the run, as a command does; but the same bytes may be learned again later. If a file came
 * back before its sample was forgotten, a scan after that finds it. */
#include "stream/sources/dir.h"

#include "base/monotonic.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* Time between two comparisons: at least sweep_seconds, and sweep_share times the duration of the last one. */
static const double sweep_seconds = 0.5, sweep_share = 20;

struct sfp__dir_sync {
    sfp_source *source;
    bool trusted;        /* the image of a sample was found in the directory, so its disk is mounted */
    bool warned;         /* a deletion was refused */
    int64_t asked, last; /* numbers of the first and the last request without an answer; 0: none */
    double due;          /* time of the next comparison */
};

sfp_status sfp__dir_sync_parse(const char *path, char **watched, bool *sync, sfp_error *err)
{
    static const char option[] = ",sync";
    size_t n = strlen(path), end = strlen(option);
    *sync = n > end && strcmp(path + n - end, option) == 0 && access(path, F_OK) != 0;
    return sfp__text_new(watched, err, "%.*s", (int)(*sync ? n - end : n), path);
}

sfp_status sfp__dir_sync_create(sfp_source *source, sfp__dir_sync **out, sfp_error *err)
{
    TRY(sfp__alloc(out, 1, sizeof **out, err));
    (*out)->source = source;
    return SFP_OK;
}

sfp_status sfp__dir_sync_replaced(sfp__dir_sync *s, sfp__store *store, const sfp__stored *row, sfp_error *err)
{
    OWNED char *name = NULL;
    TRY(sfp__text_new(&name, err, "%s#%llu", row->name, (unsigned long long)row->id));
    s->due = 0;
    return sfp__store_moved(store, row->id, name, &row->stamp, NULL, err);
}

/* The samples that came from files. */
typedef struct presence {
    const char *root;
    int there;         /* number of files that exist */
    sfp__strings gone; /* names of the others */
} presence;

static void presence_done(presence *p)
{
    sfp__strings_done(&p->gone);
}

static sfp_status check_sample(void *ctx, const sfp__listed *l, sfp_error *err)
{
    presence *p = ctx;
    OWNED char *path = NULL;
    struct stat st;
    if (l->row->stamp.changed == 0) /* it was submitted */
        return SFP_OK;
    TRY(sfp__path_make(p->root, l->row->name, &path, err));
    if (lstat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR)) {
        p->there++;
        return SFP_OK;
    }
    return sfp__strings_add(&p->gone, l->row->name, err);
}

/* Reads the answers to requests; *open: some are missing. */
static sfp_status read_answers(sfp__dir_sync *s, sfp__store *store, bool *open, sfp_error *err)
{
    for (*open = s->last > 0; *open; s->asked++) {
        bool done;
        sfp_error why = {0};
        sfp_status status = sfp__store_read_answer(store, s->asked, &done, &why);
        if (sfp__is_machine_error(status))
            return sfp__fail(err, status, "%s", why.message);
        if (!done)
            return SFP_OK;
        if (status && !s->warned)
            sfp__source_warn_live(s->source, "%.400s; the sample of the deleted file stays learned, and so do further ones",
                                  why.message);
        s->warned |= status != SFP_OK;
        *open = s->asked < s->last;
    }
    s->last = 0;
    return SFP_OK;
}

sfp_status sfp__dir_sync_deletions(sfp__dir_sync *s, sfp__store *store, sfp__dir_watch *w, bool last, sfp_error *err)
{
    OWNED_BY(presence_done) presence p = {.root = s->source->path};
    const sfp__sample_query all = {.standing = -1, .limit = INT_MAX};
    double now = sfp__monotonic_seconds();
    bool asked = s->last > 0, open;
    TRY(read_answers(s, store, &open, err));
    if (open)
        return SFP_OK;
    if (asked) /* a file may have come back */
        w->missed = true;
    if (w->queue.ready.first < w->queue.ready.last || w->queue.busy.first < w->queue.busy.last || asked ||
        !(w->deleted || s->due == 0) || (now < s->due && !last))
        return SFP_OK;
    w->deleted = false;
    TRY(sfp__store_list(store, &all, check_sample, &p, err));
    s->due = now + sweep_seconds + sweep_share * (sfp__monotonic_seconds() - now);
    if (!s->trusted && p.there == 0 && p.gone.count > 0) {
        if (!s->warned)
            sfp__source_warn_live(
                s->source,
                "%.300s: none of its %d images exists, so its disk may not be mounted; nothing is forgotten until "
                "one of them exists again",
                s->source->path, p.gone.count);
        s->warned = w->deleted = true;
        return SFP_OK;
    }
    s->trusted |= p.there > 0;
    for (int i = 0; i < p.gone.count; i++) {
        TRY(sfp__store_request(store, p.gone.s[i], "", NULL, &s->last, err));
        s->asked = i == 0 ? s->last : s->asked;
    }
    return SFP_OK;
}
