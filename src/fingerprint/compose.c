/* From components to prefixes and from their gradients back (SPEC section 2):
 * what all kinds of pool share.
 *
 *     P -> attuned -> projected (raw prefixes) -> the kind -> prefix of a sample
 *
 * The last arrow, both ways, is the kind's own (pool_kind.h). */
#include "base/mem.h"
#include "compute/gemm.h"
#include "compute/vec.h"
#include "fingerprint/pool_kind.h"

#include <math.h>
#include <string.h>

/* --------------------------------------------------------------------- buffers */

sfp_status sfp__fp_buffers_create(sfp_fp *f, sfp_error *err)
{
    const sfp_fp_options *o = &f->opt;
    size_t pool = (size_t)o->pool, comp = (size_t)o->length * (size_t)f->D, D = (size_t)f->D, b = (size_t)f->max_batch;
    bool raw = o->prefix == SFP_PREFIX_RAW;
    bool ok = (f->row = sfp__malloc(D * sizeof(float))) &&
              (f->squares = sfp__malloc(b * D * sizeof(float) * (o->query_one ? (size_t)f->layers : 1))) &&
              (!o->query_one || (f->token = sfp__malloc(b * D * sizeof(float) * (size_t)f->layers)));
    for (int l = 0; l < f->layers; l++) {
        size_t rows = (size_t)sfp__fp_layer_rows(f, l), parts = (size_t)f->parts;
        bool keys = f->k[l].data != NULL, attention = f->a[l].data != NULL;
        const struct {
            bool wanted;
            float **to;
            size_t floats;
        } list[] = {{o->attune, &f->attuned[l], rows * comp},
                    {raw, &f->projected[l], rows * comp},
                    {raw, &f->unprojected[l], rows * comp},
                    {true, &f->dprefix[l], rows * comp},
                    {keys, &f->ak[l], pool * D},
                    {attention, &f->a2[l], pool * D},
                    {keys, &f->knorm[l], pool},
                    {true, &f->alpha[l], b * pool},
                    {attention, &f->norm[l], b * pool},
                    {true, &f->e[l], b * parts * comp},
                    {true, &f->de[l], b * parts * comp},
                    {attention, &f->work[l], 2 * b * pool + 2 * pool * D},
                    {o->ortho_mu > 0, &f->gram[l], rows * rows}};
        for (size_t i = 0; i < sizeof list / sizeof *list; i++)
            ok = ok && (!list[i].wanted || (*list[i].to = sfp__calloc(list[i].floats, sizeof(float))));
    }
    if (!ok)
        return sfp__fail_nomem(err);
    f->learning_most = o->tasks && !f->kind->whole ? o->pool / o->tasks : o->pool;
    if (!o->attune)
        return SFP_OK;
    const sfp_attune_options a = {.layers = f->layers,
                                  .pool = o->pool,
                                  .learning = f->learning_most,
                                  .length = o->length,
                                  .topk = o->attune_topk,
                                  .residual = o->attune_residual};
    return sfp__attune_create(f->vit, f->threads, &a, &f->attune, err);
}

void sfp__fp_buffers_free(sfp_fp *f)
{
    sfp__attune_free(f->attune);
    sfp__free(f->row);
    sfp__free(f->squares);
    sfp__free(f->token);
    for (int l = 0; l < f->layers; l++) {
        float *all[] = {f->attuned[l], f->projected[l], f->dprefix[l], f->ak[l],   f->a2[l],   f->knorm[l],      f->alpha[l],
                        f->norm[l],    f->e[l],         f->de[l],      f->work[l], f->gram[l], f->unprojected[l]};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            sfp__free(all[i]);
    }
}

/* The pool that prefixes are made of before the raw projection. */
static float *pool_of(const sfp_fp *f, int l)
{
    return f->opt.attune ? f->attuned[l] : f->p[l].data;
}

static float *prefix_of(const sfp_fp *f, int l)
{
    return f->opt.prefix == SFP_PREFIX_RAW ? f->projected[l] : pool_of(f, l);
}

/* out (n, Lp*D) (+)= in W^T (or in W, backwards), the first half of a component's rows by the key map, the rest by the
 * value map of layer l. */
static void project(const sfp_fp *f, int l, int n, const float *in, bool backwards, float *out)
{
    const float *w = f->vit->weights.blocks[f->layer[l]].qkv_w;
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
    sfp_fp *f;
    int first, n, terms;
} layer_job;

static void prepare_layer(void *ctx, int l, int worker)
{
    sfp_fp *f = ((layer_job *)ctx)->f;
    (void)worker;
    f->kind->prepare(f, l);
    if (f->opt.prefix == SFP_PREFIX_RAW) {
        int token = sfp__gemm_enter();
        project(f, l, sfp__fp_layer_open(f, l), pool_of(f, l), false, f->projected[l]);
        sfp__gemm_leave(token);
    }
}

static void attune_spans(const sfp_fp *f, sfp_attune_span *out)
{
    for (int l = 0; l < f->layers; l++)
        out[l] = (sfp_attune_span){sfp__fp_layer_start(f, l), sfp__fp_layer_open(f, l)};
}

sfp_status sfp__fp_prepare(sfp_fp *f, sfp_error *err)
{
    if (f->prepared)
        return SFP_OK;
    if (f->attune) {
        const float *p[SFP_FP_MAX_LAYERS];
        sfp_attune_span spans[SFP_FP_MAX_LAYERS];
        for (int l = 0; l < f->layers; l++)
            p[l] = f->p[l].data;
        attune_spans(f, spans);
        sfp_status s = sfp__attune_fwd(f->attune, spans, p, &f->gate_w, &f->gate_b, f->attuned, err);
        if (s)
            return s;
    }
    layer_job j = {.f = f};
    sfp__thread_pool_run(f->threads, f->layers, prepare_layer, &j);
    f->view = (sfp_fp_view){
        .kind = f->kind, .layers = f->layers, .start = f->start, .parts = f->parts, .length = f->opt.length, .dim = f->D};
    for (int l = 0; l < f->layers; l++) {
        f->view.layer[l] = f->layer[l];
        f->view.open[l] = sfp__fp_layer_open(f, l);
        f->view.ak[l] = f->ak[l];
        f->view.a2[l] = f->a2[l];
        f->view.prefix[l] = prefix_of(f, l);
        if (f->opt.prefix == SFP_PREFIX_RAW)
            f->view.bias[l] = f->vit->weights.blocks[f->layer[l]].qkv_b + f->D;
    }
    f->prepared = true;
    return SFP_OK;
}

void sfp__fp_compose(const sfp_fp_view *v, int l, int n, const float *query, int ld, float *alpha, float *norm, float *work,
                     float *prefix)
{
    const sfp__composing c = {
        .n = n, .query = query, .test = true, .ld = ld, .alpha = alpha, .norm = norm, .work = work, .prefix = prefix};
    v->kind->compose(v, l, &c);
}

static void compose_at(sfp_fp *f, int l, int first, int n, const float *query, float *square)
{
    size_t at = (size_t)first, comp = (size_t)f->parts * (size_t)f->opt.length * (size_t)f->D, pool = (size_t)f->opt.pool;
    const sfp__composing c = {.n = n,
                              .query = query,
                              .rehearsed = f->samples.rehearsed ? f->samples.rehearsed + first : NULL,
                              .ld = f->opt.pool,
                              .alpha = f->alpha[l] + at * pool,
                              .norm = f->norm[l] ? f->norm[l] + at * pool : NULL,
                              .work = square + at * (size_t)f->D,
                              .prefix = f->e[l] + at * comp};
    f->kind->compose(&f->view, l, &c);
}

static void compose(void *ctx, int first, int n, const float *query)
{
    sfp_fp *f = ctx;
    for (int l = 0; l < f->layers; l++)
        compose_at(f, l, first, n, query, f->squares);
}

static void compose_layer(void *ctx, int layer, int first, int n, const float *token)
{
    sfp_fp *f = ctx;
    int l = layer - f->layer[0];
    size_t room = (size_t)f->max_batch * (size_t)f->D, at = (size_t)first * (size_t)f->D;
    float *kept = f->token + (size_t)l * room + at;
    memcpy(kept, token, (size_t)n * (size_t)f->D * sizeof *kept);
    compose_at(f, l, first, n, kept, f->squares + (size_t)l * room);
}

void sfp__fp_attach(sfp_fp *f, sfp_vit_pass *pass, const sfp_fp_samples *samples)
{
    int half = sfp__fp_prefix_rows(&f->opt);
    size_t values = (size_t)half * (size_t)f->D, room = (size_t)f->max_batch * (size_t)f->D;
    pass->compose = f->opt.query_one ? NULL : compose;
    pass->compose_layer = f->opt.query_one ? compose_layer : NULL;
    pass->compose_ctx = f;
    pass->prefix_stride = 2 * values;
    f->samples = samples ? *samples : (sfp_fp_samples){0};
    for (int l = 0; l < f->layers; l++) {
        int at = f->layer[l];
        f->query[l] = f->opt.query_one ? f->token + (size_t)l * room : pass->query;
        f->square[l] = f->opt.query_one ? f->squares + (size_t)l * room : f->squares;
        pass->prefix_rows[at] = half;
        pass->prefix_k[at] = f->e[l];
        pass->prefix_v[at] = f->e[l] + values;
        pass->grad_prefix_k[at] = f->samples.weight ? f->de[l] : NULL;
        pass->grad_prefix_v[at] = f->samples.weight ? f->de[l] + values : NULL;
    }
}

/* -------------------------------------------------------------------- backward */

/* mu * mean((T T^t - I)^2) of T (n, w); with `grad` its gradient times `times` is added for rows [first, n). */
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
    sfp_fp *f = j->f;
    (void)worker;
    int D = f->D, start = sfp__fp_layer_start(f, l), N = sfp__fp_layer_open(f, l), comp = f->opt.length * D;
    bool raw = f->opt.prefix == SFP_PREFIX_RAW;
    int token = sfp__gemm_enter();
    f->own[l] = f->kind->backward(f, l, j->first, j->n, raw ? f->unprojected[l] : f->dprefix[l]);
    if (raw)
        project(f, l, N, f->unprojected[l], true, f->dprefix[l]);
    f->penalty[l] = 0;
    if (f->opt.ortho_mu > 0) {
        float mu = f->opt.ortho_mu;
        if (f->k[l].data)
            f->penalty[l] += ortho(N, D, f->k[l].data, mu, f->gram[l], start, j->terms, f->k[l].grad);
        if (f->a[l].data)
            f->penalty[l] += ortho(N, D, f->a[l].data, mu, f->gram[l], start, j->terms, f->a[l].grad);
        f->penalty[l] += ortho(N, comp, pool_of(f, l), mu, f->gram[l], 0, j->terms, f->dprefix[l]);
    }
    if (!f->opt.attune) {
        size_t at = (size_t)start * (size_t)comp, n = (size_t)(N - start) * (size_t)comp;
        for (size_t i = at; i < at + n; i++)
            f->p[l].grad[i] += f->dprefix[l][i];
    }
    sfp__gemm_leave(token);
}

sfp_status sfp__fp_gradients(sfp_fp *f, int first, int n, int terms, double *loss, sfp_error *err)
{
    if (first < 0 || n < 1 || n > f->max_batch - first)
        return sfp__fail(err, SFP_EINVAL, "gradients of %d samples from %d on, expected 1 to %d in all", n, first, f->max_batch);
    layer_job j = {.f = f, .first = first, .n = n, .terms = terms};
    sfp__thread_pool_run(f->threads, f->layers, gradients_layer, &j);
    double penalty = 0, own = 0;
    for (int l = 0; l < f->layers; l++) {
        penalty += f->penalty[l];
        own += f->own[l];
    }
    *loss = terms * penalty + own;
    if (f->attune) {
        const float *p[SFP_FP_MAX_LAYERS], *dout[SFP_FP_MAX_LAYERS];
        float *dp[SFP_FP_MAX_LAYERS];
        sfp_attune_span spans[SFP_FP_MAX_LAYERS];
        attune_spans(f, spans);
        for (int l = 0; l < f->layers; l++) {
            p[l] = f->p[l].data;
            dout[l] = f->dprefix[l];
            dp[l] = f->p[l].grad;
        }
        sfp__attune_bwd(f->attune, spans, p, dout, dp, &f->gate_w, &f->gate_b);
    }
    return SFP_OK;
}
