/* The reader: which files it accepts, and that it refuses all others with a message that names the fault. */
#include "io/tensor/safetensors.h"

#include <sys/stat.h>

#include "temp_directory.h"
#include "test.h"

AROUND_ONE_FILE("f")

/* Returns a file in memory, allocated with its exact size, so that a sanitizer detects a read beyond it. */
static void *make(const char *json, size_t json_size, size_t data_size, size_t *size)
{
    uint64_t length = json_size;
    *size = 8 + json_size + data_size;
    uint8_t *bytes = kept_malloc(*size);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, json, json_size);
    for (size_t i = 0; i < data_size; i++)
        bytes[8 + json_size + i] = (uint8_t)i;
    return bytes;
}

static sfp_status open_json(const char *json, size_t data_size, sfp__tensor_file **st, sfp_error *why)
{
    size_t size;
    void *bytes = make(json, strlen(json), data_size, &size);
    return sfp__safetensors_open_memory("w.safetensors", bytes, size, st, why);
}

static void check_refused(const char *json, size_t data_size, sfp_status status, const char *message)
{
    sfp__tensor_file *st = (sfp__tensor_file *)&st;
    void *untouched = st;
    REFUSED_AS(json, open_json(json, data_size, &st, &err), status, message);
    assert_ptr_equal(st, untouched);
}

TEST(tensors_are_found_by_name_and_listed_by_offset)
{
    const char *json = "{\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
                       "\"empty\":{\"dtype\":\"U8\",\"shape\":[0,5],\"data_offsets\":[8,8]},"
                       "\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
                       "\"\\u00e9\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[32,34]}}   ";
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    MUST(open_json(json, 34, &st, NULL));
    assert_int_equal(st->count, 4);
    const char *order[] = {"a", "empty", "b", "\xc3\xa9"};
    for (size_t i = 0; i < 4; i++) {
        const sfp__tensor *t = &st->tensors[i];
        assert_string_equal(t->name, order[i]);
        assert_ptr_equal(sfp__tensor_file_find(st, order[i]), t);
    }
    assert_null(sfp__tensor_file_find(st, "c"));
    assert_null(sfp__tensor_file_find(st, ""));
    const sfp__tensor *b = sfp__tensor_file_find(st, "b");
    assert_int_equal(b->dtype, SFP__DTYPE_F32);
    assert_int_equal(b->ndim, 2);
    assert_true(b->shape[0] == 2 && b->shape[1] == 3 && b->count == 6 && b->bytes == 24);
    assert_int_equal(*(const uint8_t *)b->data, 8);
    assert_true(sfp__tensor_file_find(st, "a")->count == 1);
    assert_string_equal(st->path, "w.safetensors");
}

TEST(a_missing_tensor_is_named)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    const sfp__tensor *t = NULL;
    MUST(open_json("{}", 0, &st, NULL));
    assert_int_equal(st->count, 0);
    REFUSED_EXACTLY(sfp__tensor_file_need(st, "cls_token", &t, &err), SFP_ENOTFOUND,
                    "w.safetensors: tensor 'cls_token' is missing");
    assert_null(t);
}

TEST(metadata_is_read)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    MUST(open_json("{\"__metadata__\":{\"format\":\"pt\",\"x\":\"\"}}", 0, &st, NULL));
    assert_int_equal(st->count, 0);
    assert_string_equal(sfp__tensor_file_meta(st, "format"), "pt");
    assert_string_equal(sfp__tensor_file_meta(st, "x"), "");
    assert_null(sfp__tensor_file_meta(st, "y"));
    assert_int_equal(st->meta_count, 2);
    for (size_t i = 0; i < 2; i++) {
        const char *key = st->meta[i].key, *value = st->meta[i].value;
        assert_string_equal(sfp__tensor_file_meta(st, key), value);
    }
}

#define TWO(first, second)                                           \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" first \
    "},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" second "}}"

TEST(deep_nesting_is_refused)
{
    size_t depth = 100000;
    char *json = kept_malloc(depth + 6);
    memcpy(json, "{\"a\":", 5);
    memset(json + 5, '[', depth);
    json[depth + 5] = '\0';
    check_refused(json, 0, SFP_EFORMAT, "deep");
}

TEST(wrong_header_lengths_are_refused)
{
    sfp__tensor_file *st;
    uint8_t bytes[10] = {3, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    REFUSED_EXACTLY(sfp__safetensors_open_memory("w", bytes, 10, &st, &err), SFP_EFORMAT,
                    "w: header length is 3, but only 2 bytes follow it");
    memset(bytes, 0xff, 8);
    REFUSED(sfp__safetensors_open_memory("w", bytes, 10, &st, &err), SFP_EFORMAT,
            "w: not a file of weights, expected safetensors, PyTorch or npz");
    uint64_t length = 100000001;
    memcpy(bytes, &length, 8);
    REFUSED(sfp__safetensors_open_memory("w", bytes, 10, &st, &err), SFP_EFORMAT, "expected at most 100000000");
    for (size_t n = 0; n < 8; n++) {
        REFUSED(sfp__safetensors_open_memory("w", bytes, n, &st, &err), SFP_EFORMAT, "at least 8");
    }
}

TEST(every_truncation_is_refused)
{
    const char *json = TWO("[0,4]", "[4,8]");
    size_t size;
    uint8_t *whole = make(json, strlen(json), 8, &size);
    for (size_t n = 0; n < size; n++) {
        uint8_t *part = kept_malloc(n ? n : 1);
        memcpy(part, whole, n);
        sfp__tensor_file *st;
        assert_int_equal(sfp__safetensors_open_memory("w", part, n, &st, &err), SFP_EFORMAT);
        assert_int_equal(err.status, SFP_EFORMAT);
    }
}

TEST(paths_that_are_not_files_fail_cleanly)
{
    sfp__tensor_file *st = NULL;
    REFUSED(sfp__safetensors_open(directory, &st, &err), SFP_EINVAL, "is a directory, expected a file");
    REFUSED(sfp__safetensors_open(path, &st, &err), SFP_ENOTFOUND, "cannot open: No such file");
    assert_int_equal(mkfifo(path, 0600), 0);
    REFUSED(sfp__safetensors_open(path, &st, &err), SFP_EINVAL, "not a regular file");
    assert_int_equal(unlink(path), 0);
    put_text("f", "");
    REFUSED(sfp__safetensors_open(path, &st, &err), SFP_EFORMAT, "is empty");
    assert_int_equal(sfp__safetensors_open("/dev/zero", &st, &err), SFP_EINVAL);
    assert_null(st);
}
