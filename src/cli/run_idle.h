/* Options of `streamfp run` that would do nothing: one table of when which ones are idle. What the user asked for by such a one is
 * not what the run would do, so it is refused, unless it says no more than its default; what a preset sets is not looked at. */
#ifndef SFP_CLI_RUN_IDLE_H
#define SFP_CLI_RUN_IDLE_H

#include "base/settings.h"
#include "run/run.h"

/* SFP_EINVAL for the first that is idle. `stream` NULL: it is not open yet, and what hangs on it passes. */
sfp_status sfp__run_check_idle(const sfp_args *a, const sfp_run_options *o, const sfp_run_stream *stream, sfp_error *err);

#endif
