/* What the files of `fingerprint` share about a pool. */
#ifndef SFP_FINGERPRINT_FP_INTERNAL_H
#define SFP_FINGERPRINT_FP_INTERNAL_H

#include "fingerprint/attune.h"
#include "fingerprint/fingerprint.h"

#define SFP_FP_TINY 1e-12f /* the least length a vector is divided by, as in PyTorch's normalize */
#define SFP_FP_MAX_PARAMS (3 * SFP_FP_MAX_LAYERS + 4)

typedef struct sfp__pool_kind sfp__pool_kind;

struct sfp_fp {
    sfp_fp_options opt;
    const sfp__pool_kind *kind;
    sfp_vit *vit;
    sfp_thread_pool *threads;
    int D, layers, max_batch, parts;
    int layer[SFP_FP_MAX_LAYERS];
    int task, start, open, learning_most;
    bool prepared; /* attuned pool and view are those of the values as they are */
    sfp_rng rng;
    sfp_param p[SFP_FP_MAX_LAYERS], k[SFP_FP_MAX_LAYERS], a[SFP_FP_MAX_LAYERS]; /* k, a: zeroed where a kind has none */
    sfp_param gate_w, gate_b, last_w, last_b;
    sfp_param *params[SFP_FP_MAX_PARAMS];
    int param_count;
    sfp_attune *attune; /* NULL: off */
    sfp_fp_view view;
    /* a layer each */
    float *attuned[SFP_FP_MAX_LAYERS];   /* (pool, Lp*D); attunement off: P's own values */
    float *projected[SFP_FP_MAX_LAYERS]; /* (pool, Lp*D), raw prefixes only; else the same as attuned */
    float *dprefix[SFP_FP_MAX_LAYERS];   /* (pool, Lp*D) gradient of the view's prefix */
    float *ak[SFP_FP_MAX_LAYERS], *a2[SFP_FP_MAX_LAYERS]; /* (pool, D) */
    float *knorm[SFP_FP_MAX_LAYERS];                      /* (pool) |K| */
    float *alpha[SFP_FP_MAX_LAYERS], *norm[SFP_FP_MAX_LAYERS]; /* (max_batch, pool) */
    float *e[SFP_FP_MAX_LAYERS], *de[SFP_FP_MAX_LAYERS];       /* (max_batch, parts*Lp*D) prefixes and their gradients */
    float *work[SFP_FP_MAX_LAYERS];  /* coda: room for gradients, see pool_coda.c */
    float *unprojected[SFP_FP_MAX_LAYERS]; /* (pool, Lp*D), raw prefixes only: gradient of projected */
    float *squares;                  /* (max_batch, D) what a kind keeps of q (coda: q^2); one: a layer each */
    float *token;                    /* one: (layers, max_batch, D) class tokens that entered the layers */
    float *gram[SFP_FP_MAX_LAYERS];  /* (pool, pool), ortho penalty only */
    double penalty[SFP_FP_MAX_LAYERS], own[SFP_FP_MAX_LAYERS]; /* of the loss: ortho, the kind's own part */
    float *row;                      /* (D) */
    const float *query[SFP_FP_MAX_LAYERS];   /* (b, D) of the pass under way */
    const float *square[SFP_FP_MAX_LAYERS];  /* (b, D) */
    sfp_fp_samples samples;
};

/* Components of layer number l: [0, rows) exist, [0, open) are in use, [start, open) learn. */
int sfp__fp_layer_rows(const sfp_fp *f, int l);
int sfp__fp_layer_start(const sfp_fp *f, int l);
int sfp__fp_layer_open(const sfp_fp *f, int l);

sfp_status sfp__fp_buffers_create(sfp_fp *f, sfp_error *err);
void sfp__fp_buffers_free(sfp_fp *f);

#endif
