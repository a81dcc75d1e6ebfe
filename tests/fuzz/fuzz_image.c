/* Arbitrary bytes as an image: refused with a message, or decoded, rotated and fitted. */
#include "fuzz.h"
#include "io/image/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    sfp__image im, fit;
    sfp_error err = {0};
    sfp__image_options opt = sfp__image_options_defaults();
    opt.max_pixels = 1 << 16; /* keeps a run short */
    if (!accepted(sfp__image_decode("fuzz", bytes, size, &opt, &im, &err), &err))
        return 0;
    size_t pixels = (size_t)im.width * (size_t)im.height;
    REQUIRE(im.width > 0 && im.height > 0 && pixels <= opt.max_pixels);
    touch(im.rgb, pixels * 3);
    if (accepted(sfp__image_fit(&im, 14, size & 1 ? SFP__RESIZE_CROP : SFP__RESIZE_SQUASH, &fit, &err), &err)) {
        REQUIRE(fit.width == 14 && fit.height == 14);
        sfp__image_done(&fit);
    }
    sfp__image_done(&im);
    return 0;
}
