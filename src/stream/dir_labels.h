/* PATH/labels.csv of a watched folder: lines NAME,LABEL, also appended while it is watched.
 *
 * NAME is a picture's path below PATH and may have commas, LABEL may not unless it is in quotes, as both may be ("" is a quote
 * then; a line's end is never inside). A line counts when its end has been written, or when the stream ends. A file
 * that was replaced or shortened is read from its beginning. A last line for a name wins. Lines that are none (no comma, empty,
 * too long, no UTF-8, text behind quotes or none that closes them) are passed over and counted; so is a first line "name,label"
 * or "path,label", without counting. At most SFP_CLASSES_MAX pictures are remembered; then they are forgotten all at once. */
#ifndef SFP_STREAM_DIR_LABELS_H
#define SFP_STREAM_DIR_LABELS_H

#include "stream/names.h"

#include <stdbool.h>

typedef struct sfp_dir_labels {
    char *path; /* NULL: there are none */
    bool ended; /* set by who reads: nothing is appended any more, so that a last line needs no end */
    uint64_t device, inode, offset;
    sfp_names pictures;
    int32_t *label; /* (SFP_CLASSES_MAX) class of a picture */
    uint64_t line; /* read so far */
    uint64_t skipped, first_skipped; /* lines, and which was the first; 0: none */
} sfp_dir_labels;

/* A label that was read; name ends with NUL. */
typedef sfp_status (*sfp_dir_label_fn)(void *ctx, const char *name, int32_t label, sfp_error *err);

sfp_status sfp__dir_labels_init(sfp_dir_labels *l, const char *dir, sfp_error *err);
void sfp__dir_labels_done(sfp_dir_labels *l);
/* Reads what is new; new labels are added to classes. fn may be NULL. Without the file: nothing. */
sfp_status sfp__dir_labels_read(sfp_dir_labels *l, sfp_names *classes, sfp_dir_label_fn fn, void *ctx, sfp_error *err);
/* The class of a picture; -1: none was given. */
int32_t sfp__dir_labels_find(const sfp_dir_labels *l, const char *name);

#endif
