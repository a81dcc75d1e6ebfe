/* The naming scheme of the tensors in a file: timm's, or another one for the same ViT. */
#ifndef SFP_MODEL_VIT_NAMES_H
#define SFP_MODEL_VIT_NAMES_H

#include "io/tensor/tensor_file.h"

#define SFP__VIT_NAME_MAX 512
#define SFP__VIT_PREFIX_MAX 384

/* The order of a weight's axes in the file. */
typedef enum sfp__vit_order {
    SFP__VIT_SAME,        /* as in timm */
    SFP__VIT_INPUT_FIRST, /* (in, out...): the transpose */
    SFP__VIT_OUTPUT_LAST, /* (in..., out): the transpose */
    SFP__VIT_HWIO,        /* a convolution as (height, width, in, out) */
} sfp__vit_order;

/* A weight under another name. Several parts, q, k and v, are concatenated. */
typedef struct sfp__vit_rename {
    const char *timm;
    const char *parts[3]; /* NULL: no more parts; "../NAME": beside the prefix, not below it */
    sfp__vit_order order;
} sfp__vit_rename;

typedef struct sfp__vit_layout {
    const char *name, *why; /* description, and the names by which it is recognised */
    const char *signature;  /* the tensor by which it is recognised; the text before it is the prefix of all names */
    const char *blocks;     /* the names of block N begin with this, "N" and `after` */
    const char *after;
    const sfp__vit_rename *names; /* outside of blocks, terminated by timm NULL; other names are as in timm */
    const sfp__vit_rename *block_names;
    float ln_eps;     /* 0: 1e-6 */
    bool quick_gelu;  /* default; a config can change it */
    bool loose;       /* shapes may lack dimensions of 1 or be folded: only the number of elements is checked */
    const char *note; /* advice for the user; NULL: none */
} sfp__vit_layout;

/* A layout found in a file. */
typedef struct sfp__vit_names {
    const sfp__vit_layout *layout;
    const char *family;               /* origin of such files: "timm", "DINO", ... */
    const char *family_note;          /* NULL: none */
    char prefix[SFP__VIT_PREFIX_MAX]; /* of all names, with its dot; "": none */
    int others;                       /* number of further ViTs in the file (student, momentum encoder) */
} sfp__vit_names;

/* SFP_ENOTFOUND: the file does not contain a known ViT. */
sfp_status sfp__vit_names_find(const sfp__tensor_file *f, sfp__vit_names *out, sfp_error *err);

/* Writes the file's name of a part of a weight to buf. `timm` is the weight's name in timm ("norm.bias"; in a block
 * "norm1.bias"), block -1: outside of blocks. Returns false if there is no such part. */
bool sfp__vit_names_of(const sfp__vit_names *n, int block, const char *timm, int part, char buf[SFP__VIT_NAME_MAX],
                       sfp__vit_order *order);

/* One more than the highest block that has a tensor in the file. */
int sfp__vit_names_depth(const sfp__vit_names *n, const sfp__tensor_file *f);

#endif
