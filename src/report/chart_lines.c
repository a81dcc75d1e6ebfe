/* The line chart. Up to BAND_SERIES series have a band as interval; more series have whiskers, which overlap less. The whiskers
 * of one x are drawn side by side. Names are printed at the right edge, moved apart, with a thin line to the end of the curve. */
#include "report/chart_internal.h"

#include <math.h>

enum { HEIGHT = 340, LEFT = 58, BOTTOM = 38, BAND_SERIES = 3, LABEL_CHARS = 30, LABEL_GAP = 15, MAX_TICKS = 10, TICK_GAP = 42 };

typedef struct lines {
    sfp__drawing d;
    const sfp__chart *c;
    sfp__frame f;
    double top, bottom; /* vertical limits of labels */
} lines;

static double place_x(const lines *l, int k, double x)
{
    double beside = l->c->count > BAND_SERIES ? 2.5 * (k - (l->c->count - 1) / 2.0) : 0;
    return sfp__frame_x(&l->f, x) + beside;
}

/* The pixel of a value, inside of the frame. */
static double place_y(const lines *l, double y)
{
    return sfp__frame_y(&l->f, fmin(fmax(y, l->f.y0), l->f.y1));
}

static bool has_interval(const lines *l, const sfp__chart_series *s, int i)
{
    return sfp__chart_has_point(l->c, s, i) && isfinite(sfp__chart_value(s->half, i));
}

static void put_whiskers(const lines *l, int k)
{
    const sfp__chart_series *s = &l->c->series[k];
    for (int i = 0; i < s->count; i++) {
        if (!has_interval(l, s, i))
            continue;
        double x = place_x(l, k, s->x[i]), high = s->y[i] + s->half[i], low = s->y[i] - s->half[i];
        sfp__text_printf(l->d.out, "<path class=\"curve\" d=\"M%.1f,%.1fV%.1f", x, place_y(l, high), place_y(l, low));
        sfp__chart_put_end(&l->d, x, place_y(l, high), 0, -1, high > l->f.y1);
        sfp__chart_put_end(&l->d, x, place_y(l, low), 0, 1, low < l->f.y0);
        sfp__text_put(l->d.out, "\" style=\"stroke:");
        sfp__put_color(&l->d, sfp__series_color(k));
        sfp__text_put(l->d.out, ";stroke-width:1.2;stroke-opacity:.75\"/>");
    }
}

/* The band joins the intervals of all points that have one. A single point has whiskers instead. */
static void put_band(const lines *l, int k)
{
    const sfp__chart_series *s = &l->c->series[k];
    int used = 0;
    for (int i = 0; i < s->count; i++)
        used += has_interval(l, s, i);
    if (used < 2) {
        put_whiskers(l, k);
        return;
    }
    sfp__text_put(l->d.out, "<path d=\"");
    for (int i = 0, n = 0; i < s->count; i++)
        if (has_interval(l, s, i))
            sfp__text_printf(l->d.out, "%s%.1f,%.1f", n++ ? "L" : "M", place_x(l, k, s->x[i]), place_y(l, s->y[i] + s->half[i]));
    for (int i = s->count - 1; i >= 0; i--)
        if (has_interval(l, s, i))
            sfp__text_printf(l->d.out, "L%.1f,%.1f", place_x(l, k, s->x[i]), place_y(l, s->y[i] - s->half[i]));
    sfp__text_put(l->d.out, "Z\" style=\"fill:");
    sfp__put_color(&l->d, sfp__series_color(k));
    sfp__text_put(l->d.out, ";fill-opacity:.16\"/>");
}

/* Writes a disc, or a square for the second half of the series. */
static void put_marker(const lines *l, int k, double x, double y)
{
    if (k < SFP__CHART_SERIES / 2)
        sfp__text_printf(l->d.out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\" style=\"fill:", x, y);
    else
        sfp__text_printf(l->d.out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"6\" height=\"6\" style=\"fill:", x - 3, y - 3);
    sfp__put_color(&l->d, sfp__series_color(k));
    sfp__text_put(l->d.out, "\"/>");
}

static void put_line(const lines *l, int k)
{
    const sfp__chart_series *s = &l->c->series[k];
    char place[SFP__SHORT];
    sfp__text_put(l->d.out, "<path class=\"curve\" d=\"");
    for (int i = 0, n = 0; i < s->count; i++)
        if (sfp__chart_has_point(l->c, s, i))
            sfp__text_printf(l->d.out, "%s%.1f,%.1f", n++ ? "L" : "M", place_x(l, k, s->x[i]), place_y(l, s->y[i]));
    sfp__text_put(l->d.out, "\" style=\"stroke:");
    sfp__put_color(&l->d, sfp__series_color(k));
    sfp__text_printf(l->d.out, "%s\"/>", k < SFP__CHART_SERIES / 2 ? "" : ";stroke-dasharray:6 4");
    for (int i = 0; i < s->count; i++) {
        if (!sfp__chart_has_point(l->c, s, i))
            continue;
        double paper = sfp__chart_value(s->paper, i);
        sfp__text_put(l->d.out, "<g>");
        sfp__chart_tooltip(&l->d, l->c, s, i, sfp__format_compact(s->x[i], place));
        put_marker(l, k, place_x(l, k, s->x[i]), place_y(l, s->y[i]));
        if (isfinite(paper))
            sfp__chart_diamond(&l->d, place_x(l, k, s->x[i]), place_y(l, paper));
        sfp__text_put(l->d.out, "</g>");
    }
}

/* ---------------------------------------------------------------------- labels */

typedef struct label {
    int series;
    double x, from, y; /* the end of the curve, and the height of the label */
} label;

static int find_labels(const lines *l, label list[SFP__CHART_SERIES])
{
    int n = 0;
    for (int k = 0; k < l->c->count; k++) {
        const sfp__chart_series *s = &l->c->series[k];
        int last = s->count - 1;
        while (last >= 0 && !sfp__chart_has_point(l->c, s, last))
            last--;
        if (last < 0 || !s->name)
            continue;
        label new = {k, place_x(l, k, s->x[last]), place_y(l, s->y[last]), place_y(l, s->y[last])};
        int at = n++;
        for (; at > 0 && list[at - 1].y > new.y; at--)
            list[at] = list[at - 1];
        list[at] = new;
    }
    return n;
}

/* Moves sorted labels apart, as little as possible. Labels that would overlap form a block, which is centred on their curves;
 * blocks that would overlap are merged. */
static void spread_labels(const lines *l, int n, label *list)
{
    struct {
        double middle; /* mean of the wanted heights */
        int first, count;
    } block[SFP__CHART_SERIES];
    int blocks = 0;
    for (int i = 0; i < n; i++) {
        block[blocks].middle = list[i].y;
        block[blocks].first = i;
        block[blocks++].count = 1;
        while (blocks > 1) {
            int a = blocks - 2, b = blocks - 1, together = block[a].count + block[b].count;
            if (block[b].middle - block[a].middle >= LABEL_GAP * together / 2.0)
                break;
            block[a].middle = (block[a].middle * block[a].count + block[b].middle * block[b].count) / together;
            block[a].count = together;
            blocks--;
        }
    }
    for (int b = 0; b < blocks; b++)
        for (int i = 0; i < block[b].count; i++)
            list[block[b].first + i].y = block[b].middle + LABEL_GAP * (i - (block[b].count - 1) / 2.0);
    for (int i = 0; i < n; i++) /* keeps them in the frame */
        list[i].y = fmax(list[i].y, i ? list[i - 1].y + LABEL_GAP : l->top);
    for (int i = n - 1; i >= 0; i--)
        list[i].y = fmin(list[i].y, i < n - 1 ? list[i + 1].y - LABEL_GAP : l->bottom);
}

static void put_labels(const lines *l)
{
    label list[SFP__CHART_SERIES];
    int n = find_labels(l, list);
    double x = l->f.width - l->f.right + 26;
    spread_labels(l, n, list);
    for (int i = 0; i < n; i++) {
        sfp__text_printf(l->d.out, "<path class=\"leader\" d=\"M%.1f,%.1fL%.1f,%.1fH%.1f\"/>", list[i].x + 5, list[i].from,
                         x - 12, list[i].y, x - 6);
        put_marker(l, list[i].series, x, list[i].y);
        sfp__text_printf(l->d.out, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\">", x + 8, list[i].y + 4);
        sfp__put_html_cut(l->d.out, l->c->series[list[i].series].name, LABEL_CHARS);
        sfp__text_put(l->d.out, "</text>");
    }
}

/* ----------------------------------------------------------------------- frame */

static int right_margin(const sfp__chart *c)
{
    int max = -1;
    for (int k = 0; k < c->count; k++) {
        int width = c->series[k].name ? sfp__text_width(c->series[k].name) : -1;
        max = width > max ? width : max;
    }
    return max < 0 ? 24 : 48 + SFP__CHART_CHAR * (max < LABEL_CHARS ? max : LABEL_CHARS);
}

/* Sets the range of x with some space on both sides, so that points and whiskers do not touch the edges. */
static void set_x_range(const sfp__chart *c, sfp__frame *f)
{
    f->x0 = INFINITY;
    f->x1 = -INFINITY;
    for (int k = 0; k < c->count; k++)
        for (int i = 0; i < c->series[k].count; i++)
            if (sfp__chart_has_point(c, &c->series[k], i)) {
                f->x0 = fmin(f->x0, c->series[k].x[i]);
                f->x1 = fmax(f->x1, c->series[k].x[i]);
            }
    f->log_x = c->log_x;
    if (f->x1 - f->x0 < 1e-12 * fabs(f->x1)) {
        double around = fabs(f->x0) > 0 ? fabs(f->x0) / 2 : 1;
        f->x0 -= around;
        f->x1 += around;
    } else if (c->log_x) {
        double around = pow(f->x1 / f->x0, 0.04);
        f->x0 /= around;
        f->x1 *= around;
    } else {
        double around = 0.04 * (f->x1 - f->x0);
        f->x0 -= around;
        f->x1 += around;
    }
}

/* The axis of y starts at 0 if the values are not far from 0, compared with their range. Returns the distance of its ticks. */
static double set_y_range(sfp__chart_range r, sfp__frame *f)
{
    double low = r.low >= 0 && r.low < 0.5 * r.high ? 0 : r.low, step = sfp__nice_step(r.high - low, 5);
    f->y0 = floor(low / step + 1e-9) * step;
    f->y1 = ceil(r.high / step - 1e-9) * step;
    return step;
}

/* Adds a value to a sorted list without duplicates; returns whether there was space. */
static bool add_tick(double x, int *n, double list[MAX_TICKS])
{
    int at = 0;
    while (at < *n && list[at] < x)
        at++;
    if (at < *n && list[at] == x)
        return true;
    if (*n == MAX_TICKS)
        return false;
    for (int i = (*n)++; i > at; i--)
        list[i] = list[i - 1];
    list[at] = x;
    return true;
}

/* Few values of x are the ticks themselves, as in a sweep over 16, 32 and 64, unless they are too close to each other. */
static void put_x_axis(const lines *l)
{
    double list[MAX_TICKS];
    int n = 0;
    bool fits = true;
    for (int k = 0; k < l->c->count; k++)
        for (int i = 0; i < l->c->series[k].count; i++)
            if (sfp__chart_has_point(l->c, &l->c->series[k], i))
                fits = fits && add_tick(l->c->series[k].x[i], &n, list);
    for (int i = 1; i < n; i++)
        fits = fits && sfp__frame_x(&l->f, list[i]) - sfp__frame_x(&l->f, list[i - 1]) >= TICK_GAP;
    if (fits)
        sfp__put_x_axis_at(l->d.out, &l->f, l->c->x_name, n, list);
    else
        sfp__put_x_axis(l->d.out, &l->f, l->c->x_name);
}

static void put_y_name(const lines *l, int y)
{
    sfp__text_printf(l->d.out, "<text class=\"tick\" x=\"12\" y=\"%d\">", y);
    sfp__put_html_cut(l->d.out, l->c->y_name, 40);
    sfp__text_put(l->d.out, "</text>");
}

bool sfp__chart_lines(const sfp__chart *c, sfp__chart_form form, sfp__text *out)
{
    lines l = {.d = {out, form == SFP__CHART_FILE}, .c = c};
    int title = c->title && l.d.file ? SFP__TITLE_HEIGHT : 0, y_name = sfp__text_width(c->y_name);
    int legend_left = 12 + SFP__CHART_CHAR * (y_name < 40 ? y_name : 40) + 24;
    sfp__chart_range r;
    if (!sfp__chart_find_range(c, &r))
        return false;
    l.f = (sfp__frame){.width = SFP__CHART_WIDTH,
                       .height = HEIGHT + title,
                       .left = LEFT,
                       .right = right_margin(c),
                       .top = title + 34,
                       .bottom = BOTTOM,
                       .fraction_y = c->fraction};
    set_x_range(c, &l.f);
    double step = set_y_range(r, &l.f);
    l.top = l.f.top;
    l.bottom = l.f.height - BOTTOM;
    sfp__drawing_begin(&l.d, l.f.width, l.f.height, c->title, c->title ? c->title : c->y_name);
    put_y_name(&l, title + 16);
    (void)sfp__chart_legend(&l.d, c, false, legend_left, SFP__CHART_WIDTH, title + 12);
    sfp__put_y_axis(out, &l.f, step);
    put_x_axis(&l);
    for (int k = 0; k < c->count && c->count <= BAND_SERIES; k++)
        put_band(&l, k);
    for (int k = 0; k < c->count && c->count > BAND_SERIES; k++)
        put_whiskers(&l, k);
    for (int k = 0; k < c->count; k++)
        put_line(&l, k);
    put_labels(&l);
    sfp__drawing_end(&l.d);
    return true;
}
