/* Images of ten simple objects, drawn from numbers: what the synthetic source
 * is made of, and the replicas of published data sets that tests use.
 *
 * The world drifts: pose, size, light, background, texture and the colours of
 * the classes are slow functions of time, so that neighbours in time look
 * alike and the ends of a stream do not. What tells a class is its shape;
 * colour helps only for a while. A scene depends on nothing but its arguments. */
#ifndef SFP_STREAM_RENDER_H
#define SFP_STREAM_RENDER_H

#include <stdint.h>

enum { SFP_SHAPES = 10 };

/* disc, square, triangle, star, cross, ring, stripes, checker, crescent, arrow */
extern const char *const sfp__shape_names[SFP_SHAPES];

/* Everything an image shows. Lengths are in half images, from its centre; colours are linear in 0..1. */
typedef struct sfp__scene {
    int shape;
    float x, y, radius, aspect, angle;
    float colour[3], second[3]; /* of the object; of stripes and fields */
    float texture;              /* strength of its mottling */
    float pattern;              /* stripes or fields across it */
    float bottom[3], top[3];    /* background */
    float slope;                /* direction of its gradient, radians */
    float clutter;              /* strength of what lies in it */
    float clutter_scale;        /* cells across the image */
    float light;                /* direction it comes from, radians */
    float brightness, warmth, noise;
    uint64_t grain; /* seed of the noise */
} sfp__scene;

/* The scene of one image: `world` and `time` say how the world is then, `seed` and `index` what is this image's own.
 * variant > 0 turns the colours of a shape, for data sets of more than ten classes. */
void sfp__scene_make(int shape, int variant, uint64_t world, double time, uint64_t seed, uint64_t index, sfp__scene *out);

/* Draws it into rgb (size, size, 3). */
void sfp__scene_draw(const sfp__scene *s, int size, uint8_t *rgb);

#endif
