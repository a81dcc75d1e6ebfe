/* Non-negative ridge regression on a growing set of columns: min |G w - b|^2 + ridge |w|^2, w >= 0, computed from the Gram
 * matrix.
 *
 * The columns with positive weight are called passive. The Cholesky factor of (G^T G + ridge I) over the passive columns is
 * updated, never recomputed. A new column appends a row; a removed column is eliminated by rotations. Both cost at most p^2
 * operations for p passive columns. Columns that change often are in the last rows, where removal is cheap; columns that are
 * appended together read the factor once. The ridge keeps every pivot positive.
 *
 * The set of passive columns is found by block principal pivoting (Portugal, Judice and Vicente 1994; Kim and Park 2011). Solve
 * without the constraint, then remove all columns with negative weight and append all columns with positive residual correlation,
 * as long as the number of such misplaced columns decreases. If it has not decreased for three rounds, exchange only the last
 * misplaced column, which cannot cycle. The minimum is unique, so the order of exchanges does not affect the result. */
#ifndef SFP_SELECT_NNLS_H
#define SFP_SELECT_NNLS_H

#include "select/select_internal.h"

enum { SFP__NNLS_MAX_APPEND = 16 }; /* maximum number of columns that are appended together */

typedef struct sfp__nnls sfp__nnls;

/* Products of columns. They are callbacks because the owner of the columns knows how to compute them fast. */
typedef struct sfp__columns {
    void *ctx;
    /* Writes <g_c, g_k> for the n columns k of `others`. */
    void (*gram)(void *ctx, int c, int n, const int *others, double *out);
    /* Writes <g_c, b - G w> at the current weights for the n columns c of `which`. Returns the magnitude of the rounding
     * noise. */
    double (*correlate)(void *ctx, const sfp__nnls *s, int n, const int *which, double *out);
} sfp__columns;

struct sfp__nnls {
    sfp__columns columns;
    double ridge;
    int known;        /* columns [0, known) take part in the fit */
    int passive;      /* p: number of columns in the factor */
    int *column;      /* (max_columns) column of each row of the factor */
    int *place;       /* (max_columns) row of each column; -1: not in the factor, its weight is 0 */
    double *rhs;      /* (max_columns) <g, b> */
    double *w;        /* (max_columns) weight of each column */
    double *l;        /* p(p+1)/2 numbers: the rows of the lower triangle, stored consecutively */
    double *y;        /* (max_columns) solution of L y = rhs */
    double *z;        /* (max_columns) cosines of rotations; solution of L^T z = y */
    double *sines;    /* (max_columns) sines of rotations */
    double *corr;     /* (max_columns) correlations of the columns outside the factor */
    double *products; /* (max_columns) products of a column that is appended */
    int *out, *in;    /* (max_columns) columns to remove from and to append to the factor in this round */
};

/* Allocates memory for `max_columns` columns from the arena: max_columns^2 / 2 doubles and several vectors. */
sfp_status sfp__nnls_init(sfp__nnls *s, const sfp__select_env *env, const sfp__columns *columns, int max_columns, double ridge,
                          sfp_error *err);

/* Adds the next column, number s->known; rhs: its product <g, b>. Afterwards w is the solution for all columns below s->known. */
void sfp__nnls_add(sfp__nnls *s, double rhs);

#endif
