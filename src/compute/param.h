/* A learnable tensor: values, gradient, Adam's moments, and which rows learn.
 *
 * Rows outside [lo, hi) are frozen: no function here moves them. Adam counts
 * steps a row, so that rows that begin later (new components, new classes)
 * begin like the first ones did. */
#ifndef SFP_COMPUTE_PARAM_H
#define SFP_COMPUTE_PARAM_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct sfp__param {
    char name[40]; /* as in state files: "prompt.e_p_0" */
    int ndim;
    int64_t shape[3]; /* shape[0] is the number of rows */
    int rows, capacity;
    size_t width;               /* floats a row */
    int lo, hi;                 /* rows that learn */
    float *data, *grad, *m, *v; /* (capacity, width); data begins the block of all five */
    uint32_t *steps;            /* (capacity) */
} sfp__param;

typedef struct sfp__adam {
    float lr, beta1, beta2, eps;
} sfp__adam;

sfp__adam sfp__adam_defaults(void); /* 1e-3, .9, .999, 1e-8 */

/* Zeroed; all rows learn. shape[0] may be 0 (rows that come later). */
sfp_status sfp__param_init(sfp__param *p, const char *name, int ndim, const int64_t *shape, sfp_error *err);
void sfp__param_done(sfp__param *p);

/* More rows, zeroed; what is there stays. */
sfp_status sfp__param_grow(sfp__param *p, int rows, sfp_error *err);

/* Fewer rows; what is grown again later is zeroed again. */
void sfp__param_shrink(sfp__param *p, int rows);

void sfp__param_zero_grad(sfp__param *p);
/* Moments and steps of rows [first, end) back to 0. */
void sfp__param_reset_adam(sfp__param *p, int first, int end);
/* One Adam step on rows [lo, hi). */
void sfp__adam_step(const sfp__adam *a, sfp__param *p);

#endif
