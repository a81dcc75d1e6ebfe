/* The ledger of a live stream: which of its images wait for a label, and which are done with.
 *
 * An image goes one way, in this order, and every step is one call of the thread that learns:
 *
 *   inbox            numbers it; one that the ledger knows from a checkpoint keeps its id (sfp__ledger_id)
 *   without a label  sfp__ledger_meet tells a new one from one that waited before a break. A new one is predicted, and only then
 *                    waits (sfp__ledger_wait): a label that comes behind it finds it. The oldest may have to go for it
 *   its label        comes alone: sfp__ledger_label hands the image out, to go to the learner through the inbox; or with the
 *                    image, under another name. Until it is learned from, a checkpoint holds it as one that waits with a label
 *   ... with it      sfp__ledger_end_waiting, before its id is used: the waiting of the same image is over
 *   done with        learned from, dropped, not readable, given up: sfp__ledger_finish, last of all. Its mark is kept, so that
 *                    --resume does not take it again. What has no such end yet comes again after a break
 *
 * Of the images that are done with the last `keys` are known one by one (a ring), older ones by the latest time of change. */
#ifndef SFP_RUN_LEDGER_H
#define SFP_RUN_LEDGER_H

#include "base/mem.h"
#include "stream/source.h"

#include <jansson.h>

/* ------------------------------------------------------------------- an image */

typedef enum sfp__discard_reason {
    SFP_DISCARD_NONE,
    SFP_DISCARD_DROPPED,
    SFP_DISCARD_SKIPPED,
    SFP_DISCARD_EXPIRED
} sfp__discard_reason; /* of what is gone */

/* What the ledger says of an image. */
typedef enum sfp__arrival_status {
    SFP_ARRIVAL_NEW,      /* nothing */
    SFP_ARRIVAL_ABSENT,   /* it waited when the checkpoint was written and did not come again yet: there are no pixels */
    SFP_ARRIVAL_WAITING,  /* it waits for its label */
    SFP_ARRIVAL_LABELLED, /* it has its label and is on its way to the learner */
    SFP_ARRIVAL_ENDED,    /* it was absent, and came since or was given up */
} sfp__arrival_status;

typedef struct sfp__arrival {
    struct sfp__arrival *next; /* in a list */
    char *name;
    sfp__origin origin;
    double at;              /* sfp__monotonic_seconds() when it came */
    int32_t label;          /* of the source; -1: none */
    const char *class_name; /* of the label; the source's */
    uint8_t *rgb;           /* (S, S, 3); NULL: a label alone, or gone */
    sfp__raw_image kept;    /* the encoded original, where it is kept */
    sfp__discard_reason fate;
    sfp__arrival_status standing;
    struct sfp__arrival *older, *newer, *same; /* the ledger's: neighbours in its order, the next of the same hash */
} sfp__arrival;

void sfp__arrival_free(sfp__arrival *a);

/* A list, oldest first. */
typedef struct sfp__arrival_list {
    sfp__arrival *first, *last;
    int count;
} sfp__arrival_list;

void sfp__arrival_list_put(sfp__arrival_list *l, sfp__arrival *a);
sfp__arrival *sfp__arrival_list_take(sfp__arrival_list *l); /* the oldest; NULL: none */
void sfp__arrival_list_done(sfp__arrival_list *l);

/* ----------------------------------------------------------------- the ledger */

typedef struct sfp__ledger sfp__ledger;

/* capacity: images that may wait for a label; marks: as sfp_source, 0: nothing is kept of what is done with. */
sfp_status sfp__ledger_create(int capacity, size_t keys, sfp__ledger **out, sfp_error *err);
void sfp__ledger_free(sfp__ledger *l);
DEFINE_OWNED_PTR(sfp__ledger, sfp__ledger_free)

/* The id of the image with this identity that waited when the checkpoint was written; false: none did. Any thread may ask. */
bool sfp__ledger_id(sfp__ledger *l, uint64_t identity, uint64_t *id);

/* Of an image without a label. NEW: predict it, then let it wait; ABSENT: it goes on waiting; OVER: it had its end since, finish
 * it. */
sfp__arrival_status sfp__ledger_meet(sfp__ledger *l, const sfp__arrival *a);
/* Takes it over; returns how many were given up for it, the oldest first (with capacity 0: itself). */
uint64_t sfp__ledger_wait(sfp__ledger *l, sfp__arrival *a);
/* The oldest of this name that waits, which is LABELLED from now on and the caller's; NULL: none does. */
sfp__arrival *sfp__ledger_label(sfp__ledger *l, const char *name);
/* Of an image with a label: true: it waited for it, and gets the id that it had then. */
bool sfp__ledger_end_waiting(sfp__ledger *l, sfp__arrival *a);
/* Keeps its mark and frees it. */
void sfp__ledger_finish(sfp__ledger *l, sfp__arrival *a);
/* The line of this id is in the predictions. */
void sfp__ledger_predicted(sfp__ledger *l, uint64_t id);

uint64_t sfp__ledger_waiting(const sfp__ledger *l);       /* how many wait, in whatever standing */
uint64_t sfp__ledger_next_id(const sfp__ledger *l);       /* of images that come after a break */
uint64_t sfp__ledger_predicted_end(const sfp__ledger *l); /* predictions have smaller ids */

/* For a checkpoint, and back (before anything else is put into it); false: it is none, or there is no memory. */
json_t *sfp__ledger_json(const sfp__ledger *l);
bool sfp__ledger_read(sfp__ledger *l, json_t *j);
/* Of those that were read: the oldest go until no more than `max` are left; returns how many. */
uint64_t sfp__ledger_give_up(sfp__ledger *l, size_t max);
/* What is done with does not come again, and what waits does. */
sfp_status sfp__ledger_set_resume_filter(const sfp__ledger *l, sfp_source *s, sfp_error *err);

#endif
