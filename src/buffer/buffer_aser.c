/* ASER (Shim et al., "Online class-incremental continual learning with adversarial Shapley value", AAAI 2021; docs/method.md,
 * section 12): memory update and memory retrieval by the value of samples to a 3-nearest-neighbour classifier.
 *
 * An update of a full buffer uses two sets. The evaluation set has one random buffer sample of each class in the buffer. It also
 * has the samples of the batch whose class has a share of the buffer below a threshold drawn from U(0, 1/C). The candidates are
 * floor(1.5*C) random buffer samples outside the evaluation set (or all of them, if there are fewer), and the batch. The value of
 * a candidate is the sum of its Shapley values over the evaluation points (buffer.h), computed on features of the prompted pass.
 * The candidates with the highest values obtain the slots of all candidates; on a tie the stored sample stays. If every slot is
 * the only one of its class, no slot is a candidate and nothing changes.
 *
 * A retrieval draws candidates and an evaluation set from the slots, both balanced over the classes. It replays the candidates
 * with the largest adversarial Shapley values, the variant ASER_mu of the paper: the mean Shapley value over the evaluation set,
 * minus the mean over the arriving batch. Such samples represent their class in the buffer and are near to samples of other
 * classes in the batch. Replay is uniform until more samples than slots were offered.
 *
 * Cost of an update: a forward pass over at most min(2.5*C, m) + b samples, most of which have a known query; then (C + b) *
 * (1.5*C + b) * D multiplications. A retrieval, at each step: a forward pass over at most min(3*r + 2*C, m) + b samples.
 *
 * Differences from the authors: C is the number of classes of the head; theirs is that of the dataset, which is unknown in a
 * task-free stream. Samples with features that are not finite have no value: they are replaced first and replayed last. With few
 * classes a retrieval has more than one candidate per class, because the authors' number would leave no choice. */
#include "base/rank.h"
#include "buffer/buffer.h"
#include "compute/vec.h"

#include <math.h>

enum { NEIGHBOURS = 3 };

typedef struct aser {
    sfp__arena arena;
} aser;

/* The sets of one update. Samples are numbered as in buffer/model_ops.h. */
typedef struct sets {
    int remaining; /* number of samples of the batch without a free slot: stored..b-1 */
    int competing; /* number of buffer samples among the candidates */
    int rows;      /* number of samples: competing, then remaining, then evaluation samples of the buffer */
    int *slot;     /* (competing) their slots */
    int *sample;   /* (rows) */
    int32_t *label;
    int tests;
    int *test; /* (tests) rows of the evaluation set */
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

/* Computes the values from the farthest to the nearest point: s_n = [same_n] min(k,n) / (n k), s_i = s_(i+1) + ([same_i] -
 * [same_(i+1)]) min(k,i) / (i k), where i starts at 1. With fewer than k points the value of each point is [same] / k. */
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
        bool finite = is_finite(g, i);
        sum[i] = finite ? 0 : -INFINITY;
        if (finite)
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

/* Sorts by class, then by slot. */
static bool after(const void *ctx, int i, int j)
{
    int32_t a = label_at(ctx, i), b = label_at(ctx, j);
    return a > b || (a == b && i > j);
}

/* Moves one random slot of each class to the front of `slots` (m), in order of class. Returns the number of classes. */
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
        slots[k] = slots[classes]; /* slots[classes] belongs to an earlier class or to this one */
        slots[classes++] = chosen;
    }
    return classes;
}

/* Moves `count` of n slots, drawn uniformly, to the front. */
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

/* Draws the evaluation set and the candidates. slots (m): scratch memory. The arrays of `s` must be allocated. */
static void draw_sets(const full_buffer *f, sfp__rng *rng, int *slots, sets *s)
{
    const sfp__buffer_batch *batch = f->batch;
    int m = f->b->opt.slots, stored = batch->b - s->remaining, classes = batch->model->classes,
        max_competing = classes + classes / 2;
    double threshold = sfp__rng_double(rng) / (classes > 0 ? classes : 1);
    int evaluating = draw_evaluation(f, slots, rng);
    s->competing = max_competing < m - evaluating ? max_competing : m - evaluating;
    draw_front(m - evaluating, slots + evaluating, s->competing, rng);

    for (int i = 0; i < s->competing; i++) {
        s->slot[i] = slots[evaluating + i];
        s->sample[s->rows++] = sfp__buffer_sample_at(f->b, batch, s->slot[i]);
    }
    for (int i = 0; i < s->remaining; i++) {
        if (is_rare(f, batch->label[stored + i], threshold))
            s->test[s->tests++] = s->rows;
        s->sample[s->rows++] = stored + i;
    }
    for (int i = 0; i < evaluating; i++) {
        s->test[s->tests++] = s->rows;
        s->sample[s->rows++] = sfp__buffer_sample_at(f->b, batch, slots[i]);
    }
    for (int i = 0; i < s->rows; i++)
        s->label[i] = sfp__buffer_label(f->b, batch, s->sample[i]);
}

/* ------------------------------------------------------------------- update */

/* Gives the slots to the candidates with the highest Shapley values: writes b->retained and b->replaced. Returns the number of replaced
 * slots. */
static int choose(sfp__buffer *b, const sfp__buffer_batch *batch, const sets *s, const double *sum, float *value, int *order)
{
    int n = s->competing + s->remaining, in = 0, out = 0;
    for (int i = 0; i < n; i++)
        value[i] = (float)sum[i]; /* values that differ only by rounding become equal */
    sfp__rank_descending(n, value, order);
    for (int i = 0; i < n; i++) {
        bool gets_slot = i < s->competing, is_stored = order[i] < s->competing;
        if (gets_slot && !is_stored)
            b->retained[in++] = batch->b - s->remaining + order[i] - s->competing;
        if (!gets_slot && is_stored)
            b->replaced[out++] = s->slot[order[i]];
    }
    return in; /* equals `out`: the number of slots is constant */
}

static sfp_status update(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                         sfp_error *err)
{
    aser *state = b->state;
    const sfp__model_ops *model = batch->model;
    int m = b->opt.slots;
    sets s = {.remaining = batch->b - sfp__buffer_fits(b, batch)};
    if (s.remaining == 0 || m == 0) {
        sfp__buffer_commit(b, batch, 0, change);
        return SFP_OK;
    }
    size_t rows = (size_t)m + (size_t)b->max_batch, D = (size_t)b->opt.dim; /* the maximum, so that scratch memory never grows */
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
    TRY(sfp__arena_list(&state->arena, SFP__LIST(list), err));

    draw_sets(&f, rng, slots, &s);
    if (s.competing == 0) { /* every slot is in the evaluation set */
        sfp__buffer_commit(b, batch, 0, change);
        return SFP_OK;
    }
    TRY(model->features(model->ctx, s.rows, s.sample, x, err));
    game.x = x;
    game.label = s.label;
    game.n = s.competing + s.remaining;
    game.tests = s.tests;
    game.test = s.test;
    sfp__knn_shapley_sum(&game, sum);
    sfp__buffer_commit(b, batch, choose(b, batch, &s, sum, game.near, game.order), change);
    return SFP_OK;
}

/* ---------------------------------------------------------------- retrieval */

/* The sets of one retrieval. */
typedef struct retrieval {
    int candidates, evaluating;
    int *slots;      /* (m) sorted by class; within a class candidates, then evaluation samples, then others */
    int *candidate;  /* (candidates) slots */
    int *evaluation; /* (evaluating) slots */
    int *other;      /* (m - candidates) slots that are not candidates */
} retrieval;

static int class_end(const full_buffer *f, const int *slots, int begin)
{
    int end = begin + 1;
    while (end < f->b->opt.slots && label_at(f, slots[end]) == label_at(f, slots[begin]))
        end++;
    return end;
}

/* Returns the number of candidates per class: one, as with the authors' settings, or more if r samples could not be chosen from
 * 1.5 r candidates. */
static int per_class(const full_buffer *f, const int *slots, int r)
{
    int classes = 0, m = f->b->opt.slots;
    for (int begin = 0; begin < m; begin = class_end(f, slots, begin))
        classes++;
    int64_t half = classes > 0 ? 2 * classes : 2, wanted = ((int64_t)3 * r + half - 1) / half; /* ceil(1.5 r / classes) */
    return wanted < 1 ? 1 : wanted < m ? (int)wanted : m;
}

static void draw_retrieval(const full_buffer *f, int r, sfp__rng *rng, retrieval *s)
{
    int m = f->b->opt.slots, others = 0;
    for (int i = 0; i < m; i++)
        s->slots[i] = i;
    sfp__heap_sort(m, s->slots, after, f);
    int max_each = per_class(f, s->slots, r);
    for (int begin = 0, end; begin < m; begin = end) {
        end = class_end(f, s->slots, begin);
        int *slots = s->slots + begin, n = end - begin, chosen = n < max_each ? n : max_each;
        int evaluating = n - chosen < max_each ? n - chosen : max_each;
        draw_front(n, slots, chosen, rng);
        draw_front(n - chosen, slots + chosen, evaluating, rng);
        for (int i = 0; i < n; i++) {
            if (i < chosen)
                s->candidate[s->candidates++] = slots[i];
            else
                s->other[others++] = slots[i];
            if (i >= chosen && i < chosen + evaluating)
                s->evaluation[s->evaluating++] = slots[i];
        }
    }
}

/* Writes the adversarial Shapley values of the candidates, which are rows 0..n-1 of the game. The rows behind them are the
 * evaluation set, then the batch. sum: scratch memory (n). */
static void adversarial_values(sfp__shapley_game *g, int evaluating, int b, int *test, double *sum, double *value)
{
    for (int i = 0; i < evaluating + b; i++)
        test[i] = g->n + i;
    g->tests = evaluating;
    g->test = test;
    sfp__knn_shapley_sum(g, value);
    g->tests = b;
    g->test = test + evaluating;
    sfp__knn_shapley_sum(g, sum);
    for (int i = 0; i < g->n; i++)
        value[i] = isfinite(value[i]) ? value[i] / (evaluating ? evaluating : 1) - sum[i] / b : -INFINITY;
}

/* Numbers the samples of a retrieval: candidates, evaluation set, batch. Returns their number. */
static int list_samples(const full_buffer *f, const retrieval *s, int *sample, int32_t *label)
{
    int rows = 0;
    for (int i = 0; i < s->candidates; i++)
        sample[rows++] = f->batch->b + s->candidate[i];
    for (int i = 0; i < s->evaluating; i++)
        sample[rows++] = f->batch->b + s->evaluation[i];
    for (int i = 0; i < f->batch->b; i++)
        sample[rows++] = i;
    for (int i = 0; i < rows; i++)
        label[i] = sfp__buffer_label(f->b, f->batch, sample[i]);
    return rows;
}

/* Writes the r candidates with the largest values; if there are fewer, then slots drawn from the others. Returns the number. */
static int choose_slots(const full_buffer *f, const retrieval *s, const int *order, int r, sfp__rng *rng, int *slots)
{
    int others = f->b->opt.slots - s->candidates, n = r < s->candidates ? r : s->candidates;
    for (int i = 0; i < n; i++)
        slots[i] = s->candidate[order[i]];
    int more = r - n < others ? r - n : others;
    draw_front(others, s->other, more, rng);
    for (int i = 0; i < more; i++)
        slots[n++] = s->other[i];
    return n;
}

static sfp_status retrieve(sfp__buffer *b, const sfp__buffer_batch *batch, int r, sfp__rng *rng, int *slots, int *count,
                           sfp_error *err)
{
    aser *state = b->state;
    const sfp__model_ops *model = batch->model;
    if (b->filled < b->opt.slots || b->seen <= (uint64_t)b->opt.slots) {
        *count = sfp__buffer_draw(b, r, rng, slots);
        return SFP_OK;
    }
    size_t m = (size_t)b->opt.slots, rows = m + (size_t)b->max_batch, D = (size_t)b->opt.dim;
    const full_buffer f = {b, batch};
    retrieval s = {0};
    int *sample, *test;
    int32_t *label;
    float *x;
    double *sum, *value;
    sfp__shapley_game game = {.k = NEIGHBOURS, .dim = b->opt.dim};
    const sfp__want list[] = {{&s.slots, m, sizeof *s.slots},
                              {&s.candidate, m, sizeof *s.candidate},
                              {&s.evaluation, m, sizeof *s.evaluation},
                              {&s.other, m, sizeof *s.other},
                              {&sample, rows, sizeof *sample},
                              {&test, rows, sizeof *test},
                              {&label, rows, sizeof *label},
                              {&x, rows * D, sizeof *x},
                              {&sum, m, sizeof *sum},
                              {&value, m, sizeof *value},
                              {&game.finite, m, sizeof *game.finite},
                              {&game.order, m, sizeof *game.order},
                              {&game.near, m, sizeof *game.near},
                              {&game.same, m, sizeof *game.same},
                              {&game.value, m, sizeof *game.value}};
    sfp__arena_reset(&state->arena);
    TRY(sfp__arena_list(&state->arena, SFP__LIST(list), err));

    draw_retrieval(&f, r, rng, &s);
    TRY(model->features(model->ctx, list_samples(&f, &s, sample, label), sample, x, err));
    game.x = x;
    game.label = label;
    game.n = s.candidates;
    adversarial_values(&game, s.evaluating, batch->b, test, sum, value);
    for (int i = 0; i < s.candidates; i++)
        game.near[i] = (float)(rint(value[i] * 0x1p24) / 0x1p24); /* values that differ only by rounding become equal */
    sfp__rank_descending(s.candidates, game.near, game.order);
    *count = choose_slots(&f, &s, game.order, r, rng, slots);
    return SFP_OK;
}

const sfp__buffer_method sfp__buffer_aser = {
    .name = "aser",
    .summary = "the samples that are most valuable to a nearest-neighbour classifier (Shapley values)",
    .needs = SFP__NEED_FEATURES,
    .update = update,
    .retrieve = retrieve,
    .open = open_state,
    .close = close_state,
};
