/* One optimisation step of ssd's synthetic images. The loss of a class c is that of the authors (with the default values of their
 * options):
 *
 *     |g(X_c) - g(R_c)|^2 + sum over j of | |s - m_j| - |r - m_j| |
 *
 * g is the gradient of the mean cross-entropy with respect to the trained parameters, X_c are the synthetic images and R_c the
 * recent samples of the class. s and r are the mean unit features of X_c and R_c. m_j are unit features of up to 10 random
 * synthetic images of older classes, which are the classes without a sample in the recent batches. The authors use the classes of
 * earlier tasks, which a task-free stream does not have. (Their distance excludes parameters that are vectors and the classifier;
 * here all trained parameters count.)
 *
 * With v = 2 (g(X_c) - g(R_c)) constant, the gradient of the first term with respect to the pixels is d/dx <v, grad_theta L(x)>.
 * It is computed as (grad_x L(theta + hv) - grad_x L(theta - hv)) / 2h: three passes and no graph (h: ssd.h).
 *
 * All operations that can fail are first and write only to scratch memory; then all steps are performed. */
#include "buffer/ssd.h"

#include "compute/pixels.h"
#include "compute/vec.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- arithmetic */

#define TINY 1e-12f    /* minimum length that a vector is divided by, as in PyTorch's normalize */
#define TINY_GAP 1e-6f /* minimum distance, as in the authors' code */

double sfp__ssd_gap(size_t n, const float *gs, const float *gr, float *v)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        float gap = gs[i] - gr[i];
        sum += (double)gap * (double)gap;
        v[i] = 2 * gap;
    }
    return sum;
}

static float inverse_length(int D, const float *x)
{
    return 1 / fmaxf(sqrtf(sfp__dot(D, x, x)), TINY);
}

/* Adds to `to` (D) scale * the sum of the rows (n, D), each scaled to unit length. */
static void add_units(int n, int D, const float *rows, float scale, float *to)
{
    for (int i = 0; i < n; i++) {
        const float *row = rows + (size_t)i * (size_t)D;
        sfp__axpy(D, scale * inverse_length(D, row), row, to);
    }
}

static float distance(int D, const float *a, const float *b)
{
    float sum = 0;
    for (int i = 0; i < D; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return fmaxf(sqrtf(sum), TINY_GAP);
}

double sfp__ssd_relation(int n, int D, const float *feature, const float *real, int count, const float *memory, float *work,
                         float *dfeature)
{
    float *mean = work, *unit = work + D, *dmean = work + 2 * D;
    double loss = 0;
    memset(work, 0, 3 * (size_t)D * sizeof *work);
    add_units(n, D, feature, 1 / (float)n, mean);
    for (int j = 0; j < count; j++) {
        memset(unit, 0, (size_t)D * sizeof *unit);
        add_units(1, D, memory + (size_t)j * (size_t)D, 1, unit);
        float to = distance(D, mean, unit), gap = to - distance(D, real, unit);
        loss += (double)fabsf(gap);
        float slope = gap > 0 ? 1 / to : gap < 0 ? -1 / to : 0;
        for (int k = 0; k < D; k++)
            dmean[k] += slope * (mean[k] - unit[k]);
    }
    for (int i = 0; i < n; i++) { /* backpropagates through the unit vector e = f / |f|: (d - <d, e> e) / |f| */
        const float *f = feature + (size_t)i * (size_t)D;
        float *to = dfeature + (size_t)i * (size_t)D;
        float inverse = inverse_length(D, f), along = sfp__dot(D, dmean, f) * inverse * inverse, scale = inverse / (float)n;
        for (int k = 0; k < D; k++)
            to[k] = scale * (dmean[k] - along * f[k]);
    }
    return loss;
}

float sfp__ssd_rate(float std)
{
    return SFP__SSD_RATE / (std * std);
}

void sfp__ssd_step(size_t n, const sfp__ssd_channel *c, const float *g, const float *u, const float *x, float *u_next,
                   float *x_next)
{
    for (size_t i = 0; i < n; i++) {
        float u_new = SFP__SSD_MOMENTUM * u[i] + g[i];
        x_next[i] = fminf(fmaxf(x[i] - c->rate * u_new, c->low), c->high);
        if (u_next)
            u_next[i] = u_new;
    }
}

/* ------------------------------------------------------------------ matching */

/* The optimisation of one class. */
typedef struct job {
    sfp__buffer *b;
    sfp__ssd *s;
    const sfp__buffer_batch *batch;
    const sfp__model_ops *model;
    int32_t label;
    int older_total; /* number of slots in s->scratch.older_slots */
    /* number of slots in s->scratch.class_slots; number of images of older classes, the first of older_slots, that are
     * compared */
    int n, older;
    float *gs, *gr, *piece; /* (params) */
} job;

static float *row(float *rows, int i, size_t width)
{
    return rows + (size_t)i * width;
}

/* Returns the number of samples of a class in the window. */
static int count_recent(const sfp__ssd *s, int32_t label)
{
    int n = 0;
    for (int k = 0; k < s->timing.window * s->max_batch; k++)
        n += s->kept.recent_label[k] == label;
    return n;
}

static void find_older_slots(job *j)
{
    for (int i = 0; i < j->b->filled; i++)
        if (j->s->kept.synthetic[i] && count_recent(j->s, j->b->slot[i].label) == 0)
            j->s->scratch.older_slots[j->older_total++] = i;
}

static void find_class_slots(job *j)
{
    j->n = 0;
    for (int i = 0; i < j->b->filled; i++)
        if (j->s->kept.synthetic[i] && j->b->slot[i].label == j->label)
            j->s->scratch.class_slots[j->n++] = i;
}

/* Moves the images of older classes that are compared, drawn uniformly, to the front of older_slots. */
static void draw_older(job *j, sfp__rng *rng)
{
    int *deck = j->s->scratch.older_slots;
    j->older = j->older_total < SFP__SSD_MEMORY ? j->older_total : SFP__SSD_MEMORY;
    for (int i = 0; i < j->older; i++) {
        int k = i + (int)sfp__rng_below(rng, (uint32_t)(j->older_total - i)), swap = deck[i];
        deck[i] = deck[k];
        deck[k] = swap;
    }
}

/* Returns the first n loaded images as arguments of a model callback. */
static sfp__image_list loaded_images(const sfp__ssd *s, int n)
{
    return (sfp__image_list){
        .n = n, .x = s->request.xs, .label = s->request.label, .query = s->request.queries, .known = s->request.known};
}

/* Loads the synthetic images of the class, with gradients of zero and unknown queries, because the images have moved. */
static void load_synthetic(const job *j)
{
    sfp__ssd *s = j->s;
    for (int i = 0; i < j->n; i++) {
        s->request.xs[i] = row(s->kept.x, s->scratch.class_slots[i], s->pixels);
        s->request.label[i] = j->label;
        s->request.queries[i] = row(s->scratch.query, i, (size_t)s->dim);
        s->request.known[i] = false;
        s->request.dx[i] = row(s->scratch.grad, s->scratch.class_slots[i], s->pixels);
        memset(s->request.dx[i], 0, s->pixels * sizeof *s->scratch.grad);
    }
}

/* Loads the next chunk of recent samples of the class, from position *at of the window on. Advances *at and writes the positions
 * to `from`. Returns their number. */
static int load_real(const job *j, int *at, int from[SFP__SSD_CHUNK])
{
    sfp__ssd *s = j->s;
    int n = 0;
    for (; *at < s->timing.window * s->max_batch && n < SFP__SSD_CHUNK; ++*at) {
        if (s->kept.recent_label[*at] != j->label)
            continue;
        float *to = row(s->scratch.in, n, s->pixels);
        sfp__pixels_normalise(s->kept.recent + (size_t)*at * s->pixels, s->side, s->mean, s->std, to);
        s->request.xs[n] = to;
        s->request.label[n] = j->label;
        s->request.queries[n] = row(s->kept.recent_query, *at, (size_t)s->dim);
        s->request.known[n] = s->kept.recent_known[*at];
        from[n++] = *at;
    }
    return n;
}

/* Computes g(R_c) and r. */
static sfp_status compute_real_gradient(const job *j, sfp_error *err)
{
    sfp__ssd *s = j->s;
    int total = count_recent(s, j->label), at = 0, n, from[SFP__SSD_CHUNK];
    memset(j->gr, 0, j->model->params * sizeof *j->gr);
    memset(s->scratch.real, 0, (size_t)s->dim * sizeof *s->scratch.real);
    while ((n = load_real(j, &at, from)) > 0) {
        const sfp__image_list images = loaded_images(s, n);
        sfp_status status = j->model->gradient_at(j->model->ctx, &images, j->piece, s->scratch.out, err);
        for (int i = 0; i < n; i++)
            s->kept.recent_known[from[i]] = s->request.known[i];
        if (status)
            return status;
        float share = (float)n / (float)total;
        for (size_t i = 0; i < j->model->params; i++)
            j->gr[i] += share * j->piece[i];
        add_units(n, s->dim, s->scratch.out, 1 / (float)total, s->scratch.real);
    }
    return SFP_OK;
}

/* Computes g(X_c) and the features of X_c. The images stay loaded, with known queries. */
static sfp_status compute_synthetic_gradient(const job *j, sfp_error *err)
{
    load_synthetic(j);
    const sfp__image_list images = loaded_images(j->s, j->n);
    return j->model->gradient_at(j->model->ctx, &images, j->gs, j->s->scratch.feature, err);
}

/* Computes the pixel gradient of the first term: the central difference along v. */
static sfp_status add_gradient_term(const job *j, sfp_error *err)
{
    sfp__ssd *s = j->s;
    const sfp__image_list images = loaded_images(s, j->n);
    float *v = j->gs;
    double length = 2 * sqrt(sfp__ssd_gap(j->model->params, j->gs, j->gr, v)), h = SFP__SSD_REACH / length;
    if (!(length > 1e-30) || !isfinite(length)) /* the gradients are equal or not finite */
        return SFP_OK;
    for (int sign = 1; sign >= -1; sign -= 2)
        TRY(j->model->pixels(j->model->ctx, &images, v, (float)(sign * h), (float)sign, s->request.dx, err));
    for (int i = 0; i < j->n; i++)
        for (size_t k = 0; k < s->pixels; k++)
            s->request.dx[i][k] *= (float)(1 / (2 * h));
    return SFP_OK;
}

/* Writes the features of the drawn images of older classes to s->scratch.memory. Features that an earlier class needed are
 * reused. */
static sfp_status compute_older_features(const job *j, sfp_error *err)
{
    sfp__ssd *s = j->s;
    size_t D = (size_t)s->dim;
    int sample[SFP__SSD_MEMORY], n = 0;
    for (int i = 0; i < j->older; i++)
        if (!s->scratch.has_features[s->scratch.older_slots[i]])
            sample[n++] = j->batch->b + s->scratch.older_slots[i];
    if (n > 0)
        TRY(j->model->features(j->model->ctx, n, sample, s->scratch.memory, err));
    for (int i = 0; i < n; i++) {
        int slot = sample[i] - j->batch->b;
        memcpy(row(s->scratch.older, slot, D), row(s->scratch.memory, i, D), D * sizeof *s->scratch.older);
        s->scratch.has_features[slot] = 1;
    }
    for (int i = 0; i < j->older; i++)
        memcpy(row(s->scratch.memory, i, D), row(s->scratch.older, s->scratch.older_slots[i], D), D * sizeof *s->scratch.memory);
    return SFP_OK;
}

/* Adds the pixel gradient of the second term. */
static sfp_status add_relation_term(const job *j, sfp_error *err)
{
    sfp__ssd *s = j->s;
    if (j->older == 0)
        return SFP_OK;
    TRY(compute_older_features(j, err));
    const sfp__image_list images = loaded_images(s, j->n);
    (void)sfp__ssd_relation(j->n, s->dim, s->scratch.feature, s->scratch.real, j->older, s->scratch.memory, s->scratch.work,
                            s->scratch.dfeature);
    return j->model->feature_pixels(j->model->ctx, &images, s->scratch.dfeature, s->request.dx, err);
}

/* Schedules a step for the slots of the class whose gradient is finite. Other values would stay in the momentum. */
static void schedule_steps(const job *j)
{
    for (int i = 0; i < j->n; i++) {
        const float *g = j->s->request.dx[i];
        float zero = 0;
        for (size_t k = 0; k < j->s->pixels; k++)
            zero += 0.0f * g[k];
        j->s->scratch.step[j->s->scratch.class_slots[i]] = zero == 0.0f ? SFP__SSD_STEP_PIXELS : SFP__SSD_KEEP;
    }
}

/* ------------------------------------------------------------------- the steps */

/* Computes the pixels x and the momentum u (NULL: not wanted) of slot i after its step. */
static void step_image(const sfp__ssd *s, int i, float *u, float *x)
{
    size_t plane = s->pixels / 3, at = (size_t)i * s->pixels;
    for (int c = 0; c < 3; c++, at += plane, x += plane, u = u ? u + plane : NULL)
        sfp__ssd_step(plane, &s->channel[c], s->scratch.grad + at, s->kept.u + at, s->kept.x + at, u, x);
}

/* Returns whether the step of slot i changes the bytes that are replayed. If so, x is the image that the slot will have. */
static bool bytes_change(const job *j, int i, float *x)
{
    const sfp__ssd *s = j->s;
    const sfp__slot *slot = &j->b->slot[i];
    step_image(s, i, NULL, x);
    sfp__pixels_to_bytes(x, s->side, s->mean, s->std, s->scratch.rgb);
    if (memcmp(s->scratch.rgb, slot->image, s->pixels) == 0)
        return false;
    sfp__pixels_normalise(s->scratch.rgb, s->side, s->mean, s->std, x);
    return true;
}

/* Finds the slots whose bytes change and writes their mean embeddings to s->scratch.feature by slot. */
static sfp_status embed_changes(const job *j, sfp_error *err)
{
    sfp__ssd *s = j->s;
    size_t D = (size_t)s->dim;
    int slot[SFP__SSD_CHUNK], n = 0;
    for (int i = 0; i < j->b->filled; i++) {
        float *x = row(s->scratch.in, n, s->pixels);
        if (s->scratch.step[i] == SFP__SSD_STEP_PIXELS && bytes_change(j, i, x)) {
            s->scratch.step[i] = SFP__SSD_STEP_BYTES;
            s->request.xs[n] = x;
            slot[n++] = i;
        }
        if (n == 0 || (n < SFP__SSD_CHUNK && i + 1 < j->b->filled))
            continue;
        TRY(j->model->embed_at(j->model->ctx, n, s->request.xs, s->scratch.out, err));
        for (int k = 0; k < n; k++)
            memcpy(row(s->scratch.feature, slot[k], D), row(s->scratch.out, k, D), D * sizeof *s->scratch.out);
        n = 0;
    }
    return SFP_OK;
}

/* Performs the step of slot i. Returns the mean absolute change of its pixels in byte levels. `in` is scratch memory. */
static double move_image(sfp__ssd *s, int i, float *in)
{
    float *x = row(s->kept.x, i, s->pixels);
    double sum = 0;
    step_image(s, i, row(s->kept.u, i, s->pixels), in);
    for (size_t k = 0; k < s->pixels; k++)
        sum += fabs((double)in[k] - (double)x[k]) * (double)s->std[k / (s->pixels / 3)] * 255;
    memcpy(x, in, s->pixels * sizeof *x);
    return sum / (double)s->pixels;
}

/* Returns the mean of move_image over all images that make a step. */
static double commit_steps(const job *j)
{
    sfp__ssd *s = j->s;
    size_t bytes = (size_t)s->dim * sizeof(float);
    double moved = 0;
    int images = 0;
    for (int i = 0; i < j->b->filled; i++) {
        sfp__slot *slot = &j->b->slot[i];
        if (s->scratch.step[i] == SFP__SSD_KEEP)
            continue;
        moved += move_image(s, i, s->scratch.in);
        images++;
        if (s->scratch.step[i] == SFP__SSD_STEP_PIXELS)
            continue;
        sfp__pixels_to_bytes(row(s->kept.x, i, s->pixels), s->side, s->mean, s->std, slot->image);
        slot->has_query = false;
        memset(slot->query, 0, bytes);
        memcpy(slot->mean_embed, row(s->scratch.feature, i, (size_t)s->dim), bytes);
    }
    return images ? moved / images : 0;
}

/* Returns whether sample i is the first of its class in the batch. */
static bool is_first(const sfp__buffer_batch *batch, int i)
{
    for (int k = 0; k < i; k++)
        if (batch->label[k] == batch->label[i])
            return false;
    return true;
}

sfp_status sfp__ssd_optimise(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, double *moved, sfp_error *err)
{
    sfp__ssd *s = b->state;
    const sfp__model_ops *model = batch->model;
    job j = {.b = b, .s = s, .batch = batch, .model = model};
    const sfp__want list[] = {
        {&j.gs, model->params, sizeof *j.gs}, {&j.gr, model->params, sizeof *j.gr}, {&j.piece, model->params, sizeof *j.piece}};
    sfp__arena_reset(&s->arena);
    TRY(sfp__arena_list(&s->arena, SFP__LIST(list), err));
    memset(s->scratch.step, SFP__SSD_KEEP, (size_t)s->slots);
    memset(s->scratch.has_features, 0, (size_t)s->slots);
    find_older_slots(&j);
    for (int i = 0; i < batch->b; i++) {
        if (!is_first(batch, i))
            continue;
        j.label = batch->label[i];
        find_class_slots(&j);
        if (j.n == 0)
            continue;
        draw_older(&j, rng);
        TRY(compute_real_gradient(&j, err));
        TRY(compute_synthetic_gradient(&j, err));
        TRY(add_gradient_term(&j, err));
        TRY(add_relation_term(&j, err));
        schedule_steps(&j);
    }
    TRY(embed_changes(&j, err));
    *moved = commit_steps(&j);
    return SFP_OK;
}
