#include "learner/snapshot.h"

#include "base/mem.h"
#include "learner/learner_internal.h"

#include <string.h>

void sfp__snapshots_init(sfp__snapshots *s)
{
    *s = (sfp__snapshots){.stale = true};
    pthread_mutex_init(&s->lock, NULL);
}

void sfp__snapshots_done(sfp__snapshots *s)
{
    while (s->all) {
        sfp__snapshot *snapshot = s->all;
        s->all = snapshot->next;
        sfp__free(snapshot->block);
        sfp__free(snapshot->seen);
        sfp__free(snapshot->names);
        sfp__free(snapshot);
    }
    pthread_mutex_destroy(&s->lock);
}

sfp__snapshot *sfp__snapshots_hold(sfp__snapshots *s)
{
    pthread_mutex_lock(&s->lock);
    sfp__snapshot *held = s->current;
    if (held)
        held->holders++;
    pthread_mutex_unlock(&s->lock);
    return held;
}

void sfp__snapshots_release(sfp__snapshots *s, sfp__snapshot *held)
{
    if (!held)
        return;
    pthread_mutex_lock(&s->lock);
    held->holders--;
    pthread_mutex_unlock(&s->lock);
}

/* Returns a snapshot that has no holders and is not the current one, or a new one. Only the publishing thread uses such
 * snapshots, so it stays free without the lock. */
static sfp__snapshot *unused_snapshot(sfp__snapshots *s, sfp_error *err)
{
    pthread_mutex_lock(&s->lock);
    sfp__snapshot *snapshot = s->all;
    while (snapshot && (snapshot == s->current || snapshot->holders > 0))
        snapshot = snapshot->next;
    pthread_mutex_unlock(&s->lock);
    if (snapshot)
        return snapshot;
    if (!(snapshot = sfp__calloc(1, sizeof *snapshot))) {
        (void)sfp__fail_nomem(err);
        return NULL;
    }
    pthread_mutex_lock(&s->lock);
    snapshot->next = s->all;
    s->all = snapshot;
    pthread_mutex_unlock(&s->lock);
    return snapshot;
}

/* Copies n floats to *at and advances it; *at NULL: returns the floats themselves. */
static const float *append(float **at, const float *from, size_t n)
{
    float *to = *at;
    if (!to)
        return from;
    memcpy(to, from, n * sizeof *to);
    *at += n;
    return to;
}

sfp_status sfp__snapshot_copy_names(sfp__snapshot *to, int count, char *const *names, uint64_t version, sfp_error *err)
{
    size_t bytes = (size_t)count * sizeof *names;
    if (to->names_version == version)
        return SFP_OK;
    for (int i = 0; i < count; i++)
        bytes += names[i] ? strlen(names[i]) + 1 : 0;
    char **copy = sfp__malloc(bytes ? bytes : 1);
    TRY(sfp__check_memory(copy, err));
    char *text = (char *)(copy + count);
    for (int i = 0; i < count; i++) {
        size_t n = names[i] ? strlen(names[i]) + 1 : 0;
        copy[i] = names[i] ? text : NULL;
        if (n)
            memcpy(text, names[i], n);
        text += n;
    }
    sfp__free(to->names);
    to->names = copy;
    to->name_count = count;
    to->names_version = version;
    return SFP_OK;
}

/* Copies what a prediction reads. The fingerprints of a learner that cannot learn never change and are not copied. */
static sfp_status fill(sfp__snapshot *to, const sfp__learner *l, sfp_error *err)
{
    const sfp__fp_view *v = &l->fp->view;
    size_t D = (size_t)v->dim, comp = (size_t)v->length * D, classes = (size_t)l->fp->linear_w.rows, floats = classes * (D + 1);
    for (int i = 0; i < v->layers; i++)
        floats += (size_t)v->active_end[i] * (2 * D + comp);
    TRY(sfp__check_memory((l->fixed || sfp__grow(&to->block, sizeof *to->block, 0, floats, &to->block_capacity)) &&
                              sfp__grow(&to->seen, 1, 0, classes, &to->seen_capacity),
                          err));
    TRY(sfp__snapshot_copy_names(to, l->classes.capacity, l->classes.names, l->classes.names_version, err));
    float *at = to->block; /* NULL: nothing is copied */
    to->view = *v;
    for (int i = 0; i < v->layers; i++) {
        size_t open = (size_t)v->active_end[i];
        to->view.ak[i] = v->ak[i] ? append(&at, v->ak[i], open * D) : NULL;
        to->view.a2[i] = v->a2[i] ? append(&at, v->a2[i], open * D) : NULL;
        to->view.prefix[i] = append(&at, v->prefix[i], open * comp);
    }
    to->linear_w = append(&at, l->fp->linear_w.data, classes * D);
    to->linear_b = append(&at, l->fp->linear_b.data, classes);
    if (classes > 0)
        memcpy(to->seen, l->classes.seen, classes);
    to->classes = (int)classes;
    to->t = l->counts.timestamps;
    return SFP_OK;
}

/* ----------------------------------------------------------------- publication */

static sfp_status publish(sfp__learner *l, sfp_error *err)
{
    sfp__snapshots *s = &l->snapshots;
    TRY(sfp__fp_prepare(l->fp, err));
    sfp__snapshot *snapshot = unused_snapshot(s, err);
    if (!snapshot)
        return SFP_ENOMEM;
    TRY(fill(snapshot, l, err));
    pthread_mutex_lock(&s->lock);
    s->current = snapshot;
    pthread_mutex_unlock(&s->lock);
    s->stale = false;
    return SFP_OK;
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
