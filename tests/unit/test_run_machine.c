/* Runs on a machine that fails: without memory, descriptors or bytes that were there before. A run fails or ends in the same bytes; it
 * takes such an error for a damaged image only if the disk reads the files around it. (Threads: sfp__thread_pool_create is in run_world.h.) */
#include "io/file.h"
#include "model/vit.h"

#include "run_world.h"
#include "test.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

AROUND_ALL(make_world, end_world)

static sfp__run_options folder_options(const char *name, int classes, bool broken)
{
    put_images(name, classes, broken);
    sfp__run_options o = options(kept_print("folder:%s", in_directory(name)), "2");
    o.learner.batch = 4;
    return o;
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

/* Runs `steps` steps, then all others without free descriptors. Returns the status of the last step. */
static sfp_status run_without_descriptors(const sfp__run_options *o, int steps, sfp_result *r)
{
    const sfp__run_hooks hooks = {0};
    sfp__run *run = NULL;
    sfp_status status = SFP_OK;
    bool more = true;
    MUST(sfp__run_open(o, &hooks, r, &run, &err));
    for (int i = 0; i < steps; i++)
        MUST(sfp__run_step(run, &more, &err));
    rlim_t before = limit_descriptors(3);
    while (more && !status)
        status = sfp__run_step(run, &more, &err);
    (void)limit_descriptors(before);
    sfp__run_close(run);
    return status;
}

TEST(a_run_without_free_descriptors_fails_and_resumes)
{
    sfp__run_options o = folder_options("photos", 8, false);
    (void)run_once(&o, "photos_whole", 0, NULL);
    o.out = in_directory("photos_cut");
    for (int steps = 0; steps < 3; steps++) {
        sfp_result r = {0};
        assert_int_equal(run_without_descriptors(&o, steps, &r), SFP_EIO);
        HOLDS(err.message, "cannot open: Too many open files");
        assert_int_equal(r.samples.skipped, 0);
        sfp__result_done(&r);
        o.resume = true;
    }
    sfp_result r = run_once(&o, "photos_cut", 0, NULL);
    assert_true(r.finished);
    assert_int_equal(r.samples.skipped, 0);
    same_state("photos_whole", "photos_cut");
}

TEST(a_live_run_without_free_descriptors_loses_no_image)
{
    put_images("watched", 2, false);
    put_text("watched/.end", "");
    sfp__run_options o = options(kept_print("dir:%s", in_directory("watched")), NULL);
    sfp_result failed = {0};
    o.out = in_directory("watched_out");
    assert_true(run_without_descriptors(&o, 0, &failed) != SFP_OK);
    HOLDS(err.message, "Too many open files");
    assert_int_equal(failed.samples.skipped, 0);
    sfp__result_done(&failed);
    o.resume = true;
    sfp_result r = run_once(&o, "watched_out", 0, NULL);
    assert_int_equal(r.samples.offered, 24);
    assert_int_equal(r.samples.skipped, 0);
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

TEST(a_file_that_the_disk_cannot_read_is_skipped)
{
    static const char *const kinds[] = {"folder", "watch"};
    for (int i = 0; i < 2; i++) {
        const char *name = kept_print("sector_%s", kinds[i]), *to = kept_print("%s_out", name);
        char last[SFP_ERROR_MAX] = "";
        put_images(name, 2, false);
        put_unreadable(kept_print("%s/c1/05x.png", name), attributes[0]);
        put_text(kept_print("%s/.end", name), "");
        sfp__run_options o = options(kept_print("%s:%s", kinds[i], in_directory(name)), "free");
        o.max_skipped = 0.05;
        sfp_result r = run_once(&o, to, 0, last);
        assert_true(r.finished);
        assert_int_equal(r.samples.offered, 25);
        assert_int_equal(r.samples.skipped, 1);
        HOLDS(last, "1 image could not be read and was skipped (first: ");
        HOLDS(last, "/c1/05x.png: file ends after ");
    }
}

TEST(a_disk_that_reads_no_file_fails_the_run)
{
    static const char *const kinds[] = {"folder", "watch"};
    for (int i = 0; i < 2; i++) {
        const char *name = kept_print("disk_%s", kinds[i]);
        put_images(name, 1, false);
        for (size_t k = 0; k < sizeof attributes / sizeof *attributes; k++)
            put_unreadable(kept_print("%s/d/%zu.png", name, k), attributes[k]);
        put_text(kept_print("%s/.end", name), "");
        sfp__run_options o = options(kept_print("%s:%s", kinds[i], in_directory(name)), i ? "free" : "2");
        const sfp__run_hooks hooks = {0};
        sfp_result r = {0};
        o.max_skipped = 1;
        o.out = in_directory(kept_print("%s_out", name));
        assert_int_equal(run_all(&o, &hooks, &r), SFP_EIO);
        HOLDS(err.message, "/d/");
        assert_in_range(r.samples.skipped, 0, 7);
        sfp__result_done(&r);
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
    put_tar("data.tar", 40);
    sfp__run_options o = options(kept_print("tar:%s", in_directory("data.tar")), "free");
    const sfp__run_hooks hooks = {0};
    sfp_result r = {0};
    sfp__run *run = NULL;
    sfp_status status = SFP_OK;
    o.learner.batch = 4;
    o.max_skipped = 1;
    o.out = in_directory("tar_out");
    MUST(sfp__run_open(&o, &hooks, &r, &run, &err));
    assert_int_equal(truncate(in_directory("data.tar"), 20000), 0);
    for (bool more = true; more && !status;)
        status = sfp__run_step(run, &more, &err);
    assert_int_equal(status, SFP_EIO);
    HOLDS(err.message, "file ends inside the image");
    sfp__run_close(run);
    sfp__result_done(&r);
}

TEST(a_damaged_test_part_fails_the_run)
{
    put_tar("shards/train-0.tar", 12);
    sfp__run_options o = options(kept_print("tar:%s", in_directory("shards")), "free");
    assert_true(run_once(&o, "shards_out", 0, NULL).finished); /* without a test part, there is no accuracy */
    put_text("shards/test-0.tar", "this is not a tar file, and it is not the same as no test set");
    o.out = in_directory("shards_damaged");
    refused(o, "test part of tar:");
    HOLDS(err.message, "test-0.tar");
    assert_true(remove(in_directory("shards/test-0.tar")) == 0);
    put_tar("shards/test-0.tar", 4);
    assert_true(run_once(&o, "shards_tested", 0, NULL).average_accuracy >= 0);
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
    put_idx("train");
    put_idx("t10k");
    sfp__run_options o = options(kept_print("idx:%s", in_directory("idx")), "free");
    const char *images = in_directory("idx/t10k-images-idx3-ubyte"), *labels = in_directory("idx/t10k-labels-idx1-ubyte");
    assert_true(run_once(&o, "idx_tested", 0, NULL).average_accuracy >= 0);
    o.out = in_directory("idx_damaged");
    assert_int_equal(remove(images), 0);
    refused(o, "test part of idx:"); /* its labels are there */
    HOLDS(err.message, "t10k-images-idx3");
    assert_int_equal(symlink("t10k-images-idx3-ubyte", images), 0); /* a loop: whether there is a file is not known */
    refused(o, "t10k-images-idx3-ubyte: cannot open");
    assert_int_equal(remove(images), 0);
    assert_int_equal(remove(labels), 0);
    assert_true(isnan(run_once(&o, "idx_untested", 0, NULL).average_accuracy)); /* without both files, there is no test part */
}

TEST(a_socket_is_not_a_failure_of_the_machine)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    uint8_t *bytes = NULL;
    size_t size;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(name.sun_path, sizeof name.sun_path, "%s", in_directory("socket.png"));
    assert_int_equal(bind(fd, (const struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(sfp__file_read(name.sun_path, 100, &bytes, &size, &err), SFP_EINVAL);
    assert_int_equal(close(fd), 0);
}

TEST(more_unreadable_images_than_allowed_fail_the_run)
{
    sfp__run_options o = folder_options("broken", 2, true); /* 6 of 24 */
    o.out = in_directory("broken_out");
    refused(o, "of 24 images could not be read, but --max-skipped allows only ");
    o.max_skipped = 0.25;
    o.resume = true;
    sfp_result r = run_once(&o, "broken_out", 0, NULL);
    assert_true(r.finished);
    assert_int_equal(r.samples.skipped, 6);
    sfp__run_options tested = folder_options("fine", 2, false);
    tested.test = o.data;
    tested.eval_limit = 0;
    tested.out = in_directory("broken_test");
    refused(tested, "of 24 images could not be read, but --max-skipped allows only ");
    tested.max_skipped = 0.3;
    assert_true(run_once(&tested, "broken_tested", 0, NULL).average_accuracy >= 0);
}
