/* Experience replay: reservoir sampling (Vitter's algorithm R). After n samples every set of m of them is in the buffer with the
 * same probability. */
#include "buffer/buffer.h"

/* Draws from [0, n), exactly uniformly; n > 0. The second half is for streams of more than 2^32 samples. */
static uint64_t draw_below(sfp__rng *rng, uint64_t n)
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

int sfp__reservoir_draw_slot(sfp__buffer *b, sfp__rng *rng)
{
    uint64_t j = draw_below(rng, ++b->seen);
    return j < (uint64_t)b->opt.slots ? (int)j : -1;
}

void sfp__buffer_record_replacement(sfp__buffer *b, int slot, int k, int *nu)
{
    int at = 0;
    while (at < *nu && b->replaced[at] != slot)
        at++;
    b->replaced[at] = slot;
    b->retained[at] = k;
    *nu += at == *nu;
}

static sfp_status update(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                         sfp_error *err)
{
    (void)err;
    int nu = 0, stored = sfp__buffer_fill(b, batch);
    for (int i = stored; i < batch->b; i++) {
        int slot = sfp__reservoir_draw_slot(b, rng);
        if (slot >= 0)
            sfp__buffer_record_replacement(b, slot, i, &nu);
    }
    for (int i = 0; i < nu; i++)
        sfp__buffer_put(b, b->replaced[i], batch, b->retained[i]);
    change->stored = stored;
    change->nu = nu;
    return SFP_OK;
}

const sfp__buffer_method sfp__buffer_er = {
    .name = "er",
    .summary = "reservoir sampling: every sample is kept with the same probability",
    .update = update,
};
