/* Numbers about numbers that only metrics.c and its tests need; the rest of SPEC section 10 is in result.h. */
#ifndef SFP_RESULTS_METRICS_H
#define SFP_RESULTS_METRICS_H

/* Regularised incomplete beta function I_x(a, b), a and b > 0, x in [0, 1]. */
double sfp__incomplete_beta(double a, double b, double x);
/* The t with P(T <= t) = p for Student's T with df > 0 degrees of freedom; NAN outside 0 < p < 1. */
double sfp__student_t(double p, double df);

#endif
