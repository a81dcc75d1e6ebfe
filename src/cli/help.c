/* Prints the command and option tables as --help and as a manual page (roff). No code here depends on a particular command. */
#include "cli/help.h"

#include "cli/command.h"
#include "cli/external.h"
#include "cli/run_settings.h"
#include "cli/ui.h"

#include <string.h>

#define COLUMNS 100
#define SUMMARY_COLUMN 14
#define HELP_COLUMN 30
#define HELP_MAX 2048

static const char switches[] = "An option with [on|off] is on if no value follows it; --NAME off and --no-NAME turn it off.";

/* NULL: the option has no argument. */
static const char *argument(const sfp__opt *o)
{
    return sfp__opt_is_switch(o) ? "[on|off]" : o->type == SFP__OPT_FLAG ? NULL : o->arg;
}

static const char *note_of(const sfp__opt *o)
{
    return o->default_note ? o->default_note : "";
}

/* Writes the help text of an option and the names that it accepts; returns the length. */
static size_t help_text(const sfp__opt *o, char *buf, size_t size)
{
    size_t used = (size_t)snprintf(buf, size, "%s%s", o->help, o->word ? " One of " : "");
    const char *word;
    for (int i = 0; o->word && (word = o->word(i)) && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s", i ? ", " : "", word);
    if (o->word && used < size)
        used += (size_t)snprintf(buf + used, size - used, ".");
    return used;
}

/* ---------------------------------------------------------------- terminal */

/* Prints text from column `at` on, wrapped to COLUMNS, with indented continuation lines. Blank lines separate paragraphs. */
static void put_wrapped(FILE *to, const char *text, int indent, int at)
{
    while (*text) {
        if (text[0] == '\n' && text[1] == '\n') {
            (void)fputs("\n\n", to);
            text += 2;
            at = 0;
            continue;
        }
        int word = (int)strcspn(text, " \n");
        if (at > indent && at + 1 + word > COLUMNS) {
            (void)fputc('\n', to);
            at = 0;
        }
        if (at < indent) {
            (void)fprintf(to, "%*s", indent - at, "");
            at = indent;
        } else if (at > indent) {
            (void)fputc(' ', to);
            at++;
        }
        (void)fprintf(to, "%.*s", word, text);
        at += word;
        text += word;
        while (*text == ' ' || (*text == '\n' && text[1] != '\n'))
            text++;
    }
    (void)fputc('\n', to);
}

static void put_option(FILE *to, const sfp__opt *o)
{
    char text[HELP_MAX];
    const char *arg = argument(o);
    int at = fprintf(to, "  --%s%s%s", o->name, arg ? " " : "", arg ? arg : "");
    if (at > HELP_COLUMN - 2) {
        (void)fputc('\n', to);
        at = 0;
    }
    size_t used = help_text(o, text, sizeof text);
    if ((o->default_value || *note_of(o)) && used < sizeof text)
        (void)snprintf(text + used, sizeof text - used, " [%s%s%s]", o->default_value ? o->default_value : "",
                       o->default_value && *note_of(o) ? "; " : "", note_of(o));
    put_wrapped(to, text, HELP_COLUMN, at);
}

static void put_options(FILE *to, const sfp__command *c)
{
    static const sfp__opt help = SFP__ROW_FLAG("help", "Print this text.");
    bool has_switch = false;
    size_t count;
    const sfp__opt *opts = sfp__command_options(c, &count);
    if (count == 0 || opts[0].type != SFP__OPT_GROUP)
        (void)fputs("\nOptions:\n", to);
    for (size_t i = 0; i < count; i++) {
        const sfp__opt *o = &opts[i];
        has_switch = has_switch || sfp__opt_is_switch(o);
        if (o->type == SFP__OPT_GROUP)
            (void)fprintf(to, "\n%s:\n", o->help);
        else if (!o->hidden)
            put_option(to, o);
    }
    put_option(to, &help);
    if (has_switch) {
        (void)fputc('\n', to);
        put_wrapped(to, switches, 0, 0);
    }
}

static void put_usage(FILE *to, const sfp__command *c)
{
    bool options = c->opt_count || c->options;
    (void)fprintf(to, "streamfp %s%s%s%s", c->name, options ? " [OPTION...]" : "", c->operands ? " " : "",
                  c->operands ? c->operands : "");
}

void sfp__help_overview(FILE *to)
{
    (void)fputs("streamfp - real-time stream learning for vision transformers\n\n"
                "Usage: streamfp COMMAND [OPTION...] [ARGUMENT...]\n\nCommands:\n",
                to);
    for (size_t i = 0; sfp__commands[i]; i++) {
        int at = fprintf(to, "  %s", sfp__commands[i]->name);
        put_wrapped(to, sfp__commands[i]->summary, SUMMARY_COLUMN, at);
    }
    (void)fputs("\nPrograms of the Python package:\n", to);
    for (const sfp__external *e = sfp__externals; e->name; e++)
        put_wrapped(to, e->summary, SUMMARY_COLUMN, fprintf(to, "  %s", e->name));
    (void)fputs("\n'streamfp COMMAND --help' explains a command, 'streamfp --version' prints the version.\n", to);
}

static sfp_status describe(const sfp__command *c, sfp_error *err)
{
    return c->describe ? c->describe(err) : SFP_OK;
}

sfp_status sfp__help_command(FILE *to, const sfp__command *c, sfp_error *err)
{
    TRY(describe(c, err));
    (void)fputs("Usage: ", to);
    put_usage(to, c);
    (void)fprintf(to, "\n\nstreamfp %s: %s\n", c->name, c->summary);
    if (c->text) {
        (void)fputc('\n', to);
        put_wrapped(to, c->text, 0, 0);
    }
    put_options(to, c);
    if (c->examples)
        (void)fprintf(to, "\nExamples:\n%s", c->examples);
    return SFP_OK;
}

/* -------------------------------------------------------------------- roff */

/* Prints text with escaped roff syntax: backslashes, hyphens (which must stay ASCII), leading dots and leading quotes. */
static void put_roff(FILE *to, const char *text)
{
    bool line_start = true;
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            (void)fputs("\\&", to);
        line_start = *text == '\n';
        if (text[0] == '\n' && text[1] == '\n') {
            (void)fputs("\n.PP\n", to);
            text++;
        } else if (*text == '\\') {
            (void)fputs("\\e", to);
        } else if (*text == '-') {
            (void)fputs("\\-", to);
        } else {
            (void)fputc(*text, to);
        }
    }
}

static void put_roff_option(FILE *to, const sfp__opt *o)
{
    char text[HELP_MAX];
    if (o->type == SFP__OPT_GROUP) {
        (void)fputs(".PP\n\\fB", to);
        put_roff(to, o->help);
        (void)fputs("\\fR\n", to);
        return;
    }
    (void)fputs(".TP\n\\fB\\-\\-", to);
    put_roff(to, o->name);
    (void)fputs("\\fR", to);
    if (argument(o)) {
        bool words = o->type == SFP__OPT_CHOICE || o->type == SFP__OPT_FLAG;
        (void)fputs(words ? " " : " \\fI", to);
        put_roff(to, argument(o));
        (void)fputs(words ? "" : "\\fR", to);
    }
    (void)fputc('\n', to);
    (void)help_text(o, text, sizeof text);
    put_roff(to, text);
    if (o->default_value || *note_of(o)) {
        (void)fputs(" Default: ", to);
        put_roff(to, o->default_value ? o->default_value : "");
        (void)fputs(o->default_value && *note_of(o) ? "; " : "", to);
        put_roff(to, note_of(o));
        (void)fputc('.', to);
    }
    (void)fputc('\n', to);
}

/* The number of rows at the beginning of the table that are the options of `run`. */
static size_t count_shared(const sfp__command *c, const sfp__opt *opts, size_t count)
{
    size_t n;
    const sfp__opt *run = sfp__run_cli_options(&n);
    return c != &sfp__cmd_run && count >= n && memcmp(opts, run, n * sizeof *opts) == 0 ? n : 0;
}

/* Prints the manual page, section 1. */
static void print_man(FILE *to)
{
    (void)fprintf(to, ".TH STREAMFP 1 \"\" \"streamfp %s\" \"User Commands\"\n", sfp_version());
    (void)fputs(
        ".SH NAME\nstreamfp \\- real\\-time stream learning for vision transformers\n"
        ".SH SYNOPSIS\n.B streamfp\n.I COMMAND\n[\\fIOPTION\\fR...] [\\fIARGUMENT\\fR...]\n.br\n"
        ".B streamfp \\-\\-version\n"
        ".SH DESCRIPTION\nOne program with several commands. Data is written to standard output, messages to standard error.\n",
        to);
    put_roff(to, switches);
    (void)fputs("\n.SH COMMANDS\n", to);
    for (size_t i = 0; sfp__commands[i]; i++) {
        const sfp__command *c = sfp__commands[i];
        (void)fputs(".SS \"", to);
        put_usage(to, c);
        (void)fputs("\"\n", to);
        put_roff(to, c->summary);
        (void)fputs(".\n", to);
        if (c->text) {
            (void)fputs(".PP\n", to);
            put_roff(to, c->text);
            (void)fputc('\n', to);
        }
        size_t count;
        const sfp__opt *opts = sfp__command_options(c, &count);
        size_t shared = count_shared(c, opts, count);
        if (shared)
            (void)fputs(".PP\nIt also takes the options of \\fBstreamfp run\\fR.\n", to);
        for (size_t k = shared; k < count; k++)
            if (!opts[k].hidden)
                put_roff_option(to, &opts[k]);
        if (c->examples) {
            (void)fputs(".PP\nExamples:\n.PP\n.nf\n", to);
            put_roff(to, c->examples);
            (void)fputs(".fi\n", to);
        }
    }
    (void)fputs(".SH PROGRAMS OF THE PYTHON PACKAGE\nThe command \\fINAME\\fR executes streamfp\\-\\fINAME\\fR, which is beside "
                "streamfp or in "
                "PATH. It is explained by \\fBstreamfp\\fR \\fINAME\\fR \\fB\\-\\-help\\fR.\n",
                to);
    for (const sfp__external *e = sfp__externals; e->name; e++)
        (void)fprintf(to, ".TP\n%s\n%s.\n", e->name, e->summary);
    (void)fputs(".SH EXIT STATUS\n.TP\n0\nThe command succeeded.\n.TP\n1\nThe command failed, or a part of it failed.\n"
                ".TP\n2\nThe command line is invalid.\n"
                ".SH ENVIRONMENT\n.TP\nNO_COLOR\nIf set and not empty, no colour is used.\n",
                to);
}

/* --------------------------------------------------------------------- command */

static const sfp__opt help_options[] = {
    SFP__ROW_FLAG("man", "Print the manual page (roff)."),
    SFP__ROW_CHOICE("completion", "bash", NULL, "Print the completion script of a shell."),
    SFP__ROW_FLAG("options", "Print the options of a run as a document (Markdown)."),
};

static sfp_status run_help(const sfp__args *args, sfp_error *err)
{
    bool man = sfp__args_flag(args, "man"), completion = sfp__args_choice(args, "completion") >= 0;
    bool options = sfp__args_flag(args, "options");
    const sfp__command *c = args->operand_count ? sfp__command_find(args->operands[0]) : NULL;
    if (man + completion + options + args->operand_count > 1)
        return sfp__fail_usage(err, "too many arguments, expected only one of COMMAND, --man, --completion and --options");
    if (args->operand_count && !c) {
        char *program[] = {NULL, "--help", NULL};
        (void)sfp__external_run(args->operands[0], program, err);
        return sfp__as_usage(err);
    }
    for (size_t i = 0; man && sfp__commands[i]; i++)
        TRY(describe(sfp__commands[i], err));
    if (man)
        print_man(stdout);
    else if (completion)
        sfp__help_bash(stdout);
    else if (options)
        return sfp__help_markdown(stdout, err);
    else if (c)
        return sfp__help_command(stdout, c, err);
    else
        sfp__help_overview(stdout);
    return SFP_OK;
}

const sfp__command sfp__cmd_help = {
    .name = "help",
    .summary = "explain a command, print the manual page or the shell completion",
    .operands = "[COMMAND]",
    .max_operands = 1,
    SFP__COMMAND_OPTIONS(help_options),
    .run = run_help,
};
