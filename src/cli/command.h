/* Commands: one file a command, each exporting one `const sfp__command`.
 *
 * To add one: write commands/NAME.c with its option table and `const sfp__command sfp__cmd_NAME`, and add a row to the list in
 * command.c. Parser, --help, manual page and completion follow from the struct.
 *
 *     static const sfp__opt options[] = {SFP_ROW_JSON, SFP_ROW_THREADS};
 *     static sfp_status run(const sfp__args *args, sfp_error *err) { ... return SFP_OK; }
 *     const sfp__command sfp__cmd_bench = {
 *         .name = "bench", .summary = "measure ...", .run = run, SFP_COMMAND_OPTIONS(options)};
 */
#ifndef SFP_CLI_COMMAND_H
#define SFP_CLI_COMMAND_H

#include "base/settings.h"

enum { SFP_EXIT_OK = 0, SFP_EXIT_FAILED = 1, SFP_EXIT_USAGE = 2 };

/* How a command ends: SFP_OK, exit code 0; or an error, which is said. The exit code is 2 when it is about the command line - an
 * option's value (err->key), of which it is said who gave it, or whatever a command tells by SFP_USAGE - else 1. */
#define SFP_USAGE "USAGE"
#define sfp__fail_usage(err, ...) sfp__fail_key(err, SFP_USAGE, SFP_EINVAL, __VA_ARGS__)
/* The error in *err is about the command line, whatever it is; returns its status. */
sfp_status sfp__as_usage(sfp_error *err);
/* All was said already, but the exit code is 1. */
sfp_status sfp__fail_quietly(sfp_error *err);
typedef sfp_status sfp__command_fn(const sfp__args *args, sfp_error *err);

#define SFP_OPERANDS_ANY (-1)

/* A word that comes first among a command's operands and has its own job. The table of options is the command's; an option that
 * the verb does not take is told and not quietly ignored. */
typedef struct sfp__verb {
    const char *name;
    sfp__command_fn *run;           /* operands[0] is the verb */
    int min_operands, max_operands; /* after the verb */
    const char *needs;              /* said when there are fewer or more: "one data set, KIND:PATH"; NULL: it takes none */
    const char *options;            /* "tasks test": what it takes besides --json; NULL: none */
} sfp__verb;

typedef struct sfp__command {
    const char *name;
    const char *summary;  /* one line, no capital, no full stop */
    const char *operands; /* "FILE", "PATH..."; NULL: takes none */
    int min_operands, max_operands;
    const char *text;     /* longer description, paragraphs split by "\n\n"; NULL: none */
    const char *examples; /* lines; NULL: none */
    const sfp__opt *opts;
    size_t opt_count;
    const sfp__opt *(*options)(size_t *count); /* instead of both: a table that is built when it is needed; NULL: they hold */
    sfp__command_fn *run;   /* of a command with verbs: without any operand */
    const sfp__verb *verbs; /* (verb_count); NULL: none */
    size_t verb_count;
} sfp__command;

#define SFP_COMMAND_OPTIONS(table) .opts = (table), .opt_count = sizeof(table) / sizeof *(table)
#define SFP_COMMAND_VERBS(list) .verbs = (list), .verb_count = sizeof(list) / sizeof *(list)

extern const sfp__command sfp__cmd_bench;
extern const sfp__command sfp__cmd_convert;
extern const sfp__command sfp__cmd_data;
extern const sfp__command sfp__cmd_eval;
extern const sfp__command sfp__cmd_help;
extern const sfp__command sfp__cmd_inspect;
extern const sfp__command sfp__cmd_predict;
extern const sfp__command sfp__cmd_pretrain;
extern const sfp__command sfp__cmd_run;
extern const sfp__command sfp__cmd_runs;
extern const sfp__command sfp__cmd_select;

/* All commands in the order of --help; ends with NULL. */
extern const sfp__command *const sfp__commands[];

/* `--name value`, `--name=value`, `--flag`, `--flag on|off`, `--no-flag`, `--set key=value` (type PAIR; may be repeated), `--`
 * ends options; options and operands may mix. argv[0] is the first argument, not the program. Stops at --help. */
sfp_status sfp__args_parse(sfp__args *a, int argc, char **argv, sfp_error *err);

/* --config FILE, a YAML mapping of option names to values. Every key is an option of the command; values are scalars, lists of
 * scalars become "a,b,c". Messages name FILE:LINE. */
sfp_status sfp__yaml_config(const char *path, sfp__args *args, sfp_error *err);

const sfp__command *sfp__command_find(const char *name);
/* The options of a command, (*count). */
const sfp__opt *sfp__command_options(const sfp__command *c, size_t *count);
/* Parses argv (its [0] the program), runs; returns the exit code. */
int sfp__command_main(int argc, char **argv);

#endif
