/* Two numbers beside the prequential accuracy, because that is high for any method whose predictions follow the last labels if
 * neighbouring samples of the stream have the same class (docs/method.md, section 10).
 *
 * No change: the accuracy of predicting the label of the sample before. Near future: the accuracy on samples that arrive some batches
 * later, with the model of now. It is measured at places of the stream that do not depend on which batches were processed. */
#include "base/monotonic.h"
#include "run/run_internal.h"

enum { POINTS = 50 }; /* measurements of the near future per run, so that they take little time */

void sfp__guards_count(sfp__guards *g, const sfp__delivery *d)
{
    for (int i = 0; i < d->count; i++) {
        g->total += g->last_label >= 0;
        g->unchanged += g->last_label == d->samples[i].label;
        g->last_label = d->samples[i].label;
    }
}

/* Predicts the images [from, end) of the order of the batches, at most SFP__GROUP; rgb: their pixels. */
static sfp_status predict_group(sfp__run *run, int64_t from, int64_t end, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    size_t bytes = 3 * (size_t)p->size * (size_t)p->size;
    const uint8_t *rgb[SFP__GROUP];
    int32_t truth[SFP__GROUP];
    sfp__predictions found;
    int n = 0;
    for (int64_t i = from; i < end; i++) {
        sfp_record record;
        sfp_error why;
        uint8_t *to = run->future_rgb + (size_t)n * bytes;
        TRY(sfp__source_record(p->source, p->batches.order[i], &record, err));
        sfp_status status =
            sfp__raw_image_read_fit(p->source, p->batches.order[i], p->size, p->opt->learner.resize, to, NULL, &why);
        if (sfp__is_machine_error(status))
            return sfp__fail(err, status, "%s", why.message);
        if (status)
            continue; /* the run reports it when it arrives */
        truth[n] = p->tasks.label_of[record.label];
        rgb[n++] = to;
    }
    if (n > 0)
        TRY(sfp__predictor_run(run->predictor, n, rgb, NULL, 0, &found, err));
    for (int i = 0; i < n; i++)
        run->at.guards.future_correct += found.label[i] == truth[i];
    run->at.guards.future_total += (uint64_t)n;
    return SFP_OK;
}

static sfp_status predict_batch(sfp__run *run, int64_t batch, sfp_error *err)
{
    const int64_t *first = run->plan.batches.first + batch;
    for (int64_t i = first[0]; i < first[1]; i += SFP__GROUP)
        TRY(predict_group(run, i, i + SFP__GROUP < first[1] ? i + SFP__GROUP : first[1], err));
    return SFP_OK;
}

sfp_status sfp__guards_look_ahead(sfp__run *run, int64_t batch, sfp_error *err)
{
    int64_t count = run->plan.batches.count, step = count / POINTS + 1, later = run->plan.opt->near_future;
    sfp__guards *g = &run->at.guards;
    sfp_status status = SFP_OK;
    if (!run->future_rgb || g->next >= batch)
        return SFP_OK;
    double from = sfp__monotonic_seconds();
    sfp__vit_memo_set_charging(run->plan.memo, false); /* like an evaluation, this is not part of the processing time */
    for (; !status && g->next < batch && g->next + later < count; g->next += step)
        status = predict_batch(run, g->next + later, err);
    sfp__vit_memo_set_charging(run->plan.memo, true);
    double took = sfp__monotonic_seconds() - from;
    run->journal.r->seconds.evaluate += took;
    if (run->arrivals->clock)
        run->arrivals->clock->began += took;
    return status;
}
