/* Every function skips NAN, uses no allocation, and is exact where that is simple: n is the number of runs or methods, which is
 * small, so sums over all pairs are fast enough. */
#include "results/statistics.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* ----------------------------------------------------------------- Student's t */

/* Evaluates the continued fraction of the incomplete beta function by Lentz's method; it converges fast for
 * x < (a + 1)/(a + b + 2). */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double f = d;
    for (int m = 1; m <= 10000; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        for (int half = 0; half < 2; half++) {
            double term = half ? odd : even;
            d = 1 + term * d;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = 1 + term / c;
            if (fabs(c) < tiny)
                c = tiny;
            f *= c * d;
        }
        if (fabs(c * d - 1) < 1e-16)
            break;
    }
    return f;
}

double sfp__incomplete_beta(double a, double b, double x)
{
    if (!(x > 0))
        return 0;
    if (!(x < 1))
        return 1;
    int sign; /* lgamma stores the sign in a global variable, lgamma_r does not */
    double log_beta = lgamma_r(a, &sign) + lgamma_r(b, &sign) - lgamma_r(a + b, &sign);
    double front = exp(a * log(x) + b * log1p(-x) - log_beta);
    if (x < (a + 1) / (a + b + 2))
        return front * beta_fraction(a, b, x) / a;
    return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

/* P(T > t) for t >= 0. Uses the smaller of the two possible arguments of the beta function, which avoids cancellation. */
static double upper_tail(double t, double df)
{
    double t2 = t * t;
    if (t2 < df)
        return 0.5 * (1 - sfp__incomplete_beta(0.5, df / 2, t2 / (df + t2)));
    return 0.5 * sfp__incomplete_beta(df / 2, 0.5, df / (df + t2));
}

double sfp__student_t(double p, double df)
{
    if (!(p > 0 && p < 1 && df > 0))
        return NAN;
    if (p < 0.5)
        return -sfp__student_t(1 - p, df);
    double low = 0, high = 1, tail = 1 - p;
    while (upper_tail(high, df) > tail && high < 1e300)
        high *= 2;
    for (int i = 0; i < 200 && high - low > 1e-15 * high; i++) { /* the tail is monotonic, so bisection converges */
        double middle = low + (high - low) / 2;
        if (upper_tail(middle, df) > tail)
            low = middle;
        else
            high = middle;
    }
    return p == 0.5 ? 0 : low + (high - low) / 2;
}

/* Half width of the interval of n numbers with this sum of squared deviations. */
static double half_width(int n, double squares)
{
    return n < 2 ? NAN : sfp__student_t(0.975, n - 1) * sqrt(squares / (n - 1) / n);
}

void sfp__mean_interval(int n, const double *x, double *mean, double *half)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    double m = n > 0 ? sum / n : NAN;
    for (int i = 0; i < n; i++)
        squares += (x[i] - m) * (x[i] - m);
    *mean = m;
    *half = half_width(n, squares);
}

double sfp__shown_half(int n, double half)
{
    return n >= SFP__INTERVAL_RUNS ? half : NAN;
}

/* --------------------------------------------------------------- Kendall's tau */

enum { EXACT_MAX = 50 };

static bool is_pair(const double *a, const double *b, int i)
{
    return !isnan(a[i]) && !isnan(b[i]);
}

/* P(at most d discordant pairs) of n <= EXACT_MAX untied values in random order. The probability of k inversions is computed
 * value by value: the i-th value adds 0 to i - 1 inversions, each with probability 1/i. */
static double few_discordant(int n, int d)
{
    double p[EXACT_MAX * (EXACT_MAX - 1) / 2 + 1] = {1}, sum = 0;
    for (int i = 2, max = 0; i <= n; i++) {
        double next[EXACT_MAX * (EXACT_MAX - 1) / 2 + 1] = {0};
        for (int k = 0; k <= max; k++)
            for (int m = 0; m < i; m++)
                next[k + m] += p[k] / i;
        max += i - 1;
        memcpy(p, next, sizeof p);
    }
    for (int k = 0; k <= d; k++)
        sum += p[k];
    return sum;
}

/* Sums over the groups of t equal values of x. */
typedef struct ties {
    double pairs;   /* t (t - 1)/2 */
    double triples; /* t (t - 1) (t - 2) */
    double weights; /* t (t - 1) (2 t + 5) */
} ties;

static ties count_ties(int n, const double *x, const double *a, const double *b)
{
    ties sum = {0};
    for (int i = 0; i < n; i++) {
        double t = 0;
        for (int k = 0; k < n; k++)
            t += is_pair(a, b, i) && is_pair(a, b, k) && x[k] == x[i];
        if (t > 0) { /* each of the t values adds its share of the group */
            sum.pairs += (t - 1) / 2;
            sum.triples += (t - 1) * (t - 2);
            sum.weights += (t - 1) * (2 * t + 5);
        }
    }
    return sum;
}

/* The variance of concordant minus discordant pairs if the vectors are independent (Kendall, Rank Correlation Methods, 1970). */
static double score_variance(double n, const ties *x, const ties *y)
{
    double m = n * (n - 1), v = (m * (2 * n + 5) - x->weights - y->weights) / 18 + 2 * x->pairs * y->pairs / m;
    return n > 2 ? v + x->triples * y->triples / (9 * m * (n - 2)) : v;
}

sfp__kendall sfp__kendall_tau(int n, const double *a, const double *b)
{
    int used = 0, concordant = 0, discordant = 0;
    for (int i = 0; i < n; i++) {
        used += is_pair(a, b, i);
        for (int k = 0; k < i; k++)
            if (is_pair(a, b, i) && is_pair(a, b, k)) {
                int up = (a[i] > a[k]) - (a[i] < a[k]), with = (b[i] > b[k]) - (b[i] < b[k]);
                concordant += up * with > 0;
                discordant += up * with < 0;
            }
    }
    ties x = count_ties(n, a, a, b), y = count_ties(n, b, a, b);
    double pairs = 0.5 * used * (used - 1), score = concordant - discordant;
    double scale = sqrt(pairs - x.pairs) * sqrt(pairs - y.pairs);
    sfp__kendall k = {.n = used, .tau = NAN, .p = NAN};
    if (!(scale > 0))
        return k;
    k.tau = score / scale;
    if (x.pairs + y.pairs > 0 || used > EXACT_MAX)
        k.p = erfc(fabs(score) / sqrt(2 * score_variance(used, &x, &y)));
    else
        k.p = fmin(1, 2 * few_discordant(used, concordant < discordant ? concordant : discordant));
    return k;
}

/* ---------------------------------------------------------- paired comparisons */

double sfp__sign_test(int positive, int negative)
{
    int n = positive + negative, fewer = positive < negative ? positive : negative;
    if (2 * fewer >= n)
        return 1;
    return fmin(1, 2 * sfp__incomplete_beta(n - fewer, fewer + 1, 0.5)); /* P(at most `fewer` of n) of the binomial law */
}

sfp__paired sfp__paired_differences(int n, const double *a, const double *b)
{
    sfp__paired d = {.mean = NAN, .half = NAN};
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        if (is_pair(a, b, i)) {
            sum += a[i] - b[i];
            d.n++;
            d.positive += a[i] > b[i];
            d.negative += a[i] < b[i];
        }
    if (d.n > 0)
        d.mean = sum / d.n;
    for (int i = 0; i < n; i++)
        if (is_pair(a, b, i))
            squares += (a[i] - b[i] - d.mean) * (a[i] - b[i] - d.mean);
    d.half = half_width(d.n, squares);
    d.sign_p = sfp__sign_test(d.positive, d.negative);
    return d;
}

/* ------------------------------------------------------------ published figures */

const char *sfp__verdict(double mean, double half, double paper, double spread)
{
    if (isnan(paper))
        return NULL;
    if (isnan(mean))
        return "not run";
    double allowed = (isnan(half) ? 0 : half) + (isnan(spread) ? SFP__DEFAULT_SPREAD : spread);
    if (fabs(mean - paper) <= allowed + 1e-12) /* a difference of exactly one point has a rounding error */
        return "same";
    return mean > paper ? "above" : "below";
}
