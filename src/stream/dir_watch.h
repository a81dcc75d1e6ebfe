/* The pictures in a folder and in the folders right below it, as they come: watched by inotify.
 *
 * What is there already comes first, in natural order of its path; then every file as it is closed after writing, or moved in.
 * A file that is there but still open for writing waits until it is closed, or has not changed for two seconds; that takes
 * Linux's leases, which are for files of the same owner, or for root; elsewhere it may come twice, at first in part. Names that
 * are no picture's (also .hidden ones, as programs write before they rename) are passed over. It ends when a file named .end
 * appears, or the folder goes away. What lies deeper is not looked at.
 *
 * A folder inside that cannot be watched, and one that is there under two names (a link), is remarked upon by the source, and the
 * others go on. Of two names one that is no link is taken.
 *
 * What was found is remembered by a 64-bit mark of its folder and identity, so that looking through a folder again (a new one, or
 * after the kernel dropped events) finds nothing twice (mark_set.h). The same marks serve to go on after a break. */
#ifndef SFP_STREAM_DIR_WATCH_H
#define SFP_STREAM_DIR_WATCH_H

#include "stream/mark_set.h"
#include "stream/names.h"
#include "stream/source.h"

/* A file, or the label of one, waiting for its turn. */
typedef struct sfp_dir_item {
    char *path;        /* below the folder; whoever has the item frees it */
    int32_t label;     /* >= 0: a label alone */
    uint64_t identity; /* device, inode, time and size: the same after a move, or under a second name */
    uint64_t mark;     /* identity and folder */
    int64_t changed;   /* ctime in nanoseconds */
    bool found;        /* by looking, not told of: may be being written */
    uint64_t was;      /* found so and busy: its identity then, ... */
    double since;      /* ... from when on */
    bool unfinished;   /* the end came, and it was still being written */
} sfp_dir_item;

typedef struct sfp_dir_folder sfp_dir_folder;

typedef struct sfp_dir_watch {
    sfp_source *source; /* who watches */
    const char *path;   /* its own */
    int fd;
    bool opened;
    sfp_dir_folder *folders;
    int folder_count;
    size_t folder_room;
    sfp_dir_item *queue; /* [first, last) */
    size_t first, last, room;
    size_t busy; /* the last ones, which were being written when their turn came */
    sfp_mark_set seen;
    bool ended;       /* nothing comes behind what is in the queue */
    double last_call; /* ended: until then the busy ones have a chance; 0: not set yet */
} sfp_dir_watch;

/* Watches the folder at the path of `source`. The queue then has what is there. After a failure there is nothing to end. */
sfp_status sfp__dir_watch_open(sfp_dir_watch *w, sfp_source *source, sfp_error *err);
void sfp__dir_watch_done(sfp_dir_watch *w);

/* Behind all others; takes item.path over, but not on failure. */
sfp_status sfp__dir_watch_put(sfp_dir_watch *w, sfp_dir_item item, sfp_error *err);
/* The next one that is complete, or at the end those that did not become so; *some is false when there is none now. */
sfp_status sfp__dir_watch_take(sfp_dir_watch *w, sfp_dir_item *out, bool *some, sfp_error *err);
bool sfp__dir_watch_over(const sfp_dir_watch *w); /* none is there now, and none will be */
/* Waits a little for something to happen, and takes it in. For who could take none. */
sfp_status sfp__dir_watch_wait(sfp_dir_watch *w, sfp_error *err);
sfp_status sfp__dir_watch_leave_out(sfp_dir_watch *w, const sfp_left_out *what, sfp_error *err);

/* Adds the names of the folders inside that are watched. */
sfp_status sfp__dir_watch_names(const sfp_dir_watch *w, sfp_names *names, sfp_error *err);

#endif
