#include "pretrain/report.h"

#include "base/axis.h"
#include "base/text.h"
#include "io/file.h"

#include <math.h>
#include <stddef.h>

enum { WIDTH = 560, HEIGHT = 220, LEFT = 48, RIGHT = 66, TOP = 12, BOTTOM = 34 };

static const char *const colors[] = {"#2a6fb0", "#c2571a", "#2c8a4b", "#8b4bb0"};

/* One line of a plot: where its number is in a point. */
typedef struct curve {
    const char *name;
    size_t offset;
} curve;

typedef struct plot {
    const char *title;
    double scale; /* shown = value * scale */
    int count;
    curve curves[SFP_TERMS];
} plot;

static double value_of(const sfp_log_point *p, const curve *c)
{
    return *(const double *)(const void *)((const char *)p + c->offset);
}

typedef struct frame {
    double x1, y1; /* both axes begin at 0 */
} frame;

static double place_x(const frame *f, double x)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * x / f->x1;
}

static double place_y(const frame *f, double y)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / f->y1;
}

static void put_axes(sfp_text *t, const frame *f)
{
    double step = sfp__nice_step(f->y1, 4);
    for (double y = 0; y <= f->y1 * 1.0001; y += step)
        sfp__text_printf(t,
                         "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                         "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>",
                         LEFT, WIDTH - RIGHT, place_y(f, y), place_y(f, y), LEFT - 6, place_y(f, y) + 4, y);
    step = sfp__nice_step(f->x1, 5);
    for (double x = 0; x <= f->x1 * 1.0001; x += step)
        sfp__text_printf(t, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g</text>", place_x(f, x), HEIGHT - BOTTOM + 17,
                         x);
    sfp__text_printf(t, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">epochs</text>", WIDTH - RIGHT, HEIGHT - 3);
}

static void put_curve(sfp_text *t, const frame *f, const sfp_log *log, const plot *p, const curve *c, const char *color)
{
    const sfp_log_point *last = NULL;
    sfp__text_printf(t, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" d=\"", color);
    for (size_t i = 0; i < log->count; i++) {
        double y = value_of(&log->point[i], c);
        if (!isfinite(y) || !isfinite(log->point[i].epoch))
            continue;
        sfp__text_printf(t, "%s%.1f,%.1f", last ? "L" : "M", place_x(f, log->point[i].epoch), place_y(f, y * p->scale));
        last = &log->point[i];
    }
    sfp__text_put(t, "\"/>");
    if (last)
        sfp__text_printf(t, "<text x=\"%.1f\" y=\"%.1f\" style=\"fill:%s\">%s %.3g</text>", place_x(f, last->epoch) + 5,
                         place_y(f, value_of(last, c) * p->scale) + 4, color, c->name, value_of(last, c) * p->scale);
}

static void put_plot(sfp_text *t, const sfp_log *log, const plot *p)
{
    frame f = {0};
    for (size_t i = 0; i < log->count; i++)
        for (int k = 0; k < p->count; k++) {
            double y = value_of(&log->point[i], &p->curves[k]) * p->scale;
            if (!isfinite(y) || !isfinite(log->point[i].epoch))
                continue;
            f.x1 = fmax(f.x1, log->point[i].epoch);
            f.y1 = fmax(f.y1, y);
        }
    if (!(f.x1 > 1e-30) || !(f.y1 > 1e-30))
        return; /* nothing was noted, or what no axis has steps for */
    sfp__text_printf(t, "<h2>%s</h2><svg viewBox=\"0 0 %d %d\" width=\"%d\" role=\"img\" aria-label=\"%s\">", p->title, WIDTH,
                     HEIGHT, WIDTH, p->title);
    put_axes(t, &f);
    for (int k = 0; k < p->count; k++)
        put_curve(t, &f, log, p, &p->curves[k], colors[k]);
    sfp__text_put(t, "</svg>\n");
}

sfp_status sfp__pretrain_report(const char *path, const sfp_log *log, sfp_error *err)
{
    static const plot plots[] = {
        {"Score on pictures kept apart, %",
         100,
         2,
         {{"ncm", offsetof(sfp_log_point, ncm)}, {"knn", offsetof(sfp_log_point, knn)}}},
        {"Loss, class probabilities and labels",
         1,
         2,
         {{"logits", offsetof(sfp_log_point, loss[SFP_TERM_LOGITS])}, {"label", offsetof(sfp_log_point, loss[SFP_TERM_LABEL])}}},
        {"Loss, tokens",
         1,
         2,
         {{"class", offsetof(sfp_log_point, loss[SFP_TERM_CLASS])}, {"patch", offsetof(sfp_log_point, loss[SFP_TERM_PATCH])}}},
        {"Learning rate", 1, 1, {{"lr", offsetof(sfp_log_point, lr)}}},
        {"Pictures a second", 1, 1, {{"img/s", offsetof(sfp_log_point, images_per_second)}}},
    };
    sfp_text t = {0};
    sfp__text_put(
        &t,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"
        "<title>streamfp pretrain</title><style>body{font:15px system-ui,sans-serif;margin:2em auto;max-width:42em;"
        "padding:0 1em;color-scheme:light dark}h2{font-size:1em;margin:1.6em 0 .2em}svg{max-width:100%}svg text{font-size:11px;"
        "fill:currentColor}.grid{stroke:currentColor;stroke-opacity:.15}</style><h1>Pretraining</h1>\n");
    if (log->count) {
        const sfp_log_point *p = &log->point[log->count - 1];
        sfp__text_printf(&t, "<p>%llu steps, %.2f epochs, %.0f seconds.</p>\n", (unsigned long long)p->step, p->epoch,
                         p->seconds);
    }
    for (size_t i = 0; i < sizeof plots / sizeof *plots; i++)
        put_plot(&t, log, &plots[i]);
    sfp__text_put(&t, "</html>\n");
    sfp_status s = t.failed ? sfp__fail_nomem(err) : sfp__file_write(path, t.s, t.length, err);
    sfp__text_done(&t);
    return s;
}
