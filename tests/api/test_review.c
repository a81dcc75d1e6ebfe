/* What a person should look at: judgements of learned samples, suspects, and the queue of samples without a label (streamfp.h, part 6). */
#include "world.h"

#include <math.h>

AROUND_EACH(make_directory, remove_directory)

enum { DIM = 6, N = 60 };

static float rows[N][DIM];
static int32_t labels[N];

/* Two clusters per class along the axes; the last sample of the first class has the label of the second. */
static void make_rows(void)
{
    for (int i = 0; i < N; i++) {
        labels[i] = i % CLASSES;
        for (int k = 0; k < DIM; k++)
            rows[i][k] = (k % CLASSES == labels[i] ? 3.0F : 0) + 0.1F * (float)((i * (7 + k)) % 11);
    }
    labels[N - CLASSES] = 1;
}

static sfp_engine *feature_engine(void)
{
    sfp_engine *e = NULL;
    MUST(sfp_engine_open("features:6", &one_thread, &e, &err));
    return keep_engine(e);
}

static void images_of(int first, int count, sfp_image *out)
{
    for (int i = 0; i < count; i++)
        out[i] = (sfp_image){.format = SFP_IMAGE_FEATURES, .width = DIM, .data = rows[first + i]};
}

static sfp_learner *learn(sfp_engine *e, const char *method, int n)
{
    sfp_learner *l = learner_of(e, SETTINGS("method", method));
    make_rows();
    for (int i = 0; i < n; i++) {
        sfp_sample s = {.label = labels[i], .id = (uint64_t)i};
        images_of(i, 1, &s.image);
        MUST(sfp_learner_offer(l, 1, &s, NULL, &err));
    }
    return l;
}

/* Copies the features that a run gives for all samples. */
static float *features_of(sfp_predictor *p)
{
    float *out = kept_malloc(sizeof rows);
    sfp_image images[N];
    sfp_prediction answers[N];
    images_of(0, N, images);
    MUST(sfp_predictor_run(p, N, images, answers, &err));
    assert_int_equal(sfp_predictor_feature_dim(p), DIM);
    memcpy(out, sfp_predictor_features(p), sizeof rows);
    return out;
}

TEST(a_judgement_is_the_answer_of_a_learner_that_forgot_the_sample)
{
    sfp_engine *e = feature_engine();
    sfp_learner *l = learn(e, "ncm", N), *other = learn(e, "ncm", N);
    sfp_predictor *p = predictor_of(l), *q = predictor_of(other);
    sfp_prediction judged[N], answer;
    float *x = features_of(p);
    MUST(sfp_predictor_judge(p, N, x, labels, judged, &err));
    for (int i = 0; i < N; i += 5) {
        sfp_sample s = {.label = labels[i], .id = (uint64_t)i};
        images_of(i, 1, &s.image);
        MUST(sfp_learner_forget(other, 1, &s, &err));
        MUST(sfp_predictor_run(q, 1, &s.image, &answer, &err));
        assert_int_equal(judged[i].label, answer.label);
        assert_true(fabsf(judged[i].probability - answer.probability) < 1e-5F);
        assert_true(fabsf(judged[i].own - expf(sfp_predictor_scores(q)[labels[i]])) < 1e-5F);
        MUST(sfp_learner_offer(other, 1, &s, NULL, &err));
    }
}

TEST(a_wrong_label_is_the_first_suspect)
{
    static const char *const methods[] = {"ncm", "slda", "ridge"};
    for (int m = 0; m < 3; m++) {
        KEPT_IN_BLOCK;
        sfp_predictor *p = predictor_of(learn(feature_engine(), methods[m], N));
        sfp_prediction judged[N];
        int32_t found[N];
        MUST(sfp_predictor_judge(p, N, features_of(p), labels, judged, &err));
        assert_int_equal(sfp_suspects(N, labels, judged, N, found), 1);
        assert_int_equal(found[0], N - CLASSES);
        assert_int_equal(judged[found[0]].label, 0);
        assert_true(judged[found[0]].probability > judged[found[0]].own);
        assert_int_equal(sfp_suspects(N, labels, judged, 0, found), 0);
    }
}

TEST(a_state_is_judged_if_its_sums_are_read)
{
    sfp_engine *e = feature_engine();
    sfp_learner *l = learn(e, "ridge", N);
    sfp_prediction judged[N], direct[N];
    sfp_predictor_options o = small_predictor;
    sfp_predictor *p = predictor_of(l), *blind = NULL, *opened = NULL;
    const char *path = in_directory("state.safetensors");
    MUST(sfp_learner_save(l, path, &err));
    MUST(sfp_predictor_open(e, path, &o, &blind, &err));
    (void)keep_predictor(blind);
    o.sums = 1;
    MUST(sfp_predictor_open(e, path, &o, &opened, &err));
    (void)keep_predictor(opened);
    float *x = features_of(p);
    REFUSED(sfp_predictor_judge(blind, N, x, labels, judged, &err), SFP_EUNSUPPORTED, "only for prediction");
    MUST(sfp_predictor_judge(opened, N, x, labels, judged, &err));
    MUST(sfp_predictor_judge(p, N, x, labels, direct, &err));
    for (int i = 0; i < N; i++) {
        assert_int_equal(judged[i].label, direct[i].label);
        assert_true(judged[i].own == direct[i].own);
    }
}

TEST(the_queue_asks_for_the_class_with_the_fewest_samples)
{
    sfp_predictor *p = predictor_of(learn(feature_engine(), "ridge", 32)); /* 11, 11 and 10 samples */
    sfp_queued queue[N];
    int found = -1, count[CLASSES] = {11, 11, 10};
    float *x = features_of(p);
    MUST(sfp_predictor_queue(p, N - 33, x + (size_t)33 * DIM, N, queue, &found, &err));
    assert_int_equal(found, N - 33);
    for (int i = 0; i < 9; i++) { /* there are 9 of each class */
        int c = queue[i].label;
        for (int k = 0; k < CLASSES; k++)
            assert_true(count[c] <= count[k]);
        count[c]++;
        assert_true(queue[i].score > 0 && (i == 0 || queue[i].score <= queue[i - 1].score));
        assert_true(queue[i].probability > 0 && queue[i].reason >= 0 && queue[i].reason <= SFP_REASON_DIVERSE);
    }
    MUST(sfp_predictor_queue(p, 0, NULL, 5, queue, &found, &err));
    assert_int_equal(found, 0);
}

TEST(before_the_first_label_the_queue_is_diverse)
{
    sfp_predictor *p = predictor_of(learn(feature_engine(), "ridge", 0));
    sfp_queued queue[CLASSES];
    bool seen[CLASSES] = {false};
    int found;
    make_rows();
    MUST(sfp_predictor_queue(p, N - CLASSES, rows[0], CLASSES, queue, &found, &err));
    assert_int_equal(found, CLASSES);
    for (int i = 0; i < CLASSES; i++) {
        seen[labels[queue[i].index]] = true;
        assert_int_equal(queue[i].label, -1);
        assert_int_equal(queue[i].reason, SFP_REASON_DIVERSE);
    }
    assert_true(seen[0] && seen[1] && seen[2]);
}

TEST(wrong_uses_are_refused)
{
    sfp_engine *e = feature_engine();
    sfp_prediction judged[N];
    sfp_queued queue[1];
    sfp_predictor *ranpac = predictor_of(learn(e, "ranpac", 12)), *ncm = predictor_of(learn(e, "ncm", 12));
    int found;
    int32_t other = CLASSES + 5;
    REFUSED(sfp_predictor_judge(ranpac, 1, rows[0], labels, judged, &err), SFP_EUNSUPPORTED, "ranpac");
    MUST(sfp_predictor_judge(ncm, 1, rows[0], &other, judged, &err)); /* no sample has this class any more */
    assert_int_equal(judged[0].label, -1);
    REFUSED(sfp_predictor_judge(ncm, -1, rows[0], labels, judged, &err), SFP_EINVAL, "count");
    REFUSED(sfp_predictor_queue(ncm, 1, rows[0], -1, queue, &found, &err), SFP_EINVAL, "limit");
    REFUSED(sfp_predictor_queue(ncm, 1, NULL, 1, queue, &found, &err), SFP_EINVAL, "features");
}
