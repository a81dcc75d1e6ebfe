/* The arrival clock (docs/method.md, section 8): data comes at lambda samples a second
 * whatever the learner does; what it has no time for is lost, late or pooled.
 *
 *   off      every batch, no rate
 *   paper    a task keeps n_keep = max(1, floor(n / C_S)) of its n batches, at floor(i n / n_keep)
 *   virtual  the learner's cost advances a simulated clock
 *   real     the wall clock
 *
 * virtual and real share one rule: while the learner is busy, arriving batches
 * go to a bounded queue. off and paper (whose batches are left out beforehand:
 * sfp__batches_keep) give each in its turn.
 *
 * The caller asks for the next batches, learns, and tells what it cost: until
 * then the clock stands, and gives the same ones again, also after a break. */
#ifndef SFP_RUN_CLOCK_H
#define SFP_RUN_CLOCK_H

#include "base/error.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* DEFAULT: off without a rate; else virtual, for live streams real. */
typedef enum sfp__clock_kind {
    SFP_CLOCK_PAPER,
    SFP_CLOCK_VIRTUAL,
    SFP_CLOCK_REAL,
    SFP_CLOCK_OFF,
    SFP_CLOCK_DEFAULT
} sfp__clock_kind;
typedef enum sfp__queue_policy { SFP_QUEUE_DROP_OLDEST, SFP_QUEUE_DROP_NEWEST, SFP_QUEUE_BLOCK } sfp__queue_policy;

/* "virtual"; DEFAULT has none. */
const char *sfp__clock_name(sfp__clock_kind kind);

/* C_S = cost * batches / (samples / lambda). */
double sfp__clock_cs(double cost, int64_t batches, int64_t samples, double lambda);
/* How many of n batches are kept, and which one the i-th kept is. */
int64_t sfp__clock_keep(int64_t n, double cs);
int64_t sfp__clock_kept_at(int64_t i, int64_t n, int64_t keep);

/* How late batches were when their turn came. */
typedef struct sfp__lag {
    double sum, max, last; /* seconds; last: of several taken at once the oldest's */
    uint64_t served;       /* batches */
} sfp__lag;

void sfp__lag_add(sfp__lag *l, double seconds); /* one batch */
void sfp__lag_join(sfp__lag *l, const sfp__lag *more);
json_t *sfp__lag_json(const sfp__lag *l);
bool sfp__lag_read(sfp__lag *l, json_t *j);

typedef struct sfp__clock_options {
    sfp__clock_kind kind; /* not DEFAULT */
    double lambda;        /* VIRTUAL, REAL: samples a second */
    int queue;            /* batches that may wait; 0: what arrives while the learner is busy is dropped */
    sfp__queue_policy policy;
    bool pool;                         /* triage: everything that waits is taken at once (the queue is then not a limit) */
    int pool_most;                     /* triage: most batches taken at once; older ones are dropped */
    const atomic_int *stop; /* REAL: not 0 ends the waiting for a batch; NULL: it is never stopped */
} sfp__clock_options;

/* A batch in the queue. */
typedef struct sfp__queued_batch {
    int64_t batch;
    double arrived_at; /* its arrival; a stream held back moves those of later ones only */
} sfp__queued_batch;

typedef struct sfp__clock {
    sfp__clock_options opt;
    bool timed;             /* VIRTUAL or REAL: batches may wait, be late and be lost */
    int64_t batches;        /* of the stream */
    const int64_t *arrived; /* (batches) samples that have arrived when batch i is complete */
    double now;             /* seconds since the stream began */
    double blocked;         /* seconds the stream was held back (policy block) */
    bool held;              /* it is being held back now */
    int64_t next;           /* first batch that has not arrived yet */
    int waiting, capacity;
    sfp__queued_batch *queue; /* (capacity) oldest first */
    int64_t *delivered;       /* (capacity) given, and not learned from yet */
    int delivered_count;
    double spent; /* on those that were given with them and are done */
    sfp__lag lag; /* of the batches given */
    double began; /* real: wall clock at 0 */
} sfp__clock;

sfp_status sfp__clock_init(sfp__clock *c, const sfp__clock_options *opt, int64_t batches, const int64_t *arrived, sfp_error *err);
void sfp__clock_done(sfp__clock *c);

/* The batches to learn from now, one (triage: all that wait); NULL: the stream has ended, or the waiting was stopped. */
const int64_t *sfp__clock_next(sfp__clock *c, int *count);
/* The first n of these are done, or (n 0) something that came with them; it took `seconds` (REAL: the wall clock knows better and
 * ignores it). When all are done time goes on. */
void sfp__clock_advance(sfp__clock *c, int n, double seconds);
/* The first batch that it may still give. */
int64_t sfp__clock_first(const sfp__clock *c);

/* For a checkpoint, and back: the stream goes on where it was. false: it does not fit. */
json_t *sfp__clock_json(const sfp__clock *c);
bool sfp__clock_read(sfp__clock *c, json_t *j);

/* A whole number of an object, within a range. */
bool sfp__json_whole(json_t *root, const char *key, int64_t min, int64_t max, int64_t *out);

#endif
