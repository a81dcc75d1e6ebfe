/* State of selectors and buffer methods (base/parts.h) in checkpoints: parts as tensors PREFIX.NAME. */
#ifndef SFP_LEARNER_PARTS_H
#define SFP_LEARNER_PARTS_H

#include "base/parts.h"
#include "buffer/buffer.h"
#include "io/tensor/safetensors.h"

/* fn with every part as a tensor; names and shapes hold during the call, data as long as the state. */
sfp_status sfp__parts_visit(const char *prefix, sfp_parts_fn parts, void *state,
                            sfp_status (*fn)(void *ctx, const sfp_tensor *t, sfp_error *err), void *ctx, sfp_error *err);
/* SFP_OK: the file has every part in its shape and type. */
sfp_status sfp__parts_check(const char *prefix, sfp_parts_fn parts, void *state, const sfp_tensor_file *st, sfp_error *err);
/* After a check; cannot fail. */
void sfp__parts_load(const char *prefix, sfp_parts_fn parts, void *state, const sfp_tensor_file *st);

/* The same for the state of a buffer's method, PREFIX is buffer.METHOD; nothing for NULL. */
sfp_status sfp__parts_visit_buffer(const sfp_buffer *b, sfp_status (*fn)(void *ctx, const sfp_tensor *t, sfp_error *err),
                                   void *ctx, sfp_error *err);
sfp_status sfp__parts_check_buffer(const sfp_buffer *b, const sfp_tensor_file *st, sfp_error *err);
void sfp__parts_load_buffer(const sfp_buffer *b, const sfp_tensor_file *st);

#endif
