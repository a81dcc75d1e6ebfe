/* The options of `streamfp run` are the table of a run (run/options.h); their help also says what presets set. */
#include "cli/run_settings.h"

#include "api/api.h"
#include "run/options.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ the table */

enum { OPTIONS_MAX = 128, NOTE_MAX = 64, HELP_MAX = 2048 };
typedef struct table {
    sfp__opt option[OPTIONS_MAX];     /* the table of a run, with more complete help texts */
    char note[OPTIONS_MAX][NOTE_MAX]; /* the default that the default preset gives to the option; "": none */
    char preset_help[HELP_MAX];       /* help of --preset, with the values that each preset sets */
} table;

static table *run_table(void)
{
    static table t;
    assert(sfp__run_table_count <= OPTIONS_MAX);
    if (t.option[0].name)
        return &t;
    memcpy(t.option, sfp__run_table, sfp__run_table_count * sizeof *t.option);
    for (size_t i = 0; i < sfp__run_table_count; i++) {
        t.option[i].default_note = t.note[i];
        if (strcmp(t.option[i].name, "preset") == 0) {
            (void)snprintf(t.preset_help, HELP_MAX, "%s", t.option[i].help);
            t.option[i].help = t.preset_help;
        }
    }
    return &t;
}

const sfp__opt *sfp__run_cli_options(size_t *count)
{
    *count = sfp__run_table_count;
    return run_table()->option;
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

/* Appends the values that a preset sets. They are read from the library, not from a list here. */
static sfp_status describe_preset(const char *name, char *to, sfp_error *err)
{
    char before[2 * SFP__KEY_LENGTH_MAX];
    sfp_settings *plain = NULL, *rated = NULL;
    sfp_status status = with_preset(name, NULL, &plain, err);
    if (!status)
        status = with_preset(name, "1", &rated, err);
    if (!status) {
        (void)snprintf(before, sizeof before, " Values of %s: ", name);
        append_difference(to, before, NULL, plain);
        append_difference(to, "; with a rate: ", plain, rated);
        (void)snprintf(to + strlen(to), HELP_MAX - strlen(to), ".");
    }
    sfp_settings_free(plain);
    sfp_settings_free(rated);
    return status;
}

/* Writes a note for each option whose default the default preset changes. */
static sfp_status describe_defaults(table *t, sfp_error *err)
{
    OWNED_BY(sfp__args_done) sfp__args a = {0};
    TRY(sfp__run_args_init(&a, err));
    for (size_t i = 0; i < a.count; i++)
        if (a.values[i].rank == SFP__RANK_PRESET)
            (void)snprintf(t->note[i], NOTE_MAX, "preset %s: %s", sfp__args_text(&a, "preset"),
                           sfp__args_value(&a, a.opts[i].name));
    return SFP_OK;
}

sfp_status sfp__run_describe_options(sfp_error *err)
{
    char name[SFP__KEY_LENGTH_MAX];
    table *t = run_table();
    TRY(describe_defaults(t, err));
    const sfp__opt *preset = sfp__opt_find(t->option, sfp__run_table_count, "preset");
    for (int i = 0; *sfp__word_at(preset->arg, i, name, sizeof name); i++)
        TRY(describe_preset(name, t->preset_help, err));
    return SFP_OK;
}

sfp_status sfp__run_settings(const sfp__args *a, sfp_settings **out, sfp_error *err)
{
    return sfp__api_settings_of(a, out, err);
}
