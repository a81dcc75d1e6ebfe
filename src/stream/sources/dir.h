/* What watch:PATH is made of: the images that wait for their turn (dir_queue.c), the folders that are watched for more of them
 * (dir_watch.c), and the labels beside them (dir_labels.c).
 *
 * What is there already comes first, in natural order of its path; then every file as it is closed after writing, or moved in.
 * A file that is there but still open for writing waits until it is closed, or has not changed for two seconds; that takes
 * Linux's leases, which are for files of the same owner, or for root; elsewhere it may come twice, at first in part. Names that
 * are no image's (also .hidden ones, as programs write before they rename) are passed over. It ends when a file named .end
 * appears, or the folder goes away. What lies deeper is not looked at.
 *
 * A folder inside that cannot be watched, and one that is there under two names (a link), is remarked upon by the source, and the
 * others go on. Of two names one that is no link is taken. */
#ifndef SFP_STREAM_SOURCES_DIR_H
#define SFP_STREAM_SOURCES_DIR_H

#include "stream/source_internal.h"

/* -------------------------------------------------------------- images that wait */

/* A file, or the label of one, waiting for its turn. */
typedef struct sfp__dir_item {
    char *path;         /* below the folder; whoever has the item frees it */
    int32_t label;      /* >= 0: a label alone */
    sfp__origin origin; /* identity: of device, inode, time and size: the same after a move, or under a second name. mark: of
                          identity and folder. changed: the ctime */
    bool found;         /* by looking, not told of: may be being written */
    uint64_t was;       /* found so and busy: its identity then, ... */
    double since;       /* ... from when on */
    bool unfinished;    /* the end came, and it was still being written */
} sfp__dir_item;

/* First in, first out. */
typedef struct sfp__dir_list {
    sfp__dir_item *item; /* [first, last) */
    size_t first, last, capacity;
} sfp__dir_list;

/* Every item is in one of the two lists. What was found is remembered by its mark, so that looking through a folder again (a new
 * one, or after the kernel dropped events) finds nothing twice; the same marks serve to go on after a break. */
typedef struct sfp__dir_queue {
    const char *path;    /* of the folder; not owned */
    double (*now)(void); /* seconds of a clock that never goes back */
    sfp__dir_list ready; /* to be given, or looked at again */
    sfp__dir_list busy;  /* were being written when their turn came: they wait for the next round */
    double last_call;    /* nothing comes any more: until then the busy ones have a chance; 0: not yet */
    uint64_t *seen; /* (seen_capacity, a power of two) marks by their hash; 0: free. Bounded: then all are forgotten at once */
    size_t seen_count, seen_capacity;
} sfp__dir_queue;

void sfp__dir_queue_done(sfp__dir_queue *q);
/* Behind all others; takes item.path over, but not on failure. */
sfp_status sfp__dir_queue_put(sfp__dir_queue *q, sfp__dir_item item, sfp_error *err);
/* A file that a folder has (found: by looking through it) or that was closed: put if it is an image that was not found yet. */
sfp_status sfp__dir_queue_offer(sfp__dir_queue *q, const char *folder, const char *name, bool found, sfp_error *err);
/* The next one that is complete, or after the last call those that did not become so; *some is false when there is none now. */
sfp_status sfp__dir_queue_take(sfp__dir_queue *q, sfp__dir_item *out, bool *some, sfp_error *err);
/* A new round: those that were being written have their turn again. For who could take none. ended: nothing comes any more. */
void sfp__dir_queue_retry(sfp__dir_queue *q, bool ended);
/* Natural order of paths, for what is there at the beginning. */
void sfp__dir_queue_sort(sfp__dir_queue *q);
sfp_status sfp__dir_queue_set_resume_filter(sfp__dir_queue *q, const sfp__resume_filter *what, sfp_error *err);

/* ------------------------------------------------------------- folders watched */

typedef struct sfp__watched_directory sfp__watched_directory;

/* Watched by inotify. */
typedef struct sfp__dir_watch {
    sfp_source *source;   /* who watches */
    const char *path;     /* its own */
    sfp__dir_queue queue; /* what was found */
    int fd;
    bool opened;
    sfp__watched_directory *folders;
    int folder_count;
    size_t folder_capacity;
    bool ended; /* nothing comes behind what is in the queue */
} sfp__dir_watch;

/* Watches the folder at the path of `source`. The queue then has what is there. Whatever follows, done ends it. */
sfp_status sfp__dir_watch_open(sfp__dir_watch *w, sfp_source *source, sfp_error *err);
void sfp__dir_watch_done(sfp__dir_watch *w);
bool sfp__dir_watch_over(const sfp__dir_watch *w); /* none is there now, and none will be */
/* Waits a little for something to happen, and takes it in. For who could take none. */
sfp_status sfp__dir_watch_wait(sfp__dir_watch *w, sfp_error *err);
/* Adds the names of the folders inside that are watched. */
sfp_status sfp__dir_watch_names(const sfp__dir_watch *w, sfp__names *names, sfp_error *err);

/* -------------------------------------------------------------------- labels.csv
 *
 * Lines NAME,LABEL, also appended while it is watched. NAME is an image's path below PATH and may have commas, LABEL may not
 * unless it is in quotes, as both may be ("" is a quote then; a line's end is never inside). A line counts when its end has been
 * written, or when the stream ends. A file that was replaced or shortened is read from its beginning. A last line for a name
 * wins. Lines that are none (no comma, empty, too long, no UTF-8, text behind quotes or none that closes them) are passed over
 * and counted; so is a first line "name,label" or "path,label", without counting. At most SFP_CLASSES_MAX images are
 * remembered; then they are forgotten all at once. */
typedef struct sfp__dir_labels {
    char *path; /* NULL: there are none */
    bool ended; /* set by who reads: nothing is appended any more, so that a last line needs no end */
    uint64_t device, inode, offset;
    sfp__names images;
    int32_t *label;                  /* (SFP_CLASSES_MAX) class of an image */
    uint64_t line;                   /* read so far */
    uint64_t skipped, first_skipped; /* lines, and which was the first; 0: none */
} sfp__dir_labels;

/* A label that was read; name ends with NUL. */
typedef sfp_status (*sfp__dir_label_fn)(void *ctx, const char *name, int32_t label, sfp_error *err);

/* Whatever follows, done ends it. */
sfp_status sfp__dir_labels_init(sfp__dir_labels *l, const char *dir, sfp_error *err);
void sfp__dir_labels_done(sfp__dir_labels *l);
/* Reads what is new; new labels are added to classes. fn may be NULL. Without the file: nothing. */
sfp_status sfp__dir_labels_read(sfp__dir_labels *l, sfp__names *classes, sfp__dir_label_fn fn, void *ctx, sfp_error *err);
/* The class of an image; -1: none was given. */
int32_t sfp__dir_labels_find(const sfp__dir_labels *l, const char *name);

#endif
