/* Checkpoints: a resumed learner has the same bytes as one that never stopped; a damaged checkpoint is always detected; the last
 * valid one survives every failure to write the next. */
#include "failing_alloc.h"
#include "learner_world.h"
#include "model/vit.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <zlib.h>

AROUND_ALL(make_small_world, free_small_world)
AROUND_EACH(make_directory, remove_directory)

/* ------------------------------------------------------- resuming */

typedef struct scenario {
    const char *what;
    sfp__learner_options o;
    int stop, times, each;
} scenario;

static void same_as_never_stopping(const scenario *s)
{
    static const char position[] = "timestamp five\n\x01 \xe2\x82\xac";
    OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&small, &s->o), *b = make_learner(&small, &s->o);
    const char *ckpt = in_directory("c");
    print_message("%s, stopped at %d of %d\n", s->what, s->stop, s->times);
    feed(a, 0, s->stop, s->each);
    MUST(sfp__learner_checkpoint(a, ckpt, position, &err));
    feed(a, s->stop, s->times, s->each);

    OWNED char *found = NULL;
    bool old = true;
    feed(b, 0, 1, s->each); /* resuming overwrites what it had learned */
    MUST(sfp__learner_resume(b, ckpt, &found, &old, &err));
    assert_false(old);
    assert_string_equal(found, position);
    bytes first = slurp(ckpt);
    MUST(sfp__learner_checkpoint(b, in_directory("d"), position, &err));
    assert_same_bytes(first, slurp(in_directory("d")), "checkpoint of the resumed learner");
    feed(b, s->stop, s->times, s->each);

    MUST(sfp__learner_save(a, in_directory("a"), &err));
    MUST(sfp__learner_save(b, in_directory("b"), &err));
    bytes last = image_of(a);
    assert_same_bytes(slurp(in_directory("a")), slurp(in_directory("b")), "states at the end");
    assert_same_bytes(last, image_of(b), "checkpoints at the end");
    assert_true(first.n != last.n || memcmp(first.p, last.p, last.n) != 0);
}

#define KIND(k, ...) SMALL(x.fp.kind = k; x.fp.last_layer = 3; __VA_ARGS__)

TEST(a_resumed_learner_equals_one_that_never_stopped)
{
    const scenario list[] = {
        {"the defaults", small_options(), 5, 12, 0},
        {"before the buffer is full", small_options(), 1, 4, 0},
        {"from the start, at random, without attunement", SMALL((x.fp.attune = false, x.select = "random")), 0, 4, 0},
        {"three steps and all the switches",
         SMALL((x.steps = 3, x.fp.attune_residual = true, x.fp.attune_topk = 2, x.fp.ortho_mu = 0.5f,
                x.fp.prefix = SFP__PREFIX_RAW, x.buffer.drop = SFP__DROP_EQ8)),
         5, 12, 4},
        {"a free stream that grows by classes", FREE(x.fp.span = 1; x.drift = SFP__DRIFT_NEW_CLASS), 20, 26, 0},
        {"a reservoir", SMALL(x.buffer.method = "er"), 5, 12, 0},
        {"l2p", KIND(SFP__FP_L2P), 5, 12, 4},
        {"l2p, free", KIND(SFP__FP_L2P, (x.fp.tasks = x.fp.classes = 0, x.fp.pool = 6)), 10, 20, 0},
        {"dualprompt", KIND(SFP__FP_DUALPROMPT), 5, 12, 4},
        {"dualprompt, task-free: new expert prompts are activated",
         KIND(SFP__FP_DUALPROMPT, (x.fp.tasks = x.fp.classes = 0, x.fp.pool = 6)), 10, 20, 0},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        same_as_never_stopping(&list[i]);
}

TEST(resuming_works_across_task_boundaries_without_a_buffer)
{
    scenario s = {"no buffer", SMALL(x.buffer.method = "none"), 4, 12, 4};
    for (; s.stop <= 9; s.stop++) /* just before a boundary (4, 8), just after it, and in between */
        same_as_never_stopping(&s);
}

/* ----------------------------------------------------------------------- damage */

/* Creates a learner with a checkpoint "c" of its third timestamp. */
static sfp__learner *with_checkpoint(void)
{
    const sfp__learner_options o = small_options();
    sfp__learner *l = make_learner(&small, &o);
    feed(l, 0, 3, 0);
    MUST(sfp__learner_checkpoint(l, in_directory("c"), "three", &err));
    return l;
}

static sfp_status resume(sfp__learner *l, bool *old)
{
    OWNED char *position = NULL;
    sfp_status s = sfp__learner_resume(l, in_directory("c"), &position, old, &err);
    assert_true((s == SFP_OK) == (position != NULL));
    return s;
}

/* Changes bytes of the file in place. */
static void patch(int fd, const void *p, size_t n, size_t at)
{
    assert_int_equal(pwrite(fd, p, n, (off_t)at), n);
}

TEST(every_flipped_byte_is_detected)
{
    OWNED_PTR(sfp__learner_free) sfp__learner *l = with_checkpoint();
    bytes good = slurp(in_directory("c")), before = image_of(l);
    int fd = open(in_directory("c"), O_WRONLY);
    uint64_t header;
    memcpy(&header, good.p, sizeof header);
    const uint8_t flips[] = {1, 0x20, 0x80, 0xff, 0x2a /* a space to a line feed */};
    for (size_t at = 0; at < good.n; at += at < 64 || at + 64 > good.n ? 1 : at < header ? 3 : 97) {
        uint8_t flipped = good.p[at] ^ flips[at % sizeof flips];
        patch(fd, &flipped, 1, at);
        if (resume(l, NULL) != SFP_EFORMAT)
            fail_msg("byte %zu of %zu flipped: not found", at, good.n);
        patch(fd, good.p + at, 1, at);
    }
    close(fd);
    assert_same_bytes(before, image_of(l), "a learner that resumed from nothing good");
    MUST(resume(l, NULL));
}

/* It is not damaged: the backup must not be used. */
TEST(a_checkpoint_of_another_version_is_refused)
{
    OWNED_PTR(sfp__learner_free) sfp__learner *l = with_checkpoint();
    bytes b = slurp(in_directory("c"));
    const char *now = kept_print("\"version\":\"%d\"", SFP__CHECKPOINT_VERSION);
    uint8_t *at = memmem(b.p, b.n, now, strlen(now));
    assert_non_null(at);
    at[11] = '1';
    uint32_t sum = (uint32_t)crc32_z(0, b.p, b.n - sizeof sum);
    memcpy(b.p + b.n - sizeof sum, &sum, sizeof sum);
    MUST(sfp__learner_checkpoint(l, in_directory("c"), "here", &err)); /* a valid backup */
    put_bytes("c", b.p, b.n);
    REFUSED(resume(l, NULL), SFP_EUNSUPPORTED, "another version of streamfp wrote it");
}

TEST(every_truncation_is_detected)
{
    OWNED_PTR(sfp__learner_free) sfp__learner *l = with_checkpoint();
    bytes good = slurp(in_directory("c"));
    for (size_t n = good.n - 1;; n -= n <= 40 || n + 40 > good.n ? 1 : n > 200 ? 101 : 7) {
        assert_int_equal(truncate(in_directory("c"), (off_t)n), 0);
        if (resume(l, NULL) != SFP_EFORMAT)
            fail_msg("cut to %zu bytes of %zu: not found", n, good.n);
        if (n == 0)
            break;
    }
}

/* Any byte is changed and the checksum recomputed: values of images and weights are accepted, everything else is refused. There
 * is no crash, and either everything or nothing is loaded. */
TEST(forged_contents_are_refused)
{
    OWNED_PTR(sfp__learner_free) sfp__learner *l = with_checkpoint();
    bytes good = slurp(in_directory("c")), before = image_of(l);
    int fd = open(in_directory("c"), O_WRONLY), accepted = 0, refused = 0;
    uint64_t header;
    memcpy(&header, good.p, sizeof header);
    for (size_t at = 0, end = good.n - 4; at < end; at += at < header + 800 ? 2 : 97) {
        uint8_t kept = good.p[at];
        good.p[at] ^= (uint8_t)(1u << at % 8);
        uint32_t sum = (uint32_t)crc32_z(0, good.p, end);
        patch(fd, good.p + at, 1, at);
        patch(fd, &sum, sizeof sum, end);
        sfp_status s = resume(l, NULL);
        good.p[at] = kept;
        patch(fd, &kept, 1, at);
        patch(fd, good.p + end, sizeof sum, end);
        accepted += s == SFP_OK;
        refused += s != SFP_OK;
        if (s == SFP_OK)
            MUST(resume(l, NULL)); /* restores the learner */
    }
    close(fd);
    assert_true(accepted > 100 && refused > (int)header / 2);
    assert_same_bytes(before, image_of(l), "a learner that forged files were offered to");
}

TEST(the_backup_is_used_if_the_last_is_damaged_or_missing)
{
    OWNED_PTR(sfp__learner_free) sfp__learner *l = with_checkpoint();
    bytes third = slurp(in_directory("c"));
    bool used_old = true;
    feed(l, 3, 4, 0);
    MUST(sfp__learner_checkpoint(l, in_directory("c"), "four", &err));
    assert_int_equal(count_files(), 2);
    assert_same_bytes(third, slurp(in_directory("c.old")), "PATH.old");
    MUST(resume(l, &used_old));
    assert_false(used_old);
    assert_int_equal(sfp__learner_get_counts(l).timestamps, 4);

    put_bytes("c", third.p, third.n / 2);
    MUST(resume(l, &used_old));
    assert_true(used_old);
    assert_int_equal(sfp__learner_get_counts(l).timestamps, 3);

    /* a damaged checkpoint does not replace the valid backup */
    MUST(sfp__learner_checkpoint(l, in_directory("c"), "three", &err));
    assert_same_bytes(third, slurp(in_directory("c.old")), "PATH.old beside a damaged PATH");
    assert_same_bytes(third, slurp(in_directory("c")), "PATH");

    (void)unlink(in_directory("c"));
    MUST(resume(l, &used_old));
    assert_true(used_old);

    put_bytes("c", "short", 5);
    put_bytes("c.old", third.p, third.n - 1);
    used_old = false;
    REFUSED(resume(l, &used_old), SFP_EFORMAT, "/c: not a checkpoint, file has 5 bytes");
    assert_false(used_old);
    assert_non_null(strstr(err.message, "/c.old: checksum is "));
    (void)unlink(in_directory("c"));
    assert_int_equal(resume(l, &used_old), SFP_EFORMAT);
    (void)unlink(in_directory("c.old"));
    assert_int_equal(resume(l, &used_old), SFP_ENOTFOUND);
}

TEST(leftovers_of_killed_writers_are_removed)
{
    OWNED_PTR(sfp__learner_free) sfp__learner *l = with_checkpoint();
    char own[64];
    put_bytes("c.tmp.999999999", "x", 1); /* above the largest possible process id */
    (void)snprintf(own, sizeof own, "c.tmp.%ld", (long)getpid());
    put_bytes(own, "x", 1);
    put_bytes("c.tmp.1", "x", 1); /* this process exists */
    put_bytes("c.tmp.note", "x", 1);
    put_bytes("c.old.tmp", "x", 1);
    MUST(resume(l, NULL));
    assert_int_equal(count_files(), 4);
    MUST(sfp__learner_checkpoint(l, in_directory("c"), "", &err));
    assert_int_equal(access(in_directory("c.old.tmp"), F_OK), -1);
    assert_int_equal(count_files(), 4);
}

/* ---------------------------------------------------------------- other settings */

TEST(different_settings_are_reported_by_name)
{
    sfp__learner_free(with_checkpoint());
    const struct {
        const char *words;
        sfp__learner_options o;
    } list[] = {
        {"batch is 6, expected 5, the current setting", SMALL(x.batch = 5)},
        {"steps is 1, expected 2, the current setting", SMALL(x.steps = 2)},
        {"replay is 4, expected 3, the current setting", SMALL(x.replay = 3)},
        {"sigma is 0.5, expected 0.25, the current setting", SMALL(x.coreset.sigma = 0.25)},
        {"select is streamfp, expected random, the current setting", SMALL(x.select = "random")},
        {"buffer is streamfp, expected er, the current setting", SMALL(x.buffer.method = "er")},
        {"buffer is streamfp, expected none, the current setting", SMALL(x.buffer.method = "none")},
        {"buffer-size is 10, expected 9, the current setting", SMALL(x.buffer.slots = 9)},
        {"drop-rule is alg2, expected eq8, the current setting", SMALL(x.buffer.drop = SFP__DROP_EQ8)},
        {"seed is 11, expected 12, the current setting", SMALL(x.seed = 12)},
        {"pool is 7, expected 8, the current setting", SMALL(x.fp.pool = 8)},
        {"pool-kind is coda, expected l2p, the current setting", SMALL(x.fp.kind = SFP__FP_L2P)},
        {"prompt-length is 4, expected 2, the current setting", SMALL(x.fp.length = 2)},
        {"prompt-layers is 0-1, expected 0-2, the current setting", SMALL(x.fp.last_layer = 2)},
        {"tasks is 3, expected free, the current setting", SMALL(x.fp.tasks = 0)},
        {"attune is on, expected off, the current setting", SMALL(x.fp.attune = false)},
        {"attune-residual is off, expected on, the current setting", SMALL(x.fp.attune_residual = true)},
        {"attune-topk is 3, expected 1, the current setting", SMALL(x.fp.attune_topk = 1)},
        {"prefix is projected, expected raw, the current setting", SMALL(x.fp.prefix = SFP__PREFIX_RAW)},
        {"lr is 0.00100000005, expected 0.5, the current setting", SMALL(x.adam.lr = 0.5f)},
        {"classes is 6, expected 7, the current setting", SMALL(x.fp.classes = 7)},
        {"mean is 0.5,0.5,0.5, expected 0.5,0,0.5, the current setting", SMALL(x.mean[1] = 0)},
        {"ortho-mu is 0, expected 1, the current setting", SMALL(x.fp.ortho_mu = 1)},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&small, &list[i].o);
        REFUSED(resume(l, NULL), SFP_EINVAL, list[i].words);
    }
}

/* ------------------------------------------------------------- memory, full disk */

static bool only_file_is(const char *name, bytes want)
{
    bytes found = slurp(in_directory(name));
    bool same = found.n == want.n && memcmp(found.p, want.p, want.n) == 0;
    return same && count_files() == 1;
}

TEST(checkpoint_and_resume_report_every_failed_allocation)
{
    const sfp__learner_options o = FREE();
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&small, &o), *fresh = make_learner(&small, &o);
    feed(l, 0, TIMES, 0); /* more classes than the capacity of a new learner */
    MUST(sfp__learner_name_class(l, 2, "two", &err));
    MUST(sfp__learner_checkpoint(l, in_directory("c"), "x", &err));
    bytes good = slurp(in_directory("c")), empty = image_of(fresh);
    assert_true(FAIL_EACH_ALLOCATION(sfp__learner_checkpoint(l, in_directory("c"), "x", alloc_err), only_file_is("c", good)) > 0);
    assert_same_bytes(good, slurp(in_directory("c")), "PATH");
    assert_int_equal(count_files(), 2);
    int failures = 0;
    for (long k = 0, done = 0; !done; k++) {
        unsigned long before = sfp__mem_count();
        OWNED char *position = NULL;
        sfp__mem_fail_at(k);
        sfp_status s = sfp__learner_resume(fresh, in_directory("c"), &position, NULL, NULL);
        sfp__mem_fail_at(-1);
        done = sfp__mem_count() - before <= (unsigned long)k;
        if (s != SFP_OK) {
            failures++;
            assert_int_equal(s, SFP_ENOMEM);
            assert_null(position);
            assert_same_bytes(empty, image_of(fresh), "a learner after a failed resume");
        } else {
            assert_true(done || k < 3); /* the search for leftovers is skipped if there is no memory */
        }
        if (s == SFP_OK && !done) {
            sfp__learner_free(fresh);
            fresh = make_learner(&small, &o);
        }
    }
    assert_true(failures > 6);
    assert_same_bytes(image_of(l), image_of(fresh), "the resumed learner");
}

TEST(a_full_disk_keeps_the_last_valid_checkpoint)
{
    OWNED_PTR(sfp__learner_free) sfp__learner *l = with_checkpoint();
    feed(l, 3, 4, 0);
    MUST(sfp__learner_checkpoint(l, in_directory("c"), "four", &err));
    bytes last = slurp(in_directory("c")), old = slurp(in_directory("c.old"));
    struct rlimit limit, lower;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    feed(l, 4, 5, 0);
    for (size_t n = 0; n < last.n; n += last.n / 7) {
        lower = (struct rlimit){.rlim_cur = n, .rlim_max = limit.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &lower), 0);
        sfp_status s = sfp__learner_checkpoint(l, in_directory("c"), "five", &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_int_equal(s, SFP_EIO);
        assert_non_null(strstr(err.message, "/c: cannot write"));
        assert_same_bytes(last, slurp(in_directory("c")), "PATH");
        assert_same_bytes(old, slurp(in_directory("c.old")), "PATH.old");
        assert_int_equal(count_files(), 2);
    }
    (void)signal(SIGXFSZ, handler);
    MUST(sfp__learner_checkpoint(l, in_directory("c"), "five", &err));
}
