/* `runs compare`: the formats of the comparison and the compared numbers. */
#ifndef SFP_CLI_RUNS_COMPARE_H
#define SFP_CLI_RUNS_COMPARE_H

#include "results/result.h"

typedef struct sfp__named_run {
    const char *name; /* number or directory, as on the command line */
    sfp_result result;
} sfp__named_run;

typedef enum sfp__compare_format {
    SFP_COMPARE_TEXT,
    SFP_COMPARE_JSON,
    SFP_COMPARE_LATEX,
    SFP_COMPARE_CSV,
    SFP_COMPARE_MARKDOWN,
    SFP_COMPARE_HTML, /* a file */
    SFP_COMPARE_PLOT  /* a file */
} sfp__compare_format;

/* Compares runs on standard output or, for HTML and PLOT, in the file `path`. Runs that differ only in the seed share a column
 * (in TEXT and JSON) or a row; of several runs with one seed, only the newest is used. */
sfp_status sfp__runs_compare(int n, const sfp__named_run *runs, sfp__compare_format format, const char *path, sfp_error *err);

/* The main results of a run; the list ends with a NULL label. */
typedef struct sfp__result_column {
    const char *label, *key;
    int decimals;
    size_t offset; /* in sfp_result; that of seconds.select: the sum of select, train and buffer. Members of samples: as
                      they are shown */
    bool count;    /* the member is a uint64_t, else a double */
    bool fraction; /* shown in percent in tables for people */
    int better;    /* 1: higher values are better, -1: lower ones, 0: neither */
    bool main;     /* a column of the LaTeX table */
    bool rare;     /* people see it only if it is not 0 */
} sfp__result_column;
extern const sfp__result_column sfp__result_columns[];
/* NAN: not measured. */
double sfp__result_column_value(const sfp__result_column *n, const sfp_result *r);
/* Whether people see this number of the run. */
bool sfp__result_column_shown(const sfp__result_column *n, const sfp_result *r);

#endif
