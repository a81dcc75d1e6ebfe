/* What the files of `model` share about a vit. */
#ifndef SFP_MODEL_VIT_INTERNAL_H
#define SFP_MODEL_VIT_INTERNAL_H

#include "compute/gemm.h"
#include "io/tensor_file.h"
#include "model/vit.h"

#include <pthread.h>

/* Packed weights of a block. Blocks before the last run with qkv joined; the last one needs keys and values of all
 * tokens but the query of the class token only. */
typedef struct sfp__vit_packed {
    sfp_gemm_weight *qkv, *q, *kv, *proj, *fc1, *fc2;
    /* the same maps backwards (dy W) */
    sfp_gemm_weight *qkv_t, *q_t, *kv_t, *proj_t, *fc1_t, *fc2_t;
} sfp__vit_packed;

struct sfp_vit {
    sfp_vit_config config;
    int tokens, patches, head_dim;
    sfp_precision precision;
    sfp_vit_weights weights; /* into `file` or `owned` */
    sfp_tensor_file *file;   /* NULL for random weights */
    float **owned;           /* heap arrays among the weights */
    size_t owned_count;
    char recognised[640], ignored[320];
    pthread_mutex_t lock; /* guards packing on demand below */
    bool repacking;       /* under the lock: what is packed follows the weights, nothing new is packed */
    sfp_gemm_weight *patch, *patch_t;
    sfp__vit_packed *packed; /* (depth) */
};

/* Elements of a weight; its sizes were checked, so the product fits. */
static inline size_t sfp__vit_count(const int64_t *shape, int ndim)
{
    size_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= (size_t)shape[i];
    return n;
}

sfp_status sfp__vit_check_config(const char *file, const sfp_vit_config *c, sfp_error *err);
/* A vit of these sizes without weights; class names are left out. */
sfp_status sfp__vit_new(const sfp_vit_config *c, sfp_vit **out, sfp_error *err);
/* Position embeddings (1 + from^2, D) to (1 + to^2, D): the class token's stays, the others are resized as torch's interpolate does
 * it (bicubic, align_corners and antialias off). */
void sfp__vit_resize_positions(int dim, int from, const float *x, int to, float *out);

/* Packs what a plan with this mode needs and is not packed yet. */
sfp_status sfp__vit_pack(sfp_vit *v, int mode, bool all_tokens, sfp_error *err);

/* After a change of the weights: every packed copy follows them. No pass may run meanwhile. */
sfp_status sfp__vit_repack(sfp_vit *v, sfp_error *err);

/* Writes "blocks.3.attn.qkv.weight" from a block index and a short name; returns buf. */
const char *sfp__vit_block_name(int block, const char *name, char *buf, size_t size);

#endif
