/* Last-layer gradients in factors: g_i = r_i (x) (h_i, 1), r_i = p_i - onehot(y_i), so <g_i, g_j> = (r_i.r_j)(1 + h_i.h_j)
 * (SPEC section 11). What craig and gradmatch begin with. */
#ifndef SFP_SELECT_LASTLAYER_H
#define SFP_SELECT_LASTLAYER_H

#include "select/distance.h"

/* Checks, candidates, then residuals and features of the candidates in a metric. *all as in sfp__select_begin. */
sfp_status sfp__lastlayer_begin(const sfp_selector *s, const sfp_select_batch *batch, const sfp_select_options *opt,
                                const sfp_select_env *env, sfp_candidates *from, sfp_metric *metric, bool *all, int *out,
                                float *weight, int *count, sfp_error *err);

#endif
