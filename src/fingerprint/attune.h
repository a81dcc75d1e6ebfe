/* Attunement (docs/method.md, section 3): components are refined by three frozen maps, which consist of the K and V weights of
 * the last three blocks, mixed by one learnable gate.
 *
 *     out(p) = sum_r g_r (W_Vr gelu(W_Kr p + b_Kr) + b_Vr) [+ p],
 *     g = softmax(W_g p + b_g)
 *
 * It does not depend on images, so it is computed once per step. The maps of frozen rows do not change, so they are computed once
 * per task; only the gate of these rows changes. */
#ifndef SFP_FINGERPRINT_ATTUNE_H
#define SFP_FINGERPRINT_ATTUNE_H

#include "base/mem.h"
#include "base/thread_pool.h"
#include "compute/param.h"
#include "model/vit.h"

#include <stdbool.h>

enum { SFP__ATTUNE_MAPS = 3 };

typedef struct sfp__attune_options {
    int layers;    /* number of prompted layers */
    int pool;      /* components per layer */
    int learning;  /* maximum number of active components per layer */
    int length;    /* rows per component */
    int topk;      /* number of gate outputs that are kept: 1..3 */
    bool residual; /* add p to the result */
} sfp__attune_options;

/* The inputs and outputs of one layer, for components [0, active_end), of which [frozen_end, active_end) are active. */
typedef struct sfp__attune_layer {
    int frozen_end, active_end;
    const float *p;    /* (active_end, length*D) */
    float *out;        /* (active_end, length*D), written by the forward pass */
    const float *dout; /* (active_end, length*D) gradient of out, read by the backward pass */
    float *dp;         /* (active_end, length*D), to which the backward pass adds the gradient of active components */
} sfp__attune_layer;

typedef struct sfp__attune sfp__attune;

sfp_status sfp__attune_create(sfp__vit *vit, sfp__thread_pool *threads, const sfp__attune_options *opt, sfp__attune **out,
                              sfp_error *err);
void sfp__attune_free(sfp__attune *a);
DEFINE_OWNED_PTR(sfp__attune, sfp__attune_free)

/* Makes the next forward pass recompute the maps of all components, including frozen ones. */
void sfp__attune_invalidate(sfp__attune *a);

/* Computes out from p in every layer (layers). */
sfp_status sfp__attune_fwd(sfp__attune *a, const sfp__attune_layer *layer, const sfp__param *gate_w, const sfp__param *gate_b,
                           sfp_error *err);

/* Adds the gradients of dp and of the gate for dout. */
void sfp__attune_bwd(sfp__attune *a, const sfp__attune_layer *layer, sfp__param *gate_w, sfp__param *gate_b);

#endif
