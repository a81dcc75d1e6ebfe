/* A source of square images, each of a single shade. Classes alternate: image i has label i % classes. */
#ifndef TEST_FAKE_SOURCE_H
#define TEST_FAKE_SOURCE_H

#include "stream/source_internal.h"

#include <stdatomic.h>
#include <time.h>

#include "test.h"

typedef struct fake_source {
    sfp_source s;
    int side;
    uint8_t (*shade)(int64_t i);
    int64_t broken_from, broken_every; /* 0: none */
    long pause;                        /* nanoseconds per image */
    atomic_long *loads;                /* NULL: loads are not counted */
} fake_source;

static inline sfp_status fake_record(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *why)
{
    (void)why;
    *out = sfp__record_none();
    out->label = (int32_t)(i % s->classes);
    return SFP_OK;
}

static inline sfp_status fake_load(const sfp_source *s, int64_t i, sfp__raw_image *out, sfp_error *why)
{
    const fake_source *f = (const fake_source *)s;
    size_t size = 3 * (size_t)f->side * (size_t)f->side;
    if (f->loads)
        (void)atomic_fetch_add(f->loads, 1);
    if (f->pause)
        (void)nanosleep(&(struct timespec){.tv_nsec = f->pause}, NULL);
    if (f->broken_every && i >= f->broken_from && (i - f->broken_from) % f->broken_every == 0)
        return sfp__fail(why, SFP_EFORMAT, "image %lld: broken", (long long)i);
    uint8_t *bytes = sfp__malloc(size);
    if (!bytes)
        return sfp__fail_nomem(why);
    memset(bytes, f->shade(i), size);
    *out = (sfp__raw_image){.kind = SFP__RAW_IMAGE_RGB, .width = f->side, .height = f->side, .bytes = bytes, .size = size};
    return SFP_OK;
}

static inline const char *fake_name(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    (void)s;
    (void)snprintf(buf, size, "image %lld", (long long)i);
    return buf;
}

static inline fake_source make_fake(int64_t count, int classes, int side, uint8_t (*shade)(int64_t i))
{
    static const sfp__source_ops ops = {.record = fake_record, .load = fake_load, .name = fake_name};
    static const sfp__source_kind kind = {.name = "fake", .summary = "for tests"};
    static char a[] = "a", b[] = "b", c[] = "c", d[] = "d", path[] = "fake";
    static char *names[] = {a, b, c, d};
    return (fake_source){.s = {.kind = &kind,
                               .path = path,
                               .count = count,
                               .classes = classes,
                               .class_names = names,
                               .keeps_order = true,
                               .ops = &ops},
                         .side = side,
                         .shade = shade};
}

#endif
