/* What a buffer method may ask of the learner while its update runs (select/select.h says who gets what). It names samples and
 * images, and never sees the model.
 *
 * A sample is one int: i < b is sample i of the batch, b + s is slot s, as the batch and the slots are at the moment of the call.
 * Everything is with the parameters as they are after the steps, and they are bit for bit the same when a call returns. Queries
 * that a call had to compute are kept with the batch, the slots and the images, so that none is computed twice. Every call
 * takes any number. On failure its outputs are undefined, but a query that is said to be known is. */
#ifndef SFP_BUFFER_MODEL_OPS_H
#define SFP_BUFFER_MODEL_OPS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Images that are neither of the batch nor in slots. */
typedef struct sfp__image_list {
    int n;
    const float *const *x; /* (n) of (3, S, S), normalised */
    const int32_t *label;  /* (n) where there is a loss; else NULL */
    float *const *query;   /* (n) of (D), and */
    bool *known;           /* (n) whether it is; both NULL: no query is known or wanted. With `query one` nobody looks. */
} sfp__image_list;

typedef void (*sfp__gradient_fn)(void *user, int group, const float *gradient);

typedef struct sfp__model_ops {
    void *ctx;
    int dim, classes, side; /* D, C, S */
    size_t params;          /* numbers that learn at this moment */

    /* (n, D) what the classifier sees: class tokens of the prompted pass. SFP_NEED_FEATURES. */
    sfp_status (*features)(void *ctx, int n, const int *sample, float *out, sfp_error *err);
    /* (params) gradient of the mean loss of n samples to what learns: cross-entropy, and the term of the keys where a pool has
     * one (l2p, dualprompt). SFP_NEED_GRADIENTS. */
    sfp_status (*gradient)(void *ctx, int n, const int *sample, float *out, sfp_error *err);

    /* The same of each group of `size` samples in a row (the last may be smaller), one by one in `scratch` (params), in any
     * order; `take` gets the group's number. Passes are as full as for one gradient of all. SFP_NEED_GRADIENTS. */
    sfp_status (*gradient_each)(void *ctx, int n, const int *sample, int size, float *scratch, sfp__gradient_fn take, void *user,
                                sfp_error *err);

    /* `gradient` for images; their features (n, D) come for nothing, NULL: not wanted. Keeps queries. */
    sfp_status (*gradient_at)(void *ctx, const sfp__image_list *p, float *out, float *feature, sfp_error *err);

    /* SFP_NEED_PIXELS. dx (n) of (3, S, S) += scale * the gradient to the pixels of the mean cross-entropy at the parameters
     * theta + h*v, v (params); NULL: at theta. This and the next use queries when all are known, and keep none. */
    sfp_status (*pixels)(void *ctx, const sfp__image_list *p, const float *v, float h, float scale, float *const *dx,
                         sfp_error *err);
    /* dx (n) of (3, S, S) += the gradient to the pixels of the sum of <dfeature, feature>, dfeature (n, D). */
    sfp_status (*feature_pixels)(void *ctx, const sfp__image_list *p, const float *dfeature, float *const *dx, sfp_error *err);
    /* (n, D) mean unit patch embeddings: what a slot keeps to be scored. No pass through the blocks. */
    sfp_status (*embed_at)(void *ctx, int n, const float *const *x, float *out, sfp_error *err);
} sfp__model_ops;

#endif
