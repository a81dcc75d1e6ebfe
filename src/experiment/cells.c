/* One cell: its settings, the engine it needs, its run and the numbers of its result. */
#include "base/monotonic.h"
#include "base/rng.h"
#include "experiment/experiment.h"
#include "io/directory.h"
#include "io/file.h"
#include "run/options.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------------------------------------------------- settings */

static bool has_key(const char *entry, const char *key, size_t length)
{
    return strncmp(entry, key, length) == 0 && entry[length] == '=';
}

sfp_status sfp__setting_put(sfp__strings *list, const char *entry, size_t length, sfp_error *err)
{
    OWNED char *copy = sfp__malloc(length + 1);
    TRY(sfp__check_memory(copy, err));
    memcpy(copy, entry, length);
    copy[length] = '\0';
    size_t key = strcspn(copy, "=");
    for (int i = 0; i < list->count; i++) {
        if (!has_key(list->s[i], copy, key))
            continue;
        sfp__free(list->s[i]);
        list->s[i] = TAKE(copy);
        return SFP_OK;
    }
    return sfp__strings_add(list, copy, err);
}

sfp_status sfp__settings_add(sfp__strings *list, const char *settings, sfp_error *err)
{
    const char *s = settings ? settings : "";
    while (*(s += strspn(s, " "))) {
        size_t n = strcspn(s, " ");
        TRY(sfp__setting_put(list, s, n, err));
        s += n;
    }
    return SFP_OK;
}

sfp_status sfp__setting_print(sfp__strings *list, sfp_error *err, const char *fmt, ...)
{
    char entry[PATH_MAX + 64];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(entry, sizeof entry, fmt, args);
    va_end(args);
    if (n < 0 || n >= (int)sizeof entry)
        return sfp__fail(err, SFP_ELIMIT, "a setting is longer than %d bytes", PATH_MAX);
    return sfp__setting_put(list, entry, (size_t)n, err);
}

const char *sfp__settings_value(const sfp__strings *list, const char *key)
{
    size_t n = strlen(key);
    for (int i = 0; i < list->count; i++)
        if (has_key(list->s[i], key, n))
            return list->s[i] + n + 1;
    return NULL;
}

void sfp__settings_remove(sfp__strings *list, const char *key)
{
    int kept = 0;
    size_t n = strlen(key);
    for (int i = 0; i < list->count; i++) {
        if (has_key(list->s[i], key, n))
            sfp__free(list->s[i]);
        else
            list->s[kept++] = list->s[i];
    }
    list->count = kept;
}

sfp_status sfp__lab_base_settings(const sfp__lab *lab, const sfp__experiment *e, sfp__strings *out, sfp_error *err)
{
    TRY(sfp__settings_add(out, e->settings, err));
    for (int i = 0; i < lab->opt.settings->count; i++)
        TRY(sfp__setting_put(out, lab->opt.settings->s[i], strlen(lab->opt.settings->s[i]), err));
    return SFP_OK;
}

sfp_status sfp__cell_settings(const sfp__lab *lab, const sfp__cell *cell, sfp__strings *out, sfp_error *err)
{
    const sfp__experiment *e = &lab->experiments[cell->experiment];
    const sfp__variant *row = &e->rows[cell->row], *column = &e->columns[cell->column];
    TRY(sfp__lab_base_settings(lab, e, out, err));
    TRY(sfp__settings_add(out, column->settings, err));
    if (!row->closed)
        TRY(sfp__settings_add(out, column->learner, err));
    TRY(sfp__settings_add(out, row->settings, err));
    TRY(sfp__setting_print(out, err, "seed=%d", lab->opt.first_seed + cell->repetition));
    if (lab->opt.orders > 0)
        TRY(sfp__setting_print(out, err, "order=authors:%d", cell->repetition % lab->opt.orders + 1));
    return SFP_OK;
}

/* --------------------------------------------------------------------------------------------------------------- engine */

static int whole_number(const char *text)
{
    return text ? (int)strtol(text, NULL, 10) : 0;
}

/* The row of the setting of "key=value"; NULL: none. */
static const sfp__opt *row_of(const char *entry)
{
    char key[SFP__KEY_LENGTH_MAX + 1];
    (void)snprintf(key, sizeof key, "%.*s", (int)strcspn(entry, "="), entry);
    return sfp__opt_find(sfp__run_table, sfp__run_table_count, key);
}

static bool is_engine_key(const char *entry)
{
    const sfp__opt *o = row_of(entry);
    return o && o->scope == SFP__SCOPE_ENGINE;
}

/* with_engine false: without settings that the engine has. */
static sfp_status set_all(sfp_settings *s, const sfp__strings *list, bool with_engine, sfp_error *err)
{
    for (int i = 0; i < list->count; i++) {
        char key[SFP_KEY_MAX * 2];
        size_t n = strcspn(list->s[i], "=");
        if (!with_engine && is_engine_key(list->s[i]))
            continue;
        if (n >= sizeof key || list->s[i][n] == '\0')
            return sfp__fail(err, SFP_EINVAL, "setting '%s' is not KEY=VALUE", list->s[i]);
        memcpy(key, list->s[i], n);
        key[n] = '\0';
        TRY(sfp_settings_set(s, key, list->s[i] + n + 1, err));
    }
    return SFP_OK;
}

static bool is_auto(const char *size)
{
    return size && strcmp(size, "auto") == 0;
}

/* Features have no input size and need no cache, and the engine depends on their number. */
static bool is_features(const sfp__strings *settings)
{
    const char *data = sfp__settings_value(settings, "data");
    return data && strncmp(data, "features:", strlen("features:")) == 0;
}

/* The input size of a row is that of the backbone, also if its preset would choose one: it must not depend on the machine. */
static sfp_status open_engine(const sfp__strings *settings, sfp_engine **out, sfp_error *err)
{
    sfp_settings *s = NULL;
    TRY(sfp_settings_create(&s, err));
    sfp_status status = set_all(s, settings, true, err);
    if (!status && !sfp__settings_value(settings, "img-size") && !is_features(settings))
        status = sfp_settings_set(s, "img-size", "0", err);
    if (!status)
        status = sfp_engine_open_for(s, NULL, NULL, out, err);
    sfp_settings_free(s);
    return status;
}

/* Opens the engine for these settings, unless it is open. */
static sfp_status use_engine(sfp__lab *lab, const sfp__strings *settings, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text key = {0};
    /* with an input size that is chosen, and with features, the engine depends on other settings, too */
    const bool all = is_auto(sfp__settings_value(settings, "img-size")) || is_features(settings);
    for (int i = 0; i < settings->count; i++)
        if (all || is_engine_key(settings->s[i]))
            sfp__text_printf(&key, "%s\n", settings->s[i]);
    sfp__text_put(&key, "");
    TRY(sfp__check_memory(!key.failed, err));
    if (lab->engine && strcmp(lab->engine_key.s, key.s) == 0)
        return SFP_OK;
    sfp_engine_close(lab->engine);
    lab->engine = NULL;
    sfp__text_done(&lab->engine_key);
    TRY(open_engine(settings, &lab->engine, err));
    lab->engine_key = TAKE(key);
    return SFP_OK;
}

sfp_status sfp__settings_create(const sfp__strings *list, sfp_settings **out, sfp_error *err)
{
    sfp_settings *s = NULL;
    TRY(sfp_settings_create(&s, err));
    sfp_status status = set_all(s, list, true, err);
    if (status)
        sfp_settings_free(s);
    else
        *out = s;
    return status;
}

sfp_status sfp__settings_effective(const sfp__strings *list, const char *key, char *out, size_t size, sfp_error *err)
{
    sfp_settings *s = NULL;
    TRY(sfp__settings_create(list, &s, err));
    const char *value = sfp_settings_get(s, key);
    sfp_status status = sfp__path_print(out, size, err, "%s", value ? value : "");
    sfp_settings_free(s);
    return status;
}

sfp_status sfp__cell_choose_size(sfp__lab *lab, double load, sfp__strings *settings, sfp_error *err)
{
    const char *backbone = sfp__settings_value(settings, "backbone");
    sfp_engine_options o = SFP_ENGINE_OPTIONS_INIT;
    sfp_engine *e = NULL;
    char asked[SFP_KEY_MAX];
    TRY(sfp__settings_effective(settings, "img-size", asked, sizeof asked, err));
    if (!is_auto(asked)) /* neither the user nor the preset of the row lets the size be chosen */
        return SFP_OK;
    sfp__settings_remove(settings, "img-size");
    if (!(load > 0) || is_features(settings))
        return SFP_OK;
    TRY(use_engine(lab, settings, err));
    o.threads = 1; /* nothing is computed */
    o.image_size = SFP_IMAGE_SIZE_AUTO;
    o.rate = load;
    o.query_seconds = 1;
    TRY(sfp_engine_open(backbone ? backbone : "builtin", &o, &e, err));
    int size = sfp_engine_image_size(e);
    sfp_engine_close(e);
    return size == sfp_engine_image_size(lab->engine) ? SFP_OK : sfp__setting_print(settings, err, "img-size=%d", size);
}

/* ------------------------------------------------------------------------------------------------------------------ runs */

static void on_progress(void *ctx, const sfp_run_progress *p)
{
    const sfp__lab *lab = ctx;
    (void)p;
    if (lab->current && sfp__lab_cancelled(lab))
        sfp_run_cancel(lab->current);
}

/* Messages of single runs would hide those of the experiment; warnings are passed on. */
static void on_log(void *ctx, sfp_log_level level, const char *message)
{
    if (level == SFP_LOG_WARNING)
        sfp__lab_message(ctx, level, "%s", message);
}

sfp_status sfp__cell_settings_check(const sfp__strings *settings, sfp_error *err)
{
    sfp_settings *s = NULL;
    TRY(sfp__settings_create(settings, &s, err));
    sfp_settings_free(s);
    return SFP_OK;
}

static sfp_status open_once(sfp__lab *lab, const sfp__strings *settings, sfp_run **out, sfp_error *err)
{
    sfp_settings *s = NULL;
    sfp_run_options o = SFP_RUN_OPTIONS_INIT;
    o.progress = on_progress;
    o.log = on_log;
    o.ctx = lab;
    TRY(sfp_settings_create(&s, err));
    sfp_status status = set_all(s, settings, false, err);
    if (!status)
        status = sfp_run_open(lab->engine, s, &o, out, err);
    sfp_settings_free(s);
    return status;
}

/* Sets the values as sfp_settings_set does. */
static sfp_status read_args(const sfp__strings *settings, sfp__args *a, sfp_error *err)
{
    for (int i = 0; i < settings->count; i++) {
        char key[SFP_KEY_MAX * 2];
        size_t n = strcspn(settings->s[i], "=");
        (void)snprintf(key, sizeof key, "%.*s", (int)n, settings->s[i]);
        TRY(sfp__run_set(a, key, settings->s[i] + n + 1, SFP__RANK_COMMAND_LINE, key, err));
    }
    return SFP_OK;
}

/* A setting of the user applies to all methods that have it: a buffer size, for example, not to a row without a buffer. Returns whether
 * `key` is such a setting, and another one, which is not the user's, takes away its effect. */
static bool is_of_other_methods(const sfp__lab *lab, const sfp__strings *settings, const char *key)
{
    const char *given = sfp__settings_value(lab->opt.settings, key), *value = sfp__settings_value(settings, key);
    char other[SFP__KEY_LENGTH_MAX + 1];
    sfp__args a = {0};
    if (!given || !value || strcmp(given, value) != 0)
        return false;
    bool found = sfp__run_args_init(&a, NULL) == SFP_OK && read_args(settings, &a, NULL) == SFP_OK &&
                 sfp__run_has_no_effect(&a, key, other, sizeof other) && sfp__settings_value(settings, other) &&
                 !sfp__settings_value(lab->opt.settings, other);
    sfp__args_done(&a);
    return found;
}

/* Opens a run, without the settings of the user that are of other methods. */
static sfp_status open_with_effective(sfp__lab *lab, sfp__strings *settings, sfp_run **out, sfp_error *err)
{
    sfp_error why = {0};
    sfp_status status;
    while ((status = open_once(lab, settings, out, &why)) == SFP_EINVAL && is_of_other_methods(lab, settings, why.key))
        sfp__settings_remove(settings, why.key);
    if (status && err)
        *err = why;
    return status;
}

sfp_status sfp__lab_open_run(sfp__lab *lab, const sfp__strings *settings, sfp_run **out, sfp_error *err)
{
    OWNED_BY(sfp__strings_done) sfp__strings own = {0};
    TRY(use_engine(lab, settings, err));
    for (int i = 0; i < settings->count; i++)
        TRY(sfp__strings_add(&own, settings->s[i], err));
    if (!sfp__settings_value(settings, "resume"))
        return open_with_effective(lab, &own, out, err);

    /* A run that resumes does not check which settings have an effect: a new one does, as when the cell was begun. */
    sfp__settings_remove(&own, "resume");
    sfp__settings_remove(&own, "out");
    TRY(open_with_effective(lab, &own, out, err));
    sfp_run_close(*out);
    *out = NULL;
    TRY(sfp__setting_print(&own, err, "out=%s", sfp__settings_value(settings, "out")));
    TRY(sfp__setting_print(&own, err, "resume=on"));
    return open_once(lab, &own, out, err);
}

/* -------------------------------------------------------------------------------------------------------------- results */

static int compare_texts(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

bool sfp__setting_is_neutral(const char *entry)
{
    const sfp__opt *o = row_of(entry);
    return o && (o->changes == SFP__CHANGES_COST || o->changes == SFP__CHANGES_NOTHING);
}

void sfp__settings_key(const sfp__strings *settings, char key[17])
{
    uint64_t h = SFP__HASH_START;
    qsort(settings->s, (size_t)settings->count, sizeof *settings->s, compare_texts);
    for (int i = 0; i < settings->count; i++)
        if (!sfp__setting_is_neutral(settings->s[i]))
            h = sfp__hash(h, settings->s[i], strlen(settings->s[i]));
    (void)snprintf(key, 17, "%016" PRIx64, h);
}

static double metric_value(const sfp__metric *m, const sfp_result *r, const sfp__cell *cell, const sfp__cost *cost, int batch)
{
    if (strcmp(m->key, "cost") == 0)
        return 1e3 * cell->cost;
    if (strcmp(m->key, "throughput") == 0)
        return batch / cell->cost;
    if (strcmp(m->key, "runtime") == 0)
        return cost->batches ? cell->cost * (double)cost->batches
                             : sfp_result_number(r, "seconds.select") + sfp_result_number(r, "seconds.train") +
                                   sfp_result_number(r, "seconds.buffer");
    return r ? sfp_result_number(r, m->key) : NAN;
}

static void read_values(const sfp__lab *lab, sfp__cell *cell, const sfp_result *r, const sfp__cost *cost, int batch)
{
    int n = 0;
    for (const char *s = lab->experiments[cell->experiment].metrics; *s && n < SFP__METRICS_MAX; n++) {
        size_t length = strcspn(s, ",");
        const sfp__metric *m = sfp__metric_find(s, length);
        cell->value[n] = m ? metric_value(m, r, cell, cost, batch) : NAN;
        s += length + (s[length] == ',');
    }
    cell->state = r && sfp_result_number(r, "starved_tasks") > 0 ? SFP__CELL_STARVED : SFP__CELL_DONE;
}

/* Reads the result of a cell that was run before. *found false: there is none, or the run has not ended. */
static sfp_status read_result(const char *directory, sfp_result **out, bool *found, sfp_error *err)
{
    char path[PATH_MAX];
    sfp_result *r = NULL;
    TRY(sfp__path_print(path, sizeof path, err, "%s/result.json", directory));
    TRY(sfp__directory_has(directory, "result.json", found, err));
    if (!*found)
        return SFP_OK;
    TRY(sfp_result_read(path, &r, err));
    *found = sfp_result_number(r, "finished") != 0;
    if (*found)
        *out = r;
    else
        sfp_result_free(r);
    return SFP_OK;
}

/* ----------------------------------------------------------------------------------------------------------- directories */

#define INPUTS "inputs"

/* Was the run in this directory, finished or not, made with the inputs of the cell? */
static sfp_status has_inputs(const char *directory, const sfp__cell *cell, bool *out, sfp_error *err)
{
    char path[PATH_MAX];
    OWNED uint8_t *bytes = NULL;
    size_t size = 0;
    TRY(sfp__path_print(path, sizeof path, err, "%s/" INPUTS, directory));
    sfp_status status = sfp__file_read(path, SFP__INPUTS_MAX, &bytes, &size, err);
    *out = !status && size == strlen(cell->inputs) + 1 && memcmp(bytes, cell->inputs, size - 1) == 0;
    return sfp__is_machine_error(status) ? status : SFP_OK; /* else there is no such file, or it is another one */
}

static sfp_status write_inputs(const char *directory, const sfp__cell *cell, sfp_error *err)
{
    char path[PATH_MAX], text[SFP__INPUTS_MAX + 1];
    TRY(sfp__path_print(path, sizeof path, err, "%s/" INPUTS, directory));
    int n = snprintf(text, sizeof text, "%s\n", cell->inputs);
    return sfp__file_write(path, text, (size_t)n, err);
}

bool sfp__cell_is_done(const sfp__lab *lab, const sfp__cell *cell)
{
    char directory[PATH_MAX];
    bool has = false, same = false;
    return !sfp__path_print(directory, sizeof directory, NULL, "%s/cells/%s", lab->opt.out, cell->key) &&
           !sfp__directory_has(directory, "result.json", &has, NULL) && has && !has_inputs(directory, cell, &same, NULL) && same;
}

double sfp__cell_run_seconds(const sfp__lab *lab, const sfp__cell *cell)
{
    char directory[PATH_MAX];
    sfp_result *r = NULL;
    bool found = false;
    if (sfp__path_print(directory, sizeof directory, NULL, "%s/cells/%s", lab->opt.out, cell->key) ||
        read_result(directory, &r, &found, NULL) || !found)
        return NAN;
    double seconds = sfp_result_number(r, "seconds.total");
    sfp_result_free(r);
    return seconds;
}

/* Removes the files of a run with other inputs, before the inputs of the new run are written. */
static sfp_status remove_run(sfp__lab *lab, const char *directory, sfp_error *err)
{
    static const char *const names[] = {"result.json", "checkpoint"};
    bool has;
    TRY(sfp__directory_has_any(directory, SFP__LIST(names), &has, err));
    if (has)
        sfp__lab_report_other_inputs(lab);
    return sfp__run_remove_files(directory, SFP__FILES_ALL, NULL, err);
}

static sfp_status finish_run(sfp__lab *lab, const sfp__cell *cell, const char *directory, const sfp__strings *settings,
                             sfp_error *err)
{
    sfp_run *run = NULL;
    TRY(sfp__lab_open_run(lab, settings, &run, err));
    sfp_status status = write_inputs(directory, cell, err);
    lab->current = run;
    if (!status)
        status = sfp_run_finish(run, err);
    lab->current = NULL;
    if (!status && sfp_result_number(sfp_run_result(run), "finished") == 0)
        status = sfp__fail(err, SFP_ECANCELLED, "cancelled; the same command continues the experiment");
    sfp_run_close(run);
    return status;
}

const char *sfp__cell_name(const sfp__lab *lab, const sfp__cell *cell, char *buf, size_t size)
{
    const sfp__experiment *e = &lab->experiments[cell->experiment];
    const char *column = e->columns[cell->column].name;
    (void)snprintf(buf, size, "%s, %s%s%s", e->name, e->rows[cell->row].name, *column ? ", " : "", column);
    return buf;
}

/* Removes what only an unfinished run needs: with hundreds of cells it would fill a disk. A process that was killed after the result
 * was written has left it. */
static sfp_status remove_intermediate(const char *directory, sfp_error *err)
{
    static const char *const names[] = {INPUTS ".tmp.#"};
    TRY(sfp__run_remove_files(directory, SFP__FILES_CHECKPOINT | SFP__FILES_TASK_STATE | SFP__FILES_UNFINISHED, NULL, err));
    return sfp__directory_remove_files(directory, SFP__LIST(names), 0, NULL, err);
}

/* Runs the cell in its directory, if that has no result with the same inputs yet. */
static sfp_status run_in_directory(sfp__lab *lab, sfp__cell *cell, sfp__strings *settings, sfp_result **out, sfp_error *err)
{
    char directory[PATH_MAX];
    bool begun, exists, found = false;
    TRY(sfp__path_print(directory, sizeof directory, err, "%s/cells/%s", lab->opt.out, cell->key));
    TRY(has_inputs(directory, cell, &begun, err));
    if (begun)
        TRY(read_result(directory, out, &found, err));
    if (found)
        return remove_intermediate(directory, err);
    TRY(sfp__setting_print(settings, err, "out=%s", directory));
    if (begun) /* a run was stopped in it */
        TRY(sfp__setting_put(settings, "resume=on", 9, err));
    TRY(sfp__directory_has(directory, ".", &exists, err));
    if (exists && !begun)
        TRY(remove_run(lab, directory, err));
    if (lab->opt.cache && !is_features(settings) && !sfp__settings_value(settings, "cache"))
        TRY(sfp__setting_print(settings, err, "cache=%s/cache", lab->opt.out));
    double from = sfp__monotonic_seconds();
    TRY(finish_run(lab, cell, directory, settings, err));
    cell->seconds = sfp__monotonic_seconds() - from;
    TRY(read_result(directory, out, &found, err));
    TRY(remove_intermediate(directory, err));
    return found ? SFP_OK : sfp__fail(err, SFP_EIO, "%s: the run left no result", directory);
}

sfp_status sfp__cell_run(sfp__lab *lab, sfp__cell *cell, sfp_error *err)
{
    OWNED_BY(sfp__strings_done) sfp__strings settings = {0};
    OWNED_BY(sfp__cost_done) sfp__cost cost = {0};
    char name[256];
    sfp_result *r = NULL;
    TRY(sfp__cell_settings(lab, cell, &settings, err));
    sfp_status status = sfp__cell_clock(lab, cell, &settings, &cost, err);
    const char *batch = sfp__settings_value(&settings, "batch");
    if (!status && !lab->experiments[cell->experiment].cost_only)
        status = run_in_directory(lab, cell, &settings, &r, err);
    if (!status)
        read_values(lab, cell, r, &cost, batch ? whole_number(batch) : 20);
    sfp_result_free(r);
    return !status || status == SFP_ECANCELLED
               ? status
               : sfp__fail_prefix(err, status, "%s", sfp__cell_name(lab, cell, name, sizeof name));
}
