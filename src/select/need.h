/* What a selector or a buffer method may ask for: one bit each, the same for both, so that what a step must compute is the
 * union. What costs a pass: QUERY and ATTENTION the unprompted backbone (queries are kept for the step, so that only samples left
 * out cost extra); FEATURES, LOGITS, PROBS and TAPS together one more, the prompted backbone. */
#ifndef SFP_SELECT_NEED_H
#define SFP_SELECT_NEED_H

#include "base/error.h"

enum {
    SFP_NEED_SCORE = 1,      /* similarity S(x) to the fingerprints (b); for a buffer also what scores its slots */
    SFP_NEED_FEATURES = 2,   /* (b, D) what the classifier sees: the class token of the prompted pass */
    SFP_NEED_LOGITS = 4,     /* (b, C) */
    SFP_NEED_PROBS = 8,      /* (b, C) */
    SFP_NEED_ATTENTION = 16, /* freesel's pooled patch tokens (b, D), unprompted */
    SFP_NEED_GRADIENTS = 32, /* gradients of the learnable parameters, by callback */
    SFP_NEED_QUERY = 64,     /* (b, D) features of the unprompted backbone: they know nothing of what was learned */
    SFP_NEED_TAPS = 128,     /* (b, SFP_TAPS, D) means over the tokens after each quarter of the blocks, prompted */
    SFP_NEED_PIXELS = 256,   /* buffers alone: gradients to pixels; pictures of a batch then are pixels, never compressed */
};

/* For a buffer FEATURES and GRADIENTS are not arrays but what it may ask for (buffer/ask.h); with QUERY all queries of a batch are
 * known when it is offered. */

enum { SFP_TAPS = 4 };

/* Gradient of the mean cross-entropy of `n` samples of the batch (indices) to the learnable parameters, flattened: (length). */
typedef struct sfp_gradients {
    size_t length;
    sfp_status (*of)(void *ctx, int n, const int *index, float *out, sfp_error *err);
    void *ctx;
} sfp_gradients;

#endif
