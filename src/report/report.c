/* report.html: one page, no file and no script beside it. A policy in its head forbids scripts and anything from elsewhere, so
 * that a class called <script> is only a strange name even if the escaping failed. */
#include "report/report_internal.h"

#include "base/mem.h"
#include "io/file.h"
#include "learner/settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------ style */

/* Okabe and Ito's colours, told apart with any colour vision; lighter ones on dark. */
static const char light[] =
    "--page:#f6f6f4;--card:#fff;--ink:#1c1e21;--soft:#5c6167;--rule:#dfe1e3;--grid:#ebecee;--void:#f3f4f5;"
    "--blue:#0067a3;--heat:#005b94;--on:#fff;--wrong:#c04f00;--sky:#56b4e9;--orange:#e69f00;--green:#009e73;"
    "--purple:#a8477b;--red:#c04f00;--grey:#9aa0a6;--faint:#d5d8db;--black:#0d1216;color-scheme:light;";
static const char dark[] =
    "--page:#15171a;--card:#1e2124;--ink:#e9eaec;--soft:#a4aab1;--rule:#34383d;--grid:#2b2f33;--void:#23272a;"
    "--blue:#5fb6ee;--heat:#62b8f0;--on:#0d1216;--wrong:#f28a3d;--sky:#9ad4f7;--orange:#f0b63c;--green:#35c79b;"
    "--purple:#dc8fb8;--red:#f28a3d;--grey:#858c94;--faint:#454a50;--black:#0d1216;color-scheme:dark;";

static const char style[] =
    "*{box-sizing:border-box}"
    "html{-webkit-print-color-adjust:exact;print-color-adjust:exact}"
    "body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu "
    "Sans',sans-serif}"
    "main{max-width:1120px;margin:0 auto;padding:28px 20px 48px}"
    "h1{font-size:26px;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}h2{font-size:17px;margin:0 0 2px}"
    "h3{font-size:13px;font-weight:600;margin:14px 0 2px}"
    ".lead{max-width:78ch;margin:10px 0 "
    "0;overflow-wrap:anywhere}.soft,.note,.what{color:var(--soft)}.note,.what{font-size:13px;margin:2px 0 8px}"
    "code{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
    ".warn{border-left:4px solid var(--wrong);background:var(--card);padding:8px 14px;margin:14px 0}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(158px,1fr));gap:12px;margin:20px 0}"
    ".tiles div,.card{background:var(--card);border:1px solid var(--rule);border-radius:8px}"
    ".tiles div{padding:10px 14px}.tiles dt{font-size:13px;color:var(--soft)}.tiles "
    "dd{margin:0;font-size:25px;font-weight:650;line-height:1.25;"
    "font-variant-numeric:tabular-nums}.tiles small{display:block;font-size:12px;font-weight:400;color:var(--soft)}"
    ".two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:12px;align-items:start}.card{"
    "padding:14px 18px 16px;margin:0 0 12px;"
    "break-inside:avoid}.two .card:last-child{margin:0}.two{margin-bottom:12px}.card .two{margin:0}"
    "svg{display:block;width:100%;height:auto;font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    ".tick,.label{fill:var(--soft)}.label{fill:var(--ink)}.value{font-weight:650}.cell{fill:var(--ink);text-anchor:middle}.on{"
    "fill:var(--on)}"
    ".grid{stroke:var(--grid)}.axis{stroke:var(--soft);stroke-opacity:.6}.level{stroke:var(--ink);stroke-dasharray:6 4}"
    ".halo{paint-order:stroke;stroke:var(--card);stroke-width:5px;stroke-linejoin:round}sub{line-height:0}"
    ".curve{fill:none;stroke-width:2;stroke-linejoin:round}.void{fill:var(--void)}.frame{fill:none;stroke:var(--rule)}"
    ".bar{display:flex;height:34px;border-radius:5px;overflow:hidden;margin:8px 0}.bar "
    "span{font-size:12.5px;line-height:34px;text-indent:8px;" /* no padding: a piece is as wide as its share */
    "white-space:nowrap;overflow:hidden;min-width:1px}"
    ".key{list-style:none;margin:0;padding:0;display:flex;flex-wrap:wrap;gap:2px 22px;font-size:13px}.key "
    "i{display:inline-block;width:11px;height:11px;"
    "border-radius:2px;margin-right:6px}"
    ".classes{list-style:none;margin:8px 0 0;padding:0;columns:2 420px;column-gap:36px;font-size:13px}.classes li{display:grid;"
    "grid-template-columns:minmax(0,130px) 1fr 66px 62px;gap:8px;align-items:center;break-inside:avoid;padding:1px 0}"
    ".classes b{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}.classes small{color:var(--soft)}"
    ".name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}.track{background:var(--void);height:12px;border-radius:2px}"
    ".track i{display:block;height:12px;background:var(--blue);border-radius:2px}"
    ".sheet{list-style:none;margin:4px 0;padding:0;display:flex;flex-wrap:wrap;gap:5px}.sheet li{width:48px}"
    ".sheet i{display:block;width:48px;height:48px;border-radius:3px}.sheet "
    "small{display:block;font-size:10px;line-height:1.3;color:var(--soft);overflow:hidden;"
    "text-overflow:ellipsis;white-space:nowrap}"
    ".yes li,.no li{width:54px}.yes i,.no i{border:3px "
    "solid;width:54px;height:54px;background-origin:content-box;background-clip:content-box}"
    ".yes i{border-color:var(--blue)}.no i{border-color:var(--faint)}.sheet "
    "u{display:block;height:3px;background:var(--purple);margin-top:2px;min-width:1px}"
    ".shelf{display:flex;flex-wrap:wrap;gap:8px 26px;font-size:13px}.shelf>div{break-inside:avoid;max-width:100%}.shelf "
    ".name{max-width:30ch}.shelf small{color:var(--soft)}"
    "table{border-collapse:collapse;font-size:13px}td,th{padding:3px 18px 3px "
    "0;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid);"
    "overflow-wrap:anywhere}summary{cursor:pointer;font-weight:650}details table{margin-top:10px}.changed td{font-weight:650}"
    "footer{color:var(--soft);font-size:13px;margin-top:18px}"
    "@media print{body{background:#fff;font-size:12px}main{padding:0;max-width:none}.two{grid-template-columns:1fr "
    "1fr}h2{break-after:avoid}}";

static void head(sfp_text *t, const sfp_result *r)
{
    const char *data = sfp__result_value(r, "data");
    sfp__text_put(
        t,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>streamfp: ");
    sfp__put_html_cut(t, data && *data ? data : "a run", 80);
    sfp__text_put(t, "</title><style>:root{");
    sfp__text_put(t, light);
    sfp__text_put(t, "}@media screen and (prefers-color-scheme:dark){:root{");
    sfp__text_put(t, dark);
    sfp__text_put(t, "}}");
    sfp__text_put(t, style);
    sfp__text_put(t, "</style></head><body><main>\n");
}

/* ------------------------------------------------------------------------ words */

/* "": it has none; NULL: not known */
static const char *default_of(const sfp_pair *p)
{
    if (p->fallback)
        return p->fallback;
    for (int i = 0; i < sfp__settings_count; i++)
        if (strcmp(sfp__settings[i].info.key, p->key) == 0)
            return sfp__settings[i].info.fallback;
    return NULL;
}

/* false also when the default is not known; an option that has none was given */
static bool differs(const sfp_pair *p)
{
    const char *fallback = default_of(p);
    return fallback && strcmp(fallback, p->value) != 0;
}

/* Said elsewhere on the page, or no matter of what was learned. */
static bool said_elsewhere(const char *key)
{
    static const char *const keys[] = {"data",    "test",   "backbone", "seed",   "out",
                                       "threads", "resume", "json",     "config", "classes"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static void code(sfp_text *t, const char *s)
{
    sfp__text_put(t, "<code>");
    sfp__put_html(t, s);
    sfp__text_put(t, "</code>");
}

static void options_that_differ(sfp_text *t, const sfp_result *r)
{
    int n = 0, unknown = 0;
    for (int i = 0; i < r->config_count; i++) {
        const sfp_pair *p = &r->config[i];
        if (said_elsewhere(p->key))
            continue;
        unknown += !default_of(p);
        if (!differs(p))
            continue;
        sfp__text_put(t, n++ ? ", <code>" : " Options that differ from the defaults: <code>");
        sfp__put_html(t, p->key);
        sfp__text_put(t, " ");
        sfp__put_html(t, *p->value ? p->value : "(empty)");
        sfp__text_put(t, "</code>");
    }
    sfp__text_put(t, n ? "." : unknown ? "" : " All other options are at their defaults.");
}

static void lead(sfp_text *t, const sfp_result *r)
{
    char method[64], a[SFP_SHORT];
    const char *data = sfp__result_value(r, "data"), *test = sfp__result_value(r, "test"),
               *backbone = sfp__result_value(r, "backbone");
    sfp__result_method(r, method, sizeof method);
    sfp__text_put(t, "<header><h1>");
    sfp__put_html(t, *method ? method : "A run");
    sfp__text_put(t, " on ");
    sfp__put_html_cut(t, data && *data ? data : "a stream", 120);
    sfp__text_put(t, "</h1><div class=\"soft\">started ");
    sfp__put_html(t, *r->started ? r->started : "at a time not recorded");
    sfp__text_printf(t, " &#183; seed %" PRIu64 " &#183; streamfp %s</div>\n<p class=\"lead\">", r->seed, sfp_version());
    sfp__text_printf(t, "A stream of %s samples", sfp__say_count((double)r->samples.offered, a));
    sfp__text_printf(t, " of %d class%s in %d task%s", r->classes, r->classes == 1 ? "" : "es", r->tasks,
                     r->tasks == 1 ? "" : "s");
    if (test && *test) {
        sfp__text_put(t, ", tested on ");
        code(t, test);
    }
    if (backbone && *backbone) {
        sfp__text_put(t, ", learned with the frozen backbone ");
        code(t, backbone);
    }
    sfp__text_printf(t, ". It was trained on %s of them", sfp__say_count((double)r->samples.trained, a));
    sfp__text_printf(t, " and rehearsed %s", sfp__say_count((double)r->samples.replayed, a));
    if (r->samples.dropped)
        sfp__text_printf(t, "; %s arrived too fast and were dropped", sfp__say_count((double)r->samples.dropped, a));
    if (r->samples.skipped)
        sfp__text_printf(t, "; %s could not be read", sfp__say_count((double)r->samples.skipped, a));
    if (r->labels.unlabelled)
        sfp__text_printf(t, "; %s came without a label", sfp__say_count((double)r->labels.unlabelled, a));
    if (r->labels.late)
        sfp__text_printf(t, ", %s of which got one later", sfp__say_count((double)r->labels.late, a));
    sfp__text_printf(t, ". It took %s on ", sfp__say_seconds(r->seconds.total, a));
    sfp__put_html(t, *r->machine.cpu ? r->machine.cpu : "a machine not recorded");
    sfp__text_printf(t, " with %d thread%s", r->machine.threads, r->machine.threads == 1 ? "" : "s");
    if (*r->machine.kernels || *r->machine.gemm) {
        sfp__text_put(t, " (");
        sfp__put_html(t, r->machine.kernels);
        sfp__text_put(t, *r->machine.kernels && *r->machine.gemm ? ", " : "");
        sfp__put_html(t, r->machine.gemm);
        sfp__text_put(t, ")");
    }
    sfp__text_put(t, ".");
    options_that_differ(t, r);
    sfp__text_put(t, "</p></header>\n");
    if (!r->finished)
        sfp__text_printf(t, "<p class=\"warn\">This run is not finished: %d of %d tasks were evaluated.</p>\n", r->tasks_done,
                         r->tasks);
}

/* ------------------------------------------------------------------------ tiles */

static void tile(sfp_text *t, const char *name, const char *value, const char *note)
{
    sfp__text_printf(t, "<div><dt>%s</dt><dd>%s<small>%s</small></dd></div>", name, value, note);
}

/* What each head of a mixed one would have answered without the others. */
static void head_tiles(sfp_text *t, const sfp_result *r)
{
    char name[SFP_SHORT], a[SFP_SHORT];
    for (int h = 0; r->heads && h < SFP_RESULT_HEADS; h++) {
        const double *alone = r->heads + (size_t)h * (size_t)r->tasks * (size_t)r->tasks; /* (tasks, tasks) */
        (void)snprintf(name, sizeof name, "%s alone", sfp__result_head_names[h]);
        tile(t, name, sfp__say_percent(sfp__average_accuracy(r->tasks, r->tasks_done, alone), a),
             "average accuracy of this head");
    }
}

static void tiles(sfp_text *t, const sfp_result *r)
{
    char a[SFP_SHORT], b[SFP_SHORT], note[128];
    sfp__text_put(t, "<dl class=\"tiles\">");
    (void)snprintf(note, sizeof note, "after %d of %d task%s", r->tasks_done, r->tasks, r->tasks == 1 ? "" : "s");
    tile(t, "Average accuracy", sfp__say_percent(r->average_accuracy, a), note);
    head_tiles(t, r);
    if (isfinite(r->forgetting)) {
        (void)snprintf(note, sizeof note, "backward transfer %+.1f points", sfp__no_minus_zero(100 * r->backward_transfer, 1));
        tile(t, "Forgetting", sfp__say_percent(r->forgetting, a), note);
    }
    if (isfinite(r->prequential_accuracy))
        tile(t, "Prequential accuracy", sfp__say_percent(r->prequential_accuracy, a), "tested before trained on");
    (void)snprintf(note, sizeof note, "of %s offered", sfp__say_count((double)r->samples.offered, b));
    tile(t, "Trained on", sfp__say_count((double)r->samples.trained, a), note);
    if (isfinite(r->samples_per_second)) {
        (void)snprintf(note, sizeof note, isfinite(r->lambda) ? "samples/s; %s/s arrive" : "samples/s%s",
                       isfinite(r->lambda) ? sfp__say_compact(r->lambda, b) : "");
        tile(t, "Speed", sfp__say_compact(r->samples_per_second, a), note);
    }
    if (isfinite(r->lag.max)) {
        (void)snprintf(note, sizeof note, "mean lag %s", sfp__say_seconds(r->lag.mean, b));
        tile(t, "Largest lag", sfp__say_seconds(r->lag.max, a), note);
    }
    if (isfinite(r->cs)) {
        (void)snprintf(a, sizeof a, "%.3g", r->cs);
        tile(t, "C<sub>S</sub>", a, "cost over time between arrivals");
    }
    if (isfinite(r->coverage))
        tile(t, "Class coverage", sfp__say_percent(r->coverage, a), "classes trained on, of those offered");
    tile(t, "Peak memory", sfp__say_bytes((double)r->peak_rss_bytes, a), "of the whole process");
    sfp__text_put(t, "</dl>\n");
}

/* --------------------------------------------------------------------- sections */

static void card(sfp_text *t, const char *title, const char *what)
{
    sfp__text_printf(t, "<section class=\"card\"><h2>%s</h2>", title);
    sfp__text_put(t, "<p class=\"what\">");
    sfp__text_put(t, what);
    sfp__text_put(t, "</p>");
}

/* The evaluations as a curve: the mean over the tasks so far. */
static bool tested(sfp_text *t, const sfp_result *r)
{
    sfp_curve c = {0};
    bool ok = true;
    for (int i = 0; ok && i < r->evaluation_count; i++)
        ok = sfp__curve_add(&c, (double)r->evaluations[i].offered, r->evaluations[i].average, NULL) == SFP_OK;
    bool drawn = ok && sfp__plot_curve(t, &c,
                                       &(sfp_plot){.id = "c5",
                                                   .title = "accuracy on the test set, mean of the tasks so far",
                                                   .color = "--blue",
                                                   .fraction = true,
                                                   .buckets = 300,
                                                   .unit = "",
                                                   .line = NAN});
    t->failed = t->failed || !ok;
    sfp__free(c.x);
    sfp__free(c.y);
    return drawn;
}

static bool has_point(const sfp_curve *c)
{
    for (int i = 0; i < c->count; i++)
        if (isfinite(c->y[i]))
            return true;
    return false;
}

static void learning(sfp_text *t, const sfp_result *r)
{
    card(t, "Learning",
         "Prequential: each sample is answered before it is trained on. Bands show the range of what a point averages.");
    bool any = sfp__plot_curve(t, &r->curve[SFP_CURVE_PREQUENTIAL],
                               &(sfp_plot){.id = "c1",
                                           .title = "prequential accuracy so far",
                                           .color = "--blue",
                                           .fraction = true,
                                           .buckets = 300,
                                           .unit = "",
                                           .line = NAN});
    any |= tested(t, r);
    any |= sfp__plot_curve(
        t, &r->curve[SFP_CURVE_LOSS],
        &(sfp_plot){.id = "c2", .title = "training loss", .color = "--red", .buckets = 90, .unit = "", .line = NAN});
    if (!any)
        sfp__text_printf(t, "<p class=\"note\">%s</p>",
                         has_point(&r->curve[SFP_CURVE_PREQUENTIAL]) || has_point(&r->curve[SFP_CURVE_LOSS])
                             ? "Too few timestamps for a curve."
                             : "Nothing was recorded.");
    sfp__text_put(t, "</section>\n");
}

static void rate_and_lag(sfp_text *t, const sfp_result *r)
{
    char label[64], rate[SFP_SHORT];
    sfp_text part = {0};
    (void)snprintf(label, sizeof label, "arrival rate %s/s", sfp__say_compact(r->lambda, rate));
    sfp__text_put(&part, "<div>");
    bool any = sfp__plot_curve(&part, &r->curve[SFP_CURVE_RATE],
                               &(sfp_plot){.id = "c3",
                                           .title = "samples learned a second",
                                           .color = "--green",
                                           .buckets = 120,
                                           .unit = "/s",
                                           .line = r->lambda,
                                           .line_label = label});
    sfp__text_put(&part, "</div><div>");
    any |= sfp__plot_curve(&part, &r->curve[SFP_CURVE_LAG],
                           &(sfp_plot){.id = "c4",
                                       .title = "lag behind arrival, in seconds",
                                       .color = "--purple",
                                       .buckets = 200,
                                       .unit = " s",
                                       .line = NAN});
    if (any) {
        card(t, "Rate and lag",
             isfinite(r->lambda)
                 ? "While the curve is below the dashed line the learner falls behind: lag grows, or samples are dropped."
                 : "No arrival rate was set: every batch waits for the learner.");
        sfp__text_put(t, "<div class=\"two\">");
        sfp__text_putn(t, part.s ? part.s : "", part.length);
        sfp__text_put(t, "</div></div></section>\n");
    }
    t->failed = t->failed || part.failed;
    sfp__text_done(&part);
}

static void plots(sfp_text *t, const sfp_result *r)
{
    sfp__text_put(t, "<div class=\"two\"><div>");
    if (r->tasks > 1) {
        card(t, "Accuracy by task", "A column that fades downwards is a task being forgotten.");
        sfp__plot_matrix(t, r);
        sfp__text_put(t, "</section>\n");
    }
    card(t, "Where the time went", "Wall-clock seconds of the learner.");
    sfp__plot_time(t, r);
    sfp__text_put(t, "</section></div><div>");
    learning(t, r);
    bool narrow = r->curve[SFP_CURVE_LAG].count < 2; /* one plot fits below the others, two need the whole width */
    if (narrow)
        rate_and_lag(t, r);
    sfp__text_put(t, "</div></div>\n");
    if (!narrow)
        rate_and_lag(t, r);
}

static sfp_status classes(sfp_text *t, const sfp_result *r, sfp_error *err)
{
    sfp_text part = {0};
    sfp_status s = SFP_OK;
    if (sfp__plot_confusion(&part, r)) {
        card(t, "Confusion",
             "Last evaluation. Each row is one class; the shade, and the number where there is room, is the per cent of its test "
             "samples. "
             "Blue is right, orange wrong.");
        sfp__text_putn(t, part.s ? part.s : "", part.length);
        sfp__text_put(t, "</section>\n");
    }
    part.length = 0;
    if (sfp__plot_classes(&part, r, err, &s)) {
        card(t, "Accuracy by class", "Best to worst, with the number of test samples.");
        sfp__text_putn(t, part.s ? part.s : "", part.length);
        sfp__text_put(t, "</section>\n");
    }
    t->failed = t->failed || part.failed;
    sfp__text_done(&part);
    return s;
}

static sfp_status sheets(sfp_text *t, const sfp_report_pictures *p, sfp_error *err)
{
    sfp_status s = SFP_OK;
    if (p && p->batch_count > 0) {
        card(t, "What the coreset took", "The last timestamp: blue frames were trained on, grey ones left out.");
        s = sfp__sheet_batch(t, p, err);
        sfp__text_put(t, "</section>\n");
    } else if (p && p->selects) {
        card(t, "What the coreset took",
             "Nothing was learned since the run was last started or resumed, so there is nothing to show.");
        sfp__text_put(t, "</section>\n");
    }
    if (s == SFP_OK && p && p->buffer_count > 0) {
        card(t, "The rehearsal buffer", "What is kept to be rehearsed, by class and age.");
        s = sfp__sheet_buffer(t, p->buffer_count, p->buffer, err);
        sfp__text_put(t, "</section>\n");
    }
    return s;
}

static void config(sfp_text *t, const sfp_result *r)
{
    sfp__text_printf(t,
                     "<section class=\"card\"><details><summary>All %d "
                     "options that are set</summary><table><tr><th>option</th><th>value</th><th>default</th></tr>",
                     r->config_count);
    for (int i = 0; i < r->config_count; i++) {
        const char *fallback = default_of(&r->config[i]);
        sfp__text_put(t, differs(&r->config[i]) ? "<tr class=\"changed\"><td>" : "<tr><td>");
        sfp__put_html(t, r->config[i].key);
        sfp__text_put(t, "</td><td>");
        sfp__put_html(t, r->config[i].value);
        sfp__text_put(t, "</td><td>");
        if (fallback && *fallback)
            sfp__put_html(t, fallback);
        else
            sfp__text_printf(t, "<span class=\"soft\">%s</span>", fallback ? "not set" : "not known");
        sfp__text_put(t, "</td></tr>");
    }
    sfp__text_put(t, "</table></details></section>\n");
}

sfp_status sfp__report_write(const sfp_result *r, const sfp_report_pictures *pictures, const char *path, sfp_error *err)
{
    sfp_text t = {0};
    head(&t, r);
    lead(&t, r);
    tiles(&t, r);
    plots(&t, r);
    sfp_status s = classes(&t, r, err);
    if (s == SFP_OK)
        s = sheets(&t, pictures, err);
    config(&t, r);
    sfp__text_put(&t, "<footer>The same numbers for programs are in result.json, every timestamp in "
                      "events.jsonl.</footer></main></body></html>\n");
    if (s == SFP_OK && t.failed)
        s = sfp__fail_nomem(err);
    if (s == SFP_OK)
        s = sfp__file_write(path, t.s, t.length, err);
    sfp__text_done(&t);
    return s;
}
