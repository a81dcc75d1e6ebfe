/* What fingerprint.c and compose.c share. */
#ifndef SFP_FINGERPRINT_FP_INTERNAL_H
#define SFP_FINGERPRINT_FP_INTERNAL_H

#include "fingerprint/attune.h"
#include "fingerprint/fingerprint.h"

#define SFP_FP_MAX_PARAMS (3 * SFP_FP_MAX_LAYERS + 4)

struct sfp_fp {
    sfp_fp_options opt;
    sfp_vit *vit;
    sfp_pool *threads;
    int D, layers, max_batch;
    int layer[SFP_FP_MAX_LAYERS];
    int task, start, open, learning_most;
    bool prepared; /* attuned pool and view are those of the values as they are */
    sfp_rng rng;
    sfp_param p[SFP_FP_MAX_LAYERS], k[SFP_FP_MAX_LAYERS], a[SFP_FP_MAX_LAYERS];
    sfp_param gate_w, gate_b, last_w, last_b;
    sfp_param *params[SFP_FP_MAX_PARAMS];
    int param_count;
    sfp_attune *attune; /* NULL: off */
    sfp_fp_view view;
    /* a layer each */
    float *attuned[SFP_FP_MAX_LAYERS];   /* (pool, Lp*D); attunement off: P's own values */
    float *projected[SFP_FP_MAX_LAYERS]; /* (pool, Lp*D), raw prefixes only; else the same as attuned */
    float *dprefix[SFP_FP_MAX_LAYERS];   /* (pool, Lp*D) gradient of the view's prefix */
    float *ak[SFP_FP_MAX_LAYERS], *a2[SFP_FP_MAX_LAYERS]; /* (pool, D) */
    float *knorm[SFP_FP_MAX_LAYERS];                      /* (pool) |K| */
    float *alpha[SFP_FP_MAX_LAYERS], *norm[SFP_FP_MAX_LAYERS]; /* (max_batch, pool) */
    float *e[SFP_FP_MAX_LAYERS], *de[SFP_FP_MAX_LAYERS];       /* (max_batch, Lp*D) prefixes and their gradients */
    float *work[SFP_FP_MAX_LAYERS];  /* layer-wise room for gradients: see compose.c */
    float *squares;                  /* (max_batch, D) q^2, by the samples of each micro-batch; one: a layer each */
    float *token;                    /* one: (layers, max_batch, D) class tokens that entered the layers */
    float *gram[SFP_FP_MAX_LAYERS];  /* (pool, pool), ortho penalty only */
    double penalty[SFP_FP_MAX_LAYERS];
    float *row;                      /* (D) */
    const float *query[SFP_FP_MAX_LAYERS];   /* (b, D) of the pass under way */
    const float *square[SFP_FP_MAX_LAYERS];  /* (b, D) */
};

sfp_status sfp__fp_buffers_create(sfp_fp *f, sfp_error *err);
void sfp__fp_buffers_free(sfp_fp *f);

#endif
