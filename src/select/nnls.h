/* Non-negative ridge regression on a growing set of columns: min |G w - b|^2 + ridge |w|^2, w >= 0 (Lawson and Hanson's active
 * set), on the Gram matrix alone.
 *
 * The Cholesky factor of (G^T G + ridge I) over the columns whose weight is positive is kept: a column that comes adds a row,
 * one that goes is taken out by rotations; p^2 operations each, nothing is factored anew. The ridge keeps every pivot positive.
 *
 *     add -> the weights are the minimum over the columns in the factor, all >= 0
 *     a column that was left at 0 may want back (its correlation with the residual is positive): the caller sees, and adds it */
#ifndef SFP_SELECT_NNLS_H
#define SFP_SELECT_NNLS_H

#include "select/select_internal.h"

typedef struct sfp_nnls {
    double ridge;
    int passive;  /* p columns in the factor */
    int *column;  /* (most) which, in order of rows */
    double *rhs;  /* (most) <g, b> by column, the caller's to fill */
    double *w;    /* (most) by column; 0 for those not in the factor */
    double *l;    /* p(p+1)/2: rows of the lower triangle one after another */
    double *y;    /* (most) L y = rhs */
    double *z;    /* (most) solution before it is cut to w >= 0; cosines of rotations */
    double *line; /* (most) a row that comes; sines of rotations */
} sfp_nnls;

/* Room for `most` columns: most^2 / 2 doubles and a few vectors of the arena. */
sfp_status sfp__nnls_init(sfp_nnls *s, const sfp_select_env *env, int most, double ridge, sfp_error *err);

/* Column `c` comes in; `gram` (p) are its products with column[0..p), self its own. Then all weights are fitted. */
void sfp__nnls_add(sfp_nnls *s, int c, const double *gram, double self);

bool sfp__nnls_holds(const sfp_nnls *s, int c);

#endif
