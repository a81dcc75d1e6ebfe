/* What a training carries from step to step, and its checkpoint: everything the next step reads, so that going on from a
 * file ends in the same bytes as never having stopped. */
#ifndef SFP_PRETRAIN_STATE_H
#define SFP_PRETRAIN_STATE_H

#include "model/vit.h"
#include "pretrain/adamw.h"
#include "pretrain/pretrain.h"

#define SFP_PRETRAIN_KIND "streamfp pretrain checkpoint" /* "kind" in the metadata of one */

typedef struct sfp_pretrain_state {
    sfp_vit_config config;
    size_t vit_count;                        /* floats of the vit; the loss's own follow */
    sfp_adamw adam;                          /* x, g, m, v, ema: (count) each */
    uint8_t *decays;                         /* (count) */
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
