/* A 128-bit digest of bytes, for keys of caches: two different inputs practically never have the same digest.
 *
 * It uses the step of sfp__hash (base/rng.h) on four independent lanes, so that the multiplications of a CPU overlap: an image of
 * 224 x 224 floats takes about 40 microseconds. It is not a cryptographic digest. */
#ifndef SFP_BASE_DIGEST_H
#define SFP_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sfp__digest {
    uint64_t word[2];
} sfp__digest;

/* Returns the digest of n bytes after `start`, which is the digest of everything before them; {0}: nothing. */
sfp__digest sfp__digest_bytes(sfp__digest start, const void *bytes, size_t n);

static inline bool sfp__digest_equal(const sfp__digest *a, const sfp__digest *b)
{
    return a->word[0] == b->word[0] && a->word[1] == b->word[1];
}

#endif
