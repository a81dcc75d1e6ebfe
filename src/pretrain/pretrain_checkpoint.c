/* The state of a pretraining run, its checkpoint file, and AdamW. */
#include "pretrain/pretrain_internal.h"

#include "base/text.h"
#include "io/tensor/metadata.h"
#include "io/tensor/visit.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
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
    for (int i = 0; i < SFP__TERMS; i++)
        s.loss[i] = NAN;
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

/* ------------------------------------------------------------------ checkpoint */

/* Visits the tensors of a checkpoint. */
static sfp_status visit(const sfp__visitor *v, sfp__pretrain_state *s, sfp_error *err)
{
    const struct {
        const char *name;
        sfp__dtype dtype;
        size_t count;
        void *data;
    } list[] = {{"weights", SFP__DTYPE_F32, s->adam.count, s->adam.x},
                {"moment1", SFP__DTYPE_F32, s->adam.count, s->adam.m},
                {"moment2", SFP__DTYPE_F32, s->adam.count, s->adam.v},
                {"average", SFP__DTYPE_F32, s->adam.count, s->adam.ema},
                {"seconds", SFP__DTYPE_F64, 1, &s->seconds},
                {"loss", SFP__DTYPE_F64, SFP__TERMS, s->loss},
                {"interval", SFP__DTYPE_F64, sizeof s->interval / sizeof(double), &s->interval}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const int64_t count = (int64_t)list[i].count;
        TRY(sfp__visit(v, list[i].name, list[i].dtype, 1, &count, list[i].data, err));
    }
    return SFP_OK;
}

enum { VALUE_MAX = PATH_MAX };

/* Writes the key and the value of an option that a resumed run must not change; false: it may change. The names of the data and of the teacher are
 * saved only to explain why their contents differ. Metadata is UTF-8, so names that are not UTF-8 are not saved. */
static bool saved_option(const sfp__opt *row, const sfp__pretrain_options *o, char key[64], char value[VALUE_MAX])
{
    (void)snprintf(key, 64, "option.%s", row->name);
    return row->size > 0 && row->resume == SFP__RESUME_SAME && sfp__utf8_valid(sfp__opt_print(row, o, value, VALUE_MAX));
}

sfp_status sfp__pretrain_state_save(sfp__pretrain_state *s, const sfp__pretrain_options *o, sfp__backed_file *last,
                                    const char *path, sfp_error *err)
{
    OWNED_BY(sfp__tensor_list_done) sfp__tensor_list tensors = {0};
    OWNED_BY(sfp__metadata_done) sfp__file_metadata meta = {0};
    char key[64], value[VALUE_MAX];
    const sfp__visitor v = sfp__visit_writing(&tensors);
    sfp__metadata_put(&meta, "kind", SFP__PRETRAIN_KIND);
    sfp__metadata_put_int(&meta, "step", (long long)s->step);
    sfp__metadata_put_int(&meta, "inputs", (long long)(s->inputs >> 1));
    for (const sfp__opt *row = sfp__pretrain_rows; row < sfp__pretrain_rows + SFP__PRETRAIN_ROWS; row++)
        if (saved_option(row, o, key, value))
            sfp__metadata_put(&meta, key, value);
    TRY(sfp__check_memory(!meta.failed, err));
    TRY(visit(&v, s, err));
    return sfp__backed_file_write(last, path, &tensors, meta.list, meta.count, err);
}

/* Compares the options with those of the checkpoint. texts true: only options of type STRING; false: only the others. */
static sfp_status check_options(const sfp__tensor_file *f, const sfp__pretrain_options *o, bool texts, sfp_error *err)
{
    char key[64], now[VALUE_MAX], shown[SFP__NAME_MAX];
    for (const sfp__opt *row = sfp__pretrain_rows; row < sfp__pretrain_rows + SFP__PRETRAIN_ROWS; row++) {
        if ((row->type == SFP__OPT_STRING) != texts || !saved_option(row, o, key, now))
            continue;
        const char *was = sfp__tensor_file_meta(f, key);
        if (!was || strcmp(was, now) == 0)
            continue;
        if (!*was)
            return sfp__fail(err, SFP_EINVAL, "--%s is %s, expected none as in %s; remove it, or choose another --out", row->name,
                             now, f->path);
        return sfp__fail(err, SFP_EINVAL, "--%s is %s, expected %s as in %s; use that value, or choose another --out", row->name,
                         *now ? now : "not set", sfp__printable(was, shown, sizeof shown), f->path);
    }
    return SFP_OK;
}

typedef struct loading {
    sfp__pretrain_state *state;
    const sfp__pretrain_options *o;
} loading;

static sfp_status load(void *ctx, const char *path, sfp_error *err)
{
    const loading *l = ctx;
    sfp__pretrain_state *s = l->state;
    OWNED uint8_t *bytes = NULL;
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *f = NULL;
    size_t size;
    long long step, inputs;
    TRY(sfp__backed_file_read(path, &bytes, &size, err));
    TRY(sfp__safetensors_open_memory(path, bytes, size, &f, err));
    TRY(sfp__metadata_int(f, "step", 0, INT64_MAX, &step, err));
    TRY(sfp__metadata_int(f, "inputs", 0, INT64_MAX, &inputs, err));
    TRY(check_options(f, l->o, false, err));
    if ((uint64_t)inputs != s->inputs >> 1) {
        TRY(check_options(f, l->o, true, err));
        return sfp__fail(err, SFP_EINVAL,
                         "%s: the images, labels or teacher's weights have changed; restore them, or choose another --out", path);
    }
    for (int reading = 0; reading < 2; reading++) { /* first checks all tensors */
        const sfp__visitor v = sfp__visit_reading(f, !reading);
        TRY(visit(&v, s, err));
    }
    if (!isfinite(s->seconds) || s->seconds < 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: seconds is %g, expected a finite number from 0", path, s->seconds);
    s->step = (uint64_t)step;
    return SFP_OK;
}

sfp_status sfp__pretrain_state_load(sfp__pretrain_state *s, const sfp__pretrain_options *o, sfp__backed_file *last,
                                    const char *path, bool *used_old, sfp_error *err)
{
    return sfp__backed_file_resume(last, path, load, &(loading){s, o}, used_old, err);
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
