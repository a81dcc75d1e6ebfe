/* Resizing against a naive oracle in double precision, and the fits of docs/method.md, section 6. */
#include "base/rng.h"
#include "io/image/image.h"

#include "test.h"

#include <sys/resource.h>

static sfp__rng rng; /* seed 0 */

static int between(int low, int high)
{
    return low + (int)(sfp__rng_u32(&rng) % (uint32_t)(high - low + 1));
}

/* Returns an image allocated with its exact size, so that a sanitizer detects a read beyond it. */
static sfp__image make(int width, int height, bool hard)
{
    sfp__image im = {width, height, kept_malloc((size_t)width * (size_t)height * 3)};
    for (size_t i = 0; i < (size_t)width * (size_t)height * 3; i++)
        im.rgb[i] = hard ? (sfp__rng_u32(&rng) & 1 ? 255 : 0) : (uint8_t)sfp__rng_u32(&rng);
    return im;
}

static double filter_value(sfp__filter filter, double x)
{
    x = fabs(x);
    if (filter == SFP__FILTER_BILINEAR)
        return x < 1 ? 1 - x : 0;
    return x < 1 ? 1.5 * x * x * x - 2.5 * x * x + 1 : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

/* Returns one output sample of a line of n samples that are `step` apart. All inputs are weighted, without a window. */
static double oracle_sample(const double *line, size_t step, int n, int out, int i, sfp__filter filter)
{
    double scale = (double)n / out, wide = scale > 1 ? scale : 1, centre = (i + 0.5) * scale, sum = 0, weight = 0;
    for (int x = 0; x < n; x++) {
        double w = filter_value(filter, (x + 0.5 - centre) / wide);
        sum += w * line[(size_t)x * step];
        weight += w;
    }
    return fmin(fmax(sum / weight, 0), 255);
}

/* Without rounding; the intermediate image is clipped, as in Pillow. */
static double *oracle(const sfp__image *im, int width, int height, sfp__filter filter)
{
    size_t in_row = (size_t)im->width * 3, row = (size_t)width * 3;
    double *in = kept_malloc(in_row * (size_t)im->height * sizeof *in),
           *middle = kept_malloc(row * (size_t)im->height * sizeof *middle);
    double *out = kept_malloc(row * (size_t)height * sizeof *out);
    for (size_t i = 0; i < in_row * (size_t)im->height; i++)
        in[i] = im->rgb[i];
    for (int y = 0; y < im->height; y++) {
        for (int x = 0; x < width * 3; x++)
            middle[(size_t)y * row + (size_t)x] =
                width == im->width ? in[(size_t)y * in_row + (size_t)x]
                                   : oracle_sample(in + (size_t)y * in_row + x % 3, 3, im->width, width, x / 3, filter);
    }
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width * 3; x++)
            out[(size_t)y * row + (size_t)x] = height == im->height
                                                   ? middle[(size_t)y * row + (size_t)x]
                                                   : oracle_sample(middle + x, row, im->height, height, y, filter);
    }
    return out;
}

/* Checks that a resize in pieces, with and without AVX2, has the same bytes. */
static void check_pieces(const sfp__image *im, sfp__filter filter, const sfp__image *whole)
{
    sfp__resize_in_pieces(0);
    for (int plain = 0; plain < 2; plain++) {
        OWNED_BY(sfp__image_done) sfp__image pieces = {0};
        sfp__resize_plain_only(plain);
        MUST(sfp__image_resize(im, whole->width, whole->height, filter, &pieces, NULL));
        assert_memory_equal(pieces.rgb, whole->rgb, (size_t)whole->width * (size_t)whole->height * 3);
    }
    sfp__resize_plain_only(false);
    sfp__resize_in_pieces(16 << 20);
}

static void check_against_oracle(int w, int h, int width, int height, sfp__filter filter)
{
    sfp__image im = make(w, h, sfp__rng_u32(&rng) % 3 == 0);
    OWNED_BY(sfp__image_done) sfp__image fast = {0}, plain = {0};
    double *want = oracle(&im, width, height, filter);
    MUST(sfp__image_resize(&im, width, height, filter, &fast, NULL));
    sfp__resize_plain_only(true);
    MUST(sfp__image_resize(&im, width, height, filter, &plain, NULL));
    sfp__resize_plain_only(false);
    check_pieces(&im, filter, &fast);
    assert_true(fast.width == width && fast.height == height);
    /* half a step per pass; the error of the first pass is multiplied by the sum of absolute weights of the second */
    double tolerance = filter == SFP__FILTER_BICUBIC ? 1.21 : 1.01;
    size_t n = (size_t)width * (size_t)height * 3;
    assert_memory_equal(fast.rgb, plain.rgb, n);
    for (size_t i = 0; i < n; i++) {
        if (fabs(fast.rgb[i] - want[i]) > tolerance)
            fail_msg("%d x %d to %d x %d, filter %d, sample %zu: %d, expected %.3f", w, h, width, height, (int)filter, i,
                     fast.rgb[i], want[i]);
    }
}

TEST(random_sizes_agree_with_the_oracle)
{
    for (int i = 0; i < 400; i++) {
        int limit = i % 4 == 0 ? 8 : 60, size[4];
        for (int j = 0; j < 4; j++)
            size[j] = between(1, limit);
        check_against_oracle(size[0], size[1], size[2], size[3], (sfp__filter)(i & 1));
    }
}

TEST(extreme_sizes_agree_with_the_oracle)
{
    static const int sizes[][4] = {
        {1, 1, 1, 1},    {1, 1, 50, 40},   {50, 40, 1, 1},   {1, 600, 33, 2}, {600, 1, 2, 33}, {700, 2, 5, 5},    {2, 700, 5, 5},
        {10, 10, 11, 9}, {11, 3, 10, 300}, {64, 64, 63, 65}, {5, 5, 10, 5},   {5, 5, 5, 10},   {1000, 3, 999, 3}, {3, 1000, 3, 7},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_against_oracle(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], SFP__FILTER_BILINEAR);
        check_against_oracle(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], SFP__FILTER_BICUBIC);
    }
}

TEST(a_uniform_image_stays_uniform)
{
    for (int i = 0; i < 60; i++) {
        int size[4];
        for (int j = 0; j < 4; j++)
            size[j] = between(1, 90);
        sfp__image im = make(size[0], size[1], false), out;
        memset(im.rgb, i * 4, (size_t)im.width * (size_t)im.height * 3);
        MUST(sfp__image_resize(&im, size[2], size[3], (sfp__filter)(i & 1), &out, NULL));
        for (size_t j = 0; j < (size_t)out.width * (size_t)out.height * 3; j++)
            assert_int_equal(out.rgb[j], i * 4);
        sfp__image_done(&out);
    }
}

TEST(the_same_size_copies)
{
    sfp__image im = make(17, 9, false);
    OWNED_BY(sfp__image_done) sfp__image out = {0};
    MUST(sfp__image_resize(&im, 17, 9, SFP__FILTER_BICUBIC, &out, NULL));
    assert_memory_equal(im.rgb, out.rgb, 17 * 9 * 3);
    assert_ptr_not_equal(im.rgb, out.rgb);
}

TEST(squash_is_a_bilinear_resize)
{
    sfp__image im = make(71, 40, false);
    OWNED_BY(sfp__image_done) sfp__image a = {0}, b = {0};
    MUST(sfp__image_fit(&im, 32, SFP__RESIZE_SQUASH, &a, NULL));
    MUST(sfp__image_resize(&im, 32, 32, SFP__FILTER_BILINEAR, &b, NULL));
    assert_memory_equal(a.rgb, b.rgb, 32 * 32 * 3);
}

/* Follows docs/method.md, section 6 step by step. */
static void check_crop(int w, int h, int size)
{
    int target = (int)lround(size * 256.0 / 224.0);
    int full_w = w <= h ? target : (int)((double)target * w / h), full_h = w <= h ? (int)((double)target * h / w) : target;
    sfp__image im = make(w, h, false);
    OWNED_BY(sfp__image_done) sfp__image full = {0}, want = {0}, got = {0};
    MUST(sfp__image_resize(&im, full_w, full_h, SFP__FILTER_BILINEAR, &full, NULL));
    MUST(sfp__image_crop(&full, (full_w - size) / 2, (full_h - size) / 2, size, size, &want, NULL));
    MUST(sfp__image_fit(&im, size, SFP__RESIZE_CROP, &got, NULL));
    assert_true(got.width == size && got.height == size);
    assert_memory_equal(got.rgb, want.rgb, (size_t)size * (size_t)size * 3);
}

TEST(crop_takes_the_centre_of_the_resized_image)
{
    for (int i = 0; i < 200; i++) {
        int w = between(1, 120), h = between(1, 120);
        check_crop(w, h, between(1, 60));
    }
    check_crop(341, 256, 224);
    check_crop(256, 341, 224);
    check_crop(500, 375, 224);
    check_crop(3, 300, 64);
}

TEST(crop_of_the_right_short_side_resizes_nothing)
{
    sfp__image im = make(91, 64, false); /* 56 * 256 / 224 = 64 */
    OWNED_BY(sfp__image_done) sfp__image a = {0}, b = {0};
    MUST(sfp__image_fit(&im, 56, SFP__RESIZE_CROP, &a, NULL));
    MUST(sfp__image_crop(&im, (91 - 56) / 2, 4, 56, 56, &b, NULL));
    assert_memory_equal(a.rgb, b.rgb, 56 * 56 * 3);
}

TEST(crop_of_a_thread_thin_image_needs_little_memory)
{
    /* the whole resized image would have 256 x 16,776,960 pixels */
    sfp__image im = make(1, 65535, false);
    OWNED_BY(sfp__image_done) sfp__image out = {0};
    MUST(sfp__image_fit(&im, 224, SFP__RESIZE_CROP, &out, NULL));
}

static long peak_kib(void)
{
    struct rusage use;
    assert_int_equal(getrusage(RUSAGE_SELF, &use), 0);
    return use.ru_maxrss;
}

/* At once, the first pass of the tall image would have 269 MB, and the weights of the wide one 64 MB. */
TEST(the_memory_of_a_resize_does_not_grow_with_the_image)
{
    static const int sizes[][2] = {{2, 400000}, {4000000, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        sfp__image im = make(sizes[i][0], sizes[i][1], false);
        OWNED_BY(sfp__image_done) sfp__image out = {0};
        long before = peak_kib();
        MUST(sfp__image_fit(&im, 224, SFP__RESIZE_SQUASH, &out, NULL));
        assert_in_range(peak_kib() - before, 0, 20 << 10);
    }
}

TEST(impossible_sizes_are_refused)
{
    sfp__image im = make(4, 4, false), out = {7, 7, NULL}, none = {0};
    REFUSED_EXACTLY(sfp__image_resize(&im, 0, 4, SFP__FILTER_BILINEAR, &out, &err), SFP_EINVAL,
                    "new image size is 0 x 4, expected at least 1 x 1");
    REFUSED_EXACTLY(sfp__image_resize(&none, 4, 4, SFP__FILTER_BILINEAR, &out, &err), SFP_EINVAL,
                    "image to resize is 0 x 0, expected at least 1 x 1");
    REFUSED_EXACTLY(sfp__image_fit(&im, 0, SFP__RESIZE_CROP, &out, &err), SFP_EINVAL,
                    "new image size is 0, expected 1 to 8388607");
    REFUSED_EXACTLY(sfp__image_crop(&im, 1, 0, 4, 4, &out, &err), SFP_EINVAL,
                    "crop is 4 x 4 at (1, 0), expected one inside the image of 4 x 4");
    assert_int_equal(sfp__image_crop(&im, -1, 0, 2, 2, &out, &err), SFP_EINVAL);
    assert_int_equal(sfp__image_crop(&im, 0, 0, 0, 2, &out, &err), SFP_EINVAL);
    assert_int_equal(sfp__image_crop(&im, 2, 2, 2147483647, 2, &out, &err), SFP_EINVAL);
    assert_true(out.width == 7 && out.rgb == NULL);
}
