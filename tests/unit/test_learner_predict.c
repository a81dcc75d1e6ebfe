/* Predictions (predictor.h): correct numbers from one consistent snapshot, regardless of what the learner does at the same
 * time. */
#include "learner/predictor.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/monotonic.h"
#include "compute/pixels.h"

#include "predict.h"
#include "test.h"
#include "test_learner_fixture.h"
#include "test_trainer_oracle.h"

enum { D = 16, S = 8, PIXELS = 3 * S * S, IMAGES = 10 };

static sfp_predictor *make_predictor(sfp__learner *l, sfp__thread_pool *pool, int max)
{
    sfp_predictor *p = NULL;
    MUST(sfp__predictor_create(l, pool, max, &p, &err));
    return p;
}

static const uint8_t **images_of(const batch *b)
{
    static const uint8_t *rgb[MAX_BATCH];
    for (int i = 0; i < b->b; i++)
        rgb[i] = b->sample[i].rgb;
    return rgb;
}

/* ------------------------------------------------------------------ numbers */

/* Computes the log-probabilities (n, classes) of the current state in double. */
static double *by_hand(sfp__learner *l, int n, const uint8_t *const *rgb)
{
    oracle o;
    const float *x[MAX_BATCH];
    int C = sfp__learner_classes(l);
    double *logp = doubles((size_t)(n * C));
    for (int i = 0; i < n; i++) {
        float *to = floats(PIXELS);
        for (int k = 0; k < PIXELS; k++) /* (S, S, 3) bytes to (3, S, S) */
            to[k] = ((float)rgb[i][k % (S * S) * 3 + k / (S * S)] / 255 - l->opt.mean[k / (S * S)]) / l->opt.std[k / (S * S)];
        x[i] = to;
    }
    oracle_init(&o, l->vit, l->fp);
    oracle_batch(&o, n, x);
    oracle_attune(&o);
    for (int i = 0; i < n; i++) {
        double *z = logp + i * C, sum = 0;
        oracle_forward(&o, x[i], i, true, o.feature, NULL);
        oracle_linear(C, D, o.value[o.params - 2], o.value[o.params - 1], o.feature, z);
        for (int c = 0; c < C; c++)
            sum += l->classes.seen[c] ? exp(z[c]) : 0;
        for (int c = 0; c < C; c++)
            z[c] = l->classes.seen[c] ? z[c] - log(sum) : -INFINITY;
    }
    return logp;
}

TEST(scores_that_overflow_are_an_error)
{
    OWNED_BY(free_world) world m = tiny_model(2);
    batch b = make_batch(S, IMAGES, 0, 7, 100);
    sfp__learner_options o = small_options(&m, 2, 7);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    OWNED_PTR(sfp__predictor_free) sfp_predictor *p = make_predictor(l, m.pool, 4);
    float logp[IMAGES * 7];
    int32_t label[IMAGES];
    for (size_t i = 0; i < 7 * D; i++)
        l->fp->linear_w.data[i] = i % 2 ? 3e38f : -3e38f;
    (void)sfp__learner_publish(l, NULL);
    assert_int_equal(predict_into(p, IMAGES, images_of(&b), NULL, NULL, label, logp, 7, NULL, &err), SFP_EINVAL);
    HOLDS(err.message, "not a finite number");
}

TEST(predictions_equal_an_independent_computation)
{
    for (int kind = 0; kind < 3; kind++) {
        OWNED_BY(free_world) world m = tiny_model(2);
        sfp__learner_options o = small_options(&m, kind == 1 ? 0 : 2, kind == 1 ? 0 : 7);
        o.fp.prefix = kind == 2 ? SFP__PREFIX_RAW : SFP__PREFIX_PROJECTED;
        o.adam.lr = 0.02f;
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
        OWNED_PTR(sfp__predictor_free) sfp_predictor *p = make_predictor(l, m.pool, 4); /* requests of 10 are divided */
        for (uint64_t t = 0; t < 6; t++) {
            if (t == 3 && kind != 1)
                MUST(sfp__learner_next_task(l, &err));
            (void)offer(l, 1, t < 3 ? 3 : 5, t); /* classes 0, 5 and 6 are never seen */
            batch b = make_batch(S, IMAGES, 0, 7, 100 + t);
            int C = sfp__learner_classes(l), ld = C + 3;
            float *logp = filled((size_t)(IMAGES * ld), NAN);
            int32_t label[IMAGES];
            sfp__predictions answer = {0};
            MUST(predict_into(p, IMAGES, images_of(&b), NULL, NULL, label, logp, ld, &answer, &err));
            assert_int_equal(answer.t, t + 1);
            assert_int_equal(answer.classes, C);
            double *want = by_hand(l, IMAGES, images_of(&b));
            for (int i = 0; i < IMAGES; i++) {
                int best = -1;
                for (int c = 0; c < C; c++) {
                    double w = want[i * C + c];
                    if (!(isinf(w) ? isinf(logp[i * ld + c]) : fabs((double)logp[i * ld + c] - w) < 1e-4))
                        fail_msg("kind %d, t %d, image %d, class %d: %.7g, expected %.7g", kind, (int)t, i, c,
                                 (double)logp[i * ld + c], w);
                    best = sfp__learner_seen(l, c) && (best < 0 || logp[i * ld + c] > logp[i * ld + best]) ? c : best;
                }
                assert_true(isnan(logp[i * ld + C])); /* nothing is written beyond the classes */
                assert_int_equal(label[i], best);
                assert_true(sfp__learner_seen(l, label[i]));
            }
            int32_t alone[IMAGES];
            MUST(predict_into(p, IMAGES, images_of(&b), NULL, NULL, alone, NULL, 0, NULL, &err));
            assert_memory_equal(alone, label, sizeof label);
        }
    }
}

TEST(only_seen_classes_are_predicted)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner_options o = small_options(&m, 1, 9);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    (void)offer(l, 2, 4, 0);
    (void)offer(l, 6, 7, 1);
    for (int c = 0; c < 9; c++) /* the linear head strongly predicts classes that were never seen */
        l->fp->linear_b.data[c] += sfp__learner_seen(l, c) ? 0 : 1000;
    OWNED_PTR(sfp__predictor_free) sfp_predictor *p = make_predictor(l, m.pool, 16);
    batch b = make_batch(S, 16, 0, 9, 5);
    int32_t label[16];
    float logp[16 * 9];
    MUST(predict_into(p, 16, images_of(&b), NULL, NULL, label, logp, 9, NULL, &err));
    for (int i = 0; i < 16; i++) {
        double sum = 0;
        assert_true(label[i] == 2 || label[i] == 3 || label[i] == 6);
        for (int c = 0; c < 9; c++)
            sum += exp((double)logp[i * 9 + c]);
        assert_true(fabs(sum - 1) < 1e-5);
    }
}

TEST(known_queries_are_used)
{
    OWNED_BY(free_world) world m = tiny_model(2);
    sfp__learner_options o = small_options(&m, 1, 4);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    for (uint64_t t = 0; t < 3; t++)
        (void)offer(l, 0, 4, t);
    OWNED_PTR(sfp__predictor_free) sfp_predictor *p = make_predictor(l, m.pool, 4);
    batch b = make_batch(S, IMAGES, 0, 4, 7);
    int32_t label[2][IMAGES];
    float logp[2][IMAGES * 4], query[IMAGES * D] = {0}, fresh[IMAGES * D], x[PIXELS];
    bool has[IMAGES] = {false};
    const float *xs[1] = {x};
    MUST(predict_into(p, IMAGES, images_of(&b), query, has, label[0], logp[0], 4, NULL, &err));
    for (int i = 0; i < IMAGES; i++) {
        assert_true(has[i]);
        sfp__pixels_normalise(b.sample[i].rgb, S, o.mean, o.std, x);
        MUST(sfp__trainer_queries(l->trainer, 1, xs, fresh + i * D, &err));
    }
    check_near("queries", query, fresh, IMAGES * D, 1e-5);
    for (int i = 0; i < IMAGES; i += 3)
        has[i] = false; /* some are computed again, the others are used */
    MUST(predict_into(p, IMAGES, images_of(&b), query, has, label[1], logp[1], 4, NULL, &err));
    check_near("answers", logp[1], logp[0], IMAGES * 4, 1e-5);
    assert_memory_equal(label[0], label[1], sizeof label[0]);
    for (int i = 0; i < D; i++)
        query[i] = -query[i] + (float)i; /* a wrong query changes the result: it is not computed again */
    MUST(predict_into(p, IMAGES, images_of(&b), query, has, label[1], logp[1], 4, NULL, &err));
    double moved = 0;
    for (int c = 0; c < 4; c++)
        moved = fmax(moved, fabs((double)logp[1][c] - (double)logp[0][c]));
    assert_true(moved > 1e-4);
    check_near("the others", logp[1] + 4, logp[0] + 4, (IMAGES - 1) * 4, 1e-5);
}

TEST(a_prediction_allocates_nothing_after_the_first)
{
    OWNED_BY(free_world) world m = tiny_model(2);
    sfp__learner_options o = small_options(&m, 1, 4);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    OWNED_PTR(sfp__predictor_free) sfp_predictor *p = make_predictor(l, m.pool, 4);
    batch b = make_batch(S, 7, 0, 4, 7);
    int32_t label[7];
    float logp[7 * 4];
    (void)offer(l, 0, 4, 0);
    MUST(predict_into(p, 7, images_of(&b), NULL, NULL, label, logp, 4, NULL, &err));
    unsigned long before = sfp__mem_count();
    for (int i = 0; i < 5; i++)
        MUST(predict_into(p, 7, images_of(&b), NULL, NULL, label, logp, 4, NULL, &err));
    assert_int_equal(sfp__mem_count() - before, 0);
}

/* An on-demand predictor, which alternates with the learner, causes a snapshot only when it predicts, and then uses the last
 * timestamp. */
TEST(on_demand_predictors_publish_snapshots_when_they_predict)
{
    OWNED_BY(free_world) world m = tiny_model(1);
    sfp__learner_options o = small_options(&m, 0, 0);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    sfp_predictor *lazy = make_predictor(l, m.pool, 4), *eager = NULL;
    batch b = make_batch(S, 4, 0, 3, 9);
    int32_t label[4], again[4];
    sfp__predictions answer = {0};
    sfp__predictor_on_demand(lazy);
    sfp__predictor_on_demand(lazy); /* a second call changes nothing */
    for (uint64_t t = 0; t < 6; t++) {
        (void)offer(l, 0, 3, t);
        assert_int_equal(l->snapshots.current->t, t >= 4 ? 4 : t & ~(uint64_t)1); /* from the last prediction */
        if (t % 2 && t < 4) {
            MUST(predict_into(lazy, 4, images_of(&b), NULL, NULL, label, NULL, 0, &answer, &err));
            assert_int_equal(answer.t, t + 1);
        }
    }
    MUST(sfp__predictor_create(l, m.pool, 4, &eager, &err)); /* sees the current state, regardless of earlier predictions */
    MUST(predict_into(eager, 4, images_of(&b), NULL, NULL, again, NULL, 0, &answer, &err));
    assert_int_equal(answer.t, 6);
    MUST(predict_into(lazy, 4, images_of(&b), NULL, NULL, label, NULL, 0, &answer, &err));
    assert_int_equal(answer.t, 6);
    assert_memory_equal(label, again, sizeof label);
    (void)offer(l, 0, 3, 6);
    assert_int_equal(l->snapshots.current->t, 7); /* there is a predictor that may run at any time */
    sfp__predictor_free(eager);
    (void)offer(l, 0, 3, 7);
    assert_int_equal(l->snapshots.current->t, 7);
    sfp__predictor_free(lazy);
}

/* ---------------------------------------------------------------- snapshots */

enum { THREADS = 4, TIMESTAMPS = 40, MAX_CLASSES = 12, RECORDS = 3000, MAX_IMAGES = 3 };

typedef struct record {
    uint64_t t;
    int first, n, classes;
    int32_t label[MAX_IMAGES];
    float logp[MAX_IMAGES * MAX_CLASSES];
} record;

typedef struct client {
    pthread_t thread;
    sfp_predictor *p;
    const uint8_t **rgb; /* (IMAGES) */
    atomic_bool *stop;
    atomic_int *answers; /* number of predictions of all threads */
    uint64_t seed;
    record *records; /* (RECORDS) */
    int count;
    sfp_status status;
    sfp_error err;
} client;

static void *run_client(void *ctx)
{
    client *a = ctx;
    sfp__rng rng = sfp__rng_init(a->seed, 0);
    while (!atomic_load(a->stop) && !a->status) {
        record *r = &a->records[a->count < RECORDS ? a->count : RECORDS - 1];
        *r = (record){.n = 1 + (int)sfp__rng_below(&rng, MAX_IMAGES)};
        r->first = (int)sfp__rng_below(&rng, (uint32_t)(IMAGES - r->n));
        sfp__predictions answer = {0};
        a->status = predict_into(a->p, r->n, a->rgb + r->first, NULL, NULL, r->label, r->logp, MAX_CLASSES, &answer, &a->err);
        r->t = answer.t;
        r->classes = answer.classes;
        a->count += a->count < RECORDS;
        atomic_fetch_add(a->answers, 1);
    }
    return NULL;
}

/* Returns the state of the learner after timestamp t. */
typedef struct copy {
    values v;
    int start, open, classes;
    uint8_t seen[MAX_CLASSES];
} copy;

static copy take_copy(sfp__learner *l)
{
    copy c = {.v = take_values(l), .start = l->fp->frozen_end, .open = l->fp->active_end, .classes = sfp__learner_classes(l)};
    assert_true(c.classes <= MAX_CLASSES);
    for (int i = 0; i < c.classes; i++)
        c.seen[i] = sfp__learner_seen(l, i);
    return c;
}

/* Sets another learner to the state of the first after timestamp t. */
static void put_copy(sfp__learner *l, const copy *c, uint64_t t)
{
    int count;
    MUST(sfp__learner_add_classes(l, c->classes, &err));
    sfp__param **p = sfp__fp_params(l->fp, &count);
    for (size_t at = 0, i = 0; i < (size_t)count; i++) {
        size_t n = (size_t)p[i]->rows * p[i]->width;
        memcpy(p[i]->data, c->v.x + at, n * sizeof(float));
        at += n;
    }
    MUST(sfp__fp_restore(l->fp, 0, c->start, c->open, &err));
    memcpy(l->classes.seen, c->seen, (size_t)c->classes);
    l->counts.timestamps = t;
    MUST(sfp__learner_publish(l, &err));
}

/* Four threads predict while the learner trains, grows and receives new classes. Each result must equal, to the last bit, that of
 * the state after the timestamp it names. */
static void check_snapshots(sfp__fp_kind kind, int times)
{
    OWNED_BY(free_world) world m = tiny_model(2);
    sfp__learner_options o = small_options(&m, 0, 0);
    o.fp.kind = kind;
    o.fp.span = 3;
    o.adam.lr = 0.02f;
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o), *again = make_learner(&m, &o);
    batch b = make_batch(S, IMAGES, 0, 8, 999);
    const uint8_t *rgb[IMAGES];
    memcpy(rgb, images_of(&b), sizeof rgb);
    atomic_bool stop = false;
    atomic_int predicted = 0;
    client clients[THREADS] = {0};
    sfp__thread_pool *pools[THREADS];
    copy copies[TIMESTAMPS + 1];
    for (int i = 0; i < THREADS; i++) {
        MUST(sfp__thread_pool_create(1, &pools[i], &err));
        clients[i] = (client){.p = make_predictor(l, pools[i], MAX_IMAGES),
                              .rgb = rgb,
                              .stop = &stop,
                              .answers = &predicted,
                              .seed = (uint64_t)i,
                              .records = kept_calloc(RECORDS, sizeof(record))};
    }
    copies[0] = take_copy(l);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]), 0);
    for (uint64_t t = 0; t < (uint64_t)times; t++) {
        int highest = 2 + (int)t / 5;
        (void)offer(l, 0, highest < 9 ? highest : 9, t);
        copies[t + 1] = take_copy(l);
        /* every other state waits until a thread has used it, even on a busy machine; the others pass at full speed */
        int before = atomic_load(&predicted);
        for (double begin = sfp__monotonic_seconds();
             t % 2 && atomic_load(&predicted) < before + 2 * THREADS && sfp__monotonic_seconds() < begin + 20;)
            (void)sched_yield();
    }
    atomic_store(&stop, true);
    int answers = 0, states = 0, used[TIMESTAMPS + 1] = {0};
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(clients[i].thread, NULL), 0);
        if (clients[i].status != SFP_OK)
            fail_msg("%s", clients[i].err.message);
    }
    sfp_predictor *p = make_predictor(again, pools[0], MAX_IMAGES);
    for (uint64_t t = 0; t <= (uint64_t)times; t++) {
        put_copy(again, &copies[t], t);
        for (int i = 0; i < THREADS; i++)
            for (int k = 0; k < clients[i].count; k++) {
                const record *r = &clients[i].records[k];
                record want = {0};
                sfp__predictions answer = {0};
                assert_true(k == 0 || r->t >= clients[i].records[k - 1].t); /* timestamps never decrease */
                if (r->t != t)
                    continue;
                assert_int_equal(r->classes, copies[t].classes);
                MUST(predict_into(p, r->n, rgb + r->first, NULL, NULL, want.label, want.logp, MAX_CLASSES, &answer, &err));
                if (memcmp(want.logp, r->logp, sizeof want.logp) != 0 || memcmp(want.label, r->label, sizeof want.label) != 0)
                    fail_msg("thread %d, answer %d: not the one of t = %d", i, k, (int)t);
                for (int q = 0; q < r->n; q++)
                    assert_true(t == 0 ? r->label[q] == -1 : r->label[q] >= 0 && copies[t].seen[r->label[q]]);
                answers++;
                used[t]++;
            }
        states += used[t] > 0;
    }
    int n = 0;
    for (int i = 0; i < THREADS; i++)
        n += clients[i].count;
    assert_int_equal(n, answers); /* every prediction was checked */
    print_message("%d answers from %d of %d states\n", n, states, times + 1);
    assert_true(states >= times / 2);
    for (int i = 0; i < THREADS; i++)
        sfp__predictor_free(clients[i].p);
    sfp__predictor_free(p);
    for (int i = 0; i < THREADS; i++)
        sfp__thread_pool_free(pools[i]);
}

TEST(each_prediction_uses_one_consistent_snapshot)
{
    check_snapshots(SFP__FP_CODA, TIMESTAMPS);
    check_snapshots(SFP__FP_L2P, 12);
    check_snapshots(SFP__FP_DUALPROMPT, 12);
}
