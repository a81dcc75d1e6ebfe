/* What the files of pictures share; besides them only tests include it. */
#ifndef SFP_IO_IMAGE_CODEC_H
#define SFP_IO_IMAGE_CODEC_H

#include "io/image/image.h"

/* Room for a picture, once its size is within the limits; messages begin with `label`. */
sfp_status sfp__image_alloc(const char *label, int64_t width, int64_t height, size_t max_pixels, sfp_image *out, sfp_error *err);

/* One picture to RGB; whatever happens, *out is the caller's to free. *orientation is 1..8, looked for only when
 * opt->exif_orientation is set (else 1). */
typedef sfp_status sfp_decode_fn(const char *label, const uint8_t *bytes, size_t size, const sfp_image_options *opt,
                                 sfp_image *out, int *orientation, sfp_error *err);
sfp_decode_fn sfp__jpeg_decode, sfp__png_decode, sfp__webp_decode;

/* The orientation in an EXIF block ("Exif\0\0" in front or not); 1 when there is none or it makes no sense. */
int sfp__exif_orientation(const uint8_t *bytes, size_t size);

/* Turns the picture upright; fails only for lack of memory (*im is then as before). */
sfp_status sfp__image_orient(sfp_image *im, int orientation, sfp_error *err);

/* Tests only: resize by the plain C loops whatever the processor can. */
void sfp__resize_plain_only(bool on);

#endif
