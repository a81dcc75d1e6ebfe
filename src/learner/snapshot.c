#include "learner/snapshot.h"

#include "base/mem.h"

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

static sfp_status fill(sfp__snapshot *to, const sfp__snapshot_source *from, sfp_error *err)
{
    const sfp__fp_view *v = from->view;
    size_t D = (size_t)v->dim, comp = (size_t)v->length * D, classes = (size_t)from->linear_w->rows, floats = classes * (D + 1);
    for (int l = 0; l < v->layers; l++)
        floats += (size_t)v->active_end[l] * (2 * D + comp);
    TRY(sfp__check_memory((from->constant || sfp__grow(&to->block, sizeof *to->block, 0, floats, &to->block_capacity)) &&
                              sfp__grow(&to->seen, 1, 0, classes, &to->seen_capacity),
                          err));
    TRY(sfp__snapshot_copy_names(to, from->name_count, from->names, from->names_version, err));
    float *at = to->block;
    to->view = *v;
    for (int l = 0; l < v->layers; l++) {
        size_t open = (size_t)v->active_end[l];
        to->view.ak[l] = v->ak[l] ? append(&at, v->ak[l], open * D) : NULL;
        to->view.a2[l] = v->a2[l] ? append(&at, v->a2[l], open * D) : NULL;
        to->view.prefix[l] = append(&at, v->prefix[l], open * comp);
    }
    to->linear_w = append(&at, from->linear_w->data, classes * D);
    to->linear_b = append(&at, from->linear_b->data, classes);
    if (classes > 0)
        memcpy(to->seen, from->seen, classes);
    to->classes = (int)classes;
    to->t = from->t;
    return SFP_OK;
}

sfp_status sfp__snapshots_publish(sfp__snapshots *s, const sfp__snapshot_source *from, sfp_error *err)
{
    sfp__snapshot *snapshot = unused_snapshot(s, err);
    if (!snapshot)
        return SFP_ENOMEM;
    TRY(fill(snapshot, from, err));
    pthread_mutex_lock(&s->lock);
    s->current = snapshot;
    pthread_mutex_unlock(&s->lock);
    s->stale = false;
    return SFP_OK;
}
