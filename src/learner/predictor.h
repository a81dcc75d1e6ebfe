/* Prediction, from any thread, while the learner learns: a predictor belongs
 * to one thread at a time, each answer comes from one consistent snapshot. */
#ifndef SFP_LEARNER_PREDICTOR_H
#define SFP_LEARNER_PREDICTOR_H

#include "base/mem.h"
#include "learner/learner.h"

/* The last bit of a product may depend on how many rows it has, so how images are cut is part of the answer: runs evaluate with
 * as many at once as sfp__predictor_batch says, and a saved state answers in the same pieces. */
enum { SFP_PREDICT_BATCH_MIN = 20, SFP_PREDICT_BATCH_MAX = 64 };

/* `threads` is the predictor's own pool (another one than the learner's when both run at once). max_batch: most images at a
 * time inside; larger requests are cut; 0: as runs evaluate. The learner must outlive it. Creating and freeing must not overlap
 * with a call on the learner. A predictor of a method reads the head itself: none of its calls may. */
sfp_status sfp__predictor_create(sfp_learner *l, sfp_thread_pool *threads, int max_batch, sfp_predictor **out, sfp_error *err);
/* Its calls never overlap with those on the learner: from now on a copy of the state is made when it asks, not after every
 * timestamp. */
void sfp__predictor_on_demand(sfp_predictor *p);
DEFINE_OWNED_PTR(sfp_predictor, sfp_predictor_free)
/* The pool goes with the predictor. */
void sfp__predictor_own_pool(sfp_predictor *p);

/* A predictor of a saved state (state.h): fingerprints with a linear or mixed head, or a closed-form head alone. max_batch 0: as
 * the run that learned it. */
sfp_status sfp__predictor_open(sfp_vit *vit, sfp_thread_pool *threads, const char *path, int max_batch, sfp_predictor **out,
                               sfp_error *err);

/* What it answers with. Of a learner's predictor: not while the learner learns. */
bool sfp__predictor_seen(const sfp_predictor *p, int label);
int sfp__predictor_image_size(const sfp_predictor *p);
const sfp_learner_options *sfp__predictor_options(const sfp_predictor *p); /* resize, mean, std, seed */

typedef struct sfp_prediction {
    uint64_t t;  /* timestamps the snapshot had learned */
    int classes; /* its classes: columns of logp */
} sfp_prediction;

/* n images (S, S, 3). label (n): the best class seen, -1 when none was. logp (n, classes) when not NULL: log-probabilities
 * over the classes seen (-INFINITY for others), row stride `ld` >= classes of the snapshot, else SFP_ELIMIT and
 * answer->classes tells how many. */
sfp_status sfp__predictor_run(sfp_predictor *p, int n, const uint8_t *const *rgb, int32_t *label, float *logp, int ld,
                              sfp_prediction *answer, sfp_error *err);

/* The same with queries known (test sets keep them): query (n, D) is filled where has_query is false and used where true. */
sfp_status sfp__predictor_run_known(sfp_predictor *p, int n, const uint8_t *const *rgb, float *query, bool *has_query,
                                    int32_t *label, float *logp, int ld, sfp_prediction *answer, sfp_error *err);

/* label (n), -1: no class was seen; query and has_query as above, and images whose query is all that is needed may be NULL.
 * probability (n) of the label, NAN for -1, when not NULL. */
sfp_status sfp__predictor_ask(sfp_predictor *p, int n, const uint8_t *const *rgb, float *query, bool *has_query, int32_t *label,
                              float *probability, sfp_error *err);
/* Images to be asked at once: of more the answer comes later, not faster. */
int sfp__predictor_batch(const sfp_predictor *p);
/* A method: with a known query no image is needed. */
bool sfp__predictor_needs_queries_only(const sfp_predictor *p);

/* What expert e of a mixed head (SFP_HEAD_MEMBERS of them) alone said in the last run, by image; NULL: the head is not mixed.
 * Holds until the next run. */
const int32_t *sfp__predictor_member_labels(const sfp_predictor *p, int e);

#endif
