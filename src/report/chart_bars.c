/* The bar chart. Every category is a block of horizontal bars, one per series. */
#include "report/chart_internal.h"

#include <math.h>
#include <string.h>

enum { CATEGORY_CHARS = 44, BLOCK_GAP = 10, LINE_HEIGHT = 14, RIGHT = 110, BOTTOM = 38 };

typedef struct bars {
    sfp__drawing d;
    const sfp__chart *c;
    sfp__frame f;
    int thickness;
} bars;

/* The pixel of a value, inside of the frame. */
static double place(const bars *b, double x)
{
    return sfp__frame_x(&b->f, fmin(fmax(x, b->f.x0), b->f.x1));
}

static void put_whisker(const bars *b, double low, double high, double middle)
{
    double from = place(b, low), to = place(b, high);
    sfp__text_printf(b->d.out, "<path class=\"whisker\" d=\"M%.1f,%.1fH%.1f", from, middle, to);
    sfp__chart_put_end(&b->d, from, middle, -1, 0, low < b->f.x0);
    sfp__chart_put_end(&b->d, to, middle, 1, 0, high > b->f.x1);
    sfp__text_put(b->d.out, "\"/>");
}

/* Writes bar i of series k; its upper edge is at y. */
static void put_bar(const bars *b, int k, int i, double y)
{
    const sfp__chart_series *s = &b->c->series[k];
    double middle = y + b->thickness / 2.0, half = sfp__chart_value(s->half, i), paper = sfp__chart_value(s->paper, i);
    double zero = place(b, 0), end = place(b, s->y[i]);
    sfp__text_put(b->d.out, "<g>");
    sfp__chart_tooltip(&b->d, b->c, s, i, b->c->category[i] ? b->c->category[i] : "");
    sfp__text_printf(b->d.out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" style=\"fill:", fmin(zero, end), y,
                     fmax(fabs(end - zero), 1), b->thickness - 1);
    sfp__put_color(&b->d, sfp__series_color(k));
    sfp__text_printf(b->d.out, "%s\"/>", k >= SFP__CHART_SERIES / 2 ? ";fill-opacity:.5" : "");
    double last = end;
    if (isfinite(half)) {
        put_whisker(b, s->y[i] - half, s->y[i] + half, middle - 0.5);
        last = fmax(last, place(b, s->y[i] + half));
    }
    if (isfinite(paper)) {
        sfp__chart_diamond(&b->d, place(b, paper), middle - 0.5);
        last = fmax(last, place(b, paper) + 5);
    }
    sfp__text_printf(b->d.out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" font-size=\"%d\">", last + 6, middle + 3.5,
                     b->thickness >= 13 ? 12 : 10);
    sfp__chart_put_value(&b->d, b->c, s, i);
    sfp__text_put(b->d.out, "</text></g>");
}

/* Returns the beginning of the second line of a name, behind the last blank, or better comma and blank, at which the first line is not
 * too long. NULL: the name has one line. */
static const char *find_second_line(const char *name)
{
    const char *blank = NULL, *comma = NULL;
    int used = 0;
    if (sfp__text_width(name) <= CATEGORY_CHARS)
        return NULL;
    for (const char *s = name; *s && used <= CATEGORY_CHARS; s++) {
        used += ((unsigned char)*s & 0xc0) != 0x80; /* not a byte that continues a character */
        blank = *s == ' ' ? s + 1 : blank;
        comma = *s == ' ' && s > name && s[-1] == ',' ? s + 1 : comma;
    }
    return comma ? comma : blank;
}

static bool has_two_lines(const sfp__chart *c)
{
    for (int i = 0; i < c->categories; i++)
        if (c->category[i] && find_second_line(c->category[i]))
            return true;
    return false;
}

static void put_label(const bars *b, const char *name, size_t length, double y)
{
    OWNED_BY(sfp__text_done) sfp__text line = {0};
    sfp__text_putn(&line, name, length);
    b->d.out->failed = b->d.out->failed || line.failed;
    sfp__text_printf(b->d.out, "<text class=\"label\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", b->f.left - 8, y);
    sfp__put_html_cut(b->d.out, line.s ? line.s : "", CATEGORY_CHARS);
    sfp__text_put(b->d.out, "</text>");
}

static void put_category(const bars *b, int i, double y)
{
    const char *name = b->c->category[i] ? b->c->category[i] : "", *second = find_second_line(name);
    double middle = y + b->c->count * b->thickness / 2.0, shift = second ? LINE_HEIGHT / 2.0 : 0;
    put_label(b, name, second ? (size_t)(second - name) - 1 : strlen(name), middle + 4 - shift);
    if (second)
        put_label(b, second, strlen(second), middle + 4 + shift);
    for (int k = 0; k < b->c->count; k++)
        if (sfp__chart_has_point(b->c, &b->c->series[k], i))
            put_bar(b, k, i, y + k * b->thickness);
}

static int left_margin(const sfp__chart *c)
{
    int max = 4;
    for (int i = 0; i < c->categories; i++) {
        const char *name = c->category[i] ? c->category[i] : "", *second = find_second_line(name);
        int lower = second ? sfp__text_width(second) : 0, upper = sfp__text_width(name) - lower;
        max = lower > max ? lower : max;
        max = upper > max ? upper : max;
    }
    return 16 + SFP__CHART_CHAR * (max < CATEGORY_CHARS ? max : CATEGORY_CHARS);
}

bool sfp__chart_bars(const sfp__chart *c, sfp__chart_form form, sfp__text *out)
{
    bars b = {.d = {out, form == SFP__CHART_FILE}, .c = c, .thickness = c->count == 1 ? 16 : c->count <= 4 ? 13 : 10};
    sfp__chart_range r;
    if (!sfp__chart_find_range(c, &r))
        return false;
    double low = fmin(0, r.low), high = fmax(r.high, 0), step = sfp__nice_step(high - low, 5);
    int legend = sfp__chart_legend(NULL, c, c->count > 1, 12, SFP__CHART_WIDTH - 12, 0);
    int title = c->title && b.d.file ? SFP__TITLE_HEIGHT : 0, block = c->count * b.thickness + BLOCK_GAP;
    int gap = has_two_lines(c) && block < 2 * LINE_HEIGHT + BLOCK_GAP / 2 ? 2 * LINE_HEIGHT + BLOCK_GAP / 2 - block : 0;
    block += gap;
    b.f = (sfp__frame){.width = SFP__CHART_WIDTH,
                       .left = left_margin(c),
                       .right = RIGHT,
                       .top = title + 12 + legend * SFP__CHART_LEGEND,
                       .bottom = BOTTOM,
                       .x0 = floor(low / step + 1e-9) * step,
                       .x1 = ceil(high / step - 1e-9) * step,
                       .y1 = 1,
                       .fraction_x = c->fraction,
                       .grid_x = true};
    b.f.height = b.f.top + c->categories * block + BOTTOM;
    sfp__drawing_begin(&b.d, b.f.width, b.f.height, c->title, c->title ? c->title : c->y_name);
    (void)sfp__chart_legend(&b.d, c, c->count > 1, 12, SFP__CHART_WIDTH - 12, title + 14);
    sfp__put_x_axis(out, &b.f, c->y_name);
    for (int i = 0; i < c->categories; i++)
        put_category(&b, i, b.f.top + (BLOCK_GAP + gap) / 2.0 + i * block);
    sfp__text_printf(out, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", place(&b, 0), place(&b, 0),
                     b.f.top, b.f.height - BOTTOM);
    sfp__drawing_end(&b.d);
    return true;
}
