/* Compares runs: the options in which they differ, then the results. Runs that differ only in the seed (and in the output
 * directory) are repetitions: they share a column, with mean and 95 % interval. Of several runs with one seed, only the newest is
 * used, because the others are not independent samples and would narrow the interval. */
#include "cli/commands/runs_compare.h"

#include "cli/ui.h"
#include "io/json_write.h"
#include "results/statistics.h"

#include "base/mem.h"
#include "run/clock.h"
#include "stream/source.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(sfp_result, member)

const sfp__result_column sfp__result_columns[] = {
    {"average accuracy", "average_accuracy", 4, AT(average_accuracy), false},
    {"forgetting", "forgetting", 4, AT(forgetting), false},
    {"backward transfer", "backward_transfer", 4, AT(backward_transfer), false},
    {"prequential accuracy", "prequential_accuracy", 4, AT(prequential_accuracy), false},
    {"class coverage", "coverage", 4, AT(coverage), false},
    {"offered", "offered", 0, AT(samples.offered), true},
    {"trained", "trained", 0, AT(samples.trained), true},
    {"dropped", "dropped", 0, AT(samples.dropped), true},
    {"largest lag, s", "lag_max", 3, AT(lag.max), false},
    {"samples/s", "samples_per_second", 1, AT(samples_per_second), false},
    {"seconds", "seconds", 1, AT(seconds.total), false},
    {"peak memory, MiB", "peak_rss_mib", 0, AT(peak_rss_bytes), true},
    {0},
};

double sfp__result_column_value(const sfp__result_column *n, const sfp_result *r)
{
    const void *at = (const char *)r + n->offset;
    double x = n->count ? (double)*(const uint64_t *)at : *(const double *)at;
    return n->offset == AT(peak_rss_bytes) ? x / (1 << 20) : x;
}

/* -------------------------------------------------------------------- groups */

typedef struct groups {
    int n, count;
    const sfp__named_run *runs;
    int *of;        /* (n) group of a run */
    bool *excluded; /* (n) excluded, because a newer run of the group has the same seed */
    int *first;     /* (count) first run of a group */
    double *x;      /* (n) values of the current group */
} groups;

/* Options that do not affect the comparison. */
static bool is_ignored(const char *key)
{
    static const char *const keys[] = {"seed", "out", "resume", "json", "config"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static bool is_live(const char *data)
{
    const sfp__source_kind *kind = sfp__source_kind_find(data);
    const char *path = data + strcspn(data, ":");
    bool endless = *path && path[1] && path[1 + strspn(path + 1, "0")] == '\0'; /* synthetic:0 */
    return kind && (kind->live || (endless && strcmp(kind->name, "synthetic") == 0));
}

/* Returns the clock that the run used. If --clock is not set, the rate determines it (clock.h); without a rate, only a live
 * stream can have a clock other than off. */
static const char *clock_of(const sfp_result *r)
{
    const char *given = sfp__result_value(r, "clock"), *rate = sfp__result_value(r, "rate"), *data = sfp__result_value(r, "data");
    const char *real = sfp__clock_name(SFP_CLOCK_REAL);
    bool live = data && is_live(data), rated = rate && strcmp(rate, "max") != 0;
    bool paced = live && strncmp(data, "synthetic", strlen("synthetic")) !=
                             0; /* the source has its own rate: clock real needs no --rate */
    if (given && (!rate || rated || (paced && strcmp(given, real) == 0)))
        return given;
    return !rated ? sfp__clock_name(SFP_CLOCK_OFF) : live ? real : sfp__clock_name(SFP_CLOCK_VIRTUAL);
}

/* The effective value of an option; NULL: no such option. */
static const char *value_of(const sfp_result *r, const char *key)
{
    return strcmp(key, "clock") == 0 ? clock_of(r) : sfp__result_value(r, key);
}

/* true: every option of a has the same value in b. */
static bool options_equal_in(const sfp_result *a, const sfp_result *b)
{
    for (int i = 0; i < a->config_count; i++) {
        const char *key = a->config[i].key, *other = value_of(b, key);
        if (!is_ignored(key) && (!other || strcmp(other, value_of(a, key)) != 0))
            return false;
    }
    return true;
}

static void make_groups(groups *g)
{
    for (int i = 0; i < g->n; i++) {
        int k = 0;
        const sfp_result *r = &g->runs[i].result;
        while (k < g->count &&
               !(options_equal_in(r, &g->runs[g->first[k]].result) && options_equal_in(&g->runs[g->first[k]].result, r)))
            k++;
        if (k == g->count)
            g->first[g->count++] = i;
        g->of[i] = k;
    }
}

/* A finished run is newer than an unfinished one; then the later start time decides, then the later position on the command
 * line. */
static bool is_newer(const groups *g, int i, int than)
{
    const sfp_result *a = &g->runs[i].result, *b = &g->runs[than].result;
    int order = a->finished != b->finished ? a->finished - b->finished : strcmp(a->started, b->started);
    return order > 0 || (order == 0 && i > than);
}

static void exclude_older(groups *g)
{
    for (int i = 0; i < g->n; i++) {
        g->excluded[i] = false;
        for (int k = 0; k < g->n && !g->excluded[i]; k++)
            g->excluded[i] = g->of[k] == g->of[i] && g->runs[k].result.seed == g->runs[i].result.seed && is_newer(g, k, i);
    }
}

static int count_excluded(const groups *g)
{
    int count = 0;
    for (int i = 0; i < g->n; i++)
        count += g->excluded[i];
    return count;
}

/* true: run i is used in column k. */
static bool counts_in(const groups *g, int i, int k)
{
    return g->of[i] == k && !g->excluded[i];
}

/* Writes the measured values of group k to g->x; returns their number. */
static int values_of(const groups *g, int k, const sfp__result_column *number)
{
    int count = 0;
    for (int i = 0; i < g->n; i++) {
        double x = counts_in(g, i, k) ? sfp__result_column_value(number, &g->runs[i].result) : NAN;
        if (isfinite(x))
            g->x[count++] = x;
    }
    return count;
}

/* Calls fn once for every option whose value differs between groups. */
static void for_differing(const groups *g, void (*fn)(const groups *g, const char *key, void *ctx), void *ctx)
{
    for (int k = 0; k < g->count; k++) {
        const sfp_result *r = &g->runs[g->first[k]].result;
        for (int i = 0; i < r->config_count; i++) {
            const char *key = r->config[i].key;
            bool seen = is_ignored(key), same = true;
            for (int m = 0; m < g->count; m++) {
                const sfp_result *of = &g->runs[g->first[m]].result;
                const char *other = value_of(of, key);
                seen = seen || (m < k && sfp__result_value(of, key));
                same = same && other && strcmp(other, value_of(r, key)) == 0;
            }
            if (!seen && !same)
                fn(g, key, ctx);
        }
    }
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

static void option_row(const groups *g, const char *key, void *ctx)
{
    char(*row)[CELL] = new_row(ctx, sfp__result_option_name(key));
    for (int k = 0; row && k < g->count; k++) {
        const char *value = value_of(&g->runs[g->first[k]].result, key);
        add_text(row[k + 1], value && *value ? sfp__result_option_value(key, value) : "-");
    }
}

static void number_row(const groups *g, const sfp__result_column *number, table *t)
{
    char(*row)[CELL] = new_row(t, number->label);
    for (int k = 0; row && k < g->count; k++) {
        double mean, half;
        int n = values_of(g, k, number);
        sfp__mean_interval(n, g->x, &mean, &half);
        if (n == 0)
            (void)snprintf(row[k + 1], CELL, "-");
        else if (n == 1)
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

static void print_footnotes(const groups *g)
{
    int excluded = count_excluded(g);
    const char *between = "Of several runs with one seed in a column, only the newest is used; excluded: ";
    (void)printf(g->count < g->n ? "\n" : "");
    if (g->count < g->n - excluded)
        (void)printf("Columns of several runs show the mean and half the width of the 95 %% Student-t interval.\n");
    for (int i = 0; i < g->n; i++) {
        if (!g->excluded[i])
            continue;
        (void)printf("%s", between);
        sfp__put_text(stdout, g->runs[i].name, 0);
        between = ", ";
    }
    (void)printf(excluded ? ".\n" : "");
}

static sfp_status print_text(const groups *g, sfp_error *err)
{
    table t = {.columns = g->count + 1};
    char(*names)[CELL] = new_row(&t, "run"), text[32];
    for (int i = 0; names && i < g->n; i++)
        if (!g->excluded[i])
            add_text(names[g->of[i] + 1], g->runs[i].name);
    char(*seeds)[CELL] = new_row(&t, "seed");
    for (int i = 0; seeds && i < g->n; i++) {
        if (g->excluded[i])
            continue;
        (void)snprintf(text, sizeof text, "%" PRIu64, g->runs[i].result.seed);
        add_text(seeds[g->of[i] + 1], text);
    }
    for_differing(g, option_row, &t);
    (void)new_row(&t, "");
    for (const sfp__result_column *number = sfp__result_columns; number->label; number++)
        number_row(g, number, &t);
    if (!t.failed)
        print_table(&t);
    if (!t.failed)
        print_footnotes(g);
    sfp__free(t.cell);
    return t.failed ? sfp__fail_nomem(err) : SFP_OK;
}

/* ---------------------------------------------------------------------- json */

static void option_json(const groups *g, const char *key, void *ctx)
{
    sfp__json *j = ctx;
    sfp__json_array(j, key);
    for (int k = 0; k < g->count; k++)
        sfp__json_string(j, NULL, value_of(&g->runs[g->first[k]].result, key));
    sfp__json_end(j);
}

static void number_json(sfp__json *j, const groups *g, int k, const sfp__result_column *number)
{
    double mean, half;
    int n = values_of(g, k, number);
    sfp__mean_interval(n, g->x, &mean, &half);
    sfp__json_object(j, number->key);
    sfp__json_int(j, "n", n);
    sfp__json_real(j, "mean", mean);
    sfp__json_real(j, "half", half);
    sfp__json_end(j);
}

static void names_json(sfp__json *j, const groups *g, int k, const char *key, bool excluded)
{
    sfp__json_array(j, key);
    for (int i = 0; i < g->n; i++)
        if (g->of[i] == k && g->excluded[i] == excluded)
            sfp__json_string(j, NULL, g->runs[i].name);
    sfp__json_end(j);
}

static void print_json(const groups *g)
{
    sfp__json j;
    sfp__json_begin(&j, stdout);
    sfp__json_object(&j, "options_that_differ");
    for_differing(g, option_json, &j);
    sfp__json_end(&j);
    sfp__json_array(&j, "columns");
    for (int k = 0; k < g->count; k++) {
        sfp__json_object(&j, NULL);
        names_json(&j, g, k, "runs", false);
        names_json(&j, g, k, "left_out", true);
        sfp__json_array(&j, "seeds");
        for (int i = 0; i < g->n; i++)
            if (counts_in(g, i, k))
                sfp__json_seed(&j, NULL, g->runs[i].result.seed);
        sfp__json_end(&j);
        for (const sfp__result_column *number = sfp__result_columns; number->label; number++)
            number_json(&j, g, k, number);
        sfp__json_end(&j);
    }
    sfp__json_end_all(&j);
}

sfp_status sfp__runs_compare(int n, const sfp__named_run *runs, bool json, sfp_error *err)
{
    groups g = {.n = n, .runs = runs};
    OWNED void *block = NULL;
    size_t count = (size_t)n;
    const sfp__want list[] = {{&g.of, count, sizeof *g.of},
                              {&g.first, count, sizeof *g.first},
                              {&g.excluded, count, sizeof *g.excluded},
                              {&g.x, count, sizeof *g.x}};
    TRY(sfp__block(&block, SFP_LIST(list), err));
    make_groups(&g);
    exclude_older(&g);
    if (!json)
        return print_text(&g, err);
    print_json(&g);
    return SFP_OK;
}
