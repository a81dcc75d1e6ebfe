#include "model/vit_memo.h"

#include "base/monotonic.h"
#include "base/rng.h"
#include "model/vit_internal.h"

#include <stdio.h>

/* Kinds of values in the cache; part of the format. Tokens of other layers will be further kinds with another width. */
enum { KIND_QUERY = 1, KIND_MEAN_EMBED = 2 };

enum {
    WARM_UP = 2,  /* micro-batches of a plan that are computed before time is measured */
    MEASURED = 6, /* micro-batches that are computed to measure their time, even if their values are known */
    PLACES = SFP_VIT_MICROBATCH_MAX
};

struct sfp__vit_memo {
    sfp__vit *v;
    sfp__feature_cache *cache;
    bool charging, paused;
    double charged;
    uint64_t hits, misses;
    /* The bits of the place (n, i), the i-th of n samples, compared with those of the place (1, 0). */
    bool probed[PLACES + 1];
    bool query_differs[PLACES + 1][PLACES], embed_differs[PLACES + 1][PLACES];
    void *block;
    float *image;                     /* (3, S, S) */
    float *first_query, *first_embed; /* (D) of the place (1, 0) */
    float *probe_query, *probe_embed; /* (PLACES, D) */
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

/* Computes the digest of everything besides the normalised pixels that determines the bits of a value. */
static sfp__digest digest_context(sfp__vit *v)
{
    const sfp__vit_config *c = &v->config;
    const int32_t numbers[] = {
        c->img_size, c->patch_size,    c->channels,          c->dim, c->depth, c->heads, c->hidden, c->quick_gelu,
        c->pre_norm, c->no_patch_bias, (int32_t)v->precision};
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
    size_t D = (size_t)c->dim, pixels = (size_t)c->channels * (size_t)c->img_size * (size_t)c->img_size;
    const sfp__feature_cache_options options = {
        .directory = o->directory, .max_bytes = o->max_bytes, .context = digest_context(v), .width = c->dim};
    TRY(sfp__alloc(&m, 1, sizeof *m, err));
    m->v = v;
    m->charging = true;
    const sfp__want list[] = {{&m->image, pixels, sizeof *m->image},
                              {&m->first_query, D, sizeof *m->first_query},
                              {&m->first_embed, D, sizeof *m->first_embed},
                              {&m->probe_query, PLACES * D, sizeof *m->probe_query},
                              {&m->probe_embed, PLACES * D, sizeof *m->probe_embed}};
    TRY(sfp__block(&m->block, SFP_LIST(list), err));
    sfp__rng rng = sfp__rng_init(1, 0);
    for (size_t i = 0; i < pixels; i++)
        m->image[i] = (float)sfp__rng_double(&rng) * 4 - 2;
    for (int i = 0; i < PLACES; i++)
        m->images[i] = m->image;
    TRY(sfp__feature_cache_open(&options, &m->cache, err));
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

double sfp__vit_memo_charged(const sfp__vit_memo *m)
{
    return m ? m->charged : 0;
}

double sfp__vit_memo_now(const sfp__vit_memo *m)
{
    return sfp__monotonic_seconds() + sfp__vit_memo_charged(m);
}

void sfp__vit_memo_set_charging(sfp__vit_memo *m, bool on)
{
    if (m)
        m->charging = on;
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
    return m ? (sfp__vit_memo_stats){.hits = m->hits, .misses = m->misses, .cache = sfp__feature_cache_get_stats(m->cache)}
             : (sfp__vit_memo_stats){0};
}

/* -------------------------------------------------------------------- passes */

sfp__vit_memo_role sfp__vit_memo_role_of(const sfp__vit_plan *p, const sfp__vit_pass *pass)
{
    bool prompted = pass->prompts || pass->compose || pass->compose_layer;
    bool more = pass->embed || pass->tokens || pass->normed || pass->class_attention || pass->head || pass->token_head;
    if (!pass->memo || pass->memo->paused || pass->tap)
        return SFP_MEMO_NONE;
    if (pass->embed_only)
        return pass->mean_embed && !pass->embed ? SFP_MEMO_EMBED : SFP_MEMO_NONE;
    if (prompted)
        return pass->query && pass->queries > 0 && !pass->mean_embed ? SFP_MEMO_PROMPTED : SFP_MEMO_NONE;
    return pass->feature && !pass->query && !pass->mean_embed && !more && p->opt.mode == SFP_VIT_FORWARD ? SFP_MEMO_QUERY
                                                                                                         : SFP_MEMO_NONE;
}

/* Computes the values of the test image at all places of a micro-batch of n samples. */
static void run_probe(sfp__vit_memo *m, sfp__vit_plan *p, int n)
{
    const sfp__vit_pass pass = {.b = n, .xs = m->images, .feature = m->probe_query, .mean_embed = m->probe_embed};
    const sfp__vit_microbatch u = {.plan = p, .pass = &pass, .lane = &p->lane[0], .ops = &p->ops[n], .n = n};
    int token = sfp__gemm_enter();
    sfp__vit_forward(&u);
    sfp__gemm_leave(token);
}

void sfp__vit_memo_probe(sfp__vit_memo *m, sfp__vit_plan *p, int n)
{
    size_t D = (size_t)m->v->config.dim, bytes = D * sizeof(float);
    if (p->opt.all_tokens || m->probed[n])
        return;
    double from = sfp__monotonic_seconds();
    if (!m->probed[1]) {
        run_probe(m, p, 1);
        memcpy(m->first_query, m->probe_query, bytes);
        memcpy(m->first_embed, m->probe_embed, bytes);
        m->probed[1] = true;
    }
    if (n > 1)
        run_probe(m, p, n);
    for (int i = 0; i < n; i++) {
        m->query_differs[n][i] = memcmp(m->probe_query + (size_t)i * D, m->first_query, bytes) != 0;
        m->embed_differs[n][i] = memcmp(m->probe_embed + (size_t)i * D, m->first_embed, bytes) != 0;
    }
    m->probed[n] = true;
    m->charged -= sfp__monotonic_seconds() - from;
}

/* Returns the value of sample i of the micro-batch. */
static float *value_at(const sfp__vit_microbatch *u, int i)
{
    const sfp__vit_pass *pass = u->pass;
    float *rows = u->role == SFP_MEMO_EMBED ? pass->mean_embed : u->role == SFP_MEMO_QUERY ? pass->feature : pass->query;
    return rows + (size_t)(u->first + i) * (size_t)u->plan->v->config.dim;
}

/* Returns the key of sample i: the digest of its normalised pixels and, if the bits depend on it, of its place. */
static sfp__digest key_of(const sfp__vit_microbatch *u, int i, uint32_t *kind)
{
    const sfp__vit_config *c = &u->plan->v->config;
    const sfp__vit_memo *m = u->pass->memo;
    size_t pixels = (size_t)c->channels * (size_t)c->img_size * (size_t)c->img_size;
    const float *x = u->pass->x ? u->pass->x + (size_t)(u->first + i) * pixels : u->pass->xs[u->first + i];
    bool embed = u->role == SFP_MEMO_EMBED, all_tokens = u->plan->opt.all_tokens;
    bool differs = embed ? m->embed_differs[u->n][i] : m->query_differs[u->n][i];
    /* a last block that computes all tokens multiplies by other matrices; these places were not compared */
    const int32_t place[] = {all_tokens || differs ? u->n : 1, all_tokens || differs ? i : 0, all_tokens};
    *kind = embed ? KIND_MEAN_EMBED : KIND_QUERY;
    return sfp__digest_bytes(sfp__digest_bytes((sfp__digest){{0}}, x, pixels * sizeof *x), place, sizeof place);
}

bool sfp__vit_memo_read(sfp__vit_microbatch *u)
{
    sfp__vit_memo_lane *lane = &u->lane->memo;
    double from = sfp__monotonic_seconds();
    int hits = 0;
    for (int i = 0; i < u->n; i++) {
        u->lane->key[i] = key_of(u, i, &u->kind);
        u->lane->hit[i] = sfp__feature_cache_get(u->pass->memo->cache, u->kind, &u->lane->key[i], value_at(u, i));
        hits += u->lane->hit[i];
    }
    lane->hits += hits;
    lane->misses += u->n - hits;
    bool known = hits == u->n && !u->forced;
    lane->skipped += known ? u->n : 0;
    lane->overhead += sfp__monotonic_seconds() - from;
    return known;
}

void sfp__vit_memo_write(const sfp__vit_microbatch *u)
{
    double from = sfp__monotonic_seconds();
    for (int i = 0; i < u->n; i++)
        if (!u->lane->hit[i])
            sfp__feature_cache_put(u->pass->memo->cache, u->kind, &u->lane->key[i], value_at(u, i));
    u->lane->memo.overhead += sfp__monotonic_seconds() - from;
}

/* -------------------------------------------------------------------- charges */

bool sfp__vit_memo_forced(const sfp__vit_plan *p, const sfp__vit_pass *pass, sfp__vit_memo_role role, int index)
{
    return pass->memo->charging && p->memo[role].begun + index < WARM_UP + MEASURED;
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
    if (m->charging && cost->begun < WARM_UP + MEASURED)
        cost->begun += pieces;
    int parallel = p->lanes < microbatches ? p->lanes : microbatches;
    double saved = skipped > 0 && cost->computed > 0 ? (double)skipped * cost->seconds / (double)cost->computed : 0;
    if (m->charging)
        m->charged += (saved - overhead) / parallel;
}
