/* The output directory of a pretraining run: log.jsonl, report.html, config.json, and the files of an earlier run. */
#include "pretrain/pretrain_internal.h"

#include "base/mem.h"
#include "base/text.h"
#include "io/directory.h"
#include "io/file.h"
#include "io/json_read.h"
#include "io/json_write.h"
#include "io/line_log.h"
#include "io/tensor/safetensors.h"
#include "report/html.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CONFIG_BYTES_MAX ((size_t)64 << 20)
#define LOG_BYTES_MAX ((size_t)256 << 20)

/* ----------------------------------------------------------------------- log */

/* The numbers of a log point in the order of a line. key NULL: a term of the loss, which sfp__pretrain_term_name names. */
typedef struct number {
    const char *key;
    size_t offset;
} number;
#define LOSS(term) offsetof(sfp__log_point, loss) + (term) * sizeof(double)

static const number numbers[] = {{"epoch", offsetof(sfp__log_point, epoch)},
                                 {"seconds", offsetof(sfp__log_point, seconds)},
                                 {"lr", offsetof(sfp__log_point, lr)},
                                 {"grad_norm", offsetof(sfp__log_point, grad_norm)},
                                 {"images_per_second", offsetof(sfp__log_point, images_per_second)},
                                 {NULL, LOSS(0)},
                                 {NULL, LOSS(1)},
                                 {NULL, LOSS(2)},
                                 {NULL, LOSS(3)},
                                 {"ncm", offsetof(sfp__log_point, ncm)},
                                 {"knn", offsetof(sfp__log_point, knn)}};
enum { NUMBERS = sizeof numbers / sizeof *numbers };
_Static_assert(SFP__TERMS == 4, "the terms of the loss in the table of numbers");

static const char *key_of(const number *n)
{
    return n->key ? n->key : sfp__pretrain_term_name((int)((n->offset - LOSS(0)) / sizeof(double)));
}

static double value_of(const sfp__log_point *p, size_t offset)
{
    return *(const double *)(const void *)((const char *)p + offset);
}

static void put_point(sfp__text *t, const sfp__log_point *p)
{
    static const sfp__json_form spaced = {"", ", ", ": ", ""};
    sfp__json j = {.text = t};
    sfp__json_object_as(&j, NULL, &spaced);
    sfp__json_uint(&j, "step", p->step);
    for (const number *n = numbers; n < numbers + NUMBERS; n++)
        if (isfinite(value_of(p, n->offset)))
            sfp__json_printf(&j, key_of(n), "%.9g", value_of(p, n->offset)); /* as in config.json, for which they may be read */
    sfp__json_end_all(&j);
}

static sfp_status append_point(sfp__log *l, const sfp__log_point *p, sfp_error *err)
{
    TRY(sfp__check_memory(sfp__grow(&l->point, sizeof *l->point, l->count, l->count + 1, &l->capacity), err));
    l->point[l->count++] = *p;
    return SFP_OK;
}

/* Parses a line; *valid is false for one such as the incomplete last line of a killed run. The file is untrusted, so implausibly
 * large numbers become NAN. */
static sfp_status read_point(const char *path, const char *line, size_t n, sfp__log_point *out, bool *valid, sfp_error *err)
{
    OWNED sfp__json_value *o = NULL;
    if (sfp__json_parse(path, line, n, &o, NULL) == SFP_ENOMEM)
        return sfp__fail_nomem(err);
    const sfp__json_value *step = sfp__json_get(o, "step");
    *valid = sfp__json_is(step, SFP__JSON_INTEGER);
    if (!*valid)
        return SFP_OK;
    *out = (sfp__log_point){.step = (uint64_t)sfp__json_integer(step)};
    for (const number *k = numbers; k < numbers + NUMBERS; k++) {
        const sfp__json_value *v = sfp__json_get(o, key_of(k));
        double x = sfp__json_is_number(v) ? sfp__json_number(v) : NAN;
        *(double *)(void *)((char *)out + k->offset) = fabs(x) < 1e15 ? x : NAN;
    }
    return SFP_OK;
}

/* Reads the points up to last_step, or up to the first invalid line. */
static sfp_status read_points(const char *path, uint64_t last_step, sfp__log *l, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    size_t size = 0;
    sfp_status s = sfp__file_read(path, LOG_BYTES_MAX, &bytes, &size, err);
    if (s == SFP_ENOTFOUND || s == SFP_EFORMAT)
        return SFP_OK; /* the file is missing or empty */
    TRY(s);
    for (size_t at = 0; at < size;) {
        const char *line = (const char *)bytes + at, *end = memchr(line, '\n', size - at);
        sfp__log_point p = {0};
        bool valid = false;
        if (end)
            TRY(read_point(path, line, (size_t)(end - line), &p, &valid, err));
        if (!valid || p.step > last_step)
            break;
        TRY(append_point(l, &p, err));
        at += (size_t)(end - line) + 1;
    }
    return SFP_OK;
}

sfp_status sfp__log_open(const char *path, uint64_t last_step, sfp__log *out, sfp_error *err)
{
    OWNED_BY(sfp__log_close) sfp__log l = {.path = sfp__strdup(path), .fd = -1};
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    TRY(sfp__check_memory(l.path, err));
    if (last_step)
        TRY(read_points(path, last_step, &l, err));
    for (size_t i = 0; i < l.count; i++)
        put_point(&t, &l.point[i]);
    TRY(sfp__check_memory(!t.failed, err));
    TRY(sfp__file_write(path, t.s, t.length, err)); /* atomically: a killed run has the old lines or the new ones */
    if ((l.fd = (int)TEMP_FAILURE_RETRY(open(path, O_WRONLY | O_APPEND | O_CLOEXEC))) < 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot open", path);
    *out = l;
    l = (sfp__log){.fd = -1};
    return SFP_OK;
}

sfp_status sfp__log_add(sfp__log *l, const sfp__log_point *p, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    TRY(append_point(l, p, err));
    put_point(&t, p);
    TRY(sfp__check_memory(!t.failed, err));
    return sfp__writer_put(&(sfp__writer){.path = l->path, .fd = l->fd}, t.s, t.length, err);
}

sfp_status sfp__log_sync(const sfp__log *l, sfp_error *err)
{
    return TEMP_FAILURE_RETRY(fdatasync(l->fd)) == 0 ? SFP_OK : sfp__fail_errno(err, SFP_EIO, "%s: cannot sync", l->path);
}

void sfp__log_close(sfp__log *l)
{
    if (l->fd >= 0)
        (void)close(l->fd);
    sfp__free(l->path);
    sfp__free(l->point);
    *l = (sfp__log){.fd = -1};
}

/* -------------------------------------------------------------------- report */

/* Collects the finite values of one number over epochs that do not decrease. */
static sfp__series series_of(const sfp__log *log, size_t offset, double *x, double *y)
{
    sfp__series s = {.x = x, .y = y};
    for (size_t i = 0; i < log->count && s.count < INT_MAX; i++) {
        const sfp__log_point *p = &log->point[i];
        double last = s.count ? x[s.count - 1] : 0;
        if (isfinite(value_of(p, offset)) && p->epoch >= last) {
            x[s.count] = p->epoch;
            y[s.count++] = value_of(p, offset);
        }
    }
    return s;
}

sfp_status sfp__pretrain_report(const char *path, const sfp__log *log, sfp_error *err)
{
    static const struct {
        const char *title;
        bool fraction;
        number of[SFP__PLOT_SERIES];
    } plots[] = {
        {"probe accuracy on test images", true, {{"ncm", offsetof(sfp__log_point, ncm)}, {"knn", offsetof(sfp__log_point, knn)}}},
        {"loss, class probabilities and labels", false, {{"logits", LOSS(SFP__TERM_LOGITS)}, {"label", LOSS(SFP__TERM_LABEL)}}},
        {"loss, tokens", false, {{"class", LOSS(SFP__TERM_CLASS)}, {"patch", LOSS(SFP__TERM_PATCH)}}},
        {"learning rate", false, {{"lr", offsetof(sfp__log_point, lr)}}},
        {"images per second", false, {{"img/s", offsetof(sfp__log_point, images_per_second)}}},
    };
    static const char *const ids[] = {"p1", "p2", "p3", "p4", "p5"}, *const colors[] = {"--blue", "--red"};
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    OWNED void *block = NULL;
    double *x[SFP__PLOT_SERIES], *y[SFP__PLOT_SERIES];
    const sfp__want list[] = {{&x[0], log->count, sizeof(double)},
                              {&y[0], log->count, sizeof(double)},
                              {&x[1], log->count, sizeof(double)},
                              {&y[1], log->count, sizeof(double)}};
    TRY(sfp__block(&block, SFP__LIST(list), err));
    sfp__page_begin(&t, "streamfp pretrain", NULL);
    sfp__text_put(&t, "<h1>Pretraining</h1>\n");
    if (log->count) {
        const sfp__log_point *p = &log->point[log->count - 1];
        sfp__text_printf(&t, "<p>%llu steps, %.2f epochs, %.0f seconds.</p>\n", (unsigned long long)p->step, p->epoch,
                         p->seconds);
    }
    sfp__text_put(&t, "<div class=\"two\">");
    for (size_t i = 0; i < sizeof plots / sizeof *plots; i++) {
        sfp__plot p = {.id = ids[i],
                       .title = plots[i].title,
                       .across = "epochs",
                       .fraction = plots[i].fraction,
                       .single = true,
                       .buckets = 300,
                       .unit = "",
                       .line = NAN};
        for (; p.count < SFP__PLOT_SERIES && plots[i].of[p.count].key; p.count++) {
            p.series[p.count] = series_of(log, plots[i].of[p.count].offset, x[p.count], y[p.count]);
            p.series[p.count].color = colors[p.count];
            p.series[p.count].name = plots[i].of[p.count].key;
        }
        OWNED_BY(sfp__text_done) sfp__text part = {0};
        if (sfp__plot_write(&part, &p)) {
            sfp__text_put(&t, "<section class=\"card\">");
            sfp__text_putn(&t, part.s ? part.s : "", part.length);
            sfp__text_put(&t, "</section>\n");
        }
        t.failed = t.failed || part.failed;
    }
    sfp__text_put(&t, "</div>");
    return sfp__page_write(&t, path, err);
}

/* --------------------------------------------------------------- config.json */

static void put_number(sfp__text *t, const char *key, double x)
{
    if (isfinite(x))
        sfp__text_printf(t, ", \"%s\": %.9g", key, x);
    else
        sfp__text_printf(t, ", \"%s\": null", key);
}

static void put_string(sfp__text *t, const char *key, const char *s)
{
    sfp__text_printf(t, ",\n    \"%s\": ", key);
    if (s)
        sfp__text_json(t, s);
    else
        sfp__text_put(t, "null");
}

static void put_training(sfp__text *t, const sfp__pretrain_options *o, const sfp__pretrain_result *r)
{
    char date[32] = "";
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm))
        (void)strftime(date, sizeof date, "%Y-%m-%d", &tm);
    sfp__text_printf(t, "  \"pretraining\": {\n    \"version\": \"%s\"", sfp_version());
    put_string(t, "date", date);
    put_string(t, "command", o->output.command);
    put_string(t, "data", o->data.train);
    put_string(t, "test", o->data.test);
    put_string(t, "teacher", o->teacher.weights);
    sfp__text_printf(t, ",\n    \"pictures\": %" PRIu64 ", \"steps\": %" PRIu64, r->images, r->steps);
    put_number(t, "epochs", r->epochs);
    put_number(t, "seconds", r->seconds);
    put_number(t, "images_per_second", r->images_per_second);
    sfp__text_printf(t, ",\n    \"finished\": %s, \"parameters\": %zu", r->finished ? "true" : "false", r->parameters);
    put_number(t, "ncm", r->ncm);
    put_number(t, "knn", r->knn);
    for (int i = 0; i < SFP__TERMS; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "loss_%s", sfp__pretrain_term_name(i));
        put_number(t, key, r->loss[i]);
    }
    sfp__text_put(t, "\n  }");
}

sfp_status sfp__pretrain_write_config(const char *path, const sfp__pretrain_options *o, const sfp__vit_config *c,
                                      const sfp__pretrain_result *r, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    sfp__text_put(&t, "{");
    sfp__vit_put_config(c, &t);
    sfp__text_put(&t, ",\n");
    put_training(&t, o, r);
    sfp__text_put(&t, "\n}\n");
    return t.failed ? sfp__fail_nomem(err) : sfp__file_write(path, t.s, t.length, err);
}

/* --------------------------------------------------------- files of an earlier run */

/* Reads config.json into *root, which the caller frees, and returns its object "pretraining"; NULL: there is none. */
static const sfp__json_value *read_pretraining(const char *out, sfp__json_value **root)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/" SFP__PRETRAIN_CONFIG, out);
    (void)sfp__json_read(path, CONFIG_BYTES_MAX, root, NULL);
    return sfp__json_get(*root, "pretraining");
}

/* Returns the step of the checkpoint; -1: it cannot be read. */
static int64_t checkpoint_step(const char *out)
{
    char path[PATH_MAX];
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *f = NULL;
    (void)snprintf(path, sizeof path, "%s/" SFP__PRETRAIN_CHECKPOINT, out);
    if (sfp__safetensors_open(path, &f, NULL) != SFP_OK)
        return -1;
    const char *text = sfp__tensor_file_meta(f, "step");
    return text ? strtoll(text, NULL, 10) : -1;
}

/* Compares the steps, because a finished run may have been resumed with more epochs and interrupted: its config.json then still
 * has an earlier step than its checkpoint. */
static bool is_finished(const char *out)
{
    OWNED sfp__json_value *root = NULL;
    const sfp__json_value *p = read_pretraining(out, &root);
    const sfp__json_value *steps = sfp__json_get(p, "steps");
    return sfp__json_is(sfp__json_get(p, "finished"), SFP__JSON_TRUE) && sfp__json_is(steps, SFP__JSON_INTEGER) &&
           sfp__json_integer(steps) == checkpoint_step(out);
}

static sfp_status has_checkpoint(const char *out, bool *has, sfp_error *err)
{
    static const char *const names[] = {SFP__PRETRAIN_CHECKPOINT, SFP__PRETRAIN_CHECKPOINT_OLD};
    return sfp__directory_has_any(out, SFP__LIST(names), has, err);
}

/* Removes the temporary files of a process that was killed. */
static sfp_status remove_unfinished(const char *out, sfp_error *err)
{
    static const char *const names[] = {SFP__PRETRAIN_CHECKPOINT ".tmp.#", SFP__PRETRAIN_CHECKPOINT_OLD ".tmp",
                                        SFP__PRETRAIN_CONFIG ".tmp.#",     SFP__PRETRAIN_LOG ".tmp.#",
                                        SFP__PRETRAIN_REPORT ".tmp.#",     SFP__PRETRAIN_MODEL ".tmp.#"};
    return sfp__directory_remove_files(out, SFP__LIST(names), 0, NULL, err);
}

/* Refuses a directory in which files would be replaced that are not of pretraining, such as a model with its config.json. A run that was
 * killed before its first checkpoint has left its log. */
static sfp_status check_owner(const char *out, sfp_error *err)
{
    static const char *const names[] = {SFP__PRETRAIN_CONFIG, SFP__PRETRAIN_LOG, SFP__PRETRAIN_REPORT, SFP__PRETRAIN_MODEL};
    char path[PATH_MAX], found[NAME_MAX + 1];
    OWNED sfp__json_value *root = NULL;
    const sfp__json_value *p = read_pretraining(out, &root);
    sfp_error unused;
    (void)snprintf(path, sizeof path, "%s/" SFP__PRETRAIN_LOG, out);
    if (p || sfp__line_log_check(path, "step", &unused) == SFP_OK)
        return SFP_OK;
    TRY(sfp__directory_find(out, SFP__LIST(names), found, sizeof found, err));
    return *found ? sfp__fail(err, SFP_EINVAL, "%s: directory contains %s, which is not of pretraining; choose another --out",
                              out, found)
                  : SFP_OK;
}

sfp_status sfp__pretrain_take_directory(const sfp__pretrain_options *o, int *lock, int *made, sfp_error *err)
{
    bool has;
    if (strlen(o->output.dir) > PATH_MAX - 64) /* 64: space for the longest name of a file in it */
        return sfp__fail(err, SFP_EINVAL, "%.60s...: path has %zu bytes, expected at most %d", o->output.dir,
                         strlen(o->output.dir), PATH_MAX - 64);
    TRY(sfp__directory_take(o->output.dir, made, lock, err));
    TRY(has_checkpoint(o->output.dir, &has, err));
    if (!o->output.resume && has && !is_finished(o->output.dir))
        return sfp__fail(err, SFP_EINVAL,
                         "%s: directory contains an unfinished run; use --resume to continue it, or choose another --out",
                         o->output.dir);
    if (!has)
        TRY(check_owner(o->output.dir, err));
    return remove_unfinished(o->output.dir, err);
}

sfp_status sfp__pretrain_clear_directory(const sfp__pretrain_options *o, const sfp__pretrain_hooks *hooks, sfp_error *err)
{
    static const char *const names[] = {SFP__PRETRAIN_CHECKPOINT_OLD, SFP__PRETRAIN_CHECKPOINT,
                                        SFP__PRETRAIN_CONFIG,         SFP__PRETRAIN_LOG,
                                        SFP__PRETRAIN_REPORT,         SFP__PRETRAIN_MODEL};
    const char *const keep[] = {o->student.init, o->teacher.weights}; /* --resume will read them again */
    char text[PATH_MAX + 64];
    OWNED sfp__json_value *root = NULL;
    const sfp__json_value *p = read_pretraining(o->output.dir, &root);
    bool has;
    TRY(has_checkpoint(o->output.dir, &has, err));
    if (!p && !has)
        return SFP_OK; /* the directory contains no run */
    (void)snprintf(text, sizeof text, "%s: the finished run in this directory is replaced", o->output.dir);
    sfp__pretrain_info(hooks, text);
    return sfp__directory_remove_files(o->output.dir, sizeof names / sizeof *names, names, sizeof keep / sizeof *keep, keep, err);
}
