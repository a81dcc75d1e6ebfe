/* Closed-form heads on the frozen features (docs/method.md, section 13). They learn from queries that are computed anyway, one
 * sample at a time, without gradients.
 *
 *     update(q, label) -> scores(q) -> visit
 *
 * A head computes log-probabilities over the classes seen (-INFINITY for others; 0 for a single class), so that `mix` can add
 * them. A class is added with its first sample. To add a head, write head_NAME.c with its `const sfp__head_kind`, and add a row
 * to the table in head.c. */
#ifndef SFP_LEARNER_HEAD_H
#define SFP_LEARNER_HEAD_H

#include "base/thread_pool.h"
#include "learner/state/visit.h"

#include <stddef.h>
#include <stdint.h>

typedef struct sfp__head sfp__head;

#define SFP_RANPAC_WIDTH_DEFAULT 4000

typedef struct sfp__head_options {
    int dim;           /* number of values of a query: D, or with K taps K * D, and D more with the mean tap */
    int classes;       /* initial capacity in classes; grows if needed */
    uint64_t seed;     /* seed of ranpac's projection */
    int ranpac_width;  /* number of features of ranpac */
    int tap_dim;       /* D: ranpac normalises each tap, unless it is the only one */
    float slda_shrink; /* 1e-4; only without shrinkage_oas */
    bool shrinkage_oas;
    bool slda_published;       /* slda: the published update, which depends on the order of the samples */
    bool ridge_balanced;       /* ridge: scores do not prefer frequent classes */
    int64_t solve_gap;         /* ridge, slda: least number of samples between two solves of the learner */
    sfp__thread_pool *threads; /* for solves; NULL: none */
    bool test_on_held;         /* ridge, slda: solutions that are not exact exclude held-out samples, which test them */
} sfp__head_options;

sfp__head_options sfp__head_options_defaults(int dim, int classes);

/* kind: "ncm", "slda", "ridge", "ranpac". */
sfp_status sfp__head_create(const char *kind, const sfp__head_options *opt, sfp__head **out, sfp_error *err);
void sfp__head_free(sfp__head *h);
DEFINE_OWNED_PTR(sfp__head, sfp__head_free)
/* Returns whether a prediction changes what a checkpoint contains, so that none may be made until the checkpoint is written. */
bool sfp__head_saves_solution(const sfp__head *h);
const char *sfp__head_kind_name(const sfp__head *h);
/* Returns the name of kind i; NULL: i is past the last one. */
const char *sfp__head_name(int i);

/* Learns from n samples; query (n, dim), label (n) >= 0, key (n): digests of the images, which decide which samples are held out
 * (sums.h); NULL: they are derived from the queries. On failure (a query that is not finite, a label out of range, no memory for
 * new classes) it learns from none of them. No kind learns from the prompted feature: that feature changes while the fingerprints
 * are trained, so sums over it would be outdated. */
sfp_status sfp__head_update(sfp__head *h, int n, const float *query, const int32_t *label, const uint64_t *key, sfp_error *err);
/* Takes out a sample that was learned with this label and key: the scores are then those of a head that has never seen it, except
 * that calibration may lack one of its held-out samples (sums.h). SFP_EUNSUPPORTED: the kind is not a function of sums (ranpac, slda
 * as published); SFP_ENOTFOUND: no such sample can have been learned. */
sfp_status sfp__head_forget(sfp__head *h, const float *query, int32_t label, const uint64_t *key, sfp_error *err);
/* Adds the samples of another head of the same kind and size: the head is then as if it had learned from both streams. On failure
 * it is unchanged. */
sfp_status sfp__head_merge(sfp__head *h, const sfp__head *from, sfp_error *err);

/* Solves the equations that updates defer; sfp__head_scores calls it if needed. exact: of all samples; else they may be some
 * samples behind (head_ridge.c). */
sfp_status sfp__head_refresh(sfp__head *h, bool exact, sfp_error *err);
/* Computes the log-probabilities (n, classes); labels seen that are not below `classes` are excluded. */
sfp_status sfp__head_scores(sfp__head *h, int n, const float *query, bool exact, int classes, float *out, sfp_error *err);
/* Returns the factor of the scores that was fitted on held-out samples; NAN: the kind has none. softmax(logp / scale) are the
 * probabilities without it. */
double sfp__head_scale(const sfp__head *h, bool exact);
/* Returns the score of a query for "none of the classes" (novelty.h), after an exact refresh; NAN: there is none. work (D). */
float sfp__head_unknown(const sfp__head *h, const float *query, double *work);
/* Returns the number of samples learned from, in total and with a label. */
int64_t sfp__head_samples(const sfp__head *h);
int64_t sfp__head_label_samples(const sfp__head *h, int label);
/* Returns whether the head is a function of sums, so that sfp__head_forget and sfp__head_merge work. */
bool sfp__head_has_sums(const sfp__head *h);

/* Writes or reads the state as tensors. A head that was read continues with the same bytes as the head that was written. If
 * reading fails, the head is unchanged. With v->inference_only only the data for scores is visited: the solution of refresh
 * instead of the sums (ranpac: a matrix per class instead of M x M). A head that was read this way computes the same bytes as the
 * written one, but cannot learn: update fails with SFP_EUNSUPPORTED. */
sfp_status sfp__head_visit(sfp__head *h, const sfp__visitor *v, sfp_error *err);

/* ------------------------------------------------------------------- scorer
 *
 * An immutable copy of the data that the scores of a head need, so that other threads can score while the head learns. */

typedef struct sfp__head_scorer sfp__head_scorer;

/* Copies the current head, whose scores must be linear (not ranpac), to *scorer. If *scorer is not NULL, its memory is reused; otherwise a scorer is created. */
sfp_status sfp__head_freeze(sfp__head *h, bool exact, sfp__head_scorer **scorer, sfp_error *err);
void sfp__head_scorer_free(sfp__head_scorer *s);

/* Like sfp__head_scale and sfp__head_unknown of the copied head; a copy that is not exact has no score. */
double sfp__head_scorer_scale(const sfp__head_scorer *s);
float sfp__head_scorer_unknown(const sfp__head_scorer *s, const float *query, double *work);

/* Returns the number of doubles that `work` of sfp__head_scorer_scores needs. */
size_t sfp__head_scorer_work(const sfp__head_scorer *s);

/* Computes the same log-probabilities (n, classes) as sfp__head_scores of the copied head. */
void sfp__head_scorer_scores(const sfp__head_scorer *s, int n, const float *query, int classes, double *work, float *out);

/* ---------------------------------------------------------------------- mix */

/* Adds the log-probabilities of several members with exponential weights that follow the prequential loss of each member, so that
 * the result is never much worse than the best member. Member 0 is the linear head. */
enum { SFP_HEAD_MEMBERS = 2 }; /* linear, ridge */

#define SFP_MIX_SKIP 0.02 /* a linear head with less weight is not computed for a prediction */
#define SFP_MIX_RATE 0.01 /* default of `rate` */

typedef struct sfp__mix { /* plain data; loss and count are saved */
    double rate;
    double loss[SFP_HEAD_MEMBERS]; /* accumulated and discounted */
    double count;                  /* number of samples, discounted */
} sfp__mix;

void sfp__heads_free(sfp__head *(*heads)[SFP_HEAD_MEMBERS]);
/* Visits the heads that are not NULL, each with the prefix head.KIND. */
sfp_status sfp__heads_visit(sfp__head *const heads[SFP_HEAD_MEMBERS], const sfp__visitor *with, sfp_error *err);

/* Returns losses with which this member begins with almost all of the weight, so that the other gets some only when it has proved
 * better. */
sfp__mix sfp__mix_start(int member);
/* Writes the weights (SFP_HEAD_MEMBERS), whose sum is 1. */
void sfp__mix_weights(const sfp__mix *m, double *weight);
/* Updates the losses from logp[e] (n, classes) per member e, computed before the members learned from these labels
 * (test-then-train). */
void sfp__mix_observe(sfp__mix *m, int n, int classes, const float *const *logp, const int32_t *label);
/* Writes out (n, classes): the log of the weighted mixture, normalised over the classes for which any member has a finite score;
 * -INFINITY for the others. head_mix.c explains the mixture. */
void sfp__mix_combine(const sfp__mix *m, int n, int classes, const float *const *logp, float *out);

#endif
