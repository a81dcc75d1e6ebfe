/* Where the samples of a step are: pictures and queries of the batch are the learner's, those of slots the buffer's. A query is
 * computed once in the life of a sample, by whichever pass needs it first. */
#include "compute/pixels.h"
#include "learner/learner_internal.h"

#include <string.h>

sfp_status sfp__learner_slot_input(const sfp_learner *l, const sfp_slot *slot, float *out, sfp_error *err)
{
    if (slot->image_size == l->rgb_bytes) {
        sfp__pixels_normalise(slot->image, l->S, l->opt.mean, l->opt.std, out);
        return SFP_OK;
    }
    sfp_image whole = {0}, fit = {0};
    sfp_status s = sfp__image_decode("a picture of the buffer", slot->image, slot->image_size, NULL, &whole, err);
    if (!s)
        s = sfp__image_fit(&whole, l->S, l->opt.resize, &fit, err);
    if (!s)
        sfp__pixels_normalise(fit.rgb, l->S, l->opt.mean, l->opt.std, out);
    sfp__image_done(&whole);
    sfp__image_done(&fit);
    return s;
}

bool sfp__learner_masked(const sfp_learner *l)
{
    return !l->buffer && l->opt.fp.tasks > 0;
}

sfp_status sfp__learner_fill_item(sfp_learner *l, int at, float *room, sfp_error *err)
{
    const sfp__item *item = &l->items[at];
    const sfp_slot *slot = item->replay ? &l->buffer->slot[item->index] : NULL;
    const float *query = slot ? slot->query : l->query + (size_t)item->index * (size_t)l->D;
    l->xs[at] = slot ? room : l->x + (size_t)item->index * l->pixels;
    l->step_label[at] = slot ? slot->label : l->label[item->index];
    l->step_masked[at] = !slot && sfp__learner_masked(l);
    l->step_rehearsed[at] = item->replay;
    memcpy(l->step_query + (size_t)at * (size_t)l->D, query, (size_t)l->D * sizeof *query);
    return slot ? sfp__learner_slot_input(l, slot, room, err) : SFP_OK;
}

bool sfp__learner_query_known(const sfp_learner *l, const sfp__item *item)
{
    if (l->opt.fp.query_one)
        return true;
    if (item->index < 0)
        return false;
    return item->replay ? l->buffer->slot[item->index].has_query : l->has_query[item->index];
}

void sfp__learner_keep_queries(sfp_learner *l, int unknown)
{
    for (int i = 0; i < unknown; i++) {
        const sfp__item *item = &l->items[i];
        if (item->index < 0)
            continue;
        sfp_slot *slot = item->replay ? &l->buffer->slot[item->index] : NULL;
        float *to = slot ? slot->query : l->query + (size_t)item->index * (size_t)l->D;
        memcpy(to, l->step_query + (size_t)i * (size_t)l->D, (size_t)l->D * sizeof *to);
        if (slot)
            slot->has_query = true;
        else
            l->has_query[item->index] = true;
    }
}
