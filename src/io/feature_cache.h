/* A cache of features: vectors of floats that were computed once and are read by later runs (docs/method.md, section 14). It is a
 * table (key, value) in the SQLite file features.db of a directory. The key is a digest of everything that determines the value.
 *
 * Processes may share the file, and a process that is killed leaves a usable one (write-ahead log). SQLite does not detect each damage
 * of a file. So a value has a CRC-32: a damaged one counts as missing, and the next put replaces it. */
#ifndef SFP_IO_FEATURE_CACHE_H
#define SFP_IO_FEATURE_CACHE_H

#include "base/digest.h"
#include "base/error.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sfp__feature_cache sfp__feature_cache;

typedef struct sfp__feature_cache_stats {
    uint64_t damaged;            /* values that were read with a wrong checksum */
    bool full;                   /* a value was not added because the file has max_bytes */
    char problem[SFP_ERROR_MAX]; /* the failure after which nothing was added any more; "": none */
} sfp__feature_cache_stats;

/* Opens the cache of a directory; creates both if they are missing. Nothing is added beyond max_bytes. A file that is not a cache of
 * this version, or is damaged, is refused. */
sfp_status sfp__feature_cache_open(const char *directory, uint64_t max_bytes, sfp__feature_cache **out, sfp_error *err);
void sfp__feature_cache_close(sfp__feature_cache *c);
DEFINE_OWNED_PTR(sfp__feature_cache, sfp__feature_cache_close)

/* These functions may be called from several threads. get writes the value (n) and returns true, or returns false; then `value` is
 * not changed. put adds the value or replaces it. A failure to write is not an error; after it, nothing more is added. */
bool sfp__feature_cache_get(sfp__feature_cache *c, const sfp__digest *key, size_t n, float *value);
void sfp__feature_cache_put(sfp__feature_cache *c, const sfp__digest *key, size_t n, const float *value);
sfp__feature_cache_stats sfp__feature_cache_get_stats(sfp__feature_cache *c);

#endif
