/* The course of a training: one line of JSON a point in OUT/log.jsonl, and the same points in memory for the curves. */
#ifndef SFP_PRETRAIN_LOG_H
#define SFP_PRETRAIN_LOG_H

#include "pretrain/pretrain.h"

#include <stdio.h>

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
    size_t count, room;
} sfp_log;

/* Begins the file, or with `upto` > 0 keeps its points up to that step and goes on after them. */
sfp_status sfp__log_open(const char *path, uint64_t upto, sfp_log *out, sfp_error *err);
sfp_status sfp__log_add(sfp_log *l, const sfp_log_point *p, sfp_error *err);
void sfp__log_close(sfp_log *l);

#endif
