/* What the files of `model` share about a vit. */
#ifndef SFP_MODEL_VIT_INTERNAL_H
#define SFP_MODEL_VIT_INTERNAL_H

#include "compute/gemm.h"
#include "io/safetensors.h"
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
    sfp_safetensors *file;   /* NULL for random weights */
    float **owned;           /* heap arrays among the weights */
    size_t owned_count;
    char recognised[160];
    pthread_mutex_t lock; /* guards packing on demand below */
    sfp_gemm_weight *patch, *patch_t;
    sfp__vit_packed *packed; /* (depth) */
};

/* Packs what a plan with this mode needs and is not packed yet. */
sfp_status sfp__vit_pack(sfp_vit *v, int mode, bool all_tokens, sfp_error *err);

/* Writes "blocks.3.attn.qkv.weight" from a block index and a short name; returns buf. */
const char *sfp__vit_block_name(int block, const char *name, char *buf, size_t size);

#endif
