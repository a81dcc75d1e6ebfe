/* Any bytes as a picture: refused with a message, or decoded, turned and made to fit. */
#include "fuzz.h"
#include "io/image/image.h"

static volatile unsigned sink;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    sfp_image im, fit;
    sfp_error err = {0};
    sfp_image_options opt = sfp__image_options_defaults();
    opt.exif_orientation = true;
    opt.max_pixels = 1 << 16; /* keeps a run short */
    sfp_status status = sfp__image_decode("fuzz", bytes, size, &opt, &im, &err);
    if (status != SFP_OK) {
        require_error(status, &err);
        return 0;
    }
    size_t pixels = (size_t)im.width * (size_t)im.height;
    REQUIRE(im.width > 0 && im.height > 0 && pixels <= opt.max_pixels);
    sink += touch(im.rgb, pixels * 3);
    status = sfp__image_fit(&im, 14, size & 1 ? SFP_RESIZE_CROP : SFP_RESIZE_SQUASH, &fit, &err);
    if (status == SFP_OK) {
        REQUIRE(fit.width == 14 && fit.height == 14);
        sfp__image_done(&fit);
    }
    sfp__image_done(&im);
    return 0;
}
