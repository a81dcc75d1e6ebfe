/* Random numbers and a hash.
 *
 * The generator is Philox4x32-10 (Salmon et al., SC 2011), which is counter-based: the same key and counter yield the same bytes
 * on every machine. The state is an argument, is plain data, and is saved in checkpoints. */
#ifndef SFP_BASE_RNG_H
#define SFP_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct sfp__rng {
    uint64_t key;     /* the seed */
    uint64_t stream;  /* number of the sequence; sequences of one seed are independent */
    uint64_t counter; /* number of blocks drawn */
    uint32_t block[4];
    uint32_t left; /* number of unused words of block */
} sfp__rng;

sfp__rng sfp__rng_init(uint64_t seed, uint64_t stream);
uint32_t sfp__rng_u32(sfp__rng *r);
/* Uniform in [0, 1), with 53 random bits. */
double sfp__rng_double(sfp__rng *r);
/* Exactly uniform in [0, n); n > 0. */
uint32_t sfp__rng_below(sfp__rng *r, uint32_t n);
/* Standard normal, by the Box-Muller transform. */
double sfp__rng_normal(sfp__rng *r);

/* Computes one block: out = philox(counter, key). */
void sfp__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A 64-bit hash of bytes, eight at a time (FNV's multiplication and xor, with a fold). It distinguishes names, files and images;
 * it is not a cryptographic hash. Like all file formats of the project, it requires a little-endian machine. */
#define SFP__HASH_START UINT64_C(14695981039346656037)

static inline uint64_t sfp__hash(uint64_t h, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    h ^= n;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t w;
        memcpy(&w, p, sizeof w);
        h = (h ^ w) * UINT64_C(1099511628211);
        h ^= h >> 32;
    }
    for (; n; n--, p++)
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): the analyser cannot follow an int by its bytes */
        h = (h ^ *p) * UINT64_C(1099511628211);
    return h;
}

#endif
