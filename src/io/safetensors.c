/* The safetensors reader.
 *
 * A checkpoint comes from anywhere, so its header is taken as hostile: nothing
 * of it is used before the length, the JSON, and each tensor's type, shape and
 * offsets have been checked, and the tensors together cover the data area
 * without gap or overlap (the rule of the format, which also means that no two
 * tensors share bytes and none hides some). Afterwards tensors are pointers
 * into the mapping: loading copies nothing. */
#include "io/safetensors.h"

#include "base/mem.h"
#include "base/text.h"
#include "io/file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <zlib.h>

#define HEADER_MAX 100000000u /* bytes, the limit of the reference implementation */

struct sfp_safetensors {
    sfp_map map; /* empty when the bytes are the caller's */
    char *path;
    json_t *root;        /* owns the names and the metadata */
    const uint8_t *data; /* the data area */
    size_t data_size;
    sfp_tensor *tensors;        /* (count), by offset */
    const sfp_tensor **by_name; /* (count) */
    size_t count;
    sfp_meta *meta; /* (meta_count) */
    size_t meta_count;
};

static const char *type_words(const json_t *v)
{
    static const char *const words[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a string", [JSON_INTEGER] = "an integer",
        [JSON_REAL] = "a real",      [JSON_TRUE] = "true",      [JSON_FALSE] = "false",     [JSON_NULL] = "null",
    };
    return v ? words[json_typeof(v)] : "missing";
}

/* Fails about one tensor: "FILE: tensor 'NAME' " and the rest. */
#define FAIL_TENSOR(status, fmt, ...)                                                                                        \
    sfp__fail(err, status, "%s: tensor '%s' " fmt, st->path, sfp__printable(t->name, (char[SFP_NAME_MAX]){0}, SFP_NAME_MAX), \
              __VA_ARGS__)

static sfp_status parse_dtype(const sfp_safetensors *st, const json_t *info, sfp_tensor *t, sfp_error *err)
{
    const json_t *v = json_object_get(info, "dtype");
    const char *text = json_string_value(v);
    if (!text)
        return FAIL_TENSOR(SFP_EFORMAT, "has a dtype that is %s, expected a string", type_words(v));
    for (int i = 0; i < SFP_DTYPE_COUNT; i++) {
        if (strcmp(text, sfp__dtype_name((sfp_dtype)i)) == 0) {
            t->dtype = (sfp_dtype)i;
            return SFP_OK;
        }
    }
    char shown[64];
    return FAIL_TENSOR(SFP_EUNSUPPORTED, "has dtype '%s', expected F64, F32, F16, BF16, I64, I32 or U8",
                       sfp__printable(text, shown, sizeof shown));
}

static sfp_status parse_shape(const sfp_safetensors *st, const json_t *info, sfp_tensor *t, sfp_error *err)
{
    const json_t *shape = json_object_get(info, "shape");
    if (!json_is_array(shape))
        return FAIL_TENSOR(SFP_EFORMAT, "has a shape that is %s, expected an array", type_words(shape));
    size_t n = json_array_size(shape);
    if (n > SFP_MAX_DIMS)
        return FAIL_TENSOR(SFP_ELIMIT, "has %zu dimensions, expected at most %d", n, SFP_MAX_DIMS);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(shape, i);
        if (!json_is_integer(v))
            return FAIL_TENSOR(SFP_EFORMAT, "has %s as dimension %zu, expected an integer", type_words(v), i);
        t->shape[i] = json_integer_value(v);
        if (t->shape[i] < 0)
            return FAIL_TENSOR(SFP_EFORMAT, "has %lld as dimension %zu, expected 0 or more", (long long)t->shape[i], i);
    }
    t->ndim = (int)n;
    if (!sfp__shape_count(t->shape, t->ndim, t->dtype, &t->count, &t->bytes)) {
        char shown[SFP_SHAPE_MAX];
        return FAIL_TENSOR(SFP_ELIMIT, "has shape %s: too large", sfp__shape_text(t->shape, t->ndim, shown, sizeof shown));
    }
    return SFP_OK;
}

static sfp_status parse_offsets(const sfp_safetensors *st, const json_t *info, sfp_tensor *t, sfp_error *err)
{
    const json_t *pair = json_object_get(info, "data_offsets");
    const json_t *first = json_array_get(pair, 0), *last = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return FAIL_TENSOR(SFP_EFORMAT, "has data_offsets that are %s, expected two integers",
                           json_is_array(pair) ? "something else" : type_words(pair));
    long long begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin)
        return FAIL_TENSOR(SFP_EFORMAT, "has data_offsets [%lld, %lld], expected 0 <= begin <= end", begin, end);
    if ((unsigned long long)end > st->data_size)
        return FAIL_TENSOR(SFP_EFORMAT, "has data_offsets [%lld, %lld], but the file holds %zu bytes of data", begin, end,
                           st->data_size);
    if ((size_t)(end - begin) != t->bytes) {
        char shown[SFP_SHAPE_MAX];
        return FAIL_TENSOR(SFP_EFORMAT, "has data_offsets [%lld, %lld], expected %zu bytes for %s %s", begin, end, t->bytes,
                           sfp__dtype_name(t->dtype), sfp__shape_text(t->shape, t->ndim, shown, sizeof shown));
    }
    t->data = st->data + begin;
    return SFP_OK;
}

static sfp_status parse_tensor(const sfp_safetensors *st, const char *name, const json_t *info, sfp_tensor *t, sfp_error *err)
{
    *t = (sfp_tensor){.name = name};
    if (!json_is_object(info))
        return FAIL_TENSOR(SFP_EFORMAT, "is %s, expected an object", type_words(info));
    sfp_status status = parse_dtype(st, info, t, err);
    if (status == SFP_OK)
        status = parse_shape(st, info, t, err);
    if (status == SFP_OK)
        status = parse_offsets(st, info, t, err);
    return status;
}

static sfp_status parse_meta(sfp_safetensors *st, json_t *meta, sfp_error *err)
{
    if (!json_is_object(meta))
        return sfp__fail(err, SFP_EFORMAT, "%s: __metadata__ is %s, expected an object of strings", st->path, type_words(meta));
    size_t n = json_object_size(meta);
    if (n == 0)
        return SFP_OK;
    st->meta = sfp__calloc(n, sizeof *st->meta);
    if (!st->meta)
        return sfp__fail_nomem(err);
    const char *key;
    json_t *value;
    json_object_foreach(meta, key, value)
    {
        if (!json_is_string(value)) {
            char shown[SFP_NAME_MAX];
            return sfp__fail(err, SFP_EFORMAT, "%s: __metadata__ '%s' is %s, expected a string", st->path,
                             sfp__printable(key, shown, sizeof shown), type_words(value));
        }
        st->meta[st->meta_count++] = (sfp_meta){key, json_string_value(value)};
    }
    return SFP_OK;
}

static int compare_offset(const void *pa, const void *pb)
{
    const sfp_tensor *a = pa, *b = pb;
    if (a->data != b->data)
        return (const uint8_t *)a->data < (const uint8_t *)b->data ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1; /* an empty tensor comes before the one that begins at its place */
    return strcmp(a->name, b->name);
}

static int compare_name(const void *pa, const void *pb)
{
    const sfp_tensor *const *a = pa, *const *b = pb;
    return strcmp((*a)->name, (*b)->name);
}

/* Sorted by offset, each tensor must begin where the one before it ended. */
static sfp_status check_cover(const sfp_safetensors *st, sfp_error *err)
{
    size_t at = 0;
    const char *before = NULL;
    for (size_t i = 0; i < st->count; i++) {
        const sfp_tensor *t = &st->tensors[i];
        size_t begin = (size_t)((const uint8_t *)t->data - st->data);
        char shown[SFP_NAME_MAX];
        if (begin < at)
            return FAIL_TENSOR(SFP_EFORMAT, "has data_offsets [%zu, %zu] and overlaps tensor '%s', which ends at %zu", begin,
                               begin + t->bytes, sfp__printable(before, shown, sizeof shown), at);
        if (begin > at)
            return FAIL_TENSOR(SFP_EFORMAT,
                               "has data_offsets [%zu, %zu], expected to begin at %zu: bytes between belong to no tensor", begin,
                               begin + t->bytes, at);
        at = begin + t->bytes;
        before = t->name;
    }
    if (at != st->data_size)
        return sfp__fail(err, SFP_EFORMAT, "%s: the tensors end at %zu, but the file holds %zu bytes of data", st->path, at,
                         st->data_size);
    return SFP_OK;
}

static sfp_status parse_entries(sfp_safetensors *st, sfp_error *err)
{
    size_t room = json_object_size(st->root);
    if (room > 0) {
        st->tensors = sfp__calloc(room, sizeof *st->tensors);
        st->by_name = sfp__calloc(room, sizeof(sfp_tensor *));
        if (!st->tensors || !st->by_name)
            return sfp__fail_nomem(err);
    }
    const char *key;
    json_t *value;
    json_object_foreach(st->root, key, value)
    {
        sfp_status status = strcmp(key, "__metadata__") == 0 ? parse_meta(st, value, err)
                                                             : parse_tensor(st, key, value, &st->tensors[st->count++], err);
        if (status != SFP_OK)
            return status;
    }
    if (st->count > 0)
        qsort(st->tensors, st->count, sizeof *st->tensors, compare_offset);
    for (size_t i = 0; i < st->count; i++)
        st->by_name[i] = &st->tensors[i];
    if (st->count > 0)
        qsort(st->by_name, st->count, sizeof *st->by_name, compare_name);
    return check_cover(st, err);
}

static sfp_status parse(sfp_safetensors *st, const uint8_t *bytes, size_t size, sfp_error *err)
{
    if (size < 8)
        return sfp__fail(err, SFP_EFORMAT, "%s: has %zu bytes, expected a safetensors file of at least 8", st->path, size);
    uint64_t length;
    memcpy(&length, bytes, 8);
    if (length > HEADER_MAX)
        return sfp__fail(err, SFP_EFORMAT, "%s: header length is %llu, expected at most %u (is it a safetensors file?)", st->path,
                         (unsigned long long)length, HEADER_MAX);
    if (length > size - 8)
        return sfp__fail(err, SFP_EFORMAT, "%s: header length is %llu, but only %zu bytes follow it", st->path,
                         (unsigned long long)length, size - 8);
    const char *text = (const char *)bytes + 8;
    if (length == 0 || text[0] != '{')
        return sfp__fail(err, SFP_EFORMAT, "%s: the header does not begin with '{' (is it a safetensors file?)", st->path);
    st->data = bytes + 8 + length;
    st->data_size = size - 8 - (size_t)length;

    json_error_t where;
    st->root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &where);
    if (!st->root) {
        char shown[SFP_NAME_MAX];
        sfp_status status = json_error_code(&where) == json_error_out_of_memory ? SFP_ENOMEM : SFP_EFORMAT;
        return sfp__fail(err, status, "%s: header, byte %d: %s", st->path, where.position,
                         sfp__printable(where.text, shown, sizeof shown));
    }
    return parse_entries(st, err);
}

/* Takes `map` over, also when it fails. */
static sfp_status open_bytes(const char *label, sfp_map map, const void *bytes, size_t size, sfp_safetensors **out,
                             sfp_error *err)
{
    sfp_status status;
    sfp_safetensors *st = sfp__calloc(1, sizeof *st);
    if (!st) {
        sfp__map_close(&map);
        return sfp__fail_nomem(err);
    }
    st->map = map;
    st->path = sfp__strdup(label);
    if (!st->path)
        status = sfp__fail_nomem(err);
    else
        status = parse(st, bytes, size, err);
    if (status != SFP_OK) {
        sfp__safetensors_close(st);
        return status;
    }
    *out = st;
    return SFP_OK;
}

sfp_status sfp__safetensors_open(const char *path, sfp_safetensors **out, sfp_error *err)
{
    sfp_map map = {0};
    sfp_status status = sfp__map_open(path, &map, err);
    if (status != SFP_OK)
        return status;
    return open_bytes(path, map, map.bytes, map.size, out, err);
}

sfp_status sfp__safetensors_open_memory(const char *label, const void *bytes, size_t size, sfp_safetensors **out, sfp_error *err)
{
    return open_bytes(label, (sfp_map){0}, bytes, size, out, err);
}

void sfp__safetensors_close(sfp_safetensors *st)
{
    if (!st)
        return;
    sfp__map_close(&st->map);
    json_decref(st->root);
    sfp__free(st->tensors);
    sfp__free(st->by_name);
    sfp__free(st->meta);
    sfp__free(st->path);
    sfp__free(st);
}

const char *sfp__safetensors_path(const sfp_safetensors *st)
{
    return st->path;
}

size_t sfp__safetensors_count(const sfp_safetensors *st)
{
    return st->count;
}

const sfp_tensor *sfp__safetensors_at(const sfp_safetensors *st, size_t i)
{
    return i < st->count ? &st->tensors[i] : NULL;
}

const sfp_tensor *sfp__safetensors_find(const sfp_safetensors *st, const char *name)
{
    size_t low = 0, high = st->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, st->by_name[middle]->name);
        if (order == 0)
            return st->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

sfp_status sfp__safetensors_need(const sfp_safetensors *st, const char *name, const sfp_tensor **out, sfp_error *err)
{
    const sfp_tensor *t = sfp__safetensors_find(st, name);
    if (!t)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: tensor '%s' is missing", st->path,
                         sfp__printable(name, (char[SFP_NAME_MAX]){0}, SFP_NAME_MAX));
    *out = t;
    return SFP_OK;
}

const char *sfp__safetensors_meta(const sfp_safetensors *st, const char *key)
{
    for (size_t i = 0; i < st->meta_count; i++) {
        if (strcmp(st->meta[i].key, key) == 0)
            return st->meta[i].value;
    }
    return NULL;
}

size_t sfp__safetensors_meta_count(const sfp_safetensors *st)
{
    return st->meta_count;
}

void sfp__safetensors_meta_at(const sfp_safetensors *st, size_t i, const char **key, const char **value)
{
    bool there = i < st->meta_count;
    *key = there ? st->meta[i].key : NULL;
    *value = there ? st->meta[i].value : NULL;
}

void sfp__safetensors_release(const sfp_safetensors *st)
{
    if (st->map.bytes)
        (void)madvise((void *)(uintptr_t)st->map.bytes, st->map.size, MADV_DONTNEED);
}

void sfp__safetensors_sum(const char *also, size_t count, const sfp_tensor *tensors, char out[SFP_CHECKSUM_MAX])
{
    unsigned long sum = crc32_z(0, NULL, 0);
    if (also)
        sum = crc32_z(sum, (const unsigned char *)also, strlen(also));
    for (size_t i = 0; i < count; i++)
        if (tensors[i].bytes)
            sum = crc32_z(sum, tensors[i].data, tensors[i].bytes);
    (void)snprintf(out, SFP_CHECKSUM_MAX, "%08lx", sum);
}

sfp_status sfp__safetensors_check_sum(const sfp_safetensors *st, const char *also, sfp_error *err)
{
    char sum[SFP_CHECKSUM_MAX];
    if (!sfp__safetensors_meta(st, SFP_CHECKSUM_KEY))
        return SFP_OK;
    sfp__safetensors_sum(also, st->count, st->tensors, sum);
    return sfp__safetensors_expect_sum(st, sum, err);
}

sfp_status sfp__safetensors_expect_sum(const sfp_safetensors *st, const char *sum, sfp_error *err)
{
    char shown[32];
    const char *expected = sfp__safetensors_meta(st, SFP_CHECKSUM_KEY);
    if (!expected || strcmp(sum, expected) == 0)
        return SFP_OK;
    return sfp__fail(err, SFP_EFORMAT, "%s: is damaged: its checksum is %s, expected %s", sfp__safetensors_path(st), sum,
                     sfp__printable(expected, shown, sizeof shown));
}
