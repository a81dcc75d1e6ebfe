/* The arithmetic of the buffer ssd: relations and their gradient against the formula in double, the gap, the step, and the
 * conversion between bytes and pixels. */
#include "buffer/ssd.h"
#include "compute/pixels.h"

#include "numeric.h"
#include "test.h"

enum { MAX_D = 12, MAX_N = 5, MAX_MEMORY = 10, CASES = 3000 };

typedef struct relation {
    int n, D, count;
    double feature[MAX_N * MAX_D], real[MAX_D], memory[MAX_MEMORY * MAX_D];
} relation;

static double length(const double *x, int D)
{
    double sum = 0;
    for (int i = 0; i < D; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* Returns gap j of the formula: |s - m_j| - |r - m_j|. */
static double gap(const relation *c, int j)
{
    double s[MAX_D], r[MAX_D];
    const double *m = c->memory + j * c->D;
    for (int k = 0; k < c->D; k++) {
        double unit = m[k] / length(m, c->D);
        s[k] = r[k] = -unit;
        for (int i = 0; i < c->n; i++)
            s[k] += c->feature[i * c->D + k] / length(c->feature + i * c->D, c->D) / c->n;
        r[k] += c->real[k];
    }
    return length(s, c->D) - length(r, c->D);
}

static double loss_of(const relation *c)
{
    double sum = 0;
    for (int j = 0; j < c->count; j++)
        sum += fabs(gap(c, j));
    return sum;
}

static relation random_relation(sfp__rng *rng)
{
    relation c = {.n = 1 + (int)sfp__rng_below(rng, MAX_N),
                  .D = 2 + (int)sfp__rng_below(rng, MAX_D - 1),
                  .count = 1 + (int)sfp__rng_below(rng, MAX_MEMORY)};
    double sd = exp(2 * sfp__rng_normal(rng));
    for (int i = 0; i < c.n * c.D; i++)
        c.feature[i] = (double)(float)(sd * sfp__rng_normal(rng));
    for (int i = 0; i < c.D; i++)
        c.real[i] = (double)(float)(sfp__rng_normal(rng) / c.D);
    for (int i = 0; i < c.count * c.D; i++)
        c.memory[i] = (double)(float)sfp__rng_normal(rng);
    return c;
}

static void to_float(const double *from, int n, float *to)
{
    for (int i = 0; i < n; i++)
        to[i] = (float)from[i];
}

/* Skips cases where a gap is so close to 0 that a difference would cross the kink of the absolute value. */
static bool has_corner(const relation *c)
{
    for (int j = 0; j < c->count; j++)
        if (fabs(gap(c, j)) < 1e-3)
            return true;
    return false;
}

TEST(relations_and_their_gradient_equal_the_formula)
{
    sfp__rng rng = sfp__rng_init(1, 1);
    int checked = 0;
    for (int t = 0; t < CASES; t++) {
        relation c = random_relation(&rng);
        if (has_corner(&c))
            continue;
        checked++;
        float feature[MAX_N * MAX_D], real[MAX_D], memory[MAX_MEMORY * MAX_D], work[3 * MAX_D], got[MAX_N * MAX_D];
        to_float(c.feature, c.n * c.D, feature);
        to_float(c.real, c.D, real);
        to_float(c.memory, c.count * c.D, memory);
        double loss = sfp__ssd_relation(c.n, c.D, feature, real, c.count, memory, work, got), want = loss_of(&c);
        if (!(fabs(loss - want) <= 2e-6 * c.count))
            fail_msg("case %d: relation loss is %.9g, expected %.9g", t, loss, want);
        double largest = 0, error = 0;
        for (int k = 0; k < c.n * c.D; k++) {
            double x = c.feature[k], h = 1e-5 * length(c.feature + k / c.D * c.D, c.D), side[2];
            for (int s = 0; s < 2; s++) {
                c.feature[k] = x + (s ? h : -h);
                side[s] = loss_of(&c);
            }
            c.feature[k] = x;
            double slope = (side[1] - side[0]) / (2 * h);
            largest = fmax(largest, fabs(slope));
            error = fmax(error, fabs(slope - (double)got[k]));
        }
        /* the gradient may be near 0 by chance; its typical size is count / |f| */
        double scale = fmax(largest, 0.01 * c.count / (length(c.feature, c.D) * c.n));
        if (!(error <= 1e-4 * scale))
            fail_msg("case %d: the gradient is off by %.3g, its largest number is %.3g", t, error, largest);
    }
    assert_true(checked > CASES / 2);
}

TEST(equal_means_have_no_relation_loss_and_no_gradient)
{
    const float feature[] = {3, 0, 0, 4}, real[] = {0.5f, 0.5f}, memory[] = {1, 1, -1, 2};
    float work[6], got[4];
    assert_true(sfp__ssd_relation(2, 2, feature, real, 2, memory, work, got) == 0);
    for (int i = 0; i < 4; i++)
        assert_true(got[i] == 0);
}

TEST(zero_features_give_finite_results)
{
    const float feature[] = {0, 0}, real[] = {1, 0}, memory[] = {0, 0};
    float work[6], got[2];
    assert_true(isfinite(sfp__ssd_relation(1, 2, feature, real, 1, memory, work, got)));
    assert_true(isfinite(got[0]) && isfinite(got[1]));
}

TEST(the_gap_is_a_squared_distance_with_gradient_v)
{
    float gs[] = {1, -2, 3}, gr[] = {0.5f, 1, 3}, v[3];
    assert_true(sfp__ssd_gap(3, gs, gr, v) == 0.25 + 9);
    assert_true(v[0] == 1 && v[1] == -6 && v[2] == 0);
    (void)sfp__ssd_gap(3, gs, gr, gs); /* in place */
    assert_memory_equal(gs, v, sizeof v);
}

TEST(a_step_has_momentum_and_stays_in_range)
{
    const float g[] = {1, -1, 1000, -1000, NAN}, u[] = {2, 0, 0, 0, 0}, x[] = {0, 0, 0, 0, 0};
    float un[5], xn[5], preview[5];
    const sfp__ssd_channel c = {.low = -2, .high = 1.5f, .rate = 0.01f};
    sfp__ssd_step(5, &c, g, u, x, un, xn);
    assert_true(un[0] == SFP__SSD_MOMENTUM * 2 + 1 && xn[0] == -0.01f * un[0]);
    assert_true(un[1] == -1 && xn[1] == 0.01f);
    assert_true(xn[2] == -2 && xn[3] == 1.5f);
    assert_true(xn[4] == -2); /* NaN becomes the minimum */
    sfp__ssd_step(4, &c, g, u, x, NULL, preview);
    assert_memory_equal(preview, xn, 4 * sizeof *xn);
}

/* The published step is SGD with rate 4e-3 and momentum 0.9 on pixels p in [0, 1]. The loss is sum_i sin(a_i p_i); ssd sees its
 * gradient with respect to x = (p - mean) / std. Both must move p in the same way. */
TEST(steps_on_normalised_pixels_equal_the_published_steps_on_pixels_in_0_1)
{
    enum { PIXELS = 6, STEPS = 20 };
    const double means[] = {0.485, 0, 0.5}, stds[] = {0.229, 1, 0.5};
    for (int k = 0; k < 3; k++) {
        double p[PIXELS], momentum[PIXELS] = {0}, start[PIXELS];
        float x[PIXELS], u[PIXELS] = {0}, g[PIXELS];
        const sfp__ssd_channel c = {.low = -100, .high = 100, .rate = sfp__ssd_rate((float)stds[k])};
        for (int i = 0; i < PIXELS; i++) {
            p[i] = start[i] = (i + 0.5) / PIXELS;
            x[i] = (float)((p[i] - means[k]) / stds[k]);
        }
        for (int t = 0; t < STEPS; t++) {
            for (int i = 0; i < PIXELS; i++) {
                momentum[i] = 0.9 * momentum[i] + (i + 1) * cos((i + 1) * p[i]);
                p[i] -= 4e-3 * momentum[i];
                g[i] = (float)((i + 1) * cos((i + 1) * (means[k] + stds[k] * (double)x[i])) * stds[k]);
            }
            sfp__ssd_step(PIXELS, &c, g, u, x, u, x);
        }
        for (int i = 0; i < PIXELS; i++) {
            assert_true(fabs(p[i] - start[i]) > 0.01);
            assert_true(fabs(means[k] + stds[k] * (double)x[i] - p[i]) < 1e-5);
        }
    }
}

TEST(bytes_survive_conversion_and_pixels_are_rounded)
{
    enum { S = 10 };
    const float mean[][3] = {{0.485f, 0.456f, 0.406f}, {0, 0, 0}, {0.5f, 0.5f, 0.5f}};
    const float std[][3] = {{0.229f, 0.224f, 0.225f}, {1, 1, 1}, {0.5f, 0.25f, 2}};
    uint8_t rgb[3 * S * S], back[3 * S * S];
    float x[3 * S * S];
    for (int i = 0; i < 3 * S * S; i++)
        rgb[i] = (uint8_t)i;
    for (int c = 0; c < 3; c++) {
        sfp__pixels_normalise(rgb, S, mean[c], std[c], x);
        assert_true(x[S * S + 7] == ((float)rgb[3 * 7 + 1] / 255.0f - mean[c][1]) / std[c][1]); /* planes of rows */
        sfp__pixels_to_bytes(x, S, mean[c], std[c], back);
        assert_memory_equal(back, rgb, sizeof rgb);
    }
    const float odd[12] = {-0.1f, 1.1f, NAN, 0.499f / 255, 0.501f / 255, 254.6f / 255, INFINITY, -INFINITY};
    const uint8_t want[] = {0, 255, 0, 0, 1, 255, 255, 0};
    sfp__pixels_to_bytes(odd, 2, mean[1], std[1], back);
    for (int i = 0; i < 8; i++)
        assert_int_equal(back[3 * (i % 4) + i / 4], want[i]);
}
