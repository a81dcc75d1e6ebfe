/* Every selector in a learner: it obtains the inputs that it declares, and works with any buffer. With any selector or buffer
 * method, results do not depend on threads or a resume, and later timestamps allocate nothing. */
#include "learner/learner.h"

#include "compute/kernels.h"

#include "temp_directory.h"
#include "test.h"
#include "test_learner_fixture.h"

enum { BATCH = 20, TIMES = 5, MAX_PAIRS = 32 };

static sfp__learner_options options_of(const world *m, const char *select, const char *buffer, bool known)
{
    sfp__learner_options o = small_options(m, known ? 2 : 0, known ? 6 : 0);
    o.batch = BATCH;
    o.select = select;
    o.buffer.method = buffer;
    o.steps = 2;
    o.coreset.sigma = 0.4;
    return o;
}

static sfp__learner *learner_of(const world *m, const sfp__learner_options *o)
{
    sfp__learner *l = make_learner(m, o);
    if (o->fp.tasks)
        MUST(sfp__learner_set_classes(l, 6, (const int32_t[]){0, 1, 2, 3, 4, 5}, &err));
    return l;
}

static void check_coreset(const sfp__timestamp_details *r, const char *select)
{
    int want = strcmp(select, "none") == 0 ? BATCH : 8;
    assert_int_equal(r->coreset_count, want);
    bool seen[BATCH] = {false};
    for (int i = 0; i < want; i++) {
        assert_in_range(r->coreset[i], 0, BATCH - 1);
        assert_false(seen[r->coreset[i]]);
        seen[r->coreset[i]] = true;
    }
    for (int k = 0; k < r->steps; k++)
        assert_true(isfinite(r->loss[k]));
}

TEST(every_selector_works_with_every_buffer)
{
    OWNED_BY(free_world) world m = tiny_model(2);
    int turn = 0; /* every pair once, alternating known tasks */
    for (const sfp__selector *const *s = sfp__selectors; *s; s++)
        for (int b = 0; sfp__buffer_methods[b]; b++, turn++) {
            if (turn % SAMPLE_EVERY)
                continue;
            sfp__learner_options o = options_of(&m, (*s)->name, sfp__buffer_methods[b]->name, turn % 2);
            OWNED_PTR(sfp__learner_free) sfp__learner *l = learner_of(&m, &o);
            for (uint64_t t = 0; t < TIMES; t++) {
                sfp__timestamp_details r = offer(l, 0, 6, t);
                check_coreset(&r, (*s)->name);
                assert_int_equal(r.prequential_total, r.coreset_count);
            }
        }
}

/* ---------------------------------------------- threads, resumes and memory, for every method */

/* Every selector, and every buffer method with a selector that learns. The classes change within `times` timestamps, and ssd optimises
 * its images from the 18th on. */
typedef struct pair {
    const char *select, *buffer;
    uint64_t times;
} pair;

static int find_pairs(pair *out)
{
    int n = 0;
    for (const sfp__selector *const *s = sfp__selectors; *s; s++)
        out[n++] = (pair){(*s)->name, "streamfp", 9};
    for (int b = 0; sfp__buffer_methods[b]; b++)
        out[n++] = (pair){"learnloss", sfp__buffer_methods[b]->name, strcmp(sfp__buffer_methods[b]->name, "ssd") == 0 ? 30 : 15};
    assert_true(n <= MAX_PAIRS);
    return n;
}

static void offer_changing(sfp__learner *l, uint64_t from, uint64_t to)
{
    for (uint64_t t = from; t < to; t++)
        (void)offer(l, t < 4 ? 0 : 2, t < 4 ? 3 : 6, t);
}

static void check_same_checkpoint(const pair *p, const char *what, sfp__learner *a, sfp__learner *b)
{
    const char *path[2] = {in_directory("a"), in_directory("b")};
    size_t n[2];
    MUST(sfp__learner_checkpoint(a, path[0], "", &err));
    MUST(sfp__learner_checkpoint(b, path[1], "", &err));
    const uint8_t *bytes[2] = {bytes_of(path[0], &n[0]), bytes_of(path[1], &n[1])};
    if (n[0] != n[1] || memcmp(bytes[0], bytes[1], n[0]) != 0)
        fail_msg("selector '%s', buffer '%s': other bytes after %s", p->select, p->buffer, what);
}

TEST_AROUND(neither_threads_nor_resumes_change_a_byte, make_directory, remove_directory)
{
    pair pairs[MAX_PAIRS];
    OWNED_BY(free_world) world one = tiny_model(1), three = tiny_model(3);
    for (int i = find_pairs(pairs) - 1; i >= 0; i--) {
        const pair *p = &pairs[i];
        sfp__learner_options o = options_of(&three, p->select, p->buffer, false);
        o.weighted = true;
        OWNED_PTR(sfp__learner_free) sfp__learner *a = learner_of(&one, &o), *b = learner_of(&three, &o);
        offer_changing(a, 0, p->times);
        sfp__learner *resumed[4];
        int stops = 0;
        uint64_t t = 0;
        for (uint64_t stop = 3; stop < p->times; stop += 9, stops++) {
            offer_changing(b, t, stop);
            MUST(resume_from(b, resumed[stops] = learner_of(&three, &o)));
            offer_changing(resumed[stops], stop, p->times);
            t = stop;
        }
        offer_changing(b, t, p->times);
        check_same_checkpoint(p, "three threads", a, b);
        for (int k = 0; k < stops; k++) {
            check_same_checkpoint(p, "a resume", b, resumed[k]);
            sfp__learner_free(resumed[k]);
        }
    }
}

TEST(later_timestamps_allocate_nothing)
{
    pair pairs[MAX_PAIRS];
    OWNED_BY(free_world) world m = tiny_model(2);
    for (int i = find_pairs(pairs) - 1; i >= 0; i--)
        for (int slots = 5; slots <= 20; slots += 15) { /* fewer slots than a batch, and as many */
            const pair *p = &pairs[i];
            sfp__learner_options o = options_of(&m, p->select, p->buffer, true);
            o.buffer.slots = slots;
            OWNED_PTR(sfp__learner_free) sfp__learner *l = learner_of(&m, &o);
            const uint64_t warm = p->times + 12; /* every size of a micro-batch has occurred */
            offer_changing(l, 0, warm);
            for (uint64_t t = warm; t < warm + 7; t++)
                check_allocates_nothing(kept_print("%s, %s", p->select, p->buffer), l, 2, 6, t);
        }
}

/* A checkpoint without the state of its selector is refused, and nothing changes. */
TEST(a_checkpoint_of_another_selector_is_refused)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner_options o = options_of(&m, "random", "streamfp", false);
    OWNED_PTR(sfp__learner_free) sfp__learner *a = learner_of(&m, &o);
    o.select = "learnloss";
    OWNED_PTR(sfp__learner_free) sfp__learner *b = learner_of(&m, &o);
    (void)offer(a, 0, 6, 0);
    assert_int_equal(resume_from(a, b), SFP_EINVAL);
}

/* ----------------------------------------------------------- inputs of selectors */

static void close_to(const char *what, size_t n, const float *got, const float *want, double limit)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= limit * (1 + fabs((double)want[i]))))
            fail_msg("%s: number %zu is %g, expected %g", what, i, (double)got[i], (double)want[i]);
}

/* Features and logits of the prompted pass equal those of a training step. */
TEST(features_and_logits_equal_those_of_a_step)
{
    OWNED_BY(free_world) world m = tiny_model(2);
    {
        sfp__learner_options o = options_of(&m, "craig", "none", true);
        OWNED_PTR(sfp__learner_free) sfp__learner *l = learner_of(&m, &o);
        offer_range(l, 0, 3);
        int32_t label[BATCH] = {0};
        float weight[BATCH], *query = floats((size_t)(BATCH * l->D));
        for (int i = 0; i < BATCH; i++)
            weight[i] = 1.0f / BATCH;
        MUST(sfp__method_inputs_compute(&l->method_inputs, BATCH, l->batch.xs, NULL, l->batch.query, &err));
        const sfp__train_batch b = {
            .n = BATCH, .x = l->batch.xs, .label = label, .weight = weight, .query = query, .queries = BATCH, .terms = 1};
        sfp__train_result r = {0};
        MUST(sfp__trainer_gradients(l->trainer, &b, &r, &err));
        int C = sfp__learner_classes(l);
        close_to("features", (size_t)(BATCH * l->D), l->method_inputs.features, r.feature, 1e-5);
        for (int i = 0; i < BATCH; i++) {
            double sum = 0;
            for (int c = 0; c < C; c++)
                sum += exp((double)r.logits[i * C + c]);
            for (int c = 0; c < C; c++)
                assert_true(fabs((double)l->method_inputs.probs[i * C + c] - exp((double)r.logits[i * C + c]) / sum) < 1e-5);
        }
        close_to("queries", (size_t)(BATCH * l->D), l->batch.query, query, 1e-5);
    }
}

/* Compares token means after each quarter and freesel's features with those of one pass over all samples. */
TEST(token_means_and_pooled_tokens_equal_those_of_one_pass)
{
    for (int depth = 2; depth <= 8; depth += 3) {
        OWNED_BY(free_world) world m = make_model(8, 4, 16, depth, 2);
        const sfp__vit_config *c = &m.vit->config;
        int T = m.vit->tokens, D = c->dim;
        size_t n = (size_t)(BATCH * T * D);
        float *taps[8], *attention = floats((size_t)(BATCH * c->heads * T));
        OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
        const sfp__vit_plan_options po = {.all_tokens = true};
        MUST(sfp__vit_plan_create(m.vit, m.pool, &po, &plan, &err));
        sfp__learner_options o = options_of(&m, "freesel", "none", true);
        o.fp.last_layer = 0;
        o.fp.attune = depth > 2;
        OWNED_PTR(sfp__learner_free) sfp__learner *l = learner_of(&m, &o);
        (void)offer(l, 0, 6, 5);
        sfp__vit_pass pass = {.b = BATCH, .x = l->batch.x, .class_attention = attention};
        for (int i = 0; i < depth; i++)
            taps[i] = floats(n);
        pass.tokens = taps;
        MUST(sfp__vit_run(plan, &pass, &err));
        float *normed = floats((size_t)(T * D)), *stats = floats((size_t)(2 * T)), *mass = floats((size_t)T), want[16];
        int order[64];
        for (int i = 0; i < BATCH; i++) {
            sfp__kernels_get()->norm_fwd(T, D, taps[depth - 2] + i * T * D, m.vit->weights.norm_w, m.vit->weights.norm_b,
                                         c->ln_eps, normed, stats);
            sfp__freesel_pool(T, D, c->heads, normed, attention + i * c->heads * T, order, mass, want);
            close_to("pooled", (size_t)D, l->method_inputs.pooled + i * D, want, 1e-4);
        }
        OWNED_BY(sfp__method_inputs_done) sfp__method_inputs inputs = {0};
        MUST(sfp__method_inputs_init(&inputs, m.vit, m.pool, l->fp, SFP__NEED_TAPS, BATCH, &err));
        float *query = floats((size_t)(BATCH * D));
        MUST(sfp__method_inputs_compute(&inputs, BATCH, l->batch.xs, NULL, query, &err));
        OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *prompted = NULL;
        const sfp__vit_plan_options qo = {.all_tokens = true, .prefix_rows = o.fp.length / 2, .queries = true};
        MUST(sfp__vit_plan_create(m.vit, m.pool, &qo, &prompted, &err));
        sfp__vit_pass again = {.b = BATCH, .x = l->batch.x, .query = query, .queries = BATCH};
        again.tokens = taps;
        sfp__fp_attach(l->fp, &again, NULL);
        MUST(sfp__vit_run(prompted, &again, &err));
        for (int i = 0; i < BATCH; i++)
            for (int q = 0; q < SFP__TAPS; q++) {
                int block = (int)ceil(depth * (q + 1) / 4.0) - 1;
                for (int k = 0; k < D; k++) {
                    double mean = 0;
                    for (int t = 0; t < T; t++)
                        mean += (double)taps[block][(i * T + t) * D + k] / T;
                    want[k] = (float)mean;
                }
                close_to("token means", (size_t)D, inputs.taps + (i * SFP__TAPS + q) * D, want, 1e-4);
            }
    }
}

/* The gradient of several samples is the mean of their gradients, and equals that of a step. */
TEST(gradients_by_callback_equal_those_of_a_step)
{
    OWNED_BY(free_world) world m = tiny_model(2);
    sfp__learner_options o = options_of(&m, "streamfp", "none", true);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = learner_of(&m, &o);
    (void)offer(l, 0, 6, 1);
    batch x = make_batch(l->S, BATCH, 0, 6, 2);
    MUST(sfp__learner_offer(l, x.b, x.sample, NULL, &err));
    size_t n = sfp__learner_gradient_length(l);
    assert_true(n > 100);
    float *both = floats(n), *one = floats(n), *two = floats(n);
    values before = take_values(l);
    MUST(sfp__learner_gradient(l, 2, (const int[]){3, 17}, both, &err));
    MUST(sfp__learner_gradient(l, 1, (const int[]){3}, one, &err));
    MUST(sfp__learner_gradient(l, 1, (const int[]){17}, two, &err));
    double size = 0;
    for (size_t i = 0; i < n; i++) {
        one[i] = 0.5f * (one[i] + two[i]);
        size = fmax(size, fabs((double)both[i]));
    }
    assert_true(size > 1e-4);
    for (size_t i = 0; i < n; i++)
        assert_true(fabs((double)both[i] - (double)one[i]) <= 1e-4 * size);
    check_values(l, &before);
    assert_int_equal(sfp__learner_gradient(l, 1, (const int[]){BATCH}, one, &err), SFP_EINVAL);
    assert_int_equal(sfp__learner_gradient(l, 0, NULL, one, &err), SFP_EINVAL);
}

/* The loss is the weighted mean of the losses of the coreset: weights are divided by their sum, as in CORDS. The probabilities that
 * the selector saw give the losses before the step. */
TEST(the_weighted_loss_is_the_weighted_mean)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    static const char *const select[] = {"craig", "gradmatch"};
    for (int i = 0; i < 2; i++) {
        sfp__learner_options o = options_of(&m, select[i], "none", true);
        o.weighted = true;
        OWNED_PTR(sfp__learner_free) sfp__learner *l = learner_of(&m, &o);
        sfp__timestamp_details r = offer(l, 0, 6, 0);
        double sum = 0, total = 0;
        bool uneven = false;
        for (int k = 0; k < r.coreset_count; k++) {
            int at = r.coreset[k], y = l->batch.label[at];
            double w = (double)l->batch.select_weight[k];
            sum += w * -log((double)l->method_inputs.probs[at * sfp__learner_classes(l) + y]);
            total += w;
            uneven = uneven || w != (double)l->batch.select_weight[0];
        }
        assert_true(uneven && total > 0);
        assert_true(fabs(r.loss[0] - sum / total) < 1e-5 * fabs(sum / total));
    }
}

TEST(weights_enter_the_loss_only_if_enabled)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    static const char *const select[] = {"craig", "gradmatch", "camel"};
    for (int i = 0; i < 3; i++) {
        double loss[2];
        for (int weighted = 0; weighted < 2; weighted++) {
            sfp__learner_options o = options_of(&m, select[i], "none", true);
            o.weighted = weighted;
            OWNED_PTR(sfp__learner_free) sfp__learner *l = learner_of(&m, &o);
            assert_true(l->selector->weighs);
            loss[weighted] = offer(l, 0, 6, 0).loss[0];
        }
        assert_true(loss[0] != loss[1]);
    }
}
