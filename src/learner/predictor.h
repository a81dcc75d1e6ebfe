/* Prediction from any thread while the learner trains. A predictor must be used by one thread at a time. Each run uses one
 * consistent snapshot: of a learner, of a learner that was opened from a state, or of the backbone's own head. */
#ifndef SFP_LEARNER_PREDICTOR_H
#define SFP_LEARNER_PREDICTOR_H

#include "base/mem.h"
#include "learner/learner.h"
#include "learner/snapshot.h"

/* The last bit of a matrix product may depend on its number of rows, so the division of images into batches affects the result.
 * Runs evaluate in batches of sfp__predictor_batch images, and a saved state uses the same batch size. */
enum { SFP__PREDICT_BATCH_MIN = 20, SFP__PREDICT_BATCH_MAX = 64 };

/* The arrays of one pass, of which images with unknown queries are the first. */
typedef struct sfp__predictor_pass {
    int capacity; /* images; the size of the following arrays */
    void *block;  /* memory of the following arrays */
    float *x;     /* (capacity, 3, S, S) */
    const float **xs;
    const uint8_t **rgb;
    int *place;                        /* of each image in the run */
    int32_t *label;                    /* of samples that are left out */
    float *unknown;                    /* and their scores for unknown classes */
    float *query, *feature;            /* (capacity, D) */
    float *tap;                        /* (capacity, tap_dim); with one tap the same array as `query` */
    float *alpha, *norm, *square;      /* (capacity, pool) twice, (capacity, D) */
    float *prefix[SFP__FP_MAX_LAYERS]; /* (capacity, 2*rows*D) */
} sfp__predictor_pass;

/* The results of a run by image; they belong to the predictor and are valid until its next run. An image that was skipped has the
 * label -1; its row of scores is undefined. */
typedef struct sfp__predictions {
    uint64_t t;         /* number of timestamps of the snapshot */
    int classes;        /* of the snapshot */
    int32_t *label;     /* (n) the best class among those seen; -1: none was */
    float *probability; /* (n) of the label; NAN for -1 */
    /* NULL if they were not wanted: */
    float *unscaled; /* (n) probability without the fitted scale of a closed-form head; NAN: the head has no such scale */
    float *unknown;  /* (n) score for "none of the classes" (heads/novelty.h); NAN: the head has none, or too few samples */
    float *scores;   /* (n, classes) log-probabilities, -INFINITY for classes not seen; logits of the backbone's own head */
} sfp__predictions;

/* What a run computes in addition to labels and their probabilities. */
enum { SFP__WANT_UNSCALED = 1, SFP__WANT_UNKNOWN = 2, SFP__WANT_SCORES = 4 };

/* Queries that may be known, for example those of a test set. */
typedef struct sfp__known_queries {
    float *query; /* (n, query size) used where `known`; else computed and stored */
    bool *known;  /* (n) */
    /* NULL, or (n) the labels with which these samples were learned, all of them known: each is predicted by the head without it
     * (sfp__head_judge). */
    const int32_t *left_out;
} sfp__known_queries;

struct sfp_predictor {
    sfp__learner *learner; /* NULL: the backbone's own head answers */
    bool owns_learner;     /* it was opened from a state */
    bool owns_threads;
    bool on_demand; /* not counted in snapshots.predictors: publishes snapshots itself */
    sfp__vit *vit;
    sfp__thread_pool *threads;
    sfp__vit_memo *memo;     /* feature cache; NULL: none */
    sfp__vit_memo *own_memo; /* one that ends with the predictor; NULL: none */
    sfp__time_source time;   /* of own_memo */
    sfp__learner_options opt;
    sfp__head *head;               /* closed-form head of a method; else NULL */
    const sfp__snapshot *snapshot; /* of the current run or of the last refresh; NULL: none */
    sfp__snapshot *held;           /* the same snapshot, if it belongs to the learner and must be released */
    sfp__snapshot own;             /* classes and names of a closed-form head, which is not copied; or the backbone's own head */
    int max_batch, D, S;
    int rows;          /* of the prefix keys of a layer; 0: only query passes */
    int taps, tap_dim; /* K; number of values of a sample's taps */
    size_t pixels;     /* of an image: bytes of its pixels, floats of an input */
    sfp__vit_plan *plan;
    sfp__predictor_pass pass;
    double *work; /* (D) */
    /* Memory that grows with the classes or the number of images. */
    size_t logits_capacity, scores_capacity, image_capacity, query_capacity;
    float *logits;          /* (max_batch, classes) */
    void *images;           /* memory of `place` and of the arrays of `found` */
    int *place;             /* (n) places of the images that are not skipped */
    float *query;           /* (n, tap_dim) if the caller has no array for them: features of the backbone */
    sfp__predictions found; /* of the last run */
    int count;              /* images of the last run; -1: there is none */
    /* Images of any kind, which api/predictor.c converts. */
    int input_capacity;
    void *input_block;        /* memory of the following arrays */
    uint8_t *input;           /* (n, S, S, 3) */
    const uint8_t **readable; /* (n) into `input`; NULL: the image could not be read */
    sfp_error *error;         /* (n) why not */
};

/* `threads` is the thread pool of the predictor; it must not be that of the learner if both run at the same time. max_batch is
 * the maximum number of images per pass, 0: the same as in runs; larger requests are divided. The learner must outlive the
 * predictor. Creating and freeing a predictor must not overlap with calls on the learner. A predictor of a method reads the head
 * itself, under its lock. */
sfp_status sfp__predictor_create(sfp__learner *l, sfp__thread_pool *threads, int max_batch, sfp_predictor **out, sfp_error *err);
/* Creates a predictor of a saved state (state.h): fingerprints or a closed-form head. max_batch 0: the same as in the run that wrote
 * the state. */
sfp_status sfp__predictor_open(sfp__vit *vit, sfp__thread_pool *threads, const char *path, int max_batch, sfp_predictor **out,
                               sfp_error *err);
/* Loads the sums of such a predictor from a state or a checkpoint of the same run, so that samples can be left out. */
sfp_status sfp__predictor_load_sums(sfp_predictor *p, const char *path, sfp_error *err);
/* Creates a predictor of the backbone's own head, with the preprocessing and the taps of these options. Without such a head it has
 * features only. */
sfp_status sfp__predictor_of_backbone(sfp__vit *vit, sfp__thread_pool *threads, const sfp__learner_options *opt, int max_batch,
                                      sfp_predictor **out, sfp_error *err);
void sfp__predictor_free(sfp_predictor *p);
DEFINE_OWNED_PTR(sfp_predictor, sfp__predictor_free)

/* Declares that the calls of this predictor never overlap with calls on the learner. Snapshots are then published when the
 * predictor needs one, not after every timestamp, and are released at the end of a run. */
void sfp__predictor_on_demand(sfp_predictor *p);
/* Sets the feature cache, which must outlive the predictor; NULL: none, as at the start. */
void sfp__predictor_set_memo(sfp_predictor *p, sfp__vit_memo *memo);

/* Obtains the newest snapshot, which the predictor keeps until the next refresh or run. */
sfp_status sfp__predictor_refresh(sfp_predictor *p, sfp_error *err);

/* Predicts n images (S, S, 3). rgb: NULL for an image that is skipped, or whose query is known and sufficient
 * (sfp__predictor_needs_queries_only). known: NULL: no query is known. wants: SFP__WANT_*. */
sfp_status sfp__predictor_run(sfp_predictor *p, int n, const uint8_t *const *rgb, const sfp__known_queries *known, unsigned wants,
                              sfp__predictions *out, sfp_error *err);

/* For callers without images at the input size: allocates `input`, `error` and `readable` for n images. */
sfp_status sfp__predictor_reserve_input(sfp_predictor *p, int n, sfp_error *err);

/* Classes of the learner; these must not be called while the learner trains. */
int sfp__predictor_classes(const sfp_predictor *p);
const char *sfp__predictor_class_name(const sfp_predictor *p, int label); /* NULL: the class has no name */
bool sfp__predictor_seen(const sfp_predictor *p, int label);

/* Returns the best number of images per call; more images increase the latency, not the throughput. */
int sfp__predictor_batch(const sfp_predictor *p);
/* Returns true for a closed-form head: an image with a known query need not be given. */
bool sfp__predictor_needs_queries_only(const sfp_predictor *p);

/* SFP_EINVAL: a number of x (n, width) is not finite, so that it cannot be ranked. logs: they are logarithms, and -INFINITY is the
 * probability 0. */
sfp_status sfp__check_scores(int n, int width, const float *x, bool logs, sfp_error *err);

#endif
