/* Diagnostics: small cases whose results are known, what is learned does not depend on them, and a checkpoint contains them. */
#include "learner/diagnostics.h"

#include "base/monotonic.h"
#include "compute/pixels.h"
#include "failing_alloc.h"
#include "learner_world.h"
#include "test.h"

AROUND_ALL(make_small_world, free_small_world)
AROUND_EACH(make_directory, remove_directory)

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fmax(1e-3, fabs(b));
}

static sfp__learner *make_diagnosed(const sfp__learner_options *o)
{
    sfp__learner *l = make_learner(&small, o);
    MUST(sfp__learner_start_diagnostics(l, &err));
    return l;
}

/* The results, and the cosines between gradients. */
typedef struct diagnosis {
    sfp__diagnosis d;
    double fingerprints[9], head[9];
} diagnosis;

static diagnosis diagnose(sfp__learner *l)
{
    diagnosis x = {0};
    assert_true(sfp__learner_diagnosed_tasks(l) <= 3);
    MUST(sfp__learner_diagnose(l, &x.d, x.fingerprints, x.head, &err));
    return x;
}

/* ------------------------------------------------------- cost of the coreset */

TEST(a_ratio_is_that_of_two_means)
{
    const double value[] = {1, 2, 3, 6};
    sfp__ratio_moments m = {0};
    sfp__ratio_add(&m, 4, value, 2, (const int[]){1, 2}); /* 2.5 / 3 */
    assert_true(near(m.mean, 2.5 / 3) && m.count == 1 && m.within == 1 && m.m2 == 0);
    sfp__ratio_add(&m, 4, value, 2, (const int[]){0, 0});       /* 1 / 3: its distance from 1 is less than 1 / sqrt(2) */
    sfp__ratio_add(&m, 4, value, 4, (const int[]){3, 3, 3, 3}); /* 2: its distance from 1 exceeds 1 / 2 */
    double mean = (2.5 / 3 + 1.0 / 3 + 2) / 3;
    assert_true(near(m.mean, mean) && m.count == 3 && m.within == 2);
    assert_true(near(m.m2, pow(2.5 / 3 - mean, 2) + pow(1.0 / 3 - mean, 2) + pow(2 - mean, 2)));
    sfp__ratio_add(&m, 2, (const double[]){0, 0}, 1, (const int[]){0});
    sfp__ratio_add(&m, 2, (const double[]){NAN, 1}, 1, (const int[]){0});
    assert_true(m.count == 3);
}

TEST(the_whole_batch_has_ratio_1)
{
    const sfp__learner_options list[] = {SMALL(x.coreset.sigma = 1), SMALL(x.select = "none"), SMALL(x.coreset.sigma = 3)};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_diagnosed(&list[i]);
        feed(l, 0, 5, 2);
        diagnosis x = diagnose(l);
        const sfp__coreset_diagnosis *both[] = {&x.d.cost, &x.d.angle};
        for (int k = 0; k < 2; k++) {
            assert_true(both[k]->ratio == 1 && both[k]->deviation == 0 && both[k]->within == 1);
            assert_true(both[k]->random_deviation < 1e-12 && both[k]->random_within == 1); /* another order of the sum */
        }
    }
}

TEST(a_coreset_has_another_cost_than_its_batch)
{
    const sfp__learner_options o = SMALL(x.coreset.sigma = 0.34);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_diagnosed(&o);
    feed(l, 0, 12, 4);
    diagnosis x = diagnose(l);
    assert_true(x.d.cost.ratio != 1 && x.d.cost.deviation > 0 && x.d.cost.random_deviation > 0);
    assert_true(x.d.angle.ratio != 1 && x.d.angle.deviation > 0 && x.d.angle.random_deviation > 0);
    assert_true(x.d.cost.within > 0 && x.d.angle.within == 1);
    assert_int_equal(l->diagnostics->sums.cost.count, 12);
}

/* Without replay, the loss of a step on the whole batch is the mean of the losses that are measured. */
TEST(the_measured_loss_is_that_of_the_step)
{
    const sfp__learner_options list[] = {SMALL((x.select = "none", x.buffer.method = "none")), /* only classes of the task */
                                         SMALL((x.select = "none", x.replay = 0)), FREE((x.select = "none", x.replay = 0))};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_diagnosed(&list[i]);
        feed(l, 0, 6, 3);
        double sum = 0;
        int b = BATCH;
        for (int k = 0; k < b; k++)
            sum += l->diagnostics->loss[k];
        if (fabs(sum / b - l->step.loss[0]) > 1e-5)
            fail_msg("options %zu: %g, expected %g", i, sum / b, l->step.loss[0]);
    }
}

/* ------------------------------------------------------------- buffer and stream */

TEST(moments_of_the_stream_are_those_of_its_samples)
{
    enum { D = 3, N = 5 };
    const float embed[N][D] = {{1, 2, 3}, {2, 0, 1}, {-1, 4, 0}, {0, 0, 7}, {3, 3, 3}}, f[D] = {0.5f, -1, 2};
    double mean_values[D] = {0}, scatter[D * D] = {0}, delta[D], mean = 0, variance = 0;
    sfp__stream_moments s = {.dim = D, .mean = mean_values, .scatter = scatter};
    assert_true(isnan(sfp__stream_deviation(&s, f)) && isnan(sfp__stream_mmd(&s, NULL, f)));
    for (int i = 0; i < N; i++)
        sfp__stream_add(&s, embed[i], delta);
    double score[N];
    for (int i = 0; i < N; i++) {
        score[i] = 0.5 * (double)embed[i][0] - (double)embed[i][1] + 2 * (double)embed[i][2];
        mean += score[i] / N;
    }
    for (int i = 0; i < N; i++)
        variance += pow(score[i] - mean, 2) / N;
    assert_true(near(sfp__stream_deviation(&s, f), sqrt(variance)));
    float kept[2][D];
    memcpy(kept, embed + 2, sizeof kept); /* samples 2 and 3 */
    sfp__slot slots[] = {{.mean_embed = kept[0]}, {.mean_embed = kept[1]}};
    const sfp__buffer buffer = {.filled = 2, .slot = slots};
    assert_true(near(sfp__stream_mmd(&s, &buffer, f), fabs((score[2] + score[3]) / 2 - mean)));
}

TEST(a_buffer_that_holds_the_stream_has_no_distance_from_it)
{
    const sfp__learner_options o = SMALL(x.buffer.slots = 100);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_diagnosed(&o);
    feed(l, 0, 6, 2);
    diagnosis x = diagnose(l);
    assert_true(x.d.buffer_mmd < 1e-9 && x.d.stream_score_deviation > 1e-6);
    assert_true(isnan(x.d.buffer_mmd_mean)); /* at no timestamp was a sample missing in the buffer */
}

/* Keeps the mean embeddings of the stream and compares with the definition. */
static void check_distance(const char *method)
{
    sfp__learner_options o = small_options();
    o.buffer.method = method;
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_diagnosed(&o);
    size_t D = (size_t)l->D, n = 0;
    float *embed = kept_malloc(SAMPLES * D * sizeof *embed);
    for (int t = 0; t < 12; t++, n += t % 4 == 0 ? BATCH - 2 : BATCH) {
        feed(l, t, t + 1, 4);
        memcpy(embed + n * D, l->batch.mean_embed, BATCH * D * sizeof *embed);
    }
    float f[64], slot_score[16];
    sfp__fp_mean_unit(l->fp, f);
    double mean = 0, square = 0, slots = 0;
    for (size_t i = 0; i < n; i++) {
        double score = 0;
        for (size_t k = 0; k < D; k++)
            score += (double)embed[i * D + k] * (double)f[k];
        mean += score / (double)n;
        square += score * score / (double)n;
    }
    diagnosis x = diagnose(l);
    assert_true(x.d.stream_score_deviation > 0 && fabs(x.d.stream_score_deviation - sqrt(square - mean * mean)) < 1e-7);
    if (strcmp(method, "none") == 0) {
        assert_true(isnan(x.d.buffer_mmd) && isnan(x.d.buffer_mmd_mean));
        return;
    }
    sfp__buffer_score(l->buffer, f, slot_score);
    for (int i = 0; i < l->buffer->filled; i++)
        slots += (double)slot_score[i] / l->buffer->filled;
    if (fabs(x.d.buffer_mmd - fabs(slots - mean)) > 1e-7 || !(x.d.buffer_mmd_mean > 0))
        fail_msg("%s: %g, expected %g; mean %g", method, x.d.buffer_mmd, fabs(slots - mean), x.d.buffer_mmd_mean);
}

TEST(the_distance_of_every_buffer_is_that_of_the_definition)
{
    for (const char *const *method = STRINGS("streamfp", "er", "aser", "camel", "gss", "ssd", "none"); *method; method++)
        check_distance(*method);
}

/* ------------------------------------------------------------------ gradients */

/* Offers the same images as two tasks, in n timestamps each. Labels of the second task: swap - label. */
static void offer_twice(sfp__learner *l, int n, int swap)
{
    for (int task = 0; task < 2; task++) {
        if (task)
            MUST(sfp__learner_next_task(l, &err));
        name_classes(l, 0);
        for (int t = 0; t < n; t++) {
            sfp__sample samples[BATCH];
            for (int i = 0; i < BATCH; i++)
                samples[i] = (sfp__sample){.rgb = images[t * BATCH + i].rgb, .label = task && swap ? swap - i % 2 : i % 2};
            MUST(sfp__learner_offer(l, BATCH, samples, NULL, &err));
        }
    }
}

TEST(identical_tasks_have_the_same_gradient)
{
    const sfp__learner_options list[] = {SMALL(x.fp.tasks = 2), SMALL((x.fp.tasks = 2, x.fp.attune = false)),
                                         SMALL((x.fp.tasks = 2, x.fp.kind = SFP__FP_L2P)),
                                         SMALL((x.fp.tasks = 2, x.fp.kind = SFP__FP_DUALPROMPT, x.fp.last_layer = 3)),
                                         SMALL((x.fp.tasks = 2, x.buffer.method = "none"))};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_diagnosed(&list[i]);
        offer_twice(l, 3, 0);
        diagnosis x = diagnose(l);
        if (fabs(x.d.gradient_cosine_fingerprints - 1) > 1e-6 || fabs(x.d.gradient_cosine_head - 1) > 1e-6)
            fail_msg("options %zu: %g %g", i, x.d.gradient_cosine_fingerprints, x.d.gradient_cosine_head);
        for (int k = 0; k < 4; k++)
            assert_true(fabs(x.fingerprints[k] - 1) < 1e-6 && fabs(x.head[k] - 1) < 1e-6);
    }
}

/* If all logits are 0, swapped labels of two classes negate the gradient of the head, and the features have no gradient. */
TEST(swapped_labels_have_the_opposite_gradient)
{
    const sfp__learner_options o = SMALL((x.fp.tasks = 2, x.fp.classes = 2, x.adam.lr = 0));
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&small, &o);
    memset(l->fp->linear_w.data, 0, 2 * l->fp->linear_w.width * sizeof(float));
    memset(l->fp->linear_b.data, 0, 2 * sizeof(float));
    MUST(sfp__learner_start_diagnostics(l, &err));
    offer_twice(l, 3, 1);
    diagnosis x = diagnose(l);
    assert_true(near(x.head[1], -1) && near(x.head[2], -1) && near(x.d.gradient_cosine_head, 1));
    assert_true(isnan(x.fingerprints[0]) && isnan(x.d.gradient_cosine_fingerprints));
}

TEST(different_tasks_have_different_gradients)
{
    const sfp__learner_options o = small_options();
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_diagnosed(&o);
    feed(l, 0, 6, 3); /* two of three tasks */
    diagnosis x = diagnose(l);
    assert_true(near(x.fingerprints[0], 1) && near(x.fingerprints[4], 1) && fabs(x.fingerprints[1]) < 0.999);
    assert_true(x.fingerprints[1] == x.fingerprints[3] && near(x.d.gradient_cosine_fingerprints, fabs(x.fingerprints[1])));
    assert_true(isnan(x.fingerprints[2]) && isnan(x.fingerprints[8]) && isnan(x.head[5])); /* the third task has no image */
    assert_true(near(x.d.gradient_cosine_head, fabs(x.head[1])));
}

/* Writes the gradient of the mean loss of one batch of images with respect to P of both layers: (2, 6, Lp*D). */
static void gradient_of(sfp__learner *l, const int32_t *label, int first_image, float *out)
{
    float *x = kept_malloc(BATCH * BYTES * sizeof *x), *query = kept_malloc(BATCH * (size_t)l->D * sizeof *query), weight[BATCH];
    const float *xs[BATCH];
    for (int i = 0; i < BATCH; i++) {
        xs[i] = x + i * BYTES;
        weight[i] = 1.0f / BATCH;
        sfp__pixels_normalise(images[first_image + i].rgb, SIDE, l->opt.mean, l->opt.std, x + i * BYTES);
    }
    const sfp__train_batch batch = {.n = BATCH, .x = xs, .label = label, .weight = weight, .query = query, .queries = BATCH};
    sfp__train_result result;
    MUST(sfp__trainer_gradients(l->trainer, &batch, &result, &err));
    for (int k = 0; k < 2; k++, out += 6 * l->fp->layer[0].p.width)
        memcpy(out, l->fp->layer[k].p.grad, 6 * l->fp->layer[k].p.width * sizeof *out);
}

/* A learner of one task, whose components are all active, computes the same gradients from the same values. */
TEST(gradients_include_frozen_components)
{
    const sfp__learner_options two = SMALL((x.fp.tasks = 2, x.fp.pool = 6)), one = SMALL((x.fp.tasks = 1, x.fp.pool = 6));
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_diagnosed(&two), *whole = make_learner(&small, &one);
    int count;
    feed(l, 0, 2, 1);
    assert_int_equal(l->fp->frozen_end, 3);
    sfp__param **from = sfp__fp_params(l->fp, &count), **to = sfp__fp_params(whole->fp, &count);
    for (int i = 0; i < count; i++)
        memcpy(to[i]->data, from[i]->data, (size_t)to[i]->rows * to[i]->width * sizeof(float));
    sfp__fp_changed(whole->fp);
    size_t n = 12 * l->fp->layer[0].p.width;
    float *g = kept_malloc(2 * n * sizeof *g);
    gradient_of(whole, (const int32_t[]){0, 1, 0, 1, 0, 1}, 0, g);
    gradient_of(whole, (const int32_t[]){2, 3, 2, 3, 2, 3}, BATCH, g + n);
    double product = 0, a = 0, b = 0, frozen = 0;
    for (size_t i = 0; i < n; i++) {
        product += (double)g[i] * (double)g[n + i];
        a += pow((double)g[i], 2);
        b += pow((double)g[n + i], 2);
        frozen += i < n / 4 ? fabs((double)g[i]) : 0;
    }
    diagnosis x = diagnose(l);
    assert_true(frozen > 0 && fabs(x.fingerprints[1] - product / sqrt(a * b)) < 1e-5);
}

TEST(a_stream_without_tasks_has_no_cosines)
{
    const sfp__learner_options o = FREE();
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_diagnosed(&o);
    feed(l, 0, 4, 0);
    assert_int_equal(sfp__learner_diagnosed_tasks(l), 0);
    sfp__diagnosis d;
    MUST(sfp__learner_diagnose(l, &d, NULL, NULL, &err));
    assert_true(isnan(d.gradient_cosine_fingerprints) && isnan(d.gradient_cosine_head));
    assert_true(d.cost.ratio > 0 && d.buffer_mmd >= 0);
}

TEST(of_many_tasks_the_first_are_compared)
{
    enum { TASKS = SFP__DIAGNOSTICS_TASKS + 2 };
    static double fingerprints[SFP__DIAGNOSTICS_TASKS * SFP__DIAGNOSTICS_TASKS],
        head[SFP__DIAGNOSTICS_TASKS * SFP__DIAGNOSTICS_TASKS];
    const sfp__learner_options o = SMALL(x.fp.tasks = x.fp.pool = TASKS);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_diagnosed(&o);
    name_classes(l, 0);
    for (int task = 0; task < TASKS; task++) {
        const sfp__sample sample = {.rgb = images[task].rgb, .label = task % 2};
        if (task)
            MUST(sfp__learner_next_task(l, &err));
        MUST(sfp__learner_offer(l, 1, &sample, NULL, &err));
    }
    sfp__diagnosis d;
    assert_int_equal(sfp__learner_diagnosed_tasks(l), SFP__DIAGNOSTICS_TASKS);
    MUST(sfp__learner_diagnose(l, &d, fingerprints, head, &err));
    for (int i = 0; i < SFP__DIAGNOSTICS_TASKS * SFP__DIAGNOSTICS_TASKS; i++)
        assert_true(fabs(fingerprints[i]) <= 1 && fabs(head[i]) <= 1);
}

/* All images of a long task have the same chance to be kept. */
TEST(the_images_of_a_task_are_a_sample_of_it)
{
    const sfp__learner_options o = SMALL(x.fp.tasks = 1);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_diagnosed(&o);
    feed(l, 0, TIMES, 0);
    const sfp__diagnostics *d = l->diagnostics;
    int late = 0;
    assert_int_equal(d->seen[0], SAMPLES - 2 * (TIMES / 4)); /* every fourth batch has two samples less */
    for (int k = 0; k < SFP__DIAGNOSTICS_IMAGES; k++) {
        int i = 0;
        while (i < SAMPLES && memcmp(images[i].rgb, d->rgb + (size_t)k * BYTES, BYTES) != 0)
            i++;
        assert_true(i < SAMPLES);
        assert_int_equal(d->label[k], i % BATCH % 2);
        late += i >= SAMPLES / 2;
    }
    assert_in_range(late, 20, 44); /* 32 expected, deviation 4 */
}

/* ------------------------------------------------------------ no change of learning */

TEST(their_time_is_not_part_of_the_processing_time)
{
    const sfp__learner_options o = small_options();
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_diagnosed(&o);
    feed(l, 0, 3, 0);
    sfp__sample samples[BATCH];
    for (int i = 0; i < BATCH; i++)
        samples[i] = (sfp__sample){.rgb = images[i].rgb, .label = i % 2};
    sfp__timestamp_details r;
    double begin = sfp__monotonic_seconds();
    MUST(sfp__learner_offer(l, BATCH, samples, &r, &err));
    double whole = sfp__monotonic_seconds() - begin;
    assert_true(r.seconds.diagnostics > 0 && r.seconds.total > 0 && r.seconds.total + r.seconds.diagnostics <= whole);
}

TEST(a_timestamp_allocates_nothing)
{
    const sfp__learner_options o = small_options();
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_diagnosed(&o);
    feed(l, 0, 4, 0);
    unsigned long before = sfp__mem_count();
    feed(l, 4, 6, 0);
    assert_int_equal(sfp__mem_count(), before);
}

TEST(missing_memory_is_reported)
{
    const sfp__learner_options o = small_options();
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&small, &o);
    assert_true(FAIL_EACH_ALLOCATION(sfp__learner_start_diagnostics(l, alloc_err), !l->diagnostics) > 1);
    feed(l, 0, 4, 2);
    diagnosis x = {.d.buffer_mmd = -1};
    long failures = FAIL_EACH_ALLOCATION(sfp__learner_diagnose(l, &x.d, x.fingerprints, x.head, alloc_err), x.d.buffer_mmd == -1);
    assert_true(failures > 1 && x.d.buffer_mmd >= 0);
}

/* --------------------------------------------------------------------- resuming */
