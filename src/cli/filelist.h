/* Lists of images from arguments, directories (searched recursively, sorted by name) and CSV files.
 *
 * All paths are stored in one block, so that a list of a million paths needs little more memory than their bytes. */
#ifndef SFP_CLI_FILELIST_H
#define SFP_CLI_FILELIST_H

#include "base/text.h"

#include <stddef.h>
#include <stdint.h>

#define SFP__LIST_MAX_FILES 100000000 /* entries per list */
#define SFP__LIST_MAX_NAMES 1000000   /* class names */

typedef struct sfp__filelist {
    char *text; /* paths and labels, each with a terminating 0 */
    size_t used, text_capacity;
    size_t *entries; /* (count) offset of the path in text; the label follows the path, "": none */
    size_t count, entry_capacity;
    uint64_t *lines; /* (count) of the list that names the file; 0: no list */
    size_t line_capacity;
} sfp__filelist;

const char *sfp__filelist_path(const sfp__filelist *l, size_t i);
const char *sfp__filelist_label(const sfp__filelist *l, size_t i); /* "": none */
uint64_t sfp__filelist_line(const sfp__filelist *l, size_t i);     /* line of the list that names it; 0: no list */
void sfp__filelist_done(sfp__filelist *l);

sfp_status sfp__filelist_add(sfp__filelist *l, const char *path, const char *label, sfp_error *err);
/* Adds a directory (all images in it, recursively), a .csv or .txt list, or a single image. A path that does not exist is added
 * as an image, so that it is reported like any other image that cannot be read. */
sfp_status sfp__filelist_add_path(sfp__filelist *l, const char *path, sfp_error *err);
/* Adds a list of lines `file,label`, with or without this header, quoted or not. A line without a comma is a path without a
 * label. Relative paths are relative to the directory of the list. Blank lines and lines that start with '#' are ignored. */
sfp_status sfp__filelist_add_csv(sfp__filelist *l, const char *path, sfp_error *err);

/* Reads class names, one per line; `names` must be empty. */
sfp_status sfp__class_names_read(const char *path, sfp__strings *names, sfp_error *err);

#endif
