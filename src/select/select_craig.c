/* CRAIG (Mirzasoleiman, Bilmes and Leskovec, "Coresets for Data-efficient Training of Machine Learning Models", ICML 2020;
 * docs/method.md, section 11). It maximises the facility location function F(S) = sum_i max_{j in S} (d_max - |g_i - g_j|) on
 * last-layer gradients with the lazy greedy algorithm. The weight of a chosen sample is the number of samples that are nearest to
 * it, including itself. Draws no random number.
 *
 * Cost: one prompted pass over the batch. Then two blocked passes over all pairs, or about (2 + ln c) if the pairs do not fit in
 * memory, with n^2*(C + D) multiplications each. facility.h states the memory.
 *
 * Difference from the authors: they select within one class at a time. Here a batch is one ground set. `cords` (--craig-cords)
 * selects as the library CORDS does: within each class, by squared distances of the residuals. CORDS rounds the number of picks
 * of each class up, so that it may choose more than c samples; here they are exactly c. (In the code of StreamFP's authors the
 * ground set consists of batches, each of which chooses one, so that everything is chosen.) */
#include "select/facility.h"

/* Chooses `want` points greedily. Writes their weights: cluster sizes. */
static sfp_status choose_weighted(const sfp__facility *f, int want, int *picked, double *weight, sfp_error *err)
{
    int *size;
    const sfp__want list[] = {{&size, (size_t)want, sizeof *size}};
    TRY(sfp__arena_list(f->env->arena, SFP_LIST(list), err));
    TRY(sfp__facility_greedy(f, want, picked, err));
    TRY(sfp__facility_clusters(f, want, picked, size, err));
    for (int i = 0; i < want; i++)
        weight[i] = size[i];
    return SFP_OK;
}

static sfp_status choose(const sfp__select_env *env, const sfp__metric *m, const int *id, int want, int *picked, double *weight,
                         sfp_error *err)
{
    const int group[] = {0, m->n};
    const sfp__facility f = {.env = env, .metric = m, .groups = 1, .group = group, .id = id, .max_pairs = SFP_FACILITY_PAIRS};
    return choose_weighted(&f, want, picked, weight, err);
}

/* -------------------------------------------------------------------- as in CORDS */

/* Divides `want` picks among the classes in proportion to their sizes: whole parts first, then one each by the largest
 * remainders, ties to the lower class. */
static void divide(int want, int groups, const int *group, int *quota)
{
    int n = group[groups], left = want;
    for (int g = 0; g < groups; g++) {
        quota[g] = (int)((int64_t)want * (group[g + 1] - group[g]) / n);
        left -= quota[g];
    }
    for (; left > 0; left--) {
        int best = -1;
        int64_t most = 0;
        for (int g = 0; g < groups; g++) {
            int64_t rest = (int64_t)want * (group[g + 1] - group[g]) - (int64_t)quota[g] * n;
            if (rest > most) {
                most = rest;
                best = g;
            }
        }
        quota[best]++; /* its remainder becomes negative */
    }
}

/* Writes the residuals r_i = p_i - onehot(y_i) of the candidates (n, C). */
static void gather_residuals(const sfp__candidates *from, const sfp__matrix *probs, const int32_t *label, float *r)
{
    sfp__select_gather(from, probs, r);
    for (int i = 0; i < from->n; i++)
        r[(size_t)i * (size_t)probs->width + (size_t)label[from->id[i]]] -= 1;
}

static sfp_status pick_cords(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                             float *weight, int *count, sfp_error *err)
{
    const sfp__matrix probs = {batch->probs, batch->classes};
    sfp__candidates from;
    bool whole = false;
    TRY(sfp__select_check_labels(&sfp__selector_craig, batch, err));
    TRY(sfp__select_begin(&sfp__selector_craig, batch, opt, env, 1, &probs, &from, &whole, out, weight, count, err));
    if (whole)
        return SFP_OK;
    size_t n = (size_t)from.n;
    int got = from.c < from.n ? from.c : from.n, *order, *id, *group, *quota, *picked;
    float *r;
    double *w;
    const sfp__want list[] = {{&order, n, sizeof *order}, {&id, n, sizeof *id},         {&group, n + 1, sizeof *group},
                              {&quota, n, sizeof *quota}, {&picked, n, sizeof *picked}, {&r, n * (size_t)probs.width, sizeof *r},
                              {&w, n, sizeof *w}};
    TRY(sfp__arena_list(env->arena, SFP_LIST(list), err));
    sfp__metric metric;
    sfp__facility f = {
        .env = env, .metric = &metric, .group = group, .quota = quota, .id = from.id, .max_pairs = SFP_FACILITY_PAIRS};
    f.groups = sfp__select_group_by_class(&from, batch->label, order, id, group);
    gather_residuals(&from, &probs, batch->label, r);
    TRY(sfp__metric_init(&metric, env, from.n, probs.width, r, 0, NULL, err));
    sfp__metric_square(&metric);
    if (got > 0) {
        divide(got, f.groups, group, quota);
        TRY(choose_weighted(&f, got, picked, w, err));
    }
    for (int i = 0; weight && i < got; i++)
        weight[i] = (float)w[i];
    sfp__select_end(&from, got, picked, out, weight, count);
    return SFP_OK;
}

static sfp_status pick(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    if (opt->cords)
        return pick_cords(batch, opt, env, out, weight, count, err);
    return sfp__lastlayer_pick(&sfp__selector_craig, choose, batch, opt, env, out, weight, count, err);
}

const sfp__selector sfp__selector_craig = {
    .name = "craig",
    .summary = "cover of the last-layer gradients; weights are cluster sizes",
    .needs = SFP_NEED_FEATURES | SFP_NEED_PROBS,
    .weighs = true,
    .pick = pick,
};
