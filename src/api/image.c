/* Converts images of the caller, of any size, stride and format, to the input of the backbone. */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "stream/source_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool has_pixels(const sfp_image *im)
{
    return im->format == SFP_IMAGE_RGB || im->format == SFP_IMAGE_BGR || im->format == SFP_IMAGE_GREY;
}

static bool has_box(const sfp_image *im)
{
    return im->box[0] || im->box[1] || im->box[2] || im->box[3];
}

/* Bytes from one pixel of a row to the next one, from one colour of a pixel to the next one, from one row to the next one. */
static int64_t pixel_step(const sfp_image *im)
{
    return im->pixel_stride ? im->pixel_stride : im->format == SFP_IMAGE_GREY ? 1 : 3;
}

static int64_t channel_step(const sfp_image *im)
{
    return im->format == SFP_IMAGE_GREY ? 0 : im->channel_stride ? im->channel_stride : 1;
}

static int64_t row_step(const sfp_image *im)
{
    return im->stride ? im->stride : im->width * (im->format == SFP_IMAGE_GREY ? INT64_C(1) : INT64_C(3));
}

static sfp_status check_strides(const sfp_image *im, const char *label, sfp_error *err)
{
    const struct {
        const char *name, *unit;
        int64_t bytes;
        int count;
    } strides[] = {{"stride", "rows", im->stride, im->height},
                   {"pixel_stride", "pixels", im->pixel_stride, im->width},
                   {"channel_stride", "colours", im->channel_stride, 3}};
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        int64_t most = INT64_MAX / 4 / strides[i].count; /* so that the sum of all offsets fits */
        if (strides[i].bytes > most || strides[i].bytes < -most)
            return sfp__fail(err, SFP_EINVAL, "%s: %s is %lld bytes, too many for %d %s", label, strides[i].name,
                             (long long)strides[i].bytes, strides[i].count, strides[i].unit);
    }
    int64_t row = im->width * pixel_step(im);
    if (!im->pixel_stride && !im->channel_stride && im->stride && im->stride < row && im->stride > -row)
        return sfp__fail(err, SFP_EINVAL, "%s: stride is %lld bytes, expected 0 or at least %lld for %d pixels", label,
                         (long long)im->stride, (long long)row, im->width);
    return SFP_OK;
}

static sfp_status check(const sfp_image *im, const char *label, int formats, sfp_error *err)
{
    if (im->format < SFP_IMAGE_RGB || im->format > formats)
        return sfp__fail(err, SFP_EINVAL, "%s: format is %d, expected %d to %d", label, im->format, SFP_IMAGE_RGB, formats);
    if (im->flags & ~SFP_IMAGE_EXIF) /* a later version may use them */
        return sfp__fail(err, SFP_EINVAL, "%s: flags is %u, expected only known ones", label, im->flags);
    if (!im->data)
        return sfp__fail(err, SFP_EINVAL, "%s: data is NULL, expected pixels, file bytes or a path", label);
    if (!has_pixels(im))
        return SFP_OK;
    if (im->width < 1 || im->height < 1)
        return sfp__fail(err, SFP_EINVAL, "%s: size is %d x %d, expected at least 1 x 1", label, im->width, im->height);
    return check_strides(im, label, err);
}

/* Copies row y as RGB to `to` (width, 3). */
static void copy_row(const sfp_image *im, int y, uint8_t *to)
{
    int64_t pixel = pixel_step(im), channel = channel_step(im);
    const uint8_t *from = (const uint8_t *)im->data + y * row_step(im);
    if (im->format == SFP_IMAGE_RGB && pixel == 3 && channel == 1) {
        memcpy(to, from, 3 * (size_t)im->width);
        return;
    }
    if (im->format == SFP_IMAGE_BGR) { /* red is the last one */
        from += 2 * channel;
        channel = -channel;
    }
    for (int x = 0; x < im->width; x++, to += 3) {
        const uint8_t *red = from + x * pixel;
        to[0] = red[0];
        to[1] = red[channel];
        to[2] = red[2 * channel];
    }
}

/* Copies all pixels to rgb (height, width, 3). */
static void copy_pixels(const sfp_image *im, uint8_t *rgb)
{
    for (int y = 0; y < im->height; y++)
        copy_row(im, y, rgb + 3 * (size_t)y * (size_t)im->width);
}

static sfp_status to_rgb(const sfp_image *im, const char *label, int fit_side, sfp__image *out, sfp_error *err)
{
    sfp__image_options o = sfp__image_options_defaults();
    o.fit_side = fit_side;
    if (im->format == SFP_IMAGE_FILE)
        return sfp__image_load(im->data, &o, out, err);
    if (im->format == SFP_IMAGE_ENCODED)
        return sfp__image_decode(label, im->data, im->bytes, &o, out, err);
    TRY(sfp__image_alloc(label, im->width, im->height, o.max_pixels, out, err));
    copy_pixels(im, out->rgb);
    return SFP_OK;
}

/* Copies a row of features, which is passed like an image (model/vit_rows.c). */
static sfp_status fit_row(const sfp_image *im, const char *label, const sfp__vit_config *to, uint8_t *rgb, sfp_error *err)
{
    size_t bytes = (size_t)to->dim * sizeof(float);
    if (im->width != to->dim)
        return sfp__fail(err, SFP_ESHAPE, "%s: number of values is %d, expected %d", label, im->width, to->dim);
    memset(rgb, 0, 3 * (size_t)to->img_size * (size_t)to->img_size);
    memcpy(rgb, im->data, bytes);
    for (int k = 0; k < to->dim; k++) {
        float x;
        memcpy(&x, rgb + (size_t)k * sizeof x, sizeof x);
        if (!isfinite(x))
            return sfp__fail(err, SFP_EINVAL, "%s: value %d is %g, expected a finite number", label, k, (double)x);
    }
    return SFP_OK;
}

/* `label` names the image in messages; a file is named by its path. */
static sfp_status fit_one(const sfp_image *im, const char *label, const sfp__vit_config *to, sfp__resize how, uint8_t *rgb,
                          sfp_error *err)
{
    OWNED_BY(sfp__image_done) sfp__image whole = {0}, fit = {0};
    int size = to->img_size;
    TRY(check(im, label, to->rows ? SFP_IMAGE_FEATURES : SFP_IMAGE_FILE, err));
    if (to->rows && im->format != SFP_IMAGE_FEATURES)
        return sfp__fail(err, SFP_EINVAL, "%s: format is %d, expected %d (features): the engine has no network", label,
                         im->format, SFP_IMAGE_FEATURES);
    if (to->rows)
        return fit_row(im, label, to, rgb, err);
    if (has_pixels(im) && im->width == size && im->height == size && !(how & SFP__RESIZE_CROP) && !has_box(im)) {
        copy_pixels(im, rgb); /* at the input size already: nothing is allocated */
        return SFP_OK;
    }
    TRY(to_rgb(im, label, has_box(im) ? 0 : sfp__image_fit_side(size, how), &whole, err));
    if (has_box(im))
        TRY(sfp__image_cut(&whole, label, im->box, err));
    sfp_status status = sfp__image_fit(&whole, size, how, &fit, err);
    if (status)
        return sfp__fail_prefix(err, status, "%s", im->format == SFP_IMAGE_FILE ? (const char *)im->data : label);
    memcpy(rgb, fit.rgb, 3 * (size_t)size * (size_t)size);
    return SFP_OK;
}

/* Copies the bytes of an encoded image or of a file unchanged. */
static sfp_status copy_file(const sfp_image *im, const char *label, sfp__raw_image *out, sfp_error *err)
{
    sfp__raw_image p = {.kind = SFP__RAW_IMAGE_ENCODED, .size = im->bytes};
    if (im->format == SFP_IMAGE_FILE) {
        TRY(sfp__raw_image_read(im->data, &p, err));
    } else if (im->bytes > SFP__RAW_IMAGE_BYTES_MAX) {
        return sfp__fail(err, SFP_ELIMIT, "%s: image has %zu bytes, expected at most %zu", label, im->bytes,
                         SFP__RAW_IMAGE_BYTES_MAX);
    } else if (im->bytes > 0) {
        TRY(sfp__check_memory((p.bytes = sfp__malloc(im->bytes)), err));
        memcpy(p.bytes, im->data, im->bytes);
    }
    if (p.size == 0) {
        sfp__raw_image_done(&p);
        return sfp__fail(err, SFP_EFORMAT, "%s: image has 0 bytes, expected a JPEG, PNG or WebP file", label);
    }
    *out = p;
    return SFP_OK;
}

/* Copies grey pixels without gaps between the rows. */
static sfp_status copy_grey(const sfp_image *im, const char *label, sfp__raw_image *out, sfp_error *err)
{
    size_t width = (size_t)im->width, height = (size_t)im->height;
    sfp__image space = {0}; /* three times as many bytes as needed, within the limits of all images */
    TRY(sfp__image_alloc(label, im->width, im->height, sfp__image_options_defaults().max_pixels, &space, err));
    for (int y = 0; y < im->height; y++)
        for (int x = 0; x < im->width; x++)
            space.rgb[(size_t)y * width + (size_t)x] = ((const uint8_t *)im->data)[y * row_step(im) + x * pixel_step(im)];
    *out = (sfp__raw_image){
        .kind = SFP__RAW_IMAGE_GREY, .width = im->width, .height = im->height, .bytes = space.rgb, .size = width * height};
    return SFP_OK;
}

sfp_status sfp__api_raw_image(const sfp_image *im, const char *label, sfp__raw_image *out, sfp_error *err)
{
    sfp__raw_image p = {0};
    TRY(check(im, label, SFP_IMAGE_FILE, err));
    if (!has_pixels(im)) {
        TRY(copy_file(im, label, &p, err));
    } else if (im->format == SFP_IMAGE_GREY) {
        TRY(copy_grey(im, label, &p, err));
    } else {
        sfp__image rgb = {0};
        TRY(to_rgb(im, label, 0, &rgb, err));
        p = (sfp__raw_image){.kind = SFP__RAW_IMAGE_RGB, .width = rgb.width, .height = rgb.height, .bytes = rgb.rgb};
        p.size = 3 * (size_t)rgb.width * (size_t)rgb.height;
    }
    p.has_box = has_box(im);
    memcpy(p.box, im->box, sizeof p.box);
    *out = p;
    return SFP_OK;
}

sfp_status sfp_image_fit(const sfp_image *image, int size, const char *resize, uint8_t *rgb, sfp_error *err)
{
    IN_LIBRARY;
    bool crop = resize && strcmp(resize, "crop") == 0;
    if (!image || !rgb || size < 1 || size > SFP__API_SIDE_MAX)
        return sfp__fail(err, SFP_EINVAL, "image and rgb must not be NULL, size is %d, expected 1 to %d", size,
                         SFP__API_SIDE_MAX);
    if (resize && !crop && strcmp(resize, "squash") != 0)
        return sfp__fail_key(err, "resize", SFP_EINVAL, "resize is '%.80s', expected squash|crop", resize);
    return fit_one(image, "image", &(sfp__vit_config){.img_size = size}, crop ? SFP__RESIZE_CROP : SFP__RESIZE_SQUASH, rgb, err);
}

/* ------------------------------------------------------------------------------------------------------------ in parallel */

typedef struct fitting {
    const char *images; /* `step` bytes apart */
    size_t step;
    const sfp__vit_config *to;
    sfp__resize how;
    uint8_t *rgb;
    sfp_error *errors;
} fitting;

static void fit_piece(void *ctx, int i, int worker)
{
    const fitting *f = ctx;
    char label[32];
    (void)worker;
    (void)snprintf(label, sizeof label, "image %d", i);
    f->errors[i] = (sfp_error){0};
    size_t side = (size_t)f->to->img_size;
    f->errors[i].status = fit_one((const sfp_image *)(f->images + (size_t)i * f->step), label, f->to, f->how,
                                  f->rgb + (size_t)i * 3 * side * side, &f->errors[i]);
}

void sfp__api_fit_all(sfp__thread_pool *pool, int count, const sfp_image *images, size_t step, const sfp__vit_config *to,
                      sfp__resize how, uint8_t *rgb, sfp_error *errors)
{
    fitting f = {(const char *)images, step, to, how, rgb, errors};
    sfp__thread_pool_run(pool, count, fit_piece, &f);
}
