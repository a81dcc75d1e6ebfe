/* Reading and writing safetensors.
 *
 * Files may be of any origin, so the header is not trusted. Nothing is used before the length, the JSON, and each tensor's type,
 * shape and offsets are checked. The tensors together must cover the data area without gap or overlap: the format requires this,
 * and it means that no two tensors share bytes and that no bytes are hidden. Afterwards tensors are pointers into the mapping:
 * loading copies nothing.
 *
 * The writer checks everything before it writes the first byte, so that the reader accepts every file that it writes. */
#include "io/tensor/safetensors.h"

#include "base/text.h"
#include "io/json_read.h"
#include "io/json_write.h"
#include "io/tensor/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define HEADER_MAX 100000000u /* maximum bytes of a header, as in the reference implementation */

typedef struct reader {
    sfp__tensor_file *f;
    const uint8_t *data; /* the data area */
    size_t size;
    sfp_error *err;
} reader;

/* ------------------------------------------------------------------- reading */

static const char *type_name(const sfp__json_value *v)
{
    static const char *const names[] = {
        [SFP__JSON_OBJECT] = "an object",   [SFP__JSON_ARRAY] = "an array", [SFP__JSON_STRING] = "a string",
        [SFP__JSON_INTEGER] = "an integer", [SFP__JSON_REAL] = "a real",    [SFP__JSON_TRUE] = "true",
        [SFP__JSON_FALSE] = "false",        [SFP__JSON_NULL] = "null",
    };
    return v ? names[v->type] : "missing";
}

/* Fails with a message about one tensor: "FILE: tensor 'NAME' " and the rest. */
#define FAIL_TENSOR(status, fmt, ...)                             \
    sfp__fail(r->err, status, "%s: tensor '%s' " fmt, r->f->path, \
              sfp__printable(t->name, (char[SFP__NAME_MAX]){0}, SFP__NAME_MAX), __VA_ARGS__)

static sfp_status parse_dtype(const reader *r, const sfp__json_value *info, sfp__tensor *t)
{
    const sfp__json_value *v = sfp__json_get(info, "dtype");
    const char *text = sfp__json_text(v);
    if (!text)
        return FAIL_TENSOR(SFP_EFORMAT, "has a dtype that is %s, expected a string", type_name(v));
    for (int i = 0; i < SFP__DTYPE_COUNT; i++) {
        if (strcmp(text, sfp__dtype_name((sfp__dtype)i)) == 0) {
            t->dtype = (sfp__dtype)i;
            return SFP_OK;
        }
    }
    char shown[64];
    return FAIL_TENSOR(SFP_EUNSUPPORTED, "has dtype '%s', expected F64, F32, F16, BF16, I64, I32 or U8",
                       sfp__printable(text, shown, sizeof shown));
}

static sfp_status parse_shape(const reader *r, const sfp__json_value *info, sfp__tensor *t)
{
    const sfp__json_value *shape = sfp__json_get(info, "shape");
    if (!sfp__json_is(shape, SFP__JSON_ARRAY))
        return FAIL_TENSOR(SFP_EFORMAT, "has a shape that is %s, expected an array", type_name(shape));
    size_t n = sfp__json_size(shape);
    if (n > SFP__MAX_DIMS)
        return FAIL_TENSOR(SFP_ELIMIT, "has %zu dimensions, expected at most %d", n, SFP__MAX_DIMS);
    for (size_t i = 0; i < n; i++) {
        const sfp__json_value *v = sfp__json_at(shape, i);
        if (!sfp__json_is(v, SFP__JSON_INTEGER))
            return FAIL_TENSOR(SFP_EFORMAT, "has %s as dimension %zu, expected an integer", type_name(v), i);
        t->shape[i] = sfp__json_integer(v);
        if (t->shape[i] < 0)
            return FAIL_TENSOR(SFP_EFORMAT, "has %lld as dimension %zu, expected 0 or more", (long long)t->shape[i], i);
    }
    t->ndim = (int)n;
    if (!sfp__shape_count(t->shape, t->ndim, t->dtype, &t->count, &t->bytes)) {
        char shown[SFP__SHAPE_MAX];
        return FAIL_TENSOR(SFP_ELIMIT, "has shape %s: too large", sfp__shape_text(t->shape, t->ndim, shown, sizeof shown));
    }
    return SFP_OK;
}

static sfp_status parse_offsets(const reader *r, const sfp__json_value *info, sfp__tensor *t)
{
    const sfp__json_value *pair = sfp__json_get(info, "data_offsets");
    const sfp__json_value *first = sfp__json_at(pair, 0), *last = sfp__json_at(pair, 1);
    if (sfp__json_size(pair) != 2 || !sfp__json_is(first, SFP__JSON_INTEGER) || !sfp__json_is(last, SFP__JSON_INTEGER))
        return FAIL_TENSOR(SFP_EFORMAT, "has data_offsets that are %s, expected two integers",
                           sfp__json_is(pair, SFP__JSON_ARRAY) ? "something else" : type_name(pair));
    long long begin = sfp__json_integer(first), end = sfp__json_integer(last);
    if (begin < 0 || end < begin)
        return FAIL_TENSOR(SFP_EFORMAT, "has data_offsets [%lld, %lld], expected 0 <= begin <= end", begin, end);
    if ((unsigned long long)end > r->size)
        return FAIL_TENSOR(SFP_EFORMAT, "has data_offsets [%lld, %lld], but the file has %zu bytes of data", begin, end, r->size);
    if ((size_t)(end - begin) != t->bytes) {
        char shown[SFP__SHAPE_MAX];
        return FAIL_TENSOR(SFP_EFORMAT, "has data_offsets [%lld, %lld], expected %zu bytes for %s %s", begin, end, t->bytes,
                           sfp__dtype_name(t->dtype), sfp__shape_text(t->shape, t->ndim, shown, sizeof shown));
    }
    t->data = r->data + begin;
    return SFP_OK;
}

static sfp_status parse_tensor(const reader *r, const char *name, const sfp__json_value *info, sfp__tensor *t)
{
    *t = (sfp__tensor){.name = name};
    if (!sfp__json_is(info, SFP__JSON_OBJECT))
        return FAIL_TENSOR(SFP_EFORMAT, "is %s, expected an object", type_name(info));
    TRY(parse_dtype(r, info, t));
    TRY(parse_shape(r, info, t));
    return parse_offsets(r, info, t);
}

static sfp_status parse_meta(const reader *r, const sfp__json_value *meta)
{
    if (!sfp__json_is(meta, SFP__JSON_OBJECT))
        return sfp__fail(r->err, SFP_EFORMAT, "%s: __metadata__ is %s, expected an object of strings", r->f->path,
                         type_name(meta));
    TRY(sfp__alloc(&r->f->meta, sfp__json_size(meta), sizeof *r->f->meta, r->err));
    for (size_t i = 0; i < sfp__json_size(meta); i++) {
        const sfp__json_value *value = sfp__json_at(meta, i);
        if (!sfp__json_is(value, SFP__JSON_STRING)) {
            char shown[SFP__NAME_MAX];
            return sfp__fail(r->err, SFP_EFORMAT, "%s: __metadata__ '%s' is %s, expected a string", r->f->path,
                             sfp__printable(value->key, shown, sizeof shown), type_name(value));
        }
        r->f->meta[r->f->meta_count++] = (sfp__meta){value->key, value->text};
    }
    return SFP_OK;
}

static int compare_offset(const void *pa, const void *pb)
{
    const sfp__tensor *a = pa, *b = pb;
    if (a->data != b->data)
        return (const uint8_t *)a->data < (const uint8_t *)b->data ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1; /* an empty tensor precedes the one that begins at the same offset */
    return strcmp(a->name, b->name);
}

/* Checks that the tensors, sorted by offset, each begin where the previous one ends. */
static sfp_status check_cover(const reader *r)
{
    size_t at = 0;
    const char *previous = NULL;
    for (size_t i = 0; i < r->f->count; i++) {
        const sfp__tensor *t = &r->f->tensors[i];
        size_t begin = (size_t)((const uint8_t *)t->data - r->data);
        char shown[SFP__NAME_MAX];
        if (begin < at)
            return FAIL_TENSOR(SFP_EFORMAT, "has data_offsets [%zu, %zu] and overlaps tensor '%s', which ends at %zu", begin,
                               begin + t->bytes, sfp__printable(previous, shown, sizeof shown), at);
        if (begin > at)
            return FAIL_TENSOR(SFP_EFORMAT,
                               "has data_offsets [%zu, %zu], expected to begin at %zu: the bytes between belong to no tensor",
                               begin, begin + t->bytes, at);
        at = begin + t->bytes;
        previous = t->name;
    }
    if (at != r->size)
        return sfp__fail(r->err, SFP_EFORMAT, "%s: the tensors end at %zu, but the file has %zu bytes of data", r->f->path, at,
                         r->size);
    return SFP_OK;
}

static sfp_status parse_entries(const reader *r)
{
    sfp__tensor_file *f = r->f;
    TRY(sfp__alloc(&f->tensors, sfp__json_size(f->header), sizeof *f->tensors, r->err));
    for (size_t i = 0; i < sfp__json_size(f->header); i++) {
        const sfp__json_value *value = sfp__json_at(f->header, i);
        if (strcmp(value->key, "__metadata__") == 0)
            TRY(parse_meta(r, value));
        else
            TRY(parse_tensor(r, value->key, value, &f->tensors[f->count++]));
    }
    if (f->count > 0)
        qsort(f->tensors, f->count, sizeof *f->tensors, compare_offset);
    return check_cover(r);
}

/* Whether the first bytes look like text: no control characters, and no bytes that never occur in UTF-8. */
static bool is_text(const uint8_t *bytes, size_t size)
{
    size_t n = size < 512 ? size : 512;
    for (size_t i = 0; i < n; i++)
        if ((bytes[i] < ' ' && !(bytes[i] >= '\t' && bytes[i] <= '\r')) || bytes[i] == 0x7f || bytes[i] >= 0xf5)
            return false;
    return n > 0;
}

/* Guesses what a file is that has no known format (this format is tried last), for the error message; NULL: unknown. */
static const char *recognise(const uint8_t *bytes, size_t size)
{
    static const struct {
        const char *bytes, *what;
        size_t length;
    } list[] = {{"\x89PNG", "a PNG image", 4}, {"\xff\xd8\xff", "a JPEG image", 3}, {"GIF8", "a GIF image", 4},
                {"RIFF", "a WebP image", 4},   {"\x1f\x8b", "a gzip file", 2},      {"%PDF", "a PDF document", 4},
                {"\x89HDF", "an HDF5 file", 4}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (size >= list[i].length && memcmp(bytes, list[i].bytes, list[i].length) == 0)
            return list[i].what;
    return is_text(bytes, size) ? "text" : NULL;
}

static sfp_status fail_other_file(const char *path, const uint8_t *bytes, size_t size, sfp_error *err)
{
    const char *what = recognise(bytes, size);
    return sfp__fail(err, SFP_EFORMAT, "%s: not a file of weights%s%s%s, expected safetensors, PyTorch or npz", path,
                     what ? " (it is " : "", what ? what : "", what ? ")" : "");
}

static sfp_status parse(sfp__tensor_file *f, const uint8_t *bytes, size_t size, const sfp__zip *zip, sfp_error *err)
{
    (void)zip;
    if (size < 8 && is_text(bytes, size))
        return fail_other_file(f->path, bytes, size, err);
    if (size < 8)
        return sfp__fail(err, SFP_EFORMAT, "%s: file has %zu bytes, expected a safetensors file of at least 8", f->path, size);
    uint64_t length;
    memcpy(&length, bytes, 8);
    if (length > UINT32_MAX)
        return fail_other_file(f->path, bytes, size, err);
    if (length > HEADER_MAX)
        return sfp__fail(err, SFP_EFORMAT, "%s: header length is %llu, expected at most %u (not a safetensors file?)", f->path,
                         (unsigned long long)length, HEADER_MAX);
    if (length > size - 8)
        return sfp__fail(err, SFP_EFORMAT, "%s: header length is %llu, but only %zu bytes follow it", f->path,
                         (unsigned long long)length, size - 8);
    const char *text = (const char *)bytes + 8;
    if (length == 0 || text[0] != '{')
        return sfp__fail(err, SFP_EFORMAT, "%s: the header does not begin with '{' (not a safetensors file?)", f->path);

    OWNED char *label = NULL;
    TRY(sfp__text_new(&label, err, "%s: header", f->path));
    TRY(sfp__json_parse(label, text, (size_t)length, &f->header, err));
    return parse_entries(&(reader){f, bytes + 8 + length, size - 8 - (size_t)length, err});
}

static bool is_not_archive(const uint8_t *bytes, size_t size, const sfp__zip *zip)
{
    (void)bytes;
    (void)size;
    return zip == NULL;
}

const sfp__tensor_format sfp__format_safetensors = {"safetensors", is_not_archive, parse};

sfp_status sfp__safetensors_open(const char *path, sfp__tensor_file **out, sfp_error *err)
{
    return sfp__tensor_file_open_as(&sfp__format_safetensors, path, NULL, 0, out, err);
}

sfp_status sfp__safetensors_open_memory(const char *label, const void *bytes, size_t size, sfp__tensor_file **out, sfp_error *err)
{
    return sfp__tensor_file_open_as(&sfp__format_safetensors, label, bytes, size, out, err);
}

/* ------------------------------------------------------------------ checksum */

void sfp__safetensors_sum(const char *also, size_t count, const sfp__tensor *tensors, char out[SFP__CHECKSUM_MAX])
{
    unsigned long sum = crc32_z(0, NULL, 0);
    if (also)
        sum = crc32_z(sum, (const unsigned char *)also, strlen(also));
    for (size_t i = 0; i < count; i++)
        if (tensors[i].bytes)
            sum = crc32_z(sum, tensors[i].data, tensors[i].bytes);
    (void)snprintf(out, SFP__CHECKSUM_MAX, "%08lx", sum);
}

sfp_status sfp__safetensors_check_sum(const sfp__tensor_file *f, const char *also, sfp_error *err)
{
    char sum[SFP__CHECKSUM_MAX];
    if (!sfp__tensor_file_meta(f, SFP__CHECKSUM_KEY))
        return SFP_OK;
    sfp__safetensors_sum(also, f->count, f->tensors, sum);
    return sfp__safetensors_expect_sum(f, sum, err);
}

sfp_status sfp__safetensors_expect_sum(const sfp__tensor_file *f, const char *sum, sfp_error *err)
{
    char shown[32];
    const char *expected = sfp__tensor_file_meta(f, SFP__CHECKSUM_KEY);
    if (!expected || strcmp(sum, expected) == 0)
        return SFP_OK;
    return sfp__fail(err, SFP_EFORMAT, "%s: checksum is %s, expected %s; the file is damaged", f->path, sum,
                     sfp__printable(expected, shown, sizeof shown));
}

/* ------------------------------------------------------------------- writing */

static sfp_status check_text(const char *path, const char *role, const char *s, sfp_error *err)
{
    char shown[SFP__NAME_MAX];
    if (!s)
        return sfp__fail(err, SFP_EINVAL, "%s: %s is NULL, expected text", path, role);
    if (sfp__utf8_valid(s))
        return SFP_OK;
    return sfp__fail(err, SFP_EINVAL, "%s: %s '%s' is not UTF-8", path, role, sfp__printable(s, shown, sizeof shown));
}

static sfp_status check_tensor(const char *path, const sfp__tensor *t, sfp_error *err)
{
    TRY(check_text(path, "tensor name", t->name, err));
    char name[SFP__NAME_MAX], shape[SFP__SHAPE_MAX];
    sfp__printable(t->name, name, sizeof name);
    if (strcmp(t->name, "__metadata__") == 0)
        return sfp__fail(err, SFP_EINVAL, "%s: a tensor cannot be named '__metadata__'", path);
    if ((int)t->dtype < 0 || t->dtype >= SFP__DTYPE_COUNT)
        return sfp__fail(err, SFP_EINVAL, "%s: tensor '%s' has unknown type %d", path, name, (int)t->dtype);
    if (t->ndim < 0 || t->ndim > SFP__MAX_DIMS)
        return sfp__fail(err, SFP_ELIMIT, "%s: tensor '%s' has %d dimensions, expected at most %d", path, name, t->ndim,
                         SFP__MAX_DIMS);
    size_t count, bytes;
    if (!sfp__shape_count(t->shape, t->ndim, t->dtype, &count, &bytes) || bytes != t->bytes || (bytes > 0 && !t->data))
        return sfp__fail(err, SFP_EINVAL, "%s: tensor '%s' has %zu bytes%s, which do not match %s %s", path, name, t->bytes,
                         t->data ? "" : " (NULL)", sfp__dtype_name(t->dtype),
                         sfp__shape_text(t->shape, t->ndim, shape, sizeof shape));
    return SFP_OK;
}

static int compare_text(const void *pa, const void *pb)
{
    const char *const *a = pa, *const *b = pb;
    return strcmp(*a, *b);
}

/* Sorts `names` and checks that they are distinct: the reader rejects duplicate keys. */
static sfp_status check_distinct(const char *path, const char *role, const char **names, size_t count, sfp_error *err)
{
    if (count > 1)
        qsort(names, count, sizeof *names, compare_text);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            return sfp__fail(err, SFP_EINVAL, "%s: %s '%s' is a duplicate", path, role,
                             sfp__printable(names[i], (char[SFP__NAME_MAX]){0}, SFP__NAME_MAX));
    }
    return SFP_OK;
}

static sfp_status check_all(const char *path, const sfp__tensor *tensors, size_t count, const sfp__meta *meta, size_t meta_count,
                            sfp_error *err)
{
    OWNED const char **names = NULL;
    TRY(sfp__alloc(&names, count > meta_count ? count : meta_count, sizeof *names, err));
    for (size_t i = 0; i < count; i++) {
        TRY(check_tensor(path, &tensors[i], err));
        names[i] = tensors[i].name;
    }
    TRY(check_distinct(path, "tensor", names, count, err));
    for (size_t i = 0; i < meta_count; i++) {
        TRY(check_text(path, "metadata key", meta[i].key, err));
        TRY(check_text(path, "metadata value", meta[i].value, err));
        names[i] = meta[i].key;
    }
    return check_distinct(path, "metadata key", names, meta_count, err);
}

static void put_tensor(sfp__json *j, const sfp__tensor *t, size_t begin)
{
    sfp__json_object(j, t->name);
    sfp__json_string(j, "dtype", sfp__dtype_name(t->dtype));
    sfp__json_array(j, "shape");
    for (int i = 0; i < t->ndim; i++)
        sfp__json_int(j, NULL, t->shape[i]);
    sfp__json_end(j);
    sfp__json_array(j, "data_offsets");
    sfp__json_uint(j, NULL, begin);
    sfp__json_uint(j, NULL, begin + t->bytes);
    sfp__json_end(j);
    sfp__json_end(j);
}

sfp_status sfp__safetensors_header(const char *path, const sfp__tensor *tensors, size_t count, const sfp__meta *meta,
                                   size_t meta_count, sfp__text *out, sfp_error *err)
{
    sfp__json j = {.text = out};
    size_t at = 0, end;
    TRY(check_all(path, tensors, count, meta, meta_count, err));
    sfp__text_fill(out, '\0', 8); /* placeholder for the header length */
    sfp__json_object(&j, NULL);
    if (meta_count > 0) {
        sfp__json_object(&j, "__metadata__");
        for (size_t i = 0; i < meta_count; i++)
            sfp__json_string(&j, meta[i].key, meta[i].value);
        sfp__json_end(&j);
    }
    for (size_t i = 0; i < count; i++, at = end) {
        if (!sfp__add_size(at, tensors[i].bytes, &end))
            return sfp__fail(err, SFP_ELIMIT, "%s: the tensors are too large for one file", path);
        put_tensor(&j, &tensors[i], at);
    }
    sfp__json_end(&j);
    sfp__text_fill(out, ' ', (8 - out->length % 8) % 8); /* the data area is 8-byte aligned */
    TRY(sfp__check_memory(!out->failed, err));
    uint64_t length = out->length - 8;
    memcpy(out->s, &length, 8);
    return SFP_OK;
}

sfp_status sfp__safetensors_write(const char *path, const sfp__tensor *tensors, size_t count, const sfp__meta *meta,
                                  size_t meta_count, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text header = {0};
    OWNED_BY(sfp__writer_abort) sfp__writer w = {.fd = -1};
    TRY(sfp__safetensors_header(path, tensors, count, meta, meta_count, &header, err));
    TRY(sfp__writer_open(path, &w, err));
    TRY(sfp__writer_put(&w, header.s, header.length, err));
    for (size_t i = 0; i < count; i++)
        TRY(sfp__writer_put(&w, tensors[i].data, tensors[i].bytes, err));
    return sfp__writer_commit(&w, err);
}
