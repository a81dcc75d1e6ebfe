/* What a run is made of. Each part is changed by one file:
 *
 *   plan       plan.c       what is to be run: options, sources, tasks, batches. Made before anything begins, constant then
 *   position   run.c        where it stands: what a checkpoint holds beside the learner and the parts below
 *   classes    classes.c    the classes of the stream: a live one's appear, and are matched by name
 *   arrivals   arrivals_*.c how data comes, and how time passes (arrivals.h)
 *   journal    journal.c    what is noted: the result, events, predictions, images for the report
 *   pace       run.c        when the next checkpoint is due
 *
 * All live as long as sfp__run. run.c sees them together, and so do those that write down where all of them stand: journal.c (of a
 * timestamp), position.c (for a checkpoint) and files.c (what is found in the folder, and what is left in it). */
#ifndef SFP_RUN_RUN_INTERNAL_H
#define SFP_RUN_RUN_INTERNAL_H

#include "io/line_log.h"
#include "learner/predictor.h"
#include "run/arrivals.h"
#include "run/evaluate.h"
#include "run/run.h"
#include "stream/source_internal.h"

#include <jansson.h>

enum {
    SFP__RUN_SHOWN = 40,
    SFP__RUN_PREFETCH = 4,
    SFP__RUN_TRIAGE_BATCHES = 16
}; /* images shown, batches decoded ahead, batches pooled */

#define SFP__RUN_EVENTS "events.jsonl"
#define SFP__RUN_PREDICTIONS "predictions.jsonl"

/* Constant once the stream begins, but for the marks. */
struct sfp__plan {
    const sfp__run_options *opt;
    const sfp__run_hooks *hooks;
    bool live;
    sfp__clock_kind clock;               /* never DEFAULT */
    int size, dim;                       /* S, D */
    sfp_source *source, *test;           /* test NULL: none */
    uint64_t source_digest, test_digest; /* of indexed ones, once a checkpoint asked for it */
    sfp__tasks tasks, test_tasks;
    sfp__batches batches;    /* of an indexed stream; the paper's clock keeps some of them */
    sfp__batches unlabelled; /* the images of a free stream that have no label, each a batch: they are predicted in their turn */
    int64_t curve_every;     /* timestamps from point to point of a curve */
    int stream_classes;      /* those that an indexed stream has */
    double *costs;           /* (cost_count) seconds a timestamp, in turn */
    int64_t cost_count;      /* 0: measured */
};

/* What a checkpoint holds, beside the learner, arrivals, classes and result. */
typedef struct sfp__position {
    int64_t timestamps; /* timestamps so far */
    int task;           /* the task at hand */
    int64_t arrived;    /* samples of the stream up to the last batch learned from */
    uint64_t prequential_total, prequential_correct;
    struct {
        int64_t timestamps;
        int task;
    } evaluated;         /* last: the same state is not asked twice; stamps -1: none */
    bool evaluation_due; /* the one after the last timestamp */
    double cs;           /* NAN: the paper's clock keeps all batches, or another clock runs */
} sfp__position;

struct sfp__classes {
    sfp__learner *learner;
    sfp_result *r;
    int count;         /* of the data set; a live one's appear */
    uint8_t *trained;  /* (count, at least) 1: learned from */
    int capacity;      /* of trained */
    sfp__names names;  /* live */
    int32_t *label_of; /* live: (label_capacity) stream label of a source's, -1: not seen yet */
    int label_capacity;
    int unseen; /* live: classes of the test set, as told last; -1: not yet */
};

typedef struct sfp__journal {
    sfp_result *r;
    sfp__line_log *events, *predictions; /* NULL: no folder, or nothing to write */
    uint64_t *ids;                       /* (samples of a timestamp, at most) */
    double began;
    int64_t from; /* arrived when this process began */
    struct {
        double decode, wait_seconds, total;
    } earlier; /* seconds of the processes before this one */
    struct {
        bool *taken;    /* (samples of a timestamp, at most) */
        int took, left; /* so many in all */
        int count;
        uint8_t *rgb; /* (SFP__RUN_SHOWN, S, S, 3) */
        int32_t label[SFP__RUN_SHOWN];
        bool chosen[SFP__RUN_SHOWN];
    } shown; /* the last batch, for the report: some of what the coreset took and left */
} sfp__journal;

typedef struct sfp__pace {
    double train_seconds; /* training seconds since the last checkpoint */
    double saved_at;      /* when that was */
    double save_seconds;  /* what it took */
    bool reported;        /* that they are written less often */
    bool unsaved;         /* something came since */
} sfp__pace;

typedef struct sfp__run_context {
    sfp__plan plan;
    sfp__position at;
    sfp__learner *learner;
    sfp__predictor *predictor; /* asks the learner on demand */
    sfp__classes classes;
    sfp__arrivals *arrivals;
    sfp__evaluator *evaluator; /* NULL: no test set */
    float *query;              /* (SFP__GROUP, D) of images that are predicted */
    sfp__journal journal;
    sfp__pace pace;
    int lock;            /* on the folder */
    bool resumed, begun; /* from a checkpoint; the folder is ready */
} sfp__run_context;

/* ---------------------------------------------------------------------- plan.c */

void sfp__plan_info(const sfp__plan *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool sfp__plan_stopped(const sfp__plan *p);
/* DIR/NAME into buf. */
sfp_status sfp__plan_path(const sfp__plan *p, const char *name, char *buf, size_t size, sfp_error *err);
sfp_status sfp__plan_open_source(sfp__plan *p, sfp_error *err);
/* Tasks, batches, test set; refuses what the stream cannot have. */
sfp_status sfp__plan_split_tasks(sfp__plan *p, sfp_error *err);
sfp_status sfp__plan_make_learner(const sfp__plan *p, sfp__learner **out, sfp_error *err);
/* Given costs, and a rate where the clock needs one. */
sfp_status sfp__plan_clock(sfp__plan *p, sfp_error *err);
/* There is an image that can be read: a stream without one must not cost the folder what is in it. rgb: (S, S, 3) scratch. */
sfp_status sfp__plan_find_readable(const sfp__plan *p, uint8_t *rgb, sfp_error *err);
/* "none of the images could be read" */
sfp_status sfp__plan_none_readable(const sfp__plan *p, uint64_t count, const char *first, sfp_error *err);
/* The paper's clock: keeps the batches that C_S, which is measured, leaves time for; *cs NAN: it was stopped meanwhile. */
sfp_status sfp__plan_keep_batches(sfp__plan *p, double *cs, sfp_error *err);
/* The lists of images: position and order of a stream are nothing without them. */
sfp_status sfp__plan_digest_sources(sfp__plan *p, sfp_error *err);
void sfp__plan_done(sfp__plan *p);

/* A batch that arrives in `time` took so long: is there time to spare? time NAN: there is no rate. */
void sfp__learner_update_slack(sfp__learner *l, double time, double spent);

/* ------------------------------------------------------------------- classes.c */

sfp_status sfp__classes_init(sfp__classes *c, int count, sfp__learner *learner, sfp_result *r, sfp_error *err);
void sfp__classes_done(sfp__classes *c);
bool sfp__classes_reserve(sfp__classes *c, int count); /* in `trained`; false: no memory */
/* A state was loaded to begin with: refuses one whose classes have other names than the stream's; those without one get it. */
sfp_status sfp__classes_take_names(const sfp__classes *c, const sfp__plan *p, sfp_error *err);
/* The same for a result to go on from, of the file `path`. */
sfp_status sfp__classes_same_names(const sfp__classes *c, const char *path, const sfp_result *then, sfp_error *err);
/* A live stream: the classes that a state or a result brought. */
sfp_status sfp__classes_take(sfp__classes *c, const sfp__plan *p, sfp_error *err);
/* Gives the test set of a live stream the labels that its classes have there by now. */
sfp_status sfp__classes_match(sfp__classes *c, const sfp__plan *p, sfp_error *err);

/* ------------------------------------------------------------------- journal.c */

sfp_status sfp__journal_init(sfp__journal *j, const sfp__plan *p, sfp_error *err);
/* DIR/events.jsonl up to the timestamp at hand; says so when lines that the checkpoint counts are not there. And, where there is
 * something to predict, DIR/predictions.jsonl. */
sfp_status sfp__journal_open(sfp__journal *j, const sfp__plan *p, int64_t timestamps, sfp__arrivals *a, sfp_error *err);
/* What is counted in a checkpoint is on the disk before it. */
sfp_status sfp__journal_sync(sfp__journal *j, sfp_error *err);
void sfp__journal_done(sfp__journal *j);
/* Notes a timestamp, before it is counted. */
sfp_status sfp__journal_write(sfp__run_context *run, const sfp__delivery *d, const sfp__timestamp_details *t, sfp_error *err);
/* A line of events. ids: (t->offered). replay: the learner's options.replay, the row length of t->replay. A head on its own
 * chooses nothing: with t->coreset NULL the line says that it learned from the first coreset_count, all of them. */
sfp_status sfp__journal_event(sfp__line_log *log, const sfp__timestamp_details *t, int replay, const uint64_t *ids,
                              sfp_error *err);
/* Lines of predictions, which people wait for. */
sfp_status sfp__journal_predict(sfp__journal *j, int64_t timestamps, const sfp__delivery *d, const int32_t *label,
                                const float *probability, sfp_error *err);
/* Brings the result's decode, waited and total seconds up to now. */
void sfp__journal_times(sfp__journal *j, sfp__arrivals *a);
/* All numbers of the result. */
void sfp__journal_finish(sfp__run_context *run);
sfp_status sfp__journal_report(const sfp__run_context *run, const char *path, sfp_error *err);

/* ------------------------------------------------------------------ position.c */

sfp_status sfp__position_text(sfp__run_context *run, char **out, sfp_error *err); /* *out is jansson's: free */
/* Where it stands, without the result; false: it does not fit this stream. */
bool sfp__position_read(sfp__run_context *run, json_t *root);

/* --------------------------------------------------------------------- files.c */

/* Before anything else: the folder is ours alone from here on. Without --resume one that holds something to go on from is
 * refused. */
sfp_status sfp__files_take(const sfp__plan *p, int *lock, sfp_error *err);
/* A run that begins (resumed false), when nothing is left that could be wrong: removes the files of the run that was there, and
 * says so. And what a process that was killed had begun to write; the folder is ours alone, so nobody is at it. */
sfp_status sfp__files_clear(const sfp__plan *p, bool resumed, sfp_error *err);
/* With the numbers of the result as they stand: all files of a run that ends tell the same. */
sfp_status sfp__files_checkpoint(sfp__run_context *run, sfp_error *err);
/* Before anything is made or measured: is what is there to go on from of this method, and of these options? Nothing there, or
 * damaged: sfp__files_resume will tell. */
sfp_status sfp__files_may_resume(const sfp__plan *p, sfp_error *err);
/* run->resumed: there was a checkpoint; *finished: and the run had ended. */
sfp_status sfp__files_resume(sfp__run_context *run, bool *finished, sfp_error *err);
/* Checkpoint and registry: all that a run leaves that was stopped. */
sfp_status sfp__files_leave(sfp__run_context *run, sfp_error *err);
/* And result.json, state, report. */
sfp_status sfp__files_outputs(sfp__run_context *run, sfp_error *err);

/* -------------------------------------------------------------------- settings.c */

/* `a` NULL: nothing to note, and nothing to compare. */
sfp_status sfp__settings_record(const sfp__args *a, sfp_result *r, sfp_error *err);
/* Refuses (SFP_EINVAL) a run that is to go on when the settings noted in it are not those of now: "was made with ..." */
sfp_status sfp__settings_same(const sfp__args *a, const sfp_result *then, bool live, sfp_error *err);

#endif
