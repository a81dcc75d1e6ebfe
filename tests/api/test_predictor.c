/* Predictors (streamfp.h, part 6): answers, and classes that fit them, while the learner learns. */
#include "world.h"

#include <pthread.h>
#include <stdatomic.h>

AROUND_EACH(make_directory, remove_directory)

static const char *const heads[][2] = {{"preset", "paper"}, {"preset", "best"},  {"method", "ncm"},
                                       {"method", "slda"},  {"method", "ridge"}, {"method", "ranpac"}};
enum { HEADS = sizeof heads / sizeof *heads };

static sfp_learner *learner_with(sfp_engine *e, int head)
{
    return learner_of(e, SETTINGS(heads[head][0], heads[head][1]));
}

static const char *copy_scores(sfp_predictor *p, float out[BATCH][CLASSES])
{
    static const uint8_t black[SIDE * SIDE * 3];
    sfp_image images[BATCH];
    sfp_prediction answers[BATCH];
    for (int i = 0; i < BATCH; i++)
        images[i] = (sfp_image){.width = SIDE, .height = SIDE, .data = black};
    if (sfp_predictor_run(p, BATCH, images, answers, NULL))
        return "the run failed";
    if (sfp_predictor_classes(p) != CLASSES)
        return "another number of classes";
    memcpy(out, sfp_predictor_scores(p), sizeof(float[BATCH][CLASSES]));
    return NULL;
}

TEST(before_the_first_sample_there_is_no_class)
{
    for (int h = 0; h < HEADS; h++) {
        KEPT_IN_BLOCK;
        sfp_predictor *p = predictor_of(learner_with(random_engine(), h));
        sfp_sample s = flat_sample(0, 1);
        sfp_prediction a;
        assert_int_equal(sfp_predictor_classes(p), 0);
        assert_null(sfp_predictor_scores(p));
        MUST(sfp_predictor_run(p, 1, &s.image, &a, &err));
        assert_int_equal(a.label, -1);
        assert_int_equal(a.status, SFP_OK);
        assert_true(isnan(a.probability));
        assert_int_equal(sfp_predictor_timestamps(p), 0);
        assert_null(sfp_predictor_class_name(p, 0));
        assert_int_equal(sfp_predictor_class_seen(p, 0), 0);
    }
}

TEST(answers_have_class_names_and_probabilities)
{
    for (int h = 0; h < HEADS; h++) {
        KEPT_IN_BLOCK;
        sfp_learner *l = learner_with(random_engine(), h);
        sfp_predictor *p = predictor_of(l);
        sfp_sample s[2] = {flat_sample(0, 1), flat_sample(1, 2)};
        const sfp_image images[2] = {s[0].image, s[1].image};
        sfp_prediction a[2];
        offer_batches(l, 0, 3);
        MUST(sfp_learner_set_class_name(l, 1, "one", &err));
        MUST(sfp_predictor_run(p, 2, images, a, &err));
        assert_int_equal(sfp_predictor_classes(p), CLASSES);
        assert_int_equal(sfp_predictor_timestamps(p), 3);
        assert_string_equal(sfp_predictor_class_name(p, 1), "one");
        assert_null(sfp_predictor_class_name(p, 0));
        assert_true((sfp_predictor_features(p) == NULL) == (h == 0)); /* fingerprints have none */
        for (int i = 0; i < 2; i++) {
            const float *row = sfp_predictor_scores(p) + i * CLASSES;
            double sum = 0;
            for (int c = 0; c < CLASSES; c++) {
                sum += exp((double)row[c]);
                assert_true(row[c] <= row[a[i].label]);
                assert_int_equal(sfp_predictor_class_seen(p, c), 1);
            }
            assert_true(fabs(sum - 1) < 1e-3);
            assert_true(fabs((double)a[i].probability - exp((double)row[a[i].label])) < 1e-6);
        }
    }
}

TEST(an_unreadable_image_fails_alone)
{
    for (int h = 0; h < HEADS; h++) {
        KEPT_IN_BLOCK;
        sfp_learner *l = learner_with(random_engine(), h);
        sfp_predictor *p = predictor_of(l);
        sfp_sample s = flat_sample(1, 5);
        const sfp_image images[] = {s.image, {.format = SFP_IMAGE_FILE, .data = "none.jpg"}, {.width = 3}, s.image, s.image};
        sfp_prediction a[5], alone;
        offer_batches(l, 0, 2);
        MUST(sfp_predictor_run(p, 1, &s.image, &alone, &err));
        float first[CLASSES];
        memcpy(first, sfp_predictor_scores(p), sizeof first);
        MUST(sfp_predictor_run(p, 5, images, a, &err));
        assert_int_equal(a[1].status, SFP_ENOTFOUND);
        assert_int_equal(a[2].status, SFP_EINVAL);
        assert_int_equal(a[1].label, -1);
        assert_non_null(strstr(sfp_predictor_image_error(p, 1), "none.jpg"));
        assert_non_null(strstr(sfp_predictor_image_error(p, 2), "image 2: data is NULL"));
        assert_string_equal(sfp_predictor_image_error(p, 0), "");
        assert_string_equal(sfp_predictor_image_error(p, 5), "");
        for (int i = 0; i < 5; i += 3) {
            assert_int_equal(a[i].status, SFP_OK);
            assert_int_equal(a[i].label, alone.label);
            for (int c = 0; c < CLASSES; c++)
                assert_true(fabs((double)(sfp_predictor_scores(p)[i * CLASSES + c] - first[c])) < 1e-3);
        }
    }
}

TEST(a_refresh_makes_new_classes_known_without_an_image)
{
    for (int h = 0; h < HEADS; h++) {
        KEPT_IN_BLOCK;
        sfp_learner *l = learner_with(random_engine(), h);
        sfp_predictor *p = predictor_of(l);
        offer_batches(l, 0, 1);
        assert_int_equal(sfp_predictor_classes(p), 0); /* still the snapshot of its creation */
        MUST(sfp_predictor_refresh(p, &err));
        assert_int_equal(sfp_predictor_classes(p), CLASSES);
        assert_int_equal(sfp_predictor_timestamps(p), 1);
        assert_null(sfp_predictor_scores(p));
    }
}

/* Settings that a state must contain, because predictions depend on them. */
TEST(a_saved_state_answers_as_its_learner_did)
{
    sfp_settings *const list[] = {TRAINED("tasks", "1", "classes", "3"),
                                  TRAINED("attune", "off"),
                                  TRAINED("prefix", "raw", "attune-residual", "on", "attune-topk", "2", "prompt-layers", "1-3"),
                                  TRAINED("resize", "crop", "normalise", "imagenet"),
                                  TRAINED("pool-kind", "l2p", "prompt-layers", "3-3"),
                                  TRAINED("pool-kind", "dualprompt"),
                                  SETTINGS("preset", "best"),
                                  SETTINGS("method", "ncm", "taps", "2"),
                                  SETTINGS("method", "slda", "resize", "squash"),
                                  SETTINGS("method", "ridge", "taps", "2", "tap-mean", "on"),
                                  SETTINGS("method", "ranpac", "normalise", "none")};
    for (size_t k = 0; k < sizeof list / sizeof *list; k++) {
        KEPT_IN_BLOCK;
        sfp_engine *e = random_engine();
        sfp_learner *l = learner_of(e, list[k]);
        sfp_predictor *own = NULL, *opened = NULL;
        offer_batches(l, 0, 3);
        MUST(sfp_learner_set_class_name(l, 2, "two", &err));
        own = predictor_of(l);
        MUST(sfp_learner_save(l, in_directory("state.safetensors"), &err));
        MUST(sfp_predictor_open(e, directory, &small_predictor, &opened, &err));
        (void)keep_predictor(opened);
        assert_int_equal(sfp_predictor_classes(opened), CLASSES);
        assert_int_equal(sfp_predictor_timestamps(opened), 3);
        assert_string_equal(sfp_predictor_class_name(opened, 2), "two");
        assert_null(sfp_predictor_class_name(opened, 1));
        sfp_image images[9]; /* more than a pass has */
        sfp_prediction a[9], b[9];
        for (int i = 0; i < 9; i++) {
            images[i] = flat_sample(i, (uint64_t)i).image;
            images[i].height = SIDE - i; /* resized */
        }
        MUST(sfp_predictor_run(own, 9, images, a, &err));
        MUST(sfp_predictor_run(opened, 9, images, b, &err));
        assert_memory_equal(a, b, sizeof a);
        assert_memory_equal(sfp_predictor_scores(own), sfp_predictor_scores(opened), sizeof(float[9][CLASSES]));
    }
}

/* An image whose pixels are random around a shade. */
static sfp_sample noisy_sample(int32_t label, uint32_t seed)
{
    sfp_sample s = flat_sample(label, 0);
    uint8_t *rgb = (uint8_t *)(uintptr_t)s.image.data;
    for (size_t i = 0; i < (size_t)SIDE * SIDE * 3; i++) {
        seed = seed * 1664525 + 1013904223;
        rgb[i] = (uint8_t)(rgb[i] + (seed >> 24) % 40);
    }
    return s;
}

/* Learns from 400 images of two classes. */
static sfp_learner *noisy_learner(sfp_engine *e, const char *method)
{
    sfp_learner *l = learner_of(e, SETTINGS("method", method));
    for (uint32_t k = 0; k < 100; k++) {
        KEPT_IN_BLOCK;
        sfp_sample s[BATCH];
        for (uint32_t i = 0; i < BATCH; i++)
            s[i] = noisy_sample((int32_t)(i % 2), k * BATCH + i);
        MUST(sfp_learner_offer(l, BATCH, s, NULL, &err));
    }
    return l;
}

TEST(images_of_other_classes_have_a_higher_score_for_none_of_the_classes)
{
    static const struct {
        const char *method;
        bool scored;
    } cases[] = {{"ncm", false}, {"slda", true}, {"ridge", true}};
    for (size_t h = 0; h < sizeof cases / sizeof *cases; h++) {
        sfp_engine *e = random_engine();
        sfp_learner *l = noisy_learner(e, cases[h].method);
        sfp_predictor *p = predictor_of(l), *opened = NULL;
        MUST(sfp_learner_save(l, in_directory("state.safetensors"), &err));
        MUST(sfp_predictor_open(e, directory, &small_predictor, &opened, &err));
        (void)keep_predictor(opened);
        const sfp_image images[] = {noisy_sample(1, 99991).image, {.data = NULL}, flat_sample(2, 0).image};
        sfp_prediction a[3];
        assert_null(sfp_predictor_unknown(opened));
        MUST(sfp_predictor_run(opened, 3, images, a, &err));
        const float *unknown = sfp_predictor_unknown(opened);
        assert_true(isnan(unknown[1]));
        assert_true(cases[h].scored ? unknown[0] >= 0 && unknown[0] < unknown[2] && unknown[2] > 0.95f && unknown[2] <= 1
                                    : isnan(unknown[0]) && isnan(unknown[2]));
        float of_state = unknown[2];
        MUST(sfp_predictor_run(p, 3, images, a, &err));
        float of_learner = sfp_predictor_unknown(p)[2];
        assert_true(cases[h].scored ? of_learner == of_state : isnan(of_learner));
        offer_batches(l, 0, 1);
        MUST(sfp_predictor_run(p, 3, images, a, &err));
        assert_int_equal(isnan(sfp_predictor_unknown(p)[2]), !cases[h].scored);
    }
}

TEST(the_backbone_alone_gives_features)
{
    sfp_engine *e = random_engine();
    sfp_predictor *p = NULL;
    sfp_sample s[2] = {flat_sample(0, 1), flat_sample(1, 2)};
    const sfp_image images[3] = {s[0].image, {.data = NULL}, s[1].image};
    sfp_prediction a[3];
    MUST(sfp_predictor_open_backbone(e, NULL, &small_predictor, &p, &err));
    (void)keep_predictor(p);
    assert_int_equal(sfp_predictor_classes(p), 0);
    assert_null(sfp_predictor_features(p));
    MUST(sfp_predictor_run(p, 3, images, a, &err));
    assert_int_equal(a[0].label, -1);
    assert_int_equal(a[1].status, SFP_EINVAL);
    assert_null(sfp_predictor_scores(p));
    assert_null(sfp_predictor_unknown(p));
    const float *f = sfp_predictor_features(p);
    float last[64];
    memcpy(last, f + 2 * 64, sizeof last);
    MUST(sfp_predictor_refresh(p, &err));
    MUST(sfp_predictor_run(p, 1, &images[2], a, &err));
    assert_memory_equal(sfp_predictor_features(p), last, sizeof last);
    for (int i = 0; i < 64; i++)
        assert_true(isfinite(last[i]));
}

TEST(features_may_have_several_taps)
{
    sfp_engine *e = random_engine();
    sfp_predictor *one = NULL, *p = NULL;
    sfp_sample s[2] = {flat_sample(0, 1), flat_sample(1, 2)};
    const sfp_image images[3] = {s[0].image, {.data = NULL}, s[1].image};
    sfp_prediction a[3];
    MUST(sfp_predictor_open_backbone(e, NULL, &small_predictor, &one, &err));
    (void)keep_predictor(one);
    MUST(sfp_predictor_open_backbone(e, SETTINGS("taps", "2", "tap-mean", "on"), &small_predictor, &p, &err));
    (void)keep_predictor(p);
    assert_int_equal(sfp_predictor_feature_dim(one), 64);
    assert_int_equal(sfp_predictor_feature_dim(p), 3 * 64);
    MUST(sfp_predictor_run(one, 3, images, a, &err));
    MUST(sfp_predictor_run(p, 3, images, a, &err));
    for (int i = 0; i < 3; i += 2)
        assert_memory_equal(sfp_predictor_features(p) + (size_t)(3 * i + 2) * 64, sfp_predictor_features(one) + (size_t)i * 64,
                            64 * sizeof(float));
    assert_memory_not_equal(sfp_predictor_features(p), sfp_predictor_features(one), 64 * sizeof(float));
    REFUSED(sfp_predictor_open_backbone(e, SETTINGS("taps", "9"), NULL, &p, &err), SFP_EINVAL, "taps is 9");
}

TEST(errors_of_a_predictor_are_reported)
{
    sfp_engine *e = random_engine(), *other = NULL;
    sfp_learner *l = learner_of(e, settings_of(NULL));
    sfp_predictor *p = NULL, *good = predictor_of(l);
    sfp_predictor_options o = SFP_PREDICTOR_OPTIONS_INIT;
    sfp_sample s = flat_sample(0, 1);
    sfp_prediction a;
    o.threads = 5000;
    REFUSED(sfp_predictor_create(l, &o, &p, &err), SFP_EINVAL, "threads is 5000");
    o.threads = 1;
    o.max_batch = -1;
    REFUSED(sfp_predictor_create(l, &o, &p, &err), SFP_EINVAL, "max_batch is -1");
    o.size = 0;
    REFUSED(sfp_predictor_create(l, &o, &p, &err), SFP_EINVAL, "expected sizeof(sfp_predictor_options)");
    REFUSED(sfp_predictor_create(NULL, NULL, &p, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_predictor_create(l, NULL, NULL, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_predictor_open(e, in_directory("none"), NULL, &p, &err), SFP_ENOTFOUND, "none");
    REFUSED(sfp_predictor_open(e, "README.md", NULL, &p, &err), SFP_EFORMAT, "README.md");
    REFUSED(sfp_predictor_open(NULL, "x", NULL, &p, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_predictor_open_backbone(NULL, NULL, NULL, &p, &err), SFP_EINVAL, "must not be NULL");
    offer_batches(l, 0, 1);
    MUST(sfp_learner_save(l, in_directory("s"), &err));
    MUST(sfp_engine_open_random(2, &one_thread, &other, &err));
    (void)keep_engine(other);
    REFUSED(sfp_predictor_open(other, in_directory("s"), NULL, &p, &err), SFP_EINVAL, "backbone");
    REFUSED(sfp_predictor_run(good, -1, &s.image, &a, &err), SFP_EINVAL, "count is -1");
    REFUSED(sfp_predictor_run(good, 1, NULL, &a, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_predictor_run(good, 1, &s.image, NULL, &err), SFP_EINVAL, "must not be NULL");
    MUST(sfp_predictor_run(good, 0, NULL, NULL, &err));
    assert_null(p);
    sfp_predictor_free(NULL);
}

/* --------------------------------------------------------------------------------------------------------------- threads */

/* A thread that predicts until it is stopped, and checks what must hold of every answer. */
typedef struct watcher {
    sfp_learner *learner;
    sfp_predictor *predictor;
    const float (*expected)[CLASSES]; /* NULL: any */
    atomic_bool stopped;
    atomic_int runs;
    _Atomic(const char *) fault; /* NULL: none */
} watcher;

static const char *check_answer(watcher *w)
{
    static const uint8_t black[SIDE * SIDE * 3];
    const sfp_image image = {.width = SIDE, .height = SIDE, .data = black};
    float scores[BATCH][CLASSES];
    sfp_prediction a;
    if (w->expected) {
        const char *fault = copy_scores(w->predictor, scores);
        return fault ? fault : memcmp(scores, w->expected, sizeof scores) ? "another answer" : NULL;
    }
    if (sfp_predictor_run(w->predictor, 1, &image, &a, NULL))
        return "the run failed";
    int classes = sfp_predictor_classes(w->predictor);
    uint64_t t = sfp_predictor_timestamps(w->predictor);
    /* batch k brings class k and its name, so the two tell each other */
    if ((uint64_t)classes != t)
        return "classes and timestamps are of different snapshots";
    if (a.label >= classes || (a.label < 0) != (classes == 0))
        return "the label is not one of the classes";
    for (int c = 0; c < classes; c++)
        if (!sfp_predictor_class_name(w->predictor, c) || !sfp_predictor_class_seen(w->predictor, c))
            return "a class without its name";
    if (sfp_learner_classes(w->learner) < classes)
        return "the learner has fewer classes than an earlier snapshot";
    return NULL;
}

static void *watch(void *ctx)
{
    watcher *w = ctx;
    do {
        w->fault = check_answer(w);
        atomic_fetch_add(&w->runs, 1);
    } while (!w->fault && !atomic_load(&w->stopped));
    return NULL;
}

static void stop(watcher *w, pthread_t thread)
{
    atomic_store(&w->stopped, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (w->fault)
        fail_msg("%s", w->fault);
}

TEST(classes_and_answers_fit_each_other_while_classes_appear)
{
    for (int h = 0; h < HEADS; h++) {
        KEPT_IN_BLOCK;
        sfp_learner *l = learner_with(random_engine(), h);
        watcher w = {.learner = l, .predictor = predictor_of(l)};
        pthread_t thread;
        sfp_status status = SFP_OK;
        assert_int_equal(pthread_create(&thread, NULL, watch, &w), 0);
        for (int k = 0; !status && k < 40; k++) {
            const int before = atomic_load(&w.runs);
            sfp_sample s = flat_sample(k, (uint64_t)k);
            status = sfp_learner_set_class_name(l, k, kept_print("class %d", k), &err);
            status = status ? status : sfp_learner_offer(l, 1, &s, NULL, &err);
            while (k % 10 == 0 && !w.fault && atomic_load(&w.runs) == before) /* at least one answer in between */
                sched_yield();
        }
        stop(&w, thread);
        MUST(status);
    }
}

TEST(a_predictor_answers_while_its_learner_resumes_and_loads)
{
    for (int h = 0; h < HEADS; h++) {
        KEPT_IN_BLOCK;
        sfp_learner *l = learner_with(random_engine(), h);
        float expected[BATCH][CLASSES];
        offer_batches(l, 0, 3);
        watcher w = {.learner = l, .predictor = predictor_of(l), .expected = expected};
        pthread_t thread;
        sfp_status status = SFP_OK;
        assert_null(copy_scores(w.predictor, expected));
        MUST(sfp_learner_save(l, in_directory("state"), &err));
        assert_int_equal(pthread_create(&thread, NULL, watch, &w), 0);
        for (int i = 0; !status && i < 12; i++) { /* all of these leave the state as it is */
            status = sfp_learner_checkpoint(l, in_directory("checkpoint"), "", &err);
            status = status ? status : sfp_learner_save(l, in_directory("again"), &err);
            status = status ? status : sfp_learner_resume(l, in_directory("checkpoint"), NULL, &err);
            if (h == 0) /* a closed-form head resumes but does not load */
                status = status ? status : sfp_learner_load(l, in_directory("state"), &err);
        }
        stop(&w, thread);
        MUST(status);
    }
}

/* A prediction of head ranpac chooses its strength, which is part of a checkpoint. */
TEST(a_prediction_does_not_change_a_checkpoint_that_is_being_written)
{
    sfp_learner *l = learner_of(random_engine(), SETTINGS("method", "ranpac"));
    watcher w = {.learner = l, .predictor = predictor_of(l)};
    pthread_t thread;
    sfp_status status = SFP_OK;
    assert_int_equal(pthread_create(&thread, NULL, watch, &w), 0);
    for (int k = 0; !status && !w.fault && k < 24; k++) {
        KEPT_IN_BLOCK;
        const sfp_sample s = flat_sample(k, (uint64_t)k);
        status = sfp_learner_set_class_name(l, k, kept_print("class %d", k), &err);
        status = status ? status : sfp_learner_offer(l, 1, &s, NULL, &err);
        status = status ? status : sfp_learner_checkpoint(l, in_directory("checkpoint"), "", &err);
    }
    stop(&w, thread);
    MUST(status);
}

TEST(a_run_without_images_or_classes_has_no_answers)
{
    sfp_engine *e = random_engine();
    sfp_prediction answer;
    const sfp_sample sample = flat_sample(0, 0);
    for (int i = 0; i < 2; i++) {
        sfp_predictor *p = predictor_of(learner_of(e, SETTINGS("preset", i ? "best" : "paper")));
        MUST(sfp_predictor_run(p, 0, NULL, NULL, &err));
        assert_null(sfp_predictor_scores(p));
        MUST(sfp_predictor_run(p, 1, &sample.image, &answer, &err));
        assert_int_equal(answer.label, -1);
    }
}

TEST(calls_on_no_predictor_are_refused)
{
    const sfp_image image = {.format = SFP_IMAGE_GREY, .width = 1, .height = 1, .data = "x"};
    sfp_prediction a;
    REFUSED(sfp_predictor_run(NULL, 1, &image, &a, &err), SFP_EINVAL, "predictor must not be NULL");
    REFUSED(sfp_predictor_refresh(NULL, &err), SFP_EINVAL, "predictor must not be NULL");
}
