/* The parts of `streamfp run`: its options and its status line. */
#ifndef SFP_CLI_RUN_H
#define SFP_CLI_RUN_H

#include "base/settings.h"
#include "cli/ui.h"
#include "streamfp.h"

/* Prints the measured numbers of a run, one per line, in at most 80 columns. */
void sfp__print_numbers(const sfp_result *r);
/* The status line of a run. */
void sfp__run_progress_line(const sfp_run_progress *p, sfp__status_line *l);

#endif
