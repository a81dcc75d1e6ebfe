/* Random numbers, and hashes.
 *
 * Philox4x32-10 (Salmon et al., SC 2011), counter-based.
 *
 * The same key and counter give the same bytes on every machine; the state is
 * an argument, is plain data, and is saved in checkpoints. */
#ifndef SFP_BASE_RNG_H
#define SFP_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct sfp__rng {
    uint64_t key;     /* the seed */
    uint64_t stream;  /* independent sequences of one seed */
    uint64_t counter; /* blocks drawn */
    uint32_t block[4];
    uint32_t left; /* words of block not used yet */
} sfp__rng;

sfp__rng sfp__rng_init(uint64_t seed, uint64_t stream);
uint32_t sfp__rng_u32(sfp__rng *r);
/* [0, 1), 53 bits */
double sfp__rng_double(sfp__rng *r);
/* [0, n), exactly uniform; n > 0 */
uint32_t sfp__rng_below(sfp__rng *r, uint32_t n);
/* standard normal (Box-Muller) */
double sfp__rng_normal(sfp__rng *r);

/* One block: out = philox(counter, key). */
void sfp__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A 64-bit hash of bytes, eight at a time (FNV's multiply and xor with a fold): tells names, files and images apart, guards
 * nothing. Little-endian machines only, as all formats here. */
#define SFP_HASH_START UINT64_C(14695981039346656037)

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
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): it cannot follow an int by its bytes */
        h = (h ^ *p) * UINT64_C(1099511628211);
    return h;
}

#endif
