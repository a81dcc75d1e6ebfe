/* Loading a vit from a weights file: recognises the naming scheme (vit_names.c), takes sizes from the tensors' shapes and other
 * values from a config. Then every weight is used in place if possible; otherwise it is converted, joined, transposed or
 * resized. */
#include "model/vit.h"

#include "base/text.h"
#include "io/config.h"
#include "model/vit_internal.h"
#include "model/vit_names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const float sfp__imagenet_mean[3] = {0.485f, 0.456f, 0.406f}, sfp__imagenet_std[3] = {0.229f, 0.224f, 0.225f};

typedef struct loading {
    const sfp__tensor_file *file;
    const char *path;
    sfp__vit_names names;
    sfp__model_config config;
    const char *config_from; /* NULL: no config */
    int side;                /* patches per side of the file's position embeddings */
    sfp__vit *v;
    bool *used; /* (tensors of the file) whether the vit uses it */
} loading;

/* ------------------------------------------------------------------- sizes */

/* Finds a weight of a block, or outside of blocks (block -1), in the file; NULL: it is missing. */
static const sfp__tensor *find(const loading *l, int block, const char *timm, int part, char name[SFP__VIT_NAME_MAX],
                               sfp__vit_order *order)
{
    return sfp__vit_names_of(&l->names, block, timm, part, name, order) ? sfp__tensor_file_find(l->file, name) : NULL;
}

static sfp_status need(const loading *l, int block, const char *timm, int part, const sfp__tensor **out, sfp__vit_order *order,
                       sfp_error *err)
{
    char name[SFP__VIT_NAME_MAX] = "";
    *out = find(l, block, timm, part, name, order);
    return *out ? SFP_OK : sfp__tensor_file_need(l->file, name, out, err);
}

static bool has(const loading *l, const char *timm)
{
    char name[SFP__VIT_NAME_MAX];
    sfp__vit_order order;
    return find(l, -1, timm, 0, name, &order) != NULL;
}

/* Returns the sizes of a weight as in timm, with `ndim` dimensions: the axes are reordered and, in loose layouts, leading ones
 * added. */
static sfp_status need_shape(const loading *l, int block, const char *timm, int ndim, int64_t *shape, sfp_error *err)
{
    const sfp__tensor *t;
    sfp__vit_order order;
    char shown[SFP__NAME_MAX], text[SFP__SHAPE_MAX];
    TRY(need(l, block, timm, 0, &t, &order, err));
    int missing = l->names.layout->loose && t->ndim < ndim ? ndim - t->ndim : 0;
    for (int i = 0; i < missing; i++)
        shape[i] = 1;
    if (t->ndim + missing != ndim)
        return sfp__fail(err, SFP_ESHAPE, "%s: tensor '%s' is %s, expected %d dimensions", l->path,
                         sfp__printable(t->name, shown, sizeof shown), sfp__shape_text(t->shape, t->ndim, text, sizeof text),
                         ndim);
    static const int hwio[] = {3, 2, 0, 1};
    for (int i = missing; i < ndim; i++) {
        shape[i] = t->shape[order == SFP__VIT_HWIO ? hwio[i] : order == SFP__VIT_SAME ? i - missing : ndim - 1 - i];
        if (shape[i] < 1 || shape[i] > SFP__VIT_MAX_CLASSES)
            return sfp__fail(err, SFP_ESHAPE, "%s: tensor '%s' is %s, expected sizes from 1 to %d", l->path,
                             sfp__printable(t->name, shown, sizeof shown), sfp__shape_text(t->shape, t->ndim, text, sizeof text),
                             (int)SFP__VIT_MAX_CLASSES);
    }
    return SFP_OK;
}

/* Rejects tensors that change the function of a ViT: a model that has them would load and be wrong. */
static sfp_status reject_variants(const loading *l, sfp_error *err)
{
    static const struct {
        const char *part, *meaning;
    } variants[] = {{"dist_token", "a distilled DeiT with two class tokens"},
                    {"distillation_token", "a distilled DeiT with two class tokens"},
                    {"reg_token", "register tokens"},
                    {"register_tokens", "register tokens"},
                    {".ls1.", "layer scale"},
                    {".ls2.", "layer scale"},
                    {".gamma_1", "layer scale"},
                    {"layer_scale", "layer scale"},
                    {".q_norm.", "normalised queries"},
                    {".k_norm.", "normalised keys"},
                    {"relative_position", "relative positions"},
                    {"fc_norm.", "pooled features"}};
    for (size_t i = 0; i < l->file->count; i++)
        for (size_t k = 0; k < sizeof variants / sizeof *variants; k++) {
            const char *name = l->file->tensors[i].name;
            if (strncmp(name, l->names.prefix, strlen(l->names.prefix)) == 0 && strstr(name, variants[k].part))
                return sfp__fail(err, SFP_EUNSUPPORTED, "%s: file has tensor '%s' (%s), expected a plain ViT", l->path,
                                 sfp__printable(name, (char[SFP__NAME_MAX]){0}, SFP__NAME_MAX), variants[k].meaning);
        }
    return SFP_OK;
}

static sfp_status read_heads(const loading *l, sfp__vit_config *c, sfp_error *err)
{
    char name[SFP__VIT_NAME_MAX];
    sfp__vit_order order;
    const sfp__tensor *q = find(l, 0, "attn.qkv.weight", 0, name, &order);
    c->heads = l->config.heads;
    if (!c->heads && q && q->ndim == 3 && order == SFP__VIT_INPUT_FIRST && q->shape[1] <= c->dim) /* (D, H, D/H) */
        c->heads = (int)q->shape[1];
    if (!c->heads && c->dim % 64 == 0)
        c->heads = c->dim / 64;
    if (!c->heads)
        return sfp__fail(
            err, SFP_EINVAL,
            "%s: number of heads is unknown, width %d is not a multiple of 64; set num_heads in a config.json beside it", l->path,
            c->dim);
    return SFP_OK;
}

/* Determines the side of the input: that of the file's position embeddings, or another one, to which they are resized. */
static sfp_status read_side(loading *l, int64_t tokens, int wanted, sfp__vit_config *c, sfp_error *err)
{
    l->side = (int)lround(sqrt((double)(tokens - 1)));
    if (l->side < 1 || (int64_t)l->side * l->side != tokens - 1)
        return sfp__fail(err, SFP_ESHAPE, "%s: tensor 'pos_embed' has %lld tokens, expected 1 + a square", l->path,
                         (long long)tokens);
    c->img_size = wanted ? wanted : l->side * c->patch_size;
    if (wanted % c->patch_size != 0)
        return sfp__fail_key(err, "img-size", SFP_EINVAL, "img-size is %d, expected a multiple of %d, the patch size of %s",
                             wanted, c->patch_size, l->path);
    return SFP_OK;
}

/* Reads sizes from the shapes of the tensors, other values from the config. */
static sfp_status read_config(loading *l, int wanted_side, sfp__vit_config *c, sfp_error *err)
{
    int64_t cls[3], patch[4], pos[3], fc1[2], head[2] = {0, 0};
    TRY(need_shape(l, -1, "cls_token", 3, cls, err));
    TRY(need_shape(l, -1, "patch_embed.proj.weight", 4, patch, err));
    TRY(need_shape(l, -1, "pos_embed", 3, pos, err));
    TRY(need_shape(l, 0, "mlp.fc1.weight", 2, fc1, err));
    TRY(reject_variants(l, err));
    if (has(l, "head.weight") && !has(l, "pre_logits/kernel")) /* if a layer precedes the head, class scores cannot be computed */
        TRY(need_shape(l, -1, "head.weight", 2, head, err));
    const sfp__model_config *beside = &l->config;
    *c = (sfp__vit_config){.channels = (int)patch[1], .dim = (int)cls[2], .hidden = (int)fc1[0], .patch_size = (int)patch[2]};
    c->depth = sfp__vit_names_depth(&l->names, l->file);
    c->classes = (int)head[0];
    c->pre_norm = has(l, "norm_pre.weight");
    c->no_patch_bias = c->pre_norm && !has(l, "patch_embed.proj.bias");
    c->quick_gelu = beside->activation[0] ? strcmp(beside->activation, "quick_gelu") == 0 : l->names.layout->quick_gelu;
    float eps = l->names.layout->ln_eps;
    c->ln_eps = beside->ln_eps > 0 ? beside->ln_eps : eps > 0 ? eps : c->pre_norm ? 1e-5f : 1e-6f;
    memcpy(c->mean, beside->has_mean ? beside->mean : sfp__imagenet_mean, sizeof c->mean);
    memcpy(c->std, beside->has_std ? beside->std : sfp__imagenet_std, sizeof c->std);
    TRY(read_side(l, pos[1], wanted_side, c, err));
    TRY(read_heads(l, c, err));
    return sfp__vit_check_config(l->path, c, err);
}

/* --------------------------------------------------------------- positions */

/* Position embeddings for another input size: the grid of patches is treated as an image of D channels. It is resized by cubic
 * convolution with a = -0.75, pixel centres at halves and the border repeated. This is torch's interpolate(mode="bicubic"), as
 * used with DeiT, DINO and CLIP; timm's own function also smooths when the grid becomes smaller. */
static double near_tap(double x)
{
    const double a = -0.75;
    return ((a + 2) * x - (a + 3)) * x * x + 1;
}

static double far_tap(double x)
{
    const double a = -0.75;
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

/* Computes the four source cells of target cell i and their weights. */
static void find_taps(int from, int to, int i, int at[4], double weight[4])
{
    double x = (i + 0.5) * from / to - 0.5, base = floor(x), t = x - base;
    const double w[4] = {far_tap(t + 1), near_tap(t), near_tap(1 - t), far_tap(2 - t)};
    for (int k = 0; k < 4; k++) {
        int cell = (int)base - 1 + k;
        at[k] = cell < 0 ? 0 : cell >= from ? from - 1 : cell;
        weight[k] = w[k];
    }
}

static void resize_positions(int dim, int from, const float *x, int to, float *out)
{
    size_t D = (size_t)dim;
    memcpy(out, x, D * sizeof *out); /* the class token has no position in the grid */
    const float *grid = x + D;
    float *cell = out + D;
    for (int row = 0; row < to; row++)
        for (int column = 0; column < to; column++, cell += D) {
            int rows[4], columns[4];
            double wr[4], wc[4];
            find_taps(from, to, row, rows, wr);
            find_taps(from, to, column, columns, wc);
            for (size_t d = 0; d < D; d++) {
                double sum = 0;
                for (int r = 0; r < 4; r++)
                    for (int c = 0; c < 4; c++)
                        sum += wr[r] * wc[c] * (double)grid[((size_t)rows[r] * (size_t)from + (size_t)columns[c]) * D + d];
                cell[d] = (float)sum;
            }
        }
}

/* ----------------------------------------------------------------- numbers */

static sfp_status allocate_owned(sfp__vit *v, size_t count, float **out, sfp_error *err)
{
    *out = sfp__malloc(count * sizeof **out);
    if (!*out)
        return sfp__fail_nomem(err);
    v->owned[v->owned_count++] = *out;
    return SFP_OK;
}

/* Transposes (rows, columns) to (columns, rows). */
static void transpose(const float *from, size_t rows, size_t columns, float *to)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            to[c * rows + r] = from[r * columns + c];
}

/* Converts (D, H*W, C) to (D, C, H*W), after (H, W, C, D) was transposed to (D, H*W, C). */
static void channels_first(const float *from, size_t dim, size_t pixels, size_t channels, float *to)
{
    for (size_t d = 0; d < dim; d++)
        transpose(from + d * pixels * channels, pixels, channels, to + d * pixels * channels);
}

/* Reads the numbers of one part into `out`, with the axes of timm; `rows` is the size of the first axis. */
static sfp_status read_part(const loading *l, const sfp__tensor *t, sfp__vit_order order, size_t rows, float *out, sfp_error *err)
{
    if (order == SFP__VIT_SAME)
        return sfp__tensor_to_f32(l->path, t, out, err);
    float *raw, *transposed;
    OWNED void *block = NULL;
    const sfp__want list[] = {{&raw, t->count, sizeof *raw},
                              {&transposed, order == SFP__VIT_HWIO ? t->count : 0, sizeof *transposed}};
    TRY(sfp__block(&block, SFP__LIST(list), err));
    TRY(sfp__tensor_to_f32(l->path, t, raw, err));
    if (order != SFP__VIT_HWIO) {
        transpose(raw, t->count / rows, rows, out);
        return SFP_OK;
    }
    size_t channels = (size_t)t->shape[2];
    transpose(raw, t->count / rows, rows, transposed);
    channels_first(transposed, rows, t->count / rows / channels, channels, out);
    return SFP_OK;
}

static sfp_status check_finite(const loading *l, const char *name, const float *x, size_t n, sfp_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s' has %s at element %zu, expected finite numbers", l->path,
                             sfp__printable(name, (char[SFP__NAME_MAX]){0}, SFP__NAME_MAX), isnan(x[i]) ? "NaN" : "an infinity",
                             i);
    return SFP_OK;
}

/* Checks that the tensor has the shape of the weight, or of a third of its rows (q, k, v stored separately). */
static sfp_status check_shape(const loading *l, const sfp__tensor *t, sfp__vit_order order, int parts, const int64_t *shape,
                              int ndim, sfp_error *err)
{
    int64_t want[SFP__MAX_DIMS];
    memcpy(want, shape, (size_t)ndim * sizeof *want);
    want[0] /= parts;
    bool matches = l->names.layout->loose && t->count == sfp__vit_count(want, ndim);
    if (order == SFP__VIT_INPUT_FIRST)
        matches = matches && t->ndim >= 2 && t->shape[0] == want[1];
    else if (order == SFP__VIT_OUTPUT_LAST)
        matches = matches && t->ndim >= 2 && t->shape[t->ndim - 1] == want[0];
    else if (order == SFP__VIT_HWIO)
        matches = matches && t->ndim == 4 && t->shape[2] == want[1] && t->shape[3] == want[0] && t->shape[0] == want[2];
    else if (l->names.layout->loose && ndim > 1)
        matches = matches && t->ndim >= 1 && t->shape[t->ndim - 1] == want[ndim - 1];
    return matches ? SFP_OK : sfp__tensor_expect(l->path, t, want, ndim, err);
}

/* A weight as stored in the file: as one tensor, or as separate q, k and v. */
typedef struct stored_weight {
    const sfp__tensor *part[3];
    int parts;
    sfp__vit_order order;
} stored_weight;

/* Finds the tensors of a weight by its full timm name, and checks the shape of every part. */
static sfp_status find_stored_weight(loading *l, const char *full, const int64_t *shape, int ndim, stored_weight *out,
                                     sfp_error *err)
{
    int block = -1;
    const char *timm = full;
    if (strncmp(full, "blocks.", 7) == 0) {
        char *end;
        block = (int)strtol(full + 7, &end, 10);
        timm = end + 1;
    }
    char name[SFP__VIT_NAME_MAX];
    *out = (stored_weight){.parts = 1};
    while (out->parts < 3 && sfp__vit_names_of(&l->names, block, timm, out->parts, name, &out->order))
        out->parts++;
    for (int i = 0; i < out->parts; i++) {
        TRY(need(l, block, timm, i, &out->part[i], &out->order, err));
        TRY(check_shape(l, out->part[i], out->order, out->parts, shape, ndim, err));
        l->used[out->part[i] - &l->file->tensors[0]] = true;
    }
    return SFP_OK;
}

/* Returns the numbers of a weight: in place if they need no conversion, else in a block owned by the vit. */
static sfp_status read_stored_weight(const loading *l, const stored_weight *w, const int64_t *shape, int ndim, float **out,
                                     sfp_error *err)
{
    size_t count = sfp__vit_count(shape, ndim), rows = (size_t)shape[0] / (size_t)w->parts, share = count / (size_t)w->parts;
    union {
        const void *in;
        float *out; /* the mapping is read-only; frozen weights are never written */
    } data = {.in = w->part[0]->data};
    bool in_place = w->parts == 1 && w->order == SFP__VIT_SAME && w->part[0]->dtype == SFP__DTYPE_F32 &&
                    (uintptr_t)data.in % sizeof(float) == 0;
    float *x = data.out;
    if (!in_place)
        TRY(allocate_owned(l->v, count, &x, err));
    for (int i = 0; i < w->parts; i++) {
        if (!in_place)
            TRY(read_part(l, w->part[i], w->order, rows, x + (size_t)i * share, err));
        TRY(check_finite(l, w->part[i]->name, x + (size_t)i * share, share, err));
    }
    *out = x;
    return SFP_OK;
}

static sfp_status load_weight(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    loading *l = ctx;
    const sfp__vit_config *c = &l->v->config;
    int side = c->img_size / c->patch_size;
    bool resized = strcmp(w->name, "pos_embed") == 0 && l->side != side;
    int64_t in_file[SFP__MAX_DIMS];
    memcpy(in_file, w->shape, (size_t)w->ndim * sizeof *in_file);
    if (resized)
        in_file[1] = 1 + (int64_t)l->side * l->side;
    stored_weight found;
    float *x = NULL;
    TRY(find_stored_weight(l, w->name, in_file, w->ndim, &found, err));
    TRY(read_stored_weight(l, &found, in_file, w->ndim, &x, err));
    if (resized) {
        const float *from = x;
        TRY(allocate_owned(l->v, w->count, &x, err));
        resize_positions(c->dim, l->side, from, side, x);
    }
    *w->data = x;
    return SFP_OK;
}

static sfp_status copy_class_names(sfp__vit *v, const sfp__model_config *beside, sfp_error *err)
{
    if (!beside->class_names || beside->class_count != (size_t)v->config.classes || v->config.classes == 0)
        return SFP_OK;
    TRY(sfp__alloc(&v->config.class_names, beside->class_count, sizeof *v->config.class_names, err));
    for (size_t i = 0; i < beside->class_count; i++)
        if (!(v->config.class_names[i] = sfp__strdup(beside->class_names[i])))
            return sfp__fail_nomem(err);
    return SFP_OK;
}

/* ------------------------------------------------------------- description of the layout and of unused tensors */

/* Describes the recognised layout and its evidence. */
static void describe(const loading *l)
{
    const sfp__vit_names *n = &l->names;
    const sfp__vit_config *c = &l->v->config;
    char prefix[SFP__NAME_MAX];
    char *out = l->v->recognised;
    size_t capacity = sizeof l->v->recognised, at = 0;
#define APPEND(...) at += at < capacity ? (size_t)snprintf(out + at, capacity - at, __VA_ARGS__) : 0
    APPEND("%s (%s)", n->layout->name, n->layout->why);
    if (n->prefix[0])
        APPEND(", under '%s'", sfp__printable(n->prefix, prefix, sizeof prefix));
    if (n->family != n->layout->name && strcmp(n->family, "timm") != 0)
        APPEND(": %s", n->family);
    if (n->others)
        APPEND("; %d more ViT%s in the file not used", n->others, n->others > 1 ? "s" : "");
    if (c->pre_norm)
        APPEND("; norm before the blocks%s", c->no_patch_bias ? ", no patch bias" : "");
    if (c->quick_gelu)
        APPEND("; QuickGELU");
    if (l->side * c->patch_size != c->img_size)
        APPEND("; positions resized from %d x %d (bicubic)", l->side, l->side);
    if (l->config_from)
        APPEND("; heads, mean, std from %s", l->config_from);
    if (n->layout->note && !l->config.has_mean)
        APPEND("; note: %s", n->layout->note);
    if (n->family_note && !l->config.heads)
        APPEND("; note: %s", n->family_note);
#undef APPEND
}

/* Describes the tensors that the vit does not use: their number and the first names. */
static void describe_ignored(const loading *l)
{
    size_t total = l->file->count, ignored = 0, at = 0, capacity = sizeof l->v->ignored;
    for (size_t i = 0; i < total; i++)
        ignored += !l->used[i];
    if (ignored == 0)
        return;
    at += (size_t)snprintf(l->v->ignored, capacity, "%zu tensor%s: ", ignored, ignored == 1 ? "" : "s");
    for (size_t i = 0, shown = 0; i < total && shown < 4 && at < capacity; i++)
        if (!l->used[i]) {
            char name[64];
            (void)sfp__printable(l->file->tensors[i].name, name, sizeof name);
            at += (size_t)snprintf(l->v->ignored + at, capacity - at, "%s%s", shown ? ", " : "",
                                   shown == 3 && ignored > 4 ? "..." : name);
            shown++;
        }
}

/* -------------------------------------------------------------------- load */

/* Opens the tensors and finds their config. */
static sfp_status open_file(const char *path, sfp__tensor_file **file, loading *l, sfp_error *err)
{
    bool builtin = strcmp(path, SFP__VIT_BUILTIN) == 0;
    TRY(builtin ? sfp__vit_builtin_open(file, err) : sfp__tensor_file_open(path, file, err));
    const char *inside = sfp__tensor_file_meta(*file, SFP__CONFIG_META);
    if (!builtin)
        return sfp__model_config_find(path, inside, &l->config, &l->config_from, err);
    l->config_from = "its metadata"; /* the built-in backbone has no files beside it */
    return inside ? sfp__model_config_parse(path, inside, strlen(inside), &l->config, err) : SFP_OK;
}

static void loading_done(loading *l)
{
    sfp__model_config_done(&l->config);
    sfp__free(l->used);
    sfp__vit_free(l->v);
}

sfp_status sfp__vit_load(const char *path, const sfp__vit_options *opt, sfp__vit **out, sfp_error *err)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *file = NULL;
    OWNED_BY(loading_done) loading l = {.path = path};
    sfp__vit_config config;
    TRY(open_file(path, &file, &l, err));
    l.file = file;
    TRY(sfp__vit_names_find(file, &l.names, err));
    TRY(read_config(&l, opt ? opt->img_size : 0, &config, err));
    TRY(sfp__alloc(&l.used, file->count, sizeof *l.used, err));
    TRY(sfp__vit_new(&config, &l.v, err));
    l.v->precision = opt ? opt->precision : SFP_PRECISION_F32;
    l.v->file = TAKE(file);
    TRY(copy_class_names(l.v, &l.config, err));
    TRY(sfp__vit_each_weight(&l.v->config, &l.v->weights, load_weight, &l, err));
    describe(&l);
    describe_ignored(&l);
    *out = TAKE(l.v);
    return SFP_OK;
}
