/* Accuracy on the test sets: pictures are decoded once where they fit in memory, queries are computed once (and a head alone,
 * which asks for nothing else, then needs no picture). */
#ifndef SFP_RUN_EVALUATE_H
#define SFP_RUN_EVALUATE_H

#include "learner/predictor.h"
#include "stream/source.h"
#include "stream/tasks.h"

#include <signal.h>

typedef struct sfp_evaluator sfp_evaluator;

#define SFP_EVALUATOR_MEMORY ((size_t)1 << 30)

/* memory: decoded pictures are kept when all together take no more bytes. */
sfp_status sfp__evaluator_create(const sfp_source *test, const sfp_tasks *tasks, int size, sfp_resize resize, int dim,
                                 size_t memory, sfp_evaluator **out, sfp_error *err);
void sfp__evaluator_free(sfp_evaluator *e);

/* Accuracy on tasks [0, upto] into accuracy (tasks); confusion (classes, classes) is written over when not NULL; both stay as
 * they are when it fails or is given up. Pictures that cannot be read are left out and counted. */
sfp_status sfp__evaluator_run(sfp_evaluator *e, sfp_predictor *p, int upto, double *accuracy, int classes, uint64_t *confusion,
                              sfp_error *err);
/* Of expert e of a mixed head alone on task t in the last run; NAN: the head is not mixed, or no picture was answered. */
double sfp__evaluator_alone(const sfp_evaluator *e, int expert, int task);
/* *stop not 0 ends a run between two batches; given_up: that happened to the last one. */
void sfp__evaluator_stop(sfp_evaluator *e, const volatile sig_atomic_t *stop);
bool sfp__evaluator_given_up(const sfp_evaluator *e);
uint64_t sfp__evaluator_pictures(const sfp_evaluator *e, int upto); /* of tasks [0, upto], those that cannot be read too */
uint64_t sfp__evaluator_skipped(const sfp_evaluator *e);
/* Why the first of them was skipped, with its name; "": none was. */
const char *sfp__evaluator_first_error(const sfp_evaluator *e);
uint64_t sfp__evaluator_asked(const sfp_evaluator *e, int task); /* pictures of a task that the last run answered */

/* Told every few pictures how many of this run are done. */
typedef void (*sfp_evaluator_fn)(void *ctx, uint64_t done);
void sfp__evaluator_tell(sfp_evaluator *e, sfp_evaluator_fn fn, void *ctx);

#endif
