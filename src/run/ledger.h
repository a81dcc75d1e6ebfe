/* The ledger of a live stream: its label queue, and the labelled keys of the images that were processed.
 *
 * An image passes through these steps in this order. Each step is one call of the thread that trains:
 *
 *   arrival          The inbox assigns an id. An image that the ledger knows from a checkpoint keeps its id (sfp__ledger_id).
  *   unlabelled sfp__ledger_meet returns whether the image is new or was in the label queue of the checkpoint. A new image is
 *                    predicted and then enters the queue (sfp__ledger_wait), so that a label which arrives later finds it. If the
 *                    queue is full, the oldest image expires.
 *   label alone      sfp__ledger_label removes the image from the queue; it reaches the learner through the inbox. Until it is
 *                    trained on, a checkpoint holds it in the queue.
 *   labelled image   The image arrives again with a label, under another name. sfp__ledger_end_waiting removes its earlier copy
 *                    from the queue; it must be called before the id is used.
 *   end              The image was trained on, dropped, skipped or has expired: sfp__ledger_finish records its labelled key, so
 *                    that --resume does not deliver it again. An image without such an end is delivered again.
 *
 * A ring holds the last `keys` labelled keys. Older images are known by the latest time of change among them. */
#ifndef SFP_RUN_LEDGER_H
#define SFP_RUN_LEDGER_H

#include "base/mem.h"
#include "stream/source.h"

#include <jansson.h>

/* ------------------------------------------------------------------- an arrival */

typedef enum sfp__discard_reason {
    SFP_DISCARD_NONE,
    SFP_DISCARD_DROPPED,
    SFP_DISCARD_SKIPPED,
    SFP_DISCARD_EXPIRED
} sfp__discard_reason;

/* The place of an image in the ledger. */
typedef enum sfp__arrival_status {
    SFP_ARRIVAL_NEW,      /* not in the ledger */
    SFP_ARRIVAL_ABSENT,   /* in the label queue of the checkpoint and not delivered again yet: it has no pixels */
    SFP_ARRIVAL_WAITING,  /* in the label queue */
    SFP_ARRIVAL_LABELLED, /* has its label and is on its way to the learner */
    SFP_ARRIVAL_ENDED,    /* was absent; it has arrived since, or has expired */
} sfp__arrival_status;

typedef struct sfp__arrival {
    struct sfp__arrival *next; /* in its list */
    char *name;
    sfp__origin origin;
    double at;              /* sfp__monotonic_seconds() of its arrival */
    int32_t label;          /* in the source; -1: none */
    const char *class_name; /* of the label; owned by the source */
    uint8_t *rgb;           /* (S, S, 3); NULL: a label alone, or discarded */
    sfp__raw_image kept;    /* the encoded file, if the buffer keeps it */
    sfp__discard_reason fate;
    sfp__arrival_status standing;
    struct sfp__arrival *older, *newer, *same; /* in the ledger: neighbours in its order, next entry with the same hash */
} sfp__arrival;

void sfp__arrival_free(sfp__arrival *a);

/* A linked list, oldest first. */
typedef struct sfp__arrival_list {
    sfp__arrival *first, *last;
    int count;
} sfp__arrival_list;

void sfp__arrival_list_put(sfp__arrival_list *l, sfp__arrival *a);
sfp__arrival *sfp__arrival_list_take(sfp__arrival_list *l); /* removes the oldest; NULL: the list is empty */
void sfp__arrival_list_done(sfp__arrival_list *l);

/* ----------------------------------------------------------------- the ledger */

typedef struct sfp__ledger sfp__ledger;

/* capacity: of the label queue; keys: number of labelled keys to keep (sfp__source_ops), 0: none. */
sfp_status sfp__ledger_create(int capacity, size_t keys, sfp__ledger **out, sfp_error *err);
void sfp__ledger_free(sfp__ledger *l);
DEFINE_OWNED_PTR(sfp__ledger, sfp__ledger_free)

/* Finds the id of an image in the label queue of the checkpoint by its file key; false: there is none. Thread-safe. */
bool sfp__ledger_id(sfp__ledger *l, uint64_t file_key, uint64_t *id);

/* Called for an unlabelled image. NEW: predict it and call sfp__ledger_wait; ABSENT: call sfp__ledger_wait; ENDED: call
 * sfp__ledger_finish. */
sfp__arrival_status sfp__ledger_meet(sfp__ledger *l, const sfp__arrival *a);
/* Adds an image to the label queue, which owns it. Returns how many images expire, the oldest first (capacity 0: this image). */
uint64_t sfp__ledger_wait(sfp__ledger *l, sfp__arrival *a);
/* Removes the oldest image of this name from the queue; it is LABELLED from now on, and the caller owns it. NULL: none. */
sfp__arrival *sfp__ledger_label(sfp__ledger *l, const char *name);
/* Called for a labelled image. true: it was in the label queue and gets the id that it had there. */
bool sfp__ledger_end_waiting(sfp__ledger *l, sfp__arrival *a);
/* Records the labelled key and frees the image. */
void sfp__ledger_finish(sfp__ledger *l, sfp__arrival *a);
/* The prediction with this id is written. */
void sfp__ledger_predicted(sfp__ledger *l, uint64_t id);

uint64_t sfp__ledger_waiting(const sfp__ledger *l);       /* images in the label queue, also LABELLED and ABSENT ones */
uint64_t sfp__ledger_next_id(const sfp__ledger *l);       /* of images that arrive after a resume */
uint64_t sfp__ledger_predicted_end(const sfp__ledger *l); /* all written predictions have smaller ids */

/* Writes the ledger for a checkpoint and reads it into an empty ledger; false: it is malformed, or there is no memory. */
json_t *sfp__ledger_json(const sfp__ledger *l);
bool sfp__ledger_read(sfp__ledger *l, json_t *j);
/* Expires the oldest ABSENT entries until at most `max` are left; returns how many expire. */
uint64_t sfp__ledger_expire(sfp__ledger *l, size_t max);
/* Makes the source deliver images of the label queue again, but not processed images. */
sfp_status sfp__ledger_set_resume_filter(const sfp__ledger *l, sfp_source *s, sfp_error *err);

#endif
