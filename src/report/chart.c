/* Ranges, legends and labels of charts, and the chart of a table. */
#include "report/chart_internal.h"

#include "results/statistics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double sfp__chart_value(const double *x, int i)
{
    return x && isfinite(x[i]) ? x[i] : NAN;
}

bool sfp__chart_has_point(const sfp__chart *c, const sfp__chart_series *s, int i)
{
    return isfinite(s->y[i]) && (!s->x || (isfinite(s->x[i]) && (!c->log_x || s->x[i] > 0)));
}

/* ----------------------------------------------------------------------- range */

static void extend(sfp__chart_range *r, double x)
{
    r->low = fmin(r->low, x); /* fmin and fmax ignore NAN */
    r->high = fmax(r->high, x);
}

/* Extends a range by the intervals, each side by at most 60 % of the range of the means. */
static void extend_by_intervals(const sfp__chart *c, sfp__chart_range *r)
{
    double max = 0.6 * fmax(r->high - r->low, 0.1 * fmax(fabs(r->high), fabs(r->low))), low = r->low - max, high = r->high + max;
    for (int k = 0; k < c->count; k++)
        for (int i = 0; i < c->series[k].count; i++) {
            double half = sfp__chart_value(c->series[k].half, i), y = c->series[k].y[i];
            if (sfp__chart_has_point(c, &c->series[k], i) && isfinite(half)) {
                extend(r, fmax(low, y - half));
                extend(r, fmin(high, y + half));
            }
        }
}

bool sfp__chart_find_range(const sfp__chart *c, sfp__chart_range *out)
{
    sfp__chart_range r = {NAN, NAN};
    for (int k = 0; k < c->count; k++)
        for (int i = 0; i < c->series[k].count; i++)
            if (sfp__chart_has_point(c, &c->series[k], i)) {
                extend(&r, c->series[k].y[i]);
                extend(&r, sfp__chart_value(c->series[k].paper, i));
            }
    if (isnan(r.low))
        return false;
    sfp__chart_range means = r;
    extend_by_intervals(c, &r);
    if (c->fraction) {
        r.low = fmax(r.low, fmin(0, means.low));
        r.high = fmin(r.high, fmax(1, means.high));
    }
    if (r.high - r.low < 1e-9 * fmax(1, fabs(r.high))) {
        double around = fabs(r.high) > 1e-9 ? 0.1 * fabs(r.high) : 1;
        r = (sfp__chart_range){r.low - around, r.high + around};
    }
    *out = r;
    return true;
}

/* ---------------------------------------------------------------------- labels */

static const char *format_y(const sfp__chart *c, double y, char buf[SFP__SHORT])
{
    if (!c->fraction)
        return sfp__format_compact(y, buf);
    (void)snprintf(buf, SFP__SHORT, "%.1f", 100 * y);
    return buf;
}

void sfp__chart_put_value(const sfp__drawing *d, const sfp__chart *c, const sfp__chart_series *s, int i)
{
    char buf[SFP__SHORT];
    double half = sfp__chart_value(s->half, i);
    sfp__text_put(d->out, format_y(c, s->y[i], buf));
    if (isfinite(half))
        sfp__text_printf(d->out, " \xc2\xb1 %s", format_y(c, half, buf));
}

void sfp__chart_tooltip(const sfp__drawing *d, const sfp__chart *c, const sfp__chart_series *s, int i, const char *place)
{
    char buf[SFP__SHORT];
    double paper = sfp__chart_value(s->paper, i);
    sfp__text_put(d->out, "<title>");
    if (s->name) {
        sfp__put_html(d->out, s->name);
        sfp__text_put(d->out, ", ");
    }
    sfp__put_html(d->out, place);
    sfp__text_put(d->out, ": ");
    sfp__chart_put_value(d, c, s, i);
    if (isfinite(paper))
        sfp__text_printf(d->out, ", published %s", format_y(c, paper, buf));
    sfp__text_put(d->out, "</title>");
}

void sfp__chart_put_end(const sfp__drawing *d, double x, double y, int dx, int dy, bool clipped)
{
    double back = clipped ? 5 : 0; /* the sides of an arrow point backwards */
    sfp__text_printf(d->out, "M%.1f,%.1fL%.1f,%.1fL%.1f,%.1f", x - back * dx + 3 * dy, y - back * dy + 3 * dx, x, y,
                     x - back * dx - 3 * dy, y - back * dy - 3 * dx);
}

void sfp__chart_diamond(const sfp__drawing *d, double x, double y)
{
    sfp__text_printf(d->out, "<path class=\"paper\" d=\"M%.1f,%.1fl5,5l-5,5l-5,-5Z\"/>", x, y - 5);
}

/* ---------------------------------------------------------------------- legend */

typedef struct legend {
    const sfp__drawing *d; /* NULL: only measures */
    int left, right, x, y, rows;
} legend;

/* Moves to the place of the next entry, in a new row if the entry would not fit. */
static void place_entry(legend *l, int characters)
{
    int width = 20 + SFP__CHART_CHAR * characters;
    if (l->rows == 0 || l->x + width > l->right) {
        l->x = l->left;
        l->y += l->rows ? SFP__CHART_LEGEND : 0;
        l->rows++;
    }
}

static void end_entry(legend *l, const char *name, int characters)
{
    if (l->d) {
        sfp__text_printf(l->d->out, "<text class=\"label\" x=\"%d\" y=\"%d\">", l->x + 20, l->y + 4);
        sfp__put_html_cut(l->d->out, name, characters);
        sfp__text_put(l->d->out, "</text>");
    }
    l->x += 20 + SFP__CHART_CHAR * characters + 16;
}

enum { NAME_MAX_CHARS = 32 };

static void put_series_entry(legend *l, const char *name, int k)
{
    int width = sfp__text_width(name), characters = width < NAME_MAX_CHARS ? width : NAME_MAX_CHARS;
    place_entry(l, characters);
    if (l->d) {
        sfp__text_printf(l->d->out, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" rx=\"2\" style=\"fill:", l->x, l->y - 6);
        sfp__put_color(l->d, sfp__series_color(k));
        sfp__text_printf(l->d->out, "%s\"/>", k >= SFP__CHART_SERIES / 2 ? ";fill-opacity:.5" : "");
    }
    end_entry(l, name, characters);
}

static void put_sign_entries(legend *l, bool interval, bool paper)
{
    static const char interval_name[] = "95 % interval", paper_name[] = "published";
    if (interval) {
        place_entry(l, (int)strlen(interval_name));
        if (l->d)
            sfp__text_printf(l->d->out, "<path class=\"whisker\" d=\"M%d,%dv8m0,-4h13m0,-4v8\"/>", l->x, l->y - 4);
        end_entry(l, interval_name, (int)strlen(interval_name));
    }
    if (paper) {
        place_entry(l, (int)strlen(paper_name));
        if (l->d)
            sfp__chart_diamond(l->d, l->x + 7, l->y);
        end_entry(l, paper_name, (int)strlen(paper_name));
    }
}

int sfp__chart_legend(const sfp__drawing *d, const sfp__chart *c, bool series, int left, int right, int y)
{
    legend l = {.d = d, .left = left, .right = right, .x = left, .y = y};
    bool interval = false, paper = false;
    for (int k = 0; k < c->count; k++) {
        const sfp__chart_series *s = &c->series[k];
        if (series && s->name)
            put_series_entry(&l, s->name, k);
        for (int i = 0; i < s->count; i++) {
            bool point = sfp__chart_has_point(c, s, i);
            interval = interval || (point && isfinite(sfp__chart_value(s->half, i)));
            paper = paper || (point && isfinite(sfp__chart_value(s->paper, i)));
        }
    }
    put_sign_entries(&l, interval, paper);
    return l.rows;
}

/* ---------------------------------------------------------------- chart of a table */

/* Copies column k of the table to series number c->count; `values` has three arrays of t->rows elements for it. */
static void add_column(const sfp__table *t, int k, double *values, sfp__chart *c)
{
    double *y = values, *half = values + t->rows, *paper = half + t->rows;
    for (int i = 0; i < t->rows; i++) {
        const sfp__table_cell *cell = sfp__table_at(t, i, k);
        y[i] = cell->n > 0 && !cell->text ? cell->mean : NAN;
        half[i] = sfp__shown_half(cell->n, cell->half);
        paper[i] = cell->paper;
    }
    c->fraction = t->percent[k];
    c->series[c->count++] = (sfp__chart_series){.name = t->group_name[k], .count = t->rows, .y = y, .half = half, .paper = paper};
}

bool sfp__chart_table(const sfp__table *t, const char *column_name, sfp__chart_form form, sfp__text *out)
{
    size_t rows = (size_t)t->rows;
    OWNED double *values = sfp__calloc(3 * SFP__CHART_SERIES * rows + 1, sizeof *values);
    sfp__chart c = {
        .title = t->title, .y_name = column_name, .categories = t->rows, .category = (const char *const *)t->row_name};
    out->failed = out->failed || !values;
    for (int k = 0; values && k < t->columns && c.count < SFP__CHART_SERIES; k++)
        if (t->column_name[k] && strcmp(t->column_name[k], column_name) == 0)
            add_column(t, k, values + 3 * (size_t)c.count * rows, &c);
    return c.count > 0 && sfp__chart_bars(&c, form, out);
}
