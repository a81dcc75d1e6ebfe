/* The rehearsal buffer: a fixed number of slots under a byte budget, and the
 * methods that decide what is kept and dropped (docs/method.md, sections 7 and 12).
 *
 * A slot holds everything a replay needs: the image (8-bit pixels at input
 * size, or the original compressed bytes), label, query, mean embedding, age
 * and source id. All of it is allocated when the buffer is made.
 *
 * Methods see scores, labels and what else they declare, never the model. To
 * add one: write buffer_NAME.c with its `const sfp__buffer_method`, and add a
 * row to the end of this file and to the table in buffer.c. */
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

/* Weight of a slot to be dropped, pi its rank by similarity to the fingerprints: ALG2 1 - pi, EQ8 pi (--drop-rule). */
typedef enum sfp__drop_rule { SFP_DROP_ALG2, SFP_DROP_EQ8 } sfp__drop_rule;
typedef enum sfp__nu_rule { SFP_NU_AT_LEAST_ONE, SFP_NU_RESERVOIR } sfp__nu_rule;

typedef struct sfp__buffer_options {
    int slots;          /* m */
    int dim;            /* D */
    size_t image_bytes; /* most bytes an image takes: S*S*3, or the limit for compressed bytes */
    size_t budget;      /* bytes the slots may take together; 0: no limit but their number */
    sfp__drop_rule drop;
    sfp__nu_rule nu;
    const char *method;    /* "streamfp", "er", "none", ... */
    float mean[3], std[3]; /* how images are normalised: a model's pixel is (byte / 255 - mean) / std */
} sfp__buffer_options;

sfp__buffer_options sfp__buffer_options_defaults(void); /* streamfp, 102 slots, alg2, at least one; dim and image_bytes are 0 */

typedef struct sfp__slot {
    int32_t label;
    uint64_t id;        /* of the source */
    uint64_t stored_at; /* timestamp at which it was stored */
    size_t image_size;  /* bytes of the image that are used */
    uint8_t *image;     /* (image_bytes) */
    bool has_query;
    float *query;      /* (D) */
    float *mean_embed; /* (D) */
} sfp__slot;

/* One arriving batch, as offered to the buffer. Always there: label, id, image, image_size. A method that needs the score
 * needs mean_embed, score and fingerprint too; else they may be NULL, and the slots get zeros for mean_embed. query and
 * has_query may be NULL: no query is known. */
typedef struct sfp__buffer_batch {
    int b;
    uint64_t now;                /* timestamp */
    const int32_t *label;        /* (b) */
    const uint64_t *id;          /* (b) */
    const uint8_t *const *image; /* (b) images */
    const size_t *image_size;    /* (b) */
    const float *mean_embed;     /* (b, D) */
    const float *query;          /* (b, D); rows with has_query[i] false are not known yet */
    const bool *has_query;       /* (b) */
    const float *score;          /* (b) similarity S(x), fingerprints after the steps */
    const float *fingerprint;    /* (D) mean unit fingerprint: scores the slots, <mean_embed, fingerprint> */
    const sfp__model_ops *model; /* for a method that needs FEATURES, GRADIENTS or PIXELS; else NULL */
    sfp__thread_pool *threads;   /* NULL: the calling thread alone */
} sfp__buffer_batch;

/* What an update did, for the event log. Arrays are the buffer's own and hold until the next update. */
typedef struct sfp__buffer_change {
    int stored;          /* samples 0..stored-1 went to free slots */
    int nu;              /* replacements */
    const int *retained; /* (nu) indices into the batch, in order of draw */
    const int *replaced; /* (nu) slots they went to, all different */
} sfp__buffer_change;

typedef struct sfp__buffer_method {
    const char *name;
    const char *summary;
    unsigned needs;     /* SFP_NEED_* */
    bool keeps_nothing; /* no slots are made, whatever the options say */
    /* The batch has been checked. On failure the buffer is as before. */
    sfp_status (*update)(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                         sfp_error *err);

    /* A method with state or scratch of its own, which `update` finds as b->state; all NULL for one without. */
    sfp_status (*open)(const sfp__buffer_options *opt, int max_batch, void **state, sfp_error *err);
    void (*close)(void *state); /* takes NULL */
    /* What it keeps beside the slots, which the budget counts; NULL: 0. */
    size_t (*bytes)(const sfp__buffer_options *opt, int max_batch);
    sfp__state_tensors_fn state_tensors; /* what a checkpoint keeps */
} sfp__buffer_method;

/* Read by all, written by this folder. */
struct sfp__buffer {
    sfp__buffer_options opt; /* as in force: with "none", no slots */
    const sfp__buffer_method *method;
    void *state; /* what the method's `open` made and its `state_tensors` reads; NULL: none */
    int max_batch;
    int filled;    /* slots 0..filled-1 are in use; never falls */
    uint64_t seen; /* n_seen */

    void *block;     /* all arrays below */
    sfp__slot *slot; /* (m); image, query and mean_embed point into `store` */
    uint8_t *store;  /* m images, then m queries, then m mean embeddings */

    /* workspace; n = max(max_batch, m) */
    double *u_nu, *u_batch, *u_buffer; /* (max_batch) */
    double *weight;                    /* (n) */
    float *score;                      /* (m) */
    int *order;                        /* (n); also the deck of sfp__buffer_draw */
    int *retained, *replaced;          /* (max_batch): what the last change points to */
};

/* By name; NULL: unknown. All of them end with NULL. */
const sfp__buffer_method *sfp__buffer_method_find(const char *name);
extern const sfp__buffer_method *const sfp__buffer_methods[];

/* Fails when the slots do not fit the budget, or the method is unknown. max_batch: the largest b that will be offered. All
 * memory, workspace too, is taken here, but for a method's scratch, which may grow during its first updates. */
sfp_status sfp__buffer_create(const sfp__buffer_options *opt, int max_batch, sfp__buffer **out, sfp_error *err);
void sfp__buffer_free(sfp__buffer *b);
DEFINE_OWNED_PTR(sfp__buffer, sfp__buffer_free)

/* For loading a checkpoint, once slots 0..filled-1 have been written: n_seen as given. */
sfp_status sfp__buffer_restore(sfp__buffer *b, int filled, uint64_t seen, sfp_error *err);

/* r distinct slots, uniformly, in random order (fewer when fewer are filled); returns how many. No allocation. Consumes one
 * bounded draw (sfp__rng_below) a slot. */
int sfp__buffer_draw(sfp__buffer *b, int r, sfp__rng *rng, int *slots);

/* The method's update from an arriving batch; `change` may be NULL. No allocation once warm. On failure nothing has changed,
 * the generator neither.
 *
 * Random numbers, in this order for ever (a checkpoint resumes in the middle of the sequence):
 *   streamfp  nothing when all samples fit; else n_left doubles (u_nu), nu doubles (u_batch), nu doubles (u_buffer)
 *   er        one bounded draw for each sample that does not fit
 *   aser      nothing when all samples fit; else one double (the threshold of rare classes), one bounded draw for each class in
 *             the buffer, ascending (evaluation), one for each buffer sample that competes
 *   camel     nothing
 *   gss       nothing while it is empty; else as sfp__buffer_draw for all groups together; then, full and the batch's similarity
 *             negative, min(b, m) doubles (slots) and as many doubles (whether to replace)
 *   ssd       every sixth batch, for each class of the batch with synthetic images, in order of appearance, one bounded draw
 *             for each image of an older class that is looked at, at most 10; then one for each sample that does not fit
 *   none      nothing */
sfp_status sfp__buffer_update(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                              sfp_error *err);

/* score[i] = <mean_embed of slot i, fingerprint> for the filled slots: O(m*D), no image is touched. */
void sfp__buffer_score(const sfp__buffer *b, const float *fingerprint, float *score /* (filled) */);

/* ------------------------------------------------ the pieces, pure functions */

/* pi_i = 1 - (1/r_i) / sum(1/r), rank 1 = most similar; ties by lower index, NaN last. order: space for n ints. */
void sfp__rank_probability(int n, const float *score, int *order, double *pi);

/* count <= n indices of n without replacement, one uniform in [0,1) each: the first whose running weight exceeds u * total
 * over what is left, in index order; when all weights left are zero they count as equal. Destroys `weight`. */
void sfp__weighted_draw(int n, double *weight, int count, const double *uniform, int *out);

/* How many are replaced: min(max(1, floor(b/2)), n_left, m, max(1, #{u_i * n_seen < m})), without the inner max for
 * SFP_NU_RESERVOIR. n_seen counts what was just stored. */
int sfp__buffer_nu(uint64_t n_seen, int m, int b, int n_left, const double *u_nu /* (n_left) */, sfp__nu_rule rule);

/* The two draws of nu: of the n_left scores of Q, and of the m slots. */
void sfp__buffer_pairs(int n_left, const float *score_left, int m, const float *score_slot, int nu,
                       const double *u_batch /* (nu) */, const double *u_buffer /* (nu) */, sfp__drop_rule drop,
                       int *iwork /* max(n_left,m) */, double *dwork /* max(n_left,m) */, int *retained /* into Q */,
                       int *replaced);

/* docs/method.md, section 7 with the random numbers given, the three above in a row: what `streamfp-verify buffer.json` checks.
 * For a buffer that holds min(n_seen, m). Arrays sized by the caller: u_* (b), retained and replaced (b). score_buffer holds the
 * slots as they are when Q is drawn, min(m, n_seen + stored) of them. */
typedef struct sfp__buffer_plan {
    int stored, nu;
} sfp__buffer_plan;
void sfp__buffer_decide(uint64_t n_seen, int m, int b, const float *score_batch, const float *score_buffer, const double *u_nu,
                        const double *u_batch, const double *u_buffer, sfp__drop_rule drop, sfp__nu_rule nu,
                        int *iwork /* max(b,m) */, double *dwork /* max(b,m) */, int *retained, int *replaced,
                        sfp__buffer_plan *out);

/* ------------------------------------------------------------ for the methods */

extern const sfp__buffer_method sfp__buffer_streamfp, sfp__buffer_none, sfp__buffer_er, sfp__buffer_aser, sfp__buffer_camel,
    sfp__buffer_gss, sfp__buffer_ssd;

/* Sample k of the batch into slot i: everything a slot holds. */
void sfp__buffer_put(sfp__buffer *b, int i, const sfp__buffer_batch *batch, int k);

/* Samples 0.. into the free slots while there are any, each adding 1 to n_seen; returns how many. */
int sfp__buffer_fill(sfp__buffer *b, const sfp__buffer_batch *batch);

/* For methods that decide before they change anything. Free slots that the batch is going to fill, and the samples then left: */
int sfp__buffer_fits(const sfp__buffer *b, const sfp__buffer_batch *batch);
/* Who is in slot p once it has, as buffer/model_ops.h numbers samples; and the label of a sample so numbered. */
int sfp__buffer_sample_at(const sfp__buffer *b, const sfp__buffer_batch *batch, int p);
int32_t sfp__buffer_label(const sfp__buffer *b, const sfp__buffer_batch *batch, int sample);
/* Does what was decided: fills free slots, then puts sample retained[i] into slot replaced[i] for i < nu, counts all of the batch
 * as seen, and tells. */
void sfp__buffer_commit(sfp__buffer *b, const sfp__buffer_batch *batch, int nu, sfp__buffer_change *change);

/* A reservoir's choice for a sample that finds no free slot, which is counted as seen: a slot, or -1. One bounded draw. */
int sfp__reservoir_slot(sfp__buffer *b, sfp__rng *rng);
/* Notes in retained and replaced that sample k goes to a slot. A later sample of the batch can push out an earlier one: only the
 * last is told. */
void sfp__buffer_record_replacement(sfp__buffer *b, int slot, int k, int *nu);

/* ------------------------------------------------------------------- gss score
 *
 * The numbers of gradient-based sample selection, without who computes gradients (buffer_gss.c; Aljundi et al. 2019). */

/* Groups of up to 10 slots, at most 20, all different slots: as many whole groups as `filled` slots give. */
enum { SFP_GSS_GROUPS = 20, SFP_GSS_GROUP = 10 };
int sfp__gss_group_size(int filled);
int sfp__gss_groups(int filled);

/* To unit length; zeros stay. */
void sfp__gss_unit(size_t n, float *g);

/* The largest cosine of g to one of the groups (groups, n) of unit length; 0 to one without length. Those that are not numbers do
 * not count, and when none is left it is 1: as like the others as can be. Sums in double. */
float sfp__gss_score(size_t n, int groups, const float *group, const float *g, sfp__thread_pool *threads /* or NULL */);

/* Weights by which slots are drawn: (s - min) / (max - min + 0.01), a score that is not finite counting as 1. */
void sfp__gss_weights(int n, const float *score, double *weight);

/* Probability that a slot's sample gives way to a new one: (s_slot + 1) / ((s_slot + 1) + (s_new + 1)); one half when both are
 * -1. */
double sfp__gss_replace(float slot, float fresh);

/* ----------------------------------------------------------------- knn shapley
 *
 * Shapley values of training points for a k-nearest-neighbour classifier, exactly and without trying subsets (Jia et al.,
 * "Efficient task-specific data valuation for nearest neighbor algorithms", VLDB 2019, Theorem 1).
 *
 * The game of one test point: a set S of training points is worth v(S) = 1/k * #{of the min(k, |S|) nearest in S, those with the
 * class of the test point}. The value of point i is the mean, over all orders in which the points can come, of what v grows by
 * when i comes; values sum to v(all points). */

/* Values (n) of points in order of their distance, nearest first; same[i]: has the class of the test point. O(n). */
void sfp__knn_shapley(int n, int k, const bool *same, double *value);

typedef struct sfp__shapley_game {
    int k, dim;
    const float *x;       /* (rows, D) */
    const int32_t *label; /* (rows) */
    int n;                /* rows 0..n-1 are the training points */
    int tests;
    const int *test; /* (tests) rows of the test points; a training point may be one */
    /* workspace */
    int *finite, *order; /* (n) */
    float *near;         /* (n) */
    bool *same;          /* (n) */
    double *value;       /* (n) */
} sfp__shapley_game;

/* sum[i], i < n: the sum of point i's values over all test points, Euclidean distance, ties by lower index. Rows with a number
 * that is not finite play in no game; a training point among them is worth -INFINITY. tests * (n*D + n*log(n)) operations. */
void sfp__knn_shapley_sum(const sfp__shapley_game *g, double *sum);

#endif
