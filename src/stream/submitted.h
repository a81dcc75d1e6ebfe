/* How a run informs a source about submitted samples. Such a source is sources/submitted.c, or a watched directory in sync (sources/dir.c). The
 * samples themselves are in the store (sample_store.h). */
#ifndef SFP_STREAM_SUBMITTED_H
#define SFP_STREAM_SUBMITTED_H

#include "stream/source.h"

#include <pthread.h>

/* A queue of ids of samples that the source must deliver (offers.c). */
typedef struct sfp__offers {
    pthread_mutex_t lock; /* guards the following */
    pthread_cond_t more;
    bool paused;
    uint64_t *ids; /* [first, after_last) */
    size_t first, after_last, capacity;
} sfp__offers;

void sfp__offers_init(sfp__offers *o);
void sfp__offers_done(sfp__offers *o);
/* Takes an id from the queue. wait: waits a short time if there is none. false: there is none, or the source is paused. */
bool sfp__offers_take(sfp__offers *o, bool wait, uint64_t *id);
bool sfp__offers_paused(sfp__offers *o);

bool sfp__is_submitted(const sfp_source *s);
/* Adds a sample of the store that must be learned or predicted to the queue of the source. Thread-safe. */
sfp_status sfp__submitted_offer(sfp_source *source, uint64_t id, sfp_error *err);
/* Pauses or resumes the source. A paused source delivers nothing; samples wait in the store. Thread-safe. */
void sfp__submitted_pause(sfp_source *source, bool paused);

#endif
