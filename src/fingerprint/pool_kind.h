/* A kind of pool (--pool-kind): how the prefix of a sample is formed from the components of a layer, and its gradients. There is
 * one row per kind in fingerprint.c.
 *
 * Everything else is shared (fingerprint.c, compose.c): components P, attunement, the raw projection, the ranges of active
 * components, initial values, the ortho penalty over all tensors, Adam, state. A kind receives components as they are used in
 * attention (view.prefix), and returns their gradient. */
#ifndef SFP_FINGERPRINT_POOL_KIND_H
#define SFP_FINGERPRINT_POOL_KIND_H

#include "fingerprint/attune.h"
#include "fingerprint/fingerprint.h"

#define SFP__FP_TINY 1e-12f /* minimum length by which a vector is divided, as in PyTorch's normalize */

typedef struct sfp__pool_kind sfp__pool_kind;

/* The composition of prefixes for n samples of one layer. */
typedef struct sfp__composing {
    int n;
    const float *query;   /* (n, D) */
    bool test;            /* true: a test sample, which may use any component; false: a training step */
    const bool *replayed; /* (n) samples that may belong to any task; NULL: none */
    int ld;
    float *alpha, *norm; /* (n, ld) kept for the backward pass */
    float *work;         /* (n, D) kept for the backward pass */
    float *prefix;       /* (n, parts*Lp*D) output */
} sfp__composing;

struct sfp__pool_kind {
    const char *name;
    int parts;         /* maximum number of components that are concatenated to a prefix */
    int shared_layers; /* number of leading prompted layers with one component that is always active, and no key */
    bool attention;    /* keys have an attention vector A */
    bool whole;        /* all components are always active */
    /* Checks the options and may narrow them. Runs before the checks that all kinds share. */
    sfp_status (*check)(sfp__fp_options *o, sfp_error *err);
    /* Computes the view's tables of layer number l. */
    void (*prepare)(sfp__fp *f, int l);
    void (*compose)(const sfp__fp_view *v, int l, const sfp__composing *c);
    /* Uses grad[l].e, the gradient of the prefixes, for samples [first, first + n) of the pass. Writes the gradient of
     * view.prefix (components [0, active_end)) to dprefix, adds those of K and A for active components, and returns the kind's
     * own term of the loss. */
    double (*backward)(sfp__fp *f, int l, int first, int n, float *dprefix);
};

extern const struct sfp__pool_kind sfp__pool_coda, sfp__pool_l2p, sfp__pool_dualprompt;

/* Components of layer number l: [0, rows) exist, [0, frozen_end) are frozen, [frozen_end, active_end) are active. */
int sfp__fp_layer_rows(const sfp__fp *f, int l);
int sfp__fp_layer_frozen_end(const sfp__fp *f, int l);
int sfp__fp_layer_active_end(const sfp__fp *f, int l);

/* Allocates the memory of the layers, and creates the attunement. */
sfp_status sfp__fp_buffers_create(sfp__fp *f, sfp_error *err);

#endif
