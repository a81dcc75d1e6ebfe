/* Writing checkpoints, and which one to go on from (checkpoint.h: the format).
 *
 * The file is written beside PATH from where the values lie, in one pass with
 * its checksum: nothing large is copied. Only when all of it is in the new file
 * does the present PATH become PATH.old, by a second link to it, and then the
 * new file PATH, so that at every moment one whole file has one of the two
 * names. A PATH that is damaged never takes the place of PATH.old. */
#include "learner/checkpoint.h"

#include "base/mem.h"
#include "io/file.h"
#include "learner/parts.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ------------------------------------------------------------ what is in it */

/* Where a tensor's bytes are: together, or a piece in each slot of the buffer. */
typedef enum place { WHOLE, SLOT_QUERY, SLOT_MEAN_EMBED, SLOT_IMAGE } place;

typedef struct content {
    sfp_learner *l;
    sfp_tensor *tensors; /* names are ours */
    place *places;
    size_t count, room;
    sfp_saved_meta meta;
    /* gathered small things */
    int64_t counters[SFP_CHECKPOINT_COUNTERS];
    int64_t rng[SFP_CHECKPOINT_RNGS][SFP_CHECKPOINT_RNG];
    double drift[SFP_CHECKPOINT_DRIFT];
    double mix[1 + SFP_HEAD_EXPERTS];
    int64_t *id, *born, *image_size; /* (filled) */
    int32_t *label;
    uint8_t *has_query;
    size_t image_bytes;
} content;

static sfp_status more_room(content *c, sfp_error *err)
{
    size_t room = c->room ? 2 * c->room : 128;
    sfp_tensor *tensors = sfp__realloc(c->tensors, c->count * sizeof *tensors, room * sizeof *tensors);
    if (tensors)
        c->tensors = tensors;
    place *places = sfp__realloc(c->places, c->count * sizeof *places, room * sizeof *places);
    if (places)
        c->places = places;
    if (!tensors || !places)
        return sfp__fail_nomem(err);
    c->room = room;
    return SFP_OK;
}

static sfp_status add_tensor(content *c, const sfp_tensor *t, place where, sfp_error *err)
{
    sfp_status s = c->count == c->room ? more_room(c, err) : SFP_OK;
    char *name = s ? NULL : sfp__strdup(t->name);
    if (!s && !name)
        s = sfp__fail_nomem(err);
    if (s)
        return s;
    c->tensors[c->count] = *t;
    c->tensors[c->count].name = name;
    c->places[c->count++] = where;
    return SFP_OK;
}

static sfp_status add(content *c, const char *name, sfp_dtype dtype, int ndim, const int64_t *shape, place where,
                      const void *data, sfp_error *err)
{
    sfp_tensor t = {.name = name, .dtype = dtype, .ndim = ndim, .data = data};
    memcpy(t.shape, shape, (size_t)ndim * sizeof *shape);
    if (!sfp__shape_count(t.shape, ndim, dtype, &t.count, &t.bytes))
        return sfp__fail(err, SFP_ELIMIT, "tensor '%s' is too large", name);
    return add_tensor(c, &t, where, err);
}

static sfp_status add_whole_tensor(void *ctx, const sfp_tensor *t, sfp_error *err)
{
    return add_tensor(ctx, t, WHOLE, err);
}

static void gather_counters(content *c)
{
    const sfp_learner *l = c->l;
    const sfp_learner_counts *n = &l->counts;
    memcpy(c->counters,
           (const int64_t[]){(int64_t)n->timestamps, (int64_t)n->offered, (int64_t)n->scored, (int64_t)n->trained,
                             (int64_t)n->replayed, l->buffer ? (int64_t)l->buffer->seen : 0, l->limit_coreset,
                             l->limit_replay, l->limit_steps, l->no_slack},
           sizeof c->counters);
}

static void gather_numbers(content *c)
{
    sfp_learner *l = c->l;
    const sfp_drift_detector *d = &l->detector;
    sfp_rng *rngs[SFP_CHECKPOINT_RNGS];
    memcpy(c->drift, (const double[]){d->count, d->mean, d->m2, d->up, d->up_min, d->down, d->down_max}, sizeof c->drift);
    sfp__checkpoint_rngs(l, rngs);
    for (int i = 0; i < SFP_CHECKPOINT_RNGS; i++) {
        const sfp_rng *r = rngs[i];
        memcpy(c->rng[i],
               (const int64_t[]){(int64_t)r->key, (int64_t)r->stream, (int64_t)r->counter, r->block[0], r->block[1], r->block[2],
                                 r->block[3], r->left},
               sizeof c->rng[i]);
    }
    c->mix[0] = l->mix.count;
    memcpy(c->mix + 1, l->mix.loss, SFP_HEAD_EXPERTS * sizeof *c->mix);
}

static sfp_status gather_slots(content *c, int filled, sfp_error *err)
{
    size_t n = (size_t)(filled > 0 ? filled : 1);
    c->id = sfp__calloc(n, sizeof *c->id);
    c->born = sfp__calloc(n, sizeof *c->born);
    c->image_size = sfp__calloc(n, sizeof *c->image_size);
    c->label = sfp__calloc(n, sizeof *c->label);
    c->has_query = sfp__calloc(n, 1);
    if (!c->id || !c->born || !c->image_size || !c->label || !c->has_query)
        return sfp__fail_nomem(err);
    for (int i = 0; i < filled; i++) {
        const sfp_slot *slot = &c->l->buffer->slot[i];
        c->id[i] = (int64_t)slot->id;
        c->born[i] = (int64_t)slot->born;
        c->image_size[i] = (int64_t)slot->image_size;
        c->label[i] = slot->label;
        c->has_query[i] = slot->has_query;
        c->image_bytes += slot->image_size;
    }
    return SFP_OK;
}

static sfp_status add_params(content *c, sfp_error *err)
{
    int count = 0;
    sfp_param **params = sfp__fp_params(c->l->fp, &count);
    sfp_status s = SFP_OK;
    for (int i = 0; !s && i < count; i++) {
        const sfp_param *p = params[i];
        char m[64], v[64], steps[64];
        (void)snprintf(m, sizeof m, "adam.m.%s", p->name);
        (void)snprintf(v, sizeof v, "adam.v.%s", p->name);
        (void)snprintf(steps, sizeof steps, "adam.steps.%s", p->name);
        if ((s = add(c, p->name, SFP_DTYPE_F32, p->ndim, p->shape, WHOLE, p->data, err)) ||
            (s = add(c, m, SFP_DTYPE_F32, p->ndim, p->shape, WHOLE, p->m, err)) ||
            (s = add(c, v, SFP_DTYPE_F32, p->ndim, p->shape, WHOLE, p->v, err)))
            return s;
        s = add(c, steps, SFP_DTYPE_I32, 1, p->shape, WHOLE, p->steps, err);
    }
    return s;
}

/* Fingerprints with what they learn by: generators, drift, mix, Adam, the buffer. */
static sfp_status add_fingerprints(content *c, sfp_error *err)
{
    static const int64_t rngs[] = {SFP_CHECKPOINT_RNGS, SFP_CHECKPOINT_RNG}, seven = SFP_CHECKPOINT_DRIFT,
                         experts = 1 + SFP_HEAD_EXPERTS;
    sfp_learner *l = c->l;
    int filled = l->buffer ? l->buffer->filled : 0;
    const int64_t n = filled, vectors[] = {n, l->D};
    gather_numbers(c);
    TRY(gather_slots(c, filled, err));
    const int64_t image_bytes = (int64_t)c->image_bytes;
    const sfp_slot *first = filled > 0 ? &l->buffer->slot[0] : NULL;
    TRY(add(c, "rng", SFP_DTYPE_I64, 2, rngs, WHOLE, c->rng, err));
    TRY(add(c, "drift", SFP_DTYPE_F64, 1, &seven, WHOLE, c->drift, err));
    TRY(add(c, "buffer.id", SFP_DTYPE_I64, 1, &n, WHOLE, c->id, err));
    TRY(add(c, "buffer.born", SFP_DTYPE_I64, 1, &n, WHOLE, c->born, err));
    TRY(add(c, "buffer.image_size", SFP_DTYPE_I64, 1, &n, WHOLE, c->image_size, err));
    if (l->opt.head == SFP_HEAD_MIX)
        TRY(add(c, "mix", SFP_DTYPE_F64, 1, &experts, WHOLE, c->mix, err));
    TRY(add_params(c, err));
    TRY(add(c, "buffer.query", SFP_DTYPE_F32, 2, vectors, SLOT_QUERY, first ? first->query : NULL, err));
    TRY(add(c, "buffer.mean_embed", SFP_DTYPE_F32, 2, vectors, SLOT_MEAN_EMBED, first ? first->mean_embed : NULL, err));
    TRY(add(c, "buffer.label", SFP_DTYPE_I32, 1, &n, WHOLE, c->label, err));
    TRY(add(c, "buffer.has_query", SFP_DTYPE_U8, 1, &n, WHOLE, c->has_query, err));
    TRY(add(c, "buffer.image", SFP_DTYPE_U8, 1, &image_bytes, SLOT_IMAGE, first ? first->image : NULL, err));
    TRY(sfp__parts_visit("select", l->selector->parts, l->select_state, add_whole_tensor, c, err));
    return sfp__parts_visit_buffer(l->buffer, add_whole_tensor, c, err);
}

static sfp_status add_everything(content *c, sfp_error *err)
{
    static const int64_t counters = SFP_CHECKPOINT_COUNTERS, one = 1;
    static const uint8_t checksum[4] = {0}; /* its bytes are written by hand */
    sfp_learner *l = c->l;
    const int64_t classes = sfp__learner_classes(l);
    gather_counters(c);
    TRY(add(c, "counters", SFP_DTYPE_I64, 1, &counters, WHOLE, c->counters, err));
    if (l->fp)
        TRY(add_fingerprints(c, err));
    for (int i = 0; i < SFP_HEAD_EXPERTS; i++) {
        char prefix[32];
        if (!l->heads[i])
            continue;
        (void)snprintf(prefix, sizeof prefix, "head.%s", sfp__head_kind(l->heads[i]));
        TRY(sfp__head_visit(l->heads[i], prefix, add_whole_tensor, c, err));
    }
    TRY(add(c, "seen", SFP_DTYPE_U8, 1, &classes, WHOLE, l->seen, err));
    TRY(add(c, "allowed", SFP_DTYPE_U8, 1, &classes, WHOLE, l->allowed, err));
    return add(c, "checksum", SFP_DTYPE_I32, 1, &one, WHOLE, checksum, err);
}

static sfp_status make_content(content *c, const char *position, sfp_error *err)
{
    sfp_status s = add_everything(c, err);
    if (s)
        return s;
    sfp__saved_put(&c->meta, "format", SFP_CHECKPOINT_FORMAT);
    sfp__saved_put_int(&c->meta, "version", SFP_CHECKPOINT_VERSION);
    if (c->l->opt.method) /* fingerprints have theirs among the settings */
        sfp__saved_put_backbone(&c->meta, c->l->vit);
    sfp__saved_put_common(&c->meta, c->l);
    sfp__saved_put(&c->meta, "position", position);
    sfp__saved_put_settings(&c->meta, c->l, true);
    return c->meta.failed ? sfp__fail_nomem(err) : SFP_OK;
}

static void content_done(content *c)
{
    for (size_t i = 0; i < c->count; i++)
        sfp__free((void *)(uintptr_t)c->tensors[i].name);
    sfp__free(c->tensors);
    sfp__free(c->places);
    sfp__free(c->id);
    sfp__free(c->born);
    sfp__free(c->image_size);
    sfp__free(c->label);
    sfp__free(c->has_query);
    sfp__saved_done(&c->meta);
}

/* ------------------------------------------------------------------- writing */

typedef struct summed {
    sfp_writer w;
    unsigned long sum;
} summed;

static sfp_status put(summed *to, const void *bytes, size_t size, sfp_error *err)
{
    if (size == 0)
        return SFP_OK;
    to->sum = crc32_z(to->sum, bytes, size);
    return sfp__writer_put(&to->w, bytes, size, err);
}

static sfp_status put_tensor(summed *to, const content *c, size_t i, sfp_error *err)
{
    const sfp_tensor *t = &c->tensors[i];
    if (c->places[i] == WHOLE)
        return put(to, t->data, t->bytes, err);
    sfp_status s = SFP_OK;
    size_t vector = (size_t)c->l->D * sizeof(float);
    for (int k = 0; !s && c->l->buffer && k < c->l->buffer->filled; k++) {
        const sfp_slot *slot = &c->l->buffer->slot[k];
        if (c->places[i] == SLOT_IMAGE)
            s = put(to, slot->image, slot->image_size, err);
        else
            s = put(to, c->places[i] == SLOT_QUERY ? slot->query : slot->mean_embed, vector, err);
    }
    return s;
}

static bool stamp_of(const char *path, sfp_file_stamp *out)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    *out =
        (sfp_file_stamp){(uint64_t)st.st_dev, (uint64_t)st.st_ino, (uint64_t)st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
    return true;
}

static bool same_stamp(const sfp_file_stamp *a, const sfp_file_stamp *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size && a->seconds == b->seconds &&
           a->nanoseconds == b->nanoseconds;
}

/* "PATH" + suffix, newly allocated. */
static char *path_with(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix) + 1;
    char *out = sfp__malloc(n + m);
    if (out) {
        memcpy(out, path, n);
        memcpy(out + n, suffix, m);
    }
    return out;
}

/* PATH becomes PATH.old too, when it is whole. */
static sfp_status keep_previous(const sfp_learner *l, const char *path, const char *old, sfp_error *err)
{
    sfp_file_stamp now;
    sfp_error unused;
    if (!stamp_of(path, &now))
        return SFP_OK;
    if (!same_stamp(&now, &l->checkpoint) && sfp__checkpoint_check(path, &unused) != SFP_OK)
        return SFP_OK;
    return sfp__file_keep(path, old, err);
}

sfp_status sfp__learner_checkpoint(sfp_learner *l, const char *path, const char *position, sfp_error *err)
{
    content c = {.l = l};
    summed to = {.w = {.fd = -1}, .sum = crc32_z(0, NULL, 0)};
    sfp_text header = {0};
    char *old = path_with(path, ".old");
    sfp_status s = old ? make_content(&c, position ? position : "", err) : sfp__fail_nomem(err);
    if (s || (s = sfp__safetensors_header(path, c.tensors, c.count, c.meta.list, c.meta.count, &header, err)) ||
        (s = sfp__writer_open(path, &to.w, err)) || (s = put(&to, header.s, header.length, err)))
        goto done;
    for (size_t i = 0; !s && i + 1 < c.count; i++)
        s = put_tensor(&to, &c, i, err);
    uint32_t sum = (uint32_t)to.sum;
    if (s || (s = sfp__writer_put(&to.w, &sum, sizeof sum, err)) || (s = keep_previous(l, path, old, err)))
        goto done;
    s = sfp__writer_commit(&to.w, err);
    if (!s && !stamp_of(path, &l->checkpoint))
        l->checkpoint = (sfp_file_stamp){0};
done:
    sfp__writer_abort(&to.w);
    sfp__text_done(&header);
    content_done(&c);
    sfp__free(old);
    return s;
}

/* ------------------------------------------------------------------ resuming */

/* A process killed while writing leaves PATH.tmp.PID behind: those of processes that are no more are removed. */
static void remove_leftovers(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n = strlen(base);
    char *dir = slash ? path_with(path, "") : path_with(".", "");
    if (dir && slash)
        dir[slash == path ? 1 : slash - path] = '\0';
    DIR *d = dir ? opendir(dir) : NULL;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        const char *rest = e->d_name + n;
        if (strncmp(e->d_name, base, n) != 0 || strncmp(rest, ".tmp.", 5) != 0 || !isdigit((unsigned char)rest[5]))
            continue;
        long pid = strtol(rest + 5, NULL, 10);
        bool gone = pid == (long)getpid() || (pid > 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH);
        if (gone)
            (void)unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d)
        (void)closedir(d);
    sfp__free(dir);
}

typedef struct loading {
    sfp_learner *l;
    char *position;
} loading;

static sfp_status load(void *ctx, const char *path, sfp_error *err)
{
    loading *to = ctx;
    return sfp__checkpoint_load(to->l, path, &to->position, err);
}

sfp_status sfp__learner_resume(sfp_learner *l, const char *path, char **position, bool *used_old, sfp_error *err)
{
    loading to = {.l = l};
    bool fell_back = false;
    char *old = path_with(path, ".old");
    if (!old)
        return sfp__fail_nomem(err);
    remove_leftovers(path);
    sfp_status s = sfp__file_or_kept(path, old, load, &to, &fell_back, err);
    if (!s) {
        if (!stamp_of(fell_back ? old : path, &l->checkpoint))
            l->checkpoint = (sfp_file_stamp){0};
        if (used_old)
            *used_old = fell_back;
        if (position) {
            *position = to.position;
            to.position = NULL;
        }
    }
    sfp__free(to.position);
    sfp__free(old);
    return s;
}
