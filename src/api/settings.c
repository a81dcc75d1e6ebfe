/* Settings (streamfp.h, part 4): values of the table in run/options.c. */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "compute/gemm.h"
#include "pretrain/pretrain.h"
#include "run/options.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct sfp_settings {
    sfp__args args;
};

/* ---------------------------------------------------------------------------------------------------------- information */

enum { ROWS_MAX = 128 };

/* One table of settings: that of a run, or that of a pretraining. */
typedef struct table {
    const char *command; /* sfp__args.command of its values */
    sfp_setting_info rows[ROWS_MAX];
    int count;
} table;

static table run_table = {.command = "run"}, pretrain_table = {.command = "pretrain"};
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static sfp_setting_info describe(const sfp__opt *o, const char *group)
{
    static const sfp_setting_type types[] = {
        [SFP__OPT_FLAG] = SFP_TYPE_FLAG,     [SFP__OPT_INT] = SFP_TYPE_INT,    [SFP__OPT_REAL] = SFP_TYPE_REAL,
        [SFP__OPT_STRING] = SFP_TYPE_TEXT,   [SFP__OPT_RANGE] = SFP_TYPE_TEXT, [SFP__OPT_PAIR] = SFP_TYPE_TEXT,
        [SFP__OPT_CHOICE] = SFP_TYPE_CHOICE, [SFP__OPT_GROUP] = SFP_TYPE_TEXT};
    static const sfp_setting_scope scopes[] = {
        [SFP__SCOPE_RUN] = SFP_SCOPE_RUN, [SFP__SCOPE_LEARNER] = SFP_SCOPE_LEARNER, [SFP__SCOPE_ENGINE] = SFP_SCOPE_ENGINE};
    static const int changes[] = {[SFP__CHANGES_ALL] = SFP_CHANGES_RESULT | SFP_CHANGES_COST,
                                  [SFP__CHANGES_RESULT] = SFP_CHANGES_RESULT,
                                  [SFP__CHANGES_COST] = SFP_CHANGES_COST,
                                  [SFP__CHANGES_NOTHING] = 0};
    const bool number = o->type == SFP__OPT_INT || o->type == SFP__OPT_REAL;
    return (sfp_setting_info){.key = o->name,
                              .group = group,
                              .type = types[o->type],
                              .scope = scopes[o->scope],
                              .changes = changes[o->changes],
                              .values = o->type == SFP__OPT_FLAG ? "on|off" : o->arg,
                              .default_value = o->default_value,
                              .min = number ? o->min : 0,
                              .max = number ? o->max : 0,
                              .word = number ? o->named.word : NULL,
                              .help = o->help,
                              .name = o->word};
}

static void fill_table(table *t, size_t count, const sfp__opt *rows)
{
    const char *group = NULL;
    for (size_t i = 0; i < count && t->count < ROWS_MAX; i++) {
        if (rows[i].type == SFP__OPT_GROUP)
            group = rows[i].help;
        else if (rows[i].scope != SFP__SCOPE_COMMAND)
            t->rows[t->count++] = describe(&rows[i], group);
    }
}

static void fill_tables(void)
{
    fill_table(&run_table, sfp__run_table_count, sfp__run_table);
    fill_table(&pretrain_table, SFP__PRETRAIN_ROWS, sfp__pretrain_rows);
}

static const sfp_setting_info *row_of(const table *t, int i)
{
    (void)pthread_once(&tables_once, fill_tables);
    return i >= 0 && i < t->count ? &t->rows[i] : NULL;
}

const sfp_setting_info *sfp_settings_info(int i)
{
    return row_of(&run_table, i);
}

const sfp_setting_info *sfp_pretrain_settings_info(int i)
{
    return row_of(&pretrain_table, i);
}

/* --------------------------------------------------------------------------------------------------------------- values */

static sfp_status create(const table *t, sfp_settings **out, sfp_error *err)
{
    OWNED_PTR(sfp_settings_free) sfp_settings *s = NULL;
    SFP__REQUIRE(out, "out");
    TRY(sfp__alloc(&s, 1, sizeof *s, err));
    TRY(t == &run_table ? sfp__run_args_init(&s->args, err)
                        : sfp__args_init(&s->args, t->command, sfp__pretrain_rows, SFP__PRETRAIN_ROWS, err));
    *out = TAKE(s);
    return SFP_OK;
}

sfp_status sfp_settings_create(sfp_settings **out, sfp_error *err)
{
    IN_LIBRARY;
    return create(&run_table, out, err);
}

sfp_status sfp_pretrain_settings_create(sfp_settings **out, sfp_error *err)
{
    IN_LIBRARY;
    return create(&pretrain_table, out, err);
}

void sfp_settings_free(sfp_settings *s)
{
    if (!s)
        return;
    sfp__args_done(&s->args);
    sfp__free(s);
}

/* Returns the row of a key; NULL: there is none, or only the program has it. */
static const sfp__opt *find_setting(const sfp_settings *s, const char *key)
{
    const sfp__opt *o = sfp__args_find(&s->args, key);
    return o && o->scope != SFP__SCOPE_COMMAND ? o : NULL;
}

sfp_status sfp_settings_set(sfp_settings *s, const char *key, const char *value, sfp_error *err)
{
    IN_LIBRARY;
    SFP__REQUIRE(s && key && value, "settings, key and value");
    const sfp__opt *o = find_setting(s, key);
    if (o && sfp__api_pretrain_args(s))
        return sfp__args_set(&s->args, o->name, value, SFP__RANK_COMMAND_LINE, o->name, err);
    if (o)
        return sfp__run_set(&s->args, o->name, value, SFP__RANK_COMMAND_LINE, o->name, err);
    sfp_status status = sfp__args_unknown(&s->args, "setting", "", key, err);
    if (err)
        (void)snprintf(err->key, sizeof err->key, "%.*s", SFP_KEY_MAX - 1, key);
    return status;
}

const sfp__args *sfp__api_pretrain_args(const sfp_settings *s)
{
    return s->args.command == pretrain_table.command ? &s->args : NULL;
}

const sfp__args *sfp__api_run_args(const sfp_settings *s)
{
    return sfp__api_pretrain_args(s) ? NULL : &s->args;
}

const char *sfp_settings_get(const sfp_settings *s, const char *key)
{
    const sfp__opt *o = s && key ? find_setting(s, key) : NULL;
    return o ? sfp__args_value(&s->args, o->name) : NULL;
}

int sfp_settings_has_effect(const sfp_settings *s, const char *key)
{
    const sfp__args *a = s ? sfp__api_run_args(s) : NULL;
    char beside[SFP__KEY_LENGTH_MAX + 1];
    return a && key && find_setting(s, key) && !sfp__run_has_no_effect(a, key, beside, sizeof beside);
}

sfp_status sfp__api_settings_of(const sfp__args *args, sfp_settings **out, sfp_error *err)
{
    OWNED_PTR(sfp_settings_free) sfp_settings *s = NULL;
    TRY(sfp__alloc(&s, 1, sizeof *s, err));
    TRY(sfp__args_copy(args, &s->args, err));
    s->args.opts = sfp__run_table;
    s->args.command = run_table.command;
    TRY(sfp__run_set_preset(&s->args, err));
    *out = TAKE(s);
    return SFP_OK;
}

/* ---------------------------------------------------------------------------------------------- on the way to an object */

/* The value of a setting of the engine, as text. */
static const char *engine_value(const sfp_engine *e, const char *key, char *buf, size_t size)
{
    if (strcmp(key, "backbone") == 0)
        return e->backbone;
    if (strcmp(key, "precision") == 0)
        return sfp__precision_name(e->opt.precision);
    (void)snprintf(buf, size, "%d", strcmp(key, "threads") == 0 ? e->opt.threads : e->opt.image_size);
    return buf;
}

/* Whether the value leaves the choice to the opening of an engine, so that any open engine fits: a default, a value of a preset, or a word such as
 * auto. */
static bool engine_decides(const sfp__opt *o, const sfp__value *v)
{
    return v->rank <= SFP__RANK_PRESET || (o->named.word && strcmp(v->text, o->named.word) == 0);
}

/* Refuses settings of the engine that this engine was not opened with. */
static sfp_status check_engine(const sfp_engine *e, const sfp__args *a, sfp_error *err)
{
    for (size_t i = 0; i < a->count; i++) {
        const char *key = a->opts[i].name, *value = a->values[i].text;
        char buf[32], side[32];
        if (a->opts[i].scope != SFP__SCOPE_ENGINE || engine_decides(&a->opts[i], &a->values[i]))
            continue;
        const char *own = engine_value(e, key, buf, sizeof buf);
        (void)snprintf(side, sizeof side, "%d", strcmp(key, "img-size") == 0 ? sfp_engine_image_size(e) : -1);
        if (strcmp(value, own) != 0 && !sfp__same_number(value, own) && !sfp__same_number(value, side))
            return sfp__fail_key(err, key, SFP_EINVAL, "%s is '%s', expected '%s', with which the engine was opened", key, value,
                                 own);
    }
    return SFP_OK;
}

/* Refuses settings that only a run has. A preset may set some of them. */
static sfp_status check_learner(const sfp__args *a, sfp_error *err)
{
    for (size_t i = 0; i < a->count; i++) {
        const char *key = a->opts[i].name;
        if (a->opts[i].type != SFP__OPT_GROUP && a->opts[i].scope == SFP__SCOPE_RUN && a->values[i].rank > SFP__RANK_PRESET)
            return sfp__fail_key(err, key, SFP_EINVAL, "%s has no effect on a learner: it is a setting of a run", key);
    }
    return SFP_OK;
}

sfp_status sfp__api_learner_options(const sfp_engine *e, const sfp_settings *settings, sfp__learner_options *out,
                                    int *label_queue, sfp_error *err)
{
    OWNED_PTR(sfp_settings_free) sfp_settings *defaults = NULL;
    sfp__learner_options o = sfp__learner_options_defaults(e->vit);
    char note[SFP_ERROR_MAX];
    if (!settings)
        TRY(sfp_settings_create(&defaults, err));
    const sfp__args *a = settings ? &settings->args : &defaults->args;
    if (settings && sfp__api_pretrain_args(settings))
        return sfp__fail(err, SFP_EINVAL, "settings are those of a pretraining, expected those of sfp_settings_create");
    TRY(check_learner(a, err));
    TRY(sfp__run_check_method(a, err));
    TRY(check_engine(e, a, err));
    TRY(sfp__run_learner_options(a, &e->vit->config, &o, note, err));
    if (label_queue)
        *label_queue = (int)sfp__args_int(a, "label-queue");
    *out = o;
    return SFP_OK;
}

sfp_status sfp__api_run_options(const sfp_engine *e, const sfp_settings *settings, bool own_source, sfp__args *args,
                                sfp__run_options *out, char *note, sfp_error *err)
{
    OWNED_PTR(sfp_settings_free) sfp_settings *defaults = NULL;
    sfp__run_options options = sfp__run_options_defaults(e->vit, e->pool);
    *args = (sfp__args){0};
    if (!settings)
        TRY(sfp_settings_create(&defaults, err));
    const sfp__args *a = settings ? &settings->args : &defaults->args;
    if (settings && sfp__api_pretrain_args(settings))
        return sfp__fail(err, SFP_EINVAL, "settings are those of a pretraining, expected those of sfp_settings_create");
    TRY(check_engine(e, a, err));
    TRY(sfp__args_copy(a, args, err));
    for (size_t i = 0; i < a->count; i++) {
        const sfp__opt *o = &a->opts[i];
        const sfp__opt_rank rank = a->values[i].rank;
        char buf[32];
        if (o->scope == SFP__SCOPE_ENGINE && engine_decides(o, &a->values[i]))
            TRY(sfp__args_set(args, o->name, engine_value(e, o->name, buf, sizeof buf),
                              rank > SFP__RANK_DEFAULT ? rank : SFP__RANK_DEFAULT, o->name, err));
    }
    TRY(sfp__run_options_read(args, own_source, &options, note, err));
    *out = options;
    return SFP_OK;
}
