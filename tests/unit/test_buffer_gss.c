/* gss: compares scores with brute force over the groups it drew, and slots and replacements with their exact distribution. */
#include "buffer/buffer.h"

#include "buffer_model_ops.h"
#include "chi_square.h"
#include "test.h"

enum { PARAMS = 5 };

static double naive_cosine(int n, const float *a, const float *b)
{
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return aa == 0 || bb == 0 ? 0 : ab / sqrt(aa) / sqrt(bb);
}

TEST(a_score_equals_the_largest_cosine)
{
    sfp__rng rng = sfp__rng_init(1, 1);
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    MUST(sfp__thread_pool_create(3, &pool, NULL));
    for (int round = 0; round < 3000; round++) {
        int n = 1 + (int)sfp__rng_below(&rng, 30), groups = 1 + (int)sfp__rng_below(&rng, SFP__GSS_GROUPS);
        float group[SFP__GSS_GROUPS * 30], g[30];
        double want = -INFINITY;
        for (int k = 0; k < n; k++)
            g[k] = round % 50 ? (float)sfp__rng_normal(&rng) : 0;
        for (int i = 0; i < groups; i++) {
            for (int k = 0; k < n; k++)
                group[i * n + k] = sfp__rng_below(&rng, 200) ? (float)sfp__rng_normal(&rng) : round % 2 ? NAN : 0;
            double c = naive_cosine(n, group + i * n, g);
            want = isnan(c) ? want : fmax(want, c);
            sfp__gss_unit((size_t)n, group + i * n);
        }
        float got = sfp__gss_score((size_t)n, groups, group, g, NULL);
        assert_true(fabs((double)got - (isinf(want) ? 1 : want)) < 1e-6);
        assert_true(sfp__gss_score((size_t)n, groups, group, g, pool) == got);
    }
}

TEST(all_complete_groups_are_used)
{
    const struct {
        int filled, size, groups;
    } list[] = {{0, 0, 0},   {1, 1, 1},     {9, 9, 1},     {10, 10, 1},   {19, 10, 1},
                {20, 10, 2}, {102, 10, 10}, {199, 10, 19}, {5000, 10, 20}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        assert_int_equal(sfp__gss_group_size(list[i].filled), list[i].size);
        assert_int_equal(sfp__gss_groups(list[i].filled), list[i].groups);
    }
}

TEST(weights_and_probabilities_equal_the_formulas)
{
    double w[4];
    sfp__gss_weights(4, (const float[]){0.5f, -1, 0, NAN}, w);
    const double want[] = {1.5 / 2.01, 0, 1 / 2.01, 2 / 2.01};
    for (int i = 0; i < 4; i++)
        assert_true(fabs(w[i] - want[i]) < 1e-12);
    assert_true(fabs(sfp__gss_replace(0.5f, -0.5f) - 0.75) < 1e-12);
    assert_true(sfp__gss_replace(-1, 0) == 0);
    assert_true(sfp__gss_replace(0, -1) == 1);
    assert_true(sfp__gss_replace(-1, -1) == 0.5);
    assert_true(sfp__gss_replace(INFINITY, 1) == 0.5);
}

/* ---------------------------------------------------------------------- update */

/* The gradients of samples with ids from 100000 on have the opposite direction. */
static void slope(uint64_t id, int n, float *out)
{
    sfp__rng rng = sfp__rng_init(id, 3);
    for (int i = 0; i < n; i++)
        out[i] = (float)(0.3 * sfp__rng_normal(&rng)) + (i ? 0 : id >= 100000 ? -1.0f : 1.0f);
}

static float *scores_of(sfp__buffer *b)
{
    sfp__state_tensor p = {0};
    assert_int_equal(b->method->state_tensors(b->state, 0, &p), 1);
    assert_string_equal(p.name, "score");
    assert_int_equal(p.shape[0], b->opt.slots);
    return p.data;
}

static test_model_ops make_model_ops(void)
{
    return (test_model_ops){.model = {.dim = 3, .classes = 5, .params = PARAMS}, .row = slope, .fail_at = -1};
}

static void mean_slope(const test_model_ops *t, const uint64_t *slot_id, int n, const int *sample, float *out)
{
    memset(out, 0, PARAMS * sizeof *out);
    for (int i = 0; i < n; i++) {
        float one[PARAMS];
        slope(sample[i] < t->batch->b ? t->batch->id[sample[i]] : slot_id[sample[i] - t->batch->b], PARAMS, one);
        for (int k = 0; k < PARAMS; k++)
            out[k] += one[k] / (float)n;
    }
}

/* Checks the groups that were requested first: complete and of different slots. Returns their gradients (groups, PARAMS) and
 * number. */
static int check_groups(const test_model_ops *t, const buffer_image *before, float *group)
{
    int size = sfp__gss_group_size(before->filled), groups = sfp__gss_groups(before->filled);
    bool used[CALL_MAX] = {false};
    assert_true(groups == 0 || (t->sizes[0] == size && t->counts[0] == groups * size));
    for (int i = 0; i < groups; i++) {
        for (int k = 0; k < size; k++) {
            int slot = t->samples[i * size + k] - t->batch->b;
            assert_in_range(slot, 0, before->filled - 1);
            assert_false(used[slot]);
            used[slot] = true;
        }
        mean_slope(t, before->id, size, t->samples + i * size, group + i * PARAMS);
    }
    return groups;
}

static float best_cosine(int groups, const float *group, const float *g)
{
    double best = -INFINITY;
    for (int i = 0; i < groups; i++)
        best = fmax(best, naive_cosine(PARAMS, group + i * PARAMS, g));
    return (float)best;
}

TEST(samples_are_stored_and_replaced_with_their_scores)
{
    int replaced = 0, refused = 0;
    sfp__rng rng = sfp__rng_init(2, 2);
    for (int round = 0; round < 60; round++) {
        int m = round % 3 ? 1 + (int)sfp__rng_below(&rng, 40) : 1 + (int)sfp__rng_below(&rng, 4), max_batch = 8;
        OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("gss", m, 3, 4, max_batch);
        test_model_ops t = make_model_ops();
        float *score = scores_of(b), was[64];
        for (int at = 0; at < 16; at++) {
            int n = 1 + (int)sfp__rng_below(&rng, (uint32_t)max_batch);
            test_batch x = batch_make(n, 3, 4, (at % 3 ? 100000u : 0u) + (uint64_t)(round * 1000 + at * 10), 0);
            buffer_image before = image_of(b);
            memcpy(was, score, (size_t)m * sizeof *was);
            sfp__buffer_change c = {0};
            MUST(update_with_model(b, &x, &t, &rng, &c, NULL));
            check_change(&before, &x, &c, b);
            float group[SFP__GSS_GROUPS * PARAMS], g[PARAMS];
            int groups = check_groups(&t, &before, group);
            if (before.filled < m) {
                assert_int_equal(c.stored, n < m - before.filled ? n : m - before.filled);
                assert_int_equal(c.nu, 0);
                assert_int_equal(t.calls, before.filled ? 2 : 0);
                assert_true(!before.filled || (t.sizes[1] == 1 && t.counts[1] == c.stored));
                for (int i = 0; i < c.stored; i++) {
                    mean_slope(&t, before.id, 1, &i, g);
                    double want = before.filled ? (double)best_cosine(groups, group, g) : 0.1;
                    assert_true(fabs((double)score[before.filled + i] - want) < 1e-5);
                }
            } else {
                int all[8] = {0, 1, 2, 3, 4, 5, 6, 7}, compete = n < m ? n : m;
                mean_slope(&t, before.id, n, all, g);
                bool differs = best_cosine(groups, group, g) < 0;
                assert_int_equal(t.calls, 2);
                assert_true(t.sizes[1] == 1 && t.counts[1] == n);
                assert_true(differs || c.nu == 0);
                refused += !differs;
                replaced += c.nu;
                for (int i = 0; i < c.nu; i++) {
                    assert_true(c.retained[i] < compete);
                    mean_slope(&t, before.id, 1, &c.retained[i], g);
                    was[c.replaced[i]] = best_cosine(groups, group, g);
                }
                for (int i = 0; i < m; i++)
                    assert_true(fabs((double)score[i] - (double)was[i]) < 1e-5);
            }
        }
    }
    assert_true(replaced > 50 && refused > 50); /* both occur, otherwise nothing was tested */
}

/* Four slots with given scores and two samples: 5 x 5 outcomes, each with its exact probability. One group has all slots, so that
 * the scores of the samples are always the same. */
TEST(slots_are_drawn_and_replaced_with_the_right_probabilities)
{
    enum { M = 4, B = 2, ROUNDS = 40000 };
    static const float given[M] = {0.9f, -0.4f, 0.3f, -0.8f};
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("gss", M, 3, 4, M);
    test_batch fill = batch_make(M, 3, 4, 1, 0), x = batch_make(B, 3, 4, 100001, 0);
    test_model_ops t = make_model_ops();
    sfp__rng rng = sfp__rng_init(3, 3);
    long count[(M + 1) * (M + 1)] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        MUST(sfp__buffer_restore(b, 0, 0, NULL));
        MUST(update_with_model(b, &fill, &t, &rng, NULL, NULL));
        memcpy(scores_of(b), given, sizeof given);
        sfp__buffer_change c = {0};
        MUST(update_with_model(b, &x, &t, &rng, &c, NULL));
        int to[B] = {M, M};
        for (int i = 0; i < c.nu; i++)
            to[c.retained[i]] = c.replaced[i];
        count[to[0] * (M + 1) + to[1]]++;
    }
    float group[PARAMS], g[PARAMS], fresh[B];
    mean_slope(&t, fill.id, M, (const int[]){B, B + 1, B + 2, B + 3}, group);
    for (int i = 0; i < B; i++) {
        mean_slope(&t, fill.id, 1, &i, g);
        fresh[i] = best_cosine(1, group, g);
    }
    double w[M], total = 0, probability[(M + 1) * (M + 1)] = {0};
    for (int i = 0; i < M; i++)
        total += w[i] = ((double)given[i] - (double)given[3]) / ((double)given[0] - (double)given[3] + 0.01);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < M; j++) {
            if (i == j || w[i] == 0 || w[j] == 0)
                continue;
            double drawn = w[i] / total * w[j] / (total - w[i]);
            double p = ((double)given[i] + 1) / ((double)given[i] + 1 + (double)fresh[0] + 1);
            double q = ((double)given[j] + 1) / ((double)given[j] + 1 + (double)fresh[1] + 1);
            probability[i * (M + 1) + j] += drawn * p * q;
            probability[i * (M + 1) + M] += drawn * p * (1 - q);
            probability[M * (M + 1) + j] += drawn * (1 - p) * q;
            probability[M * (M + 1) + M] += drawn * (1 - p) * (1 - q);
        }
    check_distribution("replacements", (M + 1) * (M + 1), count, probability);
}

/* Scores may be any number, because they are read from checkpoints. */
TEST(any_saved_scores_are_handled)
{
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("gss", 5, 3, 4, 8);
    test_model_ops t = make_model_ops();
    sfp__rng rng = sfp__rng_init(4, 4);
    for (int round = 0; round < 50; round++) {
        test_batch x = batch_make(6, 3, 4, (round ? 100000u : 0u) + (uint64_t)round * 10, 0);
        const float odd[] = {NAN, INFINITY, -INFINITY, 1e30f, -1e30f};
        for (int i = 0; i < 5; i++)
            scores_of(b)[i] = odd[(round + i * i) % 5];
        buffer_image before = image_of(b);
        sfp__buffer_change c = {0};
        MUST(update_with_model(b, &x, &t, &rng, &c, NULL));
        check_change(&before, &x, &c, b);
    }
}

TEST(failed_updates_change_nothing)
{
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("gss", 25, 3, 4, 25);
    test_model_ops t = make_model_ops();
    sfp__rng rng = sfp__rng_init(5, 5);
    test_batch x = batch_make(25, 3, 4, 0, 0), y = batch_make(4, 3, 4, 100000, 0);
    MUST(update_with_model(b, &x, &t, &rng, NULL, &err));
    float was[25];
    memcpy(was, scores_of(b), sizeof was);
    for (t.fail_at = 0; t.fail_at < 2; t.fail_at++) { /* groups, samples */
        check_failed_update(b, &y, &t, &rng);
        assert_memory_equal(scores_of(b), was, sizeof was);
    }
    t.fail_at = -1;
    check_failed_allocations(b, &x, &y, &t);
}
