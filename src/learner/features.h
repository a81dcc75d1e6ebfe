/* Computes the inputs that selectors and buffer methods declare (select/select.h), with at most two passes through the backbone.
 *
 * Each pass processes a few samples at a time, so that tokens need little memory. The query pass computes queries and freesel's
 * pooled tokens; the prompted pass computes features, logits, probabilities and token means. Both also produce the queries, so a
 * training step does not compute them again. */
#ifndef SFP_LEARNER_FEATURES_H
#define SFP_LEARNER_FEATURES_H

#include "learner/trainer.h"
#include "select/select.h"

#include <stdint.h>

typedef struct sfp__method_inputs {
    unsigned needs;
    sfp__vit *vit;
    sfp__fp *fp;
    sfp__vit_memo *memo; /* feature cache; set by the caller after init; NULL: none */
    int max_batch, D;
    sfp__vit_plan *query_plan, *prompted_plan; /* query pass and prompted pass; NULL: not needed */
    float *features;                           /* (max_batch, D) */
    int class_capacity;
    float *logits, *probs;     /* (max_batch, C) */
    float *pooled;             /* (max_batch, D) */
    float *taps;               /* (max_batch, SFP__TAPS, D) */
    float *tokens;             /* (CHUNK, T, D) per tap; arrays that are not needed are NULL */
    float *attention;          /* (CHUNK, H, T) */
    float *stats, *mass;       /* (T, 2) (T) */
    int *order;                /* (T) */
    void *block, *class_block; /* memory of the arrays above; memory of logits and probs */
} sfp__method_inputs;

/* The needs that this module computes. Without any of them it allocates nothing. */
#define SFP__METHOD_INPUT_NEEDS \
    (SFP__NEED_FEATURES | SFP__NEED_LOGITS | SFP__NEED_PROBS | SFP__NEED_ATTENTION | SFP__NEED_QUERY | SFP__NEED_TAPS)

sfp_status sfp__method_inputs_init(sfp__method_inputs *k, sfp__vit *vit, sfp__thread_pool *threads, sfp__fp *fp, unsigned needs,
                                   int max_batch, sfp_error *err);
void sfp__method_inputs_done(sfp__method_inputs *k);

/* Computes the inputs of the samples x (n) into the arrays above, and their queries into query (n, D). Probabilities are the
 * softmax over the classes in `allowed` (NULL: all), as in the loss. Allocates memory only if there are more classes than
 * before. */
sfp_status sfp__method_inputs_compute(sfp__method_inputs *k, int n, const float *const *x, const uint8_t *allowed, float *query,
                                      sfp_error *err);

/* Computes only the prompted pass, for n <= max_batch samples; `needs` must include features. The first `unknown` queries are
 * computed, the others are given. replayed: (n) or NULL, as in sfp__train_batch. */
sfp_status sfp__method_inputs_features(sfp__method_inputs *k, int n, const float *const *x, int unknown, const bool *replayed,
                                       float *query, sfp_error *err);

/* -------------------------------------------------------------- the linear head */

/* Computes out (n, classes) = feature (n, D) w^T + bias. */
void sfp__logits(int n, int classes, int dim, const float *feature, const float *w, const float *bias, float *out);
/* Computes the log-softmax of one row over the classes seen (NULL: all); the other classes are -INFINITY. z and out may be
 * the same. */
void sfp__log_softmax(int classes, const uint8_t *seen, const float *z, float *out);
/* Returns the class with the highest score among those seen (NULL: all); -1: there is none. */
int32_t sfp__best_class(int classes, const uint8_t *seen, const float *score);

#endif
