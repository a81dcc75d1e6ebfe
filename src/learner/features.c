#include "learner/features.h"

#include "base/mem.h"
#include "compute/gemm.h"
#include "compute/kernels.h"
#include "compute/vec.h"
#include "select/select.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 16 }; /* maximum number of samples whose tokens are in memory */

static bool wants(const sfp__method_inputs *k, unsigned needs)
{
    return k->needs & needs;
}

/* -------------------------------------------------------------- create, free */

static sfp_status make_plan(const sfp__method_inputs *k, sfp__thread_pool *threads, const sfp__vit_plan_options *o,
                            sfp__vit_plan **out, sfp_error *err)
{
    TRY(sfp__vit_plan_create(k->vit, threads, o, out, err));
    return sfp__vit_plan_prepare(*out, k->max_batch < CHUNK ? k->max_batch : CHUNK, err);
}

sfp_status sfp__method_inputs_init(sfp__method_inputs *k, sfp__vit *vit, sfp__thread_pool *threads, sfp__fp *fp, unsigned needs,
                                   int max_batch, sfp_error *err)
{
    const sfp__vit_config *c = &vit->config;
    *k =
        (sfp__method_inputs){.needs = needs & SFP__METHOD_INPUT_NEEDS, .vit = vit, .fp = fp, .max_batch = max_batch, .D = c->dim};
    if (!k->needs)
        return SFP_OK;
    bool attention = wants(k, SFP__NEED_ATTENTION), taps = wants(k, SFP__NEED_TAPS);
    if (attention && c->depth < 2)
        return sfp__fail(err, SFP_EUNSUPPORTED,
                         "backbone depth is %d, expected at least 2: tokens of the second-last block are needed", c->depth);
    const sfp__vit_plan_options query_plan = {.mode = SFP__VIT_FORWARD};
    const sfp__vit_plan_options prompted_plan = {
        .mode = SFP__VIT_FORWARD, .prefix_rows = sfp__fp_prefix_rows(&fp->opt), .queries = true, .all_tokens = taps};
    if (wants(k, SFP__NEED_QUERY | SFP__NEED_ATTENTION))
        TRY(make_plan(k, threads, &query_plan, &k->query_plan, err));
    if (wants(k, SFP__NEED_FEATURES | SFP__NEED_LOGITS | SFP__NEED_PROBS | SFP__NEED_TAPS))
        TRY(make_plan(k, threads, &prompted_plan, &k->prompted_plan, err));
    size_t b = (size_t)max_batch, D = (size_t)c->dim, T = (size_t)vit->tokens, H = (size_t)c->heads;
    size_t with_attention = attention ? 1 : 0,
           tokens = taps ? SFP__TAPS : with_attention; /* arrays that are not needed have size 0 */
    const sfp__want list[] = {{&k->features, k->prompted_plan ? b * D : 0, sizeof *k->features},
                              {&k->taps, taps ? b * SFP__TAPS * D : 0, sizeof *k->taps},
                              {&k->tokens, tokens * CHUNK * T * D, sizeof *k->tokens},
                              {&k->pooled, with_attention * b * D, sizeof *k->pooled},
                              {&k->attention, with_attention * CHUNK * H * T, sizeof *k->attention},
                              {&k->stats, with_attention * 2 * T, sizeof *k->stats},
                              {&k->mass, with_attention * T, sizeof *k->mass},
                              {&k->order, with_attention * T, sizeof *k->order}};
    TRY(sfp__block(&k->block, SFP__LIST(list), err));
    k->features = k->prompted_plan ? k->features : NULL;
    k->taps = taps ? k->taps : NULL;
    k->pooled = attention ? k->pooled : NULL;
    return SFP_OK;
}

void sfp__method_inputs_done(sfp__method_inputs *k)
{
    sfp__vit_plan_free(k->query_plan);
    sfp__vit_plan_free(k->prompted_plan);
    sfp__free(k->block);
    sfp__free(k->class_block);
    *k = (sfp__method_inputs){0};
}

/* ------------------------------------------------------------------ query pass */

/* Computes freesel's features of samples [first, first + n) from the tokens and the attention of their pass. */
static void pool_tokens(sfp__method_inputs *k, int first, int n)
{
    const sfp__vit_config *c = &k->vit->config;
    const sfp__vit_weights *w = &k->vit->weights;
    int T = k->vit->tokens;
    for (int i = 0; i < n; i++) {
        float *tokens = k->tokens + (size_t)i * (size_t)T * (size_t)k->D;
        sfp__kernels_get()->norm_fwd(T, k->D, tokens, w->norm_w, w->norm_b, c->ln_eps, tokens, k->stats);
        sfp__freesel_pool(T, k->D, c->heads, tokens, k->attention + (size_t)i * (size_t)c->heads * (size_t)T, k->order, k->mass,
                          k->pooled + (size_t)(first + i) * (size_t)k->D);
    }
}

static sfp_status run_query_pass(sfp__method_inputs *k, int n, const float *const *x, float *query, sfp_error *err)
{
    float *tokens[SFP__VIT_MAX_DEPTH] = {0};
    for (int first = 0; first < n; first += CHUNK) {
        int count = n - first < CHUNK ? n - first : CHUNK;
        sfp__vit_pass pass = {.b = count, .xs = x + first, .feature = query + (size_t)first * (size_t)k->D, .memo = k->memo};
        if (wants(k, SFP__NEED_ATTENTION)) {
            tokens[k->vit->config.depth - 2] = k->tokens;
            pass.tokens = tokens;
            pass.class_attention = k->attention;
        }
        TRY(sfp__vit_run(k->query_plan, &pass, err));
        if (wants(k, SFP__NEED_ATTENTION))
            pool_tokens(k, first, count);
    }
    return SFP_OK;
}

/* -------------------------------------------------------------------- prompted pass */

/* Returns the index of the last block of quarter q. */
static int last_block_of_quarter(int depth, int q)
{
    int blocks = (depth * (q + 1) + SFP__TAPS - 1) / SFP__TAPS;
    return blocks - 1;
}

static void compute_token_means(sfp__method_inputs *k, int first, int n)
{
    size_t T = (size_t)k->vit->tokens, D = (size_t)k->D;
    int depth = k->vit->config.depth;
    for (int i = 0; i < n; i++)
        for (int q = 0; q < SFP__TAPS; q++) {
            /* if there are few blocks, several quarters end with the same block; the first of them has its tokens */
            int from = q;
            while (from > 0 && last_block_of_quarter(depth, from - 1) == last_block_of_quarter(depth, q))
                from--;
            const float *tokens = k->tokens + ((size_t)from * CHUNK + (size_t)i) * T * D;
            float *to = k->taps + ((size_t)(first + i) * SFP__TAPS + (size_t)q) * D;
            memset(to, 0, D * sizeof *to);
            for (size_t t = 0; t < T; t++)
                sfp__axpy(k->D, 1.0f / (float)T, tokens + t * D, to);
        }
}

sfp_status sfp__method_inputs_features(sfp__method_inputs *k, int n, const float *const *x, int unknown, const bool *replayed,
                                       float *query, sfp_error *err)
{
    int depth = k->vit->config.depth;
    float *tokens[SFP__VIT_MAX_DEPTH] = {0};
    size_t token_floats = CHUNK * (size_t)k->vit->tokens * (size_t)k->D;
    TRY(sfp__fp_prepare(k->fp, err));
    for (int first = 0; first < n; first += CHUNK) {
        int count = n - first < CHUNK ? n - first : CHUNK;
        sfp__vit_pass pass = {.b = count,
                              .xs = x + first,
                              .feature = k->features + (size_t)first * (size_t)k->D,
                              .query = query + (size_t)first * (size_t)k->D,
                              .queries = unknown <= first          ? 0
                                         : unknown - first < count ? unknown - first
                                                                   : count,
                              .tokens = tokens,
                              .memo = k->memo};
        for (int q = SFP__TAPS - 1; q >= 0 && wants(k, SFP__NEED_TAPS); q--)
            tokens[last_block_of_quarter(depth, q)] = k->tokens + (size_t)q * token_floats;
        const sfp__fp_samples samples = {.replayed = replayed ? replayed + first : NULL};
        sfp__fp_attach(k->fp, &pass, &samples);
        TRY(sfp__vit_run(k->prompted_plan, &pass, err));
        if (wants(k, SFP__NEED_TAPS))
            compute_token_means(k, first, count);
    }
    return SFP_OK;
}

static sfp_status reserve_classes(sfp__method_inputs *k, int classes, sfp_error *err)
{
    size_t n = (size_t)k->max_batch * (size_t)classes;
    void *block = NULL;
    if (classes <= k->class_capacity)
        return SFP_OK;
    const sfp__want list[] = {{&k->logits, n, sizeof *k->logits}, {&k->probs, n, sizeof *k->probs}};
    TRY(sfp__block(&block, SFP__LIST(list), err));
    sfp__free(k->class_block);
    k->class_block = block;
    k->class_capacity = classes;
    return SFP_OK;
}

void sfp__logits(int n, int classes, int dim, const float *feature, const float *w, const float *bias, float *out)
{
    if (classes == 0)
        return; /* a task-free stream has no classes before its first batch */
    for (int i = 0; i < n; i++)
        memcpy(out + (size_t)i * (size_t)classes, bias, (size_t)classes * sizeof *out);
    int token = sfp__gemm_enter();
    sfp__gemm_plain(false, true, n, classes, dim, feature, dim, w, dim, 1, out, classes);
    sfp__gemm_leave(token);
}

void sfp__log_softmax(int classes, const uint8_t *seen, const float *z, float *out)
{
    float max = -INFINITY;
    double sum = 0;
    for (int c = 0; c < classes; c++)
        if (!seen || seen[c])
            max = fmaxf(max, z[c]);
    for (int c = 0; c < classes; c++)
        sum += !seen || seen[c] ? exp((double)z[c] - (double)max) : 0;
    for (int c = 0; c < classes; c++)
        out[c] = !seen || seen[c] ? (float)((double)z[c] - (double)max - log(sum)) : -INFINITY;
}

int32_t sfp__best_class(int classes, const uint8_t *seen, const float *score)
{
    int32_t best = -1;
    for (int c = 0; c < classes; c++)
        if ((!seen || seen[c]) && (best < 0 || score[c] > score[best]))
            best = c;
    return best;
}

static void softmax(int C, const uint8_t *allowed, const float *z, float *p)
{
    float max = -INFINITY;
    double sum = 0;
    for (int c = 0; c < C; c++)
        max = !allowed || allowed[c] ? fmaxf(max, z[c]) : max;
    for (int c = 0; c < C; c++)
        sum += (double)(p[c] = !allowed || allowed[c] ? expf(z[c] - max) : 0);
    for (int c = 0; c < C; c++)
        p[c] = (float)((double)p[c] / sum);
}

static sfp_status classify(sfp__method_inputs *k, int n, const uint8_t *allowed, sfp_error *err)
{
    const sfp__param *w = &k->fp->linear_w, *bias = &k->fp->linear_b;
    int C = w->rows;
    TRY(reserve_classes(k, C, err));
    sfp__logits(n, C, k->D, k->features, w->data, bias->data, k->logits);
    for (int i = 0; i < n && wants(k, SFP__NEED_PROBS); i++)
        softmax(C, allowed, k->logits + (size_t)i * (size_t)C, k->probs + (size_t)i * (size_t)C);
    return SFP_OK;
}

sfp_status sfp__method_inputs_compute(sfp__method_inputs *k, int n, const float *const *x, const uint8_t *allowed, float *query,
                                      sfp_error *err)
{
    if (k->query_plan)
        TRY(run_query_pass(k, n, x, query, err));
    if (k->prompted_plan) /* the query pass has already computed the queries */
        TRY(sfp__method_inputs_features(k, n, x, k->query_plan ? 0 : n, NULL, query, err));
    return wants(k, SFP__NEED_LOGITS | SFP__NEED_PROBS) ? classify(k, n, allowed, err) : SFP_OK;
}
