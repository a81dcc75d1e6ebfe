/* One optimisation step of ssd's synthetic pictures. The loss of a class c, as the authors' (their options' defaults):
 *
 *     |g(X_c) - g(R_c)|^2 + sum over j of | |s - m_j| - |r - m_j| |
 *
 * g: gradient of the mean cross-entropy to what learns, of the synthetic pictures X_c and of the recent samples R_c; s and r:
 * mean unit features of the same two; m_j: unit features of up to 10 random synthetic pictures of older classes. Older are the
 * classes of which the recent batches have no sample: the authors take those of earlier tasks, of which a stream without tasks
 * knows nothing. (Their distance leaves out the parameters that are vectors and the classifier; all that learns counts here.)
 *
 * With v = 2 (g(X_c) - g(R_c)) held, the first term's gradient to the pixels is d/dx <v, grad_theta L(x)>, taken as
 * (grad_x L(theta + hv) - grad_x L(theta - hv)) / 2h: three passes and no graph (h: ssd.h).
 *
 * Everything that can fail comes first and writes to scratch only; then all steps are done. */
#include "base/pixels.h"
#include "buffer/ssd_state.h"
#include "compute/vec.h"

#include <math.h>
#include <string.h>

/* A class at work. */
typedef struct job {
    sfp_buffer *b;
    sfp__ssd *s;
    const sfp_buffer_batch *batch;
    const sfp_ask *ask;
    int32_t label;
    int chunk;              /* pictures a call */
    int deck;               /* pictures of older classes: s->deck */
    int n, older;           /* synthetic pictures of the class: s->mine; the first so many of the deck are looked at */
    float *gs, *gr, *piece; /* (params) */
} job;

static float *row(float *rows, int i, size_t width)
{
    return rows + (size_t)i * width;
}

static bool is_recent(const job *j, int32_t label)
{
    for (int k = 0; k < SFP_SSD_WINDOW * j->s->max_batch; k++)
        if (sfp__ssd_recent_label(j->s, j->batch, k) == label)
            return true;
    return false;
}

static void find_older(job *j)
{
    for (int i = 0; i < j->b->filled; i++)
        if (j->s->synthetic[i] && !is_recent(j, j->b->slot[i].label))
            j->s->deck[j->deck++] = i;
}

static void find_mine(job *j)
{
    j->n = 0;
    for (int i = 0; i < j->b->filled; i++)
        if (j->s->synthetic[i] && j->b->slot[i].label == j->label)
            j->s->mine[j->n++] = i;
}

/* Those that distances are taken to, to the top of the deck. */
static void draw_older(job *j, sfp_rng *rng)
{
    int *deck = j->s->deck;
    j->older = j->deck < SFP_SSD_MEMORY ? j->deck : SFP_SSD_MEMORY;
    for (int i = 0; i < j->older; i++) {
        int k = i + (int)sfp__rng_below(rng, (uint32_t)(j->deck - i)), kept = deck[i];
        deck[i] = deck[k];
        deck[k] = kept;
    }
}

/* The next `chunk` synthetic pictures of the class from `first` on as arguments of a call; returns how many. */
static int load_synthetic(job *j, int first)
{
    sfp__ssd *s = j->s;
    int n = j->n - first < j->chunk ? j->n - first : j->chunk;
    for (int i = 0; i < n; i++) {
        s->xs[i] = row(s->x, s->mine[first + i], s->pixels);
        s->label[i] = j->label;
    }
    return n;
}

/* The same of recent samples, from *at on, which moves behind the last. */
static int load_real(job *j, int *at)
{
    sfp__ssd *s = j->s;
    int n = 0;
    for (; *at < SFP_SSD_WINDOW * s->max_batch && n < j->chunk; ++*at) {
        if (sfp__ssd_recent_label(s, j->batch, *at) != j->label)
            continue;
        float *to = row(s->in, n, s->pixels);
        sfp__pixels_normalise(sfp__ssd_recent_picture(s, j->batch, *at), s->side, s->mean, s->std, to);
        s->label[n] = j->label;
        s->xs[n++] = to;
    }
    return n;
}

/* total += share * the mean gradient of the n pictures that are loaded; their features to `feature`. */
static sfp_status add_gradient(const job *j, int n, float share, float *total, float *feature, sfp_error *err)
{
    sfp_status status = j->ask->gradient_at(j->ask->ctx, n, j->s->xs, j->s->label, j->piece, feature, err);
    for (size_t i = 0; !status && i < j->ask->params; i++)
        total[i] += share * j->piece[i];
    return status;
}

/* g(R_c) and r. */
static sfp_status match_target(job *j, sfp_error *err)
{
    sfp__ssd *s = j->s;
    sfp_status status = SFP_OK;
    int total = 0, at = 0, n;
    for (int k = 0; k < SFP_SSD_WINDOW * s->max_batch; k++)
        total += sfp__ssd_recent_label(s, j->batch, k) == j->label;
    memset(j->gr, 0, j->ask->params * sizeof *j->gr);
    memset(s->real, 0, (size_t)s->dim * sizeof *s->real);
    while (!status && (n = load_real(j, &at)) > 0) {
        if (!(status = add_gradient(j, n, (float)n / (float)total, j->gr, s->out, err)))
            sfp__ssd_add_units(n, s->dim, s->out, 1 / (float)total, s->real);
    }
    return status;
}

/* g(X_c), and the features of X_c. */
static sfp_status match_source(job *j, sfp_error *err)
{
    sfp__ssd *s = j->s;
    sfp_status status = SFP_OK;
    memset(j->gs, 0, j->ask->params * sizeof *j->gs);
    for (int first = 0, n; !status && first < j->n; first += n) {
        n = load_synthetic(j, first);
        status = add_gradient(j, n, (float)n / (float)j->n, j->gs, row(s->feature, first, (size_t)s->dim), err);
    }
    return status;
}

/* The first term: grad of each picture's slot = its central difference along v. */
static sfp_status gradient_term(job *j, sfp_error *err)
{
    sfp__ssd *s = j->s;
    sfp_status status = SFP_OK;
    float *v = j->gs;
    double length = 2 * sqrt(sfp__ssd_gap(j->ask->params, j->gs, j->gr, v)), h = SFP_SSD_REACH / length;
    bool moves = length > 1e-30 && isfinite(length); /* else they match to the last bit, or are no numbers */
    for (int i = 0; i < j->n; i++)
        memset(row(s->grad, s->mine[i], s->pixels), 0, s->pixels * sizeof *s->grad);
    for (int first = 0, n; !status && moves && first < j->n; first += n) {
        n = load_synthetic(j, first);
        float scale = (float)((double)n / (double)j->n / (2 * h));
        for (int side = 0; !status && side < 2; side++) {
            status = j->ask->pixels(j->ask->ctx, n, s->xs, s->label, v, (float)(side ? -h : h), s->out, err);
            for (int i = 0; !status && i < n; i++) {
                const float *from = row(s->out, i, s->pixels);
                float *to = row(s->grad, s->mine[first + i], s->pixels);
                for (size_t k = 0; k < s->pixels; k++)
                    to[k] = side ? scale * (to[k] - from[k]) : from[k];
            }
        }
    }
    return status;
}

/* The second term, added. */
static sfp_status relation_term(job *j, sfp_error *err)
{
    sfp__ssd *s = j->s;
    sfp_status status = SFP_OK;
    int sample[SFP_SSD_MEMORY];
    if (!j->older)
        return SFP_OK;
    for (int i = 0; i < j->older; i++)
        sample[i] = j->batch->b + s->deck[i];
    for (int first = 0; !status && first < j->older; first += j->chunk) {
        int n = j->older - first < j->chunk ? j->older - first : j->chunk;
        status = j->ask->features(j->ask->ctx, n, sample + first, row(s->memory, first, (size_t)s->dim), err);
    }
    if (status)
        return status;
    (void)sfp__ssd_relation(j->n, s->dim, s->feature, s->real, j->older, s->memory, s->work, s->dfeature);
    for (int first = 0, n; !status && first < j->n; first += n) {
        n = load_synthetic(j, first);
        status = j->ask->feature_pixels(j->ask->ctx, n, s->xs, row(s->dfeature, first, (size_t)s->dim), s->out, err);
        for (int i = 0; !status && i < n; i++)
            sfp__axpy((int)s->pixels, 1, row(s->out, i, s->pixels), row(s->grad, s->mine[first + i], s->pixels));
    }
    return status;
}

/* Marks the class's slots that have a gradient. One with a number that is not finite has none: it would stay in the momentum. */
static void mark(const job *j)
{
    for (int i = 0; i < j->n; i++) {
        const float *g = row(j->s->grad, j->s->mine[i], j->s->pixels);
        float zero = 0;
        for (size_t k = 0; k < j->s->pixels; k++)
            zero += 0.0f * g[k];
        j->s->touched[j->s->mine[i]] = zero == 0.0f;
    }
}

/* ------------------------------------------------------------------- the steps */

/* Pixels of slot i after its step into x, momentum into u (NULL: not wanted). */
static void step_picture(const sfp__ssd *s, int i, float *u, float *x)
{
    size_t plane = s->pixels / 3, at = (size_t)i * s->pixels;
    for (int c = 0; c < 3; c++, at += plane, x += plane, u = u ? u + plane : NULL)
        sfp__ssd_step(plane, s->low[c], s->high[c], s->grad + at, s->u + at, s->x + at, u, x);
}

/* Mean embeddings, into s->feature by slot, of the pictures as their slots will have them. */
static sfp_status embed_steps(const job *j, sfp_error *err)
{
    sfp__ssd *s = j->s;
    sfp_status status = SFP_OK;
    int slot[SFP__SSD_CHUNK], n = 0;
    for (int i = 0; !status && i < j->b->filled; i++) {
        if (s->touched[i]) {
            float *x = row(s->in, n, s->pixels);
            step_picture(s, i, NULL, x);
            sfp__pixels_to_bytes(x, s->side, s->mean, s->std, s->rgb);
            sfp__pixels_normalise(s->rgb, s->side, s->mean, s->std, x);
            s->xs[n] = x;
            slot[n++] = i;
        }
        if (n == 0 || (n < j->chunk && i + 1 < j->b->filled))
            continue;
        status = j->ask->embed_at(j->ask->ctx, n, s->xs, s->out, err);
        for (int k = 0; !status && k < n; k++)
            memcpy(row(s->feature, slot[k], (size_t)s->dim), row(s->out, k, (size_t)s->dim), (size_t)s->dim * sizeof *s->out);
        n = 0;
    }
    return status;
}

static void commit_steps(const job *j)
{
    sfp__ssd *s = j->s;
    size_t bytes = (size_t)s->dim * sizeof(float);
    for (int i = 0; i < j->b->filled; i++) {
        if (!s->touched[i])
            continue;
        sfp_slot *slot = &j->b->slot[i];
        step_picture(s, i, row(s->u, i, s->pixels), row(s->x, i, s->pixels));
        sfp__pixels_to_bytes(row(s->x, i, s->pixels), s->side, s->mean, s->std, slot->image);
        slot->image_size = s->pixels;
        slot->has_query = false;
        memset(slot->query, 0, bytes);
        memcpy(slot->mean_embed, row(s->feature, i, (size_t)s->dim), bytes);
    }
}

/* Is sample i the first of its class in the batch? */
static bool is_first(const sfp_buffer_batch *batch, int i)
{
    for (int k = 0; k < i; k++)
        if (batch->label[k] == batch->label[i])
            return false;
    return true;
}

sfp_status sfp__ssd_optimise(sfp_buffer *b, const sfp_buffer_batch *batch, sfp_rng *rng, sfp_error *err)
{
    sfp__ssd *s = b->state;
    const sfp_ask *ask = batch->ask;
    job j = {.b = b, .s = s, .batch = batch, .ask = ask, .chunk = SFP__SSD_CHUNK};
    if (j.chunk > ask->most)
        j.chunk = ask->most > 1 ? ask->most : 1;
    float **vector[] = {&j.gs, &j.gr, &j.piece};
    sfp__arena_reset(&s->arena);
    for (int i = 0; i < 3; i++)
        if (!(*vector[i] = sfp__arena_take(&s->arena, ask->params, sizeof(float))))
            return sfp__fail_nomem(err, ask->params * sizeof(float));
    memset(s->touched, 0, (size_t)s->slots);
    find_older(&j);
    sfp_status status = SFP_OK;
    for (int i = 0; !status && i < batch->b; i++) {
        if (!is_first(batch, i))
            continue;
        j.label = batch->label[i];
        find_mine(&j);
        if (j.n == 0)
            continue;
        draw_older(&j, rng);
        if (!(status = match_target(&j, err)) && !(status = match_source(&j, err)) && !(status = gradient_term(&j, err)) &&
            !(status = relation_term(&j, err)))
            mark(&j);
    }
    if (!status && !(status = embed_steps(&j, err)))
        commit_steps(&j);
    return status;
}
