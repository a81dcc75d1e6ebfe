/* The report's figures about classes: the confusion matrix and the accuracy by class. Correct predictions are blue, wrong ones
 * orange. */
#include "report/report_internal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define MATRIX_CLASSES 100 /* with more classes, the confusion matrix is omitted */
#define ROWS_CLASSES 60    /* with more classes, only the EXTREMES highest and lowest accuracies have rows */
#define EXTREMES 12
#define TOP_CONFUSIONS 6

static uint64_t confusion_count(const sfp_result *r, int truth, int answer)
{
    return r->confusion[(size_t)truth * (size_t)r->classes + (size_t)answer];
}

static bool has_test_samples(const sfp_result *r)
{
    size_t n = r->confusion ? (size_t)r->classes * (size_t)r->classes : 0;
    for (size_t i = 0; i < n; i++)
        if (r->confusion[i])
            return true;
    return false;
}

/* ---------------------------------------------------------- confusion matrix */

static void put_cell(sfp__text *t, const sfp_result *r, int i, int k, double tested, double x, double y, double size)
{
    char name[SFP__SHORT];
    uint64_t n = confusion_count(r, i, k);
    double share = (double)n / tested, shade = 0.07 + 0.93 * share;
    if (n == 0)
        return;
    sfp__text_printf(t,
                     "<g><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" style=\"fill:var(%s);fill-opacity:%.3f\"/>",
                     x + 0.5, y + 0.5, size - 1, size - 1, i == k ? "--heat" : "--wrong", shade);
    if (size >= 26 && share >= 0.01)
        sfp__text_printf(t, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" font-size=\"11\">%.0f</text>",
                         shade > 0.65 ? "cell on" : "cell", x + size / 2, y + size / 2 + 4, 100 * share);
    sfp__text_put(t, "<title>");
    sfp__put_html_cut(t, sfp__class_name(r, i, name), 60);
    sfp__text_put(t, i == k ? " predicted correctly: " : " predicted as ");
    if (i != k) {
        sfp__put_html_cut(t, sfp__class_name(r, k, name), 60);
        sfp__text_put(t, ": ");
    }
    sfp__text_printf(t, "%" PRIu64 " of %.0f (%.1f %%)</title></g>", n, tested, 100 * share);
}

/* Lists the most frequent confusions in a sentence. */
static void put_top_confusions(sfp__text *t, const sfp_result *r)
{
    sfp__confusion_pair top[TOP_CONFUSIONS];
    int found = sfp__top_confusions(r->classes, r->confusion, TOP_CONFUSIONS, top);
    if (!found)
        return;
    char name[SFP__SHORT], share[SFP__SHORT];
    sfp__text_put(t, "<p class=\"note\">Most frequent confusions: ");
    for (int i = 0; i < found; i++) {
        sfp__text_put(t, i ? "; <b>" : "<b>");
        sfp__put_html_cut(t, sfp__class_name(r, top[i].truth, name), 40);
        sfp__text_put(t, "</b> predicted as <b>");
        sfp__put_html_cut(t, sfp__class_name(r, top[i].answer, name), 40);
        uint64_t tested;
        (void)sfp__result_class_accuracy(r, top[i].truth, &tested);
        if (top[i].count == 1)
            sfp__text_put(t, "</b> once");
        else
            sfp__text_printf(t, "</b> %" PRIu64 " times", top[i].count);
        sfp__text_printf(t, " (%s)", sfp__format_percent((double)top[i].count / (double)tested, share));
    }
    sfp__text_put(t, ".</p>");
}

bool sfp__plot_confusion(sfp__text *t, const sfp_result *r)
{
    char name[SFP__SHORT];
    int n = r->classes;
    if (n < 2 || !has_test_samples(r))
        return false;
    if (n > MATRIX_CLASSES) {
        put_top_confusions(t, r);
        return true;
    }
    double left = 150, top = 108, size = fmin(54, 780.0 / n), width = left + size * n + 80, height = top + size * n + 6;
    bool labels = size >= 9;
    if (!labels)
        left = top = 24;
    double font = size >= 12 ? 12 : size;
    sfp__text_printf(t, "<svg viewBox=\"0 0 %.0f %.0f\" style=\"max-width:%.0fpx\" role=\"img\" aria-label=\"confusion matrix\">",
                     width, height, width);
    sfp__text_printf(t, "<text class=\"tick\" x=\"%.0f\" y=\"12\">predicted class</text>", left);
    sfp__text_printf(t, "<text class=\"tick\" x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">%s</text>", left - 8, top - 8,
                     labels ? "true class" : "");
    sfp__text_printf(t, "<rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", left, top, size * n,
                     size * n);
    for (int i = 0; i < n; i++) {
        uint64_t tested;
        (void)sfp__result_class_accuracy(r, i, &tested);
        if (labels) {
            sfp__text_printf(t, "<text class=\"label\" font-size=\"%.1f\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", font,
                             left - 8, top + size * (i + 0.5) + font / 3);
            sfp__put_html_cut(t, sfp__class_name(r, i, name), 20);
            sfp__text_printf(t, "</text><text class=\"label\" font-size=\"%.1f\" transform=\"translate(%.1f,%.1f) rotate(-50)\">",
                             font, left + size * (i + 0.5) + font / 3, top - 6);
            sfp__put_html_cut(t, sfp__class_name(r, i, name), 16);
            sfp__text_put(t, "</text>");
        }
        for (int k = 0; tested && k < n; k++)
            put_cell(t, r, i, k, (double)tested, left + size * k, top + size * i, size);
    }
    sfp__text_put(t, "</svg>");
    put_top_confusions(t, r);
    return true;
}

/* ------------------------------------------------------------------ by class */

typedef struct class_row {
    int c;
    double accuracy;
    uint64_t tested;
} class_row;

static int compare_accuracy(const void *a, const void *b)
{
    const class_row *x = a, *y = b;
    if (x->accuracy != y->accuracy)
        return x->accuracy > y->accuracy ? -1 : 1;
    return x->c < y->c ? -1 : 1;
}

static void put_class_row(sfp__text *t, const sfp_result *r, const class_row *c)
{
    char name[SFP__SHORT], share[SFP__SHORT], count[SFP__SHORT];
    sfp__text_put(t, "<li><span class=\"name\" title=\"");
    sfp__put_html(t, sfp__class_name(r, c->c, name));
    sfp__text_put(t, "\">");
    sfp__put_html(t, sfp__class_name(r, c->c, name));
    sfp__text_printf(t, "</span><span class=\"track\"><i style=\"width:%.2f%%\"></i></span><b>%s</b><small>of %s</small></li>",
                     100 * c->accuracy, sfp__format_percent(c->accuracy, share), sfp__format_count((double)c->tested, count));
}

static void put_class_rows(sfp__text *t, const sfp_result *r, const char *title, const class_row *c, int n)
{
    if (title)
        sfp__text_printf(t, "<h3>%s</h3>", title);
    sfp__text_put(t, "<ul class=\"classes\">");
    for (int i = 0; i < n; i++)
        put_class_row(t, r, &c[i]);
    sfp__text_put(t, "</ul>");
}

/* Draws the sorted accuracies of many classes as one outline. */
static void put_outline(sfp__text *t, const class_row *c, int n)
{
    enum { W = 1000, H = 170, L = 46, T = 8, B = 24 };
    sfp__text_printf(t, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"accuracy by class, sorted\">", W, H);
    for (int i = 0; i <= 4; i++) {
        double y = T + (H - T - B) * (1 - i / 4.0);
        sfp__text_printf(t, "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", i ? "grid" : "axis", L, W, y, y);
        sfp__text_printf(t, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d %%</text>", L - 6, y + 4, 25 * i);
    }
    sfp__text_printf(t, "<path style=\"fill:var(--blue);fill-opacity:.75\" d=\"M%d,%d", L, H - B);
    double step = (double)(W - L) / n;
    for (int i = 0; i < n; i++) {
        double y = T + (H - T - B) * (1 - c[i].accuracy);
        sfp__text_printf(t, "L%.1f,%.1fL%.1f,%.1f", L + step * i, y, L + step * (i + 1), y);
    }
    sfp__text_printf(
        t, "L%d,%dZ\"/><text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%d classes, best to worst</text></svg>", W,
        H - B, W, H - 6, n);
}

bool sfp__plot_classes(sfp__text *t, const sfp_result *r)
{
    int n = 0;
    if (r->classes < 1 || !has_test_samples(r))
        return false;
    OWNED class_row *all = sfp__malloc((size_t)r->classes * sizeof *all);
    if (!all) {
        t->failed = true;
        return false;
    }
    for (int c = 0; c < r->classes; c++) {
        class_row one = {.c = c};
        one.accuracy = sfp__result_class_accuracy(r, c, &one.tested);
        if (one.tested)
            all[n++] = one;
    }
    qsort(all, (size_t)n, sizeof *all, compare_accuracy);
    if (n <= ROWS_CLASSES) {
        put_class_rows(t, r, NULL, all, n);
    } else {
        put_outline(t, all, n);
        put_class_rows(t, r, "Highest accuracies", all, EXTREMES);
        put_class_rows(t, r, "Lowest accuracies", all + n - EXTREMES, EXTREMES);
    }
    return true;
}
