/* The options of `streamfp run` are the settings of the library (sfp_settings_info) and a few that only a command has. Values are
 * checked by the library when they are read, so that a message names the place of the mistake. */
#include "cli/commands/run.h"

#include "streamfp.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ the table */

static sfp_status check_by_library(const sfp__opt *o, const char *text, sfp_error *err)
{
    sfp_settings *scratch = NULL;
    sfp_status status = sfp_settings_create(&scratch, err);
    if (!status)
        status = sfp_settings_set(scratch, o->name, text, err);
    sfp_settings_free(scratch);
    return status;
}

/* How a setting is read on the command line. A learner's number stays text: the library takes 1e6 for a whole number. */
static sfp__opt to_option(const sfp_setting_info *s)
{
    sfp__opt o = {.name = s->key,
                  .type = SFP_OPT_STRING,
                  .arg = s->values,
                  .default_value = s->default_value,
                  .help = s->help,
                  .word = s->name,
                  .check = check_by_library};
    if (s->type == SFP_TYPE_FLAG) {
        o.type = SFP_OPT_FLAG;
    } else if (s->type == SFP_TYPE_CHOICE) {
        o.type = SFP_OPT_CHOICE;
    } else if (s->type == SFP_TYPE_INT && s->scope != SFP_SCOPE_LEARNER) {
        o.type = SFP_OPT_INT;
        o.int_min = (int64_t)s->min;
        o.int_max = (int64_t)s->max;
    }
    return o;
}

#define PROGRAM_GROUP "Program"
static const sfp__opt last_of_output = SFP_ROW_JSON;
static const sfp__opt first_of_program[] = {
    SFP_ROW_STRING("config", "FILE", NULL, "YAML file of these options; the command line has precedence."),
    {.name = "set", .type = SFP_OPT_PAIR, .arg = "KEY=VALUE", .help = "The same as --KEY VALUE; may be repeated."}};

enum { OPTIONS_MAX = 160 };
enum { NOTE_MAX = 64, HELP_MAX = 2048 };
typedef struct table {
    sfp__opt option[OPTIONS_MAX];
    size_t count;
    char note[OPTIONS_MAX][NOTE_MAX]; /* defaults of the preset */
    char preset_help[HELP_MAX];
} table;

static void add(table *t, sfp__opt o)
{
    assert(t->count < OPTIONS_MAX);
    t->option[t->count++] = o;
}

static void begin_group(table *t, const char *name)
{
    bool program = strcmp(name, PROGRAM_GROUP) == 0;
    if (program)
        add(t, last_of_output);
    add(t, (sfp__opt)SFP_ROW_GROUP(name));
    for (size_t i = 0; program && i < sizeof first_of_program / sizeof *first_of_program; i++)
        add(t, first_of_program[i]);
}

static table *run_table(void)
{
    static table t;
    const sfp_setting_info *s;
    const char *group = "";
    const bool built = t.count > 0;
    for (int i = 0; !built && (s = sfp_settings_info(i)); i++) {
        if (!s->group) /* for learners only */
            continue;
        if (strcmp(s->group, group) != 0)
            begin_group(&t, s->group);
        group = s->group;
        sfp__opt o = to_option(s);
        o.default_note = t.note[t.count];
        if (strcmp(o.name, "preset") == 0) {
            (void)snprintf(t.preset_help, HELP_MAX, "%s", o.help);
            o.help = t.preset_help;
        }
        add(&t, o);
    }
    return &t;
}

const sfp__opt *sfp__run_cli_options(size_t *count)
{
    const table *t = run_table();
    *count = t->count;
    return t->option;
}

/* ------------------------------------------------------------------------------------------------- the help of presets */

/* Creates settings with a preset (NULL: the default) and an arrival rate (NULL: none). */
static sfp_status with_preset(const char *preset, const char *rate, sfp_settings **out, sfp_error *err)
{
    TRY(sfp_settings_create(out, err));
    if (preset)
        TRY(sfp_settings_set(*out, "preset", preset, err));
    return rate ? sfp_settings_set(*out, "rate", rate, err) : SFP_OK;
}

/* Appends the values that differ from those of other settings, or (from NULL) from the defaults: "method ridge, taps 0". */
static void append_difference(char *to, const char *before, const sfp_settings *from, const sfp_settings *s)
{
    const sfp_setting_info *info;
    for (int i = 0; (info = sfp_settings_info(i)); i++) {
        const char *value = sfp_settings_get(s, info->key),
                   *other = from ? sfp_settings_get(from, info->key) : info->default_value;
        size_t used = strlen(to);
        if (!value || strcmp(info->key, "preset") == 0 || strcmp(info->key, "rate") == 0 ||
            strcmp(value, other ? other : "off") == 0)
            continue;
        (void)snprintf(to + used, HELP_MAX - used, "%s%s %s", before, info->key, value);
        before = ", ";
    }
}

/* Appends what a preset sets, as the library sets it. */
static sfp_status describe_preset(const char *name, char *to, sfp_error *err)
{
    char before[2 * SFP_KEY_LENGTH_MAX], with_rate[2 * SFP_KEY_LENGTH_MAX];
    size_t length = strlen(to);
    sfp_settings *plain = NULL, *rated = NULL;
    sfp_status status = with_preset(name, NULL, &plain, err);
    if (!status)
        status = with_preset(name, "1", &rated, err);
    if (!status) {
        (void)snprintf(before, sizeof before, " Values of %s: ", name);
        append_difference(to, before, NULL, plain);
        (void)snprintf(with_rate, sizeof with_rate, " Values of %s with a rate: ", name);
        append_difference(to, to[length] ? "; with a rate: " : with_rate, plain, rated);
        (void)snprintf(to + strlen(to), HELP_MAX - strlen(to), "%s", to[length] ? "." : "");
    }
    sfp_settings_free(plain);
    sfp_settings_free(rated);
    return status;
}

/* Notes the defaults that the default preset changes. */
static sfp_status describe_defaults(table *t, sfp_error *err)
{
    sfp_settings *s = NULL;
    sfp_status status = with_preset(NULL, NULL, &s, err);
    for (size_t i = 0; !status && i < t->count; i++) {
        const sfp__opt *o = &t->option[i];
        const char *value = sfp_settings_get(s, o->name);
        if (value && strcmp(value, o->default_value ? o->default_value : "off") != 0)
            (void)snprintf(t->note[i], NOTE_MAX, "preset %s: %s", sfp_settings_get(s, "preset"), value);
    }
    sfp_settings_free(s);
    return status;
}

sfp_status sfp__run_describe_options(sfp_error *err)
{
    static bool described;
    char name[SFP_KEY_LENGTH_MAX];
    table *t = run_table();
    if (described)
        return SFP_OK;
    TRY(describe_defaults(t, err));
    for (size_t k = 0; k < t->count; k++)
        for (int i = 0; t->option[k].help == t->preset_help && *sfp__word_at(t->option[k].arg, i, name, sizeof name); i++)
            TRY(describe_preset(name, t->preset_help, err));
    described = true;
    return SFP_OK;
}

/* ----------------------------------------------------------------------------------------------------------- the values */

sfp_status sfp__run_settings(const sfp__args *a, sfp_settings **out, sfp_error *err)
{
    sfp_settings *s = NULL;
    const sfp_setting_info *info;
    sfp_status status = sfp_settings_create(&s, err);
    for (int i = 0; !status && (info = sfp_settings_info(i)); i++)
        if (info->group && sfp__args_rank(a, info->key) >= SFP_RANK_FILE)
            status = sfp_settings_set(s, info->key, sfp__args_value(a, info->key), err);
    if (status)
        sfp_settings_free(s);
    else
        *out = s;
    return status;
}
