/* Tables and charts of the results of experiments, and the sentences below them. */
#include "experiment/experiment.h"
#include "report/chart.h"
#include "report/table.h"
#include "results/statistics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------------------------------- metrics */

int sfp__experiment_metrics(const sfp__experiment *e, const sfp__metric *list[SFP__METRICS_MAX])
{
    int n = 0;
    for (const char *s = e->metrics; *s && n < SFP__METRICS_MAX;) {
        size_t length = strcspn(s, ",");
        list[n++] = sfp__metric_find(s, length);
        s += length + (s[length] == ',');
    }
    return n;
}

bool sfp__metric_is_time(const sfp__metric *m)
{
    return strcmp(m->key, "cost") == 0 || strcmp(m->key, "runtime") == 0 || strcmp(m->key, "throughput") == 0;
}

int sfp__lab_values(const sfp__lab *lab, int experiment, int row, int column, int metric, double *values)
{
    const sfp__metric *list[SFP__METRICS_MAX];
    int n = 0;
    (void)sfp__experiment_metrics(&lab->experiments[experiment], list);
    bool is_time = sfp__metric_is_time(list[metric]); /* which is known of a method that had no time for a batch, too */
    for (int k = 0; k < lab->repetitions; k++)
        values[k] = NAN;
    for (int i = 0; i < lab->cell_count; i++) {
        const sfp__cell *c = &lab->cells[i];
        if (c->experiment != experiment || c->row != row || c->column != column || c->state == SFP__CELL_WAITING ||
            c->state == SFP__CELL_OMITTED || (c->state == SFP__CELL_STARVED && !is_time))
            continue;
        values[c->repetition] = c->value[metric];
        n += isfinite(c->value[metric]);
    }
    return n;
}

static bool is_starved(const sfp__lab *lab, int experiment, int row, int column, int repetition)
{
    for (int i = 0; i < lab->cell_count; i++) {
        const sfp__cell *c = &lab->cells[i];
        if (c->experiment == experiment && c->row == row && c->column == column && c->state == SFP__CELL_STARVED &&
            (repetition < 0 || c->repetition == repetition))
            return true;
    }
    return false;
}

/* ------------------------------------------------------------------------------------------------- comparison with the paper */

const char *sfp__lab_difference(const sfp__lab *lab, char *buf, size_t size)
{
    const char *data = sfp__settings_value(lab->opt.settings, "data"),
               *backbone = sfp__settings_value(lab->opt.settings, "backbone");
    const char *name = data ? strrchr(data, '/') : NULL;
    bool published =
        data && (strncmp(data, "stream51:", 9) == 0 || strncmp(data, "core50:", 7) == 0 || strncmp(data, "clear10", 7) == 0);
    bool own_backbone = !backbone || strcmp(backbone, "builtin") == 0;
    const char *slash = backbone ? strrchr(backbone, '/') : NULL;
    if (published && !own_backbone)
        return NULL;
    (void)snprintf(buf, size, "%s%s%s%s%s", published ? "" : "dataset ",
                   published ? ""
                   : !data   ? "Fashion-MNIST"
                   : name    ? name + 1
                             : data,
                   published ? "" : ", ", "backbone ",
                   own_backbone ? "builtin"
                   : slash      ? slash + 1
                                : backbone);
    return buf;
}

/* The column group of the paper for a column of the table. repetition -1: the mean. */
static const char *paper_group(const sfp__lab *lab, const sfp__experiment *e, int column, int repetition, char *buf, size_t size)
{
    if (e->orders_as_columns && repetition < 0)
        return "Overall";
    if (e->orders_as_columns) {
        (void)snprintf(buf, size, "order %d", repetition + 1);
        return buf;
    }
    return *e->columns[column].name ? e->columns[column].name : lab->paper_dataset;
}

static void compare(const sfp__lab *lab, const sfp__experiment *e, sfp__table *t, int row, const char *name, int at,
                    const char *group, const char *metric)
{
    double value, spread;
    char buf[256];
    sfp__table_cell *cell = sfp__table_at(t, row, at);
    if (!e->paper || !sfp__paper_number(e->paper, name, group, metric, &value, &spread))
        return;
    sfp__table_set_paper(t, row, at, value, spread);
    if (cell->n > 0 && (sfp__lab_difference(lab, buf, sizeof buf) || strcmp(metric, "Runtime") == 0))
        cell->verdict = "not comparable";
}

/* ------------------------------------------------------------------------------------------------------------- the table */

/* rows (t->rows): the rows of the experiment that are shown. */
static sfp_status fill_column(const sfp__lab *lab, int experiment, const int *rows, int column, int repetition, int metric,
                              sfp__table *t, int at, sfp_error *err)
{
    const sfp__experiment *e = &lab->experiments[experiment];
    const sfp__metric *list[SFP__METRICS_MAX];
    char buf[64];
    double x[SFP__REPETITIONS_MAX];
    (void)sfp__experiment_metrics(e, list);
    const char *group = paper_group(lab, e, column, repetition, buf, sizeof buf);
    /* the processing time of a method is the same in all repetitions, so it has no interval */
    bool measured_once = lab->cost_keys.count > 0 && sfp__metric_is_time(list[metric]);
    bool named = e->orders_as_columns || *e->columns[column].name;
    TRY(sfp__table_set_text(&t->group_name[at], named ? group : NULL, err));
    TRY(sfp__table_set_text(&t->column_name[at], list[metric]->name, err));
    t->decimals[at] = list[metric]->decimals;
    t->percent[at] = list[metric]->percent;
    t->lower_is_better[at] = list[metric]->better < 0;
    for (int r = 0; r < t->rows; r++) {
        (void)sfp__lab_values(lab, experiment, rows[r], column, metric, x);
        int n = repetition >= 0 || (measured_once && isfinite(x[0])) ? 1 : lab->repetitions;
        sfp__table_set_values(t, r, at, n, &x[repetition >= 0 ? repetition : 0]);
        compare(lab, e, t, r, e->rows[rows[r]].name, at, group, list[metric]->name);
        if (is_starved(lab, experiment, rows[r], column, repetition) && !sfp__metric_is_time(list[metric])) {
            sfp__table_at(t, r, at)->text = "-";
            sfp__table_at(t, r, at)->verdict = isfinite(sfp__table_at(t, r, at)->paper) ? "not comparable" : NULL;
        }
    }
    return SFP_OK;
}

/* Rows of other forms of methods that were not run are not shown. */
static int list_rows(const sfp__lab *lab, int experiment, int *rows)
{
    const sfp__experiment *e = &lab->experiments[experiment];
    int n = 0;
    for (int r = 0; r < e->row_count; r++) {
        bool shown = !e->rows[r].extra;
        for (int i = 0; i < lab->cell_count && !shown; i++)
            shown = lab->cells[i].experiment == experiment && lab->cells[i].row == r &&
                    (lab->cells[i].state == SFP__CELL_DONE || lab->cells[i].state == SFP__CELL_STARVED);
        if (shown)
            rows[n++] = r;
    }
    return n;
}

sfp_status sfp__lab_table(const sfp__lab *lab, int experiment, sfp__table **out, sfp_error *err)
{
    const sfp__experiment *e = &lab->experiments[experiment];
    const sfp__metric *list[SFP__METRICS_MAX];
    OWNED_PTR(sfp__table_free) sfp__table *t = NULL;
    OWNED int *rows = NULL;
    char title[256];
    int metrics = sfp__experiment_metrics(e, list);
    int orders = e->orders_as_columns && lab->repetitions > 1 ? lab->repetitions : 0, at = 0;
    TRY(sfp__alloc(&rows, (size_t)e->row_count, sizeof *rows, err));
    TRY(sfp__table_create(list_rows(lab, experiment, rows), (e->column_count + orders) * metrics, &t, err));
    (void)snprintf(title, sizeof title, "%s: %s", e->name, e->title);
    TRY(sfp__table_set_text(&t->title, title, err));
    TRY(sfp__table_set_text(&t->row_heading, e->row_heading, err));
    for (int r = 0; r < t->rows; r++)
        TRY(sfp__table_set_text(&t->row_name[r], e->rows[rows[r]].name, err));
    for (int k = 0; k < orders; k++)
        for (int m = 0; m < metrics; m++)
            TRY(fill_column(lab, experiment, rows, 0, k, m, t, at++, err));
    for (int c = 0; c < e->column_count; c++)
        for (int m = 0; m < metrics; m++)
            TRY(fill_column(lab, experiment, rows, c, -1, m, t, at++, err));
    sfp__table_mark_best(t);
    for (int c = 0; c < t->columns; c++)
        for (int r = 0; r < t->rows && list[c % metrics]->better == 0; r++)
            sfp__table_at(t, r, c)->best = false;
    *out = TAKE(t);
    return SFP_OK;
}

/* ----------------------------------------------------------------------------------------------------- paired differences */

/* The first row (StreamFP) against each other row, by repetition: mean difference, wins, losses, p of the sign test. */
sfp_status sfp__lab_paired(const sfp__lab *lab, int experiment, int column, sfp__table **out, sfp_error *err)
{
    static const char *const names[] = {"difference", "higher", "lower", "p"};
    const sfp__experiment *e = &lab->experiments[experiment];
    OWNED_PTR(sfp__table_free) sfp__table *t = NULL;
    double first[SFP__REPETITIONS_MAX], other[SFP__REPETITIONS_MAX];
    char title[256];
    const char *name = e->columns[column].name;
    OWNED int *rows = NULL;
    TRY(sfp__alloc(&rows, (size_t)e->row_count, sizeof *rows, err));
    int count = list_rows(lab, experiment, rows);
    TRY(sfp__table_create(count - 1, 4, &t, err));
    (void)snprintf(title, sizeof title, "%s%s%s: accuracy of %s minus that of another row, by repetition", e->name,
                   *name ? ", " : "", name, e->rows[0].name);
    TRY(sfp__table_set_text(&t->title, title, err));
    for (int c = 0; c < 4; c++) {
        TRY(sfp__table_set_text(&t->column_name[c], names[c], err));
        t->percent[c] = c == 0;
        t->decimals[c] = c == 0 ? 2 : c == 3 ? 3 : 0;
    }
    (void)sfp__lab_values(lab, experiment, 0, column, 0, first);
    for (int r = 1; r < count; r++) {
        (void)sfp__lab_values(lab, experiment, rows[r], column, 0, other);
        sfp__paired p = sfp__paired_differences(lab->repetitions, first, other);
        const double value[] = {p.mean, p.positive, p.negative, p.sign_p};
        TRY(sfp__table_set_text(&t->row_name[r - 1], e->rows[rows[r]].name, err));
        for (int c = 0; c < 4 && p.n > 0; c++)
            *sfp__table_at(t, r - 1, c) =
                (sfp__table_cell){.n = p.n, .mean = value[c], .half = c == 0 ? p.half : NAN, .paper = NAN, .paper_pm = NAN};
    }
    *out = TAKE(t);
    return SFP_OK;
}

/* ------------------------------------------------------------------------------------------------------------- sentences */

double sfp__lab_mean(const sfp__lab *lab, int experiment, int row, int column, int metric)
{
    double x[SFP__REPETITIONS_MAX], sum = 0;
    int n = sfp__lab_values(lab, experiment, row, column, metric, x);
    for (int k = 0; k < lab->repetitions; k++)
        sum += isfinite(x[k]) ? x[k] : 0;
    return n ? sum / n : NAN;
}

/* "Order of methods at lambda 6028: Kendall's tau 0.61 (p 0.01) with the paper's." */
static void put_order(const sfp__lab *lab, int experiment, sfp__text *t)
{
    const sfp__experiment *e = &lab->experiments[experiment];
    for (int c = 0; c < e->column_count && e->paper; c++) {
        double ours[64], paper[64], spread;
        char buf[64];
        int n = e->row_count < 64 ? e->row_count : 64;
        const char *group = paper_group(lab, e, c, -1, buf, sizeof buf);
        for (int r = 0; r < n; r++) {
            ours[r] = sfp__lab_mean(lab, experiment, r, c, 0);
            (void)sfp__paper_number(e->paper, e->rows[r].name, group, "Acc", &paper[r], &spread);
        }
        sfp__kendall k = sfp__kendall_tau(n, ours, paper);
        if (k.n >= 3 && isfinite(k.tau))
            sfp__text_printf(
                t, "Order of the methods%s%s: Kendall's tau %.2f with the order in the paper (%d methods, p %.3f): %s. ",
                *e->columns[c].name ? " at " : "", e->columns[c].name, k.tau, k.n, k.p,
                k.p < 0.05 && k.tau > 0 ? "the same tendency"
                : k.p < 0.05            ? "the opposite tendency"
                                        : "no significant relation");
    }
}

/* "StreamFP is beaten by ranpac (81.20) and slda (79.00) at lambda 6028." */
static void put_beaten(const sfp__lab *lab, int experiment, sfp__text *t)
{
    const sfp__experiment *e = &lab->experiments[experiment];
    for (int c = 0; c < e->column_count; c++) {
        double own = sfp__lab_mean(lab, experiment, 0, c, 0);
        int count = 0;
        for (int r = 0; r < e->row_count; r++) {
            double x = sfp__lab_mean(lab, experiment, r, c, 0);
            if (!e->rows[r].closed || !(x > own))
                continue;
            sfp__text_printf(t, "%s%s (%.2f)", count++ ? ", " : "", e->rows[r].name, 100 * x);
        }
        if (count)
            sfp__text_printf(t, " %s %s (%.2f)%s%s, without any training. ", count == 1 ? "beats" : "beat", e->rows[0].name,
                             100 * own, *e->columns[c].name ? " at " : "", e->columns[c].name);
    }
}

/* The number of repetitions that were run, at least in a part of the cells. */
static int count_repetitions(const sfp__lab *lab, int experiment)
{
    int n = 0;
    for (int i = 0; i < lab->cell_count; i++) {
        const sfp__cell *c = &lab->cells[i];
        bool run = c->state == SFP__CELL_DONE || c->state == SFP__CELL_STARVED;
        if (c->experiment == experiment && run && c->repetition >= n)
            n = c->repetition + 1;
    }
    return n;
}

/* "Acc: average accuracy, %. Fgt: forgetting, %." */
static void put_meanings(const sfp__experiment *e, sfp__text *t)
{
    const sfp__metric *list[SFP__METRICS_MAX];
    int n = sfp__experiment_metrics(e, list);
    for (int m = 0; m < n; m++)
        sfp__text_printf(t, "%s: %s. ", list[m]->name, list[m]->meaning);
}

void sfp__lab_sentences(const sfp__lab *lab, int experiment, sfp__text *t)
{
    const sfp__experiment *e = &lab->experiments[experiment];
    char buf[256];
    bool accuracy = strncmp(e->metrics, "Acc", 3) == 0;
    const char *differs = sfp__lab_difference(lab, buf, sizeof buf);
    int run = count_repetitions(lab, experiment);
    put_meanings(e, t);
    if (!e->cost_only && run == 1)
        sfp__text_printf(t, "One repetition (seed %d). ", lab->opt.first_seed);
    else if (!e->cost_only && run > 1)
        sfp__text_printf(t, "Mean%s over up to %d repetitions (seeds %d-%d%s). ",
                         run >= SFP__INTERVAL_RUNS ? " and 95 % interval" : "", run, lab->opt.first_seed,
                         lab->opt.first_seed + run - 1, lab->opt.orders > 1 ? ", class orders of the authors" : "");
    if (e->paper && differs)
        sfp__text_printf(
            t,
            "The paper's figures are those of %s with ViT-B/16 on another machine; here: %s. Single figures are therefore not "
            "comparable. ",
            lab->paper_dataset, differs);
    if (accuracy) {
        put_order(lab, experiment, t);
        put_beaten(lab, experiment, t);
    }
}

/* ---------------------------------------------------------------------------------------------------------------- charts */

static double trailing_number(const char *name)
{
    const char *blank = strrchr(name, ' ');
    return strtod(blank ? blank + 1 : name, NULL);
}

static bool line_chart(const sfp__lab *lab, int experiment, const sfp__table *t, sfp__chart_form form, sfp__text *out)
{
    const sfp__experiment *e = &lab->experiments[experiment];
    const sfp__metric *list[SFP__METRICS_MAX];
    enum { POINTS = 64 };
    static _Thread_local double x[POINTS], y[SFP__CHART_SERIES][POINTS], half[SFP__CHART_SERIES][POINTS];
    int metrics = sfp__experiment_metrics(e, list), n = e->column_count < POINTS ? e->column_count : POINTS;
    if (metrics < 1)
        return false;
    char axis[64];
    (void)snprintf(axis, sizeof axis, "%.*s", (int)strcspn(e->columns[0].name, " "), e->columns[0].name);
    sfp__chart c = {.title = t->title,
                    .x_name = axis,
                    .y_name = list[0]->name,
                    .fraction = list[0]->percent,
                    .log_x = trailing_number(e->columns[n - 1].name) > 8 * trailing_number(e->columns[0].name)};
    for (int r = 0; r < e->row_count && c.count < SFP__CHART_SERIES; r++, c.count++) {
        for (int i = 0; i < n; i++) {
            const sfp__table_cell *cell = sfp__table_at(t, r, i * metrics);
            x[i] = trailing_number(e->columns[i].name);
            y[c.count][i] = cell->n ? cell->mean : NAN;
            half[c.count][i] = sfp__shown_half(cell->n, cell->half);
        }
        c.series[c.count] =
            (sfp__chart_series){.name = e->rows[r].name, .count = n, .x = x, .y = y[c.count], .half = half[c.count]};
    }
    return sfp__chart_lines(&c, form, out);
}

bool sfp__lab_chart(const sfp__lab *lab, int experiment, const sfp__table *t, bool inside, sfp__text *out)
{
    const sfp__metric *list[SFP__METRICS_MAX];
    sfp__chart_form form = inside ? SFP__CHART_INLINE : SFP__CHART_FILE;
    if (sfp__experiment_metrics(&lab->experiments[experiment], list) < 1)
        return false;
    if (lab->experiments[experiment].numeric_columns)
        return line_chart(lab, experiment, t, form, out);
    return sfp__chart_table(t, list[0]->name, form, out);
}
