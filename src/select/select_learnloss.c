/* Learning loss (Yoo and Kweon, CVPR 2019; SPEC section 11): the samples with the highest predicted loss, by a network that
 * learns beside the learner (lossnet.h): after each training step one of Adam, rate 1e-4, on the losses of the coreset before
 * that step. `lowest` takes the lowest, as the code this is compared with does. Draws no random number but for the first weights.
 *
 * Cost: one prompted pass over the batch with all tokens of the last block, then 4*128*D multiplications a sample.
 *
 * From the authors: their network reads pooled feature maps of a convolutional network and is trained jointly, its gradients
 * reaching the backbone; the backbone here is frozen and the means are detached. Token means are those that selection saw. */
#include "base/mem.h"
#include "select/lossnet.h"
#include "select/select_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STREAM = 40 }; /* of the generator of the first weights */

typedef struct learnloss {
    sfp_lossnet net;
    sfp_adam adam;
    int max_batch;
    float *taps;      /* (max_batch, SFP_TAPS, D) */
    float *hidden;    /* (max_batch, 512) */
    float *predicted; /* (max_batch) */
    float *loss;      /* (max_batch) */
    float *grad;      /* (max_batch) */
} learnloss;

static void close_state(void *state)
{
    learnloss *s = state;
    if (!s)
        return;
    sfp__lossnet_done(&s->net);
    sfp__free(s->taps);
    sfp__free(s->hidden);
    sfp__free(s->predicted);
    sfp__free(s->loss);
    sfp__free(s->grad);
    sfp__free(s);
}

static sfp_status open_state(int dim, int max_batch, uint64_t seed, void **state, sfp_error *err)
{
    learnloss *s = sfp__calloc(1, sizeof *s);
    if (!s)
        return sfp__fail_nomem(err);
    sfp_rng rng = sfp__rng_init(seed, STREAM);
    size_t b = (size_t)max_batch, width = SFP_TAPS * (size_t)dim;
    s->adam = sfp__adam_defaults();
    s->adam.lr = 1e-4f;
    s->max_batch = max_batch;
    s->taps = sfp__malloc(b * width * sizeof(float));
    s->hidden = sfp__malloc(b * SFP_LOSSNET_JOINED * sizeof(float));
    s->predicted = sfp__malloc(b * sizeof(float));
    s->loss = sfp__malloc(b * sizeof(float));
    s->grad = sfp__malloc(b * sizeof(float));
    sfp_status status = s->taps && s->hidden && s->predicted && s->loss && s->grad ? sfp__lossnet_init(&s->net, dim, &rng, err)
                                                                                   : sfp__fail_nomem(err);
    if (status)
        close_state(s);
    else
        *state = s;
    return status;
}

static sfp_status pick(const sfp_select_batch *batch, const sfp_select_options *opt, const sfp_select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    learnloss *s = env->state;
    const sfp_matrix taps = {batch->taps, SFP_TAPS * batch->dim};
    sfp_candidates from;
    bool whole = false;
    int *order;
    if (!s || batch->b > s->max_batch || batch->dim != s->net.dim)
        return sfp__fail(err, SFP_EINVAL,
                         "selector 'learnloss': a batch of %d samples of width %d, expected at most %d of width %d", batch->b,
                         batch->dim, s ? s->max_batch : 0, s ? s->net.dim : 0);
    sfp_status status =
        sfp__select_begin(&sfp__selector_learnloss, batch, opt, env, 1, &taps, &from, &whole, out, weight, count, err);
    if (status != SFP_OK || whole)
        return status;
    const sfp_want want = {&order, (size_t)from.n, sizeof *order};
    if ((status = sfp__arena_list(env->arena, 1, &want, err)))
        return status;
    sfp__select_gather(&from, &taps, s->taps);
    sfp__lossnet_fwd(&s->net, from.n, s->taps, s->hidden, s->predicted);
    for (int i = 0; i < from.n && opt->lowest; i++)
        s->predicted[i] = -s->predicted[i];
    sfp__rank_descending(from.n, s->predicted, order);
    int got = from.c < from.n ? from.c : from.n;
    sfp__select_equal_weights(got, weight);
    sfp__select_end(&from, got, order, out, weight, count);
    return SFP_OK;
}

static void learn(void *state, const sfp_select_batch *batch, int n, const int *index, const float *loss)
{
    learnloss *s = state;
    size_t width = SFP_TAPS * (size_t)batch->dim;
    int kept = 0;
    for (int i = 0; i < n; i++) {
        const float *from = batch->taps + (size_t)index[i] * width;
        float zero = 0.0f * loss[i];
        for (size_t k = 0; k < width; k++)
            zero += 0.0f * from[k];
        if (zero != 0.0f)
            continue; /* a number that is not finite would stay in the weights for ever */
        memcpy(s->taps + (size_t)kept * width, from, width * sizeof *from);
        s->loss[kept++] = loss[i];
    }
    if (kept < 2)
        return;
    for (int i = 0; i < SFP_LOSSNET_PARAMS; i++)
        sfp__param_zero_grad(&s->net.param[i]);
    sfp__lossnet_fwd(&s->net, kept, s->taps, s->hidden, s->predicted);
    (void)sfp__lossnet_rank(kept, s->predicted, s->loss, s->grad);
    sfp__lossnet_bwd(&s->net, kept, s->taps, s->hidden, s->grad);
    for (int i = 0; i < SFP_LOSSNET_PARAMS; i++)
        sfp__adam_step(&s->adam, &s->net.param[i]);
}

/* Values, both moments and the steps of each parameter. */
static int parts(void *state, int index, sfp_part *out)
{
    enum { EACH = 4 };
    learnloss *s = state;
    if (index >= EACH * SFP_LOSSNET_PARAMS)
        return EACH * SFP_LOSSNET_PARAMS;
    static const char *const prefix[EACH] = {"", "adam.m.", "adam.v.", "adam.steps."};
    const sfp_param *p = &s->net.param[index / EACH];
    int what = index % EACH;
    void *const data[EACH] = {p->data, p->m, p->v, p->steps};
    *out = (sfp_part){.type = what < 3 ? SFP_PART_F32 : SFP_PART_I32, .ndim = what < 3 ? p->ndim : 1, .data = data[what]};
    (void)snprintf(out->name, sizeof out->name, "%s%s", prefix[what], p->name);
    for (int i = 0; i < out->ndim; i++)
        out->shape[i] = p->shape[i];
    return EACH * SFP_LOSSNET_PARAMS;
}

const sfp_selector sfp__selector_learnloss = {
    .name = "learnloss",
    .summary = "the highest loss, as a small network predicts it",
    .needs = SFP_NEED_TAPS,
    .pick = pick,
    .open = open_state,
    .close = close_state,
    .learn = learn,
    .parts = parts,
};
