/* Corrections of a learner with a closed-form head that is a function of sums (heads/sums.h). Samples are forgotten, as if they had never been learned,
 * or relabelled, as if they had been learned with the other label. The sums of a file are added or subtracted. */
#include "learner/learner.h"

#include "learner/state/saved_sums.h"

sfp_status sfp__learner_check_sums(const sfp__learner *l, sfp_error *err)
{
    if (!l->opt.method || !sfp__head_has_sums(l->head))
        return sfp__fail_key(
            err, "method", SFP_EUNSUPPORTED,
            "method is %s, expected ncm, slda or ridge: only functions of sums forget, relabel, merge and start from a state",
            l->opt.method ? l->opt.method : "none");
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
        l->classes.seen[c] = sfp__head_label_samples(l->head, c) > 0;
    l->classes.learned = sfp__learner_classes(l);
}

sfp_status sfp__learner_forget(sfp__learner *l, int n, const sfp__sample *samples, sfp_error *err)
{
    TRY(sfp__learner_check_sums(l, err));
    TRY(check_labels(l, n, samples, err));
    TRY(sfp__learner_query_batch(l, n, samples, err));
    pthread_mutex_lock(&l->head_lock);
    sfp_status status = sfp__head_forget(l->head, n, l->batch.tap, l->batch.label, l->batch.key, err);
    if (!status)
        sfp__learner_update_seen(l);
    pthread_mutex_unlock(&l->head_lock);
    return status;
}

/* Takes the loaded sample out and learns it with its new label. */
static sfp_status relabel(sfp__learner *l, int32_t from, int32_t to, sfp_error *err)
{
    TRY(sfp__learner_reserve_classes(l, to + 1, err));
    TRY(sfp__head_relabel(l->head, l->batch.tap, from, to, l->batch.key, err));
    (void)sfp__learner_add_classes(l, to + 1, NULL); /* cannot fail: the memory is reserved */
    sfp__learner_update_seen(l);
    return SFP_OK;
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

/* ------------------------------------------------------------- sums of a file */

static sfp_status read_sums(const sfp__learner *l, const sfp__saved_file *from, sfp__saved_sums *out, sfp_error *err)
{
    OWNED_BY(sfp__metadata_done) sfp__file_metadata expected = {0};
    TRY(sfp__learner_check_sums(l, err));
    sfp__saved_sums_identify(&expected, l);
    TRY(sfp__check_memory(!expected.failed, err));
    return sfp__saved_sums_read(from, &expected, "the learner", l->threads, out, err);
}

/* Adds the sums to `head`, and the classes and names to the learner. On failure nothing has changed. */
static sfp_status add_sums(sfp__learner *l, sfp__head *head, sfp__saved_sums *from, sfp_error *err)
{
    OWNED_BY(sfp__class_match_done) sfp__class_match m = {0};
    const sfp__known_classes here = {l->classes.capacity, l->classes.names, head};
    TRY(sfp__saved_sums_match(from, &here, &m, err));
    TRY(sfp__learner_reserve_classes(l, m.end, err));
    TRY(sfp__head_merge(head, from->head, m.row_label, err));
    TRY(sfp__learner_add_classes(l, m.end, err)); /* cannot fail: their memory is reserved */
    for (int c = 0; c < from->names.count; c++)
        if (from->names.name[c] && !l->classes.names[m.label[c]])
            l->classes.names[m.label[c]] = TAKE(from->names.name[c]);
    l->classes.names_version++;
    return SFP_OK;
}

static sfp_status subtract_sums(sfp__learner *l, const sfp__saved_sums *from, sfp_error *err)
{
    OWNED_BY(sfp__class_match_done) sfp__class_match m = {0};
    const sfp__known_classes here = {l->classes.capacity, l->classes.names, l->head};
    TRY(sfp__saved_sums_match(from, &here, &m, err));
    TRY(sfp__saved_sums_check_subtract(from, &m, l->head, err));
    return sfp__head_subtract(l->head, from->head, m.row_label, err);
}

sfp_status sfp__learner_merge(sfp__learner *l, const sfp__saved_file *from, sfp_error *err)
{
    OWNED_BY(sfp__saved_sums_done) sfp__saved_sums s = {0};
    TRY(read_sums(l, from, &s, err));
    pthread_mutex_lock(&l->head_lock);
    sfp_status status = add_sums(l, l->head, &s, err);
    if (!status)
        sfp__learner_update_seen(l);
    pthread_mutex_unlock(&l->head_lock);
    return status;
}

sfp_status sfp__learner_subtract(sfp__learner *l, const sfp__saved_file *from, sfp_error *err)
{
    OWNED_BY(sfp__saved_sums_done) sfp__saved_sums s = {0};
    TRY(read_sums(l, from, &s, err));
    pthread_mutex_lock(&l->head_lock);
    sfp_status status = subtract_sums(l, &s, err);
    if (!status)
        sfp__learner_update_seen(l);
    pthread_mutex_unlock(&l->head_lock);
    return status;
}

sfp_status sfp__learner_load_sums(sfp__learner *l, const char *path, sfp_error *err)
{
    OWNED_BY(sfp__saved_sums_done) sfp__saved_sums s = {0};
    OWNED_PTR(sfp__head_free) sfp__head *head = NULL;
    const sfp__saved_file from = {.path = path};
    TRY(read_sums(l, &from, &s, err));
    TRY(sfp__learner_make_head(l, &head, err));
    pthread_mutex_lock(&l->head_lock);
    sfp_status status = add_sums(l, head, &s, err);
    if (!status) {
        sfp__head *before = l->head;
        l->head = head;
        head = before;
        sfp__learner_update_seen(l);
    }
    pthread_mutex_unlock(&l->head_lock);
    return status;
}
