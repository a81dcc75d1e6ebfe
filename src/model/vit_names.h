/* Whose names the tensors of a file bear: timm's, or those of others who hold the same ViT. */
#ifndef SFP_MODEL_VIT_NAMES_H
#define SFP_MODEL_VIT_NAMES_H

#include "io/tensor/tensor_file.h"

#define SFP_VIT_NAME_MAX 512
#define SFP_VIT_PREFIX_MAX 384

/* How the numbers of a weight lie in the file. */
typedef enum sfp__vit_order {
    SFP__VIT_SAME,        /* as in timm */
    SFP__VIT_INPUT_FIRST, /* (in, out...): the transpose */
    SFP__VIT_OUTPUT_LAST, /* (in..., out): the transpose */
    SFP__VIT_HWIO,        /* a convolution as (height, width, in, out) */
} sfp__vit_order;

/* A weight under another name. Several parts are put one after another: q, k, v. */
typedef struct sfp__vit_rename {
    const char *timm;
    const char *parts[3]; /* NULL: no more; "../NAME": beside the prefix, not under it */
    sfp__vit_order order;
} sfp__vit_rename;

typedef struct sfp__vit_layout {
    const char *name, *why; /* what it is, and the names that tell */
    const char *mark;       /* the tensor that tells: what comes before it is the prefix of all */
    const char *blocks;     /* block N's names begin with this and "N" and `after` */
    const char *after;
    const sfp__vit_rename *names; /* outside of blocks, ends with timm NULL; names not there are timm's */
    const sfp__vit_rename *block_names;
    float ln_eps;    /* 0: 1e-6 */
    bool quick_gelu; /* unless a config says otherwise */
    bool loose;      /* shapes may lack dimensions of 1 or be folded: only the number of elements counts */
    const char *note; /* what a reader should know, or NULL */
} sfp__vit_layout;

/* A layout found in a file. */
typedef struct sfp__vit_names {
    const sfp__vit_layout *layout;
    const char *family;            /* who saves such files: "timm", "DINO", ... */
    const char *family_note;       /* or NULL */
    char prefix[SFP_VIT_PREFIX_MAX]; /* of all names, with its dot; "" */
    int others;                    /* more ViTs in the file that were not taken (student, momentum encoder) */
} sfp__vit_names;

/* SFP_ENOTFOUND: no name tells of a ViT. */
sfp_status sfp__vit_names_find(const sfp__tensor_file *f, sfp__vit_names *out, sfp_error *err);

/* Part `part` of the weight with timm's name ("norm.bias"; in a block "norm1.bias"), block -1: outside. The name in the file into
 * buf; false: there is no such part. */
bool sfp__vit_names_of(const sfp__vit_names *n, int block, const char *timm, int part, char buf[SFP_VIT_NAME_MAX], sfp__vit_order *order);

/* One more than the highest block of which the file has any tensor. */
int sfp__vit_names_depth(const sfp__vit_names *n, const sfp__tensor_file *f);

#endif
