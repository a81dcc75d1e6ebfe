#include "learner/state/state.h"

#include "base/mem.h"
#include "compute/gemm.h"
#include "io/json_read.h"
#include "io/json_write.h"
#include "learner/settings.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ------------------------------------------------------------------ writing */

/* Names come from directories in any encoding; metadata is UTF-8. */
static void put_name(sfp__text *t, const char *name)
{
    char shown[SFP__NAME_MAX];
    if (name)
        sfp__text_json(t, sfp__utf8_valid(name) ? name : sfp__printable(name, shown, sizeof shown));
    else
        sfp__text_put(t, "null");
}

void sfp__metadata_put_names(sfp__file_metadata *m, int count, char *const *names)
{
    sfp__text list = {0};
    sfp__text_put(&list, "[");
    for (int i = 0; i < count; i++) {
        sfp__text_put(&list, i ? "," : "");
        put_name(&list, names[i]);
    }
    sfp__text_put(&list, "]");
    if (list.failed)
        m->failed = true;
    else
        sfp__metadata_put(m, "class_names", list.s);
    sfp__text_done(&list);
}

void sfp__metadata_put_common(sfp__file_metadata *m, sfp__learner *l)
{
    int count = l->classes.capacity, classes = sfp__learner_classes(l);
    while (count > classes && !l->classes.names[count - 1])
        count--;
    if (l->opt.method) {
        sfp__metadata_put(m, "method", l->opt.method);
    } else {
        sfp__metadata_put_int(m, "task", l->fp->task);
        sfp__metadata_put_int(m, "start", l->fp->frozen_end);
        sfp__metadata_put_int(m, "open", l->fp->active_end);
    }
    sfp__metadata_put_int(m, "timestamps", (long long)l->counts.timestamps);
    sfp__metadata_put_names(m, count, l->classes.names);
}

/* ----------------------------------------------------------------- settings */

enum { VALUE_MAX = 72, KEY_MAX = 64 };

/* In a checkpoint the keys of settings have a prefix; in a state they have none, so that the file is easy to read. */
static const char *setting_key(const char *name, bool run, char key[KEY_MAX])
{
    (void)snprintf(key, KEY_MAX, "%s%s", run ? "setting." : "", name);
    return key;
}

void sfp__metadata_put_settings(sfp__file_metadata *m, const sfp__learner *l, bool run)
{
    const sfp__learner_options *o = &l->opt;
    char key[KEY_MAX], value[VALUE_MAX];
    for (size_t i = 0; i < sfp__learner_row_count; i++) {
        const sfp__opt *row = &sfp__learner_rows[i];
        if (row->saved && sfp__learner_has(o, row) && (run || row->saved != SFP__SAVED_RUN))
            sfp__metadata_put(m, setting_key(row->name, run, key), sfp__opt_print(row, o, value, sizeof value));
    }
    (void)snprintf(value, sizeof value, "%.9g,%.9g,%.9g", (double)o->mean[0], (double)o->mean[1], (double)o->mean[2]);
    sfp__metadata_put(m, setting_key("mean", run, key), value);
    (void)snprintf(value, sizeof value, "%.9g,%.9g,%.9g", (double)o->std[0], (double)o->std[1], (double)o->std[2]);
    sfp__metadata_put(m, setting_key("std", run, key), value);
}

sfp_status sfp__metadata_check_settings(const sfp__learner *l, const sfp__tensor_file *st, bool checkpoint, bool run,
                                        sfp_error *err)
{
    OWNED_BY(sfp__metadata_done) sfp__file_metadata now = {0};
    char shown[SFP__NAME_MAX];
    sfp__metadata_put_settings(&now, l, checkpoint);
    TRY(sfp__check_memory(!now.failed, err));
    for (size_t i = 0; i < now.count; i++) {
        const char *key = now.list[i].key, *name = checkpoint ? strchr(key, '.') + 1 : key,
                   *found = sfp__tensor_file_meta(st, key);
        const sfp__opt *row = sfp__opt_find(sfp__learner_rows, sfp__learner_row_count, name);
        if (!run && (!row || row->saved != SFP__SAVED_STATE))
            continue;
        if (!found && checkpoint)
            return sfp__fail(err, SFP_EFORMAT, "%s: metadata '%s' is missing", st->path, key);
        if (found && strcmp(found, now.list[i].value) != 0)
            return sfp__fail(err, SFP_EINVAL, "%s: %s is %s, expected %s, the current setting", st->path, name,
                             sfp__printable(found, shown, sizeof shown), now.list[i].value);
    }
    return SFP_OK;
}

/* Reads three numbers such as "0.5,0.5,0.5", each above `min`. */
static sfp_status read_three(const sfp__tensor_file *st, const char *key, double min, float *out, sfp_error *err)
{
    const char *text = sfp__tensor_file_meta(st, key);
    char shown[SFP__NAME_MAX];
    float v[3];
    int used = 0;
    if (!text)
        return SFP_OK;
    bool fine = sscanf(text, "%f,%f,%f%n", &v[0], &v[1], &v[2], &used) == 3 && text[used] == '\0';
    for (int i = 0; fine && i < 3; i++)
        fine = isfinite(v[i]) && (double)v[i] > min;
    if (!fine)
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata '%s' is '%s', expected three numbers above %g", st->path, key,
                         sfp__printable(text, shown, sizeof shown), min);
    memcpy(out, v, sizeof v);
    return SFP_OK;
}

sfp_status sfp__metadata_read_settings(const sfp__tensor_file *st, sfp__learner_options *o, sfp_error *err)
{
    for (size_t i = 0; i < sfp__learner_row_count; i++) {
        const sfp__opt *row = &sfp__learner_rows[i];
        const char *text = sfp__tensor_file_meta(st, row->name);
        char value[SFP__NAME_MAX];
        if (row->saved == SFP__SAVED_NOT || row->saved == SFP__SAVED_RUN || !sfp__learner_has(o, row))
            continue;
        if (!text)
            return sfp__fail(err, SFP_EFORMAT, "%s: metadata '%s' is missing", st->path, row->name);
        sfp_status s = sfp__learner_set(o, row->name, sfp__printable(text, value, sizeof value), err);
        if (s)
            return sfp__fail_prefix(err, s, "%s: metadata", st->path);
    }
    TRY(read_three(st, "mean", -1e6, o->mean, err));
    return read_three(st, "std", 0, o->std, err);
}

/* ------------------------------------------------------------------ reading */

sfp_status sfp__metadata_check_format(const sfp__tensor_file *st, const char *format, int version, bool required, sfp_error *err)
{
    const char *path = st->path, *found = sfp__tensor_file_meta(st, "format");
    char shown[SFP__NAME_MAX];
    long long v = 0;
    if (!found && !required)
        return SFP_OK;
    if (!found || strcmp(found, format) != 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: format is '%s', expected '%s'", path,
                         sfp__printable(found ? found : "", shown, sizeof shown), format);
    TRY(sfp__metadata_int(st, "version", 1, 1000000, &v, err));
    if (v != version)
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s: version of %s is %lld, expected %d; another version of streamfp wrote it",
                         path, format, v, version);
    return SFP_OK;
}

sfp_status sfp__metadata_names_read(const sfp__tensor_file *st, int max_names, sfp__saved_names *out, sfp_error *err)
{
    const char *text = sfp__tensor_file_meta(st, "class_names"), *path = st->path;
    OWNED sfp__json_value *list = NULL;
    if (text && sfp__json_parse(path, text, strlen(text), &list, NULL) == SFP_ENOMEM)
        return sfp__fail_nomem(err);
    OWNED_BY(sfp__metadata_names_done) sfp__saved_names names = {.given = true};
    size_t n = sfp__json_size(list);
    *out = (sfp__saved_names){0};
    if (!text)
        return SFP_OK;
    if (!sfp__json_is(list, SFP__JSON_ARRAY))
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata 'class_names' is not a JSON list", path);
    if (n > (size_t)max_names)
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata 'class_names' has %zu names, expected at most %d", path, n, max_names);
    TRY(sfp__alloc(&names.name, n, sizeof *names.name, err));
    names.count = (int)n;
    for (size_t i = 0; i < n; i++) {
        const sfp__json_value *v = sfp__json_at(list, i);
        if (!sfp__json_is(v, SFP__JSON_STRING) && !sfp__json_is(v, SFP__JSON_NULL))
            return sfp__fail(err, SFP_EFORMAT, "%s: metadata 'class_names': entry %zu is not a string, expected a string or null",
                             path, i);
        if (sfp__json_is(v, SFP__JSON_STRING) && !(names.name[i] = sfp__strdup(sfp__json_text(v))))
            return sfp__fail_nomem(err);
    }
    *out = TAKE(names);
    return SFP_OK;
}

void sfp__metadata_names_done(sfp__saved_names *n)
{
    for (int i = 0; i < n->count; i++)
        sfp__free(n->name[i]);
    sfp__free(n->name);
    *n = (sfp__saved_names){0};
}

void sfp__metadata_names_commit(sfp__saved_names *n, sfp__learner *l)
{
    l->classes.names_version += n->given;
    for (int i = 0; n->given && i < l->classes.capacity; i++) {
        sfp__free(l->classes.names[i]);
        l->classes.names[i] = i < n->count ? n->name[i] : NULL;
    }
    if (n->given)
        n->count = 0; /* the names belong to the learner now */
}

sfp_status sfp__metadata_classes(sfp__learner *l, const sfp__tensor_file *st, int min_classes, int *out, sfp_error *err)
{
    const sfp__tensor *t = NULL;
    const sfp__param *p = l->fp ? &l->fp->linear_w : NULL;
    const int64_t now = sfp__learner_classes(l);
    TRY(sfp__tensor_file_need(st, p ? p->name : "seen", &t, err));
    bool grows = sfp__learner_label_end(l) != now, rows = p ? t->ndim == 2 && t->shape[1] == p->shape[1] : t->ndim == 1;
    int64_t low = grows ? min_classes : now, high = grows ? SFP__LEARNER_MAX_CLASSES : now;
    if (!rows || t->shape[0] > SFP__LEARNER_MAX_CLASSES)
        TRY(sfp__tensor_expect(st->path, t, p ? p->shape : &now, p ? p->ndim : 1, err));
    if (t->shape[0] < low || t->shape[0] > high)
        return sfp__fail(err, SFP_EINVAL, "%s: number of classes is %lld, expected %s%lld as in the stream", st->path,
                         (long long)t->shape[0], grows ? "at least " : "", (long long)low);
    *out = (int)t->shape[0];
    return SFP_OK;
}

sfp_status sfp__metadata_prepare(sfp__learner *l, const char *path, const sfp__saved_components *components, int classes,
                                 int names, sfp_error *err)
{
    if (!l->fp) {
        TRY(sfp__learner_reserve_classes(l, names, err));
        return sfp__learner_add_classes(l, classes, err);
    }
    const sfp__saved_components before = {l->fp->task, l->fp->frozen_end, l->fp->active_end};
    const sfp__rng rng = l->fp->rng;
    sfp_status s = sfp__fp_restore(l->fp, components->task, components->frozen_end, components->active_end, err);
    if (s)
        return sfp__fail_prefix(err, s, "%s", path);
    s = sfp__learner_reserve_classes(l, names, err);
    if (!s)
        s = sfp__learner_add_classes(l, classes, err);
    if (s)
        /* cannot fail: these were the previous values */
        (void)sfp__fp_restore(l->fp, before.task, before.frozen_end, before.active_end, NULL);
    l->fp->rng = rng;
    return s;
}

/* ----------------------------------------------------------------- backbone */

/* The identity of the backbone that a file belongs to. With another backbone of the same sizes, prompts and heads are
 * meaningless, and only the accuracy would reveal it. */

/* Computes a checksum that distinguishes backbones of the same sizes, from the small tensors that every training changes. */
static unsigned long backbone_sum(const sfp__vit *vit)
{
    const sfp__vit_config *c = &vit->config;
    const sfp__vit_weights *w = &vit->weights;
    size_t D = (size_t)c->dim * sizeof(float), tokens = (size_t)vit->tokens;
    unsigned long sum = crc32_z(0, NULL, 0);
    const struct {
        const float *data;
        size_t bytes;
    } list[] = {{w->cls, D}, {w->pos, tokens * D}, {w->norm_w, D}, {w->norm_b, D}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].data)
            sum = crc32_z(sum, (const unsigned char *)list[i].data, list[i].bytes);
    for (int b = 0; b < c->depth; b++) {
        const float *all[] = {w->blocks[b].norm1_w, w->blocks[b].norm2_w, w->blocks[b].proj_b, w->blocks[b].fc2_b,
                              sfp__vit_first_row(vit, b)};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (all[i])
                sum = crc32_z(sum, (const unsigned char *)all[i], D); /* only the first row of qkv */
    }
    return sum;
}

/* Returns the name of the file without its directory, which may be renamed. */
static const char *file_name(const sfp__vit *vit)
{
    const char *path = sfp__vit_path(vit), *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "random";
}

typedef struct identity {
    char file[SFP__NAME_MAX], sizes[128], sum[16];
} identity;

static identity identify(const sfp__vit *vit)
{
    const sfp__vit_config *c = &vit->config;
    identity id;
    if (c->rows)
        (void)snprintf(id.file, sizeof id.file, SFP__VIT_FEATURES "%d", c->dim);
    else
        (void)sfp__printable(file_name(vit), id.file, sizeof id.file);
    (void)snprintf(id.sizes, sizeof id.sizes, "img %d, patch %d, width %d, depth %d, heads %d, hidden %d", c->img_size,
                   c->patch_size, c->dim, c->depth, c->heads, c->hidden);
    (void)snprintf(id.sum, sizeof id.sum, "%08lx", backbone_sum(vit));
    return id;
}

void sfp__metadata_put_backbone(sfp__file_metadata *m, const sfp__vit *vit)
{
    identity id = identify(vit);
    sfp__metadata_put(m, "backbone-file", id.file);
    sfp__metadata_put(m, "backbone-sizes", id.sizes);
    sfp__metadata_put(m, "backbone", id.sum);
    if (vit->precision)
        sfp__metadata_put(m, "precision", sfp__precision_name(vit->precision));
}

int sfp__metadata_img_size(const sfp__tensor_file *st)
{
    const char *sizes = sfp__tensor_file_meta(st, "backbone-sizes"), *file = sfp__tensor_file_meta(st, "backbone-file");
    char *end = NULL;
    if (!sizes || strncmp(sizes, "img ", 4) != 0 || (file && strncmp(file, SFP__VIT_FEATURES, strlen(SFP__VIT_FEATURES)) == 0))
        return 0; /* features have no input size */
    long side = strtol(sizes + 4, &end, 10);
    return *end == ',' && side > 0 && side <= INT_MAX ? (int)side : 0;
}

sfp_status sfp__metadata_check_backbone(const sfp__tensor_file *st, const sfp__vit *vit, sfp_error *err)
{
    const char *sum = sfp__tensor_file_meta(st, "backbone"), *sizes = sfp__tensor_file_meta(st, "backbone-sizes"),
               *file = sfp__tensor_file_meta(st, "backbone-file");
    identity id = identify(vit);
    if ((!sum || strcmp(sum, id.sum) == 0) && (!sizes || strcmp(sizes, id.sizes) == 0))
        return SFP_OK;
    char was[3][SFP__NAME_MAX], other[sizeof id.sizes];
    int side = sfp__metadata_img_size(st);
    if (side && side != vit->config.img_size) {
        (void)snprintf(other, sizeof other, "img %d%s", side, strchr(id.sizes, ','));
        if (strcmp(other, sizes) == 0)
            return sfp__fail(err, SFP_EINVAL, "%s: input size is %d, expected %d, the size of this backbone; set img-size to %d",
                             st->path, side, vit->config.img_size, side);
    }
    return sfp__fail(
        err, SFP_EINVAL,
        "%s: the backbone is '%s' (%s; checksum %s), expected '%s' (%s; checksum %s), with which this file was learned", st->path,
        id.file, id.sizes, id.sum, sfp__printable(file ? file : "?", was[0], sizeof was[0]),
        sfp__printable(sizes ? sizes : "?", was[1], sizeof was[1]), sfp__printable(sum ? sum : "?", was[2], sizeof was[2]));
}
