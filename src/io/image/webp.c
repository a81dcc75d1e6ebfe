/* WebP, lossy and lossless, by libwebp; alpha is dropped. */
#include "io/image/image.h"

#include "base/mem.h"

#include <string.h>
#include <webp/decode.h>

static sfp_status fail_code(const char *label, VP8StatusCode code, sfp_error *err)
{
    switch (code) {
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
        return sfp__fail(err, SFP_EFORMAT, "%s: WebP is truncated: the file ends before the image does", label);
    case VP8_STATUS_OUT_OF_MEMORY:
        return sfp__fail(err, SFP_ENOMEM, "%s: WebP: out of memory", label);
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s: WebP uses a feature that the decoder does not support", label);
    default:
        return sfp__fail(err, SFP_EFORMAT, "%s: WebP is damaged (code %d)", label, (int)code);
    }
}

/* Searches the RIFF chunks for the one named EXIF. */
static int find_orientation(const uint8_t *bytes, size_t size)
{
    size_t at = 12;
    while (at <= size && size - at >= 8) {
        const uint8_t *p = bytes + at;
        size_t length = (size_t)p[4] | (size_t)p[5] << 8 | (size_t)p[6] << 16 | (size_t)p[7] << 24;
        if (length > size - at - 8)
            break;
        if (memcmp(p, "EXIF", 4) == 0)
            return sfp__exif_orientation(p + 8, length);
        at += 8 + length + (length & 1);
    }
    return 1;
}

sfp_status sfp__webp_decode(const char *label, const uint8_t *bytes, size_t size, const sfp__image_options *opt, sfp__image *out,
                            int *orientation, sfp_error *err)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return sfp__fail(err, SFP_ELIBRARY, "%s: the WebP library has another version than its header", label);
    VP8StatusCode code = WebPGetFeatures(bytes, size, &config.input);
    if (code != VP8_STATUS_OK)
        return fail_code(label, code, err);
    if (config.input.has_animation)
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s: WebP is animated, expected a still image", label);
    TRY(sfp__image_alloc(label, config.input.width, config.input.height, opt->max_pixels, out, err));
    /* a side of a WebP image is at most 16,383, so the stride fits an int */
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = out->rgb;
    config.output.u.RGBA.stride = out->width * 3;
    config.output.u.RGBA.size = (size_t)out->width * (size_t)out->height * 3;
    code = WebPDecode(bytes, size, &config);
    WebPFreeDecBuffer(&config.output);
    if (code != VP8_STATUS_OK)
        return fail_code(label, code, err);
    *orientation = find_orientation(bytes, size);
    return SFP_OK;
}
