/* The output directory of a run: its lock, its files, and the removal of files and of created directories. */
#include "io/directory.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/wait.h>

#include "temp_directory.h"
#include "test.h"

AROUND_EACH(make_directory, remove_directory)

enum { UNTOUCHED = 77 };

static bool contains(const char *path, const char *name)
{
    bool has;
    MUST(sfp__directory_has(path, name, &has, &err));
    return has;
}

static void check_refused(const char *path, sfp_status status, const char *message)
{
    int lock = UNTOUCHED;
    assert_int_equal(sfp__directory_lock(path, &lock, &err), status);
    assert_int_equal(lock, UNTOUCHED);
    assert_memory_equal(err.message, path, strlen(path));
    HOLDS(err.message, message);
    REFUSED(sfp__directory_remove_files(path, 1, STRINGS("none"), 0, NULL, &err), status, message);
    bool has = true;
    assert_int_equal(sfp__directory_has(path, "none", &has, &err), status == SFP_EIO ? SFP_EIO : SFP_OK);
    assert_false(has);
}

static int take(const char *path)
{
    int lock = -1;
    MUST(sfp__directory_lock(path, &lock, &err));
    return lock;
}

static void check_taken(const char *path)
{
    int lock = UNTOUCHED;
    assert_int_equal(sfp__directory_lock(path, &lock, &err), SFP_EINVAL);
    assert_int_equal(lock, UNTOUCHED);
    assert_memory_equal(err.message, path, strlen(path));
    assert_string_equal(err.message + strlen(path), ": directory is in use by another run");
}

/* Root may do everything: runs `action` as another user. */
static void as_other_user(void (*action)(void))
{
    bool root = geteuid() == 0;
    assert_int_equal(chmod(directory, 0777), 0);
    if (root)
        assert_int_equal(seteuid(65534), 0);
    action();
    if (root)
        assert_int_equal(seteuid(0), 0);
}

/* -------------------------------------------------------------------- lock */

TEST(only_one_process_holds_the_lock)
{
    int lock = take(directory);
    check_taken(directory);
    check_taken(in_directory("."));
    sfp__directory_unlock(lock);
    lock = take(directory);
    assert_int_equal(symlink(directory, in_directory("link")), 0);
    check_taken(in_directory("link"));
    assert_int_equal(mkdir(in_directory("inside"), 0777), 0);
    sfp__directory_unlock(take(in_directory("inside"))); /* another directory has another lock */
    sfp__directory_unlock(lock);
    sfp__directory_unlock(take(in_directory("link")));
    sfp__directory_unlock(-1);
}

TEST(a_lock_leaves_no_file_in_the_directory)
{
    int lock = take(directory);
    assert_int_equal(rmdir(directory), 0); /* the directory is empty */
    sfp__directory_unlock(lock);
    assert_int_equal(mkdir(directory, 0700), 0);
}

TEST(a_killed_process_releases_its_lock)
{
    int ready[2];
    char one = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int lock;
        bool taken = sfp__directory_lock(directory, &lock, NULL) == SFP_OK;
        if (!taken || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            (void)pause();
    }
    (void)close(ready[1]);
    ssize_t got = read(ready[0], &one, 1); /* 0: the child ended without the lock */
    int lock = UNTOUCHED;
    sfp_status held = sfp__directory_lock(directory, &lock, NULL);
    (void)kill(child, SIGKILL); /* before any check: a failed check would leave the child running */
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(got, 1);
    assert_int_equal(held, SFP_EINVAL);
    sfp__directory_unlock(take(directory));
    (void)close(ready[0]);
}

/* Takes the directory many times, uses it and leaves it empty; returns the number of the check that fails. */
static int take_often(const char *path)
{
    sfp_error why;
    char file[PATH_MAX];
    (void)snprintf(file, sizeof file, "%s/file", path);
    for (int i = 0; i < 4000; i++) {
        int made = 0, lock = -1, fd;
        sfp_status status = sfp__directory_take(path, &made, &lock, &why);
        if (status && !strstr(why.message, "directory is in use by another run"))
            return 1;
        if (status)
            continue;
        if ((fd = open(file, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600)) < 0)
            return 2;
        (void)close(fd);
        if (unlink(file) != 0)
            return 3;
        sfp__directory_leave(path, made, lock);
    }
    return 0;
}

/* The one that lost removed the new directory of the other. */
TEST(a_directory_that_several_processes_create_belongs_to_one)
{
    const char *path = in_directory("new/output");
    pid_t child[3];
    int status, begin[2];
    char none;
    assert_int_equal(pipe(begin), 0);
    for (int i = 0; i < 3; i++)
        if ((child[i] = fork()) == 0) {
            (void)close(begin[1]);
            _exit(read(begin[0], &none, 1) != 0 ? 4 : take_often(path));
        }
    (void)close(begin[1]); /* they begin together */
    (void)close(begin[0]);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_int_equal(status, 0);
    }
}

TEST(a_path_that_is_not_a_directory_is_refused)
{
    put_text("file", "x");
    check_refused(in_directory("file"), SFP_EINVAL, "not a directory");
    check_refused(in_directory("file/below"), SFP_ENOTFOUND, "cannot open the directory");
    check_refused(in_directory("nothing"), SFP_ENOTFOUND, "cannot open the directory");
    assert_int_equal(symlink("file", in_directory("to-file")), 0);
    check_refused(in_directory("to-file"), SFP_EINVAL, "not a directory");
    assert_int_equal(symlink("nothing", in_directory("to-nothing")), 0);
    check_refused(in_directory("to-nothing"), SFP_ENOTFOUND, "cannot open the directory");
    assert_int_equal(mkfifo(in_directory("pipe"), 0600), 0); /* opening it must not wait for a writer */
    check_refused(in_directory("pipe"), SFP_EINVAL, "not a directory");
    assert_true(contains(directory, "file"));
}

static void refuse_closed(void)
{
    check_refused(in_directory("closed"), SFP_EIO, "cannot open the directory");
}

TEST(an_unreadable_directory_is_refused)
{
    assert_int_equal(mkdir(in_directory("closed"), 0), 0);
    as_other_user(refuse_closed);
}

/* --------------------------------------------------------------- existing files */

TEST(files_directories_and_links_are_found_by_name)
{
    put_text("file", "");
    assert_int_equal(mkdir(in_directory("inside"), 0777), 0);
    assert_int_equal(symlink("nothing", in_directory("dangling")), 0);
    assert_true(contains(directory, "file"));
    assert_true(contains(directory, "inside"));
    assert_true(contains(directory, "dangling"));
    assert_false(contains(directory, "nothing"));
    assert_false(contains(directory, "fil"));
}

/* -------------------------------------------------------------- removal */

static sfp_status remove_names(const char *const *names, sfp_error *why)
{
    size_t count = 0;
    while (names[count])
        count++;
    return sfp__directory_remove_files(directory, count, names, 0, NULL, why);
}

static void check_existence(bool there, const char *const *names)
{
    for (; *names; names++)
        if (contains(directory, *names) != there)
            fail_msg("'%s' %s", *names, there ? "does not exist" : "still exists");
}

TEST(only_files_that_match_are_removed)
{
    const char *const *names = STRINGS("checkpoint", "state-#.bin", "log.#", "#", "part-#.tmp.#", "absent");
    const char *const *ours =
        STRINGS("checkpoint", "state-0.bin", "state-0123456789.bin", "log.1", "log.20", "42", "part-1.tmp.23");
    const char *const *others = STRINGS("checkpoint.bak", "checkpoin", "Checkpoint", "state-.bin", "state-1b.bin", "state--1.bin",
                                        "state-1.bin.x", "state-1.bi", "xstate-1.bin", "log", "log.", "log.1.gz", "log.1x", "4 2",
                                        ".42", "part-1.tmp.", "part-.tmp.1", "part-1.tmp.2x");
    for (const char *const *name = ours; *name; name++)
        put_text(*name, "ours");
    for (const char *const *name = others; *name; name++)
        put_text(*name, "theirs");
    put_text("inside/checkpoint", "theirs"); /* subdirectories are not searched */
    MUST(remove_names(names, NULL));
    check_existence(false, ours);
    check_existence(true, others);
    assert_true(file_exists("inside/checkpoint"));
    MUST(remove_names(names, NULL)); /* no file is left to remove */
    MUST(sfp__directory_remove_files(directory, 0, NULL, 0, NULL, NULL));
    check_existence(true, others);
}

TEST(a_link_is_removed_but_not_its_target)
{
    put_text("precious", "x");
    put_text("inside/x", "x");
    assert_int_equal(symlink("precious", in_directory("checkpoint")), 0);
    assert_int_equal(symlink("inside", in_directory("log.1")), 0);
    assert_int_equal(symlink("nothing", in_directory("log.2")), 0);
    MUST(remove_names(STRINGS("checkpoint", "log.#"), NULL));
    check_existence(false, STRINGS("checkpoint", "log.1", "log.2"));
    check_existence(true, STRINGS("precious", "inside"));
    assert_true(file_exists("inside/x"));
}

TEST(a_kept_file_stays_under_every_path)
{
    put_text("state-1", "kept");
    assert_int_equal(link(in_directory("state-1"), in_directory("state-2")), 0); /* a hard link to the same file */
    assert_int_equal(symlink("state-1", in_directory("state-3")), 0);
    put_text("state-4", "kept"); /* another file with the same contents */
    assert_int_equal(symlink("state-4", in_directory("state-5")), 0);
    const char *const keep[] = {NULL, in_directory("state-9"), /* does not exist */
                                kept_print("%s/../%s/state-1", directory, strrchr(directory, '/') + 1)};
    MUST(sfp__directory_remove_files(directory, 1, STRINGS("state-#"), 3, keep, NULL));
    check_existence(true, STRINGS("state-1", "state-2", "state-3"));
    check_existence(false, STRINGS("state-4", "state-5"));
}

TEST(a_failed_removal_is_named_and_ends_the_call)
{
    put_text("first", "");
    put_text("second/x", ""); /* a directory is not a file of the run */
    put_text("third", "");
    REFUSED(remove_names(STRINGS("first", "second", "third"), &err), SFP_EIO, in_directory("second: cannot remove: "));
    /* files are removed in order: those before the failure are removed, those after it are not */
    check_existence(false, STRINGS("first"));
    check_existence(true, STRINGS("second", "third"));
    assert_true(file_exists("second/x"));
}

static void fail_to_remove(void)
{
    const char *inside = in_directory("inside");
    REFUSED(sfp__directory_remove_files(inside, 1, STRINGS("ours"), 0, NULL, &err), SFP_EIO,
            "inside/ours: cannot remove: Permission denied");
    assert_true(contains(inside, "ours"));
    MUST(sfp__directory_remove_files(inside, 1, STRINGS("absent"), 0, NULL, NULL));
    sfp__directory_unlock(take(inside)); /* a lock needs only read permission */
}

TEST(an_unwritable_directory_keeps_its_files)
{
    put_text("inside/ours", "");
    assert_int_equal(chmod(in_directory("inside"), 0555), 0);
    as_other_user(fail_to_remove);
    assert_int_equal(chmod(in_directory("inside"), 0755), 0);
}

TEST(parents_are_created_and_removed_again)
{
    int made = UNTOUCHED;
    MUST(sfp__directory_create(in_directory("a"), &made, &err));
    assert_int_equal(made, 1);
    MUST(sfp__directory_create(in_directory("a//b/c/"), &made, &err));
    assert_int_equal(made, 2);
    assert_true(file_exists("a/b/c"));
    MUST(sfp__directory_create(in_directory("a/b/c"), &made, &err));
    assert_int_equal(made, 0);
    sfp__directory_remove_created(in_directory("a/b/c"), 0);
    assert_true(file_exists("a/b/c"));
    sfp__directory_remove_created(in_directory("a//b/c/"), 2); /* a existed before */
    assert_false(file_exists("a/b"));
    assert_true(file_exists("a"));
    MUST(sfp__directory_create(in_directory("a/d/e"), &made, &err));
    put_text("a/d/kept", "x");
    sfp__directory_remove_created(in_directory("a/d/e"), made);
    assert_false(file_exists("a/d/e"));
    assert_true(file_exists("a/d/kept"));
}

TEST(the_directories_of_a_file_are_created)
{
    MUST(sfp__directory_create_for(in_directory("a/b//file"), &err));
    assert_true(file_exists("a/b"));
    assert_false(file_exists("a/b/file"));
    MUST(sfp__directory_create_for(in_directory("a/b/file"), &err));
    MUST(sfp__directory_create_for("file", &err)); /* in the current directory and at the root: nothing to create */
    MUST(sfp__directory_create_for("/file", &err));
    put_text("plain", "x");
    REFUSED(sfp__directory_create_for(in_directory("plain/c/file"), &err), SFP_EIO, "plain/c: cannot create the directory");
    sfp__mem_fail_at(0);
    sfp_status s = sfp__directory_create_for(in_directory("c/file"), &err);
    sfp__mem_fail_at(-1);
    assert_int_equal(s, SFP_ENOMEM);
    assert_false(file_exists("c"));
}

TEST(a_failed_creation_leaves_nothing_behind)
{
    char name[300];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    put_text("file", "x");
    const char *const bad[] = {"", in_directory("file/below"), in_directory(name)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int made = UNTOUCHED;
        assert_int_equal(sfp__directory_create(bad[i], &made, &err), SFP_EIO);
        assert_int_equal(made, UNTOUCHED);
        assert_non_null(strstr(err.message, "cannot create the directory"));
    }
}

TEST(a_directory_that_cannot_be_examined_does_not_seem_to_be_empty)
{
    char name[NAME_MAX + 2];
    bool has;
    (void)memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    REFUSED(sfp__directory_has(directory, name, &has, &err), SFP_EIO, "cannot stat");
    assert_int_equal(symlink("loop", in_directory("loop")), 0);
    REFUSED(sfp__directory_has(in_directory("loop"), "file", &has, &err), SFP_EIO, "loop: cannot open the directory");
    REFUSED(sfp__directory_has_any(in_directory("loop"), 2, STRINGS("a", "b"), &has, &err), SFP_EIO, "cannot open");
}
