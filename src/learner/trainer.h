/* The training step (docs/method.md, section 6), which combines fingerprints, backbone and linear head.
 *
 * It processes normalised images. The learner decides which samples these are. */
#ifndef SFP_LEARNER_TRAINER_H
#define SFP_LEARNER_TRAINER_H

#include "fingerprint/fingerprint.h"
#include "model/vit_memo.h"

typedef struct sfp__trainer sfp__trainer;

typedef struct sfp__trainer_options {
    sfp__fp_options fp;
    sfp__adam adam;
    int max_batch;       /* maximum number of samples in a step or a prediction */
    sfp__vit_memo *memo; /* feature cache; NULL: none */
    const sfp__time_source *time;
} sfp__trainer_options;

typedef struct sfp__train_batch {
    int n;
    const float *const *x;  /* (n) images (3, S, S), normalised */
    const int32_t *label;   /* (n) */
    const float *weight;    /* (n) factor of the cross-entropy of each sample: 1/c or 1/r */
    const bool *masked;     /* (n) or NULL; true: only classes in `allowed` compete for this sample */
    const uint8_t *allowed; /* (classes) */
    const bool *replayed;   /* (n) or NULL; true: sample of the buffer, of any task so far */
    float *query;           /* (n, D) the first `queries` rows are computed, the others are given */
    int queries;
    int terms; /* number of loss terms that include the ortho penalty */
} sfp__train_batch;

typedef struct sfp__train_result {
    double loss;
    const float *feature; /* (n, D) before the step; belongs to the trainer, valid until the next call */
    const float *logits;  /* (n, classes) before the step */
    double attune_seconds, query_seconds, forward_seconds, backward_seconds, update_seconds;
} sfp__train_result;

sfp_status sfp__trainer_create(sfp__vit *vit, sfp__thread_pool *threads, const sfp__trainer_options *opt, sfp__trainer **out,
                               sfp_error *err);
void sfp__trainer_free(sfp__trainer *t);
DEFINE_OWNED_PTR(sfp__trainer, sfp__trainer_free)
sfp__fp *sfp__trainer_fp(sfp__trainer *t);

/* Adds rows to the linear head up to `classes`. Allocates memory only if the capacity is too small. */
sfp_status sfp__trainer_add_classes(sfp__trainer *t, int classes, sfp_error *err);

/* Runs the pass: computes features, logits and the data for gradients. `batch` must stay valid until the last
 * sfp__trainer_collect of this pass. */
sfp_status sfp__trainer_pass(sfp__trainer *t, const sfp__train_batch *batch, sfp__train_result *result, sfp_error *err);
/* Writes the gradients of only samples [first, first + n) of the last pass into the parameters, and their loss to *loss. */
sfp_status sfp__trainer_collect(sfp__trainer *t, int first, int n, int terms, double *loss, sfp_error *err);
/* Runs the pass and computes the gradients of the whole batch, without a step. */
sfp_status sfp__trainer_gradients(sfp__trainer *t, const sfp__train_batch *batch, sfp__train_result *result, sfp_error *err);
/* Computes the gradients and makes one Adam step. */
sfp_status sfp__trainer_step(sfp__trainer *t, const sfp__train_batch *batch, sfp__train_result *result, sfp_error *err);

/* The next functions compute pixel gradients dx (n, 3, S, S) and do not change the gradients of the parameters. Queries are
 * constants, as in a step (docs/method.md, section 2). `prepare` allocates all memory that the other two need. */
sfp_status sfp__trainer_prepare_pixels(sfp__trainer *t, sfp_error *err);
/* Computes the pixel gradient of the batch's loss without the penalty. */
sfp_status sfp__trainer_pixels(sfp__trainer *t, const sfp__train_batch *batch, float *dx, sfp_error *err);
/* Computes the pixel gradient of the sum of <dfeature, feature>, dfeature (n, D). Of the batch it reads only the images and their
 * queries. */
sfp_status sfp__trainer_feature_pixels(sfp__trainer *t, const sfp__train_batch *batch, const float *dfeature, float *dx,
                                       sfp_error *err);

/* Computes the mean unit embeddings (n, D) of images, from which scores are computed. */
sfp_status sfp__trainer_embed(sfp__trainer *t, int n, const float *const *x, float *mean_embed, sfp_error *err);

/* Computes only the queries (n, D), with the query pass. */
sfp_status sfp__trainer_queries(sfp__trainer *t, int n, const float *const *x, float *query, sfp_error *err);

#endif
