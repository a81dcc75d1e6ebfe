/* WebDataset samples in a tar: the common part of the sources tar and stdin.
 *
 * Consecutive entries that have the same name up to its first '.' are one sample: KEY.jpg (.jpeg .png .webp) and its label
 * KEY.cls, KEY.txt or KEY.json, in this order of preference. A label is a name or a number; in JSON also an object with "label",
 * "cls" or "class". A list of classes gives numbers their names: lines "NUMBER<tab>..<tab>NAME", or one name per line. */
#ifndef SFP_STREAM_TAR_SAMPLE_H
#define SFP_STREAM_TAR_SAMPLE_H

#include "stream/source_internal.h"

#include <archive.h>
#include <archive_entry.h>

#define SFP__TAR_READ_BYTES 65536

enum { SFP__TAR_CLS, SFP__TAR_TXT, SFP__TAR_JSON, SFP__TAR_UNLABELLED }; /* in order of preference */

/* The sample that is being read; a cleared one is empty. */
typedef struct sfp__tar_sample {
    char key[SFP__PATH_BYTES_MAX + 1];
    int label_kind;
    char label[SFP__CLASS_NAME_MAX + 1];
    bool has_image, plain;              /* plain: KEY.jpg, not KEY.depth.jpg */
    char name[SFP__PATH_BYTES_MAX + 1]; /* name of the entry of the image */
    int64_t offset, size;
    uint8_t *bytes; /* live source only */
} sfp__tar_sample;

void sfp__tar_sample_clear(sfp__tar_sample *s);
/* Returns the length of `name` up to the first '.' of its last part. */
size_t sfp__tar_key_length(const char *name);

/* Maps labels to classes. */
typedef struct sfp__tar_labels {
    sfp__names names;
    bool listed; /* names come from a list, and labels are numbers (or names) of it */
    char *path;  /* path of the list; owned */
} sfp__tar_labels;

/* Reads the list at t->path. A missing file is an error only if `wanted`. */
sfp_status sfp__tar_labels_read(sfp__tar_labels *t, bool wanted, sfp_error *err);
/* Finds the class of a label; -1 for an empty one. */
sfp_status sfp__tar_class_of(sfp__tar_labels *t, const char *label, int32_t *out, sfp_error *err);
void sfp__tar_labels_done(sfp__tar_labels *t);

/* Creates a reader of tar files, compressed or not; NULL: out of memory. */
struct archive *sfp__tar_new_archive(void);
/* Fails with the error of the archive and its position. */
sfp_status sfp__tar_fail(struct archive *a, const char *file, sfp_error *err);
/* Returns the name of an entry that is an image or a label and a regular file; NULL: anything else. */
const char *sfp__tar_entry_name(struct archive_entry *e);
/* Reads all bytes of the current entry. */
sfp_status sfp__tar_read_entry(struct archive *a, const char *file, const char *name, int64_t size, uint8_t *bytes,
                               sfp_error *err);
/* Reads the label in the current entry if its kind is preferred to that of the label that the sample has. */
sfp_status sfp__tar_read_label(struct archive *a, const char *file, const char *name, int64_t size, sfp__tar_sample *s,
                               sfp_error *err);
sfp_status sfp__tar_check_image(const char *file, const char *name, int64_t size, sfp_error *err);

#endif
