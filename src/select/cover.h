/* How far every point is from the nearest chosen one: what farthest-first and D^2 sampling share.
 *
 * The distances are lazy. A chosen point waits with others until BLOCK of them are compared with all points by one matrix
 * product; meanwhile a stored distance is an upper bound, and `now` brings the few that matter up to date. So c picks of n points
 * of D numbers cost n*c*D multiplications at the speed of a matrix product instead of c passes over all memory, and n numbers.
 *
 * The product only filters: where its value, minus its rounding error, does not rule a change out, the distance is computed
 * again in double from the difference of the rows. What is stored is therefore the same on every machine, and 0 for equal rows.
 */
#ifndef SFP_SELECT_COVER_H
#define SFP_SELECT_COVER_H

#include "select/select_internal.h"

enum { SFP_COVER_BLOCK = 64 };

typedef struct sfp__cover {
    const sfp__select_env *env;
    int n, dim;
    const float *x;  /* (n, D) finite */
    double *near2;   /* (n) squared distance to the nearest of the first applied[i] chosen; INFINITY: none */
    int *applied;    /* (n) */
    int *chosen;     /* in order */
    int most;        /* picks to come in all */
    int count, base; /* chosen; of these compared with all points */
    float *square;   /* (n) |x|^2 */
    float *recent;   /* (BLOCK, D) chosen[base..count) */
    float *product;  /* (workers, GRAIN, BLOCK) */
} sfp__cover;

/* For at most `most` picks; memory is the arena's. */
sfp_status sfp__cover_init(sfp__cover *c, const sfp__select_env *env, int n, int dim, const float *x, int most, sfp_error *err);
/* Squared distance of point i to the nearest chosen one. */
double sfp__cover_now(sfp__cover *c, int i);
/* Chooses i. True: all distances are up to date now. */
bool sfp__cover_add(sfp__cover *c, int i);

/* D^2 sampling (k-means++, Arthur and Vassilvitskii 2007): the first uniform, every next with probability proportional to the
 * square of its distance to the nearest chosen one; on cosine distance (x are unit rows, squared distance = 2 (1 - cos)) or on
 * Euclidean. When only points at distance 0 are left they are equally likely. count <= n positions into `out`.
 *
 * Exact although distances are lazy: a point is proposed with the weight it had (an upper bound) and taken with probability
 * weight now / weight then. Random numbers: one bounded draw for the first, two doubles a proposal, one bounded draw where all
 * weights are 0. */
sfp_status sfp__d2_sample(const sfp__select_env *env, int n, int dim, const float *x, bool cosine, int count, int *out,
                          sfp_error *err);

/* Rows to unit length; a row of zeros stays. */
void sfp__unit_rows(int n, int dim, float *x);

#endif
