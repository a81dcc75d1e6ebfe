#include "select/lastlayer.h"

sfp_status sfp__lastlayer_begin(const sfp_selector *s, const sfp_select_batch *batch, const sfp_select_options *opt,
                                const sfp_select_env *env, sfp_candidates *from, sfp_metric *metric, bool *all, int *out,
                                float *weight, int *count, sfp_error *err)
{
    const sfp_matrix matrix[] = {{batch->features, batch->dim}, {batch->probs, batch->classes}};
    float *h, *r;
    sfp_status status = sfp__select_check_labels(s, batch, err);
    if (status || (status = sfp__select_begin(s, batch, opt, env, 2, matrix, from, all, out, weight, count, err)) || *all)
        return status;
    const sfp_want list[] = {{&h, (size_t)from->n * (size_t)batch->dim, sizeof *h},
                             {&r, (size_t)from->n * (size_t)batch->classes, sizeof *r}};
    if ((status = SFP_SELECT_TAKE(env, list, err)))
        return status;
    sfp__select_gather(from, &matrix[0], h);
    sfp__select_gather(from, &matrix[1], r);
    for (int i = 0; i < from->n; i++)
        r[(size_t)i * (size_t)batch->classes + (size_t)batch->label[from->id[i]]] -= 1;
    return sfp__metric_init(metric, env, from->n, batch->dim, h, batch->classes, r, err);
}
