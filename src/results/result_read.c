/* result.json back into memory. The file may come from anybody: every key is looked at, every count bounded, and nothing is
 * taken that the rest of the program (matrices by tasks and classes, plots, tables) could trip over. Keys that are not known
 * are passed over, so that a later version may add some. */
#include "results/result.h"

#include "base/mem.h"
#include "base/text.h"
#include "io/file.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX ((size_t)1 << 30)
#define CONFIG_MAX 10000

typedef struct reader {
    const char *label;
    sfp_error *err;
} reader;

static sfp_status bad(const reader *in, const char *where, const char *expected)
{
    char name[SFP_NAME_MAX];
    return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' is not %s", in->label, sfp__printable(where, name, sizeof name), expected);
}

/* A member of a wanted type; one that is missing is an error. */
static sfp_status get(const reader *in, const json_t *from, const char *key, int type, const json_t **out)
{
    static const char *const words[] = {"an object", "an array", "a string", "a whole number"};
    const json_t *v = json_object_get(from, key);
    if (!v)
        return sfp__fail(in->err, SFP_EFORMAT, "%s: key '%s' is missing", in->label, key);
    if ((int)json_typeof(v) != type)
        return bad(in, key, words[type]);
    *out = v;
    return SFP_OK;
}

/* null: NAN */
static sfp_status to_real(const reader *in, const json_t *v, const char *key, double low, double high, double *out)
{
    double x = NAN;
    if (!json_is_null(v)) {
        if (!json_is_number(v))
            return bad(in, key, "a number or null");
        x = json_number_value(v);
        if (!(x >= low && x <= high))
            return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' is %g, expected %g to %g", in->label, key, x, low, high);
    }
    *out = x;
    return SFP_OK;
}

static sfp_status get_real(const reader *in, const json_t *from, const char *key, double low, double high, double *out)
{
    const json_t *v = json_object_get(from, key);
    if (!v)
        return sfp__fail(in->err, SFP_EFORMAT, "%s: key '%s' is missing", in->label, key);
    return to_real(in, v, key, low, high, out);
}

static sfp_status get_count(const reader *in, const json_t *from, const char *key, uint64_t *out)
{
    const json_t *v = NULL;
    sfp_status s = get(in, from, key, JSON_INTEGER, &v);
    if (s == SFP_OK && json_integer_value(v) < 0)
        return bad(in, key, "0 or more");
    if (s == SFP_OK)
        *out = (uint64_t)json_integer_value(v);
    return s;
}

static sfp_status get_text(const reader *in, const json_t *from, const char *key, char *out, size_t room)
{
    const json_t *v = NULL;
    sfp_status s = get(in, from, key, JSON_STRING, &v);
    if (s == SFP_OK && json_string_length(v) >= room)
        return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' has %zu bytes, expected less than %zu", in->label, key,
                         json_string_length(v), room);
    if (s == SFP_OK)
        memcpy(out, json_string_value(v), json_string_length(v) + 1);
    return s;
}

static sfp_status get_seed(const reader *in, const json_t *from, uint64_t *out)
{
    const json_t *v = json_object_get(from, "seed");
    if (!json_is_string(v))
        return get_count(in, from, "seed", out);
    char *end;
    const char *text = json_string_value(v);
    errno = 0;
    unsigned long long x = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno)
        return bad(in, "seed", "a whole number from 0 to 2^64 - 1");
    *out = x;
    return SFP_OK;
}

/* The size of a list, within a range. */
static sfp_status get_array(const reader *in, const json_t *from, const char *key, size_t low, size_t high, const json_t **out)
{
    sfp_status s = get(in, from, key, JSON_ARRAY, out);
    size_t n = s == SFP_OK ? json_array_size(*out) : 0;
    if (s != SFP_OK || (n >= low && n <= high))
        return s;
    if (low == high)
        return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' has %zu entries, expected %zu", in->label, key, n, low);
    return sfp__fail(in->err, SFP_EFORMAT, "%s: '%s' has %zu entries, expected %zu to %zu", in->label, key, n, low, high);
}

static sfp_status read_names(const reader *in, const json_t *list, const char *key, char **out)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (json_is_null(v))
            continue;
        if (!json_is_string(v))
            return bad(in, key, "a list of strings or null");
        out[i] = sfp__strdup(json_string_value(v));
        if (!out[i])
            return sfp__fail_nomem(in->err);
    }
    return SFP_OK;
}

static sfp_status read_config(const reader *in, const json_t *root, sfp_result *r)
{
    const json_t *config = NULL, *defaults = json_object_get(root, "defaults");
    sfp_status s = get(in, root, "config", JSON_OBJECT, &config);
    if (s != SFP_OK)
        return s;
    if (json_object_size(config) > CONFIG_MAX)
        return bad(in, "config", "of a sane size");
    if (defaults && !json_is_object(defaults))
        return bad(in, "defaults", "an object");
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)config, key, v)
    {
        const json_t *fallback = json_object_get(defaults, key);
        if (!json_is_string(v))
            return bad(in, key, "a string, as every value in 'config'");
        if (fallback && !json_is_string(fallback))
            return bad(in, key, "a string, as every value in 'defaults'");
        s = sfp__result_config(r, key, json_string_value(v), in->err);
        if (s == SFP_OK && fallback)
            s = sfp__result_default(r, key, json_string_value(fallback), in->err);
        if (s != SFP_OK)
            return s;
    }
    return SFP_OK;
}

static sfp_status read_machine(const reader *in, const json_t *root, sfp_result *r)
{
    const json_t *m = NULL;
    uint64_t threads = 0;
    sfp_status s = get(in, root, "machine", JSON_OBJECT, &m);
    if (s == SFP_OK)
        s = get_text(in, m, "cpu", r->machine.cpu, sizeof r->machine.cpu);
    if (s == SFP_OK)
        s = get_text(in, m, "kernels", r->machine.kernels, sizeof r->machine.kernels);
    if (s == SFP_OK)
        s = get_text(in, m, "gemm", r->machine.gemm, sizeof r->machine.gemm);
    if (s == SFP_OK)
        s = get_count(in, m, "threads", &threads);
    if (s == SFP_OK && threads > 1 << 20)
        s = bad(in, "threads", "a sane number");
    if (s == SFP_OK)
        r->machine.threads = (int)threads;
    return s;
}

static sfp_status read_matrix(const reader *in, const json_t *root, int tasks, double *a)
{
    const json_t *rows = NULL;
    size_t n = (size_t)tasks;
    sfp_status s = get_array(in, root, "accuracy_matrix", n, n, &rows);
    for (size_t i = 0; s == SFP_OK && i < n; i++) {
        const json_t *row = json_array_get(rows, i);
        if (!json_is_array(row) || json_array_size(row) != n)
            return bad(in, "accuracy_matrix", "a square of numbers, as many as tasks");
        for (size_t j = 0; s == SFP_OK && j < n; j++) {
            s = to_real(in, json_array_get(row, j), "accuracy_matrix", 0, 1, &a[i * n + j]);
            if (s == SFP_OK && j > i && !isnan(a[i * n + j]))
                return bad(in, "accuracy_matrix", "null above the diagonal");
        }
    }
    return s;
}

static sfp_status read_heads(const reader *in, const json_t *root, sfp_result *r)
{
    const json_t *heads = json_object_get(root, "heads");
    sfp_status s = SFP_OK;
    if (!heads)
        return SFP_OK;
    for (int h = 0; s == SFP_OK && h < SFP_RESULT_HEADS; h++) {
        const json_t *head = json_object_get(heads, sfp__result_head_names[h]);
        double *a = sfp__result_head(r, h);
        if (!json_is_object(head))
            return bad(in, "heads", "an object a head: linear, slda, ranpac");
        s = a ? read_matrix(in, head, r->tasks, a) : sfp__fail_nomem(in->err);
    }
    return s;
}

static sfp_status read_accuracy(const reader *in, const json_t *root, sfp_result *r)
{
    uint64_t done = 0;
    const json_t *per_class = NULL;
    sfp_status s = get_count(in, root, "tasks_done", &done);
    if (s == SFP_OK && done > (uint64_t)r->tasks)
        return bad(in, "tasks_done", "at most the number of tasks");
    r->tasks_done = (int)done;
    if (s == SFP_OK)
        s = read_matrix(in, root, r->tasks, r->accuracy);
    if (s == SFP_OK)
        s = read_heads(in, root, r);
    if (s == SFP_OK)
        s = get_real(in, root, "average_accuracy", 0, 1, &r->average_accuracy);
    if (s == SFP_OK)
        s = get_real(in, root, "forgetting", -1, 1, &r->forgetting);
    if (s == SFP_OK)
        s = get_real(in, root, "backward_transfer", -1, 1, &r->backward_transfer);
    if (s == SFP_OK)
        s = get_real(in, root, "prequential_accuracy", 0, 1, &r->prequential_accuracy);
    if (s == SFP_OK) /* follows from the confusion matrix; only its form is looked at */
        s = get_array(in, root, "per_class", (size_t)r->classes, (size_t)r->classes, &per_class);
    for (size_t i = 0; s == SFP_OK && i < json_array_size(per_class); i++) {
        double ignored;
        s = to_real(in, json_array_get(per_class, i), "per_class", 0, 1, &ignored);
    }
    return s;
}

static sfp_status read_evaluations(const reader *in, const json_t *root, sfp_result *r)
{
    const json_t *list = NULL;
    if (!json_object_get(root, "evaluations")) /* of an older version */
        return SFP_OK;
    sfp_status s = get_array(in, root, "evaluations", 0, SFP_EVALUATIONS_MAX, &list);
    for (size_t i = 0; s == SFP_OK && i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i), *accuracy = NULL;
        uint64_t offered = 0, task = 0;
        double average = NAN;
        s = json_is_object(v) ? get_count(in, v, "offered", &offered) : bad(in, "evaluations", "a list of objects");
        if (s == SFP_OK)
            s = get_count(in, v, "task", &task);
        if (s == SFP_OK && r->evaluation_count && offered < r->evaluations[r->evaluation_count - 1].offered)
            return bad(in, "evaluations", "in order");
        if (s == SFP_OK && task >= (uint64_t)r->tasks)
            return bad(in, "task", "below the number of tasks");
        if (s == SFP_OK)
            s = get_array(in, v, "accuracy", task + 1, task + 1, &accuracy);
        if (s == SFP_OK)
            s = get_real(in, v, "average", 0, 1, &average);
        double *row = s == SFP_OK ? sfp__malloc((task + 1) * sizeof *row) : NULL;
        if (s == SFP_OK && !row)
            s = sfp__fail_nomem(in->err);
        for (size_t k = 0; s == SFP_OK && k <= task; k++)
            s = to_real(in, json_array_get(accuracy, k), "accuracy", 0, 1, &row[k]);
        if (s == SFP_OK)
            s = sfp__result_evaluated(r, offered, (int)task, row, in->err); /* the average follows from the rest */
        sfp__free(row);
    }
    return s;
}

static sfp_status to_cell(const reader *in, const json_t *v, const char *key, json_int_t limit, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= limit)
        return bad(in, key, "made of counts and class numbers");
    *out = (uint64_t)json_integer_value(v);
    return SFP_OK;
}

#define COUNT_LIMIT ((json_int_t)1 << 40) /* so that a row of 4096 cells cannot overflow */

static sfp_status read_confusion(const reader *in, const json_t *root, sfp_result *r)
{
    const json_t *rows = json_object_get(root, "confusion"), *cells = json_object_get(root, "confusion_cells");
    size_t n = (size_t)r->classes;
    sfp_status s = SFP_OK;
    if ((!rows && !cells) || !r->confusion)
        return SFP_OK;
    if (rows)
        s = get_array(in, root, "confusion", n, n, &rows);
    else
        s = get_array(in, root, "confusion_cells", 0, n * n, &cells);
    for (size_t i = 0; rows && s == SFP_OK && i < n; i++) {
        const json_t *row = json_array_get(rows, i);
        if (!json_is_array(row) || json_array_size(row) != n)
            return bad(in, "confusion", "a square of counts, as many as classes");
        for (size_t j = 0; s == SFP_OK && j < n; j++)
            s = to_cell(in, json_array_get(row, j), "confusion", COUNT_LIMIT, &r->confusion[i * n + j]);
    }
    for (size_t i = 0; !rows && s == SFP_OK && i < json_array_size(cells); i++) {
        const json_t *cell = json_array_get(cells, i);
        uint64_t v[3] = {0};
        for (size_t k = 0; s == SFP_OK && k < 3; k++) /* json_array_get of what is no array is NULL */
            s = to_cell(in, json_array_get(cell, k), "confusion_cells", k < 2 ? (json_int_t)n : COUNT_LIMIT, &v[k]);
        if (s == SFP_OK)
            r->confusion[v[0] * n + v[1]] = v[2];
    }
    return s;
}

static sfp_status read_samples_and_time(const reader *in, const json_t *root, sfp_result *r)
{
    const json_t *samples = NULL, *lag = NULL, *seconds = NULL, *labels = json_object_get(root, "labels");
    sfp_status s = get(in, root, "samples", JSON_OBJECT, &samples);
    if (s == SFP_OK)
        s = get(in, root, "lag", JSON_OBJECT, &lag);
    if (s == SFP_OK)
        s = get(in, root, "seconds", JSON_OBJECT, &seconds);
    if (s == SFP_OK && labels && !json_is_object(labels))
        s = bad(in, "labels", "an object");
    const struct {
        const json_t *from;
        const char *key;
        uint64_t *to;
        bool may_lack;
    } counts[] = {{samples, "offered", &r->samples.offered, false},    {samples, "scored", &r->samples.scored, false},
                  {samples, "trained", &r->samples.trained, false},    {samples, "replayed", &r->samples.replayed, false},
                  {samples, "dropped", &r->samples.dropped, false},    {samples, "skipped", &r->samples.skipped, true},
                  {labels, "unlabelled", &r->labels.unlabelled, true}, {labels, "late", &r->labels.late, true},
                  {labels, "expired", &r->labels.expired, true},       {labels, "waiting", &r->labels.waiting, true}};
    for (size_t i = 0; s == SFP_OK && i < sizeof counts / sizeof *counts; i++)
        if (!counts[i].may_lack || json_object_get(counts[i].from, counts[i].key))
            s = get_count(in, counts[i].from, counts[i].key, counts[i].to);
    const struct {
        const json_t *from;
        const char *key;
        double low, high;
        double *to;
        bool may_lack;
    } reals[] = {{root, "lambda", 0, 1e300, &r->lambda, false},
                 {root, "cs", 0, 1e300, &r->cs, false},
                 {root, "coverage", 0, 1, &r->coverage, false},
                 {root, "samples_per_second", 0, 1e300, &r->samples_per_second, false},
                 {lag, "mean", -1e300, 1e300, &r->lag.mean, false},
                 {lag, "max", -1e300, 1e300, &r->lag.max, false},
                 {lag, "last", -1e300, 1e300, &r->lag.last, false},
                 {seconds, "decode", -1e300, 1e300, &r->seconds.decode, false},
                 {seconds, "select", -1e300, 1e300, &r->seconds.select, false},
                 {seconds, "train", -1e300, 1e300, &r->seconds.train, false},
                 {seconds, "buffer", -1e300, 1e300, &r->seconds.buffer, false},
                 {seconds, "evaluate", -1e300, 1e300, &r->seconds.evaluate, false},
                 {seconds, "total", -1e300, 1e300, &r->seconds.total, false},
                 {seconds, "waited", -1e300, 1e300, &r->seconds.waited, true}};
    for (size_t i = 0; s == SFP_OK && i < sizeof reals / sizeof *reals; i++)
        if (!reals[i].may_lack || json_object_get(reals[i].from, reals[i].key))
            s = get_real(in, reals[i].from, reals[i].key, reals[i].low, reals[i].high, reals[i].to);
    if (s == SFP_OK)
        s = get_count(in, root, "peak_rss_bytes", &r->peak_rss_bytes);
    return s;
}

static sfp_status read_curve(const reader *in, const json_t *curves, const char *key, sfp_curve *c)
{
    const json_t *v = json_object_get(curves, key), *x = NULL, *y = NULL;
    if (!v)
        return SFP_OK;
    sfp_status s = json_is_object(v) ? SFP_OK : bad(in, key, "an object");
    if (s == SFP_OK)
        s = get_array(in, v, "x", 0, SFP_CURVE_MAX, &x);
    if (s == SFP_OK)
        s = get_array(in, v, "y", json_array_size(x), json_array_size(x), &y);
    for (size_t i = 0; s == SFP_OK && i < json_array_size(x); i++) {
        double px = NAN, py = NAN;
        s = to_real(in, json_array_get(x, i), "x", -1e300, 1e300, &px);
        if (s == SFP_OK && (isnan(px) || (i > 0 && px < c->x[i - 1])))
            s = bad(in, key, "a curve: x must not fall");
        if (s == SFP_OK)
            s = to_real(in, json_array_get(y, i), "y", -1e300, 1e300, &py);
        if (s == SFP_OK)
            s = sfp__curve_add(c, px, py, in->err);
    }
    return s;
}

static sfp_status read_curves(const reader *in, const json_t *root, sfp_result *r)
{
    const json_t *curves = json_object_get(root, "curves");
    if (!curves)
        return SFP_OK;
    if (!json_is_object(curves))
        return bad(in, "curves", "an object");
    sfp_status s = read_curve(in, curves, "prequential", &r->curve[SFP_CURVE_PREQUENTIAL]);
    if (s == SFP_OK)
        s = read_curve(in, curves, "loss", &r->curve[SFP_CURVE_LOSS]);
    if (s == SFP_OK)
        s = read_curve(in, curves, "rate", &r->curve[SFP_CURVE_RATE]);
    if (s == SFP_OK)
        s = read_curve(in, curves, "lag", &r->curve[SFP_CURVE_LAG]);
    return s;
}

static sfp_status read_root(const reader *in, const json_t *root, sfp_result *r)
{
    const json_t *tasks = NULL, *classes = NULL, *finished = json_object_get(root, "finished");
    if (!json_is_object(root))
        return sfp__fail(in->err, SFP_EFORMAT, "%s: not a JSON object", in->label);
    sfp_status s = get_array(in, root, "task_names", 1, SFP_RESULT_TASKS_MAX, &tasks);
    if (s == SFP_OK)
        s = get_array(in, root, "class_names", 0, SFP_RESULT_CLASSES_MAX, &classes);
    if (s == SFP_OK)
        s = sfp__result_init(r, (int)json_array_size(tasks), (int)json_array_size(classes), in->err);
    if (s == SFP_OK)
        s = read_names(in, tasks, "task_names", r->task_names);
    if (s == SFP_OK)
        s = read_names(in, classes, "class_names", r->class_names);
    if (s == SFP_OK)
        s = get_text(in, root, "started", r->started, sizeof r->started);
    if (s == SFP_OK && !json_is_boolean(finished))
        s = bad(in, "finished", "true or false");
    if (s == SFP_OK)
        s = get_seed(in, root, &r->seed);
    r->finished = json_is_true(finished);
    if (s == SFP_OK)
        s = read_machine(in, root, r);
    if (s == SFP_OK)
        s = read_config(in, root, r);
    if (s == SFP_OK)
        s = read_accuracy(in, root, r);
    if (s == SFP_OK)
        s = read_evaluations(in, root, r);
    if (s == SFP_OK)
        s = read_samples_and_time(in, root, r);
    if (s == SFP_OK)
        s = read_curves(in, root, r);
    if (s == SFP_OK)
        s = read_confusion(in, root, r);
    return s;
}

sfp_status sfp__result_parse(const char *label, const char *text, size_t size, sfp_result *out, sfp_error *err)
{
    json_error_t why;
    sfp_result r = {0};
    reader in = {label, err};
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
    if (!root) {
        char message[SFP_NAME_MAX];
        return sfp__fail(err, SFP_EFORMAT, "%s:%d: not JSON: %s", label, why.line,
                         sfp__printable(why.text, message, sizeof message));
    }
    sfp_status s = read_root(&in, root, &r);
    json_decref(root);
    if (s == SFP_OK)
        *out = r;
    else
        sfp__result_done(&r);
    return s;
}

sfp_status sfp__result_read(const char *path, sfp_result *out, sfp_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    sfp_status s = sfp__file_read(path, FILE_MAX, &bytes, &size, err);
    if (s == SFP_OK)
        s = sfp__result_parse(path, (const char *)bytes, size, out, err);
    sfp__free(bytes);
    return s;
}
