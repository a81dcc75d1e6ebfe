/* Writing state files, and reading them into a learner (state.h says what they
 * hold). */
#include "learner/state.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* -------------------------------------------------------------------- saving */

/* The labels of the classes seen, as a JSON list. */
static void put_seen(sfp_saved_meta *m, int classes, const uint8_t *seen)
{
    sfp_text t = {0};
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
        sfp__saved_put(m, "seen", t.s);
    sfp__text_done(&t);
}

/* What every state has. */
static void put_head_of_file(sfp_saved_meta *m, int classes, const uint8_t *seen, const sfp_vit *vit)
{
    sfp__saved_put(m, "format", SFP_STATE_FORMAT);
    sfp__saved_put_int(m, "version", SFP_STATE_VERSION);
    sfp__saved_put_int(m, "classes", classes);
    put_seen(m, classes, seen);
    sfp__saved_put_backbone(m, vit);
}

/* The checksum comes last into the metadata. */
static sfp_status write_state(const char *path, const sfp_kept_parts *tensors, sfp_saved_meta *meta, sfp_error *err)
{
    char sum[SFP_CHECKSUM_MAX] = "";
    sfp_status s = meta->failed ? SFP_OK : sfp__state_sum(tensors, meta, sum, err);
    if (s)
        return s;
    sfp__saved_put(meta, SFP_CHECKSUM_KEY, sum);
    if (meta->failed)
        return sfp__fail_nomem(err);
    return sfp__safetensors_write(path, tensors->list, tensors->count, meta->list, meta->count, err);
}

/* What answering needs: of a mix its weights and heads, of a method its head. */
static sfp_status visit_heads(sfp_learner *l, const sfp_visitor *with, sfp_error *err)
{
    double mix[SFP_STATE_MIX] = {l->mix.count};
    memcpy(mix + 1, l->mix.loss, sizeof l->mix.loss);
    if (l->heads[1])
        TRY(sfp__visit_values(with, SFP_STATE_HEAD "mix", SFP_DTYPE_F64, SFP_STATE_MIX, mix, err));
    for (int i = 0; i < SFP_HEAD_EXPERTS; i++) {
        char prefix[32];
        sfp_visitor v = *with;
        if (!l->heads[i])
            continue;
        (void)snprintf(prefix, sizeof prefix, SFP_STATE_HEAD "%s", sfp__head_kind(l->heads[i]));
        v.prefix = prefix;
        v.answers = true;
        TRY(sfp__head_visit(l->heads[i], &v, err));
    }
    return SFP_OK;
}

sfp_status sfp__learner_save_state(sfp_learner *l, const char *path, sfp_error *err)
{
    OWNED_BY(sfp__kept_parts_done) sfp_kept_parts parts = {0};
    OWNED_BY(sfp__saved_done) sfp_saved_meta meta = {0};
    const sfp_visitor v = sfp__visit_writing(&parts);
    int count = 0;
    sfp_param **params = l->fp ? sfp__fp_params(l->fp, &count) : NULL;
    TRY(visit_heads(l, &v, err)); /* the wider types first: then each tensor is aligned */
    for (int i = 0; i < count; i++)
        TRY(sfp__visit(&v, params[i]->name, SFP_DTYPE_F32, params[i]->ndim, params[i]->shape, params[i]->data, err));
    put_head_of_file(&meta, sfp__learner_classes(l), l->seen, l->vit);
    sfp__saved_put_common(&meta, l);
    sfp__saved_put_settings(&meta, l, false);
    return write_state(path, &parts, &meta, err);
}

/* ------------------------------------------------------------------- loading */

typedef struct loaded {
    sfp_learner *l;
    const char *path;
    sfp_tensor_file *st;
    int classes;
    float *values; /* all tensors, in the order of sfp__fp_params */
    uint8_t *seen; /* (classes) */
    sfp_saved_span span;
    sfp_saved_names names;
} loaded;

static sfp_status check_kind(const loaded *f, sfp_error *err)
{
    const char *method = sfp__tensor_file_meta(f->st, "method");
    char name[SFP_NAME_MAX];
    sfp_status s = sfp__saved_check_format(f->st, SFP_STATE_FORMAT, SFP_STATE_VERSION, false, err);
    if (!s)
        s = sfp__state_check_sum(f->st, err);
    if (!s && method)
        s = sfp__fail(err, SFP_EINVAL, "%s: is the state of method %s, expected one of fingerprints", f->path,
                      sfp__printable(method, name, sizeof name));
    return s ? s : sfp__saved_check_backbone(f->st, f->l->vit, err);
}

static sfp_status read_values(loaded *f, sfp_error *err)
{
    sfp_status s = sfp__state_check_pool(f->l->fp, f->st, err);
    if (!s)
        s = sfp__saved_classes(f->l, f->st, sfp__learner_classes(f->l), &f->classes, err);
    return s ? s : sfp__state_values(f->l->fp, f->st, f->classes, &f->values, err);
}

/* Cannot fail. */
static void commit(loaded *f)
{
    sfp_learner *l = f->l;
    sfp__state_put_values(l->fp, f->values);
    memset(l->seen, 0, (size_t)l->class_room);
    if (f->classes > 0)
        memcpy(l->seen, f->seen, (size_t)f->classes);
    sfp__saved_names_commit(&f->names, l);
}

sfp_status sfp__learner_load_state(sfp_learner *l, const char *path, sfp_error *err)
{
    loaded f = {.l = l, .path = path};
    if (l->opt.method)
        return sfp__fail(err, SFP_EINVAL, "%s: cannot be gone on from by method %s", path, l->opt.method);
    sfp_status s = sfp__safetensors_open(path, &f.st, err);
    if (s)
        return s;
    if ((s = check_kind(&f, err)) || (s = sfp__saved_check_settings(l, f.st, false, err)) || (s = read_values(&f, err)) ||
        (s = sfp__state_span(&l->fp->opt, f.st, &f.span, err)) || (s = sfp__state_seen(f.st, f.classes, false, &f.seen, err)) ||
        (s = sfp__saved_names_read(f.st, l->opt.fp.tasks > 0 ? f.classes : SFP_LEARNER_MAX_CLASSES, &f.names, err)) ||
        (s = sfp__saved_prepare(l, path, &f.span, f.classes, f.names.count, err)))
        goto done;
    commit(&f);
    s = sfp__learner_publish(l, err);
done:
    sfp__saved_names_done(&f.names);
    sfp__tensor_file_close(f.st);
    sfp__free(f.values);
    sfp__free(f.seen);
    return s;
}
