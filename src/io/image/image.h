/* Images: JPEG, PNG and WebP files to 8-bit RGB; Pillow's resize; crop. */
#ifndef SFP_IO_IMAGE_IMAGE_H
#define SFP_IO_IMAGE_IMAGE_H

#include "base/error.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sfp__image {
    int width, height;
    uint8_t *rgb; /* (height, width, 3), sfp__malloc'ed */
} sfp__image;

typedef struct sfp__image_options {
    bool exif_orientation; /* turn the image by its EXIF orientation; off by default, as in Pillow's open */
    size_t max_pixels;     /* refuse larger images (default 178,956,970, Pillow's bomb limit) */
    size_t max_bytes;      /* refuse larger files (default 256 MiB) */
} sfp__image_options;

sfp__image_options sfp__image_options_defaults(void);

/* Grey, alpha (dropped, as Pillow's convert("RGB")), palette, 16-bit and CMYK become RGB. opt NULL = defaults. */
sfp_status sfp__image_load(const char *path, const sfp__image_options *opt, sfp__image *out, sfp_error *err);
sfp_status sfp__image_decode(const char *label, const void *bytes, size_t size, const sfp__image_options *opt, sfp__image *out,
                             sfp_error *err);
void sfp__image_done(sfp__image *im);

/* true for names this decoder takes: .jpg .jpeg .png .webp, any case */
bool sfp__image_name(const char *path);

typedef enum sfp__filter { SFP_FILTER_BILINEAR, SFP_FILTER_BICUBIC } sfp__filter;

/* Pillow's antialiased resize, 8-bit fixed-point steps; out is newly allocated. */
sfp_status sfp__image_resize(const sfp__image *im, int width, int height, sfp__filter filter, sfp__image *out, sfp_error *err);
/* Copies the window; it must lie inside. */
sfp_status sfp__image_crop(const sfp__image *im, int left, int top, int width, int height, sfp__image *out, sfp_error *err);

/* Keeps the part of the image within box (left, top, right, bottom), clipped to the image; `label` names it in messages. */
sfp_status sfp__image_cut(sfp__image *im, const char *label, const int32_t box[4], sfp_error *err);

/* docs/method.md, section 6: squash to size x size, or crop: short side to round(size*256/224), then the centre at offsets
 * rounded down. */
typedef enum sfp__resize { SFP_RESIZE_SQUASH, SFP_RESIZE_CROP } sfp__resize;
sfp_status sfp__image_fit(const sfp__image *im, int size, sfp__resize how, sfp__image *out, sfp_error *err);

/* 8-bit RGB, for contact sheets and generated images: appended to a text, or a file of its own. */
sfp_status sfp__image_encode_png(const char *label, const sfp__image *im, sfp__text *to, sfp_error *err);
sfp_status sfp__image_write_png(const char *path, const sfp__image *im, sfp_error *err);

/* ---------------------------------------- what the files of images share; besides them for tests only */

/* Space for an image, once its size is within the limits; messages begin with `label`. */
sfp_status sfp__image_alloc(const char *label, int64_t width, int64_t height, size_t max_pixels, sfp__image *out, sfp_error *err);

/* One image to RGB; whatever happens, *out is the caller's to free. *orientation is 1..8, looked for only when
 * opt->exif_orientation is set (else 1). */
typedef sfp_status sfp__decode_fn(const char *label, const uint8_t *bytes, size_t size, const sfp__image_options *opt,
                                  sfp__image *out, int *orientation, sfp_error *err);
sfp__decode_fn sfp__jpeg_decode, sfp__png_decode, sfp__webp_decode;

/* The orientation in an EXIF block ("Exif\0\0" in front or not); 1 when there is none or it makes no sense. */
int sfp__exif_orientation(const uint8_t *bytes, size_t size);

/* Tests only: resize by the plain C loops whatever the processor can. */
void sfp__resize_plain_only(bool on);

#endif
