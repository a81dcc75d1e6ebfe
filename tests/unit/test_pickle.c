#include "io/tensor/pickle.h"

#include "base/text.h"

#include <inttypes.h>

#include "temp_directory.h"
#include "test.h"

/* Appends the value as Python's repr() shows it, to a depth of 6. */
static void show(const sfp__pickle *p, sfp__pickle_value v, int depth, sfp__text *out)
{
    sfp__pickle_type type = sfp__pickle_type_of(p, v);
    size_t n = sfp__pickle_count(p, v), length = 0;
    const char *text = sfp__pickle_text(p, v, &length);
    bool list = type == SFP__PICKLE_LIST, tuple = type == SFP__PICKLE_TUPLE, dict = type == SFP__PICKLE_DICT;
    if (type == SFP__PICKLE_NONE)
        sfp__text_put(out, "None");
    else if (type == SFP__PICKLE_BOOL)
        sfp__text_put(out, sfp__pickle_int(p, v) ? "True" : "False");
    else if (type == SFP__PICKLE_INT)
        sfp__text_printf(out, "%" PRId64, sfp__pickle_int(p, v));
    else if (type == SFP__PICKLE_FLOAT)
        sfp__text_printf(out, "%g", sfp__pickle_node_of(p, v)->number);
    else if (text)
        sfp__text_printf(out, "%s'%.*s'", type == SFP__PICKLE_BYTES ? "b" : "", (int)length, text);
    else if (depth == 0)
        sfp__text_put(out, "...");
    if ((!list && !tuple && !dict) || depth == 0)
        return;
    sfp__text_put(out, list ? "[" : tuple ? "(" : "{");
    for (size_t i = 0; i < n; i++) {
        sfp__text_put(out, i ? ", " : "");
        if (dict) {
            show(p, sfp__pickle_key(p, v, i), depth - 1, out);
            sfp__text_put(out, ": ");
        }
        show(p, sfp__pickle_item(p, v, i), depth - 1, out);
    }
    sfp__text_put(out, list ? "]" : tuple ? n == 1 ? ",)" : ")" : "}");
}

/* Parses a copy of exact size, so that a sanitizer detects a read beyond it. */
static sfp_status parse(const char *bytes, size_t size, const sfp__pickle_limits *limits, sfp__pickle **out, sfp_error *why)
{
    char *copy = kept_malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    return sfp__pickle_parse("x.pkl", copy, size, limits, out, why);
}

static void check_accepted(const char *bytes, size_t size, const char *expected)
{
    OWNED_PTR(sfp__pickle_free) sfp__pickle *p = NULL;
    OWNED_BY(sfp__text_done) sfp__text text = {0};
    if (parse(bytes, size, NULL, &p, &err) != SFP_OK)
        fail_msg("%s: %s", expected, err.message);
    show(p, p->root, 6, &text);
    assert_false(text.failed);
    assert_string_equal(text.s, expected);
}
#define ACCEPTED(literal, expected) check_accepted(literal, sizeof(literal) - 1, expected)

static void check_refused(const char *bytes, size_t size, const sfp__pickle_limits *limits, sfp_status status,
                          const char *message)
{
    sfp__pickle *p = NULL;
    REFUSED(parse(bytes, size, limits, &p, &err), status, message);
    assert_int_equal(strncmp(err.message, "x.pkl: ", 7), 0);
    assert_null(p);
}
#define BAD(literal, status, message) check_refused(literal, sizeof(literal) - 1, NULL, status, message)

/* Output of pickle.dumps of Python 3 for one object, protocols 0 to 5. */
#define DUMPED                                                                                                       \
    "{'nc': [[[0, 1, 300, 70000, -5], [2]], ()], 'x': (1.5, None, True, False), '\xc3\xa9': ['a', 'a'], 7: {'big': " \
    "1099511627776}}"

#define PROTOCOL_2_AND_3                                                                                           \
    "}q\0(X\2\0\0\0ncq\1]q\2(]q\3(]q\4(K\0K\1M,\1Jp\21\1\0J\373\377\377\377e]q\5K\2ae)eX\1\0\0\0xq\6(G?\370\0\0\0" \
    "\0\0\0N\210\211tq\7X\2\0\0\0\303\251q\10]q\11(X\1\0\0\0aq\nh\neK\7}q\13X\3\0\0\0bigq\14\212\6\0\0\0\0\0\1su."
#define PROTOCOL_4_AND_5                                                                                           \
    "\225b\0\0\0\0\0\0\0}\224(\214\2nc\224]\224(]\224(]\224(K\0K\1M,\1Jp\21\1\0J\373\377\377\377e]\224K\2ae)e\214" \
    "\1x\224(G?\370\0\0\0\0\0\0N\210\211t\224\214\2\303\251\224]\224(\214\1a\224h\neK\7}\224\214\3big\224\212\6\0" \
    "\0\0\0\0\1su."
#define DUMP(literal)                \
    {                                \
        literal, sizeof(literal) - 1 \
    }

static const struct {
    const char *bytes;
    size_t size;
} dumps[] = {
    DUMP("(dp0\nVnc\np1\n(lp2\n(lp3\n(lp4\nI0\naI1\naI300\naI70000\naI-5\naa(lp5\nI2\naaa(tasVx\np6\n(F1.5\nNI01\nI00\ntp7"
         "\nsV\351\np8\n(lp9\nVa\np10\nag10\nasI7\n(dp11\nVbig\np12\nL1099511627776L\nss."),
    DUMP("}q\0(X\2\0\0\0ncq\1]q\2(]q\3(]q\4(K\0K\1M,\1Jp\21\1\0J\373\377\377\377e]q\5K\2ae)eX\1\0\0\0xq\6(G?\370\0\0\0\0\0"
         "\0NI01\nI00\ntq\7X\2\0\0\0\303\251q\10]q\11(X\1\0\0\0aq\nh\neK\7}q\13X\3\0\0\0bigq\14L1099511627776L\nsu."),
    DUMP("\200\2" PROTOCOL_2_AND_3),
    DUMP("\200\3" PROTOCOL_2_AND_3),
    DUMP("\200\4" PROTOCOL_4_AND_5),
    DUMP("\200\5" PROTOCOL_4_AND_5),
};

TEST(all_protocols_give_the_same_values)
{
    for (size_t i = 0; i < sizeof dumps / sizeof *dumps; i++)
        check_accepted(dumps[i].bytes, dumps[i].size, DUMPED);
}

TEST(pickles_of_python_2_are_accepted)
{
    /* protocol 0: str, unicode, long; dict and list by MARK; memo by lines */
    ACCEPTED(
        "(dp0\nS'nc'\np1\n(lp2\n(lp3\nI0\naI12\naL5L\naasS'a\\'b\\\\\\x41\\n'\np4\nVd\\u00e9\\U0001f600\np5\nsS\"q\"\nI01\nsF1."
        "5\nNs.",
        "{'nc': [[0, 12, 5]], 'a'b\\A\n': 'd\xc3\xa9\xf0\x9f\x98\x80', 'q': True, 1.5: None}");
    /* the same, written on Windows in text mode */
    ACCEPTED("(lp0\r\nI7\r\naS'x'\r\na.", "[7, 'x']");
    /* protocol 2 */
    ACCEPTED("\x80\x02}q\x00U\x02ncq\x01]q\x02(K\x01M,\x01J\x70\x11\x01\x00J\xff\xff\xff\xff\x8a\x01\005es.",
             "{'nc': [1, 300, 70000, -1, 5]}");
    ACCEPTED("(T\x03\x00\x00\000abcX\x02\x00\x00\x00\xc3\xa9t.", "('abc', '\xc3\xa9')");
}

TEST(integers_keep_their_value)
{
    ACCEPTED("]\x8a\000a\x8a\x01\200a\x8a\x08\xff\xff\xff\xff\xff\xff\xff\177a\x8a\x08\x00\x00\x00\x00\x00\x00\x00\200a.",
             "[0, -128, 9223372036854775807, -9223372036854775808]");
    ACCEPTED("]\x8a\x08\xff\xff\xff\xff\xff\xff\xff\077a\x8a\x08\x00\x00\x00\x00\x00\x00\x00\100a\x8a\x08\x00\x00\x00\x00\x00\x00"
             "\x00\300a.",
             "[4611686018427387903, 4611686018427387904, -4611686018427387904]");
    ACCEPTED("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\xff.", "-1");
    ACCEPTED("\x8b\x02\x00\x00\x00\x34\x12.", "4660");
    ACCEPTED("I-12\n.", "-12");
    BAD("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00.", SFP_ELIMIT, "LONG1: the number does not fit 64 bits");
    BAD("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.", SFP_ELIMIT, "64 bits");
    BAD("I9223372036854775808\n.", SFP_ELIMIT, "INT: the number does not fit 64 bits");
    BAD("I12x\n.", SFP_EFORMAT, "byte 0: INT: expected a number, found '12x'");
    BAD("I\n.", SFP_EFORMAT, "expected a number");
    BAD("I+1\n.", SFP_EFORMAT, "expected a number");
    BAD("F\x1b[2J\n.", SFP_EFORMAT, "found '\\x1b[2J'");
}

TEST(stack_and_memo_work_as_in_python)
{
    ACCEPTED("NI5\n0.", "None");
    ACCEPTED("](N1.", "[]");
    ACCEPTED("K\x07(0.", "7"); /* POP removes a mark */
    ACCEPTED("K\0072\x86.", "(7, 7)");
    ACCEPTED("]q\x03K\001ah\x03\x86.", "([1], [1])");  /* shared */
    ACCEPTED("]\x94K\x01\224ah\x01\x86.", "([1], 1)"); /* MEMOIZE numbers its values */
    ACCEPTED("]p1\ng1\na.", "[[[[[[...]]]]]]");        /* a list that contains itself */
    ACCEPTED("}K\x01NsK\x01K\x02s.", "{1: None, 1: 2}");
    ACCEPTED(")\x85.", "((),)");
}

TEST(limits_hold)
{
    char deep[400];
    sfp__pickle_limits limits = sfp__pickle_limits_defaults();
    memset(deep, '(', sizeof deep);
    check_refused(deep, sizeof deep, NULL, SFP_ELIMIT, "byte 64: MARK: nested deeper than 64");
    memset(deep, 0, sizeof deep);
    memset(deep, ']', 100); /* [[[...]]], closed from the inside */
    memset(deep + 100, 'a', 99);
    deep[199] = '.';
    check_refused(deep, 200, NULL, SFP_ELIMIT, "APPEND: nested deeper than 64");
    limits.depth = 120;
    sfp__pickle *p = NULL;
    MUST(parse(deep, 200, &limits, &p, NULL));
    sfp__pickle_free(p);
    limits = (sfp__pickle_limits){.bytes = 100, .items = 3, .memo = 2, .depth = 5};
    check_refused("NNNN", 4, &limits, SFP_ELIMIT, "more than 3 values");
    check_refused("](NNe.", 6, &limits, SFP_ELIMIT, "APPENDS: more than 3 values");
    check_refused("Nq\x02.", 4, &limits, SFP_ELIMIT, "memo index is 2, expected less than 2");
    check_refused(deep, 200, &limits, SFP_ELIMIT, "pickle is 200 bytes, expected at most 100");
}

TEST(values_are_found_by_key)
{
    const char bytes[] = "}(U\001aK\x01X\x01\x00\x00\000bK\x02K\x07K\x03U\001aK\x04u.";
    OWNED_PTR(sfp__pickle_free) sfp__pickle *p = NULL;
    sfp__pickle_value v = 0;
    MUST(parse(bytes, sizeof bytes - 1, NULL, &p, NULL));
    sfp__pickle_value root = p->root;
    assert_int_equal(sfp__pickle_count(p, root), 4);
    assert_true(sfp__pickle_get(p, root, "a", &v) && sfp__pickle_int(p, v) == 4); /* the last value of a key counts */
    assert_true(sfp__pickle_get(p, root, "b", &v) && sfp__pickle_int(p, v) == 2);
    assert_true(sfp__pickle_get_int(p, root, 7, &v) && sfp__pickle_int(p, v) == 3);
    assert_false(sfp__pickle_get(p, root, "c", &v));
    assert_false(sfp__pickle_get_int(p, root, 1, &v));
    assert_false(sfp__pickle_get(p, v, "c", &v)); /* not a dict */
    assert_null(sfp__pickle_text(p, root, NULL));
    assert_int_equal(sfp__pickle_int(p, root), 0);
}

TEST(every_truncation_is_refused)
{
    for (size_t i = 0; i < sizeof dumps / sizeof *dumps; i++) {
        for (size_t n = 0; n < dumps[i].size; n++) {
            sfp__pickle *p = NULL;
            if (parse(dumps[i].bytes, n, NULL, &p, &err) == SFP_OK)
                fail_msg("protocol %zu: the first %zu bytes are taken", i, n);
            assert_true(err.message[0] != '\0');
        }
    }
}

TEST(a_million_integers_take_eight_bytes_each)
{
    enum { N = 1000000 };
    char *bytes = kept_malloc(3 * N + 16), *at = bytes;
    *at++ = ']';
    *at++ = '(';
    for (int i = 0; i < N; i++) {
        *at++ = 'M';
        *at++ = (char)i;
        *at++ = (char)(i >> 8);
    }
    *at++ = 'e';
    *at++ = '.';
    OWNED_PTR(sfp__pickle_free) sfp__pickle *p = NULL;
    unsigned long before = sfp__mem_count();
    MUST(sfp__pickle_parse("x.pkl", bytes, (size_t)(at - bytes), NULL, &p, NULL));
    assert_true(sfp__mem_count() - before < 64); /* one allocation per doubling, not per integer */
    assert_int_equal(sfp__pickle_count(p, p->root), N);
    assert_int_equal(sfp__pickle_int(p, sfp__pickle_item(p, p->root, 65537)), 1);
}

TEST(files_are_read_and_missing_ones_named)
{
    OWNED_PTR(sfp__pickle_free) sfp__pickle *p = NULL, *none = NULL;
    make_directory();
    put_text("x.pkl", "N.");
    MUST(sfp__pickle_read(in_directory("x.pkl"), NULL, &p, &err));
    remove_directory();
    REFUSED(sfp__pickle_read(in_directory("x.pkl"), NULL, &none, &err), SFP_ENOTFOUND, in_directory("x.pkl"));
}
