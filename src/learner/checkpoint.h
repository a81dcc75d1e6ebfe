/* What checkpoint.c (writing, choosing the file) and checkpoint_load.c share:
 * the format of a checkpoint.
 *
 * A safetensors file whose last tensor, "checksum", is the CRC-32 of all bytes
 * before it, header and metadata too. Tensors, n = slots filled, C = classes:
 *
 *     counters           I64 (10)    timestamps, offered, scored, trained, replayed, n_seen; what a controller said last: most of
 *                                    coreset, replay and steps (0: no limit), 1 when there is no time to spare
 *     rng                I64 (4, 8)  fingerprints, select, replay, buffer: key, stream, counter, block[4], left
 *     drift              F64 (7)     the detector's fields in order
 *     buffer.id .born .image_size    I64 (n)
 *     mix                F64 (4)     head mix: count, then the loss of each expert
 *     NAME               F32         values, names as in state files
 *     adam.m.NAME .v.NAME F32, adam.steps.NAME I32 (rows)
 *     buffer.query .mean_embed F32 (n, D), buffer.label I32 (n)
 *     buffer.has_query   U8 (n), buffer.image U8 (sum of image_size), one after another
 *     head.KIND.*        head mix, or a method: as the heads save themselves
 *     seen, allowed      U8 (C)
 *     select.NAME, buffer.METHOD.NAME  the parts of a selector or a buffer method that learns (base/parts.h)
 *     checksum           I32 (1)
 *
 * A method (learner.h) has counters, its head, seen, allowed and checksum. */
#ifndef SFP_LEARNER_CHECKPOINT_H
#define SFP_LEARNER_CHECKPOINT_H

#include "learner/saved.h"

#define SFP_CHECKPOINT_FORMAT "streamfp-checkpoint"
enum {
    SFP_CHECKPOINT_VERSION = 3,
    SFP_CHECKPOINT_COUNTERS = 10,
    SFP_CHECKPOINT_RNGS = 4,
    SFP_CHECKPOINT_RNG = 8,
    SFP_CHECKPOINT_DRIFT = 7
};

/* The generators in the order of the file. */
static inline void sfp__checkpoint_rngs(sfp_learner *l, sfp_rng *out[SFP_CHECKPOINT_RNGS])
{
    out[0] = &l->fp->rng;
    out[1] = &l->select_rng;
    out[2] = &l->replay_rng;
    out[3] = &l->buffer_rng;
}

/* One file into the learner. SFP_ENOTFOUND: no such file; SFP_EFORMAT, SFP_EIO: damaged; others (other settings, another
 * version, no memory): not the file's fault. On failure nothing has changed, but when predictors could not be told (no memory
 * for a snapshot). *position is newly allocated. `err` is not NULL. */
sfp_status sfp__checkpoint_load(sfp_learner *l, const char *path, char **position, sfp_error *err);

/* SFP_OK when the file at PATH is as it was written. */
sfp_status sfp__checkpoint_check(const char *path, sfp_error *err);

#endif
