#include "buffer/ssd.h"

#include "compute/vec.h"

#include <math.h>
#include <string.h>

#define TINY 1e-12f    /* the least length a vector is divided by, as PyTorch's normalize */
#define TINY_GAP 1e-6f /* the least distance, as the authors' */

double sfp__ssd_gap(size_t n, const float *gs, const float *gr, float *v)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        float gap = gs[i] - gr[i];
        sum += (double)gap * (double)gap;
        v[i] = 2 * gap;
    }
    return sum;
}

static float inverse_length(int D, const float *x)
{
    return 1 / fmaxf(sqrtf(sfp__dot(D, x, x)), TINY);
}

void sfp__ssd_add_units(int n, int D, const float *rows, float scale, float *to)
{
    for (int i = 0; i < n; i++) {
        const float *row = rows + (size_t)i * (size_t)D;
        sfp__axpy(D, scale * inverse_length(D, row), row, to);
    }
}

static float distance(int D, const float *a, const float *b)
{
    float sum = 0;
    for (int i = 0; i < D; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return fmaxf(sqrtf(sum), TINY_GAP);
}

double sfp__ssd_relation(int n, int D, const float *feature, const float *real, int count, const float *memory, float *work,
                         float *dfeature)
{
    float *mean = work, *unit = work + D, *dmean = work + 2 * D;
    double loss = 0;
    memset(work, 0, 3 * (size_t)D * sizeof *work);
    sfp__ssd_add_units(n, D, feature, 1 / (float)n, mean);
    for (int j = 0; j < count; j++) {
        memset(unit, 0, (size_t)D * sizeof *unit);
        sfp__ssd_add_units(1, D, memory + (size_t)j * (size_t)D, 1, unit);
        float to = distance(D, mean, unit), gap = to - distance(D, real, unit);
        loss += (double)fabsf(gap);
        float slope = gap > 0 ? 1 / to : gap < 0 ? -1 / to : 0;
        for (int k = 0; k < D; k++)
            dmean[k] += slope * (mean[k] - unit[k]);
    }
    for (int i = 0; i < n; i++) { /* through the unit vector e = f / |f|: (d - <d, e> e) / |f| */
        const float *f = feature + (size_t)i * (size_t)D;
        float *to = dfeature + (size_t)i * (size_t)D;
        float inverse = inverse_length(D, f), along = sfp__dot(D, dmean, f) * inverse * inverse, scale = inverse / (float)n;
        for (int k = 0; k < D; k++)
            to[k] = scale * (dmean[k] - along * f[k]);
    }
    return loss;
}

void sfp__ssd_step(size_t n, float low, float high, const float *g, const float *u, const float *x, float *u_next, float *x_next)
{
    for (size_t i = 0; i < n; i++) {
        float speed = SFP_SSD_MOMENTUM * u[i] + g[i];
        x_next[i] = fminf(fmaxf(x[i] - SFP_SSD_RATE * speed, low), high);
        if (u_next)
            u_next[i] = speed;
    }
}
