/* Text input and output: UTF-8, growing strings, JSON written and read, lines, CSV fields. */
#include "base/sha512.h"
#include "io/json_read.h"
#include "io/json_write.h"
#include "io/lines.h"

#include "temp_directory.h"
#include "test.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

AROUND_ALL(make_directory, remove_directory)

TEST(a_step_consumes_a_character_or_a_bad_byte)
{
    static const struct {
        const char *s;
        int bytes;
        uint32_t code;
    } steps[] = {{"a", 1, 'a'},
                 {"\xc3\xa9x", 2, 0xe9},
                 {"\xe2\x82\xac", 3, 0x20ac},
                 {"\xf0\x9f\x98\x80", 4, 0x1f600},
                 {"\xff", 1, SFP_UTF8_BAD},
                 {"\xc3", 1, SFP_UTF8_BAD},
                 {"\xc0\xaf", 1, SFP_UTF8_BAD},
                 {"\xe0\x80\xaf", 1, SFP_UTF8_BAD},
                 {"\xed\xa0\x80", 1, SFP_UTF8_BAD},
                 {"\xf4\x90\x80\x80", 1, SFP_UTF8_BAD},
                 {"\xe2\x28\xa1", 1, SFP_UTF8_BAD}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        uint32_t code = 0;
        assert_int_equal(sfp__utf8_next(steps[i].s, &code), steps[i].bytes);
        assert_int_equal(code, steps[i].code);
        assert_int_equal(sfp__utf8_valid(steps[i].s), steps[i].code != SFP_UTF8_BAD);
    }
    assert_true(sfp__utf8_valid(""));
    assert_false(sfp__utf8_valid("a\x80"));
}

TEST(printing_grows_the_text_as_needed)
{
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    char long_word[1001];
    memset(long_word, 'x', 1000);
    long_word[1000] = '\0';
    sfp__text_printf(&t, "%d", 1);
    for (int i = 0; i < 3; i++)
        sfp__text_printf(&t, "<%s>", long_word);
    assert_false(t.failed);
    assert_int_equal(t.length, 1 + 3 * 1002);
    assert_int_equal(strlen(t.s), t.length);
    assert_memory_equal(t.s + t.length - 3, "xx>", 3);
}

TEST(json_has_the_layout_of_its_forms)
{
    static const sfp__json_form lines = {"\n  ", ",\n  ", ": ", "\n"}, spaced = {"", ", ", ":", ""};
    for (int one_line = 0; one_line < 2; one_line++) {
        OWNED_BY(sfp__text_done) sfp__text t = {0};
        sfp__json j = {.text = &t, .one_line = one_line};
        sfp__json_object_as(&j, NULL, &lines);
        sfp__json_array_as(&j, "a", &spaced);
        sfp__json_exact(&j, NULL, 0.1);
        sfp__json_exact(&j, NULL, 1.0 / 3);
        sfp__json_exact(&j, NULL, NAN);
        sfp__json_exact_float(&j, NULL, 0.1f);
        sfp__json_end(&j);
        sfp__json_object(&j, "b");
        sfp__json_uint(&j, "max", UINT64_MAX);
        sfp__json_printf(&j, "x", "%.2f", 0.5);
        sfp__json_end(&j);
        sfp__json_string(&j, "c", "\x7f\xff");
        sfp__json_end_all(&j);
        assert_string_equal(t.s, one_line ? "{\"a\":[0.1,0.3333333333333333,null,0.1],\"b\":{\"max\":18446744073709551615,"
                                            "\"x\":0.50},\"c\":\"\\u007f\xef\xbf\xbd\"}\n"
                                          : "{\n  \"a\": [0.1, 0.3333333333333333, null, 0.1],\n  \"b\": "
                                            "{\"max\":18446744073709551615,\"x\":0.50},\n  \"c\": \"\\u007f\xef\xbf\xbd\"\n}\n");
    }
}

TEST(required_json_members_are_checked_for_type_and_range)
{
    static const char text[] = "{\"n\": 3, \"minus\": -1, \"x\": 0.5, \"none\": null, \"s\": \"four\", \"list\": [1, 2]}";
    const sfp__json_in in = {"label", &err};
    OWNED_PTR(json_decref) json_t *root = NULL, *list = NULL;
    int64_t i = 0;
    uint64_t u = 0;
    double x = 0;
    char word[5];
    MUST(sfp__json_parse("label", text, strlen(text), &root, &err));
    MUST(sfp__json_need_int(&in, root, "minus", -1, 3, &i));
    assert_int_equal(i, -1);
    REFUSED_EXACTLY(sfp__json_need_int(&in, root, "n", 4, 9, &i), SFP_EFORMAT, "label: 'n' is 3, expected 4 to 9");
    MUST(sfp__json_need_uint(&in, root, "n", &u));
    assert_int_equal(u, 3);
    REFUSED_EXACTLY(sfp__json_need_uint(&in, root, "minus", &u), SFP_EFORMAT, "label: 'minus' is not 0 or more");
    MUST(sfp__json_need_real(&in, root, "x", 0, 1, &x));
    assert_true(x == 0.5);
    MUST(sfp__json_need_real(&in, root, "none", 0, 1, &x));
    assert_true(isnan(x));
    assert_int_equal(sfp__json_need_real(&in, root, "n", 0, 1, &x), SFP_EFORMAT);
    REFUSED_EXACTLY(sfp__json_need_real(&in, root, "gone", 0, 1, &x), SFP_EFORMAT, "label: key 'gone' is missing");
    MUST(sfp__json_need_text(&in, root, "s", word, sizeof word));
    assert_string_equal(word, "four");
    assert_int_equal(sfp__json_need_text(&in, root, "s", word, 4), SFP_EFORMAT);
    REFUSED_EXACTLY(sfp__json_need_text(&in, root, "n", word, sizeof word), SFP_EFORMAT, "label: 'n' is not a string");
    REFUSED_EXACTLY(sfp__json_need_array(&in, root, "list", 3, 3, &list), SFP_EFORMAT, "label: 'list' has 2 entries, expected 3");
    assert_null(list);
    assert_int_equal(sfp__json_parse("label", "{\"a\":1,\"a\":2}", 13, &list, &err), SFP_EFORMAT);
    assert_memory_equal(err.message, "label: line 1, column 10: ", 26);
}

TEST(lines_are_numbered_and_stripped)
{
    static const char *const wanted[] = {"one", "", "  two\t", "three"}; /* a tab is text */
    OWNED_BY(sfp__lines_done) sfp__lines l = {0};
    char *line;
    put_bytes("lines", "\xef\xbb\xbfone \r\n\n  two\t\nthree", 22);
    MUST(sfp__lines_open(in_directory("lines"), "words", &l, &err));
    for (size_t i = 0; i < 4; i++) {
        MUST(sfp__lines_next(&l, &line, &err));
        assert_int_equal(l.number, i + 1);
        assert_string_equal(line, wanted[i]);
    }
    MUST(sfp__lines_next(&l, &line, &err));
    assert_null(line);
}

TEST(a_line_with_a_zero_byte_or_without_end_is_refused)
{
    static char bytes[SFP_LINE_MAX + 8];
    for (int i = 0; i < 2; i++) {
        OWNED_BY(sfp__lines_done) sfp__lines l = {0};
        char *line;
        memset(bytes, 'x', sizeof bytes);
        memcpy(bytes, i ? "a\nb" : "a\n\0\nb", 4);
        put_bytes("lines", bytes, i ? sizeof bytes : 4);
        const char *path = in_directory("lines");
        MUST(sfp__lines_open(path, "words", &l, &err));
        MUST(sfp__lines_next(&l, &line, &err));
        REFUSED_EXACTLY(sfp__lines_next(&l, &line, &err), SFP_EFORMAT,
                        kept_print("%s:2: found %s, expected words", path, i ? "a line that is too long" : "a zero byte"));
    }
}

TEST(fields_end_at_commas_outside_quotes)
{
    char text[] = "a b,\"c,\"\"d\"\"\",,e", *at = text, *field;
    static const char *const wanted[] = {"a b", "c,\"d\"", "", "e"};
    for (size_t i = 0; i < 4; i++) {
        assert_non_null(at);
        assert_true(sfp__csv_field(&at, &field));
        assert_string_equal(field, wanted[i]);
    }
    assert_null(at);
    char open[] = "\"a,b", behind[] = "\"a\"b";
    assert_false(sfp__csv_field(&(char *){open}, &field));
    assert_false(sfp__csv_field(&(char *){behind}, &field));
}

TEST(characters_that_reorder_a_line_are_not_shown)
{
    static const char *const hidden[] = {"\u202e", "\u202a", "\u2066", "\u2069", "\u200f", "\u061c",    "\u2028",
                                         "\u200b", "\ufeff", "\u00ad", "\u180e", "\ufff9", "\U000e0041"};
    static const char *const visible[] = {"a", "\u00e9", "\u05d0", "\u4e2d", "\u2013", "\U0001f600"};
    bool shown;
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        assert_int_equal(sfp__utf8_shown(hidden[i], &shown), strlen(hidden[i]));
        assert_false(shown);
    }
    for (size_t i = 0; i < sizeof visible / sizeof *visible; i++) {
        assert_int_equal(sfp__utf8_shown(visible[i], &shown), strlen(visible[i]));
        assert_true(shown);
    }
}

static atomic_bool limited;      /* only the next `json_left` allocations of jansson succeed */
static int json_left, json_used; /* number of blocks that are not freed */
static void *json_block[64];

static void *json_malloc(size_t size)
{
    if (!limited)
        return malloc(size);
    if (json_left-- <= 0) {
        errno = ENOMEM;
        return NULL;
    }
    assert_in_range(json_used, 0, 63);
    return json_block[json_used++] = malloc(size);
}

static void json_release(void *p)
{
    for (int i = 0; limited && i < json_used; i++)
        if (json_block[i] == p)
            json_block[i] = json_block[--json_used];
    free(p);
}

/* As a host program would, before the library reads JSON for the first time. */
__attribute__((constructor)) static void set_json_allocation(void)
{
    json_set_alloc_funcs(json_malloc, json_release);
}

TEST(a_json_text_without_memory_is_not_malformed)
{
    static const char text[] = "{\"list\": [1, 2.5, \"three\", {\"a long key, a long key, a long key\": null}], \"other\": true}";
    int failures = 0;
    for (int k = 0;; k++) {
        json_t *root = NULL;
        sfp_error why = {0};
        json_left = k;
        limited = true;
        sfp_status status = sfp__json_parse("text", text, strlen(text), &root, &why);
        json_decref(root);
        limited = false;
        if (!status)
            break;
        while (json_used > 0) /* what was read before the memory ran out */
            free(json_block[--json_used]);
        assert_int_equal(status, SFP_ENOMEM);
        assert_string_equal(why.message, "text: out of memory");
        failures++;
    }
    assert_true(failures > 10);
}

TEST(sha512_has_the_published_sums)
{
    static const char *const sums[] = {"cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce"
                                       "47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e",
                                       "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
                                       "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
                                       "8e959b75dae313da8cf4f72814fc143f8f7779c6eb9f7fa17299aeadb6889018"
                                       "501d289e4900f7e4331b99dec4b5433ac7d329eeb6dd26545e96e55b874be909"};
    static const char *const texts[] = {"", "abc",
                                        "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
                                        "lmnopqrsmnopqrstnopqrstu"};
    for (int k = 0; k < 3; k++) {
        uint8_t sum[SFP_SHA512_BYTES];
        char text[2 * SFP_SHA512_BYTES + 1];
        sfp__sha512(texts[k], strlen(texts[k]), sum);
        for (size_t i = 0; i < SFP_SHA512_BYTES; i++)
            (void)snprintf(text + 2 * i, 3, "%02x", sum[i]);
        assert_string_equal(text, sums[k]);
    }
}

static const char *class_name(const void *ctx, int label)
{
    const char *const *names = ctx; /* (5) */
    return label < 5 ? names[label] : NULL;
}

#define CHECK_TITLE(name, width, title) assert_string_equal(sfp__task_title(name, width, class_name, names, buf), title)

TEST(tasks_of_classes_have_the_names_of_their_classes)
{
    const char *const names[] = {"obj3", "obj1", "cup", "\xd1\x81\xd1\x82\xd1\x83\xd0\xbb", "fork"};
    char buf[SFP_TITLE_SIZE];
    CHECK_TITLE("classes 0-1", 22, "obj3, obj1");
    CHECK_TITLE("class 2", 22, "cup");
    CHECK_TITLE("classes 0-4", 100, "obj3, obj1, cup, \xd1\x81\xd1\x82\xd1\x83\xd0\xbb, fork");
    CHECK_TITLE("classes 0-4", 27, "obj3, obj1, cup, \xd1\x81\xd1\x82\xd1\x83\xd0\xbb, fork"); /* characters, not bytes */
    CHECK_TITLE("classes 0-4", 26, "obj3, obj1, cup, \xd1\x81\xd1\x82\xd1\x83\xd0\xbb, +1");
    CHECK_TITLE("classes 0-4", 14, "obj3, obj1, +3");
    CHECK_TITLE("classes 0-4", 3, "obj3, +4");      /* at least one name */
    CHECK_TITLE("classes 0-5", 100, "classes 0-5"); /* a class without a name */
    CHECK_TITLE("photo", 22, "photo");
    CHECK_TITLE("class -1", 22, "class -1");
    CHECK_TITLE("classes 3-1", 22, "classes 3-1");
    CHECK_TITLE("classes 0-1 of 2", 22, "classes 0-1 of 2");
}

TEST(tasks_of_unnamed_classes_keep_their_numbers)
{
    const char *const names[] = {"0", "1", "3", "2", ""};
    char buf[SFP_TITLE_SIZE];
    CHECK_TITLE("classes 0-1", 22, "classes 0-1");
    CHECK_TITLE("classes 2-3", 22, "3, 2"); /* another order */
    CHECK_TITLE("classes 3-4", 22, "classes 3-4");
}

TEST(long_names_of_classes_are_cut)
{
    char buf[SFP_TITLE_SIZE], name[300];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    const char *const names[] = {name, name, name, name, name};
    assert_int_equal(strlen(sfp__task_title("classes 0-4", 1000, class_name, names, buf)), SFP_TITLE_SIZE - 1);
}
