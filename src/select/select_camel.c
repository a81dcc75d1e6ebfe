/* Camel's coreset (Li, Shen and Chen, "Camel: Managing Data for Efficient Stream Learning", SIGMOD 2022; docs/method.md, section
 * 11). It maximises F(S) = sum_i (d_max - min_{j in S, y_j = y_i} |x_i - x_j|) greedily on features of unit length. A sample
 * whose class has no chosen sample counts 0. The weight of a chosen sample is the number of samples of its class that are nearest
 * to it, including itself. Draws no random number.
 *
 * The features are the queries: the method is rule-based and independent of the model's state, and training needs the queries
 * anyway. The additional cost is one blocked pass over all pairs for d_max (n^2*D/2 multiplications), then facility.h within each
 * class.
 *
 * Difference from the authors' code: it uses distances of raw pixels for images and the similarity 1 - d / max(d). The order of
 * gains is the same. */
#include "select/cover.h"
#include "select/facility.h"

/* Writes cluster sizes as weights. */
static sfp_status weigh(const sfp__facility *f, int count, const int *picked, float *weight, sfp_error *err)
{
    int *size;
    const sfp__want list[] = {{&size, (size_t)count, sizeof *size}};
    TRY(sfp__arena_list(f->env->arena, SFP__LIST(list), err));
    TRY(sfp__facility_clusters(f, count, picked, size, err));
    for (int i = 0; i < count; i++)
        weight[i] = (float)size[i];
    return SFP_OK;
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
    TRY(sfp__arena_list(env->arena, SFP__LIST(list), err));
    sfp__metric metric;
    sfp__facility f = {.env = env, .metric = &metric, .group = group, .id = id, .max_pairs = SFP__FACILITY_PAIRS};
    f.groups = sfp__select_group_by_class(&from, batch->label, order, id, group);
    sfp__select_gather(&from, &features, x);
    sfp__unit_rows(from.n, features.width, x);
    TRY(sfp__metric_init(&metric, env, from.n, features.width, x, 0, NULL, err));
    TRY(sfp__facility_greedy(&f, got, picked, err));
    if (weight && got > 0)
        TRY(weigh(&f, got, picked, weight, err));
    sfp__select_end(&from, got, picked, out, weight, count);
    return SFP_OK;
}

const sfp__selector sfp__selector_camel = {
    .name = "camel",
    .summary = "greedy cover of each class by distances of queries; weights are cluster sizes",
    .needs = SFP__NEED_QUERY,
    .weighs = true,
    .pick = pick,
};
