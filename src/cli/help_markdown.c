/* Prints docs/options.md: the options of `streamfp run`, one entry each, from the rows of their table. */
#include "cli/help.h"
#include "cli/run_settings.h"

#include <string.h>

static const char opening[] =
    "# The options of a run\n\n"
    "One entry per option of `streamfp run`, which is also a key of its YAML file (`--config`), of `--set`, of `--grid` of\n"
    "`streamfp sweep` and of `sfp_settings_set` in a program. `streamfp run --help` prints the same on the terminal. This page "
    "is\n"
    "generated from the table of settings (`streamfp help --options`). The examples are commands of the tests; `photos` and "
    "`pacs` are\n"
    "directories of images, one per class.\n\n"
    "An option that has no effect together with the others is refused, unless its value is the default.\n";

static void put_values(FILE *to, const sfp__opt *o)
{
    const char *unit = o->type == SFP__OPT_REAL ? "a number" : "a whole number", *word;
    if (o->word) {
        for (int i = 0; (word = o->word(i)); i++)
            (void)fprintf(to, "%s`%s`", i ? ", " : "- Values: ", word);
        (void)fputc('\n', to);
    } else if (o->type == SFP__OPT_FLAG) {
        (void)fputs(sfp__opt_is_switch(o) ? "- Values: `on`, `off`\n" : "", to);
    } else if (o->type == SFP__OPT_CHOICE) {
        char buf[SFP__KEY_LENGTH_MAX];
        for (int i = 0; *sfp__word_at(o->arg, i, buf, sizeof buf); i++)
            (void)fprintf(to, "%s`%s`", i ? ", " : "- Values: ", buf);
        (void)fputc('\n', to);
    } else if (o->type == SFP__OPT_INT || o->type == SFP__OPT_REAL) {
        (void)fprintf(to, "- Values: %s from %.15g", unit, o->min);
        if (o->max < 1e15)
            (void)fprintf(to, " to %.15g", o->max);
        if (o->named.word)
            (void)fprintf(to, ", or `%s`", o->named.word);
        (void)fputc('\n', to);
    }
}

static void put_default(FILE *to, const sfp__opt *o)
{
    const char *note = o->default_note ? o->default_note : "";
    if (o->default_value || *note)
        (void)fprintf(to, "- Default: %s%s%s%s%s\n", o->default_value ? "`" : "", o->default_value ? o->default_value : "",
                      o->default_value ? "`" : "", o->default_value && *note ? "; " : "", note);
}

/* Writes on which runs the option has an effect, what it changes, and whether a resumed run may have another value. */
static void put_role(FILE *to, const sfp__opt *o)
{
    static const char *const only[] = {[SFP__ONLY_TRAINED] = "the trained learner (`--preset paper`)",
                                       [SFP__ONLY_CLOSED_FORM] = "closed-form heads",
                                       [SFP__ONLY_LIVE] = "live streams",
                                       [SFP__ONLY_DATASET] = "datasets"};
    static const char *const changes[] = {[SFP__CHANGES_RESULT] = "the result, not the processing time of a batch",
                                          [SFP__CHANGES_COST] = "the processing time, but no result",
                                          [SFP__CHANGES_NOTHING] = "no result"};
    if (o->only != SFP__ONLY_ANY)
        (void)fprintf(to, "- Only for %s\n", only[o->only]);
    if (o->changes != SFP__CHANGES_ALL)
        (void)fprintf(to, "- Changes %s\n", changes[o->changes]);
    if (o->scope != SFP__SCOPE_COMMAND && o->resume != SFP__RESUME_SAME)
        (void)fprintf(to, "- A resumed run may have another value%s\n",
                      o->resume == SFP__RESUME_LIVE ? ", on a live stream" : "");
}

/* The last line of an example is the options of a run; lines before it are other commands. An example of a live stream waits for
 * images, so it is not run. */
static void put_example(FILE *to, const sfp__opt *o)
{
    const char *line = o->example, *end;
    bool live = o->only == SFP__ONLY_LIVE;
    if (!line)
        return;
    (void)fprintf(to, "\n```%s\n", live ? "console" : "sh");
    for (; (end = strchr(line, '\n')); line = end + 1)
        (void)fprintf(to, "$ %.*s\n", (int)(end - line), line);
    (void)fprintf(to, "$ streamfp run %s%s\n```\n",
                  strstr(line, "--data") || strstr(line, "--config") ? "" : "--data folder:photos ", line);
}

static void put_links(FILE *to, const sfp__opt *o)
{
    const char *before = "\nSee also: ";
    for (const char *k = o->see ? o->see : ""; *k; k += strspn(k, " ")) {
        int n = (int)strcspn(k, " ");
        (void)fprintf(to, "%s[%.*s](#%.*s)", before, n, k, n, k);
        before = ", ";
        k += n;
    }
    (void)fputs(o->see ? "\n" : "", to);
}

sfp_status sfp__help_markdown(FILE *to, sfp_error *err)
{
    size_t count;
    TRY(sfp__run_describe_options(err));
    const sfp__opt *rows = sfp__run_cli_options(&count);
    (void)fputs(opening, to);
    for (const sfp__opt *o = rows; o < rows + count; o++) {
        if (o->type == SFP__OPT_GROUP) {
            (void)fprintf(to, "\n## %s\n", o->help);
            continue;
        }
        const char *arg = sfp__opt_is_switch(o) ? " [on|off]" : o->type == SFP__OPT_FLAG ? "" : o->arg;
        (void)fprintf(to, "\n### %s\n\n`--%s%s%s`\n\n%s\n\n", o->name, o->name, *arg && *arg != ' ' ? " " : "", arg, o->help);
        put_values(to, o);
        put_default(to, o);
        put_role(to, o);
        put_example(to, o);
        put_links(to, o);
    }
    return SFP_OK;
}
