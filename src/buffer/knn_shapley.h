/* Shapley values of training points for a k-nearest-neighbour classifier, exactly and without trying subsets (Jia et al.,
 * "Efficient task-specific data valuation for nearest neighbor algorithms", VLDB 2019, Theorem 1).
 *
 * The game of one test point: a set S of training points is worth v(S) = 1/k * #{of the min(k, |S|) nearest in S, those with the
 * class of the test point}. The value of point i is the mean, over all orders in which the points can come, of what v grows by
 * when i comes; values sum to v(all points). */
#ifndef SFP_BUFFER_KNN_SHAPLEY_H
#define SFP_BUFFER_KNN_SHAPLEY_H

#include <stdbool.h>
#include <stdint.h>

/* Values (n) of points in order of their distance, nearest first; same[i]: has the class of the test point. O(n). */
void sfp__knn_shapley(int n, int k, const bool *same, double *value);

typedef struct sfp_shapley_game {
    int k, dim;
    const float *x;       /* (rows, D) */
    const int32_t *label; /* (rows) */
    int n;                /* rows 0..n-1 are the training points */
    int tests;
    const int *test; /* (tests) rows of the test points; a training point may be one */
    /* workspace */
    int *finite, *order; /* (n) */
    float *near;         /* (n) */
    bool *same;          /* (n) */
    double *value;       /* (n) */
} sfp_shapley_game;

/* sum[i], i < n: the sum of point i's values over all test points, Euclidean distance, ties by lower index. Rows with a number
 * that is not finite play in no game; a training point among them is worth -INFINITY. tests * (n*D + n*log(n)) operations. */
void sfp__knn_shapley_sum(const sfp_shapley_game *g, double *sum);

#endif
