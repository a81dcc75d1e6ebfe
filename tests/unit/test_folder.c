/* The folder that a run writes into: who holds it, what is in it, and what of it goes. */
#include "io/folder.h"

#include <signal.h>
#include <sys/wait.h>

#include "temp_folder.h"
#include "test.h"

AROUND_EACH(make_folder, remove_folder)

enum { UNTOUCHED = 77 };

static void check_refused(const char *path, sfp_status status, const char *message)
{
    int lock = UNTOUCHED;
    const char *const none[] = {"none"};
    assert_int_equal(sfp__folder_lock(path, &lock, &err), status);
    assert_int_equal(lock, UNTOUCHED);
    assert_memory_equal(err.message, path, strlen(path));
    if (!strstr(err.message, message))
        fail_msg("'%s', expected '%s'", err.message, message);
    err = (sfp_error){0};
    REFUSED(sfp__folder_remove(path, 1, none, 0, NULL, &err), status, message);
    assert_false(sfp__folder_has(path, "none"));
}

static int take(const char *path)
{
    int lock = -1;
    MUST(sfp__folder_lock(path, &lock, &err));
    return lock;
}

static void check_taken(const char *path)
{
    int lock = UNTOUCHED;
    assert_int_equal(sfp__folder_lock(path, &lock, &err), SFP_EINVAL);
    assert_int_equal(lock, UNTOUCHED);
    assert_memory_equal(err.message, path, strlen(path));
    assert_string_equal(err.message + strlen(path), ": another run is writing there");
}

/* Root may do everything: for a moment it is somebody else. */
static void as_anybody(void (*what)(void))
{
    bool root = geteuid() == 0;
    assert_int_equal(chmod(folder, 0777), 0);
    if (root)
        assert_int_equal(seteuid(65534), 0);
    what();
    if (root)
        assert_int_equal(seteuid(0), 0);
}

/* -------------------------------------------------------------------- lock */

TEST(one_at_a_time_holds_it)
{
    int lock = take(folder);
    check_taken(folder);
    char roundabout[96];
    (void)snprintf(roundabout, sizeof roundabout, "%s/.", folder);
    check_taken(roundabout);
    sfp__folder_unlock(lock);
    lock = take(folder);
    assert_int_equal(symlink(folder, in_folder("link")), 0);
    check_taken(in_folder("link"));
    assert_int_equal(mkdir(in_folder("inside"), 0777), 0);
    sfp__folder_unlock(take(in_folder("inside"))); /* another folder, another lock */
    sfp__folder_unlock(lock);
    sfp__folder_unlock(take(in_folder("link")));
    sfp__folder_unlock(-1);
}

TEST(a_lock_leaves_nothing_in_the_folder)
{
    int lock = take(folder);
    assert_int_equal(rmdir(folder), 0); /* it is empty */
    sfp__folder_unlock(lock);
    assert_int_equal(mkdir(folder, 0700), 0);
}

TEST(a_process_that_is_killed_lets_go)
{
    int ready[2];
    char one = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int lock;
        bool taken = sfp__folder_lock(folder, &lock, NULL) == SFP_OK;
        if (!taken || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            (void)pause();
    }
    (void)close(ready[1]);
    ssize_t got = read(ready[0], &one, 1); /* 0: it ended without the lock */
    int lock = UNTOUCHED;
    sfp_status held = sfp__folder_lock(folder, &lock, NULL);
    (void)kill(child, SIGKILL); /* before anything is checked: it would never end */
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(got, 1);
    assert_int_equal(held, SFP_EINVAL);
    sfp__folder_unlock(take(folder));
    (void)close(ready[0]);
}

TEST(what_is_no_folder_is_refused)
{
    put_text("file", "x");
    check_refused(in_folder("file"), SFP_EINVAL, "is a file, expected a folder");
    check_refused(in_folder("file/below"), SFP_ENOTFOUND, "cannot open the folder");
    check_refused(in_folder("nothing"), SFP_ENOTFOUND, "cannot open the folder");
    assert_int_equal(symlink("file", in_folder("to-file")), 0);
    check_refused(in_folder("to-file"), SFP_EINVAL, "is a file, expected a folder");
    assert_int_equal(symlink("nothing", in_folder("to-nothing")), 0);
    check_refused(in_folder("to-nothing"), SFP_ENOTFOUND, "cannot open the folder");
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0); /* must not wait for a writer */
    check_refused(in_folder("pipe"), SFP_EINVAL, "is a file, expected a folder");
    assert_true(sfp__folder_has(folder, "file"));
}

static void refuse_closed(void)
{
    check_refused(in_folder("closed"), SFP_EIO, "cannot open the folder");
}

TEST(a_closed_folder_is_refused)
{
    assert_int_equal(mkdir(in_folder("closed"), 0), 0);
    as_anybody(refuse_closed);
}

/* --------------------------------------------------------------- what is there */

TEST(everything_of_that_name_is_there)
{
    put_text("file", "");
    assert_int_equal(mkdir(in_folder("inside"), 0777), 0);
    assert_int_equal(symlink("nothing", in_folder("dangling")), 0);
    assert_true(sfp__folder_has(folder, "file"));
    assert_true(sfp__folder_has(folder, "inside"));
    assert_true(sfp__folder_has(folder, "dangling"));
    assert_false(sfp__folder_has(folder, "nothing"));
    assert_false(sfp__folder_has(folder, "fil"));
}

/* -------------------------------------------------------------- what goes */

static sfp_status remove_names(const char *const *names, size_t count, sfp_error *why)
{
    return sfp__folder_remove(folder, count, names, 0, NULL, why);
}

static void check_there(const char *const *names, size_t count, bool there)
{
    for (size_t i = 0; i < count; i++)
        if (sfp__folder_has(folder, names[i]) != there)
            fail_msg("'%s' %s", names[i], there ? "is gone" : "is still there");
}

TEST(only_files_of_the_names_go)
{
    const char *const names[] = {"checkpoint", "state-#.bin", "log.#", "#", "part-#.tmp.#", "absent"};
    const char *const ours[] = {"checkpoint", "state-0.bin", "state-0123456789.bin", "log.1", "log.20", "42", "part-1.tmp.23"};
    const char *const others[] = {"checkpoint.bak", "checkpoin",  "Checkpoint",   "state-.bin",  "state-1b.bin", "state--1.bin",
                                  "state-1.bin.x",  "state-1.bi", "xstate-1.bin", "log",         "log.",         "log.1.gz",
                                  "log.1x",         "4 2",        ".42",          "part-1.tmp.", "part-.tmp.1",  "part-1.tmp.2x"};
    enum { NAMES = sizeof names / sizeof *names, OURS = sizeof ours / sizeof *ours, OTHERS = sizeof others / sizeof *others };
    for (int i = 0; i < OURS; i++)
        put_text(ours[i], "ours");
    for (int i = 0; i < OTHERS; i++)
        put_text(others[i], "theirs");
    put_text("inside/checkpoint", "theirs"); /* nothing below is looked at */
    MUST(remove_names(names, NAMES, NULL));
    check_there(ours, OURS, false);
    check_there(others, OTHERS, true);
    assert_int_equal(access(in_folder("inside/checkpoint"), F_OK), 0);
    MUST(remove_names(names, NAMES, NULL)); /* nothing of ours: nothing to do */
    MUST(remove_names(NULL, 0, NULL));
    check_there(others, OTHERS, true);
}

TEST(a_link_goes_and_what_it_points_to_stays)
{
    const char *const names[] = {"checkpoint", "log.#"}, *const targets[] = {"precious", "inside"};
    put_text("precious", "x");
    put_text("inside/x", "x");
    assert_int_equal(symlink("precious", in_folder("checkpoint")), 0);
    assert_int_equal(symlink("inside", in_folder("log.1")), 0);
    assert_int_equal(symlink("nothing", in_folder("log.2")), 0);
    MUST(remove_names(names, 2, NULL));
    check_there((const char *const[]){"checkpoint", "log.1", "log.2"}, 3, false);
    check_there(targets, 2, true);
    assert_int_equal(access(in_folder("inside/x"), F_OK), 0);
}

TEST(what_is_kept_stays_by_whatever_path)
{
    const char *const names[] = {"state-#"};
    const char *const stay[] = {"state-1", "state-2", "state-3"}, *const go[] = {"state-4", "state-5"};
    char roundabout[96], elsewhere[96];
    put_text("state-1", "kept");
    assert_int_equal(link(in_folder("state-1"), in_folder("state-2")), 0); /* the same file */
    assert_int_equal(symlink("state-1", in_folder("state-3")), 0);
    put_text("state-4", "kept"); /* only the same bytes */
    assert_int_equal(symlink("state-4", in_folder("state-5")), 0);
    (void)snprintf(roundabout, sizeof roundabout, "%s/../%s/state-1", folder, strrchr(folder, '/') + 1);
    (void)snprintf(elsewhere, sizeof elsewhere, "%s/state-9", folder); /* is not there */
    const char *const keep[] = {NULL, elsewhere, roundabout};
    MUST(sfp__folder_remove(folder, 1, names, 3, keep, NULL));
    check_there(stay, 3, true);
    check_there(go, 2, false);
}

TEST(what_cannot_go_is_named_and_ends_it)
{
    const char *const names[] = {"first", "second", "third"};
    put_text("first", "");
    put_text("second/x", ""); /* a folder is no file of ours */
    put_text("third", "");
    REFUSED(remove_names(names, 3, &err), SFP_EIO, in_folder("second: cannot remove: "));
    check_there(names, 1, false); /* in their order: what stands before is gone, what stands behind is not */
    check_there(names + 1, 2, true);
    assert_int_equal(access(in_folder("second/x"), F_OK), 0);
}

static void remove_in_vain(void)
{
    const char *const ours[] = {"ours"}, *const absent[] = {"absent"};
    const char *inside = in_folder("inside");
    REFUSED(sfp__folder_remove(inside, 1, ours, 0, NULL, &err), SFP_EIO, "inside/ours: cannot remove: Permission denied");
    assert_true(sfp__folder_has(inside, "ours"));
    MUST(sfp__folder_remove(inside, 1, absent, 0, NULL, NULL));
    sfp__folder_unlock(take(inside)); /* reading is enough for a lock */
}

TEST(an_unwritable_folder_keeps_its_files)
{
    put_text("inside/ours", "");
    assert_int_equal(chmod(in_folder("inside"), 0555), 0);
    as_anybody(remove_in_vain);
    assert_int_equal(chmod(in_folder("inside"), 0755), 0);
}

TEST(parents_are_made_and_go_again)
{
    int made = UNTOUCHED;
    MUST(sfp__folder_make(in_folder("a"), &made, &err));
    assert_int_equal(made, 1);
    MUST(sfp__folder_make(in_folder("a//b/c/"), &made, &err));
    assert_int_equal(made, 2);
    assert_true(is_there("a/b/c"));
    MUST(sfp__folder_make(in_folder("a/b/c"), &made, &err));
    assert_int_equal(made, 0);
    sfp__folder_unmake(in_folder("a/b/c"), 0);
    assert_true(is_there("a/b/c"));
    sfp__folder_unmake(in_folder("a//b/c/"), 2); /* a was there before */
    assert_false(is_there("a/b"));
    assert_true(is_there("a"));
    MUST(sfp__folder_make(in_folder("a/d/e"), &made, &err));
    put_text("a/d/kept", "x");
    sfp__folder_unmake(in_folder("a/d/e"), made);
    assert_false(is_there("a/d/e"));
    assert_true(is_there("a/d/kept"));
}

TEST(the_folders_of_a_file_are_made)
{
    MUST(sfp__folder_make_for(in_folder("a/b//file"), &err));
    assert_true(is_there("a/b"));
    assert_false(is_there("a/b/file"));
    MUST(sfp__folder_make_for(in_folder("a/b/file"), &err));
    MUST(sfp__folder_make_for("file", &err)); /* here, and at the top: nothing to make */
    MUST(sfp__folder_make_for("/file", &err));
    put_text("plain", "x");
    REFUSED(sfp__folder_make_for(in_folder("plain/c/file"), &err), SFP_EIO, "plain/c: cannot make the directory");
    sfp__mem_fail_at(0);
    sfp_status s = sfp__folder_make_for(in_folder("c/file"), &err);
    sfp__mem_fail_at(-1);
    assert_int_equal(s, SFP_ENOMEM);
    assert_false(is_there("c"));
}

TEST(what_cannot_be_made_leaves_nothing)
{
    char name[300];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    put_text("file", "x");
    const char *const bad[] = {"", in_folder("file/below"), in_folder(name)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int made = UNTOUCHED;
        assert_int_equal(sfp__folder_make(bad[i], &made, &err), SFP_EIO);
        assert_int_equal(made, UNTOUCHED);
        assert_non_null(strstr(err.message, "cannot make the directory"));
    }
}
