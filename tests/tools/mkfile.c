/* Makes the files that tests of the program need; nothing binary lies in the repository.
 *
 *     mkfile vit OUT.safetensors SEED CLASSES [drop=NAME] [reshape=NAME] [rename=NAME]
 *         a tiny ViT (S 32, P 8, D 64, depth 2, H 1) with seeded weights; CLASSES 0: no head. One tensor can be left out,
 *         get its first dimension halved (its bytes with it), or lose its name
 *     mkfile picture OUT.png WIDTH HEIGHT SEED
 *     mkfile jpeg OUT.jpg WIDTH HEIGHT SEED
 *     mkfile golden DIR SEED
 *         a golden case of that ViT, its numbers by this build: shows the plumbing of `streamfp-verify`, not the mathematics
 *     mkfile raw OUT HEADER BYTES
 *         a safetensors file with this very header and BYTES zero bytes of data
 *     mkfile length OUT NUMBER
 *         eight bytes that claim a header of NUMBER bytes, and nothing more
 *     mkfile flip IN OUT OFFSET
 *         a copy with all bits of one byte turned (a negative OFFSET counts from the end)
 *     mkfile nan IN OUT NAME
 *         a copy of a safetensors file whose tensor NAME begins with a NaN, and whose checksum, where it has one, has another
 * key: it is as a program writes it that knows of none */
#include "base/mem.h"
#include "base/thread_pool.h"
#include "io/image/image.h"
#include "io/tensor/safetensors.h"
#include "model/vit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jpeglib.h>

#define MAX_TENSORS 64
#define GOLDEN_B 4
#define GOLDEN_ROWS 2
#define GOLDEN_CLASSES 3

static int fail(const char *text)
{
    (void)fprintf(stderr, "mkfile: %s\n", text);
    return 1;
}

static long number(const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);
    return *end == '\0' ? value : -1;
}

static const sfp_vit_config tiny = {.img_size = 32, .patch_size = 8, .channels = 3, .dim = 64, .depth = 2, .heads = 1, .hidden = 128,
                                    .ln_eps = 1e-6f, .mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}};

/* ----------------------------------------------------------------- weights */

typedef struct tensor_list {
    sfp_tensor tensors[MAX_TENSORS];
    char names[MAX_TENSORS][64];
    size_t count;
} tensor_list;

static void add(tensor_list *l, const char *prefix, const char *name, const void *data, sfp_dtype dtype, int ndim, const int *dims)
{
    sfp_tensor *t = &l->tensors[l->count];
    char *full = l->names[l->count++];
    (void)snprintf(full, sizeof l->names[0], "%s%s", prefix, name);
    *t = (sfp_tensor){.name = full, .dtype = dtype, .ndim = ndim, .count = 1, .data = data};
    for (int i = 0; i < ndim; i++) {
        t->shape[i] = dims[i];
        t->count *= (size_t)dims[i];
    }
    t->bytes = t->count * sfp__dtype_size(dtype);
}

static void list_weights(tensor_list *l, const sfp_vit *v)
{
    const sfp_vit_config *c = &v->config;
    const sfp_vit_weights *w = &v->weights;
#define ADD(field, name, nd, ...) add(l, prefix, name, from->field, SFP_DTYPE_F32, nd, (const int[]){__VA_ARGS__});
    {
        const char *prefix = "";
        const sfp_vit_weights *from = w;
        SFP_VIT_GLOBAL_LIST(ADD)
        if (c->classes) {
            SFP_VIT_HEAD_LIST(ADD)
        }
    }
    for (int i = 0; i < c->depth; i++) {
        char prefix[32];
        const sfp_vit_block_weights *from = &w->blocks[i];
        (void)snprintf(prefix, sizeof prefix, "blocks.%d.", i);
        SFP_VIT_BLOCK_LIST(ADD)
    }
#undef ADD
}

/* Applies drop=, reshape= and rename=; false when the tensor is not there. */
static bool change(tensor_list *l, const char *what)
{
    const char *name = strchr(what, '=');
    for (size_t i = 0; name && i < l->count; i++) {
        if (strcmp(l->tensors[i].name, name + 1) != 0)
            continue;
        if (strncmp(what, "drop=", 5) == 0) {
            l->tensors[i] = l->tensors[--l->count];
        } else if (strncmp(what, "rename=", 7) == 0) {
            l->tensors[i].name = "something.else";
        } else if (strncmp(what, "reshape=", 8) == 0) {
            l->tensors[i].shape[0] /= 2;
            l->tensors[i].count /= 2;
            l->tensors[i].bytes /= 2;
        } else {
            return false;
        }
        return true;
    }
    return false;
}

static int make_vit(int argc, char **argv, sfp_error *err)
{
    sfp_vit_config config = tiny;
    sfp_vit *v = NULL;
    tensor_list l = {0};
    config.classes = (int)number(argv[4]);
    if (sfp__vit_random(&config, (uint64_t)number(argv[3]), 0.05f, &v, err) != SFP_OK)
        return fail(err->message);
    list_weights(&l, v);
    int code = 0;
    for (int i = 5; i < argc && code == 0; i++)
        if (!change(&l, argv[i]))
            code = fail(argv[i]);
    sfp_meta meta[] = {{"made_by", "mkfile"}};
    if (code == 0 && sfp__safetensors_write(argv[2], l.tensors, l.count, meta, 1, err) != SFP_OK)
        code = fail(err->message);
    sfp__vit_free(v);
    return code;
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

static int write_part(const char *dir, const char *name, const tensor_list *l, sfp_error *err)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return sfp__safetensors_write(path, l->tensors, l->count, NULL, 0, err) == SFP_OK ? 0 : fail(err->message);
}

static int make_golden(const char *dir, long seed, sfp_error *err)
{
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

    sfp_vit *v = NULL;
    sfp_thread_pool *pool = NULL;
    sfp_vit_plan *forward = NULL, *backward = NULL;
    sfp_vit_plan_options with = {.mode = SFP_VIT_GRAD_PREFIX, .prefix_rows = GOLDEN_ROWS}, without = {.mode = SFP_VIT_FORWARD};
    golden g = {.w = w, .bias = bias, .logits = logits};
    sfp_vit_pass plain = {.b = GOLDEN_B, .x = x, .feature = query, .embed = embed};
    sfp_vit_pass pass = {.b = GOLDEN_B, .x = x, .feature = feature, .head = plain_head, .head_ctx = &g};
    const sfp_vit_prompt prompts[SFP_VIT_MAX_DEPTH] = {
        [1] = {.rows = GOLDEN_ROWS, .k = prefix[0], .v = prefix[1], .grad_k = grad[0], .grad_v = grad[1]}};
    pass.prompts = prompts;
    int code = 1;
    (void)mkdir(dir, 0777);
    if (sfp__vit_random(&tiny, (uint64_t)seed, 0.05f, &v, err) != SFP_OK || sfp__thread_pool_create(1, &pool, err) != SFP_OK ||
        sfp__vit_plan_create(v, pool, &without, &forward, err) != SFP_OK ||
        sfp__vit_plan_create(v, pool, &with, &backward, err) != SFP_OK || sfp__vit_run(forward, &plain, err) != SFP_OK ||
        sfp__vit_run(backward, &pass, err) != SFP_OK) {
        (void)fail(err->message);
        goto done;
    }
    tensor_list l = {0};
    list_weights(&l, v);
    code = write_part(dir, "backbone.safetensors", &l, err);
    l.count = 0;
    add(&l, "", "x", x, SFP_DTYPE_F32, 4, (const int[]){GOLDEN_B, 3, S, S});
    add(&l, "", "y", y, SFP_DTYPE_I64, 1, (const int[]){GOLDEN_B});
    code |= write_part(dir, "batch.safetensors", &l, err);
    l.count = 0;
    add(&l, "", "last.weight", w, SFP_DTYPE_F32, 2, (const int[]){GOLDEN_CLASSES, D});
    add(&l, "", "last.bias", bias, SFP_DTYPE_F32, 1, (const int[]){GOLDEN_CLASSES});
    code |= write_part(dir, "state0.safetensors", &l, err);
    l.count = 0;
    add(&l, "", "query", query, SFP_DTYPE_F32, 2, (const int[]){GOLDEN_B, D});
    add(&l, "", "embed", embed, SFP_DTYPE_F32, 3, (const int[]){GOLDEN_B, L, D});
    add(&l, "", "logits", logits, SFP_DTYPE_F32, 2, (const int[]){GOLDEN_B, GOLDEN_CLASSES});
    add(&l, "", "prefix_k_1", prefix[0], SFP_DTYPE_F32, 3, (const int[]){GOLDEN_B, GOLDEN_ROWS, D});
    add(&l, "", "prefix_v_1", prefix[1], SFP_DTYPE_F32, 3, (const int[]){GOLDEN_B, GOLDEN_ROWS, D});
    add(&l, "", "grad_prefix_k_1", grad[0], SFP_DTYPE_F32, 3, (const int[]){GOLDEN_B, GOLDEN_ROWS, D});
    add(&l, "", "grad_prefix_v_1", grad[1], SFP_DTYPE_F32, 3, (const int[]){GOLDEN_B, GOLDEN_ROWS, D});
    add(&l, "", "losses", bias, SFP_DTYPE_F32, 1, (const int[]){GOLDEN_CLASSES});
    add(&l, "", "step1.last.bias", bias, SFP_DTYPE_F32, 1, (const int[]){GOLDEN_CLASSES});
    add(&l, "", "step1.last.weight", w, SFP_DTYPE_F32, 2, (const int[]){GOLDEN_CLASSES, D});
    code |= write_part(dir, "expect.safetensors", &l, err);
    char path[512];
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    if (!f || fprintf(f, "{\"backbone\": \"backbone.safetensors\", \"num_heads\": 1, \"ln_eps\": 1e-06, \"img_size\": 32}\n") < 0)
        code = fail("config.json");
    if (f && fclose(f) != 0)
        code = fail("config.json");
done:
    sfp__vit_plan_free(forward);
    sfp__vit_plan_free(backward);
    sfp__thread_pool_free(pool);
    sfp__vit_free(v);
    return code;
}

/* ---------------------------------------------------------------- pictures */

static bool draw(sfp_image *im, int width, int height, long seed)
{
    unsigned state = (unsigned)seed * 2654435761u + 1u;
    float corner[4][3];
    for (int i = 0; i < 12; i++)
        corner[i / 3][i % 3] = 255.0f * (noise(&state) + 0.5f);
    im->width = width;
    im->height = height;
    im->rgb = sfp__malloc((size_t)width * (size_t)height * 3);
    if (!im->rgb)
        return false;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++) {
                float u = (float)x / (float)width, v = (float)y / (float)height;
                float top = corner[0][c] * (1 - u) + corner[1][c] * u, bottom = corner[2][c] * (1 - u) + corner[3][c] * u;
                im->rgb[((size_t)y * (size_t)width + (size_t)x) * 3 + (size_t)c] = (uint8_t)(top * (1 - v) + bottom * v);
            }
    return true;
}

static int write_jpeg(const char *path, const sfp_image *im)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr e;
    FILE *f = fopen(path, "wb");
    if (!f)
        return fail(path);
    c.err = jpeg_std_error(&e);
    jpeg_create_compress(&c);
    jpeg_stdio_dest(&c, f);
    c.image_width = (JDIMENSION)im->width;
    c.image_height = (JDIMENSION)im->height;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < c.image_height) {
        JSAMPROW row = im->rgb + (size_t)c.next_scanline * (size_t)im->width * 3;
        (void)jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return fclose(f) == 0 ? 0 : fail(path);
}

static int make_picture(char **argv, sfp_error *err)
{
    sfp_image im = {0};
    if (!draw(&im, (int)number(argv[3]), (int)number(argv[4]), number(argv[5])))
        return fail("size");
    int code = strcmp(argv[1], "jpeg") == 0                            ? write_jpeg(argv[2], &im)
               : sfp__image_write_png(argv[2], &im, err) == SFP_OK ? 0
                                                                       : fail(err->message);
    sfp__image_done(&im);
    return code;
}

/* -------------------------------------------------------------------- bytes */

static int write_bytes(const char *path, const void *head, size_t head_size, const void *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f)
        return fail(path);
    bool good = fwrite(head, 1, head_size, f) == head_size && fwrite(bytes, 1, size, f) == size;
    return fclose(f) == 0 && good ? 0 : fail(path);
}

static int make_raw(const char *path, const char *header, long bytes)
{
    uint64_t length = strlen(header);
    size_t size = length + (size_t)(bytes > 0 ? bytes : 0);
    char *all = calloc(size + 1, 1);
    if (!all)
        return fail("memory");
    memcpy(all, header, length);
    int code = write_bytes(path, &length, sizeof length, all, size);
    free(all);
    return code;
}

/* In the header, whose length comes first; the key is as long as the one it replaces. */
static void hide_checksum(char *bytes)
{
    static const char key[] = "\"" SFP_CHECKSUM_KEY "\":";
    uint64_t length;
    memcpy(&length, bytes, sizeof length);
    char *at = memmem(bytes + sizeof length, length, key, sizeof key - 1);
    if (at)
        memcpy(at + 1, "unsummed", sizeof SFP_CHECKSUM_KEY - 1);
}

/* A copy of a file with something done to it. */
static int change_copy(const char *from, const char *to, long flip, const char *nan_name, sfp_error *err)
{
    static char bytes[1 << 24];
    FILE *f = fopen(from, "rb");
    if (!f)
        return fail(from);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    (void)fclose(f);
    if (nan_name) {
        sfp_tensor_file *st = NULL;
        if (sfp__safetensors_open_memory(from, bytes, n, &st, err) != SFP_OK)
            return fail(err->message);
        const sfp_tensor *t = sfp__tensor_file_find(st, nan_name);
        float nan = __builtin_nanf("");
        double wide = __builtin_nan("");
        if (t)
            memcpy(bytes + ((const char *)t->data - bytes), t->dtype == SFP_DTYPE_F64 ? (void *)&wide : &nan, t->dtype == SFP_DTYPE_F64 ? sizeof wide : sizeof nan);
        sfp__tensor_file_close(st);
        if (!t)
            return fail(nan_name);
        hide_checksum(bytes);
    } else {
        size_t at = flip < 0 ? n - (size_t)-flip : (size_t)flip;
        if (at >= n)
            return fail("offset");
        bytes[at] = (char)~bytes[at];
    }
    return write_bytes(to, bytes, n, "", 0);
}

int main(int argc, char **argv)
{
    sfp_error err = {0};
    const char *what = argc > 2 ? argv[1] : "";
    if (strcmp(what, "vit") == 0 && argc >= 5)
        return make_vit(argc, argv, &err);
    if ((strcmp(what, "picture") == 0 || strcmp(what, "jpeg") == 0) && argc == 6)
        return make_picture(argv, &err);
    if (strcmp(what, "golden") == 0 && argc == 4)
        return make_golden(argv[2], number(argv[3]), &err);
    if (strcmp(what, "raw") == 0 && argc == 5)
        return make_raw(argv[2], argv[3], number(argv[4]));
    if (strcmp(what, "length") == 0 && argc == 4) {
        uint64_t length = strtoull(argv[3], NULL, 10);
        return write_bytes(argv[2], &length, sizeof length, "", 0);
    }
    if (strcmp(what, "flip") == 0 && argc == 5)
        return change_copy(argv[2], argv[3], strtol(argv[4], NULL, 10), NULL, &err);
    if (strcmp(what, "nan") == 0 && argc == 5)
        return change_copy(argv[2], argv[3], 0, argv[4], &err);
    (void)fprintf(stderr, "usage: the top of tests/tools/mkfile.c\n");
    return 2;
}
