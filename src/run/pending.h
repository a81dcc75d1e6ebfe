/* Pictures that wait for their label (SPEC section 9): a bounded set from which the oldest goes. */
#ifndef SFP_RUN_PENDING_H
#define SFP_RUN_PENDING_H

#include "run/inbox.h"

typedef struct sfp_pending {
    sfp_arrivals list;
    int most;
} sfp_pending;

/* Takes it over. What has to go for it (with most 0: itself) comes back, to be freed; NULL: nothing. */
sfp_arrival *sfp__pending_put(sfp_pending *p, sfp_arrival *a);
/* The oldest with this name, or this identity (not 0), taken out; NULL: none waits. */
sfp_arrival *sfp__pending_named(sfp_pending *p, const char *name);
sfp_arrival *sfp__pending_identical(sfp_pending *p, uint64_t identity);

#endif
