/* Distances between many points, computed in blocks and stored as integers.
 *
 * A distance is a multiple of U / 2^30, where U is an upper bound of all distances. Sums and differences of integers are exact in
 * any order. Gains therefore do not depend on threads, blocks or the order of updates, and distances that are equal in theory are
 * equal here.
 *
 * There are two metrics. Without residuals it is the Euclidean distance of the rows h (n, D). With residuals r (n, C) it is the
 * distance of last-layer gradients g = r (x) (h, 1): |g_i - g_j|^2 = k_ii + k_jj - 2 k_ij with k_ij = (r_i.r_j)(1 + h_i.h_j). No
 * gradient of C*(D+1) numbers is ever formed.
 *
 * Up to SFP__DISTANCE_PRECISE points are computed in double. More points use float matrix products (six digits), unless the
 * squares of the values overflow or underflow a float. */
#ifndef SFP_SELECT_DISTANCE_H
#define SFP_SELECT_DISTANCE_H

#include "select/select_internal.h"

enum { SFP__DISTANCE_PRECISE = 1024, SFP__DISTANCE_BLOCK = 256, SFP__DISTANCE_ONE = 1 << 30 };

typedef struct sfp__metric {
    int n;
    int dim;
    const float *h; /* (n, D) */
    int classes;
    const float *r; /* (n, C); NULL: Euclidean */
    double *self;   /* (n) k_ii */
    double scale;   /* 2^30 / U; 0 if all points are at the origin or the bound is not finite */
    bool precise;
} sfp__metric;

/* A subset of the points: contiguous rows and their indices. */
typedef struct sfp__points {
    int n;
    const float *h, *r;
    const double *self;
    const int *which; /* (n) indices; NULL: first, first + 1, ... */
    int first;
} sfp__points;

/* Allocates `self` from the arena. h and r are not copied and must outlive the metric. */
sfp_status sfp__metric_init(sfp__metric *m, const sfp__select_env *env, int n, int dim, const float *h, int classes,
                            const float *r, sfp_error *err);
sfp__points sfp__metric_points(const sfp__metric *m, int first, int n);

/* Returns k_ij, computed in double. */
double sfp__metric_product(const sfp__metric *m, const sfp__points *a, int i, const sfp__points *b, int j);

/* Writes the distances to q (a->n, b->n) with row stride SFP__DISTANCE_BLOCK; a and b have at most that many points. `work` has
 * space for 2 * BLOCK^2 floats. The distance of a point to itself is exactly 0. */
void sfp__metric_block(const sfp__metric *m, const sfp__points *a, const sfp__points *b, float *work, int32_t *q);

/* Copies the rows which[] (n) of the metric to contiguous arrays: h (n, D), r (n, C), self (n). */
sfp__points sfp__metric_gather(const sfp__metric *m, int n, const int *which, float *h, float *r, double *self);

/* Last-layer gradients in factored form: g_i = r_i (x) (h_i, 1), r_i = p_i - onehot(y_i), so <g_i, g_j> = (r_i.r_j)(1 + h_i.h_j)
 * (docs/method.md, section 11). craig and gradmatch share this code and differ only in the function that chooses. */

/* Chooses `want` <= n points of a metric. Writes their positions in order of choice and their weights; both arrays have space for
 * n. id (n): on a tie the point with the lower id is chosen. */
typedef sfp_status (*sfp__lastlayer_fn)(const sfp__select_env *env, const sfp__metric *m, const int *id, int want, int *picked,
                                        double *weight, sfp_error *err);

/* The `pick` of a selector on last-layer gradients: checks the batch, builds a metric from the residuals and features of the
 * candidates, and calls `choose`. */
sfp_status sfp__lastlayer_pick(const sfp__selector *s, sfp__lastlayer_fn choose, const sfp__select_batch *batch,
                               const sfp__select_options *opt, const sfp__select_env *env, int *out, float *weight, int *count,
                               sfp_error *err);

#endif
