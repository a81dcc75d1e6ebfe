/* The files of a learner (state.h has their formats): one list of tensors, of which a state has a part and a checkpoint all, and
 * one function that reads it, whether the learner predicts, starts from it or resumes.
 *
 * The checksum of a file is verified before anything else of it is used. A file that passes may still be malicious: every size,
 * label and count is checked before the first value of the learner is changed, and after that nothing can fail. */
#include "learner/state/state.h"

#include "base/mem.h"
#include "base/settings.h"
#include "io/tensor/visit.h"
#include "learner/state/saved_sums.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>

/* A visit of the learner by visitor `v`. */
typedef struct visit {
    sfp__learner *l;
    sfp__visitor v;
    bool state;          /* only the tensors that a state has */
    bool commits;        /* it reads values that were checked before, and changes the learner */
    sfp__head *head;     /* the head that the check has read, and the commit gives to the learner */
    int classes, filled; /* those of the file, or of the learner when writing */
    int64_t buffer_seen;
} visit;

/* ------------------------------------------------------------------- numbers */

static sfp_status visit_counters(visit *f, sfp_error *err)
{
    sfp__learner *l = f->l;
    const sfp__learner_counts *n = &l->counts;
    int64_t c[] = {(int64_t)n->timestamps, (int64_t)n->offered,  (int64_t)n->scored,
                   (int64_t)n->trained,    (int64_t)n->replayed, l->buffer ? (int64_t)l->buffer->seen : 0};
    enum { COUNTERS = sizeof c / sizeof *c };
    TRY(sfp__visit_values(&f->v, "counters", SFP__DTYPE_I64, COUNTERS, c, err));
    for (int i = 0; i < COUNTERS; i++)
        if (c[i] < 0)
            return sfp__fail(err, SFP_EFORMAT, "%s: tensor 'counters' has %lld as element %d, expected a count", f->v.file,
                             (long long)c[i], i);
    f->buffer_seen = c[5];
    if (!f->commits)
        return SFP_OK;
    l->counts = (sfp__learner_counts){(uint64_t)c[0], (uint64_t)c[1], (uint64_t)c[2], (uint64_t)c[3], (uint64_t)c[4]};
    return SFP_OK;
}

static sfp_status visit_rng(visit *f, const char *name, sfp__rng *r, sfp_error *err)
{
    int64_t n[] = {(int64_t)r->key, (int64_t)r->stream, (int64_t)r->counter, r->block[0],
                   r->block[1],     r->block[2],        r->block[3],         r->left};
    TRY(sfp__visit_values(&f->v, name, SFP__DTYPE_I64, sizeof n / sizeof *n, n, err));
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

static sfp_status visit_generators(visit *f, sfp_error *err)
{
    sfp__learner *l = f->l;
    TRY(visit_rng(f, "rng.fingerprints", &l->fp->rng, err));
    TRY(visit_rng(f, "rng.select", &l->select_rng, err));
    TRY(visit_rng(f, "rng.replay", &l->replay_rng, err));
    return visit_rng(f, "rng.buffer", &l->buffer_rng, err);
}

/* ---------------------------------------------------------------- parameters */

/* Visits the values of a parameter and, in a checkpoint, its moments of Adam, which begin anew otherwise. The linear head has as
 * many rows as in the file. */
static sfp_status visit_param(visit *f, sfp__param *p, sfp_error *err)
{
    const struct {
        const char *prefix;
        sfp__dtype dtype;
        int ndim;
        void *data;
    } list[] = {{"", SFP__DTYPE_F32, p->ndim, p->data},
                {"adam.m.", SFP__DTYPE_F32, p->ndim, p->m},
                {"adam.v.", SFP__DTYPE_F32, p->ndim, p->v},
                {"adam.steps.", SFP__DTYPE_I32, 1, p->steps}};
    int64_t shape[3];
    char name[64];
    sfp__visitor v = f->v;
    v.finite = v.converts = f->state; /* another program may have written a state */
    memcpy(shape, p->shape, sizeof shape);
    if (p == &f->l->fp->linear_w || p == &f->l->fp->linear_b)
        shape[0] = f->classes;
    if (f->commits && shape[0] < p->rows)
        sfp__param_shrink(p, (int)shape[0]);
    for (size_t i = 0; i < (f->state ? 1 : sizeof list / sizeof *list); i++) {
        (void)snprintf(name, sizeof name, "%s%s", list[i].prefix, p->name);
        TRY(sfp__visit(&v, name, list[i].dtype, list[i].ndim, shape, list[i].data, err));
    }
    if (f->commits && f->state)
        sfp__param_reset_adam(p, 0, p->rows);
    return SFP_OK;
}

static sfp_status visit_params(visit *f, sfp_error *err)
{
    int count = 0;
    sfp__param **params = sfp__fp_params(f->l->fp, &count);
    for (int i = 0; i < count; i++)
        TRY(visit_param(f, params[i], err));
    if (f->commits)
        sfp__fp_changed(f->l->fp);
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
SLOT_FIELD(label, &slot->label, sizeof slot->label)
SLOT_FIELD(has_query, &slot->has_query, sizeof slot->has_query)
SLOT_FIELD(query, slot->query, (size_t)l->D * sizeof(float))
SLOT_FIELD(mean_embed, slot->mean_embed, (size_t)l->D * sizeof(float))
SLOT_FIELD(image, slot->image, l->rgb_bytes)
#undef SLOT_FIELD

/* Checks the slots of a file before any slot is changed. */
static sfp_status check_slots(visit *f, sfp_error *err)
{
    const sfp__learner *l = f->l;
    const sfp__tensor *label = NULL, *has = NULL;
    int slots = l->buffer ? l->buffer->opt.slots : 0;
    TRY(sfp__visit_find(&f->v, "buffer.label", SFP__DTYPE_I32, &label, err));
    TRY(sfp__visit_find(&f->v, "buffer.has_query", SFP__DTYPE_U8, &has, err));
    if (label->ndim != 1 || label->shape[0] > slots || label->shape[0] > f->buffer_seen || has->count != label->count)
        return sfp__fail(err, SFP_EFORMAT, "%s: number of filled slots is %lld after %lld samples, expected at most %d slots",
                         f->v.file, (long long)label->count, (long long)f->buffer_seen, slots);
    f->filled = (int)label->shape[0];
    for (int i = 0; i < f->filled; i++) {
        int32_t y;
        memcpy(&y, (const char *)label->data + (size_t)i * sizeof y, sizeof y);
        if (y < 0 || y >= f->classes || ((const uint8_t *)has->data)[i] > 1)
            return sfp__fail(err, SFP_EFORMAT, "%s: slot %d has label %d, expected a label below %d and a flag for its query",
                             f->v.file, i, y, f->classes);
    }
    return SFP_OK;
}

/* Visits the state of a selector or a buffer method; `list` may be NULL. */
static sfp_status visit_state_tensors(const sfp__visitor *v, sfp__state_tensors_fn list, void *state, sfp_error *err)
{
    static const sfp__dtype types[] = {[SFP__STATE_F32] = SFP__DTYPE_F32,
                                       [SFP__STATE_F64] = SFP__DTYPE_F64,
                                       [SFP__STATE_I32] = SFP__DTYPE_I32,
                                       [SFP__STATE_I64] = SFP__DTYPE_I64,
                                       [SFP__STATE_U8] = SFP__DTYPE_U8};
    sfp__state_tensor p = {0};
    for (int i = 0; list && i < list(state, i, &p); i++)
        TRY(sfp__visit(v, p.name, types[p.type], p.ndim, p.shape, p.data, err));
    return SFP_OK;
}

static sfp_status visit_buffer(visit *f, sfp_error *err)
{
    sfp__learner *l = f->l;
    if (!f->v.put)
        TRY(check_slots(f, err));
    else
        f->filled = l->buffer ? l->buffer->filled : 0;
    const int64_t vectors[] = {f->filled, l->D}, images[] = {f->filled, (int64_t)l->rgb_bytes};
    const struct {
        const char *name;
        sfp__dtype dtype;
        int ndim;
        const int64_t *shape;
        void *(*at)(void *ctx, int i, size_t *bytes);
    } list[] = {{"buffer.id", SFP__DTYPE_I64, 1, vectors, slot_id},
                {"buffer.born", SFP__DTYPE_I64, 1, vectors, slot_stored_at},
                {"buffer.query", SFP__DTYPE_F32, 2, vectors, slot_query},
                {"buffer.mean_embed", SFP__DTYPE_F32, 2, vectors, slot_mean_embed},
                {"buffer.label", SFP__DTYPE_I32, 1, vectors, slot_label},
                {"buffer.has_query", SFP__DTYPE_U8, 1, vectors, slot_has_query},
                {"buffer.image", SFP__DTYPE_U8, 2, images, slot_image}};
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
    return visit_state_tensors(&v, l->buffer->method->state_tensors, l->buffer->state, err);
}

/* ------------------------------------------------------------------- the list */

static sfp_status visit_selector(visit *f, sfp_error *err)
{
    sfp__visitor v = f->v;
    v.prefix = "select";
    return visit_state_tensors(&v, f->l->selector->state_tensors, f->l->select_state, err);
}

static sfp_status visit_diagnostics(visit *f, sfp_error *err)
{
    sfp__visitor v = f->v;
    v.prefix = "diagnostics";
    return f->l->diagnostics ? visit_state_tensors(&v, sfp__diagnostics_tensors, f->l->diagnostics, err) : SFP_OK;
}

static sfp_status visit_classes(visit *f, sfp_error *err)
{
    sfp__class_table *c = &f->l->classes;
    const int64_t classes = f->classes;
    if (f->commits) {
        memset(c->seen, 0, (size_t)c->capacity);
        memset(c->allowed, 0, (size_t)c->capacity);
    }
    TRY(sfp__visit(&f->v, "seen", SFP__DTYPE_U8, 1, &classes, c->seen, err));
    return sfp__visit(&f->v, "allowed", SFP__DTYPE_U8, 1, &classes, c->allowed, err);
}

/* Visits the head of a method. A check reads the tensors into a new head, because only reading shows whether they are valid. */
static sfp_status visit_head(visit *f, sfp_error *err)
{
    sfp__visitor v = f->v;
    if (f->commits) {
        sfp__head *before = f->l->head;
        f->l->head = f->head;
        f->head = before;
        return SFP_OK;
    }
    v.check_only = false;
    if (!v.put)
        TRY(sfp__learner_make_head(f->l, &f->head, err));
    return sfp__head_visit_named(v.put ? f->l->head : f->head, &v, err);
}

/* The tensors of a learner in the order of its files. */
static sfp_status visit_learner(visit *f, sfp_error *err)
{
    enum { BOTH, FINGERPRINTS }; /* the learners that have them */
    static const struct {
        bool state; /* a state has them, too, and not only a checkpoint */
        int learners;
        sfp_status (*visit)(visit *f, sfp_error *err);
    } list[] = {{false, BOTH, visit_counters},
                {false, FINGERPRINTS, visit_generators},
                {true, FINGERPRINTS, visit_params},
                {false, FINGERPRINTS, visit_selector},
                {false, FINGERPRINTS, visit_diagnostics},
                {false, FINGERPRINTS, visit_buffer},
                {false, BOTH, visit_classes},
                {true, BOTH, visit_head}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if ((list[i].state || !f->state) && (list[i].learners == BOTH || f->l->fp))
            TRY(list[i].visit(f, err));
    return SFP_OK;
}

/* ------------------------------------------------------------------- writing */

sfp_status sfp__learner_save(sfp__learner *l, const char *path, sfp_error *err)
{
    OWNED_BY(sfp__tensor_list_done) sfp__tensor_list tensors = {0};
    OWNED_BY(sfp__metadata_done) sfp__file_metadata meta = {0};
    visit f = {.l = l, .v = sfp__visit_writing(&tensors), .state = true, .classes = sfp__learner_classes(l)};
    f.v.inference_only = true;
    f.v.sums = l->head && sfp__head_has_sums(l->head) && sfp__head_sums_bytes(l->head) <= SFP__STATE_SUMS_MAX;
    pthread_mutex_lock(&l->head_lock); /* a predictor may be solving */
    sfp_status status = visit_learner(&f, err);
    pthread_mutex_unlock(&l->head_lock);
    TRY(status);
    sfp__state_put_format(&meta, f.classes, l->classes.seen);
    sfp__metadata_put_backbone(&meta, l->vit);
    sfp__metadata_put_common(&meta, l);
    sfp__metadata_put_settings(&meta, l, false);
    return sfp__state_write(path, &tensors, &meta, err);
}

static sfp_status write_checkpoint(sfp__learner *l, const char *path, const char *position, sfp__tensor_list *tensors,
                                   sfp_error *err)
{
    OWNED_BY(sfp__metadata_done) sfp__file_metadata meta = {0};
    sfp__metadata_put(&meta, "format", SFP__CHECKPOINT_FORMAT);
    sfp__metadata_put_int(&meta, "version", SFP__CHECKPOINT_VERSION);
    sfp__metadata_put_backbone(&meta, l->vit);
    sfp__metadata_put_common(&meta, l);
    sfp__metadata_put(&meta, "position", position ? position : "");
    sfp__metadata_put_settings(&meta, l, true);
    TRY(sfp__check_memory(!meta.failed, err));
    return sfp__backed_file_write(&l->checkpoint, path, tensors, meta.list, meta.count, err);
}

sfp_status sfp__learner_checkpoint(sfp__learner *l, const char *path, const char *position, sfp_error *err)
{
    OWNED_BY(sfp__tensor_list_done) sfp__tensor_list tensors = {0};
    visit f = {.l = l, .v = sfp__visit_writing(&tensors), .classes = sfp__learner_classes(l)};
    pthread_mutex_lock(&l->head_lock); /* a predictor may be solving */
    sfp_status status = visit_learner(&f, err);
    bool locked = l->head && sfp__head_saves_solution(l->head); /* until the tensors are written */
    if (!locked)
        pthread_mutex_unlock(&l->head_lock);
    if (!status)
        status = write_checkpoint(l, path, position, &tensors, err);
    if (locked)
        pthread_mutex_unlock(&l->head_lock);
    return status;
}

/* ------------------------------------------------------------------- opening */

void sfp__opened_file_done(sfp__opened_file *f)
{
    sfp__tensor_file_close(f->st);
    sfp__free(f->bytes);
}

sfp_status sfp__saved_file_open(const sfp__saved_file *from, bool foreign, sfp__opened_file *out, sfp_error *err)
{
    OWNED_BY(sfp__opened_file_done) sfp__opened_file f = {0};
    const void *data = from->data;
    size_t size = from->size;
    if (!data) {
        TRY(sfp__file_read(from->path, SIZE_MAX, &f.bytes, &size, err));
        data = f.bytes;
    }
    TRY(sfp__safetensors_open_memory(from->path, data, size, &f.st, err));
    const char *format = sfp__tensor_file_meta(f.st, "format");
    f.checkpoint = format && strcmp(format, SFP__CHECKPOINT_FORMAT) == 0;
    if (f.checkpoint) {
        TRY(sfp__metadata_check_format(f.st, SFP__CHECKPOINT_FORMAT, SFP__CHECKPOINT_VERSION, true, err));
        TRY(sfp__backed_file_check(from->path, data, size, err));
    } else {
        TRY(sfp__metadata_check_format(f.st, SFP__STATE_FORMAT, SFP__STATE_VERSION, !foreign, err));
        TRY(sfp__state_check_sum(f.st, err));
    }
    *out = TAKE(f);
    return SFP_OK;
}

/* Opens a checkpoint for resuming. Its checksum is verified first, on the raw bytes, so that a damaged file is never parsed. */
static sfp_status open_checkpoint(const char *path, sfp__opened_file *out, sfp_error *err)
{
    OWNED_BY(sfp__opened_file_done) sfp__opened_file f = {.checkpoint = true};
    size_t size = 0;
    TRY(sfp__backed_file_read(path, &f.bytes, &size, err));
    TRY(sfp__safetensors_open_memory(path, f.bytes, size, &f.st, err));
    TRY(sfp__metadata_check_format(f.st, SFP__CHECKPOINT_FORMAT, SFP__CHECKPOINT_VERSION, true, err));
    *out = TAKE(f);
    return SFP_OK;
}

sfp_status sfp__checkpoint_peek(const char *path, char *method, size_t size, char **position, sfp_error *err)
{
    OWNED_BY(sfp__opened_file_done) sfp__opened_file f = {0};
    TRY(open_checkpoint(path, &f, err));
    const char *made_by = sfp__tensor_file_meta(f.st, "method"), *text = sfp__tensor_file_meta(f.st, "position");
    if (!text)
        return sfp__fail(err, SFP_EFORMAT, "%s: not a checkpoint", path);
    TRY(sfp__check_memory((*position = sfp__strdup(text)), err));
    (void)sfp__printable(made_by ? made_by : "", method, size);
    return SFP_OK;
}

static sfp_status read_img_size(void *size, const char *path, sfp_error *err)
{
    OWNED_BY(sfp__opened_file_done) sfp__opened_file f = {0};
    TRY(open_checkpoint(path, &f, err));
    *(int *)size = sfp__metadata_img_size(f.st);
    return SFP_OK;
}

sfp_status sfp__checkpoint_img_size(const char *path, int *size, sfp_error *err)
{
    char old[PATH_MAX];
    bool unused;
    TRY(sfp__path_print(old, sizeof old, err, "%s.old", path));
    return sfp__file_read_or_backup(path, old, read_img_size, size, &unused, err);
}

/* ------------------------------------------------------------------- reading */

/* Why a learner reads a file. */
typedef enum purpose {
    PREDICT, /* only to predict: reads the data for scores from a state */
    START,   /* to start a new run from learned values: reads the tensors of a state, also from a checkpoint */
    RESUME,  /* to resume: reads everything in a checkpoint */
} purpose;

/* Fails if a state has a tensor that these fingerprints do not have, because it then belongs to another kind of learner. In a checkpoint the
 * settings already show this. */
static sfp_status check_known(sfp__fp *fp, const sfp__tensor_file *st, sfp_error *err)
{
    int count = 0;
    sfp__param **params = sfp__fp_params(fp, &count);
    for (size_t k = 0; k < st->count; k++) {
        const sfp__tensor *t = &st->tensors[k];
        bool known = false;
        for (int i = 0; i < count && !known; i++)
            known = strcmp(params[i]->name, t->name) == 0;
        char name[SFP__NAME_MAX], shape[SFP__SHAPE_MAX];
        if (!known)
            return sfp__fail(err, SFP_ESHAPE, "%s: tensor '%s' is %s, expected no tensor of that name with these settings",
                             st->path, sfp__printable(t->name, name, sizeof name),
                             sfp__shape_text(t->shape, t->ndim, shape, sizeof shape));
    }
    return SFP_OK;
}

/* Returns the number of classes in the file: rows of the linear head, or classes of the method. */
static sfp_status read_classes(sfp__learner *l, const sfp__tensor_file *st, purpose why, int *out, sfp_error *err)
{
    long long classes = 0;
    if (why == PREDICT && !l->fp) {
        TRY(sfp__metadata_int(st, "classes", 0, SFP__LEARNER_MAX_CLASSES, &classes, err));
        *out = (int)classes;
        return SFP_OK;
    }
    return sfp__metadata_classes(l, st, why == RESUME ? 0 : sfp__learner_classes(l), out, err);
}

/* Checks the whole file, then changes the learner; *position: that of a checkpoint. The head must be locked. */
static sfp_status read_and_commit(sfp__learner *l, const sfp__opened_file *file, purpose why, char **position, sfp_error *err)
{
    const sfp__tensor_file *st = file->st;
    OWNED_BY(sfp__metadata_names_done) sfp__saved_names names = {0};
    OWNED uint8_t *seen = NULL;
    OWNED char *text = NULL;
    sfp__saved_components components = {0};
    visit f = {.l = l, .v = sfp__visit_reading(file->st, true), .state = why != RESUME};
    f.v.inference_only = why == PREDICT;
    const char *where = sfp__tensor_file_meta(st, "position");
    long long t = 0;
    TRY(read_classes(l, st, why, &f.classes, err));
    OWNED_PTR(sfp__head_free) sfp__head *head = NULL; /* freed at the end: the replaced head, or the new one on failure */
    sfp_status status = visit_learner(&f, err);
    head = f.head;
    TRY(status);
    if (f.state && l->fp && !file->checkpoint)
        TRY(check_known(l->fp, st, err));
    if (l->fp)
        TRY(sfp__state_components(l, st, &components, err));
    if (f.state)
        TRY(sfp__state_seen(st, f.classes, why == PREDICT, &seen, err));
    TRY(sfp__metadata_names_read(st, sfp__learner_label_end(l), &names, err));
    if (why == PREDICT && sfp__tensor_file_meta(st, "timestamps"))
        TRY(sfp__metadata_int(st, "timestamps", 0, INT64_MAX, &t, err));
    if (why == RESUME)
        TRY(sfp__check_memory((text = sfp__strdup(where ? where : "")), err));
    TRY(sfp__metadata_prepare(l, st->path, &components, f.classes, names.count, err));
    if (!l->fp) /* the learner may have more classes */
        l->classes.count = f.classes;
    f.v.check_only = false;
    f.commits = true;
    TRY(visit_learner(&f, err)); /* cannot fail from here on: the values were checked */
    head = f.head;
    if (f.state && l->classes.seen) { /* NULL: the learner has no classes yet */
        memset(l->classes.seen, 0, (size_t)l->classes.capacity);
        if (seen)
            memcpy(l->classes.seen, seen, (size_t)f.classes);
    }
    if (why == PREDICT)
        l->counts.timestamps = (uint64_t)t;
    l->classes.learned = l->classes.count;
    sfp__metadata_names_commit(&names, l);
    if (why == RESUME)
        *position = TAKE(text);
    return SFP_OK;
}

static sfp_status read_locked(sfp__learner *l, const sfp__opened_file *file, purpose why, char **position, sfp_error *err)
{
    pthread_mutex_lock(&l->head_lock);
    sfp_status status = read_and_commit(l, file, why, position, err);
    pthread_mutex_unlock(&l->head_lock);
    return status;
}

/* Reads the options of a learner that predicts from a state. Checks that the pool in the file has the sizes of the metadata before
 * memory is allocated for it. */
static sfp_status read_options(const sfp__vit *vit, const sfp__tensor_file *st, sfp__learner_options *o, sfp_error *err)
{
    const sfp__tensor *pool = NULL, *last = NULL;
    char name[40];
    *o = sfp__learner_options_defaults(vit);
    o->method = sfp__tensor_file_meta(st, "method");
    TRY(sfp__metadata_read_settings(st, o, err));
    o->fp.classes = 0; /* allocates no memory for the number of classes that the metadata claim */
    if (o->method)
        return sfp__learner_check_taps(o, &vit->config, err) ? sfp__fail_prefix(err, SFP_EFORMAT, "%s", st->path) : SFP_OK;
    const int64_t D = vit->config.dim, shape[] = {o->fp.pool, o->fp.length, D};
    (void)snprintf(name, sizeof name, "prompt.e_p_%d", sfp__fp_pool_layer(&o->fp));
    TRY(sfp__tensor_file_need(st, name, &pool, err));
    TRY(sfp__tensor_expect(st->path, pool, shape, 3, err));
    TRY(sfp__tensor_file_need(st, "last.weight", &last, err));
    const int64_t rows = last->ndim == 2 && last->shape[0] <= SFP__LEARNER_MAX_CLASSES ? last->shape[0] : 0, head[] = {rows, D};
    o->fp.tasks = 0; /* tasks affect only training; without tasks any range of components is valid */
    o->fp.span = 1;
    o->fp.classes = (int)rows;
    return sfp__tensor_expect(st->path, last, head, 2, err);
}

sfp_status sfp__learner_open(sfp__vit *vit, sfp__thread_pool *threads, const char *path, sfp__learner **out, sfp_error *err)
{
    OWNED_BY(sfp__opened_file_done) sfp__opened_file f = {0};
    OWNED_PTR(sfp__learner_free) sfp__learner *l = NULL;
    sfp__learner_options o;
    TRY(sfp__saved_file_open(&(const sfp__saved_file){.path = path}, false, &f, err));
    TRY(sfp__metadata_check_format(f.st, SFP__STATE_FORMAT, SFP__STATE_VERSION, true, err)); /* a checkpoint is for resuming */
    TRY(sfp__metadata_check_backbone(f.st, vit, err));
    TRY(read_options(vit, f.st, &o, err));
    sfp_status status = sfp__learner_create_fixed(vit, threads, &o, &l, err);
    if (status)
        return sfp__fail_prefix(err, status, "%s", path);
    TRY(read_locked(l, &f, PREDICT, NULL, err));
    l->opt.method = l->head ? sfp__head_kind_name(l->head) : NULL; /* the text from the file is freed below */
    *out = TAKE(l);
    return SFP_OK;
}

sfp_status sfp__learner_load(sfp__learner *l, const char *path, sfp_error *err)
{
    OWNED_BY(sfp__opened_file_done) sfp__opened_file f = {0};
    char shown[SFP__NAME_MAX];
    if (l->opt.method) {
        TRY(sfp__learner_load_sums(l, path, err));
        return sfp__learner_publish(l, err);
    }
    TRY(sfp__saved_file_open(&(const sfp__saved_file){.path = path}, true, &f, err));
    const char *method = sfp__tensor_file_meta(f.st, "method");
    if (method)
        return sfp__fail(err, SFP_EINVAL, "%s: method of the state is %s, expected none: a state of fingerprints", path,
                         sfp__printable(method, shown, sizeof shown));
    TRY(sfp__metadata_check_backbone(f.st, l->vit, err));
    TRY(sfp__metadata_check_settings(l, f.st, f.checkpoint, false, err));
    TRY(sfp__state_check_pool(l->fp, f.st, err));
    TRY(read_locked(l, &f, START, NULL, err));
    return sfp__learner_publish(l, err);
}

static sfp_status check_method(const sfp__learner *l, const sfp__tensor_file *st, sfp_error *err)
{
    const char *saved = sfp__tensor_file_meta(st, "method"), *now = l->opt.method;
    char shown[SFP__NAME_MAX];
    if (strcmp(saved ? saved : "", now ? now : "") != 0)
        return sfp__fail(err, SFP_EINVAL, "%s: method is %s, expected %s, the current setting", st->path,
                         saved ? sfp__printable(saved, shown, sizeof shown) : "none", now ? now : "none");
    return sfp__metadata_check_backbone(st, l->vit, err);
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
    OWNED_BY(sfp__opened_file_done) sfp__opened_file f = {0};
    TRY(open_checkpoint(path, &f, err));
    TRY(check_method(to->l, f.st, err));
    TRY(sfp__metadata_check_settings(to->l, f.st, true, true, err));
    /* the settings are equal, so any mismatch from here on means that the file is damaged */
    sfp_status status = read_locked(to->l, &f, RESUME, &to->position, err);
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
