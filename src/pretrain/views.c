#include "pretrain/views.h"

#include "io/image.h"

#include <math.h>
#include <string.h>

sfp_rng sfp__draw(uint64_t seed, int what, uint64_t a, uint64_t b)
{
    return sfp__rng_init(seed, ((uint64_t)what << 56) ^ (b << 34) ^ a);
}

static double between(sfp_rng *r, double low, double high)
{
    return low + (high - low) * sfp__rng_double(r);
}

static int side_of(double length, int size)
{
    int n = (int)lround(length);
    return n < 1 ? 1 : n > size ? size : n;
}

sfp_view sfp__view(uint64_t seed, uint64_t picture, uint64_t view, int size, double least)
{
    sfp_rng r = sfp__draw(seed, SFP_DRAW_VIEW, picture, view);
    double area = between(&r, least, 1), ratio = exp(between(&r, -log(4.0 / 3), log(4.0 / 3))), side = sqrt(area) * size;
    sfp_view v = {.width = side_of(side * sqrt(ratio), size), .height = side_of(side / sqrt(ratio), size)};
    v.left = (int)sfp__rng_below(&r, (uint32_t)(size - v.width + 1));
    v.top = (int)sfp__rng_below(&r, (uint32_t)(size - v.height + 1));
    v.flip = sfp__rng_u32(&r) & 1;
    return v;
}

static void flip_rows(int size, uint8_t *rgb)
{
    for (int y = 0; y < size; y++)
        for (int a = 0, b = size - 1; a < b; a++, b--) {
            uint8_t *p = rgb + 3 * ((size_t)y * (size_t)size + (size_t)a), *q = rgb + 3 * ((size_t)y * (size_t)size + (size_t)b);
            for (int c = 0; c < 3; c++) {
                uint8_t t = p[c];
                p[c] = q[c];
                q[c] = t;
            }
        }
}

sfp_status sfp__view_render(const uint8_t *rgb, int size, const sfp_view *v, int to, uint8_t *out, sfp_error *err)
{
    union {
        const uint8_t *in;
        uint8_t *image; /* only read: crop and resize take a picture as it is kept */
    } pixels = {.in = rgb};
    const sfp_image whole = {.width = size, .height = size, .rgb = pixels.image};
    sfp_image part = {0}, fit = {0};
    sfp_status s = sfp__image_crop(&whole, v->left, v->top, v->width, v->height, &part, err);
    if (!s)
        s = sfp__image_resize(&part, to, to, SFP_FILTER_BILINEAR, &fit, err);
    if (!s) {
        memcpy(out, fit.rgb, 3 * (size_t)to * (size_t)to);
        if (v->flip)
            flip_rows(to, out);
    }
    sfp__image_done(&part);
    sfp__image_done(&fit);
    return s;
}

static uint8_t to_byte(float x)
{
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x + 0.5f);
}

void sfp__view_colour(sfp_rng *r, double strength, int size, uint8_t *rgb)
{
    size_t n = (size_t)size * (size_t)size;
    float bright = (float)between(r, 1 - strength, 1 + strength), contrast = (float)between(r, 1 - strength, 1 + strength),
          saturation = (float)between(r, 1 - strength, 1 + strength);
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += 0.299 * rgb[3 * i] + 0.587 * rgb[3 * i + 1] + 0.114 * rgb[3 * i + 2];
    float level = bright * (float)(sum / (double)n) * (1 - contrast), scale = bright * contrast;
    for (size_t i = 0; i < n; i++) {
        float c[3], grey;
        for (int k = 0; k < 3; k++)
            c[k] = scale * (float)rgb[3 * i + (size_t)k] + level;
        grey = 0.299f * c[0] + 0.587f * c[1] + 0.114f * c[2];
        for (int k = 0; k < 3; k++)
            rgb[3 * i + (size_t)k] = to_byte(grey + saturation * (c[k] - grey));
    }
}
