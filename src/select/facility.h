/* Greedy facility location in bounded memory: what camel and craig share.
 *
 * F(S) = sum_i (d_max - min_{j in S} d_ij), a point that nothing covers counting 0; points may be cut into groups that do not
 * cover each other, d_max is the largest distance of any two. With cur_i = d_max at the beginning, and the distance to the
 * nearest chosen one later, the gain of j is sum_i max(0, cur_i - d_ij): only points i that j is nearer to than cur_i count.
 *
 * Two phases, the same picks as comparing everything with everything a pick:
 *   dense   while the pairs with d_ij < cur_i are more than fit `pairs`: all gains are kept up to date; a pick costs the
 *           distances of the points it moved to all others. A point moves about ln(c) times in all.
 *   sparse  then these pairs are stored, and the rest is the lazy greedy algorithm (Minoux 1978) on them: a gain only falls, so
 *           the one on top of the heap is computed again, and chosen when it stays there.
 * Few points are sparse from the beginning. Memory: 8 bytes a pair stored and a second copy of the rows; n^2 nowhere. */
#ifndef SFP_SELECT_FACILITY_H
#define SFP_SELECT_FACILITY_H

#include "select/distance.h"

#define SFP_FACILITY_PAIRS ((size_t)40 << 20) /* 320 MiB */

typedef struct sfp__facility {
    const sfp__select_env *env;
    const sfp__metric *metric;
    int groups;
    const int *group; /* (groups + 1): points [group[g], group[g+1]) cover each other */
    const int *id;    /* (n): ties go to the lower */
    size_t pairs;     /* kept in memory */
} sfp__facility;

/* count <= n points in order of choice. */
sfp_status sfp__facility_greedy(const sfp__facility *f, int count, int *out, sfp_error *err);

/* How many points have chosen[k] as their nearest, ties to the lower id; one group. */
sfp_status sfp__facility_clusters(const sfp__facility *f, int count, const int *chosen, int *size, sfp_error *err);

#endif
