/* Taps of a pass (docs/method.md, section 18) are the norms of its class tokens, in every kind of pass that computes them. */
#include "model/vit.h"

#include "numeric.h"
#include "test.h"
#include "vit_make.h"

enum { S = 12, D = 24, DEPTH = 6, T = 10, B = 13, ROWS = 3, PIXELS = 3 * S * S };

static const sfp__vit_config config = VIT_EPS(1e-5f, S, 4, D, DEPTH, 3, 50, 0, 1);
static const int counts[] = {1, DEPTH / 2, DEPTH};

typedef struct world {
    sfp__vit *v;
    sfp__thread_pool *pool;
    float *x;                              /* (B, 3, S, S) */
    float *prefix[2], *grad[2], *dfeature; /* keys and values of layer 1 */
    sfp__vit_prompt prompts[DEPTH];
} world;

static world make_world(int threads)
{
    world w = {0};
    sfp__rng rng = sfp__rng_init(3, 0);
    MUST(sfp__vit_random(&config, 5, 0.25f, &w.v, &err));
    MUST(sfp__thread_pool_create(threads, &w.pool, &err));
    for (int k = 0; k < D; k++) { /* a norm that does more than standardise */
        w.v->weights.norm_w[k] = 1 + 0.1f * (float)k;
        w.v->weights.norm_b[k] = 0.3f - 0.05f * (float)k;
    }
    w.x = normals(&rng, B * PIXELS, 1);
    w.dfeature = normals(&rng, B * D, 1);
    for (int i = 0; i < 2; i++) {
        w.prefix[i] = normals(&rng, (size_t)B * ROWS * D, 1);
        w.grad[i] = filled((size_t)B * ROWS * D, NAN);
    }
    w.prompts[1] = (sfp__vit_prompt){.rows = ROWS, .k = w.prefix[0], .v = w.prefix[1], .grad_k = w.grad[0], .grad_v = w.grad[1]};
    return w;
}

static void free_world(const world *w)
{
    sfp__vit_free(w->v);
    sfp__thread_pool_free(w->pool);
}

static void run(const world *w, sfp__vit_plan_options o, const sfp__vit_pass *pass)
{
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
    MUST(sfp__vit_plan_create(w->v, w->pool, &o, &plan, &err));
    MUST(sfp__vit_run(plan, pass, &err));
}

static void loss(void *ctx, int first, int n, const float *feature, float *grad)
{
    const world *w = ctx;
    (void)feature;
    memcpy(grad, w->dfeature + (size_t)first * D, (size_t)(n * D) * sizeof *grad);
}

static void token_loss(void *ctx, int lane, int first, int n, const float *tokens, float *grad)
{
    (void)ctx, (void)lane, (void)first, (void)tokens;
    memset(grad, 0, (size_t)(n * T * D) * sizeof *grad);
}

/* Adds scale times the final norm of x (D), in double, to `out`. */
static void add_norm(const world *w, const float *x, double scale, float *out)
{
    double mean = 0, variance = 0;
    for (int k = 0; k < D; k++)
        mean += (double)x[k] / D;
    for (int k = 0; k < D; k++)
        variance += ((double)x[k] - mean) * ((double)x[k] - mean) / D;
    for (int k = 0; k < D; k++)
        out[k] +=
            (float)(scale * (((double)x[k] - mean) / sqrt(variance + (double)config.ln_eps) * (double)w->v->weights.norm_w[k] +
                             (double)w->v->weights.norm_b[k]));
}

/* Computes the mean tap and all others (B, (1 + DEPTH) * D) from the tokens of every block. */
static float *expected_taps(const world *w)
{
    float *tokens[DEPTH], *out = filled((size_t)B * (1 + DEPTH) * D, 0);
    for (int l = 0; l < DEPTH; l++)
        tokens[l] = filled((size_t)B * T * D, NAN);
    const sfp__vit_pass pass = {.b = B, .x = w->x, .tokens = tokens};
    run(w, (sfp__vit_plan_options){.all_tokens = true}, &pass);
    for (int i = 0; i < B; i++) {
        float *to = out + i * (1 + DEPTH) * D;
        for (int t = 1; t < T; t++)
            add_norm(w, tokens[DEPTH - 2] + (i * T + t) * D, 1.0 / (T - 1), to);
        for (int l = 0; l < DEPTH; l++)
            add_norm(w, tokens[l] + i * T * D, 1, to + (1 + l) * D);
    }
    return out;
}

/* Checks the taps of the first n samples, that their last ones are the bytes of `query`, and that the other rows are unchanged. */
static void check_taps(const sfp__vit_pass *pass, const float *query, int n, const float *want)
{
    int taps = pass->taps, mean = pass->tap_mean, all = mean + taps;
    for (int i = 0; i < n; i++) {
        const float *tap = pass->tap + i * all * D;
        check_near("mean tap", tap, want + i * (1 + DEPTH) * D, (size_t)(mean * D), 1e-5);
        check_near("taps", tap + mean * D, want + ((i + 1) * (1 + DEPTH) - taps) * D, (size_t)(taps * D), 1e-5);
        check_same("query", tap + (all - 1) * D, query + i * D, D * sizeof *query);
    }
    for (int i = n * all * D; i < B * all * D; i++)
        assert_true(isnan(pass->tap[i]));
}

TEST(taps_of_a_pass_without_prompts_are_the_norms_of_its_class_tokens)
{
    OWNED_BY(free_world) world w = make_world(2);
    const float *want = expected_taps(&w);
    const sfp__vit_plan_options plans[] = {{0},
                                           {.all_tokens = true},
                                           {.queries = true},
                                           {.mode = SFP__VIT_GRAD_INPUT},
                                           {.mode = SFP__VIT_GRAD_INPUT, .token_head = true}};
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++)
        for (size_t i = 0; i < 2 * sizeof counts / sizeof *counts; i++) {
            float *tap = filled((size_t)(B * (1 + counts[i / 2]) * D), NAN), *feature = filled(B * D, NAN),
                  *plain = filled(B * D, NAN);
            sfp__vit_pass pass = {.b = B, .x = w.x, .feature = plain, .head = loss, .head_ctx = &w};
            if (plans[p].token_head)
                pass.token_head = token_loss;
            run(&w, plans[p], &pass);
            pass.feature = feature;
            pass.tap = tap;
            pass.taps = counts[i / 2];
            pass.tap_mean = i % 2;
            run(&w, plans[p], &pass);
            check_taps(&pass, feature, B, want);
            check_same("features", feature, plain, B * D * sizeof *plain);
        }
}

TEST(a_prompted_pass_writes_the_taps_of_the_queries_that_it_computes)
{
    OWNED_BY(free_world) world w = make_world(2);
    const float *want = expected_taps(&w);
    for (int mode = SFP__VIT_FORWARD; mode <= SFP__VIT_GRAD_PREFIX; mode++)
        for (int all = 0; all < 2; all++)
            for (int n = 0; n <= B; n += 4)
                for (size_t i = 0; i < 2 * sizeof counts / sizeof *counts; i++) {
                    float *tap = filled((size_t)(B * (1 + counts[i / 2]) * D), NAN), *query = filled(B * D, 7);
                    float *feature = filled(B * D, NAN), *plain = filled(B * D, NAN);
                    const sfp__vit_plan_options o = {.mode = mode, .prefix_rows = ROWS, .queries = true, .all_tokens = all};
                    sfp__vit_pass pass = {.b = B,
                                          .x = w.x,
                                          .prompts = w.prompts,
                                          .query = query,
                                          .queries = n,
                                          .feature = plain,
                                          .head = loss,
                                          .head_ctx = &w};
                    run(&w, o, &pass);
                    const float *keys = copied(w.grad[0], (size_t)B * ROWS * D);
                    pass.feature = feature;
                    pass.tap = tap;
                    pass.taps = counts[i / 2];
                    pass.tap_mean = i % 2;
                    run(&w, o, &pass);
                    check_taps(&pass, query, n, want);
                    check_same("features", feature, plain, B * D * sizeof *plain);
                    check_same("gradients", w.grad[0], keys, (size_t)B * ROWS * D * sizeof *keys);
                }
}

TEST(any_number_of_threads_gives_the_same_taps)
{
    float *want = NULL;
    for (int threads = 1; threads <= 5; threads += 2) {
        OWNED_BY(free_world) world w = make_world(threads);
        float *tap = filled((size_t)B * (1 + DEPTH) * D, NAN);
        const sfp__vit_pass pass = {.b = B, .x = w.x, .tap = tap, .taps = DEPTH, .tap_mean = true};
        run(&w, (sfp__vit_plan_options){0}, &pass);
        if (want)
            check_same("taps", tap, want, (size_t)B * (1 + DEPTH) * D * sizeof *tap);
        want = tap;
    }
}

TEST(a_wrong_number_of_taps_is_refused)
{
    OWNED_BY(free_world) world w = make_world(1);
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
    const sfp__vit_plan_options o = {0};
    MUST(sfp__vit_plan_create(w.v, w.pool, &o, &plan, &err));
    float tap[D];
    sfp__vit_pass pass = {.b = B, .x = w.x, .tap = tap};
    static const int wrong[] = {-1, 0, DEPTH + 1};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pass.taps = wrong[i];
        REFUSED(sfp__vit_run(plan, &pass, &err), SFP_EINVAL, "expected 1 to 6");
    }
}
