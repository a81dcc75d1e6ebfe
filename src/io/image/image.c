/* Pictures: which decoder by the first bytes (names lie), limits before any
 * allocation, crop and the PNG writer. */
#include "io/image/image.h"

#include "base/mem.h"
#include "io/file.h"
#include "io/image/codec.h"

#include <limits.h>
#include <spng.h>
#include <string.h>
#include <strings.h>

sfp_image_options sfp__image_options_defaults(void)
{
    return (sfp_image_options){.max_pixels = 178956970, .max_bytes = (size_t)256 << 20};
}

void sfp__image_done(sfp_image *im)
{
    if (!im)
        return;
    sfp__free(im->rgb);
    *im = (sfp_image){0};
}

sfp_status sfp__image_alloc(const char *label, int64_t width, int64_t height, size_t max_pixels, sfp_image *out, sfp_error *err)
{
    size_t pixels, bytes;
    if (width < 1 || height < 1 || width > INT_MAX || height > INT_MAX)
        return sfp__fail(err, SFP_EFORMAT, "%s: picture is %lld x %lld", label, (long long)width, (long long)height);
    if (!sfp__mul_size((size_t)width, (size_t)height, &pixels) || !sfp__mul_size(pixels, 3, &bytes) || pixels > max_pixels)
        return sfp__fail(err, SFP_ELIMIT, "%s: picture is %lld x %lld, expected at most %zu pixels", label, (long long)width,
                         (long long)height, max_pixels);
    uint8_t *rgb = sfp__malloc(bytes);
    if (!rgb)
        return sfp__fail(err, SFP_ENOMEM, "%s: cannot allocate %zu bytes for a picture of %lld x %lld", label, bytes,
                         (long long)width, (long long)height);
    *out = (sfp_image){(int)width, (int)height, rgb};
    return SFP_OK;
}

static sfp_decode_fn *find_decoder(const uint8_t *bytes, size_t size)
{
    if (size >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0)
        return sfp__jpeg_decode;
    if (size >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0)
        return sfp__png_decode;
    if (size >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0)
        return sfp__webp_decode;
    return NULL;
}

sfp_status sfp__image_decode(const char *label, const void *bytes, size_t size, const sfp_image_options *opt, sfp_image *out,
                             sfp_error *err)
{
    sfp_image_options defaults = sfp__image_options_defaults();
    if (!opt)
        opt = &defaults;
    if (size > opt->max_bytes)
        return sfp__fail(err, SFP_ELIMIT, "%s: has %zu bytes, expected at most %zu", label, size, opt->max_bytes);
    sfp_decode_fn *decode = find_decoder(bytes, size);
    if (!decode)
        return sfp__fail(err, SFP_EFORMAT, "%s: is no JPEG, PNG or WebP picture", label);
    OWNED_BY(sfp__image_done) sfp_image im = {0};
    int orientation = 1;
    TRY(decode(label, bytes, size, opt, &im, &orientation, err));
    TRY(sfp__image_orient(&im, orientation, err));
    *out = im;
    im = (sfp_image){0};
    return SFP_OK;
}

sfp_status sfp__image_load(const char *path, const sfp_image_options *opt, sfp_image *out, sfp_error *err)
{
    size_t max_bytes = opt ? opt->max_bytes : sfp__image_options_defaults().max_bytes;
    OWNED uint8_t *bytes = NULL;
    size_t size = 0;
    TRY(sfp__file_read(path, max_bytes, &bytes, &size, err));
    return sfp__image_decode(path, bytes, size, opt, out, err);
}

bool sfp__image_name(const char *path)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png", ".webp"};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    if (!dot || dot == name) /* ".png" alone is a hidden file without an ending */
        return false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (strcasecmp(dot, endings[i]) == 0)
            return true;
    }
    return false;
}

sfp_status sfp__image_crop(const sfp_image *im, int left, int top, int width, int height, sfp_image *out, sfp_error *err)
{
    if (left < 0 || top < 0 || width < 1 || height < 1 || left > im->width - width || top > im->height - height)
        return sfp__fail(err, SFP_EINVAL, "crop of %d x %d at (%d, %d) does not lie inside a picture of %d x %d", width, height,
                         left, top, im->width, im->height);
    sfp_image cut = {0};
    TRY(sfp__image_alloc("crop", width, height, SIZE_MAX, &cut, err));
    size_t row = (size_t)width * 3, stride = (size_t)im->width * 3;
    const uint8_t *from = im->rgb + (size_t)top * stride + (size_t)left * 3;
    for (int y = 0; y < height; y++)
        memcpy(cut.rgb + (size_t)y * row, from + (size_t)y * stride, row);
    *out = cut;
    return SFP_OK;
}

/* ---------------------------------------------------------------- PNG writer */

static int put_bytes(spng_ctx *ctx, void *to, void *bytes, size_t size)
{
    (void)ctx;
    sfp__text_putn(to, bytes, size);
    return ((sfp_text *)to)->failed ? SPNG_IO_ERROR : 0;
}

sfp_status sfp__image_encode_png(const char *label, const sfp_image *im, sfp_text *to, sfp_error *err)
{
    if (im->width < 1 || im->height < 1 || !im->rgb)
        return sfp__fail(err, SFP_EINVAL, "%s: picture is %d x %d", label, im->width, im->height);
    struct spng_ihdr head = {
        .width = (uint32_t)im->width, .height = (uint32_t)im->height, .bit_depth = 8, .color_type = SPNG_COLOR_TYPE_TRUECOLOR};
    spng_ctx *ctx = spng_ctx_new(SPNG_CTX_ENCODER);
    int code = ctx ? spng_set_png_stream(ctx, put_bytes, to) : SPNG_EMEM;
    if (!code)
        code = spng_set_ihdr(ctx, &head);
    if (!code)
        code = spng_encode_image(ctx, im->rgb, (size_t)im->width * (size_t)im->height * 3, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
    spng_ctx_free(ctx);
    if (to->failed)
        return sfp__fail_nomem(err);
    if (code)
        return sfp__fail(err, code == SPNG_EMEM ? SFP_ENOMEM : SFP_ELIBRARY, "%s: cannot encode as PNG: %s", label,
                         spng_strerror(code));
    return SFP_OK;
}

sfp_status sfp__image_write_png(const char *path, const sfp_image *im, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp_text png = {0};
    TRY(sfp__image_encode_png(path, im, &png, err));
    return sfp__file_write(path, png.s, png.length, err);
}
