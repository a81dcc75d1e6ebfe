/* Last-layer gradients in factors: g_i = r_i (x) (h_i, 1), r_i = p_i - onehot(y_i), so <g_i, g_j> = (r_i.r_j)(1 + h_i.h_j)
 * (SPEC section 11). What craig and gradmatch share: all but how they choose. */
#ifndef SFP_SELECT_LASTLAYER_H
#define SFP_SELECT_LASTLAYER_H

#include "select/distance.h"

/* Chooses `want` <= n of the points of a metric: positions in order of choice, and their weights; both have room for n. `id` (n):
 * ties go to the lower. */
typedef sfp_status (*sfp_lastlayer_fn)(const sfp_select_env *env, const sfp_metric *m, const int *id, int want, int *picked,
                                       double *weight, sfp_error *err);

/* The `pick` of a selector on last-layer gradients: checks, candidates, their residuals and features as a metric, `choose`. */
sfp_status sfp__lastlayer_pick(const sfp_selector *s, sfp_lastlayer_fn choose, const sfp_select_batch *batch,
                               const sfp_select_options *opt, const sfp_select_env *env, int *out, float *weight, int *count,
                               sfp_error *err);

#endif
