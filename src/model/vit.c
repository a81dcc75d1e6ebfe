/* The weights of a vit: visiting them, random initialisation, packing. */
#include "model/vit.h"

#include "base/rng.h"
#include "model/vit_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Above the sizes of all published ViTs; they keep every product of sizes within an int or a size_t. */
enum { MAX_DIM = 8192, MAX_HIDDEN = 65536, MAX_TOKENS = 65536, MAX_PATCH = 256 };

enum { NAME_SIZE = 64 };

static const char *block_name(int block, const char *name, char buf[NAME_SIZE])
{
    (void)snprintf(buf, NAME_SIZE, "blocks.%d.%s", block, name);
    return buf;
}

/* ------------------------------------------------- all weights, one by one */

/* The sizes were checked, so their product does not overflow. */
static sfp_status visit(sfp__vit_weight_fn fn, void *ctx, const char *name, const int64_t *shape, int ndim, float **data,
                        sfp_error *err)
{
    sfp__vit_weight w = {.name = name, .shape = shape, .ndim = ndim, .count = sfp__vit_count(shape, ndim), .data = data};
    return fn(ctx, &w, err);
}

sfp_status sfp__vit_each_weight(const sfp__vit_config *c, sfp__vit_weights *w, sfp__vit_weight_fn fn, void *ctx, sfp_error *err)
{
#define VISIT(field, name, ndim, ...)                    \
    if (!(c->no_patch_bias && &w->field == &w->patch_b)) \
        TRY(visit(fn, ctx, name, (const int64_t[]){__VA_ARGS__}, ndim, &w->field, err));
    SFP__VIT_GLOBAL_LIST(VISIT)
    if (c->pre_norm) {
        SFP__VIT_PRE_LIST(VISIT)
    }
    if (c->classes > 0) {
        SFP__VIT_HEAD_LIST(VISIT)
    }
#undef VISIT
    for (int i = 0; i < c->depth; i++) {
        sfp__vit_block_weights *b = &w->blocks[i];
        char full[NAME_SIZE];
#define VISIT(field, name, ndim, ...) \
    TRY(visit(fn, ctx, block_name(i, name, full), (const int64_t[]){__VA_ARGS__}, ndim, &b->field, err));
        SFP__VIT_BLOCK_LIST(VISIT)
#undef VISIT
    }
    return SFP_OK;
}

static sfp_status allocate_zeroed(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    (void)ctx;
    return sfp__alloc(w->data, w->count, sizeof **w->data, err);
}

static sfp_status free_weight(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    (void)ctx;
    (void)err;
    sfp__free(*w->data);
    *w->data = NULL;
    return SFP_OK;
}

sfp_status sfp__vit_weights_create(const sfp__vit_config *config, sfp__vit_weights *out, sfp_error *err)
{
    sfp__vit_weights w = {0};
    TRY(sfp__alloc(&w.blocks, (size_t)config->depth, sizeof *w.blocks, err));
    sfp_status status = sfp__vit_each_weight(config, &w, allocate_zeroed, NULL, err);
    if (status)
        sfp__vit_weights_done(config, &w);
    else
        *out = w;
    return status;
}

void sfp__vit_weights_done(const sfp__vit_config *config, sfp__vit_weights *w)
{
    if (!w->blocks)
        return;
    (void)sfp__vit_each_weight(config, w, free_weight, NULL, NULL);
    sfp__free(w->blocks);
    w->blocks = NULL;
}

static sfp_status list_weight(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    (void)err;
    const float ***at = ctx;
    *(*at)++ = *w->data;
    return SFP_OK;
}

typedef struct combine_ctx {
    const float **from; /* arrays of the other set of weights, in the same order */
    bool add;           /* true: add, false: copy */
} combine_ctx;

static sfp_status combine_weight(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    (void)err;
    combine_ctx *c = ctx;
    const float *from = *c->from++;
    float *to = *w->data;
    if (!c->add)
        memcpy(to, from, w->count * sizeof *to);
    for (size_t i = 0; c->add && i < w->count; i++)
        to[i] += from[i];
    return SFP_OK;
}

static void combine(const sfp__vit_config *config, sfp__vit_weights *to, const sfp__vit_weights *from, bool add)
{
    const float *list[16 + 12 * SFP__VIT_MAX_DEPTH], **at = list;
    sfp__vit_weights view = *from;
    (void)sfp__vit_each_weight(config, &view, list_weight, &at, NULL);
    (void)sfp__vit_each_weight(config, to, combine_weight, &(combine_ctx){list, add}, NULL);
}

void sfp__vit_weights_add(const sfp__vit_config *config, sfp__vit_weights *to, const sfp__vit_weights *from)
{
    combine(config, to, from, true);
}

void sfp__vit_weights_copy(const sfp__vit_config *config, sfp__vit_weights *to, const sfp__vit_weights *from)
{
    combine(config, to, from, false);
}

static sfp_status clear_weight(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    (void)ctx;
    (void)err;
    memset(*w->data, 0, w->count * sizeof **w->data);
    return SFP_OK;
}

void sfp__vit_weights_zero(const sfp__vit_config *config, sfp__vit_weights *w)
{
    (void)sfp__vit_each_weight(config, w, clear_weight, NULL, NULL);
}

static sfp_status count_weight(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    (void)err;
    if (strncmp(w->name, "head.", 5) != 0)
        *(size_t *)ctx += w->count;
    return SFP_OK;
}

size_t sfp__vit_parameters(const sfp__vit *v)
{
    size_t n = 0;
    sfp__vit_weights view = v->weights;
    (void)sfp__vit_each_weight(&v->config, &view, count_weight, &n, NULL);
    return n;
}

int sfp__vit_size_for_load(const sfp__vit_config *c, double load)
{
    /* Half of the patches and twice the samples change accuracy by -.007, -.003 and +.033 at loads 2, 4 and 16, on average over
     * four datasets; by +.025 at load 8, over two of them. */
    static const double full_size_max = 5;
    if (!(load > full_size_max))
        return c->img_size;
    int patches = c->img_size / c->patch_size, side = (int)lround(patches / sqrt(2));
    return (side > 1 ? side : 1) * c->patch_size;
}

/* -------------------------------------------------------- creating and freeing */

sfp_status sfp__vit_check_config(const char *file, const sfp__vit_config *c, sfp_error *err)
{
    struct {
        const char *name;
        int value, min, max;
    } const limits[] = {{"width", c->dim, 1, MAX_DIM},
                        {"depth", c->depth, 1, SFP__VIT_MAX_DEPTH},
                        {"MLP width", c->hidden, 1, MAX_HIDDEN},
                        {"heads", c->heads, 1, c->dim},
                        {"patch size", c->patch_size, 1, MAX_PATCH},
                        {"channels", c->channels, 3, 3},
                        {"classes", c->classes, 0, SFP__VIT_MAX_CLASSES},
                        {"image size", c->img_size, c->patch_size, MAX_PATCH * 256}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].value < limits[i].min || limits[i].value > limits[i].max)
            return sfp__fail(err, SFP_ESHAPE, "%s: %s is %d, expected %d to %d", file, limits[i].name, limits[i].value,
                             limits[i].min, limits[i].max);
    if (c->dim % c->heads != 0)
        return sfp__fail(err, SFP_ESHAPE, "%s: width %d is not a multiple of %d heads", file, c->dim, c->heads);
    if (c->img_size % c->patch_size != 0)
        return sfp__fail(err, SFP_ESHAPE, "%s: image size %d is not a multiple of patch size %d", file, c->img_size,
                         c->patch_size);
    int side = c->img_size / c->patch_size;
    if (side > 255)
        return sfp__fail(err, SFP_ESHAPE, "%s: patches are %d x %d, expected at most 255 x 255", file, side, side);
    if (!(c->ln_eps > 0) || !(c->ln_eps < 1))
        return sfp__fail(err, SFP_EINVAL, "%s: layer-norm eps is %g, expected between 0 and 1", file, (double)c->ln_eps);
    for (int i = 0; i < 3; i++)
        if (!isfinite(c->mean[i]) || !isfinite(c->std[i]) || c->std[i] <= 0)
            return sfp__fail(err, SFP_EINVAL, "%s: mean/std of channel %d are %g/%g, expected finite and std > 0", file, i,
                             (double)c->mean[i], (double)c->std[i]);
    return SFP_OK;
}

sfp_status sfp__vit_new(const sfp__vit_config *c, sfp__vit **out, sfp_error *err)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    TRY(sfp__alloc(&v, 1, sizeof *v, err));
    pthread_mutex_init(&v->lock, NULL);
    v->config = *c;
    v->config.class_names = NULL;
    int side = c->img_size / c->patch_size;
    v->patches = side * side;
    v->tokens = v->patches + 1;
    v->head_dim = c->dim / c->heads;
    size_t depth = (size_t)c->depth;
    const sfp__want list[] = {{&v->weights.blocks, depth, sizeof *v->weights.blocks},
                              {&v->packed, depth, sizeof *v->packed},
                              {&v->owned, 16 + 12 * depth, sizeof *v->owned}};
    TRY(sfp__block_cleared(&v->arrays, SFP__LIST(list), err));
    *out = TAKE(v);
    return SFP_OK;
}

void sfp__vit_free(sfp__vit *v)
{
    if (!v)
        return;
    sfp__gemm_weight_free(v->patch);
    sfp__gemm_weight_free(v->patch_t);
    for (int i = 0; v->packed && i < v->config.depth; i++) {
        sfp__vit_packed *p = &v->packed[i];
        sfp__gemm_weight *all[] = {p->qkv,   p->q,   p->kv,   p->proj,   p->fc1,   p->fc2,
                                   p->qkv_t, p->q_t, p->kv_t, p->proj_t, p->fc1_t, p->fc2_t};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            sfp__gemm_weight_free(all[k]);
    }
    for (size_t i = 0; i < v->owned_count; i++)
        sfp__free(v->owned[i]);
    for (int i = 0; v->config.class_names && i < v->config.classes; i++)
        sfp__free(v->config.class_names[i]);
    sfp__free(v->config.class_names);
    sfp__free(v->arrays);
    sfp__free(v->held);
    sfp__free(v->first_rows);
    sfp__tensor_file_close(v->file);
    pthread_mutex_destroy(&v->lock);
    sfp__free(v);
}

const char *sfp__vit_path(const sfp__vit *v)
{
    return v->file ? v->file->path : NULL;
}

/* ------------------------------------------------------------------ random */

typedef struct random_ctx {
    sfp__vit *v;
    sfp__rng rng;
    float scale;
} random_ctx;

static sfp_status init_random(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    random_ctx *r = ctx;
    TRY(allocate_zeroed(NULL, w, err));
    r->v->owned[r->v->owned_count++] = *w->data;
    const char *dot = strrchr(w->name, '.');
    bool norm = strstr(w->name, "norm") != NULL && dot && strcmp(dot, ".weight") == 0;
    for (size_t i = 0; i < w->count; i++)
        (*w->data)[i] = (norm ? 1.0f : 0.0f) + r->scale * (float)sfp__rng_normal(&r->rng);
    return SFP_OK;
}

sfp_status sfp__vit_random(const sfp__vit_config *config, uint64_t seed, float scale, sfp__vit **out, sfp_error *err)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    TRY(sfp__vit_check_config("random vit", config, err));
    TRY(sfp__vit_new(config, &v, err));
    random_ctx ctx = {.v = v, .rng = sfp__rng_init(seed, 0), .scale = scale};
    TRY(sfp__vit_each_weight(&v->config, &v->weights, init_random, &ctx, err));
    (void)snprintf(v->recognised, sizeof v->recognised, "seeded random weights");
    *out = TAKE(v);
    return SFP_OK;
}

/* --------------------------------------------------------- plain matrices */

static float **matrix_of(const sfp__vit *v, int block, sfp__vit_matrix m)
{
    sfp__vit_block_weights *b = &v->weights.blocks[block];
    float **const all[SFP__VIT_MATRICES] = {&b->qkv_w, &b->proj_w, &b->fc1_w, &b->fc2_w};
    return all[m];
}

static size_t matrix_count(const sfp__vit *v, sfp__vit_matrix m)
{
    size_t D = (size_t)v->config.dim, F = (size_t)v->config.hidden;
    const size_t all[SFP__VIT_MATRICES] = {3 * D * D, D * D, F * D, F * D};
    return all[m];
}

/* Returns whether the packed copies of the forward pass contain the whole matrix. */
static bool is_packed(const sfp__vit *v, int block, sfp__vit_matrix m)
{
    const sfp__vit_packed *p = &v->packed[block];
    const bool all[SFP__VIT_MATRICES] = {p->qkv || (p->q && p->kv), p->proj, p->fc1, p->fc2};
    return all[m];
}

/* Restores a plain matrix that was freed, from its packed copies. */
static sfp_status restore(sfp__vit *v, int block, sfp__vit_matrix m, sfp_error *err)
{
    const sfp__vit_packed *p = &v->packed[block];
    const sfp__gemm_weight *const from[SFP__VIT_MATRICES] = {p->qkv ? p->qkv : p->q, p->proj, p->fc1, p->fc2};
    size_t D = (size_t)v->config.dim;
    if (*matrix_of(v, block, m))
        return SFP_OK;
    OWNED float *x = sfp__malloc(matrix_count(v, m) * sizeof *x);
    TRY(sfp__check_memory(x, err));
    TRY(sfp__gemm_weight_unpack(from[m], x, err));
    if (m == SFP__VIT_QKV && !p->qkv)
        TRY(sfp__gemm_weight_unpack(p->kv, x + D * D, err));
    v->owned[v->owned_count++] = x;
    *matrix_of(v, block, m) = TAKE(x);
    return SFP_OK;
}

/* Frees a weight that is a heap array. A weight that points into the file is not in the list of such arrays. */
static void free_owned(sfp__vit *v, const float *x)
{
    for (size_t i = 0; i < v->owned_count; i++)
        if (v->owned[i] == x) {
            sfp__free(v->owned[i]);
            v->owned[i] = v->owned[--v->owned_count];
            v->fragmented = true;
            return;
        }
}

static sfp_status list_span(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    (void)err;
    sfp__span **at = ctx;
    if (*w->data)
        *(*at)++ = (sfp__span){*w->data, *w->data + w->count};
    return SFP_OK;
}

/* Frees the plain matrices that are packed and not held, and the parts of the file that no weight points to any more. */
static void release(sfp__vit *v)
{
    sfp__span keep[16 + 12 * SFP__VIT_MAX_DEPTH], *end = keep;
    if (!v->first_rows)
        return;
    for (int i = 0; i < v->config.depth; i++)
        for (int m = 0; m < SFP__VIT_MATRICES; m++) {
            float **x = matrix_of(v, i, (sfp__vit_matrix)m);
            if (!*x || v->held[i][m] || !is_packed(v, i, (sfp__vit_matrix)m))
                continue;
            free_owned(v, *x);
            *x = NULL;
        }
    (void)sfp__vit_each_weight(&v->config, &v->weights, list_span, &end, NULL);
    if (v->file)
        sfp__tensor_file_keep_only(v->file, (size_t)(end - keep), keep);
}

sfp_status sfp__vit_free_packed(sfp__vit *v, sfp_error *err)
{
    size_t depth = (size_t)v->config.depth, D = (size_t)v->config.dim;
    if (v->first_rows || v->config.rows || v->precision != SFP_PRECISION_F32)
        return SFP_OK;
    OWNED float *rows = NULL;
    TRY(sfp__alloc(&rows, depth * D, sizeof *rows, err));
    TRY(sfp__alloc(&v->held, depth, sizeof *v->held, err));
    for (size_t i = 0; i < depth; i++)
        memcpy(rows + i * D, v->weights.blocks[i].qkv_w, D * sizeof *rows);
    v->first_rows = TAKE(rows);
    release(v);
    return SFP_OK;
}

const float *sfp__vit_first_row(const sfp__vit *v, int block)
{
    return v->first_rows ? v->first_rows + (size_t)block * (size_t)v->config.dim : v->weights.blocks[block].qkv_w;
}

sfp_status sfp__vit_hold(sfp__vit *v, int block, sfp__vit_matrix m, sfp_error *err)
{
    if (!v->first_rows)
        return SFP_OK;
    pthread_mutex_lock(&v->lock);
    sfp_status status = restore(v, block, m, err);
    if (!status)
        v->held[block][m]++;
    pthread_mutex_unlock(&v->lock);
    return status;
}

void sfp__vit_unhold(sfp__vit *v, int block, sfp__vit_matrix m)
{
    if (!v->first_rows)
        return;
    pthread_mutex_lock(&v->lock);
    if (--v->held[block][m] == 0)
        release(v);
    pthread_mutex_unlock(&v->lock);
}

/* Releases the first `count` matrices, in the order of hold_all. */
static void unhold_first(sfp__vit *v, int count)
{
    for (int i = 0; i < count; i++)
        sfp__vit_unhold(v, i / SFP__VIT_MATRICES, (sfp__vit_matrix)(i % SFP__VIT_MATRICES));
}

sfp_status sfp__vit_hold_all(sfp__vit *v, sfp_error *err)
{
    for (int i = 0; i < v->config.depth * SFP__VIT_MATRICES; i++) {
        sfp_status status = sfp__vit_hold(v, i / SFP__VIT_MATRICES, (sfp__vit_matrix)(i % SFP__VIT_MATRICES), err);
        if (status) {
            unhold_first(v, i);
            return status;
        }
    }
    return SFP_OK;
}

void sfp__vit_unhold_all(sfp__vit *v)
{
    unhold_first(v, v->config.depth * SFP__VIT_MATRICES);
}

/* ----------------------------------------------------------------- packing */

static sfp_status pack_weight(sfp__vit *v, sfp__gemm_weight **slot, int n, int k, const float *w, bool transposed,
                              const float *bias, int align, sfp_error *err)
{
    if (*slot && !v->repacking)
        return SFP_OK;
    if (!*slot && v->repacking)
        return SFP_OK; /* no plan needs it */
    sfp__gemm_weight_desc d = {
        .n = n, .k = k, .w = w, .transposed = transposed, .bias = bias, .align = align, .precision = v->precision};
    return *slot ? sfp__gemm_weight_update(*slot, &d, err) : sfp__gemm_weight_create(&d, slot, err);
}

/* Packs `n` rows of a plain matrix of a block from row `row` on, or their transpose. */
static sfp_status pack_matrix(sfp__vit *v, int block, sfp__vit_matrix m, int row, sfp__gemm_weight **slot, int n, int k,
                              bool transposed, const float *bias, int align, sfp_error *err)
{
    if (!*slot == v->repacking)
        return SFP_OK;
    TRY(restore(v, block, m, err));
    const float *w = *matrix_of(v, block, m) + (size_t)row * (size_t)(transposed ? n : k);
    return pack_weight(v, slot, n, k, w, transposed, bias, align, err);
}

static sfp_status pack_forward(sfp__vit *v, int i, bool whole, sfp_error *err)
{
    const sfp__vit_block_weights *b = &v->weights.blocks[i];
    sfp__vit_packed *p = &v->packed[i];
    int D = v->config.dim, F = v->config.hidden, hd = v->head_dim;
    if (whole) {
        TRY(pack_matrix(v, i, SFP__VIT_QKV, 0, &p->qkv, 3 * D, D, false, b->qkv_b, hd, err));
    } else {
        TRY(pack_matrix(v, i, SFP__VIT_QKV, 0, &p->q, D, D, false, b->qkv_b, hd, err));
        TRY(pack_matrix(v, i, SFP__VIT_QKV, D, &p->kv, 2 * D, D, false, b->qkv_b + D, hd, err));
    }
    TRY(pack_matrix(v, i, SFP__VIT_PROJ, 0, &p->proj, D, D, false, b->proj_b, 0, err));
    TRY(pack_matrix(v, i, SFP__VIT_FC1, 0, &p->fc1, F, D, false, b->fc1_b, 0, err));
    return pack_matrix(v, i, SFP__VIT_FC2, 0, &p->fc2, D, F, false, b->fc2_b, 0, err);
}

static sfp_status pack_backward(sfp__vit *v, int i, bool whole, sfp_error *err)
{
    sfp__vit_packed *p = &v->packed[i];
    int D = v->config.dim, F = v->config.hidden, hd = v->head_dim;
    if (whole) {
        TRY(pack_matrix(v, i, SFP__VIT_QKV, 0, &p->qkv_t, D, 3 * D, true, NULL, 0, err));
    } else {
        TRY(pack_matrix(v, i, SFP__VIT_QKV, 0, &p->q_t, D, D, true, NULL, 0, err));
        TRY(pack_matrix(v, i, SFP__VIT_QKV, D, &p->kv_t, D, 2 * D, true, NULL, 0, err));
    }
    TRY(pack_matrix(v, i, SFP__VIT_PROJ, 0, &p->proj_t, D, D, true, NULL, hd, err));
    TRY(pack_matrix(v, i, SFP__VIT_FC1, 0, &p->fc1_t, D, F, true, NULL, 0, err));
    return pack_matrix(v, i, SFP__VIT_FC2, 0, &p->fc2_t, F, D, true, NULL, 0, err);
}

/* Packs the weights that a plan of this mode reads. In the last block q is separate from k and v, unless all tokens are
 * computed. */
static sfp_status pack_all(sfp__vit *v, int mode, bool all_tokens, sfp_error *err)
{
    const sfp__vit_config *c = &v->config;
    int patch_in = c->channels * c->patch_size * c->patch_size;
    TRY(pack_weight(v, &v->patch, c->dim, patch_in, v->weights.patch_w, false, v->weights.patch_b, 0, err));
    if (mode & SFP__VIT_GRAD_INPUT)
        TRY(pack_weight(v, &v->patch_t, patch_in, c->dim, v->weights.patch_w, true, NULL, 0, err));
    for (int i = 0; i < c->depth; i++) {
        bool whole = all_tokens || i < c->depth - 1;
        TRY(pack_forward(v, i, whole, err));
        if (mode != SFP__VIT_FORWARD)
            TRY(pack_backward(v, i, whole, err));
        release(v);
    }
    return SFP_OK;
}

sfp_status sfp__vit_pack(sfp__vit *v, int mode, bool all_tokens, sfp_error *err)
{
    pthread_mutex_lock(&v->lock);
    sfp_status status = pack_all(v, mode, all_tokens, err);
    if (v->fragmented)
        sfp__mem_trim();
    v->fragmented = false;
    pthread_mutex_unlock(&v->lock);
    return status;
}

/* Updates all packed copies; those of the last block in both forms, joint and separate. */
static sfp_status repack_all(sfp__vit *v, sfp_error *err)
{
    TRY(pack_all(v, SFP__VIT_GRAD_INPUT, false, err));
    TRY(pack_forward(v, v->config.depth - 1, true, err));
    return pack_backward(v, v->config.depth - 1, true, err);
}

sfp_status sfp__vit_repack(sfp__vit *v, sfp_error *err)
{
    pthread_mutex_lock(&v->lock);
    v->repacking = true;
    sfp_status status = repack_all(v, err);
    v->repacking = false;
    pthread_mutex_unlock(&v->lock);
    return status;
}

/* -------------------------------------------------------------------- head */

sfp_status sfp__vit_head(const sfp__vit *v, int b, const float *feature, float *logits, sfp_error *err)
{
    const sfp__vit_config *c = &v->config;
    if (c->classes == 0)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: tensor 'head.weight' is missing, so there are features but no class scores",
                         v->file ? v->file->path : "vit");
    for (int i = 0; i < b; i++)
        memcpy(logits + (size_t)i * (size_t)c->classes, v->weights.head_b, (size_t)c->classes * sizeof *logits);
    int token = sfp__gemm_enter();
    sfp__gemm_plain(false, true, b, c->classes, c->dim, feature, c->dim, v->weights.head_w, c->dim, 1.0f, logits, c->classes);
    sfp__gemm_leave(token);
    return SFP_OK;
}
