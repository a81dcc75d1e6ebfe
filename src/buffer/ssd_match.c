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
#include "buffer/ssd_state.h"
#include "compute/pixels.h"

#include <math.h>
#include <string.h>

/* A class at work. */
typedef struct job {
    sfp_buffer *b;
    sfp__ssd *s;
    const sfp_buffer_batch *batch;
    const sfp_ask *ask;
    int32_t label;
    int deck;               /* pictures of older classes: s->deck */
    int n, older;           /* synthetic pictures of the class: s->mine; the first so many of the deck are looked at */
    float *gs, *gr, *piece; /* (params) */
} job;

static float *row(float *rows, int i, size_t width)
{
    return rows + (size_t)i * width;
}

/* Samples of a class in the window. */
static int count_recent(const sfp__ssd *s, int32_t label)
{
    int n = 0;
    for (int k = 0; k < SFP_SSD_WINDOW * s->max_batch; k++)
        n += s->recent_label[k] == label;
    return n;
}

static void find_older(job *j)
{
    for (int i = 0; i < j->b->filled; i++)
        if (j->s->synthetic[i] && count_recent(j->s, j->b->slot[i].label) == 0)
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

/* The first n pictures that are loaded. */
static sfp_pictures loaded(const sfp__ssd *s, int n)
{
    return (sfp_pictures){.n = n, .x = s->xs, .label = s->label, .query = s->queries, .known = s->known};
}

/* The class's synthetic pictures, with no gradient yet and queries that nobody knows: they have moved. */
static void load_synthetic(const job *j)
{
    sfp__ssd *s = j->s;
    for (int i = 0; i < j->n; i++) {
        s->xs[i] = row(s->x, s->mine[i], s->pixels);
        s->label[i] = j->label;
        s->queries[i] = row(s->query, i, (size_t)s->dim);
        s->known[i] = false;
        s->dx[i] = row(s->grad, s->mine[i], s->pixels);
        memset(s->dx[i], 0, s->pixels * sizeof *s->grad);
    }
}

/* A chunk of its recent samples, from place *at of the window on, which moves behind the last; their places to `from`. */
static int load_real(const job *j, int *at, int from[SFP__SSD_CHUNK])
{
    sfp__ssd *s = j->s;
    int n = 0;
    for (; *at < SFP_SSD_WINDOW * s->max_batch && n < SFP__SSD_CHUNK; ++*at) {
        if (s->recent_label[*at] != j->label)
            continue;
        float *to = row(s->in, n, s->pixels);
        sfp__pixels_normalise(s->recent + (size_t)*at * s->pixels, s->side, s->mean, s->std, to);
        s->xs[n] = to;
        s->label[n] = j->label;
        s->queries[n] = row(s->recent_query, *at, (size_t)s->dim);
        s->known[n] = s->recent_known[*at];
        from[n++] = *at;
    }
    return n;
}

/* g(R_c) and r. */
static sfp_status match_target(const job *j, sfp_error *err)
{
    sfp__ssd *s = j->s;
    int total = count_recent(s, j->label), at = 0, n, from[SFP__SSD_CHUNK];
    memset(j->gr, 0, j->ask->params * sizeof *j->gr);
    memset(s->real, 0, (size_t)s->dim * sizeof *s->real);
    while ((n = load_real(j, &at, from)) > 0) {
        const sfp_pictures pictures = loaded(s, n);
        sfp_status status = j->ask->gradient_at(j->ask->ctx, &pictures, j->piece, s->out, err);
        for (int i = 0; i < n; i++)
            s->recent_known[from[i]] = s->known[i];
        if (status)
            return status;
        float share = (float)n / (float)total;
        for (size_t i = 0; i < j->ask->params; i++)
            j->gr[i] += share * j->piece[i];
        sfp__ssd_add_units(n, s->dim, s->out, 1 / (float)total, s->real);
    }
    return SFP_OK;
}

/* g(X_c), and the features of X_c. They stay loaded, their queries known. */
static sfp_status match_source(const job *j, sfp_error *err)
{
    load_synthetic(j);
    const sfp_pictures pictures = loaded(j->s, j->n);
    return j->ask->gradient_at(j->ask->ctx, &pictures, j->gs, j->s->feature, err);
}

/* The first term: the central difference along v. */
static sfp_status gradient_term(const job *j, sfp_error *err)
{
    sfp__ssd *s = j->s;
    const sfp_pictures pictures = loaded(s, j->n);
    float *v = j->gs;
    double length = 2 * sqrt(sfp__ssd_gap(j->ask->params, j->gs, j->gr, v)), h = SFP_SSD_REACH / length;
    if (!(length > 1e-30) || !isfinite(length)) /* they match to the last bit, or are no numbers */
        return SFP_OK;
    for (int sign = 1; sign >= -1; sign -= 2) {
        sfp_status status = j->ask->pixels(j->ask->ctx, &pictures, v, (float)(sign * h), (float)sign, s->dx, err);
        if (status)
            return status;
    }
    for (int i = 0; i < j->n; i++)
        for (size_t k = 0; k < s->pixels; k++)
            s->dx[i][k] *= (float)(1 / (2 * h));
    return SFP_OK;
}

/* Features of the older classes' pictures that were drawn, to s->memory; those that a class before drew too are there. */
static sfp_status look_at_older(const job *j, sfp_error *err)
{
    sfp__ssd *s = j->s;
    size_t D = (size_t)s->dim;
    int sample[SFP_SSD_MEMORY], n = 0;
    for (int i = 0; i < j->older; i++)
        if (!s->looked[s->deck[i]])
            sample[n++] = j->batch->b + s->deck[i];
    sfp_status status = n > 0 ? j->ask->features(j->ask->ctx, n, sample, s->memory, err) : SFP_OK;
    if (status)
        return status;
    for (int i = 0; i < n; i++) {
        int slot = sample[i] - j->batch->b;
        memcpy(row(s->older, slot, D), row(s->memory, i, D), D * sizeof *s->older);
        s->looked[slot] = 1;
    }
    for (int i = 0; i < j->older; i++)
        memcpy(row(s->memory, i, D), row(s->older, s->deck[i], D), D * sizeof *s->memory);
    return SFP_OK;
}

/* The second term, added. */
static sfp_status relation_term(const job *j, sfp_error *err)
{
    sfp__ssd *s = j->s;
    sfp_status status = j->older > 0 ? look_at_older(j, err) : SFP_OK;
    if (status || j->older == 0)
        return status;
    const sfp_pictures pictures = loaded(s, j->n);
    (void)sfp__ssd_relation(j->n, s->dim, s->feature, s->real, j->older, s->memory, s->work, s->dfeature);
    return j->ask->feature_pixels(j->ask->ctx, &pictures, s->dfeature, s->dx, err);
}

/* The class's slots that have a gradient move. One with a number that is not finite has none: it would stay in the momentum. */
static void mark(const job *j)
{
    for (int i = 0; i < j->n; i++) {
        const float *g = j->s->dx[i];
        float zero = 0;
        for (size_t k = 0; k < j->s->pixels; k++)
            zero += 0.0f * g[k];
        j->s->step[j->s->mine[i]] = zero == 0.0f ? SFP__SSD_MOVES : SFP__SSD_STAYS;
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

/* Does the step of slot i change the bytes that are replayed? Then x is the picture as the slot will have it. */
static bool bytes_change(const job *j, int i, float *x)
{
    const sfp__ssd *s = j->s;
    const sfp_slot *slot = &j->b->slot[i];
    step_picture(s, i, NULL, x);
    sfp__pixels_to_bytes(x, s->side, s->mean, s->std, s->rgb);
    if (slot->image_size == s->pixels && memcmp(s->rgb, slot->image, s->pixels) == 0)
        return false;
    sfp__pixels_normalise(s->rgb, s->side, s->mean, s->std, x);
    return true;
}

/* Finds the slots whose bytes change, and their mean embeddings, into s->feature by slot. */
static sfp_status embed_changes(const job *j, sfp_error *err)
{
    sfp__ssd *s = j->s;
    size_t D = (size_t)s->dim;
    int slot[SFP__SSD_CHUNK], n = 0;
    for (int i = 0; i < j->b->filled; i++) {
        float *x = row(s->in, n, s->pixels);
        if (s->step[i] == SFP__SSD_MOVES && bytes_change(j, i, x)) {
            s->step[i] = SFP__SSD_CHANGES;
            s->xs[n] = x;
            slot[n++] = i;
        }
        if (n == 0 || (n < SFP__SSD_CHUNK && i + 1 < j->b->filled))
            continue;
        sfp_status status = j->ask->embed_at(j->ask->ctx, n, s->xs, s->out, err);
        if (status)
            return status;
        for (int k = 0; k < n; k++)
            memcpy(row(s->feature, slot[k], D), row(s->out, k, D), D * sizeof *s->out);
        n = 0;
    }
    return SFP_OK;
}

static void commit_steps(const job *j)
{
    sfp__ssd *s = j->s;
    size_t bytes = (size_t)s->dim * sizeof(float);
    for (int i = 0; i < j->b->filled; i++) {
        sfp_slot *slot = &j->b->slot[i];
        if (s->step[i] == SFP__SSD_STAYS)
            continue;
        step_picture(s, i, row(s->u, i, s->pixels), row(s->x, i, s->pixels));
        if (s->step[i] == SFP__SSD_MOVES)
            continue;
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
    job j = {.b = b, .s = s, .batch = batch, .ask = ask};
    float **vector[] = {&j.gs, &j.gr, &j.piece};
    sfp__arena_reset(&s->arena);
    for (int i = 0; i < 3; i++)
        if (!(*vector[i] = sfp__arena_take(&s->arena, ask->params, sizeof(float))))
            return sfp__fail_nomem(err);
    memset(s->step, SFP__SSD_STAYS, (size_t)s->slots);
    memset(s->looked, 0, (size_t)s->slots);
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
    if (!status && !(status = embed_changes(&j, err)))
        commit_steps(&j);
    return status;
}
