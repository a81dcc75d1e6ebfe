/* Settings: one table per command.
 *
 * A row says everything about a setting: key, type, range, default, help, the place of its value in the options' struct, and for
 * the settings of a run also who uses it, what it changes, how files save it, and whether a resumed run may have another value.
 * Every consumer is a loop over rows: the parser, `--help`, the manual page, docs/options.md, the shell completion, the library's
 * sfp_settings_info, the settings in results, states and checkpoints, and the check of a resumed run. No other place lists keys.
 *
 * A value is parsed once, when it is set; sfp__args_store writes all values to the options' struct. A value records its origin and
 * its rank. A new value replaces an earlier one of the same or a lower rank, so the order between ranks does not matter. */
#ifndef SFP_BASE_SETTINGS_H
#define SFP_BASE_SETTINGS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum sfp__opt_type {
    SFP__OPT_FLAG,   /* bool */
    SFP__OPT_INT,    /* int, int64_t or uint64_t; 1e6 is a whole number, too */
    SFP__OPT_REAL,   /* double or float */
    SFP__OPT_STRING, /* const char * */
    SFP__OPT_CHOICE, /* an enum in the order of the words; of two words also a bool, which is true for the second */
    SFP__OPT_RANGE,  /* "A-B": int[2] */
    SFP__OPT_PAIR,
    SFP__OPT_GROUP
} sfp__opt_type;

/* What a setting belongs to. */
typedef enum sfp__opt_scope {
    SFP__SCOPE_RUN,
    SFP__SCOPE_LEARNER, /* a run has it, and also a learner without a run */
    SFP__SCOPE_ENGINE,
    SFP__SCOPE_COMMAND /* only the program has it, the library does not */
} sfp__opt_scope;

/* The only kind of run on which a setting has an effect. */
typedef enum sfp__opt_only {
    SFP__ONLY_ANY,
    SFP__ONLY_TRAINED,     /* fingerprints, which are trained */
    SFP__ONLY_CLOSED_FORM, /* a closed-form head */
    SFP__ONLY_LIVE,        /* a live stream */
    SFP__ONLY_DATASET
} sfp__opt_only;

/* What of a run changes if the setting has another value. */
typedef enum sfp__opt_changes {
    SFP__CHANGES_ALL,    /* the result and the processing time of a batch change */
    SFP__CHANGES_RESULT, /* only the result changes */
    SFP__CHANGES_COST,   /* only the processing time of a batch changes */
    SFP__CHANGES_NOTHING
} sfp__opt_changes;

/* How files of a learner save a setting. */
typedef enum sfp__opt_saved {
    SFP__SAVED_NOT,
    SFP__SAVED_STATE,     /* states and checkpoints: it gives the learned values their meaning */
    SFP__SAVED_INFERENCE, /* states and checkpoints: prediction needs it; it may differ when training continues */
    SFP__SAVED_RUN        /* checkpoints: it affects how a run continues */
} sfp__opt_saved;

/* Whether a resumed run may have another value than the original run. */
typedef enum sfp__opt_resume {
    SFP__RESUME_SAME,
    SFP__RESUME_LIVE, /* yes on a live stream: its clock restarts, and a test set may be added at any time */
    SFP__RESUME_ANY,  /* yes: no result depends on it */
    SFP__NOT_SAVED    /* yes, and it is not recorded: it concerns only output and messages */
} sfp__opt_resume;

typedef struct sfp__opt {
    const char *name; /* "batch-size": the long option and the key; '_' equals '-' in keys */
    sfp__opt_type type;
    const char *arg;           /* word for the argument (help_bash.c completes by it); CHOICE: the words, "squash|crop" */
    const char *default_value; /* the default as text, parsed like any value; NULL: unset (FLAG: off) */
    const char *default_note;  /* help: when there is another default ("preset best: 0"); NULL, "": never */
    double min, max;           /* INT, REAL, RANGE */
    struct {
        const char *word;
        double number;
    } named;          /* INT, REAL: a word for a number outside of the range, such as off for 0; NULL: none */
    const char *help; /* one or two sentences, wrapped when printed. GROUP: the heading of the rows below */
    /* STRING: returns accepted word i, NULL after the last, if another part of the program has the list. NULL: any text. */
    const char *(*word)(int i);
    size_t offset, size; /* of the member that sfp__args_store sets, whose type is that of `type`. size 0: no member */
    sfp__opt_scope scope;
    sfp__opt_only only;
    sfp__opt_changes changes;
    sfp__opt_saved saved;
    sfp__opt_resume resume;
    const char *example, *see; /* docs/options.md: options of a run, "--sigma 0.3"; keys of related settings; NULL: none */
    /* STRING: checks a text when it is set. An error begins with the name of the option, its key. NULL: any text. */
    sfp_status (*check)(const struct sfp__opt *o, const char *text, sfp_error *err);
    bool repeats; /* STRING: may be given several times; the values are joined by line breaks */
    bool hidden;  /* an earlier option that is still accepted, but not listed in help and completion */
} sfp__opt;

/* Rows. Designated initialisers keep unused fields zero; more of them may follow the help text. */
#define SFP__ROW_FLAG(n, h, ...)                                 \
    {                                                            \
        .name = n, .type = SFP__OPT_FLAG, .help = h, __VA_ARGS__ \
    }
#define SFP__ROW_SWITCH(n, d, h, ...)                                                \
    {                                                                                \
        .name = n, .type = SFP__OPT_FLAG, .default_value = d, .help = h, __VA_ARGS__ \
    }
#define SFP__ROW_INT(n, a, d, lo, hi, h, ...)                                                                               \
    {                                                                                                                       \
        .name = n, .type = SFP__OPT_INT, .arg = a, .default_value = d, .min = (double)(lo), .max = (double)(hi), .help = h, \
        __VA_ARGS__                                                                                                         \
    }
#define SFP__ROW_REAL(n, a, d, lo, hi, h, ...)                                                                       \
    {                                                                                                                \
        .name = n, .type = SFP__OPT_REAL, .arg = a, .default_value = d, .min = lo, .max = hi, .help = h, __VA_ARGS__ \
    }
#define SFP__ROW_STRING(n, a, d, h, ...)                                                         \
    {                                                                                            \
        .name = n, .type = SFP__OPT_STRING, .arg = a, .default_value = d, .help = h, __VA_ARGS__ \
    }
#define SFP__ROW_CHOICE(n, words, d, h, ...)                                                         \
    {                                                                                                \
        .name = n, .type = SFP__OPT_CHOICE, .arg = words, .default_value = d, .help = h, __VA_ARGS__ \
    }
#define SFP__AT(type, member) .offset = offsetof(type, member), .size = sizeof(((type *)NULL)->member)

#define SFP__ROW_RANGE(n, a, d, lo, hi, h, ...)                                                                       \
    {                                                                                                                 \
        .name = n, .type = SFP__OPT_RANGE, .arg = a, .default_value = d, .min = lo, .max = hi, .help = h, __VA_ARGS__ \
    }

/* A heading; it is not an option and has no name. */
#define SFP__ROW_GROUP(h)                             \
    {                                                 \
        .name = "", .type = SFP__OPT_GROUP, .help = h \
    }

/* Rows that several commands share. */
#define SFP__ROW_JSON                                                                                                  \
    SFP__ROW_FLAG("json", "Print one JSON object on one line, alone on standard output.", .scope = SFP__SCOPE_COMMAND, \
                  .changes = SFP__CHANGES_NOTHING, .resume = SFP__NOT_SAVED)
#define SFP__ROW_THREADS                                                                                   \
    SFP__ROW_INT("threads", "N", "0", 0, 1024, "Number of threads; 0: as many as the process may run on.", \
                 .scope = SFP__SCOPE_ENGINE, .changes = SFP__CHANGES_COST, .resume = SFP__RESUME_ANY)
#define SFP__IMG_SIZE_MAX 65280
#define SFP__IMG_SIZE_HELP \
    "Side of the input in pixels; position embeddings are resized (bicubic). 0: that of the backbone's file."
#define SFP__ROW_IMG_SIZE SFP__ROW_INT("img-size", "N", "0", 0, SFP__IMG_SIZE_MAX, SFP__IMG_SIZE_HELP)
#define SFP__PRECISIONS "f32|bf16|int8|auto" /* the words of sfp_precision, in its order */
#define SFP__PRECISION_HELP                                                                                                 \
    "Precision of matrix products. bf16 needs a CPU with AVX-512; int8 is the fastest, less accurate, and for closed-form " \
    "heads "                                                                                                                \
    "only. auto: bf16 on a CPU with AVX-512 BF16, where its features are nearly those of f32 in less time; else f32."

/* The kind of origin of a value; a higher rank has precedence. */
typedef enum sfp__opt_rank {
    SFP__RANK_UNSET,
    SFP__RANK_DEFAULT,
    SFP__RANK_PRESET,
    SFP__RANK_FILE,
    SFP__RANK_COMMAND_LINE
} sfp__opt_rank;

typedef struct sfp__value {
    char *text; /* as given; NULL: unset */
    union {
        bool flag;
        int64_t integer;
        double real;
        int choice; /* index into the words, also into those of `word` */
        int range[2];
    };
    sfp__opt_rank rank;
    char *origin; /* where it was set, for messages; NULL: unset, or the default */
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

/* Sets all values to their defaults. */
sfp_status sfp__args_init(sfp__args *a, const char *command, const sfp__opt *opts, size_t count, sfp_error *err);
void sfp__args_done(sfp__args *a);
/* Copies the values, without operands; *to is written on success only. */
sfp_status sfp__args_copy(const sfp__args *a, sfp__args *to, sfp_error *err);
/* Resets the values of this rank to their defaults. */
sfp_status sfp__args_clear_rank(sfp__args *a, sfp__opt_rank rank, sfp_error *err);

enum { SFP__KEY_LENGTH_MAX = 64 }; /* longer words are never suggested */

/* Sets one value by key; `origin` is its place in messages ("run.yaml:3: sigma"). A text of lower rank than the present value
 * is checked and then ignored. Flags accept on/off, true/false, yes/no and 1/0. */
sfp_status sfp__args_set(sfp__args *a, const char *key, const char *text, sfp__opt_rank rank, const char *origin, sfp_error *err);
/* Sets a value from "key=value", the argument of --set. */
sfp_status sfp__args_set_assignment(sfp__args *a, const char *pair, sfp__opt_rank rank, sfp_error *err);

/* Return a value by key. The key must be in the table and have this type (assert). */
bool sfp__args_flag(const sfp__args *a, const char *key);
int64_t sfp__args_int(const sfp__args *a, const char *key);
double sfp__args_real(const sfp__args *a, const char *key);
const char *sfp__args_string(const sfp__args *a, const char *key); /* NULL: unset */
int sfp__args_choice(const sfp__args *a, const char *key);         /* index into the words; -1: unset */
const char *sfp__args_text(const sfp__args *a, const char *key);   /* any type, as given; NULL: unset */
const char *sfp__args_value(const sfp__args *a, const char *key);  /* the same, but a flag is "on" or "off" */
sfp__opt_rank sfp__args_rank(const sfp__args *a, const char *key);

/* Writes the values of all rows with a member to *options. */
void sfp__args_store(const sfp__args *a, void *options);

/* Returns whether the option is a flag with a default, which can also be turned off. */
bool sfp__opt_is_switch(const sfp__opt *o);
/* Returns the default as sfp__args_value returns values. */
const char *sfp__opt_default(const sfp__opt *o);
/* Parses a text; `origin` names it in messages. *v gets the value, without text and origin. */
sfp_status sfp__opt_parse(const sfp__opt *o, const char *text, const char *origin, sfp__value *v, sfp_error *err);
/* Writes the value to its member of *options, and prints the member so that sfp__opt_parse reads the same value. Returns buf. */
void sfp__opt_store(const sfp__opt *o, const sfp__value *v, void *options);
const char *sfp__opt_print(const sfp__opt *o, const void *options, char *buf, size_t size);
/* Returns the row of a key; NULL: not found. */
const sfp__opt *sfp__opt_find(const sfp__opt *rows, size_t count, const char *key);
/* Returns the index of a text among words separated by |; -1: not found. */
int sfp__word_index(const char *words, const char *text);
/* Writes word i of these to buf and returns it; "": there are fewer words. */
const char *sfp__word_at(const char *words, int i, char *buf, size_t size);
/* Returns whether the user set it, on the command line or in a file, to another value than the default. A preset does not
 * count. */
bool sfp__args_given(const sfp__args *a, const char *key);

/* For values that are checked after they were set: begins a message about an option (err->key) with the origin of its value
 * ("run.yaml:3: sigma is ..."). Returns false if the message is not about an option of *a. */
bool sfp__args_add_origin(const sfp__args *a, sfp_error *err);
/* A rule for options that have no effect together with others. Such an option is refused if the user set it to another value
 * than the default. Values of presets are not checked. */
typedef struct sfp__no_effect_rule {
    /* "drift grow-by": each of these options has no effect if `when` holds. <trained>, <closed-form>, <live> and <dataset> stand for all
     * options that have an effect only on that kind of run (sfp__opt_only). */
    const char *keys;
    /* A conjunction of terms: "select=none&replay!=0|1&costs". = and != accept several words, >= a number. KEY alone: it is
     * set; !KEY: it is not set. All other terms are false for a key that is not set. */
    const char *when;
    const char *with, *why; /* "KEYS has no effect with WITH: WHY"; {KEY} in `with` is replaced by its value */
} sfp__no_effect_rule;
/* A fact for the rules that is not an option, or that replaces the value of one. */
typedef struct sfp__fact {
    const char *key, *value; /* value NULL: unknown or not set */
} sfp__fact;
/* An option without effect. */
typedef struct sfp__no_effect {
    const char *key;                      /* NULL: all options have an effect */
    char beside[SFP__KEY_LENGTH_MAX + 1]; /* the first word of `with`: usually the option that takes away the effect */
    char with[SFP_ERROR_MAX / 2];         /* filled in */
    const char *why;
} sfp__no_effect;
/* Finds the first option without effect that the user has given. If `only` is not NULL, checks only this option, whether it was given or not. */
sfp__no_effect sfp__args_find_no_effect(const sfp__args *a, size_t n, const sfp__no_effect_rule *rules, size_t facts,
                                        const sfp__fact *fact, const char *only);
/* Returns SFP_EINVAL with the message that refuses the option. */
sfp_status sfp__args_fail_no_effect(const sfp__args *a, const sfp__no_effect *found, sfp_error *err);
/* Refuses the first option without effect. */
sfp_status sfp__args_check_no_effect(const sfp__args *a, size_t n, const sfp__no_effect_rule *rules, size_t facts,
                                     const sfp__fact *fact, sfp_error *err);

/* Returns the row of a key; NULL: not found. */
const sfp__opt *sfp__args_find(const sfp__args *a, const char *key);
/* Returns SFP_EINVAL with the message "unknown WHAT 'DASHES NAME', did you mean ...". */
sfp_status sfp__args_unknown(const sfp__args *a, const char *what, const char *dashes, const char *name, sfp_error *err);

/* '_' equals '-'. */
bool sfp__same_key(const char *a, const char *b);

/* Returns the word of `names` (count; NULLs are ignored) that is most similar to `word`; NULL: none is similar enough. */
const char *sfp__nearest(const char *word, const char *const *names, size_t count);
/* Whether two names are probably meant to be the same: they are equal except for case and blanks, or differ by one typing error. Short names, and
 * names whose digits differ (c1, c2), are different. */
bool sfp__resembles(const char *a, const char *b);

/* Parse a number strictly: the whole text, without blanks, finite. Return false if it is not a number or is out of range. */
bool sfp__parse_int(const char *text, int64_t *out);
bool sfp__parse_real(const char *text, double *out);
/* Returns whether both are numbers and equal, such as ".5" and "0.50". */
bool sfp__same_number(const char *a, const char *b);

#endif
