/* Shard I/N of a dataset: the images whose digest modulo N is I. The digest is computed from name and class, without reading the image. So each
 * image is in exactly one of the N shards, and in the same one on every machine. */
#include "base/rng.h"
#include "base/settings.h"
#include "stream/source_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct shard {
    sfp_source base; /* a copy of `inner`, whose names it shares */
    sfp_source *inner;
    int64_t *index; /* (count) in `inner` */
} shard;

static sfp_status shard_record(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *err)
{
    const shard *f = (const shard *)s;
    return sfp__source_record(f->inner, f->index[i], out, err);
}

static sfp_status shard_load(const sfp_source *s, int64_t i, sfp__raw_image *out, sfp_error *err)
{
    const shard *f = (const shard *)s;
    return sfp__source_load(f->inner, f->index[i], out, err);
}

static const char *shard_name(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    const shard *f = (const shard *)s;
    return sfp__source_name(f->inner, f->index[i], buf, size);
}

static const char *shard_display_name(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    const shard *f = (const shard *)s;
    return sfp__source_display_name(f->inner, f->index[i], buf, size);
}

static void shard_close(sfp_source *s)
{
    shard *f = (shard *)s;
    s->class_names = s->domain_names = NULL;
    s->classes = s->domains = 0;
    s->warning = NULL;
    sfp__source_close(f->inner);
    sfp__free(f->index);
}

static const sfp__source_ops shard_ops = {
    .record = shard_record, .load = shard_load, .name = shard_name, .display_name = shard_display_name, .close = shard_close};

sfp_status sfp__shard_parse(const char *text, int *index, int *count, sfp_error *err)
{
    char *slash = NULL;
    long i = strtol(text, &slash, 10);
    int64_t n = 0;
    char shown[SFP__NAME_MAX];
    if (slash == text || *slash != '/' || !sfp__parse_int(slash + 1, &n) || i < 0 || n < 1 || n > 1000000 || i >= n)
        return sfp__fail_key(err, "shard", SFP_EINVAL, "shard is '%s', expected I/N with I from 0 to N - 1, such as 0/16",
                             sfp__printable(text, shown, sizeof shown));
    *index = (int)i;
    *count = (int)n;
    return SFP_OK;
}

sfp_status sfp__shard_open(sfp_source **source, const char *text, sfp_error *err)
{
    sfp_source *inner = *source, *base = NULL;
    int index = 0, count = 0;
    if (!text)
        return SFP_OK;
    TRY(sfp__shard_parse(text, &index, &count, err));
    if (inner->live)
        return sfp__fail_key(err, "shard", SFP_EINVAL, "shard: %s:%s is a live source, expected a dataset", inner->kind->name,
                             inner->path);
    TRY(sfp__source_create(sizeof(shard), inner->kind, &shard_ops, inner->path, &base, err));
    shard *f = (shard *)base;
    char *path = base->path;
    f->base = *inner;
    f->base.ops = &shard_ops;
    f->base.path = path;
    f->base.count = 0;
    sfp_status status = sfp__alloc(&f->index, (size_t)inner->count, sizeof *f->index, err);
    for (int64_t i = 0; i < inner->count && !status; i++) {
        sfp_record r = {.label = -1};
        char name[SFP__PATH_BYTES_MAX + 64];
        status = sfp__source_record(inner, i, &r, err);
        const char *class = !status && r.label >= 0 ? inner->class_names[r.label] : "";
        const char *at = sfp__source_name(inner, i, name, sizeof name);
        uint64_t digest = sfp__hash(sfp__hash(SFP__HASH_START, class, strlen(class)), at, strlen(at));
        digest ^= digest >> 29; /* mixes the high bits in, because similar names have similar low bits */
        digest *= UINT64_C(0xbf58476d1ce4e5b9);
        if ((digest >> 32) % (uint64_t)count == (uint64_t)index)
            f->index[f->base.count++] = i;
    }
    if (!status && f->base.count == 0)
        status =
            sfp__fail_key(err, "shard", SFP_EINVAL, "shard %s: %s:%s has no image in it", text, inner->kind->name, inner->path);
    if (status) {
        sfp__source_close(base); /* the caller keeps `inner` */
        return status;
    }
    f->inner = inner;
    *source = base;
    return SFP_OK;
}
