/* The part of base/ask.h that ends at pixels: gradients of the loss and of features to the pictures a buffer method has made, and
 * what a slot keeps to be scored.
 *
 * Along v the parameters are moved in place and put back from a copy: theta + h*v - h*v is not theta in floating point. Rows that
 * do not learn stay where they are, so that what the fingerprints keep of them (attunement's maps) is not computed again.
 *
 * Queries are constants (SPEC section 2), also where they belong to the picture that is differentiated: the reading of every such
 * system, whose query pass runs without a graph. With `query one` they are tokens that move with the parameters: at theta + h*v
 * the ones of there are held. */
#include "learner/learner_internal.h"

#include <string.h>

/* The values that learn, one parameter after another, into `kept`; then they become kept + h*v. */
static void move_along(sfp_learner *l, const float *v, float h, float *kept)
{
    int count = 0;
    sfp_param **params = sfp__fp_params(l->fp, &count);
    for (int i = 0; i < count; i++) {
        size_t n = (size_t)(params[i]->hi - params[i]->lo) * params[i]->width;
        float *at = params[i]->data + (size_t)params[i]->lo * params[i]->width;
        memcpy(kept, at, n * sizeof *at);
        for (size_t k = 0; k < n; k++)
            at[k] += h * v[k];
        kept += n;
        v += n;
    }
    sfp__fp_moved(l->fp);
}

static void put_back(sfp_learner *l, const float *kept)
{
    int count = 0;
    sfp_param **params = sfp__fp_params(l->fp, &count);
    for (int i = 0; i < count; i++) {
        size_t n = (size_t)(params[i]->hi - params[i]->lo) * params[i]->width;
        memcpy(params[i]->data + (size_t)params[i]->lo * params[i]->width, kept, n * sizeof *kept);
        kept += n;
    }
    sfp__fp_moved(l->fp);
}

/* The pictures as samples of a step that all count the same, of whatever task, their queries to be computed. */
static sfp_train_batch samples(sfp_learner *l, int n, const float *const *x, const int32_t *label)
{
    for (int i = 0; i < n; i++) {
        l->step_weight[i] = 1.0f / (float)n;
        l->step_masked[i] = false;
        l->step_rehearsed[i] = true;
    }
    return (sfp_train_batch){.n = n,
                             .x = x,
                             .label = label,
                             .weight = l->step_weight,
                             .masked = l->step_masked,
                             .allowed = l->allowed,
                             .rehearsed = l->step_rehearsed,
                             .query = l->step_query,
                             .queries = l->opt.fp.query_one ? 0 : n,
                             .terms = 1};
}

static sfp_status check_count(const sfp_learner *l, int n, sfp_error *err)
{
    int most = l->most > l->opt.batch ? l->most : l->opt.batch;
    if (n < 1 || n > most)
        return sfp__fail(err, SFP_EINVAL, "gradients to %d pictures, expected 1 to %d", n, most);
    return SFP_OK;
}

sfp_status sfp__ask_pixels(void *learner, int n, const float *const *x, const int32_t *label, const float *v, float h, float *dx,
                           sfp_error *err)
{
    sfp_learner *l = learner;
    sfp_status s = check_count(l, n, err);
    if (s)
        return s;
    float *kept = NULL;
    if (v) {
        size_t count = sfp__learner_gradient_length(l);
        sfp__arena_reset(&l->pixels_arena);
        if (!(kept = sfp__arena_take(&l->pixels_arena, count, sizeof *kept)))
            return sfp__fail_nomem(err, count * sizeof *kept);
        move_along(l, v, h, kept);
    }
    const sfp_train_batch batch = samples(l, n, x, label);
    s = sfp__trainer_pixels(l->trainer, &batch, dx, err);
    if (v)
        put_back(l, kept);
    return s;
}

sfp_status sfp__ask_feature_pixels(void *learner, int n, const float *const *x, const float *dfeature, float *dx, sfp_error *err)
{
    sfp_learner *l = learner;
    sfp_status s = check_count(l, n, err);
    if (s)
        return s;
    const sfp_train_batch batch = samples(l, n, x, NULL);
    return sfp__trainer_feature_pixels(l->trainer, &batch, dfeature, dx, err);
}

sfp_status sfp__ask_embed_at(void *learner, int n, const float *const *x, float *out, sfp_error *err)
{
    sfp_learner *l = learner;
    sfp_status s = check_count(l, n, err);
    return s ? s : sfp__trainer_embed(l->trainer, n, x, out, err);
}
