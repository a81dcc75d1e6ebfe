/* No rehearsal: samples are counted, none is kept. */
#include "buffer/buffer.h"

static sfp_status update(sfp_buffer *b, const sfp_buffer_batch *batch, sfp_rng *rng, sfp_buffer_change *change, sfp_error *err)
{
    (void)rng;
    (void)change;
    (void)err;
    b->seen += (uint64_t)batch->b;
    return SFP_OK;
}

const sfp_buffer_method sfp__buffer_none = {
    .name = "none",
    .summary = "keeps nothing",
    .keeps_nothing = true,
    .update = update,
};
