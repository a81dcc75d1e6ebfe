/* A vit's weights: shapes from the tensors, loading, random making, packing. */
#include "model/vit.h"

#include "base/mem.h"
#include "base/rng.h"
#include "io/config.h"
#include "model/vit_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More than any published ViT has; keeps every product of sizes in an int or a size_t. */
enum { MAX_DIM = 8192, MAX_HIDDEN = 65536, MAX_TOKENS = 65536, MAX_CLASSES = 1 << 20, MAX_PATCH = 256 };

static const float imagenet_mean[3] = {0.485f, 0.456f, 0.406f}, imagenet_std[3] = {0.229f, 0.224f, 0.225f};

const char *sfp__vit_block_name(int block, const char *name, char *buf, size_t size)
{
    (void)snprintf(buf, size, "blocks.%d.%s", block, name);
    return buf;
}

/* ------------------------------------------------- all weights, one by one */

/* Calls fn for every weight of `w` with its full name and shape. */
typedef sfp_status (*weight_fn)(void *ctx, const char *name, const int64_t *shape, int ndim, float **field, sfp_error *err);

static sfp_status each_weight(const sfp_vit_config *c, sfp_vit_weights *w, weight_fn fn, void *ctx, sfp_error *err)
{
    sfp_status s;
#define VISIT(field, name, ndim, ...)                                          \
    if ((s = fn(ctx, name, (const int64_t[]){__VA_ARGS__}, ndim, &w->field, err)))                                             \
        return s;
    SFP_VIT_GLOBAL_LIST(VISIT)
    if (c->classes > 0) {
        SFP_VIT_HEAD_LIST(VISIT)
    }
#undef VISIT
    for (int i = 0; i < c->depth; i++) {
        sfp_vit_block_weights *b = &w->blocks[i];
        char full[64];
#define VISIT(field, name, ndim, ...)                                          \
    if ((s = fn(ctx, sfp__vit_block_name(i, name, full, sizeof full), (const int64_t[]){__VA_ARGS__}, ndim, &b->field, err)))  \
        return s;
        SFP_VIT_BLOCK_LIST(VISIT)
#undef VISIT
    }
    return SFP_OK;
}

static size_t count_of(const int64_t *shape, int ndim)
{
    size_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= (size_t)shape[i];
    return n;
}

static sfp_status make_zero(void *ctx, const char *name, const int64_t *shape, int ndim, float **field, sfp_error *err)
{
    (void)ctx;
    (void)name;
    size_t n = count_of(shape, ndim);
    *field = sfp__calloc(n, sizeof **field);
    return *field ? SFP_OK : sfp__fail_nomem(err, n * sizeof **field);
}

static sfp_status free_one(void *ctx, const char *name, const int64_t *shape, int ndim, float **field, sfp_error *err)
{
    (void)ctx;
    (void)name;
    (void)shape;
    (void)ndim;
    (void)err;
    sfp__free(*field);
    *field = NULL;
    return SFP_OK;
}

sfp_status sfp__vit_weights_create(const sfp_vit_config *config, sfp_vit_weights *out, sfp_error *err)
{
    sfp_vit_weights w = {0};
    w.blocks = sfp__calloc((size_t)config->depth, sizeof *w.blocks);
    if (!w.blocks)
        return sfp__fail_nomem(err, (size_t)config->depth * sizeof *w.blocks);
    sfp_status s = each_weight(config, &w, make_zero, NULL, err);
    if (s)
        sfp__vit_weights_done(config, &w);
    else
        *out = w;
    return s;
}

void sfp__vit_weights_done(const sfp_vit_config *config, sfp_vit_weights *w)
{
    if (!w->blocks)
        return;
    (void)each_weight(config, w, free_one, NULL, NULL);
    sfp__free(w->blocks);
    w->blocks = NULL;
}

static sfp_status add_one(void *ctx, const char *name, const int64_t *shape, int ndim, float **field, sfp_error *err)
{
    (void)name;
    (void)err;
    const float ***from = ctx; /* the list of source arrays, in the same order */
    const float *src = *(*from)++;
    size_t n = count_of(shape, ndim);
    for (size_t i = 0; i < n; i++)
        (*field)[i] += src[i];
    return SFP_OK;
}

static sfp_status list_one(void *ctx, const char *name, const int64_t *shape, int ndim, float **field, sfp_error *err)
{
    (void)name;
    (void)shape;
    (void)ndim;
    (void)err;
    const float ***at = ctx;
    *(*at)++ = *field;
    return SFP_OK;
}

void sfp__vit_weights_add(const sfp_vit_config *config, sfp_vit_weights *to, const sfp_vit_weights *from)
{
    const float *list[16 + 12 * SFP_VIT_MAX_DEPTH];
    const float **at = list;
    sfp_vit_weights view = *from;
    (void)each_weight(config, &view, list_one, &at, NULL);
    at = list;
    (void)each_weight(config, to, add_one, &at, NULL);
}

static sfp_status zero_one(void *ctx, const char *name, const int64_t *shape, int ndim, float **field, sfp_error *err)
{
    (void)ctx;
    (void)name;
    (void)err;
    memset(*field, 0, count_of(shape, ndim) * sizeof **field);
    return SFP_OK;
}

void sfp__vit_weights_zero(const sfp_vit_config *config, sfp_vit_weights *w)
{
    (void)each_weight(config, w, zero_one, NULL, NULL);
}

static sfp_status count_one(void *ctx, const char *name, const int64_t *shape, int ndim, float **field, sfp_error *err)
{
    (void)field;
    (void)err;
    if (strncmp(name, "head.", 5) != 0)
        *(size_t *)ctx += count_of(shape, ndim);
    return SFP_OK;
}

size_t sfp__vit_parameters(const sfp_vit *v)
{
    size_t n = 0;
    sfp_vit_weights view = v->weights;
    (void)each_weight(&v->config, &view, count_one, &n, NULL);
    return n;
}

/* --------------------------------------------------------- making and freeing */

static sfp_status check_config(const char *file, const sfp_vit_config *c, sfp_error *err)
{
    struct {
        const char *what;
        int value, min, max;
    } const limits[] = {{"width", c->dim, 1, MAX_DIM},
                        {"depth", c->depth, 1, SFP_VIT_MAX_DEPTH},
                        {"MLP width", c->hidden, 1, MAX_HIDDEN},
                        {"heads", c->heads, 1, c->dim},
                        {"patch size", c->patch_size, 1, MAX_PATCH},
                        {"channels", c->channels, 3, 3},
                        {"classes", c->classes, 0, MAX_CLASSES},
                        {"image size", c->img_size, c->patch_size, MAX_PATCH * 256}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].value < limits[i].min || limits[i].value > limits[i].max)
            return sfp__fail(err, SFP_ESHAPE, "%s: %s is %d, expected %d to %d", file, limits[i].what, limits[i].value, limits[i].min,
                             limits[i].max);
    if (c->dim % c->heads != 0)
        return sfp__fail(err, SFP_ESHAPE, "%s: width %d is not a multiple of %d heads", file, c->dim, c->heads);
    if (c->img_size % c->patch_size != 0)
        return sfp__fail(err, SFP_ESHAPE, "%s: image size %d is not a multiple of patch size %d", file, c->img_size, c->patch_size);
    int side = c->img_size / c->patch_size;
    if (side > 255)
        return sfp__fail(err, SFP_ESHAPE, "%s: %d x %d patches, expected at most 255 x 255", file, side, side);
    if (!(c->ln_eps > 0) || !(c->ln_eps < 1))
        return sfp__fail(err, SFP_EINVAL, "%s: layer-norm eps is %g, expected between 0 and 1", file, (double)c->ln_eps);
    for (int i = 0; i < 3; i++)
        if (!isfinite(c->mean[i]) || !isfinite(c->std[i]) || c->std[i] <= 0)
            return sfp__fail(err, SFP_EINVAL, "%s: mean/std of channel %d are %g/%g, expected finite and std > 0", file, i,
                             (double)c->mean[i], (double)c->std[i]);
    return SFP_OK;
}

static sfp_status vit_new(const sfp_vit_config *c, sfp_vit **out, sfp_error *err)
{
    sfp_vit *v = sfp__calloc(1, sizeof *v);
    if (!v)
        return sfp__fail_nomem(err, sizeof *v);
    pthread_mutex_init(&v->lock, NULL);
    v->config = *c;
    v->config.class_names = NULL;
    int side = c->img_size / c->patch_size;
    v->patches = side * side;
    v->tokens = v->patches + 1;
    v->head_dim = c->dim / c->heads;
    v->weights.blocks = sfp__calloc((size_t)c->depth, sizeof *v->weights.blocks);
    v->packed = sfp__calloc((size_t)c->depth, sizeof *v->packed);
    v->owned = sfp__calloc(16 + 12 * (size_t)c->depth, sizeof *v->owned);
    if (!v->weights.blocks || !v->packed || !v->owned) {
        sfp__vit_free(v);
        return sfp__fail_nomem(err, (size_t)c->depth * sizeof *v->packed);
    }
    *out = v;
    return SFP_OK;
}

void sfp__vit_free(sfp_vit *v)
{
    if (!v)
        return;
    sfp__gemm_weight_free(v->patch);
    sfp__gemm_weight_free(v->patch_t);
    for (int i = 0; v->packed && i < v->config.depth; i++) {
        sfp__vit_packed *p = &v->packed[i];
        sfp_gemm_weight *all[] = {p->qkv, p->q, p->kv, p->proj, p->fc1, p->fc2, p->qkv_t, p->q_t, p->kv_t, p->proj_t, p->fc1_t, p->fc2_t};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            sfp__gemm_weight_free(all[k]);
    }
    for (size_t i = 0; i < v->owned_count; i++)
        sfp__free(v->owned[i]);
    for (int i = 0; v->config.class_names && i < v->config.classes; i++)
        sfp__free(v->config.class_names[i]);
    sfp__free(v->config.class_names);
    sfp__free(v->owned);
    sfp__free(v->packed);
    sfp__free(v->weights.blocks);
    sfp__safetensors_close(v->file);
    pthread_mutex_destroy(&v->lock);
    sfp__free(v);
}

const sfp_vit_config *sfp__vit_config(const sfp_vit *v)
{
    return &v->config;
}

const sfp_vit_weights *sfp__vit_weights(const sfp_vit *v)
{
    return &v->weights;
}

int sfp__vit_tokens(const sfp_vit *v)
{
    return v->tokens;
}

const char *sfp__vit_recognised(const sfp_vit *v)
{
    return v->recognised;
}

/* ------------------------------------------------------------------ random */

typedef struct random_ctx {
    sfp_vit *v;
    sfp_rng rng;
    float scale;
} random_ctx;

static sfp_status make_random(void *ctx, const char *name, const int64_t *shape, int ndim, float **field, sfp_error *err)
{
    random_ctx *r = ctx;
    sfp_status s = make_zero(NULL, name, shape, ndim, field, err);
    if (s)
        return s;
    r->v->owned[r->v->owned_count++] = *field;
    size_t n = count_of(shape, ndim);
    const char *dot = strrchr(name, '.');
    bool norm = strstr(name, "norm") != NULL && dot && strcmp(dot, ".weight") == 0;
    for (size_t i = 0; i < n; i++)
        (*field)[i] = (norm ? 1.0f : 0.0f) + r->scale * (float)sfp__rng_normal(&r->rng);
    return SFP_OK;
}

sfp_status sfp__vit_random(const sfp_vit_config *config, uint64_t seed, float scale, sfp_vit **out, sfp_error *err)
{
    sfp_status s = check_config("random vit", config, err);
    sfp_vit *v = NULL;
    if (!s)
        s = vit_new(config, &v, err);
    if (s)
        return s;
    random_ctx ctx = {.v = v, .rng = sfp__rng_init(seed, 0), .scale = scale};
    s = each_weight(&v->config, &v->weights, make_random, &ctx, err);
    if (s) {
        sfp__vit_free(v);
        return s;
    }
    (void)snprintf(v->recognised, sizeof v->recognised, "seeded random weights");
    *out = v;
    return SFP_OK;
}

/* ----------------------------------------------------------------- loading */

static sfp_status take_tensor(void *ctx, const char *name, const int64_t *shape, int ndim, float **field, sfp_error *err)
{
    sfp_vit *v = ctx;
    const char *path = sfp__safetensors_path(v->file);
    const sfp_tensor *t = NULL;
    sfp_status s = sfp__safetensors_need(v->file, name, &t, err);
    if (!s)
        s = sfp__tensor_expect(path, t, shape, ndim, err);
    if (s)
        return s;
    union {
        const void *in;
        float *out; /* the mapping is read-only; frozen weights are only read */
    } data = {.in = t->data};
    if (t->dtype == SFP_DTYPE_F32 && (uintptr_t)t->data % sizeof(float) == 0) {
        *field = data.out;
    } else {
        *field = sfp__malloc(t->count * sizeof **field);
        if (!*field)
            return sfp__fail_nomem(err, t->count * sizeof **field);
        v->owned[v->owned_count++] = *field;
        if ((s = sfp__tensor_to_f32(path, t, *field, err)))
            return s;
    }
    for (size_t i = 0; i < t->count; i++)
        if (!isfinite((*field)[i]))
            return sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s' has %s at element %zu, expected finite numbers", path, name,
                             isnan((*field)[i]) ? "NaN" : "an infinity", i);
    return SFP_OK;
}

static sfp_status need_rank(const sfp_safetensors *f, const char *name, int ndim, const sfp_tensor **out, sfp_error *err)
{
    sfp_status s = sfp__safetensors_need(f, name, out, err);
    char text[96];
    if (!s && (*out)->ndim != ndim)
        s = sfp__fail(err, SFP_ESHAPE, "%s: tensor '%s' is %s, expected %d dimensions", sfp__safetensors_path(f), name,
                      sfp__shape_text((*out)->shape, (*out)->ndim, text, sizeof text), ndim);
    for (int i = 0; !s && i < ndim; i++)
        if ((*out)->shape[i] < 1 || (*out)->shape[i] > MAX_CLASSES)
            s = sfp__fail(err, SFP_ESHAPE, "%s: tensor '%s' is %s, expected sizes from 1 to %d", sfp__safetensors_path(f), name,
                          sfp__shape_text((*out)->shape, ndim, text, sizeof text), (int)MAX_CLASSES);
    return s;
}

/* One more than the highest N of any "blocks.N." (so that a block without some tensor is a missing tensor, not the end). */
static int block_count(const sfp_safetensors *f)
{
    int count = 0;
    for (size_t i = 0; i < sfp__safetensors_count(f); i++) {
        const char *name = sfp__safetensors_at(f, i)->name, *digits = name + strlen("blocks.");
        char *end;
        if (strncmp(name, "blocks.", strlen("blocks.")) != 0 || *digits < '0' || *digits > '9')
            continue;
        unsigned long n = strtoul(digits, &end, 10);
        if (*end == '.' && n >= (unsigned long)count)
            count = n < 1000000 ? (int)n + 1 : 1000000; /* far above any limit */
    }
    return count;
}

/* Tensors that change what a ViT computes: a model that has them would load and be wrong. */
static sfp_status refuse_unknown_parts(const sfp_safetensors *f, sfp_error *err)
{
    static const struct {
        const char *part, *what;
    } parts[] = {{"dist_token", "a distilled DeiT with two class tokens"}, {"reg_token", "register tokens"}, {".ls1.", "layer scale"},
                 {".ls2.", "layer scale"},  {".q_norm.", "normalised queries"}, {".k_norm.", "normalised keys"},
                 {"norm_pre.", "a norm before the blocks"}, {"fc_norm.", "pooled features"}};
    for (size_t i = 0; i < sfp__safetensors_count(f); i++)
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            if (strstr(sfp__safetensors_at(f, i)->name, parts[k].part))
                return sfp__fail(err, SFP_EUNSUPPORTED, "%s: has '%s' (%s), expected a plain ViT", sfp__safetensors_path(f),
                                 sfp__safetensors_at(f, i)->name, parts[k].what);
    return SFP_OK;
}

/* Sizes from the tensors' shapes, the rest from the config beside the file. */
static sfp_status read_sizes(const sfp_safetensors *f, const sfp_model_config *beside, sfp_vit_config *c, sfp_error *err)
{
    const char *path = sfp__safetensors_path(f);
    const sfp_tensor *cls, *patch, *pos, *fc1;
    sfp_status s = need_rank(f, "cls_token", 3, &cls, err);
    if (!s)
        s = need_rank(f, "patch_embed.proj.weight", 4, &patch, err);
    if (!s)
        s = need_rank(f, "pos_embed", 3, &pos, err);
    if (!s)
        s = need_rank(f, "blocks.0.mlp.fc1.weight", 2, &fc1, err);
    if (s)
        return s;
    if ((s = refuse_unknown_parts(f, err)))
        return s;
    *c = (sfp_vit_config){.channels = (int)patch->shape[1], .dim = (int)cls->shape[2], .hidden = (int)fc1->shape[0]};
    c->patch_size = (int)patch->shape[2];
    c->depth = block_count(f);
    int side = (int)lround(sqrt((double)(pos->shape[1] - 1)));
    if (side < 1 || (int64_t)side * side != pos->shape[1] - 1)
        return sfp__fail(err, SFP_ESHAPE, "%s: tensor 'pos_embed' has %lld tokens, expected 1 + a square", path, (long long)pos->shape[1]);
    c->img_size = side * c->patch_size;
    const sfp_tensor *head = sfp__safetensors_find(f, "head.weight");
    if (head && (s = need_rank(f, "head.weight", 2, &head, err)))
        return s;
    c->classes = head ? (int)head->shape[0] : 0;
    c->heads = beside->heads;
    if (!c->heads && c->dim % 64 == 0)
        c->heads = c->dim / 64;
    if (!c->heads)
        return sfp__fail(err, SFP_EINVAL, "%s: width %d does not tell the number of heads (D/64), expected num_heads in a config.json beside it",
                         path, c->dim);
    c->ln_eps = beside->ln_eps > 0 ? beside->ln_eps : 1e-6f;
    memcpy(c->mean, beside->has_mean ? beside->mean : imagenet_mean, sizeof c->mean);
    memcpy(c->std, beside->has_std ? beside->std : imagenet_std, sizeof c->std);
    return check_config(path, c, err);
}

static sfp_status take_names(sfp_vit *v, const sfp_model_config *beside, sfp_error *err)
{
    if (!beside->class_names || beside->class_count != (size_t)v->config.classes || v->config.classes == 0)
        return SFP_OK;
    v->config.class_names = sfp__calloc(beside->class_count, sizeof *v->config.class_names);
    if (!v->config.class_names)
        return sfp__fail_nomem(err, beside->class_count * sizeof *v->config.class_names);
    for (size_t i = 0; i < beside->class_count; i++)
        if (!(v->config.class_names[i] = sfp__strdup(beside->class_names[i])))
            return sfp__fail_nomem(err, strlen(beside->class_names[i]) + 1);
    return SFP_OK;
}

sfp_status sfp__vit_load(const char *path, const sfp_vit_options *opt, sfp_vit **out, sfp_error *err)
{
    sfp_safetensors *file = NULL;
    sfp_vit *v = NULL;
    sfp_model_config beside = {0};
    bool found = false;
    sfp_vit_config config;
    sfp_status s = sfp__safetensors_open(path, &file, err);
    if (!s)
        s = sfp__model_config_beside(path, &beside, &found, err);
    if (!s)
        s = read_sizes(file, &beside, &config, err);
    if (!s)
        s = vit_new(&config, &v, err);
    if (s)
        goto done;
    v->precision = opt ? opt->precision : SFP_PRECISION_F32;
    v->file = file;
    file = NULL;
    s = take_names(v, &beside, err);
    if (!s)
        s = each_weight(&v->config, &v->weights, take_tensor, v, err);
    (void)snprintf(v->recognised, sizeof v->recognised, "plain ViT, timm names (blocks.N.attn.qkv, patch_embed.proj, one class token)%s",
                   found ? "; heads, mean, std from the config beside it" : "");
done:
    sfp__model_config_done(&beside);
    sfp__safetensors_close(file);
    if (s)
        sfp__vit_free(v);
    else
        *out = v;
    return s;
}

/* ----------------------------------------------------------------- packing */

static sfp_status pack_one(sfp_vit *v, sfp_gemm_weight **slot, int n, int k, const float *w, bool transposed, const float *bias,
                           int align, sfp_error *err)
{
    if (*slot)
        return SFP_OK;
    sfp_gemm_weight_desc d = {.n = n, .k = k, .w = w, .transposed = transposed, .bias = bias, .align = align, .precision = v->precision};
    return sfp__gemm_weight_create(&d, slot, err);
}

static sfp_status pack_forward(sfp_vit *v, int i, bool whole, sfp_error *err)
{
    const sfp_vit_config *c = &v->config;
    const sfp_vit_block_weights *b = &v->weights.blocks[i];
    sfp__vit_packed *p = &v->packed[i];
    int D = c->dim, F = c->hidden, hd = v->head_dim;
    sfp_status s = SFP_OK;
    if (whole) {
        s = pack_one(v, &p->qkv, 3 * D, D, b->qkv_w, false, b->qkv_b, hd, err);
    } else {
        s = pack_one(v, &p->q, D, D, b->qkv_w, false, b->qkv_b, hd, err);
        if (!s)
            s = pack_one(v, &p->kv, 2 * D, D, b->qkv_w + (size_t)D * (size_t)D, false, b->qkv_b + D, hd, err);
    }
    if (!s)
        s = pack_one(v, &p->proj, D, D, b->proj_w, false, b->proj_b, 0, err);
    if (!s)
        s = pack_one(v, &p->fc1, F, D, b->fc1_w, false, b->fc1_b, 0, err);
    if (!s)
        s = pack_one(v, &p->fc2, D, F, b->fc2_w, false, b->fc2_b, 0, err);
    return s;
}

static sfp_status pack_backward(sfp_vit *v, int i, bool whole, sfp_error *err)
{
    const sfp_vit_config *c = &v->config;
    const sfp_vit_block_weights *b = &v->weights.blocks[i];
    sfp__vit_packed *p = &v->packed[i];
    int D = c->dim, F = c->hidden, hd = v->head_dim;
    sfp_status s;
    if (whole) {
        s = pack_one(v, &p->qkv_t, D, 3 * D, b->qkv_w, true, NULL, 0, err);
    } else {
        s = pack_one(v, &p->q_t, D, D, b->qkv_w, true, NULL, 0, err);
        if (!s)
            s = pack_one(v, &p->kv_t, D, 2 * D, b->qkv_w + (size_t)D * (size_t)D, true, NULL, 0, err);
    }
    if (!s)
        s = pack_one(v, &p->proj_t, D, D, b->proj_w, true, NULL, hd, err);
    if (!s)
        s = pack_one(v, &p->fc1_t, D, F, b->fc1_w, true, NULL, 0, err);
    if (!s)
        s = pack_one(v, &p->fc2_t, F, D, b->fc2_w, true, NULL, 0, err);
    return s;
}

sfp_status sfp__vit_pack(sfp_vit *v, int mode, bool all_tokens, sfp_error *err)
{
    const sfp_vit_config *c = &v->config;
    int patch_in = c->channels * c->patch_size * c->patch_size;
    pthread_mutex_lock(&v->lock);
    sfp_status s = pack_one(v, &v->patch, c->dim, patch_in, v->weights.patch_w, false, v->weights.patch_b, 0, err);
    if (!s && (mode & SFP_VIT_GRAD_INPUT))
        s = pack_one(v, &v->patch_t, patch_in, c->dim, v->weights.patch_w, true, NULL, 0, err);
    for (int i = 0; !s && i < c->depth; i++) {
        bool whole = all_tokens || i < c->depth - 1;
        s = pack_forward(v, i, whole, err);
        if (!s && mode != SFP_VIT_FORWARD)
            s = pack_backward(v, i, whole, err);
    }
    if (v->file)
        sfp__safetensors_release(v->file); /* the packed copies are what passes read */
    pthread_mutex_unlock(&v->lock);
    return s;
}

/* ------------------------------------------------------------- small pieces */

sfp_status sfp__vit_head(const sfp_vit *v, int b, const float *feature, float *logits, sfp_error *err)
{
    const sfp_vit_config *c = &v->config;
    if (c->classes == 0)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: no 'head.weight', so no class scores: only features",
                         v->file ? sfp__safetensors_path(v->file) : "vit");
    for (int i = 0; i < b; i++)
        memcpy(logits + (size_t)i * (size_t)c->classes, v->weights.head_b, (size_t)c->classes * sizeof *logits);
    int token = sfp__gemm_enter();
    sfp__gemm_plain(false, true, b, c->classes, c->dim, feature, c->dim, v->weights.head_w, c->dim, 1.0f, logits, c->classes);
    sfp__gemm_leave(token);
    return SFP_OK;
}

void sfp__vit_normalise(const uint8_t *rgb, int size, const float mean[3], const float std[3], float *out)
{
    size_t n = (size_t)size * (size_t)size;
    for (int ch = 0; ch < 3; ch++) {
        float table[256]; /* (x / 255 - mean) / std for every byte: exact and fast */
        for (int i = 0; i < 256; i++)
            table[i] = ((float)i / 255.0f - mean[ch]) / std[ch];
        for (size_t i = 0; i < n; i++)
            out[(size_t)ch * n + i] = table[rgb[3 * i + (size_t)ch]];
    }
}
