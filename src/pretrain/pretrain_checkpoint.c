/* The state of a pretraining run, its checkpoint file, and AdamW. */
#include "pretrain/pretrain_internal.h"

#include "base/mem.h"
#include "base/text.h"
#include "io/tensor/safetensors.h"
#include "model/vit.h"
#include "pretrain/pretrain.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sfp_status set_decay(void *ctx, const sfp__vit_weight *w, sfp_error *err)
{
    (void)err;
    sfp__pretrain_state *s = ctx;
    /* matrices decay; norms, biases, positions and the class token do not */
    bool decays = w->ndim > 1 && strcmp(w->name, "cls_token") != 0 && strcmp(w->name, "pos_embed") != 0;
    memset(s->decays + (*w->data - s->adam.x), decays, w->count);
    return SFP_OK;
}

sfp_status sfp__pretrain_state_init(sfp__pretrain_state *out, const sfp__vit_config *c, size_t loss_count, sfp_error *err)
{
    OWNED_BY(sfp__pretrain_state_done) sfp__pretrain_state s = {.config = *c, .vit_count = sfp__vit_flat_count(c)};
    sfp__adamw *a = &s.adam;
    a->count = s.vit_count + loss_count;
    const sfp__want list[] = {{&a->x, a->count, sizeof(float)},   {&a->g, a->count, sizeof(float)},
                              {&a->m, a->count, sizeof(float)},   {&a->v, a->count, sizeof(float)},
                              {&a->ema, a->count, sizeof(float)}, {&s.decays, a->count, 1}};
    TRY(sfp__block(&s.block, SFP__LIST(list), err));
    for (size_t i = 0; i < 5; i++)
        memset(*(float **)list[i].to, 0, a->count * sizeof(float));
    memset(s.decays, 0, a->count);
    a->decays = s.decays;
    TRY(sfp__vit_flat_view(c, a->x, &s.weights, err));
    TRY(sfp__vit_flat_view(c, a->g, &s.grads, err));
    TRY(sfp__vit_flat_view(c, a->ema, &s.average, err));
    (void)sfp__vit_each_weight(c, &s.weights, set_decay, &s, NULL);
    *out = TAKE(s);
    return SFP_OK;
}

void sfp__pretrain_state_done(sfp__pretrain_state *s)
{
    sfp__free(s->block);
    sfp__vit_flat_view_done(&s->weights);
    sfp__vit_flat_view_done(&s->grads);
    sfp__vit_flat_view_done(&s->average);
    *s = (sfp__pretrain_state){0};
}

static sfp__tensor flat_tensor(const char *name, size_t count, const float *data)
{
    return (sfp__tensor){.name = name,
                         .dtype = SFP__DTYPE_F32,
                         .ndim = 1,
                         .shape = {(int64_t)count},
                         .count = count,
                         .bytes = count * sizeof *data,
                         .data = data};
}

enum { OWN_KEYS = 6 }; /* metadata that is not an option */

static void put_interval(const sfp__log_interval *i, char *to, size_t size)
{
    (void)snprintf(to, size, "%" PRIu64 " %a %a %a %a %a %a %a", i->steps, i->seconds, i->lr, i->grad_norm, i->sum[0], i->sum[1],
                   i->sum[2], i->sum[3]);
}
_Static_assert(SFP__TERMS == 4, "the sums of an interval");

/* Reads an interval; one that is missing, as in checkpoints before 0.6, or damaged, is empty. */
static sfp__log_interval read_interval(const char *text)
{
    sfp__log_interval i = {0};
    double *const numbers[] = {&i.seconds, &i.lr, &i.grad_norm, &i.sum[0], &i.sum[1], &i.sum[2], &i.sum[3]};
    char *end = NULL;
    if (!text)
        return i;
    i.steps = strtoull(text, &end, 10);
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        *numbers[k] = strtod(end, &end);
    return *end == '\0' ? i : (sfp__log_interval){0};
}

sfp_status sfp__pretrain_state_save(const sfp__pretrain_state *s, const sfp__pretrain_options *o, const char *path,
                                    sfp_error *err)
{
    const sfp__adamw *a = &s->adam;
    const sfp__tensor tensors[] = {flat_tensor("weights", a->count, a->x), flat_tensor("moment1", a->count, a->m),
                                   flat_tensor("moment2", a->count, a->v), flat_tensor("average", a->count, a->ema)};
    sfp__saved_option saved[SFP__PRETRAIN_SAVED_OPTIONS_MAX];
    char step[24], seconds[40], interval[240], key[24], sum[SFP__CHECKSUM_MAX];
    (void)snprintf(step, sizeof step, "%" PRIu64, s->step);
    (void)snprintf(seconds, sizeof seconds, "%a", s->seconds);
    put_interval(&s->interval, interval, sizeof interval);
    (void)snprintf(key, sizeof key, "%016" PRIx64, s->key);
    sfp__safetensors_sum(NULL, sizeof tensors / sizeof *tensors, tensors, sum);
    sfp__meta meta[OWN_KEYS + SFP__PRETRAIN_SAVED_OPTIONS_MAX] = {
        {"kind", SFP__PRETRAIN_KIND}, {"step", step}, {"seconds", seconds},
        {"interval", interval},       {"key", key},   {SFP__CHECKSUM_KEY, sum}};
    size_t n = sfp__pretrain_saved_options(o, saved);
    for (size_t i = 0; i < n; i++)
        meta[OWN_KEYS + i] = (sfp__meta){saved[i].key, saved[i].text ? saved[i].text : saved[i].number};
    return sfp__safetensors_write(path, tensors, sizeof tensors / sizeof *tensors, meta, OWN_KEYS + n, err);
}

static sfp_status need_meta(const sfp__tensor_file *f, const char *key, const char **out, sfp_error *err)
{
    *out = sfp__tensor_file_meta(f, key);
    return *out
               ? SFP_OK
               : sfp__fail(err, SFP_EFORMAT, "%s: metadata key '%s' is missing, expected a checkpoint of pretrain", f->path, key);
}

static sfp_status read_blocks(const sfp__tensor_file *f, sfp__pretrain_state *s, sfp_error *err)
{
    const struct {
        const char *name;
        float *to;
    } list[] = {{"weights", s->adam.x}, {"moment1", s->adam.m}, {"moment2", s->adam.v}, {"average", s->adam.ema}};
    enum { BLOCKS = sizeof list / sizeof *list };
    const int64_t shape[] = {(int64_t)s->adam.count};
    const char *path = f->path, *sum;
    const sfp__tensor *t[BLOCKS] = {0};
    TRY(need_meta(f, SFP__CHECKSUM_KEY, &sum, err));
    for (int i = 0; i < BLOCKS; i++) { /* checks all tensors before the state is changed */
        TRY(sfp__tensor_file_need(f, list[i].name, &t[i], err));
        TRY(sfp__tensor_expect(path, t[i], shape, 1, err));
    }
    TRY(sfp__safetensors_check_sum(f, NULL, err));
    for (int i = 0; i < BLOCKS; i++)
        TRY(sfp__tensor_to_f32(path, t[i], list[i].to, err));
    return SFP_OK;
}

sfp_status sfp__pretrain_state_load(sfp__pretrain_state *s, const sfp__pretrain_options *o, const char *path, sfp_error *err)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *f = NULL;
    const char *step, *seconds, *key;
    TRY(sfp__safetensors_open(path, &f, err));
    TRY(need_meta(f, "step", &step, err));
    TRY(need_meta(f, "seconds", &seconds, err));
    TRY(need_meta(f, "key", &key, err));
    if (strtoull(key, NULL, 16) != s->key)
        return sfp__pretrain_check_saved_options(f, o, err);
    uint64_t steps = strtoull(step, NULL, 10);
    double spent = strtod(seconds, NULL);
    if (steps > INT64_MAX || !isfinite(spent) || spent < 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: checkpoint has step %s and seconds %s, expected finite numbers from 0", path,
                         sfp__printable(step, (char[32]){0}, 32), sfp__printable(seconds, (char[48]){0}, 48));
    TRY(read_blocks(f, s, err));
    s->step = steps;
    s->seconds = spent;
    s->interval = read_interval(sfp__tensor_file_meta(f, "interval"));
    return SFP_OK;
}

/* ----------------------------------------------------------------------- AdamW */

enum { GRAIN = 1 << 16, MAX_PIECES = 4096 };

typedef struct work {
    const sfp__adamw *a;
    size_t grain;
    double sums[MAX_PIECES];
    float scale, size, root, keep, beta1, beta2, eps, ema;
} work;

static size_t end_of(const work *w, size_t first)
{
    return first + w->grain < w->a->count ? first + w->grain : w->a->count;
}

static void sum_piece(void *ctx, int piece, int worker)
{
    (void)worker;
    work *w = ctx;
    const float *g = w->a->g;
    double lanes[8] = {0};
    size_t i = (size_t)piece * w->grain, end = end_of(w, i);
    for (; i + 8 <= end; i += 8)
        for (size_t k = 0; k < 8; k++)
            lanes[k] += (double)g[i + k] * (double)g[i + k];
    for (; i < end; i++)
        lanes[0] += (double)g[i] * (double)g[i];
    w->sums[piece] = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

static void step_piece(void *ctx, int piece, int worker)
{
    (void)worker;
    const work *w = ctx;
    const sfp__adamw *a = w->a;
    float *restrict x = a->x, *restrict m = a->m, *restrict v = a->v, *restrict ema = a->ema;
    const float *restrict grad = a->g;
    const uint8_t *restrict decays = a->decays;
    size_t first = (size_t)piece * w->grain, end = end_of(w, first);
    for (size_t i = first; i < end; i++) {
        float g = grad[i] * w->scale;
        m[i] = w->beta1 * m[i] + (1 - w->beta1) * g;
        v[i] = w->beta2 * v[i] + (1 - w->beta2) * g * g;
        float y = x[i] * (decays[i] ? w->keep : 1.0f) - w->size * m[i] / (sqrtf(v[i]) * w->root + w->eps);
        x[i] = y;
        ema[i] = w->ema * ema[i] + (1 - w->ema) * y;
    }
}

double sfp__adamw_update(sfp__thread_pool *pool, const sfp__adamw *a, const sfp__adamw_step *s)
{
    work w = {.a = a, .grain = GRAIN};
    while (a->count > w.grain * MAX_PIECES)
        w.grain *= 2;
    int pieces = (int)((a->count + w.grain - 1) / w.grain);
    sfp__thread_pool_run(pool, pieces, sum_piece, &w);
    double sum = 0;
    for (int i = 0; i < pieces; i++)
        sum += w.sums[i];
    double norm = sqrt(sum), c1 = 1 - pow(s->beta1, (double)s->t), c2 = 1 - pow(s->beta2, (double)s->t);
    if (!isfinite(norm))
        return norm;
    w.scale = s->clip > 0 && norm > s->clip ? (float)(s->clip / norm) : 1.0f;
    w.size = (float)(s->lr / c1);
    w.root = (float)(1 / sqrt(c2));
    w.keep = (float)(1 - s->lr * s->weight_decay);
    w.beta1 = (float)s->beta1;
    w.beta2 = (float)s->beta2;
    w.eps = (float)s->eps;
    w.ema = (float)s->ema;
    sfp__thread_pool_run(pool, pieces, step_piece, &w);
    return norm;
}
