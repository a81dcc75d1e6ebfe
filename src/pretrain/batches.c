#include "pretrain/batches.h"

#include "base/clock.h"
#include "base/mem.h"
#include "model/vit.h"
#include "pretrain/views.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { DEPTH = 3 };

struct sfp_batch_feed {
    const sfp_pictures *pictures;
    sfp_batches_options opt;
    uint64_t epoch_steps;
    sfp_batch_made ring[DEPTH];
    int64_t *order; /* (count) of `order_epoch` */
    uint64_t order_epoch;
    bool ordered;
    uint8_t *rgb;         /* (S, S, 3) the view at hand */
    float *plain;         /* (b, 3, S, S) before mixing */
    uint64_t made, taken; /* the next step to make, to take */
    double waited;
    bool stop, started;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
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
    sfp__vit_normalise(f->rgb, o->size, o->mean, o->std, x);
    return SFP_OK;
}

static void make(sfp_batch_feed *f, sfp_batch_made *m, uint64_t step)
{
    int b = f->opt.batch;
    size_t pixels = 3 * (size_t)f->opt.size * (size_t)f->opt.size;
    m->step = step;
    m->part = draw_part(&f->opt, step);
    m->status = SFP_OK;
    order_epoch(f, step / f->epoch_steps);
    float *to = m->part < 1 ? f->plain : m->x;
    for (int i = 0; i < b && !m->status; i++)
        m->status = make_sample(f, m, i, to + (size_t)i * pixels);
    for (int i = 0; i < b && to == f->plain; i++) {
        const float *own = to + (size_t)i * pixels, *mate = to + (size_t)(b - 1 - i) * pixels;
        float *out = m->x + (size_t)i * pixels;
        for (size_t k = 0; k < pixels; k++)
            out[k] = m->part * own[k] + (1 - m->part) * mate[k];
    }
}

static void *work(void *arg)
{
    sfp_batch_feed *f = arg;
    pthread_mutex_lock(&f->lock);
    while (!f->stop) {
        if (f->made >= f->taken + DEPTH - 1) { /* one slot is in the learner's hands */
            pthread_cond_wait(&f->changed, &f->lock);
            continue;
        }
        uint64_t step = f->made;
        pthread_mutex_unlock(&f->lock);
        make(f, &f->ring[step % DEPTH], step);
        pthread_mutex_lock(&f->lock);
        f->made = step + 1;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

sfp_status sfp__batch_feed_create(const sfp_pictures *p, const sfp_batches_options *o, uint64_t first_step, sfp_batch_feed **out,
                                  sfp_error *err)
{
    sfp_batch_feed *f = sfp__calloc(1, sizeof *f);
    if (!f)
        return sfp__fail_nomem(err, sizeof *f);
    *f = (sfp_batch_feed){.pictures = p, .opt = *o, .made = first_step, .taken = first_step};
    f->epoch_steps = sfp__batch_feed_epoch_steps(p, o->batch);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    size_t pixels = 3 * (size_t)o->size * (size_t)o->size, b = (size_t)o->batch;
    f->order = sfp__malloc((size_t)p->count * sizeof *f->order);
    f->rgb = sfp__malloc(pixels);
    f->plain = sfp__malloc(b * pixels * sizeof *f->plain);
    bool ok = f->order && f->rgb && f->plain;
    for (int i = 0; i < DEPTH; i++) {
        sfp_batch_made *m = &f->ring[i];
        m->x = sfp__malloc(b * pixels * sizeof *m->x);
        m->picture = sfp__malloc(b * sizeof *m->picture);
        m->view = sfp__malloc(b * sizeof *m->view);
        m->mirrored = sfp__malloc(b * sizeof *m->mirrored);
        ok = ok && m->x && m->picture && m->view && m->mirrored;
    }
    sfp_status s = ok ? SFP_OK : sfp__fail_nomem(err, b * pixels * sizeof(float));
    if (!s) {
        f->started = pthread_create(&f->thread, NULL, work, f) == 0;
        if (!f->started)
            s = sfp__fail(err, SFP_ELIMIT, "cannot start the thread that makes batches");
    }
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
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    if (f->started)
        pthread_join(f->thread, NULL);
    for (int i = 0; i < DEPTH; i++) {
        sfp__free(f->ring[i].x);
        sfp__free(f->ring[i].picture);
        sfp__free(f->ring[i].view);
        sfp__free(f->ring[i].mirrored);
    }
    sfp__free(f->order);
    sfp__free(f->rgb);
    sfp__free(f->plain);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    sfp__free(f);
}

sfp_status sfp__batch_feed_take(sfp_batch_feed *f, const sfp_batch_made **out, sfp_error *err)
{
    pthread_mutex_lock(&f->lock);
    double begin = sfp__now();
    uint64_t step = f->taken;
    while (f->made <= step)
        pthread_cond_wait(&f->changed, &f->lock);
    f->waited += sfp__now() - begin;
    f->taken = step + 1; /* frees the slot of the step before */
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    const sfp_batch_made *m = &f->ring[step % DEPTH];
    if (m->status) {
        if (err)
            *err = m->err;
        return m->status;
    }
    *out = m;
    return SFP_OK;
}

double sfp__batch_feed_waited(const sfp_batch_feed *f)
{
    return f->waited;
}
