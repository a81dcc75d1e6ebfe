/* The output directory of a pretraining run: log.jsonl, report.html, config.json, and the files of an earlier run. */
#include "pretrain/pretrain_internal.h"

#include "io/directory.h"
#include "io/json_read.h"
#include "io/json_write.h"
#include "io/tensor/metadata.h"
#include "report/html.h"

#include <limits.h>
#include <math.h>
#include <string.h>
#include <time.h>

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
    sfp__json_uint(&j, SFP__PRETRAIN_LOG_KEY, p->step);
    for (const number *n = numbers; n < numbers + NUMBERS; n++)
        if (isfinite(value_of(p, n->offset)))
            sfp__json_printf(&j, key_of(n), "%.9g", value_of(p, n->offset)); /* as in config.json, for which they may be read */
    sfp__json_end_all(&j);
}

sfp_status sfp__pretrain_log(sfp__line_log *log, const sfp__log_point *p, sfp_error *err)
{
    put_point(sfp__line_log_begin(log), p);
    TRY(sfp__line_log_add(log, err));
    return sfp__line_log_flush(log, err);
}

/* -------------------------------------------------------------------- report */

typedef struct points {
    sfp__log_point *point; /* (count) */
    size_t count, capacity;
} points;

static void points_done(points *l)
{
    sfp__free(l->point);
}

/* Reads the points up to the first invalid line. The file is untrusted, so implausibly large numbers become NAN. */
static sfp_status read_points(const char *path, points *l, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    size_t size = 0;
    sfp_status s = sfp__file_read(path, LOG_BYTES_MAX, &bytes, &size, err);
    if (s == SFP_ENOTFOUND || s == SFP_EFORMAT)
        return SFP_OK; /* the file is missing or empty */
    TRY(s);
    for (const char *line = (const char *)bytes, *all = line + size, *end; line < all; line = end + 1) {
        OWNED sfp__json_value *o = NULL;
        if (!(end = memchr(line, '\n', (size_t)(all - line))))
            break;
        if (sfp__json_parse(path, line, (size_t)(end - line), &o, NULL) == SFP_ENOMEM)
            return sfp__fail_nomem(err);
        const sfp__json_value *step = sfp__json_get(o, SFP__PRETRAIN_LOG_KEY);
        if (!sfp__json_is(step, SFP__JSON_INTEGER))
            break;
        TRY(sfp__check_memory(sfp__grow(&l->point, sizeof *l->point, l->count, l->count + 1, &l->capacity), err));
        sfp__log_point *p = &l->point[l->count++];
        *p = (sfp__log_point){.step = (uint64_t)sfp__json_integer(step)};
        for (const number *k = numbers; k < numbers + NUMBERS; k++) {
            const sfp__json_value *v = sfp__json_get(o, key_of(k));
            double x = sfp__json_is_number(v) ? sfp__json_number(v) : NAN;
            *(double *)(void *)((char *)p + k->offset) = fabs(x) < 1e15 ? x : NAN;
        }
    }
    return SFP_OK;
}

/* Collects the finite values of one number over epochs that do not decrease. */
static sfp__series series_of(const points *log, size_t offset, double *x, double *y)
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

sfp_status sfp__pretrain_report(const char *dir, sfp_error *err)
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
    OWNED_BY(points_done) points log = {0};
    OWNED void *block = NULL;
    char path[PATH_MAX];
    TRY(sfp__path_print(path, sizeof path, err, "%s/" SFP__PRETRAIN_LOG, dir));
    TRY(read_points(path, &log, err));
    double *x[SFP__PLOT_SERIES], *y[SFP__PLOT_SERIES];
    const sfp__want list[] = {{&x[0], log.count, sizeof(double)},
                              {&y[0], log.count, sizeof(double)},
                              {&x[1], log.count, sizeof(double)},
                              {&y[1], log.count, sizeof(double)}};
    TRY(sfp__block(&block, SFP__LIST(list), err));
    sfp__page_begin(&t, "streamfp pretrain", NULL);
    sfp__text_put(&t, "<h1>Pretraining</h1>\n");
    if (log.count) {
        const sfp__log_point *p = &log.point[log.count - 1];
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
            p.series[p.count] = series_of(&log, plots[i].of[p.count].offset, x[p.count], y[p.count]);
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
    TRY(sfp__path_print(path, sizeof path, err, "%s/" SFP__PRETRAIN_REPORT, dir));
    return sfp__page_write(&t, path, err);
}

/* --------------------------------------------------------------- config.json */

sfp_status sfp__pretrain_write_config(const char *path, const sfp__pretrain_options *o, const char *command,
                                      const sfp__vit_config *c, const sfp_pretrain_result *r, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    sfp__json j = {.text = &t};
    char date[32] = "", key[32];
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm))
        (void)strftime(date, sizeof date, "%Y-%m-%d", &tm);
    sfp__text_put(&t, "{");
    sfp__vit_put_config(c, &t);
    sfp__text_put(&t, ",\n\"pretraining\": ");
    sfp__json_object(&j, NULL);
    sfp__json_string(&j, "version", sfp_version());
    sfp__json_string(&j, "date", date);
    sfp__json_string(&j, "command", command);
    sfp__json_string(&j, "data", o->data.train);
    sfp__json_string(&j, "test", o->data.test);
    sfp__json_string(&j, "teacher", o->teacher.weights);
    sfp__json_uint(&j, "pictures", r->images);
    sfp__json_uint(&j, "steps", r->steps);
    sfp__json_real(&j, "epochs", r->epochs);
    sfp__json_real(&j, "seconds", r->seconds);
    sfp__json_real(&j, "images_per_second", r->images_per_second);
    sfp__json_bool(&j, "finished", r->finished);
    sfp__json_uint(&j, "parameters", r->parameters);
    sfp__json_real(&j, "ncm", r->ncm);
    sfp__json_real(&j, "knn", r->knn);
    for (int i = 0; i < SFP__TERMS; i++) {
        (void)snprintf(key, sizeof key, "loss_%s", sfp__pretrain_term_name(i));
        sfp__json_real(&j, key, r->loss[i]);
    }
    sfp__json_end(&j);
    sfp__text_put(&t, "}\n");
    return t.failed ? sfp__fail_nomem(err) : sfp__file_write(path, t.s, t.length, err);
}

/* --------------------------------------------------------- files of an earlier run */

static const char *const checkpoints[] = {SFP__PRETRAIN_CHECKPOINT, SFP__PRETRAIN_CHECKPOINT ".old"};

/* Whether the checkpoint is that of this step. */
static bool has_step(const char *out, int64_t step)
{
    char path[PATH_MAX];
    long long found = -1;
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *f = NULL;
    (void)snprintf(path, sizeof path, "%s/" SFP__PRETRAIN_CHECKPOINT, out);
    return sfp__safetensors_open(path, &f, NULL) == SFP_OK &&
           sfp__metadata_int(f, "step", 0, INT64_MAX, &found, NULL) == SFP_OK && found == step;
}

sfp_status sfp__pretrain_take_directory(const sfp__pretrain_options *o, int *lock, int *made, bool *has_run, sfp_error *err)
{
    static const char *const outputs[] = {SFP__PRETRAIN_CONFIG, SFP__PRETRAIN_LOG, SFP__PRETRAIN_REPORT, SFP__PRETRAIN_MODEL};
    static const char *const unfinished[] = {SFP__PRETRAIN_CHECKPOINT ".tmp.#", SFP__PRETRAIN_CHECKPOINT ".old.tmp",
                                             SFP__PRETRAIN_CONFIG ".tmp.#",     SFP__PRETRAIN_LOG ".tmp.#",
                                             SFP__PRETRAIN_REPORT ".tmp.#",     SFP__PRETRAIN_MODEL ".tmp.#"};
    const char *out = o->output.dir;
    char path[PATH_MAX], found[NAME_MAX + 1];
    OWNED sfp__json_value *root = NULL;
    sfp_error unused;
    bool has;
    if (strlen(out) > PATH_MAX - 64) /* 64: space for the longest name of a file in it */
        return sfp__fail(err, SFP_EINVAL, "%.60s...: path has %zu bytes, expected at most %d", out, strlen(out), PATH_MAX - 64);
    TRY(sfp__directory_take(out, made, lock, err));
    TRY(sfp__directory_has_any(out, SFP__LIST(checkpoints), &has, err));
    (void)snprintf(path, sizeof path, "%s/" SFP__PRETRAIN_CONFIG, out);
    (void)sfp__json_read(path, CONFIG_BYTES_MAX, &root, NULL);
    const sfp__json_value *run = sfp__json_get(root, "pretraining"), *steps = sfp__json_get(run, "steps");
    /* A finished run may have been resumed with more epochs and interrupted: its config.json then has an earlier step than its
     * checkpoint. */
    bool finished = sfp__json_is(sfp__json_get(run, "finished"), SFP__JSON_TRUE) && sfp__json_is(steps, SFP__JSON_INTEGER) &&
                    has_step(out, sfp__json_integer(steps));
    if (!o->output.resume && has && !finished)
        return sfp__fail(err, SFP_EINVAL,
                         "%s: directory contains an unfinished run; use --resume to continue it, or choose another --out", out);
    /* Files that are not of pretraining must not be replaced, such as a model with its config.json. A run that was killed before its
     * first checkpoint has left its log. */
    (void)snprintf(path, sizeof path, "%s/" SFP__PRETRAIN_LOG, out);
    if (!has && !run && sfp__line_log_check(path, SFP__PRETRAIN_LOG_KEY, &unused) != SFP_OK) {
        TRY(sfp__directory_find(out, SFP__LIST(outputs), found, sizeof found, err));
        if (*found)
            return sfp__fail(err, SFP_EINVAL, "%s: directory contains %s, which is not of pretraining; choose another --out", out,
                             found);
    }
    *has_run = has || run;
    return sfp__directory_remove_files(out, SFP__LIST(unfinished), 0, NULL, err);
}

sfp_status sfp__pretrain_clear_directory(const sfp__pretrain_options *o, sfp_error *err)
{
    static const char *const names[] = {SFP__PRETRAIN_CHECKPOINT ".old",
                                        SFP__PRETRAIN_CHECKPOINT,
                                        SFP__PRETRAIN_CONFIG,
                                        SFP__PRETRAIN_LOG,
                                        SFP__PRETRAIN_REPORT,
                                        SFP__PRETRAIN_MODEL};
    const char *const keep[] = {o->student.init, o->teacher.weights}; /* --resume will read them again */
    return sfp__directory_remove_files(o->output.dir, SFP__LIST(names), SFP__LIST(keep), err);
}
