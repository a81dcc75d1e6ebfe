/* Checkpoints of programs that did not know a setting yet: they did as its default says, and so they are resumed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "learner_world.h"
#include "model/vit.h"

#include <zlib.h>

/* The checkpoint "c" without the metadata `key`: blanks stand in its place, and the checksum is made anew. */
static void forget(const char *key)
{
    bytes b = slurp(PATH("c"));
    char start[64];
    size_t n = (size_t)snprintf(start, sizeof start, "\"setting.%s\":\"", key);
    uint8_t *at = memmem(b.p, b.n, start, n);
    if (!at)
        fail_msg("no %s", start);
    uint8_t *end = memchr(at + n, '"', b.n - (size_t)(at + n - b.p));
    assert_non_null(end);
    assert_int_equal(end[1], ',');
    memset(at, ' ', (size_t)(end + 2 - at));
    uint32_t sum = (uint32_t)crc32_z(0, b.p, b.n - sizeof sum);
    memcpy(b.p + b.n - sizeof sum, &sum, sizeof sum);
    spill(PATH("c"), b.p, b.n);
    sfp__free(b.p);
}

static sfp_status resume(sfp_learner *l, sfp_error *err)
{
    char *position = NULL;
    bool old;
    sfp_status s = sfp__learner_resume(l, PATH("c"), &position, &old, err);
    sfp__free(position);
    return s;
}

static sfp_learner *with_checkpoint(const sfp_learner_options *o)
{
    sfp_learner *l = make_learner(o);
    feed(l, 0, 3, 0);
    MUST(sfp__learner_checkpoint(l, PATH("c"), "here", err));
    return l;
}

static void a_setting_that_is_missing_was_the_default(void **unused)
{
    (void)unused;
    static const char *const missing[] = {"pool-kind", "prefix", "attune-residual", "lr", "sigma", "ortho-mu", "drop-rule"};
    sfp_learner_options o = small_options();
    sfp_learner *a = with_checkpoint(&o), *b = make_learner(&o);
    sfp_error err = {0};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        forget(missing[i]);
    if (resume(b, &err))
        fail_msg("%s", err.message);
    feed(a, 3, 5, 0);
    feed(b, 3, 5, 0);
    bytes x = image_of(a), y = image_of(b);
    assert_same_bytes(x, y, "going on from an older checkpoint");
    sfp__free(x.p);
    sfp__free(y.p);
    sfp__learner_free(a);
    sfp__learner_free(b);
    remove_files();
}

static void another_value_than_the_default_is_told(void **unused)
{
    (void)unused;
    sfp_learner_options o = small_options();
    o.fp.prefix = SFP_PREFIX_RAW;
    sfp_learner *l = with_checkpoint(&o);
    bytes before = image_of(l);
    sfp_error err = {0};
    forget("prefix");
    assert_int_equal(resume(l, &err), SFP_EINVAL);
    assert_non_null(strstr(err.message, "/c: was made with prefix projected, now it is raw"));
    bytes after = image_of(l);
    assert_same_bytes(before, after, "a learner that was refused");
    sfp__free(before.p);
    sfp__free(after.p);
    sfp__learner_free(l);
    remove_files();
}

static void what_is_no_option_must_be_there(void **unused)
{
    (void)unused;
    sfp_learner_options o = small_options();
    sfp_learner *l = with_checkpoint(&o);
    sfp_error err = {0};
    forget("backbone");
    assert_int_equal(resume(l, &err), SFP_EFORMAT);
    assert_non_null(strstr(err.message, "/c: metadata 'setting.backbone' is missing"));
    sfp__learner_free(l);
    remove_files();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_setting_that_is_missing_was_the_default),
        cmocka_unit_test(another_value_than_the_default_is_told),
        cmocka_unit_test(what_is_no_option_must_be_there),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
