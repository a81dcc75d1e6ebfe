/* The feature cache of a backbone (docs/method.md, section 14): passes that have one read queries and mean embeddings of images
 * from a directory (io/feature_cache.h) instead of computing them, and add those that they compute.
 *
 * An entry of a query contains the mean tap and taps of at least half of the blocks, however many the pass asks for, so that runs
 * with different numbers of taps share their entries. A pass that asks for more taps than entries have is computed.
 *
 * A hit changes no number. The division of a pass into micro-batches stays the same, and a micro-batch is skipped only if all of
 * its values are known. The last bits of a value may depend on the size of its micro-batch and on its place in it; that is part
 * of the key. So that few keys differ, a pass measures once for each size whether the bits do depend on it.
 *
 * A hit must not save time either: a run is charged the real cost, through its source of time. Each plan computes its first
 * micro-batches in any case and measures them. For each value that it reads later, it charges the mean seconds of those that it has
 * computed. The time of reading and writing is deducted.
 *
 * A memo is used by one thread at a time; the threads of a pass share it. */
#ifndef SFP_MODEL_VIT_MEMO_H
#define SFP_MODEL_VIT_MEMO_H

#include "base/monotonic.h"
#include "io/feature_cache.h"
#include "model/vit.h"

typedef struct sfp__vit_memo sfp__vit_memo;

typedef struct sfp__vit_memo_options {
    const char *directory;
    uint64_t max_bytes;
    int merge_tokens;       /* value of the plans that use the cache; passes of plans with another value ignore it */
    int taps;               /* number of taps that passes may ask for; 0: as many as half of the blocks */
    sfp__time_source *time; /* is charged; while it is paused, no micro-batch is computed only to measure it */
} sfp__vit_memo_options;

/* `v` and o->time must outlive the memo. */
sfp_status sfp__vit_memo_create(sfp__vit *v, const sfp__vit_memo_options *o, sfp__vit_memo **out, sfp_error *err);
void sfp__vit_memo_free(sfp__vit_memo *m);
DEFINE_OWNED_PTR(sfp__vit_memo, sfp__vit_memo_free)

/* The following accept NULL. */

/* Sets whether passes ignore the memo, because their images were created by a method and do not occur again. Returns the previous
 * value. */
bool sfp__vit_memo_set_paused(sfp__vit_memo *m, bool on);

typedef struct sfp__vit_memo_stats {
    uint64_t hits, misses; /* values that were found, and that were not */
    sfp__feature_cache_stats cache;
} sfp__vit_memo_stats;
sfp__vit_memo_stats sfp__vit_memo_get_stats(sfp__vit_memo *m);

#endif
