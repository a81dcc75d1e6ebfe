/* Assigns records to tasks. The rule follows from a specification (--tasks) and the training set; the test set is split by the
 * same rule. */
#include "stream/source_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TASKS_MAX 10000

void sfp__task_split_done(sfp__task_split *c)
{
    sfp__free(c->end);
    sfp__free(c->domain);
    sfp__free(c->value);
    *c = (sfp__task_split){0};
}

/* ------------------------------------------------------------ specification */

/* Parses "3,2,2" or "5": positive numbers. *count is 0 if spec is something else. */
static sfp_status parse_numbers(const char *spec, int **out, int *count, sfp_error *err)
{
    OWNED int *list = NULL;
    char *stop = NULL;
    *count = 0;
    if (spec[strspn(spec, "0123456789,")] != '\0' || !*spec)
        return SFP_OK;
    TRY(sfp__alloc(&list, strlen(spec), sizeof *list, err));
    for (const char *at = spec;; at = stop + 1) {
        long v = *at >= '0' && *at <= '9' ? strtol(at, &stop, 10) : 0;
        if (!stop || v < 1 || v > SFP__CLASSES_MAX)
            return sfp__fail_key(
                err, "tasks", SFP_EINVAL,
                "tasks is '%.60s', expected a number of tasks, numbers of classes such as 3,2,2, domain, time or free", spec);
        list[(*count)++] = (int)v;
        if (!*stop)
            break;
    }
    *out = TAKE(list);
    return SFP_OK;
}

/* One number is the number of tasks, whose first ones have one class more if needed. Several numbers are the numbers of classes.
 * Writes the end of each task. */
static sfp_status split_by_classes(const sfp_source *s, const char *spec, int *sizes, int count, sfp__task_split *c,
                                   sfp_error *err)
{
    int *end, tasks = count == 1 ? sizes[0] : count;
    if (count == 1 && tasks > s->classes)
        return sfp__fail_key(err, "tasks", SFP_EINVAL, "tasks is '%.60s', expected at most %d, the number of classes of %s:%s",
                             spec, s->classes, s->kind->name, s->path);
    int64_t sum = 0;
    for (int t = 0; t < count && count > 1; t++)
        sum += sizes[t];
    if (count > 1 && sum != s->classes)
        return sfp__fail_key(err, "tasks", SFP_EINVAL,
                             "tasks is '%.60s' with sum %lld, expected sum %d, the number of classes of %s:%s", spec,
                             (long long)sum, s->classes, s->kind->name, s->path);
    TRY(sfp__alloc(&end, (size_t)tasks, sizeof *end, err));
    for (int t = 0, at = 0; t < tasks; t++) {
        at += count > 1 ? sizes[t] : s->classes / tasks + (t < s->classes % tasks);
        end[t] = at;
    }
    *c = (sfp__task_split){.kind = SFP__SPLIT_CLASSES, .tasks = tasks, .end = end};
    return SFP_OK;
}

static sfp_status unknown_domain(const sfp_source *s, const char *name, size_t n, sfp_error *err)
{
    char text[SFP__NAME_MAX];
    OWNED_BY(sfp__text_done) sfp__text list = {0};
    for (int i = 0; i < s->domains && list.length < 300; i++)
        sfp__text_printf(&list, "%s%s", i ? ", " : "", sfp__printable(s->domain_names[i], text, sizeof text));
    return sfp__fail_key(err, "tasks", SFP_EINVAL, "tasks: domain '%.*s' is not in %s:%s, expected domains among %s",
                         (int)(n < 60 ? n : 60), name, s->kind->name, s->path, list.failed || !list.s ? "..." : list.s);
}

/* list is "a,b,c", or "" for all domains in their order. */
static sfp_status split_by_domains(const sfp_source *s, const char *list, sfp__task_split *c, sfp_error *err)
{
    OWNED int32_t *domain = NULL;
    int tasks = 0;
    if (s->domains == 0)
        return sfp__fail_key(err, "tasks", SFP_EINVAL, "tasks is 'domain', but %s:%s has no domains", s->kind->name, s->path);
    TRY(sfp__alloc(&domain, (size_t)s->domains, sizeof *domain, err));
    for (; !*list && tasks < s->domains; tasks++)
        domain[tasks] = tasks;
    for (const char *at = *list ? list : NULL; at;) {
        size_t n = strcspn(at, ",");
        int32_t d = 0;
        while (d < s->domains && (strlen(s->domain_names[d]) != n || memcmp(s->domain_names[d], at, n) != 0))
            d++;
        if (d == s->domains)
            return unknown_domain(s, at, n, err);
        for (int t = 0; t < tasks; t++)
            if (domain[t] == d)
                return sfp__fail_key(err, "tasks", SFP_EINVAL, "tasks: domain '%.60s' is listed twice", s->domain_names[d]);
        domain[tasks++] = d;
        at = at[n] ? at + n + 1 : NULL;
    }
    *c = (sfp__task_split){.kind = SFP__SPLIT_DOMAIN, .tasks = tasks, .domain = TAKE(domain)};
    return SFP_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double value_of(const sfp_record *r, sfp__task_split_kind kind)
{
    return kind == SFP__SPLIT_TIME ? r->time : r->task >= 0 ? (double)r->task : NAN;
}

/* Makes one task per value of time or given task of the labelled images. */
static sfp_status split_by_values(const sfp_source *s, const sfp_record *r, sfp__task_split_kind kind, sfp__task_split *c,
                                  sfp_error *err)
{
    OWNED double *value = NULL;
    size_t n = 0, missing = 0, distinct = 0;
    int64_t without = -1; /* the first image without a value */
    TRY(sfp__alloc(&value, (size_t)s->count, sizeof *value, err));
    for (int64_t i = 0; i < s->count; i++) {
        if (r[i].label < 0)
            continue;
        value[n] = value_of(&r[i], kind);
        if (isnan(value[n++]) && missing++ == 0)
            without = i;
    }
    if (missing == n && n > 0) /* the option is wrong, not the dataset: with given tasks at least one image has one */
        return sfp__fail_key(err, "tasks", SFP_EINVAL, "tasks is 'time', but %s:%s has no times", s->kind->name, s->path);
    if (missing > 0)
        return sfp__raw_image_blame(s, without,
                                    kind == SFP__SPLIT_TIME ? "has no time, expected one for --tasks time"
                                                            : "has no task, expected one because other images have one",
                                    err);
    qsort(value, n, sizeof *value, compare_doubles);
    for (size_t i = 0; i < n; i++) {
        if (distinct == 0 || value[i] > value[distinct - 1])
            value[distinct++] = value[i];
    }
    if (distinct > TASKS_MAX)
        return sfp__fail(err, SFP_ELIMIT, "%s:%s: dataset has %zu different %s, expected at most %d; use --tasks free",
                         s->kind->name, s->path, distinct, kind == SFP__SPLIT_TIME ? "times" : "tasks", TASKS_MAX);
    *c = (sfp__task_split){.kind = kind, .tasks = (int)distinct, .value = TAKE(value)};
    return SFP_OK;
}

bool sfp__gives_tasks(const sfp_source *s, const sfp_record *r)
{
    for (int64_t i = 0; i < s->count; i++) {
        if (r[i].label >= 0 && r[i].task >= 0)
            return true;
    }
    return false;
}

static bool is_domains(const char *spec)
{
    return strcmp(spec, "domain") == 0 || strncmp(spec, "domain:", 7) == 0;
}

/* SFP_OK for numbers only. */
static sfp_status read_numbers(const char *spec, int **sizes, int *count, sfp_error *err)
{
    TRY(parse_numbers(spec, sizes, count, err));
    if (*count == 0)
        return sfp__fail_key(err, "tasks", SFP_EINVAL,
                             "tasks is '%.60s', expected a number, sizes such as 3,2,2, domain[:a,b], time or free", spec);
    return SFP_OK;
}

sfp_status sfp__task_spec_check(const char *spec, sfp_error *err)
{
    OWNED int *sizes = NULL;
    int count = 0;
    if (strcmp(spec, "free") == 0 || strcmp(spec, "time") == 0 || is_domains(spec))
        return SFP_OK;
    return read_numbers(spec, &sizes, &count, err);
}

sfp_status sfp__task_split_make(const sfp_source *s, const sfp_record *r, const char *spec, sfp__task_split *c, sfp_error *err)
{
    OWNED int *sizes = NULL;
    int count = 0;
    if (!spec && sfp__gives_tasks(s, r))
        return split_by_values(s, r, SFP__SPLIT_GIVEN, c, err);
    if (!spec || strcmp(spec, "free") == 0) {
        *c = (sfp__task_split){.kind = SFP__SPLIT_FREE, .tasks = 1};
        return SFP_OK;
    }
    if (strcmp(spec, "time") == 0)
        return split_by_values(s, r, SFP__SPLIT_TIME, c, err);
    if (is_domains(spec))
        return split_by_domains(s, spec[6] ? spec + 7 : "", c, err);
    TRY(read_numbers(spec, &sizes, &count, err));
    return split_by_classes(s, spec, sizes, count, c, err);
}

int sfp__task_split_task(const sfp__task_split *c, const sfp_record *r, int32_t stream_label, int32_t domain)
{
    if (c->kind == SFP__SPLIT_FREE)
        return 0;
    if (c->kind == SFP__SPLIT_CLASSES || c->kind == SFP__SPLIT_DOMAIN) {
        for (int t = 0; t < c->tasks; t++) {
            if (c->kind == SFP__SPLIT_CLASSES ? stream_label < c->end[t] : c->domain[t] == domain)
                return t;
        }
        return -1;
    }
    double v = value_of(r, c->kind);
    const double *found = isnan(v) ? NULL : bsearch(&v, c->value, (size_t)c->tasks, sizeof v, compare_doubles);
    return found ? (int)(found - c->value) : -1;
}

char *sfp__task_split_name(const sfp_source *s, const sfp__task_split *c, int t)
{
    char text[64];
    int first = c->kind == SFP__SPLIT_CLASSES && t > 0 ? c->end[t - 1] : 0;
    switch (c->kind) {
    case SFP__SPLIT_FREE:
        return sfp__strdup("all");
    case SFP__SPLIT_DOMAIN:
        return sfp__strdup(s->domain_names[c->domain[t]]);
    case SFP__SPLIT_CLASSES:
        if (c->end[t] - first == 1)
            (void)snprintf(text, sizeof text, "class %d", first);
        else
            (void)snprintf(text, sizeof text, "classes %d-%d", first, c->end[t] - 1);
        break;
    case SFP__SPLIT_TIME:
        (void)snprintf(text, sizeof text, "%.15g", c->value[t]);
        break;
    case SFP__SPLIT_GIVEN:
        (void)snprintf(text, sizeof text, "task %.0f", c->value[t]);
        break;
    }
    return sfp__strdup(text);
}
