/* Orthogonal matching pursuit on last-layer gradients: minimises |G w - sum g|^2 + 0.5 |w|^2, w >= 0 (docs/method.md, section 11,
 * gradmatch).
 *
 * A step adds the sample whose gradient has the largest positive correlation with the residual, and refits all weights (nnls.h).
 * The residual is a matrix R (C, D+1). Correlations use <g_i, R> = r_i^T R (h_i, 1), so no gradient is formed.
 *
 * There are two ways to compute the n correlations of a step; the results differ only by rounding:
 *   gram      Keeps n*c products of gradients in double; n*(C + D + s) operations at step s. For few samples.
 *   factored  Keeps R in float. One matrix product per step updates it, and it is recomputed in double every REFRESH picks. A
 *             step costs n*C*D operations in matrix products; no memory grows with n*c.
 * The factor of the fit needs c^2 / 2 doubles and s^2 operations at step s in addition. */
#ifndef SFP_SELECT_OMP_H
#define SFP_SELECT_OMP_H

#include "select/distance.h"
#include "select/nnls.h"

#define SFP__OMP_GRAM ((size_t)1 << 21) /* largest n*c for `gram`: 16 MiB */
#define SFP__OMP_RIDGE 0.5

/* Writes at most `count` positions in order of choice and their weights. A weight of 0 means that a later fit did not need the
 * sample. *got is the number written; it is smaller than count if no further correlation is positive. `max_gram` is the largest
 * n*c for which `gram` is used. */
sfp_status sfp__omp(const sfp__select_env *env, const sfp__metric *m, size_t max_gram, int count, int *out, double *weight,
                    int *got, sfp_error *err);

#endif
