#include "buffer/knn_shapley.h"

#include "base/rank.h"
#include "compute/vec.h"

#include <math.h>
#include <stddef.h>

/* From the farthest to the nearest: s_n = [same_n] min(k,n) / (n k), s_i = s_(i+1) + ([same_i] - [same_(i+1)]) min(k,i) / (i k),
 * i counted from 1. With fewer than k points every one is worth [same] / k. */
void sfp__knn_shapley(int n, int k, const bool *same, double *value)
{
    double next = 0;
    for (int i = n; i > 0; i--) {
        int gain = (int)same[i - 1] - (i < n ? (int)same[i] : 0);
        next += gain * (double)(k < i ? k : i) / ((double)i * k);
        value[i - 1] = next;
    }
}

static const float *row(const sfp_shapley_game *g, int i)
{
    return g->x + (size_t)i * (size_t)g->dim;
}

static bool is_finite(const sfp_shapley_game *g, int i)
{
    float zero = 0;
    for (int k = 0; k < g->dim; k++)
        zero += 0.0f * row(g, i)[k];
    return zero == 0;
}

void sfp__knn_shapley_sum(const sfp_shapley_game *g, double *sum)
{
    int n = 0;
    for (int i = 0; i < g->n; i++) {
        bool plays = is_finite(g, i);
        sum[i] = plays ? 0 : -INFINITY;
        if (plays)
            g->finite[n++] = i;
    }
    for (int t = 0; t < g->tests; t++) {
        int test = g->test[t];
        if (!is_finite(g, test))
            continue;
        for (int i = 0; i < n; i++)
            g->near[i] = (float)-sfp__distance2_f64(g->dim, row(g, test), row(g, g->finite[i]));
        sfp__rank_descending(n, g->near, g->order);
        for (int i = 0; i < n; i++)
            g->same[i] = g->label[g->finite[g->order[i]]] == g->label[test];
        sfp__knn_shapley(n, g->k, g->same, g->value);
        for (int i = 0; i < n; i++)
            sum[g->finite[g->order[i]]] += g->value[i];
    }
}
