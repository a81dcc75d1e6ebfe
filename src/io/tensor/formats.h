/* What the readers of weight formats share. To add a format: a file with its sfp__tensor_format, a row in tensor_file.c. */
#ifndef SFP_IO_TENSOR_FORMATS_H
#define SFP_IO_TENSOR_FORMATS_H

#include "io/tensor/tensor_file.h"

/* --------------------------------------------------------------- zip archives
 *
 * What PyTorch and NumPy wrap their arrays in. A stored member is a pointer into
 * the archive, so that a mapped file of weights is used where it lies (a library
 * that copies members out would cost a second copy of the model). A deflated one
 * is unpacked by its owner. Nothing is ever written to the disk, and the names of
 * members are only compared. */

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

/* Does it begin like one? */
bool sfp__zip_is(const void *bytes, size_t size);

/* Reads and checks the directory: every member lies inside, has a name of its own and is stored or deflated, and what they
 * unpack to is in proportion to the archive. The bytes must outlive the handle; `label` stands for the file in messages. */
sfp_status sfp__zip_open(const char *label, const void *bytes, size_t size, sfp__zip **out, sfp_error *err);
void sfp__zip_close(sfp__zip *z);
DEFINE_OWNED_PTR(sfp__zip, sfp__zip_close)

const sfp__zip_member *sfp__zip_find(const sfp__zip *z, const char *name); /* NULL: not there */

/* The bytes of a member, checked against its CRC. *owned is a block of sfp__malloc that holds them, for the caller to free, or
 * NULL when they lie in the archive. */
sfp_status sfp__zip_bytes(const sfp__zip *z, const sfp__zip_member *m, const uint8_t **bytes, uint8_t **owned, sfp_error *err);

/* -------------------------------------------------------------------- formats */

typedef struct sfp__tensor_format {
    const char *name;
    /* zip: the archive when the file is one, else NULL */
    bool (*is)(const uint8_t *bytes, size_t size, const sfp__zip *zip);
    sfp_status (*open)(sfp__tensor_file *f, const uint8_t *bytes, size_t size, const sfp__zip *zip, sfp_error *err);
} sfp__tensor_format;

extern const sfp__tensor_format sfp__format_torch, sfp__format_torch_old, sfp__format_npy, sfp__format_npz,
    sfp__format_safetensors;

/* Opens bytes as this format (NULL: as what they are); bytes NULL: those of the file at `path`. */
sfp_status sfp__tensor_file_open_as(const sfp__tensor_format *format, const char *path, const void *bytes, size_t size,
                                    sfp__tensor_file **out, sfp_error *err);

/* Adds a tensor, its name copied. Counts and names are limited: the same dict can stand in many places of a pickle. */
sfp_status sfp__tensor_file_add(sfp__tensor_file *f, const sfp__tensor *t, sfp_error *err);
/* The file owns `block` from now on, also after a failure. */
sfp_status sfp__tensor_file_own(sfp__tensor_file *f, void *block, sfp_error *err);

#endif
