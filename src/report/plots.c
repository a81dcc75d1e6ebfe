/* The report's plots of numbers over time and tasks, as inline SVG. Colours are CSS variables of the page, so that one drawing
 * suits the light scheme, the dark scheme and print; shades are opacities of one colour. Values are printed next to the curve or
 * cell, so that the reader does not have to match colours with a legend. */
#include "report/report_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_BUCKETS 400

enum { WIDTH = 520, HEIGHT = 210, LEFT = 46, TOP = 14, BOTTOM = 36 };

/* --------------------------------------------------------------------- axes */

/* The scales of a plot: 0..x1 and 0..y1 fill the area between the margins. */
typedef struct frame {
    int left, right;
    double x1, y1;
    bool fraction_x, fraction_y; /* ticks are percentages */
} frame;

static double frame_x(const frame *f, double x)
{
    return f->left + (WIDTH - f->left - f->right) * x / f->x1;
}

static double frame_y(const frame *f, double y)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / f->y1;
}

/* Returns 1, 2 or 5 times a power of ten such that about `count` steps cover `range` > 0. */
static double nice_step(double range, int count)
{
    double raw = range / count, power = pow(10, floor(log10(raw))), m = raw / power;
    return power * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

/* Formats the number of a tick; `step` is the distance to the next. */
static const char *format_tick(bool fraction, double x, double step, double max, char text[SFP__SHORT])
{
    if (fraction)
        (void)snprintf(text, SFP__SHORT, step < 0.0099 ? "%.1f %%" : "%.0f %%", 100 * x);
    else if (max >= 10 && max < 1e6 && step >= 1)
        (void)sfp__format_count(x, text);
    else
        (void)sfp__format_compact(x, text);
    return text;
}

/* The left margin that the numbers of put_y_axis need. */
static int y_axis_margin(const frame *f, double step)
{
    char text[SFP__SHORT];
    int max = 0, character = 7; /* estimated width */
    for (int i = 0; i * step <= f->y1 + 1e-4 * step; i++) {
        int width = sfp__text_width(format_tick(f->fraction_y, i * step, step, 0, text));
        max = width > max ? width : max;
    }
    return 8 + character * max;
}

/* Horizontal lines with numbers, `step` apart. */
static void put_y_axis(sfp__text *t, const frame *f, double step)
{
    char text[SFP__SHORT];
    for (int i = 0; i * step <= f->y1 + 1e-4 * step; i++) {
        double at = frame_y(f, i * step);
        sfp__text_printf(t, "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", i > 0 ? "grid" : "axis", f->left,
                         WIDTH - f->right, at, at);
        sfp__text_printf(t, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>", f->left - 6, at + 4,
                         format_tick(f->fraction_y, i * step, step, 0, text));
    }
}

/* Ticks with numbers at the lower edge, and the name of the quantity. */
static void put_x_axis(sfp__text *t, const frame *f, const char *name)
{
    char text[SFP__SHORT];
    double step = nice_step(f->x1, 5);
    int low = HEIGHT - BOTTOM;
    for (int i = 0; i * step <= f->x1 + 1e-4 * step; i++) {
        double at = frame_x(f, i * step);
        sfp__text_printf(t, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", at, at, low, low + 4);
        sfp__text_printf(t, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>", at, low + 17,
                         format_tick(f->fraction_x, i * step, step, f->x1, text));
    }
    sfp__text_printf(t, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">", WIDTH - f->right, HEIGHT - 4);
    sfp__put_html(t, name);
    sfp__text_put(t, "</text>");
}

/* ------------------------------------------------------------------- curves */

typedef struct bucket {
    double x, sum, low, high;
    int n;
} bucket;

/* Averages the points in at most `want` buckets of equal width. Returns the number of buckets that are not empty. */
static int fill_buckets(const sfp__series *c, const frame *f, int want, bucket *b)
{
    int used = 0, last = -1;
    want = want > MAX_BUCKETS ? MAX_BUCKETS : want;
    for (int i = 0; i < c->count; i++) {
        double y = c->y[i];
        if (!isfinite(y) || !isfinite(c->x[i]))
            continue;
        int k = (int)(c->x[i] / f->x1 * want);
        k = k >= want ? want - 1 : k < 0 ? 0 : k;
        if (used == 0 || k != last) {
            if (used == MAX_BUCKETS)
                break;
            b[used++] = (bucket){.low = y, .high = y};
            last = k;
        }
        bucket *now = &b[used - 1];
        now->n++;
        now->x += (c->x[i] - now->x) / now->n;
        now->sum += y;
        now->low = fmin(now->low, y);
        now->high = fmax(now->high, y);
    }
    return used;
}

static void put_band(sfp__text *t, const frame *f, int n, const bucket *b, const char *color)
{
    sfp__text_put(t, "<path d=\"");
    for (int i = 0; i < n; i++)
        sfp__text_printf(t, "%s%.1f,%.1f", i ? "L" : "M", frame_x(f, b[i].x), frame_y(f, b[i].high));
    for (int i = n - 1; i >= 0; i--)
        sfp__text_printf(t, "L%.1f,%.1f", frame_x(f, b[i].x), frame_y(f, b[i].low));
    sfp__text_printf(t, "Z\" style=\"fill:var(%s);fill-opacity:.16\"/>", color);
}

static void put_curve(sfp__text *t, const frame *f, const sfp__plot *p, int n, const bucket *b, const char *color)
{
    bool grouped = false;
    for (int i = 0; i < n; i++)
        grouped = grouped || b[i].n > 1;
    sfp__text_printf(t, "<g clip-path=\"url(#%s)\">", p->id);
    if (grouped)
        put_band(t, f, n, b, color);
    sfp__text_put(t, "<path class=\"curve\" d=\"");
    for (int i = 0; i < n; i++)
        sfp__text_printf(t, "%s%.1f,%.1f", i ? "L" : "M", frame_x(f, b[i].x), frame_y(f, b[i].sum / b[i].n));
    sfp__text_printf(t, "\" style=\"stroke:var(%s)\"/></g>", color);
}

static void put_level_line(sfp__text *t, const frame *f, const sfp__plot *p)
{
    double at = frame_y(f, p->line);
    sfp__text_printf(t, "<line class=\"level\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", f->left, WIDTH - f->right, at, at);
    sfp__text_printf(t, "<text class=\"tick halo\" x=\"%d\" y=\"%.1f\">", f->left + 6, at - 7);
    sfp__put_html(t, p->line_label);
    sfp__text_put(t, "</text>");
}

static void put_last_value(sfp__text *t, const frame *f, const sfp__plot *p, const sfp__series *s, const bucket *last)
{
    char text[SFP__SHORT];
    double x = frame_x(f, last->x), y = last->sum / last->n, at = fmin(fmax(frame_y(f, y), TOP), HEIGHT - BOTTOM);
    sfp__text_printf(t, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\" style=\"fill:var(%s)\"/>", x, at, s->color);
    sfp__text_printf(t, "<text class=\"value\" x=\"%.1f\" y=\"%.1f\" style=\"fill:var(%s)\">%s%s%s%s</text>", x + 7, at + 4,
                     s->color, s->name ? s->name : "", s->name ? " " : "",
                     p->fraction ? sfp__format_percent(y, text) : sfp__format_compact(y, text), p->fraction ? "" : p->unit);
}

bool sfp__plot_write(sfp__text *t, const sfp__plot *p)
{
    bucket b[SFP__PLOT_SERIES][MAX_BUCKETS];
    int n[SFP__PLOT_SERIES] = {0}, max_points = 0;
    frame f = {.left = LEFT, .right = p->series[0].name ? 104 : 58, .fraction_y = p->fraction};
    double top = isfinite(p->line) ? p->line : 0;
    for (int k = 0; k < p->count; k++)
        if (p->series[k].count && p->series[k].x[0] >= 0)
            f.x1 = fmax(f.x1, p->series[k].x[p->series[k].count - 1]);
    for (int k = 0; k < p->count && f.x1 > 1e-9; k++) {
        n[k] = p->series[k].count && p->series[k].x[0] >= 0 ? fill_buckets(&p->series[k], &f, p->buckets, b[k]) : 0;
        max_points = n[k] > max_points ? n[k] : max_points;
        for (int i = 0; i < n[k]; i++)
            top = fmax(top, b[k][i].sum / b[k][i].n); /* the curve of means stays inside the frame; the band may be clipped */
    }
    if (max_points < (p->single ? 1 : 2))
        return false;
    f.y1 = p->fraction ? 1 : top > 1e-9 ? top * 1.12 : 1;
    if (!p->fraction)
        f.y1 = ceil(f.y1 / nice_step(f.y1, 4)) * nice_step(f.y1, 4);
    double step = p->fraction ? 0.25 : nice_step(f.y1, 4);
    int margin = y_axis_margin(&f, step);
    f.left = margin > LEFT ? margin : LEFT;
    sfp__text_printf(t, "<h3>%s</h3>", p->title);
    sfp__text_printf(t, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s over %s\">", WIDTH, HEIGHT, p->title, p->across);
    sfp__text_printf(t, "<clipPath id=\"%s\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath>", p->id, f.left,
                     TOP - 8, WIDTH - f.left - f.right, HEIGHT - TOP - BOTTOM + 9);
    put_y_axis(t, &f, step);
    put_x_axis(t, &f, p->across);
    for (int k = 0; k < p->count; k++)
        if (n[k])
            put_curve(t, &f, p, n[k], b[k], p->series[k].color);
    if (isfinite(p->line))
        put_level_line(t, &f, p);
    for (int k = 0; k < p->count; k++)
        if (n[k])
            put_last_value(t, &f, p, &p->series[k], &b[k][n[k] - 1]);
    sfp__text_put(t, "</svg>");
    return true;
}

/* ---------------------------------------------------------------- calibration */

bool sfp__plot_calibration(sfp__text *t, const sfp_result *r)
{
    const frame f = {.left = LEFT, .right = 24 /* half of "100 %" */, .x1 = 1, .y1 = 1, .fraction_x = true, .fraction_y = true};
    const sfp__reliability *c = &r->calibration.bins;
    if (!isfinite(r->calibration.error))
        return false;
    sfp__text_printf(t,
                     "<svg viewBox=\"0 0 %d %d\" style=\"max-width:%dpx\" role=\"img\" aria-label=\"accuracy over confidence\">",
                     WIDTH, HEIGHT, WIDTH);
    put_y_axis(t, &f, 0.25);
    put_x_axis(t, &f, "confidence");
    for (int b = 0; b < SFP__RELIABILITY_BINS; b++) {
        double n = (double)c->count[b], accuracy = n > 0 ? (double)c->correct[b] / n : 0, width = 1.0 / SFP__RELIABILITY_BINS;
        double x = frame_x(&f, b * width), y = frame_y(&f, accuracy);
        if (n > 0)
            sfp__text_printf(
                t,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                "style=\"fill:var(--blue);fill-opacity:%.2f\"><title>%.0f predictions: confidence %.1f %%, accuracy %.1f "
                "%%</title></rect>",
                x + 1, y, frame_x(&f, (b + 1) * width) - x - 2, frame_y(&f, 0) - y, n < 20 ? 0.35 : 0.85, n,
                100 * c->confidence[b] / n, 100 * accuracy);
    }
    sfp__text_printf(t, "<line class=\"level\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/></svg>", frame_x(&f, 0),
                     frame_x(&f, 1), frame_y(&f, 0), frame_y(&f, 1));
    return true;
}

/* ---------------------------------------------------------- accuracy matrix */

static void put_matrix_cell(sfp__text *t, const sfp_result *r, int i, int j, double x, double y, double cell)
{
    char row[SFP__TITLE_SIZE], column[SFP__TITLE_SIZE];
    double a = r->accuracy[(size_t)i * (size_t)r->tasks + (size_t)j];
    if (isnan(a))
        return;
    sfp__text_printf(
        t,
        "<g><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\" style=\"fill:var(--heat);fill-opacity:%.3f\"/>",
        x + 1, y + 1, cell - 2, cell - 2, 0.05 + 0.95 * a);
    if (cell >= 24)
        sfp__text_printf(t, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" font-size=\"%d\">%.*f</text>",
                         0.05 + 0.95 * a > 0.65 ? "cell on" : "cell", x + cell / 2, y + cell / 2 + 5, cell >= 40 ? 14 : 11,
                         cell >= 40 ? 1 : 0, 100 * a);
    sfp__text_put(t, "<title>after ");
    sfp__put_html_cut(t, sfp__task_name(r, i, 60, row), 60);
    sfp__text_put(t, ", on ");
    sfp__put_html_cut(t, sfp__task_name(r, j, 60, column), 60);
    sfp__text_printf(t, ": %.2f %%</title></g>", 100 * a);
}

void sfp__plot_matrix(sfp__text *t, const sfp_result *r)
{
    char name[SFP__TITLE_SIZE];
    int n = r->tasks;
    double left = 132, cell = fmin(60, (WIDTH - left - 10) / n);
    bool slanted = cell < 56, labels = cell >= 12;
    for (int i = 0; i < n; i++)
        slanted = slanted || strlen(sfp__task_name(r, i, 60, name)) > 8;
    double top = slanted ? 88 : 42, width = left + cell * n + (slanted ? 60 : 10), height = top + cell * n + 8;
    sfp__text_printf(t, "<svg viewBox=\"0 0 %.0f %.0f\" style=\"max-width:%.0fpx\" role=\"img\" aria-label=\"accuracy matrix\">",
                     width, height, width);
    sfp__text_printf(t, "<text class=\"tick\" x=\"%.0f\" y=\"12\">accuracy (%%) on task</text>", left);
    sfp__text_printf(t, "<text class=\"tick\" x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">after task</text>", left - 8, top - 8);
    for (int i = 0; i < n; i++) {
        if (labels) {
            double x = left + cell * (i + 0.5), y = top + cell * (i + 0.5) + 4;
            sfp__text_printf(t, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", left - 8, y);
            sfp__put_html_cut(t, sfp__task_name(r, i, 18, name), 18);
            if (slanted)
                sfp__text_printf(t, "</text><text class=\"label\" transform=\"translate(%.1f,%.0f) rotate(-40)\">", x, top - 8);
            else
                sfp__text_printf(t, "</text><text class=\"label\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">", x, top - 10);
            sfp__put_html_cut(t, sfp__task_name(r, i, slanted ? 13 : 8, name), slanted ? 13 : 8);
            sfp__text_put(t, "</text>");
        }
        for (int j = 0; j < n; j++) {
            if (j > i)
                sfp__text_printf(t, "<rect class=\"void\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\"/>",
                                 left + cell * j + 1, top + cell * i + 1, cell - 2, cell - 2);
            else
                put_matrix_cell(t, r, i, j, left + cell * j, top + cell * i, cell);
        }
    }
    sfp__text_put(t, "</svg>");
}

/* --------------------------------------------------------------- time split */

void sfp__plot_time(sfp__text *t, const sfp_result *r)
{
    double total = r->seconds.total, sum = 0;
    struct {
        const char *name, *color, *ink; /* ink: the text colour, legible on `color` in both schemes */
        double seconds;
    } part[] = {{"waiting for data", "--grey", "--black", r->seconds.wait_seconds},
                {"select", "--sky", "--black", r->seconds.select},
                {r->samples.closed_form > 0 ? "closed form" : "train", "--blue", "--on", r->seconds.train},
                {"buffer", "--orange", "--black", r->seconds.buffer},
                {"evaluate", "--green", "--black", r->seconds.evaluate},
                {"other", "--faint", "--ink", 0}};
    int n = (int)(sizeof part / sizeof *part);
    char text[SFP__SHORT], share[SFP__SHORT];
    for (int i = 0; i < n; i++) {
        part[i].seconds = part[i].seconds > 0 ? part[i].seconds : 0; /* also replaces NAN */
        sum += part[i].seconds;
    }
    if (total > sum) {
        part[n - 1].seconds = total - sum;
        sum = total;
    }
    if (!(sum > 0))
        return;
    sfp__text_put(t, "<div class=\"bar\" role=\"img\" aria-label=\"where the time went\">");
    for (int i = 0; i < n; i++) {
        double width = 100 * part[i].seconds / sum;
        if (width <= 0)
            continue;
        bool fits = width > 2 + 1.6 * (double)strlen(part[i].name); /* also on the narrowest card in a row of two */
        sfp__text_printf(t, "<span style=\"width:%.3f%%;background:var(%s);color:var(%s)\" title=\"%s: %s\">%s</span>", width,
                         part[i].color, part[i].ink, part[i].name, sfp__format_seconds(part[i].seconds, text),
                         fits ? part[i].name : "");
    }
    sfp__text_put(t, "</div><ul class=\"key\">");
    for (int i = 0; i < n; i++) {
        if (part[i].seconds <= 0)
            continue;
        sfp__text_printf(t, "<li><i style=\"background:var(%s)\"></i>%s <b>%s</b> %s</li>", part[i].color, part[i].name,
                         sfp__format_seconds(part[i].seconds, text), sfp__format_percent(part[i].seconds / sum, share));
    }
    sfp__text_put(t, "</ul>");
    if (r->seconds.decode > 0)
        sfp__text_printf(t, "<p class=\"note\">Decoding images took %s more, on background threads.</p>",
                         sfp__format_seconds(r->seconds.decode, text));
}
