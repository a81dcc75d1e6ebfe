/* The metadata of a safetensors file: texts by key. */
#ifndef SFP_IO_TENSOR_METADATA_H
#define SFP_IO_TENSOR_METADATA_H

#include "base/mem.h"
#include "io/tensor/tensor_file.h"

/* A growing list of metadata. `failed` (no memory) stays set. Keys and values are copied. */
typedef struct sfp__file_metadata {
    sfp__meta *list;
    size_t count, capacity;
    sfp__arena arena; /* memory of the copies */
    bool failed;
} sfp__file_metadata;

void sfp__metadata_put(sfp__file_metadata *m, const char *key, const char *value);
void sfp__metadata_put_int(sfp__file_metadata *m, const char *key, long long value);
void sfp__metadata_done(sfp__file_metadata *m);

/* Reads a number of the metadata; SFP_EFORMAT if it is missing or out of range. */
sfp_status sfp__metadata_int(const sfp__tensor_file *st, const char *key, long long min, long long max, long long *out,
                             sfp_error *err);

#endif
