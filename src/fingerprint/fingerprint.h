/* The fingerprints (docs/method.md, sections 2-4): a pool of components per prompted layer, their attunement, the linear head,
 * and the mapping of components to prefixes with its gradients.
 *
 * A training step:
 *
 *     prepare     attuned pool, once per step
 *     compose     prefixes of samples from their queries (on pool threads)
 *     ...         the pass through the vit computes the gradient of the prefixes
 *     gradients   of P, K, A and the gate; ortho penalty
 *     step        Adam, on the active rows
 *
 * Prediction needs only the data that compose reads: a view, which can be copied. */
#ifndef SFP_FINGERPRINT_FINGERPRINT_H
#define SFP_FINGERPRINT_FINGERPRINT_H

#include "base/mem.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "compute/param.h"
#include "model/vit.h"

#include <stdbool.h>

#define SFP__FP_MAX_LAYERS 16
#define SFP__FP_MAX_PARAMS (3 * SFP__FP_MAX_LAYERS + 4)

typedef enum sfp__prefix_kind {
    SFP__PREFIX_PROJECTED, /* rows are inserted after the key and value projections */
    SFP__PREFIX_RAW,       /* the paper's formula: rows are projected like tokens */
} sfp__prefix_kind;

/* The way in which prefixes are formed from a pool (pool_kind.h). */
typedef enum sfp__fp_kind {
    SFP__FP_CODA,       /* section 2: a sum of all components, weighted by the query */
    SFP__FP_L2P,        /* section 13: the five components with the nearest keys */
    SFP__FP_DUALPROMPT, /* section 13: general prompts, and one expert prompt per task */
} sfp__fp_kind;

typedef struct sfp__fp_options {
    sfp__fp_kind kind;
    int pool, length;            /* components per layer (100), rows per component Lp (8, even) */
    int first_layer, last_layer; /* prompted layers: 0 to 4 */
    int tasks;                   /* J known tasks; 0: task-free stream */
    int span;                    /* task-free: number of components activated at a time; 0: pool / 10 */
    int classes;                 /* initial number of rows of the linear head */
    bool attune, attune_residual;
    int attune_topk;
    sfp__prefix_kind prefix;
    float ortho_mu;
    uint64_t seed;
} sfp__fp_options;

sfp__fp_options sfp__fp_options_defaults(void);

/* The number of rows of a layer's prefix keys, and of its values: Lp/2 times the number of concatenated components. The options
 * must be those of a created pool. */
int sfp__fp_prefix_rows(const sfp__fp_options *o);
/* The first layer that has a pool of components, and not one component that all samples share. */
int sfp__fp_pool_layer(const sfp__fp_options *o);
/* The active components [frozen_end, active_end) of a known task. */
void sfp__fp_task_components(const sfp__fp_options *o, int task, int *frozen_end, int *active_end);

/* The data that composing prefixes needs. */
typedef struct sfp__fp_view {
    const struct sfp__pool_kind *kind;
    int layers, length, dim;
    int frozen_end; /* components [0, frozen_end) are frozen */
    int parts;      /* number of components that are concatenated to a prefix */
    int layer[SFP__FP_MAX_LAYERS];
    int active_end[SFP__FP_MAX_LAYERS];      /* end of the active components */
    const float *ak[SFP__FP_MAX_LAYERS];     /* (active_end, D): A * K / |K|, with A = 1 in kinds without A; NULL: no keys */
    const float *a2[SFP__FP_MAX_LAYERS];     /* (active_end, D): A^2; NULL: the kind has no A */
    const float *prefix[SFP__FP_MAX_LAYERS]; /* (active_end, Lp*D): attuned (and, if raw, projected) components */
    const float *bias[SFP__FP_MAX_LAYERS];   /* raw: (2*D) biases of the key and the value projection; else NULL */
} sfp__fp_view;

/* Computes the prefixes E (n, parts*Lp*D) of one layer from queries (n, D), as for a test sample: all keys, then all values.
 * alpha and norm (n, ld) and work (n, D) are scratch. */
void sfp__fp_compose(const sfp__fp_view *v, int layer, int n, const float *query, int ld, float *alpha, float *norm, float *work,
                     float *prefix);

/* Properties of the samples of a pass; they must last until sfp__fp_gradients. */
typedef struct sfp__fp_samples {
    const float *weight;  /* (b) factor of the loss of each sample; NULL: no gradients */
    const bool *replayed; /* (b) replayed samples, which may belong to any task so far; NULL: none */
} sfp__fp_samples;

/* One prompted layer of a pool. */
typedef struct sfp__fp_layer {
    int at;              /* index of the block in the backbone */
    sfp__param p, k, a;  /* k, a: zeroed if the kind has none */
    float *attuned;      /* (pool, Lp*D); NULL: attunement is off */
    float *projected;    /* (pool, Lp*D); NULL: prefixes are not raw */
    float *ak, *a2;      /* (pool, D) */
    float *knorm;        /* (pool) |K| */
    float *alpha, *norm; /* (max_batch, pool) */
    float *e;            /* (max_batch, parts*Lp*D) prefixes */
    const float *query;  /* (b, D) queries of the current pass */
} sfp__fp_layer;

/* The arrays of the backward pass of one layer. */
typedef struct sfp__fp_grad {
    float *prefix;       /* (pool, Lp*D) gradient of the view's prefix */
    float *projected;    /* (pool, Lp*D) gradient of the projected components; NULL: prefixes are not raw */
    float *e;            /* (max_batch, parts*Lp*D) gradient of the prefixes */
    float *work;         /* for coda, see pool_coda.c */
    float *gram;         /* (pool, pool); NULL: no ortho penalty */
    double penalty, own; /* terms of the loss: ortho penalty, the kind's own term */
} sfp__fp_grad;

/* Readable by all code, written only by src/fingerprint. */
typedef struct sfp__fp {
    sfp__fp_options opt;
    const struct sfp__pool_kind *kind;
    sfp__vit *vit;
    int held; /* layers whose plain maps are held for raw prefixes */
    sfp__thread_pool *threads;
    int D, layers, max_batch, parts;
    int task, frozen_end, active_end; /* components: [0, frozen_end) frozen, [frozen_end, active_end) active, the others unused */
    int max_learning;
    bool prepared; /* the attuned pool and the view belong to the current values */
    sfp__rng rng;
    sfp__fp_layer layer[SFP__FP_MAX_LAYERS];
    sfp__fp_grad grad[SFP__FP_MAX_LAYERS];
    sfp__param gate_w, gate_b, linear_w, linear_b;
    sfp__param *params[SFP__FP_MAX_PARAMS]; /* all learnable tensors, in the order of state files */
    int param_count;
    struct sfp__attune *attune; /* NULL: off */
    sfp__fp_view view;
    sfp__fp_samples samples;
    sfp__vit_prompt prompts[SFP__VIT_MAX_DEPTH]; /* of the current pass, by block */
    float *squares;                              /* (max_batch, D) scratch that a kind keeps of q (coda: q^2) */
    float *row;                                  /* (D) */
    void *block;                                 /* memory of the arrays of all layers, squares and row */
} sfp__fp;

sfp_status sfp__fp_create(sfp__vit *vit, sfp__thread_pool *threads, const sfp__fp_options *opt, int max_batch, sfp__fp **out,
                          sfp_error *err);
void sfp__fp_free(sfp__fp *f);
DEFINE_OWNED_PTR(sfp__fp, sfp__fp_free)

/* Starts the next known task: its components become active, earlier ones are frozen (except in kinds that learn as a whole), and
 * Adam restarts everywhere. */
sfp_status sfp__fp_next_task(sfp__fp *f, sfp_error *err);
/* For task-free streams: activates `span` more components and freezes the earlier ones. When this fills the pool, all components
 * become active (in kinds that choose by the nearest key, only at the next call). */
sfp_status sfp__fp_activate_components(sfp__fp *f, sfp_error *err);
/* For loading a state: sets the task and the range of active components; the caller fills in the values. */
sfp_status sfp__fp_restore(sfp__fp *f, int task, int frozen_end, int active_end, sfp_error *err);
/* Extends the linear head to `classes` rows; new ones start uniform in +-1/sqrt(D). */
sfp_status sfp__fp_add_classes(sfp__fp *f, int classes, sfp_error *err);

/* Returns all learnable tensors in the order of state files, and their number. */
sfp__param **sfp__fp_params(sfp__fp *f, int *count);

/* Must be called after values were changed from outside (loading): all cached results are discarded. */
void sfp__fp_changed(sfp__fp *f);
/* Like sfp__fp_changed, if only values of active rows changed: results for frozen rows are kept. */
void sfp__fp_moved(sfp__fp *f);

/* Computes the attuned pool and the view from the current values; does nothing if they have not changed. */
sfp_status sfp__fp_prepare(sfp__fp *f, sfp_error *err);

/* Sets the prefixes of a pass, with compose as its callback, and their gradients if samples have weights. b is at most max_batch.
 * If samples is NULL, there are no gradients, and all samples belong to the current task. */
void sfp__fp_attach(sfp__fp *f, sfp__vit_pass *pass, const sfp__fp_samples *samples);

/* After a backward pass over samples with weights: adds the gradients of P, K, A and the gate for samples [first, first + n). It
 * may be called several times for the same pass. `terms`: number of loss terms that include the ortho penalty. *loss is the
 * contribution of pool and penalty to the loss. */
sfp_status sfp__fp_gradients(sfp__fp *f, int first, int n, int terms, double *loss, sfp_error *err);

void sfp__fp_zero_grad(sfp__fp *f);
void sfp__fp_step(sfp__fp *f, const sfp__adam *adam);

/* Computes the mean of p / |p| over all layers and their frozen and active components: (D) (docs/method.md, section 4). p is the
 * sum of the Lp rows of a component of raw P. */
void sfp__fp_mean_unit(const sfp__fp *f, float *out);

#endif
