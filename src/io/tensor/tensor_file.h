/* A weights file of any format as named tensors: safetensors, PyTorch (.pth, .pt, .bin), NumPy's .npy and .npz.
 *
 * The format is detected from the bytes, never from the name. The file is read into memory once, and tensors point into it where the
 * format allows it: there is no second copy of the model, and later changes of the file have no effect. Nested dicts of a PyTorch file become dotted names: {"model": {"norm.bias": t}} contains
 * 'model.norm.bias'. The only tensor of a .npy is named 'array'. */
#ifndef SFP_IO_TENSOR_TENSOR_FILE_H
#define SFP_IO_TENSOR_TENSOR_FILE_H

#include "io/file.h"
#include "io/tensor/tensor.h"

typedef struct sfp__meta {
    const char *key, *value;
} sfp__meta;

typedef struct sfp__tensor_file {
    char *path;
    const char *format;   /* "safetensors", "PyTorch", ... */
    sfp__tensor *tensors; /* (count) in the order of the file; in safetensors by offset */
    size_t count;
    sfp__meta *meta; /* (meta_count) metadata of a safetensors file; other formats have none */
    size_t meta_count;
    /* private: */
    sfp__map map;                /* the bytes; empty: they belong to the caller */
    const sfp__tensor **by_name; /* (count) */
    void **blocks;               /* heap blocks that contain tensors and names */
    size_t capacity, block_count, block_capacity, name_bytes;
    struct sfp__json_value *header; /* header of a safetensors file; owns its names and metadata */
} sfp__tensor_file;

sfp_status sfp__tensor_file_open(const char *path, sfp__tensor_file **out, sfp_error *err);
/* Like open, but maps the file, which may be larger than the memory (sfp__map_open says what this means). */
sfp_status sfp__tensor_file_map(const char *path, sfp__tensor_file **out, sfp_error *err);
/* Opens a file in memory, with the same checks. The bytes must outlive the handle; `label` names the file in messages. */
sfp_status sfp__tensor_file_open_memory(const char *label, const void *bytes, size_t size, sfp__tensor_file **out,
                                        sfp_error *err);
void sfp__tensor_file_close(sfp__tensor_file *f);
DEFINE_OWNED_PTR(sfp__tensor_file, sfp__tensor_file_close)

/* Bytes [from, end). */
typedef struct sfp__span {
    const void *from, *end;
} sfp__span;
/* Returns the memory of the file to the system, except the bytes in `keep` (which it sorts). Tensors outside of these spans must not be read any
 * more. Memory of the caller, and data that were copied from the file, are not affected. */
void sfp__tensor_file_keep_only(sfp__tensor_file *f, size_t count, sfp__span *keep);

const sfp__tensor *sfp__tensor_file_find(const sfp__tensor_file *f, const char *name); /* NULL: no such tensor */
sfp_status sfp__tensor_file_need(const sfp__tensor_file *f, const char *name, const sfp__tensor **out, sfp_error *err);
const char *sfp__tensor_file_meta(const sfp__tensor_file *f, const char *key); /* NULL: no such key */

/* NumPy's .npy only: versions 1 to 3, C order, the little-endian dtypes of tensor.h. */
sfp_status sfp__npy_open(const char *path, sfp__tensor_file **out, sfp_error *err);
sfp_status sfp__npy_open_memory(const char *label, const void *bytes, size_t size, sfp__tensor_file **out, sfp_error *err);
sfp_status sfp__npy_write(const char *path, const sfp__tensor *t, sfp_error *err);

#endif
