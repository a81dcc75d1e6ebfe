/* How samples reach a run: one delivery at a time, in the order of the stream.
 *
 *     sfp__arrivals_next(a, until, &d, err);     waits for the next delivery
 *     ... predict or train ...
 *     sfp__arrivals_commit(a, seconds, err);     advances the clock, or records samples in the store
 *
 * There are three kinds: indexed streams (arrivals_indexed.c: batch loader and clock), live streams (arrivals_live.c: inbox and
 * store of samples) and message logs (arrivals_log.c). */
#ifndef SFP_RUN_ARRIVALS_H
#define SFP_RUN_ARRIVALS_H

#include "base/mem.h"
#include "learner/learner.h"
#include "results/result.h"
#include "run/batch_loader.h"
#include "run/clock.h"
#include "run/inbox.h"

enum { SFP__GROUP = 32 }; /* number of unlabelled images that are predicted at once; it affects the last bits of results */

typedef struct sfp__plan sfp__plan;
typedef struct sfp__position sfp__position;
typedef struct sfp__classes sfp__classes;

/* A correction: a sample with the label with which the learner has learned it. */
typedef struct sfp__revision {
    sfp__sample sample;
    int32_t label; /* its new label; -1: it is forgotten */
} sfp__revision;

/* Samples to train on, or images to predict. A delivery is empty if images were discarded or skipped, or if a checkpoint is
 * due. */
typedef struct sfp__delivery {
    int task; /* all earlier tasks have ended */
    /* to train on, in one timestamp */
    int count;
    const sfp__sample *samples;
    int64_t batch;   /* an indexed stream: the last batch from which samples were taken */
    int64_t arrived; /* samples of the stream up to here; -1: there are none to train on */
    /* to predict */
    int predict_count;
    struct {
        uint64_t id;
        const char *name;
        const uint8_t *rgb;
    } predict[SFP__GROUP];
    /* to correct, before the training */
    int revision_count;
    const sfp__revision *revisions;
    bool save;    /* a checkpoint must be written now, because a sample was forgotten */
    bool asked;   /* another thread has requested a checkpoint */
    bool changed; /* something was learned or predicted, so the next checkpoint differs from the last one */
    bool more;    /* the next delivery belongs to the same group; until then nothing is evaluated, saved or stopped */
    bool end;     /* the stream has ended, or the run was stopped; the delivery is empty */
} sfp__delivery;

typedef struct sfp__arrivals_stats {
    double decode, wait_seconds;    /* seconds of decoding; seconds spent waiting for it */
    sfp_status status;              /* live: why the source failed */
    char last_error[SFP_ERROR_MAX]; /* its message */
} sfp__arrivals_stats;

/* Counts of the samples that arrived, by what happened to them. */
typedef struct sfp__arrivals_counts {
    sfp__skipped skipped;
    uint64_t unread; /* part of skipped: images to predict */
    sfp__result_labels labels;
    /* live streams, in the store of samples */
    uint64_t offered, dropped;
    sfp__result_standings standings;
} sfp__arrivals_counts;

typedef struct sfp__arrivals sfp__arrivals;

/* What is known of a worker of a message log. */
typedef struct sfp__worker_numbers {
    uint64_t samples, commits, fenced, rejected, answered, pending;
    double lag;         /* s from the log's receipt of a message to its delivery; NAN: unknown */
    double sum_changed; /* time of day at which the state that answers was written; NAN: none */
} sfp__worker_numbers;

typedef struct sfp__arrivals_kind {
    const char *name; /* key of its part of a checkpoint */
    /* Starts to read at the current position. */
    sfp_status (*start)(sfp__arrivals *a, sfp_error *err);
    /* May return an empty delivery when sfp__monotonic_seconds() reaches `until` or the run is stopped. The delivery is valid
     * until commit. */
    sfp_status (*next)(sfp__arrivals *a, double until, sfp__delivery *d, sfp_error *err);
    sfp_status (*commit)(sfp__arrivals *a, double seconds, sfp_error *err);
    /* Stores predictions, before their lines are written to predictions.jsonl. at: the time of day (ms). class_names, probability and unknown have
     * one entry per image. NULL: this kind does not store them. */
    sfp_status (*predicted)(sfp__arrivals *a, const sfp__delivery *d, int64_t at, int64_t timestamp,
                            const char *const *class_names, const float *probability, const float *unknown, sfp_error *err);
    /* Called when the checkpoint that sfp__delivery.save requested has been written. */
    sfp_status (*saved)(sfp__arrivals *a, sfp_error *err);
    bool (*has_work)(sfp__arrivals *a); /* true: a run that is being stopped must still serve a request; NULL: never */
    /* Whether the run writes predictions. *from: lines of predictions.jsonl with ids from this one on are removed and written again. */
    bool (*predicts)(const sfp__arrivals *a, uint64_t *from);
    sfp__arrivals_stats (*stats)(const sfp__arrivals *a);
    void (*worker)(sfp__arrivals *a, sfp__worker_numbers *out); /* may be called by any thread; NULL: not a log */
    void (*write)(const sfp__arrivals *a, sfp__json *j);        /* into the object that is open */
    bool (*read)(sfp__arrivals *a, const sfp__json_value *j, int task);
    void (*free)(sfp__arrivals *a);
} sfp__arrivals_kind;

/* The common part, with which the struct of each kind begins. */
struct sfp__arrivals {
    const sfp__arrivals_kind *kind;
    const sfp__plan *plan;
    const sfp__position *at; /* of the run */
    const sfp__learner *learner;
    sfp__arrivals_counts counts;
    sfp__lag *lag;      /* NULL: the clock has no lag */
    sfp__clock *clock;  /* NULL: a live stream */
    sfp__store *store;  /* NULL: an indexed stream */
    int64_t generation; /* of the last checkpoint; 0: there is none */
    atomic_uint checkpoints_asked,
        checkpoints_done; /* numbers of checkpoints that other threads have requested, and that were written */
};

static inline sfp_status sfp__arrivals_next(sfp__arrivals *a, double until, sfp__delivery *d, sfp_error *err)
{
    return a->kind->next(a, until, d, err);
}

static inline sfp_status sfp__arrivals_commit(sfp__arrivals *a, double seconds, sfp_error *err)
{
    return a->kind->commit(a, seconds, err);
}

static inline void sfp__arrivals_free(sfp__arrivals *a)
{
    if (a)
        a->kind->free(a);
}
DEFINE_OWNED_PTR(sfp__arrivals, sfp__arrivals_free)

sfp_status sfp__arrivals_indexed(const sfp__plan *p, const sfp__position *at, const sfp__learner *l, sfp__arrivals **out,
                                 sfp_error *err);
sfp_status sfp__arrivals_live(const sfp__plan *p, const sfp__position *at, const sfp__learner *l, sfp__classes *classes,
                              sfp__arrivals **out, sfp_error *err);

sfp_status sfp__arrivals_log(const sfp__plan *p, const sfp__position *at, sfp__learner *l, sfp__classes *classes,
                             sfp__arrivals **out, sfp_error *err);

/* classes.c: the label of a class in a live stream; a new class gets the next label. */
sfp_status sfp__classes_number(sfp__classes *c, const char *name, int32_t *out, sfp_error *err);
/* Live streams: whether samples with this label may be learned. With classes strict, the class must be known. */
bool sfp__classes_allowed(const sfp__classes *c, const char *name);
/* Counts a label that is not allowed and writes a message to `text`, with the class that is probably meant; "": this label was reported before.
 * file: the name of its sample. */
void sfp__classes_refuse(sfp__classes *c, const char *name, const char *file, char text[SFP_ERROR_MAX]);

#endif
