/* Writes state files, and reads them into a learner (state.h describes their contents). */
#include "learner/state/state.h"

#include "base/mem.h"
#include "io/json_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    char shape[SFP_SHAPE_MAX], sum[SFP_CHECKSUM_MAX];
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
                          char out[SFP_CHECKSUM_MAX], sfp_error *err)
{
    OWNED content *list = NULL;
    OWNED_BY(sfp__text_done) sfp__text text = {0};
    size_t n = 0;
    TRY(sfp__alloc(&list, count + meta_count, sizeof *list, err));
    for (size_t i = 0; i < meta_count; i++)
        if (strcmp(meta[i].key, SFP_CHECKSUM_KEY) != 0)
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
    char now[16], sum[SFP_CHECKSUM_MAX];
    (void)snprintf(now, sizeof now, "%d", SFP_STATE_VERSION);
    bool is_state = format && strcmp(format, SFP_STATE_FORMAT) == 0 && version && strcmp(version, now) == 0;
    if (!is_state || !sfp__tensor_file_meta(st, SFP_CHECKSUM_KEY)) /* another version may compute the checksum differently */
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

/* Puts the metadata that every state has. */
static void put_common(sfp__file_metadata *m, int classes, const uint8_t *seen, const sfp__vit *vit)
{
    sfp__metadata_put(m, "format", SFP_STATE_FORMAT);
    sfp__metadata_put_int(m, "version", SFP_STATE_VERSION);
    sfp__metadata_put_int(m, "classes", classes);
    put_seen(m, classes, seen);
    sfp__metadata_put_backbone(m, vit);
}

/* Writes a state. The checksum is the last metadata entry. */
static sfp_status write_state(const char *path, const sfp__tensor_list *tensors, sfp__file_metadata *meta, sfp_error *err)
{
    char sum[SFP_CHECKSUM_MAX] = "";
    TRY(meta->failed ? SFP_OK : sfp__state_sum(tensors->count, tensors->list, meta->count, meta->list, sum, err));
    sfp__metadata_put(meta, SFP_CHECKSUM_KEY, sum);
    TRY(sfp__check_memory(!meta->failed, err));
    return sfp__safetensors_write(path, tensors->list, tensors->count, meta->list, meta->count, err);
}

/* Visits the data of the heads that prediction needs: weights and members of head mix, or the head of a method. */
static sfp_status visit_heads(sfp__learner *l, const sfp__visitor *with, sfp_error *err)
{
    double mix[SFP_STATE_MIX] = {l->mix.count};
    memcpy(mix + 1, l->mix.loss, sizeof l->mix.loss);
    if (l->heads[1])
        TRY(sfp__visit_values(with, SFP_STATE_HEAD "mix", SFP_DTYPE_F64, SFP_STATE_MIX, mix, err));
    for (int i = 0; i < SFP_HEAD_MEMBERS; i++) {
        char prefix[32];
        sfp__visitor v = *with;
        if (!l->heads[i])
            continue;
        (void)snprintf(prefix, sizeof prefix, SFP_STATE_HEAD "%s", sfp__head_kind_name(l->heads[i]));
        v.prefix = prefix;
        v.inference_only = true;
        TRY(sfp__head_visit(l->heads[i], &v, err));
    }
    return SFP_OK;
}

sfp_status sfp__learner_save(sfp__learner *l, const char *path, sfp_error *err)
{
    OWNED_BY(sfp__tensor_list_done) sfp__tensor_list tensors = {0};
    OWNED_BY(sfp__metadata_done) sfp__file_metadata meta = {0};
    const sfp__visitor v = sfp__visit_writing(&tensors);
    int count = 0;
    sfp__param **params = l->fp ? sfp__fp_params(l->fp, &count) : NULL;
    pthread_mutex_lock(&l->head_lock); /* a predictor may be solving */
    sfp_status status = visit_heads(l, &v, err);
    pthread_mutex_unlock(&l->head_lock);
    TRY(status); /* heads come first: wider types first, so that each tensor is aligned */
    for (int i = 0; i < count; i++)
        TRY(sfp__visit(&v, params[i]->name, SFP_DTYPE_F32, params[i]->ndim, params[i]->shape, params[i]->data, err));
    put_common(&meta, sfp__learner_classes(l), l->classes.seen, l->vit);
    sfp__metadata_put_common(&meta, l);
    sfp__metadata_put_settings(&meta, l, false);
    return write_state(path, &tensors, &meta, err);
}

/* ------------------------------------------------------------------- loading */

static sfp_status check_kind(const sfp__learner *l, const sfp__tensor_file *st, sfp_error *err)
{
    const char *method = sfp__tensor_file_meta(st, "method");
    char name[SFP_NAME_MAX];
    TRY(sfp__metadata_check_format(st, SFP_STATE_FORMAT, SFP_STATE_VERSION, false, err));
    TRY(sfp__state_check_sum(st, err));
    if (method)
        return sfp__fail(err, SFP_EINVAL, "%s: method of the state is %s, expected none: a state of fingerprints", st->path,
                         sfp__printable(method, name, sizeof name));
    return sfp__metadata_check_backbone(st, l->vit, err);
}

sfp_status sfp__learner_load(sfp__learner *l, const char *path, sfp_error *err)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    OWNED_BY(sfp__metadata_names_done) sfp__saved_names names = {0};
    OWNED float *values = NULL; /* all parameters in the order of sfp__fp_params */
    OWNED uint8_t *seen = NULL;
    sfp__saved_components components = {0};
    int classes = 0;
    if (l->opt.method)
        return sfp__fail(err, SFP_EINVAL, "%s: method %s cannot start from a state, expected fingerprints", path, l->opt.method);
    TRY(sfp__safetensors_open(path, &st, err));
    TRY(check_kind(l, st, err));
    TRY(sfp__metadata_check_settings(l, st, false, err));
    TRY(sfp__state_check_pool(l->fp, st, err));
    TRY(sfp__metadata_classes(l, st, sfp__learner_classes(l), &classes, err));
    TRY(sfp__state_values(l->fp, st, classes, &values, err));
    TRY(sfp__state_components(&l->fp->opt, st, &components, err));
    TRY(sfp__state_seen(st, classes, false, &seen, err));
    TRY(sfp__metadata_names_read(st, l->opt.fp.tasks > 0 ? classes : SFP_LEARNER_MAX_CLASSES, &names, err));
    TRY(sfp__metadata_prepare(l, path, &components, classes, names.count, err));
    sfp__state_put_values(l->fp, values); /* cannot fail from here on */
    memset(l->classes.seen, 0, (size_t)l->classes.capacity);
    if (classes > 0)
        memcpy(l->classes.seen, seen, (size_t)classes);
    sfp__metadata_names_commit(&names, l);
    return sfp__learner_publish(l, err);
}
