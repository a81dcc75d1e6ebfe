/* streamfp run: learn from a stream. Its options are in run_settings.c. */
#include "cli/backbone.h"

#include "api/api.h"
#include "cli/command.h"
#include "cli/commands/run.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "io/directory.h"
#include "run/run.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ progress */

enum { NAME_WIDTH = 24 };

/* Parts of the status line with a low priority are omitted first if the terminal is too narrow. */
enum {
    PRIORITY_LOSS,
    PRIORITY_LAG,
    PRIORITY_RATE,
    PRIORITY_NAME,
    PRIORITY_ETA,
    PRIORITY_ACCURACY,
    PRIORITY_COUNT,
    PRIORITY_TASK
};

/* Remaining seconds at the speed of this process. */
static long seconds_left(const sfp_run_progress *p)
{
    if (p->offered <= p->offered_before || p->offered >= p->total)
        return 0;
    return (long)fmin(p->seconds * (double)(p->total - p->offered) / (double)(p->offered - p->offered_before), 1e8);
}

static void add_task(sfp__status_line *l, const sfp_run_progress *p)
{
    char name[SFP_STATUS_LINE_PART];
    sfp__status_line_add(l, PRIORITY_TASK, "task %d of %d", p->task + 1, p->tasks);
    if (strncmp(p->task_name, "task ", 5) == 0)
        return; /* the dataset has its own numbers, perhaps from 0; two numbers would confuse */
    sfp__cell_text(p->task_name, NAME_WIDTH, name, sizeof name); /* a directory may have any name */
    sfp__status_line_add(l, PRIORITY_NAME, " (%s)", name);
}

static void add_evaluation(sfp__status_line *l, const sfp_run_progress *p)
{
    sfp__status_line_add(l, PRIORITY_TASK, "evaluating after task %d", p->task + 1);
    sfp__status_line_add(l, PRIORITY_COUNT, ": %llu/%llu", (unsigned long long)p->evaluated, (unsigned long long)p->to_evaluate);
}

static void add_stream(sfp__status_line *l, const sfp_run_progress *p)
{
    if (p->total) {
        add_task(l, p);
        sfp__status_line_add(l, PRIORITY_COUNT, "  %llu/%llu", (unsigned long long)p->offered, (unsigned long long)p->total);
    } else { /* a live stream, whose length is unknown */
        sfp__status_line_add(l, PRIORITY_COUNT, "%llu samples", (unsigned long long)p->offered);
    }
    sfp__status_line_add(l, PRIORITY_RATE, "  %.1f/s", p->rate);
    if (isfinite(p->lag))
        sfp__status_line_add(l, PRIORITY_LAG, "  lag %.2f s", p->lag);
    if (isfinite(p->loss))
        sfp__status_line_add(l, PRIORITY_LOSS, "  loss %.3f", p->loss);
    if (isfinite(p->accuracy))
        sfp__status_line_add(l, PRIORITY_ACCURACY, "  accuracy %.3f", p->accuracy);
    if (p->total)
        sfp__status_line_add(l, PRIORITY_ETA, "  ETA %ld:%02ld", seconds_left(p) / 60, seconds_left(p) % 60);
}

void sfp__run_progress_line(const sfp_run_progress *p, sfp__status_line *l)
{
    *l = (sfp__status_line){0};
    if (p->to_evaluate)
        add_evaluation(l, p);
    else
        add_stream(l, p);
}

static void on_progress(void *ctx, const sfp_run_progress *p)
{
    double *shown_at = ctx, now = sfp__monotonic_seconds();
    bool rewrites = sfp__status_line_rewrites();
    bool begins = rewrites && p->to_evaluate && p->evaluated == 0; /* the first images may take seconds */
    bool due = now - *shown_at >= (rewrites ? 0.2 : 10);
    sfp__status_line l;
    if (due)
        *shown_at = now;
    if (!due && !begins)
        return;
    sfp__run_progress_line(p, &l);
    sfp__status_line_show(&l);
}

/* ----------------------------------------------------------------- the result */

/* The table fits 80 columns. */
static void print_number(const char *name, double x, const char *unit)
{
    if (isfinite(x))
        (void)printf("  %-24s %10.4f%s\n", name, sfp__no_minus_zero(x, 4), unit);
}

/* Two counts of one thing. */
static void print_counts(const char *name, uint64_t first, const char *is, uint64_t second, const char *of)
{
    (void)printf("  %-24s %10llu %s, %llu %s\n", name, (unsigned long long)first, is, (unsigned long long)second, of);
}

enum { MATRIX_COLUMNS = 7 }; /* of a row of the screen */

static void print_matrix(const sfp_result *r)
{
    if (!isfinite(r->average_accuracy) || r->tasks > 20)
        return;
    (void)printf("accuracy after task (rows) on task (columns)\n");
    for (int i = 0; i < r->tasks_done; i++) {
        (void)printf("  ");
        sfp__put_cell(stdout, r->task_names[i], 22);
        for (int j = 0; j <= i; j++) {
            if (j > 0 && j % MATRIX_COLUMNS == 0)
                (void)printf("\n%24s", "");
            double x = r->accuracy[(size_t)i * (size_t)r->tasks + (size_t)j];
            (void)printf(isfinite(x) ? " %6.3f" : "      -", x);
        }
        (void)printf("\n");
    }
}

static void print_table(const sfp_result *r, const char *out)
{
    print_matrix(r);
    print_number("average accuracy", r->average_accuracy, "");
    for (int h = 0; r->heads && h < SFP_RESULT_HEADS; h++) {
        char name[32];
        (void)snprintf(name, sizeof name, "  %s alone", sfp__result_head_names[h]);
        print_number(
            name, sfp__average_accuracy(r->tasks, r->tasks_done, r->heads + (size_t)h * (size_t)r->tasks * (size_t)r->tasks), "");
    }
    print_number("forgetting", r->forgetting, "");
    print_number("backward transfer", r->backward_transfer, "");
    print_number("prequential accuracy", r->prequential_accuracy, "");
    print_counts("samples", r->samples.offered, "offered", r->samples.dropped, "dropped");
    print_counts("", r->samples.trained, "trained", r->samples.replayed, "replayed");
    if (r->labels.unlabelled) {
        print_counts("without a label", r->labels.unlabelled, "predicted", r->labels.late, "labelled late");
        print_counts("", r->labels.expired, "given up", r->labels.waiting, "waiting");
    }
    print_number("class coverage", r->coverage, "");
    print_number("C_S", r->cs, "");
    if (isfinite(r->lambda) && !isfinite(r->cs)) { /* a clock that lets the learner fall behind */
        print_number("lag, mean", r->lag.mean, " s");
        print_number("lag, largest", r->lag.max, " s");
    }
    print_number("speed", r->samples_per_second, " samples/s");
    (void)printf("  %-24s %10.2f s: select %.2f, train %.2f,\n", "time", r->seconds.total, r->seconds.select, r->seconds.train);
    (void)printf("%41sbuffer %.2f, evaluate %.2f;\n", "", r->seconds.buffer, r->seconds.evaluate);
    (void)printf("%41sdecode %.2f beside, waited for %.2f\n", "", r->seconds.decode, r->seconds.wait_seconds);
    if (out)
        (void)printf("  report: %s/report.html\n", out);
}

/* ------------------------------------------------------------------ preparing */

/* runs/1, runs/2, ...: the first that is not there; *made: how many folders were made. */
static sfp_status fresh_dir(char *buf, size_t size, int *made, sfp_error *err)
{
    int parent = 0, own = 0;
    TRY(sfp__directory_create("runs", &parent, err));
    for (int i = 1; i < 1000000; i++) {
        (void)snprintf(buf, size, "runs/%d", i);
        TRY(sfp__directory_create(buf, &own, err));
        *made = parent + own;
        if (own)
            return SFP_OK;
    }
    return sfp__fail(err, SFP_ELIMIT, "runs: there are too many");
}

static sfp_status print_result(const sfp_result *r, const char *out, bool json, sfp_error *err)
{
    OWNED char *text = NULL;
    if (!r->finished && r->samples.offered == 0)
        sfp__info("stopped before anything was learned");
    else if (!r->finished)
        sfp__info("stopped; go on with --resume --out %s", out);
    if (json) {
        TRY(sfp__result_text(r, true, &text, err));
        (void)puts(text);
    } else if (r->finished) {
        print_table(r, out);
    }
    return SFP_OK;
}

static sfp_status run_all(const sfp__run_options *o, const sfp__run_hooks *hooks, sfp_result *result, sfp_error *err)
{
    OWNED_PTR(sfp__run_close) sfp__run *r = NULL;
    TRY(sfp__run_open(o, hooks, result, &r, err));
    for (bool more = true; more;)
        TRY(sfp__run_step(r, &more, err));
    return SFP_OK;
}

static sfp_status learn(sfp__args *a, const sfp__run_options *given, sfp_error *err)
{
    OWNED_BY(sfp__result_done) sfp_result result = {0};
    char fresh[PATH_MAX];
    int created = 0;
    sfp__run_options o = *given;
    double shown_at = sfp__monotonic_seconds();
    const sfp__run_hooks hooks = {
        .ctx = &shown_at, .progress = on_progress, .log = sfp__print_log, .stop = sfp__stop_on_signals()};
    o.out = sfp__args_string(a, "out");
    if (!o.out) {
        TRY(fresh_dir(fresh, sizeof fresh, &created, err));
        o.out = fresh;
    }
    sfp_status s = run_all(&o, &hooks, &result, err);
    sfp__status_line_wipe();
    if (!s)
        s = print_result(&result, o.out, sfp__args_flag(a, "json"), err);
    sfp__directory_remove_created(o.out, created); /* only empty ones go */
    return s || result.finished ? s : sfp__fail_quietly(err);
}

static sfp_status run(const sfp__args *given, sfp_error *err)
{
    OWNED_PTR(sfp_engine_close) sfp_engine *engine = NULL;
    OWNED_PTR(sfp_settings_free) sfp_settings *settings = NULL;
    OWNED_BY(sfp__args_done) sfp__args values = {0};
    sfp__args a = *given; /* its values may be added to */
    const char *config = sfp__args_string(&a, "config");
    char note[SFP_ERROR_MAX];
    sfp__run_options o;
    if (config && sfp__yaml_config(config, &a, err))
        return sfp__as_usage(err);
    TRY(sfp__run_settings(&a, &settings, err));
    TRY(sfp__cli_engine_open(&a, NULL, &engine, err));
    TRY(sfp__api_run_options(engine, settings, false, &values, &o, note, err));
    if (*note)
        sfp__info("%s", note);
    return learn(&a, &o, err);
}

const sfp__command sfp__cmd_run = {
    .name = "run",
    .summary = "learn from a stream",
    .text =
        "Learns from a stream of labelled images at the rate they arrive: scores each batch, trains on its coreset and on "
        "rehearsed "
        "samples, updates the rehearsal buffer, and evaluates after each task.\n\n"
        "A live stream (watch:PATH, stdin, synthetic:0) has no tasks and its classes appear; it is learned from until it ends or "
        "Ctrl-C. "
        "Images without a label are predicted at once (predictions.jsonl in --out), by what was learned until then, whatever "
        "the "
        "clock, and wait for one: moved or linked into the folder of a class, or named by a line NAME,LABEL of PATH/labels.csv; "
        "on "
        "standard input a .cls of the same key, alone. --resume goes on with what was learned; of a watched folder only what is "
        "new is "
        "taken. An image that still waits keeps its id there and is not predicted again; those of standard input cannot come "
        "again "
        "and are given up. A stream that breaks off is a failure: what was learned is kept, as not finished, and --resume goes "
        "on; "
        "when nothing came, nothing is changed. In a data set no label will come: a free stream in its own order (--tasks free) "
        "predicts such images when their turn comes, others leave them out.\n\n"
        "An option that the others make mean nothing is refused, unless it says no more than its default.\n\n"
        "A checkpoint is written after every 2 seconds of training (on the real clock and on live streams: 2 seconds on the "
        "wall, when "
        "something came), or less often, to cost no more than 2 % of the time. Ctrl-C finishes the timestamp, or gives up an "
        "evaluation that --resume then does again, and writes a checkpoint; a second one leaves at once. The exit code is 0 when "
        "the "
        "stream ended.",
    .examples =
        "  streamfp run --backbone deit_tiny.safetensors --data folder:pacs/train --test folder:pacs/test --tasks domain\n"
        "  streamfp run --data synthetic:2000 --rate 100 --triage\n"
        "  streamfp run --data watch:incoming --clock real --queue 2 --out runs/live --resume\n"
        "  streamfp run --config pacs.yaml --set seed=3 --out runs/pacs-3 --resume\n",
    .options = sfp__run_cli_options,
    .run = run,
};
