/* A pretraining run: preparation, the training loop with its log, probes and checkpoints, and the final model. */
#include "pretrain/pretrain.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "base/rng.h"
#include "io/directory.h"
#include "io/file.h"
#include "model/vit.h"
#include "pretrain/pretrain_internal.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    HOLD_OUT_NTH = 20, /* without a test part, every 20th image is held out for probes */
    MICROBATCH_SIZE = 8
};
#define LOG_SECONDS 10.0 /* between points of the log */
#define FINAL_LR 0.01    /* learning rate at the end, relative to --lr */

typedef struct training {
    const sfp__pretrain_options *o;
    const sfp_pretrain_options *calls;
    sfp__thread_pool *pool;
    /* data */
    sfp__image_set images, test_images;
    sfp__teacher teacher;
    bool has_teacher;
    sfp__view_loader *loader;
    uint64_t epoch_steps;
    /* model */
    sfp__vit *student;
    sfp__vit_plan *plan;
    sfp__loss *loss;
    sfp__pretrain_state state;
    sfp__probe probe; /* the last probe */
    /* output */
    int lock; /* on OUT */
    int made; /* number of directories that were created for OUT */
    sfp__line_log *log;
    char path[PATH_MAX]; /* the last result of path_of */
    sfp__backed_file checkpoint;
    double probed_at, saved_at; /* state.seconds at the last probe and the last checkpoint */
    uint64_t saved_step;
    double start_time, start_fraction; /* of the training loop: start time, and the fraction of the run that was completed then */
} training;

/* Returns OUT/name; it is valid until the next call. */
static const char *path_of(training *t, const char *name)
{
    (void)snprintf(t->path, sizeof t->path, "%s/%s", t->o->output.dir, name);
    return t->path;
}

/* ------------------------------------------------------------- preparation */

static void warn_skipped(const training *t, const char *spec, const sfp__image_set *p)
{
    char what[SFP_ERROR_MAX + 64], text[sizeof what + 256];
    if (!p->skipped.count)
        return;
    sfp__skipped_text(&p->skipped, "image", what, sizeof what);
    (void)snprintf(text, sizeof text, "%.200s: %s", spec, what);
    sfp__pretrain_message(t->calls, SFP_LOG_WARNING, text);
}

/* Loads the training images and the test images of the probes. */
static sfp_status load_images(training *t, sfp_error *err)
{
    const sfp__pretrain_options *o = t->o;
    sfp__image_set_options po = {.size = o->data.size ? o->data.size : o->student.img_size};
    TRY(sfp__image_set_load(o->data.train, &po, t->pool, t->calls, &t->images, err));
    warn_skipped(t, o->data.train, &t->images);
    po.like = &t->images;
    po.limit = o->output.max_probe_images;
    po.test = !o->data.test || strcmp(o->data.test, o->data.train) == 0;
    po.required = !o->data.test;
    sfp_error why = {0};
    sfp_status s = sfp__image_set_load(o->data.test ? o->data.test : o->data.train, &po, t->pool, NULL, &t->test_images, &why);
    if (!s)
        warn_skipped(t, o->data.test ? o->data.test : "test part", &t->test_images);
    if (s == SFP_ENOTFOUND && !o->data.test) /* the dataset has no test part; a damaged one is an error */
        return sfp__image_set_hold_out(&t->images, HOLD_OUT_NTH, &t->test_images, err);
    if (s && strcmp(why.key, "data") == 0)
        sfp__fail_rename(&why, "test", "test"); /* the error is about the source of --test */
    if (s && err)
        *err = why;
    return s;
}

static sfp_status open_teacher(training *t, sfp_error *err)
{
    const sfp__pretrain_options *o = t->o;
    if (!o->teacher.weights)
        return SFP_OK;
    TRY(sfp__teacher_open(o, &t->images, t->pool, t->calls, &t->teacher, err));
    t->has_teacher = true;
    return SFP_OK;
}

/* Loads the initial weights from a file, which must have the student's sizes. */
static sfp_status load_initial_weights(training *t, const sfp__vit_config *c, sfp_error *err)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    const sfp__vit_options opt = {.img_size = c->img_size};
    TRY(sfp__vit_load(t->o->student.init, &opt, &v, err));
    const sfp__vit_config *f = &v->config;
    bool clip = f->pre_norm || f->no_patch_bias || f->quick_gelu;
    if (f->patch_size != c->patch_size || f->dim != c->dim || f->depth != c->depth || f->heads != c->heads ||
        f->hidden != c->hidden || clip)
        return sfp__fail(err, SFP_EINVAL,
                         "%s: ViT has patch %d, width %d, %d blocks, %d heads, hidden %d%s, expected %d, %d, %d, %d, %d",
                         t->o->student.init, f->patch_size, f->dim, f->depth, f->heads, f->hidden,
                         clip ? " and CLIP's changes" : "", c->patch_size, c->dim, c->depth, c->heads, c->hidden);
    sfp__vit_weights_copy(c, &t->state.weights, &v->weights);
    return SFP_OK;
}

static sfp_status create_student(training *t, sfp_error *err)
{
    const sfp__pretrain_options *o = t->o;
    sfp__vit_config c = {.img_size = o->student.img_size,
                         .patch_size = o->student.patch_size,
                         .channels = 3,
                         .dim = o->student.dim,
                         .depth = o->student.depth,
                         .heads = o->student.heads,
                         .hidden = o->student.hidden,
                         .ln_eps = 1e-6f};
    memcpy(c.mean, sfp__imagenet_mean, sizeof c.mean);
    memcpy(c.std, sfp__imagenet_std, sizeof c.std);
    sfp__vit_plan_options po = {.mode = SFP__VIT_GRAD_WEIGHTS, .microbatch_size = MICROBATCH_SIZE};
    TRY(sfp__vit_random(&c, o->plan.seed, 0.02f, &t->student, err));
    TRY(sfp__loss_create(&o->loss, &c, &t->images, t->has_teacher ? &t->teacher : NULL, sfp__thread_pool_size(t->pool),
                         MICROBATCH_SIZE, &t->loss, err));
    po.token_head = sfp__loss_all_tokens(t->loss);
    TRY(sfp__vit_plan_create(t->student, t->pool, &po, &t->plan, err));
    TRY(sfp__vit_plan_prepare(t->plan, o->plan.batch, err));
    TRY(sfp__pretrain_state_init(&t->state, &c, sfp__loss_count(t->loss), err));
    t->state.inputs =
        sfp__hash(sfp__image_set_hash(&t->images), t->images.label, (size_t)t->images.count * sizeof *t->images.label);
    if (t->has_teacher)
        t->state.inputs = sfp__hash(t->state.inputs, t->teacher.mean, 2 * (size_t)t->teacher.dim * sizeof(float));
    TRY(o->student.init ? load_initial_weights(t, &c, err) : sfp__vit_flat_init(&c, o->plan.seed, &t->state.weights, err));
    sfp__loss_init(t->loss, o->plan.seed, t->state.adam.x + t->state.vit_count);
    sfp__loss_decays(t->loss, t->state.decays + t->state.vit_count);
    memcpy(t->state.adam.ema, t->state.adam.x, t->state.adam.count * sizeof(float));
    return SFP_OK;
}

/* Means since the last point of the log; unchanged if there was no step since then. */
static void mean_losses(const training *t, double loss[SFP__TERMS])
{
    for (int i = 0; i < SFP__TERMS && t->state.interval.steps > 0; i++)
        loss[i] = t->state.interval.sum[i] / t->state.interval.steps;
}

static sfp_status prepare(training *t, sfp_error *err)
{
    const sfp__pretrain_options *o = t->o;
    bool has_run, found = false, used_old = false;
    TRY(sfp__pretrain_take_directory(o, &t->lock, &t->made, &has_run, err));
    TRY(load_images(t, err));
    if (t->images.count < o->plan.batch)
        return sfp__fail(err, SFP_EINVAL, "%s: number of training images is %lld, expected at least one batch of %d",
                         o->data.train, (long long)t->images.count, o->plan.batch);
    TRY(open_teacher(t, err));
    TRY(create_student(t, err));
    if (o->output.resume) {
        sfp_status s =
            sfp__pretrain_state_load(&t->state, o, &t->checkpoint, path_of(t, SFP__PRETRAIN_CHECKPOINT), &used_old, err);
        found = s == SFP_OK;
        if (!found && s != SFP_ENOTFOUND)
            return s;
        if (used_old)
            sfp__pretrain_message(t->calls, SFP_LOG_WARNING,
                                  "the last checkpoint is damaged; the run resumes from the one before");
    }
    TRY(sfp__vit_set_weights(t->student, &t->state.weights, err));
    if (!found && has_run) {
        char text[PATH_MAX + 64];
        (void)snprintf(text, sizeof text, "%s: the finished run in this directory is replaced", o->output.dir);
        sfp__pretrain_message(t->calls, SFP_LOG_INFO, text);
        TRY(sfp__pretrain_clear_directory(o, err));
    }
    uint64_t last;
    TRY(sfp__line_log_open(o->output.dir, SFP__PRETRAIN_LOG, SFP__PRETRAIN_LOG_KEY, found ? t->state.step + 1 : 0, 0, 0, &t->log,
                           err));
    if (sfp__line_log_last(t->log, &last) && last == t->state.step) { /* the point was written after the checkpoint */
        mean_losses(t, t->state.loss);
        t->state.interval = (sfp__log_interval){0};
    }
    t->epoch_steps = sfp__view_loader_epoch_steps(&t->images, o->plan.batch);
    return sfp__view_loader_create(&t->images, o, &t->state.config, t->has_teacher ? &t->teacher : NULL, t->state.step,
                                   &t->loader, err);
}

/* ------------------------------------------------------------------- steps */

static uint64_t total_steps(const training *t)
{
    return t->epoch_steps * (uint64_t)t->o->plan.epochs;
}

/* The completed fraction of the run, 0..1. */
static double fraction(const training *t)
{
    double f = t->o->plan.seconds > 0 ? t->state.seconds / t->o->plan.seconds : (double)t->state.step / (double)total_steps(t);
    return f < 1 ? f : 1;
}

static bool has_ended(const training *t)
{
    return t->o->plan.seconds > 0 ? t->state.seconds >= t->o->plan.seconds : t->state.step >= total_steps(t);
}

/* The learning rate at fraction f of the run: linear warm-up, then half a cosine. */
static double learning_rate(const sfp__pretrain_options *o, double f)
{
    if (f < o->adam.warmup)
        return o->adam.lr * (0.02 + 0.98 * f / o->adam.warmup);
    double x = (f - o->adam.warmup) / (1 - o->adam.warmup);
    return o->adam.lr * (FINAL_LR + (1 - FINAL_LR) * 0.5 * (1 + cos(x * 3.14159265358979323846)));
}

static sfp_status train_step(training *t, sfp_error *err)
{
    sfp__pretrain_state *st = &t->state;
    const sfp__pretrain_options *o = t->o;
    const sfp__view_batch *batch = NULL;
    double value[SFP__TERMS], begin = sfp__monotonic_seconds();
    TRY(sfp__view_loader_take(t->loader, &batch, err));
    memset(st->adam.g, 0, st->vit_count * sizeof(float));
    sfp__loss_begin(t->loss, batch, o->plan.batch, st->adam.x + st->vit_count);
    const sfp__vit_pass pass = {
        .b = o->plan.batch, .x = batch->x, .token_head = sfp__loss_tokens, .head_ctx = t->loss, .grad_w = &st->grads};
    TRY(sfp__vit_run(t->plan, &pass, err));
    sfp__loss_end(t->loss, value, st->adam.g + st->vit_count);
    double n = (double)st->step;
    t->state.interval.lr = learning_rate(o, fraction(t));
    const sfp__adamw_step a = {.t = st->step + 1,
                               .lr = t->state.interval.lr,
                               .weight_decay = o->adam.weight_decay,
                               .beta1 = 0.9,
                               .beta2 = o->adam.beta2,
                               .eps = 1e-8,
                               .clip = o->adam.clip,
                               .ema = fmin(o->adam.ema, (1 + n) / (10 + n))};
    t->state.interval.grad_norm = sfp__adamw_update(t->pool, &st->adam, &a);
    if (!isfinite(t->state.interval.grad_norm))
        return sfp__fail(err, SFP_EINVAL, "step %llu: the gradient is not finite; use a smaller --lr",
                         (unsigned long long)st->step);
    TRY(sfp__vit_set_weights(t->student, &st->weights, err));
    for (int i = 0; i < SFP__TERMS; i++)
        t->state.interval.sum[i] += value[i];
    double took = sfp__monotonic_seconds() - begin, usual = st->step ? st->seconds / (double)st->step : took;
    if (st->step >= 10 && took > 20 * usual)
        took = usual; /* the process or the machine was suspended; this time is not counted as training */
    st->step++;
    st->seconds += took;
    t->state.interval.steps++;
    t->state.interval.seconds += took;
    return SFP_OK;
}

/* ---------------------------------------------------- progress, log, checkpoint */

static double images_per_second(const training *t)
{
    return t->state.interval.seconds > 0 ? t->state.interval.steps * t->o->plan.batch / t->state.interval.seconds : NAN;
}

static void report_progress(const training *t)
{
    sfp_pretrain_progress p = {.size = sizeof p,
                               .phase = "train",
                               .done = t->state.step,
                               .total = t->o->plan.seconds > 0 ? 0 : total_steps(t),
                               .fraction = fraction(t),
                               .start_fraction = t->start_fraction,
                               .seconds = sfp__monotonic_seconds() - t->start_time,
                               .ncm = t->probe.ncm,
                               .knn = t->probe.knn,
                               .epoch = (double)t->state.step / (double)t->epoch_steps,
                               .images_per_second = images_per_second(t)};
    memcpy(p.loss, t->state.loss, sizeof p.loss);
    mean_losses(t, p.loss);
    sfp__pretrain_report_progress(t->calls, &p);
}

/* Adds a point to the log and restarts the sums. probe NULL: no probe. */
static sfp_status add_log_point(training *t, const sfp__probe *probe, sfp_error *err)
{
    sfp__log_point p = {.step = t->state.step,
                        .epoch = (double)t->state.step / (double)t->epoch_steps,
                        .seconds = t->state.seconds,
                        .lr = t->state.interval.lr,
                        .grad_norm = t->state.interval.grad_norm,
                        .images_per_second = images_per_second(t),
                        .ncm = probe ? probe->ncm : NAN,
                        .knn = probe ? probe->knn : NAN};
    mean_losses(t, t->state.loss);
    memcpy(p.loss, t->state.loss, sizeof p.loss);
    t->state.interval = (sfp__log_interval){0};
    return sfp__pretrain_log(t->log, &p, err);
}

/* Probes the averaged weights, which need a temporary ViT. */
static sfp_status run_probe(training *t, sfp_error *err)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    t->probed_at = t->state.seconds;
    TRY(sfp__vit_random(&t->state.config, 0, 0.02f, &v, err));
    TRY(sfp__vit_set_weights(v, &t->state.average, err));
    return sfp__probe_run(v, t->pool, &t->images, &t->test_images, t->o->output.max_probe_images, &t->probe, err);
}

static sfp_status save_checkpoint(training *t, sfp_error *err)
{
    t->saved_at = t->state.seconds;
    t->saved_step = t->state.step;
    TRY(sfp__line_log_sync(t->log, err));
    return sfp__pretrain_state_save(&t->state, t->o, &t->checkpoint, path_of(t, SFP__PRETRAIN_CHECKPOINT), err);
}

static sfp_status train(training *t, sfp_error *err)
{
    t->start_time = sfp__monotonic_seconds();
    t->start_fraction = fraction(t);
    t->saved_at = t->probed_at = t->state.seconds;
    t->saved_step = t->state.step;
    t->probe = (sfp__probe){.ncm = NAN, .knn = NAN};
    if (has_ended(t))
        sfp__pretrain_message(t->calls, SFP_LOG_INFO, "this run has already ended: nothing to do");
    while (!has_ended(t) && !sfp__pretrain_cancelled(t->calls)) {
        TRY(train_step(t, err));
        report_progress(t);
        bool probe = t->o->output.probe_seconds > 0 && t->state.seconds - t->probed_at >= t->o->output.probe_seconds;
        if (probe)
            TRY(run_probe(t, err));
        if (probe || t->state.interval.seconds >= LOG_SECONDS)
            TRY(add_log_point(t, probe ? &t->probe : NULL, err));
        if (probe)
            TRY(sfp__pretrain_report(t->o->output.dir, err));
        if (t->state.seconds - t->saved_at >= t->o->output.checkpoint_seconds)
            TRY(save_checkpoint(t, err));
    }
    return t->state.step > t->saved_step ? save_checkpoint(t, err) : SFP_OK;
}

/* ------------------------------------------------------------------- end */

/* Writes the averaged weights, with the label head if there is one; sets *c to the configuration of the model. */
static sfp_status write_model(training *t, sfp__vit_config *c, sfp_error *err)
{
    sfp__vit_weights w = t->state.average;
    const float *bias = NULL, *head = sfp__loss_label_head(t->loss, t->state.adam.ema + t->state.vit_count, &bias);
    union {
        const float *in;
        float *out; /* only written to a file */
    } hw = {.in = head}, hb = {.in = bias};
    *c = t->state.config;
    if (head) {
        c->classes = t->images.classes;
        c->class_names = t->images.class_names;
        w.head_w = hw.out;
        w.head_b = hb.out;
    }
    return sfp__vit_save(c, &w, t->o->output.half ? SFP__DTYPE_F16 : SFP__DTYPE_F32, NULL, 0, path_of(t, SFP__PRETRAIN_MODEL),
                         err);
}

static sfp_status finish(training *t, sfp_pretrain_result *r, sfp_error *err)
{
    *r = (sfp_pretrain_result){.size = sizeof *r,
                               .finished = has_ended(t),
                               .steps = t->state.step,
                               .images = (uint64_t)t->images.count,
                               .seconds = t->state.seconds,
                               .epochs = (double)t->state.step / (double)t->epoch_steps,
                               .parameters = sfp__vit_parameters(t->student)};
    r->images_per_second = (double)t->state.step * t->o->plan.batch / t->state.seconds;
    TRY(run_probe(t, err));
    if (t->state.interval.steps > 0)
        TRY(add_log_point(t, &t->probe, err));
    TRY(sfp__line_log_sync(t->log, err));
    memcpy(r->loss, t->state.loss, sizeof r->loss);
    r->ncm = t->probe.ncm;
    r->knn = t->probe.knn;
    sfp__vit_config c;
    TRY(write_model(t, &c, err));
    TRY(sfp__pretrain_write_config(path_of(t, SFP__PRETRAIN_CONFIG), t->o, t->calls ? t->calls->command : NULL, &c, r, err));
    return sfp__pretrain_report(t->o->output.dir, err);
}

static void training_free(training *t)
{
    if (!t)
        return;
    sfp__view_loader_free(t->loader);
    sfp__line_log_close(t->log);
    sfp__loss_free(t->loss);
    sfp__vit_plan_free(t->plan);
    sfp__vit_free(t->student);
    if (t->has_teacher)
        sfp__teacher_done(&t->teacher);
    sfp__pretrain_state_done(&t->state);
    sfp__image_set_done(&t->images);
    sfp__image_set_done(&t->test_images);
    sfp__directory_leave(t->o->output.dir, t->made, t->lock);
    sfp__free(t);
}
DEFINE_OWNED_PTR(training, training_free)

sfp_status sfp__pretrain(const sfp__pretrain_options *o, const sfp_pretrain_options *calls, sfp__thread_pool *pool,
                         sfp_pretrain_result *out, sfp_error *err)
{
    OWNED_PTR(training_free) training *t = NULL;
    _Static_assert(sizeof out->loss == SFP__TERMS * sizeof *out->loss, "one loss per term");
    TRY(sfp__alloc(&t, 1, sizeof *t, err));
    t->o = o;
    t->calls = calls;
    t->lock = -1;
    t->pool = pool;
    TRY(prepare(t, err));
    TRY(train(t, err));
    return finish(t, out, err);
}
