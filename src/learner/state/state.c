/* Writes state files, and reads them into a learner (state.h describes their contents). */
#include "learner/state/state.h"

#include "base/mem.h"
#include "io/json_write.h"
#include "learner/state/saved_sums.h"

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

void sfp__state_put_format(sfp__file_metadata *m, int classes, const uint8_t *seen)
{
    sfp__metadata_put(m, "format", SFP_STATE_FORMAT);
    sfp__metadata_put_int(m, "version", SFP_STATE_VERSION);
    sfp__metadata_put_int(m, "classes", classes);
    put_seen(m, classes, seen);
}

sfp_status sfp__state_write(const char *path, const sfp__tensor_list *tensors, sfp__file_metadata *meta, sfp_error *err)
{
    char sum[SFP_CHECKSUM_MAX] = "";
    TRY(meta->failed ? SFP_OK : sfp__state_sum(tensors->count, tensors->list, meta->count, meta->list, sum, err));
    sfp__metadata_put(meta, SFP_CHECKSUM_KEY, sum);
    TRY(sfp__check_memory(!meta->failed, err));
    return sfp__safetensors_write(path, tensors->list, tensors->count, meta->list, meta->count, err);
}

sfp_status sfp__learner_save(sfp__learner *l, const char *path, sfp_error *err)
{
    OWNED_BY(sfp__tensor_list_done) sfp__tensor_list tensors = {0};
    OWNED_BY(sfp__metadata_done) sfp__file_metadata meta = {0};
    sfp__visitor v = sfp__visit_writing(&tensors);
    int count = 0;
    v.inference_only = true;
    v.sums = l->head && sfp__head_has_sums(l->head) && sfp__head_sums_bytes(l->head) <= SFP_STATE_SUMS_MAX;
    sfp__param **params = l->fp ? sfp__fp_params(l->fp, &count) : NULL;
    pthread_mutex_lock(&l->head_lock); /* a predictor may be solving */
    sfp_status status = sfp__head_visit_named(l->head, &v, err);
    pthread_mutex_unlock(&l->head_lock);
    TRY(status); /* the head comes first: wider types first, so that each tensor is aligned */
    for (int i = 0; i < count; i++)
        TRY(sfp__visit(&v, params[i]->name, SFP_DTYPE_F32, params[i]->ndim, params[i]->shape, params[i]->data, err));
    sfp__state_put_format(&meta, sfp__learner_classes(l), l->classes.seen);
    sfp__metadata_put_backbone(&meta, l->vit);
    sfp__metadata_put_common(&meta, l);
    sfp__metadata_put_settings(&meta, l, false);
    return sfp__state_write(path, &tensors, &meta, err);
}

/* ------------------------------------------------------------------- loading */

static sfp_status check_kind(const sfp__learner *l, const sfp__tensor_file *st, sfp_error *err)
{
    const char *method = sfp__tensor_file_meta(st, "method");
    char name[SFP_NAME_MAX];
    if (method)
        return sfp__fail(err, SFP_EINVAL, "%s: method of the state is %s, expected none: a state of fingerprints", st->path,
                         sfp__printable(method, name, sizeof name));
    return sfp__metadata_check_backbone(st, l->vit, err);
}

/* What a learner takes from a state or a checkpoint. */
typedef struct learned {
    uint8_t *bytes; /* contents of a checkpoint */
    sfp__tensor_file *st;
    bool checkpoint;
    int classes;
    float *values; /* all parameters in the order of sfp__fp_params */
    uint8_t *seen;
    sfp__saved_components components;
    sfp__saved_names names;
} learned;

static void learned_done(learned *f)
{
    sfp__metadata_names_done(&f->names);
    sfp__free(f->seen);
    sfp__free(f->values);
    sfp__tensor_file_close(f->st);
    sfp__free(f->bytes);
}

/* Opens the file and checks its kind and settings. */
static sfp_status open_learned(const sfp__learner *l, const char *path, learned *f, sfp_error *err)
{
    TRY(sfp__safetensors_open(path, &f->st, err));
    const char *format = sfp__tensor_file_meta(f->st, "format");
    f->checkpoint = format && strcmp(format, SFP_CHECKPOINT_FORMAT) == 0;
    if (!f->checkpoint) {
        TRY(sfp__metadata_check_format(f->st, SFP_STATE_FORMAT, SFP_STATE_VERSION, false, err));
        TRY(sfp__state_check_sum(f->st, err));
        TRY(check_kind(l, f->st, err));
        return sfp__metadata_check_settings(l, f->st, false, err);
    }
    sfp__tensor_file_close(f->st);
    f->st = NULL;
    TRY(sfp__checkpoint_open(path, &f->bytes, &f->st, err));
    TRY(check_kind(l, f->st, err));
    return sfp__metadata_check_learned(l, f->st, err);
}

/* The part of a load that cannot fail. */
static void take(sfp__learner *l, learned *f)
{
    sfp__state_put_values(l->fp, f->values);
    memset(l->classes.seen, 0, (size_t)l->classes.capacity);
    if (f->classes > 0)
        memcpy(l->classes.seen, f->seen, (size_t)f->classes);
    sfp__metadata_names_commit(&f->names, l);
}

sfp_status sfp__learner_load(sfp__learner *l, const char *path, sfp_error *err)
{
    OWNED_BY(learned_done) learned f = {0};
    if (l->opt.method) {
        TRY(sfp__learner_load_sums(l, path, err));
        return sfp__learner_publish(l, err);
    }
    TRY(open_learned(l, path, &f, err));
    TRY(sfp__state_check_pool(l->fp, f.st, err));
    TRY(sfp__metadata_classes(l, f.st, sfp__learner_classes(l), &f.classes, err));
    TRY(sfp__state_values(l->fp, f.st, f.classes, &f.values, err));
    TRY(sfp__state_components(&l->fp->opt, f.st, &f.components, err));
    TRY(sfp__state_seen(f.st, f.classes, false, &f.seen, err));
    TRY(sfp__metadata_names_read(f.st, l->opt.fp.tasks > 0 ? f.classes : SFP_LEARNER_MAX_CLASSES, &f.names, err));
    TRY(sfp__metadata_prepare(l, path, &f.components, f.classes, f.names.count, err));
    take(l, &f);
    return sfp__learner_publish(l, err);
}
