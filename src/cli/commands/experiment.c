/* streamfp experiment: the tables of the paper and beyond, by one command. */
#include "cli/commands/experiment.h"
#include "cli/commands/run.h"
#include "cli/output.h"
#include "cli/run_settings.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json_read.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* -------------------------------------------------------------------------------------------------------------- options */

const sfp__opt *sfp__experiment_options_table(sfp__experiment_table *t, size_t own_count, const sfp__opt *own, size_t *count)
{
    size_t run_count;
    const sfp__opt *run = sfp__run_cli_options(&run_count);
    if (t->count == 0) {
        for (size_t i = 0; i < own_count; i++)
            t->option[t->count++] = own[i];
        for (size_t i = 0; i < run_count && t->count < SFP__EXPERIMENT_ROWS_MAX; i++)
            if (!run[i].per_run && (run[i].type == SFP__OPT_GROUP || !sfp__opt_find(own, own_count, run[i].name)))
                t->option[t->count++] = run[i];
    }
    *count = t->count;
    return t->option;
}

static sfp_status read_settings(const sfp__args *a, sfp_settings *s, sfp_error *err)
{
    size_t count;
    const sfp__opt *run = sfp__run_cli_options(&count);
    for (size_t i = 0; i < a->count; i++) {
        const sfp__opt *o = sfp__opt_find(run, count, a->opts[i].name);
        bool own = o && (o->per_run || o->offset != a->opts[i].offset); /* an option of the execution with that name */
        if (o && !own && o->scope != SFP__SCOPE_COMMAND && a->values[i].rank >= SFP__RANK_FILE)
            TRY(sfp_settings_set(s, o->name, sfp__args_value(a, o->name), err));
    }
    return SFP_OK;
}

/* The command as the user would type it again. */
static void put_command(const sfp__args *a, sfp__text *t)
{
    sfp__text_printf(t, "streamfp %s", a->command);
    for (int i = 0; i < a->operand_count; i++)
        sfp__text_printf(t, " %s", a->operands[i]);
    for (size_t i = 0; i < a->count; i++) {
        if (a->opts[i].type == SFP__OPT_GROUP || a->values[i].rank < SFP__RANK_FILE || !a->values[i].text)
            continue;
        bool flag = a->opts[i].type == SFP__OPT_FLAG && a->values[i].flag;
        if (flag)
            sfp__text_printf(t, " --%s", a->opts[i].name);
        for (const char *s = flag ? NULL : a->values[i].text; s && *s; s = strchr(s, '\n'), s = s ? s + 1 : NULL)
            sfp__text_printf(t, " --%s %.*s", a->opts[i].name, (int)strcspn(s, "\n"), s);
    }
}

/* ------------------------------------------------------------------------------------------------------------- progress */

enum { PRIORITY_ETA = 1, PRIORITY_CELL, PRIORITY_COUNT };

typedef struct screen {
    const atomic_int *stop;
} screen;

static void on_progress(void *ctx, const sfp_experiment_progress *p)
{
    (void)ctx;
    sfp__status_line l = {0};
    char eta[SFP__ETA_MAX];
    if (p->finished && p->seconds > 0) { /* a run has finished, so that the time of the others is known */
        if (isfinite(p->accuracy))
            sfp__info("%d/%d  %s  repetition %d: accuracy %.4f  (%.1f s, ETA %s)", p->done, p->total, p->cell, p->repetition,
                      p->accuracy, p->seconds, sfp__eta_text(p->eta, eta));
        else
            sfp__info("%d/%d  %s  repetition %d  (%.1f s, ETA %s)", p->done, p->total, p->cell, p->repetition, p->seconds,
                      sfp__eta_text(p->eta, eta));
    }
    if (p->finished || !sfp__status_line_rewrites())
        return;
    sfp__status_line_add(&l, PRIORITY_COUNT, "%d/%d runs", p->done, p->total);
    sfp__status_line_add(&l, PRIORITY_CELL, "  %.100s, repetition %d", p->cell, p->repetition);
    if (isfinite(p->eta))
        sfp__status_line_add(&l, PRIORITY_ETA, "  ETA %s", sfp__eta_text(p->eta, eta));
    sfp__status_line_show(&l);
}

static void on_log(void *ctx, sfp_log_level level, const char *message)
{
    (void)ctx;
    sfp__print_log(NULL, level, message);
}

static int is_cancelled(void *ctx)
{
    const screen *s = ctx;
    return atomic_load(s->stop) != 0;
}

/* --------------------------------------------------------------------------------------------------------------- output */

/* Prints DIR/tables/NAME.txt. */
static sfp_status print_table(const char *out, const char *name, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    char path[PATH_MAX];
    size_t size;
    TRY(sfp__path_print(path, sizeof path, err, "%s/tables/%s.txt", out, name));
    TRY(sfp__file_read(path, 64 << 20, &bytes, &size, err));
    (void)fwrite(bytes, 1, size, stdout);
    (void)printf("\n");
    return SFP_OK;
}

/* What a dry run has listed. */
typedef struct totals {
    double seconds;            /* of the runs with an estimate */
    int known, unknown, guess; /* runs that would be executed; a guess is known, too */
} totals;

static void print_cell(const sfp__json_value *cell, totals *t)
{
    const char *experiment = sfp__json_text(sfp__json_get(cell, "experiment")), *row = sfp__json_text(sfp__json_get(cell, "row"));
    const char *column = sfp__json_text(sfp__json_get(cell, "column")), *state = sfp__json_text(sfp__json_get(cell, "state"));
    int repetition = (int)sfp__json_integer(sfp__json_get(cell, "repetition"));
    if (!experiment || !row || !column || !state)
        return;
    const sfp__json_value *estimate = sfp__json_get(cell, "estimate");
    bool done = strcmp(state, "done") == 0, omitted = strcmp(state, "omitted") == 0, known = sfp__json_is_number(estimate);
    bool guess = known && sfp__json_is(sfp__json_get(cell, "guessed"), SFP__JSON_TRUE);
    char time[32] = "unknown";
    if (known)
        (void)snprintf(time, sizeof time, "%.1f s", sfp__json_number(estimate));
    (void)printf("%-11s  %-24s  %-14s  repetition %2d  %10s%s%s\n", experiment, row, column, repetition, done ? "finished" : time,
                 guess && !done ? "  guess" : "", omitted ? "  omitted" : "");
    if (done || omitted)
        return;
    t->seconds += known ? sfp__json_number(estimate) : 0;
    t->known += known;
    t->unknown += !known;
    t->guess += guess;
}

/* A dry run: one line per run, then the sum. The JSON was made by the library. */
static sfp_status print_list(const char *json, sfp_error *err)
{
    OWNED sfp__json_value *root = NULL;
    totals t = {0};
    TRY(sfp__json_parse("list of runs", json, strlen(json), &root, err));
    const sfp__json_value *cells = sfp__json_get(root, "cells");
    for (size_t i = 0; i < sfp__json_size(cells); i++)
        print_cell(sfp__json_at(cells, i), &t);
    if (t.known || !t.unknown)
        (void)printf("about %.0f minute%s\n", ceil(t.seconds / 60), t.seconds > 60 ? "s" : "");
    if (t.guess)
        (void)printf("%d time%s a guess until the processing times are measured, when the experiment begins\n", t.guess,
                     t.guess == 1 ? " is" : "s are");
    if (t.unknown)
        (void)printf("%d time%s unknown until a run has finished\n", t.unknown, t.unknown == 1 ? " is" : "s are");
    return SFP_OK;
}

static bool is_chosen(const char *experiment, const char *names)
{
    for (const char *s = names; *s;) {
        size_t n = strcspn(s, ",");
        if ((n == 3 && strncmp(s, "all", 3) == 0) ||
            (strncmp(experiment, s, n) == 0 && (experiment[n] == '\0' || experiment[n] == '-')))
            return true;
        s += n + (s[n] == ',');
    }
    return false;
}

static sfp_status print_tables(const char *out, const char *names, sfp_error *err)
{
    const char *name;
    if (!names)
        TRY(print_table(out, "sweep", err));
    for (int i = 0; names && sfp_experiment_info(i, &name, NULL, NULL); i++)
        if (is_chosen(name, names))
            TRY(print_table(out, name, err));
    (void)printf("page: %s/index.html; LaTeX, Markdown, CSV and SVG: %s/tables\n", out, out);
    return SFP_OK;
}

static sfp_status call_library(const sfp__args *a, const char *names, int count, const char *const *grids, const char *out,
                               const char *command, char **json, sfp_error *err)
{
    screen s = {.stop = sfp__stop_on_signals()};
    sfp_experiment_options o = SFP_EXPERIMENT_OPTIONS_INIT;
    sfp_settings *settings = NULL;
    o.out = out;
    o.seeds = (int32_t)sfp__args_int(a, "seeds");
    o.orders = (int32_t)sfp__args_int(a, "orders");
    o.orders = o.orders ? o.orders : -1;
    o.budget_minutes = sfp__args_real(a, "budget");
    o.dry_run = sfp__args_flag(a, "dry-run");
    o.check = sfp__args_string(a, "check");
    o.no_cache = sfp__args_flag(a, "no-share");
    o.paper_dataset = names ? sfp__args_string(a, "paper-data") : NULL;
    o.backbones = names ? sfp__args_string(a, "backbones") : NULL;
    o.calibrate = names ? (int32_t)sfp__args_int(a, "calibrate") : 0;
    o.command = command;
    o.progress = on_progress;
    o.log = on_log;
    o.cancelled = is_cancelled;
    o.ctx = &s;
    TRY(sfp_settings_create(&settings, err));
    sfp_status status = read_settings(a, settings, err);
    if (!status)
        status = names ? sfp_experiment(names, settings, &o, json, err) : sfp_sweep(count, grids, settings, &o, json, err);
    sfp__status_line_wipe();
    sfp_settings_free(settings);
    return status;
}

sfp_status sfp__experiment_execute(const sfp__args *given, const char *names, int count, const char *const *grids, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text command = {0};
    sfp__args a = *given; /* the values of --config are added to it */
    const char *config = sfp__args_string(&a, "config"), *out = sfp__args_string(&a, "out");
    char *json = NULL;
    if (config && sfp__yaml_config(config, &a, err))
        return sfp__as_usage(err);
    put_command(&a, &command);
    TRY(sfp__check_memory(!command.failed, err));
    sfp_status status = call_library(&a, names, count, grids, out, command.s, &json, err);
    if (!status && (sfp__args_flag(&a, "json") || sfp__args_flag(&a, "dry-run")))
        status = sfp__args_flag(&a, "json") ? (puts(json) < 0 ? SFP_EIO : SFP_OK) : print_list(json, err);
    else if (!status)
        status = print_tables(out, names, err);
    sfp_free(json);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------- command */

static const sfp__opt own[] = {
    SFP__ROW_GROUP("Experiment"),
    SFP__ROWS_EXECUTION("1", "5", "experiments"),
    SFP__ROW_INT("calibrate", "N", "20", 1, 100000, "Number of batches to measure per method, with a full buffer."),
    SFP__ROW_STRING("backbones", "NAME=FILE,...", NULL, "Experiment A2: pretrained backbones to compare."),
    SFP__ROW_STRING("paper-data", "NAME", NULL,
                    "Dataset of the paper whose figures are shown: Stream-51, CORe50, Clear10 or Clear100. Default: by --data, "
                    "else Stream-51."),
};

static const sfp__opt *options(size_t *count)
{
    static sfp__experiment_table t;
    return sfp__experiment_options_table(&t, sizeof own / sizeof *own, own, count);
}

static void list_experiments(bool json)
{
    const char *name, *title, *question;
    sfp__out o;
    sfp__out_begin(&o, json, 0);
    sfp__json_array(&o.json, "experiments");
    for (int i = 0; sfp_experiment_info(i, &name, &title, &question); i++) {
        sfp__json_object(&o.json, NULL);
        sfp__json_string(&o.json, "name", name);
        sfp__json_string(&o.json, "title", title);
        sfp__json_string(&o.json, "question", question);
        sfp__json_end(&o.json);
        sfp__out_printf(&o, "%-11s  %s\n%-11s  %s\n", name, title, "", question);
    }
    sfp__out_end(&o);
}

static sfp_status run(const sfp__args *args, sfp_error *err)
{
    if (args->operand_count == 0) {
        list_experiments(sfp__args_flag(args, "json"));
        return SFP_OK;
    }
    sfp_status status = sfp__experiment_execute(args, args->operands[0], 0, NULL, err);
    if (status && strcmp(err->key, "experiment") == 0)
        (void)sfp__as_usage(err);
    return status;
}

const sfp__command sfp__cmd_experiment = {
    .name = "experiment",
    .summary = "repeat the tables of the paper, with a verdict for every claim",
    .operands = "[NAME[,NAME...] | all]",
    .max_operands = 1,
    .text = "Runs experiments and compares them with the paper. Without a name, lists them. Each cell of a table is the mean "
            "over repetitions; "
            "each repetition is a run in the registry. The processing time of a method is measured once. The arrival rate is "
            "such that StreamFP "
            "trains on the number of batches of the paper; a method without time for a batch in some task is shown as a dash. "
            "Closed-form heads "
            "stand next to every table. Streams are class-major (--within class), and 100 images per task are tested, unless "
            "other options are "
            "given.\n\n"
            "An execution that was stopped continues with the same command and never runs a cell twice, unless the "
            "backbone, the data or the version of the program has changed. DIR contains index.html "
            "with all tables, "
            "plots and verdicts, tables (Markdown, CSV, LaTeX, SVG), results.json and the runs. Other options are those of "
            "'streamfp run' and "
            "apply to all runs, unless the experiment varies them.",
    .examples = "  streamfp experiment\n"
                "  streamfp experiment all --budget 60\n"
                "  streamfp experiment E3 --data folder:pacs/train --test folder:pacs/test --backbone deit_tiny.safetensors "
                "--tasks domain\n"
                "  streamfp experiment E3 --check experiments/results.json --out again\n",
    .options = options,
    .describe = sfp__run_describe_options,
    .run = run,
};
