/* Selectors: which c of the b samples of a batch to train on (SPEC sections 5 and 11).
 *
 * A selector declares what it needs and gets exactly that; it never sees the
 * model. To add one: write select_NAME.c with its `const sfp_selector`, and add
 * a row to select_internal.h and to the table in select.c. */
#ifndef SFP_SELECT_SELECT_H
#define SFP_SELECT_SELECT_H

#include "base/error.h"
#include "base/need.h"
#include "base/rank.h"
#include "base/rng.h"

#include <stdint.h>

typedef enum sfp_coreset_mode { SFP_CORESET_EXACT, SFP_CORESET_PAPER } sfp_coreset_mode;

typedef struct sfp_select_options {
    double sigma; /* coreset ratio; >= 1: the whole batch, in its own order */
    sfp_coreset_mode mode;
} sfp_select_options;

sfp_select_options sfp__select_options_defaults(void); /* 0.5, exact */

/* A batch as a selector sees it; what was not asked for is NULL. */
typedef struct sfp_select_batch {
    int b;
    const int32_t *label;  /* (b) */
    const float *score;    /* (b) */
    int dim;               /* D */
    const float *features; /* (b, D) */
    int classes;           /* C */
    const float *logits;   /* (b, C) */
    const float *probs;    /* (b, C) */
    const float *pooled;   /* (b, D) */
} sfp_select_batch;

typedef struct sfp_selector {
    const char *name;
    const char *summary;
    unsigned needs; /* SFP_NEED_* */
    /* Writes at most b indices into `out` in order of choice, their number to *count; weights (or 1s) to `weight` when not
     * NULL. `work` has room for 4*b ints. */
    sfp_status (*pick)(const sfp_select_batch *batch, const sfp_select_options *opt, sfp_rng *rng, int *work, int *out,
                       float *weight, int *count, sfp_error *err);
} sfp_selector;

/* By name; NULL: unknown. All of them end with NULL. */
const sfp_selector *sfp__selector_find(const char *name);
extern const sfp_selector *const sfp__selectors[];

/* c = floor(sigma*b + 1e-9), at least 1, at most b; 0 when b is 0. */
int sfp__coreset_size(int b, double sigma);

/* The window of SPEC section 5 around the middle of the ranking; returns how many were written. `out` may not be `order`. */
int sfp__coreset_window(int b, const int *order, const sfp_select_options *opt, int *out);

#endif
