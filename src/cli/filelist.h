/* Lists of images: from arguments, folders (recursive, sorted by name) and CSV files.
 *
 * Paths lie one after another in one block, so that a million of them cost their bytes and no more. */
#ifndef SFP_CLI_FILELIST_H
#define SFP_CLI_FILELIST_H

#include "base/text.h"

#include <stddef.h>

#define SFP_LIST_MAX_FILES 100000000 /* entries of a list */
#define SFP_LIST_MAX_NAMES 1000000   /* class names */

typedef struct sfp__filelist {
    char *text; /* paths and labels, each terminated */
    size_t used, text_capacity;
    size_t *entries; /* (count): offset of the path in text; the label follows it, empty when there is none */
    size_t count, entry_capacity;
} sfp__filelist;

const char *sfp__filelist_path(const sfp__filelist *l, size_t i);
const char *sfp__filelist_label(const sfp__filelist *l, size_t i); /* "": none */
void sfp__filelist_done(sfp__filelist *l);

sfp_status sfp__filelist_add(sfp__filelist *l, const char *path, const char *label, sfp_error *err);
/* A folder (all images in it and below), a .csv or .txt list, or a single image; so is whatever is not there, which is then
 * told as of any other image that cannot be read. */
sfp_status sfp__filelist_add_path(sfp__filelist *l, const char *path, sfp_error *err);
/* `file,label` lines, with or without that header, quoted or not; a line without a comma is a path alone. Relative paths are
 * relative to the list's folder. Blank lines and lines that begin with '#' are passed over. */
sfp_status sfp__filelist_add_csv(sfp__filelist *l, const char *path, sfp_error *err);

/* Class names, one a line; `names` is empty before. */
sfp_status sfp__class_names_read(const char *path, sfp__strings *names, sfp_error *err);

#endif
