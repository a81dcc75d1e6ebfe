/* An immutable copy of what a head's scores need, so that other threads can
 * score while the head goes on learning. */
#ifndef SFP_LEARNER_HEAD_SCORER_H
#define SFP_LEARNER_HEAD_SCORER_H

#include "learner/head.h"

typedef struct sfp_head_scorer sfp_head_scorer;

/* The head as it is; *scorer is written over when it is not NULL (its memory is used again), else made. */
sfp_status sfp__head_freeze(sfp_head *h, sfp_head_scorer **scorer, sfp_error *err);
void sfp__head_scorer_free(sfp_head_scorer *s);

/* Doubles of work that scores needs for one sample. */
size_t sfp__head_scorer_work(const sfp_head_scorer *s);

/* The same log-probabilities (n, classes) as sfp__head_scores of the frozen head. */
void sfp__head_scorer_scores(const sfp_head_scorer *s, int n, const float *query, int classes, double *work, float *out);

#endif
