/* Errors: how a record is filled, truncated and extended by a prefix. */
#include <errno.h>

#include "test.h"

TEST(fail_returns_the_status_and_fills_the_record)
{
    assert_int_equal(sfp__fail(&err, SFP_ESHAPE, "%s: %d", "w.safetensors", 7), SFP_ESHAPE);
    assert_int_equal(err.status, SFP_ESHAPE);
    assert_string_equal(err.message, "w.safetensors: 7");
}

TEST(the_error_record_is_optional)
{
    assert_int_equal(sfp__fail(NULL, SFP_EIO, "x"), SFP_EIO);
    assert_int_equal(sfp__fail_errno(NULL, SFP_EIO, "x"), SFP_EIO);
    assert_int_equal(sfp__fail_prefix(NULL, SFP_EIO, "x"), SFP_EIO);
    assert_int_equal(sfp__fail_nomem(NULL), SFP_ENOMEM);
}

TEST(long_messages_are_truncated_and_terminated)
{
    char text[2 * SFP_ERROR_MAX];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    struct {
        sfp_error err;
        char guard[8];
    } s;
    memset(&s, '#', sizeof s);
    (void)sfp__fail(&s.err, SFP_EIO, "%s", text);
    assert_int_equal(strlen(s.err.message), SFP_ERROR_MAX - 1);
    (void)sfp__fail_prefix(&s.err, SFP_EIO, "%s", text); /* the prefix alone fills the message */
    assert_int_equal(strlen(s.err.message), SFP_ERROR_MAX - 1);
    errno = ENOENT;
    (void)sfp__fail_errno(&s.err, SFP_EIO, "%s", text);
    assert_int_equal(strlen(s.err.message), SFP_ERROR_MAX - 1);
    assert_memory_equal(s.guard, "########", 8);
}

TEST(errno_is_described)
{
    errno = ENOENT;
    REFUSED_EXACTLY(sfp__fail_errno(&err, SFP_EIO, "%s: cannot open", "a.npy"), SFP_EIO,
                    kept_print("a.npy: cannot open: %s", strerror(ENOENT)));
}

TEST(a_prefix_precedes_the_message)
{
    (void)sfp__fail(&err, SFP_EFORMAT, "line 3: no number");
    assert_int_equal(sfp__fail_prefix(&err, SFP_EFORMAT, "case %d", 4), SFP_EFORMAT);
    assert_string_equal(err.message, "case 4: line 3: no number");
    assert_int_equal(err.status, SFP_EFORMAT);
}

TEST(out_of_memory_reports_the_requested_size)
{
    sfp__mem_fail_at(0);
    assert_null(sfp__malloc(12345));
    assert_int_equal(sfp__fail_nomem(&err), SFP_ENOMEM);
    assert_int_equal(err.status, SFP_ENOMEM);
    assert_non_null(strstr(err.message, "12345"));
}
