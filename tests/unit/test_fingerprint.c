/* The fingerprint pool (docs/method.md, sections 2-4) against simple loops in double: initial values, ranges of components,
 * prefixes, attunement, similarity. test_trainer_gradient.c tests gradients. */
#include "fingerprint/fingerprint.h"

#include "learner/trainer.h"

#include "test.h"
#include "test_trainer_oracle.h"
#include "vit_make.h"

enum { B = 7 };

typedef struct fixture {
    sfp__vit *vit;
    sfp__thread_pool *pool;
    sfp__fp *fp;
    sfp__rng rng;
} fixture;

static sfp__vit *small_vit(int S, int D, int depth)
{
    const sfp__vit_config c = VIT(S, 8, D, depth, 2, D, 0, 1);
    sfp__vit *vit = NULL;
    MUST(sfp__vit_random(&c, 5, 0.2f, &vit, &err));
    return vit;
}

static sfp__fp_options options(int pool, int tasks, int length)
{
    sfp__fp_options o = sfp__fp_options_defaults();
    o.pool = pool;
    o.tasks = tasks;
    o.length = length;
    o.last_layer = 2;
    o.classes = 5;
    o.seed = 77;
    return o;
}

static fixture set_up(int D, const sfp__fp_options *o)
{
    fixture f = {.vit = small_vit(16, D, 4), .rng = sfp__rng_init(9, 9)};
    MUST(sfp__thread_pool_create(2, &f.pool, &err));
    MUST(sfp__fp_create(f.vit, f.pool, o, B, &f.fp, &err));
    return f;
}

static void tear_down(fixture *f)
{
    sfp__fp_free(f->fp);
    sfp__vit_free(f->vit);
    sfp__thread_pool_free(f->pool);
}

static sfp__param *param(const fixture *f, const char *name)
{
    int count;
    sfp__param **all = sfp__fp_params(f->fp, &count);
    for (int i = 0; i < count; i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    fail_msg("parameter %s is missing", name);
    return NULL;
}

/* Training can move rows anywhere; here by about their length. */
static void shake_learning_rows(fixture *f)
{
    int count;
    sfp__param **all = sfp__fp_params(f->fp, &count);
    for (int i = 0; i < count; i++)
        for (size_t k = (size_t)all[i]->lo * all[i]->width; k < (size_t)all[i]->hi * all[i]->width; k++)
            all[i]->data[k] += (float)(sfp__rng_normal(&f->rng) / sqrt((double)all[i]->width));
    sfp__fp_changed(f->fp);
}

static void next_task(fixture *f)
{
    MUST(sfp__fp_next_task(f->fp, &err));
}

static bool is_pool(const sfp__param *p)
{
    return strncmp(p->name, "prompt.e_", 9) == 0;
}

static double row_dot(const sfp__param *p, int i, int j)
{
    return dot(p->data + (size_t)i * p->width, p->data + (size_t)j * p->width, p->width);
}

/* ---------------------------------------------------------- initial values */

TEST(new_components_are_orthogonal_to_all_trained_ones)
{
    sfp__fp_options o = options(30, 3, 4); /* 30 < 32: all components can be orthogonal */
    OWNED_BY(tear_down) fixture f = set_up(32, &o);
    double worst = 0, not_orthogonal = 0;
    for (int task = 0; task < 3; task++) {
        int count, s = f.fp->frozen_end, open = f.fp->active_end;
        sfp__param **all = sfp__fp_params(f.fp, &count);
        for (int i = 0; i < count; i++)
            for (int k = 0; is_pool(all[i]) && k < open; k++)
                for (int j = 0; j < k; j++) {
                    double cos = row_dot(all[i], k, j) / sqrt(row_dot(all[i], k, k) * row_dot(all[i], j, j));
                    if (k >= s)
                        worst = fmax(worst, fabs(cos));
                    else
                        not_orthogonal = fmax(not_orthogonal, fabs(cos));
                    if (k >= s && !(fabs(cos) < 1e-5))
                        fail_msg("task %d, %s: rows %d and %d: cos %.3g", task, all[i]->name, k, j, cos);
                }
        for (int i = 0; i < count; i++)
            for (int k = s; is_pool(all[i]) && k < open; k++)
                assert_true(fabs(sqrt(row_dot(all[i], k, k)) - 1) < 1e-6);
        shake_learning_rows(&f);
        if (task < 2)
            next_task(&f);
    }
    assert_true(not_orthogonal > 0.05); /* the trained components are no longer orthogonal, so the projection has an effect */
    assert_true(worst > 0);
}

/* The simple way: the draw of each row from the generator, minus its part in the span of the rows before it (an orthonormal basis
 * of the stored values), scaled to unit length. If the span is the whole space, the draw itself, scaled to unit length. */
static void check_start(const fixture *f, int start, int open, sfp__rng *rng)
{
    int count;
    sfp__param **all = sfp__fp_params(f->fp, &count);
    for (int i = 0; i < count; i++) {
        if (!is_pool(all[i]))
            continue;
        size_t n = all[i]->width;
        double *basis = doubles((size_t)open * n), *y = doubles(n), *draw = doubles(n);
        int have = 0;
        for (int k = 0; k < open; k++) {
            const float *row = all[i]->data + (size_t)k * n;
            for (size_t j = 0; j < n; j++)
                y[j] = draw[j] = k < start ? (double)row[j] : sfp__rng_normal(rng);
            bool full = (size_t)have >= n;
            for (int twice = 0; twice < 2 && !full; twice++)
                for (int e = 0; e < have; e++) {
                    double s = 0;
                    for (size_t j = 0; j < n; j++)
                        s += basis[(size_t)e * n + j] * y[j];
                    for (size_t j = 0; j < n; j++)
                        y[j] -= s * basis[(size_t)e * n + j];
                }
            double length = 0;
            for (size_t j = 0; j < n; j++)
                length += full ? draw[j] * draw[j] : y[j] * y[j];
            length = sqrt(length);
            for (size_t j = 0; j < n; j++)
                y[j] = (full ? draw[j] : y[j]) / length;
            for (size_t j = 0; k >= start && j < n; j++)
                if (!(fabs(y[j] - (double)row[j]) < 2e-6))
                    fail_msg("%s: row %d, column %zu is %.9g, expected %.9g", all[i]->name, k, j, (double)row[j], y[j]);
            if (!full)
                memcpy(basis + (size_t)have++ * n, y, n * sizeof *y);
        }
    }
}

TEST(initial_values_are_draws_orthogonal_to_earlier_components)
{
    const struct {
        int D, pool, tasks, length;
    } cases[] = {{32, 12, 3, 4}, {32, 11, 3, 2}, {16, 40, 2, 2}, {16, 50, 5, 4}}; /* the last two have more components than D */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sfp__fp_options o = options(cases[i].pool, cases[i].tasks, cases[i].length);
        OWNED_BY(tear_down) fixture f = set_up(cases[i].D, &o);
        sfp__rng rng = sfp__rng_init(o.seed, 1);
        int each = o.pool / o.tasks;
        for (int task = 0; task < o.tasks; task++) {
            check_start(&f, task * each, (task + 1) * each, &rng);
            /* gate and linear head are drawn after the components of the first task */
            for (int k = 0; task == 0 && k < (3 + o.classes) * (cases[i].D + 1); k++)
                (void)sfp__rng_double(&rng);
            shake_learning_rows(&f);
            if (task + 1 < o.tasks)
                next_task(&f);
        }
    }
}

TEST(gate_and_linear_head_are_initialised_uniformly)
{
    sfp__fp_options o = options(6, 1, 2);
    o.classes = 200;
    OWNED_BY(tear_down) fixture f = set_up(64, &o);
    const char *const names[] = {"prompt.attune.gate.weight", "prompt.attune.gate.bias", "last.weight", "last.bias"};
    for (int i = 0; i < 4; i++) {
        const sfp__param *p = param(&f, names[i]);
        size_t n = (size_t)p->rows * p->width;
        double bound = 1.0 / 8, mean = 0, square = 0;
        for (size_t k = 0; k < n; k++) {
            assert_true(fabs((double)p->data[k]) <= bound);
            mean += (double)p->data[k] / (double)n;
            square += (double)p->data[k] * (double)p->data[k] / (double)n;
        }
        if (n >= 192) { /* six standard errors */
            assert_true(fabs(mean) < 6 * bound / sqrt(3.0 * (double)n));
            assert_true(fabs(square - bound * bound / 3) < 6 * bound * bound * sqrt(4 / 45.0 / (double)n));
        }
    }
}

/* -------------------------------------------------------------------- ranges of components */

TEST(a_remainder_stays_unused_and_zero)
{
    sfp__fp_options o = options(11, 3, 2);
    OWNED_BY(tear_down) fixture f = set_up(32, &o);
    for (int task = 0; task < 3; task++) {
        int count;
        sfp__param **all = sfp__fp_params(f.fp, &count);
        assert_int_equal(f.fp->task, task);
        assert_int_equal(f.fp->frozen_end, 3 * task);
        assert_int_equal(f.fp->active_end, 3 * task + 3);
        for (int i = 0; i < count; i++)
            for (size_t k = (size_t)(3 * task + 3) * all[i]->width; is_pool(all[i]) && k < (size_t)all[i]->rows * all[i]->width;
                 k++)
                assert_true(all[i]->data[k] == 0);
        shake_learning_rows(&f);
        if (task < 2)
            next_task(&f);
    }
    REFUSED_EXACTLY(sfp__fp_next_task(f.fp, &err), SFP_EINVAL, "task is 4, expected at most 3");
    assert_int_equal(f.fp->active_end, 9);
}

TEST(a_boundary_freezes_and_resets_adam)
{
    sfp__fp_options o = options(6, 2, 2);
    sfp__adam adam = sfp__adam_defaults();
    OWNED_BY(tear_down) fixture f = set_up(32, &o);
    int count;
    sfp__param **all = sfp__fp_params(f.fp, &count);
    for (int i = 0; i < count; i++)
        for (size_t k = 0; k < (size_t)all[i]->rows * all[i]->width; k++)
            all[i]->grad[k] = 1;
    sfp__fp_step(f.fp, &adam);
    float *kept[32];
    for (int i = 0; i < count; i++)
        kept[i] = copied(all[i]->data, (size_t)all[i]->rows * all[i]->width);
    next_task(&f);
    for (int i = 0; i < count; i++) {
        const sfp__param *p = all[i];
        int frozen = is_pool(p) ? 3 : p->rows; /* gate and linear head continue from their values */
        check_same(p->name, p->data, kept[i], (size_t)frozen * p->width * sizeof(float));
        for (int r = 0; r < p->rows; r++)
            assert_int_equal(p->steps[r], 0);
        for (size_t k = 0; k < (size_t)p->rows * p->width; k++)
            assert_true(p->m[k] == 0 && p->v[k] == 0);
    }
    sfp__fp_step(f.fp, &adam); /* the gradients are still the previous ones; frozen rows do not use them */
    for (int i = 0; i < count; i++) {
        if (is_pool(all[i]))
            check_same(all[i]->name, all[i]->data, kept[i], 3 * all[i]->width * sizeof(float));
    }
}

TEST(invalid_sizes_are_refused)
{
    sfp__fp_options good = options(6, 2, 2), bad;
    sfp__fp *fp = NULL;
    OWNED_BY(tear_down) fixture f = set_up(32, &good);
#define BAD(field, value, text)                                                   \
    bad = good;                                                                   \
    bad.field = value;                                                            \
    REFUSED(sfp__fp_create(f.vit, f.pool, &bad, B, &fp, &err), SFP_EINVAL, text); \
    assert_null(fp);
    BAD(tasks, 7, "pool is 6, expected at least 7: one component for each of the 7 tasks")
    BAD(tasks, -1, "tasks")
    BAD(length, 3, "prompt-length is 3")
    BAD(length, 0, "prompt-length is 0")
    BAD(pool, 0, "pool is 0")
    BAD(last_layer, 4, "prompt-layers is 0-4")
    BAD(first_layer, -1, "prompt-layers")
    BAD(attune_topk, 0, "attune-topk is 0")
    BAD(attune_topk, 4, "attune-topk is 4")
    BAD(ortho_mu, NAN, "ortho-mu")
    BAD(span, 9, "grow-by is 9")
#undef BAD
}

TEST(task_free_streams_activate_ranges_until_full_then_train_all)
{
    sfp__fp_options o = options(10, 0, 2);
    o.span = 4;
    sfp__adam adam = sfp__adam_defaults();
    OWNED_BY(tear_down) fixture f = set_up(32, &o);
    const int spans[][2] = {{0, 4}, {4, 8}, {0, 10}, {0, 10}, {0, 10}};
    const sfp__param *p = param(&f, "prompt.e_p_1"), *gate = param(&f, "prompt.attune.gate.weight");
    for (int i = 0; i < 5; i++) {
        assert_int_equal(f.fp->frozen_end, spans[i][0]);
        assert_int_equal(f.fp->active_end, spans[i][1]);
        int count;
        sfp__param **all = sfp__fp_params(f.fp, &count);
        for (int k = 0; k < count; k++)
            for (size_t j = 0; j < (size_t)all[k]->rows * all[k]->width; j++)
                all[k]->grad[j] = 1;
        sfp__fp_step(f.fp, &adam);
        /* Adam of the gate is never reset; components count the steps in which they were trained */
        assert_int_equal(gate->steps[0], i + 1);
        assert_int_equal(p->steps[0], i < 2 ? 1 : i);
        assert_int_equal(p->steps[9], i < 2 ? 0 : i - 1);
        float *before = copied(p->data, (size_t)spans[i][1] * p->width);
        MUST(sfp__fp_activate_components(f.fp, &err));
        check_same("active components", p->data, before, (size_t)spans[i][1] * p->width * sizeof(float));
        assert_int_equal(sfp__fp_next_task(f.fp, &err), SFP_EINVAL); /* there are no known tasks */
    }
}

TEST(new_classes_do_not_change_the_others)
{
    sfp__fp_options o = options(6, 0, 2);
    o.classes = 0;
    OWNED_BY(tear_down) fixture f = set_up(64, &o);
    for (int classes = 1; classes < 60; classes += 7) {
        int before = f.fp->linear_w.rows;
        float *w = copied(f.fp->linear_w.data, (size_t)before * 64);
        MUST(sfp__fp_add_classes(f.fp, classes, &err));
        assert_int_equal(f.fp->linear_w.rows, classes);
        assert_int_equal(f.fp->linear_b.rows, classes);
        check_same("last.weight", f.fp->linear_w.data, w, (size_t)before * 64 * sizeof *w);
        for (int c = before; c < classes; c++) {
            double largest = 0;
            for (int k = 0; k < 64; k++)
                largest = fmax(largest, fabs((double)f.fp->linear_w.data[c * 64 + k]));
            assert_true(largest > 0.8 / 8 && largest <= 1.0 / 8);
        }
    }
}

TEST(invalid_component_ranges_are_not_restored)
{
    sfp__fp_options o = options(6, 2, 2);
    OWNED_BY(tear_down) fixture f = set_up(32, &o);
    const int bad[][3] = {{-1, 0, 3}, {2, 0, 3}, {0, -1, 3}, {0, 4, 3}, {1, 3, 7}, {0, 0, 6}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sfp__fp_restore(f.fp, bad[i][0], bad[i][1], bad[i][2], &err), SFP_EFORMAT);
    assert_int_equal(f.fp->active_end, 3);
    MUST(sfp__fp_restore(f.fp, 1, 3, 6, &err));
    assert_int_equal(f.fp->frozen_end, 3);
}

/* -------------------------------------------------- attunement and prefixes */

static void check_pool(const fixture *f, oracle *o, const char *what)
{
    MUST(sfp__fp_prepare(f->fp, &err));
    const sfp__fp_view *v = &f->fp->view;
    int comp = o->fp.length * o->vit.c.dim;
    oracle_take(o, f->fp);
    oracle_attune(o);
    assert_int_equal(v->active_end[0], o->open);
    assert_int_equal(v->layers, o->layers);
    for (int l = 0; l < o->layers; l++)
        for (int i = 0; i < o->open * comp; i++)
            if (!(fabs((double)v->prefix[l][i] - o->attuned[l][i]) < 1e-5))
                fail_msg("%s: layer %d, component %d, element %d: %.9g, expected %.9g", what, l, i / comp, i % comp,
                         (double)v->prefix[l][i], o->attuned[l][i]);
}

static void random_step(fixture *f, const sfp__adam *adam)
{
    int count;
    sfp__param **all = sfp__fp_params(f->fp, &count);
    for (int i = 0; i < count; i++)
        for (size_t j = 0; j < (size_t)all[i]->rows * all[i]->width; j++)
            all[i]->grad[j] = (float)sfp__rng_normal(&f->rng);
    sfp__fp_step(f->fp, adam);
}

TEST(attunement_equals_the_formula)
{
    for (int attune = 0; attune < 2; attune++)
        for (int residual = 0; residual < 2; residual++)
            for (int topk = 1; topk <= 3; topk++) {
                oracle o;
                sfp__fp_options opt = options(57, 3, 2); /* 19 per task: chunks of 16 and 3, frozen and trained */
                opt.attune = attune;
                opt.attune_residual = residual;
                opt.attune_topk = topk;
                opt.last_layer = 1;
                OWNED_BY(tear_down) fixture f = set_up(32, &opt);
                oracle_init(&o, f.vit, f.fp);
                check_pool(&f, &o, "task 0");
                shake_learning_rows(&f);
                check_pool(&f, &o, "values set from outside");
                sfp__adam adam = {.lr = 0.3f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
                for (int task = 1; task < 3; task++) {
                    random_step(&f, &adam); /* just before the boundary and not prepared: the new values are frozen */
                    next_task(&f);
                    check_pool(&f, &o, "after a boundary");
                    for (int k = 0; k < 2; k++) { /* the gate changes: frozen components change only through it */
                        random_step(&f, &adam);
                        check_pool(&f, &o, "after a step");
                    }
                }
            }
}

/* A gate of zeros weights all maps equally: the lower indices are kept. */
TEST(ties_of_the_gate_keep_the_lower_index)
{
    for (int topk = 1; topk <= 2; topk++) {
        oracle o;
        sfp__fp_options opt = options(4, 1, 2);
        opt.attune_topk = topk;
        OWNED_BY(tear_down) fixture f = set_up(32, &opt);
        sfp__param *w = param(&f, "prompt.attune.gate.weight"), *b = param(&f, "prompt.attune.gate.bias");
        memset(w->data, 0, 3 * w->width * sizeof(float));
        memset(b->data, 0, 3 * sizeof(float));
        sfp__fp_changed(f.fp);
        oracle_init(&o, f.vit, f.fp);
        check_pool(&f, &o, "all equal");
        for (int r = 0; r < 3; r++)
            b->data[r] = r < topk ? 50 : -50; /* the expected result of a tie */
        float *tied = copied(f.fp->view.prefix[0], 4 * 2 * 32);
        sfp__fp_changed(f.fp);
        check_pool(&f, &o, "the first ones");
        check_near("kept by a tie", tied, f.fp->view.prefix[0], 4 * 2 * 32, 1e-6);
    }
}

TEST(prefixes_equal_the_formula)
{
    for (int raw = 0; raw < 2; raw++)
        for (int attune = 0; attune < 2; attune++) {
            oracle o;
            sfp__fp_options opt = options(12, 2, 4);
            opt.first_layer = 1;
            opt.attune = attune;
            opt.prefix = raw ? SFP__PREFIX_RAW : SFP__PREFIX_PROJECTED;
            OWNED_BY(tear_down) fixture f = set_up(40, &opt);
            shake_learning_rows(&f);
            next_task(&f);
            oracle_init(&o, f.vit, f.fp);
            oracle_attune(&o);
            MUST(sfp__fp_prepare(f.fp, &err));
            int D = 40, comp = 4 * D, ld = 12;
            float *q = normals(&f.rng, B * 40, 1.5), *alpha = filled((size_t)(B * ld), NAN),
                  *norm = filled((size_t)(B * ld), NAN);
            float *work = floats((size_t)(B * D)), *e = filled((size_t)(B * comp), NAN);
            double *dq = to_doubles(q, B * 40), *want = doubles((size_t)comp);
            for (int l = 0; l < o.layers; l++) {
                assert_int_equal(f.fp->view.layer[l], 1 + l);
                sfp__fp_compose(&f.fp->view, l, B, q, ld, alpha, norm, work, e);
                for (int i = 0; i < B; i++) {
                    for (int k = 0; k < o.open; k++)
                        assert_true(fabs((double)alpha[i * ld + k] - oracle_alpha(&o, l, k, dq + i * D)) < 2e-6);
                    oracle_compose(&o, l, dq + i * D, want);
                    for (int k = 0; k < comp; k++)
                        if (!(fabs((double)e[i * comp + k] - want[k]) < 1e-5))
                            fail_msg("raw %d, layer %d, sample %d, element %d: %.9g, expected %.9g", raw, l, i, k,
                                     (double)e[i * comp + k], want[k]);
                }
            }
        }
}

/* --------------------------------------------------------------- similarity */

/* The product of two means is the mean of the cosines over all tokens and fingerprints. */
TEST(similarity_is_the_mean_of_all_cosines)
{
    enum { S = 32, D = 48, L = 16 };
    OWNED_PTR(sfp__vit_free) sfp__vit *vit = small_vit(S, D, 3);
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    OWNED_PTR(sfp__trainer_free) sfp__trainer *trainer = NULL;
    sfp__trainer_options t = {.fp = options(14, 2, 4), .adam = sfp__adam_defaults(), .max_batch = B};
    MUST(sfp__thread_pool_create(2, &pool, &err));
    MUST(sfp__trainer_create(vit, pool, &t, &trainer, &err));
    fixture f = {.fp = sfp__trainer_fp(trainer), .rng = sfp__rng_init(3, 3)};
    oracle o;
    oracle_init(&o, vit, f.fp);
    float *x[B], *mean = floats((size_t)(B * D)), unit[D];
    const float *xs[B];
    for (int i = 0; i < B; i++)
        xs[i] = x[i] = normals(&f.rng, 3 * (size_t)(S * S), 1);
    MUST(sfp__trainer_embed(trainer, B, xs, mean, &err));
    for (int task = 0; task < 2; task++) {
        sfp__fp_mean_unit(f.fp, unit);
        oracle_take(&o, f.fp);
        for (int i = 0; i < B; i++) {
            double *embed = doubles((size_t)(L * D)), feature[D], want = 0;
            oracle_forward(&o, x[i], 0, false, feature, embed);
            for (int l = 0; l < o.layers; l++)
                for (int k = 0; k < o.open; k++) {
                    double p[D] = {0}, pp = 0;
                    for (int r = 0; r < 4; r++)
                        for (int c = 0; c < D; c++)
                            p[c] += o.value[3 * l][(k * 4 + r) * D + c]; /* raw, not attuned */
                    for (int c = 0; c < D; c++)
                        pp += p[c] * p[c];
                    for (int j = 0; j < L; j++) {
                        double ep = 0, ee = 0;
                        for (int c = 0; c < D; c++) {
                            ep += embed[j * D + c] * p[c];
                            ee += embed[j * D + c] * embed[j * D + c];
                        }
                        want += ep / sqrt(ee * pp) / (L * o.layers * o.open);
                    }
                }
            double got = dot(mean + i * D, unit, D);
            if (!(fabs(got - want) < 2e-7))
                fail_msg("task %d, image %d: %.9g, expected %.9g", task, i, got, want);
            assert_true(fabs(want) > 1e-5); /* the value is not trivially 0 */
        }
        shake_learning_rows(&f);
        if (task == 0)
            next_task(&f);
    }
}
