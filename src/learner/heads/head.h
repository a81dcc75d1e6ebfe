/* Closed-form heads on the frozen features (docs/method.md, section 13): they learn from
 * queries that are computed anyway, one sample at a time, without gradients.
 *
 *     update(q, label) -> scores(q) -> visit
 *
 * A head gives log-probabilities over the classes seen (-INFINITY for others; 0
 * for a single class), so that `mix` can add them. Class rows appear on first sight. To add a head:
 * write head_NAME.c with its `const sfp__head_kind`, and add a row to the table
 * in head.c. */
#ifndef SFP_LEARNER_HEAD_H
#define SFP_LEARNER_HEAD_H

#include "learner/state/visit.h"

#include <stddef.h>
#include <stdint.h>

typedef struct sfp__head sfp__head;

typedef struct sfp__head_options {
    int dim;           /* D of queries and features */
    int classes;       /* rows to begin with space for; grows */
    uint64_t seed;     /* of ranpac's projection */
    int ranpac_width;  /* 4000 */
    float slda_shrink; /* 1e-4 */
    float mix_rate;    /* learning rate of mix's exponential weights */
} sfp__head_options;

sfp__head_options sfp__head_options_defaults(int dim, int classes);

/* kind: "ncm", "slda", "ranpac". */
sfp_status sfp__head_create(const char *kind, const sfp__head_options *opt, sfp__head **out, sfp_error *err);
void sfp__head_free(sfp__head *h);
DEFINE_OWNED_PTR(sfp__head, sfp__head_free)
const char *sfp__head_kind_name(const sfp__head *h);
/* Names of the kinds, from 0 until NULL. */
const char *sfp__head_name(int i);

/* n samples; query (n, D), label (n) >= 0. All are learned from or, on failure (a query that is not finite, a label out of range,
 * no memory for new classes), none. No kind learns from the prompted feature: it moves as the fingerprints learn, sums over it
 * would be stale. */
sfp_status sfp__head_update(sfp__head *h, int n, const float *query, const int32_t *label, sfp_error *err);
/* Does the solving that updates put off (ranpac's ridge, slda's inverse); scores calls it when needed. */
sfp_status sfp__head_refresh(sfp__head *h, sfp_error *err);
/* log-probabilities (n, classes); labels seen that are not below `classes` are left out. */
sfp_status sfp__head_scores(sfp__head *h, int n, const float *query, int classes, float *out, sfp_error *err);

/* State as tensors. A head that was read goes on to the same bytes as the one that was written; a read that fails leaves it as it
 * was. v->answers: for scores alone, what refresh has solved instead of the sums it was solved from (ranpac: a matrix of classes,
 * not of M x M); a head read so gives the bytes of the written one and learns nothing more: update fails with SFP_EUNSUPPORTED.
 */
sfp_status sfp__head_visit(sfp__head *h, const sfp__visitor *v, sfp_error *err);

/* ------------------------------------------------------------------- scorer
 *
 * An immutable copy of what a head's scores need, so that other threads can score while the head goes on learning. */

typedef struct sfp__head_scorer sfp__head_scorer;

/* The head as it is; *scorer is written over when it is not NULL (its memory is used again), else made. */
sfp_status sfp__head_freeze(sfp__head *h, sfp__head_scorer **scorer, sfp_error *err);
void sfp__head_scorer_free(sfp__head_scorer *s);

/* Doubles of work that scores needs for one sample. */
size_t sfp__head_scorer_work(const sfp__head_scorer *s);

/* The same log-probabilities (n, classes) as sfp__head_scores of the frozen head. */
void sfp__head_scorer_scores(const sfp__head_scorer *s, int n, const float *query, int classes, double *work, float *out);

/* ---------------------------------------------------------------------- mix */

/* Log-probabilities of several experts added with weights that follow each one's prequential loss: exponential weights, so
 * that the answer is never much worse than the best expert's. Expert 0 is the learned linear head. */
enum { SFP_HEAD_MEMBERS = 3 }; /* linear, slda, ranpac */

typedef struct sfp__mix { /* plain data; loss and count are the state to save */
    double rate;
    double loss[SFP_HEAD_MEMBERS]; /* accumulated, discounted */
    double count;                  /* samples, discounted */
} sfp__mix;

/* Weights (SFP_HEAD_MEMBERS), sum 1. */
void sfp__mix_weights(const sfp__mix *m, double *weight);
/* logp[e] (n, classes) per expert, before these labels were learned from: test-then-train. */
void sfp__mix_observe(sfp__mix *m, int n, int classes, const float *const *logp, const int32_t *label);
/* out (n, classes) = log of the weighted mixture, normalised over the classes any expert gives a finite score; -INFINITY for
 * the others. head_mix.c says what is mixed and why. */
void sfp__mix_combine(const sfp__mix *m, int n, int classes, const float *const *logp, float *out);

#endif
