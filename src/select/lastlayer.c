#include "select/lastlayer.h"

/* Features and residuals of the candidates, one below the other, in a metric. */
static sfp_status make_metric(const sfp_select_batch *batch, const sfp_matrix *features, const sfp_matrix *probs,
                              const sfp_candidates *from, const sfp_select_env *env, sfp_metric *metric, sfp_error *err)
{
    size_t n = (size_t)from->n, classes = (size_t)probs->width;
    float *h, *r;
    const sfp_want list[] = {{&h, n * (size_t)features->width, sizeof *h}, {&r, n * classes, sizeof *r}};
    sfp_status status = sfp__arena_list(env->arena, SFP_LIST(list), err);
    if (status)
        return status;
    sfp__select_gather(from, features, h);
    sfp__select_gather(from, probs, r);
    for (size_t i = 0; i < n; i++)
        r[i * classes + (size_t)batch->label[from->id[i]]] -= 1;
    return sfp__metric_init(metric, env, from->n, features->width, h, probs->width, r, err);
}

sfp_status sfp__lastlayer_pick(const sfp_selector *s, sfp_lastlayer_fn choose, const sfp_select_batch *batch,
                               const sfp_select_options *opt, const sfp_select_env *env, int *out, float *weight, int *count,
                               sfp_error *err)
{
    const sfp_matrix matrix[] = {{batch->features, batch->dim}, {batch->probs, batch->classes}};
    sfp_candidates from;
    sfp_metric metric;
    bool whole = false;
    sfp_status status = sfp__select_check_labels(s, batch, err);
    if (status || (status = sfp__select_begin(s, batch, opt, env, 2, matrix, &from, &whole, out, weight, count, err)) || whole)
        return status;
    int want = from.c < from.n ? from.c : from.n, *picked;
    double *w;
    const sfp_want list[] = {{&picked, (size_t)from.n, sizeof *picked}, {&w, (size_t)from.n, sizeof *w}};
    if ((status = make_metric(batch, &matrix[0], &matrix[1], &from, env, &metric, err)) ||
        (status = sfp__arena_list(env->arena, SFP_LIST(list), err)) ||
        (want > 0 && (status = choose(env, &metric, from.id, want, picked, w, err))))
        return status;
    for (int i = 0; weight && i < want; i++)
        weight[i] = (float)w[i];
    sfp__select_end(&from, want, picked, out, weight, count);
    return SFP_OK;
}
