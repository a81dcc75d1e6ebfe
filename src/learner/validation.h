/* Samples that head mix is tested on and never trained on (docs/method.md, section 19).
 *
 * Predictions of arriving samples do not show what a head has forgotten, because old classes do not arrive again. So some images are
 * kept: of the held-out fold (heads/sums.h) those with the lowest keys, which are spread over the whole stream. They are neither
 * trained on nor replayed, and the closed-form member is tested with a solution that does not contain them. Each training step
 * passes some of them along, with weight 0, to learn how well the linear head predicts them. */
#ifndef SFP_LEARNER_VALIDATION_H
#define SFP_LEARNER_VALIDATION_H

#include "learner/state/visit.h"

enum { SFP_VALIDATION_SIZE = 64, SFP_VALIDATION_STEP = 8 }; /* images that are kept; images per training step */

typedef struct sfp__validation {
    size_t image_bytes, tap_dim;
    int64_t count, next; /* images; the first one of the next step */
    uint64_t *key;       /* (SFP_VALIDATION_SIZE) lowest first */
    int32_t *label;      /* (SFP_VALIDATION_SIZE) */
    uint8_t *rgb;        /* (SFP_VALIDATION_SIZE, image_bytes) */
    float *tap;          /* (SFP_VALIDATION_SIZE, tap_dim) */
    void *block;
} sfp__validation;

sfp_status sfp__validation_init(sfp__validation *v, size_t image_bytes, size_t tap_dim, sfp_error *err);
void sfp__validation_done(sfp__validation *v);
/* Keeps the image if its key is among the lowest of the held-out fold and not there yet. */
void sfp__validation_add(sfp__validation *v, const uint8_t *rgb, const float *tap, int32_t label, uint64_t key);
/* commits: values are read into v; classes: labels are below this. */
sfp_status sfp__validation_visit(sfp__validation *v, const sfp__visitor *with, bool commits, int classes, sfp_error *err);

#endif
