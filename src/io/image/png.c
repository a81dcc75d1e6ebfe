/* PNG, by libspng: grey, palette and 16-bit images become 8-bit RGB (the high byte), transparency is dropped and gamma is
 * ignored, as by Pillow's convert("RGB"). */
#include "io/image/image.h"

#include "base/mem.h"

#include <limits.h>
#include <spng.h>

/* Limit for text and colour profiles, which may unpack to any size and are not used here. */
#define CHUNK_MAX ((size_t)16 << 20)

/* The library reports that zlib has no memory as damaged data, so failed allocations are recorded here. */
static _Thread_local bool memory_failed;

static void *check_block(void *p)
{
    memory_failed = memory_failed || !p;
    return p;
}

static void *allocate(size_t size)
{
    return check_block(malloc(size ? size : 1));
}

static void *allocate_cleared(size_t n, size_t size)
{
    return check_block(calloc(n ? n : 1, size ? size : 1));
}

static void *reallocate(void *p, size_t size)
{
    return check_block(realloc(p, size ? size : 1));
}

static sfp_status fail_code(const char *label, int code, sfp_error *err)
{
    if (code == SPNG_EMEM || memory_failed)
        return sfp__fail(err, SFP_ENOMEM, "%s: PNG: out of memory", label);
    if (code == SPNG_IO_EOF || code == SPNG_EIDAT_TOO_SHORT)
        return sfp__fail(err, SFP_EFORMAT, "%s: PNG is truncated: the file ends before the image does", label);
    return sfp__fail(err, SFP_EFORMAT, "%s: PNG: %s", label, spng_strerror(code));
}

static int find_orientation(spng_ctx *ctx)
{
    struct spng_exif exif;
    (void)spng_decode_chunks(ctx); /* the chunk may follow the image; damage after the image does no harm */
    if (spng_get_exif(ctx, &exif) != 0)
        return 1;
    return sfp__exif_orientation((const uint8_t *)exif.data, exif.length);
}

static sfp_status decode(const char *label, spng_ctx *ctx, const uint8_t *bytes, size_t size, const sfp__image_options *opt,
                         sfp__image *im, sfp_error *err)
{
    struct spng_ihdr head;
    size_t expected;
    int code = spng_set_image_limits(ctx, INT_MAX, INT_MAX);
    if (!code)
        code = spng_set_chunk_limits(ctx, CHUNK_MAX, CHUNK_MAX);
    if (!code)
        code = spng_set_png_buffer(ctx, bytes, size);
    if (!code)
        code = spng_get_ihdr(ctx, &head);
    if (code)
        return fail_code(label, code, err);
    TRY(sfp__image_alloc(label, head.width, head.height, opt->max_pixels, im, err));
    size_t bytes_needed = (size_t)im->width * (size_t)im->height * 3;
    code = spng_decoded_image_size(ctx, SPNG_FMT_RGB8, &expected);
    if (!code && expected != bytes_needed)
        return sfp__fail(err, SFP_ELIBRARY, "%s: PNG decodes to %zu bytes, expected %zu", label, expected, bytes_needed);
    if (!code)
        code = spng_decode_image(ctx, im->rgb, bytes_needed, SPNG_FMT_RGB8, 0);
    return code ? fail_code(label, code, err) : SFP_OK;
}

DEFINE_OWNED_PTR(spng_ctx, spng_ctx_free)

sfp_status sfp__png_decode(const char *label, const uint8_t *bytes, size_t size, const sfp__image_options *opt, sfp__image *out,
                           int *orientation, sfp_error *err)
{
    struct spng_alloc memory = {allocate, reallocate, allocate_cleared, free};
    memory_failed = false;
    OWNED_PTR(spng_ctx_free) spng_ctx *ctx = spng_ctx_new2(&memory, 0);
    if (!ctx)
        return sfp__fail(err, SFP_ENOMEM, "%s: cannot start the PNG decoder", label);
    TRY(decode(label, ctx, bytes, size, opt, out, err));
    *orientation = find_orientation(ctx);
    return memory_failed ? fail_code(label, SPNG_EMEM, err) : SFP_OK;
}
