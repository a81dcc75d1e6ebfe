/* What learners with closed-form heads save: the same after a resume, nothing of samples that were forgotten. Samples are features, so
 * that their vectors are known. */
#include "world.h"

#include <math.h>

AROUND_EACH(make_directory, remove_directory)

enum { DIM = 70, STREAM = 120 }; /* more than one block of a triangle; more than one group of recent samples */

/* Methods that forget, the last of them by default, and then one that does not. */
static const char *const methods[] = {"ncm", "slda", "ridge", NULL, "ranpac"};
enum { FORGETTING = 4, METHODS = sizeof methods / sizeof *methods };

static sfp_learner *learner_of_features(int method)
{
    sfp_engine *e = NULL;
    MUST(sfp_engine_open(kept_print("features:%d", DIM), &one_thread, &e, &err));
    return learner_of(keep_engine(e), methods[method] ? SETTINGS("method", methods[method]) : settings_of(NULL));
}

/* Sample i: around the mean of its class, with values that occur in no other sample. */
static sfp_sample sample_at(int i)
{
    float *x = kept_malloc(DIM * sizeof *x);
    for (int j = 0; j < DIM; j++)
        x[j] = sinf((float)(i % CLASSES * DIM + j)) + 0.3f * sinf(1.7f * (float)(i * DIM + j));
    return (sfp_sample){
        .image = {.format = SFP_IMAGE_FEATURES, .width = DIM, .data = x}, .label = i % CLASSES, .id = (uint64_t)i};
}

static void learn(sfp_learner *l, int first, int end)
{
    for (int i = first; i < end; i++) {
        sfp_sample s = sample_at(i);
        MUST(sfp_learner_offer(l, 1, &s, NULL, &err));
    }
}

/* Checkpoint and state, and a checkpoint after the state. */
static void save(sfp_learner *l, const char *name)
{
    MUST(sfp_learner_checkpoint(l, in_directory(kept_print("%s.checkpoint", name)), "here", &err));
    MUST(sfp_learner_save(l, in_directory(kept_print("%s.state", name)), &err));
    MUST(sfp_learner_checkpoint(l, in_directory(kept_print("%s.later", name)), "here", &err));
}

static const char *const saved[] = {"checkpoint", "state", "later"};

static void check_same_saved(const char *a, const char *b)
{
    for (int i = 0; i < 3; i++)
        check_same_bytes(in_directory(kept_print("%s.%s", a, saved[i])), in_directory(kept_print("%s.%s", b, saved[i])));
}

TEST(closed_form_heads_that_resume_end_in_the_same_bytes)
{
    static const int stops[] = {1, 31, 45, 64, 100};
    for (int m = 0; m < METHODS; m++)
        for (size_t k = 0; k < sizeof stops / sizeof *stops; k++) {
            KEPT_IN_BLOCK;
            sfp_learner *l = learner_of_features(m), *after = learner_of_features(m);
            learn(l, 0, stops[k]);
            save(l, "stop"); /* its state must not change what follows */
            learn(l, stops[k], STREAM);
            save(l, "whole");
            MUST(sfp_learner_resume(after, in_directory("stop.checkpoint"), NULL, &err));
            learn(after, stops[k], STREAM);
            save(after, "resumed");
            check_same_saved("whole", "resumed");
        }
}

/* Searches for any four values of the sample, as floats or as doubles. */
static void check_absent(const char *path, const sfp_sample *s)
{
    const float *x = s->image.data;
    size_t size;
    const uint8_t *bytes = bytes_of(path, &size);
    for (int from = 0; from + 4 <= DIM; from += 4) {
        double wide[4];
        for (int j = 0; j < 4; j++)
            wide[j] = (double)x[from + j];
        if (memmem(bytes, size, x + from, 4 * sizeof *x) || memmem(bytes, size, wide, sizeof wide))
            fail_msg("%s contains values from %d on of a sample that was forgotten", path, from);
    }
}

static void check_near(sfp_learner *l, sfp_learner *never)
{
    sfp_predictor *p = predictor_of(l), *q = predictor_of(never);
    for (int i = 0; i < 12; i++) {
        sfp_sample s = sample_at(1000 + i);
        sfp_prediction a, b;
        MUST(sfp_predictor_run(p, 1, &s.image, &a, &err));
        MUST(sfp_predictor_run(q, 1, &s.image, &b, &err));
        assert_int_equal(a.label, b.label);
        assert_true(fabsf(a.probability - b.probability) < 1e-5f);
    }
}

TEST(nothing_of_a_forgotten_sample_is_saved)
{
    static const int learned[] = {5, 31, 40, STREAM}; /* samples before the one that is forgotten */
    for (int m = 0; m < FORGETTING; m++)
        for (int later = 0; later < 40; later += 13)
            for (size_t k = 0; k < sizeof learned / sizeof *learned; k++) {
                KEPT_IN_BLOCK;
                sfp_learner *l = learner_of_features(m), *never = learner_of_features(m);
                int n = learned[k];
                sfp_sample gone = sample_at(n), wrong = gone;
                gone.label = CLASSES; /* of a class of its own, which then has no samples */
                learn(l, 0, n);
                MUST(sfp_learner_offer(l, 1, &gone, NULL, &err));
                learn(l, n + 1, n + 1 + later);
                learn(never, 0, n);
                learn(never, n + 1, n + 1 + later);
                save(l, "with");
                MUST(sfp_learner_forget(l, 1, &gone, &err));
                save(l, "without");
                for (int i = 0; i < 3; i++)
                    check_absent(in_directory(kept_print("without.%s", saved[i])), &gone);
                check_near(l, never);
                MUST(sfp_learner_offer(l, 1, &gone, NULL, &err)); /* the same for a label that was wrong */
                MUST(sfp_learner_relabel(l, &gone, wrong.label, &err));
                MUST(sfp_learner_forget(l, 1, &wrong, &err));
                save(l, "without");
                for (int i = 0; i < 3; i++)
                    check_absent(in_directory(kept_print("without.%s", saved[i])), &gone);
                check_near(l, never);
            }
}

TEST(a_failed_forget_changes_nothing)
{
    for (int m = 0; m < FORGETTING; m++) {
        KEPT_IN_BLOCK;
        sfp_learner *l = learner_of_features(m);
        sfp_sample some[3] = {sample_at(3), sample_at(4), sample_at(5)}, other = sample_at(7);
        learn(l, 0, STREAM);
        other.label = CLASSES;
        MUST(sfp_learner_offer(l, 1, &other, NULL, &err));
        MUST(sfp_learner_checkpoint(l, in_directory("before"), "", &err));
        some[1].label = some[2].label = CLASSES; /* one more than were learned */
        REFUSED(sfp_learner_forget(l, 3, some, &err), SFP_ENOTFOUND, "label 3");
        some[2].label = CLASSES + 1;
        REFUSED(sfp_learner_forget(l, 3, some, &err), SFP_ENOTFOUND, "label 4");
        REFUSED(sfp_learner_relabel(l, &some[2], 50, &err), SFP_ENOTFOUND, "label 4");
        REFUSED(sfp_learner_relabel(l, &some[0], -1, &err), SFP_EINVAL, "label -1");
        assert_int_equal(sfp_learner_classes(l), CLASSES + 1);
        MUST(sfp_learner_checkpoint(l, in_directory("after"), "", &err));
        check_same_bytes(in_directory("before"), in_directory("after"));
    }
}
