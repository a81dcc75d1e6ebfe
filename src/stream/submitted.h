/* What a run tells the source of submitted samples (sources/submitted.c). The samples themselves are in the store (sample_store.h). */
#ifndef SFP_STREAM_SUBMITTED_H
#define SFP_STREAM_SUBMITTED_H

#include "stream/source.h"

bool sfp__is_submitted(const sfp_source *s);
/* A sample of the store waits to be learned or predicted. Any thread. */
sfp_status sfp__submitted_offer(sfp_source *source, uint64_t id, sfp_error *err);
/* While it is paused, the source delivers nothing; samples wait in the store. Any thread. */
void sfp__submitted_pause(sfp_source *source, bool paused);

#endif
