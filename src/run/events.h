/* DIR/events.jsonl: one line a timestamp (SPEC section 17), rotated by size. */
#ifndef SFP_RUN_EVENTS_H
#define SFP_RUN_EVENTS_H

#include "learner/learner.h"

typedef struct sfp_events sfp_events;

/* Appends; lines from timestamp `from` on that a resumed run would write again are cut off first, in rotated files too; so is a
 * last line that was torn by a crash. from 0: all of them go. max_bytes: a file that would grow beyond becomes events.jsonl.1, that
 * one .2, ... up to `keep` old ones; 0: never. */
sfp_status sfp__events_open(const char *dir, uint64_t from, size_t max_bytes, int keep, sfp_events **out, sfp_error *err);
/* ids: (t->offered). replay: the learner's options.replay, the row length of t->replay. Lines gather in memory; after warm-up
 * nothing is allocated. */
sfp_status sfp__events_write(sfp_events *e, const sfp_timestamp *t, int replay, const uint64_t *ids, sfp_error *err);
/* Hands the lines to the system: a process that is killed afterwards loses none. A disk that is full: SFP_EIO, and the file ends
 * with a whole line; the lines are kept for another try. */
sfp_status sfp__events_flush(sfp_events *e, sfp_error *err);
void sfp__events_close(sfp_events *e); /* flush first to hear of errors */

#endif
