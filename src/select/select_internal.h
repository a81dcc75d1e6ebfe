/* Functions that only selectors use. */
#ifndef SFP_SELECT_SELECT_INTERNAL_H
#define SFP_SELECT_SELECT_INTERNAL_H

#include "select/select.h"

extern const sfp__selector sfp__selector_streamfp, sfp__selector_none, sfp__selector_random, sfp__selector_kcenter,
    sfp__selector_camel, sfp__selector_craig, sfp__selector_gradmatch, sfp__selector_freesel, sfp__selector_learnloss;

/* Checks that b is not negative and that the batch has the inputs that the selector declares. */
sfp_status sfp__select_check(const sfp__selector *s, const sfp__select_batch *batch, sfp_error *err);
/* Chooses the whole batch: indices 0..b-1 with weight 1. */
void sfp__select_whole(int b, int *out, float *weight, int *count);
/* Writes n weights of 1; does nothing if `weight` is NULL. */
void sfp__select_equal_weights(int n, float *weight);
/* Checks that every label is in [0, classes). */
sfp_status sfp__select_check_labels(const sfp__selector *s, const sfp__select_batch *batch, sfp_error *err);

/* The samples among which a selector chooses: those whose rows are finite in all matrices. */
typedef struct sfp__matrix {
    const float *data; /* (b, width) */
    int width;
} sfp__matrix;

typedef struct sfp__candidates {
    int b, c; /* size of the batch; size of the coreset */
    int n;    /* number of finite samples */
    int *id;  /* (b) indices of the finite samples, ascending, then of the others, ascending; arena memory */
} sfp__candidates;

/* The first call of a selector. It checks the batch. If the coreset is the whole batch, it sets *all and writes out, weight and
 * count. Otherwise it resets the arena and finds the candidates. */
sfp_status sfp__select_begin(const sfp__selector *s, const sfp__select_batch *batch, const sfp__select_options *opt,
                             const sfp__select_env *env, int matrices, const sfp__matrix *matrix, sfp__candidates *to, bool *all,
                             int *out, float *weight, int *count, sfp_error *err);
/* The last call of a selector. It converts `picked` (got positions among the candidates) to indices of the batch. If there are
 * fewer than c candidates, it appends the other samples by index with weight 1. `picked` may be `out`; the first `got` weights
 * must be set. */
void sfp__select_end(const sfp__candidates *from, int got, const int *picked, int *out, float *weight, int *count);

/* Copies the rows of the candidates to a contiguous array (n, width). */
void sfp__select_gather(const sfp__candidates *from, const sfp__matrix *m, float *out);

/* Sorts the candidates by class, then by index, in `from->id`. Writes to group[] (n + 1) the first position of each class, then
 * n. Returns the number of classes. order and id (n): scratch memory. */
int sfp__select_group_by_class(sfp__candidates *from, const int32_t *label, int *order, int *id, int *group);

/* Calls fn for each piece, on the thread pool if there is one. */
void sfp__select_each(const sfp__select_env *env, int pieces, sfp__thread_pool_fn fn, void *ctx);
int sfp__select_workers(const sfp__select_env *env);
void sfp__select_report_progress(const sfp__select_env *env, const char *unit, int64_t done, int64_t total);

#endif
