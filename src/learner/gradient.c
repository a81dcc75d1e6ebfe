/* Gradients of the learnable parameters for chosen samples of a batch: what base/need.h promises to who asks for them. One
 * forward and backward pass a call; the parameters stay as they are. */
#include "learner/learner_internal.h"

#include <string.h>

size_t sfp__learner_gradient_length(const sfp_learner *l)
{
    int count = 0;
    size_t n = 0;
    sfp_param **params = sfp__fp_params(l->fp, &count);
    for (int i = 0; i < count; i++)
        n += (size_t)(params[i]->hi - params[i]->lo) * params[i]->width;
    return n;
}

/* The samples of a step, those with unknown queries first; returns how many of these. */
static int fill(sfp_learner *l, int n, const int *index, const float **x)
{
    int at = 0, unknown = 0;
    for (int known = 0; known < 2; known++) {
        for (int i = 0; i < n; i++) {
            int k = index[i];
            if ((l->has_query[k] || l->opt.fp.query_one) != known)
                continue;
            x[at] = l->x + (size_t)k * l->pixels;
            l->items[at] = (sfp__item){.index = k};
            l->step_label[at] = l->label[k];
            l->step_weight[at] = 1.0f / (float)n;
            l->step_masked[at] = !l->buffer && l->opt.fp.tasks > 0;
            memcpy(l->step_query + (size_t)at * (size_t)l->D, l->query + (size_t)k * (size_t)l->D, (size_t)l->D * sizeof(float));
            at++;
        }
        unknown = known ? unknown : at;
    }
    return unknown;
}

sfp_status sfp__learner_gradient(void *learner, int n, const int *index, float *out, sfp_error *err)
{
    sfp_learner *l = learner;
    for (int i = 0; i < n; i++)
        if (index[i] < 0 || index[i] >= l->select_batch.b)
            return sfp__fail(err, SFP_EINVAL, "a gradient of sample %d, expected 0 to %d", index[i], l->select_batch.b - 1);
    if (n < 1 || n > l->opt.batch)
        return sfp__fail(err, SFP_EINVAL, "a gradient of %d samples, expected 1 to %d", n, l->opt.batch);
    int unknown = fill(l, n, index, l->xs), count = 0;
    const sfp_train_batch batch = {.n = n,
                                   .x = l->xs,
                                   .label = l->step_label,
                                   .weight = l->step_weight,
                                   .masked = l->step_masked,
                                   .allowed = l->allowed,
                                   .query = l->step_query,
                                   .queries = unknown,
                                   .terms = 1};
    sfp_train_result result = {0};
    sfp_status s = sfp__trainer_gradients(l->trainer, &batch, &result, err);
    sfp_param **params = sfp__fp_params(l->fp, &count);
    for (int i = 0; !s && i < unknown; i++) {
        int k = l->items[i].index;
        memcpy(l->query + (size_t)k * (size_t)l->D, l->step_query + (size_t)i * (size_t)l->D, (size_t)l->D * sizeof(float));
        l->has_query[k] = true;
    }
    for (int i = 0; !s && i < count; i++) {
        const sfp_param *p = params[i];
        size_t from = (size_t)p->lo * p->width, floats = (size_t)(p->hi - p->lo) * p->width;
        memcpy(out, p->grad + from, floats * sizeof *out);
        out += floats;
    }
    for (int i = 0; i < l->select_batch.b; i++) /* as selection left them */
        l->xs[i] = l->x + (size_t)i * l->pixels;
    return s;
}
