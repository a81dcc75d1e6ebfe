/* Commands: one file per command, which defines one `const sfp__command`.
 *
 * To add a command, write commands/NAME.c with its option table and `const sfp__command sfp__cmd_NAME`, and add a row to the list
 * in command.c. The parser, --help, the manual page and the completion use the struct.
 *
 *     static const sfp__opt options[] = {SFP__ROW_JSON, SFP__ROW_THREADS};
 *     static sfp_status run(const sfp__args *args, sfp_error *err) { ... return SFP_OK; }
 *     const sfp__command sfp__cmd_bench = {
 *         .name = "bench", .summary = "measure ...", .run = run, SFP__COMMAND_OPTIONS(options)};
 */
#ifndef SFP_CLI_COMMAND_H
#define SFP_CLI_COMMAND_H

#include "base/settings.h"

enum { SFP__EXIT_OK = 0, SFP__EXIT_FAILED = 1, SFP__EXIT_USAGE = 2 };

/* A command returns SFP_OK (exit status 0) or an error, which is printed. The exit status is 2 if the error is about the command
 * line: err->key is an option (the message then names the place where its value was set) or SFP__USAGE. Otherwise it is 1. */
#define SFP__USAGE "USAGE"
#define sfp__fail_usage(err, ...) sfp__fail_key(err, SFP__USAGE, SFP_EINVAL, __VA_ARGS__)
/* Turns the error in *err into one about the command line; returns its status. */
sfp_status sfp__as_usage(sfp_error *err);
/* Ends a command with exit status 1 without a message, because it has printed one. */
sfp_status sfp__fail_quietly(sfp_error *err);
typedef sfp_status sfp__command_fn(const sfp__args *args, sfp_error *err);

#define SFP__OPERANDS_ANY (-1)

/* A verb is the first operand of some commands and has its own function. Verbs share the option table of the command; an option
 * that a verb does not use is an error. */
typedef struct sfp__verb {
    const char *name;
    sfp__command_fn *run;           /* operands[0] is the verb */
    int min_operands, max_operands; /* after the verb */
    const char *needs;              /* the expected operands, for messages: "one dataset, KIND:PATH"; NULL: no operands */
    const char *options;            /* "tasks test": the options of the verb, other than --json; NULL: none */
} sfp__verb;

typedef struct sfp__command {
    const char *name;
    const char *summary;  /* one line, no capital, no full stop */
    const char *operands; /* "FILE", "PATH..."; NULL: no operands */
    int min_operands, max_operands;
    const char *text;     /* description; "\n\n" separates paragraphs; NULL: none */
    const char *examples; /* lines; NULL: none */
    const sfp__opt *opts;
    size_t opt_count;
    /* builds the table when it is needed; NULL: opts and opt_count are the table */
    const sfp__opt *(*options)(size_t *count);
    /* completes the help texts of the table before they are printed; NULL: they are complete */
    sfp_status (*describe)(sfp_error *err);
    sfp__command_fn *run;   /* in a command with verbs: called without operands */
    const sfp__verb *verbs; /* (verb_count); NULL: none */
    size_t verb_count;
} sfp__command;

#define SFP__COMMAND_OPTIONS(table) .opts = (table), .opt_count = sizeof(table) / sizeof *(table)
#define SFP__COMMAND_VERBS(list) .verbs = (list), .verb_count = sizeof(list) / sizeof *(list)

extern const sfp__command sfp__cmd_bench;
extern const sfp__command sfp__cmd_convert;
extern const sfp__command sfp__cmd_data;
extern const sfp__command sfp__cmd_eval;
extern const sfp__command sfp__cmd_help;
extern const sfp__command sfp__cmd_inspect;
extern const sfp__command sfp__cmd_classes;
extern const sfp__command sfp__cmd_correct;
extern const sfp__command sfp__cmd_forget;
extern const sfp__command sfp__cmd_suspects;
extern const sfp__command sfp__cmd_queue;
extern const sfp__command sfp__cmd_merge;
extern const sfp__command sfp__cmd_predict;
extern const sfp__command sfp__cmd_pretrain;
extern const sfp__command sfp__cmd_run;
extern const sfp__command sfp__cmd_runs;
extern const sfp__command sfp__cmd_select;
extern const sfp__command sfp__cmd_serve;

/* All commands in the order of --help; ends with NULL. */
extern const sfp__command *const sfp__commands[];

/* Parses `--name value`, `--name=value`, `-o value` (--out), `--flag`, `--flag on|off`, `--no-flag` and `--set key=value` (type PAIR; may be
 * repeated). `--` ends the options; options and operands may be mixed. argv[0] is the first argument, not the program. Stops at
 * --help. */
sfp_status sfp__args_parse(sfp__args *a, int argc, char **argv, sfp_error *err);

/* Reads --config FILE, a YAML mapping of option names to values. A value is a scalar, or a list of scalars, which becomes
 * "a,b,c". Messages name FILE:LINE. */
sfp_status sfp__yaml_config(const char *path, sfp__args *args, sfp_error *err);

const sfp__command *sfp__command_find(const char *name);
/* Returns the option table of a command, (*count). */
const sfp__opt *sfp__command_options(const sfp__command *c, size_t *count);
/* Parses argv (argv[0] is the program), runs the command, and returns the exit status. */
int sfp__command_main(int argc, char **argv);

#endif
