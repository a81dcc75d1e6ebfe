/* The backbone's part of a golden case:
 *
 *   query            class token of x in the query pass (no prefixes)     (b, D)
 *   embed            patch embeddings, no class token, no position        (b, L, D)
 *   logits           linear head on the feature with prefix_k_l, prefix_v_l (b, classes)
 *   grad_prefix_*_l  gradient of the mean cross-entropy to these prefixes (b, rows, D) */
#include "verify.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_PREFIX_ROWS 4096

typedef struct backbone_case {
    sfp__golden *g;
    sfp__vit_plan *query_plan, *prefix_plan;
    float *linear_w, *linear_b;                                         /* (classes, D), (classes) */
    void *block;                                                        /* owns the three arrays below */
    float *embed, *logits;                                              /* (b, L, D), (b, classes) */
    float *feature;                                                     /* (b, D), with prefixes */
    int rows[SFP__VIT_MAX_DEPTH];                                       /* of the prefix of layer l; 0: none */
    float *prefix_k[SFP__VIT_MAX_DEPTH], *prefix_v[SFP__VIT_MAX_DEPTH]; /* (b, rows, D) */
    float *grad_k[SFP__VIT_MAX_DEPTH], *grad_v[SFP__VIT_MAX_DEPTH];     /* (b, rows, D) */
} backbone_case;

static sfp_status read_prefixes(backbone_case *k, sfp_error *err)
{
    const sfp__golden *g = k->g;
    const sfp__vit_config *c = &g->vit->config;
    for (int l = 0; l < c->depth; l++) {
        char k_name[32], v_name[32];
        (void)snprintf(k_name, sizeof k_name, "prefix_k_%d", l);
        (void)snprintf(v_name, sizeof v_name, "prefix_v_%d", l);
        const sfp__tensor *t = sfp__tensor_file_find(g->expect, k_name);
        if (!t)
            continue;
        if (t->ndim != 3 || t->shape[1] < 1 || t->shape[1] > MAX_PREFIX_ROWS)
            return sfp__fail(err, SFP_ESHAPE, "%s: tensor '%s' is %s, expected (%d, 1 to %d, %d)", g->expect->path, k_name,
                             sfp__shape_text(t->shape, t->ndim, (char[160]){0}, 160), g->b, MAX_PREFIX_ROWS, c->dim);
        k->rows[l] = (int)t->shape[1];
        int64_t shape[3] = {g->b, k->rows[l], c->dim};
        size_t floats = (size_t)g->b * (size_t)k->rows[l] * (size_t)c->dim;
        TRY(sfp__verify_floats(g->expect, k_name, shape, 3, &k->prefix_k[l], err));
        TRY(sfp__verify_floats(g->expect, v_name, shape, 3, &k->prefix_v[l], err));
        TRY(sfp__alloc(&k->grad_k[l], floats, sizeof(float), err));
        TRY(sfp__alloc(&k->grad_v[l], floats, sizeof(float), err));
    }
    return SFP_OK;
}

static sfp_status read_inputs(backbone_case *k, sfp_error *err)
{
    const sfp__golden *g = k->g;
    const sfp__vit_config *c = &g->vit->config;
    size_t b = (size_t)g->b, dim = (size_t)c->dim, patches = (size_t)g->vit->tokens - 1;
    TRY(sfp__verify_floats(g->state, "last.weight", (int64_t[]){g->classes, c->dim}, 2, &k->linear_w, err));
    TRY(sfp__verify_floats(g->state, "last.bias", (int64_t[]){g->classes}, 1, &k->linear_b, err));
    TRY(read_prefixes(k, err));
    const sfp__want list[] = {{&k->feature, b * dim, sizeof(float)},
                              {&k->embed, b * patches * dim, sizeof(float)},
                              {&k->logits, b * (size_t)g->classes, sizeof(float)}};
    return sfp__block_cleared(&k->block, SFP__LIST(list), err);
}

static void case_done(backbone_case *k)
{
    sfp__vit_plan_free(k->query_plan);
    sfp__vit_plan_free(k->prefix_plan);
    sfp__free(k->linear_w);
    sfp__free(k->linear_b);
    sfp__free(k->block);
    for (int l = 0; l < SFP__VIT_MAX_DEPTH; l++) {
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
    const sfp__golden *g = k->g;
    size_t dim = (size_t)g->vit->config.dim;
    for (int i = 0; i < n; i++) {
        const float *f = feature + (size_t)i * dim;
        float *grad = grad_feature + (size_t)i * dim;
        float *z = k->logits + (size_t)(first + i) * (size_t)g->classes;
        double max = -INFINITY, sum = 0;
        for (int j = 0; j < g->classes; j++) {
            double v = (double)k->linear_b[j];
            for (size_t d = 0; d < dim; d++)
                v += (double)k->linear_w[(size_t)j * dim + d] * (double)f[d];
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
                grad[d] += scale * k->linear_w[(size_t)j * dim + d];
        }
    }
}

static sfp_status compute(backbone_case *k, sfp__thread_pool *pool, sfp_error *err)
{
    sfp__golden *g = k->g;
    const sfp__vit_config *c = &g->vit->config;
    sfp__vit_plan_options plain = {.mode = SFP__VIT_FORWARD}, prefixed = {.mode = SFP__VIT_GRAD_PREFIX};
    for (int l = 0; l < c->depth; l++)
        prefixed.prefix_rows = k->rows[l] > prefixed.prefix_rows ? k->rows[l] : prefixed.prefix_rows;
    TRY(sfp__vit_plan_create(g->vit, pool, &plain, &k->query_plan, err));
    TRY(sfp__vit_plan_create(g->vit, pool, &prefixed, &k->prefix_plan, err));
    sfp__vit_pass query = {.b = g->b, .x = g->x, .feature = g->query, .embed = k->embed};
    TRY(sfp__vit_run(k->query_plan, &query, err));
    sfp__vit_prompt prompts[SFP__VIT_MAX_DEPTH] = {0};
    const sfp__vit_pass pass = {
        .b = g->b, .x = g->x, .prompts = prompts, .feature = k->feature, .head = classifier, .head_ctx = k};
    for (int l = 0; l < c->depth; l++)
        prompts[l] = (sfp__vit_prompt){
            .rows = k->rows[l], .k = k->prefix_k[l], .v = k->prefix_v[l], .grad_k = k->grad_k[l], .grad_v = k->grad_v[l]};
    return sfp__vit_run(k->prefix_plan, &pass, err);
}

static sfp_status compare_all(sfp__verify *r, const backbone_case *k, sfp_error *err)
{
    sfp__golden *g = k->g;
    const sfp__vit_config *c = &g->vit->config;
    const int64_t embed[3] = {g->b, g->vit->tokens - 1, c->dim};
    TRY(sfp__verify_compare(r, g, "query", g->query, (int64_t[]){g->b, c->dim}, 2, SFP_VERIFY_VALUE, err));
    TRY(sfp__verify_compare(r, g, "embed", k->embed, embed, 3, SFP_VERIFY_VALUE, err));
    TRY(sfp__verify_compare(r, g, "logits", k->logits, (int64_t[]){g->b, g->classes}, 2, SFP_VERIFY_VALUE, err));
    for (int l = 0; l < c->depth; l++) {
        char name[32];
        int64_t shape[3] = {g->b, k->rows[l], c->dim};
        for (int v = 0; k->rows[l] > 0 && v < 2; v++) {
            (void)snprintf(name, sizeof name, "prefix_%c_%d", v ? 'v' : 'k', l);
            sfp__verify_mark(g, name); /* an input */
            (void)snprintf(name, sizeof name, "grad_prefix_%c_%d", v ? 'v' : 'k', l);
            TRY(sfp__verify_compare(r, g, name, v ? k->grad_v[l] : k->grad_k[l], shape, 3, SFP_VERIFY_GRADIENT, err));
        }
    }
    return SFP_OK;
}

sfp_status sfp__verify_backbone(sfp__verify *r, sfp__golden *g, sfp_error *err)
{
    OWNED_BY(case_done) backbone_case k = {.g = g};
    TRY(read_inputs(&k, err));
    TRY(compute(&k, r->pool, err));
    return compare_all(r, &k, err);
}
