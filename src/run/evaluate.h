/* Accuracy on the test sets: images are decoded once where they fit in memory, queries are computed once (and a head alone,
 * which asks for nothing else, then needs no image). */
#ifndef SFP_RUN_EVALUATE_H
#define SFP_RUN_EVALUATE_H

#include "base/mem.h"
#include "io/image/image.h"
#include "learner/predictor.h"
#include "stream/source.h"
#include "stream/tasks.h"

#include <stdatomic.h>

#define SFP_EVALUATOR_MEMORY ((size_t)1 << 30)
/* No failure: the run was stopped within an evaluation. TRY carries it out of the loop (run.c); nothing was noted. */
#define SFP__STOPPED ((sfp_status)127)

/* Told every few images how many of this run are done. */
typedef void (*sfp__evaluator_fn)(void *ctx, uint64_t done);

typedef struct sfp__evaluator {
    const sfp_source *test;
    const sfp__tasks *tasks;
    int size, dim;
    sfp__resize resize;
    /* the caller's to set */
    sfp__evaluator_fn on_progress; /* NULL: no callback */
    void *progress_ctx;
    const atomic_int *stop; /* not 0 ends a run between two batches; NULL: never */
    /* what is kept of the images */
    size_t bytes;       /* of an image */
    void *block;        /* of the arrays below, but for at and confusion */
    int64_t total, *at; /* (tasks + 1): first sample of a task */
    uint8_t *rgb;       /* (total) images, or as many as are asked at once when they do not fit */
    bool all;
    uint8_t *state;                  /* (total): 0 not read yet, 1 read (and kept when all), 2 broken */
    float *query;                    /* (total, D) */
    bool *has_query;                 /* (total) */
    uint64_t skipped;                /* images that cannot be read */
    char first_error[SFP_ERROR_MAX]; /* why the first of them was skipped, with its name; "": none was */
    /* of the last run */
    uint64_t done;
    uint64_t *answered;      /* (tasks) images answered */
    double *member_accuracy; /* (SFP_HEAD_MEMBERS, tasks) accuracy of each member; NAN: not mixed, or none answered */
    double *accuracy;        /* (tasks) of the run at hand, the caller's when it has ended */
    uint64_t *confusion;     /* (confusion_capacity) the same */
    size_t confusion_capacity;
} sfp__evaluator;

/* memory: decoded images are kept when all together take no more bytes. */
sfp_status sfp__evaluator_create(const sfp_source *test, const sfp__tasks *tasks, int size, sfp__resize resize, int dim,
                                 size_t memory, sfp__evaluator **out, sfp_error *err);
void sfp__evaluator_free(sfp__evaluator *e);
DEFINE_OWNED_PTR(sfp__evaluator, sfp__evaluator_free)

/* Accuracy on tasks [0, upto] into accuracy (tasks); confusion (classes, classes) is written over when not NULL; both stay as
 * they are when it fails or is stopped (SFP__STOPPED). Images that cannot be read are left out and counted. */
sfp_status sfp__evaluator_run(sfp__evaluator *e, sfp__predictor *p, int upto, double *accuracy, int classes, uint64_t *confusion,
                              sfp_error *err);
uint64_t sfp__evaluator_images(const sfp__evaluator *e, int upto); /* of tasks [0, upto], those that cannot be read too */

#endif
