/* The table of `runs compare`. */
#ifndef SFP_CLI_RUNS_COMPARE_H
#define SFP_CLI_RUNS_COMPARE_H

#include "results/result.h"

typedef struct sfp__named_run {
    const char *name; /* as the user gave it: number or directory */
    sfp_result result;
} sfp__named_run;

/* On standard output, as a table or as one line of JSON. Runs that share all options but the seed are one column;
 * of several of one seed the newest counts. */
sfp_status sfp__runs_compare(int n, const sfp__named_run *runs, bool json, sfp_error *err);

/* The numbers of a run that people look at first; ends with a NULL label. */
typedef struct sfp__result_column {
    const char *label, *key;
    int decimals;
    size_t offset; /* in sfp_result */
    bool count;    /* an uint64_t; else a double */
} sfp__result_column;
extern const sfp__result_column sfp__result_columns[];
/* NAN: not measured. */
double sfp__result_column_value(const sfp__result_column *n, const sfp_result *r);

#endif
