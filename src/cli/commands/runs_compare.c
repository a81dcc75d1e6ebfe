/* `runs compare`: a plain table of the main numbers, or all numbers as JSON. `streamfp compare`, of the Python package, makes the tables
 * and plots of a paper from this JSON. */
#include "cli/commands/runs_groups.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "io/json_write.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MIN_INTERVAL = 3 }; /* minimum number of runs for which an interval is shown: with two it can be wider than 100 points */

/* The quantile 0.975 of Student's t: exact up to 10 degrees of freedom, then to six digits by the expansion in 1 / df. */
static double student_t(int df)
{
    static const double exact[] = {12.7062047362, 4.3026527297, 3.1824463053, 2.7764451052, 2.5705818356,
                                   2.4469118511,  2.3646242516, 2.3060041352, 2.2621571628, 2.2281388520};
    if (df <= (int)(sizeof exact / sizeof *exact))
        return exact[df - 1];
    double u = 1.0 / df;
    return 1.9599639845 + u * (2.3722712 + u * (2.8224986 + u * (2.5558497 + u * 1.5895341)));
}

typedef struct estimate {
    int n;
    double mean, half; /* NAN: not defined (n < 1, n < 2) */
} estimate;

/* Mean and half width of the 95 % Student-t interval of a number in group k. */
static estimate estimate_of(const sfp__run_groups *g, int k, const sfp__result_field *number)
{
    estimate e = {.n = sfp__run_groups_values(g, k, number), .mean = NAN, .half = NAN};
    double sum = 0, squares = 0;
    for (int i = 0; i < e.n; i++)
        sum += g->x[i];
    if (e.n > 0)
        e.mean = sum / e.n;
    for (int i = 0; i < e.n; i++)
        squares += (g->x[i] - e.mean) * (g->x[i] - e.mean);
    if (e.n > 1)
        e.half = student_t(e.n - 1) * sqrt(squares / (e.n - 1) / e.n);
    return e;
}

/* ---------------------------------------------------------------------- names */

static void put_option(const sfp__run_groups *g, const sfp__strings *keys, int k, const char *key, sfp__text *out)
{
    sfp__text_put(out, out->length ? ", " : "");
    if (keys->count > 1)
        sfp__text_printf(out, "%s ", key);
    sfp__text_put(out, sfp__run_groups_option(g, k, key));
}

/* Writes the options of group k that differ from the other groups: "select random, buffer er". Groups with different presets have only
 * those that differ from their preset: "preset best, sigma 0.3". The name of an only option is omitted, because it is in the heading. */
static void put_name(const sfp__run_groups *g, const sfp__strings *keys, int k, sfp__text *out)
{
    bool presets = sfp__strings_find(keys, "preset") >= 0;
    char method[64];
    if (presets)
        put_option(g, keys, k, "preset", out);
    for (int i = 0; i < keys->count; i++)
        if (strcmp(keys->s[i], "preset") != 0 && (!presets || sfp__run_groups_chosen(g, k, keys->s[i])))
            put_option(g, keys, k, keys->s[i], out);
    if (keys->count == 0) {
        sfp__result_method(&g->runs[g->first[k]].result, method, sizeof method);
        sfp__text_put(out, method);
    }
}

/* ----------------------------------------------------------------------- JSON */

static void option_json(const sfp__run_groups *g, const char *key, void *ctx)
{
    sfp__json *j = ctx;
    sfp__json_array(j, key);
    for (int k = 0; k < g->count; k++)
        sfp__json_string(j, NULL, sfp__run_option(&g->runs[g->first[k]].result, key));
    sfp__json_end(j);
}

static void runs_json(sfp__json *j, const sfp__run_groups *g, int k, const char *key, bool excluded, bool finished)
{
    sfp__json_array(j, key);
    for (int i = 0; i < g->n; i++)
        if (g->of[i] == k && g->excluded[i] == excluded && (finished || !g->runs[i].result.finished))
            sfp__json_string(j, NULL, g->runs[i].name);
    sfp__json_end(j);
}

static void group_json(sfp__json *j, const sfp__run_groups *g, int k, const char *name)
{
    char key[SFP__FIELD_KEY_SIZE];
    sfp__json_object(j, NULL);
    sfp__json_string(j, "name", name);
    runs_json(j, g, k, "runs", false, true);
    runs_json(j, g, k, "left_out", true, true);
    runs_json(j, g, k, "not_finished", false, false);
    sfp__json_array(j, "seeds");
    for (int i = 0; i < g->n; i++)
        if (sfp__run_groups_use(g, i, k))
            sfp__json_seed(j, NULL, g->runs[i].result.seed);
    sfp__json_end(j);
    for (const sfp__result_field *number = sfp__result_fields; number->key; number++) {
        if (!number->column)
            continue;
        estimate e = estimate_of(g, k, number);
        sfp__json_object(j, sfp__result_field_key(number, key));
        sfp__json_int(j, "n", e.n);
        sfp__json_real(j, "mean", e.mean);
        sfp__json_real(j, "half", e.half);
        sfp__json_end(j);
    }
    sfp__json_end(j);
}

static void print_json(const sfp__run_groups *g, const sfp__strings *keys, const sfp__strings *names)
{
    sfp__json j;
    sfp__json_begin(&j, stdout);
    sfp__json_object(&j, "options_that_differ");
    sfp__run_groups_differing(g, option_json, &j);
    sfp__json_end(&j);
    sfp__json_array(&j, "named_by");
    for (int i = 0; i < keys->count; i++)
        sfp__json_string(&j, NULL, keys->s[i]);
    sfp__json_end(&j);
    sfp__json_array(&j, "columns");
    for (int k = 0; k < names->count; k++)
        group_json(&j, g, k, names->s[k]);
    sfp__json_end_all(&j);
}

/* ---------------------------------------------------------------------- table */

enum { CELL = 64, COLUMNS_MAX = 8 };

typedef struct column {
    const sfp__result_field *number;
    char best[CELL]; /* the best mean of the groups that have finished, as it is printed; "": none, or all are equal */
    int width;
} column;

static const char *mean_text(const sfp__result_field *f, double mean, char text[CELL])
{
    int decimals = f->fraction ? f->decimals - 2 : f->decimals;
    (void)snprintf(text, CELL, "%.*f", decimals, sfp__no_minus_zero(f->fraction ? 100 * mean : mean, decimals));
    return text;
}

/* Returns the heading (k < 0), or "*80.25 ± 1.30" of group k. */
static const char *cell_text(const sfp__run_groups *g, const column *c, int k, char text[CELL])
{
    const sfp__result_field *f = c->number;
    const char *unit = f->fraction ? "%" : f->unit;
    char mean[CELL], half[CELL];
    if (k < 0) {
        (void)snprintf(text, CELL, "%s%s%s", f->label, unit ? ", " : "", unit ? unit : "");
        return text;
    }
    estimate e = estimate_of(g, k, f);
    if (e.n == 0)
        return "-";
    (void)mean_text(f, e.mean, mean);
    bool best = strcmp(mean, c->best) == 0 && !sfp__run_groups_unfinished(g, k), shown = e.n >= MIN_INTERVAL;
    (void)snprintf(text, CELL, "%s%.28s%s%.28s", best ? "*" : "", mean, shown ? " \xc2\xb1 " : "",
                   shown ? mean_text(f, e.half, half) : "");
    return text;
}

static void find_best(const sfp__run_groups *g, column *c)
{
    char text[CELL], first[CELL] = "";
    double best = NAN;
    bool differ = false;
    for (int k = 0; k < g->count && c->number->better; k++) {
        double mean = sfp__run_groups_unfinished(g, k) ? NAN : estimate_of(g, k, c->number).mean;
        if (!isfinite(mean))
            continue;
        if (!*first)
            (void)mean_text(c->number, mean, first);
        differ = differ || strcmp(mean_text(c->number, mean, text), first) != 0;
        if (!(c->number->better * (mean - best) <= 0))
            best = mean;
    }
    if (differ)
        (void)mean_text(c->number, best, c->best);
}

/* Finds the columns that any run has measured; returns their number. */
static int find_columns(const sfp__run_groups *g, column list[COLUMNS_MAX])
{
    char text[CELL];
    int n = 0;
    for (const sfp__result_field *f = sfp__result_fields; f->key && n < COLUMNS_MAX; f++) {
        if (!f->main || !sfp__run_groups_show(g, f))
            continue;
        column *c = &list[n++];
        *c = (column){.number = f};
        find_best(g, c);
        for (int k = -1; k < g->count; k++) {
            int width = sfp__text_width(cell_text(g, c, k, text));
            c->width = width > c->width ? width : c->width;
        }
    }
    return n;
}

static bool is_seed_new(const sfp__run_groups *g, int i)
{
    for (int k = 0; k < i; k++)
        if (!g->excluded[k] && g->runs[k].result.seed == g->runs[i].result.seed)
            return false;
    return !g->excluded[i];
}

/* The lines below the table: options that all runs share, seeds, excluded runs, and what the signs mean. */
static void print_notes(const sfp__run_groups *g, const sfp__strings *keys)
{
    static const char *const shared[][2] = {{"data", "Data"}, {"backbone", "Backbone"}};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        const char *value = sfp__run_groups_option(g, 0, shared[i][0]);
        if (sfp__strings_find(keys, shared[i][0]) < 0 && strcmp(value, "-") != 0) {
            (void)printf("%s: ", shared[i][1]);
            sfp__put_text(stdout, value, 0);
            (void)printf("\n");
        }
    }
    (void)printf("Seeds:");
    for (int i = 0, n = 0; i < g->n; i++)
        if (is_seed_new(g, i))
            (void)printf("%s %" PRIu64, n++ ? "," : "", g->runs[i].result.seed);
    const char *between = "\nOf several runs with one seed, only the newest is used; excluded: ";
    for (int i = 0; i < g->n; i++)
        if (g->excluded[i]) {
            (void)printf("%s", between);
            sfp__put_text(stdout, g->runs[i].name, 0);
            between = ", ";
        }
    (void)printf("\n*: the best mean of its column. \xc2\xb1: half the width of the 95 %% Student-t interval.\n"
                 "'runs compare --json' has all numbers.\n");
}

static void print_table(const sfp__run_groups *g, const sfp__strings *keys, const sfp__strings *names)
{
    column list[COLUMNS_MAX];
    char text[CELL];
    const char *heading = keys->count == 1 ? keys->s[0] : keys->count > 1 ? "options" : "method";
    int n = find_columns(g, list), width = sfp__text_width(heading), total = 0;
    for (int k = 0; k < names->count; k++) {
        int w = sfp__text_width(names->s[k]);
        width = w > width ? w : width;
    }
    for (int k = -1; k < names->count; k++) {
        sfp__put_text(stdout, k < 0 ? heading : names->s[k], width);
        for (int i = 0; i < n; i++) {
            const char *cell = cell_text(g, &list[i], k, text);
            (void)printf("  %*s%s", list[i].width - sfp__text_width(cell), "", cell);
            total += k < 0 ? 2 + list[i].width : 0;
        }
        (void)printf("\n");
        for (int i = 0; k < 0 && i < width + total; i++)
            (void)putchar('-');
        (void)printf("%s", k < 0 ? "\n" : "");
    }
    (void)printf("\n");
    print_notes(g, keys);
}

sfp_status sfp__runs_compare(int n, const sfp__named_run *runs, bool json, sfp_error *err)
{
    OWNED_BY(sfp__run_groups_done) sfp__run_groups g = {0};
    OWNED_BY(sfp__strings_done) sfp__strings keys = {0}, names = {0};
    TRY(sfp__run_groups_init(&g, n, runs, err));
    TRY(sfp__run_groups_naming(&g, &keys, err));
    for (int k = 0; k < g.count; k++) {
        OWNED_BY(sfp__text_done) sfp__text name = {0};
        put_name(&g, &keys, k, &name);
        sfp__text_put(&name, !json && sfp__run_groups_unfinished(&g, k) ? " (not finished)" : "");
        TRY(sfp__check_memory(!name.failed, err));
        TRY(sfp__strings_add(&names, name.s ? name.s : "", err));
    }
    if (json)
        print_json(&g, &keys, &names);
    else
        print_table(&g, &keys, &names);
    return SFP_OK;
}
