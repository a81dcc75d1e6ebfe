/* AdamW (decoupled weight decay) with clipping by norm and an average of the weights, on flat blocks.
 * Cut into fixed pieces: the result does not depend on threads. */
#ifndef SFP_PRETRAIN_ADAMW_H
#define SFP_PRETRAIN_ADAMW_H

#include "base/thread_pool.h"

#include <stddef.h>
#include <stdint.h>

typedef struct sfp_adamw {
    size_t count;
    float *x, *g, *m, *v, *ema; /* (count) */
    const uint8_t *decays;      /* (count) 1: weight decay applies */
} sfp_adamw;

typedef struct sfp_adamw_step {
    uint64_t t; /* 1, 2, ... */
    double lr, weight_decay, beta1, beta2, eps;
    double clip; /* the most the gradient's norm may be; 0: any */
    double ema;  /* what the average keeps */
} sfp_adamw_step;

/* One step; returns the gradient's norm before clipping. A gradient that is not finite changes nothing. */
double sfp__adamw_step(sfp_thread_pool *pool, const sfp_adamw *a, const sfp_adamw_step *s);

#endif
