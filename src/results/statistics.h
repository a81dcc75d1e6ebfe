/* Statistics of repeated runs: intervals, rank correlation, paired comparisons, and the comparison with a published figure.
 * docs/method.md defines them (section 10). */
#ifndef SFP_RESULTS_STATISTICS_H
#define SFP_RESULTS_STATISTICS_H

/* Regularised incomplete beta function I_x(a, b), a and b > 0, x in [0, 1]. */
double sfp__incomplete_beta(double a, double b, double x);
/* The quantile t with P(T <= t) = p of Student's T with df > 0 degrees of freedom; NAN outside 0 < p < 1. */
double sfp__student_t(double p, double df);
/* Mean and half width of the 95 % Student-t interval of n numbers; half NAN for n < 2. */
void sfp__mean_interval(int n, const double *x, double *mean, double *half);

/* Tables and charts for people show an interval of at least this many runs: with two, t is 12.7, and the interval of an accuracy can be
 * wider than 100 points. CSV and JSON have the half width from two runs on. */
#define SFP__INTERVAL_RUNS 3
/* Returns the half width that people see; NAN: none. */
double sfp__shown_half(int n, double half);

/* Kendall's tau-b between two vectors. A pair (a[i], b[i]) with a NAN is skipped. */
typedef struct sfp__kendall {
    int n;      /* pairs used */
    double tau; /* in [-1, 1]; NAN: fewer than two pairs, or all values of a vector are equal */
    double p;   /* two-sided: exact without ties for n <= 50, else by the normal approximation; NAN: tau is not defined */
} sfp__kendall;
sfp__kendall sfp__kendall_tau(int n, const double *a, const double *b);

/* Two-sided p value of the exact sign test; ties must not be counted. Returns 1 if both counts are 0. */
double sfp__sign_test(int positive, int negative);

/* The differences a[i] - b[i]. A pair with a NAN is skipped. */
typedef struct sfp__paired {
    int n;                  /* pairs used */
    double mean, half;      /* mean and half width of the 95 % Student-t interval; NAN: not defined (n < 1, n < 2) */
    int positive, negative; /* numbers of differences above and below 0 */
    double sign_p;          /* p value of the sign test on these numbers */
} sfp__paired;
sfp__paired sfp__paired_differences(int n, const double *a, const double *b);

/* The spread of a published figure that has none: one percentage point. */
#define SFP__DEFAULT_SPREAD 0.01
/* Compares our interval mean +- half with a published figure. "same": the figure lies in the interval, widened by its spread on
 * both sides. "above", "below": ours is above or below the figure. "not run": mean is NAN. NULL: there is no figure. A half that
 * is NAN counts as 0, a spread that is NAN as SFP__DEFAULT_SPREAD. */
const char *sfp__verdict(double mean, double half, double paper, double spread);

#endif
