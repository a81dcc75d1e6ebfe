/* A learnable tensor: values, gradient, Adam's moments, and the range of rows that learn.
 *
 * Rows outside [lo, hi) are frozen: sfp__adam_step does not change them. Adam counts steps per row, so that rows that are added
 * later (new components, new classes) start like the first ones. */
#ifndef SFP_COMPUTE_PARAM_H
#define SFP_COMPUTE_PARAM_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct sfp__param {
    char name[40]; /* name in state files: "prompt.e_p_0" */
    int ndim;
    int64_t shape[3]; /* shape[0] is the number of rows */
    int rows, capacity;
    size_t width;               /* floats per row */
    int lo, hi;                 /* rows [lo, hi) learn */
    float *data, *grad, *m, *v; /* (capacity, width); data is the start of the block of all five arrays */
    uint32_t *steps;            /* (capacity) */
} sfp__param;

typedef struct sfp__adam {
    float lr, beta1, beta2, eps;
} sfp__adam;

sfp__adam sfp__adam_defaults(void); /* 1e-3, .9, .999, 1e-8 */

/* Creates a zeroed tensor in which all rows learn. shape[0] may be 0, if rows are added later. */
sfp_status sfp__param_init(sfp__param *p, const char *name, int ndim, const int64_t *shape, sfp_error *err);
void sfp__param_done(sfp__param *p);

/* Adds zeroed rows; existing rows are kept. */
sfp_status sfp__param_grow(sfp__param *p, int rows, sfp_error *err);

/* Removes rows; rows that are added again later are zero. */
void sfp__param_shrink(sfp__param *p, int rows);

void sfp__param_zero_grad(sfp__param *p);
/* Resets the moments and steps of rows [first, end) to 0. */
void sfp__param_reset_adam(sfp__param *p, int first, int end);
/* Does one Adam step on rows [lo, hi). */
void sfp__adam_step(const sfp__adam *a, sfp__param *p);

#endif
