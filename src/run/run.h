/* A run: stream, clock, learner, evaluation and output files, as an object that advances one delivery at a time.
 *
 *     sfp__run_open(&options, &hooks, &result, &run, err);    checks everything; changes nothing in the directory
 *     do
 *         sfp__run_step(run, &more, err);                     at most one timestamp
 *     while (more);
 *     sfp__run_close(run);
 *
 * A live stream (a watched directory, standard input, synthetic:0) has no tasks; its classes are added when they first appear. It
 * ends when its source ends or when the run is stopped; both are a normal end. If its source fails, the run fails: the learned
 * state is kept as that of an unfinished run, which resume continues. If no data had arrived, directory and registry are
 * unchanged.
 *
 * An unlabelled image is predicted (one line of DIR/predictions.jsonl) and waits for its label in the label queue, which has a
 * capacity. A run that resumes continues with the learner as it was, also after a normal end. A watched directory then delivers
 * only images that were not trained on, dropped or expired: the last 65,536 files are known one by one, older ones by their time
 * of change. Images of the label queue are delivered again, keep their id and are not predicted again. Standard input cannot
 * deliver them again: they expire.
 *
 * During a live run, the directory contains a state, a result (not finished) and a report, which are written with checkpoints. A run on a dataset
 * writes them only at its end: there, a result means that the run is complete. */
#ifndef SFP_RUN_RUN_H
#define SFP_RUN_RUN_H

#include "base/mem.h"
#include "base/settings.h"
#include "learner/learner.h"
#include "results/result.h"
#include "run/clock.h"
#include "stream/tasks.h"

#include <stdatomic.h>

/* Which samples are processed if more arrive than there is time for (allocate.c). */
typedef enum sfp__allocate {
    SFP__ALLOCATE_FIXED,   /* whole batches, as the clock drops them */
    SFP__ALLOCATE_ADAPTIVE /* samples chosen among all that arrived */
} sfp__allocate;

typedef struct sfp__run_options {
    sfp__vit *vit;
    sfp__thread_pool *pool;
    const char *data, *test;          /* KIND:PATH; test NULL: the test part of the dataset; none if it has no such part */
    sfp_source *source, *test_source; /* used instead of `data` and `test`; the run owns them from sfp__run_open on. NULL: none */
    const char *shard;                /* "I/N": a part of `data`; NULL: all of it */
    const char *tasks;                /* NULL: the tasks of the dataset, else free; live streams: free */
    int order;                        /* of the classes, as in sfp__source_options */
    sfp__within within;
    const char *method; /* a closed-form head; NULL: the learner */
    sfp__learner_options learner;
    bool drop_short; /* a short last batch of a task is excluded */
    sfp__clock_kind clock;
    bool clock_of_preset; /* the preset has set the clock; a live stream, which cannot have clock paper, then uses its default */
    double rate;          /* lambda; 0: none */
    int calibrate;        /* clock paper: batches that are measured, after 3 for warm-up */
    const char *costs;    /* file of processing times, one number of seconds per line, used in turn; NULL: measured */
    int queue;
    sfp__queue_policy policy;
    sfp__allocate allocate;
    bool strict_classes; /* live streams: labels of other than known classes are refused */
    int pending;         /* live streams: capacity of the label queue */
    int eval_every;      /* timestamps between evaluations; 0: after each task */
    int64_t eval_limit;  /* test samples per task; 0: all */
    double max_skipped;  /* share of the images of a dataset that may be unreadable, rounded up to a number of images */
    bool diagnostics;    /* measures the claims of the theory (learner/diagnostics.h) */
    const char *cache;   /* directory of the feature cache (model/vit_memo.h); NULL: none */
    int64_t cache_mebibytes;
    const char *out;        /* directory, created if it is missing; NULL: no files */
    const char *init_state; /* state file or run directory to start from; NULL: none */
    bool resume;
    const sfp__args *given;    /* the settings: recorded in the result, and compared when a run resumes; NULL: none */
    double max_wait;           /* seconds that an incomplete batch of a live stream waits for more images; NAN: 1, or unlimited */
    double checkpoint_seconds; /* seconds of training between checkpoints; with clock real and on live streams, of wall time. NAN:
                                  the default of the stream */
    int64_t image_mebibytes;   /* submitted samples: maximum size of their images */
    int64_t log_bytes;         /* live streams: size at which a log is rotated; 0: never */
    const char *share;         /* a log: the directory that its workers share; NULL: none */
    const char *worker;        /* a log: the name of this worker; NULL: that of the machine */
    double claim_seconds;      /* a log: a message that was not committed for this time is taken over by another worker */
    const char *answer_with; /* a log: a state that answers unlabelled messages, read again when it changes; NULL: the learner */
    int log_files;           /* live streams: rotated files of a log that are kept */
} sfp__run_options;

sfp__run_options sfp__run_options_defaults(sfp__vit *vit, sfp__thread_pool *pool);

/* What is known about the stream when its source is open. */
typedef struct sfp__run_stream {
    bool live;  /* its length is unknown */
    bool tasks; /* it has tasks with known boundaries */
} sfp__run_stream;

typedef struct sfp__run_hooks {
    void *ctx, *log_ctx;                                    /* the first argument of progress; that of log */
    void (*progress)(void *ctx, const sfp_run_progress *p); /* after each timestamp and during evaluations; NULL: no callback */
    sfp_log_fn log;                                         /* NULL: no callback */
    const atomic_int *stop; /* not 0: complete the timestamp, cancel an evaluation, write a checkpoint and end; NULL: never */
} sfp__run_hooks;

/* SFP_EINVAL: a setting was given that has no effect beside the others. Rules that depend on the stream are skipped while
 * `stream` is NULL. sfp__run_open checks again when the source is open, unless the run resumes. */
sfp_status sfp__run_check_no_effect(const sfp__run_options *opt, const sfp__run_stream *stream, sfp_error *err);

typedef struct sfp__run sfp__run;

/* Options, hooks and result must outlive the run. *result is initialised here, also on failure; the caller ends it with
 * sfp__result_done after the run is closed. */
sfp_status sfp__run_open(const sfp__run_options *opt, const sfp__run_hooks *hooks, sfp_result *result, sfp__run **out,
                         sfp_error *err);
/* Processes the next delivery. *more false: the run has ended, and result->finished is false if it was stopped. After a failure
 * only sfp__run_close may follow. */
sfp_status sfp__run_step(sfp__run *run, bool *more, sfp_error *err);
bool sfp__run_takes_samples(const sfp__run *run); /* whether its source accepts submitted samples */
/* The number of batches in a task (-1: in all) of an indexed stream before the clock keeps some of them, and of their samples (may
 * be NULL). Valid before the first step. */
int64_t sfp__run_batches(const sfp__run *run, int task, int64_t *samples);
/* Measures the processing time of a batch in seconds, as clock paper does, on a copy of the learner. Call it before the first
 * step. */
sfp_status sfp__run_measure(const sfp__run *run, double *seconds, sfp_error *err);
/* Reads "query S" of a file for costs: the seconds of a query pass per sample; 0: the file has other times. */
sfp_status sfp__run_query_seconds(const char *path, double *seconds, sfp_error *err);

/* A run that has not ended leaves its directory as a killed process would: resume continues from the last checkpoint. Directories
 * that sfp__run_open created and that are still empty are removed. */
void sfp__run_close(sfp__run *run);
DEFINE_OWNED_PTR(sfp__run, sfp__run_close)

/* Kinds of files in the directory of a run. */
enum {
    SFP__FILES_CHECKPOINT = 1,
    SFP__FILES_OUTPUT = 2, /* result, report, predictions and state */
    SFP__FILES_TASK_STATE = 4,
    SFP__FILES_EVENTS = 8,
    SFP__FILES_UNFINISHED = 16, /* those that a killed process was writing */
    SFP__FILES_STORE = 32,      /* samples of a live stream */
    SFP__FILES_ALL = 63
};

/* Removes all files of these kinds but `kept`, which is a path or NULL. */
sfp_status sfp__run_remove_files(const char *out, unsigned kinds, const char *kept, sfp_error *err);

#endif
