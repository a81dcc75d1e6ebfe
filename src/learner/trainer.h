/* The training step (docs/method.md, section 6): fingerprints, vit and classifier joined.
 *
 * Works on normalised images that are already chosen; which ones, and where
 * they come from, is the learner's matter. */
#ifndef SFP_LEARNER_TRAINER_H
#define SFP_LEARNER_TRAINER_H

#include "fingerprint/fingerprint.h"

typedef struct sfp__trainer sfp__trainer;

typedef struct sfp__trainer_options {
    sfp__fp_options fp;
    sfp__adam adam;
    int max_batch; /* most samples in a step or a prediction */
} sfp__trainer_options;

typedef struct sfp__train_batch {
    int n;
    const float *const *x;  /* (n) images (3, S, S), normalised */
    const int32_t *label;   /* (n) */
    const float *weight;    /* (n) factor of each sample's cross-entropy: 1/c or 1/r */
    const bool *masked;     /* (n) or NULL: only classes in `allowed` compete for this sample */
    const uint8_t *allowed; /* (classes) */
    const bool *replayed;   /* (n) or NULL: samples of the buffer, of any task so far */
    float *query;           /* (n, D): the first `queries` are computed, the others given */
    int queries;
    int terms; /* loss terms that carry the ortho penalty */
} sfp__train_batch;

typedef struct sfp__train_result {
    double loss;
    const float *feature; /* (n, D) before the step; the trainer's own, until the next call */
    const float *logits;  /* (n, classes) before the step */
    double attune_seconds, query_seconds, forward_seconds, backward_seconds, update_seconds;
} sfp__train_result;

sfp_status sfp__trainer_create(sfp__vit *vit, sfp__thread_pool *threads, const sfp__trainer_options *opt, sfp__trainer **out,
                               sfp_error *err);
void sfp__trainer_free(sfp__trainer *t);
DEFINE_OWNED_PTR(sfp__trainer, sfp__trainer_free)
sfp__fp *sfp__trainer_fp(sfp__trainer *t);

/* Space for more classes; no allocation when there is. */
sfp_status sfp__trainer_add_classes(sfp__trainer *t, int classes, sfp_error *err);

/* The pass alone: features, logits, and what gradients are made of. `batch` must last as long as those are asked for. */
sfp_status sfp__trainer_pass(sfp__trainer *t, const sfp__train_batch *batch, sfp__train_result *result, sfp_error *err);
/* The gradients that samples [first, first + n) of the last pass give, alone into the parameters; the loss is theirs. */
sfp_status sfp__trainer_collect(sfp__trainer *t, int first, int n, int terms, double *loss, sfp_error *err);
/* Both, of the whole batch; no step. */
sfp_status sfp__trainer_gradients(sfp__trainer *t, const sfp__train_batch *batch, sfp__train_result *result, sfp_error *err);
/* Gradients and one Adam step. */
sfp_status sfp__trainer_step(sfp__trainer *t, const sfp__train_batch *batch, sfp__train_result *result, sfp_error *err);

/* Gradient to pixels, dx (n, 3, S, S); those of the parameters are left alone. Queries are constants here, as they are in a
 * step (docs/method.md, section 2). `prepare` makes what the two need, which then allocate nothing. */
sfp_status sfp__trainer_prepare_pixels(sfp__trainer *t, sfp_error *err);
/* ... of the batch's loss without the penalty; */
sfp_status sfp__trainer_pixels(sfp__trainer *t, const sfp__train_batch *batch, float *dx, sfp_error *err);
/* ... of the sum of <dfeature, feature>, dfeature (n, D). Of the batch it reads the images and their queries. */
sfp_status sfp__trainer_feature_pixels(sfp__trainer *t, const sfp__train_batch *batch, const float *dfeature, float *dx,
                                       sfp_error *err);

/* Mean unit embeddings (n, D) of images: what scoring needs. */
sfp_status sfp__trainer_embed(sfp__trainer *t, int n, const float *const *x, float *mean_embed, sfp_error *err);

/* Queries alone (n, D): the unprompted pass. */
sfp_status sfp__trainer_queries(sfp__trainer *t, int n, const float *const *x, float *query, sfp_error *err);

#endif
