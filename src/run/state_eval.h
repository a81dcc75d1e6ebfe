/* The accuracy of a saved state on a dataset. Classes are matched by name; images of classes that the state has not learned are
 * counted and excluded. */
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
    sfp_source *source;   /* used instead of `data`; owned by the evaluation from now on, also if it fails. NULL: none */
    bool train_part;      /* the training part of a dataset that has both; else the test part */
    const char *tasks;    /* as for sfp__tasks_create, over the classes of the state; NULL: the domains or tasks of the dataset */
    int64_t limit;        /* images per task; 0: all */
    const uint64_t *seed; /* for sources that draw their images; NULL: that of the state */
    sfp__evaluator_fn progress; /* NULL: no callback */
    /* Called when data and state are open. warning: of the source; NULL: none. NULL: no callback */
    void (*begin)(void *ctx, uint64_t images, const char *warning);
    void *ctx;
} sfp__state_eval_options;

typedef struct sfp__state_eval_class {
    char *name;
    uint64_t images;
} sfp__state_eval_class;

typedef struct sfp__state_eval {
    int tasks;
    char **task_names;
    double *accuracy;   /* (tasks); NAN: no image was evaluated */
    uint64_t *answered; /* (tasks) images that were evaluated */
    int classes;
    char **class_names;  /* (classes) */
    uint64_t *confusion; /* (classes, classes), row: true class; NULL: more than SFP_CONFUSION_MAX classes */
    uint64_t images, correct;
    double average;                           /* mean over the tasks that have images: average_accuracy in result.json */
    double calibration, unscaled_calibration; /* expected calibration error; without the fitted scale of the head */
    uint64_t skipped, unlabelled;             /* images that could not be read; images without a label */
    char first_error[SFP_ERROR_MAX];          /* why the first unreadable image was skipped; "": none was */
    int unknown_count;
    size_t unknown_capacity;
    sfp__state_eval_class *unknown; /* (unknown_count) classes that the state has not learned */
    uint64_t unknown_images;
    double seconds; /* decoding and prediction */
} sfp__state_eval;

/* Free *out with sfp__state_eval_done. */
sfp_status sfp__state_eval_run(const sfp__state_eval_options *opt, sfp__state_eval *out, sfp_error *err);
void sfp__state_eval_done(sfp__state_eval *e);

#endif
