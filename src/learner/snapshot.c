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
        sfp__snapshot *one = s->all;
        s->all = one->next;
        for (int i = 0; i < SFP_HEAD_MEMBERS; i++)
            sfp__head_scorer_free(one->heads[i]);
        sfp__free(one->block);
        sfp__free(one->seen);
        sfp__free(one->names);
        sfp__free(one);
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

/* One that nobody holds and that is not the current one. Only the publisher takes such, so it stays free without the lock. */
static sfp__snapshot *free_one(sfp__snapshots *s, sfp_error *err)
{
    pthread_mutex_lock(&s->lock);
    sfp__snapshot *one = s->all;
    while (one && (one == s->current || one->holders > 0))
        one = one->next;
    pthread_mutex_unlock(&s->lock);
    if (one)
        return one;
    if (!(one = sfp__calloc(1, sizeof *one))) {
        (void)sfp__fail_nomem(err);
        return NULL;
    }
    pthread_mutex_lock(&s->lock);
    one->next = s->all;
    s->all = one;
    pthread_mutex_unlock(&s->lock);
    return one;
}

static const float *append(float **at, const float *from, size_t n)
{
    float *to = *at;
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
    TRY(sfp__check_memory(sfp__grow(&to->block, sizeof *to->block, 0, floats, &to->block_capacity) &&
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
    to->mixed = from->mix != NULL;
    if (!from->mix)
        return SFP_OK;
    to->mix = *from->mix;
    for (int i = 1; i < SFP_HEAD_MEMBERS; i++) {
        TRY(sfp__head_freeze(from->heads[i], &to->heads[i], err));
    }
    return SFP_OK;
}

sfp_status sfp__snapshots_publish(sfp__snapshots *s, const sfp__snapshot_source *from, sfp_error *err)
{
    sfp__snapshot *one = free_one(s, err);
    if (!one)
        return SFP_ENOMEM;
    TRY(fill(one, from, err));
    pthread_mutex_lock(&s->lock);
    s->current = one;
    pthread_mutex_unlock(&s->lock);
    s->stale = false;
    return SFP_OK;
}
