/* K-center (Sener and Savarese, "Active Learning for Convolutional Neural Networks: A Core-Set Approach", ICLR 2018;
 * docs/method.md, section 11): farthest-first traversal from index 0 on the logits, Euclidean. Draws no random number.
 *
 * Cost: n*c*C multiplications in matrix products, n*c/64 steps of a heap at most (cover.h); 2n numbers of memory.
 *
 * From the authors: their code begins at the labelled pool and adds a mixed-integer refinement for outliers; a batch has no
 * labelled pool, and the refinement solves an NP-hard problem a step. A greedy start at index 0 is what is compared here. */
#include "base/rank.h"
#include "select/cover.h"

/* Farther first, then the lower index. */
static bool before(const void *ctx, int i, int j)
{
    const sfp__cover *c = ctx;
    return c->near2[i] > c->near2[j] || (c->near2[i] == c->near2[j] && i < j);
}

/* The farthest point, by the lazy rule: the top's distance is an upper bound; when it still holds it is the largest. */
static int farthest(sfp__cover *c, sfp__heap *heap)
{
    for (;;) {
        int top = heap->at[0];
        double was = c->near2[top];
        if (!(sfp__cover_now(c, top) < was))
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
    TRY(sfp__arena_list(env->arena, SFP_LIST(list), err));
    sfp__select_gather(&from, &logits, x);
    sfp__cover cover;
    TRY(sfp__cover_init(&cover, env, from.n, logits.width, x, from.c, err));
    sfp__heap heap = {.n = from.n, .at = order, .before = before, .ctx = &cover};
    for (int i = 0; i < from.n; i++)
        order[i] = i; /* a heap already: all are infinitely far */
    for (int k = 0; k < got; k++)
        if (sfp__cover_add(&cover, farthest(&cover, &heap)))
            sfp__heap_make(&heap);
    sfp__select_equal_weights(got, weight);
    sfp__select_end(&from, got, cover.chosen, out, weight, count);
    return SFP_OK;
}

const sfp__selector sfp__selector_kcenter = {
    .name = "kcenter",
    .summary = "farthest first on the logits",
    .needs = SFP_NEED_LOGITS,
    .pick = pick,
};
