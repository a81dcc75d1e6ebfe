/* report.html of a run: its sentences, its tiles of numbers, and the order of its plots. */
#include "report/report_internal.h"

#include "base/mem.h"
#include "results/result_fields.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* -------------------------------------------------------------------- sentences */

const char *sfp__class_name(const sfp_result *r, int c, char buf[SFP__SHORT])
{
    if (r->class_names[c] && *r->class_names[c])
        return r->class_names[c];
    (void)snprintf(buf, SFP__SHORT, "class %d", c);
    return buf;
}

const char *sfp__task_name(const sfp_result *r, int i, int width, char buf[SFP__TITLE_SIZE])
{
    if (r->task_names[i] && *r->task_names[i])
        return sfp__result_task_title(r, i, width, buf);
    (void)snprintf(buf, SFP__TITLE_SIZE, "task %d", i + 1);
    return buf;
}

/* Options that the page shows elsewhere. */
static bool is_listed_elsewhere(const char *key)
{
    static const char *const keys[] = {"data", "test", "backbone", "seed", "threads"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static void put_code(sfp__text *t, const char *s)
{
    sfp__text_put(t, "<code>");
    sfp__put_html(t, s);
    sfp__text_put(t, "</code>");
}

/* Lists the options that differ from those of the preset, or from the defaults. */
static void put_changed_options(sfp__text *t, const sfp_result *r)
{
    int n = 0, unknown = 0;
    const char *preset = sfp__result_value(r, "preset");
    if (preset) {
        sfp__text_put(t, " The options are those of preset ");
        put_code(t, preset);
    }
    for (int i = 0; i < r->config_count; i++) {
        const sfp__config_entry *p = &r->config[i];
        if (is_listed_elsewhere(p->key) || (preset && strcmp(p->key, "preset") == 0))
            continue;
        unknown += !p->default_value;
        if (!sfp__config_differs(p))
            continue;
        sfp__text_put(t, n++ ? ", <code>" : preset ? ", except <code>" : " Options that differ from the defaults: <code>");
        sfp__put_html(t, p->key);
        sfp__text_put(t, " ");
        sfp__put_html(t, *p->value ? p->value : "(empty)");
        sfp__text_put(t, "</code>");
    }
    sfp__text_put(t, n || preset ? "." : unknown ? "" : " All other options have their default values.");
}

/* Writes a sentence about what happened to the samples. */
static void put_counts(sfp__text *t, const sfp_result *r)
{
    char a[SFP__SHORT];
    uint64_t excluded = r->samples.excluded, dropped = sfp__result_dropped(r);
    const char *trained = sfp__format_count((double)r->samples.trained, a);
    if (r->samples.closed_form) { /* a closed-form head: there was no training */
        sfp__text_printf(t, ". The closed-form head learned from %s of them", trained);
    } else {
        sfp__text_printf(t, ". The learner trained on %s of them", trained);
        sfp__text_printf(t, " and replayed %s", sfp__format_count((double)r->samples.replayed, a));
    }
    if (dropped)
        sfp__text_printf(t, "; %s were dropped because the learner was busy", sfp__format_count((double)dropped, a));
    if (excluded)
        sfp__text_printf(t, "; %s were excluded because the last batch of their task was short",
                         sfp__format_count((double)excluded, a));
    if (r->samples.skipped)
        sfp__text_printf(t, "; %s could not be read and were skipped", sfp__format_count((double)r->samples.skipped, a));
    if (r->labels.unlabelled)
        sfp__text_printf(t, "; %s arrived without a label", sfp__format_count((double)r->labels.unlabelled, a));
    if (r->labels.late)
        sfp__text_printf(t, ", and %s of them were labelled later", sfp__format_count((double)r->labels.late, a));
}

static void put_header(sfp__text *t, const sfp_result *r)
{
    char method[64], a[SFP__SHORT];
    const char *data = sfp__result_value(r, "data"), *test = sfp__result_value(r, "test"),
               *backbone = sfp__result_value(r, "backbone");
    sfp__result_method(r, method, sizeof method);
    sfp__text_put(t, "<header><h1>");
    sfp__put_html(t, *method ? method : "A run");
    sfp__text_put(t, " on ");
    sfp__put_html_cut(t, data && *data ? data : "a stream", 120);
    sfp__text_put(t, "</h1><div class=\"soft\">started ");
    sfp__put_html(t, *r->started ? r->started : "at an unknown time");
    sfp__text_printf(t, " &#183; seed %" PRIu64 " &#183; streamfp %s</div>\n<p class=\"lead\">", r->seed, sfp_version());
    sfp__text_printf(t, "A stream of %s samples", sfp__format_count((double)r->samples.offered, a));
    sfp__text_printf(t, " of %d class%s in %d task%s", r->classes, r->classes == 1 ? "" : "es", r->tasks,
                     r->tasks == 1 ? "" : "s");
    if (test && *test) {
        sfp__text_put(t, ", tested on ");
        put_code(t, test);
    }
    if (backbone && *backbone) {
        sfp__text_put(t, ", learned with the frozen backbone ");
        put_code(t, backbone);
    }
    put_counts(t, r);
    sfp__text_printf(t, ". The run took %s on ", sfp__format_seconds(r->seconds.total, a));
    sfp__put_html(t, *r->machine.cpu ? r->machine.cpu : "an unknown machine");
    sfp__text_printf(t, " with %d thread%s", r->machine.threads, r->machine.threads == 1 ? "" : "s");
    if (*r->machine.kernels || *r->machine.gemm) {
        sfp__text_put(t, " (");
        sfp__put_html(t, r->machine.kernels);
        sfp__text_put(t, *r->machine.kernels && *r->machine.gemm ? ", " : "");
        sfp__put_html(t, r->machine.gemm);
        sfp__text_put(t, ")");
    }
    sfp__text_put(t, ".");
    put_changed_options(t, r);
    sfp__text_put(t, "</p></header>\n");
    if (!r->finished)
        sfp__text_printf(t, "<p class=\"warn\">This run is not finished: %d of %d tasks were evaluated.</p>\n", r->tasks_done,
                         r->tasks);
}

/* ------------------------------------------------------------------------ tiles */

static void put_tile(sfp__text *t, const char *name, const char *value, const char *note)
{
    sfp__text_printf(t, "<div><dt>%s</dt><dd>%s<small>%s</small></dd></div>", name, value, note);
}

/* Writes how many test images belong to classes that have not appeared, because nothing else on the page shows this. */
static void put_unseen(sfp__text *t, const sfp_result *r)
{
    char a[SFP__SHORT], b[SFP__SHORT];
    uint64_t tested, unseen = sfp__result_unseen(r, &tested);
    if (unseen)
        sfp__text_printf(
            t,
            "<p class=\"warn\">%s of the %s test images are of classes that have not appeared in the stream. They count "
            "as wrong in the accuracy, and are not in the figures about classes.</p>\n",
            sfp__format_count((double)unseen, a), sfp__format_count((double)tested, b));
}

/* Writes the tile of a number, unless the run does not have it. note: what the number is about; NULL: its meaning. */
static void put_number(sfp__text *t, const sfp_result *r, const char *key, const char *note)
{
    char value[SFP__SHORT], name[64];
    const sfp__result_field *f = sfp__result_field_find(key);
    double x = sfp__result_field_value(f, r);
    if (!sfp__result_field_shown(f, r))
        return;
    (void)snprintf(name, sizeof name, "%c%s", toupper((unsigned char)f->label[0]), f->label + 1);
    if (f->fraction)
        (void)sfp__format_percent(x, value);
    else if (f->kind == SFP__FIELD_COUNT || f->kind == SFP__FIELD_WHOLE || f->derive)
        (void)sfp__format_count(x, value);
    else if (f->unit && strcmp(f->unit, "s") == 0)
        (void)sfp__format_seconds(x, value);
    else
        (void)sfp__format_compact(x, value);
    put_tile(t, name, value, note ? note : f->meaning ? f->meaning : "");
}

static void put_tiles(sfp__text *t, const sfp_result *r)
{
    char a[SFP__SHORT], b[SFP__SHORT], note[128];
    sfp__text_put(t, "<dl class=\"tiles\">");
    (void)snprintf(note, sizeof note, "after %d of %d task%s", r->tasks_done, r->tasks, r->tasks == 1 ? "" : "s");
    put_tile(t, "Average accuracy", sfp__format_percent(r->average_accuracy, a), note); /* also if it was not measured */
    (void)snprintf(note, sizeof note, "backward transfer %+.1f points", sfp__no_minus_zero(100 * r->backward_transfer, 1));
    put_number(t, r, "forgetting", note);
    put_number(t, r, "prequential_accuracy", NULL);
    (void)snprintf(note, sizeof note, "%s before scaling", sfp__format_percent(r->calibration.before, b));
    put_number(t, r, "calibration.error", isfinite(r->calibration.before) ? note : NULL);
    (void)snprintf(note, sizeof note, "of %s offered", sfp__format_count((double)r->samples.offered, b));
    put_number(t, r, "samples.closed_form", note);
    put_number(t, r, "samples.trained_on", note);
    (void)snprintf(note, sizeof note, "samples/s; %s/s arrive", sfp__format_compact(r->lambda, b));
    put_number(t, r, "samples_per_second", isfinite(r->lambda) ? note : "samples/s");
    (void)snprintf(note, sizeof note, "mean lag %s", sfp__format_seconds(r->lag.mean, b));
    put_number(t, r, "lag.max", note);
    put_number(t, r, "cs", NULL);
    (void)snprintf(note, sizeof note, "of %d: no time for a batch", r->tasks);
    put_number(t, r, "starved_tasks", note);
    put_number(t, r, "coverage", NULL);
    put_tile(t, "Peak memory", sfp__format_bytes((double)r->peak_rss_bytes, a), "of the whole process");
    sfp__text_put(t, "</dl>\n");
}

/* --------------------------------------------------------------------- sections */

/* Opens a section; the caller closes it. */
static void begin_card(sfp__text *t, const char *title, const char *explanation)
{
    sfp__text_printf(t, "<section class=\"card\"><h2>%s</h2>", title);
    sfp__text_put(t, "<p class=\"what\">");
    sfp__text_put(t, explanation);
    sfp__text_put(t, "</p>");
}

/* Plots one curve over the number of offered samples. */
static bool plot_curve(sfp__text *t, const sfp__curve *c, const char *color, sfp__plot p)
{
    p.across = "samples offered";
    p.unit = p.unit ? p.unit : "";
    p.line = p.line_label ? p.line : NAN;
    p.count = 1;
    p.series[0] = (sfp__series){.count = c->count, .x = c->x, .y = c->y, .color = color};
    return sfp__plot_write(t, &p);
}

/* Plots the evaluations: the mean accuracy on the tasks so far. */
static bool plot_evaluations(sfp__text *t, const sfp_result *r)
{
    OWNED_BY(sfp__curve_done) sfp__curve c = {0};
    for (int i = 0; i < r->evaluation_count; i++)
        if (sfp__curve_add(&c, (double)r->evaluations[i].offered, r->evaluations[i].average, NULL) != SFP_OK) {
            t->failed = true;
            return false;
        }
    return plot_curve(
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

static void put_learning(sfp__text *t, const sfp_result *r)
{
    const sfp__curve *prequential = &r->curve[SFP__CURVE_PREQUENTIAL], *loss = &r->curve[SFP__CURVE_LOSS];
    begin_card(t, "Learning",
               "Prequential: each sample is predicted before it is trained on. A band shows the range of the values that a point "
               "averages.");
    bool any = plot_curve(t, prequential, "--blue",
                          (sfp__plot){.id = "c1", .title = "prequential accuracy so far", .fraction = true, .buckets = 300});
    any |= plot_evaluations(t, r);
    any |= plot_curve(t, loss, "--red", (sfp__plot){.id = "c2", .title = "training loss", .buckets = 90});
    if (!any)
        sfp__text_printf(t, "<p class=\"note\">%s</p>",
                         has_point(prequential) || has_point(loss) ? "Too few timestamps for a curve." : "Nothing was recorded.");
    sfp__text_put(t, "</section>\n");
}

static void put_rate_and_lag(sfp__text *t, const sfp_result *r)
{
    char label[64], rate[SFP__SHORT];
    OWNED_BY(sfp__text_done) sfp__text part = {0};
    bool rated = isfinite(r->lambda);
    (void)snprintf(label, sizeof label, "arrival rate %s/s", sfp__format_compact(r->lambda, rate));
    sfp__text_put(&part, "<div>");
    bool any = plot_curve(&part, &r->curve[SFP__CURVE_RATE], "--green",
                          (sfp__plot){.id = "c3",
                                      .title = "samples learned per second",
                                      .buckets = 120,
                                      .unit = "/s",
                                      .line = r->lambda,
                                      .line_label = rated ? label : NULL});
    sfp__text_put(&part, "</div><div>");
    any |= plot_curve(&part, &r->curve[SFP__CURVE_LAG], "--purple",
                      (sfp__plot){.id = "c4", .title = "lag behind arrival, in seconds", .buckets = 200, .unit = " s"});
    if (any) {
        begin_card(t, "Rate and lag",
                   rated
                       ? "While the curve is below the dashed line, the learner falls behind: lag grows, or samples are dropped."
                       : "No arrival rate was set: every batch waits for the learner.");
        sfp__text_put(t, "<div class=\"two\">");
        sfp__text_putn(t, part.s ? part.s : "", part.length);
        sfp__text_put(t, "</div></div></section>\n");
    }
    t->failed = t->failed || part.failed;
}

static void put_plots(sfp__text *t, const sfp_result *r)
{
    sfp__text_put(t, "<div class=\"two\"><div>");
    if (r->tasks > 1) {
        begin_card(t, "Accuracy by task", "If a column fades from top to bottom, its task is being forgotten.");
        sfp__plot_matrix(t, r);
        sfp__text_put(t, "</section>\n");
    }
    begin_card(t, "Where the time went", "Wall-clock seconds of the learner.");
    sfp__plot_time(t, r);
    sfp__text_put(t, "</section></div><div>");
    put_learning(t, r);
    bool narrow = r->curve[SFP__CURVE_LAG].count < 2; /* one plot fits below the others, two need the full width */
    if (narrow)
        put_rate_and_lag(t, r);
    sfp__text_put(t, "</div></div>\n");
    if (!narrow)
        put_rate_and_lag(t, r);
}

static void put_class_cards(sfp__text *t, const sfp_result *r)
{
    static const struct {
        bool (*draw)(sfp__text *t, const sfp_result *r);
        const char *title, *explanation;
    } cards[] = {
        {sfp__plot_confusion, "Confusion",
         "Last evaluation. Each row is the true class. The shade and, if there is space, the number give the percentage of its "
         "test samples. Blue is correct, orange is wrong."},
        {sfp__plot_classes, "Accuracy by class", "Last evaluation, from best to worst, with the number of test samples."},
        {sfp__plot_calibration, "Calibration",
         "Last evaluation. Bars: the accuracy of predictions by their confidence, the probability of the predicted class. Where "
         "a "
         "bar ends below the diagonal, the learner is too confident. Pale bars have few predictions."}};
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        OWNED_BY(sfp__text_done) sfp__text part = {0};
        if (cards[i].draw(&part, r)) {
            begin_card(t, cards[i].title, cards[i].explanation);
            sfp__text_putn(t, part.s ? part.s : "", part.length);
            sfp__text_put(t, "</section>\n");
        }
        t->failed = t->failed || part.failed;
    }
}

static sfp_status put_sheets(sfp__text *t, const sfp__report_images *p, sfp_error *err)
{
    if (p->batch_count > 0) {
        begin_card(t, "Coreset of the last timestamp",
                   "Images with a blue frame were trained on, those with a grey frame were not.");
        TRY(sfp__sheet_batch(t, p, err));
        sfp__text_put(t, "</section>\n");
    } else if (p->selects) {
        begin_card(t, "Coreset of the last timestamp", "No batch was trained on since the run was last started or resumed.");
        sfp__text_put(t, "</section>\n");
    }
    if (p->buffer_count > 0) {
        begin_card(t, "The rehearsal buffer", "Images that are kept for replay, by class and age.");
        TRY(sfp__sheet_buffer(t, p->buffer_count, p->buffer, err));
        sfp__text_put(t, "</section>\n");
    }
    return SFP_OK;
}

static void put_config(sfp__text *t, const sfp_result *r)
{
    sfp__text_printf(t,
                     "<section class=\"card\"><details><summary>All %d "
                     "options that have a value</summary><table><tr><th>option</th><th>value</th><th>default</th></tr>",
                     r->config_count);
    for (int i = 0; i < r->config_count; i++) {
        const char *default_value = sfp__config_base(&r->config[i]);
        sfp__text_put(t, sfp__config_differs(&r->config[i]) ? "<tr class=\"changed\"><td>" : "<tr><td>");
        sfp__put_html(t, r->config[i].key);
        sfp__text_put(t, "</td><td>");
        sfp__put_html(t, r->config[i].value);
        sfp__text_put(t, "</td><td>");
        if (default_value && *default_value)
            sfp__put_html(t, default_value);
        else
            sfp__text_printf(t, "<span class=\"soft\">%s</span>", default_value ? "none" : "unknown");
        sfp__text_put(t, r->config[i].preset_value ? " (preset)</td></tr>" : "</td></tr>");
    }
    sfp__text_put(t, "</table></details></section>\n");
}

sfp_status sfp__report_write(const sfp_result *r, const sfp__report_images *images, const char *path, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    const char *data = sfp__result_value(r, "data");
    sfp__page_begin(&t, "streamfp: ", data && *data ? data : "a run");
    put_header(&t, r);
    put_unseen(&t, r);
    put_tiles(&t, r);
    put_plots(&t, r);
    put_class_cards(&t, r);
    if (images)
        TRY(put_sheets(&t, images, err));
    put_config(&t, r);
    sfp__text_put(
        &t, "<footer>result.json contains these numbers for programs; events.jsonl contains one line per timestamp.</footer>");
    return sfp__page_write(&t, path, err);
}
