/* Every buffer method in a learner: its model callbacks return what a step computes, queries are computed once, and the reported
 * change is what happened. test_learner_select.c tests threads, resumes and memory. */
#include "learner/learner.h"

#include "test.h"
#include "test_learner_fixture.h"

enum { BATCH = 12, TIMES = 5 };

static const char *const methods[] = {"streamfp", "er", "aser", "camel", "gss"};
static const char *const selectors[] = {"streamfp", "craig", "learnloss"};
enum { METHODS = sizeof methods / sizeof *methods, SELECTORS = sizeof selectors / sizeof *selectors };

static sfp__learner_options options_of(const world *m, const char *select, const char *buffer, int slots)
{
    sfp__learner_options o = small_options(m, 0, 0);
    o.batch = BATCH;
    o.select = select;
    o.coreset.sigma = 0.4;
    o.buffer.method = buffer;
    o.buffer.slots = slots;
    return o;
}

/* Returns the buffer as bytes: the complete contents of its slots. */
typedef struct shot {
    int filled;
    uint64_t id[64], stored_at[64];
    int32_t label[64];
    bool has_query[64];
    float query[64][16];
} shot;

static shot shot_of(const sfp__learner *l)
{
    shot s;
    memset(&s, 0, sizeof s);
    s.filled = l->buffer->filled;
    for (int i = 0; i < s.filled; i++) {
        const sfp__slot *slot = &l->buffer->slot[i];
        s.id[i] = slot->id;
        s.stored_at[i] = slot->stored_at;
        s.label[i] = slot->label;
        s.has_query[i] = slot->has_query;
        memcpy(s.query[i], slot->query, (size_t)l->D * sizeof(float));
    }
    return s;
}

/* The stream changes to other classes at the end: gss replaces samples if gradients disagree. */
static int turn(uint64_t t)
{
    return t < TIMES ? 0 : 3;
}

TEST(the_reported_change_matches_the_slots)
{
    OWNED_BY(free_world) world m = tiny_model(2);
    for (int slots = 5; slots <= 40; slots += 35) /* fewer slots than a batch, and more than fit in one pass */
        for (int i = 0; i < METHODS; i++)
            for (int k = 0; k < SELECTORS; k++) {
                sfp__learner_options o = options_of(&m, selectors[k], methods[i], slots);
                OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
                uint64_t id[64] = {0};
                int filled = 0, replaced = 0;
                for (uint64_t t = 0; t < TIMES + 3; t++) {
                    sfp__timestamp_details r = offer(l, turn(t), turn(t) + 3, t);
                    for (int j = 0; j < r.buffer.stored; j++)
                        id[filled++] = t * 1000 + (uint64_t)j;
                    for (int j = 0; j < r.buffer.nu; j++)
                        id[r.buffer.replaced[j]] = t * 1000 + (uint64_t)r.buffer.retained[j];
                    shot now = shot_of(l);
                    assert_int_equal(now.filled, filled);
                    assert_int_equal(l->buffer->seen, (t + 1) * BATCH);
                    if (memcmp(now.id, id, (size_t)filled * sizeof *id) != 0)
                        fail_msg("buffer '%s': the slots differ from the reported change", methods[i]);
                    replaced += r.buffer.nu;
                }
                assert_int_equal(filled, slots);
                if (replaced == 0 && slots > 6)
                    fail_msg("buffer '%s' replaces nothing", methods[i]);
            }
}

/* The scores of gss are part of a checkpoint: a file without them is refused, and resuming restores them. */
TEST(the_state_of_a_buffer_method_is_saved)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner_options o = options_of(&m, "streamfp", "gss", 20);
    OWNED_PTR(sfp__learner_free) sfp__learner *a = make_learner(&m, &o), *b = make_learner(&m, &o);
    sfp__state_tensor p = {0}, q = {0};
    offer_range(a, 0, TIMES);
    MUST(resume_from(a, b));
    const sfp__buffer_method *gss = a->buffer->method;
    assert_int_equal(gss->state_tensors(a->buffer->state, 0, &p), 1);
    assert_int_equal(gss->state_tensors(b->buffer->state, 0, &q), 1);
    assert_memory_equal(p.data, q.data, 20 * sizeof(float));
    assert_true(((float *)p.data)[19] != 0);
}

/* ---------------------------------------------------------------- model callbacks */

/* Creates a learner with a full buffer, some of whose queries are unknown, in the state before an update. */
static sfp__learner *warm(const world *m, const char *buffer, sfp__fp_kind kind)
{
    sfp__learner_options o = options_of(m, "streamfp", buffer, 40);
    o.fp.kind = kind;
    o.replay = 1; /* and a batch of 12: calls with more samples than a step has */
    sfp__learner *l = make_learner(m, &o);
    offer_range(l, 0, TIMES);
    for (int i = 0; i < 40; i += 3) {
        sfp__slot *slot = &l->buffer->slot[i];
        slot->has_query = false;
        memset(slot->query, 0, (size_t)l->D * sizeof(float));
    }
    return l;
}

/* Returns the input of a sample as it is numbered in model callbacks. */
static void input_of(const sfp__learner *l, int samples, float *out)
{
    if (samples < BATCH)
        memcpy(out, l->batch.x + (size_t)samples * l->pixels, l->pixels * sizeof *out);
    else
        sfp__learner_slot_input(l, &l->buffer->slot[samples - BATCH], out);
}

TEST(features_equal_those_of_a_step)
{
    OWNED_BY(free_world) world m = tiny_model(2);
    for (int kind = SFP__FP_CODA; kind <= SFP__FP_DUALPROMPT; kind++) {
        OWNED_PTR(sfp__learner_free) sfp__learner *l = warm(&m, "aser", (sfp__fp_kind)kind);
        const sfp__model_ops *ops = sfp__learner_model_ops(l);
        enum { N = BATCH + 40 };
        int samples[N];
        size_t D = (size_t)l->D;
        float *got = floats(N * D), *at = floats(N * D), *x = floats(N * l->pixels), *gradient = floats(ops->params);
        const float *xs[N];
        const int32_t zeros[N] = {0};
        for (int i = 0; i < N; i++) {
            samples[i] = (i * 7 + 3) % N; /* a permutation: 7 and 52 have no common divisor */
            input_of(l, samples[i], x + (size_t)i * l->pixels);
            xs[i] = x + (size_t)i * l->pixels;
        }
        values before = take_values(l);
        MUST(ops->features(ops->ctx, N, samples, got, &err));
        MUST(ops->gradient_at(ops->ctx, &(sfp__image_list){.n = N, .x = xs, .label = zeros}, gradient, at, &err));
        for (int i = 0; i < N; i++) {
            int32_t label = 0;
            float weight = 1, query[16];
            bool replayed = samples[i] >= BATCH;
            if (replayed)
                check_near("features of images", at + (size_t)i * D, got + (size_t)i * D, D, 1e-5);
            const sfp__train_batch b = {
                .n = 1, .x = &xs[i], .label = &label, .weight = &weight, .replayed = &replayed, .query = query, .queries = 1};
            sfp__train_result r = {0};
            MUST(sfp__trainer_gradients(l->trainer, &b, &r, &err));
            check_near("features", got + (size_t)i * D, r.feature, D, 1e-5);
            const float *kept =
                samples[i] < BATCH ? l->batch.query + (size_t)samples[i] * D : l->buffer->slot[samples[i] - BATCH].query;
            assert_true(samples[i] < BATCH ? l->batch.has_query[samples[i]] : l->buffer->slot[samples[i] - BATCH].has_query);
            check_near("queries", kept, query, D, 1e-5);
        }
        check_values(l, &before);
        assert_int_equal(ops->features(ops->ctx, 1, (const int[]){N}, got, &err), SFP_EINVAL);
        assert_int_equal(ops->features(ops->ctx, 1, (const int[]){-1}, got, &err), SFP_EINVAL);
        assert_int_equal(ops->features(ops->ctx, 0, samples, got, &err), SFP_EINVAL);
    }
}

typedef struct each_seen {
    size_t params;
    float *all; /* (n, params) */
    int *times; /* (n) */
} each_seen;

static void see(void *user, int i, const float *gradient)
{
    each_seen *e = user;
    memcpy(e->all + (size_t)i * e->params, gradient, e->params * sizeof *gradient);
    e->times[i]++;
}

/* Full passes give the same gradients as one pass per group, with every kind of pool. */
TEST(group_gradients_equal_single_gradients)
{
    OWNED_BY(free_world) world m = tiny_model(2);
    for (int kind = SFP__FP_CODA; kind <= SFP__FP_DUALPROMPT; kind++) {
        OWNED_PTR(sfp__learner_free) sfp__learner *l = warm(&m, "gss", (sfp__fp_kind)kind);
        const sfp__model_ops *ops = sfp__learner_model_ops(l);
        enum { N = BATCH + 40 };
        int samples[N], times[N] = {0};
        each_seen e = {.params = ops->params, .all = floats(N * ops->params), .times = times};
        float *scratch = floats(ops->params), *want = floats(ops->params);
        for (int i = 0; i < N; i++)
            samples[i] = (i * 11 + 5) % N;
        values before = take_values(l);
        for (int size = 1; size <= 21; size += 5) { /* the first size with unknown queries, the last larger than a pass */
            memset(times, 0, sizeof times);
            MUST(ops->gradient_each(ops->ctx, N, samples, size, scratch, see, &e, &err));
            for (int i = 0; i * size < N; i++) {
                assert_int_equal(times[i], 1);
                MUST(ops->gradient(ops->ctx, N - i * size < size ? N - i * size : size, samples + i * size, want, &err));
                check_near("gradient of each", e.all + (size_t)i * e.params, want, e.params, 1e-4);
            }
            for (int i = 0; i < 40; i += 5)
                l->buffer->slot[i].has_query = false; /* also groups with unknown queries */
        }
        check_values(l, &before);
        assert_int_equal(ops->gradient_each(ops->ctx, 1, (const int[]){N}, 1, scratch, see, &e, &err), SFP_EINVAL);
        assert_int_equal(ops->gradient_each(ops->ctx, 1, samples, 0, scratch, see, &e, &err), SFP_EINVAL);
    }
}

/* The gradient of many samples is the mean of their gradients, however they are divided into passes; a known query is used. */
TEST(gradients_are_means)
{
    OWNED_BY(free_world) world m = tiny_model(2);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = warm(&m, "gss", SFP__FP_CODA);
    const sfp__model_ops *ops = sfp__learner_model_ops(l);
    enum { N = BATCH + 40 };
    size_t P = ops->params;
    assert_int_equal(P, sfp__learner_gradient_length(l));
    float *all = floats(P), *one = floats(P), *at = floats(P), *mean = filled(P, 0), *x = floats(N * l->pixels);
    int samples[N];
    int32_t label[N];
    const float *xs[N];
    values before = take_values(l);
    for (int i = 0; i < N; i++)
        samples[i] = (i * 11 + 5) % N;
    MUST(ops->gradient(ops->ctx, N, samples, all, &err));
    for (int i = 0; i < N; i++) {
        MUST(ops->gradient(ops->ctx, 1, &samples[i], one, &err));
        for (size_t k = 0; k < P; k++)
            mean[k] += one[k] / N;
        input_of(l, samples[i], x + (size_t)i * l->pixels);
        xs[i] = x + (size_t)i * l->pixels;
        label[i] = samples[i] < BATCH ? l->batch.label[samples[i]] : l->buffer->slot[samples[i] - BATCH].label;
    }
    check_near("gradient", all, mean, P, 1e-4);
    MUST(ops->gradient_at(ops->ctx, &(sfp__image_list){.n = N, .x = xs, .label = label}, at, NULL, &err));
    check_near("gradient of images", at, all, P, 1e-4);
    check_values(l, &before);
    for (int i = 0; i < 40; i++)
        assert_true(l->buffer->slot[i].has_query);
    assert_int_equal(ops->gradient(ops->ctx, 1, (const int[]){N}, one, &err), SFP_EINVAL);
    /* not computed again: a wrong query stays and changes the result */
    l->buffer->slot[2].query[0] += 5;
    MUST(ops->gradient(ops->ctx, 1, (const int[]){BATCH + 2}, one, &err));
    l->buffer->slot[2].query[0] -= 5;
    MUST(ops->gradient(ops->ctx, 1, (const int[]){BATCH + 2}, at, &err));
    assert_memory_not_equal(one, at, P * sizeof *one);
}

/* camel needs queries: all queries of a full buffer are known. */
TEST(a_method_that_needs_queries_has_them)
{
    OWNED_BY(free_world) world m = tiny_model(2);
    sfp__learner_options o = options_of(&m, "streamfp", "camel", 20);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    offer_range(l, 0, TIMES);
    for (int i = 0; i < 20; i++)
        assert_true(l->buffer->slot[i].has_query);
}
