/* The rehearsal buffer: a fixed number of slots, and the buffer methods that decide which samples are stored
 * and which are replaced (docs/method.md, sections 7 and 12).
 *
 * A slot holds everything that replay needs: the image (8-bit pixels at input size), label, query, mean
 * embedding, timestamp of storage and source id. All memory is allocated when the buffer is created.
 *
 * Methods see scores, labels and the inputs that they declare, never the model. To add one, write buffer_NAME.c with its `const
 * sfp__buffer_method`, and add a row to the end of this file and to the table in buffer.c. */
#ifndef SFP_BUFFER_BUFFER_H
#define SFP_BUFFER_BUFFER_H

#include "base/error.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "buffer/model_ops.h"
#include "select/select.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sfp__buffer sfp__buffer;

/* How slots are drawn for replacement (--drop-rule). With pi, the rank probability of a slot's score (sfp__rank_probability), the weight of a slot is
 * 1 - pi (ALG2) or pi (EQ8). */
typedef enum sfp__drop_rule { SFP__DROP_ALG2, SFP__DROP_EQ8 } sfp__drop_rule;

/* When ssd optimises its synthetic images: at every `every`-th batch of a task, if the window of recent batches is full. */
typedef struct sfp__ssd_timing {
    int every, window;
} sfp__ssd_timing;

typedef struct sfp__buffer_options {
    int slots;          /* m */
    int dim;            /* D */
    size_t image_bytes; /* size of an image: S*S*3 */
    sfp__drop_rule drop;
    sfp__ssd_timing ssd;   /* always the default, except in tests */
    const char *method;    /* "streamfp", "er", "none", ... */
    float mean[3], std[3]; /* normalisation: the model's input is (byte / 255 - mean) / std */
} sfp__buffer_options;

/* streamfp, 102 slots, alg2; ssd as published: every 3 of a window of 32 batches; dim and image_bytes are 0 */
sfp__buffer_options sfp__buffer_options_defaults(void);

typedef struct sfp__slot {
    int32_t label;
    uint64_t id;        /* id that the source assigned */
    uint64_t stored_at; /* timestamp at which the sample was stored */
    uint8_t *image;     /* (image_bytes) */
    bool has_query;
    float *query;      /* (D) */
    float *mean_embed; /* (D) */
} sfp__slot;

/* One arriving batch. label, id and image are required. A method that needs the score also requires mean_embed, score
 * and fingerprint. For other methods they may be NULL; the slots then store zeros for mean_embed. query and has_query may be
 * NULL: no query is known. */
typedef struct sfp__buffer_batch {
    int b;
    uint64_t now;                /* timestamp */
    const int32_t *label;        /* (b) */
    const uint64_t *id;          /* (b) */
    const uint8_t *const *image; /* (b) (image_bytes) images */
    const float *mean_embed;     /* (b, D) */
    const float *query;          /* (b, D) row i is valid only if has_query[i] */
    const bool *has_query;       /* (b) */
    const float *score;          /* (b) score S(x) with the fingerprints after the training steps */
    const float *fingerprint;    /* (D) mean unit component; the score of a slot is <mean_embed, fingerprint> */
    const sfp__model_ops *model; /* model callbacks; may be NULL if the method needs neither FEATURES nor GRADIENTS nor PIXELS */
    sfp__thread_pool *threads;   /* NULL: use only the calling thread */
} sfp__buffer_batch;

/* The changes of one update, for the event log. The arrays belong to the buffer and are valid until the next update. */
typedef struct sfp__buffer_change {
    int stored;          /* samples 0..stored-1 were stored in free slots */
    int nu;              /* number of replacements */
    const int *retained; /* (nu) indices into the batch, in order of draw */
    const int *replaced; /* (nu) slots that now hold them, all different */
    double moved;        /* ssd: mean absolute change of the optimised images in byte levels; 0: none was optimised */
} sfp__buffer_change;

typedef struct sfp__buffer_method {
    const char *name;
    const char *summary;
    unsigned needs;     /* SFP__NEED_* */
    bool keeps_nothing; /* the buffer has no slots, regardless of the options */
    /* Updates the slots from a batch that has been checked. On failure the buffer is unchanged. */
    sfp_status (*update)(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                         sfp_error *err);

    /* Called at a boundary of known tasks, before the first batch of the next task; NULL: nothing to do. */
    void (*next_task)(sfp__buffer *b);
    /* Chooses the slots that a step replays, from a buffer that is not empty; NULL: sfp__buffer_draw. The batch has only b,
     * label, id, model and threads. Writes at most r distinct slots and their number. */
    sfp_status (*retrieve)(sfp__buffer *b, const sfp__buffer_batch *batch, int r, sfp__rng *rng, int *slots, int *count,
                           sfp_error *err);

    /* Functions of a method with its own state or scratch memory, which `update` finds in b->state. NULL if a method has none. */
    sfp_status (*open)(const sfp__buffer_options *opt, int max_batch, void **state, sfp_error *err);
    void (*close)(void *state);          /* accepts NULL */
    sfp__state_tensors_fn state_tensors; /* the tensors that a checkpoint contains */
    const void *ctx;                     /* of a registered method, whose functions read it; NULL: built-in */
} sfp__buffer_method;

/* Any code may read these members; only the code in this directory and buffer methods write them. */
struct sfp__buffer {
    sfp__buffer_options opt; /* the options in effect: slots is 0 with "none" */
    const sfp__buffer_method *method;
    void *state; /* created by the method's `open`, read by its `state_tensors`; NULL: none */
    int max_batch;
    int filled;    /* slots 0..filled-1 are in use; never decreases */
    uint64_t seen; /* n_seen: number of samples offered so far */

    void *block;     /* memory of all arrays below */
    sfp__slot *slot; /* (m); image, query and mean_embed point into `store` */
    uint8_t *store;  /* m images, then m queries, then m mean embeddings */

    /* workspace; n = max(max_batch, m) */
    double *u_nu, *u_batch, *u_buffer; /* (max_batch) */
    double *weight;                    /* (n) */
    float *score;                      /* (m) */
    int *order;                        /* (n) also scratch memory of sfp__buffer_draw */
    int *retained, *replaced;          /* (max_batch) the arrays of the last sfp__buffer_change */
};

extern const sfp__buffer_method *const sfp__buffer_methods[]; /* the built-in methods; ends with NULL */
/* Method i, from 0: the built-in ones, then the registered ones in order of registration; NULL after the last one. */
const sfp__buffer_method *sfp__buffer_method_at(int i);
const sfp__buffer_method *sfp__buffer_method_find(const char *name); /* NULL: unknown */
/* Adds a method for the rest of the process; *m must stay valid. SFP_EINVAL: its name is in use. Thread-safe, also with the two
 * functions above. */
sfp_status sfp__buffer_method_register(const sfp__buffer_method *m, sfp_error *err);

/* Fails if the method is unknown. max_batch is the largest batch size. All memory including
 * scratch is allocated here, except the scratch memory of a method, which may grow during its first updates. */
sfp_status sfp__buffer_create(const sfp__buffer_options *opt, int max_batch, sfp__buffer **out, sfp_error *err);
void sfp__buffer_free(sfp__buffer *b);
DEFINE_OWNED_PTR(sfp__buffer, sfp__buffer_free)

/* For loading a checkpoint: sets the counters after slots 0..filled-1 have been written. */
sfp_status sfp__buffer_restore(sfp__buffer *b, int filled, uint64_t seen, sfp_error *err);

/* Draws min(r, filled) distinct slots uniformly, in random order. Returns their number. Allocates no memory. Uses one bounded
 * draw (sfp__rng_below) per slot. */
int sfp__buffer_draw(sfp__buffer *b, int r, sfp__rng *rng, int *slots);

/* Chooses the slots that the next step replays, by the method's `retrieve` if it has one, else by sfp__buffer_draw. `slots` has
 * space for r. On failure the random generator has not changed.
 *
 * Random numbers of aser, once more samples than slots were offered: for each class in the buffer, ascending,
 * one bounded draw per candidate, then one per evaluation sample. If there are fewer than r candidates: one per further slot. */
sfp_status sfp__buffer_retrieve(sfp__buffer *b, const sfp__buffer_batch *batch, int r, sfp__rng *rng, int *slots, int *count,
                                sfp_error *err);

/* Informs the method that the next batch is the first of a task. */
void sfp__buffer_next_task(sfp__buffer *b);

/* Calls the method's update for an arriving batch; `change` may be NULL. After the first updates no memory is allocated. On
 * failure neither the buffer nor the random generator has changed.
 *
 * The order of the random numbers must never change, because a checkpoint resumes in the middle of the sequence:
 *   streamfp  none if all samples fit in free slots; else n_left doubles (u_nu), nu doubles (u_batch), nu doubles (u_buffer)
 *   er        one bounded draw per sample without a free slot
 *   aser      none if all samples fit in free slots; else one double (threshold of rare classes), one bounded draw per class in
 *             the buffer, ascending (evaluation set), one per competing buffer sample
 *   camel     none
 *   gss       none while the buffer is empty; else those of sfp__buffer_draw for all groups together. If the buffer is full and
 *             the score of the batch is negative: min(b, m) doubles (slots) and as many doubles (replacement)
 *   ssd       at a batch with an optimisation, for each class of the batch with synthetic images, in order of appearance: one
 *             bounded draw per compared image of an older class, at most 10. Then one per sample without a free slot
 *   none      none */
sfp_status sfp__buffer_update(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                              sfp_error *err);

/* Writes score[i] = <mean_embed of slot i, fingerprint> for the filled slots. O(m*D); reads no image. */
void sfp__buffer_score(const sfp__buffer *b, const float *fingerprint, float *score /* (filled) */);

/* ------------------------------------------------ the pieces, pure functions */

/* Writes pi_i = 1 - (1/r_i) / sum(1/r), where rank 1 is the highest score, ties are ordered by index and NaN is last. order:
 * scratch memory for n ints. */
void sfp__rank_probability(int n, const float *score, int *order, double *pi);

/* Draws count <= n of n indices without replacement, with one uniform number in [0,1) each. An index is drawn if it is the first
 * whose running weight exceeds u * total, over the remaining indices in order. If all remaining weights are 0, they count as
 * equal. Overwrites `weight`. */
void sfp__weighted_draw(int n, double *weight, int count, const double *uniform, int *out);

/* Returns the number of replacements: min(max(1, floor(b/2)), n_left, m, max(1, #{u_i * n_seen < m})). n_seen includes the samples that were just stored. */
int sfp__buffer_nu(uint64_t n_seen, int m, int b, int n_left, const double *u_nu /* (n_left) */);

/* Draws nu of the n_left scores of Q, and nu of the m slots. */
void sfp__buffer_pairs(int n_left, const float *score_left, int m, const float *score_slot, int nu,
                       const double *u_batch /* (nu) */, const double *u_buffer /* (nu) */, sfp__drop_rule drop,
                       int *iwork /* max(n_left,m) */, double *dwork /* max(n_left,m) */, int *retained /* into Q */,
                       int *replaced);

/* The update of docs/method.md, section 7 with given random numbers: the three functions above in sequence. `streamfp-verify
 * buffer.json` checks it. The buffer must hold min(n_seen, m) samples. The caller provides u_* (b), retained (b) and replaced
 * (b). score_buffer has the scores of the slots after free slots are filled: min(m, n_seen + stored). */
typedef struct sfp__buffer_plan {
    int stored, nu;
} sfp__buffer_plan;
void sfp__buffer_decide(uint64_t n_seen, int m, int b, const float *score_batch, const float *score_buffer, const double *u_nu,
                        const double *u_batch, const double *u_buffer, sfp__drop_rule drop, int *iwork /* max(b,m) */,
                        double *dwork /* max(b,m) */, int *retained, int *replaced, sfp__buffer_plan *out);

/* ------------------------------------------------------------ for the methods */

extern const sfp__buffer_method sfp__buffer_streamfp, sfp__buffer_none, sfp__buffer_er, sfp__buffer_aser, sfp__buffer_camel,
    sfp__buffer_gss, sfp__buffer_ssd;

/* Copies sample k of the batch into slot i, with all members of a slot. */
void sfp__buffer_put(sfp__buffer *b, int i, const sfp__buffer_batch *batch, int k);

/* Stores samples 0, 1, ... in free slots as long as there are any. Each adds 1 to n_seen. Returns their number. */
int sfp__buffer_fill(sfp__buffer *b, const sfp__buffer_batch *batch);

/* For methods that decide before they change anything. Returns the number of samples that the batch will store in free slots; the
 * other samples are the remaining ones. */
int sfp__buffer_fits(const sfp__buffer *b, const sfp__buffer_batch *batch);
/* Returns the sample in slot p after free slots are filled, numbered as in buffer/model_ops.h. p >= m numbers the remaining
 * samples of the batch. */
int sfp__buffer_sample_at(const sfp__buffer *b, const sfp__buffer_batch *batch, int p);
int32_t sfp__buffer_label(const sfp__buffer *b, const sfp__buffer_batch *batch, int sample);
/* Performs the decision: fills free slots, then copies sample retained[i] into slot replaced[i] for i < nu. Adds the whole batch
 * to n_seen and writes *change. */
void sfp__buffer_commit(sfp__buffer *b, const sfp__buffer_batch *batch, int nu, sfp__buffer_change *change);

/* Makes the decision of a reservoir for a sample without a free slot, which is added to n_seen. Returns a slot, or -1. One
 * bounded draw. */
int sfp__reservoir_draw_slot(sfp__buffer *b, sfp__rng *rng);
/* Records in retained and replaced that sample k replaces the sample of a slot. If a slot is replaced twice by one batch, only
 * the later sample is recorded. */
void sfp__buffer_record_replacement(sfp__buffer *b, int slot, int k, int *nu);

/* ------------------------------------------------------------------- gss score
 *
 * The arithmetic of gradient-based sample selection, independent of how gradients are computed (buffer_gss.c; Aljundi et al.
 * 2019). */

/* There are at most 20 groups of up to 10 slots. No slot is in two groups, and incomplete groups are not used. */
enum { SFP__GSS_GROUPS = 20, SFP__GSS_GROUP = 10 };
int sfp__gss_group_size(int filled);
int sfp__gss_groups(int filled);

/* Scales g to unit length; zeros are unchanged. */
void sfp__gss_unit(size_t n, float *g);

/* Returns the largest cosine of g with one of the groups (groups, n), which have unit length; it is 0 if g is zero. Cosines that
 * are not finite are ignored; if none is left, the score is 1, the highest similarity. Sums are computed in double. */
float sfp__gss_score(size_t n, int groups, const float *group, const float *g, sfp__thread_pool *threads /* or NULL */);

/* Writes the weights with which slots are drawn: (s - min) / (max - min + 0.01). A score that is not finite counts as 1. */
void sfp__gss_weights(int n, const float *score, double *weight);

/* Returns the probability that a new sample replaces that of a slot: (s_slot + 1) / ((s_slot + 1) + (s_new + 1)); 0.5 if both
 * scores are -1. */
double sfp__gss_replace(float slot_score, float new_score);

/* ----------------------------------------------------------------- knn shapley
 *
 * Exact Shapley values of training points for a k-nearest-neighbour classifier, without enumerating subsets (Jia et al.,
 * "Efficient task-specific data valuation for nearest neighbor algorithms", VLDB 2019, Theorem 1).
 *
 * The game of one test point: the value of a set S of training points is v(S) = 1/k * (number of points among the min(k, |S|)
 * nearest in S that have the class of the test point). The Shapley value of point i is the mean increase of v when i is added,
 * over all orders of adding the points. The values sum to v(all points). */

/* Writes the values (n) of points that are sorted by distance, nearest first. same[i]: point i has the class of the test point.
 * O(n). */
void sfp__knn_shapley(int n, int k, const bool *same, double *value);

typedef struct sfp__shapley_game {
    int k, dim;
    const float *x;       /* (rows, D) */
    const int32_t *label; /* (rows) */
    int n;                /* rows 0..n-1 are the training points */
    int tests;
    const int *test; /* (tests) rows of the test points; a training point may be a test point */
    /* workspace */
    int *finite, *order; /* (n) */
    float *near;         /* (n) */
    bool *same;          /* (n) */
    double *value;       /* (n) */
} sfp__shapley_game;

/* Writes to sum[i], i < n, the sum of the values of point i over all test points. Distances are Euclidean; on a tie the lower
 * index is nearer. Rows with a value that is not finite are excluded from all games; the sum of such a training point is
 * -INFINITY. Costs tests * (n*D + n*log(n)) operations. */
void sfp__knn_shapley_sum(const sfp__shapley_game *g, double *sum);

#endif
