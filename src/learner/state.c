/* state.safetensors: what was learned, under the names of the golden files, so
 * that any program that reads safetensors can use it. The metadata says which
 * components are open, what the classes are called, which were seen, and the
 * settings without which the values mean nothing. */
#include "learner/saved.h"

#include "base/mem.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#define FORMAT "streamfp-state"
enum { VERSION = 1 };

/* -------------------------------------------------------------------- saving */

/* The labels of the classes seen, as a JSON list. */
static void put_seen(sfp_saved_meta *m, sfp_learner *l)
{
    sfp_text t = {0};
    const char *comma = "";
    sfp__text_put(&t, "[");
    for (int i = 0; i < sfp__learner_classes(l); i++)
        if (l->seen[i]) {
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

sfp_status sfp__learner_save_state(sfp_learner *l, const char *path, sfp_error *err)
{
    int count = 0;
    sfp_param **params = sfp__fp_params(l->fp, &count);
    sfp_saved_meta meta = {0};
    sfp_tensor *tensors = sfp__calloc((size_t)count, sizeof *tensors);
    if (!tensors)
        return sfp__fail_nomem(err, (size_t)count * sizeof *tensors);
    for (int i = 0; i < count; i++) {
        const sfp_param *p = params[i];
        size_t n = (size_t)p->rows * p->width;
        tensors[i] = (sfp_tensor){
            .name = p->name, .dtype = SFP_DTYPE_F32, .ndim = p->ndim, .count = n, .bytes = n * sizeof(float), .data = p->data};
        memcpy(tensors[i].shape, p->shape, (size_t)p->ndim * sizeof *p->shape);
    }
    sfp__saved_put(&meta, "format", FORMAT);
    sfp__saved_put_int(&meta, "version", VERSION);
    sfp__saved_put_common(&meta, l);
    sfp__saved_put_int(&meta, "classes", sfp__learner_classes(l));
    put_seen(&meta, l);
    sfp__saved_put_settings(&meta, l, false);
    sfp_status s = meta.failed ? sfp__fail_nomem(err, sizeof(sfp_meta) * 2 * (meta.room + 1))
                               : sfp__safetensors_write(path, tensors, (size_t)count, meta.list, meta.count, err);
    sfp__saved_done(&meta);
    sfp__free(tensors);
    return s;
}

/* ------------------------------------------------------------------- loading */

typedef struct loaded {
    sfp_learner *l;
    const char *path;
    sfp_safetensors *st;
    int classes;
    float *values; /* all tensors, in the order of sfp__fp_params */
    uint8_t *seen; /* (classes) */
    sfp_saved_span span;
    sfp_saved_names names;
} loaded;

/* The shape a parameter has in the file: as here, but for the rows of the classifier. */
static size_t file_shape(const loaded *f, const sfp_param *p, int64_t *shape)
{
    bool by_class = p == sfp__fp_last_w(f->l->fp) || p == sfp__fp_last_b(f->l->fp);
    memcpy(shape, p->shape, sizeof p->shape);
    shape[0] = by_class ? f->classes : p->shape[0];
    return (size_t)shape[0] * p->width;
}

/* A tensor that this learner has no use for means that the file is of another kind of learner. */
static sfp_status check_known(const loaded *f, sfp_param **params, int count, sfp_error *err)
{
    for (size_t k = 0; k < sfp__safetensors_count(f->st); k++) {
        const sfp_tensor *t = sfp__safetensors_at(f->st, k);
        bool known = false;
        for (int i = 0; i < count && !known; i++)
            known = strcmp(params[i]->name, t->name) == 0;
        char name[SFP_NAME_MAX], shape[SFP_SHAPE_MAX];
        if (!known)
            return sfp__fail(err, SFP_ESHAPE, "%s: tensor '%s' is %s, expected none of that name with these settings", f->path,
                             sfp__printable(t->name, name, sizeof name), sfp__shape_text(t->shape, t->ndim, shape, sizeof shape));
    }
    return SFP_OK;
}

static sfp_status read_values(loaded *f, sfp_error *err)
{
    int count = 0;
    sfp_param **params = sfp__fp_params(f->l->fp, &count);
    int64_t shape[3];
    size_t total = 0, at = 0;
    sfp_status s = sfp__saved_classes(f->l, f->st, sfp__learner_classes(f->l), &f->classes, err);
    for (int i = 0; !s && i < count; i++) { /* sizes first: a forged one takes no memory */
        const sfp_tensor *t = NULL;
        total += file_shape(f, params[i], shape);
        if (!(s = sfp__safetensors_need(f->st, params[i]->name, &t, err)))
            s = sfp__tensor_expect(f->path, t, shape, params[i]->ndim, err);
    }
    if (!s)
        s = check_known(f, params, count, err);
    if (!s && !(f->values = sfp__malloc(total * sizeof *f->values)))
        s = sfp__fail_nomem(err, total * sizeof *f->values);
    for (int i = 0; !s && i < count; i++) {
        const sfp_tensor *t = sfp__safetensors_find(f->st, params[i]->name);
        s = sfp__tensor_to_f32(f->path, t, f->values + at, err);
        for (size_t k = 0; !s && k < t->count; k++)
            if (!isfinite(f->values[at + k]))
                s = sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s' has %g as element %zu, expected a finite number", f->path,
                              params[i]->name, (double)f->values[at + k], k);
        at += t->count;
    }
    return s;
}

/* Which components learn. Files of the reference name only the task. */
static sfp_status read_span(loaded *f, sfp_error *err)
{
    const sfp_fp_options *o = sfp__fp_options(f->l->fp);
    long long task = 0, start = 0, open = 0;
    sfp_status s = sfp__saved_int(f->st, "task", 0, o->tasks > 0 ? o->tasks - 1 : 0, &task, err);
    if (s)
        return s;
    if (o->tasks > 0 && !sfp__safetensors_meta(f->st, "open")) {
        start = task * (o->pool / o->tasks);
        open = start + o->pool / o->tasks;
    } else if ((s = sfp__saved_int(f->st, "open", 1, o->pool, &open, err)) ||
               (s = sfp__saved_int(f->st, "start", 0, open - 1, &start, err))) {
        return s;
    }
    f->span = (sfp_saved_span){(int)task, (int)start, (int)open};
    return SFP_OK;
}

static sfp_status read_seen(loaded *f, sfp_error *err)
{
    const char *text = sfp__safetensors_meta(f->st, "seen");
    if (f->classes > 0 && !(f->seen = sfp__calloc((size_t)f->classes, 1)))
        return sfp__fail_nomem(err, (size_t)f->classes);
    if (!text)
        return SFP_OK;
    sfp_status s = SFP_OK;
    json_error_t where;
    json_t *list = json_loads(text, 0, &where);
    if (!json_is_array(list))
        s = sfp__fail(err, SFP_EFORMAT, "%s: metadata 'seen' is no JSON list", f->path);
    for (size_t i = 0; !s && i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        long long label = json_is_integer(v) ? json_integer_value(v) : -1;
        if (label < 0 || label >= f->classes)
            s = sfp__fail(err, SFP_EFORMAT, "%s: metadata 'seen': entry %zu is no class from 0 to %d", f->path, i,
                          f->classes - 1);
        else
            f->seen[label] = 1;
    }
    json_decref(list);
    return s;
}

/* Cannot fail. */
static void commit(loaded *f)
{
    sfp_learner *l = f->l;
    const float *from = f->values;
    int count = 0;
    sfp_param **params = sfp__fp_params(l->fp, &count);
    for (int i = 0; i < count; i++) {
        size_t n = (size_t)params[i]->rows * params[i]->width;
        if (n > 0)
            memcpy(params[i]->data, from, n * sizeof *from);
        sfp__param_reset_adam(params[i], 0, params[i]->rows);
        from += n;
    }
    memset(l->seen, 0, (size_t)l->class_room);
    if (f->classes > 0)
        memcpy(l->seen, f->seen, (size_t)f->classes);
    sfp__saved_names_commit(&f->names, l);
    sfp__fp_changed(l->fp);
}

sfp_status sfp__learner_load_state(sfp_learner *l, const char *path, sfp_error *err)
{
    loaded f = {.l = l, .path = path};
    sfp_status s = sfp__safetensors_open(path, &f.st, err);
    if (s)
        return s;
    if ((s = sfp__saved_check_format(f.st, FORMAT, VERSION, false, err)) || (s = read_values(&f, err)) ||
        (s = sfp__saved_check_settings(l, f.st, false, err)) || (s = read_span(&f, err)) || (s = read_seen(&f, err)) ||
        (s = sfp__saved_names_read(f.st, l->opt.fp.tasks > 0 ? f.classes : SFP_LEARNER_MAX_CLASSES, &f.names, err)) ||
        (s = sfp__saved_prepare(l, path, &f.span, f.classes, f.names.count, err)))
        goto done;
    commit(&f);
    s = sfp__learner_publish(l, err);
done:
    sfp__saved_names_done(&f.names);
    sfp__safetensors_close(f.st);
    sfp__free(f.values);
    sfp__free(f.seen);
    return s;
}
