/* Model callbacks: the functions through which a buffer method obtains features and gradients during its update. select/select.h
 * defines which methods may call which. They refer to samples and images, never to the model.
 *
 * A sample is identified by an int: i < b is sample i of the batch; b + s is slot s of the buffer. Both refer to the contents at
 * the time of the call. All results use the parameters after the training steps, and the parameters are bit for bit unchanged
 * when a call returns. Queries that a call computes are stored with the batch, the slots and the images, so that none is computed
 * twice. The number of samples of a call is not limited. On failure the outputs are undefined, but every query that is flagged as
 * known is valid. */
#ifndef SFP_BUFFER_MODEL_OPS_H
#define SFP_BUFFER_MODEL_OPS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Images that are neither in the batch nor in slots. */
typedef struct sfp__image_list {
    int n;
    const float *const *x; /* (n) pointers to (3, S, S), normalised */
    const int32_t *label;  /* (n) NULL: no loss is computed */
    float *const *query;   /* (n) pointers to (D) */
    /* (n) whether query[i] is valid. query and known are NULL: no query is known or wanted */
    bool *known;
} sfp__image_list;

typedef void (*sfp__gradient_fn)(void *user, int group, const float *gradient);

typedef struct sfp__model_ops {
    void *ctx;
    int dim, classes, side; /* D, C, S */
    size_t params;          /* number of parameters that are currently trained */

    /* Writes the features (n, D): class tokens of the prompted pass. SFP__NEED_FEATURES. */
    sfp_status (*features)(void *ctx, int n, const int *sample, float *out, sfp_error *err);
    /* Writes the gradient (params) of the mean loss of n samples with respect to the trained parameters. The loss is the
     * cross-entropy plus the key term of the pools that have one (l2p, dualprompt). SFP__NEED_GRADIENTS. */
    sfp_status (*gradient)(void *ctx, int n, const int *sample, float *out, sfp_error *err);

    /* Computes the gradient of each group of `size` consecutive samples (the last group may be smaller) in `scratch` (params),
     * and calls `take` with the index of the group. The order of the groups is undefined. The passes are as full as for one
     * gradient of all samples. SFP__NEED_GRADIENTS. */
    sfp_status (*gradient_each)(void *ctx, int n, const int *sample, int size, float *scratch, sfp__gradient_fn take, void *user,
                                sfp_error *err);

    /* Computes `gradient` for images and, if `feature` is not NULL, their features (n, D) at no extra cost. Stores queries. */
    sfp_status (*gradient_at)(void *ctx, const sfp__image_list *p, float *out, float *feature, sfp_error *err);

    /* Adds to dx (n pointers to (3, S, S)) scale * the pixel gradient of the mean cross-entropy at the parameters theta + h*v, v
     * (params); v NULL: at theta. This function and feature_pixels use the queries if all are known, and store none.
     * SFP__NEED_PIXELS. */
    sfp_status (*pixels)(void *ctx, const sfp__image_list *p, const float *v, float h, float scale, float *const *dx,
                         sfp_error *err);
    /* Adds to dx (n pointers to (3, S, S)) the pixel gradient of the sum of <dfeature, feature>, dfeature (n, D). */
    sfp_status (*feature_pixels)(void *ctx, const sfp__image_list *p, const float *dfeature, float *const *dx, sfp_error *err);
    /* Writes the mean unit patch embeddings (n, D) that slots are scored with. No pass through the blocks. */
    sfp_status (*embed_at)(void *ctx, int n, const float *const *x, float *out, sfp_error *err);
} sfp__model_ops;

#endif
