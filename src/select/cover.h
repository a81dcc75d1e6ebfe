/* Distance of every point to its nearest chosen point; used by farthest-first traversal (kcenter) and D^2 sampling (freesel).
 *
 * The distances are updated lazily. Chosen points are collected until BLOCK of them can be compared with all points by one matrix
 * product. Until then a stored distance is an upper bound, and sfp__cover_update brings single points up to date. Choosing c of n
 * points of D numbers therefore costs n*c*D multiplications at the speed of a matrix product, instead of c passes over all
 * memory.
 *
 * The matrix product is only a filter. Where its value minus its rounding error does not exclude a smaller distance, the distance
 * is recomputed in double from the difference of the rows. The stored distances are therefore the same on every machine, and 0
 * for equal rows. */
#ifndef SFP_SELECT_COVER_H
#define SFP_SELECT_COVER_H

#include "select/select_internal.h"

enum { SFP__COVER_BLOCK = 64 };

typedef struct sfp__cover {
    const sfp__select_env *env;
    int n, dim;
    const float *x;      /* (n, D) finite */
    double *near2;       /* (n) squared distance to the nearest of the first applied[i] chosen points; INFINITY: none */
    int *applied;        /* (n) */
    int *chosen;         /* in order of choice */
    int max_picks;       /* number of points that will be chosen in total */
    int count, compared; /* chosen points; how many of these were compared with all points */
    float *square;       /* (n) |x|^2 */
    float *recent;       /* (BLOCK, D) rows of chosen[compared..count) */
    float *product;      /* (workers, GRAIN, BLOCK) */
} sfp__cover;

/* Prepares for at most `max_picks` chosen points. Memory is allocated from the arena. */
sfp_status sfp__cover_init(sfp__cover *c, const sfp__select_env *env, int n, int dim, const float *x, int max_picks,
                           sfp_error *err);
/* Brings point i up to date and returns its squared distance to the nearest chosen point. */
double sfp__cover_update(sfp__cover *c, int i);
/* Chooses point i. Returns true if all stored distances are now up to date. */
bool sfp__cover_add(sfp__cover *c, int i);

/* D^2 sampling (k-means++, Arthur and Vassilvitskii 2007). The first point is drawn uniformly. Every further point is drawn with
 * a probability proportional to the square of its distance to the nearest chosen point. The distance is the cosine distance (x
 * are unit rows, squared distance = 2 (1 - cos)) or the Euclidean distance. If all remaining points have distance 0, they are
 * equally likely. Writes count <= n positions to `out`.
 *
 * The sampling is exact although distances are lazy. A point is proposed with its stored weight, an upper bound, and accepted
 * with probability (current weight / stored weight). Random numbers: one bounded draw for the first point, two doubles per
 * proposal, one bounded draw whenever all weights are 0. */
sfp_status sfp__d2_sample(const sfp__select_env *env, int n, int dim, const float *x, bool cosine, int count, int *out,
                          sfp_error *err);

/* Scales each row to unit length; a row of zeros is unchanged. */
void sfp__unit_rows(int n, int dim, float *x);

#endif
