/* What the files of `model` share about a vit. */
#ifndef SFP_MODEL_VIT_INTERNAL_H
#define SFP_MODEL_VIT_INTERNAL_H

#include "compute/gemm.h"
#include "io/tensor/tensor_file.h"
#include "model/vit.h"

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
/* Position embeddings (1 + from^2, D) to (1 + to^2, D): the class token's stays, the others are resized as torch's interpolate
 * does it (bicubic, align_corners and antialias off). */
void sfp__vit_resize_positions(int dim, int from, const float *x, int to, float *out);

/* Packs what a plan with this mode needs and is not packed yet. */
sfp_status sfp__vit_pack(sfp_vit *v, int mode, bool all_tokens, sfp_error *err);

/* After a change of the weights: every packed copy follows them. No pass may run meanwhile. */
sfp_status sfp__vit_repack(sfp_vit *v, sfp_error *err);

/* Writes "blocks.3.attn.qkv.weight" from a block index and a short name; returns buf. */
const char *sfp__vit_block_name(int block, const char *name, char *buf, size_t size);

#endif
