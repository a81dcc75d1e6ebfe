/* What a run measured, in memory. As the text of result.json it is result_write.c, and back result_read.c. */
#include "run/result.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

sfp_status sfp__result_init(sfp_result *r, int tasks, int classes, sfp_error *err)
{
    if (tasks < 1 || tasks > SFP_RESULT_TASKS_MAX)
        return sfp__fail(err, SFP_EINVAL, "a result of %d tasks, expected 1 to %d", tasks, SFP_RESULT_TASKS_MAX);
    if (classes < 0 || classes > SFP_RESULT_CLASSES_MAX)
        return sfp__fail(err, SFP_EINVAL, "a result of %d classes, expected 0 to %d", classes, SFP_RESULT_CLASSES_MAX);
    sfp_result n = {.tasks = tasks, .classes = classes, .class_room = classes};
    size_t j = (size_t)tasks, c = (size_t)classes;
    bool matrix = classes > 0 && classes <= SFP_CONFUSION_MAX;
    n.accuracy = sfp__malloc(j * j * sizeof *n.accuracy);
    n.task_names = sfp__calloc(j, sizeof *n.task_names);
    n.class_names = classes ? sfp__calloc(c, sizeof *n.class_names) : NULL;
    n.confusion = matrix ? sfp__calloc(c * c, sizeof *n.confusion) : NULL;
    if (!n.accuracy || !n.task_names || (classes && !n.class_names) || (matrix && !n.confusion)) {
        sfp__result_done(&n);
        return sfp__fail_nomem(err);
    }
    for (size_t i = 0; i < j * j; i++)
        n.accuracy[i] = NAN;
    n.average_accuracy = n.forgetting = n.backward_transfer = n.prequential_accuracy = NAN;
    n.lambda = n.cs = n.coverage = n.samples_per_second = NAN;
    n.lag_mean = n.lag_max = n.lag_last = NAN;
    *r = n;
    return SFP_OK;
}

const char *const sfp__result_head_names[SFP_RESULT_HEADS] = {"linear", "slda", "ranpac"};

double *sfp__result_head(sfp_result *r, int h)
{
    size_t square = (size_t)r->tasks * (size_t)r->tasks;
    if (!r->heads && (r->heads = sfp__malloc(SFP_RESULT_HEADS * square * sizeof *r->heads)))
        for (size_t i = 0; i < SFP_RESULT_HEADS * square; i++)
            r->heads[i] = NAN;
    return r->heads ? r->heads + (size_t)h * square : NULL;
}

static void curve_done(sfp_curve *c)
{
    sfp__free(c->x);
    sfp__free(c->y);
}

void sfp__result_done(sfp_result *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->config_count; i++) {
        sfp__free(r->config[i].key);
        sfp__free(r->config[i].value);
        sfp__free(r->config[i].fallback);
    }
    for (int i = 0; r->task_names && i < r->tasks; i++)
        sfp__free(r->task_names[i]);
    for (int i = 0; r->class_names && i < r->classes; i++)
        sfp__free(r->class_names[i]);
    sfp__free(r->config);
    sfp__free(r->task_names);
    sfp__free(r->class_names);
    sfp__free(r->accuracy);
    sfp__free(r->heads);
    sfp__free(r->confusion);
    for (int i = 0; i < r->evaluation_count; i++)
        sfp__free(r->evaluations[i].accuracy);
    sfp__free(r->evaluations);
    curve_done(&r->prequential);
    curve_done(&r->loss);
    curve_done(&r->rate);
    curve_done(&r->lag);
    *r = (sfp_result){0};
}

static sfp_pair *find(const sfp_result *r, const char *key)
{
    for (int i = 0; i < r->config_count; i++)
        if (strcmp(r->config[i].key, key) == 0)
            return &r->config[i];
    return NULL;
}

/* A copy of `text` in *to. */
static sfp_status replace(char **to, const char *text, sfp_error *err)
{
    char *copy = sfp__strdup(text);
    if (!copy)
        return sfp__fail_nomem(err);
    sfp__free(*to);
    *to = copy;
    return SFP_OK;
}

sfp_status sfp__result_config(sfp_result *r, const char *key, const char *value, sfp_error *err)
{
    sfp_pair *p = find(r, key);
    if (p)
        return replace(&p->value, value, err);
    size_t n = (size_t)r->config_count;
    sfp_pair *more = r->config;
    if (n % 16 == 0) { /* room for 16 at a time */
        more = sfp__realloc(r->config, n * sizeof *more, (n + 16) * sizeof *more);
        if (!more)
            return sfp__fail_nomem(err);
        r->config = more;
    }
    sfp_pair add = {0};
    sfp_status s = replace(&add.key, key, err);
    if (s == SFP_OK)
        s = replace(&add.value, value, err);
    if (s != SFP_OK) {
        sfp__free(add.key);
        return s;
    }
    more[n] = add;
    r->config_count++;
    return SFP_OK;
}

sfp_status sfp__result_default(sfp_result *r, const char *key, const char *fallback, sfp_error *err)
{
    sfp_pair *p = find(r, key);
    return p ? replace(&p->fallback, fallback, err) : sfp__fail(err, SFP_EINVAL, "no option '%s' to give a default", key);
}

const char *sfp__result_value(const sfp_result *r, const char *key)
{
    const sfp_pair *p = find(r, key);
    return p ? p->value : NULL;
}

void sfp__result_method(const sfp_result *r, char *buf, size_t size)
{
    const char *method = sfp__result_value(r, "method"), *select = sfp__result_value(r, "select"),
               *buffer = sfp__result_value(r, "buffer");
    if (method && *method && strcmp(method, "none") != 0)
        (void)snprintf(buf, size, "%s", method);
    else if (select && buffer && strcmp(select, buffer) != 0)
        (void)snprintf(buf, size, "%s+%s", select, buffer);
    else
        (void)snprintf(buf, size, "%s", select ? select : buffer ? buffer : "");
}

double sfp__result_class_accuracy(const sfp_result *r, int c, uint64_t *tested)
{
    uint64_t sum = 0, n = (uint64_t)r->classes;
    for (uint64_t i = 0; r->confusion && i < n; i++)
        sum += r->confusion[(uint64_t)c * n + i];
    if (tested)
        *tested = sum;
    return sum ? (double)r->confusion[(uint64_t)c * n + (uint64_t)c] / (double)sum : NAN;
}

sfp_status sfp__curve_add(sfp_curve *c, double x, double y, sfp_error *err)
{
    if (c->count == c->room) {
        if (c->room >= SFP_CURVE_MAX)
            return sfp__fail(err, SFP_ELIMIT, "a curve of more than %d points", SFP_CURVE_MAX);
        size_t old = (size_t)c->count * sizeof *c->x, room = c->room ? (size_t)c->room * 2 : 64;
        double *more = sfp__realloc(c->x, old, room * sizeof *more);
        if (!more)
            return sfp__fail_nomem(err);
        c->x = more;
        more = sfp__realloc(c->y, old, room * sizeof *more);
        if (!more)
            return sfp__fail_nomem(err);
        c->y = more;
        c->room = (int)room;
    }
    c->x[c->count] = x;
    c->y[c->count++] = y;
    return SFP_OK;
}

void sfp__curve_thin(sfp_curve *c)
{
    int n = 0;
    for (int i = 0; i < c->count; i += 2, n++) {
        c->x[n] = c->x[i];
        c->y[n] = c->y[i];
    }
    c->count = n;
}

sfp_status sfp__result_add_class(sfp_result *r, const char *name, sfp_error *err)
{
    if (r->classes >= SFP_RESULT_CLASSES_MAX)
        return sfp__fail(err, SFP_ELIMIT, "more than %d classes", SFP_RESULT_CLASSES_MAX);
    if (r->classes == r->class_room) {
        int room = r->class_room ? 2 * r->class_room : 16;
        char **more = sfp__realloc(r->class_names, (size_t)r->classes * sizeof *more, (size_t)room * sizeof *more);
        if (!more)
            return sfp__fail_nomem(err);
        r->class_names = more;
        r->class_room = room;
    }
    char *copy = NULL;
    sfp_status s = replace(&copy, name, err);
    if (s != SFP_OK)
        return s;
    r->class_names[r->classes++] = copy;
    sfp__free(r->confusion);
    r->confusion = NULL;
    return SFP_OK;
}

sfp_status sfp__result_confusion(sfp_result *r, sfp_error *err)
{
    size_t n = (size_t)r->classes;
    sfp__free(r->confusion);
    r->confusion = NULL;
    if (n == 0 || n > SFP_CONFUSION_MAX)
        return SFP_OK;
    r->confusion = sfp__calloc(n * n, sizeof *r->confusion);
    return r->confusion ? SFP_OK : sfp__fail_nomem(err);
}

static void thin_evaluations(sfp_result *r)
{
    int n = 0;
    for (int i = 0; i < r->evaluation_count; i++) {
        if (i % 2)
            sfp__free(r->evaluations[i].accuracy);
        else
            r->evaluations[n++] = r->evaluations[i];
    }
    r->evaluation_count = n;
}

/* Of what was measured. */
static double mean(int n, const double *x)
{
    double sum = 0;
    int measured = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(x[i])) {
            sum += x[i];
            measured++;
        }
    return measured ? sum / measured : NAN;
}

sfp_status sfp__result_evaluated(sfp_result *r, uint64_t offered, int task, const double *accuracy, sfp_error *err)
{
    size_t bytes = ((size_t)task + 1) * sizeof *accuracy;
    if (!r->evaluations && !(r->evaluations = sfp__calloc(SFP_EVALUATIONS_MAX, sizeof *r->evaluations)))
        return sfp__fail_nomem(err);
    sfp_evaluation add = {.offered = offered, .task = task, .accuracy = sfp__malloc(bytes)};
    if (!add.accuracy)
        return sfp__fail_nomem(err);
    memcpy(add.accuracy, accuracy, bytes);
    add.average = mean(task + 1, accuracy);
    sfp_evaluation *last = r->evaluation_count ? &r->evaluations[r->evaluation_count - 1] : NULL;
    if (last && last->offered == offered && last->task == task) {
        sfp__free(last->accuracy);
        *last = add;
        return SFP_OK;
    }
    if (r->evaluation_count == SFP_EVALUATIONS_MAX)
        thin_evaluations(r);
    r->evaluations[r->evaluation_count++] = add;
    return SFP_OK;
}
