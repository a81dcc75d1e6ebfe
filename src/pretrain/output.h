/* What a training leaves in its folder beside the model, and what an earlier one left: the course of it (log.jsonl, one line of
 * JSON a point, and report.html, the same as curves), config.json, and the folder itself. */
#ifndef SFP_PRETRAIN_OUTPUT_H
#define SFP_PRETRAIN_OUTPUT_H

#include "model/vit.h"
#include "pretrain/pretrain.h"

#include <stdio.h>

#define SFP__PRETRAIN_CHECKPOINT "checkpoint.safetensors"
#define SFP__PRETRAIN_CHECKPOINT_OLD SFP__PRETRAIN_CHECKPOINT ".old"
#define SFP__PRETRAIN_CONFIG "config.json"
#define SFP__PRETRAIN_LOG "log.jsonl"
#define SFP__PRETRAIN_MODEL "model.safetensors"
#define SFP__PRETRAIN_REPORT "report.html"

typedef struct sfp_log_point {
    uint64_t step;
    double epoch, seconds, lr, grad_norm, images_per_second;
    double loss[SFP_TERMS]; /* means since the point before; NAN: not in use */
    double ncm, knn;        /* NAN: not scored here */
} sfp_log_point;

typedef struct sfp_log {
    char *path;
    FILE *file;
    sfp_log_point *point; /* (count) */
    size_t count, capacity;
} sfp_log;

/* Begins the file, or with `upto` > 0 keeps its points up to that step and goes on after them. */
sfp_status sfp__log_open(const char *path, uint64_t upto, sfp_log *out, sfp_error *err);
sfp_status sfp__log_add(sfp_log *l, const sfp_log_point *p, sfp_error *err);
void sfp__log_close(sfp_log *l);
/* Its curves. */
sfp_status sfp__pretrain_report(const char *path, const sfp_log *log, sfp_error *err);

/* config.json: what reads the model needs, and how it came to be. result may be of an unfinished training. */
sfp_status sfp__pretrain_write_config(const char *path, const sfp_pretrain_options *o, const sfp_vit_config *c,
                                      const sfp_pretrain_result *r, sfp_error *err);

/* OUT, made where it is missing, is ours alone from here on (*made, *lock: io/folder.h). Without --resume one that holds a
 * training that was not finished is refused. */
sfp_status sfp__pretrain_take_folder(const sfp_pretrain_options *o, int *lock, int *made, sfp_error *err);
/* A training that begins, when nothing is left that could be wrong: removes the files of the one that was there, and says so. The
 * teacher's outputs stay: they may be of use again. */
sfp_status sfp__pretrain_clear_folder(const sfp_pretrain_options *o, const sfp_pretrain_hooks *hooks, sfp_error *err);

#endif
