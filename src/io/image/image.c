/* Images: the choice of a decoder by the first bytes (file names are unreliable), size limits before any allocation, cropping,
 * the EXIF orientation and the PNG writer. */
#include "io/image/image.h"

#include "io/file.h"

#include <limits.h>
#include <spng.h>
#include <string.h>
#include <strings.h>

/* If there is no memory for an image of more than this many bytes, the image is at fault and not the machine. */
#define LARGE_BYTES ((size_t)16 << 20)

sfp__image_options sfp__image_options_defaults(void)
{
    return (sfp__image_options){.max_pixels = 178956970, .max_bytes = (size_t)256 << 20};
}

static struct {
    uint8_t *at; /* NULL: none */
    size_t bytes;
    bool taken;
} place;

void sfp__image_set_memory(uint8_t *at, size_t bytes)
{
    place.at = at;
    place.bytes = bytes;
    place.taken = false;
}

void sfp__image_done(sfp__image *im)
{
    if (!im)
        return;
    if (im->rgb && im->rgb == place.at)
        place.taken = false;
    else
        sfp__free(im->rgb);
    *im = (sfp__image){0};
}

sfp_status sfp__image_nomem(const char *label, int64_t width, int64_t height, sfp_error *err)
{
    bool large = (double)width * (double)height * 3 > (double)LARGE_BYTES;
    return sfp__fail(err, large ? SFP_ELIMIT : SFP_ENOMEM, "%s: cannot allocate memory for an image of %lld x %lld", label,
                     (long long)width, (long long)height);
}

sfp_status sfp__image_check_size(const char *label, int64_t width, int64_t height, size_t max_pixels, sfp_error *err)
{
    size_t pixels, bytes;
    if (width < 1 || height < 1 || width > INT_MAX || height > INT_MAX)
        return sfp__fail(err, SFP_EFORMAT, "%s: image is %lld x %lld, expected at least 1 x 1", label, (long long)width,
                         (long long)height);
    if (!sfp__mul_size((size_t)width, (size_t)height, &pixels) || !sfp__mul_size(pixels, 3, &bytes) || pixels > max_pixels)
        return sfp__fail(err, SFP_ELIMIT, "%s: image is %lld x %lld, expected at most %zu pixels", label, (long long)width,
                         (long long)height, max_pixels);
    return SFP_OK;
}

sfp_status sfp__image_alloc(const char *label, int64_t width, int64_t height, size_t max_pixels, sfp__image *out, sfp_error *err)
{
    TRY(sfp__image_check_size(label, width, height, max_pixels, err));
    size_t bytes = 3 * (size_t)width * (size_t)height;
    bool placed = place.at && !place.taken && bytes <= place.bytes;
    uint8_t *rgb = placed ? place.at : sfp__malloc(bytes);
    if (placed)
        place.taken = true;
    if (!rgb)
        return sfp__image_nomem(label, width, height, err);
    *out = (sfp__image){(int)width, (int)height, rgb};
    return SFP_OK;
}

static sfp__decode_fn *find_decoder(const uint8_t *bytes, size_t size)
{
    if (size >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0)
        return sfp__jpeg_decode;
    if (size >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0)
        return sfp__png_decode;
    if (size >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0)
        return sfp__webp_decode;
    return NULL;
}

/* Turns the image upright. Fails only if memory is exhausted; *im is then unchanged. */
static sfp_status turn_upright(const char *label, sfp__image *im, int orientation, sfp_error *err)
{
    if (orientation < 2 || orientation > 8)
        return SFP_OK;
    /* how the source is read: x and y swapped, columns from the right, rows from the bottom */
    static const struct {
        bool swap, right, bottom;
    } orders[9] = {
        [2] = {0, 1, 0}, [3] = {0, 1, 1}, [4] = {0, 0, 1}, [5] = {1, 0, 0}, [6] = {1, 0, 1}, [7] = {1, 1, 1}, [8] = {1, 1, 0}};
    ptrdiff_t w = im->width, h = im->height;
    ptrdiff_t column = orders[orientation].right ? -3 : 3, row = orders[orientation].bottom ? -3 * w : 3 * w;
    const uint8_t *start =
        im->rgb + (orders[orientation].right ? 3 * (w - 1) : 0) + (orders[orientation].bottom ? 3 * w * (h - 1) : 0);
    ptrdiff_t step_x = orders[orientation].swap ? row : column, step_y = orders[orientation].swap ? column : row;

    sfp__image upright = {0};
    TRY(sfp__image_alloc(label, orders[orientation].swap ? h : w, orders[orientation].swap ? w : h, SIZE_MAX, &upright, err));
    uint8_t *to = upright.rgb;
    for (int y = 0; y < upright.height; y++) {
        for (int x = 0; x < upright.width; x++, to += 3)
            memcpy(to, start + y * step_y + x * step_x, 3);
    }
    sfp__image_done(im);
    *im = upright;
    return SFP_OK;
}

static sfp__image_decoder *other_decoder;

void sfp__image_set_decoder(sfp__image_decoder *decoder)
{
    other_decoder = decoder;
}

sfp_status sfp__image_decode(const char *label, const void *bytes, size_t size, const sfp__image_options *opt, sfp__image *out,
                             sfp_error *err)
{
    sfp__image_options defaults = sfp__image_options_defaults();
    if (!opt)
        opt = &defaults;
    if (other_decoder)
        return other_decoder(label, bytes, size, opt, out, err);
    if (size > opt->max_bytes)
        return sfp__fail(err, SFP_ELIMIT, "%s: image has %zu bytes, expected at most %zu", label, size, opt->max_bytes);
    sfp__decode_fn *decode = find_decoder(bytes, size);
    if (!decode)
        return sfp__fail(err, SFP_EFORMAT, "%s: not a JPEG, PNG or WebP image", label);
    OWNED_BY(sfp__image_done) sfp__image im = {0};
    int orientation = 1;
    sfp_status status = decode(label, bytes, size, opt, &im, &orientation, err);
    if (status == SFP_ENOMEM && im.rgb)
        return sfp__image_nomem(label, im.width, im.height, err);
    TRY(status);
    TRY(turn_upright(label, &im, orientation, err));
    *out = TAKE(im);
    return SFP_OK;
}

sfp_status sfp__image_read(const char *path, size_t max_bytes, uint8_t **bytes, size_t *size, sfp_error *err)
{
    sfp_status status = sfp__file_read(path, max_bytes, bytes, size, err);
    if (status != SFP_ENOMEM)
        return status;
    size_t missing = sfp__mem_failed();
    return sfp__fail(err, missing > LARGE_BYTES ? SFP_ELIMIT : status, "%s: cannot allocate %zu bytes", path, missing);
}

sfp_status sfp__image_load(const char *path, const sfp__image_options *opt, sfp__image *out, sfp_error *err)
{
    size_t max_bytes = opt ? opt->max_bytes : sfp__image_options_defaults().max_bytes;
    OWNED uint8_t *bytes = NULL;
    size_t size = 0;
    TRY(sfp__image_read(path, max_bytes, &bytes, &size, err));
    return sfp__image_decode(path, bytes, size, opt, out, err);
}

bool sfp__image_name(const char *path)
{
    static const char *const extensions[] = {".jpg", ".jpeg", ".png", ".webp"};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    if (!dot || dot == name) /* a file named ".png" is hidden and has no extension */
        return false;
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        if (strcasecmp(dot, extensions[i]) == 0)
            return true;
    }
    return false;
}

sfp_status sfp__image_crop(const sfp__image *im, int left, int top, int width, int height, sfp__image *out, sfp_error *err)
{
    if (left < 0 || top < 0 || width < 1 || height < 1 || left > im->width - width || top > im->height - height)
        return sfp__fail(err, SFP_EINVAL, "crop is %d x %d at (%d, %d), expected one inside the image of %d x %d", width, height,
                         left, top, im->width, im->height);
    sfp__image cut = {0};
    TRY(sfp__image_alloc("crop", width, height, SIZE_MAX, &cut, err));
    size_t row = (size_t)width * 3, stride = (size_t)im->width * 3;
    const uint8_t *from = im->rgb + (size_t)top * stride + (size_t)left * 3;
    for (int y = 0; y < height; y++)
        memcpy(cut.rgb + (size_t)y * row, from + (size_t)y * stride, row);
    *out = cut;
    return SFP_OK;
}

static int clamp(int x, int lo, int hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

sfp_status sfp__image_cut(sfp__image *im, const char *label, const int32_t box[4], sfp_error *err)
{
    int left = clamp(box[0], 0, im->width), right = clamp(box[2], 0, im->width);
    int top = clamp(box[1], 0, im->height), bottom = clamp(box[3], 0, im->height);
    if (right <= left || bottom <= top)
        return sfp__fail(err, SFP_EFORMAT, "%s: the box (%d, %d)-(%d, %d) lies outside the %d x %d image", label, box[0], box[1],
                         box[2], box[3], im->width, im->height);
    sfp__image part = {0};
    sfp_status status = sfp__image_crop(im, left, top, right - left, bottom - top, &part, err);
    if (status)
        return sfp__fail_prefix(err, status, "%s", label);
    sfp__image_done(im);
    *im = part;
    return SFP_OK;
}

/* ---------------------------------------------------------------- PNG writer */

static int put_bytes(spng_ctx *ctx, void *to, void *bytes, size_t size)
{
    (void)ctx;
    sfp__text_putn(to, bytes, size);
    return ((sfp__text *)to)->failed ? SPNG_IO_ERROR : 0;
}

sfp_status sfp__image_encode_png(const char *label, const sfp__image *im, sfp__text *to, sfp_error *err)
{
    if (im->width < 1 || im->height < 1 || !im->rgb)
        return sfp__fail(err, SFP_EINVAL, "%s: image is %d x %d, expected at least 1 x 1", label, im->width, im->height);
    struct spng_ihdr head = {
        .width = (uint32_t)im->width, .height = (uint32_t)im->height, .bit_depth = 8, .color_type = SPNG_COLOR_TYPE_TRUECOLOR};
    spng_ctx *ctx = spng_ctx_new(SPNG_CTX_ENCODER);
    int code = ctx ? spng_set_png_stream(ctx, put_bytes, to) : SPNG_EMEM;
    if (!code)
        code = spng_set_ihdr(ctx, &head);
    if (!code)
        code = spng_encode_image(ctx, im->rgb, (size_t)im->width * (size_t)im->height * 3, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
    spng_ctx_free(ctx);
    TRY(sfp__check_memory(!to->failed, err));
    if (code)
        return sfp__fail(err, code == SPNG_EMEM ? SFP_ENOMEM : SFP_ELIBRARY, "%s: cannot encode as PNG: %s", label,
                         spng_strerror(code));
    return SFP_OK;
}

sfp_status sfp__image_write_png(const char *path, const sfp__image *im, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text png = {0};
    TRY(sfp__image_encode_png(path, im, &png, err));
    return sfp__file_write(path, png.s, png.length, err);
}

/* ---------------------------------------------------------------------- EXIF
 *
 * An EXIF block is a TIFF file inside a JPEG marker; only one number of it is needed. Damaged blocks are common and are not a
 * reason to reject an image: they count as orientation 1. */

#define TAG_ORIENTATION 0x0112
#define TYPE_SHORT 3
#define ENTRY_SIZE 12

struct tiff {
    const uint8_t *bytes;
    size_t size;
    bool big_endian;
};

/* Reading outside of the block yields 0: a count, an offset or a tag of 0 is never the one searched for. */
static unsigned get16(const struct tiff *t, size_t at)
{
    if (t->size < 2 || at > t->size - 2)
        return 0;
    const uint8_t *p = t->bytes + at;
    return t->big_endian ? (unsigned)p[0] << 8 | p[1] : (unsigned)p[1] << 8 | p[0];
}

static uint32_t get32(const struct tiff *t, size_t at)
{
    if (t->size < 4 || at > t->size - 4)
        return 0;
    uint32_t first = get16(t, at), second = get16(t, at + 2);
    return t->big_endian ? first << 16 | second : second << 16 | first;
}

int sfp__exif_orientation(const uint8_t *bytes, size_t size)
{
    if (size >= 6 && memcmp(bytes, "Exif\0\0", 6) == 0) {
        bytes += 6;
        size -= 6;
    }
    if (size < 8)
        return 1;
    struct tiff t = {bytes, size, bytes[0] == 'M'};
    if (memcmp(bytes, "II", 2) != 0 && memcmp(bytes, "MM", 2) != 0)
        return 1;
    if (get16(&t, 2) != 42)
        return 1;
    size_t directory = get32(&t, 4);
    if (directory < 8 || directory > size)
        return 1;
    unsigned entries = get16(&t, directory);
    for (unsigned i = 0; i < entries; i++) {
        size_t at = directory + 2 + (size_t)i * ENTRY_SIZE;
        if (at > size)
            break;
        if (get16(&t, at) != TAG_ORIENTATION)
            continue;
        unsigned value = get16(&t, at + 8);
        bool valid = get16(&t, at + 2) == TYPE_SHORT && get32(&t, at + 4) == 1 && value >= 1 && value <= 8;
        return valid ? (int)value : 1;
    }
    return 1;
}
