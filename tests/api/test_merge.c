/* What learners have learned adds up: states and checkpoints are merged and subtracted, in memory and as files, with classes matched by
 * name. The learners are those of the default settings. */
#include "world.h"

#include <math.h>

AROUND_EACH(make_directory, remove_directory)

enum { IMAGES = 124, KINDS = 4, NOISE = 60 };
static const char *const names[KINDS] = {"ant", "bee", "cat", "dog"};

static int kind_of(int i)
{
    return (i * 7 + i / 9) % KINDS;
}

/* Image i: a shade of its class, and noise. */
static sfp_sample noisy_sample(int32_t label, int i)
{
    sfp_sample s = flat_sample(label, (uint64_t)i);
    uint8_t *rgb = (uint8_t *)(uintptr_t)s.image.data;
    uint32_t state = 12345u + 977u * (uint32_t)i;
    for (int k = 0; k < SIDE * SIDE * 3; k++) {
        state = 1664525u * state + 1013904223u;
        rgb[k] = (uint8_t)(40 * kind_of(i) + (int)((state >> 16) % NOISE) + (k / 96 % 4 == kind_of(i) ? 30 : 0));
    }
    return s;
}

static sfp_learner *default_learner(void)
{
    return learner_of(random_engine(), settings_of(NULL));
}

/* Learns image i with the learner's own label of its class. */
static void learn(sfp_learner *l, int i)
{
    KEPT_IN_BLOCK;
    int32_t label = -1;
    MUST(sfp_learner_add_class(l, names[kind_of(i)], &label, &err));
    sfp_sample s = noisy_sample(label, i);
    MUST(sfp_learner_offer(l, 1, &s, NULL, &err));
}

static float score_of(const sfp_predictor *p, const char *name)
{
    for (int c = 0; c < sfp_predictor_classes(p); c++)
        if (sfp_predictor_class_name(p, c) && strcmp(sfp_predictor_class_name(p, c), name) == 0)
            return sfp_predictor_scores(p)[c];
    return NAN;
}

/* Fails unless both give each class name the same probability. */
static void check_same_answers(sfp_predictor *p, sfp_predictor *q, double tolerance)
{
    for (int i = 0; i < 20; i++) {
        KEPT_IN_BLOCK;
        sfp_sample s = noisy_sample(0, i);
        sfp_prediction x, y;
        MUST(sfp_predictor_run(p, 1, &s.image, &x, &err));
        MUST(sfp_predictor_run(q, 1, &s.image, &y, &err));
        assert_string_equal(sfp_predictor_class_name(p, x.label), sfp_predictor_class_name(q, y.label));
        for (int k = 0; k < KINDS; k++) {
            double u = exp((double)score_of(p, names[k])), v = exp((double)score_of(q, names[k]));
            if (!(fabs(u - v) <= tolerance))
                fail_msg("image %d: probability of %s is %g, expected %g", i, names[k], u, v);
        }
    }
}

static sfp_predictor *predictor_of_file(const char *file)
{
    sfp_predictor *p = NULL;
    MUST(sfp_predictor_open(random_engine(), in_directory(file), &small_predictor, &p, &err));
    return keep_predictor(p);
}

static sfp_learner *learner_of_all(void)
{
    sfp_learner *l = default_learner();
    for (int i = 0; i < IMAGES; i++)
        learn(l, i);
    return l;
}

static void merge(sfp_learner *l, const char *path, bool from_memory)
{
    size_t size;
    if (!from_memory) {
        MUST(sfp_learner_merge(l, path, &err));
        return;
    }
    const uint8_t *bytes = bytes_of(path, &size);
    MUST(sfp_learner_merge_memory(l, bytes, size, &err));
}

/* Saves n parts of the stream, whose classes are numbered in the order in which each part sees them, as states and checkpoints. */
static void save_parts(int n, const char **file)
{
    for (int p = 0; p < n; p++) {
        KEPT_IN_BLOCK;
        sfp_learner *l = default_learner();
        for (int i = IMAGES - 1; i >= 0; i--)
            if ((i * 31 + i / 5) % n == p)
                learn(l, i);
        MUST(p % 2 ? sfp_learner_checkpoint(l, file[p], NULL, &err) : sfp_learner_save(l, file[p], &err));
    }
}

TEST(parts_in_any_order_add_up_to_the_whole)
{
    static const int parts[] = {2, 7, 31};
    for (int k = 0; k < 3; k++) {
        KEPT_IN_BLOCK;
        const int n = parts[k];
        const char *file[31], *mixed[31];
        for (int p = 0; p < n; p++)
            file[p] = kept_print("%s", in_directory(kept_print("part%d", p)));
        save_parts(n, file);
        for (int p = 0; p < n; p++)
            mixed[p] = file[(p * 17 + 5) % n];
        sfp_learner *sum = default_learner();
        for (int p = 0; p < n; p++)
            merge(sum, mixed[p], p % 3 == 1);
        sfp_predictor *whole = predictor_of(learner_of_all());
        check_same_answers(predictor_of(sum), whole, 1e-5);
        sfp_learner *resumed = default_learner();
        MUST(sfp_learner_checkpoint(sum, in_directory("c"), NULL, &err));
        MUST(sfp_learner_resume(resumed, in_directory("c"), NULL, &err));
        check_same_answers(predictor_of(resumed), whole, 1e-5);
        sfp_merge_report r = SFP_MERGE_REPORT_INIT;
        MUST(sfp_merge(n, mixed, in_directory("sum"), NULL, &r, &err));
        assert_int_equal(r.samples, IMAGES);
        assert_int_equal(r.classes, KINDS);
        check_same_answers(predictor_of_file("sum"), whole, 1e-5);
    }
}

/* Two learners, of even and odd images. */
static sfp_learner *learner_of_half(int odd)
{
    sfp_learner *l = default_learner();
    for (int i = odd; i < IMAGES; i += 2)
        learn(l, i);
    return l;
}

TEST(what_was_merged_is_subtracted)
{
    sfp_learner *l = learner_of_half(0);
    sfp_predictor *before = predictor_of(learner_of_half(0));
    MUST(sfp_learner_save(learner_of_half(1), in_directory("odd"), &err));
    MUST(sfp_learner_save(l, in_directory("even"), &err));
    REFUSED(sfp_learner_subtract(l, in_directory("odd"), &err), SFP_ENOTFOUND, "which are not among the");
    check_same_answers(predictor_of(l), before, 0);
    MUST(sfp_learner_merge(l, in_directory("odd"), &err));
    size_t size;
    const uint8_t *bytes = bytes_of(in_directory("odd"), &size);
    MUST(sfp_learner_subtract_memory(l, bytes, size, &err));
    check_same_answers(predictor_of(l), before, 1e-5);
    REFUSED(sfp_learner_subtract_memory(l, bytes, size, &err), SFP_ENOTFOUND, "memory: class '");
    const char *both[] = {kept_print("%s", in_directory("even")), kept_print("%s", in_directory("odd"))};
    sfp_merge_options o = SFP_MERGE_OPTIONS_INIT;
    sfp_merge_report r = SFP_MERGE_REPORT_INIT;
    o.subtract = both + 1;
    o.subtract_count = 1;
    MUST(sfp_merge(2, both, in_directory("again"), &o, &r, &err));
    assert_int_equal(r.samples, IMAGES / 2);
    check_same_answers(predictor_of_file("again"), before, 1e-5);
}

TEST(a_learner_continues_from_a_state_as_from_a_checkpoint)
{
    sfp_learner *l = learner_of_half(0), *from_state = default_learner(), *from_checkpoint = default_learner();
    MUST(sfp_learner_save(l, in_directory("s"), &err));
    MUST(sfp_learner_checkpoint(l, in_directory("c"), NULL, &err));
    learn(from_state, 5); /* is replaced */
    MUST(sfp_learner_load(from_state, in_directory("s"), &err));
    MUST(sfp_learner_load(from_checkpoint, in_directory("c"), &err));
    for (int i = 1; i < IMAGES; i += 2) {
        learn(from_state, i);
        learn(from_checkpoint, i);
    }
    sfp_predictor *whole = predictor_of(learner_of_all());
    check_same_answers(predictor_of(from_state), whole, 1e-5);
    check_same_answers(predictor_of(from_checkpoint), whole, 1e-5);
    sfp_sample s = noisy_sample(0, 2);
    MUST(sfp_learner_add_class(from_state, names[kind_of(2)], &s.label, &err));
    MUST(sfp_learner_forget(from_state, 1, &s, &err));
}

/* ---------------------------------------------------------------------------------------------------------------- classes */

static sfp_learner *named_learner(int count, const char *const *list)
{
    sfp_learner *l = default_learner();
    for (int c = 0; c < count; c++) {
        sfp_sample s = noisy_sample(c, 10 * c);
        MUST(sfp_learner_offer(l, 1, &s, NULL, &err));
        if (list[c])
            MUST(sfp_learner_set_class_name(l, c, list[c], &err));
    }
    return l;
}

TEST(classes_are_matched_by_name_else_by_label)
{
    const struct {
        const char *here[3], *there[3], *want[5];
        int classes;
    } list[] = {{{"a", "b", "c"}, {"c", "a", "b"}, {"a", "b", "c"}, 3},
                {{"a", "b", "c"}, {"d", "a", "e"}, {"a", "b", "c", "d", "e"}, 5},
                {{NULL, NULL, NULL}, {"x", "y", "z"}, {"x", "y", "z"}, 3},
                {{"x", "y", "z"}, {NULL, NULL, NULL}, {"x", "y", "z"}, 3},
                {{"x", NULL, "z"}, {"z", "y", "x"}, {"x", "y", "z"}, 3}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        KEPT_IN_BLOCK;
        sfp_learner *l = named_learner(3, list[i].here);
        MUST(sfp_learner_save(named_learner(3, list[i].there), in_directory("there"), &err));
        MUST(sfp_learner_merge(l, in_directory("there"), &err));
        assert_int_equal(sfp_learner_classes(l), list[i].classes);
        for (int c = 0; c < list[i].classes; c++)
            assert_string_equal(sfp_learner_class_name(l, c), list[i].want[c]);
    }
}

TEST(classes_that_would_become_one_are_refused)
{
    const struct {
        const char *here[3], *there[3], *words;
    } list[] = {{{"a", "b", "c"}, {"a", "b", "a"}, "class 'a' (label 0) and class 'a' (label 2) would become one class"},
                {{"a", "b", "c"}, {"b", NULL, "c"}, "class 'b' (label 0) and class 1 (label 1) would become one class"},
                {{"a", "a", "c"}, {"x", "a", "c"}, "class 'a' has labels 0 and 1 here, expected one class of that name"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        KEPT_IN_BLOCK;
        sfp_learner *l = named_learner(3, list[i].here);
        MUST(sfp_learner_save(l, in_directory("before"), &err));
        MUST(sfp_learner_save(named_learner(3, list[i].there), in_directory("there"), &err));
        REFUSED(sfp_learner_merge(l, in_directory("there"), &err), SFP_EINVAL, list[i].words);
        REFUSED(sfp_learner_load(l, in_directory("there"), &err), SFP_EINVAL, list[i].words);
        MUST(sfp_learner_save(l, in_directory("after"), &err));
        check_same_bytes(kept_print("%s", in_directory("before")), in_directory("after"));
    }
}

/* -------------------------------------------------------------------------------------------------------------- sums only */

typedef struct left_out {
    int count;
    char text[256];
} left_out;

static void add_left_out(void *ctx, int32_t label, const char *name, int64_t samples)
{
    left_out *l = ctx;
    size_t n = strlen(l->text);
    (void)snprintf(l->text + n, sizeof l->text - n, "%d %s %d;", label, name ? name : "-", (int)samples);
    l->count++;
}

/* Fails if the bytes of a float vector that a file with single samples has are in the other file. */
static void check_no_samples(const char *with, const char *without)
{
    static const char kept[] = "\"head.ridge.kept\":{\"dtype\":\"F32\",\"shape\":[";
    size_t size;
    const uint8_t *a = bytes_of(with, &size), *b = bytes_of(without, &size);
    assert_non_null(memmem(a, 4096, kept, sizeof kept - 1));
    const uint8_t *at = memmem(b, 4096, kept, sizeof kept - 1);
    assert_non_null(at);
    assert_int_equal(at[sizeof kept - 1], '0');
}

TEST(sums_only_predict_as_before)
{
    sfp_learner *l = learner_of_all(), *after = default_learner();
    sfp_sample rare = noisy_sample(KINDS, 3);
    MUST(sfp_learner_offer(l, 1, &rare, NULL, &err)); /* the only one of its class, which has no name */
    MUST(sfp_learner_save(l, in_directory("all"), &err));
    const char *input = kept_print("%s", in_directory("all"));
    left_out seen = {0};
    sfp_merge_report r = SFP_MERGE_REPORT_INIT;
    sfp_merge_options o = SFP_MERGE_OPTIONS_INIT;
    o.sums_only = 1;
    o.left_out = add_left_out;
    o.ctx = &seen;
    MUST(sfp_merge(1, &input, in_directory("sums"), &o, &r, &err));
    assert_string_equal(seen.text, "4 - 1;");
    assert_int_equal(r.samples, IMAGES);
    check_no_samples(in_directory("all"), kept_print("%s", in_directory("sums")));
    check_same_answers(predictor_of_file("sums"), predictor_of(learner_of_all()), 1e-5);
    MUST(sfp_learner_load(after, in_directory("sums"), &err));
    check_same_answers(predictor_of(after), predictor_of_file("sums"), 1e-3);
    learn(after, 1);
    MUST(sfp_learner_merge(after, in_directory("sums"), &err));
    MUST(sfp_learner_subtract(after, in_directory("sums"), &err));
    seen = (left_out){0};
    o.min_count = 1000;
    MUST(sfp_merge(1, &input, in_directory("none"), &o, &r, &err));
    assert_int_equal(seen.count, KINDS + 1);
    assert_int_equal(r.classes + (int)r.samples, 0);
    assert_non_null(strstr(seen.text, "ant "));
}

/* --------------------------------------------------------------------------------------------------------------- refusals */

static void check_refused(sfp_learner *l, const char *like, const char *file, sfp_status status, const char *words)
{
    const char *pair[] = {kept_print("%s", in_directory(like)), kept_print("%s", in_directory(file))};
    const char *out = kept_print("%s", in_directory("out"));
    size_t size;
    const uint8_t *bytes = bytes_of(pair[1], &size);
    sfp_merge_options o = SFP_MERGE_OPTIONS_INIT;
    o.subtract = pair + 1;
    o.subtract_count = 1;
    REFUSED(sfp_learner_merge(l, pair[1], &err), status, words);
    REFUSED(sfp_learner_subtract(l, pair[1], &err), status, words);
    REFUSED(sfp_learner_load(l, pair[1], &err), status, words);
    REFUSED(sfp_learner_merge_memory(l, bytes, size, &err), status, words);
    REFUSED(sfp_merge(2, pair, out, NULL, NULL, &err), status, words);
    REFUSED(sfp_merge(1, pair, out, &o, NULL, &err), status, words);
    assert_int_equal(access(out, F_OK), -1);
}

static void put_learner(sfp_engine *e, const sfp_settings *s, const char *file)
{
    sfp_learner *l = learner_of(e, s);
    sfp_sample sample = noisy_sample(0, 1);
    MUST(sfp_learner_offer(l, 1, &sample, NULL, &err));
    MUST(sfp_learner_save(l, in_directory(file), &err));
}

TEST(sums_of_other_features_are_refused)
{
    sfp_engine *e = random_engine(), *other = NULL;
    sfp_learner *l = default_learner();
    for (int i = 0; i < 8; i++)
        learn(l, i);
    MUST(sfp_learner_save(l, in_directory("own"), &err));
    const struct {
        sfp_settings *settings;
        const char *words;
        sfp_status status;
    } list[] = {{SETTINGS("method", "ncm"), "method is ncm, expected ridge as in ", SFP_EINVAL},
                {SETTINGS("taps", "2"), "taps is 2, expected 0 as in ", SFP_EINVAL},
                {SETTINGS("tap-mean", "off"), "tap-mean is off, expected on as in ", SFP_EINVAL},
                {SETTINGS("merge-tokens", "2"), "merge-tokens is 2, expected 0 as in ", SFP_EINVAL},
                {SETTINGS("ridge", "plain"), "ridge is plain, expected balanced as in ", SFP_EINVAL},
                {SETTINGS("resize", "crop"), "resize is crop, expected squash as in ", SFP_EINVAL},
                {SETTINGS("normalise", "imagenet"), "mean is 0.485", SFP_EINVAL},
                {SETTINGS("method", "ranpac"), "method is ranpac, expected ncm, slda or ridge", SFP_EUNSUPPORTED}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        KEPT_IN_BLOCK;
        put_learner(e, list[i].settings, "other");
        check_refused(l, "own", "other", list[i].status, list[i].words);
    }
    MUST(sfp_engine_open_random(2, &one_thread, &other, &err));
    put_learner(keep_engine(other), settings_of(NULL), "other");
    check_refused(l, "own", "other", SFP_EINVAL,
                  ": backbone is 'random' (img 32, patch 8, width 64, depth 6, heads 4, hidden 256;");
    MUST(sfp_learner_save(l, in_directory("after"), &err));
    check_same_bytes(kept_print("%s", in_directory("own")), in_directory("after"));
}

TEST(damaged_files_are_refused)
{
    sfp_learner *l = default_learner();
    for (int i = 0; i < 8; i++)
        learn(l, i);
    MUST(sfp_learner_save(l, in_directory("own"), &err));
    MUST(sfp_learner_checkpoint(l, in_directory("check"), NULL, &err));
    for (int k = 0; k < 2; k++) {
        size_t size;
        uint8_t *bytes = bytes_of(in_directory(k ? "check" : "own"), &size);
        bytes[size - size / 3] ^= 4;
        put_bytes("flipped", bytes, size);
        check_refused(l, "own", "flipped", SFP_EFORMAT, "the file is damaged");
        put_bytes("short", bytes, size / 2);
        check_refused(l, "own", "short", SFP_EFORMAT, " has data_offsets");
    }
    put_text("text", "this is not a state, and it is long enough to be read as one");
    check_refused(l, "own", "text", SFP_EFORMAT, ": ");
    MUST(sfp_learner_save(l, in_directory("after"), &err));
    check_same_bytes(kept_print("%s", in_directory("own")), in_directory("after"));
}

TEST(missing_arguments_are_refused)
{
    sfp_learner *l = default_learner();
    const char *none = NULL, *nowhere = kept_print("%s", in_directory("nowhere"));
    sfp_merge_options o = SFP_MERGE_OPTIONS_INIT;
    assert_int_equal(sfp_learner_merge(l, NULL, &err), SFP_EINVAL);
    assert_int_equal(sfp_learner_merge_memory(l, NULL, 0, &err), SFP_EINVAL);
    assert_int_equal(sfp_learner_merge_memory(NULL, "", 1, &err), SFP_EINVAL);
    assert_int_equal(sfp_learner_merge_memory(l, "", 0, &err), SFP_EFORMAT);
    assert_int_equal(sfp_learner_subtract(l, NULL, &err), SFP_EINVAL);
    assert_int_equal(sfp_learner_subtract(NULL, nowhere, &err), SFP_EINVAL);
    assert_int_equal(sfp_learner_subtract(l, nowhere, &err), SFP_ENOTFOUND);
    assert_int_equal(sfp_learner_subtract_memory(l, NULL, 8, &err), SFP_EINVAL);
    assert_int_equal(sfp_merge(0, &nowhere, "out", NULL, NULL, &err), SFP_EINVAL);
    assert_int_equal(sfp_merge(1, &none, "out", NULL, NULL, &err), SFP_EINVAL);
    assert_int_equal(sfp_merge(1, &nowhere, NULL, NULL, NULL, &err), SFP_EINVAL);
    assert_int_equal(sfp_merge(1, &nowhere, "out", NULL, NULL, &err), SFP_ENOTFOUND);
    assert_int_equal(sfp_merge_share(NULL, "out", NULL, NULL, &err), SFP_EINVAL);
    assert_int_equal(sfp_merge_share(nowhere, NULL, NULL, NULL, &err), SFP_EINVAL);
    REFUSED(sfp_merge_share(nowhere, "out", NULL, NULL, &err), SFP_ENOTFOUND, "expected the --share directory of a run");
    o.min_count = 5;
    REFUSED(sfp_merge(1, &nowhere, "out", &o, NULL, &err), SFP_EINVAL, "min-count is 5, expected at least 2, and sums-only");
    o.sums_only = 1;
    o.min_count = 1;
    REFUSED(sfp_merge(1, &nowhere, "out", &o, NULL, &err), SFP_EINVAL, "min-count is 1, expected at least 2, and sums-only");
    o.min_count = 0;
    o.subtract_count = 1;
    REFUSED(sfp_merge(1, &nowhere, "out", &o, NULL, &err), SFP_EINVAL, "subtracted file 0 must not be NULL");
}
