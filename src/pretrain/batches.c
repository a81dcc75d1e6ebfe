#include "pretrain/batches.h"

#include "base/ahead.h"
#include "base/mem.h"
#include "base/pixels.h"
#include "model/vit.h"
#include "pretrain/views.h"

#include <math.h>

enum { DEPTH = 3 }; /* one slot is in the learner's hands */

struct sfp_batch_feed {
    const sfp_pictures *pictures;
    sfp_batches_options opt;
    uint64_t epoch_steps;
    sfp_batch_made ring[DEPTH];
    int64_t *order; /* (count) of `order_epoch` */
    uint64_t order_epoch;
    bool ordered;
    uint8_t *rgb; /* (S, S, 3) the view at hand */
    float *plain; /* (b, 3, S, S) before mixing; NULL without */
    sfp_ahead *ahead;
    int64_t next; /* step to be taken */
};

uint64_t sfp__batch_feed_epoch_steps(const sfp_pictures *p, int batch)
{
    return (uint64_t)(p->count / batch);
}

static void order_epoch(sfp_batch_feed *f, uint64_t epoch)
{
    if (f->ordered && f->order_epoch == epoch)
        return;
    sfp_rng r = sfp__draw(f->opt.seed, SFP_DRAW_ORDER, epoch, 0);
    int64_t n = f->pictures->count;
    for (int64_t i = 0; i < n; i++)
        f->order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t k = (int64_t)sfp__rng_below(&r, (uint32_t)(i + 1)), t = f->order[i];
        f->order[i] = f->order[k];
        f->order[k] = t;
    }
    f->order_epoch = epoch;
    f->ordered = true;
}

/* Gamma(a), a > 0 (Marsaglia and Tsang). */
static double draw_gamma(sfp_rng *r, double a)
{
    if (a < 1)
        return draw_gamma(r, a + 1) * pow(1 - sfp__rng_double(r), 1 / a);
    double d = a - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = sfp__rng_normal(r), v = pow(1 + c * x, 3), u = 1 - sfp__rng_double(r);
        if (v > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v;
    }
}

static float draw_part(const sfp_batches_options *o, uint64_t step)
{
    if (!(o->mixup > 0))
        return 1;
    sfp_rng r = sfp__draw(o->seed, SFP_DRAW_MIX, step, 0);
    double a = draw_gamma(&r, o->mixup), b = draw_gamma(&r, o->mixup), part = a + b > 0 ? a / (a + b) : 1;
    return (float)fmax(part, 1 - part); /* the first picture is the larger part: its mate sees the same of it */
}

static sfp_status make_sample(sfp_batch_feed *f, sfp_batch_made *m, int i, float *x)
{
    const sfp_batches_options *o = &f->opt;
    const sfp_pictures *p = f->pictures;
    uint64_t epoch = m->step / f->epoch_steps, at = m->step % f->epoch_steps * (uint64_t)o->batch + (uint64_t)i;
    int64_t picture = f->order[at];
    uint64_t view = o->views > 0 ? (epoch + (uint64_t)picture) % (uint64_t)o->views : epoch;
    sfp_view v = sfp__view(o->seed, (uint64_t)picture, view, p->size, o->crop_least);
    sfp_rng r = sfp__draw(o->seed, SFP_DRAW_COLOUR, (uint64_t)i, m->step);
    m->picture[i] = picture;
    m->view[i] = o->views > 0 ? (int)view : 0;
    m->mirrored[i] = sfp__rng_u32(&r) & 1;
    v.flip ^= m->mirrored[i];
    sfp_status s = sfp__view_render(sfp__pictures_at(p, picture), p->size, &v, o->size, f->rgb, &m->err);
    if (s)
        return s;
    if (o->jitter > 0)
        sfp__view_colour(&r, o->jitter, o->size, f->rgb);
    sfp__pixels_normalise(f->rgb, o->size, o->mean, o->std, x);
    return SFP_OK;
}

/* m->x from f->plain */
static void mix(const sfp_batch_feed *f, sfp_batch_made *m)
{
    int b = f->opt.batch;
    size_t pixels = 3 * (size_t)f->opt.size * (size_t)f->opt.size;
    for (int i = 0; i < b; i++) {
        const float *own = f->plain + (size_t)i * pixels, *mate = f->plain + (size_t)(b - 1 - i) * pixels;
        float *out = m->x + (size_t)i * pixels;
        for (size_t k = 0; k < pixels; k++)
            out[k] = m->part * own[k] + (1 - m->part) * mate[k];
    }
}

static void make(void *ctx, int64_t step)
{
    sfp_batch_feed *f = ctx;
    sfp_batch_made *m = &f->ring[step % DEPTH];
    size_t pixels = 3 * (size_t)f->opt.size * (size_t)f->opt.size;
    m->step = (uint64_t)step;
    m->part = draw_part(&f->opt, m->step);
    m->status = SFP_OK;
    order_epoch(f, m->step / f->epoch_steps);
    bool mixed = m->part < 1;
    for (int i = 0; i < f->opt.batch && !m->status; i++)
        m->status = make_sample(f, m, i, (mixed ? f->plain : m->x) + (size_t)i * pixels);
    if (mixed && !m->status)
        mix(f, m);
}

sfp_status sfp__batch_feed_create(const sfp_pictures *p, const sfp_batches_options *o, uint64_t first_step, sfp_batch_feed **out,
                                  sfp_error *err)
{
    sfp_batch_feed *f = sfp__calloc(1, sizeof *f);
    if (!f)
        return sfp__fail_nomem(err);
    *f = (sfp_batch_feed){.pictures = p, .opt = *o, .next = (int64_t)first_step};
    f->epoch_steps = sfp__batch_feed_epoch_steps(p, o->batch);
    size_t pixels = 3 * (size_t)o->size * (size_t)o->size, b = (size_t)o->batch;
    f->order = sfp__malloc((size_t)p->count * sizeof *f->order);
    f->rgb = sfp__malloc(pixels);
    f->plain = o->mixup > 0 ? sfp__malloc(b * pixels * sizeof *f->plain) : NULL;
    bool ok = f->order && f->rgb && (f->plain || !(o->mixup > 0));
    for (int i = 0; i < DEPTH; i++) {
        sfp_batch_made *m = &f->ring[i];
        m->x = sfp__malloc(b * pixels * sizeof *m->x);
        m->picture = sfp__malloc(b * sizeof *m->picture);
        m->view = sfp__malloc(b * sizeof *m->view);
        m->mirrored = sfp__malloc(b * sizeof *m->mirrored);
        ok = ok && m->x && m->picture && m->view && m->mirrored;
    }
    sfp_status s = ok ? SFP_OK : sfp__fail_nomem(err);
    const sfp_ahead_options ahead = {.what = "batch", .first = f->next, .end = INT64_MAX, .depth = DEPTH, .make = make, .ctx = f};
    if (!s)
        s = sfp__ahead_create(&ahead, &f->ahead, err);
    if (s)
        sfp__batch_feed_free(f);
    else
        *out = f;
    return s;
}

void sfp__batch_feed_free(sfp_batch_feed *f)
{
    if (!f)
        return;
    sfp__ahead_free(f->ahead);
    for (int i = 0; i < DEPTH; i++) {
        sfp__free(f->ring[i].x);
        sfp__free(f->ring[i].picture);
        sfp__free(f->ring[i].view);
        sfp__free(f->ring[i].mirrored);
    }
    sfp__free(f->order);
    sfp__free(f->rgb);
    sfp__free(f->plain);
    sfp__free(f);
}

sfp_status sfp__batch_feed_take(sfp_batch_feed *f, const sfp_batch_made **out, sfp_error *err)
{
    double waited = 0; /* part of the step's own time */
    sfp__ahead_release(f->ahead, f->next);
    sfp_status s = sfp__ahead_take(f->ahead, f->next, &waited, err);
    if (s)
        return s;
    const sfp_batch_made *m = &f->ring[f->next++ % DEPTH];
    if (m->status) {
        if (err)
            *err = m->err;
        return m->status;
    }
    *out = m;
    return SFP_OK;
}
