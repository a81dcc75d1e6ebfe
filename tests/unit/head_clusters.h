/* Samples for closed-form heads: a Gaussian cluster per class, with labels 0, 2, 4, ... Define N, D and CLASSES, then include. */
#ifndef SFP_TESTS_HEAD_CLUSTERS_H
#define SFP_TESTS_HEAD_CLUSTERS_H

#include "base/rng.h"

#include "numeric.h"

static const char *const kinds[] = {"ncm", "slda", "ridge", "balanced ridge"};
enum { KINDS = sizeof kinds / sizeof *kinds };

static float x[N][D];
static int32_t label[N];
static uint64_t key[N];

/* The last class has only the last `alone` samples. Value j has the mean j * slope + that of the class, and the deviation sd + j * growth. */
static inline void make_clusters(uint64_t seed, int alone, double slope, double sd, double growth)
{
    sfp__rng rng = sfp__rng_init(seed, 0);
    float *mean = normals(&rng, CLASSES * D, 1);
    for (int i = 0; i < N; i++) {
        int k = i >= N - alone ? CLASSES - 1 : (int)sfp__rng_below(&rng, CLASSES - 1);
        label[i] = 2 * k;
        key[i] = (uint64_t)sfp__rng_u32(&rng) << 32 | sfp__rng_u32(&rng);
        for (int j = 0; j < D; j++)
            x[i][j] = (float)(slope * j + (double)mean[k * D + j] + (sd + growth * j) * sfp__rng_normal(&rng));
    }
}

#endif
