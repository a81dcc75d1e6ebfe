/* Compares KNN-Shapley values with their two definitions (weighted subsets, orders of arrival), and aser's update and retrieval
 * with brute force over the sets they drew. The distribution of the sets of an update is tested too. */
#include "buffer/buffer.h"

#include "buffer_model_ops.h"
#include "chi_square.h"
#include "test.h"

enum { MAX_POINTS = 12 };

/* Returns v(S), where S is a set of positions by distance. */
static double worth(unsigned set, int n, int k, const bool *same)
{
    int taken = 0, right = 0;
    for (int i = 0; i < n && taken < k; i++) {
        if (!(set >> i & 1))
            continue;
        taken++;
        right += same[i];
    }
    return (double)right / k;
}

static double factorial(int n)
{
    return n < 2 ? 1 : n * factorial(n - 1);
}

/* Returns the sum over sets without i of |S|! (n-|S|-1)! / n! (v(S + i) - v(S)). */
static void by_subsets(int n, int k, const bool *same, double *value)
{
    for (int i = 0; i < n; i++) {
        value[i] = 0;
        for (unsigned set = 0; set < 1u << n; set++) {
            if (set >> i & 1)
                continue;
            int size = __builtin_popcount(set);
            double weight = factorial(size) * factorial(n - size - 1) / factorial(n);
            value[i] += weight * (worth(set | 1u << i, n, k, same) - worth(set, n, k, same));
        }
    }
}

/* Sums the increase of v by each point over all orders that begin with the points of `set`. */
static void arrive(unsigned set, int n, int k, const bool *same, double *gain)
{
    for (int i = 0; i < n; i++) {
        if (set >> i & 1)
            continue;
        int later = n - __builtin_popcount(set) - 1;
        gain[i] += factorial(later) * (worth(set | 1u << i, n, k, same) - worth(set, n, k, same));
        arrive(set | 1u << i, n, k, same, gain);
    }
}

TEST(values_equal_both_definitions)
{
    sfp__rng rng = sfp__rng_init(1, 1);
    for (int round = 0; round < 4000; round++) {
        int n = 1 + (int)sfp__rng_below(&rng, 9), k = 1 + (int)sfp__rng_below(&rng, 5);
        bool same[MAX_POINTS];
        double got[MAX_POINTS], want[MAX_POINTS], gain[MAX_POINTS] = {0}, sum = 0;
        for (int i = 0; i < n; i++)
            same[i] = sfp__rng_below(&rng, 2);
        sfp__knn_shapley(n, k, same, got);
        by_subsets(n, k, same, want);
        if (n <= 5)
            arrive(0, n, k, same, gain);
        for (int i = 0; i < n; i++) {
            assert_true(fabs(got[i] - want[i]) < 1e-12);
            assert_true(n > 5 || fabs(got[i] - gain[i] / factorial(n)) < 1e-12);
            sum += got[i];
        }
        assert_true(fabs(sum - worth((1u << n) - 1, n, k, same)) < 1e-12);
    }
}

/* ------------------------------------------------------------------------ sums */

/* Distances of small integers are exact, so ties are real. */
static void sum_by_definition(int k, int dim, const float *x, const int32_t *label, int n, int tests, const int *test,
                              double *sum)
{
    int play[MAX_POINTS], players = 0;
    for (int i = 0; i < n; i++) {
        bool finite = true;
        for (int d = 0; d < dim; d++)
            finite = finite && isfinite(x[i * dim + d]);
        sum[i] = finite ? 0 : -INFINITY;
        if (finite)
            play[players++] = i;
    }
    for (int t = 0; t < tests; t++) {
        double far[MAX_POINTS] = {0};
        bool finite = true, same[MAX_POINTS];
        int order[MAX_POINTS], done = 0;
        for (int i = 0; i < players; i++)
            for (int d = 0; d < dim; d++) {
                finite = finite && isfinite(x[test[t] * dim + d]);
                far[i] += pow((double)x[play[i] * dim + d] - (double)x[test[t] * dim + d], 2);
            }
        if (!finite)
            continue;
        for (int i = 0; i < players; i++) { /* insertion sort is stable, so the lower index precedes on ties */
            int at = done++;
            for (; at > 0 && far[order[at - 1]] > far[i]; at--)
                order[at] = order[at - 1];
            order[at] = i;
        }
        double value[MAX_POINTS];
        for (int i = 0; i < players; i++)
            same[i] = label[play[order[i]]] == label[test[t]];
        by_subsets(players, k, same, value);
        for (int i = 0; i < players; i++)
            sum[play[order[i]]] += value[i];
    }
}

static void shapley_sum(int k, int dim, const float *x, const int32_t *label, int n, int tests, const int *test, double *sum)
{
    int finite[MAX_POINTS], order[MAX_POINTS];
    float near[MAX_POINTS];
    bool same[MAX_POINTS];
    double value[MAX_POINTS];
    const sfp__shapley_game g = {.k = k,
                                 .dim = dim,
                                 .x = x,
                                 .label = label,
                                 .n = n,
                                 .tests = tests,
                                 .test = test,
                                 .finite = finite,
                                 .order = order,
                                 .near = near,
                                 .same = same,
                                 .value = value};
    sfp__knn_shapley_sum(&g, sum);
}

TEST(sums_equal_the_definition)
{
    sfp__rng rng = sfp__rng_init(2, 1);
    for (int round = 0; round < 2000; round++) {
        int n = 1 + (int)sfp__rng_below(&rng, 6), rows = n + (int)sfp__rng_below(&rng, 4), dim = 1 + (int)sfp__rng_below(&rng, 3);
        int tests = 1 + (int)sfp__rng_below(&rng, 4), test[MAX_POINTS];
        float x[MAX_POINTS * 3];
        int32_t label[MAX_POINTS];
        double got[MAX_POINTS], want[MAX_POINTS];
        for (int i = 0; i < rows * dim; i++)
            x[i] = sfp__rng_below(&rng, 40) ? (float)sfp__rng_below(&rng, 5) : round % 2 ? NAN : -INFINITY;
        for (int i = 0; i < rows; i++)
            label[i] = (int32_t)sfp__rng_below(&rng, 3);
        for (int i = 0; i < tests; i++)
            test[i] = (int)sfp__rng_below(&rng, (uint32_t)rows);
        shapley_sum(3, dim, x, label, n, tests, test, got);
        sum_by_definition(3, dim, x, label, n, tests, test, want);
        for (int i = 0; i < n; i++)
            assert_true(isinf(want[i]) ? got[i] == want[i] : fabs(got[i] - want[i]) < 1e-12);
    }
}

/* ---------------------------------------------------------------------- update */

static void small_integers(uint64_t id, int n, float *out)
{
    sfp__rng rng = sfp__rng_init(id, 77);
    for (int i = 0; i < n; i++)
        out[i] = id % 17 == 5 ? NAN : (float)sfp__rng_below(&rng, 6);
}

static test_batch random_batch(sfp__rng *rng, int b, int dim, int classes, uint64_t first)
{
    test_batch x = batch_make(b, dim, 4, first, first);
    for (int i = 0; i < b; i++)
        x.label[i] = (int32_t)sfp__rng_below(rng, (uint32_t)classes);
    return x;
}

/* The samples that were requested show which sets were drawn. Checks these sets and the resulting update. */
static void check_update(sfp__buffer *b, test_batch *x, int classes, sfp__rng *rng)
{
    int m = b->opt.slots, dim = b->opt.dim, filled = b->filled, n = x->view.b;
    test_model_ops t = {.model = {.dim = dim, .classes = classes}, .row = small_integers, .fail_at = -1};
    sfp__rng before_rng = *rng, first = *rng;
    buffer_image before = image_of(b);
    sfp__buffer_change c = {0};
    int stored = n < m - filled ? n : m - filled, left = n - stored, label_count[64] = {0}, present = 0;
    int32_t slot_label[MAX_POINTS * 4];
    for (int i = 0; i < filled; i++)
        slot_label[i] = b->slot[i].label;
    for (int i = 0; i < stored; i++)
        slot_label[filled + i] = x->label[i];
    MUST(update_with_model(b, x, &t, rng, &c, &err));
    check_change(&before, x, &c, b);
    assert_int_equal(c.stored, stored);
    if (left == 0) {
        assert_int_equal(t.calls, 0);
        assert_int_equal(c.nu, 0);
        assert_true(same_rng(rng, &before_rng));
        return;
    }
    for (int i = 0; i < m; i++)
        present += label_count[slot_label[i]]++ == 0;
    int evaluating = present, competing = 3 * classes / 2 < m - evaluating ? 3 * classes / 2 : m - evaluating, tests = 0,
        test[MAX_POINTS * 4];
    assert_int_equal(t.calls, competing > 0);
    if (competing == 0) { /* every slot is the only one of its class */
        assert_int_equal(c.nu, 0);
        return;
    }
    assert_int_equal(t.requested, competing + left + evaluating);
    double threshold = sfp__rng_double(&first) / classes;
    int slot[MAX_POINTS * 4], last_label = -1;
    bool used[MAX_POINTS * 4] = {false};
    float row[MAX_POINTS * 4 * 3];
    int32_t label[MAX_POINTS * 4];
    for (int i = 0; i < t.requested; i++) {
        int sample = t.samples[i], place = sample >= n ? sample - n : sample < stored ? filled + sample : -1;
        slot[i] = place;
        if (i >= competing && i < competing + left) {
            assert_int_equal(sample, stored + i - competing);
            label[i] = x->label[sample];
            if ((double)label_count[label[i]] / m < threshold)
                test[tests++] = i;
        } else {
            assert_true(place >= 0 && !used[place]); /* no sample occurs twice: competing slots are outside the evaluation set */
            used[place] = true;
            label[i] = slot_label[place];
        }
        if (i >= competing + left) {
            assert_true(label[i] > last_label); /* one per class, ascending */
            last_label = label[i];
            test[tests++] = i;
        }
        uint64_t id = place < 0 || sample < n ? x->id[sample] : before.id[place];
        small_integers(id, dim, row + i * dim);
    }
    int candidates = competing + left;
    if (candidates > 10)
        return; /* brute force enumerates all sets, which is too slow for more */
    double sum[MAX_POINTS];
    sum_by_definition(3, dim, row, label, candidates, tests, test, sum);
    bool stays[MAX_POINTS] = {false};
    for (int k = 0; k < competing; k++) { /* the largest sums win, the lower index on a tie */
        int best = -1;
        for (int i = 0; i < candidates; i++)
            if (!stays[i] && (best < 0 || sum[i] > sum[best] + 1e-9))
                best = i;
        stays[best] = true;
    }
    int in = 0;
    for (int i = 0; i < candidates; i++) {
        bool there = false;
        for (int k = 0; k < c.nu; k++)
            there = there || (i < competing ? c.replaced[k] == slot[i] : c.retained[k] == stored + i - competing);
        assert_int_equal(there, i < competing ? !stays[i] : stays[i]);
        in += i >= competing && stays[i];
    }
    assert_int_equal(c.nu, in);
}

TEST(the_samples_with_the_largest_sums_are_kept)
{
    sfp__rng rng = sfp__rng_init(3, 1);
    for (int round = 0; round < 400; round++) {
        int m = 1 + (int)sfp__rng_below(&rng, 9), max_batch = 1 + (int)sfp__rng_below(&rng, 5),
            classes = 1 + (int)sfp__rng_below(&rng, 5);
        int dim = 1 + (int)sfp__rng_below(&rng, 3);
        OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("aser", m, dim, 4, max_batch);
        uint64_t next = (uint64_t)round * 1000;
        for (int t = 0; t < 6; t++) {
            test_batch x = random_batch(&rng, 1 + (int)sfp__rng_below(&rng, (uint32_t)max_batch), dim, classes, next);
            next += (uint64_t)x.view.b;
            check_update(b, &x, classes, &rng);
        }
    }
}

/* A full buffer of 2 classes with 3 and 6 slots: every slot of a class is equally likely to be in the evaluation set, and the
 * others to compete. */
TEST(sets_are_drawn_uniformly)
{
    enum { M = 9, ROUNDS = 6000 };
    long evaluation_count[2][M] = {{0}}, competes[M] = {0};
    double third[3], sixth[6], other[M];
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("aser", M, 2, 4, M);
    test_batch fill = batch_make(M, 2, 4, 100, 0), x = batch_make(1, 2, 4, 5, 0);
    for (int i = 0; i < M; i++)
        fill.label[i] = i % 3 == 0;
    x.label[0] = 0;
    test_model_ops t = {.model = {.dim = 2, .classes = 2}, .row = small_integers, .fail_at = -1};
    sfp__rng rng = sfp__rng_init(4, 4);
    for (int round = 0; round < ROUNDS; round++) {
        MUST(sfp__buffer_restore(b, 0, 0, NULL));
        MUST(update_with_model(b, &fill, &t, &rng, NULL, NULL));
        MUST(update_with_model(b, &x, &t, &rng, NULL, NULL));
        assert_int_equal(t.requested, 3 + 1 + 2); /* floor(1.5 * 2) compete */
        for (int i = 0; i < 3; i++)
            competes[t.samples[i] - 1]++;
        evaluation_count[0][t.samples[4] - 1]++;
        evaluation_count[1][t.samples[5] - 1]++;
    }
    long by_class[2][6];
    int n[2] = {0};
    for (int i = 0; i < M; i++) {
        assert_int_equal(evaluation_count[i % 3 != 0][i], 0);
        by_class[i % 3 == 0][n[i % 3 == 0]++] = evaluation_count[i % 3 == 0][i];
        /* not in the evaluation set, then 3 of the 7 others; of all 3 * ROUNDS places */
        other[i] = (i % 3 == 0 ? 2.0 / 3 : 5.0 / 6) / 7;
    }
    for (int i = 0; i < 6; i++)
        sixth[i] = 1.0 / 6;
    for (int i = 0; i < 3; i++)
        third[i] = 1.0 / 3;
    check_distribution("evaluation slots of class 0", 6, by_class[0], sixth);
    check_distribution("evaluation slots of class 1", 3, by_class[1], third);
    check_distribution("competing slots", M, competes, other);
}

TEST(failed_updates_change_nothing)
{
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("aser", 10, 3, 4, 8);
    sfp__rng rng = sfp__rng_init(5, 5);
    test_batch x = random_batch(&rng, 8, 3, 4, 0), y = random_batch(&rng, 8, 3, 4, 50);
    test_model_ops t = {.model = {.dim = 3, .classes = 4}, .row = small_integers, .fail_at = 0};
    assert_int_equal(sfp__buffer_update(b, &x.view, &rng, NULL, &err), SFP_EINVAL); /* no model callbacks */
    MUST(update_with_model(b, &x, &t, &rng, NULL, &err));
    check_failed_update(b, &y, &t, &rng);
    t.fail_at = -1;
    check_failed_allocations(b, &x, &y, &t);
}

/* ------------------------------------------------------------------- retrieval */

static sfp_status retrieve(sfp__buffer *b, test_batch *x, test_model_ops *t, int r, sfp__rng *rng, int *slots, int *count)
{
    t->model.ctx = t;
    t->model.features = record_features;
    t->b = b;
    t->batch = &x->view;
    t->calls = t->requested = 0;
    x->view.model = &t->model;
    return sfp__buffer_retrieve(b, &x->view, r, rng, slots, count, &err);
}

/* Checks the sets that a retrieval drew: per class, ascending, `each` candidates, then up to `each` evaluation samples. Returns
 * the number of candidates. */
static int check_retrieval_sets(const sfp__buffer *b, const test_model_ops *t, int n, int r, int *evaluating)
{
    int m = b->opt.slots, size[64] = {0}, chosen[64] = {0}, judging[64] = {0}, classes = 0, candidates = 0;
    bool used[MAX_POINTS * 4] = {false};
    for (int i = 0; i < m; i++)
        classes += size[b->slot[i].label]++ == 0;
    int each = (int)ceil(1.5 * r / classes - 1e-9);
    for (int y = 0; y < 64; y++)
        candidates += size[y] < each ? size[y] : each;
    *evaluating = t->requested - n - candidates;
    for (int i = 0; i < candidates + *evaluating; i++) {
        int slot = t->samples[i] - n;
        assert_true(slot >= 0 && !used[slot]);
        used[slot] = true;
        (i < candidates ? chosen : judging)[b->slot[slot].label]++;
    }
    for (int i = 0; i < n; i++) /* the whole batch is adversarial */
        assert_int_equal(t->samples[candidates + *evaluating + i], i);
    for (int y = 0; y < 64; y++) {
        assert_int_equal(chosen[y], size[y] < each ? size[y] : each);
        assert_int_equal(judging[y], size[y] - chosen[y] < each ? size[y] - chosen[y] : each);
    }
    return candidates;
}

/* Computes by enumeration of all subsets: mean Shapley value over the evaluation set minus the mean over the batch. */
static void asv_by_definition(const test_model_ops *t, int candidates, int evaluating, double *asv)
{
    float x[MAX_POINTS * 8 * 3];
    int32_t label[MAX_POINTS * 8];
    int test[MAX_POINTS * 8], n = t->batch->b, dim = t->model.dim;
    double coop[MAX_POINTS], adversarial[MAX_POINTS];
    for (int i = 0; i < t->requested; i++) {
        small_integers(id_of_sample(t, t->samples[i]), dim, x + i * dim);
        label[i] = sfp__buffer_label(t->b, t->batch, t->samples[i]);
        test[i] = i;
    }
    sum_by_definition(3, dim, x, label, candidates, evaluating, test + candidates, coop);
    sum_by_definition(3, dim, x, label, candidates, n, test + candidates + evaluating, adversarial);
    for (int i = 0; i < candidates; i++)
        asv[i] = isinf(coop[i]) ? -INFINITY : (evaluating ? coop[i] / evaluating : 0) - adversarial[i] / n;
}

/* Returns whether the values could be checked. */
static bool check_retrieved(const sfp__buffer *b, const test_model_ops *t, int r, int count, const int *slots)
{
    int n = t->batch->b, m = b->opt.slots, evaluating, candidates = check_retrieval_sets(b, t, n, r, &evaluating);
    double asv[MAX_POINTS];
    bool taken[MAX_POINTS * 4] = {false};
    assert_int_equal(count, r < m ? r : m);
    for (int i = 0; i < count; i++) {
        assert_true(slots[i] >= 0 && slots[i] < m && !taken[slots[i]]);
        taken[slots[i]] = true;
    }
    for (int i = 0; i < candidates; i++) /* if there are too few, all candidates are replayed */
        assert_true(candidates > r || taken[t->samples[i] - n]);
    if (candidates > 8)
        return false;
    asv_by_definition(t, candidates, evaluating, asv);
    for (int k = 0; k < r && k < candidates; k++) {
        int best = -1;
        for (int i = 0; i < candidates; i++)
            if (!isnan(asv[i]) && (best < 0 || asv[i] > asv[best] + 1e-7))
                best = i;
        assert_int_equal(slots[k], t->samples[best] - n);
        asv[best] = NAN;
    }
    return true;
}

TEST(the_candidates_with_the_largest_adversarial_values_are_replayed)
{
    sfp__rng rng = sfp__rng_init(6, 1);
    int checked = 0;
    for (int round = 0; round < 400; round++) {
        int m = 2 + (int)sfp__rng_below(&rng, 20), classes = 1 + (int)sfp__rng_below(&rng, 5),
            dim = 1 + (int)sfp__rng_below(&rng, 3);
        OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("aser", m, dim, 4, 24);
        test_model_ops t = {.model = {.dim = dim, .classes = classes}, .row = small_integers, .fail_at = -1};
        test_batch fill = random_batch(&rng, m, dim, classes, (uint64_t)round * 1000),
                   one = random_batch(&rng, 1, dim, classes, (uint64_t)round * 1000 + 100),
                   x = random_batch(&rng, 1 + (int)sfp__rng_below(&rng, 5), dim, classes, (uint64_t)round * 1000 + 200);
        MUST(update_with_model(b, &fill, &t, &rng, NULL, &err));
        MUST(update_with_model(b, &one, &t, &rng, NULL, &err));
        for (int r = 1; r <= 5; r++) {
            int slots[8], count = -1;
            MUST(retrieve(b, &x, &t, r, &rng, slots, &count));
            assert_int_equal(t.calls, 1);
            checked += check_retrieved(b, &t, r, count, slots);
        }
    }
    assert_true(checked > 500);
}

/* The same draws as sfp__buffer_draw, and no pass. */
static void check_uniform(sfp__buffer *b, test_batch *x, test_model_ops *t)
{
    sfp__rng rng = sfp__rng_init(8, 1), same = rng;
    int slots[8], want[8], count = -1, n = sfp__buffer_draw(b, 5, &same, want);
    MUST(retrieve(b, x, t, 5, &rng, slots, &count));
    assert_int_equal(count, n);
    assert_int_equal(t->calls, 0);
    assert_memory_equal(slots, want, (size_t)n * sizeof *slots);
    assert_true(same_rng(&rng, &same));
}

TEST(replay_is_uniform_until_slots_are_contested_and_if_retrieval_is_off)
{
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("aser", 10, 2, 4, 10);
    sfp__rng rng = sfp__rng_init(7, 1);
    test_model_ops t = {.model = {.dim = 2, .classes = 3}, .row = small_integers, .fail_at = -1};
    test_batch x = random_batch(&rng, 5, 2, 3, 0), y = random_batch(&rng, 5, 2, 3, 50), z = random_batch(&rng, 5, 2, 3, 90);
    check_uniform(b, &x, &t); /* empty */
    MUST(update_with_model(b, &x, &t, &rng, NULL, &err));
    check_uniform(b, &y, &t);
    MUST(update_with_model(b, &y, &t, &rng, NULL, &err));
    check_uniform(b, &z, &t); /* full, but no sample had to be left out */
    MUST(update_with_model(b, &z, &t, &rng, NULL, &err));
    int slots[8], count = -1;
    sfp__rng before = rng;
    t.fail_at = 0;
    assert_int_equal(retrieve(b, &x, &t, 5, &rng, slots, &count), SFP_EIO);
    assert_true(same_rng(&rng, &before));
    t.fail_at = -1;
    MUST(retrieve(b, &x, &t, 5, &rng, slots, &count));
    assert_int_equal(t.calls, 1);
}
