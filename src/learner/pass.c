/* The samples of a pass: a training step or, between steps, a model callback. They are copied into the arrays of sfp__pass_work, which
 * belong to the pass in progress: a function that fills them runs its pass and reads the results before it calls a function that
 * makes another pass. Only `loss`, `replay` and `replay_count`, which are in sfp__step_work, are kept from one step to the next.
 *
 * The images and queries of the batch belong to the learner, those of slots to the buffer. The query of a sample is computed only
 * once, by the first pass that needs it. */
#include "learner/learner_internal.h"

#include "compute/pixels.h"

#include <string.h>

void sfp__learner_slot_input(const sfp__learner *l, const sfp__slot *slot, float *out)
{
    sfp__pixels_normalise(slot->image, l->S, l->opt.mean, l->opt.std, out);
}

bool sfp__learner_masked(const sfp__learner *l)
{
    return !l->buffer && l->opt.fp.tasks > 0;
}

bool sfp__learner_query_known(const sfp__learner *l, const sfp__item *item)
{
    if (item->index < 0)
        return false;
    if (item->replay)
        return l->buffer->slot[item->index].has_query;
    return l->batch.has_query[item->index];
}

void sfp__learner_fill_item(sfp__learner *l, int at, float *scratch)
{
    const sfp__item *item = &l->pass.items[at];
    const sfp__slot *slot = item->replay ? &l->buffer->slot[item->index] : NULL;
    const float *query = slot ? slot->query : l->batch.query + (size_t)item->index * (size_t)l->D;
    l->pass.xs[at] = slot ? scratch : l->batch.x + (size_t)item->index * l->pixels;
    l->pass.label[at] = slot ? slot->label : l->batch.label[item->index];
    l->pass.masked[at] = !slot && sfp__learner_masked(l);
    l->pass.replayed[at] = item->replay;
    memcpy(l->pass.query + (size_t)at * (size_t)l->D, query, (size_t)l->D * sizeof *query);
    if (slot)
        sfp__learner_slot_input(l, slot, scratch);
}

sfp__train_batch sfp__learner_batch(const sfp__learner *l, int n, int queries)
{
    return (sfp__train_batch){.n = n,
                              .x = l->pass.xs,
                              .label = l->pass.label,
                              .weight = l->pass.weight,
                              .masked = l->pass.masked,
                              .allowed = l->classes.allowed,
                              .replayed = l->pass.replayed,
                              .query = l->pass.query,
                              .queries = queries};
}

void sfp__learner_keep_queries(sfp__learner *l, int unknown)
{
    for (int i = 0; i < unknown; i++) {
        const sfp__item *item = &l->pass.items[i];
        if (item->index < 0)
            continue;
        sfp__slot *slot = item->replay ? &l->buffer->slot[item->index] : NULL;
        float *to = slot ? slot->query : l->batch.query + (size_t)item->index * (size_t)l->D;
        memcpy(to, l->pass.query + (size_t)i * (size_t)l->D, (size_t)l->D * sizeof *to);
        if (slot)
            slot->has_query = true;
        else
            l->batch.has_query[item->index] = true;
    }
}

/* Computes the queries of the batch that are not known yet. */
sfp_status sfp__learner_compute_queries(sfp__learner *l, int b, sfp_error *err)
{
    size_t D = (size_t)l->D;
    int n = 0;
    for (int i = 0; i < b; i++)
        if (!l->batch.has_query[i])
            l->pass.xs[n++] = l->batch.x + (size_t)i * l->pixels;
    if (n > 0)
        TRY(sfp__trainer_queries(l->trainer, n, l->pass.xs, l->pass.query, err));
    for (int i = 0, k = 0; i < b; i++) {
        if (l->batch.has_query[i])
            continue;
        memcpy(l->batch.query + (size_t)i * D, l->pass.query + (size_t)k * D, D * sizeof(float));
        l->batch.has_query[i] = true;
        k++;
    }
    return SFP_OK;
}
