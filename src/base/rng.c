#include "base/rng.h"

#include <math.h>
#include <string.h>

void sfp__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4], k0 = key[0], k1 = key[1];
    memcpy(c, counter, sizeof c);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t n0 = (uint32_t)(b >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)b;
        c[3] = (uint32_t)a;
        c[0] = n0;
        c[2] = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

sfp__rng sfp__rng_init(uint64_t seed, uint64_t stream)
{
    return (sfp__rng){.key = seed, .stream = stream};
}

uint32_t sfp__rng_u32(sfp__rng *r)
{
    if (r->left == 0) {
        uint32_t counter[4] = {(uint32_t)r->counter, (uint32_t)(r->counter >> 32), (uint32_t)r->stream,
                               (uint32_t)(r->stream >> 32)};
        uint32_t key[2] = {(uint32_t)r->key, (uint32_t)(r->key >> 32)};
        sfp__philox(counter, key, r->block);
        r->counter++;
        r->left = 4;
    }
    return r->block[4 - r->left--];
}

double sfp__rng_double(sfp__rng *r)
{
    uint32_t hi = sfp__rng_u32(r) >> 5, lo = sfp__rng_u32(r) >> 6;
    return ((double)hi * 67108864.0 + (double)lo) / 9007199254740992.0;
}

uint32_t sfp__rng_below(sfp__rng *r, uint32_t n)
{
    uint32_t limit = (uint32_t)-n % n; /* 2^32 mod n; rejecting low words below it makes all results equally likely */
    for (;;) {
        uint64_t product = (uint64_t)sfp__rng_u32(r) * n;
        if ((uint32_t)product >= limit)
            return (uint32_t)(product >> 32);
    }
}

double sfp__rng_normal(sfp__rng *r)
{
    double u = 1 - sfp__rng_double(r), v = sfp__rng_double(r); /* u in (0, 1] */
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
