/* The parts of a state file, read and checked; whoever asks for them decides
 * where they go: into a learner (state.c), or into what only answers
 * (restored.c). */
#include "learner/state.h"

#include "base/mem.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sfp_status sfp__state_img_size(const char *path, int *out, sfp_error *err)
{
    sfp_tensor_file *st = NULL;
    sfp_status s = sfp__safetensors_open(path, &st, err);
    if (!s && !(s = sfp__state_check_sum(st, err)))
        *out = sfp__saved_img_size(st);
    sfp__tensor_file_close(st);
    return s;
}

/* The layer of "prompt.e_p_N", or of "prompt.g_p_N", which all samples share; -1: another name. */
static int pool_layer(const char *name, bool *shared)
{
    char *end = NULL;
    *shared = strncmp(name, "prompt.g_p_", 11) == 0;
    if (!*shared && strncmp(name, "prompt.e_p_", 11) != 0)
        return -1;
    long layer = strtol(name + 11, &end, 10);
    return end > name + 11 && *end == '\0' && layer >= 0 && layer < SFP_VIT_MAX_DEPTH ? (int)layer : -1;
}

bool sfp__state_pool(const sfp_tensor_file *st, sfp_state_pool *out)
{
    sfp_state_pool p = {.pool = -1, .first_layer = SFP_VIT_MAX_DEPTH, .last_layer = -1};
    for (size_t i = 0; i < st->count; i++) {
        const sfp_tensor *t = &st->tensors[i];
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

sfp_status sfp__state_check_pool(sfp_fp *fp, const sfp_tensor_file *st, sfp_error *err)
{
    const sfp_fp_options *o = &fp->opt;
    const char *path = st->path;
    sfp_state_pool p;
    if (!sfp__state_pool(st, &p))
        return SFP_OK; /* the first tensor that is missing will be told */
    const struct {
        const char *name;
        int64_t was, now;
    } list[] = {
        {"a backbone of width", p.width, fp->last_w.shape[1]}, {"pool", p.pool, o->pool}, {"prompt-length", p.length, o->length}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].was != list[i].now)
            return sfp__fail(err, SFP_EINVAL, "%s: was made with %s %lld, now it is %lld", path, list[i].name,
                             (long long)list[i].was, (long long)list[i].now);
    if (p.first_layer != o->first_layer || p.last_layer != o->last_layer)
        return sfp__fail(err, SFP_EINVAL, "%s: was made with prompt-layers %d-%d, now it is %d-%d", path, p.first_layer,
                         p.last_layer, o->first_layer, o->last_layer);
    return SFP_OK;
}

/* The shape a parameter has in the file: as here, but for the rows of the classifier. */
static size_t file_shape(sfp_fp *fp, int classes, const sfp_param *p, int64_t *shape)
{
    bool by_class = p == &fp->last_w || p == &fp->last_b;
    memcpy(shape, p->shape, sizeof p->shape);
    shape[0] = by_class ? classes : p->shape[0];
    return (size_t)shape[0] * p->width;
}

/* A tensor that these fingerprints have no use for means that the file is of another kind of learner. */
static sfp_status check_known(const sfp_tensor_file *st, sfp_param **params, int count, sfp_error *err)
{
    for (size_t k = 0; k < st->count; k++) {
        const sfp_tensor *t = &st->tensors[k];
        bool known = strncmp(t->name, SFP_STATE_HEAD, strlen(SFP_STATE_HEAD)) == 0;
        for (int i = 0; i < count && !known; i++)
            known = strcmp(params[i]->name, t->name) == 0;
        char name[SFP_NAME_MAX], shape[SFP_SHAPE_MAX];
        if (!known)
            return sfp__fail(err, SFP_ESHAPE, "%s: tensor '%s' is %s, expected none of that name with these settings",
                             st->path, sfp__printable(t->name, name, sizeof name),
                             sfp__shape_text(t->shape, t->ndim, shape, sizeof shape));
    }
    return SFP_OK;
}

static sfp_status read_tensor(const sfp_tensor_file *st, const char *name, float *to, size_t *count, sfp_error *err)
{
    const char *path = st->path;
    const sfp_tensor *t = sfp__tensor_file_find(st, name);
    sfp_status s = sfp__tensor_to_f32(path, t, to, err);
    for (size_t k = 0; !s && k < t->count; k++)
        if (!isfinite(to[k]))
            s = sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s' has %g as element %zu, expected a finite number", path, name,
                          (double)to[k], k);
    *count = t->count;
    return s;
}

sfp_status sfp__state_values(sfp_fp *fp, const sfp_tensor_file *st, int classes, float **out, sfp_error *err)
{
    int count = 0;
    sfp_param **params = sfp__fp_params(fp, &count);
    int64_t shape[3];
    size_t total = 0, at = 0, n = 0;
    sfp_status s = SFP_OK;
    for (int i = 0; !s && i < count; i++) { /* sizes first: a forged one takes no memory */
        const sfp_tensor *t = NULL;
        total += file_shape(fp, classes, params[i], shape);
        if (!(s = sfp__tensor_file_need(st, params[i]->name, &t, err)))
            s = sfp__tensor_expect(st->path, t, shape, params[i]->ndim, err);
    }
    if (!s)
        s = check_known(st, params, count, err);
    float *values = s ? NULL : sfp__malloc(total * sizeof *values);
    if (!s && !values)
        s = sfp__fail_nomem(err);
    for (int i = 0; !s && i < count; i++, at += n)
        s = read_tensor(st, params[i]->name, values + at, &n, err);
    if (s)
        sfp__free(values);
    else
        *out = values;
    return s;
}

void sfp__state_put_values(sfp_fp *fp, const float *values)
{
    int count = 0;
    sfp_param **params = sfp__fp_params(fp, &count);
    for (int i = 0; i < count; i++) {
        size_t n = (size_t)params[i]->rows * params[i]->width;
        if (n > 0)
            memcpy(params[i]->data, values, n * sizeof *values);
        sfp__param_reset_adam(params[i], 0, params[i]->rows);
        values += n;
    }
    sfp__fp_changed(fp);
}

sfp_status sfp__state_span(const sfp_fp_options *o, const sfp_tensor_file *st, sfp_saved_span *out, sfp_error *err)
{
    long long task = 0, start = 0, open = 0;
    int first = 0, end = 0;
    sfp_status s = sfp__saved_int(st, "task", 0, o->tasks > 0 ? o->tasks - 1 : 0, &task, err);
    if (s)
        return s;
    if (o->tasks > 0 && !sfp__tensor_file_meta(st, "open")) {
        sfp__fp_task_span(o, (int)task, &first, &end);
        start = first;
        open = end;
    } else if ((s = sfp__saved_int(st, "open", 1, o->pool, &open, err)) ||
               (s = sfp__saved_int(st, "start", 0, open - 1, &start, err))) {
        return s;
    }
    *out = (sfp_saved_span){(int)task, (int)start, (int)open};
    return SFP_OK;
}

sfp_status sfp__state_seen(const sfp_tensor_file *st, int classes, bool otherwise, uint8_t **out, sfp_error *err)
{
    const char *text = sfp__tensor_file_meta(st, "seen"), *path = st->path;
    uint8_t *seen = classes > 0 ? sfp__calloc((size_t)classes, 1) : NULL;
    if (classes > 0 && !seen)
        return sfp__fail_nomem(err);
    if (!text && seen)
        memset(seen, otherwise, (size_t)classes);
    sfp_status s = SFP_OK;
    json_error_t where;
    json_t *list = text ? json_loads(text, 0, &where) : NULL;
    if (text && !json_is_array(list))
        s = sfp__fail(err, SFP_EFORMAT, "%s: metadata 'seen' is no JSON list", path);
    for (size_t i = 0; !s && i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        long long label = json_is_integer(v) ? json_integer_value(v) : -1;
        if (label < 0 || label >= classes)
            s = sfp__fail(err, SFP_EFORMAT, "%s: metadata 'seen': entry %zu is no class from 0 to %d", path, i, classes - 1);
        else
            seen[label] = 1;
    }
    json_decref(list);
    if (s)
        sfp__free(seen);
    else
        *out = seen;
    return s;
}
