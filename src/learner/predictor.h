/* Prediction, from any thread, while the learner learns: a predictor belongs
 * to one thread at a time, each answer comes from one consistent snapshot. */
#ifndef SFP_LEARNER_PREDICTOR_H
#define SFP_LEARNER_PREDICTOR_H

#include "base/mem.h"
#include "learner/learner.h"
#include "learner/snapshot.h"

/* The last bit of a product may depend on how many rows it has, so how images are cut is part of the answer: runs evaluate with
 * as many at once as sfp__predictor_batch says, and a saved state answers in the same pieces. */
enum { SFP_PREDICT_BATCH_MIN = 20, SFP_PREDICT_BATCH_MAX = 64 };

typedef struct sfp__predictor sfp__predictor;

/* `threads` is the predictor's own pool (another one than the learner's when both run at once). max_batch: most images at a
 * time inside; larger requests are cut; 0: as runs evaluate. The learner must outlive it. Creating and freeing must not overlap
 * with a call on the learner. A predictor of a method reads the head itself: none of its calls may. */
sfp_status sfp__predictor_create(sfp__learner *l, sfp__thread_pool *threads, int max_batch, sfp__predictor **out, sfp_error *err);
/* Its calls never overlap with those on the learner: from now on a copy of the state is made when it asks, not after every
 * timestamp. */
void sfp__predictor_on_demand(sfp__predictor *p);
void sfp__predictor_free(sfp__predictor *p);
DEFINE_OWNED_PTR(sfp__predictor, sfp__predictor_free)
/* The pool goes with the predictor. */
void sfp__predictor_own_pool(sfp__predictor *p);

/* A predictor of a saved state (state.h): fingerprints with a linear or mixed head, or a closed-form head alone. max_batch 0: as
 * the run that learned it. */
sfp_status sfp__predictor_open(sfp__vit *vit, sfp__thread_pool *threads, const char *path, int max_batch, sfp__predictor **out,
                               sfp_error *err);

/* What it answers with. Of a learner's predictor: not while the learner learns. */
int sfp__predictor_classes(const sfp__predictor *p);
const char *sfp__predictor_class_name(const sfp__predictor *p, int label); /* NULL: it has none */
bool sfp__predictor_seen(const sfp__predictor *p, int label);
int sfp__predictor_image_size(const sfp__predictor *p);
const sfp__learner_options *sfp__predictor_options(const sfp__predictor *p); /* resize, mean, std, seed */

typedef struct sfp__prediction {
    uint64_t t;  /* timestamps the snapshot had learned */
    int classes; /* its classes: columns of logp */
} sfp__prediction;

/* n images (S, S, 3). label (n): the best class seen, -1 when none was. logp (n, classes) when not NULL: log-probabilities
 * over the classes seen (-INFINITY for others), row stride `ld` >= classes of the snapshot, else SFP_ELIMIT and
 * answer->classes tells how many. */
sfp_status sfp__predictor_run(sfp__predictor *p, int n, const uint8_t *const *rgb, int32_t *label, float *logp, int ld,
                              sfp__prediction *answer, sfp_error *err);

/* The same with queries known (test sets keep them): query (n, D) is filled where has_query is false and used where true. */
sfp_status sfp__predictor_run_known(sfp__predictor *p, int n, const uint8_t *const *rgb, float *query, bool *has_query,
                                    int32_t *label, float *logp, int ld, sfp__prediction *answer, sfp_error *err);

/* label (n), -1: no class was seen; query and has_query as above, and images whose query is all that is needed may be NULL.
 * probability (n) of the label, NAN for -1, when not NULL. */
sfp_status sfp__predictor_ask(sfp__predictor *p, int n, const uint8_t *const *rgb, float *query, bool *has_query, int32_t *label,
                              float *probability, sfp_error *err);
/* For predictions while the learner learns. sfp__predictor_refresh makes the newest snapshot that of the predictor, which keeps it
 * until the next refresh or answer; sfp__predictor_snapshot is NULL before. sfp__predictor_answer predicts n images from the newest
 * one. *logp: (rows, classes of the snapshot), rows >= n, the first n written; the predictor's own until the next call. */
sfp_status sfp__predictor_refresh(sfp__predictor *p, sfp_error *err);
const sfp__snapshot *sfp__predictor_snapshot(const sfp__predictor *p);
sfp_status sfp__predictor_answer(sfp__predictor *p, int n, int rows, const uint8_t *const *rgb, int32_t *label, float **logp,
                                 sfp_error *err);
/* Images to be asked at once: of more the answer comes later, not faster. */
int sfp__predictor_batch(const sfp__predictor *p);
/* A method: with a known query no image is needed. */
bool sfp__predictor_needs_queries_only(const sfp__predictor *p);

/* What expert e of a mixed head (SFP_HEAD_MEMBERS of them) alone said in the last run, by image; NULL: the head is not mixed.
 * Holds until the next run. */
const int32_t *sfp__predictor_member_labels(const sfp__predictor *p, int e);

#endif
