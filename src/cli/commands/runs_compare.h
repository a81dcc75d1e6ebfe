/* The table of `runs compare`. */
#ifndef SFP_CLI_RUNS_COMPARE_H
#define SFP_CLI_RUNS_COMPARE_H

#include "results/result.h"

typedef struct sfp__named_run {
    const char *name; /* number or directory, as on the command line */
    sfp_result result;
} sfp__named_run;

/* Prints a table or one line of JSON on standard output. Runs that differ only in the seed share a column; of several runs with
 * one seed, only the newest is used. */
sfp_status sfp__runs_compare(int n, const sfp__named_run *runs, bool json, sfp_error *err);

/* The main results of a run; the list ends with a NULL label. */
typedef struct sfp__result_column {
    const char *label, *key;
    int decimals;
    size_t offset; /* in sfp_result */
    bool count;    /* the member is a uint64_t, else a double */
} sfp__result_column;
extern const sfp__result_column sfp__result_columns[];
/* NAN: not measured. */
double sfp__result_column_value(const sfp__result_column *n, const sfp_result *r);

#endif
