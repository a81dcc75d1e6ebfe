/* DIR/events.jsonl: one line a timestamp (SPEC section 17), rotated by size. */
#ifndef SFP_RUN_EVENTS_H
#define SFP_RUN_EVENTS_H

#include "learner/learner.h"

typedef struct sfp_events sfp_events;

/* Appends; lines from timestamp `from` on that a resumed run would write again are cut off first. max_bytes: a file that grows
 * beyond becomes events.jsonl.1, that one .2, ... up to `keep` old ones. */
sfp_status sfp__events_open(const char *dir, uint64_t from, size_t max_bytes, int keep, sfp_events **out, sfp_error *err);
sfp_status sfp__events_write(sfp_events *e, const sfp_timestamp *t, const uint64_t *ids, sfp_error *err);
sfp_status sfp__events_flush(sfp_events *e, sfp_error *err);
void sfp__events_close(sfp_events *e);

#endif
