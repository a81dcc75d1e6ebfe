/* Compares runs: the options in which they differ, then the results. Runs that differ only in the seed (and in the output
 * directory) are repetitions: they share a column, with mean and 95 % interval. Of several runs with one seed, only the newest is
 * used, because the others are not independent samples and would narrow the interval. */
#include "cli/commands/runs_groups.h"

#include "cli/ui.h"
#include "io/json_write.h"
#include "results/statistics.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(sfp_result, member)

const sfp__result_column sfp__result_columns[] = {
    {"average accuracy", "average_accuracy", 4, AT(average_accuracy), .fraction = true, .better = 1, .main = true},
    {"forgetting", "forgetting", 4, AT(forgetting), .fraction = true, .better = -1, .main = true},
    {"backward transfer", "backward_transfer", 4, AT(backward_transfer), .fraction = true, .better = 1},
    {"prequential accuracy", "prequential_accuracy", 4, AT(prequential_accuracy), .fraction = true, .better = 1, .main = true},
    {"class coverage", "coverage", 4, AT(coverage), .fraction = true},
    {"offered", "offered", 0, AT(samples.offered), .count = true},
    {"learned in closed form", "closed_form", 0, AT(samples.closed_form), .count = true},
    {"trained on", "trained", 0, AT(samples.trained), .count = true},
    {"dropped", "dropped", 0, AT(samples.dropped), .count = true},
    {"excluded", "excluded", 0, AT(samples.excluded), .count = true, .rare = true},
    {"largest lag, s", "lag_max", 3, AT(lag.max), .better = 0},
    {"samples/s", "samples_per_second", 1, AT(samples_per_second), .better = 1},
    {"runtime, s", "runtime_seconds", 1, AT(seconds.select), .better = -1, .main = true},
    {"seconds", "seconds", 1, AT(seconds.total), .better = 0},
    {"peak memory, MiB", "peak_rss_mib", 0, AT(peak_rss_bytes), .count = true, .better = -1},
    {0},
};

double sfp__result_column_value(const sfp__result_column *n, const sfp_result *r)
{
    const void *at = (const char *)r + n->offset;
    double x = n->count ? (double)*(const uint64_t *)at : *(const double *)at;
    if (n->offset == AT(seconds.select))
        return r->seconds.select + r->seconds.train + r->seconds.buffer;
    if (n->offset == AT(samples.closed_form))
        return (double)sfp__result_closed_form(r);
    if (n->offset == AT(samples.trained))
        return (double)sfp__result_trained(r);
    if (n->offset == AT(samples.dropped))
        return (double)sfp__result_dropped(r);
    return n->offset == AT(peak_rss_bytes) ? x / (1 << 20) : x;
}

bool sfp__result_column_shown(const sfp__result_column *n, const sfp_result *r)
{
    return !n->rare || sfp__result_column_value(n, r) > 0;
}

/* --------------------------------------------------------------------- table */

#define CELL 64

typedef struct table {
    int columns; /* one for the labels, and one per group */
    size_t rows, capacity;
    char (*cell)[CELL];
    bool failed;
} table;

/* Returns row r; column 0 contains the label. */
static char (*row_of(const table *t, size_t r))[CELL]
{
    return t->cell + r * (size_t)t->columns;
}

static char (*new_row(table *t, const char *label))[CELL]
{
    size_t bytes = (size_t)t->columns * CELL;
    if (!sfp__grow(&t->cell, bytes, t->rows, t->rows + 1, &t->capacity)) {
        t->failed = true;
        return NULL;
    }
    char(*row)[CELL] = row_of(t, t->rows++);
    memset(row, 0, bytes);
    (void)snprintf(row[0], CELL, "%s", label);
    return row;
}

static void add_text(char *cell, const char *text)
{
    size_t used = strlen(cell);
    int n = snprintf(cell + used, CELL - used, "%s%s", used ? ", " : "", text);
    if (n >= (int)(CELL - used))
        memcpy(cell + CELL - 4, "...", 4);
}

static void add_run(char *cell, const sfp__named_run *run)
{
    char text[CELL];
    (void)snprintf(text, sizeof text, "%s%s", run->name, run->result.finished ? "" : " (not finished)");
    add_text(cell, text);
}

static void option_row(const sfp__run_groups *g, const char *key, void *ctx)
{
    char(*row)[CELL] = new_row(ctx, sfp__result_option_name(key));
    for (int k = 0; row && k < g->count; k++)
        add_text(row[k + 1], sfp__run_groups_option(g, k, key));
}

static void number_row(const sfp__run_groups *g, const sfp__result_column *number, table *t)
{
    char(*row)[CELL] = new_row(t, number->label);
    for (int k = 0; row && k < g->count; k++) {
        double mean, half;
        int n = sfp__run_groups_values(g, k, number);
        sfp__mean_interval(n, g->x, &mean, &half);
        if (n == 0)
            (void)snprintf(row[k + 1], CELL, "-");
        else if (isnan(sfp__shown_half(n, half)))
            (void)snprintf(row[k + 1], CELL, "%.*f", number->decimals, sfp__no_minus_zero(mean, number->decimals));
        else
            (void)snprintf(row[k + 1], CELL, "%.*f \xc2\xb1 %.*f", number->decimals, sfp__no_minus_zero(mean, number->decimals),
                           number->decimals, half);
    }
}

static void print_table(const table *t)
{
    for (size_t r = 0; r < t->rows; r++) {
        for (int c = 0; c < t->columns; c++) {
            int width = 0;
            for (size_t k = 0; k < t->rows; k++) {
                int w = sfp__text_width(row_of(t, k)[c]);
                width = w > width ? w : width;
            }
            const char *text = row_of(t, r)[c];
            sfp__put_text(stdout, text, 0);
            if (c + 1 < t->columns && *text)
                (void)printf("%*s", width - sfp__text_width(text) + 2, "");
        }
        (void)printf("\n");
    }
}

static void print_footnotes(const sfp__run_groups *g)
{
    int excluded = sfp__run_groups_excluded(g);
    const char *between = "Of several runs with one seed in a column, only the newest is used; excluded: ";
    (void)printf(g->count < g->n ? "\n" : "");
    if (g->count < g->n - excluded)
        (void)printf(
            "Columns of several runs show the mean and, from %d runs on, half the width of the 95 %% Student-t interval.\n",
            SFP_INTERVAL_RUNS);
    for (int i = 0; i < g->n; i++) {
        if (!g->excluded[i])
            continue;
        (void)printf("%s", between);
        sfp__put_text(stdout, g->runs[i].name, 0);
        between = ", ";
    }
    (void)printf(excluded ? ".\n" : "");
}

static sfp_status print_text(const sfp__run_groups *g, sfp_error *err)
{
    table t = {.columns = g->count + 1};
    char(*names)[CELL] = new_row(&t, "run"), text[32];
    for (int i = 0; names && i < g->n; i++)
        if (!g->excluded[i])
            add_run(names[g->of[i] + 1], &g->runs[i]);
    char(*seeds)[CELL] = new_row(&t, "seed");
    for (int i = 0; seeds && i < g->n; i++) {
        if (g->excluded[i])
            continue;
        (void)snprintf(text, sizeof text, "%" PRIu64, g->runs[i].result.seed);
        add_text(seeds[g->of[i] + 1], text);
    }
    sfp__run_groups_naming(g, option_row, &t);
    (void)new_row(&t, "");
    for (const sfp__result_column *number = sfp__result_columns; number->label; number++)
        if (sfp__run_groups_show(g, number))
            number_row(g, number, &t);
    if (!t.failed)
        print_table(&t);
    if (!t.failed)
        print_footnotes(g);
    sfp__free(t.cell);
    return t.failed ? sfp__fail_nomem(err) : SFP_OK;
}

/* ---------------------------------------------------------------------- json */

static void option_json(const sfp__run_groups *g, const char *key, void *ctx)
{
    sfp__json *j = ctx;
    sfp__json_array(j, key);
    for (int k = 0; k < g->count; k++)
        sfp__json_string(j, NULL, sfp__run_option(&g->runs[g->first[k]].result, key));
    sfp__json_end(j);
}

static void number_json(sfp__json *j, const sfp__run_groups *g, int k, const sfp__result_column *number)
{
    double mean, half;
    int n = sfp__run_groups_values(g, k, number);
    sfp__mean_interval(n, g->x, &mean, &half);
    sfp__json_object(j, number->key);
    sfp__json_int(j, "n", n);
    sfp__json_real(j, "mean", mean);
    sfp__json_real(j, "half", half);
    sfp__json_end(j);
}

static void unfinished_json(sfp__json *j, const sfp__run_groups *g, int k)
{
    sfp__json_array(j, "not_finished");
    for (int i = 0; i < g->n; i++)
        if (sfp__run_groups_use(g, i, k) && !g->runs[i].result.finished)
            sfp__json_string(j, NULL, g->runs[i].name);
    sfp__json_end(j);
}

static void names_json(sfp__json *j, const sfp__run_groups *g, int k, const char *key, bool excluded)
{
    sfp__json_array(j, key);
    for (int i = 0; i < g->n; i++)
        if (g->of[i] == k && g->excluded[i] == excluded)
            sfp__json_string(j, NULL, g->runs[i].name);
    sfp__json_end(j);
}

static void print_json(const sfp__run_groups *g)
{
    sfp__json j;
    sfp__json_begin(&j, stdout);
    sfp__json_object(&j, "options_that_differ");
    sfp__run_groups_differing(g, option_json, &j);
    sfp__json_end(&j);
    sfp__json_array(&j, "columns");
    for (int k = 0; k < g->count; k++) {
        sfp__json_object(&j, NULL);
        names_json(&j, g, k, "runs", false);
        names_json(&j, g, k, "left_out", true);
        unfinished_json(&j, g, k);
        sfp__json_array(&j, "seeds");
        for (int i = 0; i < g->n; i++)
            if (sfp__run_groups_use(g, i, k))
                sfp__json_seed(&j, NULL, g->runs[i].result.seed);
        sfp__json_end(&j);
        for (const sfp__result_column *number = sfp__result_columns; number->label; number++)
            number_json(&j, g, k, number);
        sfp__json_end(&j);
    }
    sfp__json_end_all(&j);
}

sfp_status sfp__runs_compare(int n, const sfp__named_run *runs, sfp__compare_format format, const char *path, sfp_error *err)
{
    OWNED_BY(sfp__run_groups_done) sfp__run_groups g = {0};
    TRY(sfp__run_groups_init(&g, n, runs, err));
    if (format == SFP_COMPARE_TEXT)
        return print_text(&g, err);
    if (format != SFP_COMPARE_JSON)
        return sfp__runs_write_table(&g, format, path, err);
    print_json(&g);
    return SFP_OK;
}
