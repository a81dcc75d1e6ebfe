/* The text of result.json (SPEC section 17). It depends on the numbers alone: keys in a fixed order, numbers in their shortest
 * form, NAN as null. */
#include "io/json_write.h"
#include "results/result.h"

#include "base/mem.h"
#include "io/file.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define DENSE_CONFUSION 200 /* with more classes only the cells that are not 0 are written */

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
    sfp__text_json(&j->text, key);
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
    sfp__text_exact(&j->text, x);
}

static void text_or_null(json *j, const char *s)
{
    if (s)
        sfp__text_json(&j->text, s);
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
        sfp__text_exact(&j->text, x[i]);
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
        sfp__text_json(&j->text, keys[i]);
        sfp__text_put(&j->text, ":");
        sfp__text_exact(&j->text, x[i]);
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
        sfp__text_json(&j->text, r->config[i].key);
        sfp__text_put(&j->text, j->one_line ? ":" : ": ");
        sfp__text_json(&j->text, value);
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
    sfp__text_json(&j->text, sfp_version());
    member(j, "started");
    sfp__text_json(&j->text, r->started);
    member(j, "finished");
    sfp__text_put(&j->text, r->finished ? "true" : "false");
    member(j, "seed");
    seed_value(j, r->seed);
    member(j, "machine");
    sfp__text_put(&j->text, "{\"cpu\":");
    sfp__text_json(&j->text, r->machine.cpu);
    sfp__text_printf(&j->text, ",\"threads\":%d,\"kernels\":", r->machine.threads);
    sfp__text_json(&j->text, r->machine.kernels);
    sfp__text_put(&j->text, ",\"gemm\":");
    sfp__text_json(&j->text, r->machine.gemm);
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
            sfp__text_exact(&j->text, k > i ? NAN : a[(size_t)i * (size_t)tasks + (size_t)k]);
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
        sfp__text_json(&j->text, sfp__result_head_names[h]);
        sfp__text_put(&j->text, ":{\"average_accuracy\":");
        sfp__text_exact(&j->text, sfp__average_accuracy(r->tasks, r->tasks_done, a));
        sfp__text_put(&j->text, ",\"forgetting\":");
        sfp__text_exact(&j->text, sfp__forgetting(r->tasks, r->tasks_done, a));
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
        sfp__text_exact(&j->text, sfp__result_class_accuracy(r, c, NULL));
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
        sfp__text_exact(&j->text, e->average);
        sfp__text_put(&j->text, "}");
    }
    sfp__text_put(&j->text, "]");
}

static void samples_and_time(json *j, const sfp_result *r)
{
    member(j, "samples");
    sfp__text_printf(&j->text, "{\"offered\":%" PRIu64 ",\"scored\":%" PRIu64 ",\"trained\":%" PRIu64, r->samples.offered,
                     r->samples.scored, r->samples.trained);
    sfp__text_printf(&j->text, ",\"replayed\":%" PRIu64 ",\"dropped\":%" PRIu64 ",\"skipped\":%" PRIu64 "}", r->samples.replayed,
                     r->samples.dropped, r->samples.skipped);
    member(j, "labels");
    sfp__text_printf(&j->text,
                     "{\"unlabelled\":%" PRIu64 ",\"late\":%" PRIu64 ",\"expired\":%" PRIu64 ",\"waiting\":%" PRIu64 "}",
                     r->labels.unlabelled, r->labels.late, r->labels.expired, r->labels.waiting);
    real_member(j, "lambda", r->lambda);
    real_member(j, "cs", r->cs);
    real_object(j, "lag", 3, (const char *[]){"mean", "max", "last"}, (const double[]){r->lag.mean, r->lag.max, r->lag.last});
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
    sfp__text_json(&j->text, key);
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
    curve(&j, "prequential", &r->curve[SFP_CURVE_PREQUENTIAL], true);
    curve(&j, "loss", &r->curve[SFP_CURVE_LOSS], false);
    curve(&j, "rate", &r->curve[SFP_CURVE_RATE], false);
    curve(&j, "lag", &r->curve[SFP_CURVE_LAG], false);
    sfp__text_put(&j.text, "}");
    confusion(&j, r);
    sfp__text_put(&j.text, one_line ? "}" : "\n}\n");
    if (j.text.failed) {
        sfp__text_done(&j.text);
        return sfp__fail_nomem(err);
    }
    *out = j.text.s;
    return SFP_OK;
}

sfp_status sfp__result_write(const sfp_result *r, const char *path, sfp_error *err)
{
    char *text = NULL;
    sfp_status s = sfp__result_text(r, false, &text, err);
    if (s == SFP_OK)
        s = sfp__file_write(path, text, strlen(text), err);
    sfp__free(text);
    return s;
}
