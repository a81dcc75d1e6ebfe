/* The safetensors writer: everything is checked before the first byte goes
 * out, so that whatever it writes its own reader takes. */
#include "base/mem.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json_write.h"
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

static sfp_status check_text(const char *path, const char *what, const char *s, sfp_error *err)
{
    if (s && sfp__utf8_valid(s))
        return SFP_OK;
    char shown[SFP_NAME_MAX];
    return sfp__fail(err, SFP_EINVAL, "%s: %s '%s' is not UTF-8", path, what,
                     s ? sfp__printable(s, shown, sizeof shown) : "(null)");
}

static sfp_status check_tensor(const char *path, const sfp_tensor *t, sfp_error *err)
{
    sfp_status status = check_text(path, "tensor name", t->name, err);
    if (status != SFP_OK)
        return status;
    char name[SFP_NAME_MAX], shape[SFP_SHAPE_MAX];
    sfp__printable(t->name, name, sizeof name);
    if (strcmp(t->name, "__metadata__") == 0)
        return sfp__fail(err, SFP_EINVAL, "%s: a tensor cannot be named '__metadata__'", path);
    if ((int)t->dtype < 0 || t->dtype >= SFP_DTYPE_COUNT)
        return sfp__fail(err, SFP_EINVAL, "%s: tensor '%s' is of unknown type %d", path, name, (int)t->dtype);
    if (t->ndim < 0 || t->ndim > SFP_MAX_DIMS)
        return sfp__fail(err, SFP_ELIMIT, "%s: tensor '%s' has %d dimensions, expected at most %d", path, name, t->ndim,
                         SFP_MAX_DIMS);
    size_t count, bytes;
    if (!sfp__shape_count(t->shape, t->ndim, t->dtype, &count, &bytes) || bytes != t->bytes || (bytes > 0 && !t->data))
        return sfp__fail(err, SFP_EINVAL, "%s: tensor '%s' is given %zu bytes%s, which do not fit %s %s", path, name, t->bytes,
                         t->data ? "" : " (NULL)", sfp__dtype_name(t->dtype),
                         sfp__shape_text(t->shape, t->ndim, shape, sizeof shape));
    return SFP_OK;
}

static int compare_text(const void *pa, const void *pb)
{
    const char *const *a = pa, *const *b = pb;
    return strcmp(*a, *b);
}

/* Sorts `names`; the reader refuses a key that comes twice. */
static sfp_status check_distinct(const char *path, const char *what, const char **names, size_t count, sfp_error *err)
{
    if (count > 1)
        qsort(names, count, sizeof *names, compare_text);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            return sfp__fail(err, SFP_EINVAL, "%s: %s '%s' is given twice", path, what,
                             sfp__printable(names[i], (char[SFP_NAME_MAX]){0}, SFP_NAME_MAX));
    }
    return SFP_OK;
}

static sfp_status check_all(const char *path, const sfp_tensor *tensors, size_t count, const sfp_meta *meta, size_t meta_count,
                            sfp_error *err)
{
    size_t room = count > meta_count ? count : meta_count;
    if (room == 0)
        return SFP_OK;
    sfp_status status = SFP_OK;
    const char **names = sfp__calloc(room, sizeof(char *));
    if (!names)
        return sfp__fail_nomem(err);
    for (size_t i = 0; i < count && status == SFP_OK; i++) {
        status = check_tensor(path, &tensors[i], err);
        names[i] = tensors[i].name;
    }
    if (status == SFP_OK)
        status = check_distinct(path, "tensor", names, count, err);
    for (size_t i = 0; i < meta_count && status == SFP_OK; i++) {
        status = check_text(path, "metadata key", meta[i].key, err);
        if (status == SFP_OK)
            status = check_text(path, "metadata value", meta[i].value, err);
        names[i] = meta[i].key;
    }
    if (status == SFP_OK)
        status = check_distinct(path, "metadata key", names, meta_count, err);
    sfp__free(names);
    return status;
}

static void put_tensor(sfp_text *json, const sfp_tensor *t, size_t begin)
{
    sfp__text_json(json, t->name);
    sfp__text_printf(json, ":{\"dtype\":\"%s\",\"shape\":[", sfp__dtype_name(t->dtype));
    for (int i = 0; i < t->ndim; i++)
        sfp__text_printf(json, "%s%lld", i ? "," : "", (long long)t->shape[i]);
    sfp__text_printf(json, "],\"data_offsets\":[%zu,%zu]}", begin, begin + t->bytes);
}

/* The header with its 8 bytes of length in front, padded by spaces so that the data area is 8-byte aligned. */
static sfp_status make_header(const char *path, const sfp_tensor *tensors, size_t count, const sfp_meta *meta, size_t meta_count,
                              sfp_text *json, sfp_error *err)
{
    const char *comma = "";
    sfp__text_fill(json, '\0', 8);
    sfp__text_put(json, "{");
    if (meta_count > 0) {
        sfp__text_put(json, "\"__metadata__\":{");
        for (size_t i = 0; i < meta_count; i++) {
            sfp__text_put(json, i ? "," : "");
            sfp__text_json(json, meta[i].key);
            sfp__text_put(json, ":");
            sfp__text_json(json, meta[i].value);
        }
        sfp__text_put(json, "}");
        comma = ",";
    }
    size_t at = 0, end;
    for (size_t i = 0; i < count; i++, comma = ",") {
        if (!sfp__add_size(at, tensors[i].bytes, &end))
            return sfp__fail(err, SFP_ELIMIT, "%s: the tensors are too large for one file", path);
        sfp__text_put(json, comma);
        put_tensor(json, &tensors[i], at);
        at = end;
    }
    sfp__text_put(json, "}");
    sfp__text_fill(json, ' ', (8 - json->length % 8) % 8);
    if (json->failed)
        return sfp__fail_nomem(err);
    uint64_t length = json->length - 8;
    memcpy(json->s, &length, 8);
    return SFP_OK;
}

sfp_status sfp__safetensors_header(const char *path, const sfp_tensor *tensors, size_t count, const sfp_meta *meta,
                                   size_t meta_count, sfp_text *out, sfp_error *err)
{
    sfp_status status = check_all(path, tensors, count, meta, meta_count, err);
    return status == SFP_OK ? make_header(path, tensors, count, meta, meta_count, out, err) : status;
}

sfp_status sfp__safetensors_write(const char *path, const sfp_tensor *tensors, size_t count, const sfp_meta *meta,
                                  size_t meta_count, sfp_error *err)
{
    sfp_text json = {0};
    sfp_writer w = {.fd = -1};
    sfp_status status = sfp__safetensors_header(path, tensors, count, meta, meta_count, &json, err);
    if (status != SFP_OK)
        goto done;
    status = sfp__writer_open(path, &w, err);
    if (status != SFP_OK)
        goto done;
    status = sfp__writer_put(&w, json.s, json.length, err);
    for (size_t i = 0; i < count && status == SFP_OK; i++)
        status = sfp__writer_put(&w, tensors[i].data, tensors[i].bytes, err);
    if (status == SFP_OK)
        status = sfp__writer_commit(&w, err);
done:
    sfp__writer_abort(&w);
    sfp__text_done(&json);
    return status;
}
