/* Greedy facility location in bounded memory, used by camel and craig.
 *
 * F(S) = sum_i (d_max - min_{j in S} d_ij), where d_max is the largest distance of any two points and an uncovered point counts
 * 0. Points may be divided into groups; a point covers only points of its own group. cur_i is d_max at the start and later the
 * distance of i to the nearest chosen point. The gain of j is sum_i max(0, cur_i - d_ij), so only the points i with d_ij < cur_i
 * contribute.
 *
 * There are two phases; the picks are the same as if every pick compared all points with all points:
 *   dense   Runs while more than `max_pairs` pairs have d_ij < cur_i. All gains are kept up to date. A pick costs the distances
 *           from the points that it moved to all others; a point moves about ln(c) times in total.
 *   sparse  Stores the remaining pairs and runs the lazy greedy algorithm (Minoux 1978) on them. A gain can only decrease, so the
 *           top of the heap is recomputed and chosen if it stays on top.
 * A small set of points is sparse from the start. Memory: 8 bytes per stored pair and a second copy of the rows; never n^2. */
#ifndef SFP_SELECT_FACILITY_H
#define SFP_SELECT_FACILITY_H

#include "select/distance.h"

#define SFP__FACILITY_PAIRS ((size_t)40 << 20) /* memory of the pairs: 320 MiB */

typedef struct sfp__facility {
    const sfp__select_env *env;
    const sfp__metric *metric;
    int groups;
    const int *group; /* (groups + 1) points [group[g], group[g+1]) cover each other */
    const int *id;    /* (n) on a tie the lower id is chosen */
    size_t max_pairs; /* maximum number of stored pairs */
} sfp__facility;

/* Writes count points in order of choice; count is at most n. */
sfp_status sfp__facility_greedy(const sfp__facility *f, int count, int *out, sfp_error *err);

/* Writes to size[k] the number of points whose nearest chosen point of their group is chosen[k]; on a tie the lower id counts.
 * Points of a group without a chosen point are not counted. */
sfp_status sfp__facility_clusters(const sfp__facility *f, int count, const int *chosen, int *size, sfp_error *err);

#endif
