/* `runs compare`: its JSON output; runs_compare_table.c writes the other formats. */
#include "cli/commands/runs_groups.h"

#include "base/mem.h"
#include "io/json_write.h"
#include "results/statistics.h"

static void option_json(const sfp__run_groups *g, const char *key, void *ctx)
{
    sfp__json *j = ctx;
    sfp__json_array(j, key);
    for (int k = 0; k < g->count; k++)
        sfp__json_string(j, NULL, sfp__run_option(&g->runs[g->first[k]].result, key));
    sfp__json_end(j);
}

static void number_json(sfp__json *j, const sfp__run_groups *g, int k, const sfp__result_field *number)
{
    double mean, half;
    char key[SFP__FIELD_KEY_SIZE];
    int n = sfp__run_groups_values(g, k, number);
    sfp__mean_interval(n, g->x, &mean, &half);
    sfp__json_object(j, sfp__result_field_key(number, key));
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
        for (const sfp__result_field *number = sfp__result_fields; number->key; number++)
            if (number->column)
                number_json(&j, g, k, number);
        sfp__json_end(&j);
    }
    sfp__json_end_all(&j);
}

sfp_status sfp__runs_compare(int n, const sfp__named_run *runs, sfp__compare_format format, const char *path, sfp_error *err)
{
    OWNED_BY(sfp__run_groups_done) sfp__run_groups g = {0};
    TRY(sfp__run_groups_init(&g, n, runs, err));
    if (format != SFP__COMPARE_JSON)
        return sfp__runs_write_table(&g, format, path, err);
    print_json(&g);
    return SFP_OK;
}
