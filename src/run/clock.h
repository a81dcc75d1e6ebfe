/* The arrival clock (docs/method.md, section 8): samples arrive at lambda per second, whether or not the learner is ready.
 * Samples for which it has no time are dropped, delayed or pooled (allocate.c).
 *
 *   off      every batch, without an arrival rate
 *   paper    a task keeps n_keep = max(1, floor(n / C_S)) of its n batches, at floor(i n / n_keep)
 *   virtual  processing times advance a simulated clock
 *   real     the wall clock
 *
 * virtual and real share one rule: while the learner is busy, arriving batches wait in a bounded queue. off and paper deliver
 * each batch in turn; the batches that paper excludes are removed beforehand (sfp__batches_keep).
 *
 * The caller takes the next batches, processes them and reports the processing time. Until then the clock does not advance: it
 * delivers the same batches again, also after a resume. */
#ifndef SFP_RUN_CLOCK_H
#define SFP_RUN_CLOCK_H

#include "base/error.h"
#include "io/json_read.h"
#include "io/json_write.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* DEFAULT: off without an arrival rate; with one, virtual, or real on live streams. */
typedef enum sfp__clock_kind {
    SFP__CLOCK_PAPER,
    SFP__CLOCK_VIRTUAL,
    SFP__CLOCK_REAL,
    SFP__CLOCK_OFF,
    SFP__CLOCK_DEFAULT
} sfp__clock_kind;
typedef enum sfp__queue_policy { SFP__QUEUE_DROP_OLDEST, SFP__QUEUE_DROP_NEWEST, SFP__QUEUE_BLOCK } sfp__queue_policy;

/* The name of a clock, "virtual"; DEFAULT has none. */
const char *sfp__clock_name(sfp__clock_kind kind);

/* C_S = cost * batches / (samples / lambda). */
double sfp__clock_cs(double cost, int64_t batches, int64_t samples, double lambda);
/* The number of batches that are kept out of n, at least 1 unless n is 0, and the index of the i-th of them. */
int64_t sfp__clock_keep(int64_t n, double cs);
int64_t sfp__clock_kept_at(int64_t i, int64_t n, int64_t keep);

/* The lag of the batches that were delivered. */
typedef struct sfp__lag {
    double sum, max, last; /* seconds; last: of several batches delivered at once, the lag of the oldest */
    uint64_t served;       /* batches */
} sfp__lag;

void sfp__lag_add(sfp__lag *l, double seconds); /* one batch */
void sfp__lag_join(sfp__lag *l, const sfp__lag *more);
/* Writes the member "lag". */
void sfp__lag_write(const sfp__lag *l, sfp__json *j);
bool sfp__lag_read(sfp__lag *l, const sfp__json_value *j);

typedef struct sfp__clock_options {
    sfp__clock_kind kind; /* not DEFAULT */
    double lambda;        /* VIRTUAL, REAL: samples per second */
    int queue;            /* capacity of the queue in batches; 0: batches that arrive while the learner is busy are dropped */
    sfp__queue_policy policy;
    int pool; /* maximum number of batches that wait and are delivered at once, in place of `queue`; 0: they are taken in turn */
    const atomic_int *stop; /* REAL: not 0 ends the waiting for a batch; NULL: it is never stopped */
} sfp__clock_options;

/* A batch in the queue. */
typedef struct sfp__queued_batch {
    int64_t batch;
    double arrived_at; /* a blocked stream delays only batches that arrive later */
} sfp__queued_batch;

typedef struct sfp__clock {
    sfp__clock_options opt;
    bool timed;             /* VIRTUAL or REAL: batches may wait and be dropped */
    int64_t batches;        /* in the stream */
    const int64_t *arrived; /* (batches) samples that have arrived when batch i is complete */
    double now;             /* seconds since the stream began */
    double blocked;         /* seconds for which the stream was blocked (policy block) */
    bool held;              /* the stream is blocked now */
    int64_t next;           /* first batch that has not arrived yet */
    int waiting, capacity;
    sfp__queued_batch *queue; /* (capacity) oldest first */
    int64_t *delivered;       /* (capacity) delivered and not processed yet */
    int delivered_count;
    double spent; /* seconds that the processed batches of this delivery took */
    sfp__lag lag; /* lag of the delivered batches */
    double began; /* REAL: sfp__monotonic_seconds() at time 0 */
} sfp__clock;

sfp_status sfp__clock_init(sfp__clock *c, const sfp__clock_options *opt, int64_t batches, const int64_t *arrived, sfp_error *err);
void sfp__clock_done(sfp__clock *c);

/* The batches to process now: one, or with a pool all that wait. NULL: the stream has ended, or the run was stopped. */
const int64_t *sfp__clock_next(sfp__clock *c, int *count);
/* Records that the first n batches of the delivery were processed in `seconds` (n 0: unlabelled images that arrived with them). REAL uses the wall
 * clock instead of `seconds`. Time advances when the whole delivery is processed. */
void sfp__clock_advance(sfp__clock *c, int n, double seconds);
/* REAL: excludes the last `seconds`, as if they had not passed. */
void sfp__clock_exclude(sfp__clock *c, double seconds);
/* The first batch that may still be delivered. */
int64_t sfp__clock_first(const sfp__clock *c);

/* Writes the clock for a checkpoint and reads it again; false: it does not fit this stream. */
void sfp__clock_write(const sfp__clock *c, sfp__json *j);
bool sfp__clock_read(sfp__clock *c, const sfp__json_value *j);

#endif
