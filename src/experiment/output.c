/* The files of an execution: tables in four formats, plots, results.json and one page. */
#include "experiment/experiment.h"
#include "io/directory.h"
#include "io/file.h"
#include "io/json_read.h"
#include "io/json_write.h"
#include "report/html.h"
#include "report/table.h"
#include "results/statistics.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { RESULTS_MAX = 256 << 20 };

static sfp_status write_text(const sfp__lab *lab, const char *name, const char *ending, const sfp__text *t, sfp_error *err)
{
    char path[PATH_MAX];
    TRY(sfp__check_memory(!t->failed, err));
    TRY(sfp__path_print(path, sizeof path, err, "%s/tables/%s.%s", lab->opt.out, name, ending));
    return sfp__file_write(path, t->s ? t->s : "", t->length, err);
}

static sfp_status set_caption(const sfp__lab *lab, int experiment, sfp__table *t, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text s = {0};
    char label[64];
    sfp__lab_sentences(lab, experiment, &s);
    if (lab->opt.command)
        sfp__text_printf(&s, "Command: %s.", lab->opt.command);
    TRY(sfp__check_memory(!s.failed, err));
    TRY(sfp__table_set_text(&t->caption, s.s ? s.s : "", err));
    (void)snprintf(label, sizeof label, "tab:%s", lab->experiments[experiment].name);
    return sfp__table_set_text(&t->label, label, err);
}

/* The caption says why no figure is comparable: only CSV repeats it in every cell. */
static void remove_verdicts(sfp__table *t)
{
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->columns; c++)
            if (sfp__table_at(t, r, c)->verdict && strcmp(sfp__table_at(t, r, c)->verdict, "not comparable") == 0)
                sfp__table_at(t, r, c)->verdict = NULL;
}

/* One file per format. */
static sfp_status write_files(const sfp__lab *lab, int experiment, sfp__table *t, sfp_error *err)
{
    static const struct {
        sfp__table_format format;
        const char *ending;
    } list[] = {{SFP__TABLE_CSV, "csv"}, {SFP__TABLE_MARKDOWN, "md"}, {SFP__TABLE_LATEX, "tex"}, {SFP__TABLE_TEXT, "txt"}};
    const char *name = lab->experiments[experiment].name;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        OWNED_BY(sfp__text_done) sfp__text s = {0};
        sfp__table_write(t, list[i].format, &s);
        TRY(write_text(lab, name, list[i].ending, &s, err));
        remove_verdicts(t);
    }
    OWNED_BY(sfp__text_done) sfp__text svg = {0};
    bool drawn = sfp__lab_chart(lab, experiment, t, false, &svg);
    TRY(sfp__check_memory(!svg.failed, err));
    return drawn ? write_text(lab, name, "svg", &svg, err) : SFP_OK;
}

/* ---------------------------------------------------------------------------------------------------------------- the page */

/* The claims that were tested, and the numbers of the others. */
static void put_claims(const sfp__lab *lab, sfp__text *t)
{
    sfp__claim_result c;
    int tested = 0;
    for (int i = 0; sfp__claim_test(lab, i, &c); i++) {
        if (!c.tested)
            continue;
        if (tested++ == 0)
            sfp__text_put(
                t, "<section class=\"card\"><h2>Claims of the paper</h2><table><tr><th>claim</th><th>paper</th><th>here</th>"
                   "<th>verdict</th></tr>");
        sfp__text_printf(t, "<tr><td>%d. ", c.number);
        sfp__put_html(t, c.claim);
        sfp__text_put(t, "</td><td>");
        sfp__put_html(t, c.paper);
        sfp__text_put(t, "</td><td>");
        sfp__put_html(t, c.numbers);
        sfp__text_printf(t, "</td><td style=\"white-space:nowrap\"><b>%s</b></td></tr>", c.verdict);
    }
    if (tested == 0)
        return;
    sfp__text_put(t, "</table>");
    const char *before = "<p class=\"note\">Not tested here, because their experiments were not run: ";
    for (int i = 0; sfp__claim_test(lab, i, &c); i++) {
        if (c.tested)
            continue;
        sfp__text_printf(t, "%s%d", before, c.number);
        before = ", ";
    }
    sfp__text_put(t, strcmp(before, ", ") == 0 ? ".</p></section>" : "</section>");
}

static sfp_status put_experiment(const sfp__lab *lab, int experiment, const sfp__table *table, sfp__text *t, sfp_error *err)
{
    const sfp__experiment *e = &lab->experiments[experiment];
    sfp__text_printf(t, "<section class=\"card\" id=\"%s\"><p class=\"what\">", e->name);
    sfp__put_html(t, e->question);
    sfp__text_put(t, "</p>");
    sfp__table_write(table, SFP__TABLE_HTML, t);
    (void)sfp__lab_chart(lab, experiment, table, true, t);
    if (lab->repetitions > 1 && e->row_count > 1 && strncmp(e->metrics, "Acc", 3) == 0)
        for (int c = 0; c < e->column_count; c++) {
            OWNED_PTR(sfp__table_free) sfp__table *paired = NULL;
            TRY(sfp__lab_paired(lab, experiment, c, &paired, err));
            sfp__text_put(t, "<details><summary>Paired differences ");
            sfp__put_html(t, e->columns[c].name);
            sfp__text_put(t, "</summary>");
            sfp__table_write(paired, SFP__TABLE_HTML, t);
            sfp__text_put(t, "</details>");
        }
    sfp__text_put(t, "</section>");
    return SFP_OK;
}

static void put_head(const sfp__lab *lab, sfp__text *t)
{
    char buf[SFP__SHORT];
    int omitted = 0;
    for (int i = 0; i < lab->cell_count; i++)
        omitted += lab->cells[i].state == SFP__CELL_OMITTED;
    sfp__page_begin(t, "Experiments: ", lab->opt.command ? lab->opt.command : lab->opt.out);
    sfp__text_put(t, "<h1>Experiments</h1><p class=\"lead\">");
    if (lab->opt.command) {
        sfp__text_put(t, "<code>");
        sfp__put_html(t, lab->opt.command);
        sfp__text_put(t, "</code><br>");
    }
    sfp__text_printf(t, "%d of %d runs are done", lab->done, lab->cell_count);
    if (lab->spent_done > 0)
        sfp__text_printf(t, "; those of this process took %s", sfp__format_seconds(lab->spent_done, buf));
    sfp__text_put(t, ". ");
    if (omitted)
        sfp__text_printf(t, "%d were omitted because of the budget. ", omitted);
    if (lab->omitted.length) {
        sfp__text_put(t, "Omitted: ");
        sfp__put_html(t, lab->omitted.s);
        sfp__text_put(t, ".");
    }
    sfp__text_put(t, "</p>");
}

/* ---------------------------------------------------------------------------------------------------------- results.json */

static sfp_status put_costs(const sfp__lab *lab, sfp__json *j, sfp_error *err)
{
    sfp__json_object(j, "costs");
    for (int i = 0; i < lab->cost_keys.count; i++) {
        OWNED uint8_t *bytes = NULL;
        char path[PATH_MAX];
        size_t size;
        TRY(sfp__path_print(path, sizeof path, err, "%s/costs/%s", lab->opt.out, lab->cost_keys.s[i]));
        TRY(sfp__file_read(path, 1 << 20, &bytes, &size, err));
        OWNED_BY(sfp__text_done) sfp__text text = {0};
        sfp__text_putn(&text, (const char *)bytes, size);
        TRY(sfp__check_memory(!text.failed, err));
        sfp__json_string(j, lab->cost_keys.s[i], text.s);
    }
    sfp__json_end(j);
    return SFP_OK;
}

static void put_cell(const sfp__lab *lab, const sfp__cell *c, sfp__json *j)
{
    static const char *const states[] = {"waiting", "done", "starved", "omitted"};
    const sfp__experiment *e = &lab->experiments[c->experiment];
    const sfp__metric *list[SFP__METRICS_MAX];
    int metrics = sfp__experiment_metrics(e, list);
    sfp__json_object(j, NULL);
    sfp__json_string(j, "experiment", e->name);
    sfp__json_string(j, "row", e->rows[c->row].name);
    sfp__json_string(j, "column", e->columns[c->column].name);
    sfp__json_int(j, "repetition", c->repetition + 1);
    sfp__json_string(j, "state", states[c->state]);
    sfp__json_string(j, "directory", c->key);
    sfp__json_exact(j, "rate", c->rate > 0 ? c->rate : NAN);
    sfp__json_exact(j, "batch_seconds", c->cost > 0 ? c->cost : NAN);
    sfp__json_real(j, "estimate", c->estimate);
    if (c->guessed)
        sfp__json_bool(j, "guessed", true);
    sfp__json_object(j, "values");
    for (int m = 0; m < metrics; m++)
        sfp__json_exact(j, list[m]->name, c->state == SFP__CELL_DONE ? c->value[m] : NAN);
    sfp__json_end(j);
    sfp__json_end(j);
}

static void put_claims_json(const sfp__lab *lab, sfp__json *j)
{
    sfp__claim_result c;
    sfp__json_array(j, "claims");
    for (int i = 0; sfp__claim_test(lab, i, &c); i++) {
        sfp__json_object(j, NULL);
        sfp__json_int(j, "number", c.number);
        sfp__json_string(j, "claim", c.claim);
        sfp__json_string(j, "paper", c.paper);
        sfp__json_string(j, "here", c.numbers);
        sfp__json_string(j, "verdict", c.verdict);
        sfp__json_end(j);
    }
    sfp__json_end(j);
}

static sfp_status results_text(const sfp__lab *lab, sfp__text *t, sfp_error *err)
{
    sfp__json j = {.text = t};
    sfp__json_object(&j, NULL);
    sfp__json_string(&j, "version", sfp_version());
    sfp__json_string(&j, "command", lab->opt.command);
    sfp__json_string(&j, "out", lab->opt.out);
    sfp__json_string(&j, "omitted", lab->omitted.length ? lab->omitted.s : NULL);
    sfp__json_array(&j, "settings");
    for (int i = 0; i < lab->opt.settings->count; i++)
        sfp__json_string(&j, NULL, lab->opt.settings->s[i]);
    sfp__json_end(&j);
    TRY(put_costs(lab, &j, err));
    sfp__json_array(&j, "cells");
    for (int i = 0; i < lab->cell_count; i++)
        put_cell(lab, &lab->cells[i], &j);
    sfp__json_end(&j);
    put_claims_json(lab, &j);
    sfp__json_end_all(&j);
    return sfp__check_memory(!t->failed, err);
}

static sfp_status write_results(const sfp__lab *lab, char **json, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    char path[PATH_MAX];
    TRY(results_text(lab, &t, err));
    TRY(sfp__path_print(path, sizeof path, err, "%s/results.json", lab->opt.out));
    TRY(sfp__file_write(path, t.s, t.length, err));
    if (json)
        *json = TAKE(t.s);
    return SFP_OK;
}

sfp_status sfp__lab_list(const sfp__lab *lab, char **json, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    sfp__json j = {.text = &t};
    sfp__json_object(&j, NULL);
    sfp__json_array(&j, "cells");
    for (int i = 0; i < lab->cell_count; i++)
        put_cell(lab, &lab->cells[i], &j);
    sfp__json_end(&j);
    sfp__json_string(&j, "omitted", lab->omitted.length ? lab->omitted.s : NULL);
    sfp__json_end_all(&j);
    TRY(sfp__check_memory(!t.failed, err));
    if (json)
        *json = TAKE(t.s);
    return SFP_OK;
}

sfp_status sfp__lab_write(const sfp__lab *lab, char **json, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text page = {0};
    char path[PATH_MAX];
    int made;
    TRY(sfp__path_print(path, sizeof path, err, "%s/tables", lab->opt.out));
    TRY(sfp__directory_create(path, &made, err));
    put_head(lab, &page);
    put_claims(lab, &page);
    for (int e = 0; e < lab->experiment_count; e++) {
        OWNED_PTR(sfp__table_free) sfp__table *t = NULL;
        TRY(sfp__lab_table(lab, e, &t, err));
        TRY(set_caption(lab, e, t, err));
        TRY(write_files(lab, e, t, err));
        TRY(put_experiment(lab, e, t, &page, err));
    }
    TRY(sfp__path_print(path, sizeof path, err, "%s/index.html", lab->opt.out));
    TRY(sfp__page_write(&page, path, err));
    return write_results(lab, json, err);
}

/* --------------------------------------------------------------------------------------------------------------- checking */

static sfp_status read_results(const char *path, sfp__json_value **out, sfp_error *err)
{
    TRY(sfp__json_read(path, RESULTS_MAX, out, err));
    if (sfp__json_is(sfp__json_get(*out, "costs"), SFP__JSON_OBJECT) &&
        sfp__json_is(sfp__json_get(*out, "cells"), SFP__JSON_ARRAY))
        return SFP_OK;
    return sfp__fail(err, SFP_EFORMAT, "%s: not a results.json of an experiment", path);
}

/* Writes a file of costs that is used with any inputs: the user wants to compare with the results that it belongs to. */
static sfp_status write_given_cost(const char *path, const char *text, sfp_error *err)
{
    static const char any[] = SFP__INPUTS_LINE SFP__INPUTS_ANY "\n";
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    sfp__text_printf(&t, "%s%s", strncmp(text, any, strlen(any)) == 0 ? "" : any, text);
    TRY(sfp__check_memory(!t.failed, err));
    return sfp__file_write(path, t.s, t.length, err);
}

/* Finds an entry "key=value" of `a` that `b` does not have; writes its key. */
static bool find_missing(const sfp__strings *a, const sfp__strings *b, char key[SFP_KEY_MAX])
{
    for (int i = 0; i < a->count; i++)
        if (!sfp__setting_is_neutral(a->s[i]) && sfp__strings_find(b, a->s[i]) < 0) {
            (void)snprintf(key, SFP_KEY_MAX, "%.*s", (int)strcspn(a->s[i], "="), a->s[i]);
            return true;
        }
    return false;
}

/* The first setting in which an execution differs from that of a results.json. */
typedef struct difference {
    char key[SFP_KEY_MAX]; /* "": none */
    char was[256];         /* value in the file */
    const char *now;
} difference;

static sfp_status find_difference(const sfp__lab *lab, const sfp__json_value *root, difference *out, sfp_error *err)
{
    OWNED_BY(sfp__strings_done) sfp__strings then = {0};
    const sfp__json_value *list = sfp__json_get(root, "settings");
    *out = (difference){0};
    for (size_t i = 0; i < sfp__json_size(list); i++)
        if (sfp__json_text(sfp__json_at(list, i)))
            TRY(sfp__strings_add(&then, sfp__json_text(sfp__json_at(list, i)), err));
    if (!find_missing(&then, lab->opt.settings, out->key) && !find_missing(lab->opt.settings, &then, out->key))
        return SFP_OK;
    const char *was = sfp__settings_value(&then, out->key), *now = sfp__settings_value(lab->opt.settings, out->key);
    (void)snprintf(out->was, sizeof out->was, "%s", was ? was : "not set");
    out->now = now ? now : "not set";
    return SFP_OK;
}

static sfp_status check_settings(const sfp__lab *lab, const sfp__json_value *root, sfp_error *err)
{
    difference d;
    TRY(find_difference(lab, root, &d, err));
    return *d.key ? sfp__fail_key(err, "check", SFP_EINVAL, "check is '%s', in which %s is %s; here it is %s, expected the same",
                                  lab->opt.check, d.key, d.was, d.now)
                  : SFP_OK;
}

sfp_status sfp__lab_report_replaced(const sfp__lab *lab, sfp_error *err)
{
    OWNED sfp__json_value *root = NULL;
    char path[PATH_MAX];
    difference d = {0};
    TRY(sfp__path_print(path, sizeof path, err, "%s/results.json", lab->opt.out));
    if (sfp__json_read(path, RESULTS_MAX, &root, NULL))
        return SFP_OK; /* there is none, or it will be replaced by one that can be read */
    TRY(find_difference(lab, root, &d, err));
    if (*d.key)
        sfp__lab_message(
            lab, SFP_LOG_INFO,
            "%s: the tables and the page of an execution with other settings are replaced (%s was %s); its runs stay",
            lab->opt.out, d.key, d.was);
    return SFP_OK;
}

sfp_status sfp__lab_import_costs(const sfp__lab *lab, sfp_error *err)
{
    OWNED sfp__json_value *root = NULL;
    char own[PATH_MAX];
    struct stat a, b;
    TRY(sfp__path_print(own, sizeof own, err, "%s/results.json", lab->opt.out));
    if (stat(own, &a) == 0 && stat(lab->opt.check, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return sfp__fail_key(err, "check", SFP_EINVAL,
                             "check is '%s', the results of --out itself, expected those of another directory", lab->opt.check);
    TRY(read_results(lab->opt.check, &root, err));
    TRY(check_settings(lab, root, err));
    const sfp__json_value *costs = sfp__json_get(root, "costs");
    for (size_t i = 0; i < sfp__json_size(costs); i++) {
        const sfp__json_value *text = sfp__json_at(costs, i);
        const char *key = text->key;
        char path[PATH_MAX];
        if (strlen(key) != 16 || strspn(key, "0123456789abcdef") != 16 || !sfp__json_is(text, SFP__JSON_STRING))
            return sfp__fail(err, SFP_EFORMAT, "%s: 'costs' has an entry that is not a processing time", lab->opt.check);
        TRY(sfp__path_print(path, sizeof path, err, "%s/costs/%s", lab->opt.out, key));
        TRY(sfp__directory_create_for(path, err));
        TRY(write_given_cost(path, sfp__json_text(text), err));
    }
    return SFP_OK;
}

static const sfp__cell *find_cell(const sfp__lab *lab, const sfp__json_value *then)
{
    const char *e = sfp__json_text(sfp__json_get(then, "experiment")), *row = sfp__json_text(sfp__json_get(then, "row"));
    const char *column = sfp__json_text(sfp__json_get(then, "column"));
    int64_t repetition = sfp__json_integer(sfp__json_get(then, "repetition"));
    for (int i = 0; e && row && column && i < lab->cell_count; i++) {
        const sfp__cell *c = &lab->cells[i];
        const sfp__experiment *own = &lab->experiments[c->experiment];
        if (c->repetition + 1 == repetition && strcmp(own->name, e) == 0 && strcmp(own->rows[c->row].name, row) == 0 &&
            strcmp(own->columns[c->column].name, column) == 0)
            return c;
    }
    return NULL;
}

/* Compares the numbers of one cell; *moved counts those that differ. Measured times are not compared, nor runs that depend on them. */
static void check_cell(const sfp__lab *lab, const sfp__cell *c, const sfp__json_value *then, int *compared, int *moved)
{
    const sfp__metric *list[SFP__METRICS_MAX];
    int metrics = sfp__experiment_metrics(&lab->experiments[c->experiment], list);
    char name[256];
    for (int m = 0; m < metrics; m++) {
        const sfp__json_value *v = sfp__json_get(sfp__json_get(then, "values"), list[m]->name);
        if (!sfp__json_is_number(v) || c->state != SFP__CELL_DONE || sfp__metric_is_time(list[m]))
            continue;
        (*compared)++;
        if (sfp__json_number(v) == c->value[m])
            continue;
        (*moved)++;
        sfp__lab_message(lab, SFP_LOG_WARNING, "%s, repetition %d: %s was %.6g and is %.6g",
                         sfp__cell_name(lab, c, name, sizeof name), c->repetition + 1, list[m]->name, sfp__json_number(v),
                         c->value[m]);
    }
}

sfp_status sfp__lab_check(const sfp__lab *lab, sfp_error *err)
{
    OWNED sfp__json_value *root = NULL;
    int compared = 0, moved = 0;
    TRY(read_results(lab->opt.check, &root, err));
    const sfp__json_value *cells = sfp__json_get(root, "cells");
    for (size_t i = 0; i < sfp__json_size(cells); i++) {
        const sfp__json_value *then = sfp__json_at(cells, i);
        const sfp__cell *c = find_cell(lab, then);
        if (c)
            check_cell(lab, c, then, &compared, &moved);
    }
    if (moved)
        return sfp__fail(err, SFP_EINVAL, "%s: %d of %d numbers have moved", lab->opt.check, moved, compared);
    if (compared == 0)
        return sfp__fail(err, SFP_EINVAL, "%s: no number could be compared, expected the same experiments and settings",
                         lab->opt.check);
    sfp__lab_message(lab, SFP_LOG_INFO, "%s: all %d numbers are the same", lab->opt.check, compared);
    return SFP_OK;
}
