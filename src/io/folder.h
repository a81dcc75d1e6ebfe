/* The folder that a run writes into: one writer at a time, and of what an earlier one left only its own files go. */
#ifndef SFP_IO_FOLDER_H
#define SFP_IO_FOLDER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Makes the folder and those it lies in, where they are missing; *made: how many of them were. */
sfp_status sfp__folder_make(const char *path, int *made, sfp_error *err);
/* Makes the folders that a file lies in, where they are missing. */
sfp_status sfp__folder_make_for(const char *file, sfp_error *err);
/* Takes the last `made` folders of the path away again; one that is not empty stays, and those it lies in. */
void sfp__folder_unmake(const char *path, int made);

/* Takes the folder for this process until unlock, or until the process ends in whatever way. Another one has it: SFP_EINVAL.
 * *lock is -1, which unlock takes, where the file system has no locks for folders. */
sfp_status sfp__folder_lock(const char *path, int *lock, sfp_error *err);
void sfp__folder_unlock(int lock);

bool sfp__folder_has(const char *path, const char *name);

/* Removes the files of these names, in this order; a '#' in a name stands for any number. What is one of the `kept` files (NULL:
 * none) stays, by whatever path. */
sfp_status sfp__folder_remove(const char *path, size_t count, const char *const *names, size_t kept, const char *const *keep,
                              sfp_error *err);

#endif
