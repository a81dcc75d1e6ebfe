/* Pools from which a sample chooses components. The components whose keys have the largest cosine with its query (ties: lower
 * index) are concatenated to its prefix, first their key halves, then their value halves. The choice itself has no gradient.
 * Keys learn from a separate term of the loss:
 *
 *     sum_b w_b mean over layers with keys and components chosen of (1 - cos(q_b, K_k))
 *
 * w_b is the weight of the sample's cross-entropy. Because coreset and replay each have a mean, the term is a mean in each.
 * dK_k = -w (qh - cos Kh) / |K|, with qh and Kh of unit length.
 *
 * A sample of the current task chooses only from the active components. Replayed samples and all test samples choose from all
 * components that are not unused: a slot of the buffer does not contain the task of its sample, so the nearest key decides. A
 * layer without keys has one component, which all samples use.
 *
 * Cost per layer: 2 b N D operations for the cosines, and per sample parts * N comparisons and one copy; the backward pass does
 * as many additions. */
#include "compute/gemm.h"
#include "compute/vec.h"
#include "fingerprint/pool_kind.h"

#include <math.h>
#include <string.h>

enum { MAX_PARTS = 8 };

static void prepare(sfp__fp *f, int l)
{
    const sfp__fp_layer *y = &f->layer[l];
    int D = f->D;
    for (int k = 0; y->k.data && k < f->active_end; k++) {
        const float *K = y->k.data + (size_t)k * (size_t)D;
        float length = fmaxf(sqrtf(sfp__dot(D, K, K)), SFP__FP_TINY), *unit = y->ak + (size_t)k * (size_t)D;
        y->knorm[k] = length;
        for (int c = 0; c < D; c++)
            unit[c] = K[c] / length;
    }
}

/* Chooses the `parts` components of [from, active_end) with the largest cosines, in that order; NaN is last. */
static void choose_nearest(int from, int active_end, int parts, const float *cosine, int *pick)
{
    for (int j = 0; j < parts; j++) {
        int best = -1;
        for (int k = from; k < active_end; k++) {
            bool chosen = false;
            for (int i = 0; i < j; i++)
                chosen = chosen || pick[i] == k;
            if (!chosen && (best < 0 || cosine[k] > cosine[best] || (isnan(cosine[best]) && !isnan(cosine[k]))))
                best = k;
        }
        pick[j] = best < 0 ? 0 : best;
    }
}

static void choose_components(const sfp__fp_view *v, int l, bool any_task, const float *cosine, int *pick)
{
    if (v->ak[l])
        choose_nearest(any_task ? 0 : v->frozen_end, v->active_end[l], v->parts, cosine, pick);
    else
        pick[0] = 0;
}

/* Returns the offset in floats of half `h` of part j in a prefix; all key halves precede all value halves. */
static size_t half_at(int parts, int j, int h, size_t half)
{
    return (size_t)(h * parts + j) * half;
}

static void compose(const sfp__fp_view *v, int l, const sfp__composing *c)
{
    int D = v->dim, N = v->active_end[l], pick[MAX_PARTS] = {0};
    size_t half = (size_t)(v->length / 2) * (size_t)D;
    for (int i = 0; i < c->n && v->ak[l]; i++) {
        const float *q = c->query + (size_t)i * (size_t)D;
        float *unit = c->work + (size_t)i * (size_t)D, length = fmaxf(sqrtf(sfp__dot(D, q, q)), SFP__FP_TINY);
        for (int k = 0; k < D; k++)
            unit[k] = q[k] / length;
    }
    if (v->ak[l])
        sfp__gemm_plain(false, true, c->n, N, D, c->work, D, v->ak[l], D, 0, c->alpha, c->ld);
    for (int i = 0; i < c->n; i++) {
        float *prefix = c->prefix + (size_t)i * 2 * half * (size_t)v->parts;
        choose_components(v, l, c->test || (c->replayed && c->replayed[i]), c->alpha + (size_t)i * (size_t)c->ld, pick);
        for (int j = 0; j < v->parts; j++)
            for (int h = 0; h < 2; h++) {
                float *to = prefix + half_at(v->parts, j, h, half);
                memcpy(to, v->prefix[l] + (size_t)(2 * pick[j] + h) * half, half * sizeof *to);
                for (int r = 0; v->bias[l] && r < v->length / 2; r++)
                    sfp__axpy(D, 1, v->bias[l] + h * D, to + (size_t)r * (size_t)D);
            }
    }
}

/* Returns the loss term of one sample and one of its components, and adds its gradient; `scale` is the sample's weight divided by
 * the number of choices. */
static double key_backward(sfp__fp *f, int l, int i, int k, float scale)
{
    const sfp__fp_layer *y = &f->layer[l];
    size_t D = (size_t)f->D, at = (size_t)k * D;
    float cosine = y->alpha[(size_t)i * (size_t)f->opt.pool + (size_t)k], by = -scale / y->knorm[k];
    if (k >= f->frozen_end) {
        sfp__axpy(f->D, by, f->squares + (size_t)i * D, y->k.grad + at);
        sfp__axpy(f->D, -by * cosine, y->ak + at, y->k.grad + at);
    }
    return (double)scale * (1 - (double)cosine);
}

static double backward(sfp__fp *f, int l, int first, int n, float *dprefix)
{
    const sfp__fp_view *v = &f->view;
    int pick[MAX_PARTS] = {0}, half = v->length / 2 * v->dim, choices = v->parts * (f->layers - f->kind->shared_layers);
    double loss = 0;
    memset(dprefix, 0, (size_t)v->active_end[l] * 2 * (size_t)half * sizeof *dprefix);
    for (int i = first; i < first + n; i++) {
        const float *de = f->grad[l].e + (size_t)i * 2 * (size_t)half * (size_t)v->parts;
        choose_components(v, l, f->samples.replayed && f->samples.replayed[i],
                          f->layer[l].alpha + (size_t)i * (size_t)f->opt.pool, pick);
        for (int j = 0; j < v->parts; j++) {
            for (int h = 0; h < 2; h++)
                sfp__axpy(half, 1, de + half_at(v->parts, j, h, (size_t)half),
                          dprefix + (size_t)(2 * pick[j] + h) * (size_t)half);
            if (v->ak[l])
                loss += key_backward(f, l, i, pick[j], f->samples.weight[i] / (float)choices);
        }
    }
    return loss;
}

/* ------------------------------------------------------------------------ L2P */

/* L2P (Wang et al. 2022, "Learning to Prompt for Continual Learning", section 4; docs/method.md, section 13): one pool of prompts
 * for all tasks, in one layer. A sample uses the five prompts whose keys are nearest to its query; the term mean(1 - cos) moves
 * their keys towards the query.
 *
 * The layer is the first of --prompt-layers. Tasks have no effect: all prompts are always active, with known tasks and on
 * task-free streams, and none is activated later.
 *
 * Differences from the authors' code:
 * - The halves of a prompt are added to the keys and the values of the layer (--prefix), as in every kind here and in
 *   CODA-Prompt's release of L2P. The authors prepend prompts to the tokens and classify by the mean of the resulting tokens. All
 *   parts of this program read the class token.
 * - The term is a mean over samples and choices with weight 1. The authors use a mean over samples of sums over choices with a
 *   coefficient; CODA-Prompt's release combines every sample with the choices of every other one (cos_sim[:, k_idx]). Keys have
 *   no other term, so its scale hardly matters to Adam.
 * - Prompts and keys start orthonormal (docs/method.md, section 2) instead of uniform in [0, 1): with keys that all have the same
 *   direction, the choice would depend on noise.
 * - Prompts are not weighted by how often earlier tasks chose them (an option of the paper for known task boundaries).
 * - With --attune on (default) prompts are attuned like fingerprints; off is the published method. */
static sfp_status limit_l2p_to_first_layer(sfp__fp_options *o, sfp_error *err)
{
    (void)err;
    o->last_layer = o->first_layer;
    return SFP_OK;
}

const sfp__pool_kind sfp__pool_l2p = {.name = "l2p",
                                      .parts = 5,
                                      .whole = true,
                                      .check = limit_l2p_to_first_layer,
                                      .prepare = prepare,
                                      .compose = compose,
                                      .backward = backward};

/* ----------------------------------------------------------------- DualPrompt */

/* DualPrompt (Wang et al. 2022, "DualPrompt: Complementary Prompting for Rehearsal-free Continual Learning", section 4;
 * docs/method.md, section 13). Each of the first two prompted layers has a general prompt, which all samples share and all tasks
 * train. The later layers have one expert prompt per task, with a key. Training uses the expert of the task, a test the one whose
 * key is nearest to the query. The term mean(1 - cos) moves the key of the expert towards the task's queries.
 *
 * With J known tasks there are J experts, for any --pool; those of earlier tasks are frozen. On a task-free stream an expert is
 * activated when coda would activate a span (docs/method.md, section 9), at most --pool of them, and only this one is active. If
 * another one is due after the last, all become active from then on, and a sample of the stream uses the nearest expert, like a
 * test sample.
 *
 * Differences from the authors' code:
 * - The authors have no rehearsal buffer. Here a replayed sample uses the nearest expert, as in a test: then the head is trained
 *   with the prefixes that a test uses, and samples of earlier tasks keep their frozen experts.
 * - Each layer's expert has its own key, as in CODA-Prompt's release; the authors have one key for all layers. The keys of all
 *   layers receive the same queries.
 * - The term is a mean over samples and layers with weight 1; the authors' has a coefficient, CODA-Prompt's release sums.
 * - General and expert prompts have one length (--prompt-length; the paper: 5 and 20) and start orthonormal (docs/method.md,
 *   section 2) instead of uniform. They are attuned like fingerprints unless --attune is off. */
enum { GENERAL_LAYERS = 2 };

static sfp_status check_dualprompt(sfp__fp_options *o, sfp_error *err)
{
    if (o->last_layer - o->first_layer < GENERAL_LAYERS)
        return sfp__fail_key(
            err, "prompt-layers", SFP_EINVAL,
            "prompt-layers is %d-%d, expected at least %d layers with pool-kind dualprompt: %d are for the general prompt",
            o->first_layer, o->last_layer, GENERAL_LAYERS + 1, GENERAL_LAYERS);
    if (o->tasks > 0)
        o->pool = o->tasks;
    o->span = 1;
    return SFP_OK;
}

const sfp__pool_kind sfp__pool_dualprompt = {.name = "dualprompt",
                                             .parts = 1,
                                             .shared_layers = GENERAL_LAYERS,
                                             .check = check_dualprompt,
                                             .prepare = prepare,
                                             .compose = compose,
                                             .backward = backward};
