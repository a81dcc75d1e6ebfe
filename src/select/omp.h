/* Orthogonal matching pursuit on last-layer gradients: minimise |G w - sum g|^2 + 0.5 |w|^2, w >= 0 (docs/method.md, section 11,
 * gradmatch).
 *
 * A step adds the sample whose gradient correlates most with the residual, if that is positive, and fits all weights (nnls.h).
 * The residual, a matrix R (C, D+1), is never multiplied with a gradient as a vector: <g_i, R> = r_i^T R (h_i, 1).
 *
 * Two ways to the n correlations of a step, the same numbers but for rounding:
 *   gram      n*c products of gradients are kept (double): n*(C + D + s) operations at step s; for few samples
 *   factored  R itself in float, brought up to date by one product a step and from double every REFRESH picks: n*C*D operations
 *             a step in matrix products, no memory that grows with n*c
 * Beside them the factor of the fit: c^2 / 2 doubles and s^2 operations a step. */
#ifndef SFP_SELECT_OMP_H
#define SFP_SELECT_OMP_H

#include "select/distance.h"
#include "select/nnls.h"

#define SFP_OMP_GRAM ((size_t)1 << 21) /* n*c up to this: 16 MiB */
#define SFP_OMP_RIDGE 0.5

/* At most `count` positions in order of choice and their weights (0: chosen once, but a later fit did without); returns how many
 * in *got: fewer when no correlation is positive. `gram`: largest n*c of the first way. */
sfp_status sfp__omp(const sfp__select_env *env, const sfp__metric *m, size_t gram, int count, int *out, double *weight, int *got,
                    sfp_error *err);

#endif
