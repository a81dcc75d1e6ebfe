/* The images that head mix is tested on: those of the held-out fold with the lowest keys. */
#include "learner/validation.h"

#include "base/mem.h"

#include "test.h"

TEST(the_held_out_images_with_the_lowest_keys_are_kept_in_any_order)
{
    sfp__validation v, w;
    uint8_t rgb[3];
    float tap[2];
    MUST(sfp__validation_init(&v, sizeof rgb, 2, &err));
    MUST(sfp__validation_init(&w, sizeof rgb, 2, &err));
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < 1000; i++) {
            uint64_t k = (uint64_t)(pass ? 999 - i : i), key = k * 7919 % 1009 * 5; /* every other key is a multiple of 10 */
            memset(rgb, (int)(key % 251), sizeof rgb);
            tap[0] = (float)key;
            tap[1] = -tap[0];
            sfp__validation_add(pass ? &w : &v, rgb, tap, (int32_t)(key % 7), key);
            sfp__validation_add(pass ? &w : &v, rgb, tap, (int32_t)(key % 7), key); /* the same image again */
        }
    assert_int_equal(v.count, SFP_VALIDATION_SIZE);
    for (int i = 0; i < SFP_VALIDATION_SIZE; i++) {
        assert_int_equal(v.key[i], w.key[i]);
        assert_int_equal(v.key[i] % 10, 0);
        assert_true(i == 0 || v.key[i] > v.key[i - 1]);
        assert_int_equal(v.label[i], v.key[i] % 7);
        assert_int_equal(v.rgb[i * 3], v.key[i] % 251);
        assert_true(v.tap[2 * i] == (float)v.key[i] && v.tap[2 * i + 1] == -(float)v.key[i]);
    }
    assert_true(v.key[SFP_VALIDATION_SIZE - 1] < 1009 * 5 / 2);
    sfp__validation_done(&v);
    sfp__validation_done(&w);
}
