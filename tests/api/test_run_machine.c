/* Runs on a machine that fails: without descriptors or bytes that were there before. A run fails or ends in the same bytes; it takes such
 * an error for a damaged image only if the disk reads the files around it. */
#include "run_world.h"

#include <sys/resource.h>

AROUND_EACH(make_run_world, remove_directory)

static const char *folder_of(const char *name, int classes, bool broken)
{
    put_images(name, classes, broken);
    return kept_print("folder:%s", in_directory(name));
}

/* ---------------------------------------------------------------------- descriptors */

/* Returns the former limit. */
static rlim_t limit_descriptors(rlim_t most)
{
    struct rlimit l;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &l), 0);
    rlim_t before = l.rlim_cur;
    l.rlim_cur = most;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &l), 0);
    return before;
}

/* Runs `steps` steps, then fails in the others, which have no free descriptors. */
static void run_without_descriptors(const sfp_settings *s, int steps)
{
    sfp_run *run = open_run(any_engine(), s, NULL);
    sfp_status status = SFP_OK;
    int more = 1;
    for (int i = 0; i < steps; i++)
        MUST(sfp_run_step(run, &more, &err));
    rlim_t before = limit_descriptors(3);
    while (more && !status)
        status = sfp_run_step(run, &more, &err);
    (void)limit_descriptors(before);
    assert_int_equal(status, SFP_EIO);
    HOLDS(err.message, "Too many open files");
    check_numbers(sfp_run_result(run), "samples.skipped", 0);
    sfp_run_close(run);
}

TEST(a_run_without_free_descriptors_fails_and_resumes)
{
    const char *const pairs[] = {PAPER, "batch", "4", "data", folder_of("photos", 8, false), "tasks", "2", NULL};
    const sfp_result *whole = run_once(run_into("whole", false, pairs));
    for (int steps = 0; steps < 3; steps++)
        run_without_descriptors(run_into("cut", true, pairs), steps);
    check_same_runs("whole", whole, "cut", run_once(run_into("cut", true, pairs)));
    const char *events = file_text(in_directory("cut/events.jsonl"));
    run_without_descriptors(run_into("cut", false, pairs), 0); /* a rerun that fails in its first step keeps the finished run */
    for (const char *const *name = STRINGS("checkpoint", "result.json", "report.html", "state.safetensors"); *name; name++)
        assert_true(file_exists(kept_print("cut/%s", *name)));
    assert_string_equal(file_text(in_directory("cut/events.jsonl")), events);
}

TEST(a_live_run_without_free_descriptors_loses_no_image)
{
    const char *const pairs[] = {"data", kept_print("watch:%s", in_directory("images")), NULL};
    put_images("images", 2, false);
    put_text("images/.end", "");
    run_without_descriptors(run_into("out", false, pairs), 0);
    const sfp_result *r = run_once(run_into("out", true, pairs));
    check_numbers(r, "samples.offered", 24);
    check_numbers(r, "samples.skipped", 0);
}

/* ---------------------------------------------------------------------------- files */

static const char *const attributes[] = {"mtu",     "flags",     "type",     "ifindex",          "iflink",
                                         "address", "broadcast", "addr_len", "gro_flush_timeout"};

/* An attribute of the kernel has fewer bytes than its size, so that reading it fails like that of a bad sector. */
static void put_unreadable(const char *name, const char *attribute)
{
    const char *path = kept_print("/sys/class/net/lo/%s", attribute);
    if (access(path, R_OK) != 0)
        skip();
    assert_int_equal(symlink(path, make_parents(name)), 0);
}

static const char *const kinds[] = {"folder", "watch"};

TEST(a_file_that_the_disk_cannot_read_is_skipped)
{
    for (int i = 0; i < 2; i++) {
        watcher w = {0};
        put_images(kinds[i], 2, false);
        put_unreadable(kept_print("%s/c1/05x.png", kinds[i]), attributes[0]);
        put_text(kept_print("%s/.end", kinds[i]), "");
        const char *data = kept_print("%s:%s", kinds[i], in_directory(kinds[i])), *out = kept_print("%s_out", kinds[i]);
        const sfp_result *r = run_watched(INTO(out, "data", data, "tasks", "free", i ? NULL : "max-skipped", "0.05"), &w);
        assert_true(is_finished(r));
        check_numbers(r, "samples.offered", 25);
        check_numbers(r, "samples.skipped", 1);
        HOLDS(w.last, "1 image could not be read and was skipped (first: ", "/c1/05x.png: file ends after ");
    }
}

TEST(a_disk_that_reads_no_file_fails_the_run)
{
    for (int i = 0; i < 2; i++) {
        const sfp_result *r = NULL;
        watcher w = {0};
        put_images(kinds[i], 1, false);
        for (size_t k = 0; k < sizeof attributes / sizeof *attributes; k++)
            put_unreadable(kept_print("%s/d/%zu.png", kinds[i], k), attributes[k]);
        put_text(kept_print("%s/.end", kinds[i]), "");
        const char *data = kept_print("%s:%s", kinds[i], in_directory(kinds[i])), *out = kept_print("%s_out", kinds[i]);
        sfp_settings *s = INTO(out, "data", data, "tasks", i ? "free" : "2", i ? NULL : "max-skipped", "1");
        assert_int_equal(try_watched(s, &w, &r), SFP_EIO);
        HOLDS(err.message, "/d/");
        assert_true(number_of(r, "samples.skipped") <= 7);
    }
}

/* Writes an uncompressed tar with `count` images of two classes. */
static void put_tar(const char *name, int count)
{
    for (int i = 0; i < count; i++) {
        put_image(kept_print("%s.files/%03d.png", name, i), 5 * i);
        put_text(kept_print("%s.files/%03d.cls", name, i), i % 2 ? "cat" : "dog");
    }
    (void)make_parents(name);
    const char *command =
        kept_print("cd '%s' && tar cf '%s' --sort=name *", in_directory(kept_print("%s.files", name)), in_directory(name));
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): the test itself chose these paths */
}

TEST(a_tar_that_is_truncated_while_it_is_read_fails_the_run)
{
    put_tar("data.tar", 400);
    const char *data = kept_print("tar:%s", in_directory("data.tar"));
    sfp_run *run = open_run(any_engine(), INTO("out", "data", data, "tasks", "free", "batch", "4", "max-skipped", "1"), NULL);
    sfp_status status = SFP_OK;
    assert_int_equal(truncate(in_directory("data.tar"), 20000), 0);
    for (int more = 1; more && !status;)
        status = sfp_run_step(run, &more, &err);
    assert_int_equal(status, SFP_EIO);
    HOLDS(err.message, "file ends inside the image");
    sfp_run_close(run);
}

TEST(a_damaged_test_part_fails_the_run)
{
    const char *const pairs[] = {"data", kept_print("tar:%s", in_directory("shards")), "tasks", "free", NULL};
    put_tar("shards/train-0.tar", 12);
    assert_true(is_finished(run_once(run_into("untested", false, pairs)))); /* without a test part, there is no accuracy */
    put_text("shards/test-0.tar", "this is not a tar file, and it is not the same as no test set");
    run_refused(run_into("damaged", false, pairs), "test part of tar:");
    HOLDS(err.message, "test-0.tar");
    assert_true(remove(in_directory("shards/test-0.tar")) == 0);
    put_tar("shards/test-0.tar", 4);
    assert_true(number_of(run_once(run_into("tested", false, pairs)), "average_accuracy") >= 0);
}

/* An IDX part of two images of 2 x 2 pixels. */
static void put_idx(const char *part)
{
    static const char images[] = "\0\0\10\3\0\0\0\2\0\0\0\2\0\0\0\2abcdefgh", labels[] = "\0\0\10\1\0\0\0\2\0\1";
    put_bytes(kept_print("idx/%s-images-idx3-ubyte", part), images, sizeof images - 1);
    put_bytes(kept_print("idx/%s-labels-idx1-ubyte", part), labels, sizeof labels - 1);
}

TEST(a_test_part_that_cannot_be_examined_is_not_a_missing_one)
{
    const char *const pairs[] = {"data", kept_print("idx:%s", in_directory("idx")), "tasks", "free", NULL};
    const char *images = in_directory("idx/t10k-images-idx3-ubyte"), *labels = in_directory("idx/t10k-labels-idx1-ubyte");
    watcher w = {0};
    put_idx("train");
    put_idx("t10k"); /* as large as the training part: a test part is recognised by its name */
    assert_true(number_of(run_watched(run_into("tested", false, pairs), &w), "average_accuracy") >= 0);
    assert_int_equal(w.tested, 2);
    assert_int_equal(remove(images), 0);
    run_refused(run_into("damaged", false, pairs), "test part of idx:"); /* its labels are there */
    HOLDS(err.message, "t10k-images-idx3");
    assert_int_equal(symlink("t10k-images-idx3-ubyte", images), 0); /* a loop: whether there is a file is not known */
    run_refused(run_into("damaged", false, pairs), "t10k-images-idx3-ubyte: cannot open");
    assert_int_equal(remove(images), 0);
    assert_int_equal(remove(labels), 0);
    assert_true(isnan(number_of(run_once(run_into("untested", false, pairs)), "average_accuracy")));
}

TEST(more_unreadable_images_than_allowed_fail_the_run)
{
    static const char words[] = "of 24 images could not be read, but --max-skipped allows only ";
    const char *broken = folder_of("broken", 2, true), *fine = folder_of("fine", 2, false); /* 6 of 24 */
    run_refused(INTO("out", "data", broken, "tasks", "2"), words);
    const sfp_result *r = run_once(RESUME("out", "data", broken, "tasks", "2", "max-skipped", "0.25"));
    assert_true(is_finished(r));
    check_numbers(r, "samples.skipped", 6);
    run_refused(INTO("tested", "data", fine, "test", broken, "tasks", "2"), words);
    r = run_once(INTO("other", "data", fine, "test", broken, "tasks", "2", "max-skipped", "0.3"));
    assert_true(number_of(r, "average_accuracy") >= 0);
}
