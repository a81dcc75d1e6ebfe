/* The modules of pretraining: views, batches, AdamW, flat weights, checkpoints, the log, the teacher's cache and probes. */
#include "pretrain/pretrain_internal.h"

#include "io/file.h"
#include "io/tensor/tensor.h"
#include "model/vit.h"

#include <sys/stat.h>

#include "numeric.h"
#include "temp_directory.h"
#include "test.h"
#include "vit_make.h"

enum { SIZE = 16, IMAGES = 37 };

static sfp__thread_pool *pool;

static sfp__image_set noise_images(void)
{
    sfp__image_set p = {.size = SIZE, .count = IMAGES, .classes = 3};
    size_t n = IMAGES * 3 * SIZE * SIZE;
    sfp__rng r = sfp__rng_init(5, 0);
    p.rgb = sfp__malloc(n);
    p.label = sfp__calloc(IMAGES, sizeof *p.label);
    for (size_t i = 0; i < n; i++)
        p.rgb[i] = (uint8_t)sfp__rng_u32(&r);
    for (int i = 0; i < IMAGES; i++)
        p.label[i] = i % 3;
    return p;
}

static void write_text(const char *path, const char *text)
{
    MUST(sfp__file_write(path, text, strlen(text), &err));
}

/* ------------------------------------------------------------------- views */

TEST(views_lie_inside_and_depend_only_on_seed_image_and_view)
{
    int differ = 0, flips = 0;
    for (uint64_t i = 0; i < 500; i++) {
        sfp__view a = sfp__view_draw(1, i, 2, 64, 0.3), b = sfp__view_draw(1, i, 2, 64, 0.3),
                  c = sfp__view_draw(1, i, 3, 64, 0.3);
        assert_memory_equal(&a.left, &b.left, 4 * sizeof a.left);
        assert_true(a.left >= 0 && a.top >= 0 && a.left + a.width <= 64 && a.top + a.height <= 64);
        assert_true(a.width * a.height >= 0.2 * 64 * 64);
        differ += a.left != c.left || a.width != c.width;
        flips += a.flip;
    }
    assert_true(differ > 450);
    assert_in_range(flips, 180, 320);
}

TEST(a_whole_view_is_the_image_and_its_flip_the_mirror)
{
    OWNED_BY(sfp__image_set_done) sfp__image_set p = noise_images();
    uint8_t out[3 * SIZE * SIZE];
    sfp__view v = {.width = SIZE, .height = SIZE};
    MUST(sfp__view_render(p.rgb, SIZE, &v, SIZE, out, NULL));
    assert_memory_equal(out, p.rgb, sizeof out);
    v.flip = true;
    MUST(sfp__view_render(p.rgb, SIZE, &v, SIZE, out, NULL));
    for (int y = 0; y < SIZE; y++)
        for (int x = 0; x < SIZE; x++)
            assert_memory_equal(out + 3 * (y * SIZE + x), p.rgb + 3 * (y * SIZE + SIZE - 1 - x), 3);
}

TEST(jitter_of_strength_0_keeps_the_colours)
{
    OWNED_BY(sfp__image_set_done) sfp__image_set p = noise_images();
    uint8_t out[3 * SIZE * SIZE];
    sfp__rng r = sfp__rng_init(1, 1);
    memcpy(out, p.rgb, sizeof out);
    sfp__view_colour(&r, 0, SIZE, out);
    for (size_t i = 0; i < sizeof out; i++)
        assert_in_range(out[i] + 1, p.rgb[i], p.rgb[i] + 2); /* one step of rounding */
    sfp__view_colour(&r, 0.8, SIZE, out);
    assert_memory_not_equal(out, p.rgb, sizeof out);
}

/* ----------------------------------------------------------------- batches */

static void write_teacher(const char *path, uint64_t seed)
{
    const sfp__vit_config c = VIT(24, 8, 16, 1, 2, 24, 0.5f, 0.25f, .classes = 4);
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    if (sfp__vit_random(&c, seed, 0.3f, &v, &err) || sfp__vit_save(&c, &v->weights, SFP__DTYPE_F32, NULL, 0, path, &err))
        fail_msg("%s", err.message);
}

/* Reads one entry of the cache. */
static const uint16_t *read_entry(const sfp__teacher *t, int view, int64_t image)
{
    uint16_t *entry = kept_malloc(sfp__teacher_entry_floats(t) * sizeof *entry);
    MUST(sfp__teacher_read(t, 1, &view, &image, entry, &err));
    return entry;
}

TEST(epochs_use_every_image_once_and_batches_depend_only_on_the_step)
{
    OWNED_BY(sfp__image_set_done) sfp__image_set p = noise_images();
    const sfp__pretrain_options o = {
        .teacher = {.weights = "pretrain-test-views.safetensors", .cache = "pretrain-test-views.cache", .views = 2},
        .student = {.img_size = 2, .patch_size = 1},
        .plan = {.batch = 4, .seed = 9},
        .view = {.min_crop = 0.5, .jitter = 0.3, .mixup = 0.4}};
    const sfp__vit_config c = {.img_size = SIZE, .std = {1, 1, 1}};
    OWNED_BY(sfp__teacher_done) sfp__teacher t = {.fd = -1}; /* the loaders use it and end before it */
    OWNED_PTR(sfp__view_loader_free) sfp__view_loader *a = NULL, *b = NULL;
    size_t floats_of = 4 * 3 * SIZE * SIZE;
    assert_int_equal(sfp__view_loader_epoch_steps(&p, 4), 9);
    write_teacher(o.teacher.weights, 1);
    (void)unlink(o.teacher.cache);
    MUST(sfp__teacher_open(&o, &p, pool, NULL, &t, &err));
    (void)unlink(o.teacher.weights);
    (void)unlink(o.teacher.cache);
    size_t entry = sfp__teacher_entry_floats(&t);
    MUST(sfp__view_loader_create(&p, &o, &c, &t, 0, &a, &err));
    MUST(sfp__view_loader_create(&p, &o, &c, &t, 12, &b, &err));
    int seen[IMAGES] = {0};
    for (uint64_t step = 0; step < 20; step++) {
        const sfp__view_batch *m = NULL, *n = NULL;
        MUST(sfp__view_loader_take(a, &m, &err));
        assert_int_equal(m->step, step);
        assert_true(m->share >= 0.5f && m->share <= 1);
        for (int i = 0; step < 9 && i < 4; i++)
            seen[m->image[i]]++;
        for (size_t i = 0; i < 4; i++)
            assert_memory_equal(m->entries + i * entry, read_entry(&t, m->view[i], m->image[i]), entry * sizeof *m->entries);
        if (step < 12)
            continue;
        MUST(sfp__view_loader_take(b, &n, &err));
        assert_memory_equal(m->x, n->x, floats_of * sizeof(float));
        assert_memory_equal(m->image, n->image, 4 * sizeof *m->image);
        assert_memory_equal(m->view, n->view, 4 * sizeof *m->view);
    }
    int once = 0;
    for (int i = 0; i < IMAGES; i++) {
        assert_true(seen[i] <= 1);
        once += seen[i];
    }
    assert_int_equal(once, 36);
}

/* ------------------------------------------------------------------- AdamW */

/* Compares AdamW with its formulas, evaluated in double for one number at a time. */
TEST(adamw_equals_the_formulas)
{
    enum { N = 1000 };
    sfp__rng r = sfp__rng_init(3, 0);
    float *x = normals(&r, N, 1), *g = normals(&r, N, 1), *m = filled(N, 0), *v = filled(N, 0), *ema = copied(x, N);
    double X[N], M[N] = {0}, V[N] = {0}, E[N];
    uint8_t decays[N];
    for (int i = 0; i < N; i++) {
        X[i] = E[i] = (double)x[i];
        decays[i] = (uint8_t)(i % 2);
    }
    const sfp__adamw a = {.count = N, .x = x, .g = g, .m = m, .v = v, .ema = ema, .decays = decays};
    for (uint64_t t = 1; t <= 5; t++) {
        sfp__adamw_step s = {
            .t = t, .lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.98, .eps = 1e-8, .clip = 3, .ema = 0.9};
        double norm = 0;
        for (int i = 0; i < N; i++)
            norm += (double)g[i] * (double)g[i];
        norm = sqrt(norm);
        assert_true(fabs(sfp__adamw_update(pool, &a, &s) - norm) < 1e-6 * norm);
        for (int i = 0; i < N; i++) {
            double grad = (double)g[i] * 3 / norm;
            M[i] = 0.9 * M[i] + 0.1 * grad;
            V[i] = 0.98 * V[i] + 0.02 * grad * grad;
            X[i] = X[i] * (decays[i] ? 1 - 0.01 * 0.1 : 1) -
                   0.01 * (M[i] / (1 - pow(0.9, (double)t))) / (sqrt(V[i] / (1 - pow(0.98, (double)t))) + 1e-8);
            E[i] = 0.9 * E[i] + 0.1 * X[i];
            assert_true(fabs((double)x[i] - X[i]) < 1e-5 * (1 + fabs(X[i])));
            assert_true(fabs((double)ema[i] - E[i]) < 1e-5 * (1 + fabs(E[i])));
        }
        for (int i = 0; i < N; i++)
            g[i] = (float)sfp__rng_normal(&r);
    }
    float *before = copied(x, N);
    g[17] = NAN;
    sfp__adamw_step s = {.t = 6, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.98, .eps = 1e-8};
    assert_true(!isfinite(sfp__adamw_update(pool, &a, &s)));
    check_same("weights after a gradient that is not finite", x, before, N * sizeof(float));
}

/* ------------------------------------------------------------- flat weights */

static const sfp__vit_config small = VIT(SIZE, 8, 16, 2, 2, 24, 0, 1);

static float *features_of(sfp__vit *v, const float *x)
{
    sfp__vit_plan *plan = NULL;
    float *f = floats(4 * 16);
    const sfp__vit_plan_options po = {.mode = SFP__VIT_FORWARD};
    const sfp__vit_pass pass = {.b = 4, .x = x, .feature = f};
    if (sfp__vit_plan_create(v, pool, &po, &plan, &err) || sfp__vit_run(plan, &pass, &err))
        fail_msg("%s", err.message);
    sfp__vit_plan_free(plan);
    return f;
}

/* New weights must also reach the packed copies of plans that were created before. */
TEST(new_weights_reach_every_packed_copy)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *a = NULL, *b = NULL;
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
    sfp__rng r = sfp__rng_init(4, 0);
    float *x = normals(&r, 4 * 3 * SIZE * SIZE, 1);
    const sfp__vit_plan_options po = {.mode = SFP__VIT_GRAD_WEIGHTS | SFP__VIT_GRAD_INPUT, .token_head = true};
    MUST(sfp__vit_random(&small, 1, 0.2f, &a, &err));
    MUST(sfp__vit_random(&small, 2, 0.2f, &b, &err));
    MUST(sfp__vit_plan_create(a, pool, &po, &plan, &err)); /* packs all weights */
    float *other = features_of(a, x);                      /* packs the copies for class tokens */
    MUST(sfp__vit_set_weights(a, &b->weights, &err));
    float *want = features_of(b, x), *got = features_of(a, x);
    check_same("features after the change", got, want, 4 * 16 * sizeof *got);
    assert_memory_not_equal(other, got, 4 * 16 * sizeof *got);
}

static void plain_head(void *ctx, int first, int n, const float *feature, float *grad)
{
    (void)ctx;
    for (int i = 0; i < n * 16; i++)
        grad[i] = sinf(feature[i]) * (float)(first * 16 + i + 1);
}

static void lane_head(void *ctx, int lane, int first, int n, const float *tokens, float *grad)
{
    assert_in_range(lane, 0, 1);
    plain_head(ctx, first, n, tokens, grad);
}

/* In a plan that computes only class tokens, a token head receives class tokens. */
TEST(both_kinds_of_head_compute_the_same_gradients)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    sfp__rng r = sfp__rng_init(6, 0);
    size_t n = sfp__vit_flat_count(&small);
    float *x = normals(&r, 4 * 3 * SIZE * SIZE, 1), *g[2] = {filled(n, 0), filled(n, 0)};
    MUST(sfp__vit_random(&small, 1, 0.2f, &v, &err));
    for (int k = 0; k < 2; k++) {
        OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
        OWNED_BY(sfp__vit_flat_view_done) sfp__vit_weights view = {0};
        const sfp__vit_plan_options po = {.mode = SFP__VIT_GRAD_WEIGHTS};
        MUST(sfp__vit_flat_view(&small, g[k], &view, &err));
        const sfp__vit_pass pass = {
            .b = 4, .x = x, .head = k ? NULL : plain_head, .token_head = k ? lane_head : NULL, .grad_w = &view};
        MUST(sfp__vit_plan_create(v, pool, &po, &plan, &err));
        MUST(sfp__vit_run(plan, &pass, &err));
    }
    check_same("gradients", g[1], g[0], n * sizeof(float));
    assert_true(dot(g[0], g[0], n) > 0);
}

TEST(weight_decay_excludes_norms_biases_positions_and_the_class_token)
{
    OWNED_BY(sfp__pretrain_state_done) sfp__pretrain_state s = {0};
    MUST(sfp__pretrain_state_init(&s, &small, 32, &err));
    size_t decayed = 0, matrices = 16 * 3 * 64 + 2 * (3 * 16 * 16 + 16 * 16 + 2 * 24 * 16);
    for (size_t i = 0; i < s.vit_count; i++)
        decayed += s.decays[i];
    assert_int_equal(decayed, matrices);
    assert_int_equal(s.decays[s.weights.pos - s.adam.x], 0);
    assert_int_equal(s.decays[s.weights.cls - s.adam.x], 0);
    assert_int_equal(s.decays[s.weights.blocks[1].norm2_w - s.adam.x], 0);
    assert_int_equal(s.decays[s.weights.blocks[1].fc2_w - s.adam.x], 1);
}

/* ------------------------------------------------------------- checkpoint, log */

static sfp_status load_checkpoint(sfp__pretrain_state *s, const sfp__pretrain_options *o, const char *path)
{
    sfp__backed_file last = {0};
    bool used_old = false;
    return sfp__pretrain_state_load(s, o, &last, path, &used_old, &err);
}

TEST(a_checkpoint_restores_everything_and_belongs_to_one_run)
{
    sfp__pretrain_state a, b;
    sfp__backed_file last = {0};
    const char *path = "pretrain-test.safetensors";
    sfp__pretrain_options o = {.data.train = "folder:p", .adam.lr = 0.1, .plan.batch = 8};
    MUST(sfp__pretrain_state_init(&a, &small, 32, &err));
    MUST(sfp__pretrain_state_init(&b, &small, 32, &err));
    (void)unlink(path);
    assert_int_equal(load_checkpoint(&b, &o, path), SFP_ENOTFOUND);
    for (size_t i = 0; i < a.adam.count; i++) {
        a.adam.x[i] = (float)i;
        a.adam.m[i] = -(float)i;
        a.adam.v[i] = 0.5f * (float)i;
        a.adam.ema[i] = 3;
    }
    a.step = 12345678901;
    a.seconds = 0.1;
    a.loss[1] = 0.25;
    a.interval = (sfp__log_interval){.steps = 3, .sum = {0.5, 1}};
    a.inputs = b.inputs = 77;
    MUST(sfp__pretrain_state_save(&a, &o, &last, path, &err));
    MUST(load_checkpoint(&b, &o, path));
    assert_true(b.step == a.step && b.seconds == a.seconds && isnan(b.loss[0]) && b.loss[1] == 0.25);
    check_same("interval", &b.interval, &a.interval, sizeof a.interval);
    const size_t bytes = a.adam.count * sizeof(float);
    check_same("weights", b.adam.x, a.adam.x, bytes);
    check_same("first moments", b.adam.m, a.adam.m, bytes);
    check_same("second moments", b.adam.v, a.adam.v, bytes);
    check_same("average", b.adam.ema, a.adam.ema, bytes);
    b.inputs = 79;
    REFUSED(load_checkpoint(&b, &o, path), SFP_EINVAL, "the images, labels or teacher's weights have changed");
    o.teacher.weights = "t";
    REFUSED(load_checkpoint(&b, &o, path), SFP_EINVAL, "--teacher is t, expected none as in");
    b.inputs = 77;
    MUST(load_checkpoint(&b, &o, path)); /* another name of the same teacher */
    o.adam.lr = 0.2;
    REFUSED(load_checkpoint(&b, &o, path), SFP_EINVAL, "--lr is 0.2, expected 0.1 as in");
    flip_last_byte(path);
    b.adam.x[3] = -1;
    REFUSED(load_checkpoint(&b, &o, path), SFP_EFORMAT, "checksum is ");
    assert_true(b.adam.x[3] == -1.0f);
    flip_last_byte(path);
    sfp__pretrain_state_done(&b);
    MUST(sfp__pretrain_state_init(&b, &small, 64, &err));
    b.inputs = 77;
    o.adam.lr = 0.1;
    assert_int_equal(load_checkpoint(&b, &o, path), SFP_ESHAPE);
    sfp__pretrain_state_done(&b);
    MUST(sfp__pretrain_state_init(&b, &small, 32, &err));
    b.inputs = 77;
    a.seconds = NAN; /* a run with --seconds would never end */
    MUST(sfp__pretrain_state_save(&a, &o, &last, path, &err));
    (void)unlink("pretrain-test.safetensors.old");
    REFUSED(load_checkpoint(&b, &o, path), SFP_EFORMAT, "seconds is nan");
    (void)unlink(path);
    sfp__pretrain_state_done(&a);
    sfp__pretrain_state_done(&b);
}

TEST(extreme_numbers_in_a_log_do_not_hang_the_report)
{
    static const char *const extremes[] = {"1e-320", "4.9e-324", "1e308", "-1e308", "\"x\"", "12"};
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++) {
        uint8_t *bytes = NULL;
        size_t size = 0;
        write_text("log.jsonl", kept_print("{\"step\": 1, \"epoch\": %s, \"seconds\": %s, \"lr\": %s}\n{\"step\": 2", extremes[i],
                                           extremes[i], extremes[i]));
        if (sfp__pretrain_report(".", &err) || sfp__file_read("report.html", 1 << 20, &bytes, &size, &err))
            fail_msg("%s: %s", extremes[i], err.message);
        assert_int_equal(memmem(bytes, size, "<svg", 4) != NULL, strcmp(extremes[i], "12") == 0);
        assert_non_null(memmem(bytes, size, "<p>1 steps", 10));
        sfp__free(bytes);
    }
    (void)unlink("log.jsonl");
    (void)unlink("report.html");
}

/* ----------------------------------------------------------------- images */

TEST(a_test_part_is_used_if_there_is_one)
{
    sfp__image_set p = {0};
    sfp__image_set_options o = {.size = SIZE, .test = true, .required = true, .limit = 7};
    MUST(sfp__image_set_load("synthetic:40", &o, pool, NULL, &p, &err));
    assert_int_equal(p.count, 7);
    sfp__image_set_done(&p);
    write_text("pretrain-test.csv", "nowhere.png,a\n");
    REFUSED(sfp__image_set_load("manifest:pretrain-test.csv", &o, pool, NULL, &p, &err), SFP_ENOTFOUND,
            "has no test part"); /* reported before any image is read */
    o.required = false;
    REFUSED(sfp__image_set_load("manifest:pretrain-test.csv", &o, pool, NULL, &p, &err), SFP_EFORMAT, "no image could be read");
    assert_null(p.rgb);
    (void)unlink("pretrain-test.csv");
}

/* ------------------------------------------------------------------ teacher */

static void count_message(void *ctx, sfp_log_level level, const char *message)
{
    (void)message;
    *(int *)ctx += level == SFP_LOG_WARNING;
}

/* Reads the entries of one view of all images. */
static const uint16_t *read_view(const sfp__teacher *t, int view)
{
    uint16_t *entries = kept_malloc(IMAGES * sfp__teacher_entry_floats(t) * sizeof *entries);
    int64_t image[IMAGES];
    int views[IMAGES];
    for (int i = 0; i < IMAGES; i++) {
        image[i] = i;
        views[i] = view;
    }
    MUST(sfp__teacher_read(t, IMAGES, views, image, entries, &err));
    return entries;
}

TEST(teacher_outputs_are_cached_extended_and_replaced)
{
    const char *weights = "pretrain-test-teacher.safetensors", *config = "pretrain-test-teacher.json",
               *cache = "pretrain-test.cache";
    OWNED_BY(sfp__image_set_done) sfp__image_set p = noise_images();
    sfp__teacher t;
    int warnings = 0;
    const sfp_pretrain_options calls = {.ctx = &warnings, .log = count_message};
    sfp__pretrain_options o = {.teacher = {.weights = weights, .cache = cache, .views = 1},
                               .student = {.img_size = 2, .patch_size = 1},
                               .plan.seed = 1,
                               .view.min_crop = 0.5};
    (void)unlink(cache);
    write_teacher(weights, 1);
    MUST(sfp__teacher_open(&o, &p, pool, &calls, &t, &err));
    assert_int_equal(t.dim, 16);
    assert_int_equal(t.classes, 4);
    const uint16_t *first = read_view(&t, 0);
    size_t one = IMAGES * sfp__teacher_entry_floats(&t) * sizeof *first;
    /* standardised outputs have mean 0 and deviation 1 over all entries */
    double sum = 0, squares = 0;
    for (int i = 0; i < IMAGES; i++) {
        float out[5 * 16] = {0};
        sfp__teacher_add(&t, read_entry(&t, 0, i), false, 1, out);
        for (int k = 16; k < 5 * 16; k++) {
            sum += (double)out[k];
            squares += (double)out[k] * (double)out[k];
        }
    }
    assert_true(fabs(sum / (IMAGES * 64)) < 1e-3 && fabs(squares / (IMAGES * 64) - 1) < 0.02);
    sfp__teacher_done(&t);
    o.teacher.views = 2; /* extends the cache by a second view */
    MUST(sfp__teacher_open(&o, &p, pool, &calls, &t, &err));
    assert_memory_equal(read_view(&t, 0), first, one);
    assert_memory_not_equal(read_view(&t, 1), first, one);
    assert_int_equal(warnings, 0);
    float fine[5 * 16] = {0}, coarse[2 * 16] = {0};
    sfp__teacher_add(&t, read_entry(&t, 1, 7), true, 0.5f, fine);
    sfp__teacher_done(&t);
    o.student.img_size = 1; /* a smaller student reads averages from the same file */
    o.teacher.grid = 2;
    MUST(sfp__teacher_open(&o, &p, pool, &calls, &t, &err));
    assert_int_equal(warnings, 0);
    sfp__teacher_add(&t, read_entry(&t, 1, 7), true, 0.5f, coarse);
    for (int k = 0; k < 16; k++) {
        assert_true(fabsf(coarse[k] - fine[k]) < 1e-5f);
        float mean = (fine[16 + k] + fine[32 + k] + fine[48 + k] + fine[64 + k]) / 4;
        assert_true(fabsf(coarse[16 + k] - mean) < 1e-5f);
    }
    /* while a run reads the cache, others can read it but not replace it */
    sfp__teacher other;
    MUST(sfp__teacher_open(&o, &p, pool, &calls, &other, &err));
    sfp__teacher_done(&other);
    o.plan.seed = 2;
    REFUSED(sfp__teacher_open(&o, &p, pool, &calls, &other, &err), SFP_EINVAL, "another run reads the file");
    assert_memory_equal(read_view(&t, 0), first, one);
    o.plan.seed = 1;
    assert_int_equal(warnings, 0);
    sfp__teacher_done(&t);
    o.student.img_size = 2;
    o.teacher.grid = 3;
    assert_int_equal(sfp__teacher_open(&o, &p, pool, &calls, &t, &err), SFP_EINVAL);
    o.teacher.grid = 0;
    write_teacher(weights, 2); /* another teacher */
    o.teacher.views = 1;
    MUST(sfp__teacher_open(&o, &p, pool, &calls, &t, &err));
    assert_int_equal(warnings, 1);
    assert_memory_not_equal(read_view(&t, 0), first, one);
    first = read_view(&t, 0);
    sfp__teacher_done(&t);
    write_text(config, "{\"num_heads\": 2, \"mean\": [0, 0, 0]}"); /* the same weights with other pixel means */
    MUST(sfp__teacher_open(&o, &p, pool, &calls, &t, &err));
    assert_int_equal(warnings, 2);
    assert_memory_not_equal(read_view(&t, 0), first, one);
    sfp__teacher_done(&t);
    (void)unlink(config);
    write_text(cache, "an unrelated file");
    REFUSED(sfp__teacher_open(&o, &p, pool, &calls, &t, &err), SFP_EFORMAT, "not changed");
    (void)unlink(cache);
    (void)unlink(weights);
}

/* -------------------------------------------------------------------- probe */

TEST(a_probe_of_separable_features_is_perfect)
{
    OWNED_BY(sfp__image_set_done) sfp__image_set known = noise_images(), held = noise_images();
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    sfp__probe probe;
    size_t bytes = 3 * SIZE * SIZE;
    for (int i = 0; i < IMAGES; i++) { /* one colour per class */
        memset(known.rgb + (size_t)i * bytes, 60 + 70 * (i % 3), bytes);
        memset(held.rgb + (size_t)i * bytes, 62 + 70 * (i % 3), bytes);
    }
    MUST(sfp__vit_random(&small, 1, 0.2f, &v, &err));
    MUST(sfp__probe_run(v, pool, &known, &held, 30, &probe, &err));
    assert_true(probe.ncm == 1 && probe.knn == 1 && probe.tested == 30);
    for (int i = 0; i < IMAGES; i++)
        held.label[i] = -1;
    MUST(sfp__probe_run(v, pool, &known, &held, 30, &probe, &err));
    assert_true(isnan(probe.ncm) && isnan(probe.knn));
}

TEST(holding_out_images_keeps_the_order_of_the_others)
{
    OWNED_BY(sfp__image_set_done) sfp__image_set p = noise_images(), held = {0};
    for (int i = 0; i < IMAGES; i++) {
        p.label[i] = i;
        p.rgb[(size_t)i * 3 * SIZE * SIZE] = (uint8_t)i;
    }
    MUST(sfp__image_set_hold_out(&p, 5, &held, &err));
    assert_int_equal(held.count, 7);
    assert_int_equal(p.count, 30);
    for (int i = 0; i < 30; i++)
        assert_int_equal(p.label[i], i / 4 * 5 + i % 4);
    for (int i = 0; i < 7; i++)
        assert_int_equal(*sfp__image_set_at(&held, i), 5 * i + 4);
    assert_int_equal(*sfp__image_set_at(&p, 29), 36);
}

/* ------------------------------------------------------------------ builtin */

TEST(the_builtin_backbone_loads_or_is_reported_as_missing)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    sfp_status s = sfp__vit_load(SFP__VIT_BUILTIN, NULL, &v, &err);
    assert_int_equal(s, sfp__vit_has_builtin() ? SFP_OK : SFP_ENOTFOUND);
    if (s)
        assert_non_null(strstr(err.message, "was not there when this was built"));
    else
        assert_true(v->config.heads > 0 && v->config.img_size % v->config.patch_size == 0);
}

static void make_pool(void)
{
    assert_int_equal(sfp__thread_pool_create(2, &pool, NULL), 0);
}

static void free_pool(void)
{
    sfp__thread_pool_free(pool);
}

AROUND_ALL(make_pool, free_pool)
