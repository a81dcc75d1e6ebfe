#include "buffer/gss_score.h"

#include "compute/vec.h"

#include <math.h>

int sfp__gss_group_size(int filled)
{
    return filled < SFP_GSS_GROUP ? filled : SFP_GSS_GROUP;
}

int sfp__gss_groups(int filled)
{
    int groups = filled > 0 ? filled / sfp__gss_group_size(filled) : 0;
    return groups < SFP_GSS_GROUPS ? groups : SFP_GSS_GROUPS;
}

/* All numbers that learn may be more than an int counts. */
static double dot(size_t n, const float *a, const float *b)
{
    enum { PIECE = 1 << 20 };
    double sum = 0;
    for (size_t at = 0; at < n; at += PIECE)
        sum += sfp__dot_f64((int)(n - at < PIECE ? n - at : PIECE), a + at, b + at);
    return sum;
}

void sfp__gss_unit(size_t n, float *g)
{
    double length = sqrt(dot(n, g, g));
    for (size_t i = 0; i < n && length > 0; i++)
        g[i] = (float)((double)g[i] / length);
}

typedef struct products {
    size_t n;
    const float *group, *g;
    double out[SFP_GSS_GROUPS];
} products;

static void product_piece(void *ctx, int i, int worker)
{
    products *p = ctx;
    (void)worker;
    p->out[i] = dot(p->n, p->group + (size_t)i * p->n, p->g);
}

float sfp__gss_score(size_t n, int groups, const float *group, const float *g, sfp_thread_pool *threads)
{
    products p = {.n = n, .group = group, .g = g};
    double length = sqrt(dot(n, g, g)), best = -INFINITY;
    if (threads)
        sfp__thread_pool_run(threads, groups, product_piece, &p);
    for (int i = 0; i < groups; i++) {
        if (!threads)
            product_piece(&p, i, 0);
        double cosine = length == 0 ? 0 : p.out[i] / length;
        best = isfinite(cosine) ? fmax(best, cosine) : best;
    }
    return isfinite(best) ? (float)fmax(fmin(best, 1), -1) : 1.0f;
}

static double sane(float score)
{
    return isfinite(score) ? fmax(fmin((double)score, 1), -1) : 1;
}

void sfp__gss_weights(int n, const float *score, double *weight)
{
    double min = INFINITY, max = -INFINITY;
    for (int i = 0; i < n; i++) {
        weight[i] = sane(score[i]);
        min = fmin(min, weight[i]);
        max = fmax(max, weight[i]);
    }
    for (int i = 0; i < n; i++)
        weight[i] = (weight[i] - min) / (max - min + 0.01);
}

double sfp__gss_replace(float slot, float fresh)
{
    double a = sane(slot) + 1, b = sane(fresh) + 1;
    return a + b > 0 ? a / (a + b) : 0.5;
}
