#include "learner/state/state.h"

#include "base/mem.h"
#include "io/file.h"
#include "io/json_read.h"
#include "learner/settings.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct reading {
    sfp__inference_state *r;
    sfp__vit *vit;
    sfp__thread_pool *threads;
    const char *path;
    sfp__tensor_file *st;
    int classes;
} reading;

/* ------------------------------------------------------------------ settings */

static sfp_status read_setting(const reading *f, const char *key, bool required, sfp_error *err)
{
    const char *text = sfp__tensor_file_meta(f->st, key);
    char value[SFP_NAME_MAX];
    if (!text)
        return required ? sfp__fail(err, SFP_EFORMAT, "%s: metadata '%s' is missing", f->path, key) : SFP_OK;
    sfp_status s = sfp__settings_apply(&f->r->opt, &f->vit->config, key, sfp__printable(text, value, sizeof value), err);
    return s ? sfp__fail_prefix(err, s, "%s: metadata", f->path) : SFP_OK;
}

/* Reads three numbers such as "0.5,0.5,0.5", each above `min`. */
static sfp_status read_three(const reading *f, const char *key, double min, float *out, sfp_error *err)
{
    const char *text = sfp__tensor_file_meta(f->st, key);
    char shown[SFP_NAME_MAX];
    float v[3];
    int used = 0;
    if (!text)
        return SFP_OK;
    bool fine = sscanf(text, "%f,%f,%f%n", &v[0], &v[1], &v[2], &used) == 3 && text[used] == '\0';
    for (int i = 0; fine && i < 3; i++)
        fine = isfinite(v[i]) && (double)v[i] > min;
    if (!fine)
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata '%s' is '%s', expected three numbers above %g", f->path, key,
                         sfp__printable(text, shown, sizeof shown), min);
    memcpy(out, v, sizeof v);
    return SFP_OK;
}

static sfp_status read_settings(reading *f, bool method, sfp_error *err)
{
    static const struct {
        const char *key;
        bool fingerprints_only, required;
    } list[] = {
        {"pool-kind", true, false}, {"pool", true, true},         {"prompt-length", true, true},    {"prompt-layers", true, true},
        {"attune", true, false},    {"attune-topk", true, false}, {"attune-residual", true, false}, {"prefix", true, false},
        {"query", true, false},     {"resize", false, false},     {"batch", false, false},          {"seed", false, false},
        {"answer", true, false},    {"taps", false, false},       {"slda", false, false},           {"tap-mean", false, false}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!(list[i].fingerprints_only && method))
            TRY(read_setting(f, list[i].key, list[i].required, err));
    TRY(read_three(f, "mean", -1e6, f->r->opt.mean, err));
    return read_three(f, "std", 0, f->r->opt.std, err);
}

/* --------------------------------------------------------------------- heads */

static sfp_status load_head(const reading *f, const char *kind, sfp__head **out, sfp_error *err)
{
    const sfp__learner_options *opt = &f->r->opt;
    if (sfp__learner_check_taps(opt, &f->vit->config, err))
        return sfp__fail_prefix(err, SFP_EFORMAT, "%s", f->path);
    /* no memory for the classes that the metadata claims: those in the file are reserved as they are read */
    sfp__head_options o = sfp__learner_head_options(opt, &f->vit->config, 0);
    sfp__visitor v = sfp__visit_reading(f->st, false);
    sfp_status s = sfp__head_create(kind, &o, out, err);
    if (s)
        return sfp__fail_prefix(err, s, "%s", f->path);
    v.inference_only = true;
    return sfp__head_visit_named(*out, &v, err);
}

/* -------------------------------------------------------------- fingerprints */

/* Reads the number of rows of the linear head. Checks that the pool in the file has the sizes of the metadata before memory is
 * allocated for it. */
static sfp_status check_sizes(reading *f, sfp_error *err)
{
    const sfp__fp_options *o = &f->r->opt.fp;
    const int64_t D = f->vit->config.dim, pool[] = {o->pool, o->length, D};
    const sfp__tensor *t = NULL;
    char name[40];
    (void)snprintf(name, sizeof name, "prompt.e_p_%d", sfp__fp_pool_layer(o));
    TRY(sfp__tensor_file_need(f->st, name, &t, err));
    TRY(sfp__tensor_expect(f->path, t, pool, 3, err));
    TRY(sfp__tensor_file_need(f->st, "last.weight", &t, err));
    const int64_t rows = t->ndim == 2 && t->shape[0] <= SFP_LEARNER_MAX_CLASSES ? t->shape[0] : 0, last[] = {rows, D};
    f->classes = (int)rows;
    return sfp__tensor_expect(f->path, t, last, 2, err);
}

static sfp_status load_fingerprints(reading *f, sfp_error *err)
{
    sfp__inference_state *r = f->r;
    long long frozen_end = 0, active_end = 0;
    float *values = NULL;
    TRY(check_sizes(f, err));
    r->opt.fp.tasks = 0; /* tasks affect only training; without tasks any range of components is valid */
    r->opt.fp.span = 1;
    r->opt.fp.classes = f->classes;
    sfp_status status = sfp__fp_create(f->vit, f->threads, &r->opt.fp, 1, &r->fp, err);
    if (status)
        return sfp__fail_prefix(err, status, "%s", f->path);
    r->opt.fp = r->fp->opt;
    TRY(sfp__state_values(r->fp, f->st, f->classes, &values, err));
    sfp__state_put_values(r->fp, values);
    sfp__free(values);
    TRY(sfp__metadata_int(f->st, "open", 1, r->opt.fp.pool, &active_end, err));
    TRY(sfp__metadata_int(f->st, "start", 0, active_end - 1, &frozen_end, err));
    TRY(sfp__fp_restore(r->fp, 0, (int)frozen_end, (int)active_end, err));
    TRY(sfp__fp_prepare(r->fp, err));
    r->snapshot.view = r->fp->view;
    r->snapshot.linear_w = r->fp->linear_w.data;
    r->snapshot.linear_b = r->fp->linear_b.data;
    return SFP_OK;
}

static sfp_status load_method(reading *f, const char *method, sfp_error *err)
{
    long long classes = 0;
    TRY(sfp__metadata_int(f->st, "classes", 0, SFP_LEARNER_MAX_CLASSES, &classes, err));
    f->classes = (int)classes;
    return load_head(f, method, &f->r->head, err);
}

/* ---------------------------------------------------------------------- a whole file */

static sfp_status read_state(reading *f, sfp_error *err)
{
    sfp__inference_state *r = f->r;
    long long t = 0;
    TRY(sfp__safetensors_open(f->path, &f->st, err));
    TRY(sfp__metadata_check_format(f->st, SFP_STATE_FORMAT, SFP_STATE_VERSION, true, err));
    TRY(sfp__state_check_sum(f->st, err));
    TRY(sfp__metadata_check_backbone(f->st, f->vit, err));
    const char *method = sfp__tensor_file_meta(f->st, "method");
    r->opt.slda_published = true; /* files of versions before 0.5 do not say it */
    TRY(read_settings(f, method, err));
    TRY(method ? load_method(f, method, err) : load_fingerprints(f, err));
    TRY(sfp__state_seen(f->st, f->classes, true, &r->snapshot.seen, err));
    TRY(sfp__metadata_names_read(f->st, SFP_LEARNER_MAX_CLASSES, &r->names, err));
    TRY(sfp__snapshot_copy_names(&r->snapshot, r->names.count, r->names.name, 1, err));
    if (sfp__tensor_file_meta(f->st, "timestamps"))
        TRY(sfp__metadata_int(f->st, "timestamps", 0, INT64_MAX, &t, err));
    r->snapshot.t = (uint64_t)t;
    r->snapshot.classes = f->classes;
    return SFP_OK;
}

sfp_status sfp__inference_state_load(sfp__vit *vit, sfp__thread_pool *threads, const char *path, sfp__inference_state **out,
                                     sfp_error *err)
{
    OWNED_PTR(sfp__inference_state_free) sfp__inference_state *r = NULL;
    TRY(sfp__alloc(&r, 1, sizeof *r, err));
    r->opt = sfp__learner_options_defaults(vit);
    reading f = {.r = r, .vit = vit, .threads = threads, .path = path};
    sfp_status status = read_state(&f, err);
    sfp__tensor_file_close(f.st);
    TRY(status);
    *out = TAKE(r);
    return SFP_OK;
}

void sfp__inference_state_free(sfp__inference_state *r)
{
    if (!r)
        return;
    sfp__head_free(r->head);
    sfp__free(r->snapshot.seen);
    sfp__metadata_names_done(&r->names);
    sfp__free(r->snapshot.names);
    sfp__fp_free(r->fp);
    sfp__free(r);
}

/* ------------------------------------------------------- the contents of a state file
 *
 * These functions read and check the contents of a state file. The caller stores them in a learner (state.c) or in an
 * sfp__inference_state. */

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
    return end > name + 11 && *end == '\0' && layer >= 0 && layer < SFP_VIT_MAX_DEPTH ? (int)layer : -1;
}

bool sfp__state_pool_read(const sfp__tensor_file *st, sfp__state_pool *out)
{
    sfp__state_pool p = {.pool = -1, .first_layer = SFP_VIT_MAX_DEPTH, .last_layer = -1};
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

/* Returns the size of a parameter in the file and writes its shape: as in fp, except for the rows of the linear head. */
static size_t file_shape(sfp__fp *fp, int classes, const sfp__param *p, int64_t *shape)
{
    bool by_class = p == &fp->linear_w || p == &fp->linear_b;
    memcpy(shape, p->shape, sizeof p->shape);
    shape[0] = by_class ? classes : p->shape[0];
    return (size_t)shape[0] * p->width;
}

/* Checks that a state has no tensor that these fingerprints do not have; such a tensor belongs to another kind of learner. The
 * settings of a checkpoint tell that. */
static sfp_status check_known(const sfp__tensor_file *st, sfp__param **params, int count, sfp_error *err)
{
    const char *format = sfp__tensor_file_meta(st, "format");
    if (format && strcmp(format, SFP_CHECKPOINT_FORMAT) == 0)
        return SFP_OK;
    for (size_t k = 0; k < st->count; k++) {
        const sfp__tensor *t = &st->tensors[k];
        bool known = false;
        for (int i = 0; i < count && !known; i++)
            known = strcmp(params[i]->name, t->name) == 0;
        char name[SFP_NAME_MAX], shape[SFP_SHAPE_MAX];
        if (!known)
            return sfp__fail(err, SFP_ESHAPE, "%s: tensor '%s' is %s, expected no tensor of that name with these settings",
                             st->path, sfp__printable(t->name, name, sizeof name),
                             sfp__shape_text(t->shape, t->ndim, shape, sizeof shape));
    }
    return SFP_OK;
}

static sfp_status read_tensor(const sfp__tensor_file *st, const char *name, float *to, size_t *count, sfp_error *err)
{
    const char *path = st->path;
    const sfp__tensor *t = sfp__tensor_file_find(st, name);
    TRY(sfp__tensor_to_f32(path, t, to, err));
    for (size_t k = 0; k < t->count; k++)
        if (!isfinite(to[k]))
            return sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s' has %g as element %zu, expected a finite number", path, name,
                             (double)to[k], k);
    *count = t->count;
    return SFP_OK;
}

sfp_status sfp__state_values(sfp__fp *fp, const sfp__tensor_file *st, int classes, float **out, sfp_error *err)
{
    OWNED float *values = NULL;
    int count = 0;
    sfp__param **params = sfp__fp_params(fp, &count);
    int64_t shape[3];
    size_t total = 0, at = 0, n = 0;
    for (int i = 0; i < count; i++) { /* checks sizes first, so that a forged size allocates no memory */
        const sfp__tensor *t = NULL;
        total += file_shape(fp, classes, params[i], shape);
        TRY(sfp__tensor_file_need(st, params[i]->name, &t, err));
        TRY(sfp__tensor_expect(st->path, t, shape, params[i]->ndim, err));
    }
    TRY(check_known(st, params, count, err));
    TRY(sfp__alloc(&values, total, sizeof *values, err));
    for (int i = 0; i < count; i++, at += n)
        TRY(read_tensor(st, params[i]->name, values + at, &n, err));
    *out = TAKE(values);
    return SFP_OK;
}

void sfp__state_put_values(sfp__fp *fp, const float *values)
{
    int count = 0;
    sfp__param **params = sfp__fp_params(fp, &count);
    for (int i = 0; i < count; i++) {
        size_t n = (size_t)params[i]->rows * params[i]->width;
        if (n > 0)
            memcpy(params[i]->data, values, n * sizeof *values);
        sfp__param_reset_adam(params[i], 0, params[i]->rows);
        values += n;
    }
    sfp__fp_changed(fp);
}

sfp_status sfp__state_components(const sfp__fp_options *o, const sfp__tensor_file *st, sfp__saved_components *out, sfp_error *err)
{
    long long task = 0, frozen_end = 0, active_end = 0;
    int first = 0, end = 0;
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
    json_error_t where;
    OWNED_PTR(json_decref) json_t *list = NULL;
    if (text)
        TRY(sfp__json_load(path, text, strlen(text), 0, &list, &where, err));
    if (classes > 0)
        TRY(sfp__alloc(&seen, (size_t)classes, 1, err));
    const sfp__tensor *saved = sfp__tensor_file_find(st, "seen"); /* a checkpoint has one */
    const int64_t count = classes;
    if (saved && saved->dtype == SFP_DTYPE_U8)
        TRY(sfp__tensor_expect(path, saved, &count, 1, err));
    for (int c = 0; !text && c < classes; c++)
        seen[c] = saved && saved->dtype == SFP_DTYPE_U8 ? ((const uint8_t *)saved->data)[c] != 0 : default_value;
    if (text && !json_is_array(list))
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata 'seen' is not a JSON list", path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        long long label = json_is_integer(v) ? json_integer_value(v) : -1;
        if (!seen || label < 0 || label >= classes)
            return sfp__fail(err, SFP_EFORMAT, "%s: metadata 'seen': entry %zu is not a class, expected 0 to %d", path, i,
                             classes - 1);
        seen[label] = 1;
    }
    *out = TAKE(seen);
    return SFP_OK;
}
