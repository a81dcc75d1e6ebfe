/* From a source's picture to the network's input: decode, cut, resize. */
#ifndef SFP_STREAM_PICTURE_H
#define SFP_STREAM_PICTURE_H

#include "io/image.h"
#include "stream/source.h"

/* rgb (size, size, 3). `name` stands for the picture in messages. */
sfp_status sfp__picture_fit(const sfp_picture *p, const char *name, int size, sfp_resize how, uint8_t *rgb, sfp_error *err);

/* Picture i of an indexed source, fitted; *kept gets the encoded bytes when not NULL and there are any (else bytes NULL). */
sfp_status sfp__picture_read_fit(const sfp_source *s, int64_t i, int size, sfp_resize how, uint8_t *rgb, sfp_picture *kept, sfp_error *err);

#endif
