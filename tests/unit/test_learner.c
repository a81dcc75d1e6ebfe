/* Timestamps of the learner (docs/method.md, sections 5-7 and 9): properties that hold for all numbers, and the recomputation of
 * single timestamps. */
#include "learner/learner.h"

#include "compute/pixels.h"
#include "io/image/image.h"

#include "test.h"
#include "test_learner_fixture.h"

/* ------------------------------------------------------------------- components */

TEST(frozen_components_are_bit_identical_after_training)
{
    OWNED_BY(free_world) world m = tiny_model(2);
    sfp__learner_options o = small_options(&m, 3, 6);
    o.adam.lr = 0.05f;
    o.fp.ortho_mu = 0.1f;
    o.steps = 2;
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    int count;
    sfp__param **p = sfp__fp_params(l->fp, &count);
    float *kept[MAX_PARAMS] = {NULL};
    for (int task = 0; task < 3; task++) {
        assert_int_equal(l->fp->frozen_end, 4 * task);
        assert_int_equal(l->fp->active_end, 4 * task + 4);
        for (int i = 0; i < count; i++) {
            kept[i] = copied(p[i]->data, (size_t)p[i]->rows * p[i]->width);
        }
        for (uint64_t t = 0; t < 4; t++) {
            sfp__timestamp_details r = offer(l, 2 * task, 2 * task + 2, (uint64_t)task * 10 + t);
            assert_int_equal(r.task, task);
            assert_int_equal(r.t, task * 4 + (int)t);
        }
        for (int i = 0; i < count; i++)
            for (int row = 0; row < p[i]->rows; row++) {
                bool pooled = strncmp(p[i]->name, "prompt.e_", 9) == 0,
                     learns = !pooled || (row >= 4 * task && row < 4 * task + 4);
                size_t at = (size_t)row * p[i]->width;
                bool same = memcmp(p[i]->data + at, kept[i] + at, p[i]->width * sizeof(float)) == 0;
                if (same == learns)
                    fail_msg("task %d: row %d of %s %s", task, row, p[i]->name, same ? "did not learn" : "moved");
            }
        if (task < 2)
            MUST(sfp__learner_next_task(l, &err));
    }
    assert_int_equal(sfp__learner_next_task(l, &err), SFP_EINVAL);
    assert_int_equal(l->fp->active_end, 12);
}

/* ------------------------------------------------------------ repeatability */

static values train_six(int threads, uint64_t seed, const sfp__learner_options *like)
{
    world m = tiny_model(threads);
    sfp__learner_options o = *like;
    o.seed = seed;
    sfp__learner *l = make_learner(&m, &o);
    for (uint64_t t = 0; t < 6; t++) {
        if (t == 3 && o.fp.tasks)
            MUST(sfp__learner_next_task(l, &err));
        (void)offer(l, 0, t < 3 ? 3 : 6, t);
    }
    values v = take_values(l);
    sfp__learner_free(l);
    free_world(&m);
    return v;
}

TEST(the_same_seed_gives_the_same_bytes_at_any_thread_count)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner_options all[4];
    for (int i = 0; i < 4; i++)
        all[i] = small_options(&m, 2, 6);
    all[1].fp.tasks = 0; /* task-free */
    all[1].fp.classes = 0;
    all[1].steps = 2;
    all[1].fp.prefix = SFP__PREFIX_RAW;
    all[2].select = "random";
    all[2].buffer.method = "er";
    all[2].fp.ortho_mu = 0.1f;
    all[3].fp.attune_residual = true;
    for (int i = 0; i < 4; i++) {
        values one = train_six(1, 5, &all[i]);
        for (int threads = 1; threads <= 3; threads++) {
            values other = train_six(threads, 5, &all[i]);
            if (!same_values(&one, &other))
                fail_msg("options %d: %d threads give another state", i, threads);
        }
        values other = train_six(1, 6, &all[i]);
        assert_false(same_values(&one, &other));
    }
}

/* After warm-up: the buffer is full, and every micro-batch size has occurred once. (The backbone prepares its products for a size
 * at its first use; the sizes depend on how many replayed images have a known query.) */
TEST(a_timestamp_allocates_nothing_after_warm_up)
{
    enum { WARM = 8, COUNTED = 10 };
    for (int i = 0; i < 6; i++) {
        bool watched = i % 2; /* without and with a predictor */
        OWNED_BY(free_world) world m = tiny_model(2);
        sfp__learner_options o = sfp__learner_options_defaults(m.vit);
        o.fp.kind = (sfp__fp_kind)(i / 2);
        o.fp.last_layer = 2; /* the model has three blocks */
        o.fp.classes = 10;
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
        OWNED_PTR(sfp__predictor_free) sfp_predictor *p = NULL;
        if (watched)
            MUST(sfp__predictor_create(l, m.pool, 4, &p, &err));
        for (uint64_t t = 0; t < WARM; t++)
            (void)offer(l, 0, 10, t);
        unsigned long before = sfp__mem_count();
        for (uint64_t t = WARM; t < WARM + COUNTED; t++)
            (void)offer(l, 0, 10, t);
        assert_int_equal(sfp__mem_count() - before, 0);
        assert_int_equal(l->buffer->filled, 102);
    }
}

/* ------------------------------------------------------- a recomputed timestamp */

/* Recomputes three timestamps of two steps each on a separate trainer, from the draws in the report. */
TEST(a_timestamp_equals_its_report)
{
    OWNED_BY(free_world) world m = tiny_model(2);
    sfp__learner_options o = small_options(&m, 1, 5);
    o.steps = 2;
    o.coreset.sigma = 0.4; /* 3 of 8 */
    o.adam.lr = 0.01f;
    o.fp.ortho_mu = 0.1f; /* counted once per loss term: the first timestamp has one, the others two */
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    OWNED_PTR(sfp__trainer_free) sfp__trainer *trainer = NULL;
    sfp__trainer_options to = {.fp = sfp__learner_get_options(l)->fp, .adam = o.adam, .max_batch = 16};
    MUST(sfp__trainer_create(m.vit, m.pool, &to, &trainer, &err));
    sfp__fp *fp = sfp__trainer_fp(trainer);
    size_t pixels = 3 * 8 * 8, D = 16;
    float *x = floats(16 * pixels), *mean = floats(16 * D), *query = floats(16 * D), unit[16];
    const float *xs[16];
    uint8_t stored[20][3 * 8 * 8];
    int32_t stored_label[20];
    uint64_t stored_id[20];
    for (uint64_t t = 0; t < 5; t++) {
        batch b = make_batch(8, 8, 0, 5, t);
        for (int i = 0; i < 8; i++) {
            xs[i] = x + (size_t)i * pixels;
            sfp__pixels_normalise(b.sample[i].rgb, 8, o.mean, o.std, x + (size_t)i * pixels);
        }
        MUST(sfp__trainer_embed(trainer, 8, xs, mean, &err));
        sfp__fp_mean_unit(fp, unit);
        int before = l->buffer->filled;
        sfp__timestamp_details r = {0};
        MUST(sfp__learner_offer(l, 8, b.sample, &r, &err));
        /* the scores and the middle of their ranking */
        float want[8];
        int rank[8] = {0};
        for (int i = 0; i < 8; i++)
            want[i] = (float)dot(mean + (size_t)i * D, unit, D);
        check_near("similarity", r.similarity, want, 8, 1e-4);
        for (int i = 0; i < 8; i++)
            for (int j = 0; j < 8; j++)
                rank[i] += r.similarity[j] > r.similarity[i] || (r.similarity[j] == r.similarity[i] && j < i);
        assert_int_equal(r.coreset_count, 3);
        for (int i = 0; i < 3; i++)
            assert_int_equal(rank[r.coreset[i]], 8 / 2 - 3 / 2 + i);
        /* the steps */
        assert_int_equal(r.steps, 2);
        for (int k = 0; k < 2; k++) {
            int n = r.replay_count[k];
            const int *slots = r.replay + k * o.replay;
            assert_int_equal(n, before < 4 ? before : 4);
            int32_t label[16];
            float weight[16];
            for (int i = 0; i < 3 + n; i++) {
                const uint8_t *rgb = i < 3 ? b.sample[r.coreset[i]].rgb : stored[slots[i - 3]];
                sfp__pixels_normalise(rgb, 8, o.mean, o.std, x + (size_t)i * pixels);
                label[i] = i < 3 ? b.sample[r.coreset[i]].label : stored_label[slots[i - 3]];
                weight[i] = i < 3 ? 1 / 3.0f : 1 / (float)n;
                for (int j = 3; j < i; j++)
                    assert_true(slots[j - 3] != slots[i - 3]);
            }
            sfp__train_batch step = {
                .n = 3 + n, .x = xs, .label = label, .weight = weight, .query = query, .queries = 3 + n, .terms = n ? 2 : 1};
            for (int i = 0; i < 3 + n; i++)
                xs[i] = x + (size_t)i * pixels;
            sfp__train_result result = {0};
            MUST(sfp__trainer_step(trainer, &step, &result, &err));
            if (!(fabs(result.loss - r.loss[k]) <= 1e-4 * result.loss))
                fail_msg("timestamp %d, step %d: loss %.7g, expected %.7g", (int)t, k, r.loss[k], result.loss);
        }
        /* the buffer update uses the fingerprints after the steps */
        float after[8], moved = 0;
        sfp__fp_mean_unit(fp, unit);
        for (int i = 0; i < 8; i++) {
            after[i] = (float)dot(mean + (size_t)i * D, unit, D);
            moved = fmaxf(moved, fabsf(after[i] - want[i]));
        }
        check_near("similarity after the steps", l->batch.score_after, after, 8, 5e-3);
        assert_true(moved > 0.02f * fabsf(want[0]));
        /* in order while there are free slots, then as drawn */
        for (int i = 0; i < r.buffer.stored + r.buffer.nu; i++) {
            int to_slot = i < r.buffer.stored ? before + i : r.buffer.replaced[i - r.buffer.stored];
            int from = i < r.buffer.stored ? i : r.buffer.retained[i - r.buffer.stored];
            memcpy(stored[to_slot], b.sample[from].rgb, pixels);
            stored_label[to_slot] = b.sample[from].label;
            stored_id[to_slot] = b.sample[from].id;
        }
        for (int i = 0; i < l->buffer->filled; i++) {
            const sfp__slot *slot = &l->buffer->slot[i];
            check_same("a slot", slot->image, stored[i], pixels);
            assert_int_equal(slot->label, stored_label[i]);
            assert_int_equal(slot->id, stored_id[i]);
        }
    }
    int count;
    sfp__param **a = sfp__fp_params(l->fp, &count), **b = sfp__fp_params(fp, &count);
    for (int i = 0; i < count; i++) /* the order of sums differs, which Adam magnifies: a tenth of one of ten steps */
        check_near(a[i]->name, a[i]->data, b[i]->data, (size_t)a[i]->rows * a[i]->width, 2e-3);
    sfp__learner_counts counts = sfp__learner_get_counts(l);
    assert_int_equal(counts.timestamps, 5);
    assert_int_equal(counts.offered, 40);
    assert_int_equal(counts.trained, 30);
    assert_int_equal(counts.replayed, 4 * 2 * 4);
}

/* ------------------------------------------------------------------ queries */

/* The query of a slot is computed at its first replay (or when its sample was trained on) and never again: a query that the test
 * overwrites stays unchanged through later replays. */
TEST(the_query_of_a_replayed_image_is_computed_once)
{
    OWNED_BY(free_world) world m = tiny_model(2);
    sfp__learner_options o = small_options(&m, 1, 4);
    o.batch = 16;
    o.replay = 6;
    o.buffer.slots = 16;
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    sfp__timestamp_details r = offer(l, 0, 4, 0);
    int known = 0, late = 0, again = 0;
    for (int i = 0; i < 16; i++)
        known += l->buffer->slot[i].has_query;
    assert_int_equal(known, r.coreset_count); /* the queries of the coreset are known when its samples are stored */
    float *x = floats(3 * 8 * 8), q[16];
    const float *xs[1] = {x};
    for (uint64_t t = 1; t < 12; t++) {
        bool had[16];
        uint64_t id[16];
        float marker[16];
        for (int i = 0; i < 16; i++) {
            sfp__slot *slot = &l->buffer->slot[i];
            had[i] = slot->has_query;
            id[i] = slot->id;
            if (had[i])
                slot->query[0] += 0.25f; /* wrong on purpose */
            marker[i] = slot->query[0];
        }
        r = offer(l, 0, 4, t);
        for (int k = 0; k < r.replay_count[0]; k++) {
            int i = r.replay[k];
            const sfp__slot *slot = &l->buffer->slot[i];
            if (slot->id != id[i])
                continue; /* replaced after its replay */
            assert_true(slot->has_query);
            if (had[i]) {
                assert_true(slot->query[0] == marker[i]);
                again++;
                continue;
            }
            sfp__pixels_normalise(slot->image, 8, o.mean, o.std, x);
            MUST(sfp__trainer_queries(l->trainer, 1, xs, q, &err));
            check_near("the query of a replayed image", slot->query, q, 16, 1e-5);
            late++;
        }
        for (int i = 0; i < 16; i++) {
            sfp__slot *slot = &l->buffer->slot[i];
            if (had[i] && slot->id == id[i])
                slot->query[0] -= 0.25f;
        }
    }
    assert_true(late > 3 && again > 10); /* both occurred */
}

/* Without replay nothing may read the pixels of slots: decisions and state are the same if they are garbage. */
TEST(scoring_the_buffer_reads_no_pixels)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner_options o = small_options(&m, 1, 4);
    o.replay = 0;
    OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&m, &o), *b = make_learner(&m, &o);
    float score[2][20];
    int replaced = 0;
    for (uint64_t t = 0; t < 10; t++) {
        for (int i = 0; i < b->buffer->filled; i++)
            memset(b->buffer->slot[i].image, (int)t * 17, 3 * 8 * 8);
        sfp__timestamp_details ra = offer(a, 0, 4, t);
        sfp__timestamp_details rb = offer(b, 0, 4, t);
        assert_int_equal(ra.buffer.nu, rb.buffer.nu);
        for (int i = 0; i < ra.buffer.nu; i++) {
            assert_int_equal(ra.buffer.retained[i], rb.buffer.retained[i]);
            assert_int_equal(ra.buffer.replaced[i], rb.buffer.replaced[i]);
        }
        replaced += ra.buffer.nu;
        sfp__buffer_score(a->buffer, a->batch.fingerprint, score[0]);
        sfp__buffer_score(b->buffer, b->batch.fingerprint, score[1]);
        check_same("scores", score[1], score[0], (size_t)a->buffer->filled * sizeof(float));
    }
    assert_true(replaced > 5);
    values v = take_values(a);
    check_values(b, &v);
}

/* ----------------------------------------------------------------- failures */

static void expect_refused(sfp__learner *l, int b, const sfp__sample *samples, const char *text)
{
    values before = take_values(l);
    sfp__timestamp_details r = {.t = 99};
    int filled_slots = l->buffer ? l->buffer->filled : 0;
    sfp__learner_counts counts = sfp__learner_get_counts(l);
    assert_true(sfp__learner_offer(l, b, samples, &r, &err) != SFP_OK);
    if (!strstr(err.message, text))
        fail_msg("message '%s' does not contain '%s'", err.message, text);
    values after = take_values(l);
    assert_int_equal(before.n, after.n);
    check_same("values", after.x, before.x, before.n * sizeof(float)); /* byte by byte, also for NaN */
    assert_int_equal(r.t, 99);
    assert_int_equal(l->buffer ? l->buffer->filled : 0, filled_slots);
    assert_int_equal(sfp__learner_get_counts(l).timestamps, counts.timestamps);
}

TEST(a_loss_that_is_not_finite_changes_nothing)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner_options o = small_options(&m, 1, 4);
    const char *const names[] = {"last.weight", "last.bias", "prompt.e_p_1", "prompt.e_k_0", "prompt.attune.gate.weight"};
    for (int i = 0; i < 5; i++) {
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
        (void)offer(l, 0, 4, 0);
        int count;
        sfp__param **p = sfp__fp_params(l->fp, &count);
        for (int k = 0; k < count; k++)
            if (strcmp(p[k]->name, names[i]) == 0)
                p[k]->data[2] = NAN;
        sfp__fp_changed(l->fp);
        batch b = make_batch(8, 8, 0, 4, 1);
        expect_refused(l, 8, b.sample, "loss is");
    }
    o.adam.lr = 3e38f; /* the first step is finite, the next one is not */
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    (void)offer(l, 0, 4, 0);
    batch b = make_batch(8, 8, 0, 4, 1);
    expect_refused(l, 8, b.sample, "learning rate");
}

/* ------------------------------------------------------------- task-free streams */

TEST(task_free_streams_activate_components_for_new_classes)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner_options o = small_options(&m, 0, 0);
    o.fp.span = 5; /* of 12 */
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    assert_int_equal(sfp__learner_classes(l), 0);
    const struct {
        int lo, hi, start, open, classes;
        bool grew;
    } steps[] = {
        {0, 2, 0, 5, 2, false},                          /* the first batch uses the first components */
        {0, 2, 0, 5, 2, false},                          /* no new class */
        {2, 6, 5, 10, 6, true},                          /* several new classes activate components once */
        {0, 6, 5, 10, 6, false}, {6, 7, 0, 12, 7, true}, /* the remaining components; then the pool is full and all are trained */
        {0, 7, 0, 12, 7, false}, {7, 8, 0, 12, 8, false}, {8, 9, 0, 12, 9, false}, {1, 9, 0, 12, 9, false},
    };
    for (int i = 0; i < 9; i++) {
        int before = sfp__learner_classes(l);
        sfp__timestamp_details r = {0};
        batch b = make_batch(8, 8, steps[i].lo, steps[i].hi, (uint64_t)i);
        for (int k = 0; k < 8; k++) /* all of them are in the batch */
            b.sample[k].label = steps[i].lo + k % (steps[i].hi - steps[i].lo);
        MUST(sfp__learner_offer(l, 8, b.sample, &r, &err));
        assert_int_equal(r.grew, steps[i].grew);
        assert_int_equal(l->fp->frozen_end, steps[i].start);
        assert_int_equal(l->fp->active_end, steps[i].open);
        assert_int_equal(sfp__learner_classes(l), steps[i].classes);
        assert_true(sfp__learner_classes(l) >= before);
        assert_true(sfp__learner_seen(l, steps[i].hi - 1));
        assert_false(sfp__learner_seen(l, steps[i].classes));
    }
    /* all components moved in the last two timestamps, also the first ones, which had been frozen */
    values before = take_values(l);
    (void)offer(l, 0, 9, 50);
    values after = take_values(l);
    size_t width = 4 * 16;
    for (int k = 0; k < 12; k++) /* prompt.e_p_0 is the first tensor */
        assert_true(memcmp(before.x + (size_t)k * width, after.x + (size_t)k * width, width * sizeof(float)) != 0);
}

TEST(a_change_of_the_images_activates_nothing)
{
    for (int kind = SFP__DRIFT_OFF; kind <= SFP__DRIFT_NEW_CLASS; kind++) {
        OWNED_BY(free_world) world m = tiny_model(1);
        sfp__learner_options o = small_options(&m, 0, 4);
        o.fp.span = 2;
        o.drift = (sfp__drift)kind;
        o.adam.lr = 0; /* the fingerprints are constant: only the images can drift */
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
        int grew = 0;
        for (uint64_t t = 0; t < 90; t++) {
            batch b = make_batch(8, 8, 0, 4, t);
            sfp__timestamp_details r = {0};
            for (int k = 0; t >= 50 && k < 8 * 8 * 8 * 3; k++) /* all images become dark blue */
                b.rgb[k] = (uint8_t)(k % 3 == 2 ? 128 + b.rgb[k] / 4 : b.rgb[k] / 8);
            b.sample[0].label = t == 0 ? 0 : b.sample[0].label;
            for (int i = 0; t == 0 && i < 8; i++)
                b.sample[i].label = i % 4; /* all classes at once, so that none is new later */
            MUST(sfp__learner_offer(l, 8, b.sample, &r, &err));
            grew += r.grew;
        }
        assert_int_equal(grew, 0);
    }
}

/* ------------------------------------------------------ selectors and buffers */

TEST(without_a_buffer_only_the_tasks_classes_compete)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner_options o = small_options(&m, 2, 6);
    o.buffer.method = "none";
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    batch b = make_batch(8, 8, 1, 3, 0);
    expect_refused(l, 8, b.sample, "expected a class of the current task"); /* the classes of the task were not set */
    const int32_t classes[] = {1, 2}, wrong[] = {1, 6};
    assert_int_equal(sfp__learner_set_classes(l, 2, wrong, &err), SFP_EINVAL);
    MUST(sfp__learner_set_classes(l, 2, classes, &err));
    const sfp__param *w = &l->fp->linear_w;
    float *before = copied(w->data, 6 * 16);
    for (uint64_t t = 0; t < 4; t++) {
        sfp__timestamp_details r = offer(l, 1, 3, t);
        assert_int_equal(r.replay_count[0], 0);
        assert_int_equal(r.buffer.stored + r.buffer.nu, 0);
    }
    for (int c = 0; c < 6; c++)
        assert_int_equal(memcmp(before + c * 16, w->data + c * 16, 16 * sizeof(float)) == 0, c != 1 && c != 2);
    /* a task-free stream has no tasks: all rows */
    sfp__learner_options open = o;
    open.fp.tasks = 0;
    OWNED_PTR(sfp__learner_free) sfp__learner *f = make_learner(&m, &open);
    before = copied(f->fp->linear_w.data, 6 * 16);
    (void)offer(f, 1, 3, 0);
    for (int c = 0; c < 6; c++)
        assert_true(memcmp(before + c * 16, f->fp->linear_w.data + c * 16, 16 * sizeof(float)) != 0);
}

/* The weights of this selector are equal: using them in the loss changes nothing. */
TEST(equal_weights_change_nothing)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner_options o = small_options(&m, 2, 6);
    values plain = train_six(1, 5, &o);
    o.weighted = true;
    values weighted = train_six(1, 5, &o);
    assert_true(same_values(&plain, &weighted));
}

/* ------------------------------------------------------------- prequential accuracy */

TEST(the_linear_head_cannot_predict_a_class_before_it_arrives)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner_options o = small_options(&m, 1, 2);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    assert_int_equal(offer(l, 0, 2, 0).prequential_correct, 0);
    int right = 0;
    for (uint64_t t = 1; t < 20; t++)
        right += offer(l, 0, 2, t).prequential_correct;
    assert_true(right > 0);
}

/* A slot with an unknown query is first in a step; this does not change which samples are counted. */
TEST(replayed_samples_are_not_counted_in_prequential_accuracy)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner_options o = small_options(&m, 1, 4);
    o.select = "kcenter"; /* computes the queries of the whole batch */
    sfp__learner *l[2];
    sfp__timestamp_details t[2];
    for (int i = 0; i < 2; i++) {
        l[i] = make_learner(&m, &o);
        for (uint64_t k = 0; k < 6; k++)
            (void)offer(l[i], 0, 4, k);
        for (int k = 0; i && k < l[i]->buffer->filled; k++)
            l[i]->buffer->slot[k].has_query = false;
        t[i] = offer(l[i], 0, 4, 6);
    }
    assert_true(t[0].replay_count[0] > 0);
    assert_int_equal(t[1].prequential_total, t[0].coreset_count);
    assert_int_equal(t[1].prequential_correct, t[0].prequential_correct);
    sfp__learner_free(l[0]);
    sfp__learner_free(l[1]);
}
