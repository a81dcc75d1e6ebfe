/* Learning loss (Yoo and Kweon, CVPR 2019; docs/method.md, section 11): chooses the samples with the highest loss as predicted by
 * a small network (lossnet.h). The network is trained with the learner: after each training step it takes one Adam step (learning
 * rate 1e-4) on the losses that the coreset had before that step. `lowest` chooses the lowest losses, as the authors' code does.
 * Random numbers are drawn only for the initial weights.
 *
 * Cost: one prompted pass over the batch with all tokens of the last block, then 4*128*D multiplications per sample.
 *
 * Difference from the authors: their network reads pooled feature maps of a convolutional network and is trained jointly, with
 * gradients that reach the backbone. Here the backbone is frozen and the token means are constants: those that the selection
 * used. */
#include "compute/gemm.h"
#include "compute/vec.h"
#include "select/lossnet.h"
#include "select/select_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STREAM = 40 }; /* stream of the random generator of the initial weights */

/* ---------------------------------------------------------------- the network */

enum { WIDTH = SFP__LOSSNET_WIDTH, JOINED = SFP__LOSSNET_JOINED, LAST = 2 * SFP__TAPS };

sfp_status sfp__lossnet_init(sfp__lossnet *net, int dim, sfp__rng *rng, sfp_error *err)
{
    OWNED_BY(sfp__lossnet_done) sfp__lossnet made = {.dim = dim};
    for (int k = 0; k <= SFP__TAPS; k++) {
        char w[16] = "w", b[16] = "b";
        if (k < SFP__TAPS) {
            (void)snprintf(w, sizeof w, "w%d", k);
            (void)snprintf(b, sizeof b, "b%d", k);
        }
        const int64_t rows = k < SFP__TAPS ? WIDTH : 1, shape[] = {rows, k < SFP__TAPS ? dim : JOINED};
        sfp__param *weight = &made.param[2 * k], *bias = &made.param[2 * k + 1];
        TRY(sfp__param_init(weight, w, 2, shape, err));
        TRY(sfp__param_init(bias, b, 1, &rows, err));
        double bound = 1 / sqrt((double)shape[1]);
        for (int64_t i = 0; i < rows * shape[1]; i++)
            weight->data[i] = (float)((2 * sfp__rng_double(rng) - 1) * bound);
        for (int64_t i = 0; i < rows; i++)
            bias->data[i] = (float)((2 * sfp__rng_double(rng) - 1) * bound);
    }
    *net = made;
    made = (sfp__lossnet){0};
    return SFP_OK;
}

void sfp__lossnet_done(sfp__lossnet *net)
{
    for (int i = 0; i < SFP__LOSSNET_PARAMS; i++)
        sfp__param_done(&net->param[i]);
}

void sfp__lossnet_fwd(const sfp__lossnet *net, int n, const float *taps, float *hidden, float *predicted)
{
    int token = sfp__gemm_enter();
    for (int k = 0; k < SFP__TAPS; k++) {
        float *to = hidden + (size_t)k * WIDTH;
        for (int i = 0; i < n; i++)
            memcpy(to + (size_t)i * JOINED, net->param[2 * k + 1].data, WIDTH * sizeof *to);
        sfp__gemm_plain(false, true, n, WIDTH, net->dim, taps + (size_t)k * (size_t)net->dim, SFP__TAPS * net->dim,
                        net->param[2 * k].data, net->dim, 1, to, JOINED);
    }
    sfp__gemm_leave(token);
    for (int i = 0; i < n; i++) {
        float *row = hidden + (size_t)i * JOINED;
        for (int j = 0; j < JOINED; j++)
            row[j] = row[j] > 0 ? row[j] : 0;
        predicted[i] = sfp__dot(JOINED, row, net->param[LAST].data) + net->param[LAST + 1].data[0];
    }
}

void sfp__lossnet_bwd(sfp__lossnet *net, int n, const float *taps, float *hidden, const float *grad)
{
    const float *last = net->param[LAST].data;
    for (int i = 0; i < n; i++) {
        float *row = hidden + (size_t)i * JOINED;
        sfp__axpy(JOINED, grad[i], row, net->param[LAST].grad);
        net->param[LAST + 1].grad[0] += grad[i];
        for (int j = 0; j < JOINED; j++)
            row[j] = row[j] > 0 ? grad[i] * last[j] : 0;
        for (int k = 0; k < SFP__TAPS; k++)
            sfp__axpy(WIDTH, 1, row + (size_t)k * WIDTH, net->param[2 * k + 1].grad);
    }
    int token = sfp__gemm_enter();
    for (int k = 0; k < SFP__TAPS; k++)
        sfp__gemm_plain(true, false, WIDTH, net->dim, n, hidden + (size_t)k * WIDTH, JOINED, taps + (size_t)k * (size_t)net->dim,
                        SFP__TAPS * net->dim, 1, net->param[2 * k].grad, net->dim);
    sfp__gemm_leave(token);
}

double sfp__lossnet_rank_loss(int n, const float *predicted, const float *loss, float *grad)
{
    int pairs = n / 2;
    double sum = 0;
    memset(grad, 0, (size_t)n * sizeof *grad);
    for (int i = 0; i < pairs; i++) {
        int j = n - 1 - i;
        float sign = loss[i] > loss[j] ? 1.0f : -1.0f, margin = 1 - sign * (predicted[i] - predicted[j]);
        if (!(margin > 0))
            continue;
        sum += (double)margin / pairs;
        grad[i] = -sign / (float)pairs;
        grad[j] = sign / (float)pairs;
    }
    return sum;
}

/* --------------------------------------------------------------- the selector */

typedef struct learnloss {
    sfp__lossnet net;
    sfp__adam adam;
    int max_batch;
    float *taps;      /* (max_batch, SFP__TAPS, D) */
    float *hidden;    /* (max_batch, 512) */
    float *predicted; /* (max_batch) */
    float *loss;      /* (max_batch) */
    float *grad;      /* (max_batch) */
} learnloss;

static void close_state(void *state)
{
    if (state)
        sfp__lossnet_done(&((learnloss *)state)->net);
    sfp__free(state);
}

static sfp_status open_state(int dim, int max_batch, uint64_t seed, void **state, sfp_error *err)
{
    sfp__rng rng = sfp__rng_init(seed, STREAM);
    size_t b = (size_t)max_batch;
    OWNED void *block = NULL;
    learnloss *s, made = {.adam = sfp__adam_defaults(), .max_batch = max_batch};
    made.adam.lr = 1e-4f;
    const sfp__want list[] = {{&s, 1, sizeof *s}, /* must be first: its address is that of the block */
                              {&made.taps, b * SFP__TAPS * (size_t)dim, sizeof *made.taps},
                              {&made.hidden, b * JOINED, sizeof *made.hidden},
                              {&made.predicted, b, sizeof *made.predicted},
                              {&made.loss, b, sizeof *made.loss},
                              {&made.grad, b, sizeof *made.grad}};
    TRY(sfp__block(&block, SFP__LIST(list), err));
    TRY(sfp__lossnet_init(&made.net, dim, &rng, err));
    *s = made;
    *state = TAKE(block);
    return SFP_OK;
}

static sfp_status pick(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    learnloss *s = env->state;
    const sfp__matrix taps = {batch->taps, SFP__TAPS * batch->dim};
    sfp__candidates from;
    bool whole = false;
    int *order;
    if (!s || batch->b > s->max_batch || batch->dim != s->net.dim)
        return sfp__fail(err, SFP_EINVAL,
                         "selector 'learnloss': the batch has %d samples of width %d, expected at most %d of width %d", batch->b,
                         batch->dim, s ? s->max_batch : 0, s ? s->net.dim : 0);
    TRY(sfp__select_begin(&sfp__selector_learnloss, batch, opt, env, 1, &taps, &from, &whole, out, weight, count, err));
    if (whole)
        return SFP_OK;
    const sfp__want want = {&order, (size_t)from.n, sizeof *order};
    TRY(sfp__arena_list(env->arena, 1, &want, err));
    sfp__select_gather(&from, &taps, s->taps);
    sfp__lossnet_fwd(&s->net, from.n, s->taps, s->hidden, s->predicted);
    sfp__rank_descending(from.n, s->predicted, order);
    int got = from.c < from.n ? from.c : from.n;
    sfp__select_equal_weights(got, weight);
    sfp__select_end(&from, got, order, out, weight, count);
    return SFP_OK;
}

static void learn(void *state, const sfp__select_batch *batch, int n, const int *index, const float *loss)
{
    learnloss *s = state;
    size_t width = SFP__TAPS * (size_t)batch->dim;
    int finite = 0;
    for (int i = 0; i < n; i++) {
        const float *from = batch->taps + (size_t)index[i] * width;
        float zero = 0.0f * loss[i];
        for (size_t k = 0; k < width; k++)
            zero += 0.0f * from[k];
        if (zero != 0.0f)
            continue; /* a NaN or infinite value would make the weights permanently unusable */
        memcpy(s->taps + (size_t)finite * width, from, width * sizeof *from);
        s->loss[finite++] = loss[i];
    }
    if (finite < 2)
        return;
    for (int i = 0; i < SFP__LOSSNET_PARAMS; i++)
        sfp__param_zero_grad(&s->net.param[i]);
    sfp__lossnet_fwd(&s->net, finite, s->taps, s->hidden, s->predicted);
    (void)sfp__lossnet_rank_loss(finite, s->predicted, s->loss, s->grad);
    sfp__lossnet_bwd(&s->net, finite, s->taps, s->hidden, s->grad);
    for (int i = 0; i < SFP__LOSSNET_PARAMS; i++)
        sfp__adam_step(&s->adam, &s->net.param[i]);
}

/* Lists the values, both moments and the step counts of each parameter. */
static int state_tensors(void *state, int index, sfp__state_tensor *out)
{
    enum { EACH = 4 };
    learnloss *s = state;
    if (index >= EACH * SFP__LOSSNET_PARAMS)
        return EACH * SFP__LOSSNET_PARAMS;
    static const char *const prefix[EACH] = {"", "adam.m.", "adam.v.", "adam.steps."};
    const sfp__param *p = &s->net.param[index / EACH];
    int kind = index % EACH;
    void *const data[EACH] = {p->data, p->m, p->v, p->steps};
    *out = (sfp__state_tensor){
        .type = kind < 3 ? SFP__STATE_F32 : SFP__STATE_I32, .ndim = kind < 3 ? p->ndim : 1, .data = data[kind]};
    (void)snprintf(out->name, sizeof out->name, "%s%s", prefix[kind], p->name);
    for (int i = 0; i < out->ndim; i++)
        out->shape[i] = p->shape[i];
    return EACH * SFP__LOSSNET_PARAMS;
}

const sfp__selector sfp__selector_learnloss = {
    .name = "learnloss",
    .summary = "highest loss as predicted by a small network",
    .needs = SFP__NEED_TAPS,
    .pick = pick,
    .open = open_state,
    .close = close_state,
    .learn = learn,
    .state_tensors = state_tensors,
};
