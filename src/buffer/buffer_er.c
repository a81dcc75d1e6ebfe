/* Experience replay: reservoir sampling (Vitter's algorithm R). After n samples each set of m of them is in the buffer with
 * the same probability. */
#include "buffer/buffer_internal.h"

/* [0, n), exactly uniform; n > 0. Streams of more than 2^32 samples need the second half. */
static uint64_t below(sfp_rng *rng, uint64_t n)
{
    if (n <= UINT32_MAX)
        return sfp__rng_below(rng, (uint32_t)n);
    uint64_t tail = -n % n, x; /* 2^64 mod n */
    do {
        x = (uint64_t)sfp__rng_u32(rng) << 32;
        x |= sfp__rng_u32(rng);
    } while (x < tail);
    return x % n;
}

static sfp_status update(sfp_buffer *b, const sfp_buffer_batch *batch, sfp_rng *rng, sfp_buffer_change *change, sfp_error *err)
{
    (void)err;
    int nu = 0, stored = sfp__buffer_fill(b, batch);
    for (int i = stored; i < batch->b; i++) {
        uint64_t j = below(rng, ++b->seen);
        if (j >= (uint64_t)b->opt.slots)
            continue;
        int at = 0; /* a later sample of the batch can push out an earlier one: only the last is told, and copied */
        while (at < nu && b->replaced[at] != (int)j)
            at++;
        b->replaced[at] = (int)j;
        b->retained[at] = i;
        if (at == nu)
            nu++;
    }
    for (int i = 0; i < nu; i++)
        sfp__buffer_put(b, b->replaced[i], batch, b->retained[i]);
    change->stored = stored;
    change->nu = nu;
    return SFP_OK;
}

const sfp_buffer_method sfp__buffer_er = {
    .name = "er",
    .summary = "reservoir: every sample seen is kept with the same probability",
    .update = update,
};
