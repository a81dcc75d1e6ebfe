/* Pillow's resize for 8-bit RGB, with exactly equal results.
 *
 * There are two passes, first along rows. Each output sample is a weighted sum of the input samples under a filter that is
 * widened by the shrink factor (antialiasing). Weights are computed in double, normalised, and rounded to fixed point; each pass
 * rounds to 8 bits. Backbones and golden numbers were made with images resized in this way, so a "better" resize would be worse
 * here.
 *
 * The weights of one output sample apply to `taps` input samples from `first` on:
 *     scale = in / out, support = filter support * max(scale, 1)
 *     weight(x) = filter((x - centre + 0.5) / max(scale, 1)), centre = (out index + 0.5) * scale
 *
 * Only a window of the output is computed, and the first pass computes only the rows that the window needs: a centre crop does
 * not pay for the parts that it cuts off.
 *
 * The memory depends on the output and not on the input, because a file of some kilobytes may have millions of rows. If the result
 * of the first pass, or the weights of all columns, would be large, they are computed in pieces (resize_tall, cross_wide). This
 * yields the same numbers; rows under several outputs are computed for each of them.
 *
 * The inner loops exist in plain C and, for x86, in AVX2. Both yield the same numbers, because they are sums of integers. */
#include "io/image/image.h"

#include "base/mem.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define PRECISION (32 - 8 - 2) /* 8 bits for the sample, 2 for filters with negative lobes */
#define HALF (1 << (PRECISION - 1))
#define LANES 32 /* bytes of a row that the vertical pass processes at once */
#define ROWS 4   /* rows that the horizontal pass processes at once */
#define PIECE 64 /* rows that resize_tall processes at once */

/* A resize along one axis, from `in` to `out` samples, of which `count` from `start` on are computed. */
struct line {
    int in;
    int64_t out, start;
    int count;
    sfp__filter filter;
};

/* The weights of `count` outputs of a line, from one of them on. */
struct axis {
    int count;
    int stride;       /* weights allocated per output */
    double *block;    /* owns the memory of all arrays; its start is the scratch of axis_fill */
    int32_t *first;   /* (count) input index of the first tap */
    int32_t *taps;    /* (count) number of taps, at least 1 */
    int32_t *weights; /* (count, stride) */
};

static atomic_bool plain_only;
static atomic_size_t piece_bytes = (size_t)16 << 20; /* more than this is computed in pieces */

void sfp__resize_in_pieces(size_t bytes)
{
    atomic_store(&piece_bytes, bytes);
}

void sfp__resize_plain_only(bool on)
{
    atomic_store(&plain_only, on);
}

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

static void axis_done(struct axis *a)
{
    sfp__free(a->block);
    *a = (struct axis){0};
}

static double scale_of(const struct line *l)
{
    return (double)l->in / (double)l->out;
}

static double support_of(const struct line *l)
{
    return (l->filter == SFP__FILTER_BICUBIC ? 2.0 : 1.0) * fmax(scale_of(l), 1.0);
}

/* Finds the inputs [*from, *to) under the filter of output i of the line; returns its centre. */
static double window_of(const struct line *l, int i, int *from, int *to)
{
    double centre = ((double)(l->start + i) + 0.5) * scale_of(l), support = support_of(l);
    *from = (int)fmax(centre - support + 0.5, 0.0);
    *to = (int)fmin(centre + support + 0.5, (double)l->in);
    return centre;
}

/* Computes the weights of a->count outputs of the line, from output `begin` on. */
static void axis_fill(struct axis *a, const struct line *l, int begin)
{
    double (*f)(double) = l->filter == SFP__FILTER_BICUBIC ? bicubic : bilinear;
    double scale = scale_of(l), inverse = scale > 1.0 ? 1.0 / scale : 1.0;
    double *exact = a->block; /* (stride) */
    for (int i = 0; i < a->count; i++) {
        int from, to;
        double centre = window_of(l, begin + i, &from, &to), sum = 0.0;
        int taps = to - from;
        for (int x = 0; x < taps; x++) {
            exact[x] = f((x + from - centre + 0.5) * inverse);
            sum += exact[x];
        }
        int32_t *w = a->weights + (size_t)i * (size_t)a->stride;
        for (int x = 0; x < taps; x++) {
            double v = (sum != 0.0 ? exact[x] / sum : exact[x]) * (1 << PRECISION);
            w[x] = (int32_t)(v < 0 ? v - 0.5 : v + 0.5);
        }
        a->first[i] = from;
        a->taps[i] = taps;
    }
}

/* Allocates an axis of `count` outputs of the line, and computes the weights of the first ones. */
static sfp_status axis_init(struct axis *a, const struct line *l, int count, sfp_error *err)
{
    double width = fmin(ceil(support_of(l)) * 2 + 1, (double)l->in);
    if (width > INT_MAX / 2)
        return sfp__fail(err, SFP_ELIMIT, "resize of a side from %d to %lld needs too many taps", l->in, (long long)l->out);
    int stride = (int)width;
    /* memory: `stride` doubles, then first, taps and weights of each output */
    size_t cells, bytes = SIZE_MAX;
    bool fits = sfp__mul_size((size_t)count, (size_t)stride + 2, &cells) && sfp__add_size(cells, (size_t)stride * 2, &cells) &&
                sfp__mul_size(cells, sizeof(int32_t), &bytes);
    double *block = fits ? sfp__malloc(bytes) : NULL;
    TRY(sfp__check_memory(block, err));
    int32_t *ints = (int32_t *)(block + stride);
    *a = (struct axis){count, stride, block, ints, ints + count, ints + 2 * (size_t)count};
    axis_fill(a, l, 0);
    return SFP_OK;
}

/* ------------------------------------------------------------------ kernels
 *
 * horizontal: src rows of `stride` bytes -> dst (rows, a->count, 3)
 * vertical:   src rows of `stride` bytes, of which `bytes` are used; the first of them is row `row0` of the axis
 *             -> dst (a->count, bytes)
 * add_rows:   adds src rows of `stride` bytes, of which `bytes` are used, times their weights to sums (bytes) */

static uint8_t clip8(int32_t sum)
{
    int32_t v = sum >> PRECISION;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static const int32_t *weights_of(const struct axis *a, int i)
{
    return a->weights + (size_t)i * (size_t)a->stride;
}

static void horizontal_plain(const struct axis *a, const uint8_t *src, size_t stride, int rows, uint8_t *dst)
{
    for (int y = 0; y < rows; y++, src += stride) {
        for (int i = 0; i < a->count; i++, dst += 3) {
            const int32_t *w = weights_of(a, i);
            const uint8_t *p = src + (size_t)a->first[i] * 3;
            int32_t red = HALF, green = HALF, blue = HALF;
            for (int x = 0; x < a->taps[i]; x++, p += 3) {
                red += p[0] * w[x];
                green += p[1] * w[x];
                blue += p[2] * w[x];
            }
            dst[0] = clip8(red);
            dst[1] = clip8(green);
            dst[2] = clip8(blue);
        }
    }
}

/* Computes n columns of one output row; for a constant n the compiler vectorises the loops. */
static inline __attribute__((always_inline)) void columns(const uint8_t *src, size_t stride, const int32_t *w, int taps, int n,
                                                          uint8_t *dst)
{
    int32_t sums[LANES];
    for (int x = 0; x < n; x++)
        sums[x] = HALF;
    for (int y = 0; y < taps; y++, src += stride) {
        for (int x = 0; x < n; x++)
            sums[x] += src[x] * w[y];
    }
    for (int x = 0; x < n; x++)
        dst[x] = clip8(sums[x]);
}

static void vertical_plain(const struct axis *a, const uint8_t *src, size_t stride, int row0, size_t bytes, uint8_t *dst)
{
    for (int i = 0; i < a->count; i++, dst += bytes) {
        const uint8_t *from = src + (size_t)(a->first[i] - row0) * stride;
        size_t x = 0;
        for (; x + LANES <= bytes; x += LANES)
            columns(from + x, stride, weights_of(a, i), a->taps[i], LANES, dst + x);
        columns(from + x, stride, weights_of(a, i), a->taps[i], (int)(bytes - x), dst + x);
    }
}

static inline __attribute__((always_inline)) void add(const uint8_t *restrict src, size_t stride, const int32_t *w, int rows,
                                                      size_t bytes, int32_t *restrict sums)
{
    for (int y = 0; y < rows; y++, src += stride) {
        for (size_t x = 0; x < bytes; x++)
            sums[x] += src[x] * w[y];
    }
}

static void add_rows_plain(const uint8_t *src, size_t stride, const int32_t *w, int rows, size_t bytes, int32_t *sums)
{
    add(src, stride, w, rows, bytes, sums);
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2")))

/* the compiler vectorises the same loops */
AVX2 static void add_rows_avx2(const uint8_t *src, size_t stride, const int32_t *w, int rows, size_t bytes, int32_t *sums)
{
    add(src, stride, w, rows, bytes, sums);
}

/* Loads four bytes as lanes: one pixel and the red of the next one, whose sum is discarded. */
AVX2 static inline __m128i load_pixel4(const uint8_t *p)
{
    int32_t bytes;
    memcpy(&bytes, p, 4);
    return _mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes));
}

/* Loads three bytes as lanes, for the last tap: it may be the last pixel of a row, and no byte after it may be read. */
AVX2 static inline __m128i load_pixel3(const uint8_t *p)
{
    int32_t bytes = p[0] | p[1] << 8 | p[2] << 16;
    return _mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes));
}

AVX2 static inline __m128i multiply_add(__m128i sum, __m128i pixel, __m128i weight)
{
    return _mm_add_epi32(sum, _mm_mullo_epi32(pixel, weight));
}

/* Writes `n` bytes, 3 or 4; the next pixel overwrites the fourth. */
AVX2 static inline void store_pixel(uint8_t *p, __m128i sum, size_t n)
{
    __m128i v = _mm_srai_epi32(sum, PRECISION);
    v = _mm_packs_epi32(v, v);
    int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(v, v));
    memcpy(p, &bytes, n);
}

/* Processes four rows at a time, which share the weights. At the end the last row is processed again in place of missing rows. */
AVX2 static void horizontal_avx2(const struct axis *a, const uint8_t *src, size_t stride, int rows, uint8_t *dst)
{
    size_t dst_stride = (size_t)a->count * 3;
    for (int y = 0; y < rows; y += ROWS) {
        const uint8_t *from[ROWS];
        uint8_t *to[ROWS];
        for (int r = 0; r < ROWS; r++) {
            size_t row = (size_t)(y + r < rows ? y + r : rows - 1);
            from[r] = src + row * stride;
            to[r] = dst + row * dst_stride;
        }
        for (int i = 0; i < a->count; i++) {
            const int32_t *w = weights_of(a, i);
            int last = a->taps[i] - 1;
            size_t at = (size_t)a->first[i] * 3, put = (size_t)i * 3;
            __m128i s0 = _mm_set1_epi32(HALF), s1 = s0, s2 = s0, s3 = s0, k;
            for (int x = 0; x < last; x++, at += 3) {
                k = _mm_set1_epi32(w[x]);
                s0 = multiply_add(s0, load_pixel4(from[0] + at), k);
                s1 = multiply_add(s1, load_pixel4(from[1] + at), k);
                s2 = multiply_add(s2, load_pixel4(from[2] + at), k);
                s3 = multiply_add(s3, load_pixel4(from[3] + at), k);
            }
            k = _mm_set1_epi32(w[last]);
            size_t n = i + 1 < a->count ? 4 : 3;
            store_pixel(to[0] + put, multiply_add(s0, load_pixel3(from[0] + at), k), n);
            store_pixel(to[1] + put, multiply_add(s1, load_pixel3(from[1] + at), k), n);
            store_pixel(to[2] + put, multiply_add(s2, load_pixel3(from[2] + at), k), n);
            store_pixel(to[3] + put, multiply_add(s3, load_pixel3(from[3] + at), k), n);
        }
    }
}

AVX2 static inline __m256i load8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

/* Computes LANES bytes of one output row. */
AVX2 static inline void columns_avx2(const uint8_t *src, size_t stride, const int32_t *w, int taps, uint8_t *dst)
{
    __m256i s0 = _mm256_set1_epi32(HALF), s1 = s0, s2 = s0, s3 = s0;
    for (int y = 0; y < taps; y++, src += stride) {
        __m256i k = _mm256_set1_epi32(w[y]);
        s0 = _mm256_add_epi32(s0, _mm256_mullo_epi32(load8(src), k));
        s1 = _mm256_add_epi32(s1, _mm256_mullo_epi32(load8(src + 8), k));
        s2 = _mm256_add_epi32(s2, _mm256_mullo_epi32(load8(src + 16), k));
        s3 = _mm256_add_epi32(s3, _mm256_mullo_epi32(load8(src + 24), k));
    }
    /* packing works within halves of 16 bytes: the permutation restores the order of the eight groups of four bytes */
    __m256i low = _mm256_packs_epi32(_mm256_srai_epi32(s0, PRECISION), _mm256_srai_epi32(s1, PRECISION));
    __m256i high = _mm256_packs_epi32(_mm256_srai_epi32(s2, PRECISION), _mm256_srai_epi32(s3, PRECISION));
    __m256i all = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)dst, all);
}

AVX2 static void vertical_avx2(const struct axis *a, const uint8_t *src, size_t stride, int row0, size_t bytes, uint8_t *dst)
{
    if (bytes < LANES) {
        vertical_plain(a, src, stride, row0, bytes, dst);
        return;
    }
    for (int i = 0; i < a->count; i++, dst += bytes) {
        const uint8_t *from = src + (size_t)(a->first[i] - row0) * stride;
        size_t last = bytes - LANES; /* the last block overlaps the one before it */
        for (size_t x = 0; x < last; x += LANES)
            columns_avx2(from + x, stride, weights_of(a, i), a->taps[i], dst + x);
        columns_avx2(from + last, stride, weights_of(a, i), a->taps[i], dst + last);
    }
}
#define PICK(name) \
    (!atomic_load_explicit(&plain_only, memory_order_relaxed) && __builtin_cpu_supports("avx2") ? name##_avx2 : name##_plain)
#else
#define PICK(name) name##_plain
#endif

/* ------------------------------------------------------------------ images */

static bool is_large(size_t count, size_t size)
{
    size_t bytes;
    return !sfp__mul_size(count, size, &bytes) || bytes > atomic_load_explicit(&piece_bytes, memory_order_relaxed);
}

/* The horizontal pass. */
struct across {
    struct line line;
    struct axis axis; /* of all columns, or of one at a time */
    uint8_t *column;  /* (rows, 3) one column at a time; NULL: all */
};

static void across_done(struct across *a)
{
    axis_done(&a->axis);
    sfp__free(a->column);
}

/* Prepares the pass for at most `rows` rows at once. */
static sfp_status across_init(struct across *a, struct line line, int rows, sfp_error *err)
{
    bool wide = is_large((size_t)line.count, (size_t)fmin(support_of(&line), (double)line.in) * 2 * sizeof(int32_t));
    a->line = line;
    TRY(axis_init(&a->axis, &line, wide ? 1 : line.count, err));
    return wide ? sfp__alloc(&a->column, (size_t)rows, 3, err) : SFP_OK;
}

/* The weights of a very wide image are computed for one column at a time. */
static void cross_wide(struct across *a, const uint8_t *src, size_t stride, int rows, uint8_t *dst)
{
    size_t bytes = (size_t)a->line.count * 3;
    for (int i = 0; i < a->line.count; i++, dst += 3) {
        axis_fill(&a->axis, &a->line, i);
        PICK(horizontal)(&a->axis, src, stride, rows, a->column);
        for (size_t y = 0; y < (size_t)rows; y++)
            memcpy(dst + y * bytes, a->column + y * 3, 3);
    }
}

static void cross(struct across *a, const uint8_t *src, size_t stride, int rows, uint8_t *dst)
{
    if (a->column)
        cross_wide(a, src, stride, rows, dst);
    else
        PICK(horizontal)(&a->axis, src, stride, rows, dst);
}

/* Computes the window of a very tall image, one output row at a time, as a sum over pieces of the rows under its filter. `across`
 * NULL: without a horizontal pass. */
static sfp_status resize_tall(const struct line *down, struct across *across, const uint8_t *src, size_t stride, size_t bytes,
                              uint8_t *to, sfp_error *err)
{
    OWNED_BY(axis_done) struct axis axis = {0};
    OWNED void *block = NULL;
    int32_t *sums;
    uint8_t *piece;
    const sfp__want list[] = {{&sums, bytes, sizeof *sums}, {&piece, PIECE, bytes}};
    TRY(sfp__block(&block, SFP__LIST(list), err));
    TRY(axis_init(&axis, down, 1, err));
    for (int i = 0; i < down->count; i++) {
        axis_fill(&axis, down, i);
        for (size_t x = 0; x < bytes; x++)
            sums[x] = HALF;
        for (int y = 0, rows; y < axis.taps[0]; y += rows) {
            const uint8_t *from = src + (size_t)(axis.first[0] + y) * stride;
            rows = axis.taps[0] - y < PIECE ? axis.taps[0] - y : PIECE;
            if (across)
                cross(across, from, stride, rows, piece);
            PICK(add_rows)(across ? piece : from, across ? bytes : stride, axis.weights + y, rows, bytes, sums);
        }
        for (size_t x = 0; x < bytes; x++)
            *to++ = clip8(sums[x]);
    }
    return SFP_OK;
}

/* Computes the window (left, top, out->width, out->height) of the image resized to full_w x full_h; out is allocated. */
static sfp_status resize_into(const sfp__image *im, int64_t full_w, int64_t full_h, sfp__filter filter, int64_t left, int64_t top,
                              sfp__image *out, sfp_error *err)
{
    OWNED_BY(across_done) struct across across = {0};
    OWNED_BY(axis_done) struct axis down = {0};
    OWNED uint8_t *middle = NULL; /* the result of the horizontal pass */
    const struct line x_line = {im->width, full_w, left, out->width, filter},
                      y_line = {im->height, full_h, top, out->height, filter};
    bool pass_x = full_w != im->width, pass_y = full_h != im->height;
    int row0 = (int)top, row_end = row0 + out->height; /* input rows needed; without a vertical pass, top is inside the image */
    size_t stride = (size_t)im->width * 3, bytes = (size_t)out->width * 3;

    if (pass_y) {
        int unused;
        (void)window_of(&y_line, 0, &row0, &unused);
        (void)window_of(&y_line, out->height - 1, &unused, &row_end);
    }
    int rows = row_end - row0;
    bool tall = pass_y && rows / 4 > out->height && is_large((size_t)rows, bytes);
    if (pass_x)
        TRY(across_init(&across, x_line, tall ? PIECE : rows, err));
    if (tall)
        return resize_tall(&y_line, pass_x ? &across : NULL, im->rgb + (pass_x ? 0 : (size_t)left * 3), stride, bytes, out->rgb,
                           err);
    const uint8_t *src = im->rgb + (size_t)row0 * stride;
    if (pass_x) {
        uint8_t *to = out->rgb;
        if (pass_y) {
            size_t need;
            middle = sfp__mul_size(bytes, (size_t)rows, &need) ? sfp__malloc(need) : NULL;
            TRY(sfp__check_memory(middle, err));
            to = middle;
        }
        cross(&across, src, stride, rows, to);
        src = to;
        stride = bytes;
    } else {
        src += (size_t)left * 3;
    }
    if (!pass_y)
        return SFP_OK;
    TRY(axis_init(&down, &y_line, out->height, err));
    PICK(vertical)(&down, src, stride, row0, bytes, out->rgb);
    return SFP_OK;
}

static sfp_status resize_window(const sfp__image *im, int64_t full_w, int64_t full_h, sfp__filter filter, int64_t left,
                                int64_t top, int width, int height, sfp__image *out, sfp_error *err)
{
    if (full_w == im->width && full_h == im->height)
        return sfp__image_crop(im, (int)left, (int)top, width, height, out, err);
    OWNED_BY(sfp__image_done) sfp__image resized = {0};
    TRY(sfp__image_alloc("resized image", width, height, SIZE_MAX, &resized, err));
    sfp_status status = resize_into(im, full_w, full_h, filter, left, top, &resized, err);
    if (status == SFP_ENOMEM)
        return sfp__image_nomem("resize", im->width, im->height, err);
    TRY(status);
    *out = TAKE(resized);
    return SFP_OK;
}

static sfp_status check_source(const sfp__image *im, sfp_error *err)
{
    if (im->width < 1 || im->height < 1 || !im->rgb)
        return sfp__fail(err, SFP_EINVAL, "image to resize is %d x %d, expected at least 1 x 1", im->width, im->height);
    return SFP_OK;
}

sfp_status sfp__image_resize(const sfp__image *im, int width, int height, sfp__filter filter, sfp__image *out, sfp_error *err)
{
    TRY(check_source(im, err));
    if (width < 1 || height < 1)
        return sfp__fail(err, SFP_EINVAL, "new image size is %d x %d, expected at least 1 x 1", width, height);
    return resize_window(im, width, height, filter, 0, 0, width, height, out, err);
}

/* The short side of an image before its centre is cut out: 224 of 256 is the usual ratio. */
static int64_t crop_side(int size)
{
    return ((int64_t)size * 256 + 112) / 224;
}

int sfp__image_fit_side(int size, sfp__resize how)
{
    if (!(how & SFP__RESIZE_FAST) || size < 1 || size > INT_MAX / 256)
        return 0;
    return how & SFP__RESIZE_CROP ? (int)crop_side(size) : size;
}

sfp_status sfp__image_fit(const sfp__image *im, int size, sfp__resize how, sfp__image *out, sfp_error *err)
{
    TRY(check_source(im, err));
    if (size < 1 || size > INT_MAX / 256)
        return sfp__fail(err, SFP_EINVAL, "new image size is %d, expected 1 to %d", size, INT_MAX / 256);
    if (!(how & SFP__RESIZE_CROP))
        return resize_window(im, size, size, SFP__FILTER_BILINEAR, 0, 0, size, size, out, err);
    int64_t target = crop_side(size); /* the long side is rounded down, as in torchvision */
    int64_t w = im->width, h = im->height, side = w < h ? w : h;
    int64_t full_w = w == side ? target : target * w / side, full_h = h == side ? target : target * h / side;
    return resize_window(im, full_w, full_h, SFP__FILTER_BILINEAR, (full_w - size) / 2, (full_h - size) / 2, size, size, out,
                         err);
}
