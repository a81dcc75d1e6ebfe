/* The parts of `streamfp run`: from its options to those of a run; what it looks like while it goes on. */
#ifndef SFP_CLI_RUN_H
#define SFP_CLI_RUN_H

#include "base/settings.h"
#include "cli/ui.h"
#include "run/run.h"

/* Puts the values of --preset where nothing else was given. */
sfp_status sfp__run_preset(sfp__args *a, sfp_error *err);
/* All but `out`; `a` must outlive the run. SFP_EINVAL: what the user gave is wrong. */
sfp_status sfp__run_settings(const sfp__args *a, sfp__run_options *o, sfp_error *err);

/* The line that tells how far a run is. */
void sfp__run_progress_line(const sfp_run_progress *p, sfp__status_line *l);

#endif
