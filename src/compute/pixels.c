#include "compute/pixels.h"

#include <math.h>
#include <stddef.h>

void sfp__pixels_normalise(const uint8_t *rgb, int size, const float mean[3], const float std[3], float *out)
{
    size_t n = (size_t)size * (size_t)size;
    for (int ch = 0; ch < 3; ch++) {
        float table[256]; /* (x / 255 - mean) / std for every byte: exact and fast */
        for (int i = 0; i < 256; i++)
            table[i] = ((float)i / 255.0f - mean[ch]) / std[ch];
        for (size_t i = 0; i < n; i++)
            out[(size_t)ch * n + i] = table[rgb[3 * i + (size_t)ch]];
    }
}

void sfp__pixels_to_bytes(const float *x, int size, const float mean[3], const float std[3], uint8_t *rgb)
{
    size_t n = (size_t)size * (size_t)size;
    for (int ch = 0; ch < 3; ch++)
        for (size_t i = 0; i < n; i++) {
            float byte = (x[(size_t)ch * n + i] * std[ch] + mean[ch]) * 255.0f;
            rgb[3 * i + (size_t)ch] = (uint8_t)(fminf(fmaxf(byte, 0), 255) + 0.5f); /* fmaxf(NaN, 0) is 0 */
        }
}
