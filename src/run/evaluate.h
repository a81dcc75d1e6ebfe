/* Accuracy on the test sets. Images are decoded once if they fit into memory. Queries are computed once; after that, a closed-form head needs no
 * images. */
#ifndef SFP_RUN_EVALUATE_H
#define SFP_RUN_EVALUATE_H

#include "base/mem.h"
#include "io/image/image.h"
#include "learner/predictor.h"
#include "results/result.h"
#include "stream/source.h"
#include "stream/tasks.h"

#include <stdatomic.h>

#define SFP__EVALUATOR_MEMORY ((size_t)1 << 30)
/* A status that is not a failure: the run was stopped during an evaluation, and nothing was recorded. TRY returns it up to run.c. */
#define SFP__STOPPED ((sfp_status)127)

/* Called every few images with the number of images that are done. */
typedef void (*sfp__evaluator_fn)(void *ctx, uint64_t done);

typedef struct sfp__evaluator {
    const sfp_source *test;
    const sfp__tasks *tasks;
    int size, dim;
    sfp__resize resize;
    /* set by the caller */
    sfp__evaluator_fn on_progress; /* NULL: no callback */
    void *progress_ctx;
    uint64_t max_skipped;   /* if more images are unreadable, the evaluation fails */
    const atomic_int *stop; /* not 0: the evaluation is cancelled; NULL: never */
    /* the images */
    size_t bytes;         /* per image */
    void *block;          /* memory of the arrays below, except at and confusion */
    int64_t total, *at;   /* (tasks + 1) first image of each task */
    uint8_t *rgb;         /* (total) images; if they do not fit, the images of one prediction */
    bool all;             /* all images fit */
    uint8_t *state;       /* (total) 0: not read yet, 1: read, 2: cannot be read */
    float *query;         /* (total, D) */
    bool *has_query;      /* (total) */
    sfp__skipped skipped; /* in all evaluations */
    /* of the last evaluation */
    uint64_t done;
    uint64_t *answered, *correct;    /* (tasks) images that were evaluated, and those of them with the right answer */
    double *accuracy;                /* (tasks) NAN: no image was evaluated */
    sfp__reliability calibration[2]; /* of all predictions; [1]: without the fitted scale of the head */
    int classes;                     /* side of the confusion matrix; 0: more than SFP__CONFUSION_MAX classes */
    uint64_t *confusion;             /* (classes, classes), row: true class */
    size_t confusion_capacity;
} sfp__evaluator;

/* memory: decoded images are kept if they take at most this number of bytes. */
sfp_status sfp__evaluator_create(const sfp_source *test, const sfp__tasks *tasks, int size, sfp__resize resize, int dim,
                                 size_t memory, sfp__evaluator **out, sfp_error *err);
void sfp__evaluator_free(sfp__evaluator *e);
DEFINE_OWNED_PTR(sfp__evaluator, sfp__evaluator_free)

/* Evaluates tasks [0, upto]; the labels are below `classes`. SFP__STOPPED: the evaluation was cancelled. Images that cannot be read are
 * skipped and counted, unless memory or the disk failed (SFP_ENOMEM, SFP_EIO). */
sfp_status sfp__evaluator_run(sfp__evaluator *e, sfp_predictor *p, int upto, int classes, sfp_error *err);
uint64_t sfp__evaluator_images(const sfp__evaluator *e, int upto); /* of tasks [0, upto], including unreadable ones */

#endif
