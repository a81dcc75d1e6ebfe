/* streamfp help: the overview, a command's page, the manual page, the completion. */
#include "cli/command.h"
#include "cli/help.h"
#include "cli/ui.h"

static const sfp_opt options[] = {
    SFP_ROW_FLAG("man", "Print the manual page (roff)."),
    SFP_ROW_CHOICE("completion", "bash", NULL, "Print the completion script of a shell."),
};

static int run(const sfp_args *args)
{
    bool man = sfp__args_flag(args, "man"), completion = sfp__args_choice(args, "completion") >= 0;
    if (man + completion + args->operand_count > 1)
        return sfp__say_usage("help", "prints one thing, expected COMMAND, --man or --completion");
    if (man) {
        sfp__help_man(stdout);
    } else if (completion) {
        sfp__help_bash(stdout);
    } else if (args->operand_count == 1) {
        const sfp_command *c = sfp__command_find(args->operands[0]);
        if (!c)
            return sfp__say_usage(NULL, "unknown command '%s'", args->operands[0]);
        sfp__help_command(stdout, c);
    } else {
        sfp__help_overview(stdout);
    }
    return SFP_EXIT_OK;
}

const sfp_command sfp__cmd_help = {
    .name = "help",
    .summary = "explain a command, print the manual page or the shell completion",
    .operands = "[COMMAND]",
    .max_operands = 1,
    SFP_COMMAND_OPTIONS(options),
    .run = run,
};
