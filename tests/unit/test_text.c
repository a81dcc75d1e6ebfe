/* Text input and output: UTF-8, growing strings, JSON written and read, lines, CSV fields. */
#include "io/json_read.h"
#include "io/json_write.h"
#include "io/lines.h"

#include "failing_alloc.h"
#include "temp_directory.h"
#include "test.h"

#include <jansson.h>
#include <math.h>
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
                 {"\xff", 1, SFP__UTF8_BAD},
                 {"\xc3", 1, SFP__UTF8_BAD},
                 {"\xc0\xaf", 1, SFP__UTF8_BAD},
                 {"\xe0\x80\xaf", 1, SFP__UTF8_BAD},
                 {"\xed\xa0\x80", 1, SFP__UTF8_BAD},
                 {"\xf4\x90\x80\x80", 1, SFP__UTF8_BAD},
                 {"\xe2\x28\xa1", 1, SFP__UTF8_BAD}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        uint32_t code = 0;
        assert_int_equal(sfp__utf8_next(steps[i].s, &code), steps[i].bytes);
        assert_int_equal(code, steps[i].code);
        assert_int_equal(sfp__utf8_valid(steps[i].s), steps[i].code != SFP__UTF8_BAD);
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
    OWNED sfp__json_value *root = NULL;
    const sfp__json_value *list = NULL;
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
    static char bytes[SFP__LINE_MAX + 8];
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

TEST(a_json_text_without_memory_is_not_malformed)
{
    static const char text[] = "{\"list\": [1, 2.5, \"three\", {\"a\": null}], \"other\": true}";
    OWNED sfp__json_value *root = NULL;
    FAIL_EACH_ALLOCATION(sfp__json_parse("text", text, strlen(text), &root, alloc_err), root == NULL);
}

static bool equals(const sfp__json_value *v, const json_t *w)
{
    bool same = sfp__json_size(v) == (json_is_array(w) ? json_array_size(w) : json_object_size(w));
    for (size_t i = 0; same && i < json_array_size(w); i++)
        same = equals(sfp__json_at(v, i), json_array_get(w, i));
    const char *key;
    json_t *member;
    size_t place = 0;
    json_object_foreach((json_t *)w, key, member)
    {
        const sfp__json_value *own = sfp__json_at(v, place++);
        same = same && strcmp(own->key, key) == 0 && sfp__json_get(v, key) == own && equals(own, member);
    }
    if (json_is_string(w))
        return v->type == SFP__JSON_STRING && v->count == json_string_length(w) && strcmp(v->text, json_string_value(w)) == 0;
    if (json_is_integer(w))
        return sfp__json_is(v, SFP__JSON_INTEGER) && v->integer == json_integer_value(w);
    if (json_is_real(w))
        return sfp__json_is(v, SFP__JSON_REAL) && v->real == json_real_value(w);
    return same && v->type == (json_is_object(w)  ? SFP__JSON_OBJECT
                               : json_is_array(w) ? SFP__JSON_ARRAY
                               : json_is_true(w)  ? SFP__JSON_TRUE
                               : json_is_false(w) ? SFP__JSON_FALSE
                                                  : SFP__JSON_NULL);
}

/* Texts, and each with one byte replaced, removed or cut off: jansson reads the same values, and refuses the same texts. */
TEST(json_is_read_as_jansson_reads_it)
{
    static const char *const texts[] = {
        "{\"a\": [1, -2.5e-3, 0.0, 1E+2, -0], \"b\": {\"c\": null, \"\": \"\"}, \"z\": true, \"d\": false}",
        "[\"\\u00e9\\ud83d\\ude00 \\n\\t\\\\ \\/\", \"\xc3\xa9\xf0\x9f\x98\x80\", [[[]]], {}]",
        "  [9223372036854775807, -9223372036854775808, 1.7976931348623157e308]\n",
    };
    static const char bytes[] = "\"\\{}[]:,0-+.eEu \n\x01\x80\xed";
    int read = 0, refused = 0;
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
        for (size_t at = 0; at < strlen(texts[t]); at++)
            for (size_t b = 0; b < sizeof bytes + 1; b++) {
                char text[256];
                size_t n = strlen(texts[t]), cut = b == sizeof bytes ? 1 : 0;
                memcpy(text, texts[t], n + 1);
                if (b < sizeof bytes - 1)
                    text[at] = bytes[b];
                else if (cut)
                    memmove(text + at, text + at + 1, n-- - at);
                else
                    text[n = at] = '\0';
                OWNED sfp__json_value *v = NULL;
                json_t *w = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
                sfp_status status = sfp__json_parse("text", text, n, &v, &err);
                if ((status == SFP_OK) != (w != NULL) || (w && !equals(v, w)))
                    fail_msg("'%s': %s", text, status ? err.message : "read");
                read += w != NULL;
                refused += w == NULL;
                json_decref(w);
            }
    assert_true(read > 100 && refused > 1000);
}

TEST(json_messages_name_the_place)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "x: line 1, column 1: text ends, expected a value"},
        {"{\"a\": 1,\n \"b\": }", "x: line 2, column 7: '}' found, expected a value"},
        {"[1 2]", "x: line 1, column 4: '2' found, expected ',' or ']'"},
        {"{1: 2}", "x: line 1, column 2: '1' found, expected a key in quotes"},
        {"[\"a\nb\"]", "x: line 1, column 4: byte 0x0a in a string, expected an escape"},
        {"[\"\xff\"]", "x: line 1, column 3: byte 0xff in a string is not UTF-8"},
        {"[\"\\u0000\"]", "x: line 1, column 9: \\u0000 is not a character"},
        {"[1e999]", "x: line 1, column 2: the number is too big"},
        {"[99999999999999999999]", "x: line 1, column 2: the number is too big"},
        {"[] []", "x: line 1, column 4: '[' found, expected the end of the text"},
        {"{\"a\":1,\"a\":2}", "x: line 1, column 13: the object that ends here has the duplicate key 'a'"},
    };
    OWNED sfp__json_value *v = NULL;
    char deep[400];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        REFUSED_EXACTLY(sfp__json_parse("x", cases[i].text, strlen(cases[i].text), &v, &err), SFP_EFORMAT, cases[i].message);
    memset(deep, '[', sizeof deep);
    REFUSED(sfp__json_parse("x", deep, sizeof deep, &v, &err), SFP_EFORMAT, "nested more than 100 deep");
    assert_null(v);
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
    char buf[SFP__TITLE_SIZE];
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
    char buf[SFP__TITLE_SIZE];
    CHECK_TITLE("classes 0-1", 22, "classes 0-1");
    CHECK_TITLE("classes 2-3", 22, "3, 2"); /* another order */
    CHECK_TITLE("classes 3-4", 22, "classes 3-4");
}

TEST(long_names_of_classes_are_cut)
{
    char buf[SFP__TITLE_SIZE], name[300];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    const char *const names[] = {name, name, name, name, name};
    assert_int_equal(strlen(sfp__task_title("classes 0-4", 1000, class_name, names, buf)), SFP__TITLE_SIZE - 1);
}
