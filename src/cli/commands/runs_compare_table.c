/* The comparison of runs as a table with one row per group of repetitions, and as plots. */
#include "cli/commands/runs_groups.h"

#include "base/mem.h"
#include "base/settings.h"
#include "io/file.h"
#include "report/chart.h"
#include "report/html.h"
#include "results/statistics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------ the table */

typedef struct options_list {
    sfp__strings keys; /* options that differ */
    bool failed;
} options_list;

static void add_option(const sfp__run_groups *g, const char *key, void *ctx)
{
    options_list *o = ctx;
    (void)g;
    o->failed = o->failed || sfp__strings_add(&o->keys, key, NULL) != SFP_OK;
}

static void put_option(const sfp__run_groups *g, const sfp__strings *keys, int k, const char *key, sfp__text *out)
{
    sfp__text_put(out, out->length ? ", " : "");
    if (keys->count > 1)
        sfp__text_printf(out, "%s ", key);
    sfp__text_put(out, sfp__run_groups_option(g, k, key));
}

/* Writes the options of group k that differ from the other groups, without option `except`: "select random, buffer er". Groups with
 * different presets have only those that differ from their preset: "preset best, sigma 0.3". The name of an only option is omitted,
 * because it is in the heading. */
static void put_name(const sfp__run_groups *g, const sfp__strings *keys, int k, const char *except, sfp__text *out)
{
    bool presets = sfp__strings_find(keys, "preset") >= 0;
    if (presets)
        put_option(g, keys, k, "preset", out);
    for (int i = 0; i < keys->count; i++) {
        const char *key = keys->s[i];
        bool excluded = (except && strcmp(key, except) == 0) || strcmp(key, "preset") == 0;
        if (!excluded && (!presets || sfp__run_groups_chosen(g, k, key)))
            put_option(g, keys, k, key, out);
    }
}

/* Sets a text of the table to the contents of a sfp__text. */
static sfp_status set_text(char **place, const sfp__text *text, sfp_error *err)
{
    return text->failed ? sfp__fail_nomem(err) : sfp__table_set_text(place, text->s ? text->s : "", err);
}

static sfp_status name_rows(const sfp__run_groups *g, const sfp__strings *keys, sfp__table *t, sfp_error *err)
{
    char method[64];
    const char *heading = keys->count == 1 ? keys->s[0] : keys->count > 1 ? "options" : "method";
    TRY(sfp__table_set_text(&t->row_heading, heading, err));
    for (int k = 0; k < g->count; k++) {
        OWNED_BY(sfp__text_done) sfp__text name = {0};
        if (keys->count == 0) {
            sfp__result_method(&g->runs[g->first[k]].result, method, sizeof method);
            sfp__text_put(&name, method);
        } else
            put_name(g, keys, k, NULL, &name);
        t->unranked[k] = sfp__run_groups_unfinished(g, k);
        sfp__text_put(&name, t->unranked[k] ? " (not finished)" : "");
        TRY(set_text(&t->row_name[k], &name, err));
    }
    return SFP_OK;
}

static bool is_seed_new(const sfp__run_groups *g, int i)
{
    for (int k = 0; k < i; k++)
        if (!g->excluded[k] && g->runs[k].result.seed == g->runs[i].result.seed)
            return false;
    return !g->excluded[i];
}

/* The sentences below the table: options that all runs share, seeds, and excluded runs. */
static sfp_status describe(const sfp__run_groups *g, const sfp__strings *keys, sfp__table *t, sfp_error *err)
{
    static const char *const shared[][2] = {{"data", "Data"}, {"backbone", "Backbone"}};
    OWNED_BY(sfp__text_done) sfp__text text = {0};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        const char *value = sfp__run_groups_option(g, 0, shared[i][0]);
        if (sfp__strings_find(keys, shared[i][0]) < 0 && strcmp(value, "-") != 0)
            sfp__text_printf(&text, "%s: %s. ", shared[i][1], value);
    }
    sfp__text_put(&text, "Seeds: ");
    for (int i = 0, n = 0; i < g->n; i++)
        if (is_seed_new(g, i))
            sfp__text_printf(&text, "%s%" PRIu64, n++ ? ", " : "", g->runs[i].result.seed);
    sfp__text_put(&text, ".");
    const char *between = " Of several runs with one seed, only the newest is used; excluded: ";
    for (int i = 0; i < g->n; i++)
        if (g->excluded[i]) {
            sfp__text_printf(&text, "%s%s", between, g->runs[i].name);
            between = ", ";
        }
    sfp__text_put(&text, sfp__run_groups_excluded(g) ? "." : "");
    return set_text(&t->caption, &text, err);
}

/* Whether a format has a column for these numbers: CSV has all, LaTeX the main ones, and people see only measured ones. */
static bool is_shown(const sfp__run_groups *g, const sfp__result_field *number, sfp__compare_format format)
{
    bool measured = format == SFP__COMPARE_CSV;
    for (int k = 0; k < g->count && number->column; k++)
        measured = measured || sfp__run_groups_values(g, k, number) > 0;
    return number->column && measured && (number->main || format != SFP__COMPARE_LATEX) &&
           (format == SFP__COMPARE_CSV || sfp__run_groups_show(g, number));
}

static sfp_status fill_column(const sfp__run_groups *g, const sfp__result_field *number, bool csv, sfp__table *t, int column,
                              sfp_error *err)
{
    OWNED char *name = NULL;
    char key[SFP__FIELD_KEY_SIZE];
    const char *unit = csv ? NULL : number->fraction ? "%" : number->unit; /* the values of CSV are not scaled */
    TRY(sfp__text_new(&name, err, "%s%s%s", csv ? sfp__result_field_key(number, key) : number->label, unit ? ", " : "",
                      unit ? unit : ""));
    TRY(sfp__table_set_text(&t->column_name[column], name, err));
    t->percent[column] = number->fraction;
    t->decimals[column] = number->fraction ? number->decimals - 2 : number->decimals;
    t->lower_is_better[column] = number->better < 0;
    for (int k = 0; k < g->count; k++)
        sfp__table_set_values(t, k, column, sfp__run_groups_values(g, k, number), g->x);
    return SFP_OK;
}

/* Removes the marks of columns in which neither high nor low values are better. */
static void mark_best(sfp__table *t, const sfp__run_groups *g, sfp__compare_format format)
{
    int column = 0;
    sfp__table_mark_best(t);
    for (const sfp__result_field *number = sfp__result_fields; number->key; number++) {
        if (!is_shown(g, number, format))
            continue;
        for (int k = 0; k < g->count && number->better == 0; k++)
            sfp__table_at(t, k, column)->best = false;
        column++;
    }
}

static sfp_status make_table(const sfp__run_groups *g, const sfp__strings *keys, sfp__compare_format format, sfp__table **out,
                             sfp_error *err)
{
    OWNED_PTR(sfp__table_free) sfp__table *t = NULL;
    int columns = 0, column = 0;
    for (const sfp__result_field *number = sfp__result_fields; number->key; number++)
        columns += is_shown(g, number, format);
    TRY(sfp__table_create(g->count, columns, &t, err));
    TRY(sfp__table_set_text(&t->title, format == SFP__COMPARE_HTML ? "Results" : "Comparison of runs", err));
    TRY(sfp__table_set_text(&t->label, "tab:runs", err));
    TRY(name_rows(g, keys, t, err));
    TRY(describe(g, keys, t, err));
    for (const sfp__result_field *number = sfp__result_fields; number->key; number++)
        if (is_shown(g, number, format))
            TRY(fill_column(g, number, format == SFP__COMPARE_CSV, t, column++, err));
    mark_best(t, g, format);
    *out = TAKE(t);
    return SFP_OK;
}

/* -------------------------------------------------------------------- plots */

typedef struct plots {
    const sfp__run_groups *g;
    const sfp__strings *keys;
    sfp__strings names;   /* (groups) of bars or lines */
    double *x, *y, *half; /* (groups) */
    double *line;         /* (groups, 3) x, y and half of the lines, one after the other */
    void *block;
    sfp__chart chart;
} plots;

static void plots_done(plots *p)
{
    sfp__strings_done(&p->names);
    sfp__free(p->block);
}

/* Returns the only option that differs and has a number in every group; NULL: there is none, or several. Sets p->x. */
static const char *find_numeric_option(plots *p)
{
    const char *found = NULL;
    for (int i = 0; i < p->keys->count; i++) {
        bool numeric = true;
        double x;
        for (int k = 0; k < p->g->count; k++)
            numeric = numeric && sfp__parse_real(sfp__run_groups_option(p->g, k, p->keys->s[i]), &x) && isfinite(x);
        if (numeric && found)
            return NULL;
        found = numeric ? p->keys->s[i] : found;
    }
    for (int k = 0; found && k < p->g->count; k++)
        (void)sfp__parse_real(sfp__run_groups_option(p->g, k, found), &p->x[k]);
    return found;
}

/* Sets the accuracy of every group. The prequential accuracy is used if no run has a test set. */
static void set_accuracy(plots *p)
{
    const sfp__result_field *number = sfp__result_field_find("average_accuracy");
    const sfp__result_field *other = sfp__result_field_find("prequential_accuracy");
    int measured = 0;
    for (int k = 0; k < p->g->count; k++)
        measured += sfp__run_groups_values(p->g, k, number);
    number = measured ? number : other;
    for (int k = 0; k < p->g->count; k++) {
        int n = sfp__run_groups_values(p->g, k, number);
        sfp__mean_interval(n, p->g->x, &p->y[k], &p->half[k]);
        p->half[k] = sfp__shown_half(n, p->half[k]);
    }
    p->chart.y_name = number->label;
}

static sfp_status plots_init(plots *p, const sfp__run_groups *g, const sfp__strings *keys, sfp_error *err)
{
    size_t n = (size_t)g->count;
    const sfp__want list[] = {
        {&p->x, n, sizeof *p->x}, {&p->y, n, sizeof *p->y}, {&p->half, n, sizeof *p->half}, {&p->line, 3 * n, sizeof *p->line}};
    TRY(sfp__block(&p->block, SFP__LIST(list), err));
    p->g = g;
    p->keys = keys;
    p->chart.fraction = true;
    set_accuracy(p);
    return SFP_OK;
}

/* Adds the name of group k, without option `except`, to p->names. */
static sfp_status add_name(plots *p, int k, const char *except, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text name = {0};
    put_name(p->g, p->keys, k, except, &name);
    TRY(sfp__check_memory(!name.failed, err));
    return sfp__strings_add(&p->names, name.s ? name.s : "", err);
}

/* Copies the groups of line `line` in the order of x. `first` is the position of their values in p->line. */
static int copy_line(plots *p, const int *line_of, int line, int first)
{
    sfp__chart_series *s = &p->chart.series[line];
    double *x = p->line + 3 * (size_t)first;
    int n = 0;
    for (int k = 0; k < p->g->count; k++)
        n += line_of[k] == line;
    double *y = x + n, *half = y + n;
    int used = 0;
    for (int k = 0; k < p->g->count; k++) {
        if (line_of[k] != line)
            continue;
        int at = used++;
        for (; at > 0 && x[at - 1] > p->x[k]; at--) {
            x[at] = x[at - 1];
            y[at] = y[at - 1];
            half[at] = half[at - 1];
        }
        x[at] = p->x[k];
        y[at] = p->y[k];
        half[at] = p->half[k];
    }
    *s = (sfp__chart_series){.count = n, .x = x, .y = y, .half = half};
    return n;
}

/* Prepares lines over option `option`, one per combination of the other options that differ. *lines 0: there are too many. */
static sfp_status make_lines(plots *p, const char *option, int *lines, sfp_error *err)
{
    OWNED int *line_of = NULL;
    double low = INFINITY, high = -INFINITY;
    TRY(sfp__alloc(&line_of, (size_t)p->g->count, sizeof *line_of, err));
    for (int k = 0; k < p->g->count; k++) {
        TRY(add_name(p, k, option, err));
        line_of[k] = sfp__strings_find(&p->names, p->names.s[p->names.count - 1]);
        if (line_of[k] < p->names.count - 1)
            sfp__free(p->names.s[--p->names.count]);
        low = fmin(low, p->x[k]);
        high = fmax(high, p->x[k]);
    }
    *lines = 0;
    if (p->names.count > SFP__CHART_SERIES || low >= high)
        return SFP_OK;
    p->chart.x_name = option;
    p->chart.log_x = low > 0 && high >= 10 * low;
    p->chart.count = *lines = p->names.count;
    for (int i = 0, first = 0; i < *lines; i++) {
        first += copy_line(p, line_of, i, first);
        p->chart.series[i].name = *lines > 1 ? p->names.s[i] : NULL;
    }
    return SFP_OK;
}

static sfp_status draw_bars(const sfp__run_groups *g, const sfp__strings *keys, const sfp__table *t, sfp__chart_form form,
                            sfp__text *out, bool *drawn, sfp_error *err)
{
    OWNED_BY(plots_done) plots p = {0};
    TRY(plots_init(&p, g, keys, err));
    p.chart.title = "Accuracy of the runs";
    p.chart.categories = g->count;
    p.chart.category = (const char *const *)t->row_name;
    p.chart.count = 1;
    p.chart.series[0] = (sfp__chart_series){.count = g->count, .y = p.y, .half = p.half};
    *drawn = sfp__chart_bars(&p.chart, form, out);
    return SFP_OK;
}

/* *drawn false: no option or several options have numbers, or there is no accuracy. */
static sfp_status draw_lines(const sfp__run_groups *g, const sfp__strings *keys, sfp__chart_form form, sfp__text *out,
                             bool *drawn, sfp_error *err)
{
    OWNED_BY(plots_done) plots p = {0};
    OWNED char *title = NULL;
    int lines = 0;
    *drawn = false;
    TRY(plots_init(&p, g, keys, err));
    const char *option = find_numeric_option(&p);
    if (!option)
        return SFP_OK;
    TRY(make_lines(&p, option, &lines, err));
    TRY(sfp__text_new(&title, err, "Accuracy over %s", option));
    p.chart.title = title;
    *drawn = lines > 0 && sfp__chart_lines(&p.chart, form, out);
    return SFP_OK;
}

/* -------------------------------------------------------------------- output */

static sfp_status write_page(const sfp__run_groups *g, const sfp__strings *keys, const sfp__table *t, const char *path,
                             sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text page = {0};
    bool drawn;
    sfp__page_begin(&page, "Comparison of runs", NULL);
    sfp__text_printf(&page, "<header><h1>Comparison of %d runs</h1></header>", g->n);
    sfp__table_write(t, SFP__TABLE_HTML, &page);
    sfp__text_put(&page, "<section class=\"card\">");
    TRY(draw_bars(g, keys, t, SFP__CHART_INLINE, &page, &drawn, err));
    if (!drawn)
        sfp__text_put(&page, "<p class=\"note\">No run has an accuracy to plot.</p>");
    TRY(draw_lines(g, keys, SFP__CHART_INLINE, &page, &drawn, err));
    sfp__text_put(&page, "</section>");
    return sfp__page_write(&page, path, err);
}

static sfp_status write_plot(const sfp__run_groups *g, const sfp__strings *keys, const sfp__table *t, const char *path,
                             sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text svg = {0};
    bool drawn;
    TRY(draw_lines(g, keys, SFP__CHART_FILE, &svg, &drawn, err));
    if (!drawn)
        TRY(draw_bars(g, keys, t, SFP__CHART_FILE, &svg, &drawn, err));
    if (!drawn)
        return sfp__fail(err, SFP_EINVAL, "no run has an accuracy, so there is nothing to plot");
    return svg.failed ? sfp__fail_nomem(err) : sfp__file_write(path, svg.s, svg.length, err);
}

static sfp_status print_table(const sfp__table *t, sfp__table_format format, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text out = {0};
    sfp__table_write(t, format, &out);
    TRY(sfp__check_memory(!out.failed, err));
    (void)fputs(out.s, stdout);
    return SFP_OK;
}

sfp_status sfp__runs_write_table(const sfp__run_groups *g, sfp__compare_format format, const char *path, sfp_error *err)
{
    OWNED_PTR(sfp__table_free) sfp__table *t = NULL;
    OWNED_BY(sfp__strings_done) sfp__strings keys = {0};
    options_list list = {0};
    sfp__run_groups_naming(g, add_option, &list);
    keys = list.keys;
    TRY(sfp__check_memory(!list.failed, err));
    TRY(make_table(g, &keys, format, &t, err));
    if (format == SFP__COMPARE_HTML)
        return write_page(g, &keys, t, path, err);
    if (format == SFP__COMPARE_PLOT)
        return write_plot(g, &keys, t, path, err);
    return print_table(t,
                       format == SFP__COMPARE_LATEX      ? SFP__TABLE_LATEX
                       : format == SFP__COMPARE_CSV      ? SFP__TABLE_CSV
                       : format == SFP__COMPARE_MARKDOWN ? SFP__TABLE_MARKDOWN
                                                         : SFP__TABLE_TEXT,
                       err);
}
