/* Attunement (SPEC section 3): fingerprints refined by three frozen maps made
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

typedef struct sfp_attune_options {
    int layers;    /* prompted layers */
    int pool;      /* components a layer */
    int learning;  /* most components a layer that learn at once */
    int length;    /* rows a component */
    int topk;      /* gate outputs that are kept: 1..3 */
    bool residual; /* add p */
} sfp_attune_options;

/* Components of a layer: [0, open) are there, [start, open) learn. */
typedef struct sfp_attune_span {
    int start, open;
} sfp_attune_span;

typedef struct sfp_attune sfp_attune;

sfp_status sfp__attune_create(sfp_vit *vit, sfp_thread_pool *threads, const sfp_attune_options *opt, sfp_attune **out,
                              sfp_error *err);
void sfp__attune_free(sfp_attune *a);
DEFINE_OWNED_PTR(sfp_attune, sfp__attune_free)

/* The maps of all components are computed anew by the next forward, even of those that are frozen. */
void sfp__attune_invalidate(sfp_attune *a);

/* out[l] (open, length*D) from p[l] (open, length*D) for every layer; spans (layers). */
sfp_status sfp__attune_fwd(sfp_attune *a, const sfp_attune_span *spans, const float *const *p, const sfp_param *gate_w,
                           const sfp_param *gate_b, float *const *out, sfp_error *err);

/* From the gradient of out[l] (all open components): adds to dp[l] of the components that learn, and to the gate's gradients. */
void sfp__attune_bwd(sfp_attune *a, const sfp_attune_span *spans, const float *const *p, const float *const *dout,
                     float *const *dp, sfp_param *gate_w, sfp_param *gate_b);

#endif
