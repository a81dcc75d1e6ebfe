/* Camel's coreset (Li, Shen and Chen, "Camel: Managing Data for Efficient Stream Learning", SIGMOD 2022; docs/method.md, section
 * 11). It maximises F(S) = sum_i (d_max - min_{j in S, y_j = y_i} |x_i - x_j|) greedily on features of unit length. A sample
 * whose class has no chosen sample counts 0. Draws no random number.
 *
 * The features are the queries: the method is rule-based and independent of the model's state, and training needs the queries
 * anyway. The additional cost is one blocked pass over all pairs for d_max (n^2*D/2 multiplications), then facility.h within each
 * class.
 *
 * Difference from the authors' code: it uses distances of raw pixels for images and the similarity 1 - d / max(d). The order of
 * gains is the same. */
#include "base/rank.h"
#include "select/cover.h"
#include "select/facility.h"

#include <string.h>

typedef struct sorting {
    const int32_t *label;
    const int *id;
} sorting;

/* Sorts by class, then by index. */
static bool after(const void *ctx, int i, int j)
{
    const sorting *s = ctx;
    int32_t a = s->label[s->id[i]], b = s->label[s->id[j]];
    return a > b || (a == b && i > j);
}

/* Sorts the candidates by class. Writes to group[] the first position of each class, then n. Returns the number of classes. */
static int group_by_class(const sfp__candidates *from, const int32_t *label, int *order, int *id, int *group)
{
    int groups = 0;
    for (int i = 0; i < from->n; i++)
        order[i] = i;
    sfp__heap_sort(from->n, order, after, &(sorting){label, from->id});
    for (int i = 0; i < from->n; i++) {
        id[i] = from->id[order[i]];
        if (i == 0 || label[id[i]] != label[id[i - 1]])
            group[groups++] = i;
    }
    group[groups] = from->n;
    return groups;
}

static sfp_status pick(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    const sfp__matrix features = {batch->query, batch->dim};
    sfp__candidates from;
    bool whole = false;
    if (batch->b > 0 && !batch->label)
        return sfp__fail(err, SFP_EINVAL, "selector 'camel': the batch has no labels, which this selector needs");
    TRY(sfp__select_begin(&sfp__selector_camel, batch, opt, env, 1, &features, &from, &whole, out, weight, count, err));
    if (whole)
        return SFP_OK;
    size_t n = (size_t)from.n;
    int got = from.c < from.n ? from.c : from.n, *order, *id, *group, *picked;
    float *x;
    const sfp__want list[] = {{&order, n, sizeof *order},
                              {&id, n, sizeof *id},
                              {&group, n + 1, sizeof *group},
                              {&picked, n, sizeof *picked},
                              {&x, n * (size_t)features.width, sizeof *x}};
    TRY(sfp__arena_list(env->arena, SFP_LIST(list), err));
    sfp__metric metric;
    sfp__facility f = {.env = env, .metric = &metric, .group = group, .id = id, .max_pairs = SFP_FACILITY_PAIRS};
    f.groups = group_by_class(&from, batch->label, order, id, group);
    memcpy(from.id, id, n * sizeof *id); /* the candidates have the order of `id` from here on */
    sfp__select_gather(&from, &features, x);
    sfp__unit_rows(from.n, features.width, x);
    TRY(sfp__metric_init(&metric, env, from.n, features.width, x, 0, NULL, err));
    TRY(sfp__facility_greedy(&f, got, picked, err));
    sfp__select_equal_weights(got, weight);
    sfp__select_end(&from, got, picked, out, weight, count);
    return SFP_OK;
}

const sfp__selector sfp__selector_camel = {
    .name = "camel",
    .summary = "greedy cover of each class by distances of queries",
    .needs = SFP_NEED_QUERY,
    .pick = pick,
};
