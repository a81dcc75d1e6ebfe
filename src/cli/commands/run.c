/* streamfp run: learn from a stream. The options are in run_settings.c. */
#include "cli/commands/run.h"
#include "cli/command.h"
#include "cli/run_settings.h"
#include "cli/ui.h"

#include "base/text.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    char name[SFP__STATUS_LINE_PART];
    sfp__status_line_add(l, PRIORITY_TASK, "task %d of %d", p->task + 1, p->tasks);
    if (strncmp(p->task_name, "task ", 5) == 0)
        return; /* the dataset has its own numbers, perhaps from 0; two numbers would confuse */
    sfp__cell_text(p->task_name, NAME_WIDTH, name, sizeof name); /* a directory may have any name */
    sfp__status_line_add(l, PRIORITY_NAME, " (%s)", name);
}

static void add_eta(sfp__status_line *l, const sfp_run_progress *p)
{
    sfp__status_line_add(l, PRIORITY_ETA, "  ETA %ld:%02ld", seconds_left(p) / 60, seconds_left(p) % 60);
}

static void add_measurement(sfp__status_line *l, const sfp_run_progress *p)
{
    sfp__status_line_add(l, PRIORITY_TASK, "measuring the processing time: %llu/%llu batches", (unsigned long long)p->offered,
                         (unsigned long long)p->total);
    if (isfinite(p->seconds))
        add_eta(l, p);
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
        add_eta(l, p);
}

void sfp__run_progress_line(const sfp_run_progress *p, sfp__status_line *l)
{
    *l = (sfp__status_line){0};
    if (p->tasks == 0 && p->total)
        add_measurement(l, p);
    else if (p->to_evaluate)
        add_evaluation(l, p);
    else
        add_stream(l, p);
}

static void on_progress(void *ctx, const sfp_run_progress *p)
{
    double *shown_at = ctx; /* in seconds of this process */
    bool rewrites = sfp__status_line_rewrites();
    bool begins = rewrites && p->to_evaluate && p->evaluated == 0; /* the first images may take seconds */
    bool due = p->seconds - *shown_at >= (rewrites ? 0.2 : 10);
    sfp__status_line l;
    if (due)
        *shown_at = p->seconds;
    if (!due && !begins)
        return;
    sfp__run_progress_line(p, &l);
    sfp__status_line_show(&l);
}

static void on_log(void *ctx, sfp_log_level level, const char *message)
{
    (void)ctx; /* that of on_progress */
    sfp__print_log(NULL, level, message);
}

/* ----------------------------------------------------------------- the result */

enum { MATRIX_COLUMNS = 7, MATRIX_TASKS = 20 }; /* columns per row of the screen; maximum number of tasks */

static const char *class_name(const void *ctx, int label)
{
    return sfp_result_class_name(ctx, label);
}

static void print_matrix(const sfp_result *r)
{
    char title[SFP__TITLE_SIZE];
    int done = (int)sfp_result_number(r, "tasks_done");
    if (!isfinite(sfp_result_number(r, "average_accuracy")) || sfp_result_tasks(r) > MATRIX_TASKS)
        return;
    (void)printf("accuracy after task (rows) on task (columns)\n");
    for (int i = 0; i < done; i++) {
        (void)printf("  ");
        sfp__put_cell(stdout, sfp__task_title(sfp_result_task_name(r, i), 22, class_name, r, title), 22);
        for (int j = 0; j <= i; j++) {
            if (j > 0 && j % MATRIX_COLUMNS == 0)
                (void)printf("\n%24s", "");
            double x = sfp_result_accuracy(r, i, j);
            (void)printf(isfinite(x) ? " %6.3f" : "      -", x);
        }
        (void)printf("\n");
    }
}

/* chosen: the program has chosen the directory `out`, so that the command does not name it. */
static sfp_status print_result(const sfp_result *r, const char *out, bool chosen, bool json, sfp_error *err)
{
    bool finished = sfp_result_number(r, "finished") != 0;
    char *text = NULL;
    if (!finished && sfp_result_number(r, "samples.offered") == 0)
        sfp__info("stopped before the first sample was processed");
    else if (!finished)
        sfp__info("stopped; continue with the same command and --resume%s%s", chosen ? " --out " : "", chosen ? out : "");
    if (json) {
        TRY(sfp_result_json(r, 1, &text, err));
        (void)puts(text);
        sfp_free(text);
    } else if (finished) {
        print_matrix(r);
        sfp__print_numbers(r);
        if (out)
            (void)printf("  report: %s/report.html\n", out);
    }
    return SFP_OK;
}

/* -------------------------------------------------------------------- command */

/* A new directory runs/N, where N is the first unused number. It is removed again if the run writes no file. */
typedef struct fresh_directory {
    char path[32]; /* "": none */
    bool parent;   /* "runs" was created, too */
} fresh_directory;

static sfp_status create_fresh(fresh_directory *d, sfp_error *err)
{
    d->parent = mkdir("runs", 0777) == 0;
    if (!d->parent && errno != EEXIST)
        return sfp__fail_errno(err, SFP_EIO, "runs: cannot create the directory");
    for (int i = 1; i < 1000000; i++) {
        (void)snprintf(d->path, sizeof d->path, "runs/%d", i);
        if (mkdir(d->path, 0777) == 0)
            return SFP_OK;
        if (errno != EEXIST)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot create the directory", d->path);
    }
    return sfp__fail(err, SFP_ELIMIT, "runs: the directory has more than 999999 runs; use --out DIR");
}

/* Removes the directory that create_fresh created, if it is empty. */
static void remove_fresh(const fresh_directory *d)
{
    if (d->path[0] && rmdir(d->path) == 0 && d->parent)
        (void)rmdir("runs");
}

static sfp_status run_stream(sfp_engine *engine, const sfp_settings *settings, bool chosen, bool json, sfp_error *err)
{
    double shown_at = 0;
    sfp_run *r = NULL;
    sfp_run_options o = SFP_RUN_OPTIONS_INIT;
    o.progress = on_progress;
    o.log = on_log;
    o.ctx = &shown_at;
    (void)sfp__stop_on_signals();
    sfp_status status = sfp_run_open(engine, settings, &o, &r, err);
    if (!status) {
        sfp__cancel_on_signals(r);
        if (sfp_run_batches(r, -1, NULL) == 0 && !isatty(STDERR_FILENO))
            (void)signal(SIGHUP,
                         SIG_IGN); /* logrotate sends it, but each line is already written to the file that has the log's name */
        status = sfp_run_finish(r, err);
        sfp__cancel_on_signals(NULL);
    }
    sfp__status_line_wipe();
    if (!status)
        status = print_result(sfp_run_result(r), sfp_settings_get(settings, "out"), chosen, json, err);
    if (!status && sfp_result_number(sfp_run_result(r), "finished") == 0)
        status = sfp__fail_quietly(err);
    sfp_run_close(r);
    return status;
}

static sfp_status run_with(const sfp__args *a, sfp_settings *settings, sfp_error *err)
{
    fresh_directory fresh = {0};
    sfp_engine *engine = NULL;
    TRY(sfp_engine_open_for(settings, sfp__print_log, NULL, &engine, err));
    sfp_status status = SFP_OK;
    if (!sfp__args_string(a, "out") && !sfp__args_flag(a, "resume") && !sfp__args_string(a, "share")) {
        status = create_fresh(&fresh, err);
        if (!status)
            status = sfp_settings_set(settings, "out", fresh.path, err);
    }
    if (!status)
        status = run_stream(engine, settings, fresh.path[0] != '\0', sfp__args_flag(a, "json"), err);
    remove_fresh(&fresh);
    sfp_engine_close(engine);
    return status;
}

static sfp_status run(const sfp__args *given, sfp_error *err)
{
    sfp_settings *settings = NULL;
    sfp__args a = *given; /* the values of --config are added to it */
    const char *config = sfp__args_string(&a, "config");
    if (config && sfp__yaml_config(config, &a, err))
        return sfp__as_usage(err);
    TRY(sfp__run_settings(&a, &settings, err));
    sfp_status status = run_with(&a, settings, err);
    sfp_settings_free(settings);
    return status;
}

const sfp__command sfp__cmd_run = {
    .name = "run",
    .summary = "learn from a stream",
    .text = "Learns from a stream of labelled images at their arrival rate, and evaluates after each task. A closed-form head "
            "learns from each batch. With --preset paper, which is StreamFP as published, the learner scores the samples of a "
            "batch, trains on the coreset and on replayed samples, and updates the rehearsal buffer.\n\n"
            "A live stream (watch:PATH, stdin, synthetic:0) has no tasks; classes are added when they first appear. The "
            "run continues until the source ends or Ctrl-C is pressed. An unlabelled image is predicted on arrival with "
            "the current model, regardless of the clock (predictions.jsonl in --out). It then waits for its label: move or "
            "link the file into a class directory, or add a line NAME,LABEL to PATH/labels.csv; on standard input, send "
            "KEY.cls. --resume continues with the learned model, and a watched directory delivers only new files. Images "
            "still in the label queue keep their id and are not predicted again; on standard input they expire. If the "
            "source fails, the run fails; its state is kept, and --resume continues it. If no data had arrived, no file is "
            "changed. In a dataset no label arrives later: unlabelled images are predicted in turn on a task-free stream "
            "that keeps its order, and excluded otherwise.\n\n"
            "Without --preset, a run has the best known settings (--preset best). Options of the trained learner, such as "
            "--select, need --preset paper. An option that has no effect together with the others is refused, unless its value "
            "is the default.\n\n"
            "With checkpoints (--checkpoint-every), a live run also writes result.json, which is not finished yet, and at "
            "most once per minute state.safetensors and report.html, so that predict, eval and runs can use its directory. "
            "Its logs are rotated (--log-size). A log that another program moves or truncates is continued; SIGHUP has no "
            "other effect.\n\n"
            "Ctrl-C completes the current timestamp, or cancels an evaluation, which --resume repeats, and writes a "
            "checkpoint. A second Ctrl-C exits immediately. The exit status is 0 if the stream ended; stopping a live "
            "stream ends it.",
    .examples =
        "  streamfp run --backbone deit_tiny.safetensors --data folder:pacs/train --test folder:pacs/test --tasks domain\n"
        "  streamfp run --data synthetic:2000 --rate 100 --preset paper --clock virtual --queue 2\n"
        "  streamfp run --data watch:incoming --clock real --out runs/live --resume\n"
        "  streamfp run --config pacs.yaml --set seed=3 --out runs/pacs-3 --resume\n",
    .options = sfp__run_cli_options,
    .describe = sfp__run_describe_options,
    .run = run,
};
