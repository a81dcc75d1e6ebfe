/* Publication: when a learner copies its fingerprints for predictors on other threads (snapshot.h). Only the thread that may change
 * the learner calls these functions. A closed-form head is not copied: predictors read it under its lock. */
#include "learner/learner_internal.h"

static sfp_status publish(sfp__learner *l, sfp_error *err)
{
    TRY(sfp__fp_prepare(l->fp, err));
    const sfp__snapshot_source from = {.constant = l->fixed,
                                       .t = l->counts.timestamps,
                                       .view = &l->fp->view,
                                       .linear_w = &l->fp->linear_w,
                                       .linear_b = &l->fp->linear_b,
                                       .seen = l->classes.seen,
                                       .names = l->classes.names,
                                       .name_count = l->classes.capacity,
                                       .names_version = l->classes.names_version};
    return sfp__snapshots_publish(&l->snapshots, &from, err);
}

static int change_predictors(sfp__snapshots *s, int by)
{
    pthread_mutex_lock(&s->lock);
    int count = s->predictors += by;
    pthread_mutex_unlock(&s->lock);
    return count;
}

sfp_status sfp__learner_publish(sfp__learner *l, sfp_error *err)
{
    if (l->opt.method)
        return SFP_OK;
    l->snapshots.stale = true;
    return change_predictors(&l->snapshots, 0) > 0 ? publish(l, err) : SFP_OK;
}

sfp_status sfp__learner_publish_if_stale(sfp__learner *l, sfp_error *err)
{
    return l->snapshots.stale ? publish(l, err) : SFP_OK;
}

sfp_status sfp__learner_add_predictor(sfp__learner *l, sfp_error *err)
{
    if (change_predictors(&l->snapshots, 1) > 1)
        return SFP_OK;
    sfp_status status = publish(l, err);
    if (status)
        sfp__learner_remove_predictor(l);
    return status;
}

void sfp__learner_remove_predictor(sfp__learner *l)
{
    (void)change_predictors(&l->snapshots, -1);
}
