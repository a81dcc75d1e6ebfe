/* synthetic:N - N images (64 x 64) of ten kinds of rendered objects, without a file.
 *
 * Image i depends only on the seed and on i, so that synthetic:1000 is the beginning of synthetic:2000, and any thread may draw
 * any image. The world drifts with i (stream/sources/render.h), therefore the order is kept. Every ten images have every class
 * once.
 *
 * The test set shows the same world, at times spread evenly over the same period, with objects, places and noise drawn from
 * another seed.
 *
 * N = 0 is a live source (only next, count -1), but record and load accept any index as well. Its test set covers the first
 * ENDLESS_SPAN images. The labelled key of an image is its number, from 1 on: the last one says where to continue. */
#include "base/rng.h"
#include "stream/source_internal.h"
#include "stream/sources/render.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 64, DEFAULT_COUNT = 2000, TEST_MIN = 100, ENDLESS_SPAN = 8000 };

#define TEST_SEED UINT64_C(0x9e3779b97f4a7c15) /* any number: another key gives another sequence */

static sfp_status open_synthetic(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err);

static const sfp__source_kind endless = {
    .name = "synthetic",
    .summary = "rendered objects that drift, without end",
    .live = true,
    .open = open_synthetic,
};

typedef struct synthetic {
    sfp_source base;
    sfp__source_live live; /* endless */
    sfp__store *store;     /* NULL: the source is used without a run */
    int64_t pending;       /* samples up to this id, which an earlier process has left, were delivered; INT64_MAX: all */
    int64_t last;          /* the image that was delivered last */
    bool last_stored;
    uint64_t world;     /* seed of the drift */
    uint64_t seed;      /* seed of the images */
    double span;        /* test part: number of training images over whose time its images are spread; 0: this is the training stream */
    int64_t next;       /* endless */
    char last_name[48]; /* name of the last image */
} synthetic;

/* Each block of ten is a permutation of the classes. */
static int32_t label_of(const synthetic *s, int64_t i)
{
    int32_t order[SFP__SHAPES];
    sfp__rng r = sfp__rng_init(s->seed ^ 0x6c6162656c, (uint64_t)(i / SFP__SHAPES));
    for (int32_t k = 0; k < SFP__SHAPES; k++) {
        int32_t j = (int32_t)sfp__rng_below(&r, (uint32_t)k + 1);
        order[k] = order[j];
        order[j] = k;
    }
    return order[i % SFP__SHAPES];
}

static sfp_status record(const sfp_source *base, int64_t i, sfp_record *out, sfp_error *err)
{
    (void)err;
    *out = sfp__record_none();
    out->label = label_of((const synthetic *)base, i);
    return SFP_OK;
}

static sfp_status load(const sfp_source *base, int64_t i, sfp__raw_image *out, sfp_error *err)
{
    const synthetic *s = (const synthetic *)base;
    sfp__raw_image p = {.kind = SFP__RAW_IMAGE_RGB, .width = SIDE, .height = SIDE, .size = SIDE * SIDE * 3};
    TRY(sfp__alloc(&p.bytes, p.size, 1, err));
    double time = s->span > 0 ? ((double)i + 0.5) * s->span / (double)base->count : (double)i;
    sfp__scene scene;
    sfp__scene_make(label_of(s, i), 0, s->world, time, s->seed, (uint64_t)i, &scene);
    sfp__scene_draw(&scene, SIDE, p.bytes);
    *out = p;
    return SFP_OK;
}

static const char *name(const sfp_source *base, int64_t i, char *buf, size_t size)
{
    const synthetic *s = (const synthetic *)base;
    (void)snprintf(buf, size, "synthetic%s[%lld]", s->span > 0 ? "-test" : "", (long long)i);
    return buf;
}

/* Image i is sample i of the store. */
static sfp_status next(sfp_source *base, sfp_record *r, sfp__raw_image *out, bool *end, sfp_error *err)
{
    synthetic *s = (synthetic *)base;
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    bool left = false;
    *end = s->live.stop && atomic_load(s->live.stop);
    if (*end)
        return SFP_OK;
    if (s->pending < INT64_MAX) {
        TRY(sfp__store_next_pending(s->store, s->pending, &row, &left, err));
        s->pending = left ? (int64_t)row.id : INT64_MAX;
    }
    s->last = left ? (int64_t)row.id : s->next++;
    s->last_stored = left;
    TRY(load(base, s->last, out, err));
    return record(base, s->last, r, err);
}

static void origin(const sfp_source *base, sfp__origin *out)
{
    synthetic *s = (synthetic *)(uintptr_t)base; /* only this function writes the name */
    *out = (sfp__origin){
        .name = name(base, s->last, s->last_name, sizeof s->last_name), .stored = s->last_stored, .id = (uint64_t)s->last};
}

static sfp_status set_store(sfp_source *base, sfp__store *store, sfp_error *err)
{
    synthetic *s = (synthetic *)base;
    (void)err;
    s->store = store;
    s->pending = -1;
    s->next = (int64_t)sfp__store_next_id(store);
    return SFP_OK;
}

static const sfp__source_ops synthetic_ops = {.record = record, .load = load, .name = name};

static const sfp__source_ops endless_ops = {
    .record = record,
    .load = load,
    .name = name,
    .next = next,
    .origin = origin,
    .set_store = set_store,
    .on_demand = true,
};

static sfp_status parse_count(const char *path, int64_t *out, sfp_error *err)
{
    char shown[SFP__NAME_MAX], *end = NULL;
    if (!*path) {
        *out = DEFAULT_COUNT;
        return SFP_OK;
    }
    errno = 0;
    long long n = path[0] >= '0' && path[0] <= '9' ? strtoll(path, &end, 10) : -1;
    if (n < 0 || *end || errno == ERANGE || n > SFP__RECORDS_MAX)
        return sfp__fail_key(err, "data", SFP_EINVAL, "data 'synthetic:%s': expected a number of images, 0 (without end) to %lld",
                             sfp__printable(path, shown, sizeof shown), (long long)SFP__RECORDS_MAX);
    *out = n;
    return SFP_OK;
}

static sfp_status open_synthetic(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    int64_t n = 0;
    OWNED_BY(sfp__names_done) sfp__names names = {0};
    OWNED_PTR(sfp__source_close) sfp_source *base = NULL;
    TRY(parse_count(path, &n, err));
    bool live = n == 0 && !opt->test;
    TRY(sfp__source_create(sizeof(synthetic), live ? &endless : &sfp__source_synthetic, live ? &endless_ops : &synthetic_ops,
                           path, &base, err));
    for (int32_t i = 0, number; i < SFP__SHAPES; i++)
        TRY(sfp__names_add(&names, sfp__shape_names[i], strlen(sfp__shape_names[i]), &number, err));
    sfp__names_give(&names, &base->class_names, &base->classes);
    synthetic *s = (synthetic *)base;
    s->pending = INT64_MAX;
    s->world = opt->seed;
    s->seed = opt->test ? opt->seed ^ TEST_SEED : opt->seed;
    s->span = !opt->test ? 0 : (double)(n ? n : ENDLESS_SPAN);
    base->live = live ? &s->live : NULL;
    base->count = live ? -1 : !opt->test ? n : n / 5 > TEST_MIN ? n / 5 : TEST_MIN;
    base->keeps_order = true;
    base->seeded = true;
    base->test_part = opt->test;
    *out = TAKE(base);
    return SFP_OK;
}

const sfp__source_kind sfp__source_synthetic = {
    .name = "synthetic",
    .summary = "N rendered objects that drift (0: without end), no file needed",
    .open = open_synthetic,
};
