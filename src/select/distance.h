/* Distances between many points, a block at a time, as whole numbers.
 *
 * A distance is counted in units of U / 2^30, U an upper bound of all of them: sums and differences of whole numbers are exact in
 * any order, so that gains do not depend on threads, blocks or the order of updates, and what ties on paper ties here.
 *
 * Two metrics: Euclidean on rows h (n, D); and, with residuals r (n, C), the distance of last-layer gradients g = r (x) (h, 1),
 * |g_i - g_j|^2 = k_ii + k_jj - 2 k_ij, k_ij = (r_i.r_j)(1 + h_i.h_j), without ever forming one of the C*(D+1) numbers.
 *
 * Up to SFP_DISTANCE_PRECISE points in double; above by float matrix products, six digits, unless numbers are so large or small
 * that a float does not hold their squares. */
#ifndef SFP_SELECT_DISTANCE_H
#define SFP_SELECT_DISTANCE_H

#include "select/select_internal.h"

enum { SFP_DISTANCE_PRECISE = 1024, SFP_DISTANCE_BLOCK = 256, SFP_DISTANCE_ONE = 1 << 30 };

typedef struct sfp__metric {
    int n;
    int dim;
    const float *h; /* (n, D) */
    int classes;
    const float *r; /* (n, C); NULL: Euclidean */
    double *self;   /* (n) k_ii */
    double scale;   /* 2^30 / U; 0 when all points are one */
    bool precise;
} sfp__metric;

/* Some of the points: rows one below the other, and which they are. */
typedef struct sfp__points {
    int n;
    const float *h, *r;
    const double *self;
    const int *which; /* (n); NULL: first, first + 1, ... */
    int first;
} sfp__points;

/* The arena's memory for `self`; h and r must stay. */
sfp_status sfp__metric_init(sfp__metric *m, const sfp__select_env *env, int n, int dim, const float *h, int classes,
                            const float *r, sfp_error *err);
sfp__points sfp__metric_points(const sfp__metric *m, int first, int n);

/* k_ij in double */
double sfp__metric_product(const sfp__metric *m, const sfp__points *a, int i, const sfp__points *b, int j);

/* q (a->n, b->n), row stride SFP_DISTANCE_BLOCK, both at most that long; `work` has space for 2 * BLOCK^2 floats. A point is at
 * distance 0 from itself. */
void sfp__metric_block(const sfp__metric *m, const sfp__points *a, const sfp__points *b, float *work, int32_t *q);

/* Rows which[] (n) of the metric copied together: h (n, D), r (n, C), self (n). */
sfp__points sfp__metric_gather(const sfp__metric *m, int n, const int *which, float *h, float *r, double *self);

/* Last-layer gradients in factors: g_i = r_i (x) (h_i, 1), r_i = p_i - onehot(y_i), so <g_i, g_j> = (r_i.r_j)(1 + h_i.h_j)
 * (docs/method.md, section 11). What craig and gradmatch share: all but how they choose. */

/* Chooses `want` <= n of the points of a metric: positions in order of choice, and their weights; both have space for n. `id` (n):
 * ties go to the lower. */
typedef sfp_status (*sfp__lastlayer_fn)(const sfp__select_env *env, const sfp__metric *m, const int *id, int want, int *picked,
                                        double *weight, sfp_error *err);

/* The `pick` of a selector on last-layer gradients: checks, candidates, their residuals and features as a metric, `choose`. */
sfp_status sfp__lastlayer_pick(const sfp__selector *s, sfp__lastlayer_fn choose, const sfp__select_batch *batch,
                               const sfp__select_options *opt, const sfp__select_env *env, int *out, float *weight, int *count,
                               sfp_error *err);

#endif
