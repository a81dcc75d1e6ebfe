/* The parts of `streamfp run`: its options and its status line. */
#ifndef SFP_CLI_RUN_H
#define SFP_CLI_RUN_H

#include "base/settings.h"
#include "cli/ui.h"
#include "streamfp.h"

/* The options of the command: those of sfp_settings_info and a few of its own. */
const sfp__opt *sfp__run_cli_options(size_t *count);
/* Adds to the help texts of these options what presets set: an option that is not given has the value of the preset. */
sfp_status sfp__run_describe_options(sfp_error *err);
/* The settings that were given on the command line or in a file. */
sfp_status sfp__run_settings(const sfp__args *a, sfp_settings **out, sfp_error *err);

/* Prints the measured numbers of a run, one per line, in at most 80 columns. */
void sfp__print_numbers(const sfp_result *r);
/* The status line of a run. */
void sfp__run_progress_line(const sfp_run_progress *p, sfp__status_line *l);

#endif
