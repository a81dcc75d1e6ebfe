/* Experiments: tables of runs. An experiment is data: rows (methods), columns (settings), metrics, and claims that are tested on the
 * results. A cell of the table is the mean of repetitions; a repetition is one run, with its own directory and its place in the
 * registry. `streamfp experiment` has a list of experiments (catalogue.c); `streamfp sweep` makes one from the options of the user
 * (sweep.c).
 *
 *     DIR/costs/KEY           processing time of a method, measured once: a file for --costs, so that every cell is repeatable
 *     DIR/plan.json           the chosen repetitions, so that a resumed experiment has the same cells
 *     DIR/cells/KEY/          one run; KEY is a hash of its settings. Experiments share cells with the same settings. The file
 *                             `inputs` says with which contents of backbone and data the run was made (inputs.c)
 *     DIR/tables/NAME.md ...  Markdown, CSV, LaTeX and SVG
 *     DIR/results.json        every number, with the settings and costs
 *     DIR/index.html          all tables, plots and verdicts */
#ifndef SFP_EXPERIMENT_EXPERIMENT_H
#define SFP_EXPERIMENT_EXPERIMENT_H

#include "base/mem.h"
#include "base/text.h"
#include "streamfp.h"

#include <stdbool.h>

/* ---------------------------------------------------------------------------------------------------------- definitions */

/* A row or a column. Settings are "key=value key=value". Those of a column in `learner` do not apply to closed-form heads. */
typedef struct sfp__variant {
    const char *name; /* as in the paper: "ER*", "lambda 6028" */
    const char *settings, *learner;
    int batches;         /* columns: the arrival rate at which StreamFP trains on this many batches (clock paper); 0: none */
    double load;         /* columns: arrival rate, as a multiple of the rate that row `load_of` can process; 0: none */
    const char *load_of; /* settings of that row */
    bool closed;         /* rows: a closed-form head, which stands next to every table */
    bool extra;          /* rows: another form of a method; a budget omits it first */
    bool fits;           /* rows: the largest coreset whose processing time fits the time in which a batch arrives */
    bool allocates;      /* rows: allocate is not fixed, so that costs are those of a sample */
} sfp__variant;

/* A number of a cell. */
typedef struct sfp__metric {
    const char *name; /* "Acc" */
    const char *key;  /* of result.json; "cost": seconds per batch; "runtime": seconds for all batches of the stream */
    bool percent;     /* a fraction, shown times 100 */
    int decimals;
    int better;          /* 1: higher is better, -1: lower is better, 0: neither */
    const char *meaning; /* for captions: "average accuracy, %" */
} sfp__metric;

typedef struct sfp__experiment {
    const char *name, *title;
    const char *question; /* one sentence */
    const char *settings; /* of all cells; the user's settings have precedence */
    int row_count, column_count;
    const sfp__variant *rows, *columns;
    const char *row_heading; /* NULL: "method" */
    const char *metrics;     /* names, separated by commas */
    const char *paper;       /* table of the paper's figures (paper_numbers.c); NULL: none */
    bool orders_as_columns;  /* repetitions are the columns, followed by their mean "Overall" */
    bool cost_only;          /* only processing times are measured */
    bool needs_costs;        /* the processing time of each method is measured beforehand */
    bool numeric_columns;    /* column names end with a number, over which a chart is drawn */
    bool add_closed;         /* closed-form heads are added as rows */
} sfp__experiment;

/* The experiments of the paper and beyond; *count of them. */
const sfp__experiment *sfp__experiments(int *count);
/* The closed-form heads that stand next to every table. */
const sfp__variant *sfp__closed_rows(int *count);
bool sfp__metric_is_time(const sfp__metric *m); /* derived from the processing time of a method, not from a run */
const sfp__metric *sfp__metric_find(const char *name, size_t length);

/* A figure of the paper as a fraction (Runtime: seconds); false: the table has none. */
bool sfp__paper_number(const char *table, const char *row, const char *group, const char *metric, double *value, double *spread);

/* ----------------------------------------------------------------------------------------------------------- execution */

enum { SFP__METRICS_MAX = 6, SFP__REPETITIONS_MAX = 64, SFP__TASKS_LISTED_MAX = 4096, SFP__INPUTS_MAX = 80 };

typedef enum sfp__cell_state {
    SFP__CELL_WAITING,
    SFP__CELL_DONE,
    SFP__CELL_STARVED, /* the method had no time for a batch in some task: "-" */
    SFP__CELL_OMITTED  /* by the budget */
} sfp__cell_state;

/* One repetition of one cell. */
typedef struct sfp__cell {
    int experiment, row, column, repetition;
    sfp__cell_state state;
    char key[17];                 /* hash of its settings; "": not known yet */
    char inputs[SFP__INPUTS_MAX]; /* version and digest of its inputs (inputs.c), known with the key */
    double estimate;              /* seconds; NAN: unknown */
    bool guessed;                 /* dry run: the processing time in the estimate is that of another method */
    double seconds;               /* that it took; 0 if another experiment has run it */
    double rate, cost;
    double value[SFP__METRICS_MAX];
} sfp__cell;

typedef struct sfp__lab_options {
    const char *out;
    const sfp__strings *settings; /* "key=value", given by the user */
    const char *command;          /* shown with the tables */
    int seeds;                    /* repetitions: seeds x orders */
    int orders;                   /* class orders of the authors; 0: the order of the user's settings */
    int first_seed;               /* seed of the first repetition */
    bool cache;                   /* runs use DIR/cache */
    double budget;                /* seconds; 0: none */
    int calibrate;                /* batches that are measured per method */
    bool dry_run;
    const char *check;                 /* results.json of an earlier execution; NULL: none */
    const char *paper_dataset;         /* column group of the paper that is compared; NULL: found from the data */
    const char *backbones;             /* A2: backbones, separated by commas; NULL: only that of the settings */
    const sfp_experiment_options *api; /* callbacks */
} sfp__lab_options;

/* An execution of several experiments in one directory. */
typedef struct sfp__lab {
    sfp__lab_options opt;
    int experiment_count;
    sfp__experiment *experiments; /* (experiment_count) with all rows */
    int cell_count;
    size_t cell_capacity;
    sfp__cell *cells; /* (cell_count) in the order of execution */
    int repetitions;
    double pass_seconds;               /* estimate: a forward pass of one image; 0: not known yet */
    struct sfp__cost *dry_cost;        /* dry run: the one method that was measured; NULL: none yet */
    sfp__strings cost_keys;            /* costs that cells have used */
    sfp__strings input_values, inputs; /* inputs that are known, by the settings that name them */
    int64_t *test_images;              /* (inputs) size of the test set; 0: none, -1: a live stream without one */
    size_t test_images_capacity;
    bool reported_inputs; /* a message about results of other inputs was given */
    sfp_engine *engine;   /* the one that is open, for the settings in engine_key */
    sfp__text engine_key;
    int done;     /* cells */
    int executed; /* of them, by this process */
    double began;
    double estimated_done, spent_done; /* seconds of finished cells, as estimated and as taken */
    sfp__text omitted;                 /* sentences: what the budget omits */
    int late;                          /* cells that were omitted because the budget was used up */
    int made, lock;                    /* directories created for the output; its lock */
    const char *paper_dataset;
    sfp_run *current; /* the run that is executed; NULL: none */
} sfp__lab;

sfp_status sfp__lab_run(const sfp__experiment *const *list, int count, const sfp__lab_options *opt, char **json, sfp_error *err);

/* cells.c */
/* The settings of a cell without those of its clock: of the experiment, the user, column, row and repetition. */
sfp_status sfp__cell_settings(const sfp__lab *lab, const sfp__cell *cell, sfp__strings *out, sfp_error *err);
/* Adds "key=value key=value", replacing earlier values of the same keys. */
sfp_status sfp__settings_add(sfp__strings *list, const char *settings, sfp_error *err);
/* The same for one entry, "key=value" of `length` bytes, and for a formatted one. Values may contain blanks. */
sfp_status sfp__setting_put(sfp__strings *list, const char *entry, size_t length, sfp_error *err);
sfp_status sfp__setting_print(sfp__strings *list, sfp_error *err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Makes settings of the library from a list; free them with sfp_settings_free. */
sfp_status sfp__settings_create(const sfp__strings *list, sfp_settings **out, sfp_error *err);
/* Writes the value of a setting with presets and defaults; "": it has none. */
sfp_status sfp__settings_effective(const sfp__strings *list, const char *key, char *out, size_t size, sfp_error *err);
void sfp__settings_remove(sfp__strings *list, const char *key);
/* Whether a setting, "key=value", changes no result. */
bool sfp__setting_is_neutral(const char *entry);
/* A hash of the settings, without those; sorts them. */
void sfp__settings_key(const sfp__strings *settings, char key[17]);
/* The settings of all cells of an experiment: its own and those of the user. */
sfp_status sfp__lab_base_settings(const sfp__lab *lab, const sfp__experiment *e, sfp__strings *out, sfp_error *err);
/* "E3, ER*, lambda 6028" */
const char *sfp__cell_name(const sfp__lab *lab, const sfp__cell *cell, char *buf, size_t size);
const char *sfp__settings_value(const sfp__strings *list, const char *key); /* NULL: none */
/* Runs a cell, or reads its result if it has been run. */
sfp_status sfp__cell_run(sfp__lab *lab, sfp__cell *cell, sfp_error *err);
/* If img-size is auto, by the user or by the preset of the row, replaces it by the input size for this load; 0: that of the
 * backbone, as without img-size. */
sfp_status sfp__cell_choose_size(sfp__lab *lab, double load, sfp__strings *settings, sfp_error *err);
/* Fails if a key or a value is wrong, so that no run begins before. */
sfp_status sfp__cell_settings_check(const sfp__strings *settings, sfp_error *err);
/* Opens a run with these settings, and the engine that it needs. */
sfp_status sfp__lab_open_run(sfp__lab *lab, const sfp__strings *settings, sfp_run **out, sfp_error *err);
bool sfp__lab_cancelled(const sfp__lab *lab);
void sfp__lab_message(const sfp__lab *lab, sfp_log_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Has the cell been run with its present inputs? */
bool sfp__cell_is_done(const sfp__lab *lab, const sfp__cell *cell);
/* Seconds that the run of a finished cell took; NAN: its result cannot be read. */
double sfp__cell_run_seconds(const sfp__lab *lab, const sfp__cell *cell);

/* inputs.c */
/* Writes the version of the program and a digest of the files that a run with these settings reads. */
sfp_status sfp__lab_inputs(sfp__lab *lab, const sfp__strings *settings, char out[SFP__INPUTS_MAX], sfp_error *err);
/* Number of test images of a cell whose inputs are known; 0: no test set, -1: unknown, or a live stream without one. */
int64_t sfp__cell_test_images(const sfp__lab *lab, const sfp__cell *cell);
/* Tells the user, once, that results of other inputs are not used. */
void sfp__lab_report_other_inputs(sfp__lab *lab);

/* costs.c */
#define SFP__INPUTS_LINE "# made with " /* begins the line of a file of costs that has its inputs */
#define SFP__INPUTS_ANY "any"           /* a processing time that the user has given */
/* What is known about a method on a stream: measured once, then read from DIR/costs. */
typedef struct sfp__cost {
    double seconds;           /* per batch */
    int64_t batches, samples; /* of the stream */
    int tasks;
    int64_t *task_batches;        /* (tasks) */
    bool guessed;                 /* dry run: it was not measured, but derived from that of another method */
    char path[1024];              /* a file for --costs */
    char inputs[SFP__INPUTS_MAX]; /* with which it was measured; "": unknown */
} sfp__cost;
void sfp__cost_done(sfp__cost *c);
/* settings: those of a cell. row: its name; column: that of its column, or "". */
sfp_status sfp__cost_get(sfp__lab *lab, const sfp__strings *settings, const char *row, const char *column, sfp__cost *out,
                         sfp_error *err);
/* The largest C_S at which a method with these batches trains on at least `want` of them and on two per task; 1: all. */
double sfp__cost_solve(const sfp__cost *c, int want);
/* Adds the settings of the cell's clock. Sets the key, rate, cost and estimate of the cell, and *cost if costs are measured. */
sfp_status sfp__cell_clock(sfp__lab *lab, sfp__cell *cell, sfp__strings *settings, sfp__cost *cost, sfp_error *err);

/* plan.c */
sfp_status sfp__lab_plan(sfp__lab *lab, sfp_error *err);
/* Returns in *has whether the output directory has a plan of an experiment. */
sfp_status sfp__lab_has_plan(const sfp__lab *lab, bool *has, sfp_error *err);

/* tables.c */
struct sfp__table;
int sfp__experiment_metrics(const sfp__experiment *e, const sfp__metric *list[SFP__METRICS_MAX]); /* returns their number */
sfp_status sfp__lab_table(const sfp__lab *lab, int experiment, struct sfp__table **out, sfp_error *err);
/* A table of the first row (StreamFP) against each other row in one column, by repetition, with the sign test. */
sfp_status sfp__lab_paired(const sfp__lab *lab, int experiment, int column, struct sfp__table **out, sfp_error *err);
/* What differs from the paper: "dataset pacs, backbone builtin"; NULL: dataset and a given backbone may be those of the paper. */
const char *sfp__lab_difference(const sfp__lab *lab, char *buf, size_t size);
/* Sentences below a table: repetitions, order of the methods, closed-form heads that are better. */
void sfp__lab_sentences(const sfp__lab *lab, int experiment, sfp__text *t);
/* A chart of the first metric; false: there is no value. */
bool sfp__lab_chart(const sfp__lab *lab, int experiment, const struct sfp__table *t, bool inside, sfp__text *out);
/* The mean over the repetitions that were run; NAN: none. */
double sfp__lab_mean(const sfp__lab *lab, int experiment, int row, int column, int metric);
/* Values of one metric of a cell over its repetitions, in their order; NAN: not run. Returns the number of finite ones. */
int sfp__lab_values(const sfp__lab *lab, int experiment, int row, int column, int metric, double *values);

/* output.c */
sfp_status sfp__lab_write(const sfp__lab *lab, char **json, sfp_error *err);
/* Dry run: the cells with their estimates as JSON. */
sfp_status sfp__lab_list(const sfp__lab *lab, char **json, sfp_error *err);
/* Prints a message if the outputs of an execution with other settings will be replaced. */
sfp_status sfp__lab_report_replaced(const sfp__lab *lab, sfp_error *err);
/* Writes the costs of an earlier results.json into DIR/costs, so that its cells can be repeated. Refuses one of other settings. */
sfp_status sfp__lab_import_costs(const sfp__lab *lab, sfp_error *err);
/* Compares with an earlier results.json. SFP_EINVAL: a number has moved. */
sfp_status sfp__lab_check(const sfp__lab *lab, sfp_error *err);

/* claims.c */
typedef struct sfp__claim_result {
    int number;
    const char *claim, *paper; /* sentence; the paper's figures */
    const char *verdict;       /* "holds", "does not hold", "cannot be decided here" */
    bool tested;               /* false: its experiments were not run */
    char numbers[600];         /* the evidence */
} sfp__claim_result;
/* Tests claim i; false: there is no such claim. */
bool sfp__claim_test(const sfp__lab *lab, int i, sfp__claim_result *out);

#endif
