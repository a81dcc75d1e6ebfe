/* Decodes and resizes one picture for comparison with another program:
 *     resize_tool FILE decode | orient | bilinear W H | bicubic W H | squash S | crop S
 * writes "W H\n" and the RGB bytes to stdout. `bench N` instead times N squashes to 224 on stderr. */
#include "io/image/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int number(char **argv, int argc, int i)
{
    return i < argc ? (int)strtol(argv[i], NULL, 10) : 0;
}

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static sfp_status bench(const sfp_image *im, int n, sfp_error *err)
{
    double start = seconds();
    for (int i = 0; i < n; i++) {
        sfp_image out;
        sfp_status status = sfp__image_fit(im, 224, SFP_RESIZE_SQUASH, &out, err);
        if (status != SFP_OK)
            return status;
        sfp__image_done(&out);
    }
    (void)fprintf(stderr, "%d x %d to 224: %.3f ms\n", im->width, im->height, 1e3 * (seconds() - start) / n);
    return SFP_OK;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        (void)fprintf(stderr, "usage: resize_tool FILE decode|orient|bilinear W H|bicubic W H|squash S|crop S|bench N\n");
        return 2;
    }
    const char *what = argv[2];
    sfp_error err = {0};
    sfp_image_options opt = sfp__image_options_defaults();
    opt.exif_orientation = strcmp(what, "orient") == 0;
    sfp_image im = {0}, out = {0};
    int a = number(argv, argc, 3), b = number(argv, argc, 4);
    sfp_status status = sfp__image_load(argv[1], &opt, &im, &err);
    if (status == SFP_OK) {
        if (strcmp(what, "bilinear") == 0)
            status = sfp__image_resize(&im, a, b, SFP_FILTER_BILINEAR, &out, &err);
        else if (strcmp(what, "bicubic") == 0)
            status = sfp__image_resize(&im, a, b, SFP_FILTER_BICUBIC, &out, &err);
        else if (strcmp(what, "squash") == 0)
            status = sfp__image_fit(&im, a, SFP_RESIZE_SQUASH, &out, &err);
        else if (strcmp(what, "crop") == 0)
            status = sfp__image_fit(&im, a, SFP_RESIZE_CROP, &out, &err);
        else if (strcmp(what, "bench") == 0)
            status = bench(&im, a, &err);
        else
            status = sfp__image_crop(&im, 0, 0, im.width, im.height, &out, &err);
    }
    if (status != SFP_OK)
        (void)fprintf(stderr, "resize_tool: %s\n", err.message);
    else if (out.rgb) {
        (void)printf("%d %d\n", out.width, out.height);
        (void)fwrite(out.rgb, 3, (size_t)out.width * (size_t)out.height, stdout);
    }
    sfp__image_done(&im);
    sfp__image_done(&out);
    return status == SFP_OK ? 0 : 1;
}
