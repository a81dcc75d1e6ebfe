/* The library in processes that round otherwise, fork, or load and unload it. */
#include "world.h"

#include <fenv.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

AROUND_EACH(make_directory, remove_directory)

/* A state of a learner that was created, offered and saved while the thread rounds in this way. */
static void save_rounded(int mode, const char *name)
{
    KEPT_IN_BLOCK;
    sfp_engine *e = NULL;
    sfp_learner *l = NULL;
    const sfp_engine_options two = {.size = sizeof two, .threads = 2};
    sfp_settings *s = settings_of(NULL);
    const char *path = in_directory(name);
    assert_int_equal(fesetround(mode), 0);
    MUST(sfp_engine_open_random(1, &two, &e, &err));
    MUST(sfp_learner_create(keep_engine(e), s, &l, &err));
    offer_batches(keep_learner(l), 0, 12);
    MUST(sfp_learner_save(l, path, &err));
    assert_int_equal(fegetround(), mode);
    (void)fesetround(FE_TONEAREST);
}

TEST(results_do_not_depend_on_the_rounding_mode_of_the_caller)
{
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    save_rounded(FE_TONEAREST, "nearest");
    for (int i = 0; i < 3; i++) {
        save_rounded(modes[i], "other");
        check_same_bytes(in_directory("nearest"), in_directory("other"));
    }
}

#if defined(__x86_64__)
/* A program that is linked with -ffast-math flushes subnormal numbers to zero, and some trap divisions by zero. */
TEST(the_floating_point_environment_of_the_caller_is_restored)
{
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    save_rounded(FE_TONEAREST, "flushed");
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    assert_int_equal(after & 0x8040, 0x8040);
    save_rounded(FE_TONEAREST, "nearest");
    check_same_bytes(in_directory("nearest"), in_directory("flushed"));
}
#endif

/* What the child of fork checks; returns the number of the first check that fails. */
static int use_in_child(sfp_engine *e, sfp_learner *l, sfp_predictor *p, sfp_head *h)
{
    sfp_error why;
    sfp_sample s = flat_sample(0, 1);
    sfp_prediction a;
    sfp_learner *other = NULL;
    float row[2] = {1, 2};
    if (sfp_predictor_run(p, 1, &s.image, &a, &why) != SFP_EUNSUPPORTED || !strstr(why.message, "open it after fork"))
        return 1;
    if (sfp_learner_offer(l, 1, &s, NULL, &why) != SFP_EUNSUPPORTED ||
        !strstr(why.message, "the engine was opened by another process"))
        return 2;
    if (sfp_learner_save(l, in_directory("child"), &why) != SFP_EUNSUPPORTED)
        return 3;
    if (sfp_learner_create(e, NULL, &other, &why) != SFP_EUNSUPPORTED)
        return 4;
    if (sfp_head_learn(h, 1, row, 0, &s.label, NULL, &why) != SFP_EUNSUPPORTED)
        return 5;
    sfp_head_free(h);
    sfp_predictor_free(p);
    sfp_learner_free(l);
    sfp_engine_close(e);
    if (sfp_engine_open_random(1, NULL, &e, &why) || sfp_learner_create(e, NULL, &l, &why) ||
        sfp_learner_offer(l, 1, &s, NULL, &why))
        return 6;
    sfp_learner_free(l);
    sfp_engine_close(e);
    return 0;
}

TEST(a_child_of_fork_is_refused_the_threads_of_its_parent)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* a child may inherit a lock of the sanitizer from a thread that begins, and wait for it forever */
#endif
    sfp_engine *e = NULL;
    sfp_head *h = NULL;
    sfp_predictor *p = NULL;
    const sfp_engine_options two = {.size = sizeof two, .threads = 2};
    const sfp_predictor_options two_predict = {.size = sizeof two_predict, .threads = 2};
    const sfp_head_options two_solve = {.size = sizeof two_solve, .threads = 2};
    MUST(sfp_engine_open_random(1, &two, &e, &err));
    sfp_learner *l = learner_of(keep_engine(e), settings_of(NULL));
    offer_batches(l, 0, 1);
    MUST(sfp_predictor_create(l, &two_predict, &p, &err));
    (void)keep_predictor(p);
    MUST(sfp_head_create("ncm", 2, &two_solve, &h, &err));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)alarm(60); /* ends a child that hangs */
        _exit(use_in_child(e, l, p, h));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    sfp_head_free(h);
    offer_batches(l, 1, 2); /* the parent goes on */
}
