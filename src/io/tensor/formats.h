/* Shared by the readers of weight formats. To add a format, write a file with its sfp__tensor_format and add a row to
 * tensor_file.c. */
#ifndef SFP_IO_TENSOR_FORMATS_H
#define SFP_IO_TENSOR_FORMATS_H

#include "io/tensor/tensor_file.h"

/* --------------------------------------------------------------- zip archives
 *
 * PyTorch and NumPy store their arrays in zip archives. A stored member is a pointer into the archive, so that a file of weights is
 * used in place (a library that extracts members would need a second copy of the model). A deflated member is unpacked
 * by its user. Nothing is ever written to the disk, and the names of members are only compared. */

typedef struct sfp__zip_member {
    const char *name;
    const uint8_t *data; /* (packed) */
    size_t packed, size; /* bytes in the archive, bytes unpacked; equal when stored */
    uint32_t crc;
    bool deflated;
} sfp__zip_member;

typedef struct sfp__zip {
    sfp__zip_member *members; /* (count) in the order of the directory */
    size_t count;
    char *label, *names;             /* the names in one block */
    const sfp__zip_member **by_name; /* (count) */
} sfp__zip;

/* Returns whether the bytes begin like a zip archive. */
bool sfp__zip_is(const void *bytes, size_t size);

/* Reads and checks the directory: every member lies inside the archive, has a unique name and is stored or deflated, and the
 * unpacked size is in proportion to the archive. The bytes must outlive the handle; `label` names the file in messages. */
sfp_status sfp__zip_open(const char *label, const void *bytes, size_t size, sfp__zip **out, sfp_error *err);
void sfp__zip_close(sfp__zip *z);
DEFINE_OWNED_PTR(sfp__zip, sfp__zip_close)

const sfp__zip_member *sfp__zip_find(const sfp__zip *z, const char *name); /* NULL: no such member */

/* Returns the bytes of a member, checked against its CRC. If they were unpacked, *owned is their memory, which the caller frees
 * with sfp__free. If they are in the archive, *owned is NULL. */
sfp_status sfp__zip_bytes(const sfp__zip *z, const sfp__zip_member *m, const uint8_t **bytes, uint8_t **owned, sfp_error *err);

/* -------------------------------------------------------------------- formats */

typedef struct sfp__tensor_format {
    const char *name;
    /* Returns whether the file has this format. zip: the archive; NULL: the file is not an archive. */
    bool (*is)(const uint8_t *bytes, size_t size, const sfp__zip *zip);
    sfp_status (*open)(sfp__tensor_file *f, const uint8_t *bytes, size_t size, const sfp__zip *zip, sfp_error *err);
} sfp__tensor_format;

extern const sfp__tensor_format sfp__format_torch, sfp__format_torch_old, sfp__format_npy, sfp__format_npz,
    sfp__format_safetensors;

/* Opens a file in this format; format NULL: detected from the bytes. bytes NULL: reads the file at `path`; else `path` only names the bytes. */
sfp_status sfp__tensor_file_open_as(const sfp__tensor_format *format, const char *path, const void *bytes, size_t size,
                                    sfp__tensor_file **out, sfp_error *err);

/* Adds a tensor and copies its name. The number of tensors and the bytes of names are limited, because a pickle can contain the
 * same dict in many places. */
sfp_status sfp__tensor_file_add(sfp__tensor_file *f, const sfp__tensor *t, sfp_error *err);
/* Transfers `block` to the file, also after a failure. */
sfp_status sfp__tensor_file_own(sfp__tensor_file *f, void *block, sfp_error *err);

#endif
