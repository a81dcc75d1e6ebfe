/* Images between bytes and a network's input: RGB rows (S, S, 3) and normalised planes (3, S, S), a pixel of which is
 * (byte / 255 - mean) / std. */
#ifndef SFP_COMPUTE_PIXELS_H
#define SFP_COMPUTE_PIXELS_H

#include <stdint.h>

void sfp__pixels_normalise(const uint8_t *rgb, int size, const float mean[3], const float std[3], float *out);

/* The other way: the nearest byte; what is below 0, or no number, is 0, what is above 255 is 255. Bytes that were normalised
 * come back as they were. */
void sfp__pixels_to_bytes(const float *x, int size, const float mean[3], const float std[3], uint8_t *rgb);

#endif
