/* What the readers of weight formats fill. To add a format: a file with its sfp__tensor_format, a row in tensor_file.c. */
#ifndef SFP_IO_TENSOR_FILE_INTERNAL_H
#define SFP_IO_TENSOR_FILE_INTERNAL_H

#include "io/file.h"
#include "io/safetensors.h"
#include "io/tensor_file.h"
#include "io/zip.h"

typedef struct sfp__tensor_format {
    const char *name;
    /* zip: the archive when the file is one, else NULL */
    bool (*is)(const uint8_t *bytes, size_t size, const sfp_zip *zip);
    sfp_status (*open)(sfp_tensor_file *f, const uint8_t *bytes, size_t size, const sfp_zip *zip, sfp_error *err);
} sfp__tensor_format;

struct sfp_tensor_file {
    char *path;
    sfp_map map; /* empty when the bytes are the caller's */
    const sfp__tensor_format *format;
    sfp_tensor *tensors;
    size_t count, room;
    const sfp_tensor **by_name; /* (count) */
    void **blocks;              /* heap blocks that tensors and names lie in */
    size_t block_count, block_room;
    size_t name_bytes;
    sfp_safetensors *st; /* of a safetensors file: owns names and metadata */
};

/* Adds a tensor, its name copied. Counts and names are limited: the same dict can stand in many places of a pickle. */
sfp_status sfp__tensor_file_add(sfp_tensor_file *f, const sfp_tensor *t, sfp_error *err);
/* The file owns `block` from now on, also after a failure. */
sfp_status sfp__tensor_file_own(sfp_tensor_file *f, void *block, sfp_error *err);

extern const sfp__tensor_format sfp__format_torch, sfp__format_torch_old, sfp__format_npz;

#endif
