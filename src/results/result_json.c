/* Writes and reads result.json (docs/method.md, section 17).
 *
 * The text depends only on the values: keys have a fixed order, numbers their shortest form, and NAN is null. The file may be
 * from an untrusted source. So the reader checks every known key, bounds every count, and rejects values that the rest of the
 * program (matrices by tasks and classes, plots, tables) cannot process. Unknown keys are ignored, so that later versions can add
 * keys.
 *
 * The table of result_fields.c lists the contents in the order of the file. Matrices, lists and curves have functions here. */
#include "results/result_fields.h"

#include "base/mem.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json_read.h"
#include "io/json_write.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX ((size_t)1 << 30)
#define CONFIG_MAX 10000
#define DENSE_CONFUSION 200            /* with more classes, only the non-zero cells are written */
#define COUNT_LIMIT ((int64_t)1 << 40) /* of a cell of the confusion matrix, so that the sum of 4096 cells cannot overflow */
#define WHOLE_MAX (1 << 20)

/* The indented layout. */
static const sfp__json_form lines = {"\n ", ",\n ", ": ", "\n"}, spaced = {"", ", ", ":", ""}, rows = {"\n  ", ",\n  ", ":", ""},
                            options = {"\n  ", ",\n  ", ": ", ""};

static const char *const curve_keys[SFP__CURVES] = {"prequential", "loss", "rate", "lag"};

/* --------------------------------------------------------------------- write */

static void put_options(sfp__json *j, const sfp_result *r, const char *key)
{
    bool defaults = strcmp(key, "defaults") == 0, preset = strcmp(key, "preset_values") == 0;
    sfp__json_object_as(j, key, &options);
    for (int i = 0; i < r->config_count; i++) {
        const sfp__config_entry *p = &r->config[i];
        const char *value = defaults ? p->default_value : preset ? p->preset_value : p->value;
        if (value)
            sfp__json_string(j, r->config[i].key, value);
    }
    sfp__json_end(j);
}

static void put_preset_values(sfp__json *j, const sfp_result *r, const char *key)
{
    bool any = false;
    for (int i = 0; i < r->config_count; i++)
        any = any || r->config[i].preset_value;
    if (any)
        put_options(j, r, key);
}

static void put_names(sfp__json *j, const sfp_result *r, const char *key)
{
    bool tasks = strcmp(key, "task_names") == 0;
    sfp__json_array_as(j, key, &spaced);
    for (int i = 0; i < (tasks ? r->tasks : r->classes); i++)
        sfp__json_string(j, NULL, tasks ? r->task_names[i] : r->class_names[i]);
    sfp__json_end(j);
}

static void put_numbers(sfp__json *j, const char *key, int n, const double *x)
{
    sfp__json_array_as(j, key, &spaced);
    for (int i = 0; i < n; i++)
        sfp__json_exact(j, NULL, x[i]);
    sfp__json_end(j);
}

/* Writes a matrix (tasks, tasks). */
static void put_matrix(sfp__json *j, const char *key, int tasks, const double *a)
{
    sfp__json_array_as(j, key, &rows);
    for (int i = 0; i < tasks; i++)
        put_numbers(j, NULL, tasks, a + (size_t)i * (size_t)tasks);
    sfp__json_end(j);
}

static void put_accuracies(sfp__json *j, int tasks, const double *a)
{
    sfp__json_array_as(j, "accuracy_matrix", &rows);
    for (int i = 0; i < tasks; i++) {
        sfp__json_array_as(j, NULL, &spaced);
        for (int k = 0; k < tasks; k++)
            sfp__json_exact(j, NULL, k > i ? NAN : a[(size_t)i * (size_t)tasks + (size_t)k]);
        sfp__json_end(j);
    }
    sfp__json_end(j);
}

static void put_accuracy(sfp__json *j, const sfp_result *r, const char *key)
{
    (void)key;
    put_accuracies(j, r->tasks, r->accuracy);
}

static int cosines_of(const char *key)
{
    return strcmp(key, "gradient_cosines_head") == 0 ? SFP__COSINES_HEAD : SFP__COSINES_FINGERPRINTS;
}

static void put_cosines(sfp__json *j, const sfp_result *r, const char *key)
{
    size_t square = (size_t)r->tasks * (size_t)r->tasks;
    if (r->diagnostics.cosines)
        put_matrix(j, key, r->tasks, r->diagnostics.cosines + (size_t)cosines_of(key) * square);
}

static void put_per_class(sfp__json *j, const sfp_result *r, const char *key)
{
    sfp__json_array_as(j, key, &spaced);
    for (int c = 0; c < r->classes; c++)
        sfp__json_exact(j, NULL, sfp__result_class_accuracy(r, c, NULL));
    sfp__json_end(j);
}

static void put_evaluations(sfp__json *j, const sfp_result *r, const char *key)
{
    sfp__json_array_as(j, key, &rows);
    for (int i = 0; i < r->evaluation_count; i++) {
        const sfp__evaluation *e = &r->evaluations[i];
        sfp__json_object(j, NULL);
        sfp__json_uint(j, "offered", e->offered);
        sfp__json_int(j, "task", e->task);
        put_numbers(j, "accuracy", e->task + 1, e->accuracy);
        sfp__json_exact(j, "average", e->average);
        sfp__json_end(j);
    }
    sfp__json_end(j);
}

static void put_curves(sfp__json *j, const sfp_result *r, const char *key)
{
    sfp__json_object_as(j, key, &rows);
    for (int i = 0; i < SFP__CURVES; i++) {
        sfp__json_object(j, curve_keys[i]);
        put_numbers(j, "x", r->curve[i].count, r->curve[i].x);
        put_numbers(j, "y", r->curve[i].count, r->curve[i].y);
        sfp__json_end(j);
    }
    sfp__json_end(j);
}

/* Writes [count, correct, sum of confidences] of each bin. */
static void put_bins(sfp__json *j, const sfp_result *r, const char *key)
{
    const sfp__reliability *c = &r->calibration.bins;
    sfp__json_array_as(j, key, &spaced);
    for (int b = 0; b < SFP__RELIABILITY_BINS; b++) {
        sfp__json_array_as(j, NULL, &spaced);
        sfp__json_uint(j, NULL, c->count[b]);
        sfp__json_uint(j, NULL, c->correct[b]);
        sfp__json_exact(j, NULL, c->confidence[b]);
        sfp__json_end(j);
    }
    sfp__json_end(j);
}

/* Writes dense rows, or [truth, answer, count] for each non-zero cell. */
static void put_confusion(sfp__json *j, const sfp_result *r, const char *key)
{
    size_t n = (size_t)r->classes;
    bool dense = r->classes <= DENSE_CONFUSION;
    if (!r->confusion)
        return;
    sfp__json_array_as(j, dense ? key : "confusion_cells", dense ? &rows : &spaced);
    for (size_t i = 0; i < n; i++) {
        if (dense)
            sfp__json_array_as(j, NULL, &spaced);
        for (size_t k = 0; k < n; k++) {
            uint64_t count = r->confusion[i * n + k];
            if (dense)
                sfp__json_uint(j, NULL, count);
            else if (count)
                sfp__json_printf(j, NULL, "[%zu,%zu,%llu]", i, k, (unsigned long long)count);
        }
        if (dense)
            sfp__json_end(j);
    }
    sfp__json_end(j);
}

void sfp__json_seed(sfp__json *j, const char *key, uint64_t seed)
{
    sfp__json_printf(j, key, seed <= INT64_MAX ? "%llu" : "\"%llu\"", (unsigned long long)seed);
}

/* ---------------------------------------------------------------------- read */

static sfp_status get_seed(const sfp__json_in *in, const sfp__json_value *from, const char *key, uint64_t *out)
{
    const sfp__json_value *v = sfp__json_get(from, key);
    if (!sfp__json_is(v, SFP__JSON_STRING))
        return sfp__json_need_uint(in, from, key, out);
    char *end;
    const char *text = sfp__json_text(v);
    errno = 0;
    unsigned long long x = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno)
        return sfp__json_bad(in, key, "a whole number from 0 to 2^64 - 1");
    *out = x;
    return SFP_OK;
}

static sfp_status get_names(const sfp__json_in *in, const sfp__json_value *root, const char *key, sfp_result *r)
{
    const sfp__json_value *list = sfp__json_get(root, key);
    char **out = strcmp(key, "task_names") == 0 ? r->task_names : r->class_names;
    for (size_t i = 0; i < sfp__json_size(list); i++) {
        const sfp__json_value *v = sfp__json_at(list, i);
        if (sfp__json_is(v, SFP__JSON_NULL))
            continue;
        if (!sfp__json_is(v, SFP__JSON_STRING))
            return sfp__json_bad(in, key, "a list of strings or null");
        if (!(out[i] = sfp__strdup(sfp__json_text(v))))
            return sfp__fail_nomem(in->err);
    }
    return SFP_OK;
}

/* Reads what `object` (the object `name` of the file; NULL: missing) has for option `key`. */
static sfp_status get_option_value(const sfp__json_in *in, const sfp__json_value *object, const char *name, const char *key,
                                   sfp_status (*set)(sfp_result *r, const char *key, const char *value, sfp_error *err),
                                   sfp_result *r)
{
    const sfp__json_value *v = sfp__json_get(object, key);
    if (object && !sfp__json_is(object, SFP__JSON_OBJECT))
        return sfp__json_bad(in, name, "an object");
    if (v && !sfp__json_is(v, SFP__JSON_STRING)) {
        char expected[80];
        (void)snprintf(expected, sizeof expected, "a string; every value in '%s' must be a string", name);
        return sfp__json_bad(in, key, expected);
    }
    return v ? set(r, key, sfp__json_text(v), in->err) : SFP_OK;
}

static sfp_status get_config(const sfp__json_in *in, const sfp__json_value *root, const char *name, sfp_result *r)
{
    const sfp__json_value *config = NULL, *defaults = sfp__json_get(root, "defaults"),
                          *preset = sfp__json_get(root, "preset_values");
    TRY(sfp__json_need(in, root, name, SFP__JSON_OBJECT, &config));
    if (sfp__json_size(config) > CONFIG_MAX)
        return sfp__json_bad(in, name, "an object with at most 10000 keys");
    for (size_t i = 0; i < sfp__json_size(config); i++) {
        const char *key = sfp__json_at(config, i)->key;
        TRY(get_option_value(in, config, name, key, sfp__result_config, r));
        TRY(get_option_value(in, defaults, "defaults", key, sfp__result_default, r));
        TRY(get_option_value(in, preset, "preset_values", key, sfp__result_preset, r));
    }
    return SFP_OK;
}

/* Reads a matrix (tasks, tasks) of numbers from low to 1. */
static sfp_status get_matrix(const sfp__json_in *in, const sfp__json_value *from, const char *key, int tasks, double low,
                             double *a)
{
    const sfp__json_value *list = NULL;
    size_t n = (size_t)tasks;
    TRY(sfp__json_need_array(in, from, key, n, n, &list));
    for (size_t i = 0; i < n; i++) {
        const sfp__json_value *row = sfp__json_at(list, i);
        if (!sfp__json_is(row, SFP__JSON_ARRAY) || sfp__json_size(row) != n)
            return sfp__json_bad(in, key, "a square matrix with one row per task");
        for (size_t j = 0; j < n; j++)
            TRY(sfp__json_to_real(in, sfp__json_at(row, j), key, low, 1, &a[i * n + j]));
    }
    return SFP_OK;
}

static sfp_status get_accuracies(const sfp__json_in *in, const sfp__json_value *from, int tasks, double *a)
{
    const char *key = "accuracy_matrix";
    size_t n = (size_t)tasks;
    TRY(get_matrix(in, from, key, tasks, 0, a));
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++)
            if (!isnan(a[i * n + j]))
                return sfp__json_bad(in, key, "null above the diagonal");
    return SFP_OK;
}

static sfp_status get_accuracy(const sfp__json_in *in, const sfp__json_value *root, const char *key, sfp_result *r)
{
    (void)key;
    if (r->tasks_done > r->tasks)
        return sfp__json_bad(in, "tasks_done", "at most the number of tasks");
    return get_accuracies(in, root, r->tasks, r->accuracy);
}

static sfp_status get_cosines(const sfp__json_in *in, const sfp__json_value *from, const char *key, sfp_result *r)
{
    double *a = sfp__result_gradient_cosines(r, cosines_of(key));
    return a ? get_matrix(in, from, key, r->tasks, -1, a) : sfp__fail_nomem(in->err);
}

/* Checks the list but stores nothing: the values follow from the confusion matrix. */
static sfp_status get_per_class(const sfp__json_in *in, const sfp__json_value *root, const char *key, sfp_result *r)
{
    const sfp__json_value *list = NULL;
    double ignored;
    TRY(sfp__json_need_array(in, root, key, (size_t)r->classes, (size_t)r->classes, &list));
    for (size_t i = 0; i < sfp__json_size(list); i++)
        TRY(sfp__json_to_real(in, sfp__json_at(list, i), key, 0, 1, &ignored));
    return SFP_OK;
}

static sfp_status get_evaluation(const sfp__json_in *in, const char *key, const sfp__json_value *v, sfp_result *r)
{
    const sfp__json_value *accuracy = NULL;
    uint64_t offered = 0, task = 0;
    double average; /* checked but not stored: it follows from `accuracy` */
    OWNED double *row = NULL;
    if (!sfp__json_is(v, SFP__JSON_OBJECT))
        return sfp__json_bad(in, key, "a list of objects");
    TRY(sfp__json_need_uint(in, v, "offered", &offered));
    TRY(sfp__json_need_uint(in, v, "task", &task));
    if (r->evaluation_count && offered < r->evaluations[r->evaluation_count - 1].offered)
        return sfp__json_bad(in, key, "sorted by 'offered'");
    if (task >= (uint64_t)r->tasks)
        return sfp__json_bad(in, "task", "less than the number of tasks");
    TRY(sfp__json_need_array(in, v, "accuracy", task + 1, task + 1, &accuracy));
    TRY(sfp__json_need_real(in, v, "average", 0, 1, &average));
    TRY(sfp__alloc(&row, task + 1, sizeof *row, in->err));
    for (size_t k = 0; k <= task; k++)
        TRY(sfp__json_to_real(in, sfp__json_at(accuracy, k), "accuracy", 0, 1, &row[k]));
    return sfp__result_evaluated(r, offered, (int)task, row, in->err);
}

static sfp_status get_evaluations(const sfp__json_in *in, const sfp__json_value *root, const char *key, sfp_result *r)
{
    const sfp__json_value *list = NULL;
    TRY(sfp__json_need_array(in, root, key, 0, SFP__EVALUATIONS_MAX, &list));
    for (size_t i = 0; i < sfp__json_size(list); i++)
        TRY(get_evaluation(in, key, sfp__json_at(list, i), r));
    return SFP_OK;
}

static sfp_status get_curve(const sfp__json_in *in, const char *key, const sfp__json_value *v, sfp__curve *c)
{
    const sfp__json_value *x = NULL, *y = NULL;
    if (!sfp__json_is(v, SFP__JSON_OBJECT))
        return sfp__json_bad(in, key, "an object");
    TRY(sfp__json_need_array(in, v, "x", 0, SFP__CURVE_MAX, &x));
    TRY(sfp__json_need_array(in, v, "y", sfp__json_size(x), sfp__json_size(x), &y));
    for (size_t i = 0; i < sfp__json_size(x); i++) {
        double px, py;
        TRY(sfp__json_to_real(in, sfp__json_at(x, i), "x", -1e300, 1e300, &px));
        if (isnan(px) || (i > 0 && px < c->x[i - 1]))
            return sfp__json_bad(in, key, "a curve: x must not decrease");
        TRY(sfp__json_to_real(in, sfp__json_at(y, i), "y", -1e300, 1e300, &py));
        TRY(sfp__curve_add(c, px, py, in->err));
    }
    return SFP_OK;
}

static sfp_status get_curves(const sfp__json_in *in, const sfp__json_value *root, const char *key, sfp_result *r)
{
    const sfp__json_value *curves = NULL;
    TRY(sfp__json_need(in, root, key, SFP__JSON_OBJECT, &curves));
    for (int i = 0; i < SFP__CURVES; i++) {
        const sfp__json_value *v = sfp__json_get(curves, curve_keys[i]);
        if (v)
            TRY(get_curve(in, curve_keys[i], v, &r->curve[i]));
    }
    return SFP_OK;
}

static sfp_status to_cell(const sfp__json_in *in, const sfp__json_value *v, const char *key, int64_t limit, uint64_t *out)
{
    if (!sfp__json_is(v, SFP__JSON_INTEGER) || sfp__json_integer(v) < 0 || sfp__json_integer(v) >= limit)
        return sfp__json_bad(in, key, "a matrix of counts and class numbers in range");
    *out = (uint64_t)sfp__json_integer(v);
    return SFP_OK;
}

static sfp_status get_cells(const sfp__json_in *in, const sfp__json_value *root, const char *key, sfp_result *r)
{
    const sfp__json_value *cells = NULL;
    size_t n = (size_t)r->classes;
    TRY(sfp__json_need_array(in, root, key, 0, n * n, &cells));
    for (size_t i = 0; i < sfp__json_size(cells); i++) {
        uint64_t v[3] = {0};
        for (size_t k = 0; k < 3; k++) /* sfp__json_at returns NULL if its argument is not an array */
            TRY(to_cell(in, sfp__json_at(sfp__json_at(cells, i), k), key, k < 2 ? (int64_t)n : COUNT_LIMIT, &v[k]));
        r->confusion[v[0] * n + v[1]] = v[2];
    }
    return SFP_OK;
}

static sfp_status get_confusion(const sfp__json_in *in, const sfp__json_value *root, const char *key, sfp_result *r)
{
    const sfp__json_value *list = sfp__json_get(root, key);
    size_t n = (size_t)r->classes;
    if (!r->confusion)
        return SFP_OK;
    if (!list && sfp__json_get(root, "confusion_cells"))
        return get_cells(in, root, "confusion_cells", r);
    if (!list) { /* no evaluation was made */
        sfp__free(r->confusion);
        r->confusion = NULL;
        return SFP_OK;
    }
    TRY(sfp__json_need_array(in, root, key, n, n, &list));
    for (size_t i = 0; i < n; i++) {
        const sfp__json_value *row = sfp__json_at(list, i);
        if (!sfp__json_is(row, SFP__JSON_ARRAY) || sfp__json_size(row) != n)
            return sfp__json_bad(in, key, "a square matrix of counts with one row per class");
        for (size_t k = 0; k < n; k++)
            TRY(to_cell(in, sfp__json_at(row, k), key, COUNT_LIMIT, &r->confusion[i * n + k]));
    }
    return SFP_OK;
}

static sfp_status get_bins(const sfp__json_in *in, const sfp__json_value *from, const char *key, sfp_result *r)
{
    sfp__reliability *c = &r->calibration.bins;
    const sfp__json_value *list = NULL;
    TRY(sfp__json_need_array(in, from, key, SFP__RELIABILITY_BINS, SFP__RELIABILITY_BINS, &list));
    for (size_t b = 0; b < SFP__RELIABILITY_BINS; b++) {
        const sfp__json_value *bin = sfp__json_at(list, b); /* NULL if it is not an array */
        TRY(to_cell(in, sfp__json_at(bin, 0), key, COUNT_LIMIT, &c->count[b]));
        TRY(to_cell(in, sfp__json_at(bin, 1), key, (int64_t)c->count[b] + 1, &c->correct[b]));
        TRY(sfp__json_to_real(in, sfp__json_at(bin, 2), key, 0, (double)c->count[b], &c->confidence[b]));
        if (isnan(c->confidence[b]))
            return sfp__json_bad(in, key, "a number of predictions, of correct ones, and a sum of confidences per bin");
    }
    return SFP_OK;
}

/* --------------------------------------------------------------------- parts */

typedef struct part {
    const char *key;
    void (*put)(sfp__json *j, const sfp_result *r, const char *key);
    /* NULL: the function of another part reads it */
    sfp_status (*get)(const sfp__json_in *in, const sfp__json_value *root, const char *key, sfp_result *r);
} part;

/* The functions of the fields of kind PART. */
static const part *find_part(const sfp__result_field *f)
{
    static const part parts[] = {
        {"config", put_options, get_config},
        {"defaults", put_options, NULL},
        {"preset_values", put_preset_values, NULL},
        {"task_names", put_names, get_names},
        {"class_names", put_names, get_names},
        {"accuracy_matrix", put_accuracy, get_accuracy},
        {"bins", put_bins, get_bins},
        {"per_class", put_per_class, get_per_class},
        {"evaluations", put_evaluations, get_evaluations},
        {"gradient_cosines_fingerprints", put_cosines, get_cosines},
        {"gradient_cosines_head", put_cosines, get_cosines},
        {"curves", put_curves, get_curves},
        {"confusion", put_confusion, get_confusion},
    };
    const part *p = parts;
    while (strcmp(p->key, f->key) != 0)
        p++;
    return p;
}

static void put_field(sfp__json *j, const sfp__result_field *f, const sfp_result *r)
{
    const void *at = (const char *)r + f->offset;
    switch (f->kind) {
    case SFP__FIELD_TEXT:
        sfp__json_string(j, f->key, at);
        break;
    case SFP__FIELD_FLAG:
        sfp__json_bool(j, f->key, *(const bool *)at);
        break;
    case SFP__FIELD_SEED:
        sfp__json_seed(j, f->key, *(const uint64_t *)at);
        break;
    case SFP__FIELD_WHOLE:
        sfp__json_int(j, f->key, *(const int *)at);
        break;
    case SFP__FIELD_COUNT:
        sfp__json_uint(j, f->key, *(const uint64_t *)at);
        break;
    case SFP__FIELD_REAL:
        sfp__json_exact(j, f->key, *(const double *)at);
        break;
    case SFP__FIELD_PART:
        find_part(f)->put(j, r, f->key);
        break;
    case SFP__FIELD_DERIVED:
        break;
    }
}

static sfp_status get_field(const sfp__json_in *in, const sfp__result_field *f, const sfp__json_value *from, sfp_result *r)
{
    void *at = (char *)r + f->offset;
    const sfp__json_value *v;
    int64_t n = 0;
    switch (f->kind) {
    case SFP__FIELD_TEXT:
        return sfp__json_need_text(in, from, f->key, at, f->size);
    case SFP__FIELD_FLAG:
        v = sfp__json_get(from, f->key);
        if (!sfp__json_is(v, SFP__JSON_TRUE) && !sfp__json_is(v, SFP__JSON_FALSE))
            return sfp__json_bad(in, f->key, "true or false");
        *(bool *)at = sfp__json_is(v, SFP__JSON_TRUE);
        return SFP_OK;
    case SFP__FIELD_SEED:
        return get_seed(in, from, f->key, at);
    case SFP__FIELD_WHOLE:
        TRY(sfp__json_need_int(in, from, f->key, 0, WHOLE_MAX, &n));
        *(int *)at = (int)n;
        return SFP_OK;
    case SFP__FIELD_COUNT:
        return sfp__json_need_uint(in, from, f->key, at);
    case SFP__FIELD_REAL:
        return sfp__json_need_real(in, from, f->key, f->low, f->high, at);
    case SFP__FIELD_PART:
        return find_part(f)->get ? find_part(f)->get(in, from, f->key, r) : SFP_OK;
    case SFP__FIELD_DERIVED:
        break;
    }
    return SFP_OK;
}

static bool is_diagnostic(const sfp__result_field *f)
{
    return f->group && strcmp(f->group, "diagnostics") == 0;
}

/* The layout of the object that begins with this field. */
static const sfp__json_form *group_form(const sfp__result_field *f)
{
    if (is_diagnostic(f))
        return &options;
    return f->kind == SFP__FIELD_REAL ? &spaced : NULL;
}

/* Returns whether the result has the group of this field. */
static bool has_group(const sfp__result_field *f, const sfp_result *r)
{
    if (f->group && strcmp(f->group, "cache") == 0)
        return r->cache.hits + r->cache.misses > 0;
    if (f->group && strcmp(f->group, "standings") == 0)
        return r->standings.learned + r->standings.waiting + r->standings.forgotten > 0;
    if (f->group && strcmp(f->group, "calibration") == 0)
        return isfinite(r->calibration.error);
    return !is_diagnostic(f) || r->diagnostics.measured;
}

sfp_status sfp__result_text(const sfp_result *r, bool one_line, char **out, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    sfp__json j = {.text = &t, .one_line = one_line};
    const char *group = NULL; /* the group that is open */
    sfp__json_object_as(&j, NULL, &lines);
    sfp__json_string(&j, "version", r->version);
    for (const sfp__result_field *f = sfp__result_fields; f->key; f++) {
        if (f->kind == SFP__FIELD_DERIVED || !has_group(f, r))
            continue;
        if (group && (!f->group || strcmp(f->group, group) != 0)) {
            sfp__json_end(&j);
            group = NULL;
        }
        if (f->group && !group)
            sfp__json_object_as(&j, group = f->group, group_form(f));
        put_field(&j, f, r);
    }
    sfp__json_end(&j);
    sfp__text_put(&t, one_line ? "" : "\n");
    TRY(sfp__check_memory(!t.failed, err));
    *out = TAKE(t.s);
    return SFP_OK;
}

static sfp_status read_result(const sfp__json_in *in, const sfp__json_value *root, sfp_result *r)
{
    const sfp__json_value *tasks = NULL, *classes = NULL;
    if (!sfp__json_is(root, SFP__JSON_OBJECT))
        return sfp__fail(in->err, SFP_EFORMAT, "%s: not a JSON object", in->label);
    TRY(sfp__json_need_array(in, root, "task_names", 1, SFP__RESULT_TASKS_MAX, &tasks));
    TRY(sfp__json_need_array(in, root, "class_names", 0, SFP__RESULT_CLASSES_MAX, &classes));
    TRY(sfp__result_init(r, (int)sfp__json_size(tasks), (int)sfp__json_size(classes), in->err));
    const char *version = sfp__json_text(sfp__json_get(root, "version"));
    if (version && strlen(version) < sizeof r->version)
        (void)snprintf(r->version, sizeof r->version, "%s", version);
    for (const sfp__result_field *f = sfp__result_fields; f->key; f++) {
        const sfp__json_value *from = f->group ? sfp__json_get(root, f->group) : root;
        bool cells = strcmp(f->key, "confusion") == 0; /* its value may be under another key, confusion_cells */
        if (f->kind == SFP__FIELD_DERIVED)
            continue;
        if (f->group && from && !sfp__json_is(from, SFP__JSON_OBJECT))
            return sfp__json_bad(in, f->group, "an object");
        if (f->optional && !sfp__json_get(from, f->key) && !cells)
            continue;
        if (!from)
            return sfp__fail(in->err, SFP_EFORMAT, "%s: key '%s' is missing", in->label, f->group);
        TRY(get_field(in, f, from, r));
    }
    r->diagnostics.measured = sfp__json_get(root, "diagnostics") != NULL;
    return SFP_OK;
}

sfp_status sfp__result_from(const char *label, const sfp__json_value *root, sfp_result *out, sfp_error *err)
{
    OWNED_BY(sfp__result_done) sfp_result r = {0};
    TRY(read_result(&(sfp__json_in){label, err}, root, &r));
    *out = TAKE(r);
    return SFP_OK;
}

sfp_status sfp__result_parse(const char *label, const char *text, size_t size, sfp_result *out, sfp_error *err)
{
    OWNED sfp__json_value *root = NULL;
    TRY(sfp__json_parse(label, text, size, &root, err));
    return sfp__result_from(label, root, out, err);
}

sfp_status sfp__result_write(const sfp_result *r, const char *path, sfp_error *err)
{
    OWNED char *text = NULL;
    TRY(sfp__result_text(r, false, &text, err));
    return sfp__file_write(path, text, strlen(text), err);
}

sfp_status sfp__result_read(const char *path, sfp_result *out, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    size_t size = 0;
    TRY(sfp__file_read(path, FILE_MAX, &bytes, &size, err));
    return sfp__result_parse(path, (const char *)bytes, size, out, err);
}
