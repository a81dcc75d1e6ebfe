/* From components to prefixes, and from the gradients of prefixes to those of components (docs/method.md, section 2), as far as
 * all kinds of pool share it.
 *
 *     P -> attuned -> projected (raw prefixes) -> the kind -> prefix of a sample
 *
 * The last arrow, in both directions, depends on the kind (pool_kind.h). */
#include "base/mem.h"
#include "compute/gemm.h"
#include "compute/vec.h"
#include "fingerprint/pool_kind.h"

#include <math.h>
#include <string.h>

/* --------------------------------------------------------------------- buffers */

sfp_status sfp__fp_buffers_create(sfp__fp *f, sfp_error *err)
{
    const sfp__fp_options *o = &f->opt;
    size_t pool = (size_t)o->pool, D = (size_t)f->D, comp = (size_t)o->length * D, b = (size_t)f->max_batch;
    size_t parts = (size_t)f->parts, n = 0;
    bool raw = o->prefix == SFP__PREFIX_RAW;
    sfp__want list[3 + 13 * SFP__FP_MAX_LAYERS];
#define WANT(wanted, to, floats) \
    if (wanted)                  \
    list[n++] = (sfp__want){&(to), (floats), sizeof(float)}
    WANT(true, f->row, D);
    WANT(true, f->squares, b * D);
    for (int l = 0; l < f->layers; l++) {
        sfp__fp_layer *y = &f->layer[l];
        sfp__fp_grad *g = &f->grad[l];
        size_t rows = (size_t)sfp__fp_layer_rows(f, l);
        WANT(o->attune, y->attuned, rows * comp);
        WANT(raw, y->projected, rows * comp);
        WANT(y->k.data, y->ak, pool * D);
        WANT(y->a.data, y->a2, pool * D);
        WANT(y->k.data, y->knorm, pool);
        WANT(true, y->alpha, b * pool);
        WANT(y->a.data, y->norm, b * pool);
        WANT(true, y->e, b * parts * comp);
        WANT(true, g->prefix, rows * comp);
        WANT(raw, g->projected, rows * comp);
        WANT(true, g->e, b * parts * comp);
        WANT(y->a.data, g->work, 2 * b * pool + 2 * pool * D);
        WANT(o->ortho_mu > 0, g->gram, rows * rows);
    }
#undef WANT
    TRY(sfp__block_cleared(&f->block, n, list, err));
    for (; raw && f->held < f->layers; f->held++)
        TRY(sfp__vit_hold(f->vit, f->layer[f->held].at, SFP__VIT_QKV, err));
    f->max_learning = o->tasks && !f->kind->whole ? o->pool / o->tasks : o->pool;
    if (!o->attune)
        return SFP_OK;
    const sfp__attune_options a = {.layers = f->layers,
                                   .pool = o->pool,
                                   .learning = f->max_learning,
                                   .length = o->length,
                                   .topk = o->attune_topk,
                                   .residual = o->attune_residual};
    return sfp__attune_create(f->vit, f->threads, &a, &f->attune, err);
}

/* Returns the components from which prefixes are formed, before the raw projection. */
static float *prefix_source(const sfp__fp_layer *y)
{
    return y->attuned ? y->attuned : y->p.data;
}

/* out (n, Lp*D) = in W^T (backwards: in W); the first half of a component's rows uses the key map of layer l, the second half the
 * value map. */
static void project(const sfp__fp *f, int l, int n, const float *in, bool backwards, float *out)
{
    const float *w = f->vit->weights.blocks[f->layer[l].at].qkv_w;
    int D = f->D, half = f->opt.length / 2;
    size_t comp = (size_t)f->opt.length * (size_t)D;
    for (int k = 0; k < n; k++)
        for (int part = 0; part < 2; part++) {
            size_t at = (size_t)k * comp + (size_t)(part * half) * (size_t)D;
            sfp__gemm_plain(false, !backwards, half, D, D, in + at, D, w + (size_t)(part + 1) * (size_t)D * (size_t)D, D, 0,
                            out + at, D);
        }
}

/* --------------------------------------------------------------------- forward */

typedef struct layer_job {
    sfp__fp *f;
    int first, n, terms;
} layer_job;

static void prepare_layer(void *ctx, int l, int worker)
{
    sfp__fp *f = ((layer_job *)ctx)->f;
    sfp__fp_layer *y = &f->layer[l];
    (void)worker;
    f->kind->prepare(f, l);
    if (y->projected) {
        int token = sfp__gemm_enter();
        project(f, l, sfp__fp_layer_active_end(f, l), prefix_source(y), false, y->projected);
        sfp__gemm_leave(token);
    }
}

static void attune_layers(const sfp__fp *f, sfp__attune_layer *out)
{
    for (int l = 0; l < f->layers; l++) {
        const sfp__fp_layer *y = &f->layer[l];
        out[l] = (sfp__attune_layer){.frozen_end = sfp__fp_layer_frozen_end(f, l),
                                     .active_end = sfp__fp_layer_active_end(f, l),
                                     .p = y->p.data,
                                     .out = y->attuned,
                                     .dout = f->grad[l].prefix,
                                     .dp = y->p.grad};
    }
}

sfp_status sfp__fp_prepare(sfp__fp *f, sfp_error *err)
{
    if (f->prepared)
        return SFP_OK;
    if (f->attune) {
        sfp__attune_layer layers[SFP__FP_MAX_LAYERS];
        attune_layers(f, layers);
        TRY(sfp__attune_fwd(f->attune, layers, &f->gate_w, &f->gate_b, err));
    }
    layer_job j = {.f = f};
    sfp__thread_pool_run(f->threads, f->layers, prepare_layer, &j);
    sfp__fp_view *v = &f->view;
    *v = (sfp__fp_view){.kind = f->kind,
                        .layers = f->layers,
                        .frozen_end = f->frozen_end,
                        .parts = f->parts,
                        .length = f->opt.length,
                        .dim = f->D};
    for (int l = 0; l < f->layers; l++) {
        const sfp__fp_layer *y = &f->layer[l];
        v->layer[l] = y->at;
        v->active_end[l] = sfp__fp_layer_active_end(f, l);
        v->ak[l] = y->ak;
        v->a2[l] = y->a2;
        v->prefix[l] = y->projected ? y->projected : prefix_source(y);
        v->bias[l] = y->projected ? f->vit->weights.blocks[y->at].qkv_b + f->D : NULL;
    }
    f->prepared = true;
    return SFP_OK;
}

void sfp__fp_compose(const sfp__fp_view *v, int l, int n, const float *query, int ld, float *alpha, float *norm, float *work,
                     float *prefix)
{
    const sfp__composing c = {
        .n = n, .query = query, .test = true, .ld = ld, .alpha = alpha, .norm = norm, .work = work, .prefix = prefix};
    v->kind->compose(v, l, &c);
}

static void compose(void *ctx, int first, int n, const float *query)
{
    sfp__fp *f = ctx;
    size_t at = (size_t)first, comp = (size_t)f->parts * (size_t)f->opt.length * (size_t)f->D, pool = (size_t)f->opt.pool;
    for (int l = 0; l < f->layers; l++) {
        const sfp__fp_layer *y = &f->layer[l];
        const sfp__composing c = {.n = n,
                                  .query = query,
                                  .replayed = f->samples.replayed ? f->samples.replayed + first : NULL,
                                  .ld = f->opt.pool,
                                  .alpha = y->alpha + at * pool,
                                  .norm = y->norm ? y->norm + at * pool : NULL,
                                  .work = f->squares + at * (size_t)f->D,
                                  .prefix = y->e + at * comp};
        f->kind->compose(&f->view, l, &c);
    }
}

void sfp__fp_attach(sfp__fp *f, sfp__vit_pass *pass, const sfp__fp_samples *samples)
{
    int half = sfp__fp_prefix_rows(&f->opt);
    size_t values = (size_t)half * (size_t)f->D;
    pass->compose = compose;
    pass->compose_ctx = f;
    pass->prompts = f->prompts;
    pass->prefix_stride = 2 * values;
    f->samples = samples ? *samples : (sfp__fp_samples){0};
    for (int l = 0; l < f->layers; l++) {
        sfp__fp_layer *y = &f->layer[l];
        float *grad = f->samples.weight ? f->grad[l].e : NULL;
        y->query = pass->query;
        f->prompts[y->at] =
            (sfp__vit_prompt){.rows = half, .k = y->e, .v = y->e + values, .grad_k = grad, .grad_v = grad ? grad + values : NULL};
    }
}

/* -------------------------------------------------------------------- backward */

/* Returns mu * mean((T T^t - I)^2) of T (n, w), and adds its gradient times `times` to `grad` for rows [first, n). */
static double ortho(int n, int w, const float *t, float mu, float *gram, int first, double times, float *grad)
{
    sfp__gemm_plain(false, true, n, n, w, t, w, t, w, 0, gram, n);
    double sum = 0;
    for (int i = 0; i < n; i++)
        gram[i * n + i] -= 1;
    for (int i = 0; i < n * n; i++)
        sum += (double)gram[i] * (double)gram[i];
    double mean = 1.0 / ((double)n * n);
    float scale = (float)(4 * (double)mu * mean * times);
    for (int i = 0; i < n * n; i++)
        gram[i] *= scale;
    if (n > first)
        sfp__gemm_plain(false, false, n - first, w, n, gram + (size_t)first * (size_t)n, n, t, w, 1,
                        grad + (size_t)first * (size_t)w, w);
    return (double)mu * sum * mean;
}

static void gradients_layer(void *ctx, int l, int worker)
{
    layer_job *j = ctx;
    sfp__fp *f = j->f;
    (void)worker;
    sfp__fp_layer *y = &f->layer[l];
    sfp__fp_grad *g = &f->grad[l];
    int D = f->D, frozen_end = sfp__fp_layer_frozen_end(f, l), N = sfp__fp_layer_active_end(f, l), comp = f->opt.length * D;
    int token = sfp__gemm_enter();
    g->own = f->kind->backward(f, l, j->first, j->n, y->projected ? g->projected : g->prefix);
    if (y->projected)
        project(f, l, N, g->projected, true, g->prefix);
    g->penalty = 0;
    if (f->opt.ortho_mu > 0) {
        float mu = f->opt.ortho_mu;
        if (y->k.data)
            g->penalty += ortho(N, D, y->k.data, mu, g->gram, frozen_end, j->terms, y->k.grad);
        if (y->a.data)
            g->penalty += ortho(N, D, y->a.data, mu, g->gram, frozen_end, j->terms, y->a.grad);
        g->penalty += ortho(N, comp, prefix_source(y), mu, g->gram, 0, j->terms, g->prefix);
    }
    if (!f->opt.attune) {
        size_t at = (size_t)frozen_end * (size_t)comp, n = (size_t)(N - frozen_end) * (size_t)comp;
        for (size_t i = at; i < at + n; i++)
            y->p.grad[i] += g->prefix[i];
    }
    sfp__gemm_leave(token);
}

sfp_status sfp__fp_gradients(sfp__fp *f, int first, int n, int terms, double *loss, sfp_error *err)
{
    if (first < 0 || n < 1 || n > f->max_batch - first)
        return sfp__fail(err, SFP_EINVAL, "gradients are for %d samples from %d on, expected 1 to %d samples in all", n, first,
                         f->max_batch);
    layer_job j = {.f = f, .first = first, .n = n, .terms = terms};
    sfp__thread_pool_run(f->threads, f->layers, gradients_layer, &j);
    double penalty = 0, own = 0;
    for (int l = 0; l < f->layers; l++) {
        penalty += f->grad[l].penalty;
        own += f->grad[l].own;
    }
    *loss = terms * penalty + own;
    unsigned failures = sfp__gemm_failures();
    if (f->attune) {
        sfp__attune_layer layers[SFP__FP_MAX_LAYERS];
        attune_layers(f, layers);
        sfp__attune_bwd(f->attune, layers, &f->gate_w, &f->gate_b);
    }
    return sfp__gemm_check(failures, err);
}
