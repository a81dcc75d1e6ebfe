/* PyTorch files: torch_file.c finds the pickle and the storages, torch_tensors.c the tensors in the pickle. */
#ifndef SFP_IO_TORCH_INTERNAL_H
#define SFP_IO_TORCH_INTERNAL_H

#include "io/pickle.h"
#include "io/tensor_file_internal.h"

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
