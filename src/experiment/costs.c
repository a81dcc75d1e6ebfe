/* Processing times and arrival rates. A method is measured once, on the first task of its stream, as clock paper does; all of its
 * cells use this time, so that they are repeatable and can be shared between experiments. */
#include "experiment/experiment.h"
#include "io/directory.h"
#include "io/file.h"
#include "io/lines.h"
#include "run/options.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PASSES_OF_A_TIMESTAMP = 50, /* forward passes that take as long as one timestamp of StreamFP with a batch of 20 */
    DRY_RUN_BATCHES = 3         /* maximum that a dry run measures */
};

void sfp__cost_done(sfp__cost *c)
{
    sfp__free(c->task_batches);
    *c = (sfp__cost){0};
}

/* ------------------------------------------------------------------------------------------------------------ the files */

static sfp_status parse_tasks(const char *text, sfp__cost *out, sfp_error *err)
{
    size_t capacity = 0;
    char *end;
    for (const char *s = text; *s; s = end) {
        long long n = strtoll(s, &end, 10);
        if (end == s || n < 0 || out->tasks >= SFP__TASKS_LISTED_MAX)
            return SFP_OK;
        TRY(sfp__check_memory(
            sfp__grow(&out->task_batches, sizeof *out->task_batches, (size_t)out->tasks, (size_t)out->tasks + 1, &capacity),
            err));
        out->task_batches[out->tasks++] = n;
        out->batches += n;
    }
    return SFP_OK;
}

/* Reads a file that write_cost wrote. SFP_ENOTFOUND: there is none. */
static sfp_status read_cost(sfp__cost *out, sfp_error *err)
{
    static const char stream[] = "# samples ", tasks[] = "# batches per task ", inputs[] = SFP__INPUTS_LINE;
    OWNED_BY(sfp__lines_done) sfp__lines lines = {0};
    TRY(sfp__lines_open(out->path, "seconds per batch", &lines, err));
    for (char *line;;) {
        TRY(sfp__lines_next(&lines, &line, err));
        if (!line)
            break;
        if (strncmp(line, stream, strlen(stream)) == 0)
            out->samples = strtoll(line + strlen(stream), NULL, 10);
        else if (strncmp(line, inputs, strlen(inputs)) == 0 && !*out->inputs)
            (void)snprintf(out->inputs, sizeof out->inputs, "%s", line + strlen(inputs));
        else if (strncmp(line, tasks, strlen(tasks)) == 0)
            TRY(parse_tasks(line + strlen(tasks), out, err));
        else if (line[0] != '#')
            out->seconds = strtod(line, NULL);
    }
    if (!(out->seconds > 0) || !isfinite(out->seconds) || out->samples <= 0 || out->batches <= 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: not a file of processing times; remove it to measure again", out->path);
    return SFP_OK;
}

static sfp_status write_cost(const sfp__cost *c, const char *name, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    sfp__text_printf(&t, "# processing time in seconds per batch: %s\n" SFP__INPUTS_LINE "%s\n", name, c->inputs);
    sfp__text_printf(&t, "# samples %" PRId64 "\n# batches per task", c->samples);
    for (int i = 0; i < c->tasks; i++)
        sfp__text_printf(&t, " %" PRId64, c->task_batches[i]);
    sfp__text_printf(&t, "\n%.9g\n", c->seconds);
    TRY(sfp__check_memory(!t.failed, err));
    return sfp__file_write(c->path, t.s, t.length, err);
}

/* ------------------------------------------------------------------------------------------------------------ measuring */

static sfp_status copy_for_cost(const sfp__strings *settings, sfp__strings *out, sfp_error *err)
{
    for (int i = 0; i < settings->count; i++)
        TRY(sfp__strings_add(out, settings->s[i], err));
    for (const sfp__opt *o = sfp__run_table; o < sfp__run_table + sfp__run_table_count; o++)
        if (o->changes == SFP__CHANGES_RESULT || o->changes == SFP__CHANGES_NOTHING)
            sfp__settings_remove(out, o->name);
    const char *size = sfp__settings_value(out, "img-size");
    if (size && strcmp(size, "auto") == 0) /* the load of a column is that of the backbone's own size */
        sfp__settings_remove(out, "img-size");
    return SFP_OK;
}

static sfp_status read_stream(const sfp_run *run, sfp__cost *out, sfp_error *err)
{
    int tasks = sfp_result_tasks(sfp_run_result(run));
    out->batches = sfp_run_batches(run, -1, &out->samples);
    if (out->batches <= 0)
        return sfp__fail(err, SFP_EINVAL, "a live stream has no end, expected a dataset");
    TRY(sfp__alloc(&out->task_batches, (size_t)tasks, sizeof *out->task_batches, err));
    out->tasks = tasks;
    for (int t = 0; t < tasks; t++)
        out->task_batches[t] = sfp_run_batches(run, t, NULL);
    return SFP_OK;
}

static sfp_status measure(sfp__lab *lab, sfp__strings *settings, sfp__cost *out, sfp_error *err)
{
    sfp_run *run = NULL;
    TRY(sfp__setting_put(settings, "clock=paper", 11, err));
    TRY(sfp__setting_put(settings, "rate=1", 6, err));
    int batches = lab->opt.dry_run && lab->opt.calibrate > DRY_RUN_BATCHES ? DRY_RUN_BATCHES : lab->opt.calibrate;
    TRY(sfp__setting_print(settings, err, "calibrate=%d", batches));
    TRY(sfp__lab_open_run(lab, settings, &run, err));
    sfp_status status = read_stream(run, out, err);
    lab->current = run;
    if (!status)
        status = sfp_run_measure(run, &out->seconds, err);
    lab->current = NULL;
    sfp_run_close(run);
    if (!status && sfp__lab_cancelled(lab))
        status = sfp__fail(err, SFP_ECANCELLED, "cancelled; the same command continues the experiment");
    return status;
}

/* A dry run measures one method, with few batches. The others are estimated by the ratios of the paper's runtimes. */
static sfp_status guess(sfp__lab *lab, sfp__strings *settings, const char *row, sfp__cost *out, sfp_error *err)
{
    double own, streamfp, spread;
    if (!lab->dry_cost) {
        sfp__lab_message(lab, SFP_LOG_INFO, "measuring the processing time of one method, from which the others are guessed");
        TRY(sfp__alloc(&lab->dry_cost, 1, sizeof *lab->dry_cost, err));
        TRY(measure(lab, settings, lab->dry_cost, err));
    }
    char path[sizeof out->path];
    memcpy(path, out->path, sizeof path);
    *out = *lab->dry_cost;
    memcpy(out->path, path, sizeof path);
    out->guessed = true;
    out->task_batches = NULL;
    TRY(sfp__alloc(&out->task_batches, (size_t)out->tasks, sizeof *out->task_batches, err));
    memcpy(out->task_batches, lab->dry_cost->task_batches, (size_t)out->tasks * sizeof *out->task_batches);
    if (sfp__paper_number("E2", row, "Stream-51", "Runtime", &own, &spread) &&
        sfp__paper_number("E2", "StreamFP", "Stream-51", "Runtime", &streamfp, &spread))
        out->seconds *= own / streamfp;
    return SFP_OK;
}

static sfp_status measure_and_write(sfp__lab *lab, sfp__strings *settings, const char *row, const char *column, sfp__cost *out,
                                    sfp_error *err)
{
    char name[256];
    (void)snprintf(name, sizeof name, "%s%s%s", row, *column ? ", " : "", column);
    sfp__lab_message(lab, SFP_LOG_INFO, "measuring the processing time: %s", name);
    TRY(measure(lab, settings, out, err));
    TRY(sfp__lab_inputs(lab, settings, out->inputs, err));
    TRY(sfp__directory_create_for(out->path, err));
    return write_cost(out, name, err);
}

/* Reads the time that was measured earlier. SFP_ENOTFOUND: there is none, or it was measured with other inputs. */
static sfp_status read_current_cost(sfp__lab *lab, const sfp__strings *settings, sfp__cost *out, sfp_error *err)
{
    OWNED_BY(sfp__cost_done) sfp__cost cost = {0};
    char inputs[SFP__INPUTS_MAX];
    memcpy(cost.path, out->path, sizeof cost.path);
    TRY(read_cost(&cost, err));
    if (strcmp(cost.inputs, SFP__INPUTS_ANY) != 0) {
        TRY(sfp__lab_inputs(lab, settings, inputs, err));
        if (strcmp(cost.inputs, inputs) != 0) {
            sfp__lab_report_other_inputs(lab);
            return SFP_ENOTFOUND;
        }
    }
    *out = TAKE(cost);
    return SFP_OK;
}

sfp_status sfp__cost_get(sfp__lab *lab, const sfp__strings *settings, const char *row, const char *column, sfp__cost *out,
                         sfp_error *err)
{
    OWNED_BY(sfp__strings_done) sfp__strings own = {0};
    OWNED_BY(sfp__cost_done) sfp__cost cost = {0};
    char key[17];
    sfp_error missing;
    TRY(copy_for_cost(settings, &own, err));
    sfp__settings_key(&own, key);
    TRY(sfp__path_print(cost.path, sizeof cost.path, err, "%s/costs/%s", lab->opt.out, key));
    sfp_status status = read_current_cost(lab, &own, &cost, &missing);
    if (status == SFP_ENOTFOUND)
        TRY(lab->opt.dry_run ? guess(lab, &own, row, &cost, err) : measure_and_write(lab, &own, row, column, &cost, err));
    else if (status)
        return sfp__fail(err, status, "%s", missing.message);
    if (sfp__strings_find(&lab->cost_keys, key) < 0)
        TRY(sfp__strings_add(&lab->cost_keys, key, err));
    *out = TAKE(cost);
    return SFP_OK;
}

/* --------------------------------------------------------------------------------------------------------- arrival rates */

static int64_t count_kept(const sfp__cost *c, double cs, int64_t *least)
{
    int64_t sum = 0;
    *least = INT64_MAX;
    for (int t = 0; t < c->tasks; t++) {
        int64_t kept = (int64_t)((double)c->task_batches[t] / cs);
        sum += kept;
        *least = kept < *least ? kept : *least;
    }
    return sum;
}

/* A stream that is too short for overload gets a share of its batches instead. */
double sfp__cost_solve(const sfp__cost *c, int want)
{
    double low = 1, high = (double)c->batches;
    int64_t least, half = c->batches / 2;
    if (half < 92)
        want = (int)((double)want * (double)half / 92);
    for (int i = 0; i < 60; i++) {
        double middle = sqrt(low * high);
        bool enough = count_kept(c, middle, &least) >= want && least >= 2;
        *(enough ? &low : &high) = middle;
    }
    return fmax(1, low * (1 - 1e-6)); /* below the step, so that a rounded rate keeps the same batches */
}

/* The rate at which C_S of a method with cost c is cs. */
static double rate_of(const sfp__cost *c, double cs)
{
    return cs * (double)c->samples / (c->seconds * (double)c->batches);
}

static int setting_number(const sfp__strings *settings, const char *key, int default_value)
{
    const char *text = sfp__settings_value(settings, key);
    return text ? (int)strtol(text, NULL, 10) : default_value;
}

/* The cost of StreamFP, or of the row that defines the load of a column. */
static sfp_status reference_cost(sfp__lab *lab, const sfp__cell *cell, sfp__cost *out, sfp_error *err)
{
    const sfp__experiment *e = &lab->experiments[cell->experiment];
    const sfp__variant *column = &e->columns[cell->column];
    OWNED_BY(sfp__strings_done) sfp__strings settings = {0};
    TRY(sfp__lab_base_settings(lab, e, &settings, err));
    TRY(sfp__settings_add(&settings, column->settings, err));
    TRY(sfp__settings_add(&settings, column->load > 0 ? column->load_of : "select=streamfp buffer=streamfp", err));
    return sfp__cost_get(lab, &settings, column->load > 0 ? column->load_of : "StreamFP", "", out, err);
}

/* The cost of a row that allocates, with a file for --costs that has the seconds per sample: its batches differ in size. */
static sfp_status query_cost(sfp__lab *lab, const char *name, const sfp__strings *settings, sfp__cost *out, sfp_error *err)
{
    OWNED_BY(sfp__cost_done) sfp__cost c = {0};
    char text[64], path[sizeof c.path];
    TRY(sfp__cost_get(lab, settings, name, "", &c, err));
    TRY(sfp__path_print(path, sizeof path, err, "%s-query", c.path));
    memcpy(c.path, path, sizeof c.path);
    int n = snprintf(text, sizeof text, "query %.9g\n", c.seconds / setting_number(settings, "batch", 20));
    if (!lab->opt.dry_run)
        TRY(sfp__file_write(c.path, text, (size_t)n, err));
    *out = TAKE(c);
    return SFP_OK;
}

/* Finds the largest coreset whose processing time fits the time in which a batch arrives, and sets sigma and replay. */
static sfp_status fit_coreset(sfp__lab *lab, double time, sfp__strings *settings, sfp_error *err)
{
    int b = setting_number(settings, "batch", 20), replay = setting_number(settings, "replay", 10), best = 1;
    for (int c = 1; c <= b; c++) {
        OWNED_BY(sfp__cost_done) sfp__cost cost = {0};
        char name[64];
        TRY(sfp__setting_print(settings, err, "sigma=%.6g", (double)c / b));
        TRY(sfp__setting_print(settings, err, "replay=%d", c < replay ? c : replay));
        (void)snprintf(name, sizeof name, "coreset of %d", c);
        TRY(sfp__cost_get(lab, settings, "StreamFP", name, &cost, err));
        if (cost.seconds > time)
            break;
        best = c;
    }
    TRY(sfp__setting_print(settings, err, "sigma=%.6g", (double)best / b));
    return sfp__setting_print(settings, err, "replay=%d", best < replay ? best : replay);
}

/* Seconds for the training and the evaluations of a cell. */
static double estimate(const sfp__lab *lab, const sfp__cell *cell, const sfp__strings *settings, const sfp__cost *c)
{
    int64_t least, limit = setting_number(settings, "eval-limit", 0);
    double cs = cell->rate > 0 ? cell->cost * (double)c->batches * cell->rate / (double)c->samples : 1;
    double trained = cs > 1 ? (double)count_kept(c, cs, &least) : (double)c->batches;
    int64_t images = sfp__cell_test_images(lab, cell);
    images = (images < 0 ? c->samples / 5 : images) / c->tasks; /* per task */
    images = limit > 0 && limit < images ? limit : images;
    double tested = (double)images * c->tasks * (c->tasks + 1) / 2;
    return trained * cell->cost + tested * lab->pass_seconds + 0.2;
}

/* The load of a query pass; 0: the load of the column is that of training, or it has none. */
static double query_load(const sfp__variant *column)
{
    static const char closed_form[] = "method=";
    return column->load > 0 && strncmp(column->load_of, closed_form, strlen(closed_form)) == 0 ? column->load : 0;
}

sfp_status sfp__cell_clock(sfp__lab *lab, sfp__cell *cell, sfp__strings *settings, sfp__cost *cost, sfp_error *err)
{
    const sfp__experiment *e = &lab->experiments[cell->experiment];
    const sfp__variant *column = &e->columns[cell->column], *row = &e->rows[cell->row];
    OWNED_BY(sfp__cost_done) sfp__cost reference = {0};
    bool timed = column->batches > 0 || column->load > 0;
    TRY(sfp__lab_inputs(lab, settings, cell->inputs, err));
    if (timed) {
        TRY(reference_cost(lab, cell, &reference, err));
        int b = column->load > 0 ? setting_number(settings, "batch", 20) : 0;
        cell->rate =
            b > 0 ? column->load * b / reference.seconds : rate_of(&reference, sfp__cost_solve(&reference, column->batches));
        if (!(lab->pass_seconds > 0))
            lab->pass_seconds = reference.seconds / PASSES_OF_A_TIMESTAMP;
        TRY(sfp__cell_choose_size(lab, query_load(column), settings, err));
        if (row->fits)
            TRY(fit_coreset(lab, b / cell->rate, settings, err));
    }
    if (timed || e->needs_costs) {
        TRY(row->allocates ? query_cost(lab, row->name, settings, cost, err)
                           : sfp__cost_get(lab, settings, row->name, column->learner ? column->name : "", cost, err));
        cell->cost = cost->seconds;
        cell->guessed = cost->guessed || reference.guessed;
        cell->estimate = estimate(lab, cell, settings, cost);
    }
    if (timed) {
        TRY(sfp__setting_print(settings, err, "rate=%.9g", cell->rate));
        TRY(sfp__setting_print(settings, err, "costs=%.9g", cost->seconds));
    }
    sfp__settings_key(settings, cell->key);
    if (lab->opt.dry_run) /* the file may not exist yet */
        sfp__settings_remove(settings, "costs");
    else if (timed)
        TRY(sfp__setting_print(settings, err, "costs=%s", cost->path));
    return SFP_OK;
}
