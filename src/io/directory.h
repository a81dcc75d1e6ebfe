/* Directories: creating and locking the output directory of a run, and walking a directory tree. */
#ifndef SFP_IO_DIRECTORY_H
#define SFP_IO_DIRECTORY_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Creates the directory and its missing parents; *made receives the number of directories created. They are
 * durable, as far as the file system can sync directories. */
sfp_status sfp__directory_create(const char *path, int *made, sfp_error *err);
/* Makes a new directory durable: its name is in its parent. A failure is ignored. */
void sfp__directory_sync_parent(const char *path);
/* Creates the missing parent directories of a file. */
sfp_status sfp__directory_create_for(const char *file, sfp_error *err);
/* Removes the last `made` directories of the path; stops at one that is not empty. */
void sfp__directory_remove_created(const char *path, int made);

/* Locks the directory for this process, until unlock or until the process ends in any way. SFP_EINVAL: another process has locked
 * it. If the file system cannot lock directories, *lock is -1, which unlock accepts. */
sfp_status sfp__directory_lock(const char *path, int *lock, sfp_error *err);
void sfp__directory_unlock(int lock);
/* Whether a process has locked the directory. */
bool sfp__directory_is_locked(const char *path);

/* Creates the directory as sfp__directory_create does, and locks it. If several processes do this at the same time, exactly one succeeds.
 * sfp__directory_leave removes directories that were created and are still empty, and then releases the lock. */
sfp_status sfp__directory_take(const char *path, int *made, int *lock, sfp_error *err);
void sfp__directory_leave(const char *path, int made, int lock);

/* Returns in *has whether there is a file with this name, or with one of these names. A directory that does not exist has none; one
 * that cannot be examined is an error, because its files would seem to be missing. */
sfp_status sfp__directory_has(const char *path, const char *name, bool *has, sfp_error *err);
sfp_status sfp__directory_has_any(const char *path, size_t count, const char *const *names, bool *has, sfp_error *err);

/* Finds a file with one of these names, in which a '#' matches any decimal number; "": there is none. */
sfp_status sfp__directory_find(const char *path, size_t count, const char *const *names, char *found, size_t size,
                               sfp_error *err);

/* Removes the files with these names, in this order; a '#' in a name matches any decimal number, a '*' at its beginning any text.
 * Files that are also one of the `kept` paths in `keep` (compared by inode; entries may be NULL) are not removed. */
sfp_status sfp__directory_remove_files(const char *path, size_t count, const char *const *names, size_t kept,
                                       const char *const *keep, sfp_error *err);

/* Walks everything below a directory in one pass. Hidden names (.x) are skipped.
 *
 * Symbolic links are followed; a link to a directory above it is skipped, because that directory is being walked already.
 * Directories may be nested 64 deep. Links between directories can create very many paths without a cycle, so the walk counts a
 * directory once per path, up to a million. A file is not examined if its directory entry contains its type: walking a large tree
 * takes no longer than reading its directories. */
typedef enum sfp__walk_kind {
    SFP__WALK_FILE,
    SFP__WALK_OTHER,     /* not a regular file: a FIFO or a device */
    SFP__WALK_BROKEN,    /* a link without a target */
    SFP__WALK_DIRECTORY, /* reported after all of its entries; its path ends with '/' */
} sfp__walk_kind;

/* path: relative to the root, "a/b.jpg"; depth: the number of directories in it, here 1. A failure ends the walk. */
typedef sfp_status (*sfp__walk_fn)(void *ctx, sfp__walk_kind kind, const char *path, int depth, sfp_error *err);

/* Reports entries in the order in which directories are read, which is unspecified. A directory that cannot be read is an error.
 * SFP_ENOTFOUND: the root does not exist. */
sfp_status sfp__walk(const char *root, sfp__walk_fn fn, void *ctx, sfp_error *err);

#endif
