/* Passes that merge tokens (docs/method.md, section 18) against the oracle in double, on any number of threads; what is refused. */
#include "model/vit_internal.h"

#include "numeric.h"
#include "test.h"
#include "vit_make.h"
#include "vit_oracle.h"

enum { S = 28, PATCHES = 49, D = 24, DEPTH = 4, B = 5, PIXELS = 3 * S * S, TAPS = 1 + DEPTH };

static const sfp__vit_config config = VIT_EPS(1e-5f, S, 4, D, DEPTH, 3, 50, 0, 1);

static vit_oracle oracle_of(const sfp__vit *v)
{
    const sfp__vit_config *c = &v->config;
    vit_oracle o = {.c = *c};
#define COPY(field, name, ndim, ...) o.field = to_doubles(v->weights.field, oracle_product(ndim, (const int[]){__VA_ARGS__}));
    SFP__VIT_GLOBAL_LIST(COPY)
#undef COPY
    for (int l = 0; l < c->depth; l++) {
#define COPY(field, name, ndim, ...) \
    o.blocks[l].field = to_doubles(v->weights.blocks[l].field, oracle_product(ndim, (const int[]){__VA_ARGS__}));
        SFP__VIT_BLOCK_LIST(COPY)
#undef COPY
    }
    return o;
}

/* Computes the taps of all samples (B, 1 + DEPTH, D), the mean tap first. */
static float *expected_taps(const vit_oracle *o, const float *x, int merge)
{
    float *out = floats((size_t)B * TAPS * D);
    for (int i = 0; i < B; i++) {
        double *tap = doubles((size_t)TAPS * D), *tokens = doubles((size_t)DEPTH * D);
        vit_oracle_forward(
            o, &(vit_oracle_pass){
                   .x = to_doubles(x + (size_t)i * PIXELS, PIXELS), .merge = merge, .class_tokens = tokens, .mean = tap});
        for (int l = 0; l < DEPTH; l++)
            oracle_norm(D, (double)config.ln_eps, tokens + l * D, o->norm_w, o->norm_b, tap + (1 + l) * D);
        for (int k = 0; k < TAPS * D; k++)
            out[i * TAPS * D + k] = (float)tap[k];
    }
    return out;
}

static float *run(sfp__vit *v, int threads, const float *x, int b, int merge)
{
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
    float *tap = filled((size_t)B * TAPS * D, NAN), *feature = filled((size_t)B * D, NAN);
    const sfp__vit_plan_options o = {.merge_tokens = merge};
    const sfp__vit_pass pass = {.b = b, .x = x, .feature = feature, .tap = tap, .taps = DEPTH, .tap_mean = true};
    MUST(sfp__thread_pool_create(threads, &pool, &err));
    MUST(sfp__vit_plan_create(v, pool, &o, &plan, &err));
    MUST(sfp__vit_plan_prepare(plan, B, &err));
    MUST(sfp__vit_run(plan, &pass, &err));
    for (int i = 0; i < b; i++)
        check_same("last tap", tap + (i * TAPS + DEPTH) * D, feature + i * D, D * sizeof *tap);
    return tap;
}

TEST(merged_tokens_give_the_taps_of_the_oracle_on_any_number_of_threads)
{
    static const int merges[] = {0, 1, 5, 13, 24, 100}, threads[] = {2, 3, 7};
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    MUST(sfp__vit_random(&config, 5, 0.25f, &v, &err));
    vit_oracle o = oracle_of(v);
    sfp__rng rng = sfp__rng_init(3, 0);
    const float *x = normals(&rng, (size_t)B * PIXELS, 1);
    float *plain = NULL;
    for (size_t m = 0; m < sizeof merges / sizeof *merges; m++) {
        float *got = run(v, 1, x, B, merges[m]);
        if (!RACES_ONLY)
            check_near("taps", got, expected_taps(&o, x, merges[m]), (size_t)B * TAPS * D, 2e-5);
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
            for (int b = B; b > 0; b -= B - 1) {
                const float *other = run(v, threads[t], x, b, merges[m]), *want = b == B ? got : run(v, 1, x, b, merges[m]);
                check_same("taps", other, want, (size_t)b * TAPS * D * sizeof *got);
            }
        plain = plain ? plain : got;
        assert_int_equal(memcmp(plain + DEPTH * D, got + DEPTH * D, D * sizeof *got) != 0, merges[m] != 0);
    }
}

TEST(products_of_bytes_give_nearly_the_taps_of_the_oracle_on_any_number_of_threads)
{
    if (strncmp(sfp__gemm_backend(), "CBLAS", 5) == 0)
        skip(); /* it has none */
    static const int threads[] = {2, 3, 7};
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    MUST(sfp__vit_random(&config, 5, 0.25f, &v, &err));
    v->precision = SFP_PRECISION_INT8;
    vit_oracle o = oracle_of(v);
    sfp__rng rng = sfp__rng_init(3, 0);
    const float *x = normals(&rng, (size_t)B * PIXELS, 1), *want = expected_taps(&o, x, 0);
    for (int merge = 0; merge < 6; merge += 5) { /* rounding may change which tokens are merged */
        float *got = run(v, 1, x, B, merge), error = 0, size = 0;
        for (int i = 0; i < B * TAPS * D && merge == 0; i++) {
            error += (got[i] - want[i]) * (got[i] - want[i]);
            size += want[i] * want[i];
        }
        assert_true(merge || (error > 0 && error < 1e-3f * size));
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
            for (int b = B; b > 0; b -= B - 1)
                check_same("taps", run(v, threads[t], x, b, merge), b == B ? got : run(v, 1, x, b, merge),
                           (size_t)b * TAPS * D * sizeof *got);
    }
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    sfp__vit_plan *none = NULL;
    MUST(sfp__thread_pool_create(1, &pool, &err));
    REFUSED(sfp__vit_plan_create(v, pool, &(const sfp__vit_plan_options){.mode = SFP__VIT_GRAD_PREFIX, .prefix_rows = 3}, &none,
                                 &err),
            SFP_EUNSUPPORTED, "--precision f32");
}

TEST(equal_tokens_are_merged_by_their_order)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    MUST(sfp__vit_random(&config, 5, 0.25f, &v, &err));
    memset(v->weights.pos, 0, (1 + PATCHES) * D * sizeof *v->weights.pos);
    const float *grey = filled((size_t)B * PIXELS, 0.5f); /* all patches are equal, so merging changes nothing but rounding */
    check_near("taps", run(v, 2, grey, B, 7), run(v, 2, grey, B, 0), (size_t)B * TAPS * D, 2e-5);
}

TEST(plans_that_cannot_merge_are_refused)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    MUST(sfp__vit_random(&config, 5, 0.25f, &v, &err));
    MUST(sfp__thread_pool_create(1, &pool, &err));
    static const sfp__vit_plan_options wrong[] = {{.merge_tokens = -1},
                                                  {.merge_tokens = 2, .mode = SFP__VIT_GRAD_PREFIX},
                                                  {.merge_tokens = 2, .prefix_rows = 3},
                                                  {.merge_tokens = 2, .queries = true},
                                                  {.merge_tokens = 2, .all_tokens = true}};
    sfp__vit_plan *none = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        REFUSED(sfp__vit_plan_create(v, pool, &wrong[i], &none, &err), SFP_EINVAL, "merge_tokens");
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
    MUST(sfp__vit_plan_create(v, pool, &(const sfp__vit_plan_options){.merge_tokens = 2}, &plan, &err));
    float x[PIXELS] = {0}, feature[D], attention[3 * (PATCHES + 1)];
    REFUSED(sfp__vit_run(plan, &(const sfp__vit_pass){.b = 1, .x = x, .feature = feature, .class_attention = attention}, &err),
            SFP_EINVAL, "single tokens");
}
