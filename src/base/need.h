/* What a selector or a buffer method may ask for: one bit each, the same for both, so that what a step must compute is the
 * union. */
#ifndef SFP_BASE_NEED_H
#define SFP_BASE_NEED_H

enum {
    SFP_NEED_SCORE = 1,      /* similarity S(x) to the fingerprints (b); for a buffer also what scores its slots */
    SFP_NEED_FEATURES = 2,   /* (b, D) */
    SFP_NEED_LOGITS = 4,     /* (b, C) */
    SFP_NEED_PROBS = 8,      /* (b, C) */
    SFP_NEED_ATTENTION = 16, /* freesel's pooled patch tokens (b, D) */
    SFP_NEED_GRADIENTS = 32, /* gradients of the learnable parameters, by callback */
};

#endif
