/* The trainable vit (vit.h): its block of weights, and their initial values. */
#include "base/rng.h"
#include "model/vit_internal.h"

#include <math.h>
#include <string.h>

#define LONGEST_WAVE 100.0 /* longest wavelength of the position embeddings, in patches, divided by 2 pi */
#define POSITION_SIZE 0.5

typedef struct placement {
    float *block; /* NULL: only count */
    size_t used;
} placement;

static sfp_status place_weight(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    (void)err;
    placement *p = ctx;
    if (p->block)
        *w->data = p->block + p->used;
    p->used += (w->count + 15) / 16 * 16;
    return SFP_OK;
}

size_t sfp__vit_flat_count(const sfp__vit_config *c)
{
    sfp__vit_block_weights blocks[SFP__VIT_MAX_DEPTH] = {0};
    sfp__vit_weights none = {.blocks = blocks};
    placement p = {0};
    (void)sfp__vit_each_weight(c, &none, place_weight, &p, NULL);
    return p.used;
}

sfp_status sfp__vit_flat_view(const sfp__vit_config *c, float *block, sfp__vit_weights *out, sfp_error *err)
{
    sfp__vit_weights w = {0};
    TRY(sfp__alloc(&w.blocks, (size_t)c->depth, sizeof *w.blocks, err));
    placement p = {.block = block};
    (void)sfp__vit_each_weight(c, &w, place_weight, &p, NULL);
    *out = w;
    return SFP_OK;
}

void sfp__vit_flat_view_done(sfp__vit_weights *view)
{
    sfp__free(view->blocks);
    *view = (sfp__vit_weights){0};
}

typedef struct init_ctx {
    sfp__rng rng;
    const sfp__vit_config *c;
} init_ctx;

/* Sines and cosines of a patch's row and column: tokens contain their position from the first step on. */
static void init_positions(const sfp__vit_config *c, float *pos)
{
    int side = c->img_size / c->patch_size, D = c->dim, waves = D / 4;
    memset(pos, 0, (size_t)(1 + side * side) * (size_t)D * sizeof *pos);
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) {
            float *row = pos + (size_t)(1 + y * side + x) * (size_t)D;
            for (int k = 0; k < waves; k++) {
                double speed = pow(LONGEST_WAVE, -(double)k / waves);
                row[k] = (float)(POSITION_SIZE * sin(speed * x));
                row[waves + k] = (float)(POSITION_SIZE * cos(speed * x));
                row[2 * waves + k] = (float)(POSITION_SIZE * sin(speed * y));
                row[3 * waves + k] = (float)(POSITION_SIZE * cos(speed * y));
            }
        }
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static sfp_status init_weight(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    (void)err;
    init_ctx *s = ctx;
    const char *name = w->name;
    float *to = *w->data;
    size_t n = w->count;
    if (strcmp(name, "pos_embed") == 0) {
        init_positions(s->c, to);
    } else if (strcmp(name, "cls_token") == 0) {
        for (size_t i = 0; i < n; i++)
            to[i] = (float)(0.02 * sfp__rng_normal(&s->rng));
    } else if (w->ndim == 1) {
        for (size_t i = 0; i < n; i++)
            to[i] = ends_with(name, ".weight") ? 1.0f : 0.0f; /* 1 for norms, 0 for biases */
    } else {
        size_t in = n / (size_t)w->shape[0];
        double edge = sqrt(6 / ((double)in + (double)w->shape[0]));
        if (ends_with(name, "attn.proj.weight") || ends_with(name, "fc2.weight"))
            edge /= sqrt(2.0 * s->c->depth);
        for (size_t i = 0; i < n; i++)
            to[i] = (float)(edge * (2 * sfp__rng_double(&s->rng) - 1));
        size_t square = (size_t)s->c->dim * (size_t)s->c->dim;
        if (ends_with(name, "attn.qkv.weight"))
            memcpy(to + square, to, square * sizeof *to);
    }
    return SFP_OK;
}

sfp_status sfp__vit_flat_init(const sfp__vit_config *c, uint64_t seed, sfp__vit_weights *view, sfp_error *err)
{
    init_ctx s = {.rng = sfp__rng_init(seed, 0), .c = c};
    return sfp__vit_each_weight(c, view, init_weight, &s, err);
}

sfp_status sfp__vit_set_weights(sfp__vit *v, const sfp__vit_weights *from, sfp_error *err)
{
    if (v->file)
        return sfp__fail(err, SFP_EINVAL, "%s: weights loaded from a file cannot be changed", sfp__vit_path(v));
    if (v->first_rows)
        return sfp__fail(err, SFP_EINVAL, "weights of which only packed copies remain cannot be changed");
    sfp__vit_weights_copy(&v->config, &v->weights, from);
    return sfp__vit_repack(v, err);
}
