/* How well a saved state answers on a data set: classes are matched by name,
 * images of classes that the state does not know are counted and left out. */
#ifndef SFP_RUN_STATE_EVAL_H
#define SFP_RUN_STATE_EVAL_H

#include "base/thread_pool.h"
#include "model/vit.h"
#include "run/evaluate.h"

typedef struct sfp__state_eval_options {
    sfp__vit *vit;
    sfp__thread_pool *pool;
    const char *state;    /* state.safetensors */
    const char *data;     /* KIND:PATH */
    bool train_part;      /* of data sets that have both parts; else the test part */
    const char *tasks;    /* as sfp__tasks_create takes it, over the state's classes; NULL: the data set's domains or tasks */
    int64_t limit;        /* images a task; 0: all */
    const uint64_t *seed; /* of sources that draw their images; NULL: the state's */
    sfp__evaluator_fn progress;                                  /* may be NULL */
    void (*begin)(void *ctx, uint64_t images, const char *note); /* data and state are open; note: of the source, or NULL */
    void *ctx;
} sfp__state_eval_options;

typedef struct sfp__state_eval_class {
    char *name;
    uint64_t images;
} sfp__state_eval_class;

typedef struct sfp__state_eval {
    int tasks;
    char **task_names;
    double *accuracy;   /* (tasks): NAN where no image was answered */
    uint64_t *answered; /* (tasks) */
    int classes;
    char **class_names;              /* (classes) */
    uint64_t *confusion;             /* (classes, classes): row = truth; NULL with more than SFP_CONFUSION_MAX classes */
    uint64_t images, correct;        /* answered */
    double average;                  /* mean over the tasks that have images: result.json's average_accuracy */
    uint64_t skipped, unlabelled;    /* images that could not be read, that have no label */
    char first_error[SFP_ERROR_MAX]; /* of the skipped */
    int unknown_count;
    size_t unknown_capacity;
    sfp__state_eval_class *unknown; /* (unknown_count) classes that the state does not know or has not seen */
    uint64_t unknown_images;
    double seconds; /* decoding and answering */
} sfp__state_eval;

/* *out is the caller's to end with sfp__state_eval_done. */
sfp_status sfp__state_eval_run(const sfp__state_eval_options *opt, sfp__state_eval *out, sfp_error *err);
void sfp__state_eval_done(sfp__state_eval *e);

#endif
