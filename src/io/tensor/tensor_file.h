/* Any file of weights as named tensors: safetensors, PyTorch (.pth, .pt, .bin), NumPy's .npy and .npz.
 *
 * The format is told from the bytes, never from the name. Tensors lie in the mapped file wherever the format allows it, so
 * opening costs no copy of the model. Nested dicts of a PyTorch file become dotted names: {"model": {"norm.bias": t}} holds
 * 'model.norm.bias'; the one tensor of a .npy is called 'array'. */
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
    sfp__tensor *tensors; /* (count) in the order of the file; safetensors: of their offsets */
    size_t count;
    sfp__meta *meta; /* (meta_count) strings that safetensors keep beside the tensors; other formats have none */
    size_t meta_count;
    /* the file's own: */
    sfp__map map;                /* empty when the bytes are the caller's */
    const sfp__tensor **by_name; /* (count) */
    void **blocks;               /* heap blocks that tensors and names lie in */
    size_t capacity, block_count, block_capacity, name_bytes;
    struct json_t *header; /* of a safetensors file: has its names and metadata */
} sfp__tensor_file;

sfp_status sfp__tensor_file_open(const char *path, sfp__tensor_file **out, sfp_error *err);
/* The same checks on bytes in memory (which must outlive the handle); `label` stands for the file in messages. */
sfp_status sfp__tensor_file_open_memory(const char *label, const void *bytes, size_t size, sfp__tensor_file **out,
                                        sfp_error *err);
void sfp__tensor_file_close(sfp__tensor_file *f);
DEFINE_OWNED_PTR(sfp__tensor_file, sfp__tensor_file_close)

const sfp__tensor *sfp__tensor_file_find(const sfp__tensor_file *f, const char *name); /* NULL: not there */
sfp_status sfp__tensor_file_need(const sfp__tensor_file *f, const char *name, const sfp__tensor **out, sfp_error *err);
const char *sfp__tensor_file_meta(const sfp__tensor_file *f, const char *key); /* NULL: not there */

/* Tells the kernel that the mapped pages are not needed for now (they come back when read). */
void sfp__tensor_file_release(const sfp__tensor_file *f);

/* NumPy's .npy, versions 1-3, C order, little-endian dtypes of tensor.h: this format and no other. */
sfp_status sfp__npy_open(const char *path, sfp__tensor_file **out, sfp_error *err);
sfp_status sfp__npy_open_memory(const char *label, const void *bytes, size_t size, sfp__tensor_file **out, sfp_error *err);
sfp_status sfp__npy_write(const char *path, const sfp__tensor *t, sfp_error *err);

#endif
