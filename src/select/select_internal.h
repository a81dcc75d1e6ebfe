/* What the selectors share among themselves. */
#ifndef SFP_SELECT_SELECT_INTERNAL_H
#define SFP_SELECT_SELECT_INTERNAL_H

#include "select/select.h"

extern const sfp__selector sfp__selector_streamfp, sfp__selector_none, sfp__selector_random, sfp__selector_kcenter,
    sfp__selector_camel, sfp__selector_craig, sfp__selector_gradmatch, sfp__selector_freesel, sfp__selector_learnloss;

/* b is not negative and what the selector needs is there. */
sfp_status sfp__select_check(const sfp__selector *s, const sfp__select_batch *batch, sfp_error *err);
/* 0..b-1, weights 1. */
void sfp__select_whole(int b, int *out, float *weight, int *count);
/* n weights of 1; nothing when `weight` is NULL. */
void sfp__select_equal_weights(int n, float *weight);
/* Every label is in [0, classes). */
sfp_status sfp__select_check_labels(const sfp__selector *s, const sfp__select_batch *batch, sfp_error *err);

/* The samples that a selector chooses among: those whose rows are finite in all matrices. */
typedef struct sfp__matrix {
    const float *data; /* (b, width) */
    int width;
} sfp__matrix;

typedef struct sfp__candidates {
    int b, c; /* of the batch; to choose */
    int n;    /* finite ones */
    int *id;  /* (b): the finite ones ascending, then the others ascending; the arena's */
} sfp__candidates;

/* What every selector begins with: the check, the whole batch (then *all is set and out, weight and count are written), a reset
 * arena, the candidates. */
sfp_status sfp__select_begin(const sfp__selector *s, const sfp__select_batch *batch, const sfp__select_options *opt,
                             const sfp__select_env *env, int matrices, const sfp__matrix *matrix, sfp__candidates *to, bool *all,
                             int *out, float *weight, int *count, sfp_error *err);
/* ... and ends with: `picked` (got of them, positions among the candidates) as indices into the batch; when the candidates did
 * not suffice, the others by index with weight 1. picked may be out; weight is filled already for the first `got`. */
void sfp__select_end(const sfp__candidates *from, int got, const int *picked, int *out, float *weight, int *count);

/* The rows of the candidates one below the other: (n, width). */
void sfp__select_gather(const sfp__candidates *from, const sfp__matrix *m, float *out);

/* fn for each piece, on the pool when there is one. */
void sfp__select_each(const sfp__select_env *env, int pieces, sfp__thread_pool_fn fn, void *ctx);
int sfp__select_workers(const sfp__select_env *env);
void sfp__select_report_progress(const sfp__select_env *env, const char *what, int64_t done, int64_t total);

#endif
