/* The options of `streamfp run`. */
#ifndef SFP_CLI_RUN_SETTINGS_H
#define SFP_CLI_RUN_SETTINGS_H

#include "base/settings.h"
#include "streamfp.h"

/* The table of a run (run/options.h) with more complete help texts. */
const sfp__opt *sfp__run_cli_options(size_t *count);
/* Adds to the help texts of these options what presets set: an option that is not given has the value of the preset. */
sfp_status sfp__run_describe_options(sfp_error *err);
/* The settings that were given on the command line or in a file; the options are those of the table. */
sfp_status sfp__run_settings(const sfp__args *a, sfp_settings **out, sfp_error *err);

#endif
