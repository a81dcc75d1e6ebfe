/* What a training carries from step to step, and its checkpoint: everything the next step reads, so that going on from a
 * file ends in the same bytes as never having stopped. */
#ifndef SFP_PRETRAIN_STATE_H
#define SFP_PRETRAIN_STATE_H

#include "model/vit.h"
#include "pretrain/pretrain.h"

/* AdamW (decoupled weight decay) with clipping by norm and an average of the weights, on flat blocks. Cut into fixed pieces: the
 * result does not depend on threads. */
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

#define SFP_PRETRAIN_KIND "streamfp pretrain checkpoint" /* "kind" in the metadata of one */

typedef struct sfp_pretrain_state {
    sfp_vit_config config;
    size_t vit_count;                        /* floats of the vit; the loss's own follow */
    sfp_adamw adam;                          /* x, g, m, v, ema: (count) each */
    uint8_t *decays;                         /* (count) */
    void *block;                             /* of all these */
    sfp_vit_weights weights, grads, average; /* views of x, g, ema */
    uint64_t step;
    double seconds; /* in training */
    uint64_t key;   /* of the options that decide what a step does */
} sfp_pretrain_state;

sfp_status sfp__pretrain_state_init(sfp_pretrain_state *s, const sfp_vit_config *c, size_t loss_count, sfp_error *err);
void sfp__pretrain_state_done(sfp_pretrain_state *s);

/* With the options that it was made with. */
sfp_status sfp__pretrain_state_save(const sfp_pretrain_state *s, const sfp_pretrain_options *o, const char *path, sfp_error *err);
/* SFP_ENOTFOUND: there is none. SFP_EINVAL: it is of another training. */
sfp_status sfp__pretrain_state_load(sfp_pretrain_state *s, const sfp_pretrain_options *o, const char *path, sfp_error *err);

#endif
