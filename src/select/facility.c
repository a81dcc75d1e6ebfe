#include "select/facility.h"

#include "base/rank.h"

#include <stdatomic.h>
#include <string.h>

enum { B = SFP__DISTANCE_BLOCK };

typedef struct near_point {
    int32_t i, q; /* index of a point and its distance */
} near_point;

/* A column block: at most B consecutive points of one group. */
typedef struct column {
    int first, n, group;
} column;

typedef struct greedy {
    const sfp__facility *f;
    int n, picked;
    int columns;
    column *column;           /* (columns) every point is in exactly one, in order */
    _Atomic int64_t *gain;    /* (n) */
    int64_t *pairs;           /* (n) number of points i with d_ij < cur_i */
    int32_t *cur;             /* (n) */
    int *group_of;            /* (n) */
    bool *taken;              /* (n) */
    float *work;              /* (workers, 2 B^2) */
    int32_t *block;           /* (workers, B^2) */
    _Atomic int32_t furthest; /* d_max */
    _Atomic int64_t compared; /* number of pairs compared so far */
    /* dense */
    int32_t *row;            /* (n) distances to the latest pick */
    int moved;               /* number of points for which the latest pick is nearer than cur */
    int *which;              /* (n) indices of the moved points */
    int32_t *before, *after; /* (n) cur of the moved points before and after the pick */
    float *moved_h, *moved_r;
    double *moved_self;
    sfp__points mover;
    int first_column;
    /* sparse */
    size_t *at, *capacity; /* (n) the list of j is near[at[j] .. at[j] + length[j]) and has space for capacity[j] points */
    int *length;           /* (n) */
    near_point *near;
    int *evaluated; /* (n) value of `picked` when the gain was computed */
} greedy;

static int group_end(const greedy *g, int j)
{
    return g->f->group[g->group_of[j] + 1];
}

static int min(int a, int b)
{
    return a < b ? a : b;
}

/* --------------------------------------------------------------------- memory */

static sfp_status init(greedy *g, const sfp__facility *f, sfp_error *err)
{
    size_t n = (size_t)f->metric->n, workers = (size_t)sfp__select_workers(f->env);
    *g = (greedy){.f = f, .n = f->metric->n};
    for (int k = 0; k < f->groups; k++)
        g->columns += (f->group[k + 1] - f->group[k] + B - 1) / B;
    const sfp__want list[] = {{&g->column, (size_t)g->columns, sizeof *g->column},
                              {&g->gain, n, sizeof *g->gain},
                              {&g->pairs, n, sizeof *g->pairs},
                              {&g->cur, n, sizeof *g->cur},
                              {&g->group_of, n, sizeof *g->group_of},
                              {&g->taken, n, sizeof *g->taken},
                              {&g->work, workers * 2 * B * B, sizeof *g->work},
                              {&g->block, workers * B * B, sizeof *g->block}};
    TRY(sfp__arena_list(f->env->arena, SFP__LIST(list), err));
    for (int k = 0, c = 0; k < f->groups; k++) {
        int first = f->group[k], end = f->group[k + 1];
        for (int i = first; i < end; i++) {
            g->group_of[i] = k;
            g->pairs[i] = end - first;
            g->taken[i] = false;
            atomic_init(&g->gain[i], 0);
        }
        for (int i = first; i < end; i += B)
            g->column[c++] = (column){i, min(B, end - i), k};
    }
    atomic_init(&g->furthest, 0);
    atomic_init(&g->compared, 0);
    return SFP_OK;
}

static int32_t *block_of(greedy *g, int worker, const sfp__points *a, const sfp__points *b)
{
    int32_t *q = g->block + (size_t)worker * B * B;
    sfp__metric_block(g->f->metric, a, b, g->work + (size_t)worker * 2 * B * B, q);
    int64_t pairs = atomic_fetch_add_explicit(&g->compared, (int64_t)a->n * b->n, memory_order_relaxed);
    if (worker == 0)
        sfp__select_report_progress(g->f->env, "million distances", pairs / 1000000, 0); /* the total is unknown */
    return q;
}

/* ------------------------------------------------- d_max and sums of distances */

static int32_t largest(int n, const int32_t *q)
{
    int32_t max_distance = 0;
    for (int j = 0; j < n; j++)
        max_distance = q[j] > max_distance ? q[j] : max_distance;
    return max_distance;
}

static int64_t add_distances(int n, const int32_t *q, int64_t *by_column)
{
    int64_t sum = 0;
    for (int j = 0; j < n; j++) {
        by_column[j] += q[j];
        sum += q[j];
    }
    return sum;
}

/* Computes one block pair I <= J of all points: updates the largest distance, and adds the distances of pairs in one group to
 * gain[]. */
static void sum_piece(void *ctx, int piece, int worker)
{
    greedy *g = ctx;
    int I = 0, blocks = (g->n + B - 1) / B;
    for (; piece >= blocks - I; I++)
        piece -= blocks - I;
    int J = I + piece;
    sfp__points a = sfp__metric_points(g->f->metric, I * B, min(B, g->n - I * B));
    sfp__points b = sfp__metric_points(g->f->metric, J * B, min(B, g->n - J * B));
    const int32_t *q = block_of(g, worker, &a, &b);
    int64_t by_column[B] = {0};
    int32_t max_distance = 0, was = atomic_load(&g->furthest);
    for (int i = 0; i < a.n; i++) {
        int32_t far = largest(b.n, q + (size_t)i * B);
        max_distance = far > max_distance ? far : max_distance;
        int end = min(group_end(g, a.first + i), b.first + b.n) - b.first, from = g->f->group[g->group_of[a.first + i]] - b.first;
        from = from < 0 ? 0 : from;
        if (from < end)
            atomic_fetch_add(&g->gain[a.first + i], add_distances(end - from, q + (size_t)i * B + from, by_column + from));
    }
    for (int j = 0; j < b.n && I != J; j++)
        atomic_fetch_add(&g->gain[b.first + j], by_column[j]);
    while (max_distance > was && !atomic_compare_exchange_weak(&g->furthest, &was, max_distance))
        ;
}

static void compute_first_gains(greedy *g)
{
    int blocks = (g->n + B - 1) / B;
    sfp__select_each(g->f->env, blocks * (blocks + 1) / 2, sum_piece, g);
    int64_t furthest = atomic_load(&g->furthest);
    for (int j = 0; j < g->n; j++) {
        atomic_store(&g->gain[j], g->pairs[j] * furthest - atomic_load(&g->gain[j]));
        g->cur[j] = (int32_t)furthest;
    }
}

/* ---------------------------------------------------------------------- dense */

static void row_piece(void *ctx, int piece, int worker)
{
    greedy *g = ctx;
    const column *c = &g->column[g->first_column + piece];
    sfp__points b = sfp__metric_points(g->f->metric, c->first, c->n);
    memcpy(g->row + c->first, block_of(g, worker, &g->mover, &b), (size_t)c->n * sizeof *g->row);
}

/* Adds to loss[] the amounts by which one moved point reduces the gains of n others: max(0, before - q) - max(0, after - q).
 * Adds 1 to fewer[] for each pair that no longer contributes. */
static void lower_gains(int n, const int32_t *q, int32_t before, int32_t after, int64_t *loss, int32_t *fewer)
{
    for (int j = 0; j < n; j++) {
        int32_t x = q[j] < before ? q[j] : before;
        x = x > after ? x : after;
        loss[j] += before - x;
        fewer[j] += (q[j] < before) - (q[j] < after);
    }
}

static void lower_piece(void *ctx, int piece, int worker)
{
    greedy *g = ctx;
    const column *c = &g->column[g->first_column + piece];
    sfp__points b = sfp__metric_points(g->f->metric, c->first, c->n);
    int64_t loss[B] = {0};
    int32_t fewer[B] = {0};
    for (int at = 0; at < g->moved; at += B) {
        size_t skip = (size_t)at;
        sfp__points a = g->mover;
        a.n = min(B, g->moved - at);
        a.h += skip * (size_t)g->f->metric->dim;
        a.r = a.r ? a.r + skip * (size_t)g->f->metric->classes : NULL;
        a.self += skip;
        a.which += skip;
        const int32_t *q = block_of(g, worker, &a, &b);
        for (int i = 0; i < a.n; i++)
            lower_gains(c->n, q + (size_t)i * B, g->before[at + i], g->after[at + i], loss, fewer);
    }
    for (int j = 0; j < c->n; j++) {
        atomic_fetch_sub(&g->gain[c->first + j], loss[j]);
        g->pairs[c->first + j] -= fewer[j];
    }
}

static bool better(const greedy *g, int i, int j)
{
    int64_t a = atomic_load_explicit(&g->gain[i], memory_order_relaxed),
            b = atomic_load_explicit(&g->gain[j], memory_order_relaxed);
    return a > b || (a == b && g->f->id[i] < g->f->id[j]);
}

static int best_unchosen(const greedy *g)
{
    int best = -1;
    for (int j = 0; j < g->n; j++)
        if (!g->taken[j] && (best < 0 || better(g, j, best)))
            best = j;
    return best;
}

static void take(greedy *g, int j, int *out)
{
    g->taken[j] = true;
    out[g->picked++] = j;
}

/* Chooses s: points that are nearer to s than to every earlier pick move to s, and all gains of the group are updated. */
static void move_to_pick(greedy *g, int s)
{
    const sfp__facility *f = g->f;
    int first = f->group[g->group_of[s]], end = group_end(g, s), columns = (end - first + B - 1) / B;
    g->first_column = 0;
    while (g->column[g->first_column].first != first)
        g->first_column++;
    g->mover = sfp__metric_points(f->metric, s, 1);
    sfp__select_each(f->env, columns, row_piece, g);
    g->moved = 0;
    for (int i = first; i < end; i++) {
        if (g->row[i] >= g->cur[i])
            continue;
        g->which[g->moved] = i;
        g->before[g->moved] = g->cur[i];
        g->after[g->moved++] = g->cur[i] = g->row[i];
    }
    g->mover = sfp__metric_gather(f->metric, g->moved, g->which, g->moved_h, g->moved_r, g->moved_self);
    sfp__select_each(f->env, columns, lower_piece, g);
}

static size_t count_pairs(const greedy *g)
{
    int64_t sum = 0;
    for (int j = 0; j < g->n; j++)
        sum += g->pairs[j];
    return sum > 0 ? (size_t)sum : 0;
}

static sfp_status run_dense(greedy *g, int count, int *out, sfp_error *err)
{
    if (count_pairs(g) <= g->f->max_pairs)
        return SFP_OK;
    const sfp__metric *m = g->f->metric;
    size_t n = (size_t)g->n;
    const sfp__want list[] = {{&g->row, n, sizeof *g->row},
                              {&g->which, n, sizeof *g->which},
                              {&g->before, n, sizeof *g->before},
                              {&g->after, n, sizeof *g->after},
                              {&g->moved_h, n * (size_t)m->dim, sizeof *g->moved_h},
                              {&g->moved_r, m->r ? n * (size_t)m->classes : 1, sizeof *g->moved_r},
                              {&g->moved_self, n, sizeof *g->moved_self}};
    TRY(sfp__arena_list(g->f->env->arena, SFP__LIST(list), err));
    while (g->picked < count && count_pairs(g) > g->f->max_pairs) {
        int best = best_unchosen(g);
        take(g, best, out);
        move_to_pick(g, best);
    }
    return SFP_OK;
}

/* --------------------------------------------------------------------- sparse */

/* Builds the lists of the points of one column. length[j] also counts points for which the list has no space. */
static void list_piece(void *ctx, int piece, int worker)
{
    greedy *g = ctx;
    const column *c = &g->column[piece];
    sfp__points a = sfp__metric_points(g->f->metric, c->first, c->n);
    int end = g->f->group[c->group + 1];
    for (int j = 0; j < c->n; j++)
        g->length[c->first + j] = 0;
    for (int first = g->f->group[c->group]; first < end; first += B) {
        sfp__points b = sfp__metric_points(g->f->metric, first, min(B, end - first));
        const int32_t *q = block_of(g, worker, &a, &b);
        for (int j = 0; j < a.n; j++) {
            int to = c->first + j, length = g->length[to];
            near_point *list = g->near + g->at[to];
            for (int i = 0; i < b.n; i++) {
                if (q[j * B + i] >= g->cur[first + i])
                    continue;
                if ((size_t)length < g->capacity[to])
                    list[length] = (near_point){first + i, q[j * B + i]};
                length++;
            }
            g->length[to] = length;
        }
    }
}

static sfp_status build_lists(greedy *g, sfp_error *err)
{
    size_t n = (size_t)g->n, total = 0;
    const sfp__want list[] = {{&g->at, n, sizeof *g->at},
                              {&g->capacity, n, sizeof *g->capacity},
                              {&g->length, n, sizeof *g->length},
                              {&g->evaluated, n, sizeof *g->evaluated}};
    TRY(sfp__arena_list(g->f->env->arena, SFP__LIST(list), err));
    for (int j = 0; j < g->n; j++)
        g->capacity[j] = g->pairs[j] > 0 ? (size_t)g->pairs[j] : 0;
    /* A matrix product may round a distance differently from the one that counted the pair, so a list may be too short. The first
     * round then counts the points exactly, and the second, which computes the same numbers, has enough space. */
    for (bool fits = false; !fits;) {
        total = 0;
        for (int j = 0; j < g->n; j++) {
            g->at[j] = total;
            total += g->capacity[j];
        }
        const sfp__want near = {&g->near, total, sizeof *g->near};
        TRY(sfp__arena_list(g->f->env->arena, 1, &near, err));
        sfp__select_each(g->f->env, g->columns, list_piece, g);
        fits = true;
        for (int j = 0; j < g->n; j++) {
            fits = fits && (size_t)g->length[j] <= g->capacity[j];
            g->capacity[j] = (size_t)g->length[j];
        }
    }
    return SFP_OK;
}

static void compute_gain(greedy *g, int j)
{
    int64_t gain = 0;
    const near_point *list = g->near + g->at[j];
    for (int k = 0; k < g->length[j]; k++) {
        int32_t less = g->cur[list[k].i] - list[k].q;
        gain += less > 0 ? less : 0;
    }
    atomic_store_explicit(&g->gain[j], gain, memory_order_relaxed);
    g->evaluated[j] = g->picked;
}

static bool before(const void *ctx, int i, int j)
{
    return better(ctx, i, j);
}

static sfp_status run_sparse(greedy *g, int count, int *out, sfp_error *err)
{
    if (g->picked == count)
        return SFP_OK;
    sfp__heap heap = {.before = before, .ctx = g};
    const sfp__want order = {&heap.at, (size_t)g->n, sizeof *heap.at};
    TRY(build_lists(g, err));
    TRY(sfp__arena_list(g->f->env->arena, 1, &order, err));
    for (int j = 0; j < g->n; j++) {
        if (g->taken[j])
            continue;
        compute_gain(g, j);
        heap.at[heap.n++] = j;
    }
    sfp__heap_make(&heap);
    while (g->picked < count) {
        int top = heap.at[0];
        if (g->evaluated[top] != g->picked) {
            compute_gain(g, top);
            sfp__heap_sink(&heap, 0);
            continue;
        }
        take(g, sfp__heap_pop(&heap), out);
        const near_point *list = g->near + g->at[top];
        for (int k = 0; k < g->length[top]; k++)
            g->cur[list[k].i] = min(g->cur[list[k].i], list[k].q);
        sfp__select_report_progress(g->f->env, "picks", g->picked, count);
    }
    return SFP_OK;
}

sfp_status sfp__facility_greedy(const sfp__facility *f, int count, int *out, sfp_error *err)
{
    greedy g;
    if (count < 1)
        return SFP_OK;
    TRY(init(&g, f, err));
    compute_first_gains(&g);
    TRY(run_dense(&g, count, out, err));
    return run_sparse(&g, count, out, err);
}

/* ------------------------------------------------------------------- clusters */

/* Finds the nearest chosen point of each point within its group, for weights. One blocked pass computes n*c distances. */
typedef struct clusters {
    const sfp__facility *f;
    sfp__points chosen; /* in ascending order of id */
    float *work;
    int32_t *block;
    int *nearest;  /* (n) position in `chosen`; -1: no point of the group is chosen */
    int *group_of; /* (n) */
} clusters;

static void cluster_piece(void *ctx, int piece, int worker)
{
    clusters *c = ctx;
    const sfp__metric *m = c->f->metric;
    int first = piece * B, n = min(B, m->n - first);
    sfp__points b = sfp__metric_points(m, first, n);
    int32_t *q = c->block + (size_t)worker * B * B, best[B];
    for (int i = 0; i < n; i++) {
        best[i] = INT32_MAX;
        c->nearest[first + i] = -1;
    }
    for (int at = 0; at < c->chosen.n; at += B) {
        sfp__points a = c->chosen;
        a.n = min(B, c->chosen.n - at);
        a.h += (size_t)at * (size_t)m->dim;
        a.r = a.r ? a.r + (size_t)at * (size_t)m->classes : NULL;
        a.self += at;
        a.which += at;
        sfp__metric_block(m, &a, &b, c->work + (size_t)worker * 2 * B * B, q);
        for (int k = 0; k < a.n; k++)
            for (int i = 0; i < n; i++)
                if (q[k * B + i] < best[i] && c->group_of[a.which[k]] == c->group_of[first + i]) {
                    best[i] = q[k * B + i];
                    c->nearest[first + i] = at + k;
                }
    }
}

typedef struct by_id {
    const int *id, *chosen;
} by_id;

static bool id_after(const void *ctx, int i, int j)
{
    const by_id *b = ctx;
    return b->id[b->chosen[i]] > b->id[b->chosen[j]];
}

sfp_status sfp__facility_clusters(const sfp__facility *f, int count, const int *chosen, int *size, sfp_error *err)
{
    const sfp__metric *m = f->metric;
    size_t k = (size_t)count, workers = (size_t)sfp__select_workers(f->env);
    clusters c = {.f = f};
    int *order, *which;
    float *h, *r;
    double *self;
    const sfp__want list[] = {{&order, k, sizeof *order},
                              {&which, k, sizeof *which},
                              {&h, k * (size_t)m->dim, sizeof *h},
                              {&r, m->r ? k * (size_t)m->classes : 1, sizeof *r},
                              {&self, k, sizeof *self},
                              {&c.work, workers * 2 * B * B, sizeof *c.work},
                              {&c.block, workers * B * B, sizeof *c.block},
                              {&c.nearest, (size_t)m->n, sizeof *c.nearest},
                              {&c.group_of, (size_t)m->n, sizeof *c.group_of}};
    TRY(sfp__arena_list(f->env->arena, SFP__LIST(list), err));
    for (int g = 0; g < f->groups; g++)
        for (int i = f->group[g]; i < f->group[g + 1]; i++)
            c.group_of[i] = g;
    for (int i = 0; i < count; i++) {
        order[i] = i;
        size[i] = 0;
    }
    sfp__heap_sort(count, order, id_after, &(by_id){f->id, chosen});
    for (int i = 0; i < count; i++)
        which[i] = chosen[order[i]];
    c.chosen = sfp__metric_gather(m, count, which, h, r, self);
    sfp__select_each(f->env, (m->n + B - 1) / B, cluster_piece, &c);
    for (int i = 0; i < m->n; i++)
        if (c.nearest[i] >= 0)
            size[order[c.nearest[i]]]++;
    return SFP_OK;
}
