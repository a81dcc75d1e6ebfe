/* Decodes and resizes one image for comparison with another program:
 *     resize_tool FILE decode | bilinear W H | bicubic W H | squash S | crop S
 * writes "W H\n" and the RGB bytes to stdout. */
#include "base/mem.h"
#include "io/image/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number(char **argv, int argc, int i)
{
    return i < argc ? (int)strtol(argv[i], NULL, 10) : 0;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        (void)fprintf(stderr, "usage: resize_tool FILE decode|bilinear W H|bicubic W H|squash S|crop S\n");
        return 2;
    }
    const char *what = argv[2];
    sfp_error err = {0};
    OWNED_BY(sfp__image_done) sfp__image im = {0}, out = {0};
    int a = number(argv, argc, 3), b = number(argv, argc, 4);
    sfp_status status = sfp__image_load(argv[1], NULL, &im, &err);
    if (status == SFP_OK) {
        if (strcmp(what, "bilinear") == 0)
            status = sfp__image_resize(&im, a, b, SFP__FILTER_BILINEAR, &out, &err);
        else if (strcmp(what, "bicubic") == 0)
            status = sfp__image_resize(&im, a, b, SFP__FILTER_BICUBIC, &out, &err);
        else if (strcmp(what, "squash") == 0)
            status = sfp__image_fit(&im, a, SFP__RESIZE_SQUASH, &out, &err);
        else if (strcmp(what, "crop") == 0)
            status = sfp__image_fit(&im, a, SFP__RESIZE_CROP, &out, &err);
        else
            status = sfp__image_crop(&im, 0, 0, im.width, im.height, &out, &err);
    }
    if (status != SFP_OK) {
        (void)fprintf(stderr, "resize_tool: %s\n", err.message);
        return 1;
    }
    (void)printf("%d %d\n", out.width, out.height);
    (void)fwrite(out.rgb, 3, (size_t)out.width * (size_t)out.height, stdout);
    return 0;
}
