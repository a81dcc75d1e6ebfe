/* A kind of pool (--pool-kind): how a sample's prefix is put together of the
 * components of a layer, and the gradients on the way back. One row a kind in
 * fingerprint.c.
 *
 * All else is shared (fingerprint.c, compose.c): components P, attunement, the
 * raw projection, spans, starting values, the ortho penalty over whatever
 * tensors there are, Adam, state. A kind sees components as they go into
 * attention (view.prefix), and gives back their gradient. */
#ifndef SFP_FINGERPRINT_POOL_KIND_H
#define SFP_FINGERPRINT_POOL_KIND_H

#include "fingerprint/attune.h"
#include "fingerprint/fingerprint.h"

#define SFP_FP_TINY 1e-12f /* the least length a vector is divided by, as in PyTorch's normalize */

typedef struct sfp__pool_kind sfp__pool_kind;

/* Prefixes of n samples of one layer. */
typedef struct sfp__composing {
    int n;
    const float *query;   /* (n, D) */
    bool test;            /* as in a test; else a step, and */
    const bool *replayed; /* (n) or NULL: which samples are not of the present task */
    int ld;
    float *alpha, *norm; /* (n, ld) kept for the backward */
    float *work;         /* (n, D) kept for the backward */
    float *prefix;       /* (n, parts*Lp*D) out */
} sfp__composing;

struct sfp__pool_kind {
    const char *name;
    int parts;         /* components put one after another in a prefix, at most */
    int shared_layers; /* the first prompted layers have one component that always learns, and no key */
    bool attention;    /* keys come with A */
    bool whole;        /* all components learn from the beginning to the end */
    /* What the kind asks of the options; it may narrow them. Runs before the checks that all kinds share. */
    sfp_status (*check)(sfp__fp_options *o, sfp_error *err);
    /* The view's tables of layer number l. */
    void (*prepare)(sfp__fp *f, int l);
    void (*compose)(const sfp__fp_view *v, int l, const sfp__composing *c);
    /* From grad[l].e, the gradient of the prefixes, for samples [first, first + n) of the pass: writes that of view.prefix (all
     * components in use) to dprefix, adds those of K and A for the components that learn, returns what the kind itself adds to
     * the loss. */
    double (*backward)(sfp__fp *f, int l, int first, int n, float *dprefix);
};

extern const struct sfp__pool_kind sfp__pool_coda, sfp__pool_l2p, sfp__pool_dualprompt;

/* Components of layer number l: [0, rows) exist, [0, open) are in use, [start, open) learn. */
int sfp__fp_layer_rows(const sfp__fp *f, int l);
int sfp__fp_layer_frozen_end(const sfp__fp *f, int l);
int sfp__fp_layer_active_end(const sfp__fp *f, int l);

/* Memory of the layers, and the attunement. */
sfp_status sfp__fp_buffers_create(sfp__fp *f, sfp_error *err);

#endif
