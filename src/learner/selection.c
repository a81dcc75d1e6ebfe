/* The selection of the coreset: scores of the batch, activation of components, inputs of the selector, its choice. Reads the batch
 * and the fingerprints; writes the scores, the coreset and its weights (sfp__batch_work), which are valid until the next batch. */
#include "learner/learner_internal.h"

#include "compute/vec.h"

#include <math.h>
#include <string.h>

void sfp__learner_score(const sfp__learner *l, int b, float *out)
{
    sfp__fp_mean_unit(l->fp, l->batch.fingerprint);
    for (int i = 0; i < b; i++)
        out[i] = sfp__dot(l->D, l->batch.mean_embed + (size_t)i * (size_t)l->D, l->batch.fingerprint);
}

/* Computes the inputs of the selector other than scores. This also computes queries, so a step does not compute them again. */
static sfp_status compute_method_inputs(sfp__learner *l, int b, sfp_error *err)
{
    if (!l->method_inputs.needs)
        return SFP_OK;
    TRY(sfp__method_inputs_compute(&l->method_inputs, b, l->batch.xs, sfp__learner_masked(l) ? l->classes.allowed : NULL,
                                   l->batch.query, err));
    memset(l->batch.has_query, true, (size_t)b * sizeof *l->batch.has_query);
    return SFP_OK;
}

/* The first components belong to the first classes, so they are not activated again for them. A loaded state may already have
 * classes. */
static bool has_seen_a_class(const sfp__learner *l)
{
    return memchr(l->classes.seen, 1, (size_t)sfp__learner_classes(l)) != NULL;
}

/* Scores the batch, detects drift and chooses the coreset. */
sfp_status sfp__learner_select(sfp__learner *l, int b, bool new_class, sfp__timestamp_details *r, sfp_error *err)
{
    TRY(sfp__trainer_embed(l->trainer, b, l->batch.xs, l->batch.mean_embed, err));
    sfp__learner_score(l, b, l->batch.score);
    bool grow = l->opt.drift == SFP__DRIFT_NEW_CLASS && new_class && has_seen_a_class(l);
    if (!sfp__learner_known_tasks(l) && grow) {
        int open = l->fp->active_end;
        TRY(sfp__fp_activate_components(l->fp, err));
        r->grew = l->fp->active_end > open; /* if the pool is full, all components become trainable and none is activated */
        sfp__learner_score(l, b, l->batch.score);
    }
    int max_coreset = l->max_step_samples - l->opt.replay;
    TRY(compute_method_inputs(l, b, err));
    const sfp__gradients gradients = {sfp__learner_gradient_length(l), sfp__learner_gradient, l};
    l->batch.selected = (sfp__select_batch){.b = b,
                                            .label = l->batch.label,
                                            .score = l->batch.score,
                                            .dim = l->D,
                                            .query = l->batch.query,
                                            .features = l->method_inputs.features,
                                            .classes = sfp__learner_classes(l),
                                            .logits = l->method_inputs.logits,
                                            .probs = l->method_inputs.probs,
                                            .pooled = l->method_inputs.pooled,
                                            .taps = l->method_inputs.taps};
    sfp__select_batch batch = l->batch.selected;
    batch.gradients = &gradients;
    const sfp__select_env env = {.rng = &l->select_rng,
                                 .arena = &l->select_arena,
                                 .threads = l->threads,
                                 .state = l->select_state,
                                 .ctx = l->selector->ctx};
    TRY(l->selector->pick(&batch, &l->opt.coreset, &env, l->batch.coreset, l->batch.select_weight, &r->coreset_count, err));
    if (r->coreset_count > max_coreset) /* a selector may choose the whole batch regardless of sigma */
        r->coreset_count = max_coreset;
    r->similarity = l->batch.score;
    r->coreset = l->batch.coreset;
    return SFP_OK;
}
