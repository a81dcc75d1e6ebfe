/* Corrections of a learner with a closed-form head that is a function of sums (heads/sums.h): samples are forgotten or relabelled as
 * if they had never been learned, or had been learned with the other label. Adding the sums of a checkpoint is in
 * state/checkpoint.c. */
#include "learner/learner.h"

#include "learner/learner_internal.h"

sfp_status sfp__learner_check_sums(const sfp__learner *l, sfp_error *err)
{
    if (!l->opt.method || !sfp__head_has_sums(l->heads[0]))
        return sfp__fail_key(err, "method", SFP_EUNSUPPORTED,
                             "method is %s%s, expected ncm, slda or ridge: only they can forget, relabel and merge",
                             l->opt.method ? l->opt.method : "none", l->opt.slda_published ? " as published" : "");
    return SFP_OK;
}

static sfp_status check_labels(const sfp__learner *l, int n, const sfp__sample *samples, sfp_error *err)
{
    for (int i = 0; i < n; i++)
        if (samples[i].label < 0 || samples[i].label >= sfp__learner_classes(l))
            return sfp__fail(err, SFP_ENOTFOUND, "sample %llu: no sample with label %d was learned from",
                             (unsigned long long)samples[i].id, samples[i].label);
    return SFP_OK;
}

void sfp__learner_update_seen(sfp__learner *l)
{
    for (int c = 0; c < sfp__learner_classes(l); c++)
        l->classes.seen[c] = sfp__head_label_samples(l->heads[0], c) > 0;
    l->classes.learned = sfp__learner_classes(l);
}

/* Takes out all samples of the loaded batch, or none. */
static sfp_status forget_batch(sfp__learner *l, int n, sfp_error *err)
{
    sfp_status status = SFP_OK;
    size_t taps = (size_t)l->tap_dim;
    int done = 0;
    for (; done < n && !status; done += !status)
        status =
            sfp__head_forget(l->heads[0], l->batch.tap + (size_t)done * taps, l->batch.label[done], &l->batch.key[done], err);
    if (status) /* cannot fail: their classes have memory */
        (void)sfp__head_update(l->heads[0], done, l->batch.tap, l->batch.label, l->batch.key, NULL);
    sfp__learner_update_seen(l);
    return status;
}

sfp_status sfp__learner_forget(sfp__learner *l, int n, const sfp__sample *samples, sfp_error *err)
{
    TRY(sfp__learner_check_sums(l, err));
    TRY(check_labels(l, n, samples, err));
    TRY(sfp__learner_query_batch(l, n, samples, err));
    pthread_mutex_lock(&l->head_lock);
    sfp_status status = forget_batch(l, n, err);
    pthread_mutex_unlock(&l->head_lock);
    return status;
}

/* Takes the loaded sample out and learns it with its new label. */
static sfp_status relabel(sfp__learner *l, int32_t from, int32_t to, sfp_error *err)
{
    sfp__head *h = l->heads[0];
    const float *x = l->batch.tap;
    TRY(sfp__learner_reserve_classes(l, to + 1, err));
    TRY(sfp__head_forget(h, x, from, l->batch.key, err));
    sfp_status status = sfp__head_update(h, 1, x, &to, l->batch.key, err);
    if (status) /* cannot fail: its class has memory */
        (void)sfp__head_update(h, 1, x, &from, l->batch.key, NULL);
    else /* cannot fail: its memory is reserved */
        (void)sfp__learner_add_classes(l, to + 1, NULL);
    sfp__learner_update_seen(l);
    return status;
}

sfp_status sfp__learner_relabel(sfp__learner *l, const sfp__sample *sample, int32_t label, sfp_error *err)
{
    TRY(sfp__learner_check_sums(l, err));
    TRY(check_labels(l, 1, sample, err));
    TRY(sfp__learner_check_label(l, sample->id, label, err));
    TRY(sfp__learner_query_batch(l, 1, sample, err));
    pthread_mutex_lock(&l->head_lock);
    sfp_status status = relabel(l, sample->label, label, err);
    pthread_mutex_unlock(&l->head_lock);
    return status;
}
