/* The structures of the learner, shared by the files of this directory. */
#ifndef SFP_LEARNER_LEARNER_INTERNAL_H
#define SFP_LEARNER_LEARNER_INTERNAL_H

#include "buffer/model_ops.h"
#include "learner/diagnostics.h"
#include "learner/features.h"
#include "learner/learner.h"
#include "learner/snapshot.h"
#include "learner/trainer.h"

enum { SFP__LEARNER_MAX_CLASSES = 1 << 20 };

/* One sample of a step, from the coreset or from the buffer. */
typedef struct sfp__item {
    int index; /* index in the batch, or slot; -1: an image that is in neither (model_ops.c) */
    bool replay;
    int row; /* position in the arguments of a model callback (model_ops.c) */
} sfp__item;

/* The classes of a learner. sfp__learner_reserve_classes allocates all arrays together. */
typedef struct sfp__class_table {
    int count;   /* number of classes of a closed-form head; with fingerprints it is the number of rows of the linear head */
    int learned; /* number of classes of a closed-form head after the last timestamp, which predictors use */
    int capacity;
    void *block;            /* memory of the following arrays and of batch.head_scores */
    char **names;           /* (capacity) NULL: the class has no name */
    uint64_t names_version; /* changes whenever a name changes; starts at 1 */
    uint8_t *seen;          /* (capacity) 1: a sample of this class was offered */
    uint8_t *allowed;       /* (capacity) 1: the class competes in a masked loss */
} sfp__class_table;

/* The current batch and its selection; b = options.batch. Each timestamp fills it; it is valid until the next. */
typedef struct sfp__batch_work {
    void *block;           /* memory of the following arrays */
    float *x;              /* (b, 3, S, S) normalised */
    const float **xs;      /* (b) the rows of x; never changes */
    float *query;          /* (b, D) */
    bool *has_query;       /* (b) */
    float *tap;            /* (b, tap_dim) inputs of a closed-form head; with one tap the same array as `query` */
    uint64_t *key;         /* (b) digests of the images */
    int32_t *label;        /* (b) */
    uint64_t *id;          /* (b) */
    const uint8_t **image; /* (b) memory of the caller, valid during the timestamp */
    float *head_scores;    /* (b, capacity of classes) log-probabilities of a closed-form head, else NULL */
    /* The following are only used with fingerprints; their memory is the block of sfp__step_work. */
    float *mean_embed;          /* (b, D) */
    float *fingerprint;         /* (D) */
    float *score;               /* (b) scores that the selection used */
    float *score_after;         /* (b) */
    int *coreset;               /* (b) */
    float *select_weight;       /* (b) */
    sfp__select_batch selected; /* the inputs of the selector */
} sfp__batch_work;

/* The samples of the pass in progress (pass.c), over the batch and the buffer; n = `capacity` below. */
typedef struct sfp__pass_work {
    const float **xs; /* (n) */
    sfp__item *items; /* (n) in the order of the pass: samples with unknown queries first */
    int32_t *label;   /* (n) */
    float *weight;    /* (n) */
    bool *masked;     /* (n) */
    bool *replayed;   /* (n) */
    float *query;     /* (n, D) */
} sfp__pass_work;

/* The arrays of the steps of a timestamp; they are valid until the next timestamp. */
typedef struct sfp__step_work {
    void *block;                /* memory of the following arrays, of the pass, and of a part of the batch */
    float *rx;                  /* (replay, 3, S, S) replayed images, normalised */
    float *sample_loss;         /* (2, b) losses of the coreset, by index and in order of choice */
    int *replay, *replay_count; /* (steps, replay) (steps) */
    double *loss;               /* (steps) */
} sfp__step_work;

/* The model callbacks of the buffer method (model_ops.c); empty if it uses none. */
typedef struct sfp__model_work {
    sfp__model_ops ops;
    sfp__method_inputs inputs; /* features */
    sfp__train_batch batch;    /* of the callback in progress */
    float *x;                  /* (SFP__MODEL_OPS_SLOTS, 3, S, S) normalised images of slots */
    sfp__arena arena;          /* copy of the parameters during the `pixels` callback */
} sfp__model_work;

/* Owns everything it points to, except vit and threads. */
struct sfp__learner {
    sfp__learner_options opt;
    sfp__vit *vit;
    sfp__thread_pool *threads;
    const sfp__selector *selector; /* NULL with a method; then trainer, fp and buffer are NULL too */
    bool fixed;                    /* opened to predict from a state: has fp or a head, and nothing that only learning needs */
    /* Contents of a checkpoint. */
    sfp__trainer *trainer;
    sfp__fp *fp;         /* belongs to the trainer, if there is one */
    void *select_state;  /* state of a selector that learns, else NULL */
    sfp__buffer *buffer; /* NULL: none */
    sfp__head *head;     /* closed-form head of the method; NULL: fingerprints, whose linear head belongs to the trainer */
    sfp__rng select_rng, replay_rng, buffer_rng;
    sfp__learner_counts counts;
    sfp__class_table classes;
    sfp__diagnostics *diagnostics; /* NULL: off */
    /* A closed-form head is not copied into snapshots. Predictors on other threads read it under this lock, and the learner
     * changes it under this lock. */
    pthread_mutex_t head_lock;
    /* Derived from the state. */
    sfp__snapshots snapshots;
    sfp__backed_file checkpoint; /* the last checkpoint that was written or read */
    /* Sizes. */
    int D, S, taps, tap_dim;  /* tap_dim: sfp__learner_tap_dim */
    size_t rgb_bytes, pixels; /* bytes of an image, floats of an input */
    int max_step_samples;     /* maximum number of samples per step */
    int capacity;             /* maximum of max_step_samples and options.batch: the size of arrays of samples */
    /* Workspace. */
    sfp__vit_plan *plan;              /* query pass of a closed-form head; else NULL */
    sfp__method_inputs method_inputs; /* inputs of the selector */
    sfp__batch_work batch;
    sfp__pass_work pass;
    sfp__step_work step;
    sfp__arena select_arena;
    sfp__model_work model;
};

/* Creates a learner that cannot learn, for sfp__learner_open. */
sfp_status sfp__learner_create_fixed(sfp__vit *vit, sfp__thread_pool *threads, const sfp__learner_options *opt,
                                     sfp__learner **out, sfp_error *err);
/* Reserves memory for at least `classes` classes; changes nothing else. */
sfp_status sfp__learner_reserve_classes(sfp__learner *l, int classes, sfp_error *err);
/* Reserves memory and adds rows to the linear head up to `classes`; new rows are initialised at random. On failure the number of
 * rows is unchanged. */
sfp_status sfp__learner_add_classes(sfp__learner *l, int classes, sfp_error *err);

/* Creates an empty head of the method; NULL: fingerprints. */
sfp_status sfp__learner_make_head(const sfp__learner *l, sfp__head **out, sfp_error *err);

/* Returns the cross-entropy of a sample of the batch with logits z (classes): its term of the loss of a step. */
float sfp__learner_cross_entropy(const sfp__learner *l, const float *z, int label);

/* Writes the image of a slot as input of the network (3, S, S). This and the next five functions are in pass.c. */
void sfp__learner_slot_input(const sfp__learner *l, const sfp__slot *slot, float *out);
/* Copies items[at], a sample of the batch or of a slot, into the arrays of the pass, except its weight. scratch: memory for the
 * image of a slot. */
void sfp__learner_fill_item(sfp__learner *l, int at, float *scratch);
/* Returns whether the query of a sample does not need to be computed. */
bool sfp__learner_query_known(const sfp__learner *l, const sfp__item *item);
/* Stores the first `unknown` rows of pass.query, which a pass has computed, with the samples of items[]. */
void sfp__learner_keep_queries(sfp__learner *l, int unknown);
/* Computes the queries of the batch that are not known yet; uses the arrays of the pass. */
sfp_status sfp__learner_compute_queries(sfp__learner *l, int b, sfp_error *err);
/* Returns the first n samples in the arrays of the pass, of which the first `queries` have queries to compute. */
sfp__train_batch sfp__learner_batch(const sfp__learner *l, int n, int queries);

/* Scores the batch, activates components if its classes ask for it, and chooses the coreset (selection.c). */
sfp_status sfp__learner_select(sfp__learner *l, int b, bool new_class, sfp__timestamp_details *r, sfp_error *err);
/* Writes the similarity of each sample of the batch to the fingerprints to out (b). */
void sfp__learner_score(const sfp__learner *l, int b, float *out);

/* The gradients of select/select.h for samples of the batch, during selection: the loss is that of a step, and the trained rows
 * of all parameters are concatenated. */
size_t sfp__learner_gradient_length(const sfp__learner *l);
sfp_status sfp__learner_gradient(void *learner, int n, const int *index, float *out, sfp_error *err);

/* Returns the needs that the buffer method declares; 0: no buffer. */
unsigned sfp__learner_buffer_needs(const sfp__learner *l);
enum { SFP__MODEL_OPS_SLOTS = 16 }; /* maximum number of images of slots in memory */
sfp_status sfp__learner_model_ops_init(sfp__learner *l, sfp_error *err);
void sfp__learner_model_ops_done(sfp__learner *l);
/* Returns the model callbacks for a buffer update; NULL: the buffer method uses none. */
const sfp__model_ops *sfp__learner_model_ops(sfp__learner *l);

/* Returns the number of taps: that of the options, 0 of which means half of the blocks. */
static inline int sfp__learner_taps(const sfp__learner_options *o, const sfp__vit_config *vit)
{
    int half = vit->depth > 1 ? vit->depth / 2 : 1;
    return o->taps > 0 ? o->taps : half;
}

/* Returns the number of values of a sample's taps. */
static inline int sfp__learner_tap_dim(const sfp__learner_options *o, const sfp__vit_config *vit)
{
    return (o->tap_mean + sfp__learner_taps(o, vit)) * vit->dim;
}

/* Returns the options of a closed-form head that define the meaning of its values. */
sfp__head_options sfp__learner_head_options(const sfp__learner_options *o, const sfp__vit_config *vit, int classes);

/* Fails if the backbone does not have the blocks that the options need. */
sfp_status sfp__learner_check_taps(const sfp__learner_options *o, const sfp__vit_config *vit, sfp_error *err);

/* Loads a batch, and computes its queries, taps and keys; only with a method. Holds the head's lock only while it loads. */
sfp_status sfp__learner_query_batch(sfp__learner *l, int b, const sfp__sample *samples, sfp_error *err);
/* Fails if a sample of the stream cannot have this label. */
sfp_status sfp__learner_check_label(const sfp__learner *l, uint64_t id, int32_t label, sfp_error *err);
/* Replaces the sums of a method by those of a state or a checkpoint. */
sfp_status sfp__learner_load_sums(sfp__learner *l, const char *path, sfp_error *err);
/* Only with a method: marks the classes that have samples as seen, and no others. */
void sfp__learner_update_seen(sfp__learner *l);

/* Publishes the current state as a snapshot, if there are predictors on other threads (snapshot.c). */
sfp_status sfp__learner_publish(sfp__learner *l, sfp_error *err);
/* Publishes a snapshot if the current one is older than the last timestamp. For predictors that are only used between timestamps. */
sfp_status sfp__learner_publish_if_stale(sfp__learner *l, sfp_error *err);
/* Counts a predictor on another thread; for the first one, publishes a snapshot. */
sfp_status sfp__learner_add_predictor(sfp__learner *l, sfp_error *err);
void sfp__learner_remove_predictor(sfp__learner *l);

#endif
