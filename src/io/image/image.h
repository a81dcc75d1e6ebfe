/* Images: decoding JPEG, PNG and WebP files to 8-bit RGB, Pillow's resize, cropping. */
#ifndef SFP_IO_IMAGE_IMAGE_H
#define SFP_IO_IMAGE_IMAGE_H

#include "base/error.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sfp__image {
    int width, height;
    uint8_t *rgb; /* (height, width, 3), allocated with sfp__malloc */
} sfp__image;

typedef struct sfp__image_options {
    size_t max_pixels; /* reject larger images (default 178,956,970, Pillow's limit) */
    size_t max_bytes;  /* reject larger files (default 256 MiB) */
    int fit_side;      /* the image will be resized to at least this side: see SFP__RESIZE_FAST; 0: decode all pixels */
} sfp__image_options;

sfp__image_options sfp__image_options_defaults(void);

/* Grey, palette, 16-bit and CMYK images become RGB; alpha is dropped, as by Pillow's convert("RGB"). Images are turned upright by
 * their EXIF orientation, as by Pillow's exif_transpose. opt NULL: defaults. If there is no memory, the status is SFP_ELIMIT for a large
 * image, so that it is skipped and does not end a run, and SFP_ENOMEM for a small one, which is an error of the machine. */
sfp_status sfp__image_load(const char *path, const sfp__image_options *opt, sfp__image *out, sfp_error *err);
sfp_status sfp__image_decode(const char *label, const void *bytes, size_t size, const sfp__image_options *opt, sfp__image *out,
                             sfp_error *err);
void sfp__image_done(sfp__image *im);

/* Sets a function that sfp__image_decode calls instead of decoding here, for example to decode in another process; NULL: none. No other thread
 * may be decoding during this call. */
typedef sfp_status sfp__image_decoder(const char *label, const void *bytes, size_t size, const sfp__image_options *opt,
                                      sfp__image *out, sfp_error *err);
void sfp__image_set_decoder(sfp__image_decoder *decoder);
/* Sets a block of memory, which may be shared with another process, in which decoded pixels are placed if they fit. Only for a process that
 * decodes one image at a time. */
void sfp__image_set_memory(uint8_t *at, size_t bytes);

/* Reads the bytes of an image file, at most max_bytes; *bytes is newly allocated. */
sfp_status sfp__image_read(const char *path, size_t max_bytes, uint8_t **bytes, size_t *size, sfp_error *err);

/* Returns whether the file name has an image extension: .jpg, .jpeg, .png or .webp, in any case. */
bool sfp__image_name(const char *path);

typedef enum sfp__filter { SFP__FILTER_BILINEAR, SFP__FILTER_BICUBIC } sfp__filter;

/* Pillow's antialiased resize, with 8-bit fixed-point steps; *out is newly allocated. */
sfp_status sfp__image_resize(const sfp__image *im, int width, int height, sfp__filter filter, sfp__image *out, sfp_error *err);
/* Copies a rectangle, which must lie inside the image. */
sfp_status sfp__image_crop(const sfp__image *im, int left, int top, int width, int height, sfp__image *out, sfp_error *err);

/* Crops the image in place to box (left, top, right, bottom), clipped to the image; `label` names the image in messages. */
sfp_status sfp__image_cut(sfp__image *im, const char *label, const int32_t box[4], sfp_error *err);

/* docs/method.md, section 6. Squash: resize to size x size. Crop: resize the short side to round(size*256/224), then crop the
 * centre at offsets rounded down. */
typedef enum sfp__resize {
    SFP__RESIZE_SQUASH,
    SFP__RESIZE_CROP,
    /* A flag: large JPEGs are decoded at a half, a quarter or an eighth of their size, if both sides remain at least twice those of the
     * resized image. */
    SFP__RESIZE_FAST
} sfp__resize;
/* Returns the fit_side of an image that sfp__image_fit resizes. */
int sfp__image_fit_side(int size, sfp__resize how);
sfp_status sfp__image_fit(const sfp__image *im, int size, sfp__resize how, sfp__image *out, sfp_error *err);

/* A source of features passes a row of floats on as an image (model/vit_rows.c): the pixels are the bytes of the row, followed by zeros. Returns
 * the side of this image. */
#define SFP__ROW_MAX 16384 /* floats */
static inline int sfp__row_side(size_t bytes)
{
    int side = 1;
    while (3 * (size_t)side * (size_t)side < bytes)
        side++;
    return side;
}

/* Writes 8-bit RGB PNG, for contact sheets and generated images: appended to a text, or as a file. */
sfp_status sfp__image_encode_png(const char *label, const sfp__image *im, sfp__text *to, sfp_error *err);
sfp_status sfp__image_write_png(const char *path, const sfp__image *im, sfp_error *err);

/* ------------------------------------------------------- for io/image and its tests only */

/* Checks that the size of an image is within the limits. */
sfp_status sfp__image_check_size(const char *label, int64_t width, int64_t height, size_t max_pixels, sfp_error *err);
/* Allocates an image if its size is within the limits; messages begin with `label`. */
sfp_status sfp__image_alloc(const char *label, int64_t width, int64_t height, size_t max_pixels, sfp__image *out, sfp_error *err);

/* Reports that there is no memory to read an image of this size: SFP_ELIMIT if it is large, else SFP_ENOMEM. */
sfp_status sfp__image_nomem(const char *label, int64_t width, int64_t height, sfp_error *err);

/* Decodes one image to RGB. The caller must free *out, also after a failure. *orientation is 1..8; 1: upright. */
typedef sfp_status sfp__decode_fn(const char *label, const uint8_t *bytes, size_t size, const sfp__image_options *opt,
                                  sfp__image *out, int *orientation, sfp_error *err);
sfp__decode_fn sfp__jpeg_decode, sfp__png_decode, sfp__webp_decode;

/* Returns the orientation in an EXIF block (with or without a leading "Exif\0\0"); 1 if it is missing or invalid. */
int sfp__exif_orientation(const uint8_t *bytes, size_t size);

/* For tests only: resize with the plain C loops on every processor. */
void sfp__resize_plain_only(bool on);
/* For tests only: more bytes than this are computed in pieces (default 16 MiB). */
void sfp__resize_in_pieces(size_t bytes);

#endif
