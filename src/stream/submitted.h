/* What a run tells a source that takes submitted samples: sources/submitted.c, or a watched directory in sync (sources/dir.c). The samples
 * themselves are in the store (sample_store.h). */
#ifndef SFP_STREAM_SUBMITTED_H
#define SFP_STREAM_SUBMITTED_H

#include "stream/source.h"

#include <pthread.h>

/* Ids of samples that the source has to deliver (offers.c). */
typedef struct sfp__offers {
    pthread_mutex_t lock; /* guards the following */
    pthread_cond_t more;
    bool paused;
    uint64_t *ids; /* [first, after_last) */
    size_t first, after_last, capacity;
} sfp__offers;

void sfp__offers_init(sfp__offers *o);
void sfp__offers_done(sfp__offers *o);
/* Takes an id; wait: it may wait a short time for one. false: there is none, or the source is paused. */
bool sfp__offers_take(sfp__offers *o, bool wait, uint64_t *id);
bool sfp__offers_paused(sfp__offers *o);

bool sfp__is_submitted(const sfp_source *s);
/* A sample of the store waits to be learned or predicted. Any thread. */
sfp_status sfp__submitted_offer(sfp_source *source, uint64_t id, sfp_error *err);
/* While it is paused, the source delivers nothing; samples wait in the store. Any thread. */
void sfp__submitted_pause(sfp_source *source, bool paused);

#endif
