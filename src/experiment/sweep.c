/* A sweep: an experiment from the grids of the user. "sigma=0.2,0.5" is a grid; the values of the last grid are the columns, the
 * combinations of all others are the rows. */
#include "experiment/sweep.h"

#include "run/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES_MAX = 1024 };

typedef struct grid {
    const char *key;
    size_t key_length;
    int count;
    const char *value[VALUES_MAX];
    size_t length[VALUES_MAX];
} grid;

static sfp_status read_grid(const char *text, grid *out, sfp_error *err)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1])
        return sfp__fail_key(err, "grid", SFP_EINVAL, "grid is '%s', expected KEY=VALUE,VALUE,...", text);
    *out = (grid){.key = text, .key_length = (size_t)(equals - text)};
    for (const char *s = equals + 1;; s++) {
        size_t n = strcspn(s, ",");
        if (n == 0 || memchr(s, ' ', n))
            return sfp__fail_key(err, "grid", SFP_EINVAL, "grid is '%s', expected values without blanks, separated by commas",
                                 text);
        if (out->count == VALUES_MAX)
            return sfp__fail_key(err, "grid", SFP_EINVAL, "grid '%.*s' has more than %d values", (int)out->key_length, out->key,
                                 VALUES_MAX);
        out->value[out->count] = s;
        out->length[out->count++] = n;
        s += n;
        if (!*s)
            return SFP_OK;
    }
}

/* Settings that the sweep gives each run. */
static bool is_taken(const grid *g)
{
    char key[SFP__KEY_LENGTH_MAX + 1];
    (void)snprintf(key, sizeof key, "%.*s", (int)g->key_length, g->key);
    const sfp__opt *o = sfp__opt_find(sfp__run_table, sfp__run_table_count, key);
    return o && o->per_run;
}

/* Returns the index of a value that occurs before in its grid; -1: there is none. */
static int repeated(const grid *g)
{
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < i; k++)
            if (g->length[k] == g->length[i] && strncmp(g->value[k], g->value[i], g->length[i]) == 0)
                return i;
    return -1;
}

/* A value that another one replaces or repeats would make two rows with the same runs. */
static sfp_status check_keys(int count, const grid *list, sfp_error *err)
{
    for (int g = 0; g < count; g++) {
        int n = (int)list[g].key_length;
        if (is_taken(&list[g]))
            return sfp__fail_key(err, "grid", SFP_EINVAL, "grid is '%s', but %.*s is set by the sweep for each run", list[g].key,
                                 n, list[g].key);
        int again = repeated(&list[g]);
        if (again >= 0)
            return sfp__fail_key(err, "grid", SFP_EINVAL, "grid: the value %.*s of %.*s is given twice",
                                 (int)list[g].length[again], list[g].value[again], n, list[g].key);
        for (int k = 0; k < g; k++)
            if (list[k].key_length == list[g].key_length && strncmp(list[k].key, list[g].key, list[g].key_length) == 0)
                return sfp__fail_key(err, "grid", SFP_EINVAL, "grid: %.*s is given twice", n, list[g].key);
    }
    return SFP_OK;
}

/* Adds one variant: the names and settings of one value of each grid. */
static sfp_status add_variant(sfp__sweep *s, int grids, const grid *list, const int *at, sfp__variant *out, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text name = {0}, settings = {0};
    for (int g = 0; g < grids; g++) {
        sfp__text_printf(&name, "%s%.*s %.*s", g ? ", " : "", (int)list[g].key_length, list[g].key, (int)list[g].length[at[g]],
                         list[g].value[at[g]]);
        sfp__text_printf(&settings, "%s%.*s=%.*s", g ? " " : "", (int)list[g].key_length, list[g].key, (int)list[g].length[at[g]],
                         list[g].value[at[g]]);
    }
    TRY(sfp__check_memory(!name.failed && !settings.failed, err));
    TRY(sfp__strings_add(&s->texts, name.s ? name.s : "all", err));
    out->name = s->texts.s[s->texts.count - 1];
    TRY(sfp__strings_add(&s->texts, settings.s ? settings.s : "", err));
    out->settings = s->texts.s[s->texts.count - 1];
    return SFP_OK;
}

/* All combinations of the values, the last grid fastest. */
static sfp_status combine(sfp__sweep *s, int grids, const grid *list, sfp__variant **out, int *count, sfp_error *err)
{
    int at[SFP__GRIDS_MAX] = {0}, n = 1;
    sfp__variant *v = NULL;
    for (int g = 0; g < grids; g++) {
        if (n > SFP__SWEEP_ROWS_MAX / list[g].count)
            return sfp__fail_key(err, "grid", SFP_ELIMIT, "grid: there are more than %d combinations", SFP__SWEEP_ROWS_MAX);
        n *= list[g].count;
    }
    TRY(sfp__alloc(&v, (size_t)n, sizeof *v, err));
    *out = v; /* owned by the sweep from now on */
    *count = n;
    for (int i = 0; i < n; i++) {
        TRY(add_variant(s, grids, list, at, &v[i], err));
        for (int g = grids - 1; g >= 0 && ++at[g] == list[g].count; g--)
            at[g] = 0;
    }
    return SFP_OK;
}

static bool is_numeric(const grid *g)
{
    for (int i = 0; i < g->count; i++) {
        char *end;
        (void)strtod(g->value[i], &end);
        if (end != g->value[i] + g->length[i])
            return false;
    }
    return g->count > 1;
}

sfp_status sfp__sweep_init(sfp__sweep *s, int count, const char *const *grids, sfp_error *err)
{
    OWNED grid *list = NULL;
    *s = (sfp__sweep){0};
    if (count < 1 || count > SFP__GRIDS_MAX)
        return sfp__fail_key(err, "grid", SFP_EINVAL, "grid is given %d times, expected 1 to %d grids", count, SFP__GRIDS_MAX);
    TRY(sfp__alloc(&list, (size_t)count, sizeof *list, err));
    for (int g = 0; g < count; g++)
        TRY(read_grid(grids[g], &list[g], err));
    TRY(check_keys(count, list, err));
    bool one = count == 1;
    TRY(combine(s, one ? 1 : count - 1, list, &s->rows, &s->row_count, err));
    TRY(combine(s, one ? 0 : 1, list + count - 1, &s->columns, &s->column_count, err));
    if (one)
        s->columns[0].name = "";
    s->experiment = (sfp__experiment){.name = "sweep",
                                      .title = "all combinations of the grids",
                                      .question = "Which settings are best on this data?",
                                      .settings = "",
                                      .rows = s->rows,
                                      .row_count = s->row_count,
                                      .columns = s->columns,
                                      .column_count = s->column_count,
                                      .row_heading = "settings",
                                      .metrics = "Acc,Fgt,Preq,Runtime",
                                      .numeric_columns = !one && is_numeric(&list[count - 1])};
    return SFP_OK;
}

void sfp__sweep_done(sfp__sweep *s)
{
    sfp__free(s->rows);
    sfp__free(s->columns);
    sfp__strings_done(&s->texts);
}
