/* Non-negative ridge regression on a growing set of columns: min |G w - b|^2 + ridge |w|^2, w >= 0, on the Gram matrix alone.
 *
 * The Cholesky factor of (G^T G + ridge I) over the columns whose weight is positive is kept: one that comes adds a row, one that
 * goes is taken out by rotations; p^2 operations at most, nothing is factored anew. Those that come and go are the last rows, so
 * that taking out is cheap; those that come together read the factor once. The ridge keeps every pivot positive.
 *
 * Which columns are positive is found by block principal pivoting (Portugal, Judice and Vicente 1994; Kim and Park 2011): solve
 * without the constraint, send all negative ones out and all that the residual wants in, at once, as long as the number of wrong
 * ones falls; when it does not for three rounds, only the last wrong one, which cannot go round for ever. The minimum is unique:
 * it does not matter how it is found. */
#ifndef SFP_SELECT_NNLS_H
#define SFP_SELECT_NNLS_H

#include "select/select_internal.h"

enum { SFP_NNLS_TOGETHER = 16 }; /* columns that come at once */

typedef struct sfp__nnls sfp__nnls;

/* What the fit asks of the columns; callbacks, as their owner knows how to multiply them fast. */
typedef struct sfp__columns {
    void *ctx;
    /* <g_c, g_k> for the n columns k of `others` */
    void (*gram)(void *ctx, int c, int n, const int *others, double *out);
    /* <g_c, b - G w> at the present weights for the n columns c of `which`; returns how large rounding noise is */
    double (*correlate)(void *ctx, const sfp__nnls *s, int n, const int *which, double *out);
} sfp__columns;

struct sfp__nnls {
    sfp__columns columns;
    double ridge;
    int known;     /* columns [0, known) take part */
    int passive;   /* p of them are in the factor */
    int *column;   /* (most) which, in order of rows */
    int *place;    /* (most) row of a column, -1: its weight is 0 */
    double *rhs;   /* (most) <g, b> */
    double *w;     /* (most) by column */
    double *l;     /* p(p+1)/2: rows of the lower triangle one after another */
    double *y;     /* (most) L y = rhs */
    double *z;     /* (most) cosines of rotations */
    double *line;  /* (most) sines of rotations */
    double *corr;  /* (most) */
    double *fresh; /* (most) products of a column that comes */
    int *out, *in; /* (most) wrong ones of a round */
};

/* Space for `most` columns: most^2 / 2 doubles and some vectors of the arena. */
sfp_status sfp__nnls_init(sfp__nnls *s, const sfp__select_env *env, const sfp__columns *columns, int most, double ridge,
                          sfp_error *err);

/* Column `known` joins, with its product with b; then w is the minimum over all that are known. */
void sfp__nnls_add(sfp__nnls *s, double rhs);

#endif
