/* Plans: results do not depend on threads or batch; memory is bounded and allocated once; errors name their cause; every
 * allocation may fail; two plans may share a ViT. */
#include "model/vit_internal.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

#include "failing_alloc.h"
#include "numeric.h"
#include "test.h"
#include "vit_make.h"

enum { ROWS = 3, MAX_B = 21 };

static const sfp__vit_config small = VIT_EPS(1e-5f, 20, 4, 24, 3, 3, 50, 0, 1);

/* ------------------------------------------------- counting malloc itself */

/* All of src/ is linked into this program, libraries are not. An allocator call that returns into the program's own text is
 * from our code, through any function. Sanitizers have their own allocators. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS_MALLOC 1

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);
extern char __executable_start, etext;
static atomic_ulong own_calls;

static void count(const void *caller)
{
    if ((const char *)caller >= &__executable_start && (const char *)caller < &etext)
        atomic_fetch_add(&own_calls, 1);
}

#define PUBLIC __attribute__((visibility("default"), noinline))
PUBLIC void *malloc(size_t n)
{
    count(__builtin_return_address(0));
    return __libc_malloc(n);
}
PUBLIC void *calloc(size_t n, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_calloc(n, size);
}
PUBLIC void *realloc(void *p, size_t n)
{
    count(__builtin_return_address(0));
    return __libc_realloc(p, n);
}
PUBLIC void *aligned_alloc(size_t align, size_t n)
{
    count(__builtin_return_address(0));
    return __libc_memalign(align, n);
}
#endif

/* ------------------------------------------------------------------ set-up */

/* A batch with prefixes in layers 0 and 2, its outputs and the arguments of a pass. */
typedef struct batch {
    int b;
    size_t pixels, D, piece; /* per sample: pixels, features, prefix floats */
    float *x, *pk[3], *pv[3], *feature, *gk[3], *gv[3];
    float *direction; /* (b, D) */
    sfp__vit_prompt prompts[3];
} batch;

static void loss(void *ctx, int first, int n, const float *feature, float *grad)
{
    const batch *t = ctx;
    for (size_t i = 0; i < (size_t)n * t->D; i++)
        grad[i] = t->direction[(size_t)first * t->D + i] + 0.1f * feature[i];
}

static batch make_batch(const sfp__vit_config *c, int b)
{
    batch t = {.b = b, .pixels = 3 * (size_t)(c->img_size * c->img_size), .D = (size_t)c->dim, .piece = (size_t)(ROWS * c->dim)};
    sfp__rng rng = sfp__rng_init(77, 0);
    size_t n = (size_t)b;
    t.x = normals(&rng, n * t.pixels, 1);
    t.direction = normals(&rng, n * t.D, 1);
    t.feature = filled(n * t.D, NAN);
    for (int l = 0; l < 3; l += 2) {
        t.pk[l] = normals(&rng, n * t.piece, 1), t.pv[l] = normals(&rng, n * t.piece, 1);
        t.gk[l] = filled(n * t.piece, NAN), t.gv[l] = filled(n * t.piece, NAN);
    }
    return t;
}

/* Returns a pass over samples [first, first + n) of a batch, with gradients of the prefixes unless the mode is forward only. */
static sfp__vit_pass pass_of(batch *t, const sfp__vit_config *c, int mode, int first, int n)
{
    size_t at = (size_t)first;
    sfp__vit_pass p = {.b = n, .x = t->x + at * t->pixels, .prompts = t->prompts, .feature = t->feature + at * t->D};
    for (int l = 0; l < c->depth; l += 2) {
        size_t skip = at * t->piece;
        t->prompts[l] = (sfp__vit_prompt){.rows = ROWS, .k = t->pk[l] + skip, .v = t->pv[l] + skip};
        if (mode) {
            t->prompts[l].grad_k = t->gk[l] + skip;
            t->prompts[l].grad_v = t->gv[l] + skip;
        }
    }
    if (mode) {
        p.head = loss;
        p.head_ctx = t;
    }
    return p;
}

static sfp__vit *make_vit(const sfp__vit_config *c)
{
    sfp__vit *v = NULL;
    MUST(sfp__vit_random(c, 5, 0.25f, &v, &err));
    return v;
}

static sfp__thread_pool *make_pool(int threads)
{
    sfp__thread_pool *p = NULL;
    MUST(sfp__thread_pool_create(threads, &p, &err));
    return p;
}

static sfp__vit_plan *make_plan(sfp__vit *v, sfp__thread_pool *pool, sfp__vit_plan_options opt)
{
    sfp__vit_plan *p = NULL;
    MUST(sfp__vit_plan_create(v, pool, &opt, &p, &err));
    return p;
}

static sfp__vit_plan *make_prefix_plan(sfp__vit *v, sfp__thread_pool *pool)
{
    return make_plan(v, pool, (sfp__vit_plan_options){.mode = SFP__VIT_GRAD_PREFIX, .prefix_rows = ROWS});
}

static void run(sfp__vit_plan *plan, const sfp__vit_pass *pass)
{
    MUST(sfp__vit_run(plan, pass, &err));
}

/* Checks that the gradients of two batches are equal, byte by byte or within a tolerance of their largest value. */
static void compare(const batch *a, const batch *b, double tolerance)
{
    size_t n = (size_t)a->b;
    struct {
        const char *what;
        const float *a, *b;
        size_t count;
    } const list[] = {{"feature", a->feature, b->feature, n * a->D},
                      {"keys 0", a->gk[0], b->gk[0], n * a->piece},
                      {"values 0", a->gv[0], b->gv[0], n * a->piece},
                      {"keys 2", a->gk[2], b->gk[2], n * a->piece},
                      {"values 2", a->gv[2], b->gv[2], n * a->piece}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        for (size_t k = 0; k < list[i].count; k++)
            assert_true(!isnan(list[i].a[k]));
        if (tolerance > 0)
            check_near(list[i].what, list[i].a, list[i].b, list[i].count, tolerance);
        else
            check_same(list[i].what, list[i].a, list[i].b, list[i].count * sizeof(float));
    }
}

/* ------------------------------------------------------------------- tests */

TEST(any_number_of_threads_gives_the_same_bytes)
{
    static const int threads[] = {1, 2, 3, 5};
    OWNED_PTR(sfp__vit_free) sfp__vit *v = make_vit(&small);
    batch want = make_batch(&small, MAX_B);
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = make_pool(threads[i]);
        OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = make_prefix_plan(v, pool);
        for (int round = 0; round < 3; round++) { /* the assignment of pieces to threads differs from run to run */
            batch got = make_batch(&small, MAX_B);
            sfp__vit_pass p = pass_of(&got, &small, SFP__VIT_GRAD_PREFIX, 0, MAX_B);
            run(plan, &p);
            if (i == 0 && round == 0) {
                want = got;
                continue;
            }
            compare(&got, &want, 0);
        }
    }
}

/* All outputs that a divided sample can have, and its prefixes, which depend on its query. */
typedef struct divided {
    float *x, *prefix[2], *query, *feature, *embed, *mean_embed, *attention, *tap;
    sfp__vit_prompt prompts[4];
} divided;

enum { DIVIDED_B = 3, DIVIDED_SIDE = 44, DIVIDED_D = 24, DIVIDED_PATCHES = 121, DIVIDED_DEPTH = 4 };

static void prefixes_of_queries(void *ctx, int first, int n, const float *query)
{
    const divided *d = ctx;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 2; k++)
            for (int r = 0; r < ROWS; r++)
                for (int c = 0; c < DIVIDED_D; c++)
                    d->prefix[k][((first + i) * ROWS + r) * DIVIDED_D + c] = query[i * DIVIDED_D + c] * (float)(1 + r + k);
}

static divided run_divided(sfp__vit *v, int threads, int b, bool prompted)
{
    const size_t n = DIVIDED_B, D = DIVIDED_D, pixels = 3 * DIVIDED_SIDE * DIVIDED_SIDE;
    sfp__rng rng = sfp__rng_init(5, 0);
    divided d = {.x = normals(&rng, n * pixels, 1),
                 .query = normals(&rng, n * D, 1),
                 .prefix = {filled(n * ROWS * D, NAN), filled(n * ROWS * D, NAN)},
                 .feature = filled(n * D, 0),
                 .embed = filled(n * DIVIDED_PATCHES * D, 0),
                 .mean_embed = filled(n * D, 0),
                 .attention = filled(n * 3 * (DIVIDED_PATCHES + 1), 0),
                 .tap = filled(n * 3 * D, 0)};
    for (int l = 0; l < 3; l += 2)
        d.prompts[l] = (sfp__vit_prompt){.rows = ROWS, .k = d.prefix[0], .v = d.prefix[1]};
    sfp__vit_pass p = {.b = b,
                       .x = d.x,
                       .feature = d.feature,
                       .embed = d.embed,
                       .mean_embed = d.mean_embed,
                       .class_attention = d.attention,
                       .tap = d.tap,
                       .taps = 2,
                       .tap_mean = true};
    if (prompted) { /* the query of the last sample is known */
        p.prompts = d.prompts;
        p.query = d.query;
        p.queries = b > 1 ? b - 1 : b;
        p.compose = prefixes_of_queries;
        p.compose_ctx = &d;
    }
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = make_pool(threads);
    OWNED_PTR(sfp__vit_plan_free)
    sfp__vit_plan *plan = make_plan(v, pool, (sfp__vit_plan_options){.prefix_rows = ROWS, .queries = prompted});
    MUST(sfp__vit_plan_prepare(plan, DIVIDED_B, &err));
    /* Else nothing is tested. The rows of a product of another library may depend on their number: then one part is right. */
    if (plan->parts != 1 || strncmp(sfp__gemm_backend(), "oneDNN", 6) == 0)
        assert_int_equal(plan->parts, threads == 1 ? 0 : threads);
    run(plan, &p);
    return d;
}

TEST(a_divided_sample_has_the_same_bytes)
{
    static const int threads[] = {2, 3, 7};
    for (int variant = 0; variant < 8; variant++) {
        bool prompted = variant & 1;
        sfp__vit_config c =
            VIT_EPS(1e-5f, DIVIDED_SIDE, 4, DIVIDED_D, DIVIDED_DEPTH - (variant & 2) / 2, 3, 50, 0, 1, .pre_norm = variant & 4);
        OWNED_PTR(sfp__vit_free) sfp__vit *v = make_vit(&c);
        for (int b = 1; b <= DIVIDED_B; b++) {
            divided want = run_divided(v, 1, b, prompted);
            for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
                divided got = run_divided(v, threads[i], b, prompted);
                const size_t n = (size_t)b * sizeof(float), D = DIVIDED_D;
                check_same("feature", got.feature, want.feature, n * D);
                check_same("query", got.query, want.query, n * D);
                check_same("embedding", got.embed, want.embed, n * DIVIDED_PATCHES * D);
                check_same("mean embedding", got.mean_embed, want.mean_embed, n * D);
                check_same("attention", got.attention, want.attention, n * 3 * (DIVIDED_PATCHES + 1));
                check_same("taps", got.tap, want.tap, (prompted && b > 1 ? n - sizeof(float) : n) * 3 * D);
                assert_true(want.feature[0] != 0 && want.mean_embed[0] != 0 && want.attention[0] > 0);
            }
        }
    }
}

TEST(a_batch_equals_its_samples_one_by_one)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = make_vit(&small);
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = make_pool(2);
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = make_prefix_plan(v, pool);
    batch whole = make_batch(&small, MAX_B), parts = make_batch(&small, MAX_B);
    sfp__vit_pass p = pass_of(&whole, &small, SFP__VIT_GRAD_PREFIX, 0, MAX_B);
    run(plan, &p);
    for (int i = 0; i < MAX_B; i++) {
        batch one = parts; /* the loss numbers the samples of its pass */
        one.direction = parts.direction + (size_t)i * parts.D;
        p = pass_of(&parts, &small, SFP__VIT_GRAD_PREFIX, i, 1);
        p.head_ctx = &one;
        run(plan, &p);
    }
    compare(&parts, &whole, 4e-6); /* a BLAS may sum in another order for another number of rows */
}

TEST(the_size_of_micro_batches_does_not_matter)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = make_vit(&small);
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = make_pool(2);
    batch want = make_batch(&small, MAX_B);
    for (int unit = 0; unit < 5; unit++) {
        OWNED_PTR(sfp__vit_plan_free)
        sfp__vit_plan *plan = make_plan(
            v, pool, (sfp__vit_plan_options){.mode = SFP__VIT_GRAD_PREFIX, .prefix_rows = ROWS, .microbatch_size = unit});
        batch got = make_batch(&small, MAX_B);
        sfp__vit_pass p = pass_of(unit ? &got : &want, &small, SFP__VIT_GRAD_PREFIX, 0, MAX_B);
        run(plan, &p);
        if (unit)
            compare(&got, &want, 4e-6);
    }
}

static float *all_weights(const sfp__vit_config *c, const sfp__vit_weights *w, size_t *count)
{
    /* qkv and fc1 of all blocks, patch embedding: products and sums over all samples */
    size_t D = (size_t)c->dim, q = 3 * D * D, f = (size_t)c->hidden * D, p = D * 3 * (size_t)(c->patch_size * c->patch_size);
    *count = (size_t)c->depth * (q + f + D) + p;
    float *out = floats(*count), *at = out;
    for (int l = 0; l < c->depth; l++) {
        memcpy(at, w->blocks[l].qkv_w, q * sizeof *at), at += q;
        memcpy(at, w->blocks[l].fc1_w, f * sizeof *at), at += f;
        memcpy(at, w->blocks[l].norm1_w, D * sizeof *at), at += D;
    }
    memcpy(at, w->patch_w, p * sizeof *at);
    return out;
}

TEST(weight_gradients_repeat_with_the_same_threads)
{
    static const int threads[] = {1, 2, 3};
    OWNED_PTR(sfp__vit_free) sfp__vit *v = make_vit(&small);
    batch t = make_batch(&small, MAX_B);
    float *serial = NULL;
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = make_pool(threads[i]);
        OWNED_PTR(sfp__vit_plan_free)
        sfp__vit_plan *plan = make_plan(v, pool, (sfp__vit_plan_options){.mode = SFP__VIT_GRAD_WEIGHTS, .prefix_rows = ROWS});
        float *first = NULL;
        size_t n = 0;
        for (int round = 0; round < 4; round++) {
            sfp__vit_weights g;
            MUST(sfp__vit_weights_create(&small, &g, &err));
            sfp__vit_pass p = pass_of(&t, &small, SFP__VIT_GRAD_PREFIX, 0, MAX_B);
            p.grad_w = &g;
            run(plan, &p);
            float *got = all_weights(&small, &g, &n);
            if (!first) {
                first = got;
            } else {
                check_same("weight gradients", got, first, n * sizeof *got);
            }
            sfp__vit_weights_done(&small, &g);
        }
        if (serial)
            check_near("other threads", first, serial, n, 1e-5);
        else
            serial = copied(first, n);
    }
}

TEST(a_run_after_the_first_allocates_nothing)
{
    static const int modes[] = {SFP__VIT_FORWARD, SFP__VIT_GRAD_PREFIX, SFP__VIT_GRAD_PREFIX | SFP__VIT_GRAD_WEIGHTS};
    OWNED_PTR(sfp__vit_free) sfp__vit *v = make_vit(&small);
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = make_pool(2);
    batch t = make_batch(&small, MAX_B);
    sfp__vit_weights g;
    MUST(sfp__vit_weights_create(&small, &g, &err));
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        OWNED_PTR(sfp__vit_plan_free)
        sfp__vit_plan *plan = make_plan(v, pool, (sfp__vit_plan_options){.mode = modes[i], .prefix_rows = ROWS});
        sfp__vit_pass p = pass_of(&t, &small, modes[i], 0, MAX_B);
        p.grad_w = modes[i] & SFP__VIT_GRAD_WEIGHTS ? &g : NULL;
        run(plan, &p);
        unsigned long before = sfp__mem_count();
#ifdef COUNTS_MALLOC
        unsigned long calls = atomic_load(&own_calls);
        assert_true(calls > 0); /* the counter works: the set-up allocated memory */
#endif
        for (int round = 0; round < 5; round++)
            run(plan, &p);
        assert_int_equal(sfp__mem_count(), before);
#ifdef COUNTS_MALLOC
        assert_int_equal(atomic_load(&own_calls), calls);
#endif
    }
    sfp__vit_weights_done(&small, &g);
}

/* Whether all plain matrices of the blocks are there, or none. */
static bool has_matrices(const sfp__vit *v)
{
    int there = 0;
    for (int i = 0; i < v->config.depth; i++) {
        const sfp__vit_block_weights *b = &v->weights.blocks[i];
        there += !!b->qkv_w + !!b->proj_w + !!b->fc1_w + !!b->fc2_w;
    }
    assert_true(there == 0 || there == 4 * v->config.depth);
    return there > 0;
}

/* Plans in this order pack again from packed copies: the transposed ones, and the joint q, k, v of the last block from separate ones. */
TEST(plain_weights_are_freed_and_restored_with_the_same_bytes)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *kept = make_vit(&small), *v = make_vit(&small);
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = make_pool(2);
    size_t count = 0;
    MUST(sfp__vit_free_packed(v, &err));
    assert_true(has_matrices(v));
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *forward = make_plan(v, pool, (sfp__vit_plan_options){.prefix_rows = ROWS});
    assert_false(has_matrices(v));
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = make_prefix_plan(v, pool), *like = make_prefix_plan(kept, pool);
    OWNED_PTR(sfp__vit_plan_free)
    sfp__vit_plan *whole = make_plan(v, pool, (sfp__vit_plan_options){.prefix_rows = ROWS, .all_tokens = true}),
                  *whole_like = make_plan(kept, pool, (sfp__vit_plan_options){.prefix_rows = ROWS, .all_tokens = true});
    assert_false(has_matrices(v));
    batch a = make_batch(&small, MAX_B), b = make_batch(&small, MAX_B);
    sfp__vit_pass pa = pass_of(&a, &small, SFP__VIT_GRAD_PREFIX, 0, MAX_B),
                  pb = pass_of(&b, &small, SFP__VIT_GRAD_PREFIX, 0, MAX_B);
    run(plan, &pa);
    run(like, &pb);
    compare(&a, &b, 0);
    pa = pass_of(&a, &small, SFP__VIT_FORWARD, 0, MAX_B), pb = pass_of(&b, &small, SFP__VIT_FORWARD, 0, MAX_B);
    run(whole, &pa);
    run(whole_like, &pb);
    compare(&a, &b, 0);

    check_same("first row", sfp__vit_first_row(v, 2), sfp__vit_first_row(kept, 2), (size_t)small.dim * sizeof(float));
    MUST(sfp__vit_hold(v, 1, SFP__VIT_FC2, &err));
    MUST(sfp__vit_hold_all(v, &err));
    assert_true(has_matrices(v));
    float *got = all_weights(&small, &v->weights, &count), *want = all_weights(&small, &kept->weights, &count);
    check_same("weights", got, want, count * sizeof *got);
    sfp__vit_unhold_all(v);
    assert_null(v->weights.blocks[0].fc2_w);
    assert_non_null(v->weights.blocks[1].fc2_w);
    sfp__vit_unhold(v, 1, SFP__VIT_FC2);
    assert_false(has_matrices(v));
    REFUSED(sfp__vit_set_weights(v, &kept->weights, &err), SFP_EINVAL, "only packed copies");
}

static size_t bytes_of(const sfp__vit_plan *p)
{
    size_t bytes = 0;
    for (int i = 0; i < p->lanes; i++)
        bytes += malloc_usable_size(p->blocks[i]);
    return bytes;
}

TEST(a_plans_memory_does_not_depend_on_the_batch)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = make_vit(&small);
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *one = make_pool(1), *two = make_pool(2);
    sfp__vit_plan_options opt = {.mode = SFP__VIT_GRAD_PREFIX, .prefix_rows = ROWS};
    OWNED_PTR(sfp__vit_plan_free)
    sfp__vit_plan *plan = make_plan(v, two, opt), *single = make_plan(v, one, opt),
                  *forward = make_plan(v, two, (sfp__vit_plan_options){0});
    size_t bytes = bytes_of(plan);
    assert_in_range(bytes, 2 * bytes_of(single) - 4096,
                    2 * bytes_of(single) + 4096); /* a block may be slightly longer than requested */
    assert_true(bytes_of(forward) < bytes);
    batch t = make_batch(&small, MAX_B);
    static const int sizes[] = {1, MAX_B, 0, 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        sfp__vit_pass p = pass_of(&t, &small, SFP__VIT_GRAD_PREFIX, 0, sizes[i]);
        run(plan, &p);
        assert_int_equal(bytes_of(plan), bytes);
    }
    sfp__vit_plan_free(NULL);
}

TEST(wrong_passes_are_refused_by_name)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = make_vit(&small);
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = make_pool(1);
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = make_prefix_plan(v, pool);
    batch t = make_batch(&small, 2);
    const sfp__vit_pass good = pass_of(&t, &small, SFP__VIT_GRAD_PREFIX, 0, 2);
    float *tokens = filled(2 * 26 * 24, NAN);
    sfp__vit_weights g;
    MUST(sfp__vit_weights_create(&small, &g, &err));
    sfp__vit_pass p = good;
    sfp__vit_prompt wrong[3];
    p.prompts = memcpy(wrong, good.prompts, sizeof wrong);
    wrong[2].rows = ROWS + 1;
    REFUSED(sfp__vit_run(plan, &p, &err), SFP_EINVAL, "layer 2: number of prefix rows is 4, expected 0 to 3 as in the plan");
    wrong[2].rows = -1;
    REFUSED(sfp__vit_run(plan, &p, &err), SFP_EINVAL, "layer 2: number of prefix rows is -1");
    wrong[2].rows = ROWS;
    wrong[0].v = NULL;
    REFUSED(sfp__vit_run(plan, &p, &err), SFP_EINVAL, "layer 0: prefix keys or values are missing");
    wrong[0].v = good.prompts[0].v;
    wrong[2].grad_k = NULL;
    REFUSED(sfp__vit_run(plan, &p, &err), SFP_EINVAL, "layer 2: one of grad_k and grad_v is NULL, expected both or none");
    p = good;
    p.head = NULL;
    REFUSED(sfp__vit_run(plan, &p, &err), SFP_EINVAL, "needs a loss");
    p = good;
    p.tokens = (float *[]){NULL, NULL, tokens};
    REFUSED(sfp__vit_run(plan, &p, &err), SFP_EINVAL, "all_tokens");
    p = good;
    p.grad_w = &g;
    REFUSED(sfp__vit_run(plan, &p, &err), SFP_EINVAL, "mode");
    p = good;
    p.grad_x = tokens;
    REFUSED(sfp__vit_run(plan, &p, &err), SFP_EINVAL, "mode");
    p = good;
    p.b = -1;
    REFUSED(sfp__vit_run(plan, &p, &err), SFP_EINVAL, "batch has -1 samples");
    for (size_t i = 0; i < (size_t)t.b * t.D; i++)
        assert_true(!!isnan(t.feature[i])); /* outputs are not changed on failure */
    run(plan, &good);
    sfp__vit_plan *none = NULL;
    const sfp__vit_plan_options many = {.prefix_rows = 5000};
    REFUSED(sfp__vit_plan_create(v, pool, &many, &none, &err), SFP_EINVAL, "5000");
    assert_null(none);
    sfp__vit_weights_done(&small, &g);
}

TEST(invalid_sizes_are_refused)
{
    enum { WRONG = 6 };
    static const char *const messages[WRONG] = {"image size 20 is not a multiple of patch size 6",
                                                "width 24 is not a multiple of 5 heads",
                                                "depth is 65, expected 1 to 64",
                                                "channels is 1",
                                                "std",
                                                "eps is 0"};
    sfp__vit_config wrong[WRONG];
    for (int i = 0; i < WRONG; i++)
        wrong[i] = small;
    wrong[0].patch_size = 6;
    wrong[1].heads = 5;
    wrong[2].depth = 65;
    wrong[3].channels = 1;
    wrong[4].std[1] = 0;
    wrong[5].ln_eps = 0;
    for (int i = 0; i < WRONG; i++) {
        sfp__vit *v = NULL;
        sfp_status s = sfp__vit_random(&wrong[i], 0, 0.1f, &v, &err);
        if (s == SFP_OK || v || !strstr(err.message, messages[i]))
            fail_msg("got '%s', expected '%s'", err.message, messages[i]);
    }
}

/* ------------------------------------------------------------- failing allocations */

/* Does everything that allocates on the way to a result, and frees it. After a failed run, the plan runs again without
 * failures; *ran_again reports that. */
static sfp_status everything(sfp__thread_pool *pool, int mode, bool all_tokens, batch *t, bool *ran_again, sfp_error *why)
{
    sfp__vit *v = NULL;
    sfp__vit_plan *plan = NULL;
    sfp__vit_weights g = {0};
    sfp__vit_plan_options opt = {.mode = mode, .prefix_rows = ROWS, .all_tokens = all_tokens};
    sfp_status s = sfp__vit_random(&small, 5, 0.25f, &v, why);
    assert_true(!s == (v != NULL));
    if (!s)
        s = sfp__vit_weights_create(&small, &g, why);
    if (!s) {
        s = sfp__vit_plan_create(v, pool, &opt, &plan, why);
        assert_true(!s == (plan != NULL));
    }
    if (!s) {
        sfp__vit_pass p = pass_of(t, &small, SFP__VIT_GRAD_PREFIX, 0, t->b);
        p.grad_w = mode & SFP__VIT_GRAD_WEIGHTS ? &g : NULL;
        s = sfp__vit_run(plan, &p, why);
        if (s) { /* the plan is still usable: with memory it works */
            sfp__mem_fail_at(-1);
            run(plan, &p);
            *ran_again = true;
        }
    }
    sfp__vit_plan_free(plan);
    sfp__vit_weights_done(&small, &g);
    sfp__vit_free(v);
    return s;
}

TEST(every_allocation_may_fail)
{
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = make_pool(2);
    batch want = make_batch(&small, 5), t = make_batch(&small, 5);
    bool again = false;
    for (int all = 0; all < 2; all++) {
        int mode = SFP__VIT_GRAD_PREFIX | SFP__VIT_GRAD_INPUT | (all ? SFP__VIT_GRAD_WEIGHTS : 0);
        MUST(everything(pool, mode, all, &want, &again, &err));
        long failures = FAIL_EACH_ALLOCATION(everything(pool, mode, all, &t, &again, alloc_err), true);
        assert_true(failures >= 50); /* weights, packing, plan, products */
        compare(&t, &want, 0);
    }
    assert_true(again); /* some allocations failed in the run itself */
}

/* ------------------------------------------------------- concurrent plans */

typedef struct user {
    sfp__vit *v;
    pthread_barrier_t *begin;
    sfp__vit_plan_options opt;
    batch t;
    sfp_status status;
    sfp_error err;
} user;

static void *use(void *arg)
{
    user *u = arg;
    const sfp__vit_config *c = &u->v->config;
    sfp__thread_pool *pool = NULL;
    sfp__vit_plan *plan = NULL;
    u->status = sfp__thread_pool_create(2, &pool, &u->err);
    (void)pthread_barrier_wait(u->begin);
    if (!u->status)
        u->status = sfp__vit_plan_create(u->v, pool, &u->opt, &plan, &u->err);
    for (int i = 0; !u->status && i < 5; i++) {
        sfp__vit_pass p = pass_of(&u->t, c, u->opt.mode, 0, u->t.b);
        u->status = sfp__vit_run(plan, &p, &u->err);
    }
    sfp__vit_plan_free(plan);
    sfp__thread_pool_free(pool);
    return NULL;
}

TEST(plans_of_one_vit_run_at_the_same_time)
{
    enum { USERS = 4 };
    static const sfp__vit_plan_options kinds[USERS] = {{.prefix_rows = ROWS},
                                                       {.mode = SFP__VIT_GRAD_PREFIX, .prefix_rows = ROWS},
                                                       {.mode = SFP__VIT_GRAD_PREFIX, .prefix_rows = ROWS, .all_tokens = true},
                                                       {.prefix_rows = ROWS, .all_tokens = true}};
    for (int depth = 1; depth <= 3; depth += 2)
        for (int round = 0; round < 3; round++) {
            sfp__vit_config c = small;
            c.depth = depth;
            OWNED_PTR(sfp__vit_free) sfp__vit *v = make_vit(&c); /* a new ViT, so that packing on demand is concurrent, too */
            pthread_barrier_t begin;
            assert_int_equal(pthread_barrier_init(&begin, NULL, USERS), 0);
            user u[USERS];
            pthread_t thread[USERS];
            for (int i = 0; i < USERS; i++) {
                u[i] = (user){.v = v, .begin = &begin, .opt = kinds[i], .t = make_batch(&c, 9)};
                assert_int_equal(pthread_create(&thread[i], NULL, use, &u[i]), 0);
            }
            for (int i = 0; i < USERS; i++)
                assert_int_equal(pthread_join(thread[i], NULL), 0);
            for (int i = 0; i < USERS; i++) {
                err = u[i].err;
                MUST(u[i].status);
                check_near("feature", u[i].t.feature, u[0].t.feature, 9 * u[0].t.D, 1e-5);
                if (kinds[i].mode)
                    check_near("keys", u[i].t.gk[0], u[1].t.gk[0], 9 * u[1].t.piece, 1e-4);
            }
            assert_int_equal(pthread_barrier_destroy(&begin), 0);
        }
}

/* ------------------------------------------------------------------- FLOPs */

/* D 8, H 2, F 12, two blocks, 2 x 2 patches of 4 x 4: L 4, T 5. A multiply-add counts as two operations. */
TEST(operations_are_counted_exactly)
{
    const sfp__vit_config c = VIT_EPS(1e-5f, 8, 4, 8, 2, 2, 12, 0, 1);
    const double patch = 2 * 4 * 8 * 48;
    const double block0 = 2 * 5 * 24 * 8 /* qkv */ + 2 * 2 * 5 * 5 * 8 /* scores, values */ + 2 * 5 * 8 * 8 /* proj */ +
                          2 * (2 * 5 * 12 * 8) /* mlp */;
    const double class1 =
        2 * 5 * 16 * 8 /* k, v */ + 2 * 8 * 8 /* q */ + 2 * 2 * 1 * 5 * 8 + 2 * 8 * 8 /* proj */ + 2 * (2 * 12 * 8);
    /* two prefix rows in block 0: two more keys for each of 5 queries */
    const double prefix0 = 2 * 2 * 5 * 2 * 8;
    /* backward of the last block: mlp, proj, attention (scores again, dP, dq, dk, dv), k and v, q */
    const double back1 = 2 * (2 * 12 * 8) + 2 * 8 * 8 + 5 * (2 * 1 * 5 * 8) + 2 * 5 * 8 * 16 + 2 * 8 * 8;
    /* backward of block 0, the lowest with a prefix: mlp, proj, scores again and dP over 7 keys, dk and dv of 2 rows */
    const double back0 = 2 * (2 * 5 * 12 * 8) + 2 * 5 * 8 * 8 + 2 * (2 * 5 * 7 * 8) + 2 * (2 * 5 * 2 * 8);
    assert_true(patch + block0 + class1 == 10432); /* the sum, computed on paper */
    assert_true(patch + block0 + class1 + prefix0 + back1 + back0 == 17072);
    OWNED_PTR(sfp__vit_free) sfp__vit *v = make_vit(&c);
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = make_pool(2);
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *forward = make_plan(v, pool, (sfp__vit_plan_options){0});
    OWNED_PTR(sfp__vit_plan_free)
    sfp__vit_plan *train = make_plan(v, pool, (sfp__vit_plan_options){.mode = SFP__VIT_GRAD_PREFIX, .prefix_rows = 2});
    batch t = make_batch(&c, 9);
    for (int b = 1; b <= 9; b += 4) {
        sfp__vit_pass p = {.b = b, .x = t.x};
        run(forward, &p);
        assert_true(sfp__vit_plan_flops(forward) == b * (patch + block0 + class1));
        p.prompts = (sfp__vit_prompt[2]){{.rows = 2, .k = t.pk[0], .v = t.pv[0], .grad_k = t.gk[0], .grad_v = t.gv[0]}};
        p.head = loss, p.head_ctx = &t;
        run(train, &p);
        assert_true(sfp__vit_plan_flops(train) == b * (patch + block0 + class1 + prefix0 + back1 + back0));
    }
}
