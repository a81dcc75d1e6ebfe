/* DIR/events.jsonl: one line a timestamp (SPEC section 17), rotated by size. */
#ifndef SFP_RUN_EVENTS_H
#define SFP_RUN_EVENTS_H

#include "learner/learner.h"
#include "run/line_log.h"

#define SFP_EVENTS_FILE "events.jsonl"

/* ids: (t->offered). replay: the learner's options.replay, the row length of t->replay. A head on its own chooses nothing: with
 * t->coreset NULL the line says that it learned from the first coreset_count, all of them. */
sfp_status sfp__events_write(sfp_line_log *e, const sfp_timestamp *t, int replay, const uint64_t *ids, sfp_error *err);

#endif
