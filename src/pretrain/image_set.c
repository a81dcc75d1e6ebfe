/* Loads the images of a dataset into memory, in parallel. */
#include "pretrain/pretrain_internal.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "base/rng.h"
#include "stream/source.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { GRAIN = 256 };

typedef struct loading {
    const sfp_source *source;
    sfp__image_set *to;
    int64_t source_count; /* number of images of the source, of which to->count are loaded */
    int64_t first, n;     /* the images that the thread pool loads now */
    bool *broken;         /* (count) */
    sfp_error failed;     /* memory, descriptors or the disk failed; status OK: they did not */
    pthread_mutex_t lock;
} loading;

/* The index in the source of image i of the set. */
static int64_t source_index(const loading *l, int64_t i)
{
    return (int64_t)((double)i * (double)l->source_count / (double)l->to->count);
}

static void load_one(void *ctx, int piece, int worker)
{
    (void)worker;
    loading *l = ctx;
    sfp__image_set *p = l->to;
    int64_t i = l->first + piece;
    size_t bytes = 3 * (size_t)p->size * (size_t)p->size;
    sfp_error err = {0};
    sfp_record record;
    sfp_status s = sfp__source_record(l->source, source_index(l, i), &record, &err);
    if (!s)
        s = sfp__raw_image_read_fit(l->source, source_index(l, i), p->size, SFP__RESIZE_SQUASH, p->rgb + (size_t)i * bytes, &err);
    p->label[i] = s ? -1 : record.label;
    l->broken[i] = s != SFP_OK;
    if (!s)
        return;
    pthread_mutex_lock(&l->lock);
    if (sfp__is_machine_error(s))
        l->failed = err;
    sfp__skipped_add(&p->skipped, err.message);
    pthread_mutex_unlock(&l->lock);
}

/* Removes the images that could not be read. */
static void remove_broken(sfp__image_set *p, const bool *broken)
{
    size_t bytes = 3 * (size_t)p->size * (size_t)p->size;
    int64_t kept = 0;
    for (int64_t i = 0; i < p->count; i++) {
        if (broken[i])
            continue;
        if (kept != i) {
            memcpy(p->rgb + (size_t)kept * bytes, p->rgb + (size_t)i * bytes, bytes);
            p->label[kept] = p->label[i];
        }
        kept++;
    }
    p->count = kept;
}

static sfp_status copy_names(const sfp_source *source, sfp__image_set *p, sfp_error *err)
{
    TRY(sfp__alloc(&p->class_names, (size_t)source->classes, sizeof *p->class_names, err));
    p->classes = source->classes;
    for (int i = 0; i < p->classes; i++)
        TRY(sfp__check_memory((p->class_names[i] = sfp__strdup(source->class_names[i])), err));
    return SFP_OK;
}

/* Replaces the labels by those of another set, matched by class name. */
static sfp_status relabel(sfp__image_set *p, const sfp__image_set *like, sfp_error *err)
{
    OWNED int32_t *to = NULL;
    TRY(sfp__alloc(&to, (size_t)p->classes, sizeof *to, err));
    for (int i = 0; i < p->classes; i++) {
        to[i] = -1;
        for (int k = 0; k < like->classes && to[i] < 0; k++)
            if (strcmp(p->class_names[i], like->class_names[k]) == 0)
                to[i] = k;
    }
    for (int64_t i = 0; i < p->count; i++)
        p->label[i] = p->label[i] >= 0 ? to[p->label[i]] : -1;
    return SFP_OK;
}

static sfp_status read_all(loading *l, sfp__thread_pool *pool, const sfp_pretrain_options *calls, sfp_error *err)
{
    double begin = sfp__monotonic_seconds();
    for (l->first = 0; l->first < l->to->count; l->first += l->n) {
        if (sfp__pretrain_cancelled(calls))
            return sfp__fail(err, SFP_EINVAL, "%s: stopped while reading images", l->source->path);
        l->n = l->to->count - l->first < GRAIN ? l->to->count - l->first : GRAIN;
        sfp__thread_pool_run(pool, (int)l->n, load_one, l);
        if (l->failed.status)
            return sfp__fail(err, l->failed.status, "%s", l->failed.message);
        sfp__pretrain_report_progress(calls,
                                      &(sfp_pretrain_progress){.size = sizeof(sfp_pretrain_progress),
                                                               .phase = "images",
                                                               .done = (uint64_t)(l->first + l->n),
                                                               .total = (uint64_t)l->to->count,
                                                               .fraction = (double)(l->first + l->n) / (double)l->to->count,
                                                               .seconds = sfp__monotonic_seconds() - begin});
    }
    return SFP_OK;
}

static sfp_status open_source(const char *spec, const sfp__image_set_options *opt, sfp_source **out, sfp_error *err)
{
    const sfp__source_options so = {.test = opt->test};
    TRY(sfp__source_open(spec, &so, out, err));
    if (opt->required && !(*out)->test_part)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: the dataset has no test part", spec);
    if ((*out)->row_dim)
        return sfp__fail(err, SFP_EINVAL, "%s: the source has features, expected images", spec);
    if ((*out)->kind->live || (*out)->count < 1)
        return sfp__fail(err, SFP_EINVAL, "%s: %s, expected a dataset with images", spec,
                         (*out)->kind->live ? "the source is live" : "the source has no images");
    return SFP_OK;
}

static sfp_status allocate_images(const char *spec, const sfp_source *source, int64_t limit, loading *l, sfp_error *err)
{
    sfp__image_set *p = l->to;
    size_t bytes = 3 * (size_t)p->size * (size_t)p->size, all;
    l->source = source;
    l->source_count = source->count;
    p->count = limit > 0 && limit < source->count ? limit : source->count;
    if (!sfp__mul_size((size_t)p->count, bytes, &all))
        return sfp__fail(err, SFP_ELIMIT, "%s: %lld images of %d x %d do not fit into memory", spec, (long long)p->count, p->size,
                         p->size);
    TRY(sfp__check_memory((p->rgb = sfp__malloc(all)), err));
    TRY(sfp__alloc(&p->label, (size_t)p->count, sizeof *p->label, err));
    return sfp__alloc(&l->broken, (size_t)p->count, sizeof *l->broken, err);
}

static void close_source(sfp_source **source)
{
    sfp__source_close(*source);
}

static sfp_status load(const char *spec, const sfp__image_set_options *opt, sfp__thread_pool *pool,
                       const sfp_pretrain_options *calls, loading *l, sfp_error *err)
{
    OWNED_BY(close_source) sfp_source *source = NULL;
    sfp__image_set *p = l->to;
    TRY(open_source(spec, opt, &source, err));
    TRY(allocate_images(spec, source, opt->limit, l, err));
    TRY(copy_names(source, p, err));
    TRY(read_all(l, pool, calls, err));
    remove_broken(p, l->broken);
    if (p->count == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: no image could be read (first: %s)", spec, p->skipped.first);
    return opt->like ? relabel(p, opt->like, err) : SFP_OK;
}

sfp_status sfp__image_set_load(const char *spec, const sfp__image_set_options *opt, sfp__thread_pool *pool,
                               const sfp_pretrain_options *calls, sfp__image_set *out, sfp_error *err)
{
    OWNED_BY(sfp__image_set_done) sfp__image_set p = {.size = opt->size};
    loading l = {.to = &p};
    pthread_mutex_init(&l.lock, NULL);
    sfp_status s = load(spec, opt, pool, calls, &l, err);
    sfp__free(l.broken);
    pthread_mutex_destroy(&l.lock);
    TRY(s);
    *out = TAKE(p);
    return SFP_OK;
}

sfp_status sfp__image_set_hold_out(sfp__image_set *from, int nth, sfp__image_set *out, sfp_error *err)
{
    size_t bytes = 3 * (size_t)from->size * (size_t)from->size;
    OWNED_BY(sfp__image_set_done) sfp__image_set p = {.size = from->size};
    int64_t moved = from->count / nth, kept = 0;
    TRY(sfp__alloc(&p.rgb, (size_t)moved, bytes, err));
    TRY(sfp__alloc(&p.label, (size_t)moved, sizeof *p.label, err));
    for (int64_t i = 0; i < from->count; i++) {
        bool move = i % nth == nth - 1;
        uint8_t *to = move ? p.rgb + (size_t)p.count * bytes : from->rgb + (size_t)kept * bytes;
        if (move)
            p.label[p.count++] = from->label[i];
        else
            from->label[kept++] = from->label[i];
        if (to != from->rgb + (size_t)i * bytes)
            memcpy(to, from->rgb + (size_t)i * bytes, bytes);
    }
    from->count = kept;
    *out = TAKE(p);
    return SFP_OK;
}

void sfp__image_set_done(sfp__image_set *p)
{
    sfp__free(p->rgb);
    sfp__free(p->label);
    for (int i = 0; p->class_names && i < p->classes; i++)
        sfp__free(p->class_names[i]);
    sfp__free(p->class_names);
    *p = (sfp__image_set){0};
}

uint64_t sfp__image_set_hash(const sfp__image_set *p)
{
    return sfp__hash(SFP__HASH_START, p->rgb, (size_t)p->count * 3 * (size_t)p->size * (size_t)p->size);
}
