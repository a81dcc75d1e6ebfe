/* What a run looks like while it goes on: one line. */
#ifndef SFP_CLI_RUN_PROGRESS_H
#define SFP_CLI_RUN_PROGRESS_H

#include "run/run.h"

#include <stdio.h>

/* Without the end of the line. */
void sfp__put_run_progress(FILE *to, const sfp_run_progress *p);

#endif
