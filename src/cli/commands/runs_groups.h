/* Groups of runs that differ only in the seed (and in the output directory): the repetitions of `runs compare`. */
#ifndef SFP_CLI_RUNS_GROUPS_H
#define SFP_CLI_RUNS_GROUPS_H

#include "base/text.h"
#include "results/result_fields.h"

typedef struct sfp__named_run {
    const char *name; /* number or directory, as on the command line */
    sfp_result result;
} sfp__named_run;

typedef struct sfp__run_groups {
    int n, count; /* numbers of runs and of groups */
    const sfp__named_run *runs;
    int *of;        /* (n) group of a run */
    bool *excluded; /* (n) excluded, because a newer run of the group has the same seed */
    int *first;     /* (count) first run of a group */
    double *x;      /* (n) values of the current group */
    void *block;    /* the arrays */
} sfp__run_groups;

sfp_status sfp__run_groups_init(sfp__run_groups *g, int n, const sfp__named_run *runs, sfp_error *err);
void sfp__run_groups_done(sfp__run_groups *g);

/* The effective value of an option; NULL: no such option. */
const char *sfp__run_option(const sfp_result *r, const char *key);
/* The effective value of an option in group k, under its present name; "-": none. */
const char *sfp__run_groups_option(const sfp__run_groups *g, int k, const char *key);
/* true: run i is used in group k. */
bool sfp__run_groups_use(const sfp__run_groups *g, int i, int k);
int sfp__run_groups_excluded(const sfp__run_groups *g);
/* Writes the measured values of group k to g->x; returns their number. */
int sfp__run_groups_values(const sfp__run_groups *g, int k, const sfp__result_field *number);
/* Whether the table of `runs compare` shows this number. */
bool sfp__run_groups_show(const sfp__run_groups *g, const sfp__result_field *number);
/* Calls fn once for every option whose value differs between groups. */
void sfp__run_groups_differing(const sfp__run_groups *g, void (*fn)(const sfp__run_groups *g, const char *key, void *ctx),
                               void *ctx);

/* Adds to `keys` the options by which a reader can distinguish the groups: the preset, and options that a user has set to another value than the
 * preset. If these do not distinguish all groups, adds all options that differ. */
sfp_status sfp__run_groups_naming(const sfp__run_groups *g, sfp__strings *keys, sfp_error *err);
/* Whether the option of group k differs from its preset. */
bool sfp__run_groups_chosen(const sfp__run_groups *g, int k, const char *key);
/* Whether a run that is used in group k has not finished. */
bool sfp__run_groups_unfinished(const sfp__run_groups *g, int k);

/* Prints the comparison (runs_compare.c). Runs that differ only in the seed (and in the output directory) are repetitions: they share a
 * row, with mean and 95 % interval. Of several runs with one seed, only the newest is used, because the others are not independent
 * samples and would narrow the interval. */
sfp_status sfp__runs_compare(int n, const sfp__named_run *runs, bool json, sfp_error *err);

#endif
