/* Shared by the files of `model`: the weights of a vit and their packing; the contents of a plan: the prepared products, the
 * workspace of a lane and the micro-batch that runs on it. */
#ifndef SFP_MODEL_VIT_INTERNAL_H
#define SFP_MODEL_VIT_INTERNAL_H

#include "base/digest.h"
#include "compute/gemm.h"
#include "compute/kernels.h"
#include "io/tensor/tensor_file.h"
#include "model/vit.h"

/* The number of elements of a weight; its sizes were checked, so the product does not overflow. */
static inline size_t sfp__vit_count(const int64_t *shape, int ndim)
{
    size_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= (size_t)shape[i];
    return n;
}

sfp_status sfp__vit_check_config(const char *file, const sfp__vit_config *c, sfp_error *err);
/* Creates a vit of these sizes without weights and class names. */
sfp_status sfp__vit_new(const sfp__vit_config *c, sfp__vit **out, sfp_error *err);
/* Packs the weights that a plan with this mode needs and that are not packed yet. */
sfp_status sfp__vit_pack(sfp__vit *v, int mode, bool all_tokens, sfp_error *err);

/* Updates every packed copy after the weights have changed. No pass may run meanwhile. */
sfp_status sfp__vit_repack(sfp__vit *v, sfp_error *err);

/* ------------------------------------------------------------- feature cache */

enum { SFP__VIT_MICROBATCH_MAX = 64, SFP__VIT_PART_KINDS = 3 /* the first part, the last one, those between */ };

/* The value that a pass takes from its feature cache (vit_memo.c), if any: the mean embeddings or the features of a pass without
 * prefixes, or the queries of a prompted pass. */
typedef enum sfp__vit_memo_role {
    SFP__MEMO_NONE,
    SFP__MEMO_EMBED,
    SFP__MEMO_QUERY,
    SFP__MEMO_PROMPTED,
    SFP__MEMO_ROLES
} sfp__vit_memo_role;

/* The cost of computing the values of a role, measured by a plan. */
typedef struct sfp__vit_memo_cost {
    int begun; /* micro-batches of charged passes so far; not counted beyond those that are computed in any case */
    double seconds;
    uint64_t computed; /* samples that were computed in `seconds` */
} sfp__vit_memo_cost;

/* Counts and seconds of the feature cache on one lane in one pass. */
typedef struct sfp__vit_memo_lane {
    int hits, misses, skipped, computed;
    double seconds;  /* of the `computed` samples */
    double overhead; /* seconds of reading and writing */
} sfp__vit_memo_lane;

/* ------------------------------------------------------------------- plans */

/* Matrix products prepared for micro-batches of n samples: M = n*T rows, or n rows (class tokens, suffix _c). Suffix _t: the
 * product with the transposed weight, for gradients. */
typedef struct sfp__vit_ops {
    sfp__gemm_op *patch, *patch_t;
    sfp__gemm_op *qkv, *kv, *proj, *fc1, *fc2;
    sfp__gemm_op *q_c, *proj_c, *fc1_c, *fc2_c;
    sfp__gemm_op *qkv_t, *kv_t, *proj_t, *fc1_t, *fc2_t;
    sfp__gemm_op *q_t_c, *proj_t_c, *fc1_t_c, *fc2_t_c;
    bool ready;
} sfp__vit_ops;

/* Arrays that a block stores for its backward pass. In forward mode all blocks share one set. In the class-only last block xmid,
 * h, st2, att and g have n rows, and qkv contains only keys and values. F: width of the MLP. Panels: the layout in which a
 * product writes its result (compute/gemm.h); dense: row-major. */
typedef struct sfp__vit_saved {
    float *xin;  /* (M, D) input of the block */
    float *st1;  /* (M, 2) mean and reciprocal deviation of the rows of xin */
    float *qkv;  /* (M, 3D) panels: queries, keys and values */
    float *att;  /* (M, D) attention output; stored only for weight gradients */
    float *xmid; /* (M, D) after the residual addition of attention */
    float *st2;  /* (M, 2) as st1, of the rows of xmid */
    float *h;    /* (M, F) panels: derivative of GELU */
    float *g;    /* (M, F) GELU output; stored only for weight gradients */
} sfp__vit_saved;

typedef struct sfp__vit_lane {
    sfp__vit_saved saved[SFP__VIT_MAX_DEPTH];
    float *patch;    /* (n*L, C*P*P) pixels of the patches */
    float *emb;      /* (n*L, D) patch embeddings, panels; backward: their gradient, dense */
    float *xpre;     /* (M, D) tokens before the norm before the blocks; pre_norm only */
    float *stpre;    /* (M, 2) as st1, of the rows of xpre */
    float *xout;     /* (M, D) output of the last block; class-only: (n, D) */
    float *xc;       /* (n, D) class rows of the last block's input */
    float *qc;       /* (n, D) class query, panels; backward: its gradient, dense */
    float *feature;  /* (n, D) output of the final norm; with a token head: all normalised tokens (M, D) */
    float *dfeature; /* gradient of feature */
    float *stf;      /* (n, 2) or (M, 2) as st1, of the rows of the final norm */
    float *a;        /* (M, D) dense input of a product */
    float *y;        /* (M, D) panels: result of a product */
    float *yc;       /* (n, D) panels: result of a product of class tokens */
    float *dx;       /* (M, D) gradient of the residual stream */
    float *dxc;      /* (n, D) gradient of the residual stream of class tokens */
    float *dqkv;     /* (M, 3D) dense: gradient of saved.qkv */
    float *dg;       /* (M, F) panels: gradient of the GELU output */
    float *dh;       /* (M, F) dense: gradient of the GELU input */
    float *tap;      /* (n, (1+depth)*D) taps of the micro-batch, read from the feature cache or to be added to it */
    float *size;     /* (n, T) number of patches that each merged token stands for. Merging also needs the arrays up to best: */
    float *keys;     /* (T, D/H) key of each token: the mean over heads, scaled to length 1 */
    float *cosine;   /* (T/2) cosine of each token of the first set and its partner */
    int *partner;    /* (T/2) the most similar token of the second set */
    int *best;       /* (T/2) tokens of the first set with the highest cosine, best first */
    float *scratch;  /* scratch of the attention kernels */
    double flops;
    sfp__vit_seconds seconds;
    double
        query_seconds; /* of the query pass of the last micro-batch, without the stages that it shares with the prompted pass */
    sfp__vit_memo_lane memo;                  /* counts of the current pass */
    sfp__digest key[SFP__VIT_MICROBATCH_MAX]; /* keys of the current micro-batch */
    bool hit[SFP__VIT_MICROBATCH_MAX];        /* the value of the sample was found in the feature cache */
    sfp__vit_weights grad;                    /* mode GRAD_WEIGHTS: sum of the weight gradients of a lane other than the first */
} sfp__vit_lane;

struct sfp__vit_plan {
    sfp__vit *v;
    sfp__thread_pool *pool;
    const sfp__kernels *kernels;
    sfp__vit_plan_options opt;
    int microbatch_size, lanes;
    int tokens[SFP__VIT_MAX_DEPTH + 1]; /* tokens per sample that enter each block, and that leave the last one */
    int levels;                         /* number of sets of ops: one per block if their numbers of tokens differ, else 1 */
    sfp__vit_ops *ops;                  /* (levels, microbatch_size + 1), by number of samples */
    sfp__vit_lane *lane;                /* (lanes + 1); the last one is for divided samples */
    void **blocks;                      /* (lanes + 1) workspace */
    int parts;        /* parts of a divided sample; 0: not prepared yet, 1: samples are not divided (vit_divide.c) */
    int part_patches; /* patches per part; the last part may have fewer, the first one also has the class token */
    sfp__vit_ops part_ops[SFP__VIT_PART_KINDS];
    void *arrays;       /* memory of ops, lane and blocks */
    uint8_t *row_bytes; /* (lanes, bytes of an image) scratch of a backbone without a network (vit_rows.c) */
    double flops;
    sfp__vit_seconds seconds;
    sfp__vit_memo_cost memo[SFP__MEMO_ROLES];
};

/* Samples [first, first + n), processed on one lane; or some rows of the tokens of one sample, processed by one thread while others
 * process the rest (vit_divide.c). */
typedef struct sfp__vit_microbatch {
    sfp__vit_plan *plan;
    const sfp__vit_pass *pass;
    sfp__vit_lane *lane;
    const sfp__vit_ops *ops;
    sfp__vit_weights *grad; /* output of weight gradients; NULL: none */
    int lane_index, first, n;
    int row, rows;  /* first row and number of rows of its tokens: 0 and n*T, or those of a part */
    float *scratch; /* scratch of the attention kernels, owned by its thread, as is flops */
    double *flops;
    bool query; /* compute the queries of the samples first */
    float *tap; /* (n, taps*D) or with tap_mean (n, (1+taps)*D): taps of its samples; NULL: not computed */
    int taps;
    bool tap_mean;
    int lowest; /* the lowest block that the backward pass must reach */
    sfp__vit_memo_role role;
    uint32_t kind; /* kind of its values in the feature cache */
    bool forced;   /* the micro-batch is computed even if all values are known */
    bool known;    /* all values were read from the cache */
} sfp__vit_microbatch;

/* Returns samples [first, first + n) of a pass on a lane, with all their tokens; it does not compute queries and taps. */
static inline sfp__vit_microbatch sfp__vit_whole(sfp__vit_plan *p, const sfp__vit_pass *pass, int lane, int first, int n)
{
    sfp__vit_lane *l = &p->lane[lane];
    return (sfp__vit_microbatch){.plan = p,
                                 .pass = pass,
                                 .lane = l,
                                 .ops = &p->ops[n],
                                 .lane_index = lane,
                                 .first = first,
                                 .n = n,
                                 .rows = n * p->v->tokens,
                                 .scratch = l->scratch,
                                 .flops = &l->flops};
}

/* vit_rows.c: the memory of a plan, and the pass, of a backbone without a network. */
sfp_status sfp__vit_rows_plan(sfp__vit_plan *p, sfp_error *err);
void sfp__vit_rows_run(const sfp__vit_plan *p, const sfp__vit_pass *pass);

/* Sets where the taps of a micro-batch are written: to the lane, if they are values of the feature cache, else to the output of the
 * pass. */
void sfp__vit_choose_taps(sfp__vit_microbatch *u);
/* Allocates the workspace of a lane for n samples. `two_qkv`: neighbouring blocks do not share the array of q, k and v. */
sfp_status sfp__vit_lane_create(const sfp__vit_plan *p, int samples, bool two_qkv, sfp__vit_lane *l, void **block,
                                sfp_error *err);
/* Prepares the products for n samples, or for the tokens and patches of a part. */
sfp_status sfp__vit_ops_create(const sfp__vit_plan *p, int n, int M, int patches, sfp__vit_ops *o, sfp_error *err);

/* vit_divide.c: passes over fewer samples than there are threads. can_divide: whether the plan can divide samples. divides: whether it divides
 * those of this pass; need_parts must have prepared the plan. */
bool sfp__vit_can_divide(const sfp__vit_plan *p);
bool sfp__vit_divides(const sfp__vit_plan *p, const sfp__vit_pass *pass, int microbatch_size, sfp__vit_memo_role role);
sfp_status sfp__vit_need_parts(sfp__vit_plan *p, sfp_error *err);
void sfp__vit_run_divided(sfp__vit_plan *p, const sfp__vit_pass *pass);

/* vit_memo.c:
 *   role_of      returns which values the pass takes from its cache
 *   probe        is called before the pass for all sizes of micro-batches
 *   choose_taps  sets the taps that an entry of a query contains
 *   read         returns whether all values are known; if so, writes them to the outputs of the pass
 *   write        adds the values that were computed, and writes their taps
 *   measure      records the seconds of a micro-batch that was computed
 *   charge       adds, at the end of a pass, the seconds of those that were read; `pieces` micro-batches had a role */
sfp__vit_memo_role sfp__vit_memo_role_of(const sfp__vit_plan *p, const sfp__vit_pass *pass);
void sfp__vit_memo_choose_taps(const struct sfp__vit_memo *m, sfp__vit_microbatch *u);
void sfp__vit_memo_probe(struct sfp__vit_memo *m, sfp__vit_plan *p, int n);
bool sfp__vit_memo_forced(const sfp__vit_plan *p, const sfp__vit_pass *pass, sfp__vit_memo_role role, int index);
bool sfp__vit_memo_read(sfp__vit_microbatch *u);
void sfp__vit_memo_write(const sfp__vit_microbatch *u);
void sfp__vit_memo_measure(const sfp__vit_microbatch *u, int index, double seconds);
void sfp__vit_memo_charge(sfp__vit_plan *p, const sfp__vit_pass *pass, sfp__vit_memo_role role, int pieces, int microbatches);

/* The stages of a forward pass: the embedding, then each block of the query pass, if it is computed, and of the prompted one. A stage of
 * a part reads rows of other parts, but only those of the stages before it. */
int sfp__vit_stages(const sfp__vit_microbatch *u);
void sfp__vit_forward_stage(const sfp__vit_microbatch *u, int stage);
void sfp__vit_forward(const sfp__vit_microbatch *u);
void sfp__vit_backward(const sfp__vit_microbatch *u);

/* vit_merge.c: merges tokens after the attention of block l (docs/method.md, section 18), in place: the rows of x (n, tokens[l], D), and the
 * numbers of patches that they stand for (lane->size). */
void sfp__vit_merge(const sfp__vit_microbatch *u, int l, float *x);

/* Returns the products of rows of the tokens that enter block l. */
static inline const sfp__vit_ops *sfp__vit_ops_at(const sfp__vit_microbatch *u, int l)
{
    return u->plan->levels > 1 ? u->ops + (size_t)l * (size_t)(u->plan->microbatch_size + 1) : u->ops;
}

/* Computes y = x w on the micro-batch's lane and counts the operations. */
static inline void sfp__vit_product(const sfp__vit_microbatch *u, const sfp__gemm_op *op, int m, int n, int k,
                                    const sfp__gemm_weight *w, const float *x, float *y)
{
    sfp__gemm_run(op, u->lane_index, w, x, y);
    *u->flops += 2.0 * m * n * k;
}

/* Returns the address of row r, column c of a matrix in panels. */
static inline float *sfp__vit_panel_at(float *p, int m, int w, int r, int c)
{
    return p + (size_t)(c / w) * (size_t)m * (size_t)w + (size_t)r * (size_t)w + (size_t)(c % w);
}

/* Sets up the attention of sample i of the micro-batch, head h, block l, with its prefix if prompted; the members of the backward
 * pass are not set. */
sfp__attn sfp__vit_attention(const sfp__vit_microbatch *u, int l, int i, int h, bool prompted);

/* Returns the prefix of layer l; rows 0: no prompts. */
static inline sfp__vit_prompt sfp__vit_prompt_at(const sfp__vit_pass *pass, int l)
{
    return pass->prompts ? pass->prompts[l] : (sfp__vit_prompt){0};
}

/* Returns the offset of sample i's prefix (or its gradient) of layer l. */
static inline size_t sfp__vit_prefix_at(const sfp__vit_microbatch *u, int l, int i)
{
    const sfp__vit_pass *pass = u->pass;
    size_t rows = (size_t)sfp__vit_prompt_at(pass, l).rows, D = (size_t)u->plan->v->config.dim;
    return (size_t)(u->first + i) * (pass->prefix_stride ? pass->prefix_stride : rows * D);
}

#endif
