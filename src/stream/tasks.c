/* Splits a dataset into tasks: which samples each task has, in which order, and how classes are numbered.
 *
 * The test set is split by the same rule (task_split.c) as the training set, so that one function serves both: it assigns every
 * record, first to count and then to fill. If the training tasks come from the dataset and the test set has none, a test image
 * belongs to every task that has its class. */
#include "stream/tasks.h"

#include "base/mem.h"
#include "stream/source_internal.h"

#include <stdlib.h>
#include <string.h>

#define TASK_STREAM \
    (UINT64_C(0x7461736b) << 32) /* a separate sequence of random numbers of a seed (like CLASS_STREAM in source_internal.c) */

static sfp_status read_records(const sfp_source *s, sfp_record **out, sfp_error *err)
{
    if (s->count < 0 || !s->ops->record)
        return sfp__fail(err, SFP_EINVAL, "%s:%s: a live source cannot be split into tasks, expected a dataset", s->kind->name,
                         s->path);
    OWNED sfp_record *r = NULL;
    TRY(sfp__alloc(&r, (size_t)s->count, sizeof *r, err));
    for (int64_t i = 0; i < s->count; i++) {
        TRY(sfp__source_record(s, i, &r[i], err));
        if (r[i].label < -1 || r[i].label >= s->classes || r[i].domain < -1 || r[i].domain >= s->domains)
            return sfp__fail(err, SFP_EFORMAT, "%s:%s: image %lld has label %d and domain %d, expected at most %d and %d",
                             s->kind->name, s->path, (long long)i, r[i].label, r[i].domain, s->classes - 1, s->domains - 1);
    }
    *out = TAKE(r);
    return SFP_OK;
}

/* ------------------------------------------------------------- class order */

static sfp_status make_labels(int source_classes, int classes, sfp__tasks *out, sfp_error *err)
{
    TRY(sfp__alloc(&out->label_of, (size_t)source_classes, sizeof *out->label_of, err));
    TRY(sfp__alloc(&out->source_label, (size_t)classes, sizeof *out->source_label, err));
    out->classes = classes;
    return SFP_OK;
}

typedef struct ranked {
    int task; /* the first one with this class */
    int32_t label, source;
} ranked;

static int compare_ranked(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->task != y->task ? (x->task < y->task ? -1 : 1) : (x->label > y->label) - (x->label < y->label);
}

/* If the dataset gives the tasks, stream labels are sorted by the first task of a class, so that tasks have ascending ranges. */
static sfp_status order_by_task(const sfp_source *s, const sfp_record *r, const sfp__task_split *c, sfp__tasks *out,
                                sfp_error *err)
{
    OWNED ranked *list = NULL;
    TRY(sfp__alloc(&list, (size_t)s->classes, sizeof *list, err));
    for (int k = 0; k < s->classes; k++)
        list[k] = (ranked){c->tasks, out->label_of[k], k};
    for (int64_t i = 0; i < s->count; i++) {
        int t = r[i].label >= 0 ? sfp__task_split_task(c, &r[i], 0, 0) : -1;
        if (t >= 0 && t < list[r[i].label].task)
            list[r[i].label].task = t;
    }
    qsort(list, (size_t)s->classes, sizeof *list, compare_ranked);
    for (int k = 0; k < s->classes; k++) {
        out->source_label[k] = list[k].source;
        out->label_of[list[k].source] = k;
    }
    return SFP_OK;
}

/* -------------------------------------------------------------------- tasks */

/* Determines the tasks of an image. */
typedef struct membership {
    const sfp__task_split *split;
    const sfp__tasks *like;   /* the tasks of the training set; NULL: this is the training set, which does not use domain_of */
    const int32_t *domain_of; /* (test domains) number of the domain in the training set */
    bool by_class;            /* an image belongs to every task that has its class */
} membership;

static int compare_labels(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Appends each image to its tasks, or, while tasks have no sample arrays, only counts it. */
static sfp_status assign_images(const sfp_source *s, const sfp_record *r, const membership *m, sfp__tasks *out, sfp_error *err)
{
    for (int64_t i = 0; i < s->count; i++) {
        int32_t label = r[i].label >= 0 ? out->label_of[r[i].label] : -1, domain = r[i].domain;
        if (label < 0)
            continue;
        if (!m->like && m->split->kind == SFP__SPLIT_DOMAIN && domain < 0)
            return sfp__raw_image_blame(s, i, "has no domain, expected one for --tasks domain", err);
        if (m->like && domain >= 0)
            domain = m->domain_of[domain];
        int from = m->by_class ? 0 : sfp__task_split_task(m->split, &r[i], label, domain),
            to = m->by_class ? out->count : from + 1;
        for (int t = from; t >= 0 && t < to; t++) {
            sfp__task *task = &out->task[t];
            const sfp__task *like = m->by_class ? &m->like->task[t] : NULL;
            if (like && !bsearch(&label, like->class_of, (size_t)like->classes, sizeof label, compare_labels))
                continue;
            if (task->sample)
                task->sample[task->count] = i;
            task->count++;
        }
    }
    return SFP_OK;
}

/* Sets class_of of every task from its samples. */
static sfp_status list_classes(const sfp_record *r, sfp__tasks *out, sfp_error *err)
{
    OWNED bool *seen = NULL;
    TRY(sfp__alloc(&seen, (size_t)out->classes, sizeof *seen, err));
    for (int t = 0; t < out->count; t++) {
        sfp__task *task = &out->task[t];
        memset(seen, 0, (size_t)out->classes);
        for (int64_t i = 0; i < task->count; i++)
            seen[out->label_of[r[task->sample[i]].label]] = true;
        for (int k = 0; k < out->classes; k++)
            task->classes += seen[k];
        TRY(sfp__alloc(&task->class_of, (size_t)task->classes, sizeof *task->class_of, err));
        for (int k = 0, n = 0; k < out->classes; k++) {
            if (seen[k])
                task->class_of[n++] = k;
        }
    }
    return SFP_OK;
}

/* Creates the tasks with their names and samples, in the order of the source; none is empty. */
static sfp_status fill_tasks(const sfp_source *s, const sfp_record *r, const membership *m, sfp__tasks *out, sfp_error *err)
{
    TRY(sfp__alloc(&out->task, (size_t)m->split->tasks, sizeof *out->task, err));
    out->count = m->split->tasks;
    for (int t = 0; t < out->count; t++)
        TRY(sfp__check_memory(
            (out->task[t].name = m->like ? sfp__strdup(m->like->task[t].name) : sfp__task_split_name(s, m->split, t)), err));
    TRY(assign_images(s, r, m, out, err)); /* counts */
    for (int t = 0; t < out->count; t++) {
        TRY(sfp__alloc(&out->task[t].sample, (size_t)out->task[t].count, sizeof *out->task[t].sample, err));
        out->task[t].count = 0;
    }
    TRY(assign_images(s, r, m, out, err));
    for (int t = 0; t < out->count; t++) {
        char name[SFP__NAME_MAX];
        if (out->task[t].count == 0)
            return sfp__fail(err, SFP_EINVAL,
                             m->like ? "%s:%s: test set has no labelled images for task '%s'"
                                     : "%s:%s: task '%s' has no labelled images",
                             s->kind->name, s->path, sfp__printable(out->task[t].name, name, sizeof name));
    }
    return SFP_OK;
}

/* ------------------------------------------------------ order within a task */

/* Sorts the samples of a task by class; the samples of a class keep their order. */
static sfp_status sort_by_class(const sfp_record *r, const sfp__tasks *tasks, sfp__task *task, sfp_error *err)
{
    OWNED int64_t *end = NULL, *sorted = NULL;
    TRY(sfp__alloc(&end, (size_t)tasks->classes, sizeof *end, err));
    TRY(sfp__alloc(&sorted, (size_t)task->count, sizeof *sorted, err));
    for (int64_t i = 0; i < task->count; i++)
        end[tasks->label_of[r[task->sample[i]].label]]++;
    for (int k = 1; k < tasks->classes; k++)
        end[k] += end[k - 1];
    for (int64_t i = task->count - 1; i >= 0; i--)
        sorted[--end[tasks->label_of[r[task->sample[i]].label]]] = task->sample[i];
    memcpy(task->sample, sorted, (size_t)task->count * sizeof *sorted);
    return SFP_OK;
}

static sfp_status order_samples(const sfp_source *s, const sfp_record *r, const sfp__stream_order *order, sfp__tasks *out,
                                sfp_error *err)
{
    bool by_class = order->within == SFP__WITHIN_CLASS;
    bool given = order->within == SFP__WITHIN_GIVEN || (order->within != SFP__WITHIN_SHUFFLE && s->keeps_order);
    for (int t = 0; t < out->count; t++) {
        if (!given)
            sfp__shuffle(out->task[t].sample, out->task[t].count, order->seed, TASK_STREAM + (uint64_t)t);
        if (by_class)
            TRY(sort_by_class(r, out, &out->task[t], err));
    }
    out->in_source_order = given && !by_class;
    return SFP_OK;
}

sfp_status sfp__tasks_create(const sfp_source *s, const char *spec, const sfp__stream_order *order, uint64_t *unlabelled,
                             sfp__tasks *out, sfp_error *err)
{
    static const sfp__stream_order natural = {0};
    order = order ? order : &natural;
    OWNED sfp_record *r = NULL;
    OWNED int64_t *class_at = NULL;
    OWNED_BY(sfp__task_split_done) sfp__task_split c = {0};
    OWNED_BY(sfp__tasks_done) sfp__tasks made = {0};
    uint64_t without = 0;
    TRY(read_records(s, &r, err));
    for (int64_t i = 0; i < s->count; i++)
        without += r[i].label < 0;
    if (without == (uint64_t)s->count)
        return sfp__fail(err, SFP_EINVAL, "%s:%s: dataset has no labelled images", s->kind->name, s->path);
    TRY(sfp__task_split_make(s, r, spec, &c, err));
    TRY(sfp__class_order(s->classes, order->classes, &class_at, err));
    TRY(make_labels(s->classes, s->classes, &made, err));
    for (int k = 0; k < s->classes; k++) {
        made.source_label[k] = (int32_t)class_at[k];
        made.label_of[class_at[k]] = k;
    }
    if (c.kind == SFP__SPLIT_GIVEN)
        TRY(order_by_task(s, r, &c, &made, err));
    TRY(fill_tasks(s, r, &(membership){.split = &c}, &made, err));
    TRY(order_samples(s, r, order, &made, err));
    TRY(list_classes(r, &made, err));
    made.free = c.kind == SFP__SPLIT_FREE;
    *out = TAKE(made);
    if (unlabelled)
        *unlabelled = without;
    return SFP_OK;
}

/* ----------------------------------------------------------------- test set */

/* Maps numbers of the test set to numbers of the training set by name; -1: not in the training set. */
static sfp_status match_names(char **from, int count, char **to, int to_count, int32_t *map, sfp_error *err)
{
    OWNED_BY(sfp__names_done) sfp__names table = {0};
    int32_t id;
    for (int i = 0; i < to_count; i++)
        TRY(sfp__names_add(&table, to[i], strlen(to[i]), &id, err));
    for (int i = 0; i < count; i++)
        map[i] = sfp__names_find(&table, from[i], strlen(from[i]));
    return SFP_OK;
}

/* Sets the labels of the test set by class name. */
static sfp_status match_classes(const sfp_source *test, const sfp_source *train, const sfp_record *r, const sfp__tasks *like,
                                sfp__tasks *out, sfp_error *err)
{
    char name[SFP__NAME_MAX];
    TRY(make_labels(test->classes, like->classes, out, err));
    TRY(match_names(test->class_names, test->classes, train->class_names, train->classes, out->label_of, err));
    for (int k = 0; k < like->classes; k++)
        out->source_label[k] = -1;
    for (int k = 0; k < test->classes; k++) {
        if (out->label_of[k] < 0)
            continue;
        out->label_of[k] = like->label_of[out->label_of[k]];
        out->source_label[out->label_of[k]] = k;
    }
    for (int64_t i = 0; i < test->count; i++) {
        if (r[i].label >= 0 && out->label_of[r[i].label] < 0)
            return sfp__fail(err, SFP_EINVAL, "%s:%s: class '%s' is not in the training set %s:%s", test->kind->name, test->path,
                             sfp__printable(test->class_names[r[i].label], name, sizeof name), train->kind->name, train->path);
    }
    return SFP_OK;
}

sfp_status sfp__tasks_create_test(const sfp_source *test, const sfp_source *train, const sfp__tasks *like, const char *spec,
                                  int64_t limit, sfp__tasks *out, sfp_error *err)
{
    OWNED sfp_record *r = NULL, *train_r = NULL;
    OWNED int32_t *domain_of = NULL;
    OWNED_BY(sfp__task_split_done) sfp__task_split c = {0};
    OWNED_BY(sfp__tasks_done) sfp__tasks made = {0};
    TRY(read_records(test, &r, err));
    if (train->count >= 0 || (spec && strcmp(spec, "free") != 0)) /* else the stream is one task */
        TRY(read_records(train, &train_r, err));
    TRY(sfp__task_split_make(train, train_r, spec, &c, err));
    if (c.tasks != like->count)
        return sfp__fail(err, SFP_EINVAL, "%s:%s: the training set has %d tasks, expected %d", train->kind->name, train->path,
                         like->count, c.tasks);
    TRY(match_classes(test, train, r, like, &made, err));
    TRY(sfp__alloc(&domain_of, (size_t)test->domains, sizeof *domain_of, err));
    TRY(match_names(test->domain_names, test->domains, train->domain_names, train->domains, domain_of, err));
    bool by_class = c.kind == SFP__SPLIT_GIVEN && !sfp__gives_tasks(test, r);
    TRY(fill_tasks(test, r, &(membership){&c, like, domain_of, by_class}, &made, err));
    for (int t = 0; t < made.count; t++) { /* keeps at most `limit` samples, evenly spread */
        sfp__task *task = &made.task[t];
        for (int64_t i = 0; i < limit && limit < task->count; i++)
            task->sample[i] = task->sample[(int64_t)((__int128)i * task->count / limit)];
        task->count = limit > 0 && limit < task->count ? limit : task->count;
    }
    TRY(list_classes(r, &made, err));
    made.free = c.kind == SFP__SPLIT_FREE;
    *out = TAKE(made);
    return SFP_OK;
}

void sfp__tasks_done(sfp__tasks *t)
{
    for (int i = 0; i < t->count; i++) {
        sfp__free(t->task[i].name);
        sfp__free(t->task[i].class_of);
        sfp__free(t->task[i].sample);
    }
    sfp__free(t->task);
    sfp__free(t->label_of);
    sfp__free(t->source_label);
    *t = (sfp__tasks){0};
}
