/* The fingerprints (docs/method.md, sections 2-4): a pool of components a prompted layer,
 * their attunement, the classifier, and everything that maps them to prefixes
 * and back.
 *
 * A training step:
 *
 *     prepare     attuned pool, once a step
 *     compose     prefixes of samples from their queries (on pool threads)
 *     ...         the vit's pass gives the gradient of the prefixes
 *     gradients   to P, K, A and the gate; ortho penalty
 *     step        Adam, on the rows that learn
 *
 * Prediction needs only what compose reads: a view, which can be copied. */
#ifndef SFP_FINGERPRINT_FINGERPRINT_H
#define SFP_FINGERPRINT_FINGERPRINT_H

#include "base/mem.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "compute/param.h"
#include "model/vit.h"

#include <stdbool.h>

#define SFP_FP_MAX_LAYERS 16
#define SFP_FP_MAX_PARAMS (3 * SFP_FP_MAX_LAYERS + 4)

typedef enum sfp__prefix_kind {
    SFP_PREFIX_PROJECTED, /* rows go in after the key and value projections */
    SFP_PREFIX_RAW,       /* the paper's formula: they are projected like tokens */
} sfp__prefix_kind;

/* What prefixes are made of a pool (pool_kind.h). */
typedef enum sfp__fp_kind {
    SFP_FP_CODA,       /* section 2: a sum of all components, weighted by the query */
    SFP_FP_L2P,        /* section 13: the five with the nearest keys */
    SFP_FP_DUALPROMPT, /* section 13: general prompts, and an expert a task */
} sfp__fp_kind;

typedef struct sfp__fp_options {
    sfp__fp_kind kind;
    int pool, length;            /* components a layer (100), rows a component Lp (8, even) */
    int first_layer, last_layer; /* prompted layers: 0 to 4 */
    int tasks;                   /* J known tasks; 0: free */
    int span;                    /* free: components opened at a time; 0: pool / 10 */
    int classes;                 /* rows of the classifier to begin with */
    bool attune, attune_residual;
    int attune_topk;
    sfp__prefix_kind prefix;
    float ortho_mu;
    bool query_one; /* the class token entering a layer is its query: no second pass */
    uint64_t seed;
} sfp__fp_options;

sfp__fp_options sfp__fp_options_defaults(void);

/* Rows of a layer's prefix keys (and of its values), once created: Lp/2 times the components put one after another. */
int sfp__fp_prefix_rows(const sfp__fp_options *o);
/* The first layer that has a pool of components, not one that all samples share. */
int sfp__fp_pool_layer(const sfp__fp_options *o);
/* Components that learn in a known task: [start, open). */
void sfp__fp_task_components(const sfp__fp_options *o, int task, int *frozen_end, int *active_end);

/* What composing prefixes needs. */
typedef struct sfp__fp_view {
    const struct sfp__pool_kind *kind;
    int layers, length, dim;
    int frozen_end; /* components [0, start) are frozen */
    int parts;      /* components that a prefix is put together of */
    int layer[SFP_FP_MAX_LAYERS];
    int active_end[SFP_FP_MAX_LAYERS];      /* components in use */
    const float *ak[SFP_FP_MAX_LAYERS];     /* (open, D): A * K / |K|, A = 1 in kinds without; NULL: no keys */
    const float *a2[SFP_FP_MAX_LAYERS];     /* (open, D): A^2; NULL in kinds without */
    const float *prefix[SFP_FP_MAX_LAYERS]; /* (open, Lp*D): attuned (and, raw, projected) components */
    const float *bias[SFP_FP_MAX_LAYERS];   /* raw: (2*D) biases of the key and the value projection; else NULL */
} sfp__fp_view;

/* E (n, parts*Lp*D) of one layer from queries (n, D), as a test has it: all its keys, then all its values. alpha and norm (n, ld)
 * and work (n, D) are scratch. */
void sfp__fp_compose(const sfp__fp_view *v, int layer, int n, const float *query, int ld, float *alpha, float *norm, float *work,
                     float *prefix);

/* What is known of the samples of a pass; must last until sfp__fp_gradients. */
typedef struct sfp__fp_samples {
    const float *weight;  /* (b) factor of each sample's loss; NULL: no gradients are wanted */
    const bool *replayed; /* (b) or NULL: none. Those may be of any task so far, the others are of the present one */
} sfp__fp_samples;

/* One prompted layer of a pool. */
typedef struct sfp__fp_layer {
    int at;                      /* the block of the backbone */
    sfp__param p, k, a;          /* k, a: zeroed where a kind has none */
    float *attuned;              /* (pool, Lp*D); NULL: attunement is off */
    float *projected;            /* (pool, Lp*D); NULL: prefixes are not raw */
    float *ak, *a2;              /* (pool, D) */
    float *knorm;                /* (pool) |K| */
    float *alpha, *norm;         /* (max_batch, pool) */
    float *e;                    /* (max_batch, parts*Lp*D) prefixes */
    const float *query, *square; /* (b, D) of the pass under way: queries, what the kind keeps of them */
} sfp__fp_layer;

/* What its backward needs. */
typedef struct sfp__fp_grad {
    float *prefix;       /* (pool, Lp*D) gradient of the view's prefix */
    float *projected;    /* (pool, Lp*D) of what was projected; NULL: prefixes are not raw */
    float *e;            /* (max_batch, parts*Lp*D) of the prefixes */
    float *work;         /* coda: see pool_coda.c */
    float *gram;         /* (pool, pool); NULL: no ortho penalty */
    double penalty, own; /* of the loss: ortho, the kind's own part */
} sfp__fp_grad;

/* Read by all, written by this folder. */
typedef struct sfp__fp {
    sfp__fp_options opt;
    const struct sfp__pool_kind *kind;
    sfp__vit *vit;
    sfp__thread_pool *threads;
    int D, layers, max_batch, parts;
    int task, frozen_end, active_end; /* components: [0, start) frozen, [start, open) learning, the rest unused */
    int max_learning;
    bool prepared; /* attuned pool and view are those of the values as they are */
    sfp__rng rng;
    sfp__fp_layer layer[SFP_FP_MAX_LAYERS];
    sfp__fp_grad grad[SFP_FP_MAX_LAYERS];
    sfp__param gate_w, gate_b, linear_w, linear_b;
    sfp__param *params[SFP_FP_MAX_PARAMS]; /* all that learns, in the order of state files */
    int param_count;
    struct sfp__attune *attune; /* NULL: off */
    sfp__fp_view view;
    sfp__fp_samples samples;
    sfp__vit_prompt prompts[SFP_VIT_MAX_DEPTH]; /* of the pass under way, by block */
    float *squares;                             /* (max_batch, D) what a kind keeps of q (coda: q^2); query_one: per layer */
    float *token;                               /* query_one: (layers, max_batch, D) class tokens that entered the layers */
    float *row;                                 /* (D) */
    void *block;                                /* all arrays of the layers and the three above */
} sfp__fp;

sfp_status sfp__fp_create(sfp__vit *vit, sfp__thread_pool *threads, const sfp__fp_options *opt, int max_batch, sfp__fp **out,
                          sfp_error *err);
void sfp__fp_free(sfp__fp *f);
DEFINE_OWNED_PTR(sfp__fp, sfp__fp_free)

/* The next known task: its components open, earlier ones freeze (but for kinds that learn as a whole), Adam begins anew
 * everywhere. */
sfp_status sfp__fp_next_task(sfp__fp *f, sfp_error *err);
/* Free streams: opens `span` more; when that fills the pool all learn from then on (kinds that choose by the nearest key: from
 * the next call on). */
sfp_status sfp__fp_activate_components(sfp__fp *f, sfp_error *err);
/* For loading a state: spans as given; values are the caller's to fill. */
sfp_status sfp__fp_restore(sfp__fp *f, int task, int frozen_end, int active_end, sfp_error *err);
/* Rows of the classifier; new ones start uniform in +-1/sqrt(D). */
sfp_status sfp__fp_add_classes(sfp__fp *f, int classes, sfp_error *err);

/* All learnable tensors in the order of state files; count by pointer. */
sfp__param **sfp__fp_params(sfp__fp *f, int *count);

/* The values were changed from outside (loading): nothing cached of them holds. */
void sfp__fp_changed(sfp__fp *f);
/* ... those of rows that learn alone: what is kept of the others does. */
void sfp__fp_moved(sfp__fp *f);

/* Attuned pool and view from the values as they are; nothing to do when they have not changed. */
sfp_status sfp__fp_prepare(sfp__fp *f, sfp_error *err);

/* Points a pass at the step's prefix buffers (and, with weights, their gradients), with compose as its callback. b <= max_batch.
 * samples NULL: no gradients, all are of the present task. */
void sfp__fp_attach(sfp__fp *f, sfp__vit_pass *pass, const sfp__fp_samples *samples);

/* After a backward pass over samples attached with weights: adds the gradients of P, K, A and the gate that samples
 * [first, first + n) of it give; the same pass serves any number of calls. `terms`: loss terms that carry the ortho penalty.
 * *loss is what pool and penalty add to the loss. */
sfp_status sfp__fp_gradients(sfp__fp *f, int first, int n, int terms, double *loss, sfp_error *err);

void sfp__fp_zero_grad(sfp__fp *f);
void sfp__fp_step(sfp__fp *f, const sfp__adam *adam);

/* mean over fingerprints of p / |p|, p = rows of raw P summed over Lp, all layers stacked, components in use: (D)
 * (docs/method.md, section 4). */
void sfp__fp_mean_unit(const sfp__fp *f, float *out);

#endif
