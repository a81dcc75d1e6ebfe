/* The queue of images of a watched directory. A file that a scan has found may still be open for writing. It is checked again
 * when it is its turn and delivered as it is then; the later event of its writer then finds nothing new. */
#include "stream/sources/dir.h"

#include "base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { QUEUE_MAX = 1 << 24 };

#define STEADY_SECONDS 2.0
#define LAST_CALL_SECONDS (STEADY_SECONDS + 0.5)

/* ------------------------------------------------------------------------ lists */

static bool put(sfp__dir_list *l, sfp__dir_item item)
{
    if (l->first == l->last)
        l->first = l->last = 0;
    if (!sfp__grow(&l->item, sizeof *l->item, l->last, l->last + 1, &l->capacity))
        return false;
    l->item[l->last++] = item;
    return true;
}

static void list_done(sfp__dir_list *l)
{
    for (size_t i = l->first; i < l->last; i++)
        sfp__free(l->item[i].path);
    sfp__free(l->item);
}

sfp_status sfp__dir_queue_put(sfp__dir_queue *q, sfp__dir_item item, sfp_error *err)
{
    if (q->ready.last == QUEUE_MAX && q->ready.first < q->ready.last)
        return sfp__fail(err, SFP_ELIMIT, "%s: more than %d images are queued", q->path, QUEUE_MAX);
    return put(&q->ready, item) ? SFP_OK : sfp__fail_nomem(err);
}

static int compare_items(const void *a, const void *b)
{
    return sfp__natural_compare(((const sfp__dir_item *)a)->path, ((const sfp__dir_item *)b)->path);
}

void sfp__dir_queue_sort(sfp__dir_queue *q)
{
    if (q->ready.last)
        qsort(q->ready.item, q->ready.last, sizeof *q->ready.item, compare_items);
}

void sfp__dir_queue_done(sfp__dir_queue *q)
{
    list_done(&q->ready);
    list_done(&q->busy);
    *q = (sfp__dir_queue){0};
}

/* ----------------------------------------------------------------------- checking */

bool sfp__dir_is_file_error(int code)
{
    return code == ENOENT || code == ENOTDIR || code == EACCES || code == EPERM || code == ELOOP || code == ENAMETOOLONG ||
           code == ENXIO || code == ESTALE;
}

/* Finds whether a process has the file open for writing: the kernel grants a read lease only if none has. On files of other
 * owners and on some file systems it grants none; then nothing is known, and *busy is false. (Network file systems may
 * report any file as busy.) */
static sfp_status is_being_written(const char *path, bool *busy, sfp_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && !sfp__dir_is_file_error(errno))
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot open", path);
    if (fd < 0)
        return SFP_OK;
    (void)fcntl(fd, F_SETSIG, SIGURG); /* for a process that opens the file now; the default SIGIO would end this process */
    *busy = fcntl(fd, F_SETLEASE, F_RDLCK) != 0 && errno == EAGAIN;
    (void)close(fd); /* also releases the lease */
    return SFP_OK;
}

/* Returns true if a file that is open for writing has not changed for STEADY_SECONDS. It is then treated as complete, because
 * its writer forgot to close it or does not exist. */
static bool is_steady(const sfp__dir_queue *q, sfp__dir_item *item, const struct stat *st)
{
    uint64_t parts[] = {(uint64_t)st->st_dev, (uint64_t)st->st_ino, (uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec,
                        (uint64_t)st->st_size};
    uint64_t hash = sfp__hash(SFP__HASH_START, parts, sizeof parts);
    double now = q->now();
    if (hash != item->was) {
        item->was = hash;
        item->since = now;
    }
    return now - item->since >= STEADY_SECONDS;
}

typedef enum file_status {
    GONE, /* the file does not exist */
    BUSY, /* the file is open for writing */
    COMPLETE,
} file_status;

/* Gets the status of a file. If the file cannot be used (it is gone, or not readable), st_mode is 0. */
static sfp_status get_status(const char *path, struct stat *st, sfp_error *err)
{
    if (stat(path, st) == 0)
        return SFP_OK;
    if (!sfp__dir_is_file_error(errno))
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", path);
    *st = (struct stat){0};
    return SFP_OK;
}

/* Writes to *out whether the file is complete, open for writing or gone. careful: examines whether it is open for writing;
 * without it the file is never BUSY. The lease is requested before the last stat. If a writer opens the file between these two
 * calls, an event follows when it closes the file, and the file is checked again. */
static sfp_status check_file(sfp__dir_queue *q, bool careful, sfp__dir_item *item, file_status *out, sfp_error *err)
{
    struct stat st;
    OWNED char *path = NULL;
    TRY(sfp__path_make(q->path, item->path, &path, err));
    *out = GONE;
    TRY(get_status(path, &st, err));
    if (!S_ISREG(st.st_mode))
        return SFP_OK;
    bool busy = false;
    if (careful)
        TRY(is_being_written(path, &busy, err));
    if (busy) {
        *out = BUSY;
        if (!is_steady(q, item, &st))
            return SFP_OK;
    } else if (careful) {
        TRY(get_status(path, &st, err));
        if (!S_ISREG(st.st_mode))
            return SFP_OK;
    }
    *out = COMPLETE;
    return SFP_OK;
}

sfp_status sfp__dir_queue_offer(sfp__dir_queue *q, const char *directory, const char *name, bool found, sfp_error *err)
{
    file_status f = GONE;
    OWNED char *path = NULL;
    if (name[0] == '.' || !sfp__image_name(name))
        return SFP_OK;
    TRY(sfp__path_make(directory, name, &path, err));
    sfp__dir_item item = {.path = path, .at = q->now(), .found = found};
    TRY(check_file(q, false, &item, &f, err));
    if (f == GONE)
        return SFP_OK;
    TRY(sfp__dir_queue_put(q, item, err));
    path = NULL;
    return SFP_OK;
}

/* ------------------------------------------------------------------------- taking */

sfp_status sfp__dir_queue_take(sfp__dir_queue *q, sfp__dir_item *out, bool *some, sfp_error *err)
{
    bool late = q->last_call > 0 && q->now() > q->last_call;
    for (*some = false; !*some && q->ready.first < q->ready.last; q->ready.first++) {
        sfp__dir_item item = q->ready.item[q->ready.first];
        file_status f = COMPLETE;
        if (item.found)
            TRY(check_file(q, true, &item, &f, err));
        if (f == BUSY && !late) {
            TRY(sfp__check_memory(put(&q->busy, item), err));
        } else { /* a file that was removed or never completed is reported when it is read */
            item.unfinished = f == BUSY;
            *out = item;
            *some = true;
        }
    }
    return SFP_OK;
}

void sfp__dir_queue_retry(sfp__dir_queue *q, bool ended)
{
    sfp__dir_list empty = q->ready;
    q->ready = q->busy;
    q->busy = empty;
    if (ended && q->last_call == 0)
        q->last_call = q->now() + LAST_CALL_SECONDS;
}
