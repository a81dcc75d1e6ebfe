/* Decodes, cuts and resizes an image of a source to the input of the backbone; counts those that are skipped. */
#include "stream/source.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FAILED_MAX = 8 }; /* images in a row that cannot be read because of the disk, after which the disk has failed */
static const struct timespec pause_between = {.tv_nsec = 50000000};

static sfp_status to_image(const sfp__raw_image *p, const char *name, int fit_side, sfp__image *out, sfp_error *err)
{
    sfp__image_options o = sfp__image_options_defaults();
    o.fit_side = fit_side;
    if (p->kind == SFP__RAW_IMAGE_ENCODED)
        return sfp__image_decode(name, p->bytes, p->size, &o, out, err);
    size_t pixels = (size_t)p->width * (size_t)p->height, want = p->kind == SFP__RAW_IMAGE_RGB ? 3 * pixels : pixels;
    if (p->width < 1 || p->height < 1 || p->size != want)
        return sfp__fail(err, SFP_EFORMAT, "%s: image of %d x %d pixels has %zu bytes, expected %zu", name, p->width, p->height,
                         p->size, want);
    TRY(sfp__image_alloc(name, p->width, p->height, SIZE_MAX, out, err));
    for (size_t i = 0; i < 3 * pixels; i++)
        out->rgb[i] = p->bytes[p->kind == SFP__RAW_IMAGE_RGB ? i : i / 3];
    return SFP_OK;
}

sfp_status sfp__raw_image_fit(const sfp__raw_image *p, const char *name, int size, sfp__resize how, uint8_t *rgb, sfp_error *err)
{
    OWNED_BY(sfp__image_done) sfp__image im = {0}, fit = {0};
    if (p->kind == SFP__RAW_IMAGE_ROW) {
        if (sfp__row_side(p->size) != size)
            return sfp__fail(err, SFP_ESHAPE, "%s: features of %zu values cannot be shown or used as an image", name,
                             p->size / sizeof(float));
        memset(rgb, 0, 3 * (size_t)size * (size_t)size);
        memcpy(rgb, p->bytes, p->size);
        return SFP_OK;
    }
    TRY(to_image(p, name, p->has_box ? 0 : sfp__image_fit_side(size, how), &im, err)); /* a box is in pixels of the whole image */
    if (p->has_box)
        TRY(sfp__image_cut(&im, name, p->box, err));
    sfp_status status = sfp__image_fit(&im, size, how, &fit, err);
    if (status)
        return sfp__fail_prefix(err, status, "%s", name);
    memcpy(rgb, fit.rgb, 3 * (size_t)size * (size_t)size);
    return SFP_OK;
}

sfp_status sfp__source_settle(const sfp_source *s, sfp_status status, sfp_error *err)
{
    atomic_int *failed = (atomic_int *)(uintptr_t)&s->failed_reads; /* the only member that changes */
    if (!sfp__is_machine_error(status))
        atomic_store(failed, 0);
    if (status != SFP_EIO)
        return status;
    int fd = open("/", O_PATH | O_CLOEXEC); /* fails if the process has no descriptors left */
    bool has_descriptors = fd >= 0 && close(fd) == 0;
    if (!has_descriptors || atomic_fetch_add(failed, 1) + 1 >= FAILED_MAX)
        return status;
    if (err)
        err->status = SFP_EFORMAT;
    return SFP_EFORMAT;
}

static sfp_status read_once(const sfp_source *s, int64_t i, int size, sfp__resize how, uint8_t *rgb, sfp_error *err)
{
    OWNED_BY(sfp__raw_image_done) sfp__raw_image p = {0};
    char where[512];
    TRY(sfp__source_load(s, i, &p, err));
    return sfp__raw_image_fit(&p, sfp__source_display_name(s, i, where, sizeof where), size, how, rgb, err);
}

sfp_status sfp__raw_image_read_fit(const sfp_source *s, int64_t i, int size, sfp__resize how, uint8_t *rgb, sfp_error *err)
{
    sfp_status status = read_once(s, i, size, how, rgb, err);
    for (int k = 1; k < SFP__READ_ATTEMPTS && sfp__is_machine_error(status); k++) {
        (void)nanosleep(&pause_between, NULL);
        status = read_once(s, i, size, how, rgb, err);
    }
    return sfp__source_settle(s, status, err);
}

/* --------------------------------------------------------------------- skipped images */

void sfp__skipped_join(sfp__skipped *s, const sfp__skipped *later)
{
    if (!*s->first)
        memcpy(s->first, later->first, sizeof s->first);
    s->count += later->count;
    s->refused |= later->refused;
}

void sfp__skipped_add(sfp__skipped *s, const char *why)
{
    sfp__skipped one = {.count = 1};
    (void)snprintf(one.first, sizeof one.first, "%s", why);
    sfp__skipped_join(s, &one);
}

void sfp__skipped_text(const sfp__skipped *s, const char *what, char *buf, size_t size)
{
    bool one = s->count == 1, known = *s->first;
    (void)snprintf(buf, size, "%llu %s%s could not be %s and %s skipped%s%s%s", (unsigned long long)s->count, what,
                   one ? "" : "s", s->refused ? "used" : "read", one ? "was" : "were", known ? " (first: " : "", s->first,
                   known ? ")" : "");
}

sfp_status sfp__skipped_check(const sfp__skipped *s, const char *name, uint64_t allowed, uint64_t total, sfp_error *err)
{
    if (s->count <= allowed)
        return SFP_OK;
    return sfp__fail(err, SFP_EFORMAT,
                     "%s: %llu of %llu images could not be read, but --max-skipped allows only %llu (first: %s)", name,
                     (unsigned long long)s->count, (unsigned long long)total, (unsigned long long)allowed, s->first);
}

sfp_status sfp__skipped_all(const sfp__skipped *s, const char *name, sfp_error *err)
{
    return sfp__fail(err, SFP_EFORMAT, "%s: none of the %llu images could be %s (first: %s)", name, (unsigned long long)s->count,
                     s->refused ? "used" : "read", s->first);
}
