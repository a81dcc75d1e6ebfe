/* A frozen pre-norm ViT (docs/method.md, section 1): immutable weights, packed once.
 *
 * Load -> plan (may fail, allocates) -> run (no allocation). A vit is immutable after loading and may be shared by any
 * number of plans and threads; a plan belongs to one caller at a time.
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

#define SFP_VIT_MAX_DEPTH 64
#define SFP_VIT_MAX_CLASSES (1 << 20)

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
    bool no_patch_bias; /* the patch embedding has none */
    float mean[3], std[3];
    char **class_names; /* NULL or `classes` names; owned by the vit */
} sfp__vit_config;

/* Weight tensors, timm names: the one list that makes the struct, the loader, the saver and `inspect`.
 * X(field, "name", ndim, dims...) with the config at hand as `c`. */
#define SFP_VIT_GLOBAL_LIST(X)                                                                           \
    X(patch_w, "patch_embed.proj.weight", 4, c->dim, c->channels, c->patch_size, c->patch_size)          \
    X(patch_b, "patch_embed.proj.bias", 1, c->dim)                                                       \
    X(cls, "cls_token", 3, 1, 1, c->dim)                                                                 \
    X(pos, "pos_embed", 3, 1, 1 + (c->img_size / c->patch_size) * (c->img_size / c->patch_size), c->dim) \
    X(norm_w, "norm.weight", 1, c->dim)                                                                  \
    X(norm_b, "norm.bias", 1, c->dim)

#define SFP_VIT_BLOCK_LIST(X)                          \
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

/* With pre_norm. */
#define SFP_VIT_PRE_LIST(X)                \
    X(pre_w, "norm_pre.weight", 1, c->dim) \
    X(pre_b, "norm_pre.bias", 1, c->dim)

/* Optional: present together or not at all. */
#define SFP_VIT_HEAD_LIST(X)                        \
    X(head_w, "head.weight", 2, c->classes, c->dim) \
    X(head_b, "head.bias", 1, c->classes)

typedef struct sfp__vit_block_weights {
#define SFP_VIT_FIELD(field, ...) float *field;
    SFP_VIT_BLOCK_LIST(SFP_VIT_FIELD)
} sfp__vit_block_weights;

/* All weights as plain float arrays; used for the raw weights and, with the same shapes, for their gradients. */
typedef struct sfp__vit_weights {
    SFP_VIT_GLOBAL_LIST(SFP_VIT_FIELD) /* patch_b NULL with no_patch_bias */
    SFP_VIT_PRE_LIST(SFP_VIT_FIELD)
    SFP_VIT_HEAD_LIST(SFP_VIT_FIELD)
#undef SFP_VIT_FIELD
    sfp__vit_block_weights *blocks; /* (depth) */
} sfp__vit_weights;

/* What images are normalised by where nobody says otherwise. */
extern const float sfp__imagenet_mean[3], sfp__imagenet_std[3];

/* Packed weights of a block. Blocks before the last run with qkv joined; the last one needs keys and values of all
 * tokens but the query of the class token only. */
typedef struct sfp__vit_packed {
    sfp__gemm_weight *qkv, *q, *kv, *proj, *fc1, *fc2;
    /* the same maps backwards (dy W) */
    sfp__gemm_weight *qkv_t, *q_t, *kv_t, *proj_t, *fc1_t, *fc2_t;
} sfp__vit_packed;

/* Read by all, written by this folder. */
typedef struct sfp__vit {
    sfp__vit_config config;
    int tokens, patches, head_dim; /* T, L, D/H */
    sfp_precision precision;
    sfp__vit_weights weights;      /* into `file` or `owned` */
    struct sfp__tensor_file *file; /* NULL for random weights */
    float **owned;                 /* heap arrays among the weights */
    size_t owned_count;
    char recognised[640]; /* "timm ViT (DeiT, ImageNet-1k): ...": what the file was recognised as, and why */
    char ignored[320];    /* "2 tensors: ...": what the file holds that no pass reads; "": nothing */
    pthread_mutex_t lock; /* guards packing on demand below */
    bool repacking;       /* under the lock: what is packed follows the weights, nothing new is packed */
    sfp__gemm_weight *patch, *patch_t;
    sfp__vit_packed *packed; /* (depth) */
    void *arrays;            /* owned, packed and the blocks of the weights */
} sfp__vit;

typedef struct sfp__vit_options {
    sfp_precision precision; /* of the matrix products; bf16 where the CPU has it */
    int img_size;            /* side of the input; position embeddings are resized when the file's is another. 0: the file's */
} sfp__vit_options;

/* Reads a checkpoint of any format and layout that is known (io/tensor/tensor_file.h, vit_names.c); heads, mean and std come from a
 * config (io/config.h), else D/64 and ImageNet's. opt may be NULL. */
sfp_status sfp__vit_load(const char *path, const sfp__vit_options *opt, sfp__vit **out, sfp_error *err);
/* Seeded random weights with the shapes of `config` (normal, `scale`; norms near 1): demo, bench, tests. */
sfp_status sfp__vit_random(const sfp__vit_config *config, uint64_t seed, float scale, sfp__vit **out, sfp_error *err);
void sfp__vit_free(sfp__vit *v);
DEFINE_OWNED_PTR(sfp__vit, sfp__vit_free)

size_t sfp__vit_parameters(const sfp__vit *v); /* without the head */
/* The file it was loaded from; NULL: random weights. */
const char *sfp__vit_path(const sfp__vit *v);

/* Writes safetensors with timm's names, numbers of `dtype` (F32, F16, BF16), and the config in the metadata, beside `meta`:
 * loading it gives the same network. */
sfp_status sfp__vit_save(const sfp__vit_config *c, const sfp__vit_weights *w, sfp__dtype dtype, const sfp__meta *meta,
                         size_t meta_count, const char *path, sfp_error *err);

/* What shapes do not tell (heads, eps, activation, mean, std, class names) as the members of the JSON object that io/config.h
 * reads, without its braces. */
void sfp__vit_put_config(const sfp__vit_config *c, sfp__text *t);

/* logits (b, classes) of features (b, D) by the checkpoint's own head; SFP_ENOTFOUND without one. */
sfp_status sfp__vit_head(const sfp__vit *v, int b, const float *feature, float *logits, sfp_error *err);

/* The backbone that the program carries: models/builtin.safetensors, put into the binary when it is built. */

/* The name under which sfp__vit_load takes it; a file of that name is "./builtin". */
#define SFP_VIT_BUILTIN "builtin"

/* Whether there was such a file when this was built. */
bool sfp__vit_has_builtin(void);
/* SFP_ENOTFOUND in a build without it. */
sfp_status sfp__vit_builtin_open(struct sfp__tensor_file **out, sfp_error *err);
/* All of the file as it lies in the binary; NULL in a build without it. */
const uint8_t *sfp__vit_builtin_bytes(size_t *size);

/* ------------------------------------------------------------------ passes */

typedef enum sfp__vit_mode {
    SFP_VIT_FORWARD = 0,
    SFP_VIT_GRAD_PREFIX = 1,  /* gradients to prefixes */
    SFP_VIT_GRAD_WEIGHTS = 2, /* ... and to all weights */
    SFP_VIT_GRAD_INPUT = 4,   /* ... and to the input pixels */
} sfp__vit_mode;

typedef struct sfp__vit_plan_options {
    int mode;            /* a sum of sfp__vit_mode */
    int prefix_rows;     /* the most prefix rows a layer may get */
    int microbatch_size; /* most samples a micro-batch; 0: chosen from the sizes alone */
    bool all_tokens;     /* compute every token in the last block too (needed by the tap of the last block) */
    bool token_head;     /* the loss sees all normalised tokens (sfp__vit_pass.token_head); implies all_tokens */
    bool queries;        /* passes may compute queries before they are prompted (docs/method.md, section 2) */
} sfp__vit_plan_options;

typedef struct sfp__vit_plan sfp__vit_plan;

/* `v` is not changed but for packing weights that this mode is the first to need; a lock guards that. */
sfp_status sfp__vit_plan_create(sfp__vit *v, sfp__thread_pool *pool, const sfp__vit_plan_options *opt, sfp__vit_plan **out,
                                sfp_error *err);
/* Makes everything that passes of up to max_batch samples may need, however they are cut: none of them allocates then. */
sfp_status sfp__vit_plan_prepare(sfp__vit_plan *p, int max_batch, sfp_error *err);
void sfp__vit_plan_free(sfp__vit_plan *p);
DEFINE_OWNED_PTR(sfp__vit_plan, sfp__vit_plan_free)

/* Called for each micro-batch of samples [first, first+n) with their features (n, D); writes the loss gradient to them.
 * Runs on a pool thread, at most once a sample, for different samples at the same time. */
typedef void (*sfp__vit_head_fn)(void *ctx, int first, int n, const float *feature, float *grad_feature);

/* The same with all tokens after the final norm: (n, T, D) in, their gradient out. Lane < the pool's threads; for given
 * samples it is always the same one, and it sees them in ascending order: sums a lane are repeatable. */
typedef void (*sfp__vit_token_head_fn)(void *ctx, int lane, int first, int n, const float *tokens, float *grad_tokens);

/* Called for samples [first, first+n) when their queries (n, D) are known and before their prompted pass: fills their prefixes.
 * Runs on a pool thread, like sfp__vit_head_fn. */
typedef void (*sfp__vit_compose_fn)(void *ctx, int first, int n, const float *query);

/* The same for one layer, from the class tokens (n, D) that enter it. */
typedef void (*sfp__vit_compose_layer_fn)(void *ctx, int layer, int first, int n, const float *token);

/* The prefix of one layer. */
typedef struct sfp__vit_prompt {
    int rows;               /* of its keys (and of its values); 0: none */
    const float *k, *v;     /* (b, rows, D) */
    float *grad_k, *grad_v; /* (b, rows, D) out; NULL: not wanted */
} sfp__vit_prompt;

typedef struct sfp__vit_pass {
    /* inputs */
    int b;
    const float *x;         /* (b, 3, S, S), normalised; or NULL and */
    const float *const *xs; /* (b) one (3, S, S) each */
    bool embed_only;        /* stop after the patch embedding: only embed and mean_embed come out */

    /* prompts */
    const sfp__vit_prompt *prompts;          /* (depth) or NULL: none */
    size_t prefix_stride;                    /* floats from sample to sample in prefixes and their gradients; 0: rows * D */
    float *query;                            /* (b, D) features of the unprompted vit, or NULL: not needed */
    int queries;                             /* the first `queries` of them are computed by this pass, the others given */
    sfp__vit_compose_fn compose;             /* with query: makes the prefixes */
    sfp__vit_compose_layer_fn compose_layer; /* or, layer by layer, from the class token that enters it */
    void *compose_ctx;

    /* outputs; NULL: not wanted */
    float *feature;         /* (b, D) */
    float *embed;           /* (b, L, D) patch embeddings, no position */
    float *mean_embed;      /* (b, D) mean over tokens of unit patch embeddings (docs/method.md, section 4) */
    float *const *tokens;   /* (depth) (b, T, D) tokens after block l, or NULL */
    float *normed;          /* (b, T, D) tokens after the final norm, a plan with token_head */
    float *class_attention; /* (b, H, T) last block, class token's row, prefix left out */

    /* backward modes: the loss, and what else has gradients */
    sfp__vit_head_fn head;
    sfp__vit_token_head_fn token_head; /* instead, in a plan with that option: over all tokens; in another one over class tokens
                                         alone, (n, 1, D) */
    void *head_ctx;
    float *grad_x;            /* (b, 3, S, S) out, mode GRAD_INPUT */
    sfp__vit_weights *grad_w; /* += , mode GRAD_WEIGHTS (head rows untouched: the caller owns the head) */
} sfp__vit_pass;

sfp_status sfp__vit_run(sfp__vit_plan *p, const sfp__vit_pass *pass, sfp_error *err);

/* Floating-point operations that the last sfp__vit_run executed (2 a multiply-add; matrix products and attention). */
double sfp__vit_plan_flops(const sfp__vit_plan *p);

/* Where the time of the last run went, in seconds of one lane: its lanes' sums divided by their number. */
typedef struct sfp__vit_seconds {
    double query, forward, backward;
} sfp__vit_seconds;
sfp__vit_seconds sfp__vit_plan_seconds(const sfp__vit_plan *p);

/* A weight as visitors see it. */
typedef struct sfp__vit_weight {
    const char *name; /* full: "blocks.3.attn.qkv.weight" */
    const int64_t *shape;
    int ndim;
    size_t count; /* elements */
    float **data;
} sfp__vit_weight;

/* Calls fn for every weight of `w` in the order of the lists above; ends at the first failure. */
typedef sfp_status (*sfp__vit_weight_fn)(void *ctx, const sfp__vit_weight *w, sfp_error *err);
sfp_status sfp__vit_each_weight(const sfp__vit_config *c, sfp__vit_weights *w, sfp__vit_weight_fn fn, void *ctx, sfp_error *err);

/* Space for a full set of weights (for gradients), zeroed. */
sfp_status sfp__vit_weights_create(const sfp__vit_config *config, sfp__vit_weights *out, sfp_error *err);
void sfp__vit_weights_done(const sfp__vit_config *config, sfp__vit_weights *w);
void sfp__vit_weights_zero(const sfp__vit_config *config, sfp__vit_weights *w);
void sfp__vit_weights_add(const sfp__vit_config *config, sfp__vit_weights *to, const sfp__vit_weights *from);

/* --------------------------------------------------------------- a vit that learns
 *
 * Its weights as one block of floats, so that an optimiser, an average and a checkpoint are plain loops, and the way new weights
 * come into the packed copies that passes read. */

/* Floats of all weights of such a vit in one block; each tensor begins at a multiple of 16. */
size_t sfp__vit_flat_count(const sfp__vit_config *c);

/* The tensors in a block of that many floats, which stays the caller's. */
sfp_status sfp__vit_flat_view(const sfp__vit_config *c, float *block, sfp__vit_weights *out, sfp_error *err);
void sfp__vit_flat_view_done(sfp__vit_weights *view);

/* What a training starts from: weights of products uniform by their fan (the ones that end a residual branch scaled down by
 * the number of branches), norms 1, biases 0, class token normal with 0.02. Two things that a short training has no time to
 * find: positions are sines and cosines of row and column, and keys start equal to queries, so tokens attend to what is like
 * them and near them. */
sfp_status sfp__vit_flat_init(const sfp__vit_config *c, uint64_t seed, sfp__vit_weights *view, sfp_error *err);

/* Of two sets of the same sizes; `c` says whether there is a head. */
void sfp__vit_weights_copy(const sfp__vit_config *c, sfp__vit_weights *to, const sfp__vit_weights *from);

/* Copies the weights into a vit made by sfp__vit_random and packs them again. No pass may run meanwhile. */
sfp_status sfp__vit_set_weights(sfp__vit *v, const sfp__vit_weights *from, sfp_error *err);

#endif
