/* From files to a finished run: stream, clock, learner, evaluation, outputs.
 *
 * A live stream (a watched folder, standard input, synthetic:0) has no tasks; its classes appear. It ends when its source does, or
 * when it is stopped, and both are a normal end. When its source fails, so does the run: what was learned is kept, not finished,
 * to go on from; when nothing came, folder and registry are as they were. Images without a label are predicted
 * (DIR/predictions.jsonl, a line each) and wait for one in a bounded set. --resume goes on with the learner as it was, also after
 * an end: a watched folder gives what was not learned from, dropped or given up yet (the last 65,536 files are known one by one,
 * older ones by the time they changed); images that waited come again, keep their id and are not predicted again. Standard input
 * cannot give them again: they are given up. */
#ifndef SFP_RUN_RUN_H
#define SFP_RUN_RUN_H

#include "base/settings.h"
#include "learner/learner.h"
#include "results/result.h"
#include "run/clock.h"

#include <signal.h>

typedef struct sfp__run_options {
    sfp__vit *vit;
    sfp__thread_pool *pool;
    const char *data, *test; /* KIND:PATH; test NULL: the data set's own test part where it has one, else none */
    const char *tasks;       /* NULL: the data set's own, else free; live streams: free */
    int order;
    const char *method; /* NULL: the learner; ncm, slda, ranpac */
    sfp__learner_options learner;
    bool drop_short; /* a short last batch of a task is left out */
    sfp__clock_kind clock;
    double rate;       /* lambda; 0: none */
    int calibrate;     /* paper: batches measured after 3 */
    const char *costs; /* file of seconds a timestamp, one a line, used in turn; NULL: measured */
    int queue;
    sfp__queue_policy policy;
    bool triage, controller;
    int pending;            /* live: images that wait for their label at most */
    int eval_every;         /* timestamps between evaluations; 0: after each task */
    int64_t eval_limit;     /* test samples a task; 0: all */
    const char *out;        /* directory; NULL: no files */
    const char *init_state; /* state.safetensors to begin with; NULL: fresh */
    bool resume;
    const sfp__args *given;    /* the settings as they were given: noted in the result, compared when a run goes on; NULL: none */
    double checkpoint_seconds; /* of training between checkpoints; live, and on the real clock: on the wall */
} sfp__run_options;

sfp__run_options sfp__run_options_defaults(sfp__vit *vit, sfp__thread_pool *pool);

typedef struct sfp__run_progress {
    int task, tasks;
    const char *task_name;
    uint64_t from, offered, total;             /* samples: before this call, so far, in all (0: not known) */
    double rate, lag, loss, accuracy, seconds; /* samples/s; NAN: not known */
} sfp__run_progress;

/* What the stream turned out to be. */
typedef struct sfp__run_stream {
    bool live, tasks; /* has no end that is known; has boundaries that are */
} sfp__run_stream;

typedef struct sfp__run_hooks {
    void *ctx;
    void (*progress)(void *ctx, const sfp__run_progress *p);
    /* An evaluation after task `task` (from 0) goes on: `done` of `total` images. */
    void (*evaluating)(void *ctx, int task, uint64_t done, uint64_t total);
    void (*info)(void *ctx, const char *message); /* notes and warnings */
    const volatile sig_atomic_t *stop;            /* not 0: finish the step, give up an evaluation, write a checkpoint, return */
} sfp__run_hooks;

/* Refuses (SFP_EINVAL) settings that were given and would mean nothing; what hangs on the stream passes while it is not open
 * (NULL). A run that does not go on asks for itself once it is. */
sfp_status sfp__run_check_no_effect(const sfp__run_options *opt, const sfp__run_stream *stream, sfp_error *err);

/* result is initialised here; the caller ends it with sfp__result_done also after a failure (when result->tasks > 0).
 * result->finished tells whether the stream ended or it was stopped. */
sfp_status sfp__run(const sfp__run_options *opt, const sfp__run_hooks *hooks, sfp_result *result, sfp_error *err);

#endif
