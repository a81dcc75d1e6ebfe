/* Checkpoints (state.h has the format): one list of tensors that is written, checked and read.
 *
 * The checksum of a file is verified first, on the raw bytes, so that a damaged file is never parsed. A file that passes may
 * still be malicious: every size, label and count is checked before the first value is changed, and after that nothing can
 * fail. */
#include "learner/state/state.h"

#include "base/mem.h"
#include "base/settings.h"
#include "learner/state/visit.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>

/* A visit of the learner by visitor `v`. */
typedef struct visit {
    sfp__learner *l;
    sfp__visitor v;
    bool commits;        /* it reads values that were checked before, and changes the learner */
    int classes, filled; /* those of the file, or of the learner when writing */
    int64_t buffer_seen, image_bytes;
} visit;

/* ------------------------------------------------------------------- numbers */

static sfp_status visit_counters(visit *f, sfp_error *err)
{
    sfp__learner *l = f->l;
    const sfp__learner_counts *n = &l->counts;
    int64_t c[] = {(int64_t)n->timestamps, (int64_t)n->offered,  (int64_t)n->scored,
                   (int64_t)n->trained,    (int64_t)n->replayed, l->buffer ? (int64_t)l->buffer->seen : 0,
                   l->limits.coreset,      l->limits.replay,     l->limits.steps};
    enum { COUNTERS = sizeof c / sizeof *c, LIMITS = 6 };
    TRY(sfp__visit_values(&f->v, "counters", SFP_DTYPE_I64, COUNTERS, c, err));
    for (int i = 0; i < COUNTERS; i++)
        if (c[i] < 0 || (i >= LIMITS && c[i] > INT32_MAX))
            return sfp__fail(err, SFP_EFORMAT, "%s: tensor 'counters' has %lld as element %d, expected a %s", f->v.file,
                             (long long)c[i], i, i < LIMITS ? "count" : "limit");
    f->buffer_seen = c[5];
    if (!f->commits)
        return SFP_OK;
    l->counts = (sfp__learner_counts){(uint64_t)c[0], (uint64_t)c[1], (uint64_t)c[2], (uint64_t)c[3], (uint64_t)c[4]};
    sfp__learner_set_limits(l, (int)c[6], (int)c[7], (int)c[8]);
    return SFP_OK;
}

static sfp_status visit_rng(visit *f, const char *name, sfp__rng *r, sfp_error *err)
{
    int64_t n[] = {(int64_t)r->key, (int64_t)r->stream, (int64_t)r->counter, r->block[0],
                   r->block[1],     r->block[2],        r->block[3],         r->left};
    TRY(sfp__visit_values(&f->v, name, SFP_DTYPE_I64, sizeof n / sizeof *n, n, err));
    bool fine = n[7] >= 0 && n[7] <= 4;
    for (int k = 0; k < 4; k++)
        fine = fine && n[3 + k] >= 0 && n[3 + k] <= UINT32_MAX;
    if (!fine)
        return sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s' is not a state of a random generator", f->v.file, name);
    if (f->commits)
        *r = (sfp__rng){.key = (uint64_t)n[0],
                        .stream = (uint64_t)n[1],
                        .counter = (uint64_t)n[2],
                        .block = {(uint32_t)n[3], (uint32_t)n[4], (uint32_t)n[5], (uint32_t)n[6]},
                        .left = (uint32_t)n[7]};
    return SFP_OK;
}

static sfp_status visit_drift(visit *f, sfp_error *err)
{
    sfp__drift_detector *d = &f->l->detector;
    double n[] = {d->count, d->mean, d->m2, d->up, d->up_min, d->down, d->down_max};
    TRY(sfp__visit_values(&f->v, "drift", SFP_DTYPE_F64, sizeof n / sizeof *n, n, err));
    if (f->commits)
        *d = (sfp__drift_detector){n[0], n[1], n[2], n[3], n[4], n[5], n[6]};
    return SFP_OK;
}

/* ---------------------------------------------------------------- parameters */

/* Visits values and moments of Adam; the linear head has as many rows as in the file. */
static sfp_status visit_param(visit *f, sfp__param *p, sfp_error *err)
{
    const struct {
        const char *prefix;
        sfp__dtype dtype;
        int ndim;
        void *data;
    } list[] = {{"", SFP_DTYPE_F32, p->ndim, p->data},
                {"adam.m.", SFP_DTYPE_F32, p->ndim, p->m},
                {"adam.v.", SFP_DTYPE_F32, p->ndim, p->v},
                {"adam.steps.", SFP_DTYPE_I32, 1, p->steps}};
    int64_t shape[3];
    char name[64];
    memcpy(shape, p->shape, sizeof shape);
    if (p == &f->l->fp->linear_w || p == &f->l->fp->linear_b)
        shape[0] = f->classes;
    if (f->commits && shape[0] < p->rows)
        sfp__param_shrink(p, (int)shape[0]);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        (void)snprintf(name, sizeof name, "%s%s", list[i].prefix, p->name);
        TRY(sfp__visit(&f->v, name, list[i].dtype, list[i].ndim, shape, list[i].data, err));
    }
    return SFP_OK;
}

/* -------------------------------------------------------------------- buffer */

#define SLOT_FIELD(field, at, size)                                \
    static void *slot_##field(void *learner, int i, size_t *bytes) \
    {                                                              \
        sfp__learner *l = learner;                                 \
        sfp__slot *slot = &l->buffer->slot[i];                     \
        *bytes = size;                                             \
        return at;                                                 \
    }
SLOT_FIELD(id, &slot->id, sizeof slot->id)
SLOT_FIELD(stored_at, &slot->stored_at, sizeof slot->stored_at)
SLOT_FIELD(image_size, &slot->image_size, sizeof slot->image_size)
SLOT_FIELD(label, &slot->label, sizeof slot->label)
SLOT_FIELD(has_query, &slot->has_query, sizeof slot->has_query)
SLOT_FIELD(query, slot->query, (size_t)l->D * sizeof(float))
SLOT_FIELD(mean_embed, slot->mean_embed, (size_t)l->D * sizeof(float))
SLOT_FIELD(image, slot->image, slot->image_size)
#undef SLOT_FIELD

static int64_t number_at(const sfp__tensor *t, int i)
{
    int64_t wide = 0;
    int32_t narrow = 0;
    size_t size = t->dtype == SFP_DTYPE_I64 ? sizeof wide : sizeof narrow;
    memcpy(size == sizeof wide ? (void *)&wide : (void *)&narrow, (const char *)t->data + (size_t)i * size, size);
    return size == sizeof wide ? wide : narrow;
}

/* Checks the slots of a file before any slot is changed. */
static sfp_status check_slots(visit *f, sfp_error *err)
{
    const sfp__learner *l = f->l;
    const sfp__tensor *label = NULL, *size = NULL, *has = NULL;
    int slots = l->buffer ? l->buffer->opt.slots : 0;
    size_t max_bytes = l->buffer ? l->buffer->opt.image_bytes : 0;
    TRY(sfp__visit_find(&f->v, "buffer.label", SFP_DTYPE_I32, &label, err));
    TRY(sfp__visit_find(&f->v, "buffer.image_size", SFP_DTYPE_I64, &size, err));
    TRY(sfp__visit_find(&f->v, "buffer.has_query", SFP_DTYPE_U8, &has, err));
    if (label->ndim != 1 || label->shape[0] > slots || label->shape[0] > f->buffer_seen || size->count != label->count ||
        has->count != label->count)
        return sfp__fail(err, SFP_EFORMAT, "%s: number of filled slots is %lld after %lld samples, expected at most %d slots",
                         f->v.file, (long long)label->count, (long long)f->buffer_seen, slots);
    f->filled = (int)label->shape[0];
    for (int i = 0; i < f->filled; i++) {
        int64_t bytes = number_at(size, i), y = number_at(label, i);
        if (bytes < 0 || (uint64_t)bytes > max_bytes || y < 0 || y >= f->classes || ((const uint8_t *)has->data)[i] > 1)
            return sfp__fail(err, SFP_EFORMAT,
                             "%s: slot %d has an image of %lld bytes and label %lld, expected at most %zu and a label below %d",
                             f->v.file, i, (long long)bytes, (long long)y, max_bytes, f->classes);
        if (!l->opt.keep_compressed && (uint64_t)bytes != max_bytes)
            return sfp__fail(err, SFP_EFORMAT, "%s: slot %d has an image of %lld bytes, expected %zu", f->v.file, i,
                             (long long)bytes, max_bytes);
        f->image_bytes += bytes; /* no overflow: at most slots * image_bytes, which fits in memory */
    }
    return SFP_OK;
}

static sfp_status visit_buffer(visit *f, sfp_error *err)
{
    sfp__learner *l = f->l;
    f->image_bytes = 0;
    if (!f->v.put) {
        TRY(check_slots(f, err));
    } else {
        f->filled = l->buffer ? l->buffer->filled : 0;
        for (int i = 0; i < f->filled; i++)
            f->image_bytes += (int64_t)l->buffer->slot[i].image_size;
    }
    const int64_t vectors[] = {f->filled, l->D};
    const struct {
        const char *name;
        sfp__dtype dtype;
        int ndim;
        const int64_t *shape;
        void *(*at)(void *ctx, int i, size_t *bytes);
    } list[] = {{"buffer.id", SFP_DTYPE_I64, 1, vectors, slot_id},
                {"buffer.born", SFP_DTYPE_I64, 1, vectors, slot_stored_at},
                {"buffer.image_size", SFP_DTYPE_I64, 1, vectors, slot_image_size},
                {"buffer.query", SFP_DTYPE_F32, 2, vectors, slot_query},
                {"buffer.mean_embed", SFP_DTYPE_F32, 2, vectors, slot_mean_embed},
                {"buffer.label", SFP_DTYPE_I32, 1, vectors, slot_label},
                {"buffer.has_query", SFP_DTYPE_U8, 1, vectors, slot_has_query},
                {"buffer.image", SFP_DTYPE_U8, 1, &f->image_bytes, slot_image}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const sfp__pieces pieces = {f->filled, list[i].at, l};
        TRY(sfp__visit_pieces(&f->v, list[i].name, list[i].dtype, list[i].ndim, list[i].shape, &pieces, err));
    }
    if (f->commits && l->buffer)
        TRY(sfp__buffer_restore(l->buffer, f->filled, (uint64_t)f->buffer_seen, err)); /* cannot fail: the values were checked */
    if (!l->buffer)
        return SFP_OK;
    char prefix[40];
    sfp__visitor v = f->v;
    (void)snprintf(prefix, sizeof prefix, "buffer.%s", l->buffer->method->name);
    v.prefix = prefix;
    return sfp__visit_state_tensors(&v, l->buffer->method->state_tensors, l->buffer->state, err);
}

/* ------------------------------------------------------------------- the list */

static sfp_status visit_fingerprints(visit *f, sfp_error *err)
{
    sfp__learner *l = f->l;
    int count = 0;
    sfp__param **params = sfp__fp_params(l->fp, &count);
    sfp__visitor selector = f->v;
    selector.prefix = "select";
    TRY(visit_rng(f, "rng.fingerprints", &l->fp->rng, err));
    TRY(visit_rng(f, "rng.select", &l->select_rng, err));
    TRY(visit_rng(f, "rng.replay", &l->replay_rng, err));
    TRY(visit_rng(f, "rng.buffer", &l->buffer_rng, err));
    TRY(visit_drift(f, err));
    for (int i = 0; i < count; i++)
        TRY(visit_param(f, params[i], err));
    if (f->commits)
        sfp__fp_changed(l->fp);
    TRY(sfp__visit_state_tensors(&selector, l->selector->state_tensors, l->select_state, err));
    if (l->diagnostics) {
        sfp__visitor diagnostics = f->v;
        diagnostics.prefix = "diagnostics";
        TRY(sfp__visit_state_tensors(&diagnostics, sfp__diagnostics_tensors, l->diagnostics, err));
    }
    return visit_buffer(f, err);
}

static sfp_status visit_learner(visit *f, sfp_error *err)
{
    sfp__learner *l = f->l;
    const int64_t classes = f->classes;
    TRY(visit_counters(f, err));
    if (l->fp)
        TRY(visit_fingerprints(f, err));
    if (f->commits) {
        memset(l->classes.seen, 0, (size_t)l->classes.capacity);
        memset(l->classes.allowed, 0, (size_t)l->classes.capacity);
    }
    TRY(sfp__visit(&f->v, "seen", SFP_DTYPE_U8, 1, &classes, l->classes.seen, err));
    return sfp__visit(&f->v, "allowed", SFP_DTYPE_U8, 1, &classes, l->classes.allowed, err);
}

/* ------------------------------------------------------------------- writing */

static sfp_status write_file(sfp__learner *l, const char *path, const char *position, sfp__tensor_list *parts, sfp_error *err)
{
    OWNED_BY(sfp__metadata_done) sfp__file_metadata meta = {0};
    sfp__metadata_put(&meta, "format", SFP_CHECKPOINT_FORMAT);
    sfp__metadata_put_int(&meta, "version", SFP_CHECKPOINT_VERSION);
    if (l->opt.method) /* with fingerprints the settings include the backbone */
        sfp__metadata_put_backbone(&meta, l->vit);
    sfp__metadata_put_common(&meta, l);
    sfp__metadata_put(&meta, "position", position ? position : "");
    sfp__metadata_put_settings(&meta, l, true);
    TRY(sfp__check_memory(!meta.failed, err));
    return sfp__backed_file_write(&l->checkpoint, path, parts, meta.list, meta.count, err);
}

sfp_status sfp__learner_checkpoint(sfp__learner *l, const char *path, const char *position, sfp_error *err)
{
    OWNED_BY(sfp__tensor_list_done) sfp__tensor_list parts = {0};
    visit f = {.l = l, .v = sfp__visit_writing(&parts), .classes = sfp__learner_classes(l)};
    TRY(visit_learner(&f, err));
    pthread_mutex_lock(&l->head_lock); /* a predictor may be solving */
    sfp_status status = sfp__head_visit_named(l->head, &f.v, err);
    bool locked = l->head && sfp__head_saves_solution(l->head); /* until the tensors are written */
    if (!locked)
        pthread_mutex_unlock(&l->head_lock);
    if (!status)
        status = write_file(l, path, position, &parts, err);
    if (locked)
        pthread_mutex_unlock(&l->head_lock);
    return status;
}

/* ------------------------------------------------------------------- reading */

/* Returns whether this is a checkpoint of a method of version 2, which had another checksum. */
static bool is_earlier(const char *path)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    return sfp__safetensors_open(path, &st, NULL) == SFP_OK && sfp__tensor_file_meta(st, "kind") &&
           sfp__tensor_file_meta(st, "position");
}

sfp_status sfp__checkpoint_open(const char *path, uint8_t **bytes, sfp__tensor_file **st, sfp_error *err)
{
    size_t size = 0;
    sfp_status status = sfp__backed_file_read(path, bytes, &size, err);
    if (status == SFP_EFORMAT && is_earlier(path))
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s: " SFP_SAVED_EARLIER, path);
    TRY(status);
    TRY(sfp__safetensors_open_memory(path, *bytes, size, st, err));
    return sfp__metadata_check_format(*st, SFP_CHECKPOINT_FORMAT, SFP_CHECKPOINT_VERSION, true, err);
}

sfp_status sfp__checkpoint_peek(const char *path, char *method, size_t size, char **position, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    TRY(sfp__checkpoint_open(path, &bytes, &st, err));
    const char *made_by = sfp__tensor_file_meta(st, "method"), *text = sfp__tensor_file_meta(st, "position");
    if (!text)
        return sfp__fail(err, SFP_EFORMAT, "%s: not a checkpoint", path);
    TRY(sfp__check_memory((*position = sfp__strdup(text)), err));
    (void)sfp__printable(made_by ? made_by : "", method, size);
    return SFP_OK;
}

static sfp_status read_img_size(void *size, const char *path, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    int64_t side = 0;
    TRY(sfp__checkpoint_open(path, &bytes, &st, err));
    const char *setting = sfp__tensor_file_meta(st, "setting.img-size"); /* that of a learner with fingerprints */
    bool known = setting && sfp__parse_int(setting, &side) && side > 0 && side <= INT_MAX;
    *(int *)size = known ? (int)side : sfp__metadata_img_size(st);
    return SFP_OK;
}

sfp_status sfp__checkpoint_img_size(const char *path, int *size, sfp_error *err)
{
    char old[PATH_MAX];
    bool unused;
    TRY(sfp__path_print(old, sizeof old, err, "%s.old", path));
    return sfp__file_read_or_backup(path, old, read_img_size, size, &unused, err);
}

static sfp_status check_method(const sfp__learner *l, const sfp__tensor_file *st, sfp_error *err)
{
    const char *saved = sfp__tensor_file_meta(st, "method"), *now = l->opt.method;
    char shown[SFP_NAME_MAX];
    if (strcmp(saved ? saved : "", now ? now : "") != 0)
        return sfp__fail(err, SFP_EINVAL, "%s: method is %s, expected %s, the current setting", st->path,
                         saved ? sfp__printable(saved, shown, sizeof shown) : "none", now ? now : "none");
    return now ? sfp__metadata_check_backbone(st, l->vit, err) : SFP_OK;
}

/* Checks the whole file, then changes the learner. */
static sfp_status read_and_commit(sfp__learner *l, sfp__tensor_file *st, char **position, sfp_error *err)
{
    OWNED_PTR(sfp__head_free) sfp__head *head = NULL;
    OWNED_BY(sfp__metadata_names_done) sfp__saved_names names = {0};
    OWNED char *text = NULL;
    sfp__saved_components components = {0};
    visit f = {.l = l, .v = sfp__visit_reading(st, true)};
    const sfp__visitor reading = sfp__visit_reading(st, false);
    TRY(sfp__metadata_classes(l, st, 0, &f.classes, err));
    TRY(visit_learner(&f, err));
    if (l->fp)
        TRY(sfp__state_components(&l->opt.fp, st, &components, err));
    TRY(sfp__metadata_names_read(st, sfp__learner_label_end(l), &names, err));
    TRY(sfp__learner_make_head(l, &head, err));
    TRY(sfp__head_visit_named(head, &reading, err));
    const char *where = sfp__tensor_file_meta(st, "position");
    TRY(sfp__check_memory((text = sfp__strdup(where ? where : "")), err));
    TRY(sfp__metadata_prepare(l, reading.file, &components, f.classes, names.count, err));
    if (!l->fp) /* the learner may have more classes */
        l->classes.count = f.classes;
    f.v = reading;
    f.commits = true;
    TRY(visit_learner(&f, err)); /* cannot fail from here on: the values were checked */
    sfp__head_free(l->head);
    l->head = TAKE(head);
    l->classes.learned = l->classes.count;
    sfp__metadata_names_commit(&names, l);
    *position = TAKE(text);
    return SFP_OK;
}

typedef struct loading {
    sfp__learner *l;
    char *position;
} loading;

/* Loads a checkpoint. SFP_EFORMAT and SFP_EIO mean that the file is damaged; other errors (other settings, another version, no
 * memory) do not. */
static sfp_status load(void *ctx, const char *path, sfp_error *err)
{
    loading *to = ctx;
    OWNED uint8_t *bytes = NULL;
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    TRY(sfp__checkpoint_open(path, &bytes, &st, err));
    TRY(check_method(to->l, st, err));
    TRY(sfp__metadata_check_settings(to->l, st, true, err));
    /* the settings are equal, so any mismatch from here on means that the file is damaged */
    pthread_mutex_lock(&to->l->head_lock);
    sfp_status status = read_and_commit(to->l, st, &to->position, err);
    pthread_mutex_unlock(&to->l->head_lock);
    if (status && status != SFP_ENOMEM)
        return err->status = SFP_EFORMAT;
    return status ? status : sfp__learner_publish(to->l, err);
}

sfp_status sfp__learner_resume(sfp__learner *l, const char *path, char **position, bool *used_old, sfp_error *err)
{
    loading to = {.l = l};
    sfp_status status = sfp__backed_file_resume(&l->checkpoint, path, load, &to, used_old, err);
    if (!status && position)
        *position = TAKE(to.position);
    sfp__free(to.position);
    return status;
}
