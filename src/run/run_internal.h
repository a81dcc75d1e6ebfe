/* The state of a run, shared by the run_*.c files and run.c:
 *
 *   run.c         the order of things; the loop over an indexed stream
 *   run_live.c    the loop over a live one
 *   run_live_classes.c its classes, and the test set that is matched with them
 *   run_unlabelled.c pictures without a label
 *   run_clock.c   costs, and which batches the paper's clock keeps
 *   run_due.c     what is left to do of where an evaluation was given up
 *   run_record.c  what is noted of a timestamp, evaluation, the controller
 *   run_position.c where a run stands, for a checkpoint
 *   run_files.c   the folder, checkpoints, and what is left in the end
 *   run_pictures.c the pictures of the report
 *   run_classes.c the names of classes against those of a state or a checkpoint */
#ifndef SFP_RUN_RUN_INTERNAL_H
#define SFP_RUN_RUN_INTERNAL_H

#include "base/ahead.h"
#include "learner/predictor.h"
#include "run/evaluate.h"
#include "run/events.h"
#include "run/feed.h"
#include "run/run.h"

#include <jansson.h>

enum { SFP__RUN_SHOWN = 40, SFP__RUN_AHEAD = 4, SFP__RUN_POOL = 16 }; /* pictures shown, batches decoded ahead, batches pooled */

#define SFP__RUN_LOG_BYTES ((size_t)64 << 20) /* of events.jsonl and predictions.jsonl, before they are rotated */
enum { SFP__RUN_LOGS = 8 };
#define SFP__RUN_PREDICTIONS "predictions.jsonl"

typedef struct sfp__live sfp__live;

typedef struct sfp__unlabelled_slot {
    uint8_t *rgb;
    double seconds;          /* that reading took */
    char why[SFP_ERROR_MAX]; /* it could not be read; "": it was */
} sfp__unlabelled_slot;

/* Pictures without a label of an indexed free stream. */
typedef struct sfp__unlabelled {
    int64_t *at; /* (count) indices into the source, ascending */
    int64_t count, next;
    uint64_t unread; /* of those before next */
    char first_error[SFP_ERROR_MAX];
    sfp_line_log *log; /* predictions; NULL: no folder */
    double decode, waited;
    /* read ahead */
    sfp_ahead *ahead;
    const sfp_source *source;
    int size;
    sfp_resize resize;
    sfp__unlabelled_slot *ring;
    uint8_t *rgb; /* of the slots */
    float *query;
} sfp__unlabelled;

typedef struct sfp__run_state {
    const sfp_run_options *opt;
    const sfp_run_hooks *hooks;
    int lock;                  /* on the folder */
    bool resumed, begun;       /* from a checkpoint; the folder is ready: sfp__run_begin */
    sfp_clock_kind clock_kind; /* never DEFAULT */
    sfp_result *r;
    sfp_source *source, *test;
    uint64_t source_mark, test_mark; /* of indexed ones, once a checkpoint asked for it */
    sfp_tasks tasks, test_tasks;
    sfp_batches batches;
    sfp_learner *learner;
    sfp_predictor *predictor; /* asks the learner on demand */
    sfp_feed *feed;
    sfp__live *live; /* NULL: an indexed stream */
    sfp_evaluator *evaluator;
    sfp_line_log *events;
    sfp_clock clock;
    bool clocked;       /* the virtual or the real one */
    const sfp_lag *lag; /* NULL: nothing can be late */
    struct {
        int64_t count;
        double seconds; /* that predicting them took, where the clock counts it */
    } beside;           /* pictures without a label that came with the batches at hand */
    int64_t *comes;     /* (batches) as batches.arrived, with the pictures without a label; NULL: there are none */
    double spacing;     /* seconds from sample to sample; NAN: no rate */
    int64_t *kept;      /* paper: the batches that are kept, in order; NULL: all */
    int64_t kept_count;
    double *costs;
    int64_t cost_count;
    /* where we are: what a checkpoint's position holds */
    int64_t next;    /* off: batch; paper: index into kept */
    int64_t stamps;  /* timestamps so far */
    int task;        /* the task at hand */
    int64_t arrived; /* samples of the stream up to the last batch learned from */
    int64_t from;    /* arrived when this process began */
    struct {
        int64_t stamps;
        int task;
    } evaluated;   /* last: the same state is not asked twice; stamps -1: none */
    bool given_up; /* the evaluation at hand: the run was stopped */
    struct {
        bool evaluation;              /* the one after the last timestamp */
        int64_t batch[SFP__RUN_POOL]; /* (count) given by the clock, not learned from yet */
        int count;
        double spent; /* cost of those that came with them and are done */
    } due;            /* to be done before the clock is asked again */
    uint64_t judged, right;
    sfp__unlabelled unlabelled;
    int classes;            /* of the data set; a live one's appear */
    int stream_classes;     /* those that an indexed stream has */
    uint8_t *trained_class; /* (classes, at least) */
    /* checkpoint pace */
    double since, last_cost; /* training seconds since the last one; what the last one took */
    double saved_at;         /* when that was */
    bool pace_said;          /* that they are written less often */
    double began;
    struct {
        double decode, waited, total;
    } before;           /* seconds of the processes before this one */
    sfp_sample *pooled; /* (batch * SFP__RUN_POOL) triage: samples of several batches; a live stream's batch */
    uint64_t *ids;      /* (batch * SFP__RUN_POOL) */
    /* the last batch, for the report: some of what the coreset took and left */
    bool *taken; /* (batch * SFP__RUN_POOL) */
    struct {
        int took, left;
    } shown_of; /* so many in all */
    int shown;
    uint8_t *shown_rgb; /* (SFP__RUN_SHOWN, S, S, 3) */
    int32_t shown_label[SFP__RUN_SHOWN];
    bool shown_taken[SFP__RUN_SHOWN];
} sfp__run_state;

/* run.c */
void sfp__run_say(const sfp__run_state *s, const char *message);
bool sfp__run_stopped(const sfp__run_state *s);
/* Makes the folder ready for what this run writes. */
sfp_status sfp__run_begin(sfp__run_state *s, sfp_error *err);
sfp_status sfp__run_make_learner(sfp__run_state *s, sfp_learner **out, sfp_error *err);

/* run_due.c */
bool sfp__run_has_due(const sfp__run_state *s);
json_t *sfp__run_due_json(const sfp__run_state *s);
bool sfp__run_read_due(sfp__run_state *s, const json_t *j);

/* run_clock.c */
sfp_status sfp__run_start_clock(sfp__run_state *s, sfp_error *err);
/* Which batches of each task the paper's clock keeps, by measuring (none when it is stopped meanwhile); a run that goes on keeps
 * what was measured then. */
sfp_status sfp__run_keep_batches(sfp__run_state *s, sfp_error *err);

/* run_unlabelled.c */
typedef struct sfp__prediction {
    uint64_t id;
    const char *name;
    int32_t label;
    float probability;
} sfp__prediction;
/* A line of predictions.jsonl; log NULL: nothing. */
sfp_status sfp__run_write_prediction(const sfp__run_state *s, sfp_line_log *log, const sfp__prediction *p, sfp_error *err);
/* Says what becomes of the `count` pictures without a label, and finds them where they are to be predicted. */
sfp_status sfp__run_find_unlabelled(sfp__run_state *s, uint64_t count, sfp_error *err);
/* Begins to read them, from the next one on. */
sfp_status sfp__run_read_unlabelled(sfp__run_state *s, sfp_error *err);
/* Those among the first `index` pictures of the source. */
int64_t sfp__run_unlabelled_before(const sfp__run_state *s, int64_t index);
/* Predicts those that come before picture `index` of the source; *seconds: what the predictions took. */
sfp_status sfp__run_predict_before(sfp__run_state *s, int64_t index, double *seconds, sfp_error *err);
void sfp__run_unlabelled_done(sfp__run_state *s);

/* run_record.c */
/* Notes a timestamp, lets the controller follow it; *cost (may be NULL): what the clock is to count. */
sfp_status sfp__run_record(sfp__run_state *s, int n, const sfp_sample *samples, const sfp_timestamp *t, double *cost,
                           sfp_error *err);
/* A batch that arrives in `time` took so long: is there time to spare? time NAN: there is no rate. */
void sfp__run_tell_slack(sfp_learner *l, double time, double spent);
/* Evaluations tell how far they are, and end when the run is stopped, as s->given_up tells then: they note nothing. */
void sfp__run_watch_evaluator(sfp__run_state *s);
/* After a timestamp; stays due when it is given up. */
sfp_status sfp__run_evaluate_due(sfp__run_state *s, sfp_error *err);
/* When the next checkpoint is due on a stream that takes its time: a live one, or one on the real clock. */
double sfp__run_checkpoint_at(const sfp__run_state *s);
/* After a timestamp, where one is due. */
sfp_status sfp__run_evaluate_now_and_then(sfp__run_state *s, sfp_error *err);
/* A checkpoint, where one is due. */
sfp_status sfp__run_save_now_and_then(sfp__run_state *s, sfp_error *err);
/* Task `s->task` has ended: evaluation, state. */
sfp_status sfp__run_end_task(sfp__run_state *s, sfp_error *err);
void sfp__run_say_skipped(const sfp__run_state *s);
void sfp__run_finish_numbers(sfp__run_state *s);
/* Brings the result's decode, waited and total seconds up to now. */
void sfp__run_times(sfp__run_state *s);

/* run_pictures.c */
/* Keeps pictures of a timestamp for the report. */
void sfp__run_show(sfp__run_state *s, int n, const sfp_sample *samples, const sfp_timestamp *t);
sfp_status sfp__run_write_report(const sfp__run_state *s, const char *path, sfp_error *err);

/* run_position.c */
/* The lists of pictures: position and order of a stream are nothing without them. */
sfp_status sfp__run_mark_sources(sfp__run_state *s, sfp_error *err);
sfp_status sfp__run_position_text(sfp__run_state *s, char **out, sfp_error *err); /* *out is jansson's: free */
/* Where it stands, without the result; false: it does not fit this stream. */
bool sfp__run_read_position(sfp__run_state *s, json_t *root);
/* A whole number of a position, within a range. */
bool sfp__run_whole(json_t *root, const char *key, int64_t min, int64_t max, int64_t *out);
json_t *sfp__run_lag_json(const sfp_lag *l);
bool sfp__run_read_lag(json_t *j, sfp_lag *l);

/* run_files.c */
/* Before anything else: the folder is ours alone from here on. Without --resume one that holds something to go on from is
 * refused. */
sfp_status sfp__run_take_folder(sfp__run_state *s, sfp_error *err);
/* A run that begins, when nothing is left that could be wrong: removes the files of the run that was there, and says so. */
sfp_status sfp__run_clear_folder(const sfp__run_state *s, sfp_error *err);
/* What a process that was killed had begun to write; the folder is ours alone, so nobody is at it. */
sfp_status sfp__run_sweep_folder(const sfp__run_state *s, sfp_error *err);
/* DIR/events.jsonl up to the timestamp at hand; says so when lines that the checkpoint counts are not there. */
sfp_status sfp__run_open_events(sfp__run_state *s, sfp_error *err);
/* With the numbers of the result as they stand: all files of a run that ends tell the same. */
sfp_status sfp__run_checkpoint(sfp__run_state *s, sfp_error *err);
/* Before anything is made or measured: is what is there to go on from of this method, and of these options? Nothing there, or
 * damaged: sfp__run_resume will tell. */
sfp_status sfp__run_may_resume(const sfp__run_state *s, sfp_error *err);
/* *resumed: there was a checkpoint; *finished: and the run had ended. */
sfp_status sfp__run_resume(sfp__run_state *s, bool *resumed, bool *finished, sfp_error *err);
/* Checkpoint and registry: all that a run leaves that was stopped. */
sfp_status sfp__run_leave(sfp__run_state *s, sfp_error *err);
/* And result.json, state, report. */
sfp_status sfp__run_outputs(sfp__run_state *s, sfp_error *err);
/* DIR/NAME into buf. */
sfp_status sfp__run_path(const sfp__run_state *s, const char *name, char *buf, size_t size, sfp_error *err);

/* run_classes.c */
/* A state was loaded to begin with: refuses one whose classes have other names than the stream's; those without one get it. */
sfp_status sfp__run_take_names(sfp__run_state *s, sfp_error *err);
/* The same for a result to go on from, of the file `path`. */
sfp_status sfp__run_same_names(const sfp__run_state *s, const char *path, const sfp_result *then, sfp_error *err);

/* run_live.c */
/* After the source was opened: refuses what a live stream cannot have. */
sfp_status sfp__live_create(sfp__run_state *s, sfp_error *err);
void sfp__live_free(sfp__live *v);
/* Until the source ends, or the run is stopped: a live stream has no other end. *ended is false when the source failed on the
 * way; when it did before anything came of it, that is the failure, and nothing was begun. */
sfp_status sfp__live_learn(sfp__run_state *s, bool *ended, sfp_error *err);
/* Why the source ended early. */
sfp_status sfp__live_failure(const sfp__run_state *s, sfp_error *err);
/* Predictions are on the disk before the checkpoint that counts them. */
sfp_status sfp__live_sync(const sfp__run_state *s, sfp_error *err);
/* Position and result were read: takes the classes of both, and gives up the pictures that cannot wait any more. */
sfp_status sfp__live_resumed(sfp__run_state *s, sfp_error *err);
json_t *sfp__live_position(const sfp__run_state *s);
bool sfp__live_read_position(sfp__run_state *s, json_t *j);
void sfp__live_numbers(sfp__run_state *s);
/* Seconds decoding and waiting, and the message of the first picture that could not be read. */
sfp_feed_stats sfp__live_stats(const sfp__run_state *s);

/* run_live_classes.c */
/* The test set as one task; its classes get labels when they appear in the stream. */
sfp_status sfp__live_cut_test(sfp__run_state *s, sfp_error *err);
/* Gives the test set the labels that its classes have in the stream by now. */
sfp_status sfp__live_match(sfp__run_state *s, sfp_error *err);
/* The classes that a state brought. */
sfp_status sfp__live_take_classes(sfp__run_state *s, sfp_error *err);
bool sfp__live_trained_room(sfp__run_state *s, int classes); /* false: no memory */

#endif
