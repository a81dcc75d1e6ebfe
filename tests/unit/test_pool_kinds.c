/* Pools from which a sample chooses components (docs/method.md, section 13: l2p, dualprompt): their tensors, the chosen
 * components, and which components are trained. Their gradients are in test_trainer_gradient.c, checkpoints and states in
 * test_checkpoint.c and test_inference_state.c. */
#include "compute/pixels.h"
#include "compute/vec.h"
#include "test.h"
#include "test_learner_fixture.h"

enum { D = 16, LP = 4, COMP = LP * D, PARTS = 5 }; /* sizes of tiny_model and small_options */

static sfp__learner_options options(const world *m, sfp__fp_kind kind, int tasks)
{
    sfp__learner_options o = small_options(m, tasks, tasks ? 6 : 0);
    o.fp.kind = kind;
    o.adam.lr = 0.02f;
    return o;
}

static sfp__param *param(sfp__learner *l, const char *name)
{
    int count;
    sfp__param **p = sfp__fp_params(l->fp, &count);
    for (int i = 0; i < count; i++)
        if (strcmp(p[i]->name, name) == 0)
            return p[i];
    fail_msg("parameter %s is missing", name);
    return NULL;
}

static void next_task(sfp__learner *l)
{
    MUST(sfp__learner_next_task(l, &err));
}

/* ------------------------------------------------------------------ tensors */

TEST(tensors_have_names_and_shapes_of_their_kind)
{
    static const char *const l2p[] = {"prompt.e_p_0", "prompt.e_k_0", "last.weight", "last.bias"},
                             *const dual[] = {"prompt.g_p_0", "prompt.g_p_1", "prompt.e_p_2",
                                              "prompt.e_k_2", "last.weight",  "last.bias"};
    static const struct {
        sfp__fp_kind kind;
        int tasks, count;
        const char *const *name;
        int rows[6];
    } list[] = {{SFP__FP_L2P, 3, 4, l2p, {12, 12, 6, 6}},
                {SFP__FP_L2P, 20, 4, l2p, {12, 12, 6, 6}}, /* the number of tasks has no effect */
                {SFP__FP_DUALPROMPT, 3, 6, dual, {1, 1, 3, 3, 6, 6}},
                {SFP__FP_DUALPROMPT, 0, 6, dual, {1, 1, 12, 12, 0, 0}}};
    OWNED_BY(free_world) world m = tiny_model(1);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        sfp__learner_options o = options(&m, list[i].kind, list[i].tasks);
        o.fp.attune = false;
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
        int count;
        sfp__param **p = sfp__fp_params(l->fp, &count);
        assert_int_equal(count, list[i].count);
        for (int k = 0; k < count; k++) {
            assert_string_equal(p[k]->name, list[i].name[k]);
            assert_int_equal(p[k]->rows, list[i].rows[k]);
        }
    }
}

TEST(unsupported_options_of_a_kind_are_refused)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner *l = NULL;
    sfp__learner_options o = options(&m, SFP__FP_DUALPROMPT, 3);
    o.fp.first_layer = 1;
    REFUSED(sfp__learner_create(m.vit, m.pool, &o, &l, &err), SFP_EINVAL,
            "prompt-layers is 1-2, expected at least 3 layers with pool-kind dualprompt");
    o = options(&m, (sfp__fp_kind)3, 3);
    assert_int_equal(sfp__learner_create(m.vit, m.pool, &o, &l, &err), SFP_EINVAL);
}

/* -------------------------------------------------------------- chosen components */

/* Returns the first `n` components of [0, open) by descending cosine with q; the lower index precedes on ties. */
static void nearest(const float *keys, int open, const float *q, int n, int *out)
{
    bool taken[64] = {false};
    for (int j = 0; j < n; j++) {
        double best = -2;
        for (int k = 0; k < open; k++) {
            const float *K = keys + k * D;
            double cosine = dot(q, K, D) / sqrt(dot(q, q, D) * dot(K, K, D));
            if (!taken[k] && cosine > best + 1e-6) {
                best = cosine;
                out[j] = k;
            }
        }
        taken[out[j]] = true;
    }
}

/* Compares the prefixes of a prediction in one layer with the definition. */
static void check_answer(sfp__learner *l, int layer, const char *p_name, const char *k_name, int parts, sfp__rng *rng)
{
    enum { N = 7 };
    MUST(sfp__fp_prepare(l->fp, &err));
    int ld = l->fp->opt.pool, open = l->fp->active_end, pick[PARTS] = {0};
    const sfp__param *p = param(l, p_name), *k = k_name ? param(l, k_name) : NULL;
    float *q = normals(rng, N * D, 3), *alpha = floats((size_t)(N * ld)), *norm = floats((size_t)(N * ld)), *work = floats(N * D);
    float *e = filled((size_t)(N * PARTS * COMP), NAN);
    for (int c = 0; k && c < D; c++) /* one query is nearest to the last key */
        q[3 * D + c] = k->data[(open - 1) * D + c] + 0.02f * q[3 * D + c];
    sfp__fp_compose(&l->fp->view, layer, N, q, ld, alpha, norm, work, e);
    for (int i = 0; i < N; i++) {
        if (k)
            nearest(k->data, open, q + i * D, parts, pick);
        if (k && i == 3)
            assert_int_equal(pick[0], open - 1);
        for (int h = 0; h < 2; h++)
            for (int j = 0; j < parts; j++)
                check_same("a part", e + i * parts * COMP + (h * parts + j) * COMP / 2, p->data + pick[j] * COMP + h * COMP / 2,
                           COMP / 2 * sizeof *e);
    }
}

TEST(a_prediction_uses_the_nearest_keys)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__rng rng = sfp__rng_init(8, 8);
    for (int pool = 3; pool <= 12; pool += 3) {
        sfp__learner_options o = options(&m, SFP__FP_L2P, 3);
        o.fp.attune = false;
        o.fp.pool = pool;
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
        for (int t = 0; t < 20; t++)
            check_answer(l, 0, "prompt.e_p_0", "prompt.e_k_0", pool < PARTS ? pool : PARTS, &rng);
        sfp__param *k = param(l, "prompt.e_k_0");
        memcpy(k->data + D, k->data, D * sizeof(float)); /* a tie */
        sfp__fp_changed(l->fp);
        check_answer(l, 0, "prompt.e_p_0", "prompt.e_k_0", pool < PARTS ? pool : PARTS, &rng);
    }
    sfp__learner_options o = options(&m, SFP__FP_DUALPROMPT, 3);
    o.fp.attune = false;
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    for (int task = 0; task < 3; task++) {
        for (int t = 0; t < 20; t++)
            check_answer(l, 2, "prompt.e_p_2", "prompt.e_k_2", 1, &rng);
        check_answer(l, 0, "prompt.g_p_0", NULL, 1, &rng);
        check_answer(l, 1, "prompt.g_p_1", NULL, 1, &rng);
        if (task < 2)
            next_task(l);
    }
}

/* A query of NaN still chooses existing components. */
TEST(a_query_of_nan_chooses_existing_components)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    for (int kind = SFP__FP_L2P; kind <= SFP__FP_DUALPROMPT; kind++) {
        sfp__learner_options o = options(&m, (sfp__fp_kind)kind, 3);
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
        MUST(sfp__fp_prepare(l->fp, &err));
        float *q = filled(D, NAN), alpha[12], norm[12], work[D], *e = filled(PARTS * COMP, NAN);
        sfp__fp_compose(&l->fp->view, l->fp->view.layers - 1, 1, q, 12, alpha, norm, work, e);
        for (int i = 0; i < 2 * D * sfp__fp_prefix_rows(&l->opt.fp); i++)
            assert_true(isfinite(e[i]));
    }
}

/* ----------------------------------------------------------------- similarity */

/* The score of docs/method.md, section 4 over the active components of a kind, of all layers, each counted once. */
TEST(similarity_uses_the_active_components)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    for (int kind = SFP__FP_L2P; kind <= SFP__FP_DUALPROMPT; kind++) {
        sfp__learner_options o = options(&m, (sfp__fp_kind)kind, 3);
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
        (void)offer(l, 0, 2, 0);
        next_task(l);
        (void)offer(l, 2, 4, 1);
        int count, open = l->fp->active_end, fingerprints = 0;
        sfp__param **p = sfp__fp_params(l->fp, &count);
        double want[D] = {0};
        float got[D];
        for (int i = 0; i < count; i++)
            for (int k = 0; k < (p[i]->rows < open ? p[i]->rows : open) && p[i]->ndim == 3; k++, fingerprints++) {
                double sum[D] = {0}, length = 0;
                for (int c = 0; c < COMP; c++)
                    sum[c % D] += (double)p[i]->data[k * COMP + c];
                for (int c = 0; c < D; c++)
                    length += sum[c] * sum[c];
                for (int c = 0; c < D; c++)
                    want[c] += sum[c] / sqrt(length);
            }
        assert_int_equal(fingerprints, kind == SFP__FP_L2P ? 12 : 1 + 1 + 2);
        sfp__fp_mean_unit(l->fp, got);
        for (int c = 0; c < D; c++)
            assert_true(fabs((double)got[c] - want[c] / fingerprints) < 1e-6);
    }
}

/* ------------------------------------------------------------- trained components */

static bool same_row(const sfp__param *p, const float *before, int row)
{
    return memcmp(p->data + (size_t)row * p->width, before + (size_t)row * p->width, p->width * sizeof(float)) == 0;
}

TEST(general_prompts_train_always_and_expert_prompts_in_their_task)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner_options o = options(&m, SFP__FP_DUALPROMPT, 3);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    const char *names[] = {"prompt.g_p_0", "prompt.g_p_1", "prompt.e_p_2", "prompt.e_k_2"};
    for (int task = 0; task < 3; task++) {
        float *before[4];
        for (int i = 0; i < 4; i++) {
            const sfp__param *p = param(l, names[i]);
            before[i] = copied(p->data, (size_t)p->rows * p->width);
        }
        for (int t = 0; t < 4; t++) /* with replay of earlier tasks */
            (void)offer(l, 2 * task, 2 * task + 2, (uint64_t)(10 * task + t));
        for (int i = 0; i < 4; i++) {
            const sfp__param *p = param(l, names[i]);
            for (int r = 0; r < p->rows; r++)
                if (same_row(p, before[i], r) != (i >= 2 && r != task))
                    fail_msg("task %d: row %d of %s", task, r, names[i]);
        }
        if (task < 2)
            next_task(l);
        for (int i = 0; i < 4; i++) /* Adam is reset */
            assert_int_equal(param(l, names[i])->steps[i < 2 ? 0 : task], task < 2 ? 0 : 4);
    }
}

TEST(l2p_trains_all_components)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    for (int tasks = 0; tasks <= 3; tasks += 3) {
        sfp__learner_options o = options(&m, SFP__FP_L2P, tasks);
        o.fp.pool = PARTS; /* then every component is chosen */
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
        for (int task = 0; task < 3; task++) {
            const sfp__param *p = param(l, "prompt.e_p_0"), *k = param(l, "prompt.e_k_0");
            float *p0 = copied(p->data, (size_t)p->rows * p->width), *k0 = copied(k->data, (size_t)k->rows * k->width);
            sfp__timestamp_details r = offer(l, 2 * task, 2 * task + 2, (uint64_t)task); /* task-free: with new classes */
            assert_false(r.grew);
            for (int i = 0; i < PARTS; i++)
                assert_false(same_row(p, p0, i) || same_row(k, k0, i));
            assert_int_equal(l->fp->frozen_end, 0);
            assert_int_equal(l->fp->active_end, PARTS);
            if (tasks && task < 2)
                next_task(l);
        }
    }
}

/* docs/method.md, section 9: one expert prompt is activated where coda activates a range of components. If all are active, a
 * further request trains all. */
TEST(a_task_free_stream_activates_one_expert_prompt_at_a_time)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner_options o = options(&m, SFP__FP_DUALPROMPT, 0);
    o.fp.pool = 3;
    o.fp.span = 2; /* has no effect */
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    static const struct {
        int lo, hi, start, open;
        bool grew;
    } steps[] = {{0, 1, 0, 1, false}, {0, 1, 0, 1, false}, {1, 2, 1, 2, true}, {2, 3, 2, 3, true},
                 {0, 3, 2, 3, false}, {3, 4, 0, 3, false}, {0, 4, 0, 3, false}};
    for (int i = 0; i < 7; i++) {
        sfp__timestamp_details r = offer(l, steps[i].lo, steps[i].hi, (uint64_t)i);
        assert_int_equal(r.grew, steps[i].grew);
        assert_int_equal(l->fp->frozen_end, steps[i].start);
        assert_int_equal(l->fp->active_end, steps[i].open);
    }
}

/* The key term of the loss works: the key of a task has the mean direction of its queries, which is optimal. */
TEST(keys_approach_the_queries_of_their_task)
{
    enum { N = 24 };
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner_options o = options(&m, SFP__FP_DUALPROMPT, 3);
    o.buffer.method = "none";
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    float *x = floats(N * l->pixels), query[N * D];
    const float *xs[N];
    for (int task = 0; task < 3; task++) {
        const int32_t classes[] = {2 * task, 2 * task + 1};
        MUST(sfp__learner_set_classes(l, 2, classes, &err));
        for (int t = 0; t < 60; t++)
            (void)offer(l, 2 * task, 2 * task + 2, (uint64_t)(100 * task + t));
        batch b = make_batch(l->S, N, 2 * task, 2 * task + 2, (uint64_t)(900 + task)); /* new images */
        for (int i = 0; i < N; i++) {
            sfp__pixels_normalise(b.sample[i].rgb, l->S, l->opt.mean, l->opt.std, x + (size_t)i * l->pixels);
            xs[i] = x + (size_t)i * l->pixels;
        }
        for (int i = 0; i < N; i += l->opt.batch)
            MUST(sfp__trainer_queries(l->trainer, l->opt.batch, xs + i, query + i * D, &err));
        const float *k = param(l, "prompt.e_k_2")->data + task * D;
        double cosine = 0, mean[D] = {0}, best = 0;
        for (int i = 0; i < N; i++) {
            const float *q = query + i * D;
            cosine += dot(q, k, D) / sqrt(dot(q, q, D) * dot(k, k, D)) / N;
            for (int c = 0; c < D; c++)
                mean[c] += (double)q[c] / sqrt(dot(q, q, D)) / N;
        }
        for (int c = 0; c < D; c++)
            best += mean[c] * mean[c];
        if (cosine < 0.98 * sqrt(best))
            fail_msg("task %d: the mean cosine is %.3f of at most %.3f", task, cosine, sqrt(best));
        if (task < 2)
            next_task(l);
    }
}
