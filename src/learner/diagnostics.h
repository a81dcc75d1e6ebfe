/* Measurements of the claims of the paper's theory while a learner runs (docs/method.md, section 10): the cost of coresets, the
 * difference between buffer and stream, and the correlation of the gradients of tasks.
 *
 * They do not change what is learned: they have their own workspace and random numbers, and their time is not part of the
 * processing time. Everything that they accumulate is part of the learner's checkpoint. */
#ifndef SFP_LEARNER_DIAGNOSTICS_H
#define SFP_LEARNER_DIAGNOSTICS_H

#include "learner/features.h"
#include "learner/learner.h"

enum {
    SFP__DIAGNOSTICS_IMAGES = 64, /* maximum number of images per task whose gradients are computed */
    SFP__DIAGNOSTICS_TASKS = 20   /* maximum number of tasks that are compared: the first ones */
};

/* The ratios cost(coreset) / cost(batch) of all timestamps. Members are doubles, because a checkpoint has them as one tensor. */
typedef struct sfp__ratio_moments {
    double count, mean, m2; /* running moments (Welford) */
    double within;          /* number of ratios with |ratio - 1| <= c^-1/2, for a coreset of c samples */
} sfp__ratio_moments;

/* Adds the ratio of the mean value of the coreset (c indices) to the mean value of the batch (b values). A ratio that is not
 * finite is not counted. */
void sfp__ratio_add(sfp__ratio_moments *m, int b, const double *value, int c, const int *coreset);

/* Mean and scatter matrix of the mean embeddings of all samples so far. */
typedef struct sfp__stream_moments {
    int dim; /* D */
    double count;
    double *mean;    /* (D) */
    double *scatter; /* (D, D) sum of (E - mean) (E - mean)^t */
} sfp__stream_moments;

/* Adds a mean embedding (D); delta: scratch memory of D numbers. */
void sfp__stream_add(sfp__stream_moments *s, const float *embed, double *delta);
/* Returns the standard deviation of the score <E, fingerprint> over the mean embeddings E of the stream; NAN: no sample yet. */
double sfp__stream_deviation(const sfp__stream_moments *s, const float *fingerprint);
/* Returns |mean score of the filled slots - mean score of the stream|; NAN: one of them has no sample. */
double sfp__stream_mmd(const sfp__stream_moments *s, const sfp__buffer *buffer, const float *fingerprint);

/* Returns the mean absolute value of the elements above the diagonal of a symmetric matrix (n, n); NAN elements are ignored. NAN:
 * there is none. */
double sfp__mean_off_diagonal(int n, const double *cosine);

typedef struct sfp__diagnostics {
    struct {
        sfp__ratio_moments cost, cost_random, angle, angle_random;
        double mmd_sum, mmd_count; /* over the timestamps after which the stream has more samples than the buffer */
        double stream_count;
    } sums;
    sfp__stream_moments stream;
    /* A uniform sample of the images of each task. */
    int tasks;      /* number of tasks that are compared; 0: the stream has no known tasks */
    int64_t *seen;  /* (tasks) samples of the task so far */
    int32_t *label; /* (tasks, SFP__DIAGNOSTICS_IMAGES) */
    uint8_t *rgb;   /* (tasks, SFP__DIAGNOSTICS_IMAGES, S, S, 3) */
    size_t rgb_bytes;
    /* Workspace. */
    sfp__method_inputs inputs; /* logits of the batch */
    int frozen_end;            /* frozen components at the last timestamp; -1: none was processed */
    float *query;              /* (b, D) */
    double *loss, *angle;      /* (b) */
    int *random;               /* (b) */
    double *delta;             /* (D) */
    float *fingerprint;        /* (D) */
    void *block;               /* memory of all arrays above */
} sfp__diagnostics;

void sfp__diagnostics_free(sfp__diagnostics *d);
DEFINE_OWNED_PTR(sfp__diagnostics, sfp__diagnostics_free)
/* The tensors that a checkpoint contains (sfp__state_tensors_fn). */
int sfp__diagnostics_tensors(void *diagnostics, int index, sfp__state_tensor *out);

/* Computes the losses of the batch with the present parameters: before the first step, after the coreset was chosen. */
sfp_status sfp__diagnostics_measure(sfp__learner *l, int b, sfp_error *err);
/* Adds the timestamp *t, after its buffer update. Cannot fail. */
void sfp__diagnostics_add(sfp__learner *l, const sfp__sample *samples, const sfp__timestamp_details *t);

/* Computes the cosines (tasks, tasks) between the mean gradients of the tasks' images, with respect to the components of all
 * layers and to the linear head. The rows and columns of a task without images are NAN. */
sfp_status sfp__gradient_cosines(const sfp__learner *l, const sfp__diagnostics *d, double *fingerprints, double *head,
                                 sfp_error *err);

/* ------------------------------------------------------------- for users of a learner */

typedef struct sfp__coreset_diagnosis {
    double ratio;            /* mean over timestamps of cost(coreset) / cost(batch) */
    double deviation;        /* standard deviation of the ratio */
    double within;           /* share of timestamps with |ratio - 1| <= c^-1/2 */
    double random_deviation; /* standard deviation of the ratio for random coresets of the same size */
    double random_within;
} sfp__coreset_diagnosis;

/* NAN: not measured. */
typedef struct sfp__diagnosis {
    sfp__coreset_diagnosis cost, angle; /* the cost of a sample is its loss, or the angle arccos S(x) */
    double buffer_mmd, buffer_mmd_mean; /* at the end; mean over timestamps */
    double stream_score_deviation;
    double gradient_cosine_fingerprints, gradient_cosine_head; /* mean absolute cosine of two tasks */
} sfp__diagnosis;

/* Starts the measurements, before the first timestamp. Not for closed-form heads. */
sfp_status sfp__learner_start_diagnostics(sfp__learner *l, sfp_error *err);
/* Returns the number of tasks whose gradients are compared. */
int sfp__learner_diagnosed_tasks(const sfp__learner *l);
/* Computes the results so far. fingerprints, head: receive the cosines (n, n) of n = sfp__learner_diagnosed_tasks tasks. */
sfp_status sfp__learner_diagnose(sfp__learner *l, sfp__diagnosis *out, double *fingerprints, double *head, sfp_error *err);

#endif
