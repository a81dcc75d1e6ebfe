/* The option tables as a bash completion. What follows an option is read from the word for its argument: words in small letters
 * are offered as they are, FILE, DIR and PATH are files, KIND:PATH is a kind of source and then a file, KEY=VALUE the key of an
 * option; of anything else, as numbers, nothing is. A command's own words ("show RUN | compare RUN...") are read in the same way.
 */
#include "cli/help.h"

#include "stream/source.h"

#include <ctype.h>
#include <string.h>

/* Bash cuts a word at = and at : before it asks; `at` is the word before the one to complete, or the sign that cut it. */
static const char opening[] = "# bash completion for streamfp, made by 'streamfp help --completion bash'\n"
                              "_streamfp_words() { # WORDS CUR\n"
                              "    mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$2\")\n"
                              "}\n"
                              "_streamfp_begin() { # WORDS CUR: words that go on\n"
                              "    compopt -o nospace 2>/dev/null\n"
                              "    _streamfp_words \"$1\" \"$2\"\n"
                              "}\n"
                              "_streamfp_files() { # -f|-d WORDS CUR\n"
                              "    compopt -o filenames 2>/dev/null\n"
                              "    mapfile -t COMPREPLY < <(compgen -W \"$2\" -- \"$3\"; compgen \"$1\" -- \"$3\")\n"
                              "}\n"
                              "_streamfp_sources() { # CUR\n"
                              "    case $1 in\n"
                              "    *:*) mapfile -t COMPREPLY < <(compgen -P \"${1%%:*}:\" -f -- \"${1#*:}\") ;;\n"
                              "    *) _streamfp_begin '";

static const char beginning[] =
    "' \"$1\" ;;\n"
    "    esac\n"
    "}\n"
    "_streamfp() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} at=$((COMP_CWORD - 1)) command=${COMP_WORDS[1]} prev verbs word\n"
    "    COMPREPLY=()\n"
    "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
    "        _streamfp_words '--help --version";

static const char options_begin[] = "' \"$cur\"\n"
                                    "        return\n"
                                    "    fi\n"
                                    "    case $cur in [=:]) at=$COMP_CWORD cur= ;; esac\n"
                                    "    prev=${COMP_WORDS[at]}\n"
                                    "    case $prev in\n"
                                    "    :) _streamfp_files -f '' \"$cur\"; return ;;\n"
                                    "    =)\n"
                                    "        prev=${COMP_WORDS[at-1]}\n"
                                    "        if [ \"${COMP_WORDS[at-2]}\" = --set ]; then prev=--$prev; fi ;;\n"
                                    "    esac\n"
                                    "    case $command:$prev in\n";

/* ------------------------------------------------------- words for an argument */

/* The next of "FILE|builtin": its length without what is in brackets; *text goes on after it. 0: there is none. */
static int next_choice(const char **text, const char **word)
{
    *text += strspn(*text, "|[] .");
    *word = *text;
    *text += strcspn(*text, "|");
    return (int)strcspn(*word, "|[] .");
}

static bool is_word(const char *choice)
{
    return islower((unsigned char)*choice) || isdigit((unsigned char)*choice);
}

static void put_words(FILE *to, const char *arg)
{
    const char *word, *gap = "";
    for (int n; (n = next_choice(&arg, &word)) > 0;)
        if (is_word(word)) {
            (void)fprintf(to, "%s%.*s", gap, n, word);
            gap = " ";
        }
}

/* "-f", "-d", or NULL: none of the choices is a file. */
static const char *files_of(const char *arg)
{
    const char *word, *found = NULL;
    while (next_choice(&arg, &word) > 0) {
        if (strncmp(word, "FILE", 4) == 0 || strncmp(word, "PATH", 4) == 0)
            return "-f";
        if (strncmp(word, "DIR", 3) == 0 || strncmp(word, "RUN", 3) == 0)
            found = "-d";
    }
    return found;
}

/* What is done for an argument like this one. */
static void put_argument(FILE *to, const char *arg)
{
    const char *files = files_of(arg);
    if (strncmp(arg, "KIND:", 5) == 0) {
        (void)fputs("_streamfp_sources \"$cur\"", to);
        return;
    }
    (void)fprintf(to, "%s%s '", files ? "_streamfp_files " : "_streamfp_words", files ? files : "");
    put_words(to, arg);
    (void)fputs("' \"$cur\"", to);
}

/* ------------------------------------------------------------------- options */

static bool is_option(const sfp__opt *o)
{
    return o->type != SFP_OPT_GROUP;
}

static void put_keys(FILE *to, const sfp__command *c)
{
    size_t count;
    const sfp__opt *opts = sfp__command_options(c, &count);
    const char *gap = "";
    for (size_t k = 0; k < count; k++)
        if (is_option(&opts[k]) && opts[k].type != SFP_OPT_PAIR) {
            (void)fprintf(to, "%s%s=", gap, opts[k].name);
            gap = " ";
        }
}

static void put_option(FILE *to, const sfp__command *c, const sfp__opt *o)
{
    if (!is_option(o) || (o->type == SFP_OPT_FLAG && !sfp__opt_is_switch(o)))
        return;
    (void)fprintf(to, "    %s:--%s) ", c->name, o->name);
    if (sfp__opt_is_switch(o)) { /* its word may be left out */
        (void)fputs("if [[ $cur != -* ]]; then _streamfp_words 'on off' \"$cur\"; return; fi ;;\n", to);
        return;
    }
    if (o->type == SFP_OPT_PAIR) {
        (void)fputs("_streamfp_begin '", to);
        put_keys(to, c);
        (void)fputs("' \"$cur\"", to);
    } else if (o->word) {
        (void)fputs("_streamfp_words '", to);
        for (int w = 0; o->word(w); w++)
            (void)fprintf(to, "%s%s", w ? " " : "", o->word(w));
        (void)fputs("' \"$cur\"", to);
    } else {
        put_argument(to, o->arg);
    }
    (void)fputs("; return ;;\n", to);
}

static void put_option_names(FILE *to, const sfp__command *c)
{
    size_t count;
    const sfp__opt *opts = sfp__command_options(c, &count);
    (void)fprintf(to, "    %s:%s*) _streamfp_words '--help", c->name, c->operands ? "-" : "");
    for (size_t k = 0; k < count; k++)
        if (is_option(&opts[k]))
            (void)fprintf(to, " --%s", opts[k].name);
    (void)fputs("' \"$cur\" ;;\n", to);
}

/* Only who types --no means them. */
static void put_negated_names(FILE *to, const sfp__command *c)
{
    size_t count;
    const sfp__opt *opts = sfp__command_options(c, &count);
    bool any = false;
    for (size_t k = 0; k < count; k++)
        any = any || sfp__opt_is_switch(&opts[k]);
    if (!any)
        return;
    (void)fprintf(to, "    %s:--no*) _streamfp_words '", c->name);
    for (size_t k = 0; k < count; k++) {
        const sfp__opt *o = &opts[k];
        if (is_option(o) && strncmp(o->name, "no", 2) == 0)
            (void)fprintf(to, "--%s ", o->name);
        if (sfp__opt_is_switch(o))
            (void)fprintf(to, "--no-%s ", o->name);
    }
    (void)fputs("' \"$cur\" ;;\n", to);
}

/* ------------------------------------------------------------------ operands */

/* "show RUN | compare RUN RUN... | add DIR...": what follows each verb. */
static void put_verbs(FILE *to, const sfp__command *c)
{
    const char *text = c->operands ? c->operands : "", *word;
    for (int n; (n = next_choice(&text, &word)) > 0;) {
        const char *after = word + n + strspn(word + n, " ");
        char arg[64];
        if (!is_word(word))
            continue;
        (void)snprintf(arg, sizeof arg, "%.*s", (int)strcspn(after, "|]"), after);
        (void)fprintf(to, "    %s:%.*s) ", c->name, n, word);
        put_argument(to, arg);
        (void)fputs("; return ;;\n", to);
    }
}

static void put_operands(FILE *to, const sfp__command *c)
{
    if (!c->operands)
        return;
    (void)fprintf(to, "    %s:*) ", c->name);
    if (strcmp(c->operands, "[COMMAND]") == 0) {
        (void)fputs("_streamfp_words '", to);
        for (size_t k = 0; sfp__commands[k]; k++)
            (void)fprintf(to, "%s%s", k ? " " : "", sfp__commands[k]->name);
        (void)fputs("' \"$cur\" ;;\n", to);
    } else {
        (void)fputs("verbs='", to);
        put_words(to, c->operands);
        (void)fputs("' ;;\n", to);
    }
}

void sfp__help_bash(FILE *to)
{
    (void)fputs(opening, to);
    for (size_t i = 0; sfp__source_kinds[i]; i++)
        (void)fprintf(to, "%s%s:", i ? " " : "", sfp__source_kinds[i]->name);
    (void)fputs(beginning, to);
    for (size_t i = 0; sfp__commands[i]; i++)
        (void)fprintf(to, " %s", sfp__commands[i]->name);
    (void)fputs(options_begin, to);
    for (size_t i = 0; sfp__commands[i]; i++) {
        size_t count;
        const sfp__opt *opts = sfp__command_options(sfp__commands[i], &count);
        for (size_t k = 0; k < count; k++)
            put_option(to, sfp__commands[i], &opts[k]);
        put_verbs(to, sfp__commands[i]);
    }
    (void)fputs("    esac\n"
                "    verbs=-\n"
                "    case $command:$cur in\n",
                to);
    for (size_t i = 0; sfp__commands[i]; i++) {
        put_negated_names(to, sfp__commands[i]);
        put_option_names(to, sfp__commands[i]);
        put_operands(to, sfp__commands[i]);
    }
    (void)fputs("    esac\n"
                "    if [ \"$verbs\" = - ]; then return; fi\n"
                "    for word in \"${COMP_WORDS[@]:2:COMP_CWORD-2}\"; do\n"
                "        case \" $verbs \" in *\" $word \"*) verbs= ;; esac\n"
                "    done\n"
                "    if [ -n \"$verbs\" ]; then\n"
                "        _streamfp_words \"$verbs\" \"$cur\"\n"
                "    else\n"
                "        _streamfp_files -f '' \"$cur\"\n"
                "    fi\n"
                "}\n"
                "complete -F _streamfp streamfp\n",
                to);
}
