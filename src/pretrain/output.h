/* What a training leaves beside the model. */
#ifndef SFP_PRETRAIN_OUTPUT_H
#define SFP_PRETRAIN_OUTPUT_H

#include "model/vit.h"
#include "pretrain/pretrain.h"

/* config.json: what reads the model needs, and how it came to be. result may be of an unfinished training. */
sfp_status sfp__pretrain_write_config(const char *path, const sfp_pretrain_options *o, const sfp_vit_config *c, int64_t pictures,
                                      const sfp_pretrain_result *r, sfp_error *err);

#endif
