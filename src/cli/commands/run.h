/* The parts of `streamfp run`: from its options to those of a run, and back: what is noted in its result, and whether a run that
 * is to go on was made with the same; what it looks like while it goes on. */
#ifndef SFP_CLI_RUN_H
#define SFP_CLI_RUN_H

#include "base/settings.h"
#include "cli/ui.h"
#include "run/run.h"

/* Puts the values of --preset where nothing else was given. */
sfp_status sfp__run_preset(sfp_args *a, sfp_error *err);
/* All but `out`. SFP_EINVAL: what the user gave is wrong. */
sfp_status sfp__run_settings(const sfp_args *a, sfp_run_options *o, sfp_error *err);

/* Hooks of a run; ctx is the sfp_args. */
sfp_status sfp__run_note_config(void *ctx, sfp_result *r, sfp_error *err);
sfp_status sfp__run_same_config(void *ctx, const sfp_result *then, bool live, sfp_error *err);
sfp_status sfp__run_opened(void *ctx, const sfp_run_options *o, const sfp_run_stream *stream, sfp_error *err);

/* The line that tells how far a run is. */
void sfp__run_progress_line(const sfp_run_progress *p, sfp_line *l);

#endif
