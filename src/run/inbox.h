/* Images of a live source on their way to the learner: a thread of its own takes them as they come, decodes them and puts them
 * into bounded queues.
 *
 * Labelled ones make batches of b in the order of their arrival. A batch that is complete while the learner is busy waits among
 * `queue` others; what a full queue does is the policy's matter, as with the clock of an indexed stream (clock.h): dropped, or
 * the source is held back. Images without a label, and labels that came late, go beside them.
 *
 * Everything that came leaves by one way, so that counts add up: learned from (batch), without a label (others), or gone. */
#ifndef SFP_RUN_INBOX_H
#define SFP_RUN_INBOX_H

#include "io/image/image.h"
#include "run/clock.h"
#include "run/ledger.h"

#include <stdatomic.h>

typedef struct sfp__inbox_options {
    int size; /* S */
    sfp__resize resize;
    bool keep_encoded;
    int batch;
    int queue; /* batches that may wait */
    sfp__queue_policy policy;
    int pool;            /* triage: most batches that wait and are taken at once, whatever queue is; 0: one at a time */
    int unlabelled;      /* images without a label (and labels) that may wait to be looked at; more are held back, or expire */
    double arrival_rate; /* samples a second that are asked for; 0: as they come */
    uint64_t first_id;   /* number of the first image */
    sfp__ledger *ledger; /* knows images that have a number already; NULL: there are none */
} sfp__inbox_options;

typedef struct sfp__inbox sfp__inbox;

/* The source must outlive it and is its own from now on. */
sfp_status sfp__inbox_create(sfp_source *s, const sfp__inbox_options *opt, sfp__inbox **out, sfp_error *err);
void sfp__inbox_free(sfp__inbox *b);

typedef struct sfp__inbox_output {
    sfp__arrival_list batch;      /* labelled images to learn from; triage: of several batches */
    sfp__lag lag;                 /* how long ago these batches were complete */
    sfp__arrival_list unlabelled; /* without a label, and labels alone */
    sfp__arrival_list discarded;  /* what will never be learned from */
    int count;                    /* how many are in these lists */
    bool end;                     /* nothing comes any more */
} sfp__inbox_output;

/* Waits for a batch or others, for a remark of the source, or for many that are gone; a last batch may be short, also one after
 * the source's pause. With *stop set (looked at ten times a second), or when sfp__monotonic_seconds() is `until`, it comes back,
 * perhaps with nothing. The lists are the caller's. */
void sfp__inbox_take(sfp__inbox *b, const atomic_int *stop, double until, sfp__inbox_output *out);
/* An image without a label that has one now: joins the labelled ones as if it came now. */
void sfp__inbox_join(sfp__inbox *b, sfp__arrival *a);

typedef struct sfp__inbox_stats {
    double decode, wait_seconds; /* seconds decoding; seconds the taker waited */
    double rate;                 /* labelled images per second lately; NAN: not known yet */
    uint64_t next_id;
    sfp_status status; /* why the source ended early */
    char first_error[SFP_ERROR_MAX], last_error[SFP_ERROR_MAX];
} sfp__inbox_stats;
sfp__inbox_stats sfp__inbox_get_stats(sfp__inbox *b);

#endif
