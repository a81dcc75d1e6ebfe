/* Cutting a data set into tasks.
 *
 * A cut says to which task a record belongs, and is made from the
 * specification and the training set alone; the test set is cut by the same
 * one. So both go the same way: read all records, ask the cut for each, count,
 * fill. Where training tasks come from the data set and the test set does not
 * give any, a test picture belongs to every task that has its class. */
#include "stream/tasks.h"

#include "base/mem.h"
#include "stream/source_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TASKS_MAX 10000
/* shuffles of different purpose draw from different sequences of a seed */
#define CLASS_STREAM (UINT64_C(0x636c6173) << 32)
#define TASK_STREAM (UINT64_C(0x7461736b) << 32)

typedef enum cut_kind { CUT_FREE, CUT_CLASSES, CUT_DOMAIN, CUT_TIME, CUT_GIVEN } cut_kind;

typedef struct cut {
    cut_kind kind;
    int tasks;
    int *end;        /* CUT_CLASSES (tasks): first stream label behind the task */
    int32_t *domain; /* CUT_DOMAIN (tasks): of the training set */
    double *value;   /* CUT_TIME, CUT_GIVEN (tasks): ascending */
} cut;

static void cut_done(cut *c)
{
    sfp__free(c->end);
    sfp__free(c->domain);
    sfp__free(c->value);
    *c = (cut){0};
}

static void *need(size_t count, size_t size, sfp_status *status, sfp_error *err)
{
    void *p = sfp__calloc(count ? count : 1, size);
    if (!p)
        *status = sfp__fail_nomem(err, count * size);
    return p;
}

static sfp_status read_records(const sfp_source *s, sfp_record **out, sfp_error *err)
{
    sfp_status status = SFP_OK;
    if (s->count < 0 || !s->record)
        return sfp__fail(err, SFP_EINVAL, "%s:%s: has no end, so it cannot be cut into tasks", s->kind->name, s->path);
    sfp_record *r = need((size_t)s->count, sizeof *r, &status, err);
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

static sfp_status picture_fail(const sfp_source *s, int64_t i, const char *what, sfp_error *err)
{
    char name[SFP_NAME_MAX];
    return sfp__fail(err, SFP_EFORMAT, "%s:%s: %s %s", s->kind->name, s->path, s->name(s, i, name, sizeof name), what);
}

/* ------------------------------------------------------------ specification */

/* "3,2,2" or "5": positive numbers. *count is 0 when it is something else. */
static sfp_status parse_numbers(const char *spec, int **out, int *count, sfp_error *err)
{
    sfp_status status = SFP_OK;
    *count = 0;
    if (spec[strspn(spec, "0123456789,")] != '\0' || !*spec)
        return SFP_OK;
    int *list = need(strlen(spec), sizeof *list, &status, err);
    for (const char *at = spec; status == SFP_OK;) {
        char *stop;
        long v = *at >= '0' && *at <= '9' ? strtol(at, &stop, 10) : 0;
        if (v < 1 || v > SFP_CLASSES_MAX) {
            status =
                sfp__fail(err, SFP_EINVAL, "tasks '%.60s': expected a number of tasks, or numbers of classes like 3,2,2", spec);
            break;
        }
        list[(*count)++] = (int)v;
        if (!*stop)
            break;
        at = stop + 1;
    }
    if (status == SFP_OK)
        *out = list;
    else
        sfp__free(list);
    return status;
}

/* One number: so many tasks, the first ones a class larger. Several: as they are. Makes *sizes the ends. */
static sfp_status cut_classes(const sfp_source *s, const char *spec, int *sizes, int count, cut *c, sfp_error *err)
{
    sfp_status status = SFP_OK;
    int tasks = count == 1 ? sizes[0] : count;
    if (count == 1 && tasks > s->classes)
        return sfp__fail(err, SFP_EINVAL, "tasks '%.60s': more than the %d classes of %s:%s", spec, s->classes, s->kind->name,
                         s->path);
    int64_t sum = 0;
    for (int t = 0; t < count && count > 1; t++)
        sum += sizes[t];
    if (count > 1 && sum != s->classes)
        return sfp__fail(err, SFP_EINVAL, "tasks '%.60s': adds up to %lld classes, expected the %d of %s:%s", spec,
                         (long long)sum, s->classes, s->kind->name, s->path);
    int *end = need((size_t)tasks, sizeof *end, &status, err);
    if (!end)
        return status;
    for (int t = 0, at = 0; t < tasks; t++) {
        at += count > 1 ? sizes[t] : s->classes / tasks + (t < s->classes % tasks);
        end[t] = at;
    }
    *c = (cut){.kind = CUT_CLASSES, .tasks = tasks, .end = end};
    return SFP_OK;
}

static int32_t find_name(char **names, int count, const char *s, size_t n)
{
    for (int i = 0; i < count; i++) {
        if (strlen(names[i]) == n && memcmp(names[i], s, n) == 0)
            return i;
    }
    return -1;
}

static sfp_status unknown_domain(const sfp_source *s, const char *name, size_t n, sfp_error *err)
{
    char text[SFP_NAME_MAX];
    sfp_text list = {0};
    for (int i = 0; i < s->domains && list.length < 300; i++) {
        sfp__text_put(&list, i ? ", " : "");
        sfp__text_put(&list, sfp__printable(s->domain_names[i], text, sizeof text));
    }
    sfp_status status = sfp__fail(err, SFP_EINVAL, "tasks: domain '%.*s' is not in %s:%s, expected some of %s",
                                  (int)(n < 60 ? n : 60), name, s->kind->name, s->path, list.failed || !list.s ? "..." : list.s);
    sfp__text_done(&list);
    return status;
}

/* list: "a,b,c", or "" for all in their order. */
static sfp_status cut_domains(const sfp_source *s, const char *list, cut *c, sfp_error *err)
{
    sfp_status status = SFP_OK;
    int tasks = 0;
    if (s->domains == 0)
        return sfp__fail(err, SFP_EINVAL, "tasks 'domain': %s:%s has no domains", s->kind->name, s->path);
    int32_t *domain = need((size_t)s->domains, sizeof *domain, &status, err);
    if (!domain)
        return status;
    for (; !*list && tasks < s->domains; tasks++)
        domain[tasks] = tasks;
    for (const char *at = list; *list && status == SFP_OK; at++) {
        size_t n = strcspn(at, ",");
        int32_t d = find_name(s->domain_names, s->domains, at, n);
        if (d < 0)
            status = unknown_domain(s, at, n, err);
        for (int t = 0; t < tasks && status == SFP_OK; t++) {
            if (domain[t] == d)
                status = sfp__fail(err, SFP_EINVAL, "tasks: domain '%.60s' comes twice", s->domain_names[d]);
        }
        if (status == SFP_OK)
            domain[tasks++] = d;
        at += n;
        if (!*at)
            break;
    }
    if (status != SFP_OK) {
        sfp__free(domain);
        return status;
    }
    *c = (cut){.kind = CUT_DOMAIN, .tasks = tasks, .domain = domain};
    return SFP_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double value_of(const sfp_record *r, cut_kind kind)
{
    return kind == CUT_TIME ? r->time : r->task >= 0 ? (double)r->task : NAN;
}

/* One task a value of time or given task, of labelled pictures. */
static sfp_status cut_values(const sfp_source *s, const sfp_record *r, cut_kind kind, cut *c, sfp_error *err)
{
    sfp_status status = SFP_OK;
    double *value = need((size_t)s->count, sizeof *value, &status, err);
    size_t n = 0, distinct = 0;
    for (int64_t i = 0; i < s->count && status == SFP_OK; i++) {
        if (r[i].label < 0)
            continue;
        value[n] = value_of(&r[i], kind);
        if (isnan(value[n++]))
            status = picture_fail(
                s, i, kind == CUT_TIME ? "has no time, expected one for --tasks time" : "has no task, but others have one", err);
    }
    if (status == SFP_OK) {
        qsort(value, n, sizeof *value, compare_doubles);
        for (size_t i = 0; i < n; i++) {
            if (distinct == 0 || value[i] > value[distinct - 1])
                value[distinct++] = value[i];
        }
        if (distinct > TASKS_MAX)
            status = sfp__fail(err, SFP_ELIMIT, "%s:%s: has %zu different %s, expected at most %d (use --tasks free)",
                               s->kind->name, s->path, distinct, kind == CUT_TIME ? "times" : "tasks", TASKS_MAX);
    }
    if (status != SFP_OK) {
        sfp__free(value);
        return status;
    }
    *c = (cut){.kind = kind, .tasks = (int)distinct, .value = value};
    return SFP_OK;
}

static bool gives_tasks(const sfp_source *s, const sfp_record *r)
{
    for (int64_t i = 0; i < s->count; i++) {
        if (r[i].label >= 0 && r[i].task >= 0)
            return true;
    }
    return false;
}

static sfp_status make_cut(const sfp_source *s, const sfp_record *r, const char *spec, cut *c, sfp_error *err)
{
    int *sizes = NULL, count = 0;
    if (!spec && gives_tasks(s, r))
        return cut_values(s, r, CUT_GIVEN, c, err);
    if (!spec || strcmp(spec, "free") == 0) {
        *c = (cut){.kind = CUT_FREE, .tasks = 1};
        return SFP_OK;
    }
    if (strcmp(spec, "time") == 0)
        return cut_values(s, r, CUT_TIME, c, err);
    if (strcmp(spec, "domain") == 0 || strncmp(spec, "domain:", 7) == 0)
        return cut_domains(s, spec[6] ? spec + 7 : "", c, err);
    sfp_status status = parse_numbers(spec, &sizes, &count, err);
    if (status == SFP_OK && count == 0)
        status =
            sfp__fail(err, SFP_EINVAL, "tasks '%.60s': expected a number, sizes like 3,2,2, domain[:a,b], time or free", spec);
    else if (status == SFP_OK)
        status = cut_classes(s, spec, sizes, count, c, err);
    sfp__free(sizes);
    return status;
}

/* The task of a record (its domain by number of the training set), -1: none. */
static int task_of(const cut *c, const sfp_record *r, int32_t stream_label, int32_t domain)
{
    if (c->kind == CUT_FREE)
        return 0;
    if (c->kind == CUT_CLASSES || c->kind == CUT_DOMAIN) {
        for (int t = 0; t < c->tasks; t++) {
            if (c->kind == CUT_CLASSES ? stream_label < c->end[t] : c->domain[t] == domain)
                return t;
        }
        return -1;
    }
    double v = value_of(r, c->kind);
    const double *found = isnan(v) ? NULL : bsearch(&v, c->value, (size_t)c->tasks, sizeof v, compare_doubles);
    return found ? (int)(found - c->value) : -1;
}

/* ------------------------------------------------------------- class order */

/* Stream labels: classes in their natural order, or shuffled. */
static sfp_status order_classes(int classes, int order, sfp_tasks *out, sfp_error *err)
{
    sfp_status status = SFP_OK;
    int64_t *at = need((size_t)classes, sizeof *at, &status, err);
    out->label_of = at ? need((size_t)classes, sizeof *out->label_of, &status, err) : NULL;
    out->source_label = out->label_of ? need((size_t)classes, sizeof *out->source_label, &status, err) : NULL;
    if (status == SFP_OK) {
        out->classes = classes;
        for (int k = 0; k < classes; k++)
            at[k] = k;
        if (order != 0)
            sfp__shuffle(at, classes, (uint64_t)(int64_t)order, CLASS_STREAM);
        for (int k = 0; k < classes; k++) {
            out->source_label[k] = (int32_t)at[k];
            out->label_of[at[k]] = k;
        }
    }
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
static sfp_status order_by_task(const sfp_source *s, const sfp_record *r, const cut *c, sfp_tasks *out, sfp_error *err)
{
    sfp_status status = SFP_OK;
    ranked *list = need((size_t)s->classes, sizeof *list, &status, err);
    if (!list)
        return status;
    for (int k = 0; k < s->classes; k++)
        list[k] = (ranked){c->tasks, out->label_of[k], k};
    for (int64_t i = 0; i < s->count; i++) {
        int t = r[i].label >= 0 ? task_of(c, &r[i], 0, 0) : -1;
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

static char *task_name(const sfp_source *s, const cut *c, int t)
{
    char text[64];
    int first = c->kind == CUT_CLASSES && t > 0 ? c->end[t - 1] : 0;
    switch (c->kind) {
    case CUT_FREE:
        return sfp__strdup("all");
    case CUT_DOMAIN:
        return sfp__strdup(s->domain_names[c->domain[t]]);
    case CUT_CLASSES:
        if (c->end[t] - first == 1)
            (void)snprintf(text, sizeof text, "class %d", first);
        else
            (void)snprintf(text, sizeof text, "classes %d-%d", first, c->end[t] - 1);
        break;
    case CUT_TIME:
        (void)snprintf(text, sizeof text, "%.15g", c->value[t]);
        break;
    case CUT_GIVEN:
        (void)snprintf(text, sizeof text, "task %.0f", c->value[t]);
        break;
    }
    return sfp__strdup(text);
}

/* Makes room for the samples that were counted (task[t].count), which is set back to 0 for filling. */
static sfp_status reserve_samples(sfp_tasks *out, sfp_error *err)
{
    sfp_status status = SFP_OK;
    for (int t = 0; t < out->count && status == SFP_OK; t++) {
        out->task[t].sample = need((size_t)out->task[t].count, sizeof *out->task[t].sample, &status, err);
        out->task[t].count = 0;
    }
    return status;
}

/* class_of of every task, from its samples. */
static sfp_status list_classes(const sfp_record *r, sfp_tasks *out, sfp_error *err)
{
    sfp_status status = SFP_OK;
    bool *seen = need((size_t)out->classes, sizeof *seen, &status, err);
    for (int t = 0; t < out->count && status == SFP_OK; t++) {
        sfp_task *task = &out->task[t];
        memset(seen, 0, (size_t)out->classes);
        for (int64_t i = 0; i < task->count; i++)
            seen[out->label_of[r[task->sample[i]].label]] = true;
        for (int k = 0; k < out->classes; k++)
            task->classes += seen[k];
        task->class_of = need((size_t)task->classes, sizeof *task->class_of, &status, err);
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
    out->task = need((size_t)count, sizeof *out->task, &status, err);
    out->count = out->task ? count : 0;
    return status;
}

static sfp_status fill_training(const sfp_source *s, const sfp_record *r, const cut *c, uint64_t seed, sfp_tasks *out,
                                sfp_error *err)
{
    sfp_status status = create_tasks(c->tasks, out, err);
    for (int t = 0; t < out->count && status == SFP_OK; t++) {
        out->task[t].name = task_name(s, c, t);
        if (!out->task[t].name)
            status = sfp__fail_nomem(err, 1);
    }
    for (int pass = 0; pass < 2 && status == SFP_OK; pass++) { /* count, then fill */
        for (int64_t i = 0; i < s->count && status == SFP_OK; i++) {
            if (r[i].label < 0)
                continue;
            if (c->kind == CUT_DOMAIN && r[i].domain < 0) {
                status = picture_fail(s, i, "has no domain, expected one for --tasks domain", err);
                break;
            }
            int t = task_of(c, &r[i], out->label_of[r[i].label], r[i].domain);
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
    cut c = {0};
    sfp_tasks made = {0};
    uint64_t without = 0;
    sfp_status status = read_records(s, &r, err);
    for (int64_t i = 0; status == SFP_OK && i < s->count; i++)
        without += r[i].label < 0;
    if (status == SFP_OK && without == (uint64_t)s->count)
        status = sfp__fail(err, SFP_EINVAL, "%s:%s: has no labelled pictures", s->kind->name, s->path);
    if (status == SFP_OK)
        status = make_cut(s, r, spec, &c, err);
    if (status == SFP_OK)
        status = order_classes(s->classes, order, &made, err);
    if (status == SFP_OK && c.kind == CUT_GIVEN)
        status = order_by_task(s, r, &c, &made, err);
    if (status == SFP_OK)
        status = fill_training(s, r, &c, seed, &made, err);
    if (status == SFP_OK) {
        made.free = c.kind == CUT_FREE;
        *out = made;
        if (unlabelled)
            *unlabelled = without;
    } else {
        sfp__tasks_done(&made);
    }
    cut_done(&c);
    sfp__free(r);
    return status;
}

/* ----------------------------------------------------------------- test set */

/* Numbers of the training set for those of the test set, by name; -1 where training has none. */
static sfp_status match_names(char **from, int count, char **to, int to_count, int32_t **out, sfp_error *err)
{
    sfp_status status = SFP_OK;
    sfp_names table = {0};
    int32_t id, *map = need((size_t)count, sizeof *map, &status, err);
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
    out->source_label = need((size_t)like->classes, sizeof *out->source_label, &status, err);
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
    const cut *cut;
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
            status = sfp__fail_nomem(err, 1);
    }
    for (int pass = 0; pass < 2 && status == SFP_OK; pass++) { /* count, then fill */
        for (int64_t i = 0; i < test->count; i++) {
            int32_t label = r[i].label >= 0 ? out->label_of[r[i].label] : -1;
            if (label < 0)
                continue;
            int from = 0, to = out->count;
            if (!c->by_class) {
                from = task_of(c->cut, &r[i], label, r[i].domain >= 0 ? c->domain_of[r[i].domain] : -1);
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
    cut c = {0};
    sfp_tasks made = {0};
    int32_t *domain_of = NULL;
    sfp_status status = read_records(test, &r, err);
    bool endless = train->count < 0 && (!spec || strcmp(spec, "free") == 0); /* its stream is one task */
    if (status == SFP_OK && !endless)
        status = read_records(train, &train_r, err);
    if (status == SFP_OK)
        status = make_cut(train, train_r, spec, &c, err);
    if (status == SFP_OK && c.tasks != like->count)
        status = sfp__fail(err, SFP_EINVAL, "%s:%s: the training set has %d tasks, expected %d", train->kind->name, train->path,
                           like->count, c.tasks);
    if (status == SFP_OK)
        status = match_classes(test, train, r, like, &made, err);
    if (status == SFP_OK)
        status = match_names(test->domain_names, test->domains, train->domain_names, train->domains, &domain_of, err);
    if (status == SFP_OK) {
        test_cut by = {&c, like, domain_of, c.kind == CUT_GIVEN && !gives_tasks(test, r)};
        status = fill_test(test, r, &by, limit, &made, err);
    }
    if (status == SFP_OK) {
        made.free = c.kind == CUT_FREE;
        *out = made;
    } else {
        sfp__tasks_done(&made);
    }
    sfp__free(domain_of);
    cut_done(&c);
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
