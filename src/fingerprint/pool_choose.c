/* Pools that a sample chooses from: the components whose keys have the largest
 * cosine with its query (ties: lower index) make its prefix, one after another,
 * their key halves first, then their value halves. The choice itself has no
 * gradient; keys learn from a term of their own,
 *
 *     sum_b w_b mean over layers with keys and components chosen of (1 - cos(q_b, K_k)),
 *
 * w_b the weight of the sample's cross-entropy: with the means of coreset and
 * replay it is a mean in each. dK_k = -w (qh - cos Kh) / |K|, qh and Kh of unit
 * length.
 *
 * A sample of the present task has only the components that learn to choose
 * from; rehearsed samples, and all in a test, have every one in use: a slot of
 * the buffer does not tell the task it came with, its key does. A layer without
 * keys has one component, which all take.
 *
 * Cost a layer: 2 b N D operations for the cosines, parts * N comparisons and a
 * copy a sample; the backward is as many additions. */
#include "compute/gemm.h"
#include "compute/vec.h"
#include "fingerprint/pool_kind.h"

#include <math.h>
#include <string.h>

enum { MOST_PARTS = 8 };

static void prepare(sfp__fp *f, int l)
{
    const sfp__fp_layer *y = &f->layer[l];
    int D = f->D;
    for (int k = 0; y->k.data && k < f->active_end; k++) {
        const float *K = y->k.data + (size_t)k * (size_t)D;
        float length = fmaxf(sqrtf(sfp__dot(D, K, K)), SFP_FP_TINY), *unit = y->ak + (size_t)k * (size_t)D;
        y->knorm[k] = length;
        for (int c = 0; c < D; c++)
            unit[c] = K[c] / length;
    }
}

/* The `parts` components of [from, open) with the largest cosines, in that order. NaN comes last. */
static void choose(int from, int active_end, int parts, const float *cosine, int *pick)
{
    for (int j = 0; j < parts; j++) {
        int best = -1;
        for (int k = from; k < active_end; k++) {
            bool taken = false;
            for (int i = 0; i < j; i++)
                taken = taken || pick[i] == k;
            if (!taken && (best < 0 || cosine[k] > cosine[best] || (isnan(cosine[best]) && !isnan(cosine[k]))))
                best = k;
        }
        pick[j] = best < 0 ? 0 : best;
    }
}

static void pick_of(const sfp__fp_view *v, int l, bool any_task, const float *cosine, int *pick)
{
    if (v->ak[l])
        choose(any_task ? 0 : v->frozen_end, v->active_end[l], v->parts, cosine, pick);
    else
        pick[0] = 0;
}

/* Where half `h` of part j of a prefix begins, in floats; a component's halves lie together. */
static size_t half_at(int parts, int j, int h, size_t half)
{
    return (size_t)(h * parts + j) * half;
}

static void compose(const sfp__fp_view *v, int l, const sfp__composing *c)
{
    int D = v->dim, N = v->active_end[l], pick[MOST_PARTS] = {0};
    size_t half = (size_t)(v->length / 2) * (size_t)D;
    for (int i = 0; i < c->n && v->ak[l]; i++) {
        const float *q = c->query + (size_t)i * (size_t)D;
        float *unit = c->work + (size_t)i * (size_t)D, length = fmaxf(sqrtf(sfp__dot(D, q, q)), SFP_FP_TINY);
        for (int k = 0; k < D; k++)
            unit[k] = q[k] / length;
    }
    if (v->ak[l])
        sfp__gemm_plain(false, true, c->n, N, D, c->work, D, v->ak[l], D, 0, c->alpha, c->ld);
    for (int i = 0; i < c->n; i++) {
        float *prefix = c->prefix + (size_t)i * 2 * half * (size_t)v->parts;
        pick_of(v, l, c->test || (c->replayed && c->replayed[i]), c->alpha + (size_t)i * (size_t)c->ld, pick);
        for (int j = 0; j < v->parts; j++)
            for (int h = 0; h < 2; h++) {
                float *to = prefix + half_at(v->parts, j, h, half);
                memcpy(to, v->prefix[l] + (size_t)(2 * pick[j] + h) * half, half * sizeof *to);
                for (int r = 0; v->bias[l] && r < v->length / 2; r++)
                    sfp__axpy(D, 1, v->bias[l] + h * D, to + (size_t)r * (size_t)D);
            }
    }
}

/* The term of one sample and one of its choices; `scale` is its weight over the number of choices. */
static double key_backward(sfp__fp *f, int l, int i, int k, float scale)
{
    const sfp__fp_layer *y = &f->layer[l];
    size_t D = (size_t)f->D, at = (size_t)k * D;
    float cosine = y->alpha[(size_t)i * (size_t)f->opt.pool + (size_t)k], by = -scale / y->knorm[k];
    if (k >= f->frozen_end) {
        sfp__axpy(f->D, by, y->square + (size_t)i * D, y->k.grad + at);
        sfp__axpy(f->D, -by * cosine, y->ak + at, y->k.grad + at);
    }
    return (double)scale * (1 - (double)cosine);
}

static double backward(sfp__fp *f, int l, int first, int n, float *dprefix)
{
    const sfp__fp_view *v = &f->view;
    int pick[MOST_PARTS] = {0}, half = v->length / 2 * v->dim, choices = v->parts * (f->layers - f->kind->shared_layers);
    double loss = 0;
    memset(dprefix, 0, (size_t)v->active_end[l] * 2 * (size_t)half * sizeof *dprefix);
    for (int i = first; i < first + n; i++) {
        const float *de = f->grad[l].e + (size_t)i * 2 * (size_t)half * (size_t)v->parts;
        pick_of(v, l, f->samples.replayed && f->samples.replayed[i], f->layer[l].alpha + (size_t)i * (size_t)f->opt.pool, pick);
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

/* L2P (Wang et al. 2022, "Learning to Prompt for Continual Learning", section
 * 4; docs/method.md, section 13): one pool of prompts for all tasks, in one layer. A
 * sample takes the five whose keys are nearest to its query; their keys are
 * drawn to the query by mean(1 - cos).
 *
 * The layer is the first of --prompt-layers. There is no task in it: all
 * prompts learn from beginning to end, on known tasks and on free streams, and
 * nothing is opened.
 *
 * Where this departs from the authors' code:
 * - A prompt's halves go to the keys and the values of the layer (--prefix), as
 *   every kind here and CODA-Prompt's release of L2P have it; the authors
 *   prepend prompts to the tokens and classify by the mean of what becomes of
 *   them. The class token is what all parts of this program read.
 * - The term is a mean over samples and choices with weight 1; the authors'
 *   is a mean over samples of sums over choices with a coefficient, CODA-Prompt's
 *   release takes every sample with every other's choices (cos_sim[:, k_idx]).
 *   Keys have no other term, so that Adam makes little of its scale.
 * - Prompts and keys start orthonormal (docs/method.md, section 2) instead of uniform in
 *   [0, 1): keys that all point the same way are chosen by nothing but noise.
 * - Prompts are not weighed by how often earlier tasks chose them (the paper's
 *   option for when boundaries are known).
 * - With --attune on (default) prompts are attuned as fingerprints are; off is
 *   the published method. */
static sfp_status check_l2p(sfp__fp_options *o, sfp_error *err)
{
    if (o->query_one && o->first_layer == 0)
        return sfp__fail_key(err, "query-pass", SFP_EINVAL,
                             "query-pass is 'shared', expected separate with pool-kind l2p: in layer 0 the shared query is the "
                             "same for every image");
    o->last_layer = o->first_layer;
    return SFP_OK;
}

const sfp__pool_kind sfp__pool_l2p = {
    .name = "l2p", .parts = 5, .whole = true, .check = check_l2p, .prepare = prepare, .compose = compose, .backward = backward};

/* ----------------------------------------------------------------- DualPrompt */

/* DualPrompt (Wang et al. 2022, "DualPrompt: Complementary Prompting for
 * Rehearsal-free Continual Learning", section 4; docs/method.md, section 13): a general
 * prompt in each of the first two prompted layers, which all samples share and
 * all tasks train, and in the layers behind them an expert a task, with a key.
 * Training takes the expert of the task, a test the one with the key nearest to
 * the query; the key of the expert is drawn to the task's queries by
 * mean(1 - cos).
 *
 * With J known tasks there are J experts, whatever --pool says; those of
 * earlier tasks are frozen. On a free stream, which has no tasks, an expert
 * opens where coda opens a span (docs/method.md, section 9), at most --pool of them, and
 * is the one that learns; when all are open and another is asked for, all learn
 * from then on, and a sample of the stream takes the nearest like one of a test.
 *
 * Where this departs from the authors' code:
 * - They have no rehearsal. Here a rehearsed sample takes the nearest expert,
 *   as in a test: the classifier then learns what it will be asked, and frozen
 *   experts are not worn down to the present one.
 * - A key for each layer's expert, as in CODA-Prompt's release; the authors
 *   have one for all layers. The layers' keys see the same queries (but with
 *   --query-pass shared, where each layer has its own).
 * - The term is a mean over samples and layers with weight 1; theirs has a
 *   coefficient, CODA-Prompt's release sums.
 * - General and expert prompts have one length (--prompt-length; the paper: 5
 *   and 20), start orthonormal (docs/method.md, section 2), not uniform, and are attuned
 *   like fingerprints unless --attune is off. */
enum { GENERAL = 2 };

static sfp_status check_dualprompt(sfp__fp_options *o, sfp_error *err)
{
    if (o->last_layer - o->first_layer < GENERAL)
        return sfp__fail_key(
            err, "prompt-layers", SFP_EINVAL,
            "prompt-layers %d-%d with pool-kind dualprompt, expected %d layers or more: %d for the general prompt",
            o->first_layer, o->last_layer, GENERAL + 1, GENERAL);
    if (o->tasks > 0)
        o->pool = o->tasks;
    o->span = 1;
    return SFP_OK;
}

const sfp__pool_kind sfp__pool_dualprompt = {.name = "dualprompt",
                                             .parts = 1,
                                             .shared_layers = GENERAL,
                                             .check = check_dualprompt,
                                             .prepare = prepare,
                                             .compose = compose,
                                             .backward = backward};
