#include "cli/commands/inspect_saved.h"

#include "base/settings.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "learner/state/state.h"
#include "pretrain/pretrain_internal.h"

#include <stdio.h>
#include <string.h>

enum { NAMES_SHOWN = 20 };

/* -------------------------------------------------------------------- reading */

/* Returns the value of a setting, whose metadata key is "NAME" in a state and "setting.NAME" in a checkpoint. */
static const char *setting(const sfp__inspect_saved *s, const char *name)
{
    char key[64];
    (void)snprintf(key, sizeof key, "setting.%s", name);
    const char *value = sfp__tensor_file_meta(s->st, key);
    return value ? value : sfp__tensor_file_meta(s->st, name);
}

static bool read_count(const sfp__inspect_saved *s, const char *key, int64_t *out)
{
    const char *text = sfp__tensor_file_meta(s->st, key);
    return text && sfp__parse_int(text, out) && *out >= 0;
}

static bool equals(const char *text, const char *word)
{
    return text && strcmp(text, word) == 0;
}

/* Sets s->what to "WORDS of method METHOD (FORMAT, version N)". */
static void set_description(sfp__inspect_saved *s, const char *kind, const char *words, const char *method)
{
    const char *format = sfp__tensor_file_meta(s->st, "format"), *version = sfp__tensor_file_meta(s->st, "version");
    char setting_text[3][48];
    s->kind = kind;
    s->method = method;
    int n = snprintf(s->what, sizeof s->what, "%s%s%s", words, method ? " of method " : "",
                     method ? sfp__printable(method, setting_text[0], sizeof setting_text[0]) : "");
    if (format && version)
        (void)snprintf(s->what + n, sizeof s->what - (size_t)n, " (%s, version %s)",
                       sfp__printable(format, setting_text[2], sizeof setting_text[2]),
                       sfp__printable(version, setting_text[1], sizeof setting_text[1]));
}

static void recognise(sfp__inspect_saved *s)
{
    const char *format = sfp__tensor_file_meta(s->st, "format"), *kind = sfp__tensor_file_meta(s->st, "kind"),
               *method = sfp__tensor_file_meta(s->st, "method");
    if (equals(format, SFP__STATE_FORMAT))
        set_description(s, "state", method ? "the state" : "a learner's state", method);
    else if (equals(format, SFP__CHECKPOINT_FORMAT))
        set_description(s, "checkpoint", method ? "the checkpoint" : "a learner's checkpoint", method);
    else if (equals(kind, SFP__PRETRAIN_KIND))
        set_description(s, "pretrain-checkpoint", "a checkpoint of pretraining", NULL);
    else if (!format && s->has_pool && sfp__tensor_file_find(s->st, "last.weight"))
        set_description(s, "state", "a learner's state without settings", NULL);
}

/* Returns the number of rows of a tensor; -1: no such tensor. */
static int64_t rows_of(const sfp__inspect_saved *s, const char *name)
{
    const sfp__tensor *t = sfp__tensor_file_find(s->st, name);
    return t && t->ndim > 0 ? t->shape[0] : -1;
}

static sfp_status count_classes(sfp__inspect_saved *s, sfp_error *err)
{
    const sfp__tensor *flags = sfp__tensor_file_find(s->st, "seen");
    OWNED uint8_t *seen = NULL;
    sfp_error why = {0};
    s->seen = -1;
    s->classes = rows_of(s, "last.weight");
    if (s->classes < 0 && !read_count(s, "classes", &s->classes))
        s->classes = flags ? rows_of(s, "seen") : -1;
    if (flags && flags->dtype == SFP__DTYPE_U8) {
        s->seen = 0;
        for (size_t i = 0; i < flags->count; i++)
            s->seen += ((const uint8_t *)flags->data)[i] != 0;
    } else if (sfp__tensor_file_meta(s->st, "seen") && s->classes >= 0 && s->classes <= SFP__LEARNER_MAX_CLASSES &&
               !sfp__state_seen(s->st, (int)s->classes, false, &seen, &why)) {
        s->seen = 0;
        for (int64_t i = 0; i < s->classes; i++)
            s->seen += seen[i];
    }
    return why.status == SFP_ENOMEM ? sfp__fail(err, SFP_ENOMEM, "%s", why.message) : SFP_OK;
}

sfp_status sfp__inspect_saved_init(const sfp__tensor_file *st, sfp__inspect_saved *s, sfp_error *err)
{
    sfp_error why = {0};
    *s = (sfp__inspect_saved){.st = st, .slots = -1};
    s->has_pool = sfp__state_pool_read(st, &s->pool);
    recognise(s);
    if (!s->what[0])
        return SFP_OK;
    s->damaged = sfp__state_check_sum(st, NULL) == SFP_EFORMAT;
    TRY(count_classes(s, err));
    s->slots = rows_of(s, "buffer.label");
    /* damaged names are not shown */
    sfp_status status = sfp__metadata_names_read(st, SFP__LEARNER_MAX_CLASSES, &s->names, &why);
    return status == SFP_ENOMEM ? sfp__fail(err, status, "%s", why.message) : SFP_OK;
}

void sfp__inspect_saved_done(sfp__inspect_saved *s)
{
    sfp__metadata_names_done(&s->names);
    *s = (sfp__inspect_saved){0};
}

/* --------------------------------------------------------------------- output */

/* Writes a setting, if the file has it, to the JSON object. */
static void put_setting(sfp__out *o, const sfp__inspect_saved *s, const char *key, const char *name)
{
    if (setting(s, name))
        sfp__json_string(&o->json, key, setting(s, name));
}

static const char *setting_text(const sfp__inspect_saved *s, const char *name, char *buf, size_t size)
{
    const char *value = setting(s, name);
    (void)snprintf(buf, size, "%s%s%s%s", value ? ", " : "", value ? name : "", value ? " " : "", value ? value : "");
    return buf;
}

static void put_count(sfp__out *o, const sfp__inspect_saved *s, const char *key, const char *label)
{
    int64_t n;
    if (!read_count(s, key, &n))
        return;
    sfp__json_int(&o->json, key, n);
    if (label)
        sfp__out_row(o, label, "%lld", (long long)n);
}

static void put_backbone(sfp__out *o, const sfp__inspect_saved *s)
{
    const char *file = sfp__tensor_file_meta(s->st, "backbone-file"), *sizes = sfp__tensor_file_meta(s->st, "backbone-sizes");
    put_setting(o, s, "backbone_file", "backbone-file");
    put_setting(o, s, "backbone_sizes", "backbone-sizes");
    if (file)
        sfp__out_row(o, "backbone", "%s%s%s%s", file, sizes ? " (" : "", sizes ? sizes : "", sizes ? ")" : "");
}

static void put_pool(sfp__out *o, const sfp__inspect_saved *s)
{
    char used[40] = "", kind[256], attune[256];
    int64_t n;
    if (!s->has_pool)
        return;
    if (read_count(s, "open", &n))
        (void)snprintf(used, sizeof used, " (%lld used)", (long long)n);
    sfp__out_row(o, "fingerprints", "pool %lld%s, prompt-length %lld, prompt-layers %d-%d, width %lld%s%s",
                 (long long)s->pool.pool, used, (long long)s->pool.length, s->pool.first_layer, s->pool.last_layer,
                 (long long)s->pool.width, setting_text(s, "pool-kind", kind, sizeof kind),
                 setting_text(s, "attune", attune, sizeof attune));
    sfp__json_int(&o->json, "pool", s->pool.pool);
    put_count(o, s, "open", NULL);
    sfp__json_int(&o->json, "prompt_length", s->pool.length);
    sfp__json_array(&o->json, "prompt_layers");
    for (int l = s->pool.first_layer; l <= s->pool.last_layer; l++)
        sfp__json_int(&o->json, NULL, l);
    sfp__json_end(&o->json);
    sfp__json_int(&o->json, "width", s->pool.width);
    put_setting(o, s, "pool_kind", "pool-kind");
}

static void put_tasks(sfp__out *o, const sfp__inspect_saved *s)
{
    const char *tasks = setting(s, "tasks");
    char at[48] = "";
    int64_t task;
    if (tasks && !equals(tasks, "free") && read_count(s, "task", &task) && task < INT64_MAX)
        (void)snprintf(at, sizeof at, ", at task %lld", (long long)task + 1);
    if (tasks)
        sfp__out_row(o, "tasks", "%s%s", tasks, at);
    put_setting(o, s, "tasks", "tasks");
    put_count(o, s, "task", NULL);
}

static void put_classes(sfp__out *o, const sfp__inspect_saved *s)
{
    if (s->classes >= 0) {
        sfp__json_int(&o->json, "classes", s->classes);
        sfp__out_printf(o, "classes       %lld", (long long)s->classes);
        if (s->seen >= 0)
            sfp__out_printf(o, ", %lld seen", (long long)s->seen);
        for (int i = 0; o->text && i < s->names.count && i < NAMES_SHOWN; i++) {
            (void)printf(i ? "; " : ": ");
            sfp__put_text(stdout, s->names.name[i] ? s->names.name[i] : "-", 0);
        }
        if (s->names.count > NAMES_SHOWN)
            sfp__out_printf(o, "; and %d more", s->names.count - NAMES_SHOWN);
        sfp__out_printf(o, "\n");
    }
    if (s->seen >= 0)
        sfp__json_int(&o->json, "seen", s->seen);
    if (s->names.given) {
        sfp__json_array(&o->json, "class_names");
        for (int i = 0; i < s->names.count; i++)
            sfp__json_string(&o->json, NULL, s->names.name[i]);
        sfp__json_end(&o->json);
    }
}

void sfp__inspect_saved_print(sfp__out *o, const sfp__inspect_saved *s)
{
    sfp__out_string(o, "recognised", "recognised", s->what);
    sfp__json_object(&o->json, "saved");
    sfp__json_string(&o->json, "kind", s->kind);
    if (s->damaged) {
        sfp__json_bool(&o->json, "damaged", true);
        sfp__out_row(o, "damaged", "the checksum does not match the contents");
    }
    if (s->method)
        sfp__json_string(&o->json, "method", s->method);
    put_backbone(o, s);
    put_pool(o, s);
    put_tasks(o, s);
    put_classes(o, s);
    if (s->slots >= 0) {
        sfp__json_int(&o->json, "buffered", s->slots);
        sfp__out_row(o, "buffer", "%lld samples", (long long)s->slots);
    }
    put_count(o, s, "timestamps", "timestamps");
    put_count(o, s, "step", "steps");
    sfp__json_end(&o->json);
}
