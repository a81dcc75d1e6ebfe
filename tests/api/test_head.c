/* Part 14 of streamfp.h: heads on features of the caller. */
#include "run_world.h"

#include <math.h>

AROUND_EACH(make_run_world, remove_directory)

enum { DIM = 12, KINDS = 3, ROWS = 240 };

KEEP_BY(keep_head, sfp_head, sfp_head_free)

static const char *const methods[] = {"ridge", "slda", "ncm", "ranpac"};

static sfp_head *head_of(const char *method, int dim, const sfp_head_options *o)
{
    sfp_head *h = NULL;
    MUST(sfp_head_create(method, dim, o, &h, &err));
    return keep_head(h);
}

/* Rows of three classes: row i has label i % KINDS. `stride` floats apart; what lies between is NaN. */
static float *rows_of(int first, int count, int stride)
{
    float *x = kept_malloc((size_t)count * (size_t)stride * sizeof *x);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < stride; k++) {
            uint32_t r = (uint32_t)((first + i) * 977 + k * 131) * 2654435761u;
            float noise = (float)(r >> 8) / (float)(1 << 24) - 0.5f;
            x[i * stride + k] = k < DIM ? noise + 2 * (k % KINDS == (first + i) % KINDS) : NAN;
        }
    return x;
}

static int32_t *labels_of(int first, int count)
{
    int32_t *y = kept_malloc((size_t)count * sizeof *y);
    for (int i = 0; i < count; i++)
        y[i] = (first + i) % KINDS;
    return y;
}

static void learn(sfp_head *h, int first, int count)
{
    MUST(sfp_head_learn(h, count, rows_of(first, count, DIM), 0, labels_of(first, count), NULL, &err));
}

/* Scores of some rows that were not learned. */
static float *scores_of(sfp_head *h, int count)
{
    float *z = kept_malloc((size_t)count * (size_t)sfp_head_classes(h) * sizeof *z);
    MUST(sfp_head_scores(h, count, rows_of(100000, count, DIM), 0, z, &err));
    return z;
}

static void check_same_scores(sfp_head *a, sfp_head *b, double tolerance)
{
    enum { TRIED = 30 };
    const float *x = scores_of(a, TRIED), *y = scores_of(b, TRIED);
    assert_int_equal(sfp_head_classes(a), sfp_head_classes(b));
    for (int i = 0; i < TRIED * sfp_head_classes(a); i++)
        assert_true(x[i] == y[i] || fabs((double)x[i] - (double)y[i]) <= tolerance);
}

TEST(a_head_learns_and_answers)
{
    for (int m = 0; m < 4; m++) {
        sfp_head *h = head_of(methods[m], DIM, NULL);
        sfp_prediction best[ROWS * 2];
        float unknown[2];
        assert_string_equal(sfp_head_method(h), methods[m]);
        assert_int_equal(sfp_head_dim(h), DIM);
        assert_int_equal(sfp_head_classes(h), 0);
        MUST(sfp_head_predict(h, 1, rows_of(0, 1, DIM), 0, 1, best, &err));
        assert_int_equal(best[0].label, -1);
        assert_true(isnan(best[0].probability));
        MUST(sfp_head_learn(h, 0, NULL, 0, NULL, NULL, &err));
        learn(h, 0, ROWS);
        assert_int_equal(sfp_head_classes(h), KINDS);
        assert_int_equal(sfp_head_samples(h, -1), ROWS);
        assert_int_equal(sfp_head_samples(h, 1), ROWS / KINDS);
        assert_int_equal(sfp_head_samples(h, 99), 0);
        MUST(sfp_head_predict(h, ROWS, rows_of(ROWS, ROWS, DIM + 3), DIM + 3, 2, best, &err));
        const float *z = scores_of(h, ROWS);
        for (int i = 0; i < ROWS; i++) {
            assert_int_equal(best[2 * i].label, i % KINDS);
            assert_true(best[2 * i].probability >= best[2 * i + 1].probability);
            assert_int_not_equal(best[2 * i + 1].label, best[2 * i].label);
            assert_true(z[i * KINDS + (100000 + i) % KINDS] > -1);
        }
        sfp_prediction five[5];
        MUST(sfp_head_predict(h, 1, rows_of(ROWS, 1, DIM), 0, 5, five, &err));
        assert_int_equal(five[2].status, SFP_OK);
        assert_true(five[2].label >= 0 && five[3].label == -1 && isnan(five[3].probability));
        float odd[2 * DIM] = {50, -50, 50};
        memcpy(odd + DIM, rows_of(ROWS, 1, DIM), DIM * sizeof *odd);
        MUST(sfp_head_unknown(h, 2, odd, 0, unknown, &err));
        if (m < 2)
            assert_true(unknown[0] > 0.99f && unknown[1] < 0.99f);
        else
            assert_true(isnan(unknown[0]));
    }
}

TEST(strides_keys_and_options_have_an_effect)
{
    sfp_head_options o = SFP_HEAD_OPTIONS_INIT;
    uint64_t keys[ROWS];
    o.threads = 1;
    sfp_head *a = head_of("ridge", DIM, &o), *b = head_of("ridge", DIM, &o);
    learn(a, 0, ROWS);
    MUST(sfp_head_learn(b, ROWS, rows_of(0, ROWS, DIM + 5), DIM + 5, labels_of(0, ROWS), NULL, &err));
    check_same_scores(a, b, 0);
    for (int i = 0; i < ROWS; i++)
        keys[i] = (uint64_t)(i * 7919 % ROWS);
    sfp_head *c = head_of("ridge", DIM, &o);
    MUST(sfp_head_learn(c, ROWS, rows_of(0, ROWS, DIM), 0, labels_of(0, ROWS), keys, &err));
    MUST(sfp_head_forget(c, ROWS, rows_of(0, ROWS, DIM), 0, labels_of(0, ROWS), keys, &err));
    assert_int_equal(sfp_head_samples(c, -1), 0);
    o.plain = 1;
    sfp_head *d = head_of("ridge", DIM, &o);
    learn(d, 0, ROWS - 1); /* classes have different numbers of rows */
    sfp_head *e = head_of("ridge", DIM, NULL);
    learn(e, 0, ROWS - 1);
    assert_memory_not_equal(scores_of(d, 5), scores_of(e, 5), 5 * KINDS * sizeof(float));
    o.seed = 7;
    sfp_head *f = head_of("ranpac", DIM, &o), *g = head_of("ranpac", DIM, NULL);
    learn(f, 0, 30);
    learn(g, 0, 30);
    assert_memory_not_equal(scores_of(f, 5), scores_of(g, 5), 5 * KINDS * sizeof(float));
}

TEST(rows_are_forgotten_and_heads_add_up)
{
    for (int m = 0; m < 3; m++) {
        sfp_head *all = head_of(methods[m], DIM, NULL), *part = head_of(methods[m], DIM, NULL),
                 *other = head_of(methods[m], DIM, NULL);
        learn(all, 0, ROWS);
        learn(all, ROWS, 40);
        learn(part, 0, ROWS);
        learn(other, ROWS, 40);
        MUST(sfp_head_merge(part, other, &err));
        assert_int_equal(sfp_head_samples(part, -1), ROWS + 40);
        check_same_scores(all, part, 1e-4);
        MUST(sfp_head_subtract(part, other, &err));
        assert_int_equal(sfp_head_samples(part, 0), ROWS / KINDS);
        MUST(sfp_head_forget(all, 40, rows_of(ROWS, 40, DIM), 0, labels_of(ROWS, 40), NULL, &err));
        check_same_scores(all, part, 1e-3);
        REFUSED(sfp_head_subtract(other, part, &err), SFP_ENOTFOUND, "fewer samples");
        assert_int_equal(sfp_head_samples(other, -1), 40);
        REFUSED(sfp_head_merge(part, part, &err), SFP_EUNSUPPORTED, "cannot be combined");
    }
    sfp_head *h = head_of("ranpac", DIM, NULL), *ridge = head_of("ridge", DIM, NULL), *wide = head_of("ridge", DIM + 1, NULL);
    learn(h, 0, 9);
    REFUSED(sfp_head_forget(h, 1, rows_of(0, 1, DIM), 0, labels_of(0, 1), NULL, &err), SFP_EUNSUPPORTED, "ranpac");
    REFUSED(sfp_head_merge(ridge, h, &err), SFP_EUNSUPPORTED, "head ranpac");
    REFUSED(sfp_head_subtract(ridge, h, &err), SFP_EUNSUPPORTED, "head ranpac");
    REFUSED(sfp_head_merge(ridge, wide, &err), SFP_EUNSUPPORTED, "13 values");
}

TEST(classes_are_matched_by_name)
{
    static const char *const names[] = {"cat", "dog", "hen"};
    sfp_head *all = head_of("ridge", DIM, NULL), *half[2] = {head_of("ridge", DIM, NULL), head_of("ridge", DIM, NULL)};
    int32_t label;
    for (int i = 0; i < ROWS; i++) {
        MUST(sfp_head_add_class(all, names[i % KINDS], &label, &err));
        MUST(sfp_head_learn(all, 1, rows_of(i, 1, DIM), 0, &label, NULL, &err));
    }
    for (int i = 0; i < ROWS; i++) { /* the second half sees the classes in another order */
        int k = i < ROWS / 2 ? i : ROWS - 1 - (i - ROWS / 2);
        MUST(sfp_head_add_class(half[i >= ROWS / 2], names[k % KINDS], &label, &err));
        MUST(sfp_head_learn(half[i >= ROWS / 2], 1, rows_of(k, 1, DIM), 0, &label, NULL, &err));
    }
    assert_string_equal(sfp_head_class_name(half[0], 0), "cat");
    assert_string_equal(sfp_head_class_name(half[1], 0), "hen");
    assert_null(sfp_head_class_name(all, 3));
    assert_null(sfp_head_class_name(all, -1));
    MUST(sfp_head_merge(half[0], half[1], &err));
    assert_int_equal(sfp_head_classes(half[0]), KINDS);
    check_same_scores(all, half[0], 1e-4);
    sfp_head *empty = head_of("ridge", DIM, NULL);
    MUST(sfp_head_merge(empty, half[1], &err));
    assert_string_equal(sfp_head_class_name(empty, 0), "hen");
    MUST(sfp_head_add_class(empty, "owl", &label, &err));
    assert_int_equal(label, 3);
    MUST(sfp_head_add_class(empty, "owl", &label, &err));
    assert_int_equal(label, 3);
    assert_int_equal(sfp_head_classes(empty), 4);
    assert_true(scores_of(empty, 1)[3] == -INFINITY);
    sfp_head *numbers = head_of("ridge", DIM, NULL);
    MUST(sfp_head_learn(numbers, 1, rows_of(0, 1, DIM), 0, (const int32_t[]){1}, NULL, &err));
    MUST(sfp_head_add_class(numbers, "a", &label, &err));
    assert_int_equal(label, 0); /* the lowest without rows */
    MUST(sfp_head_add_class(numbers, "b", &label, &err));
    assert_int_equal(label, 2);
}

TEST(a_saved_head_continues)
{
    for (int m = 0; m < 4; m++) {
        sfp_head_options o = SFP_HEAD_OPTIONS_INIT;
        sfp_head *h = NULL, *loaded = NULL;
        int32_t label;
        o.plain = m % 2, o.seed = UINT64_MAX - (uint64_t)m, o.tap_dim = DIM / 2;
        h = head_of(methods[m], DIM, &o);
        MUST(sfp_head_save(h, in_directory("empty"), &err));
        MUST(sfp_head_load(in_directory("empty"), 1, &loaded, &err));
        (void)keep_head(loaded);
        MUST(sfp_head_add_class(h, "na\xc3\xafve \"cat\"", &label, &err));
        MUST(sfp_head_add_class(loaded, "na\xc3\xafve \"cat\"", &label, &err));
        learn(h, 0, 100);
        learn(loaded, 0, 100);
        check_same_scores(h, loaded, 0);
        (void)scores_of(h, 3); /* an answer between two rows changes nothing */
        MUST(sfp_head_save(h, in_directory("h"), &err));
        MUST(sfp_head_load(in_directory("h"), 0, &loaded, &err));
        (void)keep_head(loaded);
        assert_string_equal(sfp_head_method(loaded), methods[m]);
        assert_string_equal(sfp_head_class_name(loaded, 0), "na\xc3\xafve \"cat\"");
        assert_null(sfp_head_class_name(loaded, 1));
        assert_int_equal(sfp_head_samples(loaded, 0), 34);
        learn(h, 100, 140);
        learn(loaded, 100, 140);
        check_same_scores(h, loaded, 0);
        MUST(sfp_head_save(h, in_directory("a"), &err));
        MUST(sfp_head_save(loaded, in_directory("b"), &err));
        check_same_bytes(in_directory("a"), in_directory("b"));
    }
}

TEST(bad_arguments_are_refused)
{
    sfp_head *h = head_of("ridge", DIM, NULL), *none = NULL;
    sfp_head_options o = SFP_HEAD_OPTIONS_INIT;
    float *x = rows_of(0, 4, DIM), z[4 * KINDS];
    int32_t y[] = {0, 1, -1, 0}, label;
    sfp_prediction best;
    REFUSED(sfp_head_create("svm", DIM, NULL, &none, &err), SFP_EINVAL, "unknown head 'svm'");
    REFUSED(sfp_head_create(NULL, DIM, NULL, &none, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_head_create("ridge", DIM, NULL, NULL, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_head_create("ridge", 0, NULL, &none, &err), SFP_EINVAL, "dim is 0, expected 1 to 16384");
    o.tap_dim = 5;
    REFUSED(sfp_head_create("ridge", DIM, &o, &none, &err), SFP_EINVAL, "tap_dim is 5");
    o.tap_dim = 0, o.threads = -1;
    REFUSED(sfp_head_create("ridge", DIM, &o, &none, &err), SFP_EINVAL, "threads is -1");
    o.size = 0;
    REFUSED(sfp_head_create("ridge", DIM, &o, &none, &err), SFP_EINVAL, "sizeof(sfp_head_options)");
    assert_null(none);
    REFUSED(sfp_head_learn(h, 4, x, 0, y, NULL, &err), SFP_EINVAL, "row 2: label is -1");
    REFUSED(sfp_head_learn(h, 4, x, DIM - 1, y, NULL, &err), SFP_ESHAPE, "stride is 11, expected 0 or at least 12");
    REFUSED(sfp_head_learn(h, -1, x, 0, y, NULL, &err), SFP_EINVAL, "count is -1");
    REFUSED(sfp_head_learn(h, 4, x, 0, NULL, NULL, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_head_learn(NULL, 4, x, 0, y, NULL, &err), SFP_EINVAL, "head must not be NULL");
    x[3 * DIM + 7] = NAN;
    y[2] = 2;
    REFUSED(sfp_head_learn(h, 4, x, 0, y, NULL, &err), SFP_EINVAL, "row 3: value 7 is nan");
    assert_int_equal(sfp_head_samples(h, -1), 0);
    assert_int_equal(sfp_head_classes(h), 0);
    learn(h, 0, 30);
    const float *before = scores_of(h, 3);
    z[0] = 42;
    REFUSED(sfp_head_scores(h, 4, x, 0, z, &err), SFP_EINVAL, "row 3: value 7 is nan");
    REFUSED(sfp_head_unknown(h, 4, x, 0, z, &err), SFP_EINVAL, "row 3: value 7 is nan");
    assert_true(z[0] == 42);
    REFUSED(sfp_head_predict(h, 1, x, 0, 0, &best, &err), SFP_EINVAL, "top is 0");
    y[3] = 9;
    x[3 * DIM + 7] = 0;
    REFUSED(sfp_head_forget(h, 4, x, 0, y, NULL, &err), SFP_ENOTFOUND, "label 9");
    assert_int_equal(sfp_head_samples(h, 0), 10);
    const float *after = scores_of(h, 3);
    for (int i = 0; i < 3 * KINDS; i++) /* three rows were taken out and learned again */
        assert_true(fabs((double)before[i] - (double)after[i]) < 1e-4);
    REFUSED(sfp_head_add_class(h, "", &label, &err), SFP_EINVAL, "name must not be empty");
    REFUSED(sfp_head_add_class(h, "a", NULL, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_head_merge(h, NULL, &err), SFP_EINVAL, "other head must not be NULL");
    REFUSED(sfp_head_save(h, NULL, &err), SFP_EINVAL, "path must not be NULL");
    REFUSED(sfp_head_load(NULL, 0, &none, &err), SFP_EINVAL, "must not be NULL");
    sfp_head_free(NULL);
}

TEST(damaged_files_are_refused)
{
    sfp_engine *e = random_engine();
    sfp_head *h = head_of("ridge", DIM, NULL), *none = NULL;
    sfp_predictor *p = NULL;
    size_t size = 0;
    learn(h, 0, 50);
    MUST(sfp_head_save(h, in_directory("h"), &err));
    uint8_t *bytes = bytes_of(in_directory("h"), &size);
    for (size_t at = 0; at < size; at += at < 2000 ? 37 : size / 97) {
        bytes[at] ^= 0x40;
        put_bytes("damaged", bytes, size);
        assert_int_not_equal(sfp_head_load(in_directory("damaged"), 1, &none, &err), SFP_OK);
        assert_non_null(strstr(err.message, "damaged"));
        bytes[at] ^= 0x40;
        put_bytes("damaged", bytes, at);
        assert_int_not_equal(sfp_head_load(in_directory("damaged"), 1, &none, &err), SFP_OK);
    }
    assert_null(none);
    REFUSED(sfp_head_load(in_directory("nowhere"), 1, &none, &err), SFP_ENOTFOUND, "nowhere");
    REFUSED(sfp_head_load("README.md", 1, &none, &err), SFP_EFORMAT, "README.md");
    sfp_learner *l = learner_of(e, SETTINGS("method", "ridge"));
    offer_batches(l, 0, 2);
    MUST(sfp_learner_save(l, in_directory("state"), &err));
    MUST(sfp_learner_checkpoint(l, in_directory("checkpoint"), "", &err));
    REFUSED(sfp_head_load(in_directory("state"), 1, &none, &err), SFP_EFORMAT,
            "format is 'streamfp-state', expected 'streamfp-head'");
    REFUSED(sfp_head_load(in_directory("checkpoint"), 1, &none, &err), SFP_EFORMAT, "checkpoint");
    REFUSED(sfp_predictor_open(e, in_directory("h"), NULL, &p, &err), SFP_EFORMAT,
            "format is 'streamfp-head', expected 'streamfp-state'");
    assert_int_not_equal(sfp_learner_merge(l, in_directory("h"), &err), SFP_OK);
    assert_int_not_equal(sfp_learner_resume(l, in_directory("h"), NULL, &err), SFP_OK);
}

/* ---------------------------------------------------------------- the same as a learner */

/* The features of a backbone, with taps, give a head the answers of a learner of images. */
TEST(features_of_images_give_the_answers_of_a_learner)
{
    enum { BATCHES = 15, TRIED = 20 };
    sfp_engine *e = random_engine();
    sfp_predictor *features = NULL;
    for (int m = 0; m < 4; m++) {
        sfp_settings *s = SETTINGS("method", methods[m], "taps", "3", "tap-mean", "on");
        sfp_learner *l = learner_of(e, s);
        offer_batches(l, 0, BATCHES);
        MUST(sfp_predictor_open_backbone(e, s, NULL, &features, &err));
        (void)keep_predictor(features);
        sfp_head_options o = SFP_HEAD_OPTIONS_INIT;
        o.tap_dim = sfp_engine_dim(e);
        o.plain = strcmp(sfp_settings_get(s, "ridge"), "plain") == 0;
        sfp_head *h = head_of(methods[m], sfp_predictor_feature_dim(features), &o);
        sfp_prediction answer[TRIED], unused[TRIED], own[TRIED];
        for (int k = 0; k < BATCHES; k++) {
            sfp_image images[BATCH];
            int32_t labels[BATCH];
            for (int i = 0; i < BATCH; i++) {
                images[i] = flat_sample(i % CLASSES, (uint64_t)(k * BATCH + i)).image;
                labels[i] = i % CLASSES;
            }
            MUST(sfp_predictor_run(features, BATCH, images, unused, &err));
            MUST(sfp_head_learn(h, BATCH, sfp_predictor_features(features), 0, labels, NULL, &err));
        }
        sfp_image images[TRIED];
        for (int i = 0; i < TRIED; i++)
            images[i] = flat_sample(i % CLASSES, (uint64_t)(5000 + i)).image;
        MUST(sfp_predictor_run(predictor_of(l), TRIED, images, answer, &err));
        MUST(sfp_predictor_run(features, TRIED, images, unused, &err));
        MUST(sfp_head_predict(h, TRIED, sfp_predictor_features(features), 0, 1, own, &err));
        for (int i = 0; i < TRIED; i++)
            assert_int_equal(own[i].label, answer[i].label);
    }
}

/* A learner of features is the same head: its answers have the same bits. */
TEST(a_learner_of_features_is_the_same_head)
{
    sfp_engine *e = NULL;
    MUST(sfp_engine_open("features:12", &one_thread, &e, &err));
    (void)keep_engine(e);
    for (int m = 0; m < 4; m++) {
        sfp_head_options o = SFP_HEAD_OPTIONS_INIT;
        sfp_settings *s = SETTINGS("method", methods[m]);
        o.plain = strcmp(sfp_settings_get(s, "ridge"), "plain") == 0;
        sfp_learner *l = learner_of(e, s);
        sfp_head *h = head_of(methods[m], DIM, &o);
        for (int k = 0; k < ROWS; k += BATCH) {
            float *x = rows_of(k, BATCH, DIM);
            sfp_sample samples[BATCH];
            for (int i = 0; i < BATCH; i++)
                samples[i] = (sfp_sample){.image = {.format = SFP_IMAGE_FEATURES, .width = DIM, .data = x + i * DIM},
                                          .label = (k + i) % KINDS};
            MUST(sfp_learner_offer(l, BATCH, samples, NULL, &err));
            MUST(sfp_head_learn(h, BATCH, x, 0, labels_of(k, BATCH), NULL, &err));
        }
        sfp_predictor *p = predictor_of(l);
        sfp_prediction answer;
        const float *x = rows_of(100000, 1, DIM), *z = scores_of(h, 1);
        const sfp_image row = {.format = SFP_IMAGE_FEATURES, .width = DIM, .data = x};
        MUST(sfp_predictor_run(p, 1, &row, &answer, &err));
        if (m < 3)
            assert_memory_equal(sfp_predictor_scores(p), z, KINDS * sizeof *z);
        else /* ranpac chooses its lambda when it answers, and the learner answered before each batch */
            assert_int_equal(answer.label, 100000 % KINDS);
    }
    sfp_learner *l = learner_of(e, SETTINGS("method", "ncm")), *none = NULL;
    float row[DIM] = {0};
    sfp_sample bad = {.image = {.format = SFP_IMAGE_FEATURES, .width = DIM + 1, .data = row}};
    REFUSED(sfp_learner_offer(l, 1, &bad, NULL, &err), SFP_ESHAPE, "number of values is 13, expected 12");
    bad.image.width = DIM;
    row[3] = INFINITY;
    REFUSED(sfp_learner_offer(l, 1, &bad, NULL, &err), SFP_EINVAL, "value 3 is inf");
    sfp_sample image = flat_sample(0, 1);
    REFUSED(sfp_learner_offer(l, 1, &image, NULL, &err), SFP_EINVAL, "expected 5 (features)");
    REFUSED(sfp_learner_offer(learner_of(random_engine(), NULL), 1, &bad, NULL, &err), SFP_EINVAL, "format is 5");
    REFUSED(sfp_learner_create(e, SETTINGS("preset", "paper"), &none, &err), SFP_EUNSUPPORTED,
            "method is none with preset paper");
    REFUSED(sfp_engine_save(e, in_directory("x"), NULL, &err), SFP_EUNSUPPORTED, "features");
    sfp_engine *no = NULL;
    REFUSED(sfp_engine_open("features:0", NULL, &no, &err), SFP_EINVAL, "features:0");
    REFUSED(sfp_engine_open("features:12x", NULL, &no, &err), SFP_EINVAL, "features:12x");
}

/* ------------------------------------------------------------------ a stream of features */

static void put_npy(const char *name, const char *type, const char *shape, const void *data, size_t size)
{
    char *bytes = kept_calloc(1, 129 + size);
    (void)snprintf(bytes, 129, "\x93NUMPY\x01_v_%-117s\n",
                   kept_print("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type, shape));
    bytes[7] = bytes[9] = 0; /* version 1.0, and 118 bytes ('v') of header */
    memcpy(bytes + 128, data, size);
    put_bytes(name, bytes, 128 + size);
}

static sfp_settings *features_settings(const char *out)
{
    const char *data = kept_print("features:%s", in_directory("x.npy"));
    return SETTINGS("data", data, "test", data, "method", "ridge", "tasks", "2", "batch", "10", "clock", "virtual", "rate", "80",
                    "costs", in_directory("costs"), "out", in_directory(out), "threads", "1");
}

TEST(a_run_on_features_resumes)
{
    char labels[8 * ROWS] = "";
    for (int i = 0; i < ROWS; i++)
        (void)snprintf(labels + strlen(labels), sizeof labels - strlen(labels), "c%d\n", i % KINDS);
    put_npy("x.npy", "<f4", kept_print("(%d, %d)", ROWS, DIM), rows_of(0, ROWS, DIM), ROWS * DIM * sizeof(float));
    put_text("x.labels.txt", labels);
    sfp_engine *e = NULL;
    sfp_settings *s = features_settings("whole");
    MUST(sfp_engine_open_for(s, NULL, NULL, &e, &err));
    (void)keep_engine(e);
    assert_int_equal(sfp_engine_dim(e), DIM);
    run_all(e, s);
    s = features_settings("cut");
    sfp_run *run = open_run(e, s, NULL);
    int more = 1;
    for (int i = 0; i < 3; i++)
        MUST(sfp_run_step(run, &more, &err));
    sfp_run_cancel(run);
    MUST(sfp_run_finish(run, &err));
    assert_true(sfp_result_number(sfp_run_result(run), "finished") == 0);
    sfp_run_close(run);
    MUST(sfp_settings_set(s, "resume", "on", &err));
    run = open_run(e, s, NULL);
    MUST(sfp_run_finish(run, &err));
    assert_true(sfp_result_number(sfp_run_result(run), "average_accuracy") > 0.99);
    sfp_run_close(run);
    check_same_state("whole", "cut");
    sfp_source *source = NULL;
    sfp_image image;
    sfp_record record;
    MUST(sfp_source_open(sfp_settings_get(s, "data"), NULL, &source, &err));
    (void)keep_source(source);
    MUST(sfp_source_read(source, 7, &record, &image, &err));
    assert_int_equal(record.label, 7 % KINDS);
    assert_int_equal(image.format, SFP_IMAGE_FEATURES);
    assert_int_equal(image.width, DIM);
    assert_memory_equal(image.data, rows_of(7, 1, DIM), DIM * sizeof(float));
    sfp_source_release(source, &image);
    sfp_engine *images = random_engine();
    run = NULL;
    REFUSED(sfp_run_open(images, features_settings("other"), NULL, &run, &err), SFP_EINVAL,
            "features of 12 values, expected images");
}

/* A row of a source as floats, and its record. */
static const float *row_at(const char *name, int64_t i, sfp_record *record)
{
    sfp_source *source = NULL;
    sfp_image image;
    MUST(sfp_source_open(kept_print("features:%s", in_directory(name)), NULL, &source, &err));
    (void)keep_source(source);
    MUST(sfp_source_read(source, i, record, &image, &err));
    float *row = kept_malloc((size_t)image.width * sizeof *row);
    memcpy(row, image.data, (size_t)image.width * sizeof *row);
    sfp_source_release(source, &image);
    return row;
}

TEST(features_and_labels_have_several_types)
{
    const double wide[] = {1.5, -2, 3e9, 4, 5, NAN, INFINITY, 8};
    const uint16_t half[] = {0x3c00, 0xc000, 0x3555, 0};
    const int64_t numbers[] = {10, -1, 9, 10};
    sfp_record record;
    sfp_source *s = NULL;
    sfp_image image;
    put_npy("d.npy", "<f8", "(4, 2)", wide, sizeof wide);
    put_npy("d.labels.npy", "<i8", "(4,)", numbers, sizeof numbers);
    assert_true(row_at("d.npy", 0, &record)[0] == 1.5f);
    assert_int_equal(record.label, 1); /* classes 9 and 10 in the order of numbers */
    assert_true(row_at("d.npy", 1, &record)[0] == 3e9f);
    assert_int_equal(record.label, SFP_UNLABELLED);
    put_npy("h.npy", "<f2", "(2, 2)", half, sizeof half);
    assert_true(row_at("h.npy", 0, &record)[1] == -2);
    assert_int_equal(record.label, SFP_UNLABELLED);
    const char *data = kept_print("features:%s", in_directory("d.npy"));
    MUST(sfp_source_open(data, NULL, &s, &err));
    (void)keep_source(s);
    assert_string_equal(sfp_source_class_name(s, 0), "9");
    REFUSED(sfp_source_read(s, 2, NULL, &image, &err), SFP_EFORMAT, "row 2 has nan as value 1");
    REFUSED(sfp_source_read(s, 3, NULL, &image, &err), SFP_EFORMAT, "row 3 has inf as value 0");
    put_bytes("d.npy", "short", 5); /* while the source is open */
    REFUSED(sfp_source_read(s, 0, NULL, &image, &err), SFP_EFORMAT, "the file has changed");
    put_npy("d.npy", "<i8", "(4, 1)", numbers, sizeof numbers);
    REFUSED(sfp_source_open(data, NULL, &s, &err), SFP_ESHAPE, "array is I64 (4, 1)");
    put_npy("d.npy", "<f8", "(8,)", wide, sizeof wide);
    REFUSED(sfp_source_open(data, NULL, &s, &err), SFP_ESHAPE, "array is F64 (8,)");
    put_npy("d.npy", "<f8", "(2, 4)", wide, sizeof wide);
    REFUSED(sfp_source_open(data, NULL, &s, &err), SFP_EFORMAT, "file has 4 labels, expected 2");
    put_npy("d.labels.npy", "<f8", "(2,)", wide, 2 * sizeof *wide);
    assert_int_not_equal(sfp_source_open(data, NULL, &s, &err), SFP_OK);
    assert_non_null(strstr(err.message, "d.labels.npy"));
}
