/* What selectors and buffer methods ask for (select/select.h), computed from the backbone: they declare, this looks.
 *
 * Two passes at most, each a few samples at a time so that tokens take little memory: the unprompted one for queries and
 * freesel's pooled tokens, the prompted one for features, logits, probabilities and token means. Either leaves the queries, which
 * the step then need not compute. */
#ifndef SFP_LEARNER_FEATURES_H
#define SFP_LEARNER_FEATURES_H

#include "learner/trainer.h"
#include "select/select.h"

#include <stdint.h>

typedef struct sfp__method_inputs {
    unsigned needs;
    sfp__vit *vit;
    sfp__fp *fp;
    int max_batch, D;
    sfp__vit_plan *plain, *prompted; /* NULL where not needed */
    float *features;                 /* (max_batch, D) */
    int class_capacity;
    float *logits, *probs;     /* (max_batch, C) */
    float *pooled;             /* (max_batch, D) */
    float *taps;               /* (max_batch, SFP_TAPS, D) */
    float *tokens;             /* (CHUNK, T, D) for each tap; what is not asked for is NULL */
    float *attention;          /* (CHUNK, H, T) */
    float *stats, *mass;       /* (T, 2) (T) */
    int *order;                /* (T) */
    void *block, *class_block; /* what lies above; of logits and probs */
} sfp__method_inputs;

/* Bits that a look serves; one with none of them costs nothing. */
#define SFP_METHOD_INPUT_NEEDS \
    (SFP_NEED_FEATURES | SFP_NEED_LOGITS | SFP_NEED_PROBS | SFP_NEED_ATTENTION | SFP_NEED_QUERY | SFP_NEED_TAPS)

sfp_status sfp__method_inputs_init(sfp__method_inputs *k, sfp__vit *vit, sfp__thread_pool *threads, sfp__fp *fp, unsigned needs,
                                   int max_batch, sfp_error *err);
void sfp__method_inputs_done(sfp__method_inputs *k);

/* Samples x (n) into the arrays above, their queries to query (n, D). Probabilities are the softmax over the classes in `allowed`
 * (NULL: all), as the loss would see them. Allocates only when there are more classes than ever before. */
sfp_status sfp__method_inputs_compute(sfp__method_inputs *k, int n, const float *const *x, const uint8_t *allowed, float *query,
                                      sfp_error *err);

/* The prompted pass alone, which must have been asked for (features are), of n <= max_batch samples whose first `unknown` queries
 * are computed and the others given; rehearsed (n) or NULL as in sfp__train_batch. */
sfp_status sfp__method_inputs_features(sfp__method_inputs *k, int n, const float *const *x, int unknown, const bool *replayed,
                                       float *query, sfp_error *err);

/* -------------------------------------------------------------- the classifier */

/* out (n, classes) = feature (n, D) w^T + bias. */
void sfp__logits(int n, int classes, int dim, const float *feature, const float *w, const float *bias, float *out);
/* Log-softmax over the classes seen of one row, -INFINITY for others; z and out may be the same. */
void sfp__log_softmax(int classes, const uint8_t *seen, const float *z, float *out);
/* The best class seen; -1: none was. */
int32_t sfp__best_class(int classes, const uint8_t *seen, const float *score);

#endif
