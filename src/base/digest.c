#include "base/digest.h"

#include "base/rng.h"

#include <string.h>

enum { LANES = 4 };
static const uint64_t factor = UINT64_C(0x9E3779B97F4A7C15); /* odd, so that a step loses no information */

static inline uint64_t step(uint64_t h, uint64_t word)
{
    h = (h ^ word) * factor;
    return h ^ h >> 32;
}

sfp__digest sfp__digest_bytes(sfp__digest start, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint64_t lane[LANES] = {start.word[0] ^ UINT64_C(0x243F6A8885A308D3), start.word[1] ^ UINT64_C(0x13198A2E03707344),
                            start.word[0] ^ UINT64_C(0xA4093822299F31D0), start.word[1] ^ UINT64_C(0x082EFA98EC4E6C89)};
    size_t left = n;
    for (; left >= sizeof lane; left -= sizeof lane, p += sizeof lane) {
        uint64_t word[LANES];
        memcpy(word, p, sizeof word);
        for (int i = 0; i < LANES; i++)
            lane[i] = step(lane[i], word[i]);
    }
    uint64_t tail[LANES] = {0};
    if (left)
        memcpy(tail, p, left);
    for (int i = 0; i < LANES; i++)
        lane[i] = step(step(lane[i], tail[i]), n);
    return (sfp__digest){{sfp__hash(SFP__HASH_START, lane, sizeof lane), sfp__hash(factor, lane, sizeof lane)}};
}
