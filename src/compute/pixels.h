/* Conversion of images between bytes and the input of a network. Bytes are RGB rows (S, S, 3). The input has planes (3, S, S)
 * with values (byte / 255 - mean) / std. */
#ifndef SFP_COMPUTE_PIXELS_H
#define SFP_COMPUTE_PIXELS_H

#include <stdint.h>

void sfp__pixels_normalise(const uint8_t *rgb, int size, const float mean[3], const float std[3], float *out);

/* The inverse: rounds to the nearest byte. Values below 0 and NaN become 0, values above 255 become 255. Bytes that were
 * normalised are restored exactly. */
void sfp__pixels_to_bytes(const float *x, int size, const float mean[3], const float std[3], uint8_t *rgb);

#endif
