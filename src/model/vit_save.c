/* Saving a vit as safetensors with timm's names. Values that shapes do not determine (heads, eps, activation, mean, std, class
 * names) are stored in the metadata, as the JSON that io/config.h reads. */
#include "io/json_write.h"
#include "model/vit.h"

#include "base/mem.h"
#include "io/config.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 16 + 12 * SFP__VIT_MAX_DEPTH, NAME_CAPACITY = 64, CHUNK = 65536 };

typedef struct saving {
    sfp__tensor tensors[MAX_TENSORS]; /* data always points to floats; dtype is that of the file */
    char names[MAX_TENSORS][NAME_CAPACITY];
    size_t count;
    sfp__dtype dtype;
    uint16_t half[CHUNK];
} saving;

static sfp_status list_weight(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    saving *s = ctx;
    (void)err;
    sfp__tensor *t = &s->tensors[s->count];
    (void)snprintf(s->names[s->count], NAME_CAPACITY, "%s", w->name);
    *t = (sfp__tensor){.name = s->names[s->count], .dtype = s->dtype, .ndim = w->ndim, .data = *w->data};
    memcpy(t->shape, w->shape, (size_t)w->ndim * sizeof *w->shape);
    (void)sfp__shape_count(w->shape, w->ndim, s->dtype, &t->count, &t->bytes); /* cannot overflow: the weights are allocated */
    s->count++;
    return SFP_OK;
}

/* Writes 6 digits if these yield the same float, else 9. */
static void put_float(sfp__text *t, float x)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.6g", (double)x);
    if (strtof(text, NULL) != x)
        (void)snprintf(text, sizeof text, "%.9g", (double)x);
    sfp__text_put(t, text);
}

void sfp__vit_put_config(const sfp__vit_config *c, sfp__text *t)
{
    sfp__text_printf(t, "\"num_heads\": %d, \"img_size\": %d, \"patch_size\": %d, \"activation\": \"%s\", \"ln_eps\": ", c->heads,
                     c->img_size, c->patch_size, c->quick_gelu ? "quick_gelu" : "gelu");
    put_float(t, c->ln_eps);
    for (int i = 0; i < 6; i++) {
        sfp__text_put(t, i == 0 ? ", \"mean\": [" : i == 3 ? "], \"std\": [" : ", ");
        put_float(t, i < 3 ? c->mean[i] : c->std[i - 3]);
    }
    sfp__text_put(t, "]");
    for (int i = 0; c->class_names && i < c->classes; i++) {
        sfp__text_put(t, i ? ", " : ", \"class_names\": [");
        sfp__text_json(t, c->class_names[i]);
    }
    sfp__text_put(t, c->class_names && c->classes ? "]" : "");
}

/* Writes the numbers of a tensor in the requested type, in chunks. */
static sfp_status put_numbers(saving *s, const sfp__tensor *t, sfp__writer *w, sfp_error *err)
{
    const float *x = t->data;
    if (s->dtype == SFP__DTYPE_F32)
        return sfp__writer_put(w, x, t->bytes, err);
    for (size_t at = 0; at < t->count; at += CHUNK) {
        size_t n = t->count - at < CHUNK ? t->count - at : CHUNK;
        for (size_t i = 0; i < n; i++) {
            bool f16 = s->dtype == SFP__DTYPE_F16;
            s->half[i] = f16 ? sfp__f32_to_f16(x[at + i]) : sfp__f32_to_bf16(x[at + i]);
            if (!isfinite(f16 ? sfp__f16_to_f32(s->half[i]) : sfp__bf16_to_f32(s->half[i])))
                return sfp__fail(err, SFP_ELIMIT, "%s: element %zu of tensor '%s' is %g, which does not fit %s", w->path, at + i,
                                 t->name, (double)x[at + i], sfp__dtype_name(s->dtype));
        }
        TRY(sfp__writer_put(w, s->half, n * sizeof *s->half, err));
    }
    return SFP_OK;
}

sfp_status sfp__vit_save(const sfp__vit_config *c, const sfp__vit_weights *weights, sfp__dtype dtype, const sfp__meta *meta,
                         size_t meta_count, const char *path, sfp_error *err)
{
    if (dtype != SFP__DTYPE_F32 && dtype != SFP__DTYPE_F16 && dtype != SFP__DTYPE_BF16)
        return sfp__fail(err, SFP_EINVAL, "%s: weight type is %s, expected F32, F16 or BF16", path, sfp__dtype_name(dtype));
    OWNED_BY(sfp__text_done) sfp__text config = {0}, header = {0};
    OWNED_BY(sfp__writer_abort) sfp__writer w = {.fd = -1};
    OWNED saving *s = NULL;
    OWNED sfp__meta *all = NULL;
    sfp__vit_weights view = *weights;
    TRY(sfp__alloc(&s, 1, sizeof *s, err));
    TRY(sfp__alloc(&all, meta_count + 1, sizeof *all, err));
    s->dtype = dtype;
    TRY(sfp__vit_each_weight(c, &view, list_weight, s, err));
    sfp__text_put(&config, "{");
    sfp__vit_put_config(c, &config);
    sfp__text_put(&config, "}");
    if (config.failed)
        return sfp__fail_nomem(err);
    if (meta_count)
        memcpy(all, meta, meta_count * sizeof *all);
    all[meta_count] = (sfp__meta){SFP__CONFIG_META, config.s};
    TRY(sfp__safetensors_header(path, s->tensors, s->count, all, meta_count + 1, &header, err));
    TRY(sfp__writer_open(path, &w, err));
    TRY(sfp__writer_put(&w, header.s, header.length, err));
    for (size_t i = 0; i < s->count; i++)
        TRY(put_numbers(s, &s->tensors[i], &w, err));
    return sfp__writer_commit(&w, err);
}
