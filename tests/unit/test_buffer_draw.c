/* Compares the draws of a buffer with their exact probabilities: nu, the new samples, the replaced slots, the reservoir and the
 * replay. Compares the plan of an update with a second, simple implementation of the reference. */
#include "buffer/buffer.h"

#include "base/rank.h"

#include "buffer_batch.h"
#include "chi_square.h"
#include "test.h"

/* ---------------------------------------------------------------- exact values */

/* Computes the probability of every ordered draw of `count` of n by sequential weights. An outcome is its indices as digits to
 * base n. If no weight is left, the remaining indices are equally likely. */
static void ordered_probabilities(int n, const double *weight, int count, unsigned taken, int prefix, double p, double *out)
{
    if (count == 0) {
        out[prefix] += p;
        return;
    }
    double total = 0;
    int left = 0;
    for (int i = 0; i < n; i++) {
        if (!(taken & 1u << i)) {
            total += weight[i];
            left++;
        }
    }
    for (int i = 0; i < n; i++) {
        double q = total > 0 ? weight[i] / total : 1.0 / left;
        if (!(taken & 1u << i) && q > 0)
            ordered_probabilities(n, weight, count - 1, taken | 1u << i, prefix * n + i, p * q, out);
    }
}

static int power(int base, int exponent)
{
    int p = 1;
    while (exponent-- > 0)
        p *= base;
    return p;
}

static int as_digits(int n, const int *index, int count)
{
    int digits = 0;
    for (int i = 0; i < count; i++)
        digits = digits * n + index[i];
    return digits;
}

/* Computes, from the rank of each score (NaN last, ties by index), the weight of being stored and of being replaced with eq8. */
static int oracle_before(const float *s, int i, int j)
{
    double a = isnan(s[i]) ? -INFINITY : (double)s[i], b = isnan(s[j]) ? -INFINITY : (double)s[j];
    if (a != b)
        return a > b;
    if (isnan(s[i]) != isnan(s[j]))
        return isnan(s[j]);
    return i < j;
}

static void oracle_probability(int n, const float *s, double *pi)
{
    double sum = 0;
    for (int r = 0; r < n; r++)
        sum += 1.0 / (r + 1);
    for (int i = 0; i < n; i++) {
        int before = 0;
        for (int j = 0; j < n; j++)
            before += oracle_before(s, j, i);
        pi[i] = 1 - 1.0 / (before + 1) / sum;
    }
}

static double binomial(int n, int k, double p)
{
    return exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) * pow(p, k) * pow(1 - p, n - k);
}

/* ------------------------------------------------------------------------- nu */

/* A full buffer after n_seen samples receives b: nu is min(max(1, b/2), m, hits), where hits is binomial. */
TEST(nu_has_the_exact_distribution)
{
    static const struct {
        int m, b;
        uint64_t seen;
    } cases[] = {{5, 6, 8}, {5, 12, 40}, {5, 1, 7}, {5, 3, 5}, {2, 9, 4}, {5, 12, 20}, {1, 7, 30}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int m = cases[c].m, b = cases[c].b, half = b / 2 > 1 ? b / 2 : 1;
        sfp__buffer_options opt = {.slots = m, .dim = 1, .image_bytes = 1, .method = "streamfp"};
        OWNED_PTR(sfp__buffer_free) sfp__buffer *buffer = NULL;
        MUST(sfp__buffer_create(&opt, b, &buffer, NULL));
        double p[16] = {0};
        for (int hits = 0; hits <= b; hits++) {
            int nu = hits == 0 ? 1 : hits;
            nu = nu > half ? half : nu;
            p[nu > m ? m : nu] += binomial(b, hits, (double)m / (double)cases[c].seen);
        }
        for (int i = 0; i < 16; i++)
            p[i] = p[i] < 1e-15 ? 0 : p[i]; /* the case p = 1 */
        test_batch batch = batch_make(b, 1, 1, 0, 0);
        sfp__rng rng = sfp__rng_init(100 + c, 0);
        long count[16] = {0};
        for (int k = 0; k < 40000; k++) {
            sfp__buffer_change change;
            MUST(sfp__buffer_restore(buffer, m, cases[c].seen, NULL));
            MUST(sfp__buffer_update(buffer, &batch.view, &rng, &change, NULL));
            count[change.nu]++;
        }
        check_distribution("nu", 16, count, p);
    }
}

/* n_seen includes the samples that the same batch just stored: 3 of 5 slots are filled, 6 arrive, 2 are stored, 4 remain with
 * 5/5. */
TEST(nu_counts_samples_just_stored)
{
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("streamfp", 5, 1, 1, 6);
    sfp__rng rng = sfp__rng_init(1, 1);
    for (int k = 0; k < 2000; k++) {
        test_batch batch = batch_make(6, 1, 1, 0, 0);
        sfp__buffer_change change;
        MUST(sfp__buffer_restore(b, 3, 3, NULL));
        MUST(sfp__buffer_update(b, &batch.view, &rng, &change, NULL));
        assert_int_equal(change.stored, 2);
        assert_int_equal(change.nu, 3); /* half of b, not of the remaining samples */
    }
}

/* ------------------------------------------------------------------ the two draws */

/* m slots and b samples with given scores, and n_seen = m: every number hits, so nu = b/2. Counts the ordered draws of samples
 * and of slots, and the joint outcomes of their first two. */
static void check_draws(const char *what, sfp__drop_rule drop, int m, const float *slot_score, int b, const float *batch_score,
                        int draws, uint64_t seed)
{
    int nu = b / 2, batch_cells = power(b, nu), slot_cells = power(m, nu);
    assert_true(nu <= m && nu >= 1);
    sfp__buffer_options opt = {.slots = m, .dim = 1, .image_bytes = 1, .drop = drop, .method = "streamfp"};
    OWNED_PTR(sfp__buffer_free) sfp__buffer *buffer = NULL;
    MUST(sfp__buffer_create(&opt, b, &buffer, NULL));
    test_batch batch = batch_make(b, 1, 1, 0, 0);
    batch.fingerprint[0] = 1;
    memcpy(batch.score, batch_score, (size_t)b * sizeof(float));
    long *entered = test_array(batch_cells, sizeof(long)), *left = test_array(slot_cells, sizeof(long)),
         *both = test_array(b * m, sizeof(long));
    sfp__rng rng = sfp__rng_init(seed, 0);
    for (int k = 0; k < draws; k++) {
        sfp__buffer_change change;
        for (int i = 0; i < m; i++)
            buffer->slot[i].mean_embed[0] = slot_score[i];
        MUST(sfp__buffer_restore(buffer, m, (uint64_t)m, NULL));
        MUST(sfp__buffer_update(buffer, &batch.view, &rng, &change, NULL));
        assert_int_equal(change.nu, nu);
        entered[as_digits(b, change.retained, nu)]++;
        left[as_digits(m, change.replaced, nu)]++;
        both[change.retained[0] * m + change.replaced[0]]++;
    }

    double weight_in[8], weight_out[8];
    oracle_probability(b, batch_score, weight_in);
    oracle_probability(m, slot_score, weight_out);
    for (int i = 0; i < m && drop == SFP__DROP_ALG2; i++)
        weight_out[i] = 1 - weight_out[i];
    double *p_in = test_array(batch_cells, sizeof(double)), *p_out = test_array(slot_cells, sizeof(double)),
           *p_both = test_array(b * m, sizeof(double)), sum_in = 0, sum_out = 0;
    ordered_probabilities(b, weight_in, nu, 0, 0, 1, p_in);
    ordered_probabilities(m, weight_out, nu, 0, 0, 1, p_out);
    for (int i = 0; i < b; i++)
        sum_in += weight_in[i];
    for (int i = 0; i < m; i++)
        sum_out += weight_out[i];
    for (int i = 0; i < b * m; i++)
        p_both[i] = weight_in[i / m] / sum_in * weight_out[i % m] / sum_out;
    check_distribution(what, batch_cells, entered, p_in);
    check_distribution(what, slot_cells, left, p_out);
    check_distribution(what, b * m, both, p_both);
}

TEST(both_draws_have_the_exact_distribution)
{
    const float slots[] = {0.3f, -0.2f, 0.9f, 0.1f, 0.5f}, samples[] = {-1, 2, 0.5f, 7, 3, 1}, equal[] = {1, 1, 1, 1, 1};
    check_draws("one of 2, of 5 slots, alg2", SFP__DROP_ALG2, 5, slots, 2, samples, 30000, 1);
    check_draws("one of 3, of 5 slots, eq8", SFP__DROP_EQ8, 5, slots, 3, samples, 30000, 2);
    check_draws("two of 4, of 5 slots, alg2", SFP__DROP_ALG2, 5, slots, 4, samples, 60000, 3);
    check_draws("two of 5, of 5 slots, eq8", SFP__DROP_EQ8, 5, slots, 5, samples, 60000, 4);
    check_draws("three of 6, of 4 slots, alg2", SFP__DROP_ALG2, 4, slots, 6, samples, 120000, 5);
    check_draws("three of 6, of 5 slots, eq8", SFP__DROP_EQ8, 5, slots, 6, samples, 120000, 6);
    check_draws("three of 6, of 3 slots: all go", SFP__DROP_ALG2, 3, slots, 6, samples, 60000, 7);
    check_draws("equal scores go by index", SFP__DROP_ALG2, 5, equal, 4, equal, 60000, 8);
}

/* Arbitrary weights with zeros: zeros are drawn last, and then with equal probability. */
TEST(weighted_draws_have_the_exact_distribution)
{
    static const struct {
        int n, count;
        double weight[5];
    } cases[] = {
        {4, 1, {1, 2, 3, 4}},      {4, 3, {1, 2, 3, 4}}, {5, 2, {0.5, 0.1, 0.1, 0.2, 0.1}},
        {5, 4, {0, 1, 2, 0, 1}},   {4, 2, {0, 0, 0, 0}}, {3, 2, {0, 5, 0}},
        {5, 3, {0.3, 0, 0, 0, 0}}, {1, 1, {0}},          {4, 4, {1e-3, 2e-3, 1e-3, 4e-3}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int n = cases[c].n, count = cases[c].count, cells = power(n, count);
        long *seen = test_array(cells, sizeof(long));
        double *p = test_array(cells, sizeof(double));
        sfp__rng rng = sfp__rng_init(50 + c, 1);
        for (int k = 0; k < 50000; k++) {
            double weight[5], u[5];
            int out[5];
            memcpy(weight, cases[c].weight, sizeof weight);
            for (int i = 0; i < count; i++)
                u[i] = sfp__rng_double(&rng);
            sfp__weighted_draw(n, weight, count, u, out);
            seen[as_digits(n, out, count)]++;
        }
        ordered_probabilities(n, cases[c].weight, count, 0, 0, 1, p);
        check_distribution("weighted draw", cells, seen, p);
    }
}

/* If the running weight equals u * total, the next index is drawn. No index is drawn twice, even for the largest u below 1. */
TEST(weighted_draws_are_right_at_interval_edges)
{
    static const struct {
        double u;
        int want;
    } edges[] = {{0, 1}, {0.24999999, 1}, {0.25, 3}, {0.49999999, 3}, {0.5, 4}, {0x1.fffffffffffffp-1, 4}};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        double weight[6] = {0, 1, 0, 1, 2, 0};
        int out;
        sfp__weighted_draw(6, weight, 1, &edges[i].u, &out);
        assert_int_equal(out, edges[i].want);
    }
    sfp__rng rng = sfp__rng_init(3, 3);
    for (int k = 0; k < 20000; k++) {
        double weight[20], u[20];
        int out[20], n = 1 + (int)sfp__rng_below(&rng, 20);
        unsigned once = 0;
        for (int i = 0; i < n; i++) {
            weight[i] = sfp__rng_below(&rng, 4) ? sfp__rng_double(&rng) * pow(10, (double)sfp__rng_below(&rng, 20) - 10) : 0;
            u[i] = 0x1.fffffffffffffp-1;
        }
        sfp__weighted_draw(n, weight, n, u, out);
        for (int i = 0; i < n; i++) {
            assert_in_range(out[i], 0, n - 1);
            assert_int_equal(once & 1u << out[i], 0);
            once |= 1u << out[i];
        }
    }
}

TEST(rank_probabilities_equal_the_formula)
{
    const float score[] = {0.1f, NAN, 0.7f, 0.1f}; /* ranks 2 4 1 3 */
    const double rank[] = {2, 4, 1, 3}, sum = 1 + 1.0 / 2 + 1.0 / 3 + 1.0 / 4;
    int order[4];
    double pi[4];
    sfp__rank_probability(4, score, order, pi);
    for (int i = 0; i < 4; i++)
        assert_true(fabs(pi[i] - (1 - 1 / rank[i] / sum)) < 1e-15);
    sfp__rank_probability(1, score, order, pi);
    assert_true(pi[0] == 0);
    /* docs/method.md, section 7: with alg2 the most similar of 102 slots is drawn with probability 19 % */
    float many[102];
    double wide[102];
    int capacity[102];
    for (int i = 0; i < 102; i++)
        many[i] = (float)-i;
    sfp__rank_probability(102, many, capacity, wide);
    assert_true(fabs(1 - wide[0] - 0.19) < 0.005);
}

/* ------------------------------------------------------------- reservoir, replay */

/* Six samples in batches of any size through two slots: each of the 15 pairs remains equally often. */
TEST(the_reservoir_keeps_every_set_equally_often)
{
    long count[36] = {0};
    double p[36] = {0};
    for (int i = 0; i < 6; i++)
        for (int j = i + 1; j < 6; j++)
            p[i * 6 + j] = 1.0 / 15;
    test_batch batch = batch_make(6, 1, 1, 0, 0);
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("er", 2, 1, 1, 6);
    sfp__rng rng = sfp__rng_init(8, 8), cut = sfp__rng_init(9, 9);
    for (int k = 0; k < 45000; k++) {
        MUST(sfp__buffer_restore(b, 0, 0, NULL));
        for (int at = 0; at < 6;) {
            int n = 1 + (int)sfp__rng_below(&cut, (uint32_t)(6 - at));
            sfp__buffer_batch part = batch.view;
            part.b = n;
            part.id += at;
            part.label += at;
            part.image += at;
            part.score = part.mean_embed = part.query = NULL;
            part.has_query = NULL;
            MUST(sfp__buffer_update(b, &part, &rng, NULL, NULL));
            at += n;
        }
        int x = (int)b->slot[0].id, y = (int)b->slot[1].id;
        count[x < y ? x * 6 + y : y * 6 + x]++;
    }
    check_distribution("reservoir pairs", 36, count, p);
}

/* Forty samples, seven slots: each position of the stream remains in 7/40 of the runs. Counts of a draw without replacement are
 * not multinomial: their covariance shrinks the statistic by (n - m)/(n - 1). */
TEST(the_reservoir_favours_no_position)
{
    enum { N = 40, M = 7, RUNS = 20000 };
    long count[N] = {0};
    test_batch batch = batch_make(N, 1, 1, 0, 0);
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("er", M, 1, 1, N);
    sfp__rng rng = sfp__rng_init(18, 8);
    for (int k = 0; k < RUNS; k++) {
        MUST(sfp__buffer_restore(b, 0, 0, NULL));
        MUST(sfp__buffer_update(b, &batch.view, &rng, NULL, NULL));
        for (int i = 0; i < M; i++)
            count[b->slot[i].id]++;
    }
    double expected = (double)RUNS * M / N, statistic = 0;
    for (int i = 0; i < N; i++)
        statistic += ((double)count[i] - expected) * ((double)count[i] - expected) / expected;
    double p = chi_square_tail(N - 1, statistic * (N - 1) / (N - M));
    if (!(p > 1e-6 && p < 1 - 1e-6))
        fail_msg("chi-square %.2f, p = %g", statistic, p);
}

/* After 2^40 samples a slot is replaced once in 4e11; a 32-bit counter would wrap around and replace one every time. */
TEST(the_reservoir_counts_beyond_32_bits)
{
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("er", 3, 1, 1, 50);
    test_batch batch = batch_make(50, 1, 1, 0, 0);
    sfp__rng rng = sfp__rng_init(2, 3);
    for (int k = 0; k < 2000; k++) {
        sfp__buffer_change change;
        MUST(sfp__buffer_restore(b, 3, (uint64_t)1 << 40, NULL));
        MUST(sfp__buffer_update(b, &batch.view, &rng, &change, NULL));
        assert_int_equal(change.nu, 0); /* probability of one in all runs: 3e-7 */
        assert_int_equal(b->seen, ((uint64_t)1 << 40) + 50);
    }
}

TEST(replay_draws_are_uniform_and_without_replacement)
{
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = buffer_make("streamfp", 8, 1, 1, 8);
    test_batch batch = batch_make(5, 1, 1, 0, 0);
    sfp__rng rng = sfp__rng_init(31, 0);
    int slots[20];
    assert_int_equal(sfp__buffer_draw(b, 3, &rng, slots), 0); /* empty */
    MUST(sfp__buffer_update(b, &batch.view, &rng, NULL, NULL));

    long pairs[25] = {0};
    double p[25];
    for (int i = 0; i < 25; i++)
        p[i] = i / 5 != i % 5 ? 1.0 / 20 : 0;
    for (int k = 0; k < 40000; k++) {
        assert_int_equal(sfp__buffer_draw(b, 2, &rng, slots), 2);
        pairs[slots[0] * 5 + slots[1]]++;
    }
    check_distribution("replay pairs", 25, pairs, p);

    static long whole[3125];
    static double p_whole[3125];
    const double equal[] = {1, 1, 1, 1, 1};
    for (int k = 0; k < 60000; k++) {
        assert_int_equal(sfp__buffer_draw(b, 20, &rng, slots), 5); /* not more than the filled slots */
        whole[as_digits(5, slots, 5)]++;
    }
    ordered_probabilities(5, equal, 5, 0, 0, 1, p_whole);
    check_distribution("replay of everything", 3125, whole, p_whole);
    assert_int_equal(sfp__buffer_draw(b, 0, &rng, slots), 0);
    assert_int_equal(sfp__buffer_draw(b, -3, &rng, slots), 0);
}

/* -------------------------------------------------- a second implementation */

enum { MAX_SIZE = 64 };

/* The weighted draw of the reference: cumulative sums, then searchsorted from the right. */
static void oracle_draw(int n, const double *weight, int count, const double *u, int *out)
{
    double w[MAX_SIZE], total = 0;
    for (int i = 0; i < n; i++)
        total += w[i] = weight[i];
    for (int i = 0; i < n && total == 0; i++)
        w[i] = 1;
    for (int d = 0; d < count; d++) {
        double cumulated[MAX_SIZE];
        for (int i = 0; i < n; i++)
            cumulated[i] = (i ? cumulated[i - 1] : 0) + w[i];
        double target = u[d] * cumulated[n - 1];
        int low = 0, high = n; /* the first element above target */
        while (low < high) {
            int middle = (low + high) / 2;
            if (target < cumulated[middle])
                high = middle;
            else
                low = middle + 1;
        }
        out[d] = low;
        w[low] = 0;
        total = 0;
        for (int i = 0; i < n; i++)
            total += w[i];
        if (total == 0) {
            for (int i = 0; i < n; i++) {
                w[i] = 1;
                for (int k = 0; k <= d; k++)
                    w[i] = out[k] == i ? 0 : w[i];
            }
        }
    }
}

/* Integer scores produce ties; u is sometimes a round value, which is at the edge of an interval. */
TEST(the_plan_equals_the_reference_on_random_cases)
{
    sfp__rng rng = sfp__rng_init(77, 0);
    long replaced_in_all = 0;
    for (int k = 0; k < 20000; k++) {
        int m = (int)sfp__rng_below(&rng, MAX_SIZE), b = (int)sfp__rng_below(&rng, MAX_SIZE), kind = k % 4;
        uint64_t n_seen = sfp__rng_below(&rng, (uint32_t)(k % 3 ? 2 * MAX_SIZE : 5000));
        float batch[MAX_SIZE], slots[MAX_SIZE];
        double u[3][MAX_SIZE], dwork[MAX_SIZE];
        int iwork[MAX_SIZE], retained[MAX_SIZE], replaced[MAX_SIZE];
        for (int i = 0; i < MAX_SIZE; i++) {
            batch[i] = kind == 0 ? (float)sfp__rng_normal(&rng) : (float)sfp__rng_below(&rng, kind == 1 ? 1 : 5);
            slots[i] = kind == 0 ? (float)sfp__rng_normal(&rng) : (float)sfp__rng_below(&rng, kind == 1 ? 1 : 5);
            if (kind == 3 && sfp__rng_below(&rng, 4) == 0)
                batch[i] = slots[i] = NAN;
            for (int j = 0; j < 3; j++)
                u[j][i] = k % 5 ? sfp__rng_double(&rng) : (double)sfp__rng_below(&rng, 8) / 8;
        }
        sfp__drop_rule drop = sfp__rng_below(&rng, 2) ? SFP__DROP_ALG2 : SFP__DROP_EQ8;

        int stored = n_seen >= (uint64_t)m ? 0 : m - (int)n_seen, nu = 0, want_in[MAX_SIZE], want_out[MAX_SIZE];
        stored = stored > b ? b : stored;
        int left = b - stored, hits = 0;
        if (left > 0) {
            for (int i = 0; i < left; i++)
                hits += u[0][i] * (double)(n_seen + (uint64_t)stored) < m;
            if (hits == 0)
                hits = 1;
            nu = b >= 2 ? b / 2 : 1;
            nu = nu > left ? left : nu;
            nu = nu > m ? m : nu;
            nu = nu > hits ? hits : nu;
            double pi[MAX_SIZE];
            if (nu > 0) {
                oracle_probability(left, batch + stored, pi);
                oracle_draw(left, pi, nu, u[1], want_in);
                oracle_probability(m, slots, pi);
                for (int i = 0; i < m && drop == SFP__DROP_ALG2; i++)
                    pi[i] = 1 - pi[i];
                oracle_draw(m, pi, nu, u[2], want_out);
            }
        }

        sfp__buffer_plan plan;
        sfp__buffer_decide(n_seen, m, b, batch, slots, u[0], u[1], u[2], drop, iwork, dwork, retained, replaced, &plan);
        if (plan.stored != stored || plan.nu != nu)
            fail_msg("case %d: stored %d, nu %d, expected %d, %d", k, plan.stored, plan.nu, stored, nu);
        for (int i = 0; i < nu; i++)
            if (retained[i] != stored + want_in[i] || replaced[i] != want_out[i])
                fail_msg("case %d (n_seen %d, m %d, b %d): draw %d is %d -> %d, expected %d -> %d", k, (int)n_seen, m, b, i,
                         retained[i], replaced[i], stored + want_in[i], want_out[i]);
        replaced_in_all += nu;
    }
    assert_true(replaced_in_all > 50000); /* the cases are not trivial */
}
