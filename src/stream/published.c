#include "stream/published.h"

#include "base/mem.h"
#include "io/file.h"

#define JSON_BYTES_MAX ((size_t)1 << 30)
#define CLASS_STREAM (UINT64_C(0x636c6173) << 32) /* shuffles of different purpose draw from different sequences of a seed */

sfp_status sfp__json_read(const char *path, json_t **out, sfp_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    sfp_status status = sfp__file_read(path, JSON_BYTES_MAX, &bytes, &size, err);
    if (status != SFP_OK)
        return status;
    json_error_t where;
    json_t *root = json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES, &where);
    sfp__free(bytes);
    if (!root) {
        status = json_error_code(&where) == json_error_out_of_memory ? SFP_ENOMEM : SFP_EFORMAT;
        return sfp__fail(err, status, "%s: line %d, column %d: %s", path, where.line, where.column,
                         sfp__printable(where.text, (char[SFP_NAME_MAX]){0}, SFP_NAME_MAX));
    }
    *out = root;
    return SFP_OK;
}

const char *sfp__json_type_name(const json_t *v)
{
    if (!v)
        return "nothing";
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a fraction";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

sfp_status sfp__class_order(int classes, int order, int64_t **class_at, sfp_error *err)
{
    int64_t *list = sfp__malloc(((size_t)classes + 1) * sizeof *list);
    if (!list)
        return sfp__fail_nomem(err);
    for (int i = 0; i < classes; i++)
        list[i] = i;
    if (order != 0)
        sfp__shuffle(list, classes, (uint64_t)(int64_t)order, CLASS_STREAM);
    *class_at = list;
    return SFP_OK;
}
