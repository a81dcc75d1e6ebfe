/* Renders with signed distances instead of polygons: the distance to the outline of an object gives antialiasing, bevel and
 * shadow. */
#include "stream/sources/render.h"

#include "base/rng.h"

#include <math.h>
#include <stdbool.h>

#define PI 3.14159265f
#define LATTICE 16 /* a power of two */

const char *const sfp__shape_names[SFP__SHAPES] = {"disc", "square",  "triangle", "star",     "cross",
                                                   "ring", "stripes", "checker",  "crescent", "arrow"};
enum { DISC, SQUARE, TRIANGLE, STAR, CROSS, RING, STRIPES, CHECKER, CRESCENT, ARROW };

/* ------------------------------------------------------------------ distances
 *
 * Distances to the outline of an object of radius about 1, negative inside. Most follow Inigo Quilez, "2D distance functions". */

static float clampf(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x;
}

/* like fmaxf and fminf, which are function calls in a compiler that respects NaN */
static float maxf(float a, float b)
{
    return a > b ? a : b;
}

static float minf(float a, float b)
{
    return a < b ? a : b;
}

static float mixf(float a, float b, float t)
{
    return a + (b - a) * t;
}

static float smoothf(float t)
{
    t = clampf(t, 0, 1);
    return t * t * (3 - 2 * t);
}

static float length2(float x, float y)
{
    return sqrtf(x * x + y * y);
}

static float box(float x, float y, float w, float h)
{
    float dx = fabsf(x) - w, dy = fabsf(y) - h;
    return length2(maxf(dx, 0), maxf(dy, 0)) + minf(maxf(dx, dy), 0);
}

static float triangle(float x, float y, float r)
{
    const float k = 1.7320508f;
    x = fabsf(x) - r;
    y = y + r / k;
    if (x + k * y > 0) {
        float t = x;
        x = (t - k * y) / 2;
        y = (-k * t - y) / 2;
    }
    x -= clampf(x, -2 * r, 0);
    return -copysignf(length2(x, y), y);
}

static float star(float x, float y, float r, float inner)
{
    const float k1x = 0.809016994f, k1y = -0.587785252f;
    x = fabsf(x);
    float d = 2 * maxf(k1x * x + k1y * y, 0);
    x -= d * k1x;
    y -= d * k1y;
    d = 2 * maxf(-k1x * x + k1y * y, 0);
    x += d * k1x;
    y -= d * k1y;
    x = fabsf(x);
    y -= r;
    float bx = -k1y * inner, by = k1x * inner - 1;
    float h = clampf((x * bx + y * by) / (bx * bx + by * by), 0, r);
    return copysignf(length2(x - bx * h, y - by * h), y * bx - x * by);
}

static float distance(int shape, float x, float y)
{
    switch (shape) {
    case DISC:
        return length2(x, y) - 0.8f;
    case SQUARE:
        return box(x, y, 0.66f, 0.66f) - 0.02f;
    case TRIANGLE:
        return triangle(x, y + 0.1f, 0.85f) - 0.03f;
    case STAR:
        return star(x, y, 0.98f, 0.45f) - 0.02f;
    case CROSS:
        return minf(box(x, y, 0.88f, 0.26f), box(x, y, 0.26f, 0.88f)) - 0.02f;
    case RING:
        return fabsf(length2(x, y) - 0.62f) - 0.22f;
    case STRIPES:
    case CHECKER:
        return box(x, y, 0.58f, 0.58f) - 0.14f;
    case CRESCENT:
        return maxf(length2(x, y) - 0.85f, 0.68f - length2(x - 0.38f, y));
    default: /* ARROW: a shaft and a head */
        return minf(box(x, y + 0.35f, 0.17f, 0.5f), triangle(x, y - 0.42f, 0.55f)) - 0.02f;
    }
}

/* ---------------------------------------------------------------------- noise */

/* A lattice of random values from -1 to 1, interpolated between its points. */
typedef struct lattice {
    float v[LATTICE * LATTICE];
} lattice;

static void lattice_fill(lattice *l, uint64_t seed, uint32_t stream)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];
    for (uint32_t i = 0; i < LATTICE * LATTICE / 16; i++) {
        sfp__philox((uint32_t[4]){i, 0, stream, 0x6e6f6973}, key, out);
        for (uint32_t j = 0; j < 16; j++)
            l->v[16 * i + j] = (float)(out[j / 4] >> (j % 4 * 8) & 0xff) / 127.5f - 1;
    }
}

/* Interpolates at x, y >= 0; the lattice repeats. */
static float lattice_at(const lattice *l, float x, float y)
{
    int ix = (int)x, iy = (int)y;
    float fx = x - (float)ix, fy = y - (float)iy;
    fx = fx * fx * (3 - 2 * fx);
    fy = fy * fy * (3 - 2 * fy);
    int jx = (ix + 1) & (LATTICE - 1), jy = (iy + 1) & (LATTICE - 1);
    ix &= LATTICE - 1;
    iy &= LATTICE - 1;
    const float *a = l->v + iy * LATTICE, *b = l->v + jy * LATTICE;
    return mixf(mixf(a[ix], a[jx], fx), mixf(b[ix], b[jx], fx), fy);
}

/* --------------------------------------------------------------------- scenes */

static void hsv(float h, float s, float v, float out[3])
{
    for (int c = 0; c < 3; c++) {
        float t = h * 6 + (c == 0 ? 0.0f : c == 1 ? 4.0f : 2.0f);
        t = t - 6 * floorf(t / 6);
        out[c] = v * (1 - s * (1 - clampf(fabsf(t - 3) - 1, 0, 1)));
    }
}

/* Returns a slow wave of the world, from -1 to 1; each k has its own period and phase. It is the sum of two waves with
 * incommensurate periods, so that it never repeats. */
static float drift(uint64_t world, uint32_t k, double time)
{
    uint32_t key[2] = {(uint32_t)world, (uint32_t)(world >> 32)}, out[4];
    sfp__philox((uint32_t[4]){k, 0, 0, 0x64726966}, key, out);
    double period = 900 + 300 * (double)(k % 7), turn = 6.283185307179586;
    double a = time / period + (double)out[0] / 4294967296.0, b = time / (period * 2.718281828) + (double)out[1] / 4294967296.0;
    return (float)(0.55 * sin(turn * (a - floor(a))) + 0.45 * sin(turn * (b - floor(b))));
}

static float uniform(sfp__rng *r, float low, float high)
{
    return mixf(low, high, (float)sfp__rng_double(r));
}

static float normal(sfp__rng *r, float sigma)
{
    return sigma * clampf((float)sfp__rng_normal(r), -2.5f, 2.5f);
}

enum {
    TURN,
    SIZE,
    SLANT,
    LIGHT_TURN,
    BRIGHT,
    WARM,
    GROUND_HUE,
    GROUND_LIGHT,
    CLUTTER,
    CLUTTER_SIZE,
    TEXTURE,
    PATTERN,
    CLASS_HUE
};

void sfp__scene_make(int shape, int variant, uint64_t world, double time, uint64_t seed, uint64_t index, sfp__scene *out)
{
    sfp__rng r = sfp__rng_init(seed, index);
    sfp__scene s = {.shape = shape};
    uint32_t kind = (uint32_t)(shape + SFP__SHAPES * variant);

    s.radius = 0.58f + 0.11f * drift(world, SIZE, time) + normal(&r, 0.05f);
    s.aspect = expf(0.16f * drift(world, SLANT, time) + normal(&r, 0.07f));
    s.angle = 1.1f * drift(world, TURN, time) + normal(&r, 0.28f);
    float reach = clampf(0.98f - s.radius, 0.05f, 0.5f);
    s.x = uniform(&r, -reach, reach) * 0.8f;
    s.y = uniform(&r, -reach, reach) * 0.8f;

    float hue = (float)kind * 0.381966f + 0.24f * drift(world, CLASS_HUE + kind, time) + normal(&r, 0.05f);
    hsv(hue, clampf(0.62f + normal(&r, 0.12f), 0.15f, 0.95f), uniform(&r, 0.62f, 1.0f), s.colour);
    hsv(hue + uniform(&r, 0.3f, 0.7f), uniform(&r, 0.1f, 0.7f), uniform(&r, 0.1f, 0.45f), s.second);
    s.texture = clampf(0.16f + 0.12f * drift(world, TEXTURE, time) + normal(&r, 0.04f), 0.02f, 0.35f);
    s.pattern = clampf(4.4f + 0.8f * drift(world, PATTERN, time) + normal(&r, 0.3f), 3, 6);

    float ground = 0.5f * drift(world, GROUND_HUE, time) + normal(&r, 0.06f);
    float light = 0.45f + 0.25f * drift(world, GROUND_LIGHT, time) + normal(&r, 0.07f);
    hsv(ground, uniform(&r, 0.15f, 0.5f), clampf(light - 0.1f, 0.08f, 0.9f), s.bottom);
    hsv(ground + uniform(&r, -0.08f, 0.12f), uniform(&r, 0.1f, 0.45f), clampf(light + 0.15f, 0.12f, 0.95f), s.top);
    s.slope = uniform(&r, -0.6f, 0.6f) - PI / 2;
    s.clutter = clampf(0.2f + 0.14f * drift(world, CLUTTER, time) + normal(&r, 0.05f), 0.02f, 0.45f);
    s.clutter_scale = 5 + 3 * drift(world, CLUTTER_SIZE, time) + normal(&r, 0.4f);

    s.light = 1.4f * drift(world, LIGHT_TURN, time) + normal(&r, 0.2f) - PI / 2;
    s.brightness = clampf(0.95f + 0.28f * drift(world, BRIGHT, time) + normal(&r, 0.06f), 0.5f, 1.35f);
    s.warmth = 0.14f * drift(world, WARM, time) + normal(&r, 0.02f);
    s.noise = uniform(&r, 0.005f, 0.03f);
    s.grain = (uint64_t)sfp__rng_u32(&r) << 32 | sfp__rng_u32(&r);
    *out = s;
}

/* -------------------------------------------------------------------- drawing */

/* Values that the loop over pixels uses. */
typedef struct view {
    const sfp__scene *s;
    lattice ground, mottle;
    float cosa, sina, inv_x, inv_y; /* image to object */
    float lx, ly;                   /* towards the light */
    float gx, gy;                   /* direction of the gradient */
    float edge;                     /* pixels per unit of distance of the object */
} view;

static void background(const view *v, float x, float y, float out[3])
{
    const sfp__scene *s = v->s;
    float t = smoothf(0.5f + 0.5f * (x * v->gx + y * v->gy));
    float u = (x + 1) * s->clutter_scale * 0.5f, w = (y + 1) * s->clutter_scale * 0.5f;
    float n = 0.7f * lattice_at(&v->ground, u, w) + 0.4f * lattice_at(&v->ground, 2.1f * u + 7, 2.1f * w + 3);
    for (int c = 0; c < 3; c++)
        out[c] = mixf(s->bottom[c], s->top[c], t) * (1 + 1.6f * s->clutter * n);
}

/* Returns how far (-0.5 to 0.5) position p is within a dark band; bands of width 1 alternate. |p| < 16. */
static float band(float p)
{
    float t = p * 0.5f + 16;
    return fabsf(2 * (t - (float)(int)t) - 1) - 0.5f;
}

/* Returns the share of the second colour; edges are one pixel wide. */
static float pattern(const view *v, float px, float py)
{
    float bands = v->s->pattern / 1.44f, sharp = v->edge / bands;
    float a = clampf(0.5f + band(px * bands) * sharp, 0, 1);
    if (v->s->shape == STRIPES)
        return a;
    float b = clampf(0.5f + band(py * bands) * sharp, 0, 1);
    return a + b - 2 * a * b; /* exclusive or */
}

static void surface(const view *v, float px, float py, float d, float x, float y, float out[3])
{
    const sfp__scene *s = v->s;
    bool two = s->shape == STRIPES || s->shape == CHECKER;
    float k = two ? pattern(v, px, py) : 0;
    float n = lattice_at(&v->mottle, (px + 2) * 3.1f, (py + 2) * 3.1f);
    float lit = 0.82f + 0.3f * ((x - s->x) * v->lx + (y - s->y) * v->ly) / s->radius;
    float bevel = smoothf(-d * 6); /* dark near the outline */
    float shade = clampf(lit, 0.4f, 1.3f) * (0.72f + 0.28f * bevel) * (1 + s->texture * n);
    for (int c = 0; c < 3; c++)
        out[c] = mixf(s->colour[c], s->second[c], k) * shade;
}

static void pixel(const view *v, float x, float y, float out[3])
{
    const sfp__scene *s = v->s;
    float rgb[3], dx = x - s->x, dy = y - s->y;
    background(v, x, y, rgb);
    /* the shadow falls away from the light, softly */
    float sx = dx + 0.11f * v->lx, sy = dy + 0.11f * v->ly;
    float far = s->radius * 1.7f;
    if (sx * sx + sy * sy < far * far) {
        float d = distance(s->shape, (v->cosa * sx + v->sina * sy) * v->inv_x, (v->cosa * sy - v->sina * sx) * v->inv_y);
        float shadow = 0.45f * smoothf(0.5f - d * 2.5f);
        for (int c = 0; c < 3; c++)
            rgb[c] *= 1 - shadow;
    }
    if (dx * dx + dy * dy < far * far) {
        float px = (v->cosa * dx + v->sina * dy) * v->inv_x, py = (v->cosa * dy - v->sina * dx) * v->inv_y;
        float d = distance(s->shape, px, py), cover = clampf(0.5f - d * v->edge, 0, 1), own[3];
        if (cover > 0) {
            surface(v, px, py, d, x, y, own);
            for (int c = 0; c < 3; c++)
                rgb[c] = mixf(rgb[c], own[c], cover);
        }
    }
    for (int c = 0; c < 3; c++)
        out[c] = rgb[c] * s->brightness;
    out[0] *= 1 + s->warmth;
    out[2] *= 1 - s->warmth;
}

void sfp__scene_draw(const sfp__scene *s, int size, uint8_t *rgb)
{
    view v = {.s = s,
              .cosa = cosf(s->angle),
              .sina = sinf(s->angle),
              .lx = cosf(s->light),
              .ly = sinf(s->light),
              .gx = cosf(s->slope),
              .gy = sinf(s->slope)};
    float stretch = sqrtf(s->aspect);
    uint64_t state = s->grain | 1;
    lattice_fill(&v.ground, s->grain, 0);
    lattice_fill(&v.mottle, s->grain, 1);
    v.inv_x = 1 / (s->radius * stretch);
    v.inv_y = -stretch / s->radius; /* the y axis of objects points upwards */
    v.edge = s->radius * (float)size / 2;
    for (int row = 0; row < size; row++) {
        for (int column = 0; column < size; column++, rgb += 3) {
            float c[3];
            pixel(&v, (2 * (float)column + 1) / (float)size - 1, (2 * (float)row + 1) / (float)size - 1, c);
            state ^= state << 13; /* xorshift: three bytes of noise per pixel */
            state ^= state >> 7;
            state ^= state << 17;
            for (int k = 0; k < 3; k++) {
                float noise = s->noise * ((float)(state >> (16 + 8 * k) & 0xff) / 127.5f - 1);
                rgb[k] = (uint8_t)(255 * clampf(c[k] + noise, 0, 1) + 0.5f);
            }
        }
    }
}
