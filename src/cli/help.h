/* Help texts, generated from the command and option tables. */
#ifndef SFP_CLI_HELP_H
#define SFP_CLI_HELP_H

#include "cli/command.h"

#include <stdio.h>

void sfp__help_overview(FILE *to);
sfp_status sfp__help_command(FILE *to, const sfp__command *c, sfp_error *err);
void sfp__help_bash(FILE *to);                           /* bash completion */
sfp_status sfp__help_markdown(FILE *to, sfp_error *err); /* docs/options.md */

#endif
