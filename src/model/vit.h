/* A frozen pre-norm ViT (docs/method.md, section 1): immutable weights, packed once.
 *
 * Load -> plan (may fail, allocates) -> run (no allocation). A vit is immutable after loading and may be shared by any number of
 * plans and threads; a plan belongs to one caller at a time.
 *
 * Letters: b batch, T = L + 1 tokens, L patches, D width, H heads, F hidden width of the MLP, S input side. */
#ifndef SFP_MODEL_VIT_H
#define SFP_MODEL_VIT_H

#include "base/mem.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "compute/gemm.h"
#include "io/tensor/safetensors.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SFP__VIT_MAX_DEPTH 64
#define SFP__VIT_MAX_CLASSES (1 << 20)

typedef struct sfp__vit_config {
    int img_size;   /* S */
    int patch_size; /* P; L = (S/P)^2 */
    int channels;   /* 3 */
    int dim;        /* D */
    int depth;
    int heads;   /* H */
    int hidden;  /* F */
    int classes; /* rows of head.weight; 0: no head */
    float ln_eps;
    bool quick_gelu;    /* x * sigmoid(1.702 x) instead of GELU */
    bool pre_norm;      /* a norm before the blocks (CLIP) */
    bool rows;          /* no network: passes return their input, a row of features (sfp__vit_rows) */
    bool no_patch_bias; /* the patch embedding has no bias */
    float mean[3], std[3];
    char **class_names; /* (classes), owned by the vit; NULL: no names */
} sfp__vit_config;

/* Weight tensors with timm's names: the only list of weights. It defines the struct, the loader, the saver and `inspect`.
 * X(field, "name", ndim, dims...), where `c` is the config. */
#define SFP__VIT_GLOBAL_LIST(X)                                                                          \
    X(patch_w, "patch_embed.proj.weight", 4, c->dim, c->channels, c->patch_size, c->patch_size)          \
    X(patch_b, "patch_embed.proj.bias", 1, c->dim)                                                       \
    X(cls, "cls_token", 3, 1, 1, c->dim)                                                                 \
    X(pos, "pos_embed", 3, 1, 1 + (c->img_size / c->patch_size) * (c->img_size / c->patch_size), c->dim) \
    X(norm_w, "norm.weight", 1, c->dim)                                                                  \
    X(norm_b, "norm.bias", 1, c->dim)

#define SFP__VIT_BLOCK_LIST(X)                         \
    X(norm1_w, "norm1.weight", 1, c->dim)              \
    X(norm1_b, "norm1.bias", 1, c->dim)                \
    X(qkv_w, "attn.qkv.weight", 2, 3 * c->dim, c->dim) \
    X(qkv_b, "attn.qkv.bias", 1, 3 * c->dim)           \
    X(proj_w, "attn.proj.weight", 2, c->dim, c->dim)   \
    X(proj_b, "attn.proj.bias", 1, c->dim)             \
    X(norm2_w, "norm2.weight", 1, c->dim)              \
    X(norm2_b, "norm2.bias", 1, c->dim)                \
    X(fc1_w, "mlp.fc1.weight", 2, c->hidden, c->dim)   \
    X(fc1_b, "mlp.fc1.bias", 1, c->hidden)             \
    X(fc2_w, "mlp.fc2.weight", 2, c->dim, c->hidden)   \
    X(fc2_b, "mlp.fc2.bias", 1, c->dim)

/* Only with pre_norm. */
#define SFP__VIT_PRE_LIST(X)               \
    X(pre_w, "norm_pre.weight", 1, c->dim) \
    X(pre_b, "norm_pre.bias", 1, c->dim)

/* Optional: both are present or none. */
#define SFP__VIT_HEAD_LIST(X)                       \
    X(head_w, "head.weight", 2, c->classes, c->dim) \
    X(head_b, "head.bias", 1, c->classes)

typedef struct sfp__vit_block_weights {
#define SFP__VIT_FIELD(field, ...) float *field;
    SFP__VIT_BLOCK_LIST(SFP__VIT_FIELD)
} sfp__vit_block_weights;

/* All weights as plain float arrays; used for the raw weights and, with the same shapes, for their gradients. */
typedef struct sfp__vit_weights {
    SFP__VIT_GLOBAL_LIST(SFP__VIT_FIELD) /* patch_b is NULL with no_patch_bias */
    SFP__VIT_PRE_LIST(SFP__VIT_FIELD)
    SFP__VIT_HEAD_LIST(SFP__VIT_FIELD)
#undef SFP__VIT_FIELD
    sfp__vit_block_weights *blocks; /* (depth) */
} sfp__vit_weights;

/* The default normalisation of images, used if no config contains another. */
extern const float sfp__imagenet_mean[3], sfp__imagenet_std[3];

/* Packed weights of a block. Blocks before the last use the joint qkv; the last one needs keys and values of all tokens but only
 * the query of the class token. */
typedef struct sfp__vit_packed {
    sfp__gemm_weight *qkv, *q, *kv, *proj, *fc1, *fc2;
    /* the transposed maps of the backward pass (dy W) */
    sfp__gemm_weight *qkv_t, *q_t, *kv_t, *proj_t, *fc1_t, *fc2_t;
} sfp__vit_packed;

/* The matrices of a block. */
typedef enum sfp__vit_matrix { SFP__VIT_QKV, SFP__VIT_PROJ, SFP__VIT_FC1, SFP__VIT_FC2, SFP__VIT_MATRICES } sfp__vit_matrix;

/* Readable by all code, written only by src/model. */
typedef struct sfp__vit {
    sfp__vit_config config;
    int tokens, patches, head_dim; /* T, L, D/H */
    sfp_precision precision;
    sfp__vit_weights weights;      /* point into `file` or `owned`; matrices of blocks may be NULL (sfp__vit_free_packed) */
    struct sfp__tensor_file *file; /* NULL: random weights */
    float **owned;                 /* weights that are heap arrays */
    size_t owned_count;
    char recognised[640];           /* "timm ViT (DeiT, ImageNet-1k): ...": the recognised layout and its evidence */
    char ignored[320];              /* "2 tensors: ...": tensors of the file that no pass reads; "": none */
    pthread_mutex_t lock;           /* protects packing on demand, below */
    bool fragmented;                /* protected by lock: heap arrays between packed copies were freed */
    bool repacking;                 /* protected by lock: existing packed copies are updated, no new ones are created */
    float *first_rows;              /* (depth, D) of the matrices of q; NULL: plain matrices remain */
    int (*held)[SFP__VIT_MATRICES]; /* (depth) protected by lock: number of users of each plain matrix */
    sfp__gemm_weight *patch, *patch_t;
    sfp__vit_packed *packed; /* (depth) */
    void *arrays;            /* memory of owned, packed and weights.blocks */
} sfp__vit;

typedef struct sfp__vit_options {
    sfp_precision precision; /* precision of the matrix products; bf16 requires CPU support */
    int img_size;            /* input side; 0: the file's. Position embeddings are resized if the file has another side */
} sfp__vit_options;

/* Reads weights of any supported format and layout (io/tensor/tensor_file.h, vit_names.c). Heads, mean and std are those of a
 * config (io/config.h), else D/64 and ImageNet's. opt may be NULL. */
sfp_status sfp__vit_load(const char *path, const sfp__vit_options *opt, sfp__vit **out, sfp_error *err);
/* Creates seeded random weights with the shapes of `config` (normal, multiplied by `scale`; norms near 1), for the demo,
 * benchmarks and tests. */
sfp_status sfp__vit_random(const sfp__vit_config *config, uint64_t seed, float scale, sfp__vit **out, sfp_error *err);
/* Creates a backbone without a network: samples are rows of `dim` floats, which take the place of images. Its name is "features:DIM". */
#define SFP__VIT_FEATURES "features:"
sfp_status sfp__vit_rows(int dim, sfp__vit **out, sfp_error *err);
void sfp__vit_free(sfp__vit *v);
DEFINE_OWNED_PTR(sfp__vit, sfp__vit_free)

/* From now on the plain matrices of blocks are freed as soon as they are packed, because the packed copy contains the same numbers. Code that
 * reads a plain matrix must hold it (sfp__vit_hold). Call this before the vit is shared. It has no effect on weights that are packed as bf16. */
sfp_status sfp__vit_free_packed(sfp__vit *v, sfp_error *err);
/* Makes a plain matrix of v->weights readable, until unhold. */
sfp_status sfp__vit_hold(sfp__vit *v, int block, sfp__vit_matrix m, sfp_error *err);
void sfp__vit_unhold(sfp__vit *v, int block, sfp__vit_matrix m);
/* The same for all matrices. */
sfp_status sfp__vit_hold_all(sfp__vit *v, sfp_error *err);
void sfp__vit_unhold_all(sfp__vit *v);
/* Returns the first row of the matrix of q of a block (D), which is always readable; NULL: the backbone has no network. */
const float *sfp__vit_first_row(const sfp__vit *v, int block);

size_t sfp__vit_parameters(const sfp__vit *v); /* without the head */
/* Returns the input size for this load, the arrival rate times the seconds of a query pass per image at the config's size: that
 * size or, if the load is above 5, the one with about half as many patches (docs/method.md, section 19). */
int sfp__vit_size_for_load(const sfp__vit_config *c, double load);
/* The file from which the vit was loaded; NULL: random weights. */
const char *sfp__vit_path(const sfp__vit *v);

/* Writes safetensors with timm's names and numbers of type `dtype` (F32, F16, BF16); the metadata contains the config and `meta`.
 * Loading the file yields the same network. */
sfp_status sfp__vit_save(const sfp__vit_config *c, const sfp__vit_weights *w, sfp__dtype dtype, const sfp__meta *meta,
                         size_t meta_count, const char *path, sfp_error *err);

/* Appends the values that shapes do not determine (heads, eps, activation, mean, std, class names), as members of the JSON object
 * that io/config.h reads, without braces. */
void sfp__vit_put_config(const sfp__vit_config *c, sfp__text *t);

/* Computes logits (b, classes) of features (b, D) with the head of the weights file; SFP_ENOTFOUND: it has none. */
sfp_status sfp__vit_head(const sfp__vit *v, int b, const float *feature, float *logits, sfp_error *err);

/* The built-in backbone: models/builtin.safetensors, embedded in the binary by the build. */

/* The name by which sfp__vit_load selects it; a file of that name is "./builtin". */
#define SFP__VIT_BUILTIN "builtin"

/* Returns whether the binary contains a backbone. */
bool sfp__vit_has_builtin(void);
/* SFP_ENOTFOUND: the binary contains none. */
sfp_status sfp__vit_builtin_open(struct sfp__tensor_file **out, sfp_error *err);
/* The bytes of the file in the binary; NULL: the binary contains none. */
const uint8_t *sfp__vit_builtin_bytes(size_t *size);

/* ------------------------------------------------------------------ passes */

typedef enum sfp__vit_mode {
    SFP__VIT_FORWARD = 0,
    SFP__VIT_GRAD_PREFIX = 1,  /* gradients of the prefixes */
    SFP__VIT_GRAD_WEIGHTS = 2, /* ... and of all weights */
    SFP__VIT_GRAD_INPUT = 4,   /* ... and of the input pixels */
} sfp__vit_mode;

typedef struct sfp__vit_plan_options {
    int mode;            /* bitwise or of sfp__vit_mode */
    int prefix_rows;     /* maximum number of prefix rows per layer */
    int microbatch_size; /* maximum number of samples per micro-batch; 0: chosen from the sizes */
    bool all_tokens;     /* compute all tokens in the last block too (needed for its token output) */
    bool token_head;     /* the loss depends on all normalised tokens (sfp__vit_pass.token_head); implies all_tokens */
    bool queries;        /* passes may compute queries before the prompted pass (docs/method.md, section 2) */
    int merge_tokens; /* R: number of tokens that each block but the last merges (docs/method.md, section 18); 0: none. Only for
                            forward passes without prefixes, whose outputs are not those of single tokens */
} sfp__vit_plan_options;

typedef struct sfp__vit_plan sfp__vit_plan;

/* Changes `v` only by packing weights that no earlier plan needed; this is protected by a lock. */
sfp_status sfp__vit_plan_create(sfp__vit *v, sfp__thread_pool *pool, const sfp__vit_plan_options *opt, sfp__vit_plan **out,
                                sfp_error *err);
/* Prepares everything that passes of up to max_batch samples may need, for every split into micro-batches: later passes do not
 * allocate. */
sfp_status sfp__vit_plan_prepare(sfp__vit_plan *p, int max_batch, sfp_error *err);
void sfp__vit_plan_free(sfp__vit_plan *p);
DEFINE_OWNED_PTR(sfp__vit_plan, sfp__vit_plan_free)

/* Called for each micro-batch of samples [first, first+n) with their features (n, D); writes the gradient of the loss for them.
 * It runs on a pool thread, at most once per sample, and concurrently for different samples. */
typedef void (*sfp__vit_head_fn)(void *ctx, int first, int n, const float *feature, float *grad_feature);

/* Like sfp__vit_head_fn, for all tokens after the final norm: tokens (n, T, D) and their gradient. lane is below the number of
 * threads. A given sample always has the same lane, and a lane receives its samples in ascending order, so sums per lane are
 * reproducible. */
typedef void (*sfp__vit_token_head_fn)(void *ctx, int lane, int first, int n, const float *tokens, float *grad_tokens);

/* Called for samples [first, first+n) when their queries (n, D) are known and before their prompted pass; it fills their
 * prefixes. It runs on a pool thread, like sfp__vit_head_fn. */
typedef void (*sfp__vit_compose_fn)(void *ctx, int first, int n, const float *query);

/* The prefix of one layer. */
typedef struct sfp__vit_prompt {
    int rows;               /* rows of its keys and of its values; 0: none */
    const float *k, *v;     /* (b, rows, D) */
    float *grad_k, *grad_v; /* (b, rows, D) outputs; NULL: not computed */
} sfp__vit_prompt;

typedef struct sfp__vit_pass {
    /* inputs */
    int b;
    const float *x;         /* (b, 3, S, S), normalised; NULL: xs is used */
    const float *const *xs; /* (b) pointers to (3, S, S) */
    bool embed_only;        /* stop after the patch embedding: only embed and mean_embed are computed */

    /* prompts */
    const sfp__vit_prompt *prompts; /* (depth); NULL: none */
    size_t prefix_stride;           /* floats from one sample to the next in prefixes and their gradients; 0: rows * D */
    float *query;                   /* (b, D) class tokens of the query pass; NULL: not needed */
    int queries;                    /* number of leading samples whose queries this pass computes; the others are inputs */
    sfp__vit_compose_fn compose;    /* computes the prefixes from the queries */
    void *compose_ctx;

    /* outputs; NULL: not computed */
    float *feature;         /* (b, D) */
    float *embed;           /* (b, L, D) patch embeddings without positions */
    float *mean_embed;      /* (b, D) mean over tokens of unit patch embeddings (docs/method.md, section 4) */
    float *const *tokens;   /* (depth) of (b, T, D): tokens after each block; entries may be NULL */
    float *normed;          /* (b, T, D) tokens after the final norm; needs a plan with token_head */
    float *class_attention; /* (b, H, T) attention of the class token in the last block, without the prefix */
    /* (b, K*D) taps of the pass without prefixes (docs/method.md, section 18): the final norm of the class token after each of the
     * last K blocks, in their order. The last D values are the query. With tap_mean, (b, (1+K)*D): before them the mean over
     * patches of the final norm of their tokens after the last block but one. A pass without prompts writes all rows, a prompted
     * one those of the samples whose queries it computes. */
    float *tap;
    int taps;      /* K, 1 to depth; read only if tap is not NULL */
    bool tap_mean; /* needs two blocks */

    struct sfp__vit_memo *memo; /* feature cache of queries and mean embeddings (vit_memo.h); NULL: none */

    /* backward modes: the loss, and further gradients */
    sfp__vit_head_fn head;
    /* replaces head: in a plan with token_head it receives all tokens, else only class tokens, (n, 1, D) */
    sfp__vit_token_head_fn token_head;
    void *head_ctx;
    float *grad_x; /* (b, 3, S, S) output, mode GRAD_INPUT */
    sfp__vit_weights
        *grad_w; /* mode GRAD_WEIGHTS: the gradients are added to it, except those of the head, which the caller computes */
} sfp__vit_pass;

sfp_status sfp__vit_run(sfp__vit_plan *p, const sfp__vit_pass *pass, sfp_error *err);

/* Returns the floating-point operations of the last sfp__vit_run (2 per multiply-add; matrix products and attention). */
double sfp__vit_plan_flops(const sfp__vit_plan *p);

/* The seconds that the last run spent in each phase: the sum over its lanes divided by their number. */
typedef struct sfp__vit_seconds {
    double query, forward, backward;
} sfp__vit_seconds;
sfp__vit_seconds sfp__vit_plan_seconds(const sfp__vit_plan *p);

/* A weight, as passed to sfp__vit_weight_fn. */
typedef struct sfp__vit_weight {
    const char *name; /* full name: "blocks.3.attn.qkv.weight" */
    const int64_t *shape;
    int ndim;
    size_t count; /* number of elements */
    float **data;
} sfp__vit_weight;

/* Calls fn for every weight of `w` in the order of the lists above; stops at the first failure. */
typedef sfp_status (*sfp__vit_weight_fn)(void *ctx, const sfp__vit_weight *w, sfp_error *err);
sfp_status sfp__vit_each_weight(const sfp__vit_config *c, sfp__vit_weights *w, sfp__vit_weight_fn fn, void *ctx, sfp_error *err);

/* Allocates a full set of zeroed weights, for gradients. */
sfp_status sfp__vit_weights_create(const sfp__vit_config *config, sfp__vit_weights *out, sfp_error *err);
void sfp__vit_weights_done(const sfp__vit_config *config, sfp__vit_weights *w);
void sfp__vit_weights_zero(const sfp__vit_config *config, sfp__vit_weights *w);
void sfp__vit_weights_add(const sfp__vit_config *config, sfp__vit_weights *to, const sfp__vit_weights *from);

/* ------------------------------------------------------------------ trainable vit
 *
 * The weights of a trainable vit are one block of floats, so that an optimiser, an average and a checkpoint are plain loops.
 * sfp__vit_set_weights copies new weights to the packed copies that passes read. */

/* Returns the number of floats of such a block; each tensor begins at a multiple of 16. */
size_t sfp__vit_flat_count(const sfp__vit_config *c);

/* Sets up a view of the tensors in a block of that many floats, which the caller owns. */
sfp_status sfp__vit_flat_view(const sfp__vit_config *c, float *block, sfp__vit_weights *out, sfp_error *err);
void sfp__vit_flat_view_done(sfp__vit_weights *view);

/* Initialises the weights for training. Weights of products are uniform by their fan; those at the end of a residual branch are
 * scaled down by the number of branches. Norms are 1, biases 0, and the class token is normal with deviation 0.02.
 * Two choices help a short training: positions are sines and cosines of row and column, and keys start equal to queries. So
 * tokens attend to similar and near tokens from the beginning. */
sfp_status sfp__vit_flat_init(const sfp__vit_config *c, uint64_t seed, sfp__vit_weights *view, sfp_error *err);

/* Copies weights of the same sizes; `c` determines whether there is a head. */
void sfp__vit_weights_copy(const sfp__vit_config *c, sfp__vit_weights *to, const sfp__vit_weights *from);

/* Copies the weights into a vit created by sfp__vit_random and packs them again. No pass may run meanwhile. */
sfp_status sfp__vit_set_weights(sfp__vit *v, const sfp__vit_weights *from, sfp_error *err);

#endif
