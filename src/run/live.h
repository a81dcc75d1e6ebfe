/* The state of a live run, shared by run_live.c and run_live_classes.c. */
#ifndef SFP_RUN_LIVE_H
#define SFP_RUN_LIVE_H

#include "run/inbox.h"
#include "run/run_internal.h"
#include "stream/names.h"

struct sfp__live {
    sfp_inbox *inbox;
    sfp_ledger *ledger;
    sfp_line_log *predictions;
    sfp_names classes;
    int32_t *label_of; /* (label_room) stream label of a source's, -1: not seen yet */
    int label_room, trained_room;
    sfp_lag lag;
    int unseen;   /* classes of the test set, as told last */
    float *query; /* of pictures that are predicted at once */
};

/* The stream's label of a picture; a class that is new gets the next one. */
sfp_status sfp__live_label(sfp__run_state *s, const sfp_arrival *a, int32_t *out, sfp_error *err);

#endif
