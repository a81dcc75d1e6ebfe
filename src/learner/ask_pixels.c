/* The part of buffer/ask.h that ends at pixels: gradients of the loss and of features to the pictures a buffer method has made,
 * and what a slot keeps to be scored.
 *
 * Along v the parameters are moved in place and put back from a copy: theta + h*v - h*v is not theta in floating point. Rows that
 * do not learn stay where they are, so that what the fingerprints keep of them (attunement's maps) is not computed again. The
 * others move once a question, however many pictures it has, which go through some at a time.
 *
 * Queries are constants (SPEC section 2), also where they belong to the picture that is differentiated: the reading of every such
 * system, whose query pass runs without a graph. With `query one` they are tokens that move with the parameters: at theta + h*v
 * the ones of there are held. */
#include "learner/learner_internal.h"

#include "compute/vec.h"

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

/* Pictures in a pass, whose gradients lie in ask_x. */
static int pass_size(const sfp_learner *l, int left)
{
    int most = l->room < SFP_ASK_SLOTS ? l->room : SFP_ASK_SLOTS;
    return left < most ? left : most;
}

static bool all_known(const sfp_pictures *p)
{
    for (int i = 0; i < p->n && p->query; i++)
        if (!p->known[i])
            return false;
    return p->query;
}

/* Pictures [first, first + n) as samples of a step that all count the same, of whatever task. */
static sfp_train_batch samples(sfp_learner *l, const sfp_pictures *p, int first, int n)
{
    bool known = all_known(p);
    for (int i = 0; i < n; i++) {
        l->step_weight[i] = 1.0f / (float)p->n;
        l->step_masked[i] = false;
        l->step_rehearsed[i] = true;
        if (known)
            memcpy(l->step_query + (size_t)i * (size_t)l->D, p->query[first + i], (size_t)l->D * sizeof *l->step_query);
    }
    return (sfp_train_batch){.n = n,
                             .x = p->x + first,
                             .label = p->label ? p->label + first : NULL,
                             .weight = l->step_weight,
                             .masked = l->step_masked,
                             .allowed = l->allowed,
                             .rehearsed = l->step_rehearsed,
                             .query = l->step_query,
                             .queries = known || l->opt.fp.query_one ? 0 : n,
                             .terms = 1};
}

static sfp_status check_count(int n, sfp_error *err)
{
    return n < 1 ? sfp__fail(err, SFP_EINVAL, "a question about %d pictures, expected at least 1", n) : SFP_OK;
}

/* dx += scale * the gradients at the parameters as they are. dfeature NULL: of the loss. */
static sfp_status add_gradients(sfp_learner *l, const sfp_pictures *p, const float *dfeature, float scale, float *const *dx,
                                sfp_error *err)
{
    for (int first = 0, n; first < p->n; first += n) {
        n = pass_size(l, p->n - first);
        const sfp_train_batch batch = samples(l, p, first, n);
        const float *of = dfeature ? dfeature + (size_t)first * (size_t)l->D : NULL;
        sfp_status s = of ? sfp__trainer_feature_pixels(l->trainer, &batch, of, l->ask_x, err)
                          : sfp__trainer_pixels(l->trainer, &batch, l->ask_x, err);
        if (s)
            return s;
        for (int i = 0; i < n; i++)
            sfp__axpy((int)l->pixels, scale, l->ask_x + (size_t)i * l->pixels, dx[first + i]);
    }
    return SFP_OK;
}

sfp_status sfp__ask_pixels(void *learner, const sfp_pictures *p, const float *v, float h, float scale, float *const *dx,
                           sfp_error *err)
{
    sfp_learner *l = learner;
    sfp_status s = check_count(p->n, err);
    if (s)
        return s;
    float *kept = NULL;
    if (v) {
        size_t count = sfp__learner_gradient_length(l);
        sfp__arena_reset(&l->pixels_arena);
        if (!(kept = sfp__arena_take(&l->pixels_arena, count, sizeof *kept)))
            return sfp__fail_nomem(err);
        move_along(l, v, h, kept);
    }
    s = add_gradients(l, p, NULL, scale, dx, err);
    if (v)
        put_back(l, kept);
    return s;
}

sfp_status sfp__ask_feature_pixels(void *learner, const sfp_pictures *p, const float *dfeature, float *const *dx, sfp_error *err)
{
    sfp_status s = check_count(p->n, err);
    return s ? s : add_gradients(learner, p, dfeature, 1, dx, err);
}

sfp_status sfp__ask_embed_at(void *learner, int n, const float *const *x, float *out, sfp_error *err)
{
    sfp_learner *l = learner;
    sfp_status s = check_count(n, err);
    for (int first = 0, some; !s && first < n; first += some) {
        some = pass_size(l, n - first);
        s = sfp__trainer_embed(l->trainer, some, x + first, out + (size_t)first * (size_t)l->D, err);
    }
    return s;
}
