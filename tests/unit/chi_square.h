/* Chi-square tests for the property tests: observed counts against exact probabilities. Draws are seeded, so a test always
 * passes or always fails. When a seed is chosen, a correct program fails with probability 1e-6. Include after <cmocka.h>. */
#ifndef SFP_TESTS_CHI_SQUARE_H
#define SFP_TESTS_CHI_SQUARE_H

#include "test.h"

/* Returns the probability that a chi-square variable with k degrees of freedom exceeds x. This is the regularised upper gamma
 * function Q(k/2, x/2), computed by its series below the mean and by its continued fraction (Lentz) above. */
static inline double chi_square_tail(int k, double x)
{
    double a = 0.5 * k, y = 0.5 * x;
    if (y <= 0)
        return 1;
    double front = exp(a * log(y) - y - lgamma(a));
    if (y < a + 1) {
        double term = 1 / a, sum = term;
        for (int n = 1; n < 10000 && term > 1e-16 * sum; n++)
            sum += term *= y / (a + n);
        return 1 - front * sum;
    }
    double b = y + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int n = 1; n < 10000; n++) {
        double an = -n * (n - a);
        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        h *= c * d;
        if (fabs(c * d - 1) < 1e-15)
            break;
    }
    return front * h;
}

/* Fails unless the counts of `cells` outcomes fit their probabilities. An outcome of probability 0 must not have occurred.
 * Every other outcome must have an expected count of at least 5; otherwise the test itself is wrong. */
static inline void check_distribution(const char *what, int cells, const long *count, const double *probability)
{
    double sum = 0, statistic = 0;
    long n = 0;
    int used = 0;
    for (int i = 0; i < cells; i++) {
        n += count[i];
        sum += probability[i];
    }
    if (!(fabs(sum - 1) < 1e-9))
        fail_msg("%s: the probabilities add up to %.12g", what, sum);
    for (int i = 0; i < cells; i++) {
        double expected = probability[i] * (double)n;
        if (probability[i] == 0) {
            if (count[i])
                fail_msg("%s: outcome %d is impossible and happened %ld times", what, i, count[i]);
            continue;
        }
        if (expected < 5)
            fail_msg("%s: outcome %d is expected only %.3g times", what, i, expected);
        statistic += ((double)count[i] - expected) * ((double)count[i] - expected) / expected;
        used++;
    }
    double p = used > 1 ? chi_square_tail(used - 1, statistic) : 1;
    if (!(p > 1e-6))
        fail_msg("%s: chi-square %.2f with %d degrees of freedom, p = %.2g", what, statistic, used - 1, p);
}

#endif
