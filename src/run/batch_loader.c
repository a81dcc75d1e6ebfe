#include "run/batch_loader.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "base/prefetch.h"
#include "run/clock.h"
#include "stream/source.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------- batches */

sfp_status sfp__check_input(const sfp_source *s, const sfp__vit_config *c, const char *key, const char *name, sfp_error *err)
{
    const int dim[] = {s->row_dim, c->rows ? c->dim : 0};
    char text[2][48];
    for (int i = 0; i < 2; i++)
        (void)snprintf(text[i], sizeof text[i], dim[i] ? "features of %d values" : "images", dim[i]);
    return dim[0] == dim[1]
               ? SFP_OK
               : sfp__fail_key(err, key, SFP_EINVAL, "%s %s: the source has %s, expected %s", key, name, text[0], text[1]);
}

sfp_status sfp__batches_create(const sfp__tasks *tasks, int b, bool whole, sfp__batches *out, sfp_error *err)
{
    OWNED_BY(sfp__batches_done) sfp__batches r = {0};
    for (int t = 0; t < tasks->count; t++) {
        int64_t n = tasks->task[t].count, full = n / b;
        r.samples += n;
        r.count += whole && full > 0 ? full : (n + b - 1) / b;
    }
    TRY(sfp__alloc(&r.first, (size_t)r.count + 1, sizeof *r.first, err));
    TRY(sfp__alloc(&r.order, (size_t)r.samples, sizeof *r.order, err));
    TRY(sfp__alloc(&r.task, (size_t)r.count, sizeof *r.task, err));
    TRY(sfp__alloc(&r.arrived, (size_t)r.count, sizeof *r.arrived, err));
    int64_t k = 0, at = 0, arrived = 0;
    for (int t = 0; t < tasks->count; t++) {
        const sfp__task *task = &tasks->task[t];
        int64_t end = whole && task->count >= b ? task->count / b * b : task->count;
        for (int64_t i = 0; i < end; i += b) {
            int n = (int)(end - i < b ? end - i : b);
            memcpy(r.order + at, task->sample + i, (size_t)n * sizeof *r.order);
            at += n;
            r.max_batch_samples = n > r.max_batch_samples ? n : r.max_batch_samples;
            r.task[k] = t;
            r.arrived[k] = arrived + i + n;
            r.first[++k] = at;
        }
        arrived += task->count;
    }
    *out = TAKE(r);
    return SFP_OK;
}

int64_t sfp__batches_excluded(const sfp__tasks *tasks, int b, int count)
{
    int64_t excluded = 0;
    for (int t = 0; t < count; t++)
        excluded += tasks->task[t].count >= b ? tasks->task[t].count % b : 0;
    return excluded;
}

sfp_status sfp__batches_single(int64_t *order, int64_t count, sfp__batches *out, sfp_error *err)
{
    OWNED_BY(sfp__batches_done) sfp__batches r = {.count = count, .order = order, .samples = count, .max_batch_samples = 1};
    TRY(sfp__alloc(&r.first, (size_t)count + 1, sizeof *r.first, err));
    for (int64_t i = 0; i <= count; i++)
        r.first[i] = i;
    *out = TAKE(r);
    return SFP_OK;
}

int sfp__batches_keep(sfp__batches *b, double cs)
{
    int64_t kept = 0, at = 0;
    int starved = 0;
    for (int64_t begin = 0, n; begin < b->count; begin += n) {
        for (n = 1; begin + n < b->count && b->task[begin + n] == b->task[begin];)
            n++;
        int64_t keep = sfp__clock_keep(n, cs);
        starved += (double)n < cs;
        for (int64_t i = 0; i < keep; i++) { /* moves batches down, never over one that is not moved yet */
            int64_t k = begin + sfp__clock_kept_at(i, n, keep), from = b->first[k], samples = b->first[k + 1] - from;
            memmove(b->order + at, b->order + from, (size_t)samples * sizeof *b->order);
            b->first[kept] = at;
            b->task[kept] = b->task[k];
            b->arrived[kept++] = b->arrived[k];
            at += samples;
        }
    }
    b->first[kept] = at;
    b->count = kept;
    return starved;
}

void sfp__batches_done(sfp__batches *b)
{
    sfp__free(b->first);
    sfp__free(b->order);
    sfp__free(b->task);
    sfp__free(b->arrived);
    *b = (sfp__batches){0};
}

/* ---------------------------------------------------------------------- ring */

typedef struct slot {
    sfp_error failure;       /* status OK: none */
    uint8_t *rgb;            /* (max_batch_samples, S, S, 3) */
    sfp__loaded_batch batch; /* batch.samples: (max_batch_samples) */
} slot;

struct sfp__batch_loader {
    const sfp_source *source;
    const sfp__tasks *tasks;
    const sfp__batches *batches;
    sfp__batch_loader_options opt;
    size_t bytes;
    void *block; /* memory of the ring */
    slot *ring;  /* (depth) */
    sfp__prefetcher *prefetcher;
    pthread_mutex_t lock; /* guards the stats */
    sfp__batch_loader_stats stats;
};

static void fill(void *ctx, int64_t k)
{
    sfp__batch_loader *f = ctx;
    slot *s = &f->ring[k % f->opt.depth];
    const sfp__batches *b = f->batches;
    int64_t batch = k % b->count;
    double begin = sfp__monotonic_seconds();
    s->batch.count = 0;
    s->batch.skipped = (sfp__skipped){0};
    s->failure.status = SFP_OK;
    for (int64_t i = b->first[batch]; i < b->first[batch + 1]; i++) {
        int64_t index = b->order[i];
        uint8_t *rgb = s->rgb + (size_t)s->batch.count * f->bytes;
        sfp_record record;
        sfp_error err = {0};
        sfp_status status = sfp__source_record(f->source, index, &record, &err);
        if (!status)
            status = sfp__raw_image_read_fit(f->source, index, f->opt.size, f->opt.resize, rgb, &err);
        if (sfp__is_machine_error(status)) {
            s->failure = err;
            break;
        }
        int32_t label = record.label < 0 ? -1 : f->tasks->label_of[record.label];
        if (status)
            sfp__skipped_add(&s->batch.skipped, err.message);
        else
            s->batch.samples[s->batch.count++] = (sfp__sample){.rgb = rgb, .label = label, .id = (uint64_t)index};
    }
    pthread_mutex_lock(&f->lock);
    f->stats.decode += sfp__monotonic_seconds() - begin;
    pthread_mutex_unlock(&f->lock);
}

sfp_status sfp__batch_loader_create(const sfp_source *s, const sfp__tasks *tasks, const sfp__batches *batches,
                                    const sfp__batch_loader_options *opt, int64_t start, sfp__batch_loader **out, sfp_error *err)
{
    OWNED_PTR(sfp__batch_loader_free) sfp__batch_loader *f = NULL;
    size_t max = (size_t)(batches->max_batch_samples ? batches->max_batch_samples : 1), depth = (size_t)opt->depth;
    uint8_t *rgb;
    sfp__sample *sample;
    TRY(sfp__alloc(&f, 1, sizeof *f, err));
    f->source = s;
    f->tasks = tasks;
    f->batches = batches;
    f->opt = *opt;
    f->bytes = 3 * (size_t)opt->size * (size_t)opt->size;
    pthread_mutex_init(&f->lock, NULL);
    const sfp__want list[] = {
        {&f->ring, depth, sizeof *f->ring}, {&rgb, depth * max, f->bytes}, {&sample, depth * max, sizeof *sample}};
    TRY(sfp__block(&f->block, SFP__LIST(list), err));
    for (size_t i = 0; i < depth; i++)
        f->ring[i] = (slot){.rgb = rgb + i * max * f->bytes, .batch.samples = sample + i * max};
    const sfp__prefetcher_options po = {.item_name = "batch",
                                        .first = start,
                                        .end = opt->count ? opt->count : batches->count,
                                        .depth = opt->depth,
                                        .make = fill,
                                        .ctx = f};
    TRY(sfp__prefetcher_create(&po, &f->prefetcher, err));
    *out = TAKE(f);
    return SFP_OK;
}

void sfp__batch_loader_free(sfp__batch_loader *f)
{
    if (!f)
        return;
    sfp__prefetcher_free(f->prefetcher);
    sfp__free(f->block);
    pthread_mutex_destroy(&f->lock);
    sfp__free(f);
}

sfp_status sfp__batch_loader_take(sfp__batch_loader *f, int64_t k, const sfp__loaded_batch **out, sfp_error *err)
{
    double wait_seconds = 0;
    TRY(sfp__prefetcher_take(f->prefetcher, k, &wait_seconds, err));
    pthread_mutex_lock(&f->lock);
    f->stats.wait_seconds += wait_seconds;
    pthread_mutex_unlock(&f->lock);
    const slot *s = &f->ring[k % f->opt.depth];
    if (s->failure.status)
        return sfp__fail(err, s->failure.status, "%s", s->failure.message);
    *out = &s->batch;
    return SFP_OK;
}

void sfp__batch_loader_release(sfp__batch_loader *f, int64_t k)
{
    sfp__prefetcher_release(f->prefetcher, k);
}

sfp__batch_loader_stats sfp__batch_loader_get_stats(sfp__batch_loader *f)
{
    pthread_mutex_lock(&f->lock);
    sfp__batch_loader_stats s = f->stats;
    pthread_mutex_unlock(&f->lock);
    return s;
}
