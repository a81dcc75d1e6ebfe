/* The format of a checkpoint: everything a learner needs to go on, a kept file (io/kept.h) of these tensors; n = slots filled,
 * C = classes:
 *
 *     counters           I64 (10)  timestamps, offered, scored, trained, replayed, n_seen; what a controller said last: most of
 *                                  coreset, replay and steps (0: no limit), 1 when there is no time to spare
 *     rng.fingerprints .select .replay .buffer   I64 (8)  key, stream, counter, block[4], left
 *     drift              F64 (7)   the detector's fields in order
 *     mix                F64 (4)   head mix: count, then the loss of each expert
 *     NAME               F32       values, names as in state files
 *     adam.m.NAME .v.NAME F32, adam.steps.NAME I32 (rows)
 *     select.NAME        the parts of a selector that learns (select/parts.h), buffer.METHOD.NAME those of a buffer method
 *     buffer.id .born .image_size I64 (n), buffer.query .mean_embed F32 (n, D), buffer.label I32 (n)
 *     buffer.has_query   U8 (n), buffer.image U8 (sum of image_size), one after another
 *     seen, allowed      U8 (C)
 *     head.KIND.*        head mix, or a method: as the heads write themselves
 *
 * A method (learner.h) has counters, seen, allowed and its head. */
#ifndef SFP_LEARNER_CHECKPOINT_H
#define SFP_LEARNER_CHECKPOINT_H

#include "learner/saved.h"

#define SFP_CHECKPOINT_FORMAT "streamfp-checkpoint"
enum { SFP_CHECKPOINT_VERSION = 3 };

#endif
