/* Conversion and pretraining of backbones (streamfp.h, part 12). */
#include "world.h"

#include <fcntl.h>
#include <unistd.h>

AROUND_EACH(make_directory, remove_directory)

typedef struct seen {
    int progress, messages, cancel_after; /* cancel_after: steps; 0: never */
} seen;

static void on_progress(void *ctx, const sfp_pretrain_progress *p)
{
    seen *s = ctx;
    assert_int_equal(p->size, sizeof *p);
    assert_non_null(p->phase);
    assert_true(p->fraction >= 0 && p->fraction <= 1);
    s->progress += strcmp(p->phase, "train") == 0;
}

static void on_log(void *ctx, sfp_log_level level, const char *message)
{
    (void)level;
    assert_true(*message);
    ((seen *)ctx)->messages++;
}

static int is_cancelled(void *ctx)
{
    const seen *s = ctx;
    return s->cancel_after > 0 && s->progress >= s->cancel_after;
}

/* A training of seconds: 24 images, a tiny student. */
static sfp_settings *tiny_training(const char *out)
{
    static const char *const pairs[][2] = {
        {"data", "synthetic:24"}, {"img-size", "16"}, {"dim", "16"}, {"depth", "1"},  {"heads", "1"},  {"epochs", "2"},
        {"batch", "8"},           {"threads", "1"},   {"seed", "3"}, {"clip", "0.5"}, {"dtype", "f32"}};
    sfp_settings *s = NULL;
    MUST(sfp_pretrain_settings_create(&s, &err));
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        MUST(sfp_settings_set(s, pairs[i][0], pairs[i][1], &err));
    MUST(sfp_settings_set(s, "out", out, &err));
    return keep_settings(s);
}

TEST(a_trained_backbone_can_be_opened)
{
    seen s = {0};
    sfp_pretrain_options o = SFP_PRETRAIN_OPTIONS_INIT;
    sfp_pretrain_result r = SFP_PRETRAIN_RESULT_INIT;
    sfp_engine *e = NULL;
    o.progress = on_progress;
    o.log = on_log;
    o.ctx = &s;
    MUST(sfp_pretrain(tiny_training(in_directory("a")), &o, &r, &err));
    assert_int_equal(r.finished, 1);
    assert_true(r.steps > 0 && r.parameters > 0 && r.epochs == 2);
    assert_true(s.progress > 0);
    MUST(sfp_engine_open(in_directory("a/model.safetensors"), &one_thread, &e, &err));
    (void)keep_engine(e);
    assert_int_equal(sfp_engine_image_size(e), 16);
    assert_int_equal(sfp_engine_dim(e), 16);
}

TEST(a_cancelled_training_resumes_to_the_same_bytes)
{
    seen s = {.cancel_after = 2};
    sfp_pretrain_options o = SFP_PRETRAIN_OPTIONS_INIT;
    sfp_pretrain_result r = SFP_PRETRAIN_RESULT_INIT;
    sfp_settings *again = tiny_training(in_directory("b"));
    MUST(sfp_pretrain(tiny_training(in_directory("a")), NULL, NULL, &err));
    o.progress = on_progress;
    o.cancelled = is_cancelled;
    o.ctx = &s;
    MUST(sfp_pretrain(again, &o, &r, &err));
    assert_int_equal(r.finished, 0);
    MUST(sfp_settings_set(again, "resume", "on", &err));
    s.cancel_after = 0;
    MUST(sfp_pretrain(again, &o, &r, &err));
    assert_int_equal(r.finished, 1);
    check_same_bytes(in_directory("a/model.safetensors"), in_directory("b/model.safetensors"));
}

/* Truncates or overwrites a file at the second step of a training. */
typedef struct damage {
    const char *path;
    bool truncated;
    int steps;
} damage;

static void damage_file(void *ctx, const sfp_pretrain_progress *p)
{
    damage *d = ctx;
    if (strcmp(p->phase, "train") != 0 || ++d->steps != 2)
        return;
    int fd = open(d->path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(d->truncated ? ftruncate(fd, 0) == 0 : pwrite(fd, "other", 5, 8000) == 5);
    assert_int_equal(close(fd), 0);
}

TEST(a_teacher_cache_that_changes_makes_the_training_fail)
{
    sfp_settings *whole = tiny_training(in_directory("a"));
    MUST(sfp_pretrain(tiny_training(in_directory("teacher")), NULL, NULL, &err));
    MUST(sfp_settings_set(whole, "teacher", in_directory("teacher/model.safetensors"), &err));
    MUST(sfp_settings_set(whole, "epochs", "30", &err));
    MUST(sfp_pretrain(whole, NULL, NULL, &err));
    for (int truncated = 0; truncated < 2; truncated++) {
        const char *out = in_directory(truncated ? "b" : "c");
        damage d = {.path = in_directory(truncated ? "b/teacher.cache" : "c/teacher.cache"), .truncated = truncated};
        sfp_pretrain_options o = SFP_PRETRAIN_OPTIONS_INIT;
        sfp_settings *s = tiny_training(out);
        o.progress = damage_file;
        o.ctx = &d;
        MUST(sfp_settings_set(s, "teacher", in_directory("teacher/model.safetensors"), &err));
        MUST(sfp_settings_set(s, "epochs", "30", &err));
        REFUSED(sfp_pretrain(s, &o, NULL, &err), SFP_EIO, "teacher.cache: the file was changed by another program");
        assert_int_equal(unlink(d.path), 0);
        MUST(sfp_settings_set(s, "resume", "on", &err));
        MUST(sfp_pretrain(s, NULL, NULL, &err));
        check_same_bytes(in_directory("a/model.safetensors"),
                         in_directory(truncated ? "b/model.safetensors" : "c/model.safetensors"));
    }
}

TEST(settings_of_a_pretraining_are_described)
{
    int rows = 0;
    for (const sfp_setting_info *i; (i = sfp_pretrain_settings_info(rows)); rows++) {
        assert_true(i->help && *i->help);
        assert_string_not_equal(i->key, "json");
        if (strcmp(i->key, "lr") == 0) {
            assert_int_equal(i->type, SFP_TYPE_REAL);
            assert_true(i->min > 0 && i->max == 10);
        }
    }
    assert_true(rows > 30);
    assert_null(sfp_pretrain_settings_info(-1));
}

TEST(errors_at_the_start_of_pretraining_are_reported)
{
    sfp_settings *s = NULL, *of_run = settings_of(NULL);
    sfp_learner *l = NULL;
    sfp_pretrain_result r = {0};
    MUST(sfp_pretrain_settings_create(&s, &err));
    (void)keep_settings(s);
    REFUSED(sfp_pretrain(s, NULL, NULL, &err), SFP_EINVAL, "data is missing");
    assert_string_equal(err.key, "data");
    MUST(sfp_settings_set(s, "data", "folder:none", &err));
    REFUSED(sfp_pretrain(s, NULL, NULL, &err), SFP_EINVAL, "out is missing");
    MUST(sfp_settings_set(s, "out", in_directory("c"), &err));
    REFUSED(sfp_pretrain(s, NULL, NULL, &err), SFP_ENOTFOUND, "none");
    REFUSED(sfp_settings_set(s, "epochs", "0", &err), SFP_EINVAL, "epochs");
    REFUSED(sfp_settings_set(s, "sigma", "0.5", &err), SFP_EINVAL, "sigma");
    REFUSED(sfp_pretrain(NULL, NULL, NULL, &err), SFP_EINVAL, "sfp_pretrain_settings_create");
    REFUSED(sfp_pretrain(of_run, NULL, NULL, &err), SFP_EINVAL, "sfp_pretrain_settings_create");
    REFUSED(sfp_pretrain(s, NULL, &r, &err), SFP_EINVAL, "expected sizeof(sfp_pretrain_result)");
    REFUSED(sfp_pretrain_settings_create(NULL, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_learner_create(random_engine(), s, &l, &err), SFP_EINVAL, "settings are those of a pretraining");
    assert_null(l);
}

TEST(a_saved_backbone_gives_the_same_features)
{
    sfp_engine *e = random_engine(), *back = NULL;
    sfp_predictor *a = NULL, *b = NULL;
    sfp_sample s = flat_sample(1, 1);
    sfp_prediction p;
    MUST(sfp_engine_save(e, in_directory("copy.safetensors"), NULL, &err));
    MUST(sfp_engine_open(in_directory("copy.safetensors"), &one_thread, &back, &err));
    (void)keep_engine(back);
    MUST(sfp_predictor_open_backbone(e, NULL, &small_predictor, &a, &err));
    (void)keep_predictor(a);
    MUST(sfp_predictor_open_backbone(back, NULL, &small_predictor, &b, &err));
    (void)keep_predictor(b);
    MUST(sfp_predictor_run(a, 1, &s.image, &p, &err));
    MUST(sfp_predictor_run(b, 1, &s.image, &p, &err));
    assert_memory_equal(sfp_predictor_features(a), sfp_predictor_features(b), 64 * sizeof(float));
    MUST(sfp_engine_save(e, in_directory("half.safetensors"), "f16", &err));
    REFUSED(sfp_engine_save(e, in_directory("x"), "f8", &err), SFP_EINVAL, "dtype is 'f8', expected f32, f16 or bf16");
    REFUSED(sfp_engine_save(e, in_directory("none/x"), NULL, &err), SFP_ENOTFOUND, "none/x");
    REFUSED(sfp_engine_save(NULL, "x", NULL, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_engine_save(e, NULL, NULL, &err), SFP_EINVAL, "must not be NULL");
}
