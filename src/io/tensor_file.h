/* Any file of weights as named tensors: safetensors, PyTorch (.pth, .pt, .bin), NumPy's .npz.
 *
 * The format is told from the bytes, never from the name. Tensors lie in the mapped file wherever the format allows it, so
 * opening costs no copy of the model. Nested dicts of a PyTorch file become dotted names: {"model": {"norm.bias": t}} holds
 * 'model.norm.bias'. */
#ifndef SFP_IO_TENSOR_FILE_H
#define SFP_IO_TENSOR_FILE_H

#include "base/mem.h"
#include "io/tensor.h"

typedef struct sfp_tensor_file sfp_tensor_file;

sfp_status sfp__tensor_file_open(const char *path, sfp_tensor_file **out, sfp_error *err);
/* The same checks on bytes in memory (which must outlive the handle); `label` stands for the file in messages. */
sfp_status sfp__tensor_file_open_memory(const char *label, const void *bytes, size_t size, sfp_tensor_file **out, sfp_error *err);
void sfp__tensor_file_close(sfp_tensor_file *f);
DEFINE_OWNED_PTR(sfp_tensor_file, sfp__tensor_file_close)

const char *sfp__tensor_file_path(const sfp_tensor_file *f);
const char *sfp__tensor_file_format(const sfp_tensor_file *f); /* "safetensors", "PyTorch", ... */
size_t sfp__tensor_file_count(const sfp_tensor_file *f);
const sfp_tensor *sfp__tensor_file_at(const sfp_tensor_file *f, size_t i);           /* in the order of the file */
const sfp_tensor *sfp__tensor_file_find(const sfp_tensor_file *f, const char *name); /* NULL: not there */
sfp_status sfp__tensor_file_need(const sfp_tensor_file *f, const char *name, const sfp_tensor **out, sfp_error *err);

/* Strings that safetensors keep beside the tensors; other formats have none. */
const char *sfp__tensor_file_meta(const sfp_tensor_file *f, const char *key); /* NULL: not there */
size_t sfp__tensor_file_meta_count(const sfp_tensor_file *f);
void sfp__tensor_file_meta_at(const sfp_tensor_file *f, size_t i, const char **key, const char **value);

/* Tells the kernel that the mapped pages are not needed for now (they come back when read). */
void sfp__tensor_file_release(const sfp_tensor_file *f);

#endif
