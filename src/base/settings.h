/* Settings: one table for each command.
 *
 * A row gives the key, type, argument, default, range, help text, the place in the options' struct, and whether a run may go on
 * with another value. The same table feeds the parser, `--help`, the manual page, the shell completion, the struct
 * (sfp__args_store), what a result or a checkpoint notes, the comparison when a run goes on and - for commands that take them -
 * keys of a configuration file and `--set key=value`, so nothing about a setting is written twice.
 *
 * Values are typed when they arrive, by whatever way; a command reads them by key and never parses text. A value remembers
 * where it came from: a later source overrides an earlier one of the same or a lower rank, whatever the order of arrival. */
#ifndef SFP_BASE_SETTINGS_H
#define SFP_BASE_SETTINGS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum sfp__opt_type {
    SFP_OPT_FLAG,
    SFP_OPT_INT,
    SFP_OPT_REAL,
    SFP_OPT_STRING,
    SFP_OPT_CHOICE,
    SFP_OPT_PAIR,
    SFP_OPT_GROUP
} sfp__opt_type;

/* May a run that goes on have another value than it began with? */
typedef enum sfp__opt_resume {
    SFP_RESUME_SAME,
    SFP_RESUME_LIVE, /* only on a live stream: its clock has no past, and a test set can come any time */
    SFP_RESUME_ANY,  /* it changes no answer */
    SFP_NOT_SAVED    /* it says how to talk and where to write: it is not even noted */
} sfp__opt_resume;

typedef struct sfp__opt {
    const char *name; /* "batch-size": the long option and the key; '_' equals '-' in keys */
    sfp__opt_type type;
    const char *arg;           /* word for the argument (help_bash.c completes by it); CHOICE: the words, "squash|crop" */
    const char *default_value; /* the default as text, parsed like any value; NULL: unset (FLAG: off) */
    int64_t int_min, int_max;
    double real_min, real_max;
    const char *help; /* one sentence or two; wrapped by the printer. GROUP: the heading of the rows that follow */
    /* STRING: the words it takes where another part of the program has the list of them; from 0 until NULL. NULL: any text. */
    const char *(*word)(int i);
    /* Of the member that sfp__args_store sets: bool, int, int64_t or uint64_t, double, const char *, or an enum of the words'
     * order. size 0: none. */
    size_t offset, size;
    sfp__opt_resume resume;
    const char *alias;        /* an earlier name that is still accepted; NULL: none */
    const char *saved;        /* its name in files, if that is an earlier one; NULL: `name` */
    const char *saved_values; /* CHOICE: earlier words in the order of `arg`: files have them, and they are still accepted */
    /* STRING: checks a text at once. Its message begins with the name of the option and has it as its key. NULL: any text. */
    sfp_status (*check)(const struct sfp__opt *o, const char *text, sfp_error *err);
    bool hidden; /* an earlier option that is still accepted, but not listed in help and completion */
} sfp__opt;

/* Rows. Designated initialisers keep unused fields zero; more of them may follow the help text. */
#define SFP_ROW_FLAG(n, h, ...)                                 \
    {                                                           \
        .name = n, .type = SFP_OPT_FLAG, .help = h, __VA_ARGS__ \
    }
#define SFP_ROW_SWITCH(n, d, h, ...)                                                \
    {                                                                               \
        .name = n, .type = SFP_OPT_FLAG, .default_value = d, .help = h, __VA_ARGS__ \
    }
#define SFP_ROW_INT(n, a, d, lo, hi, h, ...)                                                                               \
    {                                                                                                                      \
        .name = n, .type = SFP_OPT_INT, .arg = a, .default_value = d, .int_min = lo, .int_max = hi, .help = h, __VA_ARGS__ \
    }
#define SFP_ROW_REAL(n, a, d, lo, hi, h, ...)                                                                                 \
    {                                                                                                                         \
        .name = n, .type = SFP_OPT_REAL, .arg = a, .default_value = d, .real_min = lo, .real_max = hi, .help = h, __VA_ARGS__ \
    }
#define SFP_ROW_STRING(n, a, d, h, ...)                                                         \
    {                                                                                           \
        .name = n, .type = SFP_OPT_STRING, .arg = a, .default_value = d, .help = h, __VA_ARGS__ \
    }
#define SFP_ROW_CHOICE(n, words, d, h, ...)                                                         \
    {                                                                                               \
        .name = n, .type = SFP_OPT_CHOICE, .arg = words, .default_value = d, .help = h, __VA_ARGS__ \
    }
/* An option that was renamed; files keep its earlier name. */
#define SFP_RENAMED(earlier) .alias = (earlier), .saved = (earlier)
#define SFP_AT(type, member) .offset = offsetof(type, member), .size = sizeof(((type *)NULL)->member)

/* A heading; its name is that of no option. */
#define SFP_ROW_GROUP(h)                             \
    {                                                \
        .name = "", .type = SFP_OPT_GROUP, .help = h \
    }

/* Rows that several commands share. */
#define SFP_ROW_JSON SFP_ROW_FLAG("json", "Print one JSON object on one line, alone on standard output.", .resume = SFP_NOT_SAVED)
#define SFP_ROW_THREADS                                                                                   \
    SFP_ROW_INT("threads", "N", "0", 0, 1024, "Number of threads; 0: as many as the process may run on.", \
                .resume = SFP_RESUME_ANY)
#define SFP_ROW_IMG_SIZE                        \
    SFP_ROW_INT("img-size", "N", "0", 0, 65280, \
                "Side of the input in pixels; position embeddings are resized (bicubic). 0: that of the backbone's file.")

/* Who gave a value; a higher rank wins. */
typedef enum sfp__opt_rank {
    SFP_RANK_UNSET,
    SFP_RANK_DEFAULT,
    SFP_RANK_PRESET,
    SFP_RANK_FILE,
    SFP_RANK_COMMAND_LINE
} sfp__opt_rank;

typedef struct sfp__value {
    char *text; /* as given; NULL: unset */
    union {
        bool flag;
        int64_t integer;
        double real;
        int choice; /* index into the words */
    };
    sfp__opt_rank rank;
    char *origin; /* who gave it, as in messages; NULL: unset, or its default */
} sfp__value;

typedef struct sfp__args {
    const char *command;  /* for messages: "predict" */
    const sfp__opt *opts; /* (count) */
    size_t count;
    sfp__value *values; /* (count) */
    char **operands;    /* (operand_count), point into argv */
    int operand_count;
    bool help; /* --help or -h was given */
} sfp__args;

/* All values at their defaults. */
sfp_status sfp__args_init(sfp__args *a, const char *command, const sfp__opt *opts, size_t count, sfp_error *err);
void sfp__args_done(sfp__args *a);
/* A copy of the values, without operands; *to is written on success only. */
sfp_status sfp__args_copy(const sfp__args *a, sfp__args *to, sfp_error *err);
/* Values of this rank become the defaults. */
sfp_status sfp__args_clear_rank(sfp__args *a, sfp__opt_rank rank, sfp_error *err);

enum { SFP_KEY_LENGTH_MAX = 64 }; /* longer words are never suggested */

/* One value by key, from any source; `origin` names it in messages ("run.yaml:3: sigma"). A source of lower rank than the one
 * that set the value is checked and then ignored. Flags take on/off, true/false, yes/no, 1/0. */
sfp_status sfp__args_set(sfp__args *a, const char *key, const char *text, sfp__opt_rank rank, const char *origin, sfp_error *err);
/* "key=value", as --set takes it. */
sfp_status sfp__args_set_assignment(sfp__args *a, const char *pair, sfp__opt_rank rank, sfp_error *err);

/* Lookup by key. The key must be in the table and of that type: anything else is a defect of the caller (assert). */
bool sfp__args_flag(const sfp__args *a, const char *key);
int64_t sfp__args_int(const sfp__args *a, const char *key);
double sfp__args_real(const sfp__args *a, const char *key);
const char *sfp__args_string(const sfp__args *a, const char *key); /* NULL: unset */
int sfp__args_choice(const sfp__args *a, const char *key);         /* index into the words; -1: unset */
const char *sfp__args_text(const sfp__args *a, const char *key);   /* any type, as given; NULL: unset */
const char *sfp__args_value(const sfp__args *a, const char *key);  /* the same, but a flag is "on" or "off" */
sfp__opt_rank sfp__args_rank(const sfp__args *a, const char *key);

/* Puts the values of the rows that have a place into *options. */
void sfp__args_store(const sfp__args *a, void *options);

/* A flag that has a default can be meant to be off. */
bool sfp__opt_is_switch(const sfp__opt *o);
/* The default as sfp__args_value would give it. */
const char *sfp__opt_default(const sfp__opt *o);
/* The name of the option in files, and the word there for one of its values, which is written to buf if it differs. */
const char *sfp__opt_saved_name(const sfp__opt *o);
const char *sfp__opt_saved_value(const sfp__opt *o, const char *value, char *buf, size_t size);
/* Index of a text among words that | separates; -1: it is none of them. */
int sfp__word_index(const char *words, const char *text);
/* Word i of these, written to buf; "": there are fewer. */
const char *sfp__word_at(const char *words, int i, char *buf, size_t size);
/* Did the user give it - on the command line or in a file, no preset - and as something else than the default? */
bool sfp__args_given(const sfp__args *a, const char *key);

/* For values that are checked later than they arrive: a message about an option (err->key) begins with who gave its value from
 * now on ("run.yaml:3: sigma is ..."). False: it is about none of these. */
bool sfp__args_add_origin(const sfp__args *a, sfp_error *err);
/* Options that would do nothing: what the user asked for by such a one is not what would be done, so it is refused, unless it
 * says no more than its default; what a preset sets is not looked at. */
typedef struct sfp__no_effect_rule {
    const char *keys; /* "drift span": idle, each of them, */
    /* when this holds: "select=none&replay!=0|1&costs", all terms of it. = and != take several words, >= a number; a key alone:
     * it is set, !KEY: it is not. Nothing else holds of what is not set. */
    const char *when;
    const char *with, *why; /* "KEYS has no effect with WITH: WHY"; in `with` {KEY} stands for its value */
} sfp__no_effect_rule;
/* What the options do not tell, or tell otherwise. */
typedef struct sfp__fact {
    const char *key, *value; /* value NULL: not known, or set by nobody */
} sfp__fact;
/* SFP_EINVAL for the first that is idle. */
sfp_status sfp__args_check_no_effect(const sfp__args *a, size_t n, const sfp__no_effect_rule *rules, size_t facts,
                                     const sfp__fact *fact, sfp_error *err);

/* The row of a key or of an alias; NULL: there is none. */
const sfp__opt *sfp__args_find(const sfp__args *a, const char *key);
/* SFP_EINVAL: no row has this name; "unknown WHAT 'DASHES NAME', did you mean ...". */
sfp_status sfp__args_unknown(const sfp__args *a, const char *what, const char *dashes, const char *name, sfp_error *err);

/* '_' equals '-'. */
bool sfp__same_key(const char *a, const char *b);

/* The word among `names` (count; NULLs are passed over) that `word` was probably meant to be, or NULL. */
const char *sfp__nearest(const char *word, const char *const *names, size_t count);

/* Strict numbers: the whole text, no blanks, finite. False when it is none or out of range of the type. */
bool sfp__parse_int(const char *text, int64_t *out);
bool sfp__parse_real(const char *text, double *out);
/* Are both numbers, and the same: ".5" and "0.50"? */
bool sfp__same_number(const char *a, const char *b);

#endif
