/* Prediction from any thread while the learner trains. A predictor must be used by one thread at a time. Each call uses one
 * consistent snapshot. */
#ifndef SFP_LEARNER_PREDICTOR_H
#define SFP_LEARNER_PREDICTOR_H

#include "base/mem.h"
#include "learner/learner.h"
#include "learner/snapshot.h"

/* The last bit of a matrix product may depend on its number of rows, so the division of images into batches affects the result.
 * Runs evaluate in batches of sfp__predictor_batch images, and a saved state uses the same batch size. */
enum { SFP_PREDICT_BATCH_MIN = 20, SFP_PREDICT_BATCH_MAX = 64 };

typedef struct sfp__predictor sfp__predictor;

/* `threads` is the thread pool of the predictor; it must not be that of the learner if both run at the same time. max_batch is
 * the maximum number of images per pass, 0: the same as in runs; larger requests are divided. The learner must outlive the
 * predictor. Creating and freeing a predictor must not overlap with calls on the learner. A predictor of a method reads the head
 * itself, under its lock. */
sfp_status sfp__predictor_create(sfp__learner *l, sfp__thread_pool *threads, int max_batch, sfp__predictor **out, sfp_error *err);
/* Declares that the calls of this predictor never overlap with calls on the learner. Snapshots are then published when the
 * predictor needs one, not after every timestamp. */
void sfp__predictor_on_demand(sfp__predictor *p);
/* Sets the feature cache, which must outlive the predictor; NULL: none, as at the start. */
void sfp__predictor_set_memo(sfp__predictor *p, sfp__vit_memo *memo);
void sfp__predictor_free(sfp__predictor *p);
DEFINE_OWNED_PTR(sfp__predictor, sfp__predictor_free)

/* SFP_EINVAL: a number of x (n, width) is not finite, so that it cannot be ranked. logs: they are logarithms, and -INFINITY is the
 * probability 0. */
sfp_status sfp__check_scores(int n, int width, const float *x, bool logs, sfp_error *err);

/* Creates a predictor of a saved state (state.h): fingerprints or a closed-form head. max_batch 0:
 * the same as in the run that wrote the state. */
sfp_status sfp__predictor_open(sfp__vit *vit, sfp__thread_pool *threads, const char *path, int max_batch, sfp__predictor **out,
                               sfp_error *err);

/* Classes and options of the predictor. If it belongs to a learner, these must not be called while the learner trains. */
int sfp__predictor_classes(const sfp__predictor *p);
const char *sfp__predictor_class_name(const sfp__predictor *p, int label); /* NULL: the class has no name */
bool sfp__predictor_seen(const sfp__predictor *p, int label);
int sfp__predictor_query_size(const sfp__predictor *p); /* values of a query in the functions below: those of its taps */
const sfp__learner_options *sfp__predictor_options(const sfp__predictor *p); /* resize, mean, std, seed */

typedef struct sfp__prediction {
    uint64_t t;  /* number of timestamps of the snapshot */
    int classes; /* number of classes of the snapshot: columns of logp */
} sfp__prediction;

/* Predicts n images (S, S, 3). label (n): the class with the highest probability among those seen; -1: none was seen. logp (n,
 * classes), if not NULL: log-probabilities over the classes seen, -INFINITY for others. The row stride `ld` must be at least the
 * number of classes of the snapshot; otherwise the result is SFP_ELIMIT, and answer->classes is the number of classes. */
sfp_status sfp__predictor_run(sfp__predictor *p, int n, const uint8_t *const *rgb, int32_t *label, float *logp, int ld,
                              sfp__prediction *answer, sfp_error *err);

/* Predicts images some of whose queries are known, for example those of a test set. query (n, query size) is used if has_query is true;
 * otherwise it is computed and stored. */
sfp_status sfp__predictor_run_known(sfp__predictor *p, int n, const uint8_t *const *rgb, float *query, bool *has_query,
                                    int32_t *label, float *logp, int ld, sfp__prediction *answer, sfp_error *err);

/* Predicts labels (n), -1: no class was seen. query and has_query as above; an image may be NULL if only its query is needed.
 * probability (n), if not NULL: the probability of the label, NAN for -1. */
sfp_status sfp__predictor_predict(sfp__predictor *p, int n, const uint8_t *const *rgb, float *query, bool *has_query,
                                  int32_t *label, float *probability, sfp_error *err);
/* Returns the probabilities (n) of the labels of the last sfp__predictor_predict with probabilities, without the fitted scale of the
 * closed-form head; NAN: the head has no such scale. */
const float *sfp__predictor_unscaled(const sfp__predictor *p);
/* For predictions while the learner trains. sfp__predictor_refresh obtains the newest snapshot, which the predictor keeps until
 * the next refresh or answer. sfp__predictor_snapshot returns it; NULL: no refresh yet. sfp__predictor_answer predicts n images
 * with the newest snapshot. *logp is (rows, classes of the snapshot), rows >= n, of which the first n rows are written; it
 * belongs to the predictor and is valid until the next call. */
sfp_status sfp__predictor_refresh(sfp__predictor *p, sfp_error *err);
const sfp__snapshot *sfp__predictor_snapshot(const sfp__predictor *p);
sfp_status sfp__predictor_answer(sfp__predictor *p, int n, int rows, const uint8_t *const *rgb, int32_t *label, float **logp,
                                 sfp_error *err);
/* Computes the scores for "none of the classes" in the following calls of sfp__predictor_predict, too. */
void sfp__predictor_want_unknown(sfp__predictor *p, bool wants);
/* Returns the scores (n) for "none of the classes" of the images of the last sfp__predictor_answer (heads/novelty.h); NAN: the head
 * has none, it is not solved from all samples, or there are too few of them. */
const float *sfp__predictor_unknown(const sfp__predictor *p);
/* Returns the best number of images per call; more images increase the latency, not the throughput. */
int sfp__predictor_batch(const sfp__predictor *p);
/* Returns true for a closed-form head: an image with a known query need not be given. */
bool sfp__predictor_needs_queries_only(const sfp__predictor *p);

#endif
