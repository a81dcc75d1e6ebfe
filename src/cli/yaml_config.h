/* --config FILE: a YAML mapping of option names to values. */
#ifndef SFP_CLI_YAML_CONFIG_H
#define SFP_CLI_YAML_CONFIG_H

#include "base/settings.h"

/* Every key is an option of the command; values are scalars, lists of scalars become "a,b,c". Messages name FILE:LINE. */
sfp_status sfp__yaml_config(const char *path, sfp_args *args, sfp_error *err);

#endif
