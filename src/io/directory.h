/* Folders: the one that a run writes into, with one writer at a time, and all that is below one. */
#ifndef SFP_IO_DIRECTORY_H
#define SFP_IO_DIRECTORY_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Makes the folder and those it lies in, where they are missing; *made: how many of them were. */
sfp_status sfp__directory_create(const char *path, int *made, sfp_error *err);
/* Makes the folders that a file lies in, where they are missing. */
sfp_status sfp__directory_create_for(const char *file, sfp_error *err);
/* Takes the last `made` folders of the path away again; one that is not empty stays, and those it lies in. */
void sfp__directory_remove_created(const char *path, int made);

/* Takes the folder for this process until unlock, or until the process ends in whatever way. Another one has it: SFP_EINVAL.
 * *lock is -1, which unlock takes, where the file system has no locks for folders. */
sfp_status sfp__directory_lock(const char *path, int *lock, sfp_error *err);
void sfp__directory_unlock(int lock);

bool sfp__directory_has(const char *path, const char *name);

/* Removes the files of these names, in this order; a '#' in a name stands for any number. What is one of the `kept` files (NULL:
 * none) stays, by whatever path. */
sfp_status sfp__directory_remove_files(const char *path, size_t count, const char *const *names, size_t kept,
                                       const char *const *keep, sfp_error *err);

/* Everything below a folder, by one pass. Hidden names (.x) are passed over.
 *
 * Links are followed; one that leads back to a folder above is passed over, as what is there is told already. Folders may be 64
 * deep; links between folders can make endless ways without a circle, so ways are counted, up to a million. Files are not looked
 * at where the folder says what they are: a large tree takes no longer than reading its folders. */
typedef enum sfp__walk_kind {
    SFP_WALK_FILE,
    SFP_WALK_OTHER,     /* no regular file: a FIFO, a device */
    SFP_WALK_BROKEN,    /* a link into nowhere */
    SFP_WALK_DIRECTORY, /* after all that is in it; its path ends with '/' */
} sfp__walk_kind;

/* path: below the folder, "a/b.jpg"; depth: folders it lies in, 1. A failure ends the walk. */
typedef sfp_status (*sfp__walk_fn)(void *ctx, sfp__walk_kind kind, const char *path, int depth, sfp_error *err);

/* In the order in which folders are read, which is none. A folder that cannot be read is an error. No such folder: SFP_ENOTFOUND.
 */
sfp_status sfp__walk(const char *root, sfp__walk_fn fn, void *ctx, sfp_error *err);

#endif
