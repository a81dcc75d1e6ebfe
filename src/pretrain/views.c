/* Views of images, and the background thread that prefetches batches of them. */
#include "pretrain/pretrain_internal.h"

#include "base/mem.h"
#include "base/prefetch.h"
#include "compute/pixels.h"
#include "io/image/image.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* ---------------------------------------------------------------------- views */

sfp__rng sfp__draw(uint64_t seed, int purpose, uint64_t a, uint64_t b)
{
    return sfp__rng_init(seed, ((uint64_t)purpose << 56) ^ (b << 34) ^ a);
}

static double uniform(sfp__rng *r, double low, double high)
{
    return low + (high - low) * sfp__rng_double(r);
}

static int clamp_side(double length, int size)
{
    int n = (int)lround(length);
    return n < 1 ? 1 : n > size ? size : n;
}

sfp__view sfp__view_draw(uint64_t seed, uint64_t image, uint64_t view, int size, double min_area)
{
    sfp__rng r = sfp__draw(seed, SFP__DRAW_VIEW, image, view);
    double area = uniform(&r, min_area, 1), ratio = exp(uniform(&r, -log(4.0 / 3), log(4.0 / 3))), side = sqrt(area) * size;
    sfp__view v = {.width = clamp_side(side * sqrt(ratio), size), .height = clamp_side(side / sqrt(ratio), size)};
    v.left = (int)sfp__rng_below(&r, (uint32_t)(size - v.width + 1));
    v.top = (int)sfp__rng_below(&r, (uint32_t)(size - v.height + 1));
    v.flip = sfp__rng_u32(&r) & 1;
    return v;
}

static void flip_rows(int size, uint8_t *rgb)
{
    for (int y = 0; y < size; y++)
        for (int a = 0, b = size - 1; a < b; a++, b--) {
            uint8_t *p = rgb + 3 * ((size_t)y * (size_t)size + (size_t)a), *q = rgb + 3 * ((size_t)y * (size_t)size + (size_t)b);
            for (int c = 0; c < 3; c++) {
                uint8_t t = p[c];
                p[c] = q[c];
                q[c] = t;
            }
        }
}

sfp_status sfp__view_render(const uint8_t *rgb, int size, const sfp__view *v, int to, uint8_t *out, sfp_error *err)
{
    union {
        const uint8_t *in;
        uint8_t *image; /* not written to: sfp__image has no const pixels */
    } pixels = {.in = rgb};
    const sfp__image whole = {.width = size, .height = size, .rgb = pixels.image};
    OWNED_BY(sfp__image_done) sfp__image part = {0}, fit = {0};
    TRY(sfp__image_crop(&whole, v->left, v->top, v->width, v->height, &part, err));
    TRY(sfp__image_resize(&part, to, to, SFP__FILTER_BILINEAR, &fit, err));
    memcpy(out, fit.rgb, 3 * (size_t)to * (size_t)to);
    if (v->flip)
        flip_rows(to, out);
    return SFP_OK;
}

typedef struct inputs {
    const sfp__image_set *p;
    const int64_t *image;
    const sfp__view *view;
    const sfp__vit_config *c;
    float *x;
    atomic_int status; /* of the last failure */
} inputs;

static sfp_status make_input(const inputs *in, int i)
{
    const sfp__image_set *p = in->p;
    const sfp__view whole = {.width = p->size, .height = p->size};
    int S = in->c->img_size;
    size_t pixels = 3 * (size_t)S * (size_t)S;
    const uint8_t *rgb = sfp__image_set_at(p, in->image[i]);
    OWNED uint8_t *fit = NULL;
    if (in->view || p->size != S) {
        if (!(fit = sfp__malloc(pixels)))
            return SFP_ENOMEM;
        TRY(sfp__view_render(rgb, p->size, in->view ? &in->view[i] : &whole, S, fit, NULL));
    }
    sfp__pixels_normalise(fit ? fit : rgb, S, in->c->mean, in->c->std, in->x + (size_t)i * pixels);
    return SFP_OK;
}

static void make_one(void *ctx, int piece, int worker)
{
    (void)worker;
    inputs *in = ctx;
    sfp_status s = make_input(in, piece);
    if (s)
        atomic_store(&in->status, (int)s);
}

sfp_status sfp__inputs_make(const sfp__image_set *p, int n, const int64_t *image, const sfp__view *view, const sfp__vit_config *c,
                            sfp__thread_pool *pool, float *x, sfp_error *err)
{
    inputs in = {.p = p, .image = image, .view = view, .c = c, .x = x};
    sfp__thread_pool_run(pool, n, make_one, &in);
    sfp_status s = (sfp_status)atomic_load(&in.status);
    return s ? sfp__fail(err, s, "cannot create a view of %d x %d pixels", c->img_size, c->img_size) : SFP_OK;
}

static uint8_t to_byte(float x)
{
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x + 0.5f);
}

void sfp__view_colour(sfp__rng *r, double strength, int size, uint8_t *rgb)
{
    size_t n = (size_t)size * (size_t)size;
    float bright = (float)uniform(r, 1 - strength, 1 + strength), contrast = (float)uniform(r, 1 - strength, 1 + strength),
          saturation = (float)uniform(r, 1 - strength, 1 + strength);
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += 0.299 * rgb[3 * i] + 0.587 * rgb[3 * i + 1] + 0.114 * rgb[3 * i + 2];
    float level = bright * (float)(sum / (double)n) * (1 - contrast), scale = bright * contrast;
    for (size_t i = 0; i < n; i++) {
        float c[3], grey;
        for (int k = 0; k < 3; k++)
            c[k] = scale * (float)rgb[3 * i + (size_t)k] + level;
        grey = 0.299f * c[0] + 0.587f * c[1] + 0.114f * c[2];
        for (int k = 0; k < 3; k++)
            rgb[3 * i + (size_t)k] = to_byte(grey + saturation * (c[k] - grey));
    }
}

/* -------------------------------------------------------------------- batches */

enum { DEPTH = 3 }; /* batches in the ring, of which the training loop uses one */

struct sfp__view_loader {
    const sfp__image_set *images;
    const sfp__pretrain_options *o;
    const sfp__vit_config *c;
    const sfp__teacher *teacher; /* NULL: every epoch has new views */
    uint64_t epoch_steps;
    sfp__view_batch ring[DEPTH];
    int64_t *order; /* (images->count) order of the images in epoch number `order_epoch` */
    uint64_t order_epoch;
    bool ordered;
    uint8_t *rgb; /* (S, S, 3) the current view */
    float *plain; /* (b, 3, S, S) before mixing */
    void *block;  /* the memory of the arrays above and of the ring */
    sfp__prefetcher *prefetcher;
    int64_t next; /* the step that sfp__view_loader_take returns next */
};

uint64_t sfp__view_loader_epoch_steps(const sfp__image_set *p, int batch)
{
    return (uint64_t)(p->count / batch);
}

static void order_epoch(sfp__view_loader *f, uint64_t epoch)
{
    if (f->ordered && f->order_epoch == epoch)
        return;
    sfp__rng r = sfp__draw(f->o->plan.seed, SFP__DRAW_ORDER, epoch, 0);
    int64_t n = f->images->count;
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

/* Draws from Gamma(a), a > 0, by the method of Marsaglia and Tsang. */
static double draw_gamma(sfp__rng *r, double a)
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

static float draw_share(const sfp__pretrain_options *o, uint64_t step)
{
    if (!(o->view.mixup > 0))
        return 1;
    sfp__rng r = sfp__draw(o->plan.seed, SFP__DRAW_MIX, step, 0);
    double a = draw_gamma(&r, o->view.mixup), b = draw_gamma(&r, o->view.mixup), share = a + b > 0 ? a / (a + b) : 1;
    /* share and 1 - share give the same two mixtures for the pair (i, mate), so the larger one is used */
    return (float)fmax(share, 1 - share);
}

static sfp_status make_sample(sfp__view_loader *f, sfp__view_batch *m, int i, float *x)
{
    const sfp__pretrain_options *o = f->o;
    const sfp__image_set *p = f->images;
    uint64_t epoch = m->step / f->epoch_steps, at = m->step % f->epoch_steps * (uint64_t)o->plan.batch + (uint64_t)i;
    int64_t image = f->order[at];
    uint64_t view = f->teacher ? (epoch + (uint64_t)image) % (uint64_t)f->teacher->views : epoch;
    sfp__view v = sfp__view_draw(o->plan.seed, (uint64_t)image, view, p->size, o->view.min_crop);
    sfp__rng r = sfp__draw(o->plan.seed, SFP__DRAW_COLOUR, (uint64_t)i, m->step);
    m->image[i] = image;
    m->view[i] = f->teacher ? (int)view : 0;
    m->mirrored[i] = sfp__rng_u32(&r) & 1;
    v.flip ^= m->mirrored[i];
    TRY(sfp__view_render(sfp__image_set_at(p, image), p->size, &v, f->c->img_size, f->rgb, &m->err));
    if (o->view.jitter > 0)
        sfp__view_colour(&r, o->view.jitter, f->c->img_size, f->rgb);
    sfp__pixels_normalise(f->rgb, f->c->img_size, f->c->mean, f->c->std, x);
    return SFP_OK;
}

/* Writes m->x from f->plain. */
static void mix(const sfp__view_loader *f, sfp__view_batch *m)
{
    int b = f->o->plan.batch;
    size_t pixels = 3 * (size_t)f->c->img_size * (size_t)f->c->img_size;
    for (int i = 0; i < b; i++) {
        const float *own = f->plain + (size_t)i * pixels, *mate = f->plain + (size_t)(b - 1 - i) * pixels;
        float *out = m->x + (size_t)i * pixels;
        for (size_t k = 0; k < pixels; k++)
            out[k] = m->share * own[k] + (1 - m->share) * mate[k];
    }
}

static void make_batch(void *ctx, int64_t step)
{
    sfp__view_loader *f = ctx;
    sfp__view_batch *m = &f->ring[step % DEPTH];
    size_t pixels = 3 * (size_t)f->c->img_size * (size_t)f->c->img_size;
    m->step = (uint64_t)step;
    m->share = draw_share(f->o, m->step);
    m->status = SFP_OK;
    order_epoch(f, m->step / f->epoch_steps);
    bool mixed = m->share < 1;
    for (int i = 0; i < f->o->plan.batch && !m->status; i++)
        m->status = make_sample(f, m, i, (mixed ? f->plain : m->x) + (size_t)i * pixels);
    if (mixed && !m->status)
        mix(f, m);
    if (f->teacher && !m->status)
        m->status = sfp__teacher_read(f->teacher, f->o->plan.batch, m->view, m->image, m->entries, &m->err);
}

sfp_status sfp__view_loader_create(const sfp__image_set *p, const sfp__pretrain_options *o, const sfp__vit_config *c,
                                   const sfp__teacher *teacher, uint64_t first_step, sfp__view_loader **out, sfp_error *err)
{
    OWNED_PTR(sfp__view_loader_free) sfp__view_loader *f = NULL;
    TRY(sfp__alloc(&f, 1, sizeof *f, err));
    *f = (sfp__view_loader){.images = p, .o = o, .c = c, .teacher = teacher, .next = (int64_t)first_step};
    f->epoch_steps = sfp__view_loader_epoch_steps(p, o->plan.batch);
    size_t pixels = 3 * (size_t)f->c->img_size * (size_t)f->c->img_size, b = (size_t)o->plan.batch;
    size_t entries = teacher ? b * sfp__teacher_entry_floats(teacher) : 0;
    sfp__want list[3 + 5 * DEPTH] = {{&f->order, (size_t)p->count, sizeof *f->order},
                                     {&f->rgb, pixels, 1},
                                     {&f->plain, o->view.mixup > 0 ? b * pixels : 0, sizeof *f->plain}};
    for (int i = 0; i < DEPTH; i++) {
        sfp__view_batch *m = &f->ring[i];
        const sfp__want slot[] = {{&m->x, b * pixels, sizeof *m->x},
                                  {&m->image, b, sizeof *m->image},
                                  {&m->view, b, sizeof *m->view},
                                  {&m->mirrored, b, sizeof *m->mirrored},
                                  {&m->entries, entries, sizeof *m->entries}};
        memcpy(list + 3 + 5 * i, slot, sizeof slot);
    }
    TRY(sfp__block(&f->block, SFP__LIST(list), err));
    const sfp__prefetcher_options prefetcher = {
        .item_name = "batch", .first = f->next, .end = INT64_MAX, .depth = DEPTH, .make = make_batch, .ctx = f};
    TRY(sfp__prefetcher_create(&prefetcher, &f->prefetcher, err));
    *out = TAKE(f);
    return SFP_OK;
}

void sfp__view_loader_free(sfp__view_loader *f)
{
    if (!f)
        return;
    sfp__prefetcher_free(f->prefetcher);
    sfp__free(f->block);
    sfp__free(f);
}

sfp_status sfp__view_loader_take(sfp__view_loader *f, const sfp__view_batch **out, sfp_error *err)
{
    double wait_seconds = 0; /* not used: the wait is part of the time of the step */
    sfp__prefetcher_release(f->prefetcher, f->next);
    TRY(sfp__prefetcher_take(f->prefetcher, f->next, &wait_seconds, err));
    const sfp__view_batch *m = &f->ring[f->next++ % DEPTH];
    if (m->status) {
        if (err)
            *err = m->err;
        return m->status;
    }
    *out = m;
    return SFP_OK;
}
