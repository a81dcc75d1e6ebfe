/* Manifests: CSV and JSONL, headers, quoting, and errors that name the line. */
#include "base/text.h"
#include "source_files.h"
#include "test.h"

AROUND_EACH(make_directory, remove_directory)

static const sfp__source_kind *const kind = &sfp__source_manifest;

static sfp_source *open_text(const char *text)
{
    put_text("sub/m.csv", text);
    return open_source(kind, "sub/m.csv");
}

static void refused(const char *text, sfp_status status, const char *a, const char *b)
{
    put_text("m.csv", text);
    check_refused(kind, "m.csv", status, a, b);
}

TEST(a_plain_list_keeps_its_order)
{
    put_text("sub/pics/b.jpg", "B");
    sfp_source *s = open_text("pics/b.jpg,dog\na.jpg,cat\r\n\n  \nc.jpg, 7 \n/x/d.jpg,\nb.jpg,dog");
    assert_true(s->keeps_order);
    CHECK_CLASSES(s, "7", "cat", "dog");
    CHECK_LABELS(s, "dog", "cat", "7", "-", "dog");
    check_bytes(s, 0, "B", 1); /* relative to the list */
    check_name(s, 3, "/x/d.jpg");
    check_bounds(s);
}

TEST(four_columns_and_a_header_in_any_order)
{
    sfp_source *s = open_text("a.jpg,x,0,2004.5\nb.jpg,y,3,-1e3\nc.jpg,x,,\n");
    sfp_record r = record_of(s, 1);
    assert_int_equal(r.task, 3);
    assert_true(r.time == -1000);
    r = record_of(s, 2);
    assert_int_equal(r.task, -1);
    assert_true(isnan(r.time));
    s = open_text("\xef\xbb\xbfTime,weight,LABEL,path,domain\n1,0.5,cat,a.jpg,photo\n2,0.1,dog,b.jpg,sketch\n");
    CHECK_LABELS(s, "photo/cat", "sketch/dog");
    r = record_of(s, 1);
    assert_true(r.time == 2);
    assert_int_equal(r.task, -1);
}

TEST(names_need_no_ending_when_none_has_one)
{
    assert_int_equal(open_text("one,x\ntwo,y\nthree.jpg,x\n")->count, 3);
    assert_int_equal(open_text("path,label\none,x\ntwo.jpg,y\n")->count, 2); /* the header is unambiguous */
}

TEST(quoted_fields_may_hold_anything)
{
    sfp_source *s = open_text("\"a,b.jpg\",\"say \"\"hi\"\"\"\n\"two\nlines.jpg\", \"x\" \nc.jpg,\"\"\nd.jpg,x\n");
    assert_int_equal(s->count, 4);
    check_name(s, 0, "a,b.jpg");
    assert_string_equal(label_text(s, 0), "say \"hi\"");
    check_name(s, 1, "two\\x0alines.jpg");
    assert_string_equal(label_text(s, 1), "x");
    assert_string_equal(label_text(s, 2), "-");
    check_not_loaded(s, 3, SFP_ENOTFOUND, "m.csv:5: ", "d.jpg: cannot open"); /* the quoted newline counts as a line */
}

TEST(json_lines_are_the_same)
{
    sfp_source *s = open_text(
        "\n{\"path\": \"a.jpg\", \"label\": \"cat\", \"task\": 1, \"time\": 2.5}\n"
        "{\"label\": 12, \"path\": \"b.jpg\", \"extra\": [1]}\r\n\n{\"path\": \"c.jpg\", \"label\": null, \"domain\": \"d\"}");
    CHECK_LABELS(s, "cat", "12", "d/-");
    sfp_record r = record_of(s, 0);
    assert_int_equal(r.task, 1);
    assert_true(r.time == 2.5);
    check_not_loaded(s, 1, SFP_ENOTFOUND, "m.csv:3: ", "b.jpg");
}

TEST(a_line_without_end_is_refused)
{
    size_t n = 200000;
    char *text = kept_malloc(n + 1);
    memset(text, 'a', n);
    text[n] = '\0';
    refused(text, SFP_EFORMAT, "m.csv:1: ", "longer than 65536");
    text[0] = '"';
    refused(text, SFP_EFORMAT, "m.csv:1: ", "within 65536");
    text[0] = '{';
    refused(text, SFP_ELIMIT, "m.csv:1: ", "200000 bytes");
    memcpy(text, "a,b\n", 4);
    memset(text + 4, ',', n - 4);
    refused(text, SFP_EFORMAT, "m.csv:2: ", "more than 64 fields");
    text[5000] = '\0';
    memset(text, 'p', 4990);
    memcpy(text + 4990, ",class\n", 8);
    refused(text, SFP_ELIMIT, "m.csv:1: ", "4990 bytes");
}

/* Checks a record whose field consists of 'a' and has character `at` of `what` at byte 65,536. */
static void refused_around_the_limit(const char *what, size_t at, bool quoted, const char *message)
{
    enum { LIMIT = 65536, SIZE = LIMIT + 300000 };
    char *text = kept_malloc(SIZE + 1);
    memset(text, 'a', SIZE);
    text[SIZE] = '\0';
    if (quoted)
        text[0] = '"';
    memcpy(text + LIMIT - at, what, strlen(what));
    refused(text, SFP_EFORMAT, "m.csv:1: ", message);
}

TEST(a_record_that_steps_over_the_limit_is_refused)
{
    for (size_t at = 0; at < 3; at++) {
        refused_around_the_limit(",,,", at, false, "longer than 65536");
        refused_around_the_limit(" , ", at, false, "longer than 65536");
        refused_around_the_limit("\"\"\"\"", at, true, "within 65536");
        refused_around_the_limit("\",\"", at + 1, true, at == 0 ? "longer than 65536" : "65536");
    }
    refused_around_the_limit("\"    ,", 2, true, "longer than 65536"); /* blanks after a quoted field */
    refused_around_the_limit("\"\"\"", 3, true, "follows a quoted field");
}

TEST(a_hundred_thousand_lines_are_read)
{
    sfp__text t = {0};
    for (int i = 0; i < 100000; i++)
        sfp__text_printf(&t, "images/class_%d/image_%06d.jpg,class_%d,%d,%d\n", i % 1000, i, i % 1000, i / 10000,
                         2000 + i / 10000);
    put_text("m.csv", t.s);
    sfp__text_done(&t);
    sfp_source *s = open_source(kind, "m.csv");
    assert_int_equal(s->count, 100000);
    assert_int_equal(s->classes, 1000);
    for (int64_t i = 0; i < s->count; i += 997)
        assert_string_equal(label_text(s, i), kept_print("class_%d", (int)(i % 1000)));
}
