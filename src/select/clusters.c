/* Which chosen point is nearest to each point: craig's weights. One blocked pass, n*c distances. */
#include "select/facility.h"
#include "select/heap.h"

enum { B = SFP_DISTANCE_BLOCK };

static int min(int a, int b)
{
    return a < b ? a : b;
}

typedef struct clusters {
    const sfp_facility *f;
    sfp_points chosen; /* by id ascending */
    float *work;
    int32_t *block;
    int *nearest; /* (n) position in `chosen` */
} clusters;

static void cluster_piece(void *ctx, int piece, int worker)
{
    clusters *c = ctx;
    const sfp_metric *m = c->f->metric;
    int first = piece * B, n = min(B, m->n - first);
    sfp_points b = sfp__metric_points(m, first, n);
    int32_t *q = c->block + (size_t)worker * B * B, best[B];
    for (int i = 0; i < n; i++)
        best[i] = INT32_MAX;
    for (int at = 0; at < c->chosen.n; at += B) {
        sfp_points a = c->chosen;
        a.n = min(B, c->chosen.n - at);
        a.h += (size_t)at * (size_t)m->dim;
        a.r = a.r ? a.r + (size_t)at * (size_t)m->classes : NULL;
        a.self += at;
        a.which += at;
        sfp__metric_block(m, &a, &b, c->work + (size_t)worker * 2 * B * B, q);
        for (int k = 0; k < a.n; k++)
            for (int i = 0; i < n; i++)
                if (q[k * B + i] < best[i]) {
                    best[i] = q[k * B + i];
                    c->nearest[first + i] = at + k;
                }
    }
}

typedef struct by_id {
    const int *id, *chosen;
} by_id;

static bool after(const void *ctx, int i, int j)
{
    const by_id *b = ctx;
    return b->id[b->chosen[i]] > b->id[b->chosen[j]];
}

sfp_status sfp__facility_clusters(const sfp_facility *f, int count, const int *chosen, int *size, sfp_error *err)
{
    const sfp_metric *m = f->metric;
    size_t k = (size_t)count, workers = (size_t)sfp__select_workers(f->env);
    clusters c = {.f = f};
    int *order, *which;
    float *h, *r;
    double *self;
    const sfp_want list[] = {{&order, k, sizeof *order},
                             {&which, k, sizeof *which},
                             {&h, k * (size_t)m->dim, sizeof *h},
                             {&r, m->r ? k * (size_t)m->classes : 1, sizeof *r},
                             {&self, k, sizeof *self},
                             {&c.work, workers * 2 * B * B, sizeof *c.work},
                             {&c.block, workers * B * B, sizeof *c.block},
                             {&c.nearest, (size_t)m->n, sizeof *c.nearest}};
    sfp_status s = sfp__arena_list(f->env->arena, SFP_LIST(list), err);
    if (s)
        return s;
    for (int i = 0; i < count; i++) {
        order[i] = i;
        size[i] = 0;
    }
    sfp__heap_sort(count, order, after, &(by_id){f->id, chosen});
    for (int i = 0; i < count; i++)
        which[i] = chosen[order[i]];
    c.chosen = sfp__metric_gather(m, count, which, h, r, self);
    sfp__select_each(f->env, (m->n + B - 1) / B, cluster_piece, &c);
    for (int i = 0; i < m->n; i++)
        size[order[c.nearest[i]]]++;
    return SFP_OK;
}
