/* The training step. Its order: attune the pool; run one pass over coreset and replay together (per micro-batch: unknown queries,
 * prefixes, forward, loss, backward); compute the gradients of pool, gate and linear head; Adam.
 *
 * The two mean losses are one sum with a weight per sample, so one pass computes both. */
#include "learner/trainer.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "compute/gemm.h"
#include "compute/vec.h"

#include <math.h>
#include <string.h>

struct sfp__trainer {
    sfp__trainer_options opt;
    sfp__vit *vit;
    sfp__thread_pool *threads;
    sfp__fp *fp;
    int D;
    sfp__vit_plan *backward, *forward;
    sfp__vit_plan *pixels; /* NULL: sfp__trainer_prepare_pixels was not called */
    float *feature;        /* (max_batch, D) */
    int classes;           /* capacity of the arrays below */
    float *logits;         /* (max_batch, classes) */
    float *residual;       /* (max_batch, classes) gradient of the loss with respect to the logits */
    double *loss;          /* (max_batch) */
    const sfp__train_batch *batch;
    const float *dfeature; /* (n, D) gradient of the features, for a pass to pixels without a loss */
};

static sfp_status reserve_classes(sfp__trainer *t, int classes, sfp_error *err)
{
    if (classes <= t->classes)
        return SFP_OK;
    int capacity = classes > 2 * t->classes ? classes : 2 * t->classes;
    size_t n = (size_t)t->opt.max_batch * (size_t)capacity;
    OWNED float *logits = sfp__malloc(n * sizeof *logits), *residual = sfp__malloc(n * sizeof *residual);
    TRY(sfp__check_memory(logits && residual, err));
    sfp__free(t->logits);
    sfp__free(t->residual);
    t->logits = TAKE(logits);
    t->residual = TAKE(residual);
    t->classes = capacity;
    return SFP_OK;
}

static sfp_status make_plan(const sfp__trainer *t, const sfp__vit_plan_options *o, sfp__vit_plan **out, sfp_error *err)
{
    TRY(sfp__vit_plan_create(t->vit, t->threads, o, out, err));
    return sfp__vit_plan_prepare(*out, t->opt.max_batch, err);
}

sfp_status sfp__trainer_create(sfp__vit *vit, sfp__thread_pool *threads, const sfp__trainer_options *opt, sfp__trainer **out,
                               sfp_error *err)
{
    OWNED_PTR(sfp__trainer_free) sfp__trainer *t = NULL;
    TRY(sfp__alloc(&t, 1, sizeof *t, err));
    t->opt = *opt;
    t->vit = vit;
    t->threads = threads;
    t->D = vit->config.dim;
    size_t b = (size_t)opt->max_batch;
    TRY(sfp__fp_create(vit, threads, &opt->fp, opt->max_batch, &t->fp, err));
    TRY(sfp__alloc(&t->feature, b * (size_t)t->D, sizeof *t->feature, err));
    TRY(sfp__alloc(&t->loss, b, sizeof *t->loss, err));
    TRY(reserve_classes(t, opt->fp.classes > 16 ? opt->fp.classes : 16, err));
    const sfp__vit_plan_options plain = {.mode = SFP__VIT_FORWARD};
    const sfp__vit_plan_options train = {
        .mode = SFP__VIT_GRAD_PREFIX, .prefix_rows = sfp__fp_prefix_rows(&t->fp->opt), .queries = true};
    TRY(make_plan(t, &train, &t->backward, err));
    TRY(make_plan(t, &plain, &t->forward, err));
    *out = TAKE(t);
    return SFP_OK;
}

void sfp__trainer_free(sfp__trainer *t)
{
    if (!t)
        return;
    sfp__vit_plan_free(t->forward);
    sfp__vit_plan_free(t->backward);
    sfp__vit_plan_free(t->pixels);
    sfp__fp_free(t->fp);
    sfp__free(t->feature);
    sfp__free(t->logits);
    sfp__free(t->residual);
    sfp__free(t->loss);
    sfp__free(t);
}

sfp__fp *sfp__trainer_fp(sfp__trainer *t)
{
    return t->fp;
}

sfp_status sfp__trainer_add_classes(sfp__trainer *t, int classes, sfp_error *err)
{
    TRY(reserve_classes(t, classes, err));
    return sfp__fp_add_classes(t->fp, classes, err);
}

/* Computes the cross-entropy of samples [first, first + n): losses, residuals and the gradient of the features. */
static void run_linear_head(void *ctx, int first, int n, const float *feature, float *grad)
{
    sfp__trainer *t = ctx;
    const sfp__train_batch *b = t->batch;
    const sfp__param *w = &t->fp->linear_w, *bias = &t->fp->linear_b;
    int C = w->rows, D = t->D;
    float *logits = t->logits + (size_t)first * (size_t)C, *residual = t->residual + (size_t)first * (size_t)C;
    for (int i = 0; i < n; i++)
        memcpy(logits + i * C, bias->data, (size_t)C * sizeof *logits);
    sfp__gemm_plain(false, true, n, C, D, feature, D, w->data, D, 1, logits, C);
    for (int i = 0; i < n; i++) {
        const float *z = logits + i * C;
        float *r = residual + i * C, max = -INFINITY;
        const uint8_t *allowed = b->masked && b->masked[first + i] ? b->allowed : NULL;
        int label = b->label[first + i];
        for (int c = 0; c < C; c++)
            if (!allowed || allowed[c])
                max = fmaxf(max, z[c]);
        double sum = 0;
        for (int c = 0; c < C; c++)
            sum += (double)(r[c] = !allowed || allowed[c] ? expf(z[c] - max) : 0);
        t->loss[first + i] = (double)b->weight[first + i] * (log(sum) - ((double)z[label] - (double)max));
        float scale = b->weight[first + i] / (float)sum;
        for (int c = 0; c < C; c++)
            r[c] *= scale;
        r[label] -= b->weight[first + i];
    }
    sfp__gemm_plain(false, false, n, D, C, residual, C, w->data, D, 0, grad, D);
}

static sfp_status check_labels(const sfp__trainer *t, const sfp__train_batch *b, sfp_error *err)
{
    int C = t->fp->linear_w.rows;
    if (b->n < 1 || b->n > t->opt.max_batch)
        return sfp__fail(err, SFP_EINVAL, "step: number of samples is %d, expected 1 to %d", b->n, t->opt.max_batch);
    for (int i = 0; i < b->n; i++) {
        if (b->label[i] < 0 || b->label[i] >= C)
            return sfp__fail(err, SFP_EINVAL, "sample %d of the step has label %d, expected 0 to %d", i, b->label[i], C - 1);
        if (b->masked && b->masked[i] && !b->allowed[b->label[i]])
            return sfp__fail(err, SFP_EINVAL, "sample %d of the step has label %d, expected a class of the current task", i,
                             b->label[i]);
    }
    return SFP_OK;
}

sfp_status sfp__trainer_pass(sfp__trainer *t, const sfp__train_batch *b, sfp__train_result *result, sfp_error *err)
{
    TRY(check_labels(t, b, err));
    double begin = sfp__monotonic_seconds();
    TRY(sfp__fp_prepare(t->fp, err));
    double attuned = sfp__monotonic_seconds();
    t->batch = b;
    sfp__vit_pass pass = {.b = b->n,
                          .xs = b->x,
                          .query = b->query,
                          .queries = b->queries,
                          .feature = t->feature,
                          .head = run_linear_head,
                          .head_ctx = t,
                          .memo = t->opt.memo};
    double saved = sfp__time_saved(t->opt.time);
    const sfp__fp_samples samples = {.weight = b->weight, .replayed = b->replayed};
    sfp__fp_attach(t->fp, &pass, &samples);
    TRY(sfp__vit_run(t->backward, &pass, err));
    double ran = sfp__monotonic_seconds();
    sfp__vit_seconds lane = sfp__vit_plan_seconds(t->backward);
    double all = lane.query + lane.forward + lane.backward, share = all > 0 ? (ran - attuned) / all : 0;
    *result = (sfp__train_result){.feature = t->feature,
                                  .logits = t->logits,
                                  .attune_seconds = attuned - begin,
                                  .query_seconds = lane.query * share + sfp__time_saved(t->opt.time) - saved,
                                  .forward_seconds = lane.forward * share,
                                  .backward_seconds = lane.backward * share};
    for (int i = 0; i < b->n; i++)
        result->loss += t->loss[i];
    return SFP_OK;
}

sfp_status sfp__trainer_collect(sfp__trainer *t, int first, int n, int terms, double *loss, sfp_error *err)
{
    sfp__param *w = &t->fp->linear_w, *bias = &t->fp->linear_b;
    size_t C = (size_t)w->rows, at = (size_t)first;
    sfp__fp_zero_grad(t->fp);
    TRY(sfp__fp_gradients(t->fp, first, n, terms, loss, err));
    int token = sfp__gemm_enter();
    sfp__gemm_plain(true, false, w->rows, t->D, n, t->residual + at * C, w->rows, t->feature + at * (size_t)t->D, t->D, 1,
                    w->grad, t->D);
    sfp__gemm_leave(token);
    for (int i = first; i < first + n; i++) {
        sfp__axpy(w->rows, 1, t->residual + (size_t)i * C, bias->grad);
        *loss += t->loss[i];
    }
    if (!isfinite(*loss))
        return sfp__fail(err, SFP_EINVAL,
                         "loss is %g, expected a finite number; check the images, the weights and the learning rate", *loss);
    return SFP_OK;
}

sfp_status sfp__trainer_gradients(sfp__trainer *t, const sfp__train_batch *b, sfp__train_result *result, sfp_error *err)
{
    TRY(sfp__trainer_pass(t, b, result, err));
    double ran = sfp__monotonic_seconds();
    TRY(sfp__trainer_collect(t, 0, b->n, b->terms, &result->loss, err));
    result->update_seconds = sfp__monotonic_seconds() - ran;
    return SFP_OK;
}

sfp_status sfp__trainer_step(sfp__trainer *t, const sfp__train_batch *batch, sfp__train_result *result, sfp_error *err)
{
    TRY(sfp__trainer_gradients(t, batch, result, err));
    double begin = sfp__monotonic_seconds();
    sfp__fp_step(t->fp, &t->opt.adam);
    result->update_seconds += sfp__monotonic_seconds() - begin;
    return SFP_OK;
}

/* --------------------------------------------------------------- pixel gradients */

sfp_status sfp__trainer_prepare_pixels(sfp__trainer *t, sfp_error *err)
{
    const sfp__vit_plan_options o = {
        .mode = SFP__VIT_GRAD_INPUT, .prefix_rows = sfp__fp_prefix_rows(&t->fp->opt), .queries = true};
    if (t->pixels)
        return SFP_OK;
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
    TRY(make_plan(t, &o, &plan, err));
    t->pixels = TAKE(plan);
    return SFP_OK;
}

static sfp_status run_to_pixels(sfp__trainer *t, const sfp__train_batch *b, sfp__vit_head_fn loss, float *dx, sfp_error *err)
{
    TRY(sfp__trainer_prepare_pixels(t, err));
    TRY(sfp__fp_prepare(t->fp, err));
    sfp__vit_pass pass = {
        .b = b->n, .xs = b->x, .query = b->query, .queries = b->queries, .head = loss, .head_ctx = t, .grad_x = dx};
    const sfp__fp_samples samples = {.replayed = b->replayed};
    sfp__fp_attach(t->fp, &pass, &samples);
    t->batch = b;
    return sfp__vit_run(t->pixels, &pass, err);
}

sfp_status sfp__trainer_pixels(sfp__trainer *t, const sfp__train_batch *batch, float *dx, sfp_error *err)
{
    TRY(check_labels(t, batch, err));
    return run_to_pixels(t, batch, run_linear_head, dx, err);
}

static void copy_dfeature(void *ctx, int first, int n, const float *feature, float *grad)
{
    const sfp__trainer *t = ctx;
    (void)feature;
    memcpy(grad, t->dfeature + (size_t)first * (size_t)t->D, (size_t)n * (size_t)t->D * sizeof *grad);
}

sfp_status sfp__trainer_feature_pixels(sfp__trainer *t, const sfp__train_batch *batch, const float *dfeature, float *dx,
                                       sfp_error *err)
{
    if (batch->n < 1 || batch->n > t->opt.max_batch)
        return sfp__fail(err, SFP_EINVAL, "pixel gradients: number of samples is %d, expected 1 to %d", batch->n,
                         t->opt.max_batch);
    t->dfeature = dfeature;
    return run_to_pixels(t, batch, copy_dfeature, dx, err);
}

sfp_status sfp__trainer_embed(sfp__trainer *t, int n, const float *const *x, float *mean_embed, sfp_error *err)
{
    const sfp__vit_pass pass = {.b = n, .xs = x, .embed_only = true, .mean_embed = mean_embed, .memo = t->opt.memo};
    return sfp__vit_run(t->forward, &pass, err);
}

sfp_status sfp__trainer_queries(sfp__trainer *t, int n, const float *const *x, float *query, sfp_error *err)
{
    const sfp__vit_pass pass = {.b = n, .xs = x, .feature = query, .memo = t->opt.memo};
    return sfp__vit_run(t->forward, &pass, err);
}
