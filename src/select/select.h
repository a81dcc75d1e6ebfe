/* Selectors: which part of a batch is trained on; and what selectors and buffer methods may need and keep. */
#ifndef SFP_SELECT_SELECT_H
#define SFP_SELECT_SELECT_H

#include "base/error.h"
#include "base/mem.h"
#include "base/rank.h"
#include "base/rng.h"
#include "base/thread_pool.h"

#include <stdbool.h>
#include <stdint.h>

/* ------------------------------------------------------------------------ need
 *
 * What a selector or a buffer method may ask for: one bit each, the same for both, so that what a step must compute is the
 * union. What costs a pass: QUERY and ATTENTION the unprompted backbone (queries are kept for the step, so that only samples left
 * out cost extra); FEATURES, LOGITS, PROBS and TAPS together one more, the prompted backbone. */

enum {
    SFP_NEED_SCORE = 1,      /* similarity S(x) to the fingerprints (b); for a buffer also what scores its slots */
    SFP_NEED_FEATURES = 2,   /* (b, D) what the classifier sees: the class token of the prompted pass */
    SFP_NEED_LOGITS = 4,     /* (b, C) */
    SFP_NEED_PROBS = 8,      /* (b, C) */
    SFP_NEED_ATTENTION = 16, /* freesel's pooled patch tokens (b, D), unprompted */
    SFP_NEED_GRADIENTS = 32, /* gradients of the learnable parameters, by callback */
    SFP_NEED_QUERY = 64,     /* (b, D) features of the unprompted backbone: they know nothing of what was learned */
    SFP_NEED_TAPS = 128,     /* (b, SFP_TAPS, D) means over the tokens after each quarter of the blocks, prompted */
    SFP_NEED_PIXELS = 256,   /* buffers alone: gradients to pixels; images of a batch then are pixels, never compressed */
};

/* For a buffer FEATURES and GRADIENTS are not arrays but what it may ask for (buffer/model_ops.h); with QUERY all queries of a
 * batch are known when it is offered. */

enum { SFP_TAPS = 4 };

/* Gradient of the mean cross-entropy of `n` samples of the batch (indices) to the learnable parameters, flattened: (length). */
typedef struct sfp__gradients {
    size_t length;
    sfp_status (*of)(void *ctx, int n, const int *index, float *out, sfp_error *err);
    void *ctx;
} sfp__gradients;

/* ----------------------------------------------------------------------- parts
 *
 * State of a selector or a buffer method as named tensors: one list says what is saved, loaded and of which shape.
 *
 * A method with state lists its parts; whoever writes checkpoints walks the list. Shapes depend on the options alone, never on
 * what was learned, so that a file is checked before the first value is changed. */

typedef enum sfp__state_tensor_type {
    SFP_STATE_F32,
    SFP_STATE_F64,
    SFP_STATE_I32,
    SFP_STATE_I64,
    SFP_STATE_U8
} sfp__state_tensor_type;

typedef struct sfp__state_tensor {
    char name[48]; /* without the method's own: "w0" */
    sfp__state_tensor_type type;
    int ndim;
    int64_t shape[4];
    void *data; /* where it lives; written by loading */
} sfp__state_tensor;

/* The part of this index into *out; returns how many there are. */
typedef int (*sfp__state_tensors_fn)(void *state, int index, sfp__state_tensor *out);

/* ---------------------------------------------------------------------- select
 *
 * Selectors: which c of the b samples of a batch to train on (docs/method.md, sections 5 and 11).
 *
 * A selector declares what it needs and gets exactly that; it never sees the
 * model. To add one: write select_NAME.c with its `const sfp__selector`, and add
 * a row to select_internal.h and to the table in select.c (docs/extending.md).
 *
 * What holds for all: sigma >= 1 is the whole batch in its own order, and no
 * random number is drawn for it; ties go to the lower index; a sample with a
 * number that is not finite is taken only when all others are; the same input
 * and generator give the same picks, whatever the number of threads. */

typedef enum sfp__coreset_mode { SFP_CORESET_EXACT, SFP_CORESET_PAPER } sfp__coreset_mode;

typedef struct sfp__select_options {
    double sigma; /* coreset ratio; >= 1: the whole batch, in its own order */
    sfp__coreset_mode mode;
    bool lowest;    /* learnloss: the lowest predicted losses, as its authors' code does */
    bool euclidean; /* freesel: D^2 on Euclidean instead of cosine distance */
} sfp__select_options;

sfp__select_options sfp__select_options_defaults(void); /* 0.5, exact, highest */

/* A batch as a selector sees it; what was not asked for may be NULL. */
typedef struct sfp__select_batch {
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
    const sfp__gradients *gradients;
} sfp__select_batch;

/* What a selector works with. */
typedef struct sfp__select_env {
    sfp__rng *rng;
    sfp__arena *arena;         /* scratch: `pick` may reset it, and keeps nothing in it */
    sfp__thread_pool *threads; /* NULL: the calling thread alone */
    void *state;               /* what `open` made */
    /* Long work: `done` of `total` (0: not known) "picks" or what it is that takes the time; NULL: nobody listens. On the calling
     * thread. */
    void (*on_progress)(void *ctx, const char *what, uint64_t done, uint64_t total);
    void *progress_ctx;
} sfp__select_env;

typedef struct sfp__selector {
    const char *name;
    const char *summary;
    unsigned needs; /* SFP_NEED_* */
    bool weighs;    /* its weights are not always 1 */
    /* Writes at most b indices into `out` in order of choice, their number to *count; weights (or 1s) to `weight` when not
     * NULL. After a call with the same sizes it allocates nothing. */
    sfp_status (*pick)(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                       float *weight, int *count, sfp_error *err);

    /* A selector that learns; all NULL for one that does not. */
    sfp_status (*open)(int dim, int max_batch, uint64_t seed, void **state, sfp_error *err);
    void (*close)(void *state); /* takes NULL */
    /* After each training step: the losses (n) before it of the samples index[] (n) of the batch, in order of choice. */
    void (*learn)(void *state, const sfp__select_batch *batch, int n, const int *index, const float *loss);
    sfp__state_tensors_fn state_tensors; /* what a checkpoint keeps */
} sfp__selector;

/* By name; NULL: unknown. All of them end with NULL. */
const sfp__selector *sfp__selector_find(const char *name);
extern const sfp__selector *const sfp__selectors[];

/* c = floor(sigma*b + 1e-9), at least 1, at most b; 0 when b is 0. */
int sfp__coreset_size(int b, double sigma);

/* The window of docs/method.md, section 5 around the middle of the ranking; returns how many were written. `out` may not be
 * `order`. */
int sfp__coreset_window(int b, const int *order, const sfp__select_options *opt, int *out);

/* freesel's feature of one image: the mean of the patch tokens that hold the top half of the class token's attention to
 * patches. tokens (T, D), the class token first; attention (H, T) of the class token; order: space for T ints, mass: for T
 * floats. */
void sfp__freesel_pool(int T, int D, int H, const float *tokens, const float *attention, int *order, float *mass, float *out);

#endif
