/* What the files of `learner` share about a learner. */
#ifndef SFP_LEARNER_LEARNER_INTERNAL_H
#define SFP_LEARNER_LEARNER_INTERNAL_H

#include "buffer/model_ops.h"
#include "learner/features.h"
#include "learner/learner.h"
#include "learner/snapshot.h"
#include "learner/trainer.h"

enum { SFP_LEARNER_MAX_CLASSES = 1 << 20 };

/* Page-Hinkley on a series (docs/method.md, section 9): fires when the mean has moved,
 * in either direction, by more than chance and its own spread explain.
 *
 * The series is standardised by its running mean and deviation, so one pair of
 * numbers serves every backbone: `slack` is the shift, in deviations, that is
 * still no drift, `limit` the accumulated excess that fires. After firing it
 * starts anew. */

typedef struct sfp__drift_detector {
    double count, mean, m2; /* running moments (Welford) */
    double up, up_min;      /* accumulated excess upwards and its least value */
    double down, down_max;  /* downwards and its greatest */
} sfp__drift_detector;

/* Takes the next value; true: drift. */
bool sfp__drift_next(sfp__drift_detector *d, double value);

/* One sample of a step: of the coreset or of the buffer. */
typedef struct sfp__item {
    int index; /* into the batch, or a slot; -1: an image that is neither (model_ops.c) */
    bool replay;
    int row; /* which of those asked for (model_ops.c) */
} sfp__item;

/* What a learner knows of its classes; one function gives all of it capacity (sfp__learner_reserve_classes). */
typedef struct sfp__class_table {
    int count; /* a method's; fingerprints have theirs in the classifier */
    int learned; /* a closed-form head's, when the last timestamp had ended: what predictors see */
    int capacity;
    void *block;            /* of what follows, and of step.expert and step.mixed */
    char **names;           /* (capacity) NULL where there is none */
    uint64_t names_version; /* changes with them; from 1 */
    uint8_t *seen;          /* (capacity) were they ever offered */
    uint8_t *allowed;       /* (capacity) compete in a masked loss */
} sfp__class_table;

/* The batch at hand and what selection makes of it; b = options.batch. Filled by each timestamp, good until the next. */
typedef struct sfp__batch_work {
    void *block;           /* of what follows, and of step.xs */
    float *x;              /* (b, 3, S, S) normalised */
    float *query;          /* (b, D) */
    bool *has_query;       /* (b) */
    int32_t *label;        /* (b) */
    uint64_t *id;          /* (b) */
    const uint8_t **image; /* (b) the caller's, during the timestamp */
    size_t *image_size;    /* (b) */
    /* with fingerprints, in the block of sfp__step_work */
    float *mean_embed;          /* (b, D) */
    float *fingerprint;         /* (D) */
    float *score;               /* (b) as selection saw it */
    float *score_after;         /* (b) */
    int *coreset;               /* (b) */
    float *select_weight;       /* (b) */
    sfp__select_batch selected; /* as selection saw it */
} sfp__batch_work;

/* One pass over samples of the batch and of the buffer: of a training step, and between steps of what selectors and buffer
 * methods ask (model_ops.c); n = `capacity` below. Nothing in it lasts from one pass to the next but replay, replay_count and
 * loss, which the timestamp reports. */
typedef struct sfp__step_work {
    void *block;
    const float **xs;           /* (n) */
    float *rx;                  /* (replay, 3, S, S) replayed images, normalised */
    sfp__item *items;           /* (n) in the order of the pass: unknown queries first */
    int32_t *label;             /* (n) */
    float *weight;              /* (n) */
    bool *masked;               /* (n) */
    bool *replayed;             /* (n) */
    float *query;               /* (n, D) */
    float *sample_loss;         /* (2, b) of the coreset, by index and in order of choice */
    int *replay, *replay_count; /* (steps, replay) (steps) */
    double *loss;               /* (steps) */
    /* by class, so they grow with the classes */
    float *member[SFP_HEAD_MEMBERS]; /* (b, capacity) log-probabilities: mix all, a method [0] */
    float *mixed;                    /* (capacity) of one sample, mix only */
} sfp__step_work;

/* Lives from create to free; owns all it points to but vit and threads. */
struct sfp__learner {
    sfp__learner_options opt;
    sfp__vit *vit;
    sfp__thread_pool *threads;
    const sfp__selector *selector; /* NULL with a method, and so are trainer, fp and buffer */
    /* what a checkpoint holds */
    sfp__trainer *trainer;
    sfp__fp *fp;                        /* the trainer's */
    void *select_state;                 /* of a selector that learns, else NULL */
    sfp__buffer *buffer;                /* NULL: none */
    sfp__head *heads[SFP_HEAD_MEMBERS]; /* mix: [1] slda, [2] ranpac, [0] is the trainer's own and stays NULL; a method: [0] */
    sfp__mix mix;
    sfp__rng select_rng, replay_rng, buffer_rng;
    sfp__drift_detector detector;
    sfp__learner_counts counts;
    struct {
        bool no_slack;
        int coreset, replay, steps; /* 0: none */
    } limits;                       /* what a controller said last */
    sfp__class_table classes;
    /* A closed-form head alone is not copied: predictors of other threads read it under this lock, and so does who changes it. */
    pthread_mutex_t head_lock;
    /* what is made of it */
    sfp__snapshots snapshots;
    sfp__backed_file checkpoint; /* the last one that was written or read */
    /* sizes */
    int D, S;
    size_t rgb_bytes, pixels; /* bytes of an image, floats of an input */
    int most;                 /* samples a step */
    int capacity;             /* in a step or a batch, the larger: how much arrays of samples hold */
    /* workspace */
    sfp__vit_plan *plan;              /* a method's, for its queries */
    sfp__method_inputs method_inputs; /* what the selector asks for */
    sfp__batch_work batch;
    sfp__step_work step;
    sfp__arena select_arena;
    sfp__model_ops model;            /* what the buffer's method may ask for */
    sfp__method_inputs model_inputs; /* features that it asks for */
    sfp__train_batch model_batch;    /* of the question under way */
    float *model_x;                  /* (SFP_MODEL_OPS_SLOTS, 3, S, S) images of slots, normalised; NULL: it asks for nothing */
    sfp__arena pixels_arena;         /* of sfp__model_ops_pixels */
};

/* Arrays by class for so many; changes nothing else. */
sfp_status sfp__learner_reserve_classes(sfp__learner *l, int classes, sfp_error *err);
/* ... and as many rows of the classifier; new ones start at random. On failure there are as many as before. */
sfp_status sfp__learner_add_classes(sfp__learner *l, int classes, sfp_error *err);

/* Kinds of the mix's heads; [0] NULL: the trainer's own. */
extern const char *const sfp__learner_members[SFP_HEAD_MEMBERS];

/* New heads of the mix, or the method's; on failure those made so far are the caller's to free. */
sfp_status sfp__learner_make_heads(const sfp__learner *l, sfp__head *heads[SFP_HEAD_MEMBERS], sfp_error *err);

/* model_ops.c: the image of a slot as the network's input (3, S, S); items[at], of the batch or a slot, into the arrays of a
 * step, all but its weight (scratch: for the image of a slot); whether the query of a sample need not be computed; and those that
 * a pass has computed, the first `unknown` of step_query, back to where items[] come from. */
sfp_status sfp__learner_slot_input(const sfp__learner *l, const sfp__slot *slot, float *out, sfp_error *err);
sfp_status sfp__learner_fill_item(sfp__learner *l, int at, float *scratch, sfp_error *err);
bool sfp__learner_query_known(const sfp__learner *l, const sfp__item *item);
void sfp__learner_keep_queries(sfp__learner *l, int unknown);
/* The n samples in the arrays of a step, the first `queries` of them with queries to compute. */
sfp__train_batch sfp__learner_batch(const sfp__learner *l, int n, int queries);

/* select/select.h's gradients of samples of the batch, while it is selected from: the loss as a step has it, rows that learn
 * one parameter after another. */
size_t sfp__learner_gradient_length(const sfp__learner *l);
sfp_status sfp__learner_gradient(void *learner, int n, const int *index, float *out, sfp_error *err);

/* What the buffer method declared; 0: no buffer. */
unsigned sfp__learner_buffer_needs(const sfp__learner *l);
enum { SFP_MODEL_OPS_SLOTS = 16 }; /* images of slots in memory at a time */
sfp_status sfp__learner_model_ops_init(sfp__learner *l, sfp_error *err);
void sfp__learner_model_ops_done(sfp__learner *l);
/* For an update of the buffer; NULL: its method asks for nothing. */
const sfp__model_ops *sfp__learner_model_ops(sfp__learner *l);

/* Makes the present state what predictors see. */
sfp_status sfp__learner_publish(sfp__learner *l, sfp_error *err);

#endif
