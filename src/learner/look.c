#include "learner/look.h"

#include "base/mem.h"
#include "compute/gemm.h"
#include "compute/kernels.h"
#include "compute/vec.h"
#include "select/select.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 16 }; /* samples whose tokens are in memory at a time */

static bool wants(const sfp_look *k, unsigned needs)
{
    return k->needs & needs;
}

static sfp_status take(float **to, size_t count, sfp_error *err)
{
    return (*to = sfp__malloc(count * sizeof **to)) ? SFP_OK : sfp__fail_nomem(err);
}

/* -------------------------------------------------------------- making, freeing */

static sfp_status make_plans(sfp_look *k, sfp_thread_pool *threads, sfp_error *err)
{
    const sfp_fp_options *o = &k->fp->opt;
    const sfp_vit_plan_options plain = {.mode = SFP_VIT_FORWARD};
    const sfp_vit_plan_options prompted = {.mode = SFP_VIT_FORWARD,
                                           .prefix_rows = sfp__fp_prefix_rows(o),
                                           .queries = !o->query_one,
                                           .all_tokens = wants(k, SFP_NEED_TAPS)};
    int most = k->max_batch < CHUNK ? k->max_batch : CHUNK;
    sfp_status s = SFP_OK;
    if (wants(k, SFP_NEED_QUERY | SFP_NEED_ATTENTION) && !(s = sfp__vit_plan_create(k->vit, threads, &plain, &k->plain, err)))
        s = sfp__vit_plan_prepare(k->plain, most, err);
    if (!s && wants(k, SFP_NEED_FEATURES | SFP_NEED_LOGITS | SFP_NEED_PROBS | SFP_NEED_TAPS) &&
        !(s = sfp__vit_plan_create(k->vit, threads, &prompted, &k->prompted, err)))
        s = sfp__vit_plan_prepare(k->prompted, most, err);
    return s;
}

sfp_status sfp__look_init(sfp_look *k, sfp_vit *vit, sfp_thread_pool *threads, sfp_fp *fp, unsigned needs, int max_batch,
                          sfp_error *err)
{
    const sfp_vit_config *c = &vit->config;
    size_t b = (size_t)max_batch, D = (size_t)c->dim, T = (size_t)vit->tokens, H = (size_t)c->heads;
    *k = (sfp_look){.needs = needs & SFP_LOOK_NEEDS, .vit = vit, .fp = fp, .max_batch = max_batch, .D = c->dim};
    if (!k->needs)
        return SFP_OK;
    if (wants(k, SFP_NEED_ATTENTION) && c->depth < 2)
        return sfp__fail(err, SFP_EUNSUPPORTED, "tokens of the second-last block are wanted of a backbone with %d", c->depth);
    sfp_status s = make_plans(k, threads, err);
    size_t taps = wants(k, SFP_NEED_TAPS) ? SFP_TAPS : wants(k, SFP_NEED_ATTENTION) ? 1 : 0;
    if (!s && k->prompted)
        s = take(&k->features, b * D, err);
    if (!s && wants(k, SFP_NEED_TAPS))
        s = take(&k->taps, b * SFP_TAPS * D, err);
    if (!s && taps)
        s = take(&k->tokens, taps * CHUNK * T * D, err);
    if (!s && wants(k, SFP_NEED_ATTENTION)) {
        if ((s = take(&k->pooled, b * D, err)) || (s = take(&k->attention, CHUNK * H * T, err)) ||
            (s = take(&k->stats, 2 * T, err)) || (s = take(&k->mass, T, err)))
            return s;
        if (!(k->order = sfp__malloc(T * sizeof *k->order)))
            s = sfp__fail_nomem(err);
    }
    return s;
}

void sfp__look_done(sfp_look *k)
{
    sfp__vit_plan_free(k->plain);
    sfp__vit_plan_free(k->prompted);
    void *all[] = {k->features, k->logits, k->probs, k->pooled, k->taps, k->tokens, k->attention, k->stats, k->mass, k->order};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sfp__free(all[i]);
    *k = (sfp_look){0};
}

/* ------------------------------------------------------------------ unprompted */

/* freesel's features of samples [first, first + n) from the taps of their pass. */
static void pool_tokens(sfp_look *k, int first, int n)
{
    const sfp_vit_config *c = &k->vit->config;
    const sfp_vit_weights *w = &k->vit->weights;
    int T = k->vit->tokens;
    for (int i = 0; i < n; i++) {
        float *tokens = k->tokens + (size_t)i * (size_t)T * (size_t)k->D;
        sfp__kernels()->norm_fwd(T, k->D, tokens, w->norm_w, w->norm_b, c->ln_eps, tokens, k->stats);
        sfp__freesel_pool(T, k->D, c->heads, tokens, k->attention + (size_t)i * (size_t)c->heads * (size_t)T, k->order, k->mass,
                          k->pooled + (size_t)(first + i) * (size_t)k->D);
    }
}

static sfp_status look_plain(sfp_look *k, int n, const float *const *x, float *query, sfp_error *err)
{
    sfp_status s = SFP_OK;
    float *tokens[SFP_VIT_MAX_DEPTH] = {0};
    for (int first = 0; !s && first < n; first += CHUNK) {
        int count = n - first < CHUNK ? n - first : CHUNK;
        sfp_vit_pass pass = {.b = count, .xs = x + first, .feature = query + (size_t)first * (size_t)k->D};
        if (wants(k, SFP_NEED_ATTENTION)) {
            tokens[k->vit->config.depth - 2] = k->tokens;
            pass.tokens = tokens;
            pass.class_attention = k->attention;
        }
        s = sfp__vit_run(k->plain, &pass, err);
        if (!s && wants(k, SFP_NEED_ATTENTION))
            pool_tokens(k, first, count);
    }
    return s;
}

/* -------------------------------------------------------------------- prompted */

/* The block after which quarter q of all blocks is done. */
static int quarter(int depth, int q)
{
    int blocks = (depth * (q + 1) + SFP_TAPS - 1) / SFP_TAPS;
    return blocks - 1;
}

static void mean_tokens(sfp_look *k, int first, int n)
{
    size_t T = (size_t)k->vit->tokens, D = (size_t)k->D;
    int depth = k->vit->config.depth;
    for (int i = 0; i < n; i++)
        for (int q = 0; q < SFP_TAPS; q++) {
            int from = q; /* of few blocks several quarters end with the same one, whose tokens the first of them holds */
            while (from > 0 && quarter(depth, from - 1) == quarter(depth, q))
                from--;
            const float *tokens = k->tokens + ((size_t)from * CHUNK + (size_t)i) * T * D;
            float *to = k->taps + ((size_t)(first + i) * SFP_TAPS + (size_t)q) * D;
            memset(to, 0, D * sizeof *to);
            for (size_t t = 0; t < T; t++)
                sfp__axpy(k->D, 1.0f / (float)T, tokens + t * D, to);
        }
}

sfp_status sfp__look_features(sfp_look *k, int n, const float *const *x, int unknown, const bool *rehearsed, float *query,
                              sfp_error *err)
{
    const sfp_fp_options *o = &k->fp->opt;
    int depth = k->vit->config.depth;
    float *tokens[SFP_VIT_MAX_DEPTH] = {0};
    size_t token_floats = CHUNK * (size_t)k->vit->tokens * (size_t)k->D;
    sfp_status s = sfp__fp_prepare(k->fp, err);
    for (int first = 0; !s && first < n; first += CHUNK) {
        int count = n - first < CHUNK ? n - first : CHUNK;
        sfp_vit_pass pass = {.b = count, .xs = x + first, .feature = k->features + (size_t)first * (size_t)k->D, .tokens = tokens};
        if (!o->query_one) {
            pass.query = query + (size_t)first * (size_t)k->D;
            pass.queries = unknown <= first ? 0 : unknown - first < count ? unknown - first : count;
        }
        for (int q = SFP_TAPS - 1; q >= 0 && wants(k, SFP_NEED_TAPS); q--)
            tokens[quarter(depth, q)] = k->tokens + (size_t)q * token_floats;
        const sfp_fp_samples samples = {.rehearsed = rehearsed ? rehearsed + first : NULL};
        sfp__fp_attach(k->fp, &pass, &samples);
        s = sfp__vit_run(k->prompted, &pass, err);
        if (!s && wants(k, SFP_NEED_TAPS))
            mean_tokens(k, first, count);
    }
    return s;
}

static sfp_status class_room(sfp_look *k, int classes, sfp_error *err)
{
    if (classes <= k->class_room)
        return SFP_OK;
    size_t n = (size_t)k->max_batch * (size_t)classes;
    float *logits = NULL, *probs = NULL;
    sfp_status s = take(&logits, n, err);
    if (s || (s = take(&probs, n, err))) {
        sfp__free(logits);
        return s;
    }
    sfp__free(k->logits);
    sfp__free(k->probs);
    k->logits = logits;
    k->probs = probs;
    k->class_room = classes;
    return SFP_OK;
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

static sfp_status classify(sfp_look *k, int n, const uint8_t *allowed, sfp_error *err)
{
    const sfp_param *w = &k->fp->last_w, *bias = &k->fp->last_b;
    int C = w->rows;
    sfp_status s = class_room(k, C, err);
    if (s)
        return s;
    for (int i = 0; i < n; i++)
        memcpy(k->logits + (size_t)i * (size_t)C, bias->data, (size_t)C * sizeof(float));
    int token = sfp__gemm_enter();
    sfp__gemm_plain(false, true, n, C, k->D, k->features, k->D, w->data, k->D, 1, k->logits, C);
    sfp__gemm_leave(token);
    for (int i = 0; i < n && wants(k, SFP_NEED_PROBS); i++)
        softmax(C, allowed, k->logits + (size_t)i * (size_t)C, k->probs + (size_t)i * (size_t)C);
    return SFP_OK;
}

sfp_status sfp__look(sfp_look *k, int n, const float *const *x, const uint8_t *allowed, float *query, sfp_error *err)
{
    sfp_status s = SFP_OK;
    if (k->plain)
        s = look_plain(k, n, x, query, err);
    if (!s && k->prompted)
        s = sfp__look_features(k, n, x, k->plain ? 0 : n, NULL, query,
                               err); /* the unprompted pass has left the queries already */
    if (!s && wants(k, SFP_NEED_LOGITS | SFP_NEED_PROBS))
        s = classify(k, n, allowed, err);
    return s;
}
