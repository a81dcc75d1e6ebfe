#include "pretrain/state.h"

#include "base/mem.h"
#include "base/text.h"
#include "io/safetensors.h"
#include "model/vit_train.h"
#include "pretrain/settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sfp_status note_decay(void *ctx, const char *name, const int64_t *shape, int ndim, float **field, sfp_error *err)
{
    (void)err;
    sfp_pretrain_state *s = ctx;
    size_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= (size_t)shape[i];
    /* matrices decay; norms, biases, positions and the class token do not */
    bool decays = ndim > 1 && strcmp(name, "cls_token") != 0 && strcmp(name, "pos_embed") != 0;
    memset(s->decays + (*field - s->adam.x), decays, n);
    return SFP_OK;
}

sfp_status sfp__pretrain_state_init(sfp_pretrain_state *out, const sfp_vit_config *c, size_t loss_count, sfp_error *err)
{
    sfp_pretrain_state s = {.config = *c, .vit_count = sfp__vit_flat_count(c)};
    sfp_adamw *a = &s.adam;
    a->count = s.vit_count + loss_count;
    a->x = sfp__calloc(a->count, sizeof(float));
    a->g = sfp__calloc(a->count, sizeof(float));
    a->m = sfp__calloc(a->count, sizeof(float));
    a->v = sfp__calloc(a->count, sizeof(float));
    a->ema = sfp__calloc(a->count, sizeof(float));
    a->decays = s.decays = sfp__calloc(a->count, 1);
    sfp_status status = a->x && a->g && a->m && a->v && a->ema && s.decays ? SFP_OK : sfp__fail_nomem(err);
    if (!status)
        status = sfp__vit_flat_view(c, a->x, &s.weights, err);
    if (!status)
        status = sfp__vit_flat_view(c, a->g, &s.grads, err);
    if (!status)
        status = sfp__vit_flat_view(c, a->ema, &s.average, err);
    if (status) {
        sfp__pretrain_state_done(&s);
        return status;
    }
    (void)sfp__vit_each_weight(c, &s.weights, note_decay, &s, NULL);
    *out = s;
    return SFP_OK;
}

void sfp__pretrain_state_done(sfp_pretrain_state *s)
{
    sfp__free(s->adam.x);
    sfp__free(s->adam.g);
    sfp__free(s->adam.m);
    sfp__free(s->adam.v);
    sfp__free(s->adam.ema);
    sfp__free(s->decays);
    sfp__vit_flat_view_done(&s->weights);
    sfp__vit_flat_view_done(&s->grads);
    sfp__vit_flat_view_done(&s->average);
    *s = (sfp_pretrain_state){0};
}

static sfp_tensor block(const char *name, size_t count, const float *data)
{
    return (sfp_tensor){.name = name,
                        .dtype = SFP_DTYPE_F32,
                        .ndim = 1,
                        .shape = {(int64_t)count},
                        .count = count,
                        .bytes = count * sizeof *data,
                        .data = data};
}

sfp_status sfp__pretrain_state_save(const sfp_pretrain_state *s, const sfp_pretrain_options *o, const char *path, sfp_error *err)
{
    const sfp_adamw *a = &s->adam;
    const sfp_tensor tensors[] = {block("weights", a->count, a->x), block("moment1", a->count, a->m),
                                  block("moment2", a->count, a->v), block("average", a->count, a->ema)};
    sfp_pretrain_note notes[SFP_PRETRAIN_NOTES_MAX];
    char step[24], seconds[40], key[24], sum[SFP_CHECKSUM_MAX];
    (void)snprintf(step, sizeof step, "%" PRIu64, s->step);
    (void)snprintf(seconds, sizeof seconds, "%a", s->seconds);
    (void)snprintf(key, sizeof key, "%016" PRIx64, s->key);
    sfp__safetensors_sum(NULL, sizeof tensors / sizeof *tensors, tensors, sum);
    sfp_meta meta[5 + SFP_PRETRAIN_NOTES_MAX] = {
        {"kind", SFP_PRETRAIN_KIND}, {"step", step}, {"seconds", seconds}, {"key", key}, {SFP_CHECKSUM_KEY, sum}};
    size_t n = sfp__pretrain_notes(o, notes);
    for (size_t i = 0; i < n; i++)
        meta[5 + i] = (sfp_meta){notes[i].key, notes[i].text ? notes[i].text : notes[i].number};
    return sfp__safetensors_write(path, tensors, sizeof tensors / sizeof *tensors, meta, 5 + n, err);
}

static sfp_status need_meta(const sfp_safetensors *f, const char *key, const char **out, sfp_error *err)
{
    *out = sfp__safetensors_meta(f, key);
    return *out ? SFP_OK
                : sfp__fail(err, SFP_EFORMAT, "%s: has no '%s', expected a checkpoint of pretraining", sfp__safetensors_path(f),
                            key);
}

static sfp_status read_blocks(const sfp_safetensors *f, sfp_pretrain_state *s, sfp_error *err)
{
    const struct {
        const char *name;
        float *to;
    } list[] = {{"weights", s->adam.x}, {"moment1", s->adam.m}, {"moment2", s->adam.v}, {"average", s->adam.ema}};
    enum { BLOCKS = sizeof list / sizeof *list };
    const int64_t shape[] = {(int64_t)s->adam.count};
    const char *path = sfp__safetensors_path(f), *sum;
    const sfp_tensor *t[BLOCKS] = {0};
    sfp_status status = need_meta(f, SFP_CHECKSUM_KEY, &sum, err);
    for (int i = 0; !status && i < BLOCKS; i++) /* all are looked at before the first is changed */
        if (!(status = sfp__safetensors_need(f, list[i].name, &t[i], err)))
            status = sfp__tensor_expect(path, t[i], shape, 1, err);
    if (!status)
        status = sfp__safetensors_check_sum(f, NULL, err);
    for (int i = 0; !status && i < BLOCKS; i++)
        status = sfp__tensor_to_f32(path, t[i], list[i].to, err);
    return status;
}

sfp_status sfp__pretrain_state_load(sfp_pretrain_state *s, const sfp_pretrain_options *o, const char *path, sfp_error *err)
{
    sfp_safetensors *f = NULL;
    const char *step, *seconds, *key;
    sfp_status status = sfp__safetensors_open(path, &f, err);
    if (!status)
        status = need_meta(f, "step", &step, err);
    if (!status)
        status = need_meta(f, "seconds", &seconds, err);
    if (!status)
        status = need_meta(f, "key", &key, err);
    if (!status && strtoull(key, NULL, 16) != s->key)
        status = sfp__pretrain_is_other(f, o, err);
    uint64_t steps = status ? 0 : strtoull(step, NULL, 10);
    double spent = status ? 0 : strtod(seconds, NULL);
    if (!status && (steps > INT64_MAX || !isfinite(spent) || spent < 0))
        status = sfp__fail(err, SFP_EFORMAT, "%s: is of step %s after %s seconds, expected numbers of a training", path,
                           sfp__printable(step, (char[32]){0}, 32), sfp__printable(seconds, (char[48]){0}, 48));
    if (!status)
        status = read_blocks(f, s, err);
    if (!status) {
        s->step = steps;
        s->seconds = spent;
    }
    sfp__safetensors_close(f);
    return status;
}
