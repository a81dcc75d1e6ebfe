/* Renders images of ten simple objects, for the synthetic source and for the replicas of published datasets in the tests.
 *
 * The world drifts: pose, size, light, background, texture and the colours of the classes are slow functions of time. Images
 * close in time look alike; those at the two ends of a stream do not. A class is defined by its shape; its colour is
 * informative only for a while. A scene depends only on its arguments. */
#ifndef SFP_STREAM_RENDER_H
#define SFP_STREAM_RENDER_H

#include <stdint.h>

enum { SFP__SHAPES = 10 };

/* disc, square, triangle, star, cross, ring, stripes, checker, crescent, arrow */
extern const char *const sfp__shape_names[SFP__SHAPES];

/* The contents of an image. Lengths are in half images, from the centre; colours are linear, from 0 to 1. */
typedef struct sfp__scene {
    int shape;
    float x, y, radius, aspect, angle;
    float colour[3], second[3]; /* of the object; of its stripes or squares */
    float texture;              /* strength of the texture of the object */
    float pattern;              /* number of stripes or squares across the object */
    float bottom[3], top[3];    /* background */
    float slope;                /* direction of the gradient of the background, radians */
    float clutter;              /* strength of the texture of the background */
    float clutter_scale;        /* cells of this texture across the image */
    float light;                /* direction of the light, radians */
    float brightness, warmth, noise;
    uint64_t grain; /* seed of the noise */
} sfp__scene;

/* Makes the scene of one image: `world` and `time` define the state of the world, `seed` and `index` the properties of this
 * image. variant > 0 changes the colours of a shape, for datasets of more than ten classes. */
void sfp__scene_make(int shape, int variant, uint64_t world, double time, uint64_t seed, uint64_t index, sfp__scene *out);

/* Draws a scene into rgb (size, size, 3). */
void sfp__scene_draw(const sfp__scene *s, int size, uint8_t *rgb);

#endif
