#include "report/drawing.h"

#include <math.h>
#include <stdio.h>

double sfp__nice_step(double range, int count)
{
    double raw = range / count, power = pow(10, floor(log10(raw))), m = raw / power;
    return power * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

double sfp__frame_x(const sfp__frame *f, double x)
{
    double share = f->log_x ? log(x / f->x0) / log(f->x1 / f->x0) : (x - f->x0) / (f->x1 - f->x0);
    return f->left + (f->width - f->left - f->right) * share;
}

double sfp__frame_y(const sfp__frame *f, double y)
{
    return f->height - f->bottom - (f->height - f->top - f->bottom) * (y - f->y0) / (f->y1 - f->y0);
}

/* ------------------------------------------------------------------------ axes */

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

int sfp__y_axis_margin(const sfp__frame *f, double step)
{
    char text[SFP__SHORT];
    double first = ceil(f->y0 / step - 1e-6);
    int max = 0;
    for (int i = 0; (first + i) * step <= f->y1 + 1e-4 * step; i++) {
        int width = sfp__text_width(format_tick(f->fraction_y, (first + i) * step, step, 0, text));
        max = width > max ? width : max;
    }
    return 8 + SFP__CHAR_WIDTH * max;
}

void sfp__put_y_axis(sfp__text *t, const sfp__frame *f, double step)
{
    char text[SFP__SHORT];
    double first = ceil(f->y0 / step - 1e-6);
    for (int i = 0; (first + i) * step <= f->y1 + 1e-4 * step; i++) {
        double y = (first + i) * step, at = sfp__frame_y(f, y);
        sfp__text_printf(t, "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", i > 0 ? "grid" : "axis", f->left,
                         f->width - f->right, at, at);
        sfp__text_printf(t, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>", f->left - 6, at + 4,
                         format_tick(f->fraction_y, y, step, 0, text));
    }
}

static void put_x_tick(sfp__text *t, const sfp__frame *f, double x, double step)
{
    char text[SFP__SHORT];
    double at = sfp__frame_x(f, x);
    int low = f->height - f->bottom;
    if (f->grid_x)
        sfp__text_printf(t, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", at, at, f->top, low);
    sfp__text_printf(t, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", at, at, low, low + 4);
    sfp__text_printf(t, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>", at, low + 17,
                     format_tick(f->fraction_x, x, step, f->x1, text));
}

static void put_log_ticks(sfp__text *t, const sfp__frame *f)
{
    static const double digit[] = {1, 2, 5};
    int count = f->x1 / f->x0 > 1100 ? 1 : 3; /* over more than three decades only powers of ten */
    for (double power = pow(10, floor(log10(f->x0))); power <= f->x1; power *= 10)
        for (int i = 0; i < count; i++)
            if (digit[i] * power >= f->x0 * (1 - 1e-9) && digit[i] * power <= f->x1 * (1 + 1e-9))
                put_x_tick(t, f, digit[i] * power, power);
}

static void put_x_name(sfp__text *t, const sfp__frame *f, const char *name)
{
    sfp__text_printf(t, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">", f->width - f->right, f->height - 4);
    sfp__put_html(t, name);
    sfp__text_put(t, "</text>");
}

void sfp__put_x_axis_at(sfp__text *t, const sfp__frame *f, const char *name, int n, const double *x)
{
    for (int i = 0; i < n; i++)
        put_x_tick(t, f, x[i], x[i] == floor(x[i]) ? 1 : 0);
    put_x_name(t, f, name);
}

void sfp__put_x_axis(sfp__text *t, const sfp__frame *f, const char *name)
{
    double step = sfp__nice_step(f->x1 - f->x0, 5), first = ceil(f->x0 / step - 1e-6);
    if (f->log_x && f->x1 / f->x0 >= 10)
        put_log_ticks(t, f);
    else
        for (int i = 0; (first + i) * step <= f->x1 + 1e-4 * step; i++)
            put_x_tick(t, f, (first + i) * step, step);
    put_x_name(t, f, name);
}

/* -------------------------------------------------------------------- drawings */

void sfp__drawing_begin(const sfp__drawing *d, int width, int height, const char *title, const char *description)
{
    if (d->file)
        sfp__text_put(d->out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" ");
    else if (title) {
        sfp__text_put(d->out, "<h3>");
        sfp__put_html(d->out, title);
        sfp__text_put(d->out, "</h3>");
    }
    sfp__text_printf(d->out, d->file ? "width=\"%d\" height=\"%d\" " : "<svg class=\"chart\" ", width, height);
    sfp__text_printf(d->out, "viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", width, height);
    sfp__put_html(d->out, description);
    sfp__text_put(d->out, "\">");
    if (!d->file)
        return;
    sfp__text_put(d->out, "<style>\n");
    sfp__put_drawing_style(d->out);
    sfp__text_put(d->out, "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>");
    if (title) {
        sfp__text_put(d->out, "<text class=\"name-of-chart\" x=\"12\" y=\"20\">");
        sfp__put_html_cut(d->out, title, 90);
        sfp__text_put(d->out, "</text>");
    }
}

void sfp__drawing_end(const sfp__drawing *d)
{
    sfp__text_put(d->out, d->file ? "</svg>\n" : "</svg>");
}

void sfp__put_color(const sfp__drawing *d, const char *color)
{
    if (d->file)
        sfp__put_light_color(d->out, color);
    else
        sfp__text_printf(d->out, "var(%s)", color);
}

const char *sfp__series_color(int k)
{
    static const char *const colors[] = {"--blue", "--orange", "--green", "--purple", "--sky", "--red", "--grey", "--ink"};
    return colors[k % (int)(sizeof colors / sizeof *colors)];
}
