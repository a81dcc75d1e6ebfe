/* Encodes an image as a JPEG file, for tests: the program itself writes none. On failure libjpeg exits the process. */
#ifndef SFP_TOOLS_JPEG_MAKE_H
#define SFP_TOOLS_JPEG_MAKE_H

#include "io/image/image.h"

#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

static inline void put_jpeg(const sfp__image *im, int quality, sfp__text *to)
{
    struct jpeg_error_mgr errors;
    struct jpeg_compress_struct info = {.err = jpeg_std_error(&errors)};
    unsigned char *bytes = NULL;
    unsigned long size = 0;
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &bytes, &size);
    info.image_width = (JDIMENSION)im->width;
    info.image_height = (JDIMENSION)im->height;
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, quality, TRUE);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
        JSAMPROW row = im->rgb + (size_t)info.next_scanline * (size_t)im->width * 3;
        (void)jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    sfp__text_putn(to, (const char *)bytes, size);
    free(bytes);
}

#endif
