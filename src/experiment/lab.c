/* The execution of experiments: rows, plan, cells, outputs. */
#include "base/monotonic.h"
#include "experiment/experiment.h"
#include "io/directory.h"
#include "io/file.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool sfp__lab_cancelled(const sfp__lab *lab)
{
    const sfp_experiment_options *o = lab->opt.api;
    return o && o->cancelled && o->cancelled(o->ctx);
}

void sfp__lab_message(const sfp__lab *lab, sfp_log_level level, const char *fmt, ...)
{
    char text[SFP_ERROR_MAX];
    const sfp_experiment_options *o = lab->opt.api;
    va_list args;
    if (!o || !o->log)
        return;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    o->log(o->ctx, level, text);
}

/* -------------------------------------------------------------------------------------------------------------- preparing */

/* Copies an experiment, with the closed-form heads as further rows. */
static sfp_status copy_experiment(const sfp__experiment *from, sfp__experiment *to, sfp_error *err)
{
    int extra = 0;
    const sfp__variant *closed = sfp__closed_rows(&extra);
    sfp__variant *rows = NULL;
    *to = *from;
    to->rows = NULL;
    extra = from->add_closed ? extra : 0;
    TRY(sfp__alloc(&rows, (size_t)(from->row_count + extra), sizeof *rows, err));
    memcpy(rows, from->rows, (size_t)from->row_count * sizeof *rows);
    memcpy(rows + from->row_count, closed, (size_t)extra * sizeof *rows);
    to->rows = rows;
    to->row_count = from->row_count + extra;
    return SFP_OK;
}

static const char *find_paper_dataset(const sfp__lab *lab)
{
    static const char *const kinds[][2] = {
        {"stream51:", "Stream-51"}, {"core50:", "CORe50"}, {"clear10:", "Clear10"}, {"clear100:", "Clear100"}};
    const char *data = sfp__settings_value(lab->opt.settings, "data");
    for (size_t i = 0; data && i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(data, kinds[i][0], strlen(kinds[i][0])) == 0)
            return kinds[i][1];
    return "Stream-51";
}

static void lab_done(sfp__lab *lab)
{
    for (int e = 0; lab->experiments && e < lab->experiment_count; e++)
        sfp__free((void *)lab->experiments[e].rows);
    if (lab->dry_cost)
        sfp__cost_done(lab->dry_cost);
    sfp__free(lab->dry_cost);
    sfp__free(lab->experiments);
    sfp__free(lab->cells);
    sfp__free(lab->test_images);
    sfp__strings_done(&lab->cost_keys);
    sfp__strings_done(&lab->input_values);
    sfp__strings_done(&lab->inputs);
    sfp__text_done(&lab->omitted);
    sfp__text_done(&lab->engine_key);
    sfp_engine_close(lab->engine);
    sfp__directory_leave(lab->opt.out, lab->made, lab->lock);
}

/* Fails if DIRECTORY of the output has a file with one of these names. */
static sfp_status refuse_files(const sfp__lab *lab, const char *directory, size_t count, const char *const *names, sfp_error *err)
{
    char path[PATH_MAX], found[NAME_MAX + 1];
    TRY(sfp__path_print(path, sizeof path, err, "%s%s", lab->opt.out, directory));
    TRY(sfp__directory_find(path, count, names, found, sizeof found, err));
    return *found ? sfp__fail(err, SFP_EINVAL, "%s/%s exists and is not of an experiment; use another --out", path, found)
                  : SFP_OK;
}

/* The directory is ours if it has a plan of an experiment. Otherwise it must not have files that would be replaced. */
static sfp_status check_owner(const sfp__lab *lab, sfp_error *err)
{
    static const char *const names[] = {"plan.json", "index.html", "results.json"};
    bool ours = false, has_tables = false;
    TRY(sfp__lab_has_plan(lab, &ours, err));
    if (ours)
        return SFP_OK;
    TRY(refuse_files(lab, "", SFP__LIST(names), err));
    TRY(sfp__directory_has(lab->opt.out, "tables", &has_tables, err));
    for (int e = 0; has_tables && e < lab->experiment_count; e++) {
        static const char *const endings[] = {"csv", "md", "tex", "txt", "svg"};
        enum { TABLES = sizeof endings / sizeof *endings };
        char table[TABLES][NAME_MAX + 1];
        const char *tables[TABLES];
        for (size_t i = 0; i < TABLES; i++) {
            (void)snprintf(table[i], sizeof table[i], "%s.%s", lab->experiments[e].name, endings[i]);
            tables[i] = table[i];
        }
        TRY(refuse_files(lab, "/tables", SFP__LIST(tables), err));
    }
    return SFP_OK;
}

/* Removes the temporary files of a process that was killed. */
static sfp_status remove_unfinished(const sfp__lab *lab, sfp_error *err)
{
    static const char *const own[] = {"plan.json.tmp.#", "results.json.tmp.#", "index.html.tmp.#"}, *const any[] = {"*.tmp.#"};
    static const char *const below[] = {"tables", "costs"};
    TRY(sfp__directory_remove_files(lab->opt.out, SFP__LIST(own), 0, NULL, err));
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        char path[PATH_MAX];
        bool has;
        TRY(sfp__path_print(path, sizeof path, err, "%s/%s", lab->opt.out, below[i]));
        TRY(sfp__directory_has(lab->opt.out, below[i], &has, err));
        if (has)
            TRY(sfp__directory_remove_files(path, SFP__LIST(any), 0, NULL, err));
    }
    return SFP_OK;
}

static sfp_status prepare(sfp__lab *lab, const sfp__experiment *const *list, int count, sfp_error *err)
{
    TRY(sfp__alloc(&lab->experiments, (size_t)count, sizeof *lab->experiments, err));
    for (int e = 0; e < count; e++) {
        TRY(copy_experiment(list[e], &lab->experiments[e], err));
        lab->experiment_count = e + 1;
    }
    lab->repetitions = lab->opt.seeds * (lab->opt.orders > 0 ? lab->opt.orders : 1);
    lab->paper_dataset = lab->opt.paper_dataset ? lab->opt.paper_dataset : find_paper_dataset(lab);
    if (lab->opt.dry_run)
        return SFP_OK;
    TRY(sfp__directory_take(lab->opt.out, &lab->made, &lab->lock, err));
    TRY(check_owner(lab, err));
    return lab->opt.check ? sfp__lab_import_costs(lab, err) : SFP_OK;
}

/* ------------------------------------------------------------------------------------------------------------- executing */

static int count_waiting(const sfp__lab *lab)
{
    int n = 0;
    for (int i = 0; i < lab->cell_count; i++)
        n += lab->cells[i].state != SFP__CELL_OMITTED;
    return n;
}

/* Seconds for the cells that are left, by their estimates and by what finished cells took. A cell without an estimate takes as long as
 * the mean of those that were run; NAN: none was run yet. */
static double seconds_left(const sfp__lab *lab)
{
    double sum = 0, ratio = lab->estimated_done > 0 ? lab->spent_done / lab->estimated_done : 1;
    int unknown = 0;
    for (int i = 0; i < lab->cell_count; i++)
        if (lab->cells[i].state == SFP__CELL_WAITING && isnan(lab->cells[i].estimate))
            unknown++;
        else if (lab->cells[i].state == SFP__CELL_WAITING)
            sum += lab->cells[i].estimate;
    double mean = lab->executed > 0 ? lab->spent_done / lab->executed : NAN;
    return sum * ratio + (unknown > 0 ? unknown * mean : 0);
}

static void report_progress(const sfp__lab *lab, const sfp__cell *cell, int total)
{
    const sfp_experiment_options *o = lab->opt.api;
    char name[256];
    sfp_experiment_progress p = {.size = sizeof p, .done = lab->done, .total = total, .accuracy = NAN};
    if (!o || !o->progress)
        return;
    p.eta = seconds_left(lab);
    p.cell = sfp__cell_name(lab, cell, name, sizeof name);
    p.repetition = cell->repetition + 1;
    p.seconds = cell->seconds;
    p.finished = cell->state == SFP__CELL_DONE || cell->state == SFP__CELL_STARVED;
    if (cell->state == SFP__CELL_DONE && strncmp(lab->experiments[cell->experiment].metrics, "Acc", 3) == 0)
        p.accuracy = cell->value[0];
    o->progress(o->ctx, &p);
}

/* The time is up although the plan expected to fit: the rest is omitted. */
static bool is_over_budget(const sfp__lab *lab)
{
    return lab->opt.budget > 0 && sfp__monotonic_seconds() - lab->began > lab->opt.budget;
}

/* Tells the user before hours of runs, as a single run does: its own message is not shown. */
static void report_no_test_set(const sfp__lab *lab)
{
    for (int i = 0; i < lab->cell_count; i++) {
        const sfp__cell *cell = &lab->cells[i];
        if (cell->state == SFP__CELL_OMITTED || lab->experiments[cell->experiment].cost_only ||
            sfp__cell_test_images(lab, cell) != 0 || sfp__cell_is_done(lab, cell))
            continue;
        sfp__lab_message(lab, SFP_LOG_WARNING, "no test set: accuracy is not measured; use --test KIND:PATH");
        return;
    }
}

/* Cells with the same settings in several experiments take their time once. */
static sfp_status run_cells(sfp__lab *lab, sfp_error *err)
{
    int total = count_waiting(lab);
    double written = lab->began;
    for (int i = 0; i < lab->cell_count; i++) {
        sfp__cell *cell = &lab->cells[i];
        if (cell->state == SFP__CELL_OMITTED)
            continue;
        if (sfp__lab_cancelled(lab))
            return sfp__fail(err, SFP_ECANCELLED, "cancelled; the same command continues the experiment");
        if (is_over_budget(lab)) {
            cell->state = SFP__CELL_OMITTED;
            lab->late++;
            continue;
        }
        report_progress(lab, cell, total);
        TRY(sfp__cell_run(lab, cell, err));
        lab->done++;
        if (cell->seconds > 0) {
            lab->executed++;
            lab->estimated_done += isnan(cell->estimate) ? cell->seconds : cell->estimate;
            lab->spent_done += cell->seconds;
        }
        report_progress(lab, cell, total);
        if (sfp__monotonic_seconds() - written > 30) { /* the page fills while cells are run */
            TRY(sfp__lab_write(lab, NULL, err));
            written = sfp__monotonic_seconds();
        }
    }
    return SFP_OK;
}

sfp_status sfp__lab_run(const sfp__experiment *const *list, int count, const sfp__lab_options *opt, char **json, sfp_error *err)
{
    OWNED_BY(lab_done) sfp__lab lab = {.opt = *opt, .lock = -1, .began = sfp__monotonic_seconds()};
    TRY(prepare(&lab, list, count, err));
    TRY(sfp__lab_plan(&lab, err));
    if (opt->dry_run)
        return sfp__lab_list(&lab, json, err);
    TRY(remove_unfinished(&lab, err));
    if (lab.omitted.length)
        sfp__lab_message(&lab, SFP_LOG_INFO, "the budget omits: %s", lab.omitted.s);
    report_no_test_set(&lab);
    TRY(run_cells(&lab, err));
    if (lab.late)
        sfp__lab_message(&lab, SFP_LOG_WARNING, "the budget was used up: %d cells were not run; more --budget runs them",
                         lab.late);
    TRY(sfp__lab_write(&lab, json, err));
    return opt->check ? sfp__lab_check(&lab, err) : SFP_OK;
}
