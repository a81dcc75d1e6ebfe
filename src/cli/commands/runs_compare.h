/* `runs compare`: the formats of the comparison. */
#ifndef SFP_CLI_RUNS_COMPARE_H
#define SFP_CLI_RUNS_COMPARE_H

#include "results/result.h"

typedef struct sfp__named_run {
    const char *name; /* number or directory, as on the command line */
    sfp_result result;
} sfp__named_run;

typedef enum sfp__compare_format {
    SFP__COMPARE_TEXT,
    SFP__COMPARE_JSON,
    SFP__COMPARE_LATEX,
    SFP__COMPARE_CSV,
    SFP__COMPARE_MARKDOWN,
    SFP__COMPARE_HTML, /* a file */
    SFP__COMPARE_PLOT  /* a file */
} sfp__compare_format;

/* Compares runs on standard output or, for HTML and PLOT, in the file `path`. Runs that differ only in the seed (and in the output
 * directory) are repetitions: they share a row, with mean and 95 % interval. Of several runs with one seed, only the newest is used,
 * because the others are not independent samples and would narrow the interval. */
sfp_status sfp__runs_compare(int n, const sfp__named_run *runs, sfp__compare_format format, const char *path, sfp_error *err);

#endif
