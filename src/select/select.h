/* Selectors: which c of the b samples of a batch to train on (SPEC sections 5 and 11).
 *
 * A selector declares what it needs and gets exactly that; it never sees the
 * model. To add one: write select_NAME.c with its `const sfp_selector`, and add
 * a row to select_internal.h and to the table in select.c (docs/extending.md).
 *
 * What holds for all: sigma >= 1 is the whole batch in its own order, and no
 * random number is drawn for it; ties go to the lower index; a sample with a
 * number that is not finite is taken only when all others are; the same input
 * and generator give the same picks, whatever the number of threads. */
#ifndef SFP_SELECT_SELECT_H
#define SFP_SELECT_SELECT_H

#include "base/error.h"
#include "base/mem.h"
#include "base/rank.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "select/need.h"
#include "select/parts.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum sfp_coreset_mode { SFP_CORESET_EXACT, SFP_CORESET_PAPER } sfp_coreset_mode;

typedef struct sfp_select_options {
    double sigma; /* coreset ratio; >= 1: the whole batch, in its own order */
    sfp_coreset_mode mode;
    bool lowest;    /* learnloss: the lowest predicted losses, as its authors' code does */
    bool euclidean; /* freesel: D^2 on Euclidean instead of cosine distance */
} sfp_select_options;

sfp_select_options sfp__select_options_defaults(void); /* 0.5, exact, highest */

/* A batch as a selector sees it; what was not asked for may be NULL. */
typedef struct sfp_select_batch {
    int b;
    const int32_t *label;  /* (b), always there in a learner */
    const float *score;    /* (b) */
    int dim;               /* D */
    const float *query;    /* (b, D) */
    const float *features; /* (b, D) */
    int classes;           /* C */
    const float *logits;   /* (b, C) */
    const float *probs;    /* (b, C) */
    const float *pooled;   /* (b, D) */
    const float *taps;     /* (b, SFP_TAPS, D) */
    const sfp_gradients *gradients;
} sfp_select_batch;

/* What a selector works with. */
typedef struct sfp_select_env {
    sfp_rng *rng;
    sfp_arena *arena;         /* scratch: `pick` may reset it, and keeps nothing in it */
    sfp_thread_pool *threads; /* NULL: the calling thread alone */
    void *state;              /* what `open` made */
    /* Long work: `done` of `total` (0: not known) "picks" or what it is that takes the time; NULL: nobody listens. On the calling
     * thread. */
    void (*tell)(void *ctx, const char *what, uint64_t done, uint64_t total);
    void *tell_ctx;
} sfp_select_env;

typedef struct sfp_selector {
    const char *name;
    const char *summary;
    unsigned needs; /* SFP_NEED_* */
    bool weighs;    /* its weights are not always 1 */
    /* Writes at most b indices into `out` in order of choice, their number to *count; weights (or 1s) to `weight` when not
     * NULL. After a call with the same sizes it allocates nothing. */
    sfp_status (*pick)(const sfp_select_batch *batch, const sfp_select_options *opt, const sfp_select_env *env, int *out,
                       float *weight, int *count, sfp_error *err);

    /* A selector that learns; all NULL for one that does not. */
    sfp_status (*open)(int dim, int max_batch, uint64_t seed, void **state, sfp_error *err);
    void (*close)(void *state); /* takes NULL */
    /* After each training step: the losses (n) before it of the samples index[] (n) of the batch, in order of choice. */
    void (*learn)(void *state, const sfp_select_batch *batch, int n, const int *index, const float *loss);
    sfp_parts_fn parts; /* what a checkpoint keeps */
} sfp_selector;

/* By name; NULL: unknown. All of them end with NULL. */
const sfp_selector *sfp__selector_find(const char *name);
extern const sfp_selector *const sfp__selectors[];

/* c = floor(sigma*b + 1e-9), at least 1, at most b; 0 when b is 0. */
int sfp__coreset_size(int b, double sigma);

/* The window of SPEC section 5 around the middle of the ranking; returns how many were written. `out` may not be `order`. */
int sfp__coreset_window(int b, const int *order, const sfp_select_options *opt, int *out);

/* freesel's feature of one image: the mean of the patch tokens that hold the top half of the class token's attention to
 * patches. tokens (T, D), the class token first; attention (H, T) of the class token; order: room for T ints, mass: for T
 * floats. */
void sfp__freesel_pool(int T, int D, int H, const float *tokens, const float *attention, int *order, float *mass, float *out);

#endif
