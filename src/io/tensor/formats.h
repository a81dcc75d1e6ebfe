/* What the readers of weight formats share. To add a format: a file with its sfp__tensor_format, a row in tensor_file.c. */
#ifndef SFP_IO_TENSOR_FORMATS_H
#define SFP_IO_TENSOR_FORMATS_H

#include "io/tensor/pickle.h"
#include "io/tensor/tensor_file.h"
#include "io/tensor/zip.h"

typedef struct sfp__tensor_format {
    const char *name;
    /* zip: the archive when the file is one, else NULL */
    bool (*is)(const uint8_t *bytes, size_t size, const sfp_zip *zip);
    sfp_status (*open)(sfp_tensor_file *f, const uint8_t *bytes, size_t size, const sfp_zip *zip, sfp_error *err);
} sfp__tensor_format;

extern const sfp__tensor_format sfp__format_torch, sfp__format_torch_old, sfp__format_npy, sfp__format_npz,
    sfp__format_safetensors;

/* Opens bytes as this format (NULL: as what they are); bytes NULL: those of the file at `path`. */
sfp_status sfp__tensor_file_open_as(const sfp__tensor_format *format, const char *path, const void *bytes, size_t size,
                                    sfp_tensor_file **out, sfp_error *err);

/* Adds a tensor, its name copied. Counts and names are limited: the same dict can stand in many places of a pickle. */
sfp_status sfp__tensor_file_add(sfp_tensor_file *f, const sfp_tensor *t, sfp_error *err);
/* The file owns `block` from now on, also after a failure. */
sfp_status sfp__tensor_file_own(sfp_tensor_file *f, void *block, sfp_error *err);

/* -------------------------------------------------------------------- PyTorch
 *
 * torch_file.c finds the pickle and the storages, torch_tensors.c the tensors in the pickle. */

/* One flat array of numbers that tensors are views of, named by a persistent value of the pickle. */
typedef struct sfp__torch_storage {
    sfp_pickle_value at; /* the persistent value */
    const char *key;     /* its name in the file */
    sfp_dtype dtype;
    size_t count; /* elements */
    const uint8_t *bytes;
} sfp__torch_storage;

typedef struct sfp__torch_storages {
    sfp__torch_storage *list; /* (count), ascending by `at`; NULL bytes: not found yet */
    size_t count;
} sfp__torch_storages;

/* What a pickle of weights may name. */
extern const char *const sfp__torch_globals[];
sfp_pickle_limits sfp__torch_limits(void);

/* Every storage that the pickle names, with its type and length; where the bytes are is the file's to know. */
sfp_status sfp__torch_find_storages(const char *path, const sfp_pickle *p, sfp__torch_storages *out, sfp_error *err);
/* All tensors of all dicts, into `f`. Together they may be twice `bytes` (what the storages hold): tied weights are few. */
sfp_status sfp__torch_add_tensors(sfp_tensor_file *f, const sfp_pickle *p, const sfp__torch_storages *s, size_t bytes,
                                  sfp_error *err);

#endif
