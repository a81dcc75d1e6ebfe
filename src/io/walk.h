/* Everything below a folder, by one pass. Hidden names (.x) are passed over.
 *
 * Links are followed; one that leads back to a folder above is passed over, as what is there is told already. Folders may be 64
 * deep; links between folders can make endless ways without a circle, so ways are counted, up to a million. Files are not looked
 * at where the folder says what they are: a large tree takes no longer than reading its folders. */
#ifndef SFP_IO_WALK_H
#define SFP_IO_WALK_H

#include "base/error.h"

typedef enum sfp_walk_kind {
    SFP_WALK_FILE,
    SFP_WALK_OTHER,  /* no regular file: a FIFO, a device */
    SFP_WALK_BROKEN, /* a link into nowhere */
    SFP_WALK_FOLDER, /* after all that is in it; its path ends with '/' */
} sfp_walk_kind;

/* path: below the folder, "a/b.jpg"; depth: folders it lies in, 1. A failure ends the walk. */
typedef sfp_status (*sfp_walk_fn)(void *ctx, sfp_walk_kind kind, const char *path, int depth, sfp_error *err);

/* In the order in which folders are read, which is none. A folder that cannot be read is an error. No such folder: SFP_ENOTFOUND.
 */
sfp_status sfp__walk(const char *root, sfp_walk_fn fn, void *ctx, sfp_error *err);

#endif
