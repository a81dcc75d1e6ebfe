/* The metrics of docs/method.md, section 10: accuracy, forgetting, backward transfer, confusion and confidence intervals.
 *
 * `a` has shape (tasks, tasks); row i is measured after task i. Only the first `done` rows are used. The column of a task without
 * test samples is NAN; every mean excludes NAN. */
#include "results/result.h"

#include <math.h>

static double at(int tasks, const double *a, int i, int j)
{
    return a[(size_t)i * (size_t)tasks + (size_t)j];
}

double sfp__average_accuracy(int tasks, int done, const double *a)
{
    double sum = 0;
    int n = 0;
    for (int j = 0; j < done; j++)
        if (!isnan(at(tasks, a, done - 1, j))) {
            sum += at(tasks, a, done - 1, j);
            n++;
        }
    return n ? sum / n : NAN;
}

double sfp__no_minus_zero(double x, int decimals)
{
    return fabs(x) < 0.5 * pow(10, -decimals) ? 0 : x;
}

double sfp__forgetting(int tasks, int done, const double *a)
{
    double sum = 0;
    int n = 0;
    for (int j = 0; j + 1 < done; j++) {
        double best = NAN, last = at(tasks, a, done - 1, j);
        for (int k = j; k + 1 < done; k++)
            best = fmax(best, at(tasks, a, k, j)); /* fmax ignores NAN */
        if (!isnan(best) && !isnan(last)) {
            sum += best - last;
            n++;
        }
    }
    return n ? sum / n : NAN;
}

double sfp__backward_transfer(int tasks, int done, const double *a)
{
    double sum = 0;
    int n = 0;
    for (int j = 0; j + 1 < done; j++) {
        double change = at(tasks, a, done - 1, j) - at(tasks, a, j, j);
        if (!isnan(change)) {
            sum += change;
            n++;
        }
    }
    return n ? sum / n : NAN;
}

void sfp__result_summarise(sfp_result *r)
{
    r->average_accuracy = sfp__average_accuracy(r->tasks, r->tasks_done, r->accuracy);
    r->forgetting = sfp__forgetting(r->tasks, r->tasks_done, r->accuracy);
    r->backward_transfer = sfp__backward_transfer(r->tasks, r->tasks_done, r->accuracy);
}

int sfp__top_confusions(int classes, const uint64_t *confusion, int max_pairs, sfp__confusion_pair *out)
{
    int found = 0;
    for (int t = 0; confusion && t < classes; t++)
        for (int a = 0; a < classes; a++) {
            uint64_t count = confusion[(size_t)t * (size_t)classes + (size_t)a];
            if (a == t || count == 0 || (found == max_pairs && count <= out[found - 1].count))
                continue;
            int at = found < max_pairs ? found++ : found - 1;
            for (; at > 0 && out[at - 1].count < count; at--)
                out[at] = out[at - 1];
            out[at] = (sfp__confusion_pair){t, a, count};
        }
    return found;
}

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

void sfp__mean_interval(int n, const double *x, double *mean, double *half)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    double m = n > 0 ? sum / n : NAN;
    for (int i = 0; i < n; i++)
        squares += (x[i] - m) * (x[i] - m);
    *mean = m;
    *half = n < 2 ? NAN : sfp__student_t(0.975, n - 1) * sqrt(squares / (n - 1) / n);
}
