/* Gradient-based sample selection, the greedy variant (Aljundi, Lin, Goujaud and Bengio, "Gradient based sample selection for
 * online continual learning", NeurIPS 2019, Algorithm 2; docs/method.md, section 12). Samples whose gradients are similar to
 * those of other samples are replaced first.
 *
 * The score of a sample is the largest cosine of its gradient with the gradients of up to 20 random groups of 10 buffer samples.
 * No sample is in two groups. The score is computed when the sample is stored. While there are free slots, samples are stored
 * with their scores (0.1 if the buffer is empty, as in the authors' code); samples of that batch without a free slot are
 * discarded. If the buffer is full, the score of the gradient of the whole batch decides. If it is negative, min(b, m) slots are
 * drawn by normalised score without replacement. Sample i then replaces the i-th of them with probability (s_slot + 1) / ((s_slot
 * + 1) + (s_i + 1)). Gradients are those of the P parameters that are currently trained.
 *
 * Cost: a forward and a backward pass over up to 200 buffer samples and the batch, which makes it the slowest buffer method; 22*P
 * floats of memory. The gradient of the batch is the sum over its samples and needs no additional pass.
 *
 * Difference from the authors: their code fails if a batch has more samples than slots; here the first m samples compete. If all
 * remaining weights are 0, slots are drawn uniformly (theirs fails). Scores that are not finite count as 1. */
#include "buffer/buffer.h"

#include "compute/vec.h"

#include <math.h>
#include <string.h>

#define FIRST_SCORE 0.1f

/* ------------------------------------------------------------------ numbers */

int sfp__gss_group_size(int filled)
{
    return filled < SFP__GSS_GROUP ? filled : SFP__GSS_GROUP;
}

int sfp__gss_groups(int filled)
{
    int groups = filled > 0 ? filled / sfp__gss_group_size(filled) : 0;
    return groups < SFP__GSS_GROUPS ? groups : SFP__GSS_GROUPS;
}

/* n may be larger than INT_MAX. */
static double dot(size_t n, const float *a, const float *b)
{
    enum { PIECE = 1 << 20 };
    double sum = 0;
    for (size_t at = 0; at < n; at += PIECE)
        sum += sfp__dot_f64((int)(n - at < PIECE ? n - at : PIECE), a + at, b + at);
    return sum;
}

void sfp__gss_unit(size_t n, float *g)
{
    double length = sqrt(dot(n, g, g));
    for (size_t i = 0; i < n && length > 0; i++)
        g[i] = (float)((double)g[i] / length);
}

typedef struct products {
    size_t n;
    const float *group, *g;
    double out[SFP__GSS_GROUPS];
} products;

static void product_piece(void *ctx, int i, int worker)
{
    products *p = ctx;
    (void)worker;
    p->out[i] = dot(p->n, p->group + (size_t)i * p->n, p->g);
}

float sfp__gss_score(size_t n, int groups, const float *group, const float *g, sfp__thread_pool *threads)
{
    products p = {.n = n, .group = group, .g = g};
    double length = sqrt(dot(n, g, g)), best = -INFINITY;
    if (threads)
        sfp__thread_pool_run(threads, groups, product_piece, &p);
    for (int i = 0; i < groups; i++) {
        if (!threads)
            product_piece(&p, i, 0);
        double cosine = length == 0 ? 0 : p.out[i] / length;
        best = isfinite(cosine) ? fmax(best, cosine) : best;
    }
    return isfinite(best) ? (float)fmax(fmin(best, 1), -1) : 1.0f;
}

static double finite_score(float score)
{
    return isfinite(score) ? fmax(fmin((double)score, 1), -1) : 1;
}

void sfp__gss_weights(int n, const float *score, double *weight)
{
    double min = INFINITY, max = -INFINITY;
    for (int i = 0; i < n; i++) {
        weight[i] = finite_score(score[i]);
        min = fmin(min, weight[i]);
        max = fmax(max, weight[i]);
    }
    for (int i = 0; i < n; i++)
        weight[i] = (weight[i] - min) / (max - min + 0.01);
}

double sfp__gss_replace(float slot_score, float new_score)
{
    double a = finite_score(slot_score) + 1, b = finite_score(new_score) + 1;
    return a + b > 0 ? a / (a + b) : 0.5;
}

/* -------------------------------------------------------------------- state */

typedef struct gss {
    int slots;
    float *score;     /* (m) scores of the samples in the slots */
    float *new_score; /* (max_batch) scores of the samples of the batch */
    sfp__arena arena; /* gradients of the groups and two more gradients */
} gss;

static void close_state(void *state)
{
    if (state)
        sfp__arena_done(&((gss *)state)->arena);
    sfp__free(state);
}

static sfp_status open_state(const sfp__buffer_options *opt, int max_batch, void **state, sfp_error *err)
{
    gss *s, made = {.slots = opt->slots};
    const sfp__want list[] = {{&s, 1, sizeof *s}, /* must be first: its address is that of the block */
                              {&made.score, (size_t)opt->slots, sizeof *made.score},
                              {&made.new_score, (size_t)max_batch, sizeof *made.new_score}};
    TRY(sfp__block_cleared(state, SFP__LIST(list), err));
    *s = made;
    return SFP_OK;
}

static int state_tensors(void *state, int index, sfp__state_tensor *out)
{
    gss *s = state;
    if (index == 0)
        *out = (sfp__state_tensor){.name = "score", .type = SFP__STATE_F32, .ndim = 1, .shape = {s->slots}, .data = s->score};
    return 1;
}

/* ---------------------------------------------------------------- gradients */

typedef struct gradients {
    int groups;
    size_t n;
    float *group;     /* (groups, n) unit length */
    float *one;       /* (n) scratch for one gradient */
    float *sum;       /* (n) sum of the gradients of the scored samples */
    float *new_score; /* (max_batch) scores of these samples */
    sfp__thread_pool *threads;
} gradients;

static void take_group(void *user, int i, const float *gradient)
{
    const gradients *g = user;
    float *to = g->group + (size_t)i * g->n;
    memcpy(to, gradient, g->n * sizeof *to);
    sfp__gss_unit(g->n, to);
}

/* Computes the gradients of random groups of the buffer and allocates two more gradients. */
static sfp_status compute_group_gradients(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, gradients *g,
                                          sfp_error *err)
{
    gss *s = b->state;
    const sfp__model_ops *model = batch->model;
    int size = sfp__gss_group_size(b->filled), max_groups = sfp__gss_groups(b->opt.slots),
        slots[SFP__GSS_GROUPS * SFP__GSS_GROUP];
    *g = (gradients){
        .groups = sfp__gss_groups(b->filled), .n = model->params, .new_score = s->new_score, .threads = batch->threads};
    const sfp__want list[] = {{&g->one, model->params, sizeof *g->one},
                              {&g->sum, model->params, sizeof *g->sum},
                              /* the maximum, so that the arena never grows */
                              {&g->group, model->params * (size_t)max_groups, sizeof *g->group}};
    sfp__arena_reset(&s->arena);
    TRY(sfp__arena_list(&s->arena, SFP__LIST(list), err));
    int count = sfp__buffer_draw(b, g->groups * size, rng, slots);
    for (int i = 0; i < count; i++)
        slots[i] += batch->b;
    return model->gradient_each(model->ctx, count, slots, size, g->one, take_group, g, err);
}

static void take_sample(void *user, int i, const float *gradient)
{
    const gradients *g = user;
    g->new_score[i] = sfp__gss_score(g->n, g->groups, g->group, gradient, g->threads);
    for (size_t k = 0; k < g->n; k++)
        g->sum[k] += gradient[k];
}

/* Writes the scores of the first n samples of the batch to s->new_score, and sums their gradients. */
static sfp_status score_samples(const sfp__buffer *b, const sfp__buffer_batch *batch, gradients *g, int n, sfp_error *err)
{
    int *samples = b->order; /* (max(max_batch, m)) */
    for (int i = 0; i < n; i++)
        samples[i] = i;
    memset(g->sum, 0, g->n * sizeof *g->sum);
    return batch->model->gradient_each(batch->model->ctx, n, samples, 1, g->one, take_sample, g, err);
}

/* ------------------------------------------------------------------- update */

static sfp_status store(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change, sfp_error *err)
{
    gss *s = b->state;
    int first = b->filled, n = sfp__buffer_fits(b, batch);
    if (first == 0) {
        for (int i = 0; i < n; i++)
            s->new_score[i] = FIRST_SCORE;
    } else {
        gradients g;
        TRY(compute_group_gradients(b, batch, rng, &g, err));
        TRY(score_samples(b, batch, &g, n, err));
    }
    sfp__buffer_commit(b, batch, 0, change);
    memcpy(s->score + first, s->new_score, (size_t)n * sizeof *s->score);
    return SFP_OK;
}

static sfp_status replace(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                          sfp_error *err)
{
    gss *s = b->state;
    gradients g;
    int m = b->opt.slots, n = batch->b < m ? batch->b : m, nu = 0;
    TRY(compute_group_gradients(b, batch, rng, &g, err));
    TRY(score_samples(b, batch, &g, batch->b, err));
    if (sfp__gss_score(g.n, g.groups, g.group, g.sum, batch->threads) < 0) {
        for (int i = 0; i < n; i++)
            b->u_batch[i] = sfp__rng_double(rng);
        sfp__gss_weights(m, s->score, b->weight);
        sfp__weighted_draw(m, b->weight, n, b->u_batch, b->order);
        for (int i = 0; i < n; i++) {
            int slot = b->order[i];
            if (sfp__rng_double(rng) >= sfp__gss_replace(s->score[slot], s->new_score[i]))
                continue;
            s->score[slot] = s->new_score[i];
            b->retained[nu] = i;
            b->replaced[nu++] = slot;
        }
    }
    sfp__buffer_commit(b, batch, nu, change);
    return SFP_OK;
}

static sfp_status update(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                         sfp_error *err)
{
    if (b->opt.slots == 0) {
        sfp__buffer_commit(b, batch, 0, change);
        return SFP_OK;
    }
    return b->filled < b->opt.slots ? store(b, batch, rng, change, err) : replace(b, batch, rng, change, err);
}

const sfp__buffer_method sfp__buffer_gss = {
    .name = "gss",
    .summary = "samples whose gradients differ from those of other samples",
    .needs = SFP__NEED_GRADIENTS,
    .update = update,
    .open = open_state,
    .close = close_state,
    .state_tensors = state_tensors,
};
