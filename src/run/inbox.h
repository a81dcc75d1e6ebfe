/* The inbox of a live source: a background thread reads images as they arrive, decodes them, gives each an id of the store of samples
 * and puts them into bounded queues.
 *
 * Labelled images form batches of b in order of arrival. An incomplete batch waits for more images until max_wait seconds after its first image,
 * or until an unlabelled image arrives. Batches that are complete while the learner is busy wait in a queue. If it is full, the policy decides,
 * as for the clock of an indexed stream (clock.h): a batch is dropped, or the source is blocked. The first image of a class, late labels and
 * corrections are never dropped. Unlabelled images and late labels have a queue of their own. If it is full, the source is blocked, so none of
 * them is dropped.
 *
 * Every image leaves the inbox in one of three lists, so that counts add up: `batch` (to train on), `unlabelled` or
 * `discarded`. */
#ifndef SFP_RUN_INBOX_H
#define SFP_RUN_INBOX_H

#include "io/image/image.h"
#include "run/clock.h"
#include "stream/source.h"

#include <stdatomic.h>

/* ------------------------------------------------------------------- an arrival */

typedef enum sfp__discard_reason { SFP__DISCARD_NONE, SFP__DISCARD_DROPPED, SFP__DISCARD_SKIPPED } sfp__discard_reason;

typedef struct sfp__arrival {
    struct sfp__arrival *next; /* in its list */
    char *name;
    uint64_t id;            /* of its sample in the store; unset for a label alone */
    double at;              /* sfp__monotonic_seconds() of its arrival */
    int32_t label;          /* in the source; -1: none */
    const char *class_name; /* of the label; owned by the source */
    uint8_t *rgb;           /* (S, S, 3); NULL: a label alone, or discarded */
    bool urgent;            /* never dropped */
    bool lost;              /* the source had no image */
    sfp__discard_reason fate;
    char *why; /* why the image was skipped; NULL: it was not skipped, or there is no memory for the text */
} sfp__arrival;

void sfp__arrival_free(sfp__arrival *a);
DEFINE_OWNED_PTR(sfp__arrival, sfp__arrival_free)

/* A linked list, oldest first. */
typedef struct sfp__arrival_list {
    sfp__arrival *first, *last;
    int count;
} sfp__arrival_list;

void sfp__arrival_list_put(sfp__arrival_list *l, sfp__arrival *a);
sfp__arrival *sfp__arrival_list_take(sfp__arrival_list *l); /* removes the oldest; NULL: the list is empty */
void sfp__arrival_list_done(sfp__arrival_list *l);

/* -------------------------------------------------------------------- the inbox */

typedef struct sfp__inbox_options {
    int size; /* S */
    sfp__resize resize;
    int batch;
    int queue; /* capacity, in batches */
    sfp__queue_policy policy;
    int pool; /* maximum number of batches that wait and are taken at once, in place of `queue`; 0: they are taken in turn */
    int unlabelled;      /* maximum number of unlabelled images and late labels; then the source is blocked */
    double max_wait;     /* seconds that an incomplete batch waits for more images; INFINITY: until the source ends */
    double arrival_rate; /* samples per second that are requested from the source; 0: as they arrive */
    sfp__store *store;
} sfp__inbox_options;

typedef struct sfp__inbox sfp__inbox;

/* The source must outlive the inbox, which alone may use it from now on. */
sfp_status sfp__inbox_create(sfp_source *s, const sfp__inbox_options *opt, sfp__inbox **out, sfp_error *err);
void sfp__inbox_free(sfp__inbox *b);

typedef struct sfp__inbox_output {
    sfp__arrival_list batch;      /* labelled images to train on; with a pool, of several batches */
    sfp__lag lag;                 /* lag of the batches in `batch` */
    sfp__arrival_list unlabelled; /* unlabelled images and late labels */
    sfp__arrival_list discarded;  /* images that are not trained on */
    int count;                    /* length of the three lists */
    bool waits;                   /* another complete batch waits in the inbox */
    bool batch_first; /* the batch arrived before the unlabelled images, and is small: it is learned before they are answered */
    bool end;         /* the source has ended, and no batch is left */
} sfp__inbox_output;

/* Waits for a batch, unlabelled images, a warning of the source, or many discarded images. A batch may be short if it is the last one, has waited
 * for max_wait, or is followed by an unlabelled image. Returns, perhaps with empty lists, when *stop is set (checked ten times per second) or when
 * sfp__monotonic_seconds() reaches `until`. The caller owns the images. */
void sfp__inbox_take(sfp__inbox *b, const atomic_int *stop, double until, sfp__inbox_output *out);
/* With a pool: if at most `batches` wait, they are taken one at a time. 0 (the initial value): all waiting batches are taken
 * together. */
void sfp__inbox_set_backlog(sfp__inbox *b, int batches);
/* Adds an image of the label queue that has its label now to the labelled images, as if it arrived now. */
void sfp__inbox_join(sfp__inbox *b, sfp__arrival *a);

typedef struct sfp__inbox_stats {
    double decode, wait_seconds; /* seconds of decoding; seconds that sfp__inbox_take waited */
    double rate;                 /* recent arrival rate of labelled images per second; NAN: unknown */
    sfp_status status;           /* why the source failed */
    char last_error[SFP_ERROR_MAX];
} sfp__inbox_stats;
sfp__inbox_stats sfp__inbox_get_stats(sfp__inbox *b);

#endif
