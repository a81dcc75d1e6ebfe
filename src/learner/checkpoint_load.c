/* Reading a checkpoint. The checksum comes first, on the bytes as they lie, so
 * that a damaged file is never parsed; what passes is still taken as hostile:
 * every size, label and count is checked before the first value is changed,
 * and after that nothing can fail. */
#include "learner/checkpoint.h"

#include "base/mem.h"
#include "io/file.h"
#include "learner/parts.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

typedef struct loaded {
    sfp_learner *l;
    const char *path;
    sfp_tensor_file *st;
    int classes, filled;
    sfp_saved_span span;
    sfp_saved_names names;
    sfp_rng rng[SFP_CHECKPOINT_RNGS];
    int64_t counters[SFP_CHECKPOINT_COUNTERS];
    double drift[SFP_CHECKPOINT_DRIFT];
    double mix[1 + SFP_HEAD_EXPERTS];
    const sfp_tensor *id, *born, *image_size, *label, *has_query, *query, *mean_embed, *image, *seen, *allowed;
    sfp_head *heads[SFP_HEAD_EXPERTS];
    char *position;
} loaded;

/* ------------------------------------------------------------------ the file */

/* All of the file in a new block, when its checksum holds. It is read, not mapped: a bad sector is an error then, no signal. */
static sfp_status read_whole(const char *path, uint8_t **bytes, size_t *size, sfp_error *err)
{
    OWNED uint8_t *block = NULL;
    size_t n = 0;
    uint32_t found = 0, expected = 0;
    TRY(sfp__file_read(path, SIZE_MAX, &block, &n, err));
    if (n < 16)
        return sfp__fail(err, SFP_EFORMAT, "%s: has %zu bytes, which is no checkpoint", path, n);
    memcpy(&expected, block + n - sizeof expected, sizeof expected);
    found = (uint32_t)crc32_z(crc32_z(0, NULL, 0), block, n - sizeof expected);
    sfp_tensor_file *st = NULL;
    if (found != expected && !sfp__safetensors_open_memory(path, block, n, &st, NULL)) {
        bool earlier = sfp__tensor_file_meta(st, "kind") && sfp__tensor_file_meta(st, "position"); /* a method's, version 2 */
        sfp__tensor_file_close(st);
        if (earlier)
            return sfp__fail(err, SFP_EUNSUPPORTED, "%s: " SFP_SAVED_EARLIER, path);
    }
    if (found != expected)
        return sfp__fail(err, SFP_EFORMAT, "%s: is damaged: its checksum is %08x, expected %08x", path, found, expected);
    *bytes = TAKE(block);
    *size = n;
    return SFP_OK;
}

sfp_status sfp__checkpoint_check(const char *path, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    size_t size = 0;
    return read_whole(path, &bytes, &size, err);
}

sfp_status sfp__checkpoint_look(const char *path, char *method, size_t size, char **position, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    OWNED_PTR(sfp__tensor_file_close) sfp_tensor_file *st = NULL;
    size_t n = 0;
    TRY(read_whole(path, &bytes, &n, err));
    TRY(sfp__safetensors_open_memory(path, bytes, n, &st, err));
    TRY(sfp__saved_check_format(st, SFP_CHECKPOINT_FORMAT, SFP_CHECKPOINT_VERSION, true, err));
    const char *made_by = sfp__tensor_file_meta(st, "method"), *text = sfp__tensor_file_meta(st, "position");
    if (!text)
        return sfp__fail(err, SFP_EFORMAT, "%s: not a checkpoint", path);
    if (!(*position = sfp__strdup(text)))
        return sfp__fail_nomem(err);
    (void)sfp__printable(made_by ? made_by : "", method, size);
    return SFP_OK;
}

/* ------------------------------------------------------------------ checking */

static sfp_status find(const loaded *f, const char *name, sfp_dtype dtype, int ndim, const int64_t *shape, const sfp_tensor **out,
                       sfp_error *err)
{
    const sfp_tensor *t = NULL;
    sfp_status s = sfp__tensor_file_need(f->st, name, &t, err);
    if (!s && t->dtype != dtype)
        s = sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s' is %s, expected %s", f->path, name, sfp__dtype_name(t->dtype),
                      sfp__dtype_name(dtype));
    if (!s)
        s = sfp__tensor_expect(f->path, t, shape, ndim, err);
    if (!s)
        *out = t;
    return s;
}

/* ... and copies it. */
static sfp_status get(const loaded *f, const char *name, sfp_dtype dtype, int ndim, const int64_t *shape, void *out,
                      sfp_error *err)
{
    const sfp_tensor *t = NULL;
    sfp_status s = find(f, name, dtype, ndim, shape, &t, err);
    if (!s)
        memcpy(out, t->data, t->bytes);
    return s;
}

static int64_t i64_at(const sfp_tensor *t, int i)
{
    int64_t v;
    memcpy(&v, (const uint8_t *)t->data + (size_t)i * sizeof v, sizeof v);
    return v;
}

static int32_t i32_at(const sfp_tensor *t, int i)
{
    int32_t v;
    memcpy(&v, (const uint8_t *)t->data + (size_t)i * sizeof v, sizeof v);
    return v;
}

static sfp_status check_rngs(loaded *f, sfp_error *err)
{
    static const int64_t shape[] = {SFP_CHECKPOINT_RNGS, SFP_CHECKPOINT_RNG};
    int64_t v[SFP_CHECKPOINT_RNGS][SFP_CHECKPOINT_RNG];
    sfp_status s = get(f, "rng", SFP_DTYPE_I64, 2, shape, v, err);
    for (int i = 0; !s && i < SFP_CHECKPOINT_RNGS; i++) {
        sfp_rng *r = &f->rng[i];
        *r = (sfp_rng){
            .key = (uint64_t)v[i][0], .stream = (uint64_t)v[i][1], .counter = (uint64_t)v[i][2], .left = (uint32_t)v[i][7]};
        bool fine = v[i][7] >= 0 && v[i][7] <= 4;
        for (int k = 0; k < 4; k++) {
            fine = fine && v[i][3 + k] >= 0 && v[i][3 + k] <= UINT32_MAX;
            r->block[k] = (uint32_t)v[i][3 + k];
        }
        if (!fine)
            s = sfp__fail(err, SFP_EFORMAT, "%s: tensor 'rng', row %d, is no state of a generator", f->path, i);
    }
    return s;
}

static sfp_status check_numbers(loaded *f, sfp_error *err)
{
    static const int64_t drift = SFP_CHECKPOINT_DRIFT, mix = 1 + SFP_HEAD_EXPERTS;
    const sfp_fp_options *o = &f->l->fp->opt;
    long long task = 0, start = 0, open = 0;
    TRY(get(f, "drift", SFP_DTYPE_F64, 1, &drift, f->drift, err));
    if (f->l->opt.head == SFP_HEAD_MIX)
        TRY(get(f, "mix", SFP_DTYPE_F64, 1, &mix, f->mix, err));
    TRY(check_rngs(f, err));
    TRY(sfp__saved_int(f->st, "task", 0, o->tasks > 0 ? o->tasks - 1 : 0, &task, err));
    TRY(sfp__saved_int(f->st, "open", 1, o->pool, &open, err));
    TRY(sfp__saved_int(f->st, "start", 0, open - 1, &start, err));
    f->span = (sfp_saved_span){(int)task, (int)start, (int)open};
    return SFP_OK;
}

static sfp_status check_counters(loaded *f, sfp_error *err)
{
    static const int64_t counters = SFP_CHECKPOINT_COUNTERS;
    TRY(get(f, "counters", SFP_DTYPE_I64, 1, &counters, f->counters, err));
    for (int i = 0; i < SFP_CHECKPOINT_COUNTERS; i++)
        if (f->counters[i] < 0)
            return sfp__fail(err, SFP_EFORMAT, "%s: tensor 'counters' has %lld as element %d", f->path, (long long)f->counters[i],
                             i);
    for (int i = 6; i < SFP_CHECKPOINT_COUNTERS; i++)
        if (f->counters[i] > INT32_MAX)
            return sfp__fail(err, SFP_EFORMAT, "%s: tensor 'counters' has %lld as element %d, expected a limit", f->path,
                             (long long)f->counters[i], i);
    return SFP_OK;
}

/* The tensors of a parameter; the classifier has the file's rows. */
typedef struct param_file {
    const sfp_tensor *data, *m, *v, *steps;
} param_file;

static sfp_status find_param(const loaded *f, const sfp_param *p, param_file *out, sfp_error *err)
{
    int64_t shape[3];
    char name[64];
    sfp_status s;
    memcpy(shape, p->shape, sizeof shape);
    if (p == &f->l->fp->last_w || p == &f->l->fp->last_b)
        shape[0] = f->classes;
    const struct {
        const char *prefix;
        sfp_dtype dtype;
        int ndim;
        const sfp_tensor **to;
    } list[] = {{"", SFP_DTYPE_F32, p->ndim, &out->data},
                {"adam.m.", SFP_DTYPE_F32, p->ndim, &out->m},
                {"adam.v.", SFP_DTYPE_F32, p->ndim, &out->v},
                {"adam.steps.", SFP_DTYPE_I32, 1, &out->steps}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        (void)snprintf(name, sizeof name, "%s%s", list[i].prefix, p->name);
        if ((s = find(f, name, list[i].dtype, list[i].ndim, shape, list[i].to, err)))
            return s;
    }
    return SFP_OK;
}

static sfp_status check_params(loaded *f, sfp_error *err)
{
    int count = 0;
    sfp_param **params = sfp__fp_params(f->l->fp, &count);
    for (int i = 0; i < count; i++) {
        param_file unused = {0};
        TRY(find_param(f, params[i], &unused, err));
    }
    return SFP_OK;
}

static sfp_status check_slots(const loaded *f, size_t most, int64_t *total, sfp_error *err)
{
    *total = 0;
    for (int i = 0; i < f->filled; i++) {
        int64_t size = i64_at(f->image_size, i);
        int32_t label = i32_at(f->label, i);
        uint8_t has = ((const uint8_t *)f->has_query->data)[i];
        if (size < 0 || (uint64_t)size > most || label < 0 || label >= f->classes || has > 1)
            return sfp__fail(err, SFP_EFORMAT,
                             "%s: slot %d has a picture of %lld bytes and label %d, expected at most %zu and a label below %d",
                             f->path, i, (long long)size, label, most, f->classes);
        if (!f->l->opt.keep_compressed && (uint64_t)size != most)
            return sfp__fail(err, SFP_EFORMAT, "%s: slot %d has a picture of %lld bytes, expected %zu", f->path, i,
                             (long long)size, most);
        *total += size; /* both factors are small: at most slots * image_bytes, which fits memory */
    }
    return SFP_OK;
}

static sfp_status check_buffer(loaded *f, sfp_error *err)
{
    const sfp_buffer_options *o = f->l->buffer ? &f->l->buffer->opt : NULL;
    const sfp_tensor *label = NULL;
    sfp_status s = sfp__tensor_file_need(f->st, "buffer.label", &label, err);
    if (s)
        return s;
    int slots = o ? o->slots : 0;
    if (label->ndim != 1 || label->shape[0] > slots || label->shape[0] > f->counters[5])
        return sfp__fail(err, SFP_EFORMAT, "%s: %lld slots are filled from %lld samples, expected at most %d slots", f->path,
                         label->ndim == 1 ? (long long)label->shape[0] : -1LL, (long long)f->counters[5], slots);
    f->filled = (int)label->shape[0];
    const int64_t n = f->filled, vectors[] = {n, f->l->D};
    int64_t total = 0;
    if ((s = find(f, "buffer.label", SFP_DTYPE_I32, 1, &n, &f->label, err)) ||
        (s = find(f, "buffer.id", SFP_DTYPE_I64, 1, &n, &f->id, err)) ||
        (s = find(f, "buffer.born", SFP_DTYPE_I64, 1, &n, &f->born, err)) ||
        (s = find(f, "buffer.image_size", SFP_DTYPE_I64, 1, &n, &f->image_size, err)) ||
        (s = find(f, "buffer.has_query", SFP_DTYPE_U8, 1, &n, &f->has_query, err)) ||
        (s = find(f, "buffer.query", SFP_DTYPE_F32, 2, vectors, &f->query, err)) ||
        (s = find(f, "buffer.mean_embed", SFP_DTYPE_F32, 2, vectors, &f->mean_embed, err)) ||
        (s = check_slots(f, o ? o->image_bytes : 0, &total, err)))
        return s;
    return find(f, "buffer.image", SFP_DTYPE_U8, 1, &total, &f->image, err);
}

static sfp_status load_heads(loaded *f, sfp_error *err)
{
    TRY(sfp__learner_make_heads(f->l, f->heads, err));
    for (int i = 0; i < SFP_HEAD_EXPERTS; i++) {
        char prefix[32];
        if (!f->heads[i])
            continue;
        (void)snprintf(prefix, sizeof prefix, "head.%s", sfp__head_kind(f->heads[i]));
        TRY(sfp__head_load(f->heads[i], prefix, sfp__saved_find, f->st, f->path, err));
    }
    return SFP_OK;
}

static sfp_status check_all(loaded *f, sfp_error *err)
{
    sfp_learner *l = f->l;
    TRY(sfp__saved_classes(l, f->st, 0, &f->classes, err));
    if (l->fp)
        TRY(check_params(f, err));
    TRY(check_counters(f, err));
    if (l->fp) {
        TRY(check_numbers(f, err));
        TRY(check_buffer(f, err));
        TRY(sfp__parts_check("select", l->selector->parts, l->select_state, f->st, err));
        TRY(sfp__parts_check_buffer(l->buffer, f->st, err));
    }
    const int64_t classes = f->classes;
    const char *position = sfp__tensor_file_meta(f->st, "position");
    TRY(find(f, "seen", SFP_DTYPE_U8, 1, &classes, &f->seen, err));
    TRY(find(f, "allowed", SFP_DTYPE_U8, 1, &classes, &f->allowed, err));
    TRY(sfp__saved_names_read(f->st, sfp__learner_label_max(l), &f->names, err));
    TRY(load_heads(f, err));
    if (!(f->position = sfp__strdup(position ? position : "")))
        return sfp__fail_nomem(err);
    return SFP_OK;
}

/* -------------------------------------------------------------------- commit */

static void copy(void *to, const sfp_tensor *from)
{
    if (from->bytes > 0)
        memcpy(to, from->data, from->bytes);
}

static void commit_buffer(const loaded *f)
{
    sfp_buffer *b = f->l->buffer;
    size_t D = (size_t)f->l->D * sizeof(float);
    const uint8_t *image = f->image->data;
    for (int i = 0; i < f->filled; i++) {
        sfp_slot *slot = &b->slot[i];
        slot->label = i32_at(f->label, i);
        slot->id = (uint64_t)i64_at(f->id, i);
        slot->born = (uint64_t)i64_at(f->born, i);
        slot->image_size = (size_t)i64_at(f->image_size, i);
        slot->has_query = ((const uint8_t *)f->has_query->data)[i];
        memcpy(slot->query, (const uint8_t *)f->query->data + (size_t)i * D, D);
        memcpy(slot->mean_embed, (const uint8_t *)f->mean_embed->data + (size_t)i * D, D);
        memcpy(slot->image, image, slot->image_size);
        image += slot->image_size;
    }
    if (b)
        (void)sfp__buffer_restore(b, f->filled, (uint64_t)f->counters[5], NULL); /* all it asks for was checked */
}

static void commit_params(const loaded *f)
{
    int count = 0;
    sfp_param **params = sfp__fp_params(f->l->fp, &count);
    for (int i = 0; i < count; i++) {
        sfp_param *p = params[i];
        param_file from = {0};
        (void)find_param(f, p, &from, NULL);
        if (from.steps->shape[0] < p->rows)
            sfp__param_shrink(p, (int)from.steps->shape[0]);
        copy(p->data, from.data);
        copy(p->m, from.m);
        copy(p->v, from.v);
        copy(p->steps, from.steps);
    }
    sfp__fp_changed(f->l->fp);
}

static void commit_fingerprints(const loaded *f)
{
    sfp_learner *l = f->l;
    sfp_rng *rngs[SFP_CHECKPOINT_RNGS];
    commit_params(f);
    commit_buffer(f);
    sfp__parts_load("select", l->selector->parts, l->select_state, f->st);
    sfp__parts_load_buffer(l->buffer, f->st);
    sfp__checkpoint_rngs(l, rngs);
    for (int i = 0; i < SFP_CHECKPOINT_RNGS; i++)
        *rngs[i] = f->rng[i];
    const double *d = f->drift;
    l->detector = (sfp_drift_detector){d[0], d[1], d[2], d[3], d[4], d[5], d[6]};
    if (l->opt.head == SFP_HEAD_MIX) {
        l->mix.count = f->mix[0];
        memcpy(l->mix.loss, f->mix + 1, SFP_HEAD_EXPERTS * sizeof *f->mix);
    }
}

static void commit(loaded *f)
{
    sfp_learner *l = f->l;
    if (l->fp)
        commit_fingerprints(f);
    const int64_t *c = f->counters;
    l->counts = (sfp_learner_counts){(uint64_t)c[0], (uint64_t)c[1], (uint64_t)c[2], (uint64_t)c[3], (uint64_t)c[4]};
    sfp__learner_limit(l, (int)c[6], (int)c[7], (int)c[8]);
    sfp__learner_slack(l, c[9] == 0);
    for (int i = 0; i < SFP_HEAD_EXPERTS; i++) {
        sfp_head *before = l->heads[i];
        l->heads[i] = f->heads[i];
        f->heads[i] = before;
    }
    memset(l->seen, 0, (size_t)l->class_room);
    memset(l->allowed, 0, (size_t)l->class_room);
    copy(l->seen, f->seen);
    copy(l->allowed, f->allowed);
    sfp__saved_names_commit(&f->names, l);
}

static sfp_status check_method(const loaded *f, sfp_error *err)
{
    const char *then = sfp__tensor_file_meta(f->st, "method"), *now = f->l->opt.method;
    char shown[SFP_NAME_MAX];
    if (strcmp(then ? then : "", now ? now : "") != 0)
        return sfp__fail(err, SFP_EINVAL, "%s: was made by method %s, now it is %s", f->path,
                         then ? sfp__printable(then, shown, sizeof shown) : "none", now ? now : "none");
    return now ? sfp__saved_check_backbone(f->st, f->l->vit, err) : SFP_OK;
}

sfp_status sfp__checkpoint_load(sfp_learner *l, const char *path, char **position, sfp_error *err)
{
    loaded f = {.l = l, .path = path};
    uint8_t *bytes = NULL;
    size_t size = 0;
    sfp_status s = read_whole(path, &bytes, &size, err);
    if (s)
        return s;
    if ((s = sfp__safetensors_open_memory(path, bytes, size, &f.st, err)) ||
        (s = sfp__saved_check_format(f.st, SFP_CHECKPOINT_FORMAT, SFP_CHECKPOINT_VERSION, true, err)) ||
        (s = check_method(&f, err)) || (s = sfp__saved_check_settings(l, f.st, true, err)))
        goto done;
    /* the settings are the same, so whatever does not fit now is the file's fault */
    s = check_all(&f, err);
    if (!s)
        s = sfp__saved_prepare(l, path, &f.span, f.classes, f.names.count, err);
    if (s) {
        s = s == SFP_ENOMEM ? s : SFP_EFORMAT;
        err->status = s;
        goto done;
    }
    commit(&f);
    *position = f.position;
    f.position = NULL;
    s = sfp__learner_publish(l, err);
done:
    for (int i = 0; i < SFP_HEAD_EXPERTS; i++)
        sfp__head_free(f.heads[i]);
    sfp__saved_names_done(&f.names);
    sfp__tensor_file_close(f.st);
    sfp__free(f.position);
    sfp__free(bytes);
    return s;
}
