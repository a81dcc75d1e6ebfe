/* Damaged images and failing allocations: an error with a message, never a crash or a leak. */
#include "io/image/image.h"
#include "test.h"
#include "test_image_encode.h"


#define W 45
#define H 31

typedef struct kind {
    const char *name;
    blob file;
} kind;

enum { KINDS = 9 };

static kind kinds[KINDS];

static void make_kinds(void)
{
    uint8_t *rgb = make_samples(W, H, 3), *cmyk = make_samples(W, H, 4);
    blob webp = make_webp(W, H, false, false), exif = make_exif(6, false, true);
    const kind made[KINDS] = {
        {"JPEG", make_jpeg(W, H, false)},
        {"JPEG", make_jpeg(W, H, true)},
        {"JPEG", encode_jpeg(cmyk, W, H, (jpeg_how){.given = JCS_CMYK, .stored = JCS_YCCK, .quality = 80, .exif = exif})},
        {"PNG", make_png(W, H)},
        {"PNG", encode_png(rgb, W * H * 3, W, H, (png_how){.type = SPNG_COLOR_TYPE_TRUECOLOR, .depth = 8, .interlace = 1})},
        {"WebP", make_webp(W, H, false, false)},
        {"WebP", make_webp(W, H, true, false)},
        {"WebP", make_webp(W, H, false, true)},
        {"WebP", extend_webp(webp, W, H, 0x08, exif)},
    };
    memcpy(kinds, made, sizeof made);
}

AROUND_ALL(make_kinds, NULL)

static sfp_status decode(const uint8_t *bytes, size_t size, sfp_error *why)
{
    sfp__image im = {0};
    sfp__image_options opt = sfp__image_options_defaults();
    opt.max_pixels = 1 << 20; /* a flipped bit in a size must not take seconds */
    *why = (sfp_error){0};
    sfp_status status = sfp__image_decode("x", bytes, size, &opt, &im, why);
    if (status == SFP_OK)
        assert_non_null(im.rgb);
    else
        assert_true(!im.rgb && why->status == status && why->message[0]);
    sfp__image_done(&im);
    return status;
}

TEST(truncated_images_are_errors)
{
    for (int i = 0; i < KINDS; i++) {
        blob f = kinds[i].file;
        MUST(decode(f.bytes, f.size, &err));
        /* the end of a PNG (IEND) and of an extended WebP (EXIF) contains no image data */
        size_t needed = f.size;
        if (strcmp(kinds[i].name, "PNG") == 0)
            needed -= 16;
        else if (memcmp(f.bytes + 12, "VP8X", 4) == 0)
            needed -= 40;
        for (size_t n = 0; n < f.size; n += n < 700 ? 1 : 13) {
            blob part = blob_of(f.bytes, n);
            sfp_status status = decode(part.bytes, n, &err);
            if (n < needed && status == SFP_OK)
                fail_msg("%s, kind %d: taken with %zu of %zu bytes", kinds[i].name, i, n, f.size);
        }
    }
}

TEST(truncation_is_reported_as_such)
{
    for (int i = 0; i < KINDS; i++) {
        blob part = blob_of(kinds[i].file.bytes, kinds[i].file.size * 2 / 3);
        assert_int_equal(decode(part.bytes, part.size, &err), SFP_EFORMAT);
        const char *want = kept_print("x: %s is truncated", kinds[i].name);
        if (!strstr(err.message, want))
            fail_msg("kind %d: '%s', expected '%s'", i, err.message, want);
    }
}

/* Finds the first scan of a JPEG: from its marker to the next one. */
static void find_scan(blob b, size_t *start, size_t *end)
{
    size_t i = 0;
    while (b.bytes[i] != 0xff || b.bytes[i + 1] != 0xda)
        i++;
    *start = i;
    i += 2;
    while (b.bytes[i] != 0xff || b.bytes[i + 1] == 0)
        i++;
    *end = i;
}

TEST(a_jpeg_that_ends_in_the_middle_of_its_data_is_truncated)
{
    blob b = make_jpeg(W, H, false);
    size_t start, end;
    find_scan(b, &start, &end);
    memcpy(b.bytes + (start + end) / 2, "\xff\xd9", 2); /* an end marker written by a repair tool */
    REFUSED(decode(b.bytes, b.size, &err), SFP_EFORMAT, "x: JPEG is truncated: the coded data ends early");
}

TEST(flipped_bits_never_crash)
{
    for (int i = 0; i < KINDS; i++) {
        blob f = kinds[i].file;
        for (size_t bit = 0; bit < f.size * 8; bit += bit < 2400 ? 1 : 37) {
            f.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            (void)decode(f.bytes, f.size, &err);
            f.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    }
}

TEST(a_jpeg_with_too_many_scans_is_refused)
{
    blob b = make_jpeg(W, H, true);
    size_t start, end, times = 600;
    find_scan(b, &start, &end);
    size_t body = end - start, size = b.size + body * times;
    blob bomb = {kept_malloc(size), size};
    memcpy(bomb.bytes, b.bytes, end);
    for (size_t i = 0; i < times; i++)
        memcpy(bomb.bytes + end + i * body, b.bytes + start, body);
    memcpy(bomb.bytes + end + times * body, b.bytes + end, b.size - end);
    REFUSED(decode(bomb.bytes, bomb.size, &err), SFP_ELIMIT, "JPEG has more than 500 scans");
}
