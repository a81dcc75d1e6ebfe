/* What every unit test is written with. TEST(name) { ... } registers itself; the tests of all files are one program, in which
 * `unit test_FILE` runs those of one file (main.c). */
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

/* For all calls that take one; empty when a test begins. */
static UNUSED sfp_error err;

#define TEST(name) TEST_AROUND(name, NULL, NULL)

/* A test with something to do before and after it; what is done after it is done also when it fails. */
#define TEST_AROUND(name, before, after)                                \
    static void name(void);                                             \
    __attribute__((constructor)) static void add_##name(void)           \
    {                                                                   \
        test_add(__FILE__, __LINE__, #name, name, before, after, &err); \
    }                                                                   \
    static void name(void)

/* Before and after each test of the file that has nothing of its own, or once for all of them; each at most once a file. */
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

/* The call succeeds; else what it says, when it was given &err. */
#define MUST(call)                                                    \
    do {                                                              \
        sfp_status must_ = (call);                                    \
        if (must_ != SFP_OK)                                          \
            fail_msg("%s: status %d, %s", #call, must_, err.message); \
    } while (0)

/* The call, which is given &err, fails with this status and says this part of a message. */
#define REFUSED(call, status, part) REFUSED_AS(#call, call, status, part)

/* The same for rows of tables, which have a name of their own. */
#define REFUSED_AS(name, call, status, part)                                                                             \
    do {                                                                                                                 \
        err = (sfp_error){0};                                                                                            \
        sfp_status refused_ = (call);                                                                                    \
        if (refused_ != (status) || !strstr(err.message, part))                                                          \
            fail_msg("%s: status %d, \"%s\", expected status %d and \"%s\"", name, refused_, err.message, status, part); \
    } while (0)

/* The same, with all of the message. */
#define REFUSED_EXACTLY(call, status, whole)     \
    do {                                         \
        REFUSED(call, status, whole);            \
        assert_string_equal(err.message, whole); \
    } while (0)

/* Strings with NULL behind the last. */
#define STRINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* All of these parts, or none of them, are in a text. */
#define HOLDS(text, ...) check_parts(text, true, STRINGS(__VA_ARGS__))
#define LACKS(text, ...) check_parts(text, false, STRINGS(__VA_ARGS__))

static inline void check_parts(const char *text, bool wanted, const char *const *parts)
{
    for (; *parts; parts++)
        if ((strstr(text, *parts) != NULL) != wanted)
            fail_msg("%s '%s' in '%.300s'", wanted ? "no" : "there is", *parts, text);
}

#endif
