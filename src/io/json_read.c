#include "io/json_read.h"

#include "base/text.h"
#include "io/file.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <string.h>

/* If jansson has no memory while it reads, it omits characters of strings, or aborts. Its allocation is therefore replaced by one that
 * ends the reading; what was read until then is not freed. The functions that the program had set for jansson are still used. */
static _Thread_local jmp_buf *reading; /* NULL: jansson does not read on this thread */
static json_malloc_t previous_malloc;

static void *allocate(size_t size)
{
    void *p = previous_malloc(size);
    if (!p && reading)
        longjmp(*reading, 1);
    return p;
}

static void set_allocation(void)
{
    json_free_t release;
    json_get_alloc_funcs(&previous_malloc, &release);
    json_set_alloc_funcs(allocate, release);
}

sfp_status sfp__json_load(const char *label, const char *text, size_t size, size_t flags, json_t **out, json_error_t *why,
                          sfp_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    jmp_buf end;
    (void)pthread_once(&once, set_allocation);
    if (setjmp(end)) {
        reading = NULL;
        return sfp__fail(err, SFP_ENOMEM, "%s: out of memory", label);
    }
    reading = &end;
    *out = json_loadb(text, size, flags, why);
    reading = NULL;
    return SFP_OK;
}

sfp_status sfp__json_parse(const char *label, const char *text, size_t size, json_t **out, sfp_error *err)
{
    json_error_t where;
    json_t *root = NULL;
    TRY(sfp__json_load(label, text, size, JSON_REJECT_DUPLICATES, &root, &where, err));
    if (!root)
        return sfp__fail(err, SFP_EFORMAT, "%s: line %d, column %d: %s", label, where.line, where.column,
                         sfp__printable(where.text, (char[SFP_NAME_MAX]){0}, SFP_NAME_MAX));
    *out = root;
    return SFP_OK;
}

sfp_status sfp__json_read(const char *path, size_t max_bytes, json_t **out, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    size_t size = 0;
    TRY(sfp__file_read(path, max_bytes, &bytes, &size, err));
    return sfp__json_parse(path, (const char *)bytes, size, out, err);
}

const char *sfp__json_type_name(const json_t *v)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a string", [JSON_INTEGER] = "an integer",
        [JSON_REAL] = "a fraction",  [JSON_TRUE] = "a boolean", [JSON_FALSE] = "a boolean", [JSON_NULL] = "null",
    };
    return v ? names[json_typeof(v)] : "nothing";
}

/* ------------------------------------------------------------------- members */

sfp_status sfp__json_bad(const sfp__json_in *in, const char *key, const char *expected)
{
    char name[SFP_NAME_MAX];
    return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' is not %s", in->label, sfp__printable(key, name, sizeof name), expected);
}

/* Finds a member of any type. */
static sfp_status need(const sfp__json_in *in, const json_t *from, const char *key, json_t **out)
{
    *out = json_object_get(from, key);
    return *out ? SFP_OK : sfp__fail(in->err, SFP_EFORMAT, "%s: key '%s' is missing", in->label, key);
}

sfp_status sfp__json_need(const sfp__json_in *in, const json_t *from, const char *key, json_type type, json_t **out)
{
    static const char *const expected[] = {"an object", "an array", "a string", "a whole number"};
    json_t *v = NULL;
    TRY(need(in, from, key, &v));
    if (json_typeof(v) != type)
        return sfp__json_bad(in, key, expected[type]);
    *out = v;
    return SFP_OK;
}

sfp_status sfp__json_need_int(const sfp__json_in *in, const json_t *from, const char *key, int64_t low, int64_t high,
                              int64_t *out)
{
    json_t *v = NULL;
    TRY(sfp__json_need(in, from, key, JSON_INTEGER, &v));
    int64_t n = json_integer_value(v);
    if (n < low || n > high)
        return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' is %lld, expected %lld to %lld", in->label, key, (long long)n,
                         (long long)low, (long long)high);
    *out = n;
    return SFP_OK;
}

sfp_status sfp__json_need_uint(const sfp__json_in *in, const json_t *from, const char *key, uint64_t *out)
{
    json_t *v = NULL;
    TRY(sfp__json_need(in, from, key, JSON_INTEGER, &v));
    if (json_integer_value(v) < 0)
        return sfp__json_bad(in, key, "0 or more");
    *out = (uint64_t)json_integer_value(v);
    return SFP_OK;
}

sfp_status sfp__json_to_real(const sfp__json_in *in, const json_t *v, const char *key, double low, double high, double *out)
{
    double x = NAN;
    if (!json_is_null(v)) {
        if (!json_is_number(v))
            return sfp__json_bad(in, key, "a number or null");
        x = json_number_value(v);
        if (!(x >= low && x <= high))
            return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' is %g, expected %g to %g", in->label, key, x, low, high);
    }
    *out = x;
    return SFP_OK;
}

sfp_status sfp__json_need_real(const sfp__json_in *in, const json_t *from, const char *key, double low, double high, double *out)
{
    json_t *v = NULL;
    TRY(need(in, from, key, &v));
    return sfp__json_to_real(in, v, key, low, high, out);
}

sfp_status sfp__json_need_text(const sfp__json_in *in, const json_t *from, const char *key, char *out, size_t size)
{
    json_t *v = NULL;
    TRY(sfp__json_need(in, from, key, JSON_STRING, &v));
    size_t n = json_string_length(v);
    if (n >= size)
        return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' has %zu bytes, expected less than %zu", in->label, key, n, size);
    memcpy(out, json_string_value(v), n + 1);
    return SFP_OK;
}

sfp_status sfp__json_need_array(const sfp__json_in *in, const json_t *from, const char *key, size_t low, size_t high,
                                json_t **out)
{
    json_t *v = NULL;
    TRY(sfp__json_need(in, from, key, JSON_ARRAY, &v));
    size_t n = json_array_size(v);
    if (low == high && n != low)
        return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' has %zu entries, expected %zu", in->label, key, n, low);
    if (n < low || n > high)
        return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' has %zu entries, expected %zu to %zu", in->label, key, n, low, high);
    *out = v;
    return SFP_OK;
}

bool sfp__json_whole(json_t *root, const char *key, int64_t min, int64_t max, int64_t *out)
{
    json_t *v = json_object_get(root, key);
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        return false;
    *out = json_integer_value(v);
    return true;
}
