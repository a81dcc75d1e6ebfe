/* Ranking: scores descending, ties by lower index, NaN last. */
#include "base/rank.h"
#include "base/rng.h"

#include "test.h"

TEST(nan_infinity_and_ties_have_their_places)
{
    const float score[] = {NAN, 0.0f, -INFINITY, -0.0f, INFINITY, -NAN, 1e-45f, 2, 2};
    const int want[] = {4, 7, 8, 6, 1, 3, 2, 0, 5};
    int order[9];
    sfp__rank_descending(9, score, order);
    for (int i = 0; i < 9; i++)
        assert_int_equal(order[i], want[i]);
}

/* All lengths up to 70 with few different values: each position must precede all later ones. */
TEST(random_scores_are_in_order)
{
    sfp__rng rng = sfp__rng_init(11, 0);
    for (int n = 0; n <= 70; n++) {
        for (int values = 1; values <= 64; values *= 4) {
            float *score = kept_malloc((size_t)n * sizeof *score + 1);
            int *order = kept_malloc((size_t)n * sizeof *order + 1);
            for (int i = 0; i < n; i++) {
                uint32_t v = sfp__rng_below(&rng, (uint32_t)values + 1);
                score[i] = v == 0 ? NAN : (float)v - 3;
            }
            sfp__rank_descending(n, score, order);
            for (int i = 0; i + 1 < n; i++) {
                float a = score[order[i]], b = score[order[i + 1]];
                int tie = a == b || (isnan(a) && isnan(b));
                assert_true(tie ? order[i] < order[i + 1] : isnan(b) || a > b);
            }
            long sum = 0; /* the order is strict and the sum is right: n different indices in [0, n) */
            for (int i = 0; i < n; i++) {
                assert_in_range(order[i], 0, n - 1);
                sum += order[i];
            }
            assert_int_equal(sum, (long)n * (n - 1) / 2);
        }
    }
}
