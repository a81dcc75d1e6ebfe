/* Images of any format, size and stride (streamfp.h, part 2). */
#include "world.h"

/* Pixels of an 8 x 6 gradient: red grows to the right, green downwards, blue is constant. */
enum { W = 8, H = 6 };

static void draw(uint8_t rgb[H][W][3])
{
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            rgb[y][x][0] = (uint8_t)(30 * x);
            rgb[y][x][1] = (uint8_t)(40 * y);
            rgb[y][x][2] = 77;
        }
}

static uint8_t *fit(const sfp_image *im, const char *resize)
{
    uint8_t *out = kept_malloc((size_t)SIDE * SIDE * 3);
    MUST(sfp_image_fit(im, SIDE, resize, out, &err));
    return out;
}

TEST(the_same_pixels_give_the_same_input_in_every_layout)
{
    uint8_t rgb[H][W][3], bgr[H][W][3], wide[H][W * 3 + 5], flipped[H][W][3], planes[3][H][W], rgba[H][W][4], mirrored[H][W][3];
    draw(rgb);
    memset(wide, 99, sizeof wide);
    for (int y = 0; y < H; y++) {
        for (int x = 0; x < W; x++)
            for (int c = 0; c < 3; c++)
                bgr[y][x][2 - c] = planes[c][y][x] = rgba[y][x][c] = mirrored[y][W - 1 - x][c] = rgb[y][x][c];
        memcpy(wide[y], rgb[y], sizeof rgb[y]);
        memcpy(flipped[H - 1 - y], rgb[y], sizeof rgb[y]);
    }
    const sfp_image images[] = {
        {.format = SFP_IMAGE_RGB, .width = W, .height = H, .data = rgb},
        {.format = SFP_IMAGE_BGR, .width = W, .height = H, .data = bgr},
        {.format = SFP_IMAGE_RGB, .width = W, .height = H, .data = wide, .stride = sizeof wide[0]},
        {.format = SFP_IMAGE_RGB, .width = W, .height = H, .data = flipped[H - 1], .stride = -(int64_t)sizeof flipped[0]},
        {.format = SFP_IMAGE_RGB, .width = W, .height = H, .data = rgb, .box = {0, 0, W, H}},
        {.width = W, .height = H, .data = planes, .stride = W, .pixel_stride = 1, .channel_stride = W * H},
        {.format = SFP_IMAGE_BGR,
         .width = W,
         .height = H,
         .data = planes[2],
         .stride = W,
         .pixel_stride = 1,
         .channel_stride = -W * H},
        {.width = W, .height = H, .data = rgba, .stride = 4 * W, .pixel_stride = 4},
        {.width = W, .height = H, .data = mirrored[0][W - 1], .pixel_stride = -3},
        {.width = W, .height = H, .data = &bgr[0][0][2], .channel_stride = -1},
    };
    const uint8_t *first = fit(&images[0], NULL);
    for (size_t i = 1; i < sizeof images / sizeof *images; i++)
        assert_memory_equal(fit(&images[i], "squash"), first, SIDE * SIDE * 3);
}

TEST(an_image_at_the_input_size_keeps_its_pixels)
{
    uint8_t rgb[SIDE][SIDE][3];
    for (size_t i = 0; i < sizeof rgb; i++)
        ((uint8_t *)rgb)[i] = (uint8_t)(i * 37 % 251);
    uint8_t wide[SIDE][SIDE * 3 + 32];
    for (int y = 0; y < SIDE; y++)
        memcpy(wide[y], rgb[y], sizeof rgb[y]);
    const sfp_image im = {.width = SIDE, .height = SIDE, .data = rgb};
    const sfp_image strided = {.width = SIDE, .height = SIDE, .data = wide, .stride = sizeof wide[0]};
    const sfp_image boxed = {.width = SIDE, .height = SIDE, .data = rgb, .box = {0, 0, SIDE, SIDE}}; /* by way of the resize */
    assert_memory_equal(fit(&im, "squash"), rgb, sizeof rgb);
    assert_memory_equal(fit(&strided, "squash"), rgb, sizeof rgb);
    assert_memory_equal(fit(&boxed, "squash"), rgb, sizeof rgb);
    assert_memory_not_equal(fit(&im, "crop"), rgb, sizeof rgb);
}

TEST(grey_pixels_are_equal_in_all_channels)
{
    uint8_t grey[H][W], rgb[H][W][3];
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            memset(rgb[y][x], grey[y][x] = (uint8_t)(20 * x + 10 * y), 3);
    const sfp_image a = {.format = SFP_IMAGE_GREY, .width = W, .height = H, .data = grey};
    const sfp_image b = {.format = SFP_IMAGE_RGB, .width = W, .height = H, .data = rgb};
    const sfp_image red = {.format = SFP_IMAGE_GREY, .width = W, .height = H, .data = rgb, .stride = 3 * W, .pixel_stride = 3};
    assert_memory_equal(fit(&a, NULL), fit(&b, NULL), SIDE * SIDE * 3);
    assert_memory_equal(fit(&red, NULL), fit(&b, NULL), SIDE * SIDE * 3);
}

TEST(a_box_uses_only_its_part_and_is_clipped)
{
    uint8_t rgb[H][W][3];
    memset(rgb, 10, sizeof rgb);
    for (int y = 3; y < H; y++)
        for (int x = 4; x < W; x++)
            memset(rgb[y][x], 200, 3);
    const sfp_image im = {.width = W, .height = H, .data = rgb, .box = {4, 3, 100, 100}};
    const uint8_t *out = fit(&im, NULL);
    for (int i = 0; i < SIDE * SIDE * 3; i++)
        assert_int_equal(out[i], 200);
}

TEST(squash_and_crop_differ_for_an_image_that_is_not_square)
{
    uint8_t rgb[H][W][3];
    draw(rgb);
    const sfp_image im = {.width = W, .height = H, .data = rgb};
    assert_memory_not_equal(fit(&im, "squash"), fit(&im, "crop"), SIDE * SIDE * 3);
}

TEST(a_file_and_its_bytes_give_the_same_input)
{
    size_t size;
    const char *path = "docs/report.png";
    const uint8_t *bytes = bytes_of(path, &size);
    const sfp_image file = {.format = SFP_IMAGE_FILE, .data = path};
    const sfp_image encoded = {.format = SFP_IMAGE_ENCODED, .data = bytes, .bytes = size};
    const sfp_image exif = {.format = SFP_IMAGE_FILE, .data = path, .flags = SFP_IMAGE_EXIF}; /* it has no orientation */
    assert_memory_equal(fit(&file, "crop"), fit(&encoded, "crop"), SIDE * SIDE * 3);
    assert_memory_equal(fit(&file, "crop"), fit(&exif, "crop"), SIDE * SIDE * 3);
}

TEST(a_bad_image_is_refused)
{
    static const uint8_t rgb[H][W][3];
    static uint8_t out[SIDE * SIDE * 3];
    const struct {
        const char *name;
        sfp_image image;
        sfp_status status;
        const char *message;
    } rows[] = {
        {"format", {.format = 9, .data = rgb, .width = W, .height = H}, SFP_EINVAL, "format is 9, expected 0 to 4"},
        {"no data", {.width = W, .height = H}, SFP_EINVAL, "data is NULL"},
        {"no width", {.data = rgb, .height = H}, SFP_EINVAL, "size is 0 x 6"},
        {"negative height", {.data = rgb, .width = W, .height = -1}, SFP_EINVAL, "size is 8 x -1"},
        {"stride",
         {.data = rgb, .width = W, .height = H, .stride = 23},
         SFP_EINVAL,
         "stride is 23 bytes, expected 0 or at least 24"},
        {"huge stride", {.data = rgb, .width = W, .height = H, .stride = INT64_MAX}, SFP_EINVAL, "too many for 6 rows"},
        {"lowest stride", {.data = rgb, .width = W, .height = H, .stride = INT64_MIN}, SFP_EINVAL, "too many for 6 rows"},
        {"unknown flags", {.data = rgb, .width = W, .height = H, .flags = 2}, SFP_EINVAL, "flags is 2"},
        {"huge pixel stride",
         {.data = rgb, .width = W, .height = H, .pixel_stride = INT64_MAX},
         SFP_EINVAL,
         "pixel_stride is 9223372036854775807 bytes, too many for 8 pixels"},
        {"huge channel stride",
         {.data = rgb, .width = W, .height = H, .channel_stride = INT64_MIN},
         SFP_EINVAL,
         "channel_stride is -9223372036854775808 bytes, too many for 3 colours"},
        {"huge", {.data = rgb, .width = 1 << 20, .height = 1 << 20}, SFP_ELIMIT, "pixels"},
        {"box outside", {.data = rgb, .width = W, .height = H, .box = {20, 20, 30, 30}}, SFP_EFORMAT, "lies outside"},
        {"bytes of no image", {.format = SFP_IMAGE_ENCODED, .data = "hello", .bytes = 5}, SFP_EFORMAT, "image"},
        {"no file", {.format = SFP_IMAGE_FILE, .data = "none.jpg"}, SFP_ENOTFOUND, "none.jpg"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        REFUSED_AS(rows[i].name, sfp_image_fit(&rows[i].image, SIDE, NULL, out, &err), rows[i].status, rows[i].message);
    const sfp_image good = {.data = rgb, .width = W, .height = H};
    REFUSED(sfp_image_fit(&good, SIDE, "stretch", out, &err), SFP_EINVAL, "resize is 'stretch', expected squash|crop");
    REFUSED(sfp_image_fit(&good, 0, NULL, out, &err), SFP_EINVAL, "size is 0");
    REFUSED(sfp_image_fit(&good, 1 << 20, NULL, out, &err), SFP_EINVAL, "size is 1048576");
    REFUSED(sfp_image_fit(NULL, SIDE, NULL, out, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_image_fit(&good, SIDE, NULL, NULL, &err), SFP_EINVAL, "must not be NULL");
}
