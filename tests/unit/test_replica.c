/* Every replica opens with its own source, and every picture of it decodes. */
#include "io/image.h"
#include "source_files.h"
#include "stream/replica.h"

static const sfp_replica_options small = {.each = 1, .size = 16, .seed = 3};

static uint64_t make(const char *kind, const char *name, const sfp_replica_options *opt)
{
    uint64_t files = 0;
    sfp_error err = {0};
    if (sfp__replica_make(kind, in_folder(name), opt, &files, &err) != SFP_OK)
        fail_msg("%s: %s", kind, err.message);
    return files;
}

/* "folder:" and "" around the path; "manifest:/manifest.csv" has both. */
static sfp_source *open_replica(const sfp_replica_kind *kind, const char *name, bool test)
{
    char spec[4700];
    const char *colon = strchr(kind->data, ':');
    sfp_source *s = NULL;
    sfp_error err = {0};
    (void)snprintf(spec, sizeof spec, "%.*s%s%s", (int)(colon - kind->data + 1), kind->data, in_folder(name), colon + 1);
    if (sfp__source_open(spec, &(sfp_source_options){.test = test}, &s, &err) != SFP_OK)
        fail_msg("%s: %s", spec, err.message);
    return s;
}

static void check_pictures(const sfp_source *s)
{
    sfp_error err = {0};
    for (int64_t i = 0; i < s->count; i += 1 + s->count / 50) {
        sfp_picture p = {0};
        sfp_image im = {0};
        sfp_record r = record_of(s, i);
        assert_true(r.label >= 0 && r.label < s->classes);
        if (s->load(s, i, &p, &err) != SFP_OK)
            fail_msg("%s", err.message);
        if (p.kind == SFP_PICTURE_ENCODED) {
            if (sfp__image_decode("picture", p.bytes, p.size, NULL, &im, &err) != SFP_OK)
                fail_msg("%s", err.message);
            assert_int_equal(im.width, small.size);
            sfp__image_done(&im);
        } else {
            assert_true(p.width >= 28);
        }
        sfp__picture_done(&p);
    }
}

static void every_kind_opens_and_decodes(void **unused)
{
    (void)unused;
    static const struct {
        const char *name;
        int64_t train, test; /* 0: has no test part of its own */
        int classes, domains;
    } expected[] = {
        {"stream51", 102, 51, 51, 0}, {"core50", 400, 150, 50, 0}, {"clear10", 110, 110, 11, 0}, {"clear100", 1000, 1000, 100, 0},
        {"folder", 10, 0, 10, 0},     {"domain", 30, 0, 10, 3},    {"manifest", 10, 0, 10, 0},   {"idx", 10, 10, 10, 0},
        {"cifar", 50, 10, 10, 0},     {"tar", 20, 0, 10, 0},
    };
    for (int i = 0; sfp__replica_kind(i); i++) {
        const sfp_replica_kind *kind = sfp__replica_kind(i);
        assert_string_equal(kind->name, expected[i].name);
        assert_true(make(kind->name, kind->name, &small) > 0);
        for (int test = 0; test < (expected[i].test ? 2 : 1); test++) {
            sfp_source *s = open_replica(kind, kind->name, test);
            assert_int_equal(s->count, test ? expected[i].test : expected[i].train);
            assert_int_equal(s->classes, expected[i].classes);
            assert_int_equal(s->domains, expected[i].domains);
            check_pictures(s);
            sfp__source_close(s);
        }
    }
    assert_null(sfp__replica_kind(10));
    assert_null(sfp__replica_kind(-1));
}

static void the_same_seed_gives_the_same_files(void **unused)
{
    (void)unused;
    make("folder", "a", &small);
    make("folder", "b", &small);
    make("folder", "c", &(sfp_replica_options){.each = 1, .size = 16, .seed = 4});
    sfp_picture p = {0}, q = {0}, r = {0};
    assert_int_equal(sfp__picture_read(in_folder("a/star/0000.jpg"), &p, NULL), SFP_OK);
    assert_int_equal(sfp__picture_read(in_folder("b/star/0000.jpg"), &q, NULL), SFP_OK);
    assert_int_equal(sfp__picture_read(in_folder("c/star/0000.jpg"), &r, NULL), SFP_OK);
    assert_int_equal(p.size, q.size);
    assert_memory_equal(p.bytes, q.bytes, p.size);
    assert_true(r.size != p.size || memcmp(r.bytes, p.bytes, p.size) != 0);
    sfp__picture_done(&p);
    sfp__picture_done(&q);
    sfp__picture_done(&r);
}

static void nothing_is_overwritten(void **unused)
{
    (void)unused;
    sfp_error err = {0};
    put_text("full/x", "precious");
    put_text("file", "x");
    assert_int_equal(sfp__replica_make("folder", in_folder("full"), &small, NULL, &err), SFP_EINVAL);
    assert_non_null(strstr(err.message, "is not empty"));
    assert_int_equal(sfp__replica_make("folder", in_folder("file"), &small, NULL, &err), SFP_EIO);
    assert_int_equal(sfp__replica_make("floder", in_folder("new"), &small, NULL, &err), SFP_EINVAL);
    assert_non_null(strstr(err.message, "'floder': expected one of stream51, core50"));
    assert_int_equal(sfp__replica_make("folder", in_folder("new"), &(sfp_replica_options){.each = 0, .size = 16}, NULL, &err),
                     SFP_EINVAL);
    assert_int_equal(access(in_folder("new"), F_OK), -1);
}

/* Into a folder that was never there: a failed one leaves what it had made. */
static sfp_status make_somewhere(const char *kind, sfp_error *err)
{
    static int turn;
    char name[32];
    (void)snprintf(name, sizeof name, "t%d", turn++);
    return sfp__replica_make(kind, in_folder(name), &small, NULL, err);
}

static void a_failed_allocation_is_told(void **unused)
{
    (void)unused;
    static const char *const kinds[] = {"manifest", "tar", "idx"};
    for (size_t i = 0; i < 3; i++)
        assert_true(FAIL_EACH_ALLOCATION(make_somewhere(kinds[i], told), true) > 5);
}

#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(every_kind_opens_and_decodes),
        IN_FOLDER(the_same_seed_gives_the_same_files),
        IN_FOLDER(nothing_is_overwritten),
        IN_FOLDER(a_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
