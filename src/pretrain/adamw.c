#include "pretrain/adamw.h"

#include <math.h>

enum { GRAIN = 1 << 16, MOST_PIECES = 4096 };

typedef struct work {
    const sfp_adamw *a;
    size_t grain;
    double sums[MOST_PIECES];
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
    const sfp_adamw *a = w->a;
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

double sfp__adamw_step(sfp_thread_pool *pool, const sfp_adamw *a, const sfp_adamw_step *s)
{
    work w = {.a = a, .grain = GRAIN};
    while (a->count > w.grain * MOST_PIECES)
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
