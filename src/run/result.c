/* What a run measured, in memory and as the text of result.json (SPEC section 17). Reading it back is result_read.c.
 *
 * The text depends on the numbers alone: keys in a fixed order, numbers in their shortest form, NAN as null. */
#include "run/result.h"

#include "base/mem.h"
#include "io/file.h"
#include "run/text_out.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define CURVE_MAX (1 << 24)
#define DENSE_CONFUSION 200 /* with more classes only the cells that are not 0 are written */

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
        return sfp__fail_nomem(err, j * j * sizeof *n.accuracy + (matrix ? c * c * sizeof *n.confusion : 0));
    }
    for (size_t i = 0; i < j * j; i++)
        n.accuracy[i] = NAN;
    n.average_accuracy = n.forgetting = n.backward_transfer = n.prequential_accuracy = NAN;
    n.lambda = n.cs = n.coverage = n.samples_per_second = NAN;
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
        return sfp__fail_nomem(err, strlen(text) + 1);
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
            return sfp__fail_nomem(err, (n + 16) * sizeof *more);
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
        if (c->room >= CURVE_MAX)
            return sfp__fail(err, SFP_ELIMIT, "a curve of more than %d points", CURVE_MAX);
        size_t old = (size_t)c->count * sizeof *c->x, room = c->room ? (size_t)c->room * 2 : 64;
        double *more = sfp__realloc(c->x, old, room * sizeof *more);
        if (!more)
            return sfp__fail_nomem(err, room * sizeof *more);
        c->x = more;
        more = sfp__realloc(c->y, old, room * sizeof *more);
        if (!more)
            return sfp__fail_nomem(err, room * sizeof *more);
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
            return sfp__fail_nomem(err, (size_t)room * sizeof *more);
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
    return r->confusion ? SFP_OK : sfp__fail_nomem(err, n * n * sizeof *r->confusion);
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
        return sfp__fail_nomem(err, SFP_EVALUATIONS_MAX * sizeof *r->evaluations);
    sfp_evaluation add = {.offered = offered, .task = task, .accuracy = sfp__malloc(bytes)};
    if (!add.accuracy)
        return sfp__fail_nomem(err, bytes);
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

/* ------------------------------------------------------------------ as text */

typedef struct json {
    sfp_text text;
    bool one_line, first;
} json;

/* Begins a member of the outermost object. */
static void member(json *j, const char *key)
{
    sfp__text_put(&j->text, j->first ? "" : ",");
    sfp__text_put(&j->text, j->one_line ? "" : "\n ");
    j->first = false;
    sfp__put_json(&j->text, key);
    sfp__text_put(&j->text, j->one_line ? ":" : ": ");
}

static void separator(json *j, bool first, bool new_line)
{
    sfp__text_put(&j->text, first ? "" : ",");
    if (!j->one_line)
        sfp__text_put(&j->text, new_line ? "\n  " : first ? "" : " ");
}

static void real_member(json *j, const char *key, double x)
{
    member(j, key);
    sfp__put_real(&j->text, x);
}

static void text_or_null(json *j, const char *s)
{
    if (s)
        sfp__put_json(&j->text, s);
    else
        sfp__text_put(&j->text, "null");
}

static void names(json *j, const char *key, int n, char *const *name)
{
    member(j, key);
    sfp__text_put(&j->text, "[");
    for (int i = 0; i < n; i++) {
        separator(j, i == 0, false);
        text_or_null(j, name[i]);
    }
    sfp__text_put(&j->text, "]");
}

static void numbers(json *j, int n, const double *x)
{
    sfp__text_put(&j->text, "[");
    for (int i = 0; i < n; i++) {
        separator(j, i == 0, false);
        sfp__put_real(&j->text, x[i]);
    }
    sfp__text_put(&j->text, "]");
}

/* An object on one line; keys and values side by side. */
static void real_object(json *j, const char *key, int n, const char *const *keys, const double *x)
{
    member(j, key);
    sfp__text_put(&j->text, "{");
    for (int i = 0; i < n; i++) {
        separator(j, i == 0, false);
        sfp__put_json(&j->text, keys[i]);
        sfp__text_put(&j->text, ":");
        sfp__put_real(&j->text, x[i]);
    }
    sfp__text_put(&j->text, "}");
}

static void options(json *j, const sfp_result *r, bool fallback)
{
    bool first = true;
    member(j, fallback ? "defaults" : "config");
    sfp__text_put(&j->text, "{");
    for (int i = 0; i < r->config_count; i++) {
        const char *value = fallback ? r->config[i].fallback : r->config[i].value;
        if (!value)
            continue;
        separator(j, first, true);
        first = false;
        sfp__put_json(&j->text, r->config[i].key);
        sfp__text_put(&j->text, j->one_line ? ":" : ": ");
        sfp__put_json(&j->text, value);
    }
    sfp__text_put(&j->text, "}");
}

/* A seed beyond 2^63 - 1 is no integer to many readers of JSON: it goes as text. */
static void seed_value(json *j, uint64_t seed)
{
    sfp__text_printf(&j->text, seed <= INT64_MAX ? "%" PRIu64 : "\"%" PRIu64 "\"", seed);
}

static void what_was_run(json *j, const sfp_result *r)
{
    member(j, "version");
    sfp__put_json(&j->text, sfp_version());
    member(j, "started");
    sfp__put_json(&j->text, r->started);
    member(j, "finished");
    sfp__text_put(&j->text, r->finished ? "true" : "false");
    member(j, "seed");
    seed_value(j, r->seed);
    member(j, "machine");
    sfp__text_put(&j->text, "{\"cpu\":");
    sfp__put_json(&j->text, r->cpu);
    sfp__text_printf(&j->text, ",\"threads\":%d,\"kernels\":", r->threads);
    sfp__put_json(&j->text, r->kernels);
    sfp__text_put(&j->text, ",\"gemm\":");
    sfp__put_json(&j->text, r->gemm);
    sfp__text_put(&j->text, "}");
    options(j, r, false);
    options(j, r, true);
    names(j, "task_names", r->tasks, r->task_names);
    names(j, "class_names", r->classes, r->class_names);
}

static void matrix(json *j, int tasks, const double *a)
{
    sfp__text_put(&j->text, "[");
    for (int i = 0; i < tasks; i++) {
        separator(j, i == 0, true);
        sfp__text_put(&j->text, "[");
        for (int k = 0; k < tasks; k++) {
            separator(j, k == 0, false);
            sfp__put_real(&j->text, k > i ? NAN : a[(size_t)i * (size_t)tasks + (size_t)k]);
        }
        sfp__text_put(&j->text, "]");
    }
    sfp__text_put(&j->text, "]");
}

/* What each head of a mixed one would have reached alone. */
static void heads(json *j, const sfp_result *r)
{
    if (!r->heads)
        return;
    member(j, "heads");
    sfp__text_put(&j->text, "{");
    for (int h = 0; h < SFP_RESULT_HEADS; h++) {
        const double *a = r->heads + (size_t)h * (size_t)r->tasks * (size_t)r->tasks;
        separator(j, h == 0, true);
        sfp__put_json(&j->text, sfp__result_head_names[h]);
        sfp__text_put(&j->text, ":{\"average_accuracy\":");
        sfp__put_real(&j->text, sfp__average_accuracy(r->tasks, r->tasks_done, a));
        sfp__text_put(&j->text, ",\"forgetting\":");
        sfp__put_real(&j->text, sfp__forgetting(r->tasks, r->tasks_done, a));
        sfp__text_put(&j->text, ",\"accuracy_matrix\":");
        matrix(j, r->tasks, a);
        sfp__text_put(&j->text, "}");
    }
    sfp__text_put(&j->text, "}");
}

static void accuracy(json *j, const sfp_result *r)
{
    member(j, "tasks_done");
    sfp__text_printf(&j->text, "%d", r->tasks_done);
    member(j, "accuracy_matrix");
    matrix(j, r->tasks, r->accuracy);
    real_member(j, "average_accuracy", r->average_accuracy);
    real_member(j, "forgetting", r->forgetting);
    real_member(j, "backward_transfer", r->backward_transfer);
    real_member(j, "prequential_accuracy", r->prequential_accuracy);
    heads(j, r);
    member(j, "per_class");
    sfp__text_put(&j->text, "[");
    for (int c = 0; c < r->classes; c++) {
        separator(j, c == 0, false);
        sfp__put_real(&j->text, sfp__result_class_accuracy(r, c, NULL));
    }
    sfp__text_put(&j->text, "]");
}

static void evaluations(json *j, const sfp_result *r)
{
    member(j, "evaluations");
    sfp__text_put(&j->text, "[");
    for (int i = 0; i < r->evaluation_count; i++) {
        const sfp_evaluation *e = &r->evaluations[i];
        separator(j, i == 0, true);
        sfp__text_printf(&j->text, "{\"offered\":%" PRIu64 ",\"task\":%d,\"accuracy\":", e->offered, e->task);
        numbers(j, e->task + 1, e->accuracy);
        sfp__text_put(&j->text, ",\"average\":");
        sfp__put_real(&j->text, e->average);
        sfp__text_put(&j->text, "}");
    }
    sfp__text_put(&j->text, "]");
}

static void samples_and_time(json *j, const sfp_result *r)
{
    member(j, "samples");
    sfp__text_printf(&j->text, "{\"offered\":%" PRIu64 ",\"scored\":%" PRIu64 ",\"trained\":%" PRIu64, r->offered, r->scored,
                     r->trained);
    sfp__text_printf(&j->text, ",\"replayed\":%" PRIu64 ",\"dropped\":%" PRIu64 ",\"skipped\":%" PRIu64 "}", r->replayed,
                     r->dropped, r->skipped);
    member(j, "labels");
    sfp__text_printf(&j->text, "{\"unlabelled\":%" PRIu64 ",\"late\":%" PRIu64 ",\"expired\":%" PRIu64 ",\"waiting\":%" PRIu64 "}",
                     r->labels.unlabelled, r->labels.late, r->labels.expired, r->labels.waiting);
    real_member(j, "lambda", r->lambda);
    real_member(j, "cs", r->cs);
    real_object(j, "lag", 3, (const char *[]){"mean", "max", "last"}, (const double[]){r->lag_mean, r->lag_max, r->lag_last});
    real_member(j, "coverage", r->coverage);
    real_object(j, "seconds", 7, (const char *[]){"decode", "select", "train", "buffer", "evaluate", "total", "waited"},
                (const double[]){r->seconds.decode, r->seconds.select, r->seconds.train, r->seconds.buffer, r->seconds.evaluate,
                                 r->seconds.total, r->seconds.waited});
    real_member(j, "samples_per_second", r->samples_per_second);
    member(j, "peak_rss_bytes");
    sfp__text_printf(&j->text, "%" PRIu64, r->peak_rss_bytes);
}

static void curve(json *j, const char *key, const sfp_curve *c, bool first)
{
    separator(j, first, true);
    sfp__put_json(&j->text, key);
    sfp__text_put(&j->text, ":{\"x\":");
    numbers(j, c->count, c->x);
    sfp__text_put(&j->text, ",\"y\":");
    numbers(j, c->count, c->y);
    sfp__text_put(&j->text, "}");
}

/* Dense rows, or [truth, answer, count] of each cell that is not 0. */
static void confusion(json *j, const sfp_result *r)
{
    size_t n = (size_t)r->classes;
    bool dense = r->classes <= DENSE_CONFUSION, first = true;
    if (!r->confusion)
        return;
    member(j, dense ? "confusion" : "confusion_cells");
    sfp__text_put(&j->text, "[");
    for (size_t i = 0; i < n; i++) {
        if (dense) {
            separator(j, i == 0, true);
            sfp__text_put(&j->text, "[");
        }
        for (size_t k = 0; k < n; k++) {
            uint64_t count = r->confusion[i * n + k];
            if (dense) {
                separator(j, k == 0, false);
                sfp__text_printf(&j->text, "%" PRIu64, count);
            } else if (count) {
                separator(j, first, false);
                first = false;
                sfp__text_printf(&j->text, "[%zu,%zu,%" PRIu64 "]", i, k, count);
            }
        }
        sfp__text_put(&j->text, dense ? "]" : "");
    }
    sfp__text_put(&j->text, "]");
}

sfp_status sfp__result_text(const sfp_result *r, bool one_line, char **out, sfp_error *err)
{
    json j = {.one_line = one_line, .first = true};
    sfp__text_put(&j.text, "{");
    what_was_run(&j, r);
    accuracy(&j, r);
    evaluations(&j, r);
    samples_and_time(&j, r);
    member(&j, "curves");
    sfp__text_put(&j.text, "{");
    curve(&j, "prequential", &r->prequential, true);
    curve(&j, "loss", &r->loss, false);
    curve(&j, "rate", &r->rate, false);
    curve(&j, "lag", &r->lag, false);
    sfp__text_put(&j.text, "}");
    confusion(&j, r);
    sfp__text_put(&j.text, one_line ? "}" : "\n}\n");
    if (j.text.failed) {
        size_t room = j.text.room;
        sfp__text_done(&j.text);
        return sfp__fail_nomem(err, room * 2);
    }
    *out = j.text.s;
    return SFP_OK;
}

sfp_status sfp__result_write(const sfp_result *r, const char *path, sfp_error *err)
{
    char *text = NULL;
    sfp_writer w = {.fd = -1};
    sfp_status s = sfp__result_text(r, false, &text, err);
    if (s == SFP_OK)
        s = sfp__writer_open(path, &w, err);
    if (s == SFP_OK)
        s = sfp__writer_put(&w, text, strlen(text), err);
    if (s == SFP_OK)
        s = sfp__writer_commit(&w, err);
    sfp__writer_abort(&w);
    sfp__free(text);
    return s;
}
