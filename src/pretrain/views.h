/* Views: what a picture looks like when it is learned from.
 *
 * A view's crop and flip follow from (seed, picture, view) and nothing else, so a teacher can see the same ones and its
 * outputs can be kept. Colours change at every step; the teacher does not see that. */
#ifndef SFP_PRETRAIN_VIEWS_H
#define SFP_PRETRAIN_VIEWS_H

#include "base/error.h"
#include "base/rng.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sfp_view {
    int left, top, width, height;
    bool flip;
} sfp_view;

/* Sequences of one seed, independent as long as a < 2^34 and b < 2^22; after 4 million steps two may be the same, no more. */
enum { SFP_DRAW_VIEW = 1, SFP_DRAW_ORDER, SFP_DRAW_COLOUR, SFP_DRAW_MIX, SFP_DRAW_WEIGHTS };
sfp_rng sfp__draw(uint64_t seed, int what, uint64_t a, uint64_t b);

/* Of a picture of size x size: `least` .. 1 of its area, sides 3:4 to 4:3. */
sfp_view sfp__view(uint64_t seed, uint64_t picture, uint64_t view, int size, double least);

/* rgb (size, size, 3) cropped, flipped and brought to out (to, to, 3). */
sfp_status sfp__view_render(const uint8_t *rgb, int size, const sfp_view *v, int to, uint8_t *out, sfp_error *err);

/* Brightness, contrast and saturation, each by a factor in 1 +- strength, in place. */
void sfp__view_colour(sfp_rng *r, double strength, int size, uint8_t *rgb);

#endif
