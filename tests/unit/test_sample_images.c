/* Submissions and their images in the store of samples: what a call that fails leaves, and what files that do not fit each other hold.
 * tests/api/test_submit.c has submissions to a run. */
#include <math.h>
#include <unistd.h>

#include "sample_rows.h"

AROUND_EACH(make_directory, remove_directory)

static sfp__store *open_with_images(void)
{
    sfp__store *s = open_store();
    MUST(sfp__store_open_images(s, 1000, &err));
    return s;
}

/* The bytes of the image are its text. */
static sfp__submission submission_of(const char *text)
{
    return (sfp__submission){.bytes = text, .size = strlen(text), .probability = NAN, .unknown = NAN};
}

static uint64_t submit(sfp__store *s, sfp__submission in)
{
    uint64_t id = UINT64_MAX;
    bool repeated = true;
    MUST(sfp__store_submit(s, &in, &id, &repeated, &err));
    assert_false(repeated);
    return id;
}

/* text NULL: no image is kept. */
static void check_image(sfp__store *s, uint64_t id, const char *text)
{
    OWNED uint8_t *bytes = NULL;
    size_t size = 0;
    bool has = !text;
    MUST(sfp__store_has_image(s, id, &has, &err));
    assert_int_equal(has, text != NULL);
    if (!text) {
        REFUSED(sfp__store_image(s, id, &bytes, &size, &err), SFP_ENOTFOUND, "the image of sample");
        return;
    }
    MUST(sfp__store_image(s, id, &bytes, &size, &err));
    assert_int_equal(size, strlen(text));
    assert_memory_equal(bytes, text, size);
}

TEST(a_submission_that_fails_leaves_nothing)
{
    static const char *const triggers[] = {"BEFORE INSERT ON submission", "BEFORE UPDATE ON sample", "BEFORE INSERT ON sample"};
    for (size_t i = 0; i < sizeof triggers / sizeof *triggers; i++) {
        KEPT_IN_BLOCK;
        const char *key = kept_print("key %zu", i);
        sfp__submission in = submission_of("new");
        in.key = key;
        in.label = in.class_name = "cat";
        in.predicted = true;
        sfp__store *s = open_with_images();
        uint64_t before = submit(s, submission_of("before")), id = before;
        bool repeated;
        MUST(sfp__store_commit(s, &err));
        run_sql(kept_print("CREATE TRIGGER no %s BEGIN SELECT RAISE(ABORT, 'not today'); END", triggers[i]));
        REFUSED(sfp__store_submit(s, &in, &id, &repeated, &err), SFP_EIO, "not today");
        assert_int_equal(id, before);
        check_counts(s);
        check_image(s, before, "before");
        check_image(s, before + 1, NULL);
        run_sql("DROP TRIGGER no");
        assert_int_equal(submit(s, in), before + 1); /* the key is new */
        check_row(s, before + 1, kept_print("waiting #%d cat -", (int)before + 1));
        check_image(s, before + 1, "new");
        close_checked(s);
    }
}

TEST(an_image_for_which_there_is_no_space_removes_no_other)
{
    static char large[951];
    memset(large, 'x', sizeof large - 1);
    sfp__store *s = open_with_images();
    sfp__submission known = submission_of("answered"), in = submission_of(large);
    known.predicted = true;
    uint64_t answered = submit(s, known), waits = submit(s, submission_of(large + 850)), id;
    bool repeated;
    REFUSED(sfp__store_submit(s, &in, &id, &repeated, &err), SFP_ELIMIT, "expected at most 1000");
    MUST(sfp__store_keep_image(s, 77, large, sizeof large - 1, &err));
    check_image(s, answered, "answered");
    check_image(s, waits, large + 850);
    check_image(s, 77, NULL);
    check_row(s, answered, "waiting #0 - -");
    close_checked(s);
}

TEST(the_images_of_a_sample_that_is_not_in_the_store_are_removed)
{
    sfp__store *s = open_with_images();
    uint64_t a = submit(s, submission_of("a")), b = submit(s, submission_of("b")), c = submit(s, submission_of("c"));
    sfp__store_close(s);
    run_sql(
        kept_print("DELETE FROM sample WHERE id = %d; UPDATE sample SET standing = 4, name = NULL, digest = NULL WHERE id = %d",
                   (int)c, (int)a));
    s = open_with_images();
    check_image(s, a, NULL);
    check_image(s, b, "b");
    assert_int_equal(add(s, "other", NULL), c); /* a file that is watched */
    MUST(sfp__store_keep_image(s, c, "its own", 7, &err));
    check_image(s, c, "its own");
    sfp__store_close(s);
}

TEST(a_submission_whose_image_was_lost_gets_it_again)
{
    sfp__store *s = open_with_images();
    sfp__submission in = submission_of("a");
    uint64_t id;
    bool repeated = false;
    in.key = "key";
    id = submit(s, in);
    sfp__store_close(s);
    assert_int_equal(unlink(in_directory(SFP__IMAGES_NAME)), 0);
    s = open_with_images();
    check_image(s, id, NULL);
    refuse(s, id, SFP__UNREADABLE);
    MUST(sfp__store_submit(s, &in, &id, &repeated, &err));
    assert_true(repeated);
    check_image(s, id, "a");
    check_row(s, id, "waiting #0 - -");
    close_checked(s);
}

TEST(a_rename_that_fails_changes_no_label)
{
    sfp__store *s = open_store();
    uint64_t a = add(s, "a", "cat");
    MUST(sfp__store_add_class(s, "cat", &err));
    MUST(sfp__store_commit(s, &err));
    run_sql("CREATE TRIGGER no BEFORE UPDATE ON added_class BEGIN SELECT RAISE(ABORT, 'not today'); END");
    REFUSED(sfp__store_rename_class(s, "cat", "dog", &err), SFP_EIO, "not today");
    check_row(s, a, "waiting a cat -");
    assert_int_equal(sfp__store_redeliveries(s), 0);
    close_checked(s);
}

TEST(a_forgotten_sample_stays_forgotten)
{
    static const sfp__file_stamp stamp = {1, 2, 3};
    sfp__store *s = open_store();
    uint64_t a = add(s, "a", NULL);
    MUST(sfp__store_erase(s, 1, &a, NULL, &err));
    label(s, a, "cat");
    refuse(s, a, SFP__DROPPED);
    predict(s, a);
    MUST(sfp__store_moved(s, a, "b", &stamp, "cat", &err));
    MUST(sfp__store_add_name(s, a, "c", "cat", &err));
    check_row(s, a, "forgotten - - -");
    check_counts(s);
    sqlite3 *db = open_database();
    assert_int_equal(count_rows(db, "other_name"), 0);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    sfp__store_close(s);
}

TEST(nothing_is_changed_after_a_transaction_was_lost)
{
    sfp__store *s = open_with_images();
    sfp__submission in = submission_of("a");
    uint64_t a = add(s, "a", "cat"), id;
    bool repeated;
    MUST(sfp__store_commit(s, &err));
    run_sql("CREATE TRIGGER no BEFORE INSERT ON line BEGIN SELECT RAISE(ROLLBACK, 'not today'); END");
    learn(s, a, "cat"); /* lost with the rest of the transaction */
    REFUSED(sfp__store_set_line(s, "a", "cat", &repeated, &err), SFP_EIO, "not today");
    REFUSED(sfp__store_commit(s, &err), SFP_EIO, "the disk does not keep what is written");
    REFUSED(sfp__store_submit(s, &in, &id, &repeated, &err), SFP_EIO, "the disk does not keep what is written");
    REFUSED(sfp__store_sync(s, &err), SFP_EIO, "the disk does not keep what is written");
    reopen(&s);
    check_row(s, a, "waiting a cat -");
    close_checked(s);
}
