/* Does one full step of pretraining and writes all its inputs and outputs as safetensors.
 *
 *   pretrain_step OUT.safetensors
 *
 * Images are small, and the teacher is a small random ViT of another width. The batch uses mixup, so every term of the loss
 * contributes. tests/python/pretrain_step.py does the same step with PyTorch and compares. */
#include "base/mem.h"
#include "io/tensor/safetensors.h"
#include "model/vit.h"
#include "pretrain/pretrain_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 32, PATCH = 8, BATCH = 8, IMAGES = 24, MICROBATCH = 2, MAX_TENSORS = 400 };

#define OF_HALF .channels = 3, .ln_eps = 1e-6f, .mean = {0.5f, 0.5f, 0.5f}, .std = {0.25f, 0.25f, 0.25f}
static const sfp__vit_config student = {
    .img_size = SIZE, .patch_size = PATCH, .dim = 48, .depth = 3, .heads = 3, .hidden = 96, OF_HALF};
static const sfp__vit_config teacher_config = {
    .img_size = 40, .patch_size = 8, .dim = 32, .depth = 2, .heads = 2, .hidden = 64, .classes = 7, OF_HALF};

typedef struct dump {
    sfp__tensor t[MAX_TENSORS];
    char name[MAX_TENSORS][80];
    size_t count;
    const char *prefix;
} dump;

static void add(dump *d, const char *name, const void *data, sfp__dtype dtype, int ndim, const int64_t *shape)
{
    sfp__tensor *t = &d->t[d->count];
    (void)snprintf(d->name[d->count], sizeof d->name[0], "%s%s", d->prefix ? d->prefix : "", name);
    *t = (sfp__tensor){.name = d->name[d->count++], .dtype = dtype, .ndim = ndim};
    memcpy(t->shape, shape, (size_t)ndim * sizeof *shape);
    (void)sfp__shape_count(shape, ndim, dtype, &t->count, &t->bytes);
    void *copy = malloc(t->bytes);
    if (copy)
        memcpy(copy, data, t->bytes);
    t->data = copy;
}

static sfp_status add_weight(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    (void)err;
    add(ctx, w->name, *w->data, SFP__DTYPE_F32, w->ndim, w->shape);
    return SFP_OK;
}

static void add_state(dump *d, const char *prefix, sfp__vit_weights *w, const float *layers, size_t count)
{
    d->prefix = prefix;
    (void)sfp__vit_each_weight(&student, w, add_weight, d, NULL);
    add(d, "layers", layers, SFP__DTYPE_F32, 1, (const int64_t[]){(int64_t)count});
    d->prefix = NULL;
}

static sfp_status make_teacher(const char *path, sfp_error *err)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    TRY(sfp__vit_random(&teacher_config, 2, 0.2f, &v, err));
    return sfp__vit_save(&teacher_config, &v->weights, SFP__DTYPE_F32, NULL, 0, path, err);
}

static void teacher_done(sfp__teacher *t)
{
    if (t->vit)
        sfp__teacher_done(t);
}

static sfp_status run(const char *out, const char *weights, const char *cache, sfp_error *err)
{
    static dump d;
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    OWNED_BY(sfp__image_set_done) sfp__image_set p = {0};
    OWNED_BY(sfp__pretrain_state_done) sfp__pretrain_state st = {0};
    OWNED_BY(teacher_done) sfp__teacher t = {0};
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
    OWNED_PTR(sfp__loss_free) sfp__loss *loss = NULL;
    OWNED_PTR(sfp__view_loader_free) sfp__view_loader *feed = NULL;
    const sfp__view_batch *m = NULL;
    double value[SFP__TERMS];
    const sfp__image_set_options po = {.size = SIZE};
    const sfp__pretrain_options o = {.teacher = {.weights = weights, .cache = cache, .views = 2},
                                     .student = {.img_size = SIZE, .patch_size = PATCH},
                                     .plan = {.batch = BATCH, .seed = 1},
                                     .view = {.min_crop = 0.5, .jitter = 0.3, .mixup = 0.8},
                                     .loss = {.weight = {0.5, 2, 3, 0.7}, .smoothing = 0.1, .temperature = 2}};
    const sfp__vit_config seen = {.img_size = SIZE, .mean = {0.5f, 0.5f, 0.5f}, .std = {0.25f, 0.25f, 0.25f}};
    const sfp__vit_plan_options plo = {.mode = SFP__VIT_GRAD_WEIGHTS, .token_head = true, .microbatch_size = MICROBATCH};
    TRY(sfp__thread_pool_create(2, &pool, err));
    TRY(make_teacher(weights, err));
    TRY(sfp__image_set_load("synthetic:24", &po, pool, NULL, &p, err));
    TRY(sfp__teacher_open(&o, &p, pool, NULL, &t, err));
    TRY(sfp__vit_random(&student, 1, 0.02f, &v, err));
    TRY(sfp__vit_plan_create(v, pool, &plo, &plan, err));
    TRY(sfp__loss_create(&o.loss, &student, &p, &t, 2, MICROBATCH, &loss, err));
    TRY(sfp__pretrain_state_init(&st, &student, sfp__loss_count(loss), err));
    TRY(sfp__vit_flat_init(&student, 1, &st.weights, err));
    TRY(sfp__view_loader_create(&p, &o, &seen, &t, 1, &feed, err));
    float *layers = st.adam.x + st.vit_count;
    size_t layer_count = st.adam.count - st.vit_count;
    sfp__loss_init(loss, 1, layers);
    sfp__loss_decays(loss, st.decays + st.vit_count);
    memcpy(st.adam.ema, st.adam.x, st.adam.count * sizeof(float));
    add_state(&d, "before.", &st.weights, layers, layer_count);
    TRY(sfp__vit_set_weights(v, &st.weights, err));
    TRY(sfp__view_loader_take(feed, &m, err));
    sfp__loss_begin(loss, m, BATCH, layers);
    const sfp__vit_pass pass = {.b = BATCH, .x = m->x, .token_head = sfp__loss_tokens, .head_ctx = loss, .grad_w = &st.grads};
    TRY(sfp__vit_run(plan, &pass, err));
    sfp__loss_end(loss, value, st.adam.g + st.vit_count);
    add_state(&d, "grad.", &st.grads, st.adam.g + st.vit_count, layer_count);
    const sfp__adamw_step a = {
        .t = 1, .lr = 1e-3, .weight_decay = 0.05, .beta1 = 0.9, .beta2 = 0.98, .eps = 1e-8, .clip = 0.5, .ema = 0.9};
    double norm = sfp__adamw_update(pool, &st.adam, &a);
    add_state(&d, "after.", &st.weights, layers, layer_count);
    add_state(&d, "average.", &st.average, st.adam.ema + st.vit_count, layer_count);
    /* targets of the loss, for the image itself and for its mixup partner */
    float target[BATCH][17 * 32] = {0}, cls[BATCH][32], numbers[6] = {m->share, (float)norm};
    int64_t label[BATCH];
    for (int i = 0; i < BATCH; i++) {
        const uint16_t *entry = m->entries + (size_t)i * sfp__teacher_entry_floats(&t);
        sfp__teacher_add(&t, entry, m->mirrored[i], 1, target[i]);
        sfp__teacher_class(&t, entry, cls[i]);
        label[i] = p.label[m->image[i]];
    }
    for (int i = 0; i < SFP__TERMS; i++)
        numbers[2 + i] = (float)value[i];
    add(&d, "x", m->x, SFP__DTYPE_F32, 4, (const int64_t[]){BATCH, 3, SIZE, SIZE});
    add(&d, "target", target, SFP__DTYPE_F32, 3, (const int64_t[]){BATCH, 17, 32});
    add(&d, "teacher_class", cls, SFP__DTYPE_F32, 2, (const int64_t[]){BATCH, 32});
    add(&d, "teacher_head_w", t.vit->weights.head_w, SFP__DTYPE_F32, 2, (const int64_t[]){7, 32});
    add(&d, "teacher_head_b", t.vit->weights.head_b, SFP__DTYPE_F32, 1, (const int64_t[]){7});
    add(&d, "label", label, SFP__DTYPE_I64, 1, (const int64_t[]){BATCH});
    add(&d, "numbers", numbers, SFP__DTYPE_F32, 1, (const int64_t[]){6});
    return sfp__safetensors_write(out, d.t, d.count, NULL, 0, err);
}

int main(int argc, char **argv)
{
    char weights[512], cache[512];
    sfp_error err = {0};
    if (argc != 2) {
        (void)fprintf(stderr, "usage: pretrain_step OUT.safetensors\n");
        return 2;
    }
    (void)snprintf(weights, sizeof weights, "%s.teacher", argv[1]);
    (void)snprintf(cache, sizeof cache, "%s.cache", argv[1]);
    sfp_status s = run(argv[1], weights, cache, &err);
    (void)unlink(weights);
    (void)unlink(cache);
    if (s)
        (void)fprintf(stderr, "pretrain_step: %s\n", err.message);
    return s != SFP_OK;
}
