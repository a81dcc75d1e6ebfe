/* A 64-bit hash of bytes, eight at a time (FNV's multiply and xor with a fold): tells names, files and pictures apart,
 * guards nothing. Little-endian machines only, as all formats here. */
#ifndef SFP_BASE_HASH_H
#define SFP_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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
        h = (h ^ *p) * UINT64_C(1099511628211);
    return h;
}

#endif
