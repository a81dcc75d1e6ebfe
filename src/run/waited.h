/* Pictures that waited for their label when a checkpoint was written. A run that goes on knows them by their identity when they
 * come again: they keep their number and are not predicted a second time. Until then they wait as those in memory do. */
#ifndef SFP_RUN_WAITED_H
#define SFP_RUN_WAITED_H

#include "base/error.h"

#include <jansson.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sfp_waited_one {
    uint64_t identity, id, mark;
    int64_t changed; /* as sfp_arrival */
    bool over;       /* it came, or was given up */
} sfp_waited_one;

typedef struct sfp_waited {
    sfp_waited_one *list;         /* (count) the oldest first */
    sfp_waited_one **by_identity; /* (count) */
    size_t count, missing;        /* missing: not over */
    size_t first;                 /* all before it are over */
} sfp_waited;

void sfp__waited_done(sfp_waited *w);

/* The number of the picture with this identity; false: it did not wait. Another thread may use the functions below meanwhile. */
bool sfp__waited_id(const sfp_waited *w, uint64_t identity, uint64_t *id);
/* The picture with this identity, one that is not over if there is one; NULL: it did not wait. */
sfp_waited_one *sfp__waited_find(const sfp_waited *w, uint64_t identity);
/* The oldest that is not over; NULL: none. */
sfp_waited_one *sfp__waited_oldest(sfp_waited *w);
void sfp__waited_over(sfp_waited *w, sfp_waited_one *one);

/* A list of four numbers each, the one of a checkpoint: adding to it, and back. false: it is none, or there is no memory. */
bool sfp__waited_put_json(json_t *list, const sfp_waited_one *one);
bool sfp__waited_read(sfp_waited *w, const json_t *list, uint64_t ids); /* ids: all are smaller */

#endif
