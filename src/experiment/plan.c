/* The plan: which cells are run, in which order, and what a budget omits. It is written to DIR/plan.json, so that an experiment that
 * is killed and started again has the same cells. */
#include "base/monotonic.h"
#include "base/rng.h"
#include "experiment/experiment.h"
#include "io/file.h"
#include "io/json_read.h"
#include "io/json_write.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PLAN_MAX = 64 << 20, FINISHED_MAX = 64 /* finished cells whose times are read */ };
static const double budget_share = 0.85; /* of the budget that is planned; estimates are not exact */

/* ------------------------------------------------------------------------------------------------------------- the cells */

static sfp_status add_cell(sfp__lab *lab, int experiment, int row, int column, int repetition, sfp_error *err)
{
    size_t n = (size_t)lab->cell_count;
    TRY(sfp__check_memory(sfp__grow(&lab->cells, sizeof *lab->cells, n, n + 1, &lab->cell_capacity), err));
    lab->cells[lab->cell_count++] =
        (sfp__cell){.experiment = experiment, .row = row, .column = column, .repetition = repetition, .estimate = NAN};
    for (int m = 0; m < SFP__METRICS_MAX; m++)
        lab->cells[n].value[m] = NAN;
    return SFP_OK;
}

static sfp_status add_rows(sfp__lab *lab, int experiment, int repetition, bool extra, sfp_error *err)
{
    const sfp__experiment *e = &lab->experiments[experiment];
    for (int r = 0; r < e->row_count; r++)
        for (int c = 0; c < e->column_count && e->rows[r].extra == extra; c++)
            TRY(add_cell(lab, experiment, r, c, repetition, err));
    return SFP_OK;
}

/* Adds all cells in the order of execution: every experiment once, then its repetitions, then the other forms of methods. */
static sfp_status add_cells(sfp__lab *lab, sfp_error *err)
{
    for (int extra = 0; extra < 2; extra++)
        for (int k = 0; k < lab->repetitions; k++)
            for (int e = 0; e < lab->experiment_count; e++)
                if (k == 0 || !lab->experiments[e].cost_only)
                    TRY(add_rows(lab, e, k, extra != 0, err));
    return SFP_OK;
}

/* Opens the run of a cell and closes it again: its settings may contradict each other. Cells whose processing time is measured were
 * opened then. Warnings are printed when the run begins. */
static sfp_status check_run(sfp__lab *lab, const sfp__cell *cell, const sfp__strings *settings, sfp_error *err)
{
    const sfp__experiment *e = &lab->experiments[cell->experiment];
    const sfp_experiment_options *api = lab->opt.api;
    sfp_experiment_options quiet = SFP_EXPERIMENT_OPTIONS_INIT;
    sfp_run *run = NULL;
    if (e->needs_costs || e->cost_only || sfp__cell_is_done(lab, cell))
        return SFP_OK;
    if (api)
        quiet = *api;
    quiet.log = NULL;
    lab->opt.api = &quiet;
    sfp_status status = sfp__lab_open_run(lab, settings, &run, err);
    lab->opt.api = api;
    sfp_run_close(run);
    return status;
}

/* Begins the message with the name of the cell; the key of the setting stays, because the command line is wrong. */
static sfp_status fail_cell(const sfp__lab *lab, const sfp__cell *cell, sfp_status status, sfp_error *err)
{
    char name[256], key[SFP_KEY_MAX] = "";
    if (err)
        (void)snprintf(key, sizeof key, "%s", err->key);
    (void)sfp__fail_prefix(err, status, "%s", sfp__cell_name(lab, cell, name, sizeof name));
    if (err)
        (void)snprintf(err->key, sizeof err->key, "%s", key);
    return status;
}

static sfp_status estimate_cells(sfp__lab *lab, sfp_error *err)
{
    for (int i = 0; i < lab->cell_count; i++) {
        OWNED_BY(sfp__strings_done) sfp__strings settings = {0};
        OWNED_BY(sfp__cost_done) sfp__cost cost = {0};
        sfp__cell *cell = &lab->cells[i];
        TRY(sfp__cell_settings(lab, cell, &settings, err));
        sfp_status status = cell->repetition == 0 ? sfp__cell_settings_check(&settings, err) : SFP_OK;
        if (!status)
            status = sfp__cell_clock(lab, cell, &settings, &cost, err);
        if (!status && cell->repetition == 0)
            status = check_run(lab, cell, &settings, err);
        if (status == SFP_ECANCELLED)
            return status;
        if (status)
            return fail_cell(lab, cell, status, err);
        if (lab->experiments[cell->experiment].cost_only)
            cell->estimate = 0;
    }
    return SFP_OK;
}

/* Estimates cells without a measured processing time by the mean of those that have finished. In a dry run, finished cells are
 * listed as such. */
static void use_finished_cells(sfp__lab *lab)
{
    double sum = 0;
    int count = 0;
    for (int i = 0; i < lab->cell_count; i++) {
        sfp__cell *cell = &lab->cells[i];
        if (!sfp__cell_is_done(lab, cell))
            continue;
        double seconds = isnan(cell->estimate) && count < FINISHED_MAX ? sfp__cell_run_seconds(lab, cell) : NAN;
        sum += isnan(seconds) ? 0 : seconds;
        count += !isnan(seconds);
        if (lab->opt.dry_run)
            cell->state = SFP__CELL_DONE;
    }
    for (int i = 0; i < lab->cell_count && count > 0; i++)
        if (isnan(lab->cells[i].estimate))
            lab->cells[i].estimate = sum / count;
}

/* ------------------------------------------------------------------------------------------------------------ the budget */

static bool same_group(const sfp__lab *lab, const sfp__cell *a, const sfp__cell *b)
{
    return a->experiment == b->experiment && a->repetition == b->repetition &&
           lab->experiments[a->experiment].rows[a->row].extra == lab->experiments[b->experiment].rows[b->row].extra;
}

/* true: an earlier cell with these settings is run. */
static bool is_shared(const sfp__lab *lab, int i)
{
    for (int j = 0; j < i; j++)
        if (lab->cells[j].state != SFP__CELL_OMITTED && strcmp(lab->cells[j].key, lab->cells[i].key) == 0)
            return true;
    return false;
}

/* Unknown times count as 0: their cells are run until the budget is used up. */
static double group_estimate(const sfp__lab *lab, int begin, int end)
{
    double sum = 0;
    for (int i = begin; i < end; i++) {
        const sfp__cell *cell = &lab->cells[i];
        sum += isnan(cell->estimate) || is_shared(lab, i) || sfp__cell_is_done(lab, cell) ? 0 : cell->estimate;
    }
    return sum;
}

static void note_omitted(sfp__lab *lab, const sfp__cell *cell)
{
    const sfp__experiment *e = &lab->experiments[cell->experiment];
    sfp__text_printf(&lab->omitted, "%s%s repetition %d%s", lab->omitted.length ? ", " : "", e->name, cell->repetition + 1,
                     e->rows[cell->row].extra ? " of other forms" : "");
}

/* The budget in minutes that is enough for these seconds. */
static double budget_for(double seconds)
{
    return fmax(1, ceil(seconds / budget_share / 60));
}

/* Omits whole groups (an experiment's repetition, without or with the other forms of methods) that do not fit. Fails if none does:
 * the next execution has the measured processing times, so its whole budget is for runs. */
static sfp_status apply_budget(sfp__lab *lab, sfp_error *err)
{
    double left = lab->opt.budget * budget_share - (sfp__monotonic_seconds() - lab->began); /* measuring took a part of it */
    double all = 0, least = INFINITY;
    const sfp__cell *smallest = NULL;
    bool any = false;
    for (int i = 0, end; i < lab->cell_count; i = end) {
        for (end = i + 1; end < lab->cell_count && same_group(lab, &lab->cells[i], &lab->cells[end]);)
            end++;
        double need = group_estimate(lab, i, end);
        bool fits = need <= left || need < 1;
        left -= fits ? need : 0;
        any = any || fits;
        all += need;
        if (need < least)
            smallest = &lab->cells[i];
        least = fmin(least, need);
        for (int k = i; k < end && !fits; k++)
            lab->cells[k].state = SFP__CELL_OMITTED;
        if (!fits)
            note_omitted(lab, &lab->cells[i]);
    }
    if (any || !smallest || lab->opt.dry_run)
        return SFP_OK;
    if (60 * budget_for(least) <= lab->opt.budget)
        return sfp__fail(err, SFP_ELIMIT, "measuring the processing times took the budget; the same command continues with them");
    return sfp__fail_key(err, "budget", SFP_EINVAL,
                         "budget is %g, expected at least %.0f minutes for %s repetition %d; everything needs about %.0f",
                         lab->opt.budget / 60, budget_for(least), lab->experiments[smallest->experiment].name,
                         smallest->repetition + 1, budget_for(all));
}

/* -------------------------------------------------------------------------------------------------------------- the file */

/* A hash of all that determines the plan. */
static uint64_t plan_key(const sfp__lab *lab)
{
    uint64_t h = SFP__HASH_START;
    for (int e = 0; e < lab->experiment_count; e++)
        h = sfp__hash(h, lab->experiments[e].name, strlen(lab->experiments[e].name));
    for (int i = 0; i < lab->opt.settings->count; i++)
        h = sfp__hash(h, lab->opt.settings->s[i], strlen(lab->opt.settings->s[i]));
    const double numbers[] = {lab->opt.budget, lab->opt.orders, lab->opt.seeds, lab->opt.first_seed, lab->cell_count};
    return sfp__hash(h, numbers, sizeof numbers);
}

static sfp_status write_plan(const sfp__lab *lab, const char *path, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    sfp__json j = {.text = &t};
    char key[17];
    (void)snprintf(key, sizeof key, "%016" PRIx64, plan_key(lab));
    sfp__json_object(&j, NULL);
    sfp__json_string(&j, "key", key);
    sfp__json_string(&j, "omitted", lab->omitted.s ? lab->omitted.s : "");
    sfp__json_array(&j, "omitted_cells");
    for (int i = 0; i < lab->cell_count; i++)
        if (lab->cells[i].state == SFP__CELL_OMITTED)
            sfp__json_int(&j, NULL, i);
    sfp__json_end_all(&j);
    TRY(sfp__check_memory(!t.failed, err));
    return sfp__file_write(path, t.s, t.length, err);
}

/* *out NULL: there is no plan. */
static sfp_status read_plan_file(const sfp__lab *lab, sfp__json_value **out, sfp_error *err)
{
    char path[PATH_MAX];
    sfp_error found;
    TRY(sfp__path_print(path, sizeof path, err, "%s/plan.json", lab->opt.out));
    sfp_status status = sfp__json_read(path, PLAN_MAX, out, &found);
    if (status && status != SFP_ENOTFOUND)
        return sfp__fail(err, status, "%s; remove the file to plan again", found.message);
    return SFP_OK;
}

static bool is_plan(const sfp__json_value *root)
{
    return sfp__json_is(sfp__json_get(root, "key"), SFP__JSON_STRING) &&
           sfp__json_is(sfp__json_get(root, "omitted"), SFP__JSON_STRING) &&
           sfp__json_is(sfp__json_get(root, "omitted_cells"), SFP__JSON_ARRAY);
}

sfp_status sfp__lab_has_plan(const sfp__lab *lab, bool *has, sfp_error *err)
{
    OWNED sfp__json_value *root = NULL;
    TRY(read_plan_file(lab, &root, err));
    *has = is_plan(root);
    return SFP_OK;
}

/* *used false: there is no plan, or it is that of other experiments or settings. */
static sfp_status read_plan(sfp__lab *lab, bool *used, sfp_error *err)
{
    OWNED sfp__json_value *root = NULL;
    char key[17];
    (void)snprintf(key, sizeof key, "%016" PRIx64, plan_key(lab));
    TRY(read_plan_file(lab, &root, err));
    if (!is_plan(root) || strcmp(sfp__json_text(sfp__json_get(root, "key")), key) != 0)
        return SFP_OK;
    const sfp__json_value *cells = sfp__json_get(root, "omitted_cells");
    sfp__text_put(&lab->omitted, sfp__json_text(sfp__json_get(root, "omitted")));
    for (size_t i = 0; i < sfp__json_size(cells); i++) {
        int64_t cell = sfp__json_integer(sfp__json_at(cells, i));
        if (cell >= 0 && cell < lab->cell_count)
            lab->cells[cell].state = SFP__CELL_OMITTED;
    }
    *used = true;
    return SFP_OK;
}

sfp_status sfp__lab_plan(sfp__lab *lab, sfp_error *err)
{
    char path[PATH_MAX];
    bool used = false;
    TRY(add_cells(lab, err));
    TRY(sfp__path_print(path, sizeof path, err, "%s/plan.json", lab->opt.out));
    TRY(estimate_cells(lab, err));
    use_finished_cells(lab);
    if (!lab->opt.dry_run)
        TRY(sfp__lab_report_replaced(lab, err));
    TRY(read_plan(lab, &used, err));
    if (used)
        return SFP_OK;
    if (lab->opt.budget > 0)
        TRY(apply_budget(lab, err));
    return lab->opt.dry_run ? SFP_OK : write_plan(lab, path, err);
}
