/* A named tensor as stored in a file, independent of the file format. */
#ifndef SFP_IO_TENSOR_TENSOR_H
#define SFP_IO_TENSOR_TENSOR_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SFP__MAX_DIMS 8

/* enum, safetensors name, bytes per element, npy descriptor (NULL: none) */
#define SFP__DTYPE_LIST(X)   \
    X(F64, "F64", 8, "<f8")  \
    X(F32, "F32", 4, "<f4")  \
    X(F16, "F16", 2, "<f2")  \
    X(BF16, "BF16", 2, NULL) \
    X(I64, "I64", 8, "<i8")  \
    X(I32, "I32", 4, "<i4")  \
    X(U8, "U8", 1, "|u1")

typedef enum sfp__dtype {
#define SFP__DTYPE_ENUM(name, text, size, npy) SFP__DTYPE_##name,
    SFP__DTYPE_LIST(SFP__DTYPE_ENUM)
#undef SFP__DTYPE_ENUM
        SFP__DTYPE_COUNT
} sfp__dtype;

typedef struct sfp__tensor {
    const char *name; /* owned by the file that contains it */
    sfp__dtype dtype;
    int ndim;
    int64_t shape[SFP__MAX_DIMS];
    size_t count;     /* product of shape; 1 for a scalar */
    size_t bytes;     /* count * element size */
    const void *data; /* little-endian; may be unaligned for its type */
} sfp__tensor;

const char *sfp__dtype_name(sfp__dtype t);
size_t sfp__dtype_size(sfp__dtype t);

/* Bytes that suffice for the text of any shape. */
#define SFP__SHAPE_MAX 192

/* Formats a shape as "(2304, 768)", "(5,)" or "()"; returns buf. */
const char *sfp__shape_text(const int64_t *shape, int ndim, char *buf, size_t size);

/* Computes the number of elements and bytes of a shape; false: a dimension is negative or a product overflows. */
bool sfp__shape_count(const int64_t *shape, int ndim, sfp__dtype dtype, size_t *count, size_t *bytes);

/* Fails with SFP_ESHAPE and "FILE: tensor 'NAME' is (..), expected (..)" unless the tensor has this shape. */
sfp_status sfp__tensor_expect(const char *file, const sfp__tensor *t, const int64_t *shape, int ndim, sfp_error *err);

/* Converts all elements to float or int64; `out` holds t->count elements. to_f32 accepts any dtype, to_i64 only integer
 * dtypes. */
sfp_status sfp__tensor_to_f32(const char *file, const sfp__tensor *t, float *out, sfp_error *err);
sfp_status sfp__tensor_to_i64(const char *file, const sfp__tensor *t, int64_t *out, sfp_error *err);

/* Half-precision conversions, round to nearest even. */
float sfp__f16_to_f32(uint16_t h);
uint16_t sfp__f32_to_f16(float f);
float sfp__bf16_to_f32(uint16_t h);
uint16_t sfp__f32_to_bf16(float f);

#endif
