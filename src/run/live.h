/* The state of a live run, shared by run_live.c and run_live_classes.c. */
#ifndef SFP_RUN_LIVE_H
#define SFP_RUN_LIVE_H

#include "run/done_marks.h"
#include "run/inbox.h"
#include "run/pending.h"
#include "run/run_internal.h"
#include "stream/names.h"

struct sfp__live {
    sfp_inbox *inbox;
    sfp_pending pending;
    sfp_line_log *predictions;
    sfp_names classes;
    int32_t *label_of; /* (label_room) stream label of a source's, -1: not seen yet */
    int label_room, trained_room;
    sfp_done_marks done;
    uint64_t next_id;   /* of the pictures that come after a break */
    uint64_t predicted; /* lines of predictions have smaller ids */
    sfp_lag lag;
    int unseen;             /* classes of the test set, as told last */
    sfp_waited waited;      /* for a label when the checkpoint was written */
    sfp_waited_one *joined; /* (joined_count) have got their label and are on their way to the learner */
    size_t joined_count, joined_room;
    float *query; /* of pictures that are predicted at once */
};

/* The stream's label of a picture; a class that is new gets the next one. */
sfp_status sfp__live_label(sfp__run_state *s, const sfp_arrival *a, int32_t *out, sfp_error *err);

#endif
