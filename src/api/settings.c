/* Settings (streamfp.h, part 4): values of the table in run/options.c. */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "learner/settings.h"
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

static bool is_among(const char *key, const char *const *keys)
{
    for (; *keys; keys++)
        if (strcmp(*keys, key) == 0)
            return true;
    return false;
}

static sfp_setting_scope scope_of(const char *key)
{
    static const char *const engine[] = {"backbone", "img-size", "precision", "threads", NULL};
    static const char *const learner[] = {"label-queue", "method", "preset", NULL};
    if (is_among(key, engine))
        return SFP_SCOPE_ENGINE;
    return is_among(key, learner) || sfp__settings_find(key) ? SFP_SCOPE_LEARNER : SFP_SCOPE_RUN;
}

/* Numbers of the learner are text in the table: their type and range are in the learner's own. */
static void describe_learner(const sfp__setting *s, sfp_setting_info *out)
{
    switch (s->type) {
    case SFP_SETTING_INT:
    case SFP_SETTING_SEED:
        out->type = SFP_TYPE_INT;
        break;
    case SFP_SETTING_REAL:
    case SFP_SETTING_FLOAT:
        out->type = SFP_TYPE_REAL;
        break;
    case SFP_SETTING_CHOICE:
    case SFP_SETTING_FLAG:
    case SFP_SETTING_FLIP:
    case SFP_SETTING_SELECTOR:
    case SFP_SETTING_BUFFER:
    case SFP_SETTING_LAYERS:
    case SFP_SETTING_TASKS:
    case SFP_SETTING_CLASSES:
    case SFP_SETTING_NORM:
        return;
    }
    out->min = s->min;
    out->max = s->type == SFP_SETTING_SEED ? (double)UINT64_MAX : s->max;
}

static sfp_setting_info describe(const table *t, const sfp__opt *o, const char *group)
{
    sfp_setting_info out = {.key = o->name,
                            .group = *group ? group : NULL,
                            .type = SFP_TYPE_TEXT,
                            .scope = t == &run_table ? scope_of(o->name) : SFP_SCOPE_RUN,
                            .values = o->type == SFP_OPT_FLAG ? "on|off" : o->arg,
                            .default_value = o->default_value,
                            .help = o->help,
                            .name = o->word};
    const sfp__setting *s = t == &run_table ? sfp__settings_find(o->name) : NULL;
    if (o->type == SFP_OPT_FLAG) {
        out.type = SFP_TYPE_FLAG;
    } else if (o->type == SFP_OPT_CHOICE) {
        out.type = SFP_TYPE_CHOICE;
    } else if (o->type == SFP_OPT_INT) {
        out.type = SFP_TYPE_INT;
        out.min = (double)o->int_min;
        out.max = (double)o->int_max;
    } else if (o->type == SFP_OPT_REAL) {
        out.type = SFP_TYPE_REAL;
        out.min = o->real_min;
        out.max = o->real_max;
    } else if (s) {
        describe_learner(s, &out);
    }
    return out;
}

static void fill_table(table *t, size_t count, const sfp__opt *rows)
{
    const char *group = "";
    for (size_t i = 0; i < count && t->count < ROWS_MAX; i++) {
        if (rows[i].type == SFP_OPT_GROUP)
            group = rows[i].help;
        else if (strcmp(rows[i].name, "json") != 0) /* an option of the command only */
            t->rows[t->count++] = describe(t, &rows[i], group);
    }
}

static void fill_tables(void)
{
    fill_table(&run_table, sfp__run_table_count, sfp__run_table);
    fill_table(&pretrain_table, SFP_PRETRAIN_ROWS, sfp__pretrain_rows);
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
                        : sfp__args_init(&s->args, t->command, sfp__pretrain_rows, SFP_PRETRAIN_ROWS, err));
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

sfp_status sfp_settings_set(sfp_settings *s, const char *key, const char *value, sfp_error *err)
{
    IN_LIBRARY;
    SFP__REQUIRE(s && key && value, "settings, key and value");
    const sfp__opt *o = sfp__args_find(&s->args, key);
    if (o && sfp__api_pretrain_args(s))
        return sfp__args_set(&s->args, o->name, value, SFP_RANK_COMMAND_LINE, o->name, err);
    if (o)
        return sfp__run_set(&s->args, o->name, value, SFP_RANK_COMMAND_LINE, o->name, err);
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
    return s && key && sfp__args_find(&s->args, key) ? sfp__args_value(&s->args, key) : NULL;
}

/* ---------------------------------------------------------------------------------------------- on the way to an object */

/* The value of a setting of the engine, as text. */
static const char *engine_value(const sfp_engine *e, const char *key, char *buf, size_t size)
{
    if (strcmp(key, "backbone") == 0)
        return e->backbone;
    if (strcmp(key, "precision") == 0)
        return e->opt.precision == SFP_PRECISION_BF16 ? "bf16" : "f32";
    (void)snprintf(buf, size, "%d", strcmp(key, "threads") == 0 ? e->opt.threads : e->opt.image_size);
    return buf;
}

/* Is the value chosen when an engine is opened? A preset, too, says how to open one, but any other is fine. */
static bool engine_decides(const sfp__args *a, const char *key)
{
    return sfp__args_rank(a, key) <= SFP_RANK_PRESET ||
           (strcmp(key, "img-size") == 0 && strcmp(sfp__args_value(a, key), SFP_IMG_SIZE_AUTO) == 0);
}

/* Refuses settings of the engine that this engine was not opened with. */
static sfp_status check_engine(const sfp_engine *e, const sfp__args *a, sfp_error *err)
{
    for (size_t i = 0; i < a->count; i++) {
        const char *key = a->opts[i].name;
        char buf[32];
        if (a->opts[i].type == SFP_OPT_GROUP || scope_of(key) != SFP_SCOPE_ENGINE || engine_decides(a, key))
            continue;
        const char *own = engine_value(e, key, buf, sizeof buf), *value = sfp__args_value(a, key);
        char side[32];
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
        if (a->opts[i].type != SFP_OPT_GROUP && scope_of(key) == SFP_SCOPE_RUN && a->values[i].rank > SFP_RANK_PRESET)
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
    TRY(sfp__run_learner_options(a, &e->vit->config, true, &o, note, err));
    for (int i = 0; sfp__args_string(a, "method") && sfp__head_name(i); i++)
        if (strcmp(sfp__head_name(i), sfp__args_string(a, "method")) == 0)
            o.method = sfp__head_name(i); /* which outlives the settings */
    if (label_queue)
        *label_queue = (int)sfp__args_int(a, "label-queue");
    *out = o;
    return SFP_OK;
}

sfp_status sfp__api_run_options(const sfp_engine *e, const sfp_settings *settings, bool own_source, sfp__args *args,
                                sfp__run_options *out, char *note, sfp_error *err)
{
    OWNED_PTR(sfp_settings_free) sfp_settings *defaults = NULL;
    sfp__run_options o = sfp__run_options_defaults(e->vit, e->pool);
    *args = (sfp__args){0};
    if (!settings)
        TRY(sfp_settings_create(&defaults, err));
    const sfp__args *a = settings ? &settings->args : &defaults->args;
    if (settings && sfp__api_pretrain_args(settings))
        return sfp__fail(err, SFP_EINVAL, "settings are those of a pretraining, expected those of sfp_settings_create");
    TRY(check_engine(e, a, err));
    TRY(sfp__args_copy(a, args, err));
    for (int i = 0; sfp_settings_info(i); i++) {
        const char *key = sfp_settings_info(i)->key;
        char buf[32];
        if (scope_of(key) == SFP_SCOPE_ENGINE && engine_decides(a, key)) {
            sfp__opt_rank rank = sfp__args_rank(a, key);
            TRY(sfp__args_set(args, key, engine_value(e, key, buf, sizeof buf), rank > SFP_RANK_DEFAULT ? rank : SFP_RANK_DEFAULT,
                              key, err));
        }
    }
    TRY(sfp__run_options_read(args, own_source, &o, note, err));
    *out = o;
    return SFP_OK;
}
