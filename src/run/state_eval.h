/* The accuracy of a saved state on a dataset. Classes are matched by name; images of classes that the state has not learned are
 * counted and excluded. */
#ifndef SFP_RUN_STATE_EVAL_H
#define SFP_RUN_STATE_EVAL_H

#include "base/mem.h"
#include "base/thread_pool.h"
#include "model/vit.h"
#include "run/evaluate.h"

struct sfp_evaluation {
    int tasks, classes, unknown_count;        /* rows; classes: 0 without a confusion matrix */
    sfp_accuracy *task, *class_row, *unknown; /* unknown: classes that the state has not learned */
    size_t unknown_capacity;
    sfp__arena texts;    /* the names of the rows */
    uint64_t *confusion; /* (classes, classes), row: true class; NULL: more than SFP__CONFUSION_MAX classes */
    uint64_t images, correct;
    double average;                           /* mean over the tasks that have images: average_accuracy in result.json */
    double calibration, unscaled_calibration; /* expected calibration error; without the fitted scale of the head */
    sfp__skipped skipped;
    uint64_t unlabelled, unknown_images; /* images without a label; of unknown classes */
    double seconds;                      /* decoding and prediction */
};

/* The engine that evaluates. */
typedef struct sfp__evaluation_engine {
    sfp__vit *vit;
    sfp__thread_pool *pool;
    sfp_log_fn log; /* NULL: no callback */
    void *log_ctx;
} sfp__evaluation_engine;

/* Evaluates the state in the file `state`. All members of *opt must be set. Takes ownership of opt->source, also on failure; opt->log is not used. */
sfp_status sfp__state_eval(const sfp__evaluation_engine *engine, const char *state, sfp_evaluation_options *opt,
                           sfp_evaluation **out, sfp_error *err);
void sfp__state_eval_free(sfp_evaluation *e);
DEFINE_OWNED_PTR(sfp_evaluation, sfp__state_eval_free)

#endif
