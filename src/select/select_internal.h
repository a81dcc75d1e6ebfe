/* What the selectors share among themselves. */
#ifndef SFP_SELECT_SELECT_INTERNAL_H
#define SFP_SELECT_SELECT_INTERNAL_H

#include "select/select.h"

extern const sfp_selector sfp__selector_streamfp, sfp__selector_none, sfp__selector_random;

/* b is not negative and what the selector needs is there. */
sfp_status sfp__select_check(const sfp_selector *s, const sfp_select_batch *batch, sfp_error *err);
/* 0..b-1, weights 1. */
void sfp__select_whole(int b, int *out, float *weight, int *count);
/* n weights of 1; nothing when `weight` is NULL. */
void sfp__select_equal_weights(int n, float *weight);

#endif
