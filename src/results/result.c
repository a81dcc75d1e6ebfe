/* The measurements of a run in memory. result_json.c converts them to and from the text of result.json. */
#include "results/result.h"

#include "base/mem.h"
#include "base/settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void clear_diagnostics(sfp_result *r)
{
    const sfp__coreset_ratios none = {NAN, NAN, NAN, NAN, NAN};
    r->diagnostics.coreset_cost = r->diagnostics.coreset_angle = none;
    r->diagnostics.buffer_mmd = r->diagnostics.buffer_mmd_mean = r->diagnostics.stream_score_deviation = NAN;
    r->diagnostics.gradient_cosine_fingerprints = r->diagnostics.gradient_cosine_head = NAN;
}

sfp_status sfp__result_init(sfp_result *r, int tasks, int classes, sfp_error *err)
{
    if (tasks < 1 || tasks > SFP__RESULT_TASKS_MAX)
        return sfp__fail(err, SFP_EINVAL, "result: number of tasks is %d, expected 1 to %d", tasks, SFP__RESULT_TASKS_MAX);
    if (classes < 0 || classes > SFP__RESULT_CLASSES_MAX)
        return sfp__fail(err, SFP_EINVAL, "result: number of classes is %d, expected 0 to %d", classes, SFP__RESULT_CLASSES_MAX);
    OWNED_BY(sfp__result_done) sfp_result n = {.tasks = tasks, .classes = classes};
    size_t j = (size_t)tasks;
    TRY(sfp__alloc(&n.accuracy, j * j, sizeof *n.accuracy, err));
    TRY(sfp__alloc(&n.task_names, j, sizeof *n.task_names, err));
    TRY(sfp__alloc(&n.class_names, (size_t)classes, sizeof *n.class_names, err));
    TRY(sfp__result_confusion(&n, err));
    n.class_capacity = classes ? (size_t)classes : 1;
    for (size_t i = 0; i < j * j; i++)
        n.accuracy[i] = NAN;
    n.average_accuracy = n.forgetting = n.backward_transfer = n.prequential_accuracy = NAN;
    n.calibration.error = n.calibration.before = NAN;
    n.lambda = n.cs = n.coverage = n.samples_per_second = n.batch_seconds = NAN;
    n.lag.mean = n.lag.max = n.lag.last = NAN;
    clear_diagnostics(&n);
    (void)snprintf(n.version, sizeof n.version, "%s", sfp_version());
    *r = n;
    n = (sfp_result){0};
    return SFP_OK;
}

/* Returns matrix `which` (tasks, tasks) of `count`, which are allocated on first use with NAN; NULL: out of memory. */
static double *need_matrix(const sfp_result *r, double **matrices, size_t count, int which)
{
    size_t square = (size_t)r->tasks * (size_t)r->tasks;
    if (!*matrices && (*matrices = sfp__malloc(count * square * sizeof **matrices)))
        for (size_t i = 0; i < count * square; i++)
            (*matrices)[i] = NAN;
    return *matrices ? *matrices + (size_t)which * square : NULL;
}

double *sfp__result_gradient_cosines(sfp_result *r, int which)
{
    return need_matrix(r, &r->diagnostics.cosines, SFP__COSINES, which);
}

void sfp__curve_done(sfp__curve *c)
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
        sfp__free(r->config[i].default_value);
        sfp__free(r->config[i].preset_value);
    }
    for (int i = 0; r->task_names && i < r->tasks; i++)
        sfp__free(r->task_names[i]);
    for (int i = 0; r->class_names && i < r->classes; i++)
        sfp__free(r->class_names[i]);
    sfp__free(r->config);
    sfp__free(r->task_names);
    sfp__free(r->class_names);
    sfp__free(r->accuracy);
    sfp__free(r->diagnostics.cosines);
    sfp__free(r->confusion);
    for (int i = 0; i < r->evaluation_count; i++)
        sfp__free(r->evaluations[i].accuracy);
    sfp__free(r->evaluations);
    for (int i = 0; i < SFP__CURVES; i++)
        sfp__curve_done(&r->curve[i]);
    *r = (sfp_result){0};
}

static sfp__config_entry *find_option(const sfp_result *r, const char *key)
{
    for (int i = 0; i < r->config_count; i++)
        if (strcmp(r->config[i].key, key) == 0)
            return &r->config[i];
    return NULL;
}

/* Frees *to and sets it to a copy of `text`. */
static sfp_status replace_text(char **to, const char *text, sfp_error *err)
{
    char *copy = sfp__strdup(text);
    TRY(sfp__check_memory(copy, err));
    sfp__free(*to);
    *to = copy;
    return SFP_OK;
}

sfp_status sfp__result_config(sfp_result *r, const char *key, const char *value, sfp_error *err)
{
    sfp__config_entry *p = find_option(r, key);
    if (p)
        return replace_text(&p->value, value, err);
    size_t n = (size_t)r->config_count;
    TRY(sfp__check_memory(sfp__grow(&r->config, sizeof *r->config, n, n + 1, &r->config_capacity), err));
    OWNED char *name = NULL;
    sfp__config_entry add = {0};
    TRY(replace_text(&name, key, err));
    TRY(replace_text(&add.value, value, err));
    add.key = TAKE(name);
    r->config[n] = add;
    r->config_count++;
    return SFP_OK;
}

sfp_status sfp__result_default(sfp_result *r, const char *key, const char *default_value, sfp_error *err)
{
    sfp__config_entry *p = find_option(r, key);
    return p ? replace_text(&p->default_value, default_value, err)
             : sfp__fail(err, SFP_EINVAL, "result: option '%s' has a default but no value", key);
}

sfp_status sfp__result_preset(sfp_result *r, const char *key, const char *preset_value, sfp_error *err)
{
    sfp__config_entry *p = find_option(r, key);
    return p ? replace_text(&p->preset_value, preset_value, err)
             : sfp__fail(err, SFP_EINVAL, "result: the preset sets option '%s', which has no value", key);
}

const char *sfp__config_base(const sfp__config_entry *p)
{
    return p->preset_value ? p->preset_value : p->default_value;
}

bool sfp__config_differs(const sfp__config_entry *p)
{
    const char *base = sfp__config_base(p);
    return base && strcmp(base, p->value) != 0 && !sfp__same_number(base, p->value);
}

const char *sfp__result_value(const sfp_result *r, const char *key)
{
    const sfp__config_entry *p = find_option(r, key);
    return p ? p->value : NULL;
}

/* Whether the run had a closed-form head and no fingerprints. */
static bool is_closed_form(const sfp_result *r)
{
    const char *method = sfp__result_value(r, "method");
    return method && *method && strcmp(method, "none") != 0;
}

uint64_t sfp__result_trained(const sfp_result *r)
{
    return r->samples.trained > r->samples.closed_form ? r->samples.trained - r->samples.closed_form : 0;
}

uint64_t sfp__result_dropped(const sfp_result *r)
{
    return r->samples.dropped > r->samples.excluded ? r->samples.dropped - r->samples.excluded : 0;
}

static const char *name_of_class(const void *ctx, int label)
{
    const sfp_result *r = ctx;
    return label < r->classes ? r->class_names[label] : NULL;
}

const char *sfp__result_task_title(const sfp_result *r, int i, int width, char buf[SFP__TITLE_SIZE])
{
    return sfp__task_title(r->task_names[i] ? r->task_names[i] : "", width, name_of_class, r, buf);
}

void sfp__result_method(const sfp_result *r, char *buf, size_t size)
{
    const char *select = sfp__result_value(r, "select"), *buffer = sfp__result_value(r, "buffer");
    const char *preset = sfp__result_value(r, "preset");
    const char *name = is_closed_form(r) ? sfp__result_value(r, "method") : select ? select : buffer ? buffer : "";
    bool both = !is_closed_form(r) && select && buffer && strcmp(select, buffer) != 0;
    (void)snprintf(buf, size, "%s%s%s%s%s", name, both ? "+" : "", both ? buffer : "", preset ? ", preset " : "",
                   preset ? preset : "");
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

/* Every prediction has a confidence, but only those of known classes are in the confusion matrix. */
uint64_t sfp__result_unseen(const sfp_result *r, uint64_t *tested)
{
    uint64_t all = 0, known = 0;
    size_t cells = r->confusion ? (size_t)r->classes * (size_t)r->classes : 0;
    for (size_t i = 0; i < cells; i++)
        known += r->confusion[i];
    for (int b = 0; b < SFP__RELIABILITY_BINS && cells; b++)
        all += r->calibration.bins.count[b];
    bool plausible = all >= known; /* result.json of early versions has no bins */
    if (tested)
        *tested = plausible ? all : 0;
    return plausible ? all - known : 0;
}

sfp_status sfp__curve_add(sfp__curve *c, double x, double y, sfp_error *err)
{
    size_t n = (size_t)c->count, capacity_x = c->capacity, capacity_y = c->capacity;
    if (c->count >= SFP__CURVE_MAX)
        return sfp__fail(err, SFP_ELIMIT, "result: a curve has more than %d points", SFP__CURVE_MAX);
    TRY(sfp__check_memory(sfp__grow(&c->x, sizeof x, n, n + 1, &capacity_x) && sfp__grow(&c->y, sizeof y, n, n + 1, &capacity_y),
                          err));
    c->capacity = capacity_x;
    c->x[n] = x;
    c->y[n] = y;
    c->count++;
    return SFP_OK;
}

void sfp__curve_thin(sfp__curve *c)
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
    if (r->classes >= SFP__RESULT_CLASSES_MAX)
        return sfp__fail(err, SFP_ELIMIT, "result: number of classes exceeds %d", SFP__RESULT_CLASSES_MAX);
    size_t n = (size_t)r->classes;
    TRY(sfp__check_memory(sfp__grow(&r->class_names, sizeof *r->class_names, n, n + 1, &r->class_capacity), err));
    r->class_names[n] = NULL;
    TRY(replace_text(&r->class_names[n], name, err));
    r->classes++;
    sfp__free(r->confusion);
    r->confusion = NULL;
    return SFP_OK;
}

sfp_status sfp__result_confusion(sfp_result *r, sfp_error *err)
{
    size_t n = (size_t)r->classes;
    sfp__free(r->confusion);
    r->confusion = NULL;
    if (n == 0 || n > SFP__CONFUSION_MAX)
        return SFP_OK;
    return sfp__alloc(&r->confusion, n * n, sizeof *r->confusion, err);
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

/* Excludes NAN: not measured. */
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
    sfp__evaluation add = {.offered = offered, .task = task, .average = mean(task + 1, accuracy)};
    if (!r->evaluations)
        TRY(sfp__alloc(&r->evaluations, SFP__EVALUATIONS_MAX, sizeof *r->evaluations, err));
    TRY(sfp__alloc(&add.accuracy, (size_t)task + 1, sizeof *accuracy, err));
    memcpy(add.accuracy, accuracy, ((size_t)task + 1) * sizeof *accuracy);
    int n = r->evaluation_count;
    sfp__evaluation *last = r->evaluations + (n > 0 ? n - 1 : 0);
    if (n > 0 && last->offered == offered && last->task == task) {
        sfp__free(last->accuracy);
        *last = add;
        return SFP_OK;
    }
    if (n == SFP__EVALUATIONS_MAX)
        thin_evaluations(r);
    r->evaluations[r->evaluation_count++] = add;
    return SFP_OK;
}
