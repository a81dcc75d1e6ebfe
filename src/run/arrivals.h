/* How data comes to a run: a delivery at a time, in the order of the stream.
 *
 *     sfp__arrivals_next(a, until, &d, err);     what comes next; it waits for it
 *     ... predict, or learn ...
 *     sfp__arrivals_commit(a, seconds);          only now clock and ledger move: a run that ends before gets it again
 *
 * Two kinds: an indexed stream is known beforehand (arrivals_indexed.c: feed and clock), a live one is not (arrivals_live.c:
 * inbox and ledger). */
#ifndef SFP_RUN_ARRIVALS_H
#define SFP_RUN_ARRIVALS_H

#include "base/mem.h"
#include "learner/learner.h"
#include "run/batch_loader.h"
#include "run/clock.h"
#include "run/inbox.h"

enum { SFP__GROUP = 32 }; /* images predicted at once: where groups are cut decides the last bits */

typedef struct sfp__plan sfp__plan;
typedef struct sfp__classes sfp__classes;
typedef struct sfp_result sfp_result;

/* Samples to learn from, or images to predict, or neither: something went, it is time to save, or none could be read. */
typedef struct sfp__delivery {
    int task; /* the tasks before it have ended */
    /* to learn from, in one timestamp */
    int count;
    const sfp__sample *samples;
    int64_t arrived; /* samples of the stream up to here; -1: nothing to learn from came */
    double time;     /* in which they arrived, less what was spent on images that came with them; NAN: there is no rate */
    /* to predict */
    int predict_count;
    struct {
        uint64_t id;
        const char *name;
        const uint8_t *rgb;
    } predict[SFP__GROUP];
    bool changed; /* something came, or went, that a checkpoint has to know of */
    bool more; /* the rest of what came together follows: until then nothing is evaluated or saved, and the run is not stopped */
    bool end;  /* nothing comes any more, or it was stopped; the delivery is empty */
} sfp__delivery;

typedef struct sfp__arrivals_stats {
    double decode, wait_seconds;      /* seconds decoding; seconds waited for it */
    char first_error[SFP_ERROR_MAX];  /* why the first image to learn from was left out; "": none was */
    char first_unread[SFP_ERROR_MAX]; /* the same of those to predict */
    uint64_t unread;                  /* images to predict that could not be read */
    uint64_t waiting;                 /* images that wait for a label */
    sfp_status status;                /* live: why the source ended early ... */
    char last_error[SFP_ERROR_MAX];   /* ... in words */
} sfp__arrivals_stats;

typedef struct sfp__arrivals sfp__arrivals;

typedef struct sfp__arrivals_kind {
    const char *name; /* of its part of a checkpoint */
    /* Reading begins, where the position stands. */
    sfp_status (*start)(sfp__arrivals *a, sfp_error *err);
    /* It may come back empty when sfp__monotonic_seconds() is `until`, or the run is stopped. What it gives holds until
     * commit. */
    sfp_status (*next)(sfp__arrivals *a, double until, sfp__delivery *d, sfp_error *err);
    void (*commit)(sfp__arrivals *a, double seconds);
    /* Predictions are still to be written, and those from id *from on again. */
    bool (*predicts)(const sfp__arrivals *a, uint64_t *from);
    sfp__arrivals_stats (*stats)(const sfp__arrivals *a);
    json_t *(*json)(const sfp__arrivals *a); /* NULL: no memory */
    bool (*read)(sfp__arrivals *a, json_t *j, int task);
    void (*free)(sfp__arrivals *a);
} sfp__arrivals_kind;

/* The common part; a kind's own struct begins with it. */
struct sfp__arrivals {
    const sfp__arrivals_kind *kind;
    const sfp__plan *plan;
    sfp_result *r;     /* what is skipped, and of a live stream all that comes and goes, is counted there by its arrivals */
    sfp__lag *lag;     /* NULL: nothing can be late */
    sfp__clock *clock; /* NULL: a live stream */
};

static inline sfp_status sfp__arrivals_next(sfp__arrivals *a, double until, sfp__delivery *d, sfp_error *err)
{
    return a->kind->next(a, until, d, err);
}

static inline void sfp__arrivals_commit(sfp__arrivals *a, double seconds)
{
    a->kind->commit(a, seconds);
}

static inline void sfp__arrivals_free(sfp__arrivals *a)
{
    if (a)
        a->kind->free(a);
}
DEFINE_OWNED_PTR(sfp__arrivals, sfp__arrivals_free)

sfp_status sfp__arrivals_indexed(const sfp__plan *p, sfp_result *r, sfp__arrivals **out, sfp_error *err);
sfp_status sfp__arrivals_live(const sfp__plan *p, sfp_result *r, sfp__classes *classes, sfp__arrivals **out, sfp_error *err);

/* classes.c: the stream's label of a live image; a class that is new gets the next one. */
sfp_status sfp__classes_label(sfp__classes *c, const sfp__arrival *a, int32_t *out, sfp_error *err);

#endif
