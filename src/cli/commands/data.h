/* The verb of `streamfp data` that has its own file. */
#ifndef SFP_CLI_DATA_H
#define SFP_CLI_DATA_H

#include "cli/command.h"

sfp__command_fn sfp__data_describe;

#endif
