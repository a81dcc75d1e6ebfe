/* Attunement (docs/method.md, section 3): fingerprints refined by three frozen maps made
 * of the last three blocks' K and V weights, mixed by one learnable gate.
 *
 *     out(p) = sum_r g_r (W_Vr gelu(W_Kr p + b_Kr) + b_Vr) [+ p],
 *     g = softmax(W_g p + b_g)
 *
 * It depends on no image: once a step. The maps of frozen rows do not change:
 * once a task; only their gate does. */
#ifndef SFP_FINGERPRINT_ATTUNE_H
#define SFP_FINGERPRINT_ATTUNE_H

#include "base/mem.h"
#include "base/thread_pool.h"
#include "compute/param.h"
#include "model/vit.h"

#include <stdbool.h>

enum { SFP_ATTUNE_MAPS = 3 };

typedef struct sfp__attune_options {
    int layers;    /* prompted layers */
    int pool;      /* components a layer */
    int learning;  /* most components a layer that learn at once */
    int length;    /* rows a component */
    int topk;      /* gate outputs that are kept: 1..3 */
    bool residual; /* add p */
} sfp__attune_options;

/* What one layer gives and gets; all of components [0, open), of which [start, open) learn. */
typedef struct sfp__attune_layer {
    int frozen_end, active_end;
    const float *p;    /* (open, length*D) */
    float *out;        /* (open, length*D), written by the forward */
    const float *dout; /* (open, length*D) its gradient, read by the backward */
    float *dp;         /* (open, length*D), to which the backward adds for components that learn */
} sfp__attune_layer;

typedef struct sfp__attune sfp__attune;

sfp_status sfp__attune_create(sfp__vit *vit, sfp__thread_pool *threads, const sfp__attune_options *opt, sfp__attune **out,
                              sfp_error *err);
void sfp__attune_free(sfp__attune *a);
DEFINE_OWNED_PTR(sfp__attune, sfp__attune_free)

/* The maps of all components are computed anew by the next forward, even of those that are frozen. */
void sfp__attune_invalidate(sfp__attune *a);

/* From p to out, in every layer (layers). */
sfp_status sfp__attune_fwd(sfp__attune *a, const sfp__attune_layer *layer, const sfp__param *gate_w, const sfp__param *gate_b,
                           sfp_error *err);

/* From dout to dp, and to the gate's gradients. */
void sfp__attune_bwd(sfp__attune *a, const sfp__attune_layer *layer, sfp__param *gate_w, sfp__param *gate_b);

#endif
