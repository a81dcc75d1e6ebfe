/* The format of state files (state.h describes their contents): checksum, metadata, and what is read before or without a learner. */
#include "learner/state/state.h"

#include "base/mem.h"
#include "base/settings.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json_read.h"
#include "io/json_write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------ checksum */

/* The checksum of a state is that of a text with one line per metadata entry and one line per tensor. The line of a tensor has
 * its type, its shape and the checksum of its bytes. The lines are sorted by name, so that another program may write the same
 * state in another order. */

typedef struct content {
    const char *name;
    const char *value;         /* value of a metadata entry; NULL: a tensor */
    const sfp__tensor *tensor; /* NULL: a metadata entry */
} content;

static int compare_contents(const void *pa, const void *pb)
{
    const content *a = pa, *b = pb;
    if (!a->tensor != !b->tensor)
        return a->tensor ? 1 : -1;
    return strcmp(a->name, b->name);
}

static void put_content(sfp__text *to, const content *p)
{
    char shape[SFP__SHAPE_MAX], sum[SFP__CHECKSUM_MAX];
    sfp__text_json(to, p->name);
    sfp__text_put(to, ":");
    if (p->tensor) {
        sfp__safetensors_sum(NULL, 1, p->tensor, sum);
        sfp__text_printf(to, "%s %s %s", sfp__dtype_name(p->tensor->dtype),
                         sfp__shape_text(p->tensor->shape, p->tensor->ndim, shape, sizeof shape), sum);
    } else {
        sfp__text_json(to, p->value);
    }
    sfp__text_put(to, "\n");
}

sfp_status sfp__state_sum(size_t count, const sfp__tensor *tensors, size_t meta_count, const sfp__meta *meta,
                          char out[SFP__CHECKSUM_MAX], sfp_error *err)
{
    OWNED content *list = NULL;
    OWNED_BY(sfp__text_done) sfp__text text = {0};
    size_t n = 0;
    TRY(sfp__alloc(&list, count + meta_count, sizeof *list, err));
    for (size_t i = 0; i < meta_count; i++)
        if (strcmp(meta[i].key, SFP__CHECKSUM_KEY) != 0)
            list[n++] = (content){meta[i].key, meta[i].value, NULL};
    for (size_t i = 0; i < count; i++)
        list[n++] = (content){tensors[i].name, NULL, &tensors[i]};
    qsort(list, n, sizeof *list, compare_contents);
    for (size_t i = 0; i < n; i++)
        put_content(&text, &list[i]);
    TRY(sfp__check_memory(!text.failed, err));
    sfp__safetensors_sum(text.s, 0, NULL, out);
    return SFP_OK;
}

sfp_status sfp__state_check_sum(const sfp__tensor_file *st, sfp_error *err)
{
    const char *format = sfp__tensor_file_meta(st, "format"), *version = sfp__tensor_file_meta(st, "version");
    char now[16], sum[SFP__CHECKSUM_MAX];
    (void)snprintf(now, sizeof now, "%d", SFP__STATE_VERSION);
    bool is_state = format && strcmp(format, SFP__STATE_FORMAT) == 0 && version && strcmp(version, now) == 0;
    if (!is_state || !sfp__tensor_file_meta(st, SFP__CHECKSUM_KEY)) /* another version may compute the checksum differently */
        return SFP_OK;
    TRY(sfp__state_sum(st->count, st->tensors, st->meta_count, st->meta, sum, err));
    return sfp__safetensors_expect_sum(st, sum, err);
}

/* -------------------------------------------------------------------- saving */

/* Puts the labels of the classes seen as a JSON list. */
static void put_seen(sfp__file_metadata *m, int classes, const uint8_t *seen)
{
    sfp__text t = {0};
    const char *comma = "";
    sfp__text_put(&t, "[");
    for (int i = 0; i < classes; i++)
        if (seen[i]) {
            sfp__text_printf(&t, "%s%d", comma, i);
            comma = ",";
        }
    sfp__text_put(&t, "]");
    if (t.failed)
        m->failed = true;
    else
        sfp__metadata_put(m, "seen", t.s);
    sfp__text_done(&t);
}

void sfp__state_put_format(sfp__file_metadata *m, int classes, const uint8_t *seen)
{
    sfp__metadata_put(m, "format", SFP__STATE_FORMAT);
    sfp__metadata_put_int(m, "version", SFP__STATE_VERSION);
    sfp__metadata_put_int(m, "classes", classes);
    put_seen(m, classes, seen);
}

sfp_status sfp__state_write(const char *path, const sfp__tensor_list *tensors, sfp__file_metadata *meta, sfp_error *err)
{
    char sum[SFP__CHECKSUM_MAX] = "";
    TRY(meta->failed ? SFP_OK : sfp__state_sum(tensors->count, tensors->list, meta->count, meta->list, sum, err));
    sfp__metadata_put(meta, SFP__CHECKSUM_KEY, sum);
    TRY(sfp__check_memory(!meta->failed, err));
    return sfp__safetensors_write(path, tensors->list, tensors->count, meta->list, meta->count, err);
}

/* ------------------------------------------------------------------- reading */

sfp_status sfp__state_path(const char *given, char *buf, size_t size, sfp_error *err)
{
    struct stat st;
    int failed = stat(given, &st);
    if (failed && errno != ENOENT && errno != ENOTDIR)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", given);
    bool directory = !failed && S_ISDIR(st.st_mode);
    return sfp__path_print(buf, size, err, "%s%s", given, directory ? "/state.safetensors" : "");
}

sfp_status sfp__state_img_size(const char *path, int *out, sfp_error *err)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    TRY(sfp__safetensors_open(path, &st, err));
    TRY(sfp__state_check_sum(st, err));
    *out = sfp__metadata_img_size(st);
    return SFP_OK;
}

sfp_status sfp__state_precision(const char *path, sfp_precision *out, sfp_error *err)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    char found[SFP__NAME_MAX];
    TRY(sfp__safetensors_open(path, &st, err));
    const char *word = sfp__tensor_file_meta(st, "precision");
    int index = word ? sfp__word_index(SFP__PRECISIONS, word) : SFP_PRECISION_F32;
    if (index < 0 || index >= SFP_PRECISION_AUTO)
        return sfp__fail(err, SFP_EFORMAT, "%s: precision is '%s', expected f32, bf16 or int8", path,
                         sfp__printable(word, found, sizeof found));
    *out = (sfp_precision)index;
    return SFP_OK;
}

sfp_status sfp__state_backbone(const char *path, char *backbone, size_t size, sfp_error *err)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    TRY(sfp__safetensors_open(path, &st, err));
    const char *name = sfp__tensor_file_meta(st, "backbone-file");
    (void)snprintf(backbone, size, "%s", name ? name : "");
    return SFP_OK;
}

/* Returns the layer of "prompt.e_p_N", or of "prompt.g_p_N", which all samples share; -1: another name. */
static int pool_layer(const char *name, bool *shared)
{
    char *end = NULL;
    *shared = strncmp(name, "prompt.g_p_", 11) == 0;
    if (!*shared && strncmp(name, "prompt.e_p_", 11) != 0)
        return -1;
    long layer = strtol(name + 11, &end, 10);
    return end > name + 11 && *end == '\0' && layer >= 0 && layer < SFP__VIT_MAX_DEPTH ? (int)layer : -1;
}

bool sfp__state_pool_read(const sfp__tensor_file *st, sfp__state_pool *out)
{
    sfp__state_pool p = {.pool = -1, .first_layer = SFP__VIT_MAX_DEPTH, .last_layer = -1};
    for (size_t i = 0; i < st->count; i++) {
        const sfp__tensor *t = &st->tensors[i];
        bool shared;
        int layer = pool_layer(t->name, &shared);
        if (layer < 0 || t->ndim != 3)
            continue;
        p.first_layer = layer < p.first_layer ? layer : p.first_layer;
        p.last_layer = layer > p.last_layer ? layer : p.last_layer;
        if (shared || p.pool >= 0)
            continue;
        p.pool = t->shape[0];
        p.length = t->shape[1];
        p.width = t->shape[2];
    }
    if (p.pool >= 0)
        *out = p;
    return p.pool >= 0;
}

sfp_status sfp__state_check_pool(sfp__fp *fp, const sfp__tensor_file *st, sfp_error *err)
{
    const sfp__fp_options *o = &fp->opt;
    const char *path = st->path;
    sfp__state_pool p;
    if (!sfp__state_pool_read(st, &p))
        return SFP_OK; /* the first missing tensor is reported later */
    const struct {
        const char *name;
        int64_t was, now;
    } list[] = {{"width of the backbone", p.width, fp->linear_w.shape[1]},
                {"pool", p.pool, o->pool},
                {"prompt-length", p.length, o->length}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].was != list[i].now)
            return sfp__fail(err, SFP_EINVAL, "%s: %s is %lld, expected %lld, the current setting", path, list[i].name,
                             (long long)list[i].was, (long long)list[i].now);
    if (p.first_layer != o->first_layer || p.last_layer != o->last_layer)
        return sfp__fail(err, SFP_EINVAL, "%s: prompt-layers is %d-%d, expected %d-%d, the current setting", path, p.first_layer,
                         p.last_layer, o->first_layer, o->last_layer);
    return SFP_OK;
}

sfp_status sfp__state_components(const sfp__learner *l, const sfp__tensor_file *st, sfp__saved_components *out, sfp_error *err)
{
    const sfp__fp_options *o = &l->fp->opt;
    long long task = 0, frozen_end = 0, active_end = 0;
    int first = 0, end = 0;
    if (!l->fixed)
        TRY(sfp__metadata_int(st, "task", 0, o->tasks > 0 ? o->tasks - 1 : 0, &task, err));
    if (o->tasks > 0 && !sfp__tensor_file_meta(st, "open")) {
        sfp__fp_task_components(o, (int)task, &first, &end);
        frozen_end = first;
        active_end = end;
    } else {
        TRY(sfp__metadata_int(st, "open", 1, o->pool, &active_end, err));
        TRY(sfp__metadata_int(st, "start", 0, active_end - 1, &frozen_end, err));
    }
    *out = (sfp__saved_components){(int)task, (int)frozen_end, (int)active_end};
    return SFP_OK;
}

sfp_status sfp__state_seen(const sfp__tensor_file *st, int classes, bool default_value, uint8_t **out, sfp_error *err)
{
    const char *text = sfp__tensor_file_meta(st, "seen"), *path = st->path;
    OWNED uint8_t *seen = NULL;
    OWNED sfp__json_value *list = NULL;
    if (text && sfp__json_parse(path, text, strlen(text), &list, NULL) == SFP_ENOMEM)
        return sfp__fail_nomem(err);
    if (classes > 0)
        TRY(sfp__alloc(&seen, (size_t)classes, 1, err));
    const sfp__tensor *saved = sfp__tensor_file_find(st, "seen"); /* a checkpoint has one */
    const int64_t count = classes;
    if (saved && saved->dtype == SFP__DTYPE_U8)
        TRY(sfp__tensor_expect(path, saved, &count, 1, err));
    for (int c = 0; !text && c < classes; c++)
        seen[c] = saved && saved->dtype == SFP__DTYPE_U8 ? ((const uint8_t *)saved->data)[c] != 0 : default_value;
    if (text && !sfp__json_is(list, SFP__JSON_ARRAY))
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata 'seen' is not a JSON list", path);
    for (size_t i = 0; i < sfp__json_size(list); i++) {
        const sfp__json_value *v = sfp__json_at(list, i);
        long long label = sfp__json_is(v, SFP__JSON_INTEGER) ? sfp__json_integer(v) : -1;
        if (!seen || label < 0 || label >= classes)
            return sfp__fail(err, SFP_EFORMAT, "%s: metadata 'seen': entry %zu is not a class, expected 0 to %d", path, i,
                             classes - 1);
        seen[label] = 1;
    }
    *out = TAKE(seen);
    return SFP_OK;
}
