/* streamfp runs: lists the runs, shows one run, compares several.
 *
 * A run is identified by its number in the registry or by its directory. Given a directory, the command reads its result.json, so
 * that runs of another machine can be shown and compared without adding them to the registry. */
#include "cli/command.h"
#include "cli/commands/run.h"
#include "cli/commands/runs_groups.h"
#include "cli/output.h"
#include "cli/ui.h"
#include "io/directory.h"
#include "io/file.h"
#include "io/json_read.h"
#include "io/json_write.h"

#include "base/mem.h"
#include "results/registry.h"
#include "results/result_fields.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

static const sfp__opt options[] = {
    SFP__ROW_INT("limit", "N", "20", 0, 1000000, "Maximum number of runs to list, newest first. 0: all."),
    SFP__ROW_FLAG("gone", "forget: remove all runs whose directory does not exist any more."),
    SFP__ROW_JSON,
};

/* ---------------------------------------------------------------------- list */

static void put_real(double x, int width, int decimals)
{
    if (isfinite(x))
        (void)printf("  %*.*f", width, decimals, sfp__no_minus_zero(x, decimals));
    else
        (void)printf("  %*s", width, "-");
}

static const char *text_of(const sfp__json_value *run, const char *key)
{
    const char *text = sfp__json_text(sfp__json_get(run, key));
    return text ? text : "";
}

static void put_number(const sfp__json_value *run, const char *key, int width, int decimals)
{
    const sfp__json_value *x = sfp__json_get(run, key);
    put_real(sfp__json_is_number(x) ? sfp__json_number(x) : NAN, width, decimals);
}

static sfp_status list_row(void *ctx, const char *text, sfp_error *err)
{
    int *count = ctx;
    OWNED sfp__json_value *run = NULL;
    TRY(sfp__json_parse("registry", text, strlen(text), &run, err));
    const sfp__json_value *seed = sfp__json_get(run, "seed");
    if ((*count)++ == 0)
        (void)printf("%5s  %-20s  %-24s  %-28s  %6s  %8s  %8s  %9s  %8s  %s\n", "run", "started", "method", "data", "seed",
                     "accuracy", "forget", "samples/s", "seconds", "directory");
    (void)printf("%5" PRId64 "  ", (int64_t)sfp__json_integer(sfp__json_get(run, "id")));
    sfp__put_text(stdout, text_of(run, "started"), 20);
    (void)printf("  ");
    sfp__put_cell(stdout, text_of(run, "method"), 24);
    (void)printf("  ");
    sfp__put_cell(stdout, text_of(run, "data"), 28);
    if (sfp__json_is(seed, SFP__JSON_STRING)) /* above 2^63 */
        (void)printf("  %6s", sfp__json_text(seed));
    else
        (void)printf("  %6" PRId64, (int64_t)sfp__json_integer(seed));
    put_number(run, "average_accuracy", 8, 4);
    put_number(run, "forgetting", 8, 4);
    put_number(run, "samples_per_second", 9, 1);
    put_number(run, "seconds", 8, 1);
    (void)printf("  ");
    sfp__put_text(stdout, text_of(run, "dir"), 0);
    bool running = sfp__json_is(sfp__json_get(run, "running"), SFP__JSON_TRUE),
         finished = sfp__json_is(sfp__json_get(run, "finished"), SFP__JSON_TRUE);
    (void)printf("%s%s\n",
                 running    ? " (running)"
                 : finished ? ""
                            : " (not finished)",
                 sfp__json_is(sfp__json_get(run, "gone"), SFP__JSON_TRUE) ? " (gone)" : "");
    return SFP_OK;
}

static sfp_status list(const sfp__args *args, sfp_error *err)
{
    OWNED_PTR(sfp__registry_close) sfp__registry *registry = NULL;
    int count = 0, limit = (int)sfp__args_int(args, "limit");
    bool json = sfp__args_flag(args, "json");
    sfp_status s = sfp__registry_open_readonly(&registry, err);
    bool none = s == SFP_ENOTFOUND;
    if (s && !none)
        return s;
    if (json) {
        sfp__json j;
        sfp__json_begin(&j, stdout);
        s = sfp__registry_write(registry, limit, &j, err);
        sfp__json_end_all(&j);
    } else if (!none) {
        s = sfp__registry_list(registry, limit, list_row, &count, err);
    }
    if (none)
        sfp__info("no runs yet (%s)", err->message);
    else if (!s && !json && count == 0)
        sfp__info("no runs yet");
    return none ? SFP_OK : s;
}

/* ---------------------------------------------------------------------- load */

static bool is_number(const char *s)
{
    return *s && s[strspn(s, "0123456789")] == '\0';
}

static sfp_status load_registered(const char *run, sfp_result *out, sfp_error *err)
{
    OWNED_PTR(sfp__registry_close) sfp__registry *registry = NULL;
    OWNED char *json = NULL;
    char label[96];
    sfp_status s = sfp__registry_open_readonly(&registry, err);
    if (s == SFP_ENOTFOUND)
        return sfp__fail_prefix(err, s, "run %s: not found", run);
    TRY(s);
    TRY(sfp__registry_json(registry, run, &json, err));
    (void)snprintf(label, sizeof label, "run %.50s of the registry", run);
    return sfp__result_parse(label, json, strlen(json), out, err);
}

static sfp_status load(const char *run, sfp_result *out, sfp_error *err)
{
    char path[PATH_MAX];
    struct stat st;
    if (is_number(run))
        return load_registered(run, out, err);
    if (snprintf(path, sizeof path, "%s/result.json", run) < (int)sizeof path && stat(path, &st) == 0)
        return sfp__result_read(path, out, err);
    if (stat(run, &st) == 0 && S_ISREG(st.st_mode))
        return sfp__result_read(run, out, err);
    return load_registered(run, out, err);
}

/* ---------------------------------------------------------------------- show */

static void put_line(const char *label, const char *value)
{
    (void)printf("%-22s  ", label);
    sfp__put_text(stdout, value, 0);
    (void)printf("\n");
}

void sfp__print_numbers(const sfp_result *r)
{
    for (const sfp__result_field *f = sfp__result_fields; f->key; f++)
        if (sfp__result_field_shown(f, r))
            (void)printf("  %-26s %10.*f%s%s\n", f->label, f->decimals,
                         sfp__no_minus_zero(sfp__result_field_value(f, r), f->decimals), f->unit ? " " : "",
                         f->unit ? f->unit : "");
}

static void print_matrix(const sfp_result *r)
{
    char number[16], title[SFP__TITLE_SIZE];
    (void)printf("\naccuracy on task (columns) after task (rows)\n%-20s", "");
    for (int j = 0; j < r->tasks; j++)
        (void)printf("  %6d", j + 1);
    (void)printf("\n");
    for (int i = 0; i < r->tasks; i++) {
        (void)snprintf(number, sizeof number, "%3d", i + 1);
        (void)printf("%s ", number);
        sfp__put_cell(stdout, sfp__result_task_title(r, i, 16, title), 16);
        for (int j = 0; j <= i && i < r->tasks_done; j++)
            put_real(r->accuracy[(size_t)i * (size_t)r->tasks + (size_t)j], 6, 4);
        (void)printf("\n");
    }
}

static void print_run(const sfp_result *r, bool running)
{
    char text[64];
    const char *data = sfp__result_value(r, "data");
    sfp__result_method(r, text, sizeof text);
    put_line("method", text);
    put_line("data", data ? data : "");
    put_line("started", r->started);
    const char *finished = running ? "no, running" : r->finished ? "yes" : "no";
    (void)snprintf(text, sizeof text, "%s, %d of %d tasks evaluated", finished, r->tasks_done, r->tasks);
    put_line("finished", text);
    (void)snprintf(text, sizeof text, "%" PRIu64, r->seed);
    put_line("seed", text);
    put_line("machine", r->machine.cpu);
    sfp__print_numbers(r);
    if (r->tasks > 1)
        print_matrix(r);
    (void)printf("\noptions\n");
    for (int i = 0; i < r->config_count; i++) {
        (void)printf("  ");
        sfp__put_text(stdout, r->config[i].key, 18);
        (void)printf("  ");
        sfp__put_text(stdout, r->config[i].value, 0);
        (void)printf("\n");
    }
}

static sfp_status show(const sfp__args *args, sfp_error *err)
{
    OWNED_BY(sfp__result_done) sfp_result r = {0};
    OWNED char *text = NULL;
    TRY(load(args->operands[1], &r, err));
    if (!sfp__args_flag(args, "json")) {
        print_run(&r, !r.finished && sfp__directory_is_locked(args->operands[1]));
        return SFP_OK;
    }
    TRY(sfp__result_text(&r, true, &text, err));
    (void)printf("%s\n", text);
    return SFP_OK;
}

/* ------------------------------------------------------------- compare, add */

/* Two results are those of the same run if their texts, which include the start time, are equal. */
static sfp_status is_same(const sfp_result *a, const sfp_result *b, bool *same, sfp_error *err)
{
    OWNED char *x = NULL, *y = NULL;
    TRY(sfp__result_text(a, false, &x, err));
    TRY(sfp__result_text(b, false, &y, err));
    *same = strcmp(x, y) == 0;
    return SFP_OK;
}

/* Refuses a run that is listed twice, because as a repetition it would narrow the interval. */
static sfp_status check_different(int n, const sfp__named_run *runs, sfp_error *err)
{
    for (int i = 1; i < n; i++)
        for (int j = 0; j < i; j++) {
            bool same;
            TRY(is_same(&runs[j].result, &runs[i].result, &same, err));
            if (same)
                return sfp__fail_usage(err, "'%s' and '%s' are the same run, expected different runs", runs[j].name,
                                       runs[i].name);
        }
    return SFP_OK;
}

static sfp_status load_and_compare(const sfp__args *args, int n, sfp__named_run *runs, sfp_error *err)
{
    for (int i = 0; i < n; i++) {
        runs[i].name = args->operands[i + 1];
        TRY(load(runs[i].name, &runs[i].result, err));
    }
    TRY(check_different(n, runs, err));
    return sfp__runs_compare(n, runs, sfp__args_flag(args, "json"), err);
}

static sfp_status compare(const sfp__args *args, sfp_error *err)
{
    int n = args->operand_count - 1;
    OWNED sfp__named_run *runs = NULL;
    TRY(sfp__alloc(&runs, (size_t)n, sizeof *runs, err));
    sfp_status s = load_and_compare(args, n, runs, err);
    for (int i = 0; i < n; i++)
        sfp__result_done(&runs[i].result);
    return s;
}

static sfp_status add_one(sfp__registry *registry, const char *dir, sfp__json *json, sfp_error *err)
{
    OWNED_BY(sfp__result_done) sfp_result r = {0};
    char path[PATH_MAX];
    int64_t id = 0;
    TRY(sfp__path_print(path, sizeof path, err, "%s/result.json", dir));
    TRY(sfp__result_read(path, &r, err));
    TRY(sfp__registry_put(registry, dir, &r, &id, err));
    sfp__info("%s: registered as run %" PRId64, dir, id);
    sfp__json_object(json, NULL);
    sfp__json_int(json, "id", id);
    sfp__json_string(json, "dir", dir);
    sfp__json_end(json);
    return SFP_OK;
}

static sfp_status add(const sfp__args *args, sfp_error *err)
{
    OWNED_PTR(sfp__registry_close) sfp__registry *registry = NULL;
    sfp__out o;
    sfp_status s = SFP_OK;
    TRY(sfp__registry_open(&registry, err));
    sfp__out_begin(&o, sfp__args_flag(args, "json"), 0);
    sfp__json_array(&o.json, "runs");
    for (int i = 1; i < args->operand_count && !s; i++)
        s = add_one(registry, args->operands[i], &o.json, err);
    sfp__out_end(&o);
    return s;
}

/* Removes runs from the registry. Their files are not changed. */
static sfp_status forget(const sfp__args *args, sfp_error *err)
{
    OWNED_PTR(sfp__registry_close) sfp__registry *registry = NULL;
    bool gone = sfp__args_flag(args, "gone");
    int count = 0, sum = 0;
    sfp__out o;
    if (gone == (args->operand_count > 1))
        return sfp__fail_usage(err, "forget needs run numbers, run directories or --gone");
    TRY(sfp__registry_open_readonly(&registry, err));
    if (gone)
        TRY(sfp__registry_forget(registry, NULL, &sum, err));
    for (int i = 1; i < args->operand_count; i++) { /* none is removed if one does not exist */
        OWNED char *json = NULL;
        TRY(sfp__registry_json(registry, args->operands[i], &json, err));
    }
    for (int i = 1; i < args->operand_count; i++, sum += count)
        TRY(sfp__registry_forget(registry, args->operands[i], &count, err));
    sfp__info("%d %s removed from the registry", sum, sum == 1 ? "run" : "runs");
    sfp__out_begin(&o, sfp__args_flag(args, "json"), 0);
    sfp__json_int(&o.json, "removed", sum);
    sfp__out_end(&o);
    return SFP_OK;
}

/* Without a verb, the command lists the runs; only --limit and --json concern the list. */
static sfp_status run(const sfp__args *args, sfp_error *err)
{
    if (sfp__args_flag(args, "gone"))
        return sfp__fail_usage(err, "--gone is an option of forget, expected 'runs forget --gone'");
    return list(args, err);
}

static const sfp__verb verbs[] = {
    {"list", list, 0, 0, NULL, "limit"},
    {"show", show, 1, 1, "one run number or directory", NULL},
    {"compare", compare, 2, SFP__OPERANDS_ANY, "at least two run numbers or directories", NULL},
    {"add", add, 1, SFP__OPERANDS_ANY, "at least one run directory", NULL},
    {"forget", forget, 0, SFP__OPERANDS_ANY, "run numbers, run directories or --gone", "gone"},
};

const sfp__command sfp__cmd_runs = {
    .name = "runs",
    .summary = "list runs, show one, compare several",
    .operands = "[list | show RUN | compare RUN RUN... | add DIR... | forget RUN...]",
    .max_operands = SFP__OPERANDS_ANY,
    .text =
        "'list', or no argument, lists the runs in the registry, newest first. 'show' prints one run. 'compare' prints a table "
        "with a row per group of runs that differ only in the seed, named by the preset and the options that differ, with mean "
        "and, from 3 runs on, 95 % Student-t interval; of several runs with one seed, only the newest is used. A run that has "
        "not finished is marked and is never the best. Runtime is the time to select, train and update the buffer. 'streamfp "
        "compare', of the Python package, makes LaTeX, Markdown and CSV tables, pages and plots of the same runs. RUN is a "
        "number from the list or a run directory. 'add' adds directories, for example those of another machine, to the "
        "registry. 'forget' removes runs from the registry, but not their files. In the list, (gone) means that a directory "
        "does not exist any more; the result in the registry can still be shown and compared.\n\n"
        "The registry is $STREAMFP_REGISTRY, else streamfp/runs.db in $XDG_DATA_HOME or ~/.local/share.",
    .examples = "  streamfp runs --limit 5\n"
                "  streamfp runs show 12\n"
                "  streamfp runs compare 12 13 14 runs/baseline\n",
    SFP__COMMAND_OPTIONS(options),
    SFP__COMMAND_VERBS(verbs),
    .run = run,
};
