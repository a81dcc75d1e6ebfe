/* The macros that unit tests are written with. TEST(name) { ... } registers itself. The tests of all files form one program;
 * `unit test_FILE` runs the tests of one file (main.c). */
#ifndef SFP_TESTS_TEST_H
#define SFP_TESTS_TEST_H

#ifdef SFP_API_TESTS /* tests/api, which knows the public header only */
#include "streamfp.h"
#else
#include "base/error.h"
#include "base/mem.h"
#endif

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "kept.h"

typedef void test_function(void);

void test_add(const char *file, int line, const char *name, test_function *run, test_function *before, test_function *after,
              sfp_error *err);
void test_around(const char *file, bool each, test_function *before, test_function *after);

/* Error record for every call that takes one. It is empty when a test starts. */
static UNUSED sfp_error err;

#define TEST(name) TEST_AROUND(name, NULL, NULL)

/* A test with its own set-up (before) and tear-down (after). The tear-down runs also if the test fails. */
#define TEST_AROUND(name, before, after)                                \
    static void name(void);                                             \
    __attribute__((constructor)) static void add_##name(void)           \
    {                                                                   \
        test_add(__FILE__, __LINE__, #name, name, before, after, &err); \
    }                                                                   \
    static void name(void)

/* Set-up and tear-down of a file, each macro at most once per file. AROUND_EACH runs them around every test without its own;
 * AROUND_ALL runs them once around all tests. */
#define AROUND_EACH(before, after)                             \
    __attribute__((constructor)) static void around_each(void) \
    {                                                          \
        test_around(__FILE__, true, before, after);            \
    }
#define AROUND_ALL(before, after)                             \
    __attribute__((constructor)) static void around_all(void) \
    {                                                         \
        test_around(__FILE__, false, before, after);          \
    }

/* Fails the test unless the call succeeds. The failure shows err.message, if the call was given &err. */
#define MUST(call)                                                    \
    do {                                                              \
        sfp_status must_ = (call);                                    \
        if (must_ != SFP_OK)                                          \
            fail_msg("%s: status %d, %s", #call, must_, err.message); \
    } while (0)

/* Fails the test unless the call, which must be given &err, returns this status and a message that contains `part`. */
#define REFUSED(call, status, part) REFUSED_AS(#call, call, status, part)

/* REFUSED for rows of tables: `name` identifies the row if the check fails. */
#define REFUSED_AS(name, call, status, part)                                                                             \
    do {                                                                                                                 \
        err = (sfp_error){0};                                                                                            \
        sfp_status refused_ = (call);                                                                                    \
        if (refused_ != (status) || !strstr(err.message, part))                                                          \
            fail_msg("%s: status %d, \"%s\", expected status %d and \"%s\"", name, refused_, err.message, status, part); \
    } while (0)

/* REFUSED, but the message must be exactly `whole`. */
#define REFUSED_EXACTLY(call, status, whole)     \
    do {                                         \
        REFUSED(call, status, whole);            \
        assert_string_equal(err.message, whole); \
    } while (0)

/* An array of strings that ends with NULL. */
#define STRINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Checks that a text contains all of these parts (HOLDS), or none of them (LACKS). */
#define HOLDS(text, ...) check_parts(text, true, STRINGS(__VA_ARGS__))
#define LACKS(text, ...) check_parts(text, false, STRINGS(__VA_ARGS__))

static inline void check_parts(const char *text, bool wanted, const char *const *parts)
{
    for (; *parts; parts++)
        if ((strstr(text, *parts) != NULL) != wanted)
            fail_msg("%s '%s' in '%.300s'", wanted ? "no" : "there is", *parts, text);
}

#endif
