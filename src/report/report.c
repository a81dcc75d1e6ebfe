/* report.html of a run: the words, the tiles, and which plot stands where. */
#include "report/report_internal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------ words */

const char *sfp__class_name(const sfp_result *r, int c, char buf[SFP_SHORT])
{
    if (r->class_names[c] && *r->class_names[c])
        return r->class_names[c];
    (void)snprintf(buf, SFP_SHORT, "class %d", c);
    return buf;
}

const char *sfp__task_name(const sfp_result *r, int i, char buf[SFP_SHORT])
{
    if (r->task_names[i] && *r->task_names[i])
        return r->task_names[i];
    (void)snprintf(buf, SFP_SHORT, "task %d", i + 1);
    return buf;
}

/* false also when the default is not known; an option that has none was given */
static bool differs(const sfp__config_entry *p)
{
    return p->default_value && strcmp(p->default_value, p->value) != 0;
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

static void code(sfp__text *t, const char *s)
{
    sfp__text_put(t, "<code>");
    sfp__put_html(t, s);
    sfp__text_put(t, "</code>");
}

static void options_that_differ(sfp__text *t, const sfp_result *r)
{
    int n = 0, unknown = 0;
    for (int i = 0; i < r->config_count; i++) {
        const sfp__config_entry *p = &r->config[i];
        if (said_elsewhere(p->key))
            continue;
        unknown += !p->default_value;
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

static void lead(sfp__text *t, const sfp_result *r)
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
    sfp__text_printf(t, "A stream of %s samples", sfp__format_count((double)r->samples.offered, a));
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
    sfp__text_printf(t, ". It was trained on %s of them", sfp__format_count((double)r->samples.trained, a));
    sfp__text_printf(t, " and rehearsed %s", sfp__format_count((double)r->samples.replayed, a));
    if (r->samples.dropped)
        sfp__text_printf(t, "; %s arrived too fast and were dropped", sfp__format_count((double)r->samples.dropped, a));
    if (r->samples.skipped)
        sfp__text_printf(t, "; %s could not be read", sfp__format_count((double)r->samples.skipped, a));
    if (r->labels.unlabelled)
        sfp__text_printf(t, "; %s came without a label", sfp__format_count((double)r->labels.unlabelled, a));
    if (r->labels.late)
        sfp__text_printf(t, ", %s of which got one later", sfp__format_count((double)r->labels.late, a));
    sfp__text_printf(t, ". It took %s on ", sfp__format_seconds(r->seconds.total, a));
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

static void tile(sfp__text *t, const char *name, const char *value, const char *note)
{
    sfp__text_printf(t, "<div><dt>%s</dt><dd>%s<small>%s</small></dd></div>", name, value, note);
}

/* What each head of a mixed one would have answered without the others. */
static void head_tiles(sfp__text *t, const sfp_result *r)
{
    char name[SFP_SHORT], a[SFP_SHORT];
    for (int h = 0; r->heads && h < SFP_RESULT_HEADS; h++) {
        const double *alone = r->heads + (size_t)h * (size_t)r->tasks * (size_t)r->tasks; /* (tasks, tasks) */
        (void)snprintf(name, sizeof name, "%s alone", sfp__result_head_names[h]);
        tile(t, name, sfp__format_percent(sfp__average_accuracy(r->tasks, r->tasks_done, alone), a),
             "average accuracy of this head");
    }
}

static void tiles(sfp__text *t, const sfp_result *r)
{
    char a[SFP_SHORT], b[SFP_SHORT], note[128];
    sfp__text_put(t, "<dl class=\"tiles\">");
    (void)snprintf(note, sizeof note, "after %d of %d task%s", r->tasks_done, r->tasks, r->tasks == 1 ? "" : "s");
    tile(t, "Average accuracy", sfp__format_percent(r->average_accuracy, a), note);
    head_tiles(t, r);
    if (isfinite(r->forgetting)) {
        (void)snprintf(note, sizeof note, "backward transfer %+.1f points", sfp__no_minus_zero(100 * r->backward_transfer, 1));
        tile(t, "Forgetting", sfp__format_percent(r->forgetting, a), note);
    }
    if (isfinite(r->prequential_accuracy))
        tile(t, "Prequential accuracy", sfp__format_percent(r->prequential_accuracy, a), "tested before trained on");
    (void)snprintf(note, sizeof note, "of %s offered", sfp__format_count((double)r->samples.offered, b));
    tile(t, "Trained on", sfp__format_count((double)r->samples.trained, a), note);
    if (isfinite(r->samples_per_second)) {
        (void)snprintf(note, sizeof note, isfinite(r->lambda) ? "samples/s; %s/s arrive" : "samples/s%s",
                       isfinite(r->lambda) ? sfp__format_compact(r->lambda, b) : "");
        tile(t, "Speed", sfp__format_compact(r->samples_per_second, a), note);
    }
    if (isfinite(r->lag.max)) {
        (void)snprintf(note, sizeof note, "mean lag %s", sfp__format_seconds(r->lag.mean, b));
        tile(t, "Largest lag", sfp__format_seconds(r->lag.max, a), note);
    }
    if (isfinite(r->cs)) {
        (void)snprintf(a, sizeof a, "%.3g", r->cs);
        tile(t, "C<sub>S</sub>", a, "cost over time between arrivals");
    }
    if (isfinite(r->coverage))
        tile(t, "Class coverage", sfp__format_percent(r->coverage, a), "classes trained on, of those offered");
    tile(t, "Peak memory", sfp__format_bytes((double)r->peak_rss_bytes, a), "of the whole process");
    sfp__text_put(t, "</dl>\n");
}

/* --------------------------------------------------------------------- sections */

static void card(sfp__text *t, const char *title, const char *what)
{
    sfp__text_printf(t, "<section class=\"card\"><h2>%s</h2>", title);
    sfp__text_put(t, "<p class=\"what\">");
    sfp__text_put(t, what);
    sfp__text_put(t, "</p>");
}

/* One curve of a run, in its own colour. */
static bool plot(sfp__text *t, const sfp__curve *c, const char *color, sfp__plot p)
{
    p.across = "samples offered";
    p.unit = p.unit ? p.unit : "";
    p.line = p.line_label ? p.line : NAN;
    p.count = 1;
    p.series[0] = (sfp__series){.count = c->count, .x = c->x, .y = c->y, .color = color};
    return sfp__plot_write(t, &p);
}

/* The evaluations as a curve: the mean over the tasks so far. */
static bool tested(sfp__text *t, const sfp_result *r)
{
    OWNED_BY(sfp__curve_done) sfp__curve c = {0};
    for (int i = 0; i < r->evaluation_count; i++)
        if (sfp__curve_add(&c, (double)r->evaluations[i].offered, r->evaluations[i].average, NULL) != SFP_OK) {
            t->failed = true;
            return false;
        }
    return plot(
        t, &c, "--blue",
        (sfp__plot){.id = "c5", .title = "accuracy on the test set, mean of the tasks so far", .fraction = true, .buckets = 300});
}

static bool has_point(const sfp__curve *c)
{
    for (int i = 0; i < c->count; i++)
        if (isfinite(c->y[i]))
            return true;
    return false;
}

static void learning(sfp__text *t, const sfp_result *r)
{
    const sfp__curve *prequential = &r->curve[SFP_CURVE_PREQUENTIAL], *loss = &r->curve[SFP_CURVE_LOSS];
    card(t, "Learning",
         "Prequential: each sample is answered before it is trained on. Bands show the range of what a point averages.");
    bool any = plot(t, prequential, "--blue",
                    (sfp__plot){.id = "c1", .title = "prequential accuracy so far", .fraction = true, .buckets = 300});
    any |= tested(t, r);
    any |= plot(t, loss, "--red", (sfp__plot){.id = "c2", .title = "training loss", .buckets = 90});
    if (!any)
        sfp__text_printf(t, "<p class=\"note\">%s</p>",
                         has_point(prequential) || has_point(loss) ? "Too few timestamps for a curve." : "Nothing was recorded.");
    sfp__text_put(t, "</section>\n");
}

static void rate_and_lag(sfp__text *t, const sfp_result *r)
{
    char label[64], rate[SFP_SHORT];
    OWNED_BY(sfp__text_done) sfp__text part = {0};
    bool rated = isfinite(r->lambda);
    (void)snprintf(label, sizeof label, "arrival rate %s/s", sfp__format_compact(r->lambda, rate));
    sfp__text_put(&part, "<div>");
    bool any = plot(&part, &r->curve[SFP_CURVE_RATE], "--green",
                    (sfp__plot){.id = "c3",
                                .title = "samples learned a second",
                                .buckets = 120,
                                .unit = "/s",
                                .line = r->lambda,
                                .line_label = rated ? label : NULL});
    sfp__text_put(&part, "</div><div>");
    any |= plot(&part, &r->curve[SFP_CURVE_LAG], "--purple",
                (sfp__plot){.id = "c4", .title = "lag behind arrival, in seconds", .buckets = 200, .unit = " s"});
    if (any) {
        card(t, "Rate and lag",
             rated ? "While the curve is below the dashed line the learner falls behind: lag grows, or samples are dropped."
                   : "No arrival rate was set: every batch waits for the learner.");
        sfp__text_put(t, "<div class=\"two\">");
        sfp__text_putn(t, part.s ? part.s : "", part.length);
        sfp__text_put(t, "</div></div></section>\n");
    }
    t->failed = t->failed || part.failed;
}

static void plots(sfp__text *t, const sfp_result *r)
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

static void classes(sfp__text *t, const sfp_result *r)
{
    static const struct {
        bool (*draw)(sfp__text *t, const sfp_result *r);
        const char *title, *what;
    } cards[] = {
        {sfp__plot_confusion, "Confusion",
         "Last evaluation. Each row is one class; the shade, and the number where there is space, is the per cent of its "
         "test samples. Blue is right, orange wrong."},
        {sfp__plot_classes, "Accuracy by class", "Best to worst, with the number of test samples."}};
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        OWNED_BY(sfp__text_done) sfp__text part = {0};
        if (cards[i].draw(&part, r)) {
            card(t, cards[i].title, cards[i].what);
            sfp__text_putn(t, part.s ? part.s : "", part.length);
            sfp__text_put(t, "</section>\n");
        }
        t->failed = t->failed || part.failed;
    }
}

static sfp_status sheets(sfp__text *t, const sfp__report_images *p, sfp_error *err)
{
    if (p->batch_count > 0) {
        card(t, "What the coreset took", "The last timestamp: blue frames were trained on, grey ones left out.");
        TRY(sfp__sheet_batch(t, p, err));
        sfp__text_put(t, "</section>\n");
    } else if (p->selects) {
        card(t, "What the coreset took",
             "Nothing was learned since the run was last started or resumed, so there is nothing to show.");
        sfp__text_put(t, "</section>\n");
    }
    if (p->buffer_count > 0) {
        card(t, "The rehearsal buffer", "What is kept to be rehearsed, by class and age.");
        TRY(sfp__sheet_buffer(t, p->buffer_count, p->buffer, err));
        sfp__text_put(t, "</section>\n");
    }
    return SFP_OK;
}

static void config(sfp__text *t, const sfp_result *r)
{
    sfp__text_printf(t,
                     "<section class=\"card\"><details><summary>All %d "
                     "options that are set</summary><table><tr><th>option</th><th>value</th><th>default</th></tr>",
                     r->config_count);
    for (int i = 0; i < r->config_count; i++) {
        const char *default_value = r->config[i].default_value;
        sfp__text_put(t, differs(&r->config[i]) ? "<tr class=\"changed\"><td>" : "<tr><td>");
        sfp__put_html(t, r->config[i].key);
        sfp__text_put(t, "</td><td>");
        sfp__put_html(t, r->config[i].value);
        sfp__text_put(t, "</td><td>");
        if (default_value && *default_value)
            sfp__put_html(t, default_value);
        else
            sfp__text_printf(t, "<span class=\"soft\">%s</span>", default_value ? "not set" : "not known");
        sfp__text_put(t, "</td></tr>");
    }
    sfp__text_put(t, "</table></details></section>\n");
}

sfp_status sfp__report_write(const sfp_result *r, const sfp__report_images *images, const char *path, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    const char *data = sfp__result_value(r, "data");
    sfp__page_begin(&t, "streamfp: ", data && *data ? data : "a run");
    lead(&t, r);
    tiles(&t, r);
    plots(&t, r);
    classes(&t, r);
    if (images)
        TRY(sheets(&t, images, err));
    config(&t, r);
    sfp__text_put(&t, "<footer>The same numbers for programs are in result.json, every timestamp in events.jsonl.</footer>");
    return sfp__page_write(&t, path, err);
}
