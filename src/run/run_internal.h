/* The parts of a run. Each part is changed by one file:
 *
 *   plan       plan.c         options, sources, tasks and batches; made before the first step, constant afterwards
 *   position   run.c          the place in the stream: saved in checkpoints beside the learner and the parts below
 *   classes    classes.c      the classes of the stream, and those learned from; those of a live stream are added by name as they appear
 *   arrivals   arrivals_*.c   how samples are delivered and how time passes (arrivals.h)
 *   journal    journal.c      the record of the run: result, events, predictions, images for the report
 *   pace       run.c          when the next checkpoint is due
 *
 * All of them live as long as the run. open.c makes them; run.c uses them together, and so do the files that write all of them down: journal.c (a
 * timestamp), position.c (a checkpoint) and run_directory.c (the files in the directory). */
#ifndef SFP_RUN_RUN_INTERNAL_H
#define SFP_RUN_RUN_INTERNAL_H

#include "io/line_log.h"
#include "learner/predictor.h"
#include "run/arrivals.h"
#include "run/evaluate.h"
#include "run/run.h"
#include "stream/source_internal.h"

#include <limits.h>

enum {
    SFP__RUN_SHOWN = 40,        /* images in the report */
    SFP__RUN_PREFETCH = 4,      /* batches decoded before they are needed */
    SFP__RUN_POOL_BATCHES = 32, /* allocate adaptive: maximum number of batches from which samples are chosen */
    SFP__RUN_BACKLOG = 4        /* allocate adaptive: if at most this number of batches wait, all are processed */
};

#define SFP__RUN_EVENTS "events.jsonl"
#define SFP__RUN_PREDICTIONS "predictions.jsonl"

typedef struct sfp__journal sfp__journal;

/* Processing times that are given instead of measured (--costs). */
typedef struct sfp__costs {
    double *seconds; /* (count) of a timestamp, used in turn */
    int64_t count;
    double query; /* seconds per sample, used if `seconds` is not given; NAN: not given */
} sfp__costs;

/* Constant once the stream begins, except for the digests. */
struct sfp__plan {
    const sfp__run_options *opt;
    const sfp__run_hooks *hooks;
    const char *data; /* name of the stream for messages */
    bool live;
    sfp__clock_kind clock;               /* never DEFAULT */
    int size, dim;                       /* S, D */
    sfp_source *source, *test;           /* test NULL: no test set */
    uint64_t source_digest, test_digest; /* hashes of the image lists of indexed sources; 0: not computed yet */
    sfp__tasks tasks, test_tasks;
    sfp__batches batches;    /* batches of an indexed stream; clock paper keeps some of them */
    sfp__batches unlabelled; /* the unlabelled images of a task-free stream, one per batch: they are predicted in turn */
    int64_t curve_every;     /* timestamps between two points of a curve */
    int stream_classes;      /* number of classes in an indexed stream */
    sfp__vit_memo *memo;     /* feature cache; NULL: none */
    sfp__time_source time;   /* clock of processing times; passes that read the cache change it */
    sfp__costs costs;
    int starved_tasks; /* clock paper: tasks of which one batch is kept although there is time for less */
};

/* Saved in checkpoints beside the learner, the arrivals, the classes and the result. */
struct sfp__position {
    int64_t timestamps; /* timestamps so far */
    int task;           /* the current task */
    int64_t arrived;    /* samples of the stream up to the last batch that was processed */
    uint64_t prequential_total, prequential_correct;
    struct {
        int64_t timestamps;
        int task;
    } evaluated;          /* place of the last evaluation, so that none is done twice; timestamps -1: none */
    bool evaluation_due;  /* an evaluation must follow the last timestamp */
    double cs;            /* C_S of clock paper; NAN: it keeps all batches, or another clock runs */
    double query_seconds; /* mean processing time per sample; 0: not measured yet */
};

struct sfp__classes {
    const sfp__plan *plan;
    sfp__learner *learner;
    sfp__journal *journal;
    int count;          /* classes of the dataset; of a live stream, so far */
    uint8_t *trained;   /* (capacity) 1: a sample of the class was learned from */
    int capacity;       /* at least count */
    sfp__names names;   /* live streams: names of the classes so far */
    int unseen;         /* live streams: classes of the test set that have not appeared, as last reported; -1: never reported */
    sfp__names known;   /* live streams: the classes that a list or a state names, and those that have appeared */
    sfp__names refused; /* labels that were refused and reported (classes strict) */
};

struct sfp__journal {
    sfp_result *r;                       /* only journal.c changes it */
    sfp__line_log *events, *predictions; /* NULL: no directory, or nothing to write */
    uint64_t *ids;                       /* (maximum number of samples in a timestamp) */
    double began;                        /* sfp__monotonic_seconds() when the run was opened */
    int64_t from;                        /* samples that earlier processes had processed */
    struct {
        double decode, wait_seconds, total;
    } earlier; /* seconds of earlier processes */
    struct {
        bool *in_coreset;              /* (maximum number of samples in a timestamp) 1: in the coreset */
        int coreset_count, rest_count; /* number of samples inside and outside the coreset */
        int count;
        uint8_t *rgb; /* (SFP__RUN_SHOWN, S, S, 3) */
        int32_t label[SFP__RUN_SHOWN];
        bool chosen[SFP__RUN_SHOWN];
    } shown; /* images of the last batch for the report, inside and outside the coreset */
};

typedef struct sfp__pace {
    double train_seconds; /* seconds of training since the last checkpoint */
    double saved_at;      /* sfp__monotonic_seconds() of the last checkpoint */
    double save_seconds;  /* seconds that the last checkpoint took */
    bool reported;        /* a message about less frequent checkpoints was printed */
    bool unsaved;         /* data has arrived since the last checkpoint */
    /* the members below are used by live streams only */
    double save_bytes; /* size of the files of the last checkpoint; 0: this process has written none */
    double state_at;   /* sfp__monotonic_seconds() when state and report were written; -INFINITY: never */
    bool arrived;      /* something has arrived, or the message that the run waits for images was printed */
    double notices_at; /* sfp__monotonic_seconds() of the last messages, which reported the following counts */
    uint64_t skipped;  /* number of unreadable images */
    uint64_t dropped;  /* number of dropped samples */
    int evaluations;   /* number of evaluations */
} sfp__pace;

typedef enum sfp__run_phase { SFP__RUN_OPENED, SFP__RUN_STARTED, SFP__RUN_ENDED, SFP__RUN_FAILED } sfp__run_phase;

struct sfp__run {
    sfp__run_phase phase;
    bool ended_before; /* an indexed run that had ended in an earlier process: nothing to do */
    bool more_follows; /* the last delivery was part of a group: the run is not stopped before the group is complete */
    sfp__plan plan;
    sfp__position at;
    sfp__learner *learner;
    sfp_predictor *predictor; /* reads the learner on demand */
    sfp__classes classes;
    sfp__arrivals *arrivals;
    sfp__evaluator *evaluator; /* NULL: no test set */
    sfp__journal journal;
    sfp__pace pace;
    char init_state[PATH_MAX]; /* state file to start from; "": none */
    int created;               /* directories that were created for `out` */
    int lock;                  /* descriptor of the lock on the directory */
    bool resumed, begun;       /* resumed: continued from a checkpoint; begun: the directory is ready for files */
    bool no_registry;          /* a message about a failure of the registry was printed */
    unsigned failures;         /* failures of matrix products (sfp__gemm_failures) when the run was opened */
};

/* --------------------------------------------------------------- open.c, run.c */

/* Tells the learner which classes compete in the current task. */
sfp_status sfp__run_set_classes(sfp__run *run, sfp_error *err);
/* The progress callback of the evaluator; ctx: the run. */
void sfp__run_report_evaluation(void *ctx, uint64_t done);

/* ---------------------------------------------------------------------- plan.c */

void sfp__plan_log(const sfp__plan *p, sfp_log_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#define sfp__plan_info(p, ...) sfp__plan_log(p, SFP_LOG_INFO, __VA_ARGS__)
#define sfp__plan_warn(p, ...) sfp__plan_log(p, SFP_LOG_WARNING, __VA_ARGS__)
bool sfp__plan_stopped(const sfp__plan *p);
/* Writes DIR/NAME to buf. */
sfp_status sfp__plan_path(const sfp__plan *p, const char *name, char *buf, size_t size, sfp_error *err);
sfp_status sfp__plan_open_source(sfp__plan *p, sfp_error *err);
/* Makes tasks, batches and test set; refuses settings that the stream cannot have. */
sfp_status sfp__plan_split_tasks(sfp__plan *p, sfp_error *err);
/* Opens the feature cache (--cache) and warns about files in its directory that are not used. */
sfp_status sfp__plan_open_cache(sfp__plan *p, sfp_error *err);
/* Reports what the feature cache could not do, at the end of the run. */
void sfp__plan_warn_cache(const sfp__plan *p);
sfp_status sfp__plan_make_learner(const sfp__plan *p, sfp__learner **out, sfp_error *err);
/* Reads --costs and checks that the clock has the arrival rate that it needs. */
sfp_status sfp__plan_clock(sfp__plan *p, sfp_error *err);
/* Fails if no image of the stream can be read: such a stream must not replace the files in the directory. rgb: (S, S, 3)
 * scratch. */
sfp_status sfp__plan_find_readable(const sfp__plan *p, uint8_t *rgb, sfp_error *err);
/* Returns how many of `count` images may be unreadable. */
uint64_t sfp__plan_max_skipped(const sfp__plan *p, uint64_t count);
/* Computes the digests of the image lists, without which a position in the stream has no meaning. */
sfp_status sfp__plan_digest_sources(sfp__plan *p, sfp_error *err);
void sfp__plan_done(sfp__plan *p);

/* ----------------------------------------------------------------- calibrate.c */

typedef struct sfp__calibration {
    int64_t filling;  /* batches that filled the buffer */
    int64_t measured; /* batches that were measured */
    int tasks;        /* tasks to which they belong */
    double seconds;   /* mean processing time of the measured batches; 0: none */
} sfp__calibration;

/* Clock paper: measures the processing time of a batch, mean over the tasks, with a copy of the learner whose buffer is full. */
sfp_status sfp__calibrate(const sfp__plan *p, sfp__calibration *out, sfp_error *err);
/* Whether, after this number of batches, the buffer or the window of ssd is still being filled. The number of such batches is bounded. */
bool sfp__calibration_fills(const sfp__buffer *b, int64_t batches);
/* Writes the processing time of a batch: the mean of --costs, else measured. */
sfp_status sfp__plan_measure(const sfp__plan *p, double *seconds, sfp_error *err);
/* Clock paper: finds C_S and keeps the batches that it leaves time for. *cs NAN: the run was stopped meanwhile. */
sfp_status sfp__plan_keep_batches(sfp__plan *p, double *cs, sfp_error *err);

/* ------------------------------------------------------------------ allocate.c */

/* Scratch of sfp__allocate_samples for one sample. */
typedef struct sfp__candidate {
    int64_t learned; /* samples of its class that were learned before: set by the caller */
    int first;       /* index of the first sample of its class; only that sample has the following numbers of the class */
    int count;       /* samples that wait */
    int chosen;      /* waiting samples that are kept */
    int passed;      /* waiting samples for which this is decided */
} sfp__candidate;

/* Chooses at most `want` of n samples and moves them to the front, in their order. Returns their number. order (n): scratch. */
int sfp__allocate_samples(int n, sfp__sample *samples, int want, sfp__candidate *candidates, int *order);

/* ------------------------------------------------------------------- classes.c */

sfp_status sfp__classes_init(sfp__classes *c, const sfp__plan *p, sfp__learner *learner, sfp__journal *journal, sfp_error *err);
void sfp__classes_done(sfp__classes *c);
/* Records that a sample of the class was learned. */
void sfp__classes_trained(sfp__classes *c, int32_t label);
/* Write and read which classes were learned from, for a checkpoint. A live stream has as many classes as the checkpoint. */
void sfp__classes_write(const sfp__classes *c, sfp__json *j);
bool sfp__classes_read(sfp__classes *c, const sfp__json_value *trained);
/* Called after the state `path` was loaded. Refuses it if its classes have other names than those of the stream; classes of the state that have no
 * name get that of the stream. */
sfp_status sfp__classes_check_state(const sfp__classes *c, const sfp__plan *p, const char *path, sfp_error *err);
/* Refuses the result in the file `path` if its classes have other names than those of the stream. */
sfp_status sfp__classes_check_result(const sfp__classes *c, const char *path, const sfp_result *then, sfp_error *err);
/* Live streams: adds the classes of a loaded state or result. */
sfp_status sfp__classes_restore(sfp__classes *c, const sfp__plan *p, sfp_error *err);
/* Classes strict: fails if no class is known at the start, because every sample would be refused. */
sfp_status sfp__classes_check_strict(const sfp__classes *c, sfp_error *err);
/* Live streams: gives the test set the labels that its classes have in the stream by now. */
void sfp__classes_match(sfp__classes *c, const sfp__plan *p);

/* ------------------------------------------------------------------- journal.c */

/* Initialises the result with the facts that are known before the first step. */
sfp_status sfp__journal_init(sfp__journal *j, const sfp__plan *p, sfp_error *err);
/* Continues the result of an earlier process and takes ownership of it. ended: its run has ended, and nothing is changed. */
void sfp__journal_restore(sfp__journal *j, const sfp__plan *p, sfp_result *then, bool ended);
/* Opens DIR/events.jsonl and cuts it after the current timestamp; warns if lines are missing that the checkpoint counts. Opens
 * DIR/predictions.jsonl if images will be predicted. */
sfp_status sfp__journal_open(sfp__journal *j, const sfp__plan *p, int64_t timestamps, sfp__arrivals *a, sfp_error *err);
/* Writes all lines to disk, which must happen before the checkpoint that counts them. */
sfp_status sfp__journal_sync(sfp__journal *j, sfp_error *err);
void sfp__journal_done(sfp__journal *j);
/* Records a timestamp, before it is counted. */
sfp_status sfp__journal_write(sfp__run *run, const sfp__delivery *d, const sfp__timestamp_details *t, sfp_error *err);
/* Writes one line of events. ids: (t->offered). replay: the learner's options.replay, the row length of t->replay. With
 * t->coreset NULL (a closed-form head alone) the line names the first coreset_count samples as the coreset. samples (t->offered), for
 * a live stream: the line also has the time of day and their names and labels; class_names: by label. */
sfp_status sfp__journal_event(sfp__line_log *log, const sfp__timestamp_details *t, int replay, const uint64_t *ids,
                              const sfp__sample *samples, char *const *class_names, sfp_error *err);
/* Writes lines of predictions, which reach the file at once. store, for a live stream: the predictions are recorded there first, and the
 * lines also have `unknown`, the scores for "none of the classes", and the time of day. */
sfp_status sfp__journal_predict(sfp__journal *j, int64_t timestamps, const sfp__delivery *d, const int32_t *label,
                                const float *probability, const float *unknown, sfp__arrivals *a, sfp_error *err);
/* Reports progress. t: the last timestamp; NULL: during an evaluation, of which `done` of `total` images are answered. */
void sfp__journal_progress(const sfp__run *run, const sfp__timestamp_details *t, uint64_t done, uint64_t total);
/* Adds a class that a live stream has introduced. */
sfp_status sfp__journal_add_class(sfp__journal *j, const char *name, sfp_error *err);
/* Records what the evaluator has measured, in `seconds`. */
sfp_status sfp__journal_evaluated(sfp__run *run, double seconds, sfp_error *err);
/* Records that the current task has ended. */
void sfp__journal_end_task(sfp__run *run);
/* Updates the counts of samples that the arrivals have. */
void sfp__journal_count(sfp__journal *j, const sfp__arrivals *a);
/* Updates the result's decode, wait and total seconds. */
void sfp__journal_times(sfp__journal *j, sfp__arrivals *a);
/* Updates all numbers of the result. */
void sfp__journal_finish(sfp__run *run, bool finished);
/* Updates the diagnostics of the result, if they are on. */
sfp_status sfp__journal_diagnose(sfp__run *run, sfp_error *err);
sfp_status sfp__journal_report(const sfp__run *run, const char *path, sfp_error *err);

/* ------------------------------------------------------------------ position.c */

sfp_status sfp__position_text(sfp__run *run, char **out, sfp_error *err); /* free *out with sfp__free */
/* Restores everything but the result; false: the position does not fit this stream. */
bool sfp__position_read(sfp__run *run, const sfp__json_value *root);

/* ------------------------------------------------------------- run_directory.c */

/* Creates and locks the directory. Without --resume, one with an unfinished run is refused. */
sfp_status sfp__files_lock(sfp__run *run, sfp_error *err);
/* Refuses an output directory among the images of the stream or of its test set. */
sfp_status sfp__files_check_apart(const sfp__plan *p, sfp_error *err);
/* Called when all checks have passed. Removes the files of an earlier run, with a message (unless `resumed`), and the unfinished files of a killed
 * process. */
sfp_status sfp__files_clear(const sfp__run *run, sfp_error *err);
/* Writes a checkpoint with the numbers of the result as they are, so that all files of a run that ends agree. */
sfp_status sfp__files_checkpoint(sfp__run *run, sfp_error *err);
/* Live streams, after a sample was forgotten: replaces all files that contain what was learned. *bytes: see sfp__files_save_running. */
sfp_status sfp__files_forget(sfp__run *run, double *bytes, sfp_error *err);
/* Refuses a checkpoint of another method or with other settings. If it is missing or damaged, sfp__files_resume reports that. */
sfp_status sfp__files_check_resume(const sfp__plan *p, sfp_error *err);
/* Continues from the checkpoint: run->resumed says whether there was one, *finished whether its run had ended. */
sfp_status sfp__files_resume(sfp__run *run, bool *finished, sfp_error *err);
/* Live streams: writes a checkpoint and the result so far; all: also state, report and registry entry. *bytes: the size of checkpoint
 * and state. */
sfp_status sfp__files_save_running(sfp__run *run, bool all, double *bytes, sfp_error *err);
/* Writes the checkpoint and the registry entry: everything that a stopped run leaves. */
sfp_status sfp__files_save_stopped(sfp__run *run, sfp_error *err);
/* Writes logs, state, report, checkpoint, registry entry and, as the last file, result.json. */
sfp_status sfp__files_save_outputs(sfp__run *run, sfp_error *err);
/* Writes what is missing in the directory of a run that has ended, because a process was killed or a file was removed. */
sfp_status sfp__files_complete(const sfp__run *run, sfp_error *err);

/* ----------------------------------------------------------------- settings.c */

/* The clock of a stream, never DEFAULT. */
sfp__clock_kind sfp__run_clock(const sfp__run_options *o, bool live);

/* Records the settings in the result. In this and the next function, `a` NULL means that there are none. */
sfp_status sfp__settings_record(const sfp__args *a, sfp_result *r, sfp_error *err);
/* SFP_EINVAL: the settings recorded in `then`, from the file `path`, differ from those of `a`, so that the run cannot resume. */
sfp_status sfp__settings_same(const sfp__args *a, const char *path, const sfp_result *then, bool live, sfp_error *err);

#endif
