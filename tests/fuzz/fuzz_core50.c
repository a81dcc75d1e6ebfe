/* Arbitrary metadata of CORe50: refused with a message, or every image has a class and a task.
 *
 * The pickles of an input are written as JSON, which has the same values, so that mutations keep them well-formed. Contents that
 * are not JSON are used as they are. */
#include "fuzz_source.h"

#include <jansson.h>

static void put_number(FILE *to, const char *prefix, uint64_t n, int bytes)
{
    (void)fputs(prefix, to);
    for (int i = 0; i < bytes; i++)
        (void)fputc((int)(n >> (8 * i) & 255), to);
}

static void put_text(FILE *to, const char *s)
{
    put_number(to, "X", strlen(s), 4);
    (void)fputs(s, to);
}

/* Writes the pickle of a value. A key of an object that is a number becomes a number. */
static void put_value(FILE *to, json_t *v)
{
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_array(v)) {
        (void)fputs("](", to);
        json_array_foreach(v, i, item) put_value(to, item);
        (void)fputs("e", to);
    } else if (json_is_object(v)) {
        (void)fputs("}(", to);
        json_object_foreach(v, key, item)
        {
            if (key[0] >= '0' && key[0] <= '9')
                (void)fprintf(to, "I%lld\n", strtoll(key, NULL, 10));
            else
                put_text(to, key);
            put_value(to, item);
        }
        (void)fputs("u", to);
    } else if (json_is_string(v)) {
        put_text(to, json_string_value(v));
    } else if (json_is_integer(v)) {
        put_number(to, "\x8a\x08", (uint64_t)json_integer_value(v), 8);
    } else if (json_is_real(v)) {
        (void)fprintf(to, "F%.17g\n", json_real_value(v));
    } else {
        (void)fputc(json_is_null(v) ? 'N' : json_is_true(v) ? 0x88 : 0x89, to);
    }
}

static void write_pickle(FILE *to, const char *bytes, size_t size)
{
    json_t *v = json_loadb(bytes, size, JSON_DECODE_ANY, NULL);
    if (v) {
        put_value(to, v);
        (void)fputc('.', to);
    } else {
        REQUIRE(fwrite(bytes, 1, size, to) == size);
    }
    json_decref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const names[] = {"paths.pkl",
                                        "LUP.pkl",
                                        "labels.pkl",
                                        "s1/o1/a.png",
                                        "s3/o1/b.png",
                                        "s1/o2/c.png",
                                        "core50_128x128/s1/o3/d.png",
                                        "core50_128x128/s10/o3/e.png",
                                        NULL};
    write_parts(bytes, size, names, write_pickle);
    for (int test = 0; test < 2; test++)
        open_and_check(&sfp__source_core50, directory, (sfp__source_options){.test = test, .order = (int)(size % 3) - 1});
    clear_directory(directory);
    return 0;
}
