/* What a run looks like while it goes on: one line. */
#ifndef SFP_CLI_RUN_PROGRESS_H
#define SFP_CLI_RUN_PROGRESS_H

#include "cli/line.h"
#include "run/run.h"

void sfp__run_progress_line(const sfp_run_progress *p, sfp_line *l);

/* For the hooks of a run, on standard error. */
typedef struct sfp_run_talk {
    double last; /* sfp__seconds of the last line */
} sfp_run_talk;

void sfp__run_talk_progress(void *ctx, const sfp_run_progress *p);
void sfp__run_talk_evaluating(void *ctx, int task, uint64_t done, uint64_t total);
void sfp__run_talk_say(void *ctx, const char *message);

#endif
