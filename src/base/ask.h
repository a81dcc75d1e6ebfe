/* What a buffer method may ask of the learner while its update runs (base/need.h says who gets what). It names samples and
 * pictures, and never sees the model.
 *
 * A sample is one int: i < b is sample i of the batch, b + s is slot s, as the batch and the slots are at the moment of the call.
 * Everything is with the parameters as they are after the steps, and they are bit for bit the same when a call returns. Queries
 * that a call had to compute are kept with the batch and the slots, so that none is computed twice; pictures that are neither
 * pay for theirs. On failure `out` is undefined. */
#ifndef SFP_BASE_ASK_H
#define SFP_BASE_ASK_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef void (*sfp_ask_take)(void *user, int group, const float *gradient);

typedef struct sfp_ask {
    void *ctx;
    int dim, classes, side; /* D, C, S */
    int most;               /* pictures that `pixels` and the calls below it take at most; those above take any number */
    size_t params;          /* numbers that learn at this moment */

    /* (n, D) what the classifier sees: class tokens of the prompted pass. SFP_NEED_FEATURES. */
    sfp_status (*features)(void *ctx, int n, const int *sample, float *out, sfp_error *err);
    /* (params) gradient of the mean cross-entropy of n samples to what learns. SFP_NEED_GRADIENTS. */
    sfp_status (*gradient)(void *ctx, int n, const int *sample, float *out, sfp_error *err);

    /* The same of each group of `size` samples in a row (the last may be smaller), one after another in `room` (params), in any
     * order; `take` gets the group's number. Passes are as full as for one gradient of all. SFP_NEED_GRADIENTS. */
    sfp_status (*gradient_each)(void *ctx, int n, const int *sample, int size, float *room, sfp_ask_take take, void *user,
                                sfp_error *err);

    /* `gradient` for pictures x (n) of (3, S, S), normalised; their features (n, D) come for nothing, NULL: not wanted. */
    sfp_status (*gradient_at)(void *ctx, int n, const float *const *x, const int32_t *label, float *out, float *feature,
                              sfp_error *err);

    /* SFP_NEED_PIXELS. (n, 3, S, S) gradient to the pixels of the mean cross-entropy at the parameters theta + h*v, v (params);
     * NULL: at theta. */
    sfp_status (*pixels)(void *ctx, int n, const float *const *x, const int32_t *label, const float *v, float h, float *dx,
                         sfp_error *err);
    /* (n, 3, S, S) gradient to the pixels of the sum of <dfeature, feature>, dfeature (n, D). */
    sfp_status (*feature_pixels)(void *ctx, int n, const float *const *x, const float *dfeature, float *dx, sfp_error *err);
    /* (n, D) mean unit patch embeddings: what a slot keeps to be scored. No pass through the blocks. */
    sfp_status (*embed_at)(void *ctx, int n, const float *const *x, float *out, sfp_error *err);
} sfp_ask;

#endif
