/* What `streamfp experiment` and `streamfp sweep` share: the options of a run, their own, progress and output. */
#ifndef SFP_CLI_COMMANDS_EXPERIMENT_H
#define SFP_CLI_COMMANDS_EXPERIMENT_H

#include "cli/command.h"
#include "streamfp.h"

enum { SFP__EXPERIMENT_ROWS_MAX = 192 };

typedef struct sfp__experiment_table {
    sfp__opt option[SFP__EXPERIMENT_ROWS_MAX];
    size_t count;
} sfp__experiment_table;

/* Fills the table with `own` rows, then the options of a run that an execution can have. */
const sfp__opt *sfp__experiment_options_table(sfp__experiment_table *t, size_t own_count, const sfp__opt *own, size_t *count);

/* Executes with these arguments. names: of the experiments; NULL: a sweep over `grids` (count). */
sfp_status sfp__experiment_execute(const sfp__args *given, const char *names, int count, const char *const *grids,
                                   sfp_error *err);

/* Rows of both commands. */
#define SFP__ROWS_EXECUTION(default_seeds, default_orders, default_out)                                                         \
    SFP__ROW_INT("seeds", "N", default_seeds, 1, 64, "Number of seeds per class order."),                                       \
        SFP__ROW_INT("orders", "N", default_orders, 0, 64,                                                                      \
                     "Number of class orders (those of the paper's authors); each is a repetition. 0: the order of --order."),  \
        SFP__ROW_REAL(                                                                                                          \
            "budget", "MINUTES", "0", 0, 1e6,                                                                                   \
            "Maximum time in minutes; repetitions and experiments that do not fit are omitted and named. 0: no limit."),        \
        SFP__ROW_STRING("out", "DIR", default_out,                                                                              \
                        "Directory for runs, tables and index.html. An execution that was stopped continues in it."),           \
        SFP__ROW_FLAG("dry-run", "Only list the runs with their estimated times."),                                             \
        SFP__ROW_STRING("check", "FILE", NULL,                                                                                  \
                        "Repeat the runs of this results.json, with its processing times, and fail if a number has moved. The " \
                        "settings must be the same."),                                                                          \
        SFP__ROW_FLAG("no-share", "Do not share features of images between runs (DIR/cache)."), SFP__ROW_JSON

#endif
