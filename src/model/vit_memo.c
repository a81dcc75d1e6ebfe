#include "model/vit_memo.h"

#include "base/rng.h"
#include "model/vit_internal.h"

#include <stdio.h>

/* Kinds of values. A key contains the kind. */
enum { KIND_QUERY, KIND_MEAN_EMBED, KINDS };

enum {
    WARM_UP = 2,  /* micro-batches of a plan that are computed before time is measured */
    MEASURED = 6, /* micro-batches that are computed to measure their time, even if their values are known */
    PLACES = SFP__VIT_MICROBATCH_MAX
};

struct sfp__vit_memo {
    sfp__vit *v;
    sfp__feature_cache *cache;
    sfp__digest context[KINDS]; /* of everything besides the image and its place that determines a value */
    int merge_tokens;
    int taps;      /* in a value of KIND_QUERY; the last one is the query */
    bool tap_mean; /* a value of KIND_QUERY begins with the mean tap */
    bool paused;
    sfp__time_source *time;
    uint64_t hits, misses;
    /* Whether the bits of a value at the place (n, i), the i-th of n samples, differ from those at the place (1, 0). */
    bool probed[PLACES + 1];
    bool differs[KINDS][PLACES + 1][PLACES];
    void *block;
    float *image;        /* (3, S, S) */
    float *first[KINDS]; /* (width) values of the place (1, 0) */
    float *probe[KINDS]; /* (PLACES, width) */
    const float *images[PLACES];
};

/* ------------------------------------------------------------------- create */

static sfp_status add_weight(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    sfp__digest *d = ctx;
    (void)err;
    *d = sfp__digest_bytes(*d, w->name, strlen(w->name));
    if (*w->data)
        *d = sfp__digest_bytes(*d, *w->data, w->count * sizeof **w->data);
    return SFP_OK;
}

/* Returns the number of floats of a value. */
static size_t width_of(const sfp__vit_memo *m, uint32_t kind)
{
    return (size_t)(kind == KIND_QUERY ? m->tap_mean + m->taps : 1) * (size_t)m->v->config.dim;
}

/* Computes the digest of everything besides the kind and the normalised pixels that determines the bits of a value. */
static sfp__digest digest_context(sfp__vit *v)
{
    const sfp__vit_config *c = &v->config;
    const int32_t numbers[] = {
        c->img_size, c->patch_size,    c->channels,           c->dim,         c->depth, c->heads, c->hidden, c->quick_gelu,
        c->pre_norm, c->no_patch_bias, (int32_t)v->precision, sfp__gemm_isa()};
    const char *texts[] = {sfp_version(), sfp__gemm_backend(), sfp__kernels_get()->isa, sfp__cpu_name()};
    sfp__digest d = sfp__digest_bytes((sfp__digest){{0}}, numbers, sizeof numbers);
    d = sfp__digest_bytes(d, &c->ln_eps, sizeof c->ln_eps);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        d = sfp__digest_bytes(d, texts[i], strlen(texts[i]));
    (void)sfp__vit_each_weight(c, &v->weights, add_weight, &d, NULL);
    return d;
}

sfp_status sfp__vit_memo_create(sfp__vit *v, const sfp__vit_memo_options *o, sfp__vit_memo **out, sfp_error *err)
{
    OWNED_PTR(sfp__vit_memo_free) sfp__vit_memo *m = NULL;
    const sfp__vit_config *c = &v->config;
    size_t pixels = (size_t)c->channels * (size_t)c->img_size * (size_t)c->img_size;
    int half = c->depth > 1 ? c->depth / 2 : 1;
    if (o->taps < 0 || o->taps > c->depth)
        return sfp__fail(err, SFP_EINVAL, "number of taps is %d, expected 0 to %d, the number of blocks", o->taps, c->depth);
    TRY(sfp__alloc(&m, 1, sizeof *m, err));
    m->v = v;
    m->taps = o->taps > half ? o->taps : half;
    m->tap_mean = c->depth > 1;
    m->merge_tokens = o->merge_tokens;
    m->time = o->time;
    const sfp__want list[] = {{&m->image, pixels, sizeof *m->image},
                              {&m->first[KIND_QUERY], width_of(m, KIND_QUERY), sizeof(float)},
                              {&m->first[KIND_MEAN_EMBED], width_of(m, KIND_MEAN_EMBED), sizeof(float)},
                              {&m->probe[KIND_QUERY], PLACES * width_of(m, KIND_QUERY), sizeof(float)},
                              {&m->probe[KIND_MEAN_EMBED], PLACES * width_of(m, KIND_MEAN_EMBED), sizeof(float)}};
    TRY(sfp__block(&m->block, SFP__LIST(list), err));
    sfp__rng rng = sfp__rng_init(1, 0);
    for (size_t i = 0; i < pixels; i++)
        m->image[i] = (float)sfp__rng_double(&rng) * 4 - 2;
    for (int i = 0; i < PLACES; i++)
        m->images[i] = m->image;
    TRY(sfp__vit_hold_all(v, err));
    const sfp__digest context = digest_context(v);
    sfp__vit_unhold_all(v);
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        const uint64_t form[] = {kind, width_of(m, kind), kind == KIND_QUERY ? (uint64_t)m->merge_tokens : 0};
        m->context[kind] = sfp__digest_bytes(context, form, sizeof form);
    }
    TRY(sfp__feature_cache_open(o->directory, o->max_bytes, &m->cache, err));
    *out = TAKE(m);
    return SFP_OK;
}

void sfp__vit_memo_free(sfp__vit_memo *m)
{
    if (!m)
        return;
    sfp__feature_cache_close(m->cache);
    sfp__free(m->block);
    sfp__free(m);
}

bool sfp__vit_memo_set_paused(sfp__vit_memo *m, bool on)
{
    bool was = m && m->paused;
    if (m)
        m->paused = on;
    return was;
}

sfp__vit_memo_stats sfp__vit_memo_get_stats(sfp__vit_memo *m)
{
    if (!m)
        return (sfp__vit_memo_stats){0};
    return (sfp__vit_memo_stats){.hits = m->hits, .misses = m->misses, .cache = sfp__feature_cache_get_stats(m->cache)};
}

/* -------------------------------------------------------------------- passes */

void sfp__vit_memo_choose_taps(const sfp__vit_memo *m, sfp__vit_microbatch *u)
{
    u->taps = m->taps;
    u->tap_mean = m->tap_mean;
}

sfp__vit_memo_role sfp__vit_memo_role_of(const sfp__vit_plan *p, const sfp__vit_pass *pass)
{
    bool prompted = pass->prompts || pass->compose;
    bool more = pass->embed || pass->tokens || pass->normed || pass->class_attention || pass->head || pass->token_head;
    if (!pass->memo || pass->memo->paused || p->opt.merge_tokens != pass->memo->merge_tokens ||
        (pass->tap && pass->taps > pass->memo->taps))
        return SFP__MEMO_NONE;
    if (pass->embed_only)
        return pass->mean_embed && !pass->embed ? SFP__MEMO_EMBED : SFP__MEMO_NONE;
    if (prompted)
        return pass->query && pass->queries > 0 && !pass->mean_embed ? SFP__MEMO_PROMPTED : SFP__MEMO_NONE;
    return (pass->feature || pass->tap) && !pass->query && !pass->mean_embed && !more && p->opt.mode == SFP__VIT_FORWARD
               ? SFP__MEMO_QUERY
               : SFP__MEMO_NONE;
}

/* Computes the values of the test image at all places of a micro-batch of n samples. */
static void run_probe(sfp__vit_memo *m, sfp__vit_plan *p, int n)
{
    const sfp__vit_pass pass = {.b = n, .xs = m->images, .mean_embed = m->probe[KIND_MEAN_EMBED]};
    sfp__vit_microbatch u = sfp__vit_whole(p, &pass, 0, 0, n);
    u.tap = m->probe[KIND_QUERY];
    sfp__vit_memo_choose_taps(m, &u);
    int token = sfp__gemm_enter();
    sfp__vit_forward(&u);
    sfp__gemm_leave(token);
}

void sfp__vit_memo_probe(sfp__vit_memo *m, sfp__vit_plan *p, int n)
{
    if (p->opt.all_tokens || m->probed[n])
        return;
    double from = sfp__monotonic_seconds();
    unsigned failures = sfp__gemm_failures();
    if (!m->probed[1]) {
        run_probe(m, p, 1);
        for (uint32_t kind = 0; kind < KINDS; kind++)
            memcpy(m->first[kind], m->probe[kind], width_of(m, kind) * sizeof(float));
        m->probed[1] = sfp__gemm_failures() == failures;
    }
    if (n > 1)
        run_probe(m, p, n);
    for (uint32_t kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < n; i++) {
            size_t width = width_of(m, kind);
            m->differs[kind][n][i] = memcmp(m->probe[kind] + (size_t)i * width, m->first[kind], width * sizeof(float)) != 0;
        }
    m->probed[n] = sfp__gemm_failures() == failures; /* else the pass fails */
    m->time->saved -= sfp__monotonic_seconds() - from;
}

/* Returns the value of sample i of the micro-batch. */
static float *value_at(const sfp__vit_microbatch *u, int i)
{
    size_t width = width_of(u->pass->memo, u->kind);
    return u->kind == KIND_QUERY ? u->tap + (size_t)i * width : u->pass->mean_embed + (size_t)(u->first + i) * width;
}

/* Copies queries and taps from the values of the micro-batch to the outputs of the pass. */
static void copy_values(const sfp__vit_microbatch *u)
{
    const sfp__vit_pass *pass = u->pass;
    float *query = u->role == SFP__MEMO_QUERY ? pass->feature : pass->query;
    size_t D = (size_t)u->plan->v->config.dim, mean = pass->tap_mean ? D : 0, taps = (size_t)pass->taps * D;
    for (int i = 0; i < u->n && u->kind == KIND_QUERY; i++) {
        const float *value = value_at(u, i), *end = value + width_of(pass->memo, KIND_QUERY);
        size_t at = (size_t)u->first + (size_t)i;
        if (query)
            memcpy(query + at * D, end - D, D * sizeof *query);
        if (!pass->tap)
            continue;
        memcpy(pass->tap + at * (mean + taps), value, mean * sizeof *value);
        memcpy(pass->tap + at * (mean + taps) + mean, end - taps, taps * sizeof *end);
    }
}

/* Returns the key of sample i: the digest of the context, its normalised pixels and, if the bits depend on it, its place. */
static sfp__digest key_of(const sfp__vit_microbatch *u, int i)
{
    const sfp__vit_config *c = &u->plan->v->config;
    size_t pixels = (size_t)c->channels * (size_t)c->img_size * (size_t)c->img_size;
    const float *x = u->pass->x ? u->pass->x + (size_t)(u->first + i) * pixels : u->pass->xs[u->first + i];
    bool all_tokens = u->plan->opt.all_tokens, differs = u->pass->memo->differs[u->kind][u->n][i];
    /* a last block that computes all tokens multiplies by other matrices; these places were not compared */
    const int32_t place[] = {all_tokens || differs ? u->n : 1, all_tokens || differs ? i : 0, all_tokens};
    return sfp__digest_bytes(sfp__digest_bytes(u->pass->memo->context[u->kind], x, pixels * sizeof *x), place, sizeof place);
}

bool sfp__vit_memo_read(sfp__vit_microbatch *u)
{
    sfp__vit_memo_lane *lane = &u->lane->memo;
    double from = sfp__monotonic_seconds();
    int hits = 0;
    sfp__vit_memo *m = u->pass->memo;
    u->kind = u->role == SFP__MEMO_EMBED ? KIND_MEAN_EMBED : KIND_QUERY;
    for (int i = 0; i < u->n; i++) {
        u->lane->key[i] = key_of(u, i);
        u->lane->hit[i] = sfp__feature_cache_get(m->cache, &u->lane->key[i], width_of(m, u->kind), value_at(u, i));
        hits += u->lane->hit[i];
    }
    lane->hits += hits;
    lane->misses += u->n - hits;
    bool known = hits == u->n && !u->forced;
    lane->skipped += known ? u->n : 0;
    if (known)
        copy_values(u);
    lane->overhead += sfp__monotonic_seconds() - from;
    return known;
}

void sfp__vit_memo_write(const sfp__vit_microbatch *u)
{
    double from = sfp__monotonic_seconds();
    sfp__vit_memo *m = u->pass->memo;
    for (int i = 0; i < u->n; i++)
        if (!u->lane->hit[i])
            sfp__feature_cache_put(m->cache, &u->lane->key[i], width_of(m, u->kind), value_at(u, i));
    copy_values(u);
    u->lane->memo.overhead += sfp__monotonic_seconds() - from;
}

/* -------------------------------------------------------------------- charges */

bool sfp__vit_memo_forced(const sfp__vit_plan *p, const sfp__vit_pass *pass, sfp__vit_memo_role role, int index)
{
    return !pass->memo->time->paused && p->memo[role].begun + index < WARM_UP + MEASURED;
}

void sfp__vit_memo_measure(const sfp__vit_microbatch *u, int index, double seconds)
{
    if (u->plan->memo[u->role].begun + index < WARM_UP)
        return;
    u->lane->memo.seconds += seconds;
    u->lane->memo.computed += u->n;
}

void sfp__vit_memo_charge(sfp__vit_plan *p, const sfp__vit_pass *pass, sfp__vit_memo_role role, int pieces, int microbatches)
{
    sfp__vit_memo *m = pass->memo;
    sfp__vit_memo_cost *cost = &p->memo[role];
    uint64_t skipped = 0;
    double overhead = 0;
    for (int i = 0; i < p->lanes; i++) {
        const sfp__vit_memo_lane *lane = &p->lane[i].memo;
        cost->seconds += lane->seconds;
        cost->computed += (uint64_t)lane->computed;
        skipped += (uint64_t)lane->skipped;
        overhead += lane->overhead;
        m->hits += (uint64_t)lane->hits;
        m->misses += (uint64_t)lane->misses;
    }
    if (!m->time->paused && cost->begun < WARM_UP + MEASURED)
        cost->begun += pieces;
    int parallel = p->lanes < microbatches ? p->lanes : microbatches;
    double saved = skipped > 0 && cost->computed > 0 ? (double)skipped * cost->seconds / (double)cost->computed : 0;
    if (!m->time->paused)
        m->time->saved += (saved - overhead) / parallel;
}
