/* Compares kcenter, D^2 sampling and freesel's feature with their definitions. */
#include "select/cover.h"

#include "compute/vec.h"

#include "chi_square.h"
#include "select_case.h"
#include "test.h"

static double distance2(int dim, const float *a, const float *b)
{
    double s = 0;
    for (int k = 0; k < dim; k++)
        s += ((double)a[k] - (double)b[k]) * ((double)a[k] - (double)b[k]);
    return s;
}

/* The definition of farthest-first traversal, which recomputes every distance. Distances that are equal in theory may differ by
 * rounding. */
static void brute_kcenter(int n, int dim, const float *x, int c, int *out)
{
    out[0] = 0;
    for (int k = 1; k < c; k++) {
        double best = -1;
        for (int i = 0; i < n; i++) {
            double near = INFINITY;
            bool taken = false;
            for (int j = 0; j < k; j++) {
                near = fmin(near, distance2(dim, x + (size_t)i * (size_t)dim, x + (size_t)out[j] * (size_t)dim));
                taken = taken || out[j] == i;
            }
            if (!taken && near > best * (1 + 1e-14)) {
                best = near;
                out[k] = i;
            }
        }
    }
}

TEST(kcenter_is_farthest_first)
{
    sfp__rng rng = sfp__rng_init(1, 0);
    OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
    for (int round = 0; round < 3000; round++) {
        int big = round % 100 == 0, b = 2 + (int)sfp__rng_below(&rng, big ? 600 : 30), classes = 1 + (int)sfp__rng_below(&rng, 9),
            want[632], out[632];
        select_case c = make_case(&rng, b, 1, classes, (case_kind)(round % 3));
        double sigma = sfp__rng_double(&rng);
        int n = sfp__coreset_size(b, sigma);
        assert_int_equal(case_pick("kcenter", &c.batch, sigma, NULL, &arena, NULL, out, NULL), n);
        brute_kcenter(b, classes, c.logits, n, want);
        if (n < b && memcmp(out, want, (size_t)n * sizeof *out) != 0)
            fail_msg("round %d: %d of %d points with %d numbers are not the farthest ones", round, n, b, classes);
    }
}

/* Numbers whose squares overflow a float, and points that differ only in their last digits: the filter must not decide. */
TEST(kcenter_recomputes_inexact_products)
{
    enum { N = 200, D = 5 };
    static float x[N * D];
    int out[N], want[N];
    OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
    for (int huge = 0; huge < 2; huge++) {
        sfp__rng rng = sfp__rng_init(2, (uint64_t)huge);
        for (int i = 0; i < N * D; i++)
            x[i] = huge ? (float)sfp__rng_normal(&rng) * 1e30f : 1000 + (float)sfp__rng_below(&rng, 64) * 0.0625f / 16;
        sfp__select_batch batch = {.b = N, .classes = D, .logits = x};
        assert_int_equal(case_pick("kcenter", &batch, 0.8, NULL, &arena, NULL, out, NULL), 160);
        brute_kcenter(N, D, x, 160, want);
        assert_memory_equal(out, want, 160 * sizeof *out);
    }
}

/* Returns the probability of drawing a, b, c in this order. */
static double d2_probability(int n, int dim, const float *x, bool cosine, const int *order, int k)
{
    double p = 1.0 / n;
    for (int step = 1; step < k; step++) {
        double total = 0, mine = 0;
        for (int i = 0; i < n; i++) {
            double near = INFINITY;
            for (int j = 0; j < step; j++) {
                const float *a = x + i * dim, *b = x + order[j] * dim;
                double d = sqrt(distance2(dim, a, b));
                if (cosine)
                    d = 1 - sfp__dot_f64(dim, a, b) / sqrt(sfp__dot_f64(dim, a, a) * sfp__dot_f64(dim, b, b));
                near = fmin(near, d * d);
            }
            for (int j = 0; j < step; j++)
                near = order[j] == i ? 0 : near;
            total += near;
            mine = i == order[step] ? near : mine;
        }
        p *= mine / total;
    }
    return p;
}

TEST(d2_sampling_has_the_distribution_of_its_definition)
{
    enum { N = 5, D = 3, DRAWS = 150000 };
    for (int cosine = 0; cosine < 2; cosine++) {
        sfp__rng rng = sfp__rng_init(3, (uint64_t)cosine);
        float *x = case_rows(&rng, N, D, CASE_NORMAL), unit[N * D];
        long count[N * N * N] = {0};
        double p[N * N * N];
        memcpy(unit, x, sizeof unit);
        sfp__unit_rows(N, D, unit);
        for (int i = 0; i < N * N * N; i++) {
            const int order[] = {i / 25, i / 5 % 5, i % 5};
            bool apart = order[0] != order[1] && order[1] != order[2] && order[0] != order[2];
            p[i] = apart ? d2_probability(N, D, x, cosine, order, 3) : 0;
        }
        OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
        const sfp__select_env env = {.rng = &rng, .arena = &arena};
        for (int k = 0; k < DRAWS; k++) {
            int out[3];
            sfp__arena_reset(&arena);
            MUST(sfp__d2_sample(&env, N, D, cosine ? unit : x, cosine, 3, out, NULL));
            count[out[0] * 25 + out[1] * 5 + out[2]]++;
        }
        check_distribution(cosine ? "D^2 on cosine distance" : "D^2", N * N * N, count, p);
    }
}

/* A point that equals a chosen one has weight 0, also after many lazy updates: it is never drawn before one that does not. */
TEST(d2_sampling_draws_equal_points_last)
{
    enum { N = 400, KINDS = 150, D = 4 };
    sfp__rng rng = sfp__rng_init(4, 0);
    OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
    const sfp__select_env env = {.rng = &rng, .arena = &arena};
    for (int round = 0; round < 20; round++) {
        float *kinds = case_rows(&rng, KINDS, D, CASE_NORMAL), x[N * D];
        int kind[N], out[N];
        for (int i = 0; i < N; i++) {
            kind[i] = i < KINDS ? i : (int)sfp__rng_below(&rng, KINDS);
            memcpy(x + i * D, kinds + kind[i] * D, D * sizeof *x);
        }
        sfp__arena_reset(&arena);
        MUST(sfp__d2_sample(&env, N, D, x, false, N, out, NULL));
        bool seen[KINDS] = {false}, taken[N] = {false};
        for (int i = 0; i < N; i++) {
            assert_false(taken[out[i]]);
            taken[out[i]] = true;
            assert_true(i >= KINDS || !seen[kind[out[i]]]);
            seen[kind[out[i]]] = true;
        }
    }
}

/* The definition, computed directly: the smallest t such that the tokens with attention >= t hold half of the attention. */
TEST(freesel_pools_the_tokens_with_half_the_attention)
{
    sfp__rng rng = sfp__rng_init(5, 0);
    for (int round = 0; round < 3000; round++) {
        int T = 2 + (int)sfp__rng_below(&rng, 20), D = 1 + (int)sfp__rng_below(&rng, 6), H = 1 + (int)sfp__rng_below(&rng, 4),
            order[32];
        float *tokens = case_rows(&rng, T, D, CASE_NORMAL), *attention = case_rows(&rng, H, T, CASE_NORMAL), mass[32], out[8];
        double mean[32] = {0}, total = 0, want[8] = {0}, sum = 0;
        for (int i = 0; i < H * T; i++)
            attention[i] = round % 2 ? expf(attention[i]) : (float)(1 << sfp__rng_below(&rng, 3)); /* with many ties */
        for (int t = 1; t < T; t++) {
            for (int h = 0; h < H; h++)
                mean[t] += (double)attention[h * T + t] / H;
            total += mean[t];
        }
        bool in[32] = {false};
        int kept = 0;
        while (sum < 0.5 * total * (1 - 1e-6)) { /* exactly half is sufficient */
            int best = 0;
            for (int t = 1; t < T; t++)
                if (!in[t] && (best == 0 || mean[t] > mean[best] * (1 + 1e-6)))
                    best = t;
            in[best] = true;
            sum += mean[best];
            kept++;
            for (int k = 0; k < D; k++)
                want[k] += (double)tokens[best * D + k];
        }
        sfp__freesel_pool(T, D, H, tokens, attention, order, mass, out);
        for (int k = 0; k < D; k++)
            if (fabs((double)out[k] - want[k] / kept) > 1e-5)
                fail_msg("round %d: number %d is %g, expected %g of %d tokens", round, k, (double)out[k], want[k] / kept, kept);
    }
}
