/* The teacher and the cache file of its outputs. */
#include "pretrain/pretrain_internal.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "base/rng.h"
#include "io/tensor/tensor.h"
#include "model/vit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 64, STAT_ENTRIES = 4096, HASH_BYTES = 1 << 16 };

/* The file has a header block and then the entries. */
#define HEADER_BYTES 4096
#define MAGIC "streamfp teacher"
#define SAVE_SECONDS 2 /* between updates of the header: a power failure loses at most the entries of this time */

typedef struct header {
    char magic[16]; /* MAGIC without its terminator */
    uint64_t key;   /* hash of everything that the entries depend on */
    uint64_t total; /* number of entries, one view after the other, so that a cache can be extended by more views */
    uint64_t entry_bytes;
    uint64_t done;   /* number of complete entries */
    uint64_t config; /* hash of the values that a config.json next to the weights can set */
} header;

typedef struct cache_job {
    const sfp__pretrain_options *o;
    const char *cache;
    const sfp__image_set *images;
    sfp__teacher *t;
    int size;         /* side of the teacher's input */
    int grid, tokens; /* patches per side of the teacher; its T */
    float *pool_w;    /* (entry grid, grid) weights for averaging along one axis */
    float *x;         /* (CHUNK, 3, size, size) */
    float *normed;    /* (CHUNK, T, Dt) */
    uint16_t *entry;  /* (CHUNK, 1 + entry grid^2, Dt) */
    uint64_t first;   /* first entry of the current chunk */
} cache_job;

size_t sfp__teacher_entry_floats(const sfp__teacher *t)
{
    return (size_t)(1 + t->grid * t->grid) * (size_t)t->dim;
}

static int side_of(const sfp__pretrain_options *o)
{
    return o->student.img_size / o->student.patch_size;
}

static int grid_of(const sfp__pretrain_options *o)
{
    return o->teacher.grid ? o->teacher.grid : side_of(o);
}

static sfp_status weights_hash(const char *path, uint64_t *h, sfp_error *err)
{
    OWNED_BY(sfp__fd_close) int fd = -1;
    size_t size = 0;
    const uint8_t *builtin = strcmp(path, SFP__VIT_BUILTIN) == 0 ? sfp__vit_builtin_bytes(&size) : NULL;
    if (builtin) {
        *h = sfp__hash(*h, builtin, size);
        return SFP_OK;
    }
    TRY(sfp__fd_open(path, &fd, &size, err));
    for (size_t at = 0; at < size;) {
        uint8_t piece[HASH_BYTES];
        size_t n = size - at < sizeof piece ? size - at : sizeof piece;
        int64_t got = sfp__fd_read_at(fd, piece, n, (int64_t)at);
        if (got < 0)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", path);
        if ((size_t)got < n)
            return sfp__fail(err, SFP_EIO, "%s: file ends after %zu bytes, expected %zu", path, at + (size_t)got, size);
        *h = sfp__hash(*h, piece, n);
        at += n;
    }
    return SFP_OK;
}

static sfp_status key_of(const sfp__pretrain_options *o, const sfp__image_set *p, uint64_t *out, sfp_error *err)
{
    const uint64_t numbers[] = {1 /* version of the entries */,
                                sfp__image_set_hash(p),
                                (uint64_t)p->count,
                                (uint64_t)p->size,
                                (uint64_t)grid_of(o),
                                o->plan.seed};
    uint64_t h = sfp__hash(SFP__HASH_START, numbers, sizeof numbers);
    h = sfp__hash(h, &o->view.min_crop, sizeof o->view.min_crop);
    TRY(weights_hash(o->teacher.weights, &h, err));
    *out = h;
    return SFP_OK;
}

static uint64_t config_hash(const sfp__vit_config *c)
{
    const int numbers[] = {c->heads, c->img_size, c->quick_gelu};
    uint64_t h = sfp__hash(SFP__HASH_START, numbers, sizeof numbers);
    h = sfp__hash(h, &c->ln_eps, sizeof c->ln_eps);
    h = sfp__hash(h, c->mean, sizeof c->mean);
    return sfp__hash(h, c->std, sizeof c->std) | 1;
}

/* Writes weights (side, grid) that average `grid` cells to `side` cells in proportion to the overlap. */
static void average_weights(int side, int grid, float *w)
{
    for (int i = 0; i < side; i++)
        for (int k = 0; k < grid; k++) {
            double low = (double)i / side, high = (double)(i + 1) / side, a = (double)k / grid, b = (double)(k + 1) / grid;
            double shared = fmin(high, b) - fmax(low, a);
            w[i * grid + k] = shared > 1e-12 ? (float)(shared * side) : 0.0f;
        }
}

/* Converts one teacher output (T, Dt) to an entry. */
static void make_entry(void *ctx, int piece, int worker)
{
    (void)worker;
    cache_job *m = ctx;
    int D = m->t->dim, side = m->t->grid, grid = m->grid;
    const float *tokens = m->normed + (size_t)piece * (size_t)m->tokens * (size_t)D;
    uint16_t *out = m->entry + (size_t)piece * sfp__teacher_entry_floats(m->t);
    for (int k = 0; k < D; k++)
        *out++ = sfp__f32_to_f16(tokens[k]);
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++)
            for (int k = 0; k < D; k++) {
                float sum = 0;
                for (int gy = 0; gy < grid; gy++) {
                    float wy = m->pool_w[y * grid + gy];
                    for (int gx = 0; wy != 0 && gx < grid; gx++)
                        sum += wy * m->pool_w[x * grid + gx] * tokens[(size_t)(1 + gy * grid + gx) * (size_t)D + (size_t)k];
                }
                *out++ = sfp__f32_to_f16(sum);
            }
}

static sfp_status write_at(int fd, const char *path, const void *bytes, size_t n, off_t at, sfp_error *err)
{
    const char *p = bytes;
    while (n) {
        ssize_t done = pwrite(fd, p, n, at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot write", path);
        p += done;
        n -= (size_t)done;
        at += done;
    }
    return SFP_OK;
}

static sfp_status sync_cache(int fd, const char *path, sfp_error *err)
{
    return TEMP_FAILURE_RETRY(fdatasync(fd)) == 0 ? SFP_OK : sfp__fail_errno(err, SFP_EIO, "%s: cannot write", path);
}

/* Reads the header of an open cache. *other: the cache is for other inputs. Else sets h->done to its number of entries. */
static sfp_status read_header(int fd, const char *path, header *h, bool *other, sfp_error *err)
{
    header old = {0};
    struct stat st;
    if (fstat(fd, &st) != 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", path);
    if (!S_ISREG(st.st_mode))
        return sfp__fail(err, SFP_EINVAL, "%s: not a regular file", path);
    bool ours = pread(fd, &old, sizeof old, 0) == (ssize_t)sizeof old && memcmp(old.magic, h->magic, sizeof old.magic) == 0;
    if (st.st_size > 0 && !ours)
        return sfp__fail(err, SFP_EFORMAT, "%s: not a cache of teacher outputs; the file is not changed", path);
    bool same = ours && old.key == h->key && old.config == h->config && old.entry_bytes == h->entry_bytes &&
                st.st_size >= HEADER_BYTES && ((uint64_t)st.st_size - HEADER_BYTES) / h->entry_bytes >= old.done;
    h->done = same ? old.done : 0; /* may be less than h->total if there are more views now */
    *other = ours && !same;
    return SFP_OK;
}

/* Readers share the lock of a cache; a writer has it exclusively. On a file system without locks, every call succeeds. */
static sfp_status lock_cache(int fd, const char *path, int how, sfp_error *err)
{
    if (flock(fd, how | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return sfp__fail(err, SFP_EINVAL, "%s: another run %s; choose another --teacher-cache, or wait", path,
                         how == LOCK_EX ? "reads the file, which must be changed for this run" : "writes the file");
    return SFP_OK;
}

/* Opens the cache, which may be complete or incomplete. If it is for other inputs, it is started again. */
static sfp_status open_cache(const char *cache, header *h, int *fd, const sfp_pretrain_options *calls, sfp_error *err)
{
    bool other = false;
    int f = (int)TEMP_FAILURE_RETRY(open(cache, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
    if (f < 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot open", cache);
    *fd = f;
    TRY(lock_cache(f, cache, LOCK_SH, err));
    TRY(read_header(f, cache, h, &other, err));
    if (h->done >= h->total)
        return SFP_OK;
    TRY(lock_cache(f, cache, LOCK_EX, err));
    TRY(read_header(f, cache, h, &other, err));
    if (other) {
        char text[600];
        (void)snprintf(text, sizeof text, "%.400s: the cache is for another teacher, data or views; it is replaced", cache);
        sfp__pretrain_message(calls, SFP_LOG_WARNING, text);
    }
    char block[HEADER_BYTES] = {0};
    memcpy(block, h, sizeof *h);
    TRY(write_at(f, cache, block, sizeof block, 0, err));
    return sync_cache(f, cache, err); /* before old entries are overwritten */
}

static sfp_status run_chunk(cache_job *m, sfp__vit_plan *plan, sfp__thread_pool *pool, int n, sfp_error *err)
{
    int64_t image[CHUNK];
    sfp__view view[CHUNK];
    for (int i = 0; i < n; i++) {
        uint64_t entry = m->first + (uint64_t)i, count = (uint64_t)m->images->count;
        image[i] = (int64_t)(entry % count);
        view[i] = sfp__view_draw(m->o->plan.seed, entry % count, entry / count, m->images->size, m->o->view.min_crop);
    }
    TRY(sfp__inputs_make(m->images, n, image, view, &m->t->vit->config, pool, m->x, err));
    const sfp__vit_pass pass = {.b = n, .x = m->x, .normed = m->normed};
    TRY(sfp__vit_run(plan, &pass, err));
    sfp__thread_pool_run(pool, n, make_entry, m);
    return SFP_OK;
}

/* Writes the number of complete entries, after the entries themselves are on disk. */
static sfp_status write_progress(int fd, const char *path, const header *h, sfp_error *err)
{
    TRY(sync_cache(fd, path, err));
    return write_at(fd, path, h, sizeof *h, 0, err);
}

static sfp_status fill_cache(cache_job *m, header *h, int fd, sfp__vit_plan *plan, sfp__thread_pool *pool,
                             const sfp_pretrain_options *calls, sfp_error *err)
{
    double begin = sfp__monotonic_seconds(), saved_at = begin;
    const char *path = m->cache;
    uint64_t start = h->done;
    while (h->done < h->total) {
        if (sfp__pretrain_cancelled(calls)) {
            TRY(write_progress(fd, path, h, err));
            return sfp__fail(err, SFP_EINVAL, "%s: stopped after %llu of %llu entries; run the same command to continue", path,
                             (unsigned long long)h->done, (unsigned long long)h->total);
        }
        int n = h->total - h->done < CHUNK ? (int)(h->total - h->done) : CHUNK;
        m->first = h->done;
        TRY(run_chunk(m, plan, pool, n, err));
        TRY(write_at(fd, path, m->entry, (size_t)n * h->entry_bytes, (off_t)(HEADER_BYTES + h->done * h->entry_bytes), err));
        h->done += (uint64_t)n;
        if (h->done == h->total || sfp__monotonic_seconds() - saved_at > SAVE_SECONDS) {
            TRY(write_progress(fd, path, h, err));
            saved_at = sfp__monotonic_seconds();
        }
        double now = sfp__monotonic_seconds() - begin;
        sfp__pretrain_report_progress(calls, &(sfp_pretrain_progress){.size = sizeof(sfp_pretrain_progress),
                                                                      .phase = "teacher",
                                                                      .done = h->done,
                                                                      .total = h->total,
                                                                      .fraction = (double)h->done / (double)h->total,
                                                                      .start_fraction = (double)start / (double)h->total,
                                                                      .images_per_second = (double)(h->done - start) / now,
                                                                      .seconds = now});
    }
    if (h->done > start)
        TRY(sync_cache(fd, path, err));
    return lock_cache(fd, path, LOCK_SH, err);
}

static sfp_status make_cache(const sfp__pretrain_options *o, const char *cache, const sfp__image_set *p, sfp__teacher *t,
                             sfp__thread_pool *pool, const sfp_pretrain_options *calls, sfp_error *err)
{
    const sfp__vit_config *c = &t->vit->config;
    cache_job m = {
        .o = o, .images = p, .t = t, .size = c->img_size, .grid = c->img_size / c->patch_size, .tokens = t->vit->tokens};
    header h = {.magic = MAGIC,
                .total = (uint64_t)o->teacher.views * (uint64_t)p->count,
                .entry_bytes = sfp__teacher_entry_floats(t) * sizeof(uint16_t),
                .config = config_hash(c)};
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
    OWNED void *block = NULL;
    size_t pixels = (size_t)CHUNK * 3 * (size_t)m.size * (size_t)m.size;
    const sfp__want list[] = {{&m.pool_w, (size_t)t->grid * (size_t)m.grid, sizeof *m.pool_w},
                              {&m.x, pixels, sizeof *m.x},
                              {&m.normed, (size_t)CHUNK * (size_t)m.tokens * (size_t)t->dim, sizeof *m.normed},
                              {&m.entry, CHUNK, h.entry_bytes}};
    TRY(key_of(o, p, &h.key, err));
    TRY(open_cache(cache, &h, &t->fd, calls, err));
    if (h.done >= h.total)
        return SFP_OK;
    TRY(sfp__block(&block, SFP__LIST(list), err));
    average_weights(t->grid, m.grid, m.pool_w);
    const sfp__vit_plan_options po = {.mode = SFP__VIT_FORWARD, .token_head = true};
    TRY(sfp__vit_plan_create(t->vit, pool, &po, &plan, err));
    return fill_cache(&m, &h, t->fd, plan, pool, calls, err);
}

/* Reads the size and the time of the last change of the cache. */
static sfp_status stat_cache(const sfp__teacher *t, int64_t *size, struct timespec *changed, sfp_error *err)
{
    struct stat st;
    if (fstat(t->fd, &st) != 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot stat", t->cache);
    *size = (int64_t)st.st_size;
    *changed = st.st_mtim;
    return SFP_OK;
}

sfp_status sfp__teacher_read(const sfp__teacher *t, int n, const int *view, const int64_t *image, uint16_t *entries,
                             sfp_error *err)
{
    size_t floats = sfp__teacher_entry_floats(t), bytes = floats * sizeof *entries;
    int64_t size = 0, got = (int64_t)bytes;
    struct timespec changed = {0};
    for (int i = 0; i < n && got == (int64_t)bytes; i++) {
        size_t entry = (size_t)view[i] * (size_t)t->images + (size_t)image[i];
        got = sfp__fd_read_at(t->fd, entries + (size_t)i * floats, bytes, (int64_t)(HEADER_BYTES + entry * bytes));
    }
    if (got < 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", t->cache);
    TRY(stat_cache(t, &size, &changed, err)); /* checked after reading, so that a change before or during it is noticed */
    bool same = size == t->size && changed.tv_sec == t->changed.tv_sec && changed.tv_nsec == t->changed.tv_nsec;
    if (got < (int64_t)bytes || !same)
        return sfp__fail(err, SFP_EIO, "%s: the file was changed by another program; remove it and continue with --resume",
                         t->cache);
    return SFP_OK;
}

/* Computes the mean and the deviation of each channel of class tokens and of patch tokens over evenly spread entries. */
static sfp_status compute_statistics(sfp__teacher *t, sfp_error *err)
{
    size_t D = (size_t)t->dim;
    OWNED double *sum = NULL;
    OWNED uint16_t *entry = NULL;
    TRY(sfp__alloc(&sum, 4 * D, sizeof *sum, err));
    TRY(sfp__alloc(&entry, sfp__teacher_entry_floats(t), sizeof *entry, err));
    TRY(sfp__alloc(&t->mean, 2 * D, sizeof *t->mean, err));
    TRY(sfp__alloc(&t->scale, 2 * D, sizeof *t->scale, err));
    int64_t total = t->images * t->views, n = total < STAT_ENTRIES ? total : STAT_ENTRIES;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i * total / n;
        const uint16_t *e = entry;
        TRY(sfp__teacher_read(t, 1, &(int){(int)(at / t->images)}, &(int64_t){at % t->images}, entry, err));
        for (int row = 0; row <= t->grid * t->grid; row++)
            for (size_t k = 0; k < D; k++) {
                double x = (double)sfp__f16_to_f32(*e++);
                sum[(row ? 2 : 0) * D + k] += x;
                sum[(row ? 3 : 1) * D + k] += x * x;
            }
    }
    for (size_t part = 0; part < 2; part++)
        for (size_t k = 0; k < D; k++) {
            double rows = (double)n * (part ? t->grid * t->grid : 1), mean = sum[2 * part * D + k] / rows;
            double var = sum[(2 * part + 1) * D + k] / rows - mean * mean;
            t->mean[part * D + k] = (float)mean;
            t->scale[part * D + k] = (float)(1 / sqrt(fmax(var, 1e-6)));
        }
    return SFP_OK;
}

sfp_status sfp__teacher_open(const sfp__pretrain_options *o, const sfp__image_set *p, sfp__thread_pool *pool,
                             const sfp_pretrain_options *calls, sfp__teacher *out, sfp_error *err)
{
    OWNED_BY(sfp__teacher_done)
    sfp__teacher t = {.views = o->teacher.views, .images = p->count, .side = side_of(o), .grid = grid_of(o), .fd = -1};
    if (t.grid < 1 || t.grid > 255 || t.grid % side_of(o) != 0)
        return sfp__fail(err, SFP_EINVAL, "--teacher-grid is %d, expected a multiple of %d, the student's patch tokens per side",
                         t.grid, side_of(o));
    char in_out[PATH_MAX];
    (void)snprintf(in_out, sizeof in_out, "%s/teacher.cache", o->output.dir);
    TRY(sfp__check_memory((t.cache = sfp__strdup(o->teacher.cache ? o->teacher.cache : in_out)), err));
    TRY(sfp__vit_load(o->teacher.weights, NULL, &t.vit, err));
    t.dim = t.vit->config.dim;
    t.classes = t.vit->config.classes;
    TRY(make_cache(o, t.cache, p, &t, pool, calls, err));
    TRY(stat_cache(&t, &t.size, &t.changed, err));
    TRY(compute_statistics(&t, err));
    *out = t;
    t = (sfp__teacher){.fd = -1};
    return SFP_OK;
}

void sfp__teacher_done(sfp__teacher *t)
{
    if (t->vit && t->fd >= 0) /* without a teacher, there is no cache and fd is not set */
        (void)close(t->fd);
    sfp__vit_free(t->vit);
    sfp__free(t->cache);
    sfp__free(t->mean);
    sfp__free(t->scale);
    *t = (sfp__teacher){0};
}

/* out (D) += f * (row - mean) * scale */
static void add_row(const sfp__teacher *t, const uint16_t *row, bool patch, float f, float *out)
{
    const float *mean = t->mean + (patch ? t->dim : 0), *scale = t->scale + (patch ? t->dim : 0);
    for (int k = 0; k < t->dim; k++)
        out[k] += f * (sfp__f16_to_f32(row[k]) - mean[k]) * scale[k];
}

void sfp__teacher_add(const sfp__teacher *t, const uint16_t *e, bool mirrored, float f, float *out)
{
    int D = t->dim, side = t->side, grid = t->grid, cell = grid / side;
    add_row(t, e, false, f, out);
    for (int y = 0; y < grid; y++)
        for (int x = 0; x < grid; x++) {
            int to_x = mirrored ? grid - 1 - x : x, to = 1 + y / cell * side + to_x / cell;
            add_row(t, e + (size_t)(1 + y * grid + x) * (size_t)D, true, f / (float)(cell * cell), out + (size_t)to * (size_t)D);
        }
}

void sfp__teacher_class(const sfp__teacher *t, const uint16_t *e, float *out)
{
    for (int k = 0; k < t->dim; k++)
        out[k] = sfp__f16_to_f32(e[k]);
}
