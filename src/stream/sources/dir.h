/* The parts of watch:PATH: the queue of images (dir_queue.c), the watched directories (dir_watch.c), and labels.csv
 * (dir_labels.c).
 *
 * The source first delivers the images that are there when it is opened, in natural order of their paths. Then it delivers each
 * file when a writer closes it, or when it is moved into a watched directory. A file that is there but still open for writing
 * waits until it is closed, or until it has not changed for two seconds. This needs the leases of Linux, which work for files of
 * the same owner and for root; elsewhere such a file may be delivered twice, first incomplete. Names that are not those of images
 * are ignored, also hidden ones (.NAME), which programs use before they rename a file. The stream ends when a file named .end
 * appears. It fails if the directory is removed, moved or unmounted, or if its path leads to another one. Directories below those of the first level are ignored.
 *
 * A directory that cannot be watched, or that has two names (a link), causes a warning, and the others continue. Of two names,
 * one that is not a link is used. */
#ifndef SFP_STREAM_SOURCES_DIR_H
#define SFP_STREAM_SOURCES_DIR_H

#include "stream/source_internal.h"

#include <sys/stat.h>

/* -------------------------------------------------------------- queue of images */

/* A file in the queue. */
typedef struct sfp__dir_item {
    char *path;      /* relative to the directory; freed by the owner of the item */
    double at;       /* sfp__monotonic_seconds() when it was found */
    bool labelled;   /* its label has arrived or changed, so the image is delivered with it even if it was delivered before */
    bool found;      /* found by a scan and not by an event, so a writer may still have it open */
    uint64_t was;    /* of a file that was found open for writing: hash of its status */
    double since;    /* when the file got this status */
    bool unfinished; /* the stream ended while the file was still open for writing */
} sfp__dir_item;

/* A queue: first in, first out. */
typedef struct sfp__dir_list {
    sfp__dir_item *item; /* [first, last) */
    size_t first, last, capacity;
} sfp__dir_list;

/* Every item is in one of the two lists. A file may be in the queue several times; the store of samples knows which images were
 * delivered. */
typedef struct sfp__dir_queue {
    const char *path;    /* of the directory; not owned */
    double (*now)(void); /* seconds of a monotonic clock */
    sfp__dir_list ready; /* items to deliver, or to check again */
    sfp__dir_list busy;  /* items that were open for writing when it was their turn; they wait for the next round */
    double last_call;    /* the stream has ended: busy items may still be completed until this time; 0: not ended */
} sfp__dir_queue;

void sfp__dir_queue_done(sfp__dir_queue *q);
/* Appends an item. Takes ownership of item.path unless it fails. */
sfp_status sfp__dir_queue_put(sfp__dir_queue *q, sfp__dir_item item, sfp_error *err);
/* Offers a file that a scan has found (found) or that was closed. It is appended if it is an image. */
sfp_status sfp__dir_queue_offer(sfp__dir_queue *q, const char *directory, const char *name, bool found, sfp_error *err);
/* Takes the next complete item, or after last_call one that was not completed; *some is false if there is none now. */
sfp_status sfp__dir_queue_take(sfp__dir_queue *q, sfp__dir_item *out, bool *some, sfp_error *err);
/* Begins a new round, in which items that were open for writing are checked again. For callers that could take none. ended: the
 * stream has ended. */
void sfp__dir_queue_retry(sfp__dir_queue *q, bool ended);
/* Sorts the items by the natural order of their paths, for the images that are there at the beginning. */
void sfp__dir_queue_sort(sfp__dir_queue *q);

/* ------------------------------------------------------------- watched directories */

typedef struct sfp__watched_directory sfp__watched_directory;

/* Directories that are watched with inotify. */
typedef struct sfp__dir_watch {
    sfp_source *source;   /* the source that watches */
    const char *path;     /* path of the source */
    sfp__dir_queue queue; /* images that were found */
    int fd;
    bool opened;
    sfp__watched_directory *directories;
    int directory_count;
    size_t directory_capacity;
    bool ended;                    /* nothing will follow the items in the queue */
    bool removed;                  /* `ended` because the directory was removed, moved or unmounted */
    uint64_t device, inode;        /* of the directory */
    bool remote;                   /* a network file system, which does not report the changes of other machines */
    double checked_at, scanned_at; /* when the directory was last compared with its path, and when it was scanned */
    bool sync;                     /* deletions are watched, too */
    bool deleted;                  /* files may have been deleted or moved away; the reader resets this */
    bool missed; /* memory, descriptors or the disk failed, so that files may have been missed: everything is scanned again */
} sfp__dir_watch;

/* Returns whether a call failed because of its file, which was removed, replaced or must not be read, and not because of the
 * machine. Changes by other programs must not end a run. */
bool sfp__dir_is_file_error(int code);
sfp__file_stamp sfp__dir_stamp(const struct stat *st);
bool sfp__dir_same_stamp(const sfp__file_stamp *a, const sfp__file_stamp *b);

/* Watches the directory at the path of `source`; the queue then contains the images that are there. sfp__dir_watch_done must
 * follow, also on failure. */
sfp_status sfp__dir_watch_open(sfp__dir_watch *w, sfp_source *source, bool sync, sfp_error *err);
void sfp__dir_watch_done(sfp__dir_watch *w);
bool sfp__dir_watch_over(const sfp__dir_watch *w); /* true: the queue is empty, and nothing will follow */
/* Waits a short time for events and handles them. For callers that could take no item. */
sfp_status sfp__dir_watch_wait(sfp__dir_watch *w, sfp_error *err);
/* Adds the names of the watched directories below PATH. */
sfp_status sfp__dir_watch_names(const sfp__dir_watch *w, sfp__names *names, sfp_error *err);

/* ------------------------------------------------------------------------- sync
 *
 * watch:PATH,sync (dir_sync.c): the sample of a file that was deleted is forgotten. */
typedef struct sfp__dir_sync sfp__dir_sync;

/* Cuts ",sync" from the path, unless there is a directory of this name. */
sfp_status sfp__dir_sync_parse(const char *path, char **watched, bool *sync, sfp_error *err);
sfp_status sfp__dir_sync_create(sfp_source *source, sfp__dir_sync **out, sfp_error *err); /* sfp__free */
/* Called when no file waits to be delivered. If this is due, finds samples whose files do not exist any more, and requests the run to forget them.
 * last: the stream ends. */
sfp_status sfp__dir_sync_deletions(sfp__dir_sync *s, sfp__store *store, sfp__dir_watch *w, bool last, sfp_error *err);
/* Called when the file of a sample was replaced by one with other bytes, so that the sample has no file any more. */
sfp_status sfp__dir_sync_replaced(sfp__dir_sync *s, sfp__store *store, const sfp__stored *row, sfp_error *err);

/* -------------------------------------------------------------------- labels.csv
 *
 * Lines NAME,LABEL, which may be appended while the file is watched. NAME is the path of an image below PATH and may contain
 * commas; LABEL may not. Both may be quoted and then contain commas; "" is a quote inside quotes, and a line end is never inside.
 * A line is read when its end has been written, or when the stream ends. If the part that was read has changed, the file is read
 * again from the beginning. The last line for a name wins. Lines that are not NAME,LABEL (no comma, empty, too long, not UTF-8,
 * text behind quotes, no closing quote) are skipped and counted; a first line "name,label" or "path,label" is skipped without
 * being counted. */
typedef struct sfp__dir_labels {
    char *path;                      /* NULL: no file */
    bool ended;                      /* set by the reader: the stream has ended, so a last line without line end is complete */
    sfp__labels_position at;         /* how far the file was read */
    uint64_t device, inode;          /* of the file when it was last read */
    sfp__file_stamp stamp;           /* size and times of the file when it was last read */
    bool again;                      /* the file was rewritten: lines that it had before are not new; the reader resets this */
    uint64_t line_offset;            /* where the line that is read begins */
    bool in_long_line;               /* the next bytes belong to a line that is too long, and are skipped */
    uint64_t skipped, first_skipped; /* number of skipped lines, and the first one; 0: none */
} sfp__dir_labels;

/* Called for each line that was read; both texts end with NUL. */
typedef sfp_status (*sfp__dir_label_fn)(void *ctx, const char *name, const char *label, sfp_error *err);

/* sfp__dir_labels_done must follow, also on failure. */
sfp_status sfp__dir_labels_init(sfp__dir_labels *l, const char *dir, sfp_error *err);
void sfp__dir_labels_done(sfp__dir_labels *l);
/* Reads new lines. A missing file is not an error. */
sfp_status sfp__dir_labels_read(sfp__dir_labels *l, sfp__dir_label_fn fn, void *ctx, sfp_error *err);

#endif
