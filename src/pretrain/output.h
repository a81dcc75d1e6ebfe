/* What a training leaves beside the model, and what an earlier one left. */
#ifndef SFP_PRETRAIN_OUTPUT_H
#define SFP_PRETRAIN_OUTPUT_H

#include "model/vit.h"
#include "pretrain/pretrain.h"

/* config.json: what reads the model needs, and how it came to be. result may be of an unfinished training. */
sfp_status sfp__pretrain_write_config(const char *path, const sfp_pretrain_options *o, const sfp_vit_config *c, int64_t pictures,
                                      const sfp_pretrain_result *r, sfp_error *err);

#define SFP__PRETRAIN_CHECKPOINT "checkpoint.safetensors"
#define SFP__PRETRAIN_CHECKPOINT_OLD SFP__PRETRAIN_CHECKPOINT ".old"
#define SFP__PRETRAIN_CONFIG "config.json"
#define SFP__PRETRAIN_LOG "log.jsonl"
#define SFP__PRETRAIN_MODEL "model.safetensors"
#define SFP__PRETRAIN_REPORT "report.html"

/* OUT, made where it is missing, is ours alone from here on (*made, *lock: io/folder.h). Without --resume one that holds a training
 * that was not finished is refused. */
sfp_status sfp__pretrain_take_folder(const sfp_pretrain_options *o, int *lock, int *made, sfp_error *err);
/* A training that begins, when nothing is left that could be wrong: removes the files of the one that was there, and says so. The
 * teacher's outputs stay: they may be of use again. */
sfp_status sfp__pretrain_clear_folder(const sfp_pretrain_options *o, const sfp_pretrain_hooks *hooks, sfp_error *err);

#endif
