/* Creates the files that tests of the program need, so that the repository contains no binary files.
 *
 *     mkfile vit OUT.safetensors SEED CLASSES [drop=NAME] [reshape=NAME] [rename=NAME]
 *         a tiny ViT (S 32, P 8, D 64, depth 2, H 1) with seeded weights; CLASSES 0: no head. One tensor can be omitted,
 *         have its first dimension (and its data) halved, or be renamed
 *     mkfile image OUT.png WIDTH HEIGHT SEED
 *     mkfile jpeg OUT.jpg WIDTH HEIGHT SEED
 *     mkfile golden DIR SEED
 *         a golden case of that ViT, computed by this build: it tests how `streamfp-verify` works, not the mathematics
 *     mkfile raw OUT HEADER BYTES
 *         a safetensors file with exactly this header and BYTES zero bytes of data
 *     mkfile length OUT NUMBER
 *         only the eight bytes of the header length, which is NUMBER
 *     mkfile flip IN OUT OFFSET
 *         a copy with all bits of one byte inverted (a negative OFFSET counts from the end)
 *     mkfile nan IN OUT NAME
 *         a copy of a safetensors file in which the first element of tensor NAME is NaN. The key of the checksum, if any, is
 *         renamed, so that the file looks as if it never had a checksum
 *     mkfile huge IN OUT NAME
 *         the same with all elements 3e38, so that products overflow
 *     mkfile many IN DIR COUNT
 *         copies of a file, DIR/0000000.png and so on; behind its end each has its number, so that all have different bytes */
#include "base/mem.h"
#include "base/thread_pool.h"
#include "io/file.h"
#include "io/image/image.h"
#include "io/tensor/safetensors.h"
#include "jpeg_make.h"
#include "model/vit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_TENSORS 64
#define MAX_BYTES (1 << 24)
#define GOLDEN_B 4
#define GOLDEN_ROWS 2
#define GOLDEN_CLASSES 3

static long number(const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);
    return *end == '\0' ? value : -1;
}

static const sfp__vit_config tiny = {.img_size = 32,
                                     .patch_size = 8,
                                     .channels = 3,
                                     .dim = 64,
                                     .depth = 2,
                                     .heads = 1,
                                     .hidden = 128,
                                     .ln_eps = 1e-6f,
                                     .mean = {0.485f, 0.456f, 0.406f},
                                     .std = {0.229f, 0.224f, 0.225f}};

/* ----------------------------------------------------------------- weights */

typedef struct tensor_list {
    sfp__tensor tensors[MAX_TENSORS];
    char names[MAX_TENSORS][64];
    size_t count;
} tensor_list;

static void add(tensor_list *l, const char *name, const void *data, sfp__dtype dtype, int ndim, const int64_t *shape)
{
    sfp__tensor *t = &l->tensors[l->count];
    char *own = l->names[l->count++];
    (void)snprintf(own, sizeof l->names[0], "%s", name);
    *t = (sfp__tensor){.name = own, .dtype = dtype, .ndim = ndim, .data = data};
    memcpy(t->shape, shape, (size_t)ndim * sizeof *shape);
    (void)sfp__shape_count(shape, ndim, dtype, &t->count, &t->bytes);
}
#define ADD(name, data, ...) \
    add(&l, name, data, SFP__DTYPE_F32, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]){__VA_ARGS__})

static sfp_status add_weight(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    (void)err;
    add(ctx, w->name, *w->data, SFP__DTYPE_F32, w->ndim, w->shape);
    return SFP_OK;
}

/* Applies drop=, reshape= or rename= to the list. */
static sfp_status change(tensor_list *l, const char *what, sfp_error *err)
{
    const char *name = strchr(what, '=');
    for (size_t i = 0; name && i < l->count; i++) {
        sfp__tensor *t = &l->tensors[i];
        if (strcmp(t->name, name + 1) != 0)
            continue;
        if (strncmp(what, "drop=", 5) == 0) {
            *t = l->tensors[--l->count];
        } else if (strncmp(what, "rename=", 7) == 0) {
            t->name = "something.else";
        } else if (strncmp(what, "reshape=", 8) == 0) {
            t->shape[0] /= 2;
            t->count /= 2;
            t->bytes /= 2;
        } else {
            break;
        }
        return SFP_OK;
    }
    return sfp__fail(err, SFP_EINVAL, "%s", what);
}

static sfp_status make_vit(char **argv, sfp_error *err)
{
    static tensor_list l;
    sfp__vit_config config = tiny;
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    config.classes = (int)number(argv[4]);
    TRY(sfp__vit_random(&config, (uint64_t)number(argv[3]), 0.05f, &v, err));
    TRY(sfp__vit_each_weight(&config, &v->weights, add_weight, &l, err));
    for (char **what = argv + 5; *what; what++)
        TRY(change(&l, *what, err));
    const sfp__meta meta[] = {{"made_by", "mkfile"}};
    return sfp__safetensors_write(argv[2], l.tensors, l.count, meta, 1, err);
}

/* ------------------------------------------------------------------ golden */

typedef struct golden {
    const float *w, *bias; /* (classes, D), (classes) */
    float *logits;
} golden;

/* Mean cross-entropy with labels 0, 1, 2, 0, ... */
static void plain_head(void *ctx, int first, int n, const float *feature, float *grad_feature)
{
    const golden *g = ctx;
    int dim = tiny.dim;
    for (int i = 0; i < n; i++) {
        float p[GOLDEN_CLASSES], sum = 0;
        for (int k = 0; k < GOLDEN_CLASSES; k++) {
            float z = g->bias[k];
            for (int d = 0; d < dim; d++)
                z += g->w[k * dim + d] * feature[i * dim + d];
            g->logits[(first + i) * GOLDEN_CLASSES + k] = z;
            p[k] = __builtin_expf(z);
            sum += p[k];
        }
        for (int d = 0; d < dim; d++) {
            float grad = 0;
            for (int k = 0; k < GOLDEN_CLASSES; k++)
                grad += g->w[k * dim + d] * (p[k] / sum - ((first + i) % GOLDEN_CLASSES == k ? 1.0f : 0.0f));
            grad_feature[i * dim + d] = grad / GOLDEN_B;
        }
    }
}

static float noise(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (float)(1 << 24) - 0.5f;
}

/* Writes DIR/NAME and empties the list. */
static sfp_status write_part(const char *dir, const char *name, tensor_list *l, sfp_error *err)
{
    char path[512];
    size_t count = l->count;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    l->count = 0;
    return sfp__safetensors_write(path, l->tensors, count, NULL, 0, err);
}

static sfp_status make_golden(char **argv, sfp_error *err)
{
    const char *dir = argv[2];
    long seed = number(argv[3]);
    enum { S = 32, D = 64, L = 16, X = GOLDEN_B * 3 * S * S, P = GOLDEN_B * GOLDEN_ROWS * D };
    static float x[X], w[GOLDEN_CLASSES * D], bias[GOLDEN_CLASSES], prefix[2][P], grad[2][P];
    static float query[GOLDEN_B * D], feature[GOLDEN_B * D], embed[GOLDEN_B * L * D], logits[GOLDEN_B * GOLDEN_CLASSES];
    int64_t y[GOLDEN_B];
    unsigned state = (unsigned)seed;
    for (int i = 0; i < X; i++)
        x[i] = 2 * noise(&state);
    for (int i = 0; i < GOLDEN_CLASSES * D; i++)
        w[i] = noise(&state);
    for (int i = 0; i < 2 * P; i++)
        prefix[i / P][i % P] = noise(&state);
    for (int i = 0; i < GOLDEN_B; i++)
        y[i] = i % GOLDEN_CLASSES;

    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *forward = NULL, *backward = NULL;
    sfp__vit_plan_options with = {.mode = SFP__VIT_GRAD_PREFIX, .prefix_rows = GOLDEN_ROWS}, without = {.mode = SFP__VIT_FORWARD};
    golden g = {.w = w, .bias = bias, .logits = logits};
    const sfp__vit_prompt prompts[SFP__VIT_MAX_DEPTH] = {
        [1] = {.rows = GOLDEN_ROWS, .k = prefix[0], .v = prefix[1], .grad_k = grad[0], .grad_v = grad[1]}};
    const sfp__vit_pass plain = {.b = GOLDEN_B, .x = x, .feature = query, .embed = embed};
    const sfp__vit_pass pass = {
        .b = GOLDEN_B, .x = x, .feature = feature, .head = plain_head, .head_ctx = &g, .prompts = prompts};
    (void)mkdir(dir, 0777);
    TRY(sfp__vit_random(&tiny, (uint64_t)seed, 0.05f, &v, err));
    TRY(sfp__thread_pool_create(1, &pool, err));
    TRY(sfp__vit_plan_create(v, pool, &without, &forward, err));
    TRY(sfp__vit_plan_create(v, pool, &with, &backward, err));
    TRY(sfp__vit_run(forward, &plain, err));
    TRY(sfp__vit_run(backward, &pass, err));

    static tensor_list l;
    TRY(sfp__vit_each_weight(&tiny, &v->weights, add_weight, &l, err));
    TRY(write_part(dir, "backbone.safetensors", &l, err));
    ADD("x", x, GOLDEN_B, 3, S, S);
    add(&l, "y", y, SFP__DTYPE_I64, 1, (const int64_t[]){GOLDEN_B});
    TRY(write_part(dir, "batch.safetensors", &l, err));
    ADD("last.weight", w, GOLDEN_CLASSES, D);
    ADD("last.bias", bias, GOLDEN_CLASSES);
    TRY(write_part(dir, "state0.safetensors", &l, err));
    ADD("query", query, GOLDEN_B, D);
    ADD("embed", embed, GOLDEN_B, L, D);
    ADD("logits", logits, GOLDEN_B, GOLDEN_CLASSES);
    ADD("prefix_k_1", prefix[0], GOLDEN_B, GOLDEN_ROWS, D);
    ADD("prefix_v_1", prefix[1], GOLDEN_B, GOLDEN_ROWS, D);
    ADD("grad_prefix_k_1", grad[0], GOLDEN_B, GOLDEN_ROWS, D);
    ADD("grad_prefix_v_1", grad[1], GOLDEN_B, GOLDEN_ROWS, D);
    ADD("losses", bias, GOLDEN_CLASSES);
    ADD("step1.last.bias", bias, GOLDEN_CLASSES);
    ADD("step1.last.weight", w, GOLDEN_CLASSES, D);
    TRY(write_part(dir, "expect.safetensors", &l, err));
    static const char config[] =
        "{\"backbone\": \"backbone.safetensors\", \"num_heads\": 1, \"ln_eps\": 1e-06, \"img_size\": 32}\n";
    char path[512];
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    return sfp__file_write(path, config, sizeof config - 1, err);
}

/* ---------------------------------------------------------------- images */

static sfp_status draw(sfp__image *im, int width, int height, long seed, sfp_error *err)
{
    unsigned state = (unsigned)seed * 2654435761u + 1u;
    float corner[4][3];
    for (int i = 0; i < 12; i++)
        corner[i / 3][i % 3] = 255.0f * (noise(&state) + 0.5f);
    TRY(sfp__image_alloc("image", width, height, SIZE_MAX, im, err));
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++) {
                float u = (float)x / (float)width, v = (float)y / (float)height;
                float top = corner[0][c] * (1 - u) + corner[1][c] * u, bottom = corner[2][c] * (1 - u) + corner[3][c] * u;
                im->rgb[((size_t)y * (size_t)width + (size_t)x) * 3 + (size_t)c] = (uint8_t)(top * (1 - v) + bottom * v);
            }
    return SFP_OK;
}

static sfp_status make_image(char **argv, sfp_error *err)
{
    OWNED_BY(sfp__image_done) sfp__image im = {0};
    OWNED_BY(sfp__text_done) sfp__text file = {0};
    TRY(draw(&im, (int)number(argv[3]), (int)number(argv[4]), number(argv[5]), err));
    if (strcmp(argv[1], "jpeg") != 0)
        return sfp__image_write_png(argv[2], &im, err);
    put_jpeg(&im, 75, &file);
    return file.failed ? sfp__fail_nomem(err) : sfp__file_write(argv[2], file.s, file.length, err);
}

/* -------------------------------------------------------------------- bytes */

static sfp_status make_raw(char **argv, sfp_error *err)
{
    uint64_t length = strlen(argv[3]);
    long data = number(argv[4]);
    size_t size = sizeof length + length + (size_t)(data > 0 ? data : 0);
    OWNED char *all = NULL;
    TRY(sfp__alloc(&all, size, 1, err));
    memcpy(all, &length, sizeof length);
    memcpy(all + sizeof length, argv[3], length);
    return sfp__file_write(argv[2], all, size, err);
}

static sfp_status make_length(char **argv, sfp_error *err)
{
    uint64_t length = strtoull(argv[3], NULL, 10);
    return sfp__file_write(argv[2], &length, sizeof length, err);
}

static sfp_status make_flip(char **argv, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    size_t n = 0;
    long flip = strtol(argv[4], NULL, 10);
    TRY(sfp__file_read(argv[2], MAX_BYTES, &bytes, &n, err));
    size_t at = flip < 0 ? n - (size_t)-flip : (size_t)flip;
    if (at >= n)
        return sfp__fail(err, SFP_EINVAL, "offset");
    bytes[at] = (uint8_t)~bytes[at];
    return sfp__file_write(argv[3], bytes, n, err);
}

/* Renames the key of the checksum in the header, which follows its length. The new key has the same length. */
static void hide_checksum(uint8_t *bytes)
{
    static const char key[] = "\"" SFP__CHECKSUM_KEY "\":";
    uint64_t length;
    memcpy(&length, bytes, sizeof length);
    uint8_t *at = memmem(bytes + sizeof length, length, key, sizeof key - 1);
    if (at)
        memcpy(at + 1, "unsummed", sizeof SFP__CHECKSUM_KEY - 1);
}

static sfp_status make_nan(char **argv, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    const sfp__tensor *t;
    size_t n = 0;
    TRY(sfp__file_read(argv[2], MAX_BYTES, &bytes, &n, err));
    TRY(sfp__safetensors_open_memory(argv[2], bytes, n, &st, err));
    TRY(sfp__tensor_file_need(st, argv[4], &t, err));
    bool is_wide = t->dtype == SFP__DTYPE_F64, huge = strcmp(argv[1], "huge") == 0;
    const float value = huge ? 3e38f : __builtin_nanf("");
    const double wide = (double)value;
    size_t size = is_wide ? sizeof wide : sizeof value;
    for (size_t i = 0; i < (huge ? t->count : 1); i++)
        memcpy(bytes + ((const uint8_t *)t->data - bytes) + i * size, is_wide ? (const void *)&wide : &value, size);
    hide_checksum(bytes);
    return sfp__file_write(argv[3], bytes, n, err);
}

static sfp_status make_many(char **argv, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    size_t n = 0;
    TRY(sfp__file_read(argv[2], MAX_BYTES, &bytes, &n, err));
    OWNED uint8_t *copy = sfp__calloc(n + 24, 1);
    TRY(sfp__check_memory(copy, err));
    memcpy(copy, bytes, n);
    for (long i = 0; i < number(argv[4]); i++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%07ld.png", argv[3], i);
        (void)snprintf((char *)copy + n, 24, "%ld", i);
        FILE *f = fopen(path, "wb");
        bool written = f && fwrite(copy, 1, n + 24, f) == n + 24;
        if (!f || fclose(f) != 0 || !written)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot write", path);
    }
    return SFP_OK;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *what;
        int min, max; /* limits of argc */
        sfp_status (*make)(char **argv, sfp_error *err);
    } kinds[] = {
        {"vit", 5, 99, make_vit}, {"image", 6, 6, make_image},   {"jpeg", 6, 6, make_image}, {"golden", 4, 4, make_golden},
        {"raw", 5, 5, make_raw},  {"length", 4, 4, make_length}, {"flip", 5, 5, make_flip},  {"nan", 5, 5, make_nan},
        {"huge", 5, 5, make_nan}, {"many", 5, 5, make_many},
    };
    sfp_error err = {0};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (argc < kinds[i].min || argc > kinds[i].max || strcmp(argv[1], kinds[i].what) != 0)
            continue;
        if (kinds[i].make(argv, &err) == SFP_OK)
            return 0;
        (void)fprintf(stderr, "mkfile: %s\n", err.message);
        return 1;
    }
    (void)fprintf(stderr, "usage: the top of tests/tools/mkfile.c\n");
    return 2;
}
