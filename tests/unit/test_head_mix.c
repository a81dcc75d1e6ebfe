/* The mixture head: its bound, its formula, and its robustness. */
#include "learner/heads/head.h"

#include "numeric.h"
#include "test.h"

enum { C = 5, E = SFP_HEAD_MEMBERS };

/* A member whose log-probability of the label is `skill` nats higher on average. */
static void opine(sfp__rng *rng, int label, double skill, double noise, double confidence, float *logp)
{
    double z[C], sum = 0;
    for (int c = 0; c < C; c++) {
        z[c] = confidence * ((c == label ? skill : 0) + noise * sfp__rng_normal(rng));
        sum += exp(z[c]);
    }
    for (int c = 0; c < C; c++)
        logp[c] = (float)(z[c] - log(sum));
}

/* At every sample: discounted loss of the mixture <= that of the best member + log(E) / rate + rate / 2 * sum w loss^2. */
static void check_bound(double rate, const double skill[2][E], double confidence)
{
    const double discount = exp2(-1.0 / 500);
    sfp__rng rng = sfp__rng_init(3, 0);
    sfp__mix m = {.rate = rate};
    double mixed = 0, slack = 0;
    for (int t = 0; t < 4000; t++) {
        float x[E][C], out[C];
        const float *const logp[] = {x[0], x[1]};
        int32_t y = (int32_t)sfp__rng_below(&rng, C);
        double w[E], before[E], sum = 0;
        for (int e = 0; e < E; e++)
            opine(&rng, y, skill[t >= 2000][e], 1, confidence, x[e]);
        sfp__mix_combine(&m, 1, C, logp, out);
        sfp__mix_weights(&m, w);
        memcpy(before, m.loss, sizeof before);
        sfp__mix_observe(&m, 1, C, logp, &y);
        for (int c = 0; c < C; c++)
            sum += exp((double)out[c]);
        assert_true(fabs(sum - 1) < 1e-5);
        double squares = 0, best = INFINITY, mean = 0;
        for (int e = 0; e < E; e++) {
            double l = m.loss[e] - discount * before[e];
            squares += w[e] * l * l;
            mean += w[e] * l;
            best = fmin(best, m.loss[e]);
        }
        assert_true(-(double)out[y] <= mean + 1e-4); /* never above the weighted mean loss of the members */
        mixed = discount * mixed - (double)out[y];
        slack = discount * slack + rate / 2 * squares;
        if (!(mixed <= best + log(E) / rate + slack + 1e-2))
            fail_msg("sample %d: loss is %g, best member has %g", t, mixed, best);
    }
    double w[E];
    sfp__mix_weights(&m, w);
    for (int e = 0; e < E; e++) /* the best member of the second half has the largest weight; a small rate decides slowly */
        if (skill[1][e] > 2)
            assert_true(w[e] > (rate > 0.1 ? 0.9 : 0.4));
}

TEST(the_mixture_is_never_much_worse_than_the_best_member)
{
    const double steady[2][E] = {{1, 3}, {1, 3}}, drifting[2][E] = {{3, 0}, {0, 3}}, equal[2][E] = {{2, 2}, {2, 2}},
                 wrong[2][E] = {{-3, 3}, {-3, 3}};
    for (double rate = 0.01; rate < 2; rate *= 4)
        for (double confidence = 0.25; confidence < 20; confidence *= 4) {
            check_bound(rate, steady, confidence);
            check_bound(rate, drifting, confidence);
            check_bound(rate, equal, confidence);
            check_bound(rate, wrong, confidence);
        }
}

TEST(members_of_equal_quality_are_better_together)
{
    sfp__rng rng = sfp__rng_init(3, 0);
    sfp__mix m = {.rate = 0.05};
    int right[E + 1] = {0};
    for (int t = 0; t < 5000; t++) {
        float x[E][C], out[C];
        const float *const logp[] = {x[0], x[1]};
        int32_t y = (int32_t)sfp__rng_below(&rng, C);
        for (int e = 0; e < E; e++) {
            opine(&rng, y, 2, 1, 1, x[e]);
            right[e] += best_of(x[e], C) == y;
        }
        sfp__mix_combine(&m, 1, C, logp, out);
        right[E] += best_of(out, C) == y;
        sfp__mix_observe(&m, 1, C, logp, &y);
    }
    for (int e = 0; e < E; e++)
        assert_true(right[E] > right[e]);
}

/* Computes exp(sum w log p), normalised, with p = 0.9999 p + 0.0001 / classes. */
TEST(the_mixture_equals_the_weighted_geometric_mean)
{
    sfp__rng rng = sfp__rng_init(1, 0);
    sfp__mix m = {.rate = 0.5};
    m.loss[0] = 3;
    m.loss[1] = 1;
    double w[E], want[C], sum = 0, total = 0;
    sfp__mix_weights(&m, w);
    for (int e = 0; e < E; e++)
        sum += exp(-0.5 * m.loss[e]);
    for (int e = 0; e < E; e++)
        assert_true(fabs(w[e] - exp(-0.5 * m.loss[e]) / sum) < 1e-12);
    float x[E][C], out[C];
    const float *const logp[] = {x[0], x[1]};
    for (int e = 0; e < E; e++)
        opine(&rng, 1, 1, 2, 1, x[e]);
    sfp__mix_combine(&m, 1, C, logp, out);
    for (int c = 0; c < C; c++) {
        want[c] = 0;
        for (int e = 0; e < E; e++)
            want[c] += w[e] * log(0.9999 * exp((double)x[e][c]) + 0.0001 / C);
        total += exp(want[c]);
    }
    for (int c = 0; c < C; c++)
        assert_true(fabs((double)out[c] - (want[c] - log(total))) < 1e-5);
}

TEST(a_member_cannot_veto_a_class_it_has_not_seen)
{
    const float some[C] = {logf(0.5f), logf(0.5f), -INFINITY, -INFINITY, NAN}, all[C] = {-3, -3, logf(0.8f), -INFINITY, -3},
                nothing[C] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    const float *const logp[] = {some, all}, *const empty[] = {nothing, nothing};
    const int32_t label[] = {0, 3, 2, -1, 99};
    float out[C];
    sfp__mix m = {.rate = 0.5};
    sfp__mix_combine(&m, 1, C, logp, out);
    for (int c = 0; c < C; c++)
        assert_true(c == 3 ? out[c] == -INFINITY : isfinite(out[c]) && out[c] < 0);
    sfp__mix_observe(&m, 1, C, logp, label);
    double before = m.loss[0], count = m.count;
    assert_true(before > 0 && count == 1);
    sfp__mix_observe(&m, 1, C, logp, label + 1); /* no member knows class 3; the other labels are not classes */
    sfp__mix_observe(&m, 1, C, logp, label + 3);
    sfp__mix_observe(&m, 1, C, logp, label + 4);
    assert_true(m.loss[0] == before && m.count == count);
    m = (sfp__mix){.rate = 0.5};
    sfp__mix_observe(&m, 1, C, logp, label + 2);
    assert_true(m.loss[0] > m.loss[1] && m.loss[0] < 20); /* a wrong and a correct member */
    sfp__mix_combine(&m, 1, C, empty, out);
    for (int c = 0; c < C; c++)
        assert_true(out[c] == -INFINITY);
    for (int i = 0; i < 20000; i++) /* the discount bounds the loss */
        sfp__mix_observe(&m, 1, C, logp, label + 2);
    double w[E];
    sfp__mix_weights(&m, w);
    sfp__mix_combine(&m, 1, C, logp, out);
    assert_true(w[1] > 0.999 && m.loss[0] < 20 * 722 && best_of(out, C) == 2);
}

TEST(a_single_class_has_probability_one)
{
    const float x[] = {0, -INFINITY}, y[] = {-INFINITY, -INFINITY};
    const float *const logp[] = {x, y};
    float out[2];
    sfp__mix m = {.rate = 0.5};
    sfp__mix_combine(&m, 1, 2, logp, out);
    assert_true(fabsf(out[0]) < 1e-6f && out[1] == -INFINITY);
}
