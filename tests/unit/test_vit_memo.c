/* Passes with a feature cache (model/vit_memo.h) compute the same bits as passes without, and are charged the time of the real
 * passes. */
#include "model/vit_memo.h"

#include <sqlite3.h>
#include <unistd.h>

#include "base/monotonic.h"
#include "model/vit_internal.h"
#include "predict.h"
#include "temp_directory.h"
#include "test.h"
#include "test_learner_fixture.h"

enum { S = 16, D = 32, N = 23 };

AROUND_EACH(make_directory, remove_directory)

static sfp__time_source measured; /* of memos whose passes are charged */

static sfp__vit_memo *make_memo_of(const world *m, int taps, bool charged)
{
    static sfp__time_source paused = {.paused = true};
    const sfp__vit_memo_options o = {
        .directory = in_directory("cache"), .max_bytes = 1 << 30, .taps = taps, .time = charged ? &measured : &paused};
    sfp__vit_memo *memo = NULL;
    MUST(sfp__vit_memo_create(m->vit, &o, &memo, &err));
    return memo;
}

static sfp__vit_memo *make_memo(const world *m)
{
    return make_memo_of(m, 0, true);
}

static const float **make_inputs(uint64_t seed)
{
    static const float *xs[N];
    sfp__rng rng = sfp__rng_init(seed, 1);
    for (int i = 0; i < N; i++) {
        float *x = floats(3 * S * S);
        for (int k = 0; k < 3 * S * S; k++)
            x[k] = (float)sfp__rng_normal(&rng);
        xs[i] = x;
    }
    return xs;
}

/* Runs a query pass over samples [first, first + n). */
static float *queries(sfp__vit_plan *p, const float *const *xs, int first, int n, sfp__vit_memo *memo)
{
    float *out = floats((size_t)(n * D));
    const sfp__vit_pass pass = {.b = n, .xs = xs + first, .feature = out, .memo = memo};
    MUST(sfp__vit_run(p, &pass, &err));
    return out;
}

/* Runs a pass that computes only taps, those of the last three blocks. */
static float *last_taps(sfp__vit_plan *p, const float *const *xs, int first, int n, sfp__vit_memo *memo)
{
    float *out = floats((size_t)(n * 3 * D));
    const sfp__vit_pass pass = {.b = n, .xs = xs + first, .tap = out, .taps = 3, .memo = memo};
    MUST(sfp__vit_run(p, &pass, &err));
    return out;
}

static float *embeddings(sfp__vit_plan *p, const float *const *xs, int n, sfp__vit_memo *memo)
{
    float *out = floats((size_t)(n * D));
    const sfp__vit_pass pass = {.b = n, .xs = xs, .embed_only = true, .mean_embed = out, .memo = memo};
    MUST(sfp__vit_run(p, &pass, &err));
    return out;
}

static sfp__vit_plan *make_plan(const world *m)
{
    const sfp__vit_plan_options o = {.mode = SFP__VIT_FORWARD};
    sfp__vit_plan *p = NULL;
    MUST(sfp__vit_plan_create(m->vit, m->pool, &o, &p, &err));
    return p;
}

TEST(values_from_the_cache_have_the_bits_of_every_division_into_batches)
{
    OWNED_BY(free_world) world m = make_model(S, 4, D, 6, 2);
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = make_plan(&m);
    const float **xs = make_inputs(1);
    for (int round = 0; round < 3; round++) {
        OWNED_PTR(sfp__vit_memo_free) sfp__vit_memo *memo = make_memo_of(&m, 0, false);
        for (int n = 1; n <= N; n += 1 + n / 4)
            for (int first = 0; first + n <= N; first += 3) {
                const float *want = queries(plan, xs, first, n, NULL), *got = queries(plan, xs, first, n, memo);
                assert_memory_equal(got, want, (size_t)(n * D) * sizeof *want);
                assert_memory_equal(last_taps(plan, xs, first, n, memo), last_taps(plan, xs, first, n, NULL),
                                    (size_t)(n * 3 * D) * sizeof *want);
            }
        assert_memory_equal(embeddings(plan, xs, N, memo), embeddings(plan, xs, N, NULL), N * D * sizeof(float));
        sfp__vit_memo_stats stats = sfp__vit_memo_get_stats(memo);
        assert_true(stats.hits > 0);
        assert_true(round == 0 ? stats.misses >= 2 * N : stats.misses == 0);
    }
}

TEST(a_micro_batch_of_which_only_some_values_are_known_is_computed)
{
    OWNED_BY(free_world) world m = make_model(S, 4, D, 3, 2);
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = make_plan(&m);
    OWNED_PTR(sfp__vit_memo_free) sfp__vit_memo *memo = make_memo_of(&m, 0, false);
    const float **xs = make_inputs(4);
    for (int i = 0; i < N; i += 2)
        (void)queries(plan, xs, i, 1, memo);
    const float *want = queries(plan, xs, 0, N, NULL), *got = queries(plan, xs, 0, N, memo);
    assert_memory_equal(got, want, N * D * sizeof *want);
    sfp__vit_memo_stats stats = sfp__vit_memo_get_stats(memo);
    assert_true(stats.misses >= N); /* more, if the bits depend on the size of a micro-batch or the place in it */
    assert_int_equal(stats.hits + stats.misses, N + (N + 1) / 2);
}

TEST(another_backbone_image_or_input_has_other_values)
{
    OWNED_BY(free_world) world a = make_model(S, 4, D, 3, 1);
    OWNED_BY(free_world) world b = make_model(S, 4, D, 3, 1);
    b.vit->weights.blocks[2].fc2_b[D - 1] += 1e-3f;
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan_a = make_plan(&a), *plan_b = make_plan(&b);
    OWNED_PTR(sfp__vit_memo_free) sfp__vit_memo *memo_a = make_memo(&a);
    const float **xs = make_inputs(2);
    (void)queries(plan_a, xs, 0, N, memo_a);
    OWNED_PTR(sfp__vit_memo_free) sfp__vit_memo *memo_b = make_memo(&b);
    (void)queries(plan_b, xs, 0, N, memo_b);
    assert_int_equal(sfp__vit_memo_get_stats(memo_b).hits, 0);
    ((float *)xs[4])[77] += 1e-6f; /* one pixel */
    (void)queries(plan_b, xs, 0, N, memo_b);
    assert_int_equal(sfp__vit_memo_get_stats(memo_b).hits, N - 1);
}

TEST(values_that_are_read_are_charged_the_time_of_those_that_were_computed)
{
    OWNED_BY(free_world) world m = make_model(64, 4, 64, 6, 1); /* a pass takes milliseconds */
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = make_plan(&m);
    float *x = filled(3 * 64 * 64, 0.5f), *out = floats(40 * 64);
    const float *xs[40];
    for (int i = 0; i < 40; i++) {
        xs[i] = memcpy(floats(3 * 64 * 64), x, 3 * 64 * 64 * sizeof *x);
        ((float *)xs[i])[i] = 1;
    }
    for (int round = 0; round < 2; round++) {
        OWNED_PTR(sfp__vit_memo_free) sfp__vit_memo *memo = make_memo(&m);
        OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *fresh = make_plan(&m);
        const sfp__vit_pass pass = {.b = 40, .xs = xs, .feature = out, .memo = memo};
        MUST(sfp__vit_run(fresh, &pass, &err));
        const sfp__vit_memo_cost computed = fresh->memo[SFP__MEMO_QUERY];
        assert_true(computed.computed > 0 && computed.computed <= 40);
        double begin = sfp__monotonic_seconds(), before = measured.saved;
        MUST(sfp__vit_run(fresh, &pass, &err));
        double real = sfp__monotonic_seconds() - begin, charged = measured.saved - before;
        /* The second pass reads everything. With the time that this took, it is charged that of passes that computed the values. */
        double saved = 40 * computed.seconds / (double)computed.computed;
        assert_true(charged < saved && charged + real >= saved * (1 - 1e-9));
        assert_int_equal(sfp__vit_memo_get_stats(memo).hits, round == 0 ? 40 : 80);
    }
    (void)plan;
}

TEST(a_paused_cache_is_not_used)
{
    OWNED_BY(free_world) world m = make_model(S, 4, D, 2, 1);
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = make_plan(&m);
    OWNED_PTR(sfp__vit_memo_free) sfp__vit_memo *memo = make_memo(&m);
    const float **xs = make_inputs(3);
    assert_false(sfp__vit_memo_set_paused(memo, true));
    (void)queries(plan, xs, 0, N, memo);
    (void)embeddings(plan, xs, N, memo);
    assert_true(sfp__vit_memo_set_paused(memo, false));
    sfp__vit_memo_stats stats = sfp__vit_memo_get_stats(memo);
    assert_int_equal(stats.hits + stats.misses, 0);
}

/* -------------------------------------------------------------------- taps */

enum { DEPTH = 6, ROWS = 2, QUERIES = 9 };

/* Runs a pass over all inputs that computes taps: one without prompts or, if `prompts` is not NULL, one that computes the first
 * QUERIES queries. Returns the queries, the taps with the mean tap and the features: (N, (taps + 3) * D) floats in three parts. */
static float *tapped(const world *m, sfp__vit_plan_options o, const sfp__vit_prompt *prompts, const float *const *xs, int taps,
                     sfp__vit_memo *memo)
{
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
    float *out = filled((size_t)N * (size_t)(taps + 3) * D, 3);
    sfp__vit_pass pass = {
        .b = N, .xs = xs, .feature = out + N * D, .tap = out + 2 * N * D, .taps = taps, .tap_mean = true, .memo = memo};
    if (prompts) {
        o.queries = true;
        o.prefix_rows = ROWS;
        pass.prompts = prompts;
        pass.query = out;
        pass.queries = QUERIES;
    }
    MUST(sfp__vit_plan_create(m->vit, m->pool, &o, &plan, &err));
    MUST(sfp__vit_run(plan, &pass, &err));
    return out;
}

TEST(taps_from_the_cache_have_the_same_bits_whatever_their_number)
{
    static const sfp__vit_plan_options plans[] = {{0}, {.all_tokens = true}};
    OWNED_BY(free_world) world m = make_model(S, 4, D, DEPTH, 2);
    const float **xs = make_inputs(5);
    sfp__rng rng = sfp__rng_init(6, 0);
    float *prefix = floats((size_t)N * ROWS * D);
    for (int i = 0; i < N * ROWS * D; i++)
        prefix[i] = (float)sfp__rng_normal(&rng);
    const sfp__vit_prompt prompts[DEPTH] = {[2] = {.rows = ROWS, .k = prefix, .v = prefix}};
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++)
        for (int prompted = 0; prompted < 2; prompted++)
            for (int taps = 1; taps <= DEPTH / 2; taps++) {
                const sfp__vit_prompt *with = prompted ? prompts : NULL;
                OWNED_PTR(sfp__vit_memo_free) sfp__vit_memo *memo = make_memo_of(&m, 0, false);
                const float *want = tapped(&m, plans[p], with, xs, taps, NULL);
                for (int round = 0; round < 2; round++)
                    assert_memory_equal(tapped(&m, plans[p], with, xs, taps, memo), want,
                                        (size_t)N * (size_t)(taps + 3) * D * sizeof *want);
                sfp__vit_memo_stats stats = sfp__vit_memo_get_stats(memo);
                assert_true(stats.hits >= (prompted ? QUERIES : N));
                if (taps > 1) /* a smaller number of taps has added the entries */
                    assert_int_equal(stats.misses, 0);
            }
}

TEST(more_taps_than_an_entry_has_are_computed)
{
    OWNED_BY(free_world) world m = make_model(S, 4, D, DEPTH, 1);
    const float **xs = make_inputs(7);
    const float *want = tapped(&m, (sfp__vit_plan_options){0}, NULL, xs, DEPTH, NULL);
    static const int memos[] = {0, DEPTH, DEPTH};
    for (size_t i = 0; i < sizeof memos / sizeof *memos; i++) {
        OWNED_PTR(sfp__vit_memo_free) sfp__vit_memo *memo = make_memo_of(&m, memos[i], false);
        (void)tapped(&m, (sfp__vit_plan_options){0}, NULL, xs, 1, memo);
        uint64_t misses = sfp__vit_memo_get_stats(memo).misses;
        assert_true(i < 2 ? misses == N : misses == 0); /* entries of another number of taps are not shared */
        assert_memory_equal(tapped(&m, (sfp__vit_plan_options){0}, NULL, xs, DEPTH, memo), want,
                            (size_t)N * (DEPTH + 3) * D * sizeof *want);
        assert_int_equal(sfp__vit_memo_get_stats(memo).hits, i == 0 ? 0 : i == 1 ? N : 2 * N);
        assert_int_equal(sfp__vit_memo_get_stats(memo).misses, misses);
    }
    const sfp__vit_memo_options wrong = {
        .directory = in_directory("cache"), .max_bytes = 1, .taps = DEPTH + 1, .time = &measured};
    sfp__vit_memo *none = NULL;
    REFUSED(sfp__vit_memo_create(m.vit, &wrong, &none, &err), SFP_EINVAL, "number of taps is 7, expected 0 to 6");
}

TEST(an_entry_with_a_damaged_tap_is_computed_again)
{
    OWNED_BY(free_world) world m = make_model(S, 4, D, DEPTH, 1);
    const float **xs = make_inputs(8);
    const float *want = tapped(&m, (sfp__vit_plan_options){0}, NULL, xs, 2, NULL);
    for (int round = 0; round < 3; round++) {
        OWNED_PTR(sfp__vit_memo_free) sfp__vit_memo *memo = make_memo_of(&m, 0, false);
        assert_memory_equal(tapped(&m, (sfp__vit_plan_options){0}, NULL, xs, 2, memo), want, (size_t)N * 5 * D * sizeof *want);
        assert_int_equal(sfp__vit_memo_get_stats(memo).misses, round == 0 ? N : round == 1 ? 1 : 0);
        assert_int_equal(sfp__vit_memo_get_stats(memo).cache.damaged, round == 1);
        if (round > 0)
            continue;
        sqlite3 *db = NULL;
        assert_int_equal(sqlite3_open(in_directory("cache/features.db"), &db), SQLITE_OK);
        assert_int_equal(
            sqlite3_exec(db, "UPDATE features SET value = x'01' || substr(value, 2) WHERE rowid = 1", NULL, NULL, NULL),
            SQLITE_OK);
        (void)sqlite3_close(db);
    }
}

/* --------------------------------------------------------------- the learner */

static const char *const systems[][3] = {{"streamfp", "streamfp", NULL}, {"random", "er", NULL},    {"kcenter", "aser", NULL},
                                         {"freesel", "gss", NULL},       {"learnloss", "er", NULL}, {"gradmatch", "camel", NULL},
                                         {"streamfp", "ssd", NULL},      {NULL, NULL, "ranpac"}};

/* Learns for 12 timestamps in two tasks, predicts, and returns the bytes of the state and the predictions. */
static char *learn(const world *m, const char *const system[3], sfp__vit_memo *memo, size_t *size)
{
    sfp__learner_options o = small_options(m, 2, 6);
    o.method = system[2];
    if (!o.method) {
        o.select = system[0];
        o.buffer.method = system[1];
        o.steps = 2;
    }
    o.memo = memo;
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(m, &o);
    OWNED_PTR(sfp__predictor_free) sfp_predictor *p = NULL;
    MUST(sfp__predictor_create(l, m->pool, 0, &p, &err));
    sfp__predictor_set_memo(p, memo);
    for (uint64_t t = 0; t < 12; t++) {
        (void)offer(l, 0, 6, t);
        if (t == 5)
            MUST(sfp__learner_next_task(l, &err));
    }
    const char *path = in_directory("state");
    MUST(sfp__learner_save(l, path, &err));
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *bytes = kept_malloc(1 << 22);
    *size = fread(bytes, 1, 1 << 22, f);
    (void)fclose(f);
    batch b = make_batch(m->S, 13, 0, 6, 100);
    const uint8_t *rgb[13];
    int32_t label[13];
    for (int i = 0; i < 13; i++)
        rgb[i] = b.sample[i].rgb;
    float *logp = (float *)(bytes + (*size + 63) / 64 * 64);
    memset(bytes + *size, 0, (size_t)((char *)logp - (bytes + *size)));
    MUST(predict_into(p, 13, rgb, NULL, NULL, label, logp, 6, NULL, &err));
    *size = (size_t)((char *)(logp + 13 * 6) - bytes);
    return bytes;
}

TEST(learners_and_predictors_compute_the_same_bytes_with_a_cache)
{
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        OWNED_BY(free_world) world m = make_model(S, 4, D, 3, 2);
        size_t want_size, size;
        const char *want = learn(&m, systems[i], NULL, &want_size);
        for (int round = 0; round < 2; round++) {
            OWNED_PTR(sfp__vit_memo_free) sfp__vit_memo *memo = make_memo(&m);
            const char *got = learn(&m, systems[i], memo, &size);
            assert_int_equal(size, want_size);
            if (memcmp(got, want, size) != 0)
                fail_msg("system %zu, round %d: other bytes", i, round);
            if (round == 1)
                assert_int_equal(sfp__vit_memo_get_stats(memo).misses, 0);
            assert_true(sfp__vit_memo_get_stats(memo).hits > 0 || round == 0);
        }
    }
}
