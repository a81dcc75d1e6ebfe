/* A directory of features: vectors of floats that were computed once and are read by later runs (docs/method.md, section 14).
 *
 * The directory contains segments, files NAME.features. A segment is a header and records of equal size, which are only appended.
 * Its header names the context, everything besides the image that determines the values, and the width of the vectors:
 *
 *     header   char magic[8]; uint32 version, width; uint64 context[2]; uint32 record_bytes, crc       (40 bytes)
 *     record   uint64 key[2]; uint32 kind, crc; float value[width]
 *
 * crc is the CRC-32 of the other bytes of the header or record. A record is checked when it is read. A damaged one counts as
 * missing, and the next put writes it again in place. A killed process leaves at most an incomplete last record, which is ignored
 * and then overwritten.
 *
 * Processes may share a directory. A process appends to a segment that it has locked (flock), a new one if all others are locked.
 * Records that others append while a cache is open are not seen. No record is synchronised to disk: the checks make it
 * unnecessary. */
#ifndef SFP_IO_FEATURE_CACHE_H
#define SFP_IO_FEATURE_CACHE_H

#include "base/digest.h"
#include "base/error.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sfp__feature_cache sfp__feature_cache;

typedef struct sfp__feature_cache_options {
    const char *directory; /* created if it is missing */
    uint64_t max_bytes;    /* nothing is added if the segments of the directory would take more; several writers may exceed it
                              by 16 MiB each, because they measure the directory from time to time */
    sfp__digest context;
    int width; /* floats per value */
} sfp__feature_cache_options;

typedef struct sfp__feature_cache_stats {
    uint64_t entries;            /* records in the index */
    uint64_t added;              /* records that were appended */
    uint64_t damaged;            /* records that were read and did not have their checksum */
    uint64_t ignored;            /* files of the directory that are not segments of this version */
    bool full;                   /* a record was not added because the directory has max_bytes */
    char problem[SFP_ERROR_MAX]; /* why nothing is added since; "": no failure */
} sfp__feature_cache_stats;

/* Opens the directory and reads the keys of all segments with this context and width. */
sfp_status sfp__feature_cache_open(const sfp__feature_cache_options *o, sfp__feature_cache **out, sfp_error *err);
void sfp__feature_cache_close(sfp__feature_cache *c);
DEFINE_OWNED_PTR(sfp__feature_cache, sfp__feature_cache_close)

/* These functions may be called from several threads. get writes the value (width) and returns true, or returns false; then
 * `value` is undefined. put adds the value unless it is there. A failure to write is not an error: it ends the adding. The index
 * allocates memory when it doubles. */
bool sfp__feature_cache_get(sfp__feature_cache *c, uint32_t kind, const sfp__digest *key, float *value);
void sfp__feature_cache_put(sfp__feature_cache *c, uint32_t kind, const sfp__digest *key, const float *value);
sfp__feature_cache_stats sfp__feature_cache_get_stats(sfp__feature_cache *c);

#endif
