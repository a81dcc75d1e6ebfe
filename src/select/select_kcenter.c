/* K-center (Sener and Savarese, "Active Learning for Convolutional Neural Networks: A Core-Set Approach", ICLR 2018;
 * docs/method.md, section 11): farthest-first traversal from index 0 by the Euclidean distance of logits. Draws no random number.
 *
 * Cost: n*c*C multiplications in matrix products and at most n*c/64 heap operations (cover.h). Memory: 2n numbers.
 *
 * Difference from the authors: their code starts from the labelled pool and adds a mixed-integer refinement for outliers. A batch
 * has no labelled pool, and the refinement would solve an NP-hard problem per step. Here the greedy traversal starts at index
 * 0. */
#include "base/rank.h"
#include "select/cover.h"

/* Orders by distance, farthest first, then by index. */
static bool farther(const void *ctx, int i, int j)
{
    const sfp__cover *c = ctx;
    return c->near2[i] > c->near2[j] || (c->near2[i] == c->near2[j] && i < j);
}

/* Removes and returns the farthest point. The distance of the heap's top is an upper bound; if updating does not change it, it is
 * the largest. */
static int pop_farthest(sfp__cover *c, sfp__heap *heap)
{
    for (;;) {
        int top = heap->at[0];
        double was = c->near2[top];
        if (!(sfp__cover_update(c, top) < was))
            return sfp__heap_pop(heap);
        sfp__heap_sink(heap, 0);
    }
}

static sfp_status pick(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    const sfp__matrix logits = {batch->logits, batch->classes};
    sfp__candidates from;
    bool whole = false;
    TRY(sfp__select_begin(&sfp__selector_kcenter, batch, opt, env, 1, &logits, &from, &whole, out, weight, count, err));
    if (whole)
        return SFP_OK;
    int got = from.c < from.n ? from.c : from.n;
    float *x;
    int *order;
    const sfp__want list[] = {{&x, (size_t)from.n * (size_t)logits.width, sizeof *x}, {&order, (size_t)from.n, sizeof *order}};
    TRY(sfp__arena_list(env->arena, SFP__LIST(list), err));
    sfp__select_gather(&from, &logits, x);
    sfp__cover cover;
    TRY(sfp__cover_init(&cover, env, from.n, logits.width, x, from.c, err));
    sfp__heap heap = {.n = from.n, .at = order, .before = farther, .ctx = &cover};
    for (int i = 0; i < from.n; i++)
        order[i] = i; /* already a heap: all distances are infinite */
    for (int k = 0; k < got; k++)
        if (sfp__cover_add(&cover, pop_farthest(&cover, &heap)))
            sfp__heap_make(&heap);
    sfp__select_equal_weights(got, weight);
    sfp__select_end(&from, got, cover.chosen, out, weight, count);
    return SFP_OK;
}

const sfp__selector sfp__selector_kcenter = {
    .name = "kcenter",
    .summary = "farthest first on the logits",
    .needs = SFP__NEED_LOGITS,
    .pick = pick,
};
