/* The backbone's part of a golden case:
 *
 *   query            feature of x in the unprompted backbone              (b, D)
 *   embed            patch embeddings, no class token, no position        (b, L, D)
 *   logits           classifier on the feature with prefix_k_l, prefix_v_l given          (b, classes)
 *   grad_prefix_*_l  gradient of the mean cross-entropy to these prefixes (b, rows, D) */
#include "verify.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_PREFIX_ROWS 4096

typedef struct backbone_case {
    sfp_golden *g;
    sfp_vit_plan *query_plan, *prefix_plan;
    float *last_w, *last_b;                                           /* (classes, D), (classes) */
    float *embed, *logits;                                            /* (b, L, D), (b, classes) */
    float *feature;                                                   /* (b, D), with prefixes */
    int rows[SFP_VIT_MAX_DEPTH];                                      /* of layer l's prefix; 0: none */
    float *prefix_k[SFP_VIT_MAX_DEPTH], *prefix_v[SFP_VIT_MAX_DEPTH]; /* (b, rows, D) */
    float *grad_k[SFP_VIT_MAX_DEPTH], *grad_v[SFP_VIT_MAX_DEPTH];     /* (b, rows, D) */
} backbone_case;

static sfp_status read_prefixes(backbone_case *k, sfp_error *err)
{
    sfp_golden *g = k->g;
    const sfp_vit_config *c = &g->vit->config;
    sfp_status s = SFP_OK;
    for (int l = 0; s == SFP_OK && l < c->depth; l++) {
        char k_name[32], v_name[32];
        (void)snprintf(k_name, sizeof k_name, "prefix_k_%d", l);
        (void)snprintf(v_name, sizeof v_name, "prefix_v_%d", l);
        const sfp_tensor *t = sfp__tensor_file_find(g->expect, k_name);
        if (!t)
            continue;
        if (t->ndim != 3 || t->shape[1] < 1 || t->shape[1] > MAX_PREFIX_ROWS) {
            char shape[160];
            return sfp__fail(err, SFP_ESHAPE, "%s: tensor '%s' is %s, expected (%d, 1 to %d, %d)", g->expect->path, k_name,
                             sfp__shape_text(t->shape, t->ndim, shape, sizeof shape), g->b, MAX_PREFIX_ROWS, c->dim);
        }
        k->rows[l] = (int)t->shape[1];
        int64_t shape[3] = {g->b, k->rows[l], c->dim};
        size_t floats = (size_t)g->b * (size_t)k->rows[l] * (size_t)c->dim;
        if ((s = sfp__verify_floats(g->expect, k_name, shape, 3, &k->prefix_k[l], err)) != SFP_OK ||
            (s = sfp__verify_floats(g->expect, v_name, shape, 3, &k->prefix_v[l], err)) != SFP_OK)
            break;
        k->grad_k[l] = sfp__calloc(floats, sizeof(float));
        k->grad_v[l] = sfp__calloc(floats, sizeof(float));
        if (!k->grad_k[l] || !k->grad_v[l])
            s = sfp__fail_nomem(err);
    }
    return s;
}

static sfp_status read_inputs(backbone_case *k, sfp_error *err)
{
    const sfp_golden *g = k->g;
    const sfp_vit_config *c = &g->vit->config;
    size_t b = (size_t)g->b, dim = (size_t)c->dim, patches = (size_t)g->vit->tokens - 1;
    int64_t w_shape[2] = {g->classes, c->dim}, b_shape[1] = {g->classes};
    sfp_status s;
    if ((s = sfp__verify_floats(g->state, "last.weight", w_shape, 2, &k->last_w, err)) != SFP_OK ||
        (s = sfp__verify_floats(g->state, "last.bias", b_shape, 1, &k->last_b, err)) != SFP_OK ||
        (s = read_prefixes(k, err)) != SFP_OK)
        return s;
    k->feature = sfp__calloc(b * dim, sizeof(float));
    k->embed = sfp__calloc(b * patches * dim, sizeof(float));
    k->logits = sfp__calloc(b * (size_t)g->classes, sizeof(float));
    if (!k->feature || !k->embed || !k->logits)
        return sfp__fail_nomem(err);
    return SFP_OK;
}

static void release(backbone_case *k)
{
    sfp__vit_plan_free(k->query_plan);
    sfp__vit_plan_free(k->prefix_plan);
    float *blocks[] = {k->last_w, k->last_b, k->embed, k->logits, k->feature};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        sfp__free(blocks[i]);
    for (int l = 0; l < SFP_VIT_MAX_DEPTH; l++) {
        sfp__free(k->prefix_k[l]);
        sfp__free(k->prefix_v[l]);
        sfp__free(k->grad_k[l]);
        sfp__free(k->grad_v[l]);
    }
}

/* Mean cross-entropy over the batch: grad_feature = W^t (softmax(z) - onehot(y)) / b, z = W feature + bias. */
static void classifier(void *ctx, int first, int n, const float *feature, float *grad_feature)
{
    backbone_case *k = ctx;
    const sfp_golden *g = k->g;
    size_t dim = (size_t)g->vit->config.dim;
    for (int i = 0; i < n; i++) {
        const float *f = feature + (size_t)i * dim;
        float *grad = grad_feature + (size_t)i * dim;
        float *z = k->logits + (size_t)(first + i) * (size_t)g->classes;
        double max = -INFINITY, sum = 0;
        for (int j = 0; j < g->classes; j++) {
            double v = (double)k->last_b[j];
            for (size_t d = 0; d < dim; d++)
                v += (double)k->last_w[(size_t)j * dim + d] * (double)f[d];
            z[j] = (float)v;
            max = v > max ? v : max;
        }
        for (int j = 0; j < g->classes; j++)
            sum += exp((double)z[j] - max);
        memset(grad, 0, dim * sizeof *grad);
        for (int j = 0; j < g->classes; j++) {
            double r = exp((double)z[j] - max) / sum - (g->y[first + i] == j ? 1.0 : 0.0);
            float scale = (float)(r / (double)g->b);
            for (size_t d = 0; d < dim; d++)
                grad[d] += scale * k->last_w[(size_t)j * dim + d];
        }
    }
}

static sfp_status compute(backbone_case *k, sfp_thread_pool *pool, sfp_error *err)
{
    sfp_golden *g = k->g;
    const sfp_vit_config *c = &g->vit->config;
    sfp_vit_plan_options plain = {.mode = SFP_VIT_FORWARD}, prefixed = {.mode = SFP_VIT_GRAD_PREFIX};
    for (int l = 0; l < c->depth; l++)
        prefixed.prefix_rows = k->rows[l] > prefixed.prefix_rows ? k->rows[l] : prefixed.prefix_rows;
    sfp_status s = sfp__vit_plan_create(g->vit, pool, &plain, &k->query_plan, err);
    if (s == SFP_OK)
        s = sfp__vit_plan_create(g->vit, pool, &prefixed, &k->prefix_plan, err);
    if (s != SFP_OK)
        return s;
    sfp_vit_pass query = {.b = g->b, .x = g->x, .feature = g->query, .embed = k->embed};
    s = sfp__vit_run(k->query_plan, &query, err);
    if (s != SFP_OK)
        return s;
    sfp_vit_prompt prompts[SFP_VIT_MAX_DEPTH] = {0};
    const sfp_vit_pass pass = {
        .b = g->b, .x = g->x, .prompts = prompts, .feature = k->feature, .head = classifier, .head_ctx = k};
    for (int l = 0; l < c->depth; l++)
        prompts[l] = (sfp_vit_prompt){
            .rows = k->rows[l], .k = k->prefix_k[l], .v = k->prefix_v[l], .grad_k = k->grad_k[l], .grad_v = k->grad_v[l]};
    return sfp__vit_run(k->prefix_plan, &pass, err);
}

static sfp_status compare_all(sfp_verify *r, backbone_case *k, sfp_error *err)
{
    sfp_golden *g = k->g;
    const sfp_vit_config *c = &g->vit->config;
    int64_t query[2] = {g->b, c->dim}, embed[3] = {g->b, g->vit->tokens - 1, c->dim}, logits[2] = {g->b, g->classes};
    sfp_status s;
    if ((s = sfp__verify_compare(r, g, "query", g->query, query, 2, SFP_VERIFY_VALUE, err)) != SFP_OK ||
        (s = sfp__verify_compare(r, g, "embed", k->embed, embed, 3, SFP_VERIFY_VALUE, err)) != SFP_OK ||
        (s = sfp__verify_compare(r, g, "logits", k->logits, logits, 2, SFP_VERIFY_VALUE, err)) != SFP_OK)
        return s;
    for (int l = 0; l < c->depth; l++) {
        char name[32];
        int64_t shape[3] = {g->b, k->rows[l], c->dim};
        for (int v = 0; k->rows[l] > 0 && v < 2; v++) {
            (void)snprintf(name, sizeof name, "prefix_%c_%d", v ? 'v' : 'k', l);
            sfp__verify_mark(g, name); /* an input */
            (void)snprintf(name, sizeof name, "grad_prefix_%c_%d", v ? 'v' : 'k', l);
            s = sfp__verify_compare(r, g, name, v ? k->grad_v[l] : k->grad_k[l], shape, 3, SFP_VERIFY_GRADIENT, err);
            if (s != SFP_OK)
                return s;
        }
    }
    return SFP_OK;
}

sfp_status sfp__verify_backbone(sfp_verify *r, sfp_golden *g, sfp_error *err)
{
    backbone_case k = {.g = g};
    sfp_status s = read_inputs(&k, err);
    if (s == SFP_OK)
        s = compute(&k, r->pool, err);
    if (s == SFP_OK)
        s = compare_all(r, &k, err);
    release(&k);
    return s;
}
