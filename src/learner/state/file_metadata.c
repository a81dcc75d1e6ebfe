#include "learner/state/state.h"

#include "base/mem.h"
#include "io/json_read.h"
#include "io/json_write.h"
#include "learner/settings.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ------------------------------------------------------------------ writing */

static char *copy_text(sfp__file_metadata *m, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = sfp__arena_take(&m->arena, size, 1);
    return copy ? memcpy(copy, text, size) : NULL;
}

void sfp__metadata_put(sfp__file_metadata *m, const char *key, const char *value)
{
    const sfp__meta entry = {copy_text(m, key), copy_text(m, value)};
    m->failed =
        m->failed || !entry.key || !entry.value || !sfp__grow(&m->list, sizeof *m->list, m->count, m->count + 1, &m->capacity);
    if (!m->failed)
        m->list[m->count++] = entry;
}

void sfp__metadata_put_int(sfp__file_metadata *m, const char *key, long long value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", value);
    sfp__metadata_put(m, key, text);
}

void sfp__metadata_done(sfp__file_metadata *m)
{
    sfp__arena_done(&m->arena);
    sfp__free(m->list);
    *m = (sfp__file_metadata){0};
}

/* Names come from directories in any encoding; metadata is UTF-8. */
static void put_name(sfp__text *t, const char *name)
{
    char shown[SFP_NAME_MAX];
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

/* Adds a value that is not a setting, or that is saved in another format. */
#define PUT(k, n_, ...)                                                 \
    {                                                                   \
        out[n].kind = SFP_SAVED_##k;                                    \
        out[n].name = n_;                                               \
        (void)snprintf(out[n].value, sizeof out[n].value, __VA_ARGS__); \
        n++;                                                            \
    }

/* Adds the settings with the given keys, separated by blanks. Returns their number. */
static int put_settings(sfp__saved_kind kind, const char *keys, const sfp__learner_options *o, sfp__saved_setting *out)
{
    int n = 0;
    for (char key[32]; *keys; n++) {
        size_t length = strcspn(keys, " ");
        (void)snprintf(key, sizeof key, "%.*s", (int)length, keys);
        keys += length + strspn(keys + length, " ");
        const sfp__setting *s = sfp__settings_find(key);
        out[n].kind = kind;
        out[n].name = s->info.key;
        (void)sfp__setting_saved_text(s, o, out[n].value, sizeof out[n].value);
    }
    return n;
}

/* Adds the settings of SFP_SAVED_INFERENCE: preprocessing of images, batch, seed. */
static int list_inference_settings(const sfp__learner_options *o, sfp__saved_setting *out)
{
    int n = put_settings(SFP_SAVED_INFERENCE, "seed batch resize", o, out);
    n += put_settings(SFP_SAVED_INFERENCE, o->method ? "taps tap-mean ridge slda shrinkage half-life" : "", o, out + n);
    PUT(INFERENCE, "mean", "%.9g,%.9g,%.9g", (double)o->mean[0], (double)o->mean[1], (double)o->mean[2])
    PUT(INFERENCE, "std", "%.9g,%.9g,%.9g", (double)o->std[0], (double)o->std[1], (double)o->std[2])
    return n;
}

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
                              w->blocks[b].qkv_w};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (all[i])
                sum = crc32_z(sum, (const unsigned char *)all[i], D); /* only the first row of qkv */
    }
    return sum;
}

/* Lists all settings. `o` are the options in effect on `vit`; `buffer`: there is a buffer. */
static int list_settings(const sfp__learner_options *o, const sfp__vit *vit, bool buffer, sfp__saved_setting *out)
{
    const sfp__vit_config *c = &vit->config;
    bool free_stream = o->fp.tasks == 0;
    int n = put_settings(SFP_SAVED_STATE, "tasks pool-kind pool prompt-length prompt-layers attune", o, out);
    n += put_settings(SFP_SAVED_STATE, o->fp.attune ? "attune-residual attune-topk" : "", o, out + n);
    n += put_settings(SFP_SAVED_STATE, "prefix", o, out + n);
    PUT(RUN, "img-size", "%d", c->img_size)
    PUT(RUN, "patch-size", "%d", c->patch_size)
    PUT(RUN, "width", "%d", c->dim)
    PUT(RUN, "depth", "%d", c->depth)
    PUT(RUN, "heads", "%d", c->heads)
    PUT(RUN, "hidden", "%d", c->hidden)
    PUT(RUN, "backbone", "%08lx", backbone_sum(vit))
    n += put_settings(SFP_SAVED_RUN, "steps replay select sigma", o, out + n);
    n += put_settings(SFP_SAVED_RUN, "weighted buffer", o, out + n);
    n += put_settings(SFP_SAVED_RUN, buffer ? "buffer-size drop-rule" : "", o, out + n);
    n += put_settings(SFP_SAVED_RUN, "lr", o, out + n);
    PUT(RUN, "adam", "%.9g,%.9g,%.9g", (double)o->adam.beta1, (double)o->adam.beta2, (double)o->adam.eps)
    n += put_settings(SFP_SAVED_RUN, "ortho-mu classes", o, out + n);
    n += put_settings(SFP_SAVED_RUN, free_stream ? "grow-by drift" : "", o, out + n);
    return n + list_inference_settings(o, out + n);
}
#undef PUT

/* Lists the settings that affect the results of a learner. Returns their number. */
static int list_learner_settings(const sfp__learner *l, sfp__saved_setting *out)
{
    return l->opt.method ? list_inference_settings(&l->opt, out) : list_settings(&l->opt, l->vit, l->buffer, out);
}

/* In a checkpoint the keys of settings have a prefix; in a state they have none, so that the file is easy to read. */
static void setting_key(const sfp__saved_setting *s, bool run, char *key, size_t size)
{
    (void)snprintf(key, size, "%s%s", run ? "setting." : "", s->name);
}

void sfp__metadata_put_settings(sfp__file_metadata *m, const sfp__learner *l, bool run)
{
    sfp__saved_setting list[SFP_SAVED_SETTINGS_MAX];
    int n = list_learner_settings(l, list);
    for (int i = 0; i < n; i++) {
        char key[64];
        setting_key(&list[i], run, key, sizeof key);
        if (run || list[i].kind != SFP_SAVED_RUN)
            sfp__metadata_put(m, key, list[i].value);
    }
}

/* ignored: names of settings that may differ, each between blanks. */
static sfp_status check_settings(const sfp__learner *l, const sfp__tensor_file *st, bool run, const char *ignored, sfp_error *err)
{
    sfp__saved_setting list[SFP_SAVED_SETTINGS_MAX];
    int n = list_learner_settings(l, list);
    for (int i = 0; i < n; i++) {
        char key[64], shown[SFP_NAME_MAX], word[64];
        setting_key(&list[i], run, key, sizeof key);
        (void)snprintf(word, sizeof word, " %s ", list[i].name);
        if ((!run && list[i].kind != SFP_SAVED_STATE) || strstr(ignored, word))
            continue;
        const char *found = sfp__tensor_file_meta(st, key);
        if (!found && run)
            return sfp__fail(err, SFP_EFORMAT, "%s: metadata '%s' is missing", st->path, key);
        if (found && strcmp(found, list[i].value) != 0)
            return sfp__fail(err, SFP_EINVAL, "%s: %s is %s, expected %s, the current setting", st->path, list[i].name,
                             sfp__printable(found, shown, sizeof shown), list[i].value);
    }
    return SFP_OK;
}

sfp_status sfp__metadata_check_settings(const sfp__learner *l, const sfp__tensor_file *st, bool run, sfp_error *err)
{
    return check_settings(l, st, run, "", err);
}

sfp_status sfp__metadata_check_learned(const sfp__learner *l, const sfp__tensor_file *st, sfp_error *err)
{
    return check_settings(l, st, true,
                          " seed batch steps replay select sigma weighted buffer buffer-size drop-rule lr adam ortho-mu classes "
                          "grow-by drift ridge ",
                          err);
}

static sfp_status read_setting(const sfp__tensor_file *st, const sfp__vit *vit, const char *key, bool required,
                               sfp__learner_options *o, sfp_error *err)
{
    const char *text = sfp__tensor_file_meta(st, key);
    char value[SFP_NAME_MAX];
    if (!text)
        return required ? sfp__fail(err, SFP_EFORMAT, "%s: metadata '%s' is missing", st->path, key) : SFP_OK;
    sfp_status s = sfp__settings_apply(o, &vit->config, key, sfp__printable(text, value, sizeof value), err);
    return s ? sfp__fail_prefix(err, s, "%s: metadata", st->path) : SFP_OK;
}

/* Reads three numbers such as "0.5,0.5,0.5", each above `min`. */
static sfp_status read_three(const sfp__tensor_file *st, const char *key, double min, float *out, sfp_error *err)
{
    const char *text = sfp__tensor_file_meta(st, key);
    char shown[SFP_NAME_MAX];
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

sfp_status sfp__metadata_read_settings(const sfp__tensor_file *st, const sfp__vit *vit, sfp__learner_options *o, sfp_error *err)
{
    static const struct {
        const char *key;
        bool fingerprints_only, required;
    } list[] = {
        {"pool-kind", true, false}, {"pool", true, true},         {"prompt-length", true, true},    {"prompt-layers", true, true},
        {"attune", true, false},    {"attune-topk", true, false}, {"attune-residual", true, false}, {"prefix", true, false},
        {"resize", false, false},     {"batch", false, false},          {"seed", false, false},
        {"taps", false, false},       {"slda", false, false},           {"tap-mean", false, false}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!(list[i].fingerprints_only && o->method))
            TRY(read_setting(st, vit, list[i].key, list[i].required, o, err));
    TRY(read_three(st, "mean", -1e6, o->mean, err));
    return read_three(st, "std", 0, o->std, err);
}

/* ------------------------------------------------------------------ reading */

sfp_status sfp__metadata_check_format(const sfp__tensor_file *st, const char *format, int version, bool required, sfp_error *err)
{
    const char *path = st->path, *found = sfp__tensor_file_meta(st, "format");
    char shown[SFP_NAME_MAX];
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

sfp_status sfp__metadata_int(const sfp__tensor_file *st, const char *key, long long min, long long max, long long *out,
                             sfp_error *err)
{
    const char *text = sfp__tensor_file_meta(st, key), *path = st->path;
    char shown[SFP_NAME_MAX], *end = NULL;
    if (!text)
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata '%s' is missing", path, key);
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno || v < min || v > max)
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata '%s' is '%s', expected a number from %lld to %lld", path, key,
                         sfp__printable(text, shown, sizeof shown), min, max);
    *out = v;
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
    if (!sfp__json_is(list, SFP_JSON_ARRAY))
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata 'class_names' is not a JSON list", path);
    if (n > (size_t)max_names)
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata 'class_names' has %zu names, expected at most %d", path, n, max_names);
    TRY(sfp__alloc(&names.name, n, sizeof *names.name, err));
    names.count = (int)n;
    for (size_t i = 0; i < n; i++) {
        const sfp__json_value *v = sfp__json_at(list, i);
        if (!sfp__json_is(v, SFP_JSON_STRING) && !sfp__json_is(v, SFP_JSON_NULL))
            return sfp__fail(err, SFP_EFORMAT, "%s: metadata 'class_names': entry %zu is not a string, expected a string or null",
                             path, i);
        if (sfp__json_is(v, SFP_JSON_STRING) && !(names.name[i] = sfp__strdup(sfp__json_text(v))))
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
    int64_t low = grows ? min_classes : now, high = grows ? SFP_LEARNER_MAX_CLASSES : now;
    if (!rows || t->shape[0] > SFP_LEARNER_MAX_CLASSES)
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

/* Returns the name of the file without its directory, which may be renamed. */
static const char *file_name(const sfp__vit *vit)
{
    const char *path = sfp__vit_path(vit), *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "random";
}

typedef struct identity {
    char file[SFP_NAME_MAX], sizes[128], sum[16];
} identity;

static identity identify(const sfp__vit *vit)
{
    const sfp__vit_config *c = &vit->config;
    identity id;
    if (c->rows)
        (void)snprintf(id.file, sizeof id.file, SFP_VIT_FEATURES "%d", c->dim);
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
    if (vit->precision == SFP_PRECISION_BF16)
        sfp__metadata_put(m, "precision", "bf16");
}

int sfp__metadata_img_size(const sfp__tensor_file *st)
{
    const char *sizes = sfp__tensor_file_meta(st, "backbone-sizes"), *file = sfp__tensor_file_meta(st, "backbone-file");
    char *end = NULL;
    if (!sizes || strncmp(sizes, "img ", 4) != 0 || (file && strncmp(file, SFP_VIT_FEATURES, strlen(SFP_VIT_FEATURES)) == 0))
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
    char was[3][SFP_NAME_MAX], other[sizeof id.sizes];
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
