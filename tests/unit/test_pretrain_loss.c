/* Compares the gradients of the pretraining loss with central differences: the gradients of tokens and of its layers, for each
 * term alone and for all terms, with and without mixing, with the teacher's width and another one. */
#include "pretrain/pretrain_internal.h"

#include "io/tensor/tensor.h"

#include "numeric.h"
#include "test.h"
#include "vit_make.h"

enum { BATCH = 5, MICROBATCH = 2, LANES = 2, SIDE = 3, PATCHES = SIDE * SIDE, TOKENS = 1 + PATCHES };
enum { DIM = 12, CLASSES = 4, IMAGES = 7, VIEWS = 2 };

typedef struct world {
    sfp__image_set images;
    sfp__teacher teacher;
    sfp__view_batch batch;
    sfp__loss *loss;
    sfp__loss_options opt;
    float *tokens, *params, *grad_tokens, *grad_params;
    size_t token_count, param_count;
    int rows; /* tokens per sample that the loss uses */
} world;

static void set_up(world *w, const double weight[SFP__TERMS], int teacher_dim, float share)
{
    static int32_t label[IMAGES] = {0, 1, 2, 3, -1, 1, 0};
    static int64_t image[BATCH] = {6, 4, 1, 2, 3};
    static int view[BATCH] = {0, 1, 1, 0, 1};
    static bool mirrored[BATCH] = {true, false, false, true, false};
    sfp__rng rng = sfp__rng_init(7, 0);
    *w = (world){.images = {.count = IMAGES, .label = label, .classes = CLASSES},
                 .batch = {.share = share, .image = image, .view = view, .mirrored = mirrored},
                 .opt = {.smoothing = 0.1, .temperature = 2}};
    memcpy(w->opt.weight, weight, sizeof w->opt.weight);
    size_t n = (size_t)(BATCH * TOKENS * teacher_dim);
    w->batch.entries = kept_malloc(n * sizeof *w->batch.entries);
    for (size_t i = 0; i < n; i++)
        w->batch.entries[i] = sfp__f32_to_f16((float)sfp__rng_normal(&rng));
    const sfp__vit_config tc = VIT(8, 8, teacher_dim, 1, 1, 8, 0, 1, .classes = 6);
    w->teacher = (sfp__teacher){.dim = teacher_dim,
                                .classes = 6,
                                .side = SIDE,
                                .grid = SIDE,
                                .views = VIEWS,
                                .images = IMAGES,
                                .mean = normals(&rng, 2 * (size_t)teacher_dim, 0.1),
                                .scale = filled(2 * (size_t)teacher_dim, 0.7f)};
    const sfp__vit_config sc = {.img_size = SIDE * 4, .patch_size = 4, .dim = DIM};
    if (sfp__vit_random(&tc, 3, 0.5f, &w->teacher.vit, &err) ||
        sfp__loss_create(&w->opt, &sc, &w->images, &w->teacher, LANES, MICROBATCH, &w->loss, &err))
        fail_msg("%s", err.message);
    w->rows = weight[SFP__TERM_PATCH] > 0 ? TOKENS : 1;
    assert_int_equal(sfp__loss_all_tokens(w->loss), w->rows == TOKENS);
    w->token_count = (size_t)(BATCH * w->rows * DIM);
    w->param_count = sfp__loss_count(w->loss);
    w->tokens = normals(&rng, w->token_count, 1);
    w->params = normals(&rng, w->param_count ? w->param_count : 1, 0.4);
    w->grad_tokens = filled(w->token_count, NAN);
    w->grad_params = filled(w->param_count ? w->param_count : 1, NAN);
}

static void tear_down(world *w)
{
    sfp__loss_free(w->loss);
    sfp__vit_free(w->teacher.vit);
}

/* Calls the loss as a pass does: microbatches alternate between the lanes. */
static double evaluate(world *w, const float *tokens, const float *params, float *grad_tokens, float *grad_params)
{
    double value[SFP__TERMS], sum = 0;
    sfp__loss_begin(w->loss, &w->batch, BATCH, params);
    for (int first = 0, unit = 0; first < BATCH; first += MICROBATCH, unit++) {
        int n = BATCH - first < MICROBATCH ? BATCH - first : MICROBATCH;
        sfp__loss_tokens(w->loss, unit % LANES, first, n, tokens + (size_t)(first * w->rows * DIM),
                         grad_tokens + (size_t)(first * w->rows * DIM));
    }
    sfp__loss_end(w->loss, value, grad_params);
    for (int i = 0; i < SFP__TERMS; i++) {
        assert_true(isfinite(value[i]) == (w->opt.weight[i] > 0));
        sum += w->opt.weight[i] > 0 ? w->opt.weight[i] * value[i] : 0;
    }
    return sum;
}

static void check_along(world *w, const char *name, bool of_tokens, uint64_t seed)
{
    const float h = 4e-3f;
    size_t n = of_tokens ? w->token_count : w->param_count;
    sfp__rng rng = sfp__rng_init(seed, 1);
    float *direction = normals(&rng, n, 1), *at = copied(of_tokens ? w->tokens : w->params, n);
    float *gt = floats(w->token_count), *gp = floats(w->param_count ? w->param_count : 1);
    double got = dot(direction, of_tokens ? w->grad_tokens : w->grad_params, n), value[2];
    for (int side = 0; side < 2; side++) {
        float *moved = copied(at, n);
        for (size_t i = 0; i < n; i++)
            moved[i] += (side ? h : -h) * direction[i];
        value[side] = evaluate(w, of_tokens ? moved : w->tokens, of_tokens ? w->params : moved, gt, gp);
    }
    double want = (value[1] - value[0]) / (2 * (double)h);
    if (!(fabs(got - want) <= 4e-3 * (fabs(want) + 0.05)))
        fail_msg("%s: along %s the gradient gives %.7g, the central difference %.7g", name, of_tokens ? "tokens" : "parameters",
                 got, want);
}

TEST(gradients_equal_central_differences)
{
    static const double weights[][SFP__TERMS] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}, {0.5, 2, 3, 0.7}};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        for (int other = 0; other < 2; other++)
            for (int mixed = 0; mixed < 2; mixed++) {
                OWNED_BY(tear_down) world w = {0};
                const char *name =
                    kept_print("weights %zu, %s width, %s", i, other ? "another" : "the same", mixed ? "mixed" : "plain");
                set_up(&w, weights[i], other ? 10 : DIM, mixed ? 0.7f : 1.0f);
                (void)evaluate(&w, w.tokens, w.params, w.grad_tokens, w.grad_params);
                for (uint64_t seed = 0; seed < 4; seed++) {
                    check_along(&w, name, true, seed);
                    if (w.param_count)
                        check_along(&w, name, false, seed);
                }
            }
}

TEST(a_student_equal_to_the_teacher_has_loss_0)
{
    OWNED_BY(tear_down) world w = {0};
    set_up(&w, (const double[SFP__TERMS]){0, 1, 0, 0}, DIM, 1);
    for (int i = 0; i < BATCH; i++) {
        float target[TOKENS * DIM] = {0};
        sfp__teacher_add(&w.teacher, w.batch.entries + (size_t)(i * TOKENS * DIM), w.batch.mirrored[i], 1, target);
        memcpy(w.tokens + (size_t)(i * DIM), target, DIM * sizeof *target);
    }
    assert_true(fabs(evaluate(&w, w.tokens, w.params, w.grad_tokens, w.grad_params)) < 1e-6);
    for (size_t i = 0; i < w.token_count; i++)
        assert_true(fabsf(w.grad_tokens[i]) < 1e-6f);
}

TEST(mirrored_targets_reverse_each_row)
{
    OWNED_BY(tear_down) world w = {0};
    set_up(&w, (const double[SFP__TERMS]){0, 1, 0, 0}, DIM, 1);
    float plain[TOKENS][DIM] = {0}, mirrored[TOKENS][DIM] = {0};
    sfp__teacher_add(&w.teacher, w.batch.entries, false, 1, plain[0]);
    sfp__teacher_add(&w.teacher, w.batch.entries, true, 1, mirrored[0]);
    assert_memory_equal(plain[0], mirrored[0], sizeof plain[0]);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            assert_memory_equal(plain[1 + y * SIDE + x], mirrored[1 + y * SIDE + SIDE - 1 - x], sizeof plain[0]);
}

TEST(a_loss_without_terms_is_refused)
{
    sfp__loss *l = NULL;
    const sfp__vit_config c = {.img_size = 8, .patch_size = 4, .dim = DIM};
    const sfp__image_set p = {.classes = 1};
    const sfp__loss_options o = {.weight = {1, 1, 1, 1}};
    REFUSED(sfp__loss_create(&o, &c, &p, NULL, 1, 1, &l, &err), SFP_EINVAL, "the loss has no term");
    assert_null(l);
}
