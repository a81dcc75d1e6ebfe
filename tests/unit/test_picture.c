/* From a source's picture to the network's input. */
#include "stream/picture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { W = 6, H = 4 };

static void grey_and_colour_become_rgb(void **unused)
{
    (void)unused;
    uint8_t grey[W * H], rgb[3 * W * H], a[3 * 4 * 4], b[3 * 4 * 4];
    for (int i = 0; i < W * H; i++) {
        grey[i] = (uint8_t)(i * 10);
        memset(rgb + 3 * i, i * 10, 3);
    }
    const sfp_picture g = {.kind = SFP_PICTURE_GREY, .width = W, .height = H, .bytes = grey, .size = sizeof grey};
    const sfp_picture c = {.kind = SFP_PICTURE_RGB, .width = W, .height = H, .bytes = rgb, .size = sizeof rgb};
    assert_int_equal(sfp__picture_fit(&g, "grey", 4, SFP_RESIZE_SQUASH, a, NULL), SFP_OK);
    assert_int_equal(sfp__picture_fit(&c, "colour", 4, SFP_RESIZE_SQUASH, b, NULL), SFP_OK);
    assert_memory_equal(a, b, sizeof a);
    assert_true(a[0] == a[1] && a[1] == a[2] && a[0] < a[3 * 15]);
}

static void a_box_is_cut_and_clipped(void **unused)
{
    (void)unused;
    uint8_t grey[W * H] = {0}, out[3 * 2 * 2];
    for (int y = 2; y < H; y++)
        memset(grey + y * W + 4, 200, 2); /* the lower right 2 x 2 */
    sfp_picture p = {.kind = SFP_PICTURE_GREY, .width = W, .height = H, .bytes = grey, .size = sizeof grey, .has_box = true,
                     .left = 4, .top = 2, .right = 400, .bottom = 300};
    assert_int_equal(sfp__picture_fit(&p, "box", 2, SFP_RESIZE_SQUASH, out, NULL), SFP_OK);
    for (size_t i = 0; i < sizeof out; i++)
        assert_int_equal(out[i], 200);
    p.left = 6;
    sfp_error err = {0};
    assert_int_equal(sfp__picture_fit(&p, "box", 2, SFP_RESIZE_SQUASH, out, &err), SFP_EFORMAT);
    assert_string_equal(err.message, "box: the box (6, 2)-(400, 300) lies outside the 6 x 4 picture");
}

static void a_wrong_number_of_bytes_is_refused(void **unused)
{
    (void)unused;
    uint8_t grey[W * H] = {0}, out[3 * 2 * 2];
    sfp_picture p = {.kind = SFP_PICTURE_RGB, .width = W, .height = H, .bytes = grey, .size = sizeof grey};
    sfp_error err = {0};
    assert_int_equal(sfp__picture_fit(&p, "short", 2, SFP_RESIZE_SQUASH, out, &err), SFP_EFORMAT);
    assert_string_equal(err.message, "short: 6 x 4 pixels in 24 bytes, expected 72");
    p = (sfp_picture){.kind = SFP_PICTURE_ENCODED, .bytes = grey, .size = sizeof grey};
    assert_int_not_equal(sfp__picture_fit(&p, "noise", 2, SFP_RESIZE_SQUASH, out, &err), SFP_OK);
    assert_non_null(strstr(err.message, "noise"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grey_and_colour_become_rgb),
        cmocka_unit_test(a_box_is_cut_and_clipped),
        cmocka_unit_test(a_wrong_number_of_bytes_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
