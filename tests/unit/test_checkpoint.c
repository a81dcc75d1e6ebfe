/* Checkpoints: going on from one gives the bytes of never having stopped; a damaged one is always told; the last good one
 * survives whatever happens to the writing of the next. */
#include "failing_alloc.h"
#include "learner_world.h"
#include "model/vit.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <zlib.h>

AROUND_ALL(make_world, free_world)

/* ------------------------------------------------------- the same as never stopping */

typedef struct scenario {
    sfp_learner_options o;
    int stop, times, each;
} scenario;

static void same_as_never_stopping(const scenario *s)
{
    char ckpt[96];
    sfp_learner *a = make_learner(&s->o), *b = make_learner(&s->o);
    feed(a, 0, s->stop, s->each);
    MUST(sfp_learner_checkpoint(a, in_dir("c", ckpt, sizeof ckpt), "timestamp five\n\x01 \xe2\x82\xac", &err));
    feed(a, s->stop, s->times, s->each);

    char *position = NULL;
    bool old = true;
    feed(b, 0, 1, s->each); /* what it had learned is gone after resuming */
    MUST(sfp__learner_resume(b, ckpt, &position, &old, &err));
    assert_false(old);
    assert_string_equal(position, "timestamp five\n\x01 \xe2\x82\xac");
    sfp__free(position);
    bytes first = slurp(ckpt), again;
    MUST(sfp_learner_checkpoint(b, PATH("d"), "timestamp five\n\x01 \xe2\x82\xac", &err));
    again = slurp(PATH("d"));
    assert_same_bytes(first, again, "a checkpoint of what was resumed");
    feed(b, s->stop, s->times, s->each);

    MUST(sfp_learner_save(a, PATH("a"), &err));
    MUST(sfp_learner_save(b, PATH("b"), &err));
    bytes sa = slurp(PATH("a")), sb = slurp(PATH("b")), ca = image_of(a), cb = image_of(b);
    assert_same_bytes(sa, sb, "states at the end");
    assert_same_bytes(ca, cb, "checkpoints at the end");
    assert_true(first.n != ca.n || memcmp(first.p, ca.p, ca.n) != 0);
    bytes all[] = {first, again, sa, sb, ca, cb};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sfp__free(all[i].p);
    sfp_learner_free(a);
    sfp_learner_free(b);
    remove_files();
}

TEST(goes_on_with_the_defaults)
{
    const scenario s = {small_options(), 5, 12, 0};
    same_as_never_stopping(&s);
}

TEST(goes_on_before_the_buffer_is_full_and_from_the_start)
{
    scenario s = {small_options(), 1, 4, 0};
    same_as_never_stopping(&s);
    s.stop = 0;
    s.o.fp.attune = false;
    s.o.select = "random";
    same_as_never_stopping(&s);
}

TEST(goes_on_with_three_steps_and_all_the_switches)
{
    scenario s = {small_options(), 5, 12, 4};
    s.o.steps = 3;
    s.o.fp.attune_residual = true;
    s.o.fp.attune_topk = 2;
    s.o.fp.ortho_mu = 0.5f;
    s.o.fp.prefix = SFP_PREFIX_RAW;
    s.o.buffer.drop = SFP_DROP_EQ8;
    s.o.buffer.nu = SFP_NU_RESERVOIR;
    same_as_never_stopping(&s);
}

TEST(goes_on_over_a_task_boundary_without_a_buffer)
{
    scenario s = {small_options(), 5, 12, 4};
    s.o.buffer.method = "none";
    for (s.stop = 4; s.stop <= 9; s.stop++) /* right before a boundary (4, 8), right after it, in between */
        same_as_never_stopping(&s);
}

TEST(goes_on_with_a_free_stream_that_grows)
{
    scenario s = {small_options(), 20, 47, 0};
    s.o.fp.tasks = 0;
    s.o.fp.span = 1;
    s.o.fp.classes = 0;
    s.o.drift = SFP_DRIFT_PH;
    same_as_never_stopping(&s);
    s.o.drift = SFP_DRIFT_NEW_CLASS;
    s.times = 26;
    same_as_never_stopping(&s);
}

TEST(goes_on_with_a_reservoir)
{
    scenario s = {small_options(), 5, 12, 0};
    s.o.buffer.method = "er";
    same_as_never_stopping(&s);
}

TEST(goes_on_with_compressed_pictures)
{
    scenario s = {small_options(), 5, 12, 0};
    encode_pictures();
    s.o.keep_compressed = true;
    same_as_never_stopping(&s);
}

TEST(goes_on_with_the_class_token_as_query)
{
    scenario s = {small_options(), 5, 12, 0};
    s.o.fp.query_one = true;
    same_as_never_stopping(&s);
}

TEST(goes_on_with_other_kinds_of_pool)
{
    for (int kind = SFP_FP_L2P; kind <= SFP_FP_DUALPROMPT; kind++) {
        scenario s = {small_options(), 5, 12, 4};
        s.o.fp.kind = (sfp_fp_kind)kind;
        s.o.fp.last_layer = 3;
        same_as_never_stopping(&s);
        s = (scenario){s.o, 10, 20, 0};
        s.o.fp.tasks = s.o.fp.classes = 0; /* new experts open */
        s.o.fp.pool = 6;
        same_as_never_stopping(&s);
    }
}

TEST(goes_on_with_mixed_heads)
{
    scenario s = {small_options(), 3, 6, 2};
    s.o.head = SFP_HEAD_MIX;
    same_as_never_stopping(&s);
}

/* ----------------------------------------------------------------------- damage */

/* A learner with a checkpoint "c" of its third timestamp. */
static sfp_learner *with_checkpoint(const sfp_learner_options *o)
{
    sfp_learner *l = make_learner(o);
    feed(l, 0, 3, 0);
    MUST(sfp_learner_checkpoint(l, PATH("c"), "three", &err));
    return l;
}

static sfp_status resume(sfp_learner *l, bool *old, char *message)
{
    char *position = NULL;
    sfp_status s = sfp__learner_resume(l, PATH("c"), &position, old, &err);
    if (message)
        (void)snprintf(message, SFP_ERROR_MAX, "%s", err.message);
    assert_true((s == SFP_OK) == (position != NULL));
    sfp__free(position);
    return s;
}

/* Bytes of the file changed in place. */
static void patch(int fd, const void *p, size_t n, size_t at)
{
    assert_int_equal(pwrite(fd, p, n, (off_t)at), n);
}

TEST(every_flipped_byte_is_found)
{
    sfp_learner_options o = small_options();
    sfp_learner *l = with_checkpoint(&o);
    bytes good = slurp(PATH("c")), before = image_of(l);
    int fd = open(PATH("c"), O_WRONLY);
    uint64_t header;
    memcpy(&header, good.p, sizeof header);
    const uint8_t flips[] = {1, 0x20, 0x80, 0xff, 0x2a /* a space to a line feed */};
    for (size_t at = 0; at < good.n; at += at < header + 8 || at + 64 > good.n ? 1 : 13) {
        uint8_t flipped = good.p[at] ^ flips[at % sizeof flips];
        patch(fd, &flipped, 1, at);
        if (resume(l, NULL, NULL) != SFP_EFORMAT)
            fail_msg("byte %zu of %zu flipped: not found", at, good.n);
        patch(fd, good.p + at, 1, at);
    }
    close(fd);
    bytes after = image_of(l);
    assert_same_bytes(before, after, "a learner that resumed from nothing good");
    MUST(resume(l, NULL, NULL));
    sfp__free(good.p);
    sfp__free(before.p);
    sfp__free(after.p);
    sfp_learner_free(l);
    remove_files();
}

/* They are not damaged: the one before must not serve, and what to do is said. */
TEST(one_of_an_earlier_version_is_refused)
{
    sfp_learner_options o = small_options();
    sfp_learner *l = with_checkpoint(&o);
    char message[SFP_ERROR_MAX];
    bytes b = slurp(PATH("c"));
    uint8_t *at = memmem(b.p, b.n, "\"version\":\"3\"", 13);
    assert_non_null(at);
    at[11] = '2';
    uint32_t sum = (uint32_t)crc32_z(0, b.p, b.n - sizeof sum);
    memcpy(b.p + b.n - sizeof sum, &sum, sizeof sum);
    MUST(sfp_learner_checkpoint(l, PATH("c"), "here", &err)); /* a good one before it */
    spill(PATH("c"), b.p, b.n);
    static const char wanted[] =
        "/c: written by an earlier version: start again without --resume in another --out, or finish it with "
        "that version";
    assert_int_equal(resume(l, NULL, message), SFP_EUNSUPPORTED);
    assert_non_null(strstr(message, wanted));
    const uint8_t seen[8] = {1};
    const sfp_tensor t = {.name = "seen", .dtype = SFP_DTYPE_U8, .ndim = 1, .shape = {8}, .count = 8, .bytes = 8, .data = seen};
    const sfp_meta meta[] = {{"kind", "ncm"}, {"position", "{}"}}; /* as a method's was */
    MUST(sfp__safetensors_write(PATH("c"), &t, 1, meta, 2, &err));
    assert_int_equal(resume(l, NULL, message), SFP_EUNSUPPORTED);
    assert_non_null(strstr(message, wanted));
    sfp__free(b.p);
    sfp_learner_free(l);
    remove_files();
}

TEST(every_truncation_is_found)
{
    sfp_learner_options o = small_options();
    sfp_learner *l = with_checkpoint(&o);
    bytes good = slurp(PATH("c"));
    for (size_t n = good.n - 1;; n -= n <= 40 || n + 40 > good.n ? 1 : n > 200 ? 101 : 7) {
        assert_int_equal(truncate(PATH("c"), (off_t)n), 0);
        if (resume(l, NULL, NULL) != SFP_EFORMAT)
            fail_msg("cut to %zu bytes of %zu: not found", n, good.n);
        if (n == 0)
            break;
    }
    sfp__free(good.p);
    sfp_learner_free(l);
    remove_files();
}

/* Any byte changed under a checksum that holds: values of pictures and weights pass, all else is refused; no crash, and all or
 * nothing. */
TEST(forged_contents_are_refused)
{
    sfp_learner_options o = small_options();
    sfp_learner *l = with_checkpoint(&o);
    bytes good = slurp(PATH("c")), before = image_of(l);
    int fd = open(PATH("c"), O_WRONLY), accepted = 0, refused = 0;
    uint64_t header;
    memcpy(&header, good.p, sizeof header);
    for (size_t at = 0, end = good.n - 4; at < end; at += at < header + 800 ? 1 : 31) {
        uint8_t kept = good.p[at];
        good.p[at] ^= (uint8_t)(1u << at % 8);
        uint32_t sum = (uint32_t)crc32_z(0, good.p, end);
        patch(fd, good.p + at, 1, at);
        patch(fd, &sum, sizeof sum, end);
        sfp_status s = resume(l, NULL, NULL);
        good.p[at] = kept;
        patch(fd, &kept, 1, at);
        patch(fd, good.p + end, sizeof sum, end);
        accepted += s == SFP_OK;
        refused += s != SFP_OK;
        if (s == SFP_OK)
            MUST(resume(l, NULL, NULL)); /* the learner as it was */
    }
    close(fd);
    assert_true(accepted > 100 && refused > (int)header / 2);
    bytes after = image_of(l);
    assert_same_bytes(before, after, "a learner that forged files were offered to");
    sfp__free(good.p);
    sfp__free(before.p);
    sfp__free(after.p);
    sfp_learner_free(l);
    remove_files();
}

TEST(the_one_before_serves_when_the_last_is_damaged_or_gone)
{
    sfp_learner_options o = small_options();
    sfp_learner *l = with_checkpoint(&o);
    bytes third = slurp(PATH("c")), then, old;
    bool used_old = true;
    feed(l, 3, 4, 0);
    MUST(sfp_learner_checkpoint(l, PATH("c"), "four", &err));
    assert_int_equal(count_files(), 2);
    old = slurp(PATH("c.old"));
    assert_same_bytes(third, old, "PATH.old");
    sfp__free(old.p);
    MUST(resume(l, &used_old, NULL));
    assert_false(used_old);
    assert_int_equal(sfp__learner_counts(l).timestamps, 4);

    spill(PATH("c"), third.p, third.n / 2);
    MUST(resume(l, &used_old, NULL));
    assert_true(used_old);
    assert_int_equal(sfp__learner_counts(l).timestamps, 3);

    /* the damaged one does not push out the good one */
    MUST(sfp_learner_checkpoint(l, PATH("c"), "three", &err));
    old = slurp(PATH("c.old"));
    then = slurp(PATH("c"));
    assert_same_bytes(third, old, "PATH.old beside a damaged PATH");
    assert_same_bytes(third, then, "PATH");
    sfp__free(old.p);
    sfp__free(then.p);

    (void)unlink(PATH("c"));
    MUST(resume(l, &used_old, NULL));
    assert_true(used_old);

    char message[SFP_ERROR_MAX];
    spill(PATH("c"), "short", 5);
    spill(PATH("c.old"), third.p, third.n - 1);
    used_old = false;
    assert_int_equal(resume(l, &used_old, message), SFP_EFORMAT);
    assert_false(used_old);
    assert_non_null(strstr(message, "/c: has 5 bytes"));
    assert_non_null(strstr(message, "/c.old: is damaged"));
    (void)unlink(PATH("c"));
    assert_int_equal(resume(l, &used_old, message), SFP_EFORMAT);
    (void)unlink(PATH("c.old"));
    assert_int_equal(resume(l, &used_old, message), SFP_ENOTFOUND);
    sfp__free(third.p);
    sfp_learner_free(l);
    remove_files();
}

TEST(leftovers_of_killed_writers_go)
{
    sfp_learner_options o = small_options();
    sfp_learner *l = with_checkpoint(&o);
    char own[64];
    spill(PATH("c.tmp.999999999"), "x", 1); /* above the largest process number there is */
    (void)snprintf(own, sizeof own, "c.tmp.%ld", (long)getpid());
    spill(PATH(own), "x", 1);
    spill(PATH("c.tmp.1"), "x", 1); /* lives */
    spill(PATH("c.tmp.note"), "x", 1);
    spill(PATH("c.old.tmp"), "x", 1);
    MUST(resume(l, NULL, NULL));
    assert_int_equal(count_files(), 4);
    MUST(sfp_learner_checkpoint(l, PATH("c"), "", &err));
    assert_int_equal(access(PATH("c.old.tmp"), F_OK), -1);
    assert_int_equal(count_files(), 4);
    sfp_learner_free(l);
    remove_files();
}

/* ---------------------------------------------------------------- other settings */

TEST(other_settings_are_told_by_name)
{
    sfp_learner_options o = small_options();
    sfp_learner *l = with_checkpoint(&o);
    sfp_learner_free(l);
    const struct {
        const char *words;
        sfp_learner_options o;
    } list[] = {
#define WITH(words, change)                       \
    {words, ({                                    \
         sfp_learner_options x = small_options(); \
         change;                                  \
         x;                                       \
     })}
        WITH("batch 6, now it is 5", x.batch = 5),
        WITH("steps 1, now it is 2", x.steps = 2),
        WITH("replay 4, now it is 3", x.replay = 3),
        WITH("sigma 0.5, now it is 0.25", x.coreset.sigma = 0.25),
        WITH("coreset exact, now it is paper", x.coreset.mode = SFP_CORESET_PAPER),
        WITH("select streamfp, now it is random", x.select = "random"),
        WITH("coreset-most 0, now it is 2", x.coreset_most = 2),
        WITH("buffer streamfp, now it is er", x.buffer.method = "er"),
        WITH("buffer streamfp, now it is none", x.buffer.method = "none"),
        WITH("buffer-size 10, now it is 9", x.buffer.slots = 9),
        WITH("drop-rule alg2, now it is eq8", x.buffer.drop = SFP_DROP_EQ8),
        WITH("nu at-least-one, now it is reservoir", x.buffer.nu = SFP_NU_RESERVOIR),
        WITH("keep-compressed off, now it is on", x.keep_compressed = true),
        WITH("seed 11, now it is 12", x.seed = 12),
        WITH("pool 7, now it is 8", x.fp.pool = 8),
        WITH("pool-kind coda, now it is l2p", x.fp.kind = SFP_FP_L2P),
        WITH("prompt-length 4, now it is 2", x.fp.length = 2),
        WITH("prompt-layers 0-1, now it is 0-2", x.fp.last_layer = 2),
        WITH("tasks 3, now it is free", x.fp.tasks = 0),
        WITH("attune on, now it is off", x.fp.attune = false),
        WITH("attune-residual off, now it is on", x.fp.attune_residual = true),
        WITH("attune-topk 3, now it is 1", x.fp.attune_topk = 1),
        WITH("prefix projected, now it is raw", x.fp.prefix = SFP_PREFIX_RAW),
        WITH("query two, now it is one", x.fp.query_one = true),
        WITH("lr 0.00100000005, now it is 0.5", x.adam.lr = 0.5f),
        WITH("classes 6, now it is 7", x.fp.classes = 7),
        WITH("mean 0.5,0.5,0.5, now it is 0.5,0,0.5", x.mean[1] = 0),
        WITH("ortho-mu 0, now it is 1", x.fp.ortho_mu = 1),
#undef WITH
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char message[SFP_ERROR_MAX];
        l = make_learner(&list[i].o);
        assert_int_equal(resume(l, NULL, message), SFP_EINVAL);
        if (!strstr(message, list[i].words))
            fail_msg("expected '%s' in '%s'", list[i].words, message);
        sfp_learner_free(l);
    }
    remove_files();
}

/* ------------------------------------------------------------- memory, full disk */

static bool only_file_is(const char *name, bytes want)
{
    bytes found = slurp(PATH(name));
    bool same = found.n == want.n && memcmp(found.p, want.p, want.n) == 0;
    sfp__free(found.p);
    return same && count_files() == 1;
}

TEST(checkpoint_and_resume_survive_every_failing_allocation)
{
    sfp_learner_options o = small_options();
    o.fp.tasks = 0;
    o.fp.classes = 0;
    sfp_learner *l = make_learner(&o), *fresh = make_learner(&o);
    feed(l, 0, TIMES, 0); /* more classes than a new learner has room for */
    MUST(sfp_learner_name_class(l, 2, "two", &err));
    MUST(sfp_learner_checkpoint(l, PATH("c"), "x", &err));
    bytes good = slurp(PATH("c")), empty = image_of(fresh), now;
    assert_true(FAIL_EACH_ALLOCATION(sfp_learner_checkpoint(l, PATH("c"), "x", told), only_file_is("c", good)) > 0);
    now = slurp(PATH("c"));
    assert_same_bytes(good, now, "PATH");
    sfp__free(now.p);
    assert_int_equal(count_files(), 2);
    int failures = 0;
    for (long k = 0, done = 0; !done; k++) {
        unsigned long before = sfp__mem_count();
        char *position = NULL;
        sfp__mem_fail_at(k);
        sfp_status s = sfp__learner_resume(fresh, PATH("c"), &position, NULL, NULL);
        sfp__mem_fail_at(-1);
        done = sfp__mem_count() - before <= (unsigned long)k;
        if (s != SFP_OK) {
            failures++;
            assert_int_equal(s, SFP_ENOMEM);
            assert_null(position);
            now = image_of(fresh);
            assert_same_bytes(empty, now, "a learner after a failed resume");
            sfp__free(now.p);
        } else {
            assert_true(done || k < 3); /* looking for leftovers is done without, when there is no memory */
        }
        sfp__free(position);
        if (s == SFP_OK && !done) {
            sfp_learner_free(fresh);
            fresh = make_learner(&o);
        }
    }
    assert_true(failures > 6);
    now = image_of(fresh);
    bytes same = image_of(l);
    assert_same_bytes(same, now, "the resumed learner");
    bytes all[] = {good, empty, now, same};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sfp__free(all[i].p);
    sfp_learner_free(l);
    sfp_learner_free(fresh);
    remove_files();
}

TEST(a_full_disk_leaves_the_last_good_one)
{
    sfp_learner_options o = small_options();
    sfp_learner *l = with_checkpoint(&o);
    feed(l, 3, 4, 0);
    MUST(sfp_learner_checkpoint(l, PATH("c"), "four", &err));
    bytes last = slurp(PATH("c")), old = slurp(PATH("c.old")), now;
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    feed(l, 4, 5, 0);
    for (size_t n = 0; n < last.n; n += last.n / 7) {
        small = (struct rlimit){.rlim_cur = n, .rlim_max = limit.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        sfp_status s = sfp_learner_checkpoint(l, PATH("c"), "five", &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_int_equal(s, SFP_EIO);
        assert_non_null(strstr(err.message, "/c: cannot write"));
        now = slurp(PATH("c"));
        assert_same_bytes(last, now, "PATH");
        sfp__free(now.p);
        now = slurp(PATH("c.old"));
        assert_same_bytes(old, now, "PATH.old");
        sfp__free(now.p);
        assert_int_equal(count_files(), 2);
    }
    (void)signal(SIGXFSZ, handler);
    MUST(sfp_learner_checkpoint(l, PATH("c"), "five", &err));
    sfp__free(last.p);
    sfp__free(old.p);
    sfp_learner_free(l);
    remove_files();
}

TEST(paths_that_cannot_be_written_are_told)
{
    sfp_learner_options o = small_options();
    sfp_learner *l = with_checkpoint(&o);
    assert_int_equal(sfp_learner_checkpoint(l, PATH("nowhere/c"), "", &err), SFP_ENOTFOUND);
    assert_int_equal(sfp_learner_checkpoint(l, dir, "", &err), SFP_EINVAL);
    assert_int_equal(sfp_learner_checkpoint(l, PATH("c"), "not UTF-8: \xff", &err), SFP_EINVAL);
    MUST(resume(l, NULL, NULL));
    sfp_learner_free(l);
    remove_files();
}
