/* SHA-512, by which a downloaded package is compared with the one that was tested. */
#ifndef SFP_BASE_SHA512_H
#define SFP_BASE_SHA512_H

#include <stddef.h>
#include <stdint.h>

#define SFP__SHA512_BYTES 64

void sfp__sha512(const void *bytes, size_t size, uint8_t out[SFP__SHA512_BYTES]);

#endif
