/* Images for the image tests, encoded by the encoders of the libraries. */
#ifndef TEST_IMAGE_ENCODE_H
#define TEST_IMAGE_ENCODE_H

#include <jpeglib.h>
#include <spng.h>
#include <webp/encode.h>

#include "test.h"

typedef struct blob {
    uint8_t *bytes; /* allocated with its exact size */
    size_t size;
} blob;

static inline blob blob_of(const void *bytes, size_t size)
{
    blob b = {kept_malloc(size ? size : 1), size};
    assert_non_null(b.bytes);
    memcpy(b.bytes, bytes, size);
    return b;
}

/* A smooth image, which lossy formats reproduce closely. */
static inline uint8_t sample(int x, int y, int c, int width, int height)
{
    int v = c == 0 ? x * 255 / width : c == 1 ? y * 255 / height : c == 2 ? 255 - (x + y) * 255 / (width + height) : 40 + x % 7;
    return (uint8_t)v;
}

static inline uint8_t *make_samples(int width, int height, int channels)
{
    uint8_t *p = kept_malloc((size_t)width * (size_t)height * (size_t)channels), *to = p;
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            for (int c = 0; c < channels; c++)
                *to++ = sample(x, y, c, width, height);
        }
    }
    return p;
}

/* Returns an EXIF block with one entry, in either byte order. */
static inline blob make_exif(int orientation, bool big_endian, bool prefix)
{
    uint8_t b[32] = {'E', 'x', 'i', 'f', 0, 0}, *t = b + 6;
    const uint8_t little[26] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, (uint8_t)orientation};
    const uint8_t big[26] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, (uint8_t)orientation};
    memcpy(t, big_endian ? big : little, 26);
    return prefix ? blob_of(b, 32) : blob_of(t, 26);
}

typedef struct jpeg_how {
    J_COLOR_SPACE given, stored;
    int quality;
    bool progressive;
    int restart; /* rows between restart markers */
    blob exif;
} jpeg_how;

static inline blob encode_jpeg(const uint8_t *samples, int width, int height, jpeg_how how)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *out = NULL;
    unsigned long size = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &size);
    c.image_width = (JDIMENSION)width;
    c.image_height = (JDIMENSION)height;
    c.input_components = how.given == JCS_GRAYSCALE ? 1 : how.given == JCS_CMYK ? 4 : 3;
    c.in_color_space = how.given;
    jpeg_set_defaults(&c);
    jpeg_set_colorspace(&c, how.stored);
    jpeg_set_quality(&c, how.quality, TRUE);
    if (how.progressive)
        jpeg_simple_progression(&c);
    c.restart_in_rows = how.restart;
    jpeg_start_compress(&c, TRUE);
    if (how.exif.bytes)
        jpeg_write_marker(&c, JPEG_APP0 + 1, how.exif.bytes, (unsigned)how.exif.size);
    for (int y = 0; y < height; y++) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(samples + (size_t)y * (size_t)width * (size_t)c.input_components);
        (void)jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    blob b = blob_of(out, size);
    free(out); /* allocated by libjpeg */
    return b;
}

static inline blob make_jpeg(int width, int height, bool progressive)
{
    uint8_t *p = make_samples(width, height, 3);
    return encode_jpeg(p, width, height,
                       (jpeg_how){.given = JCS_RGB, .stored = JCS_YCbCr, .quality = 95, .progressive = progressive});
}

typedef struct png_how {
    uint8_t type, depth, interlace;
    const struct spng_plte *palette;
    const struct spng_trns *transparent;
    blob exif;
} png_how;

/* Encodes rows as they are stored in the file (packed, 16-bit big-endian). */
static inline blob encode_png(const void *rows, size_t size, int width, int height, png_how how)
{
    spng_ctx *c = spng_ctx_new(SPNG_CTX_ENCODER);
    struct spng_ihdr head = {(uint32_t)width, (uint32_t)height, how.depth, how.type, 0, 0, how.interlace};
    assert_int_equal(spng_set_option(c, SPNG_ENCODE_TO_BUFFER, 1), 0);
    assert_int_equal(spng_set_ihdr(c, &head), 0);
    if (how.palette) {
        struct spng_plte palette = *how.palette;
        assert_int_equal(spng_set_plte(c, &palette), 0);
    }
    if (how.transparent) {
        struct spng_trns transparent = *how.transparent;
        assert_int_equal(spng_set_trns(c, &transparent), 0);
    }
    if (how.exif.bytes) {
        struct spng_exif exif = {how.exif.size, (char *)how.exif.bytes};
        assert_int_equal(spng_set_exif(c, &exif), 0);
    }
    assert_int_equal(spng_encode_image(c, rows, size, SPNG_FMT_RAW, SPNG_ENCODE_FINALIZE), 0);
    int code;
    size_t n;
    void *out = spng_get_png_buffer(c, &n, &code);
    assert_int_equal(code, 0);
    blob b = blob_of(out, n);
    free(out);
    spng_ctx_free(c);
    return b;
}

static inline blob make_png(int width, int height)
{
    uint8_t *p = make_samples(width, height, 3);
    return encode_png(p, (size_t)width * (size_t)height * 3, width, height,
                      (png_how){.type = SPNG_COLOR_TYPE_TRUECOLOR, .depth = 8});
}

static inline blob make_webp(int width, int height, bool lossless, bool alpha)
{
    int channels = alpha ? 4 : 3, stride = width * channels;
    uint8_t *p = make_samples(width, height, channels), *out = NULL;
    size_t n = lossless ? (alpha ? WebPEncodeLosslessRGBA(p, width, height, stride, &out)
                                 : WebPEncodeLosslessRGB(p, width, height, stride, &out))
                        : (alpha ? WebPEncodeRGBA(p, width, height, stride, 95, &out)
                                 : WebPEncodeRGB(p, width, height, stride, 95, &out));
    assert_true(n > 0);
    blob b = blob_of(out, n);
    WebPFree(out);
    return b;
}

static inline void put32(uint8_t *p, size_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

/* Puts the image chunk of `still` into the extended container, with flags and an EXIF chunk. */
static inline blob extend_webp(blob still, int width, int height, uint8_t flags, blob exif)
{
    size_t image = still.size - 12, padded = exif.size + (exif.size & 1), size = 12 + 18 + image + 8 + padded;
    blob b = {kept_calloc(1, size), size};
    uint8_t *p = b.bytes;
    memcpy(p, "RIFF....WEBPVP8X", 16);
    put32(p + 4, size - 8);
    put32(p + 16, 10);
    p[20] = flags;
    p[24] = (uint8_t)(width - 1);
    p[27] = (uint8_t)(height - 1);
    memcpy(p + 30, still.bytes + 12, image);
    p += 30 + image;
    memcpy(p, "EXIF", 4);
    put32(p + 4, exif.size);
    memcpy(p + 8, exif.bytes, exif.size);
    return b;
}

#endif
