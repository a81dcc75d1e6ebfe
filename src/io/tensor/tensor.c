/* Element types, shapes as text, conversions.
 *
 * The bytes of a tensor are used in the place where its file has them, so they may be unaligned for their type. Every element is
 * read by memcpy, which compilers turn into a plain load. */
#include "io/tensor/tensor.h"

#include "base/mem.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files contain little-endian numbers and are used in place");

const char *sfp__dtype_name(sfp__dtype t)
{
    switch (t) {
#define DTYPE_NAME(name, text, size, npy) \
    case SFP__DTYPE_##name:               \
        return text;
        SFP__DTYPE_LIST(DTYPE_NAME)
#undef DTYPE_NAME
    case SFP__DTYPE_COUNT:
        break;
    }
    return "?";
}

size_t sfp__dtype_size(sfp__dtype t)
{
    switch (t) {
#define DTYPE_SIZE(name, text, size, npy) \
    case SFP__DTYPE_##name:               \
        return size;
        SFP__DTYPE_LIST(DTYPE_SIZE)
#undef DTYPE_SIZE
    case SFP__DTYPE_COUNT:
        break;
    }
    return 0;
}

const char *sfp__shape_text(const int64_t *shape, int ndim, char *buf, size_t size)
{
    if (size == 0)
        return "";
    size_t at = 0;
    buf[0] = '\0';
    for (int i = 0; i < ndim && at < size; i++) {
        /* a shortened text is still terminated; snprintf returns the full length */
        int n = snprintf(buf + at, size - at, "%s%lld", i ? ", " : "(", (long long)shape[i]);
        at += n > 0 ? (size_t)n : 0;
    }
    if (at < size)
        (void)snprintf(buf + at, size - at, "%s", ndim == 0 ? "()" : ndim == 1 ? ",)" : ")");
    return buf;
}

bool sfp__shape_count(const int64_t *shape, int ndim, sfp__dtype dtype, size_t *count, size_t *bytes)
{
    size_t n = 1, b;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0 || !sfp__mul_size(n, (size_t)shape[i], &n))
            return false;
    }
    if (!sfp__mul_size(n, sfp__dtype_size(dtype), &b))
        return false;
    *count = n;
    *bytes = b;
    return true;
}

sfp_status sfp__tensor_expect(const char *file, const sfp__tensor *t, const int64_t *shape, int ndim, sfp_error *err)
{
    bool same = t->ndim == ndim;
    for (int i = 0; same && i < ndim; i++)
        same = t->shape[i] == shape[i];
    if (same)
        return SFP_OK;
    char name[SFP__NAME_MAX], found[SFP__SHAPE_MAX], expected[SFP__SHAPE_MAX];
    return sfp__fail(err, SFP_ESHAPE, "%s: tensor '%s' is %s, expected %s", file, sfp__printable(t->name, name, sizeof name),
                     sfp__shape_text(t->shape, t->ndim, found, sizeof found),
                     sfp__shape_text(shape, ndim, expected, sizeof expected));
}

/* One loop per type: `expr` converts the element `v` of type `type`. */
#define CONVERT(type, expr)                         \
    for (size_t i = 0; i < t->count; i++) {         \
        type v;                                     \
        memcpy(&v, bytes + i * sizeof v, sizeof v); \
        out[i] = (expr);                            \
    }                                               \
    return SFP_OK

sfp_status sfp__tensor_to_f32(const char *file, const sfp__tensor *t, float *out, sfp_error *err)
{
    const uint8_t *bytes = t->data;
    switch (t->dtype) {
    case SFP__DTYPE_F32:
        if (t->bytes > 0)
            memcpy(out, bytes, t->bytes);
        return SFP_OK;
    case SFP__DTYPE_F64:
        CONVERT(double, (float)v);
    case SFP__DTYPE_F16:
        CONVERT(uint16_t, sfp__f16_to_f32(v));
    case SFP__DTYPE_BF16:
        CONVERT(uint16_t, sfp__bf16_to_f32(v));
    case SFP__DTYPE_I64:
        CONVERT(int64_t, (float)v);
    case SFP__DTYPE_I32:
        CONVERT(int32_t, (float)v);
    case SFP__DTYPE_U8:
        CONVERT(uint8_t, (float)v);
    case SFP__DTYPE_COUNT:
        break;
    }
    return sfp__fail(err, SFP_EINVAL, "%s: tensor of unknown type %d", file, (int)t->dtype);
}

sfp_status sfp__tensor_to_i64(const char *file, const sfp__tensor *t, int64_t *out, sfp_error *err)
{
    const uint8_t *bytes = t->data;
    switch (t->dtype) {
    case SFP__DTYPE_I64:
        if (t->bytes > 0)
            memcpy(out, bytes, t->bytes);
        return SFP_OK;
    case SFP__DTYPE_I32:
        CONVERT(int32_t, v);
    case SFP__DTYPE_U8:
        CONVERT(uint8_t, v);
    default:
        break;
    }
    char name[SFP__NAME_MAX];
    return sfp__fail(err, SFP_EUNSUPPORTED, "%s: tensor '%s' is %s, expected integers (I64, I32 or U8)", file,
                     sfp__printable(t->name, name, sizeof name), sfp__dtype_name(t->dtype));
}

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

float sfp__f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 0x1f, fraction = h & 0x3ff;
    if (exponent == 0x1f) /* inf, NaN */
        return float_of(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0) /* zero, subnormal: fraction * 2^-24 is exact in a float */
        return float_of(sign | bits_of((float)fraction * 0x1p-24f));
    return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t sfp__f32_to_f16(float f)
{
    uint32_t bits = bits_of(f), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) /* NaN: quiet, the payload's upper bits kept */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
    if (magnitude >= 0x477ff000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) {
        /* below 2^-14: a sum with 0.5 has its last place at 2^-24, the unit of subnormals, so the FPU does the rounding */
        uint32_t units = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000;
        return (uint16_t)(sign | units);
    }
    uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
}

float sfp__bf16_to_f32(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

uint16_t sfp__f32_to_bf16(float f)
{
    uint32_t bits = bits_of(f);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40); /* NaN stays NaN, quiet */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
