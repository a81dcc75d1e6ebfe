/* A named tensor as it lies in a file: what every weight format gives and takes. */
#ifndef SFP_IO_TENSOR_TENSOR_H
#define SFP_IO_TENSOR_TENSOR_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SFP_MAX_DIMS 8

/* enum, safetensors name, bytes an element, npy descriptor (NULL: none) */
#define SFP_DTYPE_LIST(X)    \
    X(F64, "F64", 8, "<f8")  \
    X(F32, "F32", 4, "<f4")  \
    X(F16, "F16", 2, "<f2")  \
    X(BF16, "BF16", 2, NULL) \
    X(I64, "I64", 8, "<i8")  \
    X(I32, "I32", 4, "<i4")  \
    X(U8, "U8", 1, "|u1")

typedef enum sfp__dtype {
#define SFP_DTYPE_ENUM(name, text, size, npy) SFP_DTYPE_##name,
    SFP_DTYPE_LIST(SFP_DTYPE_ENUM)
#undef SFP_DTYPE_ENUM
        SFP_DTYPE_COUNT
} sfp__dtype;

typedef struct sfp__tensor {
    const char *name; /* owned by the file it came from */
    sfp__dtype dtype;
    int ndim;
    int64_t shape[SFP_MAX_DIMS];
    size_t count;     /* product of shape; 1 for a scalar */
    size_t bytes;     /* count * element size */
    const void *data; /* little-endian; may be unaligned for its type */
} sfp__tensor;

const char *sfp__dtype_name(sfp__dtype t);
size_t sfp__dtype_size(sfp__dtype t);

/* Capacity that any shape's text fits in. */
#define SFP_SHAPE_MAX 192

/* "(2304, 768)", "(5,)", "()"; returns buf. */
const char *sfp__shape_text(const int64_t *shape, int ndim, char *buf, size_t size);

/* Elements and bytes of a shape; false when a dimension is negative or a product does not fit. */
bool sfp__shape_count(const int64_t *shape, int ndim, sfp__dtype dtype, size_t *count, size_t *bytes);

/* Fails with SFP_ESHAPE and "FILE: tensor 'NAME' is (..), expected (..)". */
sfp_status sfp__tensor_expect(const char *file, const sfp__tensor *t, const int64_t *shape, int ndim, sfp_error *err);

/* Converts all elements (any dtype) to float / int64; `out` holds t->count.
 * to_i64 takes integer dtypes only. */
sfp_status sfp__tensor_to_f32(const char *file, const sfp__tensor *t, float *out, sfp_error *err);
sfp_status sfp__tensor_to_i64(const char *file, const sfp__tensor *t, int64_t *out, sfp_error *err);

/* Half-precision conversions, round to nearest even. */
float sfp__f16_to_f32(uint16_t h);
uint16_t sfp__f32_to_f16(float f);
float sfp__bf16_to_f32(uint16_t h);
uint16_t sfp__f32_to_bf16(float f);

#endif
