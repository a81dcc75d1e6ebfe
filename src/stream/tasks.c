/* Cutting a data set into tasks: which samples each has, in which order, and how classes are numbered.
 *
 * The test set is cut by the same cut (cut.h) as the training set. So both go the same way: read all records, ask the cut for
 * each, count, fill. Where training tasks come from the data set and the test set does not give any, a test picture belongs to
 * every task that has its class. */
#include "stream/tasks.h"

#include "base/mem.h"
#include "stream/cut.h"
#include "stream/published.h"

#include <stdlib.h>
#include <string.h>

#define TASK_STREAM (UINT64_C(0x7461736b) << 32) /* a sequence of its own of a seed (as CLASS_STREAM in published.c) */

static sfp_status read_records(const sfp_source *s, sfp_record **out, sfp_error *err)
{
    sfp_status status = SFP_OK;
    if (s->count < 0 || !s->record)
        return sfp__fail(err, SFP_EINVAL, "%s:%s: has no end, so it cannot be cut into tasks", s->kind->name, s->path);
    sfp_record *r = sfp__room_for((size_t)s->count, sizeof *r, &status, err);
    for (int64_t i = 0; i < s->count && status == SFP_OK; i++) {
        status = s->record(s, i, &r[i], err);
        if (status == SFP_OK && (r[i].label < -1 || r[i].label >= s->classes || r[i].domain < -1 || r[i].domain >= s->domains))
            status = sfp__fail(err, SFP_EFORMAT, "%s:%s: picture %lld has label %d and domain %d, expected at most %d and %d",
                               s->kind->name, s->path, (long long)i, r[i].label, r[i].domain, s->classes - 1, s->domains - 1);
    }
    if (status != SFP_OK) {
        sfp__free(r);
        return status;
    }
    *out = r;
    return SFP_OK;
}

/* ------------------------------------------------------------- class order */

/* Stream labels: classes in their natural order, or shuffled. */
static sfp_status order_classes(int classes, int order, sfp_tasks *out, sfp_error *err)
{
    int64_t *at = NULL;
    sfp_status status = sfp__class_order(classes, order, &at, err);
    if (status == SFP_OK)
        out->label_of = sfp__room_for((size_t)classes, sizeof *out->label_of, &status, err);
    if (status == SFP_OK)
        out->source_label = sfp__room_for((size_t)classes, sizeof *out->source_label, &status, err);
    for (int k = 0; k < classes && status == SFP_OK; k++) {
        out->source_label[k] = (int32_t)at[k];
        out->label_of[at[k]] = k;
    }
    out->classes = status == SFP_OK ? classes : 0;
    sfp__free(at);
    return status;
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

/* With tasks that the data set gives, stream labels go by the first task of a class, so that tasks have ascending ranges. */
static sfp_status order_by_task(const sfp_source *s, const sfp_record *r, const sfp_cut *c, sfp_tasks *out, sfp_error *err)
{
    sfp_status status = SFP_OK;
    ranked *list = sfp__room_for((size_t)s->classes, sizeof *list, &status, err);
    if (!list)
        return status;
    for (int k = 0; k < s->classes; k++)
        list[k] = (ranked){c->tasks, out->label_of[k], k};
    for (int64_t i = 0; i < s->count; i++) {
        int t = r[i].label >= 0 ? sfp__cut_task(c, &r[i], 0, 0) : -1;
        if (t >= 0 && t < list[r[i].label].task)
            list[r[i].label].task = t;
    }
    qsort(list, (size_t)s->classes, sizeof *list, compare_ranked);
    for (int k = 0; k < s->classes; k++) {
        out->source_label[k] = list[k].source;
        out->label_of[list[k].source] = k;
    }
    sfp__free(list);
    return SFP_OK;
}

/* -------------------------------------------------------------------- tasks */

/* Makes room for the samples that were counted (task[t].count), which is set back to 0 for filling. */
static sfp_status reserve_samples(sfp_tasks *out, sfp_error *err)
{
    sfp_status status = SFP_OK;
    for (int t = 0; t < out->count && status == SFP_OK; t++) {
        out->task[t].sample = sfp__room_for((size_t)out->task[t].count, sizeof *out->task[t].sample, &status, err);
        out->task[t].count = 0;
    }
    return status;
}

/* class_of of every task, from its samples. */
static sfp_status list_classes(const sfp_record *r, sfp_tasks *out, sfp_error *err)
{
    sfp_status status = SFP_OK;
    bool *seen = sfp__room_for((size_t)out->classes, sizeof *seen, &status, err);
    for (int t = 0; t < out->count && status == SFP_OK; t++) {
        sfp_task *task = &out->task[t];
        memset(seen, 0, (size_t)out->classes);
        for (int64_t i = 0; i < task->count; i++)
            seen[out->label_of[r[task->sample[i]].label]] = true;
        for (int k = 0; k < out->classes; k++)
            task->classes += seen[k];
        task->class_of = sfp__room_for((size_t)task->classes, sizeof *task->class_of, &status, err);
        for (int k = 0, n = 0; k < out->classes && status == SFP_OK; k++) {
            if (seen[k])
                task->class_of[n++] = k;
        }
    }
    sfp__free(seen);
    return status;
}

static sfp_status create_tasks(int count, sfp_tasks *out, sfp_error *err)
{
    sfp_status status = SFP_OK;
    out->task = sfp__room_for((size_t)count, sizeof *out->task, &status, err);
    out->count = out->task ? count : 0;
    return status;
}

static sfp_status fill_training(const sfp_source *s, const sfp_record *r, const sfp_cut *c, uint64_t seed, sfp_tasks *out,
                                sfp_error *err)
{
    sfp_status status = create_tasks(c->tasks, out, err);
    for (int t = 0; t < out->count && status == SFP_OK; t++) {
        out->task[t].name = sfp__cut_name(s, c, t);
        if (!out->task[t].name)
            status = sfp__fail_nomem(err);
    }
    for (int pass = 0; pass < 2 && status == SFP_OK; pass++) { /* count, then fill */
        for (int64_t i = 0; i < s->count && status == SFP_OK; i++) {
            if (r[i].label < 0)
                continue;
            if (c->kind == SFP_CUT_DOMAIN && r[i].domain < 0) {
                status = sfp__picture_blame(s, i, "has no domain, expected one for --tasks domain", err);
                break;
            }
            int t = sfp__cut_task(c, &r[i], out->label_of[r[i].label], r[i].domain);
            if (t >= 0 && pass == 1)
                out->task[t].sample[out->task[t].count] = i;
            if (t >= 0)
                out->task[t].count++;
        }
        if (pass == 0 && status == SFP_OK)
            status = reserve_samples(out, err);
    }
    for (int t = 0; t < out->count && status == SFP_OK; t++) {
        char name[SFP_NAME_MAX];
        if (out->task[t].count == 0)
            status = sfp__fail(err, SFP_EINVAL, "%s:%s: task '%s' has no labelled pictures", s->kind->name, s->path,
                               sfp__printable(out->task[t].name, name, sizeof name));
        else if (!s->keeps_order)
            sfp__shuffle(out->task[t].sample, out->task[t].count, seed, TASK_STREAM + (uint64_t)t);
    }
    return status == SFP_OK ? list_classes(r, out, err) : status;
}

sfp_status sfp__tasks_create(const sfp_source *s, const char *spec, int order, uint64_t seed, uint64_t *unlabelled,
                             sfp_tasks *out, sfp_error *err)
{
    sfp_record *r = NULL;
    sfp_cut c = {0};
    sfp_tasks made = {0};
    uint64_t without = 0;
    sfp_status status = read_records(s, &r, err);
    for (int64_t i = 0; status == SFP_OK && i < s->count; i++)
        without += r[i].label < 0;
    if (status == SFP_OK && without == (uint64_t)s->count)
        status = sfp__fail(err, SFP_EINVAL, "%s:%s: has no labelled pictures", s->kind->name, s->path);
    if (status == SFP_OK)
        status = sfp__cut_make(s, r, spec, &c, err);
    if (status == SFP_OK)
        status = order_classes(s->classes, order, &made, err);
    if (status == SFP_OK && c.kind == SFP_CUT_GIVEN)
        status = order_by_task(s, r, &c, &made, err);
    if (status == SFP_OK)
        status = fill_training(s, r, &c, seed, &made, err);
    if (status == SFP_OK) {
        made.free = c.kind == SFP_CUT_FREE;
        *out = made;
        if (unlabelled)
            *unlabelled = without;
    } else {
        sfp__tasks_done(&made);
    }
    sfp__cut_done(&c);
    sfp__free(r);
    return status;
}

/* ----------------------------------------------------------------- test set */

/* Numbers of the training set for those of the test set, by name; -1 where training has none. */
static sfp_status match_names(char **from, int count, char **to, int to_count, int32_t **out, sfp_error *err)
{
    sfp_status status = SFP_OK;
    sfp_names table = {0};
    int32_t id, *map = sfp__room_for((size_t)count, sizeof *map, &status, err);
    for (int i = 0; i < to_count && status == SFP_OK; i++)
        status = sfp__names_add(&table, to[i], strlen(to[i]), &id, err);
    for (int i = 0; i < count && status == SFP_OK; i++)
        map[i] = sfp__names_find(&table, from[i], strlen(from[i]));
    sfp__names_done(&table);
    if (status != SFP_OK) {
        sfp__free(map);
        return status;
    }
    *out = map;
    return SFP_OK;
}

/* Labels of the test set by class name. */
static sfp_status match_classes(const sfp_source *test, const sfp_source *train, const sfp_record *r, const sfp_tasks *like,
                                sfp_tasks *out, sfp_error *err)
{
    char name[SFP_NAME_MAX];
    sfp_status status = match_names(test->class_names, test->classes, train->class_names, train->classes, &out->label_of, err);
    if (status != SFP_OK)
        return status;
    out->classes = like->classes;
    out->source_label = sfp__room_for((size_t)like->classes, sizeof *out->source_label, &status, err);
    for (int k = 0; k < like->classes && status == SFP_OK; k++)
        out->source_label[k] = -1;
    for (int k = 0; k < test->classes && status == SFP_OK; k++) {
        if (out->label_of[k] < 0)
            continue;
        out->label_of[k] = like->label_of[out->label_of[k]];
        out->source_label[out->label_of[k]] = k;
    }
    for (int64_t i = 0; i < test->count && status == SFP_OK; i++) {
        if (r[i].label >= 0 && out->label_of[r[i].label] < 0)
            status =
                sfp__fail(err, SFP_EINVAL, "%s:%s: class '%s' is not in the training set %s:%s", test->kind->name, test->path,
                          sfp__printable(test->class_names[r[i].label], name, sizeof name), train->kind->name, train->path);
    }
    return status;
}

static int compare_labels(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static bool has_class(const sfp_task *t, int32_t label)
{
    return bsearch(&label, t->class_of, (size_t)t->classes, sizeof label, compare_labels) != NULL;
}

/* At most `limit` samples, evenly spread. */
static void thin_out(sfp_task *t, int64_t limit)
{
    if (limit <= 0 || t->count <= limit)
        return;
    for (int64_t i = 0; i < limit; i++)
        t->sample[i] = t->sample[(int64_t)((__int128)i * t->count / limit)];
    t->count = limit;
}

typedef struct test_cut {
    const sfp_cut *cut;
    const sfp_tasks *like;
    const int32_t *domain_of; /* (test domains) of the training set */
    bool by_class;            /* every task that has the class */
} test_cut;

static sfp_status fill_test(const sfp_source *test, const sfp_record *r, const test_cut *c, int64_t limit, sfp_tasks *out,
                            sfp_error *err)
{
    char name[SFP_NAME_MAX];
    sfp_status status = create_tasks(c->like->count, out, err);
    for (int t = 0; t < out->count && status == SFP_OK; t++) {
        out->task[t].name = sfp__strdup(c->like->task[t].name);
        if (!out->task[t].name)
            status = sfp__fail_nomem(err);
    }
    for (int pass = 0; pass < 2 && status == SFP_OK; pass++) { /* count, then fill */
        for (int64_t i = 0; i < test->count; i++) {
            int32_t label = r[i].label >= 0 ? out->label_of[r[i].label] : -1;
            if (label < 0)
                continue;
            int from = 0, to = out->count;
            if (!c->by_class) {
                from = sfp__cut_task(c->cut, &r[i], label, r[i].domain >= 0 ? c->domain_of[r[i].domain] : -1);
                to = from + 1;
            }
            for (int t = from; t >= 0 && t < to; t++) {
                if (c->by_class && !has_class(&c->like->task[t], label))
                    continue;
                if (pass == 1)
                    out->task[t].sample[out->task[t].count] = i;
                out->task[t].count++;
            }
        }
        if (pass == 0)
            status = reserve_samples(out, err);
    }
    for (int t = 0; t < out->count && status == SFP_OK; t++) {
        if (out->task[t].count == 0)
            status = sfp__fail(err, SFP_EINVAL, "%s:%s: has no labelled pictures for task '%s'", test->kind->name, test->path,
                               sfp__printable(out->task[t].name, name, sizeof name));
        else
            thin_out(&out->task[t], limit);
    }
    return status == SFP_OK ? list_classes(r, out, err) : status;
}

sfp_status sfp__tasks_create_test(const sfp_source *test, const sfp_source *train, const sfp_tasks *like, const char *spec,
                                  int64_t limit, sfp_tasks *out, sfp_error *err)
{
    sfp_record *r = NULL, *train_r = NULL;
    sfp_cut c = {0};
    sfp_tasks made = {0};
    int32_t *domain_of = NULL;
    sfp_status status = read_records(test, &r, err);
    bool endless = train->count < 0 && (!spec || strcmp(spec, "free") == 0); /* its stream is one task */
    if (status == SFP_OK && !endless)
        status = read_records(train, &train_r, err);
    if (status == SFP_OK)
        status = sfp__cut_make(train, train_r, spec, &c, err);
    if (status == SFP_OK && c.tasks != like->count)
        status = sfp__fail(err, SFP_EINVAL, "%s:%s: the training set has %d tasks, expected %d", train->kind->name, train->path,
                           like->count, c.tasks);
    if (status == SFP_OK)
        status = match_classes(test, train, r, like, &made, err);
    if (status == SFP_OK)
        status = match_names(test->domain_names, test->domains, train->domain_names, train->domains, &domain_of, err);
    if (status == SFP_OK) {
        test_cut by = {&c, like, domain_of, c.kind == SFP_CUT_GIVEN && !sfp__gives_tasks(test, r)};
        status = fill_test(test, r, &by, limit, &made, err);
    }
    if (status == SFP_OK) {
        made.free = c.kind == SFP_CUT_FREE;
        *out = made;
    } else {
        sfp__tasks_done(&made);
    }
    sfp__free(domain_of);
    sfp__cut_done(&c);
    sfp__free(train_r);
    sfp__free(r);
    return status;
}

void sfp__tasks_done(sfp_tasks *t)
{
    for (int i = 0; i < t->count; i++) {
        sfp__free(t->task[i].name);
        sfp__free(t->task[i].class_of);
        sfp__free(t->task[i].sample);
    }
    sfp__free(t->task);
    sfp__free(t->label_of);
    sfp__free(t->source_label);
    *t = (sfp_tasks){0};
}
