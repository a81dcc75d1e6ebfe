/* WebDataset samples in a tar: what the tar and stdin sources share.
 *
 * Entries that follow each other and share a name up to its first '.' are one
 * sample: KEY.jpg (.jpeg .png .webp) and its label KEY.cls, KEY.txt or KEY.json
 * (a name or number; an object with "label", "cls" or "class"), in this order
 * of preference. A list of classes gives numbers their names: a line
 * "NUMBER<tab>..<tab>NAME", or a name a line. */
#ifndef SFP_STREAM_TAR_SAMPLE_H
#define SFP_STREAM_TAR_SAMPLE_H

#include "stream/source_internal.h"

#include <archive.h>
#include <archive_entry.h>

#define SFP_TAR_READ_BYTES 65536

enum { SFP_TAR_CLS, SFP_TAR_TXT, SFP_TAR_JSON, SFP_TAR_UNLABELLED }; /* preferred first */

/* The sample being put together; a cleared one is empty. */
typedef struct sfp__tar_sample {
    char key[SFP_PATH_BYTES_MAX + 1];
    int label_kind;
    char label[SFP_CLASS_NAME_MAX + 1];
    bool has_image, plain;             /* plain: KEY.jpg, not KEY.depth.jpg */
    char name[SFP_PATH_BYTES_MAX + 1]; /* of the image's entry */
    int64_t offset, size;
    uint8_t *bytes; /* when streaming */
} sfp__tar_sample;

void sfp__tar_sample_clear(sfp__tar_sample *s);
/* Bytes of `name` up to the first '.' of its last part. */
size_t sfp__tar_key_length(const char *name);

/* Labels to classes. */
typedef struct sfp__tar_labels {
    sfp__names names;
    bool listed; /* names are those of a list, and labels are numbers (or the names) */
    char *path;  /* of the list; owned */
} sfp__tar_labels;

/* The list at t->path. No such file: no list, unless `wanted`. */
sfp_status sfp__tar_labels_read(sfp__tar_labels *t, bool wanted, sfp_error *err);
/* The class of a label's text; -1 for an empty one. */
sfp_status sfp__tar_class_of(sfp__tar_labels *t, const char *label, int32_t *out, sfp_error *err);
void sfp__tar_labels_done(sfp__tar_labels *t);

/* A reader of tar files, packed or not; NULL: no memory. */
struct archive *sfp__tar_new_archive(void);
/* What is wrong with the archive at this place. */
sfp_status sfp__tar_fail(struct archive *a, const char *file, sfp_error *err);
/* The name of an image or label, a regular file; NULL for anything else. */
const char *sfp__tar_entry_name(struct archive_entry *e);
/* The bytes of the current entry, all of them. */
sfp_status sfp__tar_read_entry(struct archive *a, const char *file, const char *name, int64_t size, uint8_t *bytes,
                               sfp_error *err);
/* The label in the current entry, when it is preferred to what the sample has. */
sfp_status sfp__tar_read_label(struct archive *a, const char *file, const char *name, int64_t size, sfp__tar_sample *s,
                               sfp_error *err);
sfp_status sfp__tar_check_image(const char *file, const char *name, int64_t size, sfp_error *err);

#endif
