/* Marks of the last pictures that a live stream is done with, a ring: what --resume tells a watched folder to leave out. Of those
 * that were overwritten the time of the latest change is kept. */
#ifndef SFP_RUN_DONE_MARKS_H
#define SFP_RUN_DONE_MARKS_H

#include "base/error.h"

#include <jansson.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sfp_done_marks {
    uint64_t *mark;   /* (room) */
    int64_t *changed; /* (room) */
    size_t room, count, next;
    int64_t until; /* the latest change of those that were overwritten */
} sfp_done_marks;

sfp_status sfp__done_marks_init(sfp_done_marks *m, size_t room, sfp_error *err); /* room 0: nothing is kept */
void sfp__done_marks_done(sfp_done_marks *m);
void sfp__done_marks_put(sfp_done_marks *m, uint64_t mark, int64_t changed);

/* mark, changed, mark, changed ..., the oldest first; and back: false when they are none, or too many. */
json_t *sfp__done_marks_json(const sfp_done_marks *m);
bool sfp__done_marks_read(sfp_done_marks *m, const json_t *list, int64_t until);

#endif
