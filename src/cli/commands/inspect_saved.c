#include "cli/commands/inspect_saved.h"

#include "base/settings.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "learner/state/state.h"
#include "pretrain/state.h"

#include <stdio.h>
#include <string.h>

enum { NAMES_SHOWN = 20 };

/* -------------------------------------------------------------------- reading */

/* A setting: plain in a state, apart from the rest in a checkpoint. */
static const char *setting(const sfp_inspect_saved *s, const char *name)
{
    char key[64];
    (void)snprintf(key, sizeof key, "setting.%s", name);
    const char *value = sfp__tensor_file_meta(s->st, key);
    return value ? value : sfp__tensor_file_meta(s->st, name);
}

static bool number(const sfp_inspect_saved *s, const char *key, int64_t *out)
{
    const char *text = sfp__tensor_file_meta(s->st, key);
    return text && sfp__parse_int(text, out) && *out >= 0;
}

static bool is(const char *text, const char *word)
{
    return text && strcmp(text, word) == 0;
}

/* "WORDS (FORMAT, version N)" */
static void name_it(sfp_inspect_saved *s, const char *kind, const char *words, const char *method)
{
    const char *format = sfp__tensor_file_meta(s->st, "format"), *version = sfp__tensor_file_meta(s->st, "version");
    char shown[3][48];
    s->kind = kind;
    s->method = method;
    int n = snprintf(s->what, sizeof s->what, "%s%s%s", words, method ? " of method " : "",
                     method ? sfp__printable(method, shown[0], sizeof shown[0]) : "");
    if (format && version)
        (void)snprintf(s->what + n, sizeof s->what - (size_t)n, " (%s, version %s)",
                       sfp__printable(format, shown[2], sizeof shown[2]), sfp__printable(version, shown[1], sizeof shown[1]));
}

static void recognise(sfp_inspect_saved *s)
{
    const char *format = sfp__tensor_file_meta(s->st, "format"), *kind = sfp__tensor_file_meta(s->st, "kind"),
               *method = sfp__tensor_file_meta(s->st, "method");
    if (is(format, SFP_STATE_FORMAT))
        name_it(s, "state", method ? "the state" : "a learner's state", method);
    else if (is(format, SFP_CHECKPOINT_FORMAT))
        name_it(s, "checkpoint", method ? "the checkpoint" : "a learner's checkpoint", method);
    else if (is(kind, SFP_PRETRAIN_KIND))
        name_it(s, "pretrain-checkpoint", "a checkpoint of pretraining", NULL);
    else if (!format && s->has_pool && sfp__tensor_file_find(s->st, "last.weight"))
        name_it(s, "state", "a learner's state without settings", NULL);
}

/* Of a tensor that has a row for each: -1 when there is none. */
static int64_t rows_of(const sfp_inspect_saved *s, const char *name)
{
    const sfp_tensor *t = sfp__tensor_file_find(s->st, name);
    return t && t->ndim > 0 ? t->shape[0] : -1;
}

static void count_classes(sfp_inspect_saved *s)
{
    const sfp_tensor *flags = sfp__tensor_file_find(s->st, "seen");
    uint8_t *seen = NULL;
    s->seen = -1;
    s->classes = rows_of(s, "last.weight");
    if (s->classes < 0 && !number(s, "classes", &s->classes))
        s->classes = flags ? rows_of(s, "seen") : -1;
    if (flags && flags->dtype == SFP_DTYPE_U8) {
        s->seen = 0;
        for (size_t i = 0; i < flags->count; i++)
            s->seen += ((const uint8_t *)flags->data)[i] != 0;
    } else if (sfp__tensor_file_meta(s->st, "seen") && s->classes >= 0 && s->classes <= SFP_LEARNER_MAX_CLASSES &&
               !sfp__state_seen(s->st, (int)s->classes, false, &seen, NULL)) {
        s->seen = 0;
        for (int64_t i = 0; i < s->classes; i++)
            s->seen += seen[i];
    }
    sfp__free(seen);
}

void sfp__inspect_saved_init(const sfp_tensor_file *st, sfp_inspect_saved *s)
{
    *s = (sfp_inspect_saved){.st = st, .slots = -1};
    s->has_pool = sfp__state_pool(st, &s->pool);
    recognise(s);
    if (!s->what[0])
        return;
    s->damaged = sfp__state_check_sum(st, NULL) == SFP_EFORMAT;
    count_classes(s);
    s->slots = rows_of(s, "buffer.label");
    (void)sfp__saved_names_read(st, SFP_LEARNER_MAX_CLASSES, &s->names, NULL);
}

void sfp__inspect_saved_done(sfp_inspect_saved *s)
{
    sfp__saved_names_done(&s->names);
    *s = (sfp_inspect_saved){0};
}

/* ----------------------------------------------------------------------- text */

/* " WORD VALUE", where the file tells it. */
static void put_setting(const sfp_inspect_saved *s, const char *before, const char *name)
{
    const char *value = setting(s, name);
    if (!value)
        return;
    (void)printf("%s%s ", before, name);
    sfp__put_text(stdout, value, 0);
}

static void put_backbone(const sfp_inspect_saved *s)
{
    const char *file = sfp__tensor_file_meta(s->st, "backbone-file"), *sizes = sfp__tensor_file_meta(s->st, "backbone-sizes");
    if (!file)
        return;
    (void)printf("learned on    ");
    sfp__put_text(stdout, file, 0);
    if (sizes) {
        (void)printf(" (");
        sfp__put_text(stdout, sizes, 0);
        (void)printf(")");
    }
    (void)printf("\n");
}

static void put_pool(const sfp_inspect_saved *s)
{
    int64_t open;
    if (!s->has_pool)
        return;
    (void)printf("fingerprints  pool %lld", (long long)s->pool.pool);
    if (number(s, "open", &open))
        (void)printf(" (%lld open)", (long long)open);
    (void)printf(", prompt-length %lld, prompt-layers %d-%d, width %lld", (long long)s->pool.length, s->pool.first_layer,
                 s->pool.last_layer, (long long)s->pool.width);
    put_setting(s, ", ", "pool-kind");
    put_setting(s, ", ", "attune");
    (void)printf("\n");
}

static void put_tasks(const sfp_inspect_saved *s)
{
    const char *tasks = setting(s, "tasks");
    int64_t task;
    if (!tasks)
        return;
    (void)printf("tasks         ");
    sfp__put_text(stdout, tasks, 0);
    if (!is(tasks, "free") && number(s, "task", &task) && task < INT64_MAX)
        (void)printf(", at task %lld", (long long)task + 1);
    (void)printf("\n");
}

static void put_classes(const sfp_inspect_saved *s)
{
    if (s->classes < 0)
        return;
    (void)printf("classes       %lld", (long long)s->classes);
    if (s->seen >= 0)
        (void)printf(", %lld seen", (long long)s->seen);
    for (int i = 0; i < s->names.count && i < NAMES_SHOWN; i++) {
        (void)printf(i ? "; " : ": ");
        sfp__put_text(stdout, s->names.name[i] ? s->names.name[i] : "-", 0);
    }
    if (s->names.count > NAMES_SHOWN)
        (void)printf("; and %d more", s->names.count - NAMES_SHOWN);
    (void)printf("\n");
}

static void put_count(const sfp_inspect_saved *s, const char *label, const char *key)
{
    int64_t n;
    if (number(s, key, &n))
        (void)printf("%-13s %lld\n", label, (long long)n);
}

void sfp__inspect_saved_text(const sfp_inspect_saved *s)
{
    (void)printf("recognised    %s\n", s->what);
    if (s->damaged)
        (void)printf("damaged       its checksum is not that of what it holds\n");
    put_backbone(s);
    put_pool(s);
    put_tasks(s);
    if (!s->method && setting(s, "head")) {
        (void)printf("head          ");
        sfp__put_text(stdout, setting(s, "head"), 0);
        (void)printf("\n");
    }
    put_classes(s);
    if (s->slots >= 0)
        (void)printf("buffer        %lld samples\n", (long long)s->slots);
    put_count(s, "timestamps", "timestamps");
    put_count(s, "steps", "step");
}

/* ----------------------------------------------------------------------- json */

static void json_setting(sfp_json *j, const sfp_inspect_saved *s, const char *key, const char *name)
{
    if (setting(s, name))
        sfp__json_string(j, key, setting(s, name));
}

static void json_count(sfp_json *j, const sfp_inspect_saved *s, const char *key)
{
    int64_t n;
    if (number(s, key, &n))
        sfp__json_int(j, key, n);
}

static void json_pool(sfp_json *j, const sfp_inspect_saved *s)
{
    if (!s->has_pool)
        return;
    sfp__json_int(j, "pool", s->pool.pool);
    json_count(j, s, "open");
    sfp__json_int(j, "prompt_length", s->pool.length);
    sfp__json_array(j, "prompt_layers");
    for (int l = s->pool.first_layer; l <= s->pool.last_layer; l++)
        sfp__json_int(j, NULL, l);
    sfp__json_end(j);
    sfp__json_int(j, "width", s->pool.width);
    json_setting(j, s, "pool_kind", "pool-kind");
}

void sfp__inspect_saved_json(sfp_json *j, const sfp_inspect_saved *s)
{
    sfp__json_string(j, "recognised", s->what);
    sfp__json_object(j, "saved");
    sfp__json_string(j, "kind", s->kind);
    if (s->damaged)
        sfp__json_bool(j, "damaged", true);
    if (s->method)
        sfp__json_string(j, "method", s->method);
    json_setting(j, s, "backbone_file", "backbone-file");
    json_setting(j, s, "backbone_sizes", "backbone-sizes");
    json_pool(j, s);
    json_setting(j, s, "tasks", "tasks");
    json_count(j, s, "task");
    if (!s->method)
        json_setting(j, s, "head", "head");
    if (s->classes >= 0)
        sfp__json_int(j, "classes", s->classes);
    if (s->seen >= 0)
        sfp__json_int(j, "seen", s->seen);
    if (s->names.given) {
        sfp__json_array(j, "class_names");
        for (int i = 0; i < s->names.count; i++)
            sfp__json_string(j, NULL, s->names.name[i]);
        sfp__json_end(j);
    }
    if (s->slots >= 0)
        sfp__json_int(j, "buffered", s->slots);
    json_count(j, s, "timestamps");
    json_count(j, s, "step");
    sfp__json_end(j);
}
