/* Texts that commands read and write: JSON, lists of files, class names. */
#include "cli/filelist.h"
#include "io/json_write.h"
#include "io/lines.h"

#include "temp_directory.h"
#include "test.h"
#include <jansson.h>

DEFINE_OWNED_PTR(json_t, json_decref)

AROUND_ALL(make_directory, remove_directory)

/* -------------------------------------------------------------------- json */

static char text[4096];

static FILE *begin_json(sfp__json *j)
{
    memset(text, 0, sizeof text);
    FILE *f = fmemopen(text, sizeof text, "w");
    sfp__json_begin(j, f);
    return f;
}

static void end_json(sfp__json *j, FILE *f)
{
    sfp__json_end_all(j);
    assert_int_equal(fclose(f), 0);
}

TEST(written_json_is_parsed_by_a_json_parser)
{
    sfp__json j;
    FILE *f = begin_json(&j);
    sfp__json_string(&j, "quote\"d", "a\\b\n\x01\x1b \xc3\xa9 end");
    sfp__json_string(&j, "none", NULL);
    sfp__json_array(&j, "list");
    sfp__json_int(&j, NULL, INT64_MIN);
    sfp__json_real(&j, NULL, 0.1);
    sfp__json_real(&j, NULL, NAN);
    sfp__json_real(&j, NULL, -INFINITY);
    sfp__json_object(&j, NULL);
    sfp__json_end(&j);
    sfp__json_bool(&j, NULL, true);
    sfp__json_end(&j);
    sfp__json_float(&j, "float", 0.485f);
    end_json(&j, f);

    assert_int_equal(text[strlen(text) - 1], '\n');
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_non_null(strstr(text, "\"float\":0.485}"));
    OWNED_PTR(json_decref) json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "quote\"d")), "a\\b\n\x01\x1b \xc3\xa9 end");
    assert_true(json_is_null(json_object_get(root, "none")));
    json_t *list = json_object_get(root, "list");
    assert_int_equal(json_array_size(list), 6);
    assert_true(json_integer_value(json_array_get(list, 0)) == INT64_MIN);
    assert_true(json_is_null(json_array_get(list, 2)));
    assert_true(json_is_null(json_array_get(list, 3)));
}

TEST(a_file_name_that_is_not_utf8_is_written_as_valid_json)
{
    static const char *const names[] = {"\xff",         "a\xc3", "\xc0\xaf",        "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                        "\xe2\x28\xa1", "\x80",  "\xf0\x9f\x98\x80"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        sfp__json j;
        FILE *f = begin_json(&j);
        sfp__json_string(&j, "file", names[i]);
        end_json(&j, f);
        OWNED_PTR(json_decref) json_t *root = json_loads(text, 0, NULL);
        assert_non_null(root);
    }
}

TEST(ending_all_closes_open_arrays_and_objects)
{
    sfp__json j;
    FILE *f = begin_json(&j);
    sfp__json_array(&j, "a");
    sfp__json_object(&j, NULL);
    sfp__json_array(&j, "b");
    end_json(&j, f);
    assert_string_equal(text, "{\"a\":[{\"b\":[]}]}\n");
}

/* ------------------------------------------------------------------- lists */

static void expect_list(const char *content, size_t size, size_t count, const char *const *files, const char *const *labels)
{
    OWNED_BY(sfp__filelist_done) sfp__filelist l = {0};
    put_bytes("list.csv", content, size);
    MUST(sfp__filelist_add_csv(&l, in_directory("list.csv"), &err));
    assert_int_equal(l.count, count);
    for (size_t i = 0; i < count; i++) {
        const char *path = sfp__filelist_path(&l, i);
        if (files[i][0] == '/') {
            assert_string_equal(path, files[i]);
        } else {
            assert_memory_equal(path, directory, strlen(directory));
            assert_string_equal(path + strlen(directory) + 1, files[i]);
        }
        assert_string_equal(sfp__filelist_label(&l, i), labels[i]);
    }
}
#define LIST(content, count, files, labels) expect_list(content, sizeof(content) - 1, count, files, labels)

TEST(lists_are_read_with_and_without_header_quotes_and_labels)
{
    LIST("file,label\na.png,1\n", 1, ((const char *[]){"a.png"}), ((const char *[]){"1"}));
    LIST("a.png,1\nb.png,2", 2, ((const char *[]){"a.png", "b.png"}), ((const char *[]){"1", "2"}));
    LIST("Path,Class\r\n\"x, \"\"y\"\".png\",\"cat, big\"\r\n\r\n", 1, ((const char *[]){"x, \"y\".png"}),
         ((const char *[]){"cat, big"}));
    LIST("# note\na.png\n/abs/b.png,3,more,fields\n", 2, ((const char *[]){"a.png", "/abs/b.png"}), ((const char *[]){"", "3"}));
    LIST("file,7\n", 1, ((const char *[]){"file"}), ((const char *[]){"7"})); /* a file of that name, not the header */
}

TEST(a_very_long_line_is_refused)
{
    char *line = kept_malloc(SFP__LINE_MAX + 10);
    memset(line, 'a', SFP__LINE_MAX + 10);
    put_bytes("list.csv", line, SFP__LINE_MAX + 10);
    OWNED_BY(sfp__filelist_done) sfp__filelist l = {0};
    REFUSED(sfp__filelist_add_csv(&l, in_directory("list.csv"), &err), SFP_EFORMAT, "too long");
}

TEST(a_large_list_keeps_every_entry)
{
    OWNED_BY(sfp__filelist_done) sfp__filelist l = {0};
    char path[32], label[32];
    for (int i = 0; i < 100000; i++) {
        (void)snprintf(path, sizeof path, "image-%d.png", i);
        (void)snprintf(label, sizeof label, "%d", i % 7);
        MUST(sfp__filelist_add(&l, path, label, &err));
    }
    assert_int_equal(l.count, 100000);
    assert_string_equal(sfp__filelist_path(&l, 99999), "image-99999.png");
    assert_string_equal(sfp__filelist_label(&l, 8), "1");
}

TEST(class_names_are_lines)
{
    OWNED_BY(sfp__strings_done) sfp__strings names = {0};
    put_bytes("list.csv", "tench\r\ngreat white shark\n\nlast", 30);
    MUST(sfp__class_names_read(in_directory("list.csv"), &names, &err));
    assert_int_equal(names.count, 4);
    assert_string_equal(names.s[0], "tench");
    assert_string_equal(names.s[2], "");
    assert_string_equal(names.s[3], "last");
}
