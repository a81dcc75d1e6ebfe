/* ASER's memory update (Shim et al., "Online class-incremental continual learning with adversarial Shapley value", AAAI 2021;
 * docs/method.md, section 12): the samples that help a 3-nearest-neighbour classifier most stay.
 *
 * Once the buffer is full. Evaluation: one random buffer sample of each class that is in the buffer, and those samples of the
 * batch whose class has a share of the buffer below a threshold drawn from U(0, 1/C). Candidates: floor(1.5*C) random buffer
 * samples outside the evaluation set (all there are, when fewer), and the batch. A candidate is worth the sum of its Shapley
 * values over the evaluation points (knn_shapley.h) on features of the prompted pass; the slots that candidates hold go to the
 * candidates that are worth most, ties to those who are there. When every slot is the only one of its class nobody competes and
 * nothing changes.
 *
 * Cost: a forward pass over at most min(2.5*C, m) + b samples, most of which know their query already; then
 * (C + b) * (1.5*C + b) * D multiplications.
 *
 * From the authors: their code also draws what is rehearsed by Shapley values; the comparison is of buffers, so rehearsal stays
 * uniform. C is the number of classes the classifier has, theirs that of the data set, which a free stream does not know.
 * Features that are not finite are worth nothing and go first. */
#include "base/rank.h"
#include "buffer/buffer.h"
#include "compute/vec.h"

#include <math.h>

enum { NEIGHBOURS = 3 };

typedef struct aser {
    sfp__arena arena;
} aser;

/* The sets of one update, samples numbered as in buffer/model_ops.h. */
typedef struct sets {
    int left;      /* samples of the batch that did not fit: stored..b-1 */
    int competing; /* buffer samples among the candidates */
    int rows;      /* competing, then left, then evaluation samples of the buffer */
    int *slot;     /* (competing) where they are */
    int *sample;   /* (rows) */
    int32_t *label;
    int tests;
    int *test; /* (tests) rows */
} sets;

static sfp_status open_state(const sfp__buffer_options *opt, int max_batch, void **state, sfp_error *err)
{
    (void)opt;
    (void)max_batch;
    return sfp__alloc(state, 1, sizeof(aser), err);
}

static void close_state(void *state)
{
    if (state)
        sfp__arena_done(&((aser *)state)->arena);
    sfp__free(state);
}

/* ----------------------------------------------------------- Shapley values */

/* From the farthest to the nearest: s_n = [same_n] min(k,n) / (n k), s_i = s_(i+1) + ([same_i] - [same_(i+1)]) min(k,i) / (i k),
 * i counted from 1. With fewer than k points every one is worth [same] / k. */
void sfp__knn_shapley(int n, int k, const bool *same, double *value)
{
    double next = 0;
    for (int i = n; i > 0; i--) {
        int gain = (int)same[i - 1] - (i < n ? (int)same[i] : 0);
        next += gain * (double)(k < i ? k : i) / ((double)i * k);
        value[i - 1] = next;
    }
}

static const float *row(const sfp__shapley_game *g, int i)
{
    return g->x + (size_t)i * (size_t)g->dim;
}

static bool is_finite(const sfp__shapley_game *g, int i)
{
    float zero = 0;
    for (int k = 0; k < g->dim; k++)
        zero += 0.0f * row(g, i)[k];
    return zero == 0;
}

void sfp__knn_shapley_sum(const sfp__shapley_game *g, double *sum)
{
    int n = 0;
    for (int i = 0; i < g->n; i++) {
        bool plays = is_finite(g, i);
        sum[i] = plays ? 0 : -INFINITY;
        if (plays)
            g->finite[n++] = i;
    }
    for (int t = 0; t < g->tests; t++) {
        int test = g->test[t];
        if (!is_finite(g, test))
            continue;
        for (int i = 0; i < n; i++)
            g->near[i] = (float)-sfp__distance2_f64(g->dim, row(g, test), row(g, g->finite[i]));
        sfp__rank_descending(n, g->near, g->order);
        for (int i = 0; i < n; i++)
            g->same[i] = g->label[g->finite[g->order[i]]] == g->label[test];
        sfp__knn_shapley(n, g->k, g->same, g->value);
        for (int i = 0; i < n; i++)
            sum[g->finite[g->order[i]]] += g->value[i];
    }
}

/* --------------------------------------------------------------------- sets */

typedef struct full_buffer {
    const sfp__buffer *b;
    const sfp__buffer_batch *batch;
} full_buffer;

static int32_t label_at(const full_buffer *f, int p)
{
    return sfp__buffer_label(f->b, f->batch, sfp__buffer_sample_at(f->b, f->batch, p));
}

/* By class, then by slot. */
static bool after(const void *ctx, int i, int j)
{
    int32_t a = label_at(ctx, i), b = label_at(ctx, j);
    return a > b || (a == b && i > j);
}

/* One slot of each class to the front of `slots` (m), in order of class; returns how many. */
static int draw_evaluation(const full_buffer *f, int *slots, sfp__rng *rng)
{
    int m = f->b->opt.slots, classes = 0;
    for (int i = 0; i < m; i++)
        slots[i] = i;
    sfp__heap_sort(m, slots, after, f);
    for (int begin = 0, end; begin < m; begin = end) {
        for (end = begin + 1; end < m && label_at(f, slots[end]) == label_at(f, slots[begin]); end++)
            ;
        int k = begin + (int)sfp__rng_below(rng, (uint32_t)(end - begin)), chosen = slots[k];
        slots[k] = slots[classes]; /* whose class has been dealt with, or is this one */
        slots[classes++] = chosen;
    }
    return classes;
}

/* `count` of n, uniformly, to the front. */
static void draw_front(int n, int *slots, int count, sfp__rng *rng)
{
    for (int i = 0; i < count; i++) {
        int k = i + (int)sfp__rng_below(rng, (uint32_t)(n - i)), chosen = slots[k];
        slots[k] = slots[i];
        slots[i] = chosen;
    }
}

static bool is_rare(const full_buffer *f, int32_t label, double threshold)
{
    int count = 0, m = f->b->opt.slots;
    for (int p = 0; p < m; p++)
        count += label_at(f, p) == label;
    return (double)count / m < threshold;
}

/* slots: (m) scratch. The arrays of `s` are there. */
static void draw_sets(const full_buffer *f, sfp__rng *rng, int *slots, sets *s)
{
    const sfp__buffer_batch *batch = f->batch;
    int m = f->b->opt.slots, stored = batch->b - s->left, classes = batch->model->classes, most = classes + classes / 2;
    double threshold = sfp__rng_double(rng) / (classes > 0 ? classes : 1);
    int judges = draw_evaluation(f, slots, rng);
    s->competing = most < m - judges ? most : m - judges;
    draw_front(m - judges, slots + judges, s->competing, rng);

    for (int i = 0; i < s->competing; i++) {
        s->slot[i] = slots[judges + i];
        s->sample[s->rows++] = sfp__buffer_sample_at(f->b, batch, s->slot[i]);
    }
    for (int i = 0; i < s->left; i++) {
        if (is_rare(f, batch->label[stored + i], threshold))
            s->test[s->tests++] = s->rows;
        s->sample[s->rows++] = stored + i;
    }
    for (int i = 0; i < judges; i++) {
        s->test[s->tests++] = s->rows;
        s->sample[s->rows++] = sfp__buffer_sample_at(f->b, batch, slots[i]);
    }
    for (int i = 0; i < s->rows; i++)
        s->label[i] = sfp__buffer_label(f->b, batch, s->sample[i]);
}

/* ------------------------------------------------------------------- update */

/* retained and replaced from the values of the candidates; returns how many. */
static int choose(sfp__buffer *b, const sfp__buffer_batch *batch, const sets *s, const double *sum, float *value, int *order)
{
    int n = s->competing + s->left, in = 0, out = 0;
    for (int i = 0; i < n; i++)
        value[i] = (float)sum[i]; /* what differs by rounding alone is equal */
    sfp__rank_descending(n, value, order);
    for (int i = 0; i < n; i++) {
        bool stays = i < s->competing, there = order[i] < s->competing;
        if (stays && !there)
            b->retained[in++] = batch->b - s->left + order[i] - s->competing;
        if (!stays && there)
            b->replaced[out++] = s->slot[order[i]];
    }
    return in; /* = out: as many stay as there were */
}

static sfp_status update(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                         sfp_error *err)
{
    aser *state = b->state;
    const sfp__model_ops *model = batch->model;
    int m = b->opt.slots;
    sets s = {.left = batch->b - sfp__buffer_fits(b, batch)};
    if (s.left == 0 || m == 0) {
        sfp__buffer_commit(b, batch, 0, change);
        return SFP_OK;
    }
    size_t rows = (size_t)m + (size_t)b->max_batch, D = (size_t)b->opt.dim; /* at most, so that scratch never grows */
    const full_buffer f = {b, batch};
    int *slots;
    float *x;
    double *sum;
    sfp__shapley_game game = {.k = NEIGHBOURS, .dim = b->opt.dim};
    const sfp__want list[] = {{&slots, (size_t)m, sizeof *slots},
                              {&s.slot, (size_t)m, sizeof *s.slot},
                              {&s.sample, rows, sizeof *s.sample},
                              {&s.label, rows, sizeof *s.label},
                              {&s.test, rows, sizeof *s.test},
                              {&x, rows * D, sizeof *x},
                              {&sum, rows, sizeof *sum},
                              {&game.finite, rows, sizeof *game.finite},
                              {&game.order, rows, sizeof *game.order},
                              {&game.near, rows, sizeof *game.near},
                              {&game.same, rows, sizeof *game.same},
                              {&game.value, rows, sizeof *game.value}};
    sfp__arena_reset(&state->arena);
    TRY(sfp__arena_list(&state->arena, SFP_LIST(list), err));

    draw_sets(&f, rng, slots, &s);
    if (s.competing == 0) { /* every slot judges */
        sfp__buffer_commit(b, batch, 0, change);
        return SFP_OK;
    }
    TRY(model->features(model->ctx, s.rows, s.sample, x, err));
    game.x = x;
    game.label = s.label;
    game.n = s.competing + s.left;
    game.tests = s.tests;
    game.test = s.test;
    sfp__knn_shapley_sum(&game, sum);
    sfp__buffer_commit(b, batch, choose(b, batch, &s, sum, game.near, game.order), change);
    return SFP_OK;
}

const sfp__buffer_method sfp__buffer_aser = {
    .name = "aser",
    .summary = "the samples of most worth to a nearest-neighbour classifier (Shapley values)",
    .needs = SFP_NEED_FEATURES,
    .update = update,
    .open = open_state,
    .close = close_state,
};
