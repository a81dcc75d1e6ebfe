/* The interface of selectors, and the inputs and state tensors that selectors and buffer methods have in common. */
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
 * Inputs that a selector or a buffer method can declare, one bit each. Both use the same bits, so a timestamp computes the union.
 * QUERY and ATTENTION need the query pass. Its queries are kept for training, so only samples outside the coreset cost extra.
 * FEATURES, LOGITS, PROBS and TAPS together need one prompted pass. */

enum {
    SFP__NEED_SCORE = 1,      /* (b) score S(x); a buffer method also obtains the function that scores its slots */
    SFP__NEED_FEATURES = 2,   /* (b, D) class tokens of the prompted pass */
    SFP__NEED_LOGITS = 4,     /* (b, C) */
    SFP__NEED_PROBS = 8,      /* (b, C) */
    SFP__NEED_ATTENTION = 16, /* (b, D) freesel's pooled patch tokens of the query pass */
    SFP__NEED_GRADIENTS = 32, /* gradients of the learnable parameters, through a callback */
    SFP__NEED_QUERY = 64,     /* (b, D) queries: class tokens of the query pass, independent of the learned parameters */
    SFP__NEED_TAPS = 128,     /* (b, SFP__TAPS, D) token means after each quarter of the blocks of the prompted pass */
    SFP__NEED_PIXELS = 256,   /* only for buffers: gradients of pixels */
};

/* For a buffer method, FEATURES and GRADIENTS are not arrays but model callbacks (buffer/model_ops.h). With QUERY the batch that
 * is passed to `update` has all queries. */

enum { SFP__TAPS = 4 };

/* Computes the gradient of the mean cross-entropy of `n` samples of the batch (indices) with respect to the learnable parameters,
 * flattened to (length). */
typedef struct sfp__gradients {
    size_t length;
    sfp_status (*of)(void *ctx, int n, const int *index, float *out, sfp_error *err);
    void *ctx;
} sfp__gradients;

/* --------------------------------------------------------------- state tensors
 *
 * The state of a selector or a buffer method as named tensors. One list defines which tensors are saved and loaded, and their
 * shapes; the code that writes checkpoints iterates over the list. Shapes depend only on the options, never on learned values, so
 * a file can be checked before the first value is changed. */

typedef enum sfp__state_tensor_type {
    SFP__STATE_F32,
    SFP__STATE_F64,
    SFP__STATE_I32,
    SFP__STATE_I64,
    SFP__STATE_U8
} sfp__state_tensor_type;

typedef struct sfp__state_tensor {
    char name[48]; /* without the prefix of the file ("select", "buffer.METHOD", "diagnostics"), for example "w0" */
    sfp__state_tensor_type type;
    int ndim;
    int64_t shape[4];
    void *data; /* the values in memory; overwritten by loading */
} sfp__state_tensor;

/* Writes the tensor with this index to *out, if the index is in range. Returns the number of tensors. */
typedef int (*sfp__state_tensors_fn)(void *state, int index, sfp__state_tensor *out);

/* ---------------------------------------------------------------------- select
 *
 * A selector chooses the coreset: c of the b samples of a batch (docs/method.md, sections 5 and 11).
 *
 * A selector declares its inputs, obtains exactly these and never sees the model. To add one, write select_NAME.c with its `const
 * sfp__selector`, and add a row to select_internal.h and to the table in select.c (docs/extending.md).
 *
 * Every selector has these properties:
 *   - With sigma >= 1 it chooses the whole batch in its own order and draws no random number.
 *   - On a tie the lower index is chosen.
 *   - A sample with a NaN or infinite value is chosen only after all other samples.
 *   - The picks depend only on the input and the random generator, not on the number of threads. */

typedef struct sfp__select_options {
    double sigma;   /* coreset ratio; >= 1: the whole batch in its own order */
    bool euclidean; /* freesel: D^2 sampling on the Euclidean instead of the cosine distance */
} sfp__select_options;

sfp__select_options sfp__select_options_defaults(void); /* sigma 0.5, cosine distance */

/* The inputs of a selector. An input that the selector did not declare may be NULL. */
typedef struct sfp__select_batch {
    int b;
    const int32_t *label;  /* (b) a learner always sets it */
    const float *score;    /* (b) */
    int dim;               /* D */
    const float *query;    /* (b, D) */
    const float *features; /* (b, D) */
    int classes;           /* C */
    const float *logits;   /* (b, C) */
    const float *probs;    /* (b, C) */
    const float *pooled;   /* (b, D) */
    const float *taps;     /* (b, SFP__TAPS, D) */
    const sfp__gradients *gradients;
} sfp__select_batch;

/* The resources of a selector. */
typedef struct sfp__select_env {
    sfp__rng *rng;
    sfp__arena *arena;         /* scratch memory: `pick` may reset it, and may not keep anything in it */
    sfp__thread_pool *threads; /* NULL: use only the calling thread */
    void *state;               /* created by `open` */
    const void *ctx;           /* that of the selector */
    /* Reports progress, on the calling thread: `done` of `total` (0: unknown) units, for example "picks". NULL: no progress
     * callback. */
    void (*on_progress)(void *ctx, const char *unit, uint64_t done, uint64_t total);
    void *progress_ctx;
} sfp__select_env;

typedef struct sfp__selector {
    const char *name;
    const char *summary;
    unsigned needs; /* SFP__NEED_* */
    bool weighs;    /* the weights can differ from 1 */
    /* Writes at most b indices to `out` in order of choice, their number to *count and, if `weight` is not NULL, their weights. A
     * second call with the same sizes allocates no memory. */
    sfp_status (*pick)(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                       float *weight, int *count, sfp_error *err);

    /* Functions of a selector that learns; NULL for all others. */
    sfp_status (*open)(int dim, int max_batch, uint64_t seed, void **state, sfp_error *err);
    void (*close)(void *state); /* accepts NULL */
    /* Called after each training step with the losses (n) that the samples index[] (n) of the batch, in order of choice, had
     * before it. */
    void (*learn)(void *state, const sfp__select_batch *batch, int n, const int *index, const float *loss);
    sfp__state_tensors_fn state_tensors; /* the tensors that a checkpoint contains */
    const void *ctx;                     /* of a registered selector; `pick` finds it in its env. NULL: built-in */
} sfp__selector;

extern const sfp__selector *const sfp__selectors[]; /* the built-in selectors; ends with NULL */
/* Selector i, from 0: the built-in ones, then the registered ones in order of registration; NULL after the last one. */
const sfp__selector *sfp__selector_at(int i);
const sfp__selector *sfp__selector_find(const char *name); /* NULL: unknown */
/* Adds a selector for the rest of the process; *s must stay valid. SFP_EINVAL: its name is in use. Thread-safe, also with the
 * two functions above. */
sfp_status sfp__selector_register(const sfp__selector *s, sfp_error *err);

/* Returns c = floor(sigma*b + 1e-9), limited to [1, b]; 0 if b is 0. */
int sfp__coreset_size(int b, double sigma);

/* Writes the window around the middle of the ranking (docs/method.md, section 5). Returns the number of indices written. `out`
 * may not be `order`. */
int sfp__coreset_window(int b, const int *order, const sfp__select_options *opt, int *out);

/* Computes freesel's feature of one image: the mean of the patch tokens with the highest attention of the class token that
 * together hold half of it. tokens (T, D), class token first; attention (H, T) of the class token; order and mass are scratch
 * memory for T values. */
void sfp__freesel_pool(int T, int D, int H, const float *tokens, const float *attention, int *order, float *mass, float *out);

#endif
