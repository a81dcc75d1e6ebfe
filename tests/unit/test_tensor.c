#include "io/tensor/tensor.h"

#include "base/rng.h"
#include "base/text.h"

#include "test.h"

static sfp__rng rng; /* seed 0 */

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Returns x rounded (to nearest, ties to even) to `bits` of precision with the smallest quantum 2^low; infinite above `limit`. */
static double rounded(double x, int bits, int low, double limit)
{
    int exponent;
    if (x == 0)
        return x;
    (void)frexp(x, &exponent);
    int quantum = exponent - bits > low ? exponent - bits : low;
    double y = ldexp(nearbyint(ldexp(x, -quantum)), quantum);
    return fabs(y) > limit ? copysign(INFINITY, x) : y;
}

TEST(every_half_survives_a_round_trip_through_float)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = sfp__f16_to_f32((uint16_t)h);
        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(f) && isnan(sfp__f16_to_f32(sfp__f32_to_f16(f))));
            assert_int_equal(sfp__f32_to_f16(f) & 0x81ff, h & 0x81ff);
        } else {
            assert_int_equal(sfp__f32_to_f16(f), h);
        }
    }
    assert_true(sfp__f16_to_f32(0x3c00) == 1.0f);
    assert_true(sfp__f16_to_f32(0x7bff) == 65504.0f);
    assert_true(sfp__f16_to_f32(0x0001) == 0x1p-24f);
    assert_true(sfp__f16_to_f32(0x83ff) == -0x1.ff8p-15f);
    assert_true(sfp__f16_to_f32(0xfc00) == -INFINITY);
}

TEST(every_bfloat_survives_a_round_trip_through_float)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = sfp__bf16_to_f32((uint16_t)h);
        if ((h & 0x7fff) > 0x7f80)
            assert_true(isnan(f) && isnan(sfp__bf16_to_f32(sfp__f32_to_bf16(f))));
        else
            assert_int_equal(sfp__f32_to_bf16(f), h);
    }
    /* a NaN whose payload is in the lower half must not become infinity */
    assert_true(isnan(sfp__bf16_to_f32(sfp__f32_to_bf16(float_of(0x7f800001)))));
}

static void check_rounding(float f)
{
    double half = rounded(f, 11, -24, 65504.0), brain = rounded(f, 8, -133, 0x1.fep127);
    float h = sfp__f16_to_f32(sfp__f32_to_f16(f)), b = sfp__bf16_to_f32(sfp__f32_to_bf16(f));
    if ((double)h != half || (double)b != brain || signbit(h) != signbit(f) || signbit(b) != signbit(f))
        fail_msg("%a became %a (expected %a) and %a (expected %a)", (double)f, (double)h, half, (double)b, brain);
}

TEST(floats_are_rounded_to_the_nearest_even)
{
    for (int i = 0; i < 2000000; i++) {
        uint32_t bits = sfp__rng_u32(&rng);
        if (i % 2) /* in the range of a half */
            bits = (bits & 0x807fffff) | (0x66 + sfp__rng_u32(&rng) % 44) << 23;
        float f = float_of(bits);
        if (!isnan(f))
            check_rounding(f);
    }
    /* all midpoints between halves, and their neighbours */
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float low = sfp__f16_to_f32((uint16_t)h), high = h == 0x7bff ? 65536.0f : sfp__f16_to_f32((uint16_t)(h + 1));
        float middle = (low + high) / 2;
        check_rounding(middle);
        check_rounding(float_of(bits_of(middle) + 1));
        check_rounding(-float_of(bits_of(middle) - 1));
    }
}

#define TENSOR(type, n, ptr)                                                          \
    {                                                                                 \
        .name = "t", .dtype = SFP__DTYPE_##type, .ndim = 1, .shape = {n}, .count = n, \
        .bytes = (n)*sfp__dtype_size(SFP__DTYPE_##type), .data = ptr                  \
    }

TEST(all_types_convert_to_float_from_unaligned_bytes)
{
    double f64[3] = {1.5, -2e300, 0.1};
    float f32[3] = {1.5f, -INFINITY, 0.25f};
    uint16_t f16[3] = {0x3e00, 0xfc00, 0x3400}, bf16[3] = {0x3fc0, 0xff80, 0x3e80};
    int64_t i64[3] = {1, -5, 1 << 20};
    int32_t i32[3] = {1, -5, 1 << 20};
    uint8_t u8[3] = {0, 7, 255};
    const struct {
        sfp__dtype type;
        const void *from;
        float want[3];
    } cases[] = {
        {SFP__DTYPE_F64, f64, {1.5f, -INFINITY, 0.1f}},
        {SFP__DTYPE_F32, f32, {1.5f, -INFINITY, 0.25f}},
        {SFP__DTYPE_F16, f16, {1.5f, -INFINITY, 0.25f}},
        {SFP__DTYPE_BF16, bf16, {1.5f, -INFINITY, 0.25f}},
        {SFP__DTYPE_I64, i64, {1, -5, 1 << 20}},
        {SFP__DTYPE_I32, i32, {1, -5, 1 << 20}},
        {SFP__DTYPE_U8, u8, {0, 7, 255}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t odd[64];
        size_t bytes = 3 * sfp__dtype_size(cases[i].type);
        memcpy(odd + 1, cases[i].from, bytes);
        sfp__tensor t = {
            .name = "t", .dtype = cases[i].type, .ndim = 1, .shape = {3}, .count = 3, .bytes = bytes, .data = odd + 1};
        float got[3];
        MUST(sfp__tensor_to_f32("f", &t, got, NULL));
        for (int j = 0; j < 3; j++)
            assert_true(got[j] == cases[i].want[j]);
    }
}

TEST(integers_convert_and_reals_are_refused)
{
    int64_t i64[2] = {INT64_MIN, 7}, got[2];
    int32_t i32[2] = {-3, 9};
    uint8_t u8[2] = {255, 0};
    float f32[2] = {1, 2};
    sfp__tensor a = TENSOR(I64, 2, i64), b = TENSOR(I32, 2, i32), c = TENSOR(U8, 2, u8), d = TENSOR(F32, 2, f32);
    MUST(sfp__tensor_to_i64("f", &a, got, &err));
    assert_true(got[0] == INT64_MIN && got[1] == 7);
    MUST(sfp__tensor_to_i64("f", &b, got, &err));
    assert_true(got[0] == -3 && got[1] == 9);
    MUST(sfp__tensor_to_i64("f", &c, got, &err));
    assert_true(got[0] == 255 && got[1] == 0);
    REFUSED_EXACTLY(sfp__tensor_to_i64("y.npy", &d, got, &err), SFP_EUNSUPPORTED,
                    "y.npy: tensor 't' is F32, expected integers (I64, I32 or U8)");
    assert_true(got[0] == 255);
}

TEST(shapes_are_written_as_python_does)
{
    char buf[SFP__SHAPE_MAX], tiny[6];
    int64_t shape[8] = {2304, 768, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
    assert_string_equal(sfp__shape_text(shape, 0, buf, sizeof buf), "()");
    assert_string_equal(sfp__shape_text(shape, 1, buf, sizeof buf), "(2304,)");
    assert_string_equal(sfp__shape_text(shape, 2, buf, sizeof buf), "(2304, 768)");
    sfp__shape_text(shape, 8, buf, sizeof buf);
    assert_int_equal(buf[strlen(buf) - 1], ')');
    assert_string_equal(sfp__shape_text(shape, 2, tiny, sizeof tiny), "(2304");
}

TEST(overflow_of_a_shape_product_is_detected)
{
    size_t count = 9, bytes = 9;
    assert_true(sfp__shape_count((int64_t[]){2, 3}, 2, SFP__DTYPE_F32, &count, &bytes));
    assert_true(count == 6 && bytes == 24);
    assert_true(sfp__shape_count(NULL, 0, SFP__DTYPE_F64, &count, &bytes));
    assert_true(count == 1 && bytes == 8);
    assert_false(sfp__shape_count((int64_t[]){INT64_MAX, 3}, 2, SFP__DTYPE_U8, &count, &bytes));
    assert_false(sfp__shape_count((int64_t[]){INT64_MAX}, 1, SFP__DTYPE_F32, &count, &bytes));
    assert_false(sfp__shape_count((int64_t[]){-1}, 1, SFP__DTYPE_F32, &count, &bytes));
    assert_true(count == 1 && bytes == 8);
}

TEST(a_wrong_shape_is_named_with_the_right_one)
{
    sfp__tensor t = {.name = "blocks.3.attn.qkv.weight", .dtype = SFP__DTYPE_F32, .ndim = 2, .shape = {2304, 512}};
    MUST(sfp__tensor_expect("w", &t, (int64_t[]){2304, 512}, 2, &err));
    REFUSED_EXACTLY(sfp__tensor_expect("weights.safetensors", &t, (int64_t[]){2304, 768}, 2, &err), SFP_ESHAPE,
                    "weights.safetensors: tensor 'blocks.3.attn.qkv.weight' is (2304, 512), expected (2304, 768)");
    assert_int_equal(sfp__tensor_expect("w", &t, (int64_t[]){2304}, 1, &err), SFP_ESHAPE);
}

TEST(names_of_files_are_made_printable)
{
    char buf[32], tiny[8];
    assert_string_equal(sfp__printable("plain", buf, sizeof buf), "plain");
    assert_string_equal(sfp__printable("a\x1b[2Jb\n\xff", buf, sizeof buf), "a\\x1b[2Jb\\x0a\\xff");
    assert_string_equal(sfp__printable("k\xc3\xa9 \xe2\x80\xaex\xc3", buf, sizeof buf), "k\xc3\xa9 \\xe2\\x80\\xaex\\xc3");
    assert_string_equal(sfp__printable("123\xc3\xa9\xc3\xa9\xc3\xa9", tiny, sizeof tiny), "123...");
    assert_string_equal(sfp__printable("1234567", tiny, sizeof tiny), "1234567");
    assert_string_equal(sfp__printable("12345678", tiny, sizeof tiny), "1234...");
    assert_string_equal(sfp__printable("12\n\n", tiny, sizeof tiny), "12...");
    for (size_t n = 1; n < 12; n++) { /* for any capacity: terminated, and nothing is written beyond it */
        char *exact = kept_malloc(n);
        assert_true(strlen(sfp__printable("ab\x01\x02\x03yz", exact, n)) < n);
    }
}

TEST(only_well_formed_utf8_passes)
{
    const char *good[] = {"", "abc", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"};
    const char *bad[] = {"\x80", "\xc3",     "\xc0\x80",        "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                         "\xff", "\xe2\x82", "\xf0\x80\x80\x80"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(sfp__utf8_valid(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(sfp__utf8_valid(bad[i]));
}
