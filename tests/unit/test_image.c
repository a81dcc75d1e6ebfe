/* Decoding: every image format becomes the RGB that it shows; errors name their cause. */
#include "io/image/image.h"

#include "test.h"
#include "test_image_encode.h"

#include "temp_directory.h"

#include <sys/stat.h>

AROUND_ONE_FILE("a.png")

#define W 37
#define H 23

static sfp__image decode(blob b)
{
    sfp__image im = {0};
    MUST(sfp__image_decode("x", b.bytes, b.size, NULL, &im, &err));
    return im;
}

static void check_image(sfp__image im, int tolerance)
{
    assert_true(im.width == W && im.height == H);
    for (int i = 0; i < W * H * 3; i++) {
        int want = sample(i / 3 % W, i / 3 / W, i % 3, W, H);
        if (abs(im.rgb[i] - want) > tolerance)
            fail_msg("sample %d is %d, expected %d", i, im.rgb[i], want);
    }
}

TEST(jpegs_of_all_kinds_decode)
{
    uint8_t *rgb = make_samples(W, H, 3);
    const jpeg_how hows[] = {
        {.given = JCS_RGB, .stored = JCS_YCbCr, .quality = 95},
        {.given = JCS_RGB, .stored = JCS_YCbCr, .quality = 95, .progressive = true},
        {.given = JCS_RGB, .stored = JCS_YCbCr, .quality = 95, .restart = 1},
        {.given = JCS_RGB, .stored = JCS_RGB, .quality = 95},
    };
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
        blob b = encode_jpeg(rgb, W, H, hows[i]);
        OWNED_BY(sfp__image_done) sfp__image im = decode(b);
        check_image(im, 12);
    }
}

TEST(grey_jpegs_become_grey_rgb)
{
    uint8_t *grey = make_samples(W, H, 1);
    blob b = encode_jpeg(grey, W, H, (jpeg_how){.given = JCS_GRAYSCALE, .stored = JCS_GRAYSCALE, .quality = 100});
    OWNED_BY(sfp__image_done) sfp__image im = decode(b);
    for (int i = 0; i < W * H; i++) {
        assert_true(im.rgb[3 * i] == im.rgb[3 * i + 1] && im.rgb[3 * i] == im.rgb[3 * i + 2]);
        assert_in_range(im.rgb[3 * i], grey[i] > 3 ? grey[i] - 3 : 0, grey[i] + 3);
    }
}

TEST(adobe_cmyk_jpegs_become_rgb)
{
    uint8_t cmyk[W * H * 4];
    for (int i = 0; i < W * H; i++) /* inverted, as Adobe stores it: 255 is no ink */
        memcpy(cmyk + 4 * i, (uint8_t[]){200, 100, 255, 128}, 4);
    const J_COLOR_SPACE stored[] = {JCS_CMYK, JCS_YCCK};
    for (int i = 0; i < 2; i++) {
        blob b = encode_jpeg(cmyk, W, H, (jpeg_how){.given = JCS_CMYK, .stored = stored[i], .quality = 100});
        OWNED_BY(sfp__image_done) sfp__image im = decode(b);
        for (int j = 0; j < W * H; j++) {
            assert_in_range(im.rgb[3 * j], 98, 102);      /* 200 * 128 / 255 */
            assert_in_range(im.rgb[3 * j + 1], 48, 52);   /* 100 * 128 / 255 */
            assert_in_range(im.rgb[3 * j + 2], 126, 130); /* 255 * 128 / 255 */
        }
    }
}

/* Checks rows of a PNG colour type and depth against the RGB that they show. */
static void check_png(uint8_t type, uint8_t depth, int channels, uint8_t interlace)
{
    struct spng_plte palette = {.n_entries = 1u << (depth < 8 ? depth : 8)};
    for (uint32_t i = 0; i < palette.n_entries; i++)
        palette.entries[i] = (struct spng_plte_entry){(uint8_t)(255 - i), (uint8_t)(i * 3), (uint8_t)(i * 7), 0};
    size_t stride = ((size_t)W * (size_t)channels * depth + 7) / 8;
    uint8_t *rows = kept_calloc(H, stride), want[W * H * 3];
    for (int y = 0; y < H; y++) {
        for (int x = 0; x < W; x++) {
            unsigned v[4];
            for (int c = 0; c < channels; c++) {
                v[c] = (unsigned)(x * 5 + y * 11 + c * 67) & ((1u << depth) - 1);
                size_t bit = ((size_t)x * (size_t)channels + (size_t)c) * depth;
                uint8_t *p = rows + (size_t)y * stride + bit / 8;
                if (depth == 16) {
                    v[c] = v[c] * 257 % 65536;
                    p[0] = (uint8_t)(v[c] >> 8);
                    p[1] = (uint8_t)v[c];
                    v[c] >>= 8;
                } else {
                    *p = (uint8_t)(*p | v[c] << (8 - depth - bit % 8));
                    if (type == SPNG_COLOR_TYPE_GRAYSCALE)
                        v[c] = v[c] * 255 / ((1u << depth) - 1);
                }
            }
            uint8_t *to = want + (y * W + x) * 3;
            for (int c = 0; c < 3; c++)
                to[c] = (uint8_t)v[channels >= 3 ? c : 0];
            if (type == SPNG_COLOR_TYPE_INDEXED) {
                struct spng_plte_entry e = palette.entries[v[0]];
                memcpy(to, (uint8_t[]){e.red, e.green, e.blue}, 3);
            }
        }
    }
    struct spng_trns transparent = {.n_type3_entries = 2, .type3_alpha = {0, 9}};
    bool indexed = type == SPNG_COLOR_TYPE_INDEXED;
    blob b = encode_png(rows, stride * H, W, H,
                        (png_how){.type = type,
                                  .depth = depth,
                                  .interlace = interlace,
                                  .palette = indexed ? &palette : NULL,
                                  .transparent = indexed ? &transparent : NULL});
    OWNED_BY(sfp__image_done) sfp__image im = decode(b);
    assert_true(im.width == W && im.height == H);
    if (memcmp(im.rgb, want, sizeof want) != 0)
        fail_msg("type %d, depth %d, interlace %d decode to something else", type, depth, interlace);
}

TEST(pngs_of_all_types_and_depths_decode)
{
    for (uint8_t interlace = 0; interlace < 2; interlace++) {
        for (uint8_t depth = 1; depth <= 16; depth = (uint8_t)(depth * 2)) {
            check_png(SPNG_COLOR_TYPE_GRAYSCALE, depth, 1, interlace);
            if (depth <= 8)
                check_png(SPNG_COLOR_TYPE_INDEXED, depth, 1, interlace);
            if (depth >= 8) {
                check_png(SPNG_COLOR_TYPE_TRUECOLOR, depth, 3, interlace);
                check_png(SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, depth, 2, interlace);
                check_png(SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, depth, 4, interlace);
            }
        }
    }
}

TEST(webps_decode)
{
    for (int kind = 0; kind < 4; kind++) {
        blob b = make_webp(W, H, kind & 1, kind & 2);
        OWNED_BY(sfp__image_done) sfp__image im = decode(b);
        check_image(im, kind & 1 ? 0 : 16);
    }
}

TEST(animated_webp_is_refused_by_name)
{
    sfp__image im = {0};
    uint8_t empty = 0;
    blob still = make_webp(W, H, true, false), b = extend_webp(still, W, H, 0x02, (blob){&empty, 0});
    REFUSED_EXACTLY(sfp__image_decode("x.webp", b.bytes, b.size, NULL, &im, &err), SFP_EUNSUPPORTED,
                    "x.webp: WebP is animated, expected a still image");
}

/* Checks that pixel (x, y) of the stored image is at its rotated place. */
static void check_turned(sfp__image im, const uint8_t *rgb, int orientation)
{
    bool swapped = orientation >= 5;
    assert_true(im.width == (swapped ? H : W) && im.height == (swapped ? W : H));
    for (int y = 0; y < H; y++) {
        for (int x = 0; x < W; x++) {
            const int to[9][2] = {{0},    {x, y},         {W - 1 - x, y},         {W - 1 - x, H - 1 - y}, {x, H - 1 - y},
                                  {y, x}, {H - 1 - y, x}, {H - 1 - y, W - 1 - x}, {y, W - 1 - x}};
            const uint8_t *got = im.rgb + ((size_t)to[orientation][1] * (size_t)im.width + (size_t)to[orientation][0]) * 3;
            assert_memory_equal(got, rgb + (y * W + x) * 3, 3);
        }
    }
}

TEST(images_are_turned_upright)
{
    uint8_t *rgb = make_samples(W, H, 3);
    for (int orientation = 1; orientation <= 8; orientation++) {
        blob exif = make_exif(orientation, orientation & 1, true), bare = make_exif(orientation, !(orientation & 1), false);
        blob webp = make_webp(W, H, true, false);
        jpeg_how jpeg = {.given = JCS_RGB, .stored = JCS_YCbCr, .quality = 95}, turned_jpeg = jpeg;
        png_how png = {.type = SPNG_COLOR_TYPE_TRUECOLOR, .depth = 8}, turned_png = png;
        turned_jpeg.exif = exif;
        turned_png.exif = bare;
        blob files[3][2] = {
            {encode_jpeg(rgb, W, H, jpeg), encode_jpeg(rgb, W, H, turned_jpeg)},
            {encode_png(rgb, W * H * 3, W, H, png), encode_png(rgb, W * H * 3, W, H, turned_png)},
            {webp, extend_webp(webp, W, H, 0x08, orientation & 1 ? exif : bare)},
        };
        for (int i = 0; i < 3; i++) {
            sfp__image stored = decode(files[i][0]), upright = decode(files[i][1]);
            assert_true(stored.width == W && stored.height == H);
            check_turned(upright, stored.rgb, orientation);
            sfp__image_done(&stored);
            sfp__image_done(&upright);
        }
    }
}

TEST(broken_exif_means_upright)
{
    for (int big = 0; big < 2; big++) {
        blob whole = make_exif(6, big, true);
        assert_int_equal(sfp__exif_orientation(whole.bytes, whole.size), 6);
        for (size_t n = 0; n < whole.size; n++) {
            blob part = blob_of(whole.bytes, n);
            int got = sfp__exif_orientation(part.bytes, n);
            assert_int_equal(got, n < 6 + 8 + 2 + 10 ? 1 : 6);
        }
        for (size_t i = 0; i < whole.size * 8; i++) {
            whole.bytes[i / 8] ^= (uint8_t)(1 << i % 8);
            assert_in_range(sfp__exif_orientation(whole.bytes, whole.size), 1, 8);
            whole.bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        }
    }
    uint8_t far[14] = {'I', 'I', 42, 0, 0xff, 0xff, 0xff, 0xff};
    assert_int_equal(sfp__exif_orientation(far, sizeof far), 1);
    uint8_t many[10] = {'I', 'I', 42, 0, 8, 0, 0, 0, 0xff, 0xff};
    assert_int_equal(sfp__exif_orientation(many, sizeof many), 1);
}

static void check_refused(const void *bytes, size_t size, const sfp__image_options *opt, sfp_status status, const char *message)
{
    sfp__image im = {7, 7, NULL};
    REFUSED(sfp__image_decode("x", bytes, size, opt, &im, &err), status, message);
    assert_true(im.width == 7 && !im.rgb);
}

TEST(large_jpegs_are_decoded_at_a_fraction_of_their_size)
{
    enum { WIDTH = 301, HEIGHT = 203 };
    static const struct {
        int side, divisor; /* both sides stay at least twice `side` */
    } list[] = {{0, 1}, {1, 8}, {12, 8}, {13, 4}, {25, 4}, {26, 2}, {50, 2}, {51, 1}, {1000, 1}};
    static const jpeg_how hows[] = {{.given = JCS_RGB, .stored = JCS_YCbCr, .quality = 90},
                                    {.given = JCS_RGB, .stored = JCS_YCbCr, .quality = 90, .progressive = true},
                                    {.given = JCS_CMYK, .stored = JCS_YCCK, .quality = 90}};
    for (size_t h = 0; h < sizeof hows / sizeof *hows; h++) {
        jpeg_how how = hows[h];
        how.exif = make_exif(6, false, true);
        blob file = encode_jpeg(make_samples(WIDTH, HEIGHT, how.given == JCS_CMYK ? 4 : 3), WIDTH, HEIGHT, how);
        for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
            sfp__image_options o = sfp__image_options_defaults();
            OWNED_BY(sfp__image_done) sfp__image im = {0}, all = {0}, fit = {0}, want = {0};
            o.fit_side = list[i].side;
            MUST(sfp__image_decode("large", file.bytes, file.size, &o, &im, &err));
            int d = list[i].divisor;
            assert_int_equal(im.width, (HEIGHT + d - 1) / d); /* turned upright */
            assert_int_equal(im.height, (WIDTH + d - 1) / d);
            if (list[i].side < 12 || how.given == JCS_CMYK)
                continue;
            int side = list[i].side < 60 ? list[i].side : 60;
            MUST(sfp__image_decode("large", file.bytes, file.size, NULL, &all, &err));
            MUST(sfp__image_fit(&im, side, SFP__RESIZE_SQUASH, &fit, &err));
            MUST(sfp__image_fit(&all, side, SFP__RESIZE_SQUASH, &want, &err));
            for (int k = 0; k < 3 * side * side; k++)
                assert_in_range(fit.rgb[k] + 6, want.rgb[k], want.rgb[k] + 12);
        }
        sfp__image_options o = sfp__image_options_defaults();
        sfp__image none = {0};
        o.fit_side = 1;
        o.max_pixels = WIDTH * HEIGHT - 1; /* of the whole image, however few are decoded */
        REFUSED(sfp__image_decode("large", file.bytes, file.size, &o, &none, &err), SFP_ELIMIT, "301 x 203");
    }
}

TEST(only_a_fast_resize_decodes_fewer_pixels)
{
    assert_int_equal(sfp__image_fit_side(224, SFP__RESIZE_SQUASH), 0);
    assert_int_equal(sfp__image_fit_side(224, SFP__RESIZE_CROP), 0);
    assert_int_equal(sfp__image_fit_side(224, SFP__RESIZE_SQUASH | SFP__RESIZE_FAST), 224);
    assert_int_equal(sfp__image_fit_side(224, SFP__RESIZE_CROP | SFP__RESIZE_FAST), 256);
}

TEST(limits_are_checked_before_allocation)
{
    blob files[3] = {make_jpeg(W, H, false), make_png(W, H), make_webp(W, H, true, false)};
    for (int i = 0; i < 3; i++) {
        sfp__image_options opt = sfp__image_options_defaults();
        opt.max_pixels = W * H - 1;
        unsigned long before = sfp__mem_count();
        check_refused(files[i].bytes, files[i].size, &opt, SFP_ELIMIT, "x: image is 37 x 23, expected at most 850 pixels");
        assert_int_equal(sfp__mem_count(), before);
        opt.max_pixels++;
        opt.max_bytes = files[i].size - 1;
        check_refused(files[i].bytes, files[i].size, &opt, SFP_ELIMIT, "bytes, expected at most");
    }
    /* a PNG of a few bytes that claims 2^31-1 by 2^31-1 pixels */
    blob png = make_png(1, 1);
    memcpy(png.bytes + 16, "\x7f\xff\xff\xff\x7f\xff\xff\xff", 8);
    sfp__image im;
    sfp_status status = sfp__image_decode("x", png.bytes, png.size, NULL, &im, NULL);
    assert_true(status == SFP_ELIMIT || status == SFP_EFORMAT); /* the checksum is wrong, too */
}

TEST(other_files_are_refused)
{
    check_refused("GIF89a\1\0\1\0", 10, NULL, SFP_EFORMAT, "x: not a JPEG, PNG or WebP image");
    check_refused("", 0, NULL, SFP_EFORMAT, "not a JPEG");
    check_refused("\xff\xd8", 2, NULL, SFP_EFORMAT, "not a JPEG");
    check_refused("\xff\xd8\xff", 3, NULL, SFP_EFORMAT, "x: JPEG");
    check_refused("\x89PNG\r\n\x1a\n", 8, NULL, SFP_EFORMAT, "x: PNG");
    check_refused("RIFF\0\0\0\0WEBP", 12, NULL, SFP_EFORMAT, "x: WebP");
}

TEST(files_are_loaded_by_content_not_by_name)
{
    blob b = make_jpeg(W, H, false);
    put_bytes("a.png", b.bytes, b.size);
    sfp__image im;
    MUST(sfp__image_load(path, NULL, &im, &err));
    check_image(im, 12);
    sfp__image_done(&im);
    sfp__image_options opt = sfp__image_options_defaults();
    opt.max_bytes = 10;
    REFUSED(sfp__image_load(path, &opt, &im, &err), SFP_ELIMIT, "expected at most 10");
    (void)unlink(path);
    assert_int_equal(sfp__image_load(path, NULL, &im, &err), SFP_ENOTFOUND);
    assert_int_equal(mkfifo(path, 0600), 0);
    REFUSED(sfp__image_load(path, NULL, &im, &err), SFP_EINVAL, "not a regular file");
    assert_int_equal(sfp__image_load(directory, NULL, &im, &err), SFP_EINVAL);
}

TEST(names_of_images_are_known)
{
    const char *yes[] = {"a.jpg", "d/A.JPEG", "x.y.Png", "w.webp"};
    const char *no[] = {"a.gif", "jpg", "a.jpg/b", ".png", "d/.png", "a.", "a.jpgx", ""};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        assert_true(sfp__image_name(yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(sfp__image_name(no[i]));
}

TEST(png_files_are_written_and_read_back)
{
    sfp__image im = {W, H, make_samples(W, H, 3)}, back, none = {0};
    MUST(sfp__image_write_png(path, &im, &err));
    MUST(sfp__image_load(path, NULL, &back, &err));
    check_image(back, 0);
    sfp__image_done(&back);
    assert_int_equal(sfp__image_write_png(path, &none, &err), SFP_EINVAL);
    assert_int_equal(sfp__image_write_png("/tmp/sfp_no_such_folder/a.png", &im, &err), SFP_ENOTFOUND);
    assert_int_equal(sfp__image_write_png("/dev/full", &im, &err), SFP_EINVAL);
}
